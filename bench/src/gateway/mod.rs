//! The order gateway.

mod machines;

use crate::Options;

pub fn run(options: &Options) {
    let part = options.part.as_deref();
    if part.is_none_or(|part| part == "machines") {
        machines::run(options);
    }
}
