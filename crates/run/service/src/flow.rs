//! Runs a packet flow: opens the configured files, sockets and interfaces, starts a thread for each worker, and reports.
//!
//! [`tapeworks_flow`] processes the packets. This module handles files, threads and the final report.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tapeworks_flow::builder::{Flow, OpenError};
use tapeworks_flow::runner::{self, Failure, Snapshot};

/// Interval between calls of `watch`.
const TICK: Duration = Duration::from_millis(100);

/// Interval at which [`run`] checks whether the flow has ended.
const LOOK: Duration = Duration::from_millis(2);

/// The result of a run.
#[derive(Debug)]
pub struct Report {
    /// The counts.
    pub counts: Snapshot,
    /// For each writer, by index: the time from entering the process to being written, in ns.
    pub latencies_ns: Vec<(usize, Histogram<u64>)>,
    /// The errors, in the order in which they occurred.
    pub failures: Vec<Failure>,
    /// Time from the start of the threads to the end of the last one.
    pub elapsed: Duration,
    /// Whether the caller stopped the run.
    pub is_interrupted: bool,
}

/// Why a flow could not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FlowError {
    /// A stage could not be opened, or the process was stopped before that.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The graph cannot run. This is a bug, because the configuration was checked.
    #[error(transparent)]
    Graph(#[from] tapeworks_flow::graph::Faults),
    /// The operating system could not start a thread.
    #[error("cannot start the thread of '{stage}': {cause}")]
    Thread {
        /// The thread's first stage.
        stage: String,
        /// The system's error.
        cause: std::io::Error,
    },
    /// A thread panicked, which is a bug in a stage.
    #[error("the thread of '{stage}' panicked")]
    Panicked {
        /// The thread's first stage.
        stage: String,
    },
}

/// Runs the flow to its end. `watch` gets the counts every tenth of a second and may stop the run, which then drains the
/// packets in flight.
///
/// # Errors
/// Why the flow could not start. Later errors are in the report.
pub fn run(
    config: &Flow,
    mut watch: impl FnMut(&Snapshot, Duration) -> ControlFlow<()>,
) -> Result<Report, FlowError> {
    let (workers, control) = runner::build(&config.graph, config.open()?)?;
    let began = Instant::now();
    let mut threads = Vec::new();
    let mut failed = None;
    for worker in workers {
        let stage = worker.name().to_owned();
        match std::thread::Builder::new().name(stage.clone()).spawn(move || worker.run()) {
            Ok(thread) => threads.push((stage, thread)),
            Err(cause) => {
                failed = Some(FlowError::Thread { stage, cause });
                control.stop();
                break;
            }
        }
    }
    let mut is_interrupted = false;
    let mut reported = began;
    while threads.iter().any(|(_, thread)| !thread.is_finished()) {
        std::thread::sleep(LOOK);
        if reported.elapsed() >= TICK {
            reported = Instant::now();
            if watch(&control.snapshot(), began.elapsed()).is_break() && !is_interrupted {
                is_interrupted = true;
                control.stop();
            }
        }
    }
    let elapsed = began.elapsed();
    let mut latencies_ns = Vec::new();
    for (stage, thread) in threads {
        match thread.join() {
            Ok(finished) => latencies_ns.extend(finished.latencies_ns),
            Err(_) => failed = Some(FlowError::Panicked { stage }),
        }
    }
    if let Some(error) = failed {
        return Err(error);
    }
    latencies_ns.sort_by_key(|(node, _)| *node);
    let report = Report {
        counts: control.snapshot(),
        latencies_ns,
        failures: control.failures(),
        elapsed,
        is_interrupted,
    };
    Ok(report)
}
