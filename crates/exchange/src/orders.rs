//! A simulated venue that takes orders: native and OUCH gateways over one matching engine, without sockets and clocks.
//!
//! The host opens a connection of a [`Gate`] for each that it accepts, moves the bytes ([`OrderExchange::receive`],
//! [`OrderExchange::output`], [`OrderExchange::sent`]), calls [`OrderExchange::tick`] at [`OrderExchange::due_ns`], and closes what is
//! [`OrderExchange::over`]. Trades and changes of the displayed book come out of [`OrderExchange::next_market`], for an
//! [`ItchLine`](crate::itch_line::ItchLine).
//!
//! Instruments belong to partitions: a native report carries its instrument's partition as App ID, and a number per user and App
//! ID. Reports of users that are away are kept, and recovered by the session's rules. [`OrderFaults`] make the venue misbehave.
//! The same calls give the same bytes.
//!
//! # Cost
//! A message is decoded where it lies, costs one call of the engine and a hash lookup per named order, and each report is
//! copied three times: into the queue, into the user's store, into the connection.

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
use tapeworks_session::Credentials;
use tapeworks_session::native::{
    Channel, ConnectionId, End, Input, Server, ServerCounters, ServerSettings, User, UserId,
};
use tapeworks_session::soupbintcp::{SoupAcceptor, SoupEnd};
use tapeworks_wire::Ascii;
use tapeworks_wire::millennium::native::AppStatus;
use tapeworks_wire::nasdaq::ouch50::inbound::AccountQuery;
use tapeworks_wire::nasdaq::ouch50::outbound::EventCode;
use thiserror::Error;

pub use faults::{FaultCounters, OrderFaults, PartitionHalt};
pub use ledger::{LedgerEntry, LedgerEvent, OrderUser};
pub use ouch::MARKET_PRICE;

use crate::matching::{BookChange, EndReason, MatchingEngine, SelfTrade, SymbolIndex};

/// Reject codes of orders, cancels and amendments. The venue's list must be checked: these are the simulated exchange's.
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
    /// A price is no multiple of the tick, or outside the instrument's limits.
    pub const PRICE: i32 = 105;
    /// The display quantity is negative or above the quantity.
    pub const DISPLAY_QUANTITY: i32 = 106;
    /// The minimum quantity does not fit the order.
    pub const MINIMUM_QUANTITY: i32 = 107;
    /// The time in force is not supported, does not fit the order, or is over.
    pub const TIME_IN_FORCE: i32 = 108;
    /// The order type is not supported.
    pub const ORDER_TYPE: i32 = 109;
    /// The side is none.
    pub const SIDE: i32 = 110;
    /// A working order of the user has this client order id.
    pub const DUPLICATE: i32 = 111;
    /// No such order of the user works.
    pub const UNKNOWN_ORDER: i32 = 112;
    /// As many orders work as may.
    pub const NO_ROOM: i32 = 113;
    /// The message is not supported.
    pub const NOT_SUPPORTED: i32 = 114;
    /// A deliberate fault.
    pub const BY_FAULT: i32 = 115;
}

/// Restatement Reason of a stop order that a trade elected.
pub const RESTATED_ELECTED: u8 = 1;

/// Restatement Reason of an order that lost quantity to its owner's other order without a trade.
pub const RESTATED_SELF_TRADE: u8 = 2;

/// What is traded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instrument {
    /// The number that native messages name it by.
    pub id: i32,
    /// The symbol that OUCH messages name it by, padded with spaces.
    pub symbol: Ascii<8>,
    /// The partition that processes its orders, from 1.
    pub partition: u8,
    /// Prices are multiples of it, in 1e-8.
    pub tick_e8: i64,
    /// The lowest price of an order, in 1e-8.
    pub lowest_price_e8: i64,
    /// The highest.
    pub highest_price_e8: i64,
    /// The largest quantity of an order.
    pub most_quantity: u32,
}

/// A user of the OUCH gateway: one account, one session, one port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OuchUser {
    /// User and password.
    pub credentials: Credentials,
    /// The user's orders are cancelled when its connection ends.
    pub cancels_on_disconnect: bool,
}

