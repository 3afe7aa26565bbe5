//! `cargo xtask test`: everything that must hold before a change lands, step by step.
//!
//! Every step runs, whatever became of the ones before, so that one run shows all; the summary at the end has a line
//! for each with its time. What is cheap to check comes first; what takes minutes runs with `--long`, as in continuous
//! integration. A step looks for the tools that it needs before anything is built for it.

use std::path::PathBuf;
use std::time::Instant;

use crate::beside::{self, Beside};
use crate::ended::{Ended, Outcome};
use crate::features::{self, Features};
use crate::process::{self, cargo};
use crate::tools::{self, Lack};
use crate::{deploy, deps, instructions, interop, licences, modules, test_programs, tidy};

/// One step.
struct Step {
    name: &'static str,
    /// What must hold.
    what: &'static str,
    when: When,
    /// Whether a long run has it in the lane beside the others. Steps that wait more than they compute are there, but for three short ones: so both lanes end
    /// at about the same time.
    is_beside: bool,
    /// Whether the tools that it needs are there: checked before anything is built for it.
    needs: fn() -> Result<(), Lack>,
    run: fn(&Features) -> Result<String, Lack>,
}

/// In which runs a step takes part.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    Always,
    /// It takes minutes: only with `--long`, or when it is named.
    Long,
    /// As `Long`; what looks at a part of the sources, as other people's programs do. It runs only where something below one of these
    /// paths changed since the last landed commit, or with `--all`.
    Covers(&'static [&'static str]),
}

/// The arguments of the task.
#[derive(Default)]
pub(crate) struct Wanted<'a> {
    pub(crate) names: Vec<&'a str>,
    /// The long steps too.
    pub(crate) long: bool,
    /// All of the long steps, whatever changed.
    pub(crate) all: bool,
    /// The last landed commit; where it leaves the branch `origin/main` unless given.
    pub(crate) since: Option<&'a str>,
}

/// The version of mdbook that is installed where none is.
const MDBOOK: &str = "0.5.4";

/// Mutated inputs of each target in the step `fuzz`: some seconds each.
const FUZZ_INPUTS: &str = "40000";

/// What says how many inputs the tests of the fuzz targets mutate.
const FUZZ_INPUTS_OF_TESTS: &str = "TAPEWORKS_FUZZ_INPUTS";

/// Those of the step `tests` where the step `fuzz` follows.
const FUZZ_INPUTS_BEFORE: &str = "200";

/// A step builds less than this (the tests take the most: 4.4); with less on the disk, what was built before makes room, and is built
/// again where a later step needs it.
const ROOM_GIGABYTES: f64 = 6.0;

/// Seconds of the step `hostile`, in all.
const HOSTILE_SECONDS: u64 = 120;

/// Parts of the hostile runs, which share the two cores of the machine that they are planned for.
const HOSTILE_PARTS: u64 = 15;
const HOSTILE_AT_ONCE: u64 = 2;

const fn nothing() -> Result<(), Lack> {
    Ok(())
}

/// Behind it the steps of the other lane may begin: it builds the program that they run.
const BEFORE_LANES: &str = "binary";

/// The sources from which market data comes out of the program: protocols, feeds, books, files.
const DATA: [&str; 24] = [
    "crates/base/stage",
    "crates/base/time",
    "crates/protocols/session",
    "crates/protocols/order-session",
    "crates/market/journal",
    "crates/host/runtime",
    "crates/protocols/wire",
    "crates/protocols/fix-wire",
    "crates/packets/capture",
    "crates/packets/nic",
    "crates/market/market",
    "crates/market/feed",
    "crates/market/follow",
    "crates/market/store",
    "crates/base/random",
    "crates/orders/matching",
    "crates/simulated/generator",
    "crates/run/analysis",
    "crates/run/batch",
    "crates/market/engine",
    "crates/run/plant",
    "crates/run/outputs",
    "crates/run/service",
    "crates/run/cli",
];

/// The same, and the tutorials, one of which uses the official client.
const LIVE: [&str; DATA.len() + 1] = {
    let mut all = ["docs/src/tutorials"; DATA.len() + 1];
    let mut place = 0;
    while place < DATA.len() {
        all[place] = DATA[place];
        place += 1;
    }
    all
};

