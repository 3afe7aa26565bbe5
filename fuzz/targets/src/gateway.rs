//! An order gateway without sockets: any bytes of its clients and of its venue, cut anywhere, with breaks, crashes and restarts between.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use tapeworks_fix_wire::order_entry::SCHEMA;
use tapeworks_fix_wire::{Framing, Writer, next_message};
use tapeworks_gateway::{
    ClientSettings, Core, Ledger, Now, Opened, OuchSession, Parts, SyncPolicy, VenueSession, open,
};
use tapeworks_journal::JournalOptions;
use tapeworks_matching::orders::{
    Connection, Gate, Instrument as Traded, OrderExchange, OrderOptions, OuchUser,
};
use tapeworks_order_session::fix::{Dictionary, Role, Settings};
use tapeworks_order_session::native::{
    Channel, Client as NativeClient, ClientSettings as NativeSettings, ServerSettings, User,
};
use tapeworks_order_session::soupbintcp::SoupInitiatorSettings;
use tapeworks_runtime::world::System;
use tapeworks_session::Credentials;
use tapeworks_translate::{
    Instrument, Millennium, MillenniumSettings, Naming, Ouch, OuchSettings, Reference, RiskLimits,
    Settings as Capacity,
};
use tapeworks_wire::Ascii;
use tapeworks_wire::millennium::native::Message;
use tapeworks_wire::millennium::stream::Messages;
use tapeworks_wire::millennium::variant::{LSE, Variant};

use crate::take::Take;

const SECOND_NS: u64 = 1_000_000_000;
const START_NS: u64 = 1_709_197_200 * SECOND_NS;
const VARIANT: Variant = Variant { partitions: 1, throttle_per_second: 0, ..LSE };
const CLIENTS: usize = 2;

/// The most that an order may have, by the checks of every client.
const MOST_QUANTITY: u32 = 1_000;

/// The only instrument at the venue.
const VENUE_ID: i32 = 7;

static DICTIONARY: LazyLock<Arc<Dictionary>> = LazyLock::new(|| Arc::new(Dictionary::from_schema(&SCHEMA)));

fn parts<S: VenueSession>(venue: S, table: S::Table) -> Parts<S> {
    let client = |index: usize| {
        let mut session = Settings::new(Role::Acceptor, "FIX.4.4", "TW", &format!("C{index}"));
        session.message_limit_bytes = 2_048;
        session.tolerance_ns = None;
        let mut client = ClientSettings::new(&format!("C{index}"), session, Arc::clone(&DICTIONARY));
        client.translate.limits = RiskLimits {
            most_quantity: MOST_QUANTITY,
            most_open_orders: 16,
            may_sell_short: true,
            ..RiskLimits::default()
        };
        client.cancels_on_disconnect = index == 1;
        client.output_bytes = 1 << 16;
        client
    };
    let instrument = Instrument {
        symbol: Ascii::new("AAPL").expect("a symbol"),
        security_id: Ascii::default(),
        venue_id: VENUE_ID,
        tick_e8: 1_000_000,
        has_negative_prices: false,
        partition: 1,
        segment: Ascii::default(),
    };
    Parts {
        clients: (0..CLIENTS).map(client).collect(),
        reference: Reference::new(&[instrument], &[]).expect("an instrument"),
        capacity: Capacity { most_orders: 64, most_requests: 256, most_fills: 64, ..Capacity::default() },
        table,
        venue,
    }
}

fn native() -> Parts<NativeClient> {
    let settings = NativeSettings {
        variant: VARIANT,
        user: "U".to_owned(),
        password: "P".to_owned(),
        ..NativeSettings::default()
    };
    let table =
        MillenniumSettings { variant: VARIANT, naming: Naming::Numbered, ..MillenniumSettings::default() };
    parts(NativeClient::new(settings).expect("names that fit"), Millennium::new(table))
}

fn ouch() -> Parts<OuchSession> {
    let credentials = Credentials { user: "U".to_owned(), password: "P".to_owned() };
    let session = OuchSession::new(SoupInitiatorSettings::new(credentials)).expect("names that fit");
    parts(session, Ouch::new(OuchSettings { midnight_ns: START_NS, ..OuchSettings::default() }))
}

fn exchange() -> OrderExchange {
    let options = OrderOptions {
        instruments: vec![Traded {
            id: VENUE_ID,
            symbol: Ascii(*b"AAPL    "),
            partition: 1,
            tick_e8: 1_000_000,
            lowest_price_e8: 1,
            highest_price_e8: i64::MAX,
            most_quantity: 1_000_000,
        }],
        native_users: vec![User::new("U", "P", &VARIANT)],
        native: ServerSettings { variant: VARIANT, ..ServerSettings::default() },
        ouch_users: vec![OuchUser {
            credentials: Credentials { user: "U".to_owned(), password: "P".to_owned() },
            cancels_on_disconnect: false,
        }],
        ouch_store_bytes: 1 << 16,
        most_orders: 64,
        ..OrderOptions::default()
    };
    OrderExchange::new(&options, START_NS).expect("sound options")
}

