//! Exchanges that take orders, over real sockets: logon, orders, fills, breaks, restarts, and clients that do harm.
#![allow(clippy::expect_used, clippy::unwrap_used)]

mod order_clients;
#[allow(dead_code)]
mod traders;

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use order_clients::{Native, Ouch, wait_until};
use tapeworks_matching::orders::{Instrument, OuchUser};
use tapeworks_order_session::native::User;
use tapeworks_runtime::refusals::{OnRefusal, Refused};
use tapeworks_session::Credentials;
use tapeworks_venues::orders::OrderVenues;
use tapeworks_venues::{Config, OrderVenue, StoreSetting, VenuesError};
use tapeworks_wire::Ascii;
use tapeworks_wire::millennium::native::{
    ExecType, Logon, LogonFields, Message, NewOrderFields, Side, Tif, message_length,
};
use tapeworks_wire::millennium::variant::LSE;
use tapeworks_wire::nasdaq::ouch50::{inbound, outbound};
use traders::{E8, bytes, cancel, enter, name, order};

const PARTITIONS: u8 = 2;

/// An exchange of two symbols, native users ANN and BOB, and CAT by OUCH, who all stay when they disconnect.
fn exchange(store: Option<&Path>) -> OrderVenue {
    let mut venue = OrderVenue::new("test");
    let mut variant = LSE;
    variant.partitions = PARTITIONS;
    variant.throttle_per_second = 0;
    let instrument = |id, symbol: &str, partition| Instrument {
        id,
        symbol: Ascii::new(symbol).unwrap(),
        partition,
        tick_e8: E8 / 100,
        lowest_price_e8: E8,
        highest_price_e8: 1_000 * E8,
        most_quantity: 1_000_000,
    };
    venue.options.instruments = vec![instrument(11, "AAPL", 1), instrument(22, "MSFT", 2)];
    venue.round_lots = vec![100, 100];
    venue.options.native.variant = variant;
    let user = |name: &str| User { cancels_on_disconnect: false, ..User::new(name, "password", &variant) };
    venue.options.native_users = vec![user("ANN"), user("BOB")];
    let credentials = Credentials { user: "CAT".to_owned(), password: "password".to_owned() };
    venue.options.ouch_users = vec![OuchUser { credentials, cancels_on_disconnect: false }];
    venue.ouch = vec![venue.real_time];
    venue.store =
        store.map(|folder| StoreSetting { folder: folder.to_owned(), most_bytes: 64 << 20, syncs: false });
    venue
}

fn serve(venue: OrderVenue) -> OrderVenues {
    start(venue, None).unwrap()
}

fn start(venue: OrderVenue, on_refusal: Option<OnRefusal>) -> Result<OrderVenues, VenuesError> {
    let mut config = Config::new(Vec::new());
    config.orders = vec![venue];
    OrderVenues::start(&config, on_refusal)
}

fn native(exchange: &OrderVenues, user: &str) -> Native {
    let addresses = &exchange.addresses()[0];
    let mut native = Native::new(user, PARTITIONS, [addresses.real_time, addresses.recovery]);
    native.log_on();
    native
}

fn ouch(exchange: &OrderVenues) -> Ouch {
    let mut ouch = Ouch::new("CAT", exchange.addresses()[0].ouch[0].1);
    // The first message is the start of the day.
    ouch.until("the OUCH user logs in", |ouch| ouch.client.is_logged_in() && !ouch.messages.is_empty());
    ouch
}

fn logon_of(user: &str) -> LogonFields {
    LogonFields {
        start_of_message: 2,
        message_length: message_length(Logon::LENGTH),
        user_name: name(user),
        password: name("password"),
        new_password: name(""),
        message_version: 1,
    }
}

fn types(reports: &[tapeworks_wire::millennium::native::ExecutionReportFields]) -> Vec<ExecType> {
    reports.iter().map(|report| report.exec_type).collect()
}

