//! Clients, a gateway and an exchange in one thread, with crashes of the gateway at any point and breaks of any connection: no
//! order is lost or doubled, each client gets each fill once, and the numbers of both sides agree.

#![allow(clippy::expect_used, clippy::unwrap_used)]

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use tapeworks_disk::System;
use tapeworks_fix_wire::order_entry::SCHEMA;
use tapeworks_fix_wire::{Framing, next_message, read_unsigned};
use tapeworks_gateway::inspect::{inspect, replay};
use tapeworks_gateway::{
    ClientSettings, Core, Ledger, NotAdmitted, Now, Opened, OuchSession, Parts, RestoreError, SyncPolicy,
    VenueSession, open,
};
use tapeworks_journal::JournalOptions;
use tapeworks_matching::orders::{
    Connection, Gate, Instrument as Traded, MarketEvent, OrderExchange, OrderOptions, OuchUser,
};
use tapeworks_order_session::fix::{
    Application, Dictionary, Link, MemoryStore, Received, Role, Schedule, Session, Settings, Store, Verdict,
};
use tapeworks_order_session::native::{
    Channel, Client as NativeClient, ClientSettings as NativeSettings, ServerSettings, User,
};
use tapeworks_order_session::soupbintcp::{SoupInitiator, SoupInitiatorSettings, SoupPlace};
use tapeworks_session::Credentials;
use tapeworks_translate::{
    Instrument, Millennium, MillenniumSettings, Naming, Ouch, OuchSettings, Reference, Settings as Capacity,
};
use tapeworks_wire::millennium::native::ExecType as NativeExecType;
use tapeworks_wire::millennium::variant::{LSE, Variant};
use tapeworks_wire::nasdaq::ouch50::inbound::{self, EnterOrderFields};
use tapeworks_wire::{Ascii, Decimal};

const SECOND_NS: u64 = 1_000_000_000;
/// 2024-02-29, 09:00 UTC.
const START_NS: u64 = 1_709_197_200 * SECOND_NS;
const MIDNIGHT_NS: u64 = START_NS - 4 * 3_600 * SECOND_NS;
const E8: i64 = 100_000_000;
const VARIANT: Variant = Variant { partitions: 2, throttle_per_second: 0, ..LSE };
const CLIENTS: usize = 3;

/// What a client knows of its orders.
#[derive(Default)]
struct Trader {
    /// ExecIDs that it has seen.
    executions: HashSet<Vec<u8>>,
    /// Fills: number of the trade, quantity, price.
    fills: Vec<(u64, u64, Vec<u8>)>,
    /// Each order by the ClOrdID of its last accepted request: OrdStatus, LeavesQty, CumQty.
    orders: BTreeMap<Vec<u8>, (u8, u64, u64)>,
    rejected: u64,
    faults: Vec<String>,
}

impl Trader {
    fn report(&mut self, received: &Received<'_>) {
        let field = |tag| received.field(tag).unwrap_or_default().to_vec();
        let number = |tag| read_unsigned(&field(tag)).unwrap_or(0);
        if !self.executions.insert(field(17)) {
            self.faults.push(format!("ExecID {} came twice", String::from_utf8_lossy(&field(17))));
        }
        if field(150) == b"F" {
            self.fills.push((number(880), number(32), field(31)));
        }
        if field(150) == b"8" {
            self.rejected += 1;
        }
        let (id, original) = (field(11), field(41));
        let before = self.orders.get(&original).or_else(|| self.orders.get(&id)).copied();
        if before.is_some_and(|before| before.2 > number(14)) {
            self.faults.push("CumQty fell".to_owned());
        }
        let status = field(39).first().copied().unwrap_or(0);
        if field(150) == b"5" {
            self.orders.remove(&original);
        }
        let key = if field(150) == b"4" && !original.is_empty() { original } else { id };
        self.orders.insert(key, (status, number(151), number(14)));
    }

    fn open(&self) -> usize {
        self.orders.values().filter(|(_, leaves, _)| *leaves > 0).count()
    }
}

impl Application for Trader {
    fn message(&mut self, received: &Received<'_>, _: &mut Link, _: &mut dyn Store, _: u64) -> Verdict {
        match received.message_type {
            b"8" => self.report(received),
            b"9" | b"j" | b"r" => {}
            other => self.faults.push(format!("a message of type {}", String::from_utf8_lossy(other))),
        }
        Verdict::Taken
    }
}

/// One connection: bytes on their way.
#[derive(Default)]
struct Pipe {
    /// To the gateway.
    inward: Vec<u8>,
    /// From the gateway.
    outward: Vec<u8>,
    /// The gateway's end is closed; the other end reads what is on its way, then the end.
    is_gone: bool,
}

struct Client {
    session: Session,
    store: MemoryStore,
    trader: Trader,
    pipe: Option<Pipe>,
    is_admitted: bool,
    sent: u64,
    ids: Vec<(String, char)>,
    wants_down: u64,
}

struct World<S: VenueSession> {
    folder: tempfile::TempDir,
    make: fn() -> (S, S::Table),
    gateway: Option<(Core<S, System>, Ledger<System>)>,
    clients: Vec<Client>,
    exchange: OrderExchange,
    gates: fn(usize) -> Gate,
    /// By channel: the exchange's end, and the bytes on their way.
    lines: BTreeMap<usize, (Connection, Pipe)>,
    now_ns: u64,
    matches: HashMap<u64, u64>,
    notices: Vec<tapeworks_gateway::Notice>,
}

fn fix_settings(role: Role, index: usize) -> Settings {
    let peer = format!("C{index}");
    let (ours, theirs) = match role {
        Role::Acceptor => ("TAPEWORKS", peer.as_str()),
        Role::Initiator => (peer.as_str(), "TAPEWORKS"),
    };
    Settings { tolerance_ns: None, ..Settings::new(role, "FIXT.1.1", ours, theirs) }
}

fn dictionary() -> Arc<Dictionary> {
    static ONE: std::sync::OnceLock<Arc<Dictionary>> = std::sync::OnceLock::new();
    ONE.get_or_init(|| Arc::new(Dictionary::from_schema(&SCHEMA))).clone()
}

/// The instruments, each with its number at the venue and its partition.
fn instruments(of: [(i32, u8); 2]) -> Reference {
    let instrument = |symbol: &str, (venue_id, partition)| Instrument {
        symbol: Ascii::new(symbol).unwrap(),
        security_id: Ascii::default(),
        venue_id,
        tick_e8: E8 / 100,
        has_negative_prices: false,
        partition,
        segment: Ascii::default(),
    };
    Reference::new(&[instrument("AAPL", of[0]), instrument("MSFT", of[1])], &[]).unwrap()
}

fn reference() -> Reference {
    instruments([(11, 1), (22, 2)])
}

