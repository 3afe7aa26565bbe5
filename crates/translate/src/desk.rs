//! The machine of a client's messages: the way to the venue is its state, and each MsgType an event.
//!
//! An action reads the message, checks it against the known orders and the client's limits, and leaves a decision: a request
//! that the translator writes in the venue's bytes, or a refusal. The kill switch lets cancels pass; without a connection
//! nothing passes but status requests.

use tapeworks_dispatch::machine;
use tapeworks_wire::Ascii;
use tapeworks_wire::fix::order_entry::{
    MassCancelRequestType, NewOrderSingle, OrdType, OrderCancelReplaceRequest, OrderCancelRequest,
    OrderMassCancelRequest, OrderStatusRequest, Side,
};

use crate::ids::{ClOrdId, ClientIndex, InstrumentIndex, VenueOrderId};
use crate::incoming::{
    check_tags, client_id, has_only_mapped, is_mapped_of_cancel, is_mapped_of_mass_cancel, is_mapped_of_new,
    is_mapped_of_replace, new_order, replacement,
};
use crate::known::{Known, RequestKind};
use crate::orders::ExchangeToClientState;
use crate::pool::Handle;
use crate::reference::Reference;
use crate::refusal::Refusal;
use crate::request::NewOrder;
use crate::risk::{Breach, Checked, Risk, TopOfBook, TopsOfBook};
use crate::settings::FixVersion;

/// A message of a client.
#[derive(Clone, Copy, Debug)]
pub struct Incoming<'m> {
    /// The client.
    pub(crate) client: ClientIndex,
    /// The message.
    pub(crate) message: &'m [u8],
    /// When it came, in UTC nanoseconds.
    pub(crate) now_ns: u64,
}

