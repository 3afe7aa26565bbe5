//! Snapshots of each venue's own form: a plant that joins late, or loses what no server brings, has the books of one that saw everything.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use tapeworks_feed::Application;
use tapeworks_feed::live::SnapshotOptions;
use tapeworks_follow::arbitration::{ArbiterOptions, RetransmissionOptions};
use tapeworks_generator::VenueKind;
use tapeworks_market::{BookStage, BookUpdate, Capacity, Event, Instruments, Side};
use tapeworks_plant::{Plant, PlantOptions, RetransmissionServer, SnapshotServer, Status, VenueOptions};
use tapeworks_session::requests::{LoginFields, RequestLogin, RequestProtocol, RequestStatus};
use tapeworks_session::snapshot::SnapshotLogin;
use tapeworks_stage::Stage;
use tapeworks_venues::{Config, Report, Venue, Venues, Wait};

/// A group of its own.
fn group() -> SocketAddrV4 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let port = 20_000 + (std::process::id() % 20_000) as u16;
    SocketAddrV4::new(Ipv4Addr::new(239, 196, number as u8, 1), port)
}

/// A port that is free for UDP and TCP, below those that the system gives out.
fn free_port() -> Option<SocketAddr> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    (0..1_000).find_map(|_| {
        let number = u32::from(NEXT.fetch_add(1, Ordering::Relaxed)) + 89 * std::process::id();
        let address = SocketAddr::from(([127, 0, 0, 1], 10_000 + (number % 20_000) as u16));
        (UdpSocket::bind(address).is_ok() && TcpListener::bind(address).is_ok()).then_some(address)
    })
}

fn login(protocol: RequestProtocol) -> RequestLogin {
    let fields = LoginFields {
        user: "FIRM",
        password: "secret",
        source: "FIRM",
        product: 1,
        channel: 2,
        ..LoginFields::default()
    };
    RequestLogin::new(protocol, &fields).unwrap()
}

fn venue(kind: VenueKind) -> Venue {
    let mut venue = Venue::new(kind.name(), kind, vec![group(), group()]);
    venue.live.line_b = true;
    venue.snapshot = free_port();
    venue.retransmission_by_tcp = matches!(kind, VenueKind::Lse | VenueKind::Memx);
    if matches!(kind, VenueKind::Nyse | VenueKind::Arca) {
        venue.snapshot_group = Some(group());
    }
    venue
}

fn config(venues: Vec<Venue>, messages: u64) -> Config {
    Config {
        rate: 10_000,
        messages: Some(messages),
        symbols: 30,
        heartbeat_ns: 50_000_000,
        linger_ns: 200_000_000,
        wait: Wait::Rest,
        ..Config::new(venues)
    }
}

