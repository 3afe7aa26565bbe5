//! Writers: where packets leave a graph.
//!
//! | stage | what it does | cost of a packet |
//! | --- | --- | --- |
//! | [`CaptureWriter`] | pcap or pcapng | a copy; one `write` for each batch |
//! | [`SocketWriter`] | sends UDP payloads to an address, or whole frames out of an interface | a copy in the kernel; one `sendmmsg` for up to 64 |
//! | [`Dropper`] | nothing: the runner counts | the release of the handle |
//!
//! A packet counts as consumed when the kernel has taken it. The first failure is told once and ends the run; what comes
//! after it is dropped as [`Reason::Failed`], so that the counts stay right. A capture file that could not be written on
//! ends with its last whole batch: it has the packets that were counted as consumed, and keeps the name NAME.partial.

#[cfg(target_os = "linux")]
mod socket;

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tapeworks_packet::capture::{Format, LinkType, MAX_CAPTURED_BYTES, Writer, WriterOptions};
use tapeworks_packet::pool::Packet;

#[cfg(target_os = "linux")]
pub use self::socket::SocketWriter;
use super::{PacketStage, Passing, Reason, Routed, StageError, To};
use crate::{Sink, Stage};

/// Bytes that a batch may have before the buffer of a capture file grows.
const BUFFER_BYTES: usize = 256 << 10;

/// The last time that pcap can tell: its seconds have 32 bits.
const LAST_PCAP_NS: u64 = (1 << 32) * 1_000_000_000 - 1;

/// The capture format that a file's ending stands for; `None` for another ending.
pub fn capture_format(path: &Path) -> Option<Format> {
    match path.extension()?.to_str()? {
        "pcap" => Some(Format::Pcap),
        "pcapng" => Some(Format::PcapNg),
        _ => None,
    }
}

/// Writes packets into a capture file, which is `NAME.partial` until it is whole.
#[derive(Debug)]
pub struct CaptureWriter {
    path: PathBuf,
    /// `None`: written in place, as the path is a device or a pipe.
    partial: Option<PathBuf>,
    format: Format,
    overwrite: bool,
    /// Made with the first packet, whose link type is the file's.
    writer: Option<Writer<Spool>>,
    /// Until then.
    file: Option<File>,
    link_type: LinkType,
    /// The packets of the batch at hand.
    held: Vec<(Packet, To)>,
    failure: Option<StageError>,
    is_broken: bool,
}

/// What a batch's records are collected in before one `write`.
#[derive(Debug)]
struct Spool {
    file: File,
    buffer: Vec<u8>,
    /// Bytes of the batches that the kernel has taken whole.
    taken: u64,
}

impl Write for Spool {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let written = self.file.write_all(&self.buffer);
        if written.is_ok() {
            self.taken += self.buffer.len() as u64;
        }
        self.buffer.clear();
        written
    }
}

/// What a file that exists is told with.
const EXISTS: &str = "the file exists; overwrite = true replaces it";

/// Why a capture is not begun at `path`, by what is there now.
pub fn why_occupied(path: &Path, overwrite: bool) -> Option<&'static str> {
    match fs::metadata(path) {
        Ok(there) if there.is_dir() => Some("is a directory"),
        Ok(there) if there.is_file() && !overwrite => Some(EXISTS),
        _ => None,
    }
}

/// Where `path` is written until it is whole.
fn partial_name(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".partial");
    PathBuf::from(name)
}

/// Opens `partial`, whatever is in it, for this run alone: the lock lasts as long as the file is open.
fn lock_partial(partial: &Path) -> Result<File, StageError> {
    let told = |problem: &str| StageError::failed(format!("{}: {problem}", partial.display()));
    loop {
        // Not truncated: until the lock is had, it may be another run's.
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(partial)
            .map_err(|error| told(&format!("cannot create: {error}")))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(told("another run writes to it")),
            // Some network file systems have no locks; there a second run goes unnoticed.
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => return Ok(file),
            Err(TryLockError::Error(error)) => return Err(told(&format!("cannot lock: {error}"))),
        }
        // Between the opening and the lock the other run may have finished, and this be its whole file.
        if !is_named(&file, partial) {
            continue;
        }
        if !has_other_names(&file) {
            return Ok(file);
        }
        // A run was killed when the file had its name already: only this one goes, and another file is begun.
        fs::remove_file(partial).map_err(|error| told(&format!("cannot remove: {error}")))?;
    }
}

