//! Random requests through the translator, native bytes, the simulated exchange and back, with a model of the clients.

#![allow(clippy::unwrap_used)] // a failure here is a failed test
#![allow(dead_code, reason = "the world has helpers for the other tests")]

mod traders;

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use tapeworks_fix_wire::order_entry::{
    MassCancelRequestType, NewOrderSingleFields, OrderMassCancelRequestFields, Side, TimeInForce,
};
use tapeworks_translate::ids::ClientIndex;
use tapeworks_translate::{ClientSettings, ExchangeToClientState, Naming, RiskLimits, Settings, Venue};
use tapeworks_wire::NanosecondsSinceEpoch;
use tapeworks_wire::millennium::native;
use tapeworks_wire::nasdaq::ouch50::inbound;
use traders::{
    E8, Kept, SECOND_NS, START_NS, World, cancel, id, limit, mass_quote, message, new, open, quote,
    quote_cancel, replace, text, time,
};

/// A step of a client.
#[derive(Clone, Copy, Debug)]
enum Step {
    New {
        client: u16,
        is_buy: bool,
        quantity: i64,
        ticks: i64,
        time_in_force: TimeInForce,
    },
    Cancel {
        client: u16,
        which: usize,
    },
    Replace {
        client: u16,
        which: usize,
        quantity: i64,
        ticks: i64,
    },
    /// A side of quantity 0 is none; the offer is `width` ticks above the bid: 0 and below cross.
    Quote {
        client: u16,
        bid: i64,
        offer: i64,
        ticks: i64,
        width: i64,
        is_mass: bool,
    },
    QuoteCancel {
        client: u16,
        is_all: bool,
    },
    MassCancel {
        client: u16,
        is_all: bool,
    },
    Bust {
        which: usize,
    },
    Settle,
}

fn step() -> impl Strategy<Value = Step> {
    let lasting = prop_oneof![
        3 => Just(TimeInForce::Day),
        1 => Just(TimeInForce::ImmediateOrCancel),
        1 => Just(TimeInForce::FillOrKill),
        1 => Just(TimeInForce::GoodTillDate),
    ];
    prop_oneof![
        5 => (0u16..2, any::<bool>(), 1i64..50, 0i64..4, lasting).prop_map(
            |(client, is_buy, quantity, ticks, time_in_force)| Step::New { client, is_buy, quantity, ticks, time_in_force }
        ),
        2 => (0u16..2, any::<usize>()).prop_map(|(client, which)| Step::Cancel { client, which }),
        3 => (0u16..2, any::<usize>(), 1i64..50, 0i64..4)
            .prop_map(|(client, which, quantity, ticks)| Step::Replace { client, which, quantity, ticks }),
        2 => (0u16..2, 0i64..40, 0i64..40, 0i64..4, -1i64..4, any::<bool>()).prop_map(
            |(client, bid, offer, ticks, width, is_mass)| Step::Quote { client, bid, offer, ticks, width, is_mass }
        ),
        1 => (0u16..2, any::<bool>()).prop_map(|(client, is_all)| Step::QuoteCancel { client, is_all }),
        1 => (0u16..2, any::<bool>()).prop_map(|(client, is_all)| Step::MassCancel { client, is_all }),
        1 => any::<usize>().prop_map(|which| Step::Bust { which }),
        3 => Just(Step::Settle),
    ]
}

/// A client's view of an order: what FIX messages alone say.
#[derive(Clone, Debug)]
struct Mine {
    side: Side,
    /// The ClOrdID that names it next, also one in flight.
    last: String,
    fills: BTreeMap<String, (i64, i64)>,
    cumulative: i64,
    leaves: i64,
    is_over: bool,
}

