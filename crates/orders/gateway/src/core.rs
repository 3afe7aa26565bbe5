//! The gateway without sockets, clocks and files: bytes and times in, bytes and entries out.
//!
//! ```text
//! FIX bytes ─▶ session ─▶ translator ─▶ venue's session ─▶ native bytes
//!                 ▲            │               │
//!                 └── replies ◀┴── reports ◀───┘        each with its entry for the store
//! ```
//!
//! The caller reads from all sockets, writes the turn ([`Core::commit`]), and only then sends the output. So the gateway never
//! sends anything that a restart would not know.

use std::collections::HashMap;

use hdrhistogram::Histogram;
use tapeworks_disk::Disk;
use tapeworks_fix_wire::{begin_string, field};
use tapeworks_journal::JournalError;
use tapeworks_order_session::fix::{self, Application, Link, Received, Session, Store, Verdict, shown};
use tapeworks_planted::planted;
use tapeworks_translate::ids::{ClientIndex, Partitions};
use tapeworks_translate::{
    ClientToExchangeState, Doubt, ExchangeToClientState, Execution, Order, Outputs, Reply, Report,
    TopsOfBook, Translator,
};

use crate::clock::Now;
use crate::entry::{Entries, Entry, Kind, report_number};
use crate::ledger::Ledger;
use crate::settings::{ClientSettings, VERSIONS};
use crate::status::{ClientStatus, Counters, OrderStatus, Orders, Percentiles, Refusals, Status};
use crate::store::SessionStore;
use crate::traces::Tracer;
use crate::venue::{VenueEvent, VenueSession};

/// A message for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Whether someone must act.
    pub is_alert: bool,
    /// The message, in one line.
    pub text: String,
}

/// A FIX client: its current session, and the state that outlives it.
#[derive(Debug)]
pub(crate) struct Client<D> {
    pub(crate) settings: ClientSettings,
    pub(crate) session: Session,
    pub(crate) store: SessionStore<D>,
    pub(crate) is_connected: bool,
    pub(crate) is_halted: bool,
    pub(crate) was_logged_on: bool,
    /// Whether its store is on the list of those with changes to collect.
    is_touched: bool,
}

/// BeginString, SenderCompID and TargetCompID of a client's messages.
type Names = [Vec<u8>; 3];

/// The gateway's state and logic, without sockets, clocks and files.
#[derive(Debug)]
pub struct Core<S: VenueSession, D: Disk> {
    pub(crate) clients: Vec<Client<D>>,
    by_names: HashMap<Names, usize>,
    pub(crate) translator: Translator<S::Table>,
    pub(crate) venue: S,
    /// The kill switch for all clients.
    is_halted: bool,
    /// Whether market prices are available; `None`: nothing is checked against them.
    has_prices: Option<bool>,
    /// The partitions with missing reports, and since when there have been any, in UTC nanoseconds.
    behind: Partitions,
    behind_since_ns: u64,
    /// The midnight that the venue's times count from, in UTC nanoseconds; 0: the venue's times have a date.
    midnight_ns: u64,
    effects: Effects,
}

/// The outputs that both directions write to.
#[derive(Debug)]
struct Effects {
    entries: Entries,
    /// Clients whose store may have changed.
    touched: Vec<usize>,
    /// Clients that receive drop copies of execution reports.
    copies: Vec<usize>,
    /// Messages that the venue's session refused. Each is preceded by its length.
    unsent: Vec<u8>,
    notices: Vec<Notice>,
    /// Whether an alert about a report is pending. A venue that sends many bad reports then costs no text for each.
    has_report_notice: bool,
    counters: Counters,
    round_trip: Histogram<u64>,
    /// Percentiles of all round trips, as of the last full second.
    all: Percentiles,
    /// Round trips of the current second.
    this_second: Histogram<u64>,
    last_second: Percentiles,
    last_second_end_ns: u64,
    /// Follows orders, for traces.
    tracer: Option<Box<Tracer>>,
}

/// Creates a histogram of times in nanoseconds, up to ten minutes, with three digits.
pub(crate) fn histogram() -> Histogram<u64> {
    // The bounds are valid: from 1 to more than twice that, with 1 to 5 digits.
    Histogram::new_with_bounds(1, 600_000_000_000, 3).unwrap_or_else(|_| unreachable!("the bounds are sound"))
}

/// Creates a histogram that is read and cleared each second. It has two digits, so that both together cost a microsecond.
fn coarse_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 600_000_000_000, 2).unwrap_or_else(|_| unreachable!("the bounds are sound"))
}

/// Bytes waiting for the venue's socket above which the gateway is ahead of the venue.
const AHEAD_BYTES: usize = 256 << 10;

/// Unanswered requests above which the gateway is ahead of the venue. The venue holds their reports for a gateway that does not
/// read, and venues limit the backlog: three reports each, for an order that is accepted and filled by another, are about 900 KiB.
const AHEAD_REQUESTS: usize = 2_048;

/// The channel for orders.
const ORDERS: usize = 0;

/// Maximum number of bytes shown of an unreadable message.
const MOST_SHOWN: usize = 64;

/// Maximum number of notices that wait for the caller.
const MOST_NOTICES: usize = 1_024;

impl Effects {
    /// Closes a second of round trips, if it is over. A clock that was set back starts a new second. Cost: tens of microseconds.
    fn end_second(&mut self, now_ns: u64) {
        let passed_ns = now_ns.checked_sub(self.last_second_end_ns);
        if passed_ns.is_none_or(|passed_ns| passed_ns >= 1_000_000_000) {
            self.last_second = percentiles(&self.this_second);
            self.all = percentiles(&self.round_trip);
            self.last_second_end_ns = now_ns;
            self.this_second.reset();
        }
    }

