//! Runs a graph: the threads' loops, routing, and counts.
//!
//! [`build`] turns a [`Graph`] without faults and its stages into [`Worker`]s, one per thread of the graph. The caller starts and
//! places the threads. A worker's loop reads top to bottom: poll each source for a batch, pass it through the inline stages, put
//! the results into rings, and wait if there was no packet.
//!
//! | per packet and stage | cost |
//! | --- | --- |
//! | inline | moving a handle into the stage's inbox and out of its outbox: 8 and 16 bytes, in the first-level cache |
//! | fan-out | one atomic addition per further consumer; bytes are not copied |
//! | ring | the ring's own cost; one release store per batch |
//! | counts | plain additions, once per batch; once per packet for drops |
//!
//! The clock is read once per incoming batch and once per batch that a writer has consumed. Nothing is allocated after [`build`].
//!
//! # Order
//! Packets on the same path keep their order. Packets that took different paths to one stage arrive batch by batch, in no
//! particular order. With a batch size of one and only inline edges, they arrive in the order they entered.
//!
//! # The end
//! A reader ends by itself or when [`Control::stop`] requests it. Each thread then drains its incoming rings, finishes its stages
//! (files get their final names) and closes its outgoing rings. A failing stage ends the run in the same way: it drops further
//! packets, counted as [`Reason::Failed`], so that the counts stay correct.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use hdrhistogram::Histogram;
use tapeworks_ring::wait::Wait;

use crate::edge::{self, EdgeCounters, Making, Received, Receiver, Sender, Waiter, add};
use crate::graph::{EdgeKind, Fault, Faults, Graph, MAX_PORTS, Place};
use crate::packets::{Note, Outbox, PacketStage, Passing, Polled, Reader, Reason, Routed, StageError, To};

/// The longest recorded latency, in ns. Longer ones are recorded as this value.
const LONGEST_LATENCY_NS: u64 = 3_600_000_000_000;

/// How often a running writer reports its latencies, in ns. A report walks the histogram, which takes microseconds.
const LATENCY_TICK_NS: u64 = 500_000_000;

/// A stage of the graph, ready to run.
pub enum Part {
    /// A source of packets.
    Reader(Box<dyn Reader>),
    /// A stage that packets pass, or where they leave.
    Stage(Box<dyn PacketStage>),
}

impl std::fmt::Debug for Part {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Reader(_) => "Reader",
            Self::Stage(_) => "Stage",
        })
    }
}

/// Counts of a stage, written by its thread and read by a watching thread.
#[derive(Debug, Default)]
struct NodeCounters {
    taken: AtomicU64,
    bytes: AtomicU64,
    ports: [AtomicU64; MAX_PORTS],
    consumed: AtomicU64,
    dropped: [AtomicU64; Reason::ALL.len()],
    notes: [AtomicU64; Note::ALL.len()],
    latency_ns: [AtomicU64; 2],
}

/// The state shared by all workers of a run.
#[derive(Debug, Default)]
struct Shared {
    is_stopping: AtomicBool,
    nodes: Vec<NodeCounters>,
    edges: Vec<Arc<EdgeCounters>>,
    failures: Mutex<Vec<Failure>>,
}

/// A stage's failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The stage's index.
    pub node: usize,
    /// The reason.
    pub error: StageError,
}

/// A handle to a run, for stopping it and reading its counts.
#[derive(Debug, Clone)]
pub struct Control {
    shared: Arc<Shared>,
}

/// Counts of a stage at some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NodeCounts {
    /// Packets that entered. For a reader: packets it read or that the kernel dropped before it.
    pub taken: u64,
    /// Bytes of those packets.
    pub bytes: u64,
    /// Packets that left, by port.
    pub ports: [u64; MAX_PORTS],
    /// Packets consumed by the stage.
    pub consumed: u64,
    /// Packets dropped here, by [`Reason`] in the order of [`Reason::ALL`].
    pub dropped: [u64; Reason::ALL.len()],
    /// Notes, by [`Note`] in the order of [`Note::ALL`].
    pub notes: [u64; Note::ALL.len()],
    /// For a writer, the median and 99th percentile of the latency since the start, reported twice a second while it writes. 0
    /// before the first report.
    pub latency_ns: [u64; 2],
}

