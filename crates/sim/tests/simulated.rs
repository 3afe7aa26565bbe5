//! Some seeds. `cargo xtask simulate` runs many more, optimised, and every plan that failed once.

use tapeworks_sim::{Plan, simulate};

#[test]
fn nothing_is_wrong_in_some_simulated_markets_and_equal_seeds_give_equal_runs() {
    for seed in 2..5 {
        let mut plan = Plan::draw(seed);
        plan.rate = plan.rate.min(1_000);
        let outcome = simulate(&plan, false);
        assert_eq!(outcome.violations, Vec::<String>::new(), "seed {seed}");
        assert!(
            outcome.counts.messages > 0 && outcome.counts.events > 0,
            "seed {seed}: {:?}",
            outcome.counts
        );
        let again = simulate(&plan, false);
        assert_eq!((again.ended.hash, again.counts), (outcome.ended.hash, outcome.counts), "seed {seed}");
    }
}
