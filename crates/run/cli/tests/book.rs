//! The book's examples of commands with their output: each page's commands run as typed, in order, and print what the page shows.
//!
//! In a page, a line of `…` stands for any lines, and `…` within a line for any text. A tutorial is one session: all its commands run in
//! one shell, so that later steps use the programs that earlier ones started in the background.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, missing_docs)]

#[path = "reference/pages.rs"]
mod pages;
mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use pages::pages;
use support::namespace::Namespace;
use support::{Folder, root, run};

/// Where the tutorials are.
const TUTORIALS: &str = "docs/src/tutorials";

/// The programs of a tutorial that need more than this repository; other steps of `cargo xtask test` run them.
const ELSEWHERE: [&str; 7] = ["cargo ", "docker ", "kubectl ", "mvn ", "pip ", "python3 ", "sudo "];

/// Blocks with one of these commands are not run: they go on until they are interrupted, talk to a server, or need another program.
const NOT_RUN: [&str; 4] =
    ["tapeworks demo", "tapeworks exchange serve", "tapeworks fix ", "tapeworks query"];

/// The programs of the blocks that are run.
const RUN: [&str; 4] = ["tapeworks ", "mkdir ", "printf ", "echo "];

/// A command of a page, and the output that the page shows.
struct Example {
    command: String,
    shown: Vec<String>,
}

/// The blocks of a page that show commands in a terminal.
fn blocks(page: &str) -> impl Iterator<Item = &str> {
    page.split("```console\n").skip(1).filter_map(|rest| rest.split("\n```").next())
}

/// The commands of a block with their outputs.
fn read(block: &str) -> Vec<Example> {
    let mut examples: Vec<Example> = Vec::new();
    for line in block.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            examples.push(Example { command: command.to_owned(), shown: Vec::new() });
        } else {
            let Some(example) = examples.last_mut() else { panic!("{line}: an output without a command") };
            example.shown.push(line.trim_end().to_owned());
        }
    }
    examples
}

/// The examples of a page that are run, in order.
fn examples(page: &str) -> Vec<Example> {
    let is_run = |example: &Example| RUN.iter().any(|start| example.command.starts_with(start));
    let blocks = blocks(page).filter(|block| !NOT_RUN.iter().any(|command| block.contains(command)));
    blocks.map(read).filter(|block| block.iter().all(is_run)).flatten().collect()
}

/// Whether a printed line is the one that a page shows.
fn is_line(printed: &str, shown: &str) -> bool {
    let mut parts = shown.split('…');
    let Some(mut rest) = printed.trim_end().strip_prefix(parts.next().unwrap_or_default()) else {
        return false;
    };
    let parts: Vec<&str> = parts.collect();
    for (number, part) in parts.iter().enumerate() {
        let is_last = number + 1 == parts.len();
        match rest.find(part) {
            Some(_) if is_last => return rest.ends_with(part),
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.is_empty()
}

/// The first line of a page's output that was not printed in its place.
fn first_missing<'a>(printed: &str, shown: &'a [String]) -> Option<&'a str> {
    let mut lines = printed.lines();
    shown
        .iter()
        .filter(|shown| shown.as_str() != "…")
        .find(|shown| !lines.any(|line| is_line(line, shown)))
        .map(String::as_str)
}

