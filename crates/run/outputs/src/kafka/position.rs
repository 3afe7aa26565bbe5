//! How far the journal is in Kafka, and whether a journal is the one that the position belongs to.

use tapeworks_market::Event;
use tapeworks_time::Nanos;

/// The position: the contents of `Position` in `tapeworks_records.proto`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Position {
    /// The number of the first event whose records are not in Kafka yet.
    pub(super) next: u64,
    /// The latest receive time of the events before it.
    pub(super) time: Nanos,
    /// The last event before the position.
    pub(super) last: Mark,
    /// The output that wrote the position.
    pub(super) owner: u64,
}

/// What identifies an event.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Mark {
    ts_recv: u64,
    ts_event: u64,
    sequence: u64,
    publisher: u64,
}

impl From<&Event> for Mark {
    fn from(event: &Event) -> Self {
        Self {
            ts_recv: event.ts_recv.0,
            ts_event: event.ts_event.0,
            sequence: event.channel_sequence,
            publisher: event.publisher.0.into(),
        }
    }
}

/// Length of a tag and a 64-bit number in bytes.
const FIELD: usize = 9;

impl Position {
    const fn fields(&self) -> [u64; 7] {
        let Mark { ts_recv, ts_event, sequence, publisher } = self.last;
        [self.next, self.time.0, ts_recv, ts_event, sequence, publisher, self.owner]
    }

    /// Encodes as Protobuf: for each field a one-byte tag and eight bytes.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(7 * FIELD);
        for (number, value) in (1u8..).zip(self.fields()) {
            bytes.push(number << 3 | 1);
            bytes.extend_from_slice(&value.to_le_bytes());
        }
        bytes
    }

    /// Decodes a position; returns `None` if the bytes are not one.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = [0; 7];
        let (each, rest) = bytes.as_chunks::<FIELD>();
        for [tag, value @ ..] in each {
            if tag & 7 != 1 {
                return None;
            }
            *fields.get_mut(usize::from(tag >> 3).checked_sub(1)?)? = u64::from_le_bytes(*value);
        }
        let [next, time, ts_recv, ts_event, sequence, publisher, owner] = fields;
        let last = Mark { ts_recv, ts_event, sequence, publisher };
        rest.is_empty().then_some(Self { next, time: Nanos(time), last, owner })
    }

    /// Returns the position to continue from: the one in Kafka, unless this output knows that a later one existed, which was lost
    /// with its topic. A commit whose answer was lost leaves a later position in Kafka.
    pub(super) fn to_go_on_from(found: Option<Self>, known: Option<Self>) -> Self {
        // The time increases from journal to journal, although numbers restart.
        let age = |position: &Self| (position.time, position.next);
        found.into_iter().chain(known).max_by_key(age).unwrap_or_default()
    }
}

/// Who writes the position: this output, or another one in the meantime.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ownership {
    own: u64,
    /// The owner before this output wrote the position; `None` if there was no position.
    before: Option<u64>,
    is_known: bool,
}

impl Ownership {
    /// Creates the state of an output with this number that has not seen the position yet.
    pub(super) const fn new(own: u64) -> Self {
        Self { own, before: None, is_known: false }
    }

    /// Returns the number of this output.
    pub(super) const fn own(self) -> u64 {
        self.own
    }

    /// Notes the owner of the position, which this output is about to overwrite.
    pub(super) const fn has_seen(&mut self, owner: Option<u64>) {
        (self.before, self.is_known) = (owner, true);
    }

    /// Notes that this output has written the position.
    pub(super) const fn has_written(&mut self) {
        (self.before, self.is_known) = (Some(self.own), true);
    }

    /// Returns whether the position's owner shows that another output has written it since. If there is no position, its topic was
    /// removed, and nobody has.
    pub(super) fn is_lost(self, owner: Option<u64>) -> bool {
        // A first commit whose answer was lost leaves this output's number.
        self.is_known && owner.is_some_and(|owner| owner != self.own && Some(owner) != self.before)
    }
}

/// Where reading a journal begins, relative to the position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Beginning {
    /// The position's journal, unless its event before the position differs. Records from the position on are sent.
    Same,
    /// A later journal: records from its event `first` on are sent, and earlier ones are not kept.
    Later {
        /// The first event that can be read.
        first: u64,
    },
    /// The events from the position up to but excluding `first` are not kept.
    Behind {
        /// The first event that can be read.
        first: u64,
    },
}

