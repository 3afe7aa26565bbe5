//! Shrinks a failing plan: fewer faults, fewer venues, a shorter time, as long as it still fails.

use crate::market::simulate;
use crate::plan::{MILLISECOND, Plan, What};

impl What {
    /// Returns the fault for the remaining venues, unless its venue was removed.
    fn without_venue(self, gone: usize) -> Option<Self> {
        let moved = |venue: usize| match venue.cmp(&gone) {
            std::cmp::Ordering::Less => Some(venue),
            std::cmp::Ordering::Equal => None,
            std::cmp::Ordering::Greater => Some(venue - 1),
        };
        Some(match self {
            Self::Line { venue, line, faults } => Self::Line { venue: moved(venue)?, line, faults },
            Self::LinesOut { venue } => Self::LinesOut { venue: moved(venue)? },
            Self::SnapshotsOut { venue } => Self::SnapshotsOut { venue: moved(venue)? },
            Self::Requests { venue, faults } => Self::Requests { venue: moved(venue)?, faults },
            other => other,
        })
    }
}

/// Returns plans that are a little smaller, the smallest first.
fn smaller(plan: &Plan) -> Vec<Plan> {
    let mut all = Vec::new();
    let mut add = |change: &dyn Fn(&mut Plan)| {
        let mut changed = plan.clone();
        change(&mut changed);
        if changed != *plan {
            all.push(changed);
        }
    };
    // Halves of the faults, then each fault alone.
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
    if plan.venues.len() > 1 {
        for venue in 0..plan.venues.len() {
            add(&|plan| {
                plan.venues.remove(venue);
                let faults = std::mem::take(&mut plan.faults).into_iter();
                plan.faults = faults
                    .filter_map(|mut fault| {
                        fault.what = fault.what.without_venue(venue)?;
                        Some(fault)
                    })
                    .collect();
            });
        }
    }
    add(&|plan| plan.clients.clear());
    for client in 0..plan.clients.len() {
        add(&|plan| {
            plan.clients.remove(client);
        });
    }
    add(&|plan| {
        plan.multicast = None;
        plan.faults.retain(|fault| !matches!(fault.what, What::Group { .. }));
    });
    add(&|plan| plan.bursts.clear());
    add(&|plan| plan.venues.iter_mut().for_each(|venue| venue.silence = None));
    add(&|plan| plan.venues.iter_mut().for_each(|venue| venue.restart_after = Default::default()));
    add(&|plan| plan.venues.iter_mut().for_each(|venue| venue.reset = None));
    add(&|plan| plan.venues.iter_mut().for_each(|venue| venue.requests_by_tcp = false));
    add(&|plan| plan.venues.iter_mut().for_each(|venue| venue.answers = Default::default()));
    add(&|plan| plan.venues.iter_mut().for_each(|venue| venue.snapshots = Default::default()));
    add(&|plan| plan.venues.iter_mut().for_each(|venue| venue.nonsense_per_million = 0));
    add(&|plan| plan.limits = Default::default());
    add(&|plan| plan.day = None);
    add(&|plan| plan.night = None);
    add(&|plan| plan.venues.iter_mut().for_each(|venue| venue.is_unannounced = false));
    add(&|plan| plan.venues.iter_mut().for_each(|venue| venue.keeps_session = false));
    add(&|plan| plan.buffer_bytes = 4 << 20);
    add(&|plan| plan.trouble_ns = (plan.trouble_ns / 2).max(100 * MILLISECOND));
    add(&|plan| {
        plan.trouble_ns =
            plan.faults.iter().map(|fault| fault.at_ns + fault.length_ns).max().unwrap_or_default();
    });
    add(&|plan| plan.rate = (plan.rate / 2).max(10));
    add(&|plan| plan.symbols = (plan.symbols / 2).max(1));
    add(&|plan| plan.plant_starts_ns = 0);
    add(&|plan| plan.schedule.preempted_per_million = 0);
    add(&|plan| plan.journal = None);
    all
}

/// Returns the smallest failing plan found within `tries` attempts, and its violations. The given plan must fail.
pub fn shrink(plan: &Plan, tries: usize) -> (Plan, Vec<String>) {
    smallest(plan, tries, smaller, |plan| simulate(plan, false).violations)
}

/// Does the same for plans of any kind: `smaller` returns plans that are a little smaller, the smallest first, and `violations` runs a plan.
pub(crate) fn smallest<P: Clone>(
    plan: &P,
    tries: usize,
    smaller: impl Fn(&P) -> Vec<P>,
    violations: impl Fn(&P) -> Vec<String>,
) -> (P, Vec<String>) {
    let (mut best, mut found) = (plan.clone(), violations(plan));
    let mut left = tries;
    'again: loop {
        for candidate in smaller(&best) {
            if left == 0 {
                return (best, found);
            }
            left -= 1;
            let failed = violations(&candidate);
            if !failed.is_empty() {
                (best, found) = (candidate, failed);
                continue 'again;
            }
        }
        return (best, found);
    }
}