/// A plant of these venues; it requests missing messages only where `requests` says so.
fn options(venues: &[Venue], requests: bool) -> PlantOptions {
    let venues = venues
        .iter()
        .map(|venue| VenueOptions {
            orders: 1 << 16,
            name: venue.name.clone(),
            application: Application::of_publisher(venue.live.kind.publisher()).unwrap(),
            publisher: venue.live.kind.publisher(),
            lines: venue.lines.iter().map(|line| SocketAddr::V4(*line)).collect(),
            retransmission: venue.retransmission.filter(|_| requests).map(|address| {
                let protocol = RequestProtocol::of(venue.live.kind.transport());
                match protocol.filter(|protocol| !protocol.answers_to_group()) {
                    Some(protocol) => {
                        RetransmissionServer::Tcp { address, group: None, login: login(protocol) }
                    }
                    None => address.into(),
                }
            }),
            snapshot: venue.snapshot.map(|address| match venue.snapshot_group {
                Some(group) => SnapshotServer::Group {
                    address,
                    group: group.into(),
                    login: login(RequestProtocol::Pillar),
                },
                None => address.into(),
            }),
            login: SnapshotLogin::default(),
            arbiter: ArbiterOptions {
                retransmission: Some(RetransmissionOptions {
                    attempts: 100,
                    timeout_ns: 100_000_000,
                    limit_ns: 10_000_000_000,
                    ..RetransmissionOptions::default()
                }),
                silence_ns: 30_000_000_000,
                ..ArbiterOptions::default()
            },
            snapshots: SnapshotOptions { attempts: 5, timeout_ns: 10_000_000_000, ..Default::default() },
        })
        .collect();
    let mut options = PlantOptions { venues, ring_events: 1 << 16, ..PlantOptions::default() };
    options.receive.interface = Some(Ipv4Addr::LOCALHOST);
    options
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(40), "in vain: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A plant whose events are collected.
struct Watched {
    plant: Plant,
    events: Receiver<Vec<Event>>,
    reader: std::thread::JoinHandle<()>,
}

impl Watched {
    fn start(options: PlantOptions) -> Self {
        let (plant, mut readers) = Plant::start(options, &["reader"]).unwrap();
        let mut consumer = readers.take("reader").unwrap().consumer;
        let (to, events) = channel();
        let reader = std::thread::spawn(move || {
            let mut batch = Vec::new();
            loop {
                match consumer.poll(|event, _, _| batch.push(*event)) {
                    Ok(0) => std::thread::sleep(Duration::from_micros(200)),
                    Ok(_) => {
                        let _nobody = to.send(std::mem::take(&mut batch));
                    }
                    Err(_) => return,
                }
            }
        });
        Self { plant, events, reader }
    }

    /// Ends it when it has every message of the venues and waits for no snapshot.
    fn finish(self, report: &Report) -> (Status, Vec<Event>) {
        wait_until("the plant has what was sent", || {
            self.plant.status().channels.iter().zip(&report.venues).all(|(channel, venue)| {
                let sent = venue.live.sessions.last().map(|session| session.messages + 1);
                channel.next == sent && !channel.is_recovering && !channel.is_joining
            })
        });
        let status = self.plant.status_handle();
        self.plant.stop().unwrap();
        self.reader.join().unwrap();
        let status = status.lock().unwrap().clone();
        (status, self.events.iter().flatten().collect())
    }
}

/// The books of these events.
fn books(events: &[Event]) -> (BookStage, Instruments) {
    let mut stage = BookStage::with_unnamed([], Capacity::for_messages(10_000));
    let mut instruments = Instruments::default();
    events.iter().filter_map(Event::symbol).for_each(|symbol| {
        instruments.intern(symbol);
    });
    stage.process(events, &mut |_: BookUpdate<'_>| {});
    (stage, instruments)
}

/// The good books by feed and symbol: levels of both sides, orders in line, and the trading state; and how many are stale.
fn good_books(events: &[Event]) -> (BTreeMap<(u16, String), String>, usize) {
    let (stage, instruments) = books(events);
    let (mut good, mut stale) = (BTreeMap::new(), 0);
    for feed in stage.feeds() {
        for symbol in instruments.symbols() {
            let book = feed.book(instruments.find(*symbol).unwrap());
            if book.is_stale() {
                stale += 1;
                continue;
            }
            let levels = [Side::Bid, Side::Ask].map(|side| book.levels(side).collect::<Vec<_>>());
            let queue: Vec<_> =
                book.queue().iter().map(|order| (order.id, order.price, order.size)).collect();
            let text = format!("{levels:?} {queue:?} {:?}", book.state());
            good.insert((feed.publisher().0, symbol.as_str().to_owned()), text);
        }
    }
    (good, stale)
}

/// Kinds whose snapshots have a form of the venue's own.
const KINDS: [VenueKind; 4] = VenueKind::each(["nyse", "arca", "lse", "memx"]);

#[test]
fn a_plant_that_joins_late_has_the_books_of_one_that_saw_everything() {
    let mut venues: Vec<Venue> = KINDS.map(venue).into();
    for venue in &mut venues {
        // Packets of a refresh too.
        venue.retransmission_lost_per_million = 100_000;
    }
    let whole = Watched::start(options(&venues, false));
    let running = Venues::start(config(venues.clone(), 60_000)).unwrap();
    wait_until("messages", || running.report().messages > 15_000);
    let late = Watched::start(options(&venues, false));
    wait_until("the venues end", || running.is_finished());
    let report = running.report();
    let (status, events) = late.finish(&report);
    let (all, all_events) = whole.finish(&report);
    running.stop().unwrap();
    for (channel, whole) in status.channels.iter().zip(&all.channels) {
        assert!(channel.snapshots.applied > 0 && whole.snapshots.applied == 0, "{channel:?} {whole:?}");
        assert!(!channel.is_stale, "{channel:?}");
    }
    let ((late, stale), (whole, _)) = (good_books(&events), good_books(&all_events));
    assert_eq!((late.len(), stale), (whole.len(), 0));
    let is_full = |book: &&String| !book.starts_with("[[], []]");
    assert!(whole.values().filter(is_full).count() > KINDS.len() * 20, "{whole:?}");
    for (book, of_whole) in &whole {
        assert_eq!(late.get(book), Some(of_whole), "{book:?}");
    }
}

#[test]
fn a_plant_without_requests_is_made_good_by_snapshots_and_no_good_book_is_wrong() {
    let mut venues: Vec<Venue> = KINDS.map(venue).into();
    for venue in &mut venues {
        venue.retransmission = free_port();
        for faults in &mut venue.live.faults {
            faults.lost_per_million = 50_000;
        }
    }
    // One requests what is missing, the other has snapshots alone.
    let whole = Watched::start(options(&venues, true));
    let without = Watched::start(options(&venues, false));
    let running = Venues::start(config(venues, 40_000)).unwrap();
    wait_until("the venues end", || running.is_finished());
    let report = running.report();
    let (status, events) = without.finish(&report);
    let (all, all_events) = whole.finish(&report);
    running.stop().unwrap();
    for (channel, whole) in status.channels.iter().zip(&all.channels) {
        assert!(channel.counters.gaps > 0 && channel.snapshots.applied > 0, "{channel:?}");
        assert_eq!(whole.counters.gaps, 0, "{whole:?}");
        assert!(whole.counters.filled_by_retransmission > 0, "{whole:?}");
    }
    // London's and MEMX's messages come over the connection.
    for channel in &all.channels[2..] {
        let requester = channel.requester.unwrap().counters;
        assert!(requester.of(RequestStatus::Accepted) > 0 && requester.answers_dropped == 0, "{requester:?}");
        assert_eq!(requester.unexpected, 0, "{requester:?}");
    }
    let ((good, _), (whole, _)) = (good_books(&events), good_books(&all_events));
    for (book, text) in &good {
        assert_eq!(whole.get(book), Some(text), "{book:?}");
    }
}
