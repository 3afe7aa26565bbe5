//! The session layers and normalisers over arbitrary packets, captures and files, with books, the NBBO and records of every schema
//! behind them.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use tapeworks_capture::framed::FramedReader;
use tapeworks_capture::net::{Datagram, HeaderError, TcpFlags, TcpHeader, Transport};
use tapeworks_capture::source::ByteSource;
use tapeworks_capture::{CaptureReader, CapturedDatagram};
use tapeworks_feed::{Feed, FeedOptions, FileFormat, Frame, Packet, Problem, ProblemKind};
use tapeworks_market::nbbo::NbboRules;
use tapeworks_market::{BookStage, Capacity, Event, Instruments, NbboStage, NbboUpdate};
use tapeworks_stage::{Chain, Inline, Sink, Stage, Through};
use tapeworks_store::Schema;
use tapeworks_store::live::{Batch, RecordBuilder};
use tapeworks_time::Nanos;

use crate::take::Take;

/// Packets or messages after which a compressed input is no new case.
const ENOUGH: u64 = 10_000;

/// Books and NBBO, and how many events went into them.
struct Market {
    stages: Through<BookStage, NbboStage>,
    events: u64,
}

impl<S: for<'a> Sink<NbboUpdate<'a>>> Stage<Event, S> for Market {
    fn process(&mut self, batch: &[Event], sink: &mut S) {
        self.events += batch.len() as u64;
        self.stages.process(batch, sink);
    }
}

fn market() -> Market {
    let capacity = Capacity { instruments: 4, orders: 16, levels: 16 };
    let books = BookStage::with_unnamed([], capacity);
    Market { stages: Through::new(books, NbboStage::new(NbboRules::default(), [], 4)), events: 0 }
}

/// Makes the records of every schema.
struct Records {
    builders: Vec<RecordBuilder>,
    batch: Batch,
    /// Records have numbers of instruments, and no symbols.
    instruments: Instruments,
    updates: u64,
}

impl Records {
    fn new() -> Self {
        let builders = Schema::ALL.map(RecordBuilder::new).into();
        Self { builders, batch: Batch::default(), instruments: Instruments::default(), updates: 0 }
    }
}

impl<'a> Sink<NbboUpdate<'a>> for Records {
    fn put(&mut self, update: NbboUpdate<'a>) {
        for builder in &mut self.builders {
            builder.put(self.updates, &update, &self.instruments, &mut self.batch);
        }
        self.updates += 1;
        assert!(self.batch.items().iter().all(|item| !self.batch.record(item).is_empty()));
        self.batch.clear();
    }
}

/// Checks that hold after any input.
fn check(feed: &Feed, market: &Market) {
    let applied: u64 = market.stages.first.feeds().iter().map(|books| books.counters().events).sum();
    assert_eq!(applied, market.events, "every event reached a book once");
    for channel in feed.channels() {
        let counters = channel.counters();
        let quiet =
            counters.duplicate_packets.iter().sum::<u64>() + counters.heartbeats + counters.ends_of_session;
        assert!(quiet <= counters.packets, "{:?}: {counters:?}", channel.identity());
    }
    assert_eq!(
        feed.messages(),
        feed.channels().iter().map(|channel| channel.counters().messages).sum::<u64>()
    );
    assert!(feed.problems().kept().iter().all(|problem| !format!("{problem:?}").is_empty()));
}

fn groups() -> [SocketAddr; 4] {
    let group = |a, b, c, d, port| SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), port));
    [
        group(233, 54, 12, 111, 26_477),
        group(233, 49, 196, 111, 26_477),
        group(233, 54, 12, 40, 25_475),
        group(233, 215, 21, 4, 10_378),
    ]
}

/// Packets, UDP and TCP, of arbitrary payload, over two lines and more, in batches.
pub fn feed_packets(bytes: &[u8]) {
    let mut chain = Chain::new(Feed::new(FeedOptions::default()), market(), 16);
    let mut records = Records::new();
    let mut take = Take(bytes);
    let mut received = Nanos(1_700_000_000_000_000_000);
    let (mut number, mut sequence) = (0, 0u32);
    while !take.is_empty() {
        let how = take.u8();
        received.0 += u64::from(how) << 8;
        number += 1;
        let length = usize::from(take.u16() & 0x7ff);
        let payload = take.bytes(length);
        let transport = if how & 0x80 == 0 {
            Transport::Udp
        } else {
            // Mostly in order; sometimes some bytes are skipped or come again.
            sequence =
                sequence.wrapping_add_signed(if how & 0x70 == 0x70 { i32::from(how & 15) - 8 } else { 0 });
            let header = TcpHeader { sequence, acknowledgment: 0, flags: TcpFlags::default() };
            sequence = sequence.wrapping_add(payload.len() as u32);
            Transport::Tcp(header)
        };
        let datagram = Datagram {
            source: groups()[3],
            destination: groups()[usize::from(how & 3)],
            vlan: None,
            transport,
            payload,
            payload_offset: 42,
            truncated: how & 0x0c == 0x0c,
        };
        let packet = Packet { file: 0, number, offset: 42, received, datagram };
        chain.process(&[packet], &mut records);
    }
    check(&chain.first, &chain.second);
}

/// A capture file, read, parsed and fed as a replay does.
pub fn feed_capture(bytes: &[u8]) {
    let Ok(mut reader) = CaptureReader::new(ByteSource::from_bytes("capture", bytes.to_vec())) else {
        return;
    };
    let mut chain = Chain::new(Feed::new(FeedOptions::default()), market(), 16);
    let mut records = Records::new();
    while let Ok(Some(CapturedDatagram { packet: captured, datagram })) = reader.next_datagram() {
        match datagram {
            Ok(datagram) => {
                let packet = Packet {
                    file: 0,
                    number: captured.number,
                    offset: captured.offset + datagram.payload_offset as u64,
                    received: Nanos(captured.timestamp_ns),
                    datagram,
                };
                chain.process(&[packet], &mut records);
            }
            Err(error) if error.is_malformed() => chain.first.note(Problem {
                file: 0,
                packet: captured.number,
                offset: captured.offset,
                kind: ProblemKind::Header(error),
            }),
            Err(HeaderError::Fragment { .. }) => {}
            Err(_) => chain.first.note_foreign(),
        }
        if captured.number > ENOUGH {
            break;
        }
    }
    check(&chain.first, &chain.second);
}

/// A file of messages without packets, as length-prefixed ITCH and as SoupBinTCP.
pub fn feed_file(bytes: &[u8]) {
    for format in [FileFormat::LengthPrefixed, FileFormat::SoupBinTcp] {
        let mut reader = FramedReader::new(ByteSource::from_bytes("framed", bytes.to_vec()));
        let (mut feed, mut market) = (Feed::new(FeedOptions::default()), market());
        let mut buffer = Vec::with_capacity(16);
        let mut records = Records::new();
        while let Ok(Some(batch)) = reader.next_batch() {
            let frames: Vec<_> =
                batch.map(|frame| Frame { file: 0, offset: frame.offset, bytes: frame.bytes }).collect();
            let mut edge = Inline::new(&mut market, &mut buffer, &mut records);
            feed.file(0, format, None).process(&frames, &mut edge);
            edge.end_of_batch();
            if reader.messages() > ENOUGH {
                break;
            }
        }
        check(&feed, &market);
    }
}
