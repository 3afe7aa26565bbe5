//! Tests of the headers: built packets are parsed again and checked by smoltcp; the fast path agrees with the general one;
//! truncated and altered packets give errors and never panic.

use std::net::SocketAddrV6;

use proptest::prelude::*;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    EthernetFrame, EthernetProtocol, IpAddress, Ipv4Packet, Ipv4Repr, Ipv6Packet, TcpPacket, TcpRepr,
    UdpPacket, UdpRepr,
};

use super::build::{BuildError, FrameBuilder, MAX_HEADERS_BYTES, UDP_V6_HEADERS_BYTES, udp_v6_in_place};
use super::*;

const SOURCE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 1, 2, 3), 5000);
const GROUP: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(233, 54, 12, 111), 26477);

fn builder() -> FrameBuilder {
    FrameBuilder::to_group([2, 0, 0, 0, 0, 1], SOURCE, GROUP)
}

fn udp_frame(builder: &mut FrameBuilder, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0xee; payload.len() + MAX_HEADERS_BYTES];
    let length = builder.udp(payload, &mut frame).expect("the buffer is large enough");
    frame.truncate(length);
    frame
}

fn ethernet(bytes: &[u8]) -> Result<Datagram<'_>, HeaderError> {
    parse(LinkType::ETHERNET, bytes)
}

