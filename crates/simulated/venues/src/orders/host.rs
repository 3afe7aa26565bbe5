//! The thread of an exchange: its listeners, its connections, its clock, and its market-data line.
//!
//! The thread sleeps until a socket is ready or something is due. A turn reads at most one buffer from each connection. The
//! inputs of a turn are journaled before any output is sent. The sessions bound a connection's output: a client that reads too
//! slowly is disconnected, and recovers the reports that it missed. When there are too many connections, the oldest one without a
//! logon is closed.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use jiff::civil::Time;
use jiff::tz::TimeZone;
use mio::{Interest, Token};
use tapeworks_generator::itch_line::ItchLine;
use tapeworks_matching::orders::{Connection, Gate};
use tapeworks_runtime::pump::{ByteSession, Pump};
use tapeworks_runtime::refusals::Refusals;
use tapeworks_runtime::world::{
    Listener as _, Poll as _, Receive as _, SendTo as _, Source as _, Stream as _, Wake as _, World,
};
use tapeworks_time::Nanos;
use tapeworks_time::clock;

use super::durable::DurableExchange;
use super::shared::{Counters, Shared};
use crate::error::{StoreError, VenuesError};
use crate::servers::{ImageReply, ImageRequest};
use crate::wires::Wires;

/// Maximum number of connections accepted per listener and turn.
const MOST_IN_TURN: usize = 64;
/// Longest interval at which sessions are informed of the time.
const TICK_NS: u64 = 1_000_000_000;
/// How often to check the time limits of closing connections, and to retry listeners that could not accept.
const CLOSING_TICK_NS: u64 = 100_000_000;
/// Shortest interval at which the counters are published.
const PROGRESS_NS: u64 = 20_000_000;
/// Bytes per read from a connection that is not logged on: more than a logon, but little in the journal.
const STRANGER_BYTES: usize = 512;
/// Bytes per read.
const BUFFER_BYTES: usize = 64 << 10;

pub(super) const WAKER: Token = Token(0);

/// A connection of the exchange.
struct Client<W: World> {
    /// `None` after the exchange has ended the connection, while its socket is being closed.
    connection: Option<Connection>,
    pump: Pump<W>,
    address: SocketAddr,
}

/// A connection, as its pump sees it.
struct Served<'e, W: World> {
    exchange: &'e mut DurableExchange<W>,
    connection: Connection,
    /// Whether the socket is closed.
    is_closed: bool,
    now_ns: u64,
    failure: Option<StoreError>,
}

impl<W: World> Served<'_, W> {
    fn note(&mut self, done: Result<(), StoreError>) {
        self.failure = self.failure.take().or(done.err());
    }
}

impl<W: World> ByteSession for Served<'_, W> {
    fn receive(&mut self, bytes: &[u8], now_ns: u64) {
        let done = self.exchange.receive(self.connection, bytes, now_ns);
        self.note(done);
    }

    fn fill(&mut self, _now_ns: u64) {
        if self.failure.is_none() {
            let done = self.exchange.flush();
            self.note(done);
        }
    }

    fn output(&self) -> &[u8] {
        // Nothing is sent unless its cause is in the journal.
        if self.failure.is_some() { &[] } else { self.exchange.exchange().output(self.connection) }
    }

    fn sent(&mut self, bytes: usize, now_ns: u64) {
        let done = self.exchange.sent(self.connection, bytes, now_ns);
        self.note(done);
    }

    fn closed(&mut self) {
        self.is_closed = true;
        let done = self.exchange.closed(self.connection, self.now_ns);
        self.note(done);
    }

    fn is_over(&self) -> bool {
        self.is_closed || self.failure.is_some() || self.exchange.exchange().over(self.connection)
    }
}

/// The market-data side of an exchange.
pub(super) struct Publication<W: World> {
    pub(super) line: ItchLine,
    pub(super) wires: Wires<W>,
    pub(super) requests: W::Receiver<ImageRequest>,
    pub(super) reply: W::Sender<ImageReply>,
    /// Wakes the thread that serves retransmission and snapshots.
    pub(super) servers: Arc<W::Waker>,
}

