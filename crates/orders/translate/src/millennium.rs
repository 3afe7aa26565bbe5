//! The mapping table of Millennium's native gateway: *FIX to Millennium native*.
//!
//! | FIX | native |
//! | --- | --- |
//! | OrdType (40) 1, 2, 3, 4 | Order Type 1, 2, 3, 4 |
//! | TimeInForce (59) 0, 2, 3, 4, 6, 7 | TIF 0, 5, 3, 4, 6, 10; 1 (good till cancel) by settings: 6 with a far date |
//! | Side (54) 1, 2, 5 | Side 1, 2, 2: native orders have no mark of a short sell |
//! | OrderCapacity (528) A, P, R | Capacity by settings: 3, 2, 1 |
//! | Parties (453), roles 3, 122, 12 | Client ID, Investment Decision Maker, Executing Trader |
//! | ExecInst (18) 6 | Passive Only Order by settings: 99 |
//! | MassCancelRequestType (530) 1 | Mass Cancel Request Type 3, all orders of the firm in the instrument |
//! | Quote, each entry of a MassQuote | New Quote |
//!
//! [`mapping`](crate::mapping) has every field. The reports' Exec Types 0, 4, 5, 8, 9, C, D, F and H are the kinds of
//! [`ExecutionKind`](crate::ExecutionKind). Cost: a message is written field by field into the caller's buffer, and read in place.

use tapeworks_fix_wire::order_entry::{OrdType, OrderCapacity, Side as FixSide, TimeInForce};
use tapeworks_fix_wire::tag;
use tapeworks_wire::millennium::native::{
    Anonymity, AutoCancel, BusinessReject, Capacity, ClearingAccount, ClientId, ExecType, ExecutingTrader,
    ExecutionReport, InvestmentDecisionMaker, MassCancelOrderSubType, MassCancelRequestType,
    MassCancelResponse, Message, MifidFlags, NewOrder, NewOrderFields, NewQuote, NewQuoteFields,
    OrderCancelReject, OrderCancelReplaceRequest, OrderCancelReplaceRequestFields, OrderCancelRequest,
    OrderCancelRequestFields, OrderMassCancelReport, OrderMassCancelRequest, OrderMassCancelRequestFields,
    OrderSubType, OrderType, OwnerType, PassiveOnlyOrder, PeggedExecInst, Reject, START_OF_MESSAGE, Side,
    Tif, TradeLiquidityIndicator, message_length,
};
use tapeworks_wire::millennium::variant::{LSE, TextPadding, Variant};
use tapeworks_wire::{Ascii, Decimal, SecondsSinceEpoch};

use crate::ids::{ClOrdId, ExecutionId, VenueName, VenueOrderId};
use crate::reference::Instrument;
use crate::report::{
    CancelRejected, Execution, ExecutionKind, Liquidity, MassCancelled, Numbered, Refused, Report,
};
use crate::request::{self, Request, Requested};
use crate::venue::{MOST_MESSAGE_BYTES, RejectReason, Unmapped, Unreadable, Venue};

/// How clients' requests are named at the venue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Naming {
    /// By their ClOrdID. Clients of one native user must not use the same ClOrdID.
    #[default]
    ClOrdId,
    /// By a number that the gateway assigns.
    Numbered,
}

/// Settings that a venue agrees with its members, or that its documents leave open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MillenniumSettings {
    /// The variant of the venue.
    pub variant: Variant,
    /// How requests are named.
    pub naming: Naming,
    /// Trader ID sent with every order.
    pub trader_id: Ascii<11>,
    /// Clearing Account sent with every order.
    pub clearing_account: ClearingAccount,
    /// Capacity for OrderCapacity (528) A.
    pub agency: Capacity,
    /// Capacity for OrderCapacity (528) P.
    pub principal: Capacity,
    /// Capacity for OrderCapacity (528) R.
    pub riskless_principal: Capacity,
    /// Capacity for an order without OrderCapacity.
    pub other_capacity: Capacity,
    /// Executing Trader for an order without a party of role 12.
    pub executing_trader: u32,
    /// Passive Only Order for ExecInst (18) 6.
    pub passive_only: PassiveOnlyOrder,
    /// The expiry of a good-till-cancel order, in seconds since 1970 UTC; 0: the venue does not accept such orders.
    pub good_till_cancel_s: u32,
    /// Whether short sells are sent as sells. If not, they are refused.
    pub sends_short_sells: bool,
    /// The venue's reject codes, in ascending order.
    pub reject_codes: Vec<RejectReason>,
}

