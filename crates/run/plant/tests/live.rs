//! The live plant against the simulated venues, over real sockets.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashMap;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use tapeworks_engine::history::{History, Read};
use tapeworks_feed::Application;
use tapeworks_feed::live::SnapshotOptions;
use tapeworks_follow::arbitration::{ArbiterOptions, GapReason, RetransmissionOptions};
use tapeworks_generator::{Generator, MAX_MESSAGE_BYTES, Scenario, Unit, VenueKind};
use tapeworks_market::shared::{QUOTES_MEANING, QuotesReader, quotes_path};
use tapeworks_market::{Event, EventKind, Flags, InstrumentId, Instruments, Line, Publisher};
use tapeworks_plant::{
    ChannelStatus, EventConsumer, JournalSetting, Plant, PlantError, PlantFailure, PlantOptions, Published,
    Readers, RetransmissionServer, SHARED_MEANING, Source, Status, Topology, VenueOptions, WhenFailing,
};
use tapeworks_ring::broadcast::{Read as Shared, Reader, Start};
use tapeworks_session::requests::{LoginFields, RequestLogin, RequestProtocol, RequestStatus};
use tapeworks_session::snapshot::SnapshotLogin;
use tapeworks_time::Nanos;
use tapeworks_venues::{Config, Report, Venue, Venues, Wait};

/// Two groups of their own for each venue of each test.
fn lines() -> Vec<SocketAddrV4> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let port = 20_000 + (std::process::id() % 20_000) as u16;
    let group = |line| Ipv4Addr::new(239, 195, number as u8, line);
    vec![SocketAddrV4::new(group(1), port), SocketAddrV4::new(group(2), port)]
}

/// A port that is free for UDP and TCP, below those that the system gives out: the plant must know it before the venues are
/// there.
fn free_port() -> Option<SocketAddr> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    (0..1_000).find_map(|_| {
        let number = u32::from(NEXT.fetch_add(1, Ordering::Relaxed)) + 97 * std::process::id();
        let address = SocketAddr::from(([127, 0, 0, 1], 10_000 + (number % 20_000) as u16));
        (UdpSocket::bind(address).is_ok() && TcpListener::bind(address).is_ok()).then_some(address)
    })
}

fn venue(name: &str, kind: &str) -> Venue {
    let mut venue = Venue::new(name, VenueKind::by_key(kind).unwrap(), lines());
    venue.live.line_b = true;
    venue.retransmission = free_port();
    venue.snapshot = free_port();
    venue
}

/// How the plant requests messages of a venue.
fn server(venue: &Venue) -> Option<RetransmissionServer> {
    let address = venue.retransmission?;
    if venue.retransmission_group.is_none() {
        return Some(address.into());
    }
    let group = venue.retransmission_group.map(Into::into);
    let fields = LoginFields {
        sub_id: "0001",
        user: "FIRM",
        password: "secret",
        source: "FIRM",
        product: 1,
        channel: 2,
    };
    let login = RequestLogin::new(RequestProtocol::of(venue.live.kind.transport())?, &fields);
    Some(RetransmissionServer::Tcp { address, group, login: login? })
}

fn five_venues() -> Vec<Venue> {
    vec![
        venue("Nasdaq", "nasdaq"),
        venue("BX", "bx"),
        venue("PSX", "psx"),
        venue("IEX", "iex-deep"),
        venue("MEMX", "memx"),
    ]
}

/// So many messages of these venues, 20,000 a second.
fn config(venues: Vec<Venue>, messages: u64) -> Config {
    Config {
        rate: 20_000,
        messages: Some(messages),
        symbols: 20,
        heartbeat_ns: 50_000_000,
        linger_ns: 200_000_000,
        wait: Wait::Rest,
        ..Config::new(venues)
    }
}

