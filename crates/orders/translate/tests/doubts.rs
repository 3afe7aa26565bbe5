//! A venue that repeats, invents and garbles its reports: nothing is booked twice, and clients learn what is in doubt.

#![allow(clippy::unwrap_used)] // a failure here is a failed test

#[allow(dead_code, reason = "each test file uses its part")]
mod traders;

use std::collections::BTreeSet;

use tapeworks_fix_wire::order_entry::{NewOrderSingleFields, Side, TimeInForce};
use tapeworks_translate::ids::ClientIndex;
use tapeworks_translate::{ClientSettings, Doubt, Millennium, Settings, Translator};
use tapeworks_wire::millennium::native::{ExecType, ExecutionReport, Side as NativeSide, message_length};
use tapeworks_wire::{Ascii, NanosecondsSinceEpoch};
use traders::{CAPACITY, E8, Kept, START_NS, World, cancel, fields, limit, new, open, replace, text};

const AAPL: i32 = 11;

/// What a report of the venue says.
#[derive(Clone, Copy)]
struct Said<'a> {
    number: i32,
    kind: ExecType,
    execution: &'a str,
    reference: &'a str,
    name: &'a str,
    order: &'a str,
    quantity: i32,
    price_e8: i64,
    leaves: i32,
    instrument: i32,
    side: NativeSide,
}

const SAID: Said<'_> = Said {
    number: 0,
    kind: ExecType::Trade,
    execution: "E0",
    reference: "",
    name: "A1",
    order: "O1",
    quantity: 0,
    price_e8: 10 * E8,
    leaves: 0,
    instrument: AAPL,
    side: NativeSide::Buy,
};

fn written(said: Said<'_>) -> [u8; ExecutionReport::LENGTH] {
    let mut bytes = [0; ExecutionReport::LENGTH];
    bytes[0] = 2;
    bytes[1..3].copy_from_slice(&message_length(ExecutionReport::LENGTH).to_le_bytes());
    (bytes[3], bytes[4]) = (b'8', 1);
    bytes[5..9].copy_from_slice(&said.number.to_le_bytes());
    bytes[9..21].copy_from_slice(&Ascii::<12>::new(said.execution).unwrap().0);
    bytes[21..41].copy_from_slice(&Ascii::<20>::new(said.name).unwrap().0);
    bytes[41..53].copy_from_slice(&Ascii::<12>::new(said.order).unwrap().0);
    bytes[53] = said.kind.raw();
    bytes[54..66].copy_from_slice(&Ascii::<12>::new(said.reference).unwrap().0);
    bytes[71..79].copy_from_slice(&said.price_e8.to_le_bytes());
    bytes[79..83].copy_from_slice(&said.quantity.to_le_bytes());
    bytes[83..87].copy_from_slice(&said.leaves.to_le_bytes());
    bytes[92..96].copy_from_slice(&said.instrument.to_le_bytes());
    bytes[98] = said.side.raw();
    bytes[127..131].copy_from_slice(&((START_NS / 1_000_000_000) as u32).to_le_bytes());
    bytes
}

/// A translator, a venue that says what a test wants, and the results.
struct Native {
    translator: Translator<Millennium>,
    kept: Kept,
    number: i32,
}

impl Native {
    /// A buy of 100 at 190 works, as A1 and O1.
    fn new(settings: &Settings) -> Self {
        let translator = open(Default::default(), &[ClientSettings::default()], settings);
        let mut native = Self { translator, kept: Kept::default(), number: 0 };
        native.client(&new(&limit("A1", Side::Buy, 100, 190 * E8)));
        let accepted = Said { kind: ExecType::New, execution: "E1", leaves: 100, ..SAID };
        assert_eq!(native.says(accepted, &[150, 151]), "150=0 151=100");
        native
    }

    fn client(&mut self, message: &[u8]) {
        self.translator.client_bytes(ClientIndex(0), message, START_NS, &mut self.kept);
    }

    /// What the client gets for a report under the next number; empty: nothing.
    fn says(&mut self, said: Said<'_>, tags: &[u32]) -> String {
        self.number += 1;
        self.hears(&written(Said { number: self.number, ..said }), tags)
    }

