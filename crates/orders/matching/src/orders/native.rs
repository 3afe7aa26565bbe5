//! Translates Millennium's native messages into engine calls, and the engine's events into execution reports.
//!
//! Features that the engine does not have are rejected: auction times in force, pegged orders, and requests for quotes (by
//! Business Reject). The sides of a quote are day orders that the user's next quote replaces. Stop orders are reported as new
//! and, when a trade elects one, as restated. The remainder of an immediate order expires, as does a passive-only order that
//! would trade. Reject codes are the simulated exchange's own: [`order_reject_code`](super::order_reject_code).

use tapeworks_wire::millennium::native::{
    AppId, AutoCancel, BusinessReject, BusinessRejectFields, ExecType, ExecutionReport,
    ExecutionReportFields, LastMarket, MassCancelOrderSubType, MassCancelRequestType, MassCancelResponse,
    Message, NewOrder, NewQuote, OrderCancelReject, OrderCancelRejectFields, OrderCancelReplaceRequest,
    OrderCancelRequest, OrderMassCancelReport, OrderMassCancelReportFields, OrderMassCancelRequest,
    OrderStatus, OrderSubType, OrderType, OwnerType, PassiveOnlyOrder, ReportedPeggedExecInst,
    START_OF_MESSAGE, Side, Tif, TradeLiquidityIndicator, TypeOfTrade, message_length, transact_time,
};
use tapeworks_wire::{Ascii, Decimal};

use super::SECOND_NS;
use super::ids::{base_62, from_base_62};
use super::order_reject_code as code;
use super::register::{Entry, Execution, OrderRegister, Recipient, Trade, TradeSide};
use super::working::NativeOrder;
use crate::engine::{
    Display, EndReason, Lifetime, NewOrder as EngineOrder, OrderId, OrderKind, OrderSide, Refusal,
    Replacement, SymbolIndex,
};

impl NativeOrder {
    /// Returns the client order ID with uniform padding, whatever the client pads with.
    pub(super) fn key(&self) -> [u8; 20] {
        key(&self.client_order_id)
    }
}

fn key(text: &Ascii<20>) -> [u8; 20] {
    let mut key = [0; 20];
    key.iter_mut().zip(text.trimmed()).for_each(|(to, from)| *to = *from);
    key
}

fn refusal_code(refusal: Refusal) -> i32 {
    match refusal {
        Refusal::UnknownSymbol => code::UNKNOWN_INSTRUMENT,
        Refusal::Halted => code::HALTED,
        Refusal::Quantity => code::QUANTITY,
        Refusal::Price => code::PRICE,
        Refusal::Display => code::DISPLAY_QUANTITY,
        Refusal::Minimum => code::MINIMUM_QUANTITY,
        Refusal::Lifetime => code::TIME_IN_FORCE,
        Refusal::Full => code::NO_ROOM,
        Refusal::UnknownOrder => code::UNKNOWN_ORDER,
        Refusal::Kind => code::ORDER_TYPE,
    }
}

/// Returns how an order of `quantity` is displayed.
fn display(display_qty: i32, quantity: u32) -> Result<Display, i32> {
    match u32::try_from(display_qty) {
        Ok(0) => Ok(Display::Hidden),
        Ok(shown) if shown == quantity => Ok(Display::Full),
        Ok(shown) if shown < quantity => Ok(Display::Slice(shown)),
        _ => Err(code::DISPLAY_QUANTITY),
    }
}

fn quantity_of(quantity: i32) -> Result<u32, i32> {
    u32::try_from(quantity).ok().filter(|quantity| *quantity > 0).ok_or(code::QUANTITY)
}

/// The part of an execution report that does not follow from its order.
struct Reported {
    exec_type: ExecType,
    status: OrderStatus,
    leaves: u32,
}

const fn working_status(executed: u32) -> OrderStatus {
    if executed > 0 { OrderStatus::PartiallyFilled } else { OrderStatus::New }
}

impl OrderRegister {
    fn text<const N: usize>(&self, text: &str) -> Ascii<N> {
        self.variant.text_padding.field(text).unwrap_or_default()
    }

