//! The right to be the run that works below an address. A store has no locks, so it is an object that its holder puts anew every
//! [`RENEWED_EVERY`]. One that stays as it is for [`DEAD_AFTER`] is of a run that was killed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use tapeworks_cloud::{self as cloud, Before, CloudError, Version};

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
    address: String,
    is_lost: Arc<AtomicBool>,
    /// What ends the thread when it is closed.
    until: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
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
                let looks = DEAD_AFTER.as_secs() / LOOK_EVERY.as_secs().max(1);
                for _ in 0..looks {
                    thread::sleep(LOOK_EVERY);
                    if cloud::version(&address)? != found {
                        break;
                    }
                }
                let before = match cloud::version(&address)? {
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
        let (until, ended) = mpsc::channel();
        let is_lost = Arc::new(AtomicBool::new(false));
        let renew = {
            let (address, is_lost) = (address.clone(), Arc::clone(&is_lost));
            move || renew(&address, version, &ended, &is_lost)
        };
        let thread = thread::Builder::new().name("batch-lease".to_owned()).spawn(renew);
        let thread = Some(thread.map_err(BatchError::Thread)?);
        Ok(Self { address, is_lost, until: Some(until), thread })
    }

    /// Whether another run has taken it: this one stood still for longer than [`DEAD_AFTER`].
    pub(super) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }
}

fn renew(address: &str, mut version: Version, ended: &mpsc::Receiver<()>, is_lost: &AtomicBool) {
    for count in 1.. {
        if ended.recv_timeout(RENEWED_EVERY) != Err(RecvTimeoutError::Timeout) {
            return;
        }
        match cloud::write(address, text(count), Before::Version(version.clone())) {
            Ok(renewed) => version = renewed,
            Err(CloudError::Changed { .. } | CloudError::Exists { .. } | CloudError::NotFound { .. }) => {
                is_lost.store(true, Ordering::Relaxed);
                return;
            }
            // The store does not answer. The lease is this run's as long as no other takes it.
            Err(_) => {}
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.until = None;
        if let Some(thread) = self.thread.take() {
            let _it_cannot_panic = thread.join();
        }
        if !self.is_lost() {
            // What cannot be removed now is taken by the next run.
            let _left_behind_at_worst = cloud::remove(&self.address);
        }
    }
}
