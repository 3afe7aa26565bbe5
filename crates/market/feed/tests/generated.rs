//! Generated sessions of every venue with single orders, through feed and books: the books follow the venue.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "market_support/mod.rs"]
mod rules;

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use tapeworks_capture::CaptureReader;
use tapeworks_capture::net;
use tapeworks_capture::source::ByteSource;
use tapeworks_feed::{Feed, FeedOptions, Packet};
use tapeworks_generator::{
    DEFAULT_MIDNIGHT_NS, LineFaults, Scenario, Unit, VenueConfig, VenueKind, write_pcap,
};
use tapeworks_market::book::{Outcome, round_lot_best};
use tapeworks_market::event::StatusAction;
use tapeworks_market::luld::{LimitState, Standing};
use tapeworks_market::nbbo::{Nbbo, NbboRules, StaleBooks};
use tapeworks_market::state::InstrumentState;
use tapeworks_market::{
    BookStage, BookUpdate, Capacity, Event, EventKind, Flags, InstrumentId, NbboStage, NbboUpdate, Price,
    Publisher, Side,
};
use tapeworks_stage::{Stage, Through};
use tapeworks_time::Nanos;

/// All events of a generated session of one venue.
fn events_of(kind: VenueKind, messages: u64) -> (Vec<Event>, Feed) {
    let venues = vec![VenueConfig { kind, share: 1, unit: Unit::WHOLE }];
    let (events, feed) = events_in(&Scenario { venues, ..Scenario::full_session(messages, 20) });
    assert_eq!(feed.channels().len(), 1);
    assert_eq!(feed.channels()[0].publisher(), kind.publisher());
    (events, feed)
}

/// All events of a generated session.
fn events_in(scenario: &Scenario) -> (Vec<Event>, Feed) {
    let (events, feed, messages) = taken(scenario);
    assert_eq!(feed.problems().total, 0, "{:?}: {:?}", scenario.venues, feed.problems().kept());
    assert_eq!(feed.messages(), messages);
    (events, feed)
}

/// The events of a generated session, which may have lost packets, and the messages that it had.
fn taken(scenario: &Scenario) -> (Vec<Event>, Feed, u64) {
    let mut file = Vec::new();
    let report = write_pcap(scenario, &mut file).unwrap();
    let (mut feed, mut events) = (Feed::new(FeedOptions::default()), Vec::new());
    let mut reader = CaptureReader::new(ByteSource::from_bytes("memory", file)).unwrap();
    while let Some(packet) = reader.next_packet().unwrap() {
        let datagram = net::parse(packet.link_type, packet.bytes).unwrap();
        let packet = Packet {
            file: 0,
            number: packet.number,
            offset: packet.offset,
            received: Nanos(packet.timestamp_ns),
            datagram,
        };
        feed.process(&[packet], &mut |event| events.push(event));
    }
    (events, feed, report.messages)
}

/// The venue executes the first in line of the best price; so must the order be in the book. That a change keeps its priority, or loses it,
/// shows here.
#[test]
fn every_event_fits_its_book_and_executions_take_the_first_in_line() {
    for kind in VenueKind::each([
        "nasdaq",
        "bx",
        "memx",
        "iex-deep-plus",
        "bzx",
        "edgx",
        "cfe",
        "nyse",
        "arca",
        "lse",
    ]) {
        let (events, _) = events_of(kind, 30_000);
        let capacity = Capacity { instruments: 32, orders: 1 << 10, levels: 1 << 12 };
        let mut stage = BookStage::new([(kind.publisher(), capacity)]);
        let mut seen = BTreeMap::new();
        for event in events {
            if event.kind == EventKind::Execute {
                let books = stage.feed(kind.publisher()).unwrap();
                let resting = books.orders().find(|order| order.id == event.order_id).unwrap();
                let queue = books.book(resting.instrument).queue();
                let first = queue.iter().find(|order| order.side == resting.side).unwrap();
                assert_eq!(first.id, event.order_id, "{kind:?}: {event:?}");
            }
            stage.process(&[event], &mut |update: BookUpdate<'_>| {
                assert_eq!(update.outcome, Outcome::Applied, "{kind:?}: {:?}", update.event);
                let best = [Side::Bid, Side::Ask].map(|side| update.book.best(side));
                if let [Some(bid), Some(ask)] = best {
                    assert!(bid.price < ask.price, "{kind:?}: crossed by {:?}", update.event);
                }
                *seen.entry(update.event.kind as u8).or_insert(0u32) += 1;
            });
        }
        let often = |kind: EventKind| seen.get(&(kind as u8)).copied().unwrap_or_default() > 100;
        assert!(often(EventKind::Add) && often(EventKind::Execute) && often(EventKind::Delete), "{seen:?}");
        // MEMX has no replacement; DEEP+, NYSE and London no reduction, but a change.
        assert_eq!(often(EventKind::Replace), kind != VenueKind::Memx, "{kind:?}");
        let reduces =
            !matches!(kind, VenueKind::IexDeepPlus | VenueKind::Nyse | VenueKind::Arca | VenueKind::Lse);
        assert_eq!(often(EventKind::Cancel), reduces, "{kind:?}");
    }
}