fn exchange() -> OrderExchange {
    let traded = |id: i32, symbol: &str, partition| Traded {
        id,
        symbol: Ascii::new(symbol).unwrap(),
        partition,
        tick_e8: E8 / 100,
        lowest_price_e8: 1,
        highest_price_e8: i64::MAX,
        most_quantity: 1_000_000,
    };
    let credentials = Credentials { user: "CAT".to_owned(), password: "secret".to_owned() };
    let options = OrderOptions {
        instruments: vec![traded(11, "AAPL", 1), traded(22, "MSFT", 2)],
        native_users: vec![User { cancels_on_disconnect: false, ..User::new("ANN", "secret", &VARIANT) }],
        native: ServerSettings { variant: VARIANT, ..ServerSettings::default() },
        ouch_users: vec![OuchUser { credentials, cancels_on_disconnect: false }],
        ouch_store_bytes: 1 << 20,
        midnight_ns: MIDNIGHT_NS,
        most_orders: 4_096,
        publishes_market: true,
        ..OrderOptions::default()
    };
    OrderExchange::new(&options, START_NS).unwrap()
}

fn native() -> (NativeClient, Millennium) {
    let settings = NativeSettings {
        variant: VARIANT,
        user: "ANN".to_owned(),
        password: "secret".to_owned(),
        ..NativeSettings::default()
    };
    let table =
        MillenniumSettings { variant: VARIANT, naming: Naming::Numbered, ..MillenniumSettings::default() };
    (NativeClient::new(settings).unwrap(), Millennium::new(table))
}

fn ouch() -> (OuchSession, Ouch) {
    let credentials = Credentials { user: "CAT".to_owned(), password: "secret".to_owned() };
    let table = Ouch::new(OuchSettings { midnight_ns: MIDNIGHT_NS, ..OuchSettings::default() });
    (OuchSession::new(SoupInitiatorSettings::new(credentials)).unwrap(), table)
}

/// One message a second; the others wait.
fn throttled() -> (NativeClient, Millennium) {
    let settings = NativeSettings {
        variant: Variant { throttle_per_second: 1, ..VARIANT },
        user: "ANN".to_owned(),
        password: "secret".to_owned(),
        ..NativeSettings::default()
    };
    (NativeClient::new(settings).unwrap(), native().1)
}

fn native_gate(channel: usize) -> Gate {
    Gate::Native(Channel::ALL[channel])
}

const fn ouch_gate(_channel: usize) -> Gate {
    Gate::Ouch { user: 0 }
}

/// The point of a turn at which the gateway's process dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Death {
    /// Everything was read, and nothing written.
    BeforeCommit,
    /// The journal has the turn, and nothing was sent.
    AfterCommit,
    /// A part of each output was sent.
    HalfSent,
}

#[derive(Clone, Debug)]
enum Step {
    Order {
        client: usize,
        symbol: usize,
        is_buy: bool,
        quantity: u64,
        price: u64,
        tif: char,
    },
    Cancel {
        client: usize,
        order: usize,
    },
    Replace {
        client: usize,
        order: usize,
        quantity: u64,
        price: u64,
    },
    Turn {
        most: usize,
    },
    Venue,
    Die {
        death: Death,
        most: usize,
    },
    DropClient {
        client: usize,
    },
    /// The kill switch cancels what works of a client.
    CancelAll {
        client: usize,
    },
    LogOut {
        client: usize,
    },
    DropVenue,
    Wait {
        milliseconds: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let client = 0..CLIENTS;
    prop_oneof![
        10 => (client.clone(), 0..2usize, any::<bool>(), 1..9u64, 1..6u64, prop::sample::select(vec!['0', '0', '0', '3', '4']))
            .prop_map(|(client, symbol, is_buy, quantity, price, tif)| Step::Order {
                client, symbol, is_buy, quantity: quantity * 10, price: 100 + price, tif
            }),
        4 => (client.clone(), 0..8usize).prop_map(|(client, order)| Step::Cancel { client, order }),
        3 => (client.clone(), 0..8usize, 1..9u64, 1..6u64).prop_map(|(client, order, quantity, price)| Step::Replace {
            client, order, quantity: quantity * 10, price: 100 + price
        }),
        14 => (1..2_000usize).prop_map(|most| Step::Turn { most }),
        8 => Just(Step::Venue),
        2 => (prop::sample::select(vec![Death::BeforeCommit, Death::AfterCommit, Death::HalfSent]), 1..2_000usize)
            .prop_map(|(death, most)| Step::Die { death, most }),
        1 => client.clone().prop_map(|client| Step::DropClient { client }),
        1 => client.clone().prop_map(|client| Step::CancelAll { client }),
        1 => client.prop_map(|client| Step::LogOut { client }),
        1 => Just(Step::DropVenue),
        3 => (1..3_000u64).prop_map(|milliseconds| Step::Wait { milliseconds }),
    ]
}

impl<S: VenueSession> World<S> {
    fn new(make: fn() -> (S, S::Table), gates: fn(usize) -> Gate) -> Self {
        let client = |index| Client {
            session: Session::new(fix_settings(Role::Initiator, index), dictionary(), START_NS),
            store: MemoryStore::new(64 << 20, START_NS),
            trader: Trader::default(),
            pipe: None,
            is_admitted: false,
            sent: 0,
            ids: Vec::new(),
            wants_down: 0,
        };
        let mut world = Self {
            folder: tempfile::tempdir().unwrap(),
            make,
            gateway: None,
            clients: (0..CLIENTS).map(client).collect(),
            exchange: exchange(),
            gates,
            lines: BTreeMap::new(),
            now_ns: START_NS,
            matches: HashMap::new(),
            notices: Vec::new(),
        };
        world.begin();
        world
    }

    fn now(&self) -> Now {
        Now { utc_ns: self.now_ns, steady_ns: self.now_ns }
    }

    fn begin(&mut self) {
        let (core, ledger) = opened(self.folder.path(), self.make, self.now_ns);
        self.gateway = Some((core, ledger));
    }

    /// The process is gone: what it had sent is on its way, what it had not read is lost.
    fn die(&mut self) {
        self.gateway = None;
        for client in &mut self.clients {
            if let Some(pipe) = &mut client.pipe {
                pipe.inward.clear();
                pipe.is_gone = true;
            }
            client.is_admitted = false;
        }
        for (_, pipe) in self.lines.values_mut() {
            pipe.inward.clear();
            pipe.is_gone = true;
        }
        self.venue();
        for client in 0..CLIENTS {
            self.client(client);
        }
        self.begin();
    }

    // ---- the gateway ----

