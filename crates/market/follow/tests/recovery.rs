//! A venue's retransmission server that answers in part, late, twice, out of order, wrongly or not at all: what it has is not missing.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::ops::Range;

use proptest::prelude::*;
use tapeworks_follow::arbitration::{
    Arbiter, ArbiterOptions, Delivery, GapReason, RetransmissionOptions, Usefulness,
};
use tapeworks_market::Line;
use tapeworks_session::{Content, Outgoing, Pillar, Request, SessionId, Transport as _, TransportKind};
use tapeworks_time::Nanos;
use tapeworks_wire::Ascii;
use tapeworks_wire::framing::{BigEndian, Blocks};
use tapeworks_wire::nasdaq::moldudp64::{DownstreamPacketFields, END_OF_SESSION};

const MOLD: TransportKind = TransportKind::MoldUdp64;

const SESSION: [u8; 10] = *b"SESSION001";
const US: u64 = 1_000;
const MS: u64 = 1_000_000;

fn packet(session: [u8; 10], first: u64, count: u16, messages: Range<u64>) -> Vec<u8> {
    let mut blocks = Vec::new();
    for number in messages {
        blocks.extend_from_slice(&8u16.to_be_bytes());
        blocks.extend_from_slice(&number.to_be_bytes());
    }
    let fields = DownstreamPacketFields {
        session: Ascii(session),
        sequence_number: first,
        message_count: count,
        messages: &[],
    };
    // The header first: a count that is not that of the blocks is not encoded.
    let mut bytes = vec![0; 20];
    fields.encode_into(&mut bytes).unwrap();
    bytes.extend(blocks);
    bytes
}

fn right(numbers: Range<u64>) -> Vec<u8> {
    packet(SESSION, numbers.start, (numbers.end - numbers.start) as u16, numbers)
}

/// Draws as a linear congruential generator does (Knuth's constants).
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound.max(1)
    }

    fn chance(&mut self, in_thousand: u64) -> bool {
        self.below(1_000) < in_thousand
    }
}

/// What a server does, each in 1,000 requests.
#[derive(Clone, Copy, Debug)]
struct Server {
    /// Messages that fit an answer.
    room: u64,
    /// What it keeps begins here.
    kept_from: u64,
    /// It names the first message that it keeps instead of saying nothing.
    names_oldest: bool,
    /// It sends all messages of a request, in several packets.
    in_parts: bool,
    silent: u64,
    late: u64,
    twice: u64,
    amid: u64,
    wrong: u64,
}

impl Server {
    const RIGHT: Self = Self {
        room: 40,
        kept_from: 1,
        names_oldest: false,
        in_parts: false,
        silent: 0,
        late: 0,
        twice: 0,
        amid: 0,
        wrong: 0,
    };

    /// The answers to a request, each after so many ns.
    fn answers(&self, request: &Request, sent: u64, draw: &mut Draw) -> Vec<(u64, Vec<u8>)> {
        let wanted = request.first..(request.first + u64::from(request.count)).min(sent);
        let mut answers = Vec::new();
        if draw.chance(self.wrong) {
            let at = wanted.start + draw.below(3_000);
            let count = 1 + draw.below(50);
            answers.push(match draw.below(10) {
                0 => packet(*b"ANOTHERONE", at, count as u16, at..at + count),
                // More, and fewer, than there are.
                1 => packet(SESSION, wanted.start, count as u16, wanted.start..wanted.start + count / 2),
                2 => packet(SESSION, at, count as u16, at..at),
                3 => packet(SESSION, at, 0, at..at),
                4 => packet(SESSION, wanted.start, END_OF_SESSION, at..at),
                // Packets that were never requested, from long ago or not sent yet.
                5 => {
                    let old = at.saturating_sub(2_000).clamp(1, sent - count);
                    right(old..old + count)
                }
                6 => right(sent + 100_000..sent + 100_000 + count),
                // Cut, longer than it says, and of no session.
                7 => {
                    let mut cut = right(wanted.clone());
                    cut.truncate(draw.below(cut.len() as u64).max(20) as usize);
                    cut
                }
                8 => [right(wanted.clone()), vec![0]].concat(),
                _ => (0..60).map(|_| draw.below(256) as u8).collect(),
            });
        }
        if self.in_parts {
            let mut rest = wanted.clone();
            while rest.start < rest.end {
                let part = rest.start..rest.end.min(rest.start + 1 + draw.below(self.room));
                rest.start = part.end;
                answers.extend((!draw.chance(self.silent)).then(|| right(part.clone())));
                answers.extend(draw.chance(self.twice).then(|| right(part)));
            }
        } else if request.first >= self.kept_from && !draw.chance(self.silent) {
            let count = (1 + draw.below(self.room)).min(wanted.end - wanted.start);
            let from = if draw.chance(self.amid) { draw.below(wanted.end - wanted.start) } else { 0 };
            let numbers = wanted.start + from..(wanted.start + from + count).min(wanted.end);
            answers.push(right(numbers.clone()));
            if draw.chance(self.twice) {
                answers.push(right(numbers));
            }
        }
        if request.first < self.kept_from && self.names_oldest && !draw.chance(self.silent) {
            answers.push(packet(SESSION, self.kept_from, 0, 0..0));
        }
        let late = self.late;
        answers
            .into_iter()
            .map(|answer| {
                let delay = if draw.chance(late) { draw.below(30 * MS) } else { draw.below(300 * US) };
                (100 * US + delay, answer)
            })
            .collect()
    }
}

