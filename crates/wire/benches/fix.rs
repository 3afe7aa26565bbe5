//! Nanoseconds for a FIX message: reading with everything checked, framing, walking by number, writing.
//!
//! `cargo bench -p tapeworks-wire --bench fix [-- PART OF A NAME]`. It reads 20,000 different new orders of some 190 bytes and as many execution reports
//! of some 270. Each is seeded: other ids, prices, times, and some fields that come or not. Reading includes the length, the
//! checksum, the types of all declared fields, the required ones, and duplicates. Numbers are the fastest of the rounds; the
//! median stands beside it.

#![allow(clippy::unwrap_used, reason = "a bench that cannot write its messages has no figures")]

use std::hint::black_box;
use std::time::Instant;

use tapeworks_wire::fix::order_entry::{ExecutionReport, NewOrderSingle};
use tapeworks_wire::fix::{Fields, Framing, Writer, next_message};
use tapeworks_wire::schema::SplitMix64;

mod orders;
use orders::Values;

const MESSAGES: usize = 20_000;
const ROUNDS: usize = 60;

/// Messages one behind the other, as a stream, and where each is.
struct Stream {
    bytes: Vec<u8>,
    places: Vec<(usize, usize)>,
}

impl Stream {
    fn of(values: &[Values], write: impl for<'b> Fn(&Values, &'b mut [u8]) -> &'b [u8]) -> Self {
        let (mut bytes, mut places, mut buffer) = (Vec::new(), Vec::new(), [0; 1_024]);
        for each in values {
            let message = write(each, &mut buffer);
            places.push((bytes.len(), bytes.len() + message.len()));
            bytes.extend_from_slice(message);
        }
        Self { bytes, places }
    }

    fn messages(&self) -> impl Iterator<Item = &[u8]> {
        self.places.iter().map(|(start, end)| &self.bytes[*start..*end])
    }
}

/// The fastest and the median of the rounds, in nanoseconds for a message.
fn measure(name: &str, mut round: impl FnMut()) {
    // Cargo passes `--bench`; another argument is a part of the name.
    if std::env::args().skip(1).any(|part| !part.starts_with('-') && !name.contains(&part)) {
        return;
    }
    let mut times: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            round();
            start.elapsed().as_nanos() as f64 / MESSAGES as f64
        })
        .collect();
    times.sort_unstable_by(f64::total_cmp);
    println!("{name:<44} {:>7.1} {:>7.1}", times[0], times[ROUNDS / 2]);
}

/// The same fields with header and body each in order of their tags, as some engines write them.
fn by_tag(message: &[u8]) -> Vec<u8> {
    let header = [49, 56, 34, 52];
    let mut fields: Vec<_> = Fields::new(message).map(Result::unwrap).collect();
    fields.sort_by_key(|field| match field.tag {
        8 => (0, 0),
        9 => (0, 1),
        35 => (0, 2),
        10 => (3, 0),
        tag if header.contains(&tag) => (1, tag),
        tag => (2, tag),
    });
    let mut buffer = [0; 1_024];
    let mut writer = Writer::begin(&mut buffer, b"FIX.4.4", fields[2].value);
    for field in &fields[3..fields.len() - 1] {
        writer.text(field.tag, field.value);
    }
    writer.finish().unwrap().to_vec()
}

fn main() {
    let mut random = SplitMix64::new(0xf1c5);
    let values: Vec<Values> =
        (1..=MESSAGES as u64).map(|sequence| Values::random(&mut random, sequence)).collect();
    let orders = Stream::of(&values, |values, buffer| values.write_order(buffer));
    let reports = Stream::of(&values, |values, buffer| values.write_report(buffer));
    for (name, stream) in [("order", &orders), ("execution report", &reports)] {
        let first = stream.messages().next().unwrap();
        println!(
            "{name}, {} bytes on average: {}",
            stream.bytes.len() / MESSAGES,
            first.escape_ascii().to_string().replace("\\x01", "|")
        );
    }
    println!("{:<44} {:>7} {:>7}", "ns a message", "fastest", "median");
    let read_orders = |stream: &Stream| {
        for message in stream.messages() {
            match NewOrderSingle::read(black_box(message)) {
                Ok(order) => _ = black_box(&order),
                Err(error) => panic!("{error}"),
            }
        }
    };
    let read_reports = |stream: &Stream| {
        for message in stream.messages() {
            match ExecutionReport::read(black_box(message)) {
                Ok(report) => _ = black_box(&report),
                Err(error) => panic!("{error}"),
            }
        }
    };
    measure("read a new order", || read_orders(&orders));
    measure("read an execution report", || read_reports(&reports));
    let sorted = |stream: &Stream| {
        let messages: Vec<Vec<u8>> = stream.messages().map(by_tag).collect();
        let mut places = Vec::new();
        let mut bytes = Vec::new();
        for message in messages {
            places.push((bytes.len(), bytes.len() + message.len()));
            bytes.extend(message);
        }
        Stream { bytes, places }
    };
    let (orders_by_tag, reports_by_tag) = (sorted(&orders), sorted(&reports));
    measure("read a new order, fields by tag", || read_orders(&orders_by_tag));
    measure("read an execution report, fields by tag", || read_reports(&reports_by_tag));
    measure("frame a new order", || {
        let mut rest = orders.bytes.as_slice();
        while let Framing::Message { length } = next_message(black_box(rest), 4_096) {
            rest = &rest[length..];
        }
    });
    measure("walk a new order by number", || {
        for message in orders.messages() {
            let tags: u32 = Fields::new(black_box(message)).map(|field| field.unwrap().tag).sum();
            black_box(tags);
        }
    });
    let mut buffer = [0; 1_024];
    measure("write a new order", || {
        for each in &values {
            black_box(black_box(each).write_order(&mut buffer));
        }
    });
    measure("write an execution report", || {
        for each in &values {
            black_box(black_box(each).write_report(&mut buffer));
        }
    });
}
