//! Packet flows in three shapes over each kind of edge: the cost of each ring.
//!
//! # The work, so that it can be made anew elsewhere
//! Packets: 64 different Ethernet frames in turns, IPv4 and UDP, of 128 bytes (86 of payload, all equal to the frame's number),
//! to ports 5000 to 5063.
//!
//! | stage | work for a packet |
//! | --- | --- |
//! | reader | takes a free buffer of its own pool, copies the 128 bytes into it, finds the headers |
//! | filter | is the destination port (two bytes, big-endian) in 5000..=5063? It always is |
//! | rewriter | writes another destination address; updates the IPv4 and the UDP checksum of the two words that changed |
//! | end | lets go of the buffer and counts |
//!
//! | shape | stages | threads |
//! | --- | --- | --- |
//! | pipeline | reader, filter, rewriter, end | 4 |
//! | one to many | reader, three ends that each get every packet (the bytes are shared) | 4 |
//! | many to one | three readers of a third of the packets each, one end | 4 |
//!
//! Each ring and queue holds 1,024 packets. Rings are filled and emptied in batches of up to 64, the queue packet by packet
//! under its lock; threads yield while they wait at a ring and sleep at a queue. Many to one is one ring (queue) from each
//! reader; "one queue for all" is the usual form beside it: one queue of 1,024 that all readers push into, one packet at a
//! time. "inline" is the same graph on one thread: batches of 64 handed from stage to stage.
//!
//! # In Java
//! `bench/peers/java/src/main/java/Flow.java` has the same frames, work and shapes: by an `ArrayBlockingQueue` for each edge
//! (many to one: one that the readers share), a new packet allocated for each; and by the LMAX Disruptor in its best
//! form, one ring for the whole shape with its packets allocated ahead, consumers that yield, one event at a time. Its compiler is
//! warmed up by runs that do not count, for up to 3 s. It does not count per stage, route, or time packets.
//!
//! # What is measured
//! From the opening of a barrier that all threads wait at, to the end of the last thread. Threads and buffers are made before.
//! With 100 packets that is mostly the waking and ending of threads. Per packet means: per packet of a reader. The answer of
//! each variant, the packets that ended, is compared.

use std::net::SocketAddrV4;
use std::sync::{Arc, Barrier};

use tapeworks_capture::net::build::FrameBuilder;
use tapeworks_capture::net::rewrite::Rewrite;
use tapeworks_capture::pool::{Packet, Pool};
use tapeworks_flow::graph::{Carries, Edge, EdgeKind, Graph, Node, Port, WhenFull};
use tapeworks_flow::packets::filter::{Filter, Predicate, Side};
use tapeworks_flow::packets::reader::Repeated;
use tapeworks_flow::packets::rewriter::{Rewriter, Steps};
use tapeworks_flow::packets::writer::Dropper;
use tapeworks_flow::packets::{Outbox, Polled, Reader};
use tapeworks_flow::queue;
use tapeworks_flow::runner::{self, Part};
use tapeworks_ring::wait::Wait;

use crate::Options;
use crate::foreign::Java;
use crate::rounds::Rounds;

/// Bytes of a packet, and of the buffer for it.
const PACKET_BYTES: usize = 128;
const FRAMES: u16 = 64;
const FIRST_PORT: u16 = 5000;
/// Packets that a ring or queue holds.
const CAPACITY: usize = 1024;
/// Packets that are handed on at once.
const BATCH: usize = 64;
/// Producers of "many to one", consumers of "one to many".
const MANY: usize = 3;
const SIZES: [u64; 5] = [100, 1_000, 10_000, 100_000, 1_000_000];

const JAVA_QUEUE: &str = "Java, ArrayBlockingQueue";
const JAVA_DISRUPTOR: &str = "Java, LMAX Disruptor 4.0.0";

const OUT: &[Port] = &[Port { name: "out", carries: Carries::Frames, may_be_open: false }];
const PASS: &[Port] = &[
    Port { name: "pass", carries: Carries::Frames, may_be_open: false },
    Port { name: "reject", carries: Carries::Frames, may_be_open: true },
];

#[derive(Clone, Copy, PartialEq)]
enum Shape {
    Pipeline,
    OneToMany,
    ManyToOne,
}

