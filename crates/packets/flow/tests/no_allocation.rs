//! A flow takes its memory at start-up, as much as its plan says: twenty times the packets allocate no more.

#![allow(clippy::unwrap_used, missing_docs)]

use tapeworks_capture::pool::{HEADROOM_BYTES, Pool};
use tapeworks_flow::graph::{Carries, Edge, EdgeKind, Graph, Node, Port, WhenFull};
use tapeworks_flow::packets::filter::{Filter, Predicate};
use tapeworks_flow::packets::reader::Repeated;
use tapeworks_flow::packets::rewriter::{Rewriter, Steps};
use tapeworks_flow::packets::writer::Dropper;
use tapeworks_flow::runner::{self, Part};
use tapeworks_ring::counting::{CountingAllocator, allocated_bytes, allocations};
use tapeworks_ring::wait::Wait;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const OUT: &[Port] = &[Port { name: "out", carries: Carries::Frames, may_be_open: false }];
const PASS: &[Port] = &[
    Port { name: "pass", carries: Carries::Frames, may_be_open: false },
    Port { name: "reject", carries: Carries::Frames, may_be_open: true },
];

/// Allocations of all threads of a run of `count` packets through a filter, to two rewriters, to one end.
fn allocations_of(kind: EdgeKind, count: u64) -> u64 {
    let node = |name: &str, accepts: &'static [Carries], ports: &'static [Port]| Node {
        name: name.to_owned(),
        kind: "stage",
        label: String::new(),
        accepts,
        ports,
        wait: Wait::Yielding,
        copies: name == "a" || name == "b",
    };
    let frames: &[Carries] = &[Carries::Frames];
    let edge = |from, to, kind| Edge {
        from,
        port: 0,
        to,
        kind,
        capacity: if kind == EdgeKind::Inline { 0 } else { 64 },
        wait: Wait::Yielding,
        when_full: WhenFull::Wait,
    };
    let graph = Graph {
        nodes: vec![
            node("in", &[], OUT),
            node("all", frames, PASS),
            node("a", frames, OUT),
            node("b", frames, OUT),
            node("end", frames, &[]),
        ],
        edges: vec![
            edge(0, 1, EdgeKind::Inline),
            edge(1, 2, EdgeKind::Inline),
            edge(1, 3, EdgeKind::Inline),
            edge(2, 4, kind),
            edge(3, 4, kind),
        ],
        batch: 64,
    };
    assert_eq!(graph.faults(), []);
    let plan = graph.plan();
    let rewriter = |index| {
        let steps = Steps { push_vlan: Some(5), ..Steps::default() };
        Part::Stage(Box::new(Rewriter::new(steps, Pool::new(plan.buffers[index], 128 + HEADROOM_BYTES))))
    };
    let reader = Repeated::new(vec![vec![1; 100]], count, Pool::new(plan.buffers[0], 128));
    let parts = vec![
        Part::Reader(Box::new(reader)),
        Part::Stage(Box::new(Filter::new(Predicate::All(vec![])))),
        rewriter(2),
        rewriter(3),
        Part::Stage(Box::new(Dropper)),
    ];
    let (workers, control) = runner::build(&graph, parts).unwrap();
    // Each thread counts its own.
    let during = std::thread::scope(|scope| {
        let threads: Vec<_> = workers
            .into_iter()
            .map(|worker| {
                scope.spawn(move || {
                    let before = allocations();
                    worker.run();
                    allocations() - before
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(control.snapshot().nodes[4].consumed, 2 * count);
    during
}

#[test]
fn packets_allocate_nothing() {
    for kind in EdgeKind::ALL {
        let few = allocations_of(kind, 5_000);
        let many = allocations_of(kind, 100_000);
        // What there is comes at the beginning and at the end of a thread.
        assert!(many <= few + 4, "{kind:?}: {few} allocations for 5,000 packets, {many} for 100,000");
    }
}

/// A reader, so many rewriters one behind the other, and an end.
fn line_of(rewriters: usize, kind: EdgeKind) -> Graph {
    let node = |index: usize| Node {
        name: index.to_string(),
        kind: "stage",
        label: String::new(),
        accepts: if index == 0 { &[] } else { &[Carries::Frames] },
        ports: if index == rewriters + 1 { &[] } else { OUT },
        wait: Wait::Yielding,
        copies: index > 0 && index <= rewriters,
    };
    let edge = |from| Edge {
        from,
        port: 0,
        to: from + 1,
        kind,
        capacity: if kind == EdgeKind::Inline { 0 } else { 1024 },
        wait: Wait::Yielding,
        when_full: WhenFull::Wait,
    };
    let graph = Graph {
        nodes: (0..rewriters + 2).map(node).collect(),
        edges: (0..=rewriters).map(edge).collect(),
        batch: 64,
    };
    assert_eq!(graph.faults(), []);
    graph
}

#[test]
fn memory_grows_with_the_packets_in_flight_and_not_with_the_square_of_the_stages() {
    const PACKET_BYTES: usize = 2048;
    for (rewriters, kind, most) in [
        (150, EdgeKind::Inline, 2 << 20),
        (500, EdgeKind::Inline, 4 << 20),
        (50, EdgeKind::Spsc, 140 << 20),
        (50, EdgeKind::Disruptor, 140 << 20),
    ] {
        let graph = line_of(rewriters, kind);
        let plan = graph.plan();
        let before = allocated_bytes();
        let pool = |node: usize| Pool::new(plan.buffers[node], plan.room(node, PACKET_BYTES));
        let mut parts = vec![Part::Reader(Box::new(Repeated::new(vec![vec![1; 100]], 400, pool(0))))];
        for node in 1..=rewriters {
            let steps = Steps { push_vlan: (node == 1).then_some(5), ..Steps::default() };
            parts.push(Part::Stage(Box::new(Rewriter::new(steps, pool(node)))));
        }
        parts.push(Part::Stage(Box::new(Dropper)));
        let (workers, control) = runner::build(&graph, parts).unwrap();
        let taken = (allocated_bytes() - before) as usize;
        let planned = plan.bytes(PACKET_BYTES);
        assert!(taken <= most, "{rewriters} {kind:?}: {taken} bytes");
        // The memory reported is the memory taken, except for the fixed part of each stage and ring.
        let besides = rewriters * 12 * 1024;
        assert!(
            planned.abs_diff(taken) <= besides,
            "{rewriters} {kind:?}: {planned} bytes planned, {taken} taken"
        );
        std::thread::scope(|scope| {
            for worker in workers {
                scope.spawn(move || worker.run());
            }
        });
        let counts = control.snapshot();
        assert_eq!(counts.nodes[rewriters + 1].consumed, 400, "{rewriters} {kind:?}");
        assert_eq!(counts.imbalances(&graph), Vec::<String>::new());
    }
}