/// The result of a run.
struct Outcome {
    /// The numbers handed on, in order.
    delivered: Vec<u64>,
    gaps: Vec<(u64, u64)>,
    arbiter: Arbiter,
    /// Requests by the time at which they were sent.
    requests: Vec<(u64, Request)>,
    ended: u64,
}

struct Run {
    arbiter: Arbiter,
    delivered: Vec<u64>,
    gaps: Vec<(u64, u64)>,
}

impl Run {
    fn each(&mut self, act: impl FnOnce(&mut Arbiter, &mut dyn FnMut(Delivery<'_>))) {
        let Self { arbiter, delivered, gaps } = self;
        let mut deliver = |delivery: Delivery<'_>| match delivery {
            Delivery::Packet { payload, header, .. } => {
                let blocks = Blocks::counted(&payload[20..], header.count, BigEndian);
                for (number, block) in (header.first..).zip(blocks) {
                    // Skips messages that it had before, or that were given up, as a consumer does.
                    let given_up = gaps.last().map_or(0, |(first, count)| first + count);
                    if number >= given_up && delivered.last().is_none_or(|last| *last < number) {
                        assert_eq!(u64::from_be_bytes(block.unwrap().try_into().unwrap()), number);
                        delivered.push(number);
                    }
                }
            }
            Delivery::Gap { missing, .. } => gaps.push(missing),
            _ => {}
        };
        act(arbiter, &mut deliver);
    }
}

/// A line that is not heard while the messages of `outages` are sent, packets lost besides, and a server.
fn run(
    messages: u64,
    outages: &[Range<u64>],
    lost: u64,
    server: Server,
    retransmission: RetransmissionOptions,
    seed: u64,
) -> Outcome {
    let mut draw = Draw(seed);
    let options = ArbiterOptions { retransmission: Some(retransmission), ..ArbiterOptions::default() };
    let mut run = Run { arbiter: Arbiter::new(MOLD, options), delivered: Vec::new(), gaps: Vec::new() };
    let mut due: BTreeMap<(u64, u64), (Line, Vec<u8>)> = BTreeMap::new();
    let (mut number, mut first, mut at) = (0, 1, 0);
    while first <= messages {
        let end = (first + 1 + draw.below(4)).min(messages + 1);
        at += 10 * US;
        let is_out = outages.iter().any(|outage| outage.start < end && first < outage.end);
        let is_last = end > messages;
        if is_last || first == 1 || !is_out && !draw.chance(lost) {
            number += 1;
            due.insert((at, number), (Line::A, right(first..end)));
        }
        first = end;
    }
    let mut requests: Vec<(u64, Request)> = Vec::new();
    let mut clock = 0;
    let last = at;
    loop {
        let next_input = due.first_key_value().map(|((at, _), _)| *at);
        let deadline = run.arbiter.deadline().filter(|_| run.arbiter.is_recovering()).map(|due| due.0);
        clock = match (next_input, deadline) {
            (Some(input), Some(deadline)) if deadline < input => deadline.max(clock),
            (Some(input), _) => input,
            (None, Some(deadline)) => deadline.max(clock),
            (None, None) => break,
        };
        if next_input == Some(clock) {
            let (_, (line, bytes)) = due.pop_first().unwrap();
            run.each(|arbiter, deliver| {
                let _malformed = arbiter.packet(line, Nanos(clock), &bytes, &mut |one| deliver(one));
            });
        } else {
            run.each(|arbiter, deliver| arbiter.advance(Nanos(clock), &mut |one| deliver(one)));
        }
        while let Some(request) = run.arbiter.take_request() {
            assert_eq!(request.session, SessionId::MoldUdp64(SESSION));
            assert!(request.count > 0 && request.count <= retransmission.messages_per_request);
            let (first, end) = (request.first, request.first + u64::from(request.count));
            // No request names a message that was handed on, or one beyond what the line has brought.
            assert!(run.arbiter.next().is_some_and(|next| next <= first) && end <= messages + 1);
            requests.push((clock, request));
            let at_once = requests.iter().rev().take_while(|(sent, _)| *sent == clock).count();
            assert!(at_once <= usize::from(retransmission.requests_in_flight));
            for (delay, answer) in server.answers(&request, messages + 1, &mut draw) {
                number += 1;
                due.insert((clock + delay, number), (Line::Recovery, answer));
            }
        }
    }
    let Run { arbiter, delivered, gaps } = run;
    Outcome { delivered, gaps, arbiter, requests, ended: clock.saturating_sub(last) }
}

fn patient() -> RetransmissionOptions {
    RetransmissionOptions { attempts: 1_000, timeout_ns: 2 * MS, ..RetransmissionOptions::default() }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn messages_that_the_server_has_are_not_missing(
        outage in (10u64..2_000, 1u64..15_000),
        second in (18_000u64..19_000, 1u64..500),
        lost in prop::sample::select(vec![0u64, 5, 200]),
        room in 1u64..60,
        (silent, late, twice, amid, wrong) in (0u64..400, 0u64..400, 0u64..400, 0u64..400, 0u64..400),
        messages_per_request in prop::sample::select(vec![1u16, 7, 100, 1_000, 65_534]),
        requests_in_flight in prop::sample::select(vec![1u16, 2, 32, 200]),
        in_parts in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let messages = 20_000;
        let server =
            Server { room, kept_from: 1, names_oldest: false, in_parts, silent, late, twice, amid, wrong };
        let options = RetransmissionOptions {
            messages_per_request, requests_in_flight, answers_in_parts: in_parts, ..patient()
        };
        let outages = [outage.0..outage.0 + outage.1, second.0..second.0 + second.1];
        let outcome = run(messages, &outages, lost, server, options, seed);
        let counters = outcome.arbiter.counters();
        prop_assert_eq!((&outcome.gaps[..], counters.missing), (&[][..], 0));
        prop_assert!(outcome.delivered.iter().copied().eq(1..=messages));
        prop_assert_eq!(counters.messages, messages);
        prop_assert_eq!(counters.requests, outcome.requests.len() as u64);
        prop_assert!(counters.filled_by_retransmission > 0 && counters.recovered > 0);
        prop_assert!(!outcome.arbiter.is_recovering());
        prop_assert_eq!(outcome.arbiter.held_packets(), 0);
        let answers = outcome.arbiter.lines()[2];
        // Of fewer wrong answers none may have come that could be noticed.
        let expected_wrong = wrong * outcome.requests.len() as u64 / 1_000;
        let noticed = answers.unrequested + answers.malformed + answers.of_past_sessions;
        prop_assert!(expected_wrong < 50 || noticed > 0, "{} expected", expected_wrong);
    }

    #[test]
    fn only_messages_that_the_server_has_forgotten_are_missing(
        kept_from in 1_000u64..60_000,
        end in 61_000u64..70_000,
        seed in any::<u64>(),
    ) {
        let server = Server { kept_from, ..Server::RIGHT };
        let options = RetransmissionOptions { attempts: 3, ..RetransmissionOptions::default() };
        let outage = 100..end;
        let outcome = run(80_000, std::slice::from_ref(&outage), 0, server, options, seed);
        // The piece that has the first message which is kept may be missing too.
        let missing: u64 = outcome.gaps.iter().map(|(_, count)| count).sum();
        prop_assert_eq!(missing, outcome.arbiter.counters().missing);
        prop_assert!(missing <= kept_from - 96 + u64::from(options.messages_per_request), "{:?}", outcome.gaps);
        prop_assert_eq!(outcome.gaps.len(), 1);
        prop_assert_eq!(missing + outcome.delivered.len() as u64, 80_000);
    }

    #[test]
    fn exactly_the_messages_before_the_oldest_that_a_server_names_are_missing(
        kept_from in 1u64..20_000,
        lost in prop::sample::select(vec![0u64, 5, 200]),
        end in 200u64..19_000,
        (silent, late, twice) in (0u64..400, 0u64..400, 0u64..400),
        messages_per_request in prop::sample::select(vec![1u16, 100, 65_534]),
        requests_in_flight in prop::sample::select(vec![1u16, 32]),
        seed in any::<u64>(),
    ) {
        let server = Server { kept_from, names_oldest: true, silent, late, twice, ..Server::RIGHT };
        let options = RetransmissionOptions {
            answers_name_oldest: true, messages_per_request, requests_in_flight, ..patient()
        };
        let outage = 100..end;
        let outcome = run(20_000, std::slice::from_ref(&outage), lost, server, options, seed);
        let missing: Vec<u64> = outcome.gaps.iter().flat_map(|(first, count)| *first..first + count).collect();
        let counters = outcome.arbiter.counters();
        prop_assert_eq!(counters.missing, missing.len() as u64);
        prop_assert!(missing.iter().all(|number| *number < kept_from), "{:?}", outcome.gaps);
        // What was missing behind it came, and what is missing before it never did.
        let mut all = [missing, outcome.delivered].concat();
        all.sort_unstable();
        prop_assert!(all.into_iter().eq(1..=20_000));
        prop_assert_eq!(counters.gaps_of(GapReason::NotKept), counters.gaps);
        prop_assert_eq!(counters.recovered > 0, counters.filled_by_retransmission > 0);
    }
}

#[test]
fn gaps_that_the_server_no_longer_keeps_are_given_up_as_soon_as_it_says_so() {
    let server = Server { kept_from: 15_000, names_oldest: true, ..Server::RIGHT };
    let options = RetransmissionOptions { answers_name_oldest: true, ..RetransmissionOptions::default() };
    let outcome = run(20_000, &[], 100, server, options, 7);
    let counters = outcome.arbiter.counters();
    assert!(counters.gaps > 300 && counters.filled_by_retransmission > 100, "{counters:?}");
    assert_eq!((counters.gaps_of(GapReason::NotKept), counters.repeated_requests), (counters.gaps, 0));
    assert!(outcome.ended < 2 * MS, "{}", outcome.ended);
    // Of one long gap the first part is missing, and the rest is not.
    let outage = 100..19_000;
    let outcome = run(20_000, std::slice::from_ref(&outage), 0, server, options, 7);
    let [(first, count)] = outcome.gaps[..] else { panic!("{:?}", outcome.gaps) };
    assert_eq!((first + count, outcome.arbiter.counters().repeated_requests), (15_000, 0));
}

#[test]
fn a_partial_answer_is_requested_further_at_once_and_several_requests_are_in_flight() {
    let outage = 50_000..150_000;
    let outcome = run(
        200_000,
        std::slice::from_ref(&outage),
        0,
        Server { room: 1, ..Server::RIGHT },
        RetransmissionOptions::default(),
        1,
    );
    assert_eq!(outcome.gaps, []);
    // An answer for each message, 32 at a time, each within 400 us.
    assert!(outcome.requests.len() >= 100_000 && outcome.requests.len() < 100_010);
    let (began, ended) = (outcome.requests[0].0, outcome.requests.last().unwrap().0);
    assert!(ended - began < 100_000 / 32 * 400 * US, "{}", ended - began);
    assert_eq!(outcome.arbiter.counters().repeated_requests, 0);
    let at_once = outcome.requests.iter().take_while(|(at, _)| *at == began).count();
    assert_eq!(at_once, 32);
    let report = outcome.arbiter.last_recovery().unwrap();
    assert!(report.is_complete && report.recovered >= 100_000 && report.first <= 50_000, "{report:?}");
    assert_eq!(outcome.arbiter.counters().long_recoveries, 1);
}

#[test]
fn a_request_that_is_lost_is_repeated_alone() {
    let options = RetransmissionOptions { messages_per_request: 10, ..RetransmissionOptions::default() };
    let server = Server { room: 1_000, silent: 20, ..Server::RIGHT };
    let outage = 1_000..9_000;
    let outcome = run(20_000, std::slice::from_ref(&outage), 0, server, options, 3);
    let counters = outcome.arbiter.counters();
    assert_eq!(counters.missing, 0);
    assert!(
        counters.repeated_requests > 0 && counters.repeated_requests * 10 < counters.requests,
        "{counters:?}"
    );
}

#[test]
fn a_dead_server_takes_two_rounds_of_attempts() {
    let server = Server { kept_from: u64::MAX, ..Server::RIGHT };
    let options = RetransmissionOptions { attempts: 3, ..RetransmissionOptions::default() };
    let outage = 100..900_000;
    let outcome = run(900_100, std::slice::from_ref(&outage), 0, server, options, 1);
    assert_eq!(outcome.gaps.len(), 1);
    assert!(outcome.ended < 70 * MS, "{}", outcome.ended);
    assert_eq!(outcome.requests.len(), 2 * 3 * 32);
}

#[test]
fn gaps_that_are_too_long_or_take_too_long_are_given_up() {
    let outage = 100..40_000;
    let too_long = RetransmissionOptions { limit_messages: 39_000, ..RetransmissionOptions::default() };
    let outcome = run(50_000, std::slice::from_ref(&outage), 0, Server::RIGHT, too_long, 1);
    assert_eq!((outcome.requests.len(), outcome.gaps.len()), (0, 1));
    assert_eq!(outcome.arbiter.counters().too_long, 1);
    // A message every 200 us or so: 40,000 take longer than this.
    let slow = RetransmissionOptions { limit_ns: 500 * MS, requests_in_flight: 1, ..too_long };
    let slow = RetransmissionOptions { limit_messages: 1_000_000, ..slow };
    let outcome = run(50_000, std::slice::from_ref(&outage), 0, Server { room: 1, ..Server::RIGHT }, slow, 1);
    let missing: u64 = outcome.gaps.iter().map(|(_, count)| count).sum();
    let counters = outcome.arbiter.counters();
    assert!(counters.recovered > 1_000 && missing > 30_000, "{counters:?}");
    assert_eq!(missing + outcome.delivered.len() as u64, 50_000);
    let report = outcome.arbiter.last_recovery().unwrap();
    assert!(!report.is_complete && report.duration_ns() >= 500 * MS);
}

/// Ten messages for each gap; the last of them is missing. Follows an arbiter whose server has the answers to the requests that `is_answered` says,
/// 300 us later. Returns it, the gaps that were given up, and the last request or answer.
fn many_gaps(
    gaps: u64,
    retransmission: RetransmissionOptions,
    mut is_answered: impl FnMut(u64, &Request) -> bool,
) -> (Arbiter, Vec<(u64, u64)>, u64) {
    let options = ArbiterOptions { retransmission: Some(retransmission), ..ArbiterOptions::default() };
    let mut run = Run { arbiter: Arbiter::new(MOLD, options), delivered: Vec::new(), gaps: Vec::new() };
    for gap in 0..=gaps {
        let payload = right(10 * gap + 1..10 * gap + 10);
        run.each(|arbiter, deliver| {
            arbiter.packet(Line::A, Nanos(gap), &payload, &mut |one| deliver(one)).unwrap();
        });
    }
    let (mut answers, mut now, mut ended) = (BTreeMap::new(), gaps, 0);
    while run.arbiter.is_recovering() {
        let due = run.arbiter.deadline().unwrap().0;
        let answer = answers.first_key_value().map(|(key, _): (&(u64, u64), _)| *key);
        if let Some(key) = answer.filter(|(at, _)| *at <= due) {
            now = key.0;
            let numbers: Range<u64> = answers.remove(&key).unwrap();
            run.each(|arbiter, deliver| {
                arbiter.packet(Line::Recovery, Nanos(now), &right(numbers), &mut |one| deliver(one)).unwrap();
            });
            ended = now;
        } else {
            now = due.max(now);
            run.each(|arbiter, deliver| arbiter.advance(Nanos(now), &mut |one| deliver(one)));
        }
        while let Some(request) = run.arbiter.take_request() {
            assert_eq!((request.first % 10, request.count), (0, 1));
            if is_answered(now, &request) {
                answers.insert((now + 300 * US, request.first), request.first..request.first + 1);
            }
            ended = now;
        }
    }
    (run.arbiter, run.gaps, ended)
}

#[test]
fn fifty_gaps_behind_each_other_wait_for_lost_answers_together() {
    let mut asked = std::collections::BTreeSet::new();
    let options = RetransmissionOptions { requests_in_flight: 50, ..RetransmissionOptions::default() };
    // The first answer for each gap is lost.
    let (arbiter, gaps, ended) = many_gaps(50, options, |_, request| !asked.insert(request.first));
    assert_eq!((gaps.len(), arbiter.next()), (0, Some(510)));
    // The reorder window, one time-out, and the way of an answer. One after the other they would take 515 ms.
    assert!(ended <= 500 * US + 50 + 10 * MS + 300 * US, "{ended}");
    let counters = arbiter.counters();
    assert_eq!((counters.requests, counters.repeated_requests, counters.recovered), (100, 50, 50));
    assert_eq!(
        (counters.gaps_opened, counters.filled_by_retransmission, counters.filled_by_lines),
        (50, 50, 0)
    );
    // With fewer requests in flight so many gaps wait together. A request that a packet causes has twice the time: the packet may be old.
    asked.clear();
    let few = RetransmissionOptions { requests_in_flight: 10, ..options };
    let (arbiter, gaps, ended) = many_gaps(50, few, |_, request| !asked.insert(request.first));
    assert_eq!((gaps.len(), arbiter.next()), (0, Some(510)));
    assert!(ended <= 5 * (20 * MS + 600 * US), "{ended}");
}

#[test]
fn a_gap_that_is_hopeless_takes_no_gap_behind_it_along() {
    let options =
        RetransmissionOptions { attempts: 3, requests_in_flight: 8, ..RetransmissionOptions::default() };
    // Of each third gap the server has nothing; the first answers for the others are lost.
    let mut asked = std::collections::BTreeSet::new();
    let is_answered =
        |_, request: &Request| !request.first.is_multiple_of(30) && !asked.insert(request.first);
    let (arbiter, gaps, ended) = many_gaps(40, options, is_answered);
    let hopeless: Vec<(u64, u64)> = (1..=13).map(|gap| (30 * gap, 1)).collect();
    assert_eq!(gaps, hopeless);
    let counters = arbiter.counters();
    assert_eq!((counters.gaps_opened, counters.filled_by_retransmission, counters.gaps), (40, 27, 13));
    assert_eq!(counters.gaps_of(GapReason::Attempts), 13);
    // One after the other they would take 13 times three time-outs, and 27 times one.
    assert!(ended < (13 * 30 + 27 * 10) * MS / 5, "{ended}");
}

#[test]
fn a_gap_whose_tries_are_over_is_filled_by_an_answer_that_comes_before_its_turn() {
    let retransmission = RetransmissionOptions { attempts: 2, ..RetransmissionOptions::default() };
    let options = ArbiterOptions { retransmission: Some(retransmission), ..ArbiterOptions::default() };
    let mut arbiter = Arbiter::new(MOLD, options);
    let mut gaps = 0;
    let mut deliver = |delivery: Delivery<'_>| gaps += u64::from(matches!(delivery, Delivery::Gap { .. }));
    // A gap that is answered message by message, and one behind it whose answer is late.
    for (at, numbers) in [(0, 1..2), (1, 52..53), (2, 54..55)] {
        arbiter.packet(Line::A, Nanos(at), &right(numbers), &mut deliver).unwrap();
    }
    for step in 1..=50 {
        let now = Nanos(step * MS);
        arbiter.advance(now, &mut deliver);
        while let Some(request) = arbiter.take_request() {
            // The second gap is requested twice, and then no more.
            assert!(request.first != 53 || step <= 11, "{request:?} at {step} ms");
        }
        arbiter.packet(Line::Recovery, now, &right(step + 1..step + 2), &mut deliver).unwrap();
        if step == 40 {
            arbiter.packet(Line::Recovery, now, &right(53..54), &mut deliver).unwrap();
        }
    }
    assert_eq!((arbiter.next(), arbiter.counters().recovered), (Some(55), 51));
    assert_eq!((arbiter.lines()[2].unrequested, gaps), (0, 0));
}

/// An arbiter that requests missing messages, with the default times.
fn requesting(transport: TransportKind) -> Arbiter {
    let retransmission = Some(RetransmissionOptions::default());
    Arbiter::new(transport, ArbiterOptions { retransmission, ..ArbiterOptions::default() })
}

#[test]
fn only_answers_that_bring_missing_messages_are_needed() {
    let mut arbiter = requesting(MOLD);
    let mut deliver = |_: Delivery<'_>| {};
    assert_eq!(
        arbiter.usefulness_of_answer(&right(1..2)),
        Usefulness::OtherSession,
        "nothing is followed yet"
    );
    for numbers in [1..11, 31..32] {
        arbiter.packet(Line::A, Nanos(0), &right(numbers), &mut deliver).unwrap();
    }
    arbiter.advance(Nanos(2 * MS), &mut deliver);
    assert_eq!(arbiter.take_request().map(|request| request.first), Some(11));
    let other = packet(*b"ANOTHERONE", 11, 1, 11..12);
    let cut = right(11..21)[..40].to_vec();
    for (answer, usefulness) in [
        (right(11..12), Usefulness::Needed),
        (right(5..15), Usefulness::Needed),
        (right(1..11), Usefulness::Unneeded),
        (right(31..32), Usefulness::Unneeded),
        (right(500..510), Usefulness::Unneeded),
        (other, Usefulness::OtherSession),
        (cut, Usefulness::Malformed),
        (vec![7; 9], Usefulness::Malformed),
    ] {
        assert_eq!(arbiter.usefulness_of_answer(&answer), usefulness);
        let (next, recovered) = (arbiter.next(), arbiter.counters().recovered);
        if usefulness != Usefulness::Needed {
            let _is_reported = arbiter.packet(Line::Recovery, Nanos(3 * MS), &answer, &mut deliver);
            assert_eq!(
                (arbiter.next(), arbiter.counters().recovered),
                (next, recovered),
                "it changes nothing"
            );
        }
    }
    arbiter.packet(Line::Recovery, Nanos(3 * MS), &right(11..31), &mut deliver).unwrap();
    assert_eq!(arbiter.next(), Some(32));
    assert_eq!(arbiter.usefulness_of_answer(&right(11..31)), Usefulness::Unneeded, "they came");
}

#[test]
fn a_gap_that_is_over_does_not_wait_when_the_one_before_it_makes_room() {
    let retransmission = RetransmissionOptions { limit_messages: 5, ..RetransmissionOptions::default() };
    let options =
        ArbiterOptions { retransmission: Some(retransmission), held_bytes: 300, ..ArbiterOptions::default() };
    let mut arbiter = Arbiter::new(MOLD, options);
    let mut gaps = Vec::new();
    let mut deliver = |delivery: Delivery<'_>| {
        if let Delivery::Gap { missing, .. } = delivery {
            gaps.push(missing);
        }
    };
    // One message is missing, and behind the next more than may be requested.
    for numbers in [1..2, 3..4, 103..104] {
        arbiter.packet(Line::A, Nanos(0), &right(numbers), &mut deliver).unwrap();
    }
    arbiter.advance(Nanos(MS), &mut deliver);
    assert_eq!(arbiter.take_request().map(|request| request.first), Some(2));
    let mut number = 104;
    while arbiter.counters().overflows == 0 {
        arbiter.packet(Line::A, Nanos(MS), &right(number..number + 1), &mut deliver).unwrap();
        number += 1;
    }
    assert_eq!((arbiter.next(), arbiter.held_packets()), (Some(number), 0));
    let counters = arbiter.counters();
    let by = [GapReason::HeldBytes, GapReason::MessageLimit].map(|reason| counters.gaps_of(reason));
    assert_eq!((by, gaps), ([1, 1], vec![(2, 1), (4, 99)]));
}

