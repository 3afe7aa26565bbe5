//! Which feed a payload is of, from its bytes.
//!
//! A channel is recognised once, at its first certain packet: the lengths of its blocks add up to the payload, and its first
//! messages have known types and right lengths. A heartbeat alone names the transport, which names the feed where the transport
//! carries only one. The [table](crate::FEEDS) has the check of each feed.

use tapeworks_wire::framing::{BigEndian, Blocks};
use tapeworks_wire::nasdaq::soupbintcp;

use crate::probe::PROBED_MESSAGES;
use crate::table::{Application, FEEDS};

/// The application of a UDP payload.
pub fn udp_payload(payload: &[u8]) -> Option<Application> {
    FEEDS.iter().find(|feed| (feed.recognise)(payload)).map(|feed| feed.application)
}

/// Whether a message of a stream or file can be read.
fn is_message(message: &[u8]) -> bool {
    (Application::OF_STREAMS.spec().check)(message).is_ok()
}

/// How a file without packets frames its messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Framing {
    /// Messages behind two-byte lengths: Nasdaq's daily files.
    LengthPrefixed,
    /// SoupBinTCP packets.
    SoupBinTcp,
}

/// The framing of a file or stream that starts with `bytes`: the first messages must be right.
pub fn framing(bytes: &[u8]) -> Option<Framing> {
    let mut blocks = Blocks::new(bytes, BigEndian).filter_map(Result::ok).filter(|block| !block.is_empty());
    let first: Vec<&[u8]> = blocks.by_ref().take(PROBED_MESSAGES).collect();
    if first.is_empty() {
        return None;
    }
    if first.iter().all(|message| is_message(message)) {
        return Some(Framing::LengthPrefixed);
    }
    soup_stream(bytes).then_some(Framing::SoupBinTcp)
}

/// The longest first packet to wait for, in bytes: a login has 49.
const LONGEST_FIRST_PACKET: usize = 4_096;

/// Bytes that the SoupBinTCP packet at the start of `stream` has with its length.
pub(crate) fn first_packet_bytes(stream: &[u8]) -> usize {
    stream.first_chunk::<2>().map_or(2, |length| 2 + usize::from(u16::from_be_bytes(*length)))
}

/// Whether `stream`, the start of a TCP stream, ends inside its first packet if it is SoupBinTCP, so that more of it must
/// come before it can be recognised.
pub fn is_start_cut(stream: &[u8]) -> bool {
    let needed = first_packet_bytes(stream);
    stream.len() < needed && needed <= LONGEST_FIRST_PACKET
}

/// Whether `bytes` start with SoupBinTCP packets, those with data in the messages that streams carry.
pub fn soup_stream(bytes: &[u8]) -> bool {
    let mut packets = 0;
    for packet in soupbintcp::Packets::new(bytes).filter_map(Result::ok).take(PROBED_MESSAGES) {
        packets += 1;
        match soupbintcp::Message::decode(packet) {
            Ok(soupbintcp::Message::SequencedData(data)) if !is_message(data.message()) => {
                return false;
            }
            Ok(_) => {}
            Err(_) => return false,
        }
    }
    packets > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_recognised_as_no_protocol() {
        assert_eq!(udp_payload(&[]), None);
        assert_eq!(udp_payload(&[0; 20]), None, "a session has a name");
        assert_eq!(udp_payload(&[0xFF; 60]), None);
        assert_eq!(udp_payload(b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n"), None);
        assert_eq!(framing(b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n"), None);
        assert_eq!(framing(&[]), None);
    }
}
