//! One client: its subscriptions, its queue, and its slow-reader policy.

use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use fixedbitset::FixedBitSet;
use tapeworks_market::{Event, InstrumentId, Symbol};
use tapeworks_store::Schema;
use tapeworks_store::live::{self, Batch, ErrorCode, HeadError, Item, SystemCode};
use tapeworks_time::Nanos;

use super::super::control::{Admitted, Session, SlowReader};
use super::super::outbox::Outbox;
use super::super::replay::Replay;
use super::Counters;
use super::agenda::Agenda;
use super::interest::insert;
use super::lag::{Conflated, Lag, is_of_quotes};
use super::subscribed::{Subscribed, Wanting};
use tapeworks_engine::replica::place_of;
use tapeworks_planted::planted;
use tapeworks_runtime::keys::Keys;
use tapeworks_runtime::transport::Transport;
use tapeworks_runtime::world::World;

/// The time by two clocks.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Clocks {
    /// The wall clock, for records and messages. It never goes back: if the clock is set back, this time stands still until the
    /// clock has caught up.
    pub(super) wall: Nanos,
    /// A clock that cannot be set, for durations.
    pub(super) steady: Nanos,
}

/// The phase of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// The client has not authenticated, or its stream has not begun.
    Opening,
    /// Records are sent.
    Live {
        /// Whether the session is to end, because the client is too slow or its queue has failed.
        is_over: bool,
    },
    /// The client is sent the reason for the end of its session.
    Closing {
        /// When it is disconnected at the latest, by the steady clock.
        until: Nanos,
        /// Whether everything was sent and the stream was finished.
        is_shut: bool,
    },
}

/// The state of a client, for display.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClientState {
    /// It has not authenticated.
    Connected,
    /// It has authenticated and may subscribe.
    Admitted,
    /// A replay is running.
    Replaying,
    /// It receives live records.
    Live,
    /// It receives live records, and is slow.
    Slow,
    /// Its session is ending.
    Closing,
}

impl ClientState {
    /// Returns its name in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Connected => "connected",
            Self::Admitted => "admitted",
            Self::Replaying => "replaying",
            Self::Live => "live",
            Self::Slow => "slow",
            Self::Closing => "closing",
        }
    }
}

/// A client as metrics and pages show it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientView {
    /// The number of its session, from 1.
    pub session: u64,
    /// The name that it sent.
    pub name: String,
    /// Its address.
    pub address: SocketAddr,
    /// The name of its key; empty before authentication.
    pub key: String,
    /// Its dataset; empty before authentication.
    pub dataset: String,
    /// Schemas it has subscribed to.
    pub schemas: Vec<Schema>,
    /// Its state.
    pub state: ClientState,
    /// Its slow-reader policy.
    pub slow_reader: SlowReader,
    /// When it connected.
    pub since: Nanos,
    /// Records queued for it.
    pub records: u64,
    /// Bytes written to its socket.
    pub bytes: u64,
    /// Bytes queued for it.
    pub queued_bytes: usize,
    /// Its pending requests.
    pub requests: usize,
    /// Nanoseconds since its queue was last empty.
    pub lag_ns: u64,
    /// Records skipped.
    pub skipped: u64,
    /// Records replaced by later ones of the same instrument.
    pub conflated: u64,
}

/// A connection and its state.
#[derive(Debug)]
pub(super) struct Client<W: World> {
    pub(super) transport: Transport<W::Stream>,
    pub(super) session: Session,
    pub(super) phase: Phase,
    pub(super) replay: Option<Replay<W>>,
    /// Its pending requests.
    pub(super) agenda: Agenda,
    /// Whether the socket may take bytes.
    pub(super) is_writable: bool,
    /// Whether the socket may have bytes.
    pub(super) is_readable: bool,
    pub(super) subscribed: Subscribed,
    /// Who the client is.
    peer: Peer,
    /// Instruments whose symbols were sent.
    named: FixedBitSet,
    outbox: Outbox,
    kept: Kept,
    lag: Lag,
    times: Times,
    counts: Counts,
}

