//! The entries of the store. One journal record holds several of them.
//!
//! A turn is everything that the gateway takes in and puts out in one pass. A restart replays a turn completely or not at all, so
//! that a crash leaves no message half processed. A turn is one record; one that does not fit into a record is split ([`PART`]).
//!
//! | offset | an entry's header | |
//! | --- | --- | --- |
//! | 0 | kind | u8 |
//! | 1 | zero | u8 |
//! | 2 | client | u16, by its place among the names of the last start |
//! | 4 | length | u32, bytes that follow the header |
//! | 8 | number | u64, by kind |
//! | 16 | time | u64, ns since 1970-01-01 00:00 UTC |
//!
//! All little-endian.

use tapeworks_journal::{MAX_PAYLOAD_BYTES, Place, Record};

/// Bytes of an entry's header.
pub(crate) const HEADER_BYTES: usize = 24;

/// Value of a record's `channel` that makes no claim. A smaller value says how many records immediately before it might not have
/// been on disk when it was written.
pub(crate) const NO_CLAIM: u16 = u16::MAX;

/// Kind of a record that ends a turn; usually it is the whole turn. `extra` is the number of earlier parts of the turn.
pub(crate) const TURN: u8 = 1;

/// Kind of a record that holds a part of a turn, but not the end. `extra` is the number of earlier parts. A turn whose last part is
/// missing had sent nothing.
pub(crate) const PART: u8 = 2;

/// Where a part of a turn begins among the turn's bytes, and where it is in the journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Written {
    pub(crate) from: usize,
    pub(crate) place: Place,
}

impl Written {
    /// Returns the journal position of the turn's byte at `offset`.
    pub(crate) fn place_of(parts: &[Self], offset: usize) -> Place {
        let count = parts.partition_point(|part| part.from <= offset);
        let part = count.checked_sub(1).and_then(|last| parts.get(last));
        part.map_or_else(Place::default, |part| Place {
            offset: part.place.offset + (offset - part.from) as u64,
            ..part.place
        })
    }
}

/// Reassembles the records of a turn.
#[derive(Default, Debug)]
pub(crate) struct Turn {
    pub(crate) bytes: Vec<u8>,
    pub(crate) parts: Vec<Written>,
    is_whole: bool,
}

impl Turn {
    /// Adds a record. Returns whether the turn is now complete, or `None` if the record does not continue one.
    pub(crate) fn take(&mut self, record: &Record<'_>) -> Option<bool> {
        // Drops the start of a turn without an end: the previous run stopped before it was written.
        if record.extra == 0 || std::mem::take(&mut self.is_whole) {
            self.bytes.clear();
            self.parts.clear();
            self.is_whole = false;
        }
        if !matches!(record.kind, TURN | PART) || record.extra != self.parts.len() as u64 {
            return None;
        }
        self.parts.push(Written { from: self.bytes.len(), place: Place::default() });
        self.bytes.extend_from_slice(record.payload);
        self.is_whole = record.kind == TURN;
        Some(self.is_whole)
    }

    /// Notes that the last record added ends at this position.
    pub(crate) fn ends_at(&mut self, end: Place) {
        if let Some(part) = self.parts.last_mut() {
            let length = (self.bytes.len() - part.from) as u64;
            part.place = Place { offset: end.offset.saturating_sub(length), ..end };
        }
    }
}

