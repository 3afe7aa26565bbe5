//! A graph of packet stages, and the check that it can run.
//!
//! The description is typed and independent of files. A configuration reader builds a [`Graph`] and checks [`Graph::faults`]. The
//! [`runner`](crate::runner) runs a graph without faults.
//!
//! Stages connected by [`EdgeKind::Inline`] edges share a thread. Every other edge is a ring or queue between two threads.
//! [`Graph::threads`] returns the thread of each stage. Edges carry packets in order. If several edges lead into one stage, the
//! order between them is undefined.

pub mod draw;
mod plan;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

use tapeworks_ring::wait::Wait;

pub use self::plan::Plan;

/// The most paths by which one packet may reach one stage.
pub const MAX_WAYS: usize = 256;

/// The most packets passed on together.
pub const MAX_BATCH: usize = 1024;

/// The most packets that an edge may hold.
pub const MAX_CAPACITY: usize = 1 << 20;

/// The most outputs of a stage. Each has a counter.
pub const MAX_PORTS: usize = 2;

/// The packets that a port carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carries {
    /// Packets with their headers.
    Frames,
    /// Payloads without headers.
    Payloads,
}

impl Carries {
    const fn name(self) -> &'static str {
        match self {
            Self::Frames => "packets with headers",
            Self::Payloads => "payloads without headers",
        }
    }
}

/// An output of a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Port {
    /// The name in the configuration.
    pub name: &'static str,
    /// The packets that leave by it.
    pub carries: Carries,
    /// Whether it may be unconnected, in which case its packets are dropped and counted.
    pub may_be_open: bool,
}

/// The kind of an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EdgeKind {
    /// No ring: the first stage calls the second on the same thread.
    #[default]
    Inline,
    /// A ring from one thread to another.
    Spsc,
    /// A Disruptor: a ring whose consumers all see every packet. All such edges of one port share it.
    Disruptor,
    /// A queue with a lock.
    Queue,
}

impl EdgeKind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Inline, Self::Spsc, Self::Disruptor, Self::Queue];

    /// Returns the name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Inline => "inline",
            Self::Spsc => "spsc",
            Self::Disruptor => "disruptor",
            Self::Queue => "queue",
        }
    }
}

/// The policy for a packet if the edge has no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WhenFull {
    /// Wait. No packet is lost, and the wait propagates back to the reader.
    #[default]
    Wait,
    /// Drop and count the packet. A slow consumer does not delay the others.
    Drop,
}

impl WhenFull {
    /// All policies.
    pub const ALL: [Self; 2] = [Self::Wait, Self::Drop];

    /// Returns the name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Wait => "wait",
            Self::Drop => "drop",
        }
    }
}

/// A stage of the graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// The unique name, for people.
    pub name: String,
    /// The type, in a word or two.
    pub kind: &'static str,
    /// Details for the drawing: `dst net 224.0.0.0/4`.
    pub label: String,
    /// The packets it accepts; empty for a reader.
    pub accepts: &'static [Carries],
    /// The outputs; empty for a writer.
    pub ports: &'static [Port],
    /// How its thread waits if no ring leads into the thread.
    pub wait: Wait,
    /// Whether it changes packets and therefore copies shared ones, as a rewriter does.
    pub copies: bool,
}

impl Node {
    /// Returns whether it is a source of packets.
    pub fn is_reader(&self) -> bool {
        self.accepts.is_empty()
    }

    /// Returns whether packets leave the graph here.
    pub fn is_writer(&self) -> bool {
        self.ports.is_empty()
    }
}

/// A connection from a port to a stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edge {
    /// The index of the stage it leaves.
    pub from: usize,
    /// The index of the port there.
    pub port: usize,
    /// The index of the stage it enters.
    pub to: usize,
    /// The kind.
    pub kind: EdgeKind,
    /// The most packets it holds; 0 if inline.
    pub capacity: usize,
    /// How its ends wait; unused if inline.
    pub wait: Wait,
    /// The policy when it is full; [`WhenFull::Wait`] if inline, where the first stage waits for the second.
    pub when_full: WhenFull,
}

