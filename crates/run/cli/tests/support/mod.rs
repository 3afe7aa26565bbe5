//! Runs the program as a user does.

#![allow(dead_code, reason = "each test file uses its part")]

#[cfg(target_os = "linux")]
pub(crate) mod namespace;
pub(crate) mod orders;
pub(crate) mod process;
pub(crate) mod trader;

use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};

use tapeworks_capture::CaptureReader;

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").canonicalize().unwrap()
}

/// The program with these arguments, in the root of the repository.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tapeworks"));
    command.args(arguments).current_dir(root()).env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE");
    command
}

/// Whether this build can run a command from the documentation; otherwise it prints that the command is skipped.
pub(crate) fn can_run(command: &str) -> bool {
    let can = cfg!(feature = "lab") || !command.starts_with("tapeworks lab ");
    if !can {
        eprintln!("SKIPPED, as this build has no lab: {command}");
    }
    can
}

/// A shell in which `tapeworks` is this program.
pub(crate) fn in_shell(mut shell: Command, script: &str, folder: &Path) -> Command {
    let programs = Path::new(env!("CARGO_BIN_EXE_tapeworks")).parent().unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    shell.args(["-c", script]).current_dir(folder).env("PATH", path);
    shell.env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE");
    shell
}

/// Copies a folder of the repository, for programs that write next to their configuration.
pub(crate) fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// Compares `text` with a file of the repository; with `TAPEWORKS_BLESS` it rewrites the file.
pub(crate) fn compare_with(path: &str, text: &str) {
    let path = root().join(path);
    if std::env::var_os("TAPEWORKS_BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert!(golden == text, "{} differs from what was printed:\n{text}", path.display());
}

/// What it answers.
pub(crate) fn run(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A port that is free for UDP and TCP, below those that the system gives out.
pub(crate) fn free_port(number: u32) -> SocketAddr {
    (0..1_000)
        .map(|more| 10_000 + (97 * std::process::id() + 131 * number + more) % 20_000)
        .map(|port| SocketAddr::from(([127, 0, 0, 1], port as u16)))
        .find(|address| UdpSocket::bind(address).is_ok() && TcpListener::bind(address).is_ok())
        .unwrap()
}

/// The packets of a capture: time and bytes.
pub(crate) fn packets(path: &str) -> Vec<(u64, Vec<u8>)> {
    let mut reader = CaptureReader::open(&root().join(path)).unwrap();
    let mut packets = Vec::new();
    while let Some(packet) = reader.next_packet().unwrap() {
        packets.push((packet.timestamp_ns, packet.bytes.to_vec()));
    }
    packets
}

/// Every capture of one packet kind, relative to the root, sorted.
pub(crate) fn captures() -> Vec<String> {
    let mut files = Vec::new();
    let folder = root().join("testdata/captures");
    for folder in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if !folder.is_dir() {
            continue;
        }
        for file in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            let name = file.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
            if !name.ends_with(".md") {
                files.push(name);
            }
        }
    }
    files.sort();
    files
}

/// A folder that goes when the test ends.
pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    /// `name` is part of the folder's.
    pub(crate) fn new(name: &str) -> Self {
        let prefix = format!("tapeworks-cli-{name}-");
        Self(tempfile::Builder::new().prefix(&prefix).tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn write(&self, name: &str, content: &[u8]) -> String {
        let path = self.path(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    /// Names of the files in it.
    pub(crate) fn files(&self) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(self.0.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_str().unwrap().to_owned())
            .collect();
        names.sort();
        names
    }
}

/// The code, and exactly one line from us that holds `text`.
#[track_caller]
pub(crate) fn assert_one_error(output: &Output, code: i32, text: &str) {
    let errors = stderr(output);
    assert_eq!(output.status.code(), Some(code), "{errors}");
    let lines: Vec<&str> = errors.lines().filter(|line| line.starts_with("tapeworks: ")).collect();
    assert_eq!(lines.len(), 1, "{errors}");
    assert!(lines[0].contains(text), "{errors}");
    assert!(!errors.contains("panicked"), "{errors}");
}

/// Sends Ctrl-C once `is_under_way`; kills a program that does not react.
#[cfg(unix)]
pub(crate) fn interrupt_once(mut child: Child, is_under_way: impl Fn() -> bool) -> Output {
    let wait_for = |is_so: &mut dyn FnMut() -> bool| {
        for _ in 0..3_000 {
            if is_so() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    };
    wait_for(&mut || is_under_way());
    let status = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(status.success());
    wait_for(&mut || child.try_wait().unwrap().is_some());
    // No harm if it has ended.
    child.kill().unwrap();
    child.wait_with_output().unwrap()
}

/// Whether the process listens for Ctrl-C.
pub(crate) fn listens(process: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or("0");
    u64::from_str_radix(caught.trim(), 16).unwrap() & 1 << (2 - 1) != 0
}

pub(crate) fn signal(child: &Child, signal: &str) {
    assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
}

/// Waits until something is so, half a minute at most.
pub(crate) fn wait_for(mut is_so: impl FnMut() -> bool) {
    for _ in 0..3_000 {
        if is_so() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}
