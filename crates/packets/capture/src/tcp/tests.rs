//! Tests of the reassembly: hand-made arrival orders, and random ones against the original stream.

use proptest::prelude::*;

use super::*;

const SYN_SEQUENCE: u32 = 0xffff_fff0; // numbers wrap within every test

fn flow() -> Flow {
    Flow {
        source: SocketAddr::from(([10, 0, 0, 1], 5000)),
        destination: SocketAddr::from(([10, 0, 0, 2], 80)),
    }
}

fn segment(sequence: u32, flags: TcpFlags, payload: &[u8]) -> Datagram<'_> {
    let Flow { source, destination } = flow();
    let transport = Transport::Tcp(TcpHeader { sequence, acknowledgment: 0, flags });
    Datagram { source, destination, vlan: None, transport, payload, payload_offset: 54, truncated: false }
}

/// Returns a segment with the stream's bytes starting at `offset`.
fn part(offset: u32, payload: &[u8]) -> Datagram<'_> {
    segment(SYN_SEQUENCE.wrapping_add(1).wrapping_add(offset), TcpFlags::ACK, payload)
}

fn syn<'a>() -> Datagram<'a> {
    segment(SYN_SEQUENCE, TcpFlags::SYN, &[])
}

/// The reported events as text.
#[derive(Default)]
struct Log(Vec<String>);

impl Log {
    fn push(&mut self, event: StreamEvent<'_>) {
        self.0.push(match event {
            StreamEvent::Opened { midway, .. } => format!("opened midway={midway}"),
            StreamEvent::Bytes { offset, bytes, .. } => {
                format!("{offset}:{}", String::from_utf8_lossy(bytes))
            }
            StreamEvent::Hole { offset, lost, .. } => format!("{offset}:hole of {lost}"),
            StreamEvent::Closed { length, .. } => format!("closed at {length}"),
        });
    }
}