#[test]
fn native_and_ouch_users_trade_in_one_book() {
    let exchange = serve(exchange(None));
    let (mut ann, mut cat) = (native(&exchange, "ANN"), ouch(&exchange));
    let accepted = ann.send(&order("A1", 11, Side::Buy, 100, 10 * E8).encode(), 1);
    assert_eq!(types(&accepted), [ExecType::New]);
    let messages = cat.send(&bytes(&enter(1, inbound::Side::Sell, 30, 100_000)), 2);
    let decoded: Vec<_> = messages.iter().map(|one| outbound::Message::decode(one).unwrap()).collect();
    assert!(matches!(decoded[0], outbound::Message::OrderAccepted(_)), "{decoded:?}");
    let outbound::Message::OrderExecuted(executed) = &decoded[1] else { panic!("{decoded:?}") };
    assert_eq!((executed.quantity(), executed.price().0), (30, 100_000));
    ann.until("the fill", |ann| ann.executions().len() == 2);
    let fill = ann.executions()[1];
    assert_eq!((fill.exec_type, fill.executed_qty, fill.leaves_qty), (ExecType::Trade, 30, 70));
    let cancelled = ann.send(&cancel("C1", "A1", name(""), Side::Buy), 1);
    assert_eq!(types(&cancelled), [ExecType::Cancelled]);
    // Outside the price limits.
    let rejected = ann.send(&order("A2", 11, Side::Buy, 100, 1_001 * E8).encode(), 1);
    assert_eq!(types(&rejected), [ExecType::Rejected]);
    let report = exchange.stop().unwrap().remove(0);
    assert_eq!((report.orders.new_orders, report.orders.trades, report.orders.rejected), (3, 1, 1));
    assert_eq!((report.working, report.connections.connections, report.connections.logged_on), (0, 3, 3));
}

#[test]
fn reports_missed_during_a_break_are_recovered_once() {
    let exchange = serve(exchange(None));
    let (mut ann, mut bob, mut cat) = (native(&exchange, "ANN"), native(&exchange, "BOB"), ouch(&exchange));
    ann.send(&order("A1", 11, Side::Buy, 100, 10 * E8).encode(), 1);
    cat.send(&bytes(&enter(1, inbound::Side::Buy, 50, 100_000)), 1);
    ann.cut();
    cat.cut();
    bob.send(&order("B1", 11, Side::Sell, 120, 10 * E8).encode(), 3);
    ann.until("the fill comes after the break", |ann| ann.executions().len() == 2);
    let fill = ann.executions()[1];
    assert_eq!((fill.executed_qty, fill.leaves_qty, fill.sequence_no), (100, 0, 2));
    cat.until("the fill comes after the break", |cat| cat.messages.len() == 3);
    // And goes on.
    ann.send(&order("A2", 11, Side::Buy, 1, 10 * E8).encode(), 1);
    assert_eq!(ann.executions().len(), 3);
    let report = exchange.stop().unwrap().remove(0);
    // The client requests its last report too: the time of it shows that the day is the same.
    assert_eq!(report.sessions.recovered, 2);
}