/// The client behind a connection, and what it may see.
#[derive(Debug)]
struct Peer {
    address: SocketAddr,
    id: u64,
    since: Nanos,
    admitted: Option<Admitted>,
    /// The feeds that it may see; all if there are none.
    publishers: Vec<u16>,
}

/// Live records, while a replay catches up with them.
#[derive(Debug, Default)]
struct Kept {
    bytes: Vec<u8>,
    count: u64,
}

/// When a client was last served.
#[derive(Debug)]
struct Times {
    /// When bytes were last sent, by the steady clock.
    last_sent: Nanos,
    /// When the queue was last empty, by the steady clock.
    last_empty: Nanos,
    /// When the current turn began.
    turn: Nanos,
}

/// Totals for display.
#[derive(Debug, Default)]
struct Counts {
    records: u64,
    bytes: u64,
    skipped: u64,
    conflated: u64,
}

/// Returns the bytes of a batch for every client that takes all of it.
pub(super) fn shared(batch: &Batch, has_ts_out: bool, now: Nanos) -> Bytes {
    if !has_ts_out {
        return Bytes::copy_from_slice(batch.bytes());
    }
    let items = batch.items();
    let mut bytes = Vec::with_capacity(batch.bytes().len() + items.len() * live::TS_OUT_BYTES);
    items.iter().for_each(|item| live::with_ts_out(batch.record(item), now, &mut bytes));
    bytes.into()
}

/// Iterates over the records in `bytes`: the first byte of each is its length in 32-bit words.
fn records_of(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let length = usize::from(*rest.first()?) * 4;
        let (record, after) = rest.split_at_checked(length).filter(|_| length > 0)?;
        rest = after;
        Some(record)
    })
}

impl<W: World> Client<W> {
    pub(super) fn new(
        transport: Transport<W::Stream>,
        address: SocketAddr,
        id: u64,
        session: Session,
        now: Clocks,
    ) -> Self {
        let mut outbox = Outbox::new();
        outbox.own().extend_from_slice(session.greeting().as_bytes());
        Self {
            transport,
            session,
            phase: Phase::Opening,
            replay: None,
            agenda: Agenda::default(),
            is_writable: true,
            is_readable: true,
            subscribed: Subscribed::new(),
            peer: Peer { address, id, since: now.wall, admitted: None, publishers: Vec::new() },
            named: FixedBitSet::new(),
            outbox,
            kept: Kept::default(),
            lag: Lag::default(),
            times: Times { last_sent: now.steady, last_empty: now.steady, turn: now.wall },
            counts: Counts::default(),
        }
    }

    pub(super) const fn id(&self) -> u64 {
        self.peer.id
    }

    pub(super) const fn address(&self) -> SocketAddr {
        self.peer.address
    }

    /// Returns the index of its key, once it has authenticated.
    pub(super) fn key(&self) -> Option<usize> {
        self.peer.admitted.as_ref().map(|admitted| admitted.key)
    }

    pub(super) fn has_ts_out(&self) -> bool {
        self.peer.admitted.as_ref().is_some_and(|admitted| admitted.has_ts_out)
    }

    fn slow_reader(&self) -> SlowReader {
        self.peer.admitted.as_ref().map_or(SlowReader::Warn, |admitted| admitted.slow_reader)
    }

    pub(super) fn is_started(&self) -> bool {
        matches!(self.phase, Phase::Live { .. })
    }

    /// Returns whether records are sent and the session is not about to end.
    const fn is_taking(&self) -> bool {
        matches!(self.phase, Phase::Live { is_over: false })
    }

    /// Makes the session end after this turn's writing.
    const fn give_up(&mut self) {
        if let Phase::Live { is_over } = &mut self.phase {
            *is_over = true;
        }
    }

    /// Returns the bytes that are queued or kept for it.
    pub(super) fn waiting(&self) -> usize {
        self.outbox.len() + self.kept.bytes.len()
    }

    /// Returns the bytes queued to be sent.
    pub(super) fn queued(&self) -> usize {
        self.outbox.len()
    }

