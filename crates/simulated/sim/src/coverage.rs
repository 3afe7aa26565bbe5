//! Coverage of a run: kinds of faults, and states that the plant reports.
//!
//! Each fact is a counter in the plant's status that has moved, or a state that the status showed when it was sampled:
//! whenever a fault begins or ends, and at the end. A run either reaches a fact or does not. Many runs make a table, which
//! lists the facts that none has reached.

use std::collections::BTreeSet;

use tapeworks_follow::arbitration::GapReason;
use tapeworks_plant::{ChannelStatus, LineStatus, Status};
use tapeworks_session::requests::RequestStatus;

use crate::plan::{Plan, What};

/// A fact about a value, with its name.
type Fact<T> = (&'static str, fn(&T) -> bool);

const LINE: [Fact<LineStatus>; 13] = [
    ("line: packets lost", |line| line.counters.lost > 0),
    ("line: messages late", |line| line.counters.late > 0),
    ("line: messages reordered", |line| line.counters.reordered > 0),
    ("line: messages repeated", |line| line.counters.repeated > 0),
    ("line: copies of the other line", |line| line.counters.duplicate > 0),
    ("line: silent", |line| line.counters.silences > 0),
    ("line: malformed packets", |line| line.counters.malformed > 0),
    ("line: packets of past sessions", |line| line.counters.of_past_sessions > 0),
    ("line: packets of other feeds", |line| line.counters.of_other_feeds > 0),
    ("line: implausible packets", |line| line.counters.implausible > 0),
    ("line: answers that were not requested", |line| line.counters.unrequested > 0),
    ("line: dropped by the kernel", |line| line.kernel_drops > 0),
    ("line: datagrams too long for a buffer", |line| line.too_long > 0),
];

const CHANNEL: [Fact<ChannelStatus>; 27] = [
    ("gap: opened", |channel| channel.counters.gaps_opened > 0),
    ("gap: filled by a line", |channel| channel.counters.filled_by_lines > 0),
    ("gap: filled by retransmission", |channel| channel.counters.filled_by_retransmission > 0),
    ("gap: request repeated", |channel| channel.counters.repeated_requests > 0),
    ("gap: long recovery", |channel| channel.counters.long_recoveries > 0),
    ("gap: too many messages to request", |channel| channel.counters.too_long > 0),
    ("gap: too many bytes waited behind it", |channel| channel.counters.overflows > 0),
    ("gap: message came after it was given up", |channel| channel.counters.late > 0),
    ("requests over TCP: accepted", |channel| {
        channel.requester.is_some_and(|requester| requester.counters.of(RequestStatus::Accepted) > 0)
    }),
    ("requests over TCP: refused", |channel| {
        channel.requester.is_some_and(|requester| requester.counters.refused() > 0)
    }),
    ("requests over TCP: connected again", |channel| {
        channel.requester.is_some_and(|requester| requester.counters.connections > 1)
    }),
    ("session: another one followed", |channel| channel.counters.session_changes > 0),
    ("session: numbers began anew", |channel| channel.counters.sequence_resets > 0),
    ("session: its end was said", |channel| channel.counters.ends_of_session > 0),
    ("channel: silent", |channel| channel.counters.silences > 0),
    ("channel: seen silent", |channel| channel.is_silent),
    ("channel: seen recovering", |channel| channel.is_recovering),
    ("channel: seen requesting", |channel| channel.recovering_since.is_some()),
    ("channel: seen joining", |channel| channel.is_joining),
    ("channel: seen with stale books", |channel| channel.is_stale),
    ("snapshot: requested", |channel| channel.snapshots.requests > 0),
    ("snapshot: applied", |channel| channel.snapshots.applied > 0),
    ("snapshot: failed", |channel| channel.snapshots.failed > 0),
    ("snapshot: given up", |channel| channel.snapshots.given_up > 0),
    ("snapshot: requested as the venue contradicted the books", |channel| channel.snapshots.contradicted > 0),
    ("snapshot: applied after one that failed", |channel| {
        channel.snapshots.failed > 0 && channel.snapshots.applied > 0
    }),
    ("channel: no packet yet", |channel| channel.next.is_none() && !channel.is_joining),
];

const PLANT: [Fact<Status>; 24] = [
    ("ingest waited for the ring or the journal", |status| status.ring.stalls > 0),
    ("messages that cannot be read", |status| status.engine.problems > 0),
    ("changes that books refused", |status| status.books.rejected > 0),
    ("books that the venue contradicted", |status| status.books.contradicted > 0),
    ("nbbo: locked", |status| status.books.nbbo.locked > 0),
    ("nbbo: crossed", |status| status.books.nbbo.crossed > 0),
    ("journal: records lost", |status| status.journal.as_ref().is_some_and(|journal| journal.lost > 0)),
    ("journal: not confirmed", |status| {
        status.journal.as_ref().is_some_and(|journal| journal.unconfirmed > 0)
    }),
    ("journal: damaged segments", |status| {
        status.journal.as_ref().is_some_and(|journal| journal.damaged > 0)
    }),
    ("journal: torn end", |status| status.journal.as_ref().is_some_and(|journal| journal.torn_bytes > 0)),
    ("journal: failing", |status| status.journal.as_ref().is_some_and(|journal| journal.is_failing)),
    ("journal: error", |status| status.journal.as_ref().is_some_and(|journal| journal.error.is_some())),
    ("journal: removed segments", |status| {
        status.journal.as_ref().is_some_and(|journal| journal.removed_segments > 0)
    }),
    ("journal: segments that could not be removed", |status| {
        status.journal.as_ref().is_some_and(|journal| journal.failed_removals > 0)
    }),
    ("checkpoint: taken", |status| status.checkpoints.taken > 0),
    ("checkpoint: written", |status| status.checkpoints.written > 0),
    ("checkpoint: failed", |status| status.checkpoints.failed > 0),
    ("checkpoint: skipped", |status| status.checkpoints.skipped > 0),
    ("checkpoint: error", |status| status.checkpoints.error.is_some()),
    ("start: from a checkpoint", |status| status.checkpoints.restored.is_some()),
    ("start: refused a checkpoint", |status| !status.checkpoints.refused.is_empty()),
    ("start: refused one, used an older one", |status| {
        !status.checkpoints.refused.is_empty() && status.checkpoints.restored.is_some()
    }),
    ("start: with books that may be wrong", |status| status.at_start.iter().any(|channel| channel.is_stale)),
    ("start: in a recovery", |status| status.at_start.iter().any(|channel| channel.is_recovering)),
];

/// Facts noted by other parts of a run.
pub(crate) mod notes {
    pub(crate) const START_REFUSED: &str = "start: refused";
    pub(crate) const REPLAY_FAILED: &str = "start: the journal cannot be replayed";
    pub(crate) const ENDED: &str = "the plant ended by itself";
    pub(crate) const NOT_SERVED: &str = "client: not served";
    pub(crate) const CUT: &str = "client: its session was ended by the server";
    pub(crate) const LEFT: &str = "client: left and came back";

    pub(crate) const FILED: &str = "day: its files are what a replay brings";
    pub(crate) const FILED_IN_PART: &str = "day: files of a journal that lost its beginning or inputs";

    pub(crate) const RESUMED: &str = "client: went on behind what it had";
    pub(crate) const SKIPPED: &str = "client: got the number of records that it missed";
    pub(crate) const CONFLATED: &str = "client: got the last quotes only";
    pub(crate) const COMPARED: &str = "client: compared with one that read all again";

    pub(crate) const CURRENT: &str = "readiness: compared with what was sent some seconds ago";

    pub(crate) const RECOVERED: &str = "multicast: messages recovered";
    pub(crate) const GIVEN_UP: &str = "multicast: messages given up";

    pub(super) const ALL: [&str; 15] = [
        START_REFUSED,
        REPLAY_FAILED,
        ENDED,
        NOT_SERVED,
        CUT,
        LEFT,
        RESUMED,
        SKIPPED,
        CONFLATED,
        COMPARED,
        CURRENT,
        RECOVERED,
        GIVEN_UP,
        FILED,
        FILED_IN_PART,
    ];
}

const FAULTS: [Fact<What>; 16] = [
    ("fault: line", |what| matches!(what, What::Line { .. })),
    ("fault: both lines out", |what| matches!(what, What::LinesOut { .. })),
    ("fault: requests and answers", |what| matches!(what, What::Requests { .. })),
    ("fault: TCP", |what| matches!(what, What::Tcp(_))),
    ("fault: disk", |what| matches!(what, What::Disk(_))),
    ("fault: killed", |what| matches!(what, What::Kill)),
    ("fault: power off", |what| matches!(what, What::PowerOff)),
    ("fault: bits of the disk turn", |what| matches!(what, What::Rot { .. })),
    ("fault: synced pages are gone", |what| matches!(what, What::LostPages { .. })),
    ("fault: clock set", |what| matches!(what, What::Clock(_))),
    ("fault: clock drifts or stands", |what| matches!(what, What::Drift(_))),
    ("fault: snapshot server out", |what| matches!(what, What::SnapshotsOut { .. })),
    ("fault: multicast", |what| matches!(what, What::Group { .. })),
    ("fault: second plant", |what| matches!(what, What::SecondPlant)),
    ("fault: the plant hangs", |what| matches!(what, What::Hang)),
    ("fault: the venues hang", |what| matches!(what, What::VenuesHang)),
];

/// Returns the fact for a reason to give up gaps.
fn reason(reason: GapReason) -> String {
    format!("gap: given up ({})", reason.as_str())
}

/// Returns all facts.
pub fn facts() -> Vec<String> {
    let of_plant = PLANT.iter().map(|(name, _)| *name);
    let named = FAULTS.iter().map(|(name, _)| *name).chain(LINE.iter().map(|(name, _)| *name));
    let named = named.chain(CHANNEL.iter().map(|(name, _)| *name)).chain(of_plant).chain(notes::ALL);
    named.map(str::to_owned).chain(GapReason::ALL.map(reason)).collect()
}

/// The facts that a run has reached.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Reached(pub BTreeSet<String>);

impl Reached {
    pub(crate) fn note(&mut self, fact: &str) {
        if !self.0.contains(fact) {
            self.0.insert(fact.to_owned());
        }
    }

    /// Notes the faults of a plan.
    pub(crate) fn faults(&mut self, plan: &Plan) {
        for fault in &plan.faults {
            FAULTS.iter().filter(|(_, is_so)| is_so(&fault.what)).for_each(|(name, _)| self.note(name));
        }
    }

    /// Notes the states and counters of a plant's status.
    pub(crate) fn status(&mut self, status: &Status) {
        PLANT.iter().filter(|(_, is_so)| is_so(status)).for_each(|(name, _)| self.note(name));
        for channel in &status.channels {
            CHANNEL.iter().filter(|(_, is_so)| is_so(channel)).for_each(|(name, _)| self.note(name));
            for why in GapReason::ALL {
                if channel.counters.gaps_of(why) > 0 {
                    self.note(&reason(why));
                }
            }
            for line in &channel.lines {
                LINE.iter().filter(|(_, is_so)| is_so(line)).for_each(|(name, _)| self.note(name));
            }
        }
    }
}
