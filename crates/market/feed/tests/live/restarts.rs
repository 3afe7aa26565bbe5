//! Old numbers on live lines: copies and restarts.

use super::*;

/// These messages with their times moved by some hours.
fn later(hours: u64, mut messages: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    for message in &mut messages {
        let time = u64::from_be_bytes([&[0, 0], &message[5..11]].concat().try_into().unwrap());
        message[5..11].copy_from_slice(&(time + hours * 3_600_000 * MS).to_be_bytes()[2..]);
    }
    messages
}

#[test]
fn copies_after_a_silence_are_no_restart() {
    let messages = messages(100, 3, 10);
    let mut live = live(ArbiterOptions::default(), None);
    for first in [1, 21, 41, 61] {
        let payload = packet(b"SESSION001", first as u64, &messages[first - 1..first + 19]);
        feed(&mut live, input(Line::A, 0, &payload));
    }
    for (at, first) in [(4_000, 1), (8_000, 41), (12_000, 33), (12_001, 45), (12_002, 57)] {
        let payload = packet(b"SESSION001", first as u64, &messages[first - 1..first + 11]);
        let events = feed(&mut live, input(Line::B, at * MS, &payload));
        assert!(!events.iter().any(|event| event.kind.is_of_order() || event.kind == EventKind::Clear));
    }
    let counters = live.channels()[0].arbiter().counters();
    assert_eq!((counters.sequence_resets, counters.messages), (0, 80));
}

#[test]
fn three_later_packets_with_old_numbers_and_other_content_are_a_restart_without_a_pause() {
    let (messages, others) = (messages(100, 3, 10), later(1, messages(100, 3, 11)));
    let mut live = live(ArbiterOptions::default(), None);
    feed(&mut live, input(Line::A, 0, &packet(b"SESSION001", 1, &messages[..80])));
    for first in [41, 51] {
        let payload = packet(b"SESSION001", first as u64, &others[first - 1..first + 9]);
        assert_eq!(feed(&mut live, input(Line::A, MS, &payload)), []);
        // The copy on line B changes nothing.
        assert_eq!(feed(&mut live, input(Line::B, MS, &payload)), []);
    }
    let again = feed(&mut live, input(Line::A, MS, &packet(b"SESSION001", 61, &others[60..70])));
    assert!(again.iter().any(|event| event.kind == EventKind::Clear));
    let counters = *live.channels()[0].arbiter().counters();
    assert_eq!(counters.sequence_resets, 1);
    // The first forty are missing, and the three packets wait for them.
    let later = feed(&mut live, Input::Tick { now: Nanos(START + 1_000 * MS) });
    assert_eq!(later.iter().filter_map(|event| event.gap()).map(|gap| gap.count).max(), Some(40));
    assert_eq!(live.channels()[0].arbiter().counters().messages, 80 + 30);
}

#[test]
fn a_channel_that_restarts_hands_on_what_it_holds_behind_a_gap() {
    let messages = messages(40, 3, 10);
    let mut live = live(with_retransmission(), None);
    feed(&mut live, input(Line::A, 0, &packet(b"SESSION001", 1, &messages[..20])));
    assert_eq!(feed(&mut live, input(Line::A, MS, &packet(b"SESSION001", 26, &messages[25..40]))), []);
    // The plant gets no time to give the gap up before the next day begins.
    let events = feed(&mut live, input(Line::A, 86_400_000 * MS, &packet(b"SESSION001", 1, &messages[..1])));
    let gaps: Vec<_> =
        events.iter().filter_map(|event| event.gap()).map(|gap| (gap.first, gap.count)).collect();
    assert!(gaps.contains(&(21, 5)), "{gaps:?}");
    let arbiter = live.channels()[0].arbiter();
    assert_eq!((arbiter.counters().messages, arbiter.counters().missing, arbiter.next()), (36, 5, Some(2)));
}

#[test]
fn a_channel_that_restarts_while_it_joins_is_followed_from_its_first_message() {
    let (messages, again) = (messages(400, 3, 10), later(12, messages(400, 3, 11)));
    let mut live = live(ArbiterOptions::default(), Some(SnapshotOptions::default()));
    feed(&mut live, input(Line::A, 0, &packet(b"SESSION001", 201, &messages[200..260])));
    let Some(Request::Snapshot { attempt, .. }) = live.take_request() else { panic!("it joins") };
    // A message of a gap comes late on line B, and both lines bring copies: no restart.
    feed(&mut live, input(Line::A, 0, &packet(b"SESSION001", 271, &messages[270..280])));
    feed(&mut live, input(Line::B, MS, &packet(b"SESSION001", 261, &messages[260..270])));
    for first in [201, 211, 221, 231] {
        feed(
            &mut live,
            input(Line::B, MS, &packet(b"SESSION001", first, &messages[first as usize - 1..][..10])),
        );
    }
    assert!(live.channels()[0].arbiter().is_joining());
    let mut events = Vec::new();
    for first in [1, 11, 21] {
        let payload = packet(b"SESSION001", first, &again[first as usize - 1..][..10]);
        events.extend(feed(&mut live, input(Line::A, 2 * MS, &payload)));
    }
    // What waited for a snapshot belongs to the old run, whose beginning is missing.
    let gaps: Vec<_> = events.iter().filter_map(|event| event.gap()).filter(|gap| gap.count > 0).collect();
    assert_eq!(gaps, [Gap { first: 1, count: 200 }]);
    let arbiter = live.channels()[0].arbiter();
    assert_eq!((arbiter.counters().sequence_resets, arbiter.next()), (1, Some(31)));
    assert_eq!(arbiter.counters().messages, 80 + 30);
    // The snapshot that was requested is of no use any more, and none is requested again.
    let end =
        Input::SnapshotEnd { channel: 0, attempt, received: Nanos(START + 3 * MS), next: 201, bytes: 0 };
    assert_eq!(feed(&mut live, end), []);
    feed(&mut live, Input::Tick { now: Nanos(START + 2_000 * MS) });
    assert!(!std::iter::from_fn(|| live.take_request()).any(|one| matches!(one, Request::Snapshot { .. })));
    let channel = &live.channels()[0];
    assert_eq!((channel.snapshots().applied, channel.is_stale()), (0, false));
}

