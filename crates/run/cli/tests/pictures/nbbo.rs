//! How the synthetic NBBO is composed of the venues' best prices.

use serde_json::Value;
use tapeworks_drawing::{Anchor, Drawing, colour};

use super::{Folder, compare_with_book, run, session, stdout};

const WIDTH: f64 = 900.0;
/// The round lot of the instrument.
const LOT: u64 = 100;

const ROW: f64 = 34.0;
const TOP: f64 = 64.0;
const MIDDLE: f64 = WIDTH * 0.54;
/// Widths of a price, and of the longest bar.
const PRICE: f64 = 62.0;
const BAR: f64 = 200.0;

/// A venue's side: its price, and its size in shares.
fn side(row: &Value, side: &str) -> Option<(String, u64)> {
    let side = &row[side];
    Some((side["price"].as_str()?.to_owned(), side["size"].as_u64()?))
}

/// Shares of a venue that count in the NBBO: whole lots at the best price.
fn lots(venue: &Value, nbbo: &Value, name: &str) -> u64 {
    let (Some((price, size)), Some((best, _))) = (side(venue, name), side(nbbo, name)) else { return 0 };
    if price == best { size / LOT * LOT } else { 0 }
}

fn draw(instrument: &Value) -> String {
    let symbol = instrument["symbol"].as_str().unwrap();
    let nbbo = &instrument["nbbo"];
    let mut rows: Vec<(&str, &Value)> = instrument["tops"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row["venue"].as_str().unwrap(), row))
        .collect();
    rows.push(("synthetic NBBO", nbbo));
    let sizes = rows.iter().flat_map(|(_, row)| ["bid", "ask"].map(|name| side(row, name)));
    let largest = sizes.flatten().map(|(_, size)| size).max().unwrap() as f64;
    let mut drawing = Drawing::new(WIDTH);
    drawing.text(
        "strong",
        (16.0, 28.0),
        Anchor::Start,
        &format!("{symbol}: each venue's best bid and offer"),
    );
    drawing.text("faint", (MIDDLE - 12.0, TOP - 10.0), Anchor::End, "bid: shares, price");
    drawing.text("faint", (MIDDLE + 12.0, TOP - 10.0), Anchor::Start, "offer: price, shares");
    for (number, (name, row)) in rows.iter().enumerate() {
        let is_nbbo = number + 1 == rows.len();
        let y = TOP + ROW * number as f64 + if is_nbbo { 16.0 } else { 0.0 };
        if is_nbbo {
            drawing.line("axis", (16.0, y - 6.0), (WIDTH - 16.0, y - 6.0));
        }
        let class = if is_nbbo { "strong" } else { "ink" };
        drawing.text(class, (16.0, y + 19.0), Anchor::Start, name);
        for (name, direction, anchor) in [("bid", -1.0, Anchor::End), ("ask", 1.0, Anchor::Start)] {
            let Some((price, size)) = side(row, name) else { continue };
            let counts = is_nbbo || lots(row, nbbo, name) > 0;
            let shade = if counts { colour(0) } else { "#9ca3af" };
            let width = size as f64 / largest * BAR;
            let inner = MIDDLE + direction * (PRICE + 12.0);
            let left = if direction < 0.0 { inner - width } else { inner };
            drawing.rectangle((left, y + 5.0), (width, ROW - 14.0), shade);
            drawing.text(class, (MIDDLE + direction * 12.0, y + 19.0), anchor, &price);
            let outer = inner + direction * (width + 6.0);
            drawing.text("faint", (outer, y + 19.0), anchor, &size.to_string());
        }
    }
    let height = TOP + ROW * rows.len() as f64 + 56.0;
    let largest_venue = |name: &str| nbbo[name]["venue"].as_str().unwrap_or("none").to_owned();
    let note = format!(
        "Blue: counts, rounded down to lots of {LOT} shares. Grey: a worse price, or an odd lot. The record names {} (bid) and {} (offer).",
        largest_venue("bid"),
        largest_venue("ask"),
    );
    drawing.text("faint", (16.0, height - 14.0), Anchor::Start, &note);
    drawing.finish(&format!("How the synthetic NBBO of {symbol} is composed"), height)
}

#[test]
fn the_picture_of_the_nbbo_shows_the_venues_of_a_replay() {
    let folder = Folder::new("picture-nbbo");
    let session = session(&folder);
    let to = "2025-11-14T15:59[America/New_York]";
    let output = run(&["replay", &session, "--to", to, "--json"]);
    let summary: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let busiest = &summary["busiest"][0];
    for name in ["bid", "ask"] {
        let venues = busiest["tops"].as_array().unwrap();
        let sum: u64 = venues.iter().map(|venue| lots(venue, &busiest["nbbo"], name)).sum();
        assert_eq!(side(&busiest["nbbo"], name).unwrap().1, sum, "{busiest}");
    }
    compare_with_book("nbbo", &draw(busiest));
}