    fn hears(&mut self, message: &[u8], tags: &[u32]) -> String {
        let before = self.kept.to_clients.len();
        self.translator.venue_report(message, &mut self.kept);
        let replies = &self.kept.to_clients[before..];
        assert!(replies.len() < 2);
        replies.first().map(|(_, reply)| fields(reply, tags)).unwrap_or_default()
    }

    fn fill(execution: &str, quantity: i32, price: i64, leaves: i32) -> Said<'_> {
        Said { execution, quantity, price_e8: price * E8, leaves, ..SAID }
    }
}

const FILL: [u32; 5] = [150, 32, 14, 6, 151];

#[test]
fn a_fill_that_comes_again_is_booked_once() {
    let mut native = Native::new(&CAPACITY);
    let first = Native::fill("E2", 10, 190, 90);
    assert_eq!(native.says(first, &FILL), "150=F 32=10 14=10 6=190 151=90");
    assert_eq!(native.says(first, &FILL), "", "under the next number");
    // The venue starts its numbers over, and sends the day's reports once more.
    native.translator.new_day(1);
    native.number = 0;
    let accepted = Said { kind: ExecType::New, execution: "E1", leaves: 100, ..SAID };
    assert_eq!(native.says(accepted, &FILL), "");
    assert_eq!(native.says(first, &FILL), "");
    assert_eq!(native.says(Native::fill("E3", 5, 190, 85), &FILL), "150=F 32=5 14=15 6=190 151=85");
    assert_eq!((native.kept.repeated, native.translator.counters().repeated_executions), (2, 2));
    assert_eq!(native.translator.counters().fills, 2);
    // The other side of a match is another order, and a fill may have the id of another order's.
    native.client(&new(&limit("A2", Side::Sell, 7, 190 * E8)));
    let other = Said { name: "A2", order: "O2", side: NativeSide::Sell, ..Native::fill("E3", 7, 190, 0) };
    assert_eq!(native.says(other, &FILL), "150=F 32=7 14=7 6=190 151=0");
    assert_eq!(native.kept.doubts, []);
}

#[test]
fn a_change_of_an_order_that_comes_again_does_not_take_it_back() {
    let mut native = Native::new(&CAPACITY);
    native.client(&replace("A2", "A1", Side::Buy, 60, 190 * E8));
    let to_60 = Said { kind: ExecType::Replaced, execution: "E2", name: "A2", leaves: 60, ..SAID };
    assert_eq!(native.says(to_60, &[150, 151]), "150=5 151=60");
    native.client(&replace("A3", "A2", Side::Buy, 80, 190 * E8));
    let to_80 = Said { execution: "E3", name: "A3", leaves: 80, ..to_60 };
    assert_eq!(native.says(to_80, &[150, 151]), "150=5 151=80");
    assert_eq!(native.says(to_60, &[150]), "");
    let fill = Said { name: "A3", ..Native::fill("E4", 1, 190, 79) };
    assert_eq!(native.says(fill, &[150, 11, 38, 151]), "150=F 11=A3 38=80 151=79");
}

#[test]
fn a_bust_undoes_the_fill_that_it_names_whatever_its_figures() {
    let mut native = Native::new(&CAPACITY);
    native.says(Native::fill("E2", 50, 190, 50), &FILL);
    let bust = Said { kind: ExecType::TradeCancel, reference: "E2", ..Native::fill("E3", 50, 100, 50) };
    let tags = [150, 32, 31, 14, 6, 58];
    assert_eq!(
        native.says(bust, &tags),
        format!("150=H 32=50 31=190 14=0 6=0 58={}", Doubt::OtherFigures.text())
    );
    assert_eq!(native.says(Native::fill("E4", 10, 190, 40), &FILL), "150=F 32=10 14=10 6=190 151=40");
    assert_eq!(native.says(Said { execution: "E5", ..bust }, &FILL), "", "it is undone once");
    assert_eq!(native.kept.repeated, 1);
    let unknown = Said { execution: "E6", reference: "E9", quantity: 5, price_e8: 190 * E8, ..bust };
    assert_eq!(native.says(unknown, &[150, 14, 58]), format!("150=H 14=5 58={}", Doubt::UnknownFill.text()));
    assert_eq!(native.says(unknown, &FILL), "", "again");
    let more = Said { execution: "E7", quantity: 6, ..unknown };
    assert_eq!(native.says(more, &FILL), "", "more than was filled");
    assert_eq!(native.kept.unmatched.len(), 1);
    assert_eq!(native.kept.doubts, [Doubt::OtherFigures, Doubt::UnknownFill]);
}

