//! The matching engine, the gateways' state of each order, and the reports waiting to be sent.
//!
//! A gateway's message becomes an engine call. The call's events are collected, because a new order's identifier is known only
//! after the call, and are then reported to the owners, in order.

use std::collections::{HashMap, VecDeque};

use tapeworks_wire::Ascii;
use tapeworks_wire::millennium::variant::Variant;

use super::faults::{Misreport, Script};
use super::ledger::{LedgerEntry, LedgerEvent, OrderUser};
use super::working::{NativeOrder, OuchOrder};
use super::{Instrument, MarketEvent, OrderCounters, OrderOptions};
use crate::engine::{
    EndReason, Event, MatchingEngine, MatchingOptions, OrderId, Owner, SymbolIndex, SymbolRules,
};

/// Length of the longest report of either gateway, in bytes.
pub(super) const MAX_REPORT_BYTES: usize = 160;

/// Number of recent trades that can still be cancelled.
const KEPT_TRADES: usize = 65_536;

/// A user of a gateway, by its index in the options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recipient {
    Native(usize),
    Ouch(usize),
}

/// A message to a user.
#[derive(Debug, Clone)]
pub(super) struct Report {
    pub(super) to: Recipient,
    /// The partition of a native report; 0 if it has none.
    pub(super) app_id: u8,
    length: usize,
    bytes: [u8; MAX_REPORT_BYTES],
    /// When to send it. Only a fault delays it.
    pub(super) release_ns: u64,
    pub(super) is_gap: bool,
    pub(super) garbage: usize,
    pub(super) misreport: Option<Misreport>,
}

impl Report {
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        self.bytes.get_mut(..self.length).unwrap_or_default()
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }

    /// Creates another report to the same user that is sent now.
    pub(super) fn with_bytes(&self, message: &[u8]) -> Self {
        let mut report = Self { is_gap: false, garbage: 0, misreport: None, ..self.clone() };
        report.length = message.len().min(MAX_REPORT_BYTES);
        report.bytes().iter_mut().zip(message).for_each(|(to, from)| *to = *from);
        report
    }
}

/// A gateway's state of a working order.
#[derive(Debug, Clone, Copy)]
pub(super) enum Entry {
    Native(NativeOrder),
    Ouch(OuchOrder),
}

impl Entry {
    const fn user(&self) -> OrderUser {
        match self {
            Self::Native(entry) => OrderUser::Native(entry.user),
            Self::Ouch(entry) => OrderUser::Ouch(entry.user),
        }
    }

    const fn quantity(&self) -> u32 {
        match self {
            Self::Native(entry) => entry.quantity,
            Self::Ouch(entry) => entry.quantity,
        }
    }
}

/// One side of a trade, kept so that the trade can be cancelled.
#[derive(Debug, Clone, Copy)]
pub(super) struct TradeSide {
    pub(super) order: OrderId,
    pub(super) entry: Entry,
    /// The execution ID of its report.
    pub(super) execution: u64,
    pub(super) leaves: u32,
    pub(super) executed: u32,
}

/// A trade.
#[derive(Debug, Clone, Copy)]
pub(super) struct Trade {
    pub(super) match_number: u64,
    pub(super) price_e8: i64,
    pub(super) quantity: u32,
    pub(super) sides: [Option<TradeSide>; 2],
}

/// One side of a trade as it happens.
#[derive(Debug, Clone, Copy)]
pub(super) struct Execution {
    pub(super) order: OrderId,
    pub(super) price_e8: i64,
    pub(super) quantity: u32,
    pub(super) match_number: u64,
    pub(super) leaves: u32,
    pub(super) executed: u32,
    pub(super) is_resting: bool,
    /// The number of its execution ID.
    pub(super) execution: u64,
}

#[derive(Debug)]
pub(super) struct OrderRegister {
    pub(super) engine: MatchingEngine,
    pub(super) variant: Variant,
    pub(super) instruments: Vec<Instrument>,
    pub(super) self_trade: crate::engine::SelfTrade,
    /// Midnight in New York, for OUCH timestamps.
    pub(super) midnight_ns: u64,
    /// Indexed by the slot in the engine's pool.
    entries: Vec<Option<(OrderId, Entry)>>,
    by_instrument_id: HashMap<i32, SymbolIndex>,
    by_symbol: HashMap<[u8; 8], SymbolIndex>,
    /// Working native orders by user and client order ID.
    pub(super) client_orders: HashMap<(usize, [u8; 20]), OrderId>,
    /// Native quotes by user and instrument: the orders of both sides, some of which may have ended.
    pub(super) quotes: HashMap<(usize, SymbolIndex), [Option<OrderId>; 2]>,
    /// Working OUCH orders by user and reference number.
    pub(super) references: HashMap<(usize, u32), OrderId>,
    /// The next user reference number of each OUCH user.
    pub(super) next_references: Vec<u32>,
    native_users: usize,
    events: Vec<Event>,
    reports: VecDeque<Report>,
    trades: VecDeque<Trade>,
    market: VecDeque<MarketEvent>,
    publishes_market: bool,
    ledger: VecDeque<LedgerEntry>,
    keeps_ledger: bool,
    executions: u64,
    /// End of the halt of each partition.
    halted_until_ns: Vec<u64>,
    /// The day has ended and the next has not started: every partition is halted.
    is_day_over: bool,
    pub(super) script: Script,
    pub(super) counters: OrderCounters,
    pub(super) now_ns: u64,
}