#[test]
fn every_command_of_the_book_prints_the_output_in_the_book() {
    let mut found = Vec::new();
    pages(&root().join("docs/src"), &mut found);
    found.sort();
    let session = Folder::new("book-session");
    let generated = session.path("session.pcap.zst");
    assert!(run(&["exchange", "generate", "--messages", "200000", "--out", &generated]).status.success());
    let (mut count, mut wrong) = (0, Vec::new());
    for page in found.into_iter().filter(|page| !page.starts_with(root().join(TUTORIALS))) {
        let examples = examples(&std::fs::read_to_string(&page).unwrap());
        let folder = Folder::new("book");
        for linked in ["testdata", "examples"] {
            std::os::unix::fs::symlink(root().join(linked), folder.path(linked)).unwrap();
        }
        if !examples.iter().any(|example| {
            example.command.contains("session.pcap.zst") && example.command.contains("generate")
        }) {
            std::os::unix::fs::symlink(&generated, folder.path("session.pcap.zst")).unwrap();
        }
        let mut last_code = String::new();
        for Example { command, shown } in
            examples.into_iter().filter(|example| support::can_run(&example.command))
        {
            let mut shell = support::in_shell(Command::new("sh"), &command, Path::new(&folder.path("")));
            let output = shell.output().unwrap();
            let printed = match command.as_str() {
                "echo $?" => last_code,
                _ => support::stdout(&output) + &support::stderr(&output),
            };
            last_code = output.status.code().unwrap().to_string();
            count += 1;
            if let Some(line) = first_missing(&printed, &shown) {
                wrong.push(format!("{}: $ {command}\nshows: {line}\n{printed}", page.display()));
            }
        }
    }
    assert!(count > 30, "{count} examples");
    assert!(wrong.is_empty(), "{} of {count} examples are wrong:\n\n{}", wrong.len(), wrong.join("\n\n"));
}

/// The folder of a Python with the tutorials' packages. If unset, Python commands are skipped.
const PYTHON: &str = "TAPEWORKS_BOOK_PYTHON";

/// The commands of a tutorial that are run, in order.
fn session(page: &str, has_python: bool) -> Vec<Example> {
    let is_elsewhere = |command: &str| ELSEWHERE.iter().any(|program| command.starts_with(program));
    let is_run = |example: &Example| {
        has_python && example.command.starts_with("python3 ") || !is_elsewhere(&example.command)
    };
    blocks(page).flat_map(read).filter(is_run).collect()
}

/// The files that a tutorial asks its reader to save, with their names.
fn files(page: &str) -> impl Iterator<Item = (&str, &str)> {
    page.split("Save this as `").skip(1).filter_map(|rest| {
        let (name, rest) = rest.split_once("`:\n\n```")?;
        let (_language, rest) = rest.split_once('\n')?;
        Some((name, rest.split_once("```")?.0))
    })
}

#[test]
fn every_tutorial_runs_as_typed_and_prints_the_output_in_the_tutorial() {
    let mut found = Vec::new();
    pages(&root().join(TUTORIALS), &mut found);
    assert!(found.len() >= 4, "{found:?}");
    let python = std::env::var(PYTHON).ok();
    for page in found {
        let text = std::fs::read_to_string(&page).unwrap();
        let session = session(&text, python.is_some());
        let folder = Folder::new("tutorial");
        let work = PathBuf::from(folder.path(""));
        for (name, content) in files(&text) {
            std::fs::write(work.join(name), content).unwrap();
        }
        for needed in ["examples", "deploy", "testdata/captures"] {
            support::copy(&root().join(needed), &work.join(needed));
        }
        // Tutorials use fixed ports, which another test or a running plant may use.
        let Some(namespace) = Namespace::new("tutorial") else { return };
        let ends = "trap 'kill $(jobs -p) 2> /dev/null || true; wait' EXIT\nset -e\nexec 2>&1";
        let commands = session.iter().map(|example| format!("echo {SEPARATOR}\n{}", example.command));
        let path = python.as_ref().map(|folder| format!("PATH='{folder}':$PATH\n")).unwrap_or_default();
        let script = commands.fold(path + ends, |script, command| script + "\n" + &command);
        let shell = support::in_shell(namespace.command("bash"), &script, &work).output().unwrap();
        let printed = support::stdout(&shell);
        assert!(shell.status.success(), "{}: {}\n{printed}", page.display(), shell.status);
        for (Example { command, shown }, printed) in session.iter().zip(printed.split(SEPARATOR).skip(1)) {
            if let Some(line) = first_missing(printed, shown) {
                panic!("{}: $ {command}\nshows: {line}\n{printed}", page.display());
            }
        }
    }
}

/// Stands between the outputs of a tutorial's commands.
const SEPARATOR: &str = "-------- next command --------";

#[test]
fn three_dots_stand_for_any_text() {
    assert!(is_line("made in 0.3 s  ", "made in … s") && is_line("a", "a") && is_line("a b c", "a…c"));
    assert!(!is_line("made in 0.3 ms", "made in … s") && !is_line("ab", "a") && !is_line("b", "a…"));
}