fn events_with(limits: Limits, segments: &[Datagram<'_>]) -> (Vec<String>, Counters) {
    let mut reassembler = Reassembler::new(limits);
    let mut log = Log::default();
    for segment in segments {
        reassembler.push(segment, |event| log.push(event));
    }
    reassembler.finish(|event| log.push(event));
    (log.0, reassembler.counters())
}

fn events(segments: &[Datagram<'_>]) -> Vec<String> {
    events_with(Limits::default(), segments).0
}

#[test]
fn segments_in_order_are_handed_on_as_they_come() {
    let events = events(&[syn(), part(0, b"abc"), part(3, b"def")]);
    assert_eq!(events, ["opened midway=false", "0:abc", "3:def", "closed at 6"]);
}

#[test]
fn a_retransmission_is_dropped_and_its_new_tail_kept() {
    let (events, counters) =
        events_with(Limits::default(), &[syn(), syn(), part(0, b"abc"), part(0, b"abc"), part(1, b"bcde")]);
    assert_eq!(events, ["opened midway=false", "0:abc", "3:de", "closed at 5"]);
    assert_eq!(counters.repeated_bytes, 5);
}

#[test]
fn early_segments_wait_for_the_missing_one() {
    let events = events(&[syn(), part(6, b"ghi"), part(3, b"defg"), part(0, b"abc")]);
    assert_eq!(events, ["opened midway=false", "0:abc", "3:defg", "7:hi", "closed at 9"]);
}

#[test]
fn a_gap_is_reported_when_too_many_bytes_wait_behind_it() {
    let limits = Limits { early_segments: 1, ..Limits::default() };
    let (events, counters) =
        events_with(limits, &[syn(), part(2, b"c"), part(5, b"f"), part(0, b"ab"), part(6, b"g")]);
    assert_eq!(
        events,
        ["opened midway=false", "0:hole of 2", "2:c", "3:hole of 2", "5:f", "6:g", "closed at 7"]
            .map(String::from)
            .to_vec()
    );
    assert_eq!((counters.holes, counters.lost_bytes, counters.repeated_bytes), (2, 4, 2));
}

#[test]
fn a_flow_met_midway_says_so() {
    assert_eq!(events(&[part(100, b"xyz")]), ["opened midway=true", "0:xyz", "closed at 3"]);
}

#[test]
fn a_fin_closes_once_and_later_bytes_are_counted() {
    let fin = segment(SYN_SEQUENCE.wrapping_add(4), TcpFlags::FIN | TcpFlags::ACK, b"d");
    let (events, counters) =
        events_with(Limits::default(), &[syn(), fin, part(0, b"abc"), fin, part(4, b"zz")]);
    assert_eq!(events, ["opened midway=false", "0:abc", "3:d", "closed at 4"]);
    assert_eq!(counters.late_bytes, 3);
}

#[test]
fn a_fin_after_lost_bytes_leaves_a_gap_at_the_end() {
    let fin = segment(SYN_SEQUENCE.wrapping_add(6), TcpFlags::FIN, &[]);
    assert_eq!(
        events(&[syn(), part(0, b"abc"), fin]),
        ["opened midway=false", "0:abc", "3:hole of 2", "closed at 5"]
    );
}

#[test]
fn a_new_connection_in_the_same_ports_closes_the_old_one() {
    let again = segment(7, TcpFlags::SYN, &[]);
    let more = segment(8, TcpFlags::ACK, b"new");
    let events = events(&[syn(), part(0, b"old"), again, more]);
    assert_eq!(
        events,
        ["opened midway=false", "0:old", "closed at 3", "opened midway=false", "0:new", "closed at 3"]
    );
}

#[test]
fn the_flow_silent_longest_is_forgotten_for_a_new_one() {
    let limits = Limits { flows: 1, ..Limits::default() };
    let other = Datagram { source: SocketAddr::from(([10, 0, 0, 9], 1)), ..part(0, b"b") };
    let (events, counters) = events_with(limits, &[part(0, b"a"), other]);
    assert_eq!(events.join(" "), "opened midway=true 0:a closed at 1 opened midway=true 0:b closed at 1");
    assert_eq!(counters.flows_forgotten, 1);
}

proptest! {
    #[test]
    fn any_order_of_overlapping_segments_gives_the_stream_back(
        stream in proptest::collection::vec(any::<u8>(), 1..2_000),
        cuts in proptest::collection::vec((any::<prop::sample::Index>(), 1_usize..200), 0..60),
        order in any::<u64>(),
    ) {
        // Segments that cover the stream, plus overlapping ones, all shuffled.
        let mut ranges: Vec<(usize, usize)> =
            (0..stream.len()).step_by(100).map(|start| (start, (start + 100).min(stream.len()))).collect();
        for (start, length) in &cuts {
            let start = start.index(stream.len());
            ranges.push((start, (start + length).min(stream.len())));
        }
        ranges.sort_by_key(|&(start, end)| (start as u64 ^ order).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ end as u64);

        let mut reassembler = Reassembler::default();
        let mut received = Vec::new();
        let mut next_offset = 0;
        let mut take = |event: StreamEvent<'_>| match event {
            StreamEvent::Bytes { offset, bytes, .. } => {
                assert_eq!(offset, next_offset);
                next_offset += bytes.len() as u64;
                received.extend_from_slice(bytes);
            }
            StreamEvent::Hole { .. } => panic!("a hole where there is none"),
            StreamEvent::Opened { .. } | StreamEvent::Closed { .. } => {}
        };
        reassembler.push(&syn(), &mut take);
        let mut sent = 0;
        for (start, end) in ranges {
            sent += end - start;
            reassembler.push(&part(start as u32, &stream[start..end]), &mut take);
        }
        reassembler.finish(&mut take);
        prop_assert_eq!(&received, &stream);
        let counters = reassembler.counters();
        prop_assert_eq!(counters.delivered_bytes + counters.repeated_bytes, sent as u64);
    }

    #[test]
    fn arbitrary_segments_never_panic_and_every_byte_is_accounted_for(
        segments in proptest::collection::vec(
            (any::<u32>(), any::<u8>(), proptest::collection::vec(any::<u8>(), 0..20), 0_u8..3, any::<bool>()), 0..200),
    ) {
        let limits = Limits { early_bytes: 100, early_segments: 5, flows: 2 };
        let mut reassembler = Reassembler::new(limits);
        let mut sent = 0;
        let mut expected: HashMap<Flow, u64> = HashMap::new();
        let mut check = |event: StreamEvent<'_>| match event {
            StreamEvent::Opened { flow, .. } => assert_eq!(expected.insert(flow, 0), None),
            StreamEvent::Bytes { flow, offset, bytes } => {
                let next = expected.get_mut(&flow).expect("open");
                assert_eq!(*next, offset);
                *next += bytes.len() as u64;
            }
            StreamEvent::Hole { flow, offset, lost } => {
                let next = expected.get_mut(&flow).expect("open");
                assert_eq!(*next, offset);
                *next += lost;
            }
            StreamEvent::Closed { flow, length } => assert_eq!(expected.remove(&flow), Some(length)),
        };
        for (sequence, flags, payload, source, truncated) in &segments {
            let datagram = segment(*sequence, TcpFlags(*flags), payload);
            let source = SocketAddr::from(([10, 0, 0, *source], 1));
            sent += payload.len() as u64;
            reassembler.push(&Datagram { source, truncated: *truncated, ..datagram }, &mut check);
        }
        reassembler.finish(&mut check);
        prop_assert!(expected.is_empty(), "every flow is closed");
        let counters = reassembler.counters();
        prop_assert_eq!(counters.delivered_bytes + counters.repeated_bytes + counters.late_bytes, sent);
    }
}