/// Every channel of the whole market is read, every event fits, and each listing market opens and closes the symbols that it lists with an auction.
#[test]
fn the_us_market_is_read_whole_and_its_listing_markets_have_auctions() {
    let scenario = Scenario { symbols: 16, halts: 0, ..Scenario::us_market(60_000) };
    let (events, feed) = events_in(&scenario);
    assert_eq!(feed.channels().len(), 16);
    let capacity = Capacity { instruments: 32, orders: 1 << 10, levels: 1 << 12 };
    let mut books = BookStage::with_unnamed([], capacity);
    let (mut crosses, mut imbalances) = (BTreeMap::new(), BTreeMap::new());
    for event in events {
        if event.kind == EventKind::Trade && event.detail & Event::CROSS != 0 {
            assert!(event.size > 0 && event.price.is_some(), "{event:?}");
            *crosses.entry(event.publisher).or_insert(0) += 1;
        }
        if event.kind == EventKind::Imbalance {
            *imbalances.entry(event.publisher).or_insert(0) += 1;
        }
        books.process(&[event], &mut |update: BookUpdate<'_>| {
            assert_eq!(update.outcome, Outcome::Applied, "{:?}", update.event);
        });
    }
    // Of 16 symbols NYSE, Arca and BZX list two each, NYSE American and IEX one. Three imbalances come before each auction.
    for (publisher, listed) in [
        (Publisher::XNYS_PILLAR, 2),
        (Publisher::ARCX_PILLAR, 2),
        (Publisher::XASE_PILLAR, 1),
        (Publisher::BATS_PITCH, 2),
    ] {
        assert_eq!(crosses.get(&publisher), Some(&(2 * listed)), "{publisher:?}");
        assert_eq!(imbalances.get(&publisher), Some(&(6 * listed)), "{publisher:?}");
    }
    assert!(crosses.get(&Publisher::XNAS_ITCH).is_some_and(|crosses| *crosses >= 16));
}

/// Each halt of a venue alone, and each of the market, ends: nothing that a feed says of trading lasts longer than the venue says it.
#[test]
fn halted_instruments_trade_again() {
    for kind in VenueKind::each(["nasdaq", "memx", "iex-deep", "iex-deep-plus", "edgx", "cfe", "nyse", "lse"])
    {
        let (events, _) = events_of(kind, 60_000);
        let mut states = BTreeMap::new();
        let (mut halts, mut resumptions) = (0, 0);
        for event in &events {
            let Some(status) = event.status() else { continue };
            let state: &mut InstrumentState = states.entry(event.instrument.0).or_default();
            let after = state.after(status);
            halts += u32::from(state.is_trading() && !after.is_trading());
            resumptions += u32::from(!state.is_trading() && after.is_trading());
            *state = after;
        }
        let halted = states.values().filter(|state| !state.is_trading()).count() as u32;
        assert!(
            halts >= 4 && halted == 0,
            "{kind:?}: {halts} halts, {resumptions} ends, {halted} are halted at the end"
        );
        assert_eq!(halts, resumptions + halted, "{kind:?}");
    }
}

