//! Snapshots: a client that joins in mid-day gets a venue's state, over TCP or, of NYSE, by multicast.
//!
//! | | GLIMPSE | spin | refresh |
//! | --- | --- | --- | --- |
//! | venues | Nasdaq; the simulated ones of IEX, NYSE and the SIPs take it too | Cboe | NYSE |
//! | packets | SoupBinTCP | [sequenced units](tapeworks_wire::cboe::unit) of unit 0 and number 0 | Pillar packets: requests over TCP, the answers to a multicast group |
//! | login | user, password, and the session, which may be blank | sub-id, user and password | none; each request names its source |
//! | which snapshot | that of the time of the login | the client requests one that the server has offered | the directory, then each symbol by itself |
//! | end | [End of Snapshot](tapeworks_wire::nasdaq::glimpse50), with the number of the first live message that the snapshot does not include | [`SpinFinished`], with the number of the last that it does | each symbol's packets say of how many they are, and the number of the last message that they include |
//! | silence | 15 seconds | 5 seconds | 125 seconds |
//!
//! | | MITCH recovery channel | MEMX snapshot |
//! | --- | --- | --- |
//! | venues | London | MEMX |
//! | packets | units without a group and of number 0 | MEMX-TCP |
//! | login | user and password | a token of user and password |
//! | which snapshot | the client requests that of the whole group | the client requests all messages of the session |
//! | end | [`SnapshotComplete`], with the number of the last message that it includes | [`memx::SnapshotComplete`](tapeworks_wire::memx::depth13::SnapshotComplete), likewise, and the end of the replay |
//! | silence | 5 seconds | 5 seconds |
//!
//! Between the beginning and the end come messages of the venue's own protocol. An [`Image`] has them ready to be sent.
//!
//! [`SnapshotServer`] is one client's connection at the server, [`SnapshotClient`] the client's end: bytes and times in, bytes out.
//!
//! Cost: an image is built once, 2 or 3 bytes more than its messages each (GLIMPSE), or 8 bytes more than some 1,400 (spin); a connection shares it and copies
//! nothing. A client keeps one incomplete packet.

mod client;
mod failure;
mod refresh;
mod server;

use std::ops::Range;

use tapeworks_wire::cboe::grp::{SpinFinished, SpinFinishedFields};
use tapeworks_wire::cboe::pitch::{AddOrderExpanded, AddOrderLong, AddOrderShort};
use tapeworks_wire::memx::depth13 as memx;
use tapeworks_wire::millennium::mitch;
use tapeworks_wire::millennium::recovery::{SnapshotComplete, SnapshotCompleteFields, SnapshotType};
use tapeworks_wire::nasdaq::glimpse50::EndOfSnapshotFields;
use tapeworks_wire::nasdaq::soupbintcp::{EndOfSession, Packets, SequencedData};
use tapeworks_wire::{Ascii, AsciiNumber, NanosecondsSinceEpoch};

use crate::requests::{UNIT_HEARTBEAT, append_sequenced, complete_by_memx};
use crate::transport::SessionId;

pub use crate::protocols::SnapshotProtocol;

pub use client::{Fetched, SnapshotClient, SnapshotLogin};
pub use failure::SnapshotFailure;
pub use server::{SnapshotEnd, SnapshotServer};

const SECOND_NS: u64 = 1_000_000_000;

/// A block of a spin has no more bytes, unless one message is longer.
const BLOCK_BYTES: usize = 1_400;

/// What was found in the input, and its range.
enum Step {
    Message(Range<usize>),
    End(u64),
}

impl SnapshotProtocol {
    /// The most characters of a user's name; of a refresh, of the source.
    #[must_use]
    pub const fn user_characters(self) -> usize {
        match self {
            Self::Glimpse | Self::Mitch => 6,
            Self::Spin => 4,
            Self::Refresh => 10,
            Self::Memx => 16,
        }
    }

    /// The most characters of a password; a refresh has none.
    #[must_use]
    pub const fn password_characters(self) -> usize {
        match self {
            Self::Glimpse | Self::Mitch | Self::Spin => 10,
            Self::Refresh => 0,
            Self::Memx => 32,
        }
    }

    /// A side that sends nothing for so long is gone, in ns.
    #[must_use]
    pub const fn silence_ns(self) -> u64 {
        match self {
            Self::Glimpse => 15 * SECOND_NS,
            Self::Spin | Self::Mitch | Self::Memx => 5 * SECOND_NS,
            Self::Refresh => 125 * SECOND_NS,
        }
    }
}

/// A text as a field of fixed length, filled with spaces. One that is too long is cut.
fn padded<const LENGTH: usize>(text: &str) -> Ascii<LENGTH> {
    let mut bytes = [b' '; LENGTH];
    bytes.iter_mut().zip(text.bytes()).for_each(|(to, from)| *to = from);
    Ascii(bytes)
}

/// Whether a message adds an order: spins, and snapshots of MITCH, say how many they have.
fn adds_order(protocol: SnapshotProtocol, message: &[u8]) -> bool {
    match protocol {
        SnapshotProtocol::Spin => {
            matches!(message.get(1), Some(&(AddOrderLong::TAG | AddOrderShort::TAG | AddOrderExpanded::TAG)))
        }
        SnapshotProtocol::Mitch => {
            matches!(message.get(1), Some(&(mitch::AddOrder::TAG | mitch::AddAttributedOrder::TAG)))
        }
        SnapshotProtocol::Glimpse | SnapshotProtocol::Refresh | SnapshotProtocol::Memx => false,
    }
}

