//! The matching engine against an oracle: orders in a list, searched from its start at each step. Both take the same
//! commands, and are compared after each: what was refused, traded, ended; every working order; the displayed book.

#![allow(clippy::expect_used, clippy::unwrap_used)] // a failure here is a failed test

use std::collections::BTreeMap;

use proptest::prelude::*;
use tapeworks_matching::{
    BookChange, Display, EndReason, Event, Lifetime, MatchingEngine, MatchingOptions, NewOrder, OrderId,
    OrderKind, OrderSide, Owner, Refusal, Replacement, SelfTrade, SymbolIndex, SymbolRules,
};

const TICK_E8: i64 = 1_000_000;
const MOST_ORDERS: u32 = 12;
const SYMBOLS: u32 = 2;

#[derive(Debug, Clone)]
enum Command {
    Submit(NewOrder),
    Cancel { owner: Owner, number: usize },
    Replace { owner: Owner, number: usize, new: Replacement },
    MassCancel { owner: Owner, symbol: Option<SymbolIndex> },
    Advance { now_ns: u64 },
    EndDay,
    Halt { symbol: SymbolIndex, is_halted: bool },
}

/// What both report. Orders are numbered in the order in which they were accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Happened {
    Trade {
        resting: usize,
        incoming: usize,
        price_e8: i64,
        quantity: u32,
        resting_leaves: u32,
        incoming_leaves: u32,
    },
    Elected {
        order: usize,
    },
    Decremented {
        order: usize,
        by: u32,
        leaves: u32,
    },
    Ended {
        order: usize,
        reason: EndReason,
        leaves: u32,
    },
}

// The oracle

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Modelled {
    number: usize,
    new: NewOrder,
    kind: OrderKind,
    executed: u32,
    leaves: u32,
    shown: u32,
    is_waiting: bool,
    /// Place in time within the book.
    since: u64,
    /// Order of entry, by which stops are elected.
    entered: u64,
}

impl Modelled {
    fn limit_e8(&self) -> Option<i64> {
        match self.kind {
            OrderKind::Limit { price_e8 } | OrderKind::StopLimit { price_e8, .. } => Some(price_e8),
            _ => None,
        }
    }

    fn stop_e8(&self) -> Option<i64> {
        match self.kind {
            OrderKind::Stop { stop_e8 } | OrderKind::StopLimit { stop_e8, .. } => Some(stop_e8),
            _ => None,
        }
    }

    fn slice(&self) -> u32 {
        match self.new.display {
            Display::Full => self.leaves,
            Display::Slice(slice) => slice.min(self.leaves),
            Display::Hidden => 0,
        }
    }

    fn is_hidden(&self) -> bool {
        self.new.display == Display::Hidden
    }
}

#[derive(Debug, Clone, Default)]
struct Model {
    working: Vec<Modelled>,
    halted: [bool; SYMBOLS as usize],
    last_e8: [Option<i64>; SYMBOLS as usize],
    now_ns: u64,
    clock: u64,
    accepted: usize,
    happened: Vec<Happened>,
}

impl Model {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn find(&mut self, number: usize) -> Option<&mut Modelled> {
        self.working.iter_mut().find(|order| order.number == number)
    }

    fn remove(&mut self, number: usize) -> Modelled {
        let index = self.working.iter().position(|order| order.number == number).unwrap();
        self.working.remove(index)
    }

    fn end(&mut self, number: usize, reason: EndReason) {
        let order = self.remove(number);
        self.happened.push(Happened::Ended { order: number, reason, leaves: order.leaves });
    }

    fn reached(&self, order: &Modelled) -> bool {
        let last_e8 = self.last_e8[order.new.symbol.0 as usize];
        match (order.stop_e8(), last_e8, order.new.side) {
            (None, _, _) => true,
            (Some(_), None, _) => false,
            (Some(stop_e8), Some(last_e8), OrderSide::Buy) => last_e8 >= stop_e8,
            (Some(stop_e8), Some(last_e8), OrderSide::Sell) => last_e8 <= stop_e8,
        }
    }

