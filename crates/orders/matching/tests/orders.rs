//! The order gateways of the simulated exchange, seen from real clients' ends.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a failure here is a failed test

mod traders;

use std::collections::BTreeMap;

use proptest::prelude::*;
use tapeworks_matching::orders::{
    Instrument, MARKET_PRICE, MarketEvent, OrderExchange, OrderFaults, OrderOptions, OrderOptionsError,
    PartitionHalt, RESTATED_ELECTED, RESTATED_SELF_TRADE, order_reject_code as code,
};
use tapeworks_matching::{BookChange, OrderSide, SelfTrade, SymbolIndex};
use tapeworks_order_session::native::Channel;
use tapeworks_wire::millennium::native::{
    AppId, AutoCancel, Capacity, ClearingAccount, ClientId, ExecType, ExecutingTrader, ExecutionReportFields,
    InvestmentDecisionMaker, MassCancelResponse, Message, MifidFlags, NewOrderFields, NewQuote,
    NewQuoteFields, OrderStatus, OrderType, PassiveOnlyOrder, PeggedExecInst, QuoteRequest, Side, Tif,
    TradeLiquidityIndicator, TypeOfTrade, message_length,
};
use tapeworks_wire::nasdaq::ouch50::appendage::{OptionalField, write_all};
use tapeworks_wire::nasdaq::ouch50::{inbound, outbound};
use tapeworks_wire::{Ascii, Decimal};
use traders::{E8, SECOND_NS, World, bytes, cancel, enter, mass_cancel, name, only, options, order, replace};

fn kinds(reports: &[(usize, ExecutionReportFields)]) -> Vec<(usize, ExecType, OrderStatus, i32)> {
    let kind = |(user, report): &(usize, ExecutionReportFields)| {
        (*user, report.exec_type, report.order_status, report.leaves_qty)
    };
    reports.iter().map(kind).collect()
}

#[test]
fn an_order_is_accepted_with_its_partition_number_and_base_62_id() {
    let mut world = World::new(&options());
    let reports = world.native(0, &order("A1", 11, Side::Buy, 100, 10 * E8).encode());
    let [(0, report)] = &reports[..] else { panic!("{reports:?}") };
    assert_eq!((report.exec_type, report.order_status), (ExecType::New, OrderStatus::New));
    assert_eq!((report.app_id, report.sequence_no, report.leaves_qty), (AppId::Partition1, 1, 100));
    assert_eq!((report.client_order_id.as_str(), report.order_id.trimmed().len()), (Some("A1"), 12));
    let reports = world.native(0, &order("A2", 22, Side::Sell, 5, 10 * E8).encode());
    assert_eq!((reports[0].1.app_id, reports[0].1.sequence_no), (AppId::Partition2, 1));
    let reports = world.native(0, &order("A3", 11, Side::Buy, 5, 10 * E8).encode());
    assert_eq!((reports[0].1.app_id, reports[0].1.sequence_no), (AppId::Partition1, 2));
    assert_ne!(reports[0].1.order_id, report.order_id);
    assert_ne!(reports[0].1.execution_id, report.execution_id);
    assert_eq!(reports[0].1.transact_time_seconds.0, 1_000);
}

#[test]
fn both_sides_of_a_trade_are_reported_with_one_match_id() {
    let mut world = World::new(&options());
    world.native(0, &order("A1", 11, Side::Buy, 100, 10 * E8).encode());
    let reports = world.native(1, &order("B1", 11, Side::Sell, 150, 9 * E8).encode());
    let expected = [
        (0, ExecType::Trade, OrderStatus::Filled, 0),
        (1, ExecType::New, OrderStatus::New, 150),
        (1, ExecType::Trade, OrderStatus::PartiallyFilled, 50),
    ];
    assert_eq!(kinds(&reports), expected);
    let (resting, incoming) = (&reports[0].1, &reports[2].1);
    for report in [resting, incoming] {
        assert_eq!((report.executed_qty, report.executed_price), (100, Decimal(10 * E8)));
        assert_eq!((report.trade_match_id, report.type_of_trade), (1, TypeOfTrade::Visible));
    }
    assert_eq!(resting.trade_liquidity_indicator, TradeLiquidityIndicator::AddedLiquidity);
    assert_eq!(incoming.trade_liquidity_indicator, TradeLiquidityIndicator::RemovedLiquidity);
    assert_ne!(resting.execution_id, incoming.execution_id);
}

#[test]
fn orders_that_do_not_fit_are_rejected_with_their_reason() {
    let mut world = World::new(&options());
    world.native(0, &order("A1", 11, Side::Buy, 100, 10 * E8).encode());
    let plain = |change: fn(&mut NewOrderFields)| {
        let mut fields = order("X", 11, Side::Buy, 100, 10 * E8);
        change(&mut fields);
        fields.encode()
    };
    let cases: [(_, i32, u8); 12] = [
        (plain(|fields| fields.instrument_id = 99), code::UNKNOWN_INSTRUMENT, 0),
        (plain(|fields| fields.order_qty = 0), code::QUANTITY, 1),
        (plain(|fields| fields.order_qty = -1), code::QUANTITY, 1),
        (plain(|fields| (fields.order_qty, fields.display_qty) = (i32::MAX, 0)), code::QUANTITY, 1),
        (plain(|fields| fields.limit_price = Decimal(1)), code::PRICE, 1),
        (plain(|fields| fields.limit_price = Decimal(i64::MIN)), code::PRICE, 1),
        (plain(|fields| fields.display_qty = 101), code::DISPLAY_QUANTITY, 1),
        (plain(|fields| fields.side = Side::None), code::SIDE, 1),
        (plain(|fields| fields.tif = Tif::AtTheOpening), code::TIME_IN_FORCE, 1),
        (plain(|fields| fields.tif = Tif::Unknown(77)), code::TIME_IN_FORCE, 1),
        (plain(|fields| fields.order_type = OrderType::Unknown(9)), code::ORDER_TYPE, 1),
        (plain(|fields| fields.client_order_id = name("A1")), code::DUPLICATE, 1),
    ];
    let count = cases.len() as u64;
    for (message, reject_code, app_id) in cases {
        let reports = world.native(0, &message);
        assert_eq!(kinds(&reports), [(0, ExecType::Rejected, OrderStatus::Rejected, 0)]);
        assert_eq!((reports[0].1.order_reject_code, reports[0].1.app_id.raw()), (reject_code, app_id));
        assert!(reports[0].1.order_id.is_blank());
    }
    assert_eq!((world.exchange.counters().rejected, world.exchange.engine().orders()), (count, 1));
}