impl OrderRegister {
    pub(super) fn new(options: &OrderOptions) -> Self {
        let rules = |instrument: &Instrument| SymbolRules {
            tick_e8: instrument.tick_e8,
            lowest_price_e8: instrument.lowest_price_e8,
            highest_price_e8: instrument.highest_price_e8,
            most_quantity: instrument.most_quantity,
        };
        let matching = MatchingOptions {
            symbols: options.instruments.iter().map(rules).collect(),
            most_orders: options.most_orders,
        };
        let indexed = || (0u32..).map(SymbolIndex).zip(&options.instruments);
        Self {
            engine: MatchingEngine::new(&matching),
            variant: options.native.variant,
            instruments: options.instruments.clone(),
            self_trade: options.self_trade,
            midnight_ns: options.midnight_ns,
            entries: vec![None; options.most_orders as usize],
            by_instrument_id: indexed().map(|(index, instrument)| (instrument.id, index)).collect(),
            by_symbol: indexed().map(|(index, instrument)| (instrument.symbol.0, index)).collect(),
            client_orders: HashMap::with_capacity(options.most_orders as usize),
            quotes: HashMap::new(),
            references: HashMap::with_capacity(options.most_orders as usize),
            next_references: vec![1; options.ouch_users.len()],
            native_users: options.native_users.len(),
            events: Vec::new(),
            reports: VecDeque::new(),
            trades: VecDeque::new(),
            market: VecDeque::new(),
            publishes_market: options.publishes_market,
            ledger: VecDeque::new(),
            keeps_ledger: options.keeps_ledger,
            executions: 0,
            halted_until_ns: vec![0; usize::from(options.native.variant.partitions) + 1],
            is_day_over: false,
            script: Script::new(options.faults),
            counters: OrderCounters::default(),
            now_ns: 0,
        }
    }

    // ---- who and where ----

    pub(super) fn owner(&self, recipient: Recipient) -> Owner {
        // There are fewer than 2^32 users.
        Owner(match recipient {
            Recipient::Native(user) => user as u32,
            Recipient::Ouch(user) => (self.native_users + user) as u32,
        })
    }

    pub(super) fn symbol_of_id(&self, instrument_id: i32) -> Option<SymbolIndex> {
        self.by_instrument_id.get(&instrument_id).copied()
    }

    pub(super) fn symbol_of_name(&self, name: &Ascii<8>) -> Option<SymbolIndex> {
        self.by_symbol.get(&Ascii::<8>::padded(name.trimmed())?.0).copied()
    }

    pub(super) fn instrument(&self, symbol: SymbolIndex) -> Option<&Instrument> {
        self.instruments.get(symbol.0 as usize)
    }

    pub(super) fn is_halted(&self, partition: u8) -> bool {
        let until_ns = self.halted_until_ns.get(usize::from(partition));
        self.is_day_over || until_ns.is_some_and(|until_ns| *until_ns > self.now_ns)
    }

    pub(super) const fn is_day_over(&self) -> bool {
        self.is_day_over
    }

    /// Ends the day: cancels day orders and all orders of OUCH users, whose sessions end too.
    pub(super) fn end_day(&mut self) {
        self.is_day_over = true;
        self.call(|engine, mut sink| engine.end_day(&mut sink));
        self.report_events();
        for user in 0..self.next_references.len() {
            self.cancel_all(Recipient::Ouch(user), EndReason::DayOver, |_| true);
        }
    }

    /// Starts the next day, with the remaining orders. Trades of the previous day can no longer be cancelled.
    pub(super) fn new_day(&mut self, midnight_ns: u64) {
        self.is_day_over = false;
        self.midnight_ns = midnight_ns;
        self.next_references.fill(1);
        self.halted_until_ns.fill(0);
        self.references.clear();
        self.quotes.clear();
        self.trades.clear();
    }

    /// Halts a partition until a time; 0 ends the halt. Returns whether the partition exists.
    pub(super) fn halt(&mut self, partition: u8, until_ns: u64) -> bool {
        let place = self.halted_until_ns.get_mut(usize::from(partition)).filter(|_| partition > 0);
        place.map(|place| *place = until_ns).is_some()
    }