    fn refuses(
        &self,
        symbol: SymbolIndex,
        quantity: u32,
        kind: OrderKind,
        display: Display,
        lifetime: Lifetime,
    ) -> Option<Refusal> {
        if symbol.0 >= SYMBOLS {
            return Some(Refusal::UnknownSymbol);
        }
        if self.halted[symbol.0 as usize] {
            return Some(Refusal::Halted);
        }
        if quantity == 0 || quantity > 1_000 {
            return Some(Refusal::Quantity);
        }
        let prices = match kind {
            OrderKind::Market => vec![],
            OrderKind::Limit { price_e8 } => vec![price_e8],
            OrderKind::Stop { stop_e8 } => vec![stop_e8],
            OrderKind::StopLimit { stop_e8, price_e8 } => vec![stop_e8, price_e8],
        };
        if prices.iter().any(|price| *price <= 0 || price % TICK_E8 != 0) {
            return Some(Refusal::Price);
        }
        if let Display::Slice(slice) = display
            && (slice == 0 || slice > quantity)
        {
            return Some(Refusal::Display);
        }
        match lifetime {
            Lifetime::GoodTill { expire_ns } if expire_ns <= self.now_ns => Some(Refusal::Lifetime),
            _ => None,
        }
    }

    fn submit(&mut self, new: NewOrder) -> Result<(), Refusal> {
        if let Some(refusal) = self.refuses(new.symbol, new.quantity, new.kind, new.display, new.lifetime) {
            return Err(refusal);
        }
        let is_ioc = new.lifetime == Lifetime::ImmediateOrCancel;
        if new.minimum > new.quantity || (new.minimum > 0 && !is_ioc) {
            return Err(Refusal::Minimum);
        }
        let is_plain_limit = matches!(new.kind, OrderKind::Limit { .. });
        if new.is_passive_only && (!is_plain_limit || is_ioc || new.lifetime == Lifetime::FillOrKill) {
            return Err(Refusal::Lifetime);
        }
        if self.working.len() >= MOST_ORDERS as usize {
            return Err(Refusal::Full);
        }
        let number = self.accepted;
        self.accepted += 1;
        let entered = self.tick();
        let order = Modelled {
            number,
            new,
            kind: new.kind,
            executed: 0,
            leaves: new.quantity,
            shown: 0,
            is_waiting: true,
            since: 0,
            entered,
        };
        self.working.push(order);
        if new.is_passive_only && self.next_for(number).is_some() {
            self.end(number, EndReason::WouldTrade);
        } else if self.reached(&order) {
            if order.stop_e8().is_some() {
                self.elect(number);
            }
            self.enter(number, new.minimum);
        }
        self.settle();
        Ok(())
    }

    fn elect(&mut self, number: usize) {
        let order = self.find(number).unwrap();
        order.kind = order.limit_e8().map_or(OrderKind::Market, |price_e8| OrderKind::Limit { price_e8 });
        self.happened.push(Happened::Elected { order: number });
    }

    /// Elects all stops that any trade since the last election reached. `elections` has them in `entered` order.
    fn settle(&mut self) {
        loop {
            let mut elected: Vec<_> = self
                .working
                .iter()
                .filter(|order| order.is_waiting && order.stop_e8() == Some(ELECTED))
                .copied()
                .collect();
            if elected.is_empty() {
                return;
            }
            elected.sort_by_key(|order| order.entered);
            for order in &elected {
                self.elect(order.number);
            }
            for order in &elected {
                self.enter(order.number, 0);
            }
        }
    }

    /// Marks the stops that a trade reaches, by a stop price that no order has.
    fn note_trade(&mut self, symbol: SymbolIndex, traded_e8: i64) {
        self.last_e8[symbol.0 as usize] = Some(traded_e8);
        for order in self.working.iter_mut().filter(|order| order.is_waiting && order.new.symbol == symbol) {
            let Some(stop_now_e8) = order.stop_e8() else { continue };
            let is_reached = match order.new.side {
                OrderSide::Buy => traded_e8 >= stop_now_e8 && stop_now_e8 != ELECTED,
                OrderSide::Sell => traded_e8 <= stop_now_e8 && stop_now_e8 != ELECTED,
            };
            if is_reached {
                order.kind = match order.kind {
                    OrderKind::StopLimit { price_e8, .. } => {
                        OrderKind::StopLimit { stop_e8: ELECTED, price_e8 }
                    }
                    _ => OrderKind::Stop { stop_e8: ELECTED },
                };
            }
        }
    }

