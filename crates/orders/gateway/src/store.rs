//! The store of one FIX session: both sequence numbers, and the journal position of each message to the client.
//!
//! The newest messages are in memory, up to a bound; older messages are read from the journal. Changes are collected as entries,
//! which the gateway writes before it sends anything. Cost per message: a copy into memory and a copy into the entries. Memory: 32
//! bytes for each message of the session, and the newest messages.
//! newest messages.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use tapeworks_disk::Disk;
use tapeworks_journal::{Place, read_place_in};
use tapeworks_order_session::fix::{Store, StoreError};
use tapeworks_planted::planted;
use tapeworks_session::BlockQueue;

use crate::entry::{Entries, Entry, Kind, Written};

/// Bytes of the newest messages kept in memory: more than one turn produces for one client.
const RECENT_BYTES: usize = 1 << 20;

/// Bytes of messages that fit between two calls of [`SessionStore::keep_room`] without allocating.
const ROOM_BYTES: usize = 64 << 10;

/// Number of messages whose positions are allocated together.
const BLOCK: usize = 1_024;

/// A message to the client.
#[derive(Clone, Copy, Debug)]
struct Kept {
    /// Its position in the journal. Before the turn is written: its offset among the entries.
    place: Place,
    length: u32,
    /// Whether the message is in memory.
    is_recent: bool,
    /// Its offset among the bytes of all messages that were ever in memory.
    at: u64,
}

/// The sequence numbers and messages of one session.
#[derive(Debug)]
pub(crate) struct SessionStore<D> {
    folder: PathBuf,
    client: u16,
    next_outgoing: u64,
    next_incoming: u64,
    created_ns: u64,
    /// Whether `created_ns` was read from the journal.
    is_restored: bool,
    now_ns: u64,
    /// See [`Store::unsent_from`].
    unsent_from: Option<u64>,
    /// The sequence number of the first message in `messages`.
    first: u64,
    messages: BlockQueue<Kept, BLOCK>,
    /// The newest messages, concatenated; the first has the sequence number `recent_from`.
    recent: VecDeque<u8>,
    recent_from: u64,
    /// Bytes that were in memory before those of `recent`.
    gone_bytes: u64,
    /// Changes that the gateway has not collected yet.
    changes: Entries,
    /// The sequence number of the first message that has not been written yet.
    first_change: u64,
    disk: core::marker::PhantomData<D>,
}

impl<D: Disk> SessionStore<D> {
    /// Creates the empty store of a client. Its messages will be in the journal in `folder`.
    pub(crate) fn new(folder: &Path, client: u16, now_ns: u64) -> Self {
        Self {
            folder: folder.to_owned(),
            client,
            next_outgoing: 1,
            next_incoming: 1,
            created_ns: now_ns,
            is_restored: false,
            now_ns,
            unsent_from: None,
            first: 1,
            messages: BlockQueue::default(),
            recent: VecDeque::new(),
            recent_from: 1,
            gone_bytes: 0,
            changes: Entries::default(),
            first_change: 1,
            disk: core::marker::PhantomData,
        }
    }

