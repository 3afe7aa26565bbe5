//! The mapping table of Nasdaq's OUCH 5.0.
//!
//! | FIX | OUCH |
//! | --- | --- |
//! | ClOrdID (11) | a user reference number, which only rises; ClOrdID of OUCH is its digits |
//! | OrdType (40) 1, 2 | the price of a market order, or the limit, with 4 decimals |
//! | TimeInForce (59) 0, 3, 6 | Time In Force 0, 3, 6 with the optional field Expire Time, in seconds from now |
//! | TimeInForce (59) 4 | Time In Force 3, with the whole quantity as Min Qty |
//! | Side (54) 1, 2, 5, 6 | Side B, S, T, E |
//! | OrderCapacity (528) A, P, R, none | Capacity A, P, R, O |
//! | DisplayQty (1138), 0, a part | Display N; optional field Max Floor |
//! | MinQty (110) | optional field Min Qty |
//! | ExecInst (18) 6 | Display P, post only |
//!
//! A report of a cancel names the order, and a cancel of an order that has ended gets no answer. Executions do not state the open
//! quantity, and broken trades only state their match number: the translator knows both. Accounts, parties, quotes and mass cancels
//! are not mapped: instead of a mass cancel, the translator cancels each order. [`mapping`](crate::mapping) has every field.

use tapeworks_fix_wire::order_entry::{OrdType, OrderCapacity, Side as FixSide, TimeInForce as FixTif};
use tapeworks_fix_wire::tag;
use tapeworks_wire::nasdaq::ouch50::appendage::{OptionalField, write_all};
use tapeworks_wire::nasdaq::ouch50::inbound::{
    self, CancelOrderFields, Capacity, CrossType, Display, EnterOrderFields, InterMarketSweepEligibility,
    ReplaceOrderFields, Side, TimeInForce,
};
use tapeworks_wire::nasdaq::ouch50::outbound::{
    self, CancelOrderReason, LiquidityFlag, Message, OrderRestatedReason, OrderState, RejectedOrderReason,
};
use tapeworks_wire::{Ascii, Decimal, NanosecondsSinceMidnight};

use crate::ids::{ClOrdId, ExecutionId, VenueName, VenueOrderId};
use crate::reference::Instrument;
use crate::report::{CancelRejected, Execution, ExecutionKind, Liquidity, Numbered, Report};
use crate::request::{NewOrder, Request, Requested};
use crate::text::Text;
use crate::venue::{MOST_MESSAGE_BYTES, RejectReason, Unmapped, Unreadable, Venue};

/// Units of 1e-8 per unit of 1e-4.
const E8_PER_E4: i64 = 10_000;

const SECOND_NS: u64 = 1_000_000_000;

/// ExecRestatementReason (378).
const REPRICED: i64 = 3;
const OTHER_RESTATEMENT: i64 = 99;

/// The settings of an OUCH mapping table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OuchSettings {
    /// Midnight in New York, in UTC nanoseconds, from which OUCH's times count.
    pub midnight_ns: u64,
    /// The price of a market order. The default is the simulated exchange's; check it against Nasdaq's document.
    pub market_price: u64,
    /// The reject reasons in words, in ascending order of their codes.
    pub reject_codes: Vec<RejectReason>,
}

impl Default for OuchSettings {
    /// The defaults: midnight at 0, a market price of 2^31 - 1, the document's reject reasons.
    fn default() -> Self {
        Self { midnight_ns: 0, market_price: i32::MAX as u64, reject_codes: reasons() }
    }
}

impl OuchSettings {
    /// Replaces the reasons that have the same codes as these, and adds the others.
    pub fn set_reasons(&mut self, reasons: Vec<RejectReason>) {
        self.reject_codes.retain(|known| reasons.iter().all(|reason| reason.code != known.code));
        self.reject_codes.extend(reasons);
        self.reject_codes.sort_by_key(|reason| reason.code);
    }
}