    /// The resting order that this one would meet first.
    fn next_for(&self, number: usize) -> Option<Modelled> {
        let order = self.working.iter().find(|order| order.number == number)?;
        let is_buy = order.new.side == OrderSide::Buy;
        self.working
            .iter()
            .filter(|other| {
                !other.is_waiting && other.new.symbol == order.new.symbol && other.new.side != order.new.side
            })
            .filter(|other| other.number != number)
            .filter(|other| {
                let (Some(limit_e8), Some(price_e8)) = (order.limit_e8(), other.limit_e8()) else {
                    return true;
                };
                if is_buy { price_e8 <= limit_e8 } else { price_e8 >= limit_e8 }
            })
            .min_by_key(|other| {
                let price_e8 = other.limit_e8().unwrap();
                (if is_buy { price_e8 } else { -price_e8 }, other.is_hidden(), other.since)
            })
            .copied()
    }

    fn enter(&mut self, number: usize, minimum: u32) {
        let order = *self.find(number).unwrap();
        let needed = if order.new.lifetime == Lifetime::FillOrKill { order.leaves } else { minimum };
        if needed > 0 {
            // Tries it on a copy, which stops at what it may not trade with.
            let mut copy = self.clone();
            let rule = order.new.self_trade;
            let blocks =
                matches!(rule, SelfTrade::CancelIncoming | SelfTrade::CancelBoth | SelfTrade::DecrementBoth);
            while copy.find(number).is_some() {
                match copy.next_for(number) {
                    Some(next) if !(blocks && next.new.owner == order.new.owner) => {
                        copy.meet(number, next.number)
                    }
                    _ => break,
                }
            }
            let executed = copy.find(number).map_or(order.leaves, |left| left.executed - order.executed);
            if executed < needed {
                self.end(number, EndReason::NotFillable);
                return;
            }
        }
        while self.find(number).is_some() {
            let Some(next) = self.next_for(number) else { break };
            self.meet(number, next.number);
        }
        let Some(order) = self.find(number).copied() else { return };
        if order.limit_e8().is_none()
            || matches!(order.new.lifetime, Lifetime::ImmediateOrCancel | Lifetime::FillOrKill)
        {
            self.end(number, EndReason::Unfilled);
        } else {
            self.rest(number);
        }
    }

    fn rest(&mut self, number: usize) {
        let since = self.tick();
        let order = self.find(number).unwrap();
        (order.is_waiting, order.since, order.shown) = (false, since, order.slice());
    }

    /// One meeting of an incoming order with the next resting one.
    fn meet(&mut self, number: usize, resting: usize) {
        let incoming = *self.find(number).unwrap();
        let other = *self.find(resting).unwrap();
        let quantity = incoming.leaves.min(if other.is_hidden() { other.leaves } else { other.shown });
        if incoming.new.owner == other.new.owner {
            match incoming.new.self_trade {
                SelfTrade::Allow => {}
                SelfTrade::CancelResting => return self.end(resting, EndReason::SelfTrade),
                SelfTrade::CancelIncoming => return self.end(number, EndReason::SelfTrade),
                SelfTrade::CancelBoth => {
                    self.end(resting, EndReason::SelfTrade);
                    return self.end(number, EndReason::SelfTrade);
                }
                SelfTrade::DecrementBoth => {
                    for one in [resting, number] {
                        let order = self.find(one).unwrap();
                        order.leaves -= quantity;
                        order.new.quantity -= quantity;
                        let leaves = order.leaves;
                        self.happened.push(Happened::Decremented { order: one, by: quantity, leaves });
                    }
                    self.after(resting, quantity);
                    return self.after(number, 0);
                }
            }
        }
        let price_e8 = other.limit_e8().unwrap();
        for one in [resting, number] {
            let order = self.find(one).unwrap();
            order.leaves -= quantity;
            order.executed += quantity;
        }
        self.happened.push(Happened::Trade {
            resting,
            incoming: number,
            price_e8,
            quantity,
            resting_leaves: other.leaves - quantity,
            incoming_leaves: incoming.leaves - quantity,
        });
        self.note_trade(other.new.symbol, price_e8);
        self.after(resting, quantity);
        self.after(number, 0);
    }

