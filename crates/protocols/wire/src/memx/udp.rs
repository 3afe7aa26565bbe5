//! MEMOIR UDP: numbered messages in UDP multicast packets.
//!
//! Source: the public definitions of MEMX's *MEMOIR Depth* 1.3, common header. Big-endian. Every packet starts with the 18-byte
//! common header. In a packet of type 2, a count and length-prefixed messages (two bytes) follow. The other types, heartbeat and end
//! of session, consist of the header alone; their sequence number is the next message's.
//!
//! Cost: the header is one cache line; each message adds the lines it occupies.

use crate::framing::{BigEndian, Blocks};

tapeworks_wire_macros::protocol! {
    /// Numbered messages in UDP multicast packets: the transport of MEMX's feeds.
    protocol "memx-memoir-udp-1.3" {
        title: "MEMX MEMOIR UDP 1.3",
        version: "1.3",
        endian: big,
        length: exact,
    }

    enum MessageType: u8 {
        Heartbeat = 0,
        SessionShutdown = 1,
        SequencedMessages = 2,
    }

    /// Sequenced messages.
    header SequencedPacket = 20.. bytes {
        message_type    @ 0 : MessageType,
        /// Bytes of the common header: 18.
        header_length   @ 1 : u8,
        session_id      @ 2 : u64,
        /// The number of the first message.
        sequence_number @ 10: u64,
        message_count   @ 18: u16,
        messages        @ 20: blocks<u16, message_count>,
    }

    /// Common header: all of a heartbeat and of a session shutdown.
    header CommonHeader = 18 bytes {
        message_type    @ 0 : MessageType,
        /// Bytes of this header: 18.
        header_length   @ 1 : u8,
        session_id      @ 2 : u64,
        /// The number of the next message.
        sequence_number @ 10: u64,
    }
}

/// Length of the common header in bytes.
pub const HEADER_LENGTH: u8 = 18;

impl<'a> SequencedPacket<'a> {
    /// Returns the messages in order; the first has the packet's sequence number.
    #[inline]
    #[must_use]
    pub fn blocks(&self) -> Blocks<'a, BigEndian> {
        Blocks::counted(self.messages(), u64::from(self.message_count()), BigEndian)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_messages_of_a_packet_are_walked() {
        let mut bytes = vec![0; 27];
        let fields = SequencedPacketFields {
            message_type: MessageType::SequencedMessages,
            header_length: HEADER_LENGTH,
            session_id: 5,
            sequence_number: 7,
            message_count: 2,
            messages: &[0, 1, b'a', 0, 2, b'b', b'c'],
        };
        assert_eq!(fields.encode_into(&mut bytes), Ok(27));
        let packet = SequencedPacket::decode(&bytes).unwrap();
        let messages: Vec<_> = packet.blocks().collect::<Result<_, _>>().unwrap();
        assert_eq!(messages, [&b"a"[..], b"bc"]);
        let common = CommonHeader::decode(&bytes).unwrap();
        assert_eq!((common.session_id(), common.sequence_number()), (5, 7));
    }
}
