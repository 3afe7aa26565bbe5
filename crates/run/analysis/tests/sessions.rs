//! Requests for missed messages and for snapshots over TCP, as both ends of a session send them: dumped, counted, and taken for no other protocol.
//!
//! `TAPEWORKS_BLESS=1 cargo test -p tapeworks-analysis --test sessions` writes the captures and the dumps anew; read the difference before you commit it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use proptest::prelude::*;
use tapeworks_analysis::dump::{self, Dumped, Form, Options};
use tapeworks_analysis::input;
use tapeworks_analysis::sessions::ReadAs;
use tapeworks_analysis::stats;
use tapeworks_session::requests::{
    LoginFields, RequestLogin, RequestProtocol, RequestServer, RequestStatus, Requester, ServerLimits,
};
use tapeworks_session::snapshot::{Fetched, Image, SnapshotClient, SnapshotLogin, SnapshotServer};
use tapeworks_session::transport::{Request, SessionId};
use tapeworks_session::{Made, Store, Stream};

const SECOND_NS: u64 = 1_000_000_000;

/// One direction and its bytes.
#[derive(Clone)]
struct Said {
    is_client: bool,
    bytes: Vec<u8>,
}

/// What both ends of a connection send, in turn.
#[derive(Clone, Default)]
struct Connection(Vec<Said>);

impl Connection {
    fn client(&mut self, bytes: &[u8]) {
        self.say(true, bytes);
    }

    fn server(&mut self, bytes: &[u8]) {
        self.say(false, bytes);
    }

    fn say(&mut self, is_client: bool, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.0.push(Said { is_client, bytes: bytes.to_vec() });
        }
    }

    /// One direction alone.
    fn half(&self, is_client: bool) -> Self {
        Self(self.0.iter().filter(|said| said.is_client == is_client).cloned().collect())
    }

    /// A capture of it, in segments of so many bytes. It has the beginning and the end.
    fn pcap(&self, piece: usize) -> Vec<u8> {
        self.pcap_at([40_001, 37_001], piece)
    }

    /// As [`Connection::pcap`], between these ports of client and server.
    fn pcap_at(&self, ports: [u16; 2], piece: usize) -> Vec<u8> {
        let mut file =
            vec![0xD4, 0xC3, 0xB2, 0xA1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0];
        /// Flags of a segment.
        const SYN: u8 = 2;
        const ACK: u8 = 16;
        const PUSH: u8 = 8;
        const FIN: u8 = 1;
        let (mut numbers, mut ms) = ([1_000_u32, 5_000], 0);
        let mut put = |numbers: &mut [u32; 2], is_client: bool, flags: u8, bytes: &[u8]| {
            let (own, peer) = if is_client { (0, 1) } else { (1, 0) };
            file.extend_from_slice(&1_763_130_600_u32.to_le_bytes());
            file.extend_from_slice(&(ms * 1_000_u32).to_le_bytes());
            ms += 1;
            let length = 54 + bytes.len() as u32;
            file.extend_from_slice(&[length.to_le_bytes(), length.to_le_bytes()].concat());
            file.extend_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0]);
            file.extend_from_slice(&(40 + bytes.len() as u16).to_be_bytes());
            file.extend_from_slice(&[0, 1, 0, 0, 64, 6, 0, 0]);
            for end in [own, peer] {
                file.extend_from_slice(&[10, 0, 0, 1 + end as u8]);
            }
            for end in [own, peer] {
                file.extend_from_slice(&ports[end].to_be_bytes());
            }
            file.extend_from_slice(&numbers[own].to_be_bytes());
            file.extend_from_slice(&numbers[peer].to_be_bytes());
            file.extend_from_slice(&[0x50, flags, 0x20, 0, 0, 0, 0, 0]);
            file.extend_from_slice(bytes);
            let flag_bytes = u32::from(flags & 3 != 0);
            numbers[own] = numbers[own].wrapping_add(bytes.len() as u32 + flag_bytes);
        };
        put(&mut numbers, true, SYN, &[]);
        put(&mut numbers, false, SYN | ACK, &[]);
        for Said { is_client, bytes } in &self.0 {
            bytes.chunks(piece).for_each(|bytes| put(&mut numbers, *is_client, PUSH | ACK, bytes));
        }
        put(&mut numbers, true, FIN | ACK, &[]);
        put(&mut numbers, false, FIN | ACK, &[]);
        file
    }
}

const CBOE: SessionId = SessionId::CboeUnit(2);
const LONDON: SessionId = SessionId::MitchUnit(b'A');
const MEMX: SessionId = SessionId::Memoir(77);

