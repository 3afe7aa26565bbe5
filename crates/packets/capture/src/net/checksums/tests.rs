//! Tests which mismatches are damage, and which are normal for their flow.

use std::net::{SocketAddrV4, SocketAddrV6};

use proptest::prelude::*;

use super::super::build::{FrameBuilder, UDP_V6_HEADERS_BYTES, udp_v6_in_place};
use super::super::{Receiver, parse};
use super::*;
use crate::link_type::LinkType;

/// Offset of the payload in a frame over IPv4.
const PAYLOAD_OFFSET: usize = 42;

/// A frame of a flow with this source port; no two payloads are equal.
fn frame(port: u16, number: u64) -> Vec<u8> {
    let source = SocketAddrV4::new(Ipv4Addr::new(10, 1, 2, 3), port);
    let mut builder =
        FrameBuilder::to_group([2; 6], source, SocketAddrV4::new(Ipv4Addr::new(233, 54, 12, 111), 26_477));
    let mut payload = number.to_be_bytes().to_vec();
    payload.extend_from_slice(b"a message");
    let mut buffer = vec![0; 128];
    let length = builder.udp(&payload, &mut buffer).expect("large enough");
    buffer.truncate(length);
    buffer
}

/// A frame with a flipped bit in its payload.
fn damaged(port: u16, number: u64) -> Vec<u8> {
    let mut frame = frame(port, number);
    frame[PAYLOAD_OFFSET + 9] ^= 0x10;
    frame
}

/// A frame whose checksum was left to the network card: it covers only the pseudo header.
fn unfinished(port: u16, number: u64) -> Vec<u8> {
    let mut frame = frame(port, number);
    let datagram = parse(LinkType::ETHERNET, &frame).expect("a datagram");
    let partial = fold(swapped_pseudo_sum(&datagram, UDP_HEADER_BYTES + datagram.payload.len())).swap_bytes();
    frame[40..42].copy_from_slice(&partial.to_be_bytes());
    frame
}

/// A receiver, and how it classified the frames.
#[derive(Default)]
struct Run {
    receiver: Receiver,
    number: u64,
    used: Vec<u64>,
    discarded: Vec<u64>,
    reported: Vec<u64>,
}

impl Run {
    fn take(&mut self, make: impl Fn(u64) -> Vec<u8>, count: usize) {
        for _ in 0..count {
            self.number += 1;
            let number = self.number;
            let origin = Origin { number, offset: 0, timestamp_ns: number };
            match self.receiver.receive(LinkType::ETHERNET, &make(number), origin) {
                Ok(_) => self.used.push(number),
                Err(HeaderError::Checksum { is_used: false, .. }) => self.discarded.push(number),
                Err(error) => panic!("{error}"),
            }
            while let Some((origin, error)) = self.receiver.take_report(Some(number)) {
                assert!(matches!(error, HeaderError::Checksum { is_used: true, .. }), "{error}");
                self.reported.push(origin.number);
            }
            assert!(!self.receiver.is_pending());
        }
    }

    fn fitting(&mut self, count: usize) {
        self.take(|number| frame(1, number), count);
    }

    fn damaged(&mut self, count: usize) {
        self.take(|number| damaged(1, number), count);
    }
}

#[test]
fn a_flipped_bit_in_a_trusted_flow_discards_the_datagram() {
    let mut run = Run::default();
    run.fitting(9);
    run.damaged(1);
    run.fitting(1);
    assert_eq!((run.discarded, run.used.len(), run.reported), (vec![10], 10, vec![]));
}

#[test]
fn the_error_names_the_header_and_both_sums() {
    let mut receiver = Receiver::default();
    let origin = Origin { number: 1, offset: 0, timestamp_ns: 0 };
    for number in 0..9 {
        assert!(receiver.receive(LinkType::ETHERNET, &frame(1, number), origin).is_ok());
    }
    let whole = frame(1, 9);
    let error = receiver.receive(LinkType::ETHERNET, &damaged(1, 9), origin).expect_err("damaged");
    let HeaderError::Checksum { offset: 34, stated, computed, is_used: false } = error else {
        panic!("{error}")
    };
    assert_eq!(stated.to_be_bytes(), whole[40..42]);
    // The flip is of bit 4 of a low byte of a word, and a checksum is the complement of a sum.
    assert_eq!(stated.abs_diff(computed), 0x10);
    let text = format!(
        "UDP header at byte 34 states checksum {stated:#06x}, but the datagram has {computed:#06x}: it is discarded"
    );
    assert_eq!((error.to_string(), error.is_malformed()), (text, true));
}

