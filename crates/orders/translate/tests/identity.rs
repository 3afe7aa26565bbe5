//! Whose an order is, and what it is called: long ids, traders behind a session, and drop copies.

#![allow(clippy::unwrap_used)] // a failure here is a failed test

#[allow(dead_code, reason = "each test file uses its part")]
mod traders;

use tapeworks_fix_wire::order_entry::{
    MassCancelRequestType, NewOrderSingleFields, OrderMassCancelRequestFields, OrderStatusRequestFields, Side,
};
use tapeworks_fix_wire::{Fields, Writer, message_type};
use tapeworks_order_session::fix::ROUTING;
use tapeworks_translate::ids::ClientIndex;
use tapeworks_translate::{ClientSettings, MillenniumSettings, Naming, Venue};
use tapeworks_wire::NanosecondsSinceEpoch;
use traders::{
    CAPACITY, E8, Kept, SECOND_NS, START_NS, World, cancel, fields, id, limit, message, new, open, quote,
    replace, text,
};

/// Two ids of 36 characters that differ in the last one alone.
const UUIDS: [&str; 2] = ["f81d4fae-7dec-11d0-a765-00a0c91e6bf6", "f81d4fae-7dec-11d0-a765-00a0c91e6bf7"];

fn two() -> Vec<ClientSettings> {
    vec![ClientSettings::default(), ClientSettings::default()]
}

fn only(replies: &[(u16, Vec<u8>)]) -> &[u8] {
    let [(_, reply)] = replies else { panic!("{} replies", replies.len()) };
    reply
}

/// A message once more, with these fields in its header.
fn routed(sent: &[u8], route: &[(u32, &str)]) -> Vec<u8> {
    message(message_type(sent), 2, |writer: &mut Writer<'_>| {
        for (tag, text) in route {
            writer.text(*tag, text.as_bytes());
        }
        for field in Fields::new(sent).map_while(Result::ok) {
            if ![8, 9, 10, 34, 35, 49, 52, 56].contains(&field.tag) {
                writer.copied(field.tag, field.value);
            }
        }
    })
}

fn long_ids_name_orders<V: Venue>(mut world: World<V>) {
    let [first, second] = UUIDS;
    for id in UUIDS {
        let accepted = world.take(0, &new(&limit(id, Side::Buy, 100, 10 * E8)));
        assert_eq!(fields(only(&accepted), &[11, 150, 39]), format!("11={id} 150=0 39=0"));
    }
    let repeated = world.take(0, &new(&limit(first, Side::Buy, 100, 10 * E8)));
    assert_eq!(text(only(&repeated), 58), "The ClOrdID is in use");
    let longest = "N".repeat(64);
    let replaced = world.take(0, &replace(&longest, first, Side::Buy, 50, 9 * E8));
    assert_eq!(fields(only(&replaced), &[11, 41, 150]), format!("11={longest} 41={first} 150=5"));
    let cancelled = world.take(0, &cancel("C", second, Side::Buy));
    assert_eq!(fields(only(&cancelled), &[11, 41, 150]), format!("11=C 41={second} 150=4"));
    let (order, _) = world.translator.order(ClientIndex(0), &id(&longest)).unwrap();
    assert_eq!((order.leaves, order.id.text()), (50, longest.as_bytes()));
}

#[test]
fn an_id_of_up_to_64_characters_names_an_order() {
    long_ids_name_orders(World::new(&two(), Naming::Numbered));
    long_ids_name_orders(World::ouch(&two()));
}

#[test]
fn an_id_that_is_too_long_is_refused_and_the_reason_says_by_whom() {
    let reject = |world: &mut World, id: &str| {
        let refused = world.take(0, &new(&limit(id, Side::Buy, 100, 10 * E8)));
        fields(only(&refused), &[35, 371, 373, 58])
    };
    let mut numbered = World::new(&two(), Naming::Numbered);
    let by_gateway =
        "35=3 371=11 373=5 58=An id needs 1 to 64 printable characters and no trailing space: tag 11";
    assert_eq!(reject(&mut numbered, &"X".repeat(65)), by_gateway);
    // Where the venue gets the id, it has room for 20 characters.
    let mut named = World::new(&two(), Naming::ClOrdId);
    let by_venue = "35=3 371=11 373=5 58=The venue does not take the value of tag 11";
    assert_eq!(reject(&mut named, &"X".repeat(21)), by_venue);
    assert_eq!(reject(&mut named, &"X".repeat(65)), by_gateway);
    let accepted = named.take(0, &new(&limit(&"X".repeat(20), Side::Buy, 100, 10 * E8)));
    assert_eq!(text(only(&accepted), 150), "0");
}