#[test]
fn orders_numbers_and_missed_reports_survive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let first = serve(exchange(Some(&store)));
    assert_eq!(first.addresses()[0].recovered.unwrap().inputs, 0);
    let (mut ann, mut bob, mut cat) = (native(&first, "ANN"), native(&first, "BOB"), ouch(&first));
    let resting = ann.send(&order("A1", 11, Side::Buy, 100, 10 * E8).encode(), 1);
    cat.send(&bytes(&enter(1, inbound::Side::Buy, 50, 100_000)), 1);
    ann.cut();
    bob.send(&order("B1", 11, Side::Sell, 30, 10 * E8).encode(), 2);
    // The store is another process's while it runs.
    let error = start(exchange(Some(&store)), None).unwrap_err();
    assert!(error.to_string().contains("another process writes this journal"), "{error}");
    first.stop().unwrap();

    let second = serve(exchange(Some(&store)));
    let recovered = second.addresses()[0].recovered.unwrap();
    assert_eq!(recovered.orders, 2, "{recovered:?}");
    assert!(recovered.inputs > 6);
    let addresses = second.addresses()[0].clone();
    for native in [&mut ann, &mut bob] {
        native.go_to([addresses.real_time, addresses.recovery]);
        native.cut();
        native.log_on();
    }
    ann.until("the fill from before the restart", |ann| ann.executions().len() == 2);
    assert_eq!(ann.executions()[1].leaves_qty, 70);
    assert_eq!(ann.executions()[1].order_id, resting[0].order_id);
    // Priority and numbers go on: ANN is before CAT.
    let fills = bob.send(&order("B2", 11, Side::Sell, 80, 10 * E8).encode(), 3);
    assert_eq!(types(&fills), [ExecType::New, ExecType::Trade, ExecType::Trade]);
    assert_eq!((fills[1].executed_qty, fills[2].executed_qty, fills[2].trade_match_id), (70, 10, 3));
    ann.until("the rest of the order", |ann| ann.executions().len() == 3);
    assert_eq!(ann.executions()[2].sequence_no, 3);
    cat.go_to(addresses.ouch[0].1);
    cat.until("the OUCH session goes on", |cat| cat.messages.len() == 3);
    assert_eq!(second.stop().unwrap()[0].working, 1);

    // Another configuration is another day.
    let mut other = exchange(Some(&store));
    other.options.instruments.pop();
    let error = start(other, None).unwrap_err();
    assert!(error.to_string().contains("another configuration"), "{error}");
}

#[test]
fn a_damaged_store_is_refused_and_a_torn_end_is_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let first = serve(exchange(Some(&store)));
    let mut ann = native(&first, "ANN");
    for number in 0..20 {
        ann.send(&order(&format!("A{number}"), 11, Side::Buy, 100, 10 * E8).encode(), 1);
    }
    first.stop().unwrap();
    let segment = store.join("00000000000000000000.journal");
    let sound = std::fs::read(&segment).unwrap();
    let end = sound.iter().rposition(|byte| *byte != 0).unwrap();
    let mut torn = sound.clone();
    torn[end] ^= 0xFF;
    std::fs::write(&segment, &torn).unwrap();
    let second = serve(exchange(Some(&store)));
    let recovered = second.addresses()[0].recovered.unwrap();
    assert!(recovered.torn_bytes > 0 && recovered.orders == 20, "{recovered:?}");
    second.stop().unwrap();
    let mut damaged = sound;
    damaged[end / 2] ^= 0xFF;
    std::fs::write(&segment, &damaged).unwrap();
    let error = start(exchange(Some(&store)), None).unwrap_err().to_string();
    assert!(error.contains("damaged or missing") && error.contains("exchange 'test'"), "{error}");
}

#[test]
fn an_exchange_whose_day_is_full_ends_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let mut venue = exchange(Some(&folder.path().join("store")));
    venue.store.as_mut().unwrap().most_bytes = 20_000;
    let exchange = serve(venue);
    let mut ann = native(&exchange, "ANN");
    let message = order("A1", 11, Side::Buy, 1, 10 * E8).encode();
    wait_until("the day is full", || {
        let _not_logged_on = ann.client.send(&message, order_clients::now_ns());
        ann.turn();
        exchange.has_failed()
    });
    let error = exchange.stop().unwrap_err().to_string();
    assert!(error.contains("need more than the 20000 bytes of 'store_mb'"), "{error}");
}

#[test]
fn without_a_store_an_exchange_begins_without_orders() {
    let first = serve(exchange(None));
    let mut ann = native(&first, "ANN");
    ann.send(&order("A1", 11, Side::Buy, 100, 10 * E8).encode(), 1);
    drop(first);
    let second = serve(exchange(None));
    assert_eq!(second.addresses()[0].recovered, None);
    let mut ann = native(&second, "ANN");
    assert_eq!(ann.send(&order("A1", 11, Side::Buy, 100, 10 * E8).encode(), 1)[0].sequence_no, 1);
}

