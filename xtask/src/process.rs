//! Running other programs from the root of the repository.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

/// The last lines of a failed program that stand below the summary, in continuous integration.
const LAST_LINES: usize = 30;

/// How long what a program left running may still hold its output open.
const LEFT_RUNNING: Duration = Duration::from_secs(2);

/// How long a program may take in continuous integration, where nobody would end one that hangs; a build of everything takes half of it.
const LONGEST: Duration = Duration::from_secs(25 * 60);

/// How `timeout` ends when the time is over.
const TIME_IS_OVER: i32 = 124;

/// The command; in continuous integration it is ended with all that it has started when it takes longer than this.
pub(crate) fn limited(command: Command, longest: Duration) -> Command {
    if !is_ci() {
        return command;
    }
    let mut limited = ended_after(longest);
    limited.arg(command.get_program()).args(command.get_args()).stdin(Stdio::null());
    if let Some(folder) = command.get_current_dir() {
        limited.current_dir(folder);
    }
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    limited
}

/// Runs the command in its arguments, and ends it when the time is over. Its output so far stays: it names the test that hangs.
fn ended_after(longest: Duration) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=10", &longest.as_secs().to_string()]);
    command
}

/// How a program ended, in words.
pub(crate) fn ending(status: ExitStatus, longest: Duration) -> String {
    if is_ci() && status.code() == Some(TIME_IS_OVER) {
        return format!("it did not end in {} minutes", longest.as_secs() / 60);
    }
    status.to_string()
}

/// The root of the repository.
pub(crate) fn root() -> &'static Path {
    // This crate lies one folder below it.
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or_else(|| Path::new("."))
}

/// Where cargo builds, and where steps leave what they make.
pub(crate) fn target_folder() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |folder| root().join(folder))
}

/// Whether this is a run of continuous integration: what is missing is installed, and nothing is skipped for the lack of it.
pub(crate) fn is_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true" || value == "1")
}

/// Optimised; in continuous integration by the profile `quick`, so that no overflow passes.
pub(crate) fn optimised() -> &'static [&'static str] {
    if is_ci() { &["--profile", "quick"] } else { &["--release"] }
}

/// Where [`optimised`] programs are.
pub(crate) fn optimised_folder() -> PathBuf {
    target_folder().join(if is_ci() { "quick" } else { "release" })
}

/// The processor time that ended programs have taken; nothing where the system does not say.
pub(crate) fn processor_time() -> Option<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name in brackets may have spaces. Fields 16 and 17 are those of ended programs, in hundredths of a second.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(13);
    let hundredths = fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?;
    Some(Duration::from_millis(hundredths * 10))
}

