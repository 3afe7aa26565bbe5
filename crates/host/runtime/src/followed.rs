//! Values from files that may be replaced while the process runs.
//!
//! Examples are renewed certificates, keys and tokens. Reading the value checks the files at most once a second. If new files
//! cannot be used, the previous value stays in use and the files are tried again.
//!
//! Cost: a lock and a clock reading; once a second a `stat` of each file.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use crate::validity::Validity;

/// How often to check the files.
const LOOK: Duration = Duration::from_secs(1);

crate::counters! {
    FollowedCounters:
    /// Times that changed files were read
    reloads,
    /// Times that changed files could not be used
    failed_reloads,
}

/// A file's modification time and size, which reveal a replacement. `None`: the file cannot be read.
type Stamp = Option<(SystemTime, u64)>;

/// Reads a value, and its validity if that is limited.
type Read<T> = dyn Fn() -> Result<(T, Option<Validity>), String> + Send + Sync;

/// A value that is read from files.
pub struct Followed<T> {
    files: Vec<PathBuf>,
    read: Box<Read<T>>,
    current: Mutex<Current<T>>,
    counters: FollowedCounters,
}

/// The last value read.
struct Current<T> {
    value: T,
    validity: Option<Validity>,
    stamps: Vec<Stamp>,
    looked: Instant,
    /// The reason why the current files cannot be used.
    problem: Option<String>,
}

impl<T> fmt::Debug for Followed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Followed").field("files", &self.files).finish_non_exhaustive()
    }
}

impl<T: Clone> Followed<T> {
    /// Reads `files` by `read`. Other inputs of `read` are not followed.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn new<E: fmt::Display>(
        files: Vec<PathBuf>,
        read: impl Fn() -> Result<T, E> + Send + Sync + 'static,
    ) -> Result<Self, E> {
        Self::expiring(files, move || Ok((read()?, None)))
    }

    /// Like [`Followed::new`], for a value with limited validity, which `read` also returns.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn expiring<E: fmt::Display>(
        files: Vec<PathBuf>,
        read: impl Fn() -> Result<(T, Option<Validity>), E> + Send + Sync + 'static,
    ) -> Result<Self, E> {
        // Taken before the files are read, so that the next check notices a change in between.
        let stamps = stamps(&files);
        let (value, validity) = read()?;
        let current = Current { value, validity, stamps, looked: Instant::now(), problem: None };
        let read = Box::new(move || read().map_err(|error| error.to_string()));
        Ok(Self { files, read, current: Mutex::new(current), counters: FollowedCounters::default() })
    }

    /// Returns the current value.
    pub fn get(&self) -> T {
        self.current().value.clone()
    }
}

impl<T> Followed<T> {
    /// Returns the files' value, or the last one that could be used.
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

/// Files that are followed, whatever their value.
pub trait FollowedFiles: fmt::Debug + Send + Sync {
    /// Returns the counters of reloads.
    fn counters(&self) -> &FollowedCounters;

    /// Returns why the files cannot be read (the previous values stay in use), or that the certificate in use has expired or is
    /// not valid yet. Checks whether the files have changed.
    fn problem(&self) -> Option<String>;

    /// Like [`FollowedFiles::problem`], but also warns of a certificate that expires within a week. Checks the files.
    fn warning(&self) -> Option<String>;
}

impl<T: Send> FollowedFiles for Followed<T> {
    fn counters(&self) -> &FollowedCounters {
        &self.counters
    }

    fn problem(&self) -> Option<String> {
        // Check the files: nothing else may have read them since they were replaced.
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

/// Files whose problems are logged, each once when it starts and once when it ends.
#[derive(Debug, Default)]
pub struct FileWatch {
    files: Vec<(String, Arc<dyn FollowedFiles>, Option<String>)>,
}

impl FileWatch {
    /// Adds files to watch, if there are any. `name` describes their purpose.
    pub fn add(&mut self, name: impl Into<String>, files: Option<Arc<dyn FollowedFiles>>) {
        self.files.extend(files.map(|files| (name.into(), files, None)));
    }

    /// Returns the names of files that currently cannot be used or that others reject, with the reasons.
    pub fn problems(&self) -> Vec<(&str, String)> {
        self.files.iter().filter_map(|(name, files, _)| Some((name.as_str(), files.problem()?))).collect()
    }

    /// Calls `say` with the name and warning of files whose warning changed since the last call, or `None` if it has ended.
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
