//! Ctrl-C: the first ends the work in good order, the second at once.

use std::sync::atomic::{AtomicBool, Ordering};

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Listens for Ctrl-C, and for the polite signals to end.
pub(crate) fn listen() {
    // Without a handler the signal ends the program, which is no harm: partial files are named so.
    let _ = ctrlc::set_handler(|| {
        if REQUESTED.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    });
}

/// Whether the user asked to stop.
pub(crate) fn is_requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}
