//! Whole generated sessions, decoded again and held against the oracle.

#![allow(clippy::expect_used, clippy::unwrap_used)] // a failure here is a failed test

mod model;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use model::{DeepPlusVenue, DeepVenue, ItchVenue, MemxVenue, TopsVenue};
use tapeworks_capture::framed::FramedReader;
use tapeworks_capture::net;
use tapeworks_capture::source::ByteSource;
use tapeworks_capture::{CaptureReader, LinkType};
use tapeworks_generator::{
    Burst, Generator, LineFaults, MAX_MESSAGE_BYTES, MAX_VENUES, Packets, Popularity, Scenario,
    ScenarioError, Unit, VenueConfig, VenueKind, write_itch, write_pcap,
};
use tapeworks_wire::cboe::pitch;
use tapeworks_wire::iex::tp::Segment;
use tapeworks_wire::schema::Schema;
use tapeworks_wire::{iex, memx, nasdaq};

fn every_venue(messages: u64, symbols: u32) -> Scenario {
    let kinds = VenueKind::each(["nasdaq", "bx", "psx", "iex-tops", "iex-deep"]);
    Scenario {
        venues: kinds.map(|kind| VenueConfig { kind, share: 1, unit: Unit::WHOLE }).to_vec(),
        heartbeat_ns: 60_000_000_000,
        ..Scenario::full_session(messages, symbols)
    }
}

fn all_types(schema: &'static Schema) -> BTreeSet<&'static str> {
    schema.messages.iter().map(|message| message.name).collect()
}

/// FNV-1a, 64 bits.
fn hash(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01B3))
}

#[test]
fn every_book_stays_valid_through_a_day_of_five_venues_and_every_message_type_occurs() {
    for seed in [1, 2] {
        let scenario = Scenario { seed, ..every_venue(250_000, 120) };
        let mut generator = Generator::new(&scenario).unwrap();
        let mut itch = [ItchVenue::default(), ItchVenue::default(), ItchVenue::default()];
        let (mut tops, mut deep) = (TopsVenue::default(), DeepVenue::default());
        let (mut message, mut last_ns, mut count) = ([0; MAX_MESSAGE_BYTES], 0, 0u64);
        while let Some(generated) = generator.next_message(&mut message) {
            assert!(generated.timestamp_ns >= last_ns);
            last_ns = generated.timestamp_ns;
            count += 1;
            let bytes = &message[..generated.length];
            match generated.venue {
                3 => tops.apply(bytes),
                4 => deep.apply(bytes),
                venue => itch[venue].apply(bytes),
            }
        }
        assert!(count.abs_diff(250_000) <= 10, "{count}");
        let kinds = |seen: &BTreeMap<&'static str, u64>| seen.keys().copied().collect::<BTreeSet<_>>();
        assert_eq!(kinds(&itch[0].seen), all_types(&nasdaq::itch50::SCHEMA));
        assert_eq!(kinds(&tops.seen), all_types(&iex::tops16::SCHEMA));
        assert_eq!(kinds(&deep.seen), all_types(&iex::deep10::SCHEMA));
        assert!(deep.events_of_several_levels > 100);
        for venue in &itch {
            assert!(venue.live_orders() > 120 * 2, "{}", venue.live_orders());
            assert_eq!(venue.executions_not_first_in_line, 0);
        }
    }
}

#[test]
fn memxs_book_stays_valid_through_a_day_beside_others() {
    let kinds = VenueKind::each(["memx", "bx", "iex-deep"]);
    let venues = kinds.map(|kind| VenueConfig { kind, share: 1, unit: Unit::WHOLE }).to_vec();
    let scenario = Scenario { venues, ..Scenario::full_session(60_000, 30) };
    let mut generator = Generator::new(&scenario).unwrap();
    let (mut memx, mut bx, mut deep) = (MemxVenue::default(), ItchVenue::default(), DeepVenue::default());
    let mut message = [0; MAX_MESSAGE_BYTES];
    while let Some(generated) = generator.next_message(&mut message) {
        let bytes = &message[..generated.length];
        match generated.venue {
            0 => {
                assert_eq!(generated.message_type, bytes[2]);
                memx.apply(bytes);
            }
            1 => bx.apply(bytes),
            _ => deep.apply(bytes),
        }
    }
    let mut never: BTreeSet<&str> = all_types(&memx::depth13::SCHEMA);
    never.retain(|name| !memx.seen.contains_key(name));
    // The generator corrects no trade, and a snapshot's end is GLIMPSE's.
    assert_eq!(never.into_iter().collect::<Vec<_>>(), ["CorrectedTrade", "SnapshotComplete"]);
    assert!(memx.live_orders() > 30 * 2, "{}", memx.live_orders());
}