#[test]
fn so_many_gaps_are_open_at_once_and_no_more() {
    const MOST: u64 = 1 << 16;
    let mut arbiter = Arbiter::new(MOLD, ArbiterOptions::default());
    let (mut gaps, mut delivered) = (0, 0);
    let mut deliver = |delivery: Delivery<'_>| match delivery {
        Delivery::Gap { .. } => gaps += 1,
        Delivery::Packet { header, .. } => delivered += header.count,
        _ => {}
    };
    // Each second message is missing.
    let sent = 2 * MOST + 2_000;
    for number in (1..=sent).step_by(2) {
        arbiter.packet(Line::A, Nanos(0), &right(number..number + 1), &mut deliver).unwrap();
    }
    assert_eq!(arbiter.counters().gaps_of(GapReason::HeldBytes), 999);
    // The other line brings all of them.
    for number in (2..sent).step_by(2) {
        arbiter.packet(Line::B, Nanos(0), &right(number..number + 1), &mut deliver).unwrap();
    }
    assert_eq!((arbiter.next(), gaps, delivered), (Some(sent), 999, sent - 1 - 999));
}

#[test]
fn an_answer_that_comes_after_its_request_was_given_up_still_counts() {
    let retransmission = RetransmissionOptions {
        attempts: 1,
        messages_per_request: 10,
        requests_in_flight: 1,
        ..RetransmissionOptions::default()
    };
    let options = ArbiterOptions { retransmission: Some(retransmission), ..ArbiterOptions::default() };
    let mut arbiter = Arbiter::new(MOLD, options);
    let mut deliver = |_: Delivery<'_>| {};
    for numbers in [1..2, 42..43] {
        arbiter.packet(Line::A, Nanos(0), &right(numbers), &mut deliver).unwrap();
    }
    let mut requested = Vec::new();
    for step in 1..=15 {
        arbiter.advance(Nanos(step * MS), &mut deliver);
        requested.extend(std::iter::from_fn(|| arbiter.take_request()).map(|request| request.first));
    }
    assert_eq!(requested, [2, 32], "from its beginning, then from its end");
    arbiter.packet(Line::Recovery, Nanos(16 * MS), &right(2..12), &mut deliver).unwrap();
    assert_eq!((arbiter.next(), arbiter.counters().recovered), (Some(12), 10));
    assert_eq!(arbiter.lines()[2].unrequested, 0);
}

