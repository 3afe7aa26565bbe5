//! CTA blocks as a [`Transport`].
//!
//! CTA has no sessions: a channel numbers its messages from 1 each day, and the multicast group identifies the channel.
//! The data feed indicator serves as the session ID here: `Q` is CQS.
//!
//! CTA's retransmission requests are not public. Requests here are for our own servers: a header without messages that
//! carries the number of messages wanted, at most 255. Blocks written here are not padded.

use tapeworks_wire::cta::block::{
    BlockHeader, BlockHeaderFields, HEADER_BYTES, PREFIX, Prefix, RetransmissionIndicator, SCHEMA, checksum,
    is_padding,
};
use tapeworks_wire::schema::{Schema, Structure};
use tapeworks_wire::{Ascii, DecodeError, Nanoseconds, SecondsSinceEpoch};

use crate::transport::{Header, Outgoing, Packet, SessionId, Transport, TransportKind};

const SECOND_NS: u64 = 1_000_000_000;

/// Offset of the retransmission indicator.
const RETRANSMISSION_AT: usize = 4;

/// Position of the checksum.
const CHECKSUM_AT: std::ops::Range<usize> = 18..20;

/// CTA's block header.
#[derive(Clone, Copy, Debug)]
pub struct CtaBlock;

/// Writes a block's checksum into it.
fn seal(block: &mut [u8]) {
    let sum = checksum(block);
    if let Some(place) = block.get_mut(CHECKSUM_AT) {
        place.copy_from_slice(&sum.to_be_bytes());
    }
}

impl Transport for CtaBlock {
    type Prefix = Prefix;

    const KIND: TransportKind = TransportKind::CtaBlock;
    const SCHEMA: &'static Schema = &SCHEMA;
    const HEADER: &'static Structure = &BlockHeader::SCHEMA;
    const HEADER_BYTES: usize = HEADER_BYTES;

    fn session(number: u32) -> SessionId {
        SessionId::CtaBlock(number as u8)
    }

    fn prefix() -> Prefix {
        PREFIX
    }

    #[inline]
    fn packet(payload: &[u8]) -> Result<Packet<'_, Prefix>, DecodeError> {
        BlockHeader::decode(payload).map(|block| Packet {
            header: Header {
                session: SessionId::CtaBlock(block.data_feed_indicator().0[0]),
                first: u64::from(block.block_sequence_number()),
                count: u64::from(block.messages_in_block()),
                is_end_of_session: false,
            },
            header_bytes: HEADER_BYTES,
            blocks: block.blocks(),
        })
    }

    fn length(payload: &[u8]) -> Option<usize> {
        BlockHeader::decode(payload).ok().map(|block| usize::from(block.block_size()))
    }

    fn is_end(behind_messages: &[u8]) -> bool {
        is_padding(behind_messages)
    }

    fn sent_ns(payload: &[u8]) -> Option<u64> {
        let block = BlockHeader::decode(payload).ok().filter(|_| !Self::is_answer(payload))?;
        let seconds = u64::from(block.sip_block_timestamp_seconds().0);
        Some(seconds * SECOND_NS + block.sip_block_timestamp_nanoseconds().0)
    }

    fn is_answer(payload: &[u8]) -> bool {
        BlockHeader::decode(payload)
            .is_ok_and(|block| block.retransmission_indicator() != RetransmissionIndicator::Original)
    }

    fn write_header(header: &Outgoing, target: &mut [u8]) -> usize {
        let SessionId::CtaBlock(indicator) = header.session else { return 0 };
        let fields = BlockHeaderFields {
            version: 0,
            // No packet is longer than MAX_PAYLOAD_BYTES.
            block_size: (HEADER_BYTES + header.payload_bytes) as u16,
            data_feed_indicator: Ascii([indicator]),
            retransmission_indicator: RetransmissionIndicator::Original,
            block_sequence_number: u32::try_from(header.sequence).unwrap_or(u32::MAX),
            // A block has fewer than 256 messages: the shortest message has 26 bytes.
            messages_in_block: u8::try_from(header.messages).unwrap_or(u8::MAX),
            sip_block_timestamp_seconds: SecondsSinceEpoch((header.send_time_ns / SECOND_NS) as u32),
            sip_block_timestamp_nanoseconds: Nanoseconds(header.send_time_ns % SECOND_NS),
            block_checksum: 0,
            messages: &[],
        };
        let written = fields.encode_into(target.get_mut(..HEADER_BYTES).unwrap_or_default());
        // The messages are already in place after the header.
        if let Some(block) = target.get_mut(..HEADER_BYTES + header.payload_bytes) {
            seal(block);
        }
        written.unwrap_or_default()
    }

    fn mark_answer(packet: &mut [u8], _is_only: bool) {
        if let Some(place) = packet.get_mut(RETRANSMISSION_AT) {
            *place = RetransmissionIndicator::Retransmitted.raw();
            seal(packet);
        }
    }
}

#[cfg(test)]
mod tests {
    use tapeworks_wire::cta::block::CQS;

    use super::*;
    use crate::Stream;
    use crate::transport::{Content, Request};

    #[test]
    fn a_block_is_sound_with_a_byte_of_padding_that_its_size_counts() {
        let mut stream = Stream::new(SessionId::CtaBlock(CQS), 0);
        stream.put(&[0, 5, b'C', b'T', 1]);
        stream.close(3 * SECOND_NS + 7, Content::Messages);
        let mut block = stream.payload().to_vec();
        assert!(CtaBlock::is_sound(&block));
        let read = BlockHeader::decode(&block).unwrap();
        assert_eq!(read.block_checksum(), checksum(&block));
        assert_eq!((read.sip_block_timestamp_seconds().0, read.sip_block_timestamp_nanoseconds().0), (3, 7));
        block.push(0);
        assert!(!CtaBlock::is_sound(&block), "its size does not count the padding");
        block[2] += 1;
        assert!(CtaBlock::is_sound(&block));
        block[25] = 1;
        assert!(!CtaBlock::is_sound(&block), "padding is zero");
    }

    #[test]
    fn an_answer_is_marked_and_its_checksum_is_right() {
        let mut block = CtaBlock::request(&Request { session: SessionId::CtaBlock(CQS), first: 7, count: 0 });
        CtaBlock::mark_answer(&mut block, true);
        let read = BlockHeader::decode(&block).unwrap();
        assert_eq!(read.retransmission_indicator(), RetransmissionIndicator::Retransmitted);
        assert_eq!(read.block_checksum(), checksum(&block));
    }
}