#[test]
fn deep_plus_is_a_book_of_orders_that_keep_their_numbers() {
    let venues = vec![VenueConfig { kind: VenueKind::IexDeepPlus, share: 1, unit: Unit::WHOLE }];
    let scenario = Scenario { venues, ..Scenario::full_session(60_000, 30) };
    let mut generator = Generator::new(&scenario).unwrap();
    let (mut venue, mut message) = (DeepPlusVenue::default(), [0; MAX_MESSAGE_BYTES]);
    while let Some(generated) = generator.next_message(&mut message) {
        assert_eq!(generated.message_type, message[0]);
        venue.apply(&message[..generated.length]);
    }
    let mut never: BTreeSet<&str> = all_types(&iex::deep_plus10::SCHEMA);
    never.retain(|name| !venue.seen.contains_key(name));
    assert_eq!(never, BTreeSet::from(["ClearBook"]));
    assert!(venue.live_orders() > 30 * 2 && venue.kept_priority > 100, "{venue:?}");
}

#[test]
fn a_raw_file_of_random_symbols_is_valid_and_has_the_mix_of_a_real_day() {
    let scenario = Scenario::benchmark(500_000, 1_000);
    let mut file = Vec::new();
    let report = write_itch(&scenario, &mut file).unwrap();
    assert_eq!(report.bytes, file.len() as u64);
    assert_eq!(report.messages, 500_000);
    let mut venue = ItchVenue::default();
    let mut reader = FramedReader::new(ByteSource::from_bytes("memory", file));
    while let Some(batch) = reader.next_batch().unwrap() {
        for frame in batch {
            venue.apply(frame.bytes);
        }
    }
    assert_eq!(reader.messages(), 500_000);
    let per_mille = |name| venue.seen[name] * 1_000 / report.messages;
    for (name, from, to) in [
        ("AddOrder", 400, 470),
        ("AddOrderWithMpid", 15, 25),
        ("OrderDelete", 360, 420),
        ("OrderReplace", 65, 95),
        ("OrderExecuted", 35, 60),
        ("OrderCancel", 15, 25),
        ("OrderExecutedWithPrice", 1, 4),
        ("Trade", 5, 11),
    ] {
        assert!((from..to).contains(&per_mille(name)), "{name}: {} per mille", per_mille(name));
    }
    assert!(venue.live_orders() > 15_000, "{}", venue.live_orders());
}

#[test]
fn venues_together_are_locked_or_crossed_only_for_moments() {
    let kinds = VenueKind::each(["nasdaq", "psx", "bx"]);
    let venues = kinds.map(|kind| VenueConfig { kind, share: 1, unit: Unit::WHOLE }).to_vec();
    let scenario = Scenario { venues, ..Scenario::full_session(200_000, 20) };
    let mut generator = Generator::new(&scenario).unwrap();
    let mut venues = [ItchVenue::default(), ItchVenue::default(), ItchVenue::default()];
    let mut message = [0; MAX_MESSAGE_BYTES];
    // By whether the market was only locked.
    let mut since = [HashMap::new(), HashMap::new()];
    let (mut times, mut longest_ns) = ([0; 2], [0; 2]);
    while let Some(generated) = generator.next_message(&mut message) {
        let bytes = &message[..generated.length];
        venues[generated.venue].apply(bytes);
        let Some(stock) = venues[generated.venue].stock_of(bytes) else { continue };
        let bid = venues.iter().filter_map(|venue| venue.best(stock)[0]).max();
        let ask = venues.iter().filter_map(|venue| venue.best(stock)[1]).min();
        let is = [
            matches!((bid, ask), (Some(bid), Some(ask)) if bid > ask),
            matches!((bid, ask), (Some(bid), Some(ask)) if bid == ask),
        ];
        for (place, since) in since.iter_mut().enumerate() {
            if is[place] {
                since.entry(stock).or_insert(generated.timestamp_ns);
            } else if let Some(since) = since.remove(&stock) {
                times[place] += 1;
                longest_ns[place] = longest_ns[place].max(generated.timestamp_ns - since);
            }
        }
    }
    let [crossed, locked] = times;
    assert!(locked > 10 && crossed < locked / 2, "it does happen: {times:?}");
    assert!(since.iter().all(HashMap::is_empty));
    // A halt reaches the venues one after the other, which can hold a correction up.
    assert!(longest_ns[0] < 20_000_000 && longest_ns[1] < 100_000_000, "{longest_ns:?} ns");
}

