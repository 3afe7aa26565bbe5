//! `dump`, `stats`, `study` and `generate`, as the commands of these names.

use std::collections::HashSet;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use pyo3::prelude::*;
use tapeworks_analysis::sessions::ReadAs;
use tapeworks_analysis::{
    dump as dumping, generate as generating, input, stats as counting, study as studying,
};
use tapeworks_capture::new_file::CompressedFile;
use tapeworks_generator::{FileForm, LineFaults, Report, ScenarioKind, VenueConfig, VenueKind, WrongVenue};
use tapeworks_market::Symbol;
use tapeworks_time::Nanos;

use crate::errors::Failure;
use crate::options::{application, midnight, read_as};
use crate::reader::{LOOK, to_python};

/// Runs `work` in a thread and waits for it. `work` looks at the flag, which an interrupt sets.
fn interruptible<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce(&AtomicBool) -> Result<T, Failure> + Send + 'static,
) -> PyResult<T> {
    let stop = Arc::new(AtomicBool::new(false));
    let (sender, mut receiver) = sync_channel::<()>(0);
    let seen = Arc::clone(&stop);
    let thread = thread::spawn(move || {
        let done = work(&seen);
        drop(sender);
        done
    });
    loop {
        let ended = {
            let receiver = &mut receiver;
            py.detach(move || receiver.recv_timeout(LOOK))
        };
        if matches!(ended, Err(RecvTimeoutError::Disconnected)) {
            break;
        }
        if let Err(interrupt) = py.check_signals() {
            stop.store(true, Ordering::Relaxed);
            // It ends soon, and removes what it has begun to write. A thread that waits for a pipe is left to itself.
            let receiver = &mut receiver;
            let _ended = py.detach(move || receiver.recv_timeout(10 * LOOK));
            return Err(interrupt);
        }
    }
    match py.detach(|| thread.join()) {
        Ok(done) => Ok(done?),
        Err(_) => Err(Failure::internal("a thread has panicked").into()),
    }
}

fn unless(stop: &AtomicBool) -> ControlFlow<()> {
    if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

/// What is in captures: the object of `tapeworks stats --json`.
#[pyfunction]
#[pyo3(signature = (paths, *, protocol=None, top=10))]
pub(crate) fn stats<'py>(
    py: Python<'py>,
    paths: Vec<PathBuf>,
    protocol: Option<String>,
    top: usize,
) -> PyResult<Bound<'py, PyAny>> {
    let read_as = protocol.as_deref().map(read_as).transpose()?;
    let found = interruptible(py, move |stop| {
        let mut inputs = input::open_any(&paths, read_as)?;
        Ok(counting::count(&mut inputs, read_as, &mut |_| unless(stop)).to_json(top))
    })?;
    to_python(py, &found)
}

/// How long a queue would have become: the object of `tapeworks study --json`.
#[pyfunction]
#[pyo3(signature = (paths, service_ns, *, window_ns=None, start=None, end=None, protocol=None))]
pub(crate) fn study<'py>(
    py: Python<'py>,
    paths: Vec<PathBuf>,
    service_ns: Vec<u64>,
    window_ns: Option<u64>,
    start: Option<u64>,
    end: Option<u64>,
    protocol: Option<String>,
) -> PyResult<Bound<'py, PyAny>> {
    if service_ns.is_empty() || service_ns.contains(&0) || window_ns == Some(0) {
        return Err(Failure::usage("service_ns and window_ns: use times of 1 ns and more").into());
    }
    let application = protocol.as_deref().map(application).transpose()?;
    let found = interruptible(py, move |stop| {
        let mut inputs = input::open_all(&paths, application)?;
        let times = Nanos(start.unwrap_or(0))..Nanos(end.unwrap_or(u64::MAX));
        let observe = &mut |_| unless(stop);
        let read_as = application.map(ReadAs::Feed);
        Ok(studying::study(&mut inputs, read_as, &service_ns, window_ns, times, observe).to_json())
    })?;
    to_python(py, &found)
}

