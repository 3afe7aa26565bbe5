//! Old numbers on live lines: copies and restarts.

use super::*;

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
    let (messages, mut others) = (messages(100, 3, 10), messages(100, 3, 11));
    for message in &mut others {
        // An hour later.
        let time = u64::from_be_bytes([&[0, 0], &message[5..11]].concat().try_into().unwrap());
        message[5..11].copy_from_slice(&(time + 3_600_000 * MS).to_be_bytes()[2..]);
    }
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
