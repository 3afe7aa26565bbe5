//! An exchange whose inputs are journaled before their effects are sent, so that it survives `kill -9`.
//!
//! [`OrderExchange`] is deterministic: the same calls produce the same orders, reports, and numbers. The journal therefore holds
//! the calls: each is appended before it is made, and [`DurableExchange::flush`] writes the records before any of their output
//! goes to a socket. After a restart the calls of the day are replayed, and the connections that were open are closed.
//!
//! A record's kind is the call, its channel the gate (0 for native, 1 and up for the OUCH user), and its `extra` the connection
//! number. A day that starts without working orders begins with a record that needs none before it, so older segments are
//! removed.
//!
//! Cost: a record of 40 bytes plus the bytes received for each call, and one write per turn of a connection.

use std::collections::BTreeSet;

use tapeworks_disk::Disk;
use tapeworks_journal::{JournalError, JournalOptions, JournalReader, JournalWriter, LOST, Record};
use tapeworks_matching::orders::{Connection, Gate, LedgerEntry, MarketEvent, OrderExchange, OrderOptions};
use tapeworks_order_session::native::{Channel, ConnectionId, User};
use tapeworks_planted::planted;
use tapeworks_session::transport::digits;

use crate::error::StoreError;
use crate::order_config::StoreSetting;

/// Size of a journal segment, in bytes.
const SEGMENT_BYTES: u64 = 16 << 20;

/// Size of a record without its payload, in bytes.
const RECORD_BYTES: u64 = 40;

/// The state found at the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Recovered {
    /// Number of inputs replayed.
    pub inputs: u64,
    /// Number of working orders.
    pub orders: u64,
    /// Bytes of a torn record that were truncated.
    pub torn_bytes: u64,
}

/// A call of the exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Input<'a> {
    /// A day starts. `is_fresh` means that no order remains from the previous day. `head` has the configuration's fingerprint and
    /// the passwords.
    Day {
        is_fresh: bool,
        midnight_ns: u64,
        head: &'a [u8],
    },
    Open(Gate),
    Receive(Connection, &'a [u8]),
    Sent(Connection, u32),
    Closed(Connection),
    Tick,
    EndDay,
}

const DAY: u8 = 1;
const OPEN: u8 = 2;
const RECEIVE: u8 = 3;
const SENT: u8 = 4;
const CLOSED: u8 = 5;
const TICK: u8 = 6;
const END_DAY: u8 = 7;

/// Returns the channel of a record, and its `extra`.
fn place_of(connection: Connection) -> (u16, u64) {
    match connection {
        Connection::Native(ConnectionId(number)) => (0, number),
        // The configuration allows fewer than 2^16 users.
        Connection::Ouch { user, connection } => (user as u16 + 1, connection),
    }
}

fn connection_at(channel: u16, number: u64) -> Connection {
    match channel.checked_sub(1) {
        None => Connection::Native(ConnectionId(number)),
        Some(user) => Connection::Ouch { user: usize::from(user), connection: number },
    }
}

impl<'a> Input<'a> {
    /// Appends the input to a journal.
    fn append<D: Disk>(&self, journal: &mut JournalWriter<D>, now_ns: u64) -> Result<u64, JournalError> {
        let plain = |kind| Record { kind, time: now_ns, ..Record::default() };
        let of = |kind, connection| {
            let (channel, extra) = place_of(connection);
            Record { channel, extra, ..plain(kind) }
        };
        match *self {
            Self::Day { is_fresh, midnight_ns, head } => journal.append(&Record {
                line: u8::from(is_fresh),
                extra: midnight_ns,
                payload: head,
                ..plain(DAY)
            }),
            Self::Open(Gate::Native(channel)) => {
                journal.append(&Record { line: u8::from(channel == Channel::Recovery), ..plain(OPEN) })
            }
            Self::Open(Gate::Ouch { user }) => {
                journal.append(&Record { channel: user as u16 + 1, ..plain(OPEN) })
            }
            Self::Receive(connection, payload) => {
                journal.append(&Record { payload, ..of(RECEIVE, connection) })
            }
            Self::Sent(connection, bytes) => {
                journal.append(&Record { payload: &bytes.to_le_bytes(), ..of(SENT, connection) })
            }
            Self::Closed(connection) => journal.append(&of(CLOSED, connection)),
            Self::Tick => journal.append(&plain(TICK)),
            Self::EndDay => journal.append(&plain(END_DAY)),
        }
    }