#[test]
fn a_server_that_sends_all_parts_of_an_answer_is_requested_once() {
    let outage = 100..5_100;
    let options = RetransmissionOptions { answers_in_parts: true, ..RetransmissionOptions::default() };
    let server = Server { in_parts: true, ..Server::RIGHT };
    let outcome = run(10_000, std::slice::from_ref(&outage), 0, server, options, 3);
    assert!((5..=6).contains(&outcome.requests.len()), "{:?}", outcome.requests);
    assert_eq!((outcome.gaps.len(), outcome.arbiter.counters().repeated_requests), (0, 0));
    // A part that is lost is requested when no more has come in time.
    let server = Server { silent: 200, ..server };
    let outcome = run(10_000, std::slice::from_ref(&outage), 0, server, options, 3);
    assert_eq!(outcome.gaps, []);
    assert!(outcome.arbiter.counters().repeated_requests > 0);
}

#[test]
fn messages_that_a_server_of_nyse_calls_unavailable_are_given_up_at_once() {
    let transport = TransportKind::Pillar;
    let packet = |numbers: Range<u64>| {
        let mut packet = vec![0; transport.header_bytes()];
        for _ in numbers.clone() {
            packet.extend_from_slice(&[4, 0, 100, 0]);
        }
        let header = Outgoing {
            session: SessionId::Pillar,
            sequence: numbers.start,
            messages: (numbers.end - numbers.start) as u16,
            content: Content::Messages,
            stream_offset: 0,
            payload_bytes: packet.len() - transport.header_bytes(),
            send_time_ns: 0,
        };
        assert_eq!(Pillar::write_header(&header, &mut packet), transport.header_bytes());
        packet
    };
    let mut arbiter = requesting(transport);
    let mut gaps = Vec::new();
    let mut deliver = |delivery: Delivery<'_>| {
        if let Delivery::Gap { missing, .. } = delivery {
            gaps.push(missing);
        }
    };
    arbiter.packet(Line::A, Nanos(0), &packet(1..11), &mut deliver).unwrap();
    arbiter.packet(Line::A, Nanos(MS), &packet(31..32), &mut deliver).unwrap();
    arbiter.advance(Nanos(2 * MS), &mut deliver);
    assert_eq!(arbiter.take_request().map(|request| (request.first, request.count)), Some((11, 20)));
    let unavailable = |numbers| transport.write_unavailable(numbers, 0).unwrap();
    // Of a line it is a packet of another sequence; of numbers that are not missing it says nothing.
    assert!(arbiter.packet(Line::A, Nanos(2 * MS), &unavailable(11..21), &mut deliver).is_err());
    arbiter.packet(Line::Recovery, Nanos(2 * MS), &unavailable(15..21), &mut deliver).unwrap();
    arbiter.packet(Line::Recovery, Nanos(2 * MS), &unavailable(1..11), &mut deliver).unwrap();
    assert_eq!((arbiter.next(), arbiter.lines()[2].unrequested), (Some(11), 2));
    arbiter.packet(Line::Recovery, Nanos(3 * MS), &unavailable(11..21), &mut deliver).unwrap();
    // The rest is requested on.
    let mut answer = packet(21..31);
    transport.mark_answer(&mut answer, true);
    arbiter.packet(Line::Recovery, Nanos(4 * MS), &answer, &mut deliver).unwrap();
    assert_eq!((arbiter.next(), arbiter.counters().gaps_of(GapReason::NotKept)), (Some(32), 1));
    assert_eq!(gaps, [(11, 10)]);
}

