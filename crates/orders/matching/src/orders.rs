//! A simulated venue that accepts orders: native and OUCH gateways over one matching engine, without sockets or clocks.
//!
//! The host opens a connection of a [`Gate`] for each TCP connection that it accepts, moves the bytes
//! ([`OrderExchange::receive`], [`OrderExchange::output`], [`OrderExchange::sent`]), calls [`OrderExchange::tick`] at
//! [`OrderExchange::due_ns`], and closes connections that are [`OrderExchange::over`]. Trades and changes of the displayed book
//! are available from [`OrderExchange::next_market`], for the `ItchLine` of `tapeworks-generator`.
//!
//! Instruments belong to partitions: a native report carries its instrument's partition as App ID, and a sequence number per user
//! and App ID. Reports for users that are not connected are kept and can be recovered by the rules of the session.
//! [`OrderFaults`] make the venue misbehave. The same calls produce the same bytes.
//!
//! # Cost
//! A message is decoded in place and costs one engine call and a hash lookup per order that it names. Each report is copied three
//! times: into the queue, into the user's store, and into the connection.

mod faults;
mod ids;
mod ledger;
mod misreports;
mod native;
mod ouch;
mod register;
mod working;

use std::collections::HashSet;
use std::fmt;

use misreports::Misreports;
use register::{Entry, OrderRegister, Recipient};
use tapeworks_order_session::native::{
    Channel, ConnectionId, End, Input, Server, ServerCounters, ServerSettings, User, UserId,
};
use tapeworks_order_session::soupbintcp::{SoupAcceptor, SoupEnd};
use tapeworks_session::Credentials;
use tapeworks_wire::Ascii;
use tapeworks_wire::millennium::native::AppStatus;
use tapeworks_wire::nasdaq::ouch50::inbound::AccountQuery;
use tapeworks_wire::nasdaq::ouch50::outbound::EventCode;
use thiserror::Error;

pub use faults::{FaultCounters, OrderFaults, PartitionHalt};
pub use ledger::{LedgerEntry, LedgerEvent, OrderUser};
pub use ouch::MARKET_PRICE;

use crate::engine::{BookChange, EndReason, MatchingEngine, SelfTrade, SymbolIndex};

/// Nanoseconds in a second.
const SECOND_NS: u64 = 1_000_000_000;

/// Reject codes of orders, cancels, and amendments. They are the simulated exchange's own; check a real venue's list.
pub mod order_reject_code {
    /// Accepted.
    pub const NONE: i32 = 0;
    /// The instrument is not traded here.
    pub const UNKNOWN_INSTRUMENT: i32 = 101;
    /// The instrument is halted.
    pub const HALTED: i32 = 102;
    /// The partition is halted.
    pub const PARTITION_HALTED: i32 = 103;
    /// The quantity is not positive, or too high.
    pub const QUANTITY: i32 = 104;
    /// A price is not a multiple of the tick, or is outside the instrument's limits.
    pub const PRICE: i32 = 105;
    /// The display quantity is negative or exceeds the quantity.
    pub const DISPLAY_QUANTITY: i32 = 106;
    /// The minimum quantity does not fit the order.
    pub const MINIMUM_QUANTITY: i32 = 107;
    /// The time in force is not supported, does not fit the order, or has expired.
    pub const TIME_IN_FORCE: i32 = 108;
    /// The order type is not supported.
    pub const ORDER_TYPE: i32 = 109;
    /// The side is invalid.
    pub const SIDE: i32 = 110;
    /// A working order of the user already has this client order ID.
    pub const DUPLICATE: i32 = 111;
    /// No such order of the user is working.
    pub const UNKNOWN_ORDER: i32 = 112;
    /// The maximum number of orders is working.
    pub const NO_ROOM: i32 = 113;
    /// The message is not supported.
    pub const NOT_SUPPORTED: i32 = 114;
    /// A deliberate fault.
    pub const BY_FAULT: i32 = 115;
}

/// Restatement Reason of a stop order elected by a trade.
pub const RESTATED_ELECTED: u8 = 1;

/// Restatement Reason of an order that lost quantity, without a trade, to another order of its owner.
pub const RESTATED_SELF_TRADE: u8 = 2;

