//! Messages that name another symbol than their stock locate stands for: the books of others are as without them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};

use tapeworks_feed::{Contradiction, Feed, FeedOptions, FileFormat, Frame, ProblemKind};
use tapeworks_generator::{Generator, MAX_MESSAGE_BYTES, Scenario};
use tapeworks_market::{BookStage, BookUpdate, Capacity, Event, EventKind, InstrumentId, Publisher, Side};
use tapeworks_stage::{Inline, Sink, Stage};
use tapeworks_time::Nanos;
use tapeworks_wire::Ascii;

fn messages(count: u64, symbols: u32, seed: u64) -> Vec<Vec<u8>> {
    let mut scenario = Scenario::full_session(count, symbols);
    scenario.seed = seed;
    let mut generator = Generator::new(&scenario).unwrap();
    let mut bytes = [0; MAX_MESSAGE_BYTES];
    std::iter::from_fn(|| generator.next_message(&mut bytes).map(|made| bytes[..made.length].to_vec()))
        .collect()
}

/// A message of this type and length, whose symbol is at 11 as in all types that begin with locate, tracking number, time and stock.
fn about(kind: u8, length: usize, locate: u16, stock: &[u8; 8]) -> Vec<u8> {
    let mut bytes = vec![b' '; length];
    bytes[0] = kind;
    bytes[1..3].copy_from_slice(&locate.to_be_bytes());
    bytes[3..11].fill(0);
    bytes[11..19].copy_from_slice(stock);
    bytes
}

fn trading_action(locate: u16, stock: &[u8; 8]) -> Vec<u8> {
    let mut bytes = about(b'H', 25, locate, stock);
    bytes[19] = b'H';
    bytes
}

fn reg_sho(locate: u16, stock: &[u8; 8]) -> Vec<u8> {
    let mut bytes = about(b'Y', 20, locate, stock);
    bytes[19] = b'1';
    bytes
}

fn operational_halt(locate: u16, stock: &[u8; 8]) -> Vec<u8> {
    let mut bytes = about(b'h', 21, locate, stock);
    bytes[19..].copy_from_slice(b"QH");
    bytes
}

fn directory(locate: u16, stock: &[u8; 8]) -> Vec<u8> {
    let mut bytes = about(b'R', 39, locate, stock);
    bytes[21..25].copy_from_slice(&100u32.to_be_bytes());
    bytes
}

fn add(locate: u16, stock: &[u8; 8], order: u64) -> Vec<u8> {
    let mut bytes = vec![0; 36];
    bytes[0] = b'A';
    bytes[1..3].copy_from_slice(&locate.to_be_bytes());
    bytes[11..19].copy_from_slice(&order.to_be_bytes());
    bytes[19] = b'B';
    bytes[20..24].copy_from_slice(&100u32.to_be_bytes());
    bytes[24..32].copy_from_slice(stock);
    bytes[32..].copy_from_slice(&1_000_000u32.to_be_bytes());
    bytes
}

/// The orders of a book (number, shares, price), its levels, and whether it is stale.
type Book = (Vec<(u64, u32, i64)>, Vec<(i64, u32)>, bool);

struct Outcome {
    feed: Feed,
    books: BTreeMap<String, Book>,
    events: Vec<Event>,
}

