//! The state machine for client messages: its state is the path to the venue, and its events are the MsgTypes.
//!
//! An action reads the message, checks it against the known orders and the client's limits, and returns its decision: a
//! request that the translator encodes for the venue, or a refusal. With the kill switch on, only cancels pass; without a
//! connection, only status requests.

use tapeworks_fix_wire::order_entry::{
    MassCancelRequestType, MassQuote, NewOrderSingle, OrdType, OrderCancelReplaceRequest, OrderCancelRequest,
    OrderMassCancelRequest, OrderStatusRequest, Quote as QuoteView, QuoteCancel, Side,
};
use tapeworks_fix_wire::{IgnoredTags, LastTimestamp, Parsed, tag};
use tapeworks_wire::Ascii;

use crate::dispatched::order_machine;
use crate::ids::{ClOrdId, ClientIndex, InstrumentIndex, VenueOrderId};
use crate::incoming::{
    check_quote_type, check_tags, check_values, entries_of, has_only_mapped, new_order, parties, quote_terms,
    replacement,
};
use crate::index::Hash;
use crate::known::{Known, RequestKind};
use crate::mapping::{
    OF_CANCEL, OF_MASS_CANCEL, OF_MASS_QUOTE, OF_NEW, OF_QUOTE, OF_QUOTE_CANCEL, OF_REPLACE, Tags,
};
use crate::orders::ExchangeToClientState;
use crate::pool::Handle;
use crate::reference::Reference;
use crate::refusal::Refusal;
use crate::request::{NewOrder, Quote};
use crate::risk::{Breach, Checked, Risk, TopOfBook, TopsOfBook};
use crate::route::{RouteIndex, Routes};
use crate::settings::FixVersion;

/// A client's message.
#[derive(Clone, Copy, Debug)]
pub struct Incoming<'m> {
    pub(crate) client: ClientIndex,
    pub(crate) message: &'m Parsed<'m>,
    /// Receive time, in UTC nanoseconds.
    pub(crate) now_ns: u64,
}

order_machine! {
    /// The messages of clients, by the way to the venue.
    pub machine ClientToExchange<'m> {
        context: Admission, message: Incoming<'m>, output: Decided
    }

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
        MassQuote = 'i' (message: Incoming<'m>),
        QuoteCancel = 'Z' (message: Incoming<'m>),
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
        Open + Quote                                     => quote;
        Open + MassQuote                                 => mass_quote;
        Open | Halted + QuoteCancel                      => quote_cancel;

        Halted + NewOrderSingle                          => refuse_halted;
        Halted + OrderCancelReplaceRequest               => refuse_halted;
        Halted + Quote                                   => refuse_halted;
        Halted + MassQuote                               => refuse_halted;
        Away | Recovering + NewOrderSingle               => refuse_unavailable;
        Away | Recovering + OrderCancelReplaceRequest    => refuse_unavailable;
        Away | Recovering + OrderCancelRequest           => refuse_unavailable;
        Away | Recovering + OrderMassCancelRequest       => refuse_unavailable;
        Away | Recovering + Quote                        => refuse_unavailable;
        Away | Recovering + MassQuote                    => refuse_unavailable;
        Away | Recovering + QuoteCancel                  => refuse_unavailable;

        _ + OrderStatusRequest                           => status;

        _ + Connected                                    => nothing -> Recovering;
        _ + Recovered [is_halted]                        => nothing -> Halted;
        _ + Recovered                                    => nothing -> Open;
        _ + Disconnected                                 => nothing -> Away;
        Open | Halted + Halt                             => halt -> Halted;
        Away | Recovering + Halt                         => halt;
        Open | Halted + Resume                           => resume -> Open;
        Away | Recovering + Resume                       => resume;
    }
}

