//! Network headers and TCP streams.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use tapeworks_capture::LinkType;
use tapeworks_capture::net::layout::{Layout, Network};
use tapeworks_capture::net::rewrite::{Rewrite, TAG_BYTES, pop_tag, push_tag};
use tapeworks_capture::net::{self, Datagram, TcpFlags, TcpHeader, Transport};
use tapeworks_capture::tcp::{Flow, Limits, Reassembler, StreamEvent};

use crate::take::Take;

/// A packet of any link type: a payload lies where it is said to lie.
pub fn net(bytes: &[u8]) {
    for link_type in [
        LinkType::ETHERNET,
        LinkType::RAW,
        LinkType::NULL,
        LinkType::LOOP,
        LinkType::LINUX_SLL,
        LinkType::LINUX_SLL2,
        LinkType::IPV4,
        LinkType::IPV6,
    ] {
        match net::parse(link_type, bytes) {
            Ok(datagram) => {
                let end = datagram.payload_offset + datagram.payload.len();
                assert!(end <= bytes.len(), "{link_type:?}: {end} of {}", bytes.len());
                assert_eq!(datagram.payload, &bytes[datagram.payload_offset..end]);
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

/// The state of one flow, from its events.
#[derive(Default)]
struct State {
    is_open: bool,
    /// Bytes since it was opened last.
    offset: u64,
    /// Bytes and holes of all its lives.
    delivered: u64,
    lost: u64,
}

/// Segments of a few flows, in any order: bytes come without a gap between one report and the next.
pub fn tcp(bytes: &[u8]) {
    let mut take = Take(bytes);
    let options = take.u8();
    let limits = Limits {
        early_bytes: 1 << (options & 15),
        early_segments: usize::from(options >> 4) + 1,
        flows: usize::from(options & 3) + 1,
    };
    let mut reassembler = Reassembler::new(limits);
    let mut flows = HashMap::<Flow, State>::new();
    let mut base = take.u32();
    let mut taken = 0u64;
    while !take.is_empty() {
        let who = take.u8();
        let delta = take.u16().cast_signed();
        base = if who & 0x80 == 0 { base } else { base.wrapping_add(take.u32()) };
        let length = usize::from(take.u8());
        let payload = take.bytes(length);
        let flags = TcpFlags(take.u8());
        let peer = |port| SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port));
        let datagram = Datagram {
            source: peer(u16::from(who & 7)),
            destination: peer(9),
            vlan: None,
            transport: Transport::Tcp(TcpHeader {
                sequence: base.wrapping_add_signed(i32::from(delta)),
                acknowledgment: 0,
                flags,
            }),
            payload,
            payload_offset: 0,
            truncated: who & 0x40 != 0,
        };
        taken += payload.len() as u64;
        reassembler.push(&datagram, |event| follow(&mut flows, event));
    }
    reassembler.finish(|event| follow(&mut flows, event));
    assert!(flows.values().all(|state| !state.is_open), "a flow is still open after the end");
    let counters = reassembler.counters();
    assert!(
        counters.delivered_bytes + counters.repeated_bytes + counters.late_bytes <= taken,
        "{counters:?} of {taken}"
    );
    assert_eq!(counters.delivered_bytes, flows.values().map(|state| state.delivered).sum::<u64>());
    assert_eq!(counters.lost_bytes, flows.values().map(|state| state.lost).sum::<u64>());
}

fn follow(flows: &mut HashMap<Flow, State>, event: StreamEvent<'_>) {
    match event {
        StreamEvent::Opened { flow, .. } => {
            let state = flows.entry(flow).or_default();
            assert!(!state.is_open);
            (state.is_open, state.offset) = (true, 0);
        }
        StreamEvent::Bytes { flow, offset, bytes } => {
            let state = flows.get_mut(&flow).expect("bytes of a flow that was opened");
            assert!(state.is_open && !bytes.is_empty());
            assert_eq!(state.offset, offset);
            state.offset += bytes.len() as u64;
            state.delivered += bytes.len() as u64;
        }
        StreamEvent::Hole { flow, offset, lost } => {
            let state = flows.get_mut(&flow).expect("a hole in a flow that was opened");
            assert!(state.is_open && lost > 0);
            assert_eq!(state.offset, offset);
            (state.offset, state.lost) = (state.offset + lost, state.lost + lost);
        }
        StreamEvent::Closed { flow, length } => {
            let state = flows.get_mut(&flow).expect("the end of a flow that was opened");
            assert!(state.is_open);
            assert_eq!(state.offset, length);
            state.is_open = false;
        }
    }
}

/// Any bytes as a packet, any fields: a rewrite changes nothing but those fields and their checksums, and the opposite
/// rewrite undoes it.
pub fn rewrite(bytes: &[u8]) {
    let mut take = Take(bytes);
    let bits = take.u16();
    let link_type =
        [LinkType::ETHERNET, LinkType::RAW, LinkType::LINUX_SLL, LinkType::NULL][usize::from(take.u8() & 3)];
    let mut mac = || <[u8; 6]>::try_from([take.bytes(6), &[0; 6]].concat().split_at(6).0).unwrap_or_default();
    let (source_mac, destination_mac) = (mac(), mac());
    let (source_v4, destination_v4) = (Ipv4Addr::from(take.u32()), Ipv4Addr::from(take.u32()));
    let (source_v6, destination_v6) = (wide(take.u32()), wide(take.u32()));
    let (source_port, destination_port, vlan) = (take.u16(), take.u16(), take.u16() & 0x0fff);
    let is_set = |bit: u16| bits & 1 << bit != 0;
    let there = Rewrite {
        source_mac: is_set(0).then_some(source_mac),
        destination_mac: is_set(1).then_some(destination_mac),
        vlan: is_set(2).then_some(vlan),
        source_v4: is_set(3).then_some(source_v4),
        destination_v4: is_set(4).then_some(destination_v4),
        source_v6: is_set(5).then_some(source_v6),
        destination_v6: is_set(6).then_some(destination_v6),
        source_port: is_set(7).then_some(source_port),
        destination_port: is_set(8).then_some(destination_port),
    };
    let original = take.0;
    let layout = Layout::of(link_type, original);
    let mut back = Rewrite { vlan: layout.vlan(original), ..Rewrite::default() };
    if let Some((source, destination)) = layout.macs(original) {
        (back.source_mac, back.destination_mac) = (Some(source), Some(destination));
    }
    if let Some((source, destination)) = layout.addresses(original) {
        back = back.with_source(source).with_destination(destination);
    }
    if let Some((source, destination)) = layout.ports(original) {
        (back.source_port, back.destination_port) = (Some(source), Some(destination));
    }
    let mut packet = original.to_vec();
    there.apply(&mut packet, &layout);
    assert_eq!(Layout::of(link_type, &packet), layout);
    back.apply(&mut packet, &layout);
    // Zero has two forms in a checksum, and which of them comes out does not matter.
    assert_eq!(with_one_zero(packet, &layout), with_one_zero(original.to_vec(), &layout));

    let mut tagged = [&[0; TAG_BYTES], original].concat();
    // A frame that ends inside a tag has no readable tag.
    let has_link = layout.is_ethernet && layout.network_offset > 0;
    if has_link && push_tag(&mut tagged, vlan) {
        let with_tag = Layout::of(link_type, &tagged);
        assert_eq!(with_tag.vlan(&tagged), Some(vlan));
        assert!(pop_tag(&mut tagged, &with_tag));
        assert_eq!(&tagged[TAG_BYTES..], original);
    }
}

fn wide(number: u32) -> std::net::Ipv6Addr {
    std::net::Ipv6Addr::from(u128::from(number) * 0x0001_0000_0001_0000_0001_0000_0001)
}

fn with_one_zero(mut packet: Vec<u8>, layout: &Layout) -> Vec<u8> {
    let of_ipv4 = (layout.network == Network::V4).then(|| usize::from(layout.network_offset) + 10);
    let of_transport = (layout.checksum_offset > 0).then(|| usize::from(layout.checksum_offset));
    for at in [of_ipv4, of_transport].into_iter().flatten() {
        if packet[at..at + 2] == [0xff, 0xff] {
            packet[at..at + 2].fill(0);
        }
    }
    packet
}