    /// Processes a message of a logged-on user.
    pub(super) fn native_message(&mut self, user: usize, cancels_on_disconnect: bool, message: &Message<'_>) {
        match message {
            Message::NewOrder(order) => self.native_new(user, cancels_on_disconnect, order),
            Message::OrderCancelRequest(cancel) => self.native_cancel(user, cancel),
            Message::OrderCancelReplaceRequest(replace) => self.native_replace(user, replace),
            Message::OrderMassCancelRequest(request) => self.native_mass_cancel(user, request),
            Message::NewQuote(quote) => self.native_quote(user, cancels_on_disconnect, quote),
            _ => {
                self.counters.business_rejects += 1;
                self.business_reject(user);
            }
        }
    }

    fn business_reject(&mut self, user: usize) {
        let (transact_time_seconds, transact_time_nanoseconds) = transact_time(self.now_ns);
        let fields = BusinessRejectFields {
            start_of_message: START_OF_MESSAGE,
            message_length: message_length(BusinessReject::LENGTH),
            app_id: AppId::System,
            sequence_no: 0,
            reject_code: code::NOT_SUPPORTED,
            client_order_id: self.text(""),
            order_id: self.text(""),
            transact_time_seconds,
            transact_time_nanoseconds,
            reserved_10: [0; 10],
        };
        self.report(Recipient::Native(user), 0, &fields.encode());
    }

    // ---- new orders ----

    fn native_new(&mut self, user: usize, cancels_on_disconnect: bool, order: &NewOrder<'_>) {
        self.counters.new_orders += 1;
        let symbol = self.symbol_of_id(order.instrument_id());
        let partition = symbol.and_then(|symbol| self.instrument(symbol)).map_or(0, |found| found.partition);
        let entry = NativeOrder {
            user,
            partition,
            instrument_id: order.instrument_id(),
            side: order.side(),
            client_order_id: order.client_order_id(),
            request_id: None,
            quantity: u32::try_from(order.order_qty()).unwrap_or(0),
            executed: 0,
            display_qty: order.display_qty(),
            minimum_quantity: order.minimum_quantity(),
            owner_type: order.owner_type(),
            capacity: order.capacity(),
            cancels_on_disconnect: cancels_on_disconnect
                && order.auto_cancel() == AutoCancel::ConformToUserConfiguration,
            is_suspended: false,
            is_quote: false,
        };
        let submitted = match symbol {
            None => Err(code::UNKNOWN_INSTRUMENT),
            Some(_) if self.is_halted(partition) => Err(code::PARTITION_HALTED),
            Some(_) if self.client_orders.contains_key(&(user, entry.key())) => Err(code::DUPLICATE),
            Some(_) if self.script.rejects() => Err(code::BY_FAULT),
            Some(symbol) => self.native_order(user, symbol, order).and_then(|new| {
                self.call(|engine, mut sink| engine.submit(&new, &mut sink)).map_err(refusal_code)
            }),
        };
        match submitted {
            Ok(id) => {
                self.set_entry(id, Entry::Native(entry));
                self.client_orders.insert((user, entry.key()), id);
                self.report_events();
            }
            Err(reject_code) => self.native_reject(&entry, reject_code),
        }
    }

    fn native_reject(&mut self, entry: &NativeOrder, reject_code: i32) {
        self.counters.rejected += 1;
        let reported = Reported { exec_type: ExecType::Rejected, status: OrderStatus::Rejected, leaves: 0 };
        let mut report = self.execution_report(None, entry, &reported);
        report.order_reject_code = reject_code;
        // Rejects for unknown instruments and halted partitions belong to the system App ID.
        let app_id = if reject_code == code::PARTITION_HALTED { 0 } else { entry.partition };
        self.report(Recipient::Native(entry.user), app_id, &report.encode());
    }

    // ---- quotes ----

