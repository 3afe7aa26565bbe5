//! Packets in tunnels and in fragments, and captures of which nothing is recognised: replay, analyser and walk agree.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use tapeworks_analysis::replay::{self, Options, Output, Summary, Walk};
use tapeworks_analysis::stats::{self, Stats};
use tapeworks_analysis::{dump, input, study};
use tapeworks_capture::{CaptureReader, LinkType, Writer, WriterOptions};
use tapeworks_generator::{Scenario, Unit, VenueConfig, VenueKind};
use tapeworks_store::Schema;
use tapeworks_time::Nanos;

/// The packets of a generated session: their times and frames.
fn session() -> Vec<(u64, Vec<u8>)> {
    let venues = VenueKind::each(["nasdaq", "iex-deep"]);
    let venues = venues.map(|kind| VenueConfig { kind, share: 1, unit: Unit::WHOLE }).into();
    let scenario = Scenario { venues, seed: 7, ..Scenario::full_session(2_000, 5) };
    let file = tempfile::NamedTempFile::new().unwrap();
    tapeworks_generator::write_pcap(&scenario, file.reopen().unwrap()).unwrap();
    let mut reader = CaptureReader::open(file.path()).unwrap();
    let mut packets = Vec::new();
    while let Some(packet) = reader.next_packet().unwrap() {
        packets.push((packet.timestamp_ns, packet.bytes.to_vec()));
    }
    packets
}

fn write(path: &Path, packets: &[(u64, Vec<u8>)]) -> PathBuf {
    let file = std::fs::File::create(path).unwrap();
    let mut writer = Writer::new(file, WriterOptions::default()).unwrap();
    for (time, bytes) in packets {
        writer.write_packet(*time, bytes).unwrap();
    }
    writer.finish().unwrap();
    path.to_owned()
}

/// An Ethernet and an IPv4 header of GRE, with these first bytes of GRE before the frame.
fn in_gre(gre: &[u8], frame: &[u8]) -> Vec<u8> {
    let length = (20 + gre.len() + frame.len()) as u16;
    let mut packet = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00, 0x45, 0];
    packet.extend(length.to_be_bytes());
    packet.extend([0, 1, 0, 0, 64, 47, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    packet.extend([gre, frame].concat());
    packet
}

fn erspan(frame: &[u8]) -> Vec<u8> {
    in_gre(&[0x10, 0, 0x88, 0xbe, 0, 0, 0, 1, 0x10, 100, 0, 1, 0, 0, 0, 1], frame)
}

/// The two fragments of an IPv4 packet; none of one that is too short.
fn fragments(number: usize, frame: &[u8]) -> Vec<Vec<u8>> {
    let total = 14 + usize::from(u16::from_be_bytes([frame[16], frame[17]]));
    let (head, payload) = frame[..total].split_at(34);
    let at = payload.len() / 16 * 8;
    if at == 0 {
        return vec![frame.to_vec()];
    }
    let part = |bytes: &[u8], bits: u16| {
        let mut part = [head, bytes].concat();
        part[16..18].copy_from_slice(&(20 + bytes.len() as u16).to_be_bytes());
        part[18..20].copy_from_slice(&(number as u16).to_be_bytes());
        part[20..22].copy_from_slice(&bits.to_be_bytes());
        part
    };
    vec![part(&payload[..at], 0x2000), part(&payload[at..], (at / 8) as u16)]
}

fn replayed(folder: &Path, input: &Path) -> (Summary, String) {
    let path = folder.join("out.csv");
    let outputs = vec![Output {
        path: path.clone(),
        schema: Schema::Mbo,
        options: tapeworks_store::Options::default(),
    }];
    let _ = std::fs::remove_file(&path);
    let options = Options { inputs: vec![input.to_owned()], outputs, ..Options::default() };
    let summary = replay::replay(&options, &mut |_| ControlFlow::Continue(())).unwrap();
    (summary, std::fs::read_to_string(&path).unwrap())
}

fn counted(input: &Path) -> Stats {
    let mut inputs = input::open_any(&[input], None).unwrap();
    stats::count(&mut inputs, None, &mut |_| ControlFlow::Continue(()))
}

#[test]
fn packets_in_a_tunnel_and_in_fragments_give_the_same_records() {
    let folder = tempfile::tempdir().unwrap();
    let packets = session();
    let plain = write(&folder.path().join("plain.pcap"), &packets);
    let tunnel: Vec<_> = packets.iter().map(|(time, frame)| (*time, erspan(frame))).collect();
    let tunnel = write(&folder.path().join("tunnel.pcap"), &tunnel);
    let pieces = packets.iter().enumerate().flat_map(|(number, (time, frame))| {
        fragments(number, frame).into_iter().map(|fragment| (*time, fragment))
    });
    let pieces: Vec<_> = pieces.collect();
    let in_pieces = write(&folder.path().join("pieces.pcap"), &pieces);
    let (whole, records) = replayed(folder.path(), &plain);
    assert!(whole.is_clean() && whole.messages > 1_000);
    for input in [&tunnel, &in_pieces] {
        let (summary, same) = replayed(folder.path(), input);
        assert!(summary.is_clean(), "{:?}", summary.problems.kept());
        assert_eq!((summary.messages, same == records), (whole.messages, true));
        let stats = counted(input);
        assert!(stats.is_clean());
        assert_eq!((stats.messages(), stats.not_ours), (counted(&plain).messages(), 0));
    }
    assert_eq!(counted(&in_pieces).files[0].packets, pieces.len() as u64);
    let mut walk = Walk::open(Options::default()).unwrap();
    for (time, frame) in &pieces {
        walk.frame(LinkType::ETHERNET, frame, Nanos(*time));
    }
    let walked = walk.finish();
    assert_eq!((walked.messages, walked.is_clean()), (whole.messages, true));
}

#[test]
fn a_fragment_whose_rest_never_comes_is_a_problem_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let packets = session();
    // One in the middle, whose messages are missing, and the last.
    let lost = [packets.len() / 2, packets.len() - 1];
    let mut pieces = Vec::new();
    for (number, (time, frame)) in packets.iter().enumerate() {
        let parts = fragments(number, frame);
        assert!(parts.len() == 2 || !lost.contains(&number));
        let kept = if lost.contains(&number) { 1 } else { parts.len() };
        pieces.extend(parts.into_iter().take(kept).map(|part| (*time, part)));
    }
    let input = write(&folder.path().join("pieces.pcap"), &pieces);
    let (summary, _) = replayed(folder.path(), &input);
    let problems = summary.problems.kept();
    assert_eq!((summary.problems.total, problems.len(), summary.is_clean()), (2, 2, false));
    assert!(problems[0].kind.to_string().contains("is incomplete: only"), "{}", problems[0].kind);
    assert_eq!(problems[1].packet, pieces.len() as u64);
    let stats = counted(&input);
    assert_eq!((stats.problems, stats.is_clean()), (2, false));
    let texts: Vec<_> = stats.kept.iter().map(|problem| problem.text.as_str()).collect();
    assert!(texts.contains(&problems[0].kind.to_string().as_str()), "{texts:?}");
}