/// Runs the steps and returns all messages to clients.
#[allow(clippy::too_many_lines, reason = "one run reads top to bottom")]
fn run<V: Venue>(steps: &[Step], mut world: World<V>, is_warmed: bool) -> Vec<(u16, Vec<u8>)> {
    // By client: orders by their first ClOrdID, requests to orders.
    let mut mine: [Vec<Mine>; 2] = [Vec::new(), Vec::new()];
    let mut owner: BTreeMap<(u16, String), usize> = BTreeMap::new();
    let mut unanswered: BTreeSet<(u16, String)> = BTreeSet::new();
    let mut exec_ids = BTreeSet::new();
    let (mut read, mut number, mut busted) = (0, 0, BTreeSet::new());
    // The newest quote of each client, and cancels of quotes whose answer is to come.
    let mut quotes = [const { String::new() }; 2];
    let mut quote_cancels = [0, 0];
    for step in steps.iter().chain([&Step::Settle]) {
        number += 1;
        if is_warmed {
            // It leaves no trace: the replies are those of a run without it.
            world.translator.prepare_to_warm();
            world.translator.warm(world.now_ns);
        }
        let price_e8 = |ticks: i64| 10 * E8 + ticks * E8 / 100;
        match *step {
            Step::New { client, is_buy, quantity, ticks, time_in_force } => {
                let name = format!("{client}N{number}");
                let side = if is_buy { Side::Buy } else { Side::Sell };
                let order = NewOrderSingleFields {
                    time_in_force: Some(time_in_force),
                    expire_time: (time_in_force == TimeInForce::GoodTillDate)
                        .then_some(NanosecondsSinceEpoch(START_NS + 600 * SECOND_NS)),
                    ..limit(&name, side, quantity, price_e8(ticks))
                };
                world.send(client, &new(&order));
                let orders = &mut mine[usize::from(client)];
                owner.insert((client, name.clone()), orders.len());
                unanswered.insert((client, name.clone()));
                let (fills, last) = (BTreeMap::new(), name);
                orders.push(Mine { side, last, fills, cumulative: 0, leaves: quantity, is_over: false });
            }
            Step::Cancel { client, which } | Step::Replace { client, which, .. } => {
                let orders = &mut mine[usize::from(client)];
                let count = orders.len();
                if count == 0 {
                    continue;
                }
                let order = &mut orders[which % count];
                let name = format!("{client}R{number}");
                owner.insert((client, name.clone()), which % count);
                unanswered.insert((client, name.clone()));
                let bytes = if let Step::Replace { quantity, ticks, .. } = *step {
                    let bytes = replace(&name, &order.last, order.side, quantity, price_e8(ticks));
                    order.last = name;
                    bytes
                } else {
                    cancel(&name, &order.last, order.side)
                };
                world.send(client, &bytes);
            }
            Step::Quote { bid: 0, offer: 0, .. } => {}
            Step::Quote { client, bid, offer, ticks, width, is_mass } => {
                let name = format!("{client}Q{number}");
                let (low, high) = (price_e8(ticks), price_e8(ticks + width));
                let side = |quantity, price| (quantity > 0).then_some((quantity, price));
                let parts = if is_mass {
                    // Both sides of 10, a whole unit apart.
                    world.send(client, &mass_quote(&format!("{client}M{number}"), &[(&name, "AAPL", low)]));
                    [(Side::Buy, 10), (Side::Sell, 10)]
                } else {
                    world.send(client, &quote(&name, side(bid, low), side(offer, high)));
                    [(Side::Buy, bid), (Side::Sell, offer)]
                };
                unanswered.insert((client, name.clone()));
                let orders = &mut mine[usize::from(client)];
                for (side, leaves) in parts.into_iter().filter(|(_, quantity)| *quantity > 0) {
                    let side_code = if side == Side::Buy { "1" } else { "2" };
                    owner.insert((client, format!("{name}/{side_code}")), orders.len());
                    let (fills, last) = (BTreeMap::new(), name.clone());
                    orders.push(Mine { side, last, fills, cumulative: 0, leaves, is_over: false });
                }
                quotes[usize::from(client)] = name;
            }
            Step::QuoteCancel { client, is_all } => {
                let newest = quotes[usize::from(client)].clone();
                if is_all {
                    world.send(client, &quote_cancel(4, None));
                } else if !newest.is_empty() {
                    world.send(client, &quote_cancel(5, Some(&newest)));
                } else {
                    continue;
                }
                quote_cancels[usize::from(client)] += 1;
            }
            Step::MassCancel { client, is_all } => {
                let name = format!("{client}C{number}");
                let kind =
                    if is_all { MassCancelRequestType::AllOrders } else { MassCancelRequestType::Security };
                let fields = OrderMassCancelRequestFields {
                    symbol: (!is_all).then_some(b"AAPL"),
                    ..OrderMassCancelRequestFields::new(name.as_bytes(), kind, time())
                };
                unanswered.insert((client, name.clone()));
                world.send(client, &message(b"q", 2, |writer| fields.write(writer)));
            }
            Step::Bust { which } => {
                let trades = world.exchange.counters().trades;
                // The same trade is not busted twice, whatever the exchange would do.
                if trades > 0 && busted.insert(which as u64 % trades) {
                    world.exchange.bust(which as u64 % trades + 1, world.now_ns);
                }
            }
            Step::Settle => world.settle(),
        }
        for (client, bytes) in &world.kept.to_clients[read..] {
            let (client, name) = (client.0, text(bytes, 11));
            match text(bytes, 35).as_str() {
                "AI" => {
                    let name = text(bytes, 117);
                    match text(bytes, 297).as_str() {
                        "4" | "17" => quote_cancels[usize::from(client)] -= 1,
                        status => {
                            assert!(unanswered.remove(&(client, name.clone())), "{name} is answered twice");
                            let sides = ["1", "2"].map(|side| owner.get(&(client, format!("{name}/{side}"))));
                            for side in sides.into_iter().flatten().filter(|_| status == "5") {
                                let order = &mut mine[usize::from(client)][*side];
                                (order.leaves, order.is_over) = (0, true);
                            }
                        }
                    }
                    continue;
                }
                "b" => {
                    assert_eq!(text(bytes, 297), "0");
                    continue;
                }
                "r" => {
                    assert_ne!(text(bytes, 531), "0");
                    assert!(unanswered.remove(&(client, name.clone())), "{name} is answered twice");
                    continue;
                }
                _ => {}
            }
            let side = format!("{name}/{}", text(bytes, 54));
            let is_of_quote = owner.contains_key(&(client, side.clone()));
            let order = if is_of_quote { owner[&(client, side)] } else { owner[&(client, name.clone())] };
            let order = &mut mine[usize::from(client)][order];
            match (text(bytes, 35).as_str(), text(bytes, 150).as_str()) {
                ("9", _) => {
                    assert!(unanswered.remove(&(client, name.clone())), "{name} is answered twice");
                    // A replace that is rejected gives the name back.
                    if order.last == name {
                        order.last = text(bytes, 41);
                    }
                }
                ("8", kind) => {
                    assert!(exec_ids.insert(text(bytes, 17)), "an ExecID comes twice");
                    let number = |tag| text(bytes, tag).parse::<i64>().unwrap();
                    let is_answer = kind == "0" || kind == "8" || !text(bytes, 41).is_empty();
                    if is_answer && !is_of_quote {
                        assert!(unanswered.remove(&(client, name.clone())), "{name} is answered twice");
                    }
                    match kind {
                        "F" => {
                            let price_e8 = (text(bytes, 31).parse::<f64>().unwrap() * 1e8).round() as i64;
                            order.fills.insert(text(bytes, 17), (number(32), price_e8));
                        }
                        "H" => assert!(order.fills.remove(&text(bytes, 19)).is_some(), "a bust of no fill"),
                        "8" => order.last = name.clone(),
                        _ => {}
                    }
                    order.cumulative = order.fills.values().map(|(quantity, _)| quantity).sum();
                    order.leaves = number(151);
                    order.is_over = matches!(text(bytes, 39).as_str(), "2" | "4" | "8" | "C");
                    assert_eq!(number(14), order.cumulative, "CumQty is the sum of the fills");
                    assert_eq!(text(bytes, 54), if order.side == Side::Buy { "1" } else { "2" });
                    let value: i64 = order.fills.values().map(|(quantity, price)| quantity * price).sum();
                    let average = value as f64 / order.cumulative.max(1) as f64 / 1e8;
                    assert!((text(bytes, 6).parse::<f64>().unwrap() - average).abs() < 1e-7);
                }
                other => panic!("{other:?}"),
            }
        }
        read = world.kept.to_clients.len();
    }
    assert_eq!(unanswered, BTreeSet::new(), "every request is answered");
    assert_eq!(quote_cancels, [0, 0], "every cancel of quotes is answered");
    assert!(world.kept.unmatched.is_empty(), "{:?}", world.kept.unmatched);
    let counters = world.translator.counters();
    assert_eq!((counters.unexpected, counters.missing_reports, counters.repeated_reports), (0, 0, 0));
    assert_eq!(counters.fills, world.exchange.counters().trades * 2, "every fill is reported once");

    // The clients' working orders are the exchange's.
    let working: usize = mine.iter().flatten().filter(|order| !order.is_over).count();
    assert_eq!(working, world.exchange.engine().orders());
    let states =
        world.translator.orders().filter(|(_, state)| *state != ExchangeToClientState::Ended).count();
    assert_eq!(states, working);
    let leaves: i64 = mine.iter().flatten().filter(|order| !order.is_over).map(|order| order.leaves).sum();
    let known: i64 = world.translator.orders().map(|(order, _)| i64::from(order.leaves)).sum();
    assert_eq!(leaves, known);
    world.kept.to_clients.iter().map(|(client, bytes)| (client.0, bytes.clone())).collect()
}

