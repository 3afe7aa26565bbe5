//! Random graphs with random packets: every packet that goes into a stage or edge comes out or is dropped for a reason, in
//! order, and as often as in a naive walk of each packet.

#![allow(clippy::unwrap_used, missing_docs)]

use std::net::SocketAddrV4;
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use tapeworks_capture::net::build::FrameBuilder;
use tapeworks_capture::net::rewrite::Rewrite;
use tapeworks_capture::pool::{HEADROOM_BYTES, Pool};
use tapeworks_flow::graph::{Carries, Edge, EdgeKind, Graph, Node, Port, WhenFull};
use tapeworks_flow::packets::filter::{Filter, Predicate, Side};
use tapeworks_flow::packets::reader::Repeated;
use tapeworks_flow::packets::rewriter::{Rewriter, Steps};
use tapeworks_flow::packets::writer::Dropper;
use tapeworks_flow::packets::{Note, PacketStage, Passing, Reason, Routed, To};
use tapeworks_flow::runner::{self, Part, Snapshot};
use tapeworks_ring::wait::Wait;
use tapeworks_stage::{Sink, Stage};

const PACKET_BYTES: usize = 256;
const FRAMES: &[Carries] = &[Carries::Frames];
const OUT: &[Port] = &[Port { name: "out", carries: Carries::Frames, may_be_open: false }];
const TWO: &[Port] = &[
    Port { name: "pass", carries: Carries::Frames, may_be_open: false },
    Port { name: "reject", carries: Carries::Frames, may_be_open: true },
];

/// A writer's packets: the number of each and its Ethernet source.
type Seen = Arc<Mutex<Vec<(u64, [u8; 6])>>>;

/// Remembers what comes.
struct Remember(Seen);

impl<S: Sink<Routed>> Stage<Passing, S> for Remember {
    fn process(&mut self, batch: &[Passing], sink: &mut S) {
        let mut seen = self.0.lock().unwrap();
        for packet in batch.iter().filter_map(Passing::take) {
            let mac = packet.bytes()[6..12].try_into().unwrap();
            seen.push((packet.description().timestamp_ns, mac));
            sink.put(Routed { packet, to: To::Consumed });
        }
    }
}

impl PacketStage for Remember {
    fn ports(&self) -> usize {
        0
    }
}

/// The kind of a stage of a test graph.
#[derive(Debug, Clone, Copy)]
enum What {
    Reader {
        count: u64,
    },
    /// Passes ports up to this one.
    Filter {
        last_port: u16,
    },
    /// Writes its own index as the Ethernet source.
    Rewriter,
    Writer,
}

/// The port of packet `number`.
fn port_of(number: u64) -> u16 {
    (number % 7) as u16
}

fn frames() -> Vec<Vec<u8>> {
    (0..7u16)
        .map(|port| {
            let from: SocketAddrV4 = "10.0.0.1:9".parse().unwrap();
            let to = SocketAddrV4::new([233, 0, 0, 1].into(), port);
            let mut frame = vec![0; PACKET_BYTES];
            let length = FrameBuilder::to_group([0; 6], from, to).udp(&[port as u8; 20], &mut frame).unwrap();
            frame.truncate(length);
            frame
        })
        .collect()
}

fn mac_of(node: usize) -> [u8; 6] {
    [2, 0, 0, 0, 0, node as u8]
}

fn nodes(whats: &[What]) -> Vec<Node> {
    let node = |(index, what): (usize, &What)| {
        let (accepts, ports): (&'static [Carries], &'static [Port]) = match what {
            What::Reader { .. } => (&[], OUT),
            What::Filter { .. } => (FRAMES, TWO),
            What::Rewriter => (FRAMES, OUT),
            What::Writer => (FRAMES, &[]),
        };
        let name = format!("s{index}");
        Node {
            name,
            kind: "stage",
            label: String::new(),
            accepts,
            ports,
            wait: Wait::Yielding,
            copies: matches!(what, What::Rewriter),
        }
    };
    whats.iter().enumerate().map(node).collect()
}

