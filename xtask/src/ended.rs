//! How steps end.

use std::time::Duration;

/// How a step ended, and what it says.
pub(crate) enum Outcome {
    Passed(String),
    Failed(String),
    Skipped(String),
    /// Nothing that it covers has changed.
    Unchanged,
}

/// A step that ran.
pub(crate) struct Ended {
    pub(crate) name: &'static str,
    pub(crate) outcome: Outcome,
    pub(crate) time: Duration,
    /// Of its programs; less than `time` on each core means that it waited. While steps ran beside it, theirs is missing.
    pub(crate) processor_time: Option<Duration>,
    /// Of the disk, behind the step.
    pub(crate) free_gigabytes: Option<f64>,
}