/// An IPv6 packet with `extensions` (type and bytes) before a UDP datagram.
fn ipv6_udp(extensions: &[(u8, &[u8])], payload: &[u8]) -> Vec<u8> {
    let length = extensions.iter().map(|(_, bytes)| bytes.len()).sum::<usize>() + 8 + payload.len();
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((length as u16).to_be_bytes());
    packet.push(extensions.first().map_or(17, |(kind, _)| *kind));
    packet.push(64);
    packet.extend([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    packet.extend([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    for (index, (_, bytes)) in extensions.iter().enumerate() {
        let next = extensions.get(index + 1).map_or(17, |(kind, _)| *kind);
        packet.push(next);
        packet.extend(&bytes[1..]);
    }
    packet.extend(1_u16.to_be_bytes());
    packet.extend(2_u16.to_be_bytes());
    packet.extend((8 + payload.len() as u16).to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(payload);
    packet
}

#[test]
fn smoltcp_reads_our_frames_and_accepts_their_checksums() {
    for payload_length in [0, 1, 2, 3, 4, 5, 1_472, 9_000] {
        let payload: Vec<u8> = (0..payload_length).map(|index| (index * 7 + 3) as u8).collect();
        let frame = udp_frame(&mut builder(), &payload);
        let ethernet = EthernetFrame::new_checked(&frame[..]).expect("a frame");
        assert_eq!(ethernet.ethertype(), EthernetProtocol::Ipv4);
        assert_eq!(ethernet.dst_addr().0, [0x01, 0, 0x5e, 54, 12, 111]);
        let ipv4 = Ipv4Packet::new_checked(ethernet.payload()).expect("a packet");
        let checksums = ChecksumCapabilities::default();
        Ipv4Repr::parse(&ipv4, &checksums).expect("the IPv4 checksum is right");
        assert_eq!((ipv4.hop_limit(), ipv4.dont_frag(), ipv4.ident()), (32, true, 0));
        let udp = UdpPacket::new_checked(ipv4.payload()).expect("a datagram");
        let (source, destination) = (IpAddress::Ipv4(ipv4.src_addr()), IpAddress::Ipv4(ipv4.dst_addr()));
        assert!(udp.verify_checksum(&source, &destination));
        let parsed = UdpRepr::parse(&udp, &source, &destination, &checksums).expect("a datagram");
        assert_eq!((parsed.src_port, parsed.dst_port), (5000, 26477));
        assert_eq!(udp.payload(), payload);
    }
}

#[test]
fn smoltcp_reads_the_segments_that_we_build() {
    let header = TcpHeader {
        sequence: 0xfeed_f00d,
        acknowledgment: 0x0102_0304,
        flags: TcpFlags::PSH | TcpFlags::ACK,
    };
    let mut frame = [0; 200];
    let length = builder().tcp(header, b"SoupBin", &mut frame).expect("the buffer is large enough");
    let ipv4 = Ipv4Packet::new_checked(&frame[14..length]).expect("a packet");
    let tcp = TcpPacket::new_checked(ipv4.payload()).expect("a segment");
    let (source, destination) = (IpAddress::Ipv4(ipv4.src_addr()), IpAddress::Ipv4(ipv4.dst_addr()));
    let parsed = TcpRepr::parse(&tcp, &source, &destination, &ChecksumCapabilities::default());
    let parsed = parsed.expect("the checksum is right");
    assert_eq!(parsed.seq_number.0 as u32, header.sequence);
    assert_eq!(parsed.ack_number.map(|number| number.0 as u32), Some(header.acknowledgment));
    assert_eq!(parsed.payload, b"SoupBin");

    let ours = ethernet(&frame[..length]).expect("a segment");
    assert_eq!(ours.transport, Transport::Tcp(header));
    assert_eq!((ours.payload, ours.payload_offset), (&b"SoupBin"[..], 54));
}

#[test]
fn a_udp_checksum_of_zero_is_sent_in_its_other_form() {
    // Exactly one two-byte payload makes the sum zero.
    let zero_forms = (0..=u16::MAX)
        .filter(|payload| {
            let frame = udp_frame(&mut builder(), &payload.to_be_bytes());
            assert_ne!(frame[40..42], [0, 0]);
            frame[40..42] == [0xff, 0xff]
        })
        .count();
    assert_eq!(zero_forms, 1);
}

#[test]
fn a_frame_that_does_not_fit_is_refused() {
    let mut small = [0; 45];
    assert_eq!(builder().udp(b"abcd", &mut small), Err(BuildError::BufferTooSmall { need: 46, got: 45 }));
    let mut large = vec![0; 70_000];
    let refused = builder().udp(&vec![0; 65_508], &mut large);
    assert_eq!(refused, Err(BuildError::PayloadTooLong { length: 65_508, limit: 65_507 }));
    assert_eq!(builder().udp(&vec![0; 65_507], &mut large), Ok(65_549));
}

#[test]
fn stacked_tags_are_skipped_and_the_innermost_is_returned() {
    let frame = udp_frame(&mut builder().with_vlan(141), b"tick");
    let datagram = ethernet(&frame).expect("a datagram");
    assert_eq!((datagram.vlan, datagram.payload, datagram.payload_offset), (Some(141), &b"tick"[..], 46));

    let mut stacked = frame.clone();
    stacked.splice(12..12, [0x88, 0xa8, 0x60, 0x07]);
    let datagram = ethernet(&stacked).expect("a datagram");
    assert_eq!((datagram.vlan, datagram.payload, datagram.payload_offset), (Some(141), &b"tick"[..], 50));
}

#[test]
fn ethernet_padding_is_no_payload() {
    let mut frame = udp_frame(&mut builder(), b"x");
    frame.resize(60, 0xaa);
    let datagram = ethernet(&frame).expect("a datagram");
    assert_eq!((datagram.payload, datagram.truncated), (&b"x"[..], false));
}

#[test]
fn a_packet_cut_by_the_capture_gives_the_captured_bytes() {
    let frame = udp_frame(&mut builder(), b"whole messages");
    let datagram = ethernet(&frame[..50]).expect("the headers are there");
    assert_eq!((datagram.payload, datagram.truncated), (&b"whole me"[..], true));
    let error = ethernet(&frame[..40]).expect_err("the UDP header is cut");
    assert_eq!(error, HeaderError::TooShort { layer: Layer::Udp, offset: 34, need: 8, got: 6 });
    assert_eq!(error.to_string(), "UDP header at byte 34 needs 8 bytes, 6 left");
    assert!(error.is_malformed());
}

#[test]
fn only_the_first_fragment_has_ports() {
    let mut frame = udp_frame(&mut builder(), b"first fragment");
    frame[20] = 0x20; // more fragments
    let first = ethernet(&frame).expect("the first fragment has the UDP header");
    assert_eq!((first.destination, first.truncated), (SocketAddr::V4(GROUP), true));
    frame[20..22].copy_from_slice(&[0x20, 0x03]);
    let error = ethernet(&frame).expect_err("a later fragment");
    assert_eq!(error, HeaderError::Fragment { identification: 0, fragment_offset: 24, more: true });
    assert!(!error.is_malformed());
}

#[test]
fn ipv4_options_are_passed() {
    let mut frame = udp_frame(&mut builder(), b"after options");
    frame.splice(34..34, [0x94, 0x04, 0, 0]); // router alert
    frame[14] = 0x46;
    frame[17] += 4;
    let datagram = ethernet(&frame).expect("a datagram");
    assert_eq!((datagram.payload, datagram.payload_offset), (&b"after options"[..], 46));
}

#[test]
fn a_length_of_zero_means_the_captured_length() {
    let mut frame = udp_frame(&mut builder(), b"offloaded");
    frame[16..18].fill(0);
    frame[38..40].fill(0);
    let datagram = ethernet(&frame).expect("a datagram");
    assert_eq!((datagram.payload, datagram.truncated), (&b"offloaded"[..], false));
}

#[test]
fn ipv6_extension_headers_are_passed() {
    let hop_by_hop: &[u8] = &[0, 0, 1, 4, 0, 0, 0, 0];
    let destination: &[u8] = &[0, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let first_fragment: &[u8] = &[0, 0, 0, 1, 0, 0, 0, 9];
    let packet = ipv6_udp(&[(0, hop_by_hop), (60, destination)], b"six");
    let datagram = parse(LinkType::IPV6, &packet).expect("a datagram");
    assert_eq!((datagram.payload, datagram.payload_offset, datagram.truncated), (&b"six"[..], 72, false));
    assert_eq!(datagram.destination.to_string(), "[ff02::2]:2");

    let packet = ipv6_udp(&[(44, first_fragment)], b"six");
    assert!(parse(LinkType::RAW, &packet).expect("a first fragment").truncated);
    let packet = ipv6_udp(&[(44, &[0, 0, 0, 0x18, 0, 0, 0, 9])], b"six");
    let fragment = HeaderError::Fragment { identification: 9, fragment_offset: 24, more: false };
    assert_eq!(parse(LinkType::RAW, &packet), Err(fragment));
}

#[test]
fn every_link_layer_leads_to_the_same_datagram() {
    let frame = udp_frame(&mut builder(), b"payload");
    let ip = &frame[14..];
    let with = |header: &[u8]| [header, ip].concat();
    let mut cooked = [0; 16];
    cooked[14] = 0x08;
    let mut cooked2 = [0; 20];
    cooked2[0] = 0x08;
    for (link_type, bytes) in [
        (LinkType::RAW, with(&[])),
        (LinkType(12), with(&[])),
        (LinkType::IPV4, with(&[])),
        (LinkType::NULL, with(&[2, 0, 0, 0])),
        (LinkType::NULL, with(&[0, 0, 0, 2])),
        (LinkType::LOOP, with(&[0, 0, 0, 2])),
        (LinkType::LINUX_SLL, with(&cooked)),
        (LinkType::LINUX_SLL2, with(&cooked2)),
    ] {
        let datagram = parse(link_type, &bytes).expect("a datagram");
        assert_eq!(
            (datagram.payload, datagram.source),
            (&b"payload"[..], SocketAddr::V4(SOURCE)),
            "{link_type}"
        );
        assert_eq!(datagram.payload_offset, bytes.len() - 7);
    }
    assert_eq!(parse(LinkType(147), &frame), Err(HeaderError::UnsupportedLink(LinkType(147))));
}

#[test]
fn packets_of_other_kinds_are_distinguished_from_damage() {
    let mut frame = udp_frame(&mut builder(), b"");
    frame[23] = 2;
    assert_eq!(ethernet(&frame), Err(HeaderError::NotTransport { protocol: 2 }));
    frame[12..14].copy_from_slice(&[0x08, 0x06]);
    assert_eq!(ethernet(&frame), Err(HeaderError::NotIp { ethertype: 0x0806 }));
    assert!(ethernet(&frame).is_err_and(|error| !error.is_malformed()));
    let mut frame = udp_frame(&mut builder(), b"");
    frame[14] = 0x65;
    let error = HeaderError::BadVersion { layer: Layer::Ipv4, offset: 14, version: 6 };
    assert_eq!(ethernet(&frame), Err(error));
    frame[14] = 0x44;
    let error = HeaderError::BadLength { layer: Layer::Ipv4, offset: 14, length: 16, minimum: 20 };
    assert_eq!(ethernet(&frame), Err(error));
}

/// The frame that the tests' tunnels carry.
fn carried() -> Vec<u8> {
    udp_frame(&mut builder().with_vlan(7), b"carried")
}

/// Wraps `contents` in an IPv4 packet of this protocol and an Ethernet frame.
fn in_ipv4(protocol: u8, contents: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00, 0x45, 0];
    frame.extend((20 + contents.len() as u16).to_be_bytes());
    frame.extend([0, 1, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend(contents);
    frame
}

/// Wraps `contents` in an Ethernet frame of this type.
fn in_ethernet(ethertype: u16, contents: &[&[u8]]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    frame.extend(ethertype.to_be_bytes());
    frame.extend(contents.concat());
    frame
}

fn in_gre(flags: u16, ethertype: u16, contents: &[&[u8]]) -> Vec<u8> {
    let header = [flags.to_be_bytes(), ethertype.to_be_bytes()].concat();
    in_ipv4(47, &[&header[..], &contents.concat()].concat())
}

/// The same frame in every tunnel, by name.
fn tunnels() -> Vec<(&'static str, LinkType, Vec<u8>)> {
    let frame = carried();
    let tagged = &frame[12..];
    let ip = &frame[18..];
    let vxlan = [&[0, 99, 0x12, 0xb5, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 7, 0], &frame[..]].concat();
    let mut vxlan = in_ipv4(17, &vxlan);
    let length = (vxlan.len() as u16 - 34).to_be_bytes();
    vxlan[38..40].copy_from_slice(&length);
    let type_3 = |flags: [u8; 2]| [&[0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0][..], &flags].concat();
    let erf = |record_type: u8, more: &[u8]| [&[0; 8][..], &[record_type], &[0; 7], more].concat();
    let ethernet = LinkType::ETHERNET;
    vec![
        ("MPLS", ethernet, in_ethernet(0x8847, &[&[0, 1, 0, 64], &[0, 2, 1, 64], ip])),
        ("MPLS pseudowire", ethernet, in_ethernet(0x8847, &[&[0, 1, 1, 64], &[0; 4], &frame])),
        ("FabricPath", ethernet, in_ethernet(0x8903, &[&[0, 0x60], &frame])),
        ("Arista 64", ethernet, in_ethernet(0xd28b, &[&[0, 1, 0, 0x10], &[9; 8], tagged])),
        ("Arista 48", ethernet, in_ethernet(0xd28b, &[&[0, 1, 1, 0x20], &[9; 6], tagged])),
        ("GRE", ethernet, in_gre(0, 0x0800, &[ip])),
        ("GRE with options", ethernet, in_gre(0xb000, 0x0800, &[&[1; 12], ip])),
        ("GRE of Ethernet", ethernet, in_gre(0x2000, 0x6558, &[&[1; 4], &frame])),
        ("ERSPAN I", ethernet, in_gre(0, 0x88be, &[&frame])),
        (
            "ERSPAN II",
            ethernet,
            in_gre(0x1000, 0x88be, &[&[0, 0, 0, 1], &[0x10, 100, 0, 1, 0, 0, 0, 1], &frame]),
        ),
        ("ERSPAN III", ethernet, in_gre(0x1000, 0x22eb, &[&[0; 4], &type_3([0, 0]), &frame])),
        ("ERSPAN III, long", ethernet, in_gre(0x1000, 0x22eb, &[&[0; 4], &type_3([0, 1]), &[3; 8], &frame])),
        ("ERSPAN III of IP", ethernet, in_gre(0x1000, 0x22eb, &[&[0; 4], &type_3([8, 0]), ip])),
        ("VXLAN", ethernet, vxlan),
        ("IP in IP", ethernet, in_ipv4(4, ip)),
        ("PPI", LinkType::PPI, [&[0, 0, 12, 0, 1, 0, 0, 0, 7, 7, 7, 7], &frame[..]].concat()),
        ("ERF", LinkType::ERF, [&erf(2, &[0; 2])[..], &frame].concat()),
        (
            "ERF, extended",
            LinkType::ERF,
            [&erf(0x82, &[0x80, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0])[..], &frame].concat(),
        ),
        ("ERF of IP", LinkType::ERF, [&erf(22, &[])[..], ip].concat()),
        ("ERSPAN in MPLS", ethernet, {
            let erspan = in_gre(0, 0x88be, &[&frame]);
            in_ethernet(0x8847, &[&[0, 1, 1, 64], &erspan[14..]])
        }),
    ]
}

#[test]
fn packets_in_tunnels_are_found() {
    for (name, link_type, packet) in tunnels() {
        let datagram = parse(link_type, &packet).expect(name);
        assert_eq!(
            (datagram.payload, datagram.destination),
            (&b"carried"[..], SocketAddr::V4(GROUP)),
            "{name}"
        );
        assert_eq!(&packet[datagram.payload_offset..], b"carried", "{name}");
        for cut in 0..packet.len() - 7 {
            let cut = parse(link_type, &packet[..cut]).map(|datagram| datagram.destination.port());
            // VXLAN is itself a datagram.
            assert!(cut.is_err_and(|error| error.is_malformed()) || name == "VXLAN", "{name}, {cut:?}");
        }
    }
}

#[test]
fn another_protocol_on_vxlans_port_stays_a_datagram() {
    let group = SocketAddrV4::new(*GROUP.ip(), 4789);
    for payload in [&b"some market data"[..], b"\x08\0\0\0\0\0\x07\0 not a frame"] {
        let frame = udp_frame(&mut FrameBuilder::to_group([2; 6], SOURCE, group), payload);
        assert_eq!(ethernet(&frame).expect("a datagram").payload, payload);
    }
}

#[test]
fn headers_without_end_are_an_error() {
    let mut frame = Vec::new();
    for _ in 0..40 {
        frame.extend(in_ethernet(0x8903, &[&[0, 0]]));
    }
    assert_eq!(ethernet(&frame), Err(HeaderError::TooDeep));
}

/// Splits the IPv4 packet in `frame` into fragments of this many bytes.
fn fragments(frame: &[u8], bytes: usize) -> Vec<Vec<u8>> {
    let payload = &frame[34..];
    let pieces = payload.chunks(bytes).enumerate().map(|(index, piece)| {
        let mut fragment = [&frame[..34], piece].concat();
        let more = (index + 1) * bytes < payload.len();
        fragment[16..18].copy_from_slice(&(20 + piece.len() as u16).to_be_bytes());
        fragment[18..20].copy_from_slice(&[0, 77]);
        fragment[20..22]
            .copy_from_slice(&(((index * bytes / 8) as u16) | u16::from(more) << 13).to_be_bytes());
        fragment
    });
    pieces.collect()
}

/// Splits an IPv6 packet into fragments of this many bytes.
fn fragments_v6(packet: &[u8], bytes: usize) -> Vec<Vec<u8>> {
    let payload = &packet[40..];
    let pieces = payload.chunks(bytes).enumerate().map(|(index, piece)| {
        let more = (index + 1) * bytes < payload.len();
        let mut fragment = packet[..40].to_vec();
        fragment[4..6].copy_from_slice(&(8 + piece.len() as u16).to_be_bytes());
        fragment[6] = 44;
        fragment.extend([packet[6], 0]);
        fragment.extend(((index * bytes) as u16 | u16::from(more)).to_be_bytes());
        fragment.extend([0, 0, 0, 77]);
        fragment.extend(piece);
        fragment
    });
    pieces.collect()
}

const fn at(number: u64, timestamp_ns: u64) -> Origin {
    Origin { number, offset: 0, timestamp_ns }
}

/// Returns the payload reassembled from these fragments; all but the last must be kept.
fn together<'d>(
    defragmenter: &'d mut Defragmenter,
    link_type: LinkType,
    fragments: &'d [&Vec<u8>],
) -> Result<Datagram<'d>, HeaderError> {
    let (last, first) = fragments.split_last().expect("some");
    for fragment in first {
        let kept = defragmenter.parse(link_type, fragment, at(1, 0));
        assert!(matches!(kept, Err(HeaderError::Fragment { .. })), "{kept:?}");
    }
    let (datagram, _) = defragmenter.parse(link_type, last, at(2, 0))?;
    Ok(datagram)
}

#[test]
fn fragments_in_any_order_are_put_together() {
    let payload: Vec<u8> = (0..100_u8).collect();
    let whole = fragments(&udp_frame(&mut builder(), &payload), 40);
    let whole_v6 = fragments_v6(&ipv6_udp(&[(60, &[0, 0, 1, 4, 0, 0, 0, 0])], &payload), 40);
    for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2], [1, 2, 0], [0, 2, 1]] {
        for (link_type, parts) in [(LinkType::ETHERNET, &whole), (LinkType::RAW, &whole_v6)] {
            let parts = order.map(|index| &parts[index]);
            let mut defragmenter = Defragmenter::default();
            let datagram = together(&mut defragmenter, link_type, &parts).expect("whole");
            assert_eq!((datagram.payload, datagram.truncated), (&payload[..], false));
            assert!(!defragmenter.is_pending());
            // A tap's second copy of them is not a new packet.
            for part in parts {
                let again = defragmenter.parse(link_type, part, at(3, 5));
                assert!(matches!(again, Err(HeaderError::Fragment { .. })));
            }
            assert!(!defragmenter.is_pending());
        }
    }
}

#[test]
fn fragments_of_a_tunnel_and_in_a_tunnel_are_put_together() {
    let outer = fragments(&in_gre(0, 0x88be, &[&carried()]), 40);
    let inner = fragments(&udp_frame(&mut builder(), b"carried"), 8);
    let inner: Vec<_> = inner.iter().map(|fragment| in_gre(0, 0x88be, &[fragment])).collect();
    for parts in [outer, inner] {
        let parts: Vec<_> = parts.iter().collect();
        let mut defragmenter = Defragmenter::default();
        let datagram = together(&mut defragmenter, LinkType::ETHERNET, &parts).expect("whole");
        assert_eq!(datagram.payload, b"carried");
    }
}

#[test]
fn a_fragment_whose_rest_never_comes_is_reported() {
    let parts = fragments(&udp_frame(&mut builder(), &[7; 100]), 40);
    let mut defragmenter = Defragmenter::default();
    for (number, part) in [(4, &parts[0]), (5, &parts[2])] {
        assert!(defragmenter.parse(LinkType::ETHERNET, part, at(number, 10)).is_err());
    }
    assert_eq!(defragmenter.take_lost(Some(10 + MAX_AGE_NS)), None);
    let (origin, error) = defragmenter.take_lost(Some(11 + MAX_AGE_NS)).expect("too old");
    assert_eq!(origin.number, 4);
    let text =
        "IP packet 77 from 10.1.2.3 to 233.54.12.111 is incomplete: only 68 bytes of its fragments came";
    assert_eq!((error.to_string().as_str(), error.is_malformed()), (text, true));
    assert!(!defragmenter.is_pending());
}

#[test]
fn fragments_that_contradict_each_other_make_no_packet() {
    let parts = fragments(&udp_frame(&mut builder(), &[7; 100]), 40);
    let mut other = parts[1].clone();
    other[50] ^= 1;
    let mut defragmenter = Defragmenter::default();
    let parts = [&parts[0], &parts[1], &other, &parts[2]];
    assert!(together(&mut defragmenter, LinkType::ETHERNET, &parts).is_err());
    assert!(defragmenter.take_lost(None).is_some() && !defragmenter.is_pending());
}

#[test]
fn the_packets_that_wait_for_fragments_are_bounded() {
    let mut defragmenter = Defragmenter::default();
    let part = &fragments(&udp_frame(&mut builder(), &[7; 100]), 40)[0];
    for number in 0..MAX_PENDING as u64 + 3 {
        let mut part = part.clone();
        part[18..20].copy_from_slice(&(number as u16).to_be_bytes());
        assert!(defragmenter.parse(LinkType::ETHERNET, &part, at(number, 0)).is_err());
    }
    let displaced = std::iter::from_fn(|| defragmenter.take_lost(Some(0))).map(|(origin, _)| origin.number);
    assert_eq!(displaced.collect::<Vec<_>>(), [0, 1, 2]);
}

/// Frames of any kind with a few bytes changed and the end cut off: close enough to valid to reach every branch.
fn bent_packet() -> impl Strategy<Value = (u16, Vec<u8>)> {
    let links = prop::sample::select(vec![0_u16, 1, 1, 1, 1, 12, 101, 108, 113, 228, 229, 276]);
    let kinds = 0_u8..4;
    let changes = proptest::collection::vec((0_usize..80, any::<u8>()), 0..4);
    (links, kinds, proptest::collection::vec(any::<u8>(), 0..64), changes, 0_usize..200).prop_map(
        |(link, kind, payload, changes, keep)| {
            let header = TcpHeader { sequence: 1, acknowledgment: 2, flags: TcpFlags::ACK };
            let mut bytes = match kind {
                0 => udp_frame(&mut builder(), &payload),
                1 => udp_frame(&mut builder().with_vlan(7), &payload),
                2 => {
                    let mut frame = vec![0; payload.len() + MAX_HEADERS_BYTES];
                    let length = builder().tcp(header, &payload, &mut frame).expect("large enough");
                    frame.truncate(length);
                    frame
                }
                _ => {
                    let hop_by_hop: &[u8] = &[0, 0, 1, 4, 0, 0, 0, 0];
                    let mut frame = vec![0; 12];
                    frame.extend([0x86, 0xdd]);
                    frame.extend(ipv6_udp(&[(0, hop_by_hop), (43, hop_by_hop)], &payload));
                    frame
                }
            };
            for (at, value) in changes {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = value;
                }
            }
            bytes.truncate(keep);
            (link, bytes)
        },
    )
}

proptest! {
    #[test]
    fn a_built_frame_is_parsed_to_its_parts(
        source: (u32, u16), destination: (u32, u16), vlan in proptest::option::of(0_u16..0x1000),
        payload in proptest::collection::vec(any::<u8>(), 0..1500),
    ) {
        let source = SocketAddrV4::new(source.0.into(), source.1);
        let destination = SocketAddrV4::new(destination.0.into(), destination.1);
        let mut builder = FrameBuilder::new([2; 6], [4; 6], source, destination);
        if let Some(vlan) = vlan {
            builder = builder.with_vlan(vlan);
        }
        let frame = udp_frame(&mut builder, &payload);
        let datagram = ethernet(&frame).expect("a datagram");
        let payload_offset = builder.udp_headers_bytes();
        prop_assert_eq!(datagram, Datagram {
            source: source.into(), destination: destination.into(), vlan, transport: Transport::Udp,
            payload: &payload, payload_offset, truncated: false,
        });
    }

    #[test]
    fn a_frame_over_ipv6_is_read_alike_by_other_parsers(
        source: (u128, u16), destination: (u128, u16), payload in proptest::collection::vec(any::<u8>(), 0..1500),
    ) {
        let source = SocketAddrV6::new(source.0.into(), source.1, 0, 0);
        let destination = SocketAddrV6::new(destination.0.into(), destination.1.max(1), 0, 0);
        let mut frame = vec![0xee; UDP_V6_HEADERS_BYTES + payload.len()];
        frame[UDP_V6_HEADERS_BYTES..].copy_from_slice(&payload);
        let length = udp_v6_in_place([2; 6], source, destination, payload.len(), &mut frame).unwrap();
        prop_assert_eq!(length, frame.len());
        prop_assert_eq!(ethernet(&frame).expect("a datagram"), Datagram {
            source: source.into(), destination: destination.into(), vlan: None, transport: Transport::Udp,
            payload: &payload, payload_offset: UDP_V6_HEADERS_BYTES, truncated: false,
        });
        let link = EthernetFrame::new_checked(&frame[..]).unwrap();
        let packet = Ipv6Packet::new_checked(link.payload()).unwrap();
        prop_assert_eq!((packet.src_addr(), packet.dst_addr()), (*source.ip(), *destination.ip()));
        let (from, to) = (packet.src_addr().into(), packet.dst_addr().into());
        let udp = UdpPacket::new_checked(packet.payload()).unwrap();
        prop_assert!(UdpRepr::parse(&udp, &from, &to, &ChecksumCapabilities::default()).is_ok());
        prop_assert_eq!(link.dst_addr().is_multicast(), destination.ip().is_multicast());
        let mut small = frame.clone();
        small.pop();
        let built = udp_v6_in_place([2; 6], source, destination, payload.len(), &mut small);
        prop_assert_eq!(built, Err(BuildError::BufferTooSmall { need: frame.len(), got: frame.len() - 1 }));
    }

    #[test]
    fn the_straight_path_agrees_with_the_general_one((link, bytes) in bent_packet()) {
        let link_type = LinkType(link);
        prop_assert_eq!(parse(link_type, &bytes), headers::parse(link_type, &bytes));
    }

    #[test]
    fn a_payload_lies_inside_the_packet((link, bytes) in bent_packet()) {
        if let Ok(datagram) = parse(LinkType(link), &bytes) {
            let end = datagram.payload_offset + datagram.payload.len();
            prop_assert_eq!(datagram.payload, &bytes[datagram.payload_offset..end]);
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(link in 0_u16..300, bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse(LinkType(link), &bytes).map_err(|error| error.to_string());
    }

    #[test]
    fn bent_tunnels_and_fragments_never_panic(
        kind in 0_usize..22, changes in proptest::collection::vec((0_usize..120, any::<u8>()), 0..6),
        keep in 0_usize..400,
    ) {
        let (link_type, mut bytes) = match tunnels().into_iter().nth(kind) {
            Some((_, link_type, bytes)) => (link_type, bytes),
            None => (LinkType::ETHERNET, fragments(&udp_frame(&mut builder(), &[7; 100]), 40).swap_remove(kind - 20)),
        };
        for (at, value) in changes {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
        bytes.truncate(keep);
        let mut defragmenter = Defragmenter::default();
        for number in 0..3 {
            let _ = defragmenter.parse(link_type, &bytes, at(number, 0)).map_err(|error| error.to_string());
        }
        prop_assert_eq!(parse(link_type, &bytes), headers::parse(link_type, &bytes));
    }
}
