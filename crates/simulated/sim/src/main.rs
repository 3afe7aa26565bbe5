//! Simulates markets, seed by seed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::{Parser, value_parser};
use tapeworks_sim::{
    Ended, OrderOutcome, OrderPlan, Outcome, Plan, Reached, Regression, Saved, Scenario, facts, search_bugs,
    shrink, shrink_orders, simulate, simulate_orders, simulate_with_timeline, switch_on,
};

/// Upper limit of the first seed and of the number of seeds, so that their sum does not overflow.
const MOST_SEEDS: u64 = 1 << 62;

/// Runs the shipped code of plant, venues and clients in simulated markets: one thread each, a virtual clock, faults by seed.
#[derive(Parser, Debug)]
#[command(name = "simulate", version)]
struct Arguments {
    /// How many seeds to run: 300 unless given, and 2,000 at most for each deliberate bug.
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..=MOST_SEEDS),
          conflicts_with_all = ["minutes", "seed", "regression"])]
    seeds: Option<u64>,
    /// Run seeds for so many minutes.
    #[arg(long, value_name = "M", value_parser = value_parser!(u64).range(1..=1_000_000),
          conflicts_with_all = ["seed", "regression"])]
    minutes: Option<u64>,
    /// The first seed.
    #[arg(long, value_name = "S", default_value_t = 1, value_parser = value_parser!(u64).range(..=MOST_SEEDS),
          conflicts_with = "seed")]
    from: u64,
    /// Run this seed alone.
    #[arg(long, value_name = "S", conflicts_with = "regression")]
    seed: Option<u64>,
    /// Run a plan from a file.
    #[arg(long, value_name = "FILE")]
    regression: Option<PathBuf>,
    /// Run a plan that has a name, with what is random drawn from --seed; "list" lists them.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["regression", "seeds", "minutes", "bugs"])]
    scenario: Option<String>,
    /// Simulate a gateway with its exchange and its clients, not a plant; with --bugs, search for the deliberate bugs of these.
    #[arg(long, conflicts_with_all = ["regression", "regressions", "scenario", "coverage", "timeline"])]
    orders: bool,
    /// Print in how many runs each kind of fault, counter and state was reached, and what none has reached.
    #[arg(long, conflicts_with_all = ["seed", "regression", "scenario", "bugs"])]
    coverage: bool,
    /// Switch on a deliberate bug, in a build that has them; with --bugs, one or several with commas between them.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    bug: Vec<String>,
    /// Search for the first seed that fails with each deliberate bug, or with those given, and print the table.
    #[arg(long, conflicts_with_all = ["minutes", "from", "seed", "regression", "regressions", "save"])]
    bugs: bool,
    /// Run all plans in this folder before the seeds.
    #[arg(long, value_name = "FOLDER")]
    regressions: Option<PathBuf>,
    /// Print all that happens, and the plan, of one seed or plan.
    #[arg(long)]
    trace: bool,
    /// Write a page of HTML that shows the run of one seed, plan or scenario over its time into this file.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seeds", "minutes", "bugs", "regressions", "coverage"])]
    timeline: Option<PathBuf>,
    /// Simulations at the same time.
    #[arg(long, value_name = "N", value_parser = value_parser!(u16).range(1..=1_024))]
    jobs: Option<u16>,
    /// Tries to make the first failing plan smaller.
    #[arg(long, value_name = "N", default_value_t = 200)]
    shrink: usize,
    /// Write the smaller plan, or the one of the seed, into this file.
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = run(&arguments);
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the arguments' command. Returns whether all was well.
fn run(arguments: &Arguments) -> Result<bool, String> {
    if arguments.bugs {
        let last = arguments.seeds.unwrap_or(2_000);
        return search_bugs(&arguments.bug, arguments.orders, last, jobs(arguments));
    }
    match arguments.bug.as_slice() {
        [] => {}
        [name] => switch_on(name)?,
        _ => return Err("a run has one deliberate bug; several are for --bugs".to_owned()),
    }
    if let Some(name) = &arguments.scenario {
        return scenario(name, arguments);
    }
    match (&arguments.seed, &arguments.regression) {
        (Some(seed), _) if arguments.orders => {
            let plan = OrderPlan::draw(*seed);
            let is_well = one_of_orders(&format!("seed {seed}"), &plan, arguments.trace);
            save(arguments, format!("Seed {seed}"), Saved::Orders(plan)).map(|()| is_well)
        }
        (Some(seed), _) => {
            let plan = Plan::draw(*seed);
            let is_well = one((&format!("seed {seed}"), ""), &plan, arguments)?;
            save(arguments, format!("Seed {seed}"), Saved::Market(Box::new(plan))).map(|()| is_well)
        }
        (None, Some(path)) => {
            let Regression { story, plan } = Regression::load(path)?;
            println!("{story}");
            let name = path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy();
            match plan {
                Saved::Market(plan) => one((&name, &story), &plan, arguments),
                Saved::Orders(plan) => Ok(one_of_orders(&name, &plan, arguments.trace)),
            }
        }
        (None, None) if arguments.timeline.is_some() => {
            Err("--timeline shows one run: it needs --seed, --regression or --scenario".to_owned())
        }
        (None, None) if arguments.orders => {
            let progress =
                Progress::new(|seed| simulate_orders(&OrderPlan::draw(seed), false).into(), arguments.from);
            many_orders(&progress, arguments)
        }
        (None, None) => many_plans(arguments),
    }
}