#[test]
fn immediate_and_passive_orders_expire_with_what_is_left() {
    let mut world = World::new(&options());
    world.native(0, &order("A1", 11, Side::Buy, 100, 10 * E8).encode());
    let ioc = NewOrderFields { tif: Tif::ImmediateOrCancel, ..order("B1", 11, Side::Sell, 150, 10 * E8) };
    let reports = world.native(1, &ioc.encode());
    assert_eq!(kinds(&reports)[3], (1, ExecType::Expired, OrderStatus::Expired, 0));
    world.native(0, &order("A2", 11, Side::Buy, 100, 10 * E8).encode());
    let fok = NewOrderFields { tif: Tif::FillOrKill, ..order("B2", 11, Side::Sell, 150, 10 * E8) };
    let expired =
        [(1, ExecType::New, OrderStatus::New, 150), (1, ExecType::Expired, OrderStatus::Expired, 0)];
    assert_eq!(kinds(&world.native(1, &fok.encode())), expired);
    let passive = NewOrderFields {
        passive_only_order: PassiveOnlyOrder::NoMatchWithVisible,
        ..order("B3", 11, Side::Sell, 150, 10 * E8)
    };
    assert_eq!(kinds(&world.native(1, &passive.encode())), expired);
    let market = NewOrderFields { order_type: OrderType::Market, ..order("B4", 11, Side::Sell, 40, 0) };
    let filled = kinds(&world.native(1, &market.encode()));
    assert_eq!(filled[0], (0, ExecType::Trade, OrderStatus::PartiallyFilled, 60));
    assert_eq!(filled[2], (1, ExecType::Trade, OrderStatus::Filled, 0));
}

#[test]
fn a_good_till_time_order_expires_and_day_orders_end_with_the_day() {
    let mut world = World::new(&options());
    let gtt = NewOrderFields {
        tif: Tif::GoodTillTime,
        expire_date_time: 1_003,
        ..order("A1", 11, Side::Buy, 100, 10 * E8)
    };
    world.native(0, &gtt.encode());
    assert_eq!(world.exchange.due_ns(), 1_003 * SECOND_NS);
    world.pass(2);
    assert_eq!(world.natives[0].executions().len(), 1);
    world.pass(1);
    assert_eq!(world.natives[0].executions()[1].exec_type, ExecType::Expired);
    world.native(0, &order("A2", 11, Side::Buy, 100, 10 * E8).encode());
    world.exchange.end_day(world.now_ns);
    world.settle();
    assert_eq!(world.natives[0].executions()[3].exec_type, ExecType::Expired);
    let last = world.ouch.messages.last().unwrap();
    let Ok(outbound::Message::SystemEvent(event)) = outbound::Message::decode(last) else { panic!() };
    assert_eq!(event.event_code(), outbound::EventCode::EndOfDay);
}

#[test]
fn a_stop_is_restated_when_a_trade_elects_it() {
    let mut world = World::new(&options());
    let stop = NewOrderFields {
        order_type: OrderType::Stop,
        stop_price: Decimal(10 * E8),
        limit_price: Decimal(0),
        ..order("A1", 11, Side::Buy, 10, 0)
    };
    assert_eq!(kinds(&world.native(0, &stop.encode())), [(0, ExecType::New, OrderStatus::New, 10)]);
    world.native(1, &order("B1", 11, Side::Sell, 15, 10 * E8).encode());
    let reports = world.native(0, &order("A2", 11, Side::Buy, 5, 10 * E8).encode());
    let mine: Vec<_> = kinds(&reports).into_iter().filter(|report| report.0 == 0).collect();
    let expected = [
        (0, ExecType::New, OrderStatus::New, 5),
        (0, ExecType::Trade, OrderStatus::Filled, 0),
        (0, ExecType::Restated, OrderStatus::New, 10),
        (0, ExecType::Trade, OrderStatus::Filled, 0),
    ];
    assert_eq!(mine, expected);
    let restated = reports.iter().find(|(_, report)| report.exec_type == ExecType::Restated).unwrap();
    assert_eq!(restated.1.restatement_reason, RESTATED_ELECTED);
}

#[test]
fn icebergs_show_their_slice_and_hidden_orders_trade_as_hidden() {
    let mut world = World::new(&options());
    let iceberg = NewOrderFields { display_qty: 10, ..order("A1", 11, Side::Buy, 100, 10 * E8) };
    world.native(0, &iceberg.encode());
    let (symbol, buy) = (SymbolIndex(0), OrderSide::Buy);
    assert_eq!(world.exchange.engine().top(symbol, buy), Some((10 * E8, 10)));
    let hidden = NewOrderFields { display_qty: 0, ..order("A2", 22, Side::Buy, 100, 10 * E8) };
    world.native(0, &hidden.encode());
    assert_eq!(world.exchange.engine().top(SymbolIndex(1), buy), None);
    let reports = world.native(1, &order("B1", 22, Side::Sell, 30, 10 * E8).encode());
    assert_eq!((reports[0].0, reports[0].1.type_of_trade), (0, TypeOfTrade::Hidden));
    assert_eq!(reports[2].1.type_of_trade, TypeOfTrade::Visible);
}

#[test]
fn cancels_name_orders_by_either_id_and_unknown_ones_are_rejected() {
    let mut world = World::new(&options());
    world.native(0, &order("A1", 11, Side::Buy, 100, 10 * E8).encode());
    let second = world.native(0, &order("A2", 11, Side::Buy, 100, 10 * E8).encode());
    let cancelled = [(0, ExecType::Cancelled, OrderStatus::Cancelled, 0)];
    let reports = world.native(0, &cancel("C1", "A1", name(""), Side::Buy));
    assert_eq!((kinds(&reports), reports[0].1.client_order_id.as_str()), (cancelled.to_vec(), Some("C1")));
    // Another user's order is unknown, by whichever id.
    for original in ["A2", ""] {
        assert_eq!(world.native(1, &cancel("C9", original, second[0].1.order_id, Side::Buy)), []);
        let Ok(Message::OrderCancelReject(reject)) =
            Message::decode(world.natives[1].reports.last().unwrap())
        else {
            panic!("no cancel reject")
        };
        assert_eq!(reject.cancel_reject_reason(), code::UNKNOWN_ORDER);
        assert_eq!(reject.client_order_id().as_str(), Some("C9"));
    }
    let reports = world.native(0, &cancel("C2", "", second[0].1.order_id, Side::Buy));
    assert_eq!((kinds(&reports), reports[0].1.order_id), (cancelled.to_vec(), second[0].1.order_id));
    assert_eq!(world.native(0, &cancel("C3", "", second[0].1.order_id, Side::Buy)), []);
    assert_eq!(world.exchange.counters().cancel_rejects, 3);
    assert_eq!(world.exchange.engine().orders(), 0);
}

