//! Which plant a reader of events follows, where several publish on the same streams: the one of its replay server.
//!
//! A message has its plant's start, and the replay server says its own. Another start than that is a plant that has begun anew, or another plant:
//! the server is asked, by a fetch, and what it does not know is foreign.

use std::time::{Duration, Instant};

/// What a reader of events says of messages that are not its plant's.
pub(super) const FOREIGN: &str = "another plant publishes on the same streams: its events are left out";

/// How long it says so after the last of them.
const FOREIGN_FOR: Duration = Duration::from_secs(2);

/// When its own plant is silent for so long, the server is asked again who is foreign: another plant may have taken its place.
pub(super) const FOREIGN_AGAIN: Duration = Duration::from_secs(3);

/// The starts of plants.
#[derive(Default)]
pub(super) struct Plants {
    /// That of the own one, as its replay server has it. What is of another one is left out.
    pub(super) own: Option<u64>,
    /// Another one that was seen since.
    doubted: Option<u64>,
    /// That of another plant on the same streams: the server does not know it.
    pub(super) foreign: Option<u64>,
    /// When the last message of that plant came.
    foreign_heard: Option<Instant>,
    /// When the server was asked.
    pub(super) asked: Option<Instant>,
}

impl Plants {
    /// Whether a message of a plant that began at `epoch` is another plant's. `heard`: when the own one last sent its status.
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

    /// Whether the replay server has named another start.
    pub(super) fn is_other(&self, epoch: u64) -> bool {
        self.own.is_some_and(|own| own != epoch)
    }

    /// A start was seen.
    pub(super) fn saw(&mut self, epoch: u64) {
        if self.is_other(epoch) {
            self.doubted = Some(epoch);
        }
    }

    /// The start that the server is to be asked about.
    pub(super) const fn doubted(&self) -> Option<u64> {
        self.doubted
    }

    /// The server has answered, and named its plant's start if it names one. Returns whether what was doubted is another plant.
    pub(super) fn answered(&mut self, own: Option<u64>) -> bool {
        self.own = own;
        let Some(doubted) = self.doubted.take() else { return false };
        self.foreign = Some(doubted).filter(|doubted| Some(*doubted) != own);
        self.asked = Some(Instant::now());
        self.foreign.is_some()
    }

    /// What is to be said of another plant, while it publishes.
    pub(super) fn trouble(&self) -> Option<&'static str> {
        let is_heard = self.foreign_heard.is_some_and(|heard| heard.elapsed() < FOREIGN_FOR);
        is_heard.then_some(FOREIGN)
    }
}
