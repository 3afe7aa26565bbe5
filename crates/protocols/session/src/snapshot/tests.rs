//! Each end separately, and both together.

use std::sync::Arc;

use proptest::prelude::*;
use tapeworks_wire::cboe::pitch::AddOrderShort;
use tapeworks_wire::millennium::mitch;
use tapeworks_wire::nasdaq::glimpse50;
use tapeworks_wire::nasdaq::soupbintcp::{LoginRequestFields, Message, Packets};
use tapeworks_wire::{Ascii, AsciiNumber};

use super::*;
use crate::dialect::connection::SECOND_NS;
use crate::dialect::requests::{LoginFields, RequestLogin};
use crate::login::{Credentials, LOGIN_TIMEOUT_NS, STALL_TIMEOUT_NS};
use crate::protocols::RequestProtocol;
use crate::transport::SessionId;
use crate::units::tcp::HEARTBEAT as UNIT_HEARTBEAT;

fn image() -> Arc<Image> {
    let session = SessionId::MoldUdp64(*b"AA00000007");
    let mut image = Image::new(session, 1_234);
    image.put(b"first", |_| {});
    image.put(b"second", |bytes| bytes[0] = b'S');
    image.finish();
    Arc::new(image)
}

/// Builds a login. A blank session requests the running one.
fn login(user: &[u8; 6], session: &[u8; 10]) -> Vec<u8> {
    let fields = LoginRequestFields {
        packet_length: 47,
        username: Ascii(*user),
        password: Ascii(*b"secret    "),
        requested_session: Ascii(*session),
        requested_sequence_number: AsciiNumber::new(1).unwrap(),
    };
    fields.encode().to_vec()
}

/// Takes all output, a few bytes at a time.
fn take(server: &mut SnapshotServer, now_ns: u64) -> Vec<u8> {
    let mut all = Vec::new();
    while !server.output().is_empty() {
        let some = server.output().len().min(7);
        all.extend_from_slice(&server.output()[..some]);
        server.sent(some, now_ns);
    }
    all
}

#[test]
fn a_client_gets_the_messages_and_the_number_to_go_on_from() {
    let mut server = SnapshotServer::new(SnapshotProtocol::Glimpse, None, 0);
    for byte in login(b"anyone", b"          ") {
        assert!(!server.wants_image());
        server.receive(&[byte], 1);
    }
    assert!(server.wants_image());
    server.give(image(), 2);
    let stream = take(&mut server, 3);
    let packets: Vec<&[u8]> = Packets::new(&stream).map(Result::unwrap).collect();
    let Message::LoginAccepted(accepted) = Message::decode(packets[0]).unwrap() else { panic!() };
    assert_eq!(
        (accepted.session(), accepted.sequence_number().value()),
        (image().session.login_name(), Some(1))
    );
    assert_eq!(packets[1], b"\x00\x06Sfirst");
    assert_eq!(packets[2], b"\x00\x07SSecond");
    let glimpse50::Message::EndOfSnapshot(end) = glimpse50::Message::decode(&packets[3][3..]).unwrap();
    assert_eq!(end.sequence_number().value(), Some(1_234));
    assert_eq!(packets[4..], [b"\x00\x01Z"]);
    assert_eq!(server.over(), Some(SnapshotEnd::Served));
}

#[test]
fn a_long_packet_for_glimpse_is_read_if_it_arrives_in_one_piece() {
    let debug = [&[1, 44, b'+'][..], &[b'x'; 299]].concat();
    for (piece, end) in [(debug.len(), None), (debug.len() - 1, Some(SnapshotEnd::Malformed))] {
        let mut server = SnapshotServer::new(SnapshotProtocol::Glimpse, None, 0);
        debug.chunks(piece).for_each(|piece| server.receive(piece, 0));
        assert_eq!(server.over(), end, "{piece}");
    }
}

