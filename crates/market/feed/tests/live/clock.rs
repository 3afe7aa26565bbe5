//! A clock that is set while a channel is followed.

use super::*;

#[test]
fn a_clock_that_is_set_makes_nothing_late_and_stops_nothing() {
    let hour_ns = 3_600_000_000_000_i64;
    let messages = messages(30, 3, 5);
    // A packet of the new clock may come before anybody notices that it was set.
    let cases = [
        (0, true, false),
        (hour_ns, true, false),
        (hour_ns, true, true),
        (-hour_ns, true, false),
        (-hour_ns, false, false),
    ];
    for (ahead_ns, is_known, is_behind_a_packet) in cases {
        let mut live = live(with_retransmission(), None);
        let began = 2 * hour_ns.unsigned_abs();
        feed(&mut live, input(Line::A, began, &packet(b"SESSION001", 1, &messages[..10])));
        let at = if is_behind_a_packet { began.saturating_add_signed(ahead_ns) } else { began } + 1;
        feed(&mut live, input(Line::A, at, &packet(b"SESSION001", 21, &messages[20..])));
        // The gap is requested after the reorder window, and again after the time for an answer.
        let mut now = began.saturating_add_signed(ahead_ns) + 2;
        // Before a restart nobody sees that the clock was set: the first tick shows it.
        let set = match is_known {
            true => Input::ClockSet { now: Nanos(START + now), ahead_ns },
            false => Input::Tick { now: Nanos(START + now) },
        };
        assert_eq!(feed(&mut live, set), []);
        let requested = |live: &mut LiveFeed, now: &mut u64| {
            let began = *now;
            while live.take_request().is_none() {
                *now = live.deadline().unwrap().0 - START;
                feed(live, Input::Tick { now: Nanos(START + *now) });
            }
            *now - began
        };
        let options = with_retransmission();
        assert!(requested(&mut live, &mut now) <= options.reorder_window_ns);
        assert_eq!(requested(&mut live, &mut now), options.retransmission.unwrap().timeout_ns);
        // A copy that was on its way shows neither a silence nor numbers that begin anew.
        feed(&mut live, input(Line::B, now, &packet(b"SESSION001", 5, &messages[4..8])));
        feed(&mut live, input(Line::Recovery, now, &packet(b"SESSION001", 11, &messages[10..20])));
        let arbiter = live.channels()[0].arbiter();
        assert_eq!((arbiter.is_recovering(), arbiter.next()), (false, Some(1 + messages.len() as u64)));
        let counters = arbiter.counters();
        // By the packet's time the lines had said nothing for an hour.
        let silences = u64::from(is_behind_a_packet);
        assert_eq!((counters.silences, counters.sequence_resets, counters.gaps), (silences, 0, 0));
    }
}

#[test]
fn a_request_is_repeated_in_time_though_the_journal_lost_that_the_clock_was_set_back() {
    let minute_ns = 60_000_000_000;
    let messages = messages(30, 3, 5);
    let mut live = live(with_retransmission(), None);
    let began = 2 * minute_ns;
    feed(&mut live, input(Line::A, began, &packet(b"SESSION001", 1, &messages[..10])));
    feed(&mut live, input(Line::A, began + 1, &packet(b"SESSION001", 21, &messages[20..])));
    // That the clock was set back is lost, and that it was set forward again is not.
    live.inputs_lost(Nanos(START + minute_ns), &mut |_: Event| {});
    let ahead_ns = minute_ns as i64;
    feed(&mut live, Input::ClockSet { now: Nanos(START + began), ahead_ns });
    let mut now = began;
    let mut requested_at = Vec::new();
    while requested_at.len() < 2 {
        feed(&mut live, Input::Tick { now: Nanos(START + now) });
        while live.take_request().is_some() {
            requested_at.push(now - began);
        }
        now += MS;
        assert!(now < began + minute_ns / 2, "{requested_at:?}");
    }
}

#[test]
fn a_copy_that_comes_when_the_clock_was_set_forward_does_not_reset_the_numbers() {
    let messages = messages(30, 3, 5);
    let mut live = live(ArbiterOptions::default(), None);
    let hour = 3_600 * Nanos::SECOND;
    feed(&mut live, input(Line::A, 1_000, &packet(b"SESSION001", 1, &messages)));
    feed(&mut live, Input::ClockSet { now: Nanos(START + hour + 2_000), ahead_ns: hour.cast_signed() });
    assert_eq!(feed(&mut live, input(Line::B, hour + 3_000, &packet(b"SESSION001", 1, &messages))), []);
    assert_eq!(live.channels()[0].arbiter().counters().sequence_resets, 0);
}

