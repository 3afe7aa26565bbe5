//! Venues on this machine's loopback: what receivers see is what the report says, what is missing can be requested again, and who
//! joins late has the same books.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use tapeworks_capture::LinkType;
use tapeworks_capture::net::{Datagram, Transport};
use tapeworks_capture::pool::Pool;
use tapeworks_feed::{Feed, FeedOptions, Packet};
use tapeworks_generator::live::{Live, LiveOptions, LivePacket, LiveVenue, Outlet};
use tapeworks_generator::{LineFaults, Popularity, USUAL_MOST_ORDERS, VenueKind};
use tapeworks_market::{BookStage, BookUpdate, Capacity, Event, Publisher, Side};
use tapeworks_nic::{Received, UdpOptions, UdpReceiver};
use tapeworks_session::requests::{LoginFields, RequestLogin, RequestProtocol, RequestStatus, Requester};
use tapeworks_session::{Made, Request, SessionId, Store, Stream};
use tapeworks_stage::Stage;
use tapeworks_time::Nanos;
use tapeworks_venues::{Config, Report, Venue, Venues, VenuesError, Wait};
use tapeworks_wire::nasdaq::soupbintcp::{self, LoginRequestFields};
use tapeworks_wire::{Ascii, AsciiNumber};

/// One line's receiver.
struct Line {
    receiver: UdpReceiver,
    pool: Pool,
    packets: Vec<Vec<u8>>,
}

impl Line {
    /// Joins a group at a port that the kernel chooses.
    fn join(group: [u8; 4]) -> Self {
        let options = UdpOptions {
            listen: SocketAddr::from((group, 0)),
            interface: Some(Ipv4Addr::LOCALHOST),
            receive_buffer_bytes: Some(4 << 20),
            with_headers: false,
            busy_poll_us: 0,
        };
        let receiver = UdpReceiver::open(options, LinkType(147)).unwrap();
        Self { receiver, pool: Pool::new(64, 2_048), packets: Vec::new() }
    }

    fn address(&self) -> SocketAddrV4 {
        match self.receiver.local_address() {
            SocketAddr::V4(address) => address,
            SocketAddr::V6(_) => unreachable!("it was opened for IPv4"),
        }
    }

    /// Takes what is there.
    fn take(&mut self) {
        loop {
            let packets = &mut self.packets;
            let received = self.receiver.receive(&mut self.pool, 64, 0, |received| match received {
                Received::Packet(packet) => packets.push(packet.bytes().to_vec()),
                Received::TooLong => panic!("no packet is longer than 1,400 bytes"),
            });
            if received.unwrap() == 0 {
                return;
            }
        }
    }
}

/// Receives until the venues have ended, and stops them. `look` is called now and then.
fn receive(venues: Venues, lines: &mut [Line], mut look: impl FnMut(&Venues)) -> Report {
    let began = Instant::now();
    while !venues.is_finished() {
        assert!(began.elapsed() < Duration::from_secs(60), "the venues do not end");
        lines.iter_mut().for_each(Line::take);
        look(&venues);
        std::thread::sleep(Duration::from_millis(1));
    }
    lines.iter_mut().for_each(Line::take);
    let report = venues.stop().unwrap();
    lines.iter_mut().for_each(Line::take);
    report
}

/// First number and messages of a packet.
fn read(kind: VenueKind, payload: &[u8]) -> (u64, Vec<Vec<u8>>) {
    let mut messages = Vec::new();
    kind.transport().each_message(payload, |_, message| messages.push(message.to_vec()));
    (kind.transport().header(payload).unwrap().first, messages)
}

fn small(venues: Vec<Venue>, messages: u64) -> Config {
    Config {
        symbols: 20,
        messages: Some(messages),
        rate: 20_000,
        wait: Wait::Rest,
        linger_ns: 50_000_000,
        heartbeat_ns: 100_000_000,
        ..Config::new(venues)
    }
}

fn loopback() -> Option<SocketAddr> {
    Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
}

/// Requests messages again until all of them are there or nothing more comes.
fn request_again(
    kind: VenueKind,
    session: SessionId,
    server: SocketAddr,
    missing: impl Iterator<Item = u64>,
) -> BTreeMap<u64, Vec<u8>> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let (mut again, mut buffer) = (BTreeMap::new(), [0; 2_048]);
    for number in missing {
        if again.contains_key(&number) {
            continue;
        }
        let request = Request { session, first: number, count: 30 }.encode();
        socket.send_to(&request, server).unwrap();
        let length = socket.recv(&mut buffer).unwrap();
        let (first, messages) = read(kind, &buffer[..length]);
        assert_eq!(first, number);
        again.extend((first..).zip(messages));
    }
    again
}

