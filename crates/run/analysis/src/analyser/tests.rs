//! The walk over streams and datagrams.

#![allow(clippy::unwrap_used)]

use tapeworks_capture::net::{Datagram, TcpFlags, TcpHeader, Transport};
use tapeworks_feed::{Application, Packet};
use tapeworks_session::{Content, SessionId, Stream};

use super::*;
use crate::{input, stats, study};

/// Counts headers and troubles.
#[derive(Default)]
struct Counted {
    headers: usize,
    troubles: usize,
}

impl Visitor for Counted {
    fn visit(&mut self, _place: &Place, item: Item<'_>) -> ControlFlow<()> {
        match item {
            Item::Header(_) => self.headers += 1,
            Item::Trouble(..) => self.troubles += 1,
            Item::Message(_) | Item::Fix(_) => {}
        }
        ControlFlow::Continue(())
    }
}

/// Shows `visitor` a stream in pieces of this many bytes.
fn show_stream(stream: &[u8], piece: usize, visitor: &mut dyn Visitor) {
    let mut analyser = Analyser::new(None);
    let visitor = &mut Noticing::known(visitor);
    for (index, payload) in stream.chunks(piece).enumerate() {
        let sequence = 1 + (index * piece) as u32;
        let header = TcpHeader { sequence, acknowledgment: 0, flags: TcpFlags::ACK };
        let packet =
            Packet { number: index as u64 + 1, ..packet(Transport::Tcp(header), "10.0.0.2:2", payload) };
        assert!(analyser.datagram(&packet, None, visitor).is_continue());
    }
    assert!(analyser.end(visitor).is_continue());
}

/// A packet to this destination.
fn packet<'p>(transport: Transport, destination: &str, payload: &'p [u8]) -> Packet<'p> {
    let datagram = Datagram {
        source: "10.0.0.1:1".parse().unwrap(),
        destination: destination.parse().unwrap(),
        vlan: None,
        transport,
        payload,
        payload_offset: 0,
        truncated: false,
    };
    Packet { file: 0, number: 1, offset: 0, received: Nanos(0), datagram }
}

#[test]
fn a_first_packet_in_two_segments_is_waited_for() {
    // A login, and a different stream of which less than a packet arrives.
    let login = [[0, 31, b'A'].as_slice(), b"SESSION1  ", format!("{:>20}", 1).as_bytes()].concat();
    for (bytes, expected) in [(&login[..], (1, 0)), (&login[..7], (0, 1))] {
        let mut counted = Counted::default();
        show_stream(bytes, 5, &mut counted);
        assert_eq!((counted.headers, counted.troubles), expected);
    }
}

