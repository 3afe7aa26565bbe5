//! A generated session as events, a server of them, and what files would hold.
#![allow(dead_code, unreachable_pub, reason = "each user needs a part, and is a crate of its own")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tapeworks_capture::LinkType;
use tapeworks_capture::net;
use tapeworks_engine::history::MemoryHistory;
use tapeworks_feed::{Feed, FeedOptions, Packet};
use tapeworks_generator::{Packets, Scenario, Unit, VenueConfig, VenueKind};
use tapeworks_market::{BookOptions, Event, EventKind, Market};
use tapeworks_outputs::begin::Begin;
use tapeworks_outputs::clients::distributor::{Dataset, Options};
use tapeworks_outputs::clients::server::{self, Server, ServerOptions};
use tapeworks_ring::disruptor::{Builder, Producer};
use tapeworks_ring::wait::Yielding;
use tapeworks_runtime::keys::{Key, Keys};
use tapeworks_stage::Stage;
use tapeworks_store::{Schema, Writer};
use tapeworks_time::Nanos;

pub const KEY: &str = "db-TapeworksDemoKey0000000000000";
pub const DATASET: &str = "TAPEWORKS.DEMO";

/// A day of three venues, one with price levels: every schema has records. Without heartbeats, which would be nine packets in ten.
pub fn scenario(messages: u64, symbols: u32, seed: u64) -> Scenario {
    let kinds = VenueKind::each(["nasdaq", "bx", "iex-deep"]);
    let venues = kinds.map(|kind| VenueConfig { kind, share: 1, unit: Unit::WHOLE }).to_vec();
    Scenario { venues, seed, heartbeat_ns: 0, ..Scenario::full_session(messages, symbols) }
}

/// The events of a session, as the engine publishes them.
pub fn events(scenario: &Scenario) -> Vec<Event> {
    let mut packets = Packets::new(scenario).unwrap();
    let mut feed = Feed::new(FeedOptions::default());
    let mut events: Vec<Event> = Vec::new();
    let mut number = 0;
    while let Some(packet) = packets.next_packet() {
        number += 1;
        let datagram = net::parse(LinkType::ETHERNET, packet.frame).unwrap();
        let received = Nanos(packet.timestamp_ns);
        let packet = Packet { file: 0, number, offset: 0, received, datagram };
        feed.process(&[packet], &mut |event: Event| events.push(event));
    }
    feed.finish(&mut |event: Event| events.push(event));
    events
}

/// What a file of `schema` holds after these events, written to `path`.
pub fn write(events: &[Event], schema: Schema, path: &Path) {
    let options = tapeworks_store::Options { overwrite: true, ..Default::default() };
    let mut writer = Writer::create(path, schema, &options).unwrap();
    let mut market = Market::new(&BookOptions::default());
    market.apply(events, |update, instruments| writer.put(update, instruments).unwrap());
    writer.finish(&market.instruments).unwrap();
}

/// Options of a server with the demo key, and the history that it replays from.
pub fn options() -> (Options, MemoryHistory) {
    let history = MemoryHistory::default();
    let mut key = Key::new("demo", KEY).unwrap();
    key.max_connections = 2000;
    let options = Options {
        keys: Keys::new(vec![key]),
        datasets: vec![Dataset { name: DATASET.to_owned(), publishers: Vec::new() }],
        history: Some(Arc::new(history.clone())),
        ..Options::default()
    };
    (options, history)
}

/// A server, and the ring that an engine would fill.
pub struct Plant {
    pub server: Server,
    pub history: MemoryHistory,
    producer: Producer<Event, Yielding>,
    live_from: Arc<AtomicU64>,
}

impl Plant {
    pub fn start() -> Self {
        Self::with(|_| {})
    }

    pub fn with(change: impl FnOnce(&mut Options)) -> Self {
        Self::begun(&[], (0, 0), change)
    }

    /// A server that is started after these events of the day.
    pub fn after(events: &[Event]) -> Self {
        Self::begun(events, (events.len(), 0), |_| {})
    }

    /// A server beside an engine that has just been started again, and replays a journal of these events.
    pub fn replaying(journal: &[Event]) -> Self {
        Self::begun(journal, (0, u64::MAX), |_| {})
    }

    fn begun(
        events: &[Event],
        (first_event, live_from): (usize, u64),
        change: impl FnOnce(&mut Options),
    ) -> Self {
        let (mut options, history) = options();
        history.append(events);
        change(&mut options);
        let blank = Event::new(EventKind::Other, Default::default(), Default::default());
        let mut ring = Builder::new(1 << 14, || blank, Yielding::default);
        let clients = ring.consumer("clients", &[]);
        let (producer, mut ends) = ring.single_producer();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let begin = Begin {
            first_event: first_event as u64,
            history: Some(Arc::new(history.clone())),
            live_from: Arc::new(AtomicU64::new(live_from)),
            ..Begin::default()
        };
        let live_from = Arc::clone(&begin.live_from);
        // No reader may see anything of it.
        let options = ServerOptions { begin, warm: true, ..ServerOptions::new(address, options) };
        let server = server::start(options, ends.take(clients).unwrap()).unwrap();
        Self { server, history, producer, live_from }
    }

    /// Publishes events, to the ring and into the history.
    pub fn publish(&mut self, events: &[Event]) {
        for part in events.chunks(256) {
            self.history.append(part);
            self.replay(part);
        }
    }

    /// Publishes events that are in the history.
    pub fn replay(&mut self, events: &[Event]) {
        for part in events.chunks(256) {
            self.producer.publish_batch(part.len(), |at, slot| *slot = part[at]).unwrap();
        }
    }

    /// The journal is replayed: the event with this number is the first of the present.
    pub fn live_from(&self, number: usize) {
        self.live_from.store(number as u64, Ordering::Release);
    }

    /// Waits until the clients' queues have the records of the first `count` events.
    pub fn reach(&self, count: u64) {
        while self.server.stats().next_event < count {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends the events, and waits until every client has what was left for it.
    pub fn end(self) {
        let Self { server, producer, .. } = self;
        drop(producer);
        server.join().unwrap();
    }
}
