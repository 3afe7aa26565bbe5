//! A lease: only one run at a time may write below an address. A store has no locks, so the lease is an object that its holder
//! rewrites every [`RENEWED_EVERY`]. A lease that stays unchanged for [`DEAD_AFTER`] belongs to a run that was killed.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use tapeworks_cloud::{self as cloud, Before, Bytes, CloudError, Version};

use super::BatchError;

/// The time between two renewals.
const RENEWED_EVERY: Duration = Duration::from_secs(2);

/// How long another run watches an unrenewed lease before taking it over.
const DEAD_AFTER: Duration = Duration::from_secs(12);

/// The time between two checks of the lease.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A lease, renewed by a thread until it is dropped.
#[derive(Debug)]
pub(super) struct Lease {
    held: Arc<Mutex<Held>>,
    /// Closing it ends the thread.
    until: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The lease object as written by this run.
#[derive(Debug)]
struct Held {
    address: String,
    version: Version,
    renewals: u64,
    /// The contents of writes that have not been confirmed.
    tried: Vec<String>,
    /// Another run has taken the lease.
    is_lost: bool,
}

/// Returns contents for the object. No two are equal, so that each write changes the version.
fn text(count: u64) -> String {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (process, now) = (std::process::id(), since.as_nanos());
    format!("{{\"process\": {process}, \"renewal\": {count}, \"time_ns\": \"{now}\"}}\n")
}

impl Lease {
    /// Takes the lease at an address; `busy` creates the error for a lease that another run holds.
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
                    // Its holder has ended in the meantime.
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
        // A store without conditional writes would give the lease to every run.
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
                    // The store does not answer. This run keeps the lease as long as no other takes it.
                    Err(_) => {}
                }
            }
        };
        let thread = thread::Builder::new().name("batch-lease".to_owned()).spawn(renew);
        let thread = Some(thread.map_err(BatchError::Thread)?);
        Ok(Self { held, until: Some(until), thread })
    }

    /// Asks the store whether this run still holds the lease. A run that was suspended for longer than [`DEAD_AFTER`] may have lost it
    /// without noticing.
    ///
    /// # Errors
    /// [`BatchError::Cloud`] if the store does not answer that.
    pub(super) fn is_held(&self) -> Result<bool, BatchError> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).renew()
    }
}

impl Held {
    /// Rewrites the object; returns `false` if it belongs to another run.
    fn renew(&mut self) -> Result<bool, BatchError> {
        if self.is_lost {
            return Ok(false);
        }
        self.renewals += 1;
        let text = text(self.renewals);
        self.tried.push(text.clone());
        match cloud::write(&self.address, text, Before::Version(self.version.clone())) {
            Ok(renewed) => self.version = renewed,
            // A write whose answer was lost is repeated, here or by the next renewal, and then finds its own object.
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
        // Never remove another run's lease. What cannot be removed now is taken over by the next run.
        if let Ok(true) = held.renew() {
            let _left_behind_at_worst = cloud::remove(&held.address);
        }
    }
}