/// The protocol and the name of each message, and the troubles.
#[derive(Default)]
struct Named(Vec<(&'static str, String)>);

impl Visitor for Named {
    fn visit(&mut self, _place: &Place, item: Item<'_>) -> ControlFlow<()> {
        match item {
            Item::Header(_) => {}
            Item::Message(message) => {
                let name = message.decoded.name().unwrap_or("?").to_owned();
                self.0.push((message.schema.name, name));
            }
            Item::Fix(message) => self.0.push(("fix", message.name().unwrap_or("?").to_owned())),
            Item::Trouble(trouble, _) => self.0.push(("trouble", trouble.to_string())),
        }
        ControlFlow::Continue(())
    }
}

/// What the analyser finds in a stream that arrives in pieces of this many bytes.
fn named(stream: &[u8], piece: usize) -> Vec<(&'static str, String)> {
    let mut named = Named::default();
    show_stream(stream, piece, &mut named);
    named.0
}

#[test]
fn a_stream_of_native_messages_is_recognised_however_it_is_cut() {
    use tapeworks_wire::millennium::native::SCHEMA;
    let stream = b"\x02\x01\x000\x02\x02\x00N\x00\x02\x03\x00n\x01\x02";
    for piece in 1..=stream.len() {
        let names = ["Heartbeat", "MissedMessageRequestAck", "SystemStatus"];
        assert_eq!(named(stream, piece), names.map(|name| (SCHEMA.name, name.to_owned())), "{piece}");
    }
    let broken = [&stream[..], b"garbage"].concat();
    let last = named(&broken, broken.len()).pop().unwrap();
    assert_eq!(last.0, "trouble");
    let cut = named(&stream[..7], 7);
    assert_eq!((cut.len(), cut[1].0), (2, "trouble"), "{cut:?}");
}

#[test]
fn a_stream_of_fix_is_recognised_however_it_is_cut_and_goes_on_behind_what_is_garbled() {
    let heartbeat = b"8=FIX.4.4\x019=5\x0135=0\x0110=163\x01";
    let unknown = b"8=FIX.4.4\x019=6\x0135=ZZ\x0110=040\x01";
    let stream = [&heartbeat[..], unknown, b"junk", &heartbeat[..]].concat();
    for piece in 1..=stream.len() {
        let named = named(&stream, piece);
        let named: Vec<(&str, &str)> = named.iter().map(|(kind, name)| (*kind, name.as_str())).collect();
        assert_eq!(named[..2], [("fix", "Heartbeat"), ("fix", "?")], "{piece}");
        assert_eq!(named.last(), Some(&("fix", "Heartbeat")), "{piece}");
        assert!(named[2].1.contains("garbled FIX"), "{piece}: {named:?}");
    }
    let cut = named(&stream[..20], 20);
    assert_eq!(cut.len(), 1, "{cut:?}");
    assert_eq!(cut[0].0, "trouble");
}

#[test]
fn orders_of_ouch_are_found_in_both_directions() {
    use tapeworks_wire::nasdaq::ouch50::{inbound, outbound};
    let up = b"\x00\x0aUX\0\0\0\x01\0\0\0\0\x00\x01R";
    let down = b"\x00\x13SC\0\0\x28\x9b\x4d\x68\x13\x17\0\x75\x3a\x8d\0\0\0\x28U\x00\x01H";
    assert_eq!(named(up, up.len()), [(inbound::SCHEMA.name, "CancelOrder".to_owned())]);
    assert_eq!(named(down, down.len()), [(outbound::SCHEMA.name, "Canceled".to_owned())]);
}

#[test]
fn a_destination_that_changes_its_feed_is_read_as_the_feed_of_each_session() {
    #[derive(Default)]
    struct Schemas(Vec<&'static str>);
    impl Visitor for Schemas {
        fn visit(&mut self, _place: &Place, item: Item<'_>) -> ControlFlow<()> {
            self.0.push(match item {
                Item::Header(header) => match header.publisher {
                    Some(Publisher::IEXG_TOPS) => "tops",
                    Some(Publisher::IEXG_DEEP) => "deep",
                    _ => "another",
                },
                Item::Message(message) => message.schema.name,
                Item::Fix(_) => "fix",
                Item::Trouble(..) => "trouble",
            });
            ControlFlow::Continue(())
        }
    }
    let payload_of = |protocol| {
        let session = SessionId::IexTp { protocol, channel: 1, session: 7 };
        let mut stream = Stream::new(session, 0);
        // A system event, which both feeds have.
        stream.put(&[[b'S', b'O'].as_slice(), &[0; 8]].concat());
        stream.close(0, Content::Messages);
        stream.payload().to_vec()
    };
    let (mut analyser, mut schemas) = (Analyser::new(None), Schemas::default());
    // TOPS, DEEP, and a protocol that no feed supports.
    for payload in [0x8003, 0x8004, 0x8003, 0x8006].map(payload_of) {
        let packet = packet(Transport::Udp, "239.0.0.1:2", &payload);
        assert!(analyser.datagram(&packet, None, &mut Noticing::known(&mut schemas)).is_continue());
    }
    assert_eq!(
        schemas.0,
        ["tops", "iex-tops-1.6", "deep", "iex-deep-1.0", "tops", "iex-tops-1.6", "trouble"]
    );
}

/// Creates a file of System Events at these times of day.
fn events_at(folder: &std::path::Path, name: &str, times: impl Iterator<Item = u64>) -> std::path::PathBuf {
    let mut bytes = Vec::new();
    for time in times {
        bytes.extend_from_slice(&[0, 12, b'S', 0, 0, 0, 0]);
        bytes.extend_from_slice(&time.to_be_bytes()[2..]);
        bytes.push(b'O');
    }
    let path = folder.join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn message_files_are_merged_by_time() {
    let folder = tempfile::tempdir().unwrap();
    let morning = 34_200_000_000_000;
    // Both cover the same second; each message of one file lies between two messages of the other.
    let one = events_at(folder.path(), "a.itch", (0..500).map(|number| morning + number * 2_000_000));
    let other =
        events_at(folder.path(), "b.itch", (0..500).map(|number| morning + number * 2_000_000 + 1_000_000));
    let open = || input::open_all(&[&one, &other], Some(Application::TotalViewItch50)).unwrap();
    let everything = Nanos(0)..Nanos(u64::MAX);
    assert!(input::check_one_day(&open()).is_ok());
    let study =
        study::study(&mut open(), None, &[1_000], None, everything, &mut |_| ControlFlow::Continue(()));
    let stats = stats::count(&mut open(), None, &mut |_| ControlFlow::Continue(()));
    assert_eq!((study.messages, study.servers[0].longest_queue), (1_000, 1));
    assert_eq!(study.peaks[0].messages, 1, "one message a millisecond");
    assert_eq!(stats.messages(), 1_000);
    assert_eq!(stats.peaks[0].messages, 1);
}

#[test]
fn the_first_message_of_line_b_names_the_feed_of_heartbeats_on_line_a() {
    let file =
        concat!(env!("CARGO_MANIFEST_DIR"), "/tests/testdata/captures/utp-uqdf/QuoteShortFormMessage.pcap");
    let mut reader = tapeworks_capture::CaptureReader::open(std::path::Path::new(file)).unwrap();
    let captured = reader.next_packet().unwrap().unwrap();
    let payload = net::parse(captured.link_type, captured.bytes).unwrap().payload.to_vec();
    let mut heartbeat = payload[..20].to_vec();
    heartbeat[18..].fill(0);
    let (mut analyser, mut named) = (Analyser::new(None), Named::default());
    for (destination, payload) in [("233.46.176.16:55630", &heartbeat), ("233.46.177.16:55630", &payload)] {
        let packet = packet(Transport::Udp, destination, payload);
        assert!(analyser.datagram(&packet, None, &mut Noticing::known(&mut named)).is_continue());
    }
    assert_eq!(named.0, [(Application::UtpUqdf15.spec().schema.name, "QuoteShortForm".to_owned())]);
}