impl Default for MillenniumSettings {
    /// The defaults: London Stock Exchange, ClOrdIDs as names, capacities 3, 2 and 1, no good-till-cancel orders, no reject codes.
    fn default() -> Self {
        Self {
            variant: LSE,
            naming: Naming::ClOrdId,
            trader_id: Ascii::default(),
            clearing_account: ClearingAccount::House,
            agency: Capacity::AnyOther,
            principal: Capacity::DealingOnOwnAccount,
            riskless_principal: Capacity::MatchedPrincipal,
            other_capacity: Capacity::DealingOnOwnAccount,
            executing_trader: ExecutingTrader::Client.raw(),
            passive_only: PassiveOnlyOrder::NoMatchWithVisible,
            good_till_cancel_s: 0,
            sends_short_sells: true,
            reject_codes: Vec::new(),
        }
    }
}

/// Maximum length of a text field.
const MOST_TEXT_BYTES: usize = 32;

static ONES_THEN_ZEROS: [u8; 2 * MOST_TEXT_BYTES] = {
    let mut mask = [0; 2 * MOST_TEXT_BYTES];
    let mut place = 0;
    while place < MOST_TEXT_BYTES {
        mask[place] = 0xff;
        place += 1;
    }
    mask
};

/// The mapping table of Millennium's native gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Millennium {
    settings: MillenniumSettings,
}

impl Millennium {
    /// Creates the table with these settings.
    #[must_use]
    pub fn new(mut settings: MillenniumSettings) -> Self {
        settings.reject_codes.sort_by_key(|reason| reason.code);
        Self { settings }
    }

    /// Converts a text to a field of the venue. Returns `None` if it is too long.
    #[inline]
    fn text<const N: usize, const M: usize>(&self, text: &Ascii<M>) -> Option<Ascii<N>> {
        let mut field: Ascii<N> = resized(text)?;
        if self.settings.variant.text_padding == TextPadding::Nul {
            // As many ones as the text has characters, then zeros.
            let keep = ONES_THEN_ZEROS.get(MOST_TEXT_BYTES - field.trimmed().len().min(MOST_TEXT_BYTES)..);
            field.0 = kept_of(field.0, keep?.first_chunk::<N>()?);
        }
        Some(field)
    }

    fn blank<const N: usize>(&self) -> Ascii<N> {
        self.text(&Ascii::<1>::default()).unwrap_or_default()
    }

    fn order_type(&self, kind: OrdType) -> Result<OrderType, Unmapped> {
        let native = match kind {
            OrdType::Market => OrderType::Market,
            OrdType::Limit => OrderType::Limit,
            OrdType::Stop => OrderType::Stop,
            OrdType::StopLimit => OrderType::StopLimit,
            _ => return Err(Unmapped::Value { tag: tag::ORD_TYPE }),
        };
        let is_taken = self.settings.variant.takes_order_type(native);
        if is_taken { Ok(native) } else { Err(Unmapped::Value { tag: tag::ORD_TYPE }) }
    }

    fn tif(&self, order: &request::NewOrder) -> Result<(Tif, u32), Unmapped> {
        let till_cancel_s = self.settings.good_till_cancel_s;
        let (tif, expire_s) = match order.time_in_force {
            TimeInForce::Day => (Tif::Day, order.expire_s),
            TimeInForce::AtTheOpening => (Tif::AtTheOpening, order.expire_s),
            TimeInForce::ImmediateOrCancel => (Tif::ImmediateOrCancel, order.expire_s),
            TimeInForce::FillOrKill => (Tif::FillOrKill, order.expire_s),
            TimeInForce::GoodTillDate => (Tif::GoodTillDate, order.expire_s),
            TimeInForce::AtTheClose => (Tif::AtTheClose, order.expire_s),
            TimeInForce::GoodTillCancel if till_cancel_s != 0 => (Tif::GoodTillDate, till_cancel_s),
            _ => return Err(Unmapped::Value { tag: tag::TIME_IN_FORCE }),
        };
        let is_taken = self.settings.variant.takes_tif(tif);
        if is_taken { Ok((tif, expire_s)) } else { Err(Unmapped::Value { tag: tag::TIME_IN_FORCE }) }
    }

    fn side(&self, side: FixSide) -> Result<Side, Unmapped> {
        match side {
            FixSide::Buy => Ok(Side::Buy),
            FixSide::Sell => Ok(Side::Sell),
            FixSide::SellShort if self.settings.sends_short_sells => Ok(Side::Sell),
            _ => Err(Unmapped::Value { tag: tag::SIDE }),
        }
    }

