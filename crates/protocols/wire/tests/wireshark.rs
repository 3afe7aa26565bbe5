//! The generated dissector in a real tshark: it must see the same fields with the same values in the captures as the
//! decoder does. Where no tshark is installed there is nothing to compare with, and the test says so.

#![allow(clippy::unwrap_used)]

mod capture_files;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use capture_files::{captures, payloads};
use tapeworks_wire::schema::{Decoded, Schema, SplitMix64, Value, arbitrary};
use tapeworks_wire::{
    Ascii, Nanoseconds, NanosecondsSinceEpoch, SecondsSinceEpoch, cboe, cta, iex, memx, millennium, nasdaq,
    nyse, protocols, utp,
};
use tempfile::NamedTempFile;

fn tshark(script: &Path, arguments: &[&str]) -> String {
    let output = Command::new("tshark")
        .arg("-X")
        .arg(format!("lua_script:{}", script.display()))
        .args(arguments)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && !errors.contains("Lua"), "{errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn is_installed() -> bool {
    let found = Command::new("tshark").arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        eprintln!("tshark is not installed: nothing to compare the dissector with");
    }
    found
}

/// The dissector's script, in a file that is removed with the value.
fn script() -> NamedTempFile {
    let file = tempfile::Builder::new().suffix(".lua").tempfile().unwrap();
    std::fs::write(file.path(), tapeworks_wire::wireshark(protocols())).unwrap();
    file
}

fn snake(title: &str) -> String {
    title.to_lowercase().replace(' ', "_")
}

/// The values of a message's fields as tshark prints them, under the dissector's field names.
fn expect(values: &mut BTreeMap<String, Vec<String>>, schema: &Schema, decoded: Decoded<'_>) {
    let protocol = schema.name.replace(['-', '.'], "_");
    let structure = snake(decoded.structure.unwrap().title);
    decoded.for_each_field(|found| {
        let mut name = format!("{protocol}.{structure}.{}", found.field.name);
        let text = match found.value {
            Value::Decimal { raw, .. } => {
                name.push_str("_raw");
                raw.to_string()
            }
            Value::Text(text) => String::from_utf8_lossy(text).into_owned(),
            Value::Enum { schema, bytes, .. } if schema.text => {
                String::from_utf8_lossy(bytes).trim_end().to_owned()
            }
            Value::Enum { raw, .. } => raw.to_string(),
            Value::Flags { raw, .. } => format!("{raw:#04x}"),
            Value::Bytes(_) if found.field.length == 0 => return,
            Value::Nanoseconds(raw)
            | Value::NanosecondsSinceMidnight(raw)
            | Value::NanosecondsSinceEpoch(raw)
            | Value::SecondsSinceMidnight(raw)
            | Value::SecondsSinceEpoch(raw) => raw.to_string(),
            other => other.to_string(),
        };
        values.entry(name).or_default().push(text);
    });
}

/// Compares what tshark shows of a capture with the expected values. Returns how many there were.
fn compare(script: &Path, file: &Path, expected: &BTreeMap<String, Vec<String>>) -> usize {
    let file = file.to_str().unwrap();
    let mut arguments = vec!["-r", file, "-T", "fields", "-E", "separator=|", "-E", "aggregator=;"];
    for name in expected.keys() {
        arguments.extend(["-e", name]);
    }
    let printed = tshark(script, &arguments);
    let mut shown = vec![Vec::new(); expected.len()];
    for line in printed.lines() {
        for (values, column) in shown.iter_mut().zip(line.split('|')) {
            // A blank value and no value print alike: a packet without the field has an empty column.
            values.extend(column.split(';').map(str::to_owned));
        }
    }
    let mut compared = 0;
    for ((name, values), shown) in expected.iter().zip(shown) {
        let without_blank =
            |values: &[String]| values.iter().filter(|value| !value.is_empty()).cloned().collect::<Vec<_>>();
        assert_eq!(without_blank(&shown), without_blank(values), "{name} in {file}");
        compared += values.len();
    }
    compared
}