/// Counters of a translator.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages from clients.
    pub client_messages: u64,
    /// Requests sent to the venue.
    pub requests: u64,
    /// Client messages refused by the gateway.
    pub refused: u64,
    /// Refused messages that exceeded a client's limits or met a kill switch.
    pub breaches: u64,
    /// Messages with PossResend and a known ClOrdID, which are ignored.
    pub possible_resends: u64,
    /// Fields ignored by a client's settings.
    pub ignored_fields: u64,
    /// Messages from the venue.
    pub venue_messages: u64,
    /// Reports sent to clients.
    pub reports: u64,
    /// Fills sent to clients.
    pub fills: u64,
    /// Reports that the venue sent again under the same number.
    pub repeated_reports: u64,
    /// Skipped numbers in the venue's reports.
    pub missing_reports: u64,
    /// Messages from the venue that are not reports.
    pub unreadable: u64,
    /// Reports of unknown orders and requests.
    pub unknown_orders: u64,
    /// Reports that do not fit the state of their order.
    pub unexpected: u64,
    /// Fills and order changes that arrived again under another number, and were ignored.
    pub repeated_executions: u64,
    /// In-doubt reports: see [`Doubt`](crate::Doubt).
    pub doubtful: u64,
    /// Ended orders forgotten to make room for others.
    pub forgotten: u64,
    /// The gateway's own cancels: for disconnected clients, and for orders in doubt.
    pub own_cancels: u64,
    /// Own cancels that the venue rejected although the order still works.
    pub own_cancels_failed: u64,
    /// Requests left in doubt when the connection to the venue broke.
    pub doubts: u64,
}

/// The decision about a client's message, or why the message is refused.
pub(crate) type Decided = Result<Decision, Refusal>;

/// What to do with a client's message.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::large_enum_variant, reason = "one decision lives at a time")]
pub(crate) enum Decision {
    None,
    New {
        id: ClOrdId,
        instrument: InstrumentIndex,
        order: NewOrder,
    },
    Cancel {
        id: ClOrdId,
        original: ClOrdId,
        order: Handle,
    },
    Replace {
        id: ClOrdId,
        original: ClOrdId,
        order: Handle,
        terms: NewOrder,
    },
    MassCancel {
        id: ClOrdId,
        scope: Scope,
    },
    Quote {
        id: ClOrdId,
        instrument: InstrumentIndex,
        quote: Quote,
    },
    /// The entries are checked; they are read again when they are sent.
    MassQuote,
    /// The request of the quote; `None`: all quotes of the client.
    QuoteCancel {
        quote: Option<Handle>,
    },
    Status {
        order: Option<Handle>,
    },
}

/// The scope of a mass cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    Instrument(InstrumentIndex),
    Segment(Ascii<4>),
    All,
}

impl Scope {
    /// Returns MassCancelRequestType (530).
    pub(crate) const fn request_type(self) -> MassCancelRequestType {
        match self {
            Self::Instrument(_) => MassCancelRequestType::Security,
            Self::Segment(_) => MassCancelRequestType::MarketSegment,
            Self::All => MassCancelRequestType::AllOrders,
        }
    }
}

/// Maximum number of entries in a MassQuote.
pub(crate) const MOST_ENTRIES: usize = 64;

/// A client and its limits.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) version: FixVersion,
    pub(crate) risk: Risk,
    pub(crate) ignored_tags: IgnoredTags,
}

/// Whether an instrument may be traded, and at which prices. Stored together, because each order reads all of it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Traded {
    /// Reports of its partition are missing.
    pub(crate) is_behind: bool,
    /// An in-doubt report has halted the instrument.
    pub(crate) is_doubtful: bool,
    pub(crate) has_negative_prices: bool,
}

