//! The gateway's store, and the thread for the disk's slow work.

use std::io;
use std::sync::Arc;

use tapeworks_journal::{Finished, IoTask, JournalError};
use tapeworks_runtime::world::{Receive as _, SendTo as _, ThreadHandle as _, Wake as _, World};

use crate::ledger::Ledger;

/// The journal, and the thread that does its slow work.
pub(super) struct Store<W: World> {
    pub(super) ledger: Ledger<W>,
    pub(super) disk: DiskThread<W>,
    /// Why the store is unusable, if its files were removed.
    pub(super) gone: Option<String>,
}

impl<W: World> Store<W> {
    /// Gives the journal the finished tasks. Reports those that failed.
    pub(super) fn finish_tasks(&mut self, mut failed: impl FnMut(JournalError)) {
        while let Ok(finished) = self.disk.finished.try_recv() {
            if let Err(error) = self.ledger.finish(finished) {
                failed(error);
            }
        }
    }

    /// Gives the thread the next task, if one is due.
    pub(super) fn begin_task(&mut self, now_ns: u64) {
        if let Some(task) = self.ledger.task(now_ns)
            && let Some(tasks) = &self.disk.tasks
        {
            // Without the thread, the journal does the work itself when it must.
            let _given = tasks.send(task);
        }
    }
}

/// Performs the disk's slow work.
pub(super) struct DiskThread<W: World> {
    tasks: Option<W::Sender<IoTask<W>>>,
    finished: W::Receiver<Finished<W>>,
    thread: Option<W::Handle<()>>,
}

impl<W: World> DiskThread<W> {
    pub(super) fn start(waker: Arc<W::Waker>) -> io::Result<Self> {
        let (tasks, received) = W::channel::<IoTask<W>>();
        let (done, finished) = W::channel();
        let thread = W::spawn("gateway-disk", move || {
            while let Ok(task) = received.recv() {
                if done.send(task.run()).is_err() {
                    return;
                }
                let _woken = waker.wake();
            }
        })?;
        Ok(Self { tasks: Some(tasks), finished, thread: Some(thread) })
    }
}

impl<W: World> Drop for DiskThread<W> {
    fn drop(&mut self) {
        self.tasks = None;
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}
