//! The oracle: books as plain maps, which complain about everything that a venue would not do.

#![allow(dead_code, reason = "each test uses some of it")]

use std::collections::{BTreeMap, HashMap, HashSet};

use tapeworks_wire::iex::{deep_plus10, deep10, tops16};
use tapeworks_wire::memx;
use tapeworks_wire::nasdaq::itch50::{self, BuySellIndicator, Message, TradingState};

#[derive(Debug, Clone, Copy)]
struct Order {
    locate: u16,
    buy: bool,
    price: u32,
    shares: u32,
    age: u64,
}

/// By symbol and side: reference, price and shares of every order in line.
pub(crate) type Queues = BTreeMap<(u16, bool), Vec<(u64, u32, u32)>>;

/// A venue that speaks ITCH.
#[derive(Debug, Default)]
pub(crate) struct ItchVenue {
    orders: HashMap<u64, Order>,
    /// By symbol and side: price, age, reference.
    queues: HashMap<(u16, bool), BTreeMap<(u32, u64), u64>>,
    stocks: HashMap<u16, [u8; 8]>,
    locates: HashMap<[u8; 8], u16>,
    halted: HashSet<u16>,
    last_reference: u64,
    last_time: u64,
    last_match: u64,
    age: u64,
    pub(crate) seen: BTreeMap<&'static str, u64>,
    pub(crate) executions_not_first_in_line: u64,
    /// What it sees begins with a snapshot: orders by priority, in halted symbols too.
    joins_late: bool,
}

impl ItchVenue {
    /// One that sees a snapshot first.
    pub(crate) fn joining_late() -> Self {
        Self { joins_late: true, ..Self::default() }
    }

    /// Every order in line, by symbol and side; and which symbols are halted.
    pub(crate) fn books(&self) -> (Queues, Vec<u16>) {
        let queues = self.queues.iter().filter(|(_, queue)| !queue.is_empty());
        let order = |reference: &u64| {
            let order = self.orders[reference];
            (*reference, order.price, order.shares)
        };
        let mut halted: Vec<u16> = self.halted.iter().copied().collect();
        halted.sort_unstable();
        (queues.map(|(key, queue)| (*key, queue.values().map(order).collect())).collect(), halted)
    }

    pub(crate) fn apply(&mut self, bytes: &[u8]) {
        let message = Message::decode(bytes).expect("every message decodes");
        *self.seen.entry(message.name()).or_default() += 1;
        match message {
            Message::StockDirectory(m) => {
                let before = self.stocks.insert(m.stock_locate(), m.stock().0);
                assert_eq!(before, None, "one directory message per symbol");
                assert_eq!(self.locates.insert(m.stock().0, m.stock_locate()), None);
                self.at(m.timestamp().nanoseconds());
            }
            Message::StockTradingAction(m) => {
                self.about(m.stock_locate(), m.stock().0);
                self.halt(m.stock_locate(), m.trading_state() != TradingState::Trading);
                self.at(m.timestamp().nanoseconds());
            }
            Message::OperationalHalt(m) => {
                self.about(m.stock_locate(), m.stock().0);
                self.halt(
                    m.stock_locate(),
                    m.operational_halt_action() == itch50::OperationalHaltAction::Halted,
                );
            }
            Message::AddOrder(m) => {
                self.about(m.stock_locate(), m.stock().0);
                let buy = m.buy_sell_indicator() == BuySellIndicator::Buy;
                self.at(m.timestamp().nanoseconds());
                self.add(m.order_reference_number(), m.stock_locate(), buy, m.price().0, m.shares());
            }
            Message::AddOrderWithMpid(m) => {
                self.about(m.stock_locate(), m.stock().0);
                let buy = m.buy_sell_indicator() == BuySellIndicator::Buy;
                self.at(m.timestamp().nanoseconds());
                self.add(m.order_reference_number(), m.stock_locate(), buy, m.price().0, m.shares());
            }
            Message::OrderExecuted(m) => {
                self.at(m.timestamp().nanoseconds());
                self.matched(m.match_number());
                self.first_in_line(m.order_reference_number());
                self.not_halted(m.stock_locate());
                self.reduce(m.order_reference_number(), m.stock_locate(), m.executed_shares(), true);
            }
            Message::OrderExecutedWithPrice(m) => {
                self.at(m.timestamp().nanoseconds());
                self.matched(m.match_number());
                self.first_in_line(m.order_reference_number());
                self.reduce(m.order_reference_number(), m.stock_locate(), m.executed_shares(), true);
            }
            Message::OrderCancel(m) => {
                self.at(m.timestamp().nanoseconds());
                self.reduce(m.order_reference_number(), m.stock_locate(), m.cancelled_shares(), false);
            }
            Message::OrderDelete(m) => {
                self.at(m.timestamp().nanoseconds());
                self.remove(m.order_reference_number(), m.stock_locate());
            }
            Message::OrderReplace(m) => {
                self.at(m.timestamp().nanoseconds());
                let old = self.remove(m.original_order_reference_number(), m.stock_locate());
                self.add(m.new_order_reference_number(), old.locate, old.buy, m.price().0, m.shares());
            }
            Message::Trade(m) => {
                self.at(m.timestamp().nanoseconds());
                self.about(m.stock_locate(), m.stock().0);
                self.matched(m.match_number());
                self.not_halted(m.stock_locate());
            }
            Message::CrossTrade(m) => self.about(m.stock_locate(), m.stock().0),
            Message::BrokenTrade(m) => assert!(m.match_number() > 0 && m.match_number() <= self.last_match),
            Message::NetOrderImbalanceIndicator(m) => self.about(m.stock_locate(), m.stock().0),
            Message::SystemEvent(m) => self.at(m.timestamp().nanoseconds()),
            _ => {}
        }
    }