/// Rejected Order Reason: OrdRejReason (103), and the document's words.
const REASONS: [(RejectedOrderReason, u16, &str); 31] = {
    use RejectedOrderReason as Reason;
    [
        (Reason::QuoteUnavailable, 99, "Quote unavailable"),
        (Reason::DestinationClosed, 2, "Destination closed"),
        (Reason::InvalidDisplay, 99, "Invalid display"),
        (Reason::InvalidMaxFloor, 99, "Invalid max floor"),
        (Reason::InvalidPegType, 11, "Invalid peg type"),
        (Reason::FatFinger, 99, "Fat finger"),
        (Reason::Halted, 2, "Halted"),
        (Reason::IsoNotAllowed, 11, "ISO not allowed"),
        (Reason::InvalidSide, 99, "Invalid side"),
        (Reason::ProcessingError, 99, "Processing error"),
        (Reason::CancelPending, 99, "Cancel pending"),
        (Reason::FirmNotAuthorized, 99, "Firm not authorized"),
        (Reason::InvalidMinQuantity, 13, "Invalid min quantity"),
        (Reason::NoClosingReferencePrice, 99, "No closing reference price"),
        (Reason::Other, 99, "Other"),
        (Reason::CancelNotAllowed, 99, "Cancel not allowed"),
        (Reason::PeggingNotAllowed, 11, "Pegging not allowed"),
        (Reason::CrossedMarket, 99, "Crossed market"),
        (Reason::InvalidQuantity, 13, "Invalid quantity"),
        (Reason::InvalidCrossOrder, 99, "Invalid cross order"),
        (Reason::ReplaceNotAllowed, 99, "Replace not allowed"),
        (Reason::RoutingNotAllowed, 99, "Routing not allowed"),
        (Reason::InvalidSymbol, 1, "Invalid symbol"),
        (Reason::Test, 99, "Test"),
        (Reason::LateLocTooAggressive, 4, "Late LOC too aggressive"),
        (Reason::RetailNotAllowed, 99, "Retail not allowed"),
        (Reason::InvalidMidpointPostOnlyPrice, 99, "Invalid midpoint post only price"),
        (Reason::InvalidDestination, 99, "Invalid destination"),
        (Reason::InvalidPrice, 99, "Invalid price"),
        (Reason::SharesExceedThreshold, 3, "Shares exceed threshold"),
        (Reason::ExceedsMaximumAllowedNotionalValue, 3, "Exceeds maximum allowed notional value"),
    ]
};

fn reasons() -> Vec<RejectReason> {
    let reason = |(reason, order_reason, text): &(RejectedOrderReason, u16, &str)| RejectReason {
        code: i32::from(reason.raw()),
        order_reason: *order_reason,
        cancel_reason: 99,
        text: (*text).to_owned(),
    };
    REASONS.iter().map(reason).collect()
}

/// The mapping table of OUCH.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ouch {
    settings: OuchSettings,
}

impl Ouch {
    /// Creates the table with these settings.
    #[must_use]
    pub fn new(mut settings: OuchSettings) -> Self {
        settings.reject_codes.sort_by_key(|reason| reason.code);
        Self { settings }
    }

    fn price(&self, order: &NewOrder) -> Result<Decimal<u64, 4>, Unmapped> {
        match order.kind {
            OrdType::Market => Ok(Decimal(self.settings.market_price)),
            OrdType::Limit if order.price_e8 % E8_PER_E4 == 0 => {
                let price = u64::try_from(order.price_e8 / E8_PER_E4).ok();
                let price = price.filter(|price| *price != self.settings.market_price);
                price.map(Decimal).ok_or(Unmapped::Value { tag: tag::PRICE })
            }
            OrdType::Limit => Err(Unmapped::Value { tag: tag::PRICE }),
            _ => Err(Unmapped::Value { tag: tag::ORD_TYPE }),
        }
    }

    fn time_ns(&self, time: NanosecondsSinceMidnight) -> u64 {
        self.settings.midnight_ns.saturating_add(time.0)
    }

    /// Builds a report of an order without further fields.
    fn execution(
        &self,
        kind: ExecutionKind,
        reference: u32,
        time: NanosecondsSinceMidnight,
        (letter, number): (&[u8], u64),
    ) -> Execution {
        let id = Text::new().push(letter).push_number(u64::from(reference)).push(b".").push_number(number);
        Execution {
            kind,
            leaves: None,
            ..Execution::rejected(
                VenueName::numbered(reference),
                ExecutionId(Ascii::padded(id.as_bytes()).unwrap_or_default()),
                self.time_ns(time),
            )
        }
    }

