//! Snapshots: a client that joins during the day gets a venue's state over TCP or, from NYSE, by multicast.
//!
//! | | GLIMPSE | spin | refresh |
//! | --- | --- | --- | --- |
//! | venues | Nasdaq; also the simulated IEX, NYSE and SIPs | Cboe | NYSE |
//! | packets | SoupBinTCP | [sequenced units](tapeworks_wire::cboe::unit), unit 0, number 0 | Pillar: requests over TCP, answers to a group |
//! | login | user, password, and the session, which may be blank | sub-id, user and password | none; each request names its source |
//! | which snapshot | as of the login | the client requests one of those offered | the directory, then each symbol separately |
//! | end | [End of Snapshot](tapeworks_wire::nasdaq::glimpse50): next live number | [`SpinFinished`]: last included | per symbol: last included |
//! | silence | 15 seconds | 5 seconds | 125 seconds |
//!
//! | | MITCH recovery channel | MEMX snapshot |
//! | --- | --- | --- |
//! | venues | London | MEMX |
//! | packets | units without a group, number 0 | MEMX-TCP |
//! | login | user and password | a token of user and password |
//! | which snapshot | the client requests the whole group | the client requests all messages of the session |
//! | end | [`SnapshotComplete`]: last included | [`memx::SnapshotComplete`](tapeworks_wire::memx::depth13::SnapshotComplete): last included |
//! | silence | 5 seconds | 5 seconds |
//!
//! The end connects the snapshot to the live messages: it has the number of the first live message that the snapshot
//! does not include (GLIMPSE), or of the last that it does (the others). Each packet of a refresh also contains the
//! packet count of its symbol. MEMX's end is followed by the end of the replay.
//!
//! Between the start and the end are messages of the venue's own protocol. An [`Image`] has them ready to send.
//!
//! [`SnapshotServer`] is the server's end of one client's connection, [`SnapshotClient`] the client's end: bytes and times in, bytes out.
//!
//! Cost: an image is built once. It adds 2 or 3 bytes to each message (GLIMPSE), or 8 bytes per block of about 1,400
//! (spin). Connections share the image and copy nothing. A client keeps one incomplete packet.

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

/// The most bytes in a block of a spin, unless one message is longer.
const BLOCK_BYTES: usize = 1_400;

/// A message found in the input, by its range, or the end of the snapshot.
enum Step {
    Message(Range<usize>),
    End(u64),
}

impl SnapshotProtocol {
    /// Returns the most characters of a user name, or of a refresh's source.
    #[must_use]
    pub const fn user_characters(self) -> usize {
        match self {
            Self::Glimpse | Self::Mitch => 6,
            Self::Spin => 4,
            Self::Refresh => 10,
            Self::Memx => 16,
        }
    }

    /// Returns the most characters of a password; a refresh has none.
    #[must_use]
    pub const fn password_characters(self) -> usize {
        match self {
            Self::Glimpse | Self::Mitch | Self::Spin => 10,
            Self::Refresh => 0,
            Self::Memx => 32,
        }
    }

    /// Returns the silence after which a side is considered dead, in ns.
    #[must_use]
    pub const fn silence_ns(self) -> u64 {
        match self {
            Self::Glimpse => 15 * SECOND_NS,
            Self::Spin | Self::Mitch | Self::Memx => 5 * SECOND_NS,
            Self::Refresh => 125 * SECOND_NS,
        }
    }
}

/// Pads a text with spaces to a fixed length. A longer text is truncated.
fn padded<const LENGTH: usize>(text: &str) -> Ascii<LENGTH> {
    let mut bytes = [b' '; LENGTH];
    bytes.iter_mut().zip(text.bytes()).for_each(|(to, from)| *to = from);
    Ascii(bytes)
}

/// Returns whether a message adds an order. Spins and MITCH's snapshots announce their number of orders.
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

/// A snapshot of a venue, ready to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// The session of the sequence number.
    pub session: SessionId,
    /// Sequence number of the first live message that the image does not include.
    pub next: u64,
    /// Messages in the image, without the end of the snapshot.
    pub messages: u64,
    /// When the image was made, in nanoseconds since 1970-01-01 00:00 UTC. MEMX's snapshots contain it.
    pub time_ns: u64,
    /// Serves clients that request another session, too: a server that lies, to test clients.
    pub is_for_any_session: bool,
    /// Repeats the messages forever instead of sending the end, to test clients.
    pub is_endless: bool,
    /// Orders in a spin or a MITCH snapshot.
    orders: u32,
    packets: Vec<u8>,
    /// Offset of a spin's last block.
    block: usize,
}

impl Image {
    /// Creates a snapshot without messages.
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

    /// Returns the protocol that frames it.
    #[must_use]
    pub const fn protocol(&self) -> SnapshotProtocol {
        SnapshotProtocol::of(self.session.transport())
    }

    /// Appends a message and applies `change` to the copy.
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
        // The length includes the type. No message is longer than MAX_MESSAGE_BYTES.
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
        // A message has at most 255 bytes, so a block has at most 1,400.
        let length = (self.packets.len() - self.block) as u16;
        if let Some([low, high, count, ..]) = self.packets.get_mut(self.block..) {
            [*low, *high] = length.to_le_bytes();
            *count += 1;
        }
    }

    /// Returns the number of the last live message that the image includes, as in a spin.
    pub(crate) fn last(&self) -> u32 {
        u32::try_from(self.next.saturating_sub(1)).unwrap_or(u32::MAX)
    }

    /// Appends the end of the snapshot and of its session or replay, unless the snapshot is endless.
    pub fn finish(&mut self) {
        if self.is_endless {
            return;
        }
        match self.protocol() {
            SnapshotProtocol::Glimpse | SnapshotProtocol::Refresh => {
                // A 64-bit number has at most 20 digits.
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
                    // The block follows a six-byte header.
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

    /// Passes on each message of an image that is framed like GLIMPSE.
    fn each_message(&self, mut each: impl FnMut(&[u8])) {
        let packets = Packets::new(&self.packets).filter_map(Result::ok);
        for packet in packets.take(usize::try_from(self.messages).unwrap_or(usize::MAX)) {
            packet.get(3..).into_iter().for_each(&mut each);
        }
    }

    /// Returns the packets, including the end.
    #[must_use]
    pub fn packets(&self) -> &[u8] {
        &self.packets
    }
}

#[cfg(test)]
mod tests;
