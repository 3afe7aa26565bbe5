//! The synthetic NBBO after every event of drawn days, against its rules written down a second time.
//!
//! There are seven feeds of five venues, one of which has three feeds, with round and odd lots, directories, halts, closings, gaps,
//! contradictions, self-help, and price bands of two SIPs. A failing day is made smaller and printed with its seed.

#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use std::collections::BTreeMap;

use proptest::prelude::*;
use tapeworks_market::event::{Definition, Gap, Session, Status, StatusAction};
use tapeworks_market::luld::{PriceBands, Standing};
use tapeworks_market::nbbo::{NbboRules, StaleBooks};
use tapeworks_market::round_lots::RoundLotPrices;
use tapeworks_market::{
    BookStage, Capacity, Event, EventKind, Flags, InstrumentId, Nbbo, NbboStage, NbboUpdate, Price,
    Publisher, Side, Symbol,
};
use tapeworks_stage::{Stage, Through};
use tapeworks_time::Nanos;

use support::{FEEDS, Model, Shows};

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
    /// A SIP states bands: the lower and the upper, or none.
    Bands {
        is_ctas: bool,
        lower: u32,
        upper: u32,
        indicator: u8,
    },
    /// Something else of a SIP: a standing, a gap of all or one, a phase of its day, a quote, a status.
    OfSip {
        is_ctas: bool,
        what: u8,
        session: Session,
    },
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
    let bands = (any::<bool>(), 0..9u32, 0..9u32, prop::sample::select(&b"ABBBCDEF "[..]))
        .prop_map(|(is_ctas, lower, upper, indicator)| Step::Bands { is_ctas, lower, upper, indicator });
    let of_sip = (any::<bool>(), 0..6u8, session.clone()).prop_map(|(is_ctas, what, session)| Step::OfSip {
        is_ctas,
        what,
        session,
    });
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
        4 => bands,
        2 => of_sip,
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
        Step::Bands { is_ctas, lower, upper, indicator } => {
            let price = |cents: u32| Some(Price::from_e4(cents * 100)).filter(|_| cents > 0);
            Event::new(EventKind::PriceBands, sip(*is_ctas), one).with_price_bands(PriceBands {
                lower: price(*lower),
                upper: price(*upper),
                indicator: *indicator,
                effective: Nanos(0),
            })
        }
        Step::OfSip { is_ctas, what, session } => {
            let of = |kind, instrument| Event::new(kind, sip(*is_ctas), instrument);
            match what {
                0 => of(EventKind::LimitState, one).with_standing(Standing::BID_BELOW),
                1 => of(EventKind::Gap, InstrumentId::ALL).with_gap(gap),
                2 => of(EventKind::Gap, one).with_gap(gap),
                3 => of(EventKind::Session, InstrumentId::ALL).with_session(*session),
                4 => Event {
                    side: Side::Bid,
                    price: Some(Price::from_e4(700)),
                    size: 500,
                    ..of(EventKind::Quote, one)
                },
                _ => of(EventKind::Status, one).with_status(Status {
                    action: StatusAction::Halt,
                    reason: 0,
                    is_trading: Some(false),
                    is_quoting: None,
                    is_short_sell_restricted: None,
                }),
            }
        }
    }]
}

const fn sip(is_ctas: bool) -> Publisher {
    if is_ctas { Publisher::SIP_CTA } else { Publisher::SIP_UTP }
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(384))]

    #[test]
    fn the_nbbo_follows_from_its_rules_after_every_event(
        days in days(),
        is_named in any::<bool>(),
        excludes in any::<bool>(),
        odd_lots_count in prop::bool::weighted(0.2),
        ignores_price_bands in prop::bool::weighted(0.1),
        saves_every in 5usize..60,
        time in prop::sample::select(&TIMES[..]),
    ) {
        let rules = NbboRules {
            stale_books: if excludes { StaleBooks::Exclude } else { StaleBooks::Flag },
            odd_lots_count,
            ignores_price_bands,
            round_lot_prices: RoundLotPrices::parse(PRICES).unwrap(),
        };
        // The feeds are named, or join as they are heard; tables start too small.
        let named = if is_named { FEEDS.map(|feed| feed.0).to_vec() } else { Vec::new() };
        let capacity = Capacity { instruments: 1, orders: 8, levels: 4 };
        let nbbo = NbboStage::new(rules.clone(), named, 1);
        let mut market = Through::new(BookStage::with_unnamed([], capacity), nbbo);
        let by_price = [("S0", 100), ("S1", if time == TIMES[1] { 10 } else { 100 })];
        let lots_by_price: BTreeMap<_, _> =
            by_price.map(|(symbol, lot)| (Symbol::parse(symbol).unwrap(), lot)).into();
        let mut model = Model::new(rules.clone(), INSTRUMENTS, lots_by_price);
        let mut before = [Nbbo::default(); INSTRUMENTS as usize];
        for (number, step) in days.iter().enumerate() {
            let (mut changed, mut lots) = (Vec::new(), Vec::new());
            for mut event in events(step) {
                event.ts_recv = Nanos(time);
                model.take(&event);
                market.process(&[event], &mut |update: NbboUpdate<'_>| {
                    let one = update.book.event.instrument;
                    lots.push((one.0, update.book.event.publisher, update.round_lot()));
                    if update.changed {
                        changed.push((one.0, *update.nbbo));
                    }
                });
            }
            for (one, publisher, lot) in lots.into_iter().filter(|(one, ..)| *one < INSTRUMENTS) {
                let expected = model.round_lot(one, publisher, market.second.venues());
                prop_assert_eq!(lot, expected, "lot of instrument {} after {:?}", one, step);
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