#[test]
fn a_client_of_glimpse_that_was_rejected_may_not_log_in_again() {
    let wanted = Credentials { user: "ME".to_owned(), password: "secret".to_owned() };
    let mut server = SnapshotServer::new(SnapshotProtocol::Glimpse, Some(wanted), 0);
    for end in [None, Some(SnapshotEnd::Malformed)] {
        server.receive(&login(b"others", b"          "), 0);
        assert_eq!(server.over(), end);
    }
}

#[test]
fn a_wrong_session_and_a_wrong_login_are_rejected() {
    let mut server = SnapshotServer::new(SnapshotProtocol::Glimpse, None, 0);
    server.receive(&login(b"anyone", b"AA00000006"), 1);
    server.give(image(), 2);
    assert_eq!(take(&mut server, 3), b"\x00\x02JS");
    assert_eq!(server.over(), Some(SnapshotEnd::Rejected));

    let wanted = Credentials { user: "me".to_owned(), password: "secret".to_owned() };
    let mut server = SnapshotServer::new(SnapshotProtocol::Glimpse, Some(wanted.clone()), 0);
    server.receive(&login(b"you   ", b"          "), 1);
    assert_eq!(take(&mut server, 3), b"\x00\x02JA");
    let mut server = SnapshotServer::new(SnapshotProtocol::Glimpse, Some(wanted), 0);
    server.receive(&login(b"me    ", b"AA00000007"), 1);
    server.give(image(), 2);
    assert!(take(&mut server, 3).len() > 33);
}

#[test]
fn an_idle_client_is_logged_out() {
    let mut server = SnapshotServer::new(SnapshotProtocol::Glimpse, None, 0);
    server.tick(LOGIN_TIMEOUT_NS - 1);
    assert_eq!(server.over(), None);
    server.tick(LOGIN_TIMEOUT_NS);
    assert_eq!(server.over(), Some(SnapshotEnd::TimedOut));

    let mut server = SnapshotServer::new(SnapshotProtocol::Glimpse, None, 0);
    server.receive(&login(b"anyone", b"          "), 0);
    server.tick(SECOND_NS);
    assert_eq!(take(&mut server, SECOND_NS), b"\x00\x01H", "a heartbeat while it waits");
    server.give(image(), SECOND_NS);
    server.sent(5, 2 * SECOND_NS);
    server.tick(2 * SECOND_NS + STALL_TIMEOUT_NS);
    assert_eq!(server.over(), Some(SnapshotEnd::TimedOut));
}

const UNIT: SessionId = SessionId::CboeUnit(3);

/// Builds a PITCH add order with this number.
fn order(number: u64) -> Vec<u8> {
    let mut message = vec![0; 26];
    (message[0], message[1]) = (26, AddOrderShort::TAG);
    message[6..14].copy_from_slice(&number.to_le_bytes());
    message
}

const TIME: [u8; 6] = [6, 0x20, 1, 2, 3, 4];

/// Builds a spin with a time message and this many orders.
fn spin(orders: u64) -> Arc<Image> {
    let mut image = Image::new(UNIT, 1_234);
    image.put(&TIME, |_| {});
    (0..orders).for_each(|number| image.put(&order(number), |_| {}));
    image.finish();
    Arc::new(image)
}

fn credentials() -> Credentials {
    Credentials { user: "me".to_owned(), password: "secret".to_owned() }
}

fn known() -> SnapshotLogin {
    SnapshotLogin { sub_id: "0001".to_owned(), user: "me".to_owned(), password: "secret".to_owned() }
}

/// Returns the messages and the end that a client fetches from a server, moving `piece` bytes at a time.
fn fetched(
    server: &mut SnapshotServer,
    login: &SnapshotLogin,
    image: &Arc<Image>,
    piece: usize,
) -> (Vec<Vec<u8>>, Result<Option<u64>, SnapshotFailure>) {
    let mut client = SnapshotClient::new(login, &image.session);
    let mut messages = Vec::new();
    let mut quiet = 0;
    while quiet < 2 {
        quiet += 1;
        for bytes in client.take_output().chunks(piece) {
            server.receive(bytes, 1);
            quiet = 0;
        }
        server.give(Arc::clone(image), 2);
        let bytes: Vec<u8> = server.output().iter().copied().take(piece).collect();
        if !bytes.is_empty() {
            server.sent(bytes.len(), 3);
            client.receive(&bytes);
            quiet = 0;
        }
        loop {
            match client.fetch() {
                Ok(None) => break,
                Ok(Some(Fetched::Message(message))) => messages.push(message.to_vec()),
                Ok(Some(Fetched::End { next })) => return (messages, Ok(Some(next))),
                Err(failure) => return (messages, Err(failure)),
            }
        }
    }
    (messages, Ok(None))
}

