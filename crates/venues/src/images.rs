//! Snapshots that are wrong on purpose: a receiver must believe only what its lines confirm.

use tapeworks_exchange::random::Random;
use tapeworks_session::snapshot::Image;

use crate::answers::other;
use crate::faults;
use crate::report::{Counters, add};

/// What a snapshot server does wrong. Each number is of a million snapshots; a snapshot has one fault at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct SnapshotFaults {
    /// The end number is higher than the lines are, and the snapshot lacks what they send meanwhile.
    pub ahead_per_million: u32,
    /// The snapshot of another session, by its name.
    pub other_session_per_million: u32,
    /// The last message has an unknown type.
    pub unreadable_per_million: u32,
    /// The server accepts the request and sends nothing but heartbeats.
    pub silent_per_million: u32,
    /// The messages come again and again, and the end never.
    #[serde(default)]
    pub endless_per_million: u32,
}

/// How far ahead of the lines a wrong end number is at most.
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

    /// Wrong snapshots in a million.
    pub(crate) fn sum(&self) -> u64 {
        faults::sum(&self.chances())
    }
}

/// Makes the snapshots of one venue wrong.
#[derive(Debug)]
pub(crate) struct Spoiler {
    faults: SnapshotFaults,
    random: Random,
}

impl Spoiler {
    pub(crate) fn new(faults: SnapshotFaults, seed: u64) -> Self {
        Self { faults, random: Random::new(seed) }
    }

    /// Changes a snapshot that has no end yet, or returns `None` if nothing is sent. `counters` are the venue's.
    pub(crate) fn spoil(&mut self, mut image: Image, counters: &Counters) -> Option<Image> {
        let Some(fault) = faults::draw(&self.faults.chances(), &mut self.random) else { return Some(image) };
        add(&counters.wrong_snapshots, 1);
        match fault {
            Wrong::Ahead => image.next += 1 + u64::from(self.random.below(MOST_AHEAD)),
            Wrong::OtherSession => {
                (image.session, image.is_for_any_session) = (other(image.session), true);
            }
            // A length and a type that no protocol has, or a type alone.
            Wrong::Unreadable => {
                image.put(&[12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], |_| {})
            }
            Wrong::Silent => return None,
            Wrong::Endless => image.is_endless = true,
        }
        Some(image)
    }
}
