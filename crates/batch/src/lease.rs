//! The right to be the run that works below an address. A store has no locks, so it is an object that its holder puts anew every
//! [`RENEWED_EVERY`]. One that stays as it is for [`DEAD_AFTER`] is of a run that was killed.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use tapeworks_cloud::{self as cloud, Before, Bytes, CloudError, Version};

use super::BatchError;

/// The time between two renewals.
const RENEWED_EVERY: Duration = Duration::from_secs(2);

/// How long another run watches a lease that is not renewed before it takes it.
const DEAD_AFTER: Duration = Duration::from_secs(12);

/// The time between two looks at it.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A lease, renewed by a thread until it is dropped.
#[derive(Debug)]
pub(super) struct Lease {
    held: Arc<Mutex<Held>>,
    /// What ends the thread when it is closed.
    until: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The object as this run has put it.
#[derive(Debug)]
struct Held {
    address: String,
    version: Version,
    renewals: u64,
    /// What puts without an answer would have made of it.
    tried: Vec<String>,
    /// Another run has taken it.
    is_lost: bool,
}

/// What the object holds: no two are alike, so that its version changes with each.
fn text(count: u64) -> String {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (process, now) = (std::process::id(), since.as_nanos());
    format!("{{\"process\": {process}, \"renewal\": {count}, \"time_ns\": \"{now}\"}}\n")
}

impl Lease {
    /// Takes the lease at an address; `busy` is the error while another run has it.
    ///
    /// # Errors
    /// `busy`, [`BatchError::Cloud`], [`BatchError::Thread`].
    pub(super) fn take(address: String, busy: impl Fn() -> BatchError) -> Result<Self, BatchError> {
        let version = match cloud::write(&address, text(0), Before::None) {
            Ok(version) => version,
            Err(CloudError::Exists { .. } | CloudError::Changed { .. }) => {
                let found = cloud::version(&address)?;
                let mut now = found.clone();
                for _ in 0..DEAD_AFTER.as_secs() / LOOK_EVERY.as_secs().max(1) {
                    thread::sleep(LOOK_EVERY);
                    now = cloud::version(&address)?;
                    if now != found {
                        break;
                    }
                }
                let before = match now {
                    // Its holder has ended meanwhile.
                    None => Before::None,
                    now if now != found => return Err(busy()),
                    Some(version) => Before::Version(version),
                };
                match cloud::write(&address, text(0), before) {
                    Err(
                        CloudError::Exists { .. } | CloudError::Changed { .. } | CloudError::NotFound { .. },
                    ) => return Err(busy()),
                    written => written?,
                }
            }
            Err(error) => return Err(error.into()),
        };
        // A store that knows no conditions gives every run the lease.
        match cloud::write(&address, text(0), Before::None) {
            Err(CloudError::Exists { .. } | CloudError::Changed { .. }) => {}
            Err(error) => return Err(error.into()),
            Ok(_) => {
                let why = "the store has no conditional puts (If-None-Match), so two runs could work here"
                    .to_owned();
                return Err(CloudError::Failed { address, why }.into());
            }
        }
        let (until, ended) = mpsc::channel();
        let held =
            Arc::new(Mutex::new(Held { address, version, renewals: 0, tried: Vec::new(), is_lost: false }));
        let renewed = Arc::clone(&held);
        let renew = move || {
            while ended.recv_timeout(RENEWED_EVERY) == Err(RecvTimeoutError::Timeout) {
                match renewed.lock().unwrap_or_else(PoisonError::into_inner).renew() {
                    Ok(true) => {}
                    Ok(false) => return,
                    // The store does not answer. The lease is this run's as long as no other takes it.
                    Err(_) => {}
                }
            }
        };
        let thread = thread::Builder::new().name("batch-lease".to_owned()).spawn(renew);
        let thread = Some(thread.map_err(BatchError::Thread)?);
        Ok(Self { held, until: Some(until), thread })
    }

    /// Whether this run still has it, in the store's words of now: a run that stood still for longer than [`DEAD_AFTER`] has lost it, and
    /// does not know before it asks.
    ///
    /// # Errors
    /// [`BatchError::Cloud`] if the store does not say.
    pub(super) fn is_held(&self) -> Result<bool, BatchError> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).renew()
    }
}

impl Held {
    /// Puts the object anew; `false` if it is another run's.
    fn renew(&mut self) -> Result<bool, BatchError> {
        if self.is_lost {
            return Ok(false);
        }
        self.renewals += 1;
        let text = text(self.renewals);
        self.tried.push(text.clone());
        match cloud::write(&self.address, text, Before::Version(self.version.clone())) {
            Ok(renewed) => self.version = renewed,
            // A put whose answer is lost is put again, here or by the next renewal, and meets itself.
            Err(CloudError::Changed { .. } | CloudError::Exists { .. } | CloudError::NotFound { .. }) => {
                let now = cloud::version(&self.address)?;
                let text = cloud::read(&self.address)?;
                let is_own = |text: &Bytes| self.tried.iter().any(|tried| tried.as_bytes() == text);
                match now.filter(|_| text.as_ref().is_some_and(is_own)) {
                    Some(own) => self.version = own,
                    None => self.is_lost = true,
                }
            }
            Err(error) => return Err(error.into()),
        }
        self.tried.clear();
        Ok(!self.is_lost)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.until = None;
        if let Some(thread) = self.thread.take() {
            let _it_cannot_panic = thread.join();
        }
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        // Not that of another run. What cannot be removed now is taken by the next run.
        if let Ok(true) = held.renew() {
            let _left_behind_at_worst = cloud::remove(&held.address);
        }
    }
}