#[test]
fn a_client_requests_the_spin_that_it_is_offered_and_gets_its_orders() {
    for orders in [0, 1, 53, 1_000] {
        let mut server = SnapshotServer::new(SnapshotProtocol::Spin, Some(credentials()), 0);
        let (messages, end) = fetched(&mut server, &known(), &spin(orders), 5);
        assert_eq!((end, server.over()), (Ok(Some(1_234)), Some(SnapshotEnd::Served)));
        assert_eq!((messages[0].as_slice(), messages.len() as u64), (&TIME[..], 1 + orders));
        let all = messages[1..].iter().zip(0..).all(|(message, number)| *message == order(number));
        assert!(all);
        assert_eq!(server.image_messages(), 1 + orders);
    }
}

#[test]
fn a_spin_is_offered_each_second_until_it_is_requested_and_no_other_one_is_sent() {
    let mut server = SnapshotServer::new(SnapshotProtocol::Spin, None, 0);
    let mut client = SnapshotClient::new(&known(), &UNIT);
    server.receive(&client.take_output(), 0);
    assert_eq!(take(&mut server, 0), b"\x0b\0\x01\0\0\0\0\0\x03\x02A");
    server.tick(SECOND_NS);
    assert_eq!(take(&mut server, 0), UNIT_HEARTBEAT, "a heartbeat before there is an image");
    server.give(spin(2), SECOND_NS);
    let offer = *b"\x0e\0\x01\0\0\0\0\0\x06\x80\xd1\x04\0\0";
    assert_eq!(take(&mut server, SECOND_NS), offer);
    server.tick(2 * SECOND_NS);
    assert_eq!(take(&mut server, 2 * SECOND_NS), offer);
    server.receive(b"\x0e\0\x01\0\0\0\0\0\x06\x81\xd0\x04\0\0", 3 * SECOND_NS);
    assert_eq!(take(&mut server, 0), b"\x13\0\x01\0\0\0\0\0\x0b\x82\xd0\x04\0\0\0\0\0\0O");
    server.receive(client.heartbeat(), 6 * SECOND_NS);
    server.tick(7 * SECOND_NS);
    assert_eq!(server.over(), None, "its heartbeat was heard");
    server.tick(11 * SECOND_NS);
    assert_eq!(server.over(), Some(SnapshotEnd::TimedOut));
    // A client that sends heartbeats but reads nothing does not fill the memory.
    let mut server = SnapshotServer::new(SnapshotProtocol::Spin, None, 0);
    server.receive(&SnapshotClient::new(&known(), &UNIT).take_output(), 0);
    server.give(spin(2), 0);
    for second in 1..100 {
        server.receive(&UNIT_HEARTBEAT, second * SECOND_NS);
        server.tick(second * SECOND_NS);
    }
    assert_eq!(server.over(), Some(SnapshotEnd::TimedOut));
}

