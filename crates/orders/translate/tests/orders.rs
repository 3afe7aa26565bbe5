//! Each row of the mapping tables, with the simulated exchange behind the translator.

#![allow(clippy::unwrap_used)] // a failure here is a failed test

mod traders;

use tapeworks_fix_wire::Writer;
use tapeworks_fix_wire::order_entry::{
    HeaderFields, MassCancelRequestType, NewOrderSingleFields, OrdType, OrderCancelReplaceRequestFields,
    OrderCapacity, OrderMassCancelRequestFields, OrderStatusRequestFields, PartyFields, Side, TimeInForce,
};
use tapeworks_matching::SymbolIndex;
use tapeworks_matching::orders::PartitionHalt;
use tapeworks_translate::ids::ClientIndex;
use tapeworks_translate::{
    ClientSettings, ExchangeToClientState, FixVersion, MillenniumSettings, Naming, RejectReason, RiskLimits,
    Settings, TopOfBook,
};
use tapeworks_wire::millennium::native::{
    Capacity, ClientId, ExecutingTrader, InvestmentDecisionMaker, Message, NewOrderFields, OrderType,
    PassiveOnlyOrder, RejectFields, Side as NativeSide, Tif, message_length,
};
use tapeworks_wire::{Ascii, Decimal, NanosecondsSinceEpoch};
use traders::{
    CAPACITY, E8, Kept, SECOND_NS, START_NS, World, cancel, fields, id, limit, mass_quote, message, new,
    open, quote, quote_cancel, replace, text, time,
};

/// The translator with the table of OUCH, and its refusals.
mod ouch {
    use tapeworks_fix_wire::order_entry::{
        MassCancelRequestType, NewOrderSingleFields, OrdType, OrderCapacity, OrderMassCancelRequestFields,
        Side, TimeInForce,
    };
    use tapeworks_translate::{ClientSettings, Ouch, OuchSettings, RiskLimits, Translator};
    use tapeworks_wire::nasdaq::ouch50::appendage::{OptionalField, OptionalFields};
    use tapeworks_wire::nasdaq::ouch50::inbound::{self, Capacity, Display, Message};
    use tapeworks_wire::nasdaq::ouch50::outbound::{
        self, AiqCanceledFields, CancelOrderReason, CancelPendingFields, CanceledFields, LiquidityFlag,
        OrderModifiedFields, OrderPriorityUpdateFields, OrderRestatedFields, OrderRestatedReason,
        TradeCorrectionFields, TradeCorrectionReason,
    };
    use tapeworks_wire::{Ascii, Decimal, NanosecondsSinceEpoch, NanosecondsSinceMidnight};

    use super::traders::{CAPACITY, quote, reference, time};
    use super::{
        ClientIndex, E8, Kept, SECOND_NS, START_NS, World, cancel, fields, limit, message, new, replace,
        text, two,
    };

    /// The message of OUCH that a FIX order becomes, or the reject's fields.
    fn sent(order: &NewOrderSingleFields<'_>) -> Result<Vec<u8>, String> {
        let limits = RiskLimits { may_sell_short: true, ..RiskLimits::default() };
        let client = ClientSettings { limits, ..ClientSettings::default() };
        let venue = Ouch::new(OuchSettings::default());
        let mut translator = Translator::new(venue, reference(), &[client], &CAPACITY);
        translator.venue_connected();
        translator.venue_recovered();
        let mut kept = Kept::default();
        translator.client_bytes(ClientIndex(0), &new(order), START_NS, &mut kept);
        match kept.to_venue.pop() {
            Some(bytes) => Ok(bytes),
            None => Err(fields(&kept.to_clients[0].1, &[35, 371, 373, 380])),
        }
    }

    #[test]
    fn every_row_of_the_table_is_mapped_or_refused() {
        let plain = limit("A1", Side::Buy, 100, 10 * E8 + 1_000_000);
        let order = NewOrderSingleFields {
            side: Side::SellShort,
            min_qty: Some(Decimal(10 * E8)),
            display_qty: Some(Decimal(20 * E8)),
            order_capacity: Some(OrderCapacity::RisklessPrincipal),
            time_in_force: Some(TimeInForce::ImmediateOrCancel),
            ..plain
        };
        let bytes = sent(&order).unwrap();
        let Ok(Message::EnterOrder(view)) = Message::decode(&bytes) else { panic!("no order") };
        assert_eq!((view.user_ref_num(), view.side(), view.quantity()), (1, inbound::Side::SellShort, 100));
        assert_eq!((view.symbol(), view.price()), (Ascii(*b"AAPL    "), Decimal(100_100)));
        assert_eq!(
            (view.time_in_force(), view.capacity()),
            (inbound::TimeInForce::ImmediateOrCancel, Capacity::Riskless)
        );
        assert_eq!((view.display(), view.cl_ord_id().trimmed()), (Display::Visible, &b"0000000001"[..]));
        let optional: Vec<_> = OptionalFields::new(view.appendage()).map(Result::unwrap).collect();
        assert_eq!(optional, [OptionalField::MinQty(10), OptionalField::MaxFloor(20)]);

        let market = NewOrderSingleFields { ord_type: OrdType::Market, price: None, ..plain };
        let bytes = sent(&market).unwrap();
        let Ok(Message::EnterOrder(view)) = Message::decode(&bytes) else { panic!("no order") };
        assert_eq!((view.price(), view.capacity()), (Decimal(i32::MAX as u64), Capacity::Other));

        let refused = |order: NewOrderSingleFields<'_>, expected: &str| {
            assert_eq!(sent(&order).err().as_deref(), Some(expected));
        };
        let stop = NewOrderSingleFields {
            ord_type: OrdType::Stop,
            price: None,
            stop_px: Some(Decimal(E8)),
            ..plain
        };
        refused(stop, "35=3 371=40 373=5");
        refused(
            NewOrderSingleFields { time_in_force: Some(TimeInForce::AtTheClose), ..plain },
            "35=3 371=59 373=5",
        );
        let till = |expire_ns| NewOrderSingleFields {
            time_in_force: Some(TimeInForce::GoodTillDate),
            expire_time: Some(NanosecondsSinceEpoch(expire_ns)),
            ..plain
        };
        refused(till(START_NS), "35=3 371=126 373=5");
        let bytes = sent(&till(START_NS + 90 * SECOND_NS)).unwrap();
        let Ok(Message::EnterOrder(view)) = Message::decode(&bytes) else { panic!("no order") };
        let optional: Vec<_> = OptionalFields::new(view.appendage()).map(Result::unwrap).collect();
        assert_eq!(view.time_in_force(), inbound::TimeInForce::GoodTillTime);
        assert_eq!(optional, [OptionalField::ExpireTime(90)]);
        let all = NewOrderSingleFields { time_in_force: Some(TimeInForce::FillOrKill), ..plain };
        let bytes = sent(&all).unwrap();
        let Ok(Message::EnterOrder(view)) = Message::decode(&bytes) else { panic!("no order") };
        let optional: Vec<_> = OptionalFields::new(view.appendage()).map(Result::unwrap).collect();
        assert_eq!(view.time_in_force(), inbound::TimeInForce::ImmediateOrCancel);
        assert_eq!(optional, [OptionalField::MinQty(100)]);
        refused(NewOrderSingleFields { side: Side::Cross, ..plain }, "35=3 371=54 373=5");
        refused(NewOrderSingleFields { price: Some(Decimal(-E8)), ..plain }, "35=8");
        refused(NewOrderSingleFields { account: Some(b"X"), ..plain }, "35=j 380=0");
    }

    #[test]
    fn a_cancel_that_comes_too_late_is_rejected_though_the_venue_is_silent() {
        let mut world = World::ouch(&two());
        world.take(0, &new(&limit("A1", Side::Buy, 100, 10 * E8)));
        world.take(0, &replace("A2", "A1", Side::Buy, 90, 10 * E8));
        let before = world.kept.to_clients.len();
        world.send(1, &new(&limit("B1", Side::Sell, 90, 10 * E8)));
        world.send(0, &cancel("A3", "A2", Side::Buy));
        world.settle();
        let mine = world.kept.to_clients[before..].iter().filter(|(client, _)| client.0 == 0);
        let got: Vec<String> =
            mine.map(|(_, bytes)| fields(bytes, &[35, 11, 41, 150, 39, 14, 102])).collect();
        assert_eq!(got, ["35=8 11=A2 150=F 39=2 14=90", "35=9 11=A3 41=A2 39=2 102=0"]);
    }

    #[test]
    fn a_mass_cancel_becomes_a_cancel_of_each_order_and_a_quote_is_refused() {
        let mut world = World::ouch(&two());
        world.take(0, &new(&limit("A1", Side::Buy, 100, 10 * E8)));
        world.take(
            0,
            &new(&NewOrderSingleFields { symbol: Some(b"MSFT"), ..limit("A2", Side::Buy, 1, 10 * E8) }),
        );
        world.take(1, &new(&limit("B1", Side::Buy, 100, 10 * E8)));
        let request = |kind, id: &'static [u8]| {
            let symbol = (kind == MassCancelRequestType::Security).then_some(&b"AAPL"[..]);
            let fields = OrderMassCancelRequestFields {
                symbol,
                ..OrderMassCancelRequestFields::new(id, kind, time())
            };
            message(b"q", 2, |writer| fields.write(writer))
        };
        let shown = |replies: &[(u16, Vec<u8>)]| -> Vec<String> {
            replies.iter().map(|(_, bytes)| fields(bytes, &[35, 11, 530, 531, 533, 150, 58])).collect()
        };
        let one = world.take(0, &request(MassCancelRequestType::Security, b"M1"));
        assert_eq!(
            shown(&one),
            ["35=r 11=M1 530=1 531=1 533=1", "35=8 11=A1 150=4 58=Cancelled by the gateway",]
        );
        let again = world.take(0, &request(MassCancelRequestType::AllOrders, b"M1"));
        assert_eq!(
            fields(&again[0].1, &[35, 11, 530, 531, 532]),
            "35=r 11=M1 530=7 531=0 532=99",
            "the id is in use"
        );
        let all = world.take(0, &request(MassCancelRequestType::AllOrders, b"M2"));
        assert_eq!(
            shown(&all),
            ["35=r 11=M2 530=7 531=7 533=1", "35=8 11=A2 150=4 58=Cancelled by the gateway",]
        );
        let none = world.take(0, &request(MassCancelRequestType::AllOrders, b"M3"));
        assert_eq!(shown(&none), ["35=r 11=M3 530=7 531=7 533=0"]);
        assert_eq!(world.exchange.engine().orders(), 1, "the other client's");
        let refused = world.take(0, &quote("Q1", Some((1, 10 * E8)), None));
        assert_eq!(fields(&refused[0].1, &[35, 372, 380]), "35=j 372=S 380=3");
    }

    /// What a client gets for a message of the venue.
    fn reported(world: &mut World<Ouch>, message: &[u8], tags: &[u32]) -> String {
        let before = world.kept.to_clients.len();
        world.translator.venue_report(message, &mut world.kept);
        fields(&world.kept.to_clients[before].1, tags)
    }

    #[test]
    fn each_message_of_the_venue_about_an_order_becomes_its_exec_type() {
        let mut world = World::ouch(&two());
        world.take(0, &new(&limit("A1", Side::Buy, 100, 10 * E8)));
        let trade = world.take(1, &new(&limit("B1", Side::Sell, 40, 10 * E8)));
        let fill = trade.iter().find(|(client, bytes)| *client == 0 && text(bytes, 150) == "F").unwrap();
        let (timestamp, user_ref_num) = (NanosecondsSinceMidnight(1), 1);
        let correction = TradeCorrectionFields {
            timestamp,
            user_ref_num,
            quantity: 30,
            price: Decimal(90_000),
            liquidity_flag: LiquidityFlag::Added,
            match_number: 1,
            trade_correction_reason: TradeCorrectionReason::AdjustedToNav,
            cl_ord_id: Ascii(*b"0000000001    "),
        };
        let corrected = reported(&mut world, &correction.encode(), &[150, 39, 19, 32, 31, 14, 6, 151]);
        assert_eq!(corrected, format!("150=G 39=1 19={} 32=30 31=9 14=30 6=9 151=60", text(&fill.1, 17)));
        let pending = CancelPendingFields { timestamp, user_ref_num }.encode();
        assert_eq!(reported(&mut world, &pending, &[150, 39, 151, 14]), "150=6 39=6 151=60 14=30");
        let priority = OrderPriorityUpdateFields {
            timestamp,
            user_ref_num,
            price: Decimal(99_000),
            display: outbound::Display::Visible,
            order_reference_number: 77,
        };
        let priority = reported(&mut world, &priority.encode(), &[150, 39, 378, 44, 37, 151]);
        assert_eq!(priority, "150=D 39=1 378=3 44=9.9 37=77 151=60");
        let modified =
            OrderModifiedFields { timestamp, user_ref_num, side: outbound::Side::Buy, quantity: 50 };
        assert_eq!(
            reported(&mut world, &modified.encode(), &[150, 378, 151, 38]),
            "150=D 378=99 151=50 38=80"
        );
        let restated = OrderRestatedFields {
            timestamp,
            user_ref_num,
            order_restated_reason: OrderRestatedReason::RefreshOfDisplay,
            appendage_length: 0,
            appendage: &[],
        };
        let mut bytes = [0; 64];
        let length = restated.encode_into(&mut bytes).unwrap();
        assert_eq!(reported(&mut world, &bytes[..length], &[150, 378, 151]), "150=D 378=99 151=50");
        let cancelled = CanceledFields {
            timestamp,
            user_ref_num,
            quantity: 50,
            cancel_order_reason: CancelOrderReason::Supervisory,
        };
        let cancelled = reported(&mut world, &cancelled.encode(), &[11, 41, 150, 39, 151, 14, 58]);
        assert_eq!(cancelled, "11=A1 150=4 39=4 151=0 14=30 58=Supervisory");
        assert_eq!(world.translator.counters().unreadable, 0);
    }

    #[test]
    fn no_two_reports_have_an_exec_id_though_they_are_of_one_time_or_of_two_days_of_the_venue() {
        let mut world = World::ouch(&two());
        let accepted = world.take(0, &new(&limit("A1", Side::Buy, 100, 10 * E8)));
        let date = text(&accepted[0].1, 17).split_once('-').unwrap().0.to_owned();
        // The order would have traded with two of its owner's.
        let lost = AiqCanceledFields {
            timestamp: NanosecondsSinceMidnight(5),
            user_ref_num: 1,
            decrement_shares: 10,
            order_cancel_reason: Ascii(*b"Q"),
            quantity_prevented_from_trading: 10,
            execution_price: Decimal(90_000),
            liquidity_flag: LiquidityFlag::Added,
        };
        let ids = [(); 3].map(|()| reported(&mut world, &lost.encode(), &[17, 151]));
        let id = |id: &str, left: u32| format!("17={date}-{id} 151={left}");
        assert_eq!(ids, [id("0-D1.5", 90), id("0-D1.5.1", 80), id("0-D1.5.2", 70)]);
        world.translator.new_day(0);
        let later = AiqCanceledFields { timestamp: NanosecondsSinceMidnight(6), ..lost };
        assert_eq!(reported(&mut world, &later.encode(), &[17, 151]), id("0.1-D1.6", 60));
    }

    #[test]
    fn a_cancel_that_was_not_sent_is_rejected_and_the_gateways_own_is_sent_again() {
        let mut world = World::ouch(&two());
        world.take(0, &new(&limit("A1", Side::Buy, 100, 10 * E8)));
        let before = world.kept.to_clients.len();
        world.send(0, &cancel("A2", "A1", Side::Buy));
        world.send(0, &cancel("A3", "A1", Side::Buy));
        for request in std::mem::take(&mut world.kept.to_venue) {
            assert!(world.translator.venue_unsent(&request, START_NS, &mut world.kept));
        }
        let replies = world.kept.to_clients[before..].iter().map(|(_, bytes)| fields(bytes, &[35, 11, 41]));
        assert_eq!(replies.collect::<Vec<_>>(), ["35=9 11=A3 41=A1", "35=9 11=A2 41=A1"]);

        world.translator.cancel_orders(ClientIndex(0), START_NS, &mut world.kept);
        let request = world.kept.to_venue.pop().unwrap();
        assert!(world.translator.venue_unsent(&request, START_NS, &mut world.kept));
        assert!(world.translator.has_to_send_again());
        world.translator.send_again(&mut world.kept);
        world.settle();
        let (_, last) = world.kept.to_clients.last().unwrap();
        assert_eq!(fields(last, &[35, 11, 150, 39]), "35=8 11=A1 150=4 39=4");
    }
}