/// The sources of the Python package, and the pages, whose examples its tests run.
const PACKAGE: [&str; 28] = [
    "README.md",
    "bindings/python",
    "docs/src/notebook.md",
    "docs/src/notebooks",
    "docs/src/tutorials/python-nbbo.md",
    "interop/run_notebook.py",
    "interop/requirements.txt",
    "interop/requirements-nautilus.txt",
    "crates/base/stage",
    "crates/base/time",
    "crates/protocols/wire",
    "crates/protocols/fix-wire",
    "crates/protocols/session",
    "crates/protocols/order-session",
    "crates/packets/capture",
    "crates/packets/nic",
    "crates/market/market",
    "crates/market/feed",
    "crates/market/follow",
    "crates/market/store",
    "crates/base/random",
    "crates/orders/matching",
    "crates/simulated/generator",
    "crates/run/analysis",
    "crates/run/batch",
    "crates/host/runtime",
    "crates/run/outputs",
    "crates/run/service",
];

/// The sources of the program whose instructions are counted: those of `xtask/measured` and of all that it uses.
const MEASURED: [&str; 17] = [
    "crates/base/planted",
    "crates/base/ring",
    "crates/base/dispatch",
    "crates/protocols/wire",
    "crates/protocols/fix-wire",
    "crates/packets/capture",
    "crates/base/stage",
    "crates/base/time",
    "crates/protocols/session",
    "crates/protocols/order-session",
    "crates/market/market",
    "crates/market/feed",
    "crates/market/follow",
    "crates/base/random",
    "crates/orders/matching",
    "crates/simulated/generator",
    "crates/orders/translate",
];

/// The sources of the models: `ring` uses nothing of ours.
const MODELLED: [&str; 1] = ["crates/base/ring"];

/// The sources of the way from a FIX client to a venue and back.
const ORDERS: [&str; 17] = [
    "crates/base/disk",
    "crates/market/journal",
    "crates/base/dispatch",
    "crates/host/runtime",
    "crates/protocols/wire",
    "crates/protocols/fix-wire",
    "crates/protocols/session",
    "crates/protocols/order-session",
    "crates/market/market",
    "crates/orders/translate",
    "crates/orders/gateway",
    "crates/base/random",
    "crates/orders/matching",
    "crates/simulated/generator",
    "crates/run/service",
    "crates/run/cli",
    "examples/quickfixj",
];