fn options(venues: &[Venue]) -> PlantOptions {
    let venues = venues
        .iter()
        .enumerate()
        .map(|(number, venue)| VenueOptions {
            orders: 1 << 16,
            name: venue.name.clone(),
            application: Application::of_publisher(venue.live.kind.publisher()).unwrap(),
            publisher: match venue.live.kind {
                // More than there are feeds with a name.
                VenueKind::Nasdaq | VenueKind::Bx | VenueKind::Psx if number > 3 => {
                    Publisher(Publisher::FIRST_OWN + 100 + number as u16)
                }
                kind => kind.publisher(),
            },
            lines: venue.lines.iter().map(|line| SocketAddr::V4(*line)).collect(),
            retransmission: server(venue),
            snapshot: venue.snapshot.map(Into::into),
            login: SnapshotLogin::default(),
            arbiter: ArbiterOptions {
                // Nothing is given up because this machine is slow.
                retransmission: Some(RetransmissionOptions {
                    attempts: 100,
                    timeout_ns: 100_000_000,
                    limit_ns: 10_000_000_000,
                    ..RetransmissionOptions::default()
                }),
                silence_ns: 30_000_000_000,
                ..ArbiterOptions::default()
            },
            snapshots: SnapshotOptions { attempts: 5, timeout_ns: 5_000_000_000, ..Default::default() },
        })
        .collect();
    let mut options = PlantOptions { venues, ring_events: 1 << 16, ..PlantOptions::default() };
    options.receive.interface = Some(Ipv4Addr::LOCALHOST);
    options
}

/// Reads events as a clients' server does, until the ring is closed.
fn collect(mut consumer: EventConsumer, to: Sender<Vec<Event>>) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
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
    })
}

fn all(events: &Receiver<Vec<Event>>) -> Vec<Event> {
    events.iter().flatten().collect()
}

/// Waits until it is so, or half a minute is over.
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(30), "in vain: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Ends the venues, and the plant when it has every message: as long as it sends requests, the venues answer.
fn finish(venues: Venues, plant: Plant) -> (Report, Status) {
    wait_until("the venues end", || venues.is_finished());
    let report = venues.report();
    wait_until("the plant has what was sent", || {
        let status = plant.status();
        let next: u64 = status.channels.iter().filter_map(|channel| channel.next).map(|next| next - 1).sum();
        // Of each venue the last session counts.
        let sent: u64 = report
            .venues
            .iter()
            .filter_map(|venue| venue.live.sessions.last())
            .map(|session| session.messages)
            .sum();
        // A channel with a snapshot server stays stale only until it has a snapshot.
        let is_settled = |channel: &ChannelStatus| {
            !channel.is_recovering && (!channel.is_stale || channel.snapshots.requests == 0)
        };
        next == sent && status.channels.iter().all(is_settled)
    });
    let status = plant.status_handle();
    plant.stop().unwrap();
    let status = status.lock().unwrap().clone();
    (venues.stop().unwrap(), status)
}

/// A plant and venues from their first message to their last: what they did, where it was, and every event.
fn run(started: (Plant, Readers), config: Config) -> (Report, Status, Vec<Event>) {
    let (plant, mut readers) = started;
    let venues = Venues::start(config).unwrap();
    let (to, events) = channel();
    let reader = collect(readers.take("reader").unwrap().consumer, to);
    let (report, status) = finish(venues, plant);
    reader.join().unwrap();
    (report, status, all(&events))
}

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tapeworks-live-{}-{name}", std::process::id()));
        let _not_there = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _gone = std::fs::remove_dir_all(&self.0);
    }
}

