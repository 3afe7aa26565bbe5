//! Datagrams of one message each, captured and live.

use std::hint::black_box;
use std::net::SocketAddr;
use std::ops::Range;

use tapeworks_capture::framed::FramedReader;
use tapeworks_capture::net::{Datagram, Transport};
use tapeworks_capture::source::ByteSource;
use tapeworks_feed::live::{Input, LiveChannelOptions, LiveFeed};
use tapeworks_feed::{Application, Feed, FeedOptions, Packet};
use tapeworks_follow::arbitration::ArbiterOptions;
use tapeworks_market::{Event, Line, Publisher};
use tapeworks_session::{Content, SessionId, Stream};
use tapeworks_stage::Stage as _;
use tapeworks_time::Nanos;

/// When the first packet is received: a morning in New York.
const START: Nanos = Nanos(1_763_044_200_000_000_000);

/// Consecutive datagrams.
#[derive(Default)]
struct Packets {
    bytes: Vec<u8>,
    each: Vec<Range<usize>>,
}

impl Packets {
    fn add(&mut self, payload: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(payload);
        self.each.push(start..self.bytes.len());
    }

    /// Each datagram with its receive time, starting at number `first`.
    fn iter(&self, first: usize) -> impl Iterator<Item = (Nanos, &[u8])> {
        let times = (first as u64..).map(|number| Nanos(START.0 + number * 1_000));
        times.zip(self.each.iter().map(|range| &self.bytes[range.clone()]))
    }
}

/// The messages of both parts as datagrams of one session.
fn packets(parts: [Vec<u8>; 2]) -> [Packets; 2] {
    let mut stream = Stream::new(SessionId::MoldUdp64(*b"20251113 A"), 0);
    parts.map(|part| {
        let mut reader = FramedReader::new(ByteSource::from_bytes("session", part));
        let mut packets = Packets::default();
        while let Ok(Some(batch)) = reader.next_batch() {
            for frame in batch {
                stream.put(frame.bytes);
                stream.close(0, Content::Messages);
                packets.add(stream.payload());
                stream.begin_next();
            }
        }
        packets
    })
}

/// Runs what is counted.
type Counted = fn(&mut dyn FnMut());

/// Runs `take` over both parts, counting in the second. Returns its messages.
fn over(parts: [Vec<u8>; 2], counted: Counted, mut take: impl FnMut(Nanos, &[u8])) -> u64 {
    let [warm_up, rest] = packets(parts);
    warm_up.iter(0).for_each(|(received, payload)| take(received, payload));
    let first = warm_up.each.len();
    counted(&mut || rest.iter(first).for_each(|(received, payload)| take(received, payload)));
    rest.each.len() as u64
}

pub(super) fn captured(parts: [Vec<u8>; 2], counted: Counted) -> u64 {
    let mut feed = Feed::new(FeedOptions::default());
    let mut sum = 0_u64;
    let mut number = 0;
    let (source, destination) =
        (SocketAddr::from(([10, 0, 0, 1], 30_000)), SocketAddr::from(([233, 54, 12, 111], 26_477)));
    let messages = over(parts, counted, |received, payload| {
        number += 1;
        let datagram = Datagram {
            source,
            destination,
            vlan: None,
            transport: Transport::Udp,
            payload,
            payload_offset: 42,
            truncated: false,
        };
        let packet = Packet { file: 0, number, offset: number * 100, received, datagram };
        feed.process(&[packet], &mut |event: Event| sum = sum.wrapping_add(event.order_id));
    });
    black_box(sum);
    messages
}

pub(super) fn live(parts: [Vec<u8>; 2], counted: Counted) -> u64 {
    let channel = LiveChannelOptions {
        name: "itch".to_owned(),
        application: Application::TotalViewItch50,
        publisher: Publisher::XNAS_ITCH,
        arbiter: ArbiterOptions::default(),
        snapshot: None,
    };
    let mut feed = LiveFeed::new(FeedOptions::default(), vec![channel]);
    let mut sum = 0_u64;
    let messages = over(parts, counted, |received, payload| {
        feed.input(&Input::Packet { channel: 0, line: Line::A, received, payload }, &mut |event: Event| {
            sum = sum.wrapping_add(event.order_id)
        });
    });
    black_box(sum);
    messages
}