    /// Adds an alert about a report, if it is the first since the notices were taken.
    fn alert_of_report(&mut self, text: impl FnOnce() -> String) {
        if !core::mem::replace(&mut self.has_report_notice, true) {
            self.notice(true, text());
        }
    }

    fn notice(&mut self, is_alert: bool, text: String) {
        if self.notices.len() < MOST_NOTICES {
            self.notices.push(Notice { is_alert, text });
        }
    }
}

fn push_piece(pieces: &mut Vec<u8>, piece: &[u8]) {
    pieces.extend_from_slice(&(piece.len() as u32).to_le_bytes());
    pieces.extend_from_slice(piece);
}

fn pieces(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    core::iter::from_fn(move || {
        let (length, rest) = bytes.split_first_chunk::<4>()?;
        let (piece, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        bytes = rest;
        Some(piece)
    })
}

/// Sends messages to the venue's session.
struct ToVenue<'a, S> {
    venue: &'a mut S,
    entries: &'a mut Entries,
    unsent: &'a mut Vec<u8>,
    now: Now,
}

impl<S: VenueSession> ToVenue<'_, S> {
    fn send(&mut self, message: &[u8]) {
        let time_ns = self.now.utc_ns;
        self.entries.push(Entry { kind: Kind::ToVenue, client: 0, number: 0, time_ns, bytes: message });
        if !self.venue.send(message, self.now.steady_ns) {
            push_piece(self.unsent, message);
        }
    }
}

/// The clients other than the one whose message is processed.
struct Others<'a, D: Disk> {
    before: &'a mut [Client<D>],
    after: &'a mut [Client<D>],
}

impl<D: Disk> Others<'_, D> {
    fn get_mut(&mut self, index: usize) -> Option<&mut Client<D>> {
        match index.checked_sub(self.before.len()) {
            None => self.before.get_mut(index),
            Some(behind) => self.after.get_mut(behind.checked_sub(1)?),
        }
    }
}

/// The application of one client's session. It passes messages to the translator.
struct Trader<'a, S: VenueSession, D: Disk> {
    translator: &'a mut Translator<S::Table>,
    around: Around<'a, S, D>,
}

/// What surrounds the translator while a client's message is processed.
struct Around<'a, S, D: Disk> {
    client: usize,
    settings: &'a ClientSettings,
    venue: &'a mut S,
    others: Others<'a, D>,
    effects: &'a mut Effects,
    now: Now,
}

/// Outputs caused by a client's message: replies go to that client, and copies of its reports to the drop-copy clients.
struct ToOne<'a, 'b, S, D: Disk> {
    around: &'a mut Around<'b, S, D>,
    is_sent: bool,
    link: &'a mut Link,
    store: &'a mut dyn Store,
}

impl<S: VenueSession, D: Disk> Outputs for ToOne<'_, '_, S, D> {
    fn to_venue(&mut self, message: &[u8]) {
        self.is_sent = true;
        let Around { venue, effects, now, .. } = &mut *self.around;
        let Effects { entries, unsent, .. } = &mut **effects;
        ToVenue { venue: *venue, entries, unsent, now: *now }.send(message);
    }

    fn to_client(&mut self, _client: ClientIndex, reply: &Reply<'_>) {
        let version = self.around.settings.translate.version;
        let now_ns = self.around.now.utc_ns;
        let kept = self.link.send_or_keep(self.store, now_ns, reply.message_type(), |writer| {
            reply.write_as(version, writer);
        });
        if kept.is_err() {
            self.around.effects.counters.unkept += 1;
        } else if reply.is_execution() && !self.around.effects.copies.is_empty() {
            self.around.copy(reply);
        }
    }

    fn unmatched(&mut self, _report: &Report) {
        self.around.effects.counters.unmatched += 1;
    }
}

impl<S, D: Disk> Around<'_, S, D> {
    /// Sends drop copies of a report.
    fn copy(&mut self, reply: &Reply<'_>) {
        let owner = self.settings.session.target_comp_id.as_bytes();
        let copies = core::mem::take(&mut self.effects.copies);
        for index in &copies {
            let Some(client) = self.others.get_mut(*index) else { continue };
            client.touch(*index, self.effects, self.now);
            let version = client.settings.translate.version;
            let kept = client.session.link().send_or_keep(
                &mut client.store,
                self.now.utc_ns,
                reply.message_type(),
                |writer| reply.write_copy_as(version, owner, writer),
            );
            self.effects.counters.unkept += u64::from(kept.is_err());
        }
        self.effects.copies = copies;
    }
}

impl<S: VenueSession, D: Disk> Application for Trader<'_, S, D> {
    fn message(
        &mut self,
        received: &Received<'_>,
        link: &mut Link,
        store: &mut dyn Store,
        now_ns: u64,
    ) -> Verdict {
        let around = &mut self.around;
        if around.settings.is_drop_copy {
            return Verdict::UnsupportedType;
        }
        let Effects { entries, tracer, .. } = &mut *around.effects;
        let followed = match tracer {
            Some(tracer) => tracer.message(around.client, &received.message),
            None => None,
        };
        let mark = entries.len();
        let client = around.client as u16;
        let bytes = received.message.bytes();
        entries.push(Entry { kind: Kind::Request, client, number: 0, time_ns: now_ns, bytes });
        let mut out = ToOne { around, is_sent: false, link, store };
        self.translator.client_message(ClientIndex(client), &received.message, now_ns, &mut out);
        let is_sent = out.is_sent;
        let Effects { entries, tracer, .. } = &mut *self.around.effects;
        if !is_sent {
            // Nothing was sent, so a restart need not know the message.
            entries.truncate(mark);
        }
        if let (Some(followed), Some(tracer)) = (followed, tracer) {
            tracer.translated(followed, is_sent);
        }
        Verdict::Taken
    }
}