/// An instrument that the venue trades.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instrument {
    /// Its number in native messages.
    pub id: i32,
    /// Its symbol in OUCH messages, padded with spaces.
    pub symbol: Ascii<8>,
    /// The partition that processes its orders, numbered from 1.
    pub partition: u8,
    /// Price increment, in 1e-8.
    pub tick_e8: i64,
    /// Lowest order price, in 1e-8.
    pub lowest_price_e8: i64,
    /// Highest order price, in 1e-8.
    pub highest_price_e8: i64,
    /// Largest order quantity.
    pub most_quantity: u32,
}

/// A user of the OUCH gateway: one account, one session, one port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OuchUser {
    /// User name and password.
    pub credentials: Credentials,
    /// Whether the user's orders are cancelled when its connection ends.
    pub cancels_on_disconnect: bool,
}

/// The options of a venue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrderOptions {
    /// Its instruments.
    pub instruments: Vec<Instrument>,
    /// Users of the native gateway.
    pub native_users: Vec<User>,
    /// Settings of the native gateway.
    pub native: ServerSettings,
    /// Users of the OUCH gateway.
    pub ouch_users: Vec<OuchUser>,
    /// The name of the OUCH sessions.
    pub ouch_session: [u8; 10],
    /// Bytes of messages that an OUCH session keeps for clients that were disconnected.
    pub ouch_store_bytes: usize,
    /// Midnight in New York, for OUCH's times, in nanoseconds since 1970 UTC.
    pub midnight_ns: u64,
    /// Maximum number of working orders.
    pub most_orders: u32,
    /// Self-trade prevention, used for all orders.
    pub self_trade: SelfTrade,
    /// Whether [`OrderExchange::next_market`] returns events. A host that never reads them should turn this off.
    pub publishes_market: bool,
    /// Whether [`OrderExchange::next_ledger`] returns entries. A host that never reads them should turn this off.
    pub keeps_ledger: bool,
    /// Deliberate faults.
    pub faults: OrderFaults,
}

impl Default for OrderOptions {
    /// No instruments, no users, room for 100,000 orders and for 64 MiB per OUCH session.
    fn default() -> Self {
        Self {
            instruments: Vec::new(),
            native_users: Vec::new(),
            native: ServerSettings::default(),
            ouch_users: Vec::new(),
            ouch_session: *b"ORDERS0001",
            ouch_store_bytes: 64 << 20,
            midnight_ns: 0,
            most_orders: 100_000,
            self_trade: SelfTrade::Allow,
            publishes_market: false,
            keeps_ledger: false,
            faults: OrderFaults::default(),
        }
    }
}

/// Why options are invalid.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OrderOptionsError {
    /// Two instruments have the same number or symbol.
    #[error("instrument {id} ({symbol}) is there twice")]
    Instrument {
        /// The number.
        id: i32,
        /// The symbol.
        symbol: Ascii<8>,
    },
    /// An instrument's partition does not exist.
    #[error("instrument {id} is of partition {partition}; there are 1 to {partitions}")]
    Partition {
        /// The instrument's number.
        id: i32,
        /// Its partition.
        partition: u8,
        /// The number of partitions.
        partitions: u8,
    },
    /// OUCH's prices, which have 4 decimals, cannot express the tick.
    #[error("instrument {id} has a tick of {tick_e8}e-8: OUCH needs multiples of 10000e-8")]
    Tick {
        /// The instrument's number.
        id: i32,
        /// Its tick.
        tick_e8: i64,
    },
}

/// A port of the venue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// The native real-time or recovery channel, shared by all users.
    Native(Channel),
    /// An OUCH user's port, by the user's index in the options.
    Ouch {
        /// The user.
        user: usize,
    },
}

/// A connection of a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Connection {
    /// A connection of the native gateway.
    Native(ConnectionId),
    /// A connection of an OUCH user.
    Ouch {
        /// The user.
        user: usize,
        /// The connection's number among the user's.
        connection: u64,
    },
}

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionEnd {
    /// A connection of the native gateway.
    Native(End),
    /// A connection of an OUCH user.
    Ouch(SoupEnd),
}

impl ConnectionEnd {
    /// Returns whether the client left on its own: it logged out or closed the connection.
    #[must_use]
    pub const fn is_by_client(self) -> bool {
        matches!(self, Self::Native(End::LoggedOut | End::Closed) | Self::Ouch(SoupEnd::Left))
    }

    /// Returns whether the client was silent or read nothing for too long, or did not log on in time.
    #[must_use]
    pub const fn is_timed_out(self) -> bool {
        matches!(
            self,
            Self::Native(End::TimedOut | End::NoLogon) | Self::Ouch(SoupEnd::TimedOut | SoupEnd::NoLogin)
        )
    }

