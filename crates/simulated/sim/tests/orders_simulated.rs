//! Some seeds of a gateway and its exchange. `cargo xtask simulate --orders` runs many more, optimised.

use tapeworks_sim::{OrderPlan, simulate_orders};

#[test]
fn a_gateway_loses_and_doubles_nothing_through_any_fault() {
    let seeds = 1..7;
    let count = seeds.clone().count();
    let (mut executions, mut trades, mut restored) = (0, 0, 0);
    for seed in seeds {
        let outcome = simulate_orders(&OrderPlan::draw(seed), false);
        assert_eq!(outcome.violations, Vec::<String>::new(), "seed {seed}: {:?}", outcome.ended);
        executions += outcome.executions;
        trades += outcome.trades;
        restored += outcome.restored;
    }
    println!("{count} seeds: {executions} reports, {trades} trades, {restored} requests restored");
    assert!(executions > 100 * count && trades > 20 * count && restored > 20 * count, "too little happened");
}

#[test]
fn the_same_seed_is_the_same_run() {
    let plan = OrderPlan::draw(77);
    assert_eq!(simulate_orders(&plan, false).ended, simulate_orders(&plan, false).ended);
}