impl NodeCounts {
    /// Returns the number of packets dropped here for any reason.
    pub fn all_dropped(&self) -> u64 {
        self.dropped.iter().sum()
    }

    /// Returns the number of packets that left by a port or were consumed.
    pub fn all_out(&self) -> u64 {
        self.ports.iter().sum::<u64>() + self.consumed
    }
}

/// Counts of an edge at some time.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct EdgeCounts {
    /// Packets that the preceding stage had for the edge.
    pub offered: u64,
    /// Packets delivered to the following stage.
    pub delivered: u64,
    /// Packets for which there was no room.
    pub full: u64,
    /// Packets abandoned because the receiving thread had ended.
    pub abandoned: u64,
    /// The most packets that the following stage found in it.
    pub most: u64,
    /// The average number of packets found.
    pub mean: f64,
}

impl EdgeCounts {
    /// Returns the packets in the edge, including, during the run, packets that wait for room.
    pub fn held(&self) -> u64 {
        self.offered.saturating_sub(self.delivered + self.full + self.abandoned)
    }
}

/// Counts of a whole run at some time.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Snapshot {
    /// Per stage.
    pub nodes: Vec<NodeCounts>,
    /// Per edge.
    pub edges: Vec<EdgeCounts>,
}

impl Snapshot {
    /// Checks the counts after the run: every packet that entered a stage or an edge left it or was dropped for a reason. Returns
    /// a line for each stage and edge whose counts do not add up, so the result should be empty.
    pub fn imbalances(&self, graph: &Graph) -> Vec<String> {
        let mut lines = Vec::new();
        for (index, (node, counts)) in graph.nodes.iter().zip(&self.nodes).enumerate() {
            let (out, dropped) = (counts.all_out(), counts.all_dropped());
            if counts.taken != out + dropped {
                lines.push(format!("{}: {} in, {out} out, {dropped} dropped", node.name, counts.taken));
            }
            let came: u64 = graph
                .edges
                .iter()
                .zip(&self.edges)
                .filter(|(edge, _)| edge.to == index)
                .map(|(_, counts)| counts.delivered)
                .sum();
            if !node.is_reader() && came != counts.taken {
                lines.push(format!("{}: {came} delivered, {} taken", node.name, counts.taken));
            }
        }
        for (edge, counts) in graph.edges.iter().zip(&self.edges) {
            let left = self.nodes[edge.from].ports[edge.port];
            let name =
                || format!("{} -> {}", graph.port_name(edge.from, edge.port), graph.nodes[edge.to].name);
            if left != counts.offered {
                lines.push(format!("{}: {left} left the port, {} offered", name(), counts.offered));
            }
            if counts.offered != counts.delivered + counts.full + counts.abandoned {
                lines.push(format!("{}: {counts:?}", name()));
            }
        }
        lines
    }
}

impl Control {
    /// Requests the end of the readers. Threads drain the packets in flight and finish.
    pub fn stop(&self) {
        self.shared.stop();
    }

    /// Returns whether the run is ending before its readers do: a stop was requested, or a stage failed.
    pub fn is_stopping(&self) -> bool {
        self.shared.is_stopping.load(Ordering::Relaxed)
    }

    /// Returns the current counts. During the run, those of one stage or edge may differ by a batch.
    pub fn snapshot(&self) -> Snapshot {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let nodes = self.shared.nodes.iter().map(|counters| NodeCounts {
            taken: read(&counters.taken),
            bytes: read(&counters.bytes),
            ports: counters.ports.each_ref().map(read),
            consumed: read(&counters.consumed),
            dropped: counters.dropped.each_ref().map(read),
            notes: counters.notes.each_ref().map(read),
            latency_ns: counters.latency_ns.each_ref().map(read),
        });
        let edges = self.shared.edges.iter().map(|counters| EdgeCounts {
            offered: read(&counters.offered),
            delivered: read(&counters.delivered),
            full: read(&counters.full),
            abandoned: read(&counters.abandoned),
            most: read(&counters.most),
            mean: read(&counters.held) as f64 / read(&counters.looks).max(1) as f64,
        });
        Snapshot { nodes: nodes.collect(), edges: edges.collect() }
    }

