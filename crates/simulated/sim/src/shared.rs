//! State shared by the processes of a run and its conductor.

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

/// Like [`locked`], but returns `None` if the mutex is locked.
fn try_locked<T>(shared: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match shared.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// State shared by the processes and the conductor. It outlives every process.
pub(crate) struct Shared {
    pub(crate) plan: Plan,
    pub(crate) oracle: Mutex<Oracle>,
    /// The status of the running plant.
    pub(crate) status: Mutex<Option<Arc<Mutex<Status>>>>,
    /// Requests to the processes to end.
    pub(crate) stop_venues: AtomicBool,
    pub(crate) stop_plant: AtomicBool,
    pub(crate) stop_clients: AtomicBool,
    /// The plant has opened its journal.
    pub(crate) is_running: AtomicBool,
    /// The plant has replayed its journal.
    pub(crate) has_replayed: AtomicBool,
    /// The day and its journal have ended.
    pub(crate) is_over: AtomicBool,
    pub(crate) starts: AtomicU64,
    /// Starts that failed.
    pub(crate) refused: AtomicU64,
    pub(crate) events: AtomicU64,
    /// Published events about orders of instruments with a name, for which clients get records.
    pub(crate) of_orders: AtomicU64,
    /// The venues' final counts.
    pub(crate) venues: Mutex<Option<Report>>,
    /// What clients have read.
    pub(crate) sessions: Mutex<Vec<Session>>,
    /// What the plant sent to its multicast group, and what receivers received.
    pub(crate) sent: Mutex<Sent>,
    pub(crate) receptions: Mutex<Vec<Reception>>,
    pub(crate) reached: Mutex<Reached>,
    /// The recorder of the timeline, if there is one.
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

    /// Adds a note to the timeline.
    pub(crate) fn record(&self, note: impl FnOnce(&Recorder)) {
        if let Some(recorder) = &self.recorder {
            note(recorder);
        }
    }

    /// Shows the timeline the current state. This never waits: anything locked by a thread is omitted.
    pub(crate) fn sample(&self, now_ns: u64) {
        let handle = try_locked(&self.status).and_then(|status| status.clone());
        let status = handle.as_ref().map(|handle| try_locked(handle));
        let oracle = try_locked(&self.oracle);
        let seen = Seen {
            // `None` if no plant has started.
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
