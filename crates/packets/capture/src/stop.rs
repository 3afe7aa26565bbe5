//! The process's request to stop.
//!
//! A pipe whose other end does nothing blocks forever, and a signal does not end the call. Calls that may block wait here
//! instead and check one flag of the process ten times a second. A program that never calls [`request`] is never stopped.
//! Cost: one relaxed load for [`is_requested`], one `poll` for each wait.

use std::io;
#[cfg(unix)]
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Longest time between two checks of the flag.
pub const LOOK: Duration = Duration::from_millis(100);

/// Requests that all waiting calls stop. A signal handler may call it. Returns whether a stop was already requested.
pub fn request() -> bool {
    REQUESTED.swap(true, Ordering::Relaxed)
}

/// Returns whether [`request`] was called.
#[inline]
pub fn is_requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}

/// The error of a stopped call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("stopped")]
pub struct Stopped;

/// Returns the error of a stopped call.
pub fn stopped() -> io::Error {
    // Not `Interrupted`, because the standard library retries after it.
    io::Error::other(Stopped)
}

/// Returns whether `error` comes from a stopped call.
pub fn is_stopped(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Stopped>())
}

/// Sleeps for `time`, or less if a stop is requested.
pub fn sleep(time: Duration) {
    let end = std::time::Instant::now().checked_add(time);
    while !is_requested() {
        let left = end.map_or(LOOK, |end| end.saturating_duration_since(std::time::Instant::now()));
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left.min(LOOK));
    }
}

/// The condition to wait for.
#[cfg(unix)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum For {
    /// The descriptor is readable, or its other end is closed.
    Reading,
    /// 4,096 bytes can be written, or the other end is closed.
    Writing,
}

/// Waits until `descriptor` is ready.
///
/// # Errors
/// [`stopped`] if a stop is requested first; errors of `poll`.
#[cfg(unix)]
pub fn wait(descriptor: BorrowedFd<'_>, what: For) -> io::Result<()> {
    let events = match what {
        For::Reading => libc::POLLIN,
        For::Writing => libc::POLLOUT,
    };
    loop {
        let mut poll = libc::pollfd { fd: descriptor.as_raw_fd(), events, revents: 0 };
        // SAFETY: `poll` is one valid `pollfd` that lives through the call, and its descriptor is borrowed.
        let ready = unsafe { libc::poll(&raw mut poll, 1, LOOK.as_millis() as libc::c_int) };
        if ready > 0 {
            return Ok(());
        }
        if ready < 0 {
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        if is_requested() {
            return Err(stopped());
        }
    }
}
