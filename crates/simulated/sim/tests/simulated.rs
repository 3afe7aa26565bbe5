//! Some seeds. `cargo xtask simulate` runs many more, optimised, and every plan that failed once.

use tapeworks_sim::{Plan, Scenario, simulate};

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

#[test]
fn some_plans_have_a_venue_more_that_takes_requests_over_tcp() {
    let plans: Vec<Plan> = (0..300).map(Plan::draw).collect();
    let places = plans.iter().filter_map(|plan| {
        let place = plan.venues.iter().position(|venue| venue.requests_by_tcp)?;
        Some((place, plan.venues.len()))
    });
    let places: Vec<_> = places.collect();
    assert!((20..80).contains(&places.len()), "{places:?}");
    assert!(places.iter().all(|(place, venues)| place + 1 == *venues));
}

#[test]
fn nothing_is_missing_where_requests_go_over_tcp() {
    let Some(scenario) = Scenario::of_name("tcp-recovery") else { panic!("there is one of this name") };
    let mut plan = scenario.plan(1);
    plan.rate = 1_000;
    let outcome = simulate(&plan, false);
    assert_eq!((outcome.violations, outcome.counts.missing), (Vec::<String>::new(), 0));
    for fact in ["requests over TCP: accepted", "gap: filled by retransmission"] {
        assert!(outcome.reached.0.contains(fact), "{fact}: {:?}", outcome.reached);
    }
}