    /// A turn: reads at most so many bytes of each connection.
    fn turn(&mut self, most: usize, death: Option<Death>) {
        let now = self.now();
        let Some((core, ledger)) = &mut self.gateway else { return };
        for (index, client) in self.clients.iter_mut().enumerate() {
            let Some(pipe) = &mut client.pipe else { continue };
            if pipe.is_gone {
                continue;
            }
            let bytes: Vec<u8> = pipe.inward.drain(..most.min(pipe.inward.len())).collect();
            if !client.is_admitted {
                if bytes.is_empty() {
                    continue;
                }
                let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
                // A cut first message is put back.
                let Framing::Message { length } = next_message(&bytes, 4_096) else {
                    pipe.inward.splice(0..0, bytes);
                    continue;
                };
                if core.admit(&bytes[..length], address, None) != Ok(index) {
                    pipe.is_gone = true;
                    continue;
                }
                core.client_connected(index, now);
                client.is_admitted = true;
            }
            core.client_bytes(index, &bytes, now);
        }
        for channel in 0..S::CHANNELS {
            match self.lines.get_mut(&channel) {
                Some((_, pipe)) if !pipe.is_gone => {
                    let bytes: Vec<u8> = pipe.inward.drain(..most.min(pipe.inward.len())).collect();
                    if !bytes.is_empty() {
                        core.venue_bytes(channel, &bytes, now);
                    }
                }
                Some(_) => {}
                None if core.venue().wants(channel, now.steady_ns) => {
                    let line = self.exchange.open((self.gates)(channel), self.now_ns).unwrap();
                    self.lines.insert(channel, (line, Pipe::default()));
                    core.venue_connected(channel, now);
                }
                None => {}
            }
        }
        core.tick(now);
        if death == Some(Death::BeforeCommit) {
            return self.die();
        }
        core.commit(ledger, self.now_ns).unwrap();
        self.notices.extend(core.take_notices().into_iter().filter(|notice| notice.is_alert));
        if death == Some(Death::AfterCommit) {
            return self.die();
        }
        let part = |length: usize| if death.is_some() { length / 2 } else { length };
        for (index, client) in self.clients.iter_mut().enumerate() {
            let Some(pipe) = &mut client.pipe else { continue };
            if pipe.is_gone || !client.is_admitted {
                continue;
            }
            let output = core.client_output(index);
            let count = part(output.len());
            pipe.outward.extend_from_slice(&output[..count]);
            core.client_sent(index, count);
            if core.client_over(index).is_some() {
                (pipe.is_gone, client.is_admitted) = (true, false);
                core.client_gone(index, now);
            }
        }
        for channel in 0..S::CHANNELS {
            let Some((_, pipe)) = self.lines.get_mut(&channel) else { continue };
            if pipe.is_gone {
                continue;
            }
            let count = part(core.venue().output(channel).len());
            pipe.outward.extend_from_slice(&core.venue().output(channel)[..count]);
            core.venue_sent(channel, count, now);
            if core.venue().is_over(channel) {
                pipe.is_gone = true;
                core.venue_closed(channel, now);
            }
        }
        if death.is_some() {
            self.die();
        }
    }

    // ---- the others ----

    /// The exchange reads and answers, on each connection.
    fn venue(&mut self) {
        let now = self.now();
        for channel in 0..S::CHANNELS {
            let Some((line, pipe)) = self.lines.get_mut(&channel) else { continue };
            let bytes = std::mem::take(&mut pipe.outward);
            self.exchange.receive(*line, &bytes, self.now_ns);
            let output = self.exchange.output(*line).to_vec();
            self.exchange.sent(*line, output.len(), self.now_ns);
            if !pipe.is_gone {
                pipe.inward.extend_from_slice(&output);
            }
            if pipe.is_gone || self.exchange.over(*line) {
                self.exchange.closed(*line, self.now_ns);
                let was_open = !pipe.is_gone;
                let last = std::mem::take(&mut pipe.inward);
                self.lines.remove(&channel);
                if was_open && let Some((core, _)) = &mut self.gateway {
                    core.venue_bytes(channel, &last, now);
                    core.venue_closed(channel, now);
                }
            }
        }
        self.exchange.tick(self.now_ns);
        while let Some(event) = self.exchange.next_market() {
            if let MarketEvent::Trade { match_number, quantity, .. } = event {
                assert!(self.matches.insert(match_number, u64::from(quantity)).is_none());
            }
        }
    }

    /// A client reads, connects again, and sends.
    fn client(&mut self, index: usize) {
        let now_ns = self.now_ns;
        let client = &mut self.clients[index];
        if let Some(pipe) = &mut client.pipe {
            let bytes = std::mem::take(&mut pipe.outward);
            client.session.receive(&bytes, &mut client.store, &mut client.trader, now_ns);
            if pipe.is_gone {
                client.session.closed(&mut client.store, now_ns);
            }
            if client.session.over().is_some() {
                self.drop_client(index);
                return;
            }
        } else if client.wants_down <= now_ns {
            client.session = Session::new(fix_settings(Role::Initiator, index), dictionary(), now_ns);
            client.pipe = Some(Pipe::default());
        }
        client.session.tick(&mut client.store, &mut client.trader, now_ns);
        if let Some(pipe) = &mut client.pipe {
            let output = client.session.output().to_vec();
            client.session.sent(output.len());
            pipe.inward.extend_from_slice(&output);
        }
    }

    /// The client's end is closed; the gateway reads what is on its way.
    fn drop_client(&mut self, index: usize) {
        let now = self.now();
        let client = &mut self.clients[index];
        let Some(pipe) = client.pipe.take() else { return };
        client.session.closed(&mut client.store, self.now_ns);
        client.wants_down = self.now_ns + SECOND_NS / 5;
        if std::mem::take(&mut client.is_admitted)
            && !pipe.is_gone
            && let Some((core, _)) = &mut self.gateway
        {
            core.client_bytes(index, &pipe.inward, now);
            core.client_closed(index, now);
            core.client_gone(index, now);
        }
    }

    fn send(&mut self, index: usize, kind: &str, body: &[(u32, String)]) -> bool {
        let client = &mut self.clients[index];
        let sent =
            client.session.link().send(&mut client.store, self.now_ns, kind.as_bytes(), &[], |writer| {
                for (tag, value) in body {
                    writer.text(*tag, value.as_bytes());
                }
            });
        sent.is_ok()
    }

    fn order(&self, client: usize, order: usize) -> Option<(String, char)> {
        let ids = &self.clients[client].ids;
        ids.len().checked_sub(1 + order).and_then(|place| ids.get(place)).cloned()
    }