    fn after(&mut self, number: usize, taken: u32) {
        let order = self.find(number).unwrap();
        order.shown -= taken.min(order.shown);
        if order.leaves == 0 {
            self.remove(number);
        } else if !order.is_waiting && order.shown == 0 && !order.is_hidden() {
            self.rest(number);
        }
    }

    fn replace(&mut self, owner: Owner, number: usize, new: Replacement) -> Result<(), Refusal> {
        let order = self.find(number).filter(|order| order.new.owner == owner).copied();
        let order = order.ok_or(Refusal::UnknownOrder)?;
        if self.halted[order.new.symbol.0 as usize] {
            return Err(Refusal::Halted);
        }
        let kind_of = |kind: OrderKind| match kind {
            OrderKind::Market => 0,
            OrderKind::Limit { .. } => 1,
            OrderKind::Stop { .. } => 2,
            OrderKind::StopLimit { .. } => 3,
        };
        if kind_of(order.kind) != kind_of(new.kind) {
            return Err(Refusal::Kind);
        }
        if matches!(new.lifetime, Lifetime::ImmediateOrCancel | Lifetime::FillOrKill) {
            return Err(Refusal::Lifetime);
        }
        if let Some(refusal) =
            self.refuses(order.new.symbol, new.quantity, new.kind, new.display, new.lifetime)
        {
            return Err(refusal);
        }
        if new.quantity <= order.executed {
            self.end(number, EndReason::ReplacedBelowExecuted);
            return Ok(());
        }
        let leaves = new.quantity - order.executed;
        let keeps = new.kind == order.kind && new.display == order.new.display && leaves <= order.leaves;
        let entered = if keeps { order.entered } else { self.tick() };
        let changed = self.find(number).unwrap();
        (changed.kind, changed.leaves, changed.entered) = (new.kind, leaves, entered);
        (changed.new.lifetime, changed.new.display, changed.new.quantity) =
            (new.lifetime, new.display, new.quantity);
        let changed = *changed;
        if order.is_waiting {
            if self.reached(&changed) {
                self.elect(number);
                self.enter(number, 0);
            }
        } else if keeps {
            let order = self.find(number).unwrap();
            order.shown = order.shown.min(leaves);
        } else {
            self.find(number).unwrap().is_waiting = true;
            if new.is_passive_only && self.next_for(number).is_some() {
                self.end(number, EndReason::WouldTrade);
            } else {
                self.enter(number, 0);
            }
        }
        self.settle();
        Ok(())
    }

    fn apply(&mut self, command: &Command) -> Result<(), Refusal> {
        match *command {
            Command::Submit(new) => self.submit(new)?,
            Command::Cancel { owner, number } => {
                self.find(number).filter(|order| order.new.owner == owner).ok_or(Refusal::UnknownOrder)?;
                self.end(number, EndReason::Requested);
            }
            Command::Replace { owner, number, new } => self.replace(owner, number, new)?,
            Command::MassCancel { owner, symbol } => {
                let mut meant: Vec<usize> = self
                    .working
                    .iter()
                    .filter(|order| order.new.owner == owner)
                    .filter(|order| symbol.is_none_or(|symbol| order.new.symbol == symbol))
                    .map(|order| order.number)
                    .collect();
                meant.sort_unstable();
                meant.into_iter().for_each(|number| self.end(number, EndReason::MassCancel));
            }
            Command::Advance { now_ns } => {
                self.now_ns = self.now_ns.max(now_ns);
                loop {
                    let due = |order: &Modelled| match order.new.lifetime {
                        Lifetime::GoodTill { expire_ns } if expire_ns <= self.now_ns => Some(expire_ns),
                        _ => None,
                    };
                    let Some(first) = self.working.iter().filter_map(due).min() else { break };
                    // Several of one time: in any order.
                    let number = self.working.iter().find(|order| due(order) == Some(first)).unwrap().number;
                    self.end(number, EndReason::Expired);
                }
            }
            Command::EndDay => {
                let day = |order: &&Modelled| order.new.lifetime == Lifetime::Day;
                let meant: Vec<usize> = self.working.iter().filter(day).map(|order| order.number).collect();
                meant.into_iter().for_each(|number| self.end(number, EndReason::DayOver));
            }
            Command::Halt { symbol, is_halted } => {
                *self.halted.get_mut(symbol.0 as usize).ok_or(Refusal::UnknownSymbol)? = is_halted;
            }
        }
        Ok(())
    }
}