const SHOWN: [u32; 8] = [11, 41, 150, 39, 32, 31, 151, 14];

fn two() -> Vec<ClientSettings> {
    vec![ClientSettings::default(), ClientSettings::default()]
}

fn shown(replies: &[(u16, Vec<u8>)]) -> Vec<(u16, String)> {
    replies.iter().map(|(client, bytes)| (*client, fields(bytes, &SHOWN))).collect()
}

fn only(replies: &[(u16, Vec<u8>)]) -> &[u8] {
    let [(_, reply)] = replies else { panic!("{} replies", replies.len()) };
    reply
}

#[test]
fn an_order_trades_and_both_clients_get_each_fill_once() {
    let mut world = World::new(&two(), Naming::ClOrdId);
    let replies = world.take(0, &new(&limit("A1", Side::Buy, 100, 10 * E8)));
    assert_eq!(shown(&replies), [(0, "11=A1 150=0 39=0 151=100 14=0".to_owned())]);
    let accepted = only(&replies);
    assert_eq!(
        fields(accepted, &[35, 54, 38, 40, 44, 59, 55, 6]),
        "35=8 54=1 38=100 40=2 44=10 59=0 55=AAPL 6=0"
    );
    assert!(text(accepted, 17).starts_with("20240229-1-"), "{}", text(accepted, 17));
    let replies = world.take(1, &new(&limit("B1", Side::Sell, 150, 9 * E8)));
    let expected = [
        (1, "11=B1 150=0 39=0 151=150 14=0".to_owned()),
        (0, "11=A1 150=F 39=2 32=100 31=10 151=0 14=100".to_owned()),
        (1, "11=B1 150=F 39=1 32=100 31=10 151=50 14=100".to_owned()),
    ];
    assert_eq!(shown(&replies), expected);
    assert_eq!(fields(&replies[1].1, &[6, 851]), "6=10 851=1");
    assert_eq!(fields(&replies[2].1, &[6, 851]), "6=10 851=2");
    assert_ne!(text(&replies[1].1, 17), text(&replies[2].1, 17));
    assert_eq!(world.translator.counters().fills, 2);
}

#[test]
fn a_cancel_and_a_replace_name_the_request_that_they_answer() {
    let mut world = World::new(&two(), Naming::Numbered);
    world.take(0, &new(&limit("A1", Side::Buy, 100, 10 * E8)));
    let replies = world.take(0, &replace("A2", "A1", Side::Buy, 80, 11 * E8));
    assert_eq!(shown(&replies), [(0, "11=A2 41=A1 150=5 39=0 151=80 14=0".to_owned())]);
    assert_eq!(fields(only(&replies), &[38, 44]), "38=80 44=11");
    let stale = world.take(0, &cancel("A3", "A1", Side::Buy));
    assert_eq!(fields(only(&stale), &[35, 11, 41, 102, 434]), "35=9 11=A3 41=A1 102=1 434=1");
    let replies = world.take(0, &cancel("A4", "A2", Side::Buy));
    assert_eq!(shown(&replies), [(0, "11=A4 41=A2 150=4 39=4 151=0 14=0".to_owned())]);
    let late = world.take(0, &cancel("A5", "A2", Side::Buy));
    assert_eq!(fields(only(&late), &[35, 11, 41, 39, 102, 434]), "35=9 11=A5 41=A2 39=4 102=0 434=1");
}

#[test]
fn chained_replaces_in_flight_are_answered_in_order() {
    let mut world = World::new(&two(), Naming::ClOrdId);
    world.take(0, &new(&limit("A1", Side::Buy, 100, 10 * E8)));
    let before = world.kept.to_clients.len();
    world.send(0, &replace("A2", "A1", Side::Buy, 90, 10 * E8));
    world.send(0, &replace("A3", "A2", Side::Buy, 80, 10 * E8));
    world.send(0, &cancel("A4", "A3", Side::Buy));
    let status =
        OrderStatusRequestFields { cl_ord_id: Some(b"A1"), ..OrderStatusRequestFields::new(Side::Buy) };
    world.send(0, &message(b"H", 2, |writer| status.write(writer)));
    world.settle();
    let replies: Vec<String> =
        world.kept.to_clients[before..].iter().map(|(_, bytes)| fields(bytes, &SHOWN)).collect();
    let expected = [
        "11=A1 150=I 39=6 151=100 14=0",
        "11=A2 41=A1 150=5 39=0 151=90 14=0",
        "11=A3 41=A2 150=5 39=0 151=80 14=0",
        "11=A4 41=A3 150=4 39=4 151=0 14=0",
    ];
    assert_eq!(replies, expected);
}

