//! Lines with faults, servers with faults: the live feed gives what a lossless line gives, or says what it does not give.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use proptest::prelude::*;
use tapeworks_feed::live::{Input, LiveChannelOptions, LiveFeed, Request, SnapshotFault, SnapshotOptions};
use tapeworks_feed::state::StateError;
use tapeworks_feed::{Application, FeedOptions};
use tapeworks_follow::arbitration::{ArbiterOptions, GapReason, RetransmissionOptions};
use tapeworks_generator::{Generator, MAX_MESSAGE_BYTES, Scenario};
use tapeworks_market::event::Gap;
use tapeworks_market::{
    BookStage, BookUpdate, Capacity, Event, EventKind, Flags, InstrumentId, Line, Publisher, Side,
};
use tapeworks_session::{Content, IexTp, Outgoing, SessionId, Transport as _};
use tapeworks_stage::{Inline, Sink};
use tapeworks_time::Nanos;
use tapeworks_wire::Ascii;
use tapeworks_wire::nasdaq::moldudp64::{DownstreamPacketFields, END_OF_SESSION};

#[path = "live/clock.rs"]
mod clock;
#[path = "live/late.rs"]
mod late;
#[path = "live/restarts.rs"]
mod restarts;
#[path = "live/snapshot_checks.rs"]
mod snapshot_checks;

const START: u64 = 1_763_130_600_000_000_000;
const US: u64 = 1_000;
const MS: u64 = 1_000_000;

fn messages(count: u64, symbols: u32, seed: u64) -> Vec<Vec<u8>> {
    let mut scenario = Scenario::full_session(count, symbols);
    scenario.seed = seed;
    let mut generator = Generator::new(&scenario).unwrap();
    let mut bytes = [0; MAX_MESSAGE_BYTES];
    std::iter::from_fn(|| generator.next_message(&mut bytes).map(|made| bytes[..made.length].to_vec()))
        .collect()
}

fn packet(session: &[u8; 10], first: u64, messages: &[Vec<u8>]) -> Vec<u8> {
    let mut blocks = Vec::new();
    for message in messages {
        blocks.extend_from_slice(&(message.len() as u16).to_be_bytes());
        blocks.extend_from_slice(message);
    }
    control(session, first, messages.len() as u16, &blocks)
}

fn control(session: &[u8; 10], first: u64, message_count: u16, messages: &[u8]) -> Vec<u8> {
    let fields =
        DownstreamPacketFields { session: Ascii(*session), sequence_number: first, message_count, messages };
    let mut bytes = vec![0; 20 + messages.len()];
    fields.encode_into(&mut bytes).unwrap();
    bytes
}

fn channel(arbiter: ArbiterOptions, snapshot: Option<SnapshotOptions>) -> LiveChannelOptions {
    LiveChannelOptions {
        name: "Nasdaq".to_owned(),
        application: Application::TotalViewItch50,
        publisher: Publisher::XNAS_ITCH,
        arbiter,
        snapshot,
    }
}

fn live(arbiter: ArbiterOptions, snapshot: Option<SnapshotOptions>) -> LiveFeed {
    LiveFeed::new(FeedOptions::default(), vec![channel(arbiter, snapshot)])
}

fn with_retransmission() -> ArbiterOptions {
    ArbiterOptions { retransmission: Some(RetransmissionOptions::default()), ..ArbiterOptions::default() }
}

fn input(line: Line, at: u64, payload: &[u8]) -> Input<&[u8]> {
    Input::Packet { channel: 0, line, received: Nanos(START + at), payload }
}

fn feed(live: &mut LiveFeed, input: Input<&[u8]>) -> Vec<Event> {
    let mut events = Vec::new();
    live.input(&input, &mut |event: Event| {
        // That time goes on is tested for itself.
        if event.kind != EventKind::Other || event.channel_sequence > 0 {
            events.push(event);
        }
    });
    events
}

/// What is the same whichever way a message came.
fn content(event: &Event) -> Event {
    let mut event = Event { ts_recv: Nanos(0), ..*event };
    event.set_line(Line::A);
    event
}

fn contents(events: &[Event]) -> Vec<Event> {
    events.iter().map(content).collect()
}

fn lossless(messages: &[Vec<u8>]) -> Vec<Event> {
    let mut live = live(ArbiterOptions::default(), None);
    let mut events = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        let payload = packet(b"SESSION001", index as u64 + 1, std::slice::from_ref(message));
        events.extend(feed(&mut live, input(Line::A, index as u64 * US, &payload)));
    }
    events
}

/// What a line does to packets, each in 1,000.
#[derive(Clone, Copy, Debug)]
struct Faults {
    lost: u32,
    duplicated: u32,
    reordered: u32,
    skew_us: u64,
    damaged: u32,
}

/// Draws as a linear congruential generator does (Knuth's constants).
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound.max(1)
    }
}

/// Does to a packet what its framing, or the session in its header, shows. No checksum protects the rest.
fn damage(mut payload: Vec<u8>, draw: &mut Draw) -> Vec<u8> {
    match draw.below(7) {
        // Cut.
        0 => payload.truncate(draw.below(payload.len() as u64) as usize),
        // Longer.
        1 => payload.extend_from_slice(&[0, 1, 2][..1 + draw.below(3) as usize]),
        // Another session, another number, the count as it was.
        2 => payload[..18].iter_mut().for_each(|byte| *byte = draw.below(256) as u8),
        // Another session, to the end.
        3 => payload[..20].iter_mut().for_each(|byte| *byte = draw.below(256) as u8),
        // Another count.
        4 => {
            let count = draw.below(1 << 16) as u16;
            payload[18..20].copy_from_slice(&count.to_be_bytes());
        }
        // Another number, and cut.
        5 => {
            payload[12..18].iter_mut().for_each(|byte| *byte = draw.below(256) as u8);
            payload.pop();
        }
        // The length of the first message is more than there is.
        _ => payload[20] = 0xff,
    }
    payload
}

#[derive(Default, PartialEq, Eq, Debug)]
struct Injected {
    lost: u64,
    repeated: u64,
    sent: u64,
}

/// A packet on its way: when it comes, a number that distinguishes packets of one time, the line, the bytes.
type Arrival = (u64, u64, u8, Vec<u8>);

/// A symbol, the orders of its book (number, shares, price), and whether the book is stale.
type State = (String, Vec<(u64, u32, i64)>, bool);

struct Run {
    events: Vec<Event>,
    live: LiveFeed,
    injected: [Injected; 2],
    requests: u64,
}

/// Sends the messages over two lines with faults; a retransmission server answers all but so many in 1,000 requests.
fn run(
    messages: &[Vec<u8>],
    faults: [Faults; 2],
    unanswered: u32,
    options: ArbiterOptions,
    seed: u64,
) -> Run {
    run_restored(messages, faults, unanswered, options, seed, &[])
}

/// A feed that has what this one has kept of itself, in its place.
fn restored(live: &LiveFeed) -> LiveFeed {
    let channels = live.channels().iter().map(|channel| channel.options().clone()).collect();
    let kept = live.save().unwrap();
    let restored = LiveFeed::restore(FeedOptions::default(), channels, &kept).unwrap();
    assert_eq!(restored.save().unwrap(), kept);
    restored
}

