//! Whether bytes are messages of a feed: the first of them must be known and have the right lengths.

use tapeworks_wire::DecodeError;
use tapeworks_wire::framing::{Blocks, LengthPrefix};

/// How many messages at the start must be right.
pub(crate) const PROBED_MESSAGES: usize = 8;

/// Whether the blocks of a packet are messages of the feed that `check` reads, up to the end of the payload.
pub(crate) fn blocks_fit<Prefix: LengthPrefix>(
    mut blocks: Blocks<'_, Prefix>,
    check: fn(&[u8]) -> Result<(), DecodeError>,
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
    blocks.trailing().is_empty()
}
