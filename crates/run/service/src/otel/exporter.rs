//! The thread that exports traces.
//!
//! The thread wakes up every `export_every`, takes the waiting samples, and posts them in requests of at most [`BATCH`] samples. It
//! retries a failed request, with pauses that double up to a limit. Meanwhile samples wait in the queue; samples that find it full are
//! counted. A request that timed out may have arrived: the collector then receives its spans twice, with the same ids.
//!
//! Cost: one wake-up per `export_every`, and no work while waiting for a collector.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message as _;
use tapeworks_runtime::traces::setting::TraceSetting;
use tapeworks_runtime::traces::{SampleCounts, Samples, TraceHandle, TraceStatus};

use super::client::{Answer, Client};
pub use super::error::ExportError;
use super::spans::{self, Ids};

/// Maximum number of samples in a request.
pub const BATCH: usize = 256;

/// The first pause after a failure. The pause doubles with each further failure.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// How long `join` waits for the thread after `linger`.
const GRACE: Duration = Duration::from_millis(200);

/// The running export. Dropping it has the same effect as [`Exporter::join`].
#[derive(Debug)]
pub struct Exporter {
    status: Arc<Mutex<TraceStatus>>,
    counts: SampleCounts,
    /// Traces of the request in flight.
    in_flight: Arc<AtomicU64>,
    linger: Duration,
    /// Dropping the sender ends the thread.
    ending: Option<Sender<()>>,
    ended: Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

/// Checks that the files in the settings can be used.
///
/// # Errors
/// [`ExportError::Authorities`].
pub fn check(setting: &TraceSetting) -> Result<(), ExportError> {
    Client::new(setting.clone()).map(drop)
}

/// Starts the export of `samples`.
///
/// # Errors
/// [`ExportError`].
pub fn start(setting: TraceSetting, samples: Samples) -> Result<Exporter, ExportError> {
    let mut random = [0; 32];
    getrandom::fill(&mut random).map_err(ExportError::Random)?;
    let (of_ids, of_instance) = random.split_at(16);
    let ids = Ids::new(of_ids.iter().fold(0, |all, byte| all << 8 | u128::from(*byte)));
    let client = Client::new(setting.clone())?;
    let status = Arc::new(Mutex::new(TraceStatus::default()));
    let (ending, is_ending) = channel();
    let (at_end, ended) = channel();
    let linger = setting.linger;
    let (counts, in_flight) = (samples.counts(), Arc::new(AtomicU64::new(0)));
    let thread = Thread {
        resource: spans::resource(&setting.service_name, &hex::encode(of_instance)),
        setting,
        client,
        samples,
        ids,
        ending: is_ending,
        until: None,
        pause: Duration::ZERO,
        status: Arc::clone(&status),
        in_flight: Arc::clone(&in_flight),
    };
    let run = move || {
        thread.run();
        // Nobody may be waiting.
        let _unheard = at_end.send(());
    };
    let thread =
        std::thread::Builder::new().name("otel".to_owned()).spawn(run).map_err(ExportError::Thread)?;
    Ok(Exporter { status, counts, in_flight, linger, ending: Some(ending), ended, thread: Some(thread) })
}

impl Exporter {
    /// Returns a handle that reads the status from another thread.
    pub fn handle(&self) -> TraceHandle {
        let (status, counts) = (Arc::clone(&self.status), self.counts.clone());
        TraceHandle::new(move || TraceStatus {
            waiting: counts.waiting(),
            dropped: counts.dropped(),
            unfollowed: counts.unfollowed(),
            ..status.lock().unwrap_or_else(PoisonError::into_inner).clone()
        })
    }

    /// Exports the waiting samples for at most `linger`, and counts the remaining ones as lost.
    pub fn join(mut self) {
        self.end();
    }

    fn end(&mut self) {
        drop(self.ending.take());
        let Some(thread) = self.thread.take() else { return };
        // A collector that never answers blocks only that thread.
        if self.ended.recv_timeout(self.linger + GRACE) != Err(RecvTimeoutError::Timeout) {
            // A panic of the thread does not affect the caller.
            let _ended = thread.join();
            return;
        }
        let lost = self.in_flight.load(Ordering::Relaxed) + self.counts.waiting();
        self.status.lock().unwrap_or_else(PoisonError::into_inner).lost += lost;
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.end();
    }
}

struct Thread {
    setting: TraceSetting,
    client: Client,
    resource: Resource,
    samples: Samples,
    ids: Ids,
    ending: Receiver<()>,
    /// The deadline, once the export is ending.
    until: Option<Instant>,
    pause: Duration,
    status: Arc<Mutex<TraceStatus>>,
    in_flight: Arc<AtomicU64>,
}

impl Thread {
    fn run(mut self) {
        let mut made = Vec::new();
        loop {
            self.wait(self.setting.export_every);
            loop {
                let (ids, samples) = (&mut self.ids, &mut self.samples);
                let traces = samples.take(BATCH, |sample| spans::push(sample, ids, &mut made)) as u64;
                if traces == 0 {
                    break;
                }
                self.in_flight.store(traces, Ordering::Relaxed);
                let count = made.len() as u64;
                let request = spans::request(&self.resource, std::mem::take(&mut made));
                if !self.export(&request.encode_to_vec(), traces, count) {
                    let left = self.samples.counts().waiting();
                    self.update(|status| status.lost += traces + left);
                    return;
                }
                self.in_flight.store(0, Ordering::Relaxed);
            }
            if self.until.is_some() {
                return;
            }
        }
    }

    /// Sleeps for `time`, but not past the deadline. Sets the deadline when the export is to end.
    fn wait(&mut self, time: Duration) {
        if let Some(until) = self.until {
            std::thread::sleep(time.min(until.saturating_duration_since(Instant::now())));
        } else if self.ending.recv_timeout(time) != Err(RecvTimeoutError::Timeout) {
            self.until = Some(Instant::now() + self.setting.linger);
        }
    }

    fn update(&self, change: impl FnOnce(&mut TraceStatus)) {
        change(&mut self.status.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Posts a request until the collector accepts or refuses it. Returns `false` if the deadline has passed.
    fn export(&mut self, body: &[u8], traces: u64, count: u64) -> bool {
        loop {
            let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return false;
            }
            let longest = left.map_or(self.setting.timeout, |left| left.min(self.setting.timeout));
            match self.client.post(body, longest) {
                Answer::Taken { refused, why } => {
                    let refused = refused.min(count);
                    self.pause = Duration::ZERO;
                    self.update(|status| {
                        status.is_connected = true;
                        status.requests += 1;
                        // The collector does not say which spans it refused.
                        status.traces += if refused < count { traces } else { 0 };
                        status.spans += count - refused;
                        status.refused_spans += refused;
                        status.error = why;
                    });
                    return true;
                }
                Answer::Refused(why) => {
                    self.update(|status| {
                        status.is_connected = false;
                        status.failures += 1;
                        status.refused_spans += count;
                        status.error = Some(why);
                    });
                    return true;
                }
                Answer::Later { why, after } => {
                    self.update(|status| {
                        status.is_connected = false;
                        status.failures += 1;
                        status.error = Some(why);
                    });
                    self.pause =
                        (self.pause * 2).clamp(FIRST_PAUSE, self.setting.longest_pause.max(FIRST_PAUSE));
                    let pause = after.map_or(self.pause, |after| after.max(self.pause));
                    self.wait(pause.min(self.setting.longest_pause.max(FIRST_PAUSE)));
                }
            }
        }
    }
}