/// The stop price of a stop that is elected and has not entered.
const ELECTED: i64 = -1;

// The engine beside it

struct Both {
    model: Model,
    engine: MatchingEngine,
    ids: Vec<OrderId>,
    /// What the market data says, by reference: symbol, is a buy, price, quantity.
    published: BTreeMap<u64, (u32, bool, i64, u32)>,
    matches: u64,
}

impl Both {
    fn new() -> Self {
        let symbols = vec![
            SymbolRules {
                tick_e8: TICK_E8,
                lowest_price_e8: 1,
                highest_price_e8: i64::MAX,
                most_quantity: 1_000
            };
            SYMBOLS as usize
        ];
        let engine = MatchingEngine::new(&MatchingOptions { symbols, most_orders: MOST_ORDERS });
        Self { model: Model::default(), engine, ids: Vec::new(), published: BTreeMap::new(), matches: 0 }
    }

    fn id(&self, number: usize) -> OrderId {
        self.ids.get(number).copied().unwrap_or(OrderId::from_number(u64::MAX))
    }

    fn apply(&mut self, command: &Command) {
        let mut events = Vec::new();
        let mut sink = |event| events.push(event);
        let outcome = match *command {
            Command::Submit(new) => self.engine.submit(&new, &mut sink).map(|_| ()),
            Command::Cancel { owner, number } => self.engine.cancel(owner, self.id(number), &mut sink),
            Command::Replace { owner, number, new } => {
                self.engine.replace(owner, self.id(number), &new, &mut sink)
            }
            Command::MassCancel { owner, symbol } => {
                let is_meant = |symbol_of: SymbolIndex| symbol.is_none_or(|symbol| symbol == symbol_of);
                self.engine.mass_cancel(
                    owner,
                    EndReason::MassCancel,
                    |_, order| is_meant(order.symbol),
                    &mut sink,
                );
                Ok(())
            }
            Command::Advance { now_ns } => {
                self.engine.advance(now_ns, &mut sink);
                Ok(())
            }
            Command::EndDay => {
                self.engine.end_day(&mut sink);
                Ok(())
            }
            Command::Halt { symbol, is_halted } => self.engine.set_halted(symbol, is_halted),
        };
        assert!(outcome.is_ok() || events.is_empty(), "a refused call changes nothing: {events:?}");
        self.model.happened.clear();
        assert_eq!(outcome, self.model.apply(command), "{command:?}");
        let mut happened: Vec<Happened> = events.iter().filter_map(|event| self.read(event)).collect();
        if matches!(command, Command::Advance { .. } | Command::EndDay) {
            let number = |happened: &Happened| match happened {
                Happened::Ended { order, .. } => *order,
                other => panic!("{other:?} by time"),
            };
            happened.sort_by_key(number);
            self.model.happened.sort_by_key(number);
        }
        assert_eq!(happened, self.model.happened, "{command:?}");
        self.compare();
    }

    fn number(&self, id: OrderId) -> usize {
        self.ids.iter().rposition(|known| *known == id).expect("an order that was accepted")
    }

