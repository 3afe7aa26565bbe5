//! Clients that mean harm, or are broken, at a gateway with real sockets: it ends their connections with a reason, keeps bounded memory,
//! and goes on for the others. `TAPEWORKS_SEED` gives the seed of what is random; it is printed.

#![allow(clippy::expect_used, clippy::unwrap_used, missing_docs)]

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};
use tapeworks_disk::System;
use tapeworks_fix_wire::{Framing, Writer, field, message_type, next_message, read_unsigned};
use tapeworks_gateway::config::{AnyParts, Config};
use tapeworks_gateway::status::Status;
use tapeworks_gateway::{Gateway, Notice, Opened, open};
use tapeworks_random::Random;
use tapeworks_runtime::world::World as _;
use tapeworks_venues::orders::OrderVenues;

/// How long something that must happen may take.
const PATIENCE: Duration = Duration::from_secs(60);

fn random() -> Random {
    let given = std::env::var("TAPEWORKS_SEED").ok().and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(|| u64::from(std::process::id()));
    println!("TAPEWORKS_SEED={seed}");
    Random::new(seed)
}

fn exchange() -> OrderVenues {
    let text = "[[orders]]\nname = \"Exchange\"\nreal_time = \"127.0.0.1:0\"\nrecovery = \"127.0.0.1:0\"\npartitions = 1\n\
                throttle_per_second = 0\n[[orders.user]]\nname = \"TW01\"\npassword = \"password\"\n\
                [[orders.symbol]]\nname = \"AAPL\"\nid = 1\n";
    OrderVenues::start(&tapeworks_venues::Config::parse("test", text).unwrap(), None).unwrap()
}

/// A gateway that runs, its exchange and its folder, and what it says.
struct Running {
    gateway: Gateway,
    _exchange: OrderVenues,
    _folder: tempfile::TempDir,
    notices: Receiver<Notice>,
}

/// A gateway with more settings: of the whole, and of each client.
fn gateway(settings: &str, of_clients: &str) -> Running {
    let (folder, exchange) = (tempfile::tempdir().unwrap(), exchange());
    let venue = &exchange.addresses()[0];
    let text = format!(
        "listen = \"127.0.0.1:0\"\n{settings}\n[store]\nfolder = \"{}\"\n\
         [venue]\nprotocol = \"millennium\"\nreal_time = \"{}\"\nrecovery = \"{}\"\nuser = \"TW01\"\npassword = \"password\"\n\
         partitions = 1\nthrottle_per_second = 0\n[[instrument]]\nsymbol = \"AAPL\"\nid = 1\n\
         [client_defaults]\n{of_clients}\n[[client]]\nname = \"good\"\ncomp_id = \"GOOD\"\n[[client]]\nname = \"bad\"\ncomp_id = \"BAD\"\n",
        folder.path().join("store").display(),
        venue.real_time,
        venue.recovery,
    );
    let config = Config::parse("test", &text, folder.path()).unwrap();
    let now_ns = System::time_of_day().0;
    let AnyParts::Millennium(parts) = config.parts(now_ns).unwrap() else { panic!("another venue") };
    let Opened { core, ledger, .. } =
        open::<_, System>(&config.store, config.journal, config.sync, parts, now_ns).unwrap();
    let (say, notices) = channel();
    let on_notice = Box::new(move |notice| _ = say.send(notice));
    let gateway = Gateway::start(config.host, core, ledger, on_notice, None).unwrap();
    let running = Running { gateway, _exchange: exchange, _folder: folder, notices };
    running.until(|status| status.takes_orders);
    running
}

impl Running {
    fn address(&self) -> SocketAddr {
        self.gateway.address()
    }

