//! The inputs that ingest sends to the journal's thread.

use std::sync::Arc;

use tapeworks_feed::live::{Input, SnapshotFault};
use tapeworks_market::{Line, Nanos};
use tapeworks_ring::spsc;
use tapeworks_runtime::waiting::{Waiting, WakeUp};

use crate::checkpoint::Taken;

/// An input that owns its bytes, or has none, on its way to the journal.
#[derive(Debug)]
pub(super) enum Owned {
    /// A packet, still in the buffer that it was received in.
    Packet {
        channel: u16,
        line: Line,
        received: Nanos,
        packet: tapeworks_packet::pool::Packet,
        /// Where the UDP payload lies in it.
        payload: (u32, u32),
    },
    /// A packet with requested messages that came over a connection, or one of a line that a standby had kept.
    Answer {
        channel: u16,
        line: Line,
        received: Nanos,
        payload: Vec<u8>,
    },
    Snapshot {
        channel: u16,
        attempt: u32,
        received: Nanos,
        messages: Vec<u8>,
    },
    SnapshotEnd {
        channel: u16,
        attempt: u32,
        received: Nanos,
        next: u64,
        bytes: u64,
    },
    SnapshotFailed {
        channel: u16,
        attempt: u32,
        fault: SnapshotFault,
        received: Nanos,
    },
    Contradicted {
        channel: u16,
        received: Nanos,
    },
    Relayed {
        received: Nanos,
        payload: Vec<u8>,
    },
    Tick {
        now: Nanos,
    },
    ClockSet {
        now: Nanos,
        ahead_ns: i64,
    },
}

/// Ingest's end of the journal's queue, and what wakes the journal's thread.
pub(super) type JournalQueue<W> = (spsc::Producer<Queued, Waiting<W>>, Arc<WakeUp<W>>);

/// An item of the journal's queue, in order.
#[derive(Debug)]
pub(super) enum Queued {
    /// An input.
    Input(Owned),
    /// A record of another plant's journal, as it is there: its place in the bytes.
    Followed(Arc<[u8]>, (u32, u32)),
    /// The state after all inputs before it.
    State(Box<Taken>),
}

impl Owned {
    #[inline]
    pub(super) fn input(&self) -> Input<'_> {
        match self {
            Self::Packet { channel, line, received, packet, payload: (start, end) } => Input::Packet {
                channel: *channel,
                line: *line,
                received: *received,
                payload: packet.bytes().get(*start as usize..*end as usize).unwrap_or_default(),
            },
            Self::Answer { channel, line, received, payload } => {
                Input::Packet { channel: *channel, line: *line, received: *received, payload }
            }
            Self::Snapshot { channel, attempt, received, messages } => {
                Input::Snapshot { channel: *channel, attempt: *attempt, received: *received, messages }
            }
            Self::SnapshotEnd { channel, attempt, received, next, bytes } => Input::SnapshotEnd {
                channel: *channel,
                attempt: *attempt,
                received: *received,
                next: *next,
                bytes: *bytes,
            },
            Self::SnapshotFailed { channel, attempt, fault, received } => Input::SnapshotFailed {
                channel: *channel,
                attempt: *attempt,
                fault: *fault,
                received: *received,
            },
            Self::Contradicted { channel, received } => {
                Input::Contradicted { channel: *channel, received: *received }
            }
            Self::Relayed { received, payload } => Input::Relayed { received: *received, payload },
            Self::Tick { now } => Input::Tick { now: *now },
            Self::ClockSet { now, ahead_ns } => Input::ClockSet { now: *now, ahead_ns: *ahead_ns },
        }
    }
}