#[test]
fn a_client_names_why_no_snapshot_comes() {
    let mut server = SnapshotServer::new(SnapshotProtocol::Spin, Some(credentials()), 0);
    let stranger = SnapshotLogin { password: "guess".to_owned(), ..known() };
    assert_eq!(fetched(&mut server, &stranger, &spin(1), 9).1, Err(SnapshotFailure::LoginRejected));
    assert_eq!(server.over(), Some(SnapshotEnd::Rejected));
    let mut server = SnapshotServer::new(SnapshotProtocol::Glimpse, Some(credentials()), 0);
    assert_eq!(fetched(&mut server, &stranger, &image(), 9).1, Err(SnapshotFailure::LoginRejected));

    let accepted = b"\x0b\0\x01\0\0\0\0\0\x03\x02A".as_slice();
    let offer = b"\x0e\0\x01\0\0\0\0\0\x06\x80\xd1\x04\0\0";
    let response = |status: u8, orders: u8| {
        [b"\x13\0\x01\0\0\0\0\0\x0b\x82\xd1\x04\0\0".as_slice(), &[orders, 0, 0, 0, status]].concat()
    };
    let finished = |last: u8| [b"\x0e\0\x01\0\0\0\0\0\x06\x83".as_slice(), &[last, 4, 0, 0]].concat();
    let one = [&[34, 0, 1, 0, 0, 0, 0, 0], order(1).as_slice()].concat();
    let after = |parts: &[&[u8]]| {
        let mut client = SnapshotClient::new(&known(), &UNIT);
        let mut last = Ok(None);
        for part in [&[accepted, offer], parts].concat() {
            client.receive(part);
            while let Some(fetched) = client.fetch()? {
                last = Ok(match fetched {
                    Fetched::End { next } => Some(next),
                    Fetched::Message(_) => None,
                });
            }
        }
        last
    };
    assert_eq!(after(&[&response(b'A', 1), &one, &finished(0xd1)]), Ok(Some(1_234)));
    assert_eq!(after(&[&response(b'O', 0)]), Err(SnapshotFailure::SpinRefused));
    assert_eq!(after(&[&response(b'S', 0)]), Err(SnapshotFailure::SpinRefused));
    assert_eq!(after(&[&response(b'A', 2), &one, &finished(0xd1)]), Err(SnapshotFailure::Torn));
    assert_eq!(after(&[&response(b'A', 0), &one]), Err(SnapshotFailure::Torn));
    assert_eq!(after(&[&response(b'A', 1), &one, &finished(0xd0)]), Err(SnapshotFailure::Torn));
    assert_eq!(after(&[&one]), Err(SnapshotFailure::Malformed), "before the response");
    assert_eq!(after(&[b"\x07\0\0\0\0\0\0\0"]), Err(SnapshotFailure::Malformed), "shorter than its header");
    assert_eq!(
        after(&[b"\x0b\0\x01\0\0\0\0\0\x04\x83\0"]),
        Err(SnapshotFailure::Malformed),
        "longer than its unit"
    );
    let mut client = SnapshotClient::new(&known(), &image().session);
    client.receive(b"\0\x01Z");
    assert_eq!(client.fetch(), Err(SnapshotFailure::Ended));
}

const MITCH: SessionId = SessionId::MitchUnit(b'A');
const MEMX: SessionId = SessionId::Memoir(77);

/// Builds a snapshot of these messages; the next live message has the number 1,234.
fn own(session: SessionId, messages: &[Vec<u8>]) -> Arc<Image> {
    let mut image = Image::new(session, 1_234);
    messages.iter().for_each(|message| image.put(message, |_| {}));
    image.finish();
    Arc::new(image)
}

/// Builds MITCH order additions and a message of another type. For MEMX any bytes will do.
fn messages_of(orders: u8) -> Vec<Vec<u8>> {
    let message = |kind: u8, number: u8| [&[44, kind][..], &[number; 42]].concat();
    (0..orders).map(|number| message(mitch::AddOrder::TAG, number)).chain([message(0x48, 9)]).collect()
}

