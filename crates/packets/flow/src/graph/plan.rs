//! The most packets that a graph holds, and the memory it therefore needs.
//!
//! A packet is in a ring or queue, or in the batch that a thread passes through its stages. A stage that creates packets needs a
//! buffer for each of its packets there:
//!
//! - two batches for its thread: one in progress, and a spare so that a free buffer is found quickly;
//! - the room of each ring and queue after it (all `disruptor` edges of a port share one ring);
//! - a batch of each other thread after it.
//!
//! Readers create packets. A stage that [copies](super::Node::copies) copies only shared packets. Packets are shared only after a
//! port with several edges, up to the next stage that copies. Elsewhere such a stage needs no buffers (a pool has at least one),
//! so a chain of rewriters of any length needs only the memory of its reader.
//!
//! The number of buffers thus grows with the room of the rings, not with the number of stages. The exception is a sequence of
//! rings after ports with several edges: there it grows with the square, because each copy may pass through all later rings.
//!
//! Cost: linear in stages and edges for each stage with buffers. Computed once, before the run.

use std::collections::{HashMap, HashSet};

use tapeworks_capture::pool::{HEADROOM_BYTES, Packet, Pool};

use super::{Edge, EdgeKind, Graph};
use crate::packets::{Passing, Routed};

/// The size of a writer's latency table, in bytes.
const LATENCY_TABLE_BYTES: usize = 40 << 10;

/// The most packets that each stage of a graph holds, in the graph's order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// Packet buffers that each stage needs so that it never runs out. A user-defined stage that keeps packets beyond their batch
    /// holds buffers of the stages before it, which then need that many more.
    pub buffers: Vec<usize>,
    /// Packets that can be in each stage's inbox.
    pub inboxes: Vec<usize>,
    /// Approximate bytes of rings, queues, inboxes and tables.
    pub list_bytes: usize,
    copies: Vec<bool>,
}

impl Plan {
    /// Returns the total number of packet buffers.
    pub fn all_buffers(&self) -> usize {
        self.buffers.iter().fold(0, |sum, more| sum.saturating_add(*more))
    }

    /// Returns the longest packet in the buffers of stage `node`, if readers accept packets of `packet_bytes`. Pushed tags make a
    /// packet longer.
    pub fn room(&self, node: usize, packet_bytes: usize) -> usize {
        if self.copies[node] { packet_bytes + HEADROOM_BYTES } else { packet_bytes }
    }

    /// Returns the bytes of all packet buffers.
    pub fn buffer_bytes(&self, packet_bytes: usize) -> usize {
        let pools = self.buffers.iter().enumerate().filter(|(_, slots)| **slots > 0);
        pools.fold(0, |sum, (node, slots)| {
            sum.saturating_add(Pool::bytes(*slots, self.room(node, packet_bytes)))
        })
    }

    /// Returns the total bytes.
    pub fn bytes(&self, packet_bytes: usize) -> usize {
        self.buffer_bytes(packet_bytes).saturating_add(self.list_bytes)
    }
}

/// Returns whether `edge` is a ring or queue not counted yet. All Disruptor edges of a port share one ring.
fn is_new_ring(edge: &Edge, disruptors: &mut HashSet<(usize, usize)>) -> bool {
    match edge.kind {
        EdgeKind::Inline => false,
        EdgeKind::Disruptor => disruptors.insert((edge.from, edge.port)),
        EdgeKind::Spsc | EdgeKind::Queue => true,
    }
}

impl Graph {
    /// Computes the most packets held by a graph without [faults](Self::faults).
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
            // A thread polls its sources in turn, so only one of them has packets in progress.
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

    /// Returns the most packets each thread takes from a source at a time. A Disruptor delivers up to an eighth of its ring.
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
                // The slots, and the batch that waits to be added.
                let handles = edge.room().saturating_add(inboxes[edge.from]);
                bytes = bytes.saturating_add(handles.saturating_mul(size_of::<Packet>()));
            }
        }
        bytes
    }
}
