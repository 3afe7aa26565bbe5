//! Which protocol a payload is in, from its bytes.
//!
//! A channel is recognised once, at its first packet that leaves no doubt: the lengths of the blocks must add up to
//! the payload and the first messages must be of known types and right lengths. A heartbeat alone names the transport,
//! which for us names the application.

use serde::{Deserialize, Serialize};
use tapeworks_wire::framing::{BigEndian, Blocks};
use tapeworks_wire::iex::tp::{MessageProtocolId, Segment};
use tapeworks_wire::iex::{deep10, tops16};
use tapeworks_wire::nasdaq::moldudp64::DownstreamPacket;
use tapeworks_wire::nasdaq::{itch50, soupbintcp};

/// What is spoken on a channel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Application {
    /// Nasdaq TotalView-ITCH 5.0.
    TotalViewItch50,
    /// IEX TOPS 1.6 (and 1.5, whose messages are the same).
    IexTops16,
    /// IEX DEEP 1.0.
    IexDeep10,
}

impl Application {
    /// The protocol's name in [`tapeworks_wire::protocol_by_name`].
    pub const fn protocol(self) -> &'static str {
        match self {
            Self::TotalViewItch50 => itch50::SCHEMA.name,
            Self::IexTops16 => tops16::SCHEMA.name,
            Self::IexDeep10 => deep10::SCHEMA.name,
        }
    }

    /// The application of a protocol's name or alias.
    pub fn by_name(name: &str) -> Option<Self> {
        let schema = tapeworks_wire::protocol_by_name(name)?.schema;
        [Self::TotalViewItch50, Self::IexTops16, Self::IexDeep10]
            .into_iter()
            .find(|application| application.protocol() == schema.name)
    }
}

/// How many messages at the start must be right.
const PROBED_MESSAGES: usize = 8;

/// The application of a UDP payload over MoldUDP64 or IEX-TP.
pub fn udp_payload(payload: &[u8]) -> Option<Application> {
    segment(payload).or_else(|| downstream_packet(payload))
}

/// The application of an IEX-TP segment.
pub fn segment(payload: &[u8]) -> Option<Application> {
    let segment = Segment::decode(payload).ok()?;
    let length = usize::from(segment.payload_length());
    // Ethernet pads short frames, so there may be more bytes than the header says; never fewer in a whole packet, but
    // a capture may have cut it.
    if segment.version() != 1 || segment.reserved() != [0] || (segment.message_count() == 0) != (length == 0)
    {
        return None;
    }
    match segment.message_protocol_id() {
        MessageProtocolId::Tops => Some(Application::IexTops16),
        MessageProtocolId::Deep => Some(Application::IexDeep10),
        MessageProtocolId::Unknown(_) => None,
    }
}

/// The application of a MoldUDP64 downstream packet.
pub fn downstream_packet(payload: &[u8]) -> Option<Application> {
    let packet = DownstreamPacket::decode(payload).ok()?;
    let session = packet.session().0;
    let is_text = session.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ' || *byte == 0);
    if !is_text || !session.iter().any(u8::is_ascii_graphic) {
        return None;
    }
    let mut blocks = packet.blocks();
    let mut probed = 0;
    for block in blocks.by_ref() {
        // A cut last block is the capture's doing; the ones before it decide.
        let Ok(block) = block else { return (probed > 0).then_some(Application::TotalViewItch50) };
        if probed < PROBED_MESSAGES {
            match itch50::Message::decode(block) {
                Ok(_) => {}
                // One unknown type may be a new one; a packet that starts with one is something else.
                Err(tapeworks_wire::DecodeError::UnknownMessage { .. }) if probed > 0 => {}
                Err(_) => return None,
            }
            probed += 1;
        }
    }
    // Ethernet pads a frame to 60 bytes; the network headers take 42 of them, so a padded payload has at most 18 bytes,
    // fewer than this header. IP lengths are trusted before, so nothing may trail.
    blocks.trailing().is_empty().then_some(Application::TotalViewItch50)
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
    if first.iter().all(|message| itch50::Message::decode(message).is_ok()) {
        return Some(Framing::LengthPrefixed);
    }
    soup_stream(bytes).then_some(Framing::SoupBinTcp)
}

/// A first packet longer than this, in bytes, is not waited for: a login has 49.
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

/// Whether `bytes` start with SoupBinTCP packets, those with data in ITCH.
pub fn soup_stream(bytes: &[u8]) -> bool {
    let mut packets = 0;
    for packet in soupbintcp::Packets::new(bytes).filter_map(Result::ok).take(PROBED_MESSAGES) {
        packets += 1;
        match soupbintcp::Message::decode(packet) {
            Ok(soupbintcp::Message::SequencedData(data))
                if itch50::Message::decode(data.message()).is_err() =>
            {
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
    fn noise_is_in_no_protocol() {
        assert_eq!(udp_payload(&[]), None);
        assert_eq!(udp_payload(&[0; 20]), None, "a session has a name");
        assert_eq!(udp_payload(&[0xFF; 60]), None);
        assert_eq!(udp_payload(b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n"), None);
        assert_eq!(framing(b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n"), None);
        assert_eq!(framing(&[]), None);
    }

    #[test]
    fn applications_are_known_by_the_names_of_their_protocols() {
        assert_eq!(Application::by_name("itch"), Some(Application::TotalViewItch50));
        assert_eq!(Application::by_name("iex-deep"), Some(Application::IexDeep10));
        assert_eq!(Application::by_name("soupbintcp"), None, "a transport is no application");
    }
}