    /// Processes a quote, whose sides are day orders that replace those of the user's previous quote. A side of size 0 is absent.
    fn native_quote(&mut self, user: usize, cancels_on_disconnect: bool, quote: &NewQuote<'_>) {
        self.counters.quotes += 1;
        let symbol = self.symbol_of_id(quote.instrument_id());
        let partition = symbol.and_then(|symbol| self.instrument(symbol)).map_or(0, |found| found.partition);
        let entry = |side, size: i32| NativeOrder {
            user,
            partition,
            instrument_id: quote.instrument_id(),
            side,
            client_order_id: quote.client_order_id(),
            request_id: None,
            quantity: u32::try_from(size).unwrap_or(0),
            executed: 0,
            display_qty: size,
            minimum_quantity: 0,
            owner_type: OwnerType::Default,
            capacity: quote.capacity(),
            cancels_on_disconnect: cancels_on_disconnect
                && quote.auto_cancel() == AutoCancel::ConformToUserConfiguration,
            is_suspended: false,
            is_quote: true,
        };
        let (bid, ask) = (quote.bid_price().0, quote.ask_price().0);
        let is_crossed = quote.bid_size() != 0 && quote.ask_size() != 0 && bid >= ask;
        let symbol = match symbol {
            None => Err(code::UNKNOWN_INSTRUMENT),
            Some(_) if self.is_halted(partition) => Err(code::PARTITION_HALTED),
            Some(_) if is_crossed => Err(code::PRICE),
            Some(_) if self.script.rejects() => Err(code::BY_FAULT),
            Some(symbol) => Ok(symbol),
        };
        let symbol = match symbol {
            Ok(symbol) => symbol,
            Err(reject_code) => return self.native_reject(&entry(Side::None, 0), reject_code),
        };
        let owner = self.owner(Recipient::Native(user));
        let before = self.quotes.remove(&(user, symbol)).unwrap_or_default();
        for id in before.into_iter().flatten() {
            // It may have traded or been cancelled since.
            let _gone = self.call(|engine, mut sink| engine.cancel(owner, id, &mut sink));
            self.report_events();
        }
        let sides = [
            (Side::Buy, OrderSide::Buy, bid, quote.bid_size()),
            (Side::Sell, OrderSide::Sell, ask, quote.ask_size()),
        ];
        let mut now = [None; 2];
        for (place, (native_side, side, price_e8, size)) in now.iter_mut().zip(sides) {
            if size == 0 {
                continue;
            }
            let entry = entry(native_side, size);
            let new = EngineOrder {
                owner,
                symbol,
                side,
                kind: OrderKind::Limit { price_e8 },
                quantity: entry.quantity,
                display: Display::Full,
                minimum: 0,
                lifetime: Lifetime::Day,
                is_passive_only: false,
                self_trade: self.self_trade,
            };
            match self.call(|engine, mut sink| engine.submit(&new, &mut sink)) {
                Ok(id) => {
                    self.set_entry(id, Entry::Native(entry));
                    *place = Some(id);
                    self.report_events();
                }
                Err(refusal) => self.native_reject(&entry, refusal_code(refusal)),
            }
        }
        self.quotes.insert((user, symbol), now);
    }

    fn native_order(
        &self,
        user: usize,
        symbol: SymbolIndex,
        order: &NewOrder<'_>,
    ) -> Result<EngineOrder, i32> {
        if !self.variant.takes_order_type(order.order_type()) || order.order_sub_type() != OrderSubType::Order
        {
            return Err(code::ORDER_TYPE);
        }
        if !self.variant.takes_tif(order.tif()) {
            return Err(code::TIME_IN_FORCE);
        }
        let (limit, stop) = (order.limit_price().0, order.stop_price().0);
        let kind = match order.order_type() {
            OrderType::Market => OrderKind::Market,
            OrderType::Limit => OrderKind::Limit { price_e8: limit },
            OrderType::Stop => OrderKind::Stop { stop_e8: stop },
            OrderType::StopLimit => OrderKind::StopLimit { stop_e8: stop, price_e8: limit },
            OrderType::Unknown(_) => return Err(code::ORDER_TYPE),
        };
        let quantity = quantity_of(order.order_qty())?;
        let lifetime = match order.tif() {
            Tif::Day => Lifetime::Day,
            Tif::ImmediateOrCancel => Lifetime::ImmediateOrCancel,
            Tif::FillOrKill => Lifetime::FillOrKill,
            Tif::GoodTillDate | Tif::GoodTillTime => {
                Lifetime::GoodTill { expire_ns: u64::from(order.expire_date_time()) * SECOND_NS }
            }
            _ => return Err(code::TIME_IN_FORCE),
        };
        // An order that never rests displays nothing, so its display quantity is ignored.
        let rests = matches!(lifetime, Lifetime::Day | Lifetime::GoodTill { .. })
            && matches!(order.order_type(), OrderType::Limit | OrderType::StopLimit);
        Ok(EngineOrder {
            owner: self.owner(Recipient::Native(user)),
            symbol,
            side: side(order.side())?,
            kind,
            quantity,
            display: if rests { display(order.display_qty(), quantity)? } else { Display::Full },
            minimum: u32::try_from(order.minimum_quantity()).map_err(|_| code::MINIMUM_QUANTITY)?,
            lifetime,
            is_passive_only: order.passive_only_order() != PassiveOnlyOrder::NoConstraint,
            self_trade: self.self_trade,
        })
    }

