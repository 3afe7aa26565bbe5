//! The format of a message on a stream.
//!
//! ```text
//! magic "TWA1", kind (1 byte), 0, items (2) | epoch (8) | sequence (8) | items
//! event    number (8), the event (64)
//! record   number (8), place (4), 0 (4), a record of DBN
//! symbol   a symbol mapping of DBN
//! status   JSON
//! ```
//!
//! All numbers are little-endian. The `epoch` is the start time of the publishing plant in ns; `sequence` counts the messages of a
//! stream within an epoch, from 0. An event's number is its number in the journal. A record carries its event's number, and its
//! place among the records of the same stream and event.

use tapeworks_market::{Event, Shard, Symbol};

/// Length of the header in bytes.
pub const HEADER_BYTES: usize = 24;

/// Maximum message size that Aeron does not fragment: its default MTU minus its header.
pub const MESSAGE_BYTES: usize = 1_376;

/// Length of an event in bytes.
pub const EVENT_BYTES: usize = Event::BYTES;

const MAGIC: [u8; 4] = *b"TWA1";
const NUMBER_BYTES: usize = 8;
const KEY_BYTES: usize = 16;

/// The kind of a message's items.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// Events.
    Events = 1,
    /// Records.
    Records = 2,
    /// Symbols of records. They are repeated, and are not part of the order.
    Symbols = 3,
    /// The status of the plant's streams.
    Status = 4,
}

/// The position of a record: the number of its event, and its place among the records of its stream and event.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Key {
    /// The event's number.
    pub number: u64,
    /// The place.
    pub place: u32,
}

/// The header of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The kind of its items.
    pub kind: Kind,
    /// The number of items.
    pub items: u16,
    /// The start time of the publishing plant.
    pub epoch: u64,
    /// The message's number in the stream.
    pub sequence: u64,
}

/// Why bytes are not a message.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum NotAMessage {
    /// They are too short, or from another program.
    #[error("{0} bytes do not begin as a message does")]
    Head(usize),
    /// The kind is unknown.
    #[error("messages of kind {0} are unknown")]
    Kind(u8),
    /// An item is truncated or invalid.
    #[error("item {0} is cut, or is none")]
    Item(u16),
}

impl Header {
    /// Parses the header of `bytes`, and returns it with the bytes after it.
    ///
    /// # Errors
    /// [`NotAMessage`].
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), NotAMessage> {
        let short = NotAMessage::Head(bytes.len());
        let (head, rest) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or(short)?;
        let [m0, m1, m2, m3, kind, _, i0, i1, rest_of_head @ ..] = *head;
        if [m0, m1, m2, m3] != MAGIC {
            return Err(short);
        }
        let kind = match kind {
            1 => Kind::Events,
            2 => Kind::Records,
            3 => Kind::Symbols,
            4 => Kind::Status,
            other => return Err(NotAMessage::Kind(other)),
        };
        let number = |at: usize| rest_of_head.get(at..).and_then(number).unwrap_or_default();
        Ok((Self { kind, items: u16::from_le_bytes([i0, i1]), epoch: number(0), sequence: number(8) }, rest))
    }
}

fn number(bytes: &[u8]) -> Option<u64> {
    bytes.first_chunk::<8>().map(|bytes| u64::from_le_bytes(*bytes))
}

/// Calls `each` with the number and the event of every item after the header.
///
/// # Errors
/// [`NotAMessage::Item`]; the items before it were delivered.
pub fn events(header: &Header, mut rest: &[u8], mut each: impl FnMut(u64, Event)) -> Result<(), NotAMessage> {
    for item in 0..header.items {
        let bad = NotAMessage::Item(item);
        let (head, tail) = rest.split_first_chunk::<NUMBER_BYTES>().ok_or(bad)?;
        let (event, tail) = tail.split_first_chunk::<EVENT_BYTES>().ok_or(bad)?;
        each(u64::from_le_bytes(*head), Event::from_bytes(event).ok_or(bad)?);
        rest = tail;
    }
    Ok(())
}

