//! A thread that reads the engine's events until it is stopped or they end, and returns how it ended.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// The running thread. Dropping it stops it, and waits for it.
#[derive(Debug)]
pub struct Worker<E> {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<(), E>>>,
}

impl<E: Send + 'static> Worker<E> {
    /// Starts `work`, which ends soon after `stop` is set.
    pub fn start(
        name: &str,
        stop: Arc<AtomicBool>,
        work: impl FnOnce() -> Result<(), E> + Send + 'static,
    ) -> io::Result<Self> {
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(work)?;
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Whether it has ended: because it was stopped, because the events have ended, or with an error.
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits until it ends by itself. `panicked` is the error when its thread did.
    pub fn join(mut self, panicked: E) -> Result<(), E> {
        self.thread.take().map_or(Ok(()), |thread| thread.join().unwrap_or(Err(panicked)))
    }

    /// Ends it now. `panicked` is the error when its thread did.
    pub fn stop(self, panicked: E) -> Result<(), E> {
        self.stop.store(true, Ordering::Release);
        self.join(panicked)
    }
}

impl<E> Drop for Worker<E> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // `join` and `stop` return how it ended.
            let _ended = thread.join();
        }
    }
}