#[test]
fn a_replace_of_one_in_flight_leaves_what_that_one_changes() {
    let mut world = World::new(&two(), Naming::Numbered);
    let order = NewOrderSingleFields { account: Some(b"OLD"), ..limit("A1", Side::Buy, 100, 10 * E8) };
    world.take(0, &new(&order));
    let first = OrderCancelReplaceRequestFields {
        account: Some(b"NEW"),
        order_qty: Some(Decimal(90 * E8)),
        price: Some(Decimal(10 * E8)),
        ..OrderCancelReplaceRequestFields::new(b"A1", b"A2", Side::Buy, time(), OrdType::Limit)
    };
    world.send(0, &message(b"G", 2, |writer| first.write(writer)));
    world.send(0, &replace("A3", "A2", Side::Buy, 80, 10 * E8));
    let Some(Ok(Message::OrderCancelReplaceRequest(sent))) =
        world.kept.to_venue.last().map(|bytes| Message::decode(bytes))
    else {
        panic!("no replace")
    };
    assert_eq!(sent.account().trimmed(), b"NEW");
    world.settle();
    let (_, last) = world.kept.to_clients.last().unwrap();
    assert_eq!(fields(last, &[11, 41, 150, 1]), "11=A3 41=A2 150=5 1=NEW");
}

#[test]
fn a_fill_that_crosses_a_cancel_is_reported_and_the_cancel_rejected() {
    let mut world = World::new(&two(), Naming::ClOrdId);
    world.take(0, &new(&limit("A1", Side::Buy, 100, 10 * E8)));
    let before = world.kept.to_clients.len();
    world.send(1, &new(&limit("B1", Side::Sell, 100, 10 * E8)));
    world.send(0, &cancel("A2", "A1", Side::Buy));
    world.settle();
    let mine = world.kept.to_clients[before..].iter().filter(|(client, _)| client.0 == 0);
    let replies: Vec<String> =
        mine.map(|(_, bytes)| fields(bytes, &[35, 11, 41, 150, 39, 14, 102])).collect();
    assert_eq!(replies, ["35=8 11=A1 150=F 39=2 14=100", "35=9 11=A2 41=A1 39=2 102=0"]);
}

#[test]
fn a_bust_suspension_expiry_and_unsolicited_cancel_reach_the_client() {
    let mut world = World::new(&two(), Naming::ClOrdId);
    world.take(0, &new(&limit("A1", Side::Buy, 100, 10 * E8)));
    let trade = world.take(1, &new(&limit("B1", Side::Sell, 40, 10 * E8)));
    let execution = text(&trade[1].1, 17);
    let before = world.kept.to_clients.len();
    assert!(world.exchange.bust(1, world.now_ns));
    world.settle();
    let busts: Vec<(u16, String)> = world.kept.to_clients[before..]
        .iter()
        .map(|(client, bytes)| (client.0, fields(bytes, &[11, 150, 39, 14, 6])))
        .collect();
    assert!(busts.contains(&(0, "11=A1 150=H 39=0 14=0 6=0".to_owned())), "{busts:?}");
    let bust = world.kept.to_clients[before..].iter().find(|(client, _)| client.0 == 0).unwrap();
    assert_eq!(text(&bust.1, 19), execution);

    let before = world.kept.to_clients.len();
    assert!(world.exchange.suspend(SymbolIndex(0), true, world.now_ns));
    world.settle();
    assert!(world.exchange.suspend(SymbolIndex(0), false, world.now_ns));
    world.settle();
    let suspended: Vec<String> =
        world.kept.to_clients[before..].iter().map(|(_, bytes)| fields(bytes, &[11, 150, 39])).collect();
    assert_eq!(suspended, ["11=A1 150=9 39=9", "11=A1 150=D 39=0"]);

    let before = world.kept.to_clients.len();
    world.exchange.end_day(world.now_ns);
    world.settle();
    let ended = &world.kept.to_clients[before].1;
    assert_eq!(fields(ended, &[11, 41, 150, 39, 151]), "11=A1 150=C 39=C 151=0");
    let (_, state) = world.translator.order(ClientIndex(0), &id("A1")).unwrap();
    assert_eq!(state, ExchangeToClientState::Ended);
    assert_eq!((world.kept.unmatched.len(), world.translator.counters().unexpected), (0, 0));
}

#[test]
fn a_mass_cancel_is_answered_and_each_order_cancelled() {
    let mut world = World::new(&two(), Naming::ClOrdId);
    world.take(0, &new(&limit("A1", Side::Buy, 100, 10 * E8)));
    world.take(0, &new(&limit("A2", Side::Buy, 100, 9 * E8)));
    let request = |kind| OrderMassCancelRequestFields {
        symbol: Some(b"AAPL"),
        ..OrderMassCancelRequestFields::new(b"M1", kind, NanosecondsSinceEpoch(START_NS))
    };
    let security = request(MassCancelRequestType::Security);
    let replies = world.take(0, &message(b"q", 2, |writer| security.write(writer)));
    let got: Vec<String> =
        replies.iter().map(|(_, bytes)| fields(bytes, &[35, 11, 530, 531, 150, 39])).collect();
    assert_eq!(got, ["35=r 11=M1 530=1 531=1", "35=8 11=A1 150=4 39=4", "35=8 11=A2 150=4 39=4"]);
    let all = request(MassCancelRequestType::AllOrders);
    let refused = world.take(0, &message(b"q", 2, |writer| all.write(writer)));
    assert_eq!(fields(only(&refused), &[35, 11, 531, 532]), "35=r 11=M1 531=0 532=99", "the id is in use");
    let all = OrderMassCancelRequestFields { cl_ord_id: b"M2", ..all };
    let refused = world.take(0, &message(b"q", 2, |writer| all.write(writer)));
    assert_eq!(fields(only(&refused), &[35, 371, 373]), "35=3 371=55 373=5", "all is not of a symbol");
    let product = OrderMassCancelRequestFields {
        mass_cancel_request_type: MassCancelRequestType::Product,
        symbol: None,
        ..all
    };
    let refused = world.take(0, &message(b"q", 2, |writer| product.write(writer)));
    assert_eq!(fields(only(&refused), &[35, 371, 373]), "35=3 371=530 373=5");
}

#[test]
fn a_mass_cancel_that_the_venue_does_not_have_cancels_each_order_of_the_client() {
    let mut world = World::new(&two(), Naming::ClOrdId);
    world.take(0, &new(&limit("A1", Side::Buy, 100, 10 * E8)));
    let other = NewOrderSingleFields { symbol: Some(b"MSFT"), ..limit("A2", Side::Sell, 5, 20 * E8) };
    world.take(0, &new(&other));
    world.take(1, &new(&limit("B1", Side::Buy, 100, 9 * E8)));
    let request = |id: &'static [u8], kind, segment| {
        let fields = OrderMassCancelRequestFields {
            market_segment_id: segment,
            ..OrderMassCancelRequestFields::new(id, kind, NanosecondsSinceEpoch(START_NS))
        };
        message(b"q", 2, |writer| fields.write(writer))
    };
    let tags = [35, 11, 530, 531, 533, 1300, 150, 58];
    let shown = |replies: &[(u16, Vec<u8>)]| -> Vec<(u16, String)> {
        replies.iter().map(|(client, bytes)| (*client, fields(bytes, &tags))).collect()
    };
    let of_segment = MassCancelRequestType::MarketSegment;
    let unknown = world.take(0, &request(b"M1", of_segment, Some(b"XXXX")));
    assert_eq!(fields(only(&unknown), &[35, 371, 373]), "35=3 371=1300 373=5");
    let unnamed = world.take(0, &request(b"M1", of_segment, None));
    assert_eq!(fields(only(&unnamed), &[35, 380]), "35=j 380=5");
    let replies = world.take(0, &request(b"M1", of_segment, Some(b"SEG2")));
    assert_eq!(
        shown(&replies),
        [
            (0, "35=r 11=M1 530=9 531=9 533=1 1300=SEG2".to_owned()),
            (0, "35=8 11=A2 150=4 58=Cancelled by the gateway".to_owned()),
        ]
    );
    let replies = world.take(0, &request(b"M2", MassCancelRequestType::AllOrders, None));
    assert_eq!(
        shown(&replies),
        [
            (0, "35=r 11=M2 530=7 531=7 533=1".to_owned()),
            (0, "35=8 11=A1 150=4 58=Cancelled by the gateway".to_owned()),
        ]
    );
    assert_eq!(world.exchange.engine().orders(), 1, "the other client's");
}

/// The types of the messages of a client, with what quotes have.
fn quoted(replies: &[(u16, Vec<u8>)]) -> Vec<String> {
    replies.iter().map(|(_, bytes)| fields(bytes, &[35, 117, 297, 300, 11, 54, 150, 39, 32, 151])).collect()
}

#[test]
fn a_quote_becomes_two_orders_that_trade_and_that_the_next_quote_replaces() {
    let mut world = World::new(&two(), Naming::ClOrdId);
    let replies = world.take(0, &quote("Q1", Some((100, 10 * E8)), Some((50, 11 * E8))));
    assert_eq!(
        quoted(&replies),
        ["35=AI 117=Q1 297=0", "35=8 11=Q1 54=1 150=0 39=0 151=100", "35=8 11=Q1 54=2 150=0 39=0 151=50",]
    );
    let replies = world.take(1, &new(&limit("B1", Side::Sell, 30, 10 * E8)));
    assert!(quoted(&replies).contains(&"35=8 11=Q1 54=1 150=F 39=1 32=30 151=70".to_owned()));
    let replies = world.take(0, &quote("Q2", None, Some((20, 12 * E8))));
    assert_eq!(
        quoted(&replies),
        [
            "35=8 11=Q1 54=1 150=4 39=4 151=0",
            "35=8 11=Q1 54=2 150=4 39=4 151=0",
            "35=AI 117=Q2 297=0",
            "35=8 11=Q2 54=2 150=0 39=0 151=20",
        ]
    );
    assert_eq!(world.exchange.engine().orders(), 1);
    assert_eq!(world.translator.open_orders(ClientIndex(0)), 1);
    let crossed = world.take(0, &quote("Q3", Some((5, 12 * E8)), Some((5, 12 * E8))));
    assert_eq!(quoted(&crossed), ["35=AI 117=Q3 297=5 300=99"]);
    assert!(text(&crossed[0].1, 58).starts_with("Venue code "));
    let again = world.take(0, &quote("Q2", None, Some((20, 12 * E8))));
    assert_eq!(quoted(&again), ["35=AI 117=Q2 297=5 300=6"]);
    assert_eq!(text(&again[0].1, 58), "The ClOrdID is in use");
    let cancelled = world.take(0, &quote_cancel(5, Some("Q2")));
    assert_eq!(quoted(&cancelled), ["35=AI 117=Q2 297=17", "35=8 11=Q2 54=2 150=4 39=4 151=0"]);
    let unknown = world.take(0, &quote_cancel(5, Some("Q9")));
    assert_eq!(quoted(&unknown), ["35=AI 117=Q9 297=9 300=5"]);
    let by_order = world.take(0, &cancel("C1", "Q2", Side::Sell));
    assert_eq!(fields(only(&by_order), &[35, 102]), "35=9 102=1", "a QuoteCancel cancels quotes");
    let counters = world.translator.counters();
    assert_eq!((counters.unexpected, counters.unknown_orders, world.translator.unanswered()), (0, 0, 0));
}