/// A time message and an order of the venue, with this number.
fn message(session: SessionId, number: u8) -> Vec<u8> {
    let is_time = number.is_multiple_of(4);
    match session {
        SessionId::CboeUnit(_) if is_time => vec![6, 0x20, 0x60, 0x8B, 0, 0],
        SessionId::CboeUnit(_) => {
            [&b"\x1a\x22\x01\x02\x03\0"[..], &[number, 0, 0, 0, 0, 0, 0, 0], b"B\x64\0AAPL  \x10\x27\x01"]
                .concat()
        }
        SessionId::MitchUnit(_) if is_time => vec![6, 0x54, 0x60, 0x8B, 0, 0],
        SessionId::MitchUnit(_) => {
            let start =
                [&b"\x2c\x41\x01\x02\x03\0"[..], &[number, 0, 0, 0, 0, 0, 0, 0], b"B\x64\0\0\0\x07\0\0\0"];
            [&start.concat()[..], &[0, 0], &12_500_000_000_u64.to_le_bytes(), &[0; 11]].concat()
        }
        _ => {
            let start = b"\0\x1f\x0a\x02\x01\x03\x18\x77\xea\x0c\x30\x15\x48\0\0\x05";
            [&start[..], &u64::from(number).to_be_bytes(), b"B\0\0\0\x64", &193_050_000_u64.to_be_bytes()]
                .concat()
        }
    }
}

/// A client that logs in, requests the messages 5 to 8, and then one that the server does not have.
fn replay(login: RequestLogin, session: SessionId) -> Connection {
    let protocol = login.protocol();
    let (mut client, mut said) = (Requester::new(login), Connection::default());
    let mut server = RequestServer::new(protocol, Some(login), ServerLimits::of(protocol), 0);
    server.set_session(session);
    let mut store = Store::new(protocol.transport(), 1 << 20);
    store.begin_session(session);
    for number in 0..12_u8 {
        let mut stream = Stream::new(session, 0);
        stream.put(&message(session, number));
        let (first, blocks) = (u64::from(number) + 1, stream.blocks());
        store.keep(&Made { first, count: 1, stream_offset: 0, blocks });
    }
    client.connected(0);
    let mut wanted =
        vec![Request { session, first: 4_000, count: 2 }, Request { session, first: 5, count: 4 }];
    let mut now_ns = 0;
    loop {
        let bytes = client.output().to_vec();
        said.client(&bytes);
        client.sent(bytes.len(), now_ns);
        server.receive(&bytes, now_ns);
        while let Some(request) = server.next_request() {
            let mut packet = Vec::new();
            match store.answer_as(&request, session, 0, &mut packet) {
                Ok(_) => server.answer_with(RequestStatus::Accepted, &[packet], now_ns),
                Err(_) => server.answer(RequestStatus::OutOfRange, now_ns),
            }
        }
        let answer = server.output().to_vec();
        said.server(&answer);
        server.sent(answer.len(), now_ns);
        client.receive(&answer, now_ns);
        if bytes.is_empty() && answer.is_empty() {
            let Some(request) = wanted.pop() else { break };
            client.request(&request, now_ns);
        }
    }
    // Both ends are silent for a second.
    now_ns += SECOND_NS;
    client.tick(now_ns);
    server.tick(now_ns);
    said.client(client.output());
    said.server(server.output());
    said
}

/// A client that gets a snapshot of three orders.
fn snapshot(login: &SnapshotLogin, session: SessionId) -> Connection {
    let mut image = Image::new(session, 1_235);
    image.time_ns = 1_763_130_600 * SECOND_NS;
    (0..4).for_each(|number| image.put(&message(session, number), |_| {}));
    image.finish();
    let image = Arc::new(image);
    let mut client = SnapshotClient::new(login, &session);
    let mut server = SnapshotServer::new(image.protocol(), None, 0);
    let (mut said, mut is_whole) = (Connection::default(), false);
    while !is_whole {
        let bytes = client.take_output();
        said.client(&bytes);
        server.receive(&bytes, 1);
        server.give(Arc::clone(&image), 2);
        let answer = server.output().to_vec();
        said.server(&answer);
        server.sent(answer.len(), 3);
        client.receive(&answer);
        while let Some(fetched) = client.fetch().unwrap() {
            is_whole |= matches!(fetched, Fetched::End { next: 1_235 });
        }
    }
    said.client(client.farewell());
    said
}

