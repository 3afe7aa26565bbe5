//! A replay step by step, beside a replay in one go.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::ops::ControlFlow;
use std::path::PathBuf;

use tapeworks_analysis::replay::{self, Advanced, Options, Walk};
use tapeworks_capture::CaptureReader;
use tapeworks_capture::net;
use tapeworks_generator::{Scenario, Unit, VenueConfig, VenueKind};
use tapeworks_market::{InstrumentId, Level, Nbbo, Side};
use tapeworks_time::Nanos;

/// Two captures with a venue each.
fn captures(folder: &std::path::Path) -> Vec<PathBuf> {
    let write = |(name, kind, seed): (&str, VenueKind, u64)| {
        let path = folder.join(name);
        let venues = vec![VenueConfig { kind, share: 1, unit: Unit::WHOLE }];
        let scenario = Scenario { venues, seed, ..Scenario::full_session(10_000, 20) };
        tapeworks_generator::write_pcap(&scenario, std::fs::File::create(&path).unwrap()).unwrap();
        path
    };
    [("one.pcap", VenueKind::Nasdaq, 3), ("two.pcap", VenueKind::Bx, 3)].map(write).into()
}

/// All books, level by level, and each NBBO.
fn state(walk: &Walk) -> (Vec<Vec<Level>>, Vec<Nbbo>) {
    let instruments = walk.instruments().symbols().len() as u32;
    let books = walk.books().feeds().iter().flat_map(|books| {
        (0..instruments).flat_map(move |index| {
            [Side::Bid, Side::Ask].map(|side| books.book(InstrumentId(index)).levels(side).collect())
        })
    });
    let stage = walk.nbbo().unwrap();
    let nbbo = (0..instruments).map(|index| *stage.nbbo(InstrumentId(index)));
    (books.collect(), nbbo.collect())
}

#[test]
fn a_walk_ends_with_what_a_replay_has() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options { inputs: captures(folder.path()), ..Options::default() };
    let whole = replay::replay(&options, &mut |_| ControlFlow::Continue(())).unwrap();
    let mut walk = Walk::open(options.clone()).unwrap();
    let mut stops = 0;
    while walk.advance(Nanos(u64::MAX), 100) == Advanced::Most {
        stops += 1;
    }
    assert!(stops > 100);
    assert_eq!(walk.advance(Nanos(u64::MAX), 1), Advanced::Ended);
    let walked = walk.finish();
    assert_eq!((walked.messages, walked.events), (whole.messages, whole.events));
    assert_eq!(walked.nbbo, whole.nbbo);
    assert_eq!(format!("{:?}", walked.feeds), format!("{:?}", whole.feeds));
}

#[test]
fn a_walk_stops_before_a_time_and_has_the_books_of_the_packets_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let inputs = captures(folder.path());
    // All packets of both, by time; of equal times the first file's first.
    let mut packets = Vec::new();
    for path in &inputs {
        let mut reader = CaptureReader::open(path).unwrap();
        while let Some(packet) = reader.next_packet().unwrap() {
            packets.push((packet.timestamp_ns, packet.link_type, packet.bytes.to_vec()));
        }
    }
    packets.sort_by_key(|(time, ..)| *time);
    let mut files = Walk::open(Options { inputs, ..Options::default() }).unwrap();
    let mut ours = Walk::open(Options::default()).unwrap();
    let (mut at, mut had_nbbo) = (0, false);
    for part in 1..=4 {
        let until = packets[packets.len() * part / 4 - 1].0;
        assert_eq!(files.advance(Nanos(until), u64::MAX), Advanced::Until);
        while packets[at].0 < until {
            let (time, link_type, bytes) = &packets[at];
            ours.packet(Nanos(*time), net::parse(*link_type, bytes).unwrap());
            at += 1;
        }
        assert_eq!(files.messages(), ours.messages());
        assert_eq!(state(&files), state(&ours));
        assert_eq!(files.time(), ours.time());
        had_nbbo |= state(&ours).1.iter().any(|nbbo| nbbo.bid.price.is_some());
    }
    assert!(had_nbbo);
}

#[test]
fn a_damaged_file_ends_a_walk_there_and_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let inputs = captures(folder.path());
    let bytes = std::fs::read(&inputs[1]).unwrap();
    std::fs::write(&inputs[1], &bytes[..bytes.len() / 2 + 1]).unwrap();
    let whole = {
        let options = Options { inputs: inputs.clone(), ..Options::default() };
        replay::replay(&options, &mut |_| ControlFlow::Continue(())).unwrap()
    };
    let mut walk = Walk::open(Options { inputs, ..Options::default() }).unwrap();
    assert_eq!(walk.advance(Nanos(u64::MAX), u64::MAX), Advanced::Ended);
    let walked = walk.finish();
    assert_eq!(walked.messages, whole.messages);
    let [error] = walked.file_errors.as_slice() else { panic!("{:?}", walked.file_errors) };
    assert!(
        error.file().ends_with("two.pcap") && error.number() > Some(1_000) && error.offset() > Some(1_000)
    );
    assert_eq!(error.to_string(), whole.file_errors[0].to_string());
    assert_eq!(walked.to_json()["messages"], whole.messages);
}