/// Outputs not caused by a client's message: each reply goes to the client that owns it.
struct ToAll<'a, S, D: Disk> {
    venue: Option<&'a mut S>,
    clients: &'a mut [Client<D>],
    effects: &'a mut Effects,
    now: Now,
}

impl<S, D: Disk> ToAll<'_, S, D> {
    /// Returns the name of an order, for people.
    fn named(&self, order: &Order) -> String {
        let name = self.clients.get(usize::from(order.client.0)).map(|client| client.settings.name.as_str());
        format!("order {} of {}", String::from_utf8_lossy(order.id.text()), name.unwrap_or_default())
    }
}

impl<S: VenueSession, D: Disk> Outputs for ToAll<'_, S, D> {
    fn to_venue(&mut self, message: &[u8]) {
        let Effects { entries, unsent, .. } = &mut *self.effects;
        if let Some(venue) = self.venue.as_deref_mut() {
            ToVenue { venue, entries, unsent, now: self.now }.send(message);
        } else {
            // The venue's session is busy with the event that caused the message, so it is sent later.
            let time_ns = self.now.utc_ns;
            entries.push(Entry { kind: Kind::ToVenue, client: 0, number: 0, time_ns, bytes: message });
            push_piece(unsent, message);
        }
    }

    fn to_client(&mut self, client: ClientIndex, reply: &Reply<'_>) {
        if let Some(tracer) = self.effects.tracer.as_mut().filter(|tracer| tracer.is_following()) {
            tracer.reply(usize::from(client.0), reply);
        }
        let is_copied = reply.is_execution();
        let copies = core::mem::take(&mut self.effects.copies);
        let owner = usize::from(client.0);
        for index in core::iter::once(owner).chain(copies.iter().copied().filter(|_| is_copied)) {
            // A copy names the owner of the order.
            let (client, owner) = match self.clients.get_disjoint_mut([index, owner]) {
                Ok([client, owner]) => (client, Some(owner.settings.session.target_comp_id.as_bytes())),
                Err(_) => match self.clients.get_mut(index) {
                    Some(client) => (client, None),
                    None => continue,
                },
            };
            client.touch(index, self.effects, self.now);
            let version = client.settings.translate.version;
            let kept = client.session.link().send_or_keep(
                &mut client.store,
                self.now.utc_ns,
                reply.message_type(),
                |writer| match owner {
                    None => reply.write_as(version, writer),
                    Some(owner) => reply.write_copy_as(version, owner, writer),
                },
            );
            if let Err(error) = kept {
                self.effects.counters.unkept += 1;
                let name = &client.settings.name;
                self.effects.alert_of_report(|| format!("a report for {name} was not kept: {error}"));
            }
        }
        self.effects.copies = copies;
    }

    fn unmatched(&mut self, report: &Report) {
        self.effects.counters.unmatched += 1;
        let count = self.effects.counters.unmatched;
        self.effects.alert_of_report(|| {
            format!("a report of the venue belongs to no order, {count} of them so far: {report:?}")
        });
    }

    fn doubtful(&mut self, order: &Order, report: &Execution, doubt: Doubt) {
        let text = format!("{}, {}: {report:?}", doubt.text(), self.named(order));
        self.effects.notice(true, text);
    }

    fn repeated(&mut self, report: &Execution) {
        self.effects.alert_of_report(|| {
            format!("the venue reports an execution again, which is left out: {report:?}")
        });
    }

    fn unreadable(&mut self, message: &[u8], order: Option<&Order>) {
        let of = order.map_or_else(|| "it names no known order".to_owned(), |order| self.named(order));
        let length = message.len();
        let shown = message.get(..MOST_SHOWN).unwrap_or(message);
        let shown = shown.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let text =
            format!("a message of the venue cannot be read, {of}: {length} bytes, the first of them {shown}");
        match order {
            Some(_) => self.effects.notice(true, text),
            None => self.effects.alert_of_report(|| text),
        }
    }

    fn own_cancel_failed(&mut self, order: &Order) {
        let text = format!("the venue rejected the cancel of {}: it works still", self.named(order));
        self.effects.notice(true, text);
    }

    fn first_report(&mut self, requested_ns: u64) {
        let passed_ns = self.now.utc_ns.saturating_sub(requested_ns);
        self.effects.round_trip.saturating_record(passed_ns);
        self.effects.this_second.saturating_record(passed_ns);
    }
}

impl<D: Disk> Client<D> {
    pub(crate) fn new(settings: ClientSettings, store: SessionStore<D>, now_ns: u64) -> Self {
        Self {
            session: Session::new(settings.session.clone(), settings.dictionary.clone(), now_ns),
            settings,
            store,
            is_connected: false,
            is_halted: false,
            was_logged_on: false,
            is_touched: false,
        }
    }

    /// Notes that its store may change.
    fn touch(&mut self, index: usize, effects: &mut Effects, now: Now) {
        self.store.set_time(now.utc_ns);
        if !core::mem::replace(&mut self.is_touched, true) {
            effects.touched.push(index);
        }
    }
}

/// Why a connection is not admitted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotAdmitted {
    /// No configured client has these names.
    #[error("no client has BeginString '{0}', SenderCompID '{1}' and TargetCompID '{2}'")]
    Unknown(String, String, String),
    /// The message's FIX version is not supported.
    #[error("'{0}' is not among the versions of FIX that the gateway speaks: {known}", known = VERSIONS.join(", "))]
    Version(String),
    /// The client may not connect from this address.
    #[error("the client may not connect from this address")]
    Address,
    /// The certificate is not the client's.
    #[error("the client has another certificate")]
    Certificate,
    /// The client is already connected.
    #[error("the client is connected already")]
    Connected,
}