    pub(super) fn entry(&self, order: OrderId) -> Option<Entry> {
        let (id, entry) = self.entries.get(order.slot()).copied().flatten()?;
        (id == order).then_some(entry)
    }

    pub(super) fn set_entry(&mut self, order: OrderId, entry: Entry) {
        if let Some(place) = self.entries.get_mut(order.slot()) {
            *place = Some((order, entry));
        }
    }

    /// Forgets an order that has ended.
    fn forget(&mut self, order: OrderId) {
        match self.entries.get_mut(order.slot()).and_then(Option::take) {
            Some((_, Entry::Native(entry))) if !entry.is_quote => {
                self.client_orders.remove(&(entry.user, entry.key()));
            }
            Some((_, Entry::Ouch(entry))) => {
                self.references.remove(&(entry.user, entry.reference));
            }
            Some((_, Entry::Native(_))) | None => {}
        }
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (OrderId, Entry)> + '_ {
        self.entries.iter().copied().flatten()
    }

    // ---- events and reports ----

    /// Calls the engine and collects its events.
    pub(super) fn call<T>(&mut self, act: impl FnOnce(&mut MatchingEngine, &mut dyn FnMut(Event)) -> T) -> T {
        let events = &mut self.events;
        act(&mut self.engine, &mut |event| events.push(event))
    }

    /// Reports the events of the last call.
    pub(super) fn report_events(&mut self) {
        let mut events = std::mem::take(&mut self.events);
        for event in events.drain(..) {
            self.report_event(event);
        }
        self.events = events;
    }

    /// Records an order's event in the ledger.
    fn enter(&mut self, order: OrderId, entry: Option<Entry>, event: LedgerEvent) {
        if let Some(entry) = entry.filter(|_| self.keeps_ledger) {
            self.ledger.push_back(LedgerEntry { time_ns: self.now_ns, user: entry.user(), order, event });
        }
    }

    pub(super) fn next_ledger(&mut self) -> Option<LedgerEntry> {
        self.ledger.pop_front()
    }

    fn report_event(&mut self, event: Event) {
        match event {
            Event::Accepted { order, .. } => {
                self.counters.accepted += 1;
                let entry = self.entry(order);
                let quantity = entry.as_ref().map_or(0, Entry::quantity);
                self.enter(order, entry, LedgerEvent::Accepted { quantity });
                match entry {
                    Some(Entry::Native(entry)) => self.native_accepted(order, &entry),
                    Some(Entry::Ouch(entry)) => self.ouch_accepted(order, &entry),
                    None => {}
                }
            }
            Event::Elected { order, .. } => {
                if let Some(Entry::Native(entry)) = self.entry(order) {
                    self.native_elected(order, &entry);
                }
            }
            Event::Trade { symbol, match_number, price_e8, quantity, resting, incoming } => {
                self.counters.trades += 1;
                let sides = [(resting, true), (incoming, false)].map(|(fill, is_resting)| {
                    let execution = Execution {
                        order: fill.order,
                        price_e8,
                        quantity,
                        match_number,
                        leaves: fill.leaves,
                        executed: fill.executed,
                        is_resting,
                        execution: self.next_execution(),
                    };
                    let filled =
                        LedgerEvent::Filled { match_number, price_e8, quantity, leaves: fill.leaves };
                    self.enter(fill.order, self.entry(fill.order), filled);
                    self.executed(&execution)
                });
                if self.trades.len() >= KEPT_TRADES {
                    self.trades.pop_front();
                }
                self.trades.push_back(Trade { match_number, price_e8, quantity, sides });
                self.publish(|time_ns| MarketEvent::Trade {
                    time_ns,
                    symbol,
                    match_number,
                    price_e8,
                    quantity,
                });
            }
            Event::Replaced { order, leaves, .. } => {
                let entry = self.entry(order);
                self.enter(order, entry, LedgerEvent::Replaced { leaves });
                match entry {
                    Some(Entry::Native(entry)) => self.native_replaced(order, entry, leaves),
                    Some(Entry::Ouch(entry)) => self.ouch_replaced(order, entry, leaves),
                    None => {}
                }
            }
            Event::Decremented { order, by, leaves, .. } => {
                let entry = self.entry(order);
                self.enter(order, entry, LedgerEvent::Replaced { leaves });
                match entry {
                    Some(Entry::Native(entry)) => self.native_decremented(order, &entry, leaves),
                    Some(Entry::Ouch(entry)) => self.ouch_decremented(&entry, by),
                    None => {}
                }
                if leaves == 0 {
                    self.forget(order);
                }
            }
            Event::Ended { order, reason, leaves, .. } => self.ended(order, reason, leaves),
            Event::Book { symbol, change } => {
                self.publish(|time_ns| MarketEvent::Book { time_ns, symbol, change });
            }
        }
    }

