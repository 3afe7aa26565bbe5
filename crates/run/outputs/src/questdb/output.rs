//! The threads that send records to QuestDB.

use std::sync::{Arc, Mutex};
use std::thread;
use std::thread::JoinHandle;
use std::time::Duration;

use tapeworks_market::Event;
use tapeworks_ring::disruptor::{Consumer, Single};
use tapeworks_ring::wait::WaitStrategy;

use crate::begin::Begin;
use crate::reader::Reader;
use tapeworks_market::BookOptions;
use tapeworks_runtime::worker::Worker;

use super::database::Database;
use super::failure::{QuestDbError, QuestDbFailure};
use super::queue::Queue;
use super::reader::{Making, Repeating};
use super::sender::Sending;
use super::{QuestDbSetting, QuestDbStatus};

/// The QuestDB output. Dropping it stops it.
#[derive(Debug)]
pub struct QuestDb {
    queue: Arc<Queue>,
    reader: Option<Worker<QuestDbFailure>>,
    others: Vec<JoinHandle<()>>,
}

/// How long the reader sleeps without a wake-up.
const IDLE_SLEEP: Duration = Duration::from_micros(100);

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, QuestDbError> {
    thread::Builder::new().name(name.to_owned()).spawn(run).map_err(QuestDbError::Thread)
}

/// Starts sending the records of the events from `consumer`. It also starts without a server: see [`QuestDb::status`].
///
/// # Errors
/// [`QuestDbError`].
pub fn start<S: WaitStrategy + 'static>(
    setting: QuestDbSetting,
    books: &BookOptions,
    consumer: Consumer<Event, S, Single>,
    begin: Begin,
) -> Result<QuestDb, QuestDbError> {
    let history = begin.history.clone().filter(|_| setting.send_again);
    let queue = Arc::new(Queue::new(setting.queue_bytes, history.is_some()));
    let database = Database::new(&setting)?;
    let sending = Sending::new(Arc::clone(&queue), setting.clone(), database);
    let repeating = history.map(|history| Repeating {
        queue: Arc::clone(&queue),
        schemas: setting.schemas.clone(),
        books: books.clone(),
        history,
    });
    let making = Making::new(Arc::clone(&queue), setting, books);
    let reader = Reader::new(making, consumer, begin, IDLE_SLEEP);
    queue.publish();
    // From here on an error drops this value, which stops the running threads.
    let mut started = QuestDb { queue, reader: None, others: Vec::new() };
    started.others.push(spawn("questdb send", move || sending.run())?);
    if let Some(repeating) = repeating {
        started.others.push(spawn("questdb again", move || repeating.run())?);
    }
    started.reader = Some(reader.start("questdb", Making::ended).map_err(QuestDbError::Thread)?);
    Ok(started)
}

impl QuestDb {
    /// Returns the status for another thread, at most some tenths of a second old.
    pub fn status_handle(&self) -> Arc<Mutex<QuestDbStatus>> {
        self.queue.published()
    }

    /// Returns the current status.
    pub fn status(&self) -> QuestDbStatus {
        self.queue.status()
    }

    /// Returns whether the reader has ended.
    pub fn is_finished(&self) -> bool {
        self.reader.as_ref().is_none_or(Worker::is_finished)
    }

    /// Waits until the engine has ended and the queued rows are sent, or until the linger time is over. Returns the status.
    ///
    /// # Errors
    /// [`QuestDbFailure`] if the output failed.
    pub fn join(mut self) -> Result<QuestDbStatus, QuestDbFailure> {
        self.end(false)?;
        Ok(self.queue.status())
    }

    /// Stops the output immediately, without sending the queued rows. Returns the status.
    ///
    /// # Errors
    /// [`QuestDbFailure`] if it had failed before.
    pub fn stop(mut self) -> Result<QuestDbStatus, QuestDbFailure> {
        self.end(true)?;
        Ok(self.queue.status())
    }

    fn end(&mut self, is_stopped: bool) -> Result<(), QuestDbFailure> {
        if is_stopped {
            self.queue.stop();
        }
        let ended = match self.reader.take() {
            Some(reader) if is_stopped => reader.stop(QuestDbFailure::Panicked),
            Some(reader) => reader.join(QuestDbFailure::Panicked),
            None => Ok(()),
        };
        if ended.is_err() {
            // A reader that panicked has not stopped the other threads.
            self.queue.stop();
        }
        let others = self.others.drain(..).map(JoinHandle::join).filter(Result::is_err).count();
        self.queue.publish();
        match ended {
            Ok(()) if others > 0 => Err(QuestDbFailure::Panicked),
            ended => ended,
        }
    }
}

impl Drop for QuestDb {
    fn drop(&mut self) {
        // Callers that need the result call `join` or `stop`.
        let _ended = self.end(true);
    }
}