impl<S: VenueSession, D: Disk> Core<S, D> {
    pub(crate) fn assemble(
        clients: Vec<Client<D>>,
        translator: Translator<S::Table>,
        venue: S,
        is_halted: bool,
    ) -> Self {
        let names = |client: &Client<D>| {
            let session = &client.settings.session;
            let text = |text: &str| text.as_bytes().to_vec();
            [text(&session.begin_string), text(&session.target_comp_id), text(&session.sender_comp_id)]
        };
        let by_names = clients.iter().enumerate().map(|(index, client)| (names(client), index)).collect();
        let copies = (0..clients.len()).filter(|index| clients[*index].settings.is_drop_copy).collect();
        let effects = Effects {
            entries: Entries::with_capacity(512 << 10),
            touched: Vec::with_capacity(clients.len()),
            copies,
            unsent: Vec::new(),
            notices: Vec::new(),
            has_report_notice: false,
            counters: Counters::default(),
            round_trip: histogram(),
            all: Percentiles::default(),
            this_second: coarse_histogram(),
            last_second: Percentiles::default(),
            last_second_end_ns: 0,
            tracer: None,
        };
        Self {
            clients,
            by_names,
            translator,
            venue,
            is_halted,
            has_prices: None,
            behind: Partitions::default(),
            behind_since_ns: 0,
            midnight_ns: 0,
            effects,
        }
    }

    /// Starts the run: later entries use the clients' indexes of this configuration.
    pub(crate) fn start(&mut self, now_ns: u64) {
        let names: Vec<&str> = self.clients.iter().map(|client| client.settings.name.as_str()).collect();
        let (time_ns, names) = (now_ns, names.join("\n"));
        let entry = Entry { kind: Kind::Start, client: 0, number: 0, time_ns, bytes: names.as_bytes() };
        self.effects.entries.push(entry);
        self.look_at_the_day(now_ns);
    }

    /// Sets the midnight that the venue's times count from, if a new day has begun.
    fn look_at_the_day(&mut self, now_ns: u64) {
        let Some(midnight_ns) = self.venue.midnight_ns(now_ns).filter(|found| *found != self.midnight_ns)
        else {
            return;
        };
        self.midnight_ns = midnight_ns;
        self.translator.set_midnight(midnight_ns);
        let (number, time_ns) = (midnight_ns, now_ns);
        self.effects.entries.push(Entry { kind: Kind::Midnight, client: 0, number, time_ns, bytes: &[] });
    }

    // ---- clients ----

    /// Returns the client that sent a connection's first message.
    ///
    /// # Errors
    /// The client is not admitted.
    pub fn admit(
        &self,
        first_message: &[u8],
        address: std::net::IpAddr,
        certificate: Option<[u8; 32]>,
    ) -> Result<usize, NotAdmitted> {
        let text = |tag| field(first_message, tag).unwrap_or_default().to_vec();
        let names = [begin_string(first_message).to_vec(), text(49), text(56)];
        let found = self.by_names.get(&names).and_then(|index| Some((*index, self.clients.get(*index)?)));
        let (index, client) = found.ok_or_else(|| {
            let [version, sender, target] = names.map(|name| shown(&name));
            match VERSIONS.contains(&version.as_str()) {
                true => NotAdmitted::Unknown(version, sender, target),
                false => NotAdmitted::Version(version),
            }
        })?;
        let addresses = &client.settings.addresses;
        // A dual-stack socket reports an IPv4 address as an IPv6 address.
        let is_same = |allowed: &std::net::IpAddr| allowed.to_canonical() == address.to_canonical();
        if !addresses.is_empty() && !addresses.iter().any(is_same) {
            return Err(NotAdmitted::Address);
        }
        if client.settings.certificate.is_some() && client.settings.certificate != certificate {
            return Err(NotAdmitted::Certificate);
        }
        if client.is_connected { Err(NotAdmitted::Connected) } else { Ok(index) }
    }

    /// Starts a session for a client that has connected.
    pub fn client_connected(&mut self, index: usize, now: Now) {
        if let Some(client) = self.clients.get_mut(index) {
            let (mut settings, dictionary) =
                (client.settings.session.clone(), client.settings.dictionary.clone());
            if let (Some(secret), Some((_, password))) =
                (&client.settings.password, &mut settings.credentials)
            {
                secret.get().as_ref().clone_into(password);
            }
            client.session = Session::new(settings, dictionary, now.utc_ns);
            (client.is_connected, client.was_logged_on) = (true, false);
        }
    }

    /// Processes bytes from a client.
    pub fn client_bytes(&mut self, index: usize, bytes: &[u8], now: Now) {
        self.with_client(index, now, |session, store, trader| {
            session.receive(bytes, store, trader, now.utc_ns);
        });
    }

    /// Notes that the client closed the connection.
    pub fn client_closed(&mut self, index: usize, now: Now) {
        self.with_client(index, now, |session, store, _| session.closed(store, now.utc_ns));
    }

    /// Notes that a client's connection is closed, and cancels its orders if the client is configured that way.
    pub fn client_gone(&mut self, index: usize, now: Now) {
        let Some(client) = self.clients.get_mut(index) else { return };
        client.is_connected = false;
        self.cancel_if_gone(index, now);
    }

    fn cancel_if_gone(&mut self, index: usize, now: Now) {
        let Some(client) = self.clients.get(index) else { return };
        let is_gone = !client.session.is_logged_on() || !client.is_connected;
        if client.settings.cancels_on_disconnect && is_gone && self.can_send() {
            self.cancel_orders(index, now);
        }
    }

    fn can_send(&self) -> bool {
        matches!(self.translator.state(), ClientToExchangeState::Open | ClientToExchangeState::Halted)
    }