    /// Returns the failures so far, in the order they happened.
    pub fn failures(&self) -> Vec<Failure> {
        self.shared.failures.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Shared {
    fn stop(&self) {
        // Readers check this when they are polled, and no thread with a reader sleeps without a timeout.
        self.is_stopping.store(true, Ordering::Relaxed);
    }

    #[cold]
    fn fail(&self, node: usize, error: StageError) {
        let ends_the_run = !error.is_damage;
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).push(Failure { node, error });
        if ends_the_run {
            self.stop();
        }
    }
}

impl Shared {
    /// Records that a stage sent a packet to a nonexistent output: a bug in the stage, reported once.
    #[cold]
    fn lose(&self, node: usize, port: u8, ports: usize) {
        let counter = &self.nodes[node].dropped[Reason::NoPort as usize];
        if counter.load(Ordering::Relaxed) == 0 {
            let text = format!("put a packet to its output {port}, but has {ports}, counted from 0");
            self.fail(node, StageError::failed(text));
        }
        add(counter, 1);
    }
}

/// The target of a port.
#[derive(Debug)]
enum Target {
    /// The inbox of a later stage in the same worker.
    Inline { seat: usize, counters: Arc<EdgeCounters> },
    /// A ring, by its index in [`Worker::senders`].
    Sender(usize),
}

/// A stage at its position in a worker.
#[derive(Debug)]
struct Seat {
    node: usize,
    part: Part,
    inbox: Vec<Passing>,
    outbox: Outbox,
    ports: Vec<Vec<Target>>,
    /// The time from entering the process to being consumed here, for writers only.
    latency_ns: Option<Histogram<u64>>,
    /// The time of the last report.
    latency_reported_ns: u64,
}

/// A source of packets for a worker.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "one for each edge of a worker, made once")]
enum Source {
    Reader { seat: usize },
    Edge { seat: usize, receiver: Receiver },
}

/// The loop of one thread. Run it with [`Worker::run`], on a thread of your choice.
#[derive(Debug)]
pub struct Worker {
    /// Ordered so that every inline edge leads forward.
    seats: Vec<Seat>,
    sources: Vec<Source>,
    senders: Vec<Sender>,
    waiter: Waiter,
    batch: usize,
    began: Instant,
    shared: Arc<Shared>,
    name: String,
}

/// The result of a worker.
#[derive(Debug)]
pub struct Finished {
    /// For each writer, by its index: the time in ns from entering the process to being consumed.
    pub latencies_ns: Vec<(usize, Histogram<u64>)>,
}

/// Returns mismatches between the stages and the graph's description of them.
fn unfit_parts(graph: &Graph, parts: &[Part]) -> Vec<Fault> {
    if parts.len() != graph.nodes.len() {
        let text = format!("{} parts are given for {} stages", parts.len(), graph.nodes.len());
        return vec![Fault { place: Place::Graph, text }];
    }
    let mut faults = Vec::new();
    for (index, (node, part)) in graph.nodes.iter().zip(parts).enumerate() {
        let outputs =
            |ports: usize| if ports == 1 { "1 output".to_owned() } else { format!("{ports} outputs") };
        let text = match part {
            Part::Reader(_) if !node.is_reader() => {
                format!("'{}' takes packets in, but its part is a reader", node.name)
            }
            Part::Stage(_) if node.is_reader() => {
                format!("'{}' is a reader, but its part is none", node.name)
            }
            Part::Stage(stage) if stage.ports() != node.ports.len() => format!(
                "'{}' is described with {}, but its part has {}",
                node.name,
                outputs(node.ports.len()),
                outputs(stage.ports())
            ),
            _ => continue,
        };
        faults.push(Fault { place: Place::Node(index), text });
    }
    faults
}

/// Creates the workers of a graph, given a part for each of its stages.
///
/// # Errors
/// The graph's [faults](Graph::faults), or otherwise parts that do not match the graph's description of their stages.
pub fn build(graph: &Graph, parts: Vec<Part>) -> Result<(Vec<Worker>, Control), Faults> {
    let mut faults = graph.faults();
    if faults.is_empty() {
        faults = unfit_parts(graph, &parts);
    }
    if !faults.is_empty() {
        return Err(Faults(faults));
    }
    let threads = graph.threads();
    let plan = graph.plan();
    let shared = Arc::new(Shared {
        nodes: graph.nodes.iter().map(|_| NodeCounters::default()).collect(),
        edges: graph.edges.iter().map(|_| Arc::default()).collect(),
        ..Shared::default()
    });
    let began = Instant::now();
    let mut workers: Vec<Worker> = waiters_of(graph, &threads)
        .into_iter()
        .map(|waiter| Worker {
            seats: Vec::new(),
            sources: Vec::new(),
            senders: Vec::new(),
            waiter,
            batch: graph.batch,
            began,
            shared: Arc::clone(&shared),
            name: String::new(),
        })
        .collect();
    let mut parts: Vec<Option<Part>> = parts.into_iter().map(Some).collect();
    // The seat of each stage in its worker.
    let mut seats = vec![0; graph.nodes.len()];
    for node in graph.order() {
        let Some(part) = parts[node].take() else { continue };
        let worker = &mut workers[threads[node]];
        seats[node] = worker.seats.len();
        if matches!(part, Part::Reader(_)) {
            worker.sources.push(Source::Reader { seat: seats[node] });
        }
        if worker.name.is_empty() {
            worker.name.clone_from(&graph.nodes[node].name);
        }
        let most = plan.inboxes[node];
        // A histogram with these bounds can always be created.
        let latency_ns = graph.nodes[node]
            .is_writer()
            .then(|| Histogram::new_with_bounds(1, LONGEST_LATENCY_NS, 2).ok())
            .flatten();
        worker.seats.push(Seat {
            node,
            part,
            inbox: Vec::with_capacity(most),
            outbox: Outbox::with_capacity(most),
            ports: graph.nodes[node].ports.iter().map(|_| Vec::new()).collect(),
            latency_ns,
            latency_reported_ns: 0,
        });
    }
    let mut is_made = vec![false; graph.edges.len()];
    let mut rings: HashMap<(usize, usize), Vec<usize>> = HashMap::new();
    for (index, edge) in graph.edges.iter().enumerate().filter(|(_, edge)| edge.kind == EdgeKind::Disruptor) {
        rings.entry((edge.from, edge.port)).or_default().push(index);
    }
    for (index, edge) in graph.edges.iter().enumerate() {
        let seat = seats[edge.from];
        if edge.kind == EdgeKind::Inline {
            let counters = Arc::clone(&shared.edges[index]);
            let target = Target::Inline { seat: seats[edge.to], counters };
            workers[threads[edge.from]].seats[seat].ports[edge.port].push(target);
            continue;
        }
        if is_made[index] {
            continue;
        }
        // All Disruptor edges of a port share one ring.
        let group = match edge.kind {
            EdgeKind::Disruptor => rings.remove(&(edge.from, edge.port)).unwrap_or_default(),
            _ => vec![index],
        };
        let ends = group.iter().map(|member| {
            is_made[*member] = true;
            (Arc::clone(&shared.edges[*member]), workers[threads[graph.edges[*member].to]].waiter.wake_up())
        });
        let making = Making {
            kind: edge.kind,
            capacity: edge.capacity.max(1),
            wait: edge.wait,
            when_full: edge.when_full,
        };
        let (sender, receivers) = edge::make(&making, ends.collect(), plan.inboxes[edge.from]);
        for (member, receiver) in group.iter().zip(receivers) {
            let to = graph.edges[*member].to;
            workers[threads[to]].sources.push(Source::Edge { seat: seats[to], receiver });
        }
        let worker = &mut workers[threads[edge.from]];
        worker.senders.push(sender);
        let place = worker.senders.len() - 1;
        worker.seats[seat].ports[edge.port].push(Target::Sender(place));
    }
    Ok((workers, Control { shared }))
}

/// Returns each thread's strategy: that of the most eager edge into it, or of its most eager reader if there is none.
fn waiters_of(graph: &Graph, threads: &[usize]) -> Vec<Waiter> {
    let count = threads.iter().max().map_or(0, |last| last + 1);
    let mut waits: Vec<(Option<Wait>, bool)> = vec![(None, false); count];
    let mut hear = |thread: usize, wait: Wait| {
        let most_eager = &mut waits[thread].0;
        *most_eager = Some(most_eager.map_or(wait, |other| other.min(wait)));
    };
    for edge in graph.edges.iter().filter(|edge| edge.kind != EdgeKind::Inline) {
        hear(threads[edge.to], edge.wait);
    }
    for (node, thread) in graph.nodes.iter().zip(threads).filter(|(node, _)| node.is_reader()) {
        hear(*thread, node.wait);
    }
    for (node, thread) in graph.nodes.iter().zip(threads) {
        waits[*thread].1 |= node.is_reader();
    }
    let waiter = |(wait, has_reader): (Option<Wait>, bool)| {
        let wait = wait.unwrap_or(Wait::Backoff);
        if has_reader { Waiter::unwoken(wait) } else { Waiter::new(wait) }
    };
    waits.into_iter().map(waiter).collect()
}

impl Worker {
    /// Returns the name of its first stage, for naming the thread.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs until all its sources have ended.
    pub fn run(mut self) -> Finished {
        while !self.sources.is_empty() {
            if !self.poll() {
                self.wait();
            }
        }
        self.finish();
        let latencies_ns =
            self.seats.iter_mut().filter_map(|seat| Some((seat.node, seat.latency_ns.take()?))).collect();
        Finished { latencies_ns }
    }