/// Runs a scenario. Returns whether all was well.
fn scenario(name: &str, arguments: &Arguments) -> Result<bool, String> {
    if name == "list" {
        Scenario::ALL.iter().for_each(|scenario| println!("{:<22}  {}", scenario.name, scenario.story));
        return Ok(true);
    }
    let names = || Scenario::ALL.map(|scenario| scenario.name).join(", ");
    let scenario =
        Scenario::of_name(name).ok_or_else(|| format!("'{name}' is no scenario: there are {}", names()))?;
    println!("{}", scenario.story);
    let plan = scenario.plan(arguments.seed.unwrap_or(1));
    let is_well = one((name, scenario.story), &plan, arguments)?;
    save(arguments, scenario.story.to_owned(), Saved::Market(Box::new(plan))).map(|()| is_well)
}

/// Saves a plan with its story, if a file is named for it.
fn save(arguments: &Arguments, story: String, plan: Saved) -> Result<(), String> {
    let Some(path) = &arguments.save else { return Ok(()) };
    Regression { story, plan }.save(path)?;
    println!("saved as {}", path.display());
    Ok(())
}

/// Returns the number of simultaneous simulations.
fn jobs(arguments: &Arguments) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    arguments.jobs.map_or_else(cores, usize::from)
}

fn summary(ended: &Ended, took: Duration) -> String {
    let simulated = ended.now_ns as f64 / 1e9;
    format!(
        "{simulated:.1} s in {:.2} s, {} steps, hash {:016x}",
        took.as_secs_f64(),
        ended.steps,
        ended.hash
    )
}

/// Runs one plan with orders. Returns whether all was well.
fn one_of_orders(name: &str, plan: &OrderPlan, shows_trace: bool) -> bool {
    if shows_trace {
        println!("{plan:#?}");
    }
    let began = Instant::now();
    let outcome = simulate_orders(plan, shows_trace);
    outcome.ended.trace.iter().for_each(|line| println!("{line}"));
    println!("{name}: {}", summary(&outcome.ended, began.elapsed()));
    let OrderOutcome { executions, trades, restored, exchange_faults, .. } = outcome;
    println!(
        "{executions} reports, {trades} trades, {restored} requests restored, {exchange_faults} faults of the exchange"
    );
    outcome.violations.iter().for_each(|violation| println!("VIOLATION {violation}"));
    outcome.violations.is_empty()
}

/// Runs one plan, given its name and story. Returns whether all was well.
fn one((name, story): (&str, &str), plan: &Plan, arguments: &Arguments) -> Result<bool, String> {
    if arguments.trace {
        println!("{plan:#?}");
    }
    let began = Instant::now();
    let (outcome, timeline) = match &arguments.timeline {
        Some(path) => {
            let (outcome, timeline) = simulate_with_timeline(plan);
            (outcome, Some((path, timeline)))
        }
        None => (simulate(plan, arguments.trace), None),
    };
    if arguments.trace {
        outcome.ended.trace.iter().for_each(|line| println!("{line}"));
    }
    println!("{name}: {}", summary(&outcome.ended, began.elapsed()));
    println!("{:#?}", outcome.counts);
    outcome.violations.iter().for_each(|violation| println!("VIOLATION {violation}"));
    if let Some((path, timeline)) = timeline {
        let page = timeline.page(name, story)?;
        std::fs::write(path, page).map_err(|error| format!("{}: {error}", path.display()))?;
        println!("the timeline is in {}", path.display());
    }
    Ok(outcome.violations.is_empty())
}