#[test]
fn the_same_seed_gives_the_same_bytes_everywhere() {
    let mut scenario = every_venue(30_000, 20);
    scenario.line_b = true;
    let mut files: Vec<Vec<u8>> = Vec::new();
    for seed in [7, 7, 8] {
        let mut file = Vec::new();
        write_pcap(&Scenario { seed, ..scenario.clone() }, &mut file).unwrap();
        files.push(file);
    }
    assert_eq!(files[0], files[1]);
    assert_ne!(files[0], files[2]);
    let mut raw = Vec::new();
    write_itch(&Scenario::full_session(20_000, 50), &mut raw).unwrap();
    assert_eq!((hash(&raw), hash(&files[0])), (GOLDEN_RAW, GOLDEN_CAPTURE));
}

/// These change when the generator's output does, which the changelog must mention: users compare runs by seed.
const GOLDEN_RAW: u64 = 0xC239_522E_B03E_C89D;
const GOLDEN_CAPTURE: u64 = 0x9ADB_6B76_E664_2377;

/// Every sequence number of one line of one venue, in the order of arrival, with heartbeats left out.
fn sequences(scenario: &Scenario) -> (Vec<[Vec<u64>; 2]>, tapeworks_generator::Report) {
    let mut packets = Packets::new(scenario).unwrap();
    let mut seen: Vec<[Vec<u64>; 2]> = scenario.venues.iter().map(|_| Default::default()).collect();
    let mut last_ns = 0;
    while let Some(packet) = packets.next_packet() {
        assert!(packet.timestamp_ns >= last_ns, "packets come in order of time");
        last_ns = packet.timestamp_ns;
        let transport = scenario.venues[packet.venue].kind.transport();
        let header = transport.header(packet.payload).unwrap();
        assert!(transport.is_sound(packet.payload));
        let (first, count) = (header.first, header.count);
        seen[packet.venue][packet.line].extend((0..count).map(|number| first + number));
    }
    (seen, packets.report().clone())
}

#[test]
fn without_faults_each_line_has_every_message_once_and_in_order() {
    let mut scenario = Scenario { line_b: true, ..every_venue(60_000, 30) };
    scenario.venues.push(VenueConfig { kind: VenueKind::Memx, share: 1, unit: Unit::WHOLE });
    let (seen, report) = sequences(&scenario);
    for (venue, lines) in seen.iter().enumerate() {
        for line in lines {
            assert!(line.iter().copied().eq(1..=report.venues[venue].messages));
        }
    }
    assert!(report.heartbeats > 1_000);
}

#[test]
fn injected_faults_are_those_that_are_found() {
    let fault = LineFaults {
        lost_per_million: 50_000,
        duplicated_per_million: 20_000,
        reordered_per_million: 30_000,
        ..LineFaults::default()
    };
    let scenario = Scenario { line_b: true, faults: [fault; 2], ..every_venue(100_000, 30) };
    let (seen, report) = sequences(&scenario);
    for (venue, lines) in seen.iter().enumerate() {
        let venue = &report.venues[venue];
        let mut missing_everywhere: BTreeSet<u64> = (1..=venue.messages).collect();
        for (line, injected) in lines.iter().zip(venue.injected) {
            let distinct: BTreeSet<u64> = line.iter().copied().collect();
            assert_eq!(venue.messages - distinct.len() as u64, injected.dropped_messages);
            assert_eq!((line.len() - distinct.len()) as u64, injected.duplicated_messages);
            assert!(injected.dropped_packets > 100 && injected.duplicated_packets > 50);
            // A number that comes for the first time after a higher one was overtaken.
            let (mut highest, mut known, mut overtaken) = (0, BTreeSet::new(), BTreeSet::new());
            for number in line {
                if known.insert(*number) && *number < highest {
                    overtaken.insert(*number);
                }
                highest = highest.max(*number);
            }
            assert!(overtaken.len() as u64 >= injected.reordered_packets && injected.reordered_packets > 50);
            missing_everywhere.retain(|number| !distinct.contains(number));
        }
        assert_eq!(missing_everywhere.len() as u64, venue.lost_messages);
        assert!(venue.lost_messages > 0);
    }
}