/// The initial state of the thread.
pub(super) struct Host<W: World> {
    pub(super) name: String,
    pub(super) poll: W::Poll,
    pub(super) listeners: Vec<(Gate, W::Listener)>,
    pub(super) exchange: DurableExchange<W>,
    pub(super) publication: Option<Publication<W>>,
    pub(super) most_connections: usize,
    pub(super) refusals: Refusals,
    pub(super) shared: Arc<Shared>,
    /// When the day ends, in local time.
    pub(super) day_ends: Option<(Time, TimeZone)>,
    /// From the end of a day to the start of the next, in nanoseconds.
    pub(super) day_pause_ns: u64,
    /// The start by both clocks. The time of day is not before the last input in the store.
    pub(super) start: Instant,
    pub(super) start_utc_ns: u64,
}

/// The thread's state.
struct Running<W: World> {
    host: Host<W>,
    clients: BTreeMap<usize, Client<W>>,
    next_client: usize,
    /// Listeners that have more connections, or could not accept.
    waiting_listeners: Vec<usize>,
    buffer: Vec<u8>,
    ticked_ns: u64,
    /// When the day ends or the next one starts; `u64::MAX` means never.
    day_due_ns: u64,
    counters: Counters,
    days: u64,
    /// When the counters were last published, and whether they may have changed since.
    published_ns: u64,
    has_news: bool,
}

impl<W: World> Host<W> {
    /// Runs until it is stopped or fails.
    pub(super) fn run(self) -> Result<(), VenuesError> {
        let name = self.name.clone();
        Running::new(self).run().map_err(|failure| match failure {
            Failure::Store(cause) => VenuesError::Store { exchange: name, cause },
            Failure::Sockets(cause) => VenuesError::Sockets { exchange: name, cause },
        })
    }
}

enum Failure {
    Store(StoreError),
    Sockets(std::io::Error),
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::Sockets(error)
    }
}

impl<W: World> Running<W> {
    fn new(host: Host<W>) -> Self {
        let next_client = 1 + host.listeners.len();
        let now_ns = host.exchange.now_ns();
        Self {
            clients: BTreeMap::new(),
            next_client,
            waiting_listeners: Vec::new(),
            buffer: vec![0; BUFFER_BYTES],
            ticked_ns: now_ns,
            day_due_ns: u64::MAX,
            counters: Counters::default(),
            days: 1,
            published_ns: 0,
            has_news: true,
            host,
        }
    }

    /// Returns the time of day at the start plus the monotonic time since.
    fn now_ns(&self) -> u64 {
        let since_ns = u64::try_from(W::since(self.host.start).as_nanos()).unwrap_or(u64::MAX);
        self.host.start_utc_ns.saturating_add(since_ns)
    }

    fn run(mut self) -> Result<(), Failure> {
        let mut ready = Vec::with_capacity(256);
        self.plan_day();
        self.begin_line();
        // A restored store has the entries of the day.
        self.publish_ledger();
        self.publish_progress();
        while !self.host.shared.stop.load(Ordering::Acquire) {
            let wait = self.wait();
            let for_progress = self.wait_for_progress(wait);
            self.host.poll.wait(&mut ready, Some(for_progress))?;
            self.has_news |= !ready.is_empty() || for_progress == wait;
            let mut listeners = std::mem::take(&mut self.waiting_listeners);
            for one in &ready {
                if let Some(client) = self.clients.get_mut(&one.token.0) {
                    client.pump.note(*one);
                } else if one.token != WAKER && one.token.0 <= self.host.listeners.len() {
                    listeners.push(one.token.0 - 1);
                }
            }
            let now_ns = self.now_ns();
            if self.tick_due_ns() <= now_ns {
                self.ticked_ns = now_ns;
                self.host.exchange.tick(now_ns)?;
            }
            self.turn_day(now_ns)?;
            for listener in listeners {
                self.accept(listener)?;
            }
            self.move_bytes(now_ns)?;
            self.host.exchange.flush()?;
            self.publish_ledger();
            self.publish_market(now_ns);
            self.serve_images(now_ns);
        }
        let now_ns = self.now_ns();
        if let Some(Publication { line, wires, .. }) = &mut self.host.publication {
            line.end_session(now_ns, wires);
            wires.send();
        }
        self.publish_progress();
        Ok(())
    }

