//! Snapshots that the lines do not confirm or contradict.

use super::*;

/// Delivers the messages from 201 to 280, and a snapshot of those before `of` that claims to end at `claimed`. Returns its fault.
fn fault_of_a_snapshot(of: usize, claimed: u64) -> Option<SnapshotFault> {
    let messages = messages(400, 3, 9);
    let mut live = live(ArbiterOptions::default(), Some(SnapshotOptions::default()));
    feed(&mut live, input(Line::A, 0, &packet(b"SESSION001", 201, &messages[200..280])));
    let Some(Request::Snapshot { attempt, .. }) = live.take_request() else { panic!("it joins") };
    let (received, state) = (Nanos(START + MS), snapshot_of(&messages[..of - 1]));
    feed(&mut live, Input::Snapshot { channel: 0, attempt, received, messages: &state });
    let bytes = state.len() as u64;
    feed(&mut live, Input::SnapshotEnd { channel: 0, attempt, received, next: claimed, bytes });
    feed(&mut live, Input::Tick { now: Nanos(START + 3_002 * MS) });
    let snapshots = live.channels()[0].snapshots();
    assert_eq!(snapshots.applied, u64::from(snapshots.last_fault.is_none()));
    snapshots.last_fault
}

#[test]
fn a_snapshot_with_a_false_end_number_is_not_applied() {
    assert_eq!(fault_of_a_snapshot(240, 240), None);
    // The messages from 220 to 259 are on the line and not in the snapshot.
    assert_eq!(fault_of_a_snapshot(220, 260), Some(SnapshotFault::Behind));
    // The messages from 201 to 259 are in the snapshot, and would be applied again.
    assert_eq!(fault_of_a_snapshot(260, 201), Some(SnapshotFault::Contradicted));
    // No line confirms the number.
    assert_eq!(fault_of_a_snapshot(240, 5_000), Some(SnapshotFault::Unconfirmed));
}

#[test]
fn a_joining_channel_requests_snapshots_with_growing_pauses_until_one_is_applied() {
    let messages = messages(400, 3, 9);
    let mut live = live(ArbiterOptions::default(), Some(SnapshotOptions::default()));
    feed(&mut live, input(Line::A, 0, &packet(b"SESSION001", 201, &messages[200..280])));
    let mut requested_ms = Vec::new();
    for at_ms in 0..2_500 {
        let received = Nanos(START + at_ms * MS);
        feed(&mut live, Input::Tick { now: received });
        while let Some(request) = live.take_request() {
            if let Request::Snapshot { channel, attempt, .. } = request {
                requested_ms.push(at_ms);
                let fault = SnapshotFault::Unreachable;
                feed(&mut live, Input::SnapshotFailed { channel, attempt, fault, received });
            }
        }
    }
    assert_eq!(requested_ms, [0, 100, 300, 700, 1_500]);
    assert!(live.channels()[0].is_stale());
}

/// The body of a packet of IEX, and the snapshot, with these messages.
fn blocks(prefix: fn(u16) -> [u8; 2], messages: &[Vec<u8>]) -> Vec<u8> {
    messages.iter().flat_map(|message| [&prefix(message.len() as u16)[..], message].concat()).collect()
}

