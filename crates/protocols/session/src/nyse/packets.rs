//! Pillar packets on a connection.

use tapeworks_wire::nyse::packet::{DeliveryFlag, HEADER_BYTES, PillarPacket, PillarPacketFields};
use tapeworks_wire::{Nanoseconds, SecondsSinceEpoch};

use crate::dialect::connection::{Connection, LoginLimits, SECOND_NS, each_block, leading_length};

/// Connections without a login: each request names its source.
pub(super) const CONNECTION: Connection = Connection {
    header_bytes: HEADER_BYTES,
    // A client's packets have at most 40 bytes, a server's 45.
    longest_bytes: 512,
    accepts_longer: false,
    packet_bytes: leading_length,
    each_message,
    packet,
    heartbeat: &[],
    limits: LoginLimits { source: 10, has_channel: true, ..LoginLimits::NONE },
    login: |_, _| Vec::new(),
};

/// Passes on each message of a packet. Returns `false`, and passes none, if they do not match the header.
pub(super) fn each_message(packet: &[u8], each: &mut dyn FnMut(&[u8])) -> bool {
    PillarPacket::decode(packet).is_ok_and(|pillar| {
        let bytes = packet.len().saturating_sub(HEADER_BYTES);
        each_block(pillar.blocks(), usize::from(pillar.count()), bytes, each)
    })
}

/// Returns whether a packet has no messages.
pub(super) fn is_heartbeat(packet: &[u8]) -> bool {
    packet.get(3) == Some(&0)
}

/// Returns a packet's number.
pub(super) fn number(packet: &[u8]) -> Option<u32> {
    PillarPacket::decode(packet).ok().map(|packet| packet.sequence())
}

/// Returns a message's type.
pub(super) fn tag(message: &[u8]) -> u16 {
    message.get(2..4).and_then(|tag| tag.try_into().ok()).map_or(0, u16::from_le_bytes)
}

/// Builds a packet sent at `utc_ns` with one message, or with none as a heartbeat.
pub(super) fn packet(message: &[u8], number: u32, utc_ns: u64) -> Vec<u8> {
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