/// All state that decides about a client's message.
#[derive(Debug)]
pub struct Admission {
    pub(crate) reference: Reference,
    pub(crate) clients: Vec<Client>,
    pub(crate) tops: Box<dyn TopsOfBook>,
    pub(crate) known: Known,
    pub(crate) is_halted: bool,
    /// By instrument.
    pub(crate) traded: Vec<Traded>,
    /// Whether an in-doubt report halts its instrument.
    pub(crate) halts_doubtful: bool,
    /// Requests that were sent before are being replayed; nothing is checked again.
    pub(crate) is_replaying: bool,
    /// The message is a dummy that must leave no trace.
    pub(crate) is_warming: bool,
    pub(crate) counters: Counters,
    /// Number of refusals for each reason.
    pub(crate) refusals: Vec<(&'static str, u64)>,
    /// The route of the current message.
    pub(crate) route: RouteIndex,
    pub(crate) routes: Routes,
    /// Time of the last message.
    pub(crate) last_time: LastTimestamp,
}

impl Admission {
    /// Checks the tags of a message and finds its route.
    fn check_tags(&mut self, incoming: Incoming<'_>, mapped: &Tags) -> Result<(), Refusal> {
        let Incoming { client: of, message, now_ns } = incoming;
        let Some(client) = self.clients.get(usize::from(of.0)) else { return Ok(()) };
        let walked = check_tags(message, mapped, &client.ignored_tags)?;
        self.counters.ignored_fields += walked.ignored;
        if walked.has_route {
            // No routing tag may keep a cancel from the venue: if the tags cannot be stored, the answer has the order's
            // tags. A store may hold messages that an earlier version accepted.
            let is_needed = !self.is_replaying && !matches!(message.message_type(), b"F" | b"q" | b"Z");
            match self.routes.of_message(of, message, now_ns) {
                Ok(route) => self.route = route,
                Err(refusal) if is_needed => return Err(refusal),
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Reads the id of a request.
    #[inline]
    pub(crate) fn client_id(&self, text: &[u8], tag: u32) -> Result<ClOrdId, Refusal> {
        match ClOrdId::new(text) {
            None => Err(Refusal::Id { tag }),
            // If the id is also the name at the venue, the name has no room for a long one.
            Some(id) if id.is_long() && self.known.names_are_ids() => Err(Refusal::Value { tag }),
            Some(id) => Ok(id),
        }
    }

    /// Returns whether to ignore the message: a possible resend whose ClOrdID is known. Any other message with a known
    /// ClOrdID is a duplicate.
    fn check_id(
        &mut self,
        client: ClientIndex,
        id: &ClOrdId,
        is_resend: Option<bool>,
    ) -> Result<bool, Refusal> {
        self.check_id_by(self.known.hash_of_id(client, id), client, id, is_resend)
    }

    /// Like `check_id`, given the id's hash.
    fn check_id_by(
        &mut self,
        hash: Hash,
        client: ClientIndex,
        id: &ClOrdId,
        is_resend: Option<bool>,
    ) -> Result<bool, Refusal> {
        if self.is_replaying {
            self.known.forget_ended(client, id);
        }
        let Some(known) = self.known.in_use_by(hash, client, id) else { return Ok(false) };
        if is_resend == Some(true) && known.client == client {
            self.counters.possible_resends += 1;
            return Ok(true);
        }
        Err(Refusal::Duplicate)
    }

    fn check_risk(
        &mut self,
        client: ClientIndex,
        instrument: InstrumentIndex,
        order: &NewOrder,
        adds: u32,
        now_ns: u64,
    ) -> Result<(), Refusal> {
        if self.is_replaying {
            return Ok(());
        }
        let traded = self.traded.get(instrument.0 as usize).copied().unwrap_or_default();
        if traded.is_behind || traded.is_doubtful {
            return Err(if traded.is_behind { Refusal::Behind } else { Refusal::Doubtful });
        }
        let Some(client) = self.clients.get_mut(usize::from(client.0)) else {
            return Err(Refusal::Breach(Breach::Killed));
        };
        let has_limit = matches!(order.kind, OrdType::Limit | OrdType::StopLimit | OrdType::Pegged);
        let has_stop = matches!(order.kind, OrdType::Stop | OrdType::StopLimit);
        let is_buy = order.side == Side::Buy;
        let checked = Checked {
            instrument,
            is_buy,
            is_short: matches!(order.side, Side::SellShort | Side::SellShortExempt),
            quantity: order.quantity,
            price_e8: has_limit.then_some(order.price_e8),
            stop_e8: has_stop.then_some(order.stop_e8),
            may_be_negative: traded.has_negative_prices,
            top: if client.risk.needs_top(is_buy, has_limit) {
                self.tops.top(instrument)
            } else {
                TopOfBook::default()
            },
            adds,
        };
        client.risk.check_limits(&checked).map_err(Refusal::Breach)?;
        // The rate is checked last, and counts only orders that pass all other checks.
        if self.is_warming || client.risk.takes(now_ns) { Ok(()) } else { Err(Refusal::Breach(Breach::Rate)) }
    }

    // ---- actions ----

    fn new_order(&mut self, incoming: Incoming<'_>) -> Decided {
        let mut view = NewOrderSingle::unread();
        view.read_parsed_into(incoming.message, &mut self.last_time).map_err(Refusal::Unread)?;
        if !has_only_mapped(&view) {
            self.check_tags(incoming, &OF_NEW)?;
        }
        let id = self.client_id(view.cl_ord_id(), tag::CL_ORD_ID)?;
        let hash = self.known.hash_of_id(incoming.client, &id);
        // The order is read while the id's slot is fetched from memory.
        self.known.fetch_id(hash);
        let found = self.reference.find(view.symbol(), view.security_id());
        let instrument = found.ok_or(Refusal::UnknownInstrument);
        let read = instrument.and_then(|instrument| new_order(&view, &self.reference, instrument));
        if self.check_id_by(hash, incoming.client, &id, view.poss_resend())? {
            return Ok(Decision::None);
        }
        // The order is copied once, to its final location.
        let (instrument, order) = (instrument?, read.as_ref().map_err(|refusal| *refusal)?);
        if !self.is_replaying {
            check_values(view.expire_time(), order)?;
        }
        if !self.is_warming && !self.known.make_room(RequestKind::New) {
            return Err(Refusal::NoRoom);
        }
        self.check_risk(incoming.client, instrument, order, 1, incoming.now_ns)?;
        Ok(Decision::New { id, instrument, order: *order })
    }

    fn cancel(&mut self, incoming: Incoming<'_>) -> Decided {
        let view = OrderCancelRequest::read_parsed(incoming.message).map_err(Refusal::Unread)?;
        self.check_tags(incoming, &OF_CANCEL)?;
        let id = self.client_id(view.cl_ord_id(), tag::CL_ORD_ID)?;
        if self.check_id(incoming.client, &id, view.poss_resend())? {
            return Ok(Decision::None);
        }
        let (original, order) = self.meant(incoming.client, view.orig_cl_ord_id(), view.side())?;
        self.check_instrument(order, view.symbol(), view.security_id())?;
        if !self.known.make_room(RequestKind::Cancel) {
            return Err(Refusal::NoRoom);
        }
        Ok(Decision::Cancel { id, original, order })
    }

    fn replace(&mut self, incoming: Incoming<'_>) -> Decided {
        let view = OrderCancelReplaceRequest::read_parsed(incoming.message).map_err(Refusal::Unread)?;
        self.check_tags(incoming, &OF_REPLACE)?;
        let id = self.client_id(view.cl_ord_id(), tag::CL_ORD_ID)?;
        if self.check_id(incoming.client, &id, view.poss_resend())? {
            return Ok(Decision::None);
        }
        let (original, order) = self.meant(incoming.client, view.orig_cl_ord_id(), view.side())?;
        let entry = self.known.entry(order).ok_or(Refusal::UnknownOrder)?;
        let instrument = entry.order.instrument;
        // Omitted fields default to the terms of the in-flight replace that the message names.
        let named = self.known.by_client(incoming.client, &original).filter(|request| request.is_pending);
        let before = named.and_then(|request| self.known.change(request)).unwrap_or(&entry.order.terms);
        let terms = replacement(&view, &self.reference, instrument, before)?;
        if !self.is_replaying {
            check_values(view.expire_time(), &terms)?;
        }
        if !self.known.make_room(RequestKind::Replace) {
            return Err(Refusal::NoRoom);
        }
        self.check_risk(incoming.client, instrument, &terms, 0, incoming.now_ns)?;
        Ok(Decision::Replace { id, original, order, terms })
    }

    fn mass_cancel(&mut self, incoming: Incoming<'_>) -> Decided {
        let view = OrderMassCancelRequest::read_parsed(incoming.message).map_err(Refusal::Unread)?;
        self.check_tags(incoming, &OF_MASS_CANCEL)?;
        let id = self.client_id(view.cl_ord_id(), tag::CL_ORD_ID)?;
        if self.check_id(incoming.client, &id, view.poss_resend())? {
            return Ok(Decision::None);
        }
        let (symbol, security_id, segment) = (view.symbol(), view.security_id(), view.market_segment_id());
        let scope = match view.mass_cancel_request_type() {
            MassCancelRequestType::Security => {
                Scope::Instrument(self.reference.find(symbol, security_id).ok_or(Refusal::UnknownInstrument)?)
            }
            MassCancelRequestType::MarketSegment => {
                let segment = segment.ok_or(Refusal::Missing { tag: tag::MARKET_SEGMENT_ID })?;
                let segment = Ascii::padded(segment).filter(|segment| self.reference.has_segment(segment));
                Scope::Segment(segment.ok_or(Refusal::Value { tag: tag::MARKET_SEGMENT_ID })?)
            }
            MassCancelRequestType::AllOrders => Scope::All,
            _ => return Err(Refusal::Value { tag: tag::MASS_CANCEL_REQUEST_TYPE }),
        };
        // Fields that the scope does not need would be dropped silently.
        let is_of_instrument = matches!(scope, Scope::Instrument(_));
        let is_of_segment = matches!(scope, Scope::Segment(_));
        let given = [
            (tag::SYMBOL, symbol.is_some() && !is_of_instrument),
            (tag::SECURITY_ID, security_id.is_some() && !is_of_instrument),
            (tag::MARKET_SEGMENT_ID, segment.is_some() && !is_of_segment),
        ];
        if let Some((tag, _)) = given.into_iter().find(|(_, is_idle)| *is_idle) {
            return Err(Refusal::Value { tag });
        }
        if !self.known.make_room(RequestKind::MassCancel) {
            return Err(Refusal::NoRoom);
        }
        Ok(Decision::MassCancel { id, scope })
    }

    fn quote(&mut self, incoming: Incoming<'_>) -> Decided {
        let view = QuoteView::read_parsed(incoming.message).map_err(Refusal::Unread)?;
        self.check_tags(incoming, &OF_QUOTE)?;
        check_quote_type(view.quote_type())?;
        let id = self.client_id(view.quote_id(), tag::QUOTE_ID)?;
        if self.check_id(incoming.client, &id, view.poss_resend())? {
            return Ok(Decision::None);
        }
        let parties = parties(view.parties(), &self.reference)?;
        let terms = quote_terms!(view);
        let (instrument, quote) = terms.quote(&self.reference, view.order_capacity(), parties)?;
        if !self.known.make_room(RequestKind::Quote) {
            return Err(Refusal::NoRoom);
        }
        self.check_quote(incoming, instrument, &quote, 0)?;
        Ok(Decision::Quote { id, instrument, quote })
    }

    /// Checks both sides of a quote as orders, in a message that adds `others` besides. Returns how many orders the quote adds.
    fn check_quote(
        &mut self,
        incoming: Incoming<'_>,
        instrument: InstrumentIndex,
        quote: &Quote,
        others: u32,
    ) -> Result<u32, Refusal> {
        let sides = [(Side::Buy, quote.bid), (Side::Sell, quote.offer)];
        let sides = sides.into_iter().filter(|(_, part)| part.quantity != 0);
        let adds = sides.clone().count() as u32;
        for (side, _) in sides {
            let order = quote.order(side);
            self.check_risk(incoming.client, instrument, &order, others + adds, incoming.now_ns)?;
        }
        Ok(adds)
    }

    /// Accepts all entries, or refuses all because of the first one that fails.
    fn mass_quote(&mut self, incoming: Incoming<'_>) -> Decided {
        let view = MassQuote::read_parsed(incoming.message).map_err(Refusal::Unread)?;
        self.check_tags(incoming, &OF_MASS_QUOTE)?;
        check_quote_type(view.quote_type())?;
        self.client_id(view.quote_id(), tag::QUOTE_ID)?;
        let parties = parties(view.parties(), &self.reference)?;
        let (mut ids, mut count, mut adds) = ([ClOrdId::default(); MOST_ENTRIES], 0, 0);
        for entry in entries_of(&view) {
            let id = self.client_id(entry.quote_entry_id(), tag::QUOTE_ENTRY_ID)?;
            let before = ids.get(..count).unwrap_or_default();
            if before.contains(&id) {
                return Err(Refusal::Value { tag: tag::QUOTE_ENTRY_ID });
            }
            *ids.get_mut(count).ok_or(Refusal::Value { tag: tag::NO_QUOTE_ENTRIES })? = id;
            count += 1;
            if self.check_id(incoming.client, &id, view.poss_resend())? {
                return Ok(Decision::None);
            }
            let (instrument, quote) = quote_terms!(entry).quote(&self.reference, None, parties)?;
            adds += self.check_quote(incoming, instrument, &quote, adds)?;
        }
        if count == 0 {
            return Err(Refusal::Missing { tag: tag::NO_QUOTE_ENTRIES });
        }
        if !self.known.make_room_for(count * 2, count) {
            return Err(Refusal::NoRoom);
        }
        Ok(Decision::MassQuote)
    }

    fn quote_cancel(&mut self, incoming: Incoming<'_>) -> Decided {
        const ALL: i64 = 4;
        const OF_ID: i64 = 5;
        let view = QuoteCancel::read_parsed(incoming.message).map_err(Refusal::Unread)?;
        self.check_tags(incoming, &OF_QUOTE_CANCEL)?;
        let quote = match (view.quote_cancel_type(), view.quote_id()) {
            (ALL, _) => None,
            (OF_ID, None) => return Err(Refusal::Missing { tag: tag::QUOTE_ID }),
            (OF_ID, Some(id)) => {
                let id = self.client_id(id, tag::QUOTE_ID)?;
                let quote = self.known.handle_of(incoming.client, &id);
                let is_quote = |quote: &Handle| {
                    self.known.request(*quote).is_some_and(|it| it.kind == RequestKind::Quote)
                };
                Some(quote.filter(is_quote).ok_or(Refusal::UnknownQuote)?)
            }
            _ => return Err(Refusal::Value { tag: tag::QUOTE_CANCEL_TYPE }),
        };
        Ok(Decision::QuoteCancel { quote })
    }

    fn status(&mut self, incoming: Incoming<'_>) -> Decided {
        let view = OrderStatusRequest::read_parsed(incoming.message).map_err(Refusal::Unread)?;
        let by_id = view.cl_ord_id().and_then(ClOrdId::new);
        let by_order_id = view.order_id().and_then(Ascii::padded).map(VenueOrderId);
        if view.cl_ord_id().is_none() && view.order_id().is_none() {
            return Err(Refusal::Missing { tag: tag::CL_ORD_ID });
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

    fn refuse_halted(&mut self, _: Incoming<'_>) -> Decided {
        Err(Refusal::Halted)
    }

    fn refuse_unavailable(&mut self, _: Incoming<'_>) -> Decided {
        Err(Refusal::NotAvailable)
    }

    fn nothing(&mut self) -> Decided {
        Ok(Decision::None)
    }

    fn halt(&mut self) -> Decided {
        self.is_halted = true;
        self.nothing()
    }

    fn resume(&mut self) -> Decided {
        self.is_halted = false;
        self.nothing()
    }

    // ---- guards and helpers ----

    const fn is_halted(&self) -> bool {
        self.is_halted
    }

    /// Returns the working order that OrigClOrdID (41) names: by the last accepted request of its chain, or by one in flight.
    fn meant(&self, client: ClientIndex, original: &[u8], side: Side) -> Result<(ClOrdId, Handle), Refusal> {
        let original = ClOrdId::new(original).ok_or(Refusal::UnknownOrder)?;
        let request = self.known.by_client(client, &original).ok_or(Refusal::UnknownOrder)?;
        let order = request.order.ok_or(Refusal::UnknownOrder)?;
        if request.kind == RequestKind::Quote {
            // Quotes are cancelled by QuoteCancel.
            return Err(Refusal::UnknownOrder);
        }
        let entry = self.known.entry(order).ok_or(Refusal::UnknownOrder)?;
        let is_in_flight = request.is_pending && request.kind != RequestKind::Cancel;
        if entry.order.id != original && !is_in_flight {
            return Err(Refusal::UnknownOrder);
        }
        if entry.machine.state() == ExchangeToClientState::Ended {
            return Err(Refusal::TooLate);
        }
        if entry.order.terms.side != side {
            return Err(Refusal::Value { tag: tag::SIDE });
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
            return Err(Refusal::Value {
                tag: if security_id.is_some() { tag::SECURITY_ID } else { tag::SYMBOL },
            });
        }
        Ok(())
    }
}