    /// Returns whether it has received everything.
    pub(super) fn has_all(&self) -> bool {
        self.waiting() == 0
            && self.transport.is_settled()
            && self.replay.is_none()
            && self.agenda.is_empty()
            && !self.lag.is_behind()
    }

    /// Returns the bytes queued because records came faster than it reads.
    fn backlog(&self) -> usize {
        self.outbox.len().saturating_sub(self.lag.allowance)
    }

    /// Returns the bytes that are queued in bulk, such as snapshots.
    pub(super) fn snapshot_bytes(&self) -> usize {
        self.lag.allowance
    }

    /// Queues the records of a part of a snapshot.
    pub(super) fn put_snapshot(&mut self, batch: &Batch, now: Nanos, counters: &mut Counters) {
        let before = self.outbox.len();
        for item in batch.items() {
            if self.sees(item.publisher) {
                self.put_record(batch.record(item), now, counters);
            }
        }
        self.lag.allowance += self.outbox.len() - before;
    }

    /// Returns whether it may see records of this feed.
    pub(super) fn sees(&self, publisher: u16) -> bool {
        self.peer.publishers.is_empty() || self.peer.publishers.contains(&publisher)
    }

    pub(super) fn publishers(&self) -> &[u16] {
        &self.peer.publishers
    }

    pub(super) const fn is_of_some_feeds(&self) -> bool {
        !self.peer.publishers.is_empty()
    }

    pub(super) fn view(&self, now: Clocks, keys: &Keys) -> ClientView {
        let state = match (&self.peer.admitted, self.phase) {
            (_, Phase::Closing { .. }) => ClientState::Closing,
            (None, _) => ClientState::Connected,
            (_, Phase::Opening) => ClientState::Admitted,
            (_, Phase::Live { .. }) if self.replay.is_some() => ClientState::Replaying,
            _ if self.lag.is_slow() => ClientState::Slow,
            _ => ClientState::Live,
        };
        let admitted = self.peer.admitted.as_ref();
        let has = |schema: &Schema| self.subscribed.get(place_of(*schema)).is_some();
        let key = admitted.and_then(|admitted| keys.get(admitted.key));
        ClientView {
            session: self.peer.id,
            name: admitted.map(|admitted| admitted.client.clone()).unwrap_or_default(),
            address: self.peer.address,
            key: key.map(|key| key.name.clone()).unwrap_or_default(),
            dataset: admitted.map(|admitted| admitted.dataset.clone()).unwrap_or_default(),
            schemas: Schema::ALL.into_iter().filter(has).collect(),
            state,
            slow_reader: self.slow_reader(),
            since: self.peer.since,
            records: self.counts.records,
            bytes: self.counts.bytes,
            queued_bytes: self.waiting(),
            requests: self.agenda.len(),
            lag_ns: if self.outbox.is_empty() { 0 } else { now.steady.since(self.times.last_empty) },
            skipped: self.counts.skipped,
            conflated: self.counts.conflated,
        }
    }

    pub(super) fn admit(&mut self, admitted: Admitted, publishers: Vec<u16>) {
        self.outbox.own().extend_from_slice(Session::admission(self.peer.id).as_bytes());
        self.peer.admitted = Some(admitted);
        self.peer.publishers = publishers;
    }

    /// Queues a line of text.
    pub(super) fn say(&mut self, line: &str) {
        self.outbox.own().extend_from_slice(line.as_bytes());
    }

    /// Begins the stream, if it has not begun.
    pub(super) fn begin(&mut self, now: Clocks) -> Result<(), HeadError> {
        let (Some(admitted), Phase::Opening) = (&self.peer.admitted, self.phase) else { return Ok(()) };
        self.phase = Phase::Live { is_over: false };
        self.times.last_sent = now.steady;
        let mut head = Vec::new();
        live::head(&admitted.dataset, now.wall, admitted.has_ts_out, &mut head)?;
        if admitted.is_compressed && self.outbox.compress().is_err() {
            self.phase = Phase::Live { is_over: true };
        }
        self.outbox.own().extend_from_slice(&head);
        Ok(())
    }

