//! The translator: converts clients' FIX messages to the venue's bytes, and the venue's reports to replies to clients.
//!
//! It has no socket, clock or thread. The same inputs give the same outputs and the same state, so replaying the inputs
//! restores the state. Cost: `benches/translate.rs` measures both directions. Orders and reports allocate nothing after
//! [`Translator::new`].

mod doubts;
mod mass_cancel;
mod quotes;
mod warming;

use std::collections::{BTreeMap, VecDeque};

use tapeworks_fix_wire::order_entry::{
    BusinessMessageRejectFields, CxlRejResponseTo, ExecType, ExecutionReportFields, MassCancelRequestType,
    MassCancelResponse, MassQuoteAcknowledgementFields, NewOrderSingle, OrdStatus, OrderCancelRejectFields,
    OrderMassCancelReportFields, OrderMassCancelRequest, OrderStatusRequest, RejectFields, Side,
};
use tapeworks_fix_wire::{LastTimestamp, Parsed, Parts, read_unsigned, tag};
use tapeworks_planted::planted;
use tapeworks_wire::Ascii;
use tapeworks_wire::{Decimal, NanosecondsSinceEpoch};

use self::doubts::Incomplete;
use crate::admission::{
    Admission, Client, ClientToExchange, ClientToExchangeEvent, ClientToExchangeState, Counters, Decision,
    Incoming, Traded,
};
use crate::fix_side::{
    Body, Dates, Digits, ExecId, Reply, Texts, add_execution, exec_type_of, of_order, present,
};
use crate::ids::{ClOrdId, ClientIndex, ExecutionId, InstrumentIndex, Partitions, VenueName, VenueOrderId};
use crate::known::{ClientRequest, Known, RequestKind};
use crate::orders::{ExchangeToClientState, Order, Outcome};
use crate::outputs::Outputs;
use crate::pool::Handle;
use crate::reference::{Instrument, Reference};
use crate::refusal::Refusal;
use crate::report::{
    CancelRejected, Doubt, Execution, ExecutionKind, MassCancelled, Numbered, Refused, Report,
};
use crate::request::{Cancel, NewOrder, Replace, Request, Requested};
use crate::risk::{Risk, TopsOfBook};
use crate::route::{self, Route, RouteIndex, Routes};
use crate::settings::{ClientSettings, FixVersion, Settings};
use crate::text::Text;
use crate::venue::{MOST_MESSAGE_BYTES, Venue};
use crate::versions::fit;
use crate::warm::Warm;

/// The reject text for a request that the venue never received.
const IN_DOUBT: &[u8] = b"The venue did not get the request before the connection broke";

/// Largest jump in names that a lost tail of the store explains. A report further ahead is treated as bogus: accepting it would soon
/// exhaust the names.
const MOST_LOST_NAMES: u32 = 1 << 20;

/// The reject text if the venue gave no reason code.
const NO_REASON: &[u8] = b"The venue gave no reason";

/// The text of a report of an order that the gateway has cancelled.
const CANCELLED_HERE: &[u8] = b"Cancelled by the gateway";

/// Upper bound of the number of distinct reasons.
const MOST_REASONS: usize = 64;

/// Number of possible App IDs of a venue.
const APP_IDS: usize = 256;

/// Translates FIX orders to a venue's orders and back.
#[derive(Debug)]
pub struct Translator<V> {
    way: ClientToExchange,
    admission: Admission,
    venue: V,
    /// The number from which the next request's name is made.
    next_name: u32,
    /// The time of the last report that the translator made itself, in nanoseconds. It increases with every such report.
    own_report_ns: u64,
    /// The last number of each App ID's reports.
    last_numbers: [u32; APP_IDS],
    dates: Dates,
    /// The gateway's own requests that the venue's session refused, with their bytes, waiting to be sent again.
    again: VecDeque<(Handle, Box<[u8]>)>,
    /// The last request of these that was sent again.
    last_again: Option<Handle>,
    /// The venue has seen no request named by this number or a later one. It states the number after a logon; [`Self::settle`] uses
    /// it.
    venue_next: Option<u32>,
    /// Requests in doubt, sorted by name, that wait for the answer to a probe of their instrument.
    doubts: Vec<Handle>,
    /// When these requests were found in doubt, in UTC nanoseconds.
    doubted_ns: u64,
    buffer: [u8; MOST_MESSAGE_BYTES],
    /// The fields of messages that no session has split.
    parts: Parts,
    warm: Option<Box<Warm>>,
}

impl<V: Venue> Translator<V> {
    /// Creates a translator without a connection to the venue. Allocates all memory immediately.
    #[must_use]
    pub fn new(venue: V, reference: Reference, clients: &[ClientSettings], settings: &Settings) -> Self {
        let instruments = reference.len();
        let traded = |index| {
            let has_negative_prices = reference.instrument(InstrumentIndex(index))?.has_negative_prices;
            Some(Traded { has_negative_prices, ..Traded::default() })
        };
        let traded = (0..instruments as u32).filter_map(traded).collect();
        let client = |client: &ClientSettings| Client {
            version: client.version,
            risk: Risk::new(&client.limits, instruments),
            ignored_tags: client.ignored_tags.clone(),
        };
        Self {
            way: ClientToExchange::new(),
            admission: Admission {
                reference,
                clients: clients.iter().map(client).collect(),
                tops: Box::new(Vec::new()),
                known: Known::new(settings, venue.names_are_ids()),
                is_halted: false,
                traded,
                halts_doubtful: settings.halts_doubtful,
                is_replaying: false,
                is_warming: false,
                counters: Counters::default(),
                refusals: Vec::with_capacity(MOST_REASONS),
                route: RouteIndex::NONE,
                routes: Routes::default(),
                last_time: LastTimestamp::NONE,
            },
            venue,
            next_name: 1,
            own_report_ns: 0,
            last_numbers: [0; APP_IDS],
            dates: Dates::new(),
            again: VecDeque::new(),
            last_again: None,
            venue_next: None,
            doubts: Vec::new(),
            doubted_ns: 0,
            buffer: [0; MOST_MESSAGE_BYTES],
            parts: Parts::new(),
            warm: None,
        }
    }

    // ---- state ----

    /// Returns the state of the path to the venue.
    #[must_use]
    pub fn state(&self) -> ClientToExchangeState {
        self.way.state()
    }

    /// Returns the counters.
    #[must_use]
    pub fn counters(&self) -> Counters {
        Counters { forgotten: self.admission.known.forgotten, ..self.admission.counters }
    }

