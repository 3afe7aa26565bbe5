//! `tapeworks tap` against shared memory that a test writes, and that of a plant.

#![allow(clippy::unwrap_used, missing_docs)]
#![cfg(target_os = "linux")]

mod support;

use std::path::Path;
use std::process::{Child, Stdio};

use support::{Folder, assert_one_error, command, free_port, stderr, stdout, wait_for};
use tapeworks_market::{EventKind, Publisher, Symbol};
use tapeworks_plant::{Published, SHARED_MEANING};
use tapeworks_ring::broadcast::Writer;
use zerocopy::FromZeros as _;

/// An option in OCC's form: the longest symbol.
const OPTION: &str = "SPX   260117C05000000";

fn tap(arguments: &[&str]) -> Child {
    command(&[&["tap"][..], arguments].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Publishes trades until the reader has ended; what it answers.
fn publish_until_it_ends(writer: &mut Writer<Published>, mut reader: Child) -> std::process::Output {
    let mut number = 0;
    wait_for(|| {
        let mut item = Published::new_zeroed();
        (item.kind, item.publisher, item.instrument) = (EventKind::Trade as u8, Publisher::XNAS_ITCH.0, 3);
        (item.ts_recv, item.price, item.size) = (1_700_000_000_000_000_001 + number, 10_500_000_000, 100);
        (item.bid, item.ask, item.side) = (i64::MAX, i64::MAX, b'B');
        item.symbol = *Symbol::parse(OPTION).unwrap().as_bytes();
        writer.publish(&item);
        number += 1;
        reader.try_wait().unwrap().is_some()
    });
    // No harm if it has ended.
    reader.kill().unwrap();
    reader.wait_with_output().unwrap()
}

#[test]
fn an_options_symbol_is_shown_whole_and_one_that_never_came_is_named() {
    let folder = Folder::new("tap-symbols");
    let path = folder.path("shared");
    let mut writer = Writer::<Published>::create(Path::new(&path), 1 << 10, SHARED_MEANING).unwrap();
    let reader = tap(&[&path, "--events", "--limit", "2", "--symbols", &format!("{OPTION},SPX")]);
    let output = publish_until_it_ends(&mut writer, reader);
    assert_eq!(output.status.code(), Some(0));
    assert!(stderr(&output).ends_with("tapeworks: no message is about SPX\n"), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.lines().all(|line| line.contains(&format!("Z {OPTION} XNAS.ITCH Trade "))), "{text}");
}

#[test]
fn the_limit_also_ends_a_quiet_reader() {
    let folder = Folder::new("tap-limit");
    let path = folder.path("shared");
    let mut writer = Writer::<Published>::create(Path::new(&path), 1 << 10, SHARED_MEANING).unwrap();
    for (arguments, lines) in
        [(&["--events", "--limit", "3"][..], 3), (&["--events", "--quiet", "--limit", "3"], 0)]
    {
        let reader = tap(&[&[&path[..]][..], arguments].concat());
        let output = publish_until_it_ends(&mut writer, reader);
        assert_one_error(&output, 0, "events, 0 overrun");
        let text = stdout(&output);
        assert_eq!(text.lines().count(), lines, "{text}");
        // Names and times that people read.
        for line in text.lines() {
            assert!(
                line.starts_with("2023-11-14T22:13:20.")
                    && line.contains(" XNAS.ITCH Trade bid 10.50 x 100 "),
                "{line}"
            );
        }
    }
}

#[test]
fn a_reader_whose_plant_is_killed_says_so() {
    let folder = Folder::new("tap-killed");
    let shared = folder.path("shared");
    let config = folder.write(
        "plant.toml",
        format!(
            "interface = \"127.0.0.1\"\nshared_memory = \"{shared}\"\n[[venue]]\nname = \"Nasdaq\"\n\
             protocol = \"itch\"\npublisher = \"XNAS.ITCH\"\nlines = [\"239.197.77.1:{}\"]\n",
            free_port(41).port()
        )
        .as_bytes(),
    );
    let plant = |_: ()| {
        let plant = command(&["plant", &config]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_for(|| Path::new(&shared).exists());
        plant
    };
    for (signal, code) in [("-KILL", 1), ("-INT", 0)] {
        let mut plant = plant(());
        let mut reader = tap(&[&shared]);
        // It is attached when it has mapped the file.
        wait_for(|| {
            let maps = std::fs::read_to_string(format!("/proc/{}/maps", reader.id())).unwrap_or_default();
            maps.contains(&shared)
        });
        support::signal(&plant, signal);
        plant.wait().unwrap();
        wait_for(|| reader.try_wait().unwrap().is_some());
        // No harm if it has ended.
        reader.kill().unwrap();
        let output = reader.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{}", stderr(&output));
        assert_eq!(
            stderr(&output).contains("the plant that wrote it has died"),
            code == 1,
            "{}",
            stderr(&output)
        );
        let _gone = std::fs::remove_file(&shared);
    }
}
