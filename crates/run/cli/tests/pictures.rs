//! Pictures for the README and the book.
//!
//! `TAPEWORKS_BLESS=1 cargo test -p tapeworks --test pictures` redraws them. A picture shows the output of the program or of its crates, and
//! its test fails when that changes; the diagrams are drawn by hand.

#![allow(clippy::unwrap_used, missing_docs)]

#[path = "pictures/delays.rs"]
mod delays;
#[path = "pictures/diagrams.rs"]
mod diagrams;
#[path = "pictures/journal.rs"]
mod journal;
#[path = "pictures/nbbo.rs"]
mod nbbo;
#[path = "pictures/recovery.rs"]
mod recovery;
mod support;
#[path = "pictures/terminal.rs"]
mod terminal;

use support::{Folder, command, run, stderr, stdout};
use terminal::terminal;

/// The folder of the book's pictures.
const PICTURES: &str = "docs/src/pictures";

/// Compares a picture with the one in the book, or redraws it.
fn compare_with_book(name: &str, picture: &str) {
    support::compare_with(&format!("{PICTURES}/{name}.svg"), picture);
}

/// The session that `tapeworks exchange generate` makes by default, with 200,000 messages.
fn session(folder: &Folder) -> String {
    let session = folder.path("session.pcap.zst");
    let generated = run(&["exchange", "generate", "--messages", "200000", "--out", &session]);
    assert!(generated.status.success(), "{}", stderr(&generated));
    session
}

#[test]
fn the_picture_of_a_replay_shows_the_program_as_it_is() {
    let folder = Folder::new("pictures");
    session(&folder);
    let to = "2025-11-14T15:59[America/New_York]";
    let arguments = ["replay", "session.pcap.zst", "--to", to, "--schema", "cmbp-1", "--out", "nbbo.parquet"];
    let output =
        command(&arguments).current_dir(folder.path("")).env("CLICOLOR_FORCE", "1").output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let printed = stdout(&output);
    // The first line has the time that it took; the last symbols look like the first.
    let from = |start: &'static str| printed.lines().skip_while(move |line| !line.contains(start));
    let channels = from("Channels").take_while(|line| !line.contains("Books"));
    let busiest = from("The busiest").take(12);
    let shown: Vec<&str> = channels.chain(busiest).chain([""]).chain(from("Written")).collect();
    let picture = terminal(&format!("tapeworks {}", arguments.join(" ")), &shown);
    compare_with_book("replay", &picture);
}