#[test]
fn implausible_reports_have_the_reason_and_halt_their_symbol_if_that_is_set() {
    let fill = Native::fill("E2", 10, 190, 90);
    let cases = [
        (Native::fill("E2", 150, 190, 0), Doubt::TooMuch),
        (Said { quantity: 0, ..fill }, Doubt::NoQuantity),
        (Said { price_e8: 250 * E8, ..fill }, Doubt::BeyondLimit),
        (Said { price_e8: -E8, ..fill }, Doubt::NotPositive),
        (Said { price_e8: 0, ..fill }, Doubt::NotPositive),
        (Said { side: NativeSide::Sell, ..fill }, Doubt::Side),
        (Said { instrument: 12, ..fill }, Doubt::Instrument),
        (Said { order: "O7", ..fill }, Doubt::OrderId),
        (Said { kind: ExecType::Cancelled, instrument: 12, ..fill }, Doubt::Instrument),
        (Said { kind: ExecType::Cancelled, side: NativeSide::Sell, ..fill }, Doubt::Side),
        (Said { kind: ExecType::Cancelled, side: NativeSide::Sell, order: "O7", ..fill }, Doubt::OrderId),
        (Said { side: NativeSide::Sell, order: "O7", ..fill }, Doubt::OrderId),
    ];
    for halts_doubtful in [false, true] {
        for (said, doubt) in cases {
            let mut native = Native::new(&Settings { halts_doubtful, ..CAPACITY });
            assert_eq!(native.says(said, &[37, 58]), format!("37=O1 58={}", doubt.text()));
            assert_eq!(native.translator.open_orders(ClientIndex(0)), u32::from(doubt != Doubt::TooMuch));
            assert_eq!((&native.kept.doubts[..], native.translator.counters().doubtful), (&[doubt][..], 1));
            let halted: Vec<_> =
                native.translator.doubtful_instruments().map(|instrument| instrument.venue_id).collect();
            assert_eq!(halted, if halts_doubtful { vec![AAPL] } else { Vec::new() });
            // Other symbols trade, and the operator lets this one trade again.
            let sent = |native: &mut Native, symbol: &'static [u8], id| {
                let before = native.kept.to_venue.len();
                let order = NewOrderSingleFields { symbol: Some(symbol), ..limit(id, Side::Buy, 1, E8) };
                native.client(&new(&order));
                native.kept.to_venue.len() > before
            };
            assert_eq!(sent(&mut native, b"AAPL", "A2"), !halts_doubtful);
            assert!(sent(&mut native, b"MSFT", "A3"));
            native.translator.resume();
            assert!(sent(&mut native, b"AAPL", "A4"));
        }
    }
}

#[test]
fn a_cancel_with_the_order_id_of_another_ends_neither() {
    let mut native = Native::new(&CAPACITY);
    native.client(&new(&limit("B1", Side::Buy, 100, 190 * E8)));
    let accepted =
        Said { kind: ExecType::New, execution: "E2", name: "B1", order: "O2", leaves: 100, ..SAID };
    native.says(accepted, &[]);
    native.client(&cancel("A2", "A1", Side::Buy));
    let cancelled = Said { kind: ExecType::Cancelled, execution: "E3", name: "A2", order: "O2", ..SAID };
    assert_eq!(
        native.says(cancelled, &[11, 37, 150, 39, 58]),
        format!("11=A1 37=O1 150=I 39=0 58={}", Doubt::OrderId.text())
    );
    assert_eq!(native.translator.open_orders(ClientIndex(0)), 2);
    // What it meant comes.
    let right = Said { execution: "E4", order: "O1", ..cancelled };
    assert_eq!(native.says(right, &[11, 41, 150, 39]), "11=A2 41=A1 150=4 39=4");
    let fill = Said { name: "B1", order: "O2", ..Native::fill("E5", 1, 190, 99) };
    assert_eq!(native.says(fill, &[11, 37, 150]), "11=B1 37=O2 150=F");
}

