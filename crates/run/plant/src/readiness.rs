//! The conditions under which a plant's output is complete.

use tapeworks_time::Nanos;

use crate::status::{ChannelStatus, Status};

/// How long messages may be requested and still count as a brief loss, in ns.
const BRIEF: u64 = Nanos::SECOND;

/// Age of the status above which the plant's thread counts as stuck, in ns.
const OLD: u64 = 3 * Nanos::SECOND;

/// One of the conditions of readiness.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Condition {
    /// The name, as in `/ready` and in the metric `ready_condition`.
    pub name: &'static str,
    /// Why the condition is not met; empty if it is met.
    pub reasons: Vec<String>,
}

impl Condition {
    /// Returns whether the condition is met.
    pub const fn is_met(&self) -> bool {
        self.reasons.is_empty()
    }

    fn of_plant(name: &'static str, is_unmet: bool, reason: impl FnOnce() -> String) -> Self {
        Self { name, reasons: if is_unmet { vec![reason()] } else { Vec::new() } }
    }

    fn of_venues(
        name: &'static str,
        status: &Status,
        is_unmet: impl Fn(&ChannelStatus) -> bool,
        reason: &str,
        cause: impl Fn(&ChannelStatus) -> Option<String>,
    ) -> Self {
        let unmet = status.channels.iter().filter(|channel| is_unmet(channel));
        let reasons = unmet.map(|channel| match cause(channel) {
            Some(cause) => format!("venue '{}' {reason}; {cause}", channel.name),
            None => format!("venue '{}' {reason}", channel.name),
        });
        Self { name, reasons: reasons.collect() }
    }
}

impl Status {
    /// Returns the conditions for a complete output at the time `now`, each with the reasons why it is not met. `has_replayed`
    /// states whether the plant has replayed its journal.
    pub fn conditions(&self, has_replayed: bool, now: Nanos) -> [Condition; 7] {
        let age = now.since(self.time);
        let is_begun = has_replayed && !self.channels.is_empty();
        let failing = self.journal.as_ref().filter(|journal| journal.is_failing);
        [
            Condition::of_plant("journal_replayed", !is_begun, || "the journal is being replayed".to_owned()),
            Condition::of_plant("plant_reports", is_begun && age > OLD, || {
                format!("the plant has reported nothing for {} s", age / Nanos::SECOND)
            }),
            Condition::of_plant("journal_written", failing.is_some(), || {
                let why = failing.and_then(|journal| journal.error.as_deref()).unwrap_or("the disk fails");
                format!("the journal loses inputs: {why}")
            }),
            Condition::of_venues(
                "venues_followed",
                self,
                |channel| channel.is_joining || channel.next.is_none(),
                "is not followed yet: no packet or no snapshot has come",
                snapshot_fault,
            ),
            Condition::of_venues("venues_heard", self, |channel| channel.is_silent, "is silent", |_| None),
            Condition::of_venues(
                "venues_recovered",
                self,
                |channel| channel.recovering_since.is_some_and(|since| now.since(since) > BRIEF),
                "lacks messages, which are requested for more than a second",
                requester_end,
            ),
            Condition::of_venues(
                "books_sound",
                self,
                |channel| channel.is_stale,
                "has stale books: messages of it are missing",
                |channel| snapshot_fault(channel).or_else(|| requester_end(channel)),
            ),
        ]
    }
}

/// Returns why the channel's last snapshot failed, if none was applied since.
fn snapshot_fault(channel: &ChannelStatus) -> Option<String> {
    let fault = channel.snapshots.last_fault?;
    Some(format!("its last snapshot failed: {fault}"))
}

/// Returns why the channel's request server is not connected.
fn requester_end(channel: &ChannelStatus) -> Option<String> {
    let requester = channel.requester.filter(|requester| !requester.is_ready)?;
    Some(format!("its request server is not connected: {}", requester.counters.last_end?))
}

#[cfg(test)]
mod tests {
    use tapeworks_feed::live::SnapshotFault;
    use tapeworks_market::Publisher;
    use tapeworks_session::requests::{RequesterCounters, RequesterEnd};

    use super::*;
    use crate::status::{JournalStatus, RequesterStatus};

    const NOW: Nanos = Nanos(1_763_130_600_000_000_000);

    fn unmet(status: &Status, has_replayed: bool) -> Vec<&'static str> {
        let conditions = status.conditions(has_replayed, NOW);
        conditions
            .into_iter()
            .filter(|condition| !condition.is_met())
            .map(|condition| condition.name)
            .collect()
    }

    #[test]
    fn stale_books_name_the_cause_of_the_last_failed_snapshot() {
        let mut channel =
            ChannelStatus { next: Some(2), is_stale: true, ..ChannelStatus::new("BX", Publisher::XBOS_ITCH) };
        let reason = |channel: &ChannelStatus| {
            let status = Status { time: NOW, channels: vec![channel.clone()], ..Status::default() };
            status.conditions(true, NOW).into_iter().flat_map(|condition| condition.reasons).next().unwrap()
        };
        assert_eq!(reason(&channel), "venue 'BX' has stale books: messages of it are missing");
        let counters = RequesterCounters { last_end: Some(RequesterEnd::Refused), ..Default::default() };
        channel.requester = Some(RequesterStatus { is_ready: false, counters });
        assert_eq!(
            reason(&channel),
            "venue 'BX' has stale books: messages of it are missing; its request server is not connected: the server refused the login"
        );
        channel.snapshots.last_fault = Some(SnapshotFault::OtherSession);
        assert_eq!(
            reason(&channel),
            "venue 'BX' has stale books: messages of it are missing; its last snapshot failed: the server's session is not the \
             session of the lines"
        );
    }

    #[test]
    fn each_trouble_leaves_its_condition_unmet() {
        let followed = ChannelStatus { next: Some(2), ..ChannelStatus::new("Nasdaq", Publisher::XNAS_ITCH) };
        let sound = Status { time: NOW, channels: vec![followed], ..Status::default() };
        assert_eq!(unmet(&sound, true), [""; 0]);
        assert_eq!(unmet(&sound, false), ["journal_replayed"]);
        assert_eq!(unmet(&Status { channels: Vec::new(), ..sound.clone() }, true), ["journal_replayed"]);
        assert_eq!(unmet(&Status { time: Nanos(NOW.0 - OLD - 1), ..sound.clone() }, true), ["plant_reports"]);
        let journal = Some(JournalStatus { is_failing: true, ..JournalStatus::default() });
        assert_eq!(unmet(&Status { journal, ..sound.clone() }, true), ["journal_written"]);
        let with = |change: fn(&mut ChannelStatus)| {
            let mut status = sound.clone();
            change(&mut status.channels[0]);
            unmet(&status, true)
        };
        assert_eq!(with(|channel| channel.is_joining = true), ["venues_followed"]);
        assert_eq!(with(|channel| channel.next = None), ["venues_followed"]);
        assert_eq!(with(|channel| channel.is_silent = true), ["venues_heard"]);
        assert_eq!(with(|channel| channel.is_stale = true), ["books_sound"]);
        assert_eq!(
            with(|channel| channel.recovering_since = Some(Nanos(NOW.0 - BRIEF - 1))),
            ["venues_recovered"]
        );
        assert_eq!(with(|channel| channel.recovering_since = Some(Nanos(NOW.0 - BRIEF))), [""; 0], "briefly");
    }
}