#[test]
fn an_amended_order_has_the_new_client_order_id_and_counts_what_is_executed() {
    let mut world = World::new(&options());
    world.native(0, &order("A1", 11, Side::Buy, 100, 10 * E8).encode());
    world.native(1, &order("B1", 11, Side::Sell, 30, 10 * E8).encode());
    let reports = world.native(0, &replace("A2", "A1", 120, 11 * E8));
    assert_eq!(kinds(&reports), [(0, ExecType::Replaced, OrderStatus::PartiallyFilled, 90)]);
    assert_eq!(reports[0].1.client_order_id.as_str(), Some("A2"));
    // The old name is gone, the new one works; a chain of amendments too.
    assert_eq!(world.native(0, &replace("A3", "A1", 120, 11 * E8)), []);
    assert_eq!(kinds(&world.native(0, &replace("A3", "A2", 120, 12 * E8)))[0].1, ExecType::Replaced);
    let reports = world.native(0, &replace("A4", "A3", 30, 12 * E8));
    assert_eq!(kinds(&reports), [(0, ExecType::Cancelled, OrderStatus::Cancelled, 0)]);
    assert_eq!(reports[0].1.client_order_id.as_str(), Some("A4"));
    // A refused amendment leaves the order as it was.
    world.native(0, &order("A5", 11, Side::Buy, 100, 10 * E8).encode());
    world.native(0, &order("A6", 11, Side::Buy, 100, 10 * E8).encode());
    for (new, quantity, price_e8, reason) in
        [("A6", 100, 10 * E8, code::DUPLICATE), ("A7", 0, 10 * E8, code::QUANTITY), ("A7", 5, 1, code::PRICE)]
    {
        assert_eq!(world.native(0, &replace(new, "A5", quantity, price_e8)), []);
        let Ok(Message::OrderCancelReject(reject)) =
            Message::decode(world.natives[0].reports.last().unwrap())
        else {
            panic!("no cancel reject")
        };
        assert_eq!(reject.cancel_reject_reason(), reason);
    }
    let reports = world.native(0, &cancel("C1", "A5", name(""), Side::Buy));
    assert_eq!(reports[0].1.exec_type, ExecType::Cancelled);
}

#[test]
fn a_client_order_id_is_free_again_once_its_order_is_gone() {
    let mut world = World::new(&options());
    let (buy, sell) =
        (order("A1", 11, Side::Buy, 10, 10 * E8).encode(), order("B1", 11, Side::Sell, 10, 10 * E8).encode());
    for _ in 0..3 {
        world.native(0, &buy);
        assert_eq!(world.native(1, &sell).len(), 3, "both are filled");
    }
    for _ in 0..2 {
        assert_eq!(world.native(0, &buy)[0].1.exec_type, ExecType::New);
        assert_eq!(world.native(0, &buy)[0].1.order_reject_code, code::DUPLICATE);
        assert_eq!(
            world.native(0, &cancel("C1", "A1", name(""), Side::Buy))[0].1.exec_type,
            ExecType::Cancelled
        );
    }
    assert_eq!((world.exchange.counters().trades, world.exchange.engine().orders()), (3, 0));
}

#[test]
fn a_mass_cancel_is_answered_before_the_cancels_of_its_instrument() {
    let mut world = World::new(&options());
    for (number, instrument) in [(1, 11), (2, 22), (3, 11)] {
        world.native(0, &order(&format!("A{number}"), instrument, Side::Buy, 10, 10 * E8).encode());
    }
    world.native(1, &order("B1", 11, Side::Buy, 10, 10 * E8).encode());
    let before = world.natives[0].reports.len();
    let reports = world.native(0, &mass_cancel("M1", 11, 3));
    let named: Vec<_> =
        reports.iter().map(|(user, report)| (*user, report.client_order_id.to_string())).collect();
    assert_eq!(named, [(0, "A1".to_owned()), (0, "A3".to_owned())]);
    let Ok(Message::OrderMassCancelReport(report)) = Message::decode(&world.natives[0].reports[before])
    else {
        panic!("no report")
    };
    assert_eq!(report.mass_cancel_response(), MassCancelResponse::Accepted);
    for (message, reason) in [
        (mass_cancel("M2", 99, 3), code::UNKNOWN_INSTRUMENT),
        (mass_cancel("M3", 11, 7), code::NOT_SUPPORTED),
    ] {
        assert_eq!(world.native(0, &message), []);
        let Ok(Message::OrderMassCancelReport(report)) =
            Message::decode(world.natives[0].reports.last().unwrap())
        else {
            panic!("no report")
        };
        assert_eq!(report.mass_cancel_response(), MassCancelResponse::Rejected);
        assert_eq!(report.mass_cancel_reject_reason(), reason);
    }
    assert_eq!(world.exchange.engine().orders(), 2);
}

#[test]
fn orders_are_cancelled_on_disconnect_unless_they_or_the_user_say_otherwise() {
    let mut options = options();
    options.native_users[1].cancels_on_disconnect = false;
    let mut world = World::new(&options);
    world.native(0, &order("A1", 11, Side::Buy, 10, 10 * E8).encode());
    let stays =
        NewOrderFields { auto_cancel: AutoCancel::DoNotCancel, ..order("A2", 11, Side::Buy, 10, 9 * E8) };
    world.native(0, &stays.encode());
    world.native(1, &order("B1", 11, Side::Buy, 10, 8 * E8).encode());
    world.ouch(&bytes(&enter(1, inbound::Side::Buy, 10, 70_000)));
    world.cut(0, Channel::RealTime);
    world.cut(1, Channel::RealTime);
    world.cut_ouch();
    assert_eq!(world.exchange.engine().orders(), 2);
    world.pass(3);
    let last = world.natives[0].executions().pop().unwrap();
    assert_eq!((last.exec_type, last.client_order_id.as_str()), (ExecType::Cancelled, Some("A1")));
    assert_eq!(world.natives[1].executions().len(), 1);
    let Ok(outbound::Message::Canceled(canceled)) =
        outbound::Message::decode(world.ouch.messages.last().unwrap())
    else {
        panic!("not cancelled")
    };
    assert_eq!(canceled.cancel_order_reason(), outbound::CancelOrderReason::SystemCancel);
}

