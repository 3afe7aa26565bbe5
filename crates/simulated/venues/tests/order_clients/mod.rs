//! Clients of a live exchange over real sockets: a native user with both channels, and an OUCH user.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tapeworks_order_session::native::{Channel, Client, ClientSettings, Event};
use tapeworks_order_session::soupbintcp::{SoupEvent, SoupInitiator, SoupInitiatorSettings, SoupPlace};
use tapeworks_session::Credentials;
use tapeworks_wire::millennium::native::{ExecutionReportFields, Message};
use tapeworks_wire::millennium::variant::LSE;

/// The time of day in nanoseconds.
pub(crate) fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64
}

/// Waits until `is_so`, and fails after a minute.
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn connect(address: SocketAddr) -> Option<TcpStream> {
    let stream = TcpStream::connect(address).ok()?;
    stream.set_nonblocking(true).unwrap();
    stream.set_nodelay(true).unwrap();
    Some(stream)
}

/// The bytes that are there; `None`: the connection is gone.
fn read(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut buffer = vec![0; 64 << 10];
    match stream.read(&mut buffer) {
        Ok(0) => None,
        Ok(length) => {
            buffer.truncate(length);
            Some(buffer)
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => Some(Vec::new()),
        Err(_) => None,
    }
}

/// Writes what there is room for; `None`: the connection is gone.
fn write(stream: &mut TcpStream, bytes: &[u8]) -> Option<usize> {
    match stream.write(bytes) {
        Ok(length) => Some(length),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Some(0),
        Err(_) => None,
    }
}

/// A native user.
pub(crate) struct Native {
    pub(crate) client: Client,
    addresses: [SocketAddr; 2],
    streams: [Option<TcpStream>; 2],
    /// Every report, once and in order per App ID.
    pub(crate) reports: Vec<Vec<u8>>,
    pub(crate) session: Vec<String>,
}

const fn index(channel: Channel) -> usize {
    match channel {
        Channel::RealTime => 0,
        Channel::Recovery => 1,
    }
}

fn note(reports: &mut Vec<Vec<u8>>, session: &mut Vec<String>, event: Event<'_>) {
    match event {
        Event::Report { message, .. } => reports.push(message.to_vec()),
        other => session.push(format!("{other:?}")),
    }
}

impl Native {
    pub(crate) fn new(user: &str, partitions: u8, addresses: [SocketAddr; 2]) -> Self {
        let mut variant = LSE;
        variant.partitions = partitions;
        variant.throttle_per_second = 0;
        let settings = ClientSettings {
            variant,
            user: user.to_owned(),
            password: "password".to_owned(),
            first_reconnect_ns: 1_000_000,
            longest_reconnect_ns: 20_000_000,
            ..ClientSettings::default()
        };
        let client = Client::new(settings).unwrap();
        Self { client, addresses, streams: [None, None], reports: Vec::new(), session: Vec::new() }
    }

    /// The exchange listens elsewhere.
    pub(crate) const fn go_to(&mut self, addresses: [SocketAddr; 2]) {
        self.addresses = addresses;
    }

    /// Opens what is wanted, moves bytes, lets the time pass.
    pub(crate) fn turn(&mut self) {
        let Self { client, addresses, streams, reports, session } = self;
        let now_ns = now_ns();
        let mut note = |event: Event<'_>| note(reports, session, event);
        client.tick(now_ns, &mut note);
        for channel in Channel::ALL {
            let place = index(channel);
            if client.wants(channel, now_ns) {
                streams[place] = connect(addresses[place]);
                match streams[place] {
                    Some(_) => client.connected(channel, now_ns),
                    None => client.refused(channel, now_ns),
                }
            }
            let Some(stream) = &mut streams[place] else { continue };
            let is_there = match write(stream, client.output(channel)) {
                Some(sent) => {
                    client.sent(channel, sent, now_ns, &mut note);
                    read(stream).map(|bytes| client.receive(channel, &bytes, now_ns, &mut note)).is_some()
                }
                None => false,
            };
            if !is_there || client.over(channel).is_some() {
                streams[place] = None;
                client.closed(channel, now_ns, &mut note);
            }
        }
    }

    pub(crate) fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        wait_until(what, || {
            self.turn();
            is_so(self)
        });
    }

    /// Logs on, and waits until nothing is left to recover from before.
    pub(crate) fn log_on(&mut self) {
        self.until("the user logs on", |native| native.client.is_caught_up());
    }

    /// Sends a message, and waits for so many more execution reports.
    pub(crate) fn send(&mut self, message: &[u8], reports: usize) -> Vec<ExecutionReportFields> {
        let before = self.executions().len();
        self.client.send(message, now_ns()).unwrap();
        self.until("reports", |native| native.executions().len() >= before + reports);
        self.executions()[before..].to_vec()
    }

    /// The connections break.
    pub(crate) fn cut(&mut self) {
        let Self { client, streams, reports, session, .. } = self;
        for channel in Channel::ALL {
            if streams[index(channel)].take().is_some() {
                client.closed(channel, now_ns(), |event| note(reports, session, event));
            }
        }
    }

    /// The execution reports.
    pub(crate) fn executions(&self) -> Vec<ExecutionReportFields> {
        let decoded = self.reports.iter().filter_map(|report| match Message::decode(report).unwrap() {
            Message::ExecutionReport(report) => Some(report.to_fields()),
            _ => None,
        });
        decoded.collect()
    }
}

