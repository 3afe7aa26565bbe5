//! Inputs of a live plant, and its journal.

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use tapeworks_engine::checkpoint::Checkpoint;
use tapeworks_feed::live::{Input, LiveChannelOptions, LiveFeed, Request, SnapshotFault, SnapshotOptions};
use tapeworks_feed::{Application, FeedOptions};
use tapeworks_follow::arbitration::{ArbiterOptions, RetransmissionOptions};
use tapeworks_journal::{JournalOptions, JournalReader, JournalWriter, LOST, Record, verify};
use tapeworks_market::{Event, EventKind, InstrumentId, Line, Publisher};
use tapeworks_plant::{JournalSetting, PlantOptions, ReceiveOptions, VenueOptions};
use tapeworks_time::Nanos;

use crate::packets::itch_packets;

/// Inputs of two channels, each behind a byte of kind and line, two of time, one of length. Each message comes out at most once,
/// gaps included, within a session; the same inputs give the same events, also when the feed is kept and restored on the way.
/// Bytes that are no state of a feed are refused.
pub fn live_feed(bytes: &[u8]) {
    // Channels of two feeds, and of one: then a gap of a channel concerns its instruments alone.
    for second in [Publisher::IEXG_DEEP, Publisher::XNAS_ITCH] {
        let whole = run(bytes, second, usize::MAX);
        assert_eq!(whole, run(bytes, second, usize::from(bytes.first().copied().unwrap_or_default()) % 16));
        let is_of_all = |event: &Event| {
            event.instrument == InstrumentId::ALL
                && matches!(event.kind, EventKind::Clear | EventKind::Gap | EventKind::Recovered)
        };
        assert!(second != Publisher::XNAS_ITCH || !whole.iter().any(is_of_all));
    }
    let _refused = LiveFeed::restore(FeedOptions::default(), Vec::new(), bytes);
}

/// Before the input of number `restored` the feed is saved and restored.
fn run(bytes: &[u8], second: Publisher, restored: usize) -> Vec<Event> {
    let channel = |name: &str, application, publisher| LiveChannelOptions {
        name: name.to_owned(),
        application,
        publisher,
        arbiter: ArbiterOptions {
            held_bytes: 2_000,
            retransmission: Some(RetransmissionOptions::default()),
            ..ArbiterOptions::default()
        },
        snapshot: Some(SnapshotOptions::default()),
    };
    let channels = vec![
        channel("itch", Application::TotalViewItch50, Publisher::XNAS_ITCH),
        channel("deep", Application::IexDeep10, second),
    ];
    let mut live = LiveFeed::new(FeedOptions::default(), channels.clone());
    let mut number = 0;
    let mut events = Vec::new();
    let mut attempts = [0; 2];
    // Bytes of messages of these attempts.
    let mut given = [0; 2];
    let mut now = Nanos(1_763_130_600_000_000_000);
    let mut rest = bytes;
    while let Some(([kind, high, low, length], behind)) = rest.split_first_chunk::<4>() {
        if number == restored {
            let kept = live.save().expect("a feed is a state");
            live = LiveFeed::restore(FeedOptions::default(), channels.clone(), &kept).expect("it is sound");
        }
        number += 1;
        now.0 += u64::from(u16::from_be_bytes([*high, *low])) * 65_537;
        let (body, behind) = behind.split_at(usize::from(*length).min(behind.len()));
        rest = behind;
        let channel = u16::from(kind & 1);
        let attempt = attempts[usize::from(channel)];
        let input = match kind >> 1 & 7 {
            0..=2 => {
                let line = [Line::A, Line::B, Line::Recovery][usize::from(kind >> 1 & 3).min(2)];
                Input::Packet { channel, line, received: now, payload: body }
            }
            3 => {
                given[usize::from(channel)] += body.len() as u64;
                Input::Snapshot { channel, attempt, received: now, messages: body }
            }
            4 => {
                let bytes = given[usize::from(channel)];
                Input::SnapshotEnd { channel, attempt, received: now, next: u64::from(*length), bytes }
            }
            5 => Input::SnapshotFailed { channel, attempt, received: now, fault: SnapshotFault::Unknown },
            _ => Input::Tick { now },
        };
        live.input(&input, &mut |event| events.push(event));
        while let Some(request) = live.take_request() {
            if let Request::Snapshot { channel, attempt, .. } = request {
                attempts[usize::from(channel)] = attempt;
                given[usize::from(channel)] = 0;
            }
        }
    }
    for event in &events {
        assert!(event.kind != EventKind::Gap || event.gap().is_some());
    }
    events
}

/// The configuration of a plant, of venues, of a flow: never a panic, and errors name the line.
pub fn config(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let wrong = [
        tapeworks_service::config::Config::parse("fuzz.toml", &text).err(),
        tapeworks_venues::Config::parse("fuzz.toml", &text).err(),
    ];
    for errors in wrong.into_iter().flatten() {
        assert!(!errors.is_empty());
        for error in errors {
            let error = error.to_string();
            assert!(error.starts_with("fuzz.toml"), "{error}");
        }
    }
}

