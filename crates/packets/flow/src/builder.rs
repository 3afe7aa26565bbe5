//! Graphs of built-in stages, built in code or from a configuration file.
//!
//! A stage determines its own ports ([`Spec::kind`]), so a graph consists of named stages and the edges between them:
//!
//! ```
//! use tapeworks_flow::builder::{Builder, Ring};
//! use tapeworks_flow::packets::expression;
//! use tapeworks_flow::stages::{REJECT, Spec};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut flow = Builder::new();
//! let read = flow.stage("in", Spec::capture_reader("day.pcap"));
//! let udp = flow.stage("udp", Spec::Filter(expression::parse("udp")?));
//! let write = flow.stage("out", Spec::capture_writer("udp.pcap"));
//! let rest = flow.stage("rest", Spec::Dropper);
//! flow.ring(read, udp, Ring::spsc(1024));
//! flow.inline(udp, write);
//! flow.inline(udp.port(REJECT), rest);
//! let flow = flow.finish()?;
//! assert_eq!(flow.graph.threads(), [0, 1, 1, 1]);
//! # Ok(())
//! # }
//! ```
//!
//! [`Flow::open`] opens the files and sockets; [`runner::build`](crate::runner::build) creates a worker for each thread.

use tapeworks_capture::pool::{MAX_SLOTS, Pool};
use tapeworks_capture::stop;
use tapeworks_ring::wait::Wait;

use crate::graph::{Edge, EdgeKind, Fault, Faults, Graph, Node, Place, WhenFull};
use crate::packets::StageError;
use crate::runner::Part;
use crate::stages::Spec;

/// The most memory that the packet buffers and rings of one flow may take, in bytes.
pub const MAX_BUFFER_BYTES: usize = 8 << 30;

/// The default for the most packets passed on together.
pub const DEFAULT_BATCH: usize = 64;

/// The default for the longest packet, in bytes.
pub const DEFAULT_PACKET_BYTES: usize = 2048;

/// A stage of a [`Builder`]. Used as an output, it means its first port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stage(usize);

impl Stage {
    /// Returns its index in [`Graph::nodes`].
    pub const fn index(self) -> usize {
        self.0
    }

    /// Returns one of its outputs: [`PASS`](crate::stages::PASS) or [`REJECT`](crate::stages::REJECT) of a filter, 0 of others.
    pub const fn port(self, port: usize) -> Output {
        Output { stage: self, port }
    }
}

/// An output of a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Output {
    stage: Stage,
    port: usize,
}

impl From<Stage> for Output {
    fn from(stage: Stage) -> Self {
        stage.port(0)
    }
}

/// An edge between two threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ring {
    /// The kind; not [`EdgeKind::Inline`], which [`Builder::inline`] creates.
    pub kind: EdgeKind,
    /// The most packets it holds.
    pub capacity: usize,
    /// How its ends wait.
    pub wait: Wait,
    /// The policy when it is full.
    pub when_full: WhenFull,
}

impl Ring {
    /// Returns a ring of `capacity` packets from one thread to another. Its ends back off, and no packet is lost.
    pub const fn spsc(capacity: usize) -> Self {
        Self { kind: EdgeKind::Spsc, capacity, wait: Wait::Backoff, when_full: WhenFull::Wait }
    }
}

/// Collects stages and edges for a [`Flow`].
#[derive(Debug, Clone)]
pub struct Builder {
    flow: Flow,
}

/// A graph of built-in stages.
#[derive(Debug, Clone, PartialEq)]
pub struct Flow {
    /// Stages and edges.
    pub graph: Graph,
    /// The specifications of the stages.
    pub specs: Vec<Spec>,
    /// The longest packet, in bytes.
    pub packet_bytes: usize,
}

/// The reason why a flow cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A stage cannot be opened.
    #[error("{stage}: {error}")]
    Stage {
        /// The stage's name.
        stage: String,
        /// The reason.
        error: StageError,
    },
    /// The process was [requested to stop](tapeworks_capture::stop).
    #[error("stopped before the flow began; nothing was read or written")]
    Stopped,
}

impl Default for Builder {
    fn default() -> Self {
        Self::new()
    }
}

impl Builder {
    /// Creates a builder without stages, with [`DEFAULT_BATCH`] and [`DEFAULT_PACKET_BYTES`].
    pub const fn new() -> Self {
        let graph = Graph { nodes: Vec::new(), edges: Vec::new(), batch: DEFAULT_BATCH };
        Self { flow: Flow { graph, specs: Vec::new(), packet_bytes: DEFAULT_PACKET_BYTES } }
    }

