//! The time to find a perfect hash: ours, and trying every key of `(value ^ key) % count` until all values have slots of
//! their own, in a table without a spare slot.
//!
//! Of values of some width only as many keys differ as the width has: a longer key turns all slots by the same distance.

use std::time::{Duration, Instant};

use tapeworks_dispatch::search::{PerfectHash, find};

use super::source;

/// How long keys are tried before they are given up.
const PATIENCE: Duration = Duration::from_secs(20);

/// How trying every key ended.
enum Ended {
    Found(u64),
    /// There is none.
    Exhausted(u64),
    /// None so far.
    GaveUp(u64),
}

fn every_key(hash: &PerfectHash) -> Ended {
    let values = hash.values();
    let count = values.len() as u64;
    let started = Instant::now();
    let mut used_by = vec![0u64; values.len()];
    for key in 0..=hash.width().greatest() {
        let is_apart = values.iter().all(|value| {
            let slot = &mut used_by[((value ^ key) % count) as usize];
            std::mem::replace(slot, key + 1) != key + 1
        });
        if is_apart {
            return Ended::Found(key);
        }
        if key % 65_536 == 0 && started.elapsed() > PATIENCE {
            return Ended::GaveUp(key);
        }
    }
    Ended::Exhausted(hash.width().greatest() + 1)
}

fn milliseconds(started: Instant) -> f64 {
    started.elapsed().as_secs_f64() * 1e3
}

pub fn run() {
    let ascii = |types: &[u8]| types.iter().copied().map(u64::from).collect::<Vec<u64>>();
    let of_32_bits = |count: usize| {
        let wide = |code: &u64| code << 16 ^ code.wrapping_mul(0x9e37) & 0xffff;
        source::codes(count).iter().map(wide).collect::<Vec<u64>>()
    };
    let sets = [
        ("FIX, session and orders", ascii(b"A012345DFGHVq89jr")),
        ("LSE native trading", ascii(b"A50MNP3jnDFqGS89rCabcdefg")),
        ("TotalView-ITCH 5.0", ascii(source::ITCH)),
        ("9 at random, 16 bits", source::codes(9)),
        ("13 at random, 16 bits", source::codes(13)),
        ("19 at random, 32 bits", of_32_bits(19)),
        ("25 at random, 32 bits", of_32_bits(25)),
        ("64 at random, 16 bits", source::codes(64)),
    ];
    println!("the time to find a hash, and that of trying every key of (value ^ key) % count");
    println!("{:<24} {:>6} {:>9}  {:<32} every key", "set", "values", "ours, ms", "");
    for (name, values) in sets {
        let mut least_ms = f64::INFINITY;
        let mut found = None;
        for _ in 0..5 {
            let started = Instant::now();
            found = find(std::hint::black_box(&values)).ok();
            least_ms = least_ms.min(milliseconds(started));
        }
        let hash = found.expect("the values are distinct");
        let started = Instant::now();
        let ended = every_key(&hash);
        let elapsed_ms = milliseconds(started);
        let outcome = match ended {
            Ended::Found(key) => format!("{elapsed_ms:.3} ms, key {key:#x}"),
            Ended::Exhausted(tried) => format!("{elapsed_ms:.3} ms, none among all {tried} keys"),
            Ended::GaveUp(tried) => format!("none among {tried} keys in {:.0} s", elapsed_ms / 1e3),
        };
        println!(
            "{name:<24} {:>6} {least_ms:>9.3}  {:<32} {outcome}",
            values.len(),
            hash.formula().to_string()
        );
    }
    let most = tapeworks_dispatch::search::MAX_VALUES as u64;
    // Odd factors and shifts to the right keep numbers distinct.
    let scrambled = |number: u64| {
        let number = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let number = (number ^ (number >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number ^ (number >> 32)
    };
    let random: Vec<u64> = (1..=most).map(scrambled).collect();
    let started = Instant::now();
    let hash = find(&random).expect("the values are distinct");
    println!(
        "{:<24} {most:>6} {:>9.3}  {}\n",
        "the most, random",
        milliseconds(started),
        hash.formula().family()
    );
}
