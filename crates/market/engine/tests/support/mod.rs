//! What tests of the engine and of those above it share: an engine, a session, its journal.

#![allow(dead_code, reason = "each test uses a part")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::OnceLock;

use dbn::decode::dbn::Decoder;
use tapeworks_feed::Application;
use tapeworks_feed::live::{Input, LiveChannelOptions};
use tapeworks_generator::{Packets, Scenario, Unit, VenueConfig, VenueKind};
use tapeworks_journal::{JournalOptions, JournalWriter};
use tapeworks_market::{BookOptions, Capacity, Event, Line, Publisher};
use tapeworks_store::Schema;
use tapeworks_time::Nanos;

use tapeworks_engine::checkpoint::folder::{prune, write};
use tapeworks_engine::checkpoint::{self, EngineImage};
use tapeworks_engine::records::record_of;
use tapeworks_engine::{Engine, EngineOptions, MarketStage};

/// Schemas whose records need a minute, and those that do not.
pub(crate) const SCHEMAS: [&[Schema]; 2] = [
    &[Schema::Bbo1M, Schema::Cbbo1M],
    &[
        Schema::Mbo,
        Schema::Mbp1,
        Schema::Mbp10,
        Schema::Tbbo,
        Schema::Trades,
        Schema::Bbo1S,
        Schema::Cmbp1,
        Schema::Cbbo1S,
        Schema::Status,
        Schema::Imbalance,
        Schema::Definition,
        Schema::Ohlcv1S,
    ],
];

/// The last of them says nothing in the session.
const KINDS: [(VenueKind, Application, Publisher); 3] = [
    (VenueKind::Nasdaq, Application::TotalViewItch50, Publisher::XNAS_ITCH),
    (VenueKind::IexDeep, Application::IexDeep10, Publisher::IEXG_DEEP),
    (VenueKind::Bx, Application::TotalViewItch50, Publisher::XBOS_ITCH),
];

/// An engine of three venues, of which the last says nothing in the session.
pub(crate) fn options() -> EngineOptions {
    let channel = |(kind, application, publisher): (VenueKind, Application, Publisher)| LiveChannelOptions {
        name: kind.name().to_owned(),
        application,
        publisher,
        arbiter: Default::default(),
        snapshot: None,
    };
    // As large as the session: an event of a whole venue walks all instruments that the tables have room for, and every replay
    // makes tables of its own.
    let capacity = Capacity { instruments: 64, orders: 1 << 12, levels: 1 << 12 };
    let feeds = KINDS.map(|(_, _, publisher)| (publisher, capacity)).to_vec();
    let books = BookOptions { feeds, capacity, ..BookOptions::default() };
    EngineOptions {
        channels: KINDS.map(channel).to_vec(),
        books,
        keeps_last_trades: true,
        ..EngineOptions::default()
    }
}

/// A session without heartbeats.
pub(crate) fn without_heartbeats() -> Vec<(u16, Nanos, Vec<u8>)> {
    let mut packets = session();
    packets.retain(|(_, _, payload)| payload.len() > 40);
    packets
}

/// Inputs of these packets into the engine, and its events into the books.
pub(crate) fn run(
    engine: &mut Engine,
    stage: &mut MarketStage,
    packets: &[(u16, Nanos, Vec<u8>)],
) -> Vec<Event> {
    let mut events = Vec::new();
    for (channel, received, payload) in packets {
        let before = events.len();
        let input = Input::Packet { channel: *channel, line: Line::A, received: *received, payload };
        engine.input(&input.borrowed(), &mut events);
        stage.apply(&events[before..]);
    }
    events
}

/// A session's packets: the channel, the receive time, the payload.
pub(crate) fn session() -> Vec<(u16, Nanos, Vec<u8>)> {
    static SESSION: OnceLock<Vec<(u16, Nanos, Vec<u8>)>> = OnceLock::new();
    SESSION.get_or_init(make_session).clone()
}