    /// Sets the most packets passed on together.
    pub const fn batch(&mut self, packets: usize) -> &mut Self {
        self.flow.graph.batch = packets;
        self
    }

    /// Sets the longest packet.
    pub const fn packet_bytes(&mut self, bytes: usize) -> &mut Self {
        self.flow.packet_bytes = bytes;
        self
    }

    /// Adds a stage. The name must be unique.
    pub fn stage(&mut self, name: impl Into<String>, spec: Spec) -> Stage {
        let label = spec.place();
        self.stage_with(name, spec, label, Wait::Backoff)
    }

    /// Adds a stage with a label for the drawing, and a wait strategy for the thread if the stage is a reader.
    pub fn stage_with(&mut self, name: impl Into<String>, spec: Spec, label: String, wait: Wait) -> Stage {
        let (kind, copies) = (spec.kind(), spec.copies());
        let (accepts, ports) = (kind.accepts, kind.ports);
        let node = Node { name: name.into(), kind: kind.words, label, accepts, ports, wait, copies };
        self.flow.graph.nodes.push(node);
        self.flow.specs.push(spec);
        Stage(self.flow.specs.len() - 1)
    }

    /// Connects two stages on one thread: the first calls the second.
    pub fn inline(&mut self, from: impl Into<Output>, to: Stage) -> &mut Self {
        let none =
            Ring { kind: EdgeKind::Inline, capacity: 0, wait: Wait::Backoff, when_full: WhenFull::Wait };
        self.ring(from, to, none)
    }

    /// Connects two stages by a ring or queue between their threads.
    pub fn ring(&mut self, from: impl Into<Output>, to: Stage, ring: Ring) -> &mut Self {
        let Output { stage, port } = from.into();
        let Ring { kind, capacity, wait, when_full } = ring;
        self.flow.graph.edges.push(Edge { from: stage.0, port, to: to.0, kind, capacity, wait, when_full });
        self
    }

    /// Returns the graph so far.
    pub const fn graph(&self) -> &Graph {
        &self.flow.graph
    }

    /// Finishes the flow.
    ///
    /// # Errors
    /// Everything that prevents the flow from running: [`Flow::faults`].
    pub fn finish(self) -> Result<Flow, Faults> {
        let faults = self.flow.faults();
        if faults.is_empty() { Ok(self.flow) } else { Err(Faults(faults)) }
    }

    /// Finishes a flow that may have [faults](Flow::faults).
    pub fn finish_unchecked(self) -> Flow {
        self.flow
    }
}

impl Flow {
    /// Returns why the flow cannot run: the graph's faults, or otherwise the memory of its buffers.
    pub fn faults(&self) -> Vec<Fault> {
        let mut faults = self.graph.faults();
        if faults.is_empty() {
            faults.extend(self.memory_fault());
        }
        faults
    }

    /// Reports excessive memory, at the largest ring.
    fn memory_fault(&self) -> Option<Fault> {
        let plan = self.graph.plan();
        let bytes = plan.bytes(self.packet_bytes);
        if bytes <= MAX_BUFFER_BYTES && plan.buffers.iter().all(|slots| *slots <= MAX_SLOTS) {
            return None;
        }
        let text = format!(
            "{} packet buffers and the rings would take {:.1} GiB, at most {} are possible: use smaller capacities or \
             packet_bytes",
            plan.all_buffers(),
            bytes as f64 / (1u64 << 30) as f64,
            MAX_BUFFER_BYTES >> 30
        );
        let largest = (0..self.graph.edges.len()).max_by_key(|edge| self.graph.edges[*edge].room());
        Some(Fault { place: largest.map_or(Place::Graph, Place::Edge), text })
    }

    /// Opens the stages, readers first, so that a missing input leaves no outputs behind. Returns soon after the process was
    /// requested to stop, and removes outputs already created.
    ///
    /// # Errors
    /// [`OpenError`]. The flow must have no [faults](Self::faults).
    pub fn open(&self) -> Result<Vec<Part>, OpenError> {
        let plan = self.graph.plan();
        let mut order: Vec<usize> = (0..self.specs.len()).collect();
        order.sort_by_key(|node| !self.graph.nodes[*node].is_reader());
        let mut parts: Vec<Option<Part>> = self.specs.iter().map(|_| None).collect();
        for node in order {
            if stop::is_requested() {
                return Err(OpenError::Stopped);
            }
            let pool = || Pool::new(plan.buffers[node], plan.room(node, self.packet_bytes));
            let opened = self.specs[node].open(pool);
            let named = |error| OpenError::Stage { stage: self.graph.nodes[node].name.clone(), error };
            parts[node] = Some(opened.map_err(named)?);
        }
        Ok(parts.into_iter().flatten().collect())
    }
}
