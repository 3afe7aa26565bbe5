//! A channel that carries several publishers, as a SIP's does: tests with a feed made for them.
//!
//! A message is a quote of one side: the participant's place, `B` or `A`, price in dollars (4 bytes, big-endian), shares
//! (4 bytes), symbol (8 bytes). The transport is MoldUDP64.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use tapeworks_capture::net::{Datagram, Transport};
use tapeworks_market::book::Capacity;
use tapeworks_market::{BookStage, BookUpdate, Event, EventKind, InstrumentId, Line, Price, Publisher, Side};
use tapeworks_session::{SessionId, Stream};
use tapeworks_stage::{Sink, Stage as _};
use tapeworks_time::Nanos;
use tapeworks_wire::DecodeError;

use crate::live::{Input, LiveChannelOptions, LiveFeed};
use crate::locates::Contradiction;
use crate::normaliser::{Normaliser, Start, Target};
use crate::publisher::PublisherSpec;
use crate::table::Application;
use crate::{Feed, FeedOptions, Packet};
use tapeworks_follow::arbitration::ArbiterOptions;

const ONE: Publisher = Publisher(9_501);
const TWO: Publisher = Publisher(9_502);

pub(crate) static PARTICIPANTS: [PublisherSpec; 2] = [
    PublisherSpec { publisher: ONE, names: &["one"], groups: &[] },
    PublisherSpec { publisher: TWO, names: &["two"], groups: &[] },
];

#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Debug)]
pub(crate) struct SipNormaliser;

impl Normaliser for SipNormaliser {
    fn new(_start: &Start) -> Self {
        Self
    }

    fn message<S: Sink<Event>>(
        &mut self,
        message: &[u8],
        to: &mut Target<'_, S>,
    ) -> Result<Option<Contradiction>, DecodeError> {
        let (Some([participant, side]), Some(symbol)) = (message.first_chunk(), message.last_chunk::<8>())
        else {
            return Err(DecodeError::Empty);
        };
        let number = |from: usize| message.get(from..)?.first_chunk().map(|bytes| u32::from_be_bytes(*bytes));
        let publisher = PARTICIPANTS.get(usize::from(*participant)).map_or(ONE, |one| one.publisher);
        let sink = &mut *to.sink;
        let instrument = to.symbols.resolve(*symbol, publisher, |mapping| sink.put(mapping));
        let mut event = Event::new(EventKind::Quote, publisher, instrument);
        event.side = if *side == b'B' { Side::Bid } else { Side::Ask };
        event.price = Price::from_e9(i64::from(number(2).unwrap_or_default()) * 1_000_000_000);
        event.size = number(6).unwrap_or_default();
        event.ts_recv = to.context.received.unwrap_or_default();
        (event.ts_event, event.channel_sequence) = (event.ts_recv, to.context.sequence);
        event.channel = to.context.channel;
        to.sink.put(event);
        Ok(None)
    }
}

fn quote(participant: u8, side: u8, symbol: &[u8; 8]) -> Vec<u8> {
    let price = if side == b'B' { 10_u32 } else { 11 };
    [&[participant, side][..], &price.to_be_bytes(), &100_u32.to_be_bytes(), symbol].concat()
}

fn both_sides(symbol: &[u8; 8]) -> Vec<Vec<u8>> {
    [(0, b'B'), (0, b'A'), (1, b'B'), (1, b'A')]
        .map(|(participant, side)| quote(participant, side, symbol))
        .to_vec()
}

/// A stream of packets, some of which are lost.
struct Wire(Stream);

impl Wire {
    fn new(session: &[u8; 10]) -> Self {
        Self(Stream::new(SessionId::MoldUdp64(*session), 0))
    }

    fn packet(&mut self, messages: &[Vec<u8>]) -> Vec<u8> {
        for message in messages {
            self.0.put(message);
        }
        self.0.close(0, tapeworks_session::Content::Messages);
        let payload = self.0.payload().to_vec();
        self.0.begin_next();
        payload
    }
}

fn live(channels: usize) -> LiveFeed {
    let channel = |number| LiveChannelOptions {
        name: format!("channel {number}"),
        application: Application::TestSip,
        publisher: ONE,
        arbiter: ArbiterOptions::default(),
        snapshot: None,
    };
    LiveFeed::new(FeedOptions::default(), (0..channels).map(channel).collect())
}

/// The live feed, the books after it, and the gaps seen.
struct Market {
    live: LiveFeed,
    books: BookStage,
    gaps: BTreeMap<Publisher, u64>,
    now: u64,
}

impl Market {
    fn new(channels: usize) -> Self {
        let capacity = Capacity { instruments: 8, orders: 8, levels: 64 };
        let books = BookStage::new([(ONE, capacity), (TWO, capacity)]);
        Self { live: live(channels), books, gaps: BTreeMap::new(), now: 1_763_130_600_000_000_000 }
    }