#[test]
fn a_mass_cancel_leaves_the_orders_of_other_clients_alone() {
    let mut world = World::new(&two(), Naming::ClOrdId);
    world.take(0, &new(&limit("A1", Side::Buy, 100, 10 * E8)));
    world.take(1, &new(&limit("B1", Side::Buy, 100, 9 * E8)));
    let request = |id: &'static [u8]| {
        let fields = OrderMassCancelRequestFields {
            symbol: Some(b"AAPL"),
            ..OrderMassCancelRequestFields::new(
                id,
                MassCancelRequestType::Security,
                NanosecondsSinceEpoch(START_NS),
            )
        };
        message(b"q", 2, |writer| fields.write(writer))
    };
    let shown = |replies: &[(u16, Vec<u8>)]| -> Vec<String> {
        replies
            .iter()
            .map(|(client, bytes)| format!("{client} {}", fields(bytes, &[35, 11, 531, 150])))
            .collect()
    };
    // The venue would cancel the other client's orders too, so the gateway cancels each of this client's.
    let replies = world.take(0, &request(b"M1"));
    assert_eq!(shown(&replies), ["0 35=r 11=M1 531=1", "0 35=8 11=A1 150=4"]);
    assert_eq!(world.exchange.engine().orders(), 1, "the other client's");
    world.take(1, &cancel("B2", "B1", Side::Buy));
    world.take(0, &new(&limit("A2", Side::Buy, 100, 10 * E8)));
    let replies = world.take(0, &request(b"M2"));
    assert_eq!(shown(&replies), ["0 35=r 11=M2 531=1", "0 35=8 11=A2 150=4"]);
}

#[test]
fn a_mass_cancel_takes_the_quotes_of_the_client_too() {
    for kind in [
        MassCancelRequestType::Security,
        MassCancelRequestType::AllOrders,
        MassCancelRequestType::MarketSegment,
    ] {
        for (has_order, is_alone) in [(true, true), (false, true), (true, false)] {
            let mut world = World::new(&two(), Naming::ClOrdId);
            world.take(0, &quote("Q1", Some((100, 10 * E8)), Some((50, 11 * E8))));
            if has_order {
                world.take(0, &new(&limit("A1", Side::Buy, 100, 10 * E8)));
            }
            if !is_alone {
                world.take(1, &new(&limit("B1", Side::Buy, 100, 9 * E8)));
            }
            let request = OrderMassCancelRequestFields {
                symbol: (kind == MassCancelRequestType::Security).then_some(b"AAPL"),
                market_segment_id: (kind == MassCancelRequestType::MarketSegment).then_some(b"SEG1"),
                ..OrderMassCancelRequestFields::new(b"M1", kind, NanosecondsSinceEpoch(START_NS))
            };
            let replies = world.take(0, &message(b"q", 2, |writer| request.write(writer)));
            let shown: Vec<_> = replies.iter().map(|(_, bytes)| fields(bytes, &[35, 533, 150])).collect();
            let affected = if has_order { 3 } else { 2 };
            assert_eq!(shown[0], format!("35=r 533={affected}"), "{kind:?}");
            assert_eq!(shown[1..], vec!["35=8 150=4"; affected], "{kind:?}");
            assert_eq!(world.translator.open_orders(ClientIndex(0)), 0);
            assert_eq!(
                world.exchange.engine().orders(),
                usize::from(!is_alone),
                "{kind:?}: the other client's"
            );
        }
    }
}

#[test]
fn a_replace_that_was_rejected_in_doubt_and_done_all_the_same_is_what_the_order_is() {
    let mut world = World::new(&two(), Naming::Numbered);
    world.take(0, &new(&limit("A1", Side::Buy, 100, 10 * E8)));
    world.send(0, &replace("A2", "A1", Side::Buy, 80, 11 * E8));
    let late = std::mem::take(&mut world.kept.to_venue);
    world.translator.venue_disconnected();
    world.translator.venue_connected();
    world.translator.venue_recovered();
    let before = world.kept.to_clients.len();
    world.translator.settle(START_NS, &mut world.kept);
    world.kept.to_venue.extend(late);
    world.settle();
    let replies = world.kept.to_clients[before..].iter();
    let replies = replies.map(|(_, bytes)| fields(bytes, &[35, 11, 41, 150, 38, 44, 151]));
    let expected = ["35=9 11=A2 41=A1", "35=8 11=A2 41=A1 150=5 38=80 44=11 151=80"];
    assert_eq!(replies.collect::<Vec<_>>(), expected);
    let replies = world.take(0, &cancel("A3", "A2", Side::Buy));
    assert_eq!(fields(only(&replies), &[11, 41, 150, 39]), "11=A3 41=A2 150=4 39=4");
}

#[test]
fn the_gateways_own_cancels_that_were_in_doubt_are_sent_anew() {
    let mut world = World::new(&two(), Naming::Numbered);
    world.take(0, &new(&limit("A1", Side::Buy, 100, 10 * E8)));
    world.translator.cancel_orders(ClientIndex(0), START_NS, &mut world.kept);
    // They are lost with the connection.
    assert_eq!(std::mem::take(&mut world.kept.to_venue).len(), 1);
    world.translator.venue_disconnected();
    world.translator.venue_connected();
    world.translator.venue_recovered();
    world.translator.settle(START_NS, &mut world.kept);
    world.translator.cancel_orders(ClientIndex(0), START_NS, &mut world.kept);
    assert_eq!(world.kept.to_venue.len(), 1, "it is sent once");
    world.settle();
    assert_eq!(world.exchange.engine().orders(), 0);
    assert_eq!(world.translator.open_orders(ClientIndex(0)), 0);
}

#[test]
fn the_gateways_own_cancel_follows_an_order_that_a_replace_has_renamed_before() {
    let mut world = World::new(&two(), Naming::Numbered);
    world.send(0, &new(&limit("A1", Side::Buy, 100, 10 * E8)));
    world.send(0, &replace("A2", "A1", Side::Buy, 80, 11 * E8));
    // Both are in doubt, and were taken by the venue before the cancel.
    let taken = std::mem::take(&mut world.kept.to_venue);
    world.translator.venue_disconnected();
    world.translator.venue_connected();
    world.translator.venue_recovered();
    world.translator.settle(START_NS, &mut world.kept);
    world.kept.to_venue.splice(0..0, taken);
    world.settle();
    let replies = world.kept.to_clients.iter().map(|(_, bytes)| fields(bytes, &[35, 11, 41, 150, 39]));
    let expected = ["35=8 11=A1 150=0 39=0", "35=8 11=A2 41=A1 150=5 39=0", "35=8 11=A2 150=4 39=4"];
    assert_eq!(replies.collect::<Vec<_>>(), expected);
    assert_eq!((world.exchange.engine().orders(), world.translator.open_orders(ClientIndex(0))), (0, 0));
    assert_eq!(world.translator.counters().own_cancels_failed, 0);
}

#[test]
fn a_cancel_of_the_gateways_own_that_the_venue_rejects_is_counted_if_the_order_works() {
    let mut world = World::new(&two(), Naming::Numbered);
    world.take(0, &new(&limit("A1", Side::Buy, 100, 10 * E8)));
    let halt = PartitionHalt { partition: 1, at_message: 0, duration_ns: SECOND_NS };
    world.exchange.halt(halt, world.now_ns);
    world.translator.cancel_orders(ClientIndex(0), START_NS, &mut world.kept);
    world.settle();
    assert_eq!(world.translator.counters().own_cancels_failed, 1);
    // One that comes too late is none.
    world.now_ns += SECOND_NS;
    world.translator.cancel_orders(ClientIndex(0), START_NS, &mut world.kept);
    world.send(0, &cancel("A2", "A1", Side::Buy));
    world.settle();
    assert_eq!(world.translator.open_orders(ClientIndex(0)), 0);
    assert_eq!(world.translator.counters().own_cancels_failed, 1);
}

#[test]
fn a_quote_that_is_not_answered_is_cancelled_with_the_quotes_of_its_instrument() {
    let mut world = World::new(&two(), Naming::Numbered);
    world.send(0, &quote("Q1", Some((100, 10 * E8)), Some((50, 11 * E8))));
    world.send(0, &quote_cancel(4, None));
    world.settle();
    let all: Vec<(u16, Vec<u8>)> =
        world.kept.to_clients.iter().map(|(client, bytes)| (client.0, bytes.clone())).collect();
    assert_eq!(
        quoted(&all),
        [
            "35=AI 117=NONE 297=4",
            "35=AI 117=Q1 297=0",
            "35=8 11=Q1 54=1 150=0 39=0 151=100",
            "35=8 11=Q1 54=2 150=0 39=0 151=50",
            "35=8 11=Q1 54=1 150=4 39=4 151=0",
            "35=8 11=Q1 54=2 150=4 39=4 151=0",
        ]
    );
    assert_eq!((world.exchange.engine().orders(), world.kept.unmatched.len()), (0, 0));
}

#[test]
fn a_mass_quote_is_sent_whole_or_not_at_all() {
    let mut world = World::new(&two(), Naming::ClOrdId);
    let entries = [("E1", "AAPL", 10 * E8), ("E2", "MSFT", 20 * E8)];
    let replies = world.take(0, &mass_quote("MQ1", &entries));
    assert_eq!(
        quoted(&replies),
        [
            "35=b 117=MQ1 297=0",
            "35=AI 117=E1 297=0",
            "35=8 11=E1 54=1 150=0 39=0 151=10",
            "35=8 11=E1 54=2 150=0 39=0 151=10",
            "35=AI 117=E2 297=0",
            "35=8 11=E2 54=1 150=0 39=0 151=10",
            "35=8 11=E2 54=2 150=0 39=0 151=10",
        ]
    );
    let refused = |world: &mut World, entries: &[(&str, &str, i64)], expected: &str| {
        let replies = world.take(0, &mass_quote("MQ2", entries));
        assert_eq!(fields(only(&replies), &[35, 117, 297, 300, 371, 373, 380]), expected);
    };
    refused(&mut world, &[("E3", "AAPL", 10 * E8), ("E3", "MSFT", 20 * E8)], "35=3 371=299 373=5");
    refused(&mut world, &[("E3", "AAPL", 10 * E8), ("E1", "MSFT", 20 * E8)], "35=b 117=MQ2 297=5 300=6");
    refused(&mut world, &[("E3", "AAPL", 10 * E8), ("E4", "NONE", 20 * E8)], "35=j 380=2");
    assert_eq!(world.translator.counters().requests, 2, "nothing of a refused message is sent");
    let all = world.take(0, &quote_cancel(4, None));
    assert_eq!(all.len(), 5);
    assert_eq!(world.exchange.engine().orders(), 0);
}

