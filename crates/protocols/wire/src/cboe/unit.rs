//! Cboe's sequenced unit header: numbered messages in UDP multicast packets.
//!
//! Source: *Cboe US Equities Multicast Depth of Book (PITCH) Specification* 2.41.64, "Sequenced Unit Header". Little-endian. A packet is
//! an 8-byte header followed by messages, each starting with its length in one byte. The channel is a unit. There is no session:
//! sequence numbers restart at 1 each day. A packet without messages is a heartbeat and carries the next message's number.
//!
//! Cost: the header shares a cache line with the first message.

use crate::framing::{Blocks, CountsItself, OneByte};

tapeworks_wire_macros::protocol! {
    /// Numbered messages in UDP multicast packets: the transport of Cboe's feeds.
    protocol "cboe-sequenced-unit-2.41" {
        title: "Cboe sequenced unit header 2.41",
        version: "2.41",
        endian: little,
        length: exact,
    }

    /// Sequenced unit header.
    header SequencedUnit = 8.. bytes {
        /// Bytes of the packet with this header.
        length   @ 0: u16,
        /// 0: heartbeat.
        count    @ 2: u8,
        unit     @ 3: u8,
        /// Of the first message; of a heartbeat, of the next one.
        sequence @ 4: u32,
        messages @ 8: blocks<inclusive u8, count>,
    }
}

/// The length prefix of messages: one byte, which includes itself.
pub type Prefix = CountsItself<OneByte>;

/// The length prefix as a value.
pub const PREFIX: Prefix = CountsItself::new();

impl<'a> SequencedUnit<'a> {
    /// Returns the messages in order; the first has the packet's sequence number. Bytes after the header's length are ignored.
    #[inline]
    #[must_use]
    pub fn blocks(&self) -> Blocks<'a, Prefix> {
        let packet = usize::from(self.length());
        Blocks::of_packet(self.messages(), (packet, 8), u64::from(self.count()), PREFIX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_messages_of_a_packet_are_walked_to_the_headers_length() {
        let messages = [3, 0x20, 1, 2, 0x2D, 9, 9];
        let fields =
            SequencedUnitFields { length: 13, count: 2, unit: 7, sequence: 5, messages: &messages[..5] };
        let mut bytes = vec![0; 13];
        assert_eq!(fields.encode_into(&mut bytes), Ok(13));
        bytes.extend_from_slice(&messages[5..]);
        let packet = SequencedUnit::decode(&bytes).unwrap();
        let walked: Vec<_> = packet.blocks().collect::<Result<_, _>>().unwrap();
        assert_eq!(walked, [&[3, 0x20, 1][..], &[2, 0x2D]]);
        assert_eq!((packet.unit(), packet.sequence()), (7, 5));
    }
}