    /// Parses a record; returns `None` if it is not an input.
    fn read(record: &Record<'a>) -> Option<Self> {
        let connection = connection_at(record.channel, record.extra);
        Some(match record.kind {
            DAY => Self::Day { is_fresh: record.line == 1, midnight_ns: record.extra, head: record.payload },
            OPEN => Self::Open(match (record.channel.checked_sub(1), record.line) {
                (Some(user), _) => Gate::Ouch { user: usize::from(user) },
                (None, 0) => Gate::Native(Channel::RealTime),
                (None, _) => Gate::Native(Channel::Recovery),
            }),
            RECEIVE => Self::Receive(connection, record.payload),
            SENT => Self::Sent(connection, u32::from_le_bytes(record.payload.try_into().ok()?)),
            CLOSED => Self::Closed(connection),
            TICK => Self::Tick,
            END_DAY => Self::EndDay,
            _ => return None,
        })
    }
}

/// Returns the FNV-1a hash of the options' debug output, which differs between configurations. The market-data line and the
/// ledger are left out, because they change no order.
fn fingerprint_of(options: &OrderOptions) -> u64 {
    let text =
        format!("{:?}", OrderOptions { publishes_market: false, keeps_ledger: false, ..options.clone() });
    text.bytes()
        .fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3))
}

/// Returns the head of a day's record: the fingerprint of the configuration, and each native user's password.
fn head_of<'u>(fingerprint: u64, users: impl Iterator<Item = &'u User>) -> Vec<u8> {
    let mut head = fingerprint.to_le_bytes().to_vec();
    for user in users {
        let password = user.credentials.password.as_bytes();
        // A password has at most 25 bytes, or three times as many if it is not representable.
        head.extend_from_slice(&[u8::from(user.must_change_password), password.len() as u8]);
        head.extend_from_slice(password);
    }
    head
}