#[test]
fn a_busted_trade_is_reported_to_both_sides_with_the_execution_it_cancels() {
    let mut world = World::new(&options());
    world.native(0, &order("A1", 11, Side::Buy, 100, 10 * E8).encode());
    let traded = world.native(1, &order("B1", 11, Side::Sell, 40, 10 * E8).encode());
    world.ouch(&bytes(&enter(1, inbound::Side::Sell, 10, 100_000)));
    assert!(world.exchange.bust(1, world.now_ns) && !world.exchange.bust(1, world.now_ns));
    world.settle();
    let (ann, bob) =
        (world.natives[0].executions().pop().unwrap(), world.natives[1].executions().pop().unwrap());
    assert_eq!((ann.exec_type, bob.exec_type), (ExecType::TradeCancel, ExecType::TradeCancel));
    assert_eq!((ann.execution_report_ref_id, ann.executed_qty), (traded[0].1.execution_id, 40));
    assert_eq!(bob.execution_report_ref_id, traded[2].1.execution_id);
    assert!(world.exchange.bust(2, world.now_ns));
    world.settle();
    let Ok(outbound::Message::BrokenTrade(broken)) =
        outbound::Message::decode(world.ouch.messages.last().unwrap())
    else {
        panic!("not broken")
    };
    assert_eq!((broken.user_ref_num(), broken.match_number()), (1, 2));
    assert_eq!(world.exchange.counters().busted, 2);
}

#[test]
fn a_suspended_instrument_takes_cancels_only_and_its_orders_are_notified() {
    let mut world = World::new(&options());
    world.native(0, &order("A1", 11, Side::Buy, 100, 10 * E8).encode());
    assert!(world.exchange.suspend(SymbolIndex(0), true, world.now_ns));
    assert!(!world.exchange.suspend(SymbolIndex(9), true, world.now_ns));
    world.settle();
    let last = world.natives[0].executions().pop().unwrap();
    assert_eq!((last.exec_type, last.order_status), (ExecType::Suspended, OrderStatus::Suspended));
    let refused = world.native(1, &order("B1", 11, Side::Sell, 100, 10 * E8).encode());
    assert_eq!(refused[0].1.order_reject_code, code::HALTED);
    let refused = world.ouch(&bytes(&enter(1, inbound::Side::Sell, 10, 100_000)));
    let outbound::Message::RejectedOrder(rejected) = only(&refused) else { panic!("not rejected") };
    assert_eq!(rejected.rejected_order_reason(), outbound::RejectedOrderReason::Halted);
    world.exchange.suspend(SymbolIndex(0), false, world.now_ns);
    world.settle();
    assert_eq!(world.natives[0].executions().pop().unwrap().exec_type, ExecType::Restated);
    let reports = world.native(0, &cancel("C1", "A1", name(""), Side::Buy));
    assert_eq!(reports[0].1.exec_type, ExecType::Cancelled);
}

fn quote(name_: &str, bid: (i32, i64), ask: (i32, i64)) -> [u8; NewQuote::LENGTH] {
    NewQuoteFields {
        start_of_message: 2,
        message_length: message_length(NewQuote::LENGTH),
        client_order_id: name(name_),
        trader_id: name("T"),
        clearing_account: ClearingAccount::House,
        instrument_id: 11,
        bid_price: Decimal(bid.1),
        bid_size: bid.0,
        ask_price: Decimal(ask.1),
        ask_size: ask.0,
        capacity: Capacity::DealingOnOwnAccount,
        auto_cancel: AutoCancel::ConformToUserConfiguration,
        client_id: ClientId::None,
        investment_decision_maker: InvestmentDecisionMaker::None,
        executing_trader: ExecutingTrader::Client,
        mifid_flags: MifidFlags(0),
        party_role_qualifiers: 0,
        pegged_exec_inst: PeggedExecInst::Default,
    }
    .encode()
}

#[test]
fn a_quote_is_two_orders_that_the_next_quote_replaces() {
    let mut world = World::new(&options());
    let reports = world.native(0, &quote("Q1", (10, 9 * E8), (20, 11 * E8)));
    let new = [(0, ExecType::New, OrderStatus::New, 10), (0, ExecType::New, OrderStatus::New, 20)];
    assert_eq!(kinds(&reports), new);
    assert_eq!((reports[0].1.side, reports[1].1.side), (Side::Buy, Side::Sell));
    // One side trades; the next quote cancels what is left of both, and shows one side only.
    world.native(1, &order("B1", 11, Side::Sell, 4, 9 * E8).encode());
    let reports = world.native(0, &quote("Q2", (0, 0), (30, 10 * E8)));
    let expected = [
        (0, ExecType::Cancelled, OrderStatus::Cancelled, 0),
        (0, ExecType::Cancelled, OrderStatus::Cancelled, 0),
        (0, ExecType::New, OrderStatus::New, 30),
    ];
    assert_eq!(kinds(&reports), expected);
    assert_eq!(world.exchange.engine().orders(), 1);
    // A crossed quote is rejected, and the one before stays.
    let reports = world.native(0, &quote("Q3", (5, 10 * E8), (5, 10 * E8)));
    assert_eq!((reports[0].1.exec_type, reports[0].1.order_reject_code), (ExecType::Rejected, code::PRICE));
    // Orders and quotes are cancelled apart.
    world.native(0, &order("A1", 11, Side::Buy, 5, 5 * E8).encode());
    assert_eq!(world.native(0, &mass_cancel("M1", 11, 3)).len(), 1);
    let mut of_quotes = mass_cancel("M2", 11, 3);
    of_quotes[35] = 3;
    let reports = world.native(0, &of_quotes);
    assert_eq!((reports.len(), reports[0].1.client_order_id.as_str()), (1, Some("Q2")));
    assert_eq!(world.exchange.engine().orders(), 0);
    // A quote that traded away has nothing to cancel.
    world.native(0, &quote("Q4", (5, 9 * E8), (0, 0)));
    world.native(1, &order("B2", 11, Side::Sell, 5, 9 * E8).encode());
    assert_eq!(
        kinds(&world.native(0, &quote("Q5", (5, 9 * E8), (0, 0)))),
        [(0, ExecType::New, OrderStatus::New, 5)]
    );
    assert_eq!(world.exchange.counters().quotes, 5);
}

#[test]
fn requests_for_quotes_are_answered_by_a_business_reject() {
    let mut world = World::new(&options());
    let mut request = [0; QuoteRequest::LENGTH];
    request[..4].copy_from_slice(&[2, (QuoteRequest::LENGTH - 3) as u8, 0, b'a']);
    assert_eq!(world.native(0, &request), []);
    let Ok(Message::BusinessReject(reject)) = Message::decode(world.natives[0].reports.last().unwrap())
    else {
        panic!("no business reject")
    };
    assert_eq!(reject.reject_code(), code::NOT_SUPPORTED);
}

