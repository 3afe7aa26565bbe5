//! Two lines with up to seven packets, under every loss, order and duplication, with and without a retransmission server.
//!
//! Each packet has one message, and the packet behind the last is a heartbeat: it shows that the last messages are missing. A case is a
//! list of arrivals, one step of time apart. The test compares the arbiter's output with what the arrivals alone say.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use tapeworks_follow::arbitration::{Arbiter, ArbiterOptions, Delivery, RetransmissionOptions};
use tapeworks_market::Line;
use tapeworks_session::TransportKind;
use tapeworks_time::Nanos;
use tapeworks_wire::Ascii;
use tapeworks_wire::nasdaq::moldudp64::DownstreamPacketFields;

/// The most messages of a case.
const MOST: u64 = 7;

/// Between two arrivals, in ns.
const STEP: u64 = 100;

/// A reorder window that is longer than any case.
const WIDE: u64 = 100_000;

/// One that ends between the second and the third arrival behind a gap.
const NARROW: u64 = 250;

/// Until the answer to a request comes.
const ANSWER: u64 = 130;

const TIMEOUT: u64 = 1_030;

/// A packet with the messages from `first` on.
fn packet(first: u64, count: u64) -> Vec<u8> {
    let fields = DownstreamPacketFields {
        session: Ascii(*b"SESSION001"),
        sequence_number: first,
        message_count: count as u16,
        messages: &[],
    };
    let mut bytes = vec![0; 20];
    fields.encode_into(&mut bytes).unwrap();
    for number in first..first + count {
        bytes.extend_from_slice(&8u16.to_be_bytes());
        bytes.extend_from_slice(&number.to_be_bytes());
    }
    bytes
}

/// An arrival: a line, and the number of a packet on it.
type Arrival = (Line, u64);

/// What becomes of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Answered,
    /// Only its first message is.
    InPart,
    Lost,
    /// Answered behind the time-out.
    Late,
}

const FATES: [Fate; 4] = [Fate::Answered, Fate::InPart, Fate::Lost, Fate::Late];

/// A retransmission server: the fates of its first requests, and that of all later ones.
#[derive(Clone, Copy, Debug)]
struct Server<'a> {
    first: &'a [Fate],
    then: Fate,
}

/// A set of messages.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Messages(u32);

impl Messages {
    fn insert(&mut self, number: u64) {
        self.0 |= 1 << number;
    }

    fn has(self, number: u64) -> bool {
        self.0 & 1 << number != 0
    }

    fn count(self) -> u64 {
        u64::from(self.0.count_ones())
    }
}

/// The consumer of an arbiter's output.
struct Watch {
    /// The number that must come next.
    expected: u64,
    delivered: u64,
    given_up: Messages,
    late: Messages,
    gaps: u64,
    silences: u64,
}

impl Watch {
    fn take(&mut self, delivery: &Delivery<'_>, case: &Case<'_>) {
        match delivery {
            Delivery::Packet { header, .. } => {
                let end = header.first + header.count;
                // No message is skipped without a gap.
                assert!(header.first <= self.expected, "{} at {}: {case:?}", header.first, self.expected);
                self.delivered += end.saturating_sub(self.expected);
                self.expected = self.expected.max(end);
            }
            Delivery::Gap { missing: (first, count), .. } => {
                assert!(*first == self.expected && *count > 0, "{first} at {}: {case:?}", self.expected);
                (*first..first + count).for_each(|number| self.given_up.insert(number));
                self.expected += count;
                self.gaps += 1;
            }
            Delivery::Late { header, numbers, .. } => {
                let of_packet = header.first..header.first + header.count;
                for number in numbers.iter().cloned().flatten() {
                    assert!(of_packet.contains(&number), "{number} is not in the packet: {case:?}");
                    assert!(self.given_up.has(number), "{number} is not late: {case:?}");
                    self.late.insert(number);
                }
            }
            Delivery::Session { first, .. } => assert_eq!((*first, self.expected), (1, 1), "{case:?}"),
            Delivery::Silent { .. } => self.silences += 1,
            Delivery::Joining { .. } | Delivery::Heard { .. } => panic!("{delivery:?}: {case:?}"),
        }
    }
}

