//! Deliberately wrong snapshots: a receiver must believe only what its lines confirm.

use tapeworks_random::Random;
use tapeworks_session::snapshot::Image;

use crate::answers::other;
use crate::faults;
use crate::report::{Counters, add};

/// The faults of a snapshot server, each per million snapshots. A snapshot has at most one fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct SnapshotFaults {
    /// The end number is ahead of the lines, and the snapshot lacks the messages in between.
    pub ahead_per_million: u32,
    /// The snapshot names another session.
    pub other_session_per_million: u32,
    /// The last message has an unknown type.
    pub unreadable_per_million: u32,
    /// The server accepts the request but sends only heartbeats.
    pub silent_per_million: u32,
    /// The messages repeat forever, and the end never comes.
    #[serde(default)]
    pub endless_per_million: u32,
}

/// Maximum distance of a wrong end number ahead of the lines.
const MOST_AHEAD: u32 = 1_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wrong {
    Ahead,
    OtherSession,
    Unreadable,
    Silent,
    Endless,
}

impl SnapshotFaults {
    const fn chances(&self) -> [(u32, Wrong); 5] {
        [
            (self.ahead_per_million, Wrong::Ahead),
            (self.other_session_per_million, Wrong::OtherSession),
            (self.unreadable_per_million, Wrong::Unreadable),
            (self.silent_per_million, Wrong::Silent),
            (self.endless_per_million, Wrong::Endless),
        ]
    }

    /// Returns the number of wrong snapshots per million.
    pub(crate) fn sum(&self) -> u64 {
        faults::sum(&self.chances())
    }
}

/// Spoils the snapshots of one venue.
#[derive(Debug)]
pub(crate) struct Spoiler {
    faults: SnapshotFaults,
    random: Random,
}

impl Spoiler {
    pub(crate) fn new(faults: SnapshotFaults, seed: u64) -> Self {
        Self { faults, random: Random::new(seed) }
    }

    /// Spoils a snapshot that has no end yet; returns `None` if nothing is to be sent. `counters` are the venue's.
    pub(crate) fn spoil(&mut self, mut image: Image, counters: &Counters) -> Option<Image> {
        let Some(fault) = faults::draw(&self.faults.chances(), &mut self.random) else { return Some(image) };
        add(&counters.wrong_snapshots, 1);
        match fault {
            Wrong::Ahead => image.next += 1 + u64::from(self.random.below(MOST_AHEAD)),
            Wrong::OtherSession => {
                (image.session, image.is_for_any_session) = (other(image.session), true);
            }
            // A length and a type that exist in no protocol, or only such a type.
            Wrong::Unreadable => {
                image.put(&[12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], |_| {})
            }
            Wrong::Silent => return None,
            Wrong::Endless => image.is_endless = true,
        }
        Some(image)
    }
}
