//! Messages that come after they were given up.

use super::*;

#[test]
fn messages_that_come_too_late_narrow_staleness_to_their_instruments() {
    let messages = messages(3_000, 6, 7);
    let mut live = live(ArbiterOptions::default(), None);
    let mut market = Market::new();
    for (index, message) in messages.iter().enumerate().filter(|(index, _)| *index != 2_000) {
        let payload = packet(b"SESSION001", index as u64 + 1, std::slice::from_ref(message));
        let events = feed(&mut live, input(Line::A, index as u64 * 100 * US, &payload));
        market.apply(&events);
    }
    let stale = |market: &Market, live: &LiveFeed| {
        market.state(live.instruments()).iter().filter(|(_, _, is_stale)| *is_stale).count()
    };
    assert_eq!(stale(&market, &live), 6);
    let payload = packet(b"SESSION001", 2_001, &messages[2_000..2_001]);
    market.apply(&feed(&mut live, input(Line::B, 400 * MS, &payload)));
    assert_eq!(stale(&market, &live), 6, "a venue that numbers anew would send such a number too");
    let events = heartbeat(&mut live, 401 * MS);
    market.apply(&events);
    assert_eq!(stale(&market, &live), 1);
    assert_eq!(events.iter().filter(|event| event.kind == EventKind::Gap).count(), 1);
    let lines = live.channels()[0].arbiter().lines();
    assert_eq!((lines[1].late, live.channels()[0].arbiter().counters().late), (1, 1));
}

#[test]
fn a_message_that_comes_too_late_before_new_ones_of_its_packet_leaves_its_instrument_stale() {
    let messages = messages(3_000, 6, 7);
    let mut live = live(ArbiterOptions::default(), None);
    let mut market = Market::new();
    let sent = messages.iter().enumerate().take(2_900);
    for (index, message) in sent.filter(|(index, _)| *index != 2_000) {
        let payload = packet(b"SESSION001", index as u64 + 1, std::slice::from_ref(message));
        market.apply(&feed(&mut live, input(Line::A, index as u64 * 100 * US, &payload)));
    }
    assert_eq!(live.channels()[0].arbiter().counters().missing, 1);
    // The late one, copies, and new ones.
    let payload = packet(b"SESSION001", 2_001, &messages[2_000..]);
    market.apply(&feed(&mut live, input(Line::B, 400 * MS, &payload)));
    let events = heartbeat(&mut live, 401 * MS);
    market.apply(&events);
    assert!(events.iter().any(|event| event.kind == EventKind::Recovered));
    let state = market.state(live.instruments());
    let stale: Vec<_> = state.iter().filter(|(_, _, is_stale)| *is_stale).collect();
    assert_eq!(stale.len(), 1, "the one that lacks a message, and none of the copies");
    let arbiter = live.channels()[0].arbiter();
    assert_eq!((arbiter.next(), arbiter.counters().late), (Some(messages.len() as u64 + 1), 1));
}

#[test]
fn an_instrument_of_a_late_message_stays_stale_when_a_later_gap_is_narrowed() {
    let messages = messages(3_000, 6, 7);
    let mut live = live(ArbiterOptions::default(), None);
    let mut market = Market::new();
    let stale = |market: &Market, live: &LiveFeed| -> Vec<_> {
        let state = market.state(live.instruments()).into_iter();
        state.filter(|(_, _, is_stale)| *is_stale).map(|(symbol, ..)| symbol).collect()
    };
    let mut after = Vec::new();
    // Each loses a message, which comes too late.
    for (from, lost, to) in [(0, 2_000, 2_200), (2_200, 2_500, 3_000)] {
        for index in (from..to.min(messages.len())).filter(|index| *index != lost) {
            let payload = packet(b"SESSION001", index as u64 + 1, &messages[index..=index]);
            market.apply(&feed(&mut live, input(Line::A, index as u64 * 100 * US, &payload)));
        }
        assert_eq!(stale(&market, &live).len(), 6);
        let payload = packet(b"SESSION001", lost as u64 + 1, &messages[lost..=lost]);
        let at = to as u64 * 100 * US;
        market.apply(&feed(&mut live, input(Line::B, at, &payload)));
        market.apply(&heartbeat(&mut live, at + US));
        after.push(stale(&market, &live));
    }
    assert_eq!(after[0].len(), 1);
    assert!(after[1].contains(&after[0][0]), "{after:?}");
    // A state that is restored has it too.
    let mut live = restored(&live);
    let payload = packet(b"SESSION001", 3_002, &messages[..1]);
    market.apply(&feed(&mut live, input(Line::A, 400 * MS, &payload)));
    market.apply(&feed(&mut live, Input::Tick { now: Nanos(START + 500 * MS) }));
    let payload = packet(b"SESSION001", 3_001, &messages[..1]);
    market.apply(&feed(&mut live, input(Line::B, 600 * MS, &payload)));
    market.apply(&heartbeat(&mut live, 601 * MS));
    assert!(after[1].iter().all(|symbol| stale(&market, &live).contains(symbol)));
}

#[test]
fn messages_of_a_server_that_was_away_are_requested_until_they_come() {
    let messages = messages(60, 3, 12);
    let retransmission = RetransmissionOptions { attempts: 2, ..RetransmissionOptions::default() };
    let options = ArbiterOptions { retransmission: Some(retransmission), ..ArbiterOptions::default() };
    let mut live = live(options, None);
    feed(&mut live, input(Line::A, 0, &packet(b"SESSION001", 1, &messages[..10])));
    feed(&mut live, input(Line::A, US, &packet(b"SESSION001", 21, &messages[20..30])));
    let (mut requests, mut at) = (Vec::new(), 0);
    let mut run = |live: &mut LiveFeed, until: u64, requests: &mut Vec<u64>| {
        while at < until {
            at += 10;
            feed(live, Input::Tick { now: Nanos(START + at * MS) });
            while let Some(request) = live.take_request() {
                assert!(
                    matches!(request, Request::Retransmission { request, .. } if (request.first, request.count) == (11, 10))
                );
                requests.push(at);
            }
        }
    };
    run(&mut live, 60_000, &mut requests);
    // Two attempts, then pauses that double up to ten seconds.
    let pauses: Vec<u64> = requests.windows(2).map(|pair| pair[1] - pair[0]).skip(2).collect();
    assert_eq!(pauses[..8], [100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000], "{requests:?}");
    assert!(live.channels()[0].is_stale());
    let answer = packet(b"SESSION001", 11, &messages[10..20]);
    feed(&mut live, input(Line::Recovery, 60_000 * MS, &answer));
    let more = packet(b"SESSION001", 31, &messages[30..31]);
    feed(&mut live, input(Line::A, 60_001 * MS, &more));
    let before = requests.len();
    run(&mut live, 100_000, &mut requests);
    assert_eq!(requests.len(), before, "nothing is missing");
    let counters = live.channels()[0].arbiter().counters();
    assert_eq!((counters.late, counters.messages), (10, 21));
}
