//! Peers in other languages: built here from `bench/peers` and run as programs that print nanoseconds per item.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peers")
}

/// Runs a program; returns its output, or the first line of its error.
fn output(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let ran = command.output().map_err(|error| format!("{name}: {error}"))?;
    if ran.status.success() {
        return Ok(String::from_utf8_lossy(&ran.stdout).into_owned());
    }
    let output = String::from_utf8_lossy(&ran.stderr).into_owned() + &*String::from_utf8_lossy(&ran.stdout);
    let line = output.lines().find(|line| line.contains("rror")).unwrap_or_default();
    Err(format!("{name}: {} {line}", ran.status))
}

/// A program on all cores that this one may use. The thread that measures stays on one core, and its children would with it: two threads of theirs
/// would share that core.
fn on_all_cores(program: impl AsRef<OsStr>) -> Command {
    // Of the first thread, which is kept on no core.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).map(str::trim);
    let Some(list) = list else { return Command::new(program) };
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", list]).arg(program);
    command
}

fn nanoseconds(printed: &str) -> f64 {
    printed.trim().parse().unwrap_or_else(|_| panic!("`{printed}` is no number of nanoseconds"))
}

/// A C++ program of one source file.
#[derive(Clone)]
pub struct Cpp(PathBuf);

impl Cpp {
    /// Builds `bench/peers/cpp/NAME.cpp` with `g++ -O3`, beside this program.
    pub fn build(name: &str) -> Result<Self, String> {
        let flags = ["-std=c++17", "-O3", "-march=x86-64-v2", "-pthread"];
        Self::build_with(name, &flags, &[], "g++, libboost-dev, libreaderwriterqueue-dev")
    }

    /// As [`Self::build`], with other flags and with libraries, which Debian's `packages` have.
    pub fn build_with(
        name: &str,
        flags: &[&str],
        libraries: &[&str],
        packages: &str,
    ) -> Result<Self, String> {
        let here = std::env::current_exe().map_err(|error| format!("this program's folder: {error}"))?;
        let program = here.with_file_name(format!("peer-{name}"));
        let source = folder().join("cpp").join(name).with_extension("cpp");
        output(Command::new("g++").args(flags).arg("-o").arg(&program).arg(source).args(libraries))
            .map_err(|why| format!("{why} (Debian: {packages})"))?;
        Ok(Self(program))
    }

    /// Nanoseconds per item.
    pub fn run(&self, words: &[String]) -> f64 {
        nanoseconds(&output(on_all_cores(&self.0).args(words)).expect("it was built and the shape is sound"))
    }
}

/// The Java programs.
#[derive(Clone)]
pub struct Java(PathBuf);

impl Java {
    /// Builds `bench/peers/java` with Maven.
    pub fn build() -> Result<Self, String> {
        let folder = folder().join("java");
        let pom = folder.join("pom.xml");
        output(Command::new("mvn").args(["--quiet", "--batch-mode", "--file"]).arg(pom).arg("package"))
            .map_err(|why| format!("{why} (Debian: maven, openjdk-17-jdk-headless)"))?;
        Ok(Self(folder.join("target")))
    }

    /// Nanoseconds per event.
    pub fn run(&self, class: &str, words: &[String]) -> f64 {
        self.runs(class, words).first().copied().unwrap_or(f64::NAN)
    }

    /// Nanoseconds per event of each run that one start of the program makes, which warms its compiler up once.
    pub fn runs(&self, class: &str, words: &[String]) -> Vec<f64> {
        let path = format!("{0}/peers.jar:{0}/dependency/*", self.0.display());
        let run = output(
            on_all_cores("java").args(["-Xms1g", "-XX:+UseParallelGC", "-cp", &path, class]).args(words),
        );
        run.expect("it was built and the shape is sound").lines().map(nanoseconds).collect()
    }
}