    /// Best bid and offer of a stock.
    pub(crate) fn best(&self, stock: [u8; 8]) -> [Option<u32>; 2] {
        let Some(locate) = self.locates.get(&stock) else { return [None; 2] };
        [true, false].map(|buy| {
            let reference = self.queues.get(&(*locate, buy))?.values().next()?;
            Some(self.orders[reference].price)
        })
    }

    /// The stock that a message is about, by its locate.
    pub(crate) fn stock_of(&self, bytes: &[u8]) -> Option<[u8; 8]> {
        self.stocks.get(&u16::from_be_bytes([bytes[1], bytes[2]])).copied()
    }

    pub(crate) fn live_orders(&self) -> usize {
        self.orders.len()
    }

    fn at(&mut self, time: u64) {
        assert!(time >= self.last_time, "time goes back from {} to {time}", self.last_time);
        self.last_time = time;
    }

    fn about(&self, locate: u16, stock: [u8; 8]) {
        assert_eq!(
            self.stocks.get(&locate),
            Some(&stock),
            "the directory named this locate and stock before"
        );
    }

    fn halt(&mut self, locate: u16, halted: bool) {
        if halted {
            self.halted.insert(locate);
        } else {
            self.halted.remove(&locate);
        }
    }

    fn not_halted(&self, locate: u16) {
        assert!(!self.halted.contains(&locate), "locate {locate} trades although it is halted");
    }

    fn matched(&mut self, number: u64) {
        assert!(number > self.last_match, "match numbers increase");
        self.last_match = number;
    }

    fn key(order: &Order) -> (u32, u64) {
        // The first in line has the lowest key on both sides.
        (if order.buy { u32::MAX - order.price } else { order.price }, order.age)
    }

    fn add(&mut self, reference: u64, locate: u16, buy: bool, price: u32, shares: u32) {
        assert!(price > 0 && shares > 0);
        if !self.joins_late {
            assert!(reference > self.last_reference, "references increase");
            self.not_halted(locate);
        }
        self.last_reference = reference;
        self.age += 1;
        let order = Order { locate, buy, price, shares, age: self.age };
        assert!(self.orders.insert(reference, order).is_none());
        self.queues.entry((locate, buy)).or_default().insert(Self::key(&order), reference);
        let best = |buy| {
            let queue: Option<&BTreeMap<(u32, u64), u64>> = self.queues.get(&(locate, buy));
            queue.and_then(|queue| queue.values().next()).map(|reference| self.orders[reference].price)
        };
        if let (Some(bid), Some(ask)) = (best(true), best(false)) {
            assert!(bid < ask, "locate {locate} is crossed: {bid} against {ask}");
        }
    }