/// Calls `each` with the key and the bytes of every record after the header.
///
/// # Errors
/// As [`events`].
pub fn records(
    header: &Header,
    mut rest: &[u8],
    mut each: impl FnMut(Key, &[u8]),
) -> Result<(), NotAMessage> {
    for item in 0..header.items {
        let bad = NotAMessage::Item(item);
        let (head, tail) = rest.split_first_chunk::<KEY_BYTES>().ok_or(bad)?;
        let [number @ .., p0, p1, p2, p3, _, _, _, _] = *head;
        let key = Key { number: u64::from_le_bytes(number), place: u32::from_le_bytes([p0, p1, p2, p3]) };
        let (record, tail) = split_record(tail).ok_or(bad)?;
        each(key, record);
        rest = tail;
    }
    Ok(())
}

/// Calls `each` with the bytes of every symbol mapping after the header.
///
/// # Errors
/// As [`events`].
pub fn symbols(header: &Header, mut rest: &[u8], mut each: impl FnMut(&[u8])) -> Result<(), NotAMessage> {
    for item in 0..header.items {
        let (record, tail) = split_record(rest).ok_or(NotAMessage::Item(item))?;
        each(record);
        rest = tail;
    }
    Ok(())
}

/// Splits off the first record of `bytes`, whose first byte is its length in 32-bit words.
fn split_record(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = usize::from(*bytes.first()?) * 4;
    // A record's header has 16 bytes.
    if length < 16 { None } else { bytes.split_at_checked(length) }
}

/// A message under construction.
#[derive(Clone, Default, Debug)]
pub struct Draft {
    bytes: Vec<u8>,
    items: u16,
}

impl Draft {
    /// Creates an empty message that reuses the memory of `bytes`.
    pub fn begin(mut bytes: Vec<u8>, kind: Kind, epoch: u64, sequence: u64) -> Self {
        bytes.clear();
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&[kind as u8, 0, 0, 0]);
        bytes.extend_from_slice(&epoch.to_le_bytes());
        bytes.extend_from_slice(&sequence.to_le_bytes());
        Self { bytes, items: 0 }
    }

    /// Returns whether another item of this many bytes would make the message too long, or it has the maximum number of items.
    pub fn is_full_for(&self, bytes: usize) -> bool {
        self.items > 0 && (self.bytes.len() + bytes > MESSAGE_BYTES || self.items == u16::MAX)
    }

    /// Returns the number of items.
    pub const fn items(&self) -> u16 {
        self.items
    }

    /// Appends an event.
    pub fn put_event(&mut self, number: u64, event: &Event) {
        self.bytes.extend_from_slice(&number.to_le_bytes());
        self.bytes.extend_from_slice(&event.to_bytes());
        self.items += 1;
    }

    /// Appends a record.
    pub fn put_record(&mut self, key: Key, record: &[u8]) {
        self.bytes.extend_from_slice(&key.number.to_le_bytes());
        self.bytes.extend_from_slice(&key.place.to_le_bytes());
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.extend_from_slice(record);
        self.items += 1;
    }

    /// Appends a symbol mapping.
    pub fn put_symbol(&mut self, record: &[u8]) {
        self.bytes.extend_from_slice(record);
        self.items += 1;
    }

    /// Appends text.
    pub fn put_text(&mut self, text: &str) {
        self.bytes.extend_from_slice(text.as_bytes());
        self.items = 1;
    }

    /// Returns the bytes of the message.
    pub fn finish(mut self) -> Vec<u8> {
        if let Some(items) = self.bytes.get_mut(6..8) {
            items.copy_from_slice(&self.items.to_le_bytes());
        }
        self.bytes
    }
}

/// Bytes that an event takes in a message.
pub const EVENT_ITEM_BYTES: usize = NUMBER_BYTES + EVENT_BYTES;

/// Returns the bytes that a record of this length takes in a message.
pub const fn record_item_bytes(record: usize) -> usize {
    KEY_BYTES + record
}

