//! The bytes that simulated venues get from clients.

use std::sync::{Arc, OnceLock};

use tapeworks_generator::live::{Live, LiveOptions, LivePacket, LiveVenue, Outlet};
use tapeworks_generator::{Popularity, USUAL_MOST_ORDERS, Unit, VenueKind};
use tapeworks_session::requests::{DayTime, LoginFields, RequestLogin, RequestProtocol};
use tapeworks_session::snapshot::{
    Fetched, Image, SnapshotClient, SnapshotFailure, SnapshotLogin, SnapshotProtocol, SnapshotServer,
};
use tapeworks_session::{Credentials, MAX_PAYLOAD_BYTES, Made, SessionId, Store, Stream};

use crate::take::Take;

/// The session of the stores.
pub(crate) const SESSION: [u8; 10] = *b"AA00000007";

/// A request for retransmission: it is answered with a packet of requested messages, or refused. The first byte says how the store
/// is filled.
pub fn retransmission(bytes: &[u8]) {
    let Some((shape, request)) = bytes.split_first() else { return };
    for kind in VenueKind::each(["nasdaq", "iex-deep", "memx", "cqs"]) {
        let (transport, session) = (kind.transport(), kind.session(SESSION, 7, Unit::WHOLE));
        let mut store = Store::new(transport, 2_000 + usize::from(shape >> 4) * 200);
        store.begin_session(session);
        let mut stream = Stream::new(session, 0);
        for packet in 0..u64::from(shape & 0xF) {
            let message = vec![packet as u8; 20 + packet as usize];
            (0..1 + packet % 5).for_each(|_| stream.put(&message));
            store.keep(&Made {
                first: stream.next_sequence(),
                count: stream.messages(),
                stream_offset: stream.stream_offset(),
                blocks: stream.blocks(),
            });
            stream.begin_next();
        }
        let mut answer = Vec::new();
        let answered = store.answer(request, 5, &mut answer);
        let Some(wanted) = transport.read_request(request) else {
            assert!(answered.is_err());
            continue;
        };
        let Ok(messages) = answered else { continue };
        assert!(messages > 0 && messages <= wanted.count && answer.len() <= MAX_PAYLOAD_BYTES);
        let header = transport.header(&answer).expect("an answer is a packet");
        assert_eq!(header.first, wanted.first);
        assert_eq!((header.count, transport.is_sound(&answer)), (u64::from(messages), true));
    }
}

struct Nobody;