impl Shape {
    /// As the Java program calls it.
    const fn name(self) -> &'static str {
        match self {
            Self::Pipeline => "pipeline",
            Self::OneToMany => "one-to-many",
            Self::ManyToOne => "many-to-one",
        }
    }
}

#[derive(Clone, Copy)]
enum What {
    Reader(u64),
    Filter,
    Rewriter,
    End,
}

pub fn run(options: &Options) {
    println!(
        "packets of {PACKET_BYTES} bytes; rings and queues of {CAPACITY}; batches of {BATCH}; rings yield, queues sleep\n"
    );
    let java = Java::build();
    if let Err(why) = &java {
        println!("SKIPPED, Java: {why}");
    }
    for (shape, title) in [
        (Shape::Pipeline, "pipeline: reader, filter, rewriter, end"),
        (Shape::OneToMany, "one to many: reader, 3 ends"),
        (Shape::ManyToOne, "many to one: 3 readers, end"),
    ] {
        for packets in SIZES {
            let mut rounds = Rounds::new(packets);
            // The first is what the others are compared with.
            let others = EdgeKind::ALL.into_iter().filter(|kind| *kind != EdgeKind::Queue);
            for kind in std::iter::once(EdgeKind::Queue).chain(others) {
                rounds.add_prepared(kind.name(), move || start(shape, kind, packets));
            }
            if shape == Shape::ManyToOne {
                rounds.add_prepared("one queue for all", move || start_one_queue(packets));
            }
            // Short runs are noisier, and cheap.
            let count = options.rounds * (100_000 / packets).clamp(1, 20) as usize;
            if let Ok(java) = &java {
                for (join, name) in [("queue", JAVA_QUEUE), ("disruptor", JAVA_DISRUPTOR)] {
                    // One more than rounds, to warm up.
                    let runs = (count + 1).to_string();
                    let words = [shape.name(), join, &packets.to_string(), &CAPACITY.to_string(), &runs]
                        .map(String::from);
                    // All its runs at the first call: a start of Java for each would be most of the time.
                    let mut runs = None;
                    rounds.add_reported(name, move || {
                        runs.get_or_insert_with(|| java.runs("Flow", &words).into_iter())
                            .next()
                            .unwrap_or(f64::NAN)
                    });
                }
            }
            let expected = if shape == Shape::OneToMany { packets * MANY as u64 } else { packets };
            for (name, ended) in rounds.run(title, count) {
                assert_eq!(ended, expected, "{name}: packets were lost");
            }
        }
    }
}

fn frames() -> Vec<Vec<u8>> {
    (0..FRAMES)
        .map(|number| {
            let from = SocketAddrV4::new([10, 0, 0, 1].into(), 4000);
            let to = SocketAddrV4::new([233, 0, 0, 1].into(), FIRST_PORT + number);
            let mut builder = FrameBuilder::to_group([2, 0, 0, 0, 0, 1], from, to);
            let mut frame = vec![0; PACKET_BYTES];
            let payload = vec![number as u8; PACKET_BYTES - builder.udp_headers_bytes()];
            let length = builder.udp(&payload, &mut frame).expect("the frame fits");
            assert_eq!(length, PACKET_BYTES);
            frame
        })
        .collect()
}

/// The packets of reader `index` of "many".
const fn share(packets: u64, index: usize) -> u64 {
    let many = MANY as u64;
    packets / many + if (index as u64) < packets % many { 1 } else { 0 }
}

