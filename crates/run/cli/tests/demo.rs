//! The demonstration as a user runs it, with less data.

#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use std::cell::Cell;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::process::Stdio;
use std::sync::mpsc::channel;
use std::time::Duration;

use support::{Folder, assert_one_error, command, interrupt_once, run, stderr, stdout};

#[test]
fn the_demo_runs_to_its_end_and_sums_up() {
    let folder = Folder::new("demo");
    let out = folder.path("out");
    let small = ["--messages", "20000", "--seconds", "1", "--rate", "5000", "--port", "0", "--web-port", "0"];
    let done = run(&[&["demo", "--out", &out], &small[..]].concat());
    let text = stdout(&done);
    assert_eq!(done.status.code(), Some(0), "{text}{}", stderr(&done));
    for part in
        ["1. Real packets", "2. A generated session", "3. The same session", "4. Live", "nbbo.parquet"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    // The live part: its venues, its client, and what its lines lost.
    for part in ["IEX DEEP", "a client of cmbp-1", "missed by the plant", "Done in"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // The order part: each request was answered, and the plant's book has the orders that the gateway has.
    for part in
        ["2,000 requests of 10 FIX clients", "every request was answered", "from when a request was due"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!stderr(&done).contains("has not the orders"), "{text}{}", stderr(&done));
    let sides: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|cells| cells.len() == 8 && matches!(cells[1], "buy" | "sell"))
        .collect();
    assert!(sides.len() >= 4, "{text}");
    for cells in sides {
        assert_eq!(cells[2..5], cells[5..], "{cells:?}");
    }
}

#[test]
fn a_busy_port_is_named_with_the_flag_that_sets_it() {
    let folder = Folder::new("demo-busy");
    let out = folder.path("out");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let busy = taken.local_addr().unwrap();
    for (flag, other) in [("--port", "--web-port"), ("--web-port", "--port")] {
        let failed = run(&["demo", "--serve", "--out", &out, flag, &busy.port().to_string(), other, "0"]);
        assert_one_error(&failed, 1, &format!("cannot listen on {busy}"));
        let error = stderr(&failed);
        assert!(error.contains(&format!("another port: {flag};")), "{error}");
    }
}

/// Two beside each other: groups and ports that no flag names are each one's own.
#[cfg(unix)]
#[test]
fn two_demos_serve_beside_each_other_until_ctrl_c() {
    let folder = Folder::new("demo-serve");
    let demos = ["one", "two"].map(|name| {
        let out = folder.path(name);
        let arguments =
            ["demo", "--serve", "--out", &out, "--port", "0", "--web-port", "0", "--rate", "2000"];
        let mut demo = command(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let log = BufReader::new(demo.stderr.take().unwrap());
        let (say, said) = channel();
        std::thread::spawn(move || log.lines().map_while(Result::ok).for_each(|line| drop(say.send(line))));
        (demo, said)
    });
    let mut ready = Vec::new();
    for (_, said) in &demos {
        let line = said.recv_timeout(Duration::from_secs(60)).unwrap();
        assert!(line.contains("serving until Ctrl-C"), "{line}");
        ready.push(line);
    }
    // Some of the day, for the summary.
    std::thread::sleep(Duration::from_secs(1));
    for (demo, said) in demos {
        let is_stopped = Cell::new(false);
        let done = interrupt_once(demo, || is_stopped.replace(true));
        let (text, more) = (stdout(&done), said.iter().collect::<Vec<_>>());
        assert_eq!(done.status.code(), Some(0), "{text}{more:?}");
        assert!(text.contains("subscribe --multicast 239.19"), "{text}");
        assert!(text.contains("missed by the plant"), "{text}");
    }
}