    /// Sends the queued records until `until` at the latest, and accepts no more.
    pub(super) fn leave(&mut self, until: Nanos) {
        if !matches!(self.phase, Phase::Closing { .. }) {
            self.phase = Phase::Closing { until, is_shut: false };
        }
        self.replay = None;
        self.agenda = Agenda::default();
        self.kept = Kept::default();
        self.lag.conflated = Conflated::default();
        self.subscribed.clear();
    }

    /// Drops its queued records except those in transmission, so that it reads whole records and then the reason why its session
    /// ends. Returns the number of bytes dropped.
    pub(super) fn drop_waiting(&mut self) -> usize {
        self.lag.allowance = 0;
        self.outbox.cut()
    }

    pub(super) const fn is_leaving(&self) -> bool {
        matches!(self.phase, Phase::Closing { .. })
    }

    pub(super) fn is_past_farewell(&self, now: Clocks) -> bool {
        matches!(self.phase, Phase::Closing { until, .. } if now.steady >= until)
    }

    /// Returns whether it gets all records of its one schema, without excluding any feed, instrument or time.
    pub(super) fn can_share(&self) -> bool {
        self.peer.publishers.is_empty()
            && self.replay.is_none()
            && self
                .subscribed
                .interests()
                .all(|(_, interest)| interest.excluded.is_clear() && interest.groups.len() == 1)
    }

    /// Sends an instrument's symbol, unless it was sent before.
    pub(super) fn name(&mut self, now: Nanos, instrument: InstrumentId, symbol: Symbol, by_number: bool) {
        if !self.named.contains(instrument.index()) {
            insert(&mut self.named, instrument);
            self.notify(|bytes| live::symbol_mapping(now, instrument, symbol, by_number, bytes));
        }
    }

    /// Sends a new instrument's symbol before its records.
    pub(super) fn send_mapping(
        &mut self,
        wanting: Wanting,
        now: Nanos,
        instrument: InstrumentId,
        symbol: Symbol,
    ) {
        if wanting == Wanting::Now {
            self.name(now, instrument, symbol, false);
        } else if !self.named.contains(instrument.index()) {
            insert(&mut self.named, instrument);
            live::symbol_mapping(now, instrument, symbol, false, &mut self.kept.bytes);
        }
    }

    /// Queues a message about the session. The queue has room for it.
    pub(super) fn notify(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        if self.has_ts_out() {
            let mut record = Vec::new();
            write(&mut record);
            live::with_ts_out(&record, self.times.turn, self.outbox.own());
        } else {
            write(self.outbox.own());
        }
    }

    /// Reports a gap at the event with this number, if the client gets that event's records. If all its subscriptions are being
    /// replayed, the report is kept until the end of the replay.
    pub(super) fn report_live_gap(
        &mut self,
        number: u64,
        event: &Event,
        text: &str,
        limit: usize,
        counters: &mut Counters,
    ) {
        let Some(is_replayed) = self.subscribed.is_replayed(number).filter(|_| self.is_started()) else {
            return;
        };
        if is_replayed && self.replay.is_some() {
            if self.sees(event.publisher.0) {
                live::system(event.ts_recv, SystemCode::Other, text, &mut self.kept.bytes);
                counters.gaps += 1;
            }
        } else {
            self.report_gap(event, text, counters);
        }
        // Records that a slow client skips leave no room for its gap reports, so they get the same limit again.
        if self.backlog() + self.kept.bytes.len() > 2 * limit {
            self.give_up();
        }
    }

    /// Reports a gap, if the client may see that feed.
    pub(super) fn report_gap(&mut self, event: &Event, text: &str, counters: &mut Counters) {
        if self.sees(event.publisher.0) {
            self.notify(|bytes| live::system(event.ts_recv, SystemCode::Other, text, bytes));
            counters.gaps += 1;
        }
    }

    /// Queues a record.
    pub(super) fn put_record(&mut self, record: &[u8], now: Nanos, counters: &mut Counters) {
        if self.has_ts_out() {
            live::with_ts_out(record, now, self.outbox.own());
        } else {
            self.outbox.own().extend_from_slice(record);
        }
        self.counts.records += 1;
        counters.records += 1;
    }

