//! A thread with its own async runtime, which serves until it is dropped.

use std::io;
use std::thread::JoinHandle;

use tokio::sync::oneshot;

/// The running thread. Dropping it closes the open connections and waits for the thread.
#[derive(Debug)]
pub(super) struct Serving {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Serving {
    /// Runs `serve` on a new thread with this name. The future is polled only there, so it can create objects that need the runtime.
    ///
    /// # Errors
    /// The thread or its runtime could not be started.
    pub(super) fn start(name: &str, serve: impl Future<Output = ()> + Send + 'static) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let run = move || {
            runtime.block_on(async {
                tokio::select! {
                    () = serve => {}
                    _ = stopped => {}
                }
            });
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // The thread may have ended already.
            let _gone = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            // The thread returns no result.
            let _ended = thread.join();
        }
    }
}