const ROUTE: [(u32, &str); 3] = [(50, "ann"), (115, "FUND"), (116, "desk 7")];
const BACK: [u32; 3] = [57, 128, 129];
const OF_ROUTE: &str = "57=ann 128=FUND 129=desk 7";

#[test]
fn a_trader_behind_the_session_gets_the_reports_of_their_orders() {
    for naming in [Naming::ClOrdId, Naming::Numbered] {
        let mut world = World::new(&two(), naming);
        let shown = |replies: &[(u16, Vec<u8>)]| -> Vec<(u16, String)> {
            replies.iter().map(|(client, bytes)| (*client, fields(bytes, &BACK))).collect()
        };
        let of_route = |client: u16| (client, OF_ROUTE.to_owned());
        let order = new(&limit("A1", Side::Buy, 100, 10 * E8));
        assert_eq!(shown(&world.take(0, &routed(&order, &ROUTE))), [of_route(0)]);
        // Fills have no request of their own.
        let fills = world.take(1, &new(&limit("B1", Side::Sell, 40, 10 * E8)));
        assert_eq!(shown(&fills), [(1, String::new()), of_route(0), (1, String::new())]);
        // A cancel by another trader is answered to that one, and the order stays the first one's.
        let refused = world.take(0, &routed(&cancel("C0", "A1", Side::Sell), &[(50, "bob")]));
        assert_eq!(shown(&refused), [(0, "57=bob".to_owned())]);
        let replaced = world.take(0, &routed(&replace("A2", "A1", Side::Buy, 90, 10 * E8), &[(50, "bob")]));
        assert_eq!(shown(&replaced), [(0, "57=bob".to_owned())]);
        let cancelled = world.take(0, &cancel("C1", "A2", Side::Buy));
        assert_eq!(shown(&cancelled), [of_route(0)]);
        // Nobody is behind the next order.
        assert_eq!(shown(&world.take(0, &new(&limit("A3", Side::Buy, 1, E8)))), [(0, String::new())]);
    }
}

#[test]
fn rejects_name_the_trader_behind_the_session() {
    let mut world = World::new(&two(), Naming::Numbered);
    let routed_reject = |world: &mut World, sent: &[u8]| {
        let replies = world.take(0, &routed(sent, &ROUTE));
        let reply = only(&replies);
        assert_eq!(fields(reply, &BACK), OF_ROUTE, "{}", String::from_utf8_lossy(reply));
        text(reply, 35)
    };
    let unknown = NewOrderSingleFields { symbol: Some(b"XXXX"), ..limit("A1", Side::Buy, 1, E8) };
    let off_tick = limit("A1", Side::Buy, 1, E8 + 1);
    assert_eq!(routed_reject(&mut world, &new(&unknown)), "j");
    assert_eq!(routed_reject(&mut world, &new(&off_tick)), "8");
    assert_eq!(routed_reject(&mut world, &new(&limit(&"X".repeat(65), Side::Buy, 1, E8))), "3");
    assert_eq!(routed_reject(&mut world, &cancel("C1", "A9", Side::Buy)), "9");
    let mass = OrderMassCancelRequestFields {
        symbol: Some(b"AAPL"),
        ..OrderMassCancelRequestFields::new(
            b"M1",
            MassCancelRequestType::Security,
            NanosecondsSinceEpoch(START_NS),
        )
    };
    assert_eq!(routed_reject(&mut world, &message(b"q", 2, |writer| mass.write(writer))), "r");
    let replies = world.take(0, &routed(&quote("Q1", Some((10, 9 * E8)), Some((10, 11 * E8))), &ROUTE));
    assert!(replies.len() >= 2);
    assert!(replies.iter().all(|(_, reply)| fields(reply, &BACK) == OF_ROUTE));
    // The venue's own reject of a new order.
    world.translator.venue_disconnected();
    assert_eq!(routed_reject(&mut world, &new(&limit("A5", Side::Buy, 1, E8))), "j");
}

