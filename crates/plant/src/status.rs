//! A plant's status, published some times a second.

use std::net::SocketAddr;
use std::time::Duration;

use jiff::civil::Date;
use tapeworks_feed::arbitration::{ArbiterCounters, LineCounters, RecoveryReport};
use tapeworks_feed::live::SnapshotCounters;
use tapeworks_market::Publisher;
use tapeworks_market::event::Line;
use tapeworks_market::nbbo::NbboCounts;
use tapeworks_market::shared::HEARTBEAT_NS;
use tapeworks_session::requests::RequesterCounters;
use tapeworks_time::Nanos;

use crate::pair::PairStatus;

/// How often the threads publish their part of the status, and the books the heartbeat of the shared memory.
pub(crate) const REPORT_INTERVAL: Duration = Duration::from_nanos(HEARTBEAT_NS);

/// A line of a channel, or the answers of its retransmission server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LineStatus {
    /// Which it is: A, B, or [`Line::Recovery`] for the answers.
    pub line: Line,
    /// Where it is listened to; of answers over TCP, the server.
    pub address: SocketAddr,
    /// Its counters.
    pub counters: LineCounters,
    /// Whether it is silent.
    pub is_silent: bool,
    /// Datagrams that the kernel dropped because they were not taken in time.
    pub kernel_drops: u64,
    /// Datagrams longer than a buffer.
    pub too_long: u64,
    /// The size of the kernel's buffer in bytes, with the kernel's overhead: twice the granted size.
    pub buffer_bytes: usize,
    /// Bytes of it that were requested; 0 where none were.
    pub wanted_bytes: usize,
}

/// The connection to a request server.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RequesterStatus {
    /// Whether requests go out: the connection is made, and the login accepted where there is one.
    pub is_ready: bool,
    /// Its counters since the plant's start.
    pub counters: RequesterCounters,
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
    /// Its counters.
    pub counters: ArbiterCounters,
    /// The last long recovery.
    pub last_recovery: Option<RecoveryReport>,
    /// Its connection to a request server; `None` where requests are datagrams, or there is no server.
    pub requester: Option<RequesterStatus>,
    /// Its snapshots.
    pub snapshots: SnapshotCounters,
    /// Packets of the group of its snapshots that belonged to none of its own: of other clients, more than once, or too long.
    pub snapshot_packets_ignored: u64,
    /// Lines A and B and, where there is a server, the retransmissions.
    pub lines: Vec<LineStatus>,
    /// Something is missing, and is awaited or requested.
    pub is_recovering: bool,
    /// Since when, of messages that are requested.
    pub recovering_since: Option<Nanos>,
    /// It waits for a first snapshot.
    pub is_joining: bool,
    /// No packet came for too long.
    pub is_silent: bool,
    /// Books may be wrong.
    pub is_stale: bool,
}

impl ChannelStatus {
    /// A channel before its first packet.
    pub fn new(name: &str, publisher: Publisher) -> Self {
        Self {
            name: name.to_owned(),
            publisher,
            session: String::new(),
            next: None,
            counters: ArbiterCounters::default(),
            last_recovery: None,
            requester: None,
            snapshots: SnapshotCounters::default(),
            snapshot_packets_ignored: 0,
            lines: Vec::new(),
            is_recovering: false,
            recovering_since: None,
            is_joining: false,
            is_silent: false,
            is_stale: false,
        }
    }
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

/// Upper ends of the buckets in which delays are counted, in ns; one more bucket has what is longer.
pub const DELAY_BOUNDS: [u64; 18] = [
    1_000,
    2_000,
    5_000,
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
    1_000_000_000,
    10_000_000_000,
];

/// Delays of all messages since the start, counted in buckets.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DelayBuckets {
    /// Messages in each bucket of [`DELAY_BOUNDS`], and those beyond the last; not accumulated.
    pub counts: [u64; DELAY_BOUNDS.len() + 1],
    /// The sum of all delays, in ns.
    pub sum: u64,
}

impl DelayBuckets {
    /// Counts `messages` that took `delay` ns each.
    pub fn add(&mut self, delay: u64, messages: u64) {
        let bucket = DELAY_BOUNDS.partition_point(|bound| *bound < delay);
        if let Some(count) = self.counts.get_mut(bucket) {
            *count += messages;
        }
        self.sum = self.sum.saturating_add(delay.saturating_mul(messages));
    }
}

/// The interface whose frames are received.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct InterfaceStatus {
    /// Its name.
    pub device: String,
    /// Frames that are of no line.
    pub foreign: u64,
    /// Frames of a line whose UDP checksum does not fit, although their flow's generally fit. They are discarded, except the first few of a
    /// flow, which come before it can be trusted.
    pub bad_checksums: u64,
    /// Frames longer than a buffer.
    pub too_long: u64,
    /// Frames that the kernel dropped because they were not taken in time.
    pub kernel_drops: u64,
}

/// Checkpoints, as far as a plant has taken and used them.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct CheckpointStatus {
    /// How often one is due; `None` where none are taken.
    pub every: Option<Duration>,
    /// The record of the journal from which on it was replayed at the start; `None` from its first.
    pub restored: Option<u64>,
    /// Checkpoints that were not used at the start, and why.
    pub refused: Vec<String>,
    /// Begun since the start.
    pub taken: u64,
    /// Written since the start.
    pub written: u64,
    /// Not written since the start, because something failed: see `error`.
    pub failed: u64,
    /// Not begun when they were due, because the journal's queue was full.
    pub skipped: u64,
    /// When the last was written; 0 before the first.
    pub time: Nanos,
    /// The bytes of the last that was written.
    pub bytes: u64,
    /// How long ingest paused for the last, in ns.
    pub pause_ns: u64,
    /// How long the books' own thread paused for the last, in ns; 0 where ingest has the books.
    pub books_pause_ns: u64,
    /// Why the last that could not be written was not.
    pub error: Option<String>,
}

