//! Ctrl-C: the first ends the work in good order, a later one ends the program immediately.
//!
//! A second signal shortly after the first counts as the same request. `timeout` of coreutils signals the program and then its
//! whole group, and a Ctrl-C in a terminal reaches a program twice if its parent forwards the signal.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use tapeworks_capture::stop;

/// Within this time a second signal counts as the same request.
const SAME_REQUEST: Duration = Duration::from_secs(1);

/// Listens for Ctrl-C, SIGTERM and SIGHUP.
pub(crate) fn listen() {
    let first: Mutex<Option<Instant>> = Mutex::new(None);
    // Without a handler the signal ends the program. That is harmless, because partial files have distinct names.
    let _ = ctrlc::set_handler(move || {
        stop::request();
        let mut first = first.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if first.get_or_insert_with(Instant::now).elapsed() > SAME_REQUEST {
            std::process::exit(130);
        }
    });
}

/// Returns whether the user has requested a stop.
pub(crate) fn is_requested() -> bool {
    stop::is_requested()
}