#[test]
fn quotes_of_a_client_count_for_its_limits_and_fix_4_2_has_its_own_answer() {
    let limits = RiskLimits { most_open_orders: 3, most_quantity: 60, ..RiskLimits::default() };
    let client = ClientSettings { version: FixVersion::Fix42, limits, ..ClientSettings::default() };
    let mut world = World::new(&[client], Naming::ClOrdId);
    let replies = world.take(0, &quote("Q1", Some((50, 10 * E8)), Some((50, 11 * E8))));
    assert_eq!(fields(&replies[0].1, &[35, 117, 297]), "35=b 117=Q1 297=0");
    let large = world.take(0, &quote("Q2", Some((50, 10 * E8)), Some((61, 11 * E8))));
    assert_eq!(fields(only(&large), &[35, 117, 297, 300]), "35=b 117=Q2 297=5 300=3");
    let many = world.take(0, &quote("Q2", Some((50, 10 * E8)), Some((50, 11 * E8))));
    assert_eq!(fields(only(&many), &[35, 117, 297, 300]), "35=b 117=Q2 297=5 300=3");
    world.translator.halt();
    let halted = world.take(0, &quote("Q2", Some((5, 10 * E8)), None));
    assert_eq!(fields(only(&halted), &[35, 297, 58]), "35=b 297=5 58=Trading is halted");
    let cancelled = world.take(0, &quote_cancel(4, None));
    assert_eq!(cancelled.len(), 3, "cancels pass");
}

/// The connection breaks and is made again, and the venue's missed reports are in. Returns what was sent before, and is on its way still.
fn reconnect(world: &mut World) -> Vec<Vec<u8>> {
    let sent = std::mem::take(&mut world.kept.to_venue);
    world.translator.venue_disconnected();
    world.translator.venue_connected();
    world.translator.venue_recovered();
    world.translator.settle(world.now_ns, &mut world.kept);
    sent
}

#[test]
fn a_quote_in_doubt_is_cancelled_if_it_came_and_rejected_if_not() {
    for comes in [false, true] {
        let mut world = World::new(&two(), Naming::ClOrdId);
        world.send(0, &quote("Q1", Some((100, 10 * E8)), Some((50, 11 * E8))));
        let sent = reconnect(&mut world);
        assert_eq!(world.kept.to_clients.len(), 0, "its report may be on its way");
        if comes {
            world.kept.to_venue.splice(0..0, sent);
        }
        world.settle();
        let all: Vec<(u16, Vec<u8>)> =
            world.kept.to_clients.iter().map(|(client, bytes)| (client.0, bytes.clone())).collect();
        let came = [
            "35=AI 117=Q1 297=0",
            "35=8 11=Q1 54=1 150=0 39=0 151=100",
            "35=8 11=Q1 54=2 150=0 39=0 151=50",
            "35=8 11=Q1 54=1 150=4 39=4 151=0",
            "35=8 11=Q1 54=2 150=4 39=4 151=0",
        ];
        let expected = if comes { &came[..] } else { &["35=AI 117=Q1 297=5 300=99"] };
        assert_eq!(quoted(&all), expected);
        assert_eq!(world.exchange.engine().orders(), 0, "{comes}");
        assert_eq!(world.translator.open_orders(ClientIndex(0)), 0);
        assert_eq!((world.translator.unanswered(), world.kept.unmatched.len()), (0, 0));
    }
}

#[test]
fn requests_in_doubt_whose_reports_are_late_are_not_rejected() {
    for (naming, comes) in
        [Naming::ClOrdId, Naming::Numbered].into_iter().flat_map(|naming| [(naming, false), (naming, true)])
    {
        let mut world = World::new(&two(), naming);
        world.take(0, &new(&limit("A1", Side::Buy, 100, 10 * E8)));
        world.take(1, &new(&limit("B1", Side::Buy, 100, 9 * E8)));
        let before = world.kept.to_clients.len();
        world.send(0, &replace("A2", "A1", Side::Buy, 80, 11 * E8));
        world.send(1, &cancel("B2", "B1", Side::Buy));
        world.send(0, &new(&limit("A3", Side::Buy, 10, 8 * E8)));
        world.send(0, &cancel("A4", "A3", Side::Buy));
        // The venue says that the recovery is complete before it has made the reports.
        let sent = reconnect(&mut world);
        assert_eq!(
            world.kept.to_venue.len(),
            2,
            "a cancel of the new order, and one probe of the instrument"
        );
        assert_eq!(world.kept.to_clients.len(), before, "their reports may be on their way");
        if comes {
            world.kept.to_venue.splice(0..0, sent);
        }
        world.settle();
        let replies = world.kept.to_clients[before..].iter();
        let mut replies: Vec<String> =
            replies.map(|(_, reply)| fields(reply, &[35, 11, 41, 150, 58])).collect();
        replies.sort();
        let never = "58=The venue did not get the request before the connection broke";
        let expected = if comes {
            let of = ["A2 41=A1 150=5", "A3 150=0", "A4 41=A3 150=4", "B2 41=B1 150=4"];
            of.map(|of| format!("35=8 11={of}"))
        } else {
            let of = ["8 11=A3 150=8", "9 11=A2 41=A1", "9 11=A4 41=A3", "9 11=B2 41=B1"];
            of.map(|of| format!("35={of} {never}"))
        };
        assert_eq!(replies, expected, "{naming:?}");
        assert_eq!(world.exchange.engine().orders(), if comes { 1 } else { 2 });
        assert_eq!((world.translator.unanswered(), world.kept.unmatched.len()), (0, 0));
        assert_eq!(world.translator.counters().own_cancels_failed, 0);
    }
}

#[test]
fn each_instrument_with_requests_in_doubt_has_its_probe() {
    let mut world = World::new(&two(), Naming::Numbered);
    let order = |id| limit(id, Side::Buy, 100, 10 * E8);
    world.take(0, &new(&order("A1")));
    world.take(0, &new(&NewOrderSingleFields { symbol: Some(b"MSFT"), ..order("A2") }));
    let before = world.kept.to_clients.len();
    world.send(0, &replace("A3", "A1", Side::Buy, 80, 11 * E8));
    world.send(0, &cancel("A4", "A2", Side::Buy));
    reconnect(&mut world);
    // The probe of the one is not taken by the session, which breaks again: both are sent anew.
    let probes = std::mem::take(&mut world.kept.to_venue);
    assert_eq!(probes.len(), 2);
    assert!(world.translator.venue_unsent(&probes[0], START_NS, &mut world.kept));
    assert!(world.translator.has_to_send_again());
    world.translator.send_again(&mut world.kept);
    assert_eq!(world.kept.to_venue, [probes[0].clone()], "it is sent again");
    reconnect(&mut world);
    assert!(!world.translator.has_to_send_again());
    assert_eq!((world.kept.to_venue.len(), world.kept.to_clients.len()), (2, before));
    // The answer to one probe says nothing of the other instrument.
    let other = world.kept.to_venue.remove(1);
    world.settle();
    let replies = &world.kept.to_clients[before..];
    assert_eq!(replies.len(), 1);
    assert_eq!(fields(&replies[0].1, &[35, 11, 41]), "35=9 11=A3 41=A1");
    world.kept.to_venue.push(other);
    world.settle();
    let replies = &world.kept.to_clients[before + 1..];
    assert_eq!(replies.len(), 1);
    assert_eq!(fields(&replies[0].1, &[35, 11, 41]), "35=9 11=A4 41=A2");
    assert_eq!((world.translator.unanswered(), world.kept.unmatched.len()), (0, 0));
    assert_eq!(world.exchange.engine().orders(), 2);
}

#[test]
fn a_probe_that_the_venue_refuses_altogether_settles_what_is_in_doubt() {
    let mut world = World::new(&two(), Naming::Numbered);
    world.take(0, &new(&limit("A1", Side::Buy, 100, 10 * E8)));
    let before = world.kept.to_clients.len();
    world.send(0, &cancel("A2", "A1", Side::Buy));
    reconnect(&mut world);
    let probe = world.kept.to_venue.pop().unwrap();
    let Ok(Message::OrderCancelRequest(probe)) = Message::decode(&probe) else { panic!("a cancel") };
    let reject = RejectFields {
        start_of_message: 2,
        message_length: message_length(59),
        reject_code: 7,
        reject_reason: Ascii::default(),
        rejected_message_type: Ascii(*b"F"),
        client_order_id: probe.client_order_id(),
    };
    world.translator.venue_report(&reject.encode(), &mut world.kept);
    let replies = &world.kept.to_clients[before..];
    assert_eq!(replies.len(), 1);
    assert_eq!(fields(&replies[0].1, &[35, 11, 41]), "35=9 11=A2 41=A1");
    assert_eq!(world.translator.unanswered(), 0);
}

#[test]
fn an_order_that_is_replaced_all_day_does_not_use_up_the_room_of_others() {
    let mut world = World::new(&two(), Naming::Numbered);
    world.take(0, &new(&limit("R0", Side::Buy, 100, 10 * E8)));
    let most = CAPACITY.most_requests;
    for number in 1..=most + 100 {
        let (id, original) = (format!("R{number}"), format!("R{}", number - 1));
        let replies = world.take(0, &replace(&id, &original, Side::Buy, 100 + (number as i64 & 1), 10 * E8));
        assert_eq!(fields(only(&replies), &[11, 150, 58]), format!("11={id} 150=5"));
    }
    let newest = format!("R{}", most + 100);
    let twice = world.take(0, &new(&limit(&newest, Side::Buy, 1, E8)));
    assert_eq!(fields(only(&twice), &[150, 103]), "150=8 103=6");
    let replies = world.take(0, &cancel("C", &newest, Side::Buy));
    assert_eq!(fields(only(&replies), &[11, 41, 150]), format!("11=C 41={newest} 150=4"));
    assert_eq!(world.kept.unmatched.len(), 0);
}

