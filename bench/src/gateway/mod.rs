//! The order gateway: its FIX codec.

mod codec;

use crate::Options;

pub fn run(options: &Options) {
    let part = options.part.as_deref();
    let wants = |name| part.is_none_or(|part| part == name);
    if wants("codec") {
        codec::run(options.rounds);
    }
}