    fn capacity(&self, capacity: Option<OrderCapacity>) -> Result<Capacity, Unmapped> {
        match capacity {
            None => Ok(self.settings.other_capacity),
            Some(OrderCapacity::Agency) => Ok(self.settings.agency),
            Some(OrderCapacity::Principal) => Ok(self.settings.principal),
            Some(OrderCapacity::RisklessPrincipal) => Ok(self.settings.riskless_principal),
            Some(_) => Err(Unmapped::Value { tag: tag::ORDER_CAPACITY }),
        }
    }

    fn passive_only(&self, is_passive_only: bool) -> PassiveOnlyOrder {
        if is_passive_only { self.settings.passive_only } else { PassiveOnlyOrder::NoConstraint }
    }

    fn name_field(&self, name: &VenueName) -> Ascii<20> {
        self.text(&name.0).unwrap_or_default()
    }

    #[inline(always)]
    fn new_order(
        &self,
        order: &request::NewOrder,
        instrument: &Instrument,
    ) -> Result<NewOrderFields, Unmapped> {
        let settings = &self.settings;
        let (tif, expire_date_time) = self.tif(order)?;
        let parties = &order.parties;
        let trader = if parties.trader == 0 { settings.executing_trader } else { parties.trader };
        Ok(NewOrderFields {
            start_of_message: START_OF_MESSAGE,
            message_length: message_length(NewOrder::LENGTH),
            client_order_id: self.name_field(&order.name),
            trader_id: settings.trader_id,
            account: self.text(&order.account).ok_or(Unmapped::Value { tag: tag::ACCOUNT })?,
            clearing_account: settings.clearing_account,
            instrument_id: instrument.venue_id,
            mifid_flags: MifidFlags(0),
            party_role_qualifiers: 0,
            order_type: self.order_type(order.kind)?,
            tif,
            expire_date_time,
            side: self.side(order.side)?,
            order_qty: signed(order.quantity, 38)?,
            display_qty: signed(order.display, 1138)?,
            limit_price: Decimal(order.price_e8),
            capacity: self.capacity(order.capacity)?,
            auto_cancel: AutoCancel::ConformToUserConfiguration,
            order_sub_type: OrderSubType::Order,
            anonymity: Anonymity::Anonymous,
            stop_price: Decimal(order.stop_e8),
            passive_only_order: self.passive_only(order.is_passive_only),
            client_id: ClientId::from_raw(parties.client),
            investment_decision_maker: InvestmentDecisionMaker::from_raw(parties.decision_maker),
            group_id: 0,
            minimum_quantity: signed(order.minimum, 110)?,
            executing_trader: ExecutingTrader::from_raw(trader),
            offset: 0,
            pegged_exec_inst: PeggedExecInst::Default,
            owner_type: OwnerType::Default,
            reserved_14: [0; 14],
        })
    }

    fn cancel(
        &self,
        cancel: &request::Cancel,
        instrument: &Instrument,
    ) -> Result<OrderCancelRequestFields, Unmapped> {
        Ok(OrderCancelRequestFields {
            start_of_message: START_OF_MESSAGE,
            message_length: message_length(OrderCancelRequest::LENGTH),
            client_order_id: self.name_field(&cancel.name),
            original_client_order_id: self.name_field(&cancel.original),
            order_id: self.text(&cancel.order_id.0).unwrap_or_default(),
            instrument_id: instrument.venue_id,
            reserved_1: [0],
            second_reserved_1: [0],
            side: self.side(cancel.side)?,
            rfq_id: self.blank(),
        })
    }

