//! Checkpoints of running plants, and readers that continue from them.

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use tapeworks_engine::MarketStage;
use tapeworks_engine::checkpoint::folder::newest;
use tapeworks_engine::history::{History, Read};
use tapeworks_journal::Opened;
use tapeworks_market::Event;
use tapeworks_market::nbbo::{NbboRules, StaleBooks};
use tapeworks_time::Nanos;
use tempfile::tempdir;

use super::*;
use crate::journal::JournalSetting;
use crate::tests::plant;
use crate::tests::support::{run, session, without_heartbeats};
use crate::{EventConsumer, Plant, PlantOptions, Topology};

fn stage() -> MarketStage {
    MarketStage::new(&plant().engine(), ())
}

/// Returns the records of the checkpoints in a folder.
fn records_in(folder: &Path) -> Vec<u64> {
    folder::check(folder).unwrap().into_iter().map(|checkpoint| checkpoint.record).collect()
}

fn opened(next: u64) -> Opened {
    Opened { first: 0, next, ..Opened::default() }
}

/// Returns all events of a stopped plant.
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
fn a_day_goes_on_from_the_checkpoint_of_a_plant_with_another_topology() {
    let topologies = [Topology::Pipeline, Topology::Inline, Topology::Pipeline];
    let folder = tempdir().unwrap();
    let mut options = plant();
    options.ring_events = 1 << 16;
    options.rules = NbboRules { stale_books: StaleBooks::Flag, ..NbboRules::default() };
    let mut journal = JournalSetting::new(folder.path());
    journal.checkpoint_every = Some(Duration::from_millis(100));
    journal.queue = 64;
    options.journal = Some(journal);
    let socket = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
    let packets = without_heartbeats();
    let third = packets.len() / 3;
    let mut seen = Vec::new();
    for (round, (piece, topology)) in packets.chunks(third).zip(topologies).enumerate() {
        options.topology = topology;
        let found = records_in(folder.path());
        let (mut plant, mut readers) = Plant::start(options.clone(), &["test"]).unwrap();
        let consumer = readers.take("test").unwrap().consumer;
        let replayed = plant.replayed().unwrap();
        let status = plant.status();
        if round == 0 {
            assert_eq!((plant.first_event(), status.checkpoints.restored), (0, None));
        } else {
            assert!(status.checkpoints.restored.is_some(), "{:?}", status.checkpoints);
            assert!(status.checkpoints.refused.is_empty());
            assert_eq!(plant.first_event() + replayed.events, seen.len() as u64, "where it was");
        }
        let first = plant.first_event() as usize;
        wait_until("lines", || plant.status().channels.len() == 3);
        let lines: Vec<SocketAddr> =
            plant.status().channels.iter().map(|channel| channel.lines[0].address).collect();
        let had = plant.status().engine.events;
        for (channel, _, payload) in piece {
            socket.send_to(payload, lines[usize::from(*channel)]).unwrap();
            std::thread::sleep(Duration::from_micros(100));
        }
        wait_until("events", || plant.status().engine.events > had + 500);
        let written = plant.status().checkpoints.written;
        wait_until("snapshots", || plant.status().checkpoints.written > written + 1);
        let handle = plant.status_handle();
        plant.stop().unwrap();
        let status = handle.lock().unwrap().clone();
        let snapshots = &status.checkpoints;
        assert_eq!((&snapshots.error, snapshots.failed, snapshots.skipped), (&None, 0, 0));
        assert_eq!(snapshots.taken, snapshots.written, "none is left half done");
        assert_eq!(snapshots.books_pause_ns > 0, topology == Topology::Pipeline);
        let events = drain(consumer);
        let kept = records_in(folder.path());
        assert!(found.iter().all(|record| kept.contains(record)), "those that were there");
        assert!(kept.len() <= found.len() + 3, "the newest two, and the first of the segment: {kept:?}");
        // The ring's earlier events are the published ones.
        seen.truncate(first + replayed.events as usize);
        assert_eq!(seen.get(first..), events.get(..replayed.events as usize));
        seen.truncate(first);
        seen.extend(events);
    }
    // A history covers the whole day, regardless of checkpoints.
    let mut reader = options.history().unwrap().open(Nanos(0)).unwrap();
    let mut whole = Vec::new();
    while let Read::Events(events) = reader.read().unwrap() {
        whole.extend_from_slice(events);
    }
    assert!(whole == seen, "{} and {}", whole.len(), seen.len());
    // The books of the last checkpoint match the books built from its events in one thread, regardless of which threads copied
    // them.
    let opened = opened(u64::MAX);
    let (restored, refused) = newest(folder.path(), &opened, &options.engine());
    let (restored, mut straight) = (restored.unwrap(), stage());
    assert!(refused.is_empty());
    straight.apply(&whole[..restored.engine.counters().events as usize]);
    let mut taken = stage();
    taken.restore(restored.market);
    same_market(&taken, &straight);
}

/// Returns the number of the event that a reader of the journal reaches.
fn reached(options: &PlantOptions) -> u64 {
    let mut reader = options.history().unwrap().open(Nanos(0)).unwrap();
    let mut next = 0;
    loop {
        match reader.read().unwrap() {
            Read::Start { start, .. } => next = start.first_event(),
            Read::Events(events) => next += events.len() as u64,
            Read::CaughtUp => return next,
        }
    }
}

