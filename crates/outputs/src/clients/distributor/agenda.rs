//! The requests of one client, in their order.

use std::collections::VecDeque;

use tapeworks_store::Schema;

use super::super::control::{Refusal, Subscription};
use super::interest::Chosen;

/// A request that waits.
#[derive(Debug)]
pub(super) enum Step {
    /// Records are wanted.
    Subscribe(Subscription),
    /// Records are not wanted any more.
    Unsubscribe(Subscription),
    /// The subscriptions before the start of the stream have taken effect: their replay may begin.
    Replay,
}

/// A snapshot in progress.
#[derive(Debug)]
pub(super) struct Making {
    pub(super) schema: Schema,
    pub(super) chosen: Chosen,
    /// The client names instruments by their numbers.
    pub(super) by_number: bool,
    /// Where each remaining part ends: the number after its last instrument.
    pub(super) ends: VecDeque<u32>,
    /// The first instrument of the next part.
    pub(super) next: u32,
    /// Work of each part besides its records.
    pub(super) reading: usize,
    /// Whether no more lines of the subscription follow.
    pub(super) is_last: bool,
}

/// The requests of one client, in their order.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    pub(super) making: Option<Making>,
    pub(super) steps: VecDeque<Step>,
    /// Snapshots among the steps.
    pub(super) snapshots: usize,
}

impl Step {
    fn has_snapshot(&self) -> bool {
        matches!(self, Self::Subscribe(subscription) if subscription.has_snapshot)
    }
}

impl Agenda {
    /// Takes a request.
    ///
    /// # Errors
    /// [`Refusal::TooManySnapshots`] when `limit` snapshots wait.
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

    /// Whether the next step puts records of a snapshot into the queue.
    pub(super) fn needs_room(&self) -> bool {
        self.is_making() || self.steps.front().is_some_and(Step::has_snapshot)
    }

    /// Requests that wait, the snapshot in progress included.
    pub(super) fn len(&self) -> usize {
        self.steps.len() + usize::from(self.is_making())
    }
}
