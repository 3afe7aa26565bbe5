//! Real captures of exchange traffic, and the same packets in containers written by other tools. The expected values
//! are those that `tshark` 4.0 prints.
#![allow(clippy::expect_used, reason = "a test fails by panicking")]

use std::path::PathBuf;

use tapeworks_capture::net::{self, TcpFlags, TcpHeader, Transport};
use tapeworks_capture::{CaptureReader, FileKind, LinkType, detect};

fn captures(relative: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/testdata")).join(relative)
}

/// A packet's time, length, destination, VLAN, and the length of its UDP payload.
type Seen = (u64, usize, String, Option<u16>, usize);

fn read(relative: &str) -> Vec<Seen> {
    let mut reader = CaptureReader::open(&captures(relative)).expect("opens");
    let mut seen = Vec::new();
    while let Some(packet) = reader.next_packet().expect("reads") {
        assert_eq!(packet.number, seen.len() as u64 + 1);
        assert_eq!((packet.link_type, packet.is_cut()), (LinkType::ETHERNET, false));
        let datagram = net::parse(packet.link_type, packet.bytes).expect("is UDP");
        assert_eq!(datagram.transport, Transport::Udp);
        assert!(!datagram.truncated);
        seen.push((
            packet.timestamp_ns,
            packet.bytes.len(),
            datagram.destination.to_string(),
            datagram.vlan,
            datagram.payload.len(),
        ));
    }
    let tally = reader.tally();
    assert_eq!(tally.packets, seen.len() as u64);
    assert_eq!((tally.cut, tally.without_time, tally.time_out_of_range), (0, 0, 0));
    seen
}

fn nasdaq_packets() -> Vec<Seen> {
    let group = || "233.54.12.111:26477".to_string();
    vec![
        (1_692_711_000_007_661_955, 87, group(), Some(141), 41),
        (1_692_711_038_952_561_782, 1518, group(), Some(141), 1472),
    ]
}

#[test]
fn nasdaq_packets_have_vlan_tags_and_nanoseconds() {
    assert_eq!(read("nasdaq-itch50/Multiple.Packets.pcap"), nasdaq_packets());
    let group = "233.49.196.40:25475".to_string();
    let expected = (1_692_711_000_000_086_608, 104, group, Some(142), 58);
    assert_eq!(read("nasdaq-bx-itch50/AddOrderNoMpidAttributionMessage.pcap"), [expected]);
}

#[test]
fn iex_packets_have_microseconds_and_no_tag() {
    let expected = (1_611_692_981_299_914_000, 114, "233.215.21.241:32001".to_string(), None, 72);
    assert_eq!(read("iex-deep/PriceLevelBuyUpdateMessage.pcap"), [expected]);
    let expected = (1_517_065_700_931_787_000, 126, "233.215.21.3:10377".to_string(), None, 84);
    assert_eq!(read("iex-tops16/QuoteUpdateMessage.pcap"), [expected]);
    let expected = (1_517_058_017_871_671_000, 1497, "233.215.21.3:10377".to_string(), None, 1455);
    assert_eq!(read("iex-tops15/SecurityDirectoryMessage.pcap"), [expected]);
}

#[test]
fn soupbintcp_segments_are_found_behind_tcp_options_and_before_the_frame_check_sequence() {
    for (file, vlan, sequence, length) in [
        ("CancelOrderMessage", None, 2_142_450_581, 12),
        ("EnterOrderMessage", Some(5), 3_380_842_935, 56),
        ("OrderAcceptedMessage", None, 1_925_908_783, 76),
        ("ServerHeartbeatPacket", None, 1_925_909_344, 3),
    ] {
        let path = captures(&format!("nasdaq-ouch50/{file}.pcap"));
        let mut reader = CaptureReader::open(&path).expect("opens");
        let packet = reader.next_packet().expect("reads").expect("has a packet");
        let segment = net::parse(packet.link_type, packet.bytes).expect("is TCP");
        let Transport::Tcp(TcpHeader { sequence: found, flags, .. }) = segment.transport else {
            panic!("{file} is TCP");
        };
        assert_eq!((found, segment.vlan, segment.payload.len()), (sequence, vlan, length), "{file}");
        assert_eq!(flags, TcpFlags::PSH | TcpFlags::ACK, "{file}");
        // SoupBinTCP: a two-byte length, which here is the rest of the segment.
        assert_eq!(usize::from(u16::from_be_bytes([segment.payload[0], segment.payload[1]])), length - 2);
    }
}

#[test]
fn the_container_makes_no_difference() {
    for file in ["pcapng", "pcapng.zst", "pcap.gz", "pcap.zst"] {
        assert_eq!(read(&format!("derived/Multiple.Packets.{file}")), nasdaq_packets(), "{file}");
    }
    let microseconds = nasdaq_packets().into_iter().map(|mut packet| {
        packet.0 -= packet.0 % 1_000;
        packet
    });
    assert_eq!(read("derived/Multiple.Packets.us.pcap"), microseconds.collect::<Vec<_>>());
}

#[test]
fn the_kind_of_file_is_recognised_through_compression() {
    for (file, kind) in [
        ("nasdaq-itch50/Multiple.Packets.pcap", FileKind::Pcap),
        ("iex-deep/Heartbeat.pcap", FileKind::Pcap),
        ("derived/Multiple.Packets.pcap.gz", FileKind::Pcap),
        ("derived/Multiple.Packets.pcapng", FileKind::PcapNg),
        ("derived/Multiple.Packets.pcapng.zst", FileKind::PcapNg),
        ("PROVENANCE.md", FileKind::Unknown),
    ] {
        assert_eq!(detect(&captures(file)).expect("opens"), kind, "{file}");
    }
}

#[test]
fn an_unmapped_file_gives_the_same_packets() {
    use tapeworks_capture::source::ByteSource;
    let path = captures("nasdaq-itch50/Multiple.Packets.pcap");
    let source = ByteSource::open_unmapped(&path).expect("opens");
    assert_eq!(source.total_len(), Some(1661));
    let mut reader = CaptureReader::new(source).expect("is pcap");
    let mut times = Vec::new();
    while let Some(packet) = reader.next_packet().expect("reads") {
        times.push(packet.timestamp_ns);
    }
    assert_eq!(times, nasdaq_packets().iter().map(|packet| packet.0).collect::<Vec<_>>());
    assert_eq!(reader.source().bytes_read(), 1661);
}
