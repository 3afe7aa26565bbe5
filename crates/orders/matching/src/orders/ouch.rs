//! Translates Nasdaq's OUCH messages into engine calls, and the engine's events into OUCH messages.
//!
//! A price of [`MARKET_PRICE`] is a market order. A user reference number that is not above the last one is ignored and counted:
//! after a disconnect a client resends messages that may have been lost, and must not trade twice. A cancel or modification of an
//! order that is not working is ignored too. Features that the engine does not have are rejected: crosses, pegs, routing.

use tapeworks_wire::nasdaq::ouch50::appendage::{OptionalField, OptionalFields};
use tapeworks_wire::nasdaq::ouch50::inbound::{
    self, CancelOrder, CrossType, EnterOrder, Message, ModifyOrder, ReplaceOrder, TimeInForce,
};
use tapeworks_wire::nasdaq::ouch50::outbound::{
    self, AccountQueryResponseFields, AiqCanceledFields, BrokenTradeFields, BrokenTradeReason,
    CancelOrderReason, CanceledFields, EventCode, LiquidityFlag, OrderAccepted, OrderAcceptedFields,
    OrderExecuted, OrderExecutedFields, OrderModifiedFields, OrderState, RejectedOrderFields,
    RejectedOrderReason, Replaced, ReplacedFields, SystemEventFields,
};
use tapeworks_wire::{Ascii, Decimal, NanosecondsSinceMidnight};

use super::SECOND_NS;
use super::register::{Entry, Execution, OrderRegister, Recipient, Trade};
use super::working::{Change, OuchOrder};
use crate::engine::{
    Display, EndReason, Lifetime, NewOrder, OrderId, OrderKind, OrderSide, Refusal, Replacement, SymbolIndex,
};

/// The price of a market order, in 1e-4 dollars.
pub const MARKET_PRICE: u64 = i32::MAX as u64;

/// OUCH prices have 4 decimals, the engine's have 8.
pub(super) const E8_PER_E4: i64 = 10_000;

/// The fields of an appendage that are used here.
#[derive(Default)]
struct Terms {
    minimum: u32,
    slice: u32,
    expire_s: u32,
    is_post_only: bool,
}

impl Terms {
    fn of(appendage: &[u8]) -> Result<Self, RejectedOrderReason> {
        let mut terms = Self::default();
        for field in OptionalFields::new(appendage) {
            match field {
                Ok(OptionalField::MinQty(quantity)) => terms.minimum = quantity,
                Ok(OptionalField::MaxFloor(quantity)) => terms.slice = quantity,
                Ok(OptionalField::ExpireTime(seconds)) => terms.expire_s = seconds,
                Ok(OptionalField::PostOnly(byte)) => terms.is_post_only = byte == b'P',
                Ok(OptionalField::PriceType(byte)) if byte != b'L' => {
                    return Err(RejectedOrderReason::PeggingNotAllowed);
                }
                Ok(OptionalField::DiscretionPrice(_) | OptionalField::RandomReserves(_)) => {
                    return Err(RejectedOrderReason::Other);
                }
                Ok(OptionalField::Route(_)) => return Err(RejectedOrderReason::RoutingNotAllowed),
                Ok(_) => {}
                Err(_) => return Err(RejectedOrderReason::ProcessingError),
            }
        }
        Ok(terms)
    }
}

/// Returns how an order is displayed, and whether it is passive only.
fn display(display: inbound::Display, slice: u32) -> Result<(Display, bool), RejectedOrderReason> {
    use inbound::Display as Kind;
    let shown = if slice > 0 { Display::Slice(slice) } else { Display::Full };
    match display {
        Kind::Visible | Kind::Attributable => Ok((shown, false)),
        Kind::PostOnly | Kind::PostOnlyAndAttributable => Ok((shown, true)),
        Kind::Hidden if slice == 0 => Ok((Display::Hidden, false)),
        Kind::Hidden => Err(RejectedOrderReason::InvalidMaxFloor),
        Kind::MidPointPeg | Kind::MidPointPegPostOnly => Err(RejectedOrderReason::PeggingNotAllowed),
        _ => Err(RejectedOrderReason::InvalidDisplay),
    }
}

