//! Diagrams: the path of a message, and the states of a channel.

use tapeworks_drawing::{Anchor, Drawing, colour};

use super::compare_with_book;

/// A card: its corner, its size, the index of its colour, its title, and its lines.
type Card = ((f64, f64), (f64, f64), usize, &'static str, &'static [&'static str]);

fn cards(drawing: &mut Drawing, cards: &[Card]) {
    for (corner, size, shade, title, lines) in cards {
        drawing.card(*corner, *size, colour(*shade), title, lines);
    }
}

fn arrows(drawing: &mut Drawing, arrows: &[&[(f64, f64)]]) {
    for points in arrows {
        drawing.arrow(points, colour(0), 1.4);
    }
}

fn path_of_a_message() -> String {
    let mut drawing = Drawing::new(1_000.0);
    let edge = |y: f64| [(186.0, y), (744.0, y)];
    drawing.band(&edge(16.0), &edge(204.0), "#9ca3af");
    drawing.text("faint", (198.0, 36.0), Anchor::Start, "one thread, no queue");
    cards(
        &mut drawing,
        &[
            ((16.0, 32.0), (146.0, 64.0), 1, "lines A and B", &["UDP multicast"]),
            ((16.0, 124.0), (146.0, 64.0), 1, "capture files", &["pcap, pcapng, ITCH"]),
            ((198.0, 78.0), (118.0, 64.0), 0, "sequence", &["first copy wins,", "gaps are filled"]),
            ((336.0, 78.0), (122.0, 64.0), 0, "decode", &["a venue's bytes to", "64-byte events"]),
            ((478.0, 78.0), (118.0, 64.0), 0, "books", &["orders and levels", "of each venue"]),
            ((616.0, 78.0), (116.0, 64.0), 0, "NBBO", &["over all venues,", "in round lots"]),
            ((776.0, 16.0), (208.0, 54.0), 2, "files", &["DBN, Parquet, CSV, JSON"]),
            ((776.0, 83.0), (84.0, 54.0), 3, "journal", &["on disk"]),
            ((884.0, 83.0), (100.0, 54.0), 2, "clients", &["TCP, multicast"]),
            ((776.0, 150.0), (208.0, 54.0), 2, "shared memory", &["local readers, the page"]),
        ],
    );
    arrows(
        &mut drawing,
        &[
            &[(162.0, 64.0), (176.0, 64.0), (197.0, 98.0)],
            &[(162.0, 156.0), (176.0, 156.0), (197.0, 122.0)],
            &[(316.0, 110.0), (335.0, 110.0)],
            &[(458.0, 110.0), (477.0, 110.0)],
            &[(596.0, 110.0), (615.0, 110.0)],
            &[(732.0, 110.0), (775.0, 43.0)],
            &[(732.0, 110.0), (775.0, 110.0)],
            &[(732.0, 110.0), (775.0, 177.0)],
            &[(860.0, 110.0), (883.0, 110.0)],
        ],
    );
    let note = "A replay reads captures and writes files. A live plant reads lines; its journal has each message before a client does.";
    drawing.text("faint", (16.0, 232.0), Anchor::Start, note);
    drawing.finish("The path of a message through Tapeworks", 248.0)
}

fn states_of_a_channel() -> String {
    let mut drawing = Drawing::new(1_000.0);
    cards(
        &mut drawing,
        &[
            ((16.0, 24.0), (150.0, 64.0), 0, "in sequence", &["books are current"]),
            ((300.0, 24.0), (150.0, 64.0), 1, "waiting", &["for the other line:", "reorder_window"]),
            ((560.0, 24.0), (150.0, 64.0), 1, "requesting", &["later messages", "are held"]),
            ((830.0, 24.0), (150.0, 64.0), 4, "given up", &["a gap record;", "books are stale"]),
            ((830.0, 174.0), (150.0, 64.0), 3, "rebuilding", &["from a snapshot"]),
        ],
    );
    arrows(
        &mut drawing,
        &[
            &[(166.0, 48.0), (298.0, 48.0)],
            &[(300.0, 72.0), (168.0, 72.0)],
            &[(450.0, 56.0), (558.0, 56.0)],
            &[(710.0, 56.0), (828.0, 56.0)],
            &[(635.0, 88.0), (635.0, 132.0), (126.0, 132.0), (126.0, 90.0)],
            &[(880.0, 88.0), (880.0, 172.0)],
            &[(930.0, 174.0), (930.0, 90.0)],
            &[(830.0, 206.0), (60.0, 206.0), (60.0, 90.0)],
        ],
    );
    let labels: [(&str, (f64, f64), Anchor); 8] = [
        ("both lines lose it", (233.0, 40.0), Anchor::Middle),
        ("a line fills it", (233.0, 88.0), Anchor::Middle),
        ("window over", (504.0, 48.0), Anchor::Middle),
        ("limit reached", (769.0, 48.0), Anchor::Middle),
        ("the answers fill it: recovered", (390.0, 126.0), Anchor::Middle),
        ("request", (872.0, 128.0), Anchor::End),
        ("failed", (938.0, 128.0), Anchor::Start),
        ("the snapshot and the messages after it are applied", (440.0, 200.0), Anchor::Middle),
    ];
    for (text, place, anchor) in labels {
        drawing.text("ink", place, anchor, text);
    }
    let note = "A failed snapshot is requested again. Without a snapshot server, messages that arrive late end the gap; only the books that they name stay stale.";
    drawing.text("faint", (16.0, 270.0), Anchor::Start, note);
    drawing.finish("The states of a channel around a gap", 286.0)
}

#[test]
fn the_diagrams_of_the_book_are_up_to_date() {
    compare_with_book("path", &path_of_a_message());
    compare_with_book("gap", &states_of_a_channel());
}