    fn read(&mut self, event: &Event) -> Option<Happened> {
        match *event {
            Event::Accepted { order, .. } => {
                self.ids.push(order);
                None
            }
            Event::Elected { order, .. } => Some(Happened::Elected { order: self.number(order) }),
            Event::Replaced { .. } => None,
            Event::Trade { match_number, price_e8, quantity, resting, incoming, .. } => {
                self.matches += 1;
                assert_eq!(match_number, self.matches);
                assert_ne!(resting.side, incoming.side);
                Some(Happened::Trade {
                    resting: self.number(resting.order),
                    incoming: self.number(incoming.order),
                    price_e8,
                    quantity,
                    resting_leaves: resting.leaves,
                    incoming_leaves: incoming.leaves,
                })
            }
            Event::Decremented { order, by, leaves, .. } => {
                Some(Happened::Decremented { order: self.number(order), by, leaves })
            }
            Event::Ended { order, reason, leaves, .. } => {
                Some(Happened::Ended { order: self.number(order), reason, leaves })
            }
            Event::Book { symbol, change } => {
                self.publish(symbol.0, change);
                None
            }
        }
    }

    fn publish(&mut self, symbol: u32, change: BookChange) {
        match change {
            BookChange::Add { reference, side, price_e8, quantity } => {
                let is_new =
                    self.published.insert(reference, (symbol, side == OrderSide::Buy, price_e8, quantity));
                assert_eq!(is_new, None);
            }
            BookChange::Execute { reference, quantity, .. }
            | BookChange::Reduce { reference, by: quantity } => {
                let order = self.published.get_mut(&reference).expect("a published order");
                assert_eq!(order.0, symbol);
                order.3 = order.3.checked_sub(quantity).expect("not more than is displayed");
                if order.3 == 0 {
                    assert!(matches!(change, BookChange::Execute { .. }), "a reduction leaves something");
                    self.published.remove(&reference);
                }
            }
            BookChange::Delete { reference } => {
                self.published.remove(&reference).expect("a published order");
            }
            BookChange::Replace { old, new, price_e8, quantity } => {
                let (of, is_buy, ..) = self.published.remove(&old).expect("a published order");
                assert_eq!(of, symbol);
                assert_eq!(self.published.insert(new, (of, is_buy, price_e8, quantity)), None);
            }
            BookChange::HiddenTrade { .. } => {}
        }
    }

    fn compare(&self) {
        assert_eq!(self.engine.orders(), self.model.working.len());
        for order in &self.model.working {
            let view = self.engine.order(self.id(order.number)).expect("it works");
            assert_eq!(
                (view.owner, view.symbol, view.side, view.kind, view.quantity, view.executed, view.leaves),
                (
                    order.new.owner,
                    order.new.symbol,
                    order.new.side,
                    order.kind,
                    order.new.quantity,
                    order.executed,
                    order.leaves
                )
            );
            assert_eq!((view.displayed, view.lifetime), (order.shown, order.new.lifetime));
            assert_eq!(view.quantity, view.executed + view.leaves);
        }
        for symbol in (0..SYMBOLS).map(SymbolIndex) {
            for side in [OrderSide::Buy, OrderSide::Sell] {
                let mut wanted: Vec<_> = self
                    .model
                    .working
                    .iter()
                    .filter(|order| !order.is_waiting && order.shown > 0)
                    .filter(|order| order.new.symbol == symbol && order.new.side == side)
                    .collect();
                wanted.sort_by_key(|order| {
                    let price_e8 = order.limit_e8().unwrap();
                    (if side == OrderSide::Buy { -price_e8 } else { price_e8 }, order.since)
                });
                let wanted: Vec<_> =
                    wanted.iter().map(|order| (order.limit_e8().unwrap(), order.shown)).collect();
                let found: Vec<_> = self.engine.displayed(symbol, side).collect();
                assert_eq!(
                    found.iter().map(|(_, price, shown)| (*price, *shown)).collect::<Vec<_>>(),
                    wanted
                );
                for (reference, price_e8, shown) in &found {
                    let is_buy = side == OrderSide::Buy;
                    assert_eq!(self.published.get(reference), Some(&(symbol.0, is_buy, *price_e8, *shown)));
                }
                let best = wanted.first().map(|(best_e8, _)| {
                    let at_best = wanted.iter().filter(|(price_e8, _)| price_e8 == best_e8);
                    (*best_e8, at_best.map(|(_, shown)| u64::from(*shown)).sum::<u64>())
                });
                assert_eq!(self.engine.top(symbol, side), best);
            }
            assert_eq!(self.engine.last_e8(symbol), self.model.last_e8[symbol.0 as usize]);
        }
        let displayed = self.model.working.iter().filter(|order| order.shown > 0).count();
        assert_eq!(self.published.len(), displayed, "market data has no other orders");
    }
}