#[test]
fn lines_carry_the_reported_messages_and_retransmission_fills_every_gap() {
    let faults = |lost| LineFaults {
        lost_per_million: lost,
        duplicated_per_million: 10_000,
        reordered_per_million: 10_000,
        ..LineFaults::default()
    };
    let kinds = VenueKind::each(["nasdaq", "iex-deep", "memx", "byx"]);
    let mut lines: Vec<Line> = (1..=8).map(|number| Line::join([239, 192, 77, number])).collect();
    let mut venues: Vec<Venue> = Vec::new();
    for (index, kind) in kinds.into_iter().enumerate() {
        let addresses = lines[2 * index..2 * index + 2].iter().map(Line::address).collect();
        let mut venue = Venue::new(kind.name(), kind, addresses);
        venue.live.faults = [faults(50_000), faults(80_000)];
        venue.live.skew_ns = 100_000;
        venue.retransmission = loopback();
        venues.push(venue);
    }
    let folder = tempfile::tempdir().unwrap();
    let injected = folder.path().join("injected.json");
    let config = Config { injected: Some(injected.clone()), ..small(venues, 20_000) };
    let running = Venues::start(config).unwrap();
    let addresses = running.addresses().to_vec();
    let mut filled: Vec<BTreeMap<u64, Vec<u8>>> = Vec::new();
    let mut seen: Vec<BTreeMap<u64, Vec<u8>>> = Vec::new();
    let began = Instant::now();
    while !running.is_finished() {
        assert!(began.elapsed() < Duration::from_secs(60));
        lines.iter_mut().for_each(Line::take);
        std::thread::sleep(Duration::from_millis(1));
    }
    lines.iter_mut().for_each(Line::take);
    let made = running.report();
    for (index, kind) in kinds.into_iter().enumerate() {
        let live = &made.venues[index].live;
        let mut of_venue = BTreeMap::new();
        for line in &lines[2 * index..2 * index + 2] {
            for packet in &line.packets {
                let (first, messages) = read(kind, packet);
                for (number, message) in (first..).zip(messages) {
                    let before = of_venue.insert(number, message.clone());
                    assert!(before.is_none_or(|before| before == message), "both lines say the same");
                }
            }
        }
        let missing = (1..=live.messages).filter(|number| !of_venue.contains_key(number));
        let server = addresses[index].retransmission.unwrap();
        let session = live.sessions[0].session;
        // And some that were seen, to hold the bytes against each other.
        let again = request_again(kind, session, server, missing.chain([1, 500, live.messages]));
        seen.push(of_venue);
        filled.push(again);
    }
    let report = running.stop().unwrap();
    for (index, kind) in kinds.into_iter().enumerate() {
        let live = &report.venues[index].live;
        assert_eq!(report.venues[index].refused_by_kernel, [0, 0]);
        let mut lost_by_kernel = 0;
        for (number, line) in lines[2 * index..2 * index + 2].iter_mut().enumerate() {
            let line_report = &live.lines[number];
            let dropped = line.receiver.query_drops();
            lost_by_kernel += dropped;
            let sent = line_report.packets + line_report.heartbeats + line_report.ends_of_session;
            assert_eq!(line.packets.len() as u64 + dropped, sent, "{} line {number}", kind.name());
            let mut distinct = BTreeSet::new();
            let (mut all, mut highest, mut overtaken) = (0, 0, 0);
            for packet in &line.packets {
                let (first, messages) = read(kind, packet);
                overtaken += u64::from(!messages.is_empty() && first < highest && !distinct.contains(&first));
                all += messages.len() as u64;
                highest = highest.max(first);
                distinct.extend((first..).take(messages.len()));
            }
            if dropped == 0 {
                assert_eq!(live.messages - distinct.len() as u64, line_report.injected.dropped_messages);
                assert_eq!(all - distinct.len() as u64, line_report.injected.duplicated_messages);
                assert!(overtaken >= line_report.injected.reordered_packets && overtaken > 0);
            }
            assert!(line_report.injected.dropped_packets > 0 && line_report.injected.duplicated_packets > 0);
        }
        let missing = live.messages - seen[index].len() as u64;
        if lost_by_kernel == 0 {
            assert_eq!(missing, live.lost_messages);
        }
        for (number, message) in &filled[index] {
            assert!(seen[index].get(number).is_none_or(|before| before == message));
        }
        let mut all: BTreeSet<u64> = seen[index].keys().copied().collect();
        all.extend(filled[index].keys());
        assert!(all.into_iter().eq(1..=live.messages), "every gap is filled");
        let answered = &report.venues[index].retransmission;
        assert!(answered.requests > 0 && answered.requests == answered.answers);
    }
    let written: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&injected).unwrap()).unwrap();
    assert_eq!(written, report.to_json());
}

