//! One thread publishes orders; a journal writes them down, and a counter adds up what is in the journal already.
//!
//! `cargo run -p tapeworks-examples --bin two_cores`

use tapeworks_ring::disruptor::Builder;
use tapeworks_ring::wait::Yielding;

/// What lives in the ring; nothing is moved or allocated per order.
#[derive(Default)]
struct Order {
    number: u64,
    shares: u64,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut graph = Builder::new(256, Order::default, Yielding::default);
    let journal = graph.consumer("journal", &[]);
    let counter = graph.consumer("counter", &[journal]); // sees an order after the journal has it
    let (mut producer, mut ends) = graph.single_producer();
    let (Some(mut journal), Some(mut counter)) = (ends.take(journal), ends.take(counter)) else {
        return Err("each end is taken once".into());
    };

    let (lines, (orders, shares)) = std::thread::scope(|scope| {
        let journal = scope.spawn(move || {
            let mut file = Vec::new(); // in earnest, a file
            let mut pending = Vec::new();
            let ended = journal.run(|order, _sequence, end_of_batch| {
                pending.extend(format!("{},{}\n", order.number, order.shares).into_bytes());
                if end_of_batch {
                    file.append(&mut pending);
                }
            });
            ended.map(|()| file.iter().filter(|byte| **byte == b'\n').count())
        });
        let counter = scope.spawn(move || {
            let mut total = (0, 0);
            counter.run(|order, _, _| total = (total.0 + 1, total.1 + order.shares)).map(|()| total)
        });
        for number in 1..=1000 {
            producer.publish(|order| (order.number, order.shares) = (number, number))?;
        }
        drop(producer); // closes the ring: both drain it and return
        let failed = |_| "a thread panicked";
        Ok::<_, Box<dyn std::error::Error>>((
            journal.join().map_err(failed)??,
            counter.join().map_err(failed)??,
        ))
    })?;
    println!("{orders} orders, {shares} shares; the journal has {lines} lines, flushed at each end of batch");
    Ok(())
}
