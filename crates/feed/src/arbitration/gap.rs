//! An open sequence gap: awaited, requested, then filled or given up.

use tapeworks_market::Nanos;
use tapeworks_planted::planted;

use super::counters::{GapReason, RecoveryReport};
use super::{Arbiter, Delivery, place};
use crate::recovery::{Recovery, TimedOut};

/// An open sequence gap.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Debug)]
pub(super) struct OpenGap {
    /// When it was seen.
    pub(super) since: Nanos,
    /// Requests; `None` within the reorder window.
    pub(super) recovery: Option<Recovery>,
    /// When a line last brought the gap's first message.
    pub(super) narrowed: Option<Nanos>,
}

impl OpenGap {
    pub(super) const fn new(since: Nanos) -> Self {
        Self { since, recovery: None, narrowed: None }
    }
}

impl Arbiter {
    pub(super) fn gap_deadline(&self, open_gap: &OpenGap) -> Nanos {
        match (&open_gap.recovery, &self.options.retransmission) {
            (Some(recovery), Some(options)) => recovery.deadline(options),
            _ => Nanos(open_gap.since.0.saturating_add(self.options.reorder_window_ns)),
        }
    }

    /// Hands on held packets up to the next sequence gap, and opens that gap.
    pub(super) fn go_on(&mut self, now: Nanos, deliver: &mut impl FnMut(Delivery<'_>)) {
        if self.held.is_empty() && self.successors.is_empty() {
            self.open_gap = None;
            return;
        }
        let was = self.next;
        self.release(deliver);
        let Some(mut open_gap) = self.open_gap.take() else {
            return self.change_session_if_done(now, deliver);
        };
        let front = self.held.front().map(|front| (front.header.first, front.received));
        let next = self.next.unwrap_or_default();
        let Some(recovery) = &mut open_gap.recovery else {
            match front {
                None => {
                    self.counters.filled_by_lines += 1;
                    self.heard(now, deliver);
                    self.change_session_if_done(now, deliver);
                }
                // The next gap began when the packet behind it came.
                Some((_, since)) if self.next != was => self.open_gap = Some(OpenGap::new(since)),
                Some(_) => self.open_gap = Some(open_gap),
            }
            return;
        };
        match (front, &self.options.retransmission) {
            (Some((behind, _)), Some(options)) if next < recovery.end() => {
                let is_requested =
                    recovery.go_on(next, behind, options, now) && !planted!("partial-answer-ends-recovery");
                self.open_gap = Some(open_gap);
                if !is_requested {
                    self.give_up(GapReason::Attempts, now, deliver);
                }
            }
            (front, _) => {
                self.report(recovery, now, true);
                self.counters.filled_by_retransmission += 1;
                match front {
                    None => {
                        self.heard(now, deliver);
                        self.change_session_if_done(now, deliver);
                    }
                    Some((_, since)) => {
                        self.counters.gaps_opened += 1;
                        self.open_gap = Some(OpenGap::new(since));
                        self.work_on_gap(now, false, deliver);
                    }
                }
            }
        }
    }

    /// A requested sequence gap is filled or given up.
    pub(super) fn report(&mut self, recovery: &Recovery, now: Nanos, is_complete: bool) {
        let report = RecoveryReport {
            first: recovery.first(),
            end: recovery.end(),
            began: recovery.began(),
            ended: now,
            recovered: recovery.recovered(),
            requests: recovery.requests(),
            is_complete,
        };
        if report.is_long() {
            self.counters.long_recoveries += 1;
            self.last_recovery = Some(report);
        }
    }

    /// The reorder window is over: requests the messages missing before the first held packet. `false`: the limits forbid it.
    pub(super) fn request(&mut self, now: Nanos, is_tick: bool) -> bool {
        let (Some(open_gap), Some(options)) = (&mut self.open_gap, &self.options.retransmission) else {
            return false;
        };
        let (Some(next), Some(front)) = (self.next, self.held.front()) else { return false };
        let missing = next..front.header.first;
        if missing.is_empty() {
            return false;
        }
        if missing.end - missing.start > options.limit_messages {
            self.counters.too_long += 1;
            return false;
        }
        open_gap.recovery = Some(Recovery::new(missing, options, now, is_tick));
        true
    }

    /// Whether the lines still bring messages from before the gap, later than a line may lag behind the held packets: then the
    /// held packets are stray.
    pub(super) fn contradicts_held(&self, open_gap: &OpenGap) -> bool {
        let window_ns = self.options.reorder_window_ns;
        open_gap.narrowed.is_some_and(|at| self.held.iter().all(|held| at.since(held.received) > window_ns))
    }

    /// Gives the gap up and hands on the held packets.
    pub(super) fn give_up(&mut self, reason: GapReason, now: Nanos, deliver: &mut impl FnMut(Delivery<'_>)) {
        let Some(open_gap) = self.open_gap.take() else { return };
        if reason != GapReason::HeldBytes && self.contradicts_held(&open_gap) {
            // No message is missing: drops the stray packets that claimed so.
            while let Some(held) = self.held.pop_front() {
                self.lines[place(held.line)].counters.implausible += 1;
                self.held_bytes -= held.payload.len();
                self.let_go(held.payload);
            }
            return;
        }
        let recovery = open_gap.recovery;
        let Some(front) = self.held.front() else { return };
        let end = recovery.as_ref().map_or(front.header.first, Recovery::end);
        self.is_silent = false;
        // Some of the requested messages may be held.
        while let Some(first_held) = self.held.front().map(|front| front.header.first)
            && self.next.is_some_and(|next| next < end)
        {
            self.pass_over(first_held, reason, now, deliver);
            self.release(deliver);
        }
        if let Some(recovery) = &recovery {
            self.report(recovery, now, false);
        }
        self.release(deliver);
        match self.held.front() {
            // The messages behind it are another sequence gap.
            Some(front) => {
                self.counters.gaps_opened += 1;
                self.open_gap = Some(OpenGap::new(front.received));
            }
            None => self.change_session_if_done(now, deliver),
        }
    }

    /// Does what is due for the gap: requests it, requests it again, or gives it up. `is_tick`: `now` is the present and not a packet's time.
    pub(super) fn work_on_gap(&mut self, now: Nanos, is_tick: bool, deliver: &mut impl FnMut(Delivery<'_>)) {
        while let Some(open_gap) = &self.open_gap {
            if now < self.gap_deadline(open_gap) || open_gap.recovery.is_some() && !is_tick {
                return;
            }
            let recovery = self.open_gap.as_mut().and_then(|open_gap| open_gap.recovery.as_mut());
            let over = match (recovery, &self.options.retransmission) {
                (None, Some(_)) => (!self.request(now, is_tick)).then_some(GapReason::MessageLimit),
                (Some(recovery), Some(options)) if !recovery.is_over_time(options, now) => {
                    match recovery.time_out(options, now) {
                        TimedOut::Repeated(requests) => {
                            self.counters.repeated_requests += requests;
                            None
                        }
                        TimedOut::Exhausted => Some(GapReason::Attempts),
                    }
                }
                (Some(_), _) => Some(GapReason::TimeLimit),
                (None, None) => Some(GapReason::NoServer),
            };
            if let Some(reason) = over {
                self.give_up(reason, now, deliver);
            }
        }
    }
}
