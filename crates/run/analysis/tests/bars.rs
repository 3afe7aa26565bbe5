//! Bars of generated captures, compared with the plain bars of `tops`.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod tops;

use std::path::Path;

use tapeworks_capture::CaptureReader;
use tapeworks_capture::net;
use tapeworks_generator::{Scenario, Unit, VenueConfig, VenueKind};

/// In the flags of a trade.
const EXTENDED_HOURS: u8 = 1 << 6;

/// Changes the sale conditions of a capture's trades in place, as `change` says by their number. Returns the new ones.
fn with_conditions(path: &Path, change: impl Fn(usize, u8) -> u8) -> Vec<u8> {
    let mut capture = std::fs::read(path).unwrap();
    let (mut places, mut checksums) = (Vec::new(), Vec::new());
    let mut reader = CaptureReader::open(path).unwrap();
    while let Some(packet) = reader.next_packet().unwrap() {
        let datagram = net::parse(packet.link_type, packet.bytes).unwrap();
        let payload = usize::try_from(packet.offset).unwrap() + datagram.payload_offset;
        checksums.push(payload - 2..payload);
        tops::for_each_message(datagram.payload, |at, message| {
            if matches!(message[0], b'T' | b'L') {
                places.push(payload + at + 1);
            }
        });
    }
    let mut changed = |(number, place): (usize, usize)| {
        capture[place] = change(number, capture[place]);
        capture[place]
    };
    let flags = places.into_iter().enumerate().map(&mut changed).collect();
    // The checksums do not fit the changed messages: 0 stands for none.
    checksums.into_iter().for_each(|checksum| capture[checksum].fill(0));
    std::fs::write(path, capture).unwrap();
    flags
}

#[test]
fn bars_of_iex_count_each_trade_by_its_own_flags() {
    for kind in VenueKind::each(["iex-tops", "iex-deep", "iex-deep-plus"]) {
        compare(kind);
    }
}

fn compare(kind: VenueKind) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("iex.pcap");
    let venues = vec![VenueConfig { kind, share: 1, unit: Unit::WHOLE }];
    let scenario = Scenario { venues, seed: 5, ..Scenario::full_session(40_000, 6) };
    tapeworks_generator::write_pcap(&scenario, std::fs::File::create(&path).unwrap()).unwrap();
    // First as the generator marks trades, by the time of day; then in runs of sixteen that ignore it, as in a venue's test session.
    for runs in [false, true] {
        let flags = with_conditions(&path, |number, flags| match runs {
            true if number / 16 % 2 == 0 => flags | EXTENDED_HOURS,
            true => flags & !EXTENDED_HOURS,
            false => flags,
        });
        let marked = flags.iter().filter(|flags| **flags & EXTENDED_HOURS != 0).count();
        assert!(flags.len() > 500 && (1..flags.len()).contains(&marked), "{marked} of {}", flags.len());
        for interval_s in [60, 3_600] {
            let plain = tops::plain_bars(&path, interval_s * 1_000_000_000);
            assert!(plain.values().any(|(prices, ..)| prices[0].is_some()));
            assert_eq!(tops::bars_of(&path, interval_s * 1_000_000_000), plain, "{kind:?}");
        }
    }
}
