//! What a plant tells of itself, some times a second.

use std::net::SocketAddr;
use std::ops::Range;

use tapeworks_feed::arbitration::{ArbiterCounters, LineCounters, RecoveryReport};
use tapeworks_feed::live::SnapshotCounters;
use tapeworks_market::event::Line;
use tapeworks_market::nbbo::NbboCounts;
use tapeworks_market::{Nanos, Publisher};

use super::checkpoint::CheckpointStatus;
use super::journal::JournalStatus;
use super::roll::RollStatus;

/// A line of a channel, or the answers of its retransmission server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LineStatus {
    /// Which it is: A, B, or [`Line::Recovery`] for the answers.
    pub line: Line,
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
    /// Bytes of the kernel's buffer, as it says them: twice what it granted, as its own overhead counts.
    pub buffer_bytes: usize,
    /// Bytes of it that were asked for; 0 where none were.
    pub wanted_bytes: usize,
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
    /// The last long recovery.
    pub last_recovery: Option<RecoveryReport>,
    /// Its snapshots.
    pub snapshots: SnapshotCounters,
    /// Lines A and B and, where there is a server, the retransmissions.
    pub lines: Vec<LineStatus>,
    /// Something is missing, and is waited for or asked for.
    pub is_recovering: bool,
    /// Since when, of messages that are requested.
    pub recovering_since: Option<Nanos>,
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

/// What goes into QuestDB: see `tapeworks_plant::questdb`.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct QuestDbStatus {
    /// Whether the server took what it was sent last.
    pub is_connected: bool,
    /// Rows that the server has acknowledged, those sent again included.
    pub rows: u64,
    /// Of them, rows that came from the journal.
    pub rows_again: u64,
    /// Rows of the present that wait.
    pub waiting: u64,
    /// Their bytes.
    pub waiting_bytes: usize,
    /// Rows for which there was no room. Where there is a journal they are sent again from it.
    pub overflowed: u64,
    /// Rows that the server refused, or that no row can be made of.
    pub refused: u64,
    /// Rows that the plant will not send any more: without room where there is no journal, and unsent at the end.
    pub lost: u64,
    /// Requests that were acknowledged.
    pub requests: u64,
    /// Requests that failed, each tried again or refused.
    pub failures: u64,
    /// Times that the server took records again after it had not.
    pub reconnects: u64,
    /// What went wrong last.
    pub error: Option<String>,
    /// Events of which records are still to be sent from the journal, from the first to before the last.
    pub to_send_again: Option<Range<u64>>,
    /// The event at which the sending from the journal is, and where it ends.
    pub sending_again: Option<(u64, u64)>,
    /// Times that records were sent from the journal to the end.
    pub sent_again: u64,
    /// Events of which records were to be sent from the journal, and it could not be read.
    pub unreadable: u64,
    /// Events in the ring that are not taken yet.
    pub ring_lag: usize,
}

/// The interface whose frames are received.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct InterfaceStatus {
    /// Its name.
    pub device: String,
    /// Frames that are of no line.
    pub foreign: u64,
    /// Frames longer than a buffer.
    pub too_long: u64,
    /// Frames that the kernel dropped because nobody took them in time.
    pub kernel_drops: u64,
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
    /// The channels when the journal had been replayed: what their counters say is not news.
    pub at_start: Vec<ChannelStatus>,
    /// Messages published.
    pub messages: u64,
    /// Events published, which is the number of the next one.
    pub events: u64,
    /// Symbols known.
    pub symbols: usize,
    /// What did not fit: messages and packets that cannot be read.
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
    /// What the NBBO went through.
    pub nbbo: NbboCounts,
    /// Orders that rest in the books of all feeds.
    pub orders: usize,
    /// Bytes that the books' tables hold; they double when they are full, and give nothing back.
    pub book_bytes: usize,
    /// Changes that the books refused: orders that are not known, and such.
    pub rejected: u64,
    /// Books that the venues' messages contradict: they are stale until a snapshot or a new session.
    pub contradicted_books: usize,
    /// Quotes that gave way to later ones of their side while the books lagged (topology "pipeline").
    pub conflated: u64,
    /// Items published to the shared memory.
    pub shared: u64,
    /// Times that the file of the shared memory was made again because somebody had removed it.
    pub shared_made_again: u64,
    /// Why readers that come now do not find the shared memory.
    pub shared_trouble: Option<String>,
    /// State snapshots.
    pub snapshots: CheckpointStatus,
    /// The daily roll.
    pub roll: RollStatus,
    /// What goes into QuestDB, if something does.
    pub questdb: Option<QuestDbStatus>,
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
