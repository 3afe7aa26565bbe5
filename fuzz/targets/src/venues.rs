//! The bytes that simulated venues get from clients.

use std::sync::{Arc, OnceLock};

use tapeworks_exchange::live::{Live, LiveOptions, LivePacket, LiveVenue, Outlet};
use tapeworks_exchange::{LineFaults, Popularity, USUAL_MOST_ORDERS, Unit, VenueKind};
use tapeworks_session::glimpse::{Image, SnapshotServer};
use tapeworks_session::{Credentials, MAX_PAYLOAD_BYTES, Made, SessionId, Store, Stream};

/// The session of the stores.
pub(crate) const SESSION: [u8; 10] = *b"AA00000007";

/// A request for retransmission: it is answered with a packet of requested messages, or refused. The first byte says how the store
/// is filled.
pub fn retransmission(bytes: &[u8]) {
    let Some((shape, request)) = bytes.split_first() else { return };
    for kind in [VenueKind::Nasdaq, VenueKind::IexDeep, VenueKind::Memx, VenueKind::Cqs] {
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

/// An image of a small market.
fn image() -> Arc<Image> {
    let venue = LiveVenue {
        kind: VenueKind::Bx,
        unit: Unit::WHOLE,
        share: 1,
        line_b: false,
        faults: [LineFaults::default(); 2],
        skew_ns: 0,
        restart_after: Vec::new(),
        silences: Vec::new(),
        resets: Vec::new(),
        nonsense_per_million: 0,
    };
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
        heartbeat_ns: 0,
        linger_ns: 0,
        venues: vec![venue],
    };
    let mut live = Live::new(&options).expect("the market is sound");
    live.advance(30_000, &mut Nobody);
    Arc::new(live.image(0, 30_000).expect("there is one venue"))
}

/// A client of a snapshot server, its bytes in pieces of lengths that the first byte says: it gets an image only behind a login, and
/// ends when time passes.
pub fn snapshot(bytes: &[u8]) {
    let Some((shape, bytes)) = bytes.split_first() else { return };
    let known = Credentials { user: "me".to_owned(), password: "secret".to_owned() };
    static IMAGE: OnceLock<Arc<Image>> = OnceLock::new();
    let image = IMAGE.get_or_init(image);
    for credentials in [None, Some(known)] {
        let mut server = SnapshotServer::new(credentials, 0);
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