#[test]
fn tshark_shows_the_fields_that_the_decoder_reads() {
    if !is_installed() {
        return;
    }
    let script = script();
    let mut compared = 0;
    let folders = [
        "nasdaq-itch50",
        "nasdaq-bx-itch50",
        "iex-tops15",
        "iex-tops16",
        "iex-deep",
        "memx-memoir-depth",
        "cboe-pitch-options",
        "cboe-pitch-futures",
        "nyse-pillar-integrated",
        "utp-uqdf",
        "cta-cqs",
    ];
    for folder in folders {
        for file in captures(folder) {
            let mut expected = BTreeMap::new();
            for payload in payloads(&file) {
                if folder.starts_with("nasdaq") {
                    let schema = &nasdaq::moldudp64::SCHEMA;
                    expect(&mut expected, schema, schema.headers[0].decode(&payload));
                    for block in nasdaq::moldudp64::DownstreamPacket::decode(&payload).unwrap().blocks() {
                        let schema = &nasdaq::itch50::SCHEMA;
                        expect(&mut expected, schema, schema.decode(block.unwrap()));
                    }
                } else if folder.starts_with("utp") {
                    let schema = &nasdaq::moldudp64::SCHEMA;
                    expect(&mut expected, schema, schema.headers[0].decode(&payload));
                    for block in nasdaq::moldudp64::DownstreamPacket::decode(&payload).unwrap().blocks() {
                        let schema = &utp::uqdf15::SCHEMA;
                        expect(&mut expected, schema, schema.decode(block.unwrap()));
                    }
                } else if folder.starts_with("cta") {
                    let schema = &cta::block::SCHEMA;
                    expect(&mut expected, schema, schema.headers[0].decode(&payload));
                    for block in cta::block::BlockHeader::decode(&payload).unwrap().blocks() {
                        let schema = &cta::cqs191::SCHEMA;
                        expect(&mut expected, schema, schema.decode(block.unwrap()));
                    }
                } else if folder.starts_with("cboe") {
                    let schema = &cboe::unit::SCHEMA;
                    expect(&mut expected, schema, schema.headers[0].decode(&payload));
                    for block in cboe::unit::SequencedUnit::decode(&payload).unwrap().blocks() {
                        let block = block.unwrap();
                        // Messages of one length that both have are shown as those of equities.
                        let has = |schema: &&&Schema| {
                            let structure = schema.decode(block).structure;
                            structure.is_some_and(|structure| structure.minimum_length == block.len())
                        };
                        let schema = [&cboe::pitch::SCHEMA, &cboe::futures::SCHEMA].iter().find(has).copied();
                        let schema = schema.unwrap_or(&cboe::futures::SCHEMA);
                        expect(&mut expected, schema, schema.decode(block));
                    }
                } else if folder.starts_with("nyse") {
                    let schema = &nyse::packet::SCHEMA;
                    expect(&mut expected, schema, schema.headers[0].decode(&payload));
                    for block in nyse::packet::PillarPacket::decode(&payload).unwrap().blocks() {
                        let schema = &nyse::integrated::SCHEMA;
                        expect(&mut expected, schema, schema.decode(block.unwrap()));
                    }
                } else if folder.starts_with("memx") {
                    // A heartbeat is too short to be recognised without the port.
                    let Ok(packet) = memx::udp::SequencedPacket::decode(&payload) else { continue };
                    let schema = &memx::udp::SCHEMA;
                    expect(&mut expected, schema, schema.headers[0].decode(&payload));
                    for block in packet.blocks() {
                        let schema = &memx::depth13::SCHEMA;
                        expect(&mut expected, schema, schema.decode(block.unwrap()));
                    }
                } else {
                    let (header, deep) = (&iex::tp::SCHEMA, folder == "iex-deep");
                    expect(&mut expected, header, header.headers[0].decode(&payload));
                    for block in iex::tp::Segment::decode(&payload).unwrap().blocks() {
                        let schema = if deep { &iex::deep10::SCHEMA } else { &iex::tops16::SCHEMA };
                        expect(&mut expected, schema, schema.decode(block.unwrap()));
                    }
                }
            }
            if expected.is_empty() {
                continue;
            }
            compared += compare(script.path(), &file, &expected);
        }
    }
    assert!(compared > 700, "only {compared} values were compared");
}

