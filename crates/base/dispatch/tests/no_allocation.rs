//! A dispatch takes no memory and releases none, in any form.

#![allow(clippy::unwrap_used, missing_docs)]

use tapeworks_ring::counting::{CountingAllocator, allocations, releases};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Sums what it is given.
#[derive(Default)]
pub(crate) struct Sum(u64);

impl Sum {
    fn add(&mut self, number: u64) {
        self.0 += number;
    }
}

macro_rules! declare {
    ($module:ident, $dispatch:ident) => {
        mod $module {
            use super::Sum;
            tapeworks_dispatch::machine! {
                /// Two states that take turns.
                pub(crate) machine Turns { context: Sum, message: u64, dispatch: $dispatch }
                states { One, Two }
                events { Up = 'U' (number: u64), Down = "DOWN" (number: u64), Stay = 7 }
                rows {
                    One + Up => add -> Two;
                    Two + Down => add -> One;
                    One + Down => add;
                    Two + Up => add;
                    _ + Stay => _;
                }
            }
            pub(crate) fn run(sum: &mut Sum) {
                let mut turns = Turns::new();
                for number in 0..9_000 {
                    let code = [0x55, 0x444f_574e, 7][number as usize % 3];
                    turns.dispatch(sum, code, number).unwrap();
                }
            }
        }
    };
}

declare!(table, table);
declare!(by_match, match);
declare!(chain, chain);

#[test]
fn a_dispatch_takes_and_releases_no_memory() {
    for run in [table::run, by_match::run, chain::run] {
        let mut sum = Sum::default();
        let before = (allocations(), releases());
        run(&mut sum);
        assert_eq!((allocations(), releases()), before);
        // Of every three numbers, those of `Stay` are left out.
        assert_eq!(sum.0, (0..9_000).filter(|number| number % 3 != 2).sum::<u64>());
    }
}