/// As [`run`]; before the inputs of these numbers the feed is kept and restored.
fn run_restored(
    messages: &[Vec<u8>],
    faults: [Faults; 2],
    unanswered: u32,
    options: ArbiterOptions,
    seed: u64,
    restore_before: &[usize],
) -> Run {
    let mut inputs = 0;
    let mut draw = Draw(seed);
    let mut due: BinaryHeap<Reverse<Arrival>> = BinaryHeap::new();
    let mut number = 0;
    let mut push = |due: &mut BinaryHeap<_>, at: u64, line: u8, bytes: Vec<u8>| {
        number += 1;
        due.push(Reverse((at, number, line, bytes)));
    };
    let mut injected: [Injected; 2] = Default::default();
    let (mut first, mut at) = (0, 0);
    while first < messages.len() {
        let count = (1 + draw.below(4) as usize).min(messages.len() - first);
        let payload = packet(b"SESSION001", first as u64 + 1, &messages[first..first + count]);
        for (line, faults) in faults.iter().enumerate() {
            let injected = &mut injected[line];
            injected.sent += count as u64;
            let skew = if line == 1 { draw.below(faults.skew_us * US) } else { 0 };
            if draw.below(1_000) < u64::from(faults.lost) {
                injected.lost += count as u64;
                continue;
            }
            let late = if draw.below(1_000) < u64::from(faults.reordered) { 25 * US } else { 0 };
            // A channel joins by its first packet, if that is what it says: see the tests of sessions.
            let is_damaged = first > 50 && draw.below(1_000) < u64::from(faults.damaged);
            let sent = if is_damaged { damage(payload.clone(), &mut draw) } else { payload.clone() };
            push(&mut due, at + skew + late, line as u8, sent);
            if draw.below(1_000) < u64::from(faults.duplicated) {
                injected.repeated += count as u64;
                push(&mut due, at + skew + late + US, line as u8, payload.clone());
            }
        }
        first += count;
        at += 10 * US;
    }
    let end = messages.len() as u64 + 1;
    for line in 0..2 {
        push(&mut due, at + 60 * US, line, control(b"SESSION001", end, 0, &[]));
    }
    // Time passes meanwhile.
    (1..1_000).for_each(|step| push(&mut due, at + step * MS, 3, Vec::new()));
    push(&mut due, at + 1_000 * MS, 0, control(b"SESSION001", end, END_OF_SESSION, &[]));
    let mut live = live(options, None);
    let mut events = Vec::new();
    let mut requests = 0;
    while let Some(Reverse((at, _, line, bytes))) = due.pop() {
        if restore_before.contains(&inputs) {
            live = restored(&live);
        }
        inputs += 1;
        // A timer of the plant.
        if live.deadline().is_some_and(|deadline| deadline <= Nanos(START + at)) {
            events.extend(feed(&mut live, Input::Tick { now: Nanos(START + at) }));
        }
        if let Some(line) = [Line::A, Line::B, Line::Recovery].get(usize::from(line)) {
            events.extend(feed(&mut live, input(*line, at, &bytes)));
        }
        while let Some(request) = live.take_request() {
            let Request::Retransmission { request, .. } = request else { panic!("{request:?}") };
            requests += 1;
            if draw.below(1_000) < u64::from(unanswered) {
                continue;
            }
            let from = request.first as usize - 1;
            let to = (from + usize::from(request.count).min(7)).min(messages.len());
            let mut answer = packet(b"SESSION001", request.first, &messages[from..to]);
            if draw.below(1_000) < u64::from(faults[0].damaged) {
                answer = damage(answer, &mut draw);
            }
            push(&mut due, at + 100 * US + draw.below(200 * US), 2, answer);
        }
    }
    // What is still waited for.
    for step in 1..3_000 {
        events.extend(feed(&mut live, Input::Tick { now: Nanos(START + at + 1_000 * MS + step * MS) }));
    }
    Run { events, live, injected, requests }
}

fn any_faults() -> impl Strategy<Value = Faults> {
    (0u32..50, 0u32..50, 0u32..50, 1u64..100).prop_map(|(lost, duplicated, reordered, skew_us)| Faults {
        lost,
        duplicated,
        reordered,
        skew_us,
        damaged: 0,
    })
}

/// Each message came once, in order, and each was counted.
fn equals_lossless(run: &Run, messages: &[Vec<u8>]) -> Result<(), TestCaseError> {
    let expected = contents(&lossless(messages));
    let got = contents(&run.events);
    let differs = got.iter().zip(&expected).position(|(got, expected)| got != expected);
    prop_assert_eq!(differs.map(|at| (got[at], expected[at])), None);
    prop_assert_eq!(got.len(), expected.len());
    let arbiter = run.live.channels()[0].arbiter();
    prop_assert_eq!(arbiter.counters().messages, messages.len() as u64);
    // Each was brought by one line.
    prop_assert_eq!(arbiter.lines().iter().map(|line| line.won).sum::<u64>(), messages.len() as u64);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn if_all_is_recovered_the_output_equals_that_of_a_lossless_line(
        a in any_faults(),
        b in any_faults(),
        seed in any::<u64>(),
    ) {
        let messages = messages(1_500, 10, seed);
        let run = run(&messages, [a, b], 0, with_retransmission(), seed);
        equals_lossless(&run, &messages)?;
        let arbiter = run.live.channels()[0].arbiter();
        let counters = arbiter.counters();
        prop_assert_eq!((counters.gaps, counters.missing, counters.late), (0, 0, 0));
        prop_assert_eq!(counters.requests, run.requests);
        let lines = arbiter.lines();
        for (line, injected) in lines.iter().zip(&run.injected) {
            prop_assert_eq!(line.lost, injected.lost);
            prop_assert_eq!(line.repeated, injected.repeated);
            prop_assert_eq!(line.messages, injected.sent - injected.lost + injected.repeated);
            prop_assert_eq!(line.messages, line.won + line.duplicate);
        }
    }

    #[test]
    fn damaged_packets_and_answers_are_as_lost_ones(
        a in any_faults(),
        b in any_faults(),
        damaged in (1u32..200, 0u32..200),
        restore_before in prop::collection::vec(0usize..1_500, 0..3),
        seed in any::<u64>(),
    ) {
        let messages = messages(1_500, 10, seed);
        let faults = [Faults { damaged: damaged.0, ..a }, Faults { damaged: damaged.1, ..b }];
        let run = run_restored(&messages, faults, 0, with_retransmission(), seed, &restore_before);
        equals_lossless(&run, &messages)?;
        let arbiter = run.live.channels()[0].arbiter();
        let counters = arbiter.counters();
        prop_assert_eq!((counters.gaps, counters.missing, counters.session_changes), (0, 0, 0));
    }

    #[test]
    fn messages_that_cannot_be_recovered_are_reported_and_all_others_come_once_and_in_order(
        a in any_faults(),
        b in any_faults(),
        unanswered in 300u32..=1000,
        seed in any::<u64>(),
    ) {
        let messages = messages(1_500, 10, seed);
        let mut options = with_retransmission();
        options.retransmission = Some(RetransmissionOptions { timeout_ns: MS, ..RetransmissionOptions::default() });
        let lossy = |faults: Faults| Faults { lost: faults.lost * 8, damaged: faults.lost, ..faults };
        let run = run(&messages, [lossy(a), lossy(b)], unanswered, options, seed);
        let counters = *run.live.channels()[0].arbiter().counters();
        let mut expected = 1;
        for event in &run.events {
            if event.kind == EventKind::Gap {
                let gap = event.gap().unwrap();
                if gap.count > 0 {
                    prop_assert_eq!(gap.first, expected);
                    expected += gap.count;
                }
            } else if !matches!(event.kind, EventKind::SymbolMapping | EventKind::Recovered | EventKind::ImbalancePrices) {
                prop_assert!(event.channel_sequence == expected || event.channel_sequence + 1 == expected, "{event:?} instead of {expected}");
                expected = event.channel_sequence + 1;
            }
        }
        prop_assert_eq!(counters.messages + counters.missing, messages.len() as u64);
        let gaps: u64 = run.events.iter().filter_map(Event::gap).map(|gap| gap.count).sum();
        prop_assert_eq!(gaps, counters.missing);
    }

    #[test]
    fn a_restored_feed_continues_like_one_that_never_stopped(
        a in any_faults(),
        b in any_faults(),
        unanswered in prop::sample::select(vec![0u32, 500, 1000]),
        restore_before in prop::collection::vec(0usize..1_500, 1..6),
        seed in any::<u64>(),
    ) {
        let messages = messages(1_000, 10, seed);
        let lossy = |faults: Faults| Faults { lost: faults.lost * 8, damaged: faults.lost, ..faults };
        let faults = [lossy(a), lossy(b)];
        let whole = run(&messages, faults, unanswered, with_retransmission(), seed);
        let parts = run_restored(&messages, faults, unanswered, with_retransmission(), seed, &restore_before);
        prop_assert_eq!(whole.events, parts.events);
        prop_assert_eq!(whole.requests, parts.requests);
        let counters = |live: &LiveFeed| (*live.channels()[0].arbiter().counters(), live.channels()[0].arbiter().lines());
        prop_assert_eq!(counters(&whole.live), counters(&parts.live));
        prop_assert_eq!(whole.live.feed().counters(), parts.live.feed().counters());
        prop_assert_eq!(whole.live.save(), parts.live.save());
    }

    #[test]
    fn bytes_that_are_no_state_are_refused(
        at in any::<prop::sample::Index>(),
        bit in 0u8..8,
        cut in any::<prop::sample::Index>(),
    ) {
        let messages = messages(200, 6, 5);
        let faults = Faults { lost: 300, duplicated: 0, reordered: 100, skew_us: 50, damaged: 100 };
        let live = run(&messages, [faults; 2], 1000, with_retransmission(), 5).live;
        let channels = || live.channels().iter().map(|channel| channel.options().clone()).collect::<Vec<_>>();
        let kept = live.save().unwrap();
        prop_assert!(LiveFeed::restore(FeedOptions::default(), channels(), &kept[..cut.index(kept.len())]).is_err());
        let mut changed = kept.clone();
        changed[at.index(kept.len())] ^= 1 << bit;
        // It may say something else that holds together; it is no panic.
        if let Ok(other) = LiveFeed::restore(FeedOptions::default(), channels(), &changed) {
            other.save().unwrap();
        }
        let mut others = channels();
        others[0].arbiter.reorder_window_ns += 1;
        let foreign = LiveFeed::restore(FeedOptions::default(), others, &kept);
        prop_assert_eq!(foreign.err(), Some(StateError::Foreign));
    }

    #[test]
    fn no_bytes_from_the_network_break_it(
        packets in prop::collection::vec((0u8..3, 0u64..40_000_000_000, prop::collection::vec(any::<u8>(), 0..60), any::<bool>(), 0u64..30), 0..60),
    ) {
        let mut live = live(ArbiterOptions { held_bytes: 500, ..with_retransmission() }, Some(SnapshotOptions::default()));
        let mut at = 0;
        for (line, later, mut bytes, is_ours, first) in packets {
            at += later / 1_000;
            if is_ours {
                let mut header = control(b"SESSION001", first, (first % 4) as u16, &[]);
                header.append(&mut bytes);
                bytes = header;
            }
            feed(&mut live, input([Line::A, Line::B, Line::Recovery][usize::from(line)], at, &bytes));
            if let Some(Request::Snapshot { attempt, .. }) = live.take_request() {
                let received = Nanos(START + at);
                feed(&mut live, Input::Snapshot { channel: 0, attempt, received, messages: &bytes });
                feed(&mut live, Input::SnapshotEnd { channel: 0, attempt, received, next: first, bytes: bytes.len() as u64 });
            }
        }
    }
}

