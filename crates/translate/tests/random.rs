//! Random requests through the translator, native bytes, the simulated exchange and back, with a model of the clients.

#![allow(clippy::unwrap_used)] // a failure here is a failed test
#![allow(dead_code, reason = "the world has helpers for the other tests")]

mod traders;

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use tapeworks_translate::ids::ClientIndex;
use tapeworks_translate::{ClientSettings, ExchangeToClientState, Naming, Settings, Venue};
use tapeworks_wire::fix::order_entry::{NewOrderSingleFields, Side, TimeInForce};
use traders::{E8, Kept, START_NS, World, cancel, id, limit, new, open, replace, text};

/// A step of a client.
#[derive(Clone, Copy, Debug)]
enum Step {
    New { client: u16, is_buy: bool, quantity: i64, ticks: i64, time_in_force: TimeInForce },
    Cancel { client: u16, which: usize },
    Replace { client: u16, which: usize, quantity: i64, ticks: i64 },
    Bust { which: usize },
    Settle,
}

fn step() -> impl Strategy<Value = Step> {
    let lasting = prop_oneof![
        3 => Just(TimeInForce::Day),
        1 => Just(TimeInForce::ImmediateOrCancel),
        1 => Just(TimeInForce::FillOrKill),
    ];
    prop_oneof![
        5 => (0u16..2, any::<bool>(), 1i64..50, 0i64..4, lasting).prop_map(
            |(client, is_buy, quantity, ticks, time_in_force)| Step::New { client, is_buy, quantity, ticks, time_in_force }
        ),
        2 => (0u16..2, any::<usize>()).prop_map(|(client, which)| Step::Cancel { client, which }),
        3 => (0u16..2, any::<usize>(), 1i64..50, 0i64..4)
            .prop_map(|(client, which, quantity, ticks)| Step::Replace { client, which, quantity, ticks }),
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
fn run<V: Venue>(steps: &[Step], mut world: World<V>) -> Vec<(u16, Vec<u8>)> {
    // By client: orders by their first ClOrdID, requests to orders.
    let mut mine: [Vec<Mine>; 2] = [Vec::new(), Vec::new()];
    let mut owner: BTreeMap<(u16, String), usize> = BTreeMap::new();
    let mut unanswered: BTreeSet<(u16, String)> = BTreeSet::new();
    let mut exec_ids = BTreeSet::new();
    let (mut read, mut number, mut busted) = (0, 0, BTreeSet::new());
    for step in steps.iter().chain([&Step::Settle]) {
        number += 1;
        let price_e8 = |ticks: i64| 10 * E8 + ticks * E8 / 100;
        match *step {
            Step::New { client, is_buy, quantity, ticks, time_in_force } => {
                let name = format!("{client}N{number}");
                let side = if is_buy { Side::Buy } else { Side::Sell };
                let order = NewOrderSingleFields {
                    time_in_force: Some(time_in_force),
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
            let order = &mut mine[usize::from(client)][owner[&(client, name.clone())]];
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
                    if is_answer {
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

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn no_order_is_lost_or_doubled_and_every_fill_is_reported_once(
        steps in prop::collection::vec(step(), 1..80), is_numbered in any::<bool>()
    ) {
        let naming = if is_numbered { Naming::Numbered } else { Naming::ClOrdId };
        let replies = run(&steps, World::new(&two(), naming));
        prop_assert_eq!(replies, run(&steps, World::new(&two(), naming)), "the same inputs give the same outputs");
    }

    #[test]
    fn the_same_holds_for_ouch(steps in prop::collection::vec(step(), 1..80)) {
        let is_taken = |step: &Step| {
            !matches!(step, Step::New { time_in_force: TimeInForce::FillOrKill, .. })
        };
        let steps: Vec<Step> = steps.into_iter().filter(is_taken).collect();
        let replies = run(&steps, World::ouch(&two()));
        prop_assert_eq!(replies, run(&steps, World::ouch(&two())), "the same inputs give the same outputs");
    }

    #[test]
    fn an_order_and_its_report_carry_the_same_id_side_price_quantity_and_time_in_force(
        name in "[A-Za-z0-9_-]{1,20}",
        is_buy in any::<bool>(),
        quantity in 1i64..1_000_000,
        ticks in 1i64..100_000_000,
        is_numbered in any::<bool>(),
    ) {
        let naming = if is_numbered { Naming::Numbered } else { Naming::ClOrdId };
        let mut world = World::new(&[ClientSettings::default()], naming);
        let side = if is_buy { Side::Buy } else { Side::Sell };
        let order = limit(&name, side, quantity, ticks * E8 / 100);
        let message = new(&NewOrderSingleFields { time_in_force: Some(TimeInForce::Day), ..order });
        let replies = world.take(0, &message);
        prop_assert_eq!(replies.len(), 1);
        for tag in [11, 54, 44, 38, 59, 40, 55] {
            prop_assert_eq!(text(&replies[0].1, tag), text(&message, tag), "tag {}", tag);
        }
        prop_assert_eq!(text(&replies[0].1, 150), "0");
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
        translator.client_message(ClientIndex(0), &order, START_NS, &mut kept);
        translator.client_message(ClientIndex(9), &order, START_NS, &mut kept);
        for (is_client, bytes) in pieces {
            if is_client {
                translator.client_message(ClientIndex(0), &bytes, START_NS, &mut kept);
            } else {
                translator.venue_report(&bytes, &mut kept);
                translator.venue_unsent(&bytes, START_NS, &mut kept);
            }
        }
        prop_assert!(translator.order(ClientIndex(0), &id("A1")).is_some() || kept.to_venue.is_empty());
    }
}
