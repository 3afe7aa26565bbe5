//! The time to find a perfect hash: ours, and trying every key of `(value ^ key) % count` until all values have slots of
//! their own, in a table without a spare slot.

use std::time::{Duration, Instant};

use tapeworks_dispatch::search::find;

use super::source;

/// How long every key is tried before it is given up.
const PATIENCE: Duration = Duration::from_secs(10);

/// The key, or how many were tried in vain.
fn every_key(values: &[u64]) -> Result<u64, u64> {
    let count = values.len() as u64;
    let started = Instant::now();
    let mut used_by = vec![0u64; values.len()];
    for key in 0u64.. {
        let is_apart = values.iter().all(|value| {
            let slot = &mut used_by[((value ^ key) % count) as usize];
            std::mem::replace(slot, key + 1) != key + 1
        });
        if is_apart {
            return Ok(key);
        }
        if key % 65_536 == 0 && started.elapsed() > PATIENCE {
            return Err(key);
        }
    }
    Err(u64::MAX)
}

fn milliseconds(run: impl FnOnce()) -> f64 {
    let started = Instant::now();
    run();
    started.elapsed().as_secs_f64() * 1e3
}

pub fn run() {
    let ascii = |types: &str| types.bytes().map(u64::from).collect::<Vec<u64>>();
    let mut sets = vec![
        ("FIX, session and orders", ascii("A012345DFGHq89jr")),
        ("LSE native trading", ascii("A50MNP3jnDFqGS89rCabcdefg")),
        ("TotalView-ITCH 5.0", ascii("SRHYLVWKJhAFECXDUPQBINO")),
    ];
    for (name, size) in [("8 at random", 8), ("16 at random", 16), ("32 at random", 32), ("64 at random", 64)] {
        sets.push((name, source::codes(size)));
    }
    println!("the time to find a hash; every key is tried for {} s at most", PATIENCE.as_secs());
    println!("{:<26} {:>6} {:>12}  {:<34} every key of (value ^ key) % count", "set", "values", "ours, ms", "");
    for (name, values) in sets {
        let least = (0..5).map(|_| milliseconds(|| drop(std::hint::black_box(find(&values)))));
        let least = least.fold(f64::INFINITY, f64::min);
        let formula = find(&values).map(|hash| hash.formula().to_string()).unwrap_or_default();
        let started = Instant::now();
        let told = match every_key(&values) {
            Ok(key) => format!("{:.3} ms, key {key:#x}", started.elapsed().as_secs_f64() * 1e3),
            Err(tried) => format!("none among {tried} keys"),
        };
        println!("{name:<26} {:>6} {least:>12.3}  {formula:<34} {told}", values.len());
    }
    let most = tapeworks_dispatch::search::MAX_VALUES as u64;
    let random: Vec<u64> = (1..=most).map(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)).collect();
    let elapsed = milliseconds(|| drop(std::hint::black_box(find(&random))));
    println!("{:<26} {most:>6} {elapsed:>12.3}\n", "the most, 64 bits each");
}
