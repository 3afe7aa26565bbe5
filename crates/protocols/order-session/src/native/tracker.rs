//! Tracks a day's reports per App ID: each is delivered once and in order, across gaps and reconnects.
//!
//! The report with the next number is delivered immediately. A live report beyond it is held until the recovery channel
//! has delivered the reports before it. The number of held reports is bounded: a report without room is dropped and
//! counted, and the recovery is requested again, so none is lost. If the venue repeatedly says that a recovery is
//! complete while reports are still missing, they are given up: [`Handed::Missing`] names them.
//!
//! The numbers restart at 1 on each day of the venue. A report with an old number but a later time than the newest
//! report delivered belongs to another day: [`Handed::BeganAnew`]. After each connect the last report is requested
//! again to see its time; live reports are held until then.
//!
//! Cost: a few comparisons and additions for a report in order. Nothing allocates after startup, except for an App ID that the settings lack.

use std::collections::VecDeque;
use tapeworks_planted::planted;
use tapeworks_wire::millennium::native::report_time_ns;

/// A report with an old number belongs to another day if it is later than the newest report by more than this, in
/// nanoseconds. Times within a day may be out of order by less.
const ANOTHER_DAY_NS: u64 = 1_000_000_000;

/// The longest report, in bytes.
pub(super) const MAX_REPORT_BYTES: usize = 164;

/// Settings for recovering missed reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecoverySettings {
    /// The most live reports held per App ID while earlier ones are recovered.
    pub held_reports: usize,
    /// The number of complete recoveries without progress after which an App ID's missing reports are given up.
    pub attempts: u32,
    /// The wait before a refused request is retried, in nanoseconds. It doubles with each refusal.
    pub first_wait_ns: u64,
    /// The longest wait before a retry, in nanoseconds.
    pub longest_wait_ns: u64,
    /// How long the venue may send nothing of an answer before the request counts as unanswered, in nanoseconds. The recovery
    /// channel then reconnects, because the end of an answer does not name its request, and the request waits like a refused one.
    pub answer_timeout_ns: u64,
}

impl Default for RecoverySettings {
    /// 1,024 reports, 3 attempts, waits from 1 s to 30 s, 5 s for an answer.
    fn default() -> Self {
        Self {
            held_reports: 1_024,
            attempts: 3,
            first_wait_ns: 1_000_000_000,
            longest_wait_ns: 30_000_000_000,
            answer_timeout_ns: 5_000_000_000,
        }
    }
}

/// Counters of the reports dropped, and of the gaps noticed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TrackerCounters {
    /// Reports delivered.
    pub handed: u64,
    /// Duplicate reports dropped.
    pub duplicates: u64,
    /// Gaps in the live numbers.
    pub gaps: u64,
    /// Live reports dropped because too many were held. They are recovered.
    pub not_held: u64,
    /// Reports given up because the venue no longer has them.
    pub missing: u64,
    /// Reports dropped because their number is below 1.
    pub wrong_numbers: u64,
    /// App IDs beyond those of the settings. They are recovered like the others.
    pub unknown_app_ids: u64,
    /// Restarts of an App ID's numbers at 1.
    pub began_anew: u64,
}

/// An event of the tracker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Handed<'a> {
    Report {
        app_id: u8,
        number: u32,
        message: &'a [u8],
    },
    Missing {
        app_id: u8,
        first: u32,
        count: u32,
    },
    CaughtUp {
        app_id: u8,
    },
    /// The venue's numbers are those of another day.
    BeganAnew {
        app_id: u8,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// No report is known to be missing.
    Live,
    /// A request is due at this time.
    Wanted { at_ns: u64 },
    /// A request was made: `next` was the next number, and `was_checked` whether the day of the numbers was known.
    Requested { next: u32, was_checked: bool },
}

#[derive(Debug, Clone)]
struct Held {
    number: u32,
    length: usize,
    bytes: [u8; MAX_REPORT_BYTES],
}