fn kind(price: u64) -> Result<OrderKind, RejectedOrderReason> {
    if price == MARKET_PRICE {
        return Ok(OrderKind::Market);
    }
    let price_e8 = i64::try_from(price).ok().and_then(|price| price.checked_mul(E8_PER_E4));
    price_e8.map(|price_e8| OrderKind::Limit { price_e8 }).ok_or(RejectedOrderReason::InvalidPrice)
}

const fn side(side: inbound::Side) -> Option<OrderSide> {
    match side {
        inbound::Side::Buy => Some(OrderSide::Buy),
        inbound::Side::Sell | inbound::Side::SellShort | inbound::Side::SellShortExempt => {
            Some(OrderSide::Sell)
        }
        inbound::Side::Unknown(_) => None,
    }
}

const fn refusal_reason(refusal: Refusal) -> RejectedOrderReason {
    match refusal {
        Refusal::UnknownSymbol => RejectedOrderReason::InvalidSymbol,
        Refusal::Halted => RejectedOrderReason::Halted,
        Refusal::Quantity => RejectedOrderReason::InvalidQuantity,
        Refusal::Price => RejectedOrderReason::InvalidPrice,
        Refusal::Display => RejectedOrderReason::InvalidMaxFloor,
        Refusal::Minimum => RejectedOrderReason::InvalidMinQuantity,
        Refusal::Full => RejectedOrderReason::ProcessingError,
        Refusal::UnknownOrder | Refusal::Kind | Refusal::Lifetime => RejectedOrderReason::Other,
    }
}

impl OrderRegister {
    /// Returns the OUCH timestamp. A day that continues past midnight counts from the next midnight.
    fn timestamp(&self) -> NanosecondsSinceMidnight {
        NanosecondsSinceMidnight(self.now_ns.saturating_sub(self.midnight_ns) % (86_400 * SECOND_NS))
    }

    /// Processes an unsequenced message of a logged-in user.
    pub(super) fn ouch_message(&mut self, user: usize, bytes: &[u8]) {
        match Message::decode(bytes) {
            Ok(Message::EnterOrder(order)) => self.ouch_enter(user, &order),
            Ok(Message::ReplaceOrder(replace)) => self.ouch_replace(user, &replace),
            Ok(Message::CancelOrder(cancel)) => self.ouch_cancel(user, &cancel),
            Ok(Message::ModifyOrder(modify)) => self.ouch_modify(user, &modify),
            Ok(Message::AccountQuery(_)) => {
                let next_user_ref_num = self.next_references.get(user).copied().unwrap_or(1);
                let fields = AccountQueryResponseFields { timestamp: self.timestamp(), next_user_ref_num };
                self.ouch_report(user, &fields.encode());
            }
            Err(_) => self.counters.unreadable += 1,
        }
    }

    fn ouch_report(&mut self, user: usize, message: &[u8]) {
        self.report(Recipient::Ouch(user), 0, message);
    }

    /// Consumes a user reference number. Returns whether it is above the last one.
    fn takes_reference(&mut self, user: usize, reference: u32) -> bool {
        let Some(next) = self.next_references.get_mut(user) else { return false };
        if reference < *next {
            self.counters.stale_references += 1;
            return false;
        }
        *next = reference.saturating_add(1);
        true
    }

    fn ouch_reject(
        &mut self,
        user: usize,
        reference: u32,
        cl_ord_id: Ascii<14>,
        reason: RejectedOrderReason,
    ) {
        self.counters.rejected += 1;
        let fields = RejectedOrderFields {
            timestamp: self.timestamp(),
            user_ref_num: reference,
            rejected_order_reason: reason,
            cl_ord_id,
        };
        self.ouch_report(user, &fields.encode());
    }

