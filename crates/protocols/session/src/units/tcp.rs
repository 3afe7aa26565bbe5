//! Units on a connection. The header of the server's and client's own messages has unit 0 and number 0.

use std::ops::Range;

use tapeworks_wire::cboe::unit::SequencedUnit;

use crate::dialect::connection::{Connection, LoginLimits, each_block, leading_length};
use crate::dialect::snapshots::{BLOCK_BYTES, Image, Input, SnapshotFailure};
use crate::transport::SessionId;

/// Length of the header in bytes.
pub(crate) const HEADER_BYTES: usize = 8;

/// A header without messages.
pub(crate) const HEARTBEAT: [u8; HEADER_BYTES] = [8, 0, 0, 0, 0, 0, 0, 0];

/// Creates connections with units of at most this length.
pub(crate) const fn connection(
    longest_bytes: usize,
    limits: LoginLimits,
    login: fn([&[u8]; 3], Option<&SessionId>) -> Vec<u8>,
) -> Connection {
    Connection {
        header_bytes: HEADER_BYTES,
        longest_bytes,
        accepts_longer: false,
        packet_bytes: leading_length,
        each_message,
        packet: |message, _, _| packet(message),
        heartbeat: &HEARTBEAT,
        limits,
        login,
    }
}

fn each_message(packet: &[u8], each: &mut dyn FnMut(&[u8])) -> bool {
    SequencedUnit::decode(packet).is_ok_and(|unit| {
        let bytes = packet.len().saturating_sub(HEADER_BYTES);
        each_block(unit.blocks(), usize::from(unit.count()), bytes, each)
    })
}

/// Builds a unit with one message, or with none as a heartbeat.
pub(crate) fn packet(message: &[u8]) -> Vec<u8> {
    let mut unit = HEARTBEAT.to_vec();
    unit.extend_from_slice(message);
    // A message has at most 255 bytes.
    let length = unit.len() as u16;
    if let Some([low, high, count, ..]) = unit.get_mut(..) {
        [*low, *high] = length.to_le_bytes();
        *count = u8::from(!message.is_empty());
    }
    unit
}

/// Appends a message to an image, in the last unit while it has room.
pub(crate) fn append(image: &mut Image, message: &[u8], adds_order: bool) {
    let length = image.packets.len() - image.block;
    let count = image.packets.get(image.block + 2).copied().unwrap_or(u8::MAX);
    if count == u8::MAX || length + message.len() > BLOCK_BYTES {
        image.block = image.packets.len();
        image.packets.extend_from_slice(&HEARTBEAT);
    }
    image.orders += u32::from(adds_order);
    image.packets.extend_from_slice(message);
    // A message has at most 255 bytes, so a unit has at most 1,400.
    let length = (image.packets.len() - image.block) as u16;
    if let Some([low, high, count, ..]) = image.packets.get_mut(image.block..) {
        [*low, *high] = length.to_le_bytes();
        *count += 1;
    }
}

/// Reads the next message of a unit; `None` until more bytes arrive.
pub(crate) fn next_message(input: &mut Input) -> Result<Option<Range<usize>>, SnapshotFailure> {
    while input.left == 0 {
        let Some([low, high, count, ..]) = input.rest().first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let (length, count) = (usize::from(u16::from_le_bytes([*low, *high])), *count);
        SnapshotFailure::Malformed.unless(length > HEADER_BYTES && count > 0 || length == HEADER_BYTES)?;
        if input.rest().len() < length {
            return Ok(None);
        }
        (input.left, input.packet_end) = (count, input.at + length);
        input.at += HEADER_BYTES;
    }
    let length = input.rest().first().map_or(0, |length| usize::from(*length));
    let range = input.at..input.at + length;
    input.left -= 1;
    let is_sound = length >= 2
        && if input.left == 0 { range.end == input.packet_end } else { range.end < input.packet_end };
    SnapshotFailure::Malformed.unless(is_sound)?;
    input.at = range.end;
    Ok(Some(range))
}