    /// Queues several records.
    pub(super) fn put_records(&mut self, bytes: &[u8], count: u64, now: Nanos, counters: &mut Counters) {
        if self.has_ts_out() {
            records_of(bytes).for_each(|record| live::with_ts_out(record, now, self.outbox.own()));
        } else {
            self.outbox.own().extend_from_slice(bytes);
        }
        self.counts.records += count;
        counters.records += count;
    }

    /// Returns whether the records of `batch` can be queued as they are.
    pub(super) fn takes_whole(&self, of_schema: usize, batch: &Batch, limit: usize) -> bool {
        let first = batch.items().first().map_or(0, |item| item.event);
        let groups = self.subscribed.get(of_schema).map(|interest| &interest.groups[..]);
        self.is_taking()
            && !self.lag.is_behind()
            && self.backlog() + batch.bytes().len() <= limit / 8
            && matches!(groups, Some([group]) if group.is_all && group.from <= first)
    }

    pub(super) fn take_whole(&mut self, bytes: &Bytes, count: u64, counters: &mut Counters) {
        if self.outbox.share(bytes).is_err() {
            self.give_up();
        }
        self.counts.records += count;
        counters.records += count;
    }

    /// Delivers a record of its subscriptions: to the queue or, while the client is behind, according to its slow-reader policy.
    pub(super) fn deliver(
        &mut self,
        of_schema: usize,
        item: &Item,
        record: &[u8],
        now: Nanos,
        limit: usize,
        counters: &mut Counters,
    ) {
        let Some(interest) = self.subscribed.get(of_schema) else { return };
        if !self.is_taking() || !interest.wants(item.instrument, item.event) || !self.sees(item.publisher) {
            return;
        }
        if interest.start.is_some() && self.replay.is_some() {
            if self.kept.bytes.len() + record.len() > limit && planted!("kept-records-dropped") {
                return;
            }
            self.kept.bytes.extend_from_slice(record);
            self.kept.count += 1;
            if self.kept.bytes.len() > limit {
                self.give_up();
            }
            return;
        }
        let waiting = self.backlog() + record.len();
        match self.slow_reader() {
            SlowReader::Skip if self.lag.skipping.is_some() || waiting > limit => {
                let is_first = self.lag.skipping.is_none();
                *self.lag.skipping.get_or_insert(0) += u64::from(!(is_first && planted!("skip-not-counted")));
                self.counts.skipped += 1;
                counters.skipped += 1;
            }
            SlowReader::Conflate
                if is_of_quotes(of_schema) && (waiting > limit / 4 || !self.lag.conflated.is_empty()) =>
            {
                let is_across =
                    [Schema::Cmbp1, Schema::Cbbo1S, Schema::Cbbo1M].map(place_of).contains(&of_schema);
                let publisher = if is_across { 0 } else { item.publisher };
                if self.lag.conflated.put((of_schema, publisher, item.instrument), record) {
                    self.counts.conflated += 1;
                    counters.conflated += 1;
                }
            }
            SlowReader::Conflate
                if of_schema == place_of(Schema::Trades)
                    && !self.lag.conflated.is_empty()
                    && planted!("conflation-drops-a-trade") => {}
            SlowReader::Warn | SlowReader::Conflate if waiting > limit => {
                if !planted!("slow-client-skips-silently") {
                    self.give_up();
                }
            }
            _ => self.put_record(record, now, counters),
        }
    }

