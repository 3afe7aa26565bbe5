//! TCP streams in a capture: how they are counted, and what a hole or an end costs.

#![allow(clippy::unwrap_used)]

use tapeworks_capture::net::{Datagram, TcpFlags, TcpHeader, Transport};
use tapeworks_feed::{Feed, FeedOptions, Packet, ProblemKind};
use tapeworks_market::Event;
use tapeworks_stage::Stage as _;
use tapeworks_time::Nanos;

/// 2025-11-14, 10:00 in New York.
const MORNING: u64 = 1_763_132_400 * Nanos::SECOND;

/// One direction of a TCP connection in a capture.
struct Connection {
    feed: Feed,
    events: Vec<Event>,
    /// The sequence number of the next byte.
    next: u32,
    now: u64,
}

impl Connection {
    fn new() -> Self {
        Self { feed: Feed::new(FeedOptions::default()), events: Vec::new(), next: 1, now: MORNING }
    }

    fn segment(&mut self, payload: &[u8], flags: TcpFlags) -> &mut Self {
        let header = TcpHeader { sequence: self.next, acknowledgment: 0, flags };
        let datagram = Datagram {
            source: "10.0.0.1:1".parse().unwrap(),
            destination: "10.0.0.2:2".parse().unwrap(),
            vlan: None,
            transport: Transport::Tcp(header),
            payload,
            payload_offset: 54,
            truncated: false,
        };
        let packet = Packet { file: 0, number: 1, offset: 0, received: Nanos(self.now), datagram };
        self.feed.process(&[packet], &mut |event: Event| self.events.push(event));
        self.next += payload.len() as u32;
        self
    }

    fn bytes(&mut self, payload: &[u8]) -> &mut Self {
        self.segment(payload, TcpFlags::ACK)
    }

    /// These bytes are not in the capture.
    fn lose(&mut self, bytes: u32) -> &mut Self {
        self.next += bytes;
        self
    }

    /// Session bytes, skipped bytes, and how often an unknown protocol was noted.
    fn end(&mut self) -> (u64, u64, usize) {
        self.feed.finish(&mut |event: Event| self.events.push(event));
        let counters = self.feed.counters();
        let is_unknown = |kind: &ProblemKind| matches!(kind, ProblemKind::UnknownProtocol { .. });
        let unknown = self.feed.problems().kept().iter().filter(|problem| is_unknown(&problem.kind)).count();
        (counters.session_bytes, counters.skipped_stream_bytes, unknown)
    }
}

/// A heartbeat and a missed message request's answer of Millennium's order entry.
const NATIVE: &[u8] = b"\x02\x01\x000\x02\x02\x00N\x00";

#[test]
fn every_byte_of_a_session_counts_also_around_a_hole() {
    assert_eq!(Connection::new().bytes(NATIVE).end(), (9, 0, 0));
    // Two bytes of a packet before the hole, and what cannot be read after it.
    let half = [NATIVE, &NATIVE[..2]].concat();
    assert_eq!(Connection::new().bytes(&half).lose(7).bytes(b"anything").end(), (19, 0, 0));
    // A packet that the capture's end cuts.
    assert_eq!(Connection::new().bytes(&half).end(), (11, 0, 0));
}

#[test]
fn fix_is_a_session_whole_or_not() {
    let heartbeat = b"8=FIX.4.4\x019=5\x0135=0\x0110=163\x01";
    let all = [&heartbeat[..], b"junk", heartbeat].concat();
    assert_eq!(Connection::new().bytes(&all).end(), (all.len() as u64, 0, 0));
    assert_eq!(Connection::new().bytes(&heartbeat[..20]).end(), (20, 0, 0));
    // After a hole FIX resumes, and the hole is reported.
    let mut connection = Connection::new();
    let lossy = connection.bytes(&heartbeat[..20]).lose(8).bytes(heartbeat).end();
    assert_eq!(lossy, (20 + heartbeat.len() as u64, 0, 0));
    let kinds: Vec<_> = connection.feed.problems().kept().iter().map(|problem| &problem.kind).collect();
    assert_eq!(kinds, [&ProblemKind::StreamHole { lost: 8 }]);
}

#[test]
fn data_that_cannot_be_read_is_reported_behind_an_order() {
    let cancel = b"\x00\x0aUX\0\0\0\x01\0\0\0\0";
    let unknown = b"\x00\x05S~~~~";
    assert_eq!(Connection::new().bytes(cancel).end(), (12, 0, 0));
    let both = [&cancel[..], unknown, unknown].concat();
    assert_eq!(Connection::new().bytes(&both).end(), (12, 14, 1));
}

#[test]
fn a_loss_in_a_stream_has_the_time_at_which_it_is_known() {
    let login = [[0, 31, b'A'].as_slice(), b"SESSION1  ", format!("{:>20}", 1).as_bytes()].concat();
    let mut connection = Connection::new();
    connection.bytes(&login).bytes(b"\x00\x0cS");
    connection.now += 6 * 3_600 * Nanos::SECOND;
    connection.segment(&[], TcpFlags(TcpFlags::ACK.0 | TcpFlags::FIN.0)).end();
    let gaps: Vec<Nanos> =
        connection.events.iter().filter(|event| event.gap().is_some()).map(|event| event.ts_recv).collect();
    assert_eq!(gaps, [Nanos(MORNING + 6 * 3_600 * Nanos::SECOND)]);
}