    /// Returns when the exchange next needs a tick.
    fn tick_due_ns(&self) -> u64 {
        let exchange = self.host.exchange.exchange();
        let every_ns = exchange.sessions_every_ns().clamp(1_000_000, TICK_NS);
        let sessions_ns =
            if self.clients.is_empty() { u64::MAX } else { self.ticked_ns.saturating_add(every_ns) };
        // Anything that stays due is retried at most once per millisecond.
        exchange.due_ns().max(self.ticked_ns.saturating_add(1_000_000)).min(sessions_ns)
    }

    /// Returns how long to wait for sockets.
    fn wait(&self) -> Duration {
        let has_work = self.clients.values().any(|client| match client.connection {
            Some(connection) => {
                let exchange = self.host.exchange.exchange();
                client.pump.has_work(exchange.output(connection)) || exchange.over(connection)
            }
            None => false,
        });
        if has_work {
            return Duration::ZERO;
        }
        let now_ns = self.now_ns();
        let mut due_ns = self.tick_due_ns().min(self.day_due_ns);
        if let Some(publication) = &self.host.publication {
            due_ns = due_ns.min(publication.line.due_ns());
        }
        let is_closing = self.clients.values().any(|client| client.connection.is_none());
        if is_closing || !self.waiting_listeners.is_empty() {
            due_ns = due_ns.min(now_ns.saturating_add(CLOSING_TICK_NS));
        }
        // The waker ends the wait, so it may be long.
        Duration::from_nanos(due_ns.saturating_sub(now_ns)).min(Duration::from_secs(3_600))
    }

    /// Publishes the counters before a wait, or shortens the wait until they are due.
    fn wait_for_progress(&mut self, wait: Duration) -> Duration {
        if wait.is_zero() || !self.has_news {
            return wait;
        }
        let due_ns = self.published_ns.saturating_add(PROGRESS_NS);
        let now_ns = self.now_ns();
        if due_ns > now_ns {
            return wait.min(Duration::from_nanos(due_ns - now_ns));
        }
        self.publish_progress();
        wait
    }

    // ---- connections ----

