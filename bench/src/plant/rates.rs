//! Delays at stated rates, and a burst.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use prost::Message as _;
use tapeworks_generator::live::LiveBurst;
use tapeworks_market::EventKind;
use tapeworks_outputs::multicast::receiver::{Receiver, ReceiverOptions};
use tapeworks_outputs::multicast::server::MulticastSetting;
use tapeworks_outputs::stream::Encoding;
use tapeworks_outputs::stream::messages::{Kind, Record as Streamed};
use tapeworks_outputs::subscriber::Records;
use tapeworks_plant::{JournalSetting, Published, SHARED_MEANING, Topology};
use tapeworks_ring::broadcast::{Read as Shared, Reader, Start};
use tapeworks_ring::cpu;
use tapeworks_ring::wait::Wait;
use tapeworks_service::config::WebSetting;
use tapeworks_service::service::Service;
use tapeworks_store::Schema;
use tapeworks_time::Nanos;
use tapeworks_time::clock;
use tapeworks_venues::{Config as Sending, Venues, Wait as Pace};

use super::{Folder, free_address, heading, histogram, line, now_ns, plant, row, subscribe, venue};
use crate::Options;

/// Seconds of each run.
const SECONDS: u64 = 4;

/// After so long without a record a run is over, if its venue is.
const QUIET: Duration = Duration::from_millis(500);

/// Of them, how many at the start do not count: the directory, the first touch of memory.
const WARM_UP_NS: u64 = 1_000_000_000;

pub fn run(options: &Options) {
    let rates: &[u64] =
        if options.rounds < 2 { &[100_000] } else { &[100_000, 500_000, 1_000_000, 1_500_000, 2_000_000] };
    for &rate in rates {
        heading(&format!(
            "{rate} messages a second for {SECONDS} s, from the intended send time; the venue spins on a core"
        ));
        compare(rate, Pace::Spin);
    }
    // A plant that shares two cores with a spinning venue waits for the scheduler, and the tails measure nothing else.
    for rate in [100_000, 500_000] {
        heading(&format!(
            "{rate} messages a second for {SECONDS} s, from the intended send time; the venue sleeps 200 us at a time"
        ));
        compare(rate, Pace::Sleep);
    }
    heading(&format!("{RESTING_RATE} messages a second for {SECONDS} s: the venue sleeps between messages"));
    let floor = echo(RESTING_RATE, Pace::Sleep);
    row("floor: UDP to TCP by a bare thread", &floor, None, "");
    let median = floor.value_at_quantile(0.5) as f64 / 1e3;
    let (from_send, from_receive, note) = shared(RESTING_RATE, Pace::Sleep, true);
    row("shared memory, a core each for plant and reader", &from_send, Some(median), &note);
    row("shared memory, from the receive stamp", &from_receive, None, "(target: p50 under 2 us)");
    println!();
}

/// Runs of each kind, in turns with the others: a scheduler's mood lasts longer than one run.
const TURNS: usize = 3;

/// Every kind of client beside the floor.
fn compare(rate: u64, pace: Pace) {
    let kinds = [
        ("DBN live, mbo", Way::Dbn(Topology::Inline, false, "mbo")),
        ("DBN live, cmbp-1 (synthetic NBBO)", Way::Dbn(Topology::Inline, false, "cmbp-1")),
        ("DBN live, mbo, pipeline", Way::Dbn(Topology::Pipeline, false, "mbo")),
        ("DBN live, mbo, behind the journal", Way::Dbn(Topology::Inline, true, "mbo")),
        ("multicast, cmbp-1", Way::Multicast),
        ("WebSocket, NBBO, JSON", Way::Stream(Encoding::Json)),
        ("WebSocket, NBBO, Protobuf", Way::Stream(Encoding::Protobuf)),
    ];
    let mut floor = histogram();
    let mut delays = kinds.map(|_| (histogram(), String::new()));
    let mut of_shared = [histogram(), histogram()];
    let mut note_of_shared = String::new();
    for _ in 0..TURNS {
        add(&mut floor, &echo(rate, pace));
        for ((name, way), (sum, note)) in kinds.into_iter().zip(&mut delays) {
            let (delays, of_run) = live(rate, pace, way);
            assert!(!delays.is_empty(), "{name}: nothing came");
            add(sum, &delays);
            worse(note, of_run);
        }
        let (from_send, from_receive, note) = shared(rate, pace, false);
        add(&mut of_shared[0], &from_send);
        add(&mut of_shared[1], &from_receive);
        worse(&mut note_of_shared, note);
    }
    row("floor: UDP to TCP by a bare thread", &floor, None, "");
    let median = floor.value_at_quantile(0.5) as f64 / 1e3;
    for ((name, ..), (delays, note)) in kinds.iter().zip(&delays) {
        row(name, delays, Some(median), note);
    }
    row("shared memory", &of_shared[0], Some(median), &note_of_shared);
    row("shared memory, from the receive stamp", &of_shared[1], None, "(target: p50 under 2 us)");
    println!();
}

