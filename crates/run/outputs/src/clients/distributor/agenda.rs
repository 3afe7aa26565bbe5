//! The pending requests of one client, in order.

use std::collections::VecDeque;

use tapeworks_store::Schema;

use super::super::control::{Refusal, Subscription};
use super::interest::Chosen;

/// A pending request.
#[derive(Debug)]
pub(super) enum Step {
    /// Adds a subscription.
    Subscribe(Subscription),
    /// Ends a subscription.
    Unsubscribe(Subscription),
    /// Starts the replay: all subscriptions from before the start of the stream have taken effect.
    Replay,
}

/// A snapshot in progress.
#[derive(Debug)]
pub(super) struct Making {
    pub(super) schema: Schema,
    pub(super) chosen: Chosen,
    /// Whether the client identifies instruments by number.
    pub(super) by_number: bool,
    /// The end of each remaining part: the number after its last instrument.
    pub(super) ends: VecDeque<u32>,
    /// The first instrument of the next part.
    pub(super) next: u32,
    /// Work of each part besides its records.
    pub(super) reading: usize,
    /// Whether this is the last line of the subscription.
    pub(super) is_last: bool,
}

/// The pending requests of one client, in order.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    pub(super) making: Option<Making>,
    pub(super) steps: VecDeque<Step>,
    /// Number of snapshots among the steps.
    pub(super) snapshots: usize,
}

impl Step {
    fn has_snapshot(&self) -> bool {
        matches!(self, Self::Subscribe(subscription) if subscription.has_snapshot)
    }
}

impl Agenda {
    /// Adds a request.
    ///
    /// # Errors
    /// [`Refusal::TooManySnapshots`] if `limit` snapshots are already waiting.
    pub(super) fn push(&mut self, step: Step, limit: usize) -> Result<(), Refusal> {
        if step.has_snapshot() {
            if self.snapshots >= limit {
                return Err(Refusal::TooManySnapshots { limit });
            }
            self.snapshots += 1;
        }
        self.steps.push_back(step);
        Ok(())
    }

    pub(super) fn pop(&mut self) -> Option<Step> {
        let step = self.steps.pop_front()?;
        if step.has_snapshot() {
            self.snapshots -= 1;
        }
        Some(step)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.making.is_none() && self.steps.is_empty()
    }

    pub(super) const fn is_making(&self) -> bool {
        self.making.is_some()
    }

    /// Returns whether the next step queues records of a snapshot.
    pub(super) fn needs_room(&self) -> bool {
        self.is_making() || self.steps.front().is_some_and(Step::has_snapshot)
    }

    /// Returns the number of pending requests, including the snapshot in progress.
    pub(super) fn len(&self) -> usize {
        self.steps.len() + usize::from(self.is_making())
    }
}