/// A halt or pause of the market ends with an auction at the market that lists the instrument, and at no other: three imbalances, and the auction's trade before
/// trading resumes.
#[test]
fn the_listing_market_ends_each_halt_with_an_auction() {
    const SYMBOLS: u32 = 40;
    let scenario = Scenario { symbols: SYMBOLS, ..Scenario::us_market(150_000) };
    let (events, feed) = events_in(&scenario);
    // New issues, and one with halts of single venues, have the highest numbers.
    let listing: BTreeMap<String, Publisher> = (0..SYMBOLS - 3)
        .map(|number| {
            let market = match (number, number % 8) {
                (1, _) => Publisher::IEXG_DEEP_PLUS,
                (11 | 27, _) => Publisher::XASE_PILLAR,
                (_, 1 | 3) => Publisher::XNYS_PILLAR,
                (_, 5) => Publisher::ARCX_PILLAR,
                (_, 7) => Publisher::BATS_PITCH,
                _ => Publisher::XNAS_ITCH,
            };
            (tapeworks_generator::symbol_name(number), market)
        })
        .collect();
    // By feed and instrument: whether it is halted, and imbalances and auctions since.
    let mut halted: BTreeMap<(Publisher, InstrumentId), (u32, u32)> = BTreeMap::new();
    let mut reopened: BTreeMap<Publisher, u32> = BTreeMap::new();
    let mut resumed = 0;
    for event in &events {
        let key = (event.publisher, event.instrument);
        let symbol = feed.instruments().symbol(event.instrument).map(|symbol| symbol.to_string());
        let Some(market) = symbol.and_then(|symbol| listing.get(&symbol)) else { continue };
        match event.status().map(|status| status.action) {
            Some(StatusAction::Halt | StatusAction::Pause) => {
                halted.entry(key).or_default();
            }
            Some(StatusAction::Trading) if !event.publisher.is_of_sip() => {
                let Some(counts) = halted.remove(&key) else { continue };
                let is_listing = event.publisher == *market;
                // DEEP+ has no message of an auction that is prepared.
                let prepared = if event.publisher == Publisher::IEXG_DEEP_PLUS { 0 } else { 3 };
                let expected = if is_listing { (prepared, 1) } else { (0, 0) };
                assert_eq!(counts, expected, "{event:?}");
                *reopened.entry(event.publisher).or_default() += u32::from(is_listing);
                resumed += 1;
            }
            _ => {}
        }
        if let Some((imbalances, auctions)) = halted.get_mut(&key) {
            *imbalances += u32::from(event.kind == EventKind::Imbalance);
            let is_cross = event.kind == EventKind::Trade && event.detail & Event::CROSS != 0;
            *auctions += u32::from(is_cross && event.price.is_some());
        }
    }
    assert!(resumed > 100, "{resumed}");
    for market in listing.values() {
        assert!(reopened.get(market).is_some_and(|count| *count > 0), "{market:?}: {reopened:?}");
    }
}

/// TOPS and DEEP say how an auction that ends a halt stands, and of which kind it is; all of IEX's feeds have its trade.
#[test]
fn iex_ends_the_halts_and_pauses_of_what_it_lists_with_an_auction_of_their_kind() {
    for (kind, publisher) in [
        (VenueKind::IexTops, Publisher::IEXG_TOPS),
        (VenueKind::IexDeep, Publisher::IEXG_DEEP),
        (VenueKind::IexDeepPlus, Publisher::IEXG_DEEP_PLUS),
    ] {
        let venues = [VenueKind::Nasdaq, kind].map(|kind| VenueConfig { kind, share: 1, unit: Unit::WHOLE });
        let scenario =
            Scenario { symbols: 120, halts: 2, venues: venues.to_vec(), ..Scenario::us_market(60_000) };
        let (events, feed) = events_in(&scenario);
        let listed = [1, 101].map(tapeworks_generator::symbol_name);
        let mut auctions: BTreeMap<(String, u8), (u32, u32)> = BTreeMap::new();
        let mut now = BTreeMap::new();
        for pair in events.windows(2).filter(|pair| pair[0].publisher == publisher) {
            let event = &pair[0];
            let symbol = feed.instruments().symbol(event.instrument).map(|symbol| symbol.to_string());
            let Some(symbol) = symbol.filter(|symbol| listed.contains(symbol)) else { continue };
            match event.status().map(|status| status.action) {
                Some(StatusAction::Halt) => drop(now.insert(symbol.clone(), b'H')),
                Some(StatusAction::Pause) => drop(now.insert(symbol.clone(), b'V')),
                Some(StatusAction::Trading) => drop(now.remove(&symbol)),
                _ => {}
            }
            let Some(code) = now.get(&symbol) else { continue };
            let counts = auctions.entry((symbol, *code)).or_default();
            if let Some(imbalance) = event.imbalance(&pair[1]) {
                assert_eq!(imbalance.auction_type, *code, "{event:?}");
                let left = imbalance.auction_time.unwrap().since(event.ts_event);
                assert!(left <= 60 * Nanos::SECOND, "{event:?}");
                counts.0 += 1;
            }
            let is_cross = event.kind == EventKind::Trade && event.detail & Event::CROSS != 0;
            counts.1 += u32::from(is_cross);
        }
        let prepared = if kind == VenueKind::IexDeepPlus { 0 } else { 3 };
        let [halted, paused] = listed;
        let expected = [((halted, b'H'), (prepared, 1)), ((paused, b'V'), (prepared, 1))];
        assert_eq!(auctions, BTreeMap::from(expected), "{kind:?}");
    }
}

