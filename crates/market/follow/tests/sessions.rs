//! Sessions of a channel: stray, damaged and old packets change nothing for long, and a session that follows begins in time.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::ops::Range;

use tapeworks_follow::arbitration::{Arbiter, ArbiterOptions, Delivery, LineCounters, RetransmissionOptions};
use tapeworks_market::Line;
use tapeworks_session::{SessionId, TransportKind};
use tapeworks_time::Nanos;
use tapeworks_wire::Ascii;
use tapeworks_wire::nasdaq::moldudp64::{DownstreamPacketFields, END_OF_SESSION};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const SILENCE: u64 = 3_000 * MS;
const WINDOW: u64 = 500 * US;

const OLD: &[u8; 10] = b"SESSION001";
const NEW: &[u8; 10] = b"SESSION002";
const STRAY: &[u8; 10] = b"\x07\xfe\x00ab\x99\x10zz\x01";

fn raw(session: &[u8; 10], first: u64, count: u16, blocks: usize) -> Vec<u8> {
    let fields = DownstreamPacketFields {
        session: Ascii(*session),
        sequence_number: first,
        message_count: count,
        messages: &[],
    };
    let mut bytes = vec![0; 20];
    fields.encode_into(&mut bytes).unwrap();
    for number in first..first.saturating_add(blocks as u64) {
        bytes.extend_from_slice(&8u16.to_be_bytes());
        bytes.extend_from_slice(&number.to_be_bytes());
    }
    bytes
}

fn packet(session: &[u8; 10], numbers: Range<u64>) -> Vec<u8> {
    let count = (numbers.end - numbers.start) as usize;
    raw(session, numbers.start, count as u16, count)
}

/// What an arbiter hands on, one entry for each.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Seen {
    Session(SessionId, u64),
    Messages(Range<u64>),
    Gap(u64, u64),
    Joining,
    Silent,
    Heard,
}

struct Run {
    arbiter: Arbiter,
    seen: Vec<Seen>,
}

impl Run {
    fn new(options: ArbiterOptions) -> Self {
        Self { arbiter: Arbiter::new(TransportKind::MoldUdp64, options), seen: Vec::new() }
    }

    /// A channel of the old session, joined at its beginning.
    fn followed() -> Self {
        let mut run = Self::new(ArbiterOptions::default());
        run.line(Line::A, 0, &packet(OLD, 1..1_001));
        assert_eq!(run.take(), [Seen::Session(id(OLD), 1), Seen::Messages(1..1_001)]);
        run
    }

    fn line(&mut self, line: Line, at: u64, payload: &[u8]) {
        let seen = &mut self.seen;
        self.arbiter.packet(line, Nanos(at), payload, &mut |one| see(seen, one)).unwrap();
    }

    fn a(&mut self, at: u64, payload: &[u8]) {
        self.line(Line::A, at, payload);
    }

    /// The clock goes to `until`, with what is due on the way at its time.
    fn advance(&mut self, until: u64) {
        let seen = &mut self.seen;
        let mut times = 0;
        while let Some(due) = self.arbiter.deadline().filter(|due| due.0 <= until) {
            self.arbiter.advance(due, &mut |one| see(seen, one));
            times = if self.arbiter.deadline() > Some(due) { 0 } else { times + 1 };
            assert!(times < 5, "it is due for ever");
        }
    }

    fn take(&mut self) -> Vec<Seen> {
        std::mem::take(&mut self.seen)
    }

    fn counters(&self, line: usize) -> LineCounters {
        self.arbiter.lines()[line]
    }

    fn session(&self) -> SessionId {
        self.arbiter.session().unwrap()
    }
}

fn see(seen: &mut Vec<Seen>, delivery: Delivery<'_>) {
    seen.push(match delivery {
        Delivery::Packet { header, .. } => Seen::Messages(header.first..header.first + header.count),
        Delivery::Late { header, .. } => panic!("late: {header:?}"),
        Delivery::Gap { missing: (first, count), .. } => Seen::Gap(first, count),
        Delivery::Session { session, first, .. } => Seen::Session(session, first),
        Delivery::Joining { .. } => Seen::Joining,
        Delivery::Silent { .. } => Seen::Silent,
        Delivery::Heard { .. } => Seen::Heard,
    });
}