/// A graph without faults: parents, kinds and capacities come from `choices`.
fn graph(whats: &[What], batch: usize, capacity: usize, kinds: &[EdgeKind], choices: &[u8]) -> Graph {
    let nodes = nodes(whats);
    let mut choices = choices.iter().copied().cycle();
    let mut choose = |most: usize| usize::from(choices.next().unwrap()) % most;
    let mut kinds_in_turn = kinds.iter().copied().cycle();
    let mut edges: Vec<Edge> = Vec::new();
    let mut join = |edges: &mut Vec<Edge>, from: usize, port: usize, to: usize| {
        if edges.iter().all(|edge| (edge.from, edge.port, edge.to) != (from, port, to)) {
            let kind = kinds_in_turn.next().unwrap();
            edges.push(Edge {
                from,
                port,
                to,
                kind,
                capacity: if kind == EdgeKind::Inline { 0 } else { capacity },
                wait: Wait::ALL[to % 4],
                when_full: WhenFull::Wait,
            });
        }
    };
    let readers = whats.iter().filter(|what| matches!(what, What::Reader { .. })).count();
    for to in readers..nodes.len() {
        for _ in 0..1 + choose(2) {
            let from = choose(to);
            if !nodes[from].ports.is_empty() {
                let port = choose(nodes[from].ports.len());
                join(&mut edges, from, port, to);
            }
        }
        if edges.iter().all(|edge| edge.to != to) {
            join(&mut edges, 0, 0, to);
        }
    }
    for from in 0..nodes.len() {
        let is_open = edges.iter().all(|edge| (edge.from, edge.port) != (from, 0));
        if is_open && !nodes[from].ports.is_empty() {
            join(&mut edges, from, 0, nodes.len() - 1);
        }
    }
    let mut graph = Graph { nodes, edges, batch };
    if !graph.faults().is_empty() {
        graph
            .edges
            .iter_mut()
            .filter(|edge| edge.kind == EdgeKind::Inline)
            .for_each(|edge| (edge.kind, edge.capacity) = (EdgeKind::Spsc, capacity));
    }
    assert_eq!(graph.faults(), []);
    graph
}

/// Runs it; returns the packets that each stage remembers, by index.
fn run(graph: &Graph, whats: &[What]) -> (Snapshot, Vec<Seen>) {
    let plan = graph.plan();
    let seen: Vec<Seen> = whats.iter().map(|_| Seen::default()).collect();
    let parts = whats.iter().enumerate().map(|(index, what)| match what {
        What::Reader { count } => Part::Reader(Box::new(Repeated::new(
            frames(),
            *count,
            Pool::new(plan.buffers[index], PACKET_BYTES),
        ))),
        What::Filter { last_port } => {
            Part::Stage(Box::new(Filter::new(Predicate::Port(Side::Destination, vec![0..=*last_port]))))
        }
        What::Rewriter => {
            let set = Rewrite { source_mac: Some(mac_of(index)), ..Rewrite::default() };
            let pool = Pool::new(plan.buffers[index], PACKET_BYTES + HEADROOM_BYTES);
            Part::Stage(Box::new(Rewriter::new(Steps { set, ..Steps::default() }, pool)))
        }
        What::Writer => Part::Stage(Box::new(Remember(Arc::clone(&seen[index])))),
    });
    let (workers, control) = runner::build(graph, parts.collect()).unwrap();
    std::thread::scope(|scope| {
        for worker in workers {
            scope.spawn(move || worker.run());
        }
    });
    assert_eq!(control.failures(), []);
    (control.snapshot(), seen)
}

/// The packets that reach every stage, by a naive walk: (number, last rewriter) in the order of the paths.
fn walk(graph: &Graph, whats: &[What]) -> Vec<Vec<(u64, [u8; 6])>> {
    let mut reached = vec![Vec::new(); whats.len()];
    for (reader, what) in whats.iter().enumerate() {
        let What::Reader { count } = what else { continue };
        for number in 0..*count {
            let mut todo = vec![(reader, [0; 6])];
            while let Some((at, mac)) = todo.pop() {
                reached[at].push((number, mac));
                let (port, mac) = match whats[at] {
                    What::Filter { last_port } => (usize::from(port_of(number) > last_port), mac),
                    What::Rewriter => (0, mac_of(at)),
                    _ => (0, mac),
                };
                todo.extend(
                    graph
                        .edges
                        .iter()
                        .filter(|edge| (edge.from, edge.port) == (at, port))
                        .map(|edge| (edge.to, mac)),
                );
            }
        }
    }
    reached
}

/// Whether all packets take the same way to a stage, and so stay in order.
fn has_one_way(graph: &Graph, node: usize) -> bool {
    let mut before = graph.edges.iter().filter(|edge| edge.to == node);
    match (before.next(), before.next()) {
        (None, _) => true,
        (Some(edge), None) => has_one_way(graph, edge.from),
        _ => false,
    }
}