    fn step(&mut self, step: &Step) {
        let time = "20240229-09:00:00".to_owned();
        let field = |tag, value: &str| (tag, value.to_owned());
        match *step {
            Step::Order { client, symbol, is_buy, quantity, price, tif } => {
                self.clients[client].sent += 1;
                let id = format!("{client}-{}", self.clients[client].sent);
                let side = if is_buy { '1' } else { '2' };
                let body = [
                    field(11, &id),
                    field(55, ["AAPL", "MSFT"][symbol]),
                    (54, side.to_string()),
                    (60, time),
                    (38, quantity.to_string()),
                    field(40, "2"),
                    (44, price.to_string()),
                    (59, tif.to_string()),
                ];
                if self.send(client, "D", &body) {
                    self.clients[client].ids.push((id, side));
                }
            }
            Step::Cancel { client, order } => {
                let Some((original, side)) = self.order(client, order) else { return };
                self.clients[client].sent += 1;
                let id = format!("{client}-{}", self.clients[client].sent);
                let body = [(11, id), (41, original), (54, side.to_string()), (60, time)];
                self.send(client, "F", &body);
            }
            Step::Replace { client, order, quantity, price } => {
                let Some((original, side)) = self.order(client, order) else { return };
                self.clients[client].sent += 1;
                let id = format!("{client}-{}", self.clients[client].sent);
                let body = [
                    (11, id.clone()),
                    (41, original),
                    (54, side.to_string()),
                    (60, time),
                    (38, quantity.to_string()),
                    field(40, "2"),
                    (44, price.to_string()),
                ];
                if self.send(client, "G", &body) {
                    self.clients[client].ids.push((id, side));
                }
            }
            Step::Turn { most } => {
                for client in 0..CLIENTS {
                    self.client(client);
                }
                self.turn(most, None);
            }
            Step::Venue => self.venue(),
            Step::Die { death, most } => self.turn(most, Some(death)),
            Step::DropClient { client } => self.drop_client(client),
            Step::CancelAll { client } => {
                let now = self.now();
                if let Some((core, _)) = &mut self.gateway {
                    core.cancel_orders(client, now);
                }
            }
            Step::LogOut { client } => {
                let client = &mut self.clients[client];
                client.session.log_out(&mut client.store, "", self.now_ns);
            }
            Step::DropVenue => {
                for (_, pipe) in self.lines.values_mut() {
                    pipe.outward.clear();
                }
                let now = self.now();
                for channel in 0..S::CHANNELS {
                    if let Some((line, pipe)) = self.lines.remove(&channel) {
                        self.exchange.closed(line, self.now_ns);
                        if !pipe.is_gone
                            && let Some((core, _)) = &mut self.gateway
                        {
                            core.venue_closed(channel, now);
                        }
                    }
                }
            }
            Step::Wait { milliseconds } => self.now_ns += milliseconds * 1_000_000,
        }
    }

    /// Lets everything come to rest.
    fn settle(&mut self) {
        for _ in 0..400 {
            for client in 0..CLIENTS {
                self.client(client);
            }
            self.turn(usize::MAX, None);
            self.venue();
            self.now_ns += SECOND_NS / 4;
        }
    }