/// Whether `program --version` runs.
pub(crate) fn is_installed(program: &str) -> bool {
    Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// A program to run, and how it is shown to the user.
pub(crate) struct Program {
    command: Command,
}

/// The cargo that runs us.
pub(crate) fn cargo<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(arguments: I) -> Program {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let run = program(cargo).args(arguments);
    let cmake = own_cmake();
    // Build scripts take it from there.
    if cmake.is_file() { run.env("CMAKE", cmake) } else { run }
}

/// Where a CMake is that is newer than the system's, if the feature `aeron` needed it.
pub(crate) fn own_cmake() -> PathBuf {
    target_folder().join("tools/cmake/bin/cmake")
}

/// The output of `cargo metadata` with these arguments; the lock file is not changed.
pub(crate) fn metadata(arguments: &[&str]) -> Result<serde_json::Value, String> {
    let printed = cargo(["metadata", "--format-version", "1", "--locked"]).args(arguments).output()?;
    serde_json::from_str(&printed).map_err(|error| format!("cargo metadata is no JSON: {error}"))
}

/// Any program, by name or path.
pub(crate) fn program(name: impl AsRef<OsStr>) -> Program {
    let mut command = Command::new(name);
    command.current_dir(root()).stdin(Stdio::null());
    // What the cargo that runs us says of this package. Build scripts that read the same of theirs, as that of ring, run again when it comes
    // and goes, and all above them is built again: after `cargo xtask test` by `cargo test`, and the other way round.
    for (name, _) in std::env::vars_os() {
        if ["CARGO_MANIFEST_", "CARGO_PKG_"].iter().any(|of_us| name.to_string_lossy().starts_with(of_us)) {
            command.env_remove(name);
        }
    }
    Program { command }
}

impl Program {
    pub(crate) fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.command.arg(argument);
        self
    }

    pub(crate) fn args<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(mut self, arguments: I) -> Self {
        self.command.args(arguments);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// An example among cargo's targets: it then gives other people's crates the features that tests ask for, as it does where it builds
    /// tests. Without one it builds what uses them a second time without these features, Aeron's client among it.
    pub(crate) fn with_features_of_tests(self) -> Self {
        self.args(["--example", "schema_forms"])
    }

    /// Lets cargo compile our crates by the compiler in clippy, as `cargo clippy` does: what is built is linted on the way and fails with a
    /// warning, and what it uses is not checked once more beside. That compiler optimises less; so nothing that is measured is built by it.
    pub(crate) fn linted(self) -> Self {
        // The folder in which `cargo clippy` has it: what either has checked, the other need not.
        let driver = std::env::var_os("CARGO").map(PathBuf::from);
        let driver =
            driver.map(|cargo| cargo.with_file_name("clippy-driver")).filter(|driver| driver.is_file());
        self.env("RUSTC_WORKSPACE_WRAPPER", driver.unwrap_or_else(|| "clippy-driver".into()))
            .env("CLIPPY_ARGS", ["--deny", "warnings", ""].join("__CLIPPY_HACKERY__"))
    }

    /// Runs it in another folder than the root of the repository.
    pub(crate) fn folder(mut self, folder: &Path) -> Self {
        self.command.current_dir(folder);
        self
    }

    fn shown(&self) -> String {
        let name = Path::new(self.command.get_program()).file_name().unwrap_or_default();
        let words = std::iter::once(name).chain(self.command.get_args()).map(OsStr::to_string_lossy);
        let words = words.collect::<Vec<_>>().join(" ");
        words.replace(&format!("{}/", root().display()), "")
    }

    /// Runs it with our output; an error names the program and how it ended, and in continuous integration what it printed last.
    pub(crate) fn run(mut self) -> Result<(), String> {
        let shown = self.shown();
        println!("$ {shown}");
        let ended = if is_ci() {
            run_and_keep(limited(self.command, LONGEST), None)
        } else {
            self.command.status().map(|status| (status, String::new()))
        };
        succeeded(&shown, ended)
    }

    /// Runs it with our error output, and gives what it printed; an error has the last lines of its error output.
    pub(crate) fn run_for_output(self) -> Result<String, String> {
        let shown = self.shown();
        println!("$ {shown}");
        let mut printed = String::new();
        succeeded(&shown, run_and_keep(limited(self.command, LONGEST), Some(&mut printed)))?;
        Ok(printed)
    }

    /// The command, for a caller that runs it in another way.
    pub(crate) fn into_command(self) -> Command {
        self.command
    }

    /// Runs it and gives what it printed; its error output goes into the error when it fails.
    pub(crate) fn output(mut self) -> Result<String, String> {
        let output = self.command.output().map_err(|error| format!("{}: {error}", self.shown()))?;
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr);
            return Err(format!("`{}` failed: {}\n{}", self.shown(), output.status, errors.trim()));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// Whether a program ended well; an error names it, how it ended, and its last lines.
fn succeeded(shown: &str, ended: std::io::Result<(ExitStatus, String)>) -> Result<(), String> {
    let (status, last) = ended.map_err(|error| format!("{shown}: {error}"))?;
    if status.success() {
        return Ok(());
    }
    Err(format!("`{shown}` failed: {}{last}", ending(status, LONGEST)))
}

/// Runs a program with our output, and gives its last lines too, each after a line break. What it prints goes into `printed` instead, if
/// that is there; then the last lines are those of its error output.
fn run_and_keep(mut command: Command, printed: Option<&mut String>) -> std::io::Result<(ExitStatus, String)> {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let last = Arc::new(Mutex::new(VecDeque::new()));
    let (over, overs) = mpsc::channel();
    let mut readers = 0;
    if let Some(stderr) = child.stderr.take() {
        pass_on(stderr, std::io::stderr(), &last, &over);
        readers += 1;
    }
    match (child.stdout.take(), printed) {
        (Some(mut stdout), Some(printed)) => drop(stdout.read_to_string(printed)?),
        (Some(stdout), None) => {
            pass_on(stdout, std::io::stdout(), &last, &over);
            readers += 1;
        }
        (None, _) => {}
    }
    let status = child.wait()?;
    for _ in 0..readers {
        // Without an end the lines so far are all there are.
        let _ = overs.recv_timeout(LEFT_RUNNING);
    }
    let last = last.lock().unwrap_or_else(PoisonError::into_inner);
    Ok((status, last.iter().fold(String::new(), |text, line| text + "\n" + line)))
}

/// The last lines of what a failed program printed, as many as stand below the summary.
pub(crate) fn last_lines(printed: &str) -> String {
    let lines: Vec<&str> = printed.trim_end().lines().collect();
    lines.get(lines.len().saturating_sub(LAST_LINES)..).unwrap_or_default().join("\n")
}

/// Copies lines from a program to our output on a thread of its own, and keeps the last.
fn pass_on(
    from: impl Read + Send + 'static,
    mut to: impl Write + Send + 'static,
    last: &Arc<Mutex<VecDeque<String>>>,
    over: &mpsc::Sender<()>,
) {
    let (last, over) = (Arc::clone(last), over.clone());
    std::thread::spawn(move || {
        let (mut from, mut line) = (BufReader::new(from), Vec::new());
        while from.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
            // A reader that is gone still gets the exit code of the summary.
            let _ = to.write_all(&line);
            let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
            last.push_back(String::from_utf8_lossy(&line).trim_end().to_owned());
            if last.len() > LAST_LINES {
                last.pop_front();
            }
            line.clear();
        }
        // The program's end may have been waited for long enough.
        let _ = over.send(());
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_program_shows_what_it_printed_last() {
        let lines = LAST_LINES + 5;
        let mut command = Command::new("sh");
        command.args(["-c", &format!("seq {lines}; exit 3")]).stdin(Stdio::null());
        let (status, last) = run_and_keep(command, None).unwrap();
        assert_eq!(status.code(), Some(3));
        let expected: Vec<String> = (6..=lines).map(|number| number.to_string()).collect();
        assert_eq!(last.lines().skip(1).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn programs_do_not_hear_from_us_of_which_package_we_are() {
        let removed = cargo(["build"]).into_command();
        let removed: Vec<_> = removed.get_envs().filter(|(_, value)| value.is_none()).collect();
        // The test itself is run with them.
        assert!(removed.iter().any(|(name, _)| *name == "CARGO_PKG_NAME"), "{removed:?}");
        assert!(removed.iter().all(|(name, _)| *name != "CARGO"), "{removed:?}");
    }

    #[test]
    fn a_lint_fails_a_build_that_is_linted() {
        let folder = std::env::temp_dir().join(format!("tapeworks-linted-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let manifest =
            "[package]\nname = \"linted\"\nedition = \"2024\"\n[lib]\npath = \"linted.rs\"\n[workspace]\n";
        std::fs::write(folder.join("Cargo.toml"), manifest).unwrap();
        let build = |source: &str| {
            std::fs::write(folder.join("linted.rs"), source).unwrap();
            let run = cargo(["build", "--quiet", "--offline", "--target-dir", "target"]).folder(&folder);
            run.linted().output()
        };
        let well = build("pub fn is_well(value: bool) -> bool {\n    value\n}\n");
        let odd = build("pub fn is_well(value: bool) -> bool {\n    return value;\n}\n");
        let has_built = folder.join("target/debug/liblinted.rlib").is_file();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(well, Ok(String::new()));
        assert!(odd.unwrap_err().contains("needless_return"));
        assert!(has_built);
    }

    #[test]
    fn a_program_that_hangs_is_ended_and_has_its_output_shown() {
        let mut command = ended_after(Duration::from_secs(1));
        command.args(["sh", "-c", "echo begun; sleep 600"]).stdin(Stdio::null());
        let (status, last) = run_and_keep(command, None).unwrap();
        assert_eq!((status.code(), last.as_str()), (Some(TIME_IS_OVER), "\nbegun"));
    }

    #[test]
    fn a_program_left_running_does_not_hold_us_up() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo begun; sleep 600 &"]).stdin(Stdio::null());
        let (status, last) = run_and_keep(command, None).unwrap();
        assert!(status.success());
        assert_eq!(last, "\nbegun");
    }
}
