//! Both ends of requests over TCP, separately and together.

use proptest::prelude::*;

use tapeworks_wire::nyse::packet::{HEADER_BYTES as PILLAR_HEADER_BYTES, PillarPacket};

use super::*;
use crate::dialect::connection::SECOND_NS;
use crate::dialect::requests::Statuses;
use crate::memx::{append_sequenced, begin as begin_by_memx, complete as complete_by_memx};
use crate::transport::{Request, SessionId};
use crate::units::tcp::HEARTBEAT as UNIT_HEARTBEAT;

const MS: u64 = SECOND_NS / 1_000;

fn login(protocol: RequestProtocol) -> RequestLogin {
    RequestLogin::new(protocol, &FIRM).unwrap()
}

const FIRM: LoginFields<'_> =
    LoginFields { sub_id: "0001", user: "FIRM", password: "ABCD00", source: "FIRM1", product: 3, channel: 7 };

fn session(protocol: RequestProtocol) -> SessionId {
    match protocol {
        RequestProtocol::Grp => SessionId::CboeUnit(2),
        RequestProtocol::Pillar => SessionId::Pillar,
        RequestProtocol::Mitch => SessionId::MitchUnit(b'A'),
        RequestProtocol::Memx => SessionId::Memoir(77),
    }
}

fn request(protocol: RequestProtocol, first: u64, count: u16) -> Request {
    Request { session: session(protocol), first, count }
}

fn server(protocol: RequestProtocol) -> RequestServer {
    RequestServer::new(protocol, Some(login(protocol)), ServerLimits::of(protocol), 0)
}

/// Returns a connected client and server, logged in.
fn connected(protocol: RequestProtocol) -> (Requester, RequestServer) {
    let (mut client, mut server) = (Requester::new(login(protocol)), server(protocol));
    client.connected(0);
    assert!(transfer(&mut client, &mut server, usize::MAX, 0, |_| RequestStatus::Accepted).is_empty());
    assert!(client.is_ready() && server.is_ready());
    (client, server)
}

/// Moves up to `most` bytes at a time both ways until none are left. Answers and returns the server's requests.
fn transfer(
    client: &mut Requester,
    server: &mut RequestServer,
    most: usize,
    now_ns: u64,
    mut status: impl FnMut(&Request) -> RequestStatus,
) -> Vec<Request> {
    let mut taken = Vec::new();
    loop {
        let to_server: Vec<u8> = client.output().iter().copied().take(most).collect();
        client.sent(to_server.len(), now_ns);
        server.receive(&to_server, now_ns);
        while let Some(request) = server.next_request() {
            server.answer(status(&request), now_ns);
            taken.push(request);
        }
        let to_client: Vec<u8> = server.output().iter().copied().take(most).collect();
        server.sent(to_client.len(), now_ns);
        client.receive(&to_client, now_ns);
        if to_server.is_empty() && to_client.is_empty() {
            return taken;
        }
    }
}

