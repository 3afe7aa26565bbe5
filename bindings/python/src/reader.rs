//! Captures to record batches: a replay in a thread of its own, and what takes its batches.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle, ThreadId};
use std::time::{Duration, Instant};

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use std::ops::ControlFlow;
use tapeworks_analysis::input;
use tapeworks_analysis::replay::{self, ReplayError, Summary};
use tapeworks_store::{BatchMaker, BatchSink, Closed, Format, RowBatch, Schema, Writer, arrow_schema};

use crate::errors::Failure;
use crate::options::Given;
use crate::record::Record;
use crate::stream::{self, Batch};

/// The longest wait without a look at signals.
pub(crate) const LOOK: Duration = Duration::from_millis(100);

/// Batches that wait for their reader.
const WAITING: usize = 16;

/// How far the replay is, and whether it shall stop.
#[derive(Default)]
struct Shared {
    bytes: AtomicU64,
    /// 0: not known.
    total_bytes: AtomicU64,
    messages: AtomicU64,
    stop: AtomicBool,
}

struct ToReader(SyncSender<RowBatch>);

impl BatchSink for ToReader {
    fn put(&mut self, batch: RowBatch) -> Result<(), Closed> {
        self.0.send(batch).map_err(|_| Closed)
    }
}

/// A replay under way.
struct Running {
    batches: Option<Receiver<RowBatch>>,
    /// Makes their columns, on the thread that takes them.
    maker: Option<BatchMaker>,
    thread: Option<JoinHandle<Result<Summary, ReplayError>>>,
    shared: Arc<Shared>,
    summary: Option<Box<Summary>>,
    /// What the input lacked is said once.
    is_reported: bool,
}

enum Next {
    Batch(RecordBatch),
    /// None came so far.
    Wait,
    End,
}