#[test]
fn an_acceptance_of_another_side_or_instrument_does_not_replace_the_true_one() {
    let others = [
        (Said { instrument: 12, ..SAID }, Doubt::Instrument),
        (Said { side: NativeSide::Sell, ..SAID }, Doubt::Side),
    ];
    for (other, doubt) in others {
        let mut native = Native::new(&CAPACITY);
        native.client(&new(&limit("B1", Side::Buy, 100, 190 * E8)));
        let accepted = Said { kind: ExecType::New, execution: "E7", name: "B1", leaves: 100, ..other };
        let mut ids = BTreeSet::new();
        for _ in 0..2 {
            let shown = native.says(accepted, &[11, 37, 150, 58]);
            assert_eq!(shown, format!("11=B1 37=NONE 150=I 58={}", doubt.text()));
            // A report that comes again has another ExecID: its client would take it for the same one.
            assert!(ids.insert(text(&native.kept.to_clients.last().unwrap().1, 17)));
        }
        let right =
            Said { execution: "E8", order: "O2", instrument: AAPL, side: NativeSide::Buy, ..accepted };
        assert_eq!(native.says(right, &[11, 37, 150, 39]), "11=B1 37=O2 150=0 39=0");
    }
}

#[test]
fn unreadable_reports_are_counted_and_reach_the_client_whose_order_they_name() {
    let mut native = Native::new(&CAPACITY);
    let mut unknown = written(Said { number: 2, ..SAID });
    unknown[53] = b'?';
    let shown = format!("11=A1 150=I 39=0 58={}", Doubt::Unreadable.text());
    assert_eq!(native.hears(&unknown, &[11, 150, 39, 58]), shown);
    assert_eq!(native.hears(&written(Said { name: "NOBODY", ..SAID })[..40], &[58]), "");
    assert_eq!(native.hears(b"\x02\x01\x00?", &[58]), "", "a type that there is not");
    assert_eq!(native.kept.unreadable, [true, false, false]);
    assert_eq!(native.translator.counters().unreadable, 3);

    let mut world = World::ouch(&[ClientSettings::default(), ClientSettings::default()]);
    world.take(0, &new(&limit("A1", Side::Buy, 100, 10 * E8)));
    let before = world.kept.to_clients.len();
    // Executed, of the first request, cut off behind its name; and a kind that there is not.
    let short = [&b"E"[..], &[0; 8], &1u32.to_be_bytes(), &[0; 3]].concat();
    world.translator.venue_report(&short, &mut world.kept);
    world.translator.venue_report(b"?", &mut world.kept);
    world.translator.venue_report(b"", &mut world.kept);
    let shown: Vec<_> =
        world.kept.to_clients[before..].iter().map(|(_, bytes)| fields(bytes, &[11, 150])).collect();
    assert_eq!(shown, ["11=A1 150=I"]);
    assert_eq!(world.kept.unreadable, [true, false, false]);
}

mod ouch {
    use tapeworks_translate::Ouch;
    use tapeworks_wire::nasdaq::ouch50::outbound::{
        BrokenTradeFields, BrokenTradeReason, CancelOrderReason, CancelRejectFields, CanceledFields,
        LiquidityFlag, Message, OrderExecutedFields, RejectedOrderFields, RejectedOrderReason,
    };
    use tapeworks_wire::{Ascii, Decimal, NanosecondsSinceMidnight};

    use super::*;

    /// A buy of 100, of which 40 have traded with another client.
    fn traded() -> World<Ouch> {
        let mut world = World::ouch(&[ClientSettings::default(), ClientSettings::default()]);
        world.take(0, &new(&limit("A1", Side::Buy, 100, 10 * E8)));
        let trade = world.take(1, &new(&limit("B1", Side::Sell, 40, 10 * E8)));
        assert_eq!(trade.iter().filter(|(_, bytes)| text(bytes, 150) == "F").count(), 2, "both sides");
        world
    }