#[test]
fn a_client_of_london_and_one_of_memx_get_the_messages_over_the_connection() {
    for protocol in [RequestProtocol::Mitch, RequestProtocol::Memx] {
        assert!(!protocol.answers_to_group());
        let (mut client, mut server) = connected(protocol);
        let mut store = crate::Store::new(protocol.transport(), 1 << 20);
        store.begin_session(session(protocol));
        for number in 0..50_u8 {
            let mut stream = crate::Stream::new(session(protocol), 0);
            stream.put(&[&[40, 0x41][..], &[number; 38]].concat());
            let blocks = stream.blocks();
            let first = u64::from(number) + 1;
            store.keep(&crate::Made { first, count: 1, stream_offset: 0, blocks });
        }
        let wanted = request(protocol, 5, 40);
        client.request(&wanted, 0);
        server.receive(client.output(), 0);
        let length = client.output().len();
        client.sent(length, 0);
        assert_eq!(server.next_request(), Some(wanted));
        let mut asked = wanted;
        let mut packets = Vec::new();
        while asked.count > 0 {
            let mut packet = Vec::new();
            let count = store.answer_as(&asked, asked.session, 0, &mut packet).unwrap();
            (asked.first, asked.count) = (asked.first + u64::from(count), asked.count - count);
            packets.push(packet);
        }
        server.answer_with(RequestStatus::Accepted, &packets, 0);
        for piece in server.output().chunks(7) {
            client.receive(piece, 0);
        }
        let mut got = Vec::new();
        while let Some(packet) = client.take_answer() {
            assert!(packet.len() <= 1_430 && protocol.transport().is_sound(&packet));
            protocol.transport().each_message(&packet, |number, message| got.push((number, message[2])));
        }
        assert!(got.into_iter().eq((5..45_u8).map(|number| (u64::from(number), number - 1))));
        assert_eq!((client.counters().of(RequestStatus::Accepted), client.counters().unexpected), (1, 0));
        // A request for messages no longer kept is refused with the reason.
        client.request(&request(protocol, 4_000, 1), 0);
        server.receive(client.output(), 0);
        server.answer(RequestStatus::OutOfRange, 0);
        let sent = server.output().to_vec();
        client.receive(&sent, 0);
        assert_eq!(client.counters().of(RequestStatus::OutOfRange), 1);
    }
}

/// Builds the messages of a replay, one byte each.
fn sequenced(bytes: std::ops::Range<u8>) -> Vec<u8> {
    let mut messages = Vec::new();
    bytes.for_each(|byte| append_sequenced(&[byte], &mut messages));
    messages
}

/// Takes the numbers and bytes of the messages that a MEMX client has received.
fn answers_of(client: &mut Requester) -> Vec<(u64, u8)> {
    let mut got = Vec::new();
    while let Some(packet) = client.take_answer() {
        <crate::Memoir as crate::Transport>::KIND
            .each_message(&packet, |number, message| got.push((number, message[0])));
    }
    got
}

/// Regression: the messages of such a replay were discarded, and five of them closed the connection.
#[test]
fn a_client_of_memx_takes_a_replay_that_begins_later_than_it_requested() {
    let (mut client, _) = connected(RequestProtocol::Memx);
    client.request(&request(RequestProtocol::Memx, 5, 40), 0);
    client.receive(&[&begin_by_memx(15, 3)[..], &sequenced(1..4), &complete_by_memx(3)[..]].concat(), 0);
    assert_eq!(answers_of(&mut client), [(15, 1), (16, 2), (17, 3)]);
    assert_eq!((client.counters().of(RequestStatus::Accepted), client.counters().unexpected), (1, 0));
    // A replay of other messages does not answer this request, nor do the messages in it.
    client.request(&request(RequestProtocol::Memx, 50, 2), 0);
    for other in [49, 52] {
        client
            .receive(&[&begin_by_memx(other, 1)[..], &sequenced(0..1), &complete_by_memx(1)[..]].concat(), 0);
    }
    assert_eq!((client.counters().of(RequestStatus::Accepted), client.counters().unexpected), (1, 6));
    client.receive(&[&begin_by_memx(51, 2)[..], &sequenced(7..9), &complete_by_memx(2)[..]].concat(), 0);
    assert_eq!(answers_of(&mut client), [(51, 7)]);
    assert_eq!((client.counters().of(RequestStatus::Accepted), client.counters().unexpected), (2, 7));
}

