//! Files that the commands make: one run each, whole or not at all, and standard output, pipes, devices and links.

#![allow(clippy::unwrap_used, missing_docs)]
#![cfg(unix)]

mod support;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Stdio};

use support::{Folder, assert_one_error, command, listens, run, signal, stderr, stdout, wait_for};

const CAPTURE: &str = "testdata/captures/nasdaq-itch50/Multiple.Packets.pcap";

const FORMATS: [&str; 7] = ["csv", "json", "dbn", "parquet", "csv.zst", "json.zst", "dbn.zst"];

fn start(arguments: &[&str]) -> Child {
    command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits until the program listens for Ctrl-C.
fn wait_until_it_listens(child: &Child) {
    wait_for(|| listens(child.id()));
}

/// What it answers; one that does not end is killed.
fn ended(mut child: Child) -> std::process::Output {
    wait_for(|| child.try_wait().unwrap().is_some());
    // No harm if it has ended.
    child.kill().unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn two_runs_with_one_output_are_one_run_and_a_refusal() {
    let folder = Folder::new("two-runs");
    let session = folder.path("session.pcap");
    run(&["exchange", "generate", "--messages", "20000", "--symbols", "20", "--out", &session]);
    let csv = folder.path("q.csv");
    let replay = ["replay", &session, "--force", "--out", &csv];
    let replay = |more: &[&'static str]| [&replay[..], more].concat();
    // The session is a day long: at its own pace it is written until it is stopped.
    let first = start(&replay(&["--symbols", "TWAA", "--speed", "1x"]));
    wait_for(|| Path::new(&format!("{csv}.partial")).exists());
    wait_until_it_listens(&first);
    assert_one_error(&run(&replay(&["--symbols", "TWAB"])), 1, "q.csv: another run writes it, into");
    signal(&first, "-INT");
    assert_one_error(&ended(first), 130, "stopped");
    let rows = fs::read_to_string(&csv).unwrap();
    assert!(rows.starts_with("ts_recv") && !rows.contains("TWAB"), "{rows:.300}");
    assert_eq!(folder.files(), ["q.csv", "session.pcap"]);
}

#[test]
fn no_command_touches_a_file_that_another_run_writes() {
    let folder = Folder::new("locked");
    let commands: [&[&str]; 3] = [
        &["replay", CAPTURE, "--force", "--out"],
        &["exchange", "generate", "--messages", "5000", "--symbols", "5", "--force", "--out"],
        &["study", CAPTURE, "--no-measure", "--force", "--svg"],
    ];
    for (arguments, names) in commands.iter().zip([&FORMATS[..], &["pcap", "itch.zst"], &["svg"]]) {
        for name in names {
            let path = folder.path(&format!("x.{name}"));
            let partial = folder.write(&format!("x.{name}.partial"), b"another run's");
            let other = fs::File::open(&partial).unwrap();
            other.try_lock().unwrap();
            assert_one_error(&run(&[arguments, &[&path[..]][..]].concat()), 1, "another run writes it");
            assert_eq!(fs::read(&partial).unwrap(), b"another run's");
            assert!(!Path::new(&path).exists());
        }
    }
}

#[test]
fn a_file_of_a_dead_run_is_kept_beside_the_new_one_and_named() {
    let folder = Folder::new("left-behind");
    let csv = folder.path("q.csv");
    folder.write("q.csv.partial", b"half of it");
    let output = run(&["replay", CAPTURE, "--out", &csv]);
    assert_one_error(&output, 3, "q.csv.partial: left behind by a run that died, kept as");
    assert_eq!(fs::read(folder.path("q.csv.partial.1")).unwrap(), b"half of it");
    assert_eq!(folder.files(), ["q.csv", "q.csv.partial.1"]);
}

#[test]
fn standard_output_gets_the_bytes_of_a_file() {
    let folder = Folder::new("stdout");
    for format in FORMATS {
        let file = folder.path(&format!("q.{format}"));
        run(&["replay", CAPTURE, "--out", &file]);
        let output = run(&["replay", CAPTURE, "--out", "-", "--format", format]);
        assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
        assert!(output.stdout == fs::read(&file).unwrap(), "{format}");
        assert!(stderr(&output).contains("messages, "), "the report: {}", stderr(&output));
        // A pipe, and a device.
        let fifo = folder.path(&format!("pipe.{format}"));
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        let child = start(&["replay", CAPTURE, "--out", &fifo]);
        assert!(fs::read(&fifo).unwrap() == fs::read(&file).unwrap(), "{format}");
        assert_eq!(ended(child).status.code(), Some(3));
        let null = run(&["replay", CAPTURE, "--out", "/dev/null", "--format", format]);
        assert_eq!(null.status.code(), Some(3), "{}", stderr(&null));
    }
    assert_one_error(
        &run(&["replay", CAPTURE, "--out", "-"]),
        2,
        "standard output has no ending to choose the format by",
    );
    let capture = run(&["exchange", "generate", "--messages", "5000", "--symbols", "5", "--out", "-"]);
    let file = folder.path("session.pcap");
    run(&["exchange", "generate", "--messages", "5000", "--symbols", "5", "--out", &file]);
    assert!(capture.stdout == fs::read(file).unwrap());
}

#[test]
fn a_link_stays_a_link_and_a_dangling_one_is_reported() {
    let folder = Folder::new("links");
    fs::create_dir(folder.path("data")).unwrap();
    let link = folder.path("link.csv");
    symlink("data/real.csv", &link).unwrap();
    assert_eq!(run(&["replay", CAPTURE, "--out", &link]).status.code(), Some(3));
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(fs::read_to_string(folder.path("data/real.csv")).unwrap().starts_with("ts_recv"));
    let lost = folder.path("lost.csv");
    symlink("nowhere/real.csv", &lost).unwrap();
    let output = run(&["replay", CAPTURE, "--out", &lost]);
    assert_one_error(&output, 1, "nowhere/real.csv, whose folder does not exist");
    assert_eq!(stderr(&output).matches("lost.csv").count(), 1, "{}", stderr(&output));
}

#[test]
fn a_second_signal_at_once_is_the_same_request() {
    let folder = Folder::new("two-signals");
    let session = folder.path("session.pcap");
    run(&["exchange", "generate", "--messages", "20000", "--symbols", "20", "--out", &session]);
    for format in ["csv", "dbn", "parquet"] {
        let file = folder.path(&format!("q.{format}"));
        let child = start(&["replay", &session, "--speed", "1x", "--out", &file]);
        wait_for(|| Path::new(&format!("{file}.partial")).exists());
        // As coreutils' timeout does: to the program, and to its group.
        signal(&child, "-TERM");
        signal(&child, "-TERM");
        let output = ended(child);
        assert_one_error(&output, 130, "stopped");
        assert!(stdout(&output).contains("Received from "), "the report: {}", stdout(&output));
        assert!(fs::metadata(&file).unwrap().len() > 0);
    }
}

#[test]
fn a_first_signal_ends_the_wait_for_a_pipe_without_a_reader() {
    let folder = Folder::new("lonely-pipe");
    let fifo = folder.path("fifo.csv");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let commands: [&[&str]; 4] =
        [&["replay", &fifo], &["dump", &fifo], &["stats", &fifo], &["replay", CAPTURE, "--out", &fifo]];
    for arguments in commands {
        let child = start(arguments);
        wait_until_it_listens(&child);
        signal(&child, "-INT");
        assert_one_error(&ended(child), 130, "stopped");
    }
    // A writer that says nothing any more.
    let mut child = command(&["replay", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let capture = fs::read(support::root().join(CAPTURE)).unwrap();
    std::io::Write::write_all(&mut stdin, &capture[..capture.len() / 2]).unwrap();
    wait_until_it_listens(&child);
    signal(&child, "-INT");
    let output = ended(child);
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
}

#[test]
fn an_output_that_is_an_input_is_refused_under_whatever_name() {
    let folder = Folder::new("input-as-output");
    let capture = folder.write("vic.pcap", &fs::read(support::root().join(CAPTURE)).unwrap());
    let (link, hard) = (folder.path("link.csv"), folder.path("hard.csv"));
    symlink(&capture, &link).unwrap();
    fs::hard_link(&capture, &hard).unwrap();
    let before = fs::read(&capture).unwrap();
    for out in [&capture, &link, &hard] {
        let output =
            run(&["replay", &capture, "--schema", "mbo", "--format", "csv", "--force", "--out", out]);
        assert_one_error(&output, 1, &format!("{out}: is read, and cannot be the output"));
        let output = run(&["study", &capture, "--no-measure", "--force", "--svg", out]);
        assert_one_error(&output, 1, &format!("{out}: is read, and cannot be the output"));
    }
    assert!(fs::read(&capture).unwrap() == before);
}
