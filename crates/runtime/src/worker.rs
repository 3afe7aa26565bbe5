//! A thread that reads the engine's events until it is stopped or they end, and returns how it ended.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::world::{System, ThreadHandle as _, World};

/// The running thread. Dropping it stops it, and waits for it.
#[derive(Debug)]
pub struct Worker<E: Send + 'static, W: World = System> {
    stop: Arc<AtomicBool>,
    thread: Option<W::Handle<Result<(), E>>>,
}

impl<E: Send + 'static, W: World> Worker<E, W> {
    /// Starts `work`, which ends soon after `stop` is set.
    pub fn start(
        name: &str,
        stop: Arc<AtomicBool>,
        work: impl FnOnce() -> Result<(), E> + Send + 'static,
    ) -> io::Result<Self> {
        let thread = W::spawn(name, work)?;
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Whether it has ended: because it was stopped, because the events have ended, or with an error.
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(|thread| thread.is_finished())
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

impl<E: Send + 'static, W: World> Drop for Worker<E, W> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // `join` and `stop` return how it ended.
            let _ended = thread.join();
        }
    }
}