    fn first_in_line(&mut self, reference: u64) {
        let order = self.orders[&reference];
        let first = self.queues[&(order.locate, order.buy)].values().next();
        self.executions_not_first_in_line += u64::from(first != Some(&reference));
    }

    fn reduce(&mut self, reference: u64, locate: u16, shares: u32, may_end_it: bool) {
        let order = self.orders.get_mut(&reference).expect("the order is known");
        assert_eq!(order.locate, locate);
        assert!(shares > 0 && shares <= order.shares, "{shares} of {} shares", order.shares);
        order.shares -= shares;
        assert!(may_end_it || order.shares > 0, "a cancel leaves shares");
        if order.shares == 0 {
            self.remove(reference, locate);
        }
    }

    fn remove(&mut self, reference: u64, locate: u16) -> Order {
        let order = self.orders.remove(&reference).expect("the order is known");
        assert_eq!(order.locate, locate);
        let queue = self.queues.get_mut(&(locate, order.buy)).expect("its queue exists");
        assert_eq!(queue.remove(&Self::key(&order)), Some(reference));
        order
    }
}

/// IEX by DEEP.
#[derive(Debug, Default)]
pub(crate) struct DeepVenue {
    levels: HashMap<([u8; 8], bool), BTreeMap<i64, u32>>,
    symbols: HashSet<[u8; 8]>,
    in_event: Option<[u8; 8]>,
    pub(crate) events_of_several_levels: u64,
    pub(crate) seen: BTreeMap<&'static str, u64>,
}

impl DeepVenue {
    /// Every level, by symbol and side.
    pub(crate) fn books(&self) -> BTreeMap<([u8; 8], bool), BTreeMap<i64, u32>> {
        let books = self.levels.iter().filter(|(_, levels)| !levels.is_empty());
        books.map(|(key, levels)| (*key, levels.clone())).collect()
    }

    pub(crate) fn apply(&mut self, bytes: &[u8]) {
        let message = deep10::Message::decode(bytes).expect("every message decodes");
        *self.seen.entry(message.name()).or_default() += 1;
        match message {
            deep10::Message::SecurityDirectory(m) => assert!(self.symbols.insert(m.symbol().0)),
            deep10::Message::PriceLevelBuyUpdate(m) => {
                self.level(
                    m.symbol().0,
                    true,
                    m.price().0,
                    m.size(),
                    m.event_flags().event_processing_complete(),
                );
            }
            deep10::Message::PriceLevelSellUpdate(m) => {
                self.level(
                    m.symbol().0,
                    false,
                    m.price().0,
                    m.size(),
                    m.event_flags().event_processing_complete(),
                );
            }
            _ => assert_eq!(self.in_event, None, "an event's updates come together"),
        }
    }

    fn level(&mut self, symbol: [u8; 8], buy: bool, price: i64, size: u32, complete: bool) {
        assert!(self.symbols.contains(&symbol));
        assert!(self.in_event.is_none_or(|open| open == symbol));
        let levels = self.levels.entry((symbol, buy)).or_default();
        if size == 0 {
            assert!(levels.remove(&price).is_some(), "a level that is removed was there");
        } else {
            assert_ne!(levels.insert(price, size), Some(size), "an update changes the level");
        }
        self.events_of_several_levels += u64::from(!complete && self.in_event.is_none());
        self.in_event = (!complete).then_some(symbol);
        if complete {
            let bid = self.levels.get(&(symbol, true)).and_then(|levels| levels.keys().next_back());
            let ask = self.levels.get(&(symbol, false)).and_then(|levels| levels.keys().next());
            if let (Some(bid), Some(ask)) = (bid, ask) {
                assert!(bid < ask, "crossed: {bid} against {ask}");
            }
        }
    }
}

/// IEX by TOPS.
#[derive(Debug, Default)]
pub(crate) struct TopsVenue {
    symbols: HashSet<[u8; 8]>,
    pub(crate) seen: BTreeMap<&'static str, u64>,
}

