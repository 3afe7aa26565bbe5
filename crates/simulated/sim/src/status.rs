//! Compares a plant's status with its behavior.

use tapeworks_follow::arbitration::GapReason;
use tapeworks_market::Line;
use tapeworks_plant::{ChannelStatus, LineStatus, Status};
use tapeworks_time::Nanos;

use crate::plan::{LimitPlan, MILLISECOND, Plan, SECOND, What};

/// Maximum age of the status, and maximum delay of timers.
const SLACK_NS: u64 = SECOND;

/// Last time at which a line delivered something.
#[derive(Clone, Copy, Debug)]
struct LastHeard {
    packets: u64,
    /// By the time of the status.
    since: Nanos,
    /// By the simulation time.
    since_ns: u64,
}

/// Follows a plant's status. A line that delivers nothing for the silence time must be reported silent, and so must a channel whose
/// lines all deliver nothing.
#[derive(Default, Debug)]
pub(crate) struct Silence {
    lines: Vec<LastHeard>,
    /// A failure is reported once.
    has_failed: bool,
}

impl Silence {
    /// Returns whether a plan's plant notices silence in time: no disk delays ingest, and the plant does not hang.
    pub(crate) fn can_follow(plan: &Plan) -> bool {
        !plan.faults.iter().any(|fault| matches!(fault.what, What::Disk(_) | What::Hang))
    }

    /// Returns a line or channel that delivers nothing and is not reported silent. `now_ns` is the simulation time.
    ///
    /// A line must have been quiet by both times. The status time alone jumps ahead when the plant's clock is set, including at the
    /// end of a drift. The simulation time alone continues while ingest waits.
    pub(crate) fn look(&mut self, status: &Status, now_ns: u64, silence_ns: u64) -> Option<String> {
        let mut wrong = status.channels.iter().find_map(silent_unsaid).filter(|_| !self.has_failed);
        self.has_failed |= wrong.is_some();
        let lines =
            status.channels.iter().flat_map(|channel| lines_of(channel).map(move |line| (channel, line)));
        for (place, (channel, line)) in lines.enumerate() {
            let heard = LastHeard { packets: line.counters.packets, since: status.time, since_ns: now_ns };
            match self.lines.get_mut(place) {
                None => self.lines.push(heard),
                Some(last) if last.packets != heard.packets => *last = heard,
                Some(last) => {
                    let quiet_ns = status.time.since(last.since).min(now_ns.saturating_sub(last.since_ns));
                    if last.packets > 0 && !line.is_silent && quiet_ns > silence_ns + SLACK_NS {
                        let (name, line) = (&channel.name, line.line);
                        wrong.get_or_insert_with(|| {
                            format!(
                                "line {line:?} of {name} has brought nothing for {} ms, and is not called silent",
                                quiet_ns / MILLISECOND
                            )
                        });
                        // Report it once.
                        *last = heard;
                    }
                }
            }
        }
        wrong
    }
}

/// Returns lines A and B of a channel.
fn lines_of(channel: &ChannelStatus) -> impl Iterator<Item = &LineStatus> {
    channel.lines.iter().filter(|line| matches!(line.line, Line::A | Line::B))
}

/// Returns a followed channel that delivers nothing on any line and is not reported silent. Silence after the end of a session is
/// normal, and silence that begins before a snapshot has arrived is not reported.
fn silent_unsaid(channel: &ChannelStatus) -> Option<String> {
    let mut heard = lines_of(channel).filter(|line| line.counters.packets > 0).peekable();
    let are_lines_silent = heard.peek().is_some() && heard.all(|line| line.is_silent);
    let is_usual = channel.is_joining || channel.next.is_none() || channel.counters.ends_of_session > 0;
    (are_lines_silent && !is_usual && !channel.is_silent)
        .then(|| format!("all lines of {} are silent, and the channel is not called so", channel.name))
}

/// Returns the impossible counters of a channel whose venue still runs.
pub(crate) fn wrong_counts(plan: &Plan, venue: usize, channel: &ChannelStatus) -> Option<String> {
    let (name, counters) = (&channel.name, &channel.counters);
    let is_one_sequence =
        counters.session_changes + counters.sequence_resets + channel.snapshots.applied == 0;
    if let Some(next) = channel.next.filter(|_| is_one_sequence) {
        let counted = counters.messages + counters.missing + 1;
        if counted != next {
            let (messages, missing) = (counters.messages, counters.missing);
            return Some(format!(
                "{name} has counted {messages} messages and {missing} missing ones, and the next is {next}"
            ));
        }
    }
    let (failed, abandoned) = (channel.snapshots.failed, channel.snapshots.given_up);
    if failed < abandoned * u64::from(plan.limits.snapshot_attempts) {
        return Some(format!(
            "{name} has given up {abandoned} snapshots after {failed} failures, and may try each {} times",
            plan.limits.snapshot_attempts
        ));
    }
    let too_long = counters.gaps_of(GapReason::MessageLimit);
    let has_usual_limit = plan.limits.gap_messages == LimitPlan::default().gap_messages;
    if too_long > 0 && has_usual_limit && !plan.faults.iter().any(|fault| damages(fault.what, venue)) {
        return Some(format!(
            "{name} has given up {too_long} gaps as too long, and no venue sends so many messages"
        ));
    }
    let given_up = counters.gaps_of(GapReason::Attempts);
    if given_up > 0 && answers_always(plan, venue) {
        return Some(format!(
            "{name} has given up {given_up} gaps, and the server has answered each request"
        ));
    }
    None
}

