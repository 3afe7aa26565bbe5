//! The search for deliberate bugs: which seed finds which bug.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use tapeworks_planted::{BUGS, Market, choose, is_reached, number};

use crate::market::simulate;
use crate::orders::{OrderPlan, simulate_orders};
use crate::plan::Plan;

/// Switches on the deliberate bug with this name for everything that runs on this OS thread.
///
/// # Errors
/// There is no such bug, or this build has none: it was not built with `--cfg tapeworks_bug`.
pub fn switch_on(name: &str) -> Result<(), String> {
    match BUGS.iter().any(|bug| bug.name == name) {
        true => choose(Some(number(name))),
        false => {
            let names: Vec<&str> = BUGS.iter().map(|bug| bug.name).collect();
            return Err(format!("there is no bug {name}; there are: {}", names.join(", ")));
        }
    }
    Ok(())
}

/// The first failing seed of a bug.
#[derive(Clone, Debug)]
struct Found {
    seed: u64,
    simulated_ns: u64,
    violation: String,
}

/// Runs a seed. Returns how long the run was, and what was wrong.
fn run(seed: u64, market: Market) -> (u64, Vec<String>) {
    match market {
        Market::Data => {
            let outcome = simulate(&Plan::draw(seed), false);
            (outcome.ended.now_ns, outcome.violations)
        }
        Market::Orders => {
            let outcome = simulate_orders(&OrderPlan::draw(seed), false);
            (outcome.ended.now_ns, outcome.violations)
        }
    }
}

/// State shared by the threads of a search.
struct Search {
    next: AtomicU64,
    found: Mutex<Vec<Option<Found>>>,
    /// Seeds that fail without a bug, which prove nothing.
    failing: Mutex<Vec<(u64, Market)>>,
}

impl Search {
    /// Returns the bugs that no lower seed has found.
    fn left(&self, seed: u64) -> Vec<usize> {
        let Ok(found) = self.found.lock() else { return Vec::new() };
        let is_left = |found: &Option<Found>| found.as_ref().is_none_or(|found| found.seed > seed);
        found.iter().enumerate().filter(|(_, found)| is_left(found)).map(|(place, _)| place).collect()
    }

    fn run(&self, last: u64, of: &[usize]) {
        loop {
            let seed = self.next.fetch_add(1, Ordering::Relaxed);
            let mut left = self.left(seed);
            left.retain(|place| of.contains(place));
            if seed > last || left.is_empty() {
                return;
            }
            for market in [Market::Data, Market::Orders] {
                let of_market = left.iter().copied().filter(|place| BUGS[*place].market == market);
                self.run_seed(seed, market, of_market.collect());
            }
        }
    }

    /// Runs a seed without a bug, and with each of these bugs that the first run has reached.
    fn run_seed(&self, seed: u64, market: Market, mut left: Vec<usize>) {
        if left.is_empty() {
            return;
        }
        choose(None);
        let (_, without) = run(seed, market);
        if !without.is_empty() {
            println!("seed {seed} of {market} fails without a bug: {}", without.join("; "));
            if let Ok(mut failing) = self.failing.lock() {
                failing.push((seed, market));
            }
            return;
        }
        // A bug that the run does not reach would not change it.
        left.retain(|place| is_reached(*place));
        for place in left {
            choose(Some(place));
            let (simulated_ns, violations) = run(seed, market);
            let Some(violation) = violations.first() else { continue };
            println!("seed {seed} finds {}: {violation}", BUGS[place].name);
            let found = Found { seed, simulated_ns, violation: violation.clone() };
            if let Ok(mut all) = self.found.lock()
                && all[place].as_ref().is_none_or(|known| known.seed > seed)
            {
                all[place] = Some(found);
            }
        }
    }
}

/// Runs the seeds from 1 to `last` until each deliberate bug, or each of the named ones, has failed a seed, and prints the table.
/// With `only_orders`, searches for each bug of a gateway and its exchange. Returns whether each was found.
///
/// # Errors
/// As [`switch_on`].
pub fn search_bugs(names: &[String], only_orders: bool, last: u64, jobs: usize) -> Result<bool, String> {
    names.iter().try_for_each(|name| switch_on(name))?;
    let is_wanted = |place: &usize| {
        let bug = &BUGS[*place];
        (names.is_empty() || names.iter().any(|name| bug.name == *name))
            && (!only_orders || bug.market == Market::Orders)
    };
    let of: Vec<usize> = (0..BUGS.len()).filter(is_wanted).collect();
    let search = Search {
        next: AtomicU64::new(1),
        found: Mutex::new(vec![None; BUGS.len()]),
        failing: Mutex::default(),
    };
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| search.run(last, &of));
        }
    });
    let mut failing = search.failing.into_inner().unwrap_or_default();
    failing.sort_unstable();
    let failing: Vec<String> = failing.iter().map(|(seed, market)| format!("{seed} of {market}")).collect();
    let found = search.found.into_inner().unwrap_or_default();
    println!("\n| bug | what is wrong | seed | after | what the simulator says |");
    println!("| --- | --- | --- | --- | --- |");
    let mut missed = Vec::new();
    for place in of {
        let bug = &BUGS[place];
        match found.get(place).and_then(Option::as_ref) {
            Some(Found { seed, simulated_ns, violation }) => {
                let (seconds, said) = (*simulated_ns as f64 / 1e9, short(violation));
                println!("| `{}` | {} | {seed} | {seconds:.0} s | {said} |", bug.name, bug.wrong);
            }
            None => missed.push(bug.name),
        }
    }
    if !failing.is_empty() {
        println!("\nseeds that fail without a bug, left out: {}", failing.join(", "));
    }
    if !missed.is_empty() {
        println!("\nnot found within {last} seeds: {}", missed.join(", "));
    }
    Ok(missed.is_empty())
}

/// Formats a violation as a table cell, without the values of structures.
fn short(violation: &str) -> String {
    const MOST: usize = 120;
    let values =
        ["Event {", "Essence {", "[Level {", "[]"].into_iter().filter_map(|value| violation.find(value));
    let (text, rest) = violation.split_at(values.min().unwrap_or(violation.len()));
    let after = match (rest.is_empty(), rest.contains("and was Event")) {
        (true, _) => "",
        (false, false) => "...",
        (false, true) => "... and was another before",
    };
    let text = text.replace('|', "/") + after;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default().trim_end()),
        None => text,
    }
}