/// What a line brought, as the arrivals say.
#[derive(Default)]
struct OfLine {
    brought: Messages,
    highest: u64,
    packets: u64,
    repeated: u64,
    reordered: u64,
}

/// A case.
#[derive(Debug)]
struct Case<'a> {
    messages: u64,
    arrivals: &'a [Arrival],
    window: u64,
    server: Option<Server<'a>>,
}

/// All payloads that a case needs, made once.
struct Payloads(Vec<Vec<Vec<u8>>>);

impl Payloads {
    fn new() -> Self {
        let of = |first| (0..=MOST + 1).map(|count| packet(first, count)).collect();
        Self((0..=MOST + 1).map(of).collect())
    }

    fn get(&self, first: u64, count: u64) -> &[u8] {
        &self.0[first as usize][count as usize]
    }
}

/// An arbiter that plays a case.
struct Play<'a> {
    case: &'a Case<'a>,
    payloads: &'a Payloads,
    arbiter: Arbiter,
    watch: Watch,
    /// Answers on their way.
    answers: Vec<(u64, u64, u64)>,
    requests: usize,
    /// Requests for messages that were given up.
    again: usize,
}

impl Play<'_> {
    fn packet(&mut self, line: Line, now: u64, first: u64, count: u64) {
        let Self { case, payloads, arbiter, watch, .. } = self;
        let payload = payloads.get(first, count);
        arbiter.packet(line, Nanos(now), payload, &mut |one| watch.take(&one, case)).unwrap();
        self.serve(now);
    }

    fn advance(&mut self, now: u64) {
        let Self { case, arbiter, watch, .. } = self;
        arbiter.advance(Nanos(now), &mut |one| watch.take(&one, case));
        self.serve(now);
    }

    /// Takes the requests, and answers them or not.
    fn serve(&mut self, now: u64) {
        while let Some(request) = self.arbiter.take_request() {
            let case = self.case;
            let server = case.server.as_ref().unwrap();
            if request.first < self.watch.expected && self.watch.given_up.has(request.first) {
                // Here nobody answers.
                self.again += 1;
                continue;
            }
            let fate = server.first.get(self.requests).copied().unwrap_or(server.then);
            self.requests += 1;
            let (first, count) = (request.first, u64::from(request.count));
            assert!(
                first >= self.watch.expected && first + count <= case.messages + 1,
                "{request:?}: {case:?}"
            );
            match fate {
                Fate::Answered => self.answers.push((now + ANSWER, first, count)),
                Fate::InPart => self.answers.push((now + ANSWER, first, 1)),
                Fate::Late => self.answers.push((now + TIMEOUT + ANSWER, first, count)),
                Fate::Lost => {}
            }
        }
    }

    /// Passes time up to an input at `until`: deadlines and answers.
    fn pass(&mut self, until: u64, is_wanted: impl Fn(&Arbiter) -> bool) {
        let mut turns = 0;
        loop {
            turns += 1;
            assert!(turns < 1_000, "it does not come to rest: {:?}", self.case);
            let answer = self.answers.iter().enumerate().min_by_key(|(_, answer)| answer.0);
            let answer = answer.map(|(at, answer)| (at, *answer)).filter(|(_, answer)| answer.0 < until);
            let deadline = self.arbiter.deadline().map(|deadline| deadline.0);
            let deadline = deadline.filter(|deadline| *deadline <= until && is_wanted(&self.arbiter));
            match (answer, deadline) {
                (Some((place, (at, first, count))), _) if deadline.is_none_or(|deadline| at < deadline) => {
                    self.answers.swap_remove(place);
                    self.packet(Line::Recovery, at, first, count);
                }
                (_, Some(deadline)) => self.advance(deadline),
                _ => return,
            }
        }
    }
}

/// What the cases of a test came to.
struct Tally {
    payloads: Payloads,
    cases: u64,
    given_up: u64,
    late: u64,
    requests: u64,
}