fn venue(text: &String) -> Result<VenueConfig, Failure> {
    VenueConfig::parse(text).map_err(|wrong| match wrong {
        WrongVenue::Name => {
            let keys: Vec<&str> = VenueKind::all().map(VenueKind::key).collect();
            Failure::usage(format!("unknown venue '{text}': expected one of {}", keys.join(", ")))
        }
        WrongVenue::Share => Failure::usage("a share is a whole number"),
    })
}

/// A file that ends when the user interrupts.
struct Watched<'f> {
    file: &'f mut CompressedFile,
    stop: &'f AtomicBool,
}

impl Write for Watched<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(io::Error::other("stopped"));
        }
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Generates a session: the same seed gives the same bytes. Returns what was made.
#[pyfunction]
#[pyo3(signature = (
    path, *, scenario="demo", messages=None, symbols=None, venues=Vec::new(), seed=None, date=None, line_b=false, loss=0,
    duplicates=0, reorder=0, late_copies=0, days=1, restarts=0, announced=true, overwrite=false
))]
#[allow(clippy::too_many_arguments)]
pub(crate) fn generate<'py>(
    py: Python<'py>,
    path: PathBuf,
    scenario: &str,
    messages: Option<u64>,
    symbols: Option<u32>,
    venues: Vec<String>,
    seed: Option<u64>,
    date: Option<String>,
    line_b: bool,
    loss: u32,
    duplicates: u32,
    reorder: u32,
    late_copies: u32,
    days: u16,
    restarts: u32,
    announced: bool,
    overwrite: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let kind = ScenarioKind::by_name(scenario).ok_or_else(|| {
        let names = ScenarioKind::NAMES.map(|(name, _)| name).join(", ");
        Failure::usage(format!("unknown scenario '{scenario}': expected one of {names}"))
    })?;
    let mut wanted = kind.scenario(messages, symbols);
    wanted.seed = seed.unwrap_or(wanted.seed);
    if let Some(date) = date {
        wanted.midnight_ns = midnight(&date)?.0;
    }
    let more_days = days.checked_sub(1).ok_or_else(|| Failure::usage("days must be at least 1"))?;
    generating::add_days(&mut wanted, more_days);
    (wanted.restarts, wanted.announces) = (restarts, announced);
    wanted.line_b |= line_b;
    wanted.faults = [LineFaults {
        lost_per_million: loss,
        duplicated_per_million: duplicates,
        reordered_per_million: reorder,
        late_copies_per_million: late_copies,
        late_copy_ns: LineFaults::USUAL_LATE_COPY_NS,
    }; 2];
    if !venues.is_empty() {
        wanted.venues = venues.iter().map(venue).collect::<Result<_, _>>()?;
    }
    if symbols.is_none() {
        wanted.fit_symbols();
    }
    wanted.check().map_err(|error| Failure::usage(error.to_string()))?;
    let form = FileForm::from_path(&path)
        .ok_or_else(|| Failure::usage("use a name that ends in .pcap or .itch, with .gz or .zst"))?;
    let report = interruptible(py, move |stop| {
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::InvalidInput => Failure::usage(error.to_string()),
            _ => Failure::output(error.to_string(), &path),
        };
        let mut file = CompressedFile::create(&path, overwrite)
            .map_err(|error| Failure::output(error.to_string(), &path))?;
        let sink = Watched { file: &mut file, stop };
        let report = generating::write(form, &wanted, sink).map_err(failed)?;
        file.finish().map_err(|error| Failure::output(error.to_string(), &path))?;
        Ok(report)
    })?;
    let Report { messages, packets, bytes, first_ns, last_ns, .. } = report;
    let found = serde_json::json!({
        "messages": messages,
        "packets": packets,
        "bytes": bytes,
        "first_ns": first_ns,
        "last_ns": last_ns,
    });
    to_python(py, &found)
}

/// Whole lines to the reader.
struct Lines {
    sender: SyncSender<Vec<u8>>,
    buffer: Vec<u8>,
}