impl Outlet for Nobody {
    fn session(&mut self, _: usize, _: SessionId) {}
    fn made(&mut self, _: usize, _: &Made<'_>) {}
    fn packet(&mut self, _: &LivePacket<'_>) {}
}

/// An image of a small market of a kind of venue.
fn image(kind: VenueKind) -> Arc<Image> {
    let options = LiveOptions {
        seed: 1,
        start_utc_ns: 1_763_130_600_000_000_000,
        midnight_ns: 1_763_096_400_000_000_000,
        symbols: 2,
        popularity: Popularity::Zipf,
        most_orders: USUAL_MOST_ORDERS,
        messages: Some(50),
        rate: 1_000_000,
        bursts: Vec::new(),
        nights: Vec::new(),
        heartbeat_ns: 0,
        linger_ns: 0,
        venues: vec![LiveVenue::new(kind)],
    };
    let mut live = Live::new(&options).expect("the market is sound");
    live.advance(30_000, &mut Nobody);
    Arc::new(live.image(0, 30_000).expect("there is one venue"))
}

const PROTOCOLS: [(SnapshotProtocol, VenueKind); 4] = [
    (SnapshotProtocol::Glimpse, VenueKind::Bx),
    (SnapshotProtocol::Spin, VenueKind::Bzx),
    (SnapshotProtocol::Mitch, VenueKind::Lse),
    (SnapshotProtocol::Memx, VenueKind::Memx),
];

/// A client of a snapshot server of each protocol, its bytes in pieces of lengths that the first byte says: it gets an image only behind a login, and
/// ends when time passes.
pub fn snapshot(bytes: &[u8]) {
    let Some((shape, bytes)) = bytes.split_first() else { return };
    let known = Credentials { user: "me".to_owned(), password: "secret".to_owned() };
    static IMAGES: OnceLock<[Arc<Image>; 4]> = OnceLock::new();
    let images = IMAGES.get_or_init(|| PROTOCOLS.map(|(_, kind)| image(kind)));
    for ((protocol, _), image) in PROTOCOLS.iter().zip(images) {
        for credentials in [None, Some(known.clone())] {
            let mut server = SnapshotServer::new(*protocol, credentials, 0);
            let mut now_ns = 0;
            for piece in bytes.chunks(1 + usize::from(*shape)) {
                now_ns += 1_000_000;
                server.receive(piece, now_ns);
                let is_logged_in = server.wants_image();
                server.give(Arc::clone(image), now_ns);
                let most = if is_logged_in { usize::MAX } else { image.packets().len() + 64 };
                assert!(server.output().len() <= most);
                assert!(server.image_messages() == 0 || server.image_messages() == image.messages);
                let some = server.output().len().min(1 + usize::from(*shape));
                server.sent(some, now_ns);
                server.tick(now_ns);
            }
            for _ in 0..40 {
                now_ns += 1_000_000_000;
                server.tick(now_ns);
            }
            assert!(server.over().is_some(), "a client that does nothing is not kept");
            assert!(server.output().is_empty());
        }
    }
}

/// What a client has got, and why no more comes.
type Got = (Vec<Option<Vec<u8>>>, Option<SnapshotFailure>);

fn fetched(session: &SessionId, pieces: impl Iterator<Item = impl AsRef<[u8]>>) -> Got {
    let mut client = SnapshotClient::new(&SnapshotLogin::default(), session);
    let mut all = Vec::new();
    for piece in pieces {
        client.receive(piece.as_ref());
        loop {
            match client.fetch() {
                Ok(None) => break,
                Ok(Some(Fetched::Message(message))) => all.push(Some(message.to_vec())),
                Ok(Some(Fetched::End { .. })) => all.push(None),
                Err(failure) => return (all, Some(failure)),
            }
        }
        assert!(client.take_output().len() <= 64, "a login and a request are all that it sends");
    }
    (all, None)
}

/// A client of a snapshot server that gets these bytes: however they are cut, it hands the same messages on, and fails alike.
pub fn snapshot_client(bytes: &[u8]) {
    let Some((shape, bytes)) = bytes.split_first() else { return };
    for (_, kind) in PROTOCOLS {
        let session = kind.session(SESSION, 7, Unit::WHOLE);
        let whole = fetched(&session, [bytes].into_iter());
        assert_eq!(fetched(&session, bytes.chunks(1 + usize::from(*shape))), whole);
    }
}

/// A client of refreshes that gets these bytes and packets, and a server that gets the same bytes: what is kept is bounded, a client requests no more than it
/// may, and a server sends to its group only what was requested.
pub fn refresh(bytes: &[u8]) {
    static IMAGE: OnceLock<Arc<Image>> = OnceLock::new();
    let image = IMAGE.get_or_init(|| image(VenueKind::Nyse));
    let (mut client, mut server) = refreshing();
    let (mut input, mut now_ns, mut requested) = (Take(bytes), 0, 0);
    while !input.is_empty() {
        let (step, length) = (input.u8(), usize::from(input.u16()));
        now_ns += u64::from(step >> 2) * 50_000_000;
        let piece = input.bytes(length);
        client.tick(now_ns);
        match step & 1 {
            0 => client.receive_datagram(piece),
            _ => {
                client.receive(piece);
                server.receive(piece, now_ns);
            }
        }
        requested += client.take_output().len();
        let wanted = server.wants_image();
        if wanted {
            server.give(Arc::clone(image), now_ns);
        }
        while let Some(packet) = server.next_datagram() {
            assert!(packet.len() <= 1_432 && server.image_messages() > 0);
        }
        let some = server.output().len();
        server.sent(some, now_ns);
        server.tick(now_ns);
        while let Ok(Some(Fetched::Message(message))) = client.fetch() {
            assert!(message.len() >= 4);
        }
    }
    assert!(requested <= 501 * 40 + bytes.len() * 30);
    for _ in 0..80 {
        now_ns += 1_000_000_000;
        server.tick(now_ns);
    }
    assert!(server.over().is_some(), "a client that does nothing is not kept");
}

fn refreshing() -> (SnapshotClient, SnapshotServer) {
    let login = RequestLogin::new(
        RequestProtocol::Pillar,
        &LoginFields { source: "FIRM", product: 1, channel: 2, ..Default::default() },
    )
    .expect("it fits");
    let client = SnapshotClient::by_group(login, DayTime::default(), 0).expect("NYSE has refreshes");
    (client, SnapshotServer::new(SnapshotProtocol::Refresh, None, 0))
}

/// What a client and a server of refreshes send each other, as [`refresh`] takes it.
pub(crate) fn refreshes() -> Vec<Vec<u8>> {
    let (mut client, mut server) = refreshing();
    let image = image(VenueKind::Nyse);
    let piece = |step: u8, bytes: &[u8]| [&[step], &(bytes.len() as u16).to_le_bytes()[..], bytes].concat();
    let (mut of_client, mut of_server) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let requests = client.take_output();
        of_client.extend(piece(1, &requests));
        server.receive(&requests, 0);
        server.give(Arc::clone(&image), 0);
        let responses = server.output().to_vec();
        server.sent(responses.len(), 0);
        client.receive(&responses);
        of_server.extend(piece(1, &responses));
        while let Some(packet) = server.next_datagram() {
            client.receive_datagram(&packet);
            of_server.extend(piece(0, &packet));
        }
    }
    vec![of_client, of_server]
}

/// What servers send: whole conversations.
pub(crate) fn conversations() -> Vec<Vec<u8>> {
    let conversation = |(protocol, kind): (SnapshotProtocol, VenueKind)| {
        let (image, session) = (image(kind), kind.session(SESSION, 7, Unit::WHOLE));
        let mut server = SnapshotServer::new(protocol, None, 0);
        let mut client = SnapshotClient::new(&SnapshotLogin::default(), &session);
        let mut all = vec![255];
        for _ in 0..3 {
            server.receive(&client.take_output(), 0);
            server.give(Arc::clone(&image), 0);
            while !server.output().is_empty() {
                let some = server.output().to_vec();
                server.sent(some.len(), 0);
                client.receive(&some);
                all.extend_from_slice(&some);
            }
            while let Ok(Some(_)) = client.fetch() {}
        }
        all
    };
    PROTOCOLS.map(conversation).to_vec()
}

/// What clients of a spin server send.
pub(crate) fn spin_requests() -> Vec<Vec<u8>> {
    let login = |user: &str| {
        let login =
            SnapshotLogin { user: user.to_owned(), password: "secret".to_owned(), sub_id: String::new() };
        SnapshotClient::new(&login, &SessionId::CboeUnit(1)).take_output()
    };
    let next = image(VenueKind::Bzx).next;
    let request = |sequence: u64| {
        let sequence = (sequence as u32).to_le_bytes();
        [&[14, 0, 1, 0, 0, 0, 0, 0, 6, 0x81][..], &sequence].concat()
    };
    [[login("me"), request(next - 1)].concat(), [login("you"), request(next)].concat()]
        .into_iter()
        .flat_map(|bytes| [[&[255], &bytes[..]].concat(), [&[3], &bytes[..]].concat()])
        .collect()
}
