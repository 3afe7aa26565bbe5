//! Random packets with every kind of header: a rewritten packet must equal one built with the new fields.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use smoltcp::wire::{EthernetFrame, IpAddress, Ipv4Packet, Ipv6ExtHeader, Ipv6Packet, TcpPacket, UdpPacket};

use super::*;
use crate::link_type::LinkType;

/// RFC 1071, word by word.
fn naive_checksum(parts: &[&[u8]]) -> u16 {
    let mut total = 0u32;
    for part in parts {
        for word in part.chunks(2) {
            total += u32::from(word[0]) * 256 + u32::from(*word.get(1).unwrap_or(&0));
            if total > 0xffff {
                total -= 0xffff;
            }
        }
    }
    !(total as u16)
}

/// A description of a packet that a test builds.
#[derive(Debug, Clone)]
struct Sketch {
    tags: Vec<u16>,
    is_v6: bool,
    source: [u8; 16],
    destination: [u8; 16],
    /// Number of IPv4 option words, or of IPv6 extension headers of 8 bytes.
    extras: usize,
    is_tcp: bool,
    ports: (u16, u16),
    tcp_option_words: usize,
    payload: Vec<u8>,
    has_no_checksum: bool,
    /// The fragment's offset and "more" flag.
    fragment: Option<(u16, bool)>,
}

fn sketch() -> impl Strategy<Value = Sketch> {
    let fragments = option::weighted(0.2, (prop_oneof![Just(0u16), 1..1000u16], any::<bool>()));
    (
        (vec(0..4096u16, 0..3), any::<bool>(), any::<[u8; 16]>(), any::<[u8; 16]>(), 0..4usize),
        (any::<bool>(), any::<(u16, u16)>(), 0..11usize, vec(any::<u8>(), 0..65), any::<bool>()),
        fragments,
    )
        .prop_map(|(network, transport, fragment)| Sketch {
            tags: network.0,
            is_v6: network.1,
            source: network.2,
            destination: network.3,
            extras: network.4,
            is_tcp: transport.0,
            ports: transport.1,
            tcp_option_words: transport.2,
            payload: transport.3,
            has_no_checksum: transport.4 && !transport.0 && !network.1,
            fragment: fragment.map(|(offset, more)| (offset, more || offset == 0)),
        })
}

impl Sketch {
    /// Builds the frame, computing every checksum in full.
    fn frame(&self) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        for tag in &self.tags {
            frame.extend([0x81, 0]);
            frame.extend((tag | 0x6000).to_be_bytes());
        }
        let protocol = if self.is_tcp { 6 } else { 17 };
        let is_later = self.fragment.is_some_and(|(offset, _)| offset > 0);
        let width = if self.is_v6 { 16 } else { 4 };
        let (source, destination) = (&self.source[..width], &self.destination[..width]);
        let mut transport = Vec::new();
        if is_later {
            transport.extend(&self.payload);
        } else {
            transport.extend(self.ports.0.to_be_bytes());
            transport.extend(self.ports.1.to_be_bytes());
            if self.is_tcp {
                transport.extend([
                    1,
                    2,
                    3,
                    4,
                    5,
                    6,
                    7,
                    8,
                    ((5 + self.tcp_option_words) << 4) as u8,
                    0x18,
                    9,
                    9,
                ]);
                transport.extend([0, 0, 0, 0]);
                transport.extend(std::iter::repeat_n(1, 4 * self.tcp_option_words));
            } else {
                transport.extend((8 + self.payload.len() as u16).to_be_bytes());
                transport.extend([0, 0]);
            }
            transport.extend(&self.payload);
            if !self.has_no_checksum {
                let pseudo = (transport.len() as u32).to_be_bytes();
                let checksum = naive_checksum(&[source, destination, &pseudo, &[0, protocol], &transport]);
                let checksum = if checksum == 0 && !self.is_tcp { 0xffff } else { checksum };
                let at = if self.is_tcp { 16 } else { 6 };
                transport[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
            }
        }
        if self.is_v6 {
            self.v6_around(protocol, &transport, &mut frame);
        } else {
            self.v4_around(protocol, &transport, &mut frame);
        }
        frame
    }