#[test]
fn orders_of_one_owner_do_not_trade_where_the_venue_prevents_it() {
    let mut world = World::new(&OrderOptions { self_trade: SelfTrade::DecrementBoth, ..options() });
    world.native(0, &order("A1", 11, Side::Buy, 100, 10 * E8).encode());
    let reports = world.native(0, &order("A2", 11, Side::Sell, 30, 10 * E8).encode());
    let restated = reports.iter().find(|(_, report)| report.exec_type == ExecType::Restated).unwrap();
    assert_eq!((restated.1.leaves_qty, restated.1.restatement_reason), (70, RESTATED_SELF_TRADE));
    assert_eq!(world.exchange.counters().trades, 0);
    // Nothing is left of A2: its name is free again.
    let reports = world.native(0, &order("A2", 11, Side::Buy, 1, E8).encode());
    assert_eq!(reports.first().map(|(_, report)| report.exec_type), Some(ExecType::New));
    world.ouch(&bytes(&enter(1, inbound::Side::Buy, 10, 110_000)));
    let messages = world.ouch(&bytes(&enter(2, inbound::Side::Sell, 4, 110_000)));
    let decoded: Vec<_> =
        messages.iter().map(|bytes| outbound::Message::decode(bytes).unwrap().name()).collect();
    assert!(decoded.contains(&"AiqCanceled"), "{decoded:?}");
}

// OUCH

#[test]
fn an_ouch_order_trades_with_a_native_one_in_one_book() {
    let mut world = World::new(&options());
    let Ok(outbound::Message::SystemEvent(start)) = outbound::Message::decode(&world.ouch.messages[0]) else {
        panic!("no start of day")
    };
    assert_eq!(start.timestamp().0, 1_000 * SECOND_NS);
    world.native(0, &order("A1", 11, Side::Buy, 100, 10 * E8 + E8 / 4).encode());
    let messages = world.ouch(&bytes(&enter(1, inbound::Side::SellShort, 40, 100_000)));
    let [accepted, executed] = &messages[..] else { panic!("{messages:?}") };
    let Ok(outbound::Message::OrderAccepted(accepted)) = outbound::Message::decode(accepted) else {
        panic!()
    };
    assert_eq!((accepted.user_ref_num(), accepted.side()), (1, outbound::Side::SellShort));
    assert_eq!(
        (accepted.symbol().as_str(), accepted.order_state()),
        (Some("AAPL"), outbound::OrderState::OrderLive)
    );
    let Ok(outbound::Message::OrderExecuted(executed)) = outbound::Message::decode(executed) else {
        panic!()
    };
    assert_eq!((executed.quantity(), executed.price().0, executed.match_number()), (40, 102_500, 1));
    assert_eq!(executed.liquidity_flag(), outbound::LiquidityFlag::Removed);
    assert_eq!(world.natives[0].executions().pop().unwrap().trade_match_id, 1);
    let market = world.ouch(&bytes(&enter(2, inbound::Side::Sell, 100, MARKET_PRICE)));
    let Ok(outbound::Message::Canceled(rest)) = outbound::Message::decode(&market[2]) else { panic!() };
    assert_eq!(
        (rest.quantity(), rest.cancel_order_reason()),
        (40, outbound::CancelOrderReason::ImmediateOrCancelOrder)
    );
}

#[test]
fn ouch_orders_that_do_not_fit_are_rejected_with_their_reason() {
    use outbound::RejectedOrderReason as Reason;
    let mut world = World::new(&options());
    let mut reference = 0;
    let mut rejects = |change: &dyn Fn(&mut inbound::EnterOrderFields<'_>), reason| {
        reference += 1;
        let mut fields = enter(reference, inbound::Side::Buy, 10, 100_000);
        change(&mut fields);
        let messages = world.ouch(&bytes(&fields));
        let outbound::Message::RejectedOrder(rejected) = only(&messages) else {
            panic!("{reason:?}: {messages:?}")
        };
        assert_eq!((rejected.rejected_order_reason(), rejected.user_ref_num()), (reason, reference));
    };
    rejects(&|fields| fields.symbol = name("NONE"), Reason::InvalidSymbol);
    rejects(&|fields| fields.quantity = 0, Reason::InvalidQuantity);
    rejects(&|fields| fields.price = Decimal(1), Reason::InvalidPrice);
    rejects(&|fields| fields.price = Decimal(u64::MAX), Reason::InvalidPrice);
    rejects(&|fields| fields.side = inbound::Side::Unknown(b'?'), Reason::InvalidSide);
    rejects(&|fields| fields.display = inbound::Display::MidPointPeg, Reason::PeggingNotAllowed);
    rejects(&|fields| fields.display = inbound::Display::Conformant, Reason::InvalidDisplay);
    rejects(&|fields| fields.cross_type = inbound::CrossType::OpeningCross, Reason::InvalidCrossOrder);
    rejects(&|fields| fields.time_in_force = inbound::TimeInForce::AfterHours, Reason::DestinationClosed);
    for (field, reason) in [
        (OptionalField::PriceType(b'M'), Reason::PeggingNotAllowed),
        (OptionalField::Route(Ascii(*b"ABCD")), Reason::RoutingNotAllowed),
        (OptionalField::MinQty(5), Reason::InvalidMinQuantity),
        (OptionalField::MaxFloor(11), Reason::InvalidMaxFloor),
        (OptionalField::Unknown { tag: 3, value: b"x" }, Reason::ProcessingError),
    ] {
        let mut appendage = [0; 16];
        let length = write_all(&[field], &mut appendage).unwrap();
        reference += 1;
        let fields = inbound::EnterOrderFields {
            appendage_length: length as u16,
            appendage: &appendage[..length],
            ..enter(reference, inbound::Side::Buy, 10, 100_000)
        };
        let messages = world.ouch(&bytes(&fields));
        let outbound::Message::RejectedOrder(rejected) = only(&messages) else { panic!("{field:?}") };
        assert_eq!(rejected.rejected_order_reason(), reason, "{field:?}");
    }
    assert_eq!(world.exchange.engine().orders(), 0);
}