#[test]
fn a_misfit_before_its_flow_is_trusted_is_used_and_reported_later() {
    let mut run = Run::default();
    run.fitting(2);
    run.damaged(1);
    run.fitting(7);
    assert_eq!((&run.reported[..], run.receiver.unverified()), (&[][..], 1));
    run.fitting(1);
    assert_eq!((run.reported, run.discarded, run.used.len()), (vec![3], vec![], 11));
    assert_eq!(run.receiver.unverified(), 0);
}

#[test]
fn unfinished_checksums_are_no_damage() {
    let mut run = Run::default();
    run.take(|number| unfinished(1, number), 1_000);
    // From here on the capture is taken after the network card.
    run.fitting(100);
    assert_eq!((run.used.len(), run.discarded.len(), run.reported.len()), (1_100, 0, 0));
    assert_eq!(run.receiver.unverified(), 1_000);
}

#[test]
fn a_flow_that_two_taps_capture_is_not_trusted_if_one_has_unfinished_sums() {
    let mut run = Run::default();
    run.take(|number| if number % 2 == 0 { unfinished(1, number) } else { frame(1, number) }, 1_000);
    assert_eq!((run.used.len(), run.discarded.len(), run.reported.len()), (1_000, 0, 0));
    // The same in bursts.
    let mut run = Run::default();
    run.take(|number| if number / 30 % 2 == 0 { unfinished(1, number) } else { frame(1, number) }, 1_000);
    assert_eq!((run.used.len(), run.discarded.len(), run.reported.len()), (1_000, 0, 0));
}

#[test]
fn eight_misfits_in_a_row_end_the_trust_in_a_flow() {
    let mut run = Run::default();
    run.fitting(500);
    run.take(|number| unfinished(1, number), 1_000);
    assert_eq!(run.discarded, (501..508).collect::<Vec<_>>());
    assert_eq!(run.used.len(), 500 + 993);
    // Regaining trust takes more than gaining it: a score of 64, of which the damaged datagram costs 8.
    run.fitting(63);
    run.damaged(1);
    run.fitting(8);
    run.damaged(1);
    assert_eq!((run.discarded.len(), run.reported.len()), (7, 0));
    run.fitting(9);
    assert_eq!((run.discarded.len(), run.reported.len()), (7, 0));
    run.damaged(1);
    assert_eq!(run.discarded.last(), Some(&run.number));
}

#[test]
fn a_misfit_right_after_eight_fitting_datagrams_is_used_and_reported() {
    let mut run = Run::default();
    run.fitting(8);
    run.damaged(1);
    run.fitting(8);
    assert_eq!((run.discarded.len(), run.reported), (0, vec![9]));
}

#[test]
fn a_checksum_of_zero_is_none_over_ipv4() {
    let mut run = Run::default();
    run.fitting(20);
    let without = |number| {
        let mut frame = damaged(1, number);
        frame[40..42].fill(0);
        frame
    };
    run.take(without, 100);
    assert_eq!((run.used.len(), run.receiver.unverified()), (120, 100));
    run.damaged(1);
    assert_eq!(run.discarded, [121]);
}

#[test]
fn a_cut_datagram_is_not_compared() {
    let mut run = Run::default();
    run.fitting(20);
    let cut = |number| {
        let mut frame = damaged(1, number);
        frame.pop();
        frame
    };
    run.take(cut, 1);
    assert_eq!((run.used.len(), run.discarded.len()), (21, 0));
}

#[test]
fn flows_are_judged_apart() {
    let mut run = Run::default();
    run.take(|number| if number % 2 == 0 { unfinished(7, number) } else { frame(1, number) }, 100);
    run.damaged(1);
    assert_eq!((run.discarded, run.used.len()), (vec![101], 100));
}

#[test]
fn more_flows_than_the_table_holds_are_read_without_trust() {
    let mut run = Run::default();
    for _ in 0..3 {
        for port in 0..20_000 {
            run.take(|number| if port % 3 == 0 { damaged(port, number) } else { frame(port, number) }, 1);
        }
    }
    assert_eq!((run.discarded.len(), run.used.len()), (0, 60_000));
}