/// The sessions: a name, the protocol, that of the feed, and what is sent.
fn sessions() -> [(&'static str, &'static str, &'static str, Connection); 6] {
    let login = SnapshotLogin { sub_id: "0001".into(), user: "FIRM".into(), password: "ABCD00".into() };
    let fields = LoginFields {
        sub_id: &login.sub_id,
        user: &login.user,
        password: &login.password,
        ..LoginFields::default()
    };
    let by = |protocol| RequestLogin::new(protocol, &fields).unwrap();
    let (grp, mitch, memx) = ("cboe-grp-2.41", "lse-mitch-recovery-11.9", "memx-tcp-1.6");
    let (pitch, level2, memoir) = ("cboe-pitch-2.41", "lse-mitch-11.9", "memx-memoir-depth-1.3");
    [
        ("cboe-grp", grp, pitch, replay(by(RequestProtocol::Grp), CBOE)),
        ("cboe-spin", grp, pitch, snapshot(&login, CBOE)),
        ("mitch-replay", mitch, level2, replay(by(RequestProtocol::Mitch), LONDON)),
        ("mitch-snapshot", mitch, level2, snapshot(&login, LONDON)),
        ("memx-gap-fill", memx, memoir, replay(by(RequestProtocol::Memx), MEMX)),
        ("memx-snapshot", memx, memoir, snapshot(&login, MEMX)),
    ]
}

fn testdata() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/testdata")
}

fn is_blessing() -> bool {
    std::env::var_os("TAPEWORKS_BLESS").is_some()
}

/// Compares with a file, or writes it when blessing.
fn compare(path: &Path, bytes: &[u8]) {
    if is_blessing() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    let golden = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert!(golden == bytes, "{} differs from:\n{}", path.display(), String::from_utf8_lossy(bytes));
}

fn dumped(file: &Path, form: Form, protocol: Option<&str>) -> (String, Dumped) {
    let mut inputs = input::open_any(&[file], None).unwrap();
    inputs[0].name = format!("testdata/sessions/{}", file.file_name().unwrap().to_string_lossy());
    let mut out = Vec::new();
    let read_as = protocol.map(|name| ReadAs::by_name(name).unwrap());
    let options = Options { form, read_as, ..Options::default() };
    let dumped = dump::dump(&mut inputs, &options, &mut out, &mut |_| ControlFlow::Continue(())).unwrap();
    (String::from_utf8(out).unwrap(), dumped)
}

/// The protocol and name of each message, the heartbeats' headers included, and the errors.
fn found(capture: &[u8], protocol: Option<&str>) -> Vec<(String, String)> {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), capture).unwrap();
    let (json, _) = dumped(file.path(), Form::Json, protocol);
    let of = |line: &str| {
        let object: serde_json::Value = serde_json::from_str(line).unwrap();
        let text = |key: &str| object[key].as_str().unwrap_or("-").to_owned();
        match object.get("error") {
            Some(error) => ("error".to_owned(), error.to_string()),
            None => (text("protocol"), text("message")),
        }
    };
    json.lines().map(of).collect()
}

#[test]
fn each_session_is_dumped_and_counted_as_it_was() {
    for (name, protocol, market, said) in sessions() {
        let file = testdata().join(format!("sessions/{name}.pcap"));
        compare(&file, &said.pcap(1_400));
        let (text, counts) = dumped(&file, Form::Lines, None);
        assert_eq!(counts.problems, 0, "{name}: {text}");
        assert!(text.contains("password=\"ABCD00\"") || name.starts_with("memx"), "{name}: {text}");
        compare(&testdata().join(format!("golden/dump/sessions/{name}.txt")), text.as_bytes());
        let (json, _) = dumped(&file, Form::Json, None);
        assert!(json.contains(protocol) && (json.contains(market) || name == "cboe-grp"), "{name}: {json}");
        compare(&testdata().join(format!("golden/dump/sessions/{name}.jsonl")), json.as_bytes());
        for named in [protocol, market] {
            assert_eq!(dumped(&file, Form::Json, Some(named)).0, json, "{name} as {named}");
        }
        let mut inputs = input::open_any(&[&file], None).unwrap();
        let counted = stats::count(&mut inputs, None, &mut |_| ControlFlow::Continue(()));
        assert!(counted.is_clean() && counted.channels.len() == 2, "{name}");
        let messages: u64 = counted.channels.iter().map(|(_, channel)| channel.messages).sum();
        assert!(messages >= 4, "{name}: {messages}");
    }
}