    fn now_ns(&self) -> u64 {
        // 584 years fit.
        self.began.elapsed().as_nanos() as u64
    }

    /// Takes a batch from each source in turn and passes it through the stages. Returns whether there were packets.
    fn poll(&mut self) -> bool {
        let mut was_any = false;
        let mut at = 0;
        while at < self.sources.len() {
            let now_ns = self.now_ns();
            let (seat, received) = match &mut self.sources[at] {
                Source::Edge { seat, receiver } => {
                    let received = receiver.receive(self.batch, &mut self.seats[*seat].inbox);
                    (*seat, received)
                }
                Source::Reader { seat } => {
                    (*seat, poll_reader(&mut self.seats[*seat], self.batch, now_ns, &self.shared))
                }
            };
            if matches!(self.sources[at], Source::Reader { .. }) {
                self.route(seat);
            }
            if received != Received::None {
                was_any = true;
                self.hand_through(seat);
            }
            if received == Received::Ended {
                self.sources.remove(at);
            } else {
                at += 1;
            }
        }
        was_any
    }

    /// Runs the stages from `first` on, over their inboxes.
    fn hand_through(&mut self, first: usize) {
        for index in first..self.seats.len() {
            let seat = &mut self.seats[index];
            if seat.inbox.is_empty() {
                continue;
            }
            let Part::Stage(stage) = &mut seat.part else { continue };
            let counters = &self.shared.nodes[seat.node];
            add(&counters.taken, seat.inbox.len() as u64);
            stage.process(&seat.inbox, &mut seat.outbox);
            seat.inbox.clear();
            publish_notes(counters, stage.notes());
            if let Some(error) = stage.take_failure() {
                self.shared.fail(seat.node, error);
            }
            self.route(index);
        }
        self.senders.iter_mut().for_each(Sender::flush);
    }