fn two() -> [ClientSettings; 2] {
    [ClientSettings::default(), ClientSettings::default()]
}

/// What an order has that its venue and its reports must have.
#[derive(Clone, Debug)]
struct Terms {
    name: String,
    side: Side,
    quantity: i64,
    ticks: i64,
    time_in_force: TimeInForce,
    is_numbered: bool,
}

fn terms() -> impl Strategy<Value = Terms> {
    let sides = prop_oneof![Just(Side::Buy), Just(Side::Sell), Just(Side::SellShort)];
    let lasting = prop_oneof![
        Just(TimeInForce::Day),
        Just(TimeInForce::ImmediateOrCancel),
        Just(TimeInForce::FillOrKill),
        Just(TimeInForce::GoodTillDate),
    ];
    ("[A-Za-z0-9_-]{1,20}", sides, 1i64..1_000_000, 1i64..20_000_000, lasting, any::<bool>()).prop_map(
        |(name, side, quantity, ticks, time_in_force, is_numbered)| Terms {
            name,
            side,
            quantity,
            ticks,
            time_in_force,
            is_numbered,
        },
    )
}

fn shorting() -> ClientSettings {
    let limits = RiskLimits { may_sell_short: true, ..RiskLimits::default() };
    ClientSettings { limits, ..ClientSettings::default() }
}