/// What the price bands of a symbol are at its SIP.
#[derive(Clone, Default, Debug)]
struct Banded {
    reference: Option<f64>,
    prices: Option<(f64, f64)>,
    /// The trades since the open or the last halt: time and price.
    trades: Vec<(u64, f64)>,
    reopened: Option<f64>,
    since: u64,
    is_reached: bool,
}

/// The bands are those that follow from the trades of the direct feeds, computed in another way: from a list of trades. And the SIP says how its national best
/// stands to them, as its own quotes say it. Before each pause the symbol has been in a limit state.
#[test]
fn price_bands_follow_from_the_trades_and_the_limit_states_from_the_bands() {
    const SECOND: u64 = 1_000_000_000;
    const OPEN: u64 = DEFAULT_MIDNIGHT_NS + 34_200 * SECOND;
    let kinds = VenueKind::each(["nasdaq", "bzx", "nyse", "uqdf", "cqs"]);
    let scenario = Scenario {
        venues: kinds.map(|kind| VenueConfig { kind, share: 1, unit: Unit::WHOLE }).to_vec(),
        symbols: 24,
        halts: 8,
        listing_auctions: true,
        ..Scenario::full_session(150_000, 24)
    };
    let (events, feed) = events_in(&scenario);
    let capacity = Capacity { instruments: 32, orders: 1 << 12, levels: 1 << 12 };
    let mut market =
        Through::new(BookStage::with_unnamed([], capacity), NbboStage::new(NbboRules::default(), [], 32));
    let mut known: BTreeMap<InstrumentId, Banded> = BTreeMap::new();
    let mut national: BTreeMap<(InstrumentId, bool), Option<Price>> = BTreeMap::new();
    let mut lots = BTreeMap::new();
    let mut closes: BTreeMap<InstrumentId, f64> = BTreeMap::new();
    let mut indicators: BTreeMap<u8, u32> = BTreeMap::new();
    let (mut standings, mut pauses, mut compared) = (BTreeMap::new(), 0, 0);
    for event in &events {
        let dollars = |price: Option<Price>| price.map(|price| price.e9() as f64 / 1e9);
        if let Some(definition) = event.definition() {
            lots.entry(event.instrument).or_insert(definition.round_lot);
        }
        // The execution's price is the order's: the book completes the event.
        let mut trade = None;
        market.process(&[*event], &mut |update: NbboUpdate<'_>| {
            let event = update.book.event;
            if matches!(event.kind, EventKind::Execute | EventKind::Trade)
                && event.detail & Event::NOT_PRINTABLE == 0
            {
                trade = Some((
                    event.instrument,
                    event.ts_event.0,
                    dollars(event.price).unwrap(),
                    event.size,
                    event.detail,
                ));
            }
        });
        if let Some((instrument, at, price, size, detail)) = trade {
            let symbol = known.entry(instrument).or_default();
            // An early price stands for that of the day before, which the feeds do not say; it is in the same tier.
            closes.entry(instrument).or_insert(price);
            if detail & Event::CROSS != 0 {
                symbol.reopened = Some(price);
            } else if size >= lots.get(&instrument).copied().unwrap_or(100) && at >= OPEN {
                symbol.trades.push((at, price));
            }
            if let Some((lower, upper)) = symbol.prices.filter(|_| detail & Event::CROSS == 0) {
                assert!((lower..=upper).contains(&price), "{symbol:?}: {event:?}");
            }
        }
        let instrument = event.instrument;
        if let Some(bands) = event.price_bands() {
            *indicators.entry(bands.indicator).or_default() += 1;
            let symbol = known.entry(instrument).or_default();
            let at = event.ts_event.0;
            if bands.indicator == b'D' || bands.indicator == b'F' {
                assert_eq!((bands.lower, bands.upper), (None, None));
                (symbol.prices, symbol.reopened) = (None, None);
                continue;
            }
            let mean = |from: u64| {
                let since = symbol.trades.iter().filter(|(time, _)| (from + 1..=at).contains(time));
                let prices: Vec<f64> = since.map(|(_, price)| *price).collect();
                (!prices.is_empty()).then(|| prices.iter().sum::<f64>() / prices.len() as f64)
            };
            let reference = match bands.indicator {
                b'A' | b'E' => symbol.reopened.or(symbol.reference).or_else(|| mean(0)).unwrap(),
                letter => {
                    assert_eq!(letter, b'B');
                    assert!(!symbol.is_reached, "no bands follow in a limit state");
                    let known = symbol.reference.unwrap();
                    let mean = mean((at - 300 * SECOND).max(symbol.since)).unwrap_or(known);
                    let moved = (mean - known).abs() >= known * 0.009_999;
                    assert!(moved || at == OPEN + 21_900 * SECOND, "{mean} {symbol:?}");
                    if moved { mean } else { known }
                }
            };
            let is_late = at >= OPEN + 21_900 * SECOND;
            let width = match closes[&instrument] {
                close if close > 3.0 => reference * 0.05,
                close if close >= 0.75 => reference * 0.2,
                _ => (reference * 0.75).min(0.15),
            };
            let width = if is_late { 2.0 * width } else { width };
            for (band, expected) in [(bands.lower, reference - width), (bands.upper, reference + width)] {
                let band = dollars(band).unwrap_or_default();
                assert!((band - expected.max(0.0)).abs() < 0.0052, "{band} {expected} {bands:?} {symbol:?}");
                assert!((band * 100.0 - (band * 100.0).round()).abs() < 1e-6, "{bands:?}");
            }
            if bands.indicator != b'B' {
                symbol.trades.retain(|(time, _)| bands.indicator == b'A' && *time > at - 3_600 * SECOND);
                symbol.since = if bands.indicator == b'E' { at } else { symbol.since };
            }
            symbol.reference = Some(reference);
            symbol.prices =
                dollars(bands.upper).map(|upper| (dollars(bands.lower).unwrap_or_default(), upper));
            compared += 1;
        }
        let is_national = matches!(event.publisher, Publisher::SIP_UTP | Publisher::SIP_CTA);
        if is_national && event.kind == EventKind::Quote {
            national.insert((instrument, event.side == Side::Ask), event.price);
        }
        if let Some(standing) = event.standing() {
            standings.insert(instrument, (standing, event.ts_recv));
            known.entry(instrument).or_default().is_reached = standing.state() == LimitState::Limit;
        }
        if is_national && event.kind == EventKind::Quote && event.flags().contains(Flags::LAST) {
            let luld = market.second.luld(instrument);
            let best = |side| national.get(&(instrument, side == Side::Ask)).copied().flatten();
            let said = standings.get(&instrument).map(|(standing, _)| *standing).unwrap_or_default();
            let expected = luld.bands.map(|bands| Standing::of(&bands, best(Side::Bid), best(Side::Ask)));
            assert_eq!(said, expected.unwrap_or_default(), "{event:?} {luld:?} {national:?}");
        }
        // The listing market is the first to say it.
        if event.publisher == Publisher::XNAS_ITCH
            && event.status().is_some_and(|status| status.action == StatusAction::Pause)
        {
            let (standing, since) = standings.get(&instrument).unwrap();
            assert_eq!(standing.state(), LimitState::Limit, "{event:?}");
            let lasted = event.ts_recv.0 - since.0;
            assert!((14 * SECOND..16 * SECOND).contains(&lasted), "{lasted}");
            pauses += 1;
        }
    }
    assert_eq!((feed.channels().len(), pauses), (5, 4));
    assert!(
        compared > 24 && b"ABDEF".iter().all(|letter| indicators.contains_key(letter)),
        "{compared} {indicators:?}"
    );
}