#[test]
fn a_replay_of_memx_that_is_rejected_numbers_no_later_message() {
    let (mut client, mut server) = connected(RequestProtocol::Memx);
    client.request(&request(RequestProtocol::Memx, 5, 40), 0);
    server.receive(client.output(), 0);
    client.sent(client.output().len(), 0);
    client.receive(&[&begin_by_memx(5, 40)[..], &sequenced(1..3)].concat(), 0);
    server.answer(RequestStatus::OutOfRange, 0);
    client.receive(server.output(), 0);
    assert_eq!(client.counters().of(RequestStatus::OutOfRange), 1);
    assert_eq!(answers_of(&mut client), [(5, 1), (6, 2)]);
    client.request(&request(RequestProtocol::Memx, 7, 10), 0);
    client.receive(&[&sequenced(3..4)[..], &complete_by_memx(1)[..]].concat(), 0);
    assert_eq!((answers_of(&mut client), client.counters().unexpected), (vec![], 2));
    assert_eq!(client.counters().of(RequestStatus::Accepted), 0);
}

/// Regression: a slow replay was cut off after a second, and the start of its last packet was discarded.
#[test]
fn a_replay_of_memx_has_a_second_from_each_message_to_the_next() {
    let (mut client, _) = connected(RequestProtocol::Memx);
    client.request(&request(RequestProtocol::Memx, 5, 40), 0);
    client.receive(&begin_by_memx(5, 40), 900 * MS);
    for byte in 0..10 {
        let now_ns = (1_800 + 900 * u64::from(byte)) * MS;
        client.tick(now_ns - 1);
        client.sent(client.output().len(), now_ns);
        client.receive(&sequenced(byte..byte + 1), now_ns);
    }
    assert_eq!((client.counters().unanswered, client.counters().unexpected), (0, 0));
    client.tick(9_900 * MS + SECOND_NS);
    assert_eq!((client.counters().unanswered, client.over()), (1, None));
    assert!(answers_of(&mut client).into_iter().eq((0..10).map(|byte| (5 + u64::from(byte), byte))));
    // Messages that arrived before the disconnect are delivered too.
    client.request(&request(RequestProtocol::Memx, 15, 30), 11 * SECOND_NS);
    client.receive(&[&begin_by_memx(15, 30)[..], &sequenced(10..12)].concat(), 11 * SECOND_NS);
    client.disconnected(11 * SECOND_NS);
    assert_eq!(answers_of(&mut client), [(15, 10), (16, 11)]);
}

/// Messages that were not requested do not keep a request alive.
#[test]
fn a_replay_of_memx_does_not_go_on_behind_its_request() {
    let (mut client, _) = connected(RequestProtocol::Memx);
    client.request(&request(RequestProtocol::Memx, 5, 1), 0);
    client.receive(&[&begin_by_memx(5, 1)[..], &sequenced(0..1)].concat(), 0);
    client.receive(&sequenced(1..2), 900 * MS);
    client.tick(SECOND_NS);
    assert_eq!((client.counters().unanswered, client.counters().unexpected), (1, 1));
}

#[test]
fn a_packet_of_nyse_says_the_time_of_the_day_that_its_caller_gives() {
    const DAY_NS: u64 = 1_763_130_600 * SECOND_NS;
    let (mut client, mut server) = connected(RequestProtocol::Pillar);
    client.set_day_time(DayTime::new(DAY_NS, 100));
    server.set_day_time(DayTime::new(DAY_NS, 100));
    client.request(&request(RequestProtocol::Pillar, 5, 3), 107);
    let sent = |bytes: &[u8]| {
        let packet = PillarPacket::decode(bytes).unwrap();
        (packet.send_time().0, packet.send_time_nanoseconds().0)
    };
    let request = client.output().to_vec();
    assert_eq!(sent(&request), (1_763_130_600, 7));
    server.receive(&request, 108);
    server.answer(RequestStatus::Accepted, 109);
    assert_eq!(sent(server.output()), (1_763_130_600, 9));
}

/// Without a login there is no state in which a request is ignored.
#[test]
fn a_request_to_nyse_is_taken_behind_a_message_that_ends_the_connection() {
    let (mut client, mut server) = connected(RequestProtocol::Pillar);
    let wanted = request(RequestProtocol::Pillar, 5, 3);
    client.request(&wanted, 0);
    let (header, message) = client.output().split_at(PILLAR_HEADER_BYTES);
    let mut packet = [header, &[4, 0, 99, 0], message].concat();
    (packet[0], packet[3]) = (packet.len() as u8, 2);
    server.receive(&packet, 0);
    assert_eq!((server.over(), server.next_request()), (Some(RequestServerEnd::Malformed), Some(wanted)));
}

