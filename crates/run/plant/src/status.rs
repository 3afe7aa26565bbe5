//! A plant's status, updated several times a second.

use std::net::SocketAddr;
use std::time::Duration;

use jiff::civil::Date;
use tapeworks_feed::live::SnapshotCounters;
use tapeworks_follow::arbitration::{ArbiterCounters, LineCounters, RecoveryReport};
use tapeworks_market::Publisher;
use tapeworks_market::event::Line;
use tapeworks_market::nbbo::NbboCounts;
use tapeworks_market::shared::HEARTBEAT_NS;
use tapeworks_session::requests::RequesterCounters;
use tapeworks_time::Nanos;

use crate::pair::PairStatus;

/// How often the threads publish their part of the status, and the books update the heartbeat of the shared memory.
pub(crate) const REPORT_INTERVAL: Duration = Duration::from_nanos(HEARTBEAT_NS);

/// A line of a channel, or the answers of its retransmission server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LineStatus {
    /// Which line: A, B, or [`Line::Recovery`] for the answers.
    pub line: Line,
    /// The address that receives it; for answers over TCP, the server's address.
    pub address: SocketAddr,
    /// Its counters.
    pub counters: LineCounters,
    /// Whether it is silent.
    pub is_silent: bool,
    /// Datagrams that the kernel dropped because they were not read in time.
    pub kernel_drops: u64,
    /// Datagrams longer than a buffer.
    pub too_long: u64,
    /// The size of the kernel's buffer in bytes, including the kernel's overhead: twice the granted size.
    pub buffer_bytes: usize,
    /// Buffer size requested from the kernel, in bytes; 0 if none was requested.
    pub wanted_bytes: usize,
}

/// The connection to a request server.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RequesterStatus {
    /// Whether requests can be sent: connected, and logged in if the protocol has a login.
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
    /// The current session, as text.
    pub session: String,
    /// The number of the next message.
    pub next: Option<u64>,
    /// Its counters.
    pub counters: ArbiterCounters,
    /// The last recovery that took long.
    pub last_recovery: Option<RecoveryReport>,
    /// Its connection to a request server; `None` if requests are datagrams, or there is no server.
    pub requester: Option<RequesterStatus>,
    /// Its snapshots.
    pub snapshots: SnapshotCounters,
    /// Packets of its snapshots' multicast group that belong to none of its snapshots: other clients' packets, duplicates, or too
    /// long.
    pub snapshot_packets_ignored: u64,
    /// Lines A and B and, if there is a server, the retransmissions.
    pub lines: Vec<LineStatus>,
    /// Whether messages are missing that are awaited or requested.
    pub is_recovering: bool,
    /// Since when requested messages have been missing.
    pub recovering_since: Option<Nanos>,
    /// Whether it waits for its first snapshot.
    pub is_joining: bool,
    /// Whether no packet has arrived for too long.
    pub is_silent: bool,
    /// Whether its books may be wrong.
    pub is_stale: bool,
}

impl ChannelStatus {
    /// Creates the status of a channel before its first packet.
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

/// Delays of one second's events, from the kernel's receive time to publication, in ns.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DelayPoint {
    /// The end of the second, in ns since the epoch.
    pub time: Nanos,
    /// Messages.
    pub messages: u64,
    /// The median delay.
    pub p50: u64,
    /// The 99th percentile.
    pub p99: u64,
    /// The 99.9th percentile.
    pub p999: u64,
    /// The longest delay.
    pub max: u64,
}

/// Upper bounds of the delay buckets, in ns; an additional bucket counts longer delays.
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

/// Delays of all messages since the start, by bucket.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DelayBuckets {
    /// Messages in each bucket of [`DELAY_BOUNDS`], and last those beyond the highest bound; not cumulative.
    pub counts: [u64; DELAY_BOUNDS.len() + 1],
    /// The sum of all delays, in ns.
    pub sum: u64,
}

impl DelayBuckets {
    /// Counts `messages` with a delay of `delay` ns each.
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
    /// Frames that belong to no line.
    pub foreign: u64,
    /// Frames of a line with a wrong UDP checksum, although their flow's checksums are generally right. They are discarded, except
    /// the first few frames of a flow, which arrive before its checksums are known to be trustworthy.
    pub bad_checksums: u64,
    /// Frames longer than a buffer.
    pub too_long: u64,
    /// Frames that the kernel dropped because they were not read in time.
    pub kernel_drops: u64,
}

/// Checkpoints that the plant has taken and used.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct CheckpointStatus {
    /// The interval of checkpoints; `None` if none are taken regularly.
    pub every: Option<Duration>,
    /// The journal record from which the start replayed; `None` if it replayed from the first record.
    pub restored: Option<u64>,
    /// Checkpoints that the start could not use, each with the reason.
    pub refused: Vec<String>,
    /// Checkpoints begun since the start.
    pub taken: u64,
    /// Checkpoints written since the start.
    pub written: u64,
    /// Checkpoints that failed since the start: see `error`.
    pub failed: u64,
    /// Checkpoints not taken when they were due, because the journal's queue was full or its thread had ended.
    pub skipped: u64,
    /// When the last one was written; 0 before the first.
    pub time: Nanos,
    /// Size of the last one written, in bytes.
    pub bytes: u64,
    /// How long ingest paused for the last one, in ns.
    pub pause_ns: u64,
    /// How long the books' own thread paused for the last one, in ns; 0 if ingest has the books.
    pub books_pause_ns: u64,
    /// Why the last failed one could not be written.
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
    /// Records that were written but that the disk failed to sync: a machine crash may lose them.
    pub unconfirmed: u64,
    /// Excess segments that could not be removed.
    pub failed_removals: u64,
    /// Excess segments that were removed.
    pub removed_segments: u64,
    /// Records found damaged or missing at the start.
    pub damaged: u64,
    /// Bytes of a torn record that the start cut off and kept in a file.
    pub torn_bytes: u64,
    /// Whether the last write failed, or a file of the journal was removed or replaced.
    pub is_failing: bool,
    /// The last error.
    pub error: Option<String>,
}