/// Sends an order, reads the venue's bytes by `native`, and compares with the reports of the exchange behind.
fn carries_the_same<V: Venue>(
    terms: &Terms,
    mut world: World<V>,
    native: impl Fn(&[u8]) -> (Side, i64, i64, TimeInForce),
) {
    let price_e8 = terms.ticks * E8 / 100;
    let is_till = terms.time_in_force == TimeInForce::GoodTillDate;
    let message = new(&NewOrderSingleFields {
        time_in_force: Some(terms.time_in_force),
        expire_time: is_till.then_some(NanosecondsSinceEpoch(START_NS + 600 * SECOND_NS)),
        ..limit(&terms.name, terms.side, terms.quantity, price_e8)
    });
    world.send(0, &message);
    assert_eq!(native(&world.kept.to_venue[0]), (terms.side, price_e8, terms.quantity, terms.time_in_force));
    world.settle();
    let kinds: Vec<String> = world.kept.to_clients.iter().map(|(_, bytes)| text(bytes, 150)).collect();
    let rests = matches!(terms.time_in_force, TimeInForce::Day | TimeInForce::GoodTillDate);
    assert_eq!(kinds, if rests { &["0"][..] } else { &["0", "C"] });
    for (_, report) in &world.kept.to_clients {
        for tag in [11, 54, 44, 38, 59, 40, 55, 126] {
            assert_eq!(text(report, tag), text(&message, tag), "tag {tag}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn no_order_is_lost_or_doubled_and_every_fill_is_reported_once(
        steps in prop::collection::vec(step(), 1..80), is_numbered in any::<bool>()
    ) {
        let naming = if is_numbered { Naming::Numbered } else { Naming::ClOrdId };
        let replies = run(&steps, World::new(&two(), naming), false);
        prop_assert_eq!(replies, run(&steps, World::new(&two(), naming), true), "the same inputs give the same outputs");
    }

    #[test]
    fn the_same_holds_for_ouch(steps in prop::collection::vec(step(), 1..80)) {
        let is_taken = |step: &Step| !matches!(step, Step::Quote { .. } | Step::QuoteCancel { .. });
        let steps: Vec<Step> = steps.into_iter().filter(is_taken).collect();
        let replies = run(&steps, World::ouch(&two()), true);
        prop_assert_eq!(replies, run(&steps, World::ouch(&two()), false), "the same inputs give the same outputs");
    }

    #[test]
    fn an_order_and_its_reports_carry_the_same_id_side_price_quantity_and_time_in_force(terms in terms()) {
        let naming = if terms.is_numbered { Naming::Numbered } else { Naming::ClOrdId };
        carries_the_same(&terms, World::new(&[shorting()], naming), |bytes| {
            let Ok(native::Message::NewOrder(order)) = native::Message::decode(bytes) else { panic!("no order") };
            assert_eq!(order.client_order_id().trimmed() == terms.name.as_bytes(), !terms.is_numbered);
            let side = match order.side() {
                native::Side::Buy => Side::Buy,
                // Native orders have no mark of a short sell.
                _ if terms.side == Side::SellShort => Side::SellShort,
                _ => Side::Sell,
            };
            let time_in_force = match order.tif() {
                native::Tif::Day => TimeInForce::Day,
                native::Tif::ImmediateOrCancel => TimeInForce::ImmediateOrCancel,
                native::Tif::FillOrKill => TimeInForce::FillOrKill,
                native::Tif::GoodTillDate => TimeInForce::GoodTillDate,
                other => panic!("{other:?}"),
            };
            (side, order.limit_price().0, i64::from(order.order_qty()), time_in_force)
        });
    }

    #[test]
    fn the_same_is_carried_to_ouch_and_back(terms in terms()) {
        carries_the_same(&terms, World::ouch(&[shorting()]), |bytes| {
            let Ok(inbound::Message::EnterOrder(order)) = inbound::Message::decode(bytes) else { panic!("no order") };
            let side = match order.side() {
                inbound::Side::Buy => Side::Buy,
                inbound::Side::SellShort => Side::SellShort,
                _ => Side::Sell,
            };
            let has_minimum = !order.appendage().is_empty();
            let time_in_force = match order.time_in_force() {
                inbound::TimeInForce::Day => TimeInForce::Day,
                inbound::TimeInForce::ImmediateOrCancel if has_minimum => TimeInForce::FillOrKill,
                inbound::TimeInForce::ImmediateOrCancel => TimeInForce::ImmediateOrCancel,
                inbound::TimeInForce::GoodTillTime => TimeInForce::GoodTillDate,
                other => panic!("{other:?}"),
            };
            (side, order.price().0 as i64 * 10_000, i64::from(order.quantity()), time_in_force)
        });
    }

    #[test]
    fn no_bytes_of_a_client_or_of_the_venue_make_a_translator_panic(
        pieces in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 0..200)), 0..20),
        at in any::<usize>(),
        with in any::<u8>(),
    ) {
        let mut translator = open(
            Default::default(), &[ClientSettings::default()], &Settings { most_orders: 4, most_requests: 8, ..Settings::default() });
        let mut kept = Kept::default();
        let mut order = new(&limit("A1", Side::Buy, 100, 10 * E8));
        let place = at % order.len();
        order[place] = with;
        translator.client_bytes(ClientIndex(0), &order, START_NS, &mut kept);
        translator.client_bytes(ClientIndex(9), &order, START_NS, &mut kept);
        for (is_client, bytes) in pieces {
            if is_client {
                translator.client_bytes(ClientIndex(0), &bytes, START_NS, &mut kept);
            } else {
                translator.venue_report(&bytes, &mut kept);
                translator.venue_unsent(&bytes, START_NS, &mut kept);
            }
        }
        prop_assert!(translator.order(ClientIndex(0), &id("A1")).is_some() || kept.to_venue.is_empty());
    }
}
