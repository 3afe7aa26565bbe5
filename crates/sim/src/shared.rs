//! What the processes of a run and its conductor share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use tapeworks_plant::Status;
use tapeworks_venues::Report;

use crate::coverage::Reached;
use crate::group::{Reception, Sent};
use crate::kernel::note;
use crate::oracle::Oracle;
use crate::plan::Plan;
use crate::recorder::{Recorder, Seen};
use crate::session::Session;

pub(crate) fn locked<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As [`locked`], if nothing has locked it.
fn try_locked<T>(shared: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match shared.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// What the processes and the conductor share. It outlives every process.
pub(crate) struct Shared {
    pub(crate) plan: Plan,
    pub(crate) oracle: Mutex<Oracle>,
    /// The status of the running plant.
    pub(crate) status: Mutex<Option<Arc<Mutex<Status>>>>,
    /// The processes end.
    pub(crate) stop_venues: AtomicBool,
    pub(crate) stop_plant: AtomicBool,
    pub(crate) stop_clients: AtomicBool,
    /// The plant has its journal.
    pub(crate) is_running: AtomicBool,
    /// It has replayed the journal.
    pub(crate) has_replayed: AtomicBool,
    /// The day is over, and so is its journal.
    pub(crate) is_over: AtomicBool,
    pub(crate) starts: AtomicU64,
    /// Starts that failed.
    pub(crate) refused: AtomicU64,
    pub(crate) events: AtomicU64,
    /// Of them, those of orders of an instrument with a name: clients get records of them.
    pub(crate) of_orders: AtomicU64,
    /// What the venues have counted, at their end.
    pub(crate) venues: Mutex<Option<Report>>,
    /// What clients read.
    pub(crate) sessions: Mutex<Vec<Session>>,
    /// What the plant sent to its multicast group, and what receivers got.
    pub(crate) sent: Mutex<Sent>,
    pub(crate) receptions: Mutex<Vec<Reception>>,
    pub(crate) reached: Mutex<Reached>,
    /// What the timeline gets, if there is one.
    pub(crate) recorder: Option<Recorder>,
}

impl Shared {
    pub(crate) fn violation(&self, text: String) {
        note(|| format!("VIOLATION {text}"));
        locked(&self.oracle).violation(text);
    }

    pub(crate) fn status(&self) -> Option<Status> {
        let handle = locked(&self.status).clone()?;
        let status = locked(&handle).clone();
        Some(status)
    }

    pub(crate) fn reaches(&self, fact: &str) {
        locked(&self.reached).note(fact);
    }

    /// Notes something for the timeline.
    pub(crate) fn record(&self, note: impl FnOnce(&Recorder)) {
        if let Some(recorder) = &self.recorder {
            note(recorder);
        }
    }

    /// Shows the timeline what is so now. Nothing waits here: what a thread has locked is left out.
    pub(crate) fn sample(&self, now_ns: u64) {
        let handle = try_locked(&self.status).and_then(|status| status.clone());
        let status = handle.as_ref().map(|handle| try_locked(handle));
        let oracle = try_locked(&self.oracle);
        let seen = Seen {
            // Without a plant that has started there is none.
            status: status.as_ref().map(|status| status.as_deref()),
            violations: oracle.as_ref().map(|oracle| oracle.violations()).unwrap_or_default(),
            begun: oracle
                .iter()
                .flat_map(|oracle| (0..self.plan.venues.len()).map(|channel| oracle.begun(channel)))
                .collect(),
            events: self.events.load(Ordering::Relaxed),
        };
        self.record(|recorder| recorder.look(now_ns, &seen));
    }
}
