//! What the processes of a run and its conductor share.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tapeworks_plant::Status;

use crate::coverage::Reached;
use crate::group::{Reception, Sent};
use crate::kernel::note;
use crate::oracle::Oracle;
use crate::plan::Plan;
use crate::session::Session;

pub(crate) fn locked<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
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
    pub(crate) starts: AtomicU64,
    /// Starts that failed.
    pub(crate) refused: AtomicU64,
    pub(crate) events: AtomicU64,
    /// Of them, those of orders of an instrument with a name: clients get records of them.
    pub(crate) of_orders: AtomicU64,
    /// What clients read.
    pub(crate) sessions: Mutex<Vec<Session>>,
    /// What the plant sent to its multicast group, and what receivers got.
    pub(crate) sent: Mutex<Sent>,
    pub(crate) receptions: Mutex<Vec<Reception>>,
    pub(crate) reached: Mutex<Reached>,
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
}