/// A snapshot of a venue, ready to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// The session that the number belongs to.
    pub session: SessionId,
    /// Number of the first live message that the image does not include.
    pub next: u64,
    /// Messages in it, without the end of the snapshot.
    pub messages: u64,
    /// When it was made, in nanoseconds since 1970-01-01 00:00 UTC: MEMX says so.
    pub time_ns: u64,
    /// Clients that requested another session get it too: a server that lies, for tests of clients.
    pub is_for_any_session: bool,
    /// Whether the server repeats the messages forever instead of sending the end: for tests of clients.
    pub is_endless: bool,
    /// Orders that a spin, or a snapshot of MITCH, has.
    orders: u32,
    packets: Vec<u8>,
    /// Where the last block of a spin begins.
    block: usize,
}

impl Image {
    /// A snapshot without messages.
    #[must_use]
    pub fn new(session: SessionId, next: u64) -> Self {
        Self {
            session,
            next,
            messages: 0,
            time_ns: 0,
            is_for_any_session: false,
            is_endless: false,
            orders: 0,
            packets: Vec::new(),
            block: 0,
        }
    }

    /// How it is framed.
    #[must_use]
    pub const fn protocol(&self) -> SnapshotProtocol {
        SnapshotProtocol::of(self.session.transport())
    }

    /// Appends a message, changed by `change`.
    pub fn put(&mut self, message: &[u8], change: impl FnOnce(&mut [u8])) {
        self.frame(message);
        let start = self.packets.len() - message.len();
        change(&mut self.packets[start..]);
        self.messages += 1;
    }

    fn frame(&mut self, message: &[u8]) {
        match self.protocol() {
            SnapshotProtocol::Glimpse | SnapshotProtocol::Refresh => self.packet(message),
            SnapshotProtocol::Spin | SnapshotProtocol::Mitch => self.append_to_block(message),
            SnapshotProtocol::Memx => append_sequenced(message, &mut self.packets),
        }
    }

    fn packet(&mut self, message: &[u8]) {
        // Type and message; no message is longer than MAX_MESSAGE_BYTES.
        let length = 1 + message.len() as u16;
        self.packets.extend_from_slice(&length.to_be_bytes());
        self.packets.push(SequencedData::TAG);
        self.packets.extend_from_slice(message);
    }

    fn append_to_block(&mut self, message: &[u8]) {
        let length = self.packets.len() - self.block;
        let count = self.packets.get(self.block + 2).copied().unwrap_or(u8::MAX);
        if count == u8::MAX || length + message.len() > BLOCK_BYTES {
            self.block = self.packets.len();
            self.packets.extend_from_slice(&UNIT_HEARTBEAT);
        }
        self.orders += u32::from(adds_order(self.protocol(), message));
        self.packets.extend_from_slice(message);
        // A message has 255 bytes at most, so a block has 1,400.
        let length = (self.packets.len() - self.block) as u16;
        if let Some([low, high, count, ..]) = self.packets.get_mut(self.block..) {
            [*low, *high] = length.to_le_bytes();
            *count += 1;
        }
    }

    /// The number of the last live message that the image includes, as a spin has it.
    pub(crate) fn last(&self) -> u32 {
        u32::try_from(self.next.saturating_sub(1)).unwrap_or(u32::MAX)
    }

    /// Appends the end of the snapshot and of the SoupBinTCP session, unless the snapshot is endless.
    pub fn finish(&mut self) {
        if self.is_endless {
            return;
        }
        match self.protocol() {
            SnapshotProtocol::Glimpse | SnapshotProtocol::Refresh => {
                // Every 64-bit number has at most 20 digits.
                let sequence_number = AsciiNumber::new(self.next).unwrap_or(AsciiNumber([b' '; 20]));
                self.packet(&EndOfSnapshotFields { sequence_number }.encode());
                self.packets.extend_from_slice(&[0, 1, EndOfSession::TAG]);
            }
            SnapshotProtocol::Spin => {
                let fields = SpinFinishedFields { length: SpinFinished::LENGTH as u8, sequence: self.last() };
                self.append_to_block(&fields.encode());
            }
            SnapshotProtocol::Mitch => {
                let fields = SnapshotCompleteFields {
                    length: SnapshotComplete::LENGTH as u8,
                    sequence_number: self.last(),
                    segment: padded(""),
                    instrument_id: 0,
                    reserved: 0,
                    sub_book: 0,
                    trading_status: padded(""),
                    snapshot_type: SnapshotType::OrderBook,
                    request_id: 0,
                };
                self.append_to_block(&fields.encode());
            }
            SnapshotProtocol::Memx => {
                let fields = memx::SnapshotCompleteFields {
                    // Behind the header of six bytes.
                    block_length: (memx::SnapshotComplete::LENGTH - 6) as u16,
                    schema_id: memx::SCHEMA_ID,
                    version: memx::VERSION,
                    timestamp: NanosecondsSinceEpoch(self.time_ns),
                    as_of_sequence_number: self.next.saturating_sub(1),
                };
                append_sequenced(&fields.encode(), &mut self.packets);
                self.packets.extend_from_slice(&complete_by_memx(self.messages + 1));
            }
        }
    }

    /// Hands each message on, of an image that is framed as GLIMPSE has it.
    fn each_message(&self, mut each: impl FnMut(&[u8])) {
        let packets = Packets::new(&self.packets).filter_map(Result::ok);
        for packet in packets.take(usize::try_from(self.messages).unwrap_or(usize::MAX)) {
            packet.get(3..).into_iter().for_each(&mut each);
        }
    }

    /// The packets, with the end.
    #[must_use]
    pub fn packets(&self) -> &[u8] {
        &self.packets
    }
}

#[cfg(test)]
mod tests;