#[test]
fn a_client_of_cboe_logs_in_and_requests_in_units_without_a_number() {
    let mut client = Requester::new(login(RequestProtocol::Grp));
    client.connected(0);
    let bytes = client.output().to_vec();
    assert_eq!(bytes, *b"\x1e\0\x01\0\0\0\0\0\x16\x010001FIRM  ABCD00    ");
    client.sent(bytes.len(), 0);
    client.request(&request(RequestProtocol::Grp, 4_155, 50), 0);
    assert!(client.output().is_empty(), "not before the login is accepted");
    client.receive(b"\x0b\0\x01\0\0\0\0\0\x03\x02A", MS);
    assert_eq!(client.output(), b"\x11\0\x01\0\0\0\0\0\x09\x03\x02\x3b\x10\0\0\x32\0");
    client.sent(17, MS);
    client.receive(b"\x12\0\x01\0\0\0\0\0\x0a\x04\x02\x3b\x10\0\0\x32\0O", MS);
    assert_eq!(client.counters().of(RequestStatus::OutOfRange), 1);
    assert_eq!((client.counters().sent, client.counters().refused()), (1, 1));
}

#[test]
fn a_client_of_nyse_needs_no_login_and_answers_heartbeats() {
    let (mut client, mut server) = connected(RequestProtocol::Pillar);
    server.tick(60 * SECOND_NS);
    assert_eq!(server.output().len(), PILLAR_HEADER_BYTES, "a heartbeat");
    transfer(&mut client, &mut server, usize::MAX, 61 * SECOND_NS, |_| RequestStatus::Accepted);
    server.tick(66 * SECOND_NS);
    assert_eq!(server.over(), None, "it was answered");
    server.tick(121 * SECOND_NS);
    assert!(!server.output().is_empty());
    server.tick(126 * SECOND_NS);
    assert_eq!(server.over(), Some(RequestServerEnd::TimedOut), "it was not");
}

#[test]
fn a_long_range_is_requested_in_pieces_one_after_the_other() {
    for protocol in RequestProtocol::ALL {
        let (mut client, mut server) = connected(protocol);
        let most = protocol.most_messages();
        client.request(&request(protocol, 10, 2 * most + 5), 0);
        let taken = transfer(&mut client, &mut server, usize::MAX, MS, |_| RequestStatus::Accepted);
        let wanted = [(10, most), (10 + u64::from(most), most), (10 + 2 * u64::from(most), 5)];
        assert_eq!(taken, wanted.map(|(first, count)| request(protocol, first, count)));
        assert_eq!((client.counters().sent, client.counters().of(RequestStatus::Accepted)), (3, 3));
    }
}

#[test]
fn a_range_that_is_on_its_way_is_not_requested_again() {
    for protocol in RequestProtocol::ALL {
        let (mut client, _) = connected(protocol);
        client.request(&request(protocol, 10, 20), 0);
        client.request(&request(protocol, 100, 20), 0);
        client.request(&request(protocol, 12, 5), 0);
        client.request(&request(protocol, 100, 20), 0);
        assert_eq!((client.counters().merged, client.counters().sent, client.waiting()), (2, 1, 1));
        // A range that includes a waiting one replaces it.
        client.request(&request(protocol, 95, 40), 0);
        assert_eq!(client.waiting(), 1);
        let bad = Request { session: SessionId::CtaBlock(1), first: 1, count: 1 };
        client.request(&bad, 0);
        let last = if protocol == RequestProtocol::Memx { u64::MAX } else { u64::from(u32::MAX) };
        client.request(&request(protocol, last, 1), 0);
        client.request(&request(protocol, 5, 0), 0);
        assert_eq!(client.counters().dropped, 3);
    }
}

