//! The standby's buffer of its own lines: the packets that the primary may not have taken yet.
//!
//! Packets are stored one after another in reused pieces of a megabyte. Pieces that the primary has taken are released whole. Cost
//! per packet: one copy.

use std::collections::VecDeque;
use std::time::Duration;

use tapeworks_market::Line;
use tapeworks_time::Nanos;

/// Size of a piece in bytes.
const PIECE_BYTES: usize = 1 << 20;

/// A packet this much older than the primary's last record is assumed to be in the primary's journal: the two clocks differ, and a
/// lagging primary reads its lines in turns.
const SLACK: Nanos = Nanos(2 * Nanos::SECOND);

#[derive(Debug)]
struct Held {
    received: Nanos,
    channel: u16,
    line: Line,
    start: u32,
    end: u32,
}

/// Overhead per packet in bytes.
const HELD_BYTES: usize = size_of::<Held>();

#[derive(Debug, Default)]
struct Bundle {
    bytes: Vec<u8>,
    packets: Vec<Held>,
    last: Nanos,
}

/// The buffered packets and their counts.
#[derive(Debug)]
pub(crate) struct Hold {
    bundles: VecDeque<Bundle>,
    spare: Vec<Bundle>,
    most_bytes: usize,
    longest: Duration,
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    /// Packets dropped although the primary may not have them.
    pub(crate) drops: u64,
}

impl Hold {
    pub(crate) fn new(most_bytes: usize, longest: Duration) -> Self {
        let (bundles, spare) = (VecDeque::new(), Vec::new());
        Self { bundles, spare, most_bytes, longest, packets: 0, bytes: 0, drops: 0 }
    }

    /// Buffers a packet, and drops the oldest pieces if the buffer is too large or they are too old.
    pub(crate) fn put(&mut self, channel: u16, line: Line, received: Nanos, payload: &[u8]) {
        let is_full = self.bundles.back().is_none_or(|last| {
            last.bytes.len() + payload.len() + HELD_BYTES * (last.packets.len() + 1) > PIECE_BYTES
        });
        if is_full {
            let mut next = self.spare.pop().unwrap_or_default();
            next.bytes.reserve(PIECE_BYTES);
            self.bundles.push_back(next);
        }
        if let Some(last) = self.bundles.back_mut() {
            let start = last.bytes.len() as u32;
            last.bytes.extend_from_slice(payload);
            let end = last.bytes.len() as u32;
            last.packets.push(Held { received, channel, line, start, end });
            last.last = last.last.max(received);
        }
        self.packets += 1;
        self.bytes += payload.len() as u64;
        let oldest = received.0.saturating_sub(u64::try_from(self.longest.as_nanos()).unwrap_or(u64::MAX));
        while self.bytes + HELD_BYTES as u64 * self.packets > self.most_bytes as u64 && self.bundles.len() > 1
            || self.bundles.front().is_some_and(|first| first.last.0 < oldest)
        {
            self.drops += self.drop_first();
        }
    }

    /// Drops the first piece. Returns how many packets it held.
    fn drop_first(&mut self) -> u64 {
        let Some(mut first) = self.bundles.pop_front() else { return 0 };
        let packets = first.packets.len() as u64;
        self.packets -= packets;
        self.bytes -= first.bytes.len() as u64;
        first.bytes.clear();
        first.packets.clear();
        first.last = Nanos(0);
        if self.spare.len() < 4 {
            self.spare.push(first);
        }
        packets
    }

    /// Releases packets received well before `time`, the time of the primary's last record.
    pub(crate) fn is_taken_to(&mut self, time: Nanos) {
        let before = time.0.saturating_sub(SLACK.0);
        while self.bundles.front().is_some_and(|first| first.last.0 < before) {
            self.drop_first();
        }
    }

    /// Passes the packets that the primary may not have taken to `each`, in order, and empties the buffer. Returns how many were
    /// passed.
    pub(crate) fn drain<E>(
        &mut self,
        time: Nanos,
        mut each: impl FnMut(u16, Line, Nanos, &[u8]) -> Result<(), E>,
    ) -> Result<u64, E> {
        let (before, mut fed) = (time.0.saturating_sub(SLACK.0), 0);
        while let Some(first) = self.bundles.front() {
            for held in first.packets.iter().filter(|held| held.received.0 >= before) {
                let payload = first.bytes.get(held.start as usize..held.end as usize).unwrap_or_default();
                each(held.channel, held.line, held.received, payload)?;
                fed += 1;
            }
            self.drop_first();
        }
        Ok(fed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = Nanos::SECOND;

    fn drained(hold: &mut Hold, time: u64) -> Vec<(u16, u64, usize)> {
        let mut all = Vec::new();
        let each = |channel, _, received: Nanos, payload: &[u8]| {
            all.push((channel, received.0 / SECOND, payload.len()));
            Ok::<_, ()>(())
        };
        hold.drain(Nanos(time * SECOND), each).unwrap();
        all
    }

    #[test]
    fn a_takeover_feeds_what_came_since_shortly_before_the_last_record() {
        let mut hold = Hold::new(64 << 20, Duration::from_secs(60));
        for second in 0..10 {
            hold.put(second as u16, Line::A, Nanos(second * SECOND), &[7; 100]);
        }
        assert_eq!((hold.packets, hold.bytes), (10, 1_000));
        assert_eq!(drained(&mut hold, 8), (6..10).map(|at| (at as u16, at, 100)).collect::<Vec<_>>());
        assert_eq!((hold.packets, hold.bytes, hold.drops), (0, 0, 0));
    }

    #[test]
    fn packets_without_bytes_take_room_too() {
        let mut hold = Hold::new(2 << 20, Duration::from_secs(60));
        for _ in 0..1_000_000 {
            hold.put(1, Line::A, Nanos(SECOND), &[]);
        }
        assert_eq!(hold.packets + hold.drops, 1_000_000);
        let room = hold.bundles.iter().map(|piece| piece.packets.capacity() * HELD_BYTES).sum::<usize>();
        assert!(room <= 6 << 20, "{room} bytes for {} packets", hold.packets);
    }

    #[test]
    fn a_buffer_counts_what_it_lets_go_before_the_primary_has_it_and_nothing_else() {
        let mut hold = Hold::new(3 << 20, Duration::from_secs(60));
        let fill = |hold: &mut Hold, seconds: std::ops::Range<u64>| {
            for second in seconds {
                (0..700).for_each(|_| hold.put(1, Line::B, Nanos(second * SECOND), &[7; 1_500]));
            }
        };
        fill(&mut hold, 0..2);
        hold.is_taken_to(Nanos(100 * SECOND));
        assert_eq!((hold.packets, hold.drops), (0, 0));
        fill(&mut hold, 100..110);
        assert!(hold.bytes <= 4 << 20 && hold.drops > 3_000, "{} bytes, {} drops", hold.bytes, hold.drops);
        assert_eq!(hold.packets + hold.drops, 7_000);
        // Too old, although there is room.
        let drops = hold.drops;
        let left = hold.packets;
        hold.put(1, Line::A, Nanos(500 * SECOND), &[1]);
        assert!(hold.drops > drops && hold.packets < left);
    }
}