/// Every message of every channel once and in order; nothing is missing.
fn check_sequences(events: &[Event]) {
    let mut next: HashMap<u16, u64> = HashMap::new();
    for event in events {
        assert_ne!(event.kind, EventKind::Gap, "{event:?}");
        if matches!(event.kind, EventKind::SymbolMapping | EventKind::ImbalancePrices | EventKind::Recovered)
            || event.flags().contains(Flags::SNAPSHOT)
            || event.channel_sequence == 0
        {
            continue;
        }
        let next = next.entry(event.channel).or_insert(event.channel_sequence);
        assert!(
            event.channel_sequence == *next || event.channel_sequence + 1 == *next,
            "{event:?}, not {next}"
        );
        *next = event.channel_sequence + 1;
    }
}

fn history(options: &PlantOptions) -> Vec<Event> {
    let mut reader = options.history().unwrap().open(Nanos(0)).unwrap();
    let mut events = Vec::new();
    while let Read::Events(more) = reader.read().unwrap() {
        events.extend_from_slice(more);
    }
    events
}

/// Venues that take requests over TCP, without snapshots; each sends its answers to a group of its own.
fn by_tcp(kinds: &[(&str, VenueKind)]) -> Vec<Venue> {
    let with_group = |(name, kind): &(&str, VenueKind)| Venue {
        retransmission_group: lines().first().copied(),
        snapshot: None,
        ..venue(name, kind.key())
    };
    kinds.iter().map(with_group).collect()
}

/// Units of two markets, with the servers of each.
fn units() -> Vec<Venue> {
    let kinds = [(VenueKind::Edgx, 3), (VenueKind::Arca, 2)];
    let of = |(kind, of): (VenueKind, u8)| (1..=of).map(move |number| (kind, Unit { number, of }));
    let unit = |(kind, unit): (VenueKind, Unit)| {
        let mut venue = venue(&format!("{} {}", kind.key(), unit.number), kind.key());
        venue.live.unit = unit;
        venue
    };
    kinds.into_iter().flat_map(of).map(unit).collect()
}

#[test]
fn the_units_of_a_market_join_and_recover_each_for_itself() {
    let mut venues = units();
    for venue in &mut venues {
        // Both lines lose it, and the server has forgotten it.
        venue.retransmission = None;
        for faults in &mut venue.live.faults {
            faults.lost_per_million = 60_000;
        }
    }
    let options = options(&venues);
    let config = config(venues, 60_000);
    let venues = Venues::start(config).unwrap();
    wait_until("messages", || venues.report().messages > 10_000);
    let (plant, mut readers) = Plant::start(options.clone(), &["reader"]).unwrap();
    let (to, events) = channel();
    let reader = collect(readers.take("reader").unwrap().consumer, to);
    wait_until("snapshots of all", || {
        let channels = plant.status().channels;
        channels.iter().all(|channel| channel.snapshots.applied > 1)
    });
    let (_, status) = finish(venues, plant);
    reader.join().unwrap();
    // A snapshot clears the books of its unit alone: those of the market's other units are never cleared as a whole.
    let is_clear = |event: &&Event| event.kind == EventKind::Clear;
    let events = all(&events);
    assert!(events.iter().filter(is_clear).count() > 0);
    assert!(events.iter().filter(is_clear).all(|event| event.instrument != InstrumentId::ALL));
    for channel in &status.channels {
        assert!(channel.counters.missing > 0 && channel.snapshots.applied > 1, "{channel:?}");
    }
}

