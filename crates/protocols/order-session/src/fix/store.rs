//! The state of a session that must survive: both sequence numbers and the sent messages.
//!
//! A session stores a message before it sends it, and sends nothing that it could not store. A sequence number is
//! therefore never used for two different messages. Stores on disk implement [`Store`]; [`MemoryStore`] is for tests
//! and for sessions that start fresh.

use std::collections::VecDeque;

/// A store failed. The session ends.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The store is full.
    #[error("the store of the session is full")]
    Full,
    /// The medium failed.
    #[error("the store of the session failed: {0}")]
    Failed(String),
}

/// The sequence numbers and messages of one session. Changes for which a call returned `Ok` survive.
pub trait Store {
    /// Returns the sequence number of the next outgoing message; initially 1.
    fn next_outgoing(&self) -> u64;

    /// Returns the expected sequence number of the next incoming message; initially 1.
    fn next_incoming(&self) -> u64;

    /// Returns when the sequence numbers were last reset to 1, in UTC nanoseconds.
    fn created_ns(&self) -> u64;

    /// Stores the message with the number [`Store::next_outgoing`], and then increments that number.
    ///
    /// # Errors
    /// The message was not stored. Its number is still free.
    fn keep(&mut self, sequence: u64, message: &[u8]) -> Result<(), StoreError>;

    /// Sets the sequence number of the next outgoing message. Skipped numbers have no message.
    ///
    /// # Errors
    /// The number was not set.
    fn set_next_outgoing(&mut self, sequence: u64) -> Result<(), StoreError>;

    /// Sets the expected sequence number of the next incoming message.
    ///
    /// # Errors
    /// The number was not set.
    fn set_next_incoming(&mut self, sequence: u64) -> Result<(), StoreError>;

    /// Copies the stored message with this number into `message`, which is empty, and returns whether there is one.
    ///
    /// # Errors
    /// The message cannot be read.
    fn read(&self, sequence: u64, message: &mut Vec<u8>) -> Result<bool, StoreError>;

    /// Resets both sequence numbers to 1 and removes all messages.
    ///
    /// # Errors
    /// The store was not reset.
    fn reset(&mut self, now_ns: u64) -> Result<(), StoreError>;

    /// Returns the first message stored while logged off, since the last logon; `None` if there is none, or if a previous run stored it.
    fn unsent_from(&mut self) -> &mut Option<u64>;
}

/// A store that lasts as long as the process. It keeps the latest messages up to a limit; older ones are gap-filled.
#[derive(Clone, Debug)]
pub struct MemoryStore {
    outgoing: u64,
    incoming: u64,
    created_ns: u64,
    /// The sequence number of the oldest message.
    first: u64,
    messages: VecDeque<Option<Box<[u8]>>>,
    bytes: usize,
    limit_bytes: usize,
    unsent_from: Option<u64>,
    /// Makes writes fail, to test a full disk.
    fails: bool,
}

impl MemoryStore {
    /// Creates an empty store for at most `limit_bytes` of messages.
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

    /// Makes every later write fail as on a full disk, or succeed again.
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