/// The status of the journal.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct JournalStatus {
    /// The number of the next record.
    pub next: u64,
    /// Bytes written since the start.
    pub written_bytes: u64,
    /// Inputs that could not be written.
    pub lost: u64,
    /// Records that were written and that the disk failed to sync: after a machine crash they may be missing.
    pub unconfirmed: u64,
    /// Segments that are too many and could not be removed.
    pub failed_removals: u64,
    /// Segments removed because there were too many.
    pub removed_segments: u64,
    /// Records that were found damaged or missing at the start.
    pub damaged: u64,
    /// Bytes of a torn record that were cut off at the start, and kept in a file.
    pub torn_bytes: u64,
    /// The last write failed, or a file of the journal was removed or replaced.
    pub is_failing: bool,
    /// The last error.
    pub error: Option<String>,
}

/// The status of the source of another plant's events.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RelayStatus {
    /// Whether it hears the first plant now.
    pub is_heard: bool,
    /// Whether all events up to the present have come once since the start.
    pub has_caught_up: bool,
    /// Since when events are missing that are fetched again, if some are.
    pub fetching_since: Option<Nanos>,
    /// The number of the first plant's next event, as far as it is known.
    pub first_next: u64,
    /// The number of the next event that is taken.
    pub next: u64,
    /// Messages taken from its streams.
    pub messages: u64,
    /// Events taken, with those of other shards.
    pub events: u64,
    /// Of them, those that were fetched from the past.
    pub fetched: u64,
    /// Events that had come already.
    pub repeated: u64,
    /// Live events that had no room while older ones were fetched: they are fetched too.
    pub set_aside: u64,
    /// Times that events were missing.
    pub gaps: u64,
    /// Of them, those that were filled.
    pub filled: u64,
    /// Messages that cannot be read.
    pub malformed: u64,
    /// Times that ingest had no room for a piece, and the source waited.
    pub waits: u64,
    /// Times that the source found its driver.
    pub connects: u64,
    /// Times that the first plant fell silent.
    pub silences: u64,
    /// What is wrong now, if something is.
    pub error: Option<String>,
}

/// A day that the roll is done with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RolledDay {
    /// The day, in New York.
    pub date: Date,
    /// Files and the records in them, or why there are none.
    pub outcome: Result<(u64, u64), String>,
    /// The files have records from this time on; `None` from the day's beginning.
    pub from: Option<Nanos>,
}

/// The status of the roll.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RollStatus {
    /// Whether there is one.
    pub is_on: bool,
    /// The day in progress, and the inputs of its journal read so far.
    pub running: Option<(Date, u64)>,
    /// The days that were done since the start.
    pub done: Vec<RolledDay>,
}

/// The status of a plant.
#[derive(Clone, Default, Debug)]
pub struct Status {
    /// When this was published.
    pub time: Nanos,
    /// When the plant started.
    pub started: Nanos,
    /// The channels.
    pub channels: Vec<ChannelStatus>,
    /// The channels after the replay of the journal: their counters up to there are not news.
    pub at_start: Vec<ChannelStatus>,
    /// Messages published.
    pub messages: u64,
    /// Events published, which is the number of the next one.
    pub events: u64,
    /// Symbols known.
    pub symbols: usize,
    /// Messages and packets that cannot be read.
    pub problems: u64,
    /// The interface, where frames are received instead of datagrams.
    pub interface: Option<InterfaceStatus>,
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
    /// The same, counted in buckets.
    pub delay_buckets: DelayBuckets,
    /// The journal, if there is one.
    pub journal: Option<JournalStatus>,
    /// The pair, if the plant is one of two.
    pub pair: Option<PairStatus>,
    /// The source, if events come from another plant.
    pub relay: Option<RelayStatus>,
    /// The counters of the NBBO.
    pub nbbo: NbboCounts,
    /// Orders that rest in the books of all feeds.
    pub orders: usize,
    /// Bytes of the books' tables; these double when they are full, and never shrink.
    pub book_bytes: usize,
    /// Changes that the books refused, such as those of unknown orders.
    pub rejected: u64,
    /// Books that the venues' messages contradict: they are stale until a snapshot or a new session.
    pub contradicted_books: usize,
    /// Quotes that gave way to later ones of their side while the books lagged (topology "pipeline").
    pub conflated: u64,
    /// Items published to the shared memory.
    pub shared: u64,
    /// Times that the file of the shared memory was made again after it was removed.
    pub shared_made_again: u64,
    /// Why readers that come now do not find the shared memory.
    pub shared_trouble: Option<String>,
    /// Checkpoints.
    pub checkpoints: CheckpointStatus,
    /// The daily roll.
    pub roll: RollStatus,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_is_counted_in_the_first_bucket_that_has_room_for_it() {
        let mut buckets = DelayBuckets::default();
        buckets.add(1_000, 2);
        buckets.add(1_001, 3);
        buckets.add(u64::MAX / 2, 1);
        assert_eq!((buckets.counts[0], buckets.counts[1]), (2, 3));
        assert_eq!(buckets.counts[DELAY_BOUNDS.len()], 1);
        assert_eq!(buckets.counts.iter().sum::<u64>(), 6);
        assert_eq!(buckets.sum, 2_000 + 3_003 + u64::MAX / 2);
    }
}