    fn report(&self, message: &Message<'_>) -> Option<Report> {
        Some(Report::Execution(match message {
            Message::OrderAccepted(view) => {
                let accepted =
                    self.execution(ExecutionKind::Accepted, view.user_ref_num(), view.timestamp(), (b"A", 0));
                let is_live = view.order_state() != OrderState::OrderDead;
                let kind = if is_live { ExecutionKind::Accepted } else { ExecutionKind::Rejected };
                let order_id = order_id(view.order_reference_number());
                let instrument = Some(u64::from_be_bytes(view.symbol().0));
                let (leaves, side) = (Some(view.quantity()), side_of(view.side()));
                Execution { kind, leaves, order_id, instrument, side, ..accepted }
            }
            Message::Replaced(view) => {
                let (reference, time) = (view.user_ref_num(), view.timestamp());
                let replaced = self.execution(ExecutionKind::Replaced, reference, time, (b"U", 0));
                let leaves = if view.order_state() == OrderState::OrderDead { 0 } else { view.quantity() };
                let order_id = order_id(view.order_reference_number());
                let instrument = Some(u64::from_be_bytes(view.symbol().0));
                Execution {
                    leaves: Some(leaves),
                    order_id,
                    instrument,
                    side: side_of(view.side()),
                    ..replaced
                }
            }
            Message::Canceled(view) => {
                let (reference, time) = (view.user_ref_num(), view.timestamp());
                let kind = match view.cancel_order_reason() {
                    CancelOrderReason::ImmediateOrCancelOrder
                    | CancelOrderReason::Timeout
                    | CancelOrderReason::Closed
                    | CancelOrderReason::CannotBeExecuted
                    | CancelOrderReason::PostOnlyCancel
                    | CancelOrderReason::PostOnlyCancelContraSideDisplayed => ExecutionKind::Expired,
                    _ => ExecutionKind::Cancelled,
                };
                let is_requested = view.cancel_order_reason() == CancelOrderReason::UserRequestedCancel;
                let last_quantity = view.quantity();
                Execution {
                    last_quantity,
                    is_requested,
                    why: if is_requested { "" } else { cancel_reason(view.cancel_order_reason()) },
                    ..self.execution(kind, reference, time, (b"C", time.0))
                }
            }
            Message::AiqCanceled(view) => {
                let (reference, time) = (view.user_ref_num(), view.timestamp());
                let last_quantity = view.decrement_shares();
                Execution {
                    last_quantity,
                    why: "Self match prevention",
                    ..self.execution(ExecutionKind::Cancelled, reference, time, (b"D", time.0))
                }
            }
            Message::OrderExecuted(view) => {
                let (reference, time) = (view.user_ref_num(), view.timestamp());
                let match_id = view.match_number();
                Execution {
                    last_quantity: view.quantity(),
                    last_price_e8: price_e8(view.price()),
                    match_id,
                    liquidity: liquidity(view.liquidity_flag()),
                    ..self.execution(ExecutionKind::Trade, reference, time, (b"E", match_id))
                }
            }
            Message::BrokenTrade(view) => {
                let (reference, time) = (view.user_ref_num(), view.timestamp());
                let match_id = view.match_number();
                let broken = self.execution(ExecutionKind::TradeCancelled, reference, time, (b"B", match_id));
                Execution { match_id, ..broken }
            }
            Message::TradeCorrection(view) => {
                let (reference, time) = (view.user_ref_num(), view.timestamp());
                let match_id = view.match_number();
                Execution {
                    last_quantity: view.quantity(),
                    last_price_e8: price_e8(view.price()),
                    match_id,
                    liquidity: liquidity(view.liquidity_flag()),
                    ..self.execution(ExecutionKind::TradeCorrected, reference, time, (b"F", time.0))
                }
            }
            Message::RejectedOrder(view) => {
                let (reference, time) = (view.user_ref_num(), view.timestamp());
                let reject_code = i32::from(view.rejected_order_reason().raw());
                let rejected = self.execution(ExecutionKind::Rejected, reference, time, (b"J", 0));
                Execution { reject_code, leaves: Some(0), ..rejected }
            }
            Message::CancelPending(view) => {
                let (reference, time) = (view.user_ref_num(), view.timestamp());
                self.execution(ExecutionKind::PendingCancel, reference, time, (b"P", time.0))
            }
            Message::OrderModified(view) => {
                let (reference, time) = (view.user_ref_num(), view.timestamp());
                let modified = self.execution(ExecutionKind::Restated, reference, time, (b"M", time.0));
                Execution { leaves: Some(view.quantity()), restatement: OTHER_RESTATEMENT, ..modified }
            }
            Message::OrderRestated(view) => {
                let (reference, time) = (view.user_ref_num(), view.timestamp());
                let is_repriced = view.order_restated_reason() == OrderRestatedReason::UpdateOfDisplayedPrice;
                let restatement = if is_repriced { REPRICED } else { OTHER_RESTATEMENT };
                Execution {
                    restatement,
                    ..self.execution(ExecutionKind::Restated, reference, time, (b"R", time.0))
                }
            }
            Message::OrderPriorityUpdate(view) => {
                let (reference, time) = (view.user_ref_num(), view.timestamp());
                Execution {
                    restatement: REPRICED,
                    restated_price_e8: Some(price_e8(view.price())),
                    order_id: order_id(view.order_reference_number()),
                    ..self.execution(ExecutionKind::Restated, reference, time, (b"T", time.0))
                }
            }
            Message::CancelReject(view) => {
                return Some(Report::CancelRejected(CancelRejected {
                    numbered: Numbered::default(),
                    name: VenueName::numbered(view.user_ref_num()),
                    reject_code: 0,
                    time_ns: self.time_ns(view.timestamp()),
                }));
            }
            _ => return None,
        }))
    }
}