/// Whether `path` is still the name of `file`.
#[cfg(unix)]
fn is_named(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;

    let (Ok(open), Ok(named)) = (file.metadata(), fs::metadata(path)) else { return false };
    (open.dev(), open.ino()) == (named.dev(), named.ino())
}

#[cfg(unix)]
fn has_other_names(file: &File) -> bool {
    use std::os::unix::fs::MetadataExt as _;

    file.metadata().is_ok_and(|metadata| metadata.nlink() > 1)
}

#[cfg(not(unix))]
fn has_other_names(_file: &File) -> bool {
    false
}

/// An open file cannot be renamed here.
#[cfg(not(unix))]
fn is_named(_file: &File, _path: &Path) -> bool {
    true
}

/// Gives `partial` the name `path`; one that exists is kept unless `overwrite` says otherwise.
fn rename(partial: &Path, path: &Path, overwrite: bool) -> io::Result<()> {
    if overwrite {
        return fs::rename(partial, path);
    }
    // A link fails where the name exists, in one step; a rename would replace it.
    match fs::hard_link(partial, path) {
        Ok(()) => fs::remove_file(partial),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
        // A file system without links.
        Err(_) if fs::symlink_metadata(path).is_err() => fs::rename(partial, path),
        Err(_) => Err(io::ErrorKind::AlreadyExists.into()),
    }
}

impl CaptureWriter {
    /// Begins the file at `path`, in the format that its ending stands for (pcap for a device without one); one that
    /// exists is replaced only if `overwrite` says so. A partial file that a run left behind is taken over; one that a run
    /// still writes to is not.
    ///
    /// # Errors
    /// Why it cannot be begun, in one line that names it.
    pub fn create(path: &Path, overwrite: bool) -> Result<Self, StageError> {
        let told = |problem: &str| StageError::failed(format!("{}: {problem}", path.display()));
        if let Some(problem) = why_occupied(path, overwrite) {
            return Err(told(problem));
        }
        let is_special = fs::metadata(path).is_ok_and(|there| !there.is_file());
        let partial = (!is_special).then(|| partial_name(path));
        let file = match &partial {
            None => File::create(path).map_err(|error| told(&format!("cannot create: {error}")))?,
            Some(partial) => {
                let file = lock_partial(partial)?;
                // Another run may have finished it since the look above.
                if !overwrite && fs::symlink_metadata(path).is_ok() {
                    if file.metadata().is_ok_and(|metadata| metadata.len() == 0) {
                        // Begun just now, by this run; the error below is what matters.
                        let _left_behind_at_worst = fs::remove_file(partial);
                    }
                    return Err(told(EXISTS));
                }
                file.set_len(0).map_err(|error| {
                    StageError::failed(format!("{}: cannot empty: {error}", partial.display()))
                })?;
                file
            }
        };
        Ok(Self {
            path: path.to_owned(),
            partial,
            format: capture_format(path).unwrap_or_default(),
            overwrite,
            writer: None,
            file: Some(file),
            link_type: LinkType::ETHERNET,
            held: Vec::new(),
            failure: None,
            is_broken: false,
        })
    }

    /// The file's header, with the link type of the first packet; nothing if it has begun.
    fn begin(&mut self, link_type: LinkType) -> io::Result<()> {
        let Some(file) = self.file.take() else { return Ok(()) };
        self.link_type = link_type;
        let options = WriterOptions { format: self.format, link_type, ..WriterOptions::default() };
        let spool = Spool { file, buffer: Vec::with_capacity(BUFFER_BYTES), taken: 0 };
        self.writer = Some(Writer::new(spool, options)?);
        Ok(())
    }

    fn encode(&mut self, packet: &Packet) -> Result<To, io::Error> {
        let description = packet.description();
        if self.is_broken {
            return Ok(To::Dropped(Reason::Failed));
        }
        if packet.bytes().len() > MAX_CAPTURED_BYTES {
            return Ok(To::Dropped(Reason::TooLong));
        }
        if self.format == Format::Pcap && description.timestamp_ns > LAST_PCAP_NS {
            return Ok(To::Dropped(Reason::TimeRange));
        }
        self.begin(description.link_type)?;
        if description.link_type != self.link_type {
            return Ok(To::Dropped(Reason::LinkType));
        }
        if let Some(writer) = &mut self.writer {
            writer.write_cut_packet(description.timestamp_ns, packet.bytes(), description.original_length)?;
        }
        Ok(To::Consumed)
    }

