//! The synthetic NBBO against its rules, written down a second time: slowly, with maps of orders, from what the book says of the NBBO.
//!
//! Days are drawn: seven feeds of five venues, one of which has three feeds, with round and odd lots, directories, halts, closings,
//! gaps, contradictions and self-help. After every event the NBBO of each instrument is computed anew from all orders, levels and
//! quotes, and held against that of the stage.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use tapeworks_market::event::{Definition, Gap, Session, Status, StatusAction};
use tapeworks_market::nbbo::{BestSide, NbboRules, StaleBooks};
use tapeworks_market::round_lots::RoundLotPrices;
use tapeworks_market::{
    BookStage, Capacity, Event, EventKind, Flags, InstrumentId, Nanos, Nbbo, NbboStage, NbboUpdate, Price,
    Publisher, Side, Symbol,
};
use tapeworks_stage::{Stage, Through};

/// What a feed shows, the most detailed first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Shows {
    Orders,
    Levels,
    Quotes,
}

/// The feeds: number, venue, the venue's letter as a listing market, what it shows.
const FEEDS: [(Publisher, &str, u8, Shows); 7] = [
    (Publisher::IEXG_TOPS, "IEX", b'V', Shows::Quotes),
    (Publisher::XNAS_ITCH, "Nasdaq", b'Q', Shows::Orders),
    (Publisher::BATS_PITCH, "BZX", b'Z', Shows::Orders),
    (Publisher::IEXG_DEEP, "IEX", b'V', Shows::Levels),
    (Publisher::XBOS_ITCH, "BX", 0, Shows::Orders),
    (Publisher::XNYS_PILLAR, "NYSE", b'N', Shows::Orders),
    (Publisher::IEXG_DEEP_PLUS, "IEX", b'V', Shows::Orders),
];

const INSTRUMENTS: u32 = 3;

/// The prices that the user gives: under $250, above $1,000, none.
const PRICES: &str = "S0,99.99\nS1,1500\n";

/// Before the rule of November 2025, and after.
const TIMES: [u64; 2] = [1_761_919_200_000_000_000, 1_762_182_000_000_000_000];

#[derive(Clone, Debug)]
enum Step {
    /// Something of a feed's book: what depends on the feed.
    Book {
        what: u8,
        id: u64,
        new_id: u64,
        is_bid: bool,
        cents: u32,
        size: u32,
        ask: Option<u32>,
    },
    /// A gap, its end, a clear: of all instruments, or of one.
    Gap(bool),
    Recovered(bool),
    Clear(bool),
    /// The feed contradicts itself.
    Contradiction,
    Status(StatusAction, Option<bool>),
    Session(Session),
    Definition {
        lot: u32,
        listing: u8,
    },
    Mapping,
    /// Something that concerns no book.
    Trade,
    SelfHelp(bool),
}

/// A step of a feed about an instrument.
type Of = (usize, u32, Step);

fn book_step() -> impl Strategy<Value = Step> {
    let ids = (0..16u8, 0u64..12, 0u64..12, any::<bool>());
    (
        ids,
        1..8u32,
        prop_oneof![3 => 1..40u32, 3 => 1..300u32, 1 => Just(0)],
        prop::option::weighted(0.5, 0..8u32),
    )
        .prop_map(|((what, id, new_id, is_bid), cents, size, ask)| Step::Book {
            what,
            id,
            new_id,
            is_bid,
            cents,
            size,
            ask,
        })
}