    fn input(&mut self, input: &Input<&[u8]>) {
        let (books, gaps) = (&mut self.books, &mut self.gaps);
        self.live.input(input, &mut |event: Event| {
            if let Some(gap) = event.gap() {
                *gaps.entry(event.publisher).or_default() += gap.count;
            }
            books.process(&[event], &mut |_: BookUpdate<'_>| {});
        });
    }

    fn packet(&mut self, channel: u16, payload: &[u8]) {
        self.now += 1_000;
        self.input(&Input::Packet { channel, line: Line::A, received: Nanos(self.now), payload });
    }

    /// Lets the reorder window end.
    fn wait(&mut self) {
        self.now += 10_000_000;
        self.input(&Input::Tick { now: Nanos(self.now) });
    }

    /// Returns which books of an instrument are stale, by publisher.
    fn stale(&self, instrument: u32) -> [bool; 2] {
        [ONE, TWO].map(|publisher| {
            self.books.feed(publisher).is_some_and(|books| books.book(InstrumentId(instrument)).is_stale())
        })
    }
}

#[test]
fn a_gap_makes_the_books_of_every_publisher_of_the_channel_stale() {
    let (mut market, mut wire) = (Market::new(1), Wire::new(b"SIP0000001"));
    market.packet(0, &wire.packet(&both_sides(b"AAA     ")));
    assert_eq!(market.stale(0), [false; 2]);
    let _lost = wire.packet(&both_sides(b"AAA     "));
    market.packet(0, &wire.packet(&[quote(0, b'B', b"AAA     ")]));
    market.wait();
    assert_eq!(market.stale(0), [true; 2]);
    // Instruments that only the missing messages may have named are stale too.
    assert_eq!(market.stale(3), [true; 2]);
    assert_eq!(market.gaps, BTreeMap::from([(ONE, 4), (TWO, 4)]));
    // Both sides of one publisher clear its book and not the other's.
    market.packet(0, &wire.packet(&both_sides(b"AAA     ")[2..]));
    assert_eq!(market.stale(0), [true, false]);
    market.packet(0, &wire.packet(&both_sides(b"AAA     ")[..2]));
    assert_eq!(market.stale(0), [false; 2]);
}

#[test]
fn a_gap_of_one_of_several_channels_leaves_the_books_of_the_others() {
    let mut market = Market::new(2);
    let mut wires = [Wire::new(b"SIP0000001"), Wire::new(b"SIP0000002")];
    market.packet(0, &wires[0].packet(&both_sides(b"AAA     ")));
    market.packet(1, &wires[1].packet(&both_sides(b"BBB     ")));
    let _lost = wires[0].packet(&both_sides(b"CCC     "));
    market.packet(0, &wires[0].packet(&[quote(1, b'B', b"CCC     ")]));
    market.wait();
    assert_eq!([market.stale(0), market.stale(1)], [[true; 2], [false; 2]]);
    // The first message of an instrument has one publisher; the missing ones may have had any.
    assert_eq!(market.stale(2), [true; 2]);
    // The late packet ends the gap once the sequence has continued after it.
    let late = {
        let mut again = Wire::new(b"SIP0000001");
        again.packet(&both_sides(b"AAA     "));
        again.packet(&both_sides(b"CCC     "))
    };
    market.packet(0, &late);
    assert_eq!([market.stale(0), market.stale(1)], [[true; 2], [false; 2]]);
    market.packet(0, &wires[0].packet(&[quote(1, b'B', b"CCC     ")]));
    // The instruments that it names are stale, for both publishers; the rest are not.
    assert_eq!([market.stale(0), market.stale(1), market.stale(2)], [[false; 2], [false; 2], [true; 2]]);
}

#[test]
fn a_restored_feed_still_knows_the_publishers() {
    let (mut market, mut wire) = (Market::new(2), Wire::new(b"SIP0000001"));
    market.packet(0, &wire.packet(&both_sides(b"AAA     ")));
    let options = market.live.channels().iter().map(|channel| channel.options().clone()).collect();
    market.live = LiveFeed::restore(FeedOptions::default(), options, &market.live.save().unwrap()).unwrap();
    let _lost = wire.packet(&both_sides(b"AAA     "));
    market.packet(0, &wire.packet(&[quote(0, b'B', b"AAA     ")]));
    market.wait();
    assert_eq!(market.stale(0), [true; 2]);
}

#[test]
fn a_gap_in_a_capture_is_put_out_for_every_publisher() {
    let options = FeedOptions { application: Some(Application::TestSip), ..FeedOptions::default() };
    let (mut feed, mut wire) = (Feed::new(options), Wire::new(b"SIP0000001"));
    let mut gaps = Vec::new();
    let payloads = [0, 1, 2].map(|_| wire.packet(&both_sides(b"AAA     ")));
    for payload in [&payloads[0], &payloads[2]] {
        let received = Nanos(1_763_130_600_000_000_000);
        let nowhere = SocketAddr::from(([0; 4], 0));
        let datagram = Datagram {
            source: nowhere,
            destination: nowhere,
            vlan: None,
            transport: Transport::Udp,
            payload,
            payload_offset: 0,
            truncated: false,
        };
        let packet = Packet { file: 0, number: 0, offset: 0, received, datagram };
        feed.process(&[packet], &mut |event: Event| {
            gaps.extend(event.gap().map(|gap| (event.publisher, event.instrument, gap.first, gap.count)));
        });
    }
    assert_eq!(gaps, [ONE, TWO].map(|publisher| (publisher, InstrumentId::ALL, 5, 4)));
}