#[test]
fn servers_that_take_requests_over_tcp_bring_what_both_lines_lose() {
    let kinds = VenueKind::each(["edgx", "bzx", "nyse", "arca"]);
    let mut venues = by_tcp(&["EDGX", "BZX", "NYSE", "Arca"].into_iter().zip(kinds).collect::<Vec<_>>());
    for venue in &mut venues {
        for faults in &mut venue.live.faults {
            (faults.lost_per_million, faults.reordered_per_million) = (100_000, 10_000);
        }
        venue.retransmission_lost_per_million = 50_000;
    }
    let options = options(&venues);
    let started = Plant::start(options, &["reader"]).unwrap();
    let (report, status, events) = run(started, config(venues, 20_000));
    check_sequences(&events);
    for (venue, channel) in report.venues.iter().zip(&status.channels) {
        let counters = &channel.counters;
        assert_eq!((counters.gaps, counters.missing), (0, 0), "{channel:?}");
        assert!(counters.filled_by_retransmission > 0 && counters.recovered > 0, "{channel:?}");
        assert!(venue.retransmission.requests > 0 && venue.retransmission.answers > 0);
        let requester = channel.requester.unwrap().counters;
        assert!(requester.connections > 0 && requester.refused() == 0, "{requester:?}");
        // The last response may still be on its way.
        let answered = requester.of(RequestStatus::Accepted);
        assert!((1..=venue.retransmission.requests).contains(&answered), "{requester:?}");
        let answers = channel.lines.iter().find(|line| line.line == Line::Recovery).unwrap();
        assert!(answers.counters.won > 0 && answers.address.ip().is_multicast());
    }
}

#[test]
fn messages_that_a_request_server_refuses_are_a_gap_and_a_snapshot_follows() {
    let mut venues = by_tcp(&[("EDGX", VenueKind::Edgx), ("NYSE", VenueKind::Nyse)]);
    for venue in &mut venues {
        venue.snapshot = free_port();
        for faults in &mut venue.live.faults {
            faults.lost_per_million = 200_000;
        }
    }
    let mut options = options(&venues);
    for venue in &mut options.venues {
        // The server has forgotten what is requested so late.
        venue.arbiter.reorder_window_ns = 100_000_000;
        venue.arbiter.retransmission = Some(RetransmissionOptions {
            attempts: 3,
            timeout_ns: 20_000_000,
            ..RetransmissionOptions::default()
        });
    }
    let mut config = config(venues, 20_000);
    // A packet or two.
    (config.rate, config.store_bytes) = (10_000, 1);
    let (_, status, _) = run(Plant::start(options, &["reader"]).unwrap(), config);
    let [edgx, nyse] = &status.channels[..] else { panic!("{:?}", status.channels) };
    for channel in [edgx, nyse] {
        assert!(channel.counters.gaps > 0 && channel.snapshots.applied > 0, "{channel:?}");
        assert!(!channel.is_joining, "{channel:?}");
    }
    assert!(edgx.requester.unwrap().counters.of(RequestStatus::OutOfRange) > 0, "{edgx:?}");
    // NYSE's server accepts, and says by multicast what it does not have.
    assert!(nyse.counters.gaps_of(GapReason::NotKept) > 0, "{nyse:?}");
    assert!(nyse.requester.unwrap().counters.of(RequestStatus::Accepted) > 0, "{nyse:?}");
}

