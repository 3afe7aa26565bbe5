//! Instructions per message, stage by stage, under callgrind: the gate that noise cannot move.
//!
//! `xtask/measured` is built for one fixed processor, run under callgrind, and counted only inside its function
//! `counted`. The figures that the repository keeps in [`KEPT`] are compared with a tolerance of [`TOLERANCE`]: a
//! different compiler moves them, a change of the hot path moves them more. Better figures must be kept as well, so
//! that the next change is compared with them.
//!
//! Cost: about two minutes, most of it the build.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::process;

/// The stages of `xtask/measured`. Those of market data include the one before.
const STAGES: [&str; 13] = [
    "decode",
    "events",
    "packets",
    "live",
    "book",
    "nbbo",
    "fix-order",
    "fix-report",
    "fix-write-order",
    "fix-write-report",
    "translate-order",
    "translate-report",
    "order",
];

/// Where the figures are kept.
const KEPT: &str = "xtask/instructions.toml";

/// How far a figure may be from the kept one, relative to it.
const TOLERANCE: f64 = 0.03;

/// The processor that the measured program is built for: the most that valgrind 3.19 can run.
const PROCESSOR: &str = "-Ctarget-cpu=x86-64-v3";

/// The name of the counted function for callgrind.
const COUNTED: &str = "tapeworks_measured::counted";

/// Measures, and compares or keeps.
pub(crate) fn run(bless: bool) -> Result<String, String> {
    if !process::is_installed("valgrind") {
        return Err("valgrind is not installed (Debian: valgrind)".into());
    }
    let path = process::root().join(KEPT);
    let program = build()?;
    let mut measured = BTreeMap::new();
    for stage in STAGES {
        measured.insert(stage.to_owned(), measure(&program, stage)?);
    }
    if bless {
        std::fs::write(&path, written(&measured)).map_err(|error| format!("{KEPT}: {error}"))?;
        return Ok(format!("{}\nkept in {KEPT}", table(&measured, &BTreeMap::new())));
    }
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{KEPT}: {error}"))?;
    let kept = parse(&text)?;
    println!("{}", table(&measured, &kept));
    compare(&measured, &kept)?;
    Ok(format!("instructions per message of {} stages are within {} %", STAGES.len(), TOLERANCE * 100.0))
}

fn build() -> Result<PathBuf, String> {
    // Other flags than the rest is built with: a folder of its own, so that neither is built anew for the other.
    let target = process::target_folder().join("instructions");
    process::cargo(["build", "--profile", "dist", "--package", "tapeworks-measured", "--target-dir"])
        .arg(&target)
        // Callgrind finds the counted function by its name.
        .env("CARGO_PROFILE_DIST_STRIP", "false")
        .env("RUSTFLAGS", PROCESSOR)
        .run()?;
    Ok(target.join("dist/tapeworks-measured"))
}

/// Instructions per message of one stage.
fn measure(program: &Path, stage: &str) -> Result<f64, String> {
    let profile = program.with_file_name(format!("callgrind.{stage}"));
    let printed = process::program("valgrind")
        .args(["--tool=callgrind", "--quiet", "--collect-atstart=no"])
        .arg(format!("--toggle-collect={COUNTED}*"))
        .arg(format!("--callgrind-out-file={}", profile.display()))
        .arg(program)
        .arg(stage)
        .output()?;
    let messages: u64 = printed
        .trim()
        .parse()
        .map_err(|_| format!("{stage}: `{}` is no number of messages", printed.trim()))?;
    let profile =
        std::fs::read_to_string(&profile).map_err(|error| format!("{}: {error}", profile.display()))?;
    let instructions = totals(&profile).filter(|total| *total > 0);
    let instructions =
        instructions.ok_or_else(|| format!("{stage}: callgrind counted nothing in {COUNTED}"))?;
    Ok(instructions as f64 / messages.max(1) as f64)
}

