//! Shrinks a failing run with orders: fewer faults, a shorter time, fewer faults of the exchange.

use super::plan::{OrderPlan, ScriptPlan, VenueProtocol};
use super::simulate_orders;
use crate::shrink::smallest;

/// The shortest time before a fault, in us.
const LEAST_US: u32 = 1_000;

/// Returns plans that are a little smaller, the smallest first.
fn smaller(plan: &OrderPlan) -> Vec<OrderPlan> {
    let mut all = Vec::new();
    let mut add = |change: &dyn Fn(&mut OrderPlan)| {
        let mut changed = plan.clone();
        change(&mut changed);
        if changed != *plan {
            all.push(changed);
        }
    };
    let faults = plan.faults.len();
    if faults > 2 {
        add(&|plan| plan.faults.truncate(faults / 2));
        add(&|plan| {
            plan.faults.drain(..faults / 2);
        });
    }
    for fault in 0..faults {
        add(&|plan| {
            plan.faults.remove(fault);
        });
    }
    add(&|plan| plan.script = ScriptPlan::default());
    add(&|plan| plan.script.rejects_per_million = 0);
    add(&|plan| plan.script.delays_per_million = 0);
    add(&|plan| plan.script.gaps_per_million = 0);
    add(&|plan| plan.script.garbage_per_million = 0);
    add(&|plan| plan.script.drop_every = 0);
    add(&|plan| plan.script.halted_at = 0);
    add(&|plan| plan.script.repeats_per_million = 0);
    add(&|plan| plan.script.inventions_per_million = 0);
    add(&|plan| plan.script.withheld_per_million = 0);
    add(&|plan| plan.script.reorders_per_million = 0);
    add(&|plan| plan.script.garbled_per_million = 0);
    // At 0 the faults would never stop.
    add(&|plan| plan.script.until_message = plan.script.until_message.div_ceil(2));
    add(&|plan| plan.venue = VenueProtocol::Native);
    add(&|plan| plan.sync_every_ms = None);
    add(&|plan| plan.exchange_syncs = true);
    add(&|plan| (plan.throttle, plan.queue, plan.reports_per_request) = (0, 1_000, 1_000));
    add(&|plan| {
        plan.faults.iter_mut().for_each(|fault| fault.after_us = (fault.after_us / 2).max(LEAST_US));
    });
    for fault in 0..faults {
        add(&|plan| {
            if let Some(fault) = plan.faults.get_mut(fault) {
                fault.after_us = (fault.after_us / 2).max(LEAST_US);
            }
        });
    }
    all
}

/// Returns the smallest failing plan found within `tries` attempts, and its violations. The given plan must fail.
#[must_use]
pub fn shrink_orders(plan: &OrderPlan, tries: usize) -> (OrderPlan, Vec<String>) {
    smallest(plan, tries, smaller, |plan| simulate_orders(plan, false).violations)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_smaller_plan_has_no_more_faults_and_the_smallest_has_none_that_is_smaller() {
        let mut plan = OrderPlan::draw(3);
        let mut steps = 0;
        while let Some(next) = smaller(&plan).into_iter().next() {
            assert!(next.faults.len() <= plan.faults.len() && next != plan);
            plan = next;
            steps += 1;
            assert!(steps < 1_000);
        }
        assert!(plan.faults.is_empty() && plan.script == ScriptPlan::default());
    }
}