fn add(sum: &mut Histogram<u64>, run: &Histogram<u64>) {
    sum.add(run).expect("histograms of one kind");
}

/// Keeps the note of a run that was not held, else of the last.
fn worse(note: &mut String, of_run: String) {
    if !note.contains("NOT HELD") {
        *note = of_run;
    }
}

/// Messages a second that leave a venue time to sleep: other threads get its core meanwhile.
const RESTING_RATE: u64 = 2_000;

fn paced(line: SocketAddrV4, rate: u64, pace: Pace) -> Sending {
    Sending { wait: pace, ..venue(line, rate, rate * SECONDS) }
}

/// A thread that takes datagrams and writes each to a TCP connection; a client at its end.
fn echo(rate: u64, pace: Pace) -> Histogram<u64> {
    let line = line();
    let udp = UdpSocket::bind(SocketAddr::V4(line)).expect("the group's port is free");
    udp.join_multicast_v4(line.ip(), &Ipv4Addr::LOCALHOST).expect("loopback has multicast");
    udp.set_read_timeout(Some(Duration::from_millis(500))).expect("a socket has a timeout");
    let listener = TcpListener::bind(free_address()).expect("the port is free");
    let address = listener.local_addr().expect("it is bound");
    let ended = Arc::new(AtomicBool::new(false));
    let mut delays = histogram();
    std::thread::scope(|scope| {
        let has_ended = Arc::clone(&ended);
        scope.spawn(move || {
            let (mut stream, _) = listener.accept().expect("the client comes");
            stream.set_nodelay(true).expect("a socket has this option");
            let mut packet = [0; 2_048];
            while !has_ended.load(Ordering::Acquire) {
                let Ok(length) = udp.recv(&mut packet[2..]) else { continue };
                packet[..2].copy_from_slice(&(length as u16).to_be_bytes());
                if stream.write_all(&packet[..2 + length]).is_err() {
                    return;
                }
            }
        });
        let mut stream = TcpStream::connect(address).expect("it listens");
        let venues = Venues::start(paced(line, rate, pace)).expect("the venue starts");
        let started = now_ns();
        let midnight = clock::midnight_before(Nanos(started)).expect("there was a midnight").0;
        stream.set_read_timeout(Some(Duration::from_millis(300))).expect("a socket has a timeout");
        let mut bytes = Vec::new();
        let mut buffer = vec![0; 1 << 18];
        loop {
            match stream.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => bytes.extend_from_slice(&buffer[..read]),
                Err(_) if venues.is_finished() => break,
                Err(_) => continue,
            }
            let now = now_ns();
            let mut used = 0;
            while let Some(length) = bytes.get(used..used + 2) {
                let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
                let Some(packet) = bytes.get(used + 2..used + 2 + length) else { break };
                used += 2 + length;
                let count = u16::from_be_bytes([packet[18], packet[19]]);
                if count == 0 || count == u16::MAX || now < started + WARM_UP_NS {
                    continue;
                }
                // Each message of the datagram has its own time.
                let mut at = 20;
                while let Some(message) = packet.get(at + 2..) {
                    let length = usize::from(u16::from_be_bytes([packet[at], packet[at + 1]]));
                    let Some(time) = message.get(5..11) else { break };
                    let time = time.iter().fold(0u64, |time, byte| time << 8 | u64::from(*byte));
                    delays.saturating_record(now.saturating_sub(midnight + time));
                    at += 2 + length;
                }
            }
            bytes.drain(..used);
        }
        ended.store(true, Ordering::Release);
        let _report = venues.stop();
    });
    delays
}

