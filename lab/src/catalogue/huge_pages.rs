//! Random loads from memory in pages of 4 KiB and of 2 MiB.

use std::hint::black_box;

use tapeworks_ring::memory::{Backing, Region, RegionOptions};

use crate::measure::{Ended, Lab, Variants};
use crate::random::Random;
use crate::results::Scale;
use crate::technique::{Assembly, Published, Technique, Use};

/// Bytes per cache line, which holds one link.
const LINE_BYTES: usize = 64;

/// Writes a cycle through all lines of the region, in random order: each line holds the position of the next.
// ANCHOR: cycle
fn link(region: &mut [u8], random: &mut Random) {
    let lines = region.len() / LINE_BYTES;
    let mut order: Vec<u32> = (0..lines as u32).collect();
    random.shuffle(&mut order);
    for (place, line) in order.iter().enumerate() {
        let next = order.get(place + 1).or(order.first()).copied().unwrap_or_default();
        let start = *line as usize * LINE_BYTES;
        if let Some(target) = region.get_mut(start..).and_then(<[u8]>::first_chunk_mut::<4>) {
            *target = next.to_le_bytes();
        }
    }
}
// ANCHOR_END: cycle

/// Follows the cycle for `steps` steps from line 0. Each load needs the previous result.
// ANCHOR: follow
#[inline(never)]
#[must_use]
pub fn follow(region: &[u8], steps: usize) -> u64 {
    let mut line = 0u32;
    for _ in 0..steps {
        let start = line as usize * LINE_BYTES;
        let next = region.get(start..).and_then(|rest| rest.first_chunk::<4>());
        line = next.copied().map_or(0, u32::from_le_bytes);
    }
    u64::from(line)
}
// ANCHOR_END: follow

fn run(lab: &mut Lab<'_>) -> Result<(), Ended> {
    lab.experiment("loads at random places, each of which waits for the last", "load");
    lab.along("MiB of memory", Scale::Logarithmic);
    let failed = |error: std::io::Error| Ended::Failed(format!("memory for the experiment: {error}"));
    for mib in lab.either(vec![1usize, 4, 16, 64, 256, 1_024], vec![4, 32]) {
        let bytes = mib << 20;
        let mut ordinary =
            Region::map(bytes, RegionOptions { ordinary_pages: true, lock: false }).map_err(failed)?;
        let mut huge = Region::map(bytes, RegionOptions::default()).map_err(failed)?;
        match huge.backing() {
            Backing::HugeTlb => {}
            Backing::TransparentHuge { bytes: in_huge } if in_huge >= bytes / 2 => {}
            got => {
                lab.skip(format!("{mib} MiB: the kernel gives no huge pages ({got:?})"));
                continue;
            }
        }
        if let Backing::TransparentHuge { bytes: in_huge } = ordinary.backing()
            && in_huge > bytes / 10
        {
            lab.skip(format!("{mib} MiB: the kernel gives huge pages unasked, so nothing is to be compared"));
            continue;
        }
        link(&mut ordinary, &mut lab.random());
        link(&mut huge, &mut lab.random());
        // Enough steps that the lines of one call do not all stay in the caches until the next.
        let steps = (bytes / LINE_BYTES).min(lab.either(1 << 19, 1 << 13));
        let (ordinary, huge): (&[u8], &[u8]) = (&ordinary, &huge);
        lab.point(
            mib as f64,
            &format!("{mib} MiB"),
            Variants::of(steps as u64)
                .add("pages of 4 KiB", || follow(black_box(ordinary), steps))
                .add("pages of 2 MiB", || follow(black_box(huge), steps)),
        )?;
    }
    Ok(())
}

/// The technique.
pub static TECHNIQUE: Technique = Technique {
    number: 27,
    name: "huge-pages",
    title: "Huge pages and TLB reach",
    question: "What do address translations cost in a large table, and how much of that do huge pages save?",
    published: &[Published {
        source: "Y. Zheng, Using Huge Pages on Linux (Ryzen 3900X, a hash table of 10 million entries)",
        figure: "93 % of the loads counted at the data TLB miss it in pages of 4 KiB, whose reach is 8 MiB; in 2 MiB pages it is 4 GiB",
    }],
    used: &[
        Use {
            path: "crates/base/ring/src/memory.rs",
            what: "maps tables in huge pages where the kernel gives them",
        },
        Use { path: "crates/market/market/src/orders.rs", what: "the order index lies in such memory" },
        Use { path: "docs/src/rings.md", what: "the memory of tables, and which pages it lies in" },
    ],
    assembly: &[Assembly {
        variant: "both",
        symbol: "tapeworks_lab::catalogue::huge_pages::follow",
        marks: &["mov"],
    }],
    run,
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cycle_goes_through_every_line_once_and_ends_where_it_began() {
        for lines in [1usize, 2, 7, 1_000] {
            let mut region = vec![0; lines * LINE_BYTES];
            link(&mut region, &mut Random::new(lines as u64));
            let mut seen: Vec<u64> = (1..=lines).map(|steps| follow(&region, steps)).collect();
            assert_eq!(seen.last(), Some(&0), "{lines} lines");
            seen.sort_unstable();
            assert_eq!(seen, (0..lines as u64).collect::<Vec<_>>());
        }
    }

    #[test]
    fn nothing_to_follow_ends_at_the_first_line() {
        assert_eq!((follow(&[], 3), follow(&[0; 64], 0)), (0, 0));
    }

    #[test]
    fn both_kinds_of_memory_have_the_same_cycle() {
        let mut answers = Vec::new();
        for ordinary_pages in [true, false] {
            let mut region = Region::map(3 << 20, RegionOptions { ordinary_pages, lock: false }).unwrap();
            link(&mut region, &mut Random::new(5));
            answers.push(follow(&region, 12_345));
        }
        assert_eq!(answers[0], answers[1]);
    }
}
