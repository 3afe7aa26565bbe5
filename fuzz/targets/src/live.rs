//! What enters a live plant, and what its journal keeps.

use std::io::Write as _;

use tapeworks_feed::arbitration::{ArbiterOptions, RetransmissionOptions};
use tapeworks_feed::live::{Ask, Input, LiveChannelOptions, LiveFeed, SnapshotOptions};
use tapeworks_feed::{Application, FeedOptions};
use tapeworks_market::{Event, EventKind, Line, Nanos, Publisher};
use tapeworks_store::journal::{JournalOptions, JournalReader, JournalWriter, Record, verify};

/// Inputs of two channels, each behind a byte of kind and line, two of time, one of length. Whatever comes, each message is told
/// at most once, gaps included, within a session; the same inputs give the same events, also when the feed is kept and
/// restored on the way. Bytes that are no state of a feed are refused.
pub fn live_feed(bytes: &[u8]) {
    let whole = run(bytes, usize::MAX);
    assert_eq!(whole, run(bytes, usize::from(bytes.first().copied().unwrap_or_default()) % 16));
    let _refused = LiveFeed::restore(FeedOptions::default(), Vec::new(), bytes);
}

/// Before the input of number `restored` the feed is kept and restored.
fn run(bytes: &[u8], restored: usize) -> Vec<Event> {
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
        channel("deep", Application::IexDeep10, Publisher::IEXG_DEEP),
    ];
    let mut live = LiveFeed::new(FeedOptions::default(), channels.clone());
    let mut number = 0;
    let mut events = Vec::new();
    let mut attempts = [0; 2];
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
            3 => Input::Snapshot { channel, attempt, received: now, messages: body },
            4 => Input::SnapshotEnd { channel, attempt, received: now, next: u64::from(*length) },
            5 => Input::SnapshotFailed { channel, attempt, received: now },
            _ => Input::Tick { now },
        };
        live.input(&input, &mut |event| events.push(event));
        while let Some(ask) = live.take_ask() {
            if let Ask::Snapshot { channel, attempt, .. } = ask {
                attempts[usize::from(channel)] = attempt;
            }
        }
    }
    for event in &events {
        assert!(event.kind != EventKind::Gap || event.gap().is_some());
    }
    events
}

/// The configuration of a plant, of venues, of a flow: never a panic, and what is wrong is told with a line.
pub fn config(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let wrong = [
        tapeworks_plant::live::config::Config::parse("fuzz.toml", &text).err(),
        tapeworks_plant::venues::Config::parse("fuzz.toml", &text).err(),
    ];
    for errors in wrong.into_iter().flatten() {
        assert!(!errors.is_empty());
        for error in errors {
            let told = error.to_string();
            assert!(told.starts_with("fuzz.toml"), "{told}");
        }
    }
}

/// A segment of a journal: never a panic; what is read before the first damage is what is checked; and a writer goes on behind
/// what it could mend.
pub fn journal(bytes: &[u8]) {
    let folder = std::env::temp_dir().join(format!("tapeworks-fuzz-journal-{}", std::process::id()));
    let _not_there = std::fs::remove_dir_all(&folder);
    let options = JournalOptions { segment_bytes: 4_096, keep_bytes: None };
    let (mut writer, _) = JournalWriter::open(&folder, options).unwrap();
    for number in 0..4u8 {
        writer.append(&Record { kind: number, payload: &[number; 40], ..Record::default() }).unwrap();
    }
    drop(writer);
    let path = folder.join("00000000000000000000.journal");
    let mut segment = std::fs::read(&path).unwrap();
    // The bytes lie over what was written, from a place that they tell.
    let (at, over) = bytes.split_first().map_or((0, bytes), |(at, over)| (usize::from(*at), over));
    for (to, from) in segment.iter_mut().skip(at).zip(over) {
        *to = *from;
    }
    std::fs::File::create(&path).unwrap().write_all(&segment).unwrap();
    let checked = verify(&folder).unwrap();
    let mut read = 0;
    if let Ok(mut reader) = JournalReader::open(&folder) {
        while let Ok(Some(_)) = reader.next() {
            read += 1;
        }
    }
    assert!(read <= checked.records, "{read} records are read of {}", checked.records);
    if let Ok((mut writer, opened)) = JournalWriter::open(&folder, options) {
        let number = writer.append(&Record { kind: 9, ..Record::default() }).unwrap();
        assert_eq!(number, opened.next);
        drop(writer);
        let mut reader = JournalReader::from_number(&folder, number).unwrap();
        assert_eq!(reader.next().unwrap().map(|record| record.kind), Some(9));
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
