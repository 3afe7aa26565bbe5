//! The output's thread, and its handle.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};

use tapeworks_engine::history::History;
use tapeworks_market::BookOptions;
use tapeworks_store::Schema;

use super::broker::check;
use super::messages::{Layout, Undeclared};
use super::shared::{KafkaFailure, Phase, Shared};
use super::sink::Sink;
use super::{KafkaSetting, KafkaStatus};

/// Why the output does not start.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum KafkaStartError {
    /// The client library rejects its options.
    #[error("cannot be a client of Kafka: {reason}")]
    Client {
        /// Its error.
        reason: String,
    },
    /// The declaration of messages lacks a field.
    #[error("messages of {schema} cannot be written: tapeworks_records.proto lacks {field}")]
    Undeclared {
        /// The schema.
        schema: Schema,
        /// The column.
        field: &'static str,
    },
    /// The thread cannot be started.
    #[error("no thread for Kafka: {0}")]
    Thread(io::Error),
}

/// The Kafka output. Dropping it stops it.
#[derive(Debug)]
pub struct Kafka {
    shared: Arc<Shared>,
    linger: Duration,
    thread: Option<thread::JoinHandle<Result<(), KafkaFailure>>>,
}

/// Starts sending the records of the events of `history`. It also starts without a broker: see [`Kafka::status_handle`]. The status
/// is published in `status`.
///
/// # Errors
/// [`KafkaStartError`].
pub fn start(
    setting: KafkaSetting,
    books: &BookOptions,
    history: Arc<dyn History>,
    status: Arc<Mutex<KafkaStatus>>,
) -> Result<Kafka, KafkaStartError> {
    check(&setting).map_err(|reason| KafkaStartError::Client { reason })?;
    let layout = |schema: &Schema| {
        let layout = Layout::new(*schema);
        layout.map_err(|Undeclared(field)| KafkaStartError::Undeclared { schema: *schema, field })
    };
    let layouts: Result<Vec<Layout>, _> = setting.schemas.iter().map(layout).collect();
    let shared = Arc::new(Shared::new(status));
    let linger = setting.linger;
    let sink = Sink::new(setting, layouts?, books.clone(), history, Arc::clone(&shared));
    let thread = thread::Builder::new().name("kafka".to_owned()).spawn(move || sink.run());
    Ok(Kafka { shared, linger, thread: Some(thread.map_err(KafkaStartError::Thread)?) })
}

impl Kafka {
    /// Returns the status, for another thread.
    pub fn status_handle(&self) -> Arc<Mutex<KafkaStatus>> {
        Arc::clone(&self.shared.status)
    }

    /// Returns whether the output has ended.
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(thread::JoinHandle::is_finished)
    }

    /// Sends the rest of the journal, which must be complete, for at most the linger time. Unsent records stay in the journal.
    /// Returns the status.
    ///
    /// # Errors
    /// [`KafkaFailure`] if the output failed.
    pub fn join(mut self) -> Result<KafkaStatus, KafkaFailure> {
        self.end(Phase::Over(Instant::now() + self.linger))?;
        Ok(self.shared.status.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    fn end(&mut self, phase: Phase) -> Result<(), KafkaFailure> {
        self.shared.change(phase);
        self.thread.take().map_or(Ok(()), |thread| thread.join().unwrap_or(Err(KafkaFailure::Panicked)))
    }
}

impl Drop for Kafka {
    fn drop(&mut self) {
        // Callers that need the result call `join`.
        let _ended = self.end(Phase::Stopped);
    }
}
