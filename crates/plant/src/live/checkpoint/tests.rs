//! Checkpoints of running plants, and readers that go on from them.

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use tapeworks_engine::checkpoint::folder::{newest, prune, write};
use tapeworks_engine::history::{History, HistoryError, HistoryReader, Read};
use tapeworks_engine::records::record_of;
use tapeworks_engine::replica::{Mode, Replica};
use tapeworks_engine::{JournalHistory, MarketStage};
use tapeworks_feed::live::Input;
use tapeworks_journal::{JournalOptions, JournalWriter, Opened, segment_starts};
use tapeworks_market::book::BooksImage;
use tapeworks_market::nbbo::{NbboRules, StaleBooks};
use tapeworks_market::{BookStage, Event, Line, Nanos};
use tapeworks_ring::disruptor::Builder;
use tapeworks_ring::wait::Wait;
use tapeworks_runtime::waiting::Waiting;
use tapeworks_store::Schema;

use super::*;
use crate::clients::begin::{Begin, Past, catch_up};
use crate::clients::replay::tests::replayed;
use crate::live::journal::JournalSetting;
use crate::live::tests::{Temporary, plant, session};
use crate::live::{EventConsumer, Plant, PlantOptions, Topology, empty_event};

/// The state as the body of a file.
fn encoded(engine: &Engine, market: MarketImage) -> Vec<u8> {
    checkpoint::encode(EngineImage::of(engine).unwrap(), &market.sorted(), Vec::new()).unwrap()
}

fn stage() -> MarketStage {
    MarketStage::new(&plant().engine(), ())
}

fn stage_of(options: &PlantOptions) -> MarketStage {
    MarketStage::new(&options.engine(), ())
}

/// Checkpoints in a journal's folder.
fn files_in(folder: &Path) -> usize {
    folder::check(folder).unwrap().len()
}

fn opened(next: u64) -> Opened {
    Opened { first: 0, next, ..Opened::default() }
}

/// Inputs of these packets into the engine, and its events into the books.
fn run(engine: &mut Engine, stage: &mut MarketStage, packets: &[(u16, Nanos, Vec<u8>)]) -> Vec<Event> {
    let mut events = Vec::new();
    for (channel, received, payload) in packets {
        let before = events.len();
        let input = Input::Packet { channel: *channel, line: Line::A, received: *received, payload };
        engine.input(&input, &mut events);
        stage.apply(&events[before..]);
    }
    events
}

/// The history with the whole day, whatever there is of snapshots.
struct Whole(JournalHistory);

impl History for Whole {
    fn open(&self, _from: Nanos) -> Result<Box<dyn HistoryReader>, HistoryError> {
        self.0.open(Nanos(0))
    }
}

/// A session without the heartbeats of a whole day.
fn without_heartbeats() -> Vec<(u16, Nanos, Vec<u8>)> {
    let mut packets = session();
    packets.retain(|(_, _, payload)| payload.len() > 40);
    packets
}

/// Keeps a session as a plant would, with so many snapshots. Returns the times of the snapshots.
fn keep(options: &PlantOptions, snapshots: usize) -> Vec<Nanos> {
    let setting = options.journal.as_ref().unwrap();
    let (mut writer, _) = JournalWriter::open(&setting.folder, setting.options).unwrap();
    writer.need_from(0);
    let mut engine = Engine::new(&options.engine());
    let mut market = MarketStage::new(&options.engine(), ());
    let packets = without_heartbeats();
    let (every, mut times) = (packets.len() / (snapshots + 1), Vec::new());
    for (at, packet) in packets.iter().enumerate() {
        if at > 0 && at % every == 0 && times.len() < snapshots {
            writer.sync().unwrap();
            write(&setting.folder, at as u64, &mut encoded(&engine, market.image())).unwrap();
            writer.need_from(prune(&setting.folder).unwrap());
            times.push(market.image().time());
        }
        run(&mut engine, &mut market, std::slice::from_ref(packet));
        let (channel, received, payload) = packet;
        let input = Input::Packet { channel: *channel, line: Line::A, received: *received, payload };
        writer.append(&record_of(&input, &mut [0; 8])).unwrap();
    }
    writer.sync().unwrap();
    times
}

/// A plant that keeps a journal of such segments in the folder.
fn keeping(folder: &Temporary, segment_bytes: u64, keep_bytes: Option<u64>) -> PlantOptions {
    let mut setting = JournalSetting::new(&folder.0);
    setting.snapshot_every = Some(Duration::from_millis(50));
    setting.options = JournalOptions { segment_bytes, keep_bytes };
    PlantOptions { journal: Some(setting), ..plant() }
}