fn make_session() -> Vec<(u16, Nanos, Vec<u8>)> {
    let venues = KINDS[..2]
        .iter()
        .map(|(kind, ..)| VenueConfig { kind: *kind, share: 1, unit: Unit::WHOLE })
        .collect();
    // Heartbeats of each second would be most packets of the day.
    let heartbeat_ns = 60 * Nanos::SECOND;
    let scenario = Scenario { venues, seed: 71, heartbeat_ns, ..Scenario::full_session(3_000, 8) };
    let mut packets = Packets::new(&scenario).unwrap();
    let mut all = Vec::new();
    while let Some(packet) = packets.next_packet() {
        all.push((packet.venue as u16, Nanos(packet.timestamp_ns), packet.payload.to_vec()));
    }
    all
}

/// The records of a DBN file, by feed.
pub(crate) fn records(path: &Path) -> BTreeMap<u16, Vec<Vec<u8>>> {
    let mut records: BTreeMap<u16, Vec<Vec<u8>>> = BTreeMap::new();
    let mut decoder = Decoder::from_file(path).unwrap();
    while let Some(record) = decoder.decode_ref().unwrap() {
        records.entry(record.header().publisher_id).or_default().push(record.as_ref().to_vec());
    }
    records
}

/// The state as the body of a file.
pub(crate) fn encoded(engine: &Engine, market: &MarketStage) -> Vec<u8> {
    checkpoint::encode(EngineImage::of(engine).unwrap(), &market.image().sorted(), Vec::new()).unwrap()
}

/// Empty books.
pub(crate) fn stage() -> MarketStage {
    MarketStage::new(&options(), ())
}

/// Keeps a session as a plant would, with so many checkpoints. Returns their times.
pub(crate) fn keep(folder: &Path, journal: JournalOptions, checkpoints: usize) -> Vec<Nanos> {
    let (mut writer, _) = JournalWriter::open(folder, journal).unwrap();
    writer.need_from(0);
    let (mut engine, mut market) = (Engine::new(&options()), stage());
    let packets = without_heartbeats();
    let (every, mut times) = (packets.len() / (checkpoints + 1), Vec::new());
    for (at, packet) in packets.iter().enumerate() {
        if at > 0 && at % every == 0 && times.len() < checkpoints {
            writer.sync().unwrap();
            write(folder, at as u64, &mut encoded(&engine, &market)).unwrap();
            writer.need_from(prune(folder, 0).unwrap());
            times.push(market.image().time());
        }
        run(&mut engine, &mut market, std::slice::from_ref(packet));
        let (channel, received, payload) = packet;
        let input = Input::Packet { channel: *channel, line: Line::A, received: *received, payload };
        writer.append(&record_of(&input.borrowed(), &mut [0; 16])).unwrap();
    }
    writer.sync().unwrap();
    times
}

/// Keeps a session as a plant would whose journal loses some packets, with a state some way behind them or without. Returns the
/// events of the engine, and the numbers of the next event at the loss and at the state.
pub(crate) fn keep_with_loss(
    folder: &Path,
    journal: JournalOptions,
    has_state: bool,
) -> (Vec<Event>, usize, usize) {
    let (mut writer, _) = JournalWriter::open(folder, journal).unwrap();
    let (mut engine, mut market) = (Engine::new(&options()), stage());
    let (packets, mut all) = (without_heartbeats(), Vec::new());
    let (from, to) = (packets.len() / 3, packets.len() / 3 + 200);
    let too_long = vec![0; tapeworks_journal::MAX_PAYLOAD_BYTES + 1];
    let (mut loss, mut state) = (0, 0);
    for (at, packet) in packets.iter().enumerate() {
        if at == from {
            loss = all.len();
        }
        if at == to + 30 {
            state = all.len();
            writer.sync().unwrap();
            if has_state {
                write(folder, writer.next_number(), &mut encoded(&engine, &market)).unwrap();
            }
        }
        all.extend(run(&mut engine, &mut market, std::slice::from_ref(packet)));
        let (channel, received, payload) = packet;
        let payload = if (from..to).contains(&at) { &too_long } else { payload };
        let input = Input::Packet { channel: *channel, line: Line::A, received: *received, payload };
        let appended = writer.append(&record_of(&input.borrowed(), &mut [0; 16]));
        assert_eq!(appended.is_err(), (from..to).contains(&at));
    }
    writer.sync().unwrap();
    assert_eq!((writer.lost(), writer.losses()), (200, 1));
    (all, loss, state)
}