    /// Waits for a status.
    #[track_caller]
    fn until(&self, is_it: impl Fn(&Status) -> bool) -> Status {
        let began = Instant::now();
        loop {
            let status = self.gateway.status();
            if is_it(&status) {
                return status;
            }
            assert!(began.elapsed() < PATIENCE, "it does not come: {status:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits for a line of the log.
    #[track_caller]
    fn says(&self, text: &str) {
        let began = Instant::now();
        let mut said = Vec::new();
        while began.elapsed() < PATIENCE {
            let Ok(notice) = self.notices.recv_timeout(Duration::from_millis(100)) else { continue };
            if notice.text.contains(text) {
                return;
            }
            said.push(notice.text);
        }
        panic!("it does not say '{text}' but {said:?}");
    }
}

struct Client {
    stream: TcpStream,
    comp_id: &'static str,
    next: u64,
    input: Vec<u8>,
}

impl Client {
    fn new(stream: TcpStream, comp_id: &'static str) -> Self {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { stream, comp_id, next: 1, input: Vec::new() }
    }

    fn message(&mut self, kind: &[u8], body: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
        let mut buffer = [0; 4_096];
        let mut writer = Writer::begin(&mut buffer, b"FIX.4.4", kind);
        writer.number(34, self.next).text(49, self.comp_id.as_bytes());
        writer.timestamp(52, System::time_of_day().0).text(56, b"TAPEWORKS");
        self.next += 1;
        body(&mut writer);
        writer.finish().unwrap().to_vec()
    }

    fn log_on(&mut self, heartbeat_s: u64, resets: bool) {
        let logon = self.message(b"A", |writer| {
            writer.number(98, 0).number(108, heartbeat_s);
            if resets {
                writer.flag(141, true);
            }
        });
        self.stream.write_all(&logon).unwrap();
        let answer = self.receive().unwrap();
        assert_eq!(message_type(&answer), b"A", "{}", String::from_utf8_lossy(&answer));
    }

    fn order(&mut self, id: u64) -> Vec<u8> {
        let now_ns = System::time_of_day().0;
        self.message(b"D", |writer| {
            writer
                .text(11, format!("O{id}").as_bytes())
                .text(55, b"AAPL")
                .number(54, 1)
                .timestamp(60, now_ns);
            writer.number(38, 100).number(40, 2).text(44, b"100").number(59, 3);
        })
    }

    /// The next message; `None`: the connection has ended.
    fn receive(&mut self) -> Option<Vec<u8>> {
        let mut buffer = [0; 4_096];
        loop {
            if let Framing::Message { length } = next_message(&self.input, 64 << 10) {
                return Some(self.input.drain(..length).collect());
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => return None,
                Ok(read) => self.input.extend_from_slice(&buffer[..read]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Sends an order, and waits for its acceptance and its end.
    fn trade(&mut self, id: u64) {
        let order = self.order(id);
        self.stream.write_all(&order).unwrap();
        for kind in [b"0", b"C"] {
            let report = self.receive().expect("the session goes on");
            assert_eq!(field(&report, 150), Some(kind.as_slice()), "{}", String::from_utf8_lossy(&report));
        }
    }
}

fn connect(running: &Running, comp_id: &'static str) -> Client {
    Client::new(TcpStream::connect(running.address()).unwrap(), comp_id)
}

#[test]
fn thousands_of_connections_that_say_nothing_or_garbage_keep_no_client_away() {
    let mut random = random();
    let running = gateway("most_connections = 64\nfirst_message = \"5s\"", "");
    let mut good = connect(&running, "GOOD");
    good.log_on(30, true);
    let mut strangers = Vec::new();
    for number in 0..1_000u64 {
        let mut stream = TcpStream::connect(running.address()).unwrap();
        let length = random.below(2_000) as usize;
        let bytes: Vec<u8> = match number % 4 {
            0 => Vec::new(),
            1 => (0..length).map(|_| random.bits() as u8).collect(),
            2 => b"8=FIX.4.4\x019=200\x0135=A\x0134=1\x0149=".to_vec(),
            _ => {
                let mut nobody = Client::new(stream.try_clone().unwrap(), "NOBODY");
                nobody.message(b"A", |writer| _ = writer.number(98, 0).number(108, 30))
            }
        };
        // The gateway may have closed it meanwhile.
        let _sent = stream.write_all(&bytes);
        strangers.push(stream);
        if number % 100 == 0 {
            good.trade(number);
        }
    }
    let status = running.until(|status| status.refused_connections >= 900);
    assert!(status.clients[0].is_logged_on);
    // Though every place is taken by somebody who says nothing.
    let mut other = connect(&running, "BAD");
    other.log_on(30, true);
    other.trade(1);
    good.trade(9_999);
}

#[test]
fn a_connection_without_a_whole_first_message_is_closed_in_time() {
    let running = gateway("first_message = \"300ms\"", "");
    let mut silent = TcpStream::connect(running.address()).unwrap();
    let mut slow = connect(&running, "GOOD");
    let logon = slow.message(b"A", |writer| _ = writer.number(98, 0).number(108, 30));
    // A byte at a time: the time of the first message does not begin anew with each.
    let began = Instant::now();
    for byte in logon.iter().cycle() {
        if slow.stream.write_all(std::slice::from_ref(byte)).is_err() || began.elapsed() > PATIENCE {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
        if slow.input.len() + 1 == logon.len() {
            break;
        }
    }
    assert!(began.elapsed() < PATIENCE, "a slow logon is not ended");
    silent.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(silent.read(&mut [0; 16]).unwrap_or(0), 0, "a silent connection is closed");
    assert!(
        running.until(|status| status.refused_connections >= 2).clients.iter().all(|one| !one.is_connected)
    );
}

#[test]
fn a_message_without_an_end_is_skipped_and_its_client_counts_as_silent() {
    let running = gateway("", "message_limit_bytes = 4_096");
    let (mut good, mut bad) = (connect(&running, "GOOD"), connect(&running, "BAD"));
    good.log_on(30, true);
    bad.log_on(1, true);
    // Before a logon, too: nobody knows whose it is.
    let mut stranger = connect(&running, "GOOD");
    for client in [&mut bad, &mut stranger] {
        let began = Instant::now();
        client.stream.write_all(b"8=FIX.4.4\x019=99999999\x0135=D\x0158=").unwrap();
        while client.stream.write(&[b'x'; 4_096]).is_ok() {
            assert!(began.elapsed() < PATIENCE, "it is not ended");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let status = running.until(|status| !status.clients[1].is_connected);
    assert!(status.clients[1].garbled > 0 && status.clients[1].received == 1, "{status:?}");
    running.says("the session of bad ended: the peer was silent for too long");
    good.trade(1);
    bad = connect(&running, "BAD");
    bad.log_on(30, true);
    bad.trade(2);
}

#[test]
fn a_client_that_does_not_read_is_ended_with_a_reason_and_gets_everything_when_it_is_back() {
    const ORDERS: u64 = 30;
    let running = gateway("", "output_bytes = 16_384");
    let mut good = connect(&running, "GOOD");
    good.log_on(30, true);
    // The window of the connection is small from the first packet on.
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    socket.connect(&running.address().into()).unwrap();
    let mut slow = Client::new(socket.into(), "BAD");
    slow.log_on(30, true);
    slow.stream.set_write_timeout(Some(Duration::from_secs(5))).unwrap();
    for number in 0..ORDERS {
        let order = slow.order(number);
        slow.stream.write_all(&order).unwrap();
    }
    // Each is answered by a Heartbeat as long as itself.
    let text = [b'x'; 3_000];
    let mut sent = 0;
    while running.gateway.status().counters.slow_clients == 0 {
        assert!(sent < 40_000, "what waits for a client that does not read has no bound");
        for _ in 0..100 {
            let request = slow.message(b"1", |writer| _ = writer.text(112, &text));
            if slow.stream.write_all(&request).is_err() {
                break;
            }
            sent += 1;
        }
    }
    running.says("reads too slowly");
    let status = running.until(|status| !status.clients[1].is_connected);
    good.trade(1);
    // Its reports have numbers, and it requests them.
    let mut back = connect(&running, "BAD");
    back.next = status.clients[1].next_incoming;
    back.log_on(30, false);
    let request = back.message(b"2", |writer| _ = writer.number(7, 1).number(16, 0));
    back.stream.write_all(&request).unwrap();
    let last = running.until(|status| status.clients[1].is_logged_on).clients[1].next_outgoing - 1;
    let (mut expected, mut accepted) = (1, 0);
    while expected <= last {
        let message = back.receive().expect("the session goes on");
        let number = read_unsigned(field(&message, 34).unwrap()).unwrap();
        if field(&message, 43) != Some(b"Y".as_slice()) {
            continue;
        }
        assert_eq!(number, expected, "in order");
        expected = match field(&message, 36) {
            Some(next) => read_unsigned(next).unwrap(),
            None => number + 1,
        };
        accepted += u64::from(field(&message, 150) == Some(b"0".as_slice()));
    }
    assert_eq!(accepted, ORDERS);
}

#[test]
fn a_client_that_has_vanished_is_noticed_by_its_silence() {
    let running = gateway("", "");
    let mut half_open = connect(&running, "BAD");
    // No end of the connection comes: the other machine is gone.
    half_open.log_on(1, true);
    let second = connect(&running, "BAD").message(b"A", |writer| _ = writer.number(98, 0).number(108, 30));
    let mut refused = TcpStream::connect(running.address()).unwrap();
    refused.write_all(&second).unwrap();
    refused.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(refused.read(&mut [0; 16]).unwrap_or(0), 0, "one connection of a client at a time");
    running.until(|status| !status.clients[1].is_connected);
    running.says("the session of bad ended");
    let mut back = connect(&running, "BAD");
    back.log_on(30, true);
    back.trade(1);
}