    fn accept(&mut self, place: usize) -> Result<(), StoreError> {
        for _ in 0..MOST_IN_TURN {
            let Some((gate, listener)) = self.host.listeners.get(place) else { return Ok(()) };
            let (gate, accepted) = (*gate, listener.accept());
            let (mut stream, address) = match accepted {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error)
                    if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) =>
                {
                    continue;
                }
                Err(_) => {
                    // There are no descriptors left; one may become free later.
                    self.counters.not_accepted += 1;
                    break;
                }
            };
            self.counters.connections += 1;
            let now_ns = self.now_ns();
            if self.clients.len() >= self.host.most_connections && !self.drop_a_stranger(now_ns)? {
                self.counters.refused += 1;
                self.host.refusals.refused(address, &"too many connections", now_ns);
                continue;
            }
            let token = Token(self.next_client);
            // Small messages are sent immediately; if this fails, they are delayed.
            let _ = stream.set_nodelay(true);
            if stream.register(&self.host.poll, token, Interest::READABLE | Interest::WRITABLE).is_err() {
                self.counters.refused += 1;
                continue;
            }
            let Some(connection) = self.host.exchange.open_connection(gate, now_ns)? else { continue };
            self.next_client += 1;
            let client = Client { connection: Some(connection), pump: Pump::new(stream), address };
            self.clients.insert(token.0, client);
        }
        self.waiting_listeners.push(place);
        Ok(())
    }

    /// Closes the oldest connection that is not logged on or is already closing. Returns whether there was one.
    fn drop_a_stranger(&mut self, now_ns: u64) -> Result<bool, StoreError> {
        let exchange = self.host.exchange.exchange();
        let is_user =
            |client: &Client<W>| client.connection.is_some_and(|connection| exchange.is_admitted(connection));
        let oldest = self.clients.iter().find(|(_, client)| !is_user(client)).map(|(number, _)| *number);
        let Some(mut client) = oldest.and_then(|number| self.clients.remove(&number)) else {
            return Ok(false);
        };
        // Closing the socket deregisters it in any case.
        let _ = client.pump.stream().deregister(&self.host.poll);
        if let Some(connection) = client.connection {
            self.counters.refused += 1;
            let reason = &"closed before its logon, for a newer connection";
            self.host.refusals.refused(client.address, reason, now_ns);
            self.host.exchange.closed(connection, now_ns)?;
        }
        Ok(true)
    }

    /// Reads from the sockets into the sessions, and writes the sessions' output.
    fn move_bytes(&mut self, now_ns: u64) -> Result<(), StoreError> {
        let Self { host, clients, buffer, counters, .. } = self;
        let mut gone = Vec::new();
        for (number, client) in clients.iter_mut() {
            let Some(connection) = client.connection else {
                if !client.pump.drain(buffer, now_ns) {
                    gone.push(*number);
                }
                continue;
            };
            let mut is_closed = false;
            if client.pump.has_work(host.exchange.exchange().output(connection)) {
                let is_user = host.exchange.exchange().is_admitted(connection);
                let most = if is_user { buffer.len() } else { STRANGER_BYTES };
                let buffer = buffer.get_mut(..most).unwrap_or_default();
                let mut served =
                    Served { exchange: &mut host.exchange, connection, is_closed, now_ns, failure: None };
                client.pump.turn(&mut served, buffer, now_ns);
                is_closed = served.is_closed;
                if let Some(failure) = served.failure {
                    return Err(failure);
                }
            }
            if is_closed {
                counters.ended += 1;
                gone.push(*number);
                continue;
            }
            let Some(end) = host.exchange.exchange().end_of(connection) else { continue };
            counters.ended += 1;
            counters.too_slow += u64::from(end.is_too_slow());
            counters.timed_out += u64::from(end.is_timed_out());
            if !end.is_by_client() {
                host.refusals.refused(client.address, &end, now_ns);
            }
            host.exchange.closed(connection, now_ns)?;
            client.connection = None;
            if end.is_too_slow() || !client.pump.finish(now_ns) {
                gone.push(*number);
            }
        }
        for number in gone {
            if let Some(mut client) = clients.remove(&number) {
                // Closing the socket deregisters it in any case.
                let _ = client.pump.stream().deregister(&host.poll);
            }
        }
        Ok(())
    }

    // ---- days ----

    /// Schedules the end of the day, or the start of the next.
    fn plan_day(&mut self) {
        let Host { exchange, day_ends, day_pause_ns, .. } = &self.host;
        self.day_due_ns = if exchange.exchange().is_day_over() {
            exchange.now_ns().saturating_add(*day_pause_ns)
        } else {
            day_ends
                .as_ref()
                .and_then(|(time, zone)| next_time(*time, zone, exchange.day_ns()))
                .unwrap_or(u64::MAX)
        };
    }

    /// Ends the day or starts the next one, if it is due or the handle requests the end.
    fn turn_day(&mut self, now_ns: u64) -> Result<(), StoreError> {
        let is_wanted = self.host.shared.end_day.swap(false, Ordering::AcqRel);
        let is_over = self.host.exchange.exchange().is_day_over();
        if !is_over && (is_wanted || self.day_due_ns <= now_ns) {
            self.host.exchange.end_day(now_ns)?;
            self.plan_day();
            self.host.exchange.flush()?;
            self.publish_market(now_ns);
            if let Some(Publication { line, wires, .. }) = &mut self.host.publication {
                line.end_session(now_ns, wires);
                wires.send();
            }
        } else if is_over && self.day_due_ns <= now_ns {
            self.new_day(now_ns)?;
        }
        Ok(())
    }

    /// Closes all connections, and starts the next day.
    fn new_day(&mut self, now_ns: u64) -> Result<(), StoreError> {
        for client in self.clients.values_mut() {
            if client.connection.take().is_some() {
                self.counters.ended += 1;
                // If the shutdown fails, the connection closes after its time limit.
                let _ = client.pump.finish(now_ns);
            }
        }
        let open: Vec<Connection> = self.host.exchange.connections().collect();
        for connection in open {
            self.host.exchange.closed(connection, now_ns)?;
        }
        let midnight =
            clock::midnight_before(Nanos(now_ns)).map_or(self.host.exchange.midnight_ns(), |time| time.0);
        self.host.exchange.new_day(midnight, now_ns)?;
        self.days += 1;
        self.plan_day();
        self.host.exchange.flush()?;
        self.begin_line();
        Ok(())
    }

    // ---- the market-data line ----

    fn begin_line(&mut self) {
        let now_ns = self.now_ns();
        let Host { exchange, publication, .. } = &mut self.host;
        if exchange.exchange().is_day_over() {
            return;
        }
        // The state of the books includes all earlier events.
        while exchange.next_market().is_some() {}
        if let Some(Publication { line, wires, .. }) = publication {
            line.begin_session(exchange.exchange().engine(), exchange.midnight_ns(), now_ns, wires);
            wires.send();
        }
    }

    fn publish_market(&mut self, now_ns: u64) {
        let Host { exchange, publication, .. } = &mut self.host;
        let Some(Publication { line, wires, .. }) = publication else { return };
        while let Some(event) = exchange.next_market() {
            line.publish(&event, wires);
        }
        line.flush(now_ns, wires);
        wires.send();
    }

    /// Answers all waiting requests for the state with a single image.
    fn serve_images(&mut self, now_ns: u64) {
        let Host { exchange, publication, .. } = &mut self.host;
        let Some(Publication { line, requests, reply, servers, .. }) = publication else { return };
        let mut image = None;
        while let Ok(request) = requests.try_recv() {
            let image =
                image.get_or_insert_with(|| Arc::new(line.image(exchange.exchange().engine(), now_ns)));
            // The server may have ended.
            let _ = reply.send(ImageReply { connection: request.connection, image: Arc::clone(image) });
        }
        if image.is_some() {
            // If this fails, the thread notices within a tenth of a second.
            let _ = servers.wake();
        }
    }

    /// Publishes the ledger entries of inputs that are stored.
    fn publish_ledger(&mut self) {
        let Host { exchange, shared, .. } = &mut self.host;
        shared.enter(std::iter::from_fn(|| exchange.next_ledger()));
    }

    fn publish_progress(&mut self) {
        (self.published_ns, self.has_news) = (self.now_ns(), false);
        let exchange = self.host.exchange.exchange();
        let clients = self.clients.values().filter_map(|client| client.connection);
        self.counters.open = clients.clone().count() as u64;
        self.counters.logged_on =
            clients.filter(|connection| exchange.is_admitted(*connection)).count() as u64;
        self.host.shared.set(
            exchange,
            self.counters,
            self.days,
            self.host.publication.as_ref().map(|publication| {
                (
                    publication.line.report(),
                    publication.wires.refused().into_iter().next().unwrap_or_default(),
                )
            }),
        );
    }
}

