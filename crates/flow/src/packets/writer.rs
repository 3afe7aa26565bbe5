//! Writers: where packets leave a graph.
//!
//! | stage | what it does | cost of a packet |
//! | --- | --- | --- |
//! | [`CaptureWriter`] | pcap or pcapng | a copy; one `write` for each batch |
//! | [`SocketWriter`] | sends UDP payloads to an address, or whole frames out of an interface | a copy in the kernel; one `sendmmsg` for up to 64 |
//! | [`Dropper`] | nothing: the runner counts | the release of the handle |
//!
//! A packet counts as consumed when the kernel has taken it. The first failure is told once and ends the run; what comes
//! after it is dropped as [`Reason::Failed`], so that the counts stay right.

#[cfg(target_os = "linux")]
mod socket;

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tapeworks_packet::capture::{Format, LinkType, Writer, WriterOptions};
use tapeworks_packet::pool::Packet;

#[cfg(target_os = "linux")]
pub use self::socket::SocketWriter;
use super::{PacketStage, Passing, Reason, Routed, StageError, To};
use crate::{Sink, Stage};

/// Bytes that a batch may have before the buffer of a capture file grows.
const BUFFER_BYTES: usize = 256 << 10;

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
    /// Made with the first packet, whose link type is the file's.
    writer: Option<Writer<Spool>>,
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
}

impl Write for Spool {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let written = self.file.write_all(&self.buffer);
        self.buffer.clear();
        written
    }
}

impl CaptureWriter {
    /// Begins the file at `path`, in the format that its ending stands for (pcap for a device without one); one that
    /// exists is replaced only if `overwrite` says so.
    ///
    /// # Errors
    /// Why it cannot be begun, in one line that names it.
    pub fn create(path: &Path, overwrite: bool) -> Result<Self, StageError> {
        let existing = fs::metadata(path).ok();
        let told = |problem: &str| StageError::failed(format!("{}: {problem}", path.display()));
        if existing.as_ref().is_some_and(fs::Metadata::is_dir) {
            return Err(told("is a directory"));
        }
        let is_special = existing.as_ref().is_some_and(|metadata| !metadata.is_file());
        if existing.is_some() && !is_special && !overwrite {
            return Err(told("the file exists; overwrite = true replaces it"));
        }
        let partial = (!is_special).then(|| {
            let mut name = path.as_os_str().to_owned();
            name.push(".partial");
            PathBuf::from(name)
        });
        let file = File::create(partial.as_deref().unwrap_or(path))
            .map_err(|error| told(&format!("cannot create: {error}")))?;
        Ok(Self {
            path: path.to_owned(),
            partial,
            format: capture_format(path).unwrap_or_default(),
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
        let spool = Spool { file, buffer: Vec::with_capacity(BUFFER_BYTES) };
        self.writer = Some(Writer::new(spool, options)?);
        Ok(())
    }

    fn encode(&mut self, packet: &Packet) -> Result<To, io::Error> {
        let description = packet.description();
        if self.is_broken {
            return Ok(To::Dropped(Reason::Failed));
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
        self.failure = Some(StageError::failed(format!("{}: cannot write: {error}", self.path.display())));
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
        if let (Ok(()), Some(writer)) = (&ended, self.writer.take()) {
            ended = writer.finish().map(drop);
        }
        if let (Ok(()), Some(partial)) = (&ended, &self.partial) {
            ended = fs::rename(partial, &self.path);
        }
        match ended {
            Ok(()) => {
                self.partial = None;
                Ok(())
            }
            Err(error) => Err(StageError::failed(format!("{}: cannot write: {error}", self.path.display()))),
        }
    }
}

impl Drop for CaptureWriter {
    fn drop(&mut self) {
        if let Some(partial) = &self.partial {
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