impl Running {
    /// Begins. Without `batches` what is made goes to the outputs of `options`.
    fn start(options: replay::Options, batches: Option<(Schema, tapeworks_store::Prices)>) -> Self {
        let (sender, receiver) = sync_channel(WAITING);
        let maker = batches.map(|(schema, prices)| BatchMaker::new(schema, prices));
        let shared = Arc::new(Shared::default());
        let seen = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            let mut writers = Vec::new();
            // Without a writer of batches the sender lives until the end all the same.
            let mut kept = None;
            match batches {
                Some((schema, _)) => {
                    let sink = Box::new(ToReader(sender));
                    writers.push((schema, Writer::create_batches(schema, sink)));
                }
                None => kept = Some(sender),
            }
            let summary = replay::replay_into(&options, writers, &mut |progress| {
                seen.bytes.store(progress.bytes, Ordering::Relaxed);
                seen.total_bytes.store(progress.total_bytes.unwrap_or(0), Ordering::Relaxed);
                seen.messages.store(progress.messages, Ordering::Relaxed);
                match seen.stop.load(Ordering::Relaxed) {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            });
            drop(kept);
            summary
        });
        Self {
            batches: Some(receiver),
            maker,
            thread: Some(thread),
            shared,
            summary: None,
            is_reported: false,
        }
    }

    fn next(&mut self) -> Result<Next, Failure> {
        let Some(batches) = &self.batches else { return Ok(Next::End) };
        match batches.recv_timeout(LOOK) {
            Ok(batch) => match &mut self.maker {
                Some(maker) => Ok(Next::Batch(maker.make(batch)?)),
                None => Ok(Next::Wait),
            },
            Err(RecvTimeoutError::Timeout) => Ok(Next::Wait),
            Err(RecvTimeoutError::Disconnected) => {
                self.batches = None;
                match self.thread.take().map(JoinHandle::join) {
                    Some(Ok(Ok(mut summary))) => {
                        // The writer has not seen the columns.
                        if let (Some(written), Some(maker)) = (summary.written.last_mut(), &self.maker) {
                            written.summary.out_of_range += maker.out_of_range();
                        }
                        self.shared.messages.store(summary.messages, Ordering::Relaxed);
                        self.shared
                            .bytes
                            .store(self.shared.total_bytes.load(Ordering::Relaxed), Ordering::Relaxed);
                        self.summary = Some(Box::new(summary));
                        Ok(Next::End)
                    }
                    Some(Ok(Err(error))) => Err(error.into()),
                    Some(Err(_)) => Err(Failure::internal("the replay's thread has panicked")),
                    None => Ok(Next::End),
                }
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The thread ends at its next look or batch; nothing waits for it.
        self.shared.stop.store(true, Ordering::Relaxed);
    }
}

type Handle = Arc<Mutex<Option<Running>>>;

fn locked(running: &Handle) -> MutexGuard<'_, Option<Running>> {
    running.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The next batch. The lock is not held while the interpreter is asked for signals.
fn next_of(running: &Handle) -> Result<Next, Failure> {
    locked(running).as_mut().map_or(Ok(Next::End), Running::next)
}

/// What an Arrow stream reads from.
struct Batches {
    running: Handle,
    schema: SchemaRef,
    /// As of `read`.
    errors: String,
    /// Whose signals are looked at: another thread must not wait for the interpreter's lock.
    thread: ThreadId,
    looked: Instant,
}

impl Batches {
    /// Whether the user has interrupted.
    fn is_interrupted(&mut self) -> bool {
        if thread::current().id() != self.thread || self.looked.elapsed() < LOOK {
            return false;
        }
        self.looked = Instant::now();
        // What reads the stream knows errors of Arrow only: it raises ours, which says KeyboardInterrupt in words.
        Python::attach(|py| py.check_signals().is_err())
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>, ArrowError> {
        loop {
            if self.is_interrupted() {
                *locked(&self.running) = None;
                return Err(ArrowError::ComputeError("interrupted: KeyboardInterrupt".to_owned()));
            }
            match next_of(&self.running) {
                Ok(Next::Batch(batch)) => return Ok(Some(batch)),
                Ok(Next::Wait) => {}
                Ok(Next::End) => return self.end(),
                Err(failure) => return Err(ArrowError::ComputeError(failure.to_string())),
            }
        }
    }

    /// Says what the input lacked. On a thread of another library's nothing can be raised but an error of Arrow.
    fn end(&mut self) -> Result<Option<RecordBatch>, ArrowError> {
        let Some(summary) = unclean(&self.running) else { return Ok(None) };
        if thread::current().id() == self.thread {
            let said = Python::attach(|py| report(py, &summary, &self.errors));
            return said.map(|()| None).map_err(|error| ArrowError::ComputeError(error.to_string()));
        }
        match self.errors.as_str() {
            "raise" if summary["is_clean"] != true => Err(ArrowError::ComputeError(
                "messages are missing or cannot be read: see the reader's summary".to_owned(),
            )),
            _ => Ok(None),
        }
    }
}

/// The summary of input that lacked something, the first time that it is asked for.
fn unclean(running: &Handle) -> Option<serde_json::Value> {
    let mut running = locked(running);
    let running = running.as_mut()?;
    let summary = running
        .summary
        .as_ref()
        .filter(|summary| !summary.is_clean() || summary.lacking().next().is_some())?;
    if std::mem::replace(&mut running.is_reported, true) {
        return None;
    }
    Some(summary.to_json())
}

fn report(py: Python<'_>, summary: &serde_json::Value, errors: &str) -> PyResult<()> {
    let summary = to_python(py, summary)?;
    py.import("tapeworks.errors")?.call_method1("report", (summary, errors)).map(drop)
}

impl Iterator for Batches {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_batch().transpose()
    }
}

impl RecordBatchReader for Batches {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

/// Reads captures and message files: see `tapeworks.read`.
#[pyclass(subclass, module = "tapeworks._native")]
pub(crate) struct Reader {
    options: replay::Options,
    schema: Schema,
    prices: tapeworks_store::Prices,
    errors: String,
    running: Handle,
    has_begun: bool,
    current: Option<(Arc<RecordBatch>, usize)>,
}

impl Reader {
    fn begin(&mut self) {
        if !self.has_begun {
            self.has_begun = true;
            let batches = Some((self.schema, self.prices));
            *locked(&self.running) = Some(Running::start(self.options.clone(), batches));
        }
    }

    /// Waits for the next batch.
    fn wait(&self, py: Python<'_>) -> PyResult<Option<RecordBatch>> {
        loop {
            let next = py.detach(|| next_of(&self.running));
            match next? {
                Next::Batch(batch) => return Ok(Some(batch)),
                Next::Wait => py.check_signals()?,
                Next::End => {
                    self.report(py)?;
                    return Ok(None);
                }
            }
        }
    }

    /// Says at the end, once, what the input lacked.
    fn report(&self, py: Python<'_>) -> PyResult<()> {
        match py.detach(|| unclean(&self.running)) {
            Some(summary) => report(py, &summary, &self.errors),
            None => Ok(()),
        }
    }
}

#[pymethods]
impl Reader {
    #[new]
    #[pyo3(signature = (
        paths, schema="mbo", *, symbols=None, start=None, end=None, prices="float", protocol=None, venue=None, date=None,
        stale="flag", odd_lots=false, limit=None, threads=None, errors="warn"
    ))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        paths: Vec<PathBuf>,
        schema: &str,
        symbols: Option<Vec<String>>,
        start: Option<i128>,
        end: Option<i128>,
        prices: &str,
        protocol: Option<String>,
        venue: Option<String>,
        date: Option<String>,
        stale: &str,
        odd_lots: bool,
        limit: Option<u64>,
        threads: Option<usize>,
        errors: &str,
    ) -> PyResult<Self> {
        if paths.is_empty() {
            return Err(Failure::usage("there is no file to read").into());
        }
        if !["warn", "raise", "ignore"].contains(&errors) {
            let text = format!("errors is '{errors}': expected one of warn, raise, ignore");
            return Err(Failure::usage(text).into());
        }
        let stale = stale.to_owned();
        let given =
            Given { paths, symbols, start, end, protocol, venue, date, stale, odd_lots, limit, threads };
        let options = replay::Options { skips_unused: true, ..given.options()? };
        // A file that cannot be read is an error here, not at the first record. A pipe can be opened once.
        let files: Vec<_> = options.inputs.iter().filter(|path| !is_pipe(path)).cloned().collect();
        py.detach(|| input::open_all(&files, options.application)).map_err(Failure::from)?;
        Ok(Self {
            schema: schema.parse().map_err(Failure::from)?,
            prices: crate::options::prices(prices)?,
            options,
            errors: errors.to_owned(),
            running: Arc::default(),
            has_begun: false,
            current: None,
        })
    }

    /// The name of the schema.
    #[getter]
    fn schema(&self) -> &'static str {
        self.schema.as_str()
    }

    /// Bytes read of the files as they lie, bytes of all files (`None` when one has no length), messages taken.
    #[getter]
    fn progress(&self, py: Python<'_>) -> (u64, Option<u64>, u64) {
        let shared = py.detach(|| locked(&self.running).as_ref().map(|running| Arc::clone(&running.shared)));
        shared.map_or((0, None, 0), |shared| {
            let total = shared.total_bytes.load(Ordering::Relaxed);
            let load = |of: &AtomicU64| of.load(Ordering::Relaxed);
            (load(&shared.bytes), (total > 0).then_some(total), load(&shared.messages))
        })
    }

    /// What was read and what was not, once all is read: the object of `tapeworks replay --json`. `None` before. It has no NBBO where
    /// the records need none.
    #[getter]
    fn summary<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let summary = py.detach(|| {
            let running = locked(&self.running);
            running.as_ref().and_then(|running| running.summary.as_ref()).map(|summary| summary.to_json())
        });
        summary.map(|summary| to_python(py, &summary)).transpose()
    }

    /// Ends the reading. What came so far is what there is.
    fn close(&mut self, py: Python<'_>) {
        self.has_begun = true;
        self.current = None;
        let ended = py.detach(|| locked(&self.running).take());
        drop(ended);
    }

    /// Whether all was read, or the reader was closed: there is nothing more for a table or a data frame.
    #[getter]
    fn is_over(&self, py: Python<'_>) -> bool {
        let has_more = || locked(&self.running).as_ref().is_some_and(|running| running.batches.is_some());
        self.has_begun && self.current.is_none() && !py.detach(has_more)
    }

    /// The next batch, for the Arrow PyCapsule interface; `None` at the end.
    fn next_batch(&mut self, py: Python<'_>) -> PyResult<Option<Batch>> {
        self.begin();
        Ok(self.wait(py)?.map(Batch))
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&mut self, py: Python<'_>) -> PyResult<Option<Record>> {
        self.begin();
        loop {
            if let Some((batch, row)) = &mut self.current
                && *row < batch.num_rows()
            {
                *row += 1;
                return Ok(Some(Record::of_row(Arc::clone(batch), *row - 1, self.schema.as_str())));
            }
            match self.wait(py)? {
                Some(batch) => self.current = Some((Arc::new(batch), 0)),
                None => {
                    self.current = None;
                    return Ok(None);
                }
            }
        }
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        stream::schema(py, &arrow_schema(self.schema, self.prices))
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &mut self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // The interface lets us answer in our own types.
        drop(requested_schema);
        if self.is_over(py) {
            return Err(Failure::usage("this reader is exhausted: call tapeworks.read again").into());
        }
        self.begin();
        let batches = Batches {
            running: Arc::clone(&self.running),
            schema: arrow_schema(self.schema, self.prices),
            errors: self.errors.clone(),
            thread: thread::current().id(),
            looked: Instant::now(),
        };
        stream::stream(py, Box::new(batches))
    }

    /// Writes the records to a file instead; `format` or the name's ending says how. Returns the summary.
    #[pyo3(signature = (path, *, overwrite=false, format=None))]
    fn write<'py>(
        &mut self,
        py: Python<'py>,
        path: PathBuf,
        overwrite: bool,
        format: Option<&str>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        if self.has_begun {
            return Err(Failure::usage("the reader has begun: write with a reader of its own").into());
        }
        let format = format.map(str::parse::<Format>).transpose().map_err(Failure::from)?;
        // DBN has 1e-9 units whatever is asked for; Parquet has prices as here.
        let options =
            tapeworks_store::Options { overwrite, format, prices: self.prices, ..Default::default() };
        self.options.outputs = vec![replay::Output { path, schema: self.schema, options }];
        self.has_begun = true;
        *locked(&self.running) = Some(Running::start(self.options.clone(), None));
        match self.wait(py) {
            Ok(_) => self.summary(py),
            Err(error) => {
                // The thread removes the unfinished file.
                let ended = py.detach(|| locked(&self.running).take());
                drop(ended);
                Err(error)
            }
        }
    }
}

/// Whether a path is no plain file.
fn is_pipe(path: &std::path::Path) -> bool {
    path.as_os_str() == "-"
        || std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir())
}

/// A JSON value as Python has it.
pub(crate) fn to_python<'py>(py: Python<'py>, value: &serde_json::Value) -> PyResult<Bound<'py, PyAny>> {
    py.import("json")?.call_method1("loads", (value.to_string(),))
}