impl Edge {
    /// Returns the most packets it holds: a Disruptor's capacity is rounded up to a power of two.
    pub fn room(&self) -> usize {
        match self.kind {
            EdgeKind::Disruptor => self.capacity.max(1).next_power_of_two(),
            _ => self.capacity.max(1),
        }
    }
}

/// Stages and the edges between them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Graph {
    /// The stages.
    pub nodes: Vec<Node>,
    /// The edges.
    pub edges: Vec<Edge>,
    /// The most packets passed on together, at least one.
    pub batch: usize,
}

/// The location of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// In the graph as a whole.
    Graph,
    /// At the stage with this index.
    Node(usize),
    /// At the edge with this index.
    Edge(usize),
}

/// A reason why a graph cannot run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The location.
    pub place: Place,
    /// The error and the expected value, in one line.
    pub text: String,
}

/// At least one fault that prevents a graph from running. The message has a line for each.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(|fault| fault.text.as_str()).collect::<Vec<_>>().join("\n"))]
pub struct Faults(pub Vec<Fault>);

impl Graph {
    /// Returns `stage.port` as written in the configuration, or only `stage` if it has one port.
    pub fn port_name(&self, node: usize, port: usize) -> String {
        let node = &self.nodes[node];
        match node.ports.get(port) {
            Some(port) if node.ports.len() > 1 => format!("{}.{}", node.name, port.name),
            _ => node.name.clone(),
        }
    }

    /// Returns all faults, in the order of stages and edges. If there are none, the graph can run.
    pub fn faults(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        self.check_bounds(&mut faults);
        self.check_names(&mut faults);
        // Later checks look up the ends of each edge.
        if self.check_ends(&mut faults) {
            self.check_joins(&mut faults);
            let is_acyclic = self.check_cycles(&mut faults);
            if is_acyclic {
                self.check_threads(&mut faults);
                self.check_ways(&mut faults);
            }
            self.check_disruptors(&mut faults);
        }
        faults.sort_by_key(|fault| fault.place);
        faults
    }

    /// Reports values out of range.
    fn check_bounds(&self, faults: &mut Vec<Fault>) {
        if self.batch == 0 || self.batch > MAX_BATCH {
            let text = format!("the batch is {}, it must be from 1 to {MAX_BATCH} packets", self.batch);
            faults.push(Fault { place: Place::Graph, text });
        }
        for (index, node) in self.nodes.iter().enumerate() {
            let place = Place::Node(index);
            if node.ports.len() > MAX_PORTS {
                let text = format!(
                    "'{}' has {} outputs, at most {MAX_PORTS} are possible",
                    node.name,
                    node.ports.len()
                );
                faults.push(Fault { place, text });
            }
            if node.is_reader() && node.ports.len() != 1 {
                let text = format!(
                    "nothing flows into '{}', so it is a reader and has one output, not {}",
                    node.name,
                    node.ports.len()
                );
                faults.push(Fault { place, text });
            }
        }
        for (index, edge) in self.edges.iter().enumerate() {
            let place = Place::Edge(index);
            if edge.kind == EdgeKind::Inline {
                if edge.capacity != 0 {
                    let text = format!(
                        "an inline edge is a call and holds nothing: its capacity is 0, not {}",
                        edge.capacity
                    );
                    faults.push(Fault { place, text });
                }
                if edge.when_full != WhenFull::default() {
                    let text = format!(
                        "an inline edge is a call and is never full: its when_full is \"{}\", not \"{}\"",
                        WhenFull::default().name(),
                        edge.when_full.name()
                    );
                    faults.push(Fault { place, text });
                }
            } else if edge.capacity == 0 || edge.capacity > MAX_CAPACITY {
                let text =
                    format!("the capacity is {}, it must be from 1 to {MAX_CAPACITY} packets", edge.capacity);
                faults.push(Fault { place, text });
            }
        }
    }