macro_rules! kinds {
    ($($(#[doc = $text:literal])+ $kind:ident = $number:literal, $name:literal;)+) => {
        /// The kind of an entry.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Kind {
            $($(#[doc = $text])+ $kind = $number,)+
        }

        impl Kind {
            /// Returns the kind with this number in the file.
            const fn of(number: u8) -> Option<Self> {
                match number {
                    $($number => Some(Self::$kind),)+
                    _ => None,
                }
            }

            /// Returns the kind's name, for people.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)+
                }
            }
        }
    };
}

kinds! {
    /// The gateway started. The bytes are the clients' names, one per line.
    Start = 1, "start";
    /// A client's message that led to a request: the complete FIX message.
    Request = 2, "request";
    /// The request as sent to the venue.
    ToVenue = 3, "to venue";
    /// A report from the venue. Number: the report's own, with the App ID in the highest byte.
    Report = 4, "report";
    /// A message to the venue that was not sent, because the session ended or its queue was full.
    Unsent = 5, "unsent";
    /// In-doubt requests were resolved.
    Settled = 6, "settled";
    /// The gateway cancels a client's orders.
    CancelOrders = 7, "cancel orders";
    /// The kill switch for all clients. Number: 1 is on.
    Halt = 8, "halt";
    /// The kill switch for one client. Number: 1 is on.
    HaltClient = 9, "halt client";
    /// The venue's sequence numbers restart. Number: the App ID.
    NewDay = 10, "new day";
    /// A message to a client, with its sequence number.
    ToClient = 11, "to client";
    /// The sequence number of the next message from a client.
    NextIncoming = 12, "next incoming";
    /// The sequence number of the next message to a client.
    NextOutgoing = 13, "next outgoing";
    /// Both sequence numbers of a client were reset to 1.
    Reset = 14, "reset";
    /// The venue no longer has these reports. Number: the first, with the App ID in the highest byte; the bytes are the count, a
    /// u64.
    Missing = 15, "missing";
    /// The gateway resends the next of its own requests that the venue's session did not accept.
    Again = 16, "again";
    /// The name of the venue's session. Its sequence numbers belong to this session only.
    Session = 17, "session";
    /// The venue has seen no request named by this number or a later one.
    NextName = 18, "next name";
    /// A new day began, for a venue whose times count from midnight. Number: that midnight, in UTC nanoseconds.
    Midnight = 19, "midnight";
}

/// An entry of the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry<'a> {
    /// The kind of entry.
    pub kind: Kind,
    /// The client's index among the names of the last start.
    pub client: u16,
    /// A number whose meaning depends on the kind.
    pub number: u64,
    /// The time of the entry, in UTC nanoseconds.
    pub time_ns: u64,
    /// The payload, whose meaning depends on the kind.
    pub bytes: &'a [u8],
}

/// Packs an App ID and the number of a report into one number.
pub(crate) const fn report_number(app_id: u8, number: u64) -> u64 {
    let number = if number > MOST_REPORTS { MOST_REPORTS } else { number };
    (app_id as u64) << 56 | number
}

/// Highest report number that fits beside an App ID. No venue sends this many in a day; a higher number is an error of the venue.
const MOST_REPORTS: u64 = (1 << 56) - 1;

/// Unpacks the App ID and the number of a report.
pub(crate) const fn of_report_number(number: u64) -> (u8, u64) {
    ((number >> 56) as u8, number & MOST_REPORTS)
}

/// A buffer that collects entries.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    bytes: Vec<u8>,
}