#[test]
fn late_copies_are_counted_and_come_in_time() {
    let late_copy_ns = 3_000_000_000;
    let fault = LineFaults { late_copies_per_million: 50_000, late_copy_ns, ..LineFaults::default() };
    let scenario =
        Scenario { line_b: true, faults: [LineFaults::default(), fault], ..every_venue(60_000, 30) };
    let mut packets = Packets::new(&scenario).unwrap();
    let (mut first_ns, mut copies, mut latest_ns) = (BTreeMap::new(), vec![[0; 2]; scenario.venues.len()], 0);
    while let Some(packet) = packets.next_packet() {
        let header = scenario.venues[packet.venue].kind.transport().header(packet.payload).unwrap();
        if header.count == 0 || header.is_end_of_session {
            continue;
        }
        let sent_ns =
            *first_ns.entry((packet.venue, packet.line, header.first)).or_insert(packet.timestamp_ns);
        if sent_ns < packet.timestamp_ns {
            copies[packet.venue][packet.line] += 1;
            latest_ns = latest_ns.max(packet.timestamp_ns - sent_ns);
        }
    }
    for (venue, copies) in packets.report().venues.iter().zip(copies) {
        assert_eq!(venue.injected.map(|injected| injected.late_copies), copies, "{:?}", venue.kind);
    }
    assert!((late_copy_ns / 2..late_copy_ns).contains(&latest_ns), "{latest_ns}");
}

#[test]
fn a_capture_has_sound_headers_and_segments_that_continue_each_other() {
    let mut file = Vec::new();
    let report = write_pcap(&every_venue(50_000, 30), &mut file).unwrap();
    assert_eq!(report.bytes, file.len() as u64);
    let mut reader = CaptureReader::new(ByteSource::from_bytes("memory", file)).unwrap();
    let (mut packets, mut offset, mut messages) = (0, 0, 0);
    while let Some(packet) = reader.next_packet().unwrap() {
        packets += 1;
        assert_eq!(packet.link_type, LinkType::ETHERNET);
        let datagram = net::parse(packet.link_type, packet.bytes).unwrap();
        assert!(!datagram.truncated);
        if datagram.destination == VenueKind::IexDeep.groups()[0].into() {
            let segment = Segment::decode(datagram.payload).unwrap();
            assert_eq!(segment.stream_offset(), offset);
            assert_eq!(segment.first_message_sequence_number(), messages + 1);
            assert_eq!(segment.send_time().nanoseconds(), packet.timestamp_ns);
            offset += u64::from(segment.payload_length());
            messages += u64::from(segment.message_count());
        }
    }
    assert_eq!(packets, report.packets);
    assert_eq!(messages, report.venues[4].messages);
}

#[test]
fn messages_of_the_same_moment_share_a_packet() {
    let scenario = Scenario { messages: 300_000, ..Scenario::close_burst() };
    let mut packets = Packets::new(&scenario).unwrap();
    let mut longest = 0;
    while let Some(packet) = packets.next_packet() {
        longest = longest.max(packet.payload.len());
        assert!(packet.payload.len() <= 1_400);
    }
    assert!(longest > 300, "{longest}");
    let report = packets.report();
    assert!(report.packets * 3 / 2 < report.messages, "{report:?}");
    assert!((3_800..5_000).contains(&report.peak_per_ms), "{report:?}");
}

#[test]
fn small_and_strange_scenarios_end_too() {
    for (symbols, messages, popularity) in [
        (1, 0, Popularity::Zipf),
        (1, 1_000, Popularity::Uniform),
        (2, 1, Popularity::Zipf),
        (9, 50_000, Popularity::Zipf),
    ] {
        let scenario = Scenario { popularity, ..every_venue(messages, symbols) };
        let (_, report) = sequences(&scenario);
        assert!(report.messages >= messages.saturating_sub(10), "{report:?}");
    }
    let short = Scenario { start_ns: 0, end_ns: 1, micro_bursts: 3, ..every_venue(1_000, 3) };
    assert!(sequences(&short).1.messages >= 990);
    let late = Scenario { start_ns: 86_399_000_000_000, end_ns: 86_400_000_000_000, ..every_venue(1_000, 3) };
    assert!(sequences(&late).1.messages >= 990);
    let silent = Scenario { heartbeat_ns: 0, packet_hold_ns: 0, ..every_venue(1_000, 3) };
    assert_eq!(sequences(&silent).1.heartbeats, 0);
}