    // ---- cancels and amendments ----

    /// Returns the working order that a request names, by Original Client Order ID or by Order ID.
    fn named(
        &self,
        user: usize,
        original: &Ascii<20>,
        order_id: &Ascii<12>,
    ) -> Option<(OrderId, NativeOrder)> {
        let id = if original.is_blank() {
            OrderId::from_number(from_base_62(order_id)?)
        } else {
            *self.client_orders.get(&(user, key(original)))?
        };
        self.engine.order(id)?;
        match self.entry(id)? {
            Entry::Native(entry) if entry.user == user => Some((id, entry)),
            _ => None,
        }
    }

    fn native_cancel(&mut self, user: usize, cancel: &OrderCancelRequest<'_>) {
        self.counters.cancels += 1;
        let named = self.named(user, &cancel.original_client_order_id(), &cancel.order_id());
        let Some((id, entry)) = named else {
            let names = (cancel.client_order_id(), cancel.order_id(), cancel.instrument_id());
            return self.cancel_reject(user, names, code::UNKNOWN_ORDER);
        };
        if self.is_halted(entry.partition) {
            let names = (cancel.client_order_id(), base_62(id.number()), entry.instrument_id);
            return self.cancel_reject(user, names, code::PARTITION_HALTED);
        }
        self.set_entry(
            id,
            Entry::Native(NativeOrder { request_id: Some(cancel.client_order_id()), ..entry }),
        );
        let owner = self.owner(Recipient::Native(user));
        // The order is working and belongs to the user.
        let _cancelled = self.call(|engine, mut sink| engine.cancel(owner, id, &mut sink));
        self.report_events();
    }

    fn native_replace(&mut self, user: usize, replace: &OrderCancelReplaceRequest<'_>) {
        self.counters.replaces += 1;
        let named = self.named(user, &replace.original_client_order_id(), &replace.order_id());
        let Some((id, entry)) = named else {
            let names = (replace.client_order_id(), replace.order_id(), replace.instrument_id());
            return self.cancel_reject(user, names, code::UNKNOWN_ORDER);
        };
        let new_key = key(&replace.client_order_id());
        let is_taken = self.client_orders.get(&(user, new_key)).is_some_and(|other| *other != id);
        let replaced = if self.is_halted(entry.partition) {
            Err(code::PARTITION_HALTED)
        } else if is_taken {
            Err(code::DUPLICATE)
        } else {
            self.native_replacement(id, replace).and_then(|new| {
                let changing = NativeOrder { request_id: Some(replace.client_order_id()), ..entry };
                self.set_entry(id, Entry::Native(changing));
                let owner = self.owner(Recipient::Native(user));
                self.call(|engine, mut sink| engine.replace(owner, id, &new, &mut sink)).map_err(refusal_code)
            })
        };
        match replaced {
            Ok(()) => {
                if let Some(Entry::Native(changing)) = self.entry(id) {
                    let display_qty = replace.display_qty();
                    self.set_entry(id, Entry::Native(NativeOrder { display_qty, ..changing }));
                }
                self.report_events();
            }
            Err(reject_code) => {
                self.set_entry(id, Entry::Native(entry));
                let names = (replace.client_order_id(), base_62(id.number()), entry.instrument_id);
                self.cancel_reject(user, names, reject_code);
            }
        }
    }