/// The instructions of a callgrind profile.
fn totals(profile: &str) -> Option<u64> {
    profile.lines().find_map(|line| line.strip_prefix("totals: "))?.trim().parse().ok()
}

/// `name = number` a line; lines that begin with `#` are comments.
fn parse(text: &str) -> Result<BTreeMap<String, f64>, String> {
    text.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| {
            let pair = line.split_once('=').and_then(|(name, number)| {
                Some((
                    name.trim().to_owned(),
                    number.trim().parse::<f64>().ok().filter(|number| *number > 0.0)?,
                ))
            });
            pair.ok_or_else(|| format!("{KEPT}: `{line}` is not `stage = instructions`"))
        })
        .collect()
}

fn written(measured: &BTreeMap<String, f64>) -> String {
    let mut text = String::from(
        "# Instructions per message, counted by `cargo xtask instructions --bless`; events, book and nbbo include the stages before them.\n",
    );
    for stage in STAGES {
        if let Some(instructions) = measured.get(stage) {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{stage} = {instructions:.1}");
        }
    }
    text
}

fn table(measured: &BTreeMap<String, f64>, kept: &BTreeMap<String, f64>) -> String {
    let mut text = format!("{:16} {:>12} {:>8} {:>8}", "stage", "instructions", "kept", "change");
    for stage in STAGES {
        let Some(now) = measured.get(stage) else { continue };
        let _ = write!(text, "\n{stage:16} {now:12.1}");
        if let Some(before) = kept.get(stage) {
            let _ = write!(text, " {before:8.1} {:+7.1}%", (now / before - 1.0) * 100.0);
        }
    }
    text
}

/// Holds what was measured against what is kept.
fn compare(measured: &BTreeMap<String, f64>, kept: &BTreeMap<String, f64>) -> Result<(), String> {
    let mut off = Vec::new();
    for (stage, now) in measured {
        let Some(before) = kept.get(stage) else {
            off.push(format!("{stage} has no figure"));
            continue;
        };
        let change = now / before - 1.0;
        if change > TOLERANCE {
            off.push(format!("{stage} needs {:.1} % more instructions a message", change * 100.0));
        } else if change < -TOLERANCE {
            off.push(format!(
                "{stage} needs {:.1} % fewer instructions a message: well done",
                -change * 100.0
            ));
        }
    }
    if off.is_empty() {
        return Ok(());
    }
    Err(format!(
        "{}; if that is meant, `cargo xtask instructions --bless` keeps the new figures",
        off.join("; ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(pairs: &[(&str, f64)]) -> BTreeMap<String, f64> {
        pairs.iter().map(|(name, number)| ((*name).to_owned(), *number)).collect()
    }

    #[test]
    fn kept_counts_are_read_back_as_measured() {
        let measured = figures(&[("decode", 12.5), ("book", 300.0)]);
        assert_eq!(parse(&written(&measured)), Ok(measured));
        assert!(parse("decode = many").is_err());
        assert!(parse("decode = 0").is_err());
    }

    #[test]
    fn a_figure_beyond_the_tolerance_fails_either_way_and_one_within_passes() {
        let kept = figures(&[("book", 100.0)]);
        assert_eq!(compare(&figures(&[("book", 102.9)]), &kept), Ok(()));
        assert!(compare(&figures(&[("book", 103.1)]), &kept).is_err_and(|why| why.contains("3.1 % more")));
        assert!(compare(&figures(&[("book", 96.0)]), &kept).is_err_and(|why| why.contains("4.0 % fewer")));
        assert!(compare(&figures(&[("nbbo", 1.0)]), &kept).is_err_and(|why| why.contains("no figure")));
    }

    #[test]
    fn the_total_of_a_profile_is_read() {
        assert_eq!(totals("events: Ir\nfn=(1) x\n1 5\ntotals: 1234\n"), Some(1234));
        assert_eq!(totals("events: Ir\n"), None);
    }
}
