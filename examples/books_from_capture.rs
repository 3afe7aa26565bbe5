//! Order books from a capture: the feed, the books and a sink, composed inline on one core.
//!
//! `cargo run -p tapeworks-examples --bin books_from_capture [CAPTURE]`

use std::error::Error;
use std::path::PathBuf;

use tapeworks_capture::{CaptureReader, net};
use tapeworks_feed::{Feed, FeedOptions, Packet};
use tapeworks_market::book::{BATCH, Outcome};
use tapeworks_market::{BookStage, BookUpdate, Capacity, InstrumentId, Side};
use tapeworks_stage::{Chain, Stage};
use tapeworks_time::Nanos;

const CAPTURE: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../testdata/captures/nasdaq-itch50/Multiple.Packets.pcap");

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).map_or_else(|| PathBuf::from(CAPTURE), PathBuf::from);
    let mut reader = CaptureReader::open(&path)?;
    // Tables are sized here, at start-up; nothing allocates per message afterwards.
    let books = BookStage::with_unnamed([], Capacity::for_messages(10_000));
    let mut chain = Chain::new(Feed::new(FeedOptions::default()), books, BATCH);

    let (mut updates, mut rejected) = (0, 0);
    while let Some(captured) = reader.next_packet()? {
        let Ok(datagram) = net::parse(captured.link_type, captured.bytes) else { continue };
        let packet = Packet {
            file: 0,
            number: captured.number,
            offset: captured.offset,
            received: Nanos(captured.timestamp_ns),
            datagram,
        };
        chain.process(&[packet], &mut |update: BookUpdate<'_>| {
            updates += 1;
            // A deletion whose order came before the capture began cannot be applied, and says so.
            rejected += u32::from(update.outcome != Outcome::Applied);
        });
    }

    println!("{} messages, {updates} updates, {rejected} rejected", chain.first.messages());
    for books in chain.second.feeds() {
        for (number, symbol) in chain.first.instruments().symbols().iter().enumerate() {
            let book = books.book(InstrumentId(number as u32));
            let [bids, asks] =
                [Side::Bid, Side::Ask].map(|side| book.levels(side).take(5).collect::<Vec<_>>());
            println!("{} {symbol}: bids {bids:?}, asks {asks:?}", books.publisher().venue_name());
        }
    }
    Ok(())
}
