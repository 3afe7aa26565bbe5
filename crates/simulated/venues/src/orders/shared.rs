//! The state shared by an exchange's thread and its handle: counters, and the flags that end it.

use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};

use tapeworks_generator::live::LiveVenueReport;
use tapeworks_matching::orders::{FaultCounters, LedgerEntry, OrderCounters, OrderExchange};
use tapeworks_order_session::native::ServerCounters;

/// Counters of an exchange's connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Connections accepted.
    pub connections: u64,
    /// Connections that are open.
    pub open: u64,
    /// Connections that are logged on.
    pub logged_on: u64,
    /// Connections that ended.
    pub ended: u64,
    /// Of the ended connections, those whose client had more output pending than the limit allows.
    pub too_slow: u64,
    /// Of the ended connections, those whose client was silent, read nothing, or did not log on in time.
    pub timed_out: u64,
    /// Connections that were refused, or closed before their logon, because there were too many.
    pub refused: u64,
    /// Times that the system could not accept a connection.
    pub not_accepted: u64,
}

/// The progress of an exchange.
#[derive(Debug, Clone, Default)]
pub(super) struct Progress {
    pub(super) connections: Counters,
    pub(super) orders: OrderCounters,
    pub(super) sessions: ServerCounters,
    pub(super) faults: FaultCounters,
    pub(super) working: u64,
    pub(super) open_gaps: Vec<u8>,
    /// Number of days since the start of the process, including the first.
    pub(super) days: u64,
    /// The line's counters, and the packets that the kernel refused, by line.
    pub(super) line: Option<(LiveVenueReport, Vec<u64>)>,
}

/// The state that the thread shares with the handle.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// Asks the exchange to end.
    pub(super) stop: AtomicBool,
    /// Asks the exchange to end the day.
    pub(super) end_day: AtomicBool,
    /// Asks the line's servers to end.
    pub(super) stop_servers: AtomicBool,
    progress: Mutex<Progress>,
    /// Entries that have not been taken yet.
    ledger: Mutex<Vec<LedgerEntry>>,
}

impl Shared {
    pub(super) fn set(
        &self,
        exchange: &OrderExchange,
        connections: Counters,
        days: u64,
        line: Option<(LiveVenueReport, Vec<u64>)>,
    ) {
        *self.progress.lock().unwrap_or_else(PoisonError::into_inner) = Progress {
            connections,
            orders: exchange.counters(),
            sessions: exchange.native_sessions(),
            faults: exchange.faults(),
            working: exchange.engine().orders() as u64,
            open_gaps: exchange.open_gaps(),
            days,
            line,
        };
    }

    pub(super) fn enter(&self, entries: impl Iterator<Item = LedgerEntry>) {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner).extend(entries);
    }

    pub(super) fn take_ledger(&self) -> Vec<LedgerEntry> {
        std::mem::take(&mut *self.ledger.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn progress(&self) -> Progress {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