    // ---- messages ----

    fn ouch_enter(&mut self, user: usize, order: &EnterOrder<'_>) {
        self.counters.new_orders += 1;
        let reference = order.user_ref_num();
        if !self.takes_reference(user, reference) {
            return;
        }
        let entry = OuchOrder {
            user,
            reference,
            side: order.side(),
            quantity: order.quantity(),
            executed: 0,
            symbol: order.symbol(),
            price: order.price().0,
            time_in_force: order.time_in_force(),
            display: order.display(),
            capacity: order.capacity(),
            sweep: order.inter_market_sweep_eligibility(),
            cross_type: order.cross_type(),
            cl_ord_id: order.cl_ord_id(),
            replaces: None,
            change: None,
        };
        let symbol = self.symbol_of_name(&order.symbol());
        let partition = symbol.and_then(|symbol| self.instrument(symbol)).map_or(0, |found| found.partition);
        let submitted = match symbol {
            None => Err(RejectedOrderReason::InvalidSymbol),
            Some(_) if self.is_halted(partition) => Err(RejectedOrderReason::DestinationClosed),
            Some(_) if self.script.rejects() => Err(RejectedOrderReason::Test),
            Some(symbol) => self.ouch_order(&entry, symbol, order.appendage()).and_then(|new| {
                self.call(|engine, mut sink| engine.submit(&new, &mut sink)).map_err(refusal_reason)
            }),
        };
        match submitted {
            Ok(id) => {
                self.set_entry(id, Entry::Ouch(entry));
                self.references.insert((user, reference), id);
                self.report_events();
            }
            Err(reason) => self.ouch_reject(user, reference, order.cl_ord_id(), reason),
        }
    }

    fn ouch_order(
        &self,
        order: &OuchOrder,
        symbol: SymbolIndex,
        appendage: &[u8],
    ) -> Result<NewOrder, RejectedOrderReason> {
        let terms = Terms::of(appendage)?;
        if order.cross_type != CrossType::ContinuousMarket {
            return Err(RejectedOrderReason::InvalidCrossOrder);
        }
        let (shown, is_passive) = display(order.display, terms.slice)?;
        let lifetime = self.lifetime(order.time_in_force, terms.expire_s)?;
        Ok(NewOrder {
            owner: self.owner(Recipient::Ouch(order.user)),
            symbol,
            side: side(order.side).ok_or(RejectedOrderReason::InvalidSide)?,
            kind: kind(order.price)?,
            quantity: order.quantity,
            display: shown,
            minimum: terms.minimum,
            lifetime,
            is_passive_only: is_passive || terms.is_post_only,
            self_trade: self.self_trade,
        })
    }

    fn lifetime(&self, time_in_force: TimeInForce, expire_s: u32) -> Result<Lifetime, RejectedOrderReason> {
        match time_in_force {
            TimeInForce::Day | TimeInForce::ExtendedHours => Ok(Lifetime::Day),
            TimeInForce::ImmediateOrCancel => Ok(Lifetime::ImmediateOrCancel),
            TimeInForce::GoodTillTime => Ok(Lifetime::GoodTill {
                expire_ns: self.now_ns.saturating_add(u64::from(expire_s) * SECOND_NS),
            }),
            TimeInForce::AfterHours => Err(RejectedOrderReason::DestinationClosed),
            TimeInForce::Unknown(_) => Err(RejectedOrderReason::Other),
        }
    }

    /// Returns the working order with this reference number, and counts a miss.
    fn referenced(&mut self, user: usize, reference: u32) -> Option<(OrderId, OuchOrder)> {
        let found = self.references.get(&(user, reference)).copied().and_then(|id| match self.entry(id) {
            Some(Entry::Ouch(entry)) => Some((id, entry)),
            _ => None,
        });
        self.counters.stale_references += u64::from(found.is_none());
        found
    }

