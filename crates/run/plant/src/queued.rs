//! The inputs that ingest sends to the journal's thread.

use std::sync::Arc;

use tapeworks_feed::live::Input;
use tapeworks_ring::spsc;
use tapeworks_runtime::waiting::{Waiting, WakeUp};

use crate::checkpoint::Taken;

/// The bytes of an input on its way to the journal.
#[derive(Debug)]
pub(super) enum Bytes {
    /// A UDP payload: the receive buffer of its packet, and the payload's range in it.
    Received(tapeworks_capture::pool::Packet, (u32, u32)),
    /// Bytes from a connection, or kept by a standby.
    Owned(Vec<u8>),
}

impl AsRef<[u8]> for Bytes {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Received(packet, (start, end)) => {
                packet.bytes().get(*start as usize..*end as usize).unwrap_or_default()
            }
            Self::Owned(bytes) => bytes,
        }
    }
}

/// Ingest's end of the journal's queue, and the wake-up of the journal's thread.
pub(super) type JournalQueue<W> = (spsc::Producer<Queued, Waiting<W>>, Arc<WakeUp<W>>);

/// An item of the journal's queue.
#[derive(Debug)]
pub(super) enum Queued {
    /// An input.
    Input(Input<Bytes>),
    /// A record of another plant's journal, unchanged: its range in the bytes.
    Followed(Arc<[u8]>, (u32, u32)),
    /// The state after all inputs queued before it.
    State(Box<Taken>),
}
