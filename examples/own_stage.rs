//! A custom stage after the books: the spread of each book, whenever it changes.
//!
//! `cargo run -p tapeworks-examples --bin own_stage CAPTURE`

use std::error::Error;

use tapeworks_capture::{CaptureReader, net};
use tapeworks_feed::{Feed, FeedOptions, Packet};
use tapeworks_market::book::BATCH;
use tapeworks_market::{BookStage, BookUpdate, Capacity, InstrumentId, Side};
use tapeworks_stage::{Chain, Sink, Stage, Through};
use tapeworks_time::Nanos;

/// The output of the stage.
struct Spread {
    at: Nanos,
    instrument: InstrumentId,
    spread_e9: i64,
}

/// Remembers the last spread of each instrument, and puts out each that differs.
#[derive(Default)]
struct Spreads(Vec<Option<i64>>);

impl<'b, S: Sink<Spread>> Stage<BookUpdate<'b>, S> for Spreads {
    fn process(&mut self, batch: &[BookUpdate<'b>], sink: &mut S) {
        for update in batch.iter().filter(|update| update.top_changed()) {
            let best = [Side::Bid, Side::Ask].map(|side| update.book.best(side));
            let [Some(bid), Some(ask)] = best else { continue };
            let (instrument, spread_e9) = (update.event.instrument, ask.price.e9() - bid.price.e9());
            if self.0.len() <= instrument.index() {
                self.0.resize(instrument.index() + 1, None);
            }
            if self.0[instrument.index()].replace(spread_e9) != Some(spread_e9) {
                sink.put(Spread { at: update.event.ts_recv, instrument, spread_e9 });
            }
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).ok_or("usage: own_stage CAPTURE")?;
    let mut reader = CaptureReader::open(path.as_ref())?;
    // `Through` joins stages where the output borrows from the first one, as an update borrows its book; `Chain` buffers between them.
    let books = BookStage::with_unnamed([], Capacity::for_messages(10_000));
    let mut stages =
        Chain::new(Feed::new(FeedOptions::default()), Through::new(books, Spreads::default()), BATCH);
    let mut spreads = Vec::new();
    while let Some(captured) = reader.next_packet()? {
        let Ok(datagram) = net::parse(captured.link_type, captured.bytes) else { continue };
        let (number, offset, received) = (captured.number, captured.offset, Nanos(captured.timestamp_ns));
        let packet = Packet { file: 0, number, offset, received, datagram };
        stages.process(&[packet], &mut |spread: Spread| spreads.push(spread));
    }
    for Spread { at, instrument, spread_e9 } in spreads.iter().take(10) {
        let symbol = stages.first.instruments().symbols()[instrument.index()];
        println!("{} ns  {symbol}  spread {:.4}", at.0, *spread_e9 as f64 / 1e9);
    }
    println!("{} changes of spreads", spreads.len());
    Ok(())
}