    /// Returns whether more output was pending for the client than the limit allows.
    #[must_use]
    pub const fn is_too_slow(self) -> bool {
        matches!(self, Self::Native(End::TooSlow) | Self::Ouch(SoupEnd::TooSlow))
    }
}

impl fmt::Display for ConnectionEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Native(end) => end.fmt(f),
            Self::Ouch(end) => end.fmt(f),
        }
    }
}

/// A public market event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MarketEvent {
    /// The displayed book changed.
    Book {
        /// When, in nanoseconds since 1970 UTC.
        time_ns: u64,
        /// The instrument, by its index in the options.
        symbol: SymbolIndex,
        /// The change.
        change: BookChange,
    },
    /// A trade.
    Trade {
        /// When, in nanoseconds since 1970 UTC.
        time_ns: u64,
        /// The instrument, by its index in the options.
        symbol: SymbolIndex,
        /// The trade's number.
        match_number: u64,
        /// The price.
        price_e8: i64,
        /// Traded quantity.
        quantity: u32,
    },
}

/// Counters of a venue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OrderCounters {
    /// New orders received.
    pub new_orders: u64,
    /// Native quotes received.
    pub quotes: u64,
    /// Cancels received.
    pub cancels: u64,
    /// Amendments, replaces, and modifications received.
    pub replaces: u64,
    /// Mass cancels received.
    pub mass_cancels: u64,
    /// Orders accepted.
    pub accepted: u64,
    /// Orders and OUCH replaces rejected.
    pub rejected: u64,
    /// Native cancels and amendments rejected.
    pub cancel_rejects: u64,
    /// Unsupported native messages.
    pub business_rejects: u64,
    /// OUCH messages ignored because the reference number is not above the last one or names no working order, or because the
    /// change is not allowed.
    pub stale_references: u64,
    /// OUCH messages ignored because they cannot be read.
    pub unreadable: u64,
    /// Trades.
    pub trades: u64,
    /// Trades cancelled later.
    pub busted: u64,
    /// Orders that ended with open quantity.
    pub ended: u64,
    /// Reports too long for the queue; always 0.
    pub reports_too_long: u64,
}

/// A venue that accepts orders. See the [module](self).
#[derive(Debug)]
pub struct OrderExchange {
    register: OrderRegister,
    native: Server,
    ouch: Vec<SoupAcceptor>,
    /// Whether each native user's orders are cancelled on disconnect.
    native_cancels: Vec<bool>,
    ouch_cancels: Vec<bool>,
    /// Native users that a report disconnected: their orders are cancelled next.
    gone: Vec<UserId>,
    misreports: Misreports,
}

impl OrderExchange {
    /// Creates a venue at the start of its day. OUCH users receive the start of day as their first message.
    ///
    /// # Errors
    /// The options contradict each other.
    pub fn new(options: &OrderOptions, now_ns: u64) -> Result<Self, OrderOptionsError> {
        check(options)?;
        let acceptor = |user: &OuchUser| {
            SoupAcceptor::new(user.credentials.clone(), options.ouch_session, options.ouch_store_bytes)
        };
        let mut venue = Self {
            register: OrderRegister::new(options),
            native: Server::new(options.native.clone(), options.native_users.clone()),
            ouch: options.ouch_users.iter().map(acceptor).collect(),
            native_cancels: options.native_users.iter().map(|user| user.cancels_on_disconnect).collect(),
            ouch_cancels: options.ouch_users.iter().map(|user| user.cancels_on_disconnect).collect(),
            gone: Vec::new(),
            misreports: Misreports::default(),
        };
        venue.register.now_ns = now_ns;
        venue.advance(now_ns);
        for user in 0..venue.ouch.len() {
            venue.register.ouch_system_event(user, EventCode::StartOfDay);
        }
        venue.release();
        Ok(venue)
    }

    /// Returns the counters.
    #[must_use]
    pub const fn counters(&self) -> OrderCounters {
        self.register.counters
    }

    /// Returns the counters of injected faults.
    #[must_use]
    pub const fn faults(&self) -> FaultCounters {
        self.register.script.counters()
    }

    /// Returns the counters of the native sessions.
    #[must_use]
    pub const fn native_sessions(&self) -> ServerCounters {
        self.native.counters()
    }

    /// Returns the matching engine for inspection.
    #[must_use]
    pub const fn engine(&self) -> &MatchingEngine {
        &self.register.engine
    }

