//! ITCH: decode, books, NBBO, against peers and the naive book; and the service time of each message.

use tapeworks_analysis::timer::ServiceTimer;
use tapeworks_feed::{Feed, FeedOptions, FileFormat, Frame};
use tapeworks_generator::Scenario;
use tapeworks_market::book::BATCH;
use tapeworks_market::nbbo::NbboRules;
use tapeworks_market::{BookStage, BookUpdate, Capacity, Event, NbboStage, NbboUpdate, Publisher};
use tapeworks_stage::{Inline, Sink, Stage, Through};
use tapeworks_time::Nanos;
use tapeworks_wire::framing::{BigEndian, Blocks};
use tapeworks_wire::nasdaq::itch50::{Message, OrderMessage};

use crate::Options;
use crate::naive::NaiveBook;
use crate::peers;
use crate::rounds::Rounds;

/// The file, in memory: 20 M messages of 8,000 symbols at random are some 600 MB.
pub fn file(options: &Options) -> (Vec<u8>, u64) {
    let scenario = Scenario::benchmark(options.messages, options.symbols);
    let mut bytes = Vec::with_capacity(options.messages as usize * 32);
    let report =
        tapeworks_generator::write_itch(&scenario, &mut bytes).expect("writing to memory does not fail");
    (bytes, report.messages)
}

/// The file without the types that `itchy` panics on (`h` and `O`, a handful of messages), so that all decoders read
/// the same.
fn without_newer_types(bytes: &[u8]) -> (Vec<u8>, u64) {
    let mut kept = Vec::with_capacity(bytes.len());
    let mut messages = 0;
    for message in Blocks::new(bytes, BigEndian).filter_map(Result::ok) {
        if !matches!(message.first(), Some(b'h' | b'O')) {
            kept.extend_from_slice(&(message.len() as u16).to_be_bytes());
            kept.extend_from_slice(message);
            messages += 1;
        }
    }
    (kept, messages)
}

pub fn run(options: &Options) {
    let (bytes, _) = file(options);
    let (bytes, messages) = without_newer_types(&bytes);
    println!("file: {messages} messages, {} symbols at random, {} bytes", options.symbols, bytes.len());
    println!(
        "the file is in memory; each variant reads it from the start; books begin empty; tables are allocated before\n"
    );

    let mut decode = Rounds::new(messages);
    decode.add("tapeworks-wire, order messages in one shape", || orders(&bytes));
    decode.add("tapeworks-wire, typed views", || typed_views(&bytes));
    decode.add("itch5 0.1.5, a visitor's methods", || peers::itch5(&bytes));
    decode.add("itchy 0.3.4, an owned enum", || peers::itchy(&bytes));
    decode.add("frames walked, types read", || walk(&bytes));
    decode.add("tapeworks-feed: normalised 64-byte events", || events(&bytes));
    let answers = decode.run("decode: all numbers of order messages", options.rounds);
    assert!(answers[..4].iter().all(|answer| answer.1 == answers[0].1), "the decoders disagree: {answers:?}");

    let capacity = Capacity::for_messages(messages);
    let mut books = Rounds::new(messages);
    books.add_prepared("decode + book + BBO", || {
        let books = books_of(capacity);
        || with_books(&bytes, books, BATCH)
    });
    books.add_prepared("decode + book + BBO, no look-ahead", || {
        let books = books_of(capacity);
        || with_books(&bytes, books, 1)
    });
    books.add_prepared("decode + book + NBBO", || {
        let market = market_of(capacity);
        || with_nbbo(&bytes, market, None)
    });
    books.add("decode + naive book (BTreeMap + HashMap)", || naive(&bytes));
    books.run("books", options.rounds);

    let mut timer = ServiceTimer::new();
    with_nbbo(&bytes, market_of(capacity), Some(&mut timer));
    let times = timer.histogram();
    println!("service time per message, decode + book + NBBO, ns, of {} messages measured:", times.len());
    print!("mean {:.1}", times.mean());
    for quantile in [50.0, 90.0, 99.0, 99.9, 99.99] {
        print!("  p{quantile} {}", times.value_at_percentile(quantile));
    }
    println!("  max {}", times.max());
    println!("(one group of {BATCH} in 16 is measured; the time-stamp counter's own ~8 ns are included)");
}

/// The framing alone.
fn walk(bytes: &[u8]) -> u64 {
    Blocks::new(bytes, BigEndian).filter_map(Result::ok).fold(0, |sum, message| {
        sum.wrapping_add(message.first().copied().map_or(0, u64::from)).wrapping_add(message.len() as u64)
    })
}

#[inline(never)]
fn orders(bytes: &[u8]) -> u64 {
    let mut sum = 0u64;
    for message in Blocks::new(bytes, BigEndian).filter_map(Result::ok) {
        if let Some(m) = OrderMessage::decode(message) {
            sum = sum
                .wrapping_add(m.stock_locate.into())
                .wrapping_add(m.timestamp.0)
                .wrapping_add(m.order_reference_number)
                .wrapping_add(m.buy_sell_indicator.into())
                .wrapping_add(m.shares.into())
                .wrapping_add(m.price.into())
                .wrapping_add(m.other_number);
        }
    }
    sum
}

