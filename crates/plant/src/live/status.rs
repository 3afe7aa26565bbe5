//! What a plant tells of itself, some times a second.

use std::net::SocketAddr;

use tapeworks_feed::arbitration::{ArbiterCounters, LineCounters};
use tapeworks_feed::live::SnapshotCounters;
use tapeworks_market::nbbo::NbboCounts;
use tapeworks_market::{Nanos, Publisher};

use super::checkpoint::CheckpointStatus;
use super::journal::JournalStatus;
use super::roll::RollStatus;

/// A line of a channel, or the answers of its retransmission server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LineStatus {
    /// Where it is listened to.
    pub address: SocketAddr,
    /// What it brought.
    pub counters: LineCounters,
    /// Whether it is silent.
    pub is_silent: bool,
    /// Datagrams that the kernel dropped because nobody took them in time.
    pub kernel_drops: u64,
    /// Datagrams longer than a buffer.
    pub too_long: u64,
    /// Bytes of the kernel's buffer, as it grants them.
    pub buffer_bytes: usize,
}

/// A channel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChannelStatus {
    /// Its name.
    pub name: String,
    /// Its feed.
    pub publisher: Publisher,
    /// The session that is followed, as text.
    pub session: String,
    /// The number of the next message.
    pub next: Option<u64>,
    /// What it went through.
    pub counters: ArbiterCounters,
    /// Its snapshots.
    pub snapshots: SnapshotCounters,
    /// Lines A and B and, where there is a server, the retransmissions.
    pub lines: Vec<LineStatus>,
    /// Something is missing, and is waited for or asked for.
    pub is_recovering: bool,
    /// It waits for a snapshot to begin from.
    pub is_joining: bool,
    /// Nothing was heard for too long.
    pub is_silent: bool,
    /// Books may be wrong.
    pub is_stale: bool,
}

/// Delays of the events of one second: from the kernel's receive time until they were published, in ns.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DelayPoint {
    /// The second's end, in ns since the epoch.
    pub time: Nanos,
    /// Messages.
    pub messages: u64,
    /// Half of them took no longer.
    pub p50: u64,
    /// 99 in 100 took no longer.
    pub p99: u64,
    /// 999 in 1,000 took no longer.
    pub p999: u64,
    /// The longest.
    pub max: u64,
}

/// What a plant is doing.
#[derive(Clone, Default, Debug)]
pub struct Status {
    /// When this was told.
    pub time: Nanos,
    /// When the plant started.
    pub started: Nanos,
    /// The channels.
    pub channels: Vec<ChannelStatus>,
    /// Messages published.
    pub messages: u64,
    /// Events published, which is the number of the next one.
    pub events: u64,
    /// Symbols known.
    pub symbols: usize,
    /// What did not fit: messages and packets that cannot be read.
    pub problems: u64,
    /// Events in the ring that the slowest reader has not taken.
    pub ring_fill: usize,
    /// Its slots.
    pub ring_capacity: usize,
    /// The highest fill seen.
    pub ring_highest: usize,
    /// Times that ingest had to wait for room in the ring or in the journal's queue.
    pub stalls: u64,
    /// Delays from the receive time to the publication, second by second, the newest last; ten minutes at most.
    pub delays: Vec<DelayPoint>,
    /// The delays of all since the start: p50, p90, p99, p99.9 and the longest, in ns.
    pub delay: [u64; 5],
    /// The journal, if there is one.
    pub journal: Option<JournalStatus>,
    /// What the NBBO went through.
    pub nbbo: NbboCounts,
    /// Changes that the books refused: orders that are not known, and such.
    pub rejected: u64,
    /// Items published to the shared memory.
    pub shared: u64,
    /// State snapshots.
    pub snapshots: CheckpointStatus,
    /// The daily roll.
    pub roll: RollStatus,
}