/// Delivers `on_lines`, which are the messages from 1 on, and a snapshot with `in_snapshot` that claims to include all of them.
fn fault_at_iex(
    application: Application,
    publisher: Publisher,
    on_lines: &[Vec<u8>],
    in_snapshot: &[Vec<u8>],
) -> Option<SnapshotFault> {
    let protocol = if application == Application::IexDeep10 { 0x8004 } else { 0x8003 };
    let session = SessionId::IexTp { protocol, channel: 1, session: 7 };
    let packet = |first: u64, messages: &[Vec<u8>]| {
        let body = blocks(u16::to_le_bytes, messages);
        let header = Outgoing {
            session,
            sequence: first,
            messages: messages.len() as u16,
            content: Content::Messages,
            stream_offset: if first == 1 { 0 } else { 100 },
            payload_bytes: body.len(),
            send_time_ns: START,
        };
        let mut payload = vec![0; 40];
        assert_eq!(IexTp::write_header(&header, &mut payload), 40);
        payload.extend(body);
        payload
    };
    let options = LiveChannelOptions {
        application,
        publisher,
        ..channel(ArbiterOptions::default(), Some(SnapshotOptions::default()))
    };
    let mut live = LiveFeed::new(FeedOptions::default(), vec![options]);
    feed(&mut live, input(Line::A, 0, &packet(101, on_lines)));
    let Some(Request::Snapshot { attempt, .. }) = live.take_request() else { panic!("it joins") };
    let (received, messages) = (Nanos(START + MS), blocks(u16::to_be_bytes, in_snapshot));
    feed(&mut live, Input::Snapshot { channel: 0, attempt, received, messages: &messages });
    let (next, bytes) = (101 + on_lines.len() as u64, messages.len() as u64);
    feed(&mut live, Input::SnapshotEnd { channel: 0, attempt, received, next, bytes });
    let snapshots = live.channels()[0].snapshots();
    assert_eq!(snapshots.applied, u64::from(snapshots.last_fault.is_none()));
    snapshots.last_fault
}

#[test]
fn a_snapshot_that_lacks_a_price_level_of_the_lines_is_not_applied() {
    let level = |side: u8, price: i64, size: u32| {
        let time = (START as i64).to_le_bytes();
        [&[side, 1][..], &time, b"ZIEXT   ", &size.to_le_bytes(), &price.to_le_bytes()].concat()
    };
    let fault = |on_lines: &[Vec<u8>], in_snapshot: &[Vec<u8>]| {
        fault_at_iex(Application::IexDeep10, Publisher::IEXG_DEEP, on_lines, in_snapshot)
    };
    let lines = [
        level(b'8', 100_000, 300),
        level(b'5', 101_000, 200),
        level(b'8', 99_000, 100),
        level(b'8', 99_000, 0),
    ];
    let (bid, ask) = (lines[0].clone(), lines[1].clone());
    assert_eq!(fault(&lines, &[bid.clone(), ask.clone()]), None);
    assert_eq!(fault(&lines, std::slice::from_ref(&bid)), Some(SnapshotFault::Behind), "an ask is missing");
    let removed = level(b'8', 99_000, 100);
    assert_eq!(fault(&lines, &[bid.clone(), ask.clone(), removed]), Some(SnapshotFault::Behind));
    assert_eq!(fault(&lines, &[level(b'8', 100_000, 400), ask]), Some(SnapshotFault::Behind), "another size");
}

#[test]
fn a_snapshot_that_lacks_a_quote_of_the_lines_is_not_applied() {
    let quote = |bid: (u32, i64), ask: (u32, i64)| {
        let time = (START as i64).to_le_bytes();
        let bid = [&bid.0.to_le_bytes()[..], &bid.1.to_le_bytes()].concat();
        let ask = [&ask.1.to_le_bytes()[..], &ask.0.to_le_bytes()].concat();
        [&b"Q\0"[..], &time, b"ZIEXT   ", &bid, &ask].concat()
    };
    let fault = |in_snapshot: Vec<u8>| {
        let lines = [quote((100, 99_000), (100, 102_000)), quote((300, 100_000), (0, 0))];
        fault_at_iex(Application::IexTops16, Publisher::IEXG_TOPS, &lines, &[in_snapshot])
    };
    assert_eq!(fault(quote((300, 100_000), (0, 0))), None);
    assert_eq!(fault(quote((100, 99_000), (100, 102_000))), Some(SnapshotFault::Behind));
    assert_eq!(
        fault(quote((300, 100_000), (100, 102_000))),
        Some(SnapshotFault::Behind),
        "the side is empty"
    );
    assert_eq!(fault(quote((300, 100_100), (0, 0))), Some(SnapshotFault::Behind), "another price");
}