fn lossy(topology: Topology, name: &str) {
    let mut venues = five_venues();
    venues.push(venue("IEX by order", "iex-deep-plus"));
    venues.push(venue("EDGX", "edgx"));
    venues.push(venue("Arca", "arca"));
    venues.push(venue("London", "lse"));
    venues.push(venue("UTP", "uqdf"));
    venues.push(venue("CTA", "cqs"));
    for venue in &mut venues {
        for faults in &mut venue.live.faults {
            faults.lost_per_million = 20_000;
            faults.duplicated_per_million = 10_000;
            faults.reordered_per_million = 10_000;
        }
        venue.live.skew_ns = 100_000;
    }
    let mut options = options(&venues);
    let config = config(venues, 20_000);
    let folder = Folder::new(name);
    options.topology = topology;
    options.warm = topology == Topology::Pipeline;
    options.journal = Some(JournalSetting::new(folder.0.join("journal")));
    options.shared_memory = Some(folder.0.join("shared"));
    // The plant is there from the first message.
    let started = Plant::start(options.clone(), &["reader"]).unwrap();
    let mut shared =
        Reader::<Published>::attach(&folder.0.join("shared"), SHARED_MEANING, Start::Oldest).unwrap();
    let quotes = QuotesReader::attach(&quotes_path(&folder.0.join("shared")), QUOTES_MEANING).unwrap();
    let (report, status, events) = run(started, config);
    check_sequences(&events);
    for (venue, channel) in report.venues.iter().zip(&status.channels) {
        let counters = &channel.counters;
        assert_eq!((counters.gaps, counters.missing), (0, 0), "{channel:?}");
        assert_eq!(counters.ends_of_session, u64::from(venue.live.kind.transport().marks_end()));
        for (sent, line) in venue.live.lines.iter().zip(&channel.lines) {
            assert_eq!(line.kernel_drops, 0, "the kernel's own losses would not be the venue's");
            // Who joins by a snapshot has not seen what the lines lost before.
            if channel.snapshots.applied == 0 {
                assert_eq!(line.counters.lost, sent.injected.dropped_messages, "{} {line:?}", channel.name);
                assert_eq!(
                    line.counters.repeated, sent.injected.duplicated_messages,
                    "{} {line:?}",
                    channel.name
                );
            }
        }
    }
    assert!(report.venues.iter().any(|venue| venue.retransmission.answers > 0));
    // The same once more from the journal, to the last bit.
    let again = history(&options);
    assert_eq!(again.len(), events.len());
    let differs = again.iter().zip(&events).position(|(one, other)| one != other);
    assert_eq!(differs.map(|at| (again[at], events[at])), None);
    // And in the shared memory: what its reader did not miss.
    let mut instruments = Instruments::default();
    events.iter().filter_map(Event::symbol).for_each(|symbol| {
        instruments.intern(symbol);
    });
    let (mut seen, mut last) = (0, HashMap::new());
    loop {
        match shared.read() {
            Shared::Item(item) => {
                last.insert(item.symbol(), item);
                assert_eq!(item.symbol(), instruments.symbol(InstrumentId(item.instrument)));
                assert!(item.ts_recv > 0 || item.kind == EventKind::SymbolMapping as u8);
                seen += 1;
            }
            Shared::Lost(count) => seen += count,
            Shared::Empty | Shared::Closed => break,
        }
    }
    assert_eq!(seen, status.shared.published);
    // A pipeline whose market lags lets old quotes give way to later ones.
    assert!((seen + status.books.conflated) as usize >= events.len(), "{seen} {}", status.books.conflated);
    // The quotes are those after the last event of each symbol.
    assert!(quotes.keys() > 0);
    for (symbol, item) in last {
        let quote = symbol.and_then(|symbol| quotes.find(&symbol.into())).and_then(|place| quotes.get(place));
        let none = (i64::MAX, i64::MAX, 0);
        let shown = quote.map_or(none, |quote| (quote.bid, quote.ask, quote.flags));
        assert_eq!(shown, (item.bid, item.ask, item.nbbo_flags), "{symbol:?}");
        assert!(quote.is_none_or(|quote| quote.ts_recv > 0 && quote.ts_recv <= item.ts_recv));
    }
}

