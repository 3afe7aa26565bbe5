//! A stage of one's own between the books and the sink: the spread of every book whenever its top moves.
//!
//! `cargo run -p tapeworks-examples --bin own_stage`

use tapeworks_market::instrument::{NotASymbol, Symbol};
use tapeworks_market::{
    BookStage, BookUpdate, Capacity, Event, EventKind, InstrumentId, Instruments, Nanos, Price, Publisher,
    Side,
};
use tapeworks_stage::{Sink, Stage, Through};

/// What the stage hands on.
struct Spread {
    at: Nanos,
    instrument: InstrumentId,
    spread_e9: i64,
}

/// Keeps the last spread of each instrument and hands on what differs.
struct Spreads(Vec<i64>);

impl<'b, S: Sink<Spread>> Stage<BookUpdate<'b>, S> for Spreads {
    fn process(&mut self, batch: &[BookUpdate<'b>], sink: &mut S) {
        for update in batch.iter().filter(|update| update.top_changed()) {
            let best = [Side::Bid, Side::Ask].map(|side| update.book.best(side));
            let [Some(bid), Some(ask)] = best else { continue };
            let (instrument, spread_e9) = (update.event.instrument, ask.price.e9() - bid.price.e9());
            let Some(last) = self.0.get_mut(instrument.index()) else { continue };
            if *last != spread_e9 {
                *last = spread_e9;
                sink.put(Spread { at: update.event.ts_event, instrument, spread_e9 });
            }
        }
    }
}

fn main() -> Result<(), NotASymbol> {
    let mut instruments = Instruments::default();
    let tape = instruments.intern(Symbol::from_bytes(b"TAPE")?);
    // Events made by hand; a feed would give them. Prices in units of 0.0001.
    let orders = [(1, Side::Bid, 99_900), (2, Side::Ask, 100_100), (3, Side::Ask, 100_000)];
    let events = orders.map(|(order_id, side, price_e4)| Event {
        ts_event: Nanos(order_id * 1_000),
        order_id,
        side,
        size: 100,
        price: Some(Price::from_e4(price_e4)),
        ..Event::new(EventKind::Add, Publisher::XNAS_ITCH, tape)
    });

    // `Through` joins stages whose outputs borrow from the first; `Chain` those with a buffer between them.
    let books = BookStage::with_unnamed([], Capacity::for_messages(1_000));
    let mut line = Through::new(books, Spreads(vec![0; 1_000]));
    line.process(&events, &mut |spread: Spread| {
        let symbol = instruments.symbols()[spread.instrument.index()];
        println!("{} ns  {symbol}  spread {:.4}", spread.at.0, spread.spread_e9 as f64 / 1e9);
    });
    Ok(())
}
