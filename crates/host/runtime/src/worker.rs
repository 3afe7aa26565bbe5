//! A thread that reads the engine's events and returns its result.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::world::{System, ThreadHandle as _, World};

/// A running thread. Dropping it stops the thread and waits for it.
#[derive(Debug)]
pub struct Worker<E: Send + 'static, W: World = System> {
    stop: Arc<AtomicBool>,
    thread: Option<W::Handle<Result<(), E>>>,
}

impl<E: Send + 'static, W: World> Worker<E, W> {
    /// Starts `work`, which must end soon after `stop` is set.
    pub fn start(
        name: &str,
        stop: Arc<AtomicBool>,
        work: impl FnOnce() -> Result<(), E> + Send + 'static,
    ) -> io::Result<Self> {
        let thread = W::spawn(name, work)?;
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Returns whether the thread has ended: it was stopped, the events ended, or it failed.
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(|thread| thread.is_finished())
    }

    /// Waits until the thread ends by itself. Returns `panicked` if the thread panicked.
    pub fn join(mut self, panicked: E) -> Result<(), E> {
        self.thread.take().map_or(Ok(()), |thread| thread.join().unwrap_or(Err(panicked)))
    }

    /// Stops the thread and waits for it. Returns `panicked` if the thread panicked.
    pub fn stop(self, panicked: E) -> Result<(), E> {
        self.stop.store(true, Ordering::Release);
        self.join(panicked)
    }
}

impl<E: Send + 'static, W: World> Drop for Worker<E, W> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // `join` and `stop` return the result; here it is ignored.
            let _ended = thread.join();
        }
    }
}