    /// Moves the packets of a stage's outbox to their targets.
    fn route(&mut self, index: usize) {
        let now_ns = if self.seats[index].latency_ns.is_some() { self.now_ns() } else { 0 };
        let (before, behind) = self.seats.split_at_mut(index + 1);
        let Seat { node, outbox, ports, latency_ns, latency_reported_ns, part, .. } = &mut before[index];
        let counters = &self.shared.nodes[*node];
        let is_reader = matches!(part, Part::Reader(_));
        let mut by_port = [0u64; MAX_PORTS];
        let (mut consumed, mut bytes, mut taken) = (0, 0, 0);
        for Routed { packet, to } in outbox.items.drain(..) {
            taken += 1;
            bytes += packet.bytes().len() as u64;
            let targets = match to {
                To::Consumed => {
                    consumed += 1;
                    if let Some(latency_ns) = latency_ns {
                        latency_ns.saturating_record(now_ns.saturating_sub(packet.description().entered_ns));
                    }
                    continue;
                }
                To::Dropped(reason) => {
                    add(&counters.dropped[reason as usize], 1);
                    continue;
                }
                To::Port(port) => match ports.get(usize::from(port)).map(Vec::as_slice) {
                    Some(targets @ [_, ..]) => {
                        by_port[usize::from(port)] += 1;
                        targets
                    }
                    Some([]) => {
                        add(&counters.dropped[Reason::Rejected as usize], 1);
                        continue;
                    }
                    None => {
                        self.shared.lose(*node, port, ports.len());
                        continue;
                    }
                },
            };
            let mut deliver = |target: &Target, packet| match target {
                // Targets come later, because seats are in the order of the edges.
                Target::Inline { seat, .. } => behind[*seat - index - 1].inbox.push(Passing::new(packet)),
                Target::Sender(place) => self.senders[*place].hold(packet),
            };
            if let [others @ .., last] = targets {
                others.iter().for_each(|target| deliver(target, packet.clone()));
                deliver(last, packet);
            }
        }
        if let Some(latency_ns) = latency_ns
            && now_ns - *latency_reported_ns >= LATENCY_TICK_NS
        {
            *latency_reported_ns = now_ns;
            for (counter, quantile) in counters.latency_ns.iter().zip([0.5, 0.99]) {
                counter.store(latency_ns.value_at_quantile(quantile), Ordering::Relaxed);
            }
        }
        add(&counters.bytes, bytes);
        add(&counters.consumed, consumed);
        for (port, count) in by_port.into_iter().enumerate().filter(|(_, count)| *count > 0) {
            add(&counters.ports[port], count);
            for target in &ports[port] {
                if let Target::Inline { counters, .. } = target {
                    add(&counters.offered, count);
                    add(&counters.delivered, count);
                }
            }
        }
        if is_reader {
            for (counter, unread) in counters.dropped.iter().zip(&mut outbox.unread) {
                add(counter, *unread);
                taken += *unread;
                *unread = 0;
            }
            add(&counters.taken, taken);
        }
    }