const STEPS: &[Step] = &[
    Step {
        name: "format",
        what: "the sources are formatted",
        when: When::Always,
        is_beside: false,
        needs: nothing,
        run: |_| format(),
    },
    Step {
        name: "tidy",
        what: "the house rules of text are kept",
        when: When::Always,
        is_beside: false,
        needs: nothing,
        run: |_| tidy::run().map_err(Lack::Failed),
    },
    Step {
        name: "deps",
        what: "each crate uses only what it may, and no circle joins the modules of a crate",
        when: When::Always,
        is_beside: false,
        needs: nothing,
        run: |_| {
            let crates = deps::run().map_err(Lack::Failed)?;
            let modules = modules::run().map_err(Lack::Failed)?;
            Ok(format!("{crates}; {modules}"))
        },
    },
    Step {
        name: "licences",
        what: "what we link has a licence that fits, and comes from one place",
        when: When::Always,
        is_beside: false,
        needs: nothing,
        run: |_| licences::run().map_err(Lack::Failed),
    },
    Step {
        name: "tests",
        what: "the tests of the workspace pass, fuzz targets over their seeds among them",
        when: When::Always,
        is_beside: false,
        needs: tools_of_tests,
        run: tests,
    },
    Step {
        name: "binary",
        what: "the optimised programs build",
        when: When::Long,
        is_beside: false,
        needs: nothing,
        run: |_| binary(),
    },
    Step {
        name: "lints",
        what: "clippy has nothing to say",
        when: When::Always,
        is_beside: false,
        needs: nothing,
        run: lints,
    },
    Step {
        name: "documentation",
        what: "the API's documentation builds without warnings",
        when: When::Always,
        is_beside: false,
        needs: nothing,
        run: documentation,
    },
    Step {
        name: "book",
        what: "the book builds (mdbook)",
        when: When::Always,
        is_beside: true,
        needs: nothing,
        run: |_| book(),
    },
    Step {
        name: "models",
        what: "loom finds no order of two threads that breaks a ring",
        when: When::Covers(&MODELLED),
        is_beside: false,
        needs: nothing,
        run: |_| models(),
    },
    Step {
        name: "features",
        what: "each crate builds without its features, and with each of them alone, without a lint",
        when: When::Long,
        is_beside: false,
        needs: nothing,
        run: |_| features::alone(),
    },
    Step {
        name: "fuzz",
        what: "every fuzz target takes its seeds and many mutations of them",
        when: When::Long,
        is_beside: false,
        needs: nothing,
        run: |_| fuzz(),
    },
    Step {
        name: "hostile",
        what: "damaged files, several days, signals at any moment, outages, lying servers and flooding clients break nothing",
        when: When::Long,
        is_beside: false,
        needs: nothing,
        run: |features| ran(hostile(features, HOSTILE_SECONDS, None), "nothing breaks"),
    },
    Step {
        name: "real-data",
        what: "real captures outside the repository give the figures that other programs counted",
        when: When::Long,
        is_beside: false,
        needs: has_real_data,
        run: |features| ran(real_data(features), "messages, trades and books are right"),
    },
    Step {
        name: "fix-suite",
        what: "QuickFIX's acceptance definitions, outside the repository, pass for FIX 4.2, 4.4 and 5.0 SP2",
        when: When::Long,
        is_beside: false,
        needs: has_fix_suite,
        run: |features| ran(fix_suite(features), "every definition passes"),
    },
    Step {
        name: "simulate",
        what: "the shipped code stays right in simulated markets, whatever fails",
        when: When::Long,
        is_beside: false,
        needs: nothing,
        run: |_| ran(simulate(&[]), "all seeds and regressions are well"),
    },
    Step {
        name: "fuzzers",
        what: "the fuzz targets compile for libFuzzer, without a lint",
        when: When::Long,
        is_beside: false,
        needs: nothing,
        run: |_| fuzzers(),
    },
    Step {
        name: "benches",
        what: "the benches compile, without a lint",
        when: When::Long,
        is_beside: false,
        needs: nothing,
        run: |_| benches(),
    },
    Step {
        name: "peers",
        what: "the benches' peers in C++ compile",
        when: When::Long,
        is_beside: true,
        needs: needs_of_peers,
        run: |_| peers(),
    },
    Step {
        name: "instructions",
        what: "instructions per message are what they were",
        when: When::Covers(&MEASURED),
        is_beside: false,
        needs: || tools::debian("valgrind", "valgrind"),
        run: |_| counted(),
    },
    Step {
        name: "deploy",
        what: "the services' units, the files for containers and the shipped configurations are sound",
        when: When::Long,
        is_beside: true,
        needs: deploy::needs,
        run: |_| deploy::run(),
    },
    Step {
        name: "tshark",
        what: "tshark shows the fields that `tapeworks dump` prints, and reads the multicast",
        when: When::Covers(&DATA),
        is_beside: true,
        needs: || tools::debian("tshark", "tshark"),
        run: |_| interop::tshark(),
    },
    Step {
        name: "python",
        what: "databento, DuckDB and Polars read what was written",
        when: When::Covers(&DATA),
        is_beside: true,
        needs: || tools::python().map(drop),
        run: |_| interop::python(),
    },
    Step {
        name: "query",
        what: "`tapeworks query` answers as DuckDB does, from a folder and from a store that speaks S3's protocol",
        when: When::Covers(&["query", "crates/market/store", "crates/run/batch", "interop/with_query.py"]),
        is_beside: false,
        needs: || tools::python().map(drop),
        run: |_| interop::query(),
    },
    Step {
        name: "cloud",
        what: "`tapeworks batch` makes the same bytes in stores of S3's protocol, of Google's and of Azure's, and goes on there after a kill",
        when: When::Covers(&[
            "crates/run/cloud",
            "crates/run/batch",
            "crates/run/cli",
            "interop/with_batch_cloud.py",
            "interop/with_batch_azurite.py",
            "interop/with_batch_google.py",
            "interop/any_store.py",
            "interop/azurite",
        ]),
        is_beside: true,
        needs: interop::needs_of_cloud,
        run: interop::cloud,
    },
    Step {
        name: "live",
        what: "the official clients get from the live server what the files hold",
        when: When::Covers(&LIVE),
        is_beside: true,
        needs: || tools::python().map(drop),
        run: interop::live,
    },
    Step {
        name: "python-package",
        what: "the wheel builds; its tests and types are well; pandas, Polars, pyarrow, DuckDB and nautilus_trader take its records; the notebook runs",
        when: When::Covers(&PACKAGE),
        is_beside: true,
        needs: interop::needs_of_python_package,
        run: interop::python_package,
    },
    Step {
        name: "page",
        what: "the plant's page works in Chromium",
        when: When::Covers(&[
            "crates/host/runtime",
            "crates/run/plant",
            "crates/run/outputs",
            "crates/run/service",
            "crates/run/cli",
            "web",
        ]),
        is_beside: true,
        needs: interop::needs_of_page,
        run: |_| interop::page(),
    },
    Step {
        name: "java",
        what: "the Java client reads the stream and live records, and resumes",
        when: When::Covers(&[
            "crates/host/runtime",
            "crates/run/plant",
            "crates/run/outputs",
            "crates/run/service",
            "crates/run/cli",
            "clients",
        ]),
        is_beside: true,
        needs: interop::needs_of_java_client,
        run: interop::java,
    },
    Step {
        name: "questdb",
        what: "the plant's records are rows of a real QuestDB, a feature that is not in the default build",
        when: When::Covers(&DATA),
        is_beside: true,
        needs: interop::needs_of_questdb,
        run: |_| interop::questdb(),
    },
    Step {
        name: "aeron",
        what: "readers of Aeron have the plant's records once each, a feature that is not in the default build",
        when: When::Covers(&DATA),
        is_beside: true,
        needs: interop::needs_of_aeron,
        run: |_| interop::aeron(),
    },
    Step {
        name: "kafka",
        what: "the plant's records are once each in a real Kafka, a feature that is not in the default build",
        when: When::Covers(&DATA),
        is_beside: true,
        needs: interop::needs_of_kafka,
        run: |_| interop::kafka(),
    },
    Step {
        name: "otel",
        what: "OpenTelemetry's Collector has the traces of plant and gateway, a feature that is not in the default build",
        when: When::Covers(&[
            "crates/host/runtime",
            "crates/orders/gateway",
            "crates/run/plant",
            "crates/run/outputs/src/https.rs",
            "crates/run/service",
            "crates/run/cli/src/commands",
            "deploy/otel",
        ]),
        is_beside: false,
        needs: interop::needs_of_otel,
        run: |_| interop::otel(),
    },
    Step {
        name: "quickfix-j",
        what: "QuickFIX/J as it comes trades through the gateway",
        when: When::Covers(&ORDERS),
        is_beside: false,
        needs: interop::needs_of_java,
        run: |_| interop::quickfix_j(),
    },
    Step {
        name: "quickfix-cpp",
        what: "QuickFIX C++ as it comes trades through the gateway",
        when: When::Covers(&ORDERS),
        is_beside: false,
        needs: interop::needs_of_quickfix_cpp,
        run: |_| interop::quickfix_cpp(),
    },
];