#[test]
fn a_client_of_london_and_one_of_memx_get_the_snapshot_that_they_request() {
    for (session, protocol) in [(MITCH, SnapshotProtocol::Mitch), (MEMX, SnapshotProtocol::Memx)] {
        for orders in [0, 1, 100] {
            let messages = messages_of(orders);
            let mut server = SnapshotServer::new(protocol, Some(credentials()), 0);
            let got = fetched(&mut server, &known(), &own(session, &messages), 7);
            assert_eq!(got, (messages, Ok(Some(1_234))));
            take(&mut server, 4);
            assert_eq!(
                (server.over(), server.image_messages()),
                (Some(SnapshotEnd::Served), 1 + u64::from(orders))
            );
        }
        let mut server = SnapshotServer::new(protocol, Some(credentials()), 0);
        let stranger = SnapshotLogin { password: "guess".to_owned(), ..known() };
        let got = fetched(&mut server, &stranger, &own(session, &[]), 9).1;
        assert_eq!((got, server.over()), (Err(SnapshotFailure::LoginRejected), Some(SnapshotEnd::Rejected)));
        // A client that logs in and does nothing more is disconnected.
        let mut server = SnapshotServer::new(protocol, None, 0);
        let mut client = SnapshotClient::new(&known(), &session);
        server.receive(&client.take_output(), 0);
        server.give(own(session, &[]), 0);
        (1..20).for_each(|second| server.tick(second * SECOND_NS));
        assert_eq!(server.over(), Some(SnapshotEnd::TimedOut));
    }
}

/// Regression: requests to the same venue accepted these credentials in full, but its snapshot login did not.
#[test]
fn a_login_of_memx_has_the_characters_that_its_requests_have() {
    let (user, password) = ("SIXTEENCHARACTER", "a password of thirty-two letters");
    let fields = LoginFields { user, password, ..LoginFields::default() };
    assert!(RequestLogin::new(RequestProtocol::Memx, &fields).is_some());
    let (user, password) = (user.to_owned(), password.to_owned());
    let known = Credentials { user: user.clone(), password: password.clone() };
    let mut server = SnapshotServer::new(SnapshotProtocol::Memx, Some(known), 0);
    let login = SnapshotLogin { sub_id: String::new(), user, password };
    server.receive(&SnapshotClient::new(&login, &MEMX).take_output(), 0);
    assert!(server.wants_image(), "{server:?}");
}

#[test]
fn a_snapshot_of_memx_is_of_the_session_that_the_client_follows() {
    let mut server = SnapshotServer::new(SnapshotProtocol::Memx, None, 0);
    let mut client = SnapshotClient::new(&known(), &MEMX);
    server.receive(&client.take_output(), 0);
    server.give(own(SessionId::Memoir(78), &[]), 0);
    client.receive(server.output());
    assert_eq!(client.fetch(), Err(SnapshotFailure::OtherSession));
    // A request for another session is refused.
    server.receive(b"\x66\0\x08\0\0\0\0\0\0\0\x01", 0);
    let sent = take(&mut server, 0);
    assert_eq!(sent[sent.len() - 4..], *b"\x06\0\x01P");
    assert_eq!(server.over(), Some(SnapshotEnd::Rejected));
}

#[test]
fn a_snapshot_whose_end_does_not_fit_its_beginning_is_torn() {
    let cut = |session: SessionId, from: &[u8], to: &[u8]| {
        let mut server = SnapshotServer::new(SnapshotProtocol::of(session.transport()), None, 0);
        let mut client = SnapshotClient::new(&known(), &session);
        let mut bytes = Vec::new();
        for _ in 0..3 {
            server.receive(&client.take_output(), 0);
            server.give(own(session, &messages_of(2)), 0);
            let some = take(&mut server, 0);
            bytes.extend_from_slice(&some);
            client.receive(&some);
            while let Ok(Some(_)) = client.fetch() {}
        }
        let at = bytes.windows(from.len()).rposition(|window| window == from).unwrap();
        bytes.splice(at..at + from.len(), to.iter().copied());
        let mut client = SnapshotClient::new(&known(), &session);
        client.receive(&bytes);
        loop {
            match client.fetch() {
                Ok(Some(Fetched::Message(_))) => {}
                Ok(Some(Fetched::End { next })) => return Ok(next),
                Ok(None) => panic!("more should come"),
                Err(failure) => return Err(failure),
            }
        }
    };
    assert_eq!(cut(MITCH, b"\x18\x83\xd1\x04", b"\x18\x83\xd1\x04"), Ok(1_234));
    assert_eq!(cut(MITCH, b"\x18\x83\xd1\x04", b"\x18\x83\xd0\x04"), Err(SnapshotFailure::Torn));
    assert_eq!(cut(MITCH, b"\x82\xd1\x04\0\0\x02", b"\x82\xd1\x04\0\0\x03"), Err(SnapshotFailure::Torn));
    assert_eq!(cut(MITCH, b"\x82\xd1\x04\0\0\x02", b"\x82\xd1\x04\0\0\x01"), Err(SnapshotFailure::Torn));
    // The end of one instrument's snapshot is not the end of the group's.
    let of_one = b"\x18\x83\xd1\x04\0\0      \x07";
    assert_eq!(cut(MITCH, &[&of_one[..12], &[0]].concat(), of_one), Err(SnapshotFailure::Torn));
    let begin = b"\0\x0c\0\0\0\0\0\0\0\x01\0\0\0\x04";
    assert_eq!(cut(MEMX, begin, begin), Ok(1_234));
    for count in [3, 5] {
        let other = [&begin[..begin.len() - 1], &[count]].concat();
        assert_eq!(cut(MEMX, begin, &other), Err(SnapshotFailure::Torn), "{count}");
    }
}