struct Market {
    books: BookStage,
    buffer: Vec<Event>,
}

impl Market {
    fn new() -> Self {
        let books = BookStage::new([(Publisher::XNAS_ITCH, Capacity::default())]);
        Self { books, buffer: Vec::with_capacity(64) }
    }

    fn apply(&mut self, events: &[Event]) {
        struct Nothing;
        impl<'a> Sink<BookUpdate<'a>> for Nothing {
            fn put(&mut self, _update: BookUpdate<'a>) {}
        }
        let mut nothing = Nothing;
        let mut edge = Inline::new(&mut self.books, &mut self.buffer, &mut nothing);
        events.iter().for_each(|event| edge.put(*event));
        edge.end_of_batch();
    }

    /// Each instrument's orders in the order of their queues, and whether its book is stale.
    fn state(&self, instruments: &tapeworks_market::Instruments) -> Vec<State> {
        let Some(books) = self.books.feed(Publisher::XNAS_ITCH) else { return Vec::new() };
        let mut all: Vec<_> = (0..instruments.len())
            .map(|index| {
                let id = InstrumentId(index as u32);
                let book = books.book(id);
                let mut orders: Vec<_> =
                    book.queue().iter().map(|order| (order.id, order.size, order.price.e9())).collect();
                // The queue is that of prices; between two prices there is no order.
                orders.sort_by_key(|order| order.2);
                let levels: u32 =
                    book.levels(Side::Bid).chain(book.levels(Side::Ask)).map(|level| level.size).sum();
                assert_eq!(levels, orders.iter().map(|order| order.1).sum::<u32>());
                (instruments.symbol(id).unwrap().as_str().to_owned(), orders, book.is_stale())
            })
            .collect();
        all.sort();
        all
    }
}

/// The messages that make the books that `events` make, as a snapshot server sends them.
fn snapshot_of(messages: &[Vec<u8>]) -> Vec<u8> {
    // The messages themselves make the same books, if only in a longer way.
    let mut blocks = Vec::new();
    for message in messages {
        blocks.extend_from_slice(&(message.len() as u16).to_be_bytes());
        blocks.extend_from_slice(message);
    }
    blocks
}

#[test]
fn a_late_receiver_has_the_books_of_one_that_was_there_from_the_start() {
    let messages = messages(6_000, 12, 5);
    let mut whole = Market::new();
    let all = lossless(&messages);
    whole.apply(&all);
    let mut reference = live(ArbiterOptions::default(), None);
    for (index, message) in messages.iter().enumerate() {
        let payload = packet(b"SESSION001", index as u64 + 1, std::slice::from_ref(message));
        feed(&mut reference, input(Line::A, index as u64 * US, &payload));
    }
    // The snapshot holds less than, exactly, or more messages than came before the request.
    for snapshot_next in [3_000u64, 3_001, 3_400] {
        let mut live = live(ArbiterOptions::default(), Some(SnapshotOptions::default()));
        let mut market = Market::new();
        let mut events_seen = Vec::new();
        let mut attempted = None;
        for (index, message) in messages.iter().enumerate().skip(2_990) {
            let payload = packet(b"SESSION001", index as u64 + 1, std::slice::from_ref(message));
            let mut events = feed(&mut live, input(Line::A, index as u64 * US, &payload));
            if let Some(Request::Snapshot { attempt, .. }) = live.take_request() {
                attempted = Some(attempt);
            }
            if index as u64 == 3_500 {
                let (attempt, received) = (attempted.unwrap(), Nanos(START + 3_500 * US));
                assert_eq!(events, [], "nothing comes before the snapshot");
                let state = snapshot_of(&messages[..snapshot_next as usize - 1]);
                let (one, two) = state.split_at(state.len() / 2);
                for part in [one, two] {
                    let part = Input::Snapshot { channel: 0, attempt, received, messages: part };
                    events.extend(feed(&mut live, part));
                }
                let bytes = state.len() as u64;
                let end = Input::SnapshotEnd { channel: 0, attempt, received, next: snapshot_next, bytes };
                events.extend(feed(&mut live, end));
            }
            market.apply(&events);
            events_seen.extend(events);
        }
        assert_eq!(market.state(live.instruments()), whole.state(reference.instruments()));
        assert!(events_seen.iter().all(|event| event.kind != EventKind::Gap));
        // Events outside the snapshot are the events that the other receivers got.
        let fresh: Vec<Event> = events_seen
            .iter()
            .filter(|event| !event.flags().contains(Flags::SNAPSHOT) && event.kind != EventKind::Recovered)
            .filter(|event| event.kind != EventKind::SymbolMapping)
            .map(|event| event.channel_sequence)
            .map(|sequence| *all.iter().find(|event| event.channel_sequence == sequence).unwrap())
            .collect();
        assert_eq!(fresh[0].channel_sequence, snapshot_next);
    }
}

#[test]
fn after_a_gap_a_snapshot_restores_the_books_and_repeats_no_trade() {
    let messages = messages(6_000, 12, 6);
    let mut whole = Market::new();
    let all = lossless(&messages);
    whole.apply(&all);
    let mut live = live(ArbiterOptions::default(), Some(SnapshotOptions::default()));
    let mut market = Market::new();
    let mut attempted = None;
    let mut trades = 0;
    let mut was_stale = false;
    for (index, message) in messages.iter().enumerate().filter(|(index, _)| !(2_000..2_010).contains(index)) {
        let payload = packet(b"SESSION001", index as u64 + 1, std::slice::from_ref(message));
        let at = index as u64 * 100 * US;
        let mut events = feed(&mut live, input(Line::A, at, &payload));
        while let Some(request) = live.take_request() {
            let Request::Snapshot { attempt, .. } = request else { panic!("{request:?}") };
            attempted = Some(attempt);
        }
        if index == 2_500 {
            was_stale = live.channels()[0].is_stale();
            let (attempt, received) = (attempted.unwrap(), Nanos(START + at));
            let state = snapshot_of(&messages[..2_200]);
            events
                .extend(feed(&mut live, Input::Snapshot { channel: 0, attempt, received, messages: &state }));
            events.extend(feed(
                &mut live,
                Input::SnapshotEnd { channel: 0, attempt, received, next: 2_201, bytes: state.len() as u64 },
            ));
        }
        trades +=
            events.iter().filter(|event| matches!(event.kind, EventKind::Execute | EventKind::Trade)).count();
        market.apply(&events);
    }
    let missed: Vec<u64> = (2_001..=2_010).collect();
    let expected = all
        .iter()
        .filter(|event| matches!(event.kind, EventKind::Execute | EventKind::Trade))
        .filter(|event| !missed.contains(&event.channel_sequence))
        .count();
    assert!(was_stale);
    assert_eq!(trades, expected);
    assert!(!live.channels()[0].is_stale());
    let mut reference = self::live(ArbiterOptions::default(), None);
    for (index, message) in messages.iter().enumerate() {
        let payload = packet(b"SESSION001", index as u64 + 1, std::slice::from_ref(message));
        feed(&mut reference, input(Line::A, index as u64 * US, &payload));
    }
    assert_eq!(market.state(live.instruments()), whole.state(reference.instruments()));
    assert_eq!(live.channels()[0].snapshots().applied, 1);
}

/// A feed that two channels carry, each its own instruments; system events come on both.
struct Parts {
    messages: [Vec<Vec<u8>>; 2],
    whole: Vec<State>,
}

impl Parts {
    fn new(seed: u64) -> Self {
        let all = messages(6_000, 12, seed);
        let mut whole = Market::new();
        let mut reference = live(ArbiterOptions::default(), None);
        for (index, message) in all.iter().enumerate() {
            let payload = packet(b"SESSION001", index as u64 + 1, std::slice::from_ref(message));
            whole.apply(&feed(&mut reference, input(Line::A, index as u64 * US, &payload)));
        }
        let of = |part: u16| {
            let mine = |message: &&Vec<u8>| {
                let locate = u16::from_be_bytes([message[1], message[2]]);
                locate == 0 || locate % 2 == part
            };
            all.iter().filter(mine).cloned().collect()
        };
        Self { messages: [of(0), of(1)], whole: whole.state(reference.instruments()) }
    }