#[test]
fn each_session_is_recognised_in_whatever_pieces_it_comes() {
    for (name, _, _, said) in sessions() {
        let whole = found(&said.pcap(1_400), None);
        assert!(whole.len() > 5, "{name}: {whole:?}");
        for piece in [1, 2, 3, 5, 7, 8, 9, 11, 17, 40, 200] {
            assert_eq!(sorted(found(&said.pcap(piece), None)), sorted(whole.clone()), "{name}: {piece}");
        }
    }
}

/// A direction that waits for its session is shown behind what the other direction says.
fn sorted(mut found: Vec<(String, String)>) -> Vec<(String, String)> {
    found.sort();
    found
}

/// The schemas of what is found.
fn protocols(found: &[(String, String)]) -> Vec<&str> {
    let mut names: Vec<&str> = found.iter().map(|(protocol, _)| protocol.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[test]
fn one_direction_of_a_session_is_recognised_alone_and_for_no_other() {
    let headers = ["cboe-sequenced-unit-2.41", "lse-mitch-unit-11.9"];
    for (name, protocol, market, said) in sessions() {
        for is_client in [true, false] {
            let half = said.half(is_client);
            for piece in [1_400, 3] {
                let found = found(&half.pcap(piece), None);
                let others = protocols(&found).into_iter().filter(|one| ![protocol, market].contains(one));
                assert!(others.clone().all(|one| headers.contains(&one)), "{name} {is_client}: {found:?}");
                assert!(found.iter().any(|(one, _)| one == protocol), "{name} {is_client}: {found:?}");
                // A heartbeat is shown in the header of its own venue.
                let own = if protocol.starts_with("cboe") { headers[0] } else { headers[1] };
                assert!(others.clone().all(|one| one == own), "{name} {is_client}: {found:?}");
            }
        }
    }
}

#[test]
fn a_stream_that_two_venues_may_have_sent_is_in_doubt_until_its_protocol_is_named() {
    let accepted = b"\x0b\0\x01\0\0\0\0\0\x03\x02A";
    let mut said = Connection::default();
    said.server(accepted);
    let doubt = found(&said.pcap(1_400), None);
    assert_eq!(doubt.len(), 1, "{doubt:?}");
    for word in ["cboe-grp-2.41", "lse-mitch-recovery-11.9", "name the protocol"] {
        assert!(doubt[0].1.contains(word), "{doubt:?}");
    }
    for (named, protocol) in [
        ("cboe-grp", "cboe-grp-2.41"),
        ("pitch", "cboe-grp-2.41"),
        ("mitch-recovery", "lse-mitch-recovery-11.9"),
        ("mitch", "lse-mitch-recovery-11.9"),
    ] {
        let found = found(&said.pcap(1_400), Some(named));
        assert_eq!(found, [(protocol.to_owned(), "LoginResponse".to_owned())], "{named}");
    }
    // The login of the other direction says it, before or behind.
    let login = b"\x1a\0\x01\0\0\0\0\0\x12\x01FIRM  ABCD00    ";
    for is_before in [true, false] {
        let mut both = Connection::default();
        if is_before {
            both.client(login);
        }
        both.server(accepted);
        if !is_before {
            both.client(login);
        }
        let found = found(&both.pcap(1_400), None);
        assert_eq!(protocols(&found), ["lse-mitch-recovery-11.9"], "{found:?}");
        assert_eq!(found.len(), 2, "{found:?}");
    }
    // A gap request of a unit whose number is a letter's.
    let mut request = Connection::default();
    request.client(b"\x11\0\x01\0\0\0\0\0\x09\x03A\x3b\x10\0\0\x32\0");
    assert!(found(&request.pcap(1_400), None)[0].1.contains("name the protocol"));
    let mut request = Connection::default();
    request.client(b"\x11\0\x01\0\0\0\0\0\x09\x03\x02\x3b\x10\0\0\x32\0");
    assert_eq!(protocols(&found(&request.pcap(1_400), None)), ["cboe-grp-2.41"]);
}

/// The capture without its packet of this number.
fn without_packet(capture: &[u8], number: usize) -> Vec<u8> {
    let (mut rest, mut kept) =
        capture.split_at_checked(24).map(|(head, rest)| (rest, head.to_vec())).unwrap();
    for at in 1.. {
        let Some(length) = rest.get(8..12) else { break };
        let record = 16 + u32::from_le_bytes(length.try_into().unwrap()) as usize;
        let (packet, after) = rest.split_at(record);
        if at != number {
            kept.extend_from_slice(packet);
        }
        rest = after;
    }
    kept
}

#[test]
fn a_start_in_doubt_is_shown_with_its_own_packet_where_nothing_follows_or_a_segment_is_lost() {
    let (accepted, heartbeat) = (b"\x0b\0\x01\0\0\0\0\0\x03\x02A", b"\x08\0\0\0\0\0\0\0");
    let mut said = Connection::default();
    said.server(accepted);
    let whole = said.pcap(1_400);
    said.server(heartbeat);
    said.server(heartbeat);
    // The heartbeat behind the login is lost.
    let holed = without_packet(&said.pcap(1_400), 4);
    for (capture, has_hole) in [(whole, false), (holed, true)] {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), capture).unwrap();
        let (json, _) = dumped(file.path(), Form::Json, None);
        let doubt = json.lines().find(|line| line.contains("name the protocol")).expect(&json);
        let doubt: serde_json::Value = serde_json::from_str(doubt).unwrap();
        assert_eq!(doubt["packet"], 3, "{json}");
        assert_eq!(json.contains("missing"), has_hole, "{json}");
    }
}

