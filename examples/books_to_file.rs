//! Feed, books, NBBO and a file in one chain, composed inline on one core.
//!
//! `cargo run -p tapeworks-examples --bin books_to_file OUT.parquet [CAPTURE]`

use std::error::Error;
use std::path::PathBuf;

use tapeworks_capture::{CaptureReader, net};
use tapeworks_feed::{Feed, FeedOptions, Packet};
use tapeworks_market::book::BATCH;
use tapeworks_market::{BookStage, Capacity, NbboStage};
use tapeworks_stage::{Chain, Sink as _, Stage, Through};
use tapeworks_store::{FileSink, Options, Schema};
use tapeworks_time::Nanos;

const CAPTURE: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../testdata/captures/nasdaq-itch50/Multiple.Packets.pcap");

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let path = arguments.next().ok_or("the name of the file is missing")?;
    let mut reader = CaptureReader::open(&arguments.next().unwrap_or_else(|| CAPTURE.into()))?;

    let capacity = Capacity::for_messages(10_000);
    let books = BookStage::with_unnamed([], capacity);
    let nbbo = NbboStage::new(Default::default(), [], capacity.instruments);
    let mut chain = Chain::new(Feed::new(FeedOptions::default()), Through::new(books, nbbo), BATCH);
    // The file's ending selects the format. The sink learns the symbols from the events.
    let mut file = FileSink::create(&path, Schema::Mbp1, &Options::default())?;

    while let Some(captured) = reader.next_packet()? {
        let Ok(datagram) = net::parse(captured.link_type, captured.bytes) else { continue };
        let packet = Packet {
            file: 0,
            number: captured.number,
            offset: captured.offset,
            received: Nanos(captured.timestamp_ns),
            datagram,
        };
        chain.process(&[packet], &mut file);
        file.end_of_batch();
        // A full disk ends the run here.
        file.check()?;
    }

    let instruments = file.instruments().len();
    println!("{} messages of {instruments} instruments", chain.first.messages());
    println!("{} records", file.finish()?.records);
    Ok(())
}