impl TopsVenue {
    pub(crate) fn apply(&mut self, bytes: &[u8]) {
        let message = tops16::Message::decode(bytes).expect("every message decodes");
        *self.seen.entry(message.name()).or_default() += 1;
        match message {
            tops16::Message::SecurityDirectory(m) => assert!(self.symbols.insert(m.symbol().0)),
            tops16::Message::QuoteUpdate(m) => {
                assert!(self.symbols.contains(&m.symbol().0));
                assert_eq!(m.bid_size() == 0, m.bid_price().0 == 0);
                assert_eq!(m.ask_size() == 0, m.ask_price().0 == 0);
                assert!(m.ask_price().0 == 0 || m.bid_price().0 < m.ask_price().0);
            }
            _ => {}
        }
    }
}

/// MEMX: orders by price and time, published without replacements.
#[derive(Debug, Default)]
pub(crate) struct MemxVenue {
    /// Security, buy, price, age, shares.
    orders: HashMap<u64, (u16, bool, i64, u64, u32)>,
    symbols: HashMap<u16, [u8; 6]>,
    last_trade: u64,
    pub(crate) seen: BTreeMap<&'static str, u64>,
}

impl MemxVenue {
    /// The best order of a side: the price furthest up the book, of those the oldest.
    fn first_in_line(&self, security: u16, buy: bool) -> Option<(i64, u64)> {
        let of_side = self.orders.values().filter(|order| (order.0, order.1) == (security, buy));
        of_side.map(|order| (if buy { -order.2 } else { order.2 }, order.3)).min()
    }

    fn trade(&mut self, number: u64) {
        assert_eq!(number, self.last_trade + 1, "trades are numbered one after the other");
        self.last_trade = number;
    }

    fn reduce(&mut self, order_id: u64, security: u16, shares: u32) {
        let order = self.orders.get_mut(&order_id).expect("an order that rests");
        assert_eq!(order.0, security);
        order.4 = order.4.checked_sub(shares).expect("no more than is left");
        assert!(shares > 0);
        if order.4 == 0 {
            self.orders.remove(&order_id);
        }
    }

    pub(crate) fn live_orders(&self) -> usize {
        self.orders.len()
    }

    pub(crate) fn apply(&mut self, bytes: &[u8]) {
        use memx::depth13::{Message, Side};
        let message = Message::decode(bytes).expect("every message decodes");
        assert_eq!(usize::from(u16::from_be_bytes([bytes[0], bytes[1]])) + 6, bytes.len());
        *self.seen.entry(message.name()).or_default() += 1;
        match message {
            Message::InstrumentDirectory(m) => {
                let before = self.symbols.insert(m.security_id(), m.symbol().0);
                assert_eq!(before, None, "one directory message per symbol");
            }
            Message::OrderAdded(m) => {
                let (security, buy) = (m.security_id(), m.side() == Side::Buy);
                assert!(self.symbols.contains_key(&security) && m.quantity() > 0 && m.price().0 > 0);
                let other = self.first_in_line(security, !buy).map(|(price, _)| price.abs());
                assert!(
                    other.is_none_or(|other| if buy { m.price().0 < other } else { m.price().0 > other }),
                    "a venue's own book is never crossed"
                );
                let order = (security, buy, m.price().0, m.order_id(), m.quantity());
                assert_eq!(self.orders.insert(m.order_id(), order), None);
            }
            Message::OrderDeleted(m) => {
                let order = self.orders.remove(&m.order_id()).expect("an order that rests");
                assert_eq!(order.0, m.security_id());
            }
            Message::OrderReduced(m) => self.reduce(m.order_id(), m.security_id(), m.quantity()),
            Message::OrderExecuted(m) => {
                self.trade(m.trade_id());
                let (security, buy, price, age, _) = self.orders[&m.order_id()];
                let place = (if buy { -price } else { price }, age);
                assert_eq!(self.first_in_line(security, buy), Some(place));
                self.reduce(m.order_id(), m.security_id(), m.quantity());
            }
            Message::Trade(m) => self.trade(m.trade_id()),
            Message::BrokenTrade(m) => assert!(m.trade_id() > 0 && m.trade_id() <= self.last_trade),
            Message::ClearBook(m) => {
                assert!(self.orders.values().all(|order| order.0 != m.security_id()));
            }
            _ => {}
        }
    }
}