#[test]
fn optional_fields_make_an_ouch_order_an_iceberg_or_one_that_expires() {
    let mut world = World::new(&options());
    let mut appendage = [0; 16];
    let length =
        write_all(&[OptionalField::MaxFloor(10), OptionalField::ExpireTime(5)], &mut appendage).unwrap();
    let fields = inbound::EnterOrderFields {
        appendage_length: length as u16,
        appendage: &appendage[..length],
        time_in_force: inbound::TimeInForce::GoodTillTime,
        ..enter(1, inbound::Side::Buy, 100, 100_000)
    };
    world.ouch(&bytes(&fields));
    assert_eq!(world.exchange.engine().top(SymbolIndex(0), OrderSide::Buy), Some((10 * E8, 10)));
    world.pass(5);
    let Ok(outbound::Message::Canceled(timed_out)) =
        outbound::Message::decode(world.ouch.messages.last().unwrap())
    else {
        panic!("not expired")
    };
    assert_eq!(
        (timed_out.quantity(), timed_out.cancel_order_reason()),
        (100, outbound::CancelOrderReason::Timeout)
    );
}

#[test]
fn ouch_orders_are_replaced_reduced_modified_and_cancelled() {
    let mut world = World::new(&options());
    world.ouch(&bytes(&enter(1, inbound::Side::Sell, 100, 100_000)));
    let replace = inbound::ReplaceOrderFields {
        orig_user_ref_num: 1,
        user_ref_num: 5,
        quantity: 80,
        price: Decimal(110_000),
        time_in_force: inbound::TimeInForce::Day,
        display: inbound::Display::Visible,
        inter_market_sweep_eligibility: inbound::InterMarketSweepEligibility::NotEligible,
        cl_ord_id: name("D"),
        appendage_length: 0,
        appendage: &[],
    };
    let mut replace_bytes = [0; inbound::ReplaceOrder::MINIMUM_LENGTH];
    replace.encode_into(&mut replace_bytes).unwrap();
    let messages = world.ouch(&replace_bytes);
    let outbound::Message::Replaced(replaced) = only(&messages) else { panic!("not replaced") };
    assert_eq!((replaced.orig_user_ref_num(), replaced.user_ref_num(), replaced.quantity()), (1, 5, 80));
    assert_eq!((replaced.price().0, replaced.cl_ord_id().as_str()), (110_000, Some("D")));

    let messages = world.ouch(&inbound::CancelOrderFields { user_ref_num: 5, quantity: 50 }.encode());
    let outbound::Message::Canceled(reduced) = only(&messages) else { panic!("not reduced") };
    assert_eq!((reduced.user_ref_num(), reduced.quantity()), (5, 30));

    let modify =
        inbound::ModifyOrderFields { user_ref_num: 5, side: inbound::Side::SellShort, quantity: 40 }.encode();
    let messages = world.ouch(&modify);
    let outbound::Message::OrderModified(modified) = only(&messages) else { panic!("not modified") };
    assert_eq!((modified.side(), modified.quantity()), (outbound::Side::SellShort, 40));

    let messages = world.ouch(&inbound::CancelOrderFields { user_ref_num: 5, quantity: 0 }.encode());
    let outbound::Message::Canceled(canceled) = only(&messages) else { panic!("not cancelled") };
    assert_eq!(
        (canceled.quantity(), canceled.cancel_order_reason()),
        (40, outbound::CancelOrderReason::UserRequestedCancel)
    );

    let messages = world.ouch(b"Q");
    let outbound::Message::AccountQueryResponse(next) = only(&messages) else { panic!("no answer") };
    assert_eq!(next.next_user_ref_num(), 6);
}

#[test]
fn ouch_messages_that_are_sent_again_do_not_count_twice() {
    let mut world = World::new(&options());
    world.ouch(&bytes(&enter(3, inbound::Side::Sell, 100, 100_000)));
    assert!(world.ouch(&bytes(&enter(3, inbound::Side::Sell, 100, 100_000))).is_empty());
    assert!(world.ouch(&bytes(&enter(2, inbound::Side::Sell, 100, 100_000))).is_empty());
    assert!(world.ouch(&inbound::CancelOrderFields { user_ref_num: 9, quantity: 0 }.encode()).is_empty());
    assert!(world.ouch(b"?").is_empty());
    let counters = world.exchange.counters();
    assert_eq!((counters.stale_references, counters.unreadable), (3, 1));
    assert_eq!(world.exchange.engine().orders(), 1);
}

// Faults

#[test]
fn a_halted_partition_rejects_its_orders_until_it_ends() {
    let halt = PartitionHalt { partition: 1, at_message: 2, duration_ns: 3 * SECOND_NS };
    let faults = OrderFaults { halt: Some(halt), ..OrderFaults::default() };
    let mut world = World::new(&OrderOptions { faults, ..options() });
    for (number, instrument, expected) in [
        (1, 11, (ExecType::New, 0)),
        (2, 11, (ExecType::New, 0)),
        (3, 11, (ExecType::Rejected, code::PARTITION_HALTED)),
        (4, 22, (ExecType::New, 0)),
    ] {
        let name = format!("A{number}");
        let reports = world.native(0, &order(&name, instrument, Side::Buy, 10, 10 * E8).encode());
        assert_eq!((reports[0].1.exec_type, reports[0].1.order_reject_code), expected, "{number}");
    }
    assert!(world.natives[0].session.iter().any(|event| event.contains("PartitionNotAvailable")));
    world.pass(3);
    let reports = world.native(0, &order("A5", 11, Side::Buy, 10, 10 * E8).encode());
    assert_eq!(reports[0].1.exec_type, ExecType::New);
    assert_eq!(world.exchange.faults().halts, 1);
}

#[test]
fn delayed_reports_keep_their_order() {
    let faults = OrderFaults {
        seed: 1,
        delays_per_million: 500_000,
        longest_delay_ns: 3 * SECOND_NS,
        ..OrderFaults::default()
    };
    let mut world = World::new(&OrderOptions { faults, ..options() });
    for number in 0..20 {
        let message = order(&format!("A{number}"), 11, Side::Buy, 10, 10 * E8).encode();
        world.natives[0].client.send(&message, world.now_ns).unwrap();
    }
    world.settle();
    assert!(world.natives[0].executions().len() < 20);
    assert!(world.exchange.due_ns() > world.now_ns);
    world.pass(4);
    let names: Vec<_> =
        world.natives[0].executions().iter().map(|report| report.client_order_id.to_string()).collect();
    assert_eq!(names, (0..20).map(|number| format!("A{number}")).collect::<Vec<_>>());
}

#[test]
fn options_that_contradict_themselves_are_refused() {
    let with = |change: fn(&mut Vec<Instrument>)| {
        let mut options = options();
        change(&mut options.instruments);
        OrderExchange::new(&options, 0).map(|_| ()).unwrap_err()
    };
    assert!(matches!(with(|all| all[1].id = 11), OrderOptionsError::Instrument { id: 11, .. }));
    assert!(matches!(with(|all| all[1].partition = 3), OrderOptionsError::Partition { partition: 3, .. }));
    assert!(matches!(with(|all| all[1].partition = 0), OrderOptionsError::Partition { .. }));
    assert!(matches!(with(|all| all[1].tick_e8 = 1), OrderOptionsError::Tick { id: 22, tick_e8: 1 }));
}