/// A segment of a journal: never a panic; a reader finds every record that a check finds; and a writer goes on behind them.
pub fn journal(bytes: &[u8]) {
    // In memory where the system offers it: syncs of a disk would be most of the time.
    let memory = Path::new("/dev/shm");
    let scratch = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let folder = scratch.join(format!("tapeworks-fuzz-journal-{}", std::process::id()));
    let _not_there = std::fs::remove_dir_all(&folder);
    let options = JournalOptions { segment_bytes: 4_096, keep_bytes: None };
    let (mut writer, _) = JournalWriter::open(&folder, options).unwrap();
    for number in 0..4u8 {
        writer.append(&Record { kind: number, payload: &[number; 40], ..Record::default() }).unwrap();
    }
    drop(writer);
    let path = folder.join("00000000000000000000.journal");
    let mut segment = std::fs::read(&path).unwrap();
    // The first byte says where the others overwrite the segment.
    let (at, over) = bytes.split_first().map_or((0, bytes), |(at, over)| (usize::from(*at), over));
    for (to, from) in segment.iter_mut().skip(at).zip(over) {
        *to = *from;
    }
    std::fs::File::create(&path).unwrap().write_all(&segment).unwrap();
    let checked = verify(&folder, || true).unwrap();
    let read = || {
        let (mut reader, mut read) = (JournalReader::open(&folder).unwrap(), 0);
        while let Some(record) = reader.next().unwrap() {
            read += u64::from(record.kind != LOST);
        }
        read
    };
    assert_eq!(read(), checked.records);
    {
        let (mut writer, opened) = JournalWriter::open(&folder, options).unwrap();
        assert_eq!(read(), checked.records, "nothing sound is cut off");
        let number = writer.append(&Record { kind: 9, ..Record::default() }).unwrap();
        assert_eq!(number, opened.next);
        drop(writer);
        let mut reader = JournalReader::from_number(&folder, number).unwrap();
        assert_eq!(reader.next().unwrap().map(|record| record.kind), Some(9));
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

/// A plant of one venue that takes checkpoints.
fn plant() -> PlantOptions {
    let venue = VenueOptions {
        orders: 1 << 12,
        name: "itch".to_owned(),
        application: Application::TotalViewItch50,
        publisher: Publisher::XNAS_ITCH,
        lines: vec![([127, 0, 0, 1], 0).into()],
        retransmission: None,
        snapshot: None,
        login: Default::default(),
        arbiter: ArbiterOptions::default(),
        snapshots: SnapshotOptions::default(),
    };
    let mut journal = JournalSetting::new("journal");
    journal.checkpoint_every = Some(Duration::from_secs(60));
    PlantOptions {
        venues: vec![venue],
        receive: ReceiveOptions::default(),
        journal: Some(journal),
        ..PlantOptions::default()
    }
}

/// A packet of the venue, a millisecond after the one before it.
fn packet(number: usize, payload: &[u8]) -> Input<&[u8]> {
    let received = Nanos(1_763_130_600_000_000_000 + number as u64 * 1_000_000);
    Input::Packet { channel: 0, line: Line::A, received, payload }
}

/// Files of a plant that has heard more and more packets, in the form that [`checkpoint`] takes.
pub(crate) fn checkpoints(packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let (mut state, mut events) = (Checkpoint::new(&plant().engine()), Vec::new());
    let mut files = Vec::new();
    for (number, payload) in packets.iter().enumerate() {
        if number % 8 == 0 {
            let file = state.write().expect("it is a state");
            let read = Checkpoint::read(&file, &plant().engine()).expect("it was written just now");
            assert_eq!((read.record(), read.next_event()), (number as u64, events.len() as u64));
            files.push([&[SEALED], &file[..]].concat());
        }
        state.input(&packet(number, payload), &mut events);
    }
    files
}

/// The first byte of an input whose length and CRC the target makes right, so that what is behind them is reached.
const SEALED: u8 = 1;

/// The file of a checkpoint: invalid bytes are refused in one line; a valid state becomes the same file again, and handles
/// later inputs like the saved one.
pub fn checkpoint(bytes: &[u8]) {
    let Some((form, file)) = bytes.split_first() else { return };
    let (options, mut file) = (plant().engine(), file.to_vec());
    if *form == SEALED && file.len() >= 48 {
        let length = (file.len() - 48) as u64;
        file[24..32].copy_from_slice(&length.to_le_bytes());
        let crc = crc32fast::hash(&file[12..]);
        file[8..12].copy_from_slice(&crc.to_le_bytes());
    }
    let mut state = match Checkpoint::read(&file, &options) {
        Ok(state) => state,
        Err(error) => return assert_eq!(error.to_string().lines().count(), 1, "{error}"),
    };
    let kept = state.write().expect("it is a state");
    let mut twin = Checkpoint::read(&kept, &options).expect("it was written just now");
    assert_eq!((state.record(), state.next_event()), (twin.record(), twin.next_event()));
    assert!(twin.write().as_ref() == Ok(&kept), "it becomes another file");
    let (mut events, mut same) = (Vec::new(), Vec::new());
    for (number, payload) in itch_packets().iter().enumerate() {
        state.input(&packet(number, payload), &mut events);
        twin.input(&packet(number, payload), &mut same);
    }
    assert_eq!(events, same);
    assert!(state.write() == twin.write());
}