impl Venue for Ouch {
    fn name(&self, number: u32, _: &ClOrdId) -> VenueName {
        VenueName::numbered(number)
    }

    fn names_are_ids(&self) -> bool {
        false
    }

    fn set_midnight(&mut self, midnight_ns: u64) {
        self.settings.midnight_ns = midnight_ns;
    }

    fn takes_mass_cancels(&self) -> bool {
        false
    }

    fn answers_cancels(&self) -> bool {
        false
    }

    fn write(
        &self,
        request: &Request,
        instrument: &Instrument,
        now_ns: u64,
        target: &mut [u8; MOST_MESSAGE_BYTES],
    ) -> Result<usize, Unmapped> {
        let reference = |name: &VenueName| name.number().ok_or(Unmapped::Value { tag: tag::CL_ORD_ID });
        let too_long = Unmapped::Value { tag: tag::ORDER_QTY };
        match request {
            Request::New(order) => {
                let mut optional = [0; 24];
                let length = appendage(order, now_ns, &mut optional)?;
                let fields = EnterOrderFields {
                    user_ref_num: reference(&order.name)?,
                    side: side(order.side)?,
                    quantity: order.quantity,
                    symbol: Ascii::padded(instrument.symbol.trimmed())
                        .ok_or(Unmapped::Value { tag: tag::SYMBOL })?,
                    price: self.price(order)?,
                    time_in_force: time_in_force(order.time_in_force)?,
                    display: display(order),
                    capacity: capacity(order.capacity)?,
                    inter_market_sweep_eligibility: InterMarketSweepEligibility::NotEligible,
                    cross_type: CrossType::ContinuousMarket,
                    cl_ord_id: text_of(&order.name),
                    // At most three optional fields.
                    appendage_length: length as u16,
                    appendage: optional.get(..length).unwrap_or_default(),
                };
                fields.encode_into(target).map_err(|_| too_long)
            }
            Request::Replace(replace) => {
                let (order, before) = (&replace.order, &replace.before);
                let unchanged = [(54, order.side == before.side), (528, order.capacity == before.capacity)];
                if let Some((tag, _)) = unchanged.into_iter().find(|(_, is_same)| !is_same) {
                    return Err(Unmapped::Value { tag });
                }
                let mut optional = [0; 24];
                let length = appendage(order, now_ns, &mut optional)?;
                let fields = ReplaceOrderFields {
                    orig_user_ref_num: reference(&replace.original)?,
                    user_ref_num: reference(&replace.name)?,
                    quantity: order.quantity,
                    price: self.price(order)?,
                    time_in_force: time_in_force(order.time_in_force)?,
                    display: display(order),
                    inter_market_sweep_eligibility: InterMarketSweepEligibility::NotEligible,
                    cl_ord_id: text_of(&order.name),
                    appendage_length: length as u16,
                    appendage: optional.get(..length).unwrap_or_default(),
                };
                fields.encode_into(target).map_err(|_| too_long)
            }
            Request::Cancel(cancel) => {
                let fields = CancelOrderFields { user_ref_num: reference(&cancel.original)?, quantity: 0 };
                fields.encode_into(target).map_err(|_| too_long)
            }
            Request::MassCancel(_) | Request::Quote(_) => Err(Unmapped::Request),
        }
    }