    /// Checks that each edge connects existing stages.
    fn check_ends(&self, faults: &mut Vec<Fault>) -> bool {
        let before = faults.len();
        for (index, edge) in self.edges.iter().enumerate() {
            for (verb, node) in [("leaves", edge.from), ("leads to", edge.to)] {
                if node >= self.nodes.len() {
                    let text =
                        format!("the edge {verb} stage {node}, but there are {} stages", self.nodes.len());
                    faults.push(Fault { place: Place::Edge(index), text });
                }
            }
        }
        faults.len() == before
    }

    fn check_names(&self, faults: &mut Vec<Fault>) {
        let mut seen = HashMap::new();
        for (index, node) in self.nodes.iter().enumerate() {
            if seen.insert(node.name.as_str(), index).is_some() {
                let text =
                    format!("a stage named '{}' is there already; each needs a name of its own", node.name);
                faults.push(Fault { place: Place::Node(index), text });
            }
        }
    }

    fn check_joins(&self, faults: &mut Vec<Fault>) {
        let mut joined = HashSet::new();
        for (index, edge) in self.edges.iter().enumerate() {
            let place = Place::Edge(index);
            let (from, to) = (&self.nodes[edge.from], &self.nodes[edge.to]);
            let Some(port) = from.ports.get(edge.port) else {
                let text = match from.ports.len() {
                    0 => format!("'{}' is a {} and has no output", from.name, from.kind),
                    ports => format!(
                        "the edge leaves output {} of '{}', which has {ports}, counted from 0",
                        edge.port, from.name
                    ),
                };
                faults.push(Fault { place, text });
                continue;
            };
            if to.is_reader() {
                let text = format!("'{}' is a {}: nothing can flow into it", to.name, to.kind);
                faults.push(Fault { place, text });
            } else if !to.accepts.contains(&port.carries) {
                let wanted: Vec<&str> = to.accepts.iter().map(|carries| carries.name()).collect();
                let text = format!(
                    "'{}' gives {}, but '{}' takes {}",
                    self.port_name(edge.from, edge.port),
                    port.carries.name(),
                    to.name,
                    wanted.join(" or ")
                );
                faults.push(Fault { place, text });
            }
            if !joined.insert((edge.from, edge.port, edge.to)) {
                let text =
                    format!("'{}' is joined to '{}' already", self.port_name(edge.from, edge.port), to.name);
                faults.push(Fault { place, text });
            }
        }
        let (into, out_of) = self.adjacent();
        for (index, node) in self.nodes.iter().enumerate() {
            let place = Place::Node(index);
            if !node.is_reader() && into[index].is_empty() {
                let text =
                    format!("nothing flows into '{}': an edge with to = \"{0}\" is missing", node.name);
                faults.push(Fault { place, text });
            }
            for (number, port) in node.ports.iter().enumerate() {
                let is_open = !out_of[index].iter().any(|edge| self.edges[*edge].port == number);
                if is_open && !port.may_be_open {
                    let name = self.port_name(index, number);
                    let text = format!(
                        "the output of '{name}' leads nowhere: an edge with from = \"{name}\" is missing (a dropper ends \
                         it on purpose)"
                    );
                    faults.push(Fault { place, text });
                }
            }
        }
    }

    /// Returns the indices of the edges into each stage, and of the edges out of it.
    fn adjacent(&self) -> (Vec<Vec<usize>>, Vec<Vec<usize>>) {
        let mut into = vec![Vec::new(); self.nodes.len()];
        let mut out_of = vec![Vec::new(); self.nodes.len()];
        for (index, edge) in self.edges.iter().enumerate() {
            into[edge.to].push(index);
            out_of[edge.from].push(index);
        }
        (into, out_of)
    }

