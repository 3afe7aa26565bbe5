//! What each format costs: the same order-by-order session through books and NBBO into a file of each format.
//!
//! `cargo run --release -p tapeworks-store --example formats -- [MILLIONS] [DIRECTORY] [PART OF A NAME]`

use std::path::PathBuf;
use std::time::Instant;

use tapeworks_market::{
    BookStage, BookUpdate, Capacity, Event, EventKind, InstrumentId, Instruments, NbboStage, NbboUpdate,
    Price, Publisher, Side, Symbol,
};
use tapeworks_stage::Stage;
use tapeworks_store::{Options, Schema, Writer};
use tapeworks_time::Nanos;

/// Adds, cancels, executions and deletions around a price, over 4,000 symbols; no randomness but a multiplier's.
fn session(count: u64) -> Vec<Event> {
    let mut live: Vec<(u64, InstrumentId)> = Vec::new();
    let mut state = 1u64;
    let mut draw = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % below
    };
    let event = |n: u64| {
        let instrument = InstrumentId(draw(4000) as u32);
        let mut event = Event::new(EventKind::Add, Publisher::XNAS_ITCH, instrument);
        event.ts_event = Nanos(1_780_000_000_000_000_000 + n * 700 + draw(500));
        event.ts_recv = Nanos(event.ts_event.0 + 12_000 + draw(4000));
        (event.order_id, event.channel_sequence, event.size) = (2 * n, n + 1, 100 * (1 + draw(5) as u32));
        let is_bid = draw(2) == 0;
        event.side = if is_bid { Side::Bid } else { Side::Ask };
        let ticks = draw(40) as u32 * 100;
        event.price = Some(Price::from_e4(if is_bid { 1_000_000 - ticks } else { 1_000_100 + ticks }));
        if draw(100) >= 46 && !live.is_empty() {
            (event.order_id, event.instrument) = live.swap_remove(draw(live.len() as u64) as usize);
            event.kind = if draw(100) < 90 { EventKind::Delete } else { EventKind::Execute };
            (event.price, event.size) = (None, 100);
        } else {
            live.push((event.order_id, instrument));
        }
        event
    };
    (0..count).map(event).collect()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let millions: u64 = arguments.next().map_or(Ok(4), |text| text.parse())?;
    let directory = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let only = arguments.next().unwrap_or_default();
    let events = session(millions * 1_000_000);
    let mut instruments = Instruments::default();
    for number in 0..4000 {
        instruments.intern(Symbol::from_bytes(format!("S{number}").as_bytes())?);
    }

    let run = |name: &str, schema: Schema, format: Option<&str>| -> Result<(), Box<dyn std::error::Error>> {
        if !name.contains(&only) {
            return Ok(());
        }
        let path = directory.join(format!("formats-{schema}{}", format.unwrap_or_default()));
        let mut writer = match format {
            Some(_) => {
                Some(Writer::create(&path, schema, &Options { overwrite: true, ..Options::default() })?)
            }
            None => None,
        };
        let mut books = BookStage::new([(Publisher::XNAS_ITCH, Capacity::for_messages(events.len() as u64))]);
        let mut nbbo = NbboStage::new(Default::default(), [Publisher::XNAS_ITCH], 4096);
        let mut result = Ok(());
        let start = Instant::now();
        for batch in events.chunks(64) {
            books.process(batch, &mut |update: BookUpdate<'_>| {
                nbbo.process(&[update], &mut |update: NbboUpdate<'_>| {
                    if let (Some(writer), Ok(())) = (&mut writer, &result) {
                        result = writer.put(&update, &instruments);
                    }
                });
            });
        }
        result?;
        let (records, bytes) = match writer.map(|writer| writer.finish(&instruments)).transpose()? {
            Some(summary) => (summary.records, summary.bytes),
            None => (events.len() as u64, 0),
        };
        let ns = start.elapsed().as_nanos() as f64 / events.len() as f64;
        println!(
            "{name:>22}  {ns:7.1} ns/message  {records:>9} records  {:6.1} bytes/record",
            bytes as f64 / records as f64
        );
        Ok(())
    };
    run("books and NBBO only", Schema::Mbo, None)?;
    for format in [".dbn", ".dbn.zst", ".parquet", ".csv", ".json"] {
        run(&format!("mbo{format}"), Schema::Mbo, Some(format))?;
    }
    for schema in Schema::ALL {
        run(&format!("{schema}.parquet"), schema, Some(".parquet"))?;
    }
    Ok(())
}