#[test]
fn tshark_shows_the_orders_of_ouch() {
    if !is_installed() {
        return;
    }
    let script = script();
    let mut compared = 0;
    for file in captures("nasdaq-ouch50") {
        let mut expected = BTreeMap::new();
        for payload in payloads(&file) {
            let (schema, outer) = (&nasdaq::soupbintcp::SCHEMA, payload.as_slice());
            expect(&mut expected, schema, schema.decode(outer));
            let inner = match nasdaq::soupbintcp::Message::decode(outer).unwrap() {
                nasdaq::soupbintcp::Message::SequencedData(data) => {
                    Some((&nasdaq::ouch50::outbound::SCHEMA, data.message()))
                }
                nasdaq::soupbintcp::Message::UnsequencedData(data) => {
                    Some((&nasdaq::ouch50::inbound::SCHEMA, data.message()))
                }
                _ => None,
            };
            if let Some((schema, message)) = inner {
                expect(&mut expected, schema, schema.decode(message));
            }
        }
        compared += compare(script.path(), &file, &expected);
    }
    assert!(compared > 35, "only {compared} values were compared");
}

/// The header of a capture of Ethernet frames with microseconds.
const CAPTURE_HEADER: [u8; 24] =
    [0xD4, 0xC3, 0xB2, 0xA1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0];

/// A capture file of frames, in each of which a payload stands behind the headers that `headers` makes of its number and length.
fn capture(payloads: &[Vec<u8>], headers: impl Fn(usize, usize) -> Vec<u8>) -> NamedTempFile {
    let mut bytes = CAPTURE_HEADER.to_vec();
    for (number, payload) in payloads.iter().enumerate() {
        let headers = headers(number, payload.len());
        let length = ((headers.len() + payload.len()) as u32).to_le_bytes();
        bytes.extend_from_slice(&[0; 8]);
        bytes.extend_from_slice(&[length, length].concat());
        bytes.extend_from_slice(&headers);
        bytes.extend_from_slice(payload);
    }
    let file = tempfile::Builder::new().suffix(".pcap").tempfile().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    file
}

