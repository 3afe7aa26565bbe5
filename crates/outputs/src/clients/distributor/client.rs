//! One client: its subscriptions, its queue, and its slow-reader policy.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use fixedbitset::FixedBitSet;
use tapeworks_market::{Event, InstrumentId, Instruments, Symbol};
use tapeworks_store::Schema;
use tapeworks_store::live::{self, Batch, ErrorCode, HeadError, Item, SystemCode};
use tapeworks_time::Nanos;

use super::super::control::{Admitted, Refusal, Session, SlowReader, Subscription, Wanted};
use super::super::outbox::Outbox;
use super::super::replay::{Replay, Selection};
use super::Counters;
use super::agenda::Agenda;
use super::interest::{Interest, insert};
use tapeworks_engine::replica::{SCHEMAS, place_of};
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
    Live,
    /// The client is sent the reason for the end of its session.
    Closing {
        /// When it is disconnected at the latest, by the steady clock.
        until: Nanos,
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

/// The destination of an instrument's records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wanting {
    /// To the client's queue.
    Now,
    /// To the records kept until the end of a replay.
    Kept,
}

/// The key of a conflated quote: schema, feed and instrument.
type QuoteKey = (usize, u16, InstrumentId);

/// The last quotes for a client that is behind, in the order in which each key first came.
#[derive(Debug, Default)]
struct Conflated {
    places: HashMap<QuoteKey, usize>,
    records: Vec<Vec<u8>>,
}

impl Conflated {
    /// Stores a quote. Returns whether it replaced an earlier one.
    fn put(&mut self, key: QuoteKey, record: &[u8]) -> bool {
        if let Some(known) = self.places.get(&key).and_then(|place| self.records.get_mut(*place)) {
            if !planted!("conflation-keeps-the-first") {
                known.clear();
                known.extend_from_slice(record);
            }
            return true;
        }
        self.places.insert(key, self.records.len());
        self.records.push(record.to_vec());
        false
    }

    fn take(&mut self) -> Vec<Vec<u8>> {
        self.places.clear();
        std::mem::take(&mut self.records)
    }

    const fn is_empty(&self) -> bool {
        self.records.is_empty()
    }
}