#[test]
fn an_impossible_scenario_is_refused_with_the_reason() {
    let good = Scenario::demo();
    let burst = Burst { start_ns: 0, length_ns: 1, messages_per_second: 1 };
    let twice = vec![good.venues[0]; 2];
    for (scenario, error) in [
        (Scenario { venues: Vec::new(), ..good.clone() }, ScenarioError::Venues { got: 0, most: MAX_VENUES }),
        (Scenario { venues: twice, ..good.clone() }, ScenarioError::SameVenue { name: "Nasdaq" }),
        (Scenario { symbols: 0, ..good.clone() }, ScenarioError::Symbols { got: 0 }),
        (Scenario { symbols: 65_536, ..good.clone() }, ScenarioError::Symbols { got: 65_536 }),
        (
            Scenario { start_ns: 5, end_ns: 5, ..good.clone() },
            ScenarioError::Window { start_ns: 5, end_ns: 5 },
        ),
        (Scenario { midnight_ns: u64::MAX, ..good.clone() }, ScenarioError::Midnight { got: u64::MAX }),
        (Scenario { bursts: vec![burst], ..good.clone() }, ScenarioError::Burst { start_ns: 0 }),
        (Scenario { halts: 10_001, ..good.clone() }, ScenarioError::Halts { got: 10_001 }),
        (Scenario { heartbeat_ns: 5, ..good.clone() }, ScenarioError::Heartbeat { got: 5 }),
        (Scenario { packet_hold_ns: u64::MAX, ..good.clone() }, ScenarioError::Delay),
        (Scenario { restarts: 1_001, ..good.clone() }, ScenarioError::Restarts { got: 1_001, most: 1_000 }),
        (Scenario { restarts: 20, ..Scenario::close_burst() }, ScenarioError::Restarts { got: 20, most: 19 }),
        (
            Scenario { later_midnights_ns: vec![good.midnight_ns], ..good.clone() },
            ScenarioError::Days { got: good.midnight_ns },
        ),
    ] {
        assert_eq!(Packets::new(&scenario).err(), Some(error));
    }
    let restarting = Scenario { restarts: 2, ..Scenario::full_session(100, 3) };
    let error = write_itch(&restarting, Vec::new()).unwrap_err();
    assert!(error.to_string().contains("the scenario has 3 runs"), "{error}");
    let error = write_itch(&good, Vec::new()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    assert!(error.to_string().contains("has 4 venues"), "{error}");
}

#[test]
fn a_markets_units_have_each_symbol_once_and_orders_of_their_own() {
    let unit = |number| VenueConfig { kind: VenueKind::Bzx, share: 1, unit: Unit { number, of: 3 } };
    // The market's third unit is not there.
    let sip = VenueConfig { kind: VenueKind::Uqdf, share: 0, unit: Unit::WHOLE };
    let nasdaq = VenueConfig { kind: VenueKind::Nasdaq, share: 1, unit: Unit::WHOLE };
    let scenario =
        Scenario { venues: vec![nasdaq, unit(2), unit(1), sip], ..Scenario::full_session(60_000, 20) };
    let mut generator = Generator::new(&scenario).unwrap();
    let mut message = [0; MAX_MESSAGE_BYTES];
    let (mut symbols, mut orders) = (BTreeMap::new(), BTreeMap::new());
    let mut counts = [0_u64; 4];
    while let Some(generated) = generator.next_message(&mut message) {
        counts[generated.venue] += 1;
        let message = &message[..generated.length];
        if !(1..=2).contains(&generated.venue) {
            continue;
        }
        let (symbol, order) = match pitch::Message::decode(message) {
            Ok(pitch::Message::AddOrderShort(add)) => (add.symbol().to_string(), add.order_id()),
            Ok(pitch::Message::AddOrderLong(add)) => (add.symbol().to_string(), add.order_id()),
            Ok(pitch::Message::AddOrderExpanded(add)) => (add.symbol().to_string(), add.order_id()),
            _ => continue,
        };
        assert_eq!(*symbols.entry(symbol.trim().to_owned()).or_insert(generated.venue), generated.venue);
        assert_eq!(*orders.entry(order).or_insert(generated.venue), generated.venue);
    }
    let of = |venue: usize| symbols.values().filter(|one| **one == venue).count();
    // Of 20 symbols the second unit has every third from the second on.
    assert_eq!((of(1), of(2)), (7, 7), "{symbols:?}");
    assert!(counts.iter().all(|count| *count > 1_000), "{counts:?}");
    let wrong = Scenario { venues: vec![unit(4)], ..Scenario::full_session(1_000, 20) };
    assert_eq!(Generator::new(&wrong).err(), Some(ScenarioError::Unit { number: 4, of: 3 }));
}