    /// Returns the reasons of refused messages with their counts, in the order of first occurrence.
    #[must_use]
    pub fn refusals(&self) -> &[(&'static str, u64)] {
        &self.admission.refusals
    }

    /// Returns the number of a client's working orders.
    #[must_use]
    pub fn open_orders(&self, client: ClientIndex) -> u32 {
        self.admission.clients.get(usize::from(client.0)).map_or(0, |client| client.risk.open_orders)
    }

    /// Iterates over the known orders, including ended ones.
    pub fn orders(&self) -> impl Iterator<Item = (&Order, ExchangeToClientState)> {
        self.admission.known.iter().map(|entry| (&entry.order, entry.machine.state()))
    }

    /// Returns the number of known orders, including ended ones.
    #[must_use]
    pub fn known_orders(&self) -> usize {
        self.admission.known.len()
    }

    /// Returns the number of requests that the venue has not answered.
    #[must_use]
    pub const fn unanswered(&self) -> usize {
        self.admission.known.unanswered()
    }

    /// Returns the order to which a client's request belongs.
    #[must_use]
    pub fn order(&self, client: ClientIndex, id: &ClOrdId) -> Option<(&Order, ExchangeToClientState)> {
        let handle = self.admission.known.by_client(client, id)?.order?;
        self.admission.known.entry(handle).map(|entry| (&entry.order, entry.machine.state()))
    }

    /// Returns an instrument by its index.
    #[must_use]
    pub fn instrument(&self, index: InstrumentIndex) -> Option<&Instrument> {
        self.admission.reference.instrument(index)
    }

    /// Notes that the session with the venue is logged on. Requests are refused until [`Self::venue_recovered`].
    pub fn venue_connected(&mut self) {
        self.raise(ClientToExchangeEvent::Connected);
    }

    /// Notes that all missed reports of the venue have arrived: requests pass, unless the kill switch is on.
    pub fn venue_recovered(&mut self) {
        self.raise(ClientToExchangeEvent::Recovered);
    }

    /// Notes that the session with the venue ended.
    pub fn venue_disconnected(&mut self) {
        self.raise(ClientToExchangeEvent::Disconnected);
    }

    /// Resets the report numbers of an App ID: the venue restarts them at 1.
    pub fn new_day(&mut self, app_id: u8) {
        if let Some(last) = self.last_numbers.get_mut(usize::from(app_id)) {
            *last = 0;
        }
        self.dates.new_day(app_id);
    }

    /// Sets the midnight from which the venue's times count, in UTC nanoseconds, if its times do not include a date.
    pub fn set_midnight(&mut self, midnight_ns: u64) {
        self.venue.set_midnight(midnight_ns);
    }

    /// Notes that the venue has seen no request named by `number` or later, that all reports of earlier requests have arrived, and
    /// that it ignores lower names. The next request's number is at least `number`. Returns whether it had to be raised.
    pub const fn venue_next_name(&mut self, number: u32) -> bool {
        self.venue_next = Some(number);
        self.raise_next_name(number)
    }

    const fn raise_next_name(&mut self, number: u32) -> bool {
        let is_later = number > self.next_name;
        if is_later {
            self.next_name = number;
        }
        is_later
    }

    /// Turns the kill switch on: no new orders, replaces or quotes of any client pass. Cancels pass.
    pub fn halt(&mut self) {
        self.raise(ClientToExchangeEvent::Halt);
    }

    /// Ends [`Self::halt`], and the halts of instruments with reports in doubt.
    pub fn resume(&mut self) {
        self.end_halts_of_doubts();
        self.raise(ClientToExchangeEvent::Resume);
    }

    /// Sets the kill switch for one client. Returns whether the client exists.
    pub fn set_client_halted(&mut self, client: ClientIndex, is_halted: bool) -> bool {
        let found = self.admission.clients.get_mut(usize::from(client.0));
        found.map(|client| client.risk.is_killed = is_halted).is_some()
    }

    /// Sets the source of the best prices that orders are checked against. Until then there are no prices.
    pub fn set_tops(&mut self, tops: Box<dyn TopsOfBook>) {
        self.admission.tops = tops;
    }

    /// Sets the partitions with missing reports. Their instruments accept no new orders, replaces or quotes. Cancels pass.
    pub fn set_behind(&mut self, behind: Partitions) {
        let Admission { traded, reference, .. } = &mut self.admission;
        for (traded, index) in traded.iter_mut().zip(0..) {
            let instrument = reference.instrument(InstrumentIndex(index));
            traded.is_behind = instrument.is_some_and(|instrument| behind.has(instrument.partition));
        }
    }

    /// Ends the halts of instruments with in-doubt reports.
    pub fn end_halts_of_doubts(&mut self) {
        self.admission.traded.iter_mut().for_each(|traded| traded.is_doubtful = false);
    }

    /// Returns the instruments that an in-doubt report has halted.
    pub fn doubtful_instruments(&self) -> impl Iterator<Item = &Instrument> {
        let halted = self.admission.traded.iter().zip(0..).filter(|(traded, _)| traded.is_doubtful);
        halted.filter_map(|(_, index)| self.admission.reference.instrument(InstrumentIndex(index)))
    }

    /// Checks the source of prices: see [`TopsOfBook::look_after`].
    pub fn look_after_tops(&mut self, now_ns: u64) -> Option<Result<String, String>> {
        self.admission.tops.look_after(now_ns)
    }

    /// Forgets the oldest ended orders until this many new ones fit. A host calls it when idle, so that an order finds room without
    /// touching memory that has left the caches.
    pub fn keep_room(&mut self, orders: usize) {
        self.admission.known.keep_room(orders);
    }

    fn raise(&mut self, event: ClientToExchangeEvent<'_>) {
        let _nothing = self.way.handle(&mut self.admission, event);
    }

    // ---- client to exchange ----

    /// Processes an application message that the client's session has validated.
    pub fn client_message(
        &mut self,
        client: ClientIndex,
        message: &Parsed<'_>,
        now_ns: u64,
        out: &mut impl Outputs,
    ) {
        self.admission.counters.client_messages += 1;
        self.admission.route = RouteIndex::NONE;
        let incoming = Incoming { client, message, now_ns };
        let kind = message.message_type();
        let code = if let [code] = kind { u64::from(*code) } else { 0 };
        let decided = self.way.dispatch(&mut self.admission, code, incoming);
        let decided = decided.unwrap_or(Err(Refusal::UnsupportedType));
        let sent = match &decided {
            Ok(decision) => self.carry_out(decision, &incoming, out),
            Err(refusal) => Err(*refusal),
        };
        if let Err(refusal) = sent {
            self.refuse(&incoming, kind, refusal, out);
        }
    }

    #[inline]
    fn carry_out(
        &mut self,
        decision: &Decision,
        incoming: &Incoming<'_>,
        out: &mut impl Outputs,
    ) -> Result<(), Refusal> {
        let &Incoming { client, now_ns, .. } = incoming;
        match *decision {
            Decision::None => Ok(()),
            Decision::New { id, instrument, ref order } => {
                self.send_new(incoming, (id, instrument), order, out)
            }
            Decision::Cancel { id, original, order } => {
                self.send_cancel(id, original, order, false, now_ns, out)
            }
            Decision::Replace { id, original, order, terms } => {
                self.send_replace((id, original), order, terms, now_ns, out)
            }
            Decision::MassCancel { id, scope } => self.mass_cancel(incoming, id, scope, out),
            Decision::Quote { id, instrument, quote } => {
                self.send_quote(client, (id, instrument), quote, now_ns, out)
            }
            Decision::MassQuote => self.send_mass_quote(incoming, out),
            Decision::QuoteCancel { quote } => {
                self.cancel_quotes(incoming, quote, out);
                Ok(())
            }
            Decision::Status { order } => {
                self.answer_status(incoming, order, out);
                Ok(())
            }
        }
    }

    /// Processes a message that no session has split. Bytes that are not exactly one message are ignored.
    pub fn client_bytes(&mut self, client: ClientIndex, bytes: &[u8], now_ns: u64, out: &mut impl Outputs) {
        let mut parts = core::mem::take(&mut self.parts);
        if let Some(message) = parts.parse(bytes) {
            self.client_message(client, &message, now_ns, out);
        }
        self.parts = parts;
    }

    /// Encodes a request and sends it. Its name must be new at the venue.
    #[inline]
    fn send(
        &mut self,
        name: VenueName,
        request: &Request,
        instrument: InstrumentIndex,
        now_ns: u64,
        out: &mut impl Outputs,
    ) -> Result<(), Refusal> {
        if self.admission.is_replaying {
            self.admission.known.forget_ended_name(&name);
        }
        if self.admission.known.is_named(&name) {
            return Err(Refusal::Duplicate);
        }
        // A message waiting to be sent again has a lower name, which the venue would ignore after this one.
        let has_new_name = matches!(request, Request::New(_) | Request::Replace(_));
        if !self.again.is_empty()
            && has_new_name
            && !self.venue.answers_cancels()
            && !self.admission.is_replaying
        {
            return Err(Refusal::NotAvailable);
        }
        let length = self.written(request, instrument, now_ns)?;
        self.next_name = self.next_name.wrapping_add(1);
        self.admission.counters.requests += 1;
        out.to_venue(self.buffer.get(..length).unwrap_or_default());
        Ok(())
    }

    /// Encodes a request for the venue. Returns its length in bytes.
    #[inline]
    fn written(
        &mut self,
        request: &Request,
        instrument: InstrumentIndex,
        now_ns: u64,
    ) -> Result<usize, Refusal> {
        let instrument = self.admission.reference.instrument(instrument).ok_or(Refusal::UnknownInstrument)?;
        Ok(self.venue.write(request, instrument, now_ns, &mut self.buffer)?)
    }

    #[inline]
    fn send_new(
        &mut self,
        incoming: &Incoming<'_>,
        (id, instrument): (ClOrdId, InstrumentIndex),
        order: &NewOrder,
        out: &mut impl Outputs,
    ) -> Result<(), Refusal> {
        let name = self.venue.name(self.next_name, &id);
        let request = Request::New(NewOrder { name, ..*order });
        self.send(name, &request, instrument, incoming.now_ns, out)?;
        let Request::New(order) = request else { return Ok(()) };
        let (client, route) = (incoming.client, self.admission.route);
        self.admission
            .known
            .add_order(Order { route, ..Order::new(client, id, instrument, order, incoming.now_ns) });
        self.count_open(client, 1);
        Ok(())
    }

    fn send_cancel(
        &mut self,
        id: ClOrdId,
        original: ClOrdId,
        order: Handle,
        is_own: bool,
        now_ns: u64,
        out: &mut impl Outputs,
    ) -> Result<(), Refusal> {
        if is_own && self.admission.known.in_use(self.client_of(order)?, &id).is_some() {
            return Err(Refusal::Duplicate);
        }
        let request = self.of_order(RequestKind::Cancel, id, original, order)?;
        let request =
            if is_own { ClientRequest { is_own, route: RouteIndex::NONE, ..request } } else { request };
        let entry = self.admission.known.entry(order).ok_or(Refusal::UnknownOrder)?;
        // The sides of a quote share a name, so each is named by the venue's id.
        let is_of_quote = entry.quote.is_some();
        if is_of_quote && entry.order.order_id.0.is_blank() {
            return Err(Refusal::UnknownOrder);
        }
        let original =
            if is_of_quote { VenueName::default() } else { self.name_of(request.client, &original)? };
        let cancel = Cancel {
            name: request.name,
            original,
            order_id: entry.order.order_id,
            side: entry.order.terms.side,
        };
        self.send(request.name, &Request::Cancel(cancel), request.instrument, now_ns, out)?;
        self.add_pending(request, None, order);
        self.admission.counters.own_cancels += u64::from(is_own);
        Ok(())
    }

    fn send_replace(
        &mut self,
        (id, original): (ClOrdId, ClOrdId),
        order: Handle,
        terms: NewOrder,
        now_ns: u64,
        out: &mut impl Outputs,
    ) -> Result<(), Refusal> {
        let request = self.of_order(RequestKind::Replace, id, original, order)?;
        let terms = NewOrder { name: request.name, ..terms };
        let entry = self.admission.known.entry(order).ok_or(Refusal::UnknownOrder)?;
        let replace = Replace {
            name: request.name,
            original: self.name_of(request.client, &original)?,
            order_id: entry.order.order_id,
            order: terms,
            before: entry.order.terms,
        };
        self.send(request.name, &Request::Replace(replace), request.instrument, now_ns, out)?;
        self.add_pending(request, Some(terms), order);
        Ok(())
    }

    /// Creates a request that belongs to an order.
    fn of_order(
        &self,
        kind: RequestKind,
        id: ClOrdId,
        original: ClOrdId,
        order: Handle,
    ) -> Result<ClientRequest, Refusal> {
        let entry = self.admission.known.entry(order).ok_or(Refusal::UnknownOrder)?;
        let name = self.venue.name(self.next_name, &id);
        let (client, instrument) = (entry.order.client, entry.order.instrument);
        let request = ClientRequest::new(kind, client, (id, original), name, instrument);
        Ok(ClientRequest { order: Some(order), route: self.admission.route, ..request })
    }

    fn client_of(&self, order: Handle) -> Result<ClientIndex, Refusal> {
        self.admission.known.entry(order).map(|entry| entry.order.client).ok_or(Refusal::UnknownOrder)
    }

    fn name_of(&self, client: ClientIndex, id: &ClOrdId) -> Result<VenueName, Refusal> {
        self.admission.known.by_client(client, id).map(|request| request.name).ok_or(Refusal::UnknownOrder)
    }

    fn add_pending(&mut self, request: ClientRequest, terms: Option<NewOrder>, order: Handle) {
        self.admission.known.add_change(request, terms);
        if let Some(entry) = self.admission.known.entry_mut(order) {
            entry.order.pending += 1;
        }
    }

    fn count_open(&mut self, client: ClientIndex, change: i32) {
        if let Some(client) = self.admission.clients.get_mut(usize::from(client.0)) {
            client.risk.open_orders = client.risk.open_orders.saturating_add_signed(change);
        }
    }

    fn symbol(&self, instrument: InstrumentIndex) -> Text {
        let symbol = self
            .admission
            .reference
            .instrument(instrument)
            .and_then(|instrument| present(&instrument.symbol));
        Text::new().push(symbol.unwrap_or_default())
    }

    fn version(&self, client: ClientIndex) -> FixVersion {
        self.admission
            .clients
            .get(usize::from(client.0))
            .map_or(FixVersion::default(), |client| client.version)
    }

    /// Notes an ExecID (17) that a previous run made itself. No id is used again, even if the clock was set back.
    pub fn has_used(&mut self, execution_id: &[u8]) {
        let letter = execution_id.iter().rposition(|byte| *byte == b'G');
        let digits = letter.and_then(|at| execution_id.get(at + 1..));
        let number = digits.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
        self.own_report_ns = self.own_report_ns.max(number.unwrap_or(0));
    }

    /// Creates the execution id of a report that the translator makes itself. It is a time, so that ids of different runs differ.
    fn own_execution(&mut self, now_ns: u64) -> ExecutionId {
        self.own_report_ns = now_ns.max(self.own_report_ns + 1);
        let text = Text::new().push(b"G").push_number(self.own_report_ns);
        ExecutionId(Ascii::padded(text.as_bytes()).unwrap_or_default())
    }

    // ---- status and refusals ----

    /// Answers an OrderStatusRequest from the state. Requests in flight show as pending.
    #[cold]
    fn answer_status(&mut self, incoming: &Incoming<'_>, order: Option<Handle>, out: &mut impl Outputs) {
        let Ok(view) = OrderStatusRequest::read_parsed(incoming.message) else { return };
        let version = self.version(incoming.client);
        let own = self.own_execution(incoming.now_ns);
        let exec_id = self.dates.exec_id(incoming.now_ns, 0, &own);
        let found = order.and_then(|order| self.admission.known.entry(order));
        let mut fields = if let Some(entry) = found {
            let order = &entry.order;
            let status = if order.pending == 0 || entry.machine.state() == ExchangeToClientState::Ended {
                order.status
            } else {
                self.admission.known.pending_status(entry).unwrap_or(order.status)
            };
            let instrument = self.admission.reference.instrument(order.instrument);
            let exec_type = exec_type_of(version, ExecType::OrderStatus, status);
            of_order(order, instrument, exec_id.as_bytes(), exec_type, status)
        } else {
            let (exec_type, exec_trans_type) =
                exec_type_of(version, ExecType::OrderStatus, OrdStatus::Rejected);
            ExecutionReportFields {
                cl_ord_id: view.cl_ord_id(),
                exec_trans_type,
                ord_rej_reason: Some(5),
                symbol: view.symbol(),
                text: Some(Refusal::UnknownOrder.text().as_bytes()),
                ..ExecutionReportFields::new(
                    view.order_id().unwrap_or(b"NONE"),
                    exec_id.as_bytes(),
                    exec_type,
                    OrdStatus::Rejected,
                    view.side(),
                    Decimal(0),
                    Decimal(0),
                    Decimal(0),
                )
            }
        };
        fields.ord_status_req_id = view.ord_status_req_id();
        fields.transact_time = Some(NanosecondsSinceEpoch(incoming.now_ns));
        self.admission.counters.reports += 1;
        let asked = route::of_answered(incoming.message);
        let of_order = found.and_then(|entry| self.admission.routes.get(entry.order.route));
        let route = asked.as_ref().or(of_order);
        out.to_client(incoming.client, &Reply { body: Body::Execution(&fields), route });
    }

    /// Rejects a client's message. Nothing of it is kept.
    #[cold]
    fn refuse(&mut self, incoming: &Incoming<'_>, kind: &[u8], refusal: Refusal, out: &mut impl Outputs) {
        self.admission.counters.refused += 1;
        self.admission.counters.breaches +=
            u64::from(matches!(refusal, Refusal::Breach(_) | Refusal::Halted));
        match self.admission.refusals.iter_mut().find(|(reason, _)| *reason == refusal.text()) {
            Some((_, count)) => *count += 1,
            None => self.admission.refusals.push((refusal.text(), 1)),
        }
        let &Incoming { client, message, now_ns } = incoming;
        let route = route::of_answered(message);
        let route = route.as_ref();
        let mut text = Text::new().push(refusal.text().as_bytes());
        if refusal.tag() != 0 {
            text = text.push(b" ").push_number(u64::from(refusal.tag()));
        }
        let text = Some(text.as_bytes());
        let sequence = message.field(tag::MSG_SEQ_NUM).and_then(|text| read_unsigned(text).ok());
        let kind = if kind.is_empty() { b"?" } else { kind };
        if let Some(reason) = refusal.session_reason() {
            let fields = RejectFields {
                ref_tag_id: (refusal.tag() != 0).then_some(i64::from(refusal.tag())),
                ref_msg_type: Some(kind),
                session_reject_reason: Some(reason),
                text,
                ..RejectFields::new(sequence.unwrap_or(0))
            };
            return out.to_client(client, &Reply { body: Body::Reject(&fields), route });
        }
        let time = Some(NanosecondsSinceEpoch(now_ns));
        let id = message.field(tag::CL_ORD_ID).unwrap_or(b"NONE");
        match (refusal.business_reason(), kind) {
            (None, b"D") => self.reject_order(incoming, refusal, text, route, out),
            (None, b"F" | b"G") => {
                let original = message.field(tag::ORIG_CL_ORD_ID).unwrap_or(b"NONE");
                let known = ClOrdId::new(original)
                    .and_then(|original| self.admission.known.by_client(client, &original))
                    .and_then(|request| self.admission.known.entry(request.order?));
                let order_id = known.and_then(|entry| present(&entry.order.order_id.0));
                let fields = OrderCancelRejectFields {
                    transact_time: time,
                    cxl_rej_reason: Some(refusal.cancel_reason()),
                    text,
                    ..OrderCancelRejectFields::new(
                        order_id.unwrap_or(b"NONE"),
                        id,
                        original,
                        known.map_or(OrdStatus::Rejected, |entry| entry.order.status),
                        response_to(kind == b"G"),
                    )
                };
                out.to_client(client, &Reply { body: Body::CancelReject(&fields), route });
            }
            (None, b"S" | b"Z") => {
                let id = message.field(tag::QUOTE_ID).unwrap_or(b"NONE");
                let status = (refusal.quote_status(), Some(refusal.quote_reason()));
                let symbol = Text::new().push(message.field(tag::SYMBOL).unwrap_or_default());
                self.report_quote(client, (id, symbol), status, text, (now_ns, route), out);
            }
            (None, b"i") => {
                let fields = MassQuoteAcknowledgementFields {
                    quote_id: message.field(tag::QUOTE_ID),
                    quote_reject_reason: Some(refusal.quote_reason()),
                    text,
                    ..MassQuoteAcknowledgementFields::new(refusal.quote_status())
                };
                out.to_client(client, &Reply { body: Body::MassQuoteAcknowledgement(&fields), route });
            }
            (None, b"q") => {
                let view = OrderMassCancelRequest::read_parsed(message).ok();
                let request_type = view.map(|view| view.mass_cancel_request_type());
                let fields = OrderMassCancelReportFields {
                    cl_ord_id: Some(id),
                    mass_cancel_reject_reason: Some(99),
                    transact_time: time,
                    text,
                    ..OrderMassCancelReportFields::new(
                        request_type.unwrap_or(MassCancelRequestType::Security),
                        MassCancelResponse::Rejected,
                    )
                };
                out.to_client(client, &Reply { body: Body::MassCancel(&fields), route });
            }
            (reason, _) => {
                let fields = BusinessMessageRejectFields {
                    ref_seq_num: sequence,
                    business_reject_ref_id: message.field(tag::CL_ORD_ID),
                    text,
                    ..BusinessMessageRejectFields::new(kind, reason.unwrap_or(0))
                };
                out.to_client(client, &Reply { body: Body::BusinessReject(&fields), route });
            }
        }
    }

    /// Rejects a new order with an ExecutionReport.
    fn reject_order(
        &mut self,
        incoming: &Incoming<'_>,
        refusal: Refusal,
        text: Option<&[u8]>,
        route: Option<&Route>,
        out: &mut impl Outputs,
    ) {
        let own = self.own_execution(incoming.now_ns);
        let exec_id = self.dates.exec_id(incoming.now_ns, 0, &own);
        let version = self.version(incoming.client);
        let (exec_type, exec_trans_type) = exec_type_of(version, ExecType::Rejected, OrdStatus::Rejected);
        let view = NewOrderSingle::read_parsed(incoming.message).ok();
        let side = view.as_ref().map_or(Side::Undisclosed, NewOrderSingle::side);
        let fields = ExecutionReportFields {
            cl_ord_id: incoming.message.field(tag::CL_ORD_ID),
            exec_trans_type,
            account: incoming.message.field(tag::ACCOUNT),
            ord_rej_reason: Some(refusal.order_reason()),
            symbol: incoming.message.field(tag::SYMBOL),
            security_id: incoming.message.field(tag::SECURITY_ID),
            order_qty: view.as_ref().and_then(NewOrderSingle::order_qty),
            ord_type: view.as_ref().map(NewOrderSingle::ord_type),
            price: view.as_ref().and_then(NewOrderSingle::price),
            transact_time: Some(NanosecondsSinceEpoch(incoming.now_ns)),
            text,
            ..ExecutionReportFields::new(
                b"NONE",
                exec_id.as_bytes(),
                exec_type,
                OrdStatus::Rejected,
                side,
                Decimal(0),
                Decimal(0),
                Decimal(0),
            )
        };
        self.admission.counters.reports += 1;
        out.to_client(incoming.client, &Reply { body: Body::Execution(&fields), route });
    }

    // ---- exchange to client ----

    /// Processes a report from the venue. A report that was received before, by its number, is counted and has no effect.
    pub fn venue_report(&mut self, message: &[u8], out: &mut impl Outputs) {
        self.admission.counters.venue_messages += 1;
        // Used in place, because it is large.
        let mut read = self.venue.read(message);
        let report = match &mut read {
            Ok(report) => report,
            Err(unreadable) => return self.unreadable(unreadable, message, out),
        };
        if !self.is_next(report.numbered()) {
            return;
        }
        match report {
            Report::Execution(execution) => {
                let others = self.dates.reported(execution.time_ns, execution.numbered.app_id);
                self.venue.distinguish(execution, others);
                self.execution(execution, None, out);
            }
            Report::CancelRejected(rejected) => {
                let rejected = CancelRejected { name: self.rejected_cancel(&rejected.name), ..*rejected };
                self.cancel_rejected(&rejected, None, out);
            }
            Report::MassCancelled(report) => self.mass_cancelled(report, out),
            Report::Refused(refused) => self.venue_refused(refused, out),
        }
    }

    /// Handles a message that the venue's session did not send, because the connection broke or its queue was full: rejects its
    /// request. The gateway's own requests wait for [`Self::send_again`] instead, because no client would repeat them. Returns
    /// whether the request is known.
    pub fn venue_unsent(&mut self, message: &[u8], now_ns: u64, out: &mut impl Outputs) -> bool {
        const TEXT: &[u8] = b"The request was not sent to the venue";
        let Some(Requested { name, cancelled, .. }) = self.venue.requested(message) else { return false };
        let named = name.and_then(|name| self.admission.known.by_name(&name));
        let handle = named.map(|(handle, _)| handle).or_else(|| {
            let (_, original) = self.admission.known.by_name(&cancelled?)?;
            self.admission.known.newest_cancel(original.order?, &original.id)
        });
        let Some(handle) = handle else { return false };
        let Some(request) = self.admission.known.request(handle).copied() else { return false };
        let was_again = self.last_again.take() == Some(handle);
        if request.is_own || request.is_in_doubt {
            // Keeps the order of the queue, because a venue may ignore a name below the last one.
            if was_again {
                self.again.push_front((handle, message.into()));
            } else {
                self.again.push_back((handle, message.into()));
            }
        } else {
            self.reject_request(&request, TEXT, now_ns, out);
        }
        true
    }

    /// Returns whether a message to the venue is a new order, a quote or a replace of this client; `None`: of any client.
    #[must_use]
    pub fn is_order(&self, message: &[u8], client: Option<ClientIndex>) -> bool {
        let name = self.requested(message).and_then(|requested| requested.name);
        name.and_then(|name| self.admission.known.by_name(&name)).is_some_and(|(_, request)| {
            matches!(request.kind, RequestKind::New | RequestKind::Replace | RequestKind::Quote)
                && client.is_none_or(|client| request.client == client)
        })
    }

    /// Returns what a message to the venue requests; `None`: it is not a request.
    #[must_use]
    pub fn requested(&self, message: &[u8]) -> Option<Requested> {
        self.venue.requested(message)
    }

    /// Returns whether [`Self::send_again`] has something to send.
    #[must_use]
    pub fn has_to_send_again(&self) -> bool {
        !self.again.is_empty()
    }

    /// Resends the next of the gateway's own requests that the venue's session refused. Skips requests that have been answered
    /// since.
    pub fn send_again(&mut self, out: &mut impl Outputs) {
        while let Some((handle, message)) = self.again.pop_front() {
            if self.admission.known.request(handle).is_some_and(|request| request.is_pending) {
                self.last_again = Some(handle);
                return out.to_venue(&message);
            }
        }
    }

    /// Rejects a request that did not reach the venue, or that the venue rejected.
    fn reject_request(&mut self, request: &ClientRequest, text: &[u8], now_ns: u64, out: &mut impl Outputs) {
        let (name, numbered) = (request.name, Numbered::default());
        match request.kind {
            RequestKind::New => {
                let execution_id = self.own_execution(now_ns);
                let mut rejected = Execution::rejected(name, execution_id, now_ns);
                self.execution(&mut rejected, Some(text), out);
            }
            RequestKind::Cancel | RequestKind::Replace => {
                let rejected = CancelRejected { numbered, name, reject_code: 0, time_ns: now_ns };
                self.cancel_rejected(&rejected, Some(text), out);
            }
            RequestKind::MassCancel => {
                let is_accepted = false;
                let report = MassCancelled { numbered, name, is_accepted, reject_code: 0, time_ns: now_ns };
                self.mass_cancelled(&report, out);
            }
            RequestKind::Quote => {
                if let Some((handle, _)) = self.admission.known.by_name(&name) {
                    self.reject_quote(handle, text, now_ns, out);
                }
            }
        }
    }

    // ---- the gateway's own requests ----

    /// Resolves requests that were left in doubt when the connection to the venue broke: the missed reports have arrived
    /// ([`Self::venue_recovered`]), and some requests have no answer. Their reports may still follow, because a venue accepts a
    /// request some time before it reports it.
    ///
    /// If the venue answers every cancel, the gateway asks it:
    ///
    /// - A new order gets a cancel: the venue cancels the order, or rejects the cancel because the order never arrived.
    /// - For other requests, their instrument gets a probe: a cancel of no order. The instrument's partition rejects it after the
    ///   reports of everything that it accepted before. A request without an answer by then never arrived, and is rejected.
    /// - If a quote is in doubt, the quotes of its instrument get a mass cancel.
    ///
    /// A venue that ignores names that it has already seen was asked before: it has made all reports, and states which names it has
    /// not seen ([`Self::venue_next_name`]). Cancels, replaces, and new orders with unseen names are rejected. Other new orders are
    /// sent again with the quantity 0: the venue rejects or ignores them.
    ///
    /// Either way, no order starts to work that the client has not just sent.
    pub fn settle(&mut self, now_ns: u64, out: &mut impl Outputs) {
        self.again.clear();
        self.doubts.clear();
        self.doubted_ns = now_ns;
        let unseen_from = self.venue_next.take().unwrap_or(u32::MAX);
        let pending = self.admission.known.pending();
        // The gateway's own cancels are sent again, as new requests.
        let mut cancelled = Vec::new();
        for handle in &pending {
            if let Some(request) = self.admission.known.request(*handle).filter(|request| request.is_own) {
                cancelled.extend(request.order);
                self.answer(*handle);
            }
        }
        for handle in pending {
            let Some(request) =
                self.admission.known.request(handle).copied().filter(|request| request.is_pending)
            else {
                continue;
            };
            self.admission.counters.doubts += 1;
            let is_unseen = request.name.number().is_some_and(|number| number >= unseen_from);
            match request.order.filter(|_| request.kind == RequestKind::New) {
                Some(order) if self.venue.answers_cancels() => self.send_own_cancel(order, now_ns, out),
                Some(order) if !is_unseen && self.send_again_without_quantity(handle, order, now_ns, out) => {
                }
                _ => {
                    if request.kind == RequestKind::Quote {
                        self.cancel_quotes_of(request.client, request.instrument, now_ns, out);
                    }
                    if self.venue.answers_cancels() && !planted!("doubts-not-probed") {
                        self.doubts.push(handle);
                    } else {
                        self.reject_request(&request, IN_DOUBT, now_ns, out);
                    }
                }
            }
        }
        for order in cancelled {
            let state = self.admission.known.entry(order).map(|entry| entry.machine.state());
            // An order that was sent and never reported is resolved above.
            let works =
                matches!(state, Some(ExchangeToClientState::Working | ExchangeToClientState::Suspended));
            if works && !self.admission.known.has_own_cancel(order) {
                self.send_own_cancel(order, now_ns, out);
            }
        }
        self.send_probes(now_ns, out);
    }

    /// Sends a probe for each instrument with requests in doubt.
    fn send_probes(&mut self, now_ns: u64, out: &mut impl Outputs) {
        let request = |handle: &Handle| self.admission.known.request(*handle);
        let instruments: BTreeMap<InstrumentIndex, ClientIndex> =
            self.doubts.iter().filter_map(request).map(|of| (of.instrument, of.client)).collect();
        for (instrument, client) in instruments {
            let is_sent =
                self.send_own(|translator, id| translator.send_probe(client, (id, instrument), now_ns, out));
            if !is_sent {
                self.reject_doubts(instrument, now_ns, out);
            }
        }
    }

    /// Sends a probe: a cancel whose original is its own name, so the venue rejects it. It uses an id of the client, but is not
    /// reported to the client.
    fn send_probe(
        &mut self,
        client: ClientIndex,
        (id, instrument): (ClOrdId, InstrumentIndex),
        now_ns: u64,
        out: &mut impl Outputs,
    ) -> Result<(), Refusal> {
        if self.admission.known.in_use(client, &id).is_some() {
            return Err(Refusal::Duplicate);
        }
        if !self.admission.known.make_room(RequestKind::Cancel) {
            return Err(Refusal::NotAvailable);
        }
        let name = self.venue.name(self.next_name, &id);
        let cancel = Cancel { name, original: name, order_id: VenueOrderId::default(), side: Side::Buy };
        self.send(name, &Request::Cancel(cancel), instrument, now_ns, out)?;
        let request = ClientRequest::new(RequestKind::Cancel, client, (id, id), name, instrument);
        self.admission.known.add_request(ClientRequest { is_own: true, ..request });
        Ok(())
    }

    /// Rejects requests of the instrument that are still in doubt when its probe is answered, because they never arrived.
    fn reject_doubts(&mut self, instrument: InstrumentIndex, now_ns: u64, out: &mut impl Outputs) {
        let mut doubts = core::mem::take(&mut self.doubts);
        doubts.retain(|handle| {
            let request = self.admission.known.request(*handle).copied();
            let Some(request) = request.filter(|request| request.is_pending) else { return false };
            let is_of_another = request.instrument != instrument;
            if !is_of_another {
                self.reject_request(&request, IN_DOUBT, now_ns, out);
            }
            is_of_another
        });
        self.doubts = doubts;
    }

    /// Sends an in-doubt new order again with a quantity of 0. Returns whether it was sent.
    fn send_again_without_quantity(
        &mut self,
        request: Handle,
        order: Handle,
        now_ns: u64,
        out: &mut impl Outputs,
    ) -> bool {
        let Some(entry) = self.admission.known.entry(order) else { return false };
        let nothing = NewOrder { quantity: 0, display: 0, minimum: 0, ..entry.order.terms };
        let instrument = entry.order.instrument;
        let Ok(length) = self.written(&Request::New(nothing), instrument, now_ns) else { return false };
        if let Some(request) = self.admission.known.request_mut(request) {
            request.is_in_doubt = true;
        }
        out.to_venue(self.buffer.get(..length).unwrap_or_default());
        true
    }

    /// Cancels the open orders of a client whose session ended. Skips orders that the gateway is already cancelling.
    pub fn cancel_orders(&mut self, client: ClientIndex, now_ns: u64, out: &mut impl Outputs) {
        for order in self.admission.known.open(client) {
            if !self.admission.known.has_own_cancel(order) {
                self.send_own_cancel(order, now_ns, out);
            }
        }
    }

    /// Cancels an order. If the venue ignores other names, sends a cancel for every name that the order may have when it arrives.
    fn send_own_cancel(&mut self, order: Handle, now_ns: u64, out: &mut impl Outputs) {
        let Some(entry) = self.admission.known.entry(order) else { return };
        if entry.quote.is_some() && entry.order.order_id.0.is_blank() {
            let (client, instrument) = (entry.order.client, entry.order.instrument);
            return self.cancel_quotes_of(client, instrument, now_ns, out);
        }
        let ids = self.admission.known.ids(order);
        let count = if self.venue.answers_cancels() { 1 } else { ids.len() };
        for original in ids.into_iter().take(count) {
            self.send_own(|translator, id| translator.send_cancel(id, original, order, true, now_ns, out));
        }
    }

    /// Sends one of the gateway's own requests. Room for a cancel is reserved for each known order. Returns whether it was sent.
    fn send_own(&mut self, mut send: impl FnMut(&mut Self, ClOrdId) -> Result<(), Refusal>) -> bool {
        // A client may have used the id. The next number gives another one.
        for _ in 0..8 {
            let text = Text::new().push(b"~").push_number(u64::from(self.next_name));
            let id = ClOrdId::new(text.as_bytes()).unwrap_or_default();
            match send(self, id) {
                Err(Refusal::Duplicate) => self.next_name = self.next_name.wrapping_add(1),
                sent => return sent.is_ok(),
            }
        }
        false
    }

    // ---- a restart ----

    /// Starts to replay the inputs of a previous run: [`Self::replay_request`], [`Self::venue_report`], and the other calls that
    /// had an effect, with the same times. Nothing is checked again, so that changed limits do not change the past.
    pub fn begin_replay(&mut self) {
        self.admission.is_replaying = true;
        self.venue_connected();
        self.venue_recovered();
    }

    /// Replays a client's message that led to a request. Returns whether it does so again, which it may not with another reference
    /// table or other venue settings.
    pub fn replay_request(
        &mut self,
        client: ClientIndex,
        message: &[u8],
        now_ns: u64,
        out: &mut impl Outputs,
    ) -> bool {
        let before = self.admission.counters.requests;
        self.client_bytes(client, message, now_ns, out);
        self.admission.counters.requests > before
    }

    /// Ends the replay: the venue is disconnected, and the counters restart.
    pub fn end_replay(&mut self) {
        self.admission.is_replaying = false;
        self.venue_disconnected();
        self.admission.counters = Counters::default();
        self.admission.refusals.clear();
        self.admission.known.forgotten = 0;
    }

    /// Returns whether a report is new. The first number of a day is 1.
    #[inline]
    fn is_next(&mut self, numbered: Numbered) -> bool {
        let Some(last) = self.last_numbers.get_mut(usize::from(numbered.app_id)) else { return true };
        if numbered.number == 0 {
            return true;
        }
        if numbered.number <= *last {
            self.admission.counters.repeated_reports += 1;
            return false;
        }
        self.admission.counters.missing_reports += u64::from(numbered.number - *last - 1);
        *last = numbered.number;
        true
    }

    /// Handles a report that matches no known request. A request that the venue has seen and the translator has not was lost with a
    /// part of the store, so no other request may get its name.
    fn unmatched(&mut self, report: &Report, out: &mut impl Outputs) {
        self.admission.counters.unknown_orders += 1;
        if !self.venue.names_are_ids()
            && let Some(number) = report.name().number()
            && number.checked_sub(self.next_name).is_some_and(|ahead| ahead < MOST_LOST_NAMES)
        {
            self.raise_next_name(number.saturating_add(1));
        }
        out.unmatched(report);
    }

    fn execution(&mut self, report: &mut Execution, text: Option<&[u8]>, out: &mut impl Outputs) {
        let named = self.admission.known.by_name(&report.name).map(|(handle, request)| (handle, *request));
        // A venue may name the mass cancel.
        let of_name = named.and_then(|(_, request)| request.order);
        let mut order = of_name.or_else(|| self.admission.known.by_order_id(&report.order_id));
        if let Some((handle, request)) = &named
            && request.kind == RequestKind::Quote
        {
            if request.is_pending && self.answer_quote(*handle, request, report, out) {
                return;
            }
            order = self.side_of(request, report);
        }
        let Some(order) = order else { return self.unmatched(&Report::Execution(*report), out) };
        // A venue may reject a replace with an order report.
        if report.kind == ExecutionKind::Rejected
            && named.is_some_and(|(_, request)| request.kind == RequestKind::Replace)
        {
            let Execution { numbered, name, reject_code, time_ns, .. } = *report;
            let rejected = CancelRejected { numbered, name, reject_code, time_ns };
            return self.cancel_rejected(&rejected, text, out);
        }
        let doubt = self.doubt_of(order, report);
        if let Some(doubt) = doubt.filter(|doubt| Self::is_left_out(report, *doubt)) {
            return self.leave_in_doubt(order, report, doubt, out);
        }
        let mut answered =
            named.filter(|(_, request)| request.is_pending && request.is_answered_by(report.kind));
        if answered.is_none() && report.is_requested && report.kind == ExecutionKind::Cancelled {
            let cancel = self.admission.known.pending_cancel(order, None);
            let known = &self.admission.known;
            answered = cancel.and_then(|handle| Some((handle, *known.request(handle)?)));
        }
        let in_doubt = report.kind == ExecutionKind::Rejected
            && named.is_some_and(|(_, request)| request.is_in_doubt && request.is_pending);
        let text = if in_doubt { Some(IN_DOUBT) } else { text };
        let is_own = answered.is_some_and(|(_, request)| request.is_own);
        let text =
            if is_own && report.kind == ExecutionKind::Cancelled { Some(CANCELLED_HERE) } else { text };
        let doubt = match self.complete(order, report) {
            Ok(found) => doubt.or(found),
            Err(Incomplete::Repeated) => {
                self.admission.counters.repeated_executions += 1;
                return out.repeated(report);
            }
            Err(Incomplete::Unknown) => return self.unmatched(&Report::Execution(*report), out),
        };
        let report = &*report;
        let Some(entry) = self.admission.known.entry_mut(order) else { return };
        let (before, id_before) = (entry.machine.state(), entry.order.id);
        // A replace that was in doubt and rejected may have been executed after all.
        let replace = named.filter(|(_, request)| {
            report.kind == ExecutionKind::Replaced && request.kind == RequestKind::Replace
        });
        // Every kind of report is an event.
        let _dispatched = entry.machine.dispatch(&mut entry.order, (report.kind as u8).into(), report);
        let Outcome::Report(exec_type) = entry.order.outcome else {
            self.admission.counters.unexpected += 1;
            return out.unmatched(&Report::Execution(*report));
        };
        let text = doubt.map_or(text, |doubt| Some(doubt.text().as_bytes()));
        if let Some((_, request)) = answered
            && !matches!(request.kind, RequestKind::New | RequestKind::Quote)
        {
            entry.order.pending = entry.order.pending.saturating_sub(1);
        }
        let changed = replace.map(|(_, request)| request);
        if let Some(request) = changed {
            entry.order.id = request.id;
        }
        let (client, after) = (entry.order.client, entry.machine.state());
        let requested_ns = entry.order.requested_ns;
        if let Some(terms) = changed.and_then(|request| self.admission.known.change(&request).copied())
            && let Some(entry) = self.admission.known.entry_mut(order)
        {
            entry.order.terms = terms;
        }
        if !doubt.is_some_and(Doubt::is_of_identity) {
            self.admission.known.set_order_id(order, report.order_id);
        }
        if let Some((handle, _)) = answered {
            self.admission.known.set_answered(handle);
        }
        if before == ExchangeToClientState::Sent {
            out.first_report(requested_ns);
        }
        let was_open = before != ExchangeToClientState::Ended;
        match (was_open, after == ExchangeToClientState::Ended) {
            (true, true) => {
                self.count_open(client, -1);
                self.admission.known.end_order(order);
                self.end_quote_of(order);
            }
            (false, false) => self.count_open(client, 1),
            _ => {}
        }
        let answers = answered.as_ref().or(replace.as_ref()).map(|(_, request)| request);
        let answers = answers.filter(|request| {
            !matches!(request.kind, RequestKind::New | RequestKind::Quote) && !request.is_own
        });
        self.report_execution(order, exec_type, report, text, answers, out);
        if let Some(doubt) = doubt {
            self.note_doubt(order, report, doubt, out);
        }
        if !self.venue.answers_cancels() {
            if was_open && after == ExchangeToClientState::Ended {
                self.reject_late_cancels(order, None, report.time_ns, out);
            } else if exec_type == ExecType::Replaced {
                self.reject_late_cancels(order, Some(&id_before), report.time_ns, out);
            }
        }
    }

    /// Rejects cancels that the venue does not answer: those of an order that ended, or that name an id which the order no longer
    /// has.
    fn reject_late_cancels(
        &mut self,
        order: Handle,
        original: Option<&ClOrdId>,
        time_ns: u64,
        out: &mut impl Outputs,
    ) {
        while let Some(change) = self.admission.known.pending_cancel(order, original) {
            let Some(request) = self.admission.known.request(change).copied() else { return };
            if request.is_own {
                self.answer(change);
            } else {
                self.reject_request(&request, Refusal::TooLate.text().as_bytes(), time_ns, out);
            }
        }
    }

    #[inline]
    fn report_execution(
        &mut self,
        order: Handle,
        exec_type: ExecType,
        report: &Execution,
        text: Option<&[u8]>,
        answers: Option<&ClientRequest>,
        out: &mut impl Outputs,
    ) {
        let Some(order) = self.admission.known.entry(order).map(|entry| &entry.order) else { return };
        let app_id = report.numbered.app_id;
        let exec_id = self.dates.exec_id(report.time_ns, app_id, &report.execution_id);
        let reference = (!report.reference.0.is_blank())
            .then(|| self.dates.exec_id(report.time_ns, app_id, &report.reference));
        let match_id = Digits::new(report.match_id);
        let (mut reason, mut reject_reason) = (None, None);
        if exec_type == ExecType::Rejected {
            let known = self.venue.reason(report.reject_code);
            let known_text = known.map(|known| known.text.as_bytes());
            reason = Some(reason_text(report.reject_code, text, known_text));
            reject_reason = Some(known.map_or(99, |known| i64::from(known.order_reason)));
        }
        let version = self.version(order.client);
        let instrument = self.admission.reference.instrument(order.instrument);
        let is_pending = exec_type == ExecType::PendingCancel;
        let status = if is_pending { OrdStatus::PendingCancel } else { order.status };
        let shown = exec_type_of(version, exec_type, status);
        let mut fields = of_order(order, instrument, exec_id.as_bytes(), shown, status);
        fields.ord_rej_reason = reject_reason;
        fields.text = text.or_else(|| (!report.why.is_empty()).then_some(report.why.as_bytes()));
        let ids = answers.map(|request| (&request.id, &request.original));
        let texts = Texts {
            exec_ref_id: reference.as_ref().map(ExecId::as_bytes),
            match_id: match_id.as_bytes(),
            reason: reason.as_ref().map(Text::as_bytes),
        };
        add_execution(&mut fields, exec_type, report, texts, ids);
        fit(version, &mut fields);
        let asked = answers.map_or(RouteIndex::NONE, |request| request.route);
        let route = self.admission.routes.get(asked.or(order.route));
        out.to_client(order.client, &Reply { body: Body::Execution(&fields), route });
        self.admission.counters.reports += 1;
        self.admission.counters.fills += u64::from(exec_type == ExecType::Trade);
    }

    /// Returns the name of the cancel that the venue rejects under this name: OUCH names the order or replace that the cancel
    /// refers to.
    fn rejected_cancel(&self, name: &VenueName) -> VenueName {
        let known = &self.admission.known;
        let cancel = || {
            let (_, request) = known.by_name(name)?;
            let handle = known.pending_cancel(request.order?, Some(&request.id))?;
            Some(known.request(handle)?.name)
        };
        if self.venue.answers_cancels() { *name } else { cancel().unwrap_or(*name) }
    }

    fn cancel_rejected(&mut self, report: &CancelRejected, text: Option<&[u8]>, out: &mut impl Outputs) {
        let named = self.admission.known.by_name(&report.name).map(|(handle, request)| (handle, *request));
        let found = named.filter(|(_, request)| {
            matches!(request.kind, RequestKind::Cancel | RequestKind::Replace) && request.is_pending
        });
        let Some((handle, request)) = found else {
            return self.unmatched(&Report::CancelRejected(*report), out);
        };
        self.answer(handle);
        if request.is_probe() {
            return self.reject_doubts(request.instrument, report.time_ns, out);
        }
        let entry = request.order.and_then(|order| self.admission.known.entry(order));
        let has_ended = entry.is_none_or(|entry| entry.machine.state() == ExchangeToClientState::Ended);
        if request.is_own {
            // The venue does not know an order that it never reported, so the order never arrived.
            let in_doubt = entry.filter(|entry| entry.machine.state() == ExchangeToClientState::Sent);
            let new = in_doubt.and_then(|entry| self.admission.known.by_name(&entry.order.terms.name));
            let is_renamed = !has_ended && entry.is_some_and(|entry| entry.order.id != request.original);
            match (new.map(|(_, new)| *new), request.order) {
                (Some(new), _) => self.reject_request(&new, IN_DOUBT, report.time_ns, out),
                // A replace came first, so the cancel named the order by a name that it no longer has.
                (None, Some(order)) if is_renamed && !self.admission.known.has_own_cancel(order) => {
                    self.send_own_cancel(order, report.time_ns, out);
                }
                (None, _) => self.own_cancel_failed(&request, out),
            }
            return;
        }
        let known = self.venue.reason(report.reject_code);
        let words = reason_text(report.reject_code, text, known.map(|known| known.text.as_bytes()));
        // 0: too late to cancel.
        let otherwise = if has_ended { 0 } else { 99 };
        let fields = OrderCancelRejectFields {
            transact_time: Some(NanosecondsSinceEpoch(report.time_ns)),
            cxl_rej_reason: Some(known.map_or(otherwise, |known| i64::from(known.cancel_reason))),
            text: Some(words.as_bytes()),
            ..OrderCancelRejectFields::new(
                entry.and_then(|entry| present(&entry.order.order_id.0)).unwrap_or(b"NONE"),
                request.id.text(),
                request.original.text(),
                entry.map_or(OrdStatus::Rejected, |entry| entry.order.status),
                response_to(request.kind == RequestKind::Replace),
            )
        };
        self.admission.counters.reports += 1;
        let of_order = entry.map_or(RouteIndex::NONE, |entry| entry.order.route);
        let route = self.admission.routes.get(request.route.or(of_order));
        out.to_client(request.client, &Reply { body: Body::CancelReject(&fields), route });
        if let Some(order) = request.order
            && request.kind == RequestKind::Replace
            && !self.venue.answers_cancels()
        {
            // A cancel that names the rejected replace names nothing.
            self.reject_late_cancels(order, Some(&request.id), report.time_ns, out);
        }
    }

    fn mass_cancelled(&mut self, report: &MassCancelled, out: &mut impl Outputs) {
        let named = self.admission.known.by_name(&report.name).map(|(handle, request)| (handle, *request));
        let found =
            named.filter(|(_, request)| request.kind == RequestKind::MassCancel && request.is_pending);
        let Some((handle, request)) = found else {
            return self.unmatched(&Report::MassCancelled(*report), out);
        };
        self.answer(handle);
        if request.is_own {
            return;
        }
        let instrument = self.admission.reference.instrument(request.instrument);
        let known = self.venue.reason(report.reject_code);
        let words = reason_text(report.reject_code, None, known.map(|known| known.text.as_bytes()));
        let response =
            if report.is_accepted { MassCancelResponse::Security } else { MassCancelResponse::Rejected };
        let fields = OrderMassCancelReportFields {
            cl_ord_id: Some(request.id.text()),
            order_id: Some(request.name.0.trimmed()),
            mass_cancel_reject_reason: (!report.is_accepted).then_some(99),
            symbol: instrument.and_then(|instrument| present(&instrument.symbol)),
            security_id: instrument.and_then(|instrument| present(&instrument.security_id)),
            transact_time: Some(NanosecondsSinceEpoch(report.time_ns)),
            text: (!report.is_accepted).then_some(words.as_bytes()),
            ..OrderMassCancelReportFields::new(MassCancelRequestType::Security, response)
        };
        self.admission.counters.reports += 1;
        let route = self.admission.routes.get(request.route);
        out.to_client(request.client, &Reply { body: Body::MassCancel(&fields), route });
    }

    /// Handles a request that the venue could not process: the client gets a BusinessMessageReject, and a new order ends.
    fn venue_refused(&mut self, report: &Refused, out: &mut impl Outputs) {
        let named = self.admission.known.by_name(&report.name).map(|(handle, request)| (handle, *request));
        let Some((handle, request)) = named.filter(|(_, request)| request.is_pending) else {
            return self.unmatched(&Report::Refused(*report), out);
        };
        self.answer(handle);
        if request.is_probe() {
            // The venue says no more than this.
            return self.reject_doubts(request.instrument, self.doubted_ns, out);
        }
        if request.is_own {
            return self.own_cancel_failed(&request, out);
        }
        if request.kind == RequestKind::New
            && let Some(order) = request.order
            && let Some(entry) = self.admission.known.entry_mut(order)
            && entry.machine.state() == ExchangeToClientState::Sent
        {
            let rejected = Execution::rejected(request.name, ExecutionId::default(), 0);
            let _dispatched =
                entry.machine.dispatch(&mut entry.order, (ExecutionKind::Rejected as u8).into(), &rejected);
            self.count_open(request.client, -1);
            self.admission.known.end_order(order);
        }
        if request.kind == RequestKind::Quote {
            self.end_sides(&request);
        }
        let known = self.venue.reason(report.reject_code);
        let words = reason_text(report.reject_code, None, known.map(|known| known.text.as_bytes()));
        let fields = BusinessMessageRejectFields {
            business_reject_ref_id: Some(request.id.text()),
            text: Some(words.as_bytes()),
            ..BusinessMessageRejectFields::new(request.kind.message_type(), 0)
        };
        self.admission.counters.reports += 1;
        let route = self.admission.routes.get(request.route);
        out.to_client(request.client, &Reply { body: Body::BusinessReject(&fields), route });
    }

    /// Reports that the venue rejected one of the gateway's own cancels.
    fn own_cancel_failed(&mut self, request: &ClientRequest, out: &mut impl Outputs) {
        let entry = request.order.and_then(|order| self.admission.known.entry(order));
        if let Some(entry) = entry.filter(|entry| entry.machine.state() != ExchangeToClientState::Ended) {
            self.admission.counters.own_cancels_failed += 1;
            out.own_cancel_failed(&entry.order);
        }
    }

    /// Marks a request as answered.
    fn answer(&mut self, handle: Handle) {
        let Some(request) = self.admission.known.set_answered(handle) else { return };
        let (kind, order, is_probe) = (request.kind, request.order, request.is_probe());
        match kind {
            RequestKind::MassCancel | RequestKind::Quote => self.admission.known.end_request(handle),
            RequestKind::Cancel if is_probe => self.admission.known.end_request(handle),
            RequestKind::New => {}
            RequestKind::Cancel | RequestKind::Replace => {
                if let Some(entry) = order.and_then(|order| self.admission.known.entry_mut(order)) {
                    entry.order.pending = entry.order.pending.saturating_sub(1);
                }
            }
        }
    }
}

const fn response_to(is_replace: bool) -> CxlRejResponseTo {
    if is_replace {
        CxlRejResponseTo::OrderCancelReplaceRequest
    } else {
        CxlRejResponseTo::OrderCancelRequest
    }
}

/// Returns MassCancelResponse (531) for an accepted request.
const fn response_of(request_type: MassCancelRequestType) -> MassCancelResponse {
    match request_type {
        MassCancelRequestType::AllOrders => MassCancelResponse::AllOrders,
        MassCancelRequestType::MarketSegment => MassCancelResponse::MarketSegment,
        _ => MassCancelResponse::Security,
    }
}

/// Returns the gateway's text, or the venue's code with its reason. Code 0 means no reason, unless the configuration defines code
/// 0.
fn reason_text(code: i32, text: Option<&[u8]>, reason: Option<&[u8]>) -> Text {
    if let Some(text) = text.or((code == 0 && reason.is_none()).then_some(NO_REASON)) {
        return Text::new().push(text);
    }
    let sign: &[u8] = if code < 0 { b"-" } else { b"" };
    let numbered = Text::new().push(b"Venue code ").push(sign).push_number(u64::from(code.unsigned_abs()));
    match reason {
        Some(reason) => numbered.push(b": ").push(reason),
        None => numbered,
    }
}
