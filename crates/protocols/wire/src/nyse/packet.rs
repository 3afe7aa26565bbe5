//! The packet header of NYSE's Pillar feeds: numbered messages in UDP multicast packets.
//!
//! Source: *NYSE Pillar Common Client Specification*, "Packet Header". Little-endian. A packet is a 16-byte header followed by
//! messages, each starting with its two-byte length. There is no session and no channel number: the multicast group is the channel, and
//! sequence numbers restart at 1 each day. A heartbeat has no messages and carries the next message's number.
//!
//! The delivery flag says which sequence the packet belongs to. Refreshes, and responses that messages are unavailable, are numbered
//! outside the channel's sequence: [`DeliveryFlag::is_of_channel`].
//!
//! Cost: the header shares a cache line with the first message.

use crate::framing::{Blocks, CountsItself, LittleEndian};

tapeworks_wire_macros::protocol! {
    /// Numbered messages in UDP multicast packets: the transport of NYSE's feeds.
    protocol "nyse-pillar-packet-2.5" {
        title: "NYSE Pillar packet header 2.5",
        version: "2.5",
        endian: little,
        length: exact,
    }

    enum DeliveryFlag: u8 {
        Heartbeat = 1,
        PillarFailover = 10,
        Original = 11,
        SequenceNumberReset = 12,
        OneRetransmissionPacket = 13,
        RetransmissionSequence = 15,
        OneRefreshPacket = 17,
        RefreshSequenceStart = 18,
        RefreshSequence = 19,
        RefreshSequenceEnd = 20,
        MessageUnavailable = 21,
    }

    /// Packet header.
    header PillarPacket = 16.. bytes {
        /// Bytes of the packet with this header.
        length                @ 0 : u16,
        delivery_flag         @ 2 : DeliveryFlag,
        count                 @ 3 : u8,
        /// Of the first message; of a heartbeat, of the next one.
        sequence              @ 4 : u32,
        send_time             @ 8 : seconds_since_epoch<u32>,
        send_time_nanoseconds @ 12: nanoseconds<u32>,
        messages              @ 16: blocks<inclusive u16, count>,
    }
}

/// The length prefix of messages: two bytes, which include themselves.
pub type Prefix = CountsItself<LittleEndian>;

/// The length prefix as a value.
pub const PREFIX: Prefix = CountsItself::new();

/// Length of the header in bytes.
pub const HEADER_BYTES: usize = 16;

impl DeliveryFlag {
    /// Returns whether the packet is numbered in the channel's sequence.
    #[inline]
    #[must_use]
    pub const fn is_of_channel(self) -> bool {
        matches!(
            self,
            Self::Original
                | Self::Heartbeat
                | Self::RetransmissionSequence
                | Self::OneRetransmissionPacket
                | Self::SequenceNumberReset
                | Self::PillarFailover
        )
    }
}

impl<'a> PillarPacket<'a> {
    /// Returns the messages in order; the first has the packet's sequence number. Bytes after the header's length are ignored.
    #[inline]
    #[must_use]
    pub fn blocks(&self) -> Blocks<'a, Prefix> {
        let packet = usize::from(self.length());
        Blocks::of_packet(self.messages(), (packet, HEADER_BYTES), u64::from(self.count()), PREFIX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Nanoseconds, SecondsSinceEpoch};

    #[test]
    fn the_messages_of_a_packet_are_walked_to_the_headers_length() {
        let messages = [5, 0, 100, 0, 1, 4, 0, 102, 0, 9, 9];
        let fields = PillarPacketFields {
            length: 25,
            delivery_flag: DeliveryFlag::Original,
            count: 2,
            sequence: 5,
            send_time: SecondsSinceEpoch(7),
            send_time_nanoseconds: Nanoseconds(8),
            messages: &messages[..9],
        };
        let mut bytes = vec![0; 25];
        assert_eq!(fields.encode_into(&mut bytes), Ok(25));
        bytes.extend_from_slice(&messages[9..]);
        let packet = PillarPacket::decode(&bytes).unwrap();
        let walked: Vec<_> = packet.blocks().collect::<Result<_, _>>().unwrap();
        assert_eq!(walked, [&[5, 0, 100, 0, 1][..], &[4, 0, 102, 0]]);
        assert_eq!((packet.sequence(), packet.delivery_flag().is_of_channel()), (5, true));
        assert!(!DeliveryFlag::RefreshSequence.is_of_channel());
    }
}
