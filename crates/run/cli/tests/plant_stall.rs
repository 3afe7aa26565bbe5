//! `tapeworks plant` that the system does not let run for a while.

#![allow(clippy::unwrap_used, missing_docs)]
#![cfg(target_os = "linux")]

mod support;

use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use support::{Folder, command, free_port, interrupt_once, signal, wait_for};
use tapeworks_generator::VenueKind;
use tapeworks_venues::{Config, Venue, Venues};

#[test]
fn a_plant_that_was_stopped_does_not_report_silence_while_it_catches_up() {
    let folder = Folder::new("stall");
    let kinds = [("Nasdaq", "nasdaq", "XNAS"), ("BX", "bx", "XBOS")];
    let (mut venues, mut text) = (Vec::new(), "interface = \"127.0.0.1\"\n".to_owned());
    for (number, (name, kind, mic)) in (70u8..).zip(kinds) {
        let address = free_port(number.into());
        let lines = [1, 2].map(|line| format!("239.197.{number}.{line}:{}", address.port()));
        venues.push(Venue::new(
            name,
            VenueKind::by_key(kind).unwrap(),
            lines.iter().map(|line| line.parse().unwrap()).collect(),
        ));
        text.push_str(&format!(
            "[[venue]]\nname = \"{name}\"\nprotocol = \"itch\"\npublisher = \"{mic}.ITCH\"\nlines = {lines:?}\nsilence = \"1s\"\n"
        ));
    }
    let config = folder.write("plant.toml", text.as_bytes());
    let log = folder.path("log");
    let plant = command(&["plant", "--json", &config])
        .stdout(Stdio::piped())
        .stderr(std::fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    wait_for(|| std::fs::read_to_string(&log).unwrap().contains("listening to"));
    let mut serving = Config::new(venues);
    (serving.rate, serving.symbols) = (4_000, 20);
    serving.interface = "127.0.0.1".parse().unwrap();
    let venues = Venues::start(serving).unwrap();
    wait_for(|| venues.report().messages > 2_000);
    signal(&plant, "-STOP");
    // Longer than a line may be silent.
    std::thread::sleep(Duration::from_millis(1_500));
    signal(&plant, "-CONT");
    std::thread::sleep(Duration::from_millis(500));
    let output = interrupt_once(plant, || true);
    venues.stop().unwrap();
    let status: Value = serde_json::from_slice(&output.stdout).unwrap();
    let channels = status["venues"].as_array().unwrap();
    assert_eq!(channels.len(), 2);
    for channel in channels {
        assert!(channel["messages"].as_u64().unwrap() > 1_000, "{channel}");
        // One, where the kernel had no room for what came meanwhile; it was one a packet.
        assert!(channel["silences"].as_u64().unwrap() <= 1, "{channel}");
    }
}