#[test]
fn frames_of_an_interface_give_the_same_result() {
    let venues = vec![venue("Nasdaq", "nasdaq"), venue("IEX", "iex-deep")];
    let mut options = options(&venues);
    options.receive.source = Source::Packet { device: "lo".to_owned() };
    let config = config(venues, 10_000);
    let started = match Plant::start(options, &["reader"]) {
        Ok(started) => started,
        Err(PlantError::Interface { source }) => {
            assert!(std::env::var("CI").is_err(), "{source}");
            eprintln!("SKIPPED: {source}");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let (report, status, events) = run(started, config);
    check_sequences(&events);
    for (venue, channel) in report.venues.iter().zip(&status.channels) {
        assert_eq!(channel.counters.messages, venue.live.messages);
        assert!(channel.lines[0].counters.won > 0 && channel.lines[1].counters.duplicate > 0, "{channel:?}");
        assert_eq!((channel.counters.gaps, channel.lines[0].counters.repeated), (0, 0));
    }
}

#[test]
fn inline_nothing_is_lost_and_every_fault_is_counted() {
    lossy(Topology::Inline, "inline");
}

#[test]
fn as_a_pipeline_nothing_is_lost_and_every_fault_is_counted() {
    lossy(Topology::Pipeline, "pipeline");
}

#[test]
fn a_late_plant_begins_with_a_snapshot_and_after_a_restart_continues() {
    let venues = five_venues();
    let mut options = options(&venues);
    let folder = Folder::new("late");
    // The venues go on until the plant is there again, on a slow machine too.
    let config = Config { linger_ns: 1_000_000_000, ..config(venues, 80_000) };
    let venues = Venues::start(config).unwrap();
    let wait_for_messages = |more: u64| {
        let until = venues.report().messages + more;
        wait_until("messages of the venues", || venues.report().messages >= until);
    };
    options.journal = Some(JournalSetting::new(folder.0.join("journal")));
    for venue in &mut options.venues {
        // Nothing is within the reach of a request.
        venue.arbiter.retransmission =
            Some(RetransmissionOptions { messages_per_request: 10, ..Default::default() });
    }
    wait_for_messages(8_000);
    let (plant, mut readers) = Plant::start(options.clone(), &["reader"]).unwrap();
    let (to, first) = channel();
    let reader = collect(readers.take("reader").unwrap().consumer, to);
    wait_until("snapshots", || {
        let channels = plant.status().channels;
        channels.len() == 5 && channels.iter().all(|channel| channel.snapshots.applied == 1)
    });
    wait_for_messages(4_000);
    plant.stop().unwrap();
    reader.join().unwrap();
    let first = all(&first);
    check_sequences(&first);
    assert!(first.iter().any(|event| event.flags().contains(Flags::SNAPSHOT)));

    // While nobody looks, some thousand messages pass.
    wait_for_messages(8_000);
    let (mut plant, mut readers) = Plant::start(options.clone(), &["reader"]).unwrap();
    let (to, second) = channel();
    let reader = collect(readers.take("reader").unwrap().consumer, to);
    assert_eq!(plant.replayed().unwrap().events as usize, first.len());
    let (_, status) = finish(venues, plant);
    reader.join().unwrap();
    let second = all(&second);
    let differs = first.iter().zip(&second).position(|(one, other)| one != other);
    assert_eq!(differs.map(|at| (first[at], second[at])), None, "the same, and then more");
    assert!(second.len() > first.len());
    for channel in &status.channels {
        assert!(!channel.is_stale, "{channel:?}");
    }
    assert_eq!(history(&options).len(), second.len());
}

/// A snapshot server whose snapshots hold the first messages, as many as it is given.
fn snapshot_server(listener: TcpListener, messages: Vec<Vec<u8>>, sent: Arc<AtomicU64>) {
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let mut stream = std::io::BufWriter::new(stream);
            let mut put = |kind: u8, payload: &[u8]| {
                let _gone = stream.write_all(&(payload.len() as u16 + 1).to_be_bytes());
                let _gone = stream.write_all(&[kind]).and_then(|()| stream.write_all(payload));
            };
            let count = sent.load(Ordering::Relaxed);
            put(b'A', b"SESSION001                   1");
            // What the venue does not know is not in it.
            let known = messages[..count as usize].iter().filter(|message| message[..] != unknown_order());
            known.for_each(|message| put(b'S', message));
            put(b'S', format!("G{:>20}", count + 1).as_bytes());
            let _gone = stream.flush();
        }
    });
}

/// The deletion of an order that nobody has added, of the first stock.
fn unknown_order() -> [u8; 19] {
    let mut message = [0; 19];
    (message[0], message[2]) = (b'D', 1);
    message[11..].copy_from_slice(&u64::MAX.to_be_bytes());
    message
}

