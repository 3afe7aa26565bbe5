//! Readers, the sources of packets in a graph.
//!
//! [`CaptureFile`] reads a file, as fast as the graph accepts packets or at the pace of their timestamps; [`Repeated`] reads from
//! memory, [`Udp`] from a socket, and [`Interface`] from a network interface. Cost: copying the packet into a buffer, and parsing
//! its headers.

#[cfg(target_os = "linux")]
mod live;

use std::path::{Path, PathBuf};

use tapeworks_capture::CaptureError;
use tapeworks_capture::pool::{Description, Pool};
use tapeworks_capture::{CaptureReader, LinkType};

#[cfg(target_os = "linux")]
pub use self::live::{Interface, Udp};
use super::{Note, Notes, Outbox, Polled, Reader, Reason, Routed, StageError, To};
use tapeworks_stage::Sink as _;

/// Options for reading a capture file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pace {
    /// The speed as a multiple of the original; `None`: as fast as possible.
    pub speed: Option<f64>,
    /// How often to read the file, at least once.
    pub repeat: u64,
}

impl Default for Pace {
    fn default() -> Self {
        Self { speed: None, repeat: 1 }
    }
}

/// Reads a capture file: pcap or pcapng, plain, gzip or zstd.
#[derive(Debug)]
pub struct CaptureFile {
    path: PathBuf,
    reader: CaptureReader,
    pool: Pool,
    pace: Pace,
    /// Remaining repetitions after the current one.
    left: u64,
    /// The first packet's timestamp and its time of output, for each repetition.
    began: Option<(u64, u64)>,
    notes: Notes,
}

impl CaptureFile {
    /// Opens `path`. Packets go into buffers of `pool`.
    ///
    /// # Errors
    /// Why the file cannot be opened, in one line that names it.
    pub fn open(path: &Path, pace: Pace, pool: Pool) -> Result<Self, StageError> {
        let reader = CaptureReader::open(path).map_err(|error| StageError::failed(error.to_string()))?;
        let left = pace.repeat.max(1) - 1;
        Ok(Self { path: path.to_owned(), reader, pool, pace, left, began: None, notes: Notes::default() })
    }

    /// Returns whether the next packet is due, according to the pace.
    fn is_due(&mut self, now_ns: u64) -> Result<bool, CaptureError> {
        let Some(speed) = self.pace.speed else { return Ok(true) };
        let Some(next_ns) = self.reader.next_timestamp_ns()? else { return Ok(true) };
        let (first_ns, began_ns) = *self.began.get_or_insert((next_ns, now_ns));
        let after_ns = (next_ns.saturating_sub(first_ns) as f64 / speed) as u64;
        Ok(now_ns.saturating_sub(began_ns) >= after_ns)
    }
}

impl Reader for CaptureFile {
    fn poll(&mut self, most: usize, now_ns: u64, outbox: &mut Outbox) -> Result<Polled, StageError> {
        let damaged = |error: CaptureError| StageError::damaged(error.to_string());
        for taken in 0..most {
            // Backpressure keeps a slot free for every packet that the graph can hold, so this seldom fails.
            if !self.pool.has_room() || !self.is_due(now_ns).map_err(damaged)? {
                return Ok(if taken == 0 { Polled::None } else { Polled::Some });
            }
            if self.reader.next_timestamp_ns().map_err(damaged)?.is_none() {
                if self.left == 0 {
                    return Ok(Polled::Ended);
                }
                self.left -= 1;
                self.began = None;
                if !self.reader.rewind() {
                    self.reader = CaptureReader::open(&self.path).map_err(damaged)?;
                }
                return Ok(Polled::Some);
            }
            let Some(captured) = self.reader.next_packet().map_err(damaged)? else {
                return Ok(Polled::Ended);
            };
            if captured.is_cut() {
                self.notes.count(Note::Cut);
            }
            let description = Description {
                timestamp_ns: captured.timestamp_ns,
                entered_ns: now_ns,
                original_length: captured.original_length,
                link_type: captured.link_type,
            };
            match self.pool.packet(captured.bytes, description) {
                Ok(packet) => outbox.put(Routed { packet, to: To::Port(0) }),
                Err(_) => outbox.drop_unread(Reason::TooLong, 1),
            }
        }
        Ok(Polled::Some)
    }

    fn is_ready(&mut self, now_ns: u64) -> bool {
        // The poll reports damage.
        self.pool.has_room() && self.is_due(now_ns).unwrap_or(true)
    }

    fn notes(&self) -> Notes {
        self.notes
    }
}

/// Repeats the same few frames, for measurements and tests.
#[derive(Debug)]
pub struct Repeated {
    frames: Vec<Vec<u8>>,
    pool: Pool,
    /// Packets delivered so far; `count` is the total.
    given: u64,
    count: u64,
}

impl Repeated {
    /// Creates a reader of `count` packets: the Ethernet `frames` in turn, with the packet's number as its timestamp.
    pub fn new(frames: Vec<Vec<u8>>, count: u64, pool: Pool) -> Self {
        let count = if frames.is_empty() { 0 } else { count };
        Self { frames, pool, given: 0, count }
    }
}

impl Reader for Repeated {
    fn poll(&mut self, most: usize, now_ns: u64, outbox: &mut Outbox) -> Result<Polled, StageError> {
        for taken in 0..most {
            if self.given == self.count {
                return Ok(Polled::Ended);
            }
            if !self.pool.has_room() {
                return Ok(if taken == 0 { Polled::None } else { Polled::Some });
            }
            let frame = &self.frames[(self.given % self.frames.len() as u64) as usize];
            let description = Description {
                timestamp_ns: self.given,
                entered_ns: now_ns,
                original_length: frame.len() as u32,
                link_type: LinkType::ETHERNET,
            };
            self.given += 1;
            match self.pool.packet(frame, description) {
                Ok(packet) => outbox.put(Routed { packet, to: To::Port(0) }),
                Err(_) => outbox.drop_unread(Reason::TooLong, 1),
            }
        }
        Ok(Polled::Some)
    }

    fn is_ready(&mut self, _now_ns: u64) -> bool {
        self.pool.has_room()
    }
}