    fn executed(reference: u32, match_number: u64) -> Vec<u8> {
        let fields = OrderExecutedFields {
            timestamp: NanosecondsSinceMidnight(9 * 3_600_000_000_000),
            user_ref_num: reference,
            quantity: 10,
            price: Decimal(100_000),
            liquidity_flag: LiquidityFlag::Added,
            match_number,
            appendage_length: 0,
            appendage: &[],
        };
        let mut bytes = [0; 64];
        let length = fields.encode_into(&mut bytes).unwrap();
        assert!(matches!(Message::decode(&bytes[..length]), Ok(Message::OrderExecuted(_))));
        bytes[..length].to_vec()
    }

    #[test]
    fn a_match_is_booked_once_for_each_of_its_orders() {
        let mut world = traded();
        let before = world.kept.to_clients.len();
        for (reference, match_number) in [(1, 77), (1, 77), (1, 78)] {
            world.translator.venue_report(&executed(reference, match_number), &mut world.kept);
        }
        let shown: Vec<_> =
            world.kept.to_clients[before..].iter().map(|(_, bytes)| fields(bytes, &FILL)).collect();
        assert_eq!(shown, ["150=F 32=10 14=50 6=10 151=50", "150=F 32=10 14=60 6=10 151=40"]);
        assert_eq!(world.kept.repeated, 1);
        // A bust comes again too.
        let broken = BrokenTradeFields {
            timestamp: NanosecondsSinceMidnight(9 * 3_600_000_000_001),
            user_ref_num: 1,
            match_number: 78,
            broken_trade_reason: BrokenTradeReason::Erroneous,
            cl_ord_id: Ascii::default(),
        };
        let before = world.kept.to_clients.len();
        for _ in 0..2 {
            world.translator.venue_report(&broken.encode(), &mut world.kept);
        }
        // And the fill that was undone.
        world.translator.venue_report(&executed(1, 78), &mut world.kept);
        let shown: Vec<_> =
            world.kept.to_clients[before..].iter().map(|(_, bytes)| fields(bytes, &FILL)).collect();
        assert_eq!(shown, ["150=H 32=10 14=50 6=10 151=40"]);
        assert_eq!(world.kept.repeated, 3);
    }

    #[test]
    fn a_report_of_a_name_far_ahead_uses_up_no_names() {
        let mut world = traded();
        let named = |world: &mut World<_>, id| {
            world.send(0, &new(&limit(id, Side::Buy, 1, 9 * E8)));
            let name = u32::from_be_bytes(*world.kept.to_venue.last().unwrap()[1..].first_chunk().unwrap());
            world.settle();
            name
        };
        let first = named(&mut world, "N1");
        for far in [u32::MAX, u32::MAX - 1, 1 << 30] {
            world.translator.venue_report(&executed(far, 90), &mut world.kept);
        }
        assert_eq!(named(&mut world, "N2"), first + 1);
        // A name shortly ahead may have been lost with a part of the store.
        world.translator.venue_report(&executed(first + 5, 91), &mut world.kept);
        assert_eq!(named(&mut world, "N3"), first + 6);
    }

    #[test]
    fn a_cancel_reject_has_no_reason_code_and_the_text_names_none() {
        let mut world = World::ouch(&[ClientSettings::default()]);
        world.take(0, &new(&limit("A1", Side::Buy, 100, 10 * E8)));
        world.send(0, &replace("A2", "A1", Side::Buy, 90, 10 * E8));
        let reject = CancelRejectFields { timestamp: NanosecondsSinceMidnight(1), user_ref_num: 2 };
        world.translator.venue_report(&reject.encode(), &mut world.kept);
        let (_, reply) = world.kept.to_clients.last().unwrap();
        let expected = "35=9 11=A2 41=A1 39=0 102=99 434=2 58=The venue gave no reason";
        assert_eq!(fields(reply, &[35, 11, 41, 39, 102, 434, 58]), expected);
    }

