//! Where a run starts: valid inputs of every target, made from the schemas and from the captures in `testdata`, and the inputs
//! in `fuzz/seeds`, which found an error or reach code that no other seed reaches.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tapeworks_capture::CaptureReader;
use tapeworks_capture::framed;
use tapeworks_capture::net;
use tapeworks_wire::schema::{Schema, SplitMix64, arbitrary};
use tapeworks_wire::{
    Ascii, AsciiNumber, NanosecondsSinceEpoch, cboe, cta, iex, memx, millennium, nasdaq, nyse, utp,
};

use crate::live::checkpoints;
use crate::packets::{itch_packets, messages, mold_packets, relate};
use crate::venues::SESSION;

/// The longest kept or captured file that becomes a seed, in bytes: mutations of longer ones find less.
const LONGEST: u64 = 4096;

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The files of a folder and of those in it, by name; none when it is not there.
fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    if !folder.is_dir() {
        return Ok(found);
    }
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path)?);
        } else if path.metadata()?.len() <= LONGEST {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// The inputs that `fuzz/seeds` keeps for a target: a line of hexadecimal digits each, between comments that begin
/// with `#`.
///
/// # Errors
/// When the file is there and cannot be read, or holds something else.
pub fn kept(target: &str) -> io::Result<Vec<Vec<u8>>> {
    let path = root().join("fuzz/seeds").join(target).with_extension("hex");
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let bytes = from_hex(line);
            bytes.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("{target}.hex: {line}")))
        })
        .collect()
}