    fn native_replacement(
        &self,
        id: OrderId,
        replace: &OrderCancelReplaceRequest<'_>,
    ) -> Result<Replacement, i32> {
        let order = self.engine.order(id).ok_or(code::UNKNOWN_ORDER)?;
        let (limit, stop) = (replace.limit_price().0, replace.stop_price().0);
        let kind = match order.kind {
            OrderKind::Market => OrderKind::Market,
            OrderKind::Limit { .. } => OrderKind::Limit { price_e8: limit },
            OrderKind::Stop { .. } => OrderKind::Stop { stop_e8: stop },
            OrderKind::StopLimit { .. } => OrderKind::StopLimit { stop_e8: stop, price_e8: limit },
        };
        let quantity = quantity_of(replace.order_qty())?;
        let lifetime = match order.lifetime {
            Lifetime::GoodTill { .. } if replace.expire_date_time() > 0 => {
                Lifetime::GoodTill { expire_ns: u64::from(replace.expire_date_time()) * SECOND_NS }
            }
            other => other,
        };
        let is_priced = matches!(kind, OrderKind::Limit { .. } | OrderKind::StopLimit { .. });
        Ok(Replacement {
            quantity,
            kind,
            display: if is_priced { display(replace.display_qty(), quantity)? } else { order.display },
            lifetime,
            is_passive_only: replace.passive_only_order() != PassiveOnlyOrder::NoConstraint,
        })
    }

    fn cancel_reject(&mut self, user: usize, names: (Ascii<20>, Ascii<12>, i32), reason: i32) {
        self.counters.cancel_rejects += 1;
        let (client_order_id, order_id, instrument_id) = names;
        let symbol = self.symbol_of_id(instrument_id);
        let partition = symbol.and_then(|symbol| self.instrument(symbol)).map_or(0, |found| found.partition);
        let (transact_time_seconds, transact_time_nanoseconds) = transact_time(self.now_ns);
        let fields = OrderCancelRejectFields {
            start_of_message: START_OF_MESSAGE,
            message_length: message_length(OrderCancelReject::LENGTH),
            app_id: AppId::System,
            sequence_no: 0,
            client_order_id,
            order_id,
            cancel_reject_reason: reason,
            transact_time_seconds,
            transact_time_nanoseconds,
            rfq_id: self.text(""),
        };
        self.report(Recipient::Native(user), partition, &fields.encode());
    }

    fn native_mass_cancel(&mut self, user: usize, request: &OrderMassCancelRequest<'_>) {
        self.counters.mass_cancels += 1;
        let instrument_id = request.instrument_id();
        let symbol = self.symbol_of_id(instrument_id);
        let partition = symbol.and_then(|symbol| self.instrument(symbol)).map_or(0, |found| found.partition);
        let reason = if request.mass_cancel_request_type() != MassCancelRequestType::FirmOrdersOfInstrument {
            code::NOT_SUPPORTED
        } else if symbol.is_none() {
            code::UNKNOWN_INSTRUMENT
        } else if self.is_halted(partition) {
            code::PARTITION_HALTED
        } else {
            code::NONE
        };
        let is_accepted = reason == code::NONE;
        let is_of_quotes = request.order_sub_type() == MassCancelOrderSubType::Quote;
        let (transact_time_seconds, transact_time_nanoseconds) = transact_time(self.now_ns);
        let fields = OrderMassCancelReportFields {
            start_of_message: START_OF_MESSAGE,
            message_length: message_length(OrderMassCancelReport::LENGTH),
            app_id: AppId::System,
            sequence_no: 0,
            client_order_id: request.client_order_id(),
            mass_cancel_response: if is_accepted {
                MassCancelResponse::Accepted
            } else {
                MassCancelResponse::Rejected
            },
            mass_cancel_reject_reason: reason,
            reserved_4: [0; 4],
            transact_time_seconds,
            transact_time_nanoseconds,
            reserved_10: [0; 10],
        };
        self.report(Recipient::Native(user), partition, &fields.encode());
        if is_accepted {
            self.cancel_all(Recipient::Native(user), EndReason::MassCancel, |entry| {
                matches!(entry, Entry::Native(order)
                        if order.instrument_id == instrument_id && order.is_quote == is_of_quotes)
            });
        }
    }

