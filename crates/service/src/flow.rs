//! Runs a packet flow: opens the files, sockets and interfaces of the configuration, starts a thread for each worker, and
//! reports.
//!
//! [`tapeworks_flow`] processes the packets; this module has the files, the threads and the report at the end.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tapeworks_flow::builder::{Flow, OpenError};
use tapeworks_flow::runner::{self, Failure, Snapshot};

/// How often `watch` gets the counts of a run.
const TICK: Duration = Duration::from_millis(100);

/// How often [`run`] checks whether a run has ended.
const LOOK: Duration = Duration::from_millis(2);

/// The result of a run.
#[derive(Debug)]
pub struct Report {
    /// The counts.
    pub counts: Snapshot,
    /// For each writer, by its index: the time in ns from entering the process to being written.
    pub latencies_ns: Vec<(usize, Histogram<u64>)>,
    /// The errors, in the order in which they happened.
    pub failures: Vec<Failure>,
    /// How long it took, from the start of the threads to the end of the last.
    pub elapsed: Duration,
    /// The caller stopped it.
    pub is_interrupted: bool,
}

/// Why a flow did not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FlowError {
    /// A stage could not be opened, or the process was stopped before.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The graph cannot run: a defect, as the configuration was checked.
    #[error(transparent)]
    Graph(#[from] tapeworks_flow::graph::Faults),
    /// The operating system gives no thread.
    #[error("cannot start the thread of '{stage}': {cause}")]
    Thread {
        /// The thread's first stage.
        stage: String,
        /// Its message.
        cause: std::io::Error,
    },
    /// A thread ended by a panic: a defect of a stage.
    #[error("the thread of '{stage}' panicked")]
    Panicked {
        /// The thread's first stage.
        stage: String,
    },
}

/// Runs the flow to its end. `watch` gets the counts every tenth of a second and may stop the run, which
/// then drains the packets under way.
///
/// # Errors
/// What kept it from starting. What happens on the way is in the report.
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
