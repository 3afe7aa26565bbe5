//! The standby that follows a primary: the records that it is sent, and those that it has acknowledged.

use std::collections::VecDeque;
use std::path::Path;

use tapeworks_journal::{JournalError, JournalReader};
use tapeworks_runtime::world::World;

use super::codec::{Frame, Parsed};
use super::net::Connection;
use super::{BEAT_NS, READ_BYTES};

/// Bytes of records per frame, unless a single record is longer.
const FRAME_BYTES: usize = 64 << 10;

/// Bytes that may be queued for a standby's socket.
const MOST_UNSENT: usize = 1 << 20;

/// The standby that follows this plant.
#[derive(Debug)]
pub(super) struct Follower<W: World> {
    pub(super) instance: u64,
    reader: JournalReader<W>,
    /// Its journal has the records before this one.
    pub(super) acknowledged: u64,
    /// Bytes sent to the standby, for comparison with the bytes acknowledged; `marks` holds record numbers and the bytes sent up to
    /// each.
    sent_bytes: u64,
    acknowledged_bytes: u64,
    marks: VecDeque<(u64, u64)>,
    beat_ns: u64,
    /// The records of a frame.
    scratch: Vec<u8>,
}

impl<W: World> Follower<W> {
    /// Creates the follower that has the records before `next` of the journal in `folder`.
    pub(super) fn from_record(instance: u64, folder: &Path, next: u64) -> Result<Self, JournalError> {
        Ok(Self {
            instance,
            reader: JournalReader::from_number_in(folder, next)?.reading_at_once(READ_BYTES),
            acknowledged: next,
            sent_bytes: 0,
            acknowledged_bytes: 0,
            marks: VecDeque::new(),
            beat_ns: 0,
            scratch: Vec::with_capacity(2 * FRAME_BYTES),
        })
    }

    /// Returns the bytes sent but not acknowledged.
    pub(super) const fn lag_bytes(&self) -> u64 {
        self.sent_bytes - self.acknowledged_bytes
    }

    /// Takes the acknowledgements that have arrived. Returns whether there was a new one, and what is wrong with the standby.
    pub(super) fn take_acknowledgements(
        &mut self,
        connection: &mut Connection<W>,
    ) -> (bool, Result<(), String>) {
        let before = self.acknowledged;
        let outcome = loop {
            let length = match connection.frame() {
                Parsed::Frame(Frame::Acknowledged { next }, length) if next <= self.reader.next_number() => {
                    self.acknowledged = self.acknowledged.max(next);
                    length
                }
                Parsed::Cut => break Ok(()),
                Parsed::Frame(..) => break Err("a frame that no standby sends".to_owned()),
                Parsed::Bad(why) => break Err(why.to_owned()),
            };
            connection.take(length);
        };
        while let Some((number, bytes)) = self.marks.front().copied()
            && number <= self.acknowledged
        {
            self.acknowledged_bytes = bytes;
            self.marks.pop_front();
        }
        (self.acknowledged > before, outcome)
    }

    /// Sends the records before `written` that the standby lacks, as far as there is room, and adds their count to `records`.
    pub(super) fn send_records(
        &mut self,
        connection: &mut Connection<W>,
        written: u64,
        records: &mut u64,
        now_ns: u64,
    ) -> Result<(), String> {
        let mut outcome = Ok(());
        while outcome.is_ok() && connection.unsent() < MOST_UNSENT && self.reader.next_number() < written {
            self.scratch.clear();
            let before = self.reader.next_number();
            while self.scratch.len() < FRAME_BYTES && self.reader.next_number() < written {
                match self.reader.next() {
                    Ok(Some(record)) => {
                        record.encode(&mut self.scratch);
                        *records += 1;
                    }
                    Ok(None) => break,
                    Err(error) => {
                        outcome = Err(error.to_string());
                        break;
                    }
                }
            }
            let next = self.reader.next_number();
            if next == before {
                break;
            }
            connection.send(&Frame::Records { next: written, records: &self.scratch });
            self.sent_bytes += self.scratch.len() as u64;
            self.marks.push_back((next, self.sent_bytes));
            self.beat_ns = now_ns;
        }
        outcome
    }

    /// Sends a heartbeat if neither records nor a heartbeat were sent for its interval.
    pub(super) fn beat(&mut self, connection: &mut Connection<W>, written: u64, now_ns: u64) {
        if now_ns.saturating_sub(self.beat_ns) >= BEAT_NS {
            self.beat_ns = now_ns;
            connection.send(&Frame::Beat { next: written });
        }
    }
}