    /// Cancels the open orders of a client. While the venue is disconnected, the cancels wait until all of its reports have
    /// arrived.
    pub fn cancel_orders(&mut self, index: usize, now: Now) {
        let (client, time_ns) = (index as u16, now.utc_ns);
        let mark = self.effects.entries.len();
        self.effects.entries.push(Entry { kind: Kind::CancelOrders, client, number: 0, time_ns, bytes: &[] });
        let began = self.effects.entries.len();
        // While missed reports arrive, the venue's session would accept the cancels. Settling sends them again, so each would be
        // sent twice.
        let is_settled = self.can_send();
        let Self { clients, translator, venue, effects, .. } = self;
        let mut out = ToAll { venue: is_settled.then_some(venue), clients, effects, now };
        translator.cancel_orders(ClientIndex(client), time_ns, &mut out);
        if self.effects.entries.len() == began {
            self.effects.entries.truncate(mark);
        }
        self.give_back_unsent(now);
    }

    /// Returns whether the venue has a backlog and needs no more requests. While it does, the caller should stop reading clients
    /// for a short time.
    #[must_use]
    pub fn is_ahead(&self) -> bool {
        let has_much =
            self.translator.unanswered() > AHEAD_REQUESTS || self.venue.output(ORDERS).len() > AHEAD_BYTES;
        has_much && self.can_send()
    }

