//! Recognises messages of a feed: the first ones must have known types and correct lengths.

use tapeworks_session::Transport;
use tapeworks_wire::DecodeError;
use tapeworks_wire::framing::{Blocks, LengthPrefix};

/// How many messages at the start must be correct.
pub(crate) const PROBED_MESSAGES: usize = 8;

/// Returns whether a UDP payload is a packet of the transport with messages that `check` accepts, or a complete one without
/// messages.
pub(crate) fn packet_fits<T: Transport>(payload: &[u8], check: fn(&[u8]) -> Result<(), DecodeError>) -> bool {
    let Ok(packet) = T::packet(payload) else { return false };
    let is_whole = packet.header.count > 0 || T::is_sound(payload);
    is_whole && messages_fit(packet.blocks, check, T::is_end)
}

/// Returns whether a packet's blocks are messages that `check` accepts, up to the end of the payload.
pub(crate) fn blocks_fit<Prefix: LengthPrefix>(
    blocks: Blocks<'_, Prefix>,
    check: fn(&[u8]) -> Result<(), DecodeError>,
) -> bool {
    messages_fit(blocks, check, <[u8]>::is_empty)
}

/// Returns whether a packet's blocks are messages that `check` accepts. `is_end` decides whether the bytes after them are
/// allowed.
fn messages_fit<Prefix: LengthPrefix>(
    mut blocks: Blocks<'_, Prefix>,
    check: fn(&[u8]) -> Result<(), DecodeError>,
    is_end: fn(&[u8]) -> bool,
) -> bool {
    let mut probed = 0;
    for block in blocks.by_ref() {
        // The capture truncated the last block; the blocks before it decide.
        let Ok(block) = block else { return probed > 0 };
        if probed < PROBED_MESSAGES {
            match check(block) {
                Ok(()) => {}
                // One unknown type may be a new one; a packet that starts with one is something else.
                Err(DecodeError::UnknownMessage { .. }) if probed > 0 => {}
                Err(_) => return false,
            }
            probed += 1;
        }
    }
    is_end(blocks.trailing())
}