/// IEX by DEEP+: orders by price and time, which keep their numbers when they change.
#[derive(Debug, Default)]
pub(crate) struct DeepPlusVenue {
    /// Symbol, buy, price, place in time, shares.
    orders: HashMap<u64, ([u8; 8], bool, i64, u64, u32)>,
    symbols: HashSet<[u8; 8]>,
    last_trade: u64,
    last_place: u64,
    pub(crate) kept_priority: u64,
    pub(crate) seen: BTreeMap<&'static str, u64>,
}

impl DeepPlusVenue {
    pub(crate) fn live_orders(&self) -> usize {
        self.orders.len()
    }

    fn first_in_line(&self, symbol: [u8; 8], buy: bool) -> Option<(i64, u64)> {
        let of_side = self.orders.values().filter(|order| (order.0, order.1) == (symbol, buy));
        of_side.map(|order| (if buy { -order.2 } else { order.2 }, order.3)).min()
    }

    fn next_place(&mut self) -> u64 {
        self.last_place += 1;
        self.last_place
    }

    fn check_not_crossed(&self, symbol: [u8; 8]) {
        let [bid, ask] = [true, false].map(|buy| self.first_in_line(symbol, buy));
        if let (Some((bid, _)), Some((ask, _))) = (bid, ask) {
            assert!(-bid < ask, "a venue's own book is never crossed");
        }
    }

    pub(crate) fn apply(&mut self, bytes: &[u8]) {
        use deep_plus10::{Message, Side};
        let message = Message::decode(bytes).expect("every message decodes");
        assert_eq!(message.as_bytes().len(), bytes.len());
        *self.seen.entry(message.name()).or_default() += 1;
        match message {
            Message::SecurityDirectory(m) => assert!(self.symbols.insert(m.symbol().0)),
            Message::AddOrder(m) => {
                let (symbol, buy, place) = (m.symbol().0, m.side() == Side::Buy, self.next_place());
                assert!(self.symbols.contains(&symbol) && m.size() > 0 && m.price().0 > 0);
                let order = (symbol, buy, m.price().0, place, m.size());
                assert_eq!(self.orders.insert(m.order_id(), order), None);
                self.check_not_crossed(symbol);
            }
            Message::OrderModify(m) => {
                let place = self.next_place();
                let keeps = m.modify_flags().maintain_priority();
                self.kept_priority += u64::from(keeps);
                let order = self.orders.get_mut(&m.order_id_reference()).expect("an order that rests");
                assert!(order.0 == m.symbol().0 && m.size() > 0);
                assert!(
                    !keeps || (order.2 == m.price().0 && m.size() < order.4),
                    "only a smaller order keeps its place"
                );
                (order.2, order.4) = (m.price().0, m.size());
                if !keeps {
                    order.3 = place;
                }
                self.check_not_crossed(m.symbol().0);
            }
            Message::OrderDelete(m) => {
                let order = self.orders.remove(&m.order_id_reference()).expect("an order that rests");
                assert_eq!(order.0, m.symbol().0);
            }
            Message::OrderExecuted(m) => {
                self.trade(m.trade_id());
                let (symbol, buy, price, place, left) = self.orders[&m.order_id_reference()];
                let own = (if buy { -price } else { price }, place);
                assert_eq!(self.first_in_line(symbol, buy), Some(own));
                let left = left.checked_sub(m.size()).expect("no more than is left");
                self.orders.insert(m.order_id_reference(), (symbol, buy, price, place, left));
                if left == 0 {
                    self.orders.remove(&m.order_id_reference());
                }
            }
            Message::Trade(m) => self.trade(m.trade_id()),
            Message::TradeBreak(m) => assert!(m.trade_id() > 0 && m.trade_id() <= self.last_trade),
            _ => {}
        }
    }

    fn trade(&mut self, number: u64) {
        assert_eq!(number, self.last_trade + 1, "trades are numbered one after the other");
        self.last_trade = number;
    }
}