#[test]
fn packets_that_waited_in_a_socket_time_no_request_out() {
    let mut arbiter = requesting(MOLD);
    let mut gaps = 0;
    let mut deliver = |delivery: Delivery<'_>| gaps += u64::from(matches!(delivery, Delivery::Gap { .. }));
    arbiter.packet(Line::A, Nanos(0), &right(1..11), &mut deliver).unwrap();
    // A backlog of two seconds, which is read at once.
    for number in 0..2_000 {
        let at = Nanos(MS + number * MS);
        arbiter.advance_to_packet(at, &mut deliver);
        arbiter.packet(Line::A, at, &right(21 + number..22 + number), &mut deliver).unwrap();
    }
    let request = arbiter.take_request().unwrap();
    assert_eq!((request.first, request.count, arbiter.take_request()), (11, 10, None));
    // The clock is ahead of all of them; the answer comes as fast as it can.
    let now = 5_000 * MS;
    arbiter.advance(Nanos(now), &mut deliver);
    assert_eq!(arbiter.take_request(), None);
    arbiter.packet(Line::Recovery, Nanos(now + MS), &right(11..21), &mut deliver).unwrap();
    assert_eq!((arbiter.next(), arbiter.counters().repeated_requests), (Some(2_021), 0));
    assert_eq!(gaps, 0);
}