    /// Builds a replace. Fields that an amendment cannot change must be unchanged.
    fn replace(
        &self,
        replace: &request::Replace,
        instrument: &Instrument,
    ) -> Result<OrderCancelReplaceRequestFields, Unmapped> {
        let (order, before) = (&replace.order, &replace.before);
        let unchanged = [
            (54, order.side == before.side),
            (40, order.kind == before.kind),
            (59, order.time_in_force == before.time_in_force),
            (528, order.capacity == before.capacity),
            (453, order.parties == before.parties),
        ];
        if let Some((tag, _)) = unchanged.into_iter().find(|(_, is_same)| !is_same) {
            return Err(Unmapped::Value { tag });
        }
        let (_, expire_date_time) = self.tif(order)?;
        Ok(OrderCancelReplaceRequestFields {
            start_of_message: START_OF_MESSAGE,
            message_length: message_length(OrderCancelReplaceRequest::LENGTH),
            client_order_id: self.name_field(&replace.name),
            original_client_order_id: self.name_field(&replace.original),
            order_id: self.text(&replace.order_id.0).unwrap_or_default(),
            instrument_id: instrument.venue_id,
            group_id: 0,
            reserved_1: [0],
            expire_date_time,
            order_qty: signed(order.quantity, 38)?,
            display_qty: signed(order.display, 1138)?,
            limit_price: Decimal(order.price_e8),
            account: self.text(&order.account).ok_or(Unmapped::Value { tag: tag::ACCOUNT })?,
            second_reserved_1: [0],
            side: self.side(order.side)?,
            stop_price: Decimal(order.stop_e8),
            passive_only_order: self.passive_only(order.is_passive_only),
            offset: 0,
            reserved_5: [0; 5],
            minimum_quantity: signed(order.minimum, 110)?,
        })
    }

    fn mass_cancel(
        &self,
        request: &request::MassCancel,
        instrument: &Instrument,
    ) -> OrderMassCancelRequestFields {
        OrderMassCancelRequestFields {
            start_of_message: START_OF_MESSAGE,
            message_length: message_length(OrderMassCancelRequest::LENGTH),
            client_order_id: self.name_field(&request.name),
            mass_cancel_request_type: MassCancelRequestType::FirmOrdersOfInstrument,
            instrument_id: instrument.venue_id,
            reserved_1: [0],
            group_id: 0,
            segment: self.blank(),
            order_sub_type: if request.is_of_quotes {
                MassCancelOrderSubType::Quote
            } else {
                MassCancelOrderSubType::Order
            },
            reserved_10: [0; 10],
        }
    }

    fn quote(&self, quote: &request::Quote, instrument: &Instrument) -> Result<NewQuoteFields, Unmapped> {
        let settings = &self.settings;
        let parties = &quote.parties;
        let trader = if parties.trader == 0 { settings.executing_trader } else { parties.trader };
        Ok(NewQuoteFields {
            start_of_message: START_OF_MESSAGE,
            message_length: message_length(NewQuote::LENGTH),
            client_order_id: self.name_field(&quote.name),
            trader_id: settings.trader_id,
            clearing_account: settings.clearing_account,
            instrument_id: instrument.venue_id,
            bid_price: Decimal(quote.bid.price_e8),
            bid_size: signed(quote.bid.quantity, 134)?,
            ask_price: Decimal(quote.offer.price_e8),
            ask_size: signed(quote.offer.quantity, 135)?,
            capacity: self.capacity(quote.capacity)?,
            auto_cancel: AutoCancel::ConformToUserConfiguration,
            client_id: ClientId::from_raw(parties.client),
            investment_decision_maker: InvestmentDecisionMaker::from_raw(parties.decision_maker),
            executing_trader: ExecutingTrader::from_raw(trader),
            mifid_flags: MifidFlags(0),
            party_role_qualifiers: 0,
            pegged_exec_inst: PeggedExecInst::Default,
        })
    }
}

impl Venue for Millennium {
    fn name(&self, number: u32, id: &ClOrdId) -> VenueName {
        match self.settings.naming {
            Naming::ClOrdId => id.as_name(),
            Naming::Numbered => VenueName::numbered(number),
        }
    }

    fn names_are_ids(&self) -> bool {
        self.settings.naming == Naming::ClOrdId
    }

    fn takes_mass_cancels(&self) -> bool {
        true
    }

    fn answers_cancels(&self) -> bool {
        true
    }

    #[inline]
    fn write(
        &self,
        request: &Request,
        instrument: &Instrument,
        _now_ns: u64,
        target: &mut [u8; MOST_MESSAGE_BYTES],
    ) -> Result<usize, Unmapped> {
        match request {
            Request::New(order) => Ok(put(target, &self.new_order(order, instrument)?.encode())),
            Request::Cancel(cancel) => Ok(put(target, &self.cancel(cancel, instrument)?.encode())),
            Request::Replace(replace) => Ok(put(target, &self.replace(replace, instrument)?.encode())),
            Request::MassCancel(request) => Ok(put(target, &self.mass_cancel(request, instrument).encode())),
            Request::Quote(quote) => Ok(put(target, &self.quote(quote, instrument)?.encode())),
        }
    }

