//! Dispatch: a perfect hash and a table, `match`, and if-else, over the same machines and the same messages.
//!
//! | part | what |
//! | --- | --- |
//! | [`run`] | nanoseconds and instructions per dispatch, for 3 to 64 message types, in turn and at random |
//! | [`search`] | the time to find a hash, ours beside trying every key of an exclusive or and a modulo |
//! | [`build`] | the time and memory that ten machines take to build; the same machine with Boost.MSM |

pub mod build;
mod search;
mod source;

use std::hint::black_box;
use std::process::Command;

use crate::Options;
use crate::rounds::Rounds;

/// The machines that the build script has written.
mod machines {
    include!(concat!(env!("OUT_DIR"), "/machines.rs"));
}

use machines::Work;

/// Messages of a run that callgrind counts.
const COUNTED_MESSAGES: u64 = 100_000;

/// A dispatcher over a machine, as a function over codes: equal totals show that all did the same.
struct Timed {
    set: &'static str,
    dispatch: &'static str,
    run: fn(&[u16]) -> u64,
}

macro_rules! timed {
    ($($module:ident, $set:literal, $dispatch:literal;)*) => {
        &[$(Timed {
            set: $set,
            dispatch: $dispatch,
            run: {
                fn run(codes: &[u16]) -> u64 {
                    let (mut bench, mut work) = (machines::$module::Bench::new(), Work::new());
                    let mut unknown = 0;
                    for (number, code) in codes.iter().enumerate() {
                        unknown += u64::from(bench.dispatch(&mut work, u64::from(*code), number as u64).is_err());
                    }
                    assert_eq!(unknown, 0);
                    work.total()
                }
                run
            },
        }),*]
    };
}

const TIMED: &[Timed] = timed! {
    table_of_3, "3", "table"; match_of_3, "3", "match"; chain_of_3, "3", "chain";
    table_of_8, "8", "table"; match_of_8, "8", "match"; chain_of_8, "8", "chain";
    table_of_16, "16", "table"; match_of_16, "16", "match"; chain_of_16, "16", "chain";
    table_of_32, "32", "table"; match_of_32, "32", "match"; chain_of_32, "32", "chain";
    table_of_64, "64", "table"; match_of_64, "64", "match"; chain_of_64, "64", "chain";
    table_of_itch, "itch", "table"; match_of_itch, "itch", "match"; chain_of_itch, "itch", "chain";
};

/// In which order the types come.
#[derive(Clone, Copy)]
enum Order {
    /// One after the other, over and over: a processor foretells it.
    InTurn,
    /// Each independent of the last.
    Random,
}

fn messages(codes: &[u64], count: u64, order: Order) -> Vec<u16> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let of = |number: u64| codes[number as usize % codes.len()] as u16;
    (0..count)
        .map(|number| match order {
            Order::InTurn => of(number),
            Order::Random => {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                of(state >> 20)
            }
        })
        .collect()
}

/// The whole of what callgrind counts.
#[inline(never)]
fn counted(run: fn(&[u16]) -> u64, codes: &[u16]) -> u64 {
    run(codes)
}

/// Dispatches the messages that callgrind counts: `count` is the place in [`TIMED`].
pub fn count(place: usize) {
    if let Some(timed) = TIMED.get(place) {
        black_box(counted(
            timed.run,
            &messages(&source::codes_of(timed.set), COUNTED_MESSAGES, Order::Random),
        ));
    }
}

/// Instructions per dispatch, loop and action included. `None`: there is no valgrind, or it cannot run this program.
fn instructions(place: usize) -> Option<f64> {
    let profile = std::env::temp_dir().join(format!("tapeworks-dispatch-{}.callgrind", std::process::id()));
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--quiet", "--collect-atstart=no"])
        .arg("--toggle-collect=tapeworks_bench::dispatch::counted*")
        .arg(format!("--callgrind-out-file={}", profile.display()))
        .arg(std::env::current_exe().ok()?)
        .args(["dispatch", "--count", &place.to_string()])
        .output()
        .ok()?;
    let text = std::fs::read_to_string(&profile).unwrap_or_default();
    let _gone_already = std::fs::remove_file(&profile);
    let total = text.lines().find_map(|line| line.strip_prefix("totals: "))?.trim().parse::<u64>().ok()?;
    (output.status.success() && total > 0).then(|| total as f64 / COUNTED_MESSAGES as f64)
}

pub fn run(options: &Options) {
    let messages_of_a_run = options.messages.min(4_000_000);
    println!(
        "machines of four states; the first type of message changes the state, each other does one of two things by the \
         state; codes of 16 bits at random, and those of TotalView-ITCH; messages in memory; loop and action included\n"
    );
    for set in source::SETS {
        let types = source::codes_of(set);
        let hash = tapeworks_dispatch::search::find(&types).expect("the codes are distinct");
        println!(
            "set {set}: {} types, slot = {}, {} bytes of keys\n",
            types.len(),
            hash.formula(),
            hash.table_bytes()
        );
        for (order, name) in [(Order::InTurn, "in turn"), (Order::Random, "at random")] {
            let codes = messages(&types, messages_of_a_run, order);
            let mut rounds = Rounds::new(codes.len() as u64);
            for timed in TIMED.iter().filter(|timed| timed.set == set) {
                let codes = &codes;
                rounds.add(timed.dispatch, move || (timed.run)(black_box(codes)));
            }
            rounds.run(options.rounds);
            let answers = rounds.answers();
            assert!(answers.windows(2).all(|pair| pair[0].1 == pair[1].1), "all did the same: {answers:?}");
            rounds.print(&format!("set {set}, {name}"), "table");
            if matches!(order, Order::Random) && types.len() == build::BOOST_TYPES {
                build::boost(&codes, options, answers[0].1);
            }
        }
    }
    println!(
        "instructions per dispatch (callgrind, {COUNTED_MESSAGES} messages at random, loop and action included)"
    );
    println!(
        "{:<10} {:>8} {:>8} {:>8}",
        "set",
        source::DISPATCHES[0],
        source::DISPATCHES[1],
        source::DISPATCHES[2]
    );
    for set in source::SETS {
        let figures: Vec<String> = (0..TIMED.len())
            .filter(|place| TIMED[*place].set == set)
            .map(|place| instructions(place).map_or("-".into(), |figure| format!("{figure:.1}")))
            .collect();
        println!("{set:<10} {:>8} {:>8} {:>8}", figures[0], figures[1], figures[2]);
    }
    println!("- : valgrind is not installed, or cannot run what this processor's target needs\n");
    search::run();
    build::run(options);
}