#[test]
fn a_restart_repeats_requests_whose_ids_were_free_again() {
    let mut kept = Kept::default();
    let settings = MillenniumSettings { naming: Naming::ClOrdId, ..MillenniumSettings::default() };
    let mut translator = open(settings, &two(), &CAPACITY);
    translator.begin_replay();
    let mass = OrderMassCancelRequestFields {
        symbol: Some(b"AAPL"),
        ..OrderMassCancelRequestFields::new(
            b"M1",
            MassCancelRequestType::Security,
            NanosecondsSinceEpoch(START_NS),
        )
    };
    let mass = message(b"q", 2, |writer| mass.write(writer));
    let order = new(&limit("A1", Side::Buy, 100, 10 * E8));
    // Each is ended, and was forgotten in the former run before the next came.
    for (client, request) in [(0, &order), (1, &order), (1, &order), (0, &mass), (0, &mass)] {
        assert!(translator.replay_request(ClientIndex(client), request, START_NS, &mut kept));
        let sent = kept.to_venue.pop().unwrap();
        assert!(translator.venue_unsent(&sent, START_NS, &mut kept));
    }
}

#[test]
fn a_reject_of_the_venue_has_its_reason_in_words() {
    let reason = RejectReason { code: 104, order_reason: 13, cancel_reason: 99, text: "Quantity".to_owned() };
    let settings = MillenniumSettings { reject_codes: vec![reason], ..MillenniumSettings::default() };
    let mut translator =
        open(settings, &two(), &Settings { most_orders: 8, most_requests: 8, ..Settings::default() });
    let mut world = World::new(&two(), Naming::ClOrdId);
    std::mem::swap(&mut world.translator, &mut translator);
    let replies = world.take(0, &new(&limit("A1", Side::Buy, 2_000_000, 10 * E8)));
    assert_eq!(shown(&replies), [(0, "11=A1 150=8 39=8 151=0 14=0".to_owned())]);
    assert_eq!(fields(only(&replies), &[37, 103, 58]), "37=NONE 103=13 58=Venue code 104: Quantity");
}

#[test]
fn an_ouch_venue_has_the_documents_reasons_unless_others_are_set() {
    use tapeworks_translate::{Ouch, OuchSettings, Venue as _};
    use tapeworks_wire::nasdaq::ouch50::outbound::RejectedOrderReason;
    let mut settings = OuchSettings::default();
    let found = |settings: &OuchSettings, code: i32| {
        let table = Ouch::new(settings.clone());
        table.reason(code).map(|reason| (reason.order_reason, reason.text.clone()))
    };
    assert_eq!(found(&settings, 0x17), Some((1, "Invalid symbol".to_owned())));
    for code in 1..=0x1f {
        assert!(!matches!(RejectedOrderReason::from_raw(code), RejectedOrderReason::Unknown(_)), "{code}");
        assert!(found(&settings, code.into()).is_some(), "{code}");
    }
    assert_eq!(found(&settings, 0x20), None);
    let own = |code| RejectReason { code, order_reason: 5, cancel_reason: 99, text: "Own".to_owned() };
    settings.set_reasons(vec![own(0x30), own(0x17)]);
    assert_eq!(found(&settings, 0x17), Some((5, "Own".to_owned())));
    assert_eq!(found(&settings, 0x30), Some((5, "Own".to_owned())));
    assert_eq!(found(&settings, 0x18).map(|(_, text)| text).as_deref(), Some("Test"));
}

#[test]
fn fix_4_2_has_its_own_words_for_fills_and_busts() {
    let old = ClientSettings { version: FixVersion::Fix42, ..ClientSettings::default() };
    let mut world = World::new(&[old.clone(), old], Naming::ClOrdId);
    world.take(0, &new(&limit("A1", Side::Buy, 100, 10 * E8)));
    let kinds = |replies: &[(u16, Vec<u8>)]| -> Vec<(u16, String)> {
        replies.iter().map(|(client, bytes)| (*client, fields(bytes, &[20, 150, 39]))).collect()
    };
    let replies = world.take(1, &new(&limit("B1", Side::Sell, 40, 10 * E8)));
    let expected = [(1, "20=0 150=0 39=0"), (0, "20=0 150=1 39=1"), (1, "20=0 150=2 39=2")];
    assert_eq!(kinds(&replies), expected.map(|(client, text)| (client, text.to_owned())));
    let before = world.kept.to_clients.len();
    world.exchange.bust(1, world.now_ns);
    world.settle();
    let bust = world.kept.to_clients[before..].iter().find(|(client, _)| client.0 == 0).unwrap();
    assert_eq!(fields(&bust.1, &[20, 150, 39]), "20=1 150=0 39=0");
}

/// The native order that a FIX order becomes, or the reject's fields.
fn native(settings: MillenniumSettings, order: &NewOrderSingleFields<'_>) -> Result<NewOrderFields, String> {
    let may_short = ClientSettings {
        limits: RiskLimits { may_sell_short: true, ..RiskLimits::default() },
        ..Default::default()
    };
    let mut translator =
        open(settings, &[may_short], &Settings { most_orders: 4, most_requests: 4, ..Settings::default() });
    let mut kept = Kept::default();
    translator.client_bytes(ClientIndex(0), &new(order), START_NS, &mut kept);
    match &kept.to_venue[..] {
        [bytes] => match Message::decode(bytes) {
            Ok(Message::NewOrder(view)) => Ok(view.to_fields()),
            other => panic!("{other:?}"),
        },
        _ => Err(fields(&kept.to_clients[0].1, &[35, 371, 373, 380, 103, 58])),
    }
}

fn mapped(order: &NewOrderSingleFields<'_>) -> Result<NewOrderFields, String> {
    native(MillenniumSettings::default(), order)
}

#[test]
fn every_row_of_the_table_of_new_orders_is_mapped() {
    let plain = limit("A1", Side::Buy, 100, 10 * E8 + 1_000_000);
    let native_order = mapped(&plain).unwrap();
    assert_eq!(native_order.client_order_id.trimmed(), b"A1");
    assert_eq!(
        (native_order.instrument_id, native_order.order_qty, native_order.display_qty),
        (11, 100, 100)
    );
    assert_eq!((native_order.order_type, native_order.tif), (OrderType::Limit, Tif::Day));
    assert_eq!((native_order.limit_price, native_order.stop_price), (Decimal(1_001_000_000), Decimal(0)));
    assert_eq!(native_order.executing_trader, ExecutingTrader::Client);

    for (side, expected) in [(Side::Sell, NativeSide::Sell), (Side::SellShort, NativeSide::Sell)] {
        assert_eq!(mapped(&limit("A1", side, 100, E8)).unwrap().side, expected);
    }
    let types = [
        (OrdType::Market, None, None, OrderType::Market),
        (OrdType::Stop, None, Some(Decimal(9 * E8)), OrderType::Stop),
        (OrdType::StopLimit, Some(Decimal(10 * E8)), Some(Decimal(9 * E8)), OrderType::StopLimit),
    ];
    for (ord_type, price, stop_px, expected) in types {
        let order = mapped(&NewOrderSingleFields { ord_type, price, stop_px, ..plain }).unwrap();
        assert_eq!(order.order_type, expected);
        let zero = Decimal(0);
        assert_eq!((order.limit_price, order.stop_price), (price.unwrap_or(zero), stop_px.unwrap_or(zero)));
    }
    let tifs = [
        (TimeInForce::Day, Tif::Day),
        (TimeInForce::AtTheOpening, Tif::AtTheOpening),
        (TimeInForce::ImmediateOrCancel, Tif::ImmediateOrCancel),
        (TimeInForce::FillOrKill, Tif::FillOrKill),
        (TimeInForce::AtTheClose, Tif::AtTheClose),
    ];
    for (time_in_force, expected) in tifs {
        let order = NewOrderSingleFields { time_in_force: Some(time_in_force), ..plain };
        assert_eq!(mapped(&order).unwrap().tif, expected);
    }
    let till = NewOrderSingleFields { time_in_force: Some(TimeInForce::GoodTillDate), ..plain };
    let by_time =
        NewOrderSingleFields { expire_time: Some(NanosecondsSinceEpoch(START_NS + SECOND_NS)), ..till };
    let order = mapped(&by_time).unwrap();
    assert_eq!((order.tif, order.expire_date_time), (Tif::GoodTillDate, (START_NS / SECOND_NS) as u32 + 1));
    let by_date = NewOrderSingleFields { expire_date: Some(10), ..till };
    assert_eq!(mapped(&by_date).unwrap().expire_date_time, 11 * 86_400 - 1);
    let far = MillenniumSettings { good_till_cancel_s: 4_000_000_000, ..MillenniumSettings::default() };
    let gtc = NewOrderSingleFields { time_in_force: Some(TimeInForce::GoodTillCancel), ..plain };
    let order = native(far, &gtc).unwrap();
    assert_eq!((order.tif, order.expire_date_time), (Tif::GoodTillDate, 4_000_000_000));

    let capacities = [
        (OrderCapacity::Agency, Capacity::AnyOther),
        (OrderCapacity::Principal, Capacity::DealingOnOwnAccount),
        (OrderCapacity::RisklessPrincipal, Capacity::MatchedPrincipal),
    ];
    for (capacity, expected) in capacities {
        let order = NewOrderSingleFields { order_capacity: Some(capacity), ..plain };
        assert_eq!(mapped(&order).unwrap().capacity, expected);
    }
    let party = |text: &'static [u8], role| PartyFields { party_role: Some(role), ..PartyFields::new(text) };
    let parties = [party(b"77", 3), party(b"78", 122), party(b"79", 12)];
    let order = NewOrderSingleFields {
        account: Some(b"ACCOUNT001"),
        exec_inst: Some(b"6"),
        min_qty: Some(Decimal(10 * E8)),
        max_show: Some(Decimal(20 * E8)),
        parties: &parties,
        ..plain
    };
    let order = mapped(&order).unwrap();
    assert_eq!(
        (order.account.trimmed(), order.minimum_quantity, order.display_qty),
        (&b"ACCOUNT001"[..], 10, 20)
    );
    assert_eq!(order.passive_only_order, PassiveOnlyOrder::NoMatchWithVisible);
    let codes = (order.client_id, order.investment_decision_maker, order.executing_trader);
    let unknown =
        (ClientId::from_raw(77), InvestmentDecisionMaker::from_raw(78), ExecutingTrader::from_raw(79));
    assert_eq!(codes, unknown);
}