fn other_step() -> impl Strategy<Value = Step> {
    let status = prop_oneof![
        1 => Just((StatusAction::Halt, Some(false))),
        1 => Just((StatusAction::Pause, Some(false))),
        1 => Just((StatusAction::Quoting, Some(false))),
        4 => Just((StatusAction::Trading, Some(true))),
        1 => Just((StatusAction::NotAvailableForTrading, Some(false))),
        3 => Just((StatusAction::None, Some(true))),
        1 => Just((StatusAction::ShortSaleRestrictionChange, None)),
    ];
    let session = prop_oneof![
        1 => Just(Session::StartOfMessages),
        4 => Just(Session::StartOfSystemHours),
        1 => Just(Session::StartOfMarketHours),
        1 => Just(Session::EndOfMarketHours),
        2 => Just(Session::EndOfSystemHours),
        1 => Just(Session::EndOfMessages),
    ];
    let lot = prop_oneof![Just(0u32), Just(1), Just(10), Just(40), Just(100), Just(200)];
    prop_oneof![
        2 => any::<bool>().prop_map(Step::Gap),
        3 => any::<bool>().prop_map(Step::Recovered),
        1 => any::<bool>().prop_map(Step::Clear),
        1 => Just(Step::Contradiction),
        4 => status.prop_map(|(action, is_trading)| Step::Status(action, is_trading)),
        2 => session.prop_map(Step::Session),
        3 => (lot, prop::sample::select(&b"QNZV "[..]))
            .prop_map(|(lot, listing)| Step::Definition { lot, listing }),
        1 => Just(Step::Trade),
        2 => any::<bool>().prop_map(Step::SelfHelp),
    ]
}

/// Steps in any order, mostly about books. Some days begin as days do: with the symbols and the directories.
fn days() -> impl Strategy<Value = Vec<Of>> {
    let step = prop_oneof![3 => book_step(), 1 => other_step()];
    let steps = prop::collection::vec((0..FEEDS.len(), 0..INSTRUMENTS, step), 1..200);
    let lots = prop::collection::vec(prop_oneof![Just(0u32), Just(10), Just(40), Just(100)], FEEDS.len());
    (any::<bool>(), prop::option::of(lots), steps).prop_map(|(has_symbols, lots, mut steps)| {
        let all = |step: &dyn Fn(usize) -> Step| -> Vec<Of> {
            let of_one = |one| (0..FEEDS.len()).map(move |feed| (feed, one, step(feed)));
            (0..INSTRUMENTS).flat_map(of_one).collect()
        };
        let mut day = Vec::new();
        day.extend(has_symbols.then(|| all(&|_| Step::Mapping)).into_iter().flatten());
        day.extend(
            lots.into_iter()
                .flat_map(|lots| all(&|feed| Step::Definition { lot: lots[feed], listing: b'Q' })),
        );
        day.append(&mut steps);
        day
    })
}

/// The events of a step: one, or a group that ends with its last.
fn events((feed, instrument, step): &Of) -> Vec<Event> {
    let (publisher, .., shows) = FEEDS[*feed];
    let one = InstrumentId(*instrument);
    let scope = |is_of_all: bool| if is_of_all { InstrumentId::ALL } else { one };
    let new = |kind| Event::new(kind, publisher, one);
    let gap = Gap { first: 1, count: 1 };
    vec![match step {
        Step::Book { .. } => return book_events(publisher, one, shows, step),
        Step::Gap(all) => Event::new(EventKind::Gap, publisher, scope(*all)).with_gap(gap),
        Step::Recovered(all) => Event::new(EventKind::Recovered, publisher, scope(*all)),
        Step::Clear(all) => Event::new(EventKind::Clear, publisher, scope(*all)),
        Step::Contradiction => new(EventKind::Gap).with_gap(gap).with_contradiction(),
        Step::Status(action, is_trading) => new(EventKind::Status).with_status(Status {
            action: *action,
            reason: 0,
            is_trading: *is_trading,
            is_quoting: None,
            is_short_sell_restricted: None,
        }),
        Step::Session(session) => {
            Event::new(EventKind::Session, publisher, InstrumentId::ALL).with_session(*session)
        }
        Step::Definition { lot, listing } => new(EventKind::Definition).with_definition(Definition {
            round_lot: *lot,
            reference_price: None,
            tick: None,
            class: b' ',
            listing: *listing,
            is_test: false,
            is_etp: false,
        }),
        Step::Mapping => {
            let symbol = Symbol::parse(&format!("S{instrument}")).unwrap();
            new(EventKind::SymbolMapping).with_symbol(symbol)
        }
        Step::Trade => Event { size: 100, price: Some(Price::from_e4(100)), ..new(EventKind::Trade) },
        Step::SelfHelp(is_declared) => Event::of_self_help(publisher, *is_declared),
    }]
}

