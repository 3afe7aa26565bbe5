//! Counts the messages of one line: new, lost, repeated, and late.
//!
//! Cost: one compare for each in-order packet.

use tapeworks_session::Header;
use tapeworks_time::Nanos;

use super::counters::LineCounters;
use crate::ranges::Ranges;

/// The sequence of one line.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Debug, Default)]
pub(super) struct LineFollower {
    pub(super) next: Option<u64>,
    /// The first message from which the line is followed.
    pub(super) begin: u64,
    pub(super) gaps: Ranges,
    pub(super) last: Option<Nanos>,
    pub(super) is_silent: bool,
    pub(super) counters: LineCounters,
}

impl LineFollower {
    /// Recounts a packet as implausible after it turned out to be stray.
    #[cold]
    pub(super) fn drop_stray(&mut self, header: &Header) {
        self.counters.packets = self.counters.packets.saturating_sub(1);
        self.counters.messages = self.counters.messages.saturating_sub(header.count);
        self.counters.implausible += 1;
    }

    #[inline]
    pub(super) fn see(&mut self, header: &Header, received: Nanos) {
        self.counters.packets += 1;
        self.counters.messages += header.count;
        self.last = Some(received);
        self.is_silent = false;
        let end = header.end();
        match self.next {
            Some(next) if next == header.first => self.next = Some(end),
            Some(next) => self.out_of_order(next, header.first, end),
            None => (self.begin, self.next) = (header.first, Some(end)),
        }
    }

    #[cold]
    #[inline(never)]
    fn out_of_order(&mut self, next: u64, first: u64, end: u64) {
        if first > next {
            self.counters.lost = self.counters.lost.saturating_add(self.gaps.insert(next..first).0);
        } else {
            let known = end.min(next);
            let (found, _) = self.gaps.remove_within_limit(first..known);
            // Messages from before the first packet are new.
            let earlier = self.begin.clamp(first, known) - first;
            if known >= self.begin {
                self.begin = self.begin.min(first);
            }
            self.counters.lost = self.counters.lost.saturating_sub(found);
            self.counters.reordered += found + earlier;
            self.counters.repeated += (known - first).saturating_sub(found + earlier);
        }
        self.next = Some(next.max(end));
    }

    /// Uncounts the messages `first..end`, the last that the line brought, because they cannot be read.
    pub(super) fn cannot_read(&mut self, first: u64, end: u64) {
        let unread = end.saturating_sub(first);
        self.counters.malformed += 1;
        self.counters.messages = self.counters.messages.saturating_sub(unread);
        self.counters.won = self.counters.won.saturating_sub(unread);
        if self.next == Some(end) {
            self.next = Some(first);
            self.begin = self.begin.min(first);
        }
    }

    /// Starts a session, at `first` if its first number is known.
    pub(super) fn restart(&mut self, first: Option<u64>) {
        (self.begin, self.next) = (first.unwrap_or_default(), first);
        self.gaps.clear();
    }
}

#[cfg(test)]
mod tests {
    use tapeworks_session::SessionId;

    use super::*;

    #[test]
    fn messages_overtaken_before_a_line_was_followed_are_not_repeated() {
        let mut follower = LineFollower::default();
        let session = SessionId::MoldUdp64(*b"0123456789");
        let steps = [
            // First number, count; then lost, reordered, repeated so far.
            ((7, 2), (0, 0, 0)),
            ((5, 2), (0, 2, 0)),
            ((5, 2), (0, 2, 2)),
            ((11, 1), (2, 2, 2)),
            ((9, 2), (0, 4, 2)),
            // Half of it is from before the beginning.
            ((4, 2), (0, 5, 3)),
            ((1, 1), (0, 6, 3)),
            ((12, 3), (0, 6, 3)),
        ];
        for ((first, count), expected) in steps {
            let header = Header { session, first, count, is_end_of_session: false };
            follower.see(&header, Nanos(first));
            let LineCounters { lost, reordered, repeated, .. } = follower.counters;
            assert_eq!((lost, reordered, repeated), expected, "{first}");
        }
    }
}
