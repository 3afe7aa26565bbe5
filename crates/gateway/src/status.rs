//! A gateway at a glance, and what it can be commanded.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// What a gateway counts, besides its sessions and its translator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counters {
    /// Messages to the venue that its session did not take.
    pub unsent: u64,
    /// Reports of no known order, or that do not fit.
    pub unmatched: u64,
    /// Reports that the venue does not have any more.
    pub missing: u64,
    /// Replies that could not be kept for a client.
    pub unkept: u64,
    /// Clients whose connection was ended because they read too slowly.
    pub slow_clients: u64,
    /// Times that the venue's session ended.
    pub venue_ends: u64,
    /// Requests for missed reports that the venue did not answer in time.
    pub unanswered_requests: u64,
}

/// A FIX client's session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClientStatus {
    /// Its name.
    pub name: String,
    /// Whether it is connected.
    pub is_connected: bool,
    /// Whether it is logged on.
    pub is_logged_on: bool,
    /// The kill switch of this client.
    pub is_halted: bool,
    /// The number of the next message from it.
    pub next_incoming: u64,
    /// The number of the next message to it.
    pub next_outgoing: u64,
    /// Bytes that wait for it.
    pub waiting_bytes: u64,
    /// Working orders.
    pub open_orders: u64,
    /// Messages received since it connected.
    pub received: u64,
    /// Session rejects since it connected.
    pub rejects: u64,
    /// Messages received twice since it connected.
    pub duplicates: u64,
    /// ResendRequests sent since it connected.
    pub resend_requests: u64,
    /// Garbled pieces skipped since it connected.
    pub garbled: u64,
}

/// A histogram's percentiles, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Percentiles {
    /// How many were measured.
    pub count: u64,
    /// The median.
    pub p50_ns: u64,
    /// 99 %.
    pub p99_ns: u64,
    /// 99.9 %.
    pub p99_9_ns: u64,
    /// The longest.
    pub longest_ns: u64,
}

/// How often the gateway refused a message for a reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusals {
    /// As Text (58) says it.
    pub reason: Cow<'static, str>,
    /// How often.
    pub count: u64,
}

/// A gateway at a glance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// The time of day, in UTC nanoseconds.
    pub time_ns: u64,
    /// Whether the venue's session is logged on.
    pub is_venue_logged_on: bool,
    /// Whether orders pass: all reports of the venue are in, and the kill switch is off.
    pub takes_orders: bool,
    /// The kill switch of all clients.
    pub is_halted: bool,
    /// The venue's partitions (App IDs) of which reports are missing: their orders are refused.
    pub behind: Vec<u8>,
    /// Since when there are such, in UTC nanoseconds.
    pub behind_since_ns: u64,
    /// The symbols that a report in doubt has halted, where `halt_on_doubt` is set.
    #[serde(default)]
    pub doubtful: Vec<String>,
    /// Whether there are prices of the market to check orders against; `None`: none are configured.
    pub has_prices: Option<bool>,
    /// What is wrong with the store. The disk takes nothing: then no client and no venue is read, and nothing is sent. Or the store was
    /// removed: then the kill switch is on.
    pub store_error: Option<String>,
    /// Messages that wait for the venue's throttle.
    pub queued: u64,
    /// The clients.
    pub clients: Vec<ClientStatus>,
    /// Working orders of all.
    pub open_orders: u64,
    /// Known orders, ended ones included.
    pub known_orders: u64,
    /// Connections refused or ended before they were a client's.
    pub refused_connections: u64,
    /// Bytes written to the store.
    pub store_bytes: u64,
    /// What the gateway counts.
    pub counters: Counters,
    /// What the translator counts.
    pub translated: Translated,
    /// Messages of clients that the gateway refused, by reason.
    pub refusals: Vec<Refusals>,
    /// From a request's arrival to the venue's first report of it, both at the gateway's socket; up to a second old.
    pub round_trip: Percentiles,
    /// Those of the last whole second.
    pub last_second: Percentiles,
    /// When it ended, in UTC nanoseconds.
    pub last_second_end_ns: u64,
    /// From the end of the wait for sockets to the last byte sent, of each turn that did something; up to a second old.
    pub turn: Percentiles,
}

/// What the translator counts: see [`tapeworks_translate::Counters`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the translator's counters have the texts")]
pub struct Translated {
    pub client_messages: u64,
    pub requests: u64,
    pub refused: u64,
    pub breaches: u64,
    pub possible_resends: u64,
    pub ignored_fields: u64,
    pub venue_messages: u64,
    pub reports: u64,
    pub fills: u64,
    pub repeated_reports: u64,
    pub missing_reports: u64,
    pub unreadable: u64,
    pub unknown_orders: u64,
    pub unexpected: u64,
    pub repeated_executions: u64,
    pub doubtful: u64,
    pub forgotten: u64,
    pub own_cancels: u64,
    pub own_cancels_failed: u64,
    pub doubts: u64,
}

impl From<tapeworks_translate::Counters> for Translated {
    fn from(counters: tapeworks_translate::Counters) -> Self {
        Self {
            client_messages: counters.client_messages,
            requests: counters.requests,
            refused: counters.refused,
            breaches: counters.breaches,
            possible_resends: counters.possible_resends,
            ignored_fields: counters.ignored_fields,
            venue_messages: counters.venue_messages,
            reports: counters.reports,
            fills: counters.fills,
            repeated_reports: counters.repeated_reports,
            missing_reports: counters.missing_reports,
            unreadable: counters.unreadable,
            unknown_orders: counters.unknown_orders,
            unexpected: counters.unexpected,
            repeated_executions: counters.repeated_executions,
            doubtful: counters.doubtful,
            forgotten: counters.forgotten,
            own_cancels: counters.own_cancels,
            own_cancels_failed: counters.own_cancels_failed,
            doubts: counters.doubts,
        }
    }
}

/// An order, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderStatus {
    /// Whose it is.
    pub client: String,
    /// ClOrdID (11).
    pub id: String,
    /// The venue's id; empty: not known yet.
    pub order_id: String,
    /// Symbol (55).
    pub symbol: String,
    /// Side (54), in words.
    pub side: String,
    /// OrdStatus (39), in words.
    pub status: String,
    /// OrderQty (38).
    pub quantity: u32,
    /// LeavesQty (151).
    pub leaves: u32,
    /// CumQty (14).
    pub filled: u32,
    /// Price (44) in 1e-8; 0: none.
    pub price_e8: i64,
    /// AvgPx (6) in 1e-8.
    pub average_e8: i64,
    /// Requests without an answer.
    pub pending: u32,
    /// A report of it was in doubt, or could not be read.
    #[serde(default)]
    pub is_in_doubt: bool,
}

/// Orders, as many as the request allows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Orders {
    /// How many there are.
    pub total: u64,
    /// Those that fit, by client and ClOrdID.
    pub orders: Vec<OrderStatus>,
}