    fn live(arbiter: ArbiterOptions, snapshot: Option<SnapshotOptions>) -> LiveFeed {
        let channels = vec![channel(arbiter, snapshot), channel(arbiter, snapshot)];
        LiveFeed::new(FeedOptions::default(), channels)
    }

    /// Sends a message of a channel, and applies its events.
    fn send(&self, live: &mut LiveFeed, market: &mut Market, of: u16, index: usize, at: u64) {
        let messages = &self.messages[usize::from(of)];
        let session = [b"SESSION001", b"SESSION002"][usize::from(of)];
        let payload = packet(session, index as u64 + 1, &messages[index..=index]);
        let input =
            Input::Packet { channel: of, line: Line::A, received: Nanos(START + at), payload: &payload };
        market.apply(&feed(live, input.borrowed()));
    }

    /// Who is stale, by the channel that carries it: how many, and of how many.
    fn stale(market: &Market, live: &LiveFeed) -> [(usize, usize); 2] {
        let mut counts = [(0, 0); 2];
        let state = market.state(live.instruments());
        for (name, _, is_stale) in state {
            // The generator's symbols are distinguished by the channel that named them first.
            let of = usize::from(!Self::is_even(&name));
            counts[of].1 += 1;
            counts[of].0 += usize::from(is_stale);
        }
        counts
    }

    fn is_even(name: &str) -> bool {
        SYMBOLS.with_borrow(|symbols| symbols.get(name).copied().unwrap())
    }

