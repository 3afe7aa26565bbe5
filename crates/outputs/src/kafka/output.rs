//! The output's thread, and what others know of it.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};

use tapeworks_engine::history::History;
use tapeworks_market::BookOptions;
use tapeworks_store::Schema;

use super::broker::{Trouble, check};
use super::messages::{Layout, Undeclared};
use super::sink::Sink;
use super::{KafkaSetting, KafkaStatus};
use crate::text::one_line;

/// What is shown of an error.
const MOST_CHARACTERS: usize = 500;

/// Why nothing is sent.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum KafkaStartError {
    /// The client library refuses its options.
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

/// Why it ended before it was stopped. Brokers that are away do not end it.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum KafkaFailure {
    /// Another producer has the same id.
    #[error(
        "Kafka takes no more records of this plant: another one uses the id '{id}' of [kafka], and the brokers say: {reason}"
    )]
    Fenced {
        /// The id.
        id: String,
        /// The brokers' error.
        reason: String,
    },
    /// The journal ends before the position.
    #[error(
        "the journal ends at event {journal}, and Kafka has the records of those before event {position}: it is another journal, or its \
         end was lost; see \"what to do when\" in the page on Kafka"
    )]
    ShortJournal {
        /// The events of the journal.
        journal: u64,
        /// The position in Kafka.
        position: u64,
    },
    /// The journal's event before the position is another one.
    #[error(
        "event {event} of the journal is not the one whose records Kafka has: it is another journal, its end was lost, or the \
         configuration makes other events of it; see \"what to do when\" in the page on Kafka"
    )]
    OtherJournal {
        /// The event.
        event: u64,
    },
    /// The thread panicked.
    #[error("the thread for Kafka panicked")]
    Panicked,
}

/// Whether records are still sent.
#[derive(Clone, Copy, Default, Debug)]
enum Phase {
    /// More come.
    #[default]
    Running,
    /// The journal is complete: its records may be sent until this time.
    Over(Instant),
    /// Nothing is sent any more.
    Stopped,
}

/// Between the output's thread and others.
#[derive(Default, Debug)]
pub(super) struct Shared {
    status: Arc<Mutex<KafkaStatus>>,
    phase: Mutex<Phase>,
    changed: Condvar,
}

impl Shared {
    /// Changes the status.
    pub(super) fn progress(&self, change: impl FnOnce(&mut KafkaStatus)) {
        change(&mut self.status.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// The brokers are waited for.
    pub(super) fn waits(&self, why: &Trouble) {
        self.progress(|status| {
            status.is_connected = false;
            status.error = Some(one_line(&why.to_string(), MOST_CHARACTERS));
        });
    }

    fn phase(&self) -> Phase {
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the journal is complete.
    pub(super) fn is_ending(&self) -> bool {
        !matches!(self.phase(), Phase::Running)
    }

    /// Whether nothing more is to be sent.
    pub(super) fn is_over(&self) -> bool {
        match self.phase() {
            Phase::Running => false,
            Phase::Over(until) => Instant::now() >= until,
            Phase::Stopped => true,
        }
    }

    /// Waits so long, or until the phase changes.
    pub(super) fn pause(&self, most: Duration) {
        let phase = self.phase.lock().unwrap_or_else(PoisonError::into_inner);
        match *phase {
            Phase::Stopped => {}
            Phase::Over(until) => {
                let left = until.saturating_duration_since(Instant::now());
                drop(self.changed.wait_timeout(phase, most.min(left)));
            }
            Phase::Running => drop(self.changed.wait_timeout(phase, most)),
        }
    }

    fn change(&self, to: Phase) {
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner) = to;
        self.changed.notify_all();
    }
}

/// The Kafka output. Dropping it stops it.
#[derive(Debug)]
pub struct Kafka {
    shared: Arc<Shared>,
    linger: Duration,
    thread: Option<thread::JoinHandle<Result<(), KafkaFailure>>>,
}

/// Starts sending the records of the events of `history`. It also starts without a broker: see [`Kafka::status_handle`]. `status` is where
/// the status will be.
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
    let shared = Arc::new(Shared { status, ..Shared::default() });
    let linger = setting.linger;
    let sink = Sink::new(setting, layouts?, books.clone(), history, Arc::clone(&shared));
    let thread = thread::Builder::new().name("kafka".to_owned()).spawn(move || sink.run());
    Ok(Kafka { shared, linger, thread: Some(thread.map_err(KafkaStartError::Thread)?) })
}

impl Kafka {
    /// The status, for another thread.
    pub fn status_handle(&self) -> Arc<Mutex<KafkaStatus>> {
        Arc::clone(&self.shared.status)
    }

    /// Whether it has ended.
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(thread::JoinHandle::is_finished)
    }

    /// Sends the rest of the journal, which is complete now, until the setting's time for that is over. What is left then stays
    /// in the journal. Returns the status.
    ///
    /// # Errors
    /// [`KafkaFailure`] when it failed.
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
        // A caller that wants to know how it ended calls `join`.
        let _ended = self.end(Phase::Stopped);
    }
}