/// Returns the shard of a symbol: the 64-bit FNV-1a hash of its bytes, modulo `shards`. Other programs may compute it too.
pub fn shard_of(symbol: Symbol, shards: u16) -> u16 {
    Shard::of_symbol(symbol, shards)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tapeworks_market::{EventKind, Flags, FlagsAndLine, InstrumentId, Line, Price, Publisher, Side};
    use tapeworks_time::Nanos;

    use super::*;

    prop_compose! {
        fn an_event()(
            longs in any::<[u64; 5]>(),
            price in any::<i64>(),
            (instrument, size, publisher, channel) in any::<(u32, u32, u16, u16)>(),
            kind in 1u8..22,
            side in 0usize..3,
            (flags, detail) in any::<(u8, u8)>(),
            line in 0usize..4,
        ) -> Event {
            let lines = [Line::A, Line::B, Line::Recovery, Line::Snapshot];
            Event {
                ts_event: Nanos(longs[0]),
                ts_recv: Nanos(longs[1]),
                order_id: longs[2],
                price: Price::from_e9(price),
                channel_sequence: longs[3],
                aux: longs[4],
                size,
                side: [Side::Ask, Side::Bid, Side::None][side],
                flags_and_line: FlagsAndLine::new(Flags(flags), lines[line]),
                detail,
                channel,
                ..Event::new(EventKind::from_number(kind).unwrap(), Publisher(publisher), InstrumentId(instrument))
            }
        }
    }

    proptest! {
        #[test]
        fn an_event_comes_out_of_a_message_as_it_was_put(put in prop::collection::vec((any::<u64>(), an_event()), 1..19)) {
            let mut draft = Draft::begin(Vec::new(), Kind::Events, 7, 9);
            put.iter().for_each(|(number, event)| draft.put_event(*number, event));
            let bytes = draft.finish();
            prop_assert!(bytes.len() <= MESSAGE_BYTES);
            let (header, rest) = Header::parse(&bytes).unwrap();
            prop_assert_eq!((header.epoch, header.sequence, usize::from(header.items)), (7, 9, put.len()));
            let mut got = Vec::new();
            events(&header, rest, |number, event| got.push((number, event))).unwrap();
            prop_assert_eq!(got, put);
            let cut = events(&header, &rest[..rest.len() - 1], |_, _| {});
            prop_assert_eq!(cut, Err(NotAMessage::Item(header.items - 1)));
        }

        #[test]
        fn no_bytes_make_a_parser_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 1u8..5) {
            let mut whole = Draft::begin(Vec::new(), Kind::Events, 1, 2).finish();
            whole[4] = kind;
            whole[6] = 3;
            whole.extend(bytes);
            let (header, rest) = Header::parse(&whole).unwrap();
            let _any = (events(&header, rest, |_, _| {}), records(&header, rest, |_, _| {}), symbols(&header, rest, |_| {}));
            let _any = Header::parse(rest);
        }
    }

    #[test]
    fn a_record_comes_out_of_a_message_with_its_key() {
        let mut draft = Draft::begin(Vec::new(), Kind::Records, 1, 2);
        let records_in =
            [(Key { number: 5, place: 0 }, vec![4; 16]), (Key { number: 5, place: 1 }, vec![5; 20])];
        records_in.iter().for_each(|(key, record)| draft.put_record(*key, record));
        let bytes = draft.finish();
        let (header, rest) = Header::parse(&bytes).unwrap();
        let mut got = Vec::new();
        records(&header, rest, |key, record| got.push((key, record.to_vec()))).unwrap();
        assert_eq!(got, records_in);
    }

    #[test]
    fn a_symbol_has_the_same_shard_in_every_program() {
        let shard = |text| shard_of(Symbol::parse(text).unwrap(), 4);
        assert_eq!(["AAPL", "MSFT", "BRK.B", "TWAA"].map(shard), [3, 3, 2, 2]);
        assert_eq!(shard_of(Symbol::parse("AAPL").unwrap(), 0), 0);
    }
}
