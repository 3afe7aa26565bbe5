//! The rules of the synthetic NBBO, written down a second time: slowly, with maps of orders, from what the book says of the NBBO.
//! The NBBO of an instrument is computed anew from all orders, levels and quotes.

use std::collections::{BTreeMap, BTreeSet};

use tapeworks_market::event::{Session, StatusAction};
use tapeworks_market::nbbo::{BestSide, NbboRules, StaleBooks};
use tapeworks_market::{Event, EventKind, Flags, InstrumentId, Nbbo, Price, Publisher, Side, Symbol};

/// What a feed shows, the most detailed first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Shows {
    Orders,
    Levels,
    Quotes,
}

/// The feeds: number, venue, the venue's letter as a listing market, what it shows.
pub(crate) const FEEDS: [(Publisher, &str, u8, Shows); 7] = [
    (Publisher::IEXG_TOPS, "IEX", b'V', Shows::Quotes),
    (Publisher::XNAS_ITCH, "Nasdaq", b'Q', Shows::Orders),
    (Publisher::BATS_PITCH, "BZX", b'Z', Shows::Orders),
    (Publisher::IEXG_DEEP, "IEX", b'V', Shows::Levels),
    (Publisher::XBOS_ITCH, "BX", 0, Shows::Orders),
    (Publisher::XNYS_PILLAR, "NYSE", b'N', Shows::Orders),
    (Publisher::IEXG_DEEP_PLUS, "IEX", b'V', Shows::Orders),
];

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
        let price = event.price.map(Price::e9);
        let cents = price.unwrap_or_default();
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
                let cents = price.unwrap_or(old.cents);
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
pub(crate) struct Model {
    rules: NbboRules,
    /// Instruments have numbers below it.
    instruments: u32,
    /// The lots that the rule gives for the user's prices on the day.
    lots_by_price: BTreeMap<Symbol, u32>,
    feeds: BTreeMap<Publisher, Feed>,
    self_help: BTreeSet<&'static str>,
    /// What directories stated, in the order in which it came.
    stated: Vec<(u32, Publisher, u32, u8)>,
    /// Those of the instruments whose symbols are known.
    by_price: BTreeMap<u32, u32>,
    /// The SIP's highest bid and lowest offer that may count, by instrument.
    bands: BTreeMap<u32, (Publisher, Option<i64>, Option<i64>)>,
}

fn row(publisher: Publisher) -> (Publisher, &'static str, u8, Shows) {
    FEEDS[FEEDS.iter().position(|feed| feed.0 == publisher).unwrap()]
}

impl Model {
    /// A market of so many instruments. The lots are those that the rule gives for the user's prices on the day.
    pub(crate) fn new(rules: NbboRules, instruments: u32, lots_by_price: BTreeMap<Symbol, u32>) -> Self {
        Self { rules, instruments, lots_by_price, ..Self::default() }
    }

    /// Takes an event as it comes to the books.
    pub(crate) fn take(&mut self, event: &Event) {
        if event.publisher.is_of_sip() {
            return self.take_of_sip(event);
        }
        let feed = self.feeds.entry(event.publisher).or_default();
        // A message may name an order alone.
        let names_order = event.kind.is_of_order() && event.kind != EventKind::Add;
        let named = feed.orders.get(&event.order_id).filter(|_| names_order);
        let one = named.map_or(event.instrument.0, |order| order.instrument);
        let all: Vec<u32> = (0..self.instruments).collect();
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
                    (StatusAction::NotAvailableForTrading, _) | (StatusAction::None, Some(false)) => {
                        feed.halted_by_venue.extend([one]);
                    }
                    (StatusAction::None, Some(true)) => feed.halted_by_venue.retain(|halted| *halted != one),
                    (StatusAction::ShortSaleRestrictionChange | StatusAction::None, _) => {}
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
                let lot = event.symbol().and_then(|symbol| self.lots_by_price.get(&symbol));
                self.by_price.extend(lot.map(|lot| (one, *lot)));
            }
            EventKind::Add
            | EventKind::Execute
            | EventKind::Cancel
            | EventKind::Delete
            | EventKind::Replace
            | EventKind::Level
            | EventKind::Quote => {
                let was_contradicted = feed.contradicted.contains(&one);
                let fits = feed.book(event);
                if fits || !was_contradicted {
                    feed.heard.insert(one);
                }
                if !fits {
                    feed.contradict(one);
                }
            }
            _ => {}
        }
    }

    /// Bands hold from the event on that states them, unless it says that they are suspended or out of hours. They are forgotten when the SIP loses
    /// messages, begins a day, or ends the hours of the market; its quotes count nowhere.
    fn take_of_sip(&mut self, event: &Event) {
        if let Some(bands) = event.price_bands() {
            let holds = bands.indicator != b'D' && bands.indicator != b'F';
            let [upper, lower] =
                [bands.upper, bands.lower].map(|price| price.filter(|_| holds).map(Price::e9));
            self.bands.insert(event.instrument.0, (event.publisher, upper, lower));
        }
        let forgets = match event.kind {
            EventKind::Gap => !event.is_contradiction(),
            EventKind::Session => event.session() != Some(Session::StartOfMarketHours),
            _ => false,
        };
        if forgets {
            let all = event.instrument == InstrumentId::ALL;
            self.bands
                .retain(|one, (sip, ..)| !(*sip == event.publisher && all || *one == event.instrument.0));
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
        self.by_price.get(&one).copied().unwrap_or(100)
    }

    /// The lot of an instrument at a feed. The venues stand in the order `table`.
    pub(crate) fn round_lot(&self, one: u32, publisher: Publisher, table: &[Publisher]) -> u32 {
        let stated = self.feeds.get(&publisher).and_then(|feed| feed.lots.get(&one)).filter(|lot| **lot > 0);
        stated.copied().unwrap_or_else(|| self.taken_lot(one, table))
    }

    /// No bid above the upper band counts, and no offer below the lower one.
    fn is_within_bands(&self, one: u32, side: Side, price: i64) -> bool {
        let Some((_, upper, lower)) = self.bands.get(&one).filter(|_| !self.rules.ignores_price_bands) else {
            return true;
        };
        if side == Side::Bid {
            upper.is_none_or(|upper| price <= upper)
        } else {
            lower.is_none_or(|lower| price >= lower)
        }
    }

    /// The NBBO of an instrument. Ties go to the feed that stands first in `table`.
    pub(crate) fn nbbo(&self, one: u32, table: &[Publisher]) -> Nbbo {
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
            let lot = if self.rules.odd_lots_count { 1 } else { self.round_lot(one, table[place], table) };
            counting.insert(place, (feed, is_stale, lot));
        }
        let mut nbbo = Nbbo::default();
        for side in [Side::Bid, Side::Ask] {
            let bests: Vec<_> = counting
                .iter()
                .filter_map(|(place, (feed, is_stale, lot))| {
                    Some((*place, *is_stale, feed.best(one, side, *lot)?))
                })
                .filter(|(.., (cents, _))| self.is_within_bands(one, side, *cents))
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