machine! {
    /// The messages of clients, by the way to the venue.
    pub machine ClientToExchange<'m> { context: Desk, message: Incoming<'m>, dispatch: table }

    states {
        Away,           // no connection to the venue
        Recovering,     // connected; missed reports are still to come
        Open,
        Halted,         // the kill switch
    }

    events {
        NewOrderSingle = 'D' (message: Incoming<'m>),
        OrderCancelRequest = 'F' (message: Incoming<'m>),
        OrderCancelReplaceRequest = 'G' (message: Incoming<'m>),
        OrderMassCancelRequest = 'q' (message: Incoming<'m>),
        OrderStatusRequest = 'H' (message: Incoming<'m>),
        Quote = 'S' (message: Incoming<'m>),
        Connected,
        Recovered,
        Disconnected,
        Halt,
        Resume,
    }

    rows {
        Open + NewOrderSingle                            => new_order;
        Open + OrderCancelReplaceRequest                 => replace;
        Open | Halted + OrderCancelRequest               => cancel;
        Open | Halted + OrderMassCancelRequest           => mass_cancel;

        Halted + NewOrderSingle                          => refuse_halted;
        Halted + OrderCancelReplaceRequest               => refuse_halted;
        Away | Recovering + NewOrderSingle               => refuse_unavailable;
        Away | Recovering + OrderCancelReplaceRequest    => refuse_unavailable;
        Away | Recovering + OrderCancelRequest           => refuse_unavailable;
        Away | Recovering + OrderMassCancelRequest       => refuse_unavailable;

        _ + OrderStatusRequest                           => status;
        _ + Quote                                        => refuse_type;

        _ + Connected                                    => _ -> Recovering;
        _ + Recovered [is_halted]                        => _ -> Halted;
        _ + Recovered                                    => _ -> Open;
        _ + Disconnected                                 => _ -> Away;
        Open | Halted + Halt                             => halt -> Halted;
        Away | Recovering + Halt                         => halt;
        Open | Halted + Resume                           => resume -> Open;
        Away | Recovering + Resume                       => resume;
    }
}

/// What a translator counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages of clients.
    pub client_messages: u64,
    /// Requests sent to the venue.
    pub requests: u64,
    /// Messages of clients that were refused here.
    pub refused: u64,
    /// Of these, by the clients' limits and the kill switch.
    pub breaches: u64,
    /// Messages with PossResend whose ClOrdID was known, and so ignored.
    pub possible_resends: u64,
    /// Fields that a client's settings ignore.
    pub ignored_fields: u64,
    /// Messages of the venue.
    pub venue_messages: u64,
    /// Reports sent to clients.
    pub reports: u64,
    /// Fills sent to clients.
    pub fills: u64,
    /// Reports of the venue that came a second time, by their number.
    pub repeated_reports: u64,
    /// Numbers of reports of the venue that were skipped.
    pub missing_reports: u64,
    /// Messages of the venue that are no reports.
    pub unreadable: u64,
    /// Reports of orders and requests that are not known.
    pub unknown_orders: u64,
    /// Reports that do not fit the state of their order.
    pub unexpected: u64,
    /// Ended orders that were forgotten for others.
    pub forgotten: u64,
    /// Cancels of the gateway's own: of clients that are gone, and of orders in doubt.
    pub own_cancels: u64,
    /// Of these, those that the venue rejected although the order works.
    pub own_cancels_failed: u64,
    /// Requests whose fate was in doubt after the connection to the venue broke.
    pub doubts: u64,
}

/// What an action decides.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::large_enum_variant, reason = "one decision lives at a time")]
pub(crate) enum Decision {
    None,
    Refuse(Refusal),
    New { id: ClOrdId, instrument: InstrumentIndex, order: NewOrder },
    Cancel { id: ClOrdId, original: ClOrdId, order: Handle },
    Replace { id: ClOrdId, original: ClOrdId, order: Handle, terms: NewOrder },
    MassCancel { id: ClOrdId, instrument: InstrumentIndex },
    Status { order: Option<Handle> },
}

/// A client and its limits.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) version: FixVersion,
    pub(crate) risk: Risk,
    pub(crate) ignored_tags: Vec<u32>,
}

/// Everything that decides about a client's message.
#[derive(Debug)]
pub struct Desk {
    pub(crate) reference: Reference,
    pub(crate) clients: Vec<Client>,
    pub(crate) tops: Box<dyn TopsOfBook>,
    pub(crate) known: Known,
    pub(crate) is_halted: bool,
    /// Requests that were sent before are repeated: nothing is checked again.
    pub(crate) is_replaying: bool,
    pub(crate) counters: Counters,
    /// How often each reason was that of a refusal here.
    pub(crate) refusals: Vec<(&'static str, u64)>,
    pub(crate) decision: Decision,
}

impl Desk {
    fn decide(&mut self, decision: Result<Decision, Refusal>) {
        self.decision = decision.unwrap_or_else(Decision::Refuse);
    }

    fn ignored(&self, client: ClientIndex) -> &[u32] {
        self.clients.get(usize::from(client.0)).map_or(&[], |client| &client.ignored_tags)
    }

    fn check_tags(&mut self, incoming: Incoming<'_>, is_mapped: fn(u32) -> bool) -> Result<(), Refusal> {
        let count = check_tags(incoming.message, is_mapped, self.ignored(incoming.client))?;
        self.counters.ignored_fields += count;
        Ok(())
    }

    /// Whether the ClOrdID is known: then it is a possible resend, which is ignored, or a duplicate.
    fn check_id(
        &mut self,
        client: ClientIndex,
        id: &ClOrdId,
        is_resend: Option<bool>,
    ) -> Result<Option<Decision>, Refusal> {
        if self.is_replaying {
            self.known.forget_ended(client, id);
        }
        if self.known.by_client(client, id).is_none() {
            return Ok(None);
        }
        if is_resend == Some(true) {
            self.counters.possible_resends += 1;
            return Ok(Some(Decision::None));
        }
        Err(Refusal::Duplicate)
    }

    fn check_risk(
        &mut self,
        client: ClientIndex,
        instrument: InstrumentIndex,
        order: &NewOrder,
        is_new: bool,
        now_ns: u64,
    ) -> Result<(), Refusal> {
        if self.is_replaying {
            return Ok(());
        }
        let Some(client) = self.clients.get_mut(usize::from(client.0)) else {
            return Err(Refusal::Breach(Breach::Killed));
        };
        let has_limit = matches!(order.kind, OrdType::Limit | OrdType::StopLimit | OrdType::Pegged);
        let checked = Checked {
            instrument,
            is_buy: order.side == Side::Buy,
            is_short: matches!(order.side, Side::SellShort | Side::SellShortExempt),
            quantity: order.quantity,
            price_e8: has_limit.then_some(order.price_e8),
            top: if client.risk.needs_top() { self.tops.top(instrument) } else { TopOfBook::default() },
            is_new,
        };
        client.risk.check(&checked, now_ns).map_err(Refusal::Breach)
    }

    // ---- actions ----

    fn new_order(&mut self, incoming: Incoming<'_>) {
        let decision = self.decide_new(incoming);
        self.decide(decision);
    }

    fn decide_new(&mut self, incoming: Incoming<'_>) -> Result<Decision, Refusal> {
        let view = NewOrderSingle::read(incoming.message).map_err(Refusal::Unread)?;
        if !has_only_mapped(&view, incoming.message) {
            self.check_tags(incoming, is_mapped_of_new)?;
        }
        let id = client_id(view.cl_ord_id(), 11)?;
        if let Some(decision) = self.check_id(incoming.client, &id, view.poss_resend())? {
            return Ok(decision);
        }
        let (instrument, order) = new_order(&view, &self.reference)?;
        if !self.known.make_room(RequestKind::New) {
            return Err(Refusal::NoRoom);
        }
        self.check_risk(incoming.client, instrument, &order, true, incoming.now_ns)?;
        Ok(Decision::New { id, instrument, order })
    }

    fn cancel(&mut self, incoming: Incoming<'_>) {
        let decision = self.decide_cancel(incoming);
        self.decide(decision);
    }

    fn decide_cancel(&mut self, incoming: Incoming<'_>) -> Result<Decision, Refusal> {
        let view = OrderCancelRequest::read(incoming.message).map_err(Refusal::Unread)?;
        self.check_tags(incoming, is_mapped_of_cancel)?;
        let id = client_id(view.cl_ord_id(), 11)?;
        if let Some(decision) = self.check_id(incoming.client, &id, view.poss_resend())? {
            return Ok(decision);
        }
        let (original, order) = self.meant(incoming.client, view.orig_cl_ord_id(), view.side())?;
        self.check_instrument(order, view.symbol(), view.security_id())?;
        if !self.known.make_room(RequestKind::Cancel) {
            return Err(Refusal::NoRoom);
        }
        Ok(Decision::Cancel { id, original, order })
    }

    fn replace(&mut self, incoming: Incoming<'_>) {
        let decision = self.decide_replace(incoming);
        self.decide(decision);
    }

    fn decide_replace(&mut self, incoming: Incoming<'_>) -> Result<Decision, Refusal> {
        let view = OrderCancelReplaceRequest::read(incoming.message).map_err(Refusal::Unread)?;
        self.check_tags(incoming, is_mapped_of_replace)?;
        let id = client_id(view.cl_ord_id(), 11)?;
        if let Some(decision) = self.check_id(incoming.client, &id, view.poss_resend())? {
            return Ok(decision);
        }
        let (original, order) = self.meant(incoming.client, view.orig_cl_ord_id(), view.side())?;
        let entry = self.known.entry(order).ok_or(Refusal::UnknownOrder)?;
        let instrument = entry.order.instrument;
        // What it leaves out is as the replace in flight makes it that it names.
        let named = self.known.by_client(incoming.client, &original).filter(|request| request.is_pending);
        let before = named.and_then(|request| request.terms).unwrap_or(entry.order.terms);
        let terms = replacement(&view, &self.reference, instrument, &before)?;
        if !self.known.make_room(RequestKind::Replace) {
            return Err(Refusal::NoRoom);
        }
        self.check_risk(incoming.client, instrument, &terms, false, incoming.now_ns)?;
        Ok(Decision::Replace { id, original, order, terms })
    }

    fn mass_cancel(&mut self, incoming: Incoming<'_>) {
        let decision = self.decide_mass_cancel(incoming);
        self.decide(decision);
    }

    fn decide_mass_cancel(&mut self, incoming: Incoming<'_>) -> Result<Decision, Refusal> {
        let view = OrderMassCancelRequest::read(incoming.message).map_err(Refusal::Unread)?;
        if view.mass_cancel_request_type() != MassCancelRequestType::Security {
            return Err(Refusal::Value { tag: 530 });
        }
        self.check_tags(incoming, is_mapped_of_mass_cancel)?;
        let id = client_id(view.cl_ord_id(), 11)?;
        if let Some(decision) = self.check_id(incoming.client, &id, view.poss_resend())? {
            return Ok(decision);
        }
        let found = self.reference.find(view.symbol(), view.security_id());
        let instrument = found.ok_or(Refusal::UnknownInstrument)?;
        // The venue cancels the orders of the user, whose clients share it.
        if !self.is_replaying && self.known.others_trade(incoming.client, instrument) {
            return Err(Refusal::OthersTrade);
        }
        if !self.known.make_room(RequestKind::MassCancel) {
            return Err(Refusal::NoRoom);
        }
        Ok(Decision::MassCancel { id, instrument })
    }

    fn status(&mut self, incoming: Incoming<'_>) {
        let decision = self.decide_status(incoming);
        self.decide(decision);
    }

    fn decide_status(&mut self, incoming: Incoming<'_>) -> Result<Decision, Refusal> {
        let view = OrderStatusRequest::read(incoming.message).map_err(Refusal::Unread)?;
        let by_id = view.cl_ord_id().and_then(ClOrdId::new);
        let by_order_id = view.order_id().and_then(Ascii::padded).map(VenueOrderId);
        if view.cl_ord_id().is_none() && view.order_id().is_none() {
            return Err(Refusal::Missing { tag: 11 });
        }
        let order = by_id
            .and_then(|id| self.known.by_client(incoming.client, &id))
            .and_then(|request| request.order)
            .or_else(|| by_order_id.and_then(|id| self.known.by_order_id(&id)));
        let is_own = |order: &Handle| {
            self.known.entry(*order).is_some_and(|entry| entry.order.client == incoming.client)
        };
        Ok(Decision::Status { order: order.filter(is_own) })
    }

    fn refuse_halted(&mut self, _: Incoming<'_>) {
        self.decision = Decision::Refuse(Refusal::Halted);
    }

    fn refuse_unavailable(&mut self, _: Incoming<'_>) {
        self.decision = Decision::Refuse(Refusal::NotAvailable);
    }

    fn refuse_type(&mut self, _: Incoming<'_>) {
        self.decision = Decision::Refuse(Refusal::UnsupportedType);
    }

    fn halt(&mut self) {
        self.is_halted = true;
    }

    fn resume(&mut self) {
        self.is_halted = false;
    }

    // ---- guards and helpers ----

    const fn is_halted(&self) -> bool {
        self.is_halted
    }

    /// The working order that OrigClOrdID (41) names: by the last accepted request of its chain, or by one in flight.
    fn meant(&self, client: ClientIndex, original: &[u8], side: Side) -> Result<(ClOrdId, Handle), Refusal> {
        let original = ClOrdId::new(original).ok_or(Refusal::UnknownOrder)?;
        let request = self.known.by_client(client, &original).ok_or(Refusal::UnknownOrder)?;
        let order = request.order.ok_or(Refusal::UnknownOrder)?;
        let entry = self.known.entry(order).ok_or(Refusal::UnknownOrder)?;
        let is_in_flight = request.is_pending && request.kind != RequestKind::Cancel;
        if entry.order.id != original && !is_in_flight {
            return Err(Refusal::UnknownOrder);
        }
        if entry.machine.state() == ExchangeToClientState::Ended {
            return Err(Refusal::TooLate);
        }
        if entry.order.terms.side != side {
            return Err(Refusal::Value { tag: 54 });
        }
        Ok((original, order))
    }

    fn check_instrument(
        &self,
        order: Handle,
        symbol: Option<&[u8]>,
        security_id: Option<&[u8]>,
    ) -> Result<(), Refusal> {
        let instrument = self.known.entry(order).map(|entry| entry.order.instrument);
        let is_named = symbol.is_some() || security_id.is_some();
        if is_named && self.reference.find(symbol, security_id) != instrument {
            return Err(Refusal::Value { tag: if security_id.is_some() { 48 } else { 55 } });
        }
        Ok(())
    }
}