    fn executed(&mut self, execution: &Execution) -> Option<TradeSide> {
        let mut entry = self.entry(execution.order)?;
        match &mut entry {
            Entry::Native(native) => native.executed = execution.executed,
            Entry::Ouch(ouch) => ouch.executed = execution.executed,
        }
        self.set_entry(execution.order, entry);
        match &entry {
            Entry::Native(native) => self.native_executed(native, execution),
            Entry::Ouch(ouch) => self.ouch_executed(ouch, execution),
        }
        if execution.leaves == 0 {
            self.forget(execution.order);
        }
        Some(TradeSide {
            order: execution.order,
            entry,
            execution: execution.execution,
            leaves: execution.leaves,
            executed: execution.executed,
        })
    }

    fn ended(&mut self, order: OrderId, reason: EndReason, leaves: u32) {
        self.counters.ended += 1;
        let entry = self.entry(order);
        self.enter(order, entry, LedgerEvent::Ended { left: leaves });
        match entry {
            Some(Entry::Native(entry)) => self.native_ended(order, &entry, reason),
            Some(Entry::Ouch(entry)) => self.ouch_ended(&entry, reason, leaves),
            None => {}
        }
        self.forget(order);
    }

    /// Cancels a trade and notifies both sides. Returns whether the trade was known.
    pub(super) fn bust(&mut self, match_number: u64) -> bool {
        let Some(place) = self.trades.iter().position(|trade| trade.match_number == match_number) else {
            return false;
        };
        let Some(trade) = self.trades.remove(place) else { return false };
        self.counters.busted += 1;
        for side in trade.sides.iter().flatten() {
            self.enter(side.order, Some(side.entry), LedgerEvent::Busted { match_number });
            match &side.entry {
                Entry::Native(entry) => self.native_busted(entry, side, &trade),
                Entry::Ouch(entry) => self.ouch_busted(entry, &trade),
            }
        }
        true
    }

    pub(super) const fn next_execution(&mut self) -> u64 {
        self.executions += 1;
        self.executions
    }

    fn publish(&mut self, event: impl FnOnce(u64) -> MarketEvent) {
        if self.publishes_market {
            self.market.push_back(event(self.now_ns));
        }
    }

    pub(super) fn next_market(&mut self) -> Option<MarketEvent> {
        self.market.pop_front()
    }

    /// Queues a report. A fault may delay it, and all reports after it.
    pub(super) fn report(&mut self, to: Recipient, app_id: u8, message: &[u8]) {
        let delivery = self.script.delivery(matches!(to, Recipient::Native(_)));
        let before_ns = self.reports.back().map_or(0, |report| report.release_ns);
        let mut report = Report {
            to,
            app_id,
            length: message.len(),
            bytes: [0; MAX_REPORT_BYTES],
            release_ns: before_ns.max(self.now_ns.saturating_add(delivery.delay_ns)),
            is_gap: delivery.is_gap,
            garbage: delivery.garbage,
            misreport: delivery.misreport,
        };
        match report.bytes.get_mut(..message.len()) {
            Some(room) => room.copy_from_slice(message),
            None => {
                self.counters.reports_too_long += 1;
                return;
            }
        }
        self.reports.push_back(report);
    }

    /// Returns the next report that is due.
    pub(super) fn next_report(&mut self) -> Option<Report> {
        self.reports.front().filter(|report| report.release_ns <= self.now_ns)?;
        self.reports.pop_front()
    }

    /// Releases the reports that a fault delays.
    pub(super) fn end_delays(&mut self) {
        self.reports.iter_mut().for_each(|report| report.release_ns = self.now_ns);
    }

    /// Returns when the next report is due, if any.
    pub(super) fn report_due_ns(&self) -> Option<u64> {
        self.reports.front().map(|report| report.release_ns)
    }

    /// Cancels a user's orders whose entries `is_meant` selects.
    pub(super) fn cancel_all(
        &mut self,
        recipient: Recipient,
        reason: EndReason,
        is_meant: impl Fn(&Entry) -> bool,
    ) -> u32 {
        let owner = self.owner(recipient);
        let Self { engine, entries, events, .. } = self;
        let is_meant = |order: OrderId, _: &crate::engine::WorkingOrder| {
            entries.get(order.slot()).and_then(Option::as_ref).is_some_and(|(_, entry)| is_meant(entry))
        };
        let cancelled = engine.mass_cancel(owner, reason, is_meant, &mut |event| events.push(event));
        self.report_events();
        cancelled
    }
}
