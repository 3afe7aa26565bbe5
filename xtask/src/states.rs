//! The picture of an order's states, drawn from the rows of the translator's machine.

use std::collections::BTreeMap;

use tapeworks_drawing::{Anchor, Drawing, colour};

use crate::process;

/// The picture, relative to the root of the repository.
pub(crate) const PICTURE: &str = "docs/src/pictures/order-states.svg";

/// The file that declares the machine.
const SOURCE: &str = "crates/orders/translate/src/orders.rs";

/// A state and the upper left corner of its box.
const STATES: [(&str, (f64, f64)); 4] = [
    ("Sent", (40.0, 130.0)),
    ("Working", (400.0, 60.0)),
    ("Suspended", (400.0, 210.0)),
    ("Ended", (800.0, 130.0)),
];

/// The size of a box, in pixels.
const BOX: (f64, f64) = (120.0, 44.0);

/// The frame around the open states, for transitions that each of them has.
const FRAME: [(f64, f64); 2] = [(16.0, 24.0), (560.0, 290.0)];

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 380.0;

/// A row of the machine: the states that it begins in, its event with its guard, and the state that it leads to, if it changes it.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    from: Vec<String>,
    event: String,
    to: Option<String>,
}

/// Draws the states.
pub(crate) fn picture() -> Result<String, String> {
    let path = process::root().join(SOURCE);
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{SOURCE}: {error}"))?;
    draw(&rows(&text)?)
}

fn rows(source: &str) -> Result<Vec<Row>, String> {
    let block = source.split_once("rows {").and_then(|(_, rest)| rest.split_once('}'));
    let (block, _) = block.ok_or_else(|| format!("{SOURCE}: no rows"))?;
    block.lines().map(str::trim).filter(|line| !line.is_empty()).map(row).collect()
}

fn row(line: &str) -> Result<Row, String> {
    let read = || {
        let (when, then) = line.strip_suffix(';')?.split_once("=>")?;
        let (from, event) = when.split_once('+')?;
        let to = then.split_once("->").map(|(_, to)| to.trim().to_owned());
        let from = from.split('|').map(|state| state.trim().to_owned()).collect();
        let event =
            event.trim().replace(" [is_last]", " of the rest").replace(" [is_open]", " with shares left");
        Some(Row { from, event, to })
    };
    read().ok_or_else(|| format!("{SOURCE}: not a row of a machine: {line}"))
}

fn place(state: &str) -> Result<(f64, f64), String> {
    let found = STATES.iter().find(|(name, _)| *name == state);
    found.map(|(_, place)| *place).ok_or_else(|| format!("{SOURCE}: the picture has no state {state}"))
}