/// The result of a seed's run, for either kind of plan.
struct Run {
    ended: Ended,
    violations: Vec<String>,
    /// Market messages, or reports that clients received.
    messages: u64,
    reached: Reached,
}

impl From<Outcome> for Run {
    fn from(outcome: Outcome) -> Self {
        let Outcome { ended, violations, counts, reached, .. } = outcome;
        Self { ended, violations, messages: counts.messages, reached }
    }
}

impl From<OrderOutcome> for Run {
    fn from(outcome: OrderOutcome) -> Self {
        let OrderOutcome { ended, violations, executions, .. } = outcome;
        Self { ended, violations, messages: executions as u64, reached: Reached::default() }
    }
}

/// State shared by the threads that run seeds.
struct Progress {
    simulate: fn(u64) -> Run,
    next: AtomicU64,
    done: AtomicU64,
    failed: Mutex<Vec<u64>>,
    simulated_ns: AtomicU64,
    messages: AtomicU64,
    /// Number of runs that reached each fact.
    reached: Mutex<BTreeMap<String, u64>>,
}

impl Progress {
    fn new(simulate: fn(u64) -> Run, from: u64) -> Self {
        Self {
            simulate,
            next: AtomicU64::new(from),
            done: AtomicU64::new(0),
            failed: Mutex::default(),
            simulated_ns: AtomicU64::new(0),
            messages: AtomicU64::new(0),
            reached: Mutex::default(),
        }
    }

    fn add(&self, facts: &Reached) {
        let mut reached = self.reached.lock().unwrap_or_else(PoisonError::into_inner);
        facts.0.iter().for_each(|fact| *reached.entry(fact.clone()).or_default() += 1);
    }
}

/// Runs the plans of a folder, and many seeds. Returns whether all was well.
fn many_plans(arguments: &Arguments) -> Result<bool, String> {
    let mut is_well = true;
    let progress = Progress::new(|seed| simulate(&Plan::draw(seed), false).into(), arguments.from);
    if let Some(folder) = &arguments.regressions {
        is_well &= regressions(folder, &progress)?;
        is_well &= scenarios(&progress);
    }
    let failed = many(&progress, arguments);
    if arguments.coverage {
        coverage(&progress);
    }
    let Some(seed) = failed.first() else { return Ok(is_well) };
    println!("seed {seed}, made smaller:");
    let (plan, violations) = shrink(&Plan::draw(*seed), arguments.shrink);
    println!("{plan:#?}");
    violations.iter().for_each(|violation| println!("VIOLATION {violation}"));
    save(arguments, format!("Seed {seed}: {}", violations.join("; ")), Saved::Market(Box::new(plan)))?;
    Ok(false)
}

/// Runs many seeds with orders. Returns whether all was well.
fn many_orders(progress: &Progress, arguments: &Arguments) -> Result<bool, String> {
    let failed = many(progress, arguments);
    let Some(seed) = failed.first() else { return Ok(true) };
    println!("seed {seed}, made smaller:");
    let (plan, violations) = shrink_orders(&OrderPlan::draw(*seed), arguments.shrink);
    println!("{plan:#?}");
    violations.iter().for_each(|violation| println!("VIOLATION {violation}"));
    save(arguments, format!("Seed {seed}: {}", violations.join("; ")), Saved::Orders(plan))?;
    Ok(false)
}

