//! Ctrl-C: the first ends the work in good order, another ends the program at once.
//!
//! A second signal within a moment of the first is the same request. `timeout` of coreutils sends its signal to the
//! program and then to the whole group, and Ctrl-C in a terminal reaches a program once from the terminal and once more
//! from a program that passes it on.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use tapeworks_capture::stop;

/// Within this time a second signal counts as the same request.
const SAME_REQUEST: Duration = Duration::from_secs(1);

/// Listens for Ctrl-C, and for the polite signals to end.
pub(crate) fn listen() {
    let first: Mutex<Option<Instant>> = Mutex::new(None);
    // Without a handler the signal ends the program, which is no harm: partial files are named so.
    let _ = ctrlc::set_handler(move || {
        stop::request();
        let mut first = first.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if first.get_or_insert_with(Instant::now).elapsed() > SAME_REQUEST {
            std::process::exit(130);
        }
    });
}

/// Whether the user has requested a stop.
pub(crate) fn is_requested() -> bool {
    stop::is_requested()
}
