//! Pillar packets with messages other than those of a channel.

use tapeworks_wire::nyse::packet::{DeliveryFlag, HEADER_BYTES, PillarPacketFields};
use tapeworks_wire::{Nanoseconds, SecondsSinceEpoch};

pub(super) const SECOND_NS: u64 = 1_000_000_000;

/// Returns a message's type.
pub(crate) fn tag(message: &[u8]) -> u16 {
    message.get(2..4).and_then(|tag| tag.try_into().ok()).map_or(0, u16::from_le_bytes)
}

/// Builds a packet sent at `utc_ns` with one message, or with none as a heartbeat.
pub(crate) fn packet(message: &[u8], number: u32, utc_ns: u64) -> Vec<u8> {
    let flag = if message.is_empty() { DeliveryFlag::Heartbeat } else { DeliveryFlag::Original };
    packet_of(flag, u8::from(!message.is_empty()), message, number, utc_ns)
}

/// Builds a packet of `count` messages, which have at most 1,500 bytes.
pub(super) fn packet_of(
    delivery_flag: DeliveryFlag,
    count: u8,
    messages: &[u8],
    sequence: u32,
    utc_ns: u64,
) -> Vec<u8> {
    let mut packet = vec![0; HEADER_BYTES + messages.len()];
    let fields = PillarPacketFields {
        length: packet.len() as u16,
        delivery_flag,
        count,
        sequence,
        send_time: SecondsSinceEpoch((utc_ns / SECOND_NS) as u32),
        send_time_nanoseconds: Nanoseconds(utc_ns % SECOND_NS),
        messages,
    };
    let written = fields.encode_into(&mut packet);
    debug_assert!(written.is_ok(), "the packet has its room: {written:?}");
    packet
}
