//! Every target over its seeds and over mutations of them, with no fuzzer but a seeded generator.
//!
//! `TAPEWORKS_FUZZ_INPUTS` says how many mutations of each target, if not [`MUTATED`].

#![allow(clippy::unwrap_used)]

use tapeworks_fuzz_targets::TARGETS;
use tapeworks_fuzz_targets::mutate::{MUTATED, attempt};

fn run(name: &str) {
    let target = TARGETS.iter().find(|(listed, _)| *listed == name).unwrap();
    let mutated = std::env::var("TAPEWORKS_FUZZ_INPUTS").map_or(MUTATED, |number| number.parse().unwrap());
    if let Err(failure) = attempt(*target, mutated) {
        panic!("{failure}");
    }
}

macro_rules! smoke {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                run(stringify!($name));
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
    mitch mitchunit moldudp64 multicast native native_session net order_exchange ouch50 pillarpacket pitch recovery refresh request_server requester retransmission rewrite schema snapshot snapshot_client soup_session soupbintcp stream_request tcp tops16 uqdf
}
