//! The changes of the synthetic NBBO as a plant on this machine publishes them, from its shared memory.
//!
//! ```text
//! tapeworks plant examples/plant/loopback.toml
//! cargo run -p tapeworks-examples --bin read_shared_memory -- /dev/shm/tapeworks
//! ```

use std::error::Error;
use std::time::Duration;

use tapeworks_market::Price;
use tapeworks_plant::{Published, SHARED_MEANING};
use tapeworks_ring::broadcast::{Read, Reader, Start};

fn price(price_e9: i64) -> String {
    Price::from_e9(price_e9).map_or_else(|| "-".to_owned(), |price| format!("{price:?}"))
}

fn main() -> Result<(), Box<dyn Error>> {
    let file = std::env::args().nth(1).unwrap_or_else(|| "/dev/shm/tapeworks".to_owned());
    let mut reader = Reader::<Published>::attach(file.as_ref(), SHARED_MEANING, Start::Oldest)?;
    loop {
        match reader.read() {
            Read::Item(item) if item.nbbo_changed == 1 => {
                let Some(symbol) = item.symbol() else { continue };
                println!(
                    "{symbol} {} x {} / {} x {}",
                    price(item.bid),
                    item.bid_size,
                    price(item.ask),
                    item.ask_size
                );
            }
            Read::Item(_) => {}
            // The writer waits for nobody.
            Read::Lost(count) => eprintln!("{count} overrun"),
            Read::Closed => return Ok(()),
            Read::Empty => std::thread::sleep(Duration::from_micros(50)),
        }
    }
}