/// A halt, an opening and a definition come with every venue that has them.
#[test]
fn deep_plus_says_its_day_in_events() {
    let (events, feed) = events_of(VenueKind::IexDeepPlus, 20_000);
    let count = |kind: EventKind| events.iter().filter(|event| event.kind == kind).count();
    assert_eq!(count(EventKind::Definition), 20);
    assert_eq!(count(EventKind::SymbolMapping), feed.instruments().len());
    assert_eq!(count(EventKind::Session), 6);
    assert!(count(EventKind::Status) >= 40 && count(EventKind::Trade) > 10);
    assert!(events.iter().any(|event| event.detail & Event::KEEPS_PRIORITY != 0));
}

/// London's symbols are its own, so it is in no NBBO of a US symbol, and no US venue in one of London's. Cboe's units have the same header.
#[test]
fn london_counts_in_no_nbbo_of_another_market() {
    let kinds = VenueKind::each(["lse", "nasdaq", "bzx"]);
    let venues = kinds.map(|kind| VenueConfig { kind, share: 1, unit: Unit::WHOLE }).to_vec();
    let (events, feed) = events_in(&Scenario { venues, ..Scenario::full_session(60_000, 20) });
    assert_eq!(feed.channels().len(), 3);
    assert_eq!(feed.instruments().len(), 40, "each symbol is one of the US and one of London");
    let capacity = Capacity { instruments: 64, orders: 1 << 12, levels: 1 << 14 };
    let books = BookStage::with_unnamed([], capacity);
    let mut market = Through::new(books, NbboStage::new(NbboRules::default(), [], 64));
    let mut counts = [0; 2];
    market.process(&events, &mut |update: NbboUpdate<'_>| {
        let Some(symbol) = feed.instruments().symbol(update.book.event.instrument) else { return };
        let is_londons = symbol.as_str().ends_with(".GBP");
        for side in [&update.nbbo.bid, &update.nbbo.ask] {
            if side.price.is_some() {
                assert_eq!(side.publisher == Publisher::XLON_MITCH, is_londons, "{symbol}");
                assert!(side.venues.count_ones() == 1 || !is_londons, "{symbol}");
                counts[usize::from(is_londons)] += 1;
            }
        }
    });
    assert!(counts.iter().all(|count| *count > 1_000), "{counts:?}");
}

