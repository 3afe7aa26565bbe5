//! Between a socket's bytes in and bytes out a gateway takes no memory: sessions, checks, translation, store.
//!
//! First what has no sockets, call by call. Then the shipped thread with sockets and a journal: it takes memory for its status at each
//! tick, and none for a message.

#![allow(clippy::expect_used, clippy::unwrap_used)]

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use tapeworks_disk::System;
use tapeworks_fix_wire::{Framing, Writer, field, next_message};
use tapeworks_gateway::config::{AnyParts, Config};
use tapeworks_gateway::{Command, Core, Gateway, Ledger, Now, Opened, open};
use tapeworks_matching::orders::{Connection, Gate, Instrument, OrderExchange, OrderOptions};
use tapeworks_order_session::native::{Channel, Client as NativeClient, ServerSettings, User};
use tapeworks_ring::counting::{CountingAllocator, allocations};
use tapeworks_runtime::traces::{Sampling, Traces};
use tapeworks_wire::Ascii;
use tapeworks_wire::millennium::variant::{LSE, Variant};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const START_NS: u64 = 1_709_197_200_000_000_000;
const VARIANT: Variant = Variant { partitions: 1, throttle_per_second: 0, ..LSE };

fn config(folder: &Path, venue: [u16; 2], drop_copy: bool) -> Config {
    let [real_time, recovery] = venue;
    let mut text = format!(
        "listen = \"127.0.0.1:0\"\n[store]\nfolder = \"{}\"\nsync = \"never\"\n\
         [venue]\nprotocol = \"millennium\"\nreal_time = \"127.0.0.1:{real_time}\"\nrecovery = \"127.0.0.1:{recovery}\"\n\
         user = \"TW01\"\npassword = \"password\"\npartitions = 1\nthrottle_per_second = 0\n\
         [[instrument]]\nsymbol = \"AAPL\"\nid = 1\n\
         [client_defaults]\nmost_quantity = 1_000\norders_per_second = 1_000_000\n\
         [[client]]\nname = \"alpha\"\ncomp_id = \"ALPHA\"\n",
        folder.join("store").display()
    );
    if drop_copy {
        text.push_str("[[client]]\nname = \"copy\"\ncomp_id = \"COPY\"\ndrop_copy = true\n");
    }
    Config::parse("test", &text, folder).unwrap()
}

fn exchange() -> OrderExchange {
    let instrument = Instrument {
        id: 1,
        symbol: Ascii::new("AAPL").unwrap(),
        partition: 1,
        tick_e8: 1_000_000,
        lowest_price_e8: 1,
        highest_price_e8: i64::MAX,
        most_quantity: 1_000_000,
    };
    let options = OrderOptions {
        instruments: vec![instrument],
        native_users: vec![User::new("TW01", "password", &VARIANT)],
        ouch_users: Vec::new(),
        native: ServerSettings { variant: VARIANT, ..ServerSettings::default() },
        most_orders: 4_096,
        ..OrderOptions::default()
    };
    OrderExchange::new(&options, START_NS).unwrap()
}

/// A client that writes its messages itself.
struct Client {
    comp_id: &'static [u8],
    next: u64,
}

impl Client {
    fn message(&mut self, kind: &[u8], now_ns: u64, body: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
        let mut buffer = [0; 512];
        let mut writer = Writer::begin(&mut buffer, b"FIX.4.4", kind);
        writer.number(34, self.next).text(49, self.comp_id).timestamp(52, now_ns).text(56, b"TAPEWORKS");
        self.next += 1;
        body(&mut writer);
        writer.finish().unwrap().to_vec()
    }

    fn log_on(&mut self, now_ns: u64) -> Vec<u8> {
        self.message(b"A", now_ns, |writer| _ = writer.number(98, 0).number(108, 3_600).flag(141, true))
    }

    fn order(&mut self, id: &str, side: u64, quantity: u64, now_ns: u64) -> Vec<u8> {
        self.message(b"D", now_ns, |writer| {
            writer.text(11, id.as_bytes()).text(55, b"AAPL").number(54, side).timestamp(60, now_ns);
            writer.number(38, quantity).number(40, 2).text(44, b"100.25").number(59, 0);
        })
    }

    fn cancel(&mut self, id: &str, of: &str, side: u64, now_ns: u64) -> Vec<u8> {
        self.message(b"F", now_ns, |writer| {
            writer.text(41, of.as_bytes()).text(11, id.as_bytes()).text(55, b"AAPL").number(54, side);
            writer.timestamp(60, now_ns).number(38, 100);
        })
    }
}

/// A gateway without sockets, and its exchange.
struct Bench {
    core: Core<NativeClient, System>,
    ledger: Ledger<System>,
    exchange: OrderExchange,
    lines: Vec<Connection>,
    now_ns: u64,
    /// Allocations of the gateway.
    taken: u64,
    /// Messages to clients.
    answers: usize,
}