    /// Warns a client that falls behind. Once it has caught up, sends the conflated quotes, or the number of skipped records.
    fn keep_up(&mut self, now: Nanos, limit: usize, counters: &mut Counters) {
        let waiting = self.backlog();
        if self.slow_reader() != SlowReader::Skip && waiting > limit / 2 && !self.lag.is_warned {
            self.lag.is_warned = true;
            let text = format!("slow reader: {waiting} of {limit} bytes wait for it");
            let mut warning = Vec::new();
            live::system(now, SystemCode::SlowReaderWarning, &text, &mut warning);
            if self.has_ts_out() {
                let record = std::mem::take(&mut warning);
                live::with_ts_out(&record, self.times.turn, &mut warning);
            }
            // Ahead of the queue: at its end the warning would come too late.
            self.outbox.put_next(&warning);
        }
        if waiting < limit / 4 {
            self.lag.is_warned = false;
        }
        if waiting < limit / 2
            && let Some(count) = self.lag.skipping.take()
        {
            let text = format!("slow reader: {count} records were skipped");
            self.notify(|bytes| live::error(now, ErrorCode::SkippedRecords, &text, bytes));
        }
        if waiting < limit / 8 && !self.lag.conflated.is_empty() {
            for record in self.lag.conflated.take() {
                self.put_record(&record, now, counters);
            }
        }
    }

    /// Writes as much as the socket takes. Returns whether the client is too slow to continue.
    pub(super) fn write(&mut self, now: Clocks, limit: usize, counters: &mut Counters) -> io::Result<bool> {
        self.times.turn = now.wall;
        if self.is_started() {
            self.keep_up(now.wall, limit, counters);
        }
        self.outbox.seal()?;
        if self.is_writable {
            match self.outbox.write(&mut self.transport).and_then(|written| {
                self.transport.settle()?;
                Ok(written)
            }) {
                Ok(0) => {}
                Ok(written) => {
                    self.counts.bytes += written as u64;
                    counters.bytes += written as u64;
                    self.times.last_sent = now.steady;
                    if !self.outbox.is_empty() && planted!("wake-up-lost") {
                        self.is_writable = false;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.is_writable = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.lag.allowance = self.lag.allowance.min(self.outbox.len());
        if self.outbox.is_empty() && self.transport.is_settled() {
            self.times.last_empty = now.steady;
            if let Phase::Closing { is_shut: is_shut @ false, .. } = &mut self.phase {
                *is_shut = true;
                // The peer reads to the end and closes; otherwise time runs out some seconds later.
                self.transport.finish()?;
            }
        }
        Ok(matches!(self.phase, Phase::Live { is_over: true }))
    }

    /// Sends a heartbeat if nothing was sent for the session's interval. Returns whether it did.
    pub(super) fn heartbeat(&mut self, now: Clocks) -> bool {
        let interval = self.peer.admitted.as_ref().map_or(u64::MAX, |admitted| admitted.heartbeat_ns);
        if !self.is_started() || !self.outbox.is_empty() || now.steady.since(self.times.last_sent) < interval
        {
            return false;
        }
        self.times.last_sent = now.steady;
        self.notify(|bytes| live::system(now.wall, SystemCode::Heartbeat, "", bytes));
        true
    }

    /// Returns whether it has read nothing of its replay or snapshot for `limit_ns`.
    pub(super) fn is_stalled(&self, now: Clocks, limit_ns: u64) -> bool {
        let since = now.steady.since(self.times.last_sent.max(self.times.last_empty));
        (self.replay.is_some() || self.agenda.is_making()) && !self.outbox.is_empty() && since >= limit_ns
    }

    /// Returns whether it has work that its socket will not report again: readiness is reported once.
    pub(super) fn has_work(&self) -> bool {
        let has_bytes = !self.outbox.is_empty() || (self.lag.is_behind() && self.is_started());
        self.is_readable || (self.is_writable && has_bytes)
    }

    /// Ends the replay, and queues the kept records.
    pub(super) fn finish_replay(&mut self, now: Nanos, counters: &mut Counters) {
        self.replay = None;
        for schema in self.subscribed.finish_replays() {
            let text = format!("Finished {schema} replay");
            self.notify(|bytes| live::system(now, SystemCode::ReplayCompleted, &text, bytes));
        }
        let Kept { bytes, count } = std::mem::take(&mut self.kept);
        // The replay waited for room, but the kept records did not.
        self.lag.allowance = self.outbox.len() + bytes.len();
        self.put_records(&bytes, count, now, counters);
    }
}