#[test]
fn a_field_without_a_counterpart_is_refused_and_named() {
    let plain = limit("A1", Side::Buy, 100, 10 * E8);
    let value = |order: NewOrderSingleFields<'_>, tag: u32| {
        let expected = format!("35=3 371={tag} 373=5 58=The venue does not take the value of tag {tag}");
        assert_eq!(mapped(&order).err(), Some(expected));
    };
    value(NewOrderSingleFields { cl_ord_id: b"123456789012345678901", ..plain }, 11);
    value(NewOrderSingleFields { ord_type: OrdType::Pegged, ..plain }, 40);
    value(NewOrderSingleFields { time_in_force: Some(TimeInForce::GoodTillCancel), ..plain }, 59);
    value(NewOrderSingleFields { side: Side::Cross, ..plain }, 54);
    value(NewOrderSingleFields { order_qty: Some(Decimal(E8 / 2)), ..plain }, 38);
    value(NewOrderSingleFields { order_qty: Some(Decimal(0)), ..plain }, 38);
    value(NewOrderSingleFields { order_qty: Some(Decimal(-E8)), ..plain }, 38);
    value(NewOrderSingleFields { display_qty: Some(Decimal(101 * E8)), ..plain }, 1138);
    value(NewOrderSingleFields { min_qty: Some(Decimal(101 * E8)), ..plain }, 110);
    value(NewOrderSingleFields { exec_inst: Some(b"G"), ..plain }, 18);
    value(NewOrderSingleFields { account: Some(b"12345678901"), ..plain }, 1);
    value(NewOrderSingleFields { order_capacity: Some(OrderCapacity::Individual), ..plain }, 528);
    value(NewOrderSingleFields { expire_date: Some(10), ..plain }, 432);
    value(NewOrderSingleFields { ord_type: OrdType::Market, ..plain }, 44);

    let refused = |order: NewOrderSingleFields<'_>, expected: &str| {
        assert_eq!(mapped(&order).err().as_deref(), Some(expected));
    };
    let none = "35=j 380=0 58=The venue has no counterpart for tag";
    refused(NewOrderSingleFields { currency: Some(b"GBP"), ..plain }, &format!("{none} 15"));
    refused(NewOrderSingleFields { text: Some(b"hello"), ..plain }, &format!("{none} 58"));
    refused(NewOrderSingleFields { order_restrictions: Some(b"1"), ..plain }, &format!("{none} 529"));
    let missing = "35=j 380=5 58=The values of the other fields require tag";
    refused(NewOrderSingleFields { price: None, ..plain }, &format!("{missing} 44"));
    refused(NewOrderSingleFields { order_qty: None, ..plain }, &format!("{missing} 38"));
    let till = NewOrderSingleFields { time_in_force: Some(TimeInForce::GoodTillDate), ..plain };
    refused(till, &format!("{missing} 126"));
    refused(NewOrderSingleFields { symbol: Some(b"NONE"), ..plain }, "35=j 380=2 58=Unknown instrument");
    refused(
        NewOrderSingleFields { price: Some(Decimal(1)), ..plain },
        "35=8 103=99 58=The price is not a multiple of the tick",
    );
    let party = [PartyFields { party_role: Some(1), ..PartyFields::new(b"7") }];
    value(NewOrderSingleFields { parties: &party, ..plain }, 452);
    let party = [PartyFields { party_role: Some(3), ..PartyFields::new(b"X") }];
    value(NewOrderSingleFields { parties: &party, ..plain }, 448);
}

#[test]
fn ignored_tags_pass_and_are_counted_and_undeclared_ones_are_refused() {
    let ignoring = ClientSettings { ignored_tags: vec![15, 9_999].into(), ..ClientSettings::default() };
    let mut translator = open(
        Default::default(),
        &[ignoring],
        &Settings { most_orders: 4, most_requests: 4, ..Settings::default() },
    );
    let mut kept = Kept::default();
    let plain = limit("A1", Side::Buy, 100, 10 * E8);
    let with = |tag: u32| {
        message(b"D", 2, |writer: &mut Writer<'_>| {
            NewOrderSingleFields { currency: Some(b"GBP"), ..plain }.write(writer);
            writer.text(tag, b"x");
        })
    };
    translator.client_bytes(ClientIndex(0), &with(9_998), START_NS, &mut kept);
    assert_eq!(fields(&kept.to_clients[0].1, &[35, 380, 379, 45]), "35=j 380=0 379=A1 45=2");
    translator.client_bytes(ClientIndex(0), &with(9_999), START_NS, &mut kept);
    assert_eq!((kept.to_venue.len(), translator.counters().ignored_fields), (1, 2));
}

#[test]
fn risk_limits_reject_orders_and_replaces_and_let_cancels_pass() {
    let limits = RiskLimits { most_quantity: 100, collar_basis_points: 100, ..RiskLimits::default() };
    let client = ClientSettings { limits, ..ClientSettings::default() };
    let mut world = World::new(&[client], Naming::ClOrdId);
    let blind = world.take(0, &new(&limit("A0", Side::Buy, 100, 10 * E8)));
    assert_eq!(fields(only(&blind), &[35, 150, 39, 103]), "35=8 150=8 39=8 103=99");
    let top = TopOfBook { bid_e8: Some(9 * E8), offer_e8: Some(10 * E8) };
    world.translator.set_tops(Box::new(vec![top]));
    let much = world.take(0, &new(&limit("A1", Side::Buy, 101, 10 * E8)));
    assert_eq!(
        fields(only(&much), &[35, 11, 37, 150, 39, 103, 58]),
        "35=8 11=A1 37=NONE 150=8 39=8 103=3 58=The quantity is above the client's limit"
    );
    assert_eq!(
        fields(only(&world.take(0, &new(&limit("A1", Side::Buy, 100, 11 * E8)))), &[35, 103]),
        "35=8 103=16"
    );
    let accepted = world.take(0, &new(&limit("A1", Side::Buy, 100, 10 * E8)));
    assert_eq!(text(only(&accepted), 150), "0", "a refused order leaves its ClOrdID free");
    let duplicate = world.take(0, &new(&limit("A1", Side::Buy, 100, 10 * E8)));
    assert_eq!(fields(only(&duplicate), &[35, 103]), "35=8 103=6");
    let much = world.take(0, &replace("A2", "A1", Side::Buy, 101, 10 * E8));
    assert_eq!(fields(only(&much), &[35, 11, 41, 39, 102, 434]), "35=9 11=A2 41=A1 39=0 102=99 434=2");
    world.translator.halt();
    assert_eq!(
        text(only(&world.take(0, &new(&limit("A3", Side::Buy, 1, 10 * E8)))), 58),
        "Trading is halted"
    );
    assert_eq!(
        fields(only(&world.take(0, &replace("A4", "A1", Side::Buy, 9, 10 * E8))), &[35, 102]),
        "35=9 102=2"
    );
    assert_eq!(text(only(&world.take(0, &cancel("A5", "A1", Side::Buy))), 150), "4");
    world.translator.resume();
    assert_eq!(text(only(&world.take(0, &new(&limit("A6", Side::Buy, 1, 10 * E8)))), 150), "0");
    assert_eq!(world.translator.counters().breaches, 6);
    let refusals = world.translator.refusals();
    assert_eq!(refusals[1], ("The quantity is above the client's limit", 2));
    assert_eq!(
        refusals.iter().find(|(reason, _)| *reason == "Trading is halted"),
        Some(&("Trading is halted", 2))
    );
    assert_eq!(refusals.iter().map(|(_, count)| count).sum::<u64>(), world.translator.counters().refused);
    assert_eq!(world.translator.open_orders(ClientIndex(0)), 1);
}

#[test]
fn every_kind_of_order_is_bound_by_the_collar_and_the_notional() {
    const CENT: i64 = E8 / 100;
    let limits = RiskLimits { most_notional: 1_000, collar_basis_points: 100, ..RiskLimits::default() };
    let client = [ClientSettings { limits, ..ClientSettings::default() }];
    let top = TopOfBook { bid_e8: Some(9 * E8), offer_e8: Some(10 * E8) };
    let (ten, nine) = (Some(10 * E8), Some(9 * E8));
    let (above, below) = (Some(10 * E8 + 11 * CENT), Some(9 * E8 - 10 * CENT));
    let (zero, minus) = (Some(0), Some(-CENT));
    let (collar, notional, not_positive) = (Some("16"), Some("3"), Some("99"));
    let cases = [
        (OrdType::Market, Side::Buy, 100, None, None, None),
        (OrdType::Market, Side::Buy, 101, None, None, notional),
        (OrdType::Market, Side::Sell, 111, None, None, None),
        (OrdType::Market, Side::Sell, 112, None, None, notional),
        (OrdType::Limit, Side::Buy, 1, above, None, collar),
        (OrdType::Limit, Side::Sell, 1, below, None, collar),
        // It would trade at the bid.
        (OrdType::Limit, Side::Sell, 112, Some(9 * E8 - CENT), None, notional),
        (OrdType::Stop, Side::Buy, 100, None, ten, None),
        (OrdType::Stop, Side::Buy, 1, None, above, collar),
        (OrdType::Stop, Side::Sell, 1, None, below, collar),
        (OrdType::Stop, Side::Buy, 100, None, Some(10 * E8 + CENT), notional),
        (OrdType::StopLimit, Side::Buy, 1, ten, above, collar),
        (OrdType::StopLimit, Side::Buy, 1, above, ten, collar),
        (OrdType::StopLimit, Side::Sell, 1, below, nine, collar),
        (OrdType::StopLimit, Side::Buy, 100, ten, ten, None),
        (OrdType::Limit, Side::Buy, 1, zero, None, not_positive),
        (OrdType::Limit, Side::Buy, 1, minus, None, not_positive),
        (OrdType::Stop, Side::Buy, 1, None, zero, not_positive),
        (OrdType::StopLimit, Side::Buy, 1, ten, minus, not_positive),
    ];
    for (number, (ord_type, side, quantity, price, stop, refused)) in cases.into_iter().enumerate() {
        let id = format!("N{number}");
        let order = NewOrderSingleFields {
            ord_type,
            price: price.map(Decimal),
            stop_px: stop.map(Decimal),
            ..limit(&id, side, quantity, E8)
        };
        let mut world = World::new(&client, Naming::ClOrdId);
        world.translator.set_tops(Box::new(vec![top]));
        let reports = world.take(0, &new(&order));
        let expected = refused.map_or_else(|| "150=0".to_owned(), |reason| format!("150=8 103={reason}"));
        assert_eq!(fields(&reports[0].1, &[150, 103]), expected, "{ord_type:?} {side:?} {price:?} {stop:?}");
    }
}