// Commands

fn price() -> impl Strategy<Value = i64> {
    prop_oneof![30 => (1i64..8).prop_map(|ticks| ticks * TICK_E8), 1 => Just(0), 1 => Just(TICK_E8 + 1), 1 => Just(-TICK_E8)]
}

fn kind() -> impl Strategy<Value = OrderKind> {
    prop_oneof![
        2 => Just(OrderKind::Market),
        10 => price().prop_map(|price_e8| OrderKind::Limit { price_e8 }),
        2 => price().prop_map(|stop_e8| OrderKind::Stop { stop_e8 }),
        3 => (price(), price()).prop_map(|(stop_e8, price_e8)| OrderKind::StopLimit { stop_e8, price_e8 }),
    ]
}

fn quantity() -> impl Strategy<Value = u32> {
    prop_oneof![30 => 1u32..30, 1 => Just(0), 1 => Just(1_001)]
}

fn display() -> impl Strategy<Value = Display> {
    prop_oneof![6 => Just(Display::Full), 4 => (0u32..8).prop_map(Display::Slice), 2 => Just(Display::Hidden)]
}

fn lifetime() -> impl Strategy<Value = Lifetime> {
    prop_oneof![
        8 => Just(Lifetime::Day),
        2 => Just(Lifetime::ImmediateOrCancel),
        2 => Just(Lifetime::FillOrKill),
        3 => (0u64..60).prop_map(|expire_ns| Lifetime::GoodTill { expire_ns }),
    ]
}

fn self_trade() -> impl Strategy<Value = SelfTrade> {
    prop_oneof![
        Just(SelfTrade::Allow),
        Just(SelfTrade::CancelResting),
        Just(SelfTrade::CancelIncoming),
        Just(SelfTrade::CancelBoth),
        Just(SelfTrade::DecrementBoth),
    ]
}

fn new_order() -> impl Strategy<Value = NewOrder> {
    let side = prop_oneof![Just(OrderSide::Buy), Just(OrderSide::Sell)];
    let symbol = prop_oneof![20 => Just(0u32), 5 => Just(1), 1 => Just(SYMBOLS)];
    let minimum = prop_oneof![6 => Just(0u32), 1 => 1u32..20];
    let first = (0u32..3, symbol, side, kind(), quantity());
    let second = (display(), minimum, lifetime(), prop::bool::weighted(0.1), self_trade());
    (first, second).prop_map(
        |(
            (owner, symbol, side, kind, quantity),
            (display, minimum, lifetime, is_passive_only, self_trade),
        )| {
            NewOrder {
                owner: Owner(owner),
                symbol: SymbolIndex(symbol),
                side,
                kind,
                quantity,
                display,
                minimum,
                // A minimum is for immediate orders; now and then it is not.
                lifetime: if minimum > 2 { Lifetime::ImmediateOrCancel } else { lifetime },
                is_passive_only,
                self_trade,
            }
        },
    )
}

fn replacement() -> impl Strategy<Value = Replacement> {
    (quantity(), kind(), display(), lifetime(), prop::bool::weighted(0.1)).prop_map(
        |(quantity, kind, display, lifetime, is_passive_only)| Replacement {
            quantity,
            kind,
            display,
            lifetime,
            is_passive_only,
        },
    )
}

fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        20 => new_order().prop_map(Command::Submit),
        3 => (0u32..3, 0usize..40).prop_map(|(owner, number)| Command::Cancel { owner: Owner(owner), number }),
        8 => (0u32..3, 0usize..40, replacement())
            .prop_map(|(owner, number, new)| Command::Replace { owner: Owner(owner), number, new }),
        1 => (0u32..3, prop::option::of(0u32..2)).prop_map(|(owner, symbol)| Command::MassCancel {
            owner: Owner(owner),
            symbol: symbol.map(SymbolIndex)
        }),
        2 => (0u64..60).prop_map(|now_ns| Command::Advance { now_ns }),
        1 => Just(Command::EndDay),
        1 => (0u32..3, any::<bool>())
            .prop_map(|(symbol, is_halted)| Command::Halt { symbol: SymbolIndex(symbol), is_halted }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn it_does_as_a_list_of_orders_that_is_searched(commands in prop::collection::vec(command(), 1..80)) {
        let mut both = Both::new();
        for mut command in commands {
            // Most replacements keep the kind of the order, and its price now and then.
            if let Command::Replace { number, new, owner } = &mut command
                && let Some(order) = both.model.find(*number)
            {
                *owner = order.new.owner;
                if std::mem::discriminant(&new.kind) != std::mem::discriminant(&order.kind) || new.quantity % 3 == 0 {
                    new.kind = order.kind;
                }
                if new.quantity % 2 == 0 {
                    new.display = order.new.display;
                }
            }
            both.apply(&command);
        }
    }
}

// Examples that a reader can follow

fn limit(owner: u32, side: OrderSide, ticks: i64, quantity: u32) -> NewOrder {
    NewOrder {
        owner: Owner(owner),
        symbol: SymbolIndex(0),
        side,
        kind: OrderKind::Limit { price_e8: ticks * TICK_E8 },
        quantity,
        display: Display::Full,
        minimum: 0,
        lifetime: Lifetime::Day,
        is_passive_only: false,
        self_trade: SelfTrade::Allow,
    }
}

fn trades(commands: &[NewOrder]) -> Vec<(usize, usize, i64, u32)> {
    let mut both = Both::new();
    let mut trades = Vec::new();
    for new in commands {
        both.apply(&Command::Submit(*new));
        trades.extend(both.model.happened.iter().filter_map(|happened| match *happened {
            Happened::Trade { resting, incoming, price_e8, quantity, .. } => {
                Some((resting, incoming, price_e8 / TICK_E8, quantity))
            }
            _ => None,
        }));
    }
    trades
}

#[test]
fn the_best_price_comes_first_and_then_the_oldest() {
    use OrderSide::{Buy, Sell};
    let orders = [limit(0, Sell, 5, 10), limit(1, Sell, 4, 3), limit(0, Sell, 4, 4), limit(2, Buy, 5, 12)];
    assert_eq!(trades(&orders), [(1, 3, 4, 3), (2, 3, 4, 4), (0, 3, 5, 5)]);
}

#[test]
fn an_iceberg_goes_behind_with_each_slice_and_hidden_orders_come_last() {
    use OrderSide::{Buy, Sell};
    let iceberg = NewOrder { display: Display::Slice(4), ..limit(0, Sell, 5, 10) };
    let hidden = NewOrder { display: Display::Hidden, ..limit(1, Sell, 5, 5) };
    let orders = [hidden, iceberg, limit(1, Sell, 5, 3), limit(2, Buy, 5, 16)];
    assert_eq!(trades(&orders), [(1, 3, 5, 4), (2, 3, 5, 3), (1, 3, 5, 4), (1, 3, 5, 2), (0, 3, 5, 3)]);
}

#[test]
fn a_stop_enters_when_a_trade_reaches_it() {
    use OrderSide::{Buy, Sell};
    let stop = NewOrder { kind: OrderKind::Stop { stop_e8: 5 * TICK_E8 }, ..limit(0, Buy, 1, 2) };
    let orders = [stop, limit(1, Sell, 5, 1), limit(1, Sell, 7, 9), limit(2, Buy, 5, 1)];
    assert_eq!(trades(&orders), [(1, 3, 5, 1), (2, 0, 7, 2)]);
}

#[test]
fn fill_or_kill_trades_all_or_nothing() {
    use OrderSide::{Buy, Sell};
    let kill = |quantity| NewOrder { lifetime: Lifetime::FillOrKill, ..limit(2, Buy, 5, quantity) };
    assert_eq!(trades(&[limit(0, Sell, 5, 10), kill(11)]), []);
    assert_eq!(trades(&[limit(0, Sell, 5, 10), kill(10)]), [(0, 1, 5, 10)]);
}