    fn v4_around(&self, protocol: u8, transport: &[u8], frame: &mut Vec<u8>) {
        frame.extend([8, 0]);
        let mut header = vec![0x45 + self.extras as u8, 0];
        header.extend((20 + 4 * self.extras as u16 + transport.len() as u16).to_be_bytes());
        header.extend([0xbe, 0xef]);
        let (offset, more) = self.fragment.unwrap_or((0, false));
        header.extend((offset | u16::from(more) << 13).to_be_bytes());
        header.extend([64, protocol, 0, 0]);
        header.extend(&self.source[..4]);
        header.extend(&self.destination[..4]);
        header.extend(std::iter::repeat_n(1, 4 * self.extras));
        let checksum = naive_checksum(&[&header]);
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
        frame.extend(header);
        frame.extend(transport);
    }

    fn v6_around(&self, protocol: u8, transport: &[u8], frame: &mut Vec<u8>) {
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        let extensions = 8 * (self.extras + usize::from(self.fragment.is_some()));
        frame.extend(((extensions + transport.len()) as u16).to_be_bytes());
        let mut kinds = vec![60; self.extras];
        kinds.extend(self.fragment.map(|_| 44));
        kinds.push(protocol);
        frame.extend([kinds[0], 64]);
        frame.extend(self.source);
        frame.extend(self.destination);
        for next in &kinds[1..=self.extras] {
            frame.extend([*next, 0, 1, 4, 0, 0, 0, 0]);
        }
        if let Some((offset, more)) = self.fragment {
            frame.extend([protocol, 0]);
            frame.extend((offset << 3 | u16::from(more)).to_be_bytes());
            frame.extend([1, 2, 3, 4]);
        }
        frame.extend(transport);
    }
}

/// A strategy for any set of fields.
fn rewrite() -> impl Strategy<Value = Rewrite> {
    (
        (option::of(any::<[u8; 6]>()), option::of(any::<[u8; 6]>()), option::of(0..4096u16)),
        (option::of(any::<[u8; 4]>()), option::of(any::<[u8; 4]>())),
        (option::of(any::<[u8; 16]>()), option::of(any::<[u8; 16]>())),
        (option::of(any::<u16>()), option::of(any::<u16>())),
    )
        .prop_map(|(link, v4, v6, ports)| Rewrite {
            source_mac: link.0,
            destination_mac: link.1,
            vlan: link.2,
            source_v4: v4.0.map(Into::into),
            destination_v4: v4.1.map(Into::into),
            source_v6: v6.0.map(Into::into),
            destination_v6: v6.1.map(Into::into),
            source_port: ports.0,
            destination_port: ports.1,
        })
}

/// Returns the sketch that a rewritten packet must match.
fn expected(sketch: &Sketch, rewrite: &Rewrite) -> Sketch {
    let mut sketch = sketch.clone();
    if let (Some(vlan), Some(tag)) = (rewrite.vlan, sketch.tags.first_mut()) {
        *tag = vlan;
    }
    if sketch.is_v6 {
        sketch.source = rewrite.source_v6.map_or(sketch.source, |address| address.octets());
        sketch.destination = rewrite.destination_v6.map_or(sketch.destination, |address| address.octets());
    } else {
        if let Some(address) = rewrite.source_v4 {
            sketch.source[..4].copy_from_slice(&address.octets());
        }
        if let Some(address) = rewrite.destination_v4 {
            sketch.destination[..4].copy_from_slice(&address.octets());
        }
    }
    sketch.ports.0 = rewrite.source_port.unwrap_or(sketch.ports.0);
    sketch.ports.1 = rewrite.destination_port.unwrap_or(sketch.ports.1);
    sketch
}

