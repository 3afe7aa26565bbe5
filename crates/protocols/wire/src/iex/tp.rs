//! IEX-TP 1.0: the transport of IEX's feeds: numbered messages in UDP packets.
//!
//! Source: *IEX Transport Specification* 1.25, "Outbound segments". A segment is a 40-byte header followed by messages with
//! two-byte length prefixes. Little-endian. A segment without messages is a heartbeat, and its first message sequence number is
//! the number of the next message.
//!
//! Cost: the header is one cache line; each message adds the lines it occupies.

use crate::framing::{Blocks, LittleEndian};

tapeworks_wire_macros::protocol! {
    /// Numbered messages in UDP packets: the transport of IEX's feeds.
    protocol "iex-tp-1.0" {
        title: "IEX-TP 1.0",
        version: "1.0",
        endian: little,
        length: exact,
    }

    enum MessageProtocolId: u16 {
        Tops = 0x8003,
        Deep = 0x8004,
        DeepPlus = 0x8005,
    }

    /// Outbound segment.
    header Segment = 40.. bytes {
        version                       @ 0 : u8,
        reserved                      @ 1 : bytes<1>,
        /// The feed that the messages belong to.
        message_protocol_id           @ 2 : MessageProtocolId,
        channel_id                    @ 4 : u32,
        /// Changes with each session, in practice each day.
        session_id                    @ 8 : u32,
        /// Bytes after this header.
        payload_length                @ 12: u16,
        /// 0: heartbeat.
        message_count                 @ 14: u16,
        /// Bytes of payload sent on this channel before this segment.
        stream_offset                 @ 16: u64,
        /// In a heartbeat, of the next message to come.
        first_message_sequence_number @ 24: u64,
        send_time                     @ 32: nanoseconds_since_epoch<i64>,
        messages                      @ 40: blocks<u16, message_count>,
    }
}

impl<'a> Segment<'a> {
    /// Returns whether the segment is a heartbeat, whose first message sequence number is the next message's.
    #[inline]
    #[must_use]
    pub fn is_heartbeat(&self) -> bool {
        self.message_count() == 0
    }

    /// Returns the messages in order. Bytes after the payload length (Ethernet padding) are ignored. If the payload is shorter than
    /// its length says, a block is truncated or missing.
    #[inline]
    #[must_use]
    pub fn blocks(&self) -> Blocks<'a, LittleEndian> {
        let payload = self.messages();
        let payload = payload.get(..usize::from(self.payload_length())).unwrap_or(payload);
        Blocks::counted(payload, u64::from(self.message_count()), LittleEndian)
    }
}