    #[inline]
    fn read(&self, message: &[u8]) -> Result<Report, Unreadable> {
        let (length, order_id) = (message.len(), VenueOrderId::default());
        let unreadable = Unreadable { length, name: None, order_id };
        match Message::decode(message) {
            Ok(Message::ExecutionReport(report)) => {
                execution(&report).map(Report::Execution).ok_or_else(|| Unreadable {
                    name: Some(VenueName(plain(&report.client_order_id()))),
                    order_id: VenueOrderId(plain(&report.order_id())),
                    ..unreadable
                })
            }
            Ok(Message::OrderCancelReject(reject)) => Ok(Report::CancelRejected(cancel_rejected(&reject))),
            Ok(Message::OrderMassCancelReport(report)) => Ok(Report::MassCancelled(mass_cancelled(&report))),
            Ok(Message::BusinessReject(reject)) => Ok(Report::Refused(business_reject(&reject))),
            Ok(Message::Reject(reject)) => Ok(Report::Refused(refused(&reject))),
            _ => Err(unreadable),
        }
    }

    fn instrument_number(&self, instrument: &Instrument) -> u64 {
        u64::from(instrument.venue_id.cast_unsigned())
    }

    fn requested(&self, message: &[u8]) -> Option<Requested> {
        let (name, instrument) = match Message::decode(message).ok()? {
            Message::NewOrder(order) => (order.client_order_id(), order.instrument_id()),
            Message::OrderCancelRequest(cancel) => (cancel.client_order_id(), cancel.instrument_id()),
            Message::OrderCancelReplaceRequest(replace) => {
                (replace.client_order_id(), replace.instrument_id())
            }
            Message::OrderMassCancelRequest(request) => (request.client_order_id(), request.instrument_id()),
            Message::NewQuote(quote) => (quote.client_order_id(), quote.instrument_id()),
            _ => return None,
        };
        Some(Requested {
            name: Some(VenueName(plain(&name))),
            cancelled: None,
            instrument: Some(u64::from(instrument.cast_unsigned())),
        })
    }

    fn reason(&self, reject_code: i32) -> Option<&RejectReason> {
        let codes = &self.settings.reject_codes;
        codes.binary_search_by_key(&reject_code, |reason| reason.code).ok().and_then(|at| codes.get(at))
    }
}

fn signed(quantity: u32, tag: u32) -> Result<i32, Unmapped> {
    i32::try_from(quantity).map_err(|_| Unmapped::Value { tag })
}

fn unsigned(quantity: i32) -> u32 {
    u32::try_from(quantity).unwrap_or(0)
}

#[inline]
fn put<const N: usize>(target: &mut [u8; MOST_MESSAGE_BYTES], message: &[u8; N]) -> usize {
    const { assert!(N <= MOST_MESSAGE_BYTES, "the longest message fits") };
    if let Some(room) = target.first_chunk_mut::<N>() {
        *room = *message;
    }
    N
}

/// Masks the bits of a text with `keep`, four bytes at a time.
#[inline(always)]
fn kept_of<const N: usize>(mut text: [u8; N], keep: &[u8; N]) -> [u8; N] {
    let ((words, rest), (keep_words, keep_rest)) = (text.as_chunks_mut::<4>(), keep.as_chunks::<4>());
    for (word, keep) in words.iter_mut().zip(keep_words) {
        *word = (u32::from_le_bytes(*word) & u32::from_le_bytes(*keep)).to_le_bytes();
    }
    for (byte, keep) in rest.iter_mut().zip(keep_rest) {
        *byte &= *keep;
    }
    text
}

/// Pads a text with spaces to another length. Returns `None` if anything but spaces would be cut off.
#[inline]
fn resized<const N: usize, const M: usize>(text: &Ascii<N>) -> Option<Ascii<M>> {
    let mut field = Ascii([b' '; M]);
    if let Some(room) = field.0.first_chunk_mut::<N>() {
        *room = text.0;
        return Some(field);
    }
    let (kept, rest) = text.0.split_first_chunk::<M>()?;
    field.0 = *kept;
    rest.iter().fold(true, |all, byte| all & (*byte == b' ')).then_some(field)
}

/// Converts a text of the venue to the gateway's padding.
#[inline]
fn plain<const N: usize, const M: usize>(text: &Ascii<N>) -> Ascii<M> {
    if !text.0.iter().fold(false, |any, byte| any | (*byte == 0))
        && let Some(field) = resized(text)
    {
        return field;
    }
    Ascii::padded(text.trimmed()).unwrap_or_default()
}

