//! The most packets that a graph holds, and so its memory.
//!
//! A packet is in a ring or queue, or in the batch that a thread passes through its stages. A stage that makes packets has a buffer for each of its packets that can be in those places:
//!
//! - two batches of its own thread: one in hand, one so that a free buffer is found soon;
//! - the room of each ring and queue behind it (all `disruptor` edges of a port are one ring);
//! - a batch of each other thread behind it.
//!
//! Readers make packets. A stage that [copies](super::Node::copies) copies only shared packets, and packets are shared only
//! behind a port with several edges, up to the next stage that copies. Elsewhere it needs no buffer (a pool has one at least): a
//! line of rewriters of any length takes the memory of its reader.
//!
//! So the number of buffers grows with the room of the rings, not with the number of stages. In one case it still grows with
//! the square: rings behind ports with several edges, one after the other, since each copy may pass through all later ones.
//!
//! Cost: linear in stages and edges for each stage with buffers. Once, before the run.

use std::collections::{HashMap, HashSet};

use tapeworks_capture::pool::{HEADROOM_BYTES, Packet, Pool};

use super::{Edge, EdgeKind, Graph};
use crate::packets::{Passing, Routed};

/// The table of a writer's latencies, in bytes.
const LATENCY_TABLE_BYTES: usize = 40 << 10;

/// The most packets that the stages of a graph hold. By stage, in the graph's order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// Packet buffers that the stage needs so that it never finds all in use. A stage of a user's own that keeps packets
    /// beyond their batch takes them from the stages before it: those need so many more.
    pub buffers: Vec<usize>,
    /// Packets that can be in its inbox at once.
    pub inboxes: Vec<usize>,
    /// Bytes of rings, queues, inboxes and tables, about.
    pub list_bytes: usize,
    copies: Vec<bool>,
}

impl Plan {
    /// All packet buffers.
    pub fn all_buffers(&self) -> usize {
        self.buffers.iter().fold(0, |sum, more| sum.saturating_add(*more))
    }

    /// The longest packet in the buffers of stage `node` when readers take packets of `packet_bytes`: pushed tags make a packet
    /// longer.
    pub fn room(&self, node: usize, packet_bytes: usize) -> usize {
        if self.copies[node] { packet_bytes + HEADROOM_BYTES } else { packet_bytes }
    }

    /// Bytes of all packet buffers.
    pub fn buffer_bytes(&self, packet_bytes: usize) -> usize {
        let pools = self.buffers.iter().enumerate().filter(|(_, slots)| **slots > 0);
        pools.fold(0, |sum, (node, slots)| {
            sum.saturating_add(Pool::bytes(*slots, self.room(node, packet_bytes)))
        })
    }

    /// Bytes of everything.
    pub fn bytes(&self, packet_bytes: usize) -> usize {
        self.buffer_bytes(packet_bytes).saturating_add(self.list_bytes)
    }
}

/// Whether `edge` is a ring or queue that was not met before: all Disruptor edges of a port are one.
fn is_new_ring(edge: &Edge, disruptors: &mut HashSet<(usize, usize)>) -> bool {
    match edge.kind {
        EdgeKind::Inline => false,
        EdgeKind::Disruptor => disruptors.insert((edge.from, edge.port)),
        EdgeKind::Spsc | EdgeKind::Queue => true,
    }
}

impl Graph {
    /// The most packets that a graph without [faults](Self::faults) holds.
    pub fn plan(&self) -> Plan {
        let threads = self.threads();
        let bursts = self.bursts(&threads);
        let (into, out_of) = self.adjacent();
        let mut consumers: HashMap<(usize, usize), usize> = HashMap::new();
        for edge in &self.edges {
            *consumers.entry((edge.from, edge.port)).or_default() += 1;
        }
        let mut inboxes = vec![0usize; self.nodes.len()];
        let mut ways = vec![0usize; self.nodes.len()];
        let mut is_shared = vec![false; self.nodes.len()];
        for node in self.order() {
            let mut before = HashSet::new();
            let mut is_entry = self.nodes[node].is_reader();
            for edge in into[node].iter().map(|index| &self.edges[*index]) {
                if edge.kind != EdgeKind::Inline {
                    is_entry = true;
                } else if before.insert(edge.from) {
                    ways[node] = ways[node].saturating_add(ways[edge.from]);
                }
                let is_held = is_shared[edge.from] && !self.nodes[edge.from].copies;
                is_shared[node] |= is_held || consumers[&(edge.from, edge.port)] > 1;
            }
            // Sources of a thread are polled one after the other, so of several only one has packets under way.
            ways[node] = ways[node].saturating_add(usize::from(is_entry)).max(1);
            inboxes[node] = bursts[threads[node]].saturating_mul(ways[node]);
        }
        let buffers = (0..self.nodes.len())
            .map(|node| {
                let has_buffers =
                    self.nodes[node].is_reader() || (self.nodes[node].copies && is_shared[node]);
                if has_buffers {
                    self.buffers_of(node, &threads, &bursts, &out_of, inboxes[node])
                } else {
                    usize::from(self.nodes[node].copies)
                }
            })
            .collect();
        let copies = self.nodes.iter().map(|node| node.copies).collect();
        Plan { buffers, list_bytes: self.list_bytes(&inboxes), inboxes, copies }
    }

    /// The most packets that each thread takes out of a source at once: a Disruptor hands out up to an eighth of its ring.
    fn bursts(&self, threads: &[usize]) -> Vec<usize> {
        let mut bursts = vec![self.batch.max(1); threads.iter().max().map_or(0, |last| last + 1)];
        for edge in self.edges.iter().filter(|edge| edge.kind == EdgeKind::Disruptor) {
            let burst = &mut bursts[threads[edge.to]];
            *burst = (*burst).max(edge.room() / 8);
        }
        bursts
    }

    fn buffers_of(
        &self,
        node: usize,
        threads: &[usize],
        bursts: &[usize],
        out_of: &[Vec<usize>],
        inbox: usize,
    ) -> usize {
        let mut buffers = inbox.saturating_mul(2);
        let mut is_behind = vec![false; self.nodes.len()];
        is_behind[node] = true;
        let mut has_thread = vec![false; bursts.len()];
        has_thread[threads[node]] = true;
        let mut disruptors = HashSet::new();
        let mut todo = vec![node];
        while let Some(at) = todo.pop() {
            if !std::mem::replace(&mut has_thread[threads[at]], true) {
                buffers = buffers.saturating_add(bursts[threads[at]]);
            }
            for edge in out_of[at].iter().map(|index| &self.edges[*index]) {
                if is_new_ring(edge, &mut disruptors) {
                    buffers = buffers.saturating_add(edge.room());
                }
                if !std::mem::replace(&mut is_behind[edge.to], true) {
                    todo.push(edge.to);
                }
            }
        }
        buffers
    }

    fn list_bytes(&self, inboxes: &[usize]) -> usize {
        let mut bytes = 0usize;
        for (node, inbox) in self.nodes.iter().zip(inboxes) {
            bytes = bytes.saturating_add(inbox.saturating_mul(size_of::<Passing>() + size_of::<Routed>()));
            bytes = bytes.saturating_add(if node.is_writer() { LATENCY_TABLE_BYTES } else { 0 });
        }
        let mut disruptors = HashSet::new();
        for edge in &self.edges {
            if is_new_ring(edge, &mut disruptors) {
                // The slots, and the batch that waits to go in.
                let handles = edge.room().saturating_add(inboxes[edge.from]);
                bytes = bytes.saturating_add(handles.saturating_mul(size_of::<Packet>()));
            }
        }
        bytes
    }
}