#[test]
fn a_refusal_of_a_quota_stops_the_requests_for_its_time() {
    let protocol = RequestProtocol::Grp;
    let (mut client, mut server) = connected(protocol);
    client.request(&request(protocol, 10, 20), 0);
    client.request(&request(protocol, 100, 20), 0);
    let taken = transfer(&mut client, &mut server, usize::MAX, 0, |_| RequestStatus::MinuteQuota);
    assert_eq!((taken.len(), client.waiting()), (1, 0));
    client.request(&request(protocol, 200, 20), 59 * SECOND_NS);
    assert_eq!((client.counters().sent, client.counters().dropped), (1, 2));
    client.receive(&UNIT_HEARTBEAT, 60 * SECOND_NS);
    client.request(&request(protocol, 200, 20), 60 * SECOND_NS);
    assert_eq!(client.counters().sent, 2);
}

#[test]
fn a_server_refuses_what_is_too_much_or_of_others() {
    for protocol in RequestProtocol::ALL {
        let limits = ServerLimits { messages: 10, per_second: 3, per_minute: 4, per_day: 5 };
        let mut server = RequestServer::new(protocol, None, limits, 0);
        let mut client = Requester::new(login(protocol));
        client.connected(0);
        let mut ask = |client: &mut Requester, count, now_ns| {
            client.request(&request(protocol, 10, count), now_ns);
            transfer(client, &mut server, usize::MAX, now_ns, |_| RequestStatus::Accepted).len()
        };
        assert_eq!(ask(&mut client, 11, 0), 0);
        let too_long = match protocol {
            RequestProtocol::Grp | RequestProtocol::Pillar => RequestStatus::TooLong,
            RequestProtocol::Mitch => RequestStatus::Unknown,
            RequestProtocol::Memx => RequestStatus::OutOfRange,
        };
        assert_eq!(client.counters().of(too_long), 1);
        assert_eq!((ask(&mut client, 10, 1), ask(&mut client, 10, 2), ask(&mut client, 10, 3)), (1, 1, 0));
        // NYSE has one status for all quotas.
        let quota = match protocol {
            RequestProtocol::Grp | RequestProtocol::Mitch => RequestStatus::SecondQuota,
            RequestProtocol::Pillar => RequestStatus::DayQuota,
            RequestProtocol::Memx => RequestStatus::InvalidMessage,
        };
        assert_eq!(client.counters().of(quota), 1);
    }
    let protocol = RequestProtocol::Pillar;
    for (other, status) in [
        (LoginFields { source: "OTHER", ..FIRM }, RequestStatus::InvalidSource),
        (LoginFields { product: 4, ..FIRM }, RequestStatus::InvalidProduct),
        (LoginFields { channel: 8, ..FIRM }, RequestStatus::InvalidChannel),
    ] {
        let login = RequestLogin::new(protocol, &other).unwrap();
        let (mut client, mut server) = (Requester::new(login), server(protocol));
        client.connected(0);
        client.request(&request(protocol, 10, 20), 0);
        assert!(transfer(&mut client, &mut server, 7, 0, |_| RequestStatus::Accepted).is_empty());
        assert_eq!(client.counters().of(status), 1);
    }
}

#[test]
fn a_login_that_is_refused_is_tried_again_after_the_longest_wait() {
    let (mut client, mut server) = (
        Requester::new(
            RequestLogin::new(RequestProtocol::Grp, &LoginFields { password: "WRONG", ..FIRM }).unwrap(),
        ),
        server(RequestProtocol::Grp),
    );
    client.connected(0);
    client.request(&request(RequestProtocol::Grp, 1, 1), 0);
    assert!(transfer(&mut client, &mut server, 5, 0, |_| RequestStatus::Accepted).is_empty());
    assert_eq!(
        (client.over(), server.over()),
        (Some(RequesterEnd::Refused), Some(RequestServerEnd::Refused))
    );
    client.disconnected(SECOND_NS);
    assert!(!client.wants(11 * SECOND_NS - 1) && client.wants(11 * SECOND_NS));
    assert_eq!((client.counters().logins_refused, client.counters().connections), (1, 0));
}

