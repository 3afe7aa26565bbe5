//! What is read from files that may be replaced while the process runs, as certificates, keys and tokens are renewed.
//!
//! The reader of the value looks at the files at most once a second. Files that cannot be used leave what was read before, and are
//! tried again.
//!
//! Cost: a lock and a look at the clock; once a second a `stat` of each file.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use crate::validity::Validity;

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

/// Reads a value, and how long it is valid, if that is limited.
type Read<T> = dyn Fn() -> Result<(T, Option<Validity>), String> + Send + Sync;

/// A value of files.
pub struct Followed<T> {
    files: Vec<PathBuf>,
    read: Box<Read<T>>,
    current: Mutex<Current<T>>,
    counters: FollowedCounters,
}

/// What was read last.
struct Current<T> {
    value: T,
    validity: Option<Validity>,
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
        Self::expiring(files, move || Ok((read()?, None)))
    }

    /// As [`Followed::new`], of a value that is valid for some time: `read` returns that too.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn expiring<E: fmt::Display>(
        files: Vec<PathBuf>,
        read: impl Fn() -> Result<(T, Option<Validity>), E> + Send + Sync + 'static,
    ) -> Result<Self, E> {
        // Looked at before they are read: what changes in between is seen the next time.
        let stamps = stamps(&files);
        let (value, validity) = read()?;
        let current = Current { value, validity, stamps, looked: Instant::now(), problem: None };
        let read = Box::new(move || read().map_err(|error| error.to_string()));
        Ok(Self { files, read, current: Mutex::new(current), counters: FollowedCounters::default() })
    }

    /// The value.
    pub fn get(&self) -> T {
        self.current().value.clone()
    }
}

impl<T> Followed<T> {
    /// What is in the files now, or was when they could be used last.
    fn current(&self) -> MutexGuard<'_, Current<T>> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.looked.elapsed() >= LOOK {
            current.looked = Instant::now();
            let stamps = stamps(&self.files);
            if stamps != current.stamps {
                self.counters.reloads.add();
                match (self.read)() {
                    Ok((value, validity)) => {
                        (current.value, current.validity) = (value, validity);
                        (current.stamps, current.problem) = (stamps, None);
                    }
                    Err(error) => {
                        self.counters.failed_reloads.add();
                        current.problem = Some(error);
                    }
                }
            }
        }
        current
    }
}

/// Files that are followed, whatever is read from them.
pub trait FollowedFiles: fmt::Debug + Send + Sync {
    /// How often they were read again.
    fn counters(&self) -> &FollowedCounters;

    /// Why the files cannot be read, in which case the values read before stay in use, or that the certificate in use has expired or is not
    /// valid yet. Checks whether the files have changed.
    fn problem(&self) -> Option<String>;

    /// As [`FollowedFiles::problem`], or that a certificate expires within a week. Looks at the files.
    fn warning(&self) -> Option<String>;
}

impl<T: Send> FollowedFiles for Followed<T> {
    fn counters(&self) -> &FollowedCounters {
        &self.counters
    }

    fn problem(&self) -> Option<String> {
        // Files that nobody uses at the moment may have been replaced.
        let current = self.current();
        let expired = || current.validity?.problem().filter(|expiry| expiry.is_invalid());
        current.problem.clone().or_else(|| expired().map(|expiry| expiry.to_string()))
    }

    fn warning(&self) -> Option<String> {
        let current = self.current();
        let expiry = || current.validity?.problem();
        current.problem.clone().or_else(|| expiry().map(|expiry| expiry.to_string()))
    }
}

/// Files whose problems go to the log: each when it begins, and when it is over.
#[derive(Debug, Default)]
pub struct FileWatch {
    files: Vec<(String, Arc<dyn FollowedFiles>, Option<String>)>,
}

impl FileWatch {
    /// Watches these files too, if there are any. `name` says what they are for.
    pub fn add(&mut self, name: impl Into<String>, files: Option<Arc<dyn FollowedFiles>>) {
        self.files.extend(files.map(|files| (name.into(), files, None)));
    }

    /// The names of files that cannot be used now, or that others refuse, and why.
    pub fn problems(&self) -> Vec<(&str, String)> {
        self.files.iter().filter_map(|(name, files, _)| Some((name.as_str(), files.problem()?))).collect()
    }

    /// Calls `say` with the name of files and what is wrong with them since the last call, or `None` where it no longer is.
    pub fn news(&mut self, mut say: impl FnMut(&str, Option<&str>)) {
        for (name, files, said) in &mut self.files {
            let warning = files.warning();
            if warning != *said {
                say(name, warning.as_deref());
                *said = warning;
            }
        }
    }
}

fn stamps(files: &[PathBuf]) -> Vec<Stamp> {
    let stamp = |path: &PathBuf| {
        let metadata = std::fs::metadata(path).ok()?;
        Some((metadata.modified().ok()?, metadata.len()))
    };
    files.iter().map(stamp).collect()
}