proptest! {
    #[test]
    fn clients_of_either_protocol_get_an_image_however_the_bytes_are_cut(
        piece in 1_usize..3_000,
        lengths in prop::collection::vec(2_u8..=255, 0..100),
        is_spin in any::<bool>(),
    ) {
        let session = if is_spin { UNIT } else { image().session };
        let mut made = Image::new(session, 77);
        let messages: Vec<Vec<u8>> = lengths
            .iter()
            .map(|length| {
                let mut message = vec![b'x'; usize::from(*length)];
                (message[0], message[1]) = (*length, 0x2E);
                message
            })
            .collect();
        messages.iter().for_each(|message| made.put(message, |_| {}));
        made.finish();
        let mut server = SnapshotServer::new(made.protocol(), None, 0);
        let (got, end) = fetched(&mut server, &known(), &Arc::new(made), piece);
        prop_assert_eq!((got, end), (messages, Ok(Some(77))));
        // The end of a SoupBinTCP session follows the end of the snapshot.
        take(&mut server, 4);
        prop_assert_eq!(server.over(), Some(SnapshotEnd::Served));
    }

    #[test]
    fn hostile_bytes_of_a_server_end_a_fetch_or_wait_for_more(
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..20),
        is_logged_in in any::<bool>(),
        session in prop::sample::select(vec![UNIT, SessionId::Pillar, MITCH, MEMX]),
    ) {
        let mut client = SnapshotClient::new(&known(), &session);
        if is_logged_in {
            client.receive(b"\x0b\0\x01\0\0\0\0\0\x03\x02A\x0e\0\x01\0\0\0\0\0\x06\x80\xd1\x04\0\0");
        }
        for chunk in &chunks {
            client.receive(chunk);
            while let Ok(Some(_)) = client.fetch() {}
        }
    }

    #[test]
    fn hostile_bytes_without_a_login_get_no_snapshot(
        protocol in prop::sample::select(vec![
            SnapshotProtocol::Glimpse,
            SnapshotProtocol::Spin,
            SnapshotProtocol::Mitch,
            SnapshotProtocol::Memx,
        ]),
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..20),
    ) {
        let mut server = SnapshotServer::new(protocol, None, 0);
        for (number, chunk) in chunks.iter().enumerate() {
            server.receive(chunk, number as u64);
            let is_login = server.wants_image();
            let image = match protocol {
                SnapshotProtocol::Glimpse | SnapshotProtocol::Refresh => image(),
                SnapshotProtocol::Spin => spin(1),
                SnapshotProtocol::Mitch => own(MITCH, &[]),
                SnapshotProtocol::Memx => own(MEMX, &[]),
            };
            server.give(image, number as u64);
            prop_assert!(is_login || server.output().len() <= 24);
            server.tick(number as u64);
        }
        server.closed();
        prop_assert!(server.over().is_some());
    }
}