#[test]
fn a_capture_of_which_no_packet_is_recognised_is_not_clean() {
    let folder = tempfile::tempdir().unwrap();
    let packets = session();
    // Version 1 of GRE, ARP, and a protocol that nobody knows.
    let foreign = |packet: fn(&[u8]) -> Vec<u8>| -> Vec<_> {
        packets.iter().take(20).map(|(time, frame)| (*time, packet(frame))).collect()
    };
    let arp = |frame: &[u8]| [&frame[..12], &[0x08, 0x06], &frame[14..]].concat();
    let noise = |frame: &[u8]| [&frame[..42], &[0xff].repeat(frame.len() - 42)].concat();
    let recognised = write(&folder.path().join("recognised.pcap"), &packets);
    for (name, packets, reason) in [
        ("gre.pcap", foreign(|frame| in_gre(&[0, 1, 0x88, 0x0b], frame)), "IP protocol 47"),
        ("arp.pcap", foreign(arp), "EtherType 0x0806"),
        ("noise.pcap", foreign(noise), "known protocol"),
    ] {
        let input = write(&folder.path().join(name), &packets);
        let (summary, _) = replayed(folder.path(), &input);
        assert!(!summary.is_clean() && summary.unrecognised.len() == 1, "{name}");
        let stats = counted(&input);
        assert!(!stats.is_clean() && stats.ended.unrecognised.len() == 1, "{name}");
        let text = stats.ended.complaints().next().unwrap();
        assert!(text.contains("not one of its 20 packets has a known protocol"), "{text}");
        assert!(text.contains(reason), "{text}");
        let mut inputs = input::open_any(&[&input], None).unwrap();
        let everything = Nanos(0)..Nanos(u64::MAX);
        let studied =
            study::study(&mut inputs, None, &[1_000], None, everything, &mut |_| ControlFlow::Continue(()));
        assert!(!studied.is_clean(), "{name}");
        let mut inputs = input::open_any(&[&input], None).unwrap();
        let dumped = dump::dump(&mut inputs, &dump::Options::default(), &mut Vec::new(), &mut |_| {
            ControlFlow::Continue(())
        });
        assert!(!dumped.unwrap().ended.is_clean(), "{name}");
        // Beside another file too.
        let options = Options { inputs: vec![recognised.clone(), input], ..Options::default() };
        let both = replay::replay(&options, &mut |_| ControlFlow::Continue(())).unwrap();
        // Noise to a known destination is a problem of that.
        let is_named = both.unrecognised.first().is_some_and(|capture| capture.file.ends_with(name));
        assert!(!both.is_clean() && (is_named || both.problems.total > 0), "{name}");
    }
}

#[test]
fn captures_of_nothing_and_of_heartbeats_are_clean() {
    let folder = tempfile::tempdir().unwrap();
    let heartbeat = include_bytes!("testdata/captures/iex-deep/Heartbeat.pcap");
    let heartbeats = folder.path().join("heartbeats.pcap");
    std::fs::write(&heartbeats, heartbeat).unwrap();
    for (input, packets) in [(write(&folder.path().join("empty.pcap"), &[]), 0), (heartbeats, 1)] {
        let (summary, _) = replayed(folder.path(), &input);
        assert!(summary.is_clean() && summary.messages == 0);
        let stats = counted(&input);
        assert!(stats.is_clean() && stats.files[0].packets == packets);
    }
}

#[test]
fn a_compression_that_is_not_read_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("session.pcap");
    for (magic, name) in [
        (&b"\xfd7zXZ\0rest"[..], "xz"),
        (b"BZh91AY&SY", "bzip2"),
        (b"\x04\x22\x4d\x18rest", "lz4"),
        (b"PK\x03\x04rest", "zip"),
    ] {
        std::fs::write(&path, magic).unwrap();
        let error = input::open_any(&[&path], None).unwrap_err().to_string();
        assert!(
            error.contains(&format!("is compressed with {name}; only gzip and zstd are read")),
            "{error}"
        );
    }
}