    /// Returns the indices of edges on a cycle of `vertices` vertices. Each edge is given by its index and its ends.
    fn cycle(vertices: usize, ends: &[(usize, usize, usize)]) -> Option<Vec<usize>> {
        let mut incoming = vec![0; vertices];
        let mut out_of = vec![Vec::new(); vertices];
        for (_, from, to) in ends {
            incoming[*to] += 1;
            out_of[*from].push(*to);
        }
        let mut ready: Vec<usize> = (0..vertices).filter(|vertex| incoming[*vertex] == 0).collect();
        while let Some(vertex) = ready.pop() {
            for to in &out_of[vertex] {
                incoming[*to] -= 1;
                if incoming[*to] == 0 {
                    ready.push(*to);
                }
            }
        }
        // Every remaining vertex has an edge from another one, so walking backwards along them closes a cycle.
        let start = (0..vertices).find(|vertex| incoming[*vertex] > 0)?;
        let mut back = vec![None; vertices];
        for (edge, from, to) in ends.iter().rev().filter(|(_, from, _)| incoming[*from] > 0) {
            back[*to] = Some((*edge, *from));
        }
        let mut way: Vec<usize> = Vec::new();
        let mut place_of = vec![None; vertices];
        let mut vertex = start;
        while place_of[vertex].is_none() {
            place_of[vertex] = Some(way.len());
            let (edge, from) = back[vertex]?;
            way.push(edge);
            vertex = from;
        }
        let mut edges = way.split_off(place_of[vertex]?);
        edges.reverse();
        Some(edges)
    }

    fn check_cycles(&self, faults: &mut Vec<Fault>) -> bool {
        let ends: Vec<_> =
            self.edges.iter().enumerate().map(|(index, edge)| (index, edge.from, edge.to)).collect();
        let Some(cycle) = Self::cycle(self.nodes.len(), &ends) else { return true };
        let mut names: Vec<&str> =
            cycle.iter().map(|edge| self.nodes[self.edges[*edge].from].name.as_str()).collect();
        names.push(names[0]);
        let text = format!("packets would go in a circle: {}", names.join(" -> "));
        faults.push(Fault { place: Place::Edge(cycle[cycle.len() - 1]), text });
        false
    }

    /// Checks that no thread waits for room that only it can make, even through other threads.
    fn check_threads(&self, faults: &mut Vec<Fault>) {
        let threads = self.threads();
        let mut ends = Vec::new();
        for (index, edge) in self.edges.iter().enumerate().filter(|(_, edge)| edge.kind != EdgeKind::Inline) {
            let (from, to) = (threads[edge.from], threads[edge.to]);
            if from == to {
                let text = format!(
                    "'{}' and '{}' are also joined by inline edges and so share a thread, which would wait for itself: \
                     make this edge inline, or one of the others {}",
                    self.nodes[edge.from].name,
                    self.nodes[edge.to].name,
                    edge.kind.name()
                );
                faults.push(Fault { place: Place::Edge(index), text });
            } else {
                ends.push((index, from, to));
            }
        }
        if let Some(cycle) = Self::cycle(self.nodes.len(), &ends) {
            let names: Vec<String> = cycle
                .iter()
                .map(|edge| {
                    let edge = &self.edges[*edge];
                    format!("{} -> {}", self.nodes[edge.from].name, self.nodes[edge.to].name)
                })
                .collect();
            let text = format!(
                "these rings lead from thread to thread in a circle, which would wait for itself: {}; stages joined by \
                 inline edges share a thread",
                names.join(", ")
            );
            faults.push(Fault { place: Place::Edge(cycle[cycle.len() - 1]), text });
        }
    }

    fn check_ways(&self, faults: &mut Vec<Fault>) {
        for (index, ways) in self.ways().into_iter().enumerate() {
            if ways > MAX_WAYS {
                let text = format!(
                    "there are {ways} ways by which one packet reaches '{}', at most {MAX_WAYS} are possible",
                    self.nodes[index].name
                );
                faults.push(Fault { place: Place::Node(index), text });
                return;
            }
        }
    }

