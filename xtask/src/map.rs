//! The map of crates in the README and the book: one row per level, each crate above the crates that it uses.

use tapeworks_drawing::{Anchor, Drawing, colour};

use crate::{deps, process, states};

/// The picture, relative to the root of the repository.
const PICTURE: &str = "docs/src/pictures/crates.svg";

/// The name of a level, and its crates with their purpose in a few words; the top level first.
type Level = (&'static str, &'static [(&'static str, &'static str)]);

const LEVELS: [Level; 6] = [
    (
        "programs",
        &[
            ("cli", "the program tapeworks"),
            ("sim", "a whole market in one thread, faults by seed"),
            ("lab", "low-latency techniques, measured"),
        ],
    ),
    (
        "processes",
        &[
            ("service", "configured processes, web page"),
            ("outputs", "clients, multicast, stream, connectors"),
            ("plant", "the live plant's threads"),
            ("gateway", "FIX clients to a venue"),
            ("venues", "simulated venues, live"),
            ("analysis", "files in, answers out"),
            ("batch", "days in, folders out"),
        ],
    ),
    (
        "engines",
        &[
            ("engine", "the deterministic core, checkpoints"),
            ("runtime", "workers, keys, TLS, settings"),
            ("generator", "a market in real protocol bytes"),
            ("matching", "orders by price and time"),
            ("translate", "FIX orders to a venue's; risk checks"),
            ("flow", "graphs of packet stages"),
        ],
    ),
    (
        "market data",
        &[
            ("feed", "normalised events"),
            ("follow", "lines, gaps, restarts"),
            ("store", "DBN, Parquet, CSV, JSON"),
        ],
    ),
    (
        "protocols",
        &[
            ("session", "both ends of market data sessions"),
            ("order-session", "both ends of order sessions"),
            ("market", "events, books, NBBO"),
            ("capture", "captures and network headers"),
            ("nic", "live receivers and senders"),
            ("journal", "a log that survives crashes"),
        ],
    ),
    (
        "foundations",
        &[
            ("wire", "protocols as declarations"),
            ("fix-wire", "FIX messages as declarations"),
            ("dispatch", "state machines, perfect hashes"),
            ("ring", "queues, waiting, memory"),
            ("stage", "stages and inline edges"),
            ("time", "nanoseconds, clock changes"),
            ("random", "numbers by seed"),
            ("disk", "files behind a trait"),
            ("cloud", "object stores"),
            ("drawing", "plots as SVG"),
        ],
    ),
];

/// Crates that only support others: macros, the simulator's deliberate bugs.
const NOT_SHOWN: [&str; 4] = ["planted", "wire-macros", "dispatch-macros", "dispatch-search"];

/// Sizes in pixels.
const WIDTH: f64 = 1_000.0;
const LABEL: f64 = 96.0;
const ROW: f64 = 74.0;
const GAP: f64 = 8.0;

/// Draws the pictures that come from the sources, or checks that those in the book are up to date.
pub(crate) fn run(bless: bool) -> Result<(), String> {
    check_levels()?;
    compare(PICTURE, &draw(), bless)?;
    compare(states::PICTURE, &states::picture()?, bless)
}

/// Writes a picture, or checks that the one in the book is up to date.
fn compare(path: &str, picture: &str, bless: bool) -> Result<(), String> {
    let file = process::root().join(path);
    if bless {
        return std::fs::write(&file, picture).map_err(|error| format!("{path}: {error}"));
    }
    match std::fs::read_to_string(&file) {
        Ok(drawn) if drawn == picture => Ok(()),
        Ok(_) => Err(format!("{path} is out of date: `cargo xtask golden --bless` redraws it")),
        Err(error) => Err(format!("{path}: {error}")),
    }
}

/// The level of a crate, counted from the top.
fn level_of(name: &str) -> Option<usize> {
    LEVELS.iter().position(|(_, crates)| crates.iter().any(|(shown, _)| *shown == name))
}

/// The front page of the API's documentation: the program's, which leads to the crates.
const FRONT_PAGE: &str = "crates/run/cli/src/main.rs";

/// Checks that every crate is on the map and on the front page, and that none uses a crate of a level above its own.
fn check_levels() -> Result<(), String> {
    let front_page = std::fs::read_to_string(process::root().join(FRONT_PAGE));
    let front_page = front_page.map_err(|error| format!("{FRONT_PAGE}: {error}"))?;
    for (name, purpose) in LEVELS.iter().flat_map(|(_, crates)| *crates).filter(|(name, _)| *name != "cli") {
        let folder = name.replace('-', "_");
        if !front_page.contains(&format!("[{name}](../tapeworks_{folder}/index.html) | {purpose} |")) {
            return Err(format!("{FRONT_PAGE}: no row for {name}, {purpose}"));
        }
    }
    for (name, uses) in deps::rules() {
        if NOT_SHOWN.contains(&name) || name == "xtask" {
            continue;
        }
        let level = level_of(name).ok_or_else(|| format!("{name} is missing on the map of crates"))?;
        let above = uses.filter(|used| level_of(used).is_some_and(|used| used < level));
        if let Some(used) = above.into_iter().next() {
            return Err(format!("on the map of crates, {used} is above {name}, which uses it"));
        }
    }
    Ok(())
}

fn draw() -> String {
    let mut drawing = Drawing::new(WIDTH);
    for (row, (level, crates)) in LEVELS.iter().enumerate() {
        let top = GAP + row as f64 * ROW;
        let height = ROW - GAP;
        drawing.text("faint", (GAP, top + height / 2.0 + 4.0), Anchor::Start, level);
        let width = (WIDTH - LABEL - GAP) / crates.len() as f64;
        for (place, (name, purpose)) in crates.iter().enumerate() {
            let (left, right) = (LABEL + place as f64 * width, LABEL + (place + 1) as f64 * width - GAP);
            let edge = |y: f64| [(left, y), (right, y)];
            drawing.band(&edge(top), &edge(top + height), colour(row));
            let middle = f64::midpoint(left, right);
            drawing.text("strong", (middle, top + 24.0), Anchor::Middle, name);
            let lines = wrapped(purpose, ((right - left) / 6.2) as usize);
            for (number, line) in lines.iter().enumerate() {
                drawing.text("ink", (middle, top + 42.0 + 14.0 * number as f64), Anchor::Middle, line);
            }
        }
    }
    drawing.finish("The crates of Tapeworks: each uses crates of its own level and below", 6.0 * ROW + GAP)
}

/// Text in lines of at most this many characters.
fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_crate_is_on_the_map_above_the_crates_that_it_uses() {
        assert_eq!(check_levels(), Ok(()));
    }

    #[test]
    fn the_pictures_in_the_book_are_the_ones_that_are_drawn() {
        assert_eq!(run(false), Ok(()));
    }

    #[test]
    fn long_texts_are_wrapped_between_words() {
        assert_eq!(
            wrapped("a market in real protocol bytes", 12),
            ["a market in", "real", "protocol", "bytes"]
        );
    }
}