    fn wait(&mut self) {
        let Self { sources, seats, waiter, shared, began, .. } = self;
        if let [Source::Edge { receiver, .. }] = sources.as_slice()
            && receiver.sleep()
        {
            return;
        }
        waiter.wait_until(|| {
            let is_stopping = shared.is_stopping.load(Ordering::Relaxed);
            sources.iter_mut().any(|source| match source {
                Source::Edge { receiver, .. } => receiver.is_ready(),
                Source::Reader { seat } => {
                    let Part::Reader(reader) = &mut seats[*seat].part else { return true };
                    is_stopping || reader.is_ready(began.elapsed().as_nanos() as u64)
                }
            })
        });
    }

    /// Finishes the stages after the last packet.
    fn finish(&mut self) {
        for seat in &mut self.seats {
            let Part::Stage(stage) = &mut seat.part else { continue };
            if let Err(error) = stage.finish() {
                self.shared.fail(seat.node, error);
            }
            publish_notes(&self.shared.nodes[seat.node], stage.notes());
        }
        self.senders.clear();
    }
}

fn publish_notes(counters: &NodeCounters, notes: crate::packets::Notes) {
    for (counter, note) in counters.notes.iter().zip(Note::ALL) {
        counter.store(notes.of(note), Ordering::Relaxed);
    }
}

fn poll_reader(seat: &mut Seat, most: usize, now_ns: u64, shared: &Shared) -> Received {
    let Part::Reader(reader) = &mut seat.part else { return Received::Ended };
    let polled = if shared.is_stopping.load(Ordering::Relaxed) {
        Ok(Polled::Ended)
    } else {
        reader.poll(most, now_ns, &mut seat.outbox)
    };
    if !matches!(polled, Ok(Polled::Some | Polled::None)) {
        reader.finish(&mut seat.outbox);
    }
    publish_notes(&shared.nodes[seat.node], reader.notes());
    match polled {
        Ok(Polled::Some) => Received::Some,
        Ok(Polled::None) => Received::None,
        Ok(Polled::Ended) => Received::Ended,
        Err(error) => {
            shared.fail(seat.node, error);
            Received::Ended
        }
    }
}