    /// Notes on which channel a symbol's directory is.
    fn note(&self) {
        for (of, messages) in self.messages.iter().enumerate() {
            for message in messages.iter().filter(|message| message[0] == b'R') {
                let name = String::from_utf8(message[11..19].to_vec()).unwrap().trim_end().to_owned();
                SYMBOLS.with_borrow_mut(|symbols| symbols.insert(name, of == 0));
            }
        }
    }
}

thread_local! {
    static SYMBOLS: std::cell::RefCell<std::collections::HashMap<String, bool>> = Default::default();
}

#[test]
fn a_gap_of_one_channel_leaves_the_books_of_the_others_as_they_are() {
    let parts = Parts::new(9);
    parts.note();
    let most = parts.messages[0].len().max(parts.messages[1].len());
    let each =
        |live: &mut LiveFeed, market: &mut Market, indices: std::ops::Range<usize>, lost: [usize; 2]| {
            for index in indices {
                for of in 0..2u16 {
                    let is_there = index < parts.messages[usize::from(of)].len();
                    if is_there && lost[usize::from(of)] != index {
                        parts.send(live, market, of, index, index as u64 * 100 * US);
                    }
                }
            }
        };
    let never = usize::MAX;
    // Nothing is lost: as one channel.
    let (mut live, mut market) = (Parts::live(ArbiterOptions::default(), None), Market::new());
    each(&mut live, &mut market, 0..most, [never; 2]);
    assert_eq!(market.state(live.instruments()), parts.whole);
    // Each loses a message for good, one after the other; it comes too late on the second, which is right again but for one book.
    let (mut live, mut market) = (Parts::live(ArbiterOptions::default(), None), Market::new());
    each(&mut live, &mut market, 0..2_000, [1_000, never]);
    let [(first, of_first), (second, of_second)] = Parts::stale(&market, &live);
    assert_eq!((first, second), (of_first, 0), "of {of_second}");
    each(&mut live, &mut market, 2_000..2_500, [never, 2_100]);
    assert_eq!(Parts::stale(&market, &live), [(of_first, of_first), (of_second, of_second)]);
    let mut live = {
        let channels = live.channels().iter().map(|channel| channel.options().clone()).collect();
        LiveFeed::restore(FeedOptions::default(), channels, &live.save().unwrap()).unwrap()
    };
    parts.send(&mut live, &mut market, 1, 2_100, 2_500 * 100 * US);
    parts.send(&mut live, &mut market, 1, 2_500, 2_501 * 100 * US);
    assert_eq!(Parts::stale(&market, &live), [(of_first, of_first), (1, of_second)]);
    // A new session of the second: its books are empty and right, those of the first as they were.
    let before = market.state(live.instruments());
    let start = &parts.messages[1][..1];
    let payload = packet(b"SESSION003", 1, start);
    let received = Nanos(START + 10_000 * MS);
    let input = Input::Packet { channel: 1, line: Line::A, received, payload: &payload };
    market.apply(&feed(&mut live, input.borrowed()));
    market.apply(&feed(&mut live, Input::Tick { now: Nanos(received.0 + 1_000 * MS) }));
    for (before, now) in before.iter().zip(market.state(live.instruments())) {
        if Parts::is_even(&before.0) {
            assert_eq!((&before.1, true), (&now.1, now.2));
        } else {
            assert_eq!((&now.1, now.2), (&Vec::new(), false));
        }
    }
}

#[test]
fn after_lost_inputs_the_next_messages_clear_staleness_of_known_and_new_symbols() {
    let parts = Parts::new(11);
    parts.note();
    let (mut live, mut market) = (Parts::live(ArbiterOptions::default(), None), Market::new());
    // Few enough that some symbols are still to be named.
    let few = 8;
    for index in 0..few {
        (0..2).for_each(|of| parts.send(&mut live, &mut market, of, index, index as u64 * 100 * US));
    }
    let mut events = Vec::new();
    live.inputs_lost(Nanos(START + 50 * MS), &mut |event: Event| events.push(event));
    market.apply(&events);
    assert!(Parts::stale(&market, &live).into_iter().all(|(stale, of)| stale == of && of < 6));
    // Nothing is missing, as the next message of each shows.
    for index in few..1_000 {
        (0..2)
            .for_each(|of| parts.send(&mut live, &mut market, of, index, 60 * MS + index as u64 * 100 * US));
    }
    assert_eq!(Parts::stale(&market, &live), [(0, 6); 2]);
}

#[test]
fn each_channel_of_a_feed_joins_by_a_snapshot_of_its_own() {
    let parts = Parts::new(10);
    let mut live = Parts::live(ArbiterOptions::default(), Some(SnapshotOptions::default()));
    let mut market = Market::new();
    let mut attempted = [None; 2];
    for index in 1_500..parts.messages[0].len().max(parts.messages[1].len()) {
        let at = index as u64 * 100 * US;
        for of in 0..2u16 {
            if index < parts.messages[usize::from(of)].len() {
                parts.send(&mut live, &mut market, of, index, at);
            }
        }
        while let Some(Request::Snapshot { channel, attempt, .. }) = live.take_request() {
            attempted[usize::from(channel)] = Some(attempt);
        }
        // One after the other.
        for (of, when) in [(0u16, 1_600), (1, 1_700)] {
            if index == when {
                let (attempt, received) = (attempted[usize::from(of)].unwrap(), Nanos(START + at));
                let state = snapshot_of(&parts.messages[usize::from(of)][..1_550]);
                let part = Input::Snapshot { channel: of, attempt, received, messages: &state };
                market.apply(&feed(&mut live, part.borrowed()));
                let end = Input::SnapshotEnd {
                    channel: of,
                    attempt,
                    received,
                    next: 1_551,
                    bytes: state.len() as u64,
                };
                market.apply(&feed(&mut live, end));
            }
        }
    }
    assert_eq!(market.state(live.instruments()), parts.whole);
}

/// A heartbeat of the first channel, which confirms where its sequence is.
fn heartbeat(live: &mut LiveFeed, at: u64) -> Vec<Event> {
    let next = live.channels()[0].arbiter().next().unwrap();
    feed(live, input(Line::A, at, &packet(b"SESSION001", next, &[])))
}

#[test]
fn numbers_that_begin_anew_are_not_the_messages_that_are_missing() {
    let messages = messages(3_000, 6, 7);
    let mut live = live(ArbiterOptions::default(), None);
    let mut market = Market::new();
    // The channel was joined late, and the venue has no retransmission server.
    let joined = 100;
    for (index, message) in messages.iter().enumerate().skip(joined) {
        let payload = packet(b"SESSION001", index as u64 + 1, std::slice::from_ref(message));
        market.apply(&feed(&mut live, input(Line::A, index as u64 * 100 * US, &payload)));
    }
    let stale = |market: &Market, live: &LiveFeed| {
        market.state(live.instruments()).iter().filter(|(_, _, is_stale)| *is_stale).count()
    };
    assert_eq!(stale(&market, &live), 6);
    // It begins anew, with its directory: the numbers are those of the missing messages.
    for (index, message) in messages.iter().enumerate().take(2 * joined) {
        let payload = packet(b"SESSION001", index as u64 + 1, std::slice::from_ref(message));
        market.apply(&feed(&mut live, input(Line::A, 400 * MS + index as u64 * 100 * US, &payload)));
    }
    assert_eq!(live.channels()[0].arbiter().counters().late, joined as u64);
    assert_eq!(stale(&market, &live), 6);
}

/// The deletion of an order that nobody has added, of the first stock.
fn deletion() -> Vec<u8> {
    let mut message = vec![0; 19];
    (message[0], message[2]) = (b'D', 1);
    message[11..].copy_from_slice(&u64::MAX.to_be_bytes());
    message
}

#[test]
fn a_contradiction_requests_snapshots_at_an_interval_and_a_snapshot_clears_it() {
    let mut messages = messages(3_000, 4, 21);
    messages.insert(1_000, deletion());
    let mut live = live(ArbiterOptions::default(), Some(SnapshotOptions::default()));
    let mut market = Market::new();
    let send = |live: &mut LiveFeed, market: &mut Market, from: usize, to: usize| {
        let payload = packet(b"SESSION001", from as u64 + 1, &messages[from..to]);
        market.apply(&feed(live, input(Line::A, from as u64 * US, &payload)));
    };
    (0..11).for_each(|part| send(&mut live, &mut market, part * 100, part * 100 + 100));
    let contradicted =
        |market: &Market| market.books.feed(Publisher::XNAS_ITCH).unwrap().contradicted_count();
    assert_eq!((contradicted(&market), live.take_request()), (1, None), "no gap");
    assert!(!live.channels()[0].is_stale());
    let at = |ms: u64| Nanos(START + ms * MS);
    let say = |live: &mut LiveFeed, ms| {
        let events = feed(live, Input::Contradicted { channel: 0, received: at(ms) });
        assert_eq!(events, []);
        live.take_request()
    };
    let Some(Request::Snapshot { channel: 0, attempt, .. }) = say(&mut live, 20) else {
        panic!("no request")
    };
    assert_eq!(say(&mut live, 21), None, "one is on its way");
    let mut live = restored(&live);
    send(&mut live, &mut market, 1_100, 1_200);
    let good: Vec<_> = messages[..1_150].iter().filter(|message| **message != deletion()).cloned().collect();
    let (received, state) = (at(30), snapshot_of(&good));
    market.apply(&feed(&mut live, Input::Snapshot { channel: 0, attempt, received, messages: &state }));
    market.apply(&feed(
        &mut live,
        Input::SnapshotEnd { channel: 0, attempt, received, next: 1_151, bytes: state.len() as u64 },
    ));
    assert!(market.state(live.instruments()).iter().all(|(_, _, is_stale)| !is_stale));
    assert_eq!(contradicted(&market), 0);
    assert_eq!(say(&mut live, 40), None, "too soon");
    assert_eq!(say(&mut live, 30_019), None, "too soon");
    assert!(matches!(say(&mut live, 30_020), Some(Request::Snapshot { .. })));
    let snapshots = live.channels()[0].snapshots();
    assert_eq!((snapshots.contradicted, snapshots.requests, snapshots.applied), (2, 2, 1));
}

#[test]
fn a_message_that_cannot_be_read_requests_a_snapshot_at_an_interval() {
    let mut messages = messages(3_000, 4, 21);
    // A deletion without its end.
    messages.insert(1_000, deletion()[..12].to_vec());
    let mut live = live(ArbiterOptions::default(), Some(SnapshotOptions::default()));
    let mut market = Market::new();
    let send = |live: &mut LiveFeed, market: &mut Market, from: usize, to: usize| {
        let payload = packet(b"SESSION001", from as u64 + 1, &messages[from..to]);
        market.apply(&feed(live, input(Line::A, from as u64 * US, &payload)));
    };
    (0..10).for_each(|part| send(&mut live, &mut market, part * 100, part * 100 + 100));
    assert!(!live.channels()[0].is_stale());
    send(&mut live, &mut market, 1_000, 1_100);
    assert!(live.channels()[0].is_stale(), "no number is missing, but a message is");
    assert!(market.state(live.instruments()).iter().all(|(_, _, is_stale)| *is_stale));
    let Some(Request::Snapshot { channel: 0, attempt, .. }) = live.take_request() else {
        panic!("no request")
    };
    send(&mut live, &mut market, 1_100, 1_200);
    assert_eq!(live.take_request(), None, "one is on its way");
    let good: Vec<_> = messages[..1_150].iter().filter(|message| message.len() != 12).cloned().collect();
    let (received, state) = (Nanos(START + 30 * MS), snapshot_of(&good));
    market.apply(&feed(&mut live, Input::Snapshot { channel: 0, attempt, received, messages: &state }));
    market.apply(&feed(
        &mut live,
        Input::SnapshotEnd { channel: 0, attempt, received, next: 1_151, bytes: state.len() as u64 },
    ));
    assert!(market.state(live.instruments()).iter().all(|(_, _, is_stale)| !is_stale));
    assert!(!live.channels()[0].is_stale());
    let snapshots = live.channels()[0].snapshots();
    assert_eq!((snapshots.contradicted, snapshots.requests, snapshots.applied), (1, 1, 1));
}

#[test]
fn a_contradicted_book_stays_stale_when_a_gap_ends() {
    let mut messages = messages(3_000, 4, 22);
    messages.insert(1_000, deletion());
    let mut live = live(ArbiterOptions::default(), None);
    let mut market = Market::new();
    for part in (0..30).filter(|part| *part != 20) {
        let (from, to) = (part * 100, part * 100 + 100);
        let payload = packet(b"SESSION001", from as u64 + 1, &messages[from..to]);
        market.apply(&feed(&mut live, input(Line::A, from as u64 * US, &payload)));
    }
    market.apply(&feed(&mut live, Input::Tick { now: Nanos(START + 10 * MS) }));
    let stale = |market: &Market, live: &LiveFeed| {
        market.state(live.instruments()).iter().filter(|(_, _, is_stale)| *is_stale).count()
    };
    assert_eq!(stale(&market, &live), 4);
    // A message too late that says nothing of books: all is known again.
    let books = market.books.feed(Publisher::XNAS_ITCH).unwrap();
    assert!(books.contradicted_count() >= 1);
    let contradicted = books.contradicted_count();
    market.apply(&[Event::new(EventKind::Recovered, Publisher::XNAS_ITCH, InstrumentId::ALL)]);
    assert_eq!(stale(&market, &live), contradicted);
}

#[test]
fn every_gap_is_counted_by_its_reason() {
    let reasons = |live: &LiveFeed| {
        let counters = *live.channels()[0].arbiter().counters();
        let counted = GapReason::ALL.into_iter().filter(|reason| counters.gaps_of(*reason) > 0);
        let counted: Vec<_> = counted.map(|reason| (reason, counters.gaps_of(reason))).collect();
        assert_eq!(counted.iter().map(|(_, count)| count).sum::<u64>(), counters.gaps);
        counted
    };
    let messages = messages(100, 3, 14);
    let piece = |first: usize, end: usize| packet(b"SESSION001", first as u64 + 1, &messages[first..end]);
    let run = |options: ArbiterOptions, snapshot: Option<SnapshotOptions>, pieces: &[(usize, usize)]| {
        let mut live = live(options, snapshot);
        for (first, end) in pieces {
            feed(&mut live, input(Line::A, *first as u64, &piece(*first, *end)));
        }
        for at in 1..2_000 {
            feed(&mut live, Input::Tick { now: Nanos(START + at * MS) });
            while let Some(request) = live.take_request() {
                if let Request::Snapshot { channel, attempt, .. } = request {
                    let received = Nanos(START + at * MS);
                    feed(
                        &mut live,
                        Input::SnapshotFailed { channel, attempt, fault: SnapshotFault::Refused, received },
                    );
                }
            }
        }
        reasons(&live)
    };
    let none = ArbiterOptions::default();
    let of = |retransmission| ArbiterOptions { retransmission: Some(retransmission), ..none };
    assert_eq!(run(none, None, &[(0, 10), (20, 30)]), [(GapReason::NoServer, 1)]);
    assert_eq!(run(none, None, &[(50, 60)]), [(GapReason::JoinedLate, 1)]);
    assert_eq!(run(none, Some(SnapshotOptions::default()), &[(50, 60)]), [(GapReason::NoSnapshot, 1)]);
    let little = ArbiterOptions { held_bytes: 100, ..none };
    assert_eq!(run(little, None, &[(0, 10), (20, 40)]), [(GapReason::HeldBytes, 1)]);
    let few = RetransmissionOptions { limit_messages: 5, ..Default::default() };
    assert_eq!(run(of(few), None, &[(0, 10), (20, 30)]), [(GapReason::MessageLimit, 1)]);
    let short = RetransmissionOptions { limit_ns: 5 * MS, timeout_ns: 3 * MS, ..Default::default() };
    assert_eq!(run(of(short), None, &[(0, 10), (20, 30)]), [(GapReason::TimeLimit, 1)]);
    let once = RetransmissionOptions { attempts: 1, ..Default::default() };
    assert_eq!(run(of(once), None, &[(0, 10), (20, 30)]), [(GapReason::Attempts, 1)]);
}

#[test]
fn a_session_that_follows_waits_until_the_one_before_is_complete() {
    let messages = messages(400, 3, 8);
    let mut live = live(with_retransmission(), None);
    let mut events = Vec::new();
    let half = messages.len() / 2;
    events.extend(feed(&mut live, input(Line::A, 0, &packet(b"SESSION001", 1, &messages[..half - 5]))));
    // Line A loses the last five and says that the session is over; line B is late.
    let end = control(b"SESSION001", half as u64 + 1, END_OF_SESSION, &[]);
    events.extend(feed(&mut live, input(Line::A, 10 * US, &end)));
    let next = packet(b"SESSION002", 1, &messages[half..]);
    events.extend(feed(&mut live, input(Line::A, 20 * US, &next)));
    let count = events.len();
    let rest = packet(b"SESSION001", half as u64 - 4, &messages[half - 5..half]);
    events.extend(feed(&mut live, input(Line::B, 40 * US, &rest)));
    assert!(events.len() > count);
    events.extend(feed(&mut live, input(Line::B, 50 * US, &next)));
    let arbiter = live.channels()[0].arbiter();
    assert_eq!(arbiter.counters().session_changes, 1);
    assert_eq!(arbiter.counters().gaps, 0);
    assert_eq!(arbiter.counters().messages, messages.len() as u64);
    let clears = events.iter().filter(|event| event.kind == EventKind::Clear).count();
    assert_eq!(clears, 1, "the books of the first session are gone");
    // What is left of the session before changes nothing.
    assert_eq!(feed(&mut live, input(Line::B, 60 * US, &end)), []);
    assert_eq!(live.channels()[0].arbiter().lines()[1].of_past_sessions, 1);
}

#[test]
fn messages_that_cannot_be_read_come_on_the_other_line_or_are_a_gap() {
    let messages = messages(100, 3, 15);
    let expected = lossless(&messages);
    let whole = packet(b"SESSION001", 11, &messages[10..15]);
    let two: usize = messages[10..12].iter().map(|message| 2 + message.len()).sum();
    // In a message, and between two.
    for end in [20 + two + 3, 20 + two] {
        let mut live = live(ArbiterOptions::default(), None);
        let mut events = feed(&mut live, input(Line::A, 0, &packet(b"SESSION001", 1, &messages[..10])));
        events.extend(feed(&mut live, input(Line::A, MS, &whole[..end])));
        assert_eq!(live.channels()[0].arbiter().next(), Some(13));
        assert_eq!(live.feed().problems().bad_framing, 1);
        let mut without = restored(&live);
        events.extend(feed(&mut live, input(Line::B, MS + US, &whole)));
        events.extend(feed(&mut live, input(Line::A, 2 * MS, &packet(b"SESSION001", 16, &messages[15..]))));
        assert_eq!(contents(&events), contents(&expected));
        assert!(!live.channels()[0].is_stale());
        let lines = live.channels()[0].arbiter().lines();
        assert_eq!((lines[0].malformed, lines[0].lost, lines[1].won), (1, 3, 3));
        // The other line is not there.
        let next = packet(b"SESSION001", 16, &messages[15..]);
        let mut events = feed(&mut without, input(Line::A, 2 * MS, &next));
        events.extend(feed(&mut without, Input::Tick { now: Nanos(START + 3 * MS) }));
        let gap = events.iter().find_map(Event::gap).unwrap();
        assert_eq!((gap.first, gap.count), (13, 3));
        assert!(without.channels()[0].is_stale());
    }
}

#[test]
fn a_damaged_packet_and_its_copy_are_applied_once_behind_a_snapshot() {
    let messages = messages(3_000, 6, 16);
    let mut whole = Market::new();
    whole.apply(&lossless(&messages));
    let mut live = live(ArbiterOptions::default(), Some(SnapshotOptions::default()));
    let mut market = Market::new();
    let mut attempted = None;
    for (part, chunk) in messages.chunks(10).enumerate().filter(|(part, _)| *part != 100) {
        let at = part as u64 * MS;
        let payload = packet(b"SESSION001", part as u64 * 10 + 1, chunk);
        let cut = if part == 150 { payload.len() / 2 } else { payload.len() };
        let mut events = feed(&mut live, input(Line::A, at, &payload[..cut]));
        events.extend(feed(&mut live, input(Line::B, at + US, &payload)));
        if let Some(Request::Snapshot { attempt, .. }) = live.take_request() {
            attempted = Some(attempt);
        }
        if part == 200 {
            let (attempt, received) = (attempted.unwrap(), Nanos(START + at));
            let state = snapshot_of(&messages[..1_300]);
            events
                .extend(feed(&mut live, Input::Snapshot { channel: 0, attempt, received, messages: &state }));
            events.extend(feed(
                &mut live,
                Input::SnapshotEnd { channel: 0, attempt, received, next: 1_301, bytes: state.len() as u64 },
            ));
        }
        market.apply(&events);
    }
    let mut reference = self::live(ArbiterOptions::default(), None);
    for (index, message) in messages.iter().enumerate() {
        let payload = packet(b"SESSION001", index as u64 + 1, std::slice::from_ref(message));
        feed(&mut reference, input(Line::A, index as u64 * US, &payload));
    }
    assert_eq!(live.channels()[0].snapshots().applied, 1);
    assert_eq!(market.state(live.instruments()), whole.state(reference.instruments()));
}

#[test]
fn silence_makes_books_stale_until_the_channel_is_heard_and_nothing_is_missing() {
    let messages = messages(100, 3, 9);
    let mut live = live(ArbiterOptions::default(), None);
    feed(&mut live, input(Line::A, 0, &packet(b"SESSION001", 1, &messages[..50])));
    let deadline = Nanos(START + 3_000 * MS);
    assert_eq!(feed(&mut live, Input::Tick { now: Nanos(deadline.0 - 1) }), []);
    let silent = feed(&mut live, Input::Tick { now: deadline });
    assert_eq!(silent.iter().map(|event| event.kind).collect::<Vec<_>>(), [EventKind::Gap]);
    assert!(live.channels()[0].arbiter().is_silent() && live.channels()[0].is_stale());
    let heard = feed(&mut live, input(Line::A, 5_000 * MS, &control(b"SESSION001", 51, 0, &[])));
    assert_eq!(heard.iter().map(|event| event.kind).collect::<Vec<_>>(), [EventKind::Recovered]);
    assert!(!live.channels()[0].is_stale());
    let more = feed(&mut live, input(Line::A, 5_001 * MS, &packet(b"SESSION001", 51, &messages[50..52])));
    assert!(!more.is_empty());
    assert_eq!(live.channels()[0].arbiter().counters().silences, 1);
}

/// The kinds of the events that a snapshot with the state before `next` gives, of those that say something of all books.
fn of_all_books(live: &mut LiveFeed, messages: &[Vec<u8>], next: u64, at: u64) -> Vec<EventKind> {
    let Some(Request::Snapshot { attempt, .. }) = live.take_request() else { panic!("a snapshot is needed") };
    let received = Nanos(START + at);
    let state = snapshot_of(&messages[..next as usize - 1]);
    let mut events = feed(live, Input::Snapshot { channel: 0, attempt, received, messages: &state });
    let bytes = state.len() as u64;
    events.extend(feed(live, Input::SnapshotEnd { channel: 0, attempt, received, next, bytes }));
    let of_all =
        |event: &Event| matches!(event.kind, EventKind::Clear | EventKind::Recovered | EventKind::Gap);
    events.iter().filter(|event| of_all(event)).map(|event| event.kind).collect()
}

#[test]
fn a_channel_whose_lines_fall_silent_while_it_joins_is_silent_when_it_has_joined() {
    let messages = messages(100, 3, 9);
    let mut live = live(ArbiterOptions::default(), Some(SnapshotOptions::default()));
    feed(&mut live, input(Line::A, 0, &packet(b"SESSION001", 61, &messages[60..62])));
    assert!(live.channels()[0].is_awaiting_snapshot());
    feed(&mut live, Input::Tick { now: Nanos(START + 4_000 * MS) });
    assert!(!live.channels()[0].arbiter().is_silent(), "it has not joined yet");
    let kinds = of_all_books(&mut live, &messages, 63, 4_001 * MS);
    assert_eq!(kinds, [EventKind::Clear, EventKind::Recovered, EventKind::Gap]);
    assert!(live.channels()[0].arbiter().is_silent() && live.channels()[0].is_stale());
    feed(&mut live, input(Line::A, 5_000 * MS, &packet(b"SESSION001", 63, &messages[62..64])));
    assert!(!live.channels()[0].arbiter().is_silent() && !live.channels()[0].is_stale());
}

#[test]
fn a_snapshot_that_comes_in_silence_does_not_end_the_silence() {
    let messages = messages(100, 3, 9);
    let mut live = live(ArbiterOptions::default(), Some(SnapshotOptions::default()));
    feed(&mut live, input(Line::A, 0, &packet(b"SESSION001", 1, &messages[..50])));
    // Two messages are lost, and given up.
    feed(&mut live, input(Line::A, MS, &packet(b"SESSION001", 53, &messages[52..60])));
    feed(&mut live, Input::Tick { now: Nanos(START + 2_000 * MS) });
    feed(&mut live, Input::Tick { now: Nanos(START + 4_000 * MS) });
    assert!(live.channels()[0].arbiter().is_silent() && live.channels()[0].is_stale());
    let kinds = of_all_books(&mut live, &messages, 61, 4_001 * MS);
    assert_eq!(kinds, [EventKind::Clear, EventKind::Recovered, EventKind::Gap]);
    assert!(live.channels()[0].is_stale(), "what happens since is not heard");
    feed(&mut live, input(Line::A, 5_000 * MS, &packet(b"SESSION001", 61, &messages[60..62])));
    assert!(!live.channels()[0].is_stale());
}

#[test]
fn a_gap_that_is_given_up_in_silence_does_not_end_the_silence() {
    let messages = messages(30, 3, 11);
    // The server never answers, and the channel is silent before the gap is given up.
    let retransmission =
        RetransmissionOptions { attempts: 3, timeout_ns: 2_000 * MS, ..RetransmissionOptions::default() };
    let options = ArbiterOptions { retransmission: Some(retransmission), ..ArbiterOptions::default() };
    for comes_again in [false, true] {
        let mut live = live(options, None);
        feed(&mut live, input(Line::A, 0, &packet(b"SESSION001", 1, &messages[..10])));
        feed(&mut live, input(Line::A, US, &packet(b"SESSION001", 21, &messages[20..25])));
        let arbiter = |live: &LiveFeed| {
            let arbiter = live.channels()[0].arbiter();
            (arbiter.is_recovering(), arbiter.is_silent(), arbiter.is_line_silent(Line::A))
        };
        let mut now = 0;
        while arbiter(&live) != (true, true, true) {
            now = live.deadline().unwrap().0 - START;
            feed(&mut live, Input::Tick { now: Nanos(START + now) });
            while live.take_request().is_some() {}
        }
        if comes_again {
            feed(&mut live, input(Line::A, now + MS, &packet(b"SESSION001", 26, &messages[25..])));
        }
        while arbiter(&live).0 {
            now = live.deadline().unwrap().0 - START;
            feed(&mut live, Input::Tick { now: Nanos(START + now) });
            while live.take_request().is_some() {}
        }
        assert_eq!(arbiter(&live), (false, !comes_again, !comes_again));
        let counters = live.channels()[0].arbiter().counters();
        assert_eq!((counters.gaps_of(GapReason::Attempts), counters.silences), (1, 1));
        heartbeat(&mut live, now + MS);
        assert_eq!(arbiter(&live), (false, false, false));
    }
}

#[test]
fn the_answer_of_a_server_does_not_end_the_silence_of_the_lines() {
    let messages = messages(30, 3, 11);
    let retransmission =
        RetransmissionOptions { attempts: 3, timeout_ns: 2_000 * MS, ..RetransmissionOptions::default() };
    let options = ArbiterOptions { retransmission: Some(retransmission), ..ArbiterOptions::default() };
    let mut live = live(options, None);
    feed(&mut live, input(Line::A, 0, &packet(b"SESSION001", 1, &messages[..10])));
    feed(&mut live, input(Line::A, US, &packet(b"SESSION001", 21, &messages[20..])));
    let arbiter = |live: &LiveFeed| {
        let arbiter = live.channels()[0].arbiter();
        (arbiter.is_recovering(), arbiter.is_silent())
    };
    let mut now = 0;
    while arbiter(&live) != (true, true) {
        now = live.deadline().unwrap().0 - START;
        feed(&mut live, Input::Tick { now: Nanos(START + now) });
        while live.take_request().is_some() {}
    }
    let events =
        feed(&mut live, input(Line::Recovery, now + MS, &packet(b"SESSION001", 11, &messages[10..20])));
    assert!(events.iter().all(|event| event.kind != EventKind::Recovered), "{events:?}");
    assert_eq!(arbiter(&live), (false, true));
    // A packet of a line does.
    let again = heartbeat(&mut live, now + 2 * MS);
    assert_eq!(arbiter(&live), (false, false));
    assert!(again.iter().any(|event| event.kind == EventKind::Recovered), "{again:?}");
}

#[test]
fn an_unanswered_request_is_repeated_and_then_the_gap_is_given_up() {
    let messages = messages(100, 3, 11);
    let retransmission = RetransmissionOptions { attempts: 3, ..RetransmissionOptions::default() };
    let options = ArbiterOptions { retransmission: Some(retransmission), ..ArbiterOptions::default() };
    let mut live = live(options, None);
    feed(&mut live, input(Line::A, 0, &packet(b"SESSION001", 1, &messages[..10])));
    assert_eq!(feed(&mut live, input(Line::A, US, &packet(b"SESSION001", 21, &messages[20..30]))), []);
    let mut requests = Vec::new();
    let mut events = Vec::new();
    for step in 1..40 {
        events.extend(feed(&mut live, Input::Tick { now: Nanos(START + step * MS) }));
        while let Some(Request::Retransmission { request, .. }) = live.take_request() {
            assert_eq!((request.first, request.count), (11, 10));
            assert_eq!(request.encode(), control(b"SESSION001", 11, 10, &[]));
            requests.push(step);
        }
    }
    assert_eq!(requests, [1, 11, 21]);
    assert_eq!(events[0].gap().unwrap().count, 10);
    assert_eq!(events[0].ts_recv, Nanos(START + 31 * MS));
    assert_eq!(live.channels()[0].arbiter().counters().gaps_of(GapReason::Attempts), 1);
    assert!(live.channels()[0].is_stale());
}

#[test]
fn each_of_many_gaps_has_its_own_time_limit() {
    let messages = messages(40, 3, 8);
    let retransmission = RetransmissionOptions {
        timeout_ns: 50 * MS,
        limit_ns: 200 * MS,
        // One after the other: the last is requested later than one may take.
        requests_in_flight: 1,
        ..Default::default()
    };
    let options = ArbiterOptions { retransmission: Some(retransmission), ..ArbiterOptions::default() };
    let mut live = live(options, None);
    let piece = |first: u64, count: u64| {
        packet(b"SESSION001", first, &messages[first as usize - 1..(first + count - 1) as usize])
    };
    // Nine gaps of a message each, known at once.
    for first in (1..40).step_by(4) {
        feed(&mut live, input(Line::A, first, &piece(first, 3)));
    }
    let mut events = Vec::new();
    let mut requests = 0;
    for step in 0..=24 {
        let at = step * 30 * MS;
        let now = Nanos(START + at);
        events.extend(feed(&mut live, Input::Tick { now }));
        if let Some(Request::Retransmission { request, .. }) = live.take_request() {
            requests += 1;
            // All gaps together have taken longer than one may when this request is lost.
            if requests == 6 {
                continue;
            }
            let answer = piece(request.first, u64::from(request.count));
            events.extend(feed(&mut live, input(Line::Recovery, at + 30 * MS, &answer)));
        }
    }
    assert!(events.iter().all(|event| event.kind != EventKind::Gap));
    assert_eq!((requests, live.channels()[0].arbiter().next()), (10, Some(40)));
}

fn kinds(events: &[Event]) -> Vec<EventKind> {
    events.iter().map(|event| event.kind).collect()
}

#[test]
fn lost_inputs_make_books_stale_until_the_sequence_shows_that_nothing_is_missing() {
    let messages = messages(100, 3, 11);
    let mut live = live(ArbiterOptions::default(), None);
    let lost = |live: &mut LiveFeed, at: u64| {
        let mut events = Vec::new();
        live.inputs_lost(Nanos(START + at), &mut |event: Event| events.push(event));
        events
    };
    assert_eq!(lost(&mut live, 0), [], "nothing was known");
    feed(&mut live, input(Line::A, 0, &packet(b"SESSION001", 1, &messages[..50])));
    let found = lost(&mut live, MS);
    assert_eq!(kinds(&found), [EventKind::Gap]);
    assert_eq!((found[0].instrument, found[0].gap().map(|gap| gap.first)), (InstrumentId::ALL, Some(51)));
    assert!(live.channels()[0].is_stale());
    // It goes on where it was: what was lost was of no account.
    let more = feed(&mut live, input(Line::A, 2 * MS, &packet(b"SESSION001", 51, &messages[50..52])));
    assert!(more.iter().any(|event| event.kind == EventKind::Recovered) && !live.channels()[0].is_stale());
    // It goes on elsewhere: messages are missing.
    lost(&mut live, 3 * MS);
    feed(&mut live, input(Line::A, 4 * MS, &packet(b"SESSION001", 61, &messages[60..62])));
    let given_up = feed(&mut live, Input::Tick { now: Nanos(START + 10 * MS) });
    let gap = given_up.iter().find_map(Event::gap).unwrap();
    assert_eq!((gap.first, gap.count), (53, 8));
    assert!(live.channels()[0].is_stale());
}

/// A damaged journal lost messages of it, and the number of its attempt is that of the request after the loss.
#[test]
fn a_snapshot_that_lacks_messages_is_not_applied() {
    let messages = messages(100, 3, 12);
    let mut live = live(ArbiterOptions::default(), Some(SnapshotOptions::default()));
    feed(&mut live, input(Line::A, 0, &packet(b"SESSION001", 51, &messages[50..55])));
    let Some(Request::Snapshot { attempt, .. }) = live.take_request() else {
        panic!("it joins by a snapshot")
    };
    let (received, state) = (Nanos(START + MS), snapshot_of(&messages[..50]));
    let (_lost, part) = state.split_at(state.len() / 2);
    feed(&mut live, Input::Snapshot { channel: 0, attempt, received, messages: part });
    let end = |attempt, bytes: usize| Input::SnapshotEnd {
        channel: 0,
        attempt,
        received,
        next: 51,
        bytes: bytes as u64,
    };
    assert_eq!(feed(&mut live, end(attempt, state.len())), []);
    let snapshots = live.channels()[0].snapshots();
    assert_eq!((snapshots.applied, snapshots.failed, snapshots.requests), (0, 1, 1));
    assert_eq!(snapshots.last_fault, Some(SnapshotFault::InputsLost));
    feed(&mut live, Input::Tick { now: Nanos(START + 200 * MS) });
    let Some(Request::Snapshot { attempt, .. }) = live.take_request() else { panic!("it asks again") };
    feed(&mut live, Input::Snapshot { channel: 0, attempt, received, messages: &state });
    let events = feed(&mut live, end(attempt, state.len()));
    assert!(events.iter().any(|event| event.kind == EventKind::Recovered));
    assert_eq!(live.channels()[0].snapshots().applied, 1);
}

#[test]
fn a_snapshot_with_a_possible_gap_is_not_applied() {
    let messages = messages(100, 3, 12);
    let mut live = live(ArbiterOptions::default(), Some(SnapshotOptions::default()));
    feed(&mut live, input(Line::A, 0, &packet(b"SESSION001", 5_001, &messages[..5])));
    let Some(Request::Snapshot { attempt, .. }) = live.take_request() else {
        panic!("it joins by a snapshot")
    };
    let received = Nanos(START + MS);
    live.inputs_lost(received, &mut |_: Event| {});
    let end = Input::SnapshotEnd { channel: 0, attempt, received, next: 5_001, bytes: 0 };
    assert_eq!(feed(&mut live, end), []);
    let snapshots = live.channels()[0].snapshots();
    assert_eq!((snapshots.applied, snapshots.failed, snapshots.requests), (0, 1, 1));
    feed(&mut live, Input::Tick { now: Nanos(START + 200 * MS) });
    assert!(
        matches!(live.take_request(), Some(Request::Snapshot { attempt: next, .. }) if next == attempt + 1)
    );
}

#[test]
fn gaps_between_two_states_are_reported_for_channels_that_have_advanced() {
    let messages = messages(100, 3, 13);
    let mut live = live(ArbiterOptions::default(), None);
    feed(&mut live, input(Line::A, 0, &packet(b"SESSION001", 1, &messages[..50])));
    let mut later = restored(&live);
    let missed = |live: &LiveFeed, later: &LiveFeed| {
        let mut events = Vec::new();
        live.put_missed(later, Nanos(START + MS), &mut |event: Event| events.push(event));
        events
    };
    assert_eq!(missed(&live, &later), []);
    feed(&mut later, input(Line::A, MS, &packet(b"SESSION001", 51, &messages[50..80])));
    let found = missed(&live, &later);
    assert_eq!(kinds(&found), [EventKind::Gap]);
    let gap = found[0].gap().unwrap();
    assert_eq!((gap.first, gap.count, found[0].instrument), (51, 30, InstrumentId::ALL));
    // A channel that had not begun lacks all.
    let found = missed(&self::live(ArbiterOptions::default(), None), &later);
    assert_eq!(kinds(&found), [EventKind::Gap]);
    assert_eq!(found[0].gap().map(|gap| (gap.first, gap.count)), Some((1, 80)));
    assert_eq!((found[0].publisher, found[0].instrument), (Publisher::XNAS_ITCH, InstrumentId::ALL));
}

#[test]
fn a_session_of_another_feed_on_the_same_transport_is_counted_and_not_followed() {
    let options = LiveChannelOptions {
        application: Application::IexTops16,
        publisher: Publisher::IEXG_TOPS,
        ..channel(ArbiterOptions::default(), None)
    };
    let mut live = LiveFeed::new(FeedOptions::default(), vec![options]);
    let heartbeat = |protocol, next| {
        let session = SessionId::IexTp { protocol, channel: 1, session: 7 };
        let header = Outgoing {
            session,
            sequence: next,
            messages: 0,
            content: Content::Heartbeat,
            stream_offset: 0,
            payload_bytes: 0,
            send_time_ns: 0,
        };
        let mut payload = vec![0; 40];
        assert_eq!(IexTp::write_header(&header, &mut payload), 40);
        payload
    };
    let (tops, deep) = (heartbeat(0x8003, 1), heartbeat(0x8004, 100));
    // Before a session is followed, and after.
    for payload in [&deep, &tops, &deep] {
        assert_eq!(feed(&mut live, input(Line::A, 0, payload)), []);
    }
    let arbiter = live.channels()[0].arbiter();
    assert_eq!(arbiter.session(), Some(SessionId::IexTp { protocol: 0x8003, channel: 1, session: 7 }));
    assert_eq!((arbiter.next(), arbiter.counters().gaps_opened), (Some(1), 0));
    assert_eq!((arbiter.lines()[0].of_other_feeds, arbiter.counters().session_changes), (2, 0));
}

#[test]
fn an_answer_that_cannot_be_read_fills_no_gap() {
    let messages = messages(100, 3, 9);
    let mut live = live(with_retransmission(), None);
    feed(&mut live, input(Line::A, 0, &packet(b"SESSION001", 1, &messages[..50])));
    feed(&mut live, input(Line::A, US, &packet(b"SESSION001", 53, &messages[52..60])));
    feed(&mut live, Input::Tick { now: Nanos(START + MS) });
    assert!(matches!(live.take_request(), Some(Request::Retransmission { .. })));
    // The numbers and lengths are right, the types are unknown.
    let unknown: Vec<Vec<u8>> = messages[50..52].iter().map(|message| vec![0xff; message.len()]).collect();
    feed(&mut live, input(Line::Recovery, 2 * MS, &packet(b"SESSION001", 51, &unknown)));
    assert!(live.channels()[0].arbiter().is_recovering());
    assert_eq!(live.channels()[0].arbiter().next(), Some(51));
    feed(&mut live, input(Line::Recovery, 3 * MS, &packet(b"SESSION001", 51, &messages[50..52])));
    assert_eq!(live.channels()[0].arbiter().next(), Some(61));
}