fn from_hex(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

/// Valid inputs of a target.
///
/// # Errors
/// When `testdata` cannot be read.
pub fn made(target: &str) -> io::Result<Vec<Vec<u8>>> {
    let mut random = SplitMix64::new(0x5eed);
    Ok(match target {
        "fix_message" | "fix_session" | "fix_stream" => crate::fix::seeds(target),
        "itch50" => messages(&nasdaq::itch50::SCHEMA, &mut random),
        "tops16" => messages(&iex::tops16::SCHEMA, &mut random),
        "deep10" => messages(&iex::deep10::SCHEMA, &mut random),
        "deep_plus10" => messages(&iex::deep_plus10::SCHEMA, &mut random),
        "pitch" => messages(&cboe::pitch::SCHEMA, &mut random),
        "cfe" => messages(&cboe::futures::SCHEMA, &mut random),
        "integrated" => messages(&nyse::integrated::SCHEMA, &mut random),
        "pillarpacket" => headers(&nyse::packet::SCHEMA, &mut random),
        "mitch" => messages(&millennium::mitch::SCHEMA, &mut random),
        "mitchunit" => headers(&millennium::unit::SCHEMA, &mut random),
        "uqdf" => messages(&utp::uqdf15::SCHEMA, &mut random),
        "cqs" => messages(&cta::cqs191::SCHEMA, &mut random),
        "ctablock" => headers(&cta::block::SCHEMA, &mut random),
        "cboeunit" => headers(&cboe::unit::SCHEMA, &mut random),
        "memoir13" => messages(&memx::depth13::SCHEMA, &mut random),
        "memoirudp" => headers(&memx::udp::SCHEMA, &mut random),
        "request_server" | "requester" => crate::requests::seeds(target),
        "refresh" => crate::venues::refreshes(),
        "retransmission" => requests(),
        "snapshot" => [logins(&mut random), crate::venues::spin_requests()].concat(),
        "snapshot_client" => crate::venues::conversations(),
        "multicast" => {
            let clients = logins(&mut random).into_iter().map(|login| [&[0], &login[..]].concat());
            clients.chain([multicast_packet()]).collect()
        }
        "soupbintcp" => {
            let mut packets = messages(&nasdaq::soupbintcp::SCHEMA, &mut random);
            packets.extend(messages(&nasdaq::glimpse50::SCHEMA, &mut random));
            packets.push(packets.concat());
            packets
        }
        "native" => {
            let mut all = messages(&millennium::native::SCHEMA, &mut random);
            all.iter_mut().for_each(|message| {
                let length = millennium::native::message_length(message.len());
                message[1..3].copy_from_slice(&length.to_le_bytes());
            });
            all.push(all.concat());
            all
        }
        "gateway" => crate::gateway::seeds(),
        "order_exchange" => order_messages(),
        // Login, some messages, a break, and the rest.
        "native_session" | "soup_session" => {
            let carried = [0, 255, 1, 255].repeat(4);
            let reports = [6, 0, 3, 0].repeat(5);
            vec![
                [&carried[..], &reports, &[14, 0, 7, 0, 12, 64, 6, 64], &carried, &reports, &carried]
                    .concat(),
            ]
        }
        "ouch50" => {
            let mut all = messages(&nasdaq::ouch50::inbound::SCHEMA, &mut random);
            all.extend(messages(&nasdaq::ouch50::outbound::SCHEMA, &mut random));
            all.push(b"\x05\x02LIME\x02\x04R\x09\x17\0\0\0\0\0\0\0\x01".to_vec());
            all
        }
        "recovery" => {
            let mut all = messages(&cboe::grp::SCHEMA, &mut random);
            all.extend(messages(&millennium::recovery::SCHEMA, &mut random));
            all.extend(messages(&memx::tcp::SCHEMA, &mut random).into_iter().map(|mut message| {
                let length = (message.len() - memx::tcp::HEADER_BYTES) as u16;
                message[1..3].copy_from_slice(&length.to_be_bytes());
                message
            }));
            all.push(all.concat());
            all
        }
        "moldudp64" => headers(&nasdaq::moldudp64::SCHEMA, &mut random),
        "iextp" => headers(&iex::tp::SCHEMA, &mut random),
        "schema" => [&nasdaq::itch50::SCHEMA, &iex::tops16::SCHEMA, &nasdaq::soupbintcp::SCHEMA]
            .iter()
            .flat_map(|schema| messages(schema, &mut random))
            .collect(),
        "capture" | "feed_capture" => captures()?,
        "framed" | "feed_file" => framed_files(&mut random),
        "net" => packets()?,
        "rewrite" => {
            packets()?.iter().map(|packet| [&noise(33, &mut random), &packet[..]].concat()).collect()
        }
        "feed_packets" => conversations(&payloads()?, &mut random),
        "checkpoint" => checkpoints(&itch_packets()),
        "stream_request" => QUERIES.iter().map(|query| query.as_bytes().to_vec()).collect(),
        _ => (0..8).map(|_| noise(512, &mut random)).collect(),
    })
}

/// Queries of clients of the stream, right and wrong.
const QUERIES: [&str; 6] = [
    "",
    "encoding=protobuf&schema=nbbo,trades&symbols=BRK.B,A,A",
    "symbols=BRK.B%2CA&schema=nbbo%2Ctrades&encoding=json",
    "schema=nbbo&schema=trades",
    "symbols=A%0AB&encoding=xml",
    "symbols=BRK.B,\u{fffd},A",
];

/// Orders of both gateways that trade with each other, behind the acts of the target: which connection, and how many bytes.
fn order_messages() -> Vec<Vec<u8>> {
    use millennium::native::{NewOrder, OrderCancelRequest, message_length};
    let native = |tag: u8, bytes: usize| {
        let mut message = vec![0; bytes];
        message[0] = 2;
        message[1..3].copy_from_slice(&message_length(bytes).to_le_bytes());
        message[3] = tag;
        message
    };
    let order = |name: u8, side: u8, quantity: u8| {
        let mut order = native(NewOrder::TAG, NewOrder::LENGTH);
        (order[4], order[46], order[52], order[58]) = (name, 1, 2, side);
        (order[59], order[63]) = (quantity, quantity);
        order[67..75].copy_from_slice(&1_000_000_000i64.to_le_bytes());
        order[76] = 1;
        order
    };
    let mut cancel = native(OrderCancelRequest::TAG, OrderCancelRequest::LENGTH);
    (cancel[4], cancel[24]) = (b'C', b'A');
    let mut enter = b"\0\x30UO\0\0\0\x01S\0\0\0\x05AAPL    \0\0\0\0\0\x01\x86\xA00YPNN".to_vec();
    enter.extend_from_slice(b"ORDER         \0\0");
    let acts = |messages: &[(u8, &[u8])]| {
        let mut all = vec![0];
        for (line, message) in messages {
            all.extend_from_slice(&[*line, message.len() as u8]);
            all.extend_from_slice(message);
        }
        all
    };
    let (buy, sell) = (order(b'A', 1, 10), order(b'B', 2, 4));
    vec![
        acts(&[(0, &buy), (0, &sell), (0, &cancel)]),
        acts(&[(0, &buy), (2, &enter), (224, b""), (192, b"")]),
        acts(&[(2, &enter), (0, &sell), (2, b"\0\x0AUX\0\0\0\x01\0\0\0\0")]),
    ]
}

/// Requests for messages that the target's stores have, and for others.
fn requests() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for (first, count) in [(1, 1), (3, 20), (12, 0xFFFF), (500, 4), (1, 0)] {
        let mold = nasdaq::moldudp64::RequestPacketFields {
            session: Ascii(SESSION),
            sequence_number: first,
            requested_message_count: count,
        };
        let mut segment = [0; 40];
        let fields = iex::tp::SegmentFields {
            version: 1,
            reserved: [0],
            message_protocol_id: iex::tp::MessageProtocolId::Deep,
            channel_id: 1,
            session_id: 7,
            payload_length: 0,
            message_count: count,
            stream_offset: 0,
            first_message_sequence_number: first,
            send_time: NanosecondsSinceEpoch(0),
            messages: &[],
        };
        fields.encode_into(&mut segment).expect("it has 40 bytes");
        for shape in [0x0F, 0xFA] {
            all.push([&[shape], &mold.encode()[..]].concat());
            all.push([&[shape], &segment[..]].concat());
        }
    }
    all
}