impl Tally {
    fn new() -> Self {
        Self { payloads: Payloads::new(), cases: 0, given_up: 0, late: 0, requests: 0 }
    }
}

/// Plays a case and checks its result. Returns the messages that were given up.
fn play(case: &Case<'_>, tally: &mut Tally) -> Messages {
    let retransmission = case.server.map(|_| RetransmissionOptions {
        attempts: 5,
        timeout_ns: TIMEOUT,
        messages_per_request: 2,
        requests_in_flight: 2,
        ..RetransmissionOptions::default()
    });
    let options =
        ArbiterOptions { reorder_window_ns: case.window, retransmission, ..ArbiterOptions::default() };
    let mut play = Play {
        case,
        payloads: &tally.payloads,
        arbiter: Arbiter::new(TransportKind::MoldUdp64, options),
        watch: Watch {
            expected: 1,
            delivered: 0,
            given_up: Messages::default(),
            late: Messages::default(),
            gaps: 0,
            silences: 0,
        },
        answers: Vec::new(),
        requests: 0,
        again: 0,
    };
    let mut lines = [OfLine::default(), OfLine::default()];
    // When a message first came, and when one behind it did.
    let (mut came, mut overtaken) = ([u64::MAX; MOST as usize + 2], [u64::MAX; MOST as usize + 2]);
    let mut now = 0;
    for &(line, number) in case.arrivals {
        now += STEP;
        play.pass(now, |_| true);
        let is_message = number <= case.messages;
        play.packet(line, now, number, u64::from(is_message));
        let of_line = &mut lines[usize::from(line == Line::B)];
        of_line.packets += 1;
        if is_message {
            if of_line.brought.has(number) {
                of_line.repeated += 1;
            } else if number < of_line.highest {
                of_line.reordered += 1;
            }
            of_line.brought.insert(number);
            came[number as usize] = came[number as usize].min(now);
        }
        of_line.highest = of_line.highest.max(number);
        overtaken[..number as usize].iter_mut().for_each(|at| *at = (*at).min(now));
    }
    // What is open comes to its end. Then comes the next heartbeat, and silence.
    play.pass(u64::MAX, Arbiter::is_recovering);
    now = now.max(1_000_000) + STEP;
    let heartbeat = case.messages + 1;
    play.pass(now, |_| true);
    play.packet(Line::A, now, heartbeat, 0);
    overtaken.iter_mut().for_each(|at| *at = (*at).min(now));
    (lines[0].packets, lines[0].highest) = (lines[0].packets + 1, heartbeat);
    // Messages that were given up are requested for ever.
    play.pass(now + 2 * ArbiterOptions::default().silence_ns, |_| true);
    check(&play, &lines, &came, &overtaken);
    let (given_up, late, requests) = (play.watch.given_up, play.watch.late, play.requests);
    tally.given_up += given_up.count();
    tally.late += late.count();
    tally.requests += requests as u64;
    given_up
}

