//! The program whose instructions `cargo xtask instructions` counts.
//!
//! It makes a seeded session of ITCH in memory, runs one of the [`STAGES`] over its first part to fill tables and
//! caches of addresses, and then over the rest inside [`counted`], the one function that callgrind counts in. It
//! prints how many messages that were. Packets, and messages of FIX and of a venue, lie in memory one by one and are counted inside
//! [`counted_messages`].
//!
//!     tapeworks-measured <decode|events|packets|live|book|nbbo|fix-order|fix-report|fix-write-order|fix-write-report|translate-order|translate-report|order>

mod fix;
mod packets;
mod translation;

use std::hint::black_box;
use std::process::ExitCode;

use tapeworks_capture::framed::{FramedReader, write_frame};
use tapeworks_capture::source::ByteSource;
use tapeworks_feed::{Feed, FeedOptions, FileFormat, Frame};
use tapeworks_generator::{Generator, MAX_MESSAGE_BYTES, Scenario, ScenarioError};
use tapeworks_market::book::BATCH;
use tapeworks_market::nbbo::NbboRules;
use tapeworks_market::{BookStage, BookUpdate, Capacity, Event, NbboStage, NbboUpdate};
use tapeworks_stage::{Inline, Sink, Stage, Through};
use tapeworks_wire::nasdaq::itch50;

/// What can be counted, and what it includes.
const STAGES: [(&str, &str); 13] = [
    ("decode", "framing and decoding into typed views"),
    ("events", "and sequence, symbols and normalised events"),
    ("packets", "the same from captured datagrams of one message each"),
    ("live", "the same from datagrams of a live line"),
    ("book", "events from a file, plus the books"),
    ("nbbo", "and the NBBO"),
    ("fix-order", "a new order of FIX read, all fields"),
    ("fix-report", "an execution report of FIX read, all fields"),
    ("fix-write-order", "a new order of FIX written"),
    ("fix-write-report", "an execution report of FIX written"),
    ("translate-order", "a new order of FIX to native bytes"),
    ("order", "a new order of FIX through a session to native bytes"),
    ("translate-report", "a native report to an ExecutionReport of FIX"),
];

/// Messages of the session; enough for the mean to settle, few enough for callgrind's fifty-fold slowness.
const MESSAGES: u64 = 400_000;
/// Of those, the ones that only warm up: the directory and the filling of the books.
const WARM_UP: usize = 200_000;
/// Symbols of the session.
const SYMBOLS: u32 = 1_000;

/// A session's messages behind their lengths, cut in two.
fn session() -> Result<[Vec<u8>; 2], ScenarioError> {
    let mut generator = Generator::new(&Scenario::benchmark(MESSAGES, SYMBOLS))?;
    let mut message = [0; MAX_MESSAGE_BYTES];
    let mut parts = [Vec::new(), Vec::new()];
    let mut number = 0;
    while let Some(generated) = generator.next_message(&mut message) {
        let part = &mut parts[usize::from(number >= WARM_UP)];
        // A Vec takes everything, and no message is longer than a frame can be.
        let Ok(()) = write_frame(part, &message[..generated.length]) else { continue };
        number += 1;
    }
    Ok(parts)
}

/// The consumer of the outputs: it looks at each as little as can be.
#[derive(Default)]
struct Taken(u64);

impl Sink<Event> for Taken {
    #[inline]
    fn put(&mut self, event: Event) {
        self.0 = self.0.wrapping_add(event.order_id);
    }
}

impl<'a> Sink<BookUpdate<'a>> for Taken {
    #[inline]
    fn put(&mut self, update: BookUpdate<'a>) {
        self.0 = self.0.wrapping_add(u64::from(update.top_changed()));
    }
}

impl<'a> Sink<NbboUpdate<'a>> for Taken {
    #[inline]
    fn put(&mut self, update: NbboUpdate<'a>) {
        self.0 = self.0.wrapping_add(u64::from(update.changed));
    }
}

/// The whole of what is counted: callgrind starts at its entry and stops at its return.
#[inline(never)]
fn counted(run: &mut dyn FnMut(&mut FramedReader) -> u64, reader: &mut FramedReader) -> u64 {
    run(reader)
}

/// The same for messages that are in memory one by one.
#[inline(never)]
fn counted_messages(run: &mut dyn FnMut()) {
    run();
}