    // ---- events ----

    pub(super) fn native_accepted(&mut self, order: OrderId, entry: &NativeOrder) {
        // Trades are reported afterwards, so nothing is executed yet.
        let reported =
            Reported { exec_type: ExecType::New, status: OrderStatus::New, leaves: entry.quantity };
        self.send_report(Some(order), entry, &reported);
    }

    pub(super) fn native_elected(&mut self, order: OrderId, entry: &NativeOrder) {
        // A waiting stop has not traded.
        let leaves = entry.quantity;
        let reported = Reported { exec_type: ExecType::Restated, status: OrderStatus::New, leaves };
        let mut report = self.execution_report(Some(order), entry, &reported);
        report.restatement_reason = super::RESTATED_ELECTED;
        self.report(Recipient::Native(entry.user), entry.partition, &report.encode());
    }

    pub(super) fn native_replaced(&mut self, order: OrderId, entry: NativeOrder, leaves: u32) {
        if !entry.is_quote {
            self.client_orders.remove(&(entry.user, entry.key()));
        }
        let client_order_id = entry.request_id.unwrap_or(entry.client_order_id);
        let quantity = leaves.saturating_add(entry.executed);
        let entry = NativeOrder { client_order_id, request_id: None, quantity, is_quote: false, ..entry };
        self.client_orders.insert((entry.user, entry.key()), order);
        self.set_entry(order, Entry::Native(entry));
        let status = working_status(entry.executed);
        self.send_report(Some(order), &entry, &Reported { exec_type: ExecType::Replaced, status, leaves });
    }

    pub(super) fn native_decremented(&mut self, order: OrderId, entry: &NativeOrder, leaves: u32) {
        let status = working_status(entry.executed);
        let reported = Reported { exec_type: ExecType::Restated, status, leaves };
        let mut report = self.execution_report(Some(order), entry, &reported);
        report.restatement_reason = super::RESTATED_SELF_TRADE;
        self.report(Recipient::Native(entry.user), entry.partition, &report.encode());
    }

    pub(super) fn native_executed(&mut self, entry: &NativeOrder, execution: &Execution) {
        let status = if execution.leaves == 0 { OrderStatus::Filled } else { OrderStatus::PartiallyFilled };
        let reported = Reported { exec_type: ExecType::Trade, status, leaves: execution.leaves };
        let mut report = self.execution_report(Some(execution.order), entry, &reported);
        report.execution_id = base_62(execution.execution);
        report.executed_price = Decimal(execution.price_e8);
        report.executed_qty = signed(execution.quantity);
        report.trade_match_id = execution.match_number;
        report.trade_liquidity_indicator = if execution.is_resting {
            TradeLiquidityIndicator::AddedLiquidity
        } else {
            TradeLiquidityIndicator::RemovedLiquidity
        };
        report.last_market = LastMarket::Xlon;
        let is_hidden = execution.is_resting && entry.display_qty == 0;
        report.type_of_trade = if is_hidden { TypeOfTrade::Hidden } else { TypeOfTrade::Visible };
        self.report(Recipient::Native(entry.user), entry.partition, &report.encode());
    }

    pub(super) fn native_ended(&mut self, order: OrderId, entry: &NativeOrder, reason: EndReason) {
        let (exec_type, status) = match reason {
            EndReason::Unfilled
            | EndReason::NotFillable
            | EndReason::WouldTrade
            | EndReason::Expired
            | EndReason::DayOver => (ExecType::Expired, OrderStatus::Expired),
            _ => (ExecType::Cancelled, OrderStatus::Cancelled),
        };
        // The report of a cancel carries the cancel's client order ID.
        let client_order_id = entry.request_id.unwrap_or(entry.client_order_id);
        let shown = NativeOrder { client_order_id, ..*entry };
        self.send_report(Some(order), &shown, &Reported { exec_type, status, leaves: 0 });
    }