/// The error of a run, if there was one.
fn note(service: &Service) -> String {
    let status = service.status();
    let drops: u64 =
        status.channels.iter().flat_map(|channel| &channel.lines).map(|line| line.kernel_drops).sum();
    let mut note = format!("ring at most {}", status.ring.highest);
    if drops > 0 {
        note.push_str(&format!(", NOT HELD: the kernel dropped {drops}"));
    }
    note
}

/// The output that a client reads, and the plant's options.
#[derive(Clone, Copy)]
enum Way {
    /// From the DBN live server: the topology, whether there is a journal, the schema.
    Dbn(Topology, bool, &'static str),
    /// The NBBO by multicast.
    Multicast,
    /// The NBBO from the stream.
    Stream(Encoding),
}

/// The records of a client.
enum Came {
    /// A record of the market, with the time at which its message was meant to be sent.
    Record(u64),
    /// Something else.
    Other,
    /// Nothing for a while.
    Nothing,
    /// There will be no more.
    End,
}

/// The records of a client of the live server.
fn from_records(mut records: impl Records + 'static) -> Box<dyn FnMut() -> Came> {
    Box::new(move || match records.next_record() {
        Ok(Some(record)) if record.has::<dbn::SystemMsg>() || record.has::<dbn::SymbolMappingMsg>() => {
            Came::Other
        }
        Ok(Some(record)) => Came::Record(record.header().ts_event),
        Ok(None) => Came::End,
        Err(error) if error.is_timeout() => Came::Nothing,
        Err(error) => panic!("{error}"),
    })
}

/// The records of a WebSocket.
fn from_stream(address: SocketAddr, encoding: Encoding) -> Box<dyn FnMut() -> Came> {
    let tcp = TcpStream::connect(address).expect("the page listens");
    tcp.set_nodelay(true).expect("a socket has this option");
    tcp.set_read_timeout(Some(Duration::from_millis(500))).expect("a socket has a timeout");
    let encoding = match encoding {
        Encoding::Json => "json",
        Encoding::Protobuf => "protobuf",
    };
    let url = format!("ws://{address}/stream?encoding={encoding}&schema=nbbo");
    let (mut socket, _) = tungstenite::client(url, tcp).expect("the stream takes clients");
    Box::new(move || match socket.read() {
        Ok(tungstenite::Message::Text(text)) => {
            let time = text.split_once("\"ts_event\":\"").and_then(|(_, rest)| rest.split_once('"'));
            time.and_then(|(time, _)| time.parse().ok()).map_or(Came::Other, Came::Record)
        }
        Ok(tungstenite::Message::Binary(bytes)) => {
            match Streamed::decode(&bytes[..]).map(|record| record.kind) {
                Ok(Some(Kind::Nbbo(nbbo))) => Came::Record(nbbo.ts_event as u64),
                _ => Came::Other,
            }
        }
        Ok(_) => Came::Other,
        Err(tungstenite::Error::Io(error))
            if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
        {
            Came::Nothing
        }
        Err(_) => Came::End,
    })
}

/// A client of the live plant.
fn live(rate: u64, pace: Pace, way: Way) -> (Histogram<u64>, String) {
    let line = line();
    let group = super::line();
    let folder = Folder::in_memory();
    let mut config = plant(line);
    match way {
        Way::Dbn(topology, has_journal, _) => {
            config.plant.topology = topology;
            if has_journal {
                config.plant.journal = Some(JournalSetting::new(folder.0.join("journal")));
            }
        }
        Way::Multicast => {
            config.clients = None;
            config.multicast =
                Some(MulticastSetting { schemas: vec![Schema::Cmbp1], ..MulticastSetting::new(group) });
        }
        Way::Stream(_) => {
            config.clients = None;
            config.web = Some(WebSetting { address: free_address(), token: None, stream: true, tls: None });
        }
    }
    let service = Service::start(&config, None).expect("the plant starts");
    let mut next = match way {
        Way::Dbn(_, _, schema) => {
            from_records(subscribe(service.clients_address().expect("clients are served"), schema))
        }
        Way::Multicast => from_records(
            Receiver::open(ReceiverOptions {
                group: SocketAddr::V4(group),
                interface: Some(Ipv4Addr::LOCALHOST),
                retransmission: None,
                from_beginning: false,
                timeout: Duration::from_millis(500),
            })
            .expect("the group can be joined"),
        ),
        Way::Stream(encoding) => from_stream(service.web_address().expect("there is a page"), encoding),
    };
    let venues = Venues::start(paced(line, rate, pace)).expect("the venue starts");
    let started = now_ns();
    let (mut delays, mut last) = (histogram(), Instant::now());
    loop {
        match next() {
            Came::Record(sent) => {
                let now = now_ns();
                last = Instant::now();
                if sent > started && now > started + WARM_UP_NS {
                    delays.saturating_record(now.saturating_sub(sent));
                }
            }
            // Symbols are repeated for ever.
            Came::Other | Came::Nothing => {
                if venues.is_finished() && last.elapsed() > QUIET {
                    break;
                }
            }
            Came::End => break,
        }
    }
    let note = note(&service);
    let _report = venues.stop();
    drop(next);
    service.stop().expect("the plant ends well");
    (delays, note)
}

/// A reader of the shared memory: delays from the intended time, and from the kernel's receive time. Where plant and reader
/// spin, each has a core.
fn shared(rate: u64, pace: Pace, spins: bool) -> (Histogram<u64>, Histogram<u64>, String) {
    let line = line();
    let folder = Folder::in_memory();
    let mut config = plant(line);
    config.clients = None;
    config.plant.shared_memory = Some(folder.0.join("shared"));
    if spins {
        config.plant.wait = Wait::BusySpin;
        config.plant.cores[0] = Some(0);
    }
    let service = Service::start(&config, None).expect("the plant starts");
    let reader = Reader::<Published>::attach(&folder.0.join("shared"), SHARED_MEANING, Start::Newest)
        .expect("the shared memory is there");
    let sending = paced(line, rate, pace);
    let venues = std::thread::scope(|scope| {
        // On a thread of its own: what it starts inherits its core and its priority, so the venue's work interrupts the
        // reader's core and not the plant's.
        let starting = scope.spawn(|| {
            if spins {
                cpu::pin(1).expect("there are two cores");
                // Without the permission the venue waits for its turn, and the figures show that.
                let _refused = cpu::set_realtime(1);
            }
            Venues::start(sending).expect("the venue starts")
        });
        starting.join().expect("the venue starts")
    });
    let (from_send, from_receive, lost) = std::thread::scope(|scope| {
        // On a thread of its own: those that a pinned thread starts are pinned, too.
        let reading = scope.spawn(|| {
            if spins {
                cpu::pin(1).expect("there are two cores");
            }
            read_shared(reader, spins, || venues.is_finished())
        });
        reading.join().expect("the reader ends well")
    });
    let published = service.status().delays.all[0] as f64 / 1e3;
    let mut note = format!("{}, stamp to publication p50 {published:.1} us", note(&service));
    if lost > 0 {
        note.push_str(&format!(", reader overrun by {lost}"));
    }
    let _report = venues.stop();
    service.stop().expect("the plant ends well");
    (from_send, from_receive, note)
}

/// Reads the shared memory until nothing comes any more: delays as [`shared`] says, and items that were overrun.
fn read_shared(
    mut reader: Reader<Published>,
    spins: bool,
    has_ended: impl Fn() -> bool,
) -> (Histogram<u64>, Histogram<u64>, u64) {
    let started = now_ns();
    let (mut from_send, mut from_receive, mut lost) = (histogram(), histogram(), 0);
    let mut last = Instant::now();
    loop {
        match reader.read() {
            Shared::Item(item) => {
                let now = now_ns();
                last = Instant::now();
                if item.kind != EventKind::SymbolMapping as u8
                    && item.ts_event > started
                    && now > started + WARM_UP_NS
                {
                    from_send.saturating_record(now.saturating_sub(item.ts_event));
                    from_receive.saturating_record(now.saturating_sub(item.ts_recv));
                }
            }
            Shared::Lost(count) => lost += count,
            Shared::Closed => break,
            Shared::Empty => {
                if last.elapsed() > QUIET && has_ended() {
                    break;
                }
                if spins { std::hint::spin_loop() } else { std::thread::yield_now() }
            }
        }
    }
    (from_send, from_receive, lost)
}

/// 4 million messages a second for a quarter of a second on top of 200,000: how far behind, and how long until it is drained.
pub fn burst() {
    let line = line();
    let mut config = plant(line);
    // A burst waits in the socket, and this line has no other to have it from.
    config.plant.receive.buffer_bytes = Some(256 << 20);
    let service = Service::start(&config, None).expect("the plant starts");
    let mut subscriber = subscribe(service.clients_address().expect("clients are served"), "mbo");
    let mut sending = venue(line, 200_000, 2_000_000);
    sending.bursts =
        vec![LiveBurst { at_ns: 2_000_000_000, length_ns: 250_000_000, messages_per_second: 4_000_000 }];
    let venues = Venues::start(sending).expect("the venue starts");
    let received = AtomicU64::new(0);
    let is_over = AtomicBool::new(false);
    println!("burst: 200,000 messages a second, and 4,000,000 for 250 ms after 2 s");
    println!("  {:>8} {:>12} {:>12} {:>12} {:>10}", "ms", "sent", "in the plant", "behind", "ring");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // A client that reads all records.
            while !is_over.load(Ordering::Acquire) {
                match subscriber.next_record() {
                    Ok(Some(_)) => {
                        received.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok(None) => return,
                    Err(_) => {}
                }
            }
        });
        let started = Instant::now();
        let mut worst = (0, 0);
        let mut drained = None;
        while !venues.is_finished() || started.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(50));
            let elapsed = started.elapsed().as_millis() as u64;
            let sent = venues.report().messages;
            let status = service.status();
            let missing: u64 = status.channels.iter().map(|channel| channel.counters.missing).sum();
            let behind = sent.saturating_sub(status.engine.messages + missing);
            if behind > worst.0 {
                worst = (behind, elapsed);
            }
            // The status is up to 200 ms old: at 200,000 a second that looks like 40,000.
            if elapsed > 2_300 && drained.is_none() && behind < 60_000 {
                drained = Some(elapsed);
            }
            if (1_900..4_000).contains(&elapsed) && elapsed % 200 < 50 {
                println!(
                    "  {elapsed:>8} {sent:>12} {:>12} {behind:>12} {:>10}",
                    status.engine.messages, status.ring.fill
                );
            }
            if elapsed > 12_000 {
                break;
            }
        }
        is_over.store(true, Ordering::Release);
        let status = service.status();
        let drops: u64 =
            status.channels.iter().flat_map(|channel| &channel.lines).map(|line| line.kernel_drops).sum();
        println!(
            "  at most {} behind (at {} ms), drained at {} ms; ring at most {}; the kernel dropped {drops} packets, {} messages missing",
            worst.0,
            worst.1,
            drained.map_or_else(|| "?".to_owned(), |at| at.to_string()),
            status.ring.highest,
            status.channels.iter().map(|channel| channel.counters.missing).sum::<u64>()
        );
    });
    let report = venues.stop().expect("the venue ends");
    println!(
        "  sender: at most {:.1} ms late; client read {} records\n",
        report.worst_late_ns as f64 / 1e6,
        received.load(Ordering::Relaxed)
    );
    service.stop().expect("the plant ends well");
}
