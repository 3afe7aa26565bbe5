//! The multicast of records over real sockets: everything arrives, what is lost is requested again, and TCP gives the same.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[cfg(feature = "tls")]
mod authority;
mod session;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use dbn::decode::dbn::Decoder;
use dbn::{RType, RecordRef, SymbolMappingMsg};
use tapeworks_market::BookOptions;
use tapeworks_market::{Event, EventKind};
use tapeworks_outputs::begin::Begin;
use tapeworks_outputs::multicast::receiver::{Receiver, ReceiverOptions};
use tapeworks_outputs::multicast::server::{self, Multicast, MulticastSetting, MulticastStats};
use tapeworks_outputs::subscriber::Records;
use tapeworks_ring::disruptor::{Builder, Producer};
use tapeworks_ring::wait::Yielding;
use tapeworks_runtime::refusals::OnRefusal;
use tapeworks_session::Credentials;
use tapeworks_store::Schema;
use tapeworks_wire::nasdaq::soupbintcp::{LoginRequestFields, Message, Packets};
use tapeworks_wire::{Ascii, AsciiNumber};

const SCHEMAS: [Schema; 4] = [Schema::Mbo, Schema::Cmbp1, Schema::Status, Schema::Bbo1S];

/// The multicast, and the ring that an engine would fill.
struct Plant {
    multicast: Multicast,
    producer: Producer<Event, Yielding>,
    live_from: Arc<AtomicU64>,
}

impl Plant {
    fn start(setting: MulticastSetting) -> Self {
        Self::reporting(setting, None)
    }

    fn reporting(setting: MulticastSetting, on_refusal: Option<OnRefusal>) -> Self {
        let blank = Event::new(EventKind::Other, Default::default(), Default::default());
        let mut ring = Builder::new(1 << 14, || blank, Yielding::default);
        let reader = ring.consumer("multicast", &[]);
        let (producer, mut ends) = ring.single_producer();
        let live_from = Arc::new(AtomicU64::new(u64::MAX));
        let sockets = server::bind(&setting).unwrap();
        let books = BookOptions::default();
        let begin = Begin { live_from: Arc::clone(&live_from), ..Begin::default() };
        let consumer = ends.take(reader).unwrap();
        let multicast = server::start(sockets, setting, &books, consumer, begin, on_refusal).unwrap();
        Self { multicast, producer, live_from }
    }

    fn go_live(&self, from: u64) {
        self.live_from.store(from, Ordering::Release);
    }