/// Moves a requester's bytes until it is so.
fn request_by_tcp(
    requester: &mut Requester,
    stream: &mut TcpStream,
    began: Instant,
    is_so: impl Fn(&Requester) -> bool,
) {
    stream.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
    let mut buffer = [0; 2_048];
    while !is_so(requester) {
        assert!(began.elapsed() < Duration::from_secs(60), "{requester:?}");
        let now_ns = began.elapsed().as_nanos() as u64;
        requester.tick(now_ns);
        let output = requester.output().to_vec();
        stream.write_all(&output).unwrap();
        requester.sent(output.len(), now_ns);
        match stream.read(&mut buffer) {
            Ok(0) => panic!("it is closed: {requester:?}"),
            Ok(length) => requester.receive(&buffer[..length], now_ns),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => panic!("{error}"),
        }
        assert_eq!(requester.over(), None);
    }
}

#[test]
fn requests_over_tcp_are_answered_to_the_group_whatever_other_clients_do() {
    let fields = LoginFields {
        sub_id: "0001",
        user: "FIRM",
        password: "secret",
        source: "FIRM",
        product: 1,
        channel: 2,
    };
    for (kind, number) in [(VenueKind::Edgx, 1), (VenueKind::Nyse, 3)] {
        let login = RequestLogin::new(RequestProtocol::of(kind.transport()).unwrap(), &fields);
        let mut line = Line::join([239, 192, 78, number]);
        let mut group = Line::join([239, 192, 78, number + 1]);
        let mut venue = Venue::new(kind.name(), kind, vec![line.address()]);
        venue.retransmission = loopback();
        venue.retransmission_group = Some(group.address());
        let running = Venues::start(small(vec![venue], 6_000)).unwrap();
        let addresses = running.addresses()[0].clone();
        assert_eq!(addresses.retransmission_group, Some(group.address()));
        let server = addresses.retransmission.unwrap();
        // Half-open ones, and one that sends garbage.
        let _half_open: Vec<TcpStream> = (0..50).map(|_| TcpStream::connect(server).unwrap()).collect();
        let mut garbage = TcpStream::connect(server).unwrap();
        garbage.write_all(&[0xFF; 4_000]).unwrap();
        garbage.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        match garbage.read(&mut [0]) {
            Ok(0) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            other => panic!("it is sent away: {other:?}"),
        }
        let began = Instant::now();
        while !running.is_finished() {
            assert!(began.elapsed() < Duration::from_secs(60));
            line.take();
            std::thread::sleep(Duration::from_millis(1));
        }
        line.take();
        let live = running.report().venues[0].live.clone();
        assert!(live.messages >= 2_000, "{live:?}");
        let session = live.sessions[0].session;
        let mut requester = Requester::new(login.unwrap());
        let mut stream = TcpStream::connect(server).unwrap();
        requester.connected(began.elapsed().as_nanos() as u64);
        request_by_tcp(&mut requester, &mut stream, began, Requester::is_ready);
        let now_ns = began.elapsed().as_nanos() as u64;
        requester.request(&Request { session, first: 501, count: 1_500 }, now_ns);
        // Of 100 messages each at Cboe, of 1,000 and 500 at NYSE.
        let pieces = if kind == VenueKind::Edgx { 15 } else { 2 };
        request_by_tcp(&mut requester, &mut stream, began, |requester| {
            requester.counters().of(RequestStatus::Accepted) >= pieces
        });
        let now_ns = began.elapsed().as_nanos() as u64;
        requester.request(&Request { session, first: 1_000_000, count: 5 }, now_ns);
        request_by_tcp(&mut requester, &mut stream, began, |requester| requester.counters().refused() > 0);
        assert_eq!(requester.counters().of(RequestStatus::OutOfRange), 1);
        group.take();
        let messages = |packets: &[Vec<u8>]| -> BTreeMap<u64, Vec<u8>> {
            let each = |packet: &Vec<u8>| {
                let (first, messages) = read(kind, packet);
                (first..).zip(messages).collect::<Vec<_>>()
            };
            packets.iter().flat_map(each).collect()
        };
        let (sent, again) = (messages(&line.packets), messages(&group.packets));
        assert!(again.keys().copied().eq(501..2_001), "{:?}", again.keys());
        assert!(again.iter().all(|(number, message)| sent.get(number) == Some(message)));
        let is_marked = |packet: &Vec<u8>| matches!(packet[2], 13 | 15);
        assert!(kind != VenueKind::Nyse || group.packets.iter().all(is_marked));
        let report = running.stop().unwrap();
        let served = report.venues[0].retransmission;
        assert_eq!((served.messages, served.not_sent), (1_500, 1));
        assert_eq!(served.answers, group.packets.len() as u64);
    }
}

