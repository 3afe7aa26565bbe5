//! Writers, where packets leave a graph.
//!
//! | stage | action | cost per packet |
//! | --- | --- | --- |
//! | [`CaptureWriter`] | writes pcap or pcapng | a copy; one `write` per batch |
//! | [`SocketWriter`] | sends UDP payloads to an address, or whole frames out of an interface | a copy in the kernel; one `sendmmsg` per 64 |
//! | [`Dropper`] | drops packets, which the runner counts | releasing the handle |
//!
//! A packet counts as consumed once the kernel has accepted it. The first failure is reported once and ends the run. Later
//! packets are dropped as [`Reason::Failed`], so that the counts stay correct. After a failed write, a capture file ends with its
//! last complete batch: it contains the packets counted as consumed and keeps the name NAME.partial.

#[cfg(target_os = "linux")]
mod socket;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tapeworks_capture::new_file::{self, Handle, NewFile, NewFileError};
use tapeworks_capture::pool::Packet;
use tapeworks_capture::{Format, LinkType, MAX_CAPTURED_BYTES, Writer, WriterOptions};

#[cfg(target_os = "linux")]
pub use self::socket::SocketWriter;
use super::{PacketStage, Passing, Reason, Routed, StageError, To};
use tapeworks_stage::{Sink, Stage};

/// Bytes that a batch may have before a capture file's buffer grows.
const BUFFER_BYTES: usize = 256 << 10;

/// The last time that pcap can represent: its seconds have 32 bits.
const LAST_PCAP_NS: u64 = (1 << 32) * 1_000_000_000 - 1;

/// Returns the capture format for a file's extension, or `None` if it is unknown.
pub fn capture_format(path: &Path) -> Option<Format> {
    match path.extension()?.to_str()? {
        "pcap" => Some(Format::Pcap),
        "pcapng" => Some(Format::PcapNg),
        _ => None,
    }
}

/// Writes packets to a capture file, which is named `NAME.partial` until it is complete.
#[derive(Debug)]
pub struct CaptureWriter {
    path: PathBuf,
    /// `None` once it is finished.
    file: Option<NewFile>,
    format: Format,
    /// Created with the first packet, which determines the file's link type.
    writer: Option<Writer<Spool>>,
    link_type: LinkType,
    /// The packets of the current batch.
    held: Vec<(Packet, To)>,
    failure: Option<StageError>,
    is_broken: bool,
}

/// Collects a batch's records for one `write`.
#[derive(Debug)]
struct Spool {
    file: Handle,
    buffer: Vec<u8>,
    /// Bytes of the batches that the kernel has accepted completely.
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

/// Returns why a capture cannot be started at `path`.
pub fn why_occupied(path: &Path, overwrite: bool) -> Option<String> {
    new_file::check(path, overwrite).err().map(|error| explained(&error))
}

/// Formats the error for a user of a graph.
fn explained(error: &NewFileError) -> String {
    match error {
        NewFileError::Exists { .. } => format!("{error}; overwrite = true replaces it"),
        error => error.to_string(),
    }
}

impl CaptureWriter {
    /// Creates the file at `path` in the format of its extension (pcap for a device without one). Replaces an existing file only
    /// with `overwrite`. For other existing paths see [`new_file`].
    ///
    /// # Errors
    /// Why the file cannot be created, in one line that names it.
    pub fn create(path: &Path, overwrite: bool) -> Result<Self, StageError> {
        let file = NewFile::create(path, overwrite).map_err(|error| StageError::failed(explained(&error)))?;
        Ok(Self {
            path: path.to_owned(),
            file: Some(file),
            format: capture_format(path).unwrap_or_default(),
            writer: None,
            link_type: LinkType::ETHERNET,
            held: Vec::new(),
            failure: None,
            is_broken: false,
        })
    }

    /// Writes the file's header with the first packet's link type, unless it has been written.
    fn begin(&mut self, link_type: LinkType) -> io::Result<()> {
        let (None, Some(file)) = (&self.writer, &self.file) else { return Ok(()) };
        let file = file.handle()?;
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

    /// Keeps the complete records that the kernel has accepted. Returns an error with their location.
    #[cold]
    fn give_up(&mut self, error: &io::Error) -> StageError {
        let problem = format!("{}: cannot write: {error}", self.path.display());
        let Some(writer) = &mut self.writer else { return StageError::failed(problem) };
        let spool = writer.sink_mut();
        if spool.taken == 0 {
            return StageError::failed(problem);
        }
        // A device or a pipe has no length, and its bytes cannot be taken back.
        let kept = self.file.as_mut().and_then(NewFile::keep).map(|partial| partial.display());
        let Some(partial) = kept else { return StageError::failed(problem) };
        StageError::failed(match spool.file.cut(spool.taken) {
            Ok(()) => format!("{problem}; the packets written before are in {partial}"),
            Err(_) => format!(
                "{problem}; the packets written before are in {partial}, with a cut packet at its end"
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
    fn ports(&self) -> usize {
        0
    }

    fn take_failure(&mut self) -> Option<StageError> {
        self.failure.take()
    }

    fn finish(&mut self) -> Result<(), StageError> {
        if self.is_broken {
            return Ok(());
        }
        // Without packets, write an empty Ethernet capture.
        let mut ended = self.begin(LinkType::ETHERNET);
        if let (Ok(()), Some(writer)) = (&ended, &mut self.writer) {
            ended = writer.sink_mut().flush();
        }
        if let Err(error) = ended {
            return Err(self.give_up(&error));
        }
        let Some(file) = self.file.take() else { return Ok(()) };
        file.finish().map(|_| ()).map_err(|error| StageError::failed(error.to_string()))
    }
}

impl Drop for CaptureWriter {
    fn drop(&mut self) {
        if self.writer.as_mut().is_some_and(|writer| writer.sink_mut().taken > 0)
            && let Some(file) = &mut self.file
        {
            // The thread panicked: keep the captured packets.
            let _kept = file.keep();
        }
    }
}

/// Drops packets, which the runner counts.
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

impl PacketStage for Dropper {
    fn ports(&self) -> usize {
        0
    }
}

#[cfg(test)]
mod tests;