/// In summer and in winter, and in the evening, when London's next day has begun: the split times of every venue are those of the packets.
#[test]
fn split_times_are_those_of_the_packets_on_every_day() {
    const DAY_NS: u64 = 24 * 3_600 * 1_000_000_000;
    for kind in VenueKind::each(["bzx", "nyse", "lse"]) {
        // 2025-11-14 has New York's winter, 2025-07-14 its summer; in March the clocks of both change on days of their own.
        for midnight_ns in
            [DEFAULT_MIDNIGHT_NS, 1_752_465_600_000_000_000, 1_752_465_600_000_000_000 - 116 * DAY_NS]
        {
            let venues = vec![VenueConfig { kind, share: 1, unit: Unit::WHOLE }];
            let scenario = Scenario { venues, midnight_ns, ..Scenario::full_session(20_000, 20) };
            for event in events_in(&scenario).0 {
                let is_timed = event.channel_sequence > 0 && event.ts_event > Nanos(0);
                let late = event.ts_recv.0.saturating_sub(event.ts_event.0);
                // A time message has the start of its second.
                assert!(!is_timed || late < 1_001_000_000, "{kind:?}: {event:?}");
                assert!(event.ts_event <= event.ts_recv, "{kind:?}: {event:?}");
            }
        }
    }
}

/// The quotes of each publisher, by symbol and side, as a feed has shown them last.
type Quotes = BTreeMap<(Publisher, String, bool), (Option<i64>, u32)>;

fn last_quotes(events: &[Event], feed: &Feed, until: Nanos) -> Quotes {
    let mut quotes = Quotes::new();
    for event in events.iter().filter(|event| event.kind == EventKind::Quote && event.ts_recv <= until) {
        let symbol = feed.instruments().symbol(event.instrument).unwrap().to_string();
        let quote = (event.price.map(|price| price.e9()), event.size);
        quotes.insert((event.publisher, symbol, event.side == Side::Ask), quote);
    }
    quotes
}

