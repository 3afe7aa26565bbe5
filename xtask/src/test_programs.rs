//! The tests of the workspace: built by cargo, then their programs are run, as many at once as there are cores.
//!
//! `cargo test` runs one program after the other. Most of ours are one long test each, or wait for a process, a socket or a timer, so
//! one program alone leaves cores idle. What a program prints is shown when it has ended: a line if its tests pass, all if not.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use crate::features::Features;
use crate::process;

/// The programs that take longest: they begin first, so that none runs alone at the end.
const FIRST: &[&str] = &[
    "tapeworks-analysis replay",
    "tapeworks-wire wireshark",
    "tapeworks-wire-macros rejected",
    "tapeworks-feed generated",
    "tapeworks-fuzz-targets smoke",
    "tapeworks-sim simulated",
    "tapeworks-gateway crash",
    "tapeworks batch",
    "tapeworks readme",
    "tapeworks book",
    "tapeworks-sim journal_crash",
    "tapeworks-feed exhaustive",
    "tapeworks-sim tapeworks_sim",
];

/// How often the programs that still run are named.
const STILL: Duration = Duration::from_secs(60);

/// How long one may take in continuous integration; they take three minutes at most.
const LONGEST: Duration = Duration::from_secs(15 * 60);

/// A program with tests.
struct TestProgram {
    /// The package and the target.
    name: String,
    command: Command,
}

/// How one ended.
struct Ended {
    name: String,
    /// What it printed, if its tests failed or it did not run.
    failure: Option<String>,
    /// Its tests.
    tests: u32,
    time: Duration,
}

/// Builds the tests of the workspace and runs them, the examples in the documentation too, with these variables.
pub(crate) fn run(features: &Features, variables: &[(&str, &str)]) -> Result<String, String> {
    let build = features.workspace("test").args(["--no-run", "--message-format", "json-render-diagnostics"]);
    let built = build.run_for_output()?;
    let mut programs = test_programs(&built);
    if programs.is_empty() {
        return Err("cargo has built no program with tests".into());
    }
    programs
        .sort_by_key(|program| FIRST.iter().position(|first| *first == program.name).unwrap_or(FIRST.len()));
    let documentation = features.workspace("test").args(["--doc", "--no-fail-fast"]).into_command();
    let name = "examples in the documentation".into();
    programs.insert(0, TestProgram { name, command: documentation });
    for program in &mut programs {
        program.command.envs(variables.iter().copied());
    }
    let (count, cores) = (programs.len(), std::thread::available_parallelism().map_or(1, usize::from));
    println!("running {count} programs with tests, {cores} at once");
    let ended = run_all(programs, cores);
    let tests: u32 = ended.iter().map(|ended| ended.tests).sum();
    let failed: Vec<&Ended> = ended.iter().filter(|ended| ended.failure.is_some()).collect();
    if failed.is_empty() {
        return Ok(format!("all {tests} tests of {count} programs pass"));
    }
    let why = failed.iter().map(|ended| {
        let last = process::last_lines(ended.failure.as_deref().unwrap_or_default());
        format!("{}:\n{last}", ended.name)
    });
    Err(format!("{} of {count} programs failed\n{}", failed.len(), why.collect::<Vec<_>>().join("\n\n")))
}

/// The programs with tests among what cargo says that it has built.
fn test_programs(built: &str) -> Vec<TestProgram> {
    let messages = built.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let of = |message: serde_json::Value| {
        let is_test = message["profile"]["test"].as_bool()?;
        let path = PathBuf::from(message["executable"].as_str()?);
        let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_path_buf();
        // `path+file:///…/crates/protocols/wire#tapeworks-wire@0.1.0`, or without the name where the folder has it.
        let id = message["package_id"].as_str()?.rsplit_once('#')?.1;
        let package = match id.split_once('@') {
            Some((package, _)) => package.to_owned(),
            None => folder.file_name()?.to_string_lossy().into_owned(),
        };
        let name = format!("{package} {}", message["target"]["name"].as_str()?);
        let mut command = Command::new(path);
        // As cargo runs it: some tests look for files of their package.
        command.current_dir(&folder).env("CARGO_MANIFEST_DIR", &folder).env("CARGO_PKG_NAME", package);
        is_test.then_some(TestProgram { name, command })
    };
    messages.filter_map(of).collect()
}