/// Returns the fingerprint in a day's record.
fn fingerprint_in(head: &[u8]) -> Option<u64> {
    head.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

/// Restores the users' passwords from a day's record.
fn restore_passwords(users: &mut [User], head: &[u8]) {
    let mut rest = head.get(8..).unwrap_or_default();
    for user in users {
        let Some(([must_change, length], after)) = rest.split_first_chunk() else { return };
        let Some((password, after)) = after.split_at_checked(usize::from(*length)) else { return };
        user.must_change_password = *must_change == 1;
        user.credentials.password = String::from_utf8_lossy(password).into_owned();
        rest = after;
    }
}

#[derive(Debug)]
struct Store<D: Disk> {
    setting: StoreSetting,
    journal: JournalWriter<D>,
    /// Bytes of records since the day's first record.
    bytes: u64,
    /// Whether records wait for [`DurableExchange::flush`].
    has_unwritten: bool,
}

/// An exchange and its journal. After a journal error it accepts no further input, and the caller ends it.
#[derive(Debug)]
pub(super) struct DurableExchange<D: Disk> {
    exchange: OrderExchange,
    options: OrderOptions,
    fingerprint: u64,
    store: Option<Store<D>>,
    /// Connections that are not closed.
    open: BTreeSet<Connection>,
    midnight_ns: u64,
    /// When the day started.
    day_ns: u64,
    /// The time of the last input.
    now_ns: u64,
}

impl<D: Disk> DurableExchange<D> {
    /// Restores the exchange from its store, or starts a day. `midnight_ns` is midnight in New York.
    pub(super) fn open(
        options: &OrderOptions,
        setting: Option<&StoreSetting>,
        midnight_ns: u64,
        now_ns: u64,
    ) -> Result<(Self, Recovered), StoreError> {
        let mut durable = Self {
            exchange: OrderExchange::new(&of_day(options, midnight_ns, now_ns), now_ns)?,
            options: options.clone(),
            fingerprint: fingerprint_of(options),
            store: None,
            open: BTreeSet::new(),
            midnight_ns,
            day_ns: now_ns,
            now_ns,
        };
        let Some(setting) = setting else { return Ok((durable, Recovered::default())) };
        let journal = JournalOptions { segment_bytes: SEGMENT_BYTES, keep_bytes: Some(1) };
        let (mut journal, opened) = JournalWriter::open_in(&setting.folder, journal)?;
        journal.need_from(0);
        let mut recovered = Recovered { torn_bytes: opened.torn_bytes, ..Recovered::default() };
        let mut store = Store { setting: setting.clone(), journal, bytes: 0, has_unwritten: false };
        let has_day = durable.replay(&mut store, &mut recovered)?;
        durable.store = Some(store);
        durable.now_ns = durable.now_ns.max(now_ns);
        if has_day {
            // The clients of the previous process are disconnected.
            for connection in durable.open.clone() {
                durable.closed(connection, now_ns)?;
            }
        } else {
            durable.new_day(midnight_ns, now_ns)?;
        }
        durable.flush()?;
        recovered.orders = durable.exchange.engine().orders() as u64;
        Ok((durable, recovered))
    }

    /// Replays the journal from the last day that needs nothing before it. Returns whether there is such a day.
    fn replay(&mut self, store: &mut Store<D>, recovered: &mut Recovered) -> Result<bool, StoreError> {
        let folder = &store.setting.folder;
        let mut reader = JournalReader::<D>::open_in(folder)?;
        // The first fault since the last fresh day; earlier faults do not matter.
        let mut fault = None;
        let mut day = None;
        while let Some(record) = reader.next()? {
            let input = Input::read(&record).filter(|_| record.kind != LOST);
            if let Some(Input::Day { is_fresh: true, head, .. }) = input {
                let is_same = fingerprint_in(head) == Some(self.fingerprint);
                fault = (!is_same).then(|| StoreError::OtherConfiguration { folder: folder.clone() });
                (day, store.bytes, recovered.inputs) = (Some(record.number), 0, 0);
            }
            let number = record.number;
            if day.is_none() || fault.is_some() {
                continue;
            }
            store.bytes += RECORD_BYTES + record.payload.len() as u64;
            match input {
                None => fault = Some(StoreError::Damaged { folder: folder.clone(), record: number }),
                Some(input) => {
                    recovered.inputs += 1;
                    self.apply(&input, record.time)?;
                }
            }
            while self.exchange.next_market().is_some() {}
        }
        if let Some(fault) = fault {
            return Err(fault);
        }
        if let Some(day) = day {
            store.journal.need_from(day);
        }
        Ok(day.is_some())
    }

    /// Returns the exchange.
    pub(super) const fn exchange(&self) -> &OrderExchange {
        &self.exchange
    }

    /// Returns the midnight from which the day's times count.
    pub(super) const fn midnight_ns(&self) -> u64 {
        self.midnight_ns
    }

    /// Returns when the day started.
    pub(super) const fn day_ns(&self) -> u64 {
        self.day_ns
    }

    /// Iterates over the connections that are not closed.
    pub(super) fn connections(&self) -> impl Iterator<Item = Connection> + '_ {
        self.open.iter().copied()
    }

    /// Returns the time of the last input: the process clock never goes back before it.
    pub(super) const fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Returns the next market event.
    pub(super) fn next_market(&mut self) -> Option<MarketEvent> {
        self.exchange.next_market()
    }

    /// Returns the next ledger entry. After a restart from the store, the entries of the whole day are returned again.
    pub(super) fn next_ledger(&mut self) -> Option<LedgerEntry> {
        self.exchange.next_ledger()
    }

    // ---- inputs ----

    fn input(&mut self, input: &Input<'_>, now_ns: u64) -> Result<Option<Connection>, StoreError> {
        if let Some(store) = &mut self.store {
            let number = input.append(&mut store.journal, now_ns)?;
            store.has_unwritten = true;
            let payload = match input {
                Input::Receive(_, bytes) | Input::Day { head: bytes, .. } => bytes.len() as u64,
                _ => 4,
            };
            if matches!(input, Input::Day { is_fresh: true, .. }) {
                store.bytes = 0;
                store.journal.need_from(number);
            }
            store.bytes += RECORD_BYTES + payload;
            if store.bytes > store.setting.most_bytes {
                let folder = store.setting.folder.clone();
                return Err(StoreError::Full { folder, limit: store.setting.most_bytes });
            }
        }
        self.apply(input, now_ns)
    }

    fn apply(&mut self, input: &Input<'_>, now_ns: u64) -> Result<Option<Connection>, StoreError> {
        self.now_ns = self.now_ns.max(now_ns);
        match *input {
            Input::Day { is_fresh, midnight_ns, head } => {
                (self.midnight_ns, self.day_ns) = (midnight_ns, now_ns);
                let mut options = of_day(&self.options, midnight_ns, now_ns);
                if is_fresh {
                    restore_passwords(&mut options.native_users, head);
                    self.exchange = OrderExchange::new(&options, now_ns)?;
                } else {
                    self.exchange.new_day(midnight_ns, options.ouch_session, now_ns);
                }
            }
            Input::Open(gate) => {
                let connection = self.exchange.open(gate, now_ns);
                self.open.extend(connection);
                return Ok(connection);
            }
            Input::Receive(connection, bytes) => self.exchange.receive(connection, bytes, now_ns),
            Input::Sent(connection, bytes) => self.exchange.sent(connection, bytes as usize, now_ns),
            Input::Closed(connection) => {
                self.open.remove(&connection);
                self.exchange.closed(connection, now_ns);
            }
            Input::Tick => self.exchange.tick(now_ns),
            Input::EndDay => self.exchange.end_day(now_ns),
        }
        Ok(None)
    }

    /// Starts the next day, with the orders that remain. All connections must be closed.
    pub(super) fn new_day(&mut self, midnight_ns: u64, now_ns: u64) -> Result<(), StoreError> {
        let head = head_of(self.fingerprint, self.exchange.native().users());
        // Without orders the journal needs nothing from the previous day.
        let is_fresh = self.exchange.engine().orders() == 0;
        self.input(&Input::Day { is_fresh, midnight_ns, head: &head }, now_ns).map(|_| ())
    }

    /// Opens a connection for a client. Returns `None` if there is no such gate.
    pub(super) fn open_connection(
        &mut self,
        gate: Gate,
        now_ns: u64,
    ) -> Result<Option<Connection>, StoreError> {
        self.input(&Input::Open(gate), now_ns)
    }

    /// Processes bytes received on a connection.
    pub(super) fn receive(
        &mut self,
        connection: Connection,
        bytes: &[u8],
        now_ns: u64,
    ) -> Result<(), StoreError> {
        self.input(&Input::Receive(connection, bytes), now_ns).map(|_| ())
    }

    /// Records that this many bytes of the connection's output were sent.
    pub(super) fn sent(
        &mut self,
        connection: Connection,
        bytes: usize,
        now_ns: u64,
    ) -> Result<(), StoreError> {
        // A write has fewer than 2^32 bytes.
        self.input(&Input::Sent(connection, bytes as u32), now_ns).map(|_| ())
    }

    /// Records that a connection is closed.
    pub(super) fn closed(&mut self, connection: Connection, now_ns: u64) -> Result<(), StoreError> {
        self.input(&Input::Closed(connection), now_ns).map(|_| ())
    }

    /// Advances time.
    pub(super) fn tick(&mut self, now_ns: u64) -> Result<(), StoreError> {
        self.input(&Input::Tick, now_ns).map(|_| ())
    }

    /// Ends the day.
    pub(super) fn end_day(&mut self, now_ns: u64) -> Result<(), StoreError> {
        self.input(&Input::EndDay, now_ns).map(|_| ())
    }

    /// Writes the inputs so far to the journal, and syncs them if configured. This must precede sending any of their output.
    pub(super) fn flush(&mut self) -> Result<(), StoreError> {
        let Some(store) = &mut self.store else { return Ok(()) };
        if std::mem::take(&mut store.has_unwritten) {
            if store.setting.syncs && !planted!("exchange-answers-unsynced") {
                store.journal.sync()?
            } else {
                store.journal.flush()?
            }
        }
        Ok(())
    }
}

/// Returns the options of the day that starts now: OUCH sessions have a new name each day.
fn of_day(options: &OrderOptions, midnight_ns: u64, now_ns: u64) -> OrderOptions {
    // Uses hundredths of a second, so that two starts have different names.
    let mut ouch_session = digits((now_ns / 10_000_000) as u32).0;
    ouch_session[..2].copy_from_slice(b"TW");
    OrderOptions { midnight_ns, ouch_session, ..options.clone() }
}