    fn with_client(
        &mut self,
        index: usize,
        now: Now,
        work: impl FnOnce(&mut Session, &mut SessionStore<D>, &mut Trader<'_, S, D>),
    ) {
        let Self { clients, translator, venue, effects, .. } = self;
        let Some((before, [client, after @ ..])) = clients.split_at_mut_checked(index) else { return };
        client.touch(index, effects, now);
        let Client { settings, session, store, was_logged_on, .. } = client;
        let others = Others { before, after };
        let around = Around { client: index, settings, venue, others, effects, now };
        let mut trader = Trader { translator, around };
        work(session, store, &mut trader);
        if session.is_logged_on() && !*was_logged_on {
            *was_logged_on = true;
            effects.notice(false, format!("{} is logged on", settings.name));
        }
        self.give_back_unsent(now);
    }

    /// Rejects the requests whose messages the venue's session refused.
    fn give_back_unsent(&mut self, now: Now) {
        while !self.effects.unsent.is_empty() {
            let mut unsent = core::mem::take(&mut self.effects.unsent);
            for message in pieces(&unsent).filter(|_| !planted!("unsent-request-forgotten")) {
                self.unsent(message, now);
            }
            if self.effects.unsent.is_empty() {
                // Reuses the memory.
                unsent.clear();
                self.effects.unsent = unsent;
                return;
            }
        }
    }

    fn unsent(&mut self, message: &[u8], now: Now) {
        let Self { clients, translator, effects, .. } = self;
        give_back::<S, D>(message, clients, translator, effects, now);
    }

    /// Returns the bytes to send to a client.
    #[must_use]
    pub fn client_output(&self, index: usize) -> &[u8] {
        self.clients.get(index).map_or(&[], |client| client.session.output())
    }

    /// Continues a long resend to a client, as far as its output has room.
    pub fn client_resend(&mut self, index: usize, now: Now) {
        if self.clients.get(index).is_some_and(|client| client.session.has_to_resend()) {
            self.with_client(index, now, |session, store, trader| {
                session.resend(store, trader, now.utc_ns);
            });
        }
    }

    /// Notes that `count` bytes were sent to a client.
    pub fn client_sent(&mut self, index: usize, count: usize) {
        if let Some(client) = self.clients.get_mut(index) {
            client.session.sent(count);
        }
    }

    /// Returns why a client's connection should be closed, if it should.
    #[must_use]
    pub fn client_over(&self, index: usize) -> Option<&fix::End> {
        self.clients.get(index)?.session.over()
    }

    /// Returns whether a client reads too slowly, so that the caller must end its connection. Counts and reports it.
    pub fn is_too_slow(&mut self, index: usize) -> bool {
        let Some(client) = self.clients.get(index) else { return false };
        let is_slow = client.session.output().len() > client.settings.output_bytes;
        if is_slow {
            self.effects.counters.slow_clients += 1;
            let text = format!("{} reads too slowly: its connection is ended", client.settings.name);
            self.effects.notice(true, text);
        }
        is_slow
    }

    // ---- the venue ----

    /// Returns the session with the venue.
    pub const fn venue(&self) -> &S {
        &self.venue
    }

    /// Sets the venue's password for the next logon. A password that does not fit changes nothing.
    pub fn set_venue_password(&mut self, password: &str) {
        self.venue.set_password(password);
    }

    /// Notes that a connection to the venue is established.
    pub fn venue_connected(&mut self, channel: usize, now: Now) {
        self.venue.connected(channel, now.steady_ns);
    }

    /// Notes that a connection to the venue could not be established.
    pub fn venue_refused(&mut self, channel: usize, now: Now) {
        self.venue.refused(channel, now.steady_ns);
    }

    /// Processes bytes from the venue.
    pub fn venue_bytes(&mut self, channel: usize, bytes: &[u8], now: Now) {
        self.with_venue(now, |venue, each| venue.receive(channel, bytes, now.steady_ns, each));
    }

    /// Notes that `count` bytes were sent to the venue.
    pub fn venue_sent(&mut self, channel: usize, count: usize, now: Now) {
        self.with_venue(now, |venue, each| venue.sent(channel, count, now.steady_ns, each));
    }

    /// Notes that a connection to the venue is closed.
    pub fn venue_closed(&mut self, channel: usize, now: Now) {
        self.with_venue(now, |venue, each| venue.closed(channel, now.steady_ns, each));
    }

    fn with_venue(&mut self, now: Now, work: impl FnOnce(&mut S, &mut dyn FnMut(VenueEvent<'_>))) {
        let Self { clients, translator, venue, effects, .. } = self;
        let mut each = |event: VenueEvent<'_>| on_event::<S, D>(event, clients, translator, effects, now);
        work(venue, &mut each);
        if !self.effects.unsent.is_empty() {
            self.give_back_unsent(now);
            self.send_again(now);
        }
        let translator = &self.translator;
        let is_recovering = translator.state() == ClientToExchangeState::Recovering;
        if is_recovering && (self.venue.is_caught_up() || planted!("settled-before-recovered")) {
            self.settle(now);
        }
        let behind = match self.translator.state() {
            ClientToExchangeState::Open | ClientToExchangeState::Halted => self.venue.behind(),
            // No orders pass, and the state already says so.
            _ => Partitions::default(),
        };
        if behind != self.behind {
            self.are_behind(behind, now);
        }
    }

    /// Updates the partitions with missing reports.
    #[cold]
    fn are_behind(&mut self, behind: Partitions, now: Now) {
        if self.behind == Partitions::default() {
            self.behind_since_ns = now.utc_ns;
        }
        for app_id in behind.iter().filter(|app_id| !self.behind.has(*app_id)) {
            let text = format!(
                "reports of partition {app_id} are missing, and requested: its orders are refused until they are in"
            );
            self.effects.notice(true, text);
        }
        for app_id in self.behind.iter().filter(|app_id| !behind.has(*app_id)) {
            self.effects.notice(true, format!("nothing is missing of partition {app_id} any more"));
        }
        self.behind = behind;
        self.translator.set_behind(behind);
    }

    /// Resolves in-doubt requests after all of the venue's missed reports have arrived.
    fn settle(&mut self, now: Now) {
        self.translator.venue_recovered();
        let time_ns = now.utc_ns;
        self.effects.entries.push(Entry { kind: Kind::Settled, client: 0, number: 0, time_ns, bytes: &[] });
        let Self { clients, translator, venue, effects, .. } = self;
        let mut out = ToAll { venue: Some(venue), clients, effects, now };
        translator.settle(now.utc_ns, &mut out);
        if let Some(tracer) = &mut self.effects.tracer {
            tracer.recovery_ends(None);
        }
        self.effects.notice(false, "the venue's reports are all in: orders pass".to_owned());
        for index in 0..self.clients.len() {
            self.cancel_if_gone(index, now);
        }
        self.give_back_unsent(now);
    }

    // ---- time, control, the store ----

    /// Performs the periodic work of all sessions. The caller does so several times a second.
    pub fn tick(&mut self, now: Now) {
        self.effects.end_second(now.utc_ns);
        self.look_at_the_day(now.utc_ns);
        for index in 0..self.clients.len() {
            if self.clients.get(index).is_some_and(|client| client.is_connected) {
                self.with_client(index, now, |session, store, trader| {
                    session.tick(store, trader, now.utc_ns);
                });
            }
        }
        self.with_venue(now, |venue, each| venue.tick(now.steady_ns, each));
        self.send_again(now);
        self.look_after_prices(now.steady_ns);
        self.translator.keep_room(64);
        for client in self.clients.iter_mut().filter(|client| client.is_connected) {
            client.store.keep_room(1_024);
        }
    }

    /// Prepares [`Self::warm`].
    pub fn prepare_to_warm(&mut self) {
        self.translator.prepare_to_warm();
    }

    /// Runs a dummy order through the checks and the translation, so that the next order finds them in the caches. It does not
    /// affect orders, stores or sessions.
    pub fn warm(&mut self, now: Now) {
        self.translator.warm(now.utc_ns);
    }

    /// Resends the gateway's own requests that the venue's session refused before, until it refuses one again.
    fn send_again(&mut self, now: Now) {
        while self.can_send() && self.translator.has_to_send_again() && self.effects.unsent.is_empty() {
            let time_ns = now.utc_ns;
            self.effects.entries.push(Entry { kind: Kind::Again, client: 0, number: 0, time_ns, bytes: &[] });
            let Self { clients, translator, venue, effects, .. } = self;
            let mut out = ToAll { venue: Some(venue), clients, effects, now };
            translator.send_again(&mut out);
        }
        self.give_back_unsent(now);
    }

    /// Notes that the clock was set ahead by this many nanoseconds.
    pub fn clock_was_set(&mut self, ahead_ns: i64) {
        for client in &mut self.clients {
            client.session.clock_was_set(ahead_ns);
        }
    }

    /// Returns whether the kill switch for all clients is on.
    pub(crate) const fn is_halted(&self) -> bool {
        self.is_halted
    }

    /// Sets the kill switch for all clients.
    pub fn set_halted(&mut self, is_halted: bool, now: Now) {
        self.is_halted = is_halted;
        if is_halted {
            self.translator.halt();
        } else {
            self.translator.resume();
        }
        let (number, time_ns) = (u64::from(is_halted), now.utc_ns);
        self.effects.entries.push(Entry { kind: Kind::Halt, client: 0, number, time_ns, bytes: &[] });
        let text = if is_halted { "halted: cancels pass, nothing else" } else { "resumed" };
        self.effects.notice(true, text.to_owned());
        if is_halted {
            self.take_back(None, now);
        }
    }

    /// Withdraws new orders, quotes and replaces that wait for the venue's throttle, of one client or of all.
    fn take_back(&mut self, client: Option<ClientIndex>, now: Now) {
        let Self { translator, venue, effects, .. } = self;
        venue.take_back(
            |message| translator.is_order(message, client),
            |message| push_piece(&mut effects.unsent, message),
        );
        self.give_back_unsent(now);
    }

    /// Sets the kill switch for one client, given its name. Returns whether the client exists.
    pub fn set_client_halted(&mut self, name: &str, is_halted: bool, now: Now) -> bool {
        let Some(index) = self.clients.iter().position(|client| client.settings.name == name) else {
            return false;
        };
        self.translator.set_client_halted(ClientIndex(index as u16), is_halted);
        if let Some(client) = self.clients.get_mut(index) {
            client.is_halted = is_halted;
        }
        let (client, number, time_ns) = (index as u16, u64::from(is_halted), now.utc_ns);
        self.effects.entries.push(Entry { kind: Kind::HaltClient, client, number, time_ns, bytes: &[] });
        self.effects.notice(true, format!("{name} is {}", if is_halted { "halted" } else { "resumed" }));
        if is_halted {
            self.take_back(Some(ClientIndex(index as u16)), now);
        }
        true
    }

    /// Sets the source of the best prices that orders are checked against. [`Self::tick`] checks that it is alive.
    pub fn set_tops(&mut self, tops: Box<dyn TopsOfBook>) {
        self.translator.set_tops(tops);
        self.has_prices = Some(false);
    }

    fn look_after_prices(&mut self, steady_ns: u64) {
        match self.translator.look_after_tops(steady_ns) {
            Some(Ok(source)) => {
                self.has_prices = Some(true);
                self.effects.notice(false, format!("prices of the market come from {source}"));
            }
            Some(Err(why)) => {
                self.has_prices = Some(false);
                self.effects.notice(true, format!("no prices of the market: {why}"));
            }
            None => {}
        }
    }

    /// Logs out of all sessions.
    pub fn log_out(&mut self, now: Now) {
        for index in 0..self.clients.len() {
            self.with_client(index, now, |session, store, _| {
                session.log_out(store, "the gateway stops", now.utc_ns);
            });
        }
        self.venue.log_out(now.steady_ns);
    }

    /// Writes the changes of the turn. After it succeeds, the output may be sent. After an error, call it again, and send nothing
    /// until it succeeds.
    ///
    /// # Errors
    /// The disk is full or fails.
    pub fn commit(&mut self, ledger: &mut Ledger<D>, now_ns: u64) -> Result<(), JournalError> {
        for index in &self.effects.touched {
            if let Some(client) = self.clients.get_mut(*index)
                && client.store.has_changes()
            {
                client.store.collect(&mut self.effects.entries);
            }
        }
        let parts = if self.effects.entries.is_empty() {
            &[]
        } else {
            ledger.write(&self.effects.entries, now_ns)?
        };
        for index in self.effects.touched.drain(..) {
            if let Some(client) = self.clients.get_mut(index) {
                client.is_touched = false;
                client.store.written(parts);
            }
        }
        self.effects.entries.clear();
        Ok(())
    }

    /// Returns the clients whose store or output may have changed in this turn.
    pub(crate) fn touched(&self) -> &[usize] {
        &self.effects.touched
    }

    /// Returns whether changes must be written before anything more is sent.
    pub(crate) fn has_changes(&self) -> bool {
        !self.effects.entries.is_empty() || !self.effects.touched.is_empty()
    }

    /// Returns the bytes of entries so far: the caller ends a turn before it becomes long.
    pub(crate) fn entry_bytes(&self) -> usize {
        self.effects.entries.len()
    }

    /// Follows orders from now on, for traces.
    pub(crate) fn set_tracer(&mut self, tracer: Tracer) {
        self.effects.tracer = Some(Box::new(tracer));
    }

    /// Returns the tracer, if orders are followed.
    #[inline]
    pub(crate) fn tracer(&mut self) -> Option<&mut Tracer> {
        self.effects.tracer.as_deref_mut()
    }

    /// Returns whether everything for the venue has been sent, and nothing waits for its throttle.
    pub(crate) fn has_sent_to_venue(&self) -> bool {
        self.venue.output(ORDERS).is_empty() && self.venue.queued() == 0
    }

    /// Returns the notices since the last call.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        self.effects.has_report_notice = false;
        core::mem::take(&mut self.effects.notices)
    }

    /// Returns the counters.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.effects.counters
    }

    /// Returns the state, except for the parts that only the host knows.
    #[must_use]
    pub fn status(&self, now: Now) -> Status {
        let open = |index: u16| u64::from(self.translator.open_orders(ClientIndex(index)));
        let client = |(client, index): (&Client<D>, u16)| {
            let (is_connected, counters) = (client.is_connected, client.session.counters());
            ClientStatus {
                name: client.settings.name.clone(),
                is_connected,
                is_logged_on: is_connected && client.session.is_logged_on(),
                is_halted: client.is_halted,
                next_incoming: client.store.next_incoming(),
                next_outgoing: client.store.next_outgoing(),
                waiting_bytes: client.session.output().len() as u64,
                open_orders: open(index),
                received: counters.received,
                rejects: counters.rejects + counters.business_rejects,
                duplicates: counters.duplicates,
                resend_requests: counters.resend_requests,
                garbled: counters.garbled,
            }
        };
        let state = self.translator.state();
        let clients: Vec<ClientStatus> = self.clients.iter().zip(0..=u16::MAX).map(client).collect();
        let refusal =
            |(reason, count): &(&'static str, u64)| Refusals { reason: (*reason).into(), count: *count };
        Status {
            time_ns: now.utc_ns,
            is_venue_logged_on: self.venue.is_logged_on(),
            takes_orders: state == ClientToExchangeState::Open,
            is_halted: self.is_halted,
            behind: self.behind.iter().collect(),
            behind_since_ns: self.behind_since_ns,
            doubtful: self
                .translator
                .doubtful_instruments()
                .map(|instrument| String::from_utf8_lossy(instrument.symbol.trimmed()).into_owned())
                .collect(),
            has_prices: self.has_prices,
            queued: self.venue.queued() as u64,
            open_orders: clients.iter().map(|client| client.open_orders).sum(),
            clients,
            refusals: self.translator.refusals().iter().map(refusal).collect(),
            known_orders: self.translator.known_orders() as u64,
            counters: self.effects.counters,
            translated: self.translator.counters(),
            round_trip: self.effects.all,
            last_second: self.effects.last_second,
            last_second_end_ns: self.effects.last_second_end_ns,
            ..Status::default()
        }
    }

    /// Returns the working orders, at most `most`. With `all`, includes ended orders that are still known.
    #[must_use]
    pub fn orders(&self, all: bool, most: usize) -> Orders {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let counted =
            || self.translator.orders().filter(|(_, state)| all || *state != ExchangeToClientState::Ended);
        let mut orders: Vec<OrderStatus> = counted()
            .take(most)
            .map(|(order, _)| OrderStatus {
                client: self
                    .clients
                    .get(usize::from(order.client.0))
                    .map(|client| client.settings.name.clone())
                    .unwrap_or_default(),
                id: text(order.id.text()),
                order_id: text(order.order_id.0.trimmed()),
                symbol: self
                    .translator
                    .instrument(order.instrument)
                    .map(|instrument| text(instrument.symbol.trimmed()))
                    .unwrap_or_default(),
                side: format!("{:?}", order.terms.side),
                status: format!("{:?}", order.status),
                quantity: order.terms.quantity,
                leaves: order.leaves,
                filled: order.cumulative,
                price_e8: order.terms.price_e8,
                average_e8: order.average_price_e8(),
                pending: order.pending,
                is_in_doubt: order.is_in_doubt,
            })
            .collect();
        orders.sort_by(|one, other| (&one.client, &one.id).cmp(&(&other.client, &other.id)));
        Orders { total: counted().count() as u64, orders }
    }
}

pub(crate) fn percentiles(histogram: &Histogram<u64>) -> Percentiles {
    Percentiles {
        count: histogram.len(),
        p50_ns: histogram.value_at_quantile(0.5),
        p99_ns: histogram.value_at_quantile(0.99),
        p99_9_ns: histogram.value_at_quantile(0.999),
        longest_ns: histogram.max(),
    }
}

/// Rejects the request of a message that was not sent to the venue.
fn give_back<S: VenueSession, D: Disk>(
    message: &[u8],
    clients: &mut [Client<D>],
    translator: &mut Translator<S::Table>,
    effects: &mut Effects,
    now: Now,
) {
    let time_ns = now.utc_ns;
    effects.counters.unsent += 1;
    effects.entries.push(Entry { kind: Kind::Unsent, client: 0, number: 0, time_ns, bytes: message });
    let mut out = ToAll::<S, D> { venue: None, clients, effects, now };
    translator.venue_unsent(message, time_ns, &mut out);
    if let Some(tracer) = &mut effects.tracer {
        tracer.report_ends();
    }
}

/// Processes an event of the venue's session.
fn on_event<S: VenueSession, D: Disk>(
    event: VenueEvent<'_>,
    clients: &mut [Client<D>],
    translator: &mut Translator<S::Table>,
    effects: &mut Effects,
    now: Now,
) {
    let time_ns = now.utc_ns;
    match event {
        VenueEvent::LoggedOn => {
            translator.venue_connected();
            if let Some(tracer) = &mut effects.tracer {
                tracer.recovery_begins();
            }
            effects.notice(false, "logged on to the venue".to_owned());
        }
        VenueEvent::Report { app_id, number, message } => {
            let number = report_number(app_id, number);
            effects.entries.push(Entry { kind: Kind::Report, client: 0, number, time_ns, bytes: message });
            if let Some(tracer) = &mut effects.tracer {
                tracer.report_begins();
            }
            let mut out = ToAll::<S, D> { venue: None, clients, effects, now };
            translator.venue_report(message, &mut out);
            if let Some(tracer) = &mut effects.tracer {
                tracer.report_ends();
            }
        }
        VenueEvent::Missing { app_id, first, count } => {
            effects.counters.missing = effects.counters.missing.saturating_add(count);
            let (number, bytes) = (report_number(app_id, first), &count.to_le_bytes());
            effects.entries.push(Entry { kind: Kind::Missing, client: 0, number, time_ns, bytes });
            let text = format!(
                "the venue does not have {count} reports of App ID {app_id} from {first} on any more"
            );
            effects.notice(true, text);
        }
        VenueEvent::NewDay { app_id } => {
            translator.new_day(app_id);
            let number = u64::from(app_id);
            effects.entries.push(Entry { kind: Kind::NewDay, client: 0, number, time_ns, bytes: &[] });
            effects.notice(true, format!("the venue's sequence numbers of App ID {app_id} restart"));
        }
        VenueEvent::Session(bytes) => {
            effects.entries.push(Entry { kind: Kind::Session, client: 0, number: 0, time_ns, bytes });
        }
        VenueEvent::NextName(next) => {
            let number = u64::from(next);
            effects.entries.push(Entry { kind: Kind::NextName, client: 0, number, time_ns, bytes: &[] });
            if translator.venue_next_name(next) {
                let last = next.saturating_sub(1);
                effects.notice(
                    true,
                    format!(
                        "the venue has seen requests up to number {last}, and the store lacks some of them"
                    ),
                );
            }
        }
        VenueEvent::Unsent(message) => give_back::<S, D>(message, clients, translator, effects, now),
        VenueEvent::UnknownAppId { app_id } => {
            let text =
                format!("the venue says that it has no partition {app_id}: compare `partitions` with it");
            effects.notice(true, text);
        }
        VenueEvent::Unanswered { app_id } => {
            effects.counters.unanswered_requests += 1;
            let text = format!(
                "the venue has not answered the request for missed reports of partition {app_id}: it is made again on another connection"
            );
            effects.notice(true, text);
        }
        VenueEvent::Alert(text) => effects.notice(true, format!("venue: {text}")),
        VenueEvent::Notice(text) => effects.notice(false, format!("venue: {text}")),
        VenueEvent::Ended(how) => {
            translator.venue_disconnected();
            if let Some(tracer) = &mut effects.tracer {
                tracer.recovery_ends(Some("the session ended"));
            }
            effects.counters.venue_ends += 1;
            effects.notice(true, format!("the session with the venue ended: {how}"));
        }
    }
}