    /// Returns the App IDs for which a fault withholds a report from a logged-on native user that has received a later report.
    #[must_use]
    pub fn open_gaps(&self) -> Vec<u8> {
        let users = (0..self.native_cancels.len()).map(UserId);
        let has_gap = |app_id: &u8| users.clone().any(|user| self.native.has_gap(user, *app_id));
        (0..=self.native.settings().variant.partitions).filter(has_gap).collect()
    }

    /// Returns the native users' sessions for inspection.
    #[must_use]
    pub const fn native(&self) -> &Server {
        &self.native
    }

    // ---- connections ----

    /// Opens a connection after a client connected to a gate. Returns `None` if there is no such gate.
    pub fn open(&mut self, gate: Gate, now_ns: u64) -> Option<Connection> {
        self.advance(now_ns);
        Some(match gate {
            Gate::Native(channel) => Connection::Native(self.native.open(channel, now_ns)),
            Gate::Ouch { user } => {
                Connection::Ouch { user, connection: self.ouch.get_mut(user)?.open(now_ns) }
            }
        })
    }

    /// Processes bytes received on a connection.
    pub fn receive(&mut self, connection: Connection, bytes: &[u8], now_ns: u64) {
        self.advance(now_ns);
        match connection {
            Connection::Native(id) => {
                let mut dropped = Vec::new();
                let mut halts = Vec::new();
                let Self { register, native, native_cancels, .. } = self;
                native.receive(id, bytes, now_ns, |input| {
                    if let Input::Message { user, .. } = input {
                        let (is_dropped, halt) = register.script.message();
                        dropped.extend(is_dropped.then_some(user));
                        halts.extend(halt);
                    }
                    take_input(register, native_cancels, &input);
                });
                halts.into_iter().for_each(|halt| self.halt(halt, now_ns));
                for user in dropped {
                    self.disconnect_native(user);
                }
            }
            Connection::Ouch { user, connection } => {
                let (mut is_dropped, mut halts) = (false, Vec::new());
                let Self { register, ouch, .. } = self;
                let Some(acceptor) = ouch.get_mut(user) else { return };
                acceptor.receive(connection, bytes, now_ns, |message| {
                    // Queries do not count: a client sends them after each login, so an exchange that drops the connection at
                    // each message would never receive an order.
                    if message.first() != Some(&AccountQuery::TAG) {
                        let (drop, halt) = register.script.message();
                        is_dropped |= drop;
                        halts.extend(halt);
                    }
                    register.ouch_message(user, message);
                });
                halts.into_iter().for_each(|halt| self.halt(halt, now_ns));
                if is_dropped && let Some(acceptor) = self.ouch.get_mut(user) {
                    acceptor.disconnect();
                }
                self.notice_ouch(user);
            }
        }
        self.release();
    }

    /// Returns the bytes to send next on a connection, empty if there are none.
    #[must_use]
    pub fn output(&self, connection: Connection) -> &[u8] {
        match connection {
            Connection::Native(id) => self.native.output(id),
            Connection::Ouch { user, connection } => {
                self.ouch.get(user).map_or(&[], |acceptor| acceptor.output(connection))
            }
        }
    }

    /// Records that this many bytes of [`OrderExchange::output`] were sent.
    pub fn sent(&mut self, connection: Connection, bytes: usize, now_ns: u64) {
        match connection {
            Connection::Native(id) => self.native.sent(id, bytes, now_ns),
            Connection::Ouch { user, connection } => {
                if let Some(acceptor) = self.ouch.get_mut(user) {
                    acceptor.sent(connection, bytes, now_ns);
                }
                self.notice_ouch(user);
                self.release();
            }
        }
    }

    /// Records that a connection is closed, after [`OrderExchange::over`] or because the client closed it.
    pub fn closed(&mut self, connection: Connection, now_ns: u64) {
        self.advance(now_ns);
        match connection {
            Connection::Native(id) => {
                let Self { register, native, native_cancels, .. } = self;
                native.closed(id, |input| take_input(register, native_cancels, &input));
            }
            Connection::Ouch { user, connection } => {
                if let Some(acceptor) = self.ouch.get_mut(user) {
                    acceptor.closed(connection);
                }
                self.notice_ouch(user);
            }
        }
        self.release();
    }