/// A folder in memory where the system offers one.
fn folder() -> PathBuf {
    let memory = Path::new("/dev/shm");
    let scratch = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let thread = format!("{:?}", std::thread::current().id());
    let number: String = thread.chars().filter(char::is_ascii_digit).collect();
    scratch.join(format!("tapeworks-fuzz-gateway-{}-{number}", std::process::id()))
}

/// A FIX client that sends anything, and checks what comes.
#[derive(Default)]
struct Client {
    is_connected: bool,
    next: u64,
    /// Bytes of the gateway that are not whole messages.
    received: Vec<u8>,
}

impl Client {
    /// The gateway sends whole messages, whatever it got.
    fn receive(&mut self, bytes: &[u8]) {
        self.received.extend_from_slice(bytes);
        loop {
            match next_message(&self.received, 1 << 16) {
                Framing::Message { length } => drop(self.received.drain(..length)),
                Framing::Incomplete | Framing::WrongLength => return,
                Framing::Garbled { .. } => panic!("{}", String::from_utf8_lossy(&self.received)),
            }
        }
    }
}

struct Run<S: VenueSession> {
    folder: PathBuf,
    make: fn() -> Parts<S>,
    core: Core<S, System>,
    ledger: Ledger<System>,
    clients: [Client; CLIENTS],
    exchange: OrderExchange,
    gates: &'static [Gate],
    lines: Vec<Option<Connection>>,
    /// Bytes to the venue that are not whole messages.
    sent: Vec<u8>,
    now_ns: u64,
}

fn opened<S: VenueSession>(folder: &Path, parts: Parts<S>, now_ns: u64) -> (Core<S, System>, Ledger<System>) {
    let options = JournalOptions { segment_bytes: 1 << 16, keep_bytes: None };
    let Opened { core, ledger, .. } =
        open(folder, options, SyncPolicy::Never, parts, now_ns).expect("its own store");
    (core, ledger)
}

impl<S: VenueSession> Run<S> {
    fn new(make: fn() -> Parts<S>, gates: &'static [Gate]) -> Self {
        let folder = folder();
        let _not_there = std::fs::remove_dir_all(&folder);
        let (core, ledger) = opened(&folder, make(), START_NS);
        let lines = gates.iter().map(|_| None).collect();
        let clients = Default::default();
        let (exchange, now_ns) = (exchange(), START_NS);
        Self { folder, make, core, ledger, clients, exchange, gates, lines, sent: Vec::new(), now_ns }
    }

    const fn now(&self) -> Now {
        Now { utc_ns: self.now_ns, steady_ns: self.now_ns }
    }

    fn commit(&mut self) {
        self.core.commit(&mut self.ledger, self.now_ns).expect("a disk with room");
    }

    fn open_orders(&self) -> u64 {
        self.core.status(self.now()).open_orders
    }

    /// Bytes of a client.
    fn say(&mut self, index: usize, bytes: &[u8]) {
        let now = self.now();
        if !self.clients[index].is_connected {
            let Framing::Message { length } = next_message(bytes, 2_048) else { return };
            let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
            // The connection of one client may log on as the other.
            if self.core.admit(&bytes[..length], address, None) != Ok(index) {
                return;
            }
            self.core.client_connected(index, now);
            self.clients[index] =
                Client { is_connected: true, next: self.clients[index].next, ..Client::default() };
        }
        self.core.client_bytes(index, bytes, now);
    }

    /// Up to so many bytes of each output go out, those of the venue come back.
    fn carry(&mut self, most: usize) {
        self.commit();
        let now = self.now();
        for index in 0..CLIENTS {
            let output = self.core.client_output(index);
            let output = output[..output.len().min(most)].to_vec();
            self.core.client_sent(index, output.len());
            self.clients[index].receive(&output);
        }
        for channel in 0..self.gates.len() {
            if self.lines[channel].is_none() && self.core.venue().wants(channel, self.now_ns) {
                self.lines[channel] = self.exchange.open(self.gates[channel], self.now_ns);
                self.core.venue_connected(channel, now);
            }
            let Some(line) = self.lines[channel] else { continue };
            let output = self.core.venue().output(channel);
            let output = output[..output.len().min(most)].to_vec();
            self.core.venue_sent(channel, output.len(), now);
            if channel == 0 {
                self.check(&output);
            }
            self.exchange.receive(line, &output, self.now_ns);
            let answer = self.exchange.output(line);
            let answer = answer[..answer.len().min(most)].to_vec();
            self.exchange.sent(line, answer.len(), self.now_ns);
            self.core.venue_bytes(channel, &answer, now);
        }
        self.close();
    }

