//! MITCH's unit header: numbered messages in UDP multicast packets.
//!
//! Source: the public definitions of the London Stock Exchange's *MIT303 Level 2 MITCH* 11.9, "Unit Header". Little-endian. A packet is an
//! 8-byte header followed by messages, each starting with its one-byte length. The channel is a market data group, named by a letter or digit.
//! There is no session: sequence numbers restart at 1 each day. A packet without messages is a heartbeat with the next message's number.
//!
//! The layout equals [Cboe's sequenced unit header](crate::cboe::unit), with the group in place of the unit. The bytes alone do not
//! distinguish the two.
//!
//! Cost: the header shares a cache line with the first message.

use crate::framing::Blocks;

pub use crate::cboe::unit::{PREFIX, Prefix};

tapeworks_wire_macros::protocol! {
    /// Numbered messages in UDP multicast packets: the transport of MITCH.
    protocol "lse-mitch-unit-11.9" {
        title: "LSE MITCH unit header 11.9",
        version: "11.9",
        endian: little,
        length: exact,
    }

    /// Unit header.
    header UnitHeader = 8.. bytes {
        /// Bytes of the packet with this header.
        length            @ 0: u16,
        /// 0: heartbeat.
        message_count     @ 2: u8,
        market_data_group @ 3: ascii<1>,
        /// Of the first message; of a heartbeat, of the next one.
        sequence_number   @ 4: u32,
        messages          @ 8: blocks<inclusive u8, message_count>,
    }
}

impl<'a> UnitHeader<'a> {
    /// Returns the messages in order; the first has the packet's sequence number. Bytes after the header's length are ignored.
    #[inline]
    #[must_use]
    pub fn blocks(&self) -> Blocks<'a, Prefix> {
        let packet = usize::from(self.length());
        Blocks::of_packet(self.messages(), (packet, 8), u64::from(self.message_count()), PREFIX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ascii;
    use crate::cboe::unit::{self, SequencedUnit};

    #[test]
    fn the_header_has_the_layout_of_cboes() {
        let places = |structure: &crate::schema::Structure| {
            structure.fields.iter().map(|field| (field.offset, field.length)).collect::<Vec<_>>()
        };
        assert_eq!(places(&SCHEMA.headers[0]), places(&unit::SCHEMA.headers[0]));
        let messages = [3, 0x54, 1, 2, 0x53, 9, 9];
        let fields = UnitHeaderFields {
            length: 13,
            message_count: 2,
            market_data_group: Ascii(*b"5"),
            sequence_number: 5,
            messages: &messages[..5],
        };
        let mut bytes = vec![0; 13];
        assert_eq!(fields.encode_into(&mut bytes), Ok(13));
        bytes.extend_from_slice(&messages[5..]);
        let packet = UnitHeader::decode(&bytes).unwrap();
        let walked: Vec<_> = packet.blocks().collect::<Result<_, _>>().unwrap();
        assert_eq!(walked, [&[3, 0x54, 1][..], &[2, 0x53]]);
        let cboes = SequencedUnit::decode(&bytes).unwrap();
        assert_eq!((cboes.unit(), cboes.sequence(), cboes.count()), (b'5', 5, 2));
        assert!(cboes.blocks().map(Result::unwrap).eq(walked));
    }
}
