//! Open sequence gaps: waiting, requested, then filled or given up.

use std::ops::Range;

use tapeworks_planted::planted;
use tapeworks_time::Nanos;

use super::counters::{ArbiterCounters, RecoveryReport};
use super::{Arbiter, Delivery, place};
use crate::recovery::{GapReason, OpenGap};

/// Reports a sequence gap that was requested and is now filled or given up.
fn report(last: &mut Option<RecoveryReport>, counters: &mut ArbiterCounters, gap: &OpenGap, now: Nanos) {
    let Some(requested) = gap.requested() else { return };
    let report = RecoveryReport {
        first: requested.span.start,
        end: requested.span.end,
        began: requested.began,
        ended: now,
        recovered: requested.recovered,
        requests: requested.requests,
        is_complete: gap.missing().is_empty(),
    };
    if report.is_long() {
        counters.long_recoveries += 1;
        *last = Some(report);
    }
}

/// Counts a filled sequence gap.
fn filled(last: &mut Option<RecoveryReport>, counters: &mut ArbiterCounters, gap: &OpenGap, now: Nanos) {
    match gap.requested() {
        Some(_) => counters.filled_by_retransmission += 1,
        None => counters.filled_by_lines += 1,
    }
    report(last, counters, gap, now);
}

impl Arbiter {
    pub(super) fn gap_deadline(&self) -> Option<Nanos> {
        self.gaps.deadline(self.options.retransmission.as_ref(), self.options.reorder_window_ns)
    }

    /// Opens a gap if messages are missing between what is held and `first`, the number of a packet about to be held.
    pub(super) fn open_gap(&mut self, first: u64, since: Nanos) {
        let from = if self.held.is_empty() { self.next } else { Some(self.reach) };
        if let Some(from) = from.filter(|from| *from < first) {
            self.counters.gaps_opened += 1;
            self.gaps.open(from..first, since);
        }
    }

    /// Notes that a line brought `numbers`, some of which may be missing.
    pub(super) fn brought_by_line(&mut self, numbers: &Range<u64>, now: Nanos) {
        let Self { gaps, counters, last_recovery, .. } = self;
        gaps.brought_by_line(numbers, now, |gap| filled(last_recovery, counters, gap, now));
    }

    /// Notes that an answer brought `numbers`, some of which were requested.
    pub(super) fn brought_by_answer(&mut self, numbers: &Range<u64>, now: Nanos) {
        let Self { gaps, counters, last_recovery, options, .. } = self;
        let Some(options) = &options.retransmission else { return };
        let brought = gaps.answered(numbers, options, now, |gap| filled(last_recovery, counters, gap, now));
        counters.recovered += brought;
        if planted!("partial-answer-ends-recovery") {
            gaps.end_first();
        }
    }

    /// Handles an answer without messages. Some servers name the oldest message they keep this way; missing messages before it
    /// are given up. Returns `false` if the answer changes nothing.
    pub(super) fn is_not_kept(
        &mut self,
        oldest: u64,
        now: Nanos,
        deliver: &mut impl FnMut(Delivery<'_>),
    ) -> bool {
        let window_ns = self.options.reorder_window_ns;
        let options = self.options.retransmission.filter(|options| options.answers_name_oldest);
        let is_any = options.is_some_and(|options| self.gaps.not_kept(oldest, &options, window_ns, now));
        if is_any {
            self.work_on_gaps(now, false, deliver);
        }
        is_any
    }

    /// Handles a report that the server no longer has these messages. If the first missing message is among them, everything
    /// missing before their end is given up, because a server discards the oldest first. Returns `false` if the report changes
    /// nothing.
    pub(super) fn not_available(
        &mut self,
        numbers: &Range<u64>,
        now: Nanos,
        deliver: &mut impl FnMut(Delivery<'_>),
    ) -> bool {
        let window_ns = self.options.reorder_window_ns;
        let missing = self.gaps.first().map(|gap| gap.missing().span().start);
        let is_first = missing.is_some_and(|first| numbers.contains(&first));
        let options = self.options.retransmission.filter(|_| is_first && self.gaps.requests_any_of(numbers));
        let is_any = options.is_some_and(|options| self.gaps.not_kept(numbers.end, &options, window_ns, now));
        if is_any {
            self.work_on_gaps(now, false, deliver);
        }
        is_any
    }

    /// Delivers held packets up to the next sequence gap, and requests whatever may be requested now.
    pub(super) fn go_on(&mut self, now: Nanos, deliver: &mut impl FnMut(Delivery<'_>)) {
        self.release(deliver);
        if self.held.is_empty() {
            self.heard(now, deliver);
            self.change_session_if_done(now, deliver);
        } else {
            self.work_on_gaps(now, false, deliver);
        }
    }

    /// Returns whether a line brought the gap's first missing message more than a reorder window after every held packet. Lines
    /// do not lag that far, so the held packets are stray.
    fn contradicts_held(&self, gap: &OpenGap) -> bool {
        let window_ns = self.options.reorder_window_ns;
        gap.narrowed().is_some_and(|at| self.held.iter().all(|held| at.since(held.received) > window_ns))
    }

    /// Gives up the first gap and delivers the held packets after it.
    pub(super) fn give_up(&mut self, reason: GapReason, now: Nanos, deliver: &mut impl FnMut(Delivery<'_>)) {
        let Some(gap) = self.gaps.take_first() else { return };
        if reason != GapReason::HeldBytes && self.contradicts_held(&gap) {
            // No message is missing: drop the stray packets that suggested so.
            while let Some(held) = self.held.pop_front() {
                self.lines[place(held.line)].drop_stray(&held.header);
                self.drop_held(held);
            }
            self.gaps.clear();
            return;
        }
        // The channel stays silent unless a current packet has arrived since.
        self.is_silent &= self.last.is_none();
        // Packets from within the gap may be held.
        for missing in gap.missing().iter() {
            self.release(deliver);
            self.pass_over(missing.end, reason, now, deliver);
        }
        report(&mut self.last_recovery, &mut self.counters, &gap, now);
        self.gaps.let_go(gap);
        self.release(deliver);
        if self.held.is_empty() {
            self.change_session_if_done(now, deliver);
        }
    }

    /// Does whatever is due for the gaps: requests them, repeats requests, or gives up the first gap. `is_tick` means that `now`
    /// is the present and not a packet's time.
    pub(super) fn work_on_gaps(&mut self, now: Nanos, is_tick: bool, deliver: &mut impl FnMut(Delivery<'_>)) {
        let window_ns = self.options.reorder_window_ns;
        while !self.gaps.is_empty() {
            match &self.options.retransmission {
                Some(options) => {
                    if is_tick {
                        self.counters.repeated_requests += self.gaps.time_out(options, now);
                    }
                    self.counters.too_long += self.gaps.request(options, window_ns, now, is_tick);
                }
                None => self.gaps.end_window(window_ns, now),
            }
            let mut is_any = false;
            while let Some(reason) = self.gaps.first().and_then(OpenGap::over) {
                self.give_up(reason, now, deliver);
                is_any = true;
            }
            if !is_any {
                return;
            }
        }
    }
}