    #[test]
    fn a_cancel_reject_names_the_order_and_answers_its_oldest_cancel() {
        let mut world = World::ouch(&[ClientSettings::default()]);
        world.take(0, &new(&limit("A1", Side::Buy, 100, 10 * E8)));
        let reject = CancelRejectFields { timestamp: NanosecondsSinceMidnight(1), user_ref_num: 1 };
        for id in ["C1", "C2"] {
            world.send(0, &cancel(id, "A1", Side::Buy));
        }
        for id in ["C1", "C2"] {
            world.translator.venue_report(&reject.encode(), &mut world.kept);
            let (_, reply) = world.kept.to_clients.last().unwrap();
            let expected = format!("35=9 11={id} 41=A1 39=0 102=99 434=1");
            assert_eq!(fields(reply, &[35, 11, 41, 39, 102, 434]), expected);
        }
        let answered = world.kept.to_clients.len();
        world.translator.venue_report(&reject.encode(), &mut world.kept);
        assert_eq!(world.kept.to_clients.len(), answered, "no cancel waits for an answer");
    }

    #[test]
    fn a_rejected_replace_is_answered_although_a_cancel_waits() {
        let mut world = World::ouch(&[ClientSettings::default()]);
        world.take(0, &new(&limit("A1", Side::Buy, 100, 10 * E8)));
        world.send(0, &replace("A2", "A1", Side::Buy, 90, 10 * E8));
        world.send(0, &cancel("C1", "A1", Side::Buy));
        let rejected = RejectedOrderFields {
            timestamp: NanosecondsSinceMidnight(1),
            user_ref_num: 2,
            rejected_order_reason: RejectedOrderReason::Halted,
            cl_ord_id: Ascii([b' '; 14]),
        };
        world.translator.venue_report(&rejected.encode(), &mut world.kept);
        let answer =
            |world: &World<Ouch>| fields(&world.kept.to_clients.last().unwrap().1, &[35, 11, 41, 434]);
        assert_eq!(answer(&world), "35=9 11=A2 41=A1 434=2");
        let reject = CancelRejectFields { timestamp: NanosecondsSinceMidnight(2), user_ref_num: 1 };
        world.translator.venue_report(&reject.encode(), &mut world.kept);
        assert_eq!(answer(&world), "35=9 11=C1 41=A1 434=1");
    }

    #[test]
    fn quantity_that_was_cancelled_once_is_not_cancelled_again() {
        let mut world = traded();
        let cancelled = |time| CanceledFields {
            timestamp: NanosecondsSinceMidnight(time),
            user_ref_num: 1,
            quantity: 20,
            cancel_order_reason: CancelOrderReason::Supervisory,
        };
        let left = |world: &mut World<_>, time| {
            let before = world.kept.to_clients.len();
            world.translator.venue_report(&cancelled(time).encode(), &mut world.kept);
            world.kept.to_clients[before..].iter().map(|(_, bytes)| text(bytes, 151)).collect::<String>()
        };
        assert_eq!([5, 6, 5].map(|time| left(&mut world, time)), ["40", "20", ""]);
    }
}

#[test]
fn values_that_would_reach_the_venue_as_others_are_refused() {
    let refused = |order: NewOrderSingleFields<'_>| {
        let mut translator = open(Default::default(), &[ClientSettings::default()], &CAPACITY);
        let mut kept = Kept::default();
        translator.client_bytes(ClientIndex(0), &new(&order), START_NS, &mut kept);
        assert_eq!(kept.to_venue.len(), 0);
        fields(&kept.to_clients[0].1, &[35, 371, 373])
    };
    let plain = limit("A1", Side::Buy, 1, E8);
    let till = |nanosecond| NewOrderSingleFields {
        time_in_force: Some(TimeInForce::GoodTillDate),
        expire_time: Some(NanosecondsSinceEpoch(START_NS + nanosecond)),
        ..plain
    };
    assert_eq!([1_000_000, 500_000_000].map(|part| refused(till(part))), ["35=3 371=126 373=5"; 2]);
    for account in [&b"A\0B"[..], b"\xC4", b"\x7f"] {
        let order = NewOrderSingleFields { account: Some(account), ..plain };
        assert_eq!(refused(order), "35=3 371=1 373=5");
    }
    // A store has what an earlier version took.
    let mut translator = open(Default::default(), &[ClientSettings::default()], &CAPACITY);
    translator.begin_replay();
    let stored = new(&till(1_000_000));
    assert!(translator.replay_request(ClientIndex(0), &stored, START_NS, &mut Kept::default()));
}
