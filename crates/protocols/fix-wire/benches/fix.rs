//! Nanoseconds for a FIX message: reading with everything checked, framing, walking by number, writing.
//!
//! `cargo bench -p tapeworks-fix-wire --bench fix [-- PART OF A NAME]` reads 20,000 new orders of about 190 bytes and as many execution
//! reports of about 270. Ids, prices and times vary by seed, and some fields are optional. Reading checks the length, the checksum, the
//! types of all declared fields, required fields, and duplicates. The figures are the fastest round, with the median next to it.

#![allow(clippy::unwrap_used, reason = "a bench that cannot write its messages has no figures")]

use std::hint::black_box;
use std::time::Instant;

use tapeworks_fix_wire::order_entry::{ExecutionReport, NewOrderSingle};
use tapeworks_fix_wire::{Fields, Framing, LastTimestamp, Writer, next_message};
use tapeworks_wire::schema::SplitMix64;

mod orders;
use orders::{Sender, Values};

const MESSAGES: usize = 20_000;
const ROUNDS: usize = 60;

/// Messages one behind the other, as a stream, and where each is.
struct Stream {
    bytes: Vec<u8>,
    places: Vec<(usize, usize)>,
}

impl Stream {
    fn of(values: &[Values], write: impl for<'s> Fn(&'s mut Sender, &Values) -> &'s [u8]) -> Self {
        let (mut bytes, mut places, mut sender) = (Vec::new(), Vec::new(), Sender::new());
        for each in values {
            let message = write(&mut sender, each);
            places.push((bytes.len(), bytes.len() + message.len()));
            bytes.extend_from_slice(message);
        }
        Self { bytes, places }
    }

    fn messages(&self) -> impl Iterator<Item = &[u8]> {
        self.places.iter().map(|(start, end)| &self.bytes[*start..*end])
    }
}

/// The fastest and the median of the rounds, in nanoseconds for a message, and the fastest for a byte of it.
fn measure(name: &str, stream: &Stream, mut round: impl FnMut()) {
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
    let bytes = stream.bytes.len() as f64 / MESSAGES as f64;
    println!("{name:<44} {:>7.1} {:>7.1} {:>7.2}", times[0], times[ROUNDS / 2], times[0] / bytes);
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
    let orders = Stream::of(&values, Sender::order);
    let reports = Stream::of(&values, Sender::report);
    for (name, stream) in [("order", &orders), ("execution report", &reports)] {
        let first = stream.messages().next().unwrap();
        println!(
            "{name}, {} bytes on average: {}",
            stream.bytes.len() / MESSAGES,
            first.escape_ascii().to_string().replace("\\x01", "|")
        );
    }
    println!("{:<44} {:>7} {:>7} {:>7}", "ns a message", "fastest", "median", "ns/byte");
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
    let read_orders_in_place = |stream: &Stream| {
        let (mut order, mut last) = (NewOrderSingle::unread(), LastTimestamp::NONE);
        for message in stream.messages() {
            match order.read_into_behind(black_box(message), &mut last) {
                Ok(()) => _ = black_box(&order),
                Err(error) => panic!("{error}"),
            }
        }
    };
    let read_reports_in_place = |stream: &Stream| {
        let (mut report, mut last) = (ExecutionReport::unread(), LastTimestamp::NONE);
        for message in stream.messages() {
            match report.read_into_behind(black_box(message), &mut last) {
                Ok(()) => _ = black_box(&report),
                Err(error) => panic!("{error}"),
            }
        }
    };
    measure("read a new order in place", &orders, || read_orders_in_place(&orders));
    measure("read an execution report in place", &reports, || read_reports_in_place(&reports));
    measure("read a new order", &orders, || read_orders(&orders));
    measure("read an execution report", &reports, || read_reports(&reports));
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
    measure("read a new order, fields by tag", &orders, || read_orders(&orders_by_tag));
    measure("read an execution report, fields by tag", &reports, || read_reports(&reports_by_tag));
    measure("frame a new order", &orders, || {
        let mut rest = orders.bytes.as_slice();
        while let Framing::Message { length } = next_message(black_box(rest), 4_096) {
            rest = &rest[length..];
        }
    });
    measure("walk a new order by number", &orders, || {
        for message in orders.messages() {
            let tags: u32 = Fields::new(black_box(message)).map(|field| field.unwrap().tag).sum();
            black_box(tags);
        }
    });
    let mut sender = Sender::new();
    measure("write a new order", &orders, || {
        for each in &values {
            black_box(sender.order(black_box(each)));
        }
    });
    measure("write an execution report", &reports, || {
        for each in &values {
            black_box(sender.report(black_box(each)));
        }
    });
}
