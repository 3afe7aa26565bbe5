//! The live plant shows the orders of clients of a simulated exchange, from its market-data line.
#![allow(clippy::expect_used, clippy::unwrap_used)]

#[allow(dead_code)]
mod order_clients;
#[allow(dead_code)]
mod traders;

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, UdpSocket};

use order_clients::{Native, Ouch, wait_until};
use tapeworks_feed::Application;
use tapeworks_feed::live::SnapshotOptions;
use tapeworks_follow::arbitration::ArbiterOptions;
use tapeworks_generator::VenueKind;
use tapeworks_generator::live::LiveVenue;
use tapeworks_market::{BookStage, BookUpdate, Capacity, Event, InstrumentId, Publisher, Side as BookSide};
use tapeworks_matching::orders::{Instrument, OuchUser};
use tapeworks_order_session::native::User;
use tapeworks_plant::{EventConsumer, Plant, PlantOptions, VenueOptions};
use tapeworks_session::Credentials;
use tapeworks_stage::Stage as _;
use tapeworks_venues::orders::OrderVenues;
use tapeworks_venues::{Config, OrderVenue, PublicationSetting, StoreSetting, Venue};
use tapeworks_wire::Ascii;
use tapeworks_wire::millennium::native::Side;
use tapeworks_wire::millennium::variant::LSE;
use tapeworks_wire::nasdaq::ouch50::inbound;
use traders::{E8, bytes, cancel, enter, name, order, replace};

/// A port that is free for UDP and TCP.
fn free_port(from: u32) -> SocketAddr {
    let port = |number: u32| 10_000 + ((number + 97 * std::process::id()) % 20_000) as u16;
    (from..from + 1_000)
        .map(|number| SocketAddr::from(([127, 0, 0, 1], port(number))))
        .find(|address| UdpSocket::bind(address).is_ok() && TcpListener::bind(address).is_ok())
        .expect("a free port")
}

/// An exchange with a line that loses one packet of twenty on each of its two lines.
fn exchange() -> OrderVenue {
    let mut venue = OrderVenue::new("exchange");
    let mut variant = LSE;
    variant.throttle_per_second = 0;
    venue.options.native.variant = variant;
    venue.options.instruments = vec![Instrument {
        id: 11,
        symbol: Ascii::new("AAPL").unwrap(),
        partition: 1,
        tick_e8: E8 / 100,
        lowest_price_e8: E8,
        highest_price_e8: 1_000 * E8,
        most_quantity: 1_000_000,
    }];
    venue.round_lots = vec![100];
    venue.options.native_users =
        vec![User { cancels_on_disconnect: false, ..User::new("ANN", "password", &variant) }];
    let credentials = Credentials { user: "CAT".to_owned(), password: "password".to_owned() };
    venue.options.ouch_users = vec![OuchUser { credentials, cancels_on_disconnect: true }];
    venue.ouch = vec![venue.real_time];
    venue.options.publishes_market = true;
    let port = 30_000 + (std::process::id() % 20_000) as u16;
    let lines: Vec<_> =
        (1..=2).map(|line| SocketAddrV4::new(Ipv4Addr::new(239, 196, 1, line), port)).collect();
    let mut live: LiveVenue = Venue::new("exchange", VenueKind::Nasdaq, lines.clone()).live;
    live.faults[0].lost_per_million = 50_000;
    live.faults[1].lost_per_million = 50_000;
    venue.publication = Some(PublicationSetting {
        live,
        lines,
        retransmission: Some(free_port(0)),
        snapshot: Some(free_port(2_000)),
    });
    venue
}

fn plant_options(line: &PublicationSetting) -> PlantOptions {
    let venue = VenueOptions {
        orders: 1 << 12,
        name: "exchange".to_owned(),
        application: Application::TotalViewItch50,
        publisher: Publisher::XNAS_ITCH,
        lines: line.lines.iter().map(|line| SocketAddr::V4(*line)).collect(),
        retransmission: line.retransmission.map(Into::into),
        snapshot: line.snapshot.map(Into::into),
        login: tapeworks_session::snapshot::SnapshotLogin::default(),
        arbiter: ArbiterOptions::default(),
        snapshots: SnapshotOptions { attempts: 5, timeout_ns: 5_000_000_000, ..Default::default() },
    };
    let mut options = PlantOptions { venues: vec![venue], ring_events: 1 << 14, ..PlantOptions::default() };
    options.receive.interface = Some(Ipv4Addr::LOCALHOST);
    options
}