/// A venue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrderOptions {
    /// Its instruments.
    pub instruments: Vec<Instrument>,
    /// Users of the native gateway.
    pub native_users: Vec<User>,
    /// How the native gateway behaves.
    pub native: ServerSettings,
    /// Users of the OUCH gateway.
    pub ouch_users: Vec<OuchUser>,
    /// The OUCH sessions' name.
    pub ouch_session: [u8; 10],
    /// Bytes of messages that an OUCH session keeps for clients that were away.
    pub ouch_store_bytes: usize,
    /// Midnight in New York, for OUCH's times, in nanoseconds since 1970 UTC.
    pub midnight_ns: u64,
    /// Orders that may work at the same time.
    pub most_orders: u32,
    /// What happens where an order would trade with its owner's.
    pub self_trade: SelfTrade,
    /// Whether [`OrderExchange::next_market`] has events. A host that does not take them turns them off.
    pub publishes_market: bool,
    /// Whether [`OrderExchange::next_ledger`] has entries. A host that does not take them turns them off.
    pub keeps_ledger: bool,
    /// Deliberate faults.
    pub faults: OrderFaults,
}

impl Default for OrderOptions {
    /// No instruments, no users, room for 100,000 orders and 64 MiB of each OUCH session.
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

/// Options that no venue can have.
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
    /// An instrument's partition is not there.
    #[error("instrument {id} is of partition {partition}; there are 1 to {partitions}")]
    Partition {
        /// The instrument's number.
        id: i32,
        /// Its partition.
        partition: u8,
        /// The partitions.
        partitions: u8,
    },
    /// A tick that OUCH's prices of 4 decimals cannot show.
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
    /// The native real-time or recovery channel, of all users.
    Native(Channel),
    /// The OUCH port of a user, by its place in the options.
    Ouch {
        /// The user.
        user: usize,
    },
}

/// A connection of a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Connection {
    /// Of the native gateway.
    Native(ConnectionId),
    /// Of an OUCH user.
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
    /// Of the native gateway.
    Native(End),
    /// Of an OUCH user.
    Ouch(SoupEnd),
}

impl ConnectionEnd {
    /// Whether the client left by itself: it logged out, or closed the connection.
    #[must_use]
    pub const fn is_by_client(self) -> bool {
        matches!(self, Self::Native(End::LoggedOut | End::Closed) | Self::Ouch(SoupEnd::Left))
    }

    /// Whether the client was silent, or read nothing, for too long, or did not log on in time.
    #[must_use]
    pub const fn is_timed_out(self) -> bool {
        matches!(
            self,
            Self::Native(End::TimedOut | End::NoLogon) | Self::Ouch(SoupEnd::TimedOut | SoupEnd::NoLogin)
        )
    }

    /// Whether more waited for the client than is kept.
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

/// What the market sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MarketEvent {
    /// The displayed book changed.
    Book {
        /// When, in nanoseconds since 1970 UTC.
        time_ns: u64,
        /// The instrument, by its place in the options.
        symbol: SymbolIndex,
        /// How.
        change: BookChange,
    },
    /// A trade.
    Trade {
        /// When, in nanoseconds since 1970 UTC.
        time_ns: u64,
        /// The instrument, by its place in the options.
        symbol: SymbolIndex,
        /// The number of the trade.
        match_number: u64,
        /// The price.
        price_e8: i64,
        /// How many.
        quantity: u32,
    },
}

/// What a venue counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OrderCounters {
    /// New orders that came.
    pub new_orders: u64,
    /// Native quotes that came.
    pub quotes: u64,
    /// Cancels that came.
    pub cancels: u64,
    /// Amendments, replaces and modifications that came.
    pub replaces: u64,
    /// Mass cancels that came.
    pub mass_cancels: u64,
    /// Orders accepted.
    pub accepted: u64,
    /// Orders, and OUCH replaces, rejected.
    pub rejected: u64,
    /// Native cancels and amendments rejected.
    pub cancel_rejects: u64,
    /// Native messages that are not supported.
    pub business_rejects: u64,
    /// OUCH messages ignored: the reference number is not above the last, or names no working order, or the change is none.
    pub stale_references: u64,
    /// OUCH messages that cannot be read, ignored.
    pub unreadable: u64,
    /// Trades.
    pub trades: u64,
    /// Trades cancelled later.
    pub busted: u64,
    /// Orders that ended with something left.
    pub ended: u64,
    /// Reports that were too long for the queue. None are.
    pub reports_too_long: u64,
}

