//! Whether bytes are messages of a feed: the first of them must be known and have the right lengths.

use tapeworks_session::Transport;
use tapeworks_wire::DecodeError;
use tapeworks_wire::framing::{Blocks, LengthPrefix};

/// How many messages at the start must be right.
pub(crate) const PROBED_MESSAGES: usize = 8;

/// Whether a UDP payload is a packet of the transport with messages of the feed that `check` reads, or a whole one without messages.
pub(crate) fn packet_fits<T: Transport>(payload: &[u8], check: fn(&[u8]) -> Result<(), DecodeError>) -> bool {
    let Ok(packet) = T::packet(payload) else { return false };
    let is_whole = packet.header.count > 0 || T::is_sound(payload);
    is_whole && messages_fit(packet.blocks, check, T::is_end)
}

/// Whether the blocks of a packet are messages of the feed that `check` reads, up to the end of the payload.
pub(crate) fn blocks_fit<Prefix: LengthPrefix>(
    blocks: Blocks<'_, Prefix>,
    check: fn(&[u8]) -> Result<(), DecodeError>,
) -> bool {
    messages_fit(blocks, check, <[u8]>::is_empty)
}

/// Whether the blocks of a packet are messages of the feed that `check` reads, and what is behind them may be there.
fn messages_fit<Prefix: LengthPrefix>(
    mut blocks: Blocks<'_, Prefix>,
    check: fn(&[u8]) -> Result<(), DecodeError>,
    is_end: fn(&[u8]) -> bool,
) -> bool {
    let mut probed = 0;
    for block in blocks.by_ref() {
        // The capture cut the last block; the blocks before it decide.
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