impl Bench {
    fn now(&self) -> Now {
        Now { utc_ns: self.now_ns, steady_ns: self.now_ns }
    }

    /// A turn: what the clients and the venue sent, the journal, what goes out. The exchange answers within it.
    fn turn(&mut self, client: Option<(usize, &[u8])>) {
        let mut client = client;
        self.now_ns += 1_000_000;
        loop {
            let now = self.now();
            let from_venue: Vec<Vec<u8>> =
                self.lines.iter().map(|line| self.exchange.output(*line).to_vec()).collect();
            for (line, bytes) in self.lines.iter().zip(&from_venue) {
                self.exchange.sent(*line, bytes.len(), self.now_ns);
            }
            let is_over = client.is_none() && from_venue.iter().all(Vec::is_empty);
            let before = allocations();
            if let Some((index, bytes)) = client.take() {
                self.core.client_bytes(index, bytes, now);
            }
            for (channel, bytes) in from_venue.iter().enumerate().filter(|(_, bytes)| !bytes.is_empty()) {
                self.core.venue_bytes(channel, bytes, now);
            }
            self.core.commit(&mut self.ledger, self.now_ns).unwrap();
            for index in 0..2 {
                let length = self.core.client_output(index).len();
                self.answers += usize::from(length > 0);
                self.core.client_sent(index, length);
            }
            self.taken += allocations() - before;
            for channel in 0..self.lines.len() {
                let output = self.core.venue().output(Channel::ALL[channel]).to_vec();
                self.exchange.receive(self.lines[channel], &output, self.now_ns);
                let before = allocations();
                self.core.venue_sent(channel, output.len(), now);
                self.taken += allocations() - before;
            }
            if is_over {
                return;
            }
        }
    }
}

fn a_gateway_takes_no_memory(drop_copy: bool) {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path(), [1, 2], drop_copy);
    let AnyParts::Millennium(parts) = config.parts(START_NS).unwrap() else { panic!("another venue") };
    let Opened { core, ledger, .. } =
        open::<_, System>(&config.store, config.journal, config.sync, parts, START_NS).unwrap();
    let mut exchange = exchange();
    let mut now_ns = START_NS;
    let lines = Channel::ALL.map(|channel| exchange.open(Gate::Native(channel), now_ns).unwrap()).to_vec();
    let mut bench = Bench { core, ledger, exchange, lines, now_ns, taken: 0, answers: 0 };
    for channel in 0..2 {
        bench.core.venue_connected(channel, bench.now());
    }
    bench.turn(None);
    let mut clients = [Client { comp_id: b"ALPHA", next: 1 }, Client { comp_id: b"COPY", next: 1 }];
    for (index, client) in clients.iter_mut().enumerate().take(1 + usize::from(drop_copy)) {
        now_ns = bench.now_ns;
        let first = client.log_on(now_ns);
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        assert_eq!(bench.core.admit(&first, address, None), Ok(index));
        bench.core.client_connected(index, bench.now());
        bench.turn(Some((index, &first)));
    }
    let [alpha, _] = &mut clients;
    let (mut name, mut counted, before) = (String::new(), 0, bench.answers);
    for round in 0..400u64 {
        let mut id = |what: &str| {
            name.clear();
            let _infallible = write!(name, "{what}{round:08}");
            name.clone()
        };
        let (buy, sell, far, off, large) = (id("BUY"), id("SELL"), id("FAR"), id("OFF"), id("LARGE"));
        // An order that trades with the next, one that is cancelled, one that a check refuses; a tick's rooms for what comes.
        for message in [
            alpha.order(&buy, 1, 100, bench.now_ns),
            alpha.order(&sell, 2, 100, bench.now_ns),
            alpha.order(&far, 1, 100, bench.now_ns),
            alpha.cancel(&off, &far, 1, bench.now_ns),
            alpha.order(&large, 1, 2_000, bench.now_ns),
        ] {
            bench.turn(Some((0, &message)));
        }
        bench.core.tick(bench.now());
        bench.turn(None);
        // The first rounds make buffers as large as they need to be.
        if round == 20 {
            (bench.taken, counted) = (0, bench.answers);
        }
    }
    let counters = bench.core.status(bench.now()).translated;
    assert_eq!((counters.requests, counters.fills, counters.refused), (400 * 4, 400 * 2, 400));
    assert!(bench.answers - counted >= 379 * 5 && counted > before);
    assert_eq!(bench.taken, 0, "allocations in 379 rounds");
}

#[test]
fn a_gateway_takes_no_memory_for_orders_fills_cancels_and_rejects() {
    a_gateway_takes_no_memory(false);
}

#[test]
fn copies_of_reports_take_no_memory_either() {
    a_gateway_takes_no_memory(true);
}