#[derive(Debug, Clone)]
struct Partition {
    app_id: u8,
    /// The number of the next report.
    next: u32,
    state: State,
    /// Later reports, sorted by number.
    held: VecDeque<Held>,
    /// A report was dropped instead of held: the next recovery delivers it.
    is_overflowed: bool,
    /// Complete recoveries without progress.
    attempts: u32,
    wait_ns: u64,
    /// The newest Transact Time of the reports delivered, in nanoseconds; 0 if unknown.
    newest_ns: u64,
    /// Whether the venue's numbers are known to be of the same day as those reports.
    is_checked: bool,
    /// The venue did not have the last report, so reports are requested from the first.
    is_from_first: bool,
}

/// Tracks the report numbers of one user.
#[derive(Debug, Clone)]
pub(super) struct Tracker {
    partitions: Vec<Partition>,
    settings: RecoverySettings,
    counters: TrackerCounters,
}

impl Partition {
    /// Creates a partition before its first report, with room for this many held reports.
    fn new(app_id: u8, room: usize, first_wait_ns: u64) -> Self {
        Self {
            app_id,
            next: 1,
            state: State::Wanted { at_ns: 0 },
            held: VecDeque::with_capacity(room),
            is_overflowed: false,
            attempts: 0,
            wait_ns: first_wait_ns,
            newest_ns: 0,
            is_checked: true,
            is_from_first: false,
        }
    }