#[inline(never)]
fn typed_views(bytes: &[u8]) -> u64 {
    let mut sum = 0u64;
    let mut add = |values: [u64; 6]| values.into_iter().for_each(|value| sum = sum.wrapping_add(value));
    for message in Blocks::new(bytes, BigEndian).filter_map(Result::ok) {
        match Message::decode(message) {
            Ok(Message::AddOrder(m)) => add([
                m.stock_locate().into(),
                m.timestamp().0,
                m.order_reference_number(),
                m.buy_sell_indicator().raw().into(),
                m.shares().into(),
                m.price().0.into(),
            ]),
            Ok(Message::AddOrderWithMpid(m)) => add([
                m.stock_locate().into(),
                m.timestamp().0,
                m.order_reference_number(),
                m.buy_sell_indicator().raw().into(),
                m.shares().into(),
                m.price().0.into(),
            ]),
            Ok(Message::OrderExecuted(m)) => add([
                m.stock_locate().into(),
                m.timestamp().0,
                m.order_reference_number(),
                m.executed_shares().into(),
                m.match_number(),
                0,
            ]),
            Ok(Message::OrderExecutedWithPrice(m)) => add([
                m.stock_locate().into(),
                m.timestamp().0,
                m.order_reference_number(),
                m.executed_shares().into(),
                m.match_number(),
                m.execution_price().0.into(),
            ]),
            Ok(Message::OrderCancel(m)) => add([
                m.stock_locate().into(),
                m.timestamp().0,
                m.order_reference_number(),
                m.cancelled_shares().into(),
                0,
                0,
            ]),
            Ok(Message::OrderDelete(m)) => {
                add([m.stock_locate().into(), m.timestamp().0, m.order_reference_number(), 0, 0, 0]);
            }
            Ok(Message::OrderReplace(m)) => add([
                m.stock_locate().into(),
                m.timestamp().0,
                m.original_order_reference_number(),
                m.new_order_reference_number(),
                m.shares().into(),
                m.price().0.into(),
            ]),
            _ => {}
        }
    }
    sum
}

#[inline(never)]
fn events(bytes: &[u8]) -> u64 {
    struct Count(u64);
    impl Sink<Event> for Count {
        #[inline]
        fn put(&mut self, event: Event) {
            // Depends on every part of the event, so that it is made in full.
            self.0 = self.0.wrapping_add(std::hint::black_box(event).order_id);
        }
    }
    let mut feed = Feed::new(FeedOptions::default());
    let mut count = Count(0);
    let mut stage = feed.file(0, FileFormat::LengthPrefixed, Some(Nanos(0)));
    for message in Blocks::new(bytes, BigEndian).filter_map(Result::ok) {
        stage.process(&[Frame { file: 0, offset: 0, bytes: message }], &mut count);
    }
    count.0
}

/// Counts updates that changed the best price.
#[derive(Default)]
pub struct Tops(pub u64);

impl Sink<BookUpdate<'_>> for Tops {
    #[inline]
    fn put(&mut self, update: BookUpdate<'_>) {
        self.0 += u64::from(update.top_changed());
    }
}

fn books_of(capacity: Capacity) -> BookStage {
    BookStage::new([(Publisher::XNAS_ITCH, capacity)])
}

fn market_of(capacity: Capacity) -> Through<BookStage, NbboStage> {
    let nbbo = NbboStage::new(NbboRules::default(), [Publisher::XNAS_ITCH], capacity.instruments);
    Through::new(books_of(capacity), nbbo)
}

/// Runs the file through feed and books in batches of `batch` events.
#[inline(never)]
fn with_books(bytes: &[u8], mut books: BookStage, batch: usize) -> u64 {
    let mut feed = Feed::new(FeedOptions::default());
    let mut buffer = Vec::with_capacity(batch);
    let mut tops = Tops(0);
    {
        let mut edge = Inline::new(&mut books, &mut buffer, &mut tops);
        let mut stage = feed.file(0, FileFormat::LengthPrefixed, Some(Nanos(0)));
        for message in Blocks::new(bytes, BigEndian).filter_map(Result::ok) {
            stage.process(&[Frame { file: 0, offset: 0, bytes: message }], &mut edge);
        }
        edge.end_of_batch();
    }
    assert_eq!(books.feeds()[0].counters().rejected(), 0, "the file is sound");
    tops.0
}

struct Changes<'t> {
    changes: u64,
    timer: Option<&'t mut ServiceTimer>,
}

impl Sink<NbboUpdate<'_>> for Changes<'_> {
    #[inline]
    fn put(&mut self, update: NbboUpdate<'_>) {
        self.changes += u64::from(update.changed);
        if let Some(timer) = &mut self.timer {
            timer.complete();
        }
    }
}

#[inline(never)]
fn with_nbbo(
    bytes: &[u8],
    mut market: Through<BookStage, NbboStage>,
    timer: Option<&mut ServiceTimer>,
) -> u64 {
    let mut feed = Feed::new(FeedOptions::default());
    let mut buffer = Vec::with_capacity(BATCH);
    let mut sink = Changes { changes: 0, timer };
    let mut frames = Blocks::new(bytes, BigEndian).filter_map(Result::ok).peekable();
    let mut stage = feed.file(0, FileFormat::LengthPrefixed, Some(Nanos(0)));
    let mut group = 0u64;
    while frames.peek().is_some() {
        group += 1;
        let is_measured = sink.timer.is_some() && group.is_multiple_of(16);
        if let (true, Some(timer)) = (is_measured, &mut sink.timer) {
            timer.begin();
        }
        let mut edge = Inline::new(&mut market, &mut buffer, &mut sink);
        for message in frames.by_ref().take(BATCH) {
            stage.process(&[Frame { file: 0, offset: 0, bytes: message }], &mut edge);
        }
        edge.end_of_batch();
        if let (true, Some(timer)) = (is_measured, &mut sink.timer) {
            timer.end();
        }
    }
    sink.changes
}

fn naive(bytes: &[u8]) -> u64 {
    let mut book = NaiveBook::default();
    for message in Blocks::new(bytes, BigEndian).filter_map(Result::ok) {
        if let Ok(message) = Message::decode(message) {
            book.apply(message);
        }
    }
    book.tops
}