    /// Returns how a connection ended, if it did. The host then closes it and calls [`OrderExchange::closed`].
    #[must_use]
    pub fn end_of(&self, connection: Connection) -> Option<ConnectionEnd> {
        match connection {
            Connection::Native(id) => self.native.over(id).map(ConnectionEnd::Native),
            Connection::Ouch { user, connection } => {
                self.ouch.get(user)?.over(connection).map(ConnectionEnd::Ouch)
            }
        }
    }

    /// Returns whether a connection has ended: see [`OrderExchange::end_of`].
    #[must_use]
    pub fn over(&self, connection: Connection) -> bool {
        self.end_of(connection).is_some()
    }

    /// Returns whether a user is logged on to this connection.
    #[must_use]
    pub fn is_admitted(&self, connection: Connection) -> bool {
        match connection {
            Connection::Native(id) => self.native.is_admitted(id),
            Connection::Ouch { user, connection } => {
                self.ouch.get(user).is_some_and(|acceptor| acceptor.is_admitted(connection))
            }
        }
    }

    /// Advances time: orders expire, halts end, delayed reports are sent, and silent clients are disconnected.
    pub fn tick(&mut self, now_ns: u64) {
        self.advance(now_ns);
        let Self { register, native, native_cancels, .. } = self;
        native.tick(now_ns, |input| take_input(register, native_cancels, &input));
        self.end_misreports();
        for user in 0..self.ouch.len() {
            if let Some(acceptor) = self.ouch.get_mut(user) {
                acceptor.tick(now_ns);
            }
            self.notice_ouch(user);
        }
        self.release();
    }

    /// Returns when [`OrderExchange::tick`] is next needed for an order's expiry or a delayed or withheld report, in nanoseconds.
    ///
    /// Returns `u64::MAX` if nothing is due. Sessions need further ticks while there are connections.
    #[must_use]
    pub fn due_ns(&self) -> u64 {
        let expiry_ns = self.register.engine.next_expiry_ns().unwrap_or(u64::MAX);
        expiry_ns.min(self.register.report_due_ns().unwrap_or(u64::MAX)).min(self.misreports.due_ns())
    }

    /// Returns how often sessions need [`OrderExchange::tick`] while there are connections, in nanoseconds: half the heartbeat
    /// interval.
    #[must_use]
    pub const fn sessions_every_ns(&self) -> u64 {
        self.native.settings().variant.heartbeat_interval_ns / 2
    }

    /// Returns the next market event, if any.
    pub fn next_market(&mut self) -> Option<MarketEvent> {
        self.register.next_market()
    }

    /// Returns the next ledger entry, if any: the events that truly happened, whatever faults make the users believe.
    pub fn next_ledger(&mut self) -> Option<LedgerEntry> {
        self.register.next_ledger()
    }

    // ---- what the venue does ----

    /// Cancels one of the last 65,536 trades and notifies both sides. Returns whether the trade was known.
    pub fn bust(&mut self, match_number: u64, now_ns: u64) -> bool {
        self.advance(now_ns);
        let is_known = self.register.bust(match_number);
        self.release();
        is_known
    }

    /// Suspends or resumes an instrument, and reports its native orders as suspended or restated.
    ///
    /// A suspended instrument accepts only cancels. Returns whether the instrument exists.
    pub fn suspend(&mut self, symbol: SymbolIndex, is_suspended: bool, now_ns: u64) -> bool {
        self.advance(now_ns);
        let is_there = self.register.engine.set_halted(symbol, is_suspended).is_ok();
        if is_there {
            self.register.native_suspended(symbol, is_suspended);
        }
        self.release();
        is_there
    }

    /// Halts a partition for a while: its orders are rejected, and native users are notified.
    pub fn halt(&mut self, halt: PartitionHalt, now_ns: u64) {
        if self.register.halt(halt.partition, now_ns.saturating_add(halt.duration_ns)) {
            self.native.set_status(halt.partition, AppStatus::PartitionNotAvailable, now_ns);
        }
    }

    /// Makes a partition's recovery service unavailable, or available again.
    pub fn set_recovery(&mut self, partition: u8, is_available: bool, now_ns: u64) {
        let status = if is_available {
            AppStatus::RecoveryServiceResumed
        } else {
            AppStatus::RecoveryServiceNotAvailable
        };
        self.native.set_status(partition, status, now_ns);
    }

