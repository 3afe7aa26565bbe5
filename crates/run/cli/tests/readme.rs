//! The README's table of commands: each example runs as typed, in the order shown.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use support::namespace::Namespace;
use support::{Folder, copy, root, signal, wait_for};

/// Longest run of an example.
const LONGEST: Duration = Duration::from_secs(120);

/// Commands that run until they are interrupted, and a text of their logs once they serve: later examples talk to them.
const SERVERS: [(&str, &str); 2] =
    [("tapeworks plant ", "the page is on"), ("tapeworks exchange serve ", "lines")];

/// The examples of the table whose header has the column `example`.
fn examples(readme: &str) -> Vec<String> {
    let rows = readme.lines().skip_while(|line| !line.starts_with("| command | purpose | example |")).skip(2);
    let rows = rows.take_while(|line| line.starts_with('|'));
    let example = |row: &str| {
        let cell = row.trim_end_matches('|').rsplit('|').next()?.trim();
        Some(cell.strip_prefix('`')?.strip_suffix('`')?.to_owned())
    };
    rows.map(|row| example(row).unwrap_or_else(|| panic!("no example in {row}"))).collect()
}

/// A running example, and its output; killed when it is dropped.
struct Running<'a> {
    example: &'a str,
    child: Child,
    printed: PathBuf,
}

impl<'a> Running<'a> {
    /// Starts the example in a shell, in the namespace if there is one.
    fn start(example: &'a str, folder: &Path, namespace: Option<&Namespace>, number: usize) -> Self {
        let printed = folder.join(format!("printed-{number}"));
        let file = File::create(&printed).unwrap();
        let shell = namespace.map_or_else(|| Command::new("sh"), |namespace| namespace.command("sh"));
        // The program takes the shell's place, so that a signal reaches it.
        let mut command = support::in_shell(shell, &format!("exec {example}"), folder);
        command.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file);
        Self { example, child: command.spawn().unwrap(), printed }
    }

    fn printed(&self) -> String {
        std::fs::read_to_string(&self.printed).unwrap()
    }

    /// Waits for the end, which must be a success.
    fn end(mut self) {
        let began = Instant::now();
        let status = loop {
            match self.child.try_wait().unwrap() {
                Some(status) => break status,
                None => {
                    assert!(began.elapsed() < LONGEST, "{} does not end: {}", self.example, self.printed())
                }
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        assert!(status.success(), "{}: {status}\n{}", self.example, self.printed());
        println!("{:5.1} s  {}", began.elapsed().as_secs_f64(), self.example);
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

#[test]
fn every_command_of_the_readme_runs_as_typed_in_the_order_shown() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let examples = examples(&readme);
    assert!(examples.len() > 15, "{examples:?}");
    let folder = Folder::new("readme");
    let work = Path::new(&folder.path("")).to_owned();
    for needed in ["examples", "testdata/captures"] {
        copy(&root().join(needed), &work.join(needed));
    }
    // The examples have fixed ports, which another test or a running plant may use.
    let namespace = Namespace::new("readme");
    let mut servers = Vec::new();
    for (number, example) in examples.iter().enumerate().filter(|(_, example)| support::can_run(example)) {
        let served = SERVERS.iter().find(|(start, _)| example.starts_with(start));
        if namespace.is_none() && (served.is_some() || example.starts_with("tapeworks subscribe")) {
            eprintln!("SKIPPED: {example}");
            continue;
        }
        let running = Running::start(example, &work, namespace.as_ref(), number);
        match served {
            Some((_, text)) => {
                wait_for(|| running.printed().contains(text));
                servers.push(running);
            }
            None => running.end(),
        }
    }
    for server in servers.into_iter().rev() {
        signal(&server.child, "-INT");
        server.end();
    }
}
