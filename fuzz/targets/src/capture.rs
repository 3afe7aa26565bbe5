//! Files: captures and framed messages.

use tapeworks_capture::framed::{self, FramedReader};
use tapeworks_capture::source::ByteSource;
use tapeworks_capture::{CaptureReader, Format, LinkType, Resolution, Writer, WriterOptions};

/// A compressed input can be a thousand times as long when it is unpacked: what comes after this many packets or
/// messages is no new case.
const ENOUGH: usize = 10_000;

/// A captured packet, owned.
#[derive(Clone, Debug, PartialEq)]
struct Owned {
    timestamp_ns: u64,
    link_type: LinkType,
    original_length: u32,
    bytes: Vec<u8>,
}

/// Reads to the end or the first error.
fn packets(file: Vec<u8>) -> Option<Vec<Owned>> {
    let mut reader = CaptureReader::new(ByteSource::from_bytes("capture", file)).ok()?;
    let mut packets = Vec::<Owned>::new();
    let mut offset = 0;
    while packets.len() < ENOUGH {
        let peeked = reader.next_timestamp_ns();
        let (peeked, packet) = match (peeked, reader.next_packet()) {
            (Ok(Some(time)), Ok(Some(packet))) => (time, packet),
            (Ok(Some(_)), ended) => panic!("a packet's time came before {ended:?}"),
            _ => break,
        };
        assert_eq!(packet.timestamp_ns, peeked);
        assert_eq!(packet.number, packets.len() as u64 + 1);
        assert!(packets.is_empty() || packet.offset > offset, "{} after {offset}", packet.offset);
        offset = packet.offset;
        assert_eq!(packet.is_cut(), packet.bytes.len() < packet.original_length as usize);
        packets.push(Owned {
            timestamp_ns: packet.timestamp_ns,
            link_type: packet.link_type,
            original_length: packet.original_length,
            bytes: packet.bytes.to_vec(),
        });
    }
    assert_eq!(reader.tally().packets, packets.len() as u64);
    Some(packets)
}

/// A capture file: its packets, written in either format, read the same again.
pub fn capture(bytes: &[u8]) {
    let Some(mut packets) = packets(bytes.to_vec()) else { return };
    let Some(link_type) = packets.first().map(|packet| packet.link_type) else { return };
    // A file that is written has one link type.
    packets.retain(|packet| packet.link_type == link_type);
    for (format, big_endian) in [(Format::Pcap, false), (Format::Pcap, true), (Format::PcapNg, false)] {
        let options = WriterOptions { format, resolution: Resolution::Nanoseconds, link_type, big_endian };
        let mut writer = Writer::new(Vec::new(), options).expect("a Vec takes everything");
        let mut written = Vec::new();
        for packet in &packets {
            // A value outside a format's range (a time beyond 2106 in pcap) is an error, not another packet.
            if writer.write_cut_packet(packet.timestamp_ns, &packet.bytes, packet.original_length).is_ok() {
                written.push(packet.clone());
            }
        }
        let file = writer.finish().expect("a Vec takes everything");
        assert_eq!(self::packets(file).expect("what we wrote is a capture"), written, "{format:?}");
    }
}

/// A file of length-prefixed messages: its messages, written again, are the beginning of the file.
pub fn framed(bytes: &[u8]) {
    let source = ByteSource::from_bytes("framed", bytes.to_vec());
    let is_plain = source.compression() == tapeworks_capture::source::Compression::None;
    let mut reader = FramedReader::new(source).with_batch_bytes(1 << 16);
    let (mut again, mut messages) = (Vec::new(), 0);
    while let Ok(Some(batch)) = reader.next_batch() {
        for frame in batch {
            assert!(!frame.bytes.is_empty());
            if is_plain {
                let at = frame.offset as usize;
                assert_eq!(frame.bytes, &bytes[at..at + frame.bytes.len()]);
            }
            framed::write_frame(&mut again, frame.bytes).expect("no frame read is too long to write");
            messages += 1;
        }
        if messages > ENOUGH {
            return;
        }
    }
    assert_eq!(reader.messages(), messages as u64);
    if is_plain && reader.end_marks() == 0 {
        assert!(bytes.starts_with(&again));
    }
}
