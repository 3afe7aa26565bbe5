//! The daily roll of a plant: days that are over become files, while the journal goes on.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::time::{Duration, Instant};

use dbn::decode::dbn::Decoder;
use tapeworks_engine::Engine;
use tapeworks_engine::days::{EarlierJournal, earlier_journals};
use tapeworks_engine::records::record_of;
use tapeworks_feed::Application;
use tapeworks_feed::live::Input;
use tapeworks_generator::{Packets, Scenario, Unit, VenueConfig, VenueKind};
use tapeworks_journal::{JournalOptions, JournalWriter};
use tapeworks_market::{Event, Line, Market, Publisher};
use tapeworks_plant::roll::RollSetting;
use tapeworks_plant::{JournalSetting, PlantOptions, ReceiveOptions, VenueOptions};
use tapeworks_service::config::Config;
use tapeworks_service::service::Service;
use tapeworks_store::{Options, Schema, Writer};
use tapeworks_time::Nanos;
use tapeworks_time::clock;
use tempfile::tempdir;

/// A plant of one venue that keeps a journal.
fn plant(journal: &Path) -> PlantOptions {
    let venue = VenueOptions {
        orders: 1 << 16,
        name: "Nasdaq".to_owned(),
        application: Application::TotalViewItch50,
        publisher: Publisher::XNAS_ITCH,
        lines: vec![([127, 0, 0, 1], 0).into()],
        retransmission: None,
        snapshot: None,
        login: Default::default(),
        arbiter: Default::default(),
        snapshots: Default::default(),
    };
    PlantOptions {
        venues: vec![venue],
        receive: ReceiveOptions { buffers: 256, ..ReceiveOptions::default() },
        ring_events: 1 << 16,
        journal: Some(JournalSetting::new(journal)),
        ..PlantOptions::default()
    }
}

/// Keeps a session whose second half is received at the times that `later` gives. Returns its events.
fn keep(journal: &Path, later: impl Fn(Nanos) -> Nanos) -> Vec<Event> {
    let venues = vec![VenueConfig { kind: VenueKind::Nasdaq, share: 1, unit: Unit::WHOLE }];
    let scenario = Scenario { venues, seed: 71, heartbeat_ns: 0, ..Scenario::full_session(3_000, 8) };
    let (mut packets, mut all) = (Packets::new(&scenario).unwrap(), Vec::new());
    while let Some(packet) = packets.next_packet() {
        all.push((Nanos(packet.timestamp_ns), packet.payload.to_vec()));
    }
    let (mut writer, _) = JournalWriter::open(journal, JournalOptions::default()).unwrap();
    let (mut engine, mut events) = (Engine::new(&plant(journal).engine()), Vec::new());
    for (at, (received, payload)) in all.iter().enumerate() {
        let received = if at < all.len() / 2 { *received } else { later(*received) };
        let input = Input::Packet { channel: 0, line: Line::A, received, payload };
        writer.append(&record_of(&input.borrowed(), &mut [0; 16])).unwrap();
        engine.input(&input.borrowed(), &mut events);
    }
    writer.sync().unwrap();
    events
}

/// The records of a DBN file.
fn records(path: &Path) -> Vec<Vec<u8>> {
    let (mut records, mut decoder) = (Vec::new(), Decoder::from_file(path).unwrap());
    while let Some(record) = decoder.decode_ref().unwrap() {
        records.push(record.as_ref().to_vec());
    }
    records
}

/// What a file of all of the events holds.
fn whole(events: &[Event], path: &Path) -> Vec<Vec<u8>> {
    let mut writer = Writer::create(path, Schema::Mbo, &Options::default()).unwrap();
    let mut market = Market::new(&plant(path).books());
    market.apply(events, |update, instruments| writer.put(update, instruments).unwrap());
    writer.finish(&market.instruments).unwrap();
    records(path)
}

#[test]
fn a_plant_that_starts_on_a_new_day_makes_the_files_of_the_day_before() {
    let (journal, out) = (tempdir().unwrap(), tempdir().unwrap());
    keep(journal.path(), |received| received);
    let roll = RollSetting {
        folder: out.path().to_path_buf(),
        schemas: vec![Schema::Cmbp1],
        ending: "parquet".to_owned(),
    };
    let config = Config { plant: plant(journal.path()), roll: Some(roll), ..Config::default() };
    for start in 0..2 {
        let service = Service::start(&config, None).unwrap();
        let began = Instant::now();
        let is_done = || match service.status().roll.done.first() {
            Some(day) => day.outcome.clone().unwrap().1 > 100,
            // Nothing is left to do.
            None => start == 1 && began.elapsed() > Duration::from_millis(300),
        };
        while !is_done() {
            // The roll has what processor time nobody else wants.
            assert!(began.elapsed() < Duration::from_secs(180), "{:?}", service.status().roll);
            std::thread::sleep(Duration::from_millis(10));
        }
        let days = earlier_journals(journal.path()).unwrap();
        let [EarlierJournal { date: day, .. }] = &days[..] else { panic!("{days:?}") };
        assert!(out.path().join(format!("{day}/nbbo/cmbp-1.parquet")).is_file());
        assert_eq!(service.status().roll.done.len(), 1 - start);
        service.stop().unwrap();
    }
}

#[test]
fn a_day_that_is_over_is_rolled_while_the_journal_goes_on() {
    let (journal, out) = (tempdir().unwrap(), tempdir().unwrap());
    let began = tapeworks_runtime::now();
    let events = keep(journal.path(), |_| began);
    let roll = RollSetting {
        folder: out.path().to_path_buf(),
        schemas: vec![Schema::Mbo],
        ending: "dbn".to_owned(),
    };
    let config = Config { plant: plant(journal.path()), roll: Some(roll), ..Config::default() };
    let service = Service::start(&config, None).unwrap();
    assert_eq!(service.replayed().events, events.len() as u64, "it is all there");
    let since = Instant::now();
    let status = loop {
        let status = service.status().roll;
        if !status.done.is_empty() {
            break status;
        }
        assert!(since.elapsed() < Duration::from_secs(60), "{status:?}");
        std::thread::sleep(Duration::from_millis(10));
    };
    service.stop().unwrap();
    assert!(earlier_journals(journal.path()).unwrap().is_empty(), "nothing is moved away");
    let [day] = &status.done[..] else { panic!("{status:?}") };
    let path = out.path().join(format!("{}/XNAS.ITCH/mbo.dbn", day.date));
    let all = whole(&events, &out.path().join("mbo.dbn"));
    let rolled = records(&path);
    assert!(rolled.len() > 100 && rolled.len() < all.len() && rolled == all[..rolled.len()]);
    assert!(!out.path().join(clock::date_at(began).unwrap().to_string()).exists(), "today goes on");
}