/// A SIP shows what the books of the direct feeds make: each venue's round-lot best, and the best of these.
#[test]
fn a_sip_shows_the_quotes_of_the_direct_feeds_and_the_best_of_them() {
    let kinds = VenueKind::each(["nasdaq", "bzx", "iex-deep", "uqdf", "cqs"]);
    let venues = kinds.map(|kind| VenueConfig { kind, share: 1, unit: Unit::WHOLE }).to_vec();
    let (events, feed) = events_in(&Scenario { venues, ..Scenario::full_session(60_000, 20) });
    assert_eq!(feed.channels().len(), 5);
    // At noon, when the last quotes have reached the SIPs: nothing happens in the millisecond before.
    let noon = DEFAULT_MIDNIGHT_NS + 12 * 3_600_000_000_000;
    let direct = |publisher: Publisher| !publisher.is_of_sip();
    let quiet = (0..1_000_000).map(|step| Nanos(noon + step * 100_000)).find(|time| {
        events
            .iter()
            .filter(|event| direct(event.publisher))
            .all(|event| event.ts_recv.0 > time.0 || event.ts_recv.0 + 1_000_000 < time.0)
    });
    let quiet = quiet.unwrap();
    let capacity = Capacity { instruments: 64, orders: 1 << 12, levels: 1 << 14 };
    let mut books = BookStage::with_unnamed([], capacity);
    for event in events.iter().filter(|event| event.ts_recv <= quiet && direct(event.publisher)) {
        books.process(&[*event], &mut |update: BookUpdate<'_>| assert_eq!(update.outcome, Outcome::Applied));
    }
    let quotes = last_quotes(&events, &feed, quiet);
    let pairs = [
        (Publisher::XNAS_ITCH, Publisher::SIP_XNAS),
        (Publisher::BATS_PITCH, Publisher::SIP_BATS),
        (Publisher::IEXG_DEEP, Publisher::SIP_IEXG),
    ];
    let (mut compared, mut of_sip) = (0, [0; 2]);
    for (number, symbol) in feed.instruments().symbols().iter().enumerate() {
        let instrument = tapeworks_market::InstrumentId(number as u32);
        let symbol = symbol.to_string();
        // Halted symbols have no quote.
        let books_of = |publisher| books.feed(publisher).map(|books| books.book(instrument));
        if pairs.iter().any(|(own, _)| books_of(*own).is_some_and(|book| !book.state().is_trading())) {
            continue;
        }
        let lot = books_of(Publisher::XNAS_ITCH).unwrap().round_lot().unwrap();
        for side in [Side::Bid, Side::Ask] {
            let is_ask = side == Side::Ask;
            let mut shown: Vec<(i64, u32)> = Vec::new();
            for (own, of_sip) in pairs {
                let (price, size) = round_lot_best(books_of(own).unwrap(), side, lot);
                let expected = (price.map(|price| price.e9()), if price.is_some() { size } else { 0 });
                let quote = quotes.get(&(of_sip, symbol.clone(), is_ask)).copied().unwrap_or((None, 0));
                assert_eq!(quote, expected, "{symbol} {side:?} {own:?}");
                compared += 1;
                shown.extend(price.map(|price| (price.e9(), size)));
            }
            // The SIP's own book is that of a market without a direct feed.
            if let Some((Some(price), size)) = quotes.get(&(Publisher::SIP_EPRL, symbol.clone(), is_ask)) {
                shown.push((*price, *size));
            }
            let best =
                shown.into_iter().max_by_key(|(price, size)| (if is_ask { -price } else { *price }, *size));
            for (place, sip) in [Publisher::SIP_UTP, Publisher::SIP_CTA].into_iter().enumerate() {
                let Some(national) = quotes.get(&(sip, symbol.clone(), is_ask)) else { continue };
                assert_eq!(national.0.map(|price| (price, national.1)), best, "{symbol} {side:?}");
                of_sip[place] += 1;
            }
        }
    }
    assert!(compared > 90 && of_sip.iter().all(|count| *count > 8), "{compared}, {of_sip:?}");
}

/// A synthetic NBBO of direct feeds is the same with a SIP beside them.
#[test]
fn the_quotes_of_a_sip_are_in_no_synthetic_nbbo() {
    let with_sip = |sip: Option<VenueKind>| {
        let kinds = VenueKind::each(["nasdaq", "bzx"]).into_iter().chain(sip);
        let venues = kinds.map(|kind| VenueConfig { kind, share: 1, unit: Unit::WHOLE }).collect();
        events_in(&Scenario { venues, ..Scenario::full_session(40_000, 20) })
    };
    let (mut events, _) = with_sip(Some(VenueKind::Uqdf));
    let best = |events: &[Event]| {
        let capacity = Capacity { instruments: 64, orders: 1 << 12, levels: 1 << 14 };
        let books = BookStage::with_unnamed([], capacity);
        let mut market = Through::new(books, NbboStage::new(NbboRules::default(), [], 64));
        let mut changes = Vec::new();
        market.process(events, &mut |update: NbboUpdate<'_>| {
            if update.changed {
                changes.push(*update.nbbo);
            }
        });
        (changes, market.second.venues().to_vec())
    };
    let (all, venues) = best(&events);
    let sips =
        events.iter().filter(|event| event.publisher == Publisher::SIP_UTP && event.kind == EventKind::Quote);
    assert!(sips.count() > 1_000);
    for change in &all {
        for side in [change.bid, change.ask] {
            assert!(!side.publisher.is_of_sip());
        }
    }
    events.retain(|event| !event.publisher.is_of_sip());
    let (direct, _) = best(&events);
    let prices = |changes: &[Nbbo]| {
        changes
            .iter()
            .map(|nbbo| [nbbo.bid, nbbo.ask].map(|side| (side.price, side.size, side.publisher)))
            .collect::<Vec<_>>()
    };
    assert_eq!(prices(&all), prices(&direct), "{venues:?}");
    assert!(direct.len() > 1_000);
}