impl Entries {
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes) }
    }

    pub(crate) fn push(&mut self, entry: Entry<'_>) {
        let bytes = &mut self.bytes;
        bytes.extend_from_slice(&[entry.kind as u8, 0]);
        bytes.extend_from_slice(&entry.client.to_le_bytes());
        // A message is far shorter than 4 GiB.
        bytes.extend_from_slice(&(entry.bytes.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&entry.number.to_le_bytes());
        bytes.extend_from_slice(&entry.time_ns.to_le_bytes());
        bytes.extend_from_slice(entry.bytes);
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Drops the entries pushed after the buffer held this many bytes.
    pub(crate) fn truncate(&mut self, bytes: usize) {
        self.bytes.truncate(bytes);
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Moves all entries of `other` to the end. Returns the offset at which they begin.
    pub(crate) fn append(&mut self, other: &mut Self) -> usize {
        let at = self.bytes.len();
        self.bytes.append(&mut other.bytes);
        at
    }
}

/// Returns the length of the leading entries that fit into one record: at least one entry.
pub(crate) fn first_part(entries: &[u8]) -> usize {
    if entries.len() <= MAX_PAYLOAD_BYTES {
        return entries.len();
    }
    let mut end = 0;
    while let Some(length) = entries.get(end + 4..).and_then(|rest| rest.first_chunk()) {
        let next = end + HEADER_BYTES + u32::from_le_bytes(*length) as usize;
        if end > 0 && next > MAX_PAYLOAD_BYTES {
            break;
        }
        end = next;
    }
    end.min(entries.len())
}

/// Iterates over the entries of a turn, each with the offset of its bytes. `Err` holds the offset from which on the bytes are no
/// entry.
pub(crate) fn entries(record: &[u8]) -> impl Iterator<Item = Result<(usize, Entry<'_>), usize>> {
    let mut at = 0;
    core::iter::from_fn(move || {
        if at >= record.len() {
            return None;
        }
        let start = at;
        at = record.len();
        let Some((header, rest)) =
            record.get(start..).and_then(|rest| rest.split_first_chunk::<HEADER_BYTES>())
        else {
            return Some(Err(start));
        };
        let u64_at = |at: usize| {
            let bytes = header.get(at..).and_then(|rest| rest.first_chunk());
            bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
        };
        let length = u32::from_le_bytes([header[4], header[5], header[6], header[7]]) as usize;
        let (Some(kind), Some(bytes)) = (Kind::of(header[0]), rest.get(..length)) else {
            return Some(Err(start));
        };
        at = start + HEADER_BYTES + length;
        let client = u16::from_le_bytes([header[2], header[3]]);
        let entry = Entry { kind, client, number: u64_at(8), time_ns: u64_at(16), bytes };
        Some(Ok((start + HEADER_BYTES, entry)))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry() -> impl Strategy<Value = (u8, u16, u64, u64, Vec<u8>)> {
        (1u8..20, any::<u16>(), any::<u64>(), any::<u64>(), prop::collection::vec(any::<u8>(), 0..60))
    }

    proptest! {
        #[test]
        fn entries_are_read_as_they_were_pushed(all in prop::collection::vec(entry(), 0..20)) {
            let mut pushed = Entries::default();
            for (kind, client, number, time_ns, bytes) in &all {
                let kind = Kind::of(*kind).unwrap();
                pushed.push(Entry { kind, client: *client, number: *number, time_ns: *time_ns, bytes });
            }
            let read: Vec<_> = entries(pushed.bytes()).map(Result::unwrap).collect();
            prop_assert_eq!(read.len(), all.len());
            for ((at, one), (kind, client, number, time_ns, bytes)) in read.iter().zip(&all) {
                prop_assert_eq!((one.kind as u8, one.client), (*kind, *client));
                prop_assert_eq!((one.number, one.time_ns, one.bytes), (*number, *time_ns, &bytes[..]));
                prop_assert_eq!(&pushed.bytes()[*at..*at + bytes.len()], &bytes[..]);
            }
        }

        #[test]
        fn other_bytes_end_with_one_error_and_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let errors = entries(&bytes).filter(Result::is_err).count();
            prop_assert!(errors <= 1);
        }
    }

    #[test]
    fn a_turn_is_cut_between_entries_and_put_together_again() {
        let mut turn = Entries::default();
        for (length, number) in [400_000, 400_000, 400_000, 10, 900_000, 20].into_iter().zip(0..) {
            turn.push(Entry {
                kind: Kind::Report,
                client: 0,
                number,
                time_ns: 0,
                bytes: &vec![number as u8; length],
            });
        }
        let (mut rest, mut together, mut count) = (turn.bytes(), Turn::default(), 0);
        while !rest.is_empty() {
            let (part, behind) = rest.split_at(first_part(rest));
            assert!(part.len() <= MAX_PAYLOAD_BYTES && entries(part).all(|entry| entry.is_ok()));
            let kind = if behind.is_empty() { TURN } else { PART };
            let record = Record { kind, extra: count, payload: part, ..Record::default() };
            let end = Place { segment: count, offset: 1_000 + part.len() as u64 };
            assert_eq!(together.take(&record), Some(behind.is_empty()));
            together.ends_at(end);
            (rest, count) = (behind, count + 1);
        }
        assert_eq!((together.bytes.as_slice(), count), (turn.bytes(), 3));
        for (at, entry) in entries(turn.bytes()).map(Result::unwrap) {
            let place = Written::place_of(&together.parts, at);
            let part = together.parts[place.segment as usize];
            assert_eq!(place.offset - 1_000, (at - part.from) as u64, "entry {}", entry.number);
        }
    }

    #[test]
    fn a_turn_without_its_end_is_dropped_and_a_part_without_those_before_is_none() {
        let record = |kind, extra| Record { kind, extra, payload: b"x", ..Record::default() };
        let mut turn = Turn::default();
        assert_eq!(turn.take(&record(PART, 0)), Some(false));
        assert_eq!(turn.take(&record(PART, 1)), Some(false));
        assert_eq!(turn.take(&record(TURN, 0)), Some(true), "the next run began");
        assert_eq!(turn.bytes, b"x");
        assert_eq!(turn.take(&record(TURN, 1)), None);
        assert_eq!(turn.take(&record(7, 0)), None);
    }

    #[test]
    fn a_report_number_has_both_parts() {
        assert_eq!(of_report_number(report_number(255, 7)), (255, 7));
        assert_eq!(of_report_number(report_number(0, MOST_REPORTS)), (0, MOST_REPORTS));
        assert_eq!(of_report_number(report_number(3, u64::MAX)), (3, MOST_REPORTS), "not of another App ID");
    }
}