#[test]
fn day_orders_expire_with_the_day_and_good_till_orders_survive_it_and_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let venue = || OrderVenue { day_pause_ns: 400_000_000, ..exchange(Some(&store)) };
    let first = serve(venue());
    let (mut ann, mut cat) = (native(&first, "ANN"), ouch(&first));
    let expire_date_time = (order_clients::now_ns() / 1_000_000_000) as u32 + 100_000;
    let good_till = NewOrderFields {
        tif: Tif::GoodTillDate,
        expire_date_time,
        ..order("G1", 11, Side::Buy, 100, 10 * E8)
    };
    let resting = ann.send(&good_till.encode(), 1);
    ann.send(&order("A1", 11, Side::Buy, 100, 9 * E8).encode(), 1);
    cat.send(&bytes(&enter(7, inbound::Side::Buy, 50, 90_000)), 1);
    first.end_day();
    ann.until("the day order expires", |ann| ann.executions().len() == 3);
    assert_eq!(ann.executions()[2].exec_type, ExecType::Expired);
    assert_eq!(ann.executions()[2].client_order_id.as_str(), Some("A1"));
    // Start of day, accepted, cancelled, end of day.
    cat.until("the end of the day", |cat| cat.messages.len() == 4);
    let last = outbound::Message::decode(&cat.messages[3]).unwrap();
    assert!(
        matches!(last, outbound::Message::SystemEvent(event) if event.event_code() == outbound::EventCode::EndOfDay)
    );

    // The next day has new numbers, and the order.
    wait_until("all are sent away", || first.report()[0].connections.open == 0);
    wait_until("the next day", || first.report()[0].days == 2);
    ann.cut();
    ann.client.new_day();
    ann.log_on();
    let accepted = ann.send(&order("A2", 11, Side::Buy, 5, 10 * E8).encode(), 1);
    assert_eq!((accepted[0].sequence_no, accepted[0].exec_type), (1, ExecType::New));
    cat.cut();
    cat.until("the next day's start", |cat| cat.messages.len() == 5);
    let start = outbound::Message::decode(&cat.messages[4]).unwrap();
    assert!(
        matches!(start, outbound::Message::SystemEvent(event) if event.event_code() == outbound::EventCode::StartOfDay)
    );
    cat.send(&bytes(&enter(1, inbound::Side::Sell, 30, 100_000)), 2);
    ann.until("the fill", |ann| ann.executions().len() == 5);
    let fill = ann.executions()[4];
    assert_eq!((fill.order_id, fill.leaves_qty, fill.sequence_no), (resting[0].order_id, 70, 2));
    first.stop().unwrap();

    let second = serve(venue());
    assert_eq!(second.addresses()[0].recovered.unwrap().orders, 2);
    let addresses = second.addresses()[0].clone();
    ann.go_to([addresses.real_time, addresses.recovery]);
    ann.cut();
    ann.log_on();
    let cancelled = ann.send(&cancel("C1", "G1", name(""), Side::Buy), 1);
    assert_eq!((cancelled[0].exec_type, cancelled[0].sequence_no), (ExecType::Cancelled, 3));
    // A day on which no order is left needs nothing before it.
    second.end_day();
    wait_until("the next day", || second.report()[0].days == 2);
    second.stop().unwrap();
    let third = serve(venue());
    assert_eq!(third.addresses()[0].recovered.unwrap().orders, 0);
    assert!(third.addresses()[0].recovered.unwrap().inputs < 5);
}

#[test]
fn a_password_that_a_user_changed_is_its_password_on_the_next_day_and_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let venue = || OrderVenue { day_pause_ns: 1_000_000, ..exchange(Some(&store)) };
    let first = serve(venue());
    let mut stream = TcpStream::connect(first.addresses()[0].real_time).unwrap();
    let logon = |old: &str, new: &str| LogonFields {
        new_password: name(new),
        password: name(old),
        ..logon_of("ANN")
    };
    let reply = |stream: &mut TcpStream, logon: LogonFields| {
        stream.write_all(&logon.encode()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let mut reply = [0; 38];
        stream.read_exact(&mut reply).unwrap();
        let Ok(Message::LogonReply(reply)) = Message::decode(&reply) else { panic!("{reply:?}") };
        reply.reject_code()
    };
    assert_eq!(reply(&mut stream, logon("password", "another")), 0);
    first.end_day();
    wait_until("the next day", || first.report()[0].days == 2);
    first.stop().unwrap();
    let second = serve(venue());
    let connect = || TcpStream::connect(second.addresses()[0].real_time).unwrap();
    assert_ne!(reply(&mut connect(), logon("password", "")), 0);
    assert_eq!(reply(&mut connect(), logon("another", "")), 0);
}