    /// No order goes out that a check must have refused.
    fn check(&mut self, bytes: &[u8]) {
        self.sent.extend_from_slice(bytes);
        if self.gates.len() < 2 {
            return;
        }
        let mut messages = Messages::new(&self.sent);
        for message in messages.by_ref() {
            let Ok(message) = message else { break };
            let (quantity, id) = match Message::decode(message).expect("a message of the protocol") {
                Message::NewOrder(order) => (order.order_qty(), order.instrument_id()),
                Message::OrderCancelReplaceRequest(order) => (order.order_qty(), order.instrument_id()),
                _ => continue,
            };
            assert!((1..=MOST_QUANTITY as i32).contains(&quantity) && id == VENUE_ID, "{quantity} of {id}");
        }
        let walked = messages.offset();
        self.sent.drain(..walked);
    }

    /// Closes what is over.
    fn close(&mut self) {
        let now = self.now();
        for index in 0..CLIENTS {
            if self.clients[index].is_connected && self.core.client_over(index).is_some() {
                self.clients[index].is_connected = false;
                self.core.client_gone(index, now);
            }
        }
        for channel in 0..self.gates.len() {
            let Some(line) = self.lines[channel] else { continue };
            if self.core.venue().is_over(channel) || self.exchange.over(line) {
                self.cut(channel);
            }
        }
    }

    fn cut(&mut self, channel: usize) {
        if let Some(line) = self.lines[channel].take() {
            self.exchange.closed(line, self.now_ns);
            self.core.venue_closed(channel, self.now());
            if channel == 0 {
                self.sent.clear();
            }
        }
    }

    /// The process dies, and another goes on: with the same orders.
    fn restart(self) -> Self {
        let mut this = self;
        this.commit();
        let before = this.open_orders();
        let Self { folder, make, core, ledger, mut clients, mut exchange, gates, lines, now_ns, .. } = this;
        drop((core, ledger));
        for line in lines.iter().flatten() {
            exchange.closed(*line, now_ns);
        }
        for client in &mut clients {
            client.is_connected = false;
        }
        let (core, ledger) = opened(&folder, make(), now_ns);
        let lines = gates.iter().map(|_| None).collect();
        let this =
            Self { folder, make, core, ledger, clients, exchange, gates, lines, sent: Vec::new(), now_ns };
        assert_eq!(this.open_orders(), before, "orders after a restart");
        this
    }

