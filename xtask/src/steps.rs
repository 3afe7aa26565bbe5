//! `cargo xtask test`: everything that must hold before a change lands, step by step.
//!
//! Every step runs, whatever became of the ones before, so that one run tells all; the summary at the end has a line
//! for each with its time. What is cheap to check comes first.

use std::time::{Duration, Instant};

use crate::process::{self, cargo};
use crate::tools::{self, Lack};
use crate::{deploy, deps, instructions, interop, licences, tidy};

/// One step.
struct Step {
    name: &'static str,
    /// What must hold.
    what: &'static str,
    run: fn() -> Result<String, Lack>,
}

/// How a step ended, and what it says.
enum Outcome {
    Passed(String),
    Failed(String),
    Skipped(String),
}

/// The version of mdbook that is installed where none is.
const MDBOOK: &str = "0.5.4";

/// Mutated inputs of each target in the step `fuzz`: some seconds each.
const FUZZ_INPUTS: &str = "100000";

/// The feature that needs more than the toolchain to build.
const AF_XDP: &str = "af-xdp";

const STEPS: &[Step] = &[
    Step { name: "format", what: "the sources are formatted", run: format },
    Step {
        name: "tidy",
        what: "the house rules of text are kept",
        run: || tidy::run().map_err(Lack::Failed),
    },
    Step {
        name: "deps",
        what: "each crate uses only what it may",
        run: || deps::run().map_err(Lack::Failed),
    },
    Step {
        name: "licences",
        what: "what we link has a licence that fits, and comes from one place",
        run: || licences::run().map_err(Lack::Failed),
    },
    Step {
        name: "tests",
        what: "the tests of the workspace pass, fuzz targets over their seeds among them",
        run: tests,
    },
    Step { name: "models", what: "loom finds no order of two threads that breaks a ring", run: models },
    Step { name: "lints", what: "clippy has nothing to say", run: lints },
    Step {
        name: "features",
        what: "each crate builds with each of its features alone; the tests of TLS",
        run: features,
    },
    Step {
        name: "af-xdp",
        what: "frames come by AF_XDP, a feature that is not in the default build",
        run: af_xdp,
    },
    Step {
        name: "questdb",
        what: "the plant's records are rows of a real QuestDB, a feature that is not in the default build",
        run: questdb,
    },
    Step {
        name: "documentation",
        what: "the API's documentation builds without warnings",
        run: documentation,
    },
    Step { name: "book", what: "the book builds (mdbook)", run: book },
    Step { name: "binary", what: "the release binary builds", run: binary },
    Step { name: "fuzz", what: "every fuzz target takes its seeds and many mutations of them", run: fuzz },
    Step {
        name: "tshark",
        what: "tshark shows the fields that `tapeworks dump` tells, and reads the multicast",
        run: interop::tshark,
    },
    Step { name: "python", what: "databento, DuckDB and Polars read what was written", run: interop::python },
    Step { name: "page", what: "the plant's page works in Chromium", run: interop::page },
    Step {
        name: "live",
        what: "the official clients get from the live server what the files hold",
        run: interop::live,
    },
    Step { name: "java", what: "the Java client reads the stream in both encodings", run: interop::java },
    Step {
        name: "deploy",
        what: "the service's unit, the container's file and the shipped configurations are sound",
        run: deploy::run,
    },
    Step { name: "fuzzers", what: "the fuzz targets compile for libFuzzer, without a lint", run: fuzzers },
    Step { name: "benches", what: "the benches compile, without a lint", run: benches },
    Step { name: "instructions", what: "instructions per message are what they were", run: counted },
];

/// Prints the steps.
pub(crate) fn list() {
    for step in STEPS {
        println!("{:14} {}", step.name, step.what);
    }
}