/// Returns the next occurrence of a local time after a moment.
fn next_time(time: Time, zone: &TimeZone, after_ns: u64) -> Option<u64> {
    let after = Timestamp::from_nanosecond(i128::from(after_ns)).ok()?;
    let today = after.to_zoned(zone.clone()).date();
    [today, today.tomorrow().ok()?].into_iter().find_map(|date| {
        let next = date.to_datetime(time).to_zoned(zone.clone()).ok()?.timestamp();
        u64::try_from(next.as_nanosecond()).ok().filter(|next_ns| *next_ns > after_ns)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_ends_at_the_next_local_time_also_when_the_clocks_change() {
        let london = TimeZone::get("Europe/London").unwrap();
        let at = |text: &str| text.parse::<Timestamp>().unwrap().as_nanosecond() as u64;
        let end: Time = "17:30".parse().unwrap();
        for (after, expected) in [
            ("2026-11-24T09:00:00Z", "2026-11-24T17:30:00Z"),
            ("2026-11-24T17:30:00Z", "2026-11-25T17:30:00Z"),
            ("2026-11-24T17:29:59.999999999Z", "2026-11-24T17:30:00Z"),
            // Summer time begins on the 29th of March, and ends on the 25th of October.
            ("2026-03-28T18:00:00Z", "2026-03-29T16:30:00Z"),
            ("2026-10-24T18:00:00Z", "2026-10-25T17:30:00Z"),
        ] {
            assert_eq!(next_time(end, &london, at(after)), Some(at(expected)), "{after}");
        }
    }
}