#[test]
fn every_flipped_bit_of_a_payload_over_ipv6_is_found() {
    let (source, destination) = ("[2001:db8::1]:5000".parse(), "[ff3e::8000:1]:26477".parse());
    let (source, destination): (SocketAddrV6, SocketAddrV6) =
        (source.expect("an address"), destination.expect("an address"));
    let mut frame = vec![0x5a; UDP_V6_HEADERS_BYTES + 33];
    udp_v6_in_place([2; 6], source, destination, 33, &mut frame).expect("large enough");
    let origin = Origin { number: 1, offset: 0, timestamp_ns: 0 };
    let mut receiver = Receiver::default();
    for bit in 0..33 * 8 {
        for _ in 0..9 {
            assert!(receiver.receive(LinkType::ETHERNET, &frame, origin).is_ok());
        }
        let mut bent = frame.clone();
        bent[UDP_V6_HEADERS_BYTES + bit / 8] ^= 1 << (bit % 8);
        let error = receiver.receive(LinkType::ETHERNET, &bent, origin).expect_err("damaged");
        assert!(
            matches!(error, HeaderError::Checksum { offset: 54, is_used: false, .. }),
            "bit {bit}: {error}"
        );
    }
}

#[test]
fn the_checksum_of_a_reassembled_datagram_is_compared() {
    let in_fragments = |frame: &[u8]| {
        let payload = &frame[34..];
        let mut parts = Vec::new();
        for (at, piece) in payload.chunks(8).enumerate() {
            let more = (at + 1) * 8 < payload.len();
            let mut part = frame[..34].to_vec();
            part[16..18].copy_from_slice(&(20 + piece.len() as u16).to_be_bytes());
            part[20..22].copy_from_slice(&(at as u16 | u16::from(more) << 13).to_be_bytes());
            part.extend_from_slice(piece);
            parts.push(part);
        }
        parts
    };
    let mut receiver = Receiver::default();
    let mut last = |number: u64, frame: &[u8]| {
        let mut last = None;
        for (at, mut part) in in_fragments(frame).into_iter().enumerate() {
            part[18..20].copy_from_slice(&(number as u16).to_be_bytes());
            let origin = Origin { number: number * 100 + at as u64, offset: 0, timestamp_ns: 0 };
            last = Some(receiver.receive(LinkType::ETHERNET, &part, origin).map(|(_, origin)| origin.number));
        }
        last.expect("some fragments")
    };
    for number in 0..9 {
        assert_eq!(last(number, &frame(1, number)), Ok(number * 100));
    }
    let error = last(9, &damaged(1, 9)).expect_err("damaged");
    assert!(matches!(error, HeaderError::Checksum { offset: 34, is_used: false, .. }), "{error}");
}

#[test]
fn the_inner_checksum_of_a_tunnel_is_compared() {
    let in_gre = |inner: &[u8]| {
        let mut outer = frame(1, 0)[..34].to_vec();
        outer[16..18].copy_from_slice(&(20 + 4 + inner.len() as u16 - 14).to_be_bytes());
        outer[23] = 47;
        outer.extend([0, 0, 8, 0]);
        outer.extend_from_slice(&inner[14..]);
        outer
    };
    let mut run = Run::default();
    run.take(|number| in_gre(&frame(1, number)), 20);
    run.take(|number| in_gre(&damaged(1, number)), 1);
    assert_eq!((run.discarded, run.used.len()), (vec![21], 20));
}

/// The sum as defined in RFC 1071.
fn naive_sum(bytes: &[u8]) -> u16 {
    bytes.chunks(2).fold(0, |total: u16, word| {
        let word = u16::from_be_bytes([word[0], word.get(1).copied().unwrap_or(0)]);
        let (total, carry) = total.overflowing_add(word);
        total + u16::from(carry)
    })
}

proptest! {
    #[test]
    fn the_sum_of_eight_bytes_at_a_time_is_the_sum_of_words(
        bytes in proptest::collection::vec(prop_oneof![Just(0xff_u8), any::<u8>()], 0..300), at in 0_usize..150,
    ) {
        prop_assert_eq!(fold(sum(&bytes)), naive_sum(&bytes));
        let (head, tail) = bytes.split_at((at * 2).min(bytes.len() / 2 * 2));
        prop_assert_eq!(fold(sum(head) + sum(tail)), naive_sum(&bytes));
    }

    #[test]
    fn a_single_damaged_byte_is_always_found(at in 0_usize..17, flips in 1_u8..=255) {
        let mut run = Run::default();
        run.fitting(9);
        let damaged = |number| {
            let mut frame = frame(1, number);
            frame[PAYLOAD_OFFSET + at] ^= flips;
            frame
        };
        run.take(damaged, 1);
        prop_assert_eq!(run.discarded, [10]);
    }
}