    pub(super) fn native_busted(&mut self, entry: &NativeOrder, side: &TradeSide, trade: &Trade) {
        let status = match (side.leaves, side.executed) {
            (0, _) => OrderStatus::Filled,
            (_, executed) => working_status(executed),
        };
        let reported = Reported { exec_type: ExecType::TradeCancel, status, leaves: side.leaves };
        let mut report = self.execution_report(Some(side.order), entry, &reported);
        report.execution_report_ref_id = base_62(side.execution);
        report.executed_price = Decimal(trade.price_e8);
        report.executed_qty = signed(trade.quantity);
        report.trade_match_id = trade.match_number;
        self.report(Recipient::Native(entry.user), entry.partition, &report.encode());
    }

    /// Reports that the working orders of an instrument are suspended, or working again.
    pub(super) fn native_suspended(&mut self, symbol: SymbolIndex, is_suspended: bool) {
        let Some(instrument_id) = self.instrument(symbol).map(|instrument| instrument.id) else { return };
        let orders: Vec<(NativeOrder, OrderId)> = self
            .entries()
            .filter_map(|(id, entry)| match entry {
                Entry::Native(order)
                    if order.instrument_id == instrument_id && order.is_suspended != is_suspended =>
                {
                    Some((order, id))
                }
                _ => None,
            })
            .collect();
        for (entry, order) in orders {
            self.set_entry(order, Entry::Native(NativeOrder { is_suspended, ..entry }));
            let Some(working) = self.engine.order(order) else { continue };
            let (exec_type, status) = if is_suspended {
                (ExecType::Suspended, OrderStatus::Suspended)
            } else {
                (ExecType::Restated, working_status(working.executed))
            };
            self.send_report(Some(order), &entry, &Reported { exec_type, status, leaves: working.leaves });
        }
    }

    fn send_report(&mut self, order: Option<OrderId>, entry: &NativeOrder, reported: &Reported) {
        let report = self.execution_report(order, entry, reported);
        self.report(Recipient::Native(entry.user), entry.partition, &report.encode());
    }

    fn execution_report(
        &mut self,
        order: Option<OrderId>,
        entry: &NativeOrder,
        reported: &Reported,
    ) -> ExecutionReportFields {
        let (transact_time_seconds, transact_time_nanoseconds) = transact_time(self.now_ns);
        // Trades have their own numbers: each side of a trade gets one, whatever happens to its report.
        let is_trade = reported.exec_type == ExecType::Trade;
        let execution = if is_trade { 0 } else { self.next_execution() };
        let order_id = order.map_or_else(|| self.text(""), |order| base_62(order.number()));
        ExecutionReportFields {
            start_of_message: START_OF_MESSAGE,
            message_length: message_length(ExecutionReport::LENGTH),
            app_id: AppId::System,
            sequence_no: 0,
            execution_id: base_62(execution),
            client_order_id: entry.client_order_id,
            order_id,
            exec_type: reported.exec_type,
            execution_report_ref_id: self.text(""),
            order_status: reported.status,
            order_reject_code: 0,
            executed_price: Decimal(0),
            executed_qty: 0,
            leaves_qty: signed(reported.leaves),
            waiver_and_post_trade_flags: 0,
            display_qty: entry.display_qty,
            instrument_id: entry.instrument_id,
            restatement_reason: 0,
            pegged_exec_inst: ReportedPeggedExecInst::Unknown(0),
            side: entry.side,
            owner_type: entry.owner_type,
            reserved_7: [0; 7],
            counterparty: self.text(""),
            trade_liquidity_indicator: TradeLiquidityIndicator::Unknown(b' '),
            trade_match_id: 0,
            transact_time_seconds,
            transact_time_nanoseconds,
            last_market: LastMarket::Unknown(0),
            type_of_trade: TypeOfTrade::Visible,
            capacity: entry.capacity,
            reserved_1: [0],
            public_order_id: order_id,
            minimum_quantity: entry.minimum_quantity,
        }
    }
}

fn side(side: Side) -> Result<OrderSide, i32> {
    match side {
        Side::Buy => Ok(OrderSide::Buy),
        Side::Sell => Ok(OrderSide::Sell),
        Side::None | Side::Unknown(_) => Err(code::SIDE),
    }
}

/// Converts an engine quantity, which always comes from a 31-bit field.
fn signed(quantity: u32) -> i32 {
    i32::try_from(quantity).unwrap_or(i32::MAX)
}