#[test]
fn a_connection_that_cannot_be_made_is_tried_less_and_less_often() {
    let mut client = Requester::new(login(RequestProtocol::Grp));
    let mut now_ns = 0;
    let mut waits = Vec::new();
    for _ in 0..9 {
        assert!(client.wants(now_ns) && client.deadline_ns() <= now_ns);
        client.disconnected(now_ns);
        assert!(!client.wants(now_ns));
        waits.push((client.deadline_ns() - now_ns) / MS);
        now_ns = client.deadline_ns();
    }
    assert_eq!(waits, [100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000]);
    let mut server = server(RequestProtocol::Grp);
    client.connected(now_ns);
    transfer(&mut client, &mut server, usize::MAX, now_ns, |_| RequestStatus::Accepted);
    client.closed();
    assert_eq!(client.over(), Some(RequesterEnd::Closed));
    client.disconnected(now_ns);
    assert_eq!(client.deadline_ns() - now_ns, 100 * MS, "a login that was accepted ends the waits");
}

#[test]
fn a_side_that_is_gone_is_given_up() {
    let (mut client, mut server) = connected(RequestProtocol::Grp);
    client.tick(SECOND_NS);
    assert_eq!(client.output(), UNIT_HEARTBEAT);
    server.tick(SECOND_NS);
    assert_eq!(server.output(), UNIT_HEARTBEAT);
    server.tick(5 * SECOND_NS);
    assert_eq!(server.over(), Some(RequestServerEnd::TimedOut));
    client.sent(8, SECOND_NS);
    assert_eq!(client.deadline_ns(), 2 * SECOND_NS);
    client.tick(5 * SECOND_NS);
    assert_eq!(client.over(), Some(RequesterEnd::Silent));

    let mut client = Requester::new(login(RequestProtocol::Grp));
    client.connected(0);
    client.tick(5 * SECOND_NS);
    assert_eq!(client.over(), Some(RequesterEnd::NoAnswer), "the login");

    // Five requests without a response.
    let (mut client, _) = connected(RequestProtocol::Pillar);
    for number in 0..5 {
        let now_ns = number * SECOND_NS;
        assert_eq!(client.over(), None);
        client.request(&request(RequestProtocol::Pillar, 10 + number, 1), now_ns);
        client.sent(client.output().len(), now_ns);
        assert_eq!(client.deadline_ns(), now_ns + SECOND_NS);
        client.tick(now_ns + SECOND_NS);
    }
    assert_eq!((client.over(), client.counters().unanswered), (Some(RequesterEnd::NoAnswer), 5));
}

#[test]
fn a_client_without_a_login_is_closed() {
    let mut fresh = server(RequestProtocol::Grp);
    fresh.receive(&UNIT_HEARTBEAT, 9 * SECOND_NS);
    fresh.tick(10 * SECOND_NS);
    assert_eq!(fresh.over(), Some(RequestServerEnd::TimedOut), "whatever else it sends");
    let mut fresh = server(RequestProtocol::Grp);
    fresh.receive(b"\x11\0\x01\0\0\0\0\0\x09\x03\x02\x3b\x10\0\0\x32\0", 0);
    assert_eq!((fresh.over(), fresh.next_request()), (Some(RequestServerEnd::Malformed), None));
}

#[test]
fn a_range_that_has_waited_too_long_is_dropped() {
    let mut client = Requester::new(login(RequestProtocol::Grp));
    client.request(&request(RequestProtocol::Grp, 1, 10), 0);
    client.request(&request(RequestProtocol::Grp, 50, 10), SECOND_NS);
    let mut server = server(RequestProtocol::Grp);
    client.connected(2 * SECOND_NS);
    let taken = transfer(&mut client, &mut server, usize::MAX, 2 * SECOND_NS, |_| RequestStatus::Accepted);
    assert_eq!(taken, [request(RequestProtocol::Grp, 50, 10)]);
    assert_eq!(client.counters().dropped, 1);
}