/// Asserts that frames are equal, but for a checksum's two forms of zero.
#[track_caller]
fn assert_same(mut got: Vec<u8>, mut want: Vec<u8>, layout: &Layout) {
    if layout.checksum_offset > 0 {
        for frame in [&mut got, &mut want] {
            let at = usize::from(layout.checksum_offset);
            if frame[at..at + 2] == [0xff, 0xff] {
                frame[at..at + 2].fill(0);
            }
        }
    }
    assert_eq!(got, want);
}

proptest! {
    #[test]
    fn a_rewritten_packet_equals_one_that_was_made_with_the_new_fields(sketch in sketch(), rewrite in rewrite()) {
        let mut frame = sketch.frame();
        let layout = Layout::of(LinkType::ETHERNET, &frame);
        prop_assert!(!layout.is_malformed);
        let unfit = rewrite.apply(&mut frame, &layout);
        prop_assert_eq!(layout, Layout::of(LinkType::ETHERNET, &frame));
        let mut want = expected(&sketch, &rewrite).frame();
        if let Some(mac) = rewrite.destination_mac {
            want[..6].copy_from_slice(&mac);
        }
        if let Some(mac) = rewrite.source_mac {
            want[6..12].copy_from_slice(&mac);
        }
        let is_later = layout.fragment == Fragment::Later;
        let asks_for_ports = rewrite.source_port.is_some() || rewrite.destination_port.is_some();
        prop_assert_eq!(unfit.fragment, is_later && asks_for_ports);
        prop_assert!(!unfit.mac && !unfit.port);
        prop_assert_eq!(unfit.vlan, sketch.tags.is_empty() && rewrite.vlan.is_some());
        if sketch.has_no_checksum && layout.checksum_offset > 0 {
            let at = usize::from(layout.checksum_offset);
            prop_assert_eq!(&frame[at..at + 2], &[0, 0]);
        }
        assert_same(frame, want, &layout);
    }

    #[test]
    fn another_library_finds_the_checksums_right(sketch in sketch(), rewrite in rewrite()) {
        let sketch = Sketch { tags: Vec::new(), fragment: None, ..sketch };
        let mut frame = sketch.frame();
        let layout = Layout::of(LinkType::ETHERNET, &frame);
        rewrite.apply(&mut frame, &layout);
        let ethernet = EthernetFrame::new_checked(&frame[..]).unwrap();
        let (source, destination, transport): (IpAddress, IpAddress, &[u8]) = if sketch.is_v6 {
            let packet = Ipv6Packet::new_checked(ethernet.payload()).unwrap();
            let mut payload = packet.payload();
            for _ in 0..sketch.extras {
                let extension = Ipv6ExtHeader::new_checked(payload).unwrap();
                payload = &payload[8 + usize::from(extension.header_len()) * 8..];
            }
            (packet.src_addr().into(), packet.dst_addr().into(), payload)
        } else {
            let packet = Ipv4Packet::new_checked(ethernet.payload()).unwrap();
            prop_assert!(packet.verify_checksum());
            (packet.src_addr().into(), packet.dst_addr().into(), packet.payload())
        };
        if sketch.is_tcp {
            prop_assert!(TcpPacket::new_checked(transport).unwrap().verify_checksum(&source, &destination));
        } else {
            prop_assert!(UdpPacket::new_checked(transport).unwrap().verify_checksum(&source, &destination));
        }
    }

    #[test]
    fn a_tag_that_is_pushed_and_popped_leaves_the_frame_as_it_was(sketch in sketch(), vlan in 0..4096u16) {
        let original = sketch.frame();
        let mut frame = vec![0; TAG_BYTES];
        frame.extend(&original);
        prop_assert!(push_tag(&mut frame, vlan));
        let layout = Layout::of(LinkType::ETHERNET, &frame);
        prop_assert_eq!(layout.vlan(&frame), Some(vlan));
        prop_assert_eq!(usize::from(layout.tags), sketch.tags.len() + 1);
        prop_assert!(pop_tag(&mut frame, &layout));
        prop_assert_eq!(&frame[TAG_BYTES..], &original[..]);
    }

    #[test]
    fn a_checksum_of_the_pseudo_header_alone_is_completed(sketch in sketch(), padding in 0..8usize) {
        let want = Sketch { has_no_checksum: false, ..sketch.clone() }.frame();
        let layout = Layout::of(LinkType::ETHERNET, &want);
        let mut frame = want.clone();
        if layout.checksum_offset > 0 {
            let width = if sketch.is_v6 { 16 } else { 4 };
            let length = ((want.len() - usize::from(layout.transport_offset)) as u32).to_be_bytes();
            let pseudo = !naive_checksum(
                &[&sketch.source[..width], &sketch.destination[..width], &length, &[0, layout.protocol]],
            );
            let at = usize::from(layout.checksum_offset);
            frame[at..at + 2].copy_from_slice(&pseudo.to_be_bytes());
        }
        // Ethernet pads short frames.
        frame.resize(frame.len() + padding, 0);
        let before = frame.clone();
        let is_whole = sketch.fragment.is_none();
        prop_assert_eq!(complete_checksum(&mut frame, &layout), is_whole);
        if is_whole {
            assert_same(frame[..want.len()].to_vec(), want.clone(), &layout);
            // A packet with another sum in its field stays unchanged, and so does a truncated one.
            let mut right = want.clone();
            let at = usize::from(layout.checksum_offset);
            right[at] ^= 1;
            let mut other = right.clone();
            if right[at..at + 2] != before[at..at + 2] {
                prop_assert!(!complete_checksum(&mut other, &layout));
                prop_assert_eq!(other, right);
            }
            let mut cut = before[..want.len() - 1].to_vec();
            let layout = Layout::of(LinkType::ETHERNET, &cut);
            prop_assert!(!complete_checksum(&mut cut, &layout));
        } else {
            prop_assert_eq!(frame, before);
        }
    }

    #[test]
    fn nothing_panics_on_any_bytes(bytes in vec(any::<u8>(), 0..120), rewrite in rewrite(), link in 0..300u16) {
        let mut changed = bytes.clone();
        let layout = Layout::of(LinkType(link), &bytes);
        rewrite.apply(&mut changed, &layout);
        complete_checksum(&mut changed, &layout);
        pop_tag(&mut changed, &layout);
        prop_assert_eq!(changed.len(), bytes.len());
    }
}

