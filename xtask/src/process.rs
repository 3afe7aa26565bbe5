//! Running other programs from the root of the repository.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

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
    program(cargo).args(arguments)
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

    fn shown(&self) -> String {
        let name = Path::new(self.command.get_program()).file_name().unwrap_or_default();
        let words = std::iter::once(name).chain(self.command.get_args()).map(OsStr::to_string_lossy);
        let words = words.collect::<Vec<_>>().join(" ");
        words.replace(&format!("{}/", root().display()), "")
    }

    /// Runs it with our output; an error names the program and how it ended.
    pub(crate) fn run(mut self) -> Result<(), String> {
        println!("$ {}", self.shown());
        let status = self.command.status().map_err(|error| format!("{}: {error}", self.shown()))?;
        if status.success() { Ok(()) } else { Err(format!("`{}` failed: {status}", self.shown())) }
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