/// Runs the named steps, or all.
pub(crate) fn test(names: &[&str]) -> Result<(), String> {
    if let Some(unknown) = names.iter().find(|name| STEPS.iter().all(|step| step.name != **name)) {
        return Err(format!("`{unknown}` is no step; `cargo xtask test --list` tells them"));
    }
    let mut ended = Vec::new();
    for step in STEPS.iter().filter(|step| names.is_empty() || names.contains(&step.name)) {
        println!("\n=== {}: {} ===", step.name, step.what);
        let started = Instant::now();
        let outcome = match (step.run)() {
            Ok(what) => Outcome::Passed(what),
            Err(Lack::Failed(why)) => Outcome::Failed(why),
            Err(Lack::Skipped(why)) => Outcome::Skipped(why),
        };
        match &outcome {
            Outcome::Passed(what) => println!("{what}"),
            Outcome::Failed(why) => eprintln!("error: {why}"),
            Outcome::Skipped(why) => println!("SKIPPED: {why}"),
        }
        ended.push((step.name, outcome, started.elapsed()));
    }
    summarise(&ended)
}

fn summarise(ended: &[(&str, Outcome, Duration)]) -> Result<(), String> {
    println!("\n=== summary ===");
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for (name, outcome, time) in ended {
        let (word, what, count) = match outcome {
            Outcome::Passed(what) => ("passed", what, &mut passed),
            Outcome::Failed(what) => ("FAILED", what, &mut failed),
            Outcome::Skipped(what) => ("skipped", what, &mut skipped),
        };
        *count += 1;
        let what = what.lines().next().unwrap_or_default();
        println!("{word:8} {name:14} {:7.1} s  {what}", time.as_secs_f64());
    }
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    if failed > 0 { Err(format!("{failed} of {} steps failed", ended.len())) } else { Ok(()) }
}

fn ran(result: Result<(), String>, what: &str) -> Result<String, Lack> {
    result.map(|()| what.to_owned()).map_err(Lack::Failed)
}

fn format() -> Result<String, Lack> {
    let run = || {
        cargo(["fmt", "--all", "--", "--check"]).run()?;
        for manifest in ["fuzz/Cargo.toml", "bench/Cargo.toml", "interop/live/Cargo.toml"] {
            if process::root().join(manifest).is_file() {
                cargo(["fmt", "--manifest-path", manifest, "--", "--check"]).run()?;
            }
        }
        Ok(())
    };
    ran(run(), "formatted")
}

fn tests() -> Result<String, Lack> {
    // A test that finds no tshark has nothing to compare with, and one without `ip` no network of its own: they must be
    // there where nothing may be skipped. `ip` does not know `--version`; `ss` comes with it.
    for (program, package) in [("tshark", "tshark"), ("ss", "iproute2")] {
        if let Err(Lack::Failed(why)) = tools::debian(program, package) {
            return Err(Lack::Failed(why));
        }
    }
    ran(cargo(["test", "--workspace", "--no-fail-fast", "--locked"]).run(), "all tests pass")
}

/// The models of the concurrent parts: another configuration, so a target folder of its own.
fn models() -> Result<String, Lack> {
    let run =
        cargo(["test", "--release", "--locked", "--package", "tapeworks-ring", "--lib", "--test", "loom"])
            .arg("--target-dir")
            .arg(process::target_folder().join("loom"))
            .env("RUSTFLAGS", "--cfg loom");
    ran(run.run(), "every model holds")
}

fn lints() -> Result<String, Lack> {
    let run = cargo(["clippy", "--workspace", "--all-targets", "--locked", "--", "--deny", "warnings"]).run();
    ran(run, "no lints")
}

/// The feature that lets frames past the kernel's stack: what is only there with it.
fn af_xdp() -> Result<String, Lack> {
    tools::af_xdp()?;
    let run = || {
        let build =
            ["--locked", "--package", "tapeworks-packet", "--package", "tapeworks", "--features", AF_XDP];
        cargo(["clippy", "--all-targets", "--package", "tapeworks-plant"])
            .args(build)
            .args(["--", "--deny", "warnings"])
            .run()?;
        cargo(["test"]).args(build).args(["xdp"]).run()
    };
    ran(run(), "frames come by AF_XDP")
}