/// The invariants.
fn check(play: &Play<'_>, lines: &[OfLine; 2], came: &[u64], overtaken: &[u64]) {
    let Play { case, arbiter, watch, .. } = play;
    let counters = arbiter.counters();
    // All is handed on or given up, and nothing waits.
    assert_eq!(watch.expected, case.messages + 1, "{case:?}");
    assert_eq!((arbiter.held_packets(), arbiter.is_recovering()), (0, false), "{case:?}");
    let is_requested = case.server.is_some() && arbiter.missing().next().is_some();
    assert!(is_requested || arbiter.deadline().is_none(), "{case:?}");
    assert!(watch.silences == 1 && play.answers.is_empty(), "{case:?}");
    assert_eq!(watch.delivered + watch.given_up.count(), case.messages, "{case:?}");
    assert_eq!(
        (counters.messages, counters.missing, counters.gaps),
        (watch.delivered, watch.given_up.count(), watch.gaps),
        "{case:?}"
    );
    // Each gap that was opened is filled or given up, and one that is given up may be several to the consumer.
    let filled = counters.filled_by_lines + counters.filled_by_retransmission;
    assert!(filled + u64::from(counters.gaps > 0) <= counters.gaps_opened, "{counters:?}: {case:?}");
    assert!(counters.gaps_opened <= filled + counters.gaps, "{counters:?}: {case:?}");
    // What came after it was given up is late, and no longer missing.
    let mut missing = Messages::default();
    arbiter.missing().flatten().for_each(|number| missing.insert(number));
    assert_eq!(missing.0, watch.given_up.0 & !watch.late.0, "{case:?}");
    assert_eq!(counters.late, watch.late.count(), "{case:?}");
    let brought = lines[0].brought.0 | lines[1].brought.0;
    assert_eq!(missing.0 & brought, 0, "{case:?}");
    for number in 1..=case.messages {
        let (came, overtaken) = (came[number as usize], overtaken[number as usize]);
        if watch.given_up.has(number) {
            // No line brought it within the window.
            assert!(came == u64::MAX || came >= overtaken + case.window, "{number}: {case:?}");
        }
    }
    let counts = arbiter.lines();
    for (of_line, counts) in lines.iter().zip(&counts) {
        let skipped = (1..of_line.highest).filter(|number| !of_line.brought.has(*number)).count() as u64;
        assert_eq!(
            (counts.packets, counts.lost, counts.repeated, counts.reordered, counts.implausible),
            (of_line.packets, skipped, of_line.repeated, of_line.reordered, 0),
            "{case:?}"
        );
        assert_eq!(counts.messages, of_line.brought.count() + of_line.repeated, "{case:?}");
        assert_eq!(counts.messages, counts.won + counts.duplicate + counts.late, "{case:?}");
    }
    assert_eq!(counts.iter().map(|counts| counts.won).sum::<u64>(), watch.delivered, "{case:?}");
    assert_eq!(counters.requests, (play.requests + play.again) as u64, "{case:?}");
}

/// The messages that neither line brings.
fn unheard(case: &Case<'_>) -> Messages {
    let mut unheard = Messages::default();
    let is_heard = |number: u64| case.arrivals.iter().any(|(_, came)| *came == number);
    (1..=case.messages).filter(|number| !is_heard(*number)).for_each(|number| unheard.insert(number));
    unheard
}

/// Plays a list of arrivals without a server: with a window that is longer than all, exactly what neither line brings is missing.
fn play_without_server(messages: u64, arrivals: &[Arrival], tally: &mut Tally) {
    tally.cases += 1;
    let case = Case { messages, arrivals, window: WIDE, server: None };
    assert_eq!(play(&case, tally), unheard(&case), "{case:?}");
    play(&Case { window: NARROW, ..case }, tally);
}

/// The packets of a line, in order, without those whose bits are set in `lost`.
fn line_of(line: Line, messages: u64, lost: u32) -> Vec<Arrival> {
    (1..=messages).filter(|number| lost & 1 << (number - 1) == 0).map(|number| (line, number)).collect()
}

/// The packets of both lines with these losses.
fn each_loss(messages: u64, mut with: impl FnMut(&[Arrival], &[Arrival])) {
    for lost_on_a in 0..1 << messages {
        for lost_on_b in 0..1 << messages {
            with(&line_of(Line::A, messages, lost_on_a), &line_of(Line::B, messages, lost_on_b));
        }
    }
}

/// Line B behind A by so many packets; a negative lag lets B lead. The heartbeat of A comes last.
fn lagging(a: &[Arrival], b: &[Arrival], messages: u64, lag: i64) -> Vec<Arrival> {
    let mut all: Vec<(i64, Arrival)> = Vec::with_capacity(a.len() + b.len() + 1);
    all.extend(a.iter().map(|arrival| (2 * arrival.1 as i64, *arrival)));
    all.extend(b.iter().map(|arrival| (2 * (arrival.1 as i64 + lag) + 1, *arrival)));
    all.sort_by_key(|(at, _)| *at);
    let heartbeat = (Line::A, messages + 1);
    all.into_iter().map(|(_, arrival)| arrival).chain([heartbeat]).collect()
}