fn book_events(publisher: Publisher, one: InstrumentId, shows: Shows, step: &Step) -> Vec<Event> {
    let Step::Book { what, id, new_id, is_bid, cents, size, ask } = *step else { return Vec::new() };
    let price = |cents: u32| Some(Price::from_e4(cents * 100));
    // An order's number says its instrument: the book that a message contradicts is always that of its own instrument.
    let number = |id: u64| u64::from(one.0) * 100 + id;
    let side = if is_bid { Side::Bid } else { Side::Ask };
    let event = |kind| {
        let mut event = Event::new(kind, publisher, one);
        (event.side, event.price, event.size) = (side, price(cents), size);
        event
    };
    match shows {
        Shows::Orders => {
            let kind = match what {
                0..=8 => EventKind::Add,
                9 | 10 => EventKind::Execute,
                11 => EventKind::Cancel,
                12 | 13 => EventKind::Delete,
                _ => EventKind::Replace,
            };
            let mut event = event(kind);
            event.order_id = number(id);
            match kind {
                EventKind::Replace => {
                    (event.side, event.aux) = (Side::None, number(new_id));
                    event.detail = if what == 15 { Event::KEEPS_PRIORITY } else { 0 };
                }
                EventKind::Add => {}
                _ => (event.side, event.price) = (Side::None, None),
            }
            vec![event]
        }
        Shows::Levels => {
            let mut group = vec![event(EventKind::Level)];
            if let Some(ask) = ask {
                group[0].set_flags(Flags(0));
                let mut second = event(EventKind::Level);
                (second.price, second.size) = (price(1 + ask), 100);
                group.push(second);
            }
            group
        }
        Shows::Quotes => {
            let mut group = vec![event(EventKind::Quote)];
            if let Some(ask) = ask {
                group[0].set_flags(Flags(0));
                let mut second = event(EventKind::Quote);
                second.side = side.opposite();
                (second.price, second.size) = (price(ask).filter(|_| ask > 0), 200);
                group.push(second);
            }
            group
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Order {
    instrument: u32,
    side: Side,
    cents: i64,
    size: u32,
}

/// All that is known of a feed.
#[derive(Default, Debug)]
struct Feed {
    orders: BTreeMap<u64, Order>,
    levels: BTreeMap<(u32, u8, i64), u32>,
    quotes: BTreeMap<(u32, u8), (i64, u32)>,
    /// Instruments whose books lack messages, and those that a message did not fit.
    gapped: BTreeSet<u32>,
    contradicted: BTreeSet<u32>,
    /// Sides quoted since the last gap or contradiction.
    quoted: BTreeSet<(u32, u8)>,
    /// Instruments whose books a message changed, or was the first to contradict, since they were last cleared.
    heard: BTreeSet<u32>,
    halted: BTreeSet<u32>,
    halted_by_venue: BTreeSet<u32>,
    is_closed: bool,
    lots: BTreeMap<u32, u32>,
}

impl Feed {
    fn clear(&mut self, instruments: &[u32]) {
        self.orders.retain(|_, order| !instruments.contains(&order.instrument));
        self.levels.retain(|(one, ..), _| !instruments.contains(one));
        self.quotes.retain(|(one, _), _| !instruments.contains(one));
        for one in instruments {
            self.gapped.remove(one);
            self.contradicted.remove(one);
            self.heard.remove(one);
        }
    }

    fn contradict(&mut self, one: u32) {
        self.contradicted.insert(one);
        self.quoted.retain(|(quoted, _)| *quoted != one);
    }

    /// Takes a message about the book. `false`: it does not fit.
    fn book(&mut self, event: &Event) -> bool {
        let (one, side, size) = (event.instrument.0, event.side as u8, event.size);
        let cents = event.price.map_or(0, Price::e9);
        match event.kind {
            EventKind::Add => {
                if size == 0 || self.orders.contains_key(&event.order_id) {
                    return false;
                }
                let order = Order { instrument: one, side: event.side, cents, size };
                self.orders.insert(event.order_id, order);
                true
            }
            EventKind::Execute | EventKind::Cancel => {
                let Some(order) = self.orders.remove(&event.order_id) else { return false };
                if size < order.size {
                    self.orders.insert(event.order_id, Order { size: order.size - size, ..order });
                }
                size <= order.size
            }
            EventKind::Delete => self.orders.remove(&event.order_id).is_some(),
            EventKind::Replace => {
                let Some(old) = self.orders.remove(&event.order_id) else { return false };
                if size == 0 || self.orders.contains_key(&event.aux) {
                    return false;
                }
                self.orders.insert(event.aux, Order { cents, size, ..old });
                true
            }
            EventKind::Level if size == 0 => self.levels.remove(&(one, side, cents)).is_some(),
            EventKind::Level => {
                self.levels.insert((one, side, cents), size);
                true
            }
            _ => {
                self.quotes.remove(&(one, side));
                if size > 0 && event.price.is_some() {
                    self.quotes.insert((one, side), (cents, size));
                }
                self.quoted.insert((one, side));
                if [Side::Bid, Side::Ask].iter().all(|side| self.quoted.contains(&(one, *side as u8))) {
                    self.quoted.retain(|(quoted, _)| *quoted != one);
                    self.gapped.remove(&one);
                    self.contradicted.remove(&one);
                }
                true
            }
        }
    }

    /// Shares at each price of a side.
    fn shares(&self, one: u32, side: Side) -> BTreeMap<i64, u32> {
        let mut shares = BTreeMap::new();
        for order in self.orders.values().filter(|order| (order.instrument, order.side) == (one, side)) {
            *shares.entry(order.cents).or_default() += order.size;
        }
        let levels = self.levels.iter().filter(|((of, at, _), _)| (*of, *at) == (one, side as u8));
        shares.extend(levels.map(|((.., cents), size)| (*cents, *size)));
        shares.extend(self.quotes.get(&(one, side as u8)).copied());
        shares
    }

    fn is_stale(&self, one: u32) -> bool {
        self.gapped.contains(&one) || self.contradicted.contains(&one)
    }

    /// The price down to which there is a lot, and the shares there in whole lots.
    fn best(&self, one: u32, side: Side, lot: u32) -> Option<(i64, u32)> {
        let mut prices: Vec<_> = self.shares(one, side).into_iter().collect();
        if side == Side::Bid {
            prices.reverse();
        }
        let mut sum = 0;
        prices.into_iter().find_map(|(cents, size)| {
            sum += size;
            (sum >= lot).then_some((cents, sum / lot * lot))
        })
    }
}

/// All that is known of the market.
#[derive(Default)]
struct Model {
    rules: NbboRules,
    feeds: BTreeMap<Publisher, Feed>,
    self_help: BTreeSet<&'static str>,
    /// What directories stated, in the order in which it came.
    stated: Vec<(u32, Publisher, u32, u8)>,
    /// The instruments whose symbols are known.
    named: BTreeSet<u32>,
    /// The time of all events.
    time: u64,
}

fn row(publisher: Publisher) -> (Publisher, &'static str, u8, Shows) {
    FEEDS[FEEDS.iter().position(|feed| feed.0 == publisher).unwrap()]
}

impl Model {
    fn take(&mut self, event: &Event) {
        let feed = self.feeds.entry(event.publisher).or_default();
        let one = event.instrument.0;
        let all: Vec<u32> = (0..INSTRUMENTS).collect();
        let of = if event.instrument == InstrumentId::ALL { all.clone() } else { vec![one] };
        match event.kind {
            EventKind::Gap if event.is_contradiction() => feed.contradict(one),
            EventKind::Gap => {
                feed.gapped.extend(&of);
                feed.quoted.retain(|(quoted, _)| !of.contains(quoted));
            }
            EventKind::Recovered => feed.gapped.retain(|gapped| !of.contains(gapped)),
            EventKind::Clear => feed.clear(&of),
            EventKind::Status => {
                let status = event.status().unwrap();
                match (status.action, status.is_trading) {
                    (StatusAction::Trading, _) => feed.halted.retain(|halted| *halted != one),
                    (StatusAction::NotAvailableForTrading, _) => feed.halted_by_venue.extend([one]),
                    (StatusAction::None, Some(true)) => feed.halted_by_venue.retain(|halted| *halted != one),
                    (StatusAction::ShortSaleRestrictionChange, _) => {}
                    _ => feed.halted.extend([one]),
                }
            }
            EventKind::Session => match event.session().unwrap() {
                Session::StartOfMessages => {
                    feed.clear(&all);
                    feed.halted.clear();
                    feed.halted_by_venue.clear();
                    feed.is_closed = false;
                }
                Session::StartOfSystemHours | Session::StartOfMarketHours => feed.is_closed = false,
                Session::EndOfSystemHours | Session::EndOfMessages => feed.is_closed = true,
                Session::SelfHelpDeclared => {
                    self.self_help.insert(row(event.publisher).1);
                }
                Session::SelfHelpRevoked => {
                    self.self_help.remove(row(event.publisher).1);
                }
                _ => {}
            },
            EventKind::Definition => {
                let stated = event.definition().unwrap();
                feed.lots.insert(one, stated.round_lot);
                self.stated.push((one, event.publisher, stated.round_lot, stated.listing));
            }
            EventKind::SymbolMapping => {
                self.named.insert(one);
            }
            EventKind::Trade => {}
            _ => {
                let was_contradicted = feed.contradicted.contains(&one);
                let fits = feed.book(event);
                if fits || !was_contradicted {
                    feed.heard.insert(one);
                }
                if !fits {
                    feed.contradict(one);
                }
            }
        }
    }

    /// The lot of a venue that states none. The venues stand in the order `table`.
    fn taken_lot(&self, one: u32, table: &[Publisher]) -> u32 {
        let place = |publisher: Publisher| table.iter().position(|known| *known == publisher).unwrap();
        let others =
            || self.stated.iter().filter(move |(of, _, lot, _)| *of == one && (1..=100).contains(lot)).rev();
        // The last word of the listing market, or of the venue that stands first.
        let listing = others().find(|(_, publisher, _, letter)| row(*publisher).2 == *letter);
        if let Some((_, _, lot, _)) = listing.or_else(|| others().min_by_key(|stated| place(stated.1))) {
            return *lot;
        }
        if one == 1 && self.named.contains(&1) && self.time == TIMES[1] { 10 } else { 100 }
    }

    /// The NBBO of an instrument. Ties go to the feed that stands first in `table`.
    fn nbbo(&self, one: u32, table: &[Publisher]) -> Nbbo {
        let venues: BTreeSet<&str> = table.iter().map(|publisher| row(*publisher).1).collect();
        let mut counting = BTreeMap::new();
        for venue in venues {
            if self.self_help.contains(venue) {
                continue;
            }
            let of_venue = table.iter().enumerate().filter(|(_, publisher)| row(**publisher).1 == venue);
            let heard = of_venue.filter_map(|(place, publisher)| {
                let feed = self.feeds.get(publisher).filter(|feed| feed.heard.contains(&one))?;
                Some((feed.is_stale(one), row(*publisher).3, place, feed))
            });
            let Some((is_stale, _, place, feed)) =
                heard.min_by_key(|(stale, shows, place, _)| (*stale, *shows, *place))
            else {
                continue;
            };
            let is_halted = feed.halted.contains(&one) || feed.halted_by_venue.contains(&one);
            if feed.is_closed || is_halted || is_stale && self.rules.stale_books == StaleBooks::Exclude {
                continue;
            }
            let stated = feed.lots.get(&one).copied().filter(|lot| *lot > 0);
            let lot = if self.rules.odd_lots_count {
                1
            } else {
                stated.unwrap_or_else(|| self.taken_lot(one, table))
            };
            counting.insert(place, (feed, is_stale, lot));
        }
        let mut nbbo = Nbbo::default();
        for side in [Side::Bid, Side::Ask] {
            let bests: Vec<_> = counting
                .iter()
                .filter_map(|(place, (feed, is_stale, lot))| {
                    Some((*place, *is_stale, feed.best(one, side, *lot)?))
                })
                .collect();
            let prices = bests.iter().map(|(.., (cents, _))| *cents);
            let Some(price) = (if side == Side::Bid { prices.max() } else { prices.min() }) else { continue };
            let at: Vec<_> = bests.iter().filter(|(.., (cents, _))| *cents == price).collect();
            let most = at.iter().map(|(.., (_, size))| *size).max().unwrap();
            let first = at.iter().find(|(.., (_, size))| *size == most).unwrap();
            let best = BestSide {
                price: Price::from_e9(price),
                size: at.iter().map(|(.., (_, size))| *size).sum(),
                venue_size: most,
                publisher: table[first.0],
                venues: at.iter().map(|(place, ..)| 1 << place).sum(),
            };
            if at.iter().any(|(_, is_stale, _)| *is_stale) {
                nbbo.flags = Flags::MAYBE_BAD_BOOK;
            }
            if side == Side::Bid { nbbo.bid = best } else { nbbo.ask = best }
        }
        nbbo
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(384))]

    #[test]
    fn the_nbbo_follows_from_its_rules_after_every_event(
        days in days(),
        is_named in any::<bool>(),
        excludes in any::<bool>(),
        odd_lots_count in prop::bool::weighted(0.2),
        saves_every in 5usize..60,
        time in prop::sample::select(&TIMES[..]),
    ) {
        let rules = NbboRules {
            stale_books: if excludes { StaleBooks::Exclude } else { StaleBooks::Flag },
            odd_lots_count,
            round_lot_prices: RoundLotPrices::parse(PRICES).unwrap(),
        };
        // The feeds are named, or join as they are heard; tables start too small.
        let named = if is_named { FEEDS.map(|feed| feed.0).to_vec() } else { Vec::new() };
        let capacity = Capacity { instruments: 1, orders: 8, levels: 4 };
        let nbbo = NbboStage::new(rules.clone(), named, 1);
        let mut market = Through::new(BookStage::with_unnamed([], capacity), nbbo);
        let mut model = Model { rules: rules.clone(), time, ..Model::default() };
        let mut before = [Nbbo::default(); INSTRUMENTS as usize];
        for (number, step) in days.iter().enumerate() {
            let mut changed = Vec::new();
            for mut event in events(step) {
                event.ts_recv = Nanos(time);
                model.take(&event);
                market.process(&[event], &mut |update: NbboUpdate<'_>| {
                    let one = update.book.event.instrument;
                    if update.changed {
                        changed.push((one.0, *update.nbbo));
                    }
                });
            }
            for one in 0..INSTRUMENTS {
                let expected = model.nbbo(one, market.second.venues());
                let is = *market.second.nbbo(InstrumentId(one));
                prop_assert_eq!(is, expected, "instrument {} after step {}: {:?}", one, number, step);
                // An update says so, once.
                let updates: Vec<_> = changed.iter().filter(|(of, _)| *of == one).map(|(_, nbbo)| *nbbo).collect();
                let of_change: &[Nbbo] = if is == before[one as usize] { &[] } else { &[is] };
                prop_assert_eq!(&updates[..], of_change, "instrument {} after {:?}", one, step);
                before[one as usize] = is;
            }
            // A checkpoint in between changes nothing.
            if number % saves_every == 0 {
                let books = BookStage::from_image(&market.first.image(), |_| capacity).unwrap();
                let nbbo = NbboStage::from_image(rules.clone(), market.second.image()).unwrap();
                market = Through::new(books, nbbo);
            }
        }
        prop_assert_eq!(market.second.ignored(), 0);
    }
}