/// An OUCH user.
pub(crate) struct Ouch {
    pub(crate) client: SoupInitiator,
    address: SocketAddr,
    stream: Option<TcpStream>,
    pub(crate) messages: Vec<Vec<u8>>,
}

impl Ouch {
    pub(crate) fn new(user: &str, address: SocketAddr) -> Self {
        let credentials = Credentials { user: user.to_owned(), password: "password".to_owned() };
        let settings = SoupInitiatorSettings {
            first_reconnect_ns: 1_000_000,
            longest_reconnect_ns: 20_000_000,
            ..SoupInitiatorSettings::new(credentials)
        };
        let client = SoupInitiator::new(settings, SoupPlace::default()).unwrap();
        Self { client, address, stream: None, messages: Vec::new() }
    }

    pub(crate) const fn go_to(&mut self, address: SocketAddr) {
        self.address = address;
    }

    pub(crate) fn turn(&mut self) {
        let Self { client, address, stream, messages } = self;
        let now_ns = now_ns();
        let mut note = |event: SoupEvent<'_>| {
            if let SoupEvent::Message { message, .. } = event {
                messages.push(message.to_vec());
            }
        };
        client.tick(now_ns, &mut note);
        if client.wants(now_ns) {
            *stream = connect(*address);
            match stream {
                Some(_) => client.connected(now_ns),
                None => client.refused(now_ns),
            }
        }
        let Some(open) = stream else { return };
        let is_there = match write(open, client.output()) {
            Some(sent) => {
                client.sent(sent, now_ns, &mut note);
                read(open).map(|bytes| client.receive(&bytes, now_ns, &mut note)).is_some()
            }
            None => false,
        };
        if !is_there || client.over().is_some() {
            *stream = None;
            client.closed(now_ns, &mut note);
        }
    }

    pub(crate) fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        wait_until(what, || {
            self.turn();
            is_so(self)
        });
    }

    /// Sends a message, and waits for so many more.
    pub(crate) fn send(&mut self, message: &[u8], more: usize) -> Vec<Vec<u8>> {
        let before = self.messages.len();
        self.client.send(message, now_ns()).unwrap();
        self.until("messages", |ouch| ouch.messages.len() >= before + more);
        self.messages[before..].to_vec()
    }

    pub(crate) fn cut(&mut self) {
        if self.stream.take().is_some() {
            self.client.closed(now_ns(), |_| {});
        }
    }
}