fn each_interleaving(
    a: &[Arrival],
    b: &[Arrival],
    so_far: &mut Vec<Arrival>,
    with: &mut impl FnMut(&[Arrival]),
) {
    if a.is_empty() && b.is_empty() {
        return with(so_far);
    }
    for (head, a, b) in [(a.first(), a.get(1..), Some(b)), (b.first(), Some(a), b.get(1..))] {
        let (Some(head), Some(a), Some(b)) = (head, a, b) else { continue };
        so_far.push(*head);
        each_interleaving(a, b, so_far, with);
        so_far.pop();
    }
}

/// Every order of `all` from its place `at` on.
fn each_order(all: &mut [Arrival], at: usize, with: &mut impl FnMut(&[Arrival])) {
    if at == all.len() {
        return with(all);
    }
    for other in at..all.len() {
        all.swap(at, other);
        each_order(all, at + 1, with);
        all.swap(at, other);
    }
}

fn factorial(of: u64) -> u64 {
    (1..=of).product()
}

fn choose(of: u64, some: u64) -> u64 {
    factorial(of) / factorial(some) / factorial(of - some)
}

/// The sum, over all losses of two lines with so many packets, of what holds for `a` and `b` packets that come.
fn over_losses(messages: u64, cases: impl Fn(u64, u64) -> u64) -> u64 {
    let pairs = (0..=messages).flat_map(|a| (0..=messages).map(move |b| (a, b)));
    pairs.map(|(a, b)| choose(messages, a) * choose(messages, b) * cases(a, b)).sum()
}

/// What a test ran, which is what the combinatorics give.
fn report(name: &str, tally: &Tally, expected: u64) {
    let Tally { cases, given_up, late, requests, .. } = tally;
    println!("{name}: {cases} cases, {given_up} messages given up, {late} late, {requests} requests");
    assert!(*cases > 0 && *given_up > 0);
    assert_eq!(*cases, expected, "{name}");
}

#[test]
fn every_sequence_of_up_to_seven_packets_with_three_messages() {
    // What is lost, in any order, and as often as it may be: all at once.
    fn longer(so_far: &mut Vec<Arrival>, tally: &mut Tally) {
        play_without_server(3, so_far, tally);
        if so_far.len() == MOST as usize {
            return;
        }
        // The first packet is of line A: the lines are equal.
        let lines = if so_far.is_empty() { &[Line::A][..] } else { &[Line::A, Line::B] };
        for line in lines {
            for number in 1..=3 {
                so_far.push((*line, number));
                longer(so_far, tally);
                so_far.pop();
            }
        }
    }

    let mut tally = Tally::new();
    longer(&mut Vec::new(), &mut tally);
    report("sequences", &tally, 1 + (1..=MOST as u32).map(|length| 3 * 6u64.pow(length - 1)).sum::<u64>());
}

#[test]
fn lines_that_lag_by_up_to_seven_packets_with_every_loss() {
    let mut tally = Tally::new();
    let lags = |messages: u64| {
        let most = messages as i64;
        (-most..=most).filter(move |lag| messages < MOST || [-7, -3, -1, 0, 1, 3, 7].contains(lag))
    };
    for messages in 1..=MOST {
        each_loss(messages, |a, b| {
            for lag in lags(messages) {
                play_without_server(messages, &lagging(a, b, messages, lag), &mut tally);
            }
        });
    }
    let fewer = (1..MOST).map(|messages| 4u64.pow(messages as u32) * (2 * messages + 1));
    report("lags", &tally, fewer.sum::<u64>() + 4u64.pow(MOST as u32) * 7);
}

#[test]
fn every_interleaving_of_two_lines_with_every_loss() {
    let mut tally = Tally::new();
    for messages in 1..=5 {
        each_loss(messages, |a, b| {
            // The heartbeat is the last packet of its line; the other may lag behind it.
            let a: Vec<Arrival> = a.iter().copied().chain([(Line::A, messages + 1)]).collect();
            each_interleaving(&a, b, &mut Vec::new(), &mut |arrivals| {
                play_without_server(messages, arrivals, &mut tally);
            });
        });
    }
    let expected = |messages| over_losses(messages, |a, b| choose(a + 1 + b, b));
    report("interleavings", &tally, (1..=5).map(expected).sum());
}

