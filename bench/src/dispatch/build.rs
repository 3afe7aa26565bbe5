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
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/base/dispatch");
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

/// The same machine with Boost.MSM, built, and the messages that it dispatches.
pub struct Boost {
    folder: Folder,
    messages: usize,
    expected: u64,
    /// Seconds and megabytes that it took to build.
    pub built: (f64, f64),
}

impl Boost {
    /// Builds it; `expected` is the total that our machines came to. The error says what is missing.
    pub fn build(codes: &[u16], expected: u64) -> Result<Self, String> {
        if !Path::new("/usr/include/boost/msm").is_dir() {
            return Err("Boost.MSM is not there (Debian: libboost-dev, g++)".into());
        }
        let folder = Folder::new(&Options::default(), "dispatch-boost");
        folder.write("bench.cpp", source::boost_msm(&source::codes(BOOST_TYPES)));
        let flags = ["-O3", "-march=x86-64-v2", "-std=c++17", "-w", "bench.cpp", "-o", "bench"];
        let built = measured(&folder.0, "g++", &flags).ok_or(
            "Boost.MSM: g++ or GNU time is not there, or the program did not build (Debian: g++, time)",
        )?;
        folder.write("codes.bin", codes.iter().flat_map(|code| code.to_le_bytes()).collect::<Vec<u8>>());
        Ok(Self { folder, messages: codes.len(), expected, built })
    }

    /// Dispatches all messages once, and checks the total.
    pub fn ns_per_message(&self) -> f64 {
        let output = Command::new(self.folder.0.join("bench"))
            .args(["codes.bin", &self.messages.to_string(), "1"])
            .current_dir(&self.folder.0)
            .output()
            .expect("the program was just built");
        let printed = String::from_utf8_lossy(&output.stdout);
        let (elapsed, total) = printed.trim().split_once(' ').expect("the program prints two numbers");
        assert_eq!(total.parse(), Ok(self.expected), "it did the same");
        elapsed.parse::<f64>().expect("a number") / self.messages as f64
    }
}