#[test]
fn a_type_that_the_feed_does_not_have_yet_unmakes_no_session_however_it_is_cut() {
    let (_, protocol, _, said) = sessions().into_iter().find(|(name, ..)| *name == "mitch-snapshot").unwrap();
    let bytes =
        |is_client| said.half(is_client).0.iter().flat_map(|said| said.bytes.clone()).collect::<Vec<_>>();
    let mut server = bytes(false);
    server.extend_from_slice(b"\x0c\0\x01A\0\0\0\0\x04\x7f\0\0");
    let mut half = Connection::default();
    half.server(&server);
    let whole = found(&half.pcap(60_000), None);
    assert!(protocols(&whole).contains(&protocol), "{whole:?}");
    assert_eq!(whole.iter().filter(|(protocol, _)| protocol == "error").count(), 1, "{whole:?}");
    for piece in [11, 40, 400] {
        assert_eq!(found(&half.pcap(piece), None), whole, "{piece}");
    }
}

#[test]
fn no_stream_of_another_protocol_is_taken_for_a_session() {
    let order = message(CBOE, 1);
    let unit = |unit: u8, number: u8, message: &[u8]| {
        let header = [8 + message.len() as u8, 0, 1, unit, number, 0, 0, 0];
        [&header[..], message].concat()
    };
    let event = b"S\0\0\0\0\0\0\0\0\0\0O";
    let itch = [&[12 + 3, 0][..], event].concat();
    let soup = |message: &[u8]| [&[0, 1 + message.len() as u8, b'S'][..], message].concat();
    let memx = |message: &[u8]| [&[11, 0, message.len() as u8][..], message].concat();
    let streams: Vec<Vec<u8>> = vec![
        // Market data of a unit, without its session, and with a number.
        unit(0, 0, &order),
        unit(2, 1, &order),
        unit(b'A', 5, &message(LONDON, 1)),
        // Messages of one protocol in another's transport.
        unit(0, 0, &itch),
        unit(0, 0, &message(MEMX, 1)),
        soup(&message(MEMX, 1)),
        soup(b"\x03\x02A"),
        memx(event),
        memx(&message(LONDON, 1)),
        memx(b"\x03\x02A"),
        // Wrong lengths, statuses and texts; heartbeats alone.
        unit(0, 0, b"\x03\x02Z"),
        unit(0, 0, b"\x04\x02AA"),
        unit(0, 0, b"\x12\x01\x80\x81\x82   ABCD00    "),
        unit(0, 3, b"\x03\x02A"),
        b"\x01\0\x01X".to_vec(),
        b"\x64\0\x05QA:BC".to_vec(),
        vec![0; 60],
        b"\x08\0\0\0\0\0\0\0".repeat(3),
        b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n".to_vec(),
        b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03".to_vec(),
        b"\0\0\0\x85\xffSMBr\0\0\0\0\x18\x53\xc8".to_vec(),
    ];
    for stream in streams {
        for piece in [1_400, 1] {
            let mut said = Connection::default();
            said.client(&stream);
            let found = found(&said.pcap(piece), None);
            let sessions = ["cboe-grp-2.41", "lse-mitch-recovery-11.9", "memx-tcp-1.6"];
            assert!(
                found.iter().all(|(one, _)| !sessions.contains(&one.as_str())),
                "{stream:02x?}: {found:?}"
            );
        }
    }
    // Of the sessions that are recognised otherwise.
    let mut native = Connection::default();
    native.client(b"\x02\x01\x000\x02\x02\x00N\x00");
    assert_eq!(protocols(&found(&native.pcap(1_400), None)), ["lse-native-21.2"]);
    let mut soup = Connection::default();
    soup.client(b"\0\x01R");
    let heartbeat = ("nasdaq-soupbintcp-3.0".to_owned(), "ClientHeartbeat".to_owned());
    assert_eq!(found(&soup.pcap(1_400), None), [heartbeat]);
    let mut rejected = Connection::default();
    rejected.server(b"\x02\0\x01A");
    assert_eq!(found(&rejected.pcap(1), None), [("memx-tcp-1.6".to_owned(), "LoginRejected".to_owned())]);
}