/// A venue that takes orders. See the [module](self).
#[derive(Debug)]
pub struct OrderExchange {
    register: OrderRegister,
    native: Server,
    ouch: Vec<SoupAcceptor>,
    /// Whether each native user's orders are cancelled on disconnect.
    native_cancels: Vec<bool>,
    ouch_cancels: Vec<bool>,
    /// Native users that a report made leave: their orders are cancelled next.
    gone: Vec<UserId>,
    misreports: Misreports,
}

impl OrderExchange {
    /// A venue at the start of its day: OUCH users get the start of the day as their first message.
    ///
    /// # Errors
    /// The options contradict themselves.
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

    /// What was counted.
    #[must_use]
    pub const fn counters(&self) -> OrderCounters {
        self.register.counters
    }

    /// The faults that happened.
    #[must_use]
    pub const fn faults(&self) -> FaultCounters {
        self.register.script.counters()
    }

    /// What the native sessions counted.
    #[must_use]
    pub const fn native_sessions(&self) -> ServerCounters {
        self.native.counters()
    }

    /// The matching engine, to look at.
    #[must_use]
    pub const fn engine(&self) -> &MatchingEngine {
        &self.register.engine
    }

    /// The App IDs of which a fault keeps a report from a logged-on native user that has a later one.
    #[must_use]
    pub fn open_gaps(&self) -> Vec<u8> {
        let users = (0..self.native_cancels.len()).map(UserId);
        let has_gap = |app_id: &u8| users.clone().any(|user| self.native.has_gap(user, *app_id));
        (0..=self.native.settings().variant.partitions).filter(has_gap).collect()
    }

    /// The native users' sessions, to look at.
    #[must_use]
    pub const fn native(&self) -> &Server {
        &self.native
    }

    // ---- connections ----

    /// A client connected to a gate. `None`: there is no such gate.
    pub fn open(&mut self, gate: Gate, now_ns: u64) -> Option<Connection> {
        self.advance(now_ns);
        Some(match gate {
            Gate::Native(channel) => Connection::Native(self.native.open(channel, now_ns)),
            Gate::Ouch { user } => {
                Connection::Ouch { user, connection: self.ouch.get_mut(user)?.open(now_ns) }
            }
        })
    }

    /// Takes bytes of a connection.
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
                    // A query does not count: an exchange that drops the connection at each message would never take an order.
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

    /// The bytes to send next on a connection; empty: none now.
    #[must_use]
    pub fn output(&self, connection: Connection) -> &[u8] {
        match connection {
            Connection::Native(id) => self.native.output(id),
            Connection::Ouch { user, connection } => {
                self.ouch.get(user).map_or(&[], |acceptor| acceptor.output(connection))
            }
        }
    }

    /// So many bytes of [`OrderExchange::output`] went out.
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

    /// A connection is closed. After [`OrderExchange::over`], or because the client closed it.
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

    /// How a connection ended, if it did: the host closes it and calls [`OrderExchange::closed`].
    #[must_use]
    pub fn end_of(&self, connection: Connection) -> Option<ConnectionEnd> {
        match connection {
            Connection::Native(id) => self.native.over(id).map(ConnectionEnd::Native),
            Connection::Ouch { user, connection } => {
                self.ouch.get(user)?.over(connection).map(ConnectionEnd::Ouch)
            }
        }
    }

    /// Whether a connection ended: see [`OrderExchange::end_of`].
    #[must_use]
    pub fn over(&self, connection: Connection) -> bool {
        self.end_of(connection).is_some()
    }

    /// Whether a user is logged on to this connection.
    #[must_use]
    pub fn is_admitted(&self, connection: Connection) -> bool {
        match connection {
            Connection::Native(id) => self.native.is_admitted(id),
            Connection::Ouch { user, connection } => {
                self.ouch.get(user).is_some_and(|acceptor| acceptor.is_admitted(connection))
            }
        }
    }

    /// Time passes: orders expire, halts end, delayed reports go out, silent clients are disconnected.
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