fn graph(shape: Shape, kind: EdgeKind, packets: u64) -> (Graph, Vec<What>) {
    let (whats, joins): (Vec<What>, Vec<(usize, usize)>) = match shape {
        Shape::Pipeline => (
            vec![What::Reader(packets), What::Filter, What::Rewriter, What::End],
            vec![(0, 1), (1, 2), (2, 3)],
        ),
        Shape::OneToMany => (
            std::iter::once(What::Reader(packets)).chain([What::End; MANY]).collect(),
            (1..=MANY).map(|end| (0, end)).collect(),
        ),
        Shape::ManyToOne => (
            (0..MANY).map(|index| What::Reader(share(packets, index))).chain([What::End]).collect(),
            (0..MANY).map(|reader| (reader, MANY)).collect(),
        ),
    };
    let nodes = whats.iter().enumerate().map(|(index, what)| {
        let (accepts, ports): (&'static [Carries], &'static [Port]) = match what {
            What::Reader(_) => (&[], OUT),
            What::Filter => (&[Carries::Frames], PASS),
            What::Rewriter => (&[Carries::Frames], OUT),
            What::End => (&[Carries::Frames], &[]),
        };
        let wait = Wait::Yielding;
        Node {
            name: index.to_string(),
            kind: "stage",
            label: String::new(),
            accepts,
            ports,
            wait,
            copies: matches!(what, What::Rewriter),
        }
    });
    let edges = joins.into_iter().map(|(from, to)| Edge {
        from,
        port: 0,
        to,
        kind,
        capacity: if kind == EdgeKind::Inline { 0 } else { CAPACITY },
        wait: Wait::Yielding,
        when_full: WhenFull::Wait,
    });
    (Graph { nodes: nodes.collect(), edges: edges.collect(), batch: BATCH }, whats)
}

/// Threads that wait at a barrier; the returned closure opens it and waits for their end.
fn start(shape: Shape, kind: EdgeKind, packets: u64) -> impl FnOnce() -> u64 {
    let (graph, whats) = graph(shape, kind, packets);
    assert!(graph.faults().is_empty());
    let plan = graph.plan();
    let parts = whats.iter().enumerate().map(|(index, what)| {
        let pool = || Pool::new(plan.buffers[index], PACKET_BYTES);
        match what {
            What::Reader(count) => Part::Reader(Box::new(Repeated::new(frames(), *count, pool()))),
            What::Filter => {
                let ports = FIRST_PORT..=FIRST_PORT + FRAMES - 1;
                Part::Stage(Box::new(Filter::new(Predicate::Port(Side::Destination, vec![ports]))))
            }
            What::Rewriter => {
                let set = Rewrite { destination_v4: Some([239, 1, 1, 1].into()), ..Rewrite::default() };
                Part::Stage(Box::new(Rewriter::new(Steps { set, ..Steps::default() }, pool())))
            }
            What::End => Part::Stage(Box::new(Dropper)),
        }
    });
    let (workers, control) = runner::build(&graph, parts.collect()).expect("the graph is sound");
    let barrier = Arc::new(Barrier::new(workers.len() + 1));
    let threads: Vec<_> = workers
        .into_iter()
        .map(|worker| {
            let barrier = Arc::clone(&barrier);
            std::thread::spawn(move || {
                barrier.wait();
                worker.run();
            })
        })
        .collect();
    move || {
        barrier.wait();
        threads.into_iter().for_each(|thread| thread.join().expect("no stage panics"));
        control.snapshot().nodes.iter().map(|counts| counts.consumed).sum()
    }
}

/// Many to one by one queue that all producers share.
fn start_one_queue(packets: u64) -> impl FnOnce() -> u64 {
    let queue = queue::bounded::<Packet>(CAPACITY);
    let barrier = Arc::new(Barrier::new(MANY + 2));
    let producers: Vec<_> = (0..MANY)
        .map(|index| {
            let (queue, barrier) = (queue.clone(), Arc::clone(&barrier));
            let mut reader =
                Repeated::new(frames(), share(packets, index), Pool::new(CAPACITY + 4 * BATCH, PACKET_BYTES));
            std::thread::spawn(move || {
                let mut outbox = Outbox::with_capacity(BATCH);
                barrier.wait();
                while reader.poll(BATCH, 0, &mut outbox).expect("memory can be read") != Polled::Ended {
                    for routed in outbox.drain() {
                        queue.push(routed.packet).expect("the consumer stays");
                    }
                }
                for routed in outbox.drain() {
                    queue.push(routed.packet).expect("the consumer stays");
                }
            })
        })
        .collect();
    let consumer = {
        let (queue, barrier) = (queue.clone(), Arc::clone(&barrier));
        std::thread::spawn(move || {
            barrier.wait();
            std::iter::from_fn(|| queue.pop()).map(drop).count() as u64
        })
    };
    move || {
        barrier.wait();
        producers.into_iter().for_each(|thread| thread.join().expect("no producer panics"));
        queue.close();
        consumer.join().expect("the consumer does not panic")
    }
}