/// An exchange on a thread of its own, at two ports.
fn venue() -> (tapeworks_venues::orders::OrderVenues, [u16; 2]) {
    let text = "[[orders]]\nname = \"Exchange\"\nreal_time = \"127.0.0.1:0\"\nrecovery = \"127.0.0.1:0\"\npartitions = 1\n\
                throttle_per_second = 0\n[[orders.user]]\nname = \"TW01\"\npassword = \"password\"\n\
                [[orders.symbol]]\nname = \"AAPL\"\nid = 1\n";
    let config = tapeworks_venues::Config::parse("test", text).unwrap();
    let venues = tapeworks_venues::orders::OrderVenues::start(&config, None).unwrap();
    let addresses = &venues.addresses()[0];
    let ports = [addresses.real_time.port(), addresses.recovery.port()];
    (venues, ports)
}

#[test]
fn the_thread_of_a_gateway_takes_no_memory_for_a_message() {
    const PAIRS: u64 = 1_000;
    let folder = tempfile::tempdir().unwrap();
    let (venues, ports) = venue();
    let mut config = config(folder.path(), ports, false);
    // Each request is a trace.
    let sampling = Sampling { every: 1, slower_than: Some(Duration::from_secs(1)) };
    let (traces, mut samples) = Traces::new(sampling, 4_096, true);
    config.host.traces = Some(traces);
    let now_ns =
        || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64;
    let AnyParts::Millennium(parts) = config.parts(now_ns()).unwrap() else { panic!("another venue") };
    let Opened { core, ledger, .. } =
        open::<_, System>(&config.store, config.journal, config.sync, parts, now_ns()).unwrap();
    // A notice is handed on by the gateway's thread, so it sees that thread's count.
    let (seen, counts) = channel();
    let on_notice = Box::new(move |notice: tapeworks_gateway::Notice| {
        if notice.text.contains("halted") || notice.text.contains("resumed") {
            seen.send(allocations()).unwrap();
        }
    });
    let gateway: Gateway = Gateway::start(config.host, core, ledger, on_notice, None).unwrap();
    while !gateway.status().takes_orders {
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut stream = TcpStream::connect(gateway.address()).unwrap();
    stream.set_nodelay(true).unwrap();
    let (mut client, mut input, mut buffer) =
        (Client { comp_id: b"ALPHA", next: 1 }, Vec::new(), vec![0; 4_096]);
    let mut say = |message: &[u8]| {
        stream.write_all(message).unwrap();
        loop {
            if let Framing::Message { length } = next_message(&input, 4_096) {
                let kind = field(&input[..length], 150).map(<[u8]>::to_vec);
                input.drain(..length);
                return kind;
            }
            let read = stream.read(&mut buffer).unwrap();
            assert!(read > 0, "the session ended");
            input.extend_from_slice(&buffer[..read]);
        }
    };
    assert_eq!(say(&client.log_on(now_ns())), None);
    // The count of the gateway's thread, when what was commanded is done.
    let mark = || {
        for is_halted in [true, false] {
            let (done, answer) = channel();
            gateway.command(Command::Halt { client: None, is_halted, cancels: false, done });
            answer.recv().unwrap().unwrap();
        }
        counts.recv().unwrap();
        (counts.recv().unwrap(), Instant::now())
    };
    let mut trade = |pairs: std::ops::Range<u64>| {
        for pair in pairs {
            let (order, cancel) = (format!("ORDER{pair:08}"), format!("CANCEL{pair:08}"));
            assert_eq!(say(&client.order(&order, 1, 100, now_ns())).as_deref(), Some(b"0".as_slice()));
            assert_eq!(say(&client.cancel(&cancel, &order, 1, now_ns())).as_deref(), Some(b"4".as_slice()));
        }
    };
    trade(0..200);
    let (before, began) = mark();
    trade(200..200 + PAIRS);
    let (after, ended) = mark();
    // A tick each tenth of a second makes the status, and two commands made their answers.
    let ticks = (ended - began).as_millis() as u64 / 100 + 4;
    let most = 60 * ticks;
    let taken = after - before;
    assert!(taken < most, "{taken} allocations in {ticks} ticks and {} messages", 4 * PAIRS);
    println!("{taken} allocations in {ticks} ticks and {} messages", 4 * PAIRS);
    gateway.stop().unwrap();
    drop(venues);
    let (mut requests, mut commands) = (0, 0);
    samples.take(usize::MAX, |sample| match sample.name {
        "order" | "cancel" => {
            assert!(sample.failed.is_none() && sample.parts().len() == 9, "{sample:?}");
            requests += 1;
        }
        "halt" | "resume" => commands += 1,
        _ => {}
    });
    assert_eq!((requests, commands), (2 * (200 + PAIRS), 4));
    assert_eq!((samples.counts().dropped(), samples.counts().unfollowed()), (0, 0));
}
