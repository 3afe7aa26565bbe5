//! The tasks of the workspace: `cargo xtask --help` lists them.
//!
//! | module | task |
//! | --- | --- |
//! | [`steps`] | `test`: everything that must hold before a change lands, step by step, with a summary |
//! | [`test_programs`] | its step `tests`: as many programs with tests at once as there are cores |
//! | [`beside`] | its steps that wait, beside those that compute |
//! | [`deps`] | `deps`: which crate may use which |
//! | [`modules`] | `deps` too: no circle between the modules of a crate |
//! | [`tidy`] | `tidy`: house rules that text alone can break |
//! | [`instructions`] | `instructions`: instructions per message under callgrind, compared with the ones kept |
//! | [`interop`] | other people's programs over our files |
//! | [`release`] | `release`: what a release publishes, built and checked |
//! | [`tools`] | what must be installed for all that, and how |

mod beside;
mod deploy;
mod deps;
mod ended;
mod features;
mod instructions;
mod interop;
mod licences;
mod map;
mod modules;
mod process;
mod release;
mod states;
mod steps;
mod test_programs;
mod tidy;
mod tools;

use std::process::ExitCode;

const HELP: &str = "\
The tasks of the workspace.

Usage: cargo xtask <TASK> [ARGUMENTS]

Tasks:
  test [STEP]...           Run what must hold, or only the named steps. `test --list` lists the steps. With CI=true what
                           is missing is installed, or the run fails; otherwise a step that lacks a tool is skipped
                           before anything is built for it, and says so.
      --long               The steps that take minutes too. Those that look at a part of the sources, as other people's
                           programs do, run where it changed since the last landed commit.
      --since COMMIT       That commit; where the branch leaves origin/main unless given.
      --all                All of them, whatever changed.
  hostile [SECONDS] [SEED] The program under hostile conditions, for ten minutes unless given: damaged captures,
                           journals and configurations, signals at any moment, two of everything, outages.
  simulate [ARGUMENTS]     The shipped code in simulated markets, with faults by seed (release build): 300 seeds of each
                           kind and all regressions unless given; `simulate -h` lists the arguments. `--bugs`, in a build of its own:
                           which seed finds which deliberate bug.
  deps                     Check which crate uses which against the rule of the house, and that no circle joins
                           the modules of a crate.
  tidy                     Check the house rules that text alone can break.
  bench [ARGUMENTS]        Run the benches (release build).
  golden [--bless]         Compare golden outputs, pictures and the generated reference; with --bless rewrite them.
  instructions [--bless]   Count instructions per message under callgrind and compare with xtask/instructions.toml;
                           with --bless write them there.
  release [PART]... [--verify]
                           Build and check what a release publishes, from the last commit: `crates`, `program` (an archive with a
                           bill of materials), `wheel`, `jar`, or all. Nothing leaves the machine. With --verify the program is built
                           again from a checkout in another folder, and must have the same bytes.
  help                     Print this.

Examples:
  cargo xtask test
  cargo xtask test --long
  cargo xtask test tests tidy
  cargo xtask instructions --bless
";

/// How a task ended, for the exit code: `Err` has been printed already or holds what to print.
type Ended = Result<(), String>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let ended = match words.as_slice() {
        // It has arguments of its own, `-h` among them.
        ["simulate", rest @ ..] => steps::simulate(rest),
        [] | ["help" | "--help" | "-h", ..] | [_, "--help" | "-h", ..] => {
            print!("{HELP}");
            Ok(())
        }
        ["test", "--list"] => {
            steps::list();
            Ok(())
        }
        ["test", rest @ ..] => wanted(rest).and_then(|wanted| steps::test(&wanted)),
        ["hostile", rest @ ..] => hostile(rest),
        ["deps"] => deps::run().map(print).and_then(|()| modules::run().map(print)),
        ["tidy"] => tidy::run().map(print),
        ["bench", rest @ ..] => bench(rest),
        ["release", rest @ ..] => release::run(rest),
        ["golden"] => golden(false),
        ["golden", "--bless"] => golden(true),
        ["instructions"] => instructions::run(false).map(print),
        ["instructions", "--bless"] => instructions::run(true).map(print),
        [task, ..] => {
            Err(format!("`{}` is no task; `cargo xtask --help` lists them", words_of(task, &words)))
        }
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
    }
}

/// The flags and steps behind `test`.
fn wanted<'a>(arguments: &[&'a str]) -> Result<steps::Wanted<'a>, String> {
    let mut wanted = steps::Wanted::default();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match *argument {
            "--long" => wanted.long = true,
            "--all" => (wanted.long, wanted.all) = (true, true),
            "--since" => wanted.since = Some(rest.next().ok_or("--since takes a commit")?),
            flag if flag.starts_with('-') => {
                return Err(format!("`{flag}` is no flag of test; `cargo xtask --help` lists them"));
            }
            name => wanted.names.push(name),
        }
    }
    Ok(wanted)
}

fn words_of(task: &str, words: &[&str]) -> String {
    if matches!(task, "deps" | "tidy" | "golden" | "instructions") {
        words.join(" ")
    } else {
        task.to_owned()
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it ends a chain of results")]
fn print(what: String) {
    println!("{what}");
}

fn hostile(arguments: &[&str]) -> Ended {
    let (seconds, seed) = match arguments {
        [] => ("600", None),
        [seconds] => (*seconds, None),
        [seconds, seed] => (*seconds, Some(*seed)),
        _ => return Err("hostile takes seconds and a seed".into()),
    };
    let seconds = seconds.parse().map_err(|_| format!("`{seconds}` is no number of seconds"))?;
    steps::hostile(&features::Features::default(), seconds, seed)
}

fn bench(arguments: &[&str]) -> Ended {
    let manifest = process::root().join("bench/Cargo.toml");
    if !manifest.is_file() {
        return Err("there are no benches here: bench/Cargo.toml is missing".into());
    }
    process::cargo(["run", "--release", "--manifest-path"]).arg(manifest).arg("--").args(arguments).run()
}

/// Golden outputs of the command line, pictures, and the pages of mapping tables and of declarations. Tests compare them, and rewrite
/// them when `TAPEWORKS_BLESS` is set.
fn golden(bless: bool) -> Ended {
    for (package, test) in [
        ("tapeworks", &["--features", "lab", "--test", "golden", "--test", "pictures"][..]),
        ("tapeworks", &["--features", "lab", "--bin", "tapeworks", "reference::"]),
        ("tapeworks-translate", &["--test", "mapping"]),
        ("tapeworks-wire-macros", &["--lib"]),
    ] {
        let mut tests = process::cargo(["test", "--package", package]).args(test);
        if bless {
            tests = tests.env("TAPEWORKS_BLESS", "1");
        }
        tests.run()?;
    }
    map::run(bless)
}