/// Schemas whose records need a minute, and those that do not.
const SCHEMAS: [&[Schema]; 2] = [
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

fn history(options: &PlantOptions) -> Arc<dyn History> {
    Arc::new(options.history().unwrap())
}

#[test]
fn a_replay_from_a_snapshot_is_the_days_to_the_last_byte() {
    let folder = Temporary::new();
    // One snapshot for each segment is kept.
    let options = keeping(&folder, 4_096, None);
    let times = keep(&options, 12);
    assert_eq!(files_in(&folder.0), 12);
    let some = history(&options);
    let whole: Arc<dyn History> = Arc::new(Whole(options.history().unwrap()));
    // Just behind a snapshot, some time behind it, at full minutes, before all of them, and at the day's end.
    let minute = 60 * Nanos::SECOND;
    let starts = [
        times[0].0 - 1,
        times[1].0 + 2 * Nanos::SECOND + 1,
        (times[5].0 / minute + 3) * minute,
        times[9].0 + 500 * Nanos::SECOND,
    ];
    let last = without_heartbeats().last().unwrap().1.0;
    let (mut used, mut bytes) = (0, 0);
    for start in starts.into_iter().chain([last - 1]).map(Nanos) {
        used += usize::from(some.open(start).unwrap().start().is_some());
        for schemas in SCHEMAS {
            let of = |history: &Arc<dyn History>| {
                replayed(Arc::clone(history), &options.books(), schemas, start).unwrap()
            };
            let (expected, told) = (of(&whole), of(&some));
            let (one, other) = (told.1.len(), expected.1.len());
            assert!(told == expected, "{schemas:?} from {start:?}: {one} and {other} bytes");
            bytes += one;
        }
    }
    assert!(used == 4 && bytes > 1_000_000, "{used} times, {bytes} bytes");
}

#[test]
fn the_journal_keeps_what_its_snapshots_need_and_tells_from_when_on_there_is_something() {
    let (folder, all) = (Temporary::new(), Temporary::new());
    let (options, of_all) = (keeping(&folder, 8_192, Some(30_000)), keeping(&all, 1 << 20, None));
    keep(&options, 12);
    keep(&of_all, 0);
    let (kept, starts) = (folder::check(&folder.0).unwrap(), segment_starts(&folder.0).unwrap());
    let usable = kept.iter().filter(|kept| kept.record >= starts[0]).count();
    assert!(starts[0] > 0 && usable >= 2, "{kept:?} {starts:?}");
    let (some, whole) = (history(&options), history(&of_all));
    let replay = |history: &Arc<dyn History>, schemas: &[Schema], start| {
        replayed(Arc::clone(history), &options.books(), schemas, start)
    };
    for schemas in SCHEMAS {
        let refused = replay(&some, schemas, Nanos(0)).unwrap_err();
        let HistoryError::NotKept { earliest } = refused else { panic!("{refused}") };
        assert!(refused.to_string().contains(&format!("start={}", earliest.0)), "{refused}");
        let (_, told) = replay(&some, schemas, earliest).unwrap();
        assert!(told == replay(&whole, schemas, earliest).unwrap().1 && !told.is_empty(), "{schemas:?}");
        assert!(replay(&some, schemas, Nanos(earliest.0 - 1)).is_err());
    }
    // What is kept is of no use to a plant of another configuration.
    let mut others = options.clone();
    others.venues[0].arbiter.reorder_window_ns += 1;
    let refused = replay(&history(&others), &[Schema::Mbo], Nanos(u64::MAX)).unwrap_err();
    assert!(refused.to_string().contains("removed to make room"), "{refused}");
}

#[test]
fn readers_of_the_ring_go_on_from_a_snapshot_when_the_days_beginning_is_gone() {
    let (folder, all) = (Temporary::new(), Temporary::new());
    let (options, of_all) = (keeping(&folder, 8_192, Some(30_000)), keeping(&all, 1 << 20, None));
    keep(&options, 12);
    keep(&of_all, 0);
    let mut whole = Vec::new();
    let mut reader = history(&of_all).open(Nanos(0)).unwrap();
    while reader.read(&mut whole).unwrap() == Read::Events {}
    let ends = Opened { first: 0, next: u64::MAX, ..Opened::default() };
    let newest = newest(&folder.0, &ends, &options.engine()).0.unwrap();
    let (newest, first_time) = (newest.engine.counters().events, newest.market.time());
    // The ring begins with what the newest snapshot has not, or some events before: it was taken since.
    for first_event in [newest, newest - 100] {
        let mut builder = Builder::new(1 << 14, empty_event, || Waiting::new(Wait::Backoff));
        let id = builder.consumer("reader", &[]);
        let (mut producer, mut ends) = builder.single_producer();
        let mut consumer = ends.take(id).unwrap();
        for event in &whole[first_event as usize..] {
            producer.publish(|slot| *slot = *event).unwrap();
        }
        let [mut replica, mut straight] = [(); 2].map(|()| Replica::new(&options.books()));
        for replica in [&mut replica, &mut straight] {
            Schema::ALL.into_iter().for_each(|schema| replica.set_mode(schema, Mode::Watch));
        }
        let take = |replica: &mut Replica, events: &[Event]| {
            let mut rest = events;
            while !rest.is_empty() {
                rest = &rest[replica.advance(rest).0..];
            }
        };
        let (stop, mut began) = (AtomicBool::new(false), None);
        let history = Some(history(&options) as Arc<dyn History>);
        let begin = Begin { first_event, first_time, history, ..Begin::default() };
        let caught: Result<(), HistoryError> = catch_up(&begin, &mut consumer, &stop, |past| {
            match past {
                Past::Start(start) => {
                    began = Some(start.first_event());
                    replica.restore(*start);
                }
                Past::Events(_, events) => take(&mut replica, events),
            }
            Ok(())
        });
        caught.unwrap();
        // Not with the newest: intervals that were open in it are known whole.
        assert!(began.is_some_and(|began| began > 0 && began < newest), "{began:?}, {newest}");
        // Then the ring, in earnest.
        let mut rest = Vec::new();
        consumer.poll(|event, _, _| rest.push(*event)).unwrap();
        take(&mut replica, &rest);
        take(&mut straight, &whole);
        assert_eq!(replica.market.next, straight.market.next);
        for schema in Schema::ALL {
            let (one, same) = (replica.snapshot(schema, &|_| true), straight.snapshot(schema, &|_| true));
            assert!(one.bytes() == same.bytes(), "{schema}");
        }
    }
}

/// All events of a plant that was stopped.
fn drain(mut consumer: EventConsumer) -> Vec<Event> {
    let mut events = Vec::new();
    while consumer.poll(|event, _, _| events.push(*event)).is_ok() {}
    events
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(30), "in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_plant_starts_from_its_snapshot_and_has_the_day_all_the_same() {
    day([Topology::Inline; 3]);
}

#[test]
fn a_pipeline_starts_from_its_snapshot_and_has_the_day_all_the_same() {
    day([Topology::Pipeline; 3]);
}

#[test]
fn a_plant_starts_from_a_snapshot_of_another_topology() {
    day([Topology::Pipeline, Topology::Inline, Topology::Pipeline]);
}

/// A day in three runs of a plant, each of which goes on from the snapshot of the one before.
fn day(topologies: [Topology; 3]) {
    let folder = Temporary::new();
    let mut options = plant();
    options.ring_events = 1 << 16;
    options.rules = NbboRules { stale_books: StaleBooks::Flag, odd_lots_count: false };
    let mut journal = JournalSetting::new(&folder.0);
    journal.snapshot_every = Some(Duration::from_millis(100));
    journal.queue = 64;
    options.journal = Some(journal);
    let socket = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
    let packets = without_heartbeats();
    let third = packets.len() / 3;
    let mut seen = Vec::new();
    for (round, (piece, topology)) in packets.chunks(third).zip(topologies).enumerate() {
        options.topology = topology;
        let (mut plant, consumers) = Plant::start(options.clone(), &["test"]).unwrap();
        let consumer = consumers.into_iter().next().unwrap();
        let replayed = plant.replayed().unwrap();
        let status = plant.status();
        if round == 0 {
            assert_eq!((plant.first_event(), status.snapshots.restored), (0, None));
        } else {
            assert!(status.snapshots.restored.is_some(), "{:?}", status.snapshots);
            assert!(status.snapshots.refused.is_empty());
            assert_eq!(plant.first_event() + replayed.events, seen.len() as u64, "where it was");
        }
        let first = plant.first_event() as usize;
        wait_until("lines", || plant.status().channels.len() == 3);
        let lines: Vec<SocketAddr> =
            plant.status().channels.iter().map(|channel| channel.lines[0].address).collect();
        let had = plant.status().events;
        for (channel, _, payload) in piece {
            socket.send_to(payload, lines[usize::from(*channel)]).unwrap();
            std::thread::sleep(Duration::from_micros(100));
        }
        wait_until("events", || plant.status().events > had + 500);
        let written = plant.status().snapshots.written;
        wait_until("snapshots", || plant.status().snapshots.written > written + 1);
        let handle = plant.status_handle();
        plant.stop().unwrap();
        let told = handle.lock().unwrap().clone();
        let snapshots = &told.snapshots;
        assert_eq!((&snapshots.error, snapshots.failed, snapshots.skipped), (&None, 0, 0));
        assert_eq!(snapshots.taken, snapshots.written, "none is left half done");
        assert_eq!(snapshots.books_pause_ns > 0, topology == Topology::Pipeline);
        let events = drain(consumer);
        // What the ring has of before is what was there.
        seen.truncate(first + replayed.events as usize);
        assert_eq!(seen.get(first..), events.get(..replayed.events as usize));
        seen.truncate(first);
        seen.extend(events);
    }
    // A history has the whole day, whatever the snapshots.
    let mut reader = options.history().unwrap().open(Nanos(0)).unwrap();
    let mut whole = Vec::new();
    while reader.read(&mut whole).unwrap() == Read::Events {}
    assert!(whole == seen, "{} and {}", whole.len(), seen.len());
    assert_eq!(files_in(&folder.0), 3, "the newest two, and the first of the segment");
    // The books of the last snapshot are those of its events in one thread, whoever took them.
    let opened = opened(u64::MAX);
    let (restored, refused) = newest(&folder.0, &opened, &options.engine());
    let (restored, mut straight) = (restored.unwrap(), stage());
    assert!(refused.is_empty());
    straight.apply(&whole[..restored.engine.counters().events as usize]);
    let mut taken = stage();
    taken.restore(restored.market);
    same_market(&taken, &straight);
}

/// Keeps a session as a plant would whose journal loses some packets, with a state some way behind them or without. Returns the
/// events of the engine, and the numbers of the next event at the loss and at the state.
fn keep_with_hole(options: &PlantOptions, has_state: bool) -> (Vec<Event>, usize, usize) {
    let setting = options.journal.as_ref().unwrap();
    let (mut writer, _) = JournalWriter::open(&setting.folder, setting.options).unwrap();
    let (mut engine, mut market) = (Engine::new(&options.engine()), stage_of(options));
    let (packets, mut all) = (without_heartbeats(), Vec::new());
    let (from, to) = (packets.len() / 3, packets.len() / 3 + 200);
    let too_long = vec![0; tapeworks_journal::MAX_PAYLOAD_BYTES + 1];
    let (mut hole, mut state) = (0, 0);
    for (at, packet) in packets.iter().enumerate() {
        if at == from {
            hole = all.len();
        }
        if at == to + 30 {
            state = all.len();
            writer.sync().unwrap();
            if has_state {
                write(&setting.folder, writer.next_number(), &mut encoded(&engine, market.image())).unwrap();
            }
        }
        all.extend(run(&mut engine, &mut market, std::slice::from_ref(packet)));
        let (channel, received, payload) = packet;
        let payload = if (from..to).contains(&at) { &too_long } else { payload };
        let input = Input::Packet { channel: *channel, line: Line::A, received: *received, payload };
        let appended = writer.append(&record_of(&input, &mut [0; 8]));
        assert_eq!(appended.is_err(), (from..to).contains(&at));
    }
    writer.sync().unwrap();
    assert_eq!((writer.lost(), writer.holes()), (200, 1));
    (all, hole, state)
}

/// Bytes that two have in common at their beginnings, and at their ends.
fn in_common(one: &[u8], other: &[u8]) -> (usize, usize) {
    let first = one.iter().zip(other).take_while(|(one, other)| one == other).count();
    let last = one.iter().rev().zip(other.iter().rev()).take_while(|(one, other)| one == other).count();
    (first, last)
}

#[test]
fn behind_inputs_that_the_journal_lost_its_readers_have_the_numbers_and_books_of_the_plant() {
    let (folder, other) = (Temporary::new(), Temporary::new());
    let (options, without) = (keeping(&folder, 4_096, None), keeping(&other, 4_096, None));
    let (all, hole, state) = keep_with_hole(&options, true);
    keep_with_hole(&without, false);
    // As long as there is no state, nothing behind the hole is told: its numbers would be others.
    let mut reader = history(&without).open(Nanos(0)).unwrap();
    let mut told = Vec::new();
    while reader.read(&mut told).unwrap() == Read::Events {}
    assert!(reader.read(&mut told).unwrap() == Read::CaughtUp && reader.start().is_none());
    assert!(told == all[..hole] && hole > 100);
    // From the state on all is as it was, and before that the gaps are told.
    let mut reader = history(&options).open(Nanos(0)).unwrap();
    let (mut before, mut behind, mut first) = (Vec::new(), Vec::new(), None);
    loop {
        let into = if first.is_some() { &mut behind } else { &mut before };
        if reader.read(into).unwrap() == Read::CaughtUp {
            break;
        }
        if let Some(start) = reader.start() {
            assert!(first.replace(start.first_event() as usize).is_none());
        }
    }
    assert_eq!(first, Some(state));
    assert!(before[..hole] == all[..hole] && behind == all[state..] && behind.len() > 100);
    assert!(before.len() > hole && before.len() <= state);
    assert!(before[hole..].iter().all(|event| event.gap().is_some_and(|gap| gap.count > 0)));
    // A client's replay: nothing comes twice, and what is behind is right.
    let whole = Temporary::new();
    let of_whole = keeping(&whole, 1 << 20, None);
    keep(&of_whole, 0);
    for schemas in [&[Schema::Mbo][..], &[Schema::Mbp10], &[Schema::Cmbp1], &[Schema::Trades]] {
        let of = |options: &PlantOptions| {
            replayed(history(options), &options.books(), schemas, Nanos(0)).unwrap().1
        };
        let (some, all) = (of(&options), of(&of_whole));
        let (first, last) = in_common(&some, &all);
        assert!(first > 400 && last > 400, "{schemas:?}");
        // The gaps change the NBBO's flags.
        let is_consolidated = schemas == [Schema::Cmbp1];
        assert!(is_consolidated || first + last >= some.len() && some.len() < all.len(), "{schemas:?}");
    }
    // Who reads the ring comes to where the ring is.
    let first_event = all.len() - 100;
    let mut builder = Builder::new(1 << 14, empty_event, || Waiting::new(Wait::Backoff));
    let id = builder.consumer("reader", &[]);
    let (_producer, mut ends) = builder.single_producer();
    let mut consumer = ends.take(id).unwrap();
    let (mut replica, mut straight) = (Replica::new(&options.books()), stage());
    straight.apply(&all[..first_event]);
    // From before the hole.
    let begin = Begin {
        first_event: first_event as u64,
        first_time: Nanos(1),
        history: Some(history(&options)),
        ..Begin::default()
    };
    let caught: Result<(), HistoryError> = catch_up(&begin, &mut consumer, &AtomicBool::new(false), |past| {
        match past {
            Past::Start(start) => replica.restore(*start),
            Past::Events(next, events) => {
                assert_eq!(next, replica.market.next);
                replica.take(events, |replica, _| replica.clear());
            }
        }
        Ok(())
    });
    caught.unwrap();
    assert_eq!(replica.market.next, first_event as u64);
    let sorted = |books: &BookStage| {
        let mut books = books.image();
        books.iter_mut().for_each(BooksImage::sort);
        books
    };
    assert!(sorted(replica.market.books()) == sorted(straight.books()));
    assert!(replica.market.nbbo().image() == straight.nbbo().image());
}

/// The number of the event that a reader of the journal comes to.
fn reached(options: &PlantOptions) -> u64 {
    let mut reader = options.history().unwrap().open(Nanos(0)).unwrap();
    let (mut events, mut next) = (Vec::new(), 0);
    loop {
        let read = reader.read(&mut events).unwrap();
        next += events.len() as u64;
        events.clear();
        next = reader.start().map_or(next, |start| start.first_event());
        if read == Read::CaughtUp {
            return next;
        }
    }
}

#[test]
fn a_plant_whose_journal_loses_inputs_takes_its_state_so_that_readers_and_the_next_start_agree() {
    for every in [None, Some(Duration::from_millis(100))] {
        let (folder, away) = (Temporary::new(), Temporary::new());
        let mut options = plant();
        options.ring_events = 1 << 16;
        let mut setting = JournalSetting::new(&folder.0);
        (setting.snapshot_every, setting.options.segment_bytes) = (every, 4_096);
        options.journal = Some(setting);
        let socket = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
        let packets = without_heartbeats();
        let (mut running, consumers) = Plant::start(options.clone(), &["test"]).unwrap();
        let consumer = consumers.into_iter().next().unwrap();
        running.replayed().unwrap();
        wait_until("lines", || running.status().channels.len() == 3);
        let channels = running.status().channels;
        let send = |packets: &[(u16, Nanos, Vec<u8>)]| {
            for (channel, _, payload) in packets {
                socket.send_to(payload, channels[usize::from(*channel)].lines[0].address).unwrap();
                std::thread::sleep(Duration::from_micros(100));
            }
        };
        let third = packets.len() / 3;
        send(&packets[..third]);
        let lost = |running: &Plant| running.status().journal.map_or(0, |journal| journal.lost);
        // The journal's folder is not there: no segment can begin.
        std::fs::rename(&folder.0, &away.0).unwrap();
        send(&packets[third..2 * third]);
        wait_until("losses", || lost(&running) > 0);
        std::fs::rename(&away.0, &folder.0).unwrap();
        std::thread::sleep(Duration::from_millis(1_100));
        send(&packets[2 * third..]);
        wait_until("a state behind the loss", || reached(&options) == running.status().events);
        running.stop().unwrap();
        let seen = drain(consumer);
        let mut reader = options.history().unwrap().open(Nanos(0)).unwrap();
        let (mut told, mut next, mut jumps) = (Vec::new(), 0, 0);
        while reader.read(&mut told).unwrap() == Read::Events {
            next += told.len();
            if let Some(start) = reader.start() {
                next = start.first_event() as usize;
                jumps += 1;
                // What follows is what the ring had.
                told.clear();
                reader.read(&mut told).unwrap();
                assert!(seen[next..next + told.len()] == told[..], "{every:?}");
                next += told.len();
            }
            told.clear();
        }
        next += told.len();
        assert_eq!((next, jumps > 0), (seen.len(), true), "{every:?}");
        let (mut again, consumers) = Plant::start(options.clone(), &["test"]).unwrap();
        let replayed = again.replayed().unwrap();
        assert_eq!(again.first_event() + replayed.events, seen.len() as u64, "{every:?}");
        drop(consumers);
        drop(again);
    }
}

/// Books, NBBO and symbols are the same.
fn same_market(one: &MarketStage, other: &MarketStage) {
    let (one, other) = (one.image().sorted(), other.image().sorted());
    assert!(one == other);
}

#[test]
fn books_of_another_event_are_not_joined_with_the_engine() {
    let folder = Temporary::new();
    fs::create_dir_all(&folder.0).unwrap();
    let (mut engine, mut market) = (Engine::new(&plant().engine()), stage());
    run(&mut engine, &mut market, &session()[..500]);
    let coordinator = Arc::new(Coordinator::default());
    let status = Arc::default();
    let ((states, jobs), (to, books)) = (channel(), channel());
    let part = BooksPart::new(Arc::clone(&coordinator), to, Arc::clone(&status));
    let (folder_of, of_writer) = (folder.0.clone(), Arc::clone(&coordinator));
    let writer = CheckpointWriter {
        folder: folder_of,
        is_regular: true,
        jobs,
        books,
        coordinator: of_writer,
        status: Arc::clone(&status),
    };
    let at = engine.counters().events;
    let under_way = coordinator.begin().unwrap();
    assert!(coordinator.begin().is_none(), "one at a time");
    coordinator.ask_for_books(at);
    assert!(part.is_wanted_at(at) && !part.is_wanted_at(at - 1));
    // Of one that was given up.
    part.hand_over(at - 1, |image| stage().image_in(image));
    part.hand_over(at, |image| market.image_in(image));
    assert!(!part.is_wanted_at(at));
    states.send((500, Box::new(Taken::new(&engine, None, under_way).unwrap()))).unwrap();
    let running = std::thread::spawn(move || writer.run());
    wait_until("a snapshot", || status.lock().unwrap().snapshots.written == 1);
    wait_until("the next may begin", || coordinator.begin().is_some());
    let (restored, refused) = newest(&folder.0, &opened(500), &plant().engine());
    let (restored, mut taken) = (restored.unwrap(), stage());
    assert!(refused.is_empty());
    taken.restore(restored.market);
    same_market(&taken, &market);
    // The thread of the books ends, and with it the hope for them.
    drop(part);
    let under_way = coordinator.begin().unwrap();
    states.send((501, Box::new(Taken::new(&engine, None, under_way).unwrap()))).unwrap();
    drop(states);
    running.join().unwrap();
    let snapshots = status.lock().unwrap().snapshots.clone();
    assert_eq!((snapshots.written, snapshots.failed), (1, 1));
    assert!(snapshots.error.unwrap().contains("has ended"));
}