    fn ouch_replace(&mut self, user: usize, replace: &ReplaceOrder<'_>) {
        self.counters.replaces += 1;
        let reference = replace.user_ref_num();
        if !self.takes_reference(user, reference) {
            return;
        }
        let Some((id, entry)) = self.referenced(user, replace.orig_user_ref_num()) else {
            return self.ouch_reject(
                user,
                reference,
                replace.cl_ord_id(),
                RejectedOrderReason::ReplaceNotAllowed,
            );
        };
        let changed = OuchOrder {
            reference,
            quantity: replace.quantity(),
            price: replace.price().0,
            time_in_force: replace.time_in_force(),
            display: replace.display(),
            sweep: replace.inter_market_sweep_eligibility(),
            cl_ord_id: replace.cl_ord_id(),
            replaces: Some(entry.reference),
            ..entry
        };
        let replaced = self.ouch_replacement(&changed, replace.appendage()).and_then(|new| {
            self.rename(id, &entry, changed);
            let owner = self.owner(Recipient::Ouch(user));
            let replaced = self.call(|engine, mut sink| engine.replace(owner, id, &new, &mut sink));
            replaced.map_err(|refusal| {
                self.rename(id, &changed, entry);
                refusal_reason(refusal)
            })
        });
        match replaced {
            Ok(()) => self.report_events(),
            Err(reason) => self.ouch_reject(user, reference, replace.cl_ord_id(), reason),
        }
    }

    /// Moves an order to another reference number.
    fn rename(&mut self, id: OrderId, from: &OuchOrder, to: OuchOrder) {
        self.references.remove(&(from.user, from.reference));
        self.references.insert((to.user, to.reference), id);
        self.set_entry(id, Entry::Ouch(to));
    }

    fn ouch_replacement(
        &self,
        order: &OuchOrder,
        appendage: &[u8],
    ) -> Result<Replacement, RejectedOrderReason> {
        let terms = Terms::of(appendage)?;
        let (shown, is_passive) = display(order.display, terms.slice)?;
        Ok(Replacement {
            quantity: order.quantity,
            kind: kind(order.price)?,
            display: shown,
            lifetime: self.lifetime(order.time_in_force, terms.expire_s)?,
            is_passive_only: is_passive || terms.is_post_only,
        })
    }

    fn ouch_cancel(&mut self, user: usize, cancel: &CancelOrder<'_>) {
        self.counters.cancels += 1;
        let Some((id, entry)) = self.referenced(user, cancel.user_ref_num()) else { return };
        let owner = self.owner(Recipient::Ouch(user));
        if cancel.quantity() <= entry.executed {
            // The order is working and belongs to the user.
            let _cancelled = self.call(|engine, mut sink| engine.cancel(owner, id, &mut sink));
            return self.report_events();
        }
        let by = entry.quantity.saturating_sub(cancel.quantity());
        if by > 0 {
            self.reduce(id, OuchOrder { change: Some(Change::Reduced(by)), ..entry }, cancel.quantity());
        }
    }

    fn ouch_modify(&mut self, user: usize, modify: &ModifyOrder<'_>) {
        self.counters.replaces += 1;
        let Some((id, entry)) = self.referenced(user, modify.user_ref_num()) else { return };
        let is_same_side = side(modify.side()).is_some() && side(modify.side()) == side(entry.side);
        if !is_same_side || modify.quantity() > entry.quantity || modify.quantity() <= entry.executed {
            self.counters.stale_references += 1;
            return;
        }
        let changed = OuchOrder { side: modify.side(), change: Some(Change::Modified), ..entry };
        self.reduce(id, changed, modify.quantity());
    }