/// Runs the programs in this order, so many at once.
fn run_all(programs: Vec<TestProgram>, at_once: usize) -> Vec<Ended> {
    let waiting = Mutex::new(programs.into_iter());
    let running = Mutex::new(BTreeSet::new());
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            let sender = sender.clone();
            scope.spawn(|| {
                let sender = sender;
                loop {
                    let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
                    let Some(program) = next else { return };
                    let name = program.name.clone();
                    running.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone());
                    let ended = run_one(program);
                    running.lock().unwrap_or_else(PoisonError::into_inner).remove(&name);
                    if sender.send(ended).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut all = Vec::new();
        loop {
            match receiver.recv_timeout(STILL) {
                Ok(ended) => {
                    show(&ended);
                    all.push(ended);
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    let running = running.lock().unwrap_or_else(PoisonError::into_inner);
                    println!("still running: {}", running.iter().cloned().collect::<Vec<_>>().join(", "));
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => return all,
            }
        }
    })
}

fn run_one(program: TestProgram) -> Ended {
    let started = Instant::now();
    let output = process::limited(program.command, LONGEST).stdin(Stdio::null()).output();
    let (tests, failure) = match output {
        Ok(output) => {
            let printed = String::from_utf8_lossy(&output.stdout);
            let errors = String::from_utf8_lossy(&output.stderr);
            let ending = process::ending(output.status, LONGEST);
            let failure = (!output.status.success()).then(|| format!("{printed}{errors}\n{ending}"));
            (passed(&printed), failure)
        }
        Err(error) => (0, Some(error.to_string())),
    };
    Ended { name: program.name, failure, tests, time: started.elapsed() }
}

/// The tests that passed, by what the harness printed; 0 for a program without one.
fn passed(printed: &str) -> u32 {
    let results = printed.lines().filter_map(|line| line.strip_prefix("test result: ")?.split_once(". "));
    results.filter_map(|(_, counts)| counts.split_once(" passed")?.0.parse::<u32>().ok()).sum()
}

fn show(ended: &Ended) {
    let Ended { name, failure, tests, time } = ended;
    let seconds = time.as_secs_f64();
    match failure {
        None => println!("ok      {seconds:6.1} s  {name}: {tests} tests"),
        Some(printed) => println!("FAILED  {seconds:6.1} s  {name}\n{printed}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(name: &str, script: &str) -> TestProgram {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        TestProgram { name: name.into(), command }
    }

    #[test]
    fn programs_with_tests_are_found_among_what_cargo_says() {
        let built = r#"{"reason":"compiler-artifact","package_id":"path+file:///x/crates/protocols/wire#tapeworks-wire@0.1.0","manifest_path":"/x/crates/protocols/wire/Cargo.toml","target":{"name":"fix"},"profile":{"test":true},"executable":"/t/fix-1"}
{"reason":"compiler-artifact","package_id":"path+file:///x/xtask#0.1.0","manifest_path":"/x/xtask/Cargo.toml","target":{"name":"xtask"},"profile":{"test":true},"executable":"/t/xtask-1"}
{"reason":"compiler-artifact","package_id":"path+file:///x#tapeworks@0.1.0","manifest_path":"/x/Cargo.toml","target":{"name":"tapeworks"},"profile":{"test":false},"executable":"/t/tapeworks"}
{"reason":"compiler-artifact","package_id":"path+file:///x#tapeworks@0.1.0","manifest_path":"/x/Cargo.toml","target":{"name":"tapeworks"},"profile":{"test":true},"executable":null}
{"reason":"build-finished","success":true}"#;
        let programs = test_programs(built);
        let names: Vec<&str> = programs.iter().map(|program| program.name.as_str()).collect();
        assert_eq!(names, ["tapeworks-wire fix", "xtask xtask"]);
        assert_eq!(programs[0].command.get_current_dir(), Some(Path::new("/x/crates/protocols/wire")));
    }

    #[test]
    fn every_program_runs_and_a_failed_one_shows_all_that_it_printed() {
        let result = "echo 'test result: ok. 3 passed; 0 failed'";
        let programs = vec![
            shell("good", result),
            shell("bad", "echo out; echo err >&2; exit 101"),
            TestProgram { name: "missing".into(), command: Command::new("/no/such/program") },
            shell("last", result),
        ];
        let mut ended = run_all(programs, 2);
        ended.sort_by(|a, b| a.name.cmp(&b.name));
        let short: Vec<_> =
            ended.iter().map(|ended| (ended.name.as_str(), ended.tests, ended.failure.is_some())).collect();
        assert_eq!(short, [("bad", 0, true), ("good", 3, false), ("last", 3, false), ("missing", 0, true)]);
        let failure = ended[0].failure.as_deref().unwrap_or_default();
        assert!(failure.starts_with("out\nerr\n") && failure.contains("101"), "{failure}");
    }

    #[test]
    fn programs_run_at_once() {
        // Each waits for the other's file.
        let folder = std::env::temp_dir().join(format!("tapeworks-at-once-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let meet = |own: &str, other: &str| {
            let (own, other) = (folder.join(own), folder.join(other));
            let (own, other) = (own.display(), other.display());
            format!(
                "touch {own}; for i in $(seq 1000); do [ -e {other} ] && exit 0; sleep 0.01; done; exit 1"
            )
        };
        let ended = run_all(vec![shell("a", &meet("a", "b")), shell("b", &meet("b", "a"))], 2);
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(ended.len() == 2 && ended.iter().all(|ended| ended.failure.is_none()));
    }
}
