//! Dispatch: a perfect hash and a table, `match`, and if-else, over the same machines and the same messages, by the number of types.
//!
//! | part | what |
//! | --- | --- |
//! | [`TECHNIQUE`] | nanoseconds and instructions per dispatch, for 3 to 64 message types, in turn and at random; the lab measures it |
//! | [`search`] | the time to find a hash, ours beside trying every key of an exclusive or and a modulo |
//! | [`build`] | the time and memory that ten machines take to build; the same machine with Boost.MSM |
//!
//! The catalogue's technique [`perfect-hash`](tapeworks_lab::catalogue::perfect_hash) has the code and the page; the machines of so many sizes are
//! written by the build script, and are too many for the product.

pub mod build;
mod search;
mod source;

use std::hint::black_box;

use tapeworks_lab::measure::{Ended, Lab, Variants};
use tapeworks_lab::results::Scale;
use tapeworks_lab::technique::Technique;

use crate::{Options, lab};

/// The machines that the build script has written.
mod machines {
    include!(concat!(env!("OUT_DIR"), "/machines.rs"));
}

use machines::Work;

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

fn measure(lab: &mut Lab<'_>) -> Result<(), Ended> {
    // So many that a predictor does not learn a random order by heart, and no more: others interrupt a long call more often.
    let count = lab.either(400_000, 50_000);
    for (title, order) in [("types in turn", Order::InTurn), ("types at random", Order::Random)] {
        lab.experiment(title, "message");
        lab.along("types", Scale::Names);
        for set in source::SETS {
            let types = source::codes_of(set);
            let codes = messages(&types, count, order);
            let mut variants = Variants::of(count);
            for timed in TIMED.iter().filter(|timed| timed.set == set) {
                let codes = &codes;
                variants = variants.add(timed.dispatch, move || (timed.run)(black_box(codes)));
            }
            let is_of_boost = matches!(order, Order::Random) && types.len() == build::BOOST_TYPES;
            if is_of_boost && !lab.settings().quick {
                let expected = TIMED.iter().find(|timed| timed.set == set).map(|timed| (timed.run)(&codes));
                variants = match build::Boost::build(&codes, expected.unwrap_or_default()) {
                    Ok(boost) => {
                        variants.add_foreign("Boost.MSM, a switch over the codes", move |reporter| {
                            let (seconds, megabytes) = boost.built;
                            reporter.figure(boost.ns_per_message());
                            reporter.other("built in, s", seconds);
                            reporter.other("memory to build, MB", megabytes);
                        })
                    }
                    Err(why) => variants.skip(why),
                };
            }
            lab.point(types.len() as f64, &format!("{set} types"), variants)?;
        }
    }
    Ok(())
}

/// The technique, by the number of types.
pub static TECHNIQUE: Technique = Technique {
    number: 14,
    name: "dispatch-by-types",
    title: "A perfect hash and a table against match and if, by the number of types",
    question: "From how many types of message on does a table pay?",
    published: &[],
    used: &[],
    assembly: &[],
    run: measure,
};

pub fn run(options: &Options) {
    println!(
        "machines of four states; the first type of message changes the state, each other does one of two things by the \
         state; codes of 16 bits at random, and those of TotalView-ITCH; messages in memory; loop and action included\n"
    );
    for set in source::SETS {
        let types = source::codes_of(set);
        let hash = tapeworks_dispatch::search::find(&types).expect("the codes are distinct");
        println!(
            "set {set}: {} types, slot = {}, {} bytes of keys",
            types.len(),
            hash.formula(),
            hash.table_bytes()
        );
    }
    println!();
    lab::measure(&[&TECHNIQUE], options);
    lab::count(&[&TECHNIQUE]);
    search::run();
    build::run(options);
}
