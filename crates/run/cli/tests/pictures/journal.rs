//! The layout of a journal's segment, drawn from the bytes of one.

use std::fs;

use tapeworks_drawing::{Anchor, Drawing, colour};
use tapeworks_journal::{JournalOptions, JournalWriter, Record};

use super::{Folder, compare_with_book};

const WIDTH: f64 = 960.0;
const LEFT: f64 = 16.0;
/// Width of a byte in the rows of fields, in pixels.
const BYTE: f64 = 20.0;
const FIELD_HEIGHT: f64 = 46.0;

/// Bytes of a segment's header, and of a record's.
const SEGMENT_HEADER: usize = 64;
const RECORD_HEADER: usize = 40;

/// A field: its name, its first byte, its length in bytes.
type Field = (&'static str, usize, usize);

const SEGMENT_FIELDS: [Field; 5] =
    [("magic", 0, 8), ("first number", 8, 8), ("time, ns", 16, 8), ("CRC-32", 24, 4), ("zeros", 28, 36)];

const RECORD_FIELDS: [Field; 9] = [
    ("CRC-32", 0, 4),
    ("length", 4, 4),
    ("number", 8, 8),
    ("time, ns", 16, 8),
    ("extra", 24, 8),
    ("chan.", 32, 2),
    ("kind", 34, 1),
    ("line", 35, 1),
    ("zeros", 36, 4),
];

/// Appends two records, and reads the segment back.
fn segment(records: &[Record<'_>]) -> Vec<u8> {
    let folder = Folder::new("picture-journal");
    let path = folder.path("journal");
    let options = JournalOptions { segment_bytes: 4_096, ..JournalOptions::default() };
    let (mut writer, _) = JournalWriter::open(path.as_ref(), options).unwrap();
    for record in records {
        writer.append(record).unwrap();
    }
    writer.flush().unwrap();
    let named =
        |path: &std::path::PathBuf| path.file_stem().unwrap().to_str().unwrap().parse::<u64>().is_ok();
    let mut files = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    fs::read(files.find(named).unwrap()).unwrap()
}

/// A number, little-endian.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// A row of fields, with the value of each in `bytes`.
fn row(drawing: &mut Drawing, top: f64, fields: &[Field], bytes: &[u8]) {
    for (place, (name, start, length)) in fields.iter().enumerate() {
        let left = LEFT + *start as f64 * BYTE;
        // Zeros to the end of the segment's header are cut at the margin.
        let right = (left + *length as f64 * BYTE - 2.0).min(WIDTH - LEFT);
        let edge = |y: f64| [(left, y), (right, y)];
        drawing.band(&edge(top), &edge(top + FIELD_HEIGHT), colour(place % 2));
        let middle = f64::midpoint(left, right);
        let value = &bytes[*start..start + length];
        let shown = match *name {
            "magic" => String::from_utf8(value.to_vec()).unwrap(),
            "CRC-32" => format!("{:08x}", number(value)),
            "zeros" => String::new(),
            "time, ns" => format!("{}·10⁹", number(value) / 1_000_000_000),
            _ => number(value).to_string(),
        };
        // Fields of one byte have their names above, where there is room.
        let narrow = *length == 1;
        let name_at = if narrow { top - 18.0 - 13.0 * (*start % 2) as f64 } else { top + 19.0 };
        drawing.text("ink", (middle, name_at), Anchor::Middle, name);
        drawing.text("faint", (middle, top + 37.0), Anchor::Middle, &shown);
        if !narrow {
            drawing.text("faint", (left, top - 4.0), Anchor::Start, &start.to_string());
        }
    }
}

fn draw(bytes: &[u8], records: &[Record<'_>]) -> String {
    let mut drawing = Drawing::new(WIDTH);
    drawing.text(
        "strong",
        (LEFT, 26.0),
        Anchor::Start,
        "a segment: a file of a fixed size, named after its first record",
    );
    let parts = [
        ("segment header", "64 bytes", 160.0),
        ("record 0", "40 bytes + payload", 170.0),
        ("record 1", "40 bytes + payload", 210.0),
        ("...", "", 60.0),
        ("zeros up to the reserved size", "", 310.0),
    ];
    let mut left = LEFT;
    for (place, (name, size, width)) in parts.iter().enumerate() {
        let shade = if place < 3 { colour(place) } else { "#9ca3af" };
        let lines: &[&str] = if size.is_empty() { &[] } else { std::slice::from_ref(size) };
        drawing.card((left, 40.0), (*width, 54.0), shade, name, lines);
        left += width + 4.0;
    }
    drawing.text("strong", (LEFT, 132.0), Anchor::Start, "the segment's header");
    row(&mut drawing, 154.0, &SEGMENT_FIELDS, bytes);
    drawing.text("strong", (LEFT, 252.0), Anchor::Start, "a record's header, and its payload");
    let first = &bytes[SEGMENT_HEADER..];
    row(&mut drawing, 288.0, &RECORD_FIELDS, first);
    let payload_left = LEFT + RECORD_HEADER as f64 * BYTE;
    let payload = String::from_utf8(records[0].payload.to_vec()).unwrap();
    let size = (WIDTH - LEFT - payload_left, FIELD_HEIGHT);
    drawing.card((payload_left, 288.0), size, colour(2), "payload", &[&payload]);
    drawing.text("faint", (payload_left, 284.0), Anchor::Start, &RECORD_HEADER.to_string());
    let note =
        "Little-endian. A record's CRC-32 covers the rest of the record, the segment's the bytes before it.";
    drawing.text("faint", (LEFT, 360.0), Anchor::Start, note);
    drawing.finish("The layout of a segment of a journal", 376.0)
}

#[test]
fn the_picture_of_a_journal_shows_the_bytes_of_one() {
    let record = |time, payload| Record { time, kind: 1, channel: 3, payload, ..Record::default() };
    let records = [
        record(1_763_130_600_000_000_000, &b"one datagram"[..]),
        record(1_763_130_600_000_004_200, &b"another one"[..]),
    ];
    let bytes = segment(&records);
    // What the picture says of the layout holds for these bytes.
    assert_eq!(number(&bytes[16..24]), records[0].time);
    let mut at = SEGMENT_HEADER;
    for (index, record) in records.iter().enumerate() {
        let length = number(&bytes[at + 4..at + 8]) as usize;
        assert_eq!(
            (number(&bytes[at + 8..at + 16]), number(&bytes[at + 16..at + 24])),
            (index as u64, record.time)
        );
        assert_eq!(&bytes[at + RECORD_HEADER..at + RECORD_HEADER + length], record.payload);
        at += RECORD_HEADER + length;
    }
    assert!(bytes[at..].iter().all(|byte| *byte == 0));
    compare_with_book("journal", &draw(&bytes, &records));
}