/// Returns whether an instrument's last record of this schema supersedes the earlier ones.
fn is_of_quotes(of_schema: usize) -> bool {
    let quotes = [Schema::Mbp1, Schema::Bbo1S, Schema::Bbo1M, Schema::Cmbp1, Schema::Cbbo1S, Schema::Cbbo1M];
    quotes.map(place_of).contains(&of_schema)
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
    address: SocketAddr,
    id: u64,
    since: Nanos,
    admitted: Option<Admitted>,
    publishers: Vec<u16>,
    has_head: bool,
    subscriptions: Vec<Subscription>,
    interests: Vec<Option<Interest>>,
    named: FixedBitSet,
    /// Instruments known when the first subscription with a start took effect: the replay names those that appeared later.
    known_at_start: Option<usize>,
    outbox: Outbox,
    /// Live records, while a replay catches up with them.
    kept: Vec<u8>,
    kept_count: u64,
    conflated: Conflated,
    /// Bytes of the queue that came in bulk, from a snapshot or the end of a replay, and do not mean that the client is slow.
    allowance: usize,
    is_warned: bool,
    /// Records skipped since the client fell behind; `None` if it is not behind.
    skipping: Option<u64>,
    is_over: bool,
    is_shut: bool,
    /// When bytes were last sent, by the steady clock.
    last_sent: Nanos,
    /// When its queue was last empty, by the steady clock.
    last_empty: Nanos,
    /// When the current turn began.
    turn: Nanos,
    records: u64,
    bytes: u64,
    skipped: u64,
    conflated_count: u64,
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
            address,
            id,
            since: now.wall,
            admitted: None,
            publishers: Vec::new(),
            has_head: false,
            subscriptions: Vec::new(),
            interests: (0..SCHEMAS).map(|_| None).collect(),
            named: FixedBitSet::new(),
            known_at_start: None,
            outbox,
            kept: Vec::new(),
            kept_count: 0,
            conflated: Conflated::default(),
            allowance: 0,
            is_warned: false,
            skipping: None,
            is_over: false,
            is_shut: false,
            last_sent: now.steady,
            last_empty: now.steady,
            turn: now.wall,
            records: 0,
            bytes: 0,
            skipped: 0,
            conflated_count: 0,
        }
    }

    pub(super) const fn id(&self) -> u64 {
        self.id
    }

    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the index of its key, once it has authenticated.
    pub(super) fn key(&self) -> Option<usize> {
        self.admitted.as_ref().map(|admitted| admitted.key)
    }

    pub(super) fn has_ts_out(&self) -> bool {
        self.admitted.as_ref().is_some_and(|admitted| admitted.has_ts_out)
    }

    fn slow_reader(&self) -> SlowReader {
        self.admitted.as_ref().map_or(SlowReader::Warn, |admitted| admitted.slow_reader)
    }

    pub(super) fn is_started(&self) -> bool {
        self.phase == Phase::Live
    }

    /// Returns the bytes that are queued or kept for it.
    pub(super) fn waiting(&self) -> usize {
        self.outbox.len() + self.kept.len()
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
            && self.conflated.is_empty()
            && self.skipping.is_none()
    }

    /// Returns the bytes queued because records came faster than it reads.
    fn backlog(&self) -> usize {
        self.outbox.len().saturating_sub(self.allowance)
    }

    /// Returns the bytes that are queued in bulk, such as snapshots.
    pub(super) fn snapshot_bytes(&self) -> usize {
        self.allowance
    }

    /// Queues the records of a part of a snapshot.
    pub(super) fn put_snapshot(&mut self, batch: &Batch, now: Nanos, counters: &mut Counters) {
        let before = self.outbox.len();
        for item in batch.items() {
            if self.sees(item.publisher) {
                self.put_record(batch.record(item), now, counters);
            }
        }
        self.allowance += self.outbox.len() - before;
    }

    /// Notes the number of instruments known when a subscription with a start takes effect.
    pub(super) fn resumes_at(&mut self, known: usize) {
        self.known_at_start.get_or_insert(known);
    }

    /// Returns how many instruments the client has symbols for before a replay, if it wants them.
    pub(super) fn known_at_start(&self) -> usize {
        self.known_at_start.unwrap_or_default()
    }

    /// Joins lists that were kept apart for records of earlier events, in schemas that hold no such records any more. Returns
    /// whether any were joined.
    pub(super) fn join_lists(&mut self, is_held: impl Fn(Schema) -> bool) -> bool {
        let mut is_joined = false;
        for schema in Schema::ALL {
            let Some(Some(interest)) = self.interests.get_mut(place_of(schema)) else { continue };
            if interest.groups.len() > 1 && interest.start.is_none() && !is_held(schema) {
                interest.merge();
                is_joined = true;
            }
        }
        is_joined
    }

    /// Returns whether it may see records of this feed.
    pub(super) fn sees(&self, publisher: u16) -> bool {
        self.publishers.is_empty() || self.publishers.contains(&publisher)
    }

    pub(super) fn publishers(&self) -> &[u16] {
        &self.publishers
    }

    pub(super) const fn is_of_some_feeds(&self) -> bool {
        !self.publishers.is_empty()
    }

    pub(super) fn view(&self, now: Clocks, keys: &Keys) -> ClientView {
        let state = match (&self.admitted, self.phase) {
            (_, Phase::Closing { .. }) => ClientState::Closing,
            (None, _) => ClientState::Connected,
            (_, Phase::Opening) => ClientState::Admitted,
            (_, Phase::Live) if self.replay.is_some() => ClientState::Replaying,
            _ if self.is_warned || self.skipping.is_some() || !self.conflated.is_empty() => ClientState::Slow,
            _ => ClientState::Live,
        };
        let admitted = self.admitted.as_ref();
        let has = |schema: &Schema| self.interests.get(place_of(*schema)).is_some_and(Option::is_some);
        let key = admitted.and_then(|admitted| keys.get(admitted.key));
        ClientView {
            session: self.id,
            name: admitted.map(|admitted| admitted.client.clone()).unwrap_or_default(),
            address: self.address,
            key: key.map(|key| key.name.clone()).unwrap_or_default(),
            dataset: admitted.map(|admitted| admitted.dataset.clone()).unwrap_or_default(),
            schemas: Schema::ALL.into_iter().filter(has).collect(),
            state,
            slow_reader: self.slow_reader(),
            since: self.since,
            records: self.records,
            bytes: self.bytes,
            queued_bytes: self.waiting(),
            requests: self.agenda.len(),
            lag_ns: if self.outbox.is_empty() { 0 } else { now.steady.since(self.last_empty) },
            skipped: self.skipped,
            conflated: self.conflated_count,
        }
    }

    pub(super) fn admit(&mut self, admitted: Admitted, publishers: Vec<u16>) {
        self.outbox.own().extend_from_slice(Session::admission(self.id).as_bytes());
        self.admitted = Some(admitted);
        self.publishers = publishers;
    }

    /// Queues a line of text.
    pub(super) fn say(&mut self, line: &str) {
        self.outbox.own().extend_from_slice(line.as_bytes());
    }

    /// Begins the stream, if it has not begun.
    pub(super) fn begin(&mut self, now: Clocks) -> Result<(), HeadError> {
        let Some(admitted) = self.admitted.as_ref().filter(|_| !self.has_head) else { return Ok(()) };
        self.has_head = true;
        self.phase = Phase::Live;
        self.last_sent = now.steady;
        let mut head = Vec::new();
        live::head(&admitted.dataset, now.wall, admitted.has_ts_out, &mut head)?;
        if admitted.is_compressed && self.outbox.compress().is_err() {
            self.is_over = true;
        }
        self.outbox.own().extend_from_slice(&head);
        Ok(())
    }

    /// Sends the queued records until `until` at the latest, and accepts no more.
    pub(super) fn leave(&mut self, until: Nanos) {
        if !matches!(self.phase, Phase::Closing { .. }) {
            self.phase = Phase::Closing { until };
        }
        self.replay = None;
        self.agenda = Agenda::default();
        self.kept = Vec::new();
        self.conflated = Conflated::default();
        self.interests.iter_mut().for_each(|interest| *interest = None);
    }

    /// Drops its queued records except those in transmission, so that it reads whole records and then the reason why its session
    /// ends. Returns the number of bytes dropped.
    pub(super) fn drop_waiting(&mut self) -> usize {
        self.allowance = 0;
        self.outbox.cut()
    }

    pub(super) const fn is_leaving(&self) -> bool {
        matches!(self.phase, Phase::Closing { .. })
    }

    pub(super) fn is_past_farewell(&self, now: Clocks) -> bool {
        matches!(self.phase, Phase::Closing { until } if now.steady >= until)
    }

    pub(super) fn keep(&mut self, subscription: Subscription) {
        self.subscriptions.push(subscription);
    }

    pub(super) fn take_subscriptions(&mut self) -> Vec<Subscription> {
        std::mem::take(&mut self.subscriptions)
    }

    /// Checks that all subscriptions to a schema have the same start while it is replayed.
    pub(super) fn check_start(&self, subscription: &Subscription) -> Result<(), Refusal> {
        let schema = subscription.schema;
        let kept = self.subscriptions.iter().find(|kept| kept.schema == schema).map(|kept| kept.start);
        let started =
            self.interests.get(place_of(schema)).and_then(Option::as_ref).map(|interest| interest.start);
        match kept.or(started) {
            Some(start) if start != subscription.start => {
                let reason = format!(
                    "the subscriptions of a session to {schema} have one start= while it is replayed"
                );
                Err(Refusal::Subscription { reason })
            }
            _ => Ok(()),
        }
    }

    pub(super) fn interest(&mut self, schema: Schema) -> &mut Interest {
        let of_schema = place_of(schema);
        if self.interests.len() <= of_schema {
            self.interests.resize_with(of_schema + 1, || None);
        }
        self.interests[of_schema].get_or_insert_default()
    }

    pub(super) fn interests(&self) -> impl Iterator<Item = (usize, &Interest)> {
        self.interests
            .iter()
            .enumerate()
            .filter_map(|(of_schema, one)| one.as_ref().map(|one| (of_schema, one)))
    }

    /// Returns whether it gets all records of its one schema, without excluding any feed, instrument or time.
    pub(super) fn can_share(&self) -> bool {
        self.publishers.is_empty()
            && self.replay.is_none()
            && self
                .interests()
                .all(|(_, interest)| interest.excluded.is_clear() && interest.groups.len() == 1)
    }

    pub(super) fn unsubscribe(&mut self, subscription: &Subscription, known: &Instruments) {
        let is_it = |one: &Subscription| one.schema == subscription.schema;
        for kept in self.subscriptions.iter_mut().filter(|kept| is_it(kept)) {
            match (&mut kept.wanted, &subscription.wanted) {
                (wanted, Wanted::All) => *wanted = Wanted::Symbols(Vec::new()),
                (Wanted::Symbols(symbols), Wanted::Symbols(gone)) => {
                    symbols.retain(|one| !gone.contains(one))
                }
                (Wanted::Instruments(all), Wanted::Instruments(gone)) => {
                    all.retain(|one| !gone.contains(one))
                }
                _ => {}
            }
        }
        if let Some(slot) = self.interests.get_mut(place_of(subscription.schema))
            && let Some(interest) = slot
        {
            interest.remove(&subscription.wanted, known);
            // A running replay keeps its instruments.
            if interest.is_empty() && interest.start.is_none() {
                *slot = None;
            }
        }
    }

    /// Handles a new instrument. Returns where the client wants its records, and the schemas whose lists it is on now.
    pub(super) fn resolve(
        &mut self,
        event: u64,
        instrument: InstrumentId,
        symbol: Symbol,
    ) -> (Option<Wanting>, Vec<usize>) {
        let (mut wanting, mut by_schema) = (None, Vec::new());
        for (of_schema, interest) in self.interests.iter_mut().enumerate() {
            let Some(interest) = interest else { continue };
            by_schema.extend(interest.appears(instrument, symbol).then_some(of_schema));
            if interest.wants(instrument, event) {
                let is_kept = interest.start.is_some() && self.replay.is_some();
                wanting = if is_kept { wanting.or(Some(Wanting::Kept)) } else { Some(Wanting::Now) };
            }
        }
        (wanting, by_schema)
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
            live::symbol_mapping(now, instrument, symbol, false, &mut self.kept);
        }
    }

    /// Queues a message about the session. The queue has room for it.
    pub(super) fn notify(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        if self.has_ts_out() {
            let mut record = Vec::new();
            write(&mut record);
            live::with_ts_out(&record, self.turn, self.outbox.own());
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
        let has_come = |interest: &&Interest| interest.groups.iter().any(|group| group.from <= number);
        let mut interests = self.interests.iter().flatten().filter(has_come).peekable();
        if !self.is_started() || interests.peek().is_none() {
            return;
        }
        if self.replay.is_some() && interests.all(|interest| interest.start.is_some()) {
            if self.sees(event.publisher.0) {
                live::system(event.ts_recv, SystemCode::Other, text, &mut self.kept);
                counters.gaps += 1;
            }
        } else {
            self.report_gap(event, text, counters);
        }
        // Records that a slow client skips leave no room for its gap reports, so they get the same limit again.
        self.is_over |= self.backlog() + self.kept.len() > 2 * limit;
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
        self.records += 1;
        counters.records += 1;
    }

    /// Queues several records.
    pub(super) fn put_records(&mut self, bytes: &[u8], count: u64, now: Nanos, counters: &mut Counters) {
        if self.has_ts_out() {
            records_of(bytes).for_each(|record| live::with_ts_out(record, now, self.outbox.own()));
        } else {
            self.outbox.own().extend_from_slice(bytes);
        }
        self.records += count;
        counters.records += count;
    }

    /// Returns whether the records of `batch` can be queued as they are.
    pub(super) fn takes_whole(&self, of_schema: usize, batch: &Batch, limit: usize) -> bool {
        let first = batch.items().first().map_or(0, |item| item.event);
        let groups =
            self.interests.get(of_schema).and_then(Option::as_ref).map(|interest| &interest.groups[..]);
        self.phase == Phase::Live
            && !self.is_over
            && self.skipping.is_none()
            && self.conflated.is_empty()
            && self.backlog() + batch.bytes().len() <= limit / 8
            && matches!(groups, Some([group]) if group.is_all && group.from <= first)
    }

    pub(super) fn take_whole(&mut self, bytes: &Bytes, count: u64, counters: &mut Counters) {
        if self.outbox.share(bytes).is_err() {
            self.is_over = true;
        }
        self.records += count;
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
        let Some(interest) = self.interests.get(of_schema).and_then(Option::as_ref) else { return };
        if self.phase != Phase::Live
            || self.is_over
            || !interest.wants(item.instrument, item.event)
            || !self.sees(item.publisher)
        {
            return;
        }
        if interest.start.is_some() && self.replay.is_some() {
            if self.kept.len() + record.len() > limit && planted!("kept-records-dropped") {
                return;
            }
            self.kept.extend_from_slice(record);
            self.kept_count += 1;
            self.is_over = self.kept.len() > limit;
            return;
        }
        let waiting = self.backlog() + record.len();
        match self.slow_reader() {
            SlowReader::Skip if self.skipping.is_some() || waiting > limit => {
                let is_first = self.skipping.is_none();
                *self.skipping.get_or_insert(0) += u64::from(!(is_first && planted!("skip-not-counted")));
                self.skipped += 1;
                counters.skipped += 1;
            }
            SlowReader::Conflate
                if is_of_quotes(of_schema) && (waiting > limit / 4 || !self.conflated.is_empty()) =>
            {
                let is_across =
                    [Schema::Cmbp1, Schema::Cbbo1S, Schema::Cbbo1M].map(place_of).contains(&of_schema);
                let publisher = if is_across { 0 } else { item.publisher };
                if self.conflated.put((of_schema, publisher, item.instrument), record) {
                    self.conflated_count += 1;
                    counters.conflated += 1;
                }
            }
            SlowReader::Conflate
                if of_schema == place_of(Schema::Trades)
                    && !self.conflated.is_empty()
                    && planted!("conflation-drops-a-trade") => {}
            SlowReader::Warn | SlowReader::Conflate if waiting > limit => {
                self.is_over = !planted!("slow-client-skips-silently");
            }
            _ => self.put_record(record, now, counters),
        }
    }

    /// Warns a client that falls behind. Once it has caught up, sends the conflated quotes, or the number of skipped records.
    fn keep_up(&mut self, now: Nanos, limit: usize, counters: &mut Counters) {
        let waiting = self.backlog();
        if self.slow_reader() != SlowReader::Skip && waiting > limit / 2 && !self.is_warned {
            self.is_warned = true;
            let text = format!("slow reader: {waiting} of {limit} bytes wait for it");
            let mut warning = Vec::new();
            live::system(now, SystemCode::SlowReaderWarning, &text, &mut warning);
            if self.has_ts_out() {
                let record = std::mem::take(&mut warning);
                live::with_ts_out(&record, self.turn, &mut warning);
            }
            // Ahead of the queue: at its end the warning would come too late.
            self.outbox.put_next(&warning);
        }
        if waiting < limit / 4 {
            self.is_warned = false;
        }
        if waiting < limit / 2
            && let Some(count) = self.skipping.take()
        {
            let text = format!("slow reader: {count} records were skipped");
            self.notify(|bytes| live::error(now, ErrorCode::SkippedRecords, &text, bytes));
        }
        if waiting < limit / 8 && !self.conflated.is_empty() {
            for record in self.conflated.take() {
                self.put_record(&record, now, counters);
            }
        }
    }

    /// Writes as much as the socket takes. Returns whether the client is too slow to continue.
    pub(super) fn write(&mut self, now: Clocks, limit: usize, counters: &mut Counters) -> io::Result<bool> {
        self.turn = now.wall;
        if self.phase == Phase::Live {
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
                    self.bytes += written as u64;
                    counters.bytes += written as u64;
                    self.last_sent = now.steady;
                    if !self.outbox.is_empty() && planted!("wake-up-lost") {
                        self.is_writable = false;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.is_writable = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.allowance = self.allowance.min(self.outbox.len());
        if self.outbox.is_empty() && self.transport.is_settled() {
            self.last_empty = now.steady;
            if matches!(self.phase, Phase::Closing { .. }) && !self.is_shut {
                self.is_shut = true;
                // The peer reads to the end and closes; otherwise time runs out some seconds later.
                self.transport.finish()?;
            }
        }
        Ok(self.is_over && self.phase == Phase::Live)
    }

    /// Sends a heartbeat if nothing was sent for the session's interval. Returns whether it did.
    pub(super) fn heartbeat(&mut self, now: Clocks) -> bool {
        let interval = self.admitted.as_ref().map_or(u64::MAX, |admitted| admitted.heartbeat_ns);
        if self.phase != Phase::Live || !self.outbox.is_empty() || now.steady.since(self.last_sent) < interval
        {
            return false;
        }
        self.last_sent = now.steady;
        self.notify(|bytes| live::system(now.wall, SystemCode::Heartbeat, "", bytes));
        true
    }

    /// Returns whether it has read nothing of its replay or snapshot for `limit_ns`.
    pub(super) fn is_stalled(&self, now: Clocks, limit_ns: u64) -> bool {
        let since = now.steady.since(self.last_sent.max(self.last_empty));
        (self.replay.is_some() || self.agenda.is_making()) && !self.outbox.is_empty() && since >= limit_ns
    }

    /// Returns whether it has work that its socket will not report again: readiness is reported once.
    pub(super) fn has_work(&self) -> bool {
        let is_behind = !self.conflated.is_empty() || self.skipping.is_some();
        let has_bytes = !self.outbox.is_empty() || (is_behind && self.phase == Phase::Live);
        self.is_readable || (self.is_writable && has_bytes)
    }

    /// Returns the selections for a replay.
    pub(super) fn selections(&self) -> Vec<Selection> {
        let of = |schema: Schema| {
            let interest = self.interests.get(place_of(schema))?.as_ref()?;
            Some(Selection { schema, start: interest.start?, wanted: interest.replayed.clone() })
        };
        Schema::ALL.into_iter().filter_map(of).collect()
    }

    /// Keeps records of replayed schemas from this event on, until the end of the replay.
    pub(super) fn join(&mut self, event: u64) {
        for interest in self.interests.iter_mut().flatten().filter(|interest| interest.start.is_some()) {
            interest.groups.iter_mut().for_each(|group| {
                group.from = event.saturating_add(u64::from(planted!("resume-off-by-one")));
            });
        }
    }

    /// Ends the replay, and queues the kept records.
    pub(super) fn finish_replay(&mut self, now: Nanos, counters: &mut Counters) {
        self.replay = None;
        for schema in Schema::ALL {
            let interest = self.interests.get_mut(place_of(schema)).and_then(Option::as_mut);
            let Some(interest) = interest.filter(|interest| interest.start.is_some()) else { continue };
            interest.start = None;
            interest.replayed = Vec::new();
            interest.merge();
            let text = format!("Finished {schema} replay");
            self.notify(|bytes| live::system(now, SystemCode::ReplayCompleted, &text, bytes));
        }
        let kept = std::mem::take(&mut self.kept);
        // The replay waited for room, but the kept records did not.
        self.allowance = self.outbox.len() + kept.len();
        let count = std::mem::take(&mut self.kept_count);
        self.put_records(&kept, count, now, counters);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subscription(wanted: Wanted) -> Subscription {
        Subscription {
            schema: Schema::Mbo,
            wanted,
            start: None,
            has_snapshot: false,
            id: None,
            is_last: true,
        }
    }

    /// Regression: a subscription to the highest possible number made every list and table grow to it, 400 MB for each schema.
    #[test]
    fn a_number_that_no_instrument_has_is_on_no_list_until_one_has_it() {
        let mut known = Instruments::default();
        let first = known.intern(Symbol::from_bytes(b"FIRST").unwrap());
        let (second, largest) = (InstrumentId(1), InstrumentId((1 << 24) - 2));
        let mut interest = Interest::default();
        let wanted = Wanted::Instruments(vec![first, second, largest]);
        let (chosen, unknown) = interest.resolve(&subscription(wanted), &known);
        interest.take(chosen.listed(), chosen.is_all(), 0);
        assert_eq!(unknown, ["2", "16777215"]);
        assert_eq!(chosen.instruments.len(), 1);
        assert_eq!(interest.instruments().collect::<Vec<_>>(), [0]);
        assert!(interest.wants(first, 0) && !interest.wants(second, 0));
        assert_eq!(known.intern(Symbol::from_bytes(b"SECOND").unwrap()), second);
        assert!(interest.appears(second, Symbol::from_bytes(b"SECOND").unwrap()));
        assert!(interest.wants(second, 0));
        assert!(interest.groups.iter().all(|group| group.instruments.len() == 2));
        interest.remove(&Wanted::Instruments(vec![first, second, largest]), &known);
        assert!(interest.is_empty());
    }

    #[test]
    fn a_number_that_is_not_wanted_of_all_is_left_out_when_it_appears() {
        let known = Instruments::default();
        let mut interest = Interest::default();
        let (chosen, _) = interest.resolve(&subscription(Wanted::All), &known);
        interest.take(chosen.listed(), chosen.is_all(), 0);
        interest.remove(&Wanted::Instruments(vec![InstrumentId(0), InstrumentId(1)]), &known);
        assert_eq!(interest.excluded.len(), 0);
        for number in [0, 1, 2].map(InstrumentId) {
            assert!(
                !interest.appears(number, Symbol::from_bytes(b"ANY").unwrap()),
                "who takes all is on no list"
            );
            assert_eq!(interest.wants(number, 0), number.0 == 2);
        }
    }
}
