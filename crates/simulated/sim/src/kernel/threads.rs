//! Threads as the world shows them.

use std::sync::{Arc, Mutex, PoisonError};

use tapeworks_runtime::world::{ThreadHandle, Unpark};

use super::{TaskId, Waits, wait, with};

/// A handle to a simulated thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SimThread(Option<TaskId>);

/// Returns the running thread.
pub(crate) fn current() -> SimThread {
    SimThread(with(|kernel| kernel.current()))
}

impl Unpark for SimThread {
    fn unpark(&self) {
        if let Some(task) = self.0 {
            with(|kernel| kernel.unpark(task));
        }
    }
}

/// A simulated thread that returns a `T`.
pub struct SimHandle<T> {
    task: TaskId,
    outcome: Arc<Mutex<Option<std::thread::Result<T>>>>,
}

impl<T> std::fmt::Debug for SimHandle<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SimHandle({:?})", self.task)
    }
}

/// Starts a thread; `None` if the process was killed.
pub(crate) fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<SimHandle<T>> {
    let outcome = Arc::new(Mutex::new(None));
    let its = Arc::clone(&outcome);
    let task = super::spawn(name, work, move |ended| {
        *its.lock().unwrap_or_else(PoisonError::into_inner) = Some(ended);
    })?;
    Some(SimHandle { task, outcome })
}

impl<T: Send + 'static> ThreadHandle<T> for SimHandle<T> {
    fn is_finished(&self) -> bool {
        with(|kernel| kernel.is_done(self.task))
    }

    fn unpark(&self) {
        with(|kernel| kernel.unpark(self.task));
    }

    fn join(self) -> std::thread::Result<T> {
        while !with(|kernel| {
            let is_over = kernel.is_done(self.task) || kernel.is_dead();
            if !is_over {
                kernel.add_joiner(self.task);
            }
            is_over
        }) {
            wait(Waits::End, None);
        }
        let outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner).take();
        outcome.unwrap_or_else(|| Err(Box::new("the process was killed")))
    }
}

/// Waits until the running thread is unparked or the deadline passes.
pub(crate) fn park(until_ns: u64) {
    if with(super::Kernel::take_permit) {
        return;
    }
    wait(Waits::Park, Some(until_ns));
    let _used = with(super::Kernel::take_permit);
}