    /// Sets the time of the changes that follow.
    pub(crate) const fn set_time(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// Returns whether there are changes to collect.
    pub(crate) fn has_changes(&self) -> bool {
        !self.changes.is_empty()
    }

    /// Moves the changes into the turn's entries. Their positions in the journal are set by [`SessionStore::written`].
    pub(crate) fn collect(&mut self, entries: &mut Entries) {
        let base = entries.append(&mut self.changes) as u64;
        for number in self.first_change..self.next_outgoing {
            if let Some(kept) = self.kept_mut(number) {
                kept.place.offset += base;
            }
        }
    }

    /// Notes that the turn's entries are in the journal, its parts at these positions.
    pub(crate) fn written(&mut self, parts: &[Written]) {
        for number in self.first_change..self.next_outgoing {
            if let Some(kept) = self.kept_mut(number) {
                kept.place = Written::place_of(parts, kept.place.offset as usize);
            }
        }
        self.first_change = self.next_outgoing;
        while self.recent.len() > RECENT_BYTES && self.recent_from < self.next_outgoing {
            let number = self.recent_from;
            let length = self.kept_mut(number).map_or(0, |kept| {
                kept.is_recent = false;
                kept.length as usize
            });
            self.recent.drain(..length.min(self.recent.len()));
            self.gone_bytes += length as u64;
            self.recent_from += 1;
        }
    }

    fn kept_mut(&mut self, number: u64) -> Option<&mut Kept> {
        self.messages.get_mut(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    fn change(&mut self, kind: Kind, number: u64, bytes: &[u8]) {
        let (client, time_ns) = (self.client, self.now_ns);
        self.changes.push(Entry { kind, client, number, time_ns, bytes });
    }

    // ---- what the journal has ----

    /// Restores a message of a previous run, given its position.
    pub(crate) fn restore_message(&mut self, number: u64, place: Place, length: usize) {
        if number != self.next_outgoing {
            self.restore_next_outgoing(number);
        }
        self.messages.push_back(Kept { place, length: length as u32, is_recent: false, at: 0 });
        self.next_outgoing = if planted!("outgoing-number-one-short") { number } else { number + 1 };
        (self.recent_from, self.first_change) = (self.next_outgoing, self.next_outgoing);
    }

    /// Restores the sequence number of the next message to the client.
    pub(crate) fn restore_next_outgoing(&mut self, number: u64) {
        self.messages.clear();
        self.gone_bytes += self.recent.len() as u64;
        self.recent.clear();
        (self.first, self.next_outgoing) = (number, number);
        (self.recent_from, self.first_change) = (number, number);
    }

    /// Restores the sequence number of the next message from the client.
    pub(crate) const fn restore_next_incoming(&mut self, number: u64) {
        self.next_incoming = number;
    }

    /// Restores a reset of both sequence numbers to 1.
    pub(crate) fn restore_reset(&mut self, created_ns: u64) {
        self.restore_next_outgoing(1);
        (self.next_incoming, self.created_ns, self.is_restored) = (1, created_ns, true);
        self.unsent_from = None;
    }

    /// Notes the time of an entry of the journal. Without a recorded reset, the numbers date from the client's first entry.
    pub(crate) const fn restore_time(&mut self, time_ns: u64) {
        if !self.is_restored {
            (self.created_ns, self.is_restored) = (time_ns, true);
        }
    }

    /// Allocates memory for this many more messages now.
    pub(crate) fn keep_room(&mut self, messages: usize) {
        self.messages.keep_room(messages);
        let most = RECENT_BYTES + ROOM_BYTES;
        if self.recent.capacity() - self.recent.len() < ROOM_BYTES && self.recent.capacity() < most {
            let more = self.recent.len().max(ROOM_BYTES).min(most - self.recent.len());
            self.recent.reserve_exact(more);
        }
    }
}

impl<D: Disk> Store for SessionStore<D> {
    fn next_outgoing(&self) -> u64 {
        self.next_outgoing
    }

    fn next_incoming(&self) -> u64 {
        self.next_incoming
    }

    fn created_ns(&self) -> u64 {
        self.created_ns
    }

    fn keep(&mut self, sequence: u64, message: &[u8]) -> Result<(), StoreError> {
        if sequence != self.next_outgoing {
            let next = self.next_outgoing;
            return Err(StoreError::Failed(format!("message {sequence} is not the next, {next}")));
        }
        self.change(Kind::ToClient, sequence, message);
        let offset = (self.changes.len() - message.len()) as u64;
        self.messages.push_back(Kept {
            place: Place { segment: 0, offset },
            length: message.len() as u32,
            is_recent: true,
            at: self.gone_bytes + self.recent.len() as u64,
        });
        self.recent.extend(message);
        self.next_outgoing += 1;
        Ok(())
    }

    fn set_next_outgoing(&mut self, sequence: u64) -> Result<(), StoreError> {
        if sequence != self.next_outgoing {
            self.change(Kind::NextOutgoing, sequence, &[]);
            self.restore_next_outgoing(sequence);
        }
        Ok(())
    }

    fn set_next_incoming(&mut self, sequence: u64) -> Result<(), StoreError> {
        if sequence != self.next_incoming {
            self.change(Kind::NextIncoming, sequence, &[]);
            self.next_incoming = sequence;
        }
        Ok(())
    }

    fn read(&self, sequence: u64, message: &mut Vec<u8>) -> Result<bool, StoreError> {
        let index = sequence.checked_sub(self.first).and_then(|index| usize::try_from(index).ok());
        let Some(kept) = index.and_then(|index| self.messages.get(index)) else { return Ok(false) };
        if kept.is_recent {
            let start = kept.at.saturating_sub(self.gone_bytes) as usize;
            let end = (start + kept.length as usize).min(self.recent.len());
            message.extend(self.recent.range(start.min(end)..end));
            return Ok(true);
        }
        let start = message.len();
        message.resize(start + kept.length as usize, 0);
        let room = message.get_mut(start..).unwrap_or_default();
        match read_place_in::<D>(&self.folder, kept.place, room) {
            Ok(count) if count == room.len() => Ok(true),
            Ok(_) => Err(StoreError::Failed(format!("message {sequence} is cut off in the journal"))),
            Err(error) => Err(StoreError::Failed(error.to_string())),
        }
    }

    fn reset(&mut self, now_ns: u64) -> Result<(), StoreError> {
        self.change(Kind::Reset, 1, &now_ns.to_le_bytes());
        self.restore_reset(now_ns);
        Ok(())
    }

    fn unsent_from(&mut self) -> &mut Option<u64> {
        &mut self.unsent_from
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tapeworks_disk::System;
    use tapeworks_journal::{JournalOptions, JournalReader, JournalWriter, Record};

    use super::*;
    use crate::entry::{TURN, entries};

    #[derive(Clone, Debug)]
    enum Step {
        Keep(usize),
        Incoming(u64),
        Outgoing(u64),
        Reset,
        Turn,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            12 => (1usize..60_000).prop_map(Step::Keep),
            3 => (1u64..90).prop_map(Step::Incoming),
            1 => (1u64..90).prop_map(Step::Outgoing),
            1 => Just(Step::Reset),
            6 => Just(Step::Turn),
        ]
    }

    /// Returns the store's view: its numbers, and each message.
    fn shown(store: &SessionStore<System>) -> (u64, u64, u64, Vec<Option<Vec<u8>>>) {
        let read = |number| {
            let mut message = Vec::new();
            store.read(number, &mut message).unwrap().then_some(message)
        };
        let messages = (0..store.next_outgoing() + 2).map(read).collect();
        (store.next_outgoing(), store.next_incoming(), store.created_ns(), messages)
    }

    /// Returns the store as a restart restores it.
    fn restored(folder: &Path) -> SessionStore<System> {
        let mut store = SessionStore::new(folder, 3, 1);
        let mut reader = JournalReader::open(folder).unwrap();
        let mut all = Vec::new();
        while let Some(record) = reader.next().unwrap() {
            all.push((record.payload.to_vec(), reader.place().unwrap()));
        }
        for (payload, end) in all {
            let start = end.offset - payload.len() as u64;
            for (at, entry) in entries(&payload).map(Result::unwrap) {
                let place = Place { offset: start + at as u64, ..end };
                match entry.kind {
                    Kind::ToClient => store.restore_message(entry.number, place, entry.bytes.len()),
                    Kind::NextIncoming => store.restore_next_incoming(entry.number),
                    Kind::NextOutgoing => store.restore_next_outgoing(entry.number),
                    _ => store.restore_reset(u64::from_le_bytes(entry.bytes.try_into().unwrap())),
                }
            }
        }
        store
    }

    #[test]
    fn numbers_without_a_reset_began_with_the_first_thing_that_the_journal_has_of_them() {
        let mut store: SessionStore<System> = SessionStore::new(Path::new("none"), 0, 100);
        assert_eq!(store.created_ns(), 100, "nothing is known of a former run");
        [5, 9].into_iter().for_each(|time_ns| store.restore_time(time_ns));
        assert_eq!(store.created_ns(), 5);
        store.restore_reset(20);
        store.restore_time(30);
        assert_eq!(store.created_ns(), 20);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn a_store_has_what_a_simple_one_has_and_a_restart_finds_it(
            steps in prop::collection::vec(step(), 1..60),
        ) {
            let folder = tempfile::tempdir().unwrap();
            let options = JournalOptions { segment_bytes: 200_000, keep_bytes: None };
            let (mut writer, _) = JournalWriter::open(folder.path(), options).unwrap();
            let mut store = SessionStore::<System>::new(folder.path(), 3, 1);
            let mut simple = tapeworks_order_session::fix::MemoryStore::new(usize::MAX, 1);
            let mut fill = 0u8;
            for (now_ns, step) in (10u64..).zip(steps.into_iter().chain([Step::Turn])) {
                store.set_time(now_ns);
                match step {
                    Step::Keep(length) => {
                        fill = fill.wrapping_add(1);
                        let number = store.next_outgoing();
                        prop_assert_eq!(store.keep(number, &vec![fill; length]), Ok(()));
                        prop_assert_eq!(simple.keep(number, &vec![fill; length]), Ok(()));
                        prop_assert!(store.keep(number, b"x").is_err());
                    }
                    Step::Incoming(number) => {
                        prop_assert_eq!(store.set_next_incoming(number), simple.set_next_incoming(number));
                    }
                    Step::Outgoing(number) => {
                        prop_assert_eq!(store.set_next_outgoing(number), simple.set_next_outgoing(number));
                    }
                    Step::Reset => prop_assert_eq!(store.reset(now_ns), simple.reset(now_ns)),
                    Step::Turn if store.has_changes() => {
                        let mut turn = Entries::default();
                        turn.push(Entry { kind: Kind::Halt, client: 0, number: 0, time_ns: 0, bytes: b"before" });
                        let before = turn.len();
                        store.collect(&mut turn);
                        // The halt belongs to another store. Only this store's entries are written here, after as many bytes.
                        let payload = &turn.bytes()[before..];
                        writer.append(&Record { kind: TURN, payload, ..Record::default() }).unwrap();
                        writer.flush().unwrap();
                        let end = writer.place();
                        let record = end.offset - payload.len() as u64 - before as u64;
                        store.written(&[Written { from: 0, place: Place { offset: record, ..end } }]);
                    }
                    Step::Turn => {}
                }
                let mut wanted = Vec::new();
                for number in 0..store.next_outgoing() + 2 {
                    let mut message = Vec::new();
                    wanted.push(simple.read(number, &mut message).unwrap().then_some(message));
                }
                let all = (simple.next_outgoing(), simple.next_incoming(), simple.created_ns(), wanted);
                prop_assert_eq!(shown(&store), all);
            }
            prop_assert!(store.recent.len() <= RECENT_BYTES);
            prop_assert_eq!(shown(&restored(folder.path())), shown(&store));
        }
    }
}