/// Prints the steps.
pub(crate) fn list() {
    for step in STEPS {
        let when = match step.when {
            When::Always => "",
            When::Long => " [long]",
            When::Covers(_) => " [long, where what it covers changed]",
        };
        println!("{:14} {}{when}", step.name, step.what);
    }
}

/// Runs the steps that are wanted.
pub(crate) fn test(wanted: &Wanted<'_>) -> Result<(), String> {
    let Wanted { names, long, all, since } = wanted;
    if let Some(unknown) = names.iter().find(|name| STEPS.iter().all(|step| step.name != **name)) {
        return Err(format!("`{unknown}` is no step; `cargo xtask test --list` lists them"));
    }
    let changed = if *long && !all { changes(*since)? } else { None };
    let features = if *long { Features::all()? } else { Features::default() };
    if let Some(left_out) = features.left_out() {
        println!("{left_out}");
    }
    println!("{}", free_space(free_gigabytes()));
    let mut ended = Vec::new();
    let is_wanted = |step: &Step| match step.when {
        _ if !names.is_empty() => names.contains(&step.name),
        When::Always => true,
        When::Long | When::Covers(_) => *long,
    };
    let is_unchanged = |step: &Step| match step.when {
        When::Covers(paths) => names.is_empty() && !touches(changed.as_deref(), paths),
        _ => false,
    };
    // A whole long run has two lanes: the steps marked `is_beside` run beside the rest, once their program is built.
    let has_lanes = *long && names.is_empty();
    let mut beside = None;
    for step in STEPS.iter().filter(|step| is_wanted(step)) {
        if has_lanes && step.is_beside && !is_unchanged(step) {
            continue;
        }
        println!("\n=== {}: {} ===", step.name, step.what);
        let (started, processor) = (Instant::now(), process::processor_time());
        let outcome = if is_unchanged(step) {
            Outcome::Unchanged
        } else {
            match (step.needs)().and_then(|()| (step.run)(&features)) {
                Ok(what) => Outcome::Passed(what),
                Err(Lack::Failed(why)) => Outcome::Failed(why),
                Err(Lack::Skipped(why)) => Outcome::Skipped(why),
            }
        };
        match &outcome {
            Outcome::Passed(what) => println!("{what}"),
            Outcome::Failed(why) => eprintln!("error: {why}"),
            Outcome::Skipped(why) => println!("SKIPPED: {why}"),
            Outcome::Unchanged => println!("not run: {UNCHANGED}"),
        }
        let processor_time = process::processor_time().zip(processor).map(|(now, then)| now - then);
        let time = started.elapsed();
        if process::is_ci() && !beside::is_one() {
            remove_test_programs();
            if !has_room(free_gigabytes())
                && let Some(running) = beside.take()
            {
                // They need what would be removed.
                ended.extend(Beside::join(running));
            }
            make_room();
        }
        ended.push(Ended {
            name: step.name,
            outcome,
            time,
            processor_time,
            free_gigabytes: free_gigabytes(),
        });
        if has_lanes && step.name == BEFORE_LANES {
            let of_beside =
                STEPS.iter().filter(|step| step.is_beside && is_wanted(step) && !is_unchanged(step));
            beside = Beside::start(of_beside.map(|step| step.name).collect())?;
        }
    }
    ended.extend(beside.map(Beside::join).into_iter().flatten());
    beside::leave(&ended)?;
    let left_out = STEPS.iter().filter(|step| step.when != When::Always).count();
    if names.is_empty() && !long {
        println!("\n{left_out} steps that take minutes were left out: `cargo xtask test --long` runs them");
    }
    summarise(&ended)
}

