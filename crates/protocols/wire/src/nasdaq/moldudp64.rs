//! MoldUDP64 1.0: numbered messages in UDP multicast packets, and requests for missed ones.
//!
//! Source: *MoldUDP64 Protocol Specification* 1.00. A packet contains its session and the sequence number of its first message;
//! the others follow in order. Big-endian. A packet without messages is a heartbeat, and its sequence number is the number of
//! the next message. When the channel is idle, about one heartbeat arrives per second.
//!
//! Cost: the header is one cache line; each message adds the lines it occupies.

use crate::framing::{BigEndian, Blocks};

tapeworks_wire_macros::protocol! {
    /// Numbered messages in UDP multicast packets, and requests for missed ones.
    protocol "nasdaq-moldudp64-1.0" {
        title: "MoldUDP64 1.0",
        version: "1.0",
        endian: big,
        length: exact,
    }

    /// Downstream packet: sent by the exchange, by multicast or in answer to a request.
    header DownstreamPacket = 20.. bytes {
        session         @ 0 : ascii<10>,
        /// The number of the first message; in a heartbeat, of the next message.
        sequence_number @ 10: u64,
        /// 0: heartbeat. 0xFFFF: end of session.
        message_count   @ 18: u16,
        messages        @ 20: blocks<u16, message_count>,
    }

    /// Request packet: requests messages again from the re-request server, by unicast.
    header RequestPacket = 20 bytes {
        session                 @ 0 : ascii<10>,
        /// The number of the first requested message.
        sequence_number         @ 10: u64,
        requested_message_count @ 18: u16,
    }
}

/// Message count of a heartbeat.
pub const HEARTBEAT: u16 = 0;
/// Message count that ends the session.
pub const END_OF_SESSION: u16 = 0xFFFF;

impl<'a> DownstreamPacket<'a> {
    /// Returns whether the packet is a heartbeat, whose sequence number is the next message's.
    #[inline]
    #[must_use]
    pub fn is_heartbeat(&self) -> bool {
        self.message_count() == HEARTBEAT
    }

    /// Returns whether the session ends. The sequence number is one past its last message, and the packet has no messages.
    #[inline]
    #[must_use]
    pub fn is_end_of_session(&self) -> bool {
        self.message_count() == END_OF_SESSION
    }

    /// Returns the number of messages: 0 for a heartbeat and the end of session.
    #[inline]
    #[must_use]
    pub fn count(&self) -> u16 {
        match self.message_count() {
            END_OF_SESSION => 0,
            count => count,
        }
    }

    /// Returns the messages in order; the first has the packet's sequence number.
    #[inline]
    #[must_use]
    pub fn blocks(&self) -> Blocks<'a, BigEndian> {
        Blocks::counted(self.messages(), u64::from(self.count()), BigEndian)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ascii;

    fn packet(message_count: u16, messages: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 20 + messages.len()];
        let session = Ascii(*b"000001234A");
        let fields = DownstreamPacketFields { session, sequence_number: 7, message_count, messages };
        assert_eq!(fields.encode_into(&mut bytes), Ok(bytes.len()));
        bytes
    }

    #[test]
    fn the_messages_of_a_packet_are_walked() {
        let bytes = packet(2, &[0, 1, b'a', 0, 2, b'b', b'c']);
        let view = DownstreamPacket::decode(&bytes).unwrap();
        assert_eq!(view.sequence_number(), 7);
        assert_eq!(view.session().as_str(), Some("000001234A"));
        let messages: Vec<_> = view.blocks().collect::<Result<_, _>>().unwrap();
        assert_eq!(messages, [&b"a"[..], b"bc"]);
    }

    #[test]
    fn heartbeat_and_end_of_session_carry_no_messages() {
        let bytes = packet(0, &[]);
        let heartbeat = DownstreamPacket::decode(&bytes).unwrap();
        assert!(heartbeat.is_heartbeat() && !heartbeat.is_end_of_session());
        assert_eq!(heartbeat.blocks().next(), None);
        let bytes = packet(END_OF_SESSION, &[]);
        let end = DownstreamPacket::decode(&bytes).unwrap();
        assert!(end.is_end_of_session() && !end.is_heartbeat());
        assert_eq!(end.blocks().next(), None);
    }
}