#[test]
fn a_client_that_reads_nothing_is_ended_counted_and_logged() {
    let mut venue = exchange(None);
    venue.options.native.output_bytes = 64 << 10;
    let log: Arc<Mutex<Vec<Refused>>> = Arc::default();
    let lines = Arc::clone(&log);
    let on_refusal: OnRefusal = Arc::new(move |refused| lines.lock().unwrap().push(refused.clone()));
    let exchange = start(venue, Some(on_refusal)).unwrap();
    let mut ann = native(&exchange, "ANN");
    // BOB sends immediate orders and reads no report of them.
    let immediate =
        NewOrderFields { tif: Tif::ImmediateOrCancel, ..order("B1", 11, Side::Buy, 1, 10 * E8) }.encode();
    let mut deaf = TcpStream::connect(exchange.addresses()[0].real_time).unwrap();
    deaf.write_all(&logon_of("BOB").encode()).unwrap();
    while deaf.write_all(&immediate).is_ok() && exchange.report()[0].connections.too_slow == 0 {}
    wait_until("the deaf client is ended", || exchange.report()[0].connections.too_slow == 1);
    let lines: Vec<String> = log.lock().unwrap().iter().map(|refused| refused.reason.clone()).collect();
    assert!(lines.iter().any(|line| line.contains("reads too slowly")), "{lines:?}");
    assert_eq!(exchange.report()[0].sessions.too_slow, 1);
    // The others are served, and BOB gets everything by recovery.
    ann.send(&order("A1", 11, Side::Buy, 1, 10 * E8).encode(), 1);
    let mut bob = native(&exchange, "BOB");
    let of_bob = || exchange.report()[0].sessions.reports - 1;
    bob.until("all reports", |bob| bob.reports.len() as u64 == of_bob());
    exchange.stop().unwrap();
}

#[test]
fn a_flood_of_connections_does_not_keep_a_user_out() {
    let mut venue = exchange(None);
    venue.most_connections = 16;
    let exchange = serve(venue);
    let mut ann = native(&exchange, "ANN");
    let address = exchange.addresses()[0].real_time;
    let flood: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(address).unwrap()).collect();
    wait_until("all came", || exchange.report()[0].connections.connections >= 202);
    let mut bob = native(&exchange, "BOB");
    bob.send(&order("B1", 11, Side::Buy, 1, 10 * E8).encode(), 1);
    ann.send(&order("A1", 11, Side::Buy, 1, 10 * E8).encode(), 1);
    let connections = exchange.report()[0].connections;
    assert!(connections.open <= 16 && connections.refused >= 186, "{connections:?}");
    drop(flood);
    exchange.stop().unwrap();
}

#[test]
fn garbage_on_any_port_ends_its_connection_alone() {
    let exchange = serve(exchange(None));
    let mut ann = native(&exchange, "ANN");
    let addresses = &exchange.addresses()[0];
    for address in [addresses.real_time, addresses.recovery, addresses.ouch[0].1] {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.write_all(&[0xFF; 5_000]).unwrap();
        let mut rest = Vec::new();
        match stream.read_to_end(&mut rest) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            Err(error) => panic!("{address} is not closed: {error}"),
        }
    }
    ann.send(&order("A1", 11, Side::Buy, 1, 10 * E8).encode(), 1);
    let report = exchange.stop().unwrap().remove(0);
    assert_eq!((report.connections.connections, report.connections.ended), (5, 3));
}

#[test]
fn a_port_in_use_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut venue = exchange(None);
    venue.recovery = taken.local_addr().unwrap();
    let error = start(venue, None).unwrap_err().to_string();
    assert!(error.contains("the recovery channel") && error.contains("in use"), "{error}");
}