/// How much room the disk has where everything is built: a full one fails steps in many ways, few of which say so.
fn free_gigabytes() -> Option<f64> {
    let printed = process::program("df").args(["-P", "-m", "."]).output().ok()?;
    let megabytes: u32 = printed.lines().nth(1)?.split_whitespace().nth(3)?.parse().ok()?;
    Some(f64::from(megabytes) / 1_000.0)
}

fn free_space(gigabytes: Option<f64>) -> String {
    match gigabytes {
        Some(gigabytes) => format!("free on the disk: {gigabytes:.1} GB"),
        None => "free on the disk: unknown".into(),
    }
}

fn has_room(free: Option<f64>) -> bool {
    free.is_none_or(|free| free >= ROOM_GIGABYTES)
}

/// Removes what the steps so far have built, if the disk has less room than a step may take: building it again takes minutes, and a
/// full disk fails every step that is left.
fn make_room() {
    let free = free_gigabytes();
    println!("{}", free_space(free));
    if has_room(free) {
        return;
    }
    for built in ["debug/incremental", "debug", "quick", "release"] {
        // What is not there takes no room.
        if std::fs::remove_dir_all(process::target_folder().join(built)).is_ok() {
            let free = free_gigabytes();
            println!("the disk is nearly full: removed target/{built}; {}", free_space(free));
            if has_room(free) {
                return;
            }
        }
    }
}