/// Runs `run` over both parts, counting in the second. Returns its messages.
fn over(parts: [Vec<u8>; 2], run: &mut dyn FnMut(&mut FramedReader) -> u64) -> u64 {
    let [mut warm_up, mut rest] =
        parts.map(|part| FramedReader::new(ByteSource::from_bytes("session", part)));
    black_box(run(&mut warm_up));
    black_box(counted(run, &mut rest));
    rest.messages()
}

/// Calls `take` with up to [`BATCH`] messages at a time.
fn in_groups(reader: &mut FramedReader, mut take: impl FnMut(&[Frame<'_>])) {
    while let Ok(Some(mut batch)) = reader.next_batch() {
        let mut group = [Frame { file: 0, offset: 0, bytes: &[] }; BATCH];
        loop {
            let mut length = 0;
            for (place, frame) in group.iter_mut().zip(batch.by_ref()) {
                *place = Frame { file: 0, offset: frame.offset, bytes: frame.bytes };
                length += 1;
            }
            take(&group[..length]);
            if length < BATCH {
                break;
            }
        }
    }
}

fn decode(reader: &mut FramedReader) -> u64 {
    let mut sum = 0u64;
    while let Ok(Some(batch)) = reader.next_batch() {
        for frame in batch {
            sum = sum.wrapping_add(match itch50::Message::decode(frame.bytes) {
                Ok(itch50::Message::AddOrder(add)) => u64::from(add.shares()),
                Ok(itch50::Message::OrderExecuted(executed)) => u64::from(executed.executed_shares()),
                Ok(itch50::Message::OrderCancel(cancel)) => u64::from(cancel.cancelled_shares()),
                Ok(itch50::Message::OrderDelete(delete)) => delete.order_reference_number(),
                Ok(itch50::Message::OrderReplace(replace)) => u64::from(replace.shares()),
                Ok(other) => other.as_bytes().len() as u64,
                Err(_) => 0,
            });
        }
    }
    sum
}

/// Feeds messages into `stage` and counts what comes out.
fn feed_into<B: Stage<Event, Taken>>(feed: &mut Feed, stage: &mut B, reader: &mut FramedReader) -> u64 {
    let mut taken = Taken::default();
    let mut buffer = Vec::with_capacity(BATCH);
    let mut edge = Inline::new(stage, &mut buffer, &mut taken);
    let mut file = feed.file(0, FileFormat::LengthPrefixed, None);
    in_groups(reader, |frames| file.process(frames, &mut edge));
    edge.end_of_batch();
    taken.0
}

fn main() -> ExitCode {
    let stage = std::env::args().nth(1).unwrap_or_default();
    if let Some(messages) = fix::run(&stage, counted_messages) {
        println!("{messages}");
        return ExitCode::SUCCESS;
    }
    if let "translate-order" | "translate-report" | "order" = stage.as_str() {
        let messages = match stage.as_str() {
            "order" => translation::run_with_session(counted_messages),
            stage => translation::run(stage == "translate-report", counted_messages),
        };
        println!("{messages}");
        return ExitCode::SUCCESS;
    }
    let parts = match session() {
        Ok(parts) => parts,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
    };
    let capacity = Capacity::for_messages(MESSAGES);
    let mut feed = Feed::new(FeedOptions::default());
    let books = || BookStage::with_unnamed([], capacity);
    let messages = match stage.as_str() {
        "packets" => packets::captured(parts, counted_messages),
        "live" => packets::live(parts, counted_messages),
        "decode" => over(parts, &mut decode),
        "events" => over(parts, &mut |reader| {
            let mut taken = Taken::default();
            let mut file = feed.file(0, FileFormat::LengthPrefixed, None);
            in_groups(reader, |frames| file.process(frames, &mut taken));
            taken.0
        }),
        "book" => {
            let mut books = books();
            over(parts, &mut |reader| feed_into(&mut feed, &mut books, reader))
        }
        "nbbo" => {
            let nbbo = NbboStage::new(NbboRules::default(), [], capacity.instruments);
            let mut market = Through::new(books(), nbbo);
            over(parts, &mut |reader| feed_into(&mut feed, &mut market, reader))
        }
        _ => {
            eprintln!("usage: tapeworks-measured STAGE");
            STAGES.iter().for_each(|(name, what)| eprintln!("  {name:16} {what}"));
            return ExitCode::FAILURE;
        }
    };
    println!("{messages}");
    ExitCode::SUCCESS
}