    /// Reduces the quantity of an order, which keeps its place in the queue.
    fn reduce(&mut self, id: OrderId, changed: OuchOrder, quantity: u32) {
        let Some(order) = self.engine.order(id) else { return };
        let before = self.entry(id);
        // An iceberg's slice must not exceed the new quantity.
        let display = match order.display {
            Display::Slice(slice) => Display::Slice(slice.min(quantity)),
            other => other,
        };
        let new = Replacement {
            quantity,
            kind: order.kind,
            display,
            lifetime: order.lifetime,
            is_passive_only: false,
        };
        self.set_entry(id, Entry::Ouch(OuchOrder { quantity, ..changed }));
        let replaced = self.call(|engine, mut sink| engine.replace(order.owner, id, &new, &mut sink));
        match (replaced, before) {
            (Err(_), Some(before)) => {
                // The symbol is halted: nothing changes.
                self.counters.stale_references += 1;
                self.set_entry(id, before);
            }
            _ => self.report_events(),
        }
    }

    // ---- events ----

    /// Notifies a user that the day starts or ends.
    pub(super) fn ouch_system_event(&mut self, user: usize, event_code: EventCode) {
        let fields = SystemEventFields { timestamp: self.timestamp(), event_code };
        self.ouch_report(user, &fields.encode());
    }

    pub(super) fn ouch_accepted(&mut self, order: OrderId, entry: &OuchOrder) {
        let fields = OrderAcceptedFields {
            timestamp: self.timestamp(),
            user_ref_num: entry.reference,
            side: outbound::Side::from_raw(entry.side.raw()),
            quantity: entry.quantity,
            symbol: entry.symbol,
            price: Decimal(entry.price),
            time_in_force: outbound::TimeInForce::from_raw(entry.time_in_force.raw()),
            display: outbound::Display::from_raw(entry.display.raw()),
            order_reference_number: order.number(),
            capacity: outbound::Capacity::from_raw(entry.capacity.raw()),
            inter_market_sweep_eligibility: outbound::InterMarketSweepEligibility::from_raw(
                entry.sweep.raw(),
            ),
            cross_type: outbound::CrossType::from_raw(entry.cross_type.raw()),
            order_state: OrderState::OrderLive,
            cl_ord_id: entry.cl_ord_id,
            appendage_length: 0,
            appendage: &[],
        };
        let mut bytes = [0; OrderAccepted::MINIMUM_LENGTH];
        // Without an appendage, the message has its minimum length.
        if fields.encode_into(&mut bytes).is_ok() {
            self.ouch_report(entry.user, &bytes);
        }
    }

    pub(super) fn ouch_replaced(&mut self, order: OrderId, entry: OuchOrder, leaves: u32) {
        let settled = OuchOrder { replaces: None, change: None, ..entry };
        self.set_entry(order, Entry::Ouch(settled));
        match entry.change {
            Some(Change::Reduced(by)) => {
                self.ouch_canceled(&settled, by, CancelOrderReason::UserRequestedCancel)
            }
            Some(Change::Modified) => {
                let fields = OrderModifiedFields {
                    timestamp: self.timestamp(),
                    user_ref_num: entry.reference,
                    side: outbound::Side::from_raw(entry.side.raw()),
                    quantity: leaves,
                };
                self.ouch_report(entry.user, &fields.encode());
            }
            None => {
                let fields = ReplacedFields {
                    timestamp: self.timestamp(),
                    orig_user_ref_num: entry.replaces.unwrap_or(entry.reference),
                    user_ref_num: entry.reference,
                    side: outbound::Side::from_raw(entry.side.raw()),
                    quantity: leaves,
                    symbol: entry.symbol,
                    price: Decimal(entry.price),
                    time_in_force: outbound::TimeInForce::from_raw(entry.time_in_force.raw()),
                    display: outbound::Display::from_raw(entry.display.raw()),
                    order_reference_number: order.number(),
                    capacity: outbound::Capacity::from_raw(entry.capacity.raw()),
                    inter_market_sweep_eligibility: outbound::InterMarketSweepEligibility::from_raw(
                        entry.sweep.raw(),
                    ),
                    cross_type: outbound::CrossType::from_raw(entry.cross_type.raw()),
                    order_state: OrderState::OrderLive,
                    cl_ord_id: entry.cl_ord_id,
                    appendage_length: 0,
                    appendage: &[],
                };
                let mut bytes = [0; Replaced::MINIMUM_LENGTH];
                if fields.encode_into(&mut bytes).is_ok() {
                    self.ouch_report(entry.user, &bytes);
                }
            }
        }
    }