// Properties

#[derive(Debug, Clone)]
enum Act {
    New { user: usize, instrument: i32, is_buy: bool, quantity: i32, price: i64, kind: u8 },
    Cancel { user: usize, number: u32 },
    Replace { user: usize, number: u32, quantity: i32, price: i64 },
    MassCancel { user: usize, instrument: i32 },
    Ouch { is_buy: bool, quantity: u32, price: u64, kind: u8 },
    OuchCancel { number: u32, quantity: u32 },
    Carry(usize),
    Pass(u64),
    Cut { user: usize, is_recovery: bool },
    CutOuch,
}

fn act() -> impl Strategy<Value = Act> {
    let instrument = || prop_oneof![Just(11), Just(22)];
    prop_oneof![
        8 => (0usize..2, instrument(), any::<bool>(), 1i32..50, 1i64..6, 0u8..8)
            .prop_map(|(user, instrument, is_buy, quantity, price, kind)| Act::New { user, instrument, is_buy, quantity, price, kind }),
        2 => (0usize..2, 0u32..40).prop_map(|(user, number)| Act::Cancel { user, number }),
        2 => (0usize..2, 0u32..40, 1i32..60, 1i64..6)
            .prop_map(|(user, number, quantity, price)| Act::Replace { user, number, quantity, price }),
        1 => (0usize..2, instrument()).prop_map(|(user, instrument)| Act::MassCancel { user, instrument }),
        5 => (any::<bool>(), 1u32..50, 1u64..6, 0u8..4)
            .prop_map(|(is_buy, quantity, price, kind)| Act::Ouch { is_buy, quantity, price, kind }),
        2 => (1u32..40, 0u32..30).prop_map(|(number, quantity)| Act::OuchCancel { number, quantity }),
        8 => (1usize..500).prop_map(Act::Carry),
        2 => (1u64..3_000).prop_map(Act::Pass),
        1 => (0usize..2, any::<bool>()).prop_map(|(user, is_recovery)| Act::Cut { user, is_recovery }),
        1 => Just(Act::CutOuch),
    ]
}

fn new_order(name: &str, act: &Act) -> Option<NewOrderFields> {
    let Act::New { instrument, is_buy, quantity, price, kind, .. } = *act else { return None };
    let side = if is_buy { Side::Buy } else { Side::Sell };
    let plain = order(name, instrument, side, quantity, price * E8);
    Some(match kind {
        0 => NewOrderFields { tif: Tif::ImmediateOrCancel, ..plain },
        1 => NewOrderFields { tif: Tif::FillOrKill, ..plain },
        2 => NewOrderFields { order_type: OrderType::Market, ..plain },
        3 => NewOrderFields { order_type: OrderType::StopLimit, stop_price: Decimal(price * E8), ..plain },
        4 => NewOrderFields { display_qty: 1 + quantity / 3, ..plain },
        5 => NewOrderFields { display_qty: 0, ..plain },
        _ => plain,
    })
}

/// Runs the acts, then lets everything settle. Returns the world.
fn run(options: &OrderOptions, acts: &[Act]) -> World {
    let mut world = World::new(options);
    let (mut named, mut referenced) = ([0u32; 2], 0u32);
    for act in acts {
        let now_ns = world.now_ns;
        match act {
            Act::New { user, .. } => {
                let fields = new_order(&format!("N{}", named[*user]), act).unwrap();
                if world.natives[*user].client.send(&fields.encode(), now_ns).is_ok() {
                    named[*user] += 1;
                }
            }
            Act::Cancel { user, number } => {
                let message = cancel("C", &format!("N{number}"), name(""), Side::Buy);
                let _away = world.natives[*user].client.send(&message, now_ns);
            }
            Act::Replace { user, number, quantity, price } => {
                let new = format!("N{}", named[*user]);
                let message = replace(&new, &format!("N{number}"), *quantity, price * E8);
                if world.natives[*user].client.send(&message, now_ns).is_ok() {
                    named[*user] += 1;
                }
            }
            Act::MassCancel { user, instrument } => {
                let _away = world.natives[*user].client.send(&mass_cancel("M", *instrument, 3), now_ns);
            }
            Act::Ouch { is_buy, quantity, price, kind } => {
                let side = if *is_buy { inbound::Side::Buy } else { inbound::Side::Sell };
                let plain = enter(referenced + 1, side, *quantity, price * 10_000);
                let fields = match kind {
                    0 => inbound::EnterOrderFields {
                        time_in_force: inbound::TimeInForce::ImmediateOrCancel,
                        ..plain
                    },
                    1 => inbound::EnterOrderFields { display: inbound::Display::Hidden, ..plain },
                    _ => plain,
                };
                if world.ouch.client.send(&bytes(&fields), now_ns).is_ok() {
                    referenced += 1;
                }
            }
            Act::OuchCancel { number, quantity } => {
                let cancel = inbound::CancelOrderFields { user_ref_num: *number, quantity: *quantity };
                let _away = world.ouch.client.send(&cancel.encode(), now_ns);
            }
            Act::Carry(most) => {
                world.tick();
                world.carry(*most);
            }
            Act::Pass(milliseconds) => {
                world.now_ns += milliseconds * 1_000_000;
                world.settle();
            }
            Act::Cut { user, is_recovery } => {
                world.cut(*user, if *is_recovery { Channel::Recovery } else { Channel::RealTime });
            }
            Act::CutOuch => world.cut_ouch(),
        }
    }
    world.pass(90);
    world
}

/// What a user knows of an order from its reports alone.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Known {
    leaves: i64,
    executed: i64,
}