fn run(messages: &[Vec<u8>]) -> Outcome {
    struct Nothing;
    impl<'a> Sink<BookUpdate<'a>> for Nothing {
        fn put(&mut self, _update: BookUpdate<'a>) {}
    }
    let mut feed = Feed::new(FeedOptions::default());
    let mut events: Vec<Event> = Vec::new();
    let mut offset = 0;
    {
        let mut file = feed.file(0, FileFormat::LengthPrefixed, Some(Nanos(0)));
        for bytes in messages {
            file.process(&[Frame { file: 0, offset, bytes }], &mut |event: Event| events.push(event));
            offset += 2 + bytes.len() as u64;
        }
    }
    let mut stage = BookStage::new([(Publisher::XNAS_ITCH, Capacity::default())]);
    let (mut buffer, mut nothing) = (Vec::with_capacity(64), Nothing);
    let mut edge = Inline::new(&mut stage, &mut buffer, &mut nothing);
    events.iter().for_each(|event| edge.put(*event));
    edge.end_of_batch();
    let instruments = feed.instruments();
    let books = (0..instruments.len() as u32)
        .map(|index| {
            let id = InstrumentId(index);
            let Some(books) = stage.feed(Publisher::XNAS_ITCH) else { panic!("there is a feed") };
            let book = books.book(id);
            let orders: Vec<_> =
                book.queue().iter().map(|order| (order.id, order.size, order.price.e9())).collect();
            let levels = book.levels(Side::Bid).chain(book.levels(Side::Ask));
            let levels = levels.map(|level| (level.price.e9(), level.size)).collect();
            let name = instruments.symbol(id).unwrap().as_str().to_owned();
            (name, (orders, levels, book.is_stale()))
        })
        .collect();
    Outcome { feed, books, events }
}

fn name(stock: &[u8; 8]) -> String {
    String::from_utf8(stock.to_vec()).unwrap().trim_end().to_owned()
}

/// Of a hundred messages one contradicts: the books that are known.
fn one_in_a_hundred(messages: &[Vec<u8>], directory: &[(u16, [u8; 8])]) {
    let expected = run(messages);
    assert_eq!(expected.feed.problems().total, 0);
    let kinds = [trading_action, reg_sho, operational_halt];
    let mut with_contradictions = Vec::new();
    let (mut inserted, mut named) = (0u64, BTreeSet::new());
    let mut seen = BTreeSet::new();
    for (number, message) in messages.iter().enumerate() {
        with_contradictions.push(message.clone());
        seen.insert(u16::from_be_bytes([message[1], message[2]]));
        // The second half of the symbols is left in peace.
        let (locate, stock) = directory[number % (directory.len() / 2)];
        if number % 100 == 99 && number > messages.len() / 4 && seen.contains(&locate) {
            let (_, other) = directory[(number + 7) % directory.len()];
            if other != stock {
                with_contradictions.push(kinds[number / 100 % 3](locate, &other));
                inserted += 1;
                named.insert(name(&stock));
            }
        }
    }
    let outcome = run(&with_contradictions);
    let problems = outcome.feed.problems();
    assert!(inserted > 50 && problems.contradictions == inserted && problems.total == inserted);
    let kept = &problems.kept()[0];
    assert!(matches!(kept.kind, ProblemKind::Contradiction(_)) && kept.offset > 0, "{kept:?}");
    assert_eq!(outcome.books.len(), expected.books.len());
    for (symbol, (orders, levels, is_stale)) in &outcome.books {
        let (expected_orders, expected_levels, was_stale) = &expected.books[symbol];
        assert_eq!((orders, levels), (expected_orders, expected_levels), "{symbol}");
        assert_eq!(*is_stale, *was_stale || named.contains(symbol), "{symbol}");
    }
    assert!(named.len() < outcome.books.len());
    // No halt of the wrong instrument comes out.
    let statuses = |events: &[Event]| events.iter().filter(|event| event.kind == EventKind::Status).count();
    assert_eq!(statuses(&outcome.events), statuses(&expected.events));
}

fn stocks(messages: &[Vec<u8>]) -> Vec<(u16, [u8; 8])> {
    let of_directory = messages.iter().filter(|message| message[0] == b'R');
    of_directory
        .map(|message| {
            (u16::from_be_bytes([message[1], message[2]]), *message[11..].first_chunk::<8>().unwrap())
        })
        .collect()
}

#[test]
fn one_message_in_a_hundred_that_contradicts_its_locate_leaves_the_other_books_as_they_are() {
    let messages = messages(30_000, 40, 3);
    one_in_a_hundred(&messages, &stocks(&messages));
}

#[test]
fn in_a_capture_from_mid_day_the_first_symbol_seen_defines_the_locate() {
    let messages = messages(30_000, 40, 4);
    let directory = stocks(&messages);
    // Without whatever names a symbol but orders, trades and imbalances.
    let rest: Vec<Vec<u8>> = messages[messages.len() / 5..]
        .iter()
        .filter(|message| !b"RHYLhV".contains(&message[0]))
        .cloned()
        .collect();
    one_in_a_hundred(&rest, &directory);
}

#[test]
fn a_directory_overrides_inferred_locates_and_nothing_else() {
    let (first, second, third) = (b"FIRST   ", b"SECOND  ", b"THIRD   ");
    let inferred = run(&[add(1, first, 10), add(2, third, 20), directory(1, second), add(1, second, 11)]);
    let problems = inferred.feed.problems();
    assert_eq!((problems.total, problems.contradictions), (1, 1));
    let problem = problems.kept()[0].kind.clone();
    let expected = Contradiction::OtherSymbol { locate: 1, known: Ascii(*first), named: Ascii(*second) };
    assert_eq!(problem, ProblemKind::Contradiction(expected));
    assert_eq!(problem.to_string(), "stock locate 1 is 'FIRST', and the message names 'SECOND'");
    // What was in the first's book is the second's: that one is empty, and this one lacks it.
    assert_eq!(inferred.books["FIRST"], (vec![], vec![], true));
    let (orders, _, is_stale) = &inferred.books["SECOND"];
    assert_eq!((orders.len(), *is_stale), (1, true));
    let (orders, _, is_stale) = &inferred.books["THIRD"];
    assert_eq!((orders.len(), *is_stale), (1, false));

    let defined = run(&[directory(1, first), add(1, first, 10), directory(1, second), add(1, second, 11)]);
    assert_eq!(defined.feed.problems().contradictions, 1);
    let (orders, _, is_stale) = &defined.books["FIRST"];
    assert_eq!((orders.len(), *is_stale), (2, true));
    assert!(!defined.books.contains_key("SECOND"));

    // A directory that is repeated is no contradiction, and a new day defines anew.
    let mut day = vec![b'S', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, b'O'];
    let again = [directory(1, first), directory(1, first), std::mem::take(&mut day), directory(1, second)];
    assert_eq!(run(&again).feed.problems().total, 0);
}

#[test]
fn a_symbol_has_one_locate() {
    let (first, second) = (b"FIRST   ", b"SECOND  ");
    let outcome = run(&[directory(1, first), add(1, first, 10), add(2, first, 11), directory(3, first)]);
    assert_eq!(outcome.feed.problems().contradictions, 2);
    let problem = outcome.feed.problems().kept()[0].kind.to_string();
    assert_eq!(problem, "'FIRST' has stock locate 1, and the message gives it 2");
    let (orders, _, is_stale) = &outcome.books["FIRST"];
    assert_eq!((orders.len(), *is_stale), (1, true));
    // Inferred wrongly: the directory gives the symbol its own, and the other locate another.
    let outcome = run(&[
        add(2, first, 10),
        directory(1, first),
        directory(2, second),
        add(1, first, 11),
        add(2, second, 12),
    ]);
    assert_eq!(outcome.feed.problems().contradictions, 1);
    let orders = |name: &str| outcome.books[name].0.iter().map(|order| order.0).collect::<Vec<_>>();
    assert_eq!((orders("FIRST"), orders("SECOND")), (vec![11], vec![12]));
    assert!(outcome.books["FIRST"].2);
}

#[test]
fn messages_that_agree_on_another_symbol_outvote_the_one_that_came_first() {
    let (wrong, right) = (b"WRONG   ", b"RIGHT   ");
    let mut messages = vec![trading_action(1, wrong)];
    messages.extend((10..20).map(|order| add(1, right, order)));
    let outcome = run(&messages);
    // The second of them takes the name over; both are contradictions, and not in the book.
    assert_eq!(outcome.feed.problems().contradictions, 2);
    let problem = outcome.feed.problems().kept()[0].kind.to_string();
    assert_eq!(problem, "stock locate 1 is 'WRONG', and the message names 'RIGHT'");
    assert_eq!(outcome.books["WRONG"], (vec![], vec![], true));
    let (orders, _, is_stale) = &outcome.books["RIGHT"];
    assert_eq!(orders.iter().map(|order| order.0).collect::<Vec<_>>(), (12..20).collect::<Vec<_>>());
    assert!(is_stale);
}

#[test]
fn a_message_that_errs_takes_no_symbol_from_one_that_came_before() {
    let (right, wrong) = (b"RIGHT   ", b"WRONG   ");
    let outcome = run(&[add(1, right, 10), trading_action(1, wrong), add(1, right, 11), add(1, right, 12)]);
    assert_eq!(outcome.feed.problems().contradictions, 1);
    assert_eq!(outcome.books["RIGHT"].0.len(), 3);
    assert!(outcome.books["RIGHT"].2 && !outcome.books.contains_key("WRONG"));
}

#[test]
fn a_confirmed_symbol_yields_to_a_directory_alone() {
    let (first, second) = (b"FIRST   ", b"SECOND  ");
    let mut messages: Vec<_> = (10..13).map(|order| add(1, first, order)).collect();
    messages.extend((0..9).map(|_| trading_action(1, second)));
    // Nor does another locate get it.
    messages.extend((20..25).map(|order| add(2, first, order)));
    let outcome = run(&messages);
    assert_eq!(outcome.feed.problems().contradictions, 9 + 5);
    assert_eq!(outcome.books["FIRST"].0.len(), 3);
    assert!(!outcome.books.contains_key("SECOND"));
    messages.push(directory(1, second));
    let outcome = run(&messages);
    assert_eq!(outcome.feed.problems().contradictions, 9 + 5 + 1);
    assert_eq!(outcome.books["FIRST"], (vec![], vec![], true));
}

#[test]
fn a_presumed_symbol_goes_to_the_locate_that_the_messages_give_it() {
    let (first, second) = (b"FIRST   ", b"SECOND  ");
    let outcome = run(&[
        trading_action(1, first),
        add(2, first, 20),
        add(2, first, 21),
        add(2, first, 22),
        add(1, second, 10),
    ]);
    assert_eq!(outcome.feed.problems().contradictions, 2);
    let orders = |name: &str| outcome.books[name].0.iter().map(|order| order.0).collect::<Vec<_>>();
    assert_eq!((orders("FIRST"), orders("SECOND")), (vec![22], vec![10]));
    assert!(outcome.books["FIRST"].2 && !outcome.books["SECOND"].2);
}

#[test]
fn deletions_of_a_presumed_symbol_find_its_orders() {
    let mut deletion = vec![0; 19];
    deletion[0] = b'D';
    deletion[1..3].copy_from_slice(&1u16.to_be_bytes());
    deletion[11..19].copy_from_slice(&10u64.to_be_bytes());
    let first = b"FIRST   ";
    let outcome = run(&[add(1, first, 10), add(1, first, 11), deletion]);
    assert_eq!(outcome.feed.problems().total, 0);
    let (orders, _, is_stale) = &outcome.books["FIRST"];
    assert_eq!((orders.len(), *is_stale), (1, false));
}
