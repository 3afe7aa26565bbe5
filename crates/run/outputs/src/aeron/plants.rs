//! Decides which plant a reader of events follows if several publish on the same streams: the plant of its replay server.
//!
//! A message contains its plant's start time, and the replay server announces its own plant's. Another start time belongs to a
//! plant that has restarted, or to another plant: the server is asked, by a fetch, and a plant that it does not know is foreign.

use std::time::{Duration, Instant};

/// The message about messages that are not from the reader's plant.
pub(super) const FOREIGN: &str = "another plant publishes on the same streams: its events are left out";

/// How long the message is shown after the last of them.
const FOREIGN_FOR: Duration = Duration::from_secs(2);

/// If its own plant is silent for this long, the server is asked again, because another plant may have taken its place.
pub(super) const FOREIGN_AGAIN: Duration = Duration::from_secs(3);

/// The start times of plants.
#[derive(Default)]
pub(super) struct Plants {
    /// The own plant's, according to its replay server. Messages of other plants are skipped.
    pub(super) own: Option<u64>,
    /// Another one that was seen since.
    doubted: Option<u64>,
    /// Another plant's on the same streams, which the server does not know.
    pub(super) foreign: Option<u64>,
    /// When the last message of that plant arrived.
    foreign_heard: Option<Instant>,
    /// When the server was asked.
    pub(super) asked: Option<Instant>,
}

impl Plants {
    /// Returns whether a message of a plant that began at `epoch` is another plant's. `heard` is when the own plant last sent its
    /// status.
    pub(super) fn is_foreign(&mut self, epoch: u64, heard: Option<Instant>) -> bool {
        let is_long = |since: Option<Instant>| since.is_none_or(|since| since.elapsed() >= FOREIGN_AGAIN);
        if self.foreign == Some(epoch) && is_long(heard) && is_long(self.asked) {
            self.foreign = None;
        }
        let is_foreign = self.foreign == Some(epoch);
        if is_foreign {
            self.foreign_heard = Some(Instant::now());
        }
        is_foreign
    }

    /// Returns whether the replay server has named another start time.
    pub(super) fn is_other(&self, epoch: u64) -> bool {
        self.own.is_some_and(|own| own != epoch)
    }

    /// Notes a start time that was seen.
    pub(super) fn saw(&mut self, epoch: u64) {
        if self.is_other(epoch) {
            self.doubted = Some(epoch);
        }
    }

    /// Returns the start time that the server is to be asked about.
    pub(super) const fn doubted(&self) -> Option<u64> {
        self.doubted
    }

    /// Processes the server's answer, with its plant's start time if it names one. Returns whether the start time in doubt is
    /// another plant's.
    pub(super) fn answered(&mut self, own: Option<u64>) -> bool {
        self.own = own;
        let Some(doubted) = self.doubted.take() else { return false };
        self.foreign = Some(doubted).filter(|doubted| Some(*doubted) != own);
        self.asked = Some(Instant::now());
        self.foreign.is_some()
    }

    /// Returns the message about another plant, while it publishes.
    pub(super) fn trouble(&self) -> Option<&'static str> {
        let is_heard = self.foreign_heard.is_some_and(|heard| heard.elapsed() < FOREIGN_FOR);
        is_heard.then_some(FOREIGN)
    }
}