    pub(super) fn ouch_executed(&mut self, entry: &OuchOrder, execution: &Execution) {
        let flag = match (execution.is_resting, entry.display) {
            (true, inbound::Display::Hidden) => LiquidityFlag::NondisplayedAdding,
            (true, _) => LiquidityFlag::Added,
            (false, _) => LiquidityFlag::Removed,
        };
        let fields = OrderExecutedFields {
            timestamp: self.timestamp(),
            user_ref_num: entry.reference,
            quantity: execution.quantity,
            price: Decimal(price_e4(execution.price_e8)),
            liquidity_flag: flag,
            match_number: execution.match_number,
            appendage_length: 0,
            appendage: &[],
        };
        let mut bytes = [0; OrderExecuted::MINIMUM_LENGTH];
        if fields.encode_into(&mut bytes).is_ok() {
            self.ouch_report(entry.user, &bytes);
        }
    }

    pub(super) fn ouch_decremented(&mut self, entry: &OuchOrder, by: u32) {
        let fields = AiqCanceledFields {
            timestamp: self.timestamp(),
            user_ref_num: entry.reference,
            decrement_shares: by,
            order_cancel_reason: Ascii([CancelOrderReason::SelfMatchPrevention.raw()]),
            quantity_prevented_from_trading: by,
            execution_price: Decimal(entry.price),
            liquidity_flag: LiquidityFlag::Removed,
        };
        self.ouch_report(entry.user, &fields.encode());
    }

    pub(super) fn ouch_ended(&mut self, entry: &OuchOrder, reason: EndReason, leaves: u32) {
        let reason = match reason {
            EndReason::Requested | EndReason::MassCancel | EndReason::ReplacedBelowExecuted => {
                CancelOrderReason::UserRequestedCancel
            }
            EndReason::Disconnected | EndReason::Venue => CancelOrderReason::SystemCancel,
            EndReason::Unfilled => CancelOrderReason::ImmediateOrCancelOrder,
            EndReason::NotFillable => CancelOrderReason::CannotBeExecuted,
            EndReason::WouldTrade => CancelOrderReason::PostOnlyCancel,
            EndReason::Expired => CancelOrderReason::Timeout,
            EndReason::DayOver => CancelOrderReason::Closed,
            EndReason::SelfTrade => CancelOrderReason::SelfMatchPrevention,
        };
        self.ouch_canceled(entry, leaves, reason);
    }

    fn ouch_canceled(&mut self, entry: &OuchOrder, quantity: u32, reason: CancelOrderReason) {
        let fields = CanceledFields {
            timestamp: self.timestamp(),
            user_ref_num: entry.reference,
            quantity,
            cancel_order_reason: reason,
        };
        self.ouch_report(entry.user, &fields.encode());
    }

    pub(super) fn ouch_busted(&mut self, entry: &OuchOrder, trade: &Trade) {
        let fields = BrokenTradeFields {
            timestamp: self.timestamp(),
            user_ref_num: entry.reference,
            match_number: trade.match_number,
            broken_trade_reason: BrokenTradeReason::Supervisory,
            cl_ord_id: entry.cl_ord_id,
        };
        self.ouch_report(entry.user, &fields.encode());
    }
}

/// Converts an engine price to 1e-4. Where OUCH users trade, the tick is a multiple of 1e-4, so nothing is lost.
fn price_e4(price_e8: i64) -> u64 {
    u64::try_from(price_e8 / E8_PER_E4).unwrap_or(0)
}