#[test]
fn routing_tags_are_bounded() {
    let mut world = World::new(&two(), Naming::Numbered);
    let long = "x".repeat(65);
    let refused = world.take(0, &routed(&new(&limit("A1", Side::Buy, 1, E8)), &[(50, "ann"), (115, &long)]));
    assert_eq!(fields(only(&refused), &[35, 371, 373, 57, 128]), "35=3 371=115 373=5 57=ann");
    for number in 0..1_024 {
        let trader = format!("trader {number}");
        let order = new(&limit(&format!("B{number}"), Side::Buy, 1, E8));
        assert_eq!(text(only(&world.take(0, &routed(&order, &[(50, &trader)]))), 150), "0");
    }
    let order = new(&limit("C1", Side::Buy, 1, E8));
    let refused = world.take(0, &routed(&order, &[(50, "one too many")]));
    let words =
        "150=8 58=Too many combinations of SenderSubID, OnBehalfOfCompID and other routing tags today";
    assert_eq!(fields(only(&refused), &[150, 58]), words);
    // A cancel is sent all the same, and answered to the order's trader.
    let cancelled =
        world.take(0, &routed(&cancel("C2", "B7", Side::Buy), &[(50, "one too many"), (115, &long)]));
    assert_eq!(fields(only(&cancelled), &[150, 57, 128]), "150=4 57=trader 7");
    // Those that are known go on, and so does another client.
    assert_eq!(text(only(&world.take(0, &routed(&order, &[(50, "trader 7")]))), 57), "trader 7");
    assert_eq!(text(only(&world.take(1, &routed(&order, &[(50, "one more")]))), 57), "one more");
    // The next day has as many again. One order less makes room.
    world.take(0, &cancel("C3", "B8", Side::Buy));
    world.now_ns += 86_400 * SECOND_NS;
    let order = new(&limit("D1", Side::Buy, 1, E8));
    let message = routed(&order, &[(50, "of tomorrow")]);
    world.translator.client_bytes(ClientIndex(0), &message, world.now_ns, &mut world.kept);
    assert!(world.translator.order(ClientIndex(0), &id("D1")).is_some());
}

#[test]
fn a_store_of_a_version_that_kept_no_routing_tags_is_replayed() {
    let mut translator = open(MillenniumSettings::default(), &two(), &CAPACITY);
    let mut kept = Kept::default();
    translator.begin_replay();
    let order = routed(&new(&limit("A1", Side::Buy, 1, E8)), &[(50, &"x".repeat(65))]);
    assert!(translator.replay_request(ClientIndex(0), &order, START_NS, &mut kept));
    translator.end_replay();
    assert!(translator.order(ClientIndex(0), &id("A1")).is_some());
}

#[test]
fn a_status_report_goes_to_the_trader_of_the_request_or_of_the_order() {
    let mut world = World::new(&two(), Naming::Numbered);
    world.take(0, &routed(&new(&limit("A1", Side::Buy, 100, 10 * E8)), &ROUTE));
    let request = message(b"H", 2, |writer| {
        OrderStatusRequestFields { cl_ord_id: Some(b"A1"), ..OrderStatusRequestFields::new(Side::Buy) }
            .write(writer);
    });
    assert_eq!(fields(only(&world.take(0, &request)), &BACK), OF_ROUTE);
    assert_eq!(fields(only(&world.take(0, &routed(&request, &[(50, "bob")]))), &BACK), "57=bob");
}

#[test]
fn each_routing_tag_comes_back_and_none_is_in_a_drop_copy() {
    let mut world = World::new(&two(), Naming::Numbered);
    let sent = ROUTING.map(|(tag, _)| (tag, format!("of {tag}")));
    let route = sent.each_ref().map(|(tag, text)| (*tag, text.as_str()));
    let expected = ROUTING.map(|(tag, of_reply)| format!("{of_reply}=of {tag}")).join(" ");
    let tags = ROUTING.map(|(_, of_reply)| of_reply);
    // One that is taken, and one that a tick refuses.
    for (id, price_e8) in [("A1", E8), ("A2", 1)] {
        let replies = world.take(0, &routed(&new(&limit(id, Side::Buy, 100, price_e8)), &route));
        assert_eq!(fields(only(&replies), &tags), expected);
        let copy = &world.kept.copies[1];
        let of_routing = |tag: &u32| ROUTING.iter().any(|(of_request, _)| of_request == tag);
        let tags: Vec<u32> = Fields::new(copy).map(|field| field.unwrap().tag).filter(of_routing).collect();
        assert_eq!(tags, [115, 116]);
        assert_eq!(fields(copy, &[115, 116]), "115=B 116=of 50");
    }
}

#[test]
fn a_drop_copy_says_whose_order_it_is() {
    let mut world = World::new(&two(), Naming::Numbered);
    let order = NewOrderSingleFields { account: Some(b"HOUSE"), ..limit("A1", Side::Buy, 100, 10 * E8) };
    let off_tick = NewOrderSingleFields { account: Some(b"HOUSE"), ..limit("A2", Side::Buy, 100, 1) };
    for (order, kind) in [(order, "0"), (off_tick, "8")] {
        world.take(0, &routed(&new(&order), &ROUTE));
        for copy in &world.kept.copies {
            assert_eq!(
                fields(copy, &[115, 116, 1, 150, 57, 128, 129]),
                format!("115=B 116=ann 1=HOUSE 150={kind}")
            );
        }
    }
}
