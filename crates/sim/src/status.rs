//! What a plant says of itself, compared with what it does.

use tapeworks_feed::arbitration::GapReason;
use tapeworks_market::Nanos;
use tapeworks_plant::{ChannelStatus, Status};

use crate::plan::{LimitPlan, MILLISECOND, Plan, SECOND, What};

/// The status is so old, at most, and timers are so late.
const SLACK_NS: u64 = SECOND;

/// When a line last brought something, by the times of the status.
#[derive(Clone, Copy, Debug)]
struct LastHeard {
    packets: u64,
    since: Nanos,
}

/// Follows a plant's status: a line that brings nothing for the time of silence is called silent.
#[derive(Default, Debug)]
pub(crate) struct Silence {
    lines: Vec<LastHeard>,
}

impl Silence {
    /// Whether the times of a plan's status can be compared: its clock is not set, and no disk makes ingest wait.
    pub(crate) fn can_follow(plan: &Plan) -> bool {
        !plan.faults.iter().any(|fault| matches!(fault.what, What::Clock(_) | What::Disk(_)))
    }

    /// A line that brings nothing and is not called silent.
    pub(crate) fn look(&mut self, status: &Status, silence_ns: u64) -> Option<String> {
        let lines = status.channels.iter().flat_map(|channel| {
            channel
                .lines
                .iter()
                .filter(|line| line.address.ip().is_multicast())
                .map(move |line| (channel, line))
        });
        let mut wrong = None;
        for (place, (channel, line)) in lines.enumerate() {
            let heard = LastHeard { packets: line.counters.packets, since: status.time };
            match self.lines.get_mut(place) {
                None => self.lines.push(heard),
                Some(last) if last.packets != heard.packets => *last = heard,
                Some(last) => {
                    let quiet_ns = status.time.since(last.since);
                    if last.packets > 0 && !line.is_silent && quiet_ns > silence_ns + SLACK_NS {
                        let (name, line) = (&channel.name, line.line);
                        wrong.get_or_insert_with(|| {
                            format!(
                                "line {line:?} of {name} has brought nothing for {} ms, and is not called silent",
                                quiet_ns / MILLISECOND
                            )
                        });
                        // Once is enough.
                        last.since = status.time;
                    }
                }
            }
        }
        wrong
    }
}

/// What a channel's counters say that cannot be, while its venue still runs.
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

/// Whether a fault damages packets of a venue: they may claim messages that there are not.
fn damages(what: What, place: usize) -> bool {
    matches!(what, What::Line { venue, faults, .. } if venue == place && faults.damages())
}

/// Whether each request for messages that there are is answered in time: no request or answer is lost, nothing but the lines themselves
/// makes a thread late, and no damaged packet claims messages that there are not. Bits that turn in the journal's middle take answers out of
/// its replay, and the time-outs behind them stay.
fn answers_always(plan: &Plan, place: usize) -> bool {
    let patience_ns = u64::from(plan.arbiter.attempts).saturating_mul(plan.arbiter.timeout_ns);
    let answers = plan.venues.get(place).is_some_and(|venue| {
        venue.has_retransmission && venue.answers_lost_per_million == 0 && venue.silence.is_none()
    });
    let spoils = |what: What| match what {
        What::Requests { venue, .. } => venue == place,
        What::Clock(_) | What::Disk(_) | What::Rot { is_of_checkpoint: false, .. } => true,
        _ => damages(what, place),
    };
    answers
        && plan.arbiter.attempts >= 3
        && patience_ns >= 300 * MILLISECOND
        && plan.buffer_bytes >= 1 << 20
        && plan.schedule.preempted_per_million == 0
        && !plan.faults.iter().any(|fault| spoils(fault.what))
}