/// Removes the programs of tests that have run: they are most of what a build fills the disk with, and the few that a later step
/// needs again are linked in seconds. A program that cargo has linked to its final place, such as ours, has two names and stays.
fn remove_test_programs() {
    use std::os::unix::fs::MetadataExt;
    for profile in ["debug", "release", "quick"] {
        let Ok(entries) = std::fs::read_dir(process::target_folder().join(profile).join("deps")) else {
            continue;
        };
        for entry in entries.flatten() {
            let is_program = entry.path().extension().is_none()
                && entry
                    .metadata()
                    .is_ok_and(|data| data.is_file() && data.mode() & 0o100 != 0 && data.nlink() == 1);
            if is_program {
                // One that stays only takes room.
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }
}

/// Why a step was left out.
const UNCHANGED: &str =
    "nothing that it covers changed since the last landed commit; --all runs it all the same";

/// The files that changed since the last landed commit; `None` where that commit is not known, and everything counts as changed.
fn changes(since: Option<&str>) -> Result<Option<Vec<String>>, String> {
    let git = |arguments: &[&str]| process::program("git").args(arguments).output();
    let base = match since {
        Some(commit) => git(&["rev-parse", "--verify", &format!("{commit}^{{commit}}")])?,
        None => {
            let (Ok(base), Ok(head)) =
                (git(&["merge-base", "HEAD", "origin/main"]), git(&["rev-parse", "HEAD"]))
            else {
                return Ok(None);
            };
            // On the branch itself the last landed commit is unknown.
            if base == head {
                return Ok(None);
            }
            base
        }
    };
    let tracked = git(&["diff", "--name-only", base.trim()])?;
    let others = git(&["ls-files", "--others", "--exclude-standard"])?;
    Ok(Some(tracked.lines().chain(others.lines()).map(str::to_owned).collect()))
}

/// Whether one of the changed files lies below one of the paths, or could change anything.
fn touches(changed: Option<&[String]>, paths: &[&str]) -> bool {
    let Some(changed) = changed else { return true };
    let of_all = [".cargo", ".ci", "Cargo.lock", "Cargo.toml", "interop", "xtask", "testdata"];
    let is_below = |file: &str, path: &str| {
        file.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    changed.iter().any(|file| paths.iter().chain(&of_all).any(|path| is_below(file, path)))
}

fn summarise(ended: &[Ended]) -> Result<(), String> {
    println!("\n=== summary ===");
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for Ended { name, outcome, time, processor_time, free_gigabytes } in ended {
        let (word, what, count) = match outcome {
            Outcome::Passed(what) => ("passed", what.as_str(), &mut passed),
            Outcome::Failed(what) => ("FAILED", what.as_str(), &mut failed),
            Outcome::Skipped(what) => ("skipped", what.as_str(), &mut skipped),
            Outcome::Unchanged => ("skipped", UNCHANGED, &mut skipped),
        };
        *count += 1;
        let what = what.lines().next().unwrap_or_default();
        let processor =
            processor_time.map_or_else(|| "?".into(), |time| format!("{:.0}", time.as_secs_f64()));
        let free = free_gigabytes.map_or_else(|| "?".into(), |free| format!("{free:.0}"));
        println!(
            "{word:8} {name:14} {:7.1} s, {processor:>5} s of processor, {free:>3} GB free  {what}",
            time.as_secs_f64()
        );
    }
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    if failed == 0 {
        return Ok(());
    }
    for Ended { name, outcome, .. } in ended {
        if let Outcome::Failed(why) = outcome {
            eprintln!("\n=== why {name} failed ===\n{why}");
        }
    }
    Err(format!("{failed} of {} steps failed", ended.len()))
}

fn ran(result: Result<(), String>, what: &str) -> Result<String, Lack> {
    result.map(|()| what.to_owned()).map_err(Lack::Failed)
}

fn format() -> Result<String, Lack> {
    let run = || {
        cargo(["fmt", "--all", "--", "--check"]).run()?;
        for manifest in [
            "fuzz/Cargo.toml",
            "bench/Cargo.toml",
            "bindings/python/Cargo.toml",
            "interop/live/Cargo.toml",
            "query/Cargo.toml",
        ] {
            if process::root().join(manifest).is_file() {
                cargo(["fmt", "--manifest-path", manifest, "--", "--check"]).run()?;
            }
        }
        Ok(())
    };
    ran(run(), "formatted")
}

/// A test that finds no tshark has nothing to compare with, one without `ip` no network of its own, and one without `nats-server` nobody
/// to publish to: they must be there where nothing may be skipped. `ip` does not know `--version`; `ss` comes with it.
fn tools_of_tests() -> Result<(), Lack> {
    for (program, package) in [("tshark", "tshark"), ("ss", "iproute2"), ("nats-server", "nats-server")] {
        match tools::debian(program, package) {
            Err(Lack::Failed(why)) => return Err(Lack::Failed(why)),
            Err(Lack::Skipped(why)) => println!("some tests are skipped: {why}"),
            Ok(()) => {}
        }
    }
    Ok(())
}

fn tests(features: &Features) -> Result<String, Lack> {
    let fewer = [(FUZZ_INPUTS_OF_TESTS, FUZZ_INPUTS_BEFORE)];
    test_programs::run(features, if process::is_ci() { &fewer } else { &[] }).map_err(Lack::Failed)
}

/// The models of the concurrent parts: another configuration, so a target folder of its own.
fn models() -> Result<String, Lack> {
    let run =
        cargo(["test", "--release", "--locked", "--package", "tapeworks-ring", "--lib", "--test", "loom"])
            .arg("--target-dir")
            .arg(process::target_folder().join("loom"))
            .env("RUSTFLAGS", "--cfg loom");
    let result = run.run();
    if process::is_ci() {
        // No later step builds for loom; what stays only takes room.
        let _ = std::fs::remove_dir_all(process::target_folder().join("loom"));
    }
    ran(result, "every model holds")
}

fn lints(features: &Features) -> Result<String, Lack> {
    let run = features.workspace("clippy").args(["--all-targets", "--", "--deny", "warnings"]);
    ran(run.run(), "no lints")
}

fn documentation(features: &Features) -> Result<String, Lack> {
    // What rustdoc reads of our crates is then what the step `lints` has checked.
    let run = features
        .workspace("doc")
        .args(["--no-deps", "--quiet", "--lib", "--bins"])
        .with_features_of_tests()
        .linted();
    ran(run.env("RUSTDOCFLAGS", "--deny warnings").run(), "the documentation builds")
}

fn book() -> Result<String, Lack> {
    if !process::root().join("docs/book.toml").is_file() {
        return Err(Lack::Skipped("there is no book yet: docs/book.toml is missing".into()));
    }
    let mdbook = tools::of_crate("mdbook", MDBOOK, &["search"])?;
    let output = process::target_folder().join("book");
    let _absent = std::fs::remove_dir_all(&output);
    let build = process::program(mdbook).args(["build", "docs", "--dest-dir"]).arg(&output);
    build.run().map_err(Lack::Failed)?;
    let files = std::fs::read_dir(&output).map_err(|error| Lack::Failed(error.to_string()))?;
    let is_index = |name: std::ffi::OsString| name.to_string_lossy().starts_with("searchindex");
    if files.flatten().any(|file| is_index(file.file_name())) {
        Ok("the book builds, with its search".into())
    } else {
        Err(Lack::Failed("the book has no search: mdbook was built without it".into()))
    }
}

fn binary() -> Result<String, Lack> {
    let binary = tools::release_binary()?;
    let size = std::fs::metadata(&binary).map_err(|error| Lack::Failed(error.to_string()))?.len();
    let shown = binary.strip_prefix(process::root()).unwrap_or(&binary).display();
    Ok(format!("{shown} has {:.1} MB", size as f64 / 1e6))
}

/// As part of `tests` does, with many more inputs and optimised.
fn fuzz() -> Result<String, Lack> {
    let run = tools::optimised("tapeworks-fuzz-targets", "mutate")
        .and_then(|mutate| process::program(mutate).arg(FUZZ_INPUTS).run());
    ran(run, "no target fails")
}

/// The program as a hostile world meets it, for so many seconds; the seed is printed.
pub(crate) fn hostile(features: &Features, seconds: u64, seed: Option<&str>) -> Result<(), String> {
    let each = (seconds * HOSTILE_AT_ONCE / HOSTILE_PARTS).max(1);
    // The whole workspace, as the tests build it: with the package's features alone most of it is built again.
    let run = features.workspace("test").args(["--test", "hostile", "--", "--nocapture"]);
    let run = run.arg(format!("--test-threads={HOSTILE_AT_ONCE}"));
    let run = run.env("TAPEWORKS_HOSTILE_SECONDS", each.to_string());
    match seed {
        Some(seed) => run.env("TAPEWORKS_SEED", seed),
        None => run,
    }
    .run()
}

/// Names the folder with real captures that the repository may not hold.
const REAL_DATA: &str = "TAPEWORKS_REAL_DATA";

/// Names the folder with QuickFIX's acceptance suite.
const FIX_SUITE: &str = "TAPEWORKS_FIX_SUITE";

/// Whether a variable names a folder. A step that needs it is skipped without one, in continuous integration too: nothing can
/// install it.
fn has_folder(variable: &str, content: &str) -> Result<(), Lack> {
    match std::env::var_os(variable).map(PathBuf::from) {
        Some(folder) if folder.is_dir() => Ok(()),
        Some(folder) => {
            Err(Lack::Failed(format!("{variable} names {}, which is no folder", folder.display())))
        }
        None => Err(Lack::Skipped(format!("{variable} does not name a folder with {content}"))),
    }
}

fn has_real_data() -> Result<(), Lack> {
    has_folder(REAL_DATA, "real captures")
}

fn has_fix_suite() -> Result<(), Lack> {
    has_folder(FIX_SUITE, "QuickFIX's definitions and spec")
}

/// The tests of real captures that the repository may not hold.
fn real_data(features: &Features) -> Result<(), String> {
    features.workspace("test").args(["--test", "real_data", "--", "--nocapture"]).run()
}

/// QuickFIX's acceptance definitions, against our acceptor.
fn fix_suite(features: &Features) -> Result<(), String> {
    // The test runs in its crate's folder, where a relative path would lead elsewhere.
    let folder = std::env::var_os(FIX_SUITE).unwrap_or_default();
    let folder = std::path::absolute(&folder).map_err(|error| format!("{FIX_SUITE}: {error}"))?;
    let run = features.workspace("test").args(["--test", "fix_suite", "--", "--nocapture"]);
    run.env(FIX_SUITE, folder).run()
}

/// The shipped code in simulated markets. Without arguments: some hundred seeds of each kind, and all regressions.
pub(crate) fn simulate(arguments: &[&str]) -> Result<(), String> {
    match arguments {
        [] => {
            simulate_with(&["--regressions", "crates/simulated/sim/regressions"])?;
            simulate_with(&["--orders"])
        }
        arguments => simulate_with(arguments),
    }
}

fn simulate_with(arguments: &[&str]) -> Result<(), String> {
    if arguments.iter().any(|argument| argument.starts_with("--bug")) {
        // Its own folder: neither build makes the other again.
        let folder = process::target_folder().join("planted");
        let run =
            ["run", "--release", "--locked", "--quiet", "--package", "tapeworks-sim", "--bin", "simulate"];
        let run = cargo(run).env("RUSTFLAGS", "--cfg tapeworks_bug").env("CARGO_TARGET_DIR", folder);
        return run.arg("--").args(arguments).run();
    }
    process::program(tools::optimised("tapeworks-sim", "simulate")?).args(arguments).run()
}

fn fuzzers() -> Result<String, Lack> {
    let target = process::target_folder();
    let mut run = cargo(["clippy", "--locked", "--manifest-path", "fuzz/Cargo.toml", "--target-dir"]);
    run = run.arg(&target).args(["--", "--deny", "warnings"]);
    // Nothing is linked, so libFuzzer itself, which takes longer to compile than our targets, need not be there.
    run =
        run.env("CUSTOM_LIBFUZZER_PATH", target.join("libfuzzer.a")).env("CUSTOM_LIBFUZZER_STD_CXX", "none");
    ran(run.run(), "the fuzz targets compile, and clippy has nothing to say")
}

fn benches() -> Result<String, Lack> {
    if !process::root().join("bench/Cargo.toml").is_file() {
        return Err(Lack::Skipped("there are no benches here".into()));
    }
    let target = process::target_folder();
    let mut run =
        cargo(["clippy", "--locked", "--all-targets", "--manifest-path", "bench/Cargo.toml", "--target-dir"]);
    run = run.arg(target).args(["--", "--deny", "warnings"]);
    ran(run.run(), "the benches compile, and clippy has nothing to say")
}

fn needs_of_peers() -> Result<(), Lack> {
    tools::debian("g++", "g++")?;
    tools::debian_library("quickfix", "libquickfix-dev")?;
    tools::debian_header("boost/lockfree/spsc_queue.hpp", "libboost-dev")?;
    tools::debian_header("readerwriterqueue/readerwriterqueue.h", "libreaderwriterqueue-dev")
}

/// As the benches build them, without the programs. QuickFIX' headers need C++14, and warn.
fn peers() -> Result<String, Lack> {
    for (name, flags) in
        [("spsc", &["-std=c++17", "-Wall", "-Wextra", "-Werror"][..]), ("fix", &["-std=c++14", "-w"])]
    {
        let source = process::root().join("bench/peers/cpp").join(name).with_extension("cpp");
        let compile = process::program("g++").args(flags).arg("-fsyntax-only").arg(source);
        compile.run().map_err(Lack::Failed)?;
    }
    Ok("the peers in C++ compile".into())
}

fn counted() -> Result<String, Lack> {
    instructions::run(false).map_err(Lack::Failed)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    #[test]
    fn a_step_runs_if_a_file_it_covers_changed_or_the_change_is_unknown() {
        let changed = |files: &[&str]| Some(files.iter().map(|file| (*file).to_owned()).collect::<Vec<_>>());
        let covers = ["crates/run/plant", "web"];
        for (files, expected) in [
            (changed(&["crates/run/plant/src/lib.rs"]), true),
            (changed(&["docs/src/page.md", "crates/planter/src/lib.rs"]), false),
            (changed(&["web/page.js"]), true),
            (changed(&["interop/page/test.mjs"]), true),
            (changed(&["Cargo.lock"]), true),
            (changed(&[".cargo/config.toml"]), true),
            (changed(&[]), false),
            (None, true),
        ] {
            assert_eq!(touches(files.as_deref(), &covers), expected, "{files:?}");
        }
    }

    /// A step that compiles a package covers all of ours that are compiled for it, else a change of one of them could break it unseen.
    #[test]
    fn a_step_covers_all_that_its_package_uses() {
        let metadata = process::metadata(&["--no-deps"]).unwrap();
        let packages = metadata["packages"].as_array().unwrap();
        let folder_of = |package: &serde_json::Value| {
            let manifest = Path::new(package["manifest_path"].as_str().unwrap());
            manifest.parent().unwrap().strip_prefix(process::root()).unwrap().to_str().unwrap().to_owned()
        };
        for (name, covered) in [("tapeworks-measured", &MEASURED[..]), ("tapeworks-ring", &MODELLED)] {
            let mut waiting = vec![name.to_owned()];
            let mut seen = BTreeSet::new();
            while let Some(name) = waiting.pop() {
                let package = packages.iter().find(|package| package["name"] == *name).unwrap();
                let folder = folder_of(package);
                assert!(touches(Some(&[format!("{folder}/src/lib.rs")]), covered), "{name} in {folder}");
                let used = package["dependencies"].as_array().unwrap().iter();
                let of_ours = used.filter(|used| used["path"].is_string() && used["kind"] != "dev");
                let names = of_ours.map(|used| used["name"].as_str().unwrap().to_owned());
                waiting.extend(names.filter(|name| seen.insert(name.clone())));
            }
        }
    }

    #[test]
    fn every_step_has_a_name_of_its_own() {
        for (at, step) in STEPS.iter().enumerate() {
            assert!(STEPS.iter().skip(at + 1).all(|other| other.name != step.name), "{}", step.name);
        }
    }
}