    fn read(&self, message: &[u8]) -> Result<Report, Unreadable> {
        let report = Message::decode(message).ok().and_then(|message| self.report(&message));
        report.ok_or_else(|| Unreadable {
            length: message.len(),
            name: named(message),
            order_id: VenueOrderId::default(),
        })
    }

    fn instrument_number(&self, instrument: &Instrument) -> u64 {
        u64::from_be_bytes(Ascii::<8>::padded(instrument.symbol.trimmed()).unwrap_or_default().0)
    }

    fn names_fills_by_match(&self) -> bool {
        true
    }

    fn distinguish(&self, execution: &mut Execution, others: u32) {
        // Several events may reduce an order at the same time. Fills and answers have ids that are unique already.
        let has_time = matches!(
            execution.execution_id.0.0.first(),
            Some(b'C' | b'D' | b'F' | b'M' | b'P' | b'R' | b'T')
        );
        if has_time && others > 0 {
            let id = Text::new().push(execution.execution_id.0.trimmed());
            let id = id.push(b".").push_number(u64::from(others));
            execution.execution_id = ExecutionId(Ascii::padded(id.as_bytes()).unwrap_or_default());
        }
    }

    fn requested(&self, message: &[u8]) -> Option<Requested> {
        let numbered = |reference| Some(VenueName::numbered(reference));
        match inbound::Message::decode(message).ok()? {
            inbound::Message::EnterOrder(order) => Some(Requested {
                name: numbered(order.user_ref_num()),
                cancelled: None,
                instrument: Some(u64::from_be_bytes(order.symbol().0)),
            }),
            inbound::Message::ReplaceOrder(replace) => {
                Some(Requested { name: numbered(replace.user_ref_num()), cancelled: None, instrument: None })
            }
            inbound::Message::CancelOrder(cancel) => {
                Some(Requested { name: None, cancelled: numbered(cancel.user_ref_num()), instrument: None })
            }
            _ => None,
        }
    }

    fn reason(&self, reject_code: i32) -> Option<&RejectReason> {
        let codes = &self.settings.reject_codes;
        codes.binary_search_by_key(&reject_code, |reason| reason.code).ok().and_then(|at| codes.get(at))
    }
}

const fn side_of(side: outbound::Side) -> Option<FixSide> {
    match side {
        outbound::Side::Buy => Some(FixSide::Buy),
        outbound::Side::Sell | outbound::Side::SellShort | outbound::Side::SellShortExempt => {
            Some(FixSide::Sell)
        }
        outbound::Side::Unknown(_) => None,
    }
}

/// Returns the request that a message of a known kind names, even if the rest of the message is unreadable.
fn named(message: &[u8]) -> Option<VenueName> {
    let (kind, rest) = message.split_first()?;
    let reference = rest.get(8..)?.first_chunk()?;
    b"AUCDEBFJPITMR".contains(kind).then(|| VenueName::numbered(u32::from_be_bytes(*reference)))
}

fn order_id(number: u64) -> VenueOrderId {
    let digits = Text::new().push_number(number);
    VenueOrderId(Ascii::padded(digits.as_bytes()).unwrap_or_default())
}

fn text_of(name: &VenueName) -> Ascii<14> {
    Ascii::padded(name.0.trimmed()).unwrap_or_default()
}

fn price_e8(price: Decimal<u64, 4>) -> i64 {
    i64::try_from(price.0).unwrap_or(i64::MAX).saturating_mul(E8_PER_E4)
}

fn side(side: FixSide) -> Result<Side, Unmapped> {
    match side {
        FixSide::Buy => Ok(Side::Buy),
        FixSide::Sell => Ok(Side::Sell),
        FixSide::SellShort => Ok(Side::SellShort),
        FixSide::SellShortExempt => Ok(Side::SellShortExempt),
        _ => Err(Unmapped::Value { tag: tag::SIDE }),
    }
}

fn time_in_force(time_in_force: FixTif) -> Result<TimeInForce, Unmapped> {
    match time_in_force {
        FixTif::Day => Ok(TimeInForce::Day),
        // A fill-or-kill order has the whole quantity as its minimum.
        FixTif::ImmediateOrCancel | FixTif::FillOrKill => Ok(TimeInForce::ImmediateOrCancel),
        FixTif::GoodTillDate => Ok(TimeInForce::GoodTillTime),
        _ => Err(Unmapped::Value { tag: tag::TIME_IN_FORCE }),
    }
}

