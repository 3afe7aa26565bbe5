//! What of a session must survive: both numbers, and the messages sent.
//!
//! A session keeps a message before it sends it, and sends nothing that could not be kept: a number is never used twice for
//! different messages. A store on a disk implements [`Store`]; [`MemoryStore`] is for tests and for sessions that begin anew.

use std::collections::VecDeque;

/// A store did not do what it should. The session ends.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// No room is left.
    #[error("the store of the session is full")]
    Full,
    /// The medium failed.
    #[error("the store of the session failed: {0}")]
    Failed(String),
}

/// The numbers and messages of one session. What a call returned `Ok` for survives.
pub trait Store {
    /// The number of the next message that is sent; 1 at first.
    fn next_outgoing(&self) -> u64;

    /// The number of the next message that is expected; 1 at first.
    fn next_incoming(&self) -> u64;

    /// When the numbers last began at 1, in UTC nanoseconds.
    fn created_ns(&self) -> u64;

    /// Keeps the message with the number [`Store::next_outgoing`], which then counts on.
    ///
    /// # Errors
    /// It is not kept. The number is free still.
    fn keep(&mut self, sequence: u64, message: &[u8]) -> Result<(), StoreError>;

    /// Sets the number of the next message that is sent. Numbers in between have no message.
    ///
    /// # Errors
    /// It is not set.
    fn set_next_outgoing(&mut self, sequence: u64) -> Result<(), StoreError>;

    /// Sets the number of the next message that is expected.
    ///
    /// # Errors
    /// It is not set.
    fn set_next_incoming(&mut self, sequence: u64) -> Result<(), StoreError>;

    /// Puts the kept message of this number into `message`, which is empty; returns whether there is one.
    ///
    /// # Errors
    /// It cannot be read.
    fn read(&self, sequence: u64, message: &mut Vec<u8>) -> Result<bool, StoreError>;

    /// Both numbers begin at 1, without messages.
    ///
    /// # Errors
    /// They do not.
    fn reset(&mut self, now_ns: u64) -> Result<(), StoreError>;

    /// The first message that was kept because no connection was logged on, since one was last; `None`: none, or a former run kept it.
    fn unsent_from(&mut self) -> &mut Option<u64>;
}

/// A store that ends with the process. It keeps the latest messages up to a bound; older ones are gap-filled.
#[derive(Clone, Debug)]
pub struct MemoryStore {
    outgoing: u64,
    incoming: u64,
    created_ns: u64,
    /// The number of the oldest message.
    first: u64,
    messages: VecDeque<Option<Box<[u8]>>>,
    bytes: usize,
    limit_bytes: usize,
    unsent_from: Option<u64>,
    /// Writes fail from here on: for tests of what a full disk does.
    fails: bool,
}

impl MemoryStore {
    /// An empty store of at most so many bytes of messages.
    #[must_use]
    pub const fn new(limit_bytes: usize, now_ns: u64) -> Self {
        let messages = VecDeque::new();
        Self {
            outgoing: 1,
            incoming: 1,
            created_ns: now_ns,
            first: 1,
            messages,
            bytes: 0,
            limit_bytes,
            unsent_from: None,
            fails: false,
        }
    }

    /// Whether every write fails from here on, as those on a full disk do.
    pub const fn set_failing(&mut self, fails: bool) {
        self.fails = fails;
    }

    const fn check(&self) -> Result<(), StoreError> {
        if self.fails { Err(StoreError::Full) } else { Ok(()) }
    }
}

impl Store for MemoryStore {
    fn next_outgoing(&self) -> u64 {
        self.outgoing
    }

    fn next_incoming(&self) -> u64 {
        self.incoming
    }

    fn created_ns(&self) -> u64 {
        self.created_ns
    }

    fn keep(&mut self, sequence: u64, message: &[u8]) -> Result<(), StoreError> {
        self.check()?;
        if sequence != self.outgoing {
            return Err(StoreError::Failed(format!("message {sequence} is not the next, {}", self.outgoing)));
        }
        self.messages.push_back(Some(message.into()));
        self.bytes += message.len();
        self.outgoing += 1;
        while self.bytes > self.limit_bytes
            && let Some(oldest) = self.messages.pop_front()
        {
            self.bytes -= oldest.map_or(0, |message| message.len());
            self.first += 1;
        }
        Ok(())
    }

    fn set_next_outgoing(&mut self, sequence: u64) -> Result<(), StoreError> {
        self.check()?;
        if sequence != self.outgoing {
            self.messages.clear();
            self.bytes = 0;
            self.first = sequence;
            self.outgoing = sequence;
        }
        Ok(())
    }

    fn set_next_incoming(&mut self, sequence: u64) -> Result<(), StoreError> {
        self.check()?;
        self.incoming = sequence;
        Ok(())
    }

    fn read(&self, sequence: u64, message: &mut Vec<u8>) -> Result<bool, StoreError> {
        let index = sequence.checked_sub(self.first).and_then(|index| usize::try_from(index).ok());
        let found = index.and_then(|index| self.messages.get(index)).and_then(Option::as_ref);
        message.extend_from_slice(found.map_or(&[], |found| found));
        Ok(found.is_some())
    }

    fn reset(&mut self, now_ns: u64) -> Result<(), StoreError> {
        self.check()?;
        *self = Self::new(self.limit_bytes, now_ns);
        Ok(())
    }

    fn unsent_from(&mut self) -> &mut Option<u64> {
        &mut self.unsent_from
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_messages_are_kept_up_to_the_bound() {
        let mut store = MemoryStore::new(10, 5);
        for (sequence, text) in [(1, "aaaa"), (2, "bbbb"), (3, "cccc")] {
            store.keep(sequence, text.as_bytes()).unwrap();
        }
        let read = |store: &MemoryStore, sequence| {
            let mut message = Vec::new();
            store.read(sequence, &mut message).unwrap().then_some(message)
        };
        assert_eq!((read(&store, 1), read(&store, 2)), (None, Some(b"bbbb".to_vec())));
        assert_eq!((store.next_outgoing(), store.next_incoming(), store.created_ns()), (4, 1, 5));
        assert!(store.keep(3, b"x").is_err(), "a number is used once");
        store.reset(9).unwrap();
        assert_eq!((store.next_outgoing(), read(&store, 3), store.created_ns()), (1, None, 9));
        store.set_failing(true);
        assert_eq!(store.keep(1, b"x"), Err(StoreError::Full));
        assert_eq!(store.next_outgoing(), 1);
    }
}