/// Follows a native user's reports: each trade lowers what is left, no report comes for an order that is gone, and execution
/// ids are not used twice. Returns the working orders.
fn follow(
    reports: &[ExecutionReportFields],
    trades: &mut BTreeMap<u64, Vec<i64>>,
) -> BTreeMap<Ascii<12>, Known> {
    let mut orders: BTreeMap<Ascii<12>, Known> = BTreeMap::new();
    let mut executions = std::collections::HashSet::new();
    for report in reports {
        assert!(executions.insert(report.execution_id), "{report:?}");
        let (id, leaves) = (report.order_id, i64::from(report.leaves_qty));
        match report.exec_type {
            ExecType::New => {
                assert_eq!(orders.insert(id, Known { leaves, executed: 0 }), None, "{report:?}");
            }
            ExecType::Rejected => continue,
            ExecType::Trade => {
                let known = orders.get_mut(&id).expect("a trade of a known order");
                known.leaves -= i64::from(report.executed_qty);
                known.executed += i64::from(report.executed_qty);
                assert_eq!(known.leaves, leaves, "{report:?}");
                trades.entry(report.trade_match_id).or_default().push(i64::from(report.executed_qty));
                if leaves == 0 {
                    assert_eq!(report.order_status, OrderStatus::Filled);
                    orders.remove(&id);
                }
            }
            ExecType::Replaced | ExecType::Restated => {
                orders.get_mut(&id).expect("a known order").leaves = leaves
            }
            ExecType::Cancelled | ExecType::Expired => {
                assert!(orders.remove(&id).is_some(), "{report:?}");
            }
            other => panic!("{other:?}"),
        }
    }
    orders
}

/// The displayed book as the market's events make it.
fn market_book(world: &mut World) -> BTreeMap<(u32, u64), (OrderSide, i64, u32)> {
    let mut book: BTreeMap<(u32, u64), (OrderSide, i64, u32)> = BTreeMap::new();
    let mut last_ns = 0;
    while let Some(event) = world.exchange.next_market() {
        let (MarketEvent::Book { time_ns, .. } | MarketEvent::Trade { time_ns, .. }) = event else {
            continue;
        };
        assert!(time_ns >= last_ns);
        last_ns = time_ns;
        let MarketEvent::Book { symbol: SymbolIndex(symbol), change, .. } = event else { continue };
        match change {
            BookChange::Add { reference, side, price_e8, quantity } => {
                assert_eq!(book.insert((symbol, reference), (side, price_e8, quantity)), None);
            }
            BookChange::Execute { reference, quantity, .. }
            | BookChange::Reduce { reference, by: quantity } => {
                let entry = book.get_mut(&(symbol, reference)).expect("an order in the book");
                entry.2 -= quantity;
                if entry.2 == 0 {
                    book.remove(&(symbol, reference));
                }
            }
            BookChange::Delete { reference } => assert!(book.remove(&(symbol, reference)).is_some()),
            BookChange::Replace { old, new, price_e8, quantity } => {
                let (side, ..) = book.remove(&(symbol, old)).expect("an order in the book");
                book.insert((symbol, new), (side, price_e8, quantity));
            }
            BookChange::HiddenTrade { .. } => {}
        }
    }
    book
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn reports_and_market_data_agree_with_the_books_through_breaks_and_faults(
        acts in prop::collection::vec(act(), 1..120),
        seed in any::<u64>(),
        has_faults in any::<bool>(),
    ) {
        let faults = OrderFaults {
            seed,
            rejects_per_million: 50_000,
            delays_per_million: 50_000,
            longest_delay_ns: SECOND_NS,
            gaps_per_million: 50_000,
            garbage_per_million: 20_000,
            drop_every: 25,
            halt: Some(PartitionHalt { partition: 1, at_message: 10, duration_ns: SECOND_NS }),
            ..OrderFaults::default()
        };
        let options = OrderOptions { faults: if has_faults { faults } else { OrderFaults::default() }, ..options() };
        let mut world = run(&options, &acts);
        // A report that was not sent is noticed at the next one: each user gets one more of each partition.
        for user in 0..2 {
            for number in 0..40 {
                let message = order(&format!("Z{number}"), [11, 22][number % 2], Side::Buy, 1, E8 / 100).encode();
                let _away = world.natives[user].client.send(&message, world.now_ns);
                world.pass(2);
            }
        }
        world.pass(60);
        let mut trades = BTreeMap::new();
        let mut working = 0;
        for user in 0..2 {
            let native = &world.natives[user];
            prop_assert!(native.client.is_caught_up());
            prop_assert_eq!(native.client.counters().reports.missing, 0);
            // Only the last reports may be unsent, by a fault; without faults the reports are all there.
            if !has_faults {
                let orders = follow(&native.executions(), &mut trades);
                working += orders.len();
            } else {
                follow(&native.executions(), &mut trades);
            }
        }
        let mut ouch: BTreeMap<u32, i64> = BTreeMap::new();
        for message in &world.ouch.messages {
            match outbound::Message::decode(message).unwrap() {
                outbound::Message::OrderAccepted(accepted) => {
                    prop_assert_eq!(ouch.insert(accepted.user_ref_num(), accepted.quantity().into()), None);
                }
                outbound::Message::OrderExecuted(executed) => {
                    let quantity = i64::from(executed.quantity());
                    *ouch.get_mut(&executed.user_ref_num()).unwrap() -= quantity;
                    trades.entry(executed.match_number()).or_default().push(quantity);
                }
                outbound::Message::Canceled(canceled) => {
                    *ouch.get_mut(&canceled.user_ref_num()).unwrap() -= i64::from(canceled.quantity());
                }
                outbound::Message::SystemEvent(_) | outbound::Message::RejectedOrder(_) => {}
                other => prop_assert!(false, "{other:?}"),
            }
        }
        prop_assert!(ouch.values().all(|left| *left >= 0));
        working += ouch.values().filter(|left| **left > 0).count();
        if !has_faults {
            prop_assert_eq!(working, world.exchange.engine().orders());
            prop_assert_eq!(trades.len() as u64, world.exchange.counters().trades);
            for (number, sides) in &trades {
                prop_assert!(sides.len() == 2 && sides[0] == sides[1], "trade {}: {:?}", number, sides);
            }
        }
        let book = market_book(&mut world);
        let mut displayed = BTreeMap::new();
        for symbol in 0..2 {
            for side in [OrderSide::Buy, OrderSide::Sell] {
                for (reference, price_e8, quantity) in world.exchange.engine().displayed(SymbolIndex(symbol), side) {
                    displayed.insert((symbol, reference), (side, price_e8, quantity));
                }
            }
        }
        prop_assert_eq!(book, displayed);
        prop_assert_eq!(world.exchange.counters().reports_too_long, 0);
    }

    #[test]
    fn the_same_messages_and_seed_give_the_same_bytes(
        acts in prop::collection::vec(act(), 1..60),
        seed in any::<u64>(),
    ) {
        let faults = OrderFaults {
            seed,
            rejects_per_million: 100_000,
            gaps_per_million: 100_000,
            garbage_per_million: 50_000,
            drop_every: 20,
            ..OrderFaults::default()
        };
        let options = OrderOptions { faults, ..options() };
        let (one, other) = (run(&options, &acts), run(&options, &acts));
        prop_assert!(one.sent == other.sent);
        prop_assert_eq!(one.exchange.faults(), other.exchange.faults());
    }
}
