//! The counters of an exchange, for people and programs.

use serde_json::{Value, json};
use tapeworks_matching::orders::{
    FaultCounters, LedgerEntry, LedgerEvent, OrderCounters, OrderOptions, OrderUser,
};
use tapeworks_order_session::native::ServerCounters;

use super::shared::{Counters as ConnectionCounters, Progress};
use crate::report::{Counters, VenueReport};

/// Counters of an exchange.
///
/// Those of orders, sessions, and faults start at the last day that began without orders; a restart from a store counts them again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrderReport {
    /// Its name.
    pub name: String,
    /// Connections since the start of the process.
    pub connections: ConnectionCounters,
    /// Orders and trades.
    pub orders: OrderCounters,
    /// Number of orders working now.
    pub working: u64,
    /// App IDs for which a fault currently withholds a report from a user that has received a later one.
    pub open_gaps: Vec<u8>,
    /// Number of days since the start of the process, including the first.
    pub days: u64,
    /// The native sessions.
    pub sessions: ServerCounters,
    /// Deliberate faults.
    pub faults: FaultCounters,
    /// The market-data line and its servers, as for the other venues.
    pub line: Option<VenueReport>,
}

impl OrderReport {
    pub(super) fn new(name: String, progress: Progress, servers: Option<&Counters>) -> Self {
        let line = progress.line.map(|(live, refused_by_kernel)| VenueReport {
            name: name.clone(),
            live,
            refused_by_kernel,
            retransmission: servers.map(Counters::retransmission).unwrap_or_default(),
            snapshot: servers.map(Counters::snapshot).unwrap_or_default(),
        });
        Self {
            name,
            connections: progress.connections,
            orders: progress.orders,
            working: progress.working,
            open_gaps: progress.open_gaps,
            days: progress.days,
            sessions: progress.sessions,
            faults: progress.faults,
            line,
        }
    }

    /// Returns the number of client messages so far.
    #[must_use]
    pub const fn messages(&self) -> u64 {
        let orders = &self.orders;
        orders.new_orders + orders.quotes + orders.cancels + orders.replaces + orders.mass_cancels
    }

    /// Returns the report as JSON.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let (connections, orders, sessions, faults) =
            (&self.connections, &self.orders, &self.sessions, &self.faults);
        json!({
            "name": self.name,
            "days": self.days,
            "connections": {
                "accepted": connections.connections,
                "open": connections.open,
                "logged_on": connections.logged_on,
                "ended": connections.ended,
                "too_slow": connections.too_slow,
                "timed_out": connections.timed_out,
                "refused": connections.refused,
                "not_accepted": connections.not_accepted,
            },
            "orders": {
                "working": self.working,
                "new": orders.new_orders,
                "quotes": orders.quotes,
                "cancels": orders.cancels,
                "replaces": orders.replaces,
                "mass_cancels": orders.mass_cancels,
                "accepted": orders.accepted,
                "rejected": orders.rejected,
                "cancel_rejects": orders.cancel_rejects,
                "business_rejects": orders.business_rejects,
                "stale_references": orders.stale_references,
                "unreadable": orders.unreadable,
                "trades": orders.trades,
                "busted": orders.busted,
                "ended": orders.ended,
            },
            "sessions": {
                "logons": sessions.logons,
                "logons_rejected": sessions.logons_rejected,
                "messages": sessions.messages,
                "rejects": sessions.rejects,
                "throttled": sessions.throttled,
                "reports": sessions.reports,
                "recovered": sessions.recovered,
                "requests": sessions.requests,
                "requests_refused": sessions.requests_refused,
                "requests_unanswered": sessions.requests_unanswered,
                "open_gaps": self.open_gaps,
                "not_kept": sessions.not_kept,
                "too_slow": sessions.too_slow,
            },
            "faults": {
                "rejects": faults.rejects,
                "delays": faults.delays,
                "gaps": faults.gaps,
                "garbage": faults.garbage,
                "drops": faults.drops,
                "halts": faults.halts,
                "repeats": faults.repeats,
                "inventions": faults.inventions,
                "withheld": faults.withheld,
                "reorders": faults.reorders,
                "garbled": faults.garbled,
            },
            "line": self.line.as_ref().map(VenueReport::to_json),
        })
    }
}

/// Returns an entry of an exchange's ledger as JSON.
#[must_use]
pub fn ledger_json(exchange: &str, options: &OrderOptions, entry: &LedgerEntry) -> Value {
    let user = match entry.user {
        OrderUser::Native(user) => options.native_users.get(user).map(|user| &user.credentials.user),
        OrderUser::Ouch(user) => options.ouch_users.get(user).map(|user| &user.credentials.user),
    };
    let mut object = json!({
        "exchange": exchange,
        "user": user,
        "order_id": entry.order_id(),
        "time_ns": entry.time_ns,
    });
    let event = match entry.event {
        LedgerEvent::Accepted { quantity } => json!({ "event": "accepted", "quantity": quantity }),
        LedgerEvent::Filled { match_number, price_e8, quantity, leaves } => json!({
            "event": "filled",
            "match_number": match_number,
            "price_e8": price_e8,
            "quantity": quantity,
            "leaves": leaves,
        }),
        LedgerEvent::Replaced { leaves } => json!({ "event": "replaced", "leaves": leaves }),
        LedgerEvent::Ended { left } => json!({ "event": "ended", "left": left }),
        LedgerEvent::Busted { match_number } => json!({ "event": "busted", "match_number": match_number }),
    };
    if let (Some(object), Value::Object(event)) = (object.as_object_mut(), event) {
        object.extend(event);
    }
    object
}