fn capacity(capacity: Option<OrderCapacity>) -> Result<Capacity, Unmapped> {
    match capacity {
        None => Ok(Capacity::Other),
        Some(OrderCapacity::Agency) => Ok(Capacity::Agency),
        Some(OrderCapacity::Principal) => Ok(Capacity::Principal),
        Some(OrderCapacity::RisklessPrincipal) => Ok(Capacity::Riskless),
        Some(_) => Err(Unmapped::Value { tag: tag::ORDER_CAPACITY }),
    }
}

fn display(order: &NewOrder) -> Display {
    match (order.is_passive_only, order.display) {
        (true, _) => Display::PostOnly,
        (false, 0) => Display::Hidden,
        (false, _) => Display::Visible,
    }
}

/// Encodes the optional fields of an order. Refuses fields that OUCH does not have.
fn appendage(order: &NewOrder, now_ns: u64, target: &mut [u8; 24]) -> Result<usize, Unmapped> {
    if !order.account.is_blank() {
        return Err(Unmapped::Field { tag: tag::ACCOUNT });
    }
    if order.parties != crate::request::Parties::default() {
        return Err(Unmapped::Field { tag: tag::NO_PARTY_IDS });
    }
    if order.is_passive_only && order.display == 0 {
        return Err(Unmapped::Value { tag: tag::EXEC_INST });
    }
    let is_fill_or_kill = order.time_in_force == FixTif::FillOrKill;
    let minimum = if is_fill_or_kill { order.quantity } else { order.minimum };
    let has_slice = order.display != 0 && order.display < order.quantity;
    let mut fields = [OptionalField::MinQty(0); 3];
    let mut count = 0;
    let mut add = |field| {
        if let Some(place) = fields.get_mut(count) {
            *place = field;
            count += 1;
        }
    };
    if minimum != 0 {
        add(OptionalField::MinQty(minimum));
    }
    if has_slice {
        add(OptionalField::MaxFloor(order.display));
    }
    if order.time_in_force == FixTif::GoodTillDate {
        let now_s = now_ns / SECOND_NS;
        let left_s = u64::from(order.expire_s).checked_sub(now_s).filter(|left_s| *left_s > 0);
        // An expiry is a 32-bit number.
        add(OptionalField::ExpireTime(left_s.ok_or(Unmapped::Value { tag: tag::EXPIRE_TIME })? as u32));
    }
    write_all(fields.get(..count).unwrap_or_default(), target).ok_or(Unmapped::Value { tag: tag::MIN_QTY })
}

fn liquidity(flag: LiquidityFlag) -> Option<Liquidity> {
    use LiquidityFlag as Flag;
    match flag {
        Flag::Added
        | Flag::NondisplayedAdding
        | Flag::RpiProvides
        | Flag::AddedByMidpointOrder
        | Flag::PassiveMidpoint
        | Flag::DisplayedAddingImprovesNbbo
        | Flag::DisplayedAddingSetsQbboAndJoinsNbbo => Some(Liquidity::Added),
        Flag::Removed
        | Flag::RemovedAtMidpoint
        | Flag::RemovedPriceImprovingNondisplayed
        | Flag::RetailRemovesNonRpiMidpoint
        | Flag::RetailRemovesRpi
        | Flag::RetailRemovesPriceImprovingNondisplayed => Some(Liquidity::Removed),
        Flag::HaltIpo | Flag::HaltCross | Flag::ClosingCross | Flag::OpeningCross | Flag::Opening => {
            Some(Liquidity::Auction)
        }
        _ => None,
    }
}

/// Returns why an order was cancelled, in the document's words.
const fn cancel_reason(reason: CancelOrderReason) -> &'static str {
    use CancelOrderReason as Reason;
    match reason {
        Reason::UserRequestedCancel => "User requested cancel",
        Reason::ImmediateOrCancelOrder => "Immediate or cancel",
        Reason::Timeout => "Timeout",
        Reason::Supervisory => "Supervisory",
        Reason::RegulatoryRestriction => "Regulatory restriction",
        Reason::SelfMatchPrevention => "Self match prevention",
        Reason::SystemCancel => "System cancel",
        Reason::CrossCanceled => "Cross cancelled",
        Reason::CannotBeExecuted => "This order cannot be executed",
        Reason::Halted => "Halted",
        Reason::OpenProtection => "Open protection",
        Reason::Closed => "Closed",
        Reason::PostOnlyCancel => "Post only",
        Reason::PostOnlyCancelContraSideDisplayed => "Post only, the contra side is displayed",
        Reason::Unknown(_) => "",
    }
}