#[test]
fn books_whose_messages_came_late_are_good_again_behind_a_clock_that_is_set() {
    let hour_ns = 3_600_000_000_000_i64;
    let messages = messages(30, 3, 5);
    for ahead_ns in [0, hour_ns, -hour_ns] {
        let mut live = live(ArbiterOptions::default(), None);
        let began = 2 * hour_ns.unsigned_abs();
        feed(&mut live, input(Line::A, began, &packet(b"SESSION001", 1, &messages[..10])));
        feed(&mut live, input(Line::A, began + 1, &packet(b"SESSION001", 12, &messages[11..])));
        feed(&mut live, Input::Tick { now: Nanos(START + began + MS) });
        feed(&mut live, input(Line::B, began + MS, &packet(b"SESSION001", 11, &messages[10..11])));
        let now = began.saturating_add_signed(ahead_ns) + 2 * MS;
        feed(&mut live, Input::ClockSet { now: Nanos(START + now), ahead_ns });
        feed(&mut live, Input::Tick { now: Nanos(START + now) });
        assert!(live.channels()[0].is_stale(), "{ahead_ns}: the sequence has not gone on");
        heartbeat(&mut live, now + MS);
        assert!(!live.channels()[0].is_stale(), "{ahead_ns}");
    }
}

#[test]
fn a_snapshot_is_due_in_time_behind_a_clock_that_is_set() {
    let hour_ns = 3_600_000_000_000_i64;
    for ahead_ns in [hour_ns, -hour_ns] {
        let options = SnapshotOptions::default();
        let mut live = live(ArbiterOptions::default(), Some(options));
        let began = 2 * hour_ns.unsigned_abs();
        feed(&mut live, input(Line::A, began, &packet(b"SESSION001", 2_001, &messages(10, 3, 5))));
        assert!(live.take_request().is_some());
        let now = began.saturating_add_signed(ahead_ns);
        feed(&mut live, Input::ClockSet { now: Nanos(START + now), ahead_ns });
        feed(&mut live, Input::Tick { now: Nanos(START + now + options.timeout_ns - 1) });
        assert_eq!(live.channels()[0].snapshots().failed, 0);
        feed(&mut live, Input::Tick { now: Nanos(START + now + options.timeout_ns) });
        assert_eq!(live.channels()[0].snapshots().failed, 1);
    }
}

#[test]
fn a_silence_is_noticed_in_time_though_the_clock_stands_still() {
    let messages = messages(30, 3, 5);
    let options = ArbiterOptions::default();
    let mut live = live(options, None);
    let began = 60 * Nanos::SECOND;
    feed(&mut live, input(Line::A, began, &packet(b"SESSION001", 1, &messages)));
    let step_ns = 100 * MS;
    let steps = options.silence_ns / step_ns;
    for step in 1..=steps {
        let is_silent = live.channels()[0].arbiter().counters().silences > 0;
        assert!(!is_silent, "after {step} steps of {steps}");
        feed(&mut live, Input::Tick { now: Nanos(START + began) });
        feed(&mut live, Input::ClockSet { now: Nanos(START + began), ahead_ns: -step_ns.cast_signed() });
    }
    feed(&mut live, Input::Tick { now: Nanos(START + began + 1) });
    assert_eq!(live.channels()[0].arbiter().counters().silences, 1);
}

#[test]
fn in_silence_a_time_event_comes_once_a_second() {
    let messages = messages(100, 3, 9);
    let mut live = live(ArbiterOptions::default(), None);
    let payload = packet(b"SESSION001", 1, &messages[..50]);
    live.input(&input(Line::A, 0, &payload), &mut |_: Event| {});
    let mut beats = Vec::new();
    for step in 1..=30 {
        assert!(live.deadline().is_some());
        live.input(&Input::Tick { now: Nanos(START + step * 100 * MS) }, &mut |event: Event| {
            if event.kind == EventKind::Other {
                beats.push(event.ts_recv.0 - START);
            }
        });
    }
    assert_eq!(beats, [1_000 * MS, 2_000 * MS, 3_000 * MS]);
}