    fn message(&mut self, index: usize, take: &mut Take<'_>) -> Vec<u8> {
        let choice = take.u8();
        let client = &mut self.clients[index];
        let next = if choice & 0x80 == 0 { client.next + 1 } else { u64::from(take.u8()) };
        client.next = next;
        let name = format!("C{index}");
        let kind: &[u8] = match choice & 0x0f {
            0..=3 => b"D",
            4 | 5 => b"F",
            6 | 7 => b"G",
            8 => b"q",
            9 => b"H",
            10 => b"2",
            11 => b"4",
            12 => b"0",
            13 => b"5",
            14 => b"1",
            _ => b"A",
        };
        let (one, two, three) = (u64::from(take.u8()), u64::from(take.u8()), u64::from(take.u16()));
        let id = |number: u64| format!("{name}-{}", number % 16);
        let now_ns = self.now_ns;
        let mut buffer = [0; 2_048];
        let mut writer = Writer::begin(&mut buffer, b"FIX.4.4", kind);
        writer.number(34, next).text(49, name.as_bytes()).timestamp(52, now_ns).text(56, b"TW");
        let terms = |writer: &mut Writer<'_>| {
            writer.text(55, b"AAPL").number(54, 1 + one % 3).timestamp(60, now_ns).number(38, three);
            writer
                .number(40, 1 + two % 4)
                .decimal::<2>(44, (9_900 + three % 200) as i64)
                .number(59, two / 4 % 8);
        };
        match kind {
            b"D" => {
                writer.text(11, id(one).as_bytes());
                terms(&mut writer);
            }
            b"F" => {
                writer.text(11, id(one).as_bytes()).text(41, id(two).as_bytes()).text(55, b"AAPL");
                writer.number(54, 1).timestamp(60, now_ns);
            }
            b"G" => {
                writer.text(11, id(one).as_bytes()).text(41, id(two).as_bytes());
                terms(&mut writer);
            }
            b"q" => {
                _ = writer.text(11, id(one).as_bytes()).number(530, 1).text(55, b"AAPL").timestamp(60, now_ns)
            }
            b"H" => _ = writer.text(11, id(one).as_bytes()).text(55, b"AAPL").number(54, 1),
            b"2" => _ = writer.number(7, one).number(16, two),
            b"4" => _ = writer.flag(43, true).number(36, one + next).flag(123, two & 1 == 1),
            b"1" => _ = writer.text(112, b"T"),
            b"A" => _ = writer.number(98, 0).number(108, 30).flag(141, one & 1 == 1),
            _ => {}
        }
        writer.finish().map(|message| message.to_vec()).unwrap_or_default()
    }

    fn run(self, mut take: Take<'_>) {
        let mut this = self;
        // Both clients and the venue are there.
        for index in 0..CLIENTS {
            let mut first = Take(&[15, 1, 0, 0, 0]);
            let logon = this.message(index, &mut first);
            this.say(index, &logon);
        }
        for _ in 0..4 {
            this.carry(usize::MAX);
        }
        let mut restarts = 0;
        while !take.is_empty() {
            let act = take.u8();
            let index = usize::from(act & 1);
            let now = this.now();
            match act >> 1 & 15 {
                0..=5 => {
                    let mut message = this.message(index, &mut take);
                    if act & 0x80 != 0 {
                        let (at, length) = (usize::from(take.u8()), usize::from(take.u8() % 8));
                        let at = at.min(message.len());
                        let other = take.bytes(length);
                        message.splice(at..(at + length).min(message.len()), other.iter().copied());
                    }
                    this.say(index, &message);
                }
                6 => {
                    let length = usize::from(take.u8());
                    let bytes = take.bytes(length);
                    this.say(index, bytes);
                }
                7 | 8 => {
                    let most = 1 + usize::from(take.u8());
                    this.carry(most);
                }
                9 | 10 => this.carry(usize::MAX),
                11 => {
                    let (channel, length) =
                        (usize::from(take.u8()) % this.gates.len(), usize::from(take.u8()));
                    if this.lines[channel].is_some() {
                        this.core.venue_bytes(channel, take.bytes(length), now);
                    }
                }
                12 => {
                    this.now_ns += u64::from(take.u8()) * SECOND_NS / 16;
                    let now = this.now();
                    this.core.tick(now);
                    this.exchange.tick(this.now_ns);
                }
                13 => {
                    if std::mem::take(&mut this.clients[index].is_connected) {
                        this.core.client_closed(index, now);
                        this.core.client_gone(index, now);
                    }
                }
                14 => this.cut(usize::from(act >> 5) % this.gates.len()),
                _ if restarts < 4 => {
                    restarts += 1;
                    this = this.restart();
                }
                _ => this.core.set_halted(index == 1, now),
            }
            this.close();
            assert!(this.core.client_output(index).len() < 1 << 20, "what waits is bounded");
        }
        let _gone = std::fs::remove_dir_all(&this.folder);
    }
}

/// A gateway of either venue.
pub fn gateway(bytes: &[u8]) {
    let mut take = Take(bytes);
    if take.u8() & 1 == 0 {
        Run::new(native, &[Gate::Native(Channel::RealTime), Gate::Native(Channel::Recovery)]).run(take);
    } else {
        Run::new(ouch, &[Gate::Ouch { user: 0 }]).run(take);
    }
}

/// Orders that trade, are replaced and cancelled; breaks and restarts; bytes of nobody.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let order = |client: u8, id: u8, side: u8, quantity: u8| {
        vec![client, 0, id + (side - 1) * 16 * 3, 1, quantity, 0]
    };
    let carry = [18, 18, 18];
    let trade = [order(0, 1, 1, 100), order(1, 1, 2, 60), carry.to_vec()].concat();
    // Client 0 replaces and cancels what rests.
    let after = [&[0, 6, 3, 1, 80, 0][..], &carry, &[0, 4, 4, 3, 0, 0], &carry].concat();
    let broken = [14, 28, 24, 32, 18, 18, 18, 18, 30, 18, 18, 18, 18, 0x1a, 0x18].to_vec();
    let noise = [
        vec![22, 0, 5, 2, 9, 9, 9, 9],
        vec![12, 4, b'8', b'=', b'F', b'I'],
        vec![0x80, 0, 1, 1, 1, 0, 20, 3, 1, 1, 1],
    ];
    let mut all = Vec::new();
    for venue in 0..2 {
        all.push([&[venue][..], &trade, &after].concat());
        all.push([&[venue][..], &trade, &broken, &after, &trade].concat());
        all.push([&[venue][..], &order(0, 2, 1, 10), &noise.concat(), &carry, &trade].concat());
    }
    all
}