/// Runs many seeds. Returns those that failed, in ascending order.
fn many(progress: &Progress, arguments: &Arguments) -> Vec<u64> {
    let began = Instant::now();
    let until = arguments.minutes.map(|minutes| began + Duration::from_secs(60 * minutes));
    let last = arguments.from.saturating_add(arguments.seeds.unwrap_or(300));
    std::thread::scope(|scope| {
        for _ in 0..jobs(arguments) {
            scope.spawn(|| {
                // The name was valid a moment ago.
                let _is_there = arguments.bug.first().map(|name| switch_on(name));
                loop {
                    let seed = progress.next.fetch_add(1, Ordering::Relaxed);
                    let is_over = until.map_or(seed >= last, |until| Instant::now() >= until);
                    if is_over {
                        return;
                    }
                    run_seed(seed, progress);
                }
            });
        }
    });
    let (done, simulated) =
        (progress.done.load(Ordering::Relaxed), progress.simulated_ns.load(Ordering::Relaxed));
    let (took, simulated) = (began.elapsed().as_secs_f64(), simulated as f64 / 1e9);
    println!(
        "{done} seeds, {simulated:.0} simulated seconds in {took:.0} s ({:.0} a second), {} messages",
        simulated / took,
        progress.messages.load(Ordering::Relaxed)
    );
    let mut failed = progress.failed.lock().unwrap_or_else(PoisonError::into_inner).clone();
    failed.sort_unstable();
    if !failed.is_empty() {
        println!("{} of them failed: {failed:?}", failed.len());
    }
    failed
}

fn run_seed(seed: u64, progress: &Progress) {
    let began = Instant::now();
    let outcome = (progress.simulate)(seed);
    progress.simulated_ns.fetch_add(outcome.ended.now_ns, Ordering::Relaxed);
    progress.messages.fetch_add(outcome.messages, Ordering::Relaxed);
    progress.add(&outcome.reached);
    let done = progress.done.fetch_add(1, Ordering::Relaxed) + 1;
    if outcome.violations.is_empty() {
        if done.is_multiple_of(100) {
            println!("{done} seeds done");
        }
        return;
    }
    println!("seed {seed}: {}", summary(&outcome.ended, began.elapsed()));
    outcome.violations.iter().for_each(|violation| println!("  VIOLATION {violation}"));
    if let Ok(mut failed) = progress.failed.lock() {
        failed.push(seed);
    }
}

/// Runs the plans of a folder, sorted by name.
fn regressions(folder: &Path, progress: &Progress) -> Result<bool, String> {
    let entries = std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "json"));
    paths.sort();
    let mut is_well = true;
    for path in &paths {
        let regression = Regression::load(path)?;
        let (name, Regression { story, plan }) = (path.display().to_string(), regression);
        is_well &= match plan {
            Saved::Market(plan) => is_all_well((&name, &story), simulate(&plan, false).into(), progress),
            Saved::Orders(plan) => {
                is_all_well((&name, &story), simulate_orders(&plan, false).into(), progress)
            }
        };
    }
    println!("{} regressions", paths.len());
    Ok(is_well)
}

/// Runs the scenarios.
fn scenarios(progress: &Progress) -> bool {
    let mut is_well = true;
    for scenario in &Scenario::ALL {
        let outcome = simulate(&scenario.plan(1), false);
        is_well &= is_all_well((scenario.name, scenario.story), outcome.into(), progress);
    }
    println!("{} scenarios", Scenario::ALL.len());
    is_well
}

/// Prints what is wrong with the run of a plan. Returns whether all was well.
fn is_all_well((name, story): (&str, &str), outcome: Run, progress: &Progress) -> bool {
    progress.add(&outcome.reached);
    if !outcome.violations.is_empty() {
        println!("{name}: {story}");
        outcome.violations.iter().for_each(|violation| println!("  VIOLATION {violation}"));
    }
    outcome.violations.is_empty()
}

/// Prints which facts were reached, and which were not.
fn coverage(progress: &Progress) {
    let reached = progress.reached.lock().unwrap_or_else(PoisonError::into_inner);
    let runs = |fact: &String| reached.get(fact).copied().unwrap_or_default();
    let facts = facts();
    println!("{:<60}  runs", "reached");
    facts.iter().filter(|fact| runs(fact) > 0).for_each(|fact| println!("{fact:<60}  {}", runs(fact)));
    let never: Vec<_> = facts.iter().filter(|fact| runs(fact) == 0).collect();
    println!("never reached: {}", never.len());
    never.into_iter().for_each(|fact| println!("{fact}"));
}