/// The books of what a plant publishes.
struct Books {
    consumer: EventConsumer,
    stage: BookStage,
    aapl: Option<InstrumentId>,
}

impl Books {
    fn new(consumer: EventConsumer) -> Self {
        let stage = BookStage::with_unnamed([], Capacity::for_messages(10_000));
        Self { consumer, stage, aapl: None }
    }

    /// Price in 1e-9 and size of each level of AAPL.
    fn levels(&mut self) -> [Vec<(i64, u64)>; 2] {
        let (mut batch, mut aapl) = (Vec::<Event>::new(), self.aapl);
        let _ended = self.consumer.poll(|event, _, _| {
            if event.symbol().is_some_and(|symbol| symbol.as_str() == "AAPL") {
                aapl = Some(event.instrument);
            }
            batch.push(*event);
        });
        self.aapl = aapl;
        self.stage.process(&batch, &mut |_: BookUpdate<'_>| {});
        let (Some(aapl), [books]) = (aapl, self.stage.feeds()) else { return [Vec::new(), Vec::new()] };
        [BookSide::Bid, BookSide::Ask].map(|side| {
            let levels = books.book(aapl).levels(side);
            levels.map(|level| (level.price.e9(), u64::from(level.size))).collect()
        })
    }

    fn until(&mut self, what: &str, bids: &[(i64, u64)], asks: &[(i64, u64)]) {
        let mut last = [Vec::new(), Vec::new()];
        wait_until(what, || {
            last = self.levels();
            last[0] == bids && last[1] == asks
        });
    }
}

#[test]
fn a_clients_order_shows_in_the_plant_through_a_restart_until_it_is_cancelled() {
    let folder = tempfile::tempdir().unwrap();
    let mut venue = exchange();
    venue.store =
        Some(StoreSetting { folder: folder.path().join("store"), most_bytes: 64 << 20, syncs: false });
    let line = venue.publication.clone().unwrap();
    let (plant, mut readers) = Plant::start(plant_options(&line), &["books"]).unwrap();
    let mut books = Books::new(readers.take("books").unwrap().consumer);
    let config = Config { orders: vec![venue], heartbeat_ns: 20_000_000, ..Config::new(Vec::new()) };
    let running = OrderVenues::start(&config, None).unwrap();
    let addresses = &running.addresses()[0];
    let mut ann = Native::new("ANN", LSE.partitions, [addresses.real_time, addresses.recovery]);
    ann.log_on();
    let mut cat = Ouch::new("CAT", addresses.ouch[0].1);
    cat.until("CAT logs in", |cat| cat.client.is_logged_in());
    let dollar = 1_000_000_000;

    ann.send(&order("A1", 11, Side::Buy, 100, 10 * E8).encode(), 1);
    books.until("the order rests", &[(10 * dollar, 100)], &[]);
    cat.send(&bytes(&enter(1, inbound::Side::Sell, 30, 100_000)), 2);
    books.until("a part is filled", &[(10 * dollar, 70)], &[]);
    cat.send(&bytes(&enter(2, inbound::Side::Sell, 500, 101_000)), 1);
    books.until("the other side", &[(10 * dollar, 70)], &[(10 * dollar + dollar / 10, 500)]);
    ann.send(&replace("A2", "A1", 100, 9 * E8), 1);
    books.until("a new price", &[(9 * dollar, 70)], &[(10 * dollar + dollar / 10, 500)]);

    // A plant that starts now has the same.
    let (late, mut readers) = Plant::start(plant_options(&line), &["books"]).unwrap();
    let mut later = Books::new(readers.take("books").unwrap().consumer);
    later.until("joining late", &[(9 * dollar, 70)], &[(10 * dollar + dollar / 10, 500)]);

    // The exchange restarts: its orders are there, but for those that end with their client's connection.
    running.stop().unwrap();
    let running = OrderVenues::start(&config, None).unwrap();
    books.until("after a restart", &[(9 * dollar, 70)], &[]);
    later.until("after a restart", &[(9 * dollar, 70)], &[]);
    let addresses = &running.addresses()[0];
    ann.go_to([addresses.real_time, addresses.recovery]);
    ann.cut();
    ann.log_on();
    ann.send(&cancel("C1", "A2", name(""), Side::Buy), 1);
    books.until("all orders are gone", &[], &[]);
    later.until("all orders are gone", &[], &[]);
    plant.stop().unwrap();
    late.stop().unwrap();
    let report = running.stop().unwrap().remove(0);
    assert_eq!((report.orders.trades, report.working), (1, 0));
}