#[test]
fn a_restart_is_no_late_packet_of_a_gap_that_was_given_up() {
    let messages = messages(100, 3, 10);
    let morning = later(10, messages.clone());
    // On the next day, and with the message that announces a restart within the day.
    for (at, again) in [(86_400_000 * MS, &messages), (2_000 * MS, &morning)] {
        let mut live = live(ArbiterOptions::default(), None);
        feed(&mut live, input(Line::A, 0, &packet(b"SESSION001", 41, &messages[40..80])));
        feed(&mut live, Input::Tick { now: Nanos(START + 1_000 * MS) });
        assert_eq!(live.channels()[0].arbiter().counters().missing, 40);
        let events = feed(&mut live, input(Line::A, at, &packet(b"SESSION001", 1, &again[..20])));
        assert!(events.iter().any(|event| event.kind == EventKind::Clear), "at {at}");
        let arbiter = live.channels()[0].arbiter();
        assert_eq!((arbiter.counters().sequence_resets, arbiter.next()), (1, Some(21)), "at {at}");
    }
}

#[test]
fn heartbeats_numbered_0_keep_a_channel_from_being_silent() {
    let messages = messages(20, 3, 10);
    let mut live = live(ArbiterOptions::default(), None);
    feed(&mut live, input(Line::A, 0, &packet(b"SESSION001", 1, &messages)));
    for second in 1..=20 {
        let at = second * 1_000 * MS;
        feed(&mut live, Input::Tick { now: Nanos(START + at) });
        feed(&mut live, input(Line::A, at, &control(b"SESSION001", 0, 0, &[])));
    }
    assert_eq!(live.channels()[0].arbiter().counters().silences, 0);
}

#[test]
fn copies_after_a_damaged_packet_count_as_copies() {
    let messages = messages(100, 3, 10);
    let mut live = live(ArbiterOptions::default(), None);
    for first in (1..=91).step_by(2) {
        let payload = packet(b"SESSION001", first as u64, &messages[first - 1..first + 1]);
        feed(&mut live, input(Line::A, MS, &payload));
    }
    // Line B lags. The content of its first packet is damaged, with a time that is later than all.
    let mut damaged = messages[20..22].to_vec();
    damaged[0][5..11].fill(0x7f);
    feed(&mut live, input(Line::B, 2 * MS, &packet(b"SESSION001", 21, &damaged)));
    for first in (23..=33).step_by(2) {
        let payload = packet(b"SESSION001", first as u64, &messages[first - 1..first + 1]);
        feed(&mut live, input(Line::B, 2 * MS, &payload));
    }
    feed(&mut live, input(Line::A, 3 * MS, &packet(b"SESSION001", 93, &messages[92..94])));
    let line_b = live.channels()[0].arbiter().lines()[1];
    assert_eq!((line_b.implausible, line_b.duplicate), (1, 12));
    assert_eq!(live.channels()[0].arbiter().counters().sequence_resets, 0);
}

#[test]
fn a_session_that_another_replaced_comes_back_on_the_next_day() {
    let messages = messages(600, 3, 10);
    let mut live = live(ArbiterOptions::default(), None);
    for first in 1..=400 {
        feed(
            &mut live,
            input(Line::A, MS, &packet(b"SESSION001", first, &messages[first as usize - 1..][..1])),
        );
    }
    // Another session, as of a test in the evening, replaces it.
    feed(&mut live, input(Line::A, 4_000 * MS, &packet(b"SESSION002", 1, &messages[400..402])));
    feed(&mut live, Input::Tick { now: Nanos(START + 6_000 * MS) });
    // A copy from further back than is remembered: its time says that it is old.
    feed(&mut live, input(Line::B, 9_000 * MS, &packet(b"SESSION001", 20, &messages[19..20])));
    assert_eq!(live.channels()[0].arbiter().lines()[1].of_past_sessions, 1);
    // The next morning its times are earlier in the day than its last ones, and it numbers from 1.
    let morning = 86_400_000 * MS;
    for first in 1..=40u64 {
        let at = morning + first * 200 * MS;
        feed(&mut live, Input::Tick { now: Nanos(START + at) });
        feed(
            &mut live,
            input(Line::A, at, &packet(b"SESSION001", first, &messages[first as usize - 1..][..1])),
        );
    }
    let arbiter = live.channels()[0].arbiter();
    assert_eq!(arbiter.session().unwrap().to_string(), "SESSION001");
    assert_eq!((arbiter.lines()[0].of_past_sessions, arbiter.next()), (0, Some(41)));
}

#[test]
fn the_next_day_begins_with_packets_that_the_day_before_had_too() {
    let messages = messages(100, 3, 10);
    let mut live = live(ArbiterOptions::default(), None);
    for day in 0..3 {
        for first in [1, 21] {
            let payload = packet(b"SESSION001", first as u64, &messages[first - 1..first + 19]);
            for line in [Line::A, Line::B] {
                feed(&mut live, input(line, day * 86_400_000 * MS + first as u64, &payload));
            }
        }
    }
    let counters = live.channels()[0].arbiter().counters();
    assert_eq!((counters.sequence_resets, counters.messages, counters.missing), (2, 120, 0));
}