    /// Publishes at a pace that a receiver on a small machine keeps up with: what is lost is requested again.
    fn publish(&mut self, events: &[Event]) {
        for part in events.chunks(64) {
            self.producer.publish_batch(part.len(), |at, slot| *slot = part[at]).unwrap();
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Waits until all of it is sent.
    fn reach(&self, messages: u64) {
        let began = Instant::now();
        while self.multicast.stats().next <= messages {
            assert!(began.elapsed() < Duration::from_secs(30), "{:?}", self.multicast.stats());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn end(self) -> Multicast {
        drop(self.producer);
        self.multicast
    }
}

/// What a multicast counted: before its end, the statistics are of a while ago. Its receivers have the session's end.
fn ended(multicast: Multicast) -> MulticastStats {
    let stats = multicast.stats_handle();
    multicast.stop().unwrap();
    stats.lock().unwrap().clone()
}

fn loopback() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 0))
}

fn v4(address: SocketAddr) -> SocketAddrV4 {
    let SocketAddr::V4(address) = address else { panic!("{address}") };
    address
}

fn setting(group: SocketAddrV4) -> MulticastSetting {
    MulticastSetting {
        hops: 0,
        retransmission: Some(loopback()),
        soupbintcp: Some(loopback()),
        schemas: SCHEMAS.to_vec(),
        mappings_every: Duration::from_millis(300),
        ..MulticastSetting::new(group)
    }
}

/// Records by their kind, each as bytes; mappings as the symbols of the instruments.
#[derive(Default, PartialEq, Eq, Debug)]
struct Received {
    records: BTreeMap<u8, Vec<Vec<u8>>>,
    symbols: BTreeMap<u32, String>,
    mappings: usize,
}

impl Received {
    fn take(&mut self, record: RecordRef<'_>) {
        if let Some(mapping) = record.get::<SymbolMappingMsg>() {
            self.mappings += 1;
            let symbol = mapping.stype_out_symbol().unwrap().to_owned();
            let known = self.symbols.insert(mapping.hd.instrument_id, symbol.clone());
            assert!(known.is_none_or(|known| known == symbol));
            return;
        }
        let kind = record.header().rtype;
        self.records.entry(kind).or_default().push(record.as_ref().to_vec());
    }
}

/// What files of the schemas hold, made by the writers of files.
fn expected(events: &[Event], name: &str) -> Received {
    let mut received = Received::default();
    for schema in SCHEMAS {
        let path = std::env::temp_dir().join(format!("tapeworks-{name}-{}-{schema}.dbn", std::process::id()));
        session::write(events, schema, &path);
        let mut decoder = Decoder::from_file(&path).unwrap();
        while let Some(record) = decoder.decode_ref().unwrap() {
            received.take(record);
        }
        std::fs::remove_file(path).unwrap();
    }
    let symbols = events.iter().filter_map(|event| event.symbol().map(|symbol| (event.instrument, symbol)));
    received.symbols =
        symbols.map(|(instrument, symbol)| (instrument.0 + 1, symbol.as_str().to_owned())).collect();
    received
}

fn receive(receiver: &mut Receiver) -> Received {
    let mut received = Received::default();
    let began = Instant::now();
    loop {
        match receiver.next_record() {
            Ok(Some(record)) => received.take(record),
            Ok(None) => return received,
            Err(error) if error.is_timeout() => {
                assert!(began.elapsed() < Duration::from_secs(60), "no end: {:?}", receiver.counters());
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// The options of a receiver from the session's first message on.
fn open(group: SocketAddr, retransmission: Option<SocketAddr>) -> Receiver {
    join(group, retransmission, true)
}

fn join(group: SocketAddr, retransmission: Option<SocketAddr>, from_beginning: bool) -> Receiver {
    let interface = Some(Ipv4Addr::LOCALHOST);
    let timeout = Duration::from_millis(200);
    Receiver::open(ReceiverOptions { group, interface, retransmission, from_beginning, timeout }).unwrap()
}

/// A group of this process' own, on a port that the kernel chose.
fn group() -> SocketAddrV4 {
    let port = UdpSocket::bind(loopback()).unwrap().local_addr().unwrap().port();
    SocketAddrV4::new(Ipv4Addr::new(239, 195, 250, (std::process::id() % 250) as u8), port)
}

#[test]
fn a_multicast_group_gets_every_record_that_files_would_hold() {
    let events = session::events(&session::scenario(6_000, 12, 41));
    let group = group();
    let mut plant = Plant::start(setting(group));
    let mut receiver = open(group.into(), plant.multicast.retransmission());
    plant.go_live(0);
    let reader = std::thread::spawn(move || (receive(&mut receiver), receiver.counters()));
    plant.publish(&events);
    let multicast = plant.end();
    let (received, counters) = reader.join().unwrap();
    assert_eq!(counters.missing + counters.not_records + counters.malformed, 0, "{counters:?}");
    let expected = expected(&events, "group");
    assert!(expected.records.len() == 4 && expected.records[&(RType::Cmbp1 as u8)].len() > 500);
    assert_eq!(received.records, expected.records);
    assert_eq!(received.symbols, expected.symbols);
    let stats = multicast.stats_handle();
    multicast.join().unwrap();
    let stats = stats.lock().unwrap().clone();
    assert_eq!((stats.unsent, stats.too_long, stats.session.len()), (0, 0, 10));
    assert_eq!(counters.session, stats.session);
}

/// Forwards datagrams, but not all of them.
fn lossy(to: SocketAddr, every: usize) -> (SocketAddr, std::thread::JoinHandle<u64>) {
    let socket = UdpSocket::bind(loopback()).unwrap();
    let address = socket.local_addr().unwrap();
    let thread = std::thread::spawn(move || {
        let (mut bytes, mut lost, mut number) = ([0; 2_048], 0, 0usize);
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        loop {
            let (length, _) = socket.recv_from(&mut bytes).unwrap();
            number += 1;
            let is_end = bytes[18..20] == [0xFF, 0xFF];
            if number.is_multiple_of(every) && !is_end {
                lost += 1;
                continue;
            }
            socket.send_to(&bytes[..length], to).unwrap();
            if is_end {
                return lost;
            }
        }
    });
    (address, thread)
}

#[test]
fn packets_lost_on_the_network_are_recovered() {
    let events = session::events(&session::scenario(4_000, 10, 42));
    // The receiver's port is known before the plant sends to it, and the plant's retransmission before the receiver's requests.
    let line = UdpSocket::bind(loopback()).unwrap().local_addr().unwrap();
    let (relay, lost) = lossy(line, 5);
    let mut plant = Plant::start(setting(v4(relay)));
    let mut receiver = open(line, plant.multicast.retransmission());
    plant.go_live(0);
    let reader = std::thread::spawn(move || (receive(&mut receiver), receiver.counters()));
    plant.publish(&events);
    let multicast = plant.end();
    let (received, counters) = reader.join().unwrap();
    assert!(lost.join().unwrap() > 20);
    let stats = ended(multicast);
    assert_eq!(counters.missing, 0, "{counters:?} {stats:?}");
    // At this rate the next packet is lost before the last is back: holes run together.
    assert!(
        counters.gaps_opened > 0 && counters.filled == counters.gaps_opened && counters.requests > 5,
        "{counters:?}"
    );
    let expected = expected(&events, "lossy");
    assert_eq!(received.records, expected.records);
    assert_eq!(received.symbols, expected.symbols);
    assert!(stats.requests >= counters.filled && stats.answered_messages > 20, "{stats:?}");
}

#[test]
fn a_late_receiver_reports_no_gap_unless_it_wants_the_beginning() {
    let events = session::events(&session::scenario(6_000, 12, 44));
    let group = group();
    let mut plant = Plant::start(setting(group));
    plant.go_live(0);
    let (early, late) = events.split_at(events.len() / 2);
    plant.publish(early);
    // Some of it is sent before a receiver joins.
    plant.reach(1_000);
    let sent = plant.multicast.stats().next;
    let server = plant.multicast.retransmission();
    let readers = [(None, false), (server, false), (server, true)].map(|(server, from_beginning)| {
        let mut receiver = join(group.into(), server, from_beginning);
        std::thread::spawn(move || (receive(&mut receiver), receiver.counters()))
    });
    plant.publish(late);
    let multicast = plant.end();
    let [alone, served, whole] = readers.map(|reader| reader.join().unwrap());
    let stats = ended(multicast);
    for (received, counters) in [&alone, &served, &whole] {
        assert_eq!((counters.missing, &counters.session), (0, &stats.session), "{counters:?}");
        assert_eq!(counters.next, stats.next);
        assert_eq!(counters.first + counters.messages, counters.next);
        assert_eq!(
            received.records.values().map(Vec::len).sum::<usize>() + received.mappings,
            counters.messages as usize
        );
    }
    assert!(alone.1.first >= sent && alone.1.requests == 0, "{:?}", alone.1);
    assert!(served.1.first >= sent && served.1.recovered == 0, "{:?}", served.1);
    assert!(whole.1.first == 1 && whole.1.recovered >= sent - 1, "{:?}", whole.1);
    assert_eq!(whole.0.records, expected(&events, "late").records);
}

#[test]
fn a_receiver_does_not_wait_for_messages_that_are_no_longer_kept() {
    let events = session::events(&session::scenario(6_000, 12, 45));
    let line = UdpSocket::bind(loopback()).unwrap().local_addr().unwrap();
    let (relay, _lost) = lossy(line, 5);
    let mut setting = setting(v4(relay));
    setting.store_bytes = 16 << 10;
    let mut plant = Plant::start(setting);
    plant.go_live(0);
    let (early, late) = events.split_at(events.len() / 2);
    plant.publish(early);
    let began = Instant::now();
    while plant.multicast.stats().oldest < 1_000 && began.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(100));
    }
    let mut receiver = join(line, plant.multicast.retransmission(), true);
    let reader = std::thread::spawn(move || (receive(&mut receiver), receiver.counters()));
    plant.publish(late);
    let multicast = plant.end();
    let (received, counters) = reader.join().unwrap();
    let stats = ended(multicast);
    assert!(counters.missing >= 999, "{counters:?} {stats:?}");
    assert_eq!(counters.messages + counters.missing + 1, counters.next, "{counters:?}");
    let records = received.records.values().map(Vec::len).sum::<usize>();
    assert_eq!(records + received.mappings, counters.messages as usize);
    // As many as may be in flight at once; without the answers each would be repeated ten times.
    assert!((1..=64).contains(&stats.refused_requests), "{stats:?}");
}

#[test]
fn events_of_before_the_session_are_not_sent_and_count_for_the_books() {
    let events = session::events(&session::scenario(3_000, 8, 43));
    // Where an interval of a second with a record is open: a file that ends there has one record more.
    let is_open = |at: &usize| {
        let count = |events: &[Event]| {
            expected(events, "open").records.get(&(RType::Bbo1S as u8)).map_or(0, Vec::len)
        };
        count(&events[..*at]) > count(&events[..*at - 1])
    };
    let (old, new) = events.split_at((events.len() / 2..events.len()).find(is_open).unwrap());
    let line = UdpSocket::bind(loopback()).unwrap().local_addr().unwrap();
    let mut plant = Plant::start(setting(v4(line)));
    let mut receiver = open(line, plant.multicast.retransmission());
    let reader = std::thread::spawn(move || (receive(&mut receiver), receiver.counters()));
    // The number is set late, when events of the session wait already.
    plant.publish(old);
    plant.go_live(old.len() as u64);
    plant.publish(new);
    let multicast = plant.end();
    let (received, _) = reader.join().unwrap();
    multicast.stop().unwrap();
    let (all, before) = (expected(&events, "all"), expected(old, "old"));
    for (kind, records) in &all.records {
        let skipped = before.records.get(kind).map_or(0, Vec::len);
        let received = received.records.get(kind).map_or(&[][..], Vec::as_slice);
        if *kind == RType::Bbo1S as u8 {
            // A file that ends with the old events has the intervals that were open, and so has the session: they end in it.
            let place = records.iter().position(|record| Some(record) == received.first());
            assert!(
                received.len() > records.len() - skipped,
                "{} of {}, {skipped}, {place:?}",
                received.len(),
                records.len()
            );
            assert_eq!(received, &records[records.len() - received.len()..]);
        } else {
            assert_eq!(received, &records[skipped..], "{kind}");
        }
    }
    assert_eq!(received.symbols, all.symbols, "all symbols, those of before too");
}

#[test]
fn symbols_are_sent_again_for_late_receivers() {
    let events = session::events(&session::scenario(1_000, 10, 44));
    let line = UdpSocket::bind(loopback()).unwrap().local_addr().unwrap();
    let mut plant = Plant::start(setting(v4(line)));
    plant.go_live(0);
    plant.publish(&events);
    plant.reach(1_000);
    // No receiver has listened so far.
    let mut receiver = open(line, None);
    let began = Instant::now();
    let mut received = Received::default();
    while received.symbols.len() < 10 {
        assert!(began.elapsed() < Duration::from_secs(20), "{received:?}");
        if let Ok(Some(record)) = receiver.next_record() {
            received.take(record);
        }
    }
    assert!(received.records.is_empty(), "nothing happened since");
    plant.end().stop().unwrap();
}

fn login(number: u64) -> Vec<u8> {
    let fields = LoginRequestFields {
        packet_length: 47,
        username: Ascii(*b"me    "),
        password: Ascii(*b"secret    "),
        requested_session: Ascii([b' '; 10]),
        requested_sequence_number: AsciiNumber::new(number).unwrap(),
    };
    fields.encode().to_vec()
}

/// Reads a SoupBinTCP session to its end: the number that it began with, and its messages.
fn read_soup(mut stream: impl Read) -> (u64, Vec<Vec<u8>>) {
    let (mut bytes, mut chunk, mut first, mut messages) = (Vec::new(), [0; 65_536], None, Vec::new());
    loop {
        let mut packets = Packets::new(&bytes);
        let mut is_over = false;
        for packet in packets.by_ref().filter_map(Result::ok) {
            match Message::decode(packet).unwrap() {
                Message::LoginAccepted(accepted) => first = accepted.sequence_number().value(),
                Message::SequencedData(data) => messages.push(data.message().to_vec()),
                Message::EndOfSession(_) => is_over = true,
                Message::ServerHeartbeat(_) => {}
                other => panic!("{other:?}"),
            }
        }
        if is_over {
            return (first.unwrap(), messages);
        }
        bytes = packets.rest().to_vec();
        let length = stream.read(&mut chunk).unwrap();
        assert!(length > 0, "closed before the end");
        bytes.extend_from_slice(&chunk[..length]);
    }
}

fn connect_to(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream
}

#[test]
fn soupbintcp_gives_the_same_messages_from_any_number() {
    clients_begin_anywhere(None, connect_to);
}

#[cfg(feature = "tls")]
#[test]
fn soupbintcp_over_tls_gives_the_same_messages_and_a_client_without_tls_gets_none() {
    let folder = tempfile::tempdir().unwrap();
    let authority = authority::Authority::new(folder.path(), "ours");
    authority.sign("plant");
    let files = tapeworks_runtime::transport::TlsFiles {
        certificate: authority.path("plant.pem"),
        private_key: authority.path("plant.key"),
        client_authorities: None,
    };
    let connector = authority.connector(None);
    clients_begin_anywhere(Some(files.clone()), |address| connector.over(connect_to(address)).unwrap());

    let line = UdpSocket::bind(loopback()).unwrap().local_addr().unwrap();
    let plant = Plant::start(MulticastSetting { tls: Some(files), ..setting(v4(line)) });
    let mut plain = connect_to(plant.multicast.soupbintcp().unwrap());
    plain.write_all(&login(1)).unwrap();
    let mut received = Vec::new();
    // It ends with an alert of TLS, or a reset.
    let _ended = plain.read_to_end(&mut received);
    assert!(received.len() < 16, "{received:?}");
    plant.go_live(0);
    ended(plant.end());
}

/// Clients that begin at the first message, and at one amid the session.
fn clients_begin_anywhere<S: Read + Write + Send + 'static>(
    tls: Option<tapeworks_runtime::transport::TlsFiles>,
    connect_to: impl Fn(SocketAddr) -> S,
) {
    let events = session::events(&session::scenario(3_000, 8, 45));
    let line = UdpSocket::bind(loopback()).unwrap().local_addr().unwrap();
    let mut setting = setting(v4(line));
    setting.login = Some(Credentials { user: "me".to_owned(), password: "secret".to_owned() });
    setting.linger = Duration::from_secs(30);
    setting.tls = tls;
    let mut plant = Plant::start(setting);
    let address = plant.multicast.soupbintcp().unwrap();
    let mut receiver = open(line, plant.multicast.retransmission());
    let reader = std::thread::spawn(move || (receive(&mut receiver), receiver.counters()));
    plant.go_live(0);
    let connect = |number: u64| {
        let mut stream = connect_to(address);
        stream.write_all(&login(number)).unwrap();
        std::thread::spawn(move || read_soup(stream))
    };
    let from_the_first = connect(1);
    plant.publish(&events[..events.len() / 2]);
    plant.reach(700);
    let from_the_middle = connect(500);
    plant.publish(&events[events.len() / 2..]);
    let multicast = plant.end();
    let (one, all) = from_the_first.join().unwrap();
    let (five_hundred, rest) = from_the_middle.join().unwrap();
    assert_eq!((one, five_hundred), (1, 500));
    assert_eq!(rest, all[499..]);
    let (received, counters) = reader.join().unwrap();
    assert_eq!(counters.messages, all.len() as u64);
    let mut records: BTreeMap<u8, Vec<Vec<u8>>> = BTreeMap::new();
    for message in all.iter().filter(|message| message[1] != RType::SymbolMapping as u8) {
        records.entry(message[1]).or_default().push(message.clone());
    }
    assert_eq!(records, received.records);
    let stats = ended(multicast);
    assert_eq!((stats.connections, stats.slow_clients, stats.rejected_logins), (2, 0, 0));
    assert_eq!(stats.tcp_messages, (all.len() + rest.len()) as u64);
}

#[test]
fn refused_clients_are_counted_and_reported_once() {
    let line = UdpSocket::bind(loopback()).unwrap().local_addr().unwrap();
    let mut setting = setting(v4(line));
    setting.login = Some(Credentials { user: "me".to_owned(), password: "another".to_owned() });
    let (sender, received) = channel();
    let on_refusal: OnRefusal = Arc::new(move |refused| sender.send(refused.clone()).unwrap());
    let plant = Plant::reporting(setting, Some(on_refusal));
    plant.go_live(0);
    let address = plant.multicast.soupbintcp().unwrap();
    for _ in 0..3 {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(&login(1)).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        assert_eq!(answer, b"\x00\x02JA");
    }
    let client = UdpSocket::bind(loopback()).unwrap();
    for _ in 0..3 {
        client.send_to(b"no request", plant.multicast.retransmission().unwrap()).unwrap();
    }
    let began = Instant::now();
    let mut stats = plant.multicast.stats();
    while (stats.rejected_logins, stats.refused_requests) != (3, 3) {
        assert!(began.elapsed() < Duration::from_secs(30), "{stats:?}");
        std::thread::sleep(Duration::from_millis(10));
        stats = plant.multicast.stats();
    }
    plant.end().stop().unwrap();
    let received: Vec<_> = received.iter().map(|one| (one.what, one.reason)).collect();
    assert_eq!(received.len(), 2, "each server reports an address once: {received:?}");
    assert!(
        received.iter().any(|(what, reason)| *what == "SoupBinTCP client" && reason.contains("rejected"))
    );
    assert!(
        received.iter().any(|(what, reason)| *what == "retransmission" && reason.contains("not a request"))
    );
}

#[test]
fn a_client_that_takes_nothing_is_dropped_and_counted() {
    let events = session::events(&session::scenario(30_000, 10, 46));
    let line = UdpSocket::bind(loopback()).unwrap().local_addr().unwrap();
    let mut setting = setting(v4(line));
    // Little is kept: less than the connection's buffers hold would never be missed.
    setting.store_bytes = 64 << 10;
    let mut plant = Plant::start(setting);
    plant.go_live(0);
    let mut stalled = TcpStream::connect(plant.multicast.soupbintcp().unwrap()).unwrap();
    stalled.write_all(&login(1)).unwrap();
    let began = Instant::now();
    // The buffers of the connection take some; what comes then is not kept for long.
    while plant.multicast.stats().slow_clients == 0 {
        assert!(began.elapsed() < Duration::from_secs(40), "{:?}", plant.multicast.stats());
        plant.publish(&events);
    }
    assert_eq!(plant.multicast.stats().clients, 0);
    plant.end().stop().unwrap();
}