/// A packet with a record of a trade, for a receiver that takes it whole.
fn multicast_packet() -> Vec<u8> {
    let mut block = vec![0, 48, 12, 0];
    block.resize(50, 7);
    let fields = nasdaq::moldudp64::DownstreamPacketFields {
        session: Ascii(SESSION),
        sequence_number: 1,
        message_count: 1,
        messages: &block,
    };
    let mut packet = vec![0; 70];
    fields.encode_into(&mut packet).expect("it has 70 bytes");
    [&[1, 68], &packet[..]].concat()
}

/// Logins at a snapshot server, whole and with other packets.
fn logins(random: &mut SplitMix64) -> Vec<Vec<u8>> {
    let login = |user: &[u8; 6], session: &[u8; 10]| {
        let fields = nasdaq::soupbintcp::LoginRequestFields {
            packet_length: 47,
            username: Ascii(*user),
            password: Ascii(*b"secret    "),
            requested_session: Ascii(*session),
            requested_sequence_number: AsciiNumber([b' '; 20]),
        };
        fields.encode().to_vec()
    };
    let logins =
        [login(b"me    ", b"          "), login(b"you   ", b"          "), login(b"me    ", b"OTHER     ")];
    let all = logins.iter().flat_map(|login| {
        [[&[255], &login[..]].concat(), [&[4], &login[..], &[0, 1, b'R', 0, 1, b'O']].concat()]
    });
    let mut all: Vec<_> = all.collect();
    all.push([vec![9], messages(&nasdaq::soupbintcp::SCHEMA, random).concat()].concat());
    all
}

fn noise(length: usize, random: &mut SplitMix64) -> Vec<u8> {
    (0..length).map(|_| random.next_u64() as u8).collect()
}

/// A few of each header.
fn headers(schema: &Schema, random: &mut SplitMix64) -> Vec<Vec<u8>> {
    schema
        .headers
        .iter()
        .flat_map(|structure| {
            (0..4)
                .map(|_| {
                    let mut bytes = Vec::new();
                    arbitrary(schema, structure, random, &mut bytes);
                    bytes
                })
                .collect::<Vec<_>>()
        })
        .collect()
}

fn captures() -> io::Result<Vec<Vec<u8>>> {
    [files(&root().join("testdata/captures"))?, files(&root().join("testdata/sessions"))?]
        .concat()
        .iter()
        .filter(|path| path.extension().is_none_or(|ending| ending != "md"))
        .map(fs::read)
        .collect()
}

/// The packets of the captures, as they lie.
fn packets() -> io::Result<Vec<Vec<u8>>> {
    let mut found = Vec::new();
    for file in captures()? {
        let source = tapeworks_capture::source::ByteSource::from_bytes("seed", file);
        let Ok(mut reader) = CaptureReader::new(source) else { continue };
        while let Ok(Some(packet)) = reader.next_packet() {
            found.push(packet.bytes.to_vec());
        }
    }
    Ok(found)
}

/// The UDP payloads of the captures.
fn payloads() -> io::Result<Vec<Vec<u8>>> {
    let packets = packets()?;
    let datagrams =
        packets.iter().filter_map(|packet| net::parse(tapeworks_capture::LinkType::ETHERNET, packet).ok());
    Ok(datagrams.map(|datagram| datagram.payload.to_vec()).collect())
}

/// Length-prefixed files: of ITCH, and of SoupBinTCP with ITCH inside.
fn framed_files(random: &mut SplitMix64) -> Vec<Vec<u8>> {
    let messages = messages(&nasdaq::itch50::SCHEMA, random);
    let (mut plain, mut soup) = (Vec::new(), Vec::new());
    for message in &messages {
        let packet = [&[nasdaq::soupbintcp::SequencedData::TAG], message.as_slice()].concat();
        // A Vec takes all bytes, and no message is longer than a frame may be.
        framed::write_frame(&mut plain, message).expect("a message fits a frame");
        framed::write_frame(&mut soup, &packet).expect("a message fits a frame");
    }
    vec![plain, soup]
}

/// Inputs of `feed_packets`: captured payloads one behind the other, MoldUDP64 packets with consecutive numbers and
/// orders that refer to each other, and a SoupBinTCP stream cut anywhere.
fn conversations(payloads: &[Vec<u8>], random: &mut SplitMix64) -> Vec<Vec<u8>> {
    let frame =
        |how: u8, payload: &[u8]| [&[how][..], &(payload.len() as u16).to_le_bytes(), payload].concat();
    let captured: Vec<u8> = payloads.iter().take(24).flat_map(|payload| frame(3, payload)).collect();
    let mut itch = messages(&nasdaq::itch50::SCHEMA, random);
    relate(&mut itch, random);
    let mut mold = Vec::new();
    for (number, packet) in mold_packets(&itch).iter().enumerate() {
        mold.extend(frame((number % 2) as u8, packet));
    }
    let mut stream = Vec::new();
    for message in &itch {
        let packet = [&[nasdaq::soupbintcp::SequencedData::TAG], message.as_slice()].concat();
        framed::write_frame(&mut stream, &packet).expect("a message fits a frame");
    }
    let cut = stream.chunks(61).flat_map(|part| frame(0x80, part)).collect();
    vec![captured, mold, cut]
}