#[test]
fn every_order_of_seven_packets_of_one_line_with_every_loss() {
    let mut tally = Tally::new();
    for lost in 0..1 << MOST {
        each_order(&mut line_of(Line::A, MOST, lost), 0, &mut |arrivals| {
            play_without_server(MOST, arrivals, &mut tally);
        });
    }
    report("orders of one line", &tally, (0..=MOST).map(|kept| choose(MOST, kept) * factorial(kept)).sum());
}

#[test]
fn one_packet_moved_to_any_place_with_every_loss() {
    let (mut tally, mut moved) = (Tally::new(), Vec::new());
    for messages in 1..=5 {
        each_loss(messages, |a, b| {
            let all = lagging(a, b, messages, 0);
            for from in 0..all.len() {
                // A packet moved one place ahead is its neighbour moved one place back.
                for to in (0..all.len()).filter(|to| *to > from || *to + 1 < from) {
                    moved.clone_from(&all);
                    let arrival = moved.remove(from);
                    moved.insert(to, arrival);
                    play_without_server(messages, &moved, &mut tally);
                }
            }
        });
    }
    // Of the `a + b` packets and the heartbeat.
    let expected = |messages| over_losses(messages, |a, b| (a + b) * (a + b));
    report("one packet moved", &tally, (1..=5).map(expected).sum());
}

#[test]
fn one_packet_repeated_at_any_later_place_with_every_loss() {
    let (mut tally, mut repeated) = (Tally::new(), Vec::new());
    for messages in 1..=5 {
        each_loss(messages, |a, b| {
            let all = lagging(a, b, messages, 0);
            for from in 0..all.len() {
                for to in from + 1..=all.len() {
                    repeated.clone_from(&all);
                    repeated.insert(to, all[from]);
                    play_without_server(messages, &repeated, &mut tally);
                }
            }
        });
    }
    let expected = |messages| over_losses(messages, |a, b| (a + b + 1) * (a + b + 2) / 2);
    report("one packet repeated", &tally, (1..=5).map(expected).sum());
}

/// Every fate of the first three requests, with those of the later ones.
fn each_server(mut with: impl FnMut(Server<'_>)) {
    for first in FATES {
        for second in FATES {
            for third in FATES {
                for then in [Fate::Answered, Fate::Lost] {
                    with(Server { first: &[first, second, third], then });
                }
            }
        }
    }
}

const SERVERS: u64 = 4 * 4 * 4 * 2;

/// Plays a list of arrivals with a server: a message that it has is not missing when it answers at last.
fn play_with_server(messages: u64, arrivals: &[Arrival], server: Server<'_>, tally: &mut Tally) {
    tally.cases += 1;
    let case = Case { messages, arrivals, window: NARROW, server: Some(server) };
    let given_up = play(&case, tally);
    assert!(server.then == Fate::Lost || given_up.count() == 0, "{given_up:?}: {case:?}");
}

#[test]
fn a_server_that_answers_in_part_late_or_not_at_all_with_every_loss() {
    const LAGS: [i64; 3] = [0, 2, 5];
    let mut tally = Tally::new();
    for messages in 1..=4 {
        each_loss(messages, |a, b| {
            for lag in LAGS {
                let arrivals = lagging(a, b, messages, lag);
                each_server(|server| {
                    play_with_server(messages, &arrivals, server, &mut tally);
                });
            }
        });
    }
    let losses: u64 = (1..=4).map(|messages| 4u64.pow(messages)).sum();
    report("servers", &tally, losses * 3 * SERVERS);
}

#[test]
fn a_server_for_one_line_with_every_loss_of_seven_packets() {
    let mut tally = Tally::new();
    for lost in 0..1 << MOST {
        let arrivals = lagging(&line_of(Line::A, MOST, lost), &[], MOST, 0);
        each_server(|server| {
            play_with_server(MOST, &arrivals, server, &mut tally);
        });
    }
    report("servers of one line", &tally, (1 << MOST) * SERVERS);
}