/// Real captures, by path.
fn real_captures() -> Vec<PathBuf> {
    let folders = fs::read_dir(testdata().join("captures")).unwrap().map(|entry| entry.unwrap().path());
    let files = |folder: PathBuf| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut all: Vec<PathBuf> = folders.filter(|path| path.is_dir()).flat_map(files).collect();
    all.retain(|path| path.extension().is_some_and(|ending| ending != "md"));
    all.sort();
    all
}

const NAMES: [&str; 3] = ["cboe-grp", "mitch-recovery", "memx-tcp"];

#[test]
fn the_name_of_a_session_changes_nothing_of_datagrams_and_makes_a_session_of_no_other_stream() {
    let captures = real_captures();
    assert!(captures.len() > 25, "the captures are there");
    for capture in captures {
        let (as_it_is, _) = dumped(&capture, Form::Json, None);
        let is_stream = capture.to_string_lossy().contains("ouch");
        for name in NAMES {
            let (named, counts) = dumped(&capture, Form::Json, Some(name));
            if !is_stream {
                assert_eq!(named, as_it_is, "{} as {name}", capture.display());
            } else if named.lines().next().is_some() {
                assert!(counts.problems > 0, "{} as {name}: {named}", capture.display());
            }
        }
        for protocol in sessions().map(|(_, protocol, ..)| protocol) {
            assert!(!as_it_is.contains(protocol), "{}: {protocol}", capture.display());
        }
    }
}

#[test]
fn a_session_is_recognised_at_any_port_and_under_a_wrong_name_it_is_none() {
    for (name, protocol, market, said) in sessions() {
        let whole = found(&said.pcap(1_400), None);
        // Ports of a native gateway, of SoupBinTCP, of a web server, and of the venues' lines.
        for port in [7_001, 8_003, 80, 30_001, 26_477] {
            assert_eq!(found(&said.pcap_at([50_000, port], 1_400), None), whole, "{name} at {port}");
        }
        for wrong in NAMES.into_iter().filter(|wrong| !protocol.contains(&wrong[..4])) {
            let found = found(&said.pcap(1_400), Some(wrong));
            let own = found.iter().filter(|(one, _)| one == protocol || one == market).count();
            assert_eq!(own, 0, "{name} as {wrong}: {found:?}");
        }
    }
}

#[test]
fn a_session_is_a_feed_of_no_replay_and_has_one_name_for_each() {
    for (name, protocol, _, _) in sessions() {
        assert!(ReadAs::by_name(protocol).is_some_and(|read_as| read_as.feed().is_none()), "{name}");
    }
    assert!(ReadAs::by_name("pitch").is_some_and(|read_as| read_as.feed().is_some()));
    for name in ["soupbintcp", "cboe-unit", "ouch", "native", "nonsense"] {
        assert_eq!(ReadAs::by_name(name), None, "{name}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn random_bytes_are_of_no_session_and_never_break_the_dump(
        start in proptest::sample::select(vec![&[][..], &[8, 0], &[0x1e, 0, 1, 0, 0, 0, 0, 0], &[100, 0], &[1, 0], &[0x0b, 0, 1, 0, 0, 0, 0, 0]]),
        bytes in proptest::collection::vec(any::<u8>(), 1..120),
        named in proptest::sample::select(vec![None, Some("cboe-grp"), Some("mitch-recovery"), Some("memx-tcp")]),
    ) {
        let mut said = Connection::default();
        said.client(&[start, &bytes[..]].concat());
        let found = found(&said.pcap(1_400), named);
        if named.is_none() && start.is_empty() {
            prop_assert!(found.iter().all(|(one, _)| one == "error" || one == "nasdaq-soupbintcp-3.0"), "{:?}", found);
        }
    }
}