fn udp_v4() -> Sketch {
    Sketch {
        tags: Vec::new(),
        is_v6: false,
        source: [10; 16],
        destination: [11; 16],
        extras: 0,
        is_tcp: false,
        ports: (1, 2),
        tcp_option_words: 0,
        payload: b"odd".to_vec(),
        has_no_checksum: false,
        fragment: None,
    }
}

#[test]
fn a_udp_checksum_that_becomes_zero_is_written_as_its_other_form() {
    // The payload's first word is chosen so that the checksum with the new port would be zero.
    let mut sketch = Sketch { payload: vec![0, 0], ..udp_v4() };
    let mut frame = sketch.frame();
    let layout = Layout::of(LinkType::ETHERNET, &frame);
    let at = usize::from(layout.checksum_offset);
    let checksum = u16::from_be_bytes([frame[at], frame[at + 1]]);
    let rewrite = Rewrite { source_port: Some(1 + checksum), ..Rewrite::default() };
    rewrite.apply(&mut frame, &layout);
    assert_eq!(frame[at..at + 2], [0xff, 0xff]);
    sketch.ports.0 = 1 + checksum;
    assert_eq!(frame, sketch.frame());
}

#[test]
fn a_wrong_checksum_stays_wrong_by_as_much() {
    let mut frame = udp_v4().frame();
    let layout = Layout::of(LinkType::ETHERNET, &frame);
    let at = usize::from(layout.checksum_offset);
    frame[at] ^= 0x01;
    let rewrite = Rewrite { destination_port: Some(999), ..Rewrite::default() };
    let mut right = udp_v4().frame();
    rewrite.apply(&mut frame, &layout);
    rewrite.apply(&mut right, &layout);
    assert_ne!(frame, right);
    rewrite_back(&mut frame, &layout);
    frame[at] ^= 0x01;
    assert_eq!(frame, udp_v4().frame());
}