    /// When an order expires or a delayed report is due, in nanoseconds; `u64::MAX`: none. Sessions want a [`OrderExchange::tick`] every
    /// second besides.
    #[must_use]
    pub fn due_ns(&self) -> u64 {
        let expiry_ns = self.register.engine.next_expiry_ns().unwrap_or(u64::MAX);
        expiry_ns.min(self.register.report_due_ns().unwrap_or(u64::MAX)).min(self.misreports.due_ns())
    }

    /// How often sessions need [`OrderExchange::tick`] while there are connections, in nanoseconds: half the heartbeats' interval.
    #[must_use]
    pub const fn sessions_every_ns(&self) -> u64 {
        self.native.settings().variant.heartbeat_interval_ns / 2
    }

    /// The next event of the market, if there is one.
    pub fn next_market(&mut self) -> Option<MarketEvent> {
        self.register.next_market()
    }

    /// The next entry of the ledger, if there is one: what truly happened, whatever faults make the users believe.
    pub fn next_ledger(&mut self) -> Option<LedgerEntry> {
        self.register.next_ledger()
    }

    // ---- what the venue does ----

    /// Cancels a trade of the last 65,536: both sides are notified. Returns whether it was known.
    pub fn bust(&mut self, match_number: u64, now_ns: u64) -> bool {
        self.advance(now_ns);
        let is_known = self.register.bust(match_number);
        self.release();
        is_known
    }

    /// Suspends an instrument, or ends its suspension. Its native orders are reported as suspended, or as restated; a suspended
    /// instrument takes cancels only. Returns whether the instrument is there.
    pub fn suspend(&mut self, symbol: SymbolIndex, is_suspended: bool, now_ns: u64) -> bool {
        self.advance(now_ns);
        let is_there = self.register.engine.set_halted(symbol, is_suspended).is_ok();
        if is_there {
            self.register.native_suspended(symbol, is_suspended);
        }
        self.release();
        is_there
    }

    /// Halts a partition for some time: its orders are rejected, and native users are notified.
    pub fn halt(&mut self, halt: PartitionHalt, now_ns: u64) {
        if self.register.halt(halt.partition, now_ns.saturating_add(halt.duration_ns)) {
            self.native.set_status(halt.partition, AppStatus::PartitionNotAvailable, now_ns);
        }
    }

    /// Makes the recovery of a partition unavailable, or available again.
    pub fn set_recovery(&mut self, partition: u8, is_available: bool, now_ns: u64) {
        let status = if is_available {
            AppStatus::RecoveryServiceResumed
        } else {
            AppStatus::RecoveryServiceNotAvailable
        };
        self.native.set_status(partition, status, now_ns);
    }

    /// The day is over: day orders end, all orders of OUCH users, and OUCH sessions. Good-till orders of native users stay. Until the next day
    /// every partition is halted, and users that disconnect keep their orders.
    pub fn end_day(&mut self, now_ns: u64) {
        self.advance(now_ns);
        self.register.end_day();
        for user in 0..self.ouch.len() {
            self.register.ouch_system_event(user, EventCode::EndOfDay);
        }
        // What a fault delays goes out before the end.
        self.register.end_delays();
        self.release();
        self.send_all_held();
        self.ouch.iter_mut().for_each(|acceptor| acceptor.end_session(now_ns));
    }

    /// Whether the day has ended, and the next has not begun.
    #[must_use]
    pub const fn is_day_over(&self) -> bool {
        self.register.is_day_over()
    }

    /// The next day begins, with the orders that are left: native numbers begin at 1, with nothing kept of the day before, and OUCH users have
    /// new sessions of this name. The host has closed all connections. `midnight_ns` is that of New York.
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

    /// Ends a native user's real-time connection at once.
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

    /// An OUCH user's connection may have ended: its orders are cancelled.
    fn notice_ouch(&mut self, user: usize) {
        let is_away = self.ouch.get(user).is_some_and(|acceptor| !acceptor.is_logged_in());
        if is_away && !self.register.is_day_over() && self.ouch_cancels.get(user) == Some(&true) {
            self.register.cancel_all(Recipient::Ouch(user), EndReason::Disconnected, |_| true);
        }
    }

    /// Sends the reports that are due. One that makes its user too slow ends the user's connection, and may cancel orders, whose
    /// reports follow.
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

/// A native user is gone: its orders that are to be cancelled then are cancelled.
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