/// A capture file of TCP segments with these payloads, each of a connection of its own.
fn tcp_capture(payloads: &[Vec<u8>]) -> NamedTempFile {
    capture(payloads, |number, length| {
        let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
        bytes.extend_from_slice(&((length + 40) as u16).to_be_bytes());
        bytes.extend_from_slice(&[0, 1, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        bytes.extend_from_slice(&(0xC000 + number as u16).to_be_bytes());
        bytes.extend_from_slice(&[0x23, 0x3D, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x18, 0x20, 0, 0, 0, 0, 0]);
        bytes
    })
}

#[test]
fn tshark_shows_each_message_of_the_native_gateway() {
    use tapeworks_wire::millennium::native::{SCHEMA, message_length};
    if !is_installed() {
        return;
    }
    let script = script();
    let mut random = SplitMix64::new(0x7a9e);
    let (mut payloads, mut expected) = (Vec::new(), BTreeMap::new());
    for structure in SCHEMA.messages {
        let mut bytes = Vec::new();
        arbitrary(&SCHEMA, structure, &mut random, &mut bytes);
        let length = message_length(bytes.len());
        bytes[1..3].copy_from_slice(&length.to_le_bytes());
        expect(&mut expected, &SCHEMA, SCHEMA.decode(&bytes));
        payloads.push(bytes);
    }
    // tshark prints a second that has no date otherwise, and text that is no text too.
    expected.retain(|name, _| !name.contains("transact_time"));
    let compared = compare(script.path(), tcp_capture(&payloads).path(), &expected);
    assert!(compared > 250, "only {compared} values were compared");
}

/// A packet with one message of a session that has packets of Cboe's layout.
fn unit_of(message: &[u8]) -> Vec<u8> {
    let mut bytes = vec![8 + message.len() as u8, 0, 1, 0, 0, 0, 0, 0];
    bytes.extend_from_slice(message);
    bytes
}

#[test]
fn tshark_shows_each_message_of_the_sessions_of_recovery_and_takes_none_for_another() {
    if !is_installed() {
        return;
    }
    let script = script();
    let mut random = SplitMix64::new(0x7a9e);
    let mut compared = 0;
    let (grp, mitch) = (&cboe::grp::SCHEMA, &millennium::recovery::SCHEMA);
    for (schema, other) in [(grp, mitch), (mitch, grp)] {
        let made = |structure, random: &mut SplitMix64| {
            let mut message = Vec::new();
            arbitrary(schema, structure, random, &mut message);
            message[0] = message.len() as u8;
            message
        };
        let login = made(&schema.messages[0], &mut random);
        for structure in schema.messages {
            let message = made(structure, &mut random);
            let fields = |messages: &[&[u8]]| {
                let mut expected = BTreeMap::new();
                messages.iter().for_each(|message| expect(&mut expected, schema, schema.decode(message)));
                expected
            };
            // Behind a login the connection is known.
            let behind = tcp_capture(&[[unit_of(&login), unit_of(&message)].concat()]);
            compared += compare(script.path(), behind.path(), &fields(&[&login, &message]));
            let alone = tcp_capture(&[unit_of(&message)]);
            let twin = other.message(structure.tag.unwrap());
            let is_shared = twin.is_some_and(|twin| twin.minimum_length == structure.minimum_length);
            if is_shared {
                let printed = tshark(script.path(), &["-r", alone.path().to_str().unwrap(), "-V"]);
                assert!(!printed.contains(schema.title), "{}: {printed}", structure.name);
            } else {
                compared += compare(script.path(), alone.path(), &fields(&[&message]));
            }
        }
    }
    let schema = &memx::tcp::SCHEMA;
    for structure in schema.messages {
        let mut message = Vec::new();
        arbitrary(schema, structure, &mut random, &mut message);
        if structure.name == "SequencedMessage" {
            let feed = &memx::depth13::SCHEMA;
            message.truncate(3);
            arbitrary(feed, &feed.messages[0], &mut random, &mut message);
        }
        let length = message.len() as u16 - 3;
        message[1..3].copy_from_slice(&length.to_be_bytes());
        let file = tcp_capture(&[message.clone()]);
        if length > 0 {
            let mut expected = BTreeMap::new();
            expect(&mut expected, schema, schema.decode(&message));
            expected.retain(|name, _| !name.ends_with("token") && !name.ends_with(".message"));
            compared += compare(script.path(), file.path(), &expected);
        } else {
            let printed = tshark(script.path(), &["-r", file.path().to_str().unwrap(), "-V"]);
            assert!(!printed.contains(schema.title), "{}: {printed}", structure.name);
        }
    }
    assert!(compared > 120, "only {compared} values were compared");
}

/// A capture file of UDP packets with these payloads.
fn udp_capture(payloads: &[Vec<u8>]) -> NamedTempFile {
    capture(payloads, |_, length| {
        let mut bytes = vec![1, 0, 0x5E, 1, 2, 3, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
        bytes.extend_from_slice(&((length + 28) as u16).to_be_bytes());
        bytes.extend_from_slice(&[
            0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 239, 1, 2, 3, 0x28, 0x8A, 0x28, 0x8A,
        ]);
        bytes.extend_from_slice(&((length + 8) as u16).to_be_bytes());
        bytes.extend_from_slice(&[0, 0]);
        bytes
    })
}

/// A segment of IEX-TP with one message.
fn iex_segment(protocol: iex::tp::MessageProtocolId, message: &[u8]) -> Vec<u8> {
    let block = [&(message.len() as u16).to_le_bytes()[..], message].concat();
    let fields = iex::tp::SegmentFields {
        version: 1,
        reserved: [0],
        message_protocol_id: protocol,
        channel_id: 1,
        session_id: 7,
        payload_length: block.len() as u16,
        message_count: 1,
        stream_offset: 0,
        first_message_sequence_number: 3,
        send_time: NanosecondsSinceEpoch(1_763_096_400_000_000_000),
        messages: &block,
    };
    let mut bytes = vec![0; 40 + block.len()];
    assert_eq!(fields.encode_into(&mut bytes), Ok(bytes.len()));
    bytes
}

/// Feeds of which no capture is at hand.
#[test]
fn tshark_shows_each_message_of_feeds_without_captures() {
    if !is_installed() {
        return;
    }
    let script = script();
    let mut random = SplitMix64::new(0x7a9e);
    let mut compared = 0;
    let schema = &iex::deep_plus10::SCHEMA;
    let (mut payloads, mut expected) = (Vec::new(), BTreeMap::new());
    for structure in schema.messages {
        let mut message = Vec::new();
        arbitrary(schema, structure, &mut random, &mut message);
        let payload = iex_segment(iex::tp::MessageProtocolId::DeepPlus, &message);
        expect(&mut expected, schema, schema.decode(&message));
        payloads.push(payload);
    }
    // tshark prints a second that has no date otherwise, and text that is no text too.
    expected.retain(|name, _| !name.contains("timestamp"));
    compared += compare(script.path(), udp_capture(&payloads).path(), &expected);
    assert!(compared > 45, "only {compared} values were compared");
    let (unit, schema) = (&cboe::unit::SCHEMA, &cboe::pitch::SCHEMA);
    let (mut payloads, mut expected) = (Vec::new(), BTreeMap::new());
    for structure in schema.messages {
        let mut message = Vec::new();
        arbitrary(schema, structure, &mut random, &mut message);
        message[0] = message.len() as u8;
        let fields = cboe::unit::SequencedUnitFields {
            length: 8 + message.len() as u16,
            count: 1,
            unit: 5,
            sequence: 77,
            messages: &message,
        };
        let mut payload = vec![0; 8 + message.len()];
        assert_eq!(fields.encode_into(&mut payload), Ok(payload.len()));
        expect(&mut expected, unit, unit.headers[0].decode(&payload));
        expect(&mut expected, schema, schema.decode(&message));
        payloads.push(payload);
    }
    compared += compare(script.path(), udp_capture(&payloads).path(), &expected);
    assert!(compared > 200, "only {compared} values were compared");
    let (packet, schema) = (&nyse::packet::SCHEMA, &nyse::integrated::SCHEMA);
    let (mut payloads, mut expected) = (Vec::new(), BTreeMap::new());
    for structure in schema.messages {
        let mut message = Vec::new();
        arbitrary(schema, structure, &mut random, &mut message);
        let length = (message.len() as u16).to_le_bytes();
        message[..2].copy_from_slice(&length);
        let fields = nyse::packet::PillarPacketFields {
            length: 16 + message.len() as u16,
            delivery_flag: nyse::packet::DeliveryFlag::Original,
            count: 1,
            sequence: 77,
            send_time: SecondsSinceEpoch(1_763_096_400),
            send_time_nanoseconds: Nanoseconds(5),
            messages: &message,
        };
        let mut payload = vec![0; 16 + message.len()];
        assert_eq!(fields.encode_into(&mut payload), Ok(payload.len()));
        expect(&mut expected, packet, packet.headers[0].decode(&payload));
        expect(&mut expected, schema, schema.decode(&message));
        payloads.push(payload);
    }
    compared += compare(script.path(), udp_capture(&payloads).path(), &expected);
    assert!(compared > 550, "only {compared} values were compared");
    let (unit, schema) = (&millennium::unit::SCHEMA, &millennium::mitch::SCHEMA);
    let (mut payloads, mut expected) = (Vec::new(), BTreeMap::new());
    for structure in schema.messages {
        let mut message = Vec::new();
        arbitrary(schema, structure, &mut random, &mut message);
        message[0] = message.len() as u8;
        let fields = millennium::unit::UnitHeaderFields {
            length: 8 + message.len() as u16,
            message_count: 1,
            market_data_group: Ascii(*b"1"),
            sequence_number: 77,
            messages: &message,
        };
        let mut payload = vec![0; 8 + message.len()];
        assert_eq!(fields.encode_into(&mut payload), Ok(payload.len()));
        expect(&mut expected, unit, unit.headers[0].decode(&payload));
        expect(&mut expected, schema, schema.decode(&message));
        payloads.push(payload);
    }
    compared += compare(script.path(), udp_capture(&payloads).path(), &expected);
    assert!(compared > 700, "only {compared} values were compared");
}

#[test]
fn tshark_marks_cut_and_unknown_messages() {
    if !is_installed() {
        return;
    }
    let script = script();
    let file = captures("nasdaq-itch50")
        .into_iter()
        .find(|file| file.ends_with("AddOrderNoMpidAttributionMessage.pcap"))
        .unwrap();
    let good = std::fs::read(&file).unwrap();
    let payload = payloads(&file).remove(0);
    let start = good.windows(payload.len()).position(|window| window == payload).unwrap();
    for (fault, expert) in
        [(b'z', "Unknown message type"), (b'F', "Cut: AddOrderWithMpid needs bytes up to 40, 36 there")]
    {
        let mut faulty = good.clone();
        faulty[start + 22] = fault;
        let copy = tempfile::Builder::new().suffix(".pcap").tempfile().unwrap();
        std::fs::write(copy.path(), faulty).unwrap();
        let shown = tshark(script.path(), &["-r", copy.path().to_str().unwrap(), "-V"]);
        assert!(shown.contains(expert), "{expert} is not in:\n{shown}");
    }
}
