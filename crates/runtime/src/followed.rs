//! What is read from files that may be replaced while the process runs, as certificates, keys and tokens are renewed.
//!
//! The reader of the value looks at the files at most once a second. Files that cannot be used leave what was read before, and are
//! tried again.
//!
//! Cost: a lock and a look at the clock; once a second a `stat` of each file.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// How often the files are looked at.
const LOOK: Duration = Duration::from_secs(1);

crate::counters! {
    FollowedCounters:
    /// Times that changed files were read
    reloads,
    /// Times that changed files could not be used
    failed_reloads,
}

/// By what a file that was replaced is known: its time of change and its size. `None`: it cannot be read.
type Stamp = Option<(SystemTime, u64)>;

/// A value of files.
pub struct Followed<T> {
    files: Vec<PathBuf>,
    read: Box<dyn Fn() -> Result<T, String> + Send + Sync>,
    current: Mutex<Current<T>>,
    counters: FollowedCounters,
}

/// What was read last.
struct Current<T> {
    value: T,
    stamps: Vec<Stamp>,
    looked: Instant,
    /// Why the files cannot be used as they are now.
    problem: Option<String>,
}

impl<T> fmt::Debug for Followed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Followed").field("files", &self.files).finish_non_exhaustive()
    }
}

impl<T: Clone> Followed<T> {
    /// Reads `files` by `read`. Whatever else `read` needs is not followed.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn new<E: fmt::Display>(
        files: Vec<PathBuf>,
        read: impl Fn() -> Result<T, E> + Send + Sync + 'static,
    ) -> Result<Self, E> {
        // Looked at before they are read: what changes in between is seen the next time.
        let stamps = stamps(&files);
        let current = Current { value: read()?, stamps, looked: Instant::now(), problem: None };
        let read = Box::new(move || read().map_err(|error| error.to_string()));
        Ok(Self { files, read, current: Mutex::new(current), counters: FollowedCounters::default() })
    }

    /// The value.
    pub fn get(&self) -> T {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.looked.elapsed() >= LOOK {
            current.looked = Instant::now();
            let stamps = stamps(&self.files);
            if stamps != current.stamps {
                self.counters.reloads.add();
                match (self.read)() {
                    Ok(value) => (current.value, current.stamps, current.problem) = (value, stamps, None),
                    Err(error) => {
                        self.counters.failed_reloads.add();
                        current.problem = Some(error);
                    }
                }
            }
        }
        current.value.clone()
    }
}

/// Files that are followed, whatever is read from them.
pub trait FollowedFiles: fmt::Debug + Send + Sync {
    /// How often they were read again.
    fn counters(&self) -> &FollowedCounters;

    /// Why they cannot be used as they are now: what was read before is in use.
    fn problem(&self) -> Option<String>;
}

impl<T: Send> FollowedFiles for Followed<T> {
    fn counters(&self) -> &FollowedCounters {
        &self.counters
    }

    fn problem(&self) -> Option<String> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).problem.clone()
    }
}

fn stamps(files: &[PathBuf]) -> Vec<Stamp> {
    let stamp = |path: &PathBuf| {
        let metadata = std::fs::metadata(path).ok()?;
        Some((metadata.modified().ok()?, metadata.len()))
    };
    files.iter().map(stamp).collect()
}