/// Returns the status as read after it was written.
fn nearest<T: Copy + PartialEq>(statuses: &Statuses<T>, status: RequestStatus) -> RequestStatus {
    let nearest = statuses.ours(statuses.theirs(status));
    assert_eq!(statuses.ours(statuses.theirs(nearest)), nearest);
    nearest
}

#[test]
fn every_status_is_read_as_it_was_written_or_as_the_nearest() {
    for status in RequestStatus::ALL {
        let of_those_that_accept = [
            nearest(&crate::cboe::STATUSES, status),
            nearest(&crate::nyse::STATUSES, status),
            nearest(&crate::lse::STATUSES, status),
        ];
        for nearest in of_those_that_accept {
            assert_eq!(nearest == RequestStatus::Accepted, status == RequestStatus::Accepted);
        }
        // MEMX accepts with other messages, not with a code.
        assert!(nearest(&crate::memx::STATUSES, status) != RequestStatus::Accepted);
        assert_eq!(RequestStatus::ALL[status as usize], status);
    }
}

fn protocols() -> impl Strategy<Value = RequestProtocol> {
    prop::sample::select(RequestProtocol::ALL.to_vec())
}

proptest! {
    #[test]
    fn the_cuts_of_the_bytes_change_nothing(
        protocol in protocols(),
        most in 1usize..60,
        ranges in prop::collection::vec((1u64..5_000, 1u16..2_500), 1..12),
        refused in 0u64..5,
    ) {
        let run = |most| {
            let (mut client, mut server) = (Requester::new(login(protocol)), server(protocol));
            client.connected(0);
            for (first, count) in &ranges {
                client.request(&request(protocol, *first, *count), 0);
            }
            let status = |request: &Request| {
                if request.first % 5 < refused { RequestStatus::OutOfRange } else { RequestStatus::Accepted }
            };
            let taken = transfer(&mut client, &mut server, most, 0, status);
            (taken, *client.counters(), client.waiting(), client.over(), server.over())
        };
        let whole = run(usize::MAX);
        prop_assert_eq!(&run(most), &whole);
        let (taken, counters, ..) = whole;
        prop_assert!(taken.iter().all(|one| (1..=protocol.most_messages()).contains(&one.count)));
        prop_assert_eq!(counters.sent, taken.len() as u64);
        // Every wanted number was requested.
        for (first, count) in &ranges {
            let wanted = *first..*first + u64::from(*count);
            let is_requested = |number: u64| taken.iter().any(|one| {
                (one.first..one.first + u64::from(one.count)).contains(&number)
            });
            // Unless the limit per second was reached.
            prop_assert!(counters.sent >= 100 || wanted.clone().all(is_requested));
        }
    }

    #[test]
    fn no_bytes_break_either_end(
        protocol in protocols(),
        pieces in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..80), 0u64..3_000), 0..40),
    ) {
        let (mut client, mut server) = connected(protocol);
        let mut now_ns = 0;
        for (bytes, later) in pieces {
            now_ns += later * MS;
            client.request(&request(protocol, 1 + later, 1 + later as u16), now_ns);
            client.receive(&bytes, now_ns);
            server.receive(&bytes, now_ns);
            while server.next_request().is_some() {
                server.answer(RequestStatus::Accepted, now_ns);
            }
            client.tick(now_ns);
            server.tick(now_ns);
            prop_assert!(client.output().len() < 8_192 && client.waiting() <= 1_024);
            prop_assert!(server.output().len() < 80 << 10);
            let is_later = client.deadline_ns() > now_ns;
            prop_assert!(is_later || client.over().is_some(), "{client:?}");
        }
    }
}