fn rewrite_back(frame: &mut [u8], layout: &Layout) {
    Rewrite { destination_port: Some(2), ..Rewrite::default() }.apply(frame, layout);
}

#[test]
fn a_packet_that_the_capture_cut_keeps_a_right_checksum() {
    let sketch = Sketch { payload: vec![7; 64], ..udp_v4() };
    let whole = sketch.frame();
    let mut cut = whole[..50].to_vec();
    let rewrite = Rewrite { source_port: Some(4242), ..Rewrite::default() };
    let layout = Layout::of(LinkType::ETHERNET, &cut);
    assert!(rewrite.apply(&mut cut, &layout).is_nothing());
    let want = expected(&sketch, &rewrite).frame();
    assert_eq!(cut, want[..50]);
}

#[test]
fn a_destination_on_a_source_route_is_not_in_the_transport_checksum() {
    let mut frame = Sketch { extras: 2, ..udp_v4() }.frame();
    // Loose source route, 7 bytes, the pointer before its only address; then the end of options.
    frame[34..42].copy_from_slice(&[131, 7, 4, 9, 9, 9, 9, 0]);
    let layout = Layout::of(LinkType::ETHERNET, &frame);
    assert!(layout.is_routed);
    let at = usize::from(layout.checksum_offset);
    let before = frame[at..at + 2].to_vec();
    let to = Rewrite { destination_v4: Some([1, 2, 3, 4].into()), ..Rewrite::default() };
    to.apply(&mut frame, &layout);
    assert_eq!(frame[at..at + 2], before);
    let from = Rewrite { source_v4: Some([1, 2, 3, 4].into()), ..Rewrite::default() };
    from.apply(&mut frame, &layout);
    assert_ne!(frame[at..at + 2], before, "the source is in it");
}

#[test]
fn icmp_over_ipv6_has_the_addresses_in_its_checksum() {
    let message = [128, 0, 0, 0, 0, 1, 0, 2, 9];
    let frame = |source: [u8; 16]| {
        let mut frame = vec![0; 12];
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 9, 58, 64]);
        frame.extend(source);
        frame.extend([3; 16]);
        let mut body = message;
        let checksum = naive_checksum(&[&source, &[3; 16], &[0, 9, 0, 58], &body]);
        body[2..4].copy_from_slice(&checksum.to_be_bytes());
        frame.extend(body);
        frame
    };
    let mut changed = frame([1; 16]);
    let layout = Layout::of(LinkType::ETHERNET, &changed);
    let rewrite = Rewrite { source_v6: Some([0x77; 16].into()), source_port: Some(1), ..Rewrite::default() };
    let unfit = rewrite.apply(&mut changed, &layout);
    assert!(unfit.port && !unfit.address);
    assert_eq!(changed, frame([0x77; 16]));
}

#[test]
fn a_change_that_a_packet_has_no_field_for_is_reported() {
    let mut arp = vec![0; 42];
    arp[12..14].copy_from_slice(&[8, 6]);
    let layout = Layout::of(LinkType::ETHERNET, &arp);
    let rewrite = Rewrite {
        source_mac: Some([9; 6]),
        vlan: Some(5),
        source_port: Some(1),
        ..Rewrite::default().with_source("10.0.0.1".parse().unwrap())
    };
    let unfit = rewrite.apply(&mut arp, &layout);
    assert_eq!(unfit, Unfit { vlan: true, address: true, port: true, ..Unfit::default() });
    assert_eq!(arp[6..12], [9; 6]);
    let mut raw = udp_v4().frame().split_off(14);
    let layout = Layout::of(LinkType::RAW, &raw);
    assert!(rewrite.apply(&mut raw, &layout).mac);
}
