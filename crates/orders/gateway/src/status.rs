//! The state of a gateway at a glance.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

pub use tapeworks_translate::Counters as Translated;

/// Counters of the gateway, besides those of its sessions and its translator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counters {
    /// Messages to the venue that its session refused or did not send.
    pub unsent: u64,
    /// Reports that match no known order or do not fit its state.
    pub unmatched: u64,
    /// Reports that the venue no longer has.
    pub missing: u64,
    /// Replies that could not be stored for a client.
    pub unkept: u64,
    /// Times that a client's connection was ended because it read too slowly.
    pub slow_clients: u64,
    /// Times that the session with the venue ended.
    pub venue_ends: u64,
    /// Requests for missed reports that the venue did not answer in time.
    pub unanswered_requests: u64,
}

/// The state of a FIX client's session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClientStatus {
    /// The client's name.
    pub name: String,
    /// Whether the client is connected.
    pub is_connected: bool,
    /// Whether the client is logged on.
    pub is_logged_on: bool,
    /// Whether the kill switch for this client is on.
    pub is_halted: bool,
    /// The sequence number of the next message from the client.
    pub next_incoming: u64,
    /// The sequence number of the next message to the client.
    pub next_outgoing: u64,
    /// Bytes that wait for the client.
    pub waiting_bytes: u64,
    /// Working orders.
    pub open_orders: u64,
    /// Messages received since it connected.
    pub received: u64,
    /// Session rejects since it connected.
    pub rejects: u64,
    /// Duplicate messages received since it connected.
    pub duplicates: u64,
    /// ResendRequests sent since it connected.
    pub resend_requests: u64,
    /// Garbled pieces skipped since it connected.
    pub garbled: u64,
}

/// Percentiles of a histogram, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Percentiles {
    /// The number of measurements.
    pub count: u64,
    /// The median.
    pub p50_ns: u64,
    /// The 99th percentile.
    pub p99_ns: u64,
    /// The 99.9th percentile.
    pub p99_9_ns: u64,
    /// The longest.
    pub longest_ns: u64,
}

/// How often the gateway refused a message for one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusals {
    /// The reason, as in Text (58).
    pub reason: Cow<'static, str>,
    /// The number of messages.
    pub count: u64,
}

/// The state of a gateway at a glance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// The time of day, in UTC nanoseconds.
    pub time_ns: u64,
    /// Whether the session with the venue is logged on.
    pub is_venue_logged_on: bool,
    /// Whether orders pass: all reports of the venue have arrived, and the kill switch is off.
    pub takes_orders: bool,
    /// Whether the kill switch for all clients is on.
    pub is_halted: bool,
    /// The venue's partitions (App IDs) with missing reports; their orders are refused.
    pub behind: Vec<u8>,
    /// Since when any partition has missing reports, in UTC nanoseconds.
    pub behind_since_ns: u64,
    /// The symbols that an in-doubt report has halted, if `halt_on_doubt` is set.
    #[serde(default)]
    pub doubtful: Vec<String>,
    /// Whether there are market prices to check orders against; `None`: none are configured.
    pub has_prices: Option<bool>,
    /// The store's error. Either the disk refuses writes: then neither clients nor the venue are read, and nothing is sent. Or the
    /// store was removed: then the kill switch is on.
    pub store_error: Option<String>,
    /// Messages that wait for the venue's throttle.
    pub queued: u64,
    /// The clients.
    pub clients: Vec<ClientStatus>,
    /// Working orders of all clients.
    pub open_orders: u64,
    /// Known orders, including ended ones.
    pub known_orders: u64,
    /// Connections refused, or ended before their client was identified.
    pub refused_connections: u64,
    /// Bytes written to the store.
    pub store_bytes: u64,
    /// Counters of the gateway.
    pub counters: Counters,
    /// Counters of the translator.
    pub translated: Translated,
    /// Messages from clients that the gateway refused, by reason.
    pub refusals: Vec<Refusals>,
    /// Round trips: from a request's arrival to the venue's first report of it, both at the gateway's socket. Up to a second old.
    pub round_trip: Percentiles,
    /// Round trips of the last full second.
    pub last_second: Percentiles,
    /// When that second ended, in UTC nanoseconds.
    pub last_second_end_ns: u64,
    /// Durations of turns that did something: from the end of the wait for sockets to the last byte sent. Up to a second old.
    pub turn: Percentiles,
}

/// An order, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderStatus {
    /// The name of the order's client.
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
    /// The number of unanswered requests.
    pub pending: u32,
    /// Whether a report of the order was in doubt or unreadable.
    #[serde(default)]
    pub is_in_doubt: bool,
}

/// A list of orders, as many as the request allows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Orders {
    /// The total number of orders.
    pub total: u64,
    /// The orders that fit, sorted by client and ClOrdID.
    pub orders: Vec<OrderStatus>,
}