    #[cold]
    fn fail(&mut self, error: &io::Error) {
        self.is_broken = true;
        self.failure = Some(self.give_up(error));
    }

    /// Keeps what the kernel has taken whole, and tells where it is.
    #[cold]
    fn give_up(&mut self, error: &io::Error) -> StageError {
        let problem = format!("{}: cannot write: {error}", self.path.display());
        let Some(writer) = &mut self.writer else { return StageError::failed(problem) };
        let spool = writer.sink_mut();
        if spool.taken == 0 {
            return StageError::failed(problem);
        }
        // A device or a pipe has no length, and what it took cannot be taken back.
        let Some(partial) = self.partial.take() else { return StageError::failed(problem) };
        let partial = partial.display();
        StageError::failed(match spool.file.set_len(spool.taken) {
            Ok(()) => format!("{problem}; what was written up to then is in {partial}"),
            Err(_) => format!(
                "{problem}; what was written up to then is in {partial}, with a cut packet at its end"
            ),
        })
    }
}

impl<S: Sink<Routed>> Stage<Passing, S> for CaptureWriter {
    fn process(&mut self, batch: &[Passing], sink: &mut S) {
        for packet in batch.iter().filter_map(Passing::take) {
            let to = match self.encode(&packet) {
                Ok(to) => to,
                Err(error) => {
                    self.fail(&error);
                    To::Dropped(Reason::Failed)
                }
            };
            self.held.push((packet, to));
        }
        let flushed = match &mut self.writer {
            Some(writer) if !self.is_broken => writer.sink_mut().flush(),
            _ => Ok(()),
        };
        if let Err(error) = flushed {
            self.fail(&error);
        }
        let is_broken = self.is_broken;
        for (packet, to) in self.held.drain(..) {
            let is_lost = is_broken && to == To::Consumed;
            sink.put(Routed { packet, to: if is_lost { To::Dropped(Reason::Failed) } else { to } });
        }
    }
}

impl PacketStage for CaptureWriter {
    fn take_failure(&mut self) -> Option<StageError> {
        self.failure.take()
    }

    fn finish(&mut self) -> Result<(), StageError> {
        if self.is_broken {
            return Ok(());
        }
        // Without a packet it is an empty capture of Ethernet.
        let mut ended = self.begin(LinkType::ETHERNET);
        if let (Ok(()), Some(writer)) = (&ended, &mut self.writer) {
            ended = writer.sink_mut().flush();
        }
        if let Err(error) = ended {
            return Err(self.give_up(&error));
        }
        // The file is open, and so locked, until after it has its name.
        let Some(partial) = self.partial.take() else { return Ok(()) };
        rename(&partial, &self.path, self.overwrite).map_err(|error| {
            let problem = match error.kind() {
                io::ErrorKind::AlreadyExists => "came into being meanwhile and is kept".to_owned(),
                _ => format!("cannot have its name: {error}"),
            };
            let (path, partial) = (self.path.display(), partial.display());
            StageError::failed(format!("{path}: {problem}; what was written is in {partial}"))
        })
    }
}

impl Drop for CaptureWriter {
    fn drop(&mut self) {
        if let Some(partial) = &self.partial {
            if self.writer.as_mut().is_some_and(|writer| writer.sink_mut().taken > 0) {
                // The thread has panicked: what was captured is not thrown away.
                return;
            }
            // Whoever drops it unfinished has an error to tell already.
            let _left_behind_at_worst = fs::remove_file(partial);
        }
    }
}

/// Ends packets: the runner counts them.
#[derive(Debug, Default)]
pub struct Dropper;

impl<S: Sink<Routed>> Stage<Passing, S> for Dropper {
    #[inline]
    fn process(&mut self, batch: &[Passing], sink: &mut S) {
        for packet in batch.iter().filter_map(Passing::take) {
            sink.put(Routed { packet, to: To::Consumed });
        }
    }
}

impl PacketStage for Dropper {}

#[cfg(test)]
mod tests;
