//! Checks a plant's answers to `/ready` against what its venues send.

use std::collections::VecDeque;

use tapeworks_plant::Condition;

use crate::oracle::{Oracle, SentUntil, Shown};
use crate::plan::{MILLISECOND, Plan, SECOND, What};

/// Tolerance beyond the silences: the plant's status may be 3 s old, messages may be requested for a second, and timers may be late.
const PATIENCE_NS: u64 = 6 * SECOND;

/// Checks a plant that claims to be ready, apart from its journal or its books: it must have shown, or reported missing, everything
/// that its venues sent up to some seconds ago.
#[derive(Debug)]
pub(crate) struct Readiness {
    /// Longest delay of a ready plant, in ns.
    patience_ns: u64,
    /// What the venues had sent at each check, as far back as needed.
    sent: VecDeque<(u64, Vec<SentUntil>)>,
    /// A failure is reported once.
    has_failed: bool,
    has_compared: bool,
}

impl Readiness {
    /// Creates a check if the plan's times can be compared, which requires that its clock is not set. A session that restarts under
    /// its name looks like the previous session to a plant that has lost the packet between them with its journal.
    pub(crate) fn of(plan: &Plan) -> Option<Self> {
        let has_clock = plan.faults.iter().any(|fault| matches!(fault.what, What::Clock(_) | What::Drift(_)));
        let loses_power = plan.faults.iter().any(|fault| matches!(fault.what, What::PowerOff));
        let may_forget = plan.has_damage() || plan.has_bad_disk() || loses_power;
        let is_ambiguous = may_forget && plan.venues.iter().any(|venue| venue.reset.is_some());
        // A session that restarts under its name is followed after two silences.
        let patience_ns = PATIENCE_NS + 3 * plan.arbiter.silence_ns + plan.arbiter.reorder_window_ns;
        (!has_clock && !is_ambiguous).then(|| Self {
            patience_ns,
            sent: VecDeque::new(),
            has_failed: false,
            has_compared: false,
        })
    }

    /// Returns whether there was anything to compare so far.
    pub(crate) const fn has_compared(&self) -> bool {
        self.has_compared
    }

    /// Checks whether the plant claims to be current but is far behind. `shown` must have everything in the ring.
    pub(crate) fn look(
        &mut self,
        now_ns: u64,
        is_current: bool,
        shown: &Shown,
        oracle: &Oracle,
    ) -> Option<String> {
        self.sent.push_back((now_ns, oracle.sent_until()));
        let is_old = |(at_ns, _): &(u64, Vec<SentUntil>)| at_ns + self.patience_ns <= now_ns;
        while self.sent.get(1).is_some_and(is_old) {
            self.sent.pop_front();
        }
        let (at_ns, sent) = self.sent.front().filter(|first| is_old(first))?;
        if !is_current || self.has_failed {
            return None;
        }
        self.has_compared = true;
        let late = oracle.not_shown(shown, sent)?;
        self.has_failed = true;
        Some(format!(
            "the plant says that nothing is late, and {late}, sent {} ms ago",
            (now_ns - at_ns) / MILLISECOND
        ))
    }
}

/// Returns whether a plant claims to be current. A failing journal delays no event, and neither do stale books.
pub(crate) fn is_current(conditions: &[Condition]) -> bool {
    let of_others = ["journal_written", "books_sound"];
    conditions.iter().all(|condition| condition.is_met() || of_others.contains(&condition.name))
}

/// Returns an unmet condition of the plant itself rather than its venues.
pub(crate) fn unmet_of_plant(conditions: &[Condition]) -> Option<String> {
    let of_plant = ["journal_replayed", "plant_reports", "journal_written"];
    let unmet =
        conditions.iter().find(|condition| of_plant.contains(&condition.name) && !condition.is_met())?;
    Some(format!("the plant is not ready: {}", unmet.reasons.join("; ")))
}

#[cfg(test)]
mod tests {
    use tapeworks_market::Publisher;
    use tapeworks_plant::{ChannelStatus, JournalStatus, Status};
    use tapeworks_time::Nanos;

    use super::*;

    #[test]
    fn the_conditions_that_are_looked_at_exist() {
        let now = Nanos(10 * SECOND);
        let journal = Some(JournalStatus { is_failing: true, ..JournalStatus::default() });
        let followed = ChannelStatus { next: Some(2), ..ChannelStatus::new("Nasdaq", Publisher::XNAS_ITCH) };
        let sound = Status { time: now, channels: vec![followed.clone()], ..Status::default() };
        let failing = Status { journal, ..sound.clone() };
        let stale = ChannelStatus { is_stale: true, ..followed.clone() };
        let stale = Status { channels: vec![stale], ..sound.clone() };
        let silent =
            Status { channels: vec![ChannelStatus { is_silent: true, ..followed }], ..sound.clone() };
        let look = |status: &Status, has_replayed| {
            let conditions = status.conditions(has_replayed, now);
            (is_current(&conditions), unmet_of_plant(&conditions).is_some())
        };
        assert_eq!(look(&sound, true), (true, false));
        assert_eq!(look(&sound, false), (false, true));
        assert_eq!(look(&Status { time: Nanos(0), ..sound }, true), (false, true));
        assert_eq!(look(&failing, true), (true, true));
        assert_eq!(look(&stale, true), (true, false));
        assert_eq!(look(&silent, true), (false, false));
    }
}