fn draw(rows: &[Row]) -> Result<String, String> {
    let mut drawing = Drawing::new(WIDTH);
    let corners = |(left, top): (f64, f64), (right, bottom): (f64, f64)| {
        [[(left, top), (right, top)], [(left, bottom), (right, bottom)]]
    };
    let [upper, lower] = corners(FRAME[0], FRAME[1]);
    drawing.band(&upper, &lower, colour(1));
    drawing.text("faint", (FRAME[0].0 + 10.0, FRAME[0].1 + 18.0), Anchor::Start, "any open state:");
    for (name, (left, top)) in STATES {
        let [upper, lower] = corners((left, top), (left + BOX.0, top + BOX.1));
        drawing.band(&upper, &lower, colour(0));
        drawing.text("strong", (left + BOX.0 / 2.0, top + 28.0), Anchor::Middle, name);
    }
    let mut edges: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    let mut unchanged = Vec::new();
    for Row { from, event, to } in rows {
        match to {
            Some(to) if from.len() == 3 => edges.entry(("open", to)).or_default().push(event),
            Some(to) => {
                for from in from.iter().filter(|from| *from != to) {
                    edges.entry((from, to)).or_default().push(event);
                }
            }
            None if from == &["Ended"] => unchanged.push(format!("{event} of an ended order")),
            None if event != "_" => unchanged.push(event.clone()),
            None => {}
        }
    }
    for ((from, to), events) in edges {
        let to_place = place(to)?;
        // The places where an arrow begins and ends, and where its events are written.
        let (begin, end, text) = match (from, to) {
            ("open", "Ended") => {
                let end = (to_place.0, to_place.1 + 22.0);
                ((FRAME[1].0, end.1), end, (FRAME[1].0 + 12.0, end.1 - 10.0))
            }
            ("open", "Working") => {
                let end = (to_place.0 + BOX.0 / 2.0, to_place.1);
                ((end.0, FRAME[0].1), end, (150.0, FRAME[0].1 + 18.0))
            }
            ("Sent", "Ended") => {
                let begin = (place(from)?.0 + BOX.0 / 2.0, place(from)?.1 + BOX.1);
                let end = (to_place.0 + BOX.0 / 2.0, to_place.1 + BOX.1);
                drawing.path(&[begin, (begin.0, 316.0), (end.0, 316.0)], colour(0), 1.4);
                ((end.0, 316.0), end, (begin.0 + 8.0, 334.0))
            }
            ("Ended", "Working") => {
                let begin = (place(from)?.0 + BOX.0 / 2.0, place(from)?.1);
                let end = (to_place.0 + BOX.0, to_place.1 + 12.0);
                drawing.path(&[begin, (begin.0, end.1)], colour(0), 1.4);
                ((begin.0, end.1), end, (FRAME[1].0 + 12.0, end.1 - 8.0))
            }
            ("Sent", _) => {
                let (x, y) = place(from)?;
                let label = if to_place.1 > y { to_place.1 - 8.0 } else { to_place.1 + 48.0 };
                ((x + BOX.0, y + 22.0), (to_place.0, to_place.1 + 22.0), (x + BOX.0 + 24.0, label))
            }
            ("Working", _) => {
                let (x, y) = place(from)?;
                let begin = (x + BOX.0 / 2.0, y + BOX.1);
                (begin, (begin.0, to_place.1), (begin.0 + 8.0, f64::midpoint(begin.1, to_place.1) + 4.0))
            }
            _ => return Err(format!("{SOURCE}: the picture has no place for {from} -> {to}")),
        };
        drawing.arrow(&[begin, end], colour(0), 1.4);
        // Events are one below the other at the arrow from the frame, and in one line elsewhere.
        if (from, to) == ("open", "Ended") {
            for (line, event) in events.iter().enumerate() {
                let below = if line == 0 { 0.0 } else { 14.0 };
                drawing.text("ink", (text.0, text.1 + below + 16.0 * line as f64), Anchor::Start, event);
            }
        } else {
            drawing.text("ink", text, Anchor::Start, &events.join(", "));
        }
    }
    let note =
        format!("These do not change the state: {}. Any other report is unexpected.", unchanged.join(", "));
    drawing.text("faint", (16.0, HEIGHT - 14.0), Anchor::Start, &note);
    Ok(drawing
        .finish("The states of an order at the gateway, and the venue's reports that change them", HEIGHT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_of_the_machine_is_read_and_drawn() {
        let path = process::root().join(SOURCE);
        let rows = rows(&std::fs::read_to_string(path).unwrap()).unwrap();
        assert!(rows.len() > 15, "{rows:?}");
        let drawn = draw(&rows).unwrap();
        for row in rows.iter().filter(|row| row.event != "_") {
            assert!(drawn.contains(&row.event), "{row:?}");
        }
    }

    #[test]
    fn a_state_without_a_place_is_an_error() {
        let rows = [row("Sent + Lost => lose -> Gone;").unwrap()];
        assert_eq!(draw(&rows), Err(format!("{SOURCE}: the picture has no state Gone")));
        assert!(row("Sent + Lost").is_err());
    }
}
