//! State shared by the output's thread and others: the status, the phase, the failure.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::KafkaStatus;
use super::trouble::Trouble;
use crate::text::one_line;

/// Maximum number of characters shown of an error.
const MOST_CHARACTERS: usize = 500;

/// Why the output ended before it was stopped. Unreachable brokers do not end it.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum KafkaFailure {
    /// Another producer has the same id.
    #[error(
        "Kafka takes no more records of this plant: another one uses the id '{id}' of [kafka], and the brokers say: {reason}"
    )]
    Fenced {
        /// The id.
        id: String,
        /// The brokers' error.
        reason: String,
    },
    /// The journal ends before the position.
    #[error(
        "the journal ends at event {journal}, and Kafka has the records of those before event {position}: it is another journal, or its \
         end was lost; see \"what to do when\" in the page on Kafka"
    )]
    ShortJournal {
        /// The number of events in the journal.
        journal: u64,
        /// The position in Kafka.
        position: u64,
    },
    /// The journal's event before the position differs.
    #[error(
        "event {event} of the journal is not the one whose records Kafka has: it is another journal, its end was lost, or the \
         configuration makes other events of it; see \"what to do when\" in the page on Kafka"
    )]
    OtherJournal {
        /// The event.
        event: u64,
    },
    /// The thread panicked.
    #[error("the thread for Kafka panicked")]
    Panicked,
}

/// Whether records are still sent.
#[derive(Clone, Copy, Default, Debug)]
pub(super) enum Phase {
    /// More records follow.
    #[default]
    Running,
    /// The journal is complete: its records may be sent until this time.
    Over(Instant),
    /// Nothing more is sent.
    Stopped,
}

/// State shared by the output's thread and others.
#[derive(Default, Debug)]
pub(super) struct Shared {
    pub(super) status: Arc<Mutex<KafkaStatus>>,
    phase: Mutex<Phase>,
    changed: Condvar,
}

impl Shared {
    pub(super) fn new(status: Arc<Mutex<KafkaStatus>>) -> Self {
        Self { status, ..Self::default() }
    }

    /// Updates the status.
    pub(super) fn progress(&self, change: impl FnOnce(&mut KafkaStatus)) {
        change(&mut self.status.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Reports that the output waits for the brokers.
    pub(super) fn waits(&self, why: &Trouble) {
        self.progress(|status| {
            status.is_connected = false;
            status.error = Some(one_line(&why.to_string(), MOST_CHARACTERS));
        });
    }

    fn phase(&self) -> Phase {
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the journal is complete.
    pub(super) fn is_ending(&self) -> bool {
        !matches!(self.phase(), Phase::Running)
    }

    /// Returns whether nothing more is to be sent.
    pub(super) fn is_over(&self) -> bool {
        match self.phase() {
            Phase::Running => false,
            Phase::Over(until) => Instant::now() >= until,
            Phase::Stopped => true,
        }
    }

    /// Waits for `most`, or until the phase changes.
    pub(super) fn pause(&self, most: Duration) {
        let phase = self.phase.lock().unwrap_or_else(PoisonError::into_inner);
        match *phase {
            Phase::Stopped => {}
            Phase::Over(until) => {
                let left = until.saturating_duration_since(Instant::now());
                drop(self.changed.wait_timeout(phase, most.min(left)));
            }
            Phase::Running => drop(self.changed.wait_timeout(phase, most)),
        }
    }

    pub(super) fn change(&self, to: Phase) {
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner) = to;
        self.changed.notify_all();
    }
}