    /// Ends the day: cancels day orders and all orders of OUCH users, and ends the OUCH sessions.
    ///
    /// Good-till orders of native users stay. Until the next day every partition is halted, and users that disconnect keep their
    /// orders.
    pub fn end_day(&mut self, now_ns: u64) {
        self.advance(now_ns);
        self.register.end_day();
        for user in 0..self.ouch.len() {
            self.register.ouch_system_event(user, EventCode::EndOfDay);
        }
        // Reports delayed by a fault are sent before the end.
        self.register.end_delays();
        self.release();
        self.send_all_held();
        self.ouch.iter_mut().for_each(|acceptor| acceptor.end_session(now_ns));
    }

    /// Returns whether the day has ended and the next has not started.
    #[must_use]
    pub const fn is_day_over(&self) -> bool {
        self.register.is_day_over()
    }

    /// Starts the next day, with the orders that remain.
    ///
    /// Native numbers restart at 1, with nothing kept from the previous day, and OUCH users get new sessions with this name. The
    /// host must have closed all connections. `midnight_ns` is midnight in New York.
    pub fn new_day(&mut self, midnight_ns: u64, ouch_session: [u8; 10], now_ns: u64) {
        self.advance(now_ns);
        self.register.new_day(midnight_ns);
        self.forget_misreports();
        self.native.new_day();
        for acceptor in &mut self.ouch {
            acceptor.new_day(ouch_session);
        }
        for user in 0..self.ouch.len() {
            self.register.ouch_system_event(user, EventCode::StartOfDay);
        }
        self.release();
    }

    /// Ends a native user's real-time connection immediately.
    pub fn disconnect_native(&mut self, user: UserId) {
        let Self { register, native, native_cancels, .. } = self;
        native.disconnect(user, Channel::RealTime, |input| take_input(register, native_cancels, &input));
    }

    // ---- the inside ----

    fn advance(&mut self, now_ns: u64) {
        self.register.now_ns = self.register.now_ns.max(now_ns);
        let now_ns = self.register.now_ns;
        self.register.call(|engine, mut sink| engine.advance(now_ns, &mut sink));
        self.register.report_events();
    }

    /// Cancels an OUCH user's orders if its connection has ended and it has cancel on disconnect.
    fn notice_ouch(&mut self, user: usize) {
        let is_away = self.ouch.get(user).is_some_and(|acceptor| !acceptor.is_logged_in());
        if is_away && !self.register.is_day_over() && self.ouch_cancels.get(user) == Some(&true) {
            self.register.cancel_all(Recipient::Ouch(user), EndReason::Disconnected, |_| true);
        }
    }

    /// Sends the reports that are due. A report that makes its user too slow ends the user's connection, which may cancel orders
    /// and so add more reports.
    fn release(&mut self) {
        while let Some(report) = self.register.next_report() {
            self.send(report);
            while let Some(user) = self.gone.pop() {
                cancel_native(&mut self.register, &self.native_cancels, user);
            }
        }
    }
}

/// Applies a native session's input to the register.
fn take_input(register: &mut OrderRegister, native_cancels: &[bool], input: &Input<'_>) {
    match input {
        Input::Message { user, message } => {
            let cancels = native_cancels.get(user.0).copied().unwrap_or(false);
            register.native_message(user.0, cancels, message);
        }
        Input::Gone { user, .. } => cancel_native(register, native_cancels, *user),
        _ => {}
    }
}

/// Cancels the orders of a disconnected native user that are subject to cancel on disconnect.
fn cancel_native(register: &mut OrderRegister, native_cancels: &[bool], user: UserId) {
    if native_cancels.get(user.0) == Some(&true) && !register.is_day_over() {
        register.cancel_all(
            Recipient::Native(user.0),
            EndReason::Disconnected,
            |entry| matches!(entry, Entry::Native(order) if order.cancels_on_disconnect),
        );
    }
}

fn check(options: &OrderOptions) -> Result<(), OrderOptionsError> {
    let (mut ids, mut symbols) = (HashSet::new(), HashSet::new());
    let partitions = options.native.variant.partitions;
    for instrument in &options.instruments {
        let Instrument { id, symbol, partition, tick_e8, .. } = *instrument;
        if !ids.insert(id) || !symbols.insert(symbol) {
            return Err(OrderOptionsError::Instrument { id, symbol });
        }
        if partition == 0 || partition > partitions {
            return Err(OrderOptionsError::Partition { id, partition, partitions });
        }
        if !options.ouch_users.is_empty() && tick_e8 % 10_000 != 0 {
            return Err(OrderOptionsError::Tick { id, tick_e8 });
        }
    }
    Ok(())
}
