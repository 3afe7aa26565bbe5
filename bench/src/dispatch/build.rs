//! Build times of machines: a crate of ten, and the same machine with Boost.MSM.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::source;
use crate::Options;

/// Machines of the crate that is built.
const MACHINES: usize = 10;
/// Message types of each: four rows that change the state and two for each other type make 20.
const TYPES: usize = 9;
/// Types of the machine that Boost.MSM gets: its lists end at 50 rows.
pub const BOOST_TYPES: usize = 8;

/// A folder that goes when the run ends.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(options: &Options, name: &str) -> Self {
        let path = options.folder.join(format!("tapeworks-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("the folder is writable");
        Self(path)
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().unwrap_or(&self.0)).expect("the folder is writable");
        std::fs::write(&path, content).expect("the folder has room");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _left_behind_at_worst = std::fs::remove_dir_all(&self.0);
    }
}

/// Seconds and megabytes (the most that one process held) of a program. `None`: it is missing, or it failed and printed
/// why.
pub fn measured(folder: &Path, program: &str, arguments: &[&str]) -> Option<(f64, f64)> {
    let report = folder.join("time.txt");
    let status = Command::new("/usr/bin/time")
        .args(["--format", "%e %M", "--output"])
        .arg(&report)
        .arg(program)
        .args(arguments)
        .current_dir(folder)
        .env("CARGO_TARGET_DIR", folder.join("target"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .ok()?;
    let text = std::fs::read_to_string(&report).ok()?;
    let mut numbers = text.split_whitespace().filter_map(|word| word.parse::<f64>().ok());
    let (seconds, kilobytes) = (numbers.next()?, numbers.next()?);
    status.success().then_some((seconds, kilobytes / 1e3))
}

fn shown(figures: Option<(f64, f64)>) -> String {
    match figures {
        Some((seconds, megabytes)) => format!("{seconds:>8.2} s  {megabytes:>8.0} MB"),
        None => "SKIPPED: it cannot be run here (GNU time, Debian: time)".into(),
    }
}

/// A crate of ten machines, built in release, for each dispatcher; what it depends on is built before and its time is printed on a line by itself.
pub fn run(options: &Options) {
    let folder = Folder::new(options, "dispatch-build");
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/dispatch");
    folder.write(
        "Cargo.toml",
        format!(
            "[workspace]\n[package]\nname = \"ten\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[dependencies]\n\
             tapeworks-dispatch = {{ path = {:?} }}\n",
            ours.canonicalize().expect("the crate is there")
        ),
    );
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let build = ["build", "--release", "--quiet", "--offline"];
    folder.write("src/lib.rs", "//! Nothing yet: the dependencies are built with it.\n");
    println!(
        "build of a crate of {MACHINES} machines of {} rows each, cargo build --release",
        4 + 2 * (TYPES - 1)
    );
    println!("{:<34} {:>10}  {:>11}", "", "time", "most memory");
    println!("{:<34} {}", "dependencies, once (syn among them)", shown(measured(&folder.0, &cargo, &build)));
    for dispatch in source::DISPATCHES {
        let mut text = String::from("//! Ten machines.\n");
        text.push_str(&source::context(TYPES));
        for machine in 0..MACHINES {
            let codes: Vec<u64> = source::codes(TYPES + machine).split_off(machine);
            text.push_str(&source::machine(&format!("machine_{machine}"), dispatch, &codes));
        }
        folder.write("src/lib.rs", text);
        println!("{dispatch:<34} {}", shown(measured(&folder.0, &cargo, &build)));
    }
    println!();
}

/// Boost.MSM over the same messages; `expected` is the total that our machines came to.
pub fn boost(codes: &[u16], options: &Options, expected: u64) {
    let folder = Folder::new(options, "dispatch-boost");
    folder.write("bench.cpp", source::boost_msm(&source::codes(BOOST_TYPES)));
    let flags = ["-O3", "-march=x86-64-v2", "-std=c++17", "-w", "bench.cpp", "-o", "bench"];
    if !Path::new("/usr/include/boost/msm").is_dir() {
        println!("SKIPPED: Boost.MSM is not there (Debian: libboost-dev, g++)\n");
        return;
    }
    let Some((seconds, megabytes)) = measured(&folder.0, "g++", &flags) else {
        println!("SKIPPED: g++ or GNU time is not there, or the program did not build (Debian: g++, time)\n");
        return;
    };
    folder.write("codes.bin", codes.iter().flat_map(|code| code.to_le_bytes()).collect::<Vec<u8>>());
    let output = Command::new(folder.0.join("bench"))
        .args(["codes.bin", &codes.len().to_string(), &options.rounds.to_string()])
        .current_dir(&folder.0)
        .output()
        .expect("the program was just built");
    let printed = String::from_utf8_lossy(&output.stdout);
    let mut ns: Vec<f64> = Vec::new();
    for line in printed.lines() {
        let (elapsed, total) = line.split_once(' ').expect("the program prints two numbers");
        assert_eq!(total.parse(), Ok(expected), "it did the same");
        ns.push(elapsed.parse::<f64>().expect("a number") / codes.len() as f64);
    }
    ns.sort_by(f64::total_cmp);
    let Some((median, least)) = ns.get(ns.len() / 2).zip(ns.first()) else {
        println!("SKIPPED: the program of Boost.MSM failed: {}\n", output.status);
        return;
    };
    println!(
        "{:<44} {median:>8.2} {least:>8.2}   built by g++ in {seconds:.1} s with {megabytes:.0} MB\n",
        "the same machine, Boost.MSM (switch, MSM)"
    );
}
