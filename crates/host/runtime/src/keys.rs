//! Client keys, and the datasets that each may read.

use std::fmt;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::followed::FollowedFiles;
use crate::secrets::Secret;

/// The length of a key, which the clients check: `db-` and 29 more characters.
pub const KEY_LENGTH: usize = 32;

/// The prefix of every key.
const KEY_PREFIX: &str = "db-";

/// The number of trailing characters that identify a key in a login.
pub const BUCKET_LENGTH: usize = 5;

/// The error for an invalid key.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
#[error(
    "a key has {KEY_LENGTH} ASCII letters, digits and dashes and begins with {KEY_PREFIX}, and this has {length}"
)]
pub struct KeyError {
    /// The length in bytes. The key itself is secret, so it is not included.
    pub length: usize,
}

/// A key: a secret shared by client and server.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    secret: Secret,
    /// The name of the key in logs and reports.
    pub name: String,
    /// The datasets that the key may read; empty for all.
    pub datasets: Vec<String>,
    /// The most simultaneous connections.
    pub max_connections: usize,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Key {
    /// The default connection limit of a key.
    pub const MAX_CONNECTIONS: usize = 10;

    /// Creates a key that may read every dataset, with [`Key::MAX_CONNECTIONS`].
    ///
    /// # Errors
    /// [`KeyError`] if the clients would reject the key.
    pub fn new(name: &str, secret: &str) -> Result<Self, KeyError> {
        Self::check(secret).map(|()| Self::of(name, secret.into()))
    }

    /// Like `new`, with a secret that was already [checked](Self::check) and may change.
    pub fn of(name: &str, secret: Secret) -> Self {
        Self { secret, name: name.to_owned(), datasets: Vec::new(), max_connections: Self::MAX_CONNECTIONS }
    }

    /// Checks whether a text can be a key.
    ///
    /// # Errors
    /// [`KeyError`] if the clients would reject the key.
    pub fn check(text: &str) -> Result<(), KeyError> {
        let is_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
        if text.len() == KEY_LENGTH && is_plain && text.starts_with(KEY_PREFIX) {
            Ok(())
        } else {
            Err(KeyError { length: text.len() })
        }
    }

    /// Returns the key's file, if it is read from one.
    pub fn files(&self) -> Option<Arc<dyn FollowedFiles>> {
        self.secret.files()
    }

    /// Returns the key's last characters, which identify the key in a login.
    pub fn bucket(&self) -> String {
        self.secret.get().get(KEY_LENGTH - BUCKET_LENGTH..).unwrap_or_default().to_owned()
    }

    /// Returns a client's answer to `challenge` with this key: SHA-256 of the challenge, `|` and the key.
    pub fn answer(&self, challenge: &str) -> [u8; 32] {
        let mut hash = Sha256::new();
        hash.update(challenge);
        hash.update(b"|");
        hash.update(&*self.secret.get());
        hash.finalize().into()
    }

    /// Returns whether the key may read `dataset`.
    pub fn may_see(&self, dataset: &str) -> bool {
        self.datasets.is_empty() || self.datasets.iter().any(|one| one == dataset)
    }
}

/// The keys of a server.
#[derive(Clone, Default, Debug)]
pub struct Keys {
    keys: Vec<Key>,
}

impl Keys {
    /// Creates a set of keys.
    pub const fn new(keys: Vec<Key>) -> Self {
        Self { keys }
    }

    /// Returns the key at `place`.
    pub fn get(&self, place: usize) -> Option<&Key> {
        self.keys.get(place)
    }

    /// Returns the number of keys.
    pub const fn len(&self) -> usize {
        self.keys.len()
    }

    /// Returns whether there is no key, in which case no client can connect.
    pub const fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Iterates over all keys.
    pub fn iter(&self) -> impl Iterator<Item = &Key> {
        self.keys.iter()
    }

    /// Returns the place of the key that gives this answer to `challenge`. Compares in constant time, so the time does not reveal
    /// how much of an answer was right.
    pub fn find(&self, challenge: &str, answer: &[u8; 32], bucket: &str) -> Option<usize> {
        let mut found = None;
        for (place, key) in self.keys.iter().enumerate().filter(|(_, key)| key.bucket() == bucket) {
            if bool::from(key.answer(challenge).ct_eq(answer)) {
                found = Some(place);
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_by_its_answer_and_by_nothing_else() {
        let keys = Keys::new(vec![
            Key::new("one", "db-TapeworksDemoKey0000000000000").unwrap(),
            Key::new("two", "db-TapeworksDemoKey1111111100000").unwrap(),
        ]);
        let answer = keys.get(1).unwrap().answer("challenge");
        assert_eq!(keys.find("challenge", &answer, "00000"), Some(1));
        assert_eq!(keys.find("challenge", &answer, "00001"), None);
        assert_eq!(keys.find("another", &answer, "00000"), None);
        // The clients compute sha256("challenge|db-TapeworksDemoKey0000000000000").
        let answer = hex::encode(keys.get(0).unwrap().answer("challenge"));
        assert_eq!(answer, "76e0d53bba50d17f7d7d6bac48d5d837eddcf0725f8196941b10f0c6c2375afd");
    }

    #[test]
    fn a_key_that_clients_would_refuse_is_an_error_and_the_secret_is_not_shown() {
        for bad in ["", "db-", "xx-TapeworksDemoKey0000000000000", "db-TapeworksDemoKey000000000000|"] {
            assert_eq!(Key::new("bad", bad), Err(KeyError { length: bad.len() }));
        }
        let key = Key::new("demo", "db-TapeworksDemoKey0000000000000").unwrap();
        assert!(!format!("{key:?}").contains("Tapeworks"));
    }
}