fn time_ns(seconds: SecondsSinceEpoch, nanoseconds: u32) -> u64 {
    u64::from(seconds.0) * 1_000_000_000 + u64::from(nanoseconds)
}

fn numbered(app_id: u8, number: i32) -> Numbered {
    Numbered { app_id, number: unsigned(number) }
}

/// Converts the report of an order. Returns `None` for an Exec Type that is not in the document.
#[inline]
fn execution(report: &ExecutionReport<'_>) -> Option<Execution> {
    let kind = match report.exec_type() {
        ExecType::New => ExecutionKind::Accepted,
        ExecType::Cancelled => ExecutionKind::Cancelled,
        ExecType::Replaced => ExecutionKind::Replaced,
        ExecType::Rejected => ExecutionKind::Rejected,
        ExecType::Suspended => ExecutionKind::Suspended,
        ExecType::Expired => ExecutionKind::Expired,
        ExecType::Restated => ExecutionKind::Restated,
        ExecType::Trade => ExecutionKind::Trade,
        ExecType::TradeCancel => ExecutionKind::TradeCancelled,
        ExecType::Unknown(_) => return None,
    };
    let liquidity = match report.trade_liquidity_indicator() {
        TradeLiquidityIndicator::AddedLiquidity => Some(Liquidity::Added),
        TradeLiquidityIndicator::RemovedLiquidity => Some(Liquidity::Removed),
        TradeLiquidityIndicator::Auction => Some(Liquidity::Auction),
        TradeLiquidityIndicator::Unknown(_) => None,
    };
    let has_ended =
        matches!(kind, ExecutionKind::Cancelled | ExecutionKind::Expired | ExecutionKind::Rejected);
    Some(Execution {
        kind,
        numbered: numbered(report.app_id().raw(), report.sequence_no()),
        name: VenueName(plain(&report.client_order_id())),
        order_id: VenueOrderId(plain(&report.order_id())),
        execution_id: ExecutionId(plain(&report.execution_id())),
        reference: ExecutionId(plain(&report.execution_report_ref_id())),
        last_quantity: unsigned(report.executed_qty()),
        last_price_e8: report.executed_price().0,
        corrected_quantity: 0,
        corrected_price_e8: 0,
        // An order that ended has no open quantity, whatever the field says.
        leaves: Some(if has_ended { 0 } else { unsigned(report.leaves_qty()) }),
        is_requested: false,
        match_id: report.trade_match_id(),
        liquidity,
        reject_code: report.order_reject_code(),
        restatement: i64::from(report.restatement_reason()),
        restated_price_e8: None,
        instrument: Some(u64::from(report.instrument_id().cast_unsigned())).filter(|number| *number > 0),
        side: match report.side() {
            Side::Buy => Some(FixSide::Buy),
            Side::Sell => Some(FixSide::Sell),
            Side::None | Side::Unknown(_) => None,
        },
        why: "",
        time_ns: time_ns(report.transact_time_seconds(), report.transact_time_nanoseconds()),
    })
}

fn cancel_rejected(reject: &OrderCancelReject<'_>) -> CancelRejected {
    CancelRejected {
        numbered: numbered(reject.app_id().raw(), reject.sequence_no()),
        name: VenueName(plain(&reject.client_order_id())),
        reject_code: reject.cancel_reject_reason(),
        time_ns: time_ns(reject.transact_time_seconds(), reject.transact_time_nanoseconds()),
    }
}

fn mass_cancelled(report: &OrderMassCancelReport<'_>) -> MassCancelled {
    MassCancelled {
        numbered: numbered(report.app_id().raw(), report.sequence_no()),
        name: VenueName(plain(&report.client_order_id())),
        is_accepted: report.mass_cancel_response() == MassCancelResponse::Accepted,
        reject_code: report.mass_cancel_reject_reason(),
        time_ns: time_ns(report.transact_time_seconds(), report.transact_time_nanoseconds()),
    }
}

fn business_reject(reject: &BusinessReject<'_>) -> Refused {
    Refused {
        numbered: numbered(reject.app_id().raw(), reject.sequence_no()),
        name: VenueName(plain(&reject.client_order_id())),
        reject_code: reject.reject_code(),
    }
}

fn refused(reject: &Reject<'_>) -> Refused {
    Refused {
        numbered: Numbered::default(),
        name: VenueName(plain(&reject.client_order_id())),
        reject_code: reject.reject_code(),
    }
}