/// A capture of a SIP alone: its own book is one participant's, which is the national best. A heartbeat before the first message is taken for ITCH's.
#[test]
fn a_sip_alone_is_read_back() {
    for kind in VenueKind::each(["uqdf", "cqs"]) {
        let (events, _) = events_of(kind, 20_000);
        let quotes = |publisher| {
            let of = |event: &&Event| event.kind == EventKind::Quote && event.publisher == publisher;
            events.iter().filter(of).count()
        };
        assert!(quotes(Publisher::SIP_EPRL) > 1_000, "{kind:?}");
        assert!(quotes(kind.publisher()) > 500, "{kind:?}");
        assert!(events.iter().all(|event| event.publisher.is_of_sip()));
        assert!(events.iter().all(|event| event.ts_event <= event.ts_recv), "{kind:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// The rules, written down a second time, are those of `tapeworks-market`'s own test; here the days are whole ones of venues.
    #[test]
    fn the_nbbo_of_a_generated_day_follows_from_its_rules(
        seed in any::<u64>(),
        lost_per_million in prop::sample::select(&[0u32, 500, 20_000][..]),
        excludes in any::<bool>(),
        self_help in prop::collection::vec((0..rules::FEEDS.len(), any::<prop::sample::Index>(), any::<bool>()), 0..8),
    ) {
        const SYMBOLS: u32 = 5;
        let kinds = VenueKind::each(["nasdaq", "bx", "bzx", "nyse", "iex-tops", "iex-deep", "uqdf", "cqs"]);
        let lost = LineFaults { lost_per_million, ..LineFaults::default() };
        let scenario = Scenario {
            venues: kinds.map(|kind| VenueConfig { kind, share: 1, unit: Unit::WHOLE }).to_vec(),
            seed,
            faults: [lost; 2],
            ..Scenario::full_session(3_000, SYMBOLS)
        };
        let (mut events, _, _) = taken(&scenario);
        for (feed, at, is_declared) in self_help {
            let at = at.index(events.len());
            events.insert(at, Event::of_self_help(rules::FEEDS[feed].0, is_declared));
        }
        let stale_books = if excludes { StaleBooks::Exclude } else { StaleBooks::Flag };
        prop_assert!(events.iter().filter_map(Event::price_bands).any(|bands| bands.are_in_effect()));
        let rules = NbboRules { stale_books, ..NbboRules::default() };
        let capacity = Capacity { instruments: 1, orders: 1 << 8, levels: 1 << 8 };
        let nbbo = NbboStage::new(rules.clone(), [], 1);
        let mut market = Through::new(BookStage::with_unnamed([], capacity), nbbo);
        let mut model = rules::Model::new(rules, SYMBOLS, BTreeMap::new());
        // Of these an event of several has come in part.
        let mut open = BTreeSet::new();
        let mut compared = 0;
        for event in &events {
            model.take(event);
            let mut touched = None;
            market.process(&[*event], &mut |update: NbboUpdate<'_>| touched = Some(update.book.event.instrument));
            let touched = touched.unwrap();
            if event.flags().contains(Flags::LAST) {
                open.remove(&(event.publisher, touched));
            } else {
                open.insert((event.publisher, touched));
            }
            let is_of_all = event.instrument == InstrumentId::ALL;
            for one in (0..SYMBOLS).filter(|one| is_of_all || touched.0 == *one) {
                if !open.iter().any(|(_, of)| of.0 == one) {
                    compared += 1;
                    let expected = model.nbbo(one, market.second.venues());
                    prop_assert_eq!(*market.second.nbbo(InstrumentId(one)), expected, "{} after {:?}", one, event);
                }
            }
        }
        prop_assert!(compared > 2_000, "{}", compared);
    }
}