/// The status of the source of another plant's events.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RelayStatus {
    /// Whether the first plant can be heard now.
    pub is_heard: bool,
    /// Whether the source has caught up with the present at least once since the start.
    pub has_caught_up: bool,
    /// Since when missing events have been fetched; `None` if none are.
    pub fetching_since: Option<Nanos>,
    /// The number of the first plant's next event, as far as known.
    pub first_next: u64,
    /// The number of the next event to take.
    pub next: u64,
    /// Messages taken from the first plant's streams.
    pub messages: u64,
    /// Events taken, including those of other shards.
    pub events: u64,
    /// How many of them were fetched from the past.
    pub fetched: u64,
    /// Duplicate events.
    pub repeated: u64,
    /// Live events without room while older ones were fetched; these are fetched too.
    pub set_aside: u64,
    /// How many times events were missing.
    pub gaps: u64,
    /// How many of these gaps were filled.
    pub filled: u64,
    /// Messages that could not be read.
    pub malformed: u64,
    /// How many times ingest had no room for a piece, so that the source waited.
    pub waits: u64,
    /// How many times the source connected to its driver.
    pub connects: u64,
    /// How many times the first plant fell silent.
    pub silences: u64,
    /// The current error, if there is one.
    pub error: Option<String>,
}

/// A day that the roll has finished.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RolledDay {
    /// The day, in New York.
    pub date: Date,
    /// The numbers of files and of records in them, or why there are none.
    pub outcome: Result<(u64, u64), String>,
    /// Receive time from which on the files have records; `None` means from the beginning of the day.
    pub from: Option<Nanos>,
}

/// The status of the roll.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RollStatus {
    /// Whether the roll is running.
    pub is_on: bool,
    /// The day in progress, and how many inputs of its journal have been read.
    pub running: Option<(Date, u64)>,
    /// The days finished since the start.
    pub done: Vec<RolledDay>,
}

/// What the engine has read and published.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct EngineStatus {
    /// Messages published.
    pub messages: u64,
    /// Events published, which is also the next event's number.
    pub events: u64,
    /// Symbols known.
    pub symbols: usize,
    /// Messages and packets that could not be read.
    pub problems: u64,
}

/// The ring of events.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RingStatus {
    /// Events that the slowest reader has not taken.
    pub fill: usize,
    /// Its capacity in events.
    pub capacity: usize,
    /// The highest fill seen.
    pub highest: usize,
    /// Times that ingest had to wait for room in the ring or in the journal's queue.
    pub stalls: u64,
}

/// Delays from receipt to publication.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct DelayStatus {
    /// Delays for each second, newest last; at most ten minutes.
    pub points: Vec<DelayPoint>,
    /// Delays of all messages since the start: p50, p90, p99, p99.9 and the longest, in ns.
    pub all: [u64; 5],
    /// The same delays by bucket.
    pub buckets: DelayBuckets,
}

/// The books of all feeds.
#[derive(Clone, Default, Debug)]
pub struct BooksStatus {
    /// The counters of the NBBO.
    pub nbbo: NbboCounts,
    /// Orders resting in the books.
    pub orders: usize,
    /// Bytes of the books' tables, which double when they are full and never shrink.
    pub bytes: usize,
    /// Changes that the books rejected, such as changes of unknown orders.
    pub rejected: u64,
    /// Books that the venue's messages contradict: they are stale until a snapshot or a new session.
    pub contradicted: usize,
    /// Quotes superseded by later ones of their side while the books lagged (topology "pipeline").
    pub conflated: u64,
}

/// The shared memory.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct SharedStatus {
    /// Items published.
    pub published: u64,
    /// How many times a removed file was created again.
    pub made_again: u64,
    /// What is wrong: new readers cannot find it, or it lacks room for some symbols.
    pub trouble: Option<String>,
}

/// The status of a plant.
#[derive(Clone, Default, Debug)]
pub struct Status {
    /// When this status was published.
    pub time: Nanos,
    /// When the plant started.
    pub started: Nanos,
    /// The channels.
    pub channels: Vec<ChannelStatus>,
    /// The channels right after the journal's replay: counts up to there are not news.
    pub at_start: Vec<ChannelStatus>,
    /// The interface, if frames are received instead of datagrams.
    pub interface: Option<InterfaceStatus>,
    /// What the engine has read and published.
    pub engine: EngineStatus,
    /// The ring.
    pub ring: RingStatus,
    /// Delays from receipt to publication.
    pub delays: DelayStatus,
    /// The journal, if there is one.
    pub journal: Option<JournalStatus>,
    /// Checkpoints.
    pub checkpoints: CheckpointStatus,
    /// The daily roll.
    pub roll: RollStatus,
    /// The pair, if the plant is one of two.
    pub pair: Option<PairStatus>,
    /// The source, if events come from another plant.
    pub relay: Option<RelayStatus>,
    /// The books.
    pub books: BooksStatus,
    /// The shared memory.
    pub shared: SharedStatus,
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
