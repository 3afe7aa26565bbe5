//! Runs a packet flow: opens what the configuration names, starts a thread for each worker, and reports.
//!
//! What a flow does is [`tapeworks_flow`]'s; here are only the files, the threads and the sum at the end.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tapeworks_flow::graph::Plan;
use tapeworks_flow::packets::StageError;
use tapeworks_flow::packets::filter::Filter;
use tapeworks_flow::packets::reader::{CaptureFile, Interface, Udp};
use tapeworks_flow::packets::rewriter::Rewriter;
use tapeworks_flow::packets::writer::{CaptureWriter, Dropper, SocketWriter};
use tapeworks_flow::runner::{self, Failure, Part, Snapshot};
use tapeworks_packet::pool::Pool;
use tapeworks_packet::stop;

use crate::flow_config::{FlowConfig, Spec};

/// How often a caller hears of a run under way.
const TICK: Duration = Duration::from_millis(100);

/// How often it is looked whether a run has ended.
const LOOK: Duration = Duration::from_millis(2);

/// What a run came to.
#[derive(Debug)]
pub struct Report {
    /// The counts.
    pub counts: Snapshot,
    /// For each writer, by its index: the time in ns from entering the process to being written.
    pub latencies_ns: Vec<(usize, Histogram<u64>)>,
    /// What went wrong, in the order in which it did.
    pub failures: Vec<Failure>,
    /// How long it took, from the start of the threads to the end of the last.
    pub elapsed: Duration,
    /// The caller asked for the end.
    pub is_interrupted: bool,
}

/// Why a flow did not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FlowError {
    /// A stage could not be opened.
    #[error("{stage}: {error}")]
    Open {
        /// The stage's name.
        stage: String,
        /// Why.
        error: StageError,
    },
    /// The process was asked to stop before the flow ran.
    #[error("stopped before the flow began; nothing was read or written")]
    Stopped,
    /// The graph cannot run: a defect, as the configuration was checked.
    #[error(transparent)]
    Graph(#[from] tapeworks_flow::graph::Faults),
    /// The operating system gives no thread.
    #[error("cannot start the thread of '{stage}': {cause}")]
    Thread {
        /// The thread's first stage.
        stage: String,
        /// What it said.
        cause: std::io::Error,
    },
    /// A thread ended by a panic: a defect of a stage.
    #[error("the thread of '{stage}' panicked")]
    Panicked {
        /// The thread's first stage.
        stage: String,
    },
}

/// Opens what the configuration names. Readers come first, so that a missing input leaves no output behind. Ends soon after
/// the process was asked to stop: outputs that were begun are removed.
fn open(config: &FlowConfig) -> Result<Vec<Part>, FlowError> {
    let is_reader = |node: &usize| config.graph.nodes[*node].is_reader();
    let (readers, others): (Vec<usize>, Vec<usize>) = (0..config.specs.len()).partition(is_reader);
    let mut parts: Vec<Option<Part>> = config.specs.iter().map(|_| None).collect();
    let plan = config.graph.plan();
    for node in readers.into_iter().chain(others) {
        if stop::is_requested() {
            return Err(FlowError::Stopped);
        }
        let part = open_stage(config, &plan, node)
            .map_err(|error| FlowError::Open { stage: config.graph.nodes[node].name.clone(), error })?;
        parts[node] = Some(part);
    }
    Ok(parts.into_iter().flatten().collect())
}

fn open_stage(config: &FlowConfig, plan: &Plan, node: usize) -> Result<Part, StageError> {
    let pool = || Pool::new(plan.buffers[node], plan.room(node, config.packet_bytes));
    Ok(match &config.specs[node] {
        Spec::CaptureReader { file, pace } => Part::Reader(Box::new(CaptureFile::open(file, *pace, pool())?)),
        Spec::UdpReader { options, count } => Part::Reader(Box::new(Udp::open(*options, *count, pool())?)),
        Spec::PacketReader { options, count } => {
            Part::Reader(Box::new(Interface::open(options, *count, pool())?))
        }
        Spec::XdpReader { options, count } => {
            Part::Reader(Box::new(Interface::open_xdp(options, *count, pool())?))
        }
        Spec::Filter(predicate) => Part::Stage(Box::new(Filter::new(predicate.clone()))),
        Spec::Rewriter(steps) => Part::Stage(Box::new(Rewriter::new(*steps, pool()))),
        Spec::CaptureWriter { file, overwrite } => {
            Part::Stage(Box::new(CaptureWriter::create(file, *overwrite)?))
        }
        Spec::UdpWriter { to, hops } => Part::Stage(Box::new(SocketWriter::udp(*to, *hops)?)),
        Spec::PacketWriter { interface } => Part::Stage(Box::new(SocketWriter::interface(interface)?)),
        Spec::Dropper => Part::Stage(Box::new(Dropper)),
    })
}

/// Runs the flow to its end. `watch` hears of the counts every tenth of a second and may break the run off, which
/// then drains what is under way.
///
/// # Errors
/// What kept it from starting. What happens on the way is in the report.
pub fn run(
    config: &FlowConfig,
    mut watch: impl FnMut(&Snapshot, Duration) -> ControlFlow<()>,
) -> Result<Report, FlowError> {
    let (workers, control) = runner::build(&config.graph, open(config)?)?;
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
    let mut told = began;
    while threads.iter().any(|(_, thread)| !thread.is_finished()) {
        std::thread::sleep(LOOK);
        if told.elapsed() >= TICK {
            told = Instant::now();
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