    fn hand(&mut self, message: &[u8], counters: &mut TrackerCounters, each: &mut impl FnMut(Handed<'_>)) {
        counters.handed += 1;
        self.newest_ns = self.newest_ns.max(report_time_ns(message).unwrap_or(0));
        let (app_id, number) = (self.app_id, self.next);
        self.next = self.next.saturating_add(1);
        each(Handed::Report { app_id, number, message });
    }

    /// Delivers the held reports that are next in order.
    fn drain(&mut self, counters: &mut TrackerCounters, each: &mut impl FnMut(Handed<'_>)) {
        while let Some(front) = self.held.front() {
            if front.number > self.next {
                return;
            }
            let Some(held) = self.held.pop_front() else { return };
            if held.number == self.next {
                let message = held.bytes.get(..held.length).unwrap_or_default();
                self.hand(message, counters, each);
            } else {
                counters.duplicates += 1;
            }
        }
    }

    fn hold(&mut self, number: u32, message: &[u8], limit: usize, counters: &mut TrackerCounters) {
        let place = self.held.partition_point(|held| held.number < number);
        if self.held.get(place).is_some_and(|held| held.number == number) {
            counters.duplicates += 1;
            return;
        }
        let mut held = Held { number, length: message.len(), bytes: [0; MAX_REPORT_BYTES] };
        match held.bytes.get_mut(..message.len()) {
            Some(room) if self.held.len() < limit => {
                room.copy_from_slice(message);
                self.held.insert(place, held);
            }
            _ => {
                counters.not_held += 1;
                self.is_overflowed = true;
            }
        }
    }

    /// Processes a report of either channel.
    fn take(
        &mut self,
        number: u32,
        (message, is_recovered): (&[u8], bool),
        limit: usize,
        counters: &mut TrackerCounters,
        each: &mut impl FnMut(Handed<'_>),
    ) {
        if number < self.next && self.newest_ns != 0 {
            self.compare_day(message, counters, each);
        }
        if number < self.next {
            counters.duplicates += 1;
        } else if !self.is_checked && !is_recovered {
            self.hold(number, message, limit, counters);
        } else if number == self.next {
            // The venue no longer has the previous report.
            self.is_checked = true;
            self.hand(message, counters, each);
            if !self.held.is_empty() {
                self.drain(counters, each);
            }
        } else {
            self.is_checked = true;
            self.hold(number, message, limit, counters);
            if self.state == State::Live && !planted!("gap-not-requested") {
                counters.gaps += 1;
                self.state = State::Wanted { at_ns: 0 };
            }
        }
    }

    /// Compares the time of a report with an old number with the newest time.
    #[cold]
    fn compare_day(
        &mut self,
        message: &[u8],
        counters: &mut TrackerCounters,
        each: &mut impl FnMut(Handed<'_>),
    ) {
        let Some(time_ns) = report_time_ns(message) else { return };
        if time_ns > self.newest_ns.saturating_add(ANOTHER_DAY_NS) {
            counters.began_anew += 1;
            self.begin_anew();
            each(Handed::BeganAnew { app_id: self.app_id });
        } else if !self.is_checked {
            self.is_checked = true;
            self.drain(counters, each);
        }
    }

    /// Restarts the numbers at 1.
    fn begin_anew(&mut self) {
        self.next = 1;
        self.held.clear();
        self.is_overflowed = false;
        self.attempts = 0;
        self.newest_ns = 0;
        self.is_checked = true;
        self.state = State::Wanted { at_ns: 0 };
    }

    /// Marks the day of the venue's numbers as unknown, after a new connection.
    fn begin_check(&mut self) {
        self.is_checked = self.newest_ns == 0 || self.next == 1;
        self.is_from_first = false;
    }

    /// Handles the venue's word that all reports were sent.
    fn complete(
        &mut self,
        requested_next: u32,
        settings: &RecoverySettings,
        counters: &mut TrackerCounters,
        each: &mut impl FnMut(Handed<'_>),
    ) {
        self.wait_ns = settings.first_wait_ns;
        if !self.is_checked {
            // Either its numbers are of another day, or it does not have the last report yet. Its first reports show which.
            if !std::mem::replace(&mut self.is_from_first, true) {
                self.state = State::Wanted { at_ns: 0 };
                return;
            }
            self.is_checked = true;
            self.drain(counters, each);
        }
        self.attempts = if self.next > requested_next { 0 } else { self.attempts + 1 };
        if self.held.is_empty() && !self.is_overflowed {
            return self.caught_up(each);
        }
        if self.attempts < settings.attempts.max(1) {
            self.is_overflowed = false;
            self.state = State::Wanted { at_ns: 0 };
            return;
        }
        while let Some(front) = self.held.front() {
            let (first, count) = (self.next, front.number.saturating_sub(self.next));
            counters.missing += u64::from(count);
            self.next = front.number;
            each(Handed::Missing { app_id: self.app_id, first, count });
            self.drain(counters, each);
        }
        if self.is_overflowed {
            self.is_overflowed = false;
            self.attempts = 0;
            self.state = State::Wanted { at_ns: 0 };
            return;
        }
        self.caught_up(each);
    }

    fn caught_up(&mut self, each: &mut impl FnMut(Handed<'_>)) {
        self.attempts = 0;
        self.state = State::Live;
        each(Handed::CaughtUp { app_id: self.app_id });
    }
}

impl Tracker {
    /// Creates App IDs 0 to `partitions`, each before its first report.
    pub(super) fn new(partitions: u8, mut settings: RecoverySettings) -> Self {
        settings.held_reports = settings.held_reports.max(1);
        let partition = |app_id| Partition::new(app_id, settings.held_reports, settings.first_wait_ns);
        Self {
            partitions: (0..=partitions).map(partition).collect(),
            settings,
            counters: TrackerCounters::default(),
        }
    }

    /// Returns the partition of an App ID, adding it if the settings lack it.
    ///
    /// The App IDs in between are added as well, so that a disconnect loses none of their reports: if the venue does
    /// not have such an App ID, it says so when its reports are requested.
    fn partition(&mut self, app_id: u8) -> Option<&mut Partition> {
        if usize::from(app_id) >= self.partitions.len() {
            self.add_up_to(app_id);
        }
        self.partitions.get_mut(usize::from(app_id))
    }

    #[cold]
    fn add_up_to(&mut self, app_id: u8) {
        self.counters.unknown_app_ids += 1;
        for added in 0..=app_id {
            if usize::from(added) >= self.partitions.len() {
                self.partitions.push(Partition::new(added, 0, self.settings.first_wait_ns));
            }
        }
    }

    pub(super) const fn counters(&self) -> TrackerCounters {
        self.counters
    }

    /// Returns the number of the last report delivered per App ID.
    pub(super) fn last_numbers(&self) -> impl Iterator<Item = (u8, u32)> {
        self.partitions.iter().map(|partition| (partition.app_id, partition.next - 1))
    }

    /// Resumes after the last handled number of an App ID, with the newest time of its reports (0 if unknown).
    pub(super) fn restore(&mut self, app_id: u8, last: u32, newest_ns: u64) {
        if let Some(partition) = self.partition(app_id) {
            partition.begin_anew();
            (partition.next, partition.newest_ns) = (last.saturating_add(1), newest_ns);
            partition.begin_check();
        }
    }

    /// Processes a report.
    #[inline]
    pub(super) fn take(
        &mut self,
        app_id: u8,
        number: i32,
        message: &[u8],
        is_recovered: bool,
        each: &mut impl FnMut(Handed<'_>),
    ) {
        let Some(number) = u32::try_from(number).ok().filter(|number| *number > 0) else {
            self.counters.wrong_numbers += 1;
            return;
        };
        if usize::from(app_id) >= self.partitions.len() {
            self.add_up_to(app_id);
        }
        if let Some(partition) = self.partitions.get_mut(usize::from(app_id)) {
            let limit = self.settings.held_reports;
            partition.take(number, (message, is_recovered), limit, &mut self.counters, each);
        }
    }

    /// Returns the next request to make, if any: the App ID, and the number after which to request reports.
    ///
    /// The request that has been due for longest comes first, so that one refused or unanswered request does not block others.
    pub(super) fn next_request(&mut self, now_ns: u64) -> Option<(u8, u32)> {
        let due = |partition: &Partition| match partition.state {
            State::Wanted { at_ns } => Some(at_ns).filter(|at_ns| *at_ns <= now_ns),
            _ => None,
        };
        let wanted = self.partitions.iter_mut().filter_map(|partition| Some((due(partition)?, partition)));
        let (_, partition) = wanted.min_by_key(|(at_ns, _)| *at_ns)?;
        partition.state = State::Requested { next: partition.next, was_checked: partition.is_checked };
        let last = match (partition.is_checked, partition.is_from_first) {
            (true, _) => partition.next - 1,
            (false, false) => partition.next.saturating_sub(2),
            (false, true) => 0,
        };
        Some((partition.app_id, last))
    }

    /// Returns when the next request is due, if any.
    pub(super) fn request_due_ns(&self) -> Option<u64> {
        let due = self.partitions.iter().filter_map(|partition| match partition.state {
            State::Wanted { at_ns } => Some(at_ns),
            _ => None,
        });
        due.min()
    }

    /// Completes the recovery of an App ID.
    pub(super) fn complete(&mut self, app_id: u8, each: &mut impl FnMut(Handed<'_>)) {
        if let Some(partition) = self.partitions.get_mut(usize::from(app_id))
            && let State::Requested { next, .. } = partition.state
        {
            partition.complete(next, &self.settings, &mut self.counters, each);
        }
    }

    /// Returns whether reports of an App ID have arrived, in this run or a previous one.
    pub(super) fn has_reports(&self, app_id: u8) -> bool {
        self.partitions.get(usize::from(app_id)).is_some_and(|partition| {
            partition.next > 1 || partition.newest_ns != 0 || !partition.held.is_empty()
        })
    }

    /// Requests again after the recovery of an App ID delivered as many reports as one request allows.
    pub(super) fn limit_reached(&mut self, app_id: u8, now_ns: u64) {
        let Some(partition) = self.partitions.get_mut(usize::from(app_id)) else { return };
        match partition.state {
            // Receiving the last report again is progress too: it shows the day.
            State::Requested { next, was_checked }
                if partition.next > next || partition.is_checked != was_checked =>
            {
                partition.wait_ns = self.settings.first_wait_ns;
                partition.state = State::Wanted { at_ns: 0 };
            }
            State::Requested { .. } => self.refused(app_id, now_ns),
            _ => {}
        }
    }

    /// Schedules the retry of a request that was refused or could not be answered.
    pub(super) fn refused(&mut self, app_id: u8, now_ns: u64) {
        let longest_ns = self.settings.longest_wait_ns;
        if let Some(partition) = self.partitions.get_mut(usize::from(app_id))
            && partition.state != State::Live
        {
            partition.state = State::Wanted { at_ns: now_ns.saturating_add(partition.wait_ns) };
            partition.wait_ns = partition.wait_ns.saturating_mul(2).min(longest_ns);
        }
    }

    /// Makes pending requests due now, because the recovery of the App ID is available again.
    pub(super) fn resumed(&mut self, app_id: u8) {
        if let Some(partition) = self.partitions.get_mut(usize::from(app_id)) {
            partition.wait_ns = self.settings.first_wait_ns;
            if let State::Wanted { at_ns } = &mut partition.state {
                *at_ns = 0;
            }
        }
    }

    /// Repeats unfinished requests after the recovery channel broke.
    pub(super) fn recovery_broke(&mut self) {
        for partition in &mut self.partitions {
            if matches!(partition.state, State::Requested { .. }) && !planted!("recovery-not-asked-again") {
                partition.state = State::Wanted { at_ns: 0 };
            }
        }
    }

    /// Recovers every App ID after a logon to the real-time channel: reports may have been missed before it.
    pub(super) fn real_time_began(&mut self) {
        for partition in &mut self.partitions {
            partition.begin_check();
            if partition.state == State::Live {
                partition.state = State::Wanted { at_ns: 0 };
            }
        }
    }

    /// Returns whether no report is known to be missing.
    pub(super) fn is_caught_up(&self) -> bool {
        self.partitions.iter().all(|partition| partition.state == State::Live)
    }

    /// Returns the App IDs whose reports are, or may be, missing.
    pub(super) fn behind(&self) -> impl Iterator<Item = u8> {
        let behind = self.partitions.iter().filter(|partition| partition.state != State::Live);
        behind.map(|partition| partition.app_id)
    }

    /// Starts a new day: all numbers restart at 1.
    pub(super) fn new_day(&mut self) {
        self.partitions.iter_mut().for_each(Partition::begin_anew);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Eq)]
    enum Seen {
        Report(u8, u32),
        Missing(u8, u32, u32),
        CaughtUp(u8),
        BeganAnew(u8),
    }

    fn tracker(held_reports: usize) -> Tracker {
        let mut tracker = Tracker::new(1, RecoverySettings { held_reports, ..RecoverySettings::default() });
        for app_id in 0..=1 {
            tracker.next_request(0);
            tracker.complete(app_id, &mut |_| {});
        }
        assert!(tracker.is_caught_up());
        tracker
    }

    fn take(tracker: &mut Tracker, numbers: &[i32]) -> Vec<Seen> {
        run(tracker, |tracker, mut each| {
            numbers.iter().for_each(|number| tracker.take(1, *number, b"x", false, &mut each));
        })
    }

    fn run(tracker: &mut Tracker, act: impl FnOnce(&mut Tracker, &mut dyn FnMut(Handed<'_>))) -> Vec<Seen> {
        let mut seen = Vec::new();
        act(tracker, &mut |handed| {
            seen.push(match handed {
                Handed::Report { app_id, number, .. } => Seen::Report(app_id, number),
                Handed::Missing { app_id, first, count } => Seen::Missing(app_id, first, count),
                Handed::CaughtUp { app_id } => Seen::CaughtUp(app_id),
                Handed::BeganAnew { app_id } => Seen::BeganAnew(app_id),
            });
        });
        seen
    }

    fn complete(tracker: &mut Tracker) -> Vec<Seen> {
        run(tracker, |tracker, mut each| tracker.complete(1, &mut each))
    }

    #[test]
    fn reports_in_order_are_handed_on_and_repeated_ones_are_dropped() {
        let mut tracker = tracker(4);
        assert_eq!(take(&mut tracker, &[1, 2, 1, 2, 3]), [1, 2, 3].map(|number| Seen::Report(1, number)));
        assert_eq!((tracker.counters().duplicates, tracker.counters().handed), (2, 3));
        assert_eq!(take(&mut tracker, &[0, -5]), []);
        assert_eq!(tracker.counters().wrong_numbers, 2);
        assert_eq!(tracker.last_numbers().collect::<Vec<_>>(), [(0, 0), (1, 3)]);
    }

    #[test]
    fn a_gap_is_filled_by_the_recovery_before_the_live_reports_go_on() {
        let mut tracker = tracker(4);
        assert_eq!(take(&mut tracker, &[1, 4, 5]), [Seen::Report(1, 1)]);
        assert_eq!(tracker.next_request(0), Some((1, 1)));
        assert_eq!(tracker.next_request(0), None, "one request at a time");
        let expected = [2, 3, 4, 5].map(|number| Seen::Report(1, number));
        assert_eq!(take(&mut tracker, &[2, 3, 4, 5]), expected);
        assert_eq!(complete(&mut tracker), [Seen::CaughtUp(1)]);
        assert_eq!((tracker.counters().gaps, tracker.counters().duplicates), (1, 2));
    }

    #[test]
    fn held_reports_without_room_are_recovered() {
        let mut tracker = tracker(2);
        assert_eq!(take(&mut tracker, &[2, 3, 4, 5]), []);
        assert_eq!(tracker.counters().not_held, 2);
        assert_eq!(tracker.next_request(0), Some((1, 0)));
        assert_eq!(take(&mut tracker, &[1]), [1, 2, 3].map(|number| Seen::Report(1, number)));
        assert_eq!(complete(&mut tracker), [], "4 and 5 were not held");
        assert_eq!(tracker.next_request(0), Some((1, 3)));
        assert_eq!(take(&mut tracker, &[4, 5]), [4, 5].map(|number| Seen::Report(1, number)));
        assert_eq!(complete(&mut tracker), [Seen::CaughtUp(1)]);
    }

    #[test]
    fn reports_that_the_venue_does_not_have_are_given_up_after_some_attempts_and_named() {
        let mut tracker = tracker(4);
        assert_eq!(take(&mut tracker, &[3, 6]), []);
        for _ in 0..2 {
            assert_eq!(tracker.next_request(0), Some((1, 0)));
            assert_eq!(complete(&mut tracker), []);
        }
        assert_eq!(tracker.next_request(0), Some((1, 0)));
        let expected = [
            Seen::Missing(1, 1, 2),
            Seen::Report(1, 3),
            Seen::Missing(1, 4, 2),
            Seen::Report(1, 6),
            Seen::CaughtUp(1),
        ];
        assert_eq!(complete(&mut tracker), expected);
        assert_eq!(tracker.counters().missing, 4);
        assert_eq!(take(&mut tracker, &[7]), [Seen::Report(1, 7)]);
    }

    #[test]
    fn a_refused_request_waits_longer_each_time_and_not_after_the_service_resumes() {
        let mut tracker = tracker(4);
        take(&mut tracker, &[2]);
        let second = 1_000_000_000;
        let mut now_ns = 0;
        for wait_ns in [second, 2 * second, 4 * second, 8 * second, 16 * second, 30 * second, 30 * second] {
            assert_eq!(tracker.next_request(now_ns), Some((1, 0)));
            tracker.refused(1, now_ns);
            assert_eq!(tracker.request_due_ns(), Some(now_ns + wait_ns));
            assert_eq!(tracker.next_request(now_ns + wait_ns - 1), None);
            now_ns += wait_ns;
        }
        tracker.next_request(now_ns);
        tracker.refused(1, now_ns);
        tracker.resumed(1);
        assert_eq!(tracker.next_request(now_ns), Some((1, 0)));
        tracker.recovery_broke();
        assert_eq!(tracker.next_request(now_ns), Some((1, 0)));
        tracker.limit_reached(1, now_ns);
        assert_eq!(tracker.next_request(now_ns), None, "no progress: it waits");
    }

    /// Builds a report with a time in seconds.
    fn report(time_s: u32) -> Vec<u8> {
        let mut report = vec![0; 155];
        report[3] = b'8';
        report[127..131].copy_from_slice(&time_s.to_le_bytes());
        report
    }

    /// Processes reports of one channel, given by number and time.
    fn bring(tracker: &mut Tracker, is_recovered: bool, reports: &[(i32, u32)]) -> Vec<Seen> {
        run(tracker, |tracker, mut each| {
            for (number, time_s) in reports {
                tracker.take(1, *number, &report(*time_s), is_recovered, &mut each);
            }
        })
    }

    /// Creates a tracker that has handled reports 1 to 3, the last at 1,000 s, and has reconnected.
    fn back() -> Tracker {
        let mut tracker = tracker(4);
        assert_eq!(bring(&mut tracker, false, &[(1, 900), (2, 950), (3, 1_000)]).len(), 3);
        tracker.real_time_began();
        assert_eq!(tracker.next_request(0), Some((0, 0)));
        tracker.complete(0, &mut |_| {});
        tracker
    }

    #[test]
    fn the_last_report_comes_once_more_and_then_live_ones_are_handed_on() {
        let mut tracker = back();
        assert_eq!(tracker.next_request(0), Some((1, 2)));
        assert_eq!(bring(&mut tracker, false, &[(4, 1_100)]), [], "which day it is of is not known");
        assert_eq!(bring(&mut tracker, true, &[(3, 1_000)]), [Seen::Report(1, 4)]);
        assert_eq!(complete(&mut tracker), [Seen::CaughtUp(1)]);
        assert_eq!(bring(&mut tracker, false, &[(5, 1_200)]), [Seen::Report(1, 5)]);
        assert_eq!((tracker.counters().began_anew, tracker.counters().gaps), (0, 0));
    }

    #[test]
    fn a_limit_of_one_report_a_request_does_not_make_the_next_request_wait() {
        let mut tracker = back();
        assert_eq!(tracker.next_request(0), Some((1, 2)));
        assert_eq!(bring(&mut tracker, true, &[(3, 1_000)]), []);
        tracker.limit_reached(1, 0);
        assert_eq!(tracker.next_request(0), Some((1, 3)));
        assert_eq!(bring(&mut tracker, true, &[(4, 1_001)]), [Seen::Report(1, 4)]);
    }

    #[test]
    fn a_day_that_has_as_many_reports_already_is_noticed_by_their_time() {
        let mut tracker = back();
        assert_eq!(tracker.next_request(0), Some((1, 2)));
        assert_eq!(bring(&mut tracker, false, &[(5, 90_100)]), []);
        assert_eq!(bring(&mut tracker, true, &[(3, 90_000), (4, 90_050)]), [Seen::BeganAnew(1)]);
        assert_eq!(complete(&mut tracker), []);
        assert_eq!(tracker.next_request(0), Some((1, 0)));
        let all =
            bring(&mut tracker, true, &[(1, 89_000), (2, 89_500), (3, 90_000), (4, 90_050), (5, 90_100)]);
        assert_eq!(all, [1, 2, 3, 4, 5].map(|number| Seen::Report(1, number)));
    }

    #[test]
    fn a_day_that_has_fewer_reports_is_noticed_by_its_first_one() {
        let mut tracker = back();
        assert_eq!(tracker.next_request(0), Some((1, 2)));
        assert_eq!(complete(&mut tracker), []);
        assert_eq!(tracker.next_request(0), Some((1, 0)));
        let anew = [Seen::BeganAnew(1), Seen::Report(1, 1), Seen::Report(1, 2)];
        assert_eq!(bring(&mut tracker, true, &[(1, 90_000), (2, 90_001)]), anew);

        // The new day has no reports yet.
        let mut tracker = back();
        for last in [2, 0] {
            assert_eq!(tracker.next_request(0), Some((1, last)));
            let seen = complete(&mut tracker);
            assert_eq!(seen.len(), usize::from(last == 0), "{seen:?}");
        }
        assert!(tracker.is_caught_up());
        assert_eq!(bring(&mut tracker, false, &[(1, 90_000)]), [Seen::BeganAnew(1), Seen::Report(1, 1)]);
        assert_eq!(tracker.counters().began_anew, 1);
    }

    #[test]
    fn a_venue_whose_recovery_lags_behind_does_not_begin_another_day() {
        let mut tracker = back();
        assert_eq!(tracker.next_request(0), Some((1, 2)));
        assert_eq!(complete(&mut tracker), []);
        assert_eq!(tracker.next_request(0), Some((1, 0)));
        assert_eq!(bring(&mut tracker, true, &[(1, 900), (2, 950)]), []);
        assert_eq!(complete(&mut tracker), [Seen::CaughtUp(1)]);
        assert_eq!(bring(&mut tracker, false, &[(4, 1_001)]), [Seen::Report(1, 4)]);
    }

    #[test]
    fn restored_numbers_go_on_and_a_new_day_begins_at_one() {
        let mut tracker = tracker(4);
        tracker.restore(1, 41, 0);
        assert_eq!(tracker.next_request(0), Some((1, 41)));
        assert_eq!(take(&mut tracker, &[41, 42]), [Seen::Report(1, 42)]);
        tracker.new_day();
        assert_eq!(take(&mut tracker, &[1]), [Seen::Report(1, 1)]);
        tracker.restore(1, 41, 1_000_000_000_000);
        assert_eq!(tracker.next_request(0), Some((0, 0)));
        assert_eq!(tracker.next_request(0), Some((1, 40)));
        assert_eq!(bring(&mut tracker, true, &[(41, 9_000)]), [Seen::BeganAnew(1)]);
    }

    /// Answers every request for missed reports as complete, and returns the requests.
    fn requests(tracker: &mut Tracker) -> Vec<(u8, u32)> {
        let mut all = Vec::new();
        while let Some((app_id, last)) = tracker.next_request(0) {
            all.push((app_id, last));
            tracker.complete(app_id, &mut |_| {});
        }
        all
    }

    #[test]
    fn a_venue_with_more_partitions_than_the_settings_has_its_missed_reports_requested_all_the_same() {
        let mut tracker = tracker(4);
        let of_third = |tracker: &mut Tracker, numbers: &[i32]| {
            run(tracker, |tracker, mut each| {
                numbers.iter().for_each(|number| tracker.take(3, *number, b"x", false, &mut each));
            })
        };
        assert_eq!(of_third(&mut tracker, &[1]), [Seen::Report(3, 1)]);
        assert!(!tracker.is_caught_up(), "there may be more");
        // The venue says that it does not have App ID 2.
        assert_eq!(requests(&mut tracker), [(2, 0), (3, 1)]);
        assert!(tracker.is_caught_up());
        assert_eq!(of_third(&mut tracker, &[3]), [], "2 is missing");
        assert_eq!(tracker.next_request(0), Some((3, 1)));
        assert_eq!(of_third(&mut tracker, &[2]), [2, 3].map(|number| Seen::Report(3, number)));
        tracker.complete(3, &mut |_| {});
        tracker.real_time_began();
        assert_eq!(requests(&mut tracker), [(0, 0), (1, 0), (2, 0), (3, 3)]);
        assert_eq!(tracker.counters().unknown_app_ids, 1);
    }

    #[test]
    fn a_restart_requests_the_reports_of_a_partition_that_the_settings_do_not_have() {
        let mut tracker = Tracker::new(1, RecoverySettings::default());
        tracker.restore(2, 41, 0);
        assert_eq!(requests(&mut tracker), [(0, 0), (1, 0), (2, 41)]);
    }
}