/// A feed with the books behind it.
struct Books {
    feed: Feed,
    stage: BookStage,
    number: u64,
}

impl Books {
    fn new(publisher: Option<Publisher>) -> Self {
        let options = FeedOptions { publisher, ..FeedOptions::default() };
        Self {
            feed: Feed::new(options),
            stage: BookStage::with_unnamed([], Capacity::for_messages(10_000)),
            number: 0,
        }
    }

    fn packet(&mut self, destination: SocketAddrV4, received: u64, payload: &[u8]) {
        self.number += 1;
        let datagram = Datagram {
            source: ([127, 0, 0, 1], 9).into(),
            destination: destination.into(),
            vlan: None,
            transport: Transport::Udp,
            payload,
            payload_offset: 0,
            truncated: false,
        };
        let packet = Packet { file: 0, number: self.number, offset: 0, received: Nanos(received), datagram };
        let mut events: Vec<Event> = Vec::new();
        self.feed.process(&[packet], &mut |event| events.push(event));
        self.stage.process(&events, &mut |_: BookUpdate<'_>| {});
    }

    /// By symbol: levels of both sides, orders in line, and the trading state.
    fn all(&self) -> BTreeMap<String, String> {
        let [books] = self.stage.feeds() else { panic!("one feed") };
        let mut all = BTreeMap::new();
        for symbol in self.feed.instruments().symbols() {
            let book = books.book(self.feed.instruments().find(*symbol).unwrap());
            let levels: Vec<_> =
                [Side::Bid, Side::Ask].map(|side| book.levels(side).collect::<Vec<_>>()).into();
            let queue: Vec<_> = book.queue().iter().map(|o| (o.id, o.price, o.size)).collect();
            let state = book.state();
            all.insert(symbol.as_str().to_owned(), format!("{levels:?} {queue:?} {state:?}"));
        }
        all
    }
}

/// Logs in at a snapshot server; the messages and the number of the first live message that is not in them.
fn snapshot(server: SocketAddr, session: &[u8; 10]) -> Option<(Ascii<10>, Vec<Vec<u8>>, u64)> {
    let mut stream = TcpStream::connect(server).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let login = LoginRequestFields {
        packet_length: 47,
        username: Ascii(*b"test  "),
        password: Ascii(*b"test      "),
        requested_session: Ascii(*session),
        requested_sequence_number: AsciiNumber::new(1).unwrap(),
    };
    stream.write_all(&login.encode()).unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let (mut accepted, mut messages, mut is_over) = (None, Vec::new(), false);
    for packet in soupbintcp::Packets::new(&bytes) {
        match soupbintcp::Message::decode(packet.unwrap()).unwrap() {
            soupbintcp::Message::LoginAccepted(login) => accepted = Some(login.session()),
            soupbintcp::Message::SequencedData(data) => messages.push(data.message().to_vec()),
            soupbintcp::Message::EndOfSession(_) => is_over = true,
            soupbintcp::Message::LoginRejected(_) => return None,
            other => panic!("{other:?}"),
        }
    }
    assert!(is_over);
    let end = messages.pop().unwrap();
    assert_eq!((end[0], end.len()), (b'G', 21));
    let next = std::str::from_utf8(&end[1..]).unwrap().trim_start().parse().unwrap();
    Some((accepted.unwrap(), messages, next))
}

/// A packet of one message.
fn packet_of(session: SessionId, number: u64, message: &[u8]) -> Vec<u8> {
    let mut store = Store::new(session.transport(), 4_000);
    store.begin_session(session);
    let mut stream = Stream::new(session, 0);
    stream.put(message);
    store.keep(&Made { first: number, count: 1, stream_offset: 0, blocks: stream.blocks() });
    let mut packet = Vec::new();
    let request = Request { session, first: number, count: 1 }.encode();
    assert_eq!(store.answer(&request, 0, &mut packet), Ok(1));
    packet
}

#[test]
fn a_receiver_that_joins_by_a_snapshot_has_the_books_of_one_that_saw_everything() {
    let kinds = VenueKind::each(["bx", "iex-deep", "iex-deep-plus"]);
    let mut lines: Vec<Line> =
        [[239, 192, 78, 1], [239, 192, 78, 2], [239, 192, 78, 3]].map(Line::join).into();
    let venues = kinds.into_iter().zip(&lines).map(|(kind, line)| {
        let mut venue = Venue::new(kind.name(), kind, vec![line.address()]);
        venue.snapshot = loopback();
        venue
    });
    let config = small(venues.collect(), 30_000);
    let running = Venues::start(config).unwrap();
    let addresses = running.addresses().to_vec();
    let mut joins = Vec::new();
    let report = receive(running, &mut lines, |venues| {
        if venues.report().messages > 12_000 && joins.is_empty() {
            joins.extend(
                addresses.iter().map(|venue| snapshot(venue.snapshot.unwrap(), b"          ").unwrap()),
            );
        }
    });
    for (index, kind) in kinds.into_iter().enumerate() {
        let line = &mut lines[index];
        let (address, drops) = (line.address(), line.receiver.query_drops());
        assert_eq!(drops, 0, "the kernel dropped packets of this test's receiver");
        let publisher = kind.is_in_files().then_some(Publisher::XBOS_ITCH);
        let (mut whole, mut joined) = (Books::new(publisher), Books::new(publisher));
        let now = report.start_utc_ns;
        for packet in &line.packets {
            whole.packet(address, now, packet);
        }
        let session = report.venues[index].live.sessions[0].session;
        let (named, messages, next) = &joins[index];
        assert_eq!(*named, session.login_name());
        assert_eq!(report.venues[index].snapshot.messages, messages.len() as u64);
        assert!(*next > messages.len() as u64 && *next < report.venues[index].live.messages);
        // The snapshot takes the numbers before the first live message that it does not include.
        for (number, message) in (next - messages.len() as u64..).zip(messages) {
            joined.packet(address, now, &packet_of(session, number, message));
        }
        for packet in &line.packets {
            let (first, messages) = read(kind, packet);
            if first + messages.len() as u64 > *next {
                joined.packet(address, now, packet);
            }
        }
        let problems = joined.feed.problems();
        assert_eq!(problems.total, 0, "{:?}", problems.kept());
        assert_eq!(joined.stage.feeds()[0].counters().rejected(), 0);
        let (whole, joined) = (whole.all(), joined.all());
        assert_eq!(whole.len(), 20);
        let is_empty = |book: &&String| book.starts_with("[[], []]");
        assert!(whole.values().filter(is_empty).count() < 5, "{whole:?}");
        assert_eq!(whole, joined);
    }
}

/// The packets of line A, by venue.
#[derive(Default)]
struct LineA(Vec<(usize, Vec<u8>)>);

impl Outlet for LineA {
    fn session(&mut self, _: usize, _: SessionId) {}
    fn made(&mut self, _: usize, _: &Made<'_>) {}
    fn packet(&mut self, packet: &LivePacket<'_>) {
        if packet.line == 0 {
            self.0.push((packet.venue, packet.payload.to_vec()));
        }
    }
}

#[test]
fn books_after_a_restart_equal_those_without_it() {
    let start = 1_763_130_600_000_000_000;
    let kinds = VenueKind::each(["psx", "iex-deep", "iex-tops", "memx"]);
    for kind in kinds.into_iter().chain(VenueKind::each(["iex-deep-plus"])) {
        let books = |restart_after: Vec<u64>| {
            let venue = LiveVenue { restart_after, ..Venue::new("", kind, Vec::new()).live };
            let options = LiveOptions {
                seed: 9,
                start_utc_ns: start,
                midnight_ns: 1_763_096_400_000_000_000,
                symbols: 15,
                popularity: Popularity::Zipf,
                most_orders: USUAL_MOST_ORDERS,
                messages: Some(30_000),
                rate: 50_000,
                nights: Vec::new(),
                bursts: Vec::new(),
                heartbeat_ns: 0,
                linger_ns: 0,
                venues: vec![venue],
            };
            let mut live = Live::new(&options).unwrap();
            let mut line = LineA::default();
            while let Some(due_ns) = live.next_due_ns() {
                live.advance(due_ns.next_multiple_of(100_000), &mut line);
            }
            let mut books = Books::new(kind.is_in_files().then_some(Publisher::XPSX_ITCH));
            let address = kind.groups()[0];
            line.0.iter().for_each(|(_, payload)| books.packet(address, start, payload));
            assert_eq!(books.feed.problems().total, 0, "{:?}", books.feed.problems().kept());
            assert_eq!(books.stage.feeds()[0].counters().rejected(), 0);
            (books.all(), live.report().venues[0].sessions.len())
        };
        let (without, one) = books(Vec::new());
        let (with, three) = books(vec![8_000, 15_000]);
        assert_eq!((one, three), (1, 3));
        assert_eq!(without, with, "{}", kind.name());
    }
}

#[test]
fn hostile_clients_harm_nobody_and_are_counted() {
    let sink = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let SocketAddr::V4(line) = sink.local_addr().unwrap() else { panic!() };
    let mut venue = Venue::new("BX", VenueKind::Bx, vec![line]);
    (venue.snapshot, venue.retransmission) = (loopback(), loopback());
    let config = Config { messages: None, ..small(vec![venue], 1) };
    let running = Venues::start(config).unwrap();
    let (tcp, udp) =
        (running.addresses()[0].snapshot.unwrap(), running.addresses()[0].retransmission.unwrap());
    // Half-open ones, and one that logs in and never reads.
    let half_open: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(tcp).unwrap()).collect();
    let mut garbage = TcpStream::connect(tcp).unwrap();
    garbage.write_all(&[0xFF; 4_000]).unwrap();
    let mut byte = [0];
    garbage.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    match garbage.read(&mut byte) {
        Ok(0) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        other => panic!("it is sent away: {other:?}"),
    }
    let stranger = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    for request in [&b""[..], b"short", &[0xFF; 20], &[0; 21], &[7; 1_400]] {
        stranger.send_to(request, udp).unwrap();
    }
    assert!(snapshot(tcp, b"NOSUCHONE ").is_none(), "another session is rejected");
    let (session, ..) = snapshot(tcp, b"          ").unwrap();
    assert_eq!(snapshot(tcp, &session.0).unwrap().0, session);
    let began = Instant::now();
    while running.report().venues[0].retransmission.requests < 5 {
        assert!(began.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(5));
    }
    let report = running.stop().unwrap();
    drop(half_open);
    let venue = &report.venues[0];
    assert_eq!((venue.retransmission.malformed, venue.retransmission.unknown_session), (4, 1));
    assert_eq!(venue.retransmission.answers, 0);
    let snapshots = &venue.snapshot;
    assert_eq!(snapshots.connections, 104);
    assert_eq!((snapshots.served, snapshots.rejected, snapshots.malformed), (2, 1, 1));
}

#[test]
fn a_port_in_use_is_named() {
    let taken = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut venue = Venue::new("Nasdaq", VenueKind::Nasdaq, VenueKind::Nasdaq.groups().to_vec());
    venue.snapshot = Some(taken.local_addr().unwrap());
    let error = Venues::start(small(vec![venue], 10)).unwrap_err();
    assert!(matches!(error, VenuesError::Listen { .. }));
    let text = error.to_string();
    let address = taken.local_addr().unwrap().to_string();
    assert!(text.contains("'Nasdaq'") && text.contains(&address) && text.contains("in use"), "{text}");
}

#[test]
fn twenty_five_venues_run_in_one_process() {
    let kinds = VenueKind::each(["nasdaq", "bx", "psx", "iex-deep", "iex-tops"]);
    let mut lines: Vec<Line> = (1..=25).map(|number| Line::join([239, 192, 79, number])).collect();
    let venues = lines.iter().enumerate().map(|(number, line)| {
        let mut venue =
            Venue::new(&format!("feed {number}"), kinds[number % kinds.len()], vec![line.address()]);
        (venue.snapshot, venue.retransmission) = (loopback(), loopback());
        venue
    });
    let config = Config { store_bytes: 1 << 20, ..small(venues.collect(), 20_000) };
    let running = Venues::start(config).unwrap();
    let report = receive(running, &mut lines, |_| {});
    assert_eq!(report.venues.iter().map(|venue| venue.live.messages).sum::<u64>(), report.messages);
    for (venue, line) in report.venues.iter().zip(&mut lines) {
        let seen: u64 = line.packets.iter().map(|packet| read(venue.live.kind, packet).1.len() as u64).sum();
        assert!(seen > 0 && (seen == venue.live.messages || line.receiver.query_drops() > 0));
    }
}
