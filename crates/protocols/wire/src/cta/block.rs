//! CTA's blocks: numbered messages in UDP multicast packets.
//!
//! Source: the public definitions of *CQS Multicast Output Binary* 1.91, block header. Big-endian. A block is a 20-byte header followed by
//! messages, each starting with a two-byte length that includes itself. The multicast group is the channel; numbers restart at 1 each day.
//!
//! The captured block ends in a zero byte, which its size includes: a block has an even length. Its checksum is the sum of all other bytes,
//! modulo 65,536. The definitions state neither.
//!
//! The definitions also do not say what the block sequence number counts. This crate treats it as the number of the first message: the next
//! block's number is greater by the number of messages in this block.
//!
//! Cost: the header shares a cache line with the first message.

use crate::framing::{BigEndian, Blocks, CountsItself};

tapeworks_wire_macros::protocol! {
    /// Numbered messages in UDP multicast packets: the transport of CTA's feeds.
    protocol "cta-block-1.91" {
        title: "CTA block 1.91",
        version: "1.91",
        endian: big,
        length: exact,
    }

    enum RetransmissionIndicator: ascii<1> {
        Original = 'O',
        Retransmitted = 'V',
    }

    /// Block header.
    header BlockHeader = 20.. bytes {
        version                         @ 0 : u8,
        /// Bytes of the block with this header and the padding.
        block_size                      @ 1 : u16,
        /// The feed: `Q` is CQS.
        data_feed_indicator             @ 3 : ascii<1>,
        retransmission_indicator        @ 4 : RetransmissionIndicator,
        /// Of the first message; of a block without messages, of the next one.
        block_sequence_number           @ 5 : u32,
        messages_in_block               @ 9 : u8,
        sip_block_timestamp_seconds     @ 10: seconds_since_epoch<u32>,
        sip_block_timestamp_nanoseconds @ 14: nanoseconds<u32>,
        block_checksum                  @ 18: u16,
        messages                        @ 20: blocks<inclusive u16, messages_in_block>,
    }
}

/// The length prefix of messages: two bytes, which include themselves.
pub type Prefix = CountsItself<BigEndian>;

/// The length prefix as a value.
pub const PREFIX: Prefix = CountsItself::new();

/// Length of the header in bytes.
pub const HEADER_BYTES: usize = 20;

/// The data feed indicator of CQS.
pub const CQS: u8 = b'Q';

impl<'a> BlockHeader<'a> {
    /// Returns the messages in order; the first has the block's sequence number.
    #[inline]
    #[must_use]
    pub fn blocks(&self) -> Blocks<'a, Prefix> {
        let packet = usize::from(self.block_size());
        Blocks::of_packet(
            self.messages(),
            (packet, HEADER_BYTES),
            u64::from(self.messages_in_block()),
            PREFIX,
        )
    }
}

/// Returns whether the bytes after the last message of a block are padding.
#[must_use]
pub const fn is_padding(bytes: &[u8]) -> bool {
    matches!(bytes, [] | [0])
}

/// Computes the checksum of a block, regardless of the checksum in its header.
#[must_use]
pub fn checksum(block: &[u8]) -> u16 {
    let counted = block.iter().enumerate().filter(|(place, _)| !matches!(place, 18 | 19));
    counted.fold(0, |sum, (_, byte)| sum.wrapping_add(u16::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ascii, Nanoseconds, SecondsSinceEpoch};

    #[test]
    fn the_messages_of_a_block_are_walked_up_to_its_padding() {
        let fields = BlockHeaderFields {
            version: 0,
            block_size: 28,
            data_feed_indicator: Ascii([CQS]),
            retransmission_indicator: RetransmissionIndicator::Original,
            block_sequence_number: 7,
            messages_in_block: 2,
            sip_block_timestamp_seconds: SecondsSinceEpoch(0),
            sip_block_timestamp_nanoseconds: Nanoseconds(0),
            block_checksum: 0,
            messages: &[0, 3, b'a', 0, 4, b'b', b'c'],
        };
        let mut bytes = vec![0; 28];
        assert_eq!(fields.encode_into(&mut bytes), Ok(27));
        let block = BlockHeader::decode(&bytes).unwrap();
        let mut blocks = block.blocks();
        let messages: Vec<_> = blocks.by_ref().collect::<Result<_, _>>().unwrap();
        assert_eq!(messages, [&[0, 3, b'a'][..], &[0, 4, b'b', b'c']]);
        assert!(is_padding(blocks.trailing()) && blocks.trailing() == [0]);
        assert!(is_padding(&[]) && !is_padding(&[1]) && !is_padding(&[0, 0]));
        let sum = bytes.iter().map(|byte| u16::from(*byte)).sum::<u16>();
        assert_eq!(checksum(&bytes), sum);
        bytes[18] = 9;
        assert_eq!(checksum(&bytes), sum, "it does not count itself");
    }
}
