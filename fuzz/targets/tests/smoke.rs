//! Every target over its seeds and over mutations of them, with no fuzzer but a seeded generator.
//!
//! `TAPEWORKS_FUZZ_INPUTS` says how many mutations of each target, if not [`MUTATED`].

#![allow(clippy::unwrap_used)]

use std::panic::{AssertUnwindSafe, catch_unwind};

use tapeworks_fuzz_targets::{TARGETS, Target, seeds};
use tapeworks_wire::schema::SplitMix64;

/// Mutated inputs of each target, unless the environment sets another number.
const MUTATED: u64 = 2_000;
/// The most changes of one mutation.
const CHANGES: u64 = 6;
/// Numbers at the edges of their types.
const EDGES: [u8; 8] = [0, 1, 2, 0x7f, 0x80, 0xfe, 0xff, b'Z'];

/// Changes `input` a little: bits, edges, cuts, repeats, pieces of another.
fn mutate(input: &mut Vec<u8>, other: &[u8], random: &mut SplitMix64) {
    for _ in 0..=random.below(CHANGES) {
        let at = random.below(input.len() as u64 + 1) as usize;
        match random.below(7) {
            0 | 1 if at < input.len() => input[at] ^= 1 << random.below(8),
            2 | 3 if at < input.len() => input[at] = EDGES[random.below(8) as usize],
            4 => input.truncate(at),
            5 => {
                let from = random.below(other.len() as u64 + 1) as usize;
                let length = random.below(65).min((other.len() - from) as u64) as usize;
                input.splice(at..at, other[from..from + length].iter().copied());
            }
            _ => {
                let end = (at + random.below(9) as usize).min(input.len());
                input.drain(at..end);
            }
        }
    }
}

fn run((name, target): Target) {
    let mut inputs = seeds::made(name).unwrap();
    inputs.extend(seeds::kept(tapeworks_fuzz_targets::seeds_of(name)).unwrap());
    assert!(!inputs.is_empty(), "{name} has no seeds");
    let attempt = |input: &[u8], what: &str| {
        let outcome = catch_unwind(AssertUnwindSafe(|| target(input)));
        if outcome.is_err() {
            let bytes: String = input.iter().map(|byte| format!("{byte:02x}")).collect();
            panic!("{name} fails with {what}: {bytes}");
        }
    };
    for (number, input) in inputs.iter().enumerate() {
        attempt(input, &format!("seed {number}"));
    }
    let mutated = std::env::var("TAPEWORKS_FUZZ_INPUTS").map_or(MUTATED, |number| number.parse().unwrap());
    let mut random = SplitMix64::new(0xf0220);
    for number in 0..mutated {
        let pick = |random: &mut SplitMix64| random.below(inputs.len() as u64) as usize;
        let (one, other) = (pick(&mut random), pick(&mut random));
        let mut input = inputs[one].clone();
        mutate(&mut input, &inputs[other], &mut random);
        attempt(&input, &format!("mutation {number} of seed {one}"));
    }
}

macro_rules! smoke {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                let target = TARGETS.iter().find(|(name, _)| *name == stringify!($name)).unwrap();
                run(*target);
            }
        )*

        #[test]
        fn every_target_is_run_here_and_has_its_file_for_the_fuzzer() {
            let named = [$(stringify!($name)),*];
            assert_eq!(named.to_vec(), TARGETS.iter().map(|(name, _)| *name).collect::<Vec<_>>());
            let manifest = include_str!("../../Cargo.toml");
            for name in named {
                assert!(manifest.contains(&format!("name = \"{name}\"")), "{name} is not in fuzz/Cargo.toml");
            }
        }
    };
}

smoke! {
    book capture cboeunit checkpoint config control cqs ctablock deep10 deep_plus10 feed_capture feed_file feed_packets fix_message fix_session fix_stream framed gateway iextp integrated itch50 journal live_feed memoir13 memoirudp
    mitch mitchunit moldudp64 multicast native native_session net order_exchange ouch50 pillarpacket pitch refresh request_server requester retransmission rewrite schema snapshot snapshot_client soup_session soupbintcp stream_request tcp tops16 uqdf
}