/// Returns whether a fault damages packets of a venue, which may then claim messages that do not exist.
fn damages(what: What, place: usize) -> bool {
    matches!(what, What::Line { venue, faults, .. } if venue == place && faults.damages())
}

/// Returns whether every request for existing messages is answered in time: no request or answer is lost, only the lines themselves
/// delay threads, and no damaged packet claims messages that do not exist. Flipped bits in the middle of the journal remove answers
/// from its replay, but leave the timeouts after them.
fn answers_always(plan: &Plan, place: usize) -> bool {
    let patience_ns = u64::from(plan.arbiter.attempts).saturating_mul(plan.arbiter.timeout_ns);
    let answers = plan.venues.get(place).is_some_and(|venue| {
        // Requests over TCP have a limit per second, whatever is lost.
        let is_usual = !venue.requests_by_tcp && venue.silence.is_none();
        // An unreadable answer does not fill a gap.
        let is_readable = venue.nonsense_per_million == 0;
        venue.has_retransmission && venue.answers_lost_per_million == 0 && is_usual && is_readable
    });
    let spoils = |what: What| match what {
        What::Requests { venue, .. } => venue == place,
        What::Clock(_) | What::Disk(_) | What::Rot { is_of_checkpoint: false, .. } => true,
        What::Hang | What::VenuesHang => true,
        _ => damages(what, place),
    };
    answers
        && plan.arbiter.attempts >= 3
        && patience_ns >= 300 * MILLISECOND
        && plan.buffer_bytes >= 1 << 20
        && plan.schedule.preempted_per_million == 0
        && !plan.faults.iter().any(|fault| spoils(fault.what))
}

#[cfg(test)]
mod tests {
    use tapeworks_follow::arbitration::LineCounters;
    use tapeworks_market::Publisher;

    use super::*;

    const START: u64 = 1_763_130_600 * SECOND;
    const SILENCE_NS: u64 = 3 * SECOND;

    /// Returns the status, at `now`, of a plant with one line that has delivered this many packets.
    fn status(now: u64, packets: u64, is_silent: bool) -> Status {
        let line = LineStatus {
            line: Line::A,
            address: Plan::line(0, 0).into(),
            counters: LineCounters { packets, ..LineCounters::default() },
            is_silent,
            kernel_drops: 0,
            too_long: 0,
            buffer_bytes: 0,
            wanted_bytes: 0,
        };
        let channel = ChannelStatus::new("Nasdaq", Publisher::XNAS_ITCH);
        let channel = ChannelStatus { next: Some(2), lines: vec![line], is_silent, ..channel };
        Status { time: Nanos(START + now), channels: vec![channel], ..Status::default() }
    }

    #[test]
    fn a_line_that_brings_nothing_is_called_silent_by_both_clocks() {
        // The time at which the line delivers something, by the plant's clock; that clock later; the true time in between; whether
        // that is too long.
        let cases = [
            (0, 4 * SECOND + 1, 4 * SECOND + 1, true),
            (0, 4 * SECOND, 4 * SECOND, false),
            // The clock had stopped and is right again, or was set forward.
            (0, 4 * SECOND + 1, 2 * SECOND, false),
            (0, 4 * SECOND + 1, 4 * SECOND + 2, true),
            // Ingest waits, or the clock has stopped.
            (0, 0, 9 * SECOND, false),
            // The clock was set back.
            (9 * SECOND, 0, 9 * SECOND, false),
        ];
        for case @ (heard, now, passed_ns, is_wrong) in cases {
            let mut silence = Silence::default();
            assert_eq!(silence.look(&status(heard, 1, false), SECOND, SILENCE_NS), None);
            let found = silence.look(&status(now, 1, false), SECOND + passed_ns, SILENCE_NS);
            assert_eq!(found.is_some(), is_wrong, "{case:?}: {found:?}");
            let mut silence = Silence::default();
            silence.look(&status(heard, 1, false), SECOND, SILENCE_NS);
            assert_eq!(silence.look(&status(now, 1, true), SECOND + passed_ns, SILENCE_NS), None);
            assert_eq!(silence.look(&status(now, 2, false), SECOND + passed_ns, SILENCE_NS), None);
        }
    }

    #[test]
    fn a_channel_all_of_whose_lines_are_silent_is_called_silent() {
        let with = |change: fn(&mut ChannelStatus)| {
            let mut status = status(0, 1, true);
            status.channels.iter_mut().for_each(change);
            let mut silence = Silence::default();
            let found = silence.look(&status, SECOND, SILENCE_NS);
            assert_eq!(silence.look(&status, SECOND, SILENCE_NS), None, "it is said once");
            found.is_some()
        };
        assert!(!with(|_| {}));
        assert!(with(|channel| channel.is_silent = false));
        let usual: [fn(&mut ChannelStatus); 4] = [
            |channel| channel.counters.ends_of_session = 1,
            |channel| channel.is_joining = true,
            |channel| channel.next = None,
            |channel| channel.lines.iter_mut().for_each(|line| line.is_silent = false),
        ];
        for change in usual {
            let mut status = status(0, 1, true);
            status.channels.iter_mut().for_each(|channel| {
                channel.is_silent = false;
                change(channel);
            });
            assert_eq!(Silence::default().look(&status, SECOND, SILENCE_NS), None);
        }
    }
}