fn contradicted(topology: Topology, name: &str) {
    let scenario = Scenario::full_session(1_000, 4);
    let mut generator = Generator::new(&scenario).unwrap();
    let mut bytes = [0; MAX_MESSAGE_BYTES];
    let next = || generator.next_message(&mut bytes).map(|made| bytes[..made.length].to_vec());
    let mut messages: Vec<_> = std::iter::from_fn(next).collect();
    messages.insert(600, unknown_order().to_vec());
    messages.insert(900, unknown_order().to_vec());
    let mut venue = venue("Nasdaq", "nasdaq");
    let line = free_port().unwrap();
    let SocketAddr::V4(address) = line else { unreachable!("it is of IPv4") };
    (venue.lines, venue.retransmission) = (vec![address], None);
    let listener = TcpListener::bind(venue.snapshot.unwrap()).unwrap();
    let sent = Arc::new(AtomicU64::new(0));
    snapshot_server(listener, messages.clone(), Arc::clone(&sent));
    let folder = Folder::new(name);
    let mut options = options(&[venue]);
    options.topology = topology;
    options.journal = Some(JournalSetting::new(folder.0.join("journal")));
    let (plant, mut readers) = Plant::start(options.clone(), &["reader"]).unwrap();
    let (to, events) = channel();
    let reader = collect(readers.take("reader").unwrap().consumer, to);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let send = |range: std::ops::Range<usize>| {
        for at in range {
            let message = &messages[at];
            let mut packet = b"SESSION001".to_vec();
            packet.extend_from_slice(&(at as u64 + 1).to_be_bytes());
            packet.extend_from_slice(&1u16.to_be_bytes());
            packet.extend_from_slice(&(message.len() as u16).to_be_bytes());
            packet.extend_from_slice(message);
            sent.store(at as u64 + 1, Ordering::Relaxed);
            socket.send_to(&packet, line).unwrap();
            // A burst would overflow the socket's buffer on a busy machine: a gap instead of a contradiction.
            if at % 50 == 49 {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    };
    send(0..700);
    wait_until("a snapshot after the contradiction", || {
        let status = plant.status();
        let snapshots = status.channels.first().map(|channel| channel.snapshots).unwrap_or_default();
        snapshots.contradicted == 1 && snapshots.applied >= 1 && status.books.contradicted == 0
    });
    let refused = plant.status().books.rejected;
    assert!(refused >= 1);
    // Once more, and too soon for another.
    send(700..messages.len());
    wait_until("the other contradiction", || plant.status().books.contradicted == 1);
    let status = plant.status_handle();
    plant.stop().unwrap();
    reader.join().unwrap();
    let channel = &status.lock().unwrap().channels[0];
    assert_eq!((channel.snapshots.contradicted, channel.counters.gaps), (1, 0), "{channel:?}");
    let events = all(&events);
    assert!(events.iter().any(|event| event.flags().contains(Flags::SNAPSHOT)));
    assert!(history(&options) == events, "the journal gives the same");
}

#[test]
fn a_contradiction_to_the_books_fetches_a_snapshot() {
    contradicted(Topology::Inline, "contradicted-inline");
}

#[test]
fn a_contradiction_to_the_books_of_a_pipeline_fetches_a_snapshot() {
    contradicted(Topology::Pipeline, "contradicted-pipeline");
}

#[test]
fn twenty_five_feeds_at_once() {
    let venues: Vec<Venue> = (0..25)
        .map(|number| {
            let kind = if number % 5 == 3 { VenueKind::IexDeep } else { VenueKind::Nasdaq };
            let mut venue = venue(&format!("venue {number}"), kind.key());
            venue.live.faults[0].lost_per_million = 10_000;
            venue.live.faults[1].lost_per_million = 10_000;
            venue
        })
        .collect();
    let mut options = options(&venues);
    let config = Config { symbols: 10, ..config(venues, 20_000) };
    for (number, venue) in options.venues.iter_mut().enumerate() {
        venue.publisher = Publisher(Publisher::FIRST_OWN + 100 + number as u16);
    }
    let (_, status, events) = run(Plant::start(options, &["reader"]).unwrap(), config);
    check_sequences(&events);
    assert_eq!(status.channels.len(), 25);
    assert!(
        status.channels.iter().all(|channel| channel.counters.gaps == 0 && channel.counters.messages > 100)
    );
}

#[test]
fn a_failed_disk_stops_the_journal_and_not_the_clients() {
    let venues = vec![venue("Nasdaq", "nasdaq")];
    let mut options = options(&venues);
    let config = config(venues, 5_000);
    let folder = Folder::new("full");
    let mut journal = JournalSetting::new(folder.0.join("journal"));
    // No disk has room for such a segment.
    journal.options.segment_bytes = 1 << 60;
    options.journal = Some(journal);
    let (plant, mut readers) = Plant::start(options.clone(), &["reader"]).unwrap();
    let venues = Venues::start(config).unwrap();
    let (to, events) = channel();
    let reader = collect(readers.take("reader").unwrap().consumer, to);
    let (_, status) = finish(venues, plant);
    reader.join().unwrap();
    check_sequences(&all(&events));
    assert!(status.engine.messages >= 4_500, "{}", status.engine.messages);
    let journal = status.journal.unwrap();
    assert!(journal.lost > 0 && journal.next == 0, "{journal:?}");
    assert!(journal.error.unwrap().contains("cannot reserve its room"));
}

#[test]
fn a_journal_that_is_removed_is_reported_and_ends_a_plant_that_must_journal() {
    for when_failing in [WhenFailing::GoOn, WhenFailing::Stop] {
        let venues = vec![venue("Nasdaq", "nasdaq")];
        let mut options = options(&venues);
        let folder = Folder::new("removed");
        let mut journal = JournalSetting::new(folder.0.join("journal"));
        journal.when_failing = when_failing;
        options.journal = Some(journal);
        let (plant, _) = Plant::start(options, &[]).unwrap();
        let is_failing = || plant.status().journal.is_some_and(|journal| journal.is_failing);
        wait_until("the journal", || plant.status().journal.is_some());
        assert!(!is_failing());
        std::fs::remove_dir_all(folder.0.join("journal")).unwrap();
        wait_until("the report", is_failing);
        let error = plant.status().journal.unwrap().error.unwrap();
        assert!(error.contains("lock was removed or replaced"), "{error}");
        if when_failing == WhenFailing::Stop {
            wait_until("the plant ends", || plant.has_ended());
            assert!(matches!(plant.stop().unwrap_err(), PlantFailure::Journal(_)));
        } else {
            plant.stop().unwrap();
        }
    }
}

#[test]
fn a_plant_that_must_journal_ends_when_it_cannot() {
    let venues = vec![venue("Nasdaq", "nasdaq")];
    let mut options = options(&venues);
    let config = config(venues, 10_000);
    let folder = Folder::new("must");
    let mut journal = JournalSetting::new(folder.0.join("journal"));
    journal.options.segment_bytes = 1 << 60;
    journal.when_failing = WhenFailing::Stop;
    options.journal = Some(journal);
    let (plant, mut readers) = Plant::start(options, &["reader"]).unwrap();
    let (to, events) = channel();
    let reader = collect(readers.take("reader").unwrap().consumer, to);
    let venues = Venues::start(config).unwrap();
    wait_until("the plant ends", || plant.has_ended());
    venues.stop().unwrap();
    let error = plant.stop().unwrap_err();
    assert!(matches!(error, PlantFailure::Journal(_)), "{error}");
    assert!(error.to_string().contains("cannot reserve its room"), "{error}");
    reader.join().unwrap();
    assert_eq!(all(&events), [], "nobody has seen what was not journaled");
}