#[test]
fn a_stray_packet_far_ahead_costs_requests_for_a_moment_and_no_message() {
    let mut arbiter = requesting(MOLD);
    let (mut delivered, mut gaps, mut sessions, mut last_request) = (0, 0, 0, 0);
    let mut deliver = |delivery: Delivery<'_>| match delivery {
        Delivery::Packet { header, .. } => delivered += header.count,
        Delivery::Gap { .. } => gaps += 1,
        Delivery::Session { .. } => sessions += 1,
        _ => {}
    };
    for number in 1..20_000 {
        let now = Nanos(number * MS);
        if number == 100 {
            arbiter.packet(Line::A, now, &right(1_000_100..1_000_101), &mut deliver).unwrap();
        }
        arbiter.packet(Line::A, now, &right(number..number + 1), &mut deliver).unwrap();
        arbiter.advance(now, &mut deliver);
        while arbiter.take_request().is_some() {
            last_request = number;
        }
    }
    assert_eq!((delivered, gaps, sessions), (19_999, 0, 1));
    assert_eq!((arbiter.next(), arbiter.counters().sequence_resets), (Some(20_000), 0));
    assert_eq!(arbiter.lines()[0].implausible, 1);
    assert!((100..1_000).contains(&last_request), "{last_request}");
}