#[test]
fn a_partition_with_missing_reports_gets_no_new_orders_and_holds_up_no_other() {
    let mut world = World::new(&two(), Naming::ClOrdId);
    world.take(0, &new(&limit("A1", Side::Buy, 100, 10 * E8)));
    let other = |id| NewOrderSingleFields { symbol: Some(b"MSFT"), ..limit(id, Side::Buy, 5, 20 * E8) };
    world.translator.set_behind([1].into_iter().collect());
    let refused = world.take(0, &new(&limit("A2", Side::Buy, 100, 10 * E8)));
    assert_eq!(
        fields(only(&refused), &[35, 150, 103, 58]),
        "35=8 150=8 103=99 58=Reports of the instrument's partition are missing"
    );
    let refused = world.take(0, &replace("A3", "A1", Side::Buy, 50, 10 * E8));
    assert_eq!(fields(only(&refused), &[35, 102]), "35=9 102=99");
    let refused = world.take(0, &quote("Q1", Some((100, 10 * E8)), None));
    assert_eq!(fields(only(&refused), &[35, 297]), "35=AI 297=5");
    assert_eq!(text(only(&world.take(0, &new(&other("A4")))), 150), "0", "another partition");
    assert_eq!(text(only(&world.take(0, &cancel("A5", "A1", Side::Buy))), 150), "4", "cancels pass");
    world.translator.set_behind(Default::default());
    assert_eq!(text(only(&world.take(0, &new(&limit("A6", Side::Buy, 1, 10 * E8)))), 150), "0");
}

#[test]
fn a_possible_resend_is_ignored_if_its_id_is_known_and_taken_if_not() {
    let mut translator = open(Default::default(), &two(), &CAPACITY);
    let mut kept = Kept::default();
    let resend = |name: &str| {
        let mut buffer = [0; 1_024];
        let mut writer = Writer::begin(&mut buffer, b"FIX.4.4", b"D");
        let header = HeaderFields::new(b"A", b"B", 2, NanosecondsSinceEpoch(START_NS));
        HeaderFields { poss_resend: Some(true), ..header }.write(&mut writer);
        limit(name, Side::Buy, 1, E8).write(&mut writer);
        writer.finish().unwrap().to_vec()
    };
    for (name, sent) in [("A1", 1), ("A1", 1), ("A2", 2)] {
        translator.client_bytes(ClientIndex(0), &resend(name), START_NS, &mut kept);
        assert_eq!((kept.to_venue.len(), kept.to_clients.len()), (sent, 0));
    }
    assert_eq!(translator.counters().possible_resends, 1);
}

#[test]
fn nothing_goes_to_a_venue_that_is_away_or_recovering() {
    let mut translator = open(
        Default::default(),
        &two(),
        &Settings { most_orders: 4, most_requests: 4, ..Settings::default() },
    );
    let mut kept = Kept::default();
    translator.venue_disconnected();
    translator.halt();
    for step in 0..2 {
        for bytes in [new(&limit("A1", Side::Buy, 1, E8)), cancel("A2", "A1", Side::Buy)] {
            translator.client_bytes(ClientIndex(0), &bytes, START_NS, &mut kept);
            assert_eq!(fields(&kept.to_clients.pop().unwrap().1, &[35, 380]), "35=j 380=4", "{step}");
        }
        translator.venue_connected();
    }
    translator.venue_recovered();
    translator.client_bytes(ClientIndex(0), &new(&limit("A1", Side::Buy, 1, E8)), START_NS, &mut kept);
    assert_eq!(fields(&kept.to_clients[0].1, &[35, 150, 103]), "35=8 150=8 103=0", "still halted");
    assert!(kept.to_venue.is_empty());
    // A trade capture report, and an order of a cross: the venue has neither.
    for kind in [b"AE", &b"s"[..]] {
        translator.client_bytes(ClientIndex(0), &message(kind, 2, |_| ()), START_NS, &mut kept);
        assert_eq!(fields(&kept.to_clients.pop().unwrap().1, &[35, 380]), "35=j 380=3");
    }
}

#[test]
fn a_repeated_report_has_no_effect_and_an_unknown_one_is_put_out() {
    let mut world = World::new(&two(), Naming::ClOrdId);
    world.send(0, &new(&limit("A1", Side::Buy, 100, 10 * E8)));
    let order = world.kept.to_venue[0].clone();
    world.settle();
    assert!(!world.translator.venue_unsent(b"nothing", START_NS, &mut world.kept));
    // The same bytes as they would come from a recovery.
    let Ok(Message::NewOrder(view)) = Message::decode(&order) else { panic!("no order") };
    assert_eq!(view.client_order_id().trimmed(), b"A1");
    let reject = RejectFields {
        start_of_message: 2,
        message_length: message_length(59),
        reject_code: 5,
        reject_reason: Ascii::default(),
        rejected_message_type: Ascii(*b"D"),
        client_order_id: Ascii::new("NOBODY").unwrap(),
    };
    world.translator.venue_report(&reject.encode(), &mut world.kept);
    assert_eq!((world.kept.unmatched.len(), world.translator.counters().unknown_orders), (1, 1));
    world.translator.venue_report(b"nothing", &mut world.kept);
    assert_eq!(world.translator.counters().unreadable, 1);
}

#[test]
fn requests_that_the_session_could_not_send_or_the_venue_not_take_are_rejected() {
    let mut translator = open(
        Default::default(),
        &two(),
        &Settings { most_orders: 4, most_requests: 8, ..Settings::default() },
    );
    let mut kept = Kept::default();
    for bytes in [
        new(&limit("A1", Side::Buy, 1, E8)),
        new(&limit("A2", Side::Buy, 1, E8)),
        cancel("A3", "A2", Side::Buy),
    ] {
        translator.client_bytes(ClientIndex(0), &bytes, START_NS, &mut kept);
    }
    let sent = kept.to_venue.clone();
    assert!(translator.venue_unsent(&sent[0], START_NS, &mut kept));
    assert!(translator.venue_unsent(&sent[2], START_NS, &mut kept));
    let reject = RejectFields {
        start_of_message: 2,
        message_length: message_length(59),
        reject_code: 5,
        reject_reason: Ascii::default(),
        rejected_message_type: Ascii(*b"D"),
        client_order_id: Ascii::new("A2").unwrap(),
    };
    translator.venue_report(&reject.encode(), &mut kept);
    let got: Vec<String> = kept
        .to_clients
        .iter()
        .map(|(_, bytes)| fields(bytes, &[35, 11, 41, 150, 39, 102, 372, 379, 380]))
        .collect();
    let expected = ["35=8 11=A1 150=8 39=8", "35=9 11=A3 41=A2 39=A 102=99", "35=j 372=D 379=A2 380=0"];
    assert_eq!(got, expected);
    assert!(translator.orders().all(|(_, state)| state == ExchangeToClientState::Ended));
}

#[test]
fn a_cancel_of_the_gateway_that_the_session_did_not_take_is_sent_again_until_the_order_has_ended() {
    let mut world = World::new(&two(), Naming::ClOrdId);
    world.send(0, &new(&limit("A1", Side::Buy, 100, 10 * E8)));
    world.settle();
    world.translator.cancel_orders(ClientIndex(0), world.now_ns, &mut world.kept);
    let sent = world.kept.to_venue.clone();
    let Some(cancel) = sent.last() else { panic!("no cancel") };
    let before = world.kept.to_clients.len();
    for _ in 0..2 {
        assert!(!world.translator.has_to_send_again());
        assert!(world.translator.venue_unsent(cancel, START_NS, &mut world.kept));
        assert!(world.translator.has_to_send_again());
        world.kept.to_venue.clear();
        world.translator.send_again(&mut world.kept);
        assert_eq!(world.kept.to_venue, std::slice::from_ref(cancel));
    }
    assert_eq!(world.kept.to_clients.len(), before, "no client has asked for it");
    assert!(world.translator.venue_unsent(cancel, START_NS, &mut world.kept));
    world.kept.to_venue.clear();
    // The connection breaks: what was in doubt is cancelled anew.
    world.translator.venue_disconnected();
    world.translator.venue_connected();
    world.translator.venue_recovered();
    world.translator.settle(START_NS, &mut world.kept);
    assert!(!world.translator.has_to_send_again());
    assert_eq!(world.kept.to_venue.len(), 1);
}

#[test]
fn the_oldest_ended_order_is_forgotten_first_and_a_working_one_never() {
    let mut world = World::new(&two(), Naming::ClOrdId);
    let mut translator = open(
        Default::default(),
        &two(),
        &Settings { most_orders: 2, most_requests: 4, ..Settings::default() },
    );
    std::mem::swap(&mut world.translator, &mut translator);
    world.take(0, &new(&limit("A1", Side::Buy, 1, E8)));
    world.take(0, &new(&limit("A2", Side::Buy, 1, E8)));
    let full = world.take(0, &new(&limit("A3", Side::Buy, 1, E8)));
    assert_eq!(fields(only(&full), &[35, 150, 103, 58]), "35=8 150=8 103=99 58=As many orders work as may");
    world.take(0, &cancel("A4", "A2", Side::Buy));
    assert_eq!(text(only(&world.take(0, &new(&limit("A3", Side::Buy, 1, E8)))), 150), "0");
    assert!(world.translator.order(ClientIndex(0), &id("A2")).is_none());
    assert!(world.translator.order(ClientIndex(0), &id("A1")).is_some());
    assert_eq!((world.translator.counters().forgotten, world.translator.known_orders()), (1, 2));
    world.take(0, &cancel("A5", "A3", Side::Buy));
    world.translator.keep_room(2);
    assert_eq!((world.translator.counters().forgotten, world.translator.known_orders()), (2, 1), "A1 works");
}

#[test]
fn warming_runs_an_order_to_its_bytes_and_leaves_no_trace() {
    let limits = RiskLimits { orders_per_second: 1, most_open_orders: 1, ..RiskLimits::default() };
    let client = ClientSettings { limits, ..ClientSettings::default() };
    let mut translator = open(Default::default(), &[client], &CAPACITY);
    let mut kept = Kept::default();
    translator.warm(START_NS);
    let shown = |translator: &tapeworks_translate::Translator<tapeworks_translate::Millennium>| {
        let orders: Vec<String> = translator.orders().map(|order| format!("{order:?}")).collect();
        (
            orders,
            translator.counters(),
            translator.refusals().to_vec(),
            translator.open_orders(ClientIndex(0)),
        )
    };
    let before = shown(&translator);
    translator.prepare_to_warm();
    for turn in 0..10 {
        translator.warm(START_NS + turn);
    }
    assert_eq!(shown(&translator), before);
    translator.client_bytes(ClientIndex(0), &new(&limit("A1", Side::Buy, 100, 10 * E8)), START_NS, &mut kept);
    let Ok(Message::NewOrder(order)) = Message::decode(&kept.to_venue[0]) else { panic!("no order") };
    assert_eq!(order.client_order_id().trimmed(), b"A1", "the rate and the open orders are the client's own");
    let before = shown(&translator);
    translator.venue_disconnected();
    translator.warm(START_NS);
    translator.begin_replay();
    translator.warm(START_NS);
    assert_eq!(shown(&translator), before);
}