#[test]
fn a_plant_whose_journal_loses_inputs_takes_a_checkpoint_so_that_readers_and_the_next_start_agree() {
    for every in [None, Some(Duration::from_millis(100))] {
        let (folder, away) = (tempdir().unwrap(), tempdir().unwrap());
        let mut options = plant();
        options.ring_events = 1 << 16;
        let mut setting = JournalSetting::new(folder.path());
        (setting.checkpoint_every, setting.options.segment_bytes) = (every, 4_096);
        options.journal = Some(setting);
        let socket = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
        let packets = without_heartbeats();
        let (mut running, mut readers) = Plant::start(options.clone(), &["test"]).unwrap();
        let consumer = readers.take("test").unwrap().consumer;
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
        // The journal's folder is missing, so no segment can begin.
        std::fs::rename(folder.path(), away.path()).unwrap();
        send(&packets[third..2 * third]);
        wait_until("losses", || lost(&running) > 0);
        std::fs::rename(away.path(), folder.path()).unwrap();
        std::thread::sleep(Duration::from_millis(1_100));
        send(&packets[2 * third..]);
        wait_until("a state behind the loss", || reached(&options) == running.status().engine.events);
        running.stop().unwrap();
        let seen = drain(consumer);
        let mut reader = options.history().unwrap().open(Nanos(0)).unwrap();
        let (mut next, mut jumps, mut is_behind) = (0, 0, false);
        loop {
            match reader.read().unwrap() {
                Read::Start { start, .. } => {
                    next = start.first_event() as usize;
                    (jumps, is_behind) = (jumps + 1, true);
                }
                Read::Events(events) => {
                    // The events after a checkpoint match those in the ring.
                    let had = &seen[next..next + events.len()];
                    assert!(!std::mem::take(&mut is_behind) || had == events, "{every:?}");
                    next += events.len();
                }
                Read::CaughtUp => break,
            }
        }
        assert_eq!((next, jumps > 0), (seen.len(), true), "{every:?}");
        let (mut again, readers) = Plant::start(options.clone(), &["test"]).unwrap();
        let replayed = again.replayed().unwrap();
        assert_eq!(again.first_event() + replayed.events, seen.len() as u64, "{every:?}");
        drop(readers);
        drop(again);
    }
}

/// Checks that books, NBBO and symbols are the same.
fn same_market(one: &MarketStage, other: &MarketStage) {
    let (one, other) = (one.image().sorted(), other.image().sorted());
    assert!(one == other);
}

#[test]
fn books_of_another_event_are_not_joined_with_the_engine() {
    let folder = tempdir().unwrap();
    fs::create_dir_all(folder.path()).unwrap();
    let (mut engine, mut market) = (Engine::new(&plant().engine()), stage());
    run(&mut engine, &mut market, &session()[..500]);
    let coordinator = Arc::new(Coordinator::default());
    let status = Arc::default();
    let ((states, jobs), (to, books)) = (channel(), channel());
    let part = BooksPart::<System>::new(Arc::clone(&coordinator), to, Arc::clone(&status));
    let (folder_of, of_writer) = (folder.path().to_path_buf(), Arc::clone(&coordinator));
    let writer = CheckpointWriter::<System> {
        folder: folder_of,
        start: 0,
        is_regular: true,
        jobs,
        books,
        coordinator: of_writer,
        status: Arc::clone(&status),
        operations: None,
    };
    let at = engine.counters().events;
    let under_way = coordinator.begin().unwrap();
    assert!(coordinator.begin().is_none(), "one at a time");
    coordinator.request_books(at);
    assert!(part.is_wanted_at(at) && !part.is_wanted_at(at - 1));
    // An image of an abandoned checkpoint.
    part.hand_over(at - 1, |image| stage().image_in(image));
    part.hand_over(at, |image| market.image_in(image));
    assert!(!part.is_wanted_at(at));
    states.send((500, Box::new(Taken::new(&engine, None, under_way, Nanos(0), Nanos(0)).unwrap()))).unwrap();
    let running = std::thread::spawn(move || writer.run());
    wait_until("a snapshot", || status.lock().unwrap().checkpoints.written == 1);
    wait_until("the next may begin", || coordinator.begin().is_some());
    let (restored, refused) = newest(folder.path(), &opened(500), &plant().engine());
    let (restored, mut taken) = (restored.unwrap(), stage());
    assert!(refused.is_empty());
    taken.restore(restored.market);
    same_market(&taken, &market);
    // The thread of the books ends, so the wait for them ends too.
    drop(part);
    let under_way = coordinator.begin().unwrap();
    states.send((501, Box::new(Taken::new(&engine, None, under_way, Nanos(0), Nanos(0)).unwrap()))).unwrap();
    drop(states);
    running.join().unwrap();
    let snapshots = status.lock().unwrap().checkpoints.clone();
    assert_eq!((snapshots.written, snapshots.failed), (1, 1));
    assert!(snapshots.error.unwrap().contains("has ended"));
}