    fn check_disruptors(&self, faults: &mut Vec<Fault>) {
        let mut rings: HashMap<(usize, usize), &Edge> = HashMap::new();
        for (index, edge) in self.edges.iter().enumerate() {
            if edge.kind != EdgeKind::Disruptor {
                continue;
            }
            let first = *rings.entry((edge.from, edge.port)).or_insert(edge);
            if (first.capacity, first.when_full) != (edge.capacity, edge.when_full) {
                let text = format!(
                    "the disruptor edges of '{}' are one ring: capacity and when_full must be those of the first, {} and \
                     \"{}\"",
                    self.port_name(edge.from, edge.port),
                    first.capacity,
                    first.when_full.name()
                );
                faults.push(Fault { place: Place::Edge(index), text });
            }
        }
    }

    /// Returns the thread of each stage. Threads are numbered from 0 in the order of their first stages.
    pub fn threads(&self) -> Vec<usize> {
        /// Finds the first stage of the thread of `node`, and shortens the path to it.
        fn first_of(of: &mut [usize], mut node: usize) -> usize {
            while of[node] != node {
                of[node] = of[of[node]];
                node = of[node];
            }
            node
        }
        let mut of: Vec<usize> = (0..self.nodes.len()).collect();
        for edge in self.edges.iter().filter(|edge| edge.kind == EdgeKind::Inline) {
            let (one, other) = (first_of(&mut of, edge.from), first_of(&mut of, edge.to));
            of[one.max(other)] = one.min(other);
        }
        let of: Vec<usize> = (0..of.len()).map(|node| first_of(&mut of, node)).collect();
        let mut numbers = HashMap::new();
        of.into_iter()
            .map(|thread| {
                let next = numbers.len();
                *numbers.entry(thread).or_insert(next)
            })
            .collect()
    }

    /// Returns the stages in an order in which every edge leads forward, as near to the description's order as possible. Omits
    /// stages on a cycle.
    pub fn order(&self) -> Vec<usize> {
        let (into, out_of) = self.adjacent();
        let mut incoming: Vec<usize> = into.iter().map(Vec::len).collect();
        let mut order: Vec<usize> = Vec::with_capacity(self.nodes.len());
        let mut ready: BinaryHeap<Reverse<usize>> =
            (0..self.nodes.len()).filter(|node| incoming[*node] == 0).map(Reverse).collect();
        while let Some(Reverse(next)) = ready.pop() {
            order.push(next);
            for to in out_of[next].iter().map(|edge| self.edges[*edge].to) {
                incoming[to] -= 1;
                if incoming[to] == 0 {
                    ready.push(Reverse(to));
                }
            }
        }
        order
    }