/// The feature that writes into QuestDB: its lints, its tests, and the server itself.
fn questdb() -> Result<String, Lack> {
    let run = || {
        let build =
            ["--locked", "--package", "tapeworks-plant", "--package", "tapeworks", "--features", "questdb"];
        cargo(["clippy", "--all-targets"]).args(build).args(["--", "--deny", "warnings"]).run()?;
        let test = ["test", "--locked", "--package", "tapeworks-plant", "--features", "questdb"];
        cargo(test).args(["--lib", "questdb"]).run()?;
        cargo(test).args(["--test", "questdb"]).run()
    };
    run().map_err(Lack::Failed)?;
    interop::questdb()
}

/// Each feature of each crate of ours alone, and none, and the tests that need a feature of no other step: those of TLS. `af-xdp`
/// is left out where it cannot be built.
fn features() -> Result<String, Lack> {
    let lacks = match tools::af_xdp() {
        Ok(()) => None,
        Err(Lack::Skipped(lacks)) => Some(lacks),
        Err(failed) => return Err(failed),
    };
    let run = || {
        let metadata = process::metadata(&["--no-deps"])?;
        let mut combinations = 0;
        for package in metadata["packages"].as_array().into_iter().flatten() {
            let (Some(name), Some(features)) = (package["name"].as_str(), package["features"].as_object())
            else {
                continue;
            };
            if features.is_empty() {
                continue;
            }
            let check = ["check", "--locked", "--package", name, "--no-default-features"];
            cargo(check).run()?;
            combinations += 1;
            let is_left_out = |feature: &str| feature == "default" || feature == AF_XDP && lacks.is_some();
            for feature in features.keys().filter(|feature| !is_left_out(feature)) {
                cargo(check).args(["--features", feature]).run()?;
                combinations += 1;
            }
        }
        let tls = [
            "test",
            "--locked",
            "--package",
            "tapeworks-plant",
            "--features",
            "tls",
            "--test",
            "clients",
            "tls::",
        ];
        cargo(tls).run()?;
        Ok(combinations)
    };
    let combinations = run().map_err(Lack::Failed)?;
    let but = lacks.map_or_else(String::new, |lacks| format!(", {AF_XDP} left out: {lacks}"));
    Ok(format!("{combinations} combinations of features build{but}; TLS is tested"))
}

fn documentation() -> Result<String, Lack> {
    let run = cargo(["doc", "--workspace", "--no-deps", "--locked", "--quiet"])
        .env("RUSTDOCFLAGS", "--deny warnings");
    ran(run.run(), "the documentation builds")
}

fn book() -> Result<String, Lack> {
    if !process::root().join("docs/book.toml").is_file() {
        return Err(Lack::Skipped("there is no book yet: docs/book.toml is missing".into()));
    }
    let mdbook = tools::of_crate("mdbook", MDBOOK)?;
    let output = process::target_folder().join("book");
    ran(process::program(mdbook).args(["build", "docs", "--dest-dir"]).arg(output).run(), "the book builds")
}

fn binary() -> Result<String, Lack> {
    let binary = tools::release_binary()?;
    let size = std::fs::metadata(&binary).map_err(|error| Lack::Failed(error.to_string()))?.len();
    Ok(format!("target/release/tapeworks has {:.1} MB", size as f64 / 1e6))
}

/// As part of `tests` does, with many more inputs and optimised.
fn fuzz() -> Result<String, Lack> {
    let run = cargo(["test", "--release", "--locked", "--package", "tapeworks-fuzz-targets"]);
    ran(run.env("TAPEWORKS_FUZZ_INPUTS", FUZZ_INPUTS).run(), "no target fails")
}

fn fuzzers() -> Result<String, Lack> {
    let target = process::target_folder();
    let mut run = cargo(["clippy", "--locked", "--manifest-path", "fuzz/Cargo.toml", "--target-dir"]);
    run = run.arg(target).args(["--", "--deny", "warnings"]);
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

fn counted() -> Result<String, Lack> {
    tools::debian("valgrind", "valgrind")?;
    instructions::run(false).map_err(Lack::Failed)
}