fn id(name: &[u8; 10]) -> SessionId {
    SessionId::MoldUdp64(*name)
}

#[test]
fn a_packet_that_is_not_what_its_header_says_changes_nothing() {
    let heartbeat_and_more = |session: &[u8; 10], first| [raw(session, first, 0, 0), vec![0, 0]].concat();
    let end_and_more = |session: &[u8; 10], first| [raw(session, first, END_OF_SESSION, 0), vec![1]].concat();
    let cut = |session: &[u8; 10], numbers| {
        let mut bytes = packet(session, numbers);
        bytes.pop();
        bytes
    };
    let random: Vec<u8> = (0..200u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let damaged = |of: &[u8; 10]| {
        vec![
            random.clone(),
            raw(of, 1, 5, 3),
            raw(of, 1, 3, 5),
            raw(of, 900_000, 65_000, 1),
            // Far ahead, but not so far that the number alone is refused.
            raw(of, 100_000_000, 5, 4),
            cut(of, 2_000..2_010),
            heartbeat_and_more(of, 5_000),
            heartbeat_and_more(of, 1),
            heartbeat_and_more(of, 1_001),
            end_and_more(of, 1_001),
            end_and_more(of, 7),
        ]
    };
    for of in [OLD, NEW, STRAY] {
        // Before a session is followed.
        let mut run = Run::new(ArbiterOptions::default());
        for payload in damaged(of) {
            run.a(MS, &payload);
        }
        run.advance(10 * SILENCE);
        assert_eq!((run.take(), run.arbiter.session(), run.arbiter.held_packets()), (vec![], None, 0));
        assert_eq!((run.counters(0).malformed, run.counters(0).packets), (11, 0));
        // While one is.
        let mut run = Run::followed();
        for payload in damaged(of) {
            run.a(MS, &payload);
        }
        assert_eq!((run.take(), run.arbiter.held_packets()), (vec![], 0));
        let counters = run.counters(0);
        // Copies of delivered packets are not walked: they change nothing.
        let copies = if of == OLD { 2 } else { 0 };
        assert_eq!((counters.malformed, counters.packets, counters.lost), (11 - copies, 1 + copies, 0));
        assert!(!run.arbiter.is_recovering());
        run.a(2 * MS, &packet(OLD, 1_001..1_003));
        assert_eq!(run.take(), [Seen::Messages(1_001..1_003)]);
        run.advance(10 * SILENCE);
        // No end of session was heard, so the silence is one.
        assert_eq!(run.take(), [Seen::Silent]);
        // Old numbers after a silence, in a damaged packet.
        for payload in damaged(of) {
            run.a(11 * SILENCE, &payload);
        }
        assert_eq!((run.take(), run.counters(0).malformed), (vec![], 22 - copies));
        assert_eq!((run.arbiter.counters().sequence_resets, run.arbiter.counters().ends_of_session), (0, 0));
    }
}

#[test]
fn a_damaged_answer_changes_nothing() {
    let retransmission = Some(RetransmissionOptions::default());
    let mut run = Run::new(ArbiterOptions { retransmission, ..ArbiterOptions::default() });
    run.a(0, &packet(OLD, 1..11));
    run.a(MS, &packet(OLD, 21..31));
    run.advance(3 * MS);
    assert!(run.arbiter.take_request().is_some());
    run.take();
    let longer = [packet(OLD, 11..21), vec![0]].concat();
    for answer in
        [raw(OLD, 11, 10, 9), raw(OLD, 11, 9, 10), longer, raw(OLD, 11, 0, 10), raw(STRAY, 11, 10, 9)]
    {
        run.line(Line::Recovery, 3 * MS, &answer);
    }
    assert_eq!((run.take(), run.counters(2).malformed, run.arbiter.counters().recovered), (vec![], 5, 0));
    run.line(Line::Recovery, 4 * MS, &packet(OLD, 11..21));
    assert_eq!(run.take(), [Seen::Messages(11..21), Seen::Messages(21..31)]);
}

#[test]
fn a_stray_packet_of_another_session_is_dropped_when_the_followed_one_has_outlived_it() {
    // A heartbeat, messages in the middle, and the first ones of a day long past.
    for stray in [raw(STRAY, 1_001, 0, 0), packet(STRAY, 1_001..1_006), packet(STRAY, 1..6)] {
        let mut run = Run::followed();
        run.a(10 * MS, &stray);
        assert_eq!(run.arbiter.held_packets(), 1);
        // A quiet market: a heartbeat each second.
        for second in 1..=5 {
            run.advance(second * 1_000 * MS);
            run.a(second * 1_000 * MS, &raw(OLD, 1_001, 0, 0));
        }
        run.advance(6_000 * MS);
        run.a(6_000 * MS, &packet(OLD, 1_001..1_004));
        let heartbeats = vec![Seen::Messages(1_001..1_001); 5];
        assert_eq!(run.take(), [heartbeats, vec![Seen::Messages(1_001..1_004)]].concat());
        let counters = run.arbiter.counters();
        assert_eq!((counters.session_changes, run.session()), (0, id(OLD)));
        assert_eq!((run.arbiter.held_packets(), run.counters(0).implausible), (0, 1));
    }
}

#[test]
fn stray_packets_of_many_sessions_take_no_more_room_than_a_few() {
    let mut run = Run::followed();
    for number in 0..200u64 {
        let mut name = *STRAY;
        name[9] = number as u8;
        run.a(10 * MS + number, &packet(&name, 50..60));
    }
    assert_eq!((run.arbiter.held_packets(), run.counters(0).implausible), (4, 196));
    // The session that follows is one of them.
    run.a(20 * MS, &packet(NEW, 1..3));
    run.a(20 * MS + US, &packet(NEW, 3..5));
    run.a(20 * MS + 2 * US, &packet(STRAY, 7..9));
    run.advance(SILENCE);
    assert_eq!(run.take(), [Seen::Session(id(NEW), 1), Seen::Messages(1..3), Seen::Messages(3..5)]);
}

#[test]
fn a_session_that_begins_after_the_end_or_the_silence_of_the_one_before_begins_at_once() {
    // The end was said, and the session is complete.
    let mut run = Run::followed();
    run.a(MS, &raw(OLD, 1_001, END_OF_SESSION, 0));
    run.take();
    run.a(2 * MS, &packet(NEW, 1..3));
    assert_eq!(run.take(), [Seen::Session(id(NEW), 1), Seen::Messages(1..3)]);
    // The end was said, and is incomplete: for the reorder window after the last packet the other line may fill it.
    let mut run = Run::followed();
    run.a(MS, &raw(OLD, 1_011, END_OF_SESSION, 0));
    run.take();
    run.a(2 * MS, &packet(NEW, 1..3));
    run.advance(2 * MS + WINDOW);
    let expected =
        [Seen::Gap(1_001, 10), Seen::Messages(1_011..1_011), Seen::Session(id(NEW), 1), Seen::Messages(1..3)];
    assert_eq!(run.take(), expected);
    // No end was said, and nothing came for long enough. Amid a session one packet may be a stray one, and three are not.
    for (first, quiet, packets) in [(1, SILENCE / 2, 1), (1_000, SILENCE, 3)] {
        let mut run = Run::followed();
        for number in (first..).step_by(2).take(packets) {
            run.a(quiet, &packet(NEW, number..number + 2));
        }
        assert_eq!(run.take(), []);
        run.advance(quiet + WINDOW - 1);
        assert_eq!(run.session(), id(OLD));
        run.advance(quiet + WINDOW);
        assert_eq!((run.session(), run.arbiter.counters().session_changes), (id(NEW), 1));
    }
    // No end was said, and the session begins sooner: it waits, and loses nothing.
    let mut run = Run::followed();
    run.a(MS, &packet(NEW, 1..3));
    run.a(2 * MS, &packet(NEW, 3..5));
    run.advance(SILENCE / 2 - 1);
    assert_eq!(run.take(), []);
    run.advance(SILENCE / 2);
    assert_eq!(run.take(), [Seen::Session(id(NEW), 1), Seen::Messages(1..3), Seen::Messages(3..5)]);
}

#[test]
fn a_channel_that_joined_by_a_stray_packet_changes_to_the_session_that_goes_on() {
    let mut run = Run::new(ArbiterOptions::default());
    run.a(0, &raw(STRAY, 400, 0, 0));
    for number in 0..40 {
        let at = MS + number * 100 * MS;
        run.advance(at);
        run.a(at, &packet(OLD, 500 + number..501 + number));
    }
    assert_eq!((run.session(), run.arbiter.counters().session_changes), (id(OLD), 1));
    let seen = run.take();
    let at = seen.iter().position(|one| *one == Seen::Session(id(OLD), 1)).unwrap();
    assert_eq!(seen[at + 1], Seen::Gap(1, 499));
    let messages: Vec<_> = (500..540).map(|number| Seen::Messages(number..number + 1)).collect();
    assert_eq!(seen[at + 2..], messages, "nothing that came since was lost");
}

#[test]
fn a_channel_changes_back_to_the_session_before_when_the_other_brings_nothing_more() {
    let mut run = Run::followed();
    // A session begins after a silence: for all that is known it follows.
    run.a(SILENCE, &packet(STRAY, 1..2));
    run.advance(SILENCE + WINDOW);
    assert_eq!(run.session(), id(STRAY));
    run.take();
    let mut number = 1_001;
    for step in 1..60 {
        let at = SILENCE + step * 100 * MS;
        run.advance(at);
        run.a(at, &packet(OLD, number..number + 1));
        number += 1;
    }
    assert_eq!((run.session(), run.arbiter.counters().session_changes), (id(OLD), 2));
    assert_eq!(run.arbiter.next(), Some(number));
    // As long as the other brought packets, those of the one before were old.
    let of_past = run.counters(0).of_past_sessions;
    assert!((29..=30).contains(&of_past), "{of_past}");
}

#[test]
fn copies_of_the_session_before_do_not_hold_up_the_one_that_follows() {
    // Without an end of session, and without the first messages of the next one. Line B repeats what line A has brought, as long as the
    // next session lasts.
    let mut run = Run::followed();
    for step in 1..60 {
        let at = step * 100 * MS;
        run.advance(at);
        run.a(at, &packet(NEW, 5 + step..6 + step));
        run.line(Line::B, at + US, &packet(OLD, 1..1_001));
    }
    assert_eq!((run.session(), run.arbiter.counters().session_changes), (id(NEW), 1));
    assert_eq!((run.arbiter.next(), run.arbiter.counters().missing), (Some(65), 5));
    assert_eq!(run.counters(0).implausible + run.counters(1).implausible, 0);
}

#[test]
fn late_copies_of_a_session_that_is_over_do_not_bring_it_back_after_a_silence() {
    for is_ended in [true, false] {
        let mut run = Run::followed();
        if is_ended {
            run.a(MS, &raw(OLD, 1_001, END_OF_SESSION, 0));
        }
        run.a(2 * SILENCE, &packet(NEW, 1..3));
        run.advance(2 * SILENCE + WINDOW);
        assert_eq!(run.session(), id(NEW));
        // The new session is silent, and copies come on both lines for a while.
        run.advance(4 * SILENCE);
        run.take();
        for step in 0..60 {
            let at = 4 * SILENCE + step * 100 * MS;
            run.advance(at);
            let line = if step % 2 == 0 { Line::A } else { Line::B };
            run.line(line, at, &packet(OLD, 1..1_001));
        }
        run.advance(7 * SILENCE);
        assert_eq!((run.session(), run.arbiter.counters().session_changes), (id(NEW), 1));
        assert_eq!(run.take(), []);
        assert_eq!(run.counters(0).of_past_sessions + run.counters(1).of_past_sessions, 60);
    }
}

#[test]
fn late_copies_of_the_session_before_the_last_do_not_bring_it_back_either() {
    let mut run = Run::followed();
    for (at, session) in [(2 * SILENCE, NEW), (4 * SILENCE, b"SESSION003")] {
        run.a(at, &packet(session, 1..3));
        run.advance(at + WINDOW);
        assert_eq!(run.session(), id(session));
    }
    run.advance(6 * SILENCE);
    for step in 0..60 {
        let at = 6 * SILENCE + step * 100 * MS;
        run.advance(at);
        run.a(at, &packet(OLD, 1..1_001));
    }
    run.advance(9 * SILENCE);
    assert_eq!((run.session(), run.arbiter.counters().session_changes), (id(b"SESSION003"), 2));
    assert_eq!(run.counters(0).of_past_sessions, 60);
}

#[test]
fn a_publisher_that_renames_its_sessions_never_restarts_under_the_same_name() {
    // The feed pauses for a night, and the first packet after it is lost.
    for (restarts_rename, resets) in [(true, 0), (false, 1)] {
        let mut run = Run::new(ArbiterOptions { restarts_rename, ..ArbiterOptions::default() });
        run.a(MS, &packet(OLD, 1..11));
        run.a(86_400_000 * MS, &packet(OLD, 12..21));
        assert_eq!(run.arbiter.counters().sequence_resets, resets);
        run.advance(86_400_001 * MS);
        assert_eq!(run.arbiter.counters().missing, if restarts_rename { 1 } else { 11 });
    }
}

#[test]
fn sessions_that_waited_together_follow_in_the_order_in_which_they_came() {
    // A plant that hung finds them in the kernel's buffer, all at one time. The second one has more packets.
    let last = b"SESSION003";
    let mut run = Run::followed();
    let at = 2 * SILENCE;
    run.a(at, &packet(STRAY, 1..2));
    for (session, packets) in [(NEW, 3), (last, 5)] {
        for first in 0..packets {
            run.a(at, &packet(session, 10 * first + 1..10 * first + 11));
        }
    }
    // A late copy of the first one on the other line.
    run.line(Line::B, at + 1, &packet(NEW, 21..31));
    run.advance(at + 2 * SILENCE);
    let messages = |packets| (0..packets).map(|first| Seen::Messages(10 * first + 1..10 * first + 11));
    let mut expected = vec![Seen::Silent, Seen::Session(id(NEW), 1)];
    expected.extend(messages(3));
    expected.push(Seen::Session(id(last), 1));
    expected.extend(messages(5));
    expected.push(Seen::Silent);
    assert_eq!(run.take(), expected);
    assert_eq!(run.counters(0).implausible, 1, "a stray packet is dropped");
}

#[test]
fn a_single_packet_amid_another_session_waits_for_the_time_of_silence_even_after_a_silence() {
    let mut run = Run::followed();
    run.a(2 * SILENCE, &packet(STRAY, 5_000..5_001));
    run.advance(2 * SILENCE + WINDOW);
    assert_eq!(run.session(), id(OLD));
    // The followed session is back in time.
    run.a(2 * SILENCE + MS, &packet(OLD, 1_001..1_002));
    run.advance(4 * SILENCE);
    assert_eq!((run.session(), run.arbiter.counters().session_changes), (id(OLD), 0));
    // Or it is not.
    run.a(5 * SILENCE, &packet(NEW, 5_000..5_001));
    run.advance(6 * SILENCE - 1);
    assert_eq!(run.session(), id(OLD));
    run.advance(6 * SILENCE);
    assert_eq!(run.session(), id(NEW));
}

#[test]
fn a_channel_returns_from_a_session_that_brings_only_heartbeats() {
    let mut run = Run::followed();
    // The lines are out, and a test's heartbeats take the channel over.
    for step in 0..60 {
        run.advance(SILENCE + step * 100 * MS);
        run.a(SILENCE + step * 100 * MS, &raw(STRAY, 1, 0, 0));
    }
    assert_eq!(run.session(), id(STRAY));
    run.take();
    let mut number = 1_001;
    for step in 60..120 {
        let at = SILENCE + step * 100 * MS;
        run.advance(at);
        run.a(at, &packet(OLD, number..number + 1));
        run.a(at + US, &raw(STRAY, 1, 0, 0));
        number += 1;
    }
    assert_eq!((run.session(), run.arbiter.next()), (id(OLD), Some(number)));
    let seen = run.take();
    let last = seen.iter().rposition(|one| matches!(one, Seen::Session(..))).unwrap();
    assert_eq!(seen[last], Seen::Session(id(OLD), 1));
    assert!(
        seen[last + 1..].iter().filter(|one| matches!(one, Seen::Messages(_))).count() == 60,
        "none is lost"
    );
}

#[test]
fn of_two_sessions_that_both_go_on_the_followed_one_stays_and_the_other_takes_bounded_room() {
    let mut run = Run::followed();
    let mut most = 0;
    for step in 0..10_000u64 {
        let at = MS + step * MS;
        run.advance(at);
        run.a(at, &packet(OLD, 1_001 + step..1_002 + step));
        run.line(Line::B, at + US, &packet(NEW, 1 + step..2 + step));
        most = most.max(run.arbiter.held_packets());
    }
    let expected: Vec<_> = (1_001..11_001).map(|number| Seen::Messages(number..number + 1)).collect();
    assert_eq!(run.take(), expected);
    assert!((3_000..3_100).contains(&most), "{most}: the packets of the time of silence");
    // The old one stops. The new one goes on where it is; what was dropped of it is a gap.
    for step in 10_000..14_000u64 {
        let at = MS + step * MS;
        run.advance(at);
        run.line(Line::B, at + US, &packet(NEW, 1 + step..2 + step));
    }
    assert_eq!((run.session(), run.arbiter.next()), (id(NEW), Some(14_001)));
    let gaps: Vec<_> = run.take().into_iter().filter(|one| matches!(one, Seen::Gap(..))).collect();
    assert!(matches!(gaps[..], [Seen::Gap(1, count)] if (8_400..8_600).contains(&count)), "{gaps:?}");
}

#[test]
fn a_session_that_brings_only_heartbeats_gives_way_to_one_that_brings_messages() {
    let mut run = Run::followed();
    let mut changed = None;
    for step in 0..6_000u64 {
        let at = MS + step * MS;
        run.advance(at);
        if step % 500 == 0 {
            run.a(at, &packet(OLD, 1_001..1_001));
        }
        run.line(Line::B, at + US, &packet(NEW, 1 + step..2 + step));
        if run.session() == id(NEW) {
            changed.get_or_insert(step);
        }
    }
    assert!(matches!(changed, Some(2_990..3_010)), "{changed:?}");
    let seen = run.take();
    assert_eq!(seen.iter().filter(|one| matches!(one, Seen::Gap(..) | Seen::Silent)).count(), 0);
    assert_eq!((run.session(), run.arbiter.next()), (id(NEW), Some(6_001)));
}

#[test]
fn one_stray_packet_does_not_end_a_session_whose_lines_go_out() {
    for until in [0, 400, 1_400] {
        let mut run = Run::followed();
        run.a(MS, &packet(STRAY, 1..2));
        for step in 0..=until {
            run.advance(2 * MS + step * MS);
            run.a(2 * MS + step * MS, &packet(OLD, 1_001 + step..1_002 + step));
        }
        // Both lines are out for long.
        run.advance(40_000 * MS);
        assert_eq!(run.session(), id(OLD), "{until}");
        run.take();
        run.a(40_001 * MS, &packet(OLD, 1_002 + until..1_003 + until));
        assert_eq!(run.take(), [Seen::Heard, Seen::Messages(1_002 + until..1_003 + until)], "{until}");
        assert_eq!((run.arbiter.held_packets(), run.counters(0).implausible), (0, 1));
    }
}

#[test]
fn packets_of_a_session_that_has_ended_meanwhile_are_not_taken_for_the_next() {
    let third = b"SESSION003";
    let mut run = Run::followed();
    // Two sessions pass while the first is heard no more: the second with its end, on both lines, and the third.
    run.a(10 * MS, &packet(NEW, 1..11));
    run.line(Line::B, 10 * MS, &packet(NEW, 1..11));
    run.a(20 * MS, &raw(NEW, 11, END_OF_SESSION, 0));
    run.a(30 * MS, &packet(third, 1..3));
    run.line(Line::B, 31 * MS, &packet(NEW, 5..11));
    run.line(Line::B, 32 * MS, &raw(NEW, 11, END_OF_SESSION, 0));
    run.a(33 * MS, &packet(third, 3..4));
    run.advance(10_000 * MS);
    run.a(10_001 * MS, &packet(third, 4..5));
    run.advance(20_000 * MS);
    let seen = run.take();
    let messages = |session: &[u8; 10]| {
        let from = seen.iter().position(|one| *one == Seen::Session(id(session), 1)).unwrap();
        let of = seen[from + 1..].iter().take_while(|one| !matches!(one, Seen::Session(..)));
        of.filter_map(|one| if let Seen::Messages(range) = one { Some(range.clone()) } else { None })
            .flatten()
            .collect::<Vec<_>>()
    };
    assert_eq!(messages(NEW), (1..11).collect::<Vec<_>>());
    assert_eq!(messages(third), (1..5).collect::<Vec<_>>());
    assert_eq!((run.session(), run.arbiter.next()), (id(third), Some(5)));
}

#[test]
fn a_line_that_is_already_on_the_next_session_loses_nothing_while_the_other_ends_the_one_before() {
    let mut run = Run::followed();
    for step in 0..2_000u64 {
        let at = MS + step * MS;
        run.advance(at);
        run.line(Line::B, at, &packet(NEW, 1 + step..2 + step));
        if step < 1_500 {
            run.a(at + US, &packet(OLD, 1_001 + step..1_002 + step));
        }
        if step == 1_500 {
            run.a(at + US, &raw(OLD, 2_501, END_OF_SESSION, 0));
        }
    }
    let mut expected: Vec<_> = (1_001..2_501).map(|number| Seen::Messages(number..number + 1)).collect();
    expected.push(Seen::Messages(2_501..2_501));
    expected.push(Seen::Session(id(NEW), 1));
    expected.extend((1..2_001).map(|number| Seen::Messages(number..number + 1)));
    assert_eq!(run.take(), expected);
    assert_eq!(run.arbiter.counters().session_changes, 1);
}

#[test]
fn messages_that_cannot_be_read_are_missing_until_the_other_line_brings_them() {
    let mut run = Run::followed();
    // Five by its header, three to read.
    run.a(MS, &raw(OLD, 1_001, 5, 3));
    run.arbiter.cannot_read(Line::A, 2);
    assert_eq!((run.arbiter.next(), run.arbiter.counters().messages), (Some(1_004), 1_003));
    let counters = run.counters(0);
    assert_eq!((counters.malformed, counters.won, counters.messages), (1, 1_003, 1_003));
    // Line A is ahead; the copy comes.
    run.a(MS + US, &packet(OLD, 1_006..1_007));
    assert!(run.arbiter.is_recovering());
    assert_eq!(run.counters(0).lost, 2);
    run.line(Line::B, MS + 2 * US, &packet(OLD, 1_001..1_006));
    let expected = [Seen::Messages(1_001..1_006), Seen::Messages(1_001..1_006), Seen::Messages(1_006..1_007)];
    assert_eq!((run.take(), run.counters(1).won, run.counters(1).duplicate), (expected.to_vec(), 2, 3));
    // No copy comes.
    run.a(2 * MS, &raw(OLD, 1_007, 5, 0));
    run.arbiter.cannot_read(Line::A, 5);
    run.a(2 * MS + US, &raw(OLD, 1_012, 0, 0));
    run.advance(3 * MS);
    assert_eq!(run.take()[1..], [Seen::Gap(1_007, 5), Seen::Messages(1_012..1_012)]);
    assert_eq!((run.arbiter.counters().missing, run.arbiter.counters().messages), (5, 1_006));
}
