//! The thread that exports.
//!
//! It wakes up every `export_every`, takes what waits, and posts it in requests of [`BATCH`] samples at most. A request that fails is kept and tried
//! again, with pauses that double up to a bound; what comes meanwhile waits in the queue, and is counted when that is full. A request without an answer in
//! time may have come through: then the collector has its spans twice, with the same ids.
//!
//! Cost: one wake-up in each `export_every`; nothing while it waits for a collector.

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

/// Samples in a request, at most.
pub const BATCH: usize = 256;

/// The first pause after a failure; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// How long the end waits beyond `linger` for the thread.
const GRACE: Duration = Duration::from_millis(200);

/// The running export. Dropping it ends it as [`Exporter::join`] does.
#[derive(Debug)]
pub struct Exporter {
    status: Arc<Mutex<TraceStatus>>,
    counts: SampleCounts,
    /// Traces of the request that is under way.
    in_flight: Arc<AtomicU64>,
    linger: Duration,
    /// Dropped, it ends the thread.
    ending: Option<Sender<()>>,
    ended: Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

/// Whether the files that the settings name can be used.
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
        // Nobody may wait for it.
        let _unheard = at_end.send(());
    };
    let thread =
        std::thread::Builder::new().name("otel".to_owned()).spawn(run).map_err(ExportError::Thread)?;
    Ok(Exporter { status, counts, in_flight, linger, ending: Some(ending), ended, thread: Some(thread) })
}

impl Exporter {
    /// Reads the status from another thread.
    pub fn handle(&self) -> TraceHandle {
        let (status, counts) = (Arc::clone(&self.status), self.counts.clone());
        TraceHandle::new(move || TraceStatus {
            waiting: counts.waiting(),
            dropped: counts.dropped(),
            unfollowed: counts.unfollowed(),
            ..status.lock().unwrap_or_else(PoisonError::into_inner).clone()
        })
    }

    /// Exports what waits, for `linger` at most. What is left then is counted as lost.
    pub fn join(mut self) {
        self.end();
    }

    fn end(&mut self) {
        drop(self.ending.take());
        let Some(thread) = self.thread.take() else { return };
        // A collector that holds a request holds that thread alone.
        if self.ended.recv_timeout(self.linger + GRACE) != Err(RecvTimeoutError::Timeout) {
            // A panic of it is nobody else's.
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
    /// When it gives up, once it is to end.
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

    /// Waits, unless the export is to end.
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

    /// Posts a request until the collector takes or refuses it. `false`: it is to end, and the time for that is over.
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
                        // Which of the spans it refused the collector does not say.
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