fn whats() -> impl Strategy<Value = Vec<What>> {
    let reader = (0..400u64).prop_map(|count| What::Reader { count });
    let middle =
        prop_oneof![(0..7u16).prop_map(|last_port| What::Filter { last_port }), Just(What::Rewriter)];
    (
        proptest::collection::vec(reader, 1..3),
        proptest::collection::vec(middle, 0..6),
        proptest::collection::vec(Just(What::Writer), 1..4),
    )
        .prop_map(|(readers, middles, writers)| [readers, middles, writers].concat())
}

fn kind() -> impl Strategy<Value = EdgeKind> {
    prop_oneof![
        Just(EdgeKind::Inline),
        Just(EdgeKind::Spsc),
        Just(EdgeKind::Disruptor),
        Just(EdgeKind::Queue)
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn every_packet_in_comes_out_or_is_dropped_for_a_reason(
        whats in whats(),
        batch in 1..70usize,
        capacity in 1..40usize,
        kinds in proptest::collection::vec(kind(), 1..8),
        choices in proptest::collection::vec(any::<u8>(), 8..40),
    ) {
        let graph = graph(&whats, batch, capacity, &kinds, &choices);
        let (counts, seen) = run(&graph, &whats);
        prop_assert_eq!(counts.imbalances(&graph), Vec::<String>::new());
        let reached = walk(&graph, &whats);
        for (index, what) in whats.iter().enumerate() {
            prop_assert_eq!(counts.nodes[index].taken, reached[index].len() as u64, "stage {}", index);
            let no_buffer = counts.nodes[index].dropped[Reason::NoBuffer as usize];
            prop_assert_eq!(no_buffer, 0, "stage {}", index);
            if matches!(what, What::Writer) {
                let mut seen = seen[index].lock().unwrap().clone();
                let mut expected = reached[index].clone();
                if !has_one_way(&graph, index) {
                    seen.sort_unstable();
                    expected.sort_unstable();
                }
                prop_assert_eq!(seen, expected, "writer {}", index);
            }
        }
    }
}

#[test]
fn a_packet_is_copied_once_for_each_consumer_that_rewrites_it_but_the_last() {
    // One reader, three rewriters side by side, each with a writer.
    let mut whats = vec![What::Reader { count: 1000 }];
    whats.extend([What::Rewriter; 3]);
    whats.extend([What::Writer; 3]);
    let edges = (1..4).flat_map(|to| {
        let edge = |from, to| Edge {
            from,
            port: 0,
            to,
            kind: EdgeKind::Inline,
            capacity: 0,
            wait: Wait::Yielding,
            when_full: WhenFull::Wait,
        };
        [edge(0, to), edge(to, to + 3)]
    });
    let graph = Graph { nodes: nodes(&whats), edges: edges.collect(), batch: 64 };
    let (counts, _) = run(&graph, &whats);
    let copied: u64 = counts.nodes.iter().map(|counts| counts.notes[Note::Copied as usize]).sum();
    assert_eq!(copied, 2000, "the third of the three is alone with the packet");
}

#[test]
fn an_edge_that_may_drop_counts_what_it_drops() {
    /// Takes its time.
    struct Slow;
    impl<S: Sink<Routed>> Stage<Passing, S> for Slow {
        fn process(&mut self, batch: &[Passing], sink: &mut S) {
            std::thread::sleep(std::time::Duration::from_micros(300));
            for packet in batch.iter().filter_map(Passing::take) {
                sink.put(Routed { packet, to: To::Consumed });
            }
        }
    }
    impl PacketStage for Slow {
        fn ports(&self) -> usize {
            0
        }
    }
    for kind in [EdgeKind::Spsc, EdgeKind::Disruptor, EdgeKind::Queue] {
        let whats = [What::Reader { count: 20_000 }, What::Writer];
        let edge = Edge {
            from: 0,
            port: 0,
            to: 1,
            kind,
            capacity: 8,
            wait: Wait::Backoff,
            when_full: WhenFull::Drop,
        };
        let graph = Graph { nodes: nodes(&whats), edges: vec![edge], batch: 4 };
        let reader = Repeated::new(frames(), 20_000, Pool::new(graph.plan().buffers[0], PACKET_BYTES));
        let parts = vec![Part::Reader(Box::new(reader)), Part::Stage(Box::new(Slow))];
        let (workers, control) = runner::build(&graph, parts).unwrap();
        std::thread::scope(|scope| {
            for worker in workers {
                scope.spawn(move || worker.run());
            }
        });
        let counts = control.snapshot();
        assert_eq!(counts.imbalances(&graph), Vec::<String>::new());
        assert!(counts.edges[0].full > 0, "{kind:?}: {counts:?}");
        assert_eq!(counts.nodes[0].taken, 20_000);
    }
}

#[test]
fn a_stopped_run_drains_the_packets_in_flight() {
    let whats = [What::Reader { count: u64::MAX }, What::Filter { last_port: 3 }, What::Writer];
    for kind in EdgeKind::ALL {
        let graph = graph(&whats, 16, 8, &[kind], &[0]);
        let reader = Repeated::new(frames(), u64::MAX, Pool::new(graph.plan().buffers[0], PACKET_BYTES));
        let filter = Filter::new(Predicate::Port(Side::Destination, vec![0..=3]));
        let parts = vec![
            Part::Reader(Box::new(reader)),
            Part::Stage(Box::new(filter)),
            Part::Stage(Box::new(Dropper)),
        ];
        let (workers, control) = runner::build(&graph, parts).unwrap();
        std::thread::scope(|scope| {
            for worker in workers {
                scope.spawn(move || worker.run());
            }
            while control.snapshot().nodes[2].taken < 1000 {
                std::thread::yield_now();
            }
            control.stop();
        });
        assert!(control.is_stopping());
        assert_eq!(control.snapshot().imbalances(&graph), Vec::<String>::new(), "{kind:?}");
    }
}

#[test]
fn parts_that_do_not_fit_their_stages_are_faults_before_the_run() {
    let whats = [What::Reader { count: 10 }, What::Filter { last_port: 3 }, What::Writer];
    let graph = graph(&whats, 16, 8, &[EdgeKind::Inline], &[0]);
    let reader = || Part::Reader(Box::new(Repeated::new(frames(), 10, Pool::new(64, PACKET_BYTES))));
    let filter = || Part::Stage(Box::new(Filter::new(Predicate::All(vec![]))));
    let writer = || Part::Stage(Box::new(Dropper));
    let fault = |parts: Vec<Part>| match runner::build(&graph, parts) {
        Ok(_) => panic!("it was built"),
        Err(faults) => faults.to_string(),
    };
    assert!(runner::build(&graph, vec![reader(), filter(), writer()]).is_ok());
    assert_eq!(fault(vec![reader(), filter()]), "2 parts are given for 3 stages");
    assert_eq!(fault(vec![reader(), filter(), writer(), writer()]), "4 parts are given for 3 stages");
    assert_eq!(fault(vec![reader(), filter(), reader()]), "'s2' takes packets in, but its part is a reader");
    assert_eq!(fault(vec![writer(), filter(), writer()]), "'s0' is a reader, but its part is none");
    assert_eq!(
        fault(vec![reader(), writer(), filter()]),
        "'s1' is described with 2 outputs, but its part has 0 outputs\n\
         's2' is described with 0 outputs, but its part has 2 outputs"
    );
    let mut broken = graph.clone();
    broken.edges[0].to = 99;
    let faults = runner::build(&broken, vec![reader(), filter(), writer()]).unwrap_err();
    assert_eq!(faults.to_string(), "the edge leads to stage 99, but there are 3 stages");
}

#[test]
fn a_packet_put_to_an_output_that_the_stage_does_not_have_ends_the_run_and_is_counted() {
    /// Says that it has one output, and puts packets to the third.
    struct Liar;
    impl<S: Sink<Routed>> Stage<Passing, S> for Liar {
        fn process(&mut self, batch: &[Passing], sink: &mut S) {
            for packet in batch.iter().filter_map(Passing::take) {
                sink.put(Routed { packet, to: To::Port(2) });
            }
        }
    }
    impl PacketStage for Liar {
        fn ports(&self) -> usize {
            1
        }
    }
    let whats = [What::Reader { count: u64::MAX }, What::Rewriter, What::Writer];
    let graph = graph(&whats, 16, 8, &[EdgeKind::Inline], &[0]);
    let reader = Repeated::new(frames(), u64::MAX, Pool::new(graph.plan().buffers[0], PACKET_BYTES));
    let parts =
        vec![Part::Reader(Box::new(reader)), Part::Stage(Box::new(Liar)), Part::Stage(Box::new(Dropper))];
    let (workers, control) = runner::build(&graph, parts).unwrap();
    std::thread::scope(|scope| {
        for worker in workers {
            scope.spawn(move || worker.run());
        }
    });
    let counts = control.snapshot();
    assert_eq!(counts.imbalances(&graph), Vec::<String>::new());
    assert!(counts.nodes[1].taken > 0);
    assert_eq!(counts.nodes[1].dropped[Reason::NoPort as usize], counts.nodes[1].taken);
    let failures: Vec<String> = control.failures().into_iter().map(|failure| failure.error.text).collect();
    assert_eq!(failures, ["put a packet to its output 2, but has 1, counted from 0"]);
}