    /// Returns the number of paths by which a packet can reach each stage. The graph must have no cycles.
    pub fn ways(&self) -> Vec<usize> {
        let mut ways = vec![0usize; self.nodes.len()];
        let (into, _) = self.adjacent();
        for node in self.order() {
            if self.nodes[node].is_reader() {
                ways[node] = 1;
            }
            // A packet leaves a stage by only one of its ports.
            let before: HashSet<usize> = into[node].iter().map(|edge| self.edges[*edge].from).collect();
            for from in before {
                ways[node] = ways[node].saturating_add(ways[from]);
            }
        }
        ways
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const OUT: &[Port] = &[Port { name: "out", carries: Carries::Frames, may_be_open: false }];
    const TWO: &[Port] = &[
        Port { name: "pass", carries: Carries::Frames, may_be_open: false },
        Port { name: "reject", carries: Carries::Frames, may_be_open: true },
    ];

    fn node(name: &str, accepts: &'static [Carries], ports: &'static [Port]) -> Node {
        Node {
            name: name.into(),
            kind: "stage",
            label: String::new(),
            accepts,
            ports,
            wait: Wait::default(),
            copies: false,
        }
    }

    pub(crate) fn reader(name: &str) -> Node {
        node(name, &[], OUT)
    }

    pub(crate) fn filter(name: &str) -> Node {
        node(name, &[Carries::Frames], TWO)
    }

    pub(crate) fn writer(name: &str) -> Node {
        node(name, &[Carries::Frames], &[])
    }

    pub(crate) fn edge(from: usize, port: usize, to: usize, kind: EdgeKind) -> Edge {
        let capacity = if kind == EdgeKind::Inline { 0 } else { 8 };
        Edge { from, port, to, kind, capacity, wait: Wait::Yielding, when_full: WhenFull::Wait }
    }

    fn faults(graph: &Graph) -> Vec<String> {
        graph.faults().into_iter().map(|fault| fault.text).collect()
    }

    #[test]
    fn a_sound_graph_has_no_faults_and_inline_stages_share_a_thread() {
        use EdgeKind::{Inline, Spsc};
        let graph = Graph {
            nodes: vec![reader("in"), filter("tcp"), writer("a"), writer("b")],
            edges: vec![edge(0, 0, 1, Inline), edge(1, 0, 2, Spsc), edge(1, 1, 3, Spsc), edge(0, 0, 3, Spsc)],
            batch: 64,
        };
        assert_eq!(faults(&graph), Vec::<String>::new());
        assert_eq!(graph.threads(), [0, 0, 1, 2]);
        assert_eq!(graph.order(), [0, 1, 2, 3]);
        assert_eq!(graph.ways(), [1, 1, 1, 2]);
    }

    #[test]
    fn all_faults_of_a_graph_are_reported_together() {
        use EdgeKind::{Disruptor, Inline, Spsc};
        let assert_fault = |nodes: Vec<Node>, edges: Vec<Edge>, text: &str| {
            let found = faults(&Graph { nodes, edges, batch: 1 });
            assert!(found.iter().any(|fault| fault.contains(text)), "{text}: {found:?}");
        };
        let ends = || vec![reader("in"), writer("out")];
        assert_fault(ends(), vec![], "output of 'in' leads nowhere");
        assert_fault(ends(), vec![], "nothing flows into 'out'");
        assert_fault(ends(), vec![edge(1, 0, 0, Inline)], "'out' is a stage and has no output");
        assert_fault(ends(), vec![edge(0, 0, 0, Inline)], "nothing can flow into it");
        assert_fault(ends(), vec![edge(0, 0, 1, Inline), edge(0, 0, 1, Spsc)], "joined to 'out' already");
        assert_fault(
            vec![reader("x"), writer("x")],
            vec![edge(0, 0, 1, Inline)],
            "named 'x' is there already",
        );
        let filters = || vec![reader("in"), filter("a"), filter("b"), writer("out")];
        let circle =
            vec![edge(0, 0, 1, Inline), edge(1, 0, 2, Inline), edge(2, 0, 1, Inline), edge(2, 1, 3, Inline)];
        assert_fault(filters(), circle, "in a circle: a -> b -> a");
        let itself =
            vec![edge(0, 0, 1, Inline), edge(1, 0, 2, Inline), edge(1, 1, 2, Spsc), edge(2, 0, 3, Inline)];
        assert_fault(filters(), itself, "would wait for itself: make this edge inline");
        let by_way =
            vec![edge(0, 0, 1, Inline), edge(1, 0, 2, Spsc), edge(2, 0, 3, Spsc), edge(1, 1, 3, Inline)];
        assert_fault(filters(), by_way, "from thread to thread in a circle");
        let unlike = vec![
            edge(0, 0, 1, Disruptor),
            Edge { capacity: 99, ..edge(0, 0, 2, Disruptor) },
            edge(1, 0, 3, Inline),
            edge(2, 0, 3, Inline),
        ];
        assert_fault(filters(), unlike, "are one ring");
        const BARE: &[Port] = &[Port { name: "out", carries: Carries::Payloads, may_be_open: false }];
        let bare = vec![node("udp", &[], BARE), writer("out")];
        assert_fault(
            bare,
            vec![edge(0, 0, 1, Inline)],
            "'udp' gives payloads without headers, but 'out' takes packets with headers",
        );
    }

    #[test]
    fn an_index_out_of_range_is_a_fault_and_not_a_panic() {
        use EdgeKind::{Inline, Spsc};
        let ends = || vec![reader("in"), writer("out")];
        let found = |nodes: Vec<Node>, edges: Vec<Edge>| faults(&Graph { nodes, edges, batch: 1 });
        assert_eq!(
            found(ends(), vec![edge(0, 0, 99, Inline)]),
            ["the edge leads to stage 99, but there are 2 stages"]
        );
        assert_eq!(
            found(vec![], vec![edge(7, 0, 0, Spsc)]),
            [
                "the edge leaves stage 7, but there are 0 stages",
                "the edge leads to stage 0, but there are 0 stages"
            ]
        );
        assert_eq!(
            found(ends(), vec![edge(0, 0, 1, Inline), edge(0, 5, 1, Inline)]),
            ["the edge leaves output 5 of 'in', which has 1, counted from 0"]
        );
        const THREE: &[Port] = &[TWO[0], TWO[1], Port { name: "third", ..TWO[1] }];
        assert_eq!(
            found(
                vec![reader("in"), node("f", &[Carries::Frames], THREE), writer("out")],
                vec![edge(0, 0, 1, Inline), edge(1, 0, 2, Inline)]
            ),
            ["'f' has 3 outputs, at most 2 are possible"]
        );
        assert_eq!(
            found(vec![node("alone", &[], &[])], vec![]),
            ["nothing flows into 'alone', so it is a reader and has one output, not 0"]
        );
        let inline = vec![Edge { capacity: 8, when_full: WhenFull::Drop, ..edge(0, 0, 1, Inline) }];
        assert_eq!(
            found(ends(), inline),
            [
                "an inline edge is a call and holds nothing: its capacity is 0, not 8",
                "an inline edge is a call and is never full: its when_full is \"wait\", not \"drop\""
            ]
        );
        for (capacity, batch, text) in [
            (0, 1, "the capacity is 0, it must be from 1 to 1048576 packets"),
            (usize::MAX, 1, "the capacity is 18446744073709551615, it must be from 1 to 1048576 packets"),
            (1, 0, "the batch is 0, it must be from 1 to 1024 packets"),
            (1, usize::MAX, "the batch is 18446744073709551615, it must be from 1 to 1024 packets"),
        ] {
            let edges = vec![Edge { capacity, ..edge(0, 0, 1, Spsc) }];
            assert_eq!(faults(&Graph { nodes: ends(), edges, batch }), [text]);
        }
    }

    #[test]
    fn a_graph_that_multiplies_packets_without_bound_is_refused() {
        // Double the paths ten times: each layer is a pair of filters whose outputs join again.
        let mut nodes = vec![reader("in")];
        let mut edges = Vec::new();
        let mut last = vec![0];
        for layer in 0..10 {
            let pair = [nodes.len(), nodes.len() + 1];
            nodes.extend([filter(&format!("{layer}a")), filter(&format!("{layer}b"))]);
            for from in last {
                edges.extend(pair.map(|to| edge(from, 0, to, EdgeKind::Inline)));
            }
            last = pair.to_vec();
        }
        nodes.push(writer("out"));
        edges.extend(last.into_iter().map(|from| edge(from, 0, nodes.len() - 1, EdgeKind::Inline)));
        let found = faults(&Graph { nodes, edges, batch: 1 });
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("512 ways") || found[0].contains("ways by which"), "{found:?}");
    }
}