    fn check(&mut self) {
        let (core, _) = self.gateway.as_ref().unwrap();
        let status = core.status(self.now());
        assert!(status.is_venue_logged_on && status.takes_orders, "{status:?}");
        let mut reported: HashMap<u64, Vec<u64>> = HashMap::new();
        let mut open = 0;
        for (index, client) in self.clients.iter().enumerate() {
            assert!(client.trader.faults.is_empty(), "client {index}: {:?}", client.trader.faults);
            assert!(client.session.is_logged_on(), "client {index} is not back");
            for (number, quantity, _) in &client.trader.fills {
                reported.entry(*number).or_default().push(*quantity);
            }
            open += client.trader.open();
            let of_gateway = &status.clients[index];
            assert_eq!(client.store.next_incoming(), of_gateway.next_outgoing, "client {index}: to it");
            assert_eq!(client.store.next_outgoing(), of_gateway.next_incoming, "client {index}: from it");
            for (id, _) in &client.ids {
                // An order without any report is lost. A replace may be rejected.
                let is_known = client.trader.orders.contains_key(id.as_bytes());
                let is_new = core
                    .orders(true, usize::MAX)
                    .orders
                    .iter()
                    .any(|order| order.id == *id && order.pending > 0);
                assert!(!is_new, "client {index}: {id} has no answer; known to it: {is_known}");
            }
        }
        // Every trade of the exchange has a buyer and a seller here, and each got it once.
        for (number, quantity) in &self.matches {
            assert_eq!(reported.get(number), Some(&vec![*quantity; 2]), "trade {number}");
        }
        assert_eq!(reported.len(), self.matches.len(), "fills of no trade");
        assert_eq!(
            self.exchange.engine().orders(),
            open,
            "working orders of the exchange, and as the clients know them"
        );
        assert_eq!(status.open_orders as usize, open, "as the gateway knows them");
        assert_eq!(status.counters.unmatched, 0, "{:?}", self.notices);
        assert_eq!(status.counters.missing, 0);
    }
}

fn opened<S: VenueSession>(
    folder: &Path,
    make: fn() -> (S, S::Table),
    now_ns: u64,
) -> (Core<S, System>, Ledger<System>) {
    let opened = opened_with(folder, make, now_ns, SyncPolicy::Never).unwrap();
    (opened.core, opened.ledger)
}

fn parts<S: VenueSession>(venue: S, table: S::Table) -> Parts<S> {
    let clients = (0..CLIENTS)
        .map(|index| {
            let session = fix_settings(Role::Acceptor, index);
            ClientSettings::new(&format!("c{index}"), session, dictionary())
        })
        .collect();
    let capacity = Capacity { most_orders: 256, most_requests: 1_024, most_fills: 256, halts_doubtful: true };
    Parts { clients, reference: reference(), capacity, table, venue }
}

fn opened_with<S: VenueSession>(
    folder: &Path,
    make: fn() -> (S, S::Table),
    now_ns: u64,
    sync: SyncPolicy,
) -> Result<Opened<S, System>, RestoreError> {
    let (venue, table) = make();
    let parts = parts(venue, table);
    let options = JournalOptions { segment_bytes: 16 << 10, keep_bytes: None };
    open(folder, options, sync, parts, now_ns)
}

fn run<S: VenueSession>(steps: &[Step], make: fn() -> (S, S::Table), gates: fn(usize) -> Gate) {
    let mut world = World::new(make, gates);
    for _ in 0..8 {
        world.step(&Step::Turn { most: usize::MAX });
        world.step(&Step::Venue);
    }
    for step in steps {
        world.step(step);
    }
    world.settle();
    world.check();
    // The state that a restart finds is the same.
    let before = world.gateway.as_ref().unwrap().0.orders(true, usize::MAX);
    world.gateway = None;
    let (after, _ledger) = opened(world.folder.path(), make, world.now_ns);
    assert_eq!(after.orders(true, usize::MAX), before);
}

fn logged_on<S: VenueSession>(make: fn() -> (S, S::Table), gates: fn(usize) -> Gate) -> World<S> {
    let mut world = World::new(make, gates);
    for _ in 0..8 {
        world.step(&Step::Turn { most: usize::MAX });
        world.step(&Step::Venue);
    }
    world
}

/// An order of the first client works at the venue.
fn with_an_order<S: VenueSession>(make: fn() -> (S, S::Table), gates: fn(usize) -> Gate) -> World<S> {
    let mut world = logged_on(make, gates);
    world.step(&Step::Order { client: 0, symbol: 0, is_buy: true, quantity: 10, price: 100, tif: '0' });
    for _ in 0..8 {
        world.step(&Step::Turn { most: usize::MAX });
        world.step(&Step::Venue);
    }
    world
}

fn halt_with_cancels<S: VenueSession>(world: &mut World<S>) {
    let now = world.now();
    let (core, _) = world.gateway.as_mut().unwrap();
    core.set_halted(true, now);
    core.cancel_orders(0, now);
}

#[test]
fn a_turn_that_is_longer_than_a_record_is_written_and_found_again() {
    let mut world = logged_on(native, native_gate);
    for _ in 0..6_000 {
        let order = Step::Order { client: 0, symbol: 0, is_buy: true, quantity: 10, price: 100, tif: '0' };
        world.step(&order);
    }
    world.client(0);
    world.turn(usize::MAX, None);
    // A start finds the turn, and the messages in it that the client has not got.
    world.turn(1, Some(Death::BeforeCommit));
    world.settle();
    let trader = &world.clients[0].trader;
    assert_eq!((trader.orders.len(), trader.open()), (6_000, 256));
    world.clients[0].ids.truncate(3);
    world.check();
}

/// The kill switch cancels what works although the venue is away, and although the gateway starts anew before it is back.
fn kill_switch_while_the_venue_is_away<S: VenueSession>(
    make: fn() -> (S, S::Table),
    gates: fn(usize) -> Gate,
) {
    for death in [None, Some(Death::AfterCommit)] {
        let mut world = with_an_order(make, gates);
        assert_eq!(world.exchange.engine().orders(), 1);
        world.step(&Step::DropVenue);
        halt_with_cancels(&mut world);
        world.turn(usize::MAX, death);
        world.settle();
        assert_eq!(world.exchange.engine().orders(), 0, "{death:?}");
        let now = world.now();
        world.gateway.as_mut().unwrap().0.set_halted(false, now);
        world.settle();
        world.check();
    }
}

/// The kill switch cancels an order although a replace that the venue has taken before has renamed it.
fn kill_switch_behind_a_replace<S: VenueSession>(make: fn() -> (S, S::Table), gates: fn(usize) -> Gate) {
    for death in [None, Some(Death::BeforeCommit), Some(Death::AfterCommit), Some(Death::HalfSent)] {
        let mut world = with_an_order(make, gates);
        world.step(&Step::Replace { client: 0, order: 0, quantity: 20, price: 101 });
        world.client(0);
        world.turn(usize::MAX, None);
        halt_with_cancels(&mut world);
        world.turn(usize::MAX, None);
        world.venue();
        // The venue has rejected the cancel: no order is called so any more.
        world.turn(usize::MAX, death);
        if death.is_none() {
            world.venue();
            world.turn(usize::MAX, None);
            assert_eq!(world.exchange.engine().orders(), 0, "at once");
        }
        world.settle();
        assert_eq!(world.exchange.engine().orders(), 0, "{death:?}");
        let now = world.now();
        world.gateway.as_mut().unwrap().0.set_halted(false, now);
        world.settle();
        world.check();
        world.gateway = None;
        let (venue, table) = make();
        let parts = parts(venue, table);
        let replayed = replay::<_, System>(world.folder.path(), parts).unwrap();
        assert_eq!(replayed.differences, [], "{death:?}");
    }
}

#[test]
fn the_kill_switch_cancels_an_order_that_a_replace_has_renamed_before() {
    kill_switch_behind_a_replace(native, native_gate);
    kill_switch_behind_a_replace(ouch, ouch_gate);
}

#[test]
fn a_partition_whose_reports_are_missing_takes_no_orders_until_the_venue_has_answered() {
    let mut world = with_an_order(native, native_gate);
    let order =
        |client, symbol, is_buy, price| Step::Order { client, symbol, is_buy, quantity: 10, price, tif: '0' };
    let send = |world: &mut World<NativeClient>, client, symbol, is_buy, price| {
        world.step(&order(client, symbol, is_buy, price));
        world.client(client);
        world.turn(usize::MAX, None);
        world.venue();
    };
    // A trade, whose reports are lost; so is the request for them, which the next report brings about.
    send(&mut world, 1, 0, false, 100);
    let lost = std::mem::take(&mut world.lines.get_mut(&0).unwrap().1.inward);
    assert!(!lost.is_empty());
    send(&mut world, 0, 0, true, 99);
    world.turn(usize::MAX, None);
    let requests = std::mem::take(&mut world.lines.get_mut(&1).unwrap().1.outward);
    assert!(!requests.is_empty());
    let status = world.gateway.as_ref().unwrap().0.status(world.now());
    assert_eq!((status.behind, status.takes_orders), (vec![1], true));
    assert!(world.notices.iter().any(|notice| notice.text.contains("reports of partition 1 are missing")));
    let rejected = |world: &World<NativeClient>| world.clients[0].trader.rejected;
    let before = rejected(&world);
    send(&mut world, 0, 0, true, 98);
    world.turn(usize::MAX, None);
    world.client(0);
    assert_eq!(rejected(&world), before + 1);
    send(&mut world, 0, 1, true, 98);
    world.turn(usize::MAX, None);
    world.client(0);
    assert_eq!(rejected(&world), before + 1, "the other partition goes on");
    world.settle();
    let status = world.gateway.as_ref().unwrap().0.status(world.now());
    assert_eq!((status.behind, status.counters.unanswered_requests), (vec![], 1));
    assert!(world.notices.iter().any(|notice| notice.text.contains("has not answered")));
    assert!(world.notices.iter().any(|notice| notice.text.contains("nothing is missing of partition 1")));
    send(&mut world, 0, 0, true, 98);
    world.settle();
    assert_eq!(rejected(&world), before + 1);
    world.check();
}

#[test]
fn a_restart_keeps_the_halt_of_a_report_in_doubt_and_its_end() {
    let mut world = with_an_order(native, native_gate);
    let order =
        |client, is_buy, price| Step::Order { client, symbol: 0, is_buy, quantity: 10, price, tif: '0' };
    world.step(&order(1, false, 100));
    world.client(1);
    world.turn(usize::MAX, None);
    world.venue();
    // The fills say a price above the limit of the one who buys.
    let reports = &mut world.lines.get_mut(&0).unwrap().1.inward;
    let mut at = 0;
    while at < reports.len() {
        if reports[at + 3] == b'8' && reports[at + 53] == NativeExecType::Trade.raw() {
            reports.splice(at + 71..at + 79, (150 * E8).to_le_bytes());
        }
        at += 3 + usize::from(u16::from_le_bytes([reports[at + 1], reports[at + 2]]));
    }
    world.turn(usize::MAX, None);
    let halted = |world: &World<NativeClient>| world.gateway.as_ref().unwrap().0.status(world.now()).doubtful;
    assert_eq!(halted(&world), ["AAPL"]);
    let mut rejected = 0;
    let mut is_refused = |world: &mut World<NativeClient>| {
        world.settle();
        world.step(&order(0, true, 90));
        world.settle();
        let before = std::mem::replace(&mut rejected, world.clients[0].trader.rejected);
        rejected > before
    };
    assert!(is_refused(&mut world));
    world.turn(usize::MAX, Some(Death::AfterCommit));
    assert_eq!(halted(&world), ["AAPL"]);
    assert!(is_refused(&mut world));
    let now = world.now();
    world.gateway.as_mut().unwrap().0.set_halted(false, now);
    world.turn(usize::MAX, Some(Death::AfterCommit));
    assert_eq!(halted(&world), [""; 0]);
    assert!(!is_refused(&mut world));
}

#[test]
fn a_store_of_another_protocol_or_naming_is_refused_while_its_orders_work() {
    fn named_by_clients() -> (NativeClient, Millennium) {
        let table = MillenniumSettings { variant: VARIANT, ..MillenniumSettings::default() };
        (native().0, Millennium::new(table))
    }
    let mut world = logged_on(native, native_gate);
    world.step(&Step::Order { client: 0, symbol: 0, is_buy: true, quantity: 10, price: 100, tif: '0' });
    world.settle();
    world.gateway = None;
    let refused = |opened: Result<(), RestoreError>| match opened {
        Err(error @ RestoreError::Venue { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    };
    let folder = world.folder.path();
    let text = refused(opened_with(folder, named_by_clients, START_NS, SyncPolicy::Never).map(drop));
    assert!(text.contains("'naming'"), "{text}");
    refused(opened_with(folder, ouch, START_NS, SyncPolicy::Never).map(drop));
    world.die();
    world.settle();
    world.check();
}

#[test]
fn a_store_whose_orders_would_be_of_another_instrument_is_refused() {
    let mut world = logged_on(native, native_gate);
    world.step(&Step::Order { client: 0, symbol: 0, is_buy: true, quantity: 10, price: 100, tif: '0' });
    world.settle();
    world.gateway = None;
    let (venue, table) = native();
    let swapped = Parts { reference: instruments([(22, 2), (11, 1)]), ..parts(venue, table) };
    let options = JournalOptions { segment_bytes: 16 << 10, keep_bytes: None };
    match open::<_, System>(world.folder.path(), options, SyncPolicy::Never, swapped, START_NS) {
        Err(error @ RestoreError::Instrument { .. }) => {
            assert!(error.to_string().contains("is of another instrument"), "{error}");
        }
        other => panic!("{:?}", other.map(drop)),
    }
    world.die();
    world.settle();
    world.check();
}

/// Both sides of a trade of 10 at a price.
fn trade<S: VenueSession>(world: &mut World<S>, price: u64) {
    for (client, is_buy) in [(0, true), (1, false)] {
        world.step(&Step::Order { client, symbol: 0, is_buy, quantity: 10, price, tif: '0' });
    }
    for _ in 0..12 {
        world.step(&Step::Turn { most: usize::MAX });
        world.step(&Step::Venue);
        world.step(&Step::Wait { milliseconds: 500 });
    }
}

/// The venue's numbers begin at 1 with each of its days. `trades` are those of the two days.
fn next_day<S: VenueSession>(
    make: fn() -> (S, S::Table),
    gates: fn(usize) -> Gate,
    trades: (u64, u64),
    dies: bool,
) {
    let mut world = logged_on(make, gates);
    (0..trades.0).for_each(|number| trade(&mut world, 101 + number % 5));
    world.exchange.end_day(world.now_ns);
    world.settle();
    world.step(&Step::DropVenue);
    world.exchange.new_day(MIDNIGHT_NS, *b"NEXT      ", world.now_ns);
    if dies {
        world.step(&Step::Die { death: Death::BeforeCommit, most: 1 });
    }
    world.settle();
    (0..trades.1).for_each(|number| trade(&mut world, 101 + number % 5));
    world.settle();
    world.check();
    assert_eq!(world.matches.len() as u64, trades.0 + trades.1);
}

#[test]
fn every_fill_of_the_venues_next_day_is_reported() {
    for (trades, dies) in [((3, 1), false), ((1, 3), true), ((2, 2), true), ((0, 1), false)] {
        next_day(native, native_gate, trades, dies);
        next_day(ouch, ouch_gate, trades, dies);
    }
}

#[test]
fn a_start_takes_all_messages_of_another_ouch_session_though_it_has_more_than_the_last_one() {
    let mut world = logged_on(ouch, ouch_gate);
    world.step(&Step::Order { client: 0, symbol: 0, is_buy: true, quantity: 10, price: 100, tif: '0' });
    world.settle();
    world.exchange.end_day(world.now_ns);
    world.settle();
    world.step(&Step::DropVenue);
    world.exchange.new_day(MIDNIGHT_NS, *b"NEXT      ", world.now_ns);

    // Another program of the user trades before the gateway is back.
    let credentials = Credentials { user: "CAT".to_owned(), password: "secret".to_owned() };
    let settings = SoupInitiatorSettings::new(credentials);
    let mut other = SoupInitiator::new(settings, SoupPlace::default()).unwrap();
    let line = world.exchange.open(Gate::Ouch { user: 0 }, world.now_ns).unwrap();
    other.connected(world.now_ns);
    for round in 0..4 {
        let output = other.output().to_vec();
        other.sent(output.len(), world.now_ns, |_| {});
        world.exchange.receive(line, &output, world.now_ns);
        let answer = world.exchange.output(line).to_vec();
        world.exchange.sent(line, answer.len(), world.now_ns);
        other.receive(&answer, world.now_ns, |_| {});
        for user_ref_num in (1..=6).filter(|_| round == 1) {
            let order = EnterOrderFields {
                user_ref_num,
                side: inbound::Side::Buy,
                quantity: 1,
                symbol: Ascii::padded(b"AAPL").unwrap(),
                price: Decimal(10_000),
                time_in_force: inbound::TimeInForce::Day,
                display: inbound::Display::Visible,
                capacity: inbound::Capacity::Other,
                inter_market_sweep_eligibility: inbound::InterMarketSweepEligibility::NotEligible,
                cross_type: inbound::CrossType::ContinuousMarket,
                cl_ord_id: Ascii::default(),
                appendage_length: 0,
                appendage: &[],
            };
            let mut bytes = [0; 64];
            let length = order.encode_into(&mut bytes).unwrap();
            other.send(&bytes[..length], world.now_ns).unwrap();
        }
    }
    world.exchange.closed(line, world.now_ns);
    assert_eq!(world.exchange.engine().orders(), 6);

    world.die();
    world.settle();
    let counters = world.gateway.as_ref().unwrap().0.counters();
    assert_eq!((counters.unmatched, counters.missing), (6, 0));
    // The other program has taken the first six names: the venue would ignore one of them.
    world.step(&Step::Order { client: 0, symbol: 1, is_buy: true, quantity: 10, price: 100, tif: '0' });
    world.settle();
    assert_eq!(world.exchange.engine().orders(), 7);
    assert_eq!(world.clients[0].trader.open(), 1);
}

/// A gateway whose store is gone gives no name to an order that another has at the venue.
fn names_after_a_loss<S: VenueSession>(make: fn() -> (S, S::Table), gates: fn(usize) -> Gate) {
    let mut world = logged_on(make, gates);
    let order = Step::Order { client: 0, symbol: 0, is_buy: true, quantity: 10, price: 100, tif: '0' };
    (0..3).for_each(|_| world.step(&order));
    world.settle();
    assert_eq!(world.exchange.engine().orders(), 3);
    world.gateway = None;
    world.folder = tempfile::tempdir().unwrap();
    for client in 0..CLIENTS {
        world.drop_client(client);
        world.clients[client].store = MemoryStore::new(64 << 20, world.now_ns);
        world.clients[client].trader = Trader::default();
    }
    world.die();
    world.settle();
    (0..3).for_each(|_| world.step(&order));
    world.settle();
    assert_eq!((world.exchange.engine().orders(), world.clients[0].trader.open()), (6, 3));
    let counters = world.gateway.as_ref().unwrap().0.counters();
    assert_eq!(counters.unmatched, 3, "{:?}", world.notices);
}

#[test]
fn a_gateway_that_lost_its_store_gives_no_name_twice() {
    names_after_a_loss(native, native_gate);
    names_after_a_loss(ouch, ouch_gate);
}

/// Its connection takes some eight orders at once, and its venue does not say which it has seen.
fn narrow() -> (OuchSession, Ouch) {
    let credentials = Credentials { user: "CAT".to_owned(), password: "secret".to_owned() };
    let settings = SoupInitiatorSettings { output_bytes: 400, ..SoupInitiatorSettings::new(credentials) };
    (OuchSession::new(settings).unwrap().without_query(), ouch().1)
}

#[test]
fn more_orders_in_doubt_than_the_connection_takes_at_once_are_all_settled() {
    for (make, dies) in [(narrow as fn() -> _, false), (narrow, true), (ouch, false), (ouch, true)] {
        let mut world = logged_on(make, ouch_gate);
        for _ in 0..20 {
            for _ in 0..5 {
                world.step(&Step::Order {
                    client: 0,
                    symbol: 0,
                    is_buy: true,
                    quantity: 10,
                    price: 100,
                    tif: '0',
                });
            }
            world.step(&Step::Turn { most: usize::MAX });
        }
        // The venue has read none of them.
        world.step(&Step::DropVenue);
        if dies {
            world.die();
        }
        world.settle();
        assert_eq!(world.exchange.engine().orders(), 0);
        let trader = &world.clients[0].trader;
        assert_eq!((trader.rejected, trader.open()), (100, 0), "{dies}");
        world.check();
    }
}

fn of_new_york() -> (OuchSession, Ouch) {
    let (session, table) = ouch();
    (session.with_days(Schedule::daily("America/New_York", "00:00:00", "00:00:00").unwrap()), table)
}

#[test]
fn times_of_an_ouch_venue_are_of_the_day_that_it_is_also_after_midnight() {
    let mut world = logged_on(of_new_york, ouch_gate);
    for date in ["20240229", "20240301"] {
        world.clients.iter_mut().for_each(|client| client.trader = Trader::default());
        trade(&mut world, 101);
        world.settle();
        for client in 0..2 {
            let all = &world.clients[client].trader.executions;
            assert!(
                all.len() >= 2 && all.iter().all(|id| id.starts_with(date.as_bytes())),
                "{date}: {all:?}"
            );
        }
        world.step(&Step::Wait { milliseconds: 86_400_000 });
        world.settle();
    }
    let before = world.gateway.as_ref().unwrap().0.orders(true, usize::MAX);
    world.gateway = None;
    let (after, _ledger) = opened(world.folder.path(), of_new_york, world.now_ns);
    assert_eq!(after.orders(true, usize::MAX), before);
}

#[test]
fn an_allowed_ipv4_address_is_allowed_as_one_of_ipv6_too() {
    let folder = tempfile::tempdir().unwrap();
    let (venue, table) = native();
    let mut settings = ClientSettings::new("c0", fix_settings(Role::Acceptor, 0), dictionary());
    settings.addresses = vec!["192.0.2.1".parse().unwrap(), "::ffff:192.0.2.2".parse().unwrap()];
    let capacity = Capacity { most_orders: 16, most_requests: 16, most_fills: 16, ..Capacity::default() };
    let parts = Parts { clients: vec![settings], reference: reference(), capacity, table, venue };
    let options = JournalOptions { segment_bytes: 64 << 10, keep_bytes: None };
    let core = open::<_, System>(folder.path(), options, SyncPolicy::Never, parts, START_NS).unwrap().core;
    let mut client = Session::new(fix_settings(Role::Initiator, 0), dictionary(), START_NS);
    client.tick(&mut MemoryStore::new(1 << 20, START_NS), &mut Trader::default(), START_NS);
    let admitted = |address: &str| core.admit(client.output(), address.parse().unwrap(), None);
    for address in ["192.0.2.1", "::ffff:192.0.2.1", "192.0.2.2", "::ffff:192.0.2.2"] {
        assert_eq!(admitted(address), Ok(0), "{address}");
    }
    for address in ["192.0.2.3", "::ffff:192.0.2.3", "::1", "::192.0.2.1"] {
        assert_eq!(admitted(address), Err(NotAdmitted::Address), "{address}");
    }
}

// ---- holes of the store ------------------------------------------------------------------------------------

/// A store with some trades, written with this policy. Returns the segments' files, in order.
fn traded(policy: SyncPolicy) -> (World<NativeClient>, Vec<std::path::PathBuf>) {
    let mut world = logged_on(native, native_gate);
    world.gateway = None;
    let opened = opened_with(world.folder.path(), native, world.now_ns, policy).unwrap();
    world.gateway = Some((opened.core, opened.ledger));
    for number in 0..60 {
        trade(&mut world, 101 + number % 5);
    }
    world.settle();
    world.gateway = None;
    let mut files: Vec<_> =
        std::fs::read_dir(world.folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|ending| ending == "journal"));
    files.sort();
    (world, files)
}

#[test]
fn a_kill_switch_takes_back_orders_that_wait_for_the_throttle_and_no_cancels() {
    let mut world = logged_on(throttled, native_gate);
    let order = Step::Order { client: 0, symbol: 0, is_buy: true, quantity: 10, price: 100, tif: '0' };
    world.step(&order);
    world.step(&Step::Turn { most: usize::MAX });
    world.step(&Step::Cancel { client: 0, order: 0 });
    (0..3).for_each(|_| world.step(&order));
    world.step(&Step::Order { client: 1, symbol: 0, is_buy: true, quantity: 10, price: 99, tif: '0' });
    world.step(&Step::Turn { most: usize::MAX });
    let now = world.now();
    let (core, _) = world.gateway.as_mut().unwrap();
    assert_eq!(core.status(now).queued, 5);
    assert!(core.set_client_halted("c1", true, now));
    assert_eq!(core.status(now).queued, 4);
    core.set_halted(true, now);
    assert_eq!(core.status(now).queued, 1, "the cancel");
    world.settle();
    assert_eq!(world.exchange.engine().orders(), 0);
    assert_eq!((world.clients[0].trader.rejected, world.clients[1].trader.rejected), (3, 1));
    let now = world.now();
    world.gateway.as_mut().unwrap().0.set_halted(false, now);
    world.settle();
    world.check();
}

#[test]
fn a_kill_switch_cancels_orders_when_the_venue_is_back() {
    kill_switch_while_the_venue_is_away(native, native_gate);
    kill_switch_while_the_venue_is_away(ouch, ouch_gate);
}

/// Damages a byte in the middle of what the file has.
fn damage(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    bytes[end / 2] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_kill_switch_while_the_venue_recovers_sends_each_cancel_once() {
    for (turns, last) in (0..8).flat_map(|turns| [(turns, 10), (turns, 38), (turns, usize::MAX)]) {
        let mut steps = vec![
            Step::Order { client: 1, symbol: 0, is_buy: false, quantity: 10, price: 101, tif: '0' },
            Step::Turn { most: 142 },
            Step::DropVenue,
            Step::Die { death: Death::BeforeCommit, most: 1 },
            Step::Turn { most: 1 },
            Step::Venue,
        ];
        for turn in 0..turns {
            steps.push(Step::Turn { most: if turn < 2 { 38 } else { last } });
            steps.push(Step::Venue);
        }
        steps.extend([Step::CancelAll { client: 1 }, Step::Venue]);
        run(&steps, native, native_gate);
        run(&steps, ouch, ouch_gate);
    }
}

#[test]
fn a_hole_of_what_was_not_synced_is_cut_off_with_all_behind_it() {
    let (mut world, files) = traded(SyncPolicy::Never);
    assert!(files.len() > 1);
    damage(files.last().unwrap());
    let inspected = inspect::<System>(world.folder.path(), |_, _, _| {}).unwrap();
    let opened = opened_with(world.folder.path(), native, world.now_ns, SyncPolicy::Never).unwrap();
    let cut = opened.restored.cut.expect("it is damaged");
    assert!(cut.lost == 1 && cut.discarded > 1 && cut.times_ns.0 <= cut.times_ns.1, "{cut:?}");
    assert!(cut.set_aside.as_ref().unwrap().is_file(), "{cut:?}");
    assert_eq!(
        inspected.cut.map(|cut| (cut.from, cut.lost, cut.discarded)),
        Some((cut.from, cut.lost, cut.discarded))
    );
    assert_eq!(inspected.damaged, 1);
    let before = opened.core.orders(true, usize::MAX);
    drop((opened.core, opened.ledger));
    // The next start finds the same, and nothing to cut.
    let opened = opened_with(world.folder.path(), native, world.now_ns, SyncPolicy::Never).unwrap();
    assert_eq!((opened.restored.cut, opened.core.orders(true, usize::MAX)), (None, before));
    drop((opened.core, opened.ledger));
    let inspected = inspect::<System>(world.folder.path(), |_, _, _| {}).unwrap();
    assert!(inspected.is_sound() && inspected.cut.is_none(), "{inspected:?}");
    // It trades: the reports that were lost come again from the venue.
    world.die();
    world.settle();
    assert!(world.gateway.as_ref().unwrap().0.status(world.now()).takes_orders);
}

#[test]
fn damage_to_what_was_synced_stops_a_start_and_nothing_is_cut() {
    for (policy, from_last) in [(SyncPolicy::Always, 1), (SyncPolicy::Never, 2)] {
        let (world, files) = traded(policy);
        let path = &files[files.len() - from_last];
        damage(path);
        let bytes = std::fs::read(path).unwrap();
        let Err(error) = opened_with(world.folder.path(), native, world.now_ns, policy) else {
            panic!("{policy:?}: it is damaged");
        };
        assert!(matches!(error, RestoreError::Damaged { records: 1, .. }), "{policy:?}: {error}");
        assert_eq!(std::fs::read(path).unwrap(), bytes);
        assert_eq!(inspect::<System>(world.folder.path(), |_, _, _| {}).unwrap().cut, None);
    }
}

#[test]
fn a_store_whose_end_was_cut_off_stops_a_start() {
    // To half, to nothing, and away.
    for part in [Some(2), Some(usize::MAX), None] {
        let (world, files) = traded(SyncPolicy::Always);
        let path = files.last().unwrap();
        match part {
            Some(part) => {
                let bytes = std::fs::read(path).unwrap();
                let used = bytes.iter().rposition(|byte| *byte != 0).unwrap();
                std::fs::write(path, &bytes[..used / part]).unwrap();
            }
            None => std::fs::remove_file(path).unwrap(),
        }
        let inspected = inspect::<System>(world.folder.path(), |_, _, _| {}).unwrap();
        assert!(!inspected.is_sound(), "{part:?}: {inspected:?}");
        let Err(error) = opened_with(world.folder.path(), native, world.now_ns, SyncPolicy::Always) else {
            panic!("{part:?}: orders are missing");
        };
        assert!(matches!(error, RestoreError::CutOff { records: 1.., .. }), "{part:?}: {error}");
        // Another start says so too.
        assert!(opened_with(world.folder.path(), native, world.now_ns, SyncPolicy::Always).is_err());
    }
}

proptest! {
    // Hundreds of days of it are simulated in each long run: `cargo xtask simulate --orders`.
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn no_crash_loses_or_doubles_an_order_or_a_fill(steps in prop::collection::vec(step(), 1..120)) {
        run(&steps, native, native_gate);
    }

    #[test]
    fn the_same_holds_for_ouch(steps in prop::collection::vec(step(), 1..120)) {
        run(&steps, ouch, ouch_gate);
    }
}