impl Beginning {
    /// Classifies a journal whose first readable event is `first`. `time` is the receive time of that event if it is the journal's
    /// first, and otherwise the latest receive time before it.
    pub(super) fn of(position: &Position, first: u64, time: Nanos) -> Self {
        if first > position.next {
            return Self::Behind { first };
        }
        // In the same journal, nothing before the position is later than its time. The next day's journal is later as a whole.
        if position.next > 0 && time > position.time { Self::Later { first } } else { Self::Same }
    }
}

#[cfg(test)]
mod tests {
    use tapeworks_market::{EventKind, InstrumentId, Publisher};

    use super::*;

    #[test]
    fn a_position_is_read_as_it_was_written() {
        let mut event = Event::new(EventKind::Other, Publisher::XNAS_ITCH, InstrumentId(1));
        (event.ts_recv, event.ts_event, event.channel_sequence) = (Nanos(5), Nanos(4), 6);
        let position = Position { next: 1 << 40, time: Nanos(9), last: Mark::from(&event), owner: u64::MAX };
        let bytes = position.encode();
        assert_eq!(Position::decode(&bytes), Some(position));
        assert_eq!(Position::decode(&bytes[..bytes.len() - 1]), None);
        assert_eq!(Position::decode(b"{\"next\":1}"), None);
        assert_eq!(
            Position::decode(&[8 << 3 | 1, 0, 0, 0, 0, 0, 0, 0, 0]),
            None,
            "a field that is not known"
        );
        event.ts_event = Nanos(3);
        assert_ne!(Mark::from(&event), position.last);
    }

    #[test]
    fn an_output_goes_on_from_its_own_position_when_kafka_has_lost_it() {
        let at = |next, time| Position { next, time: Nanos(time), ..Position::default() };
        assert_eq!(Position::to_go_on_from(None, None), Position::default());
        assert_eq!(Position::to_go_on_from(Some(at(5, 9)), None), at(5, 9));
        assert_eq!(Position::to_go_on_from(None, Some(at(5, 9))), at(5, 9), "the topic was removed");
        assert_eq!(Position::to_go_on_from(Some(at(4, 9)), Some(at(5, 9))), at(5, 9), "its end was lost");
        assert_eq!(
            Position::to_go_on_from(Some(at(6, 9)), Some(at(5, 9))),
            at(6, 9),
            "the answer to a commit was lost"
        );
        assert_eq!(Position::to_go_on_from(Some(at(3, 20)), Some(at(5, 9))), at(3, 20), "a later journal");
    }

    #[test]
    fn an_output_loses_its_id_only_to_another_one() {
        let mut ownership = Ownership::new(1);
        assert!(!ownership.is_lost(Some(7)), "at its start it takes the id over");
        ownership.has_seen(Some(7));
        assert!(!ownership.is_lost(Some(7)), "its first commit failed");
        assert!(!ownership.is_lost(Some(1)), "only the answer to its first commit was lost");
        assert!(ownership.is_lost(Some(8)));
        ownership.has_written();
        assert!(!ownership.is_lost(Some(1)) && !ownership.is_lost(None));
        assert!(ownership.is_lost(Some(7)), "the one before took it back");
        let mut first = Ownership::new(1);
        first.has_seen(None);
        assert!(!first.is_lost(None) && first.is_lost(Some(8)));
    }

    #[test]
    fn a_journal_is_the_position_s_a_later_one_or_begins_behind_it() {
        let position = Position { next: 10, time: Nanos(100), ..Position::default() };
        assert_eq!(Beginning::of(&position, 0, Nanos(1)), Beginning::Same);
        assert_eq!(Beginning::of(&position, 10, Nanos(100)), Beginning::Same, "a checkpoint at the position");
        assert_eq!(Beginning::of(&position, 0, Nanos(101)), Beginning::Later { first: 0 });
        assert_eq!(Beginning::of(&position, 4, Nanos(101)), Beginning::Later { first: 4 });
        assert_eq!(Beginning::of(&position, 11, Nanos(50)), Beginning::Behind { first: 11 });
        assert_eq!(Beginning::of(&Position::default(), 0, Nanos(5)), Beginning::Same, "nothing was sent yet");
    }
}