/// Bytes of lines that are sent together.
const LINES_BYTES: usize = 64 << 10;

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= LINES_BYTES && self.buffer.ends_with(b"\n") {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.buffer.is_empty() {
            let lines = std::mem::take(&mut self.buffer);
            self.sender.send(lines).map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        }
        Ok(())
    }
}

/// A dump under way.
struct Dumping {
    lines: Receiver<Vec<u8>>,
    thread: JoinHandle<Result<(), Failure>>,
}

/// The messages of captures, field by field: an iterator of dictionaries.
#[pyclass(module = "tapeworks")]
pub(crate) struct Dump {
    running: Mutex<Option<Dumping>>,
    stop: Arc<AtomicBool>,
    /// Lines that are read, and how far.
    lines: (Vec<u8>, usize),
}

impl Drop for Dump {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

#[pymethods]
impl Dump {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        loop {
            let (lines, at) = &mut self.lines;
            let rest = lines.get(*at..).unwrap_or_default();
            if let Some(length) = rest.iter().position(|byte| *byte == b'\n') {
                let line = &rest[..length];
                let value = py.import("json")?.call_method1("loads", (line,))?;
                *at += length + 1;
                return Ok(Some(value));
            }
            let running = &self.running;
            let next = py.detach(|| {
                let running = running.lock().unwrap_or_else(PoisonError::into_inner);
                running.as_ref().map(|running| running.lines.recv_timeout(LOOK))
            });
            match next {
                None => return Ok(None),
                Some(Ok(lines)) => self.lines = (lines, 0),
                Some(Err(RecvTimeoutError::Timeout)) => py.check_signals()?,
                Some(Err(RecvTimeoutError::Disconnected)) => {
                    let ended = running.lock().unwrap_or_else(PoisonError::into_inner).take();
                    match ended.map(|running| py.detach(|| running.thread.join())) {
                        Some(Ok(done)) => done?,
                        Some(Err(_)) => {
                            return Err(Failure::internal("the dump's thread has panicked").into());
                        }
                        None => {}
                    }
                    return Ok(None);
                }
            }
        }
    }
}

/// The messages of captures, field by field, as `tapeworks dump --json` has them: an iterator of dictionaries.
#[pyfunction]
#[pyo3(signature = (paths, *, symbols=None, messages=None, protocol=None, limit=None))]
pub(crate) fn dump(
    py: Python<'_>,
    paths: Vec<PathBuf>,
    symbols: Option<Vec<String>>,
    messages: Option<Vec<String>>,
    protocol: Option<String>,
    limit: Option<u64>,
) -> PyResult<Dump> {
    let read_as = protocol.as_deref().map(read_as).transpose()?;
    let symbol = |text: String| {
        let symbol = Symbol::from_bytes(text.as_bytes());
        symbol.map_err(|error| Failure::usage(format!("'{text}': {error}")))
    };
    let symbols = symbols.map(|all| all.into_iter().map(symbol).collect::<Result<HashSet<_>, _>>());
    let options = dumping::Options {
        read_as,
        form: dumping::Form::Json,
        limit,
        symbols: symbols.transpose()?,
        messages: messages.into_iter().flatten().map(|name| name.to_ascii_lowercase()).collect(),
        ..dumping::Options::default()
    };
    // A pipe opens when its other end does.
    let mut inputs = interruptible(py, move |_| Ok(input::open_any(&paths, read_as)?))?;
    let (sender, lines) = sync_channel(4);
    let stop = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&stop);
    let thread = thread::spawn(move || {
        let mut out = Lines { sender, buffer: Vec::new() };
        let dumped = dumping::dump(&mut inputs, &options, &mut out, &mut |_| unless(&seen));
        // Where the reader is gone, nothing is left to say.
        let (Ok(dumped), Ok(())) = (dumped, out.flush()) else { return Ok(()) };
        match dumped.ended.damaged.first() {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    });
    let running = Mutex::new(Some(Dumping { lines, thread }));
    Ok(Dump { running, stop, lines: (Vec::new(), 0) })
}
