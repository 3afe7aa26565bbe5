//! Describes a plan in words: its faults as labels of bars, its configuration as a summary.

use std::time::Duration;

use tapeworks_plant::{SyncPolicy, Topology};
use tapeworks_venues::{AnswerFaults, SnapshotFaults};

use crate::kernel::disk::DiskFaults;
use crate::kernel::network::{LinkFaults, TcpFaults};
use crate::plan::{ClientPlan, JournalPlan, Plan, VenuePlan};

/// Formats a number with thousands separators.
pub(crate) fn number(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a time with its unit: "1.5 s", "20 ms", "300 ns".
pub(crate) fn time(ns: u64) -> String {
    let (unit_ns, unit) = match ns {
        1_000_000_000.. => (1e9, "s"),
        1_000_000.. => (1e6, "ms"),
        1_000.. => (1e3, "us"),
        _ => (1.0, "ns"),
    };
    let value = format!("{:.3}", ns as f64 / unit_ns);
    format!("{} {unit}", value.trim_end_matches('0').trim_end_matches('.'))
}

/// Formats a rate per million: "10 %", "0.002 %".
fn share(per_million: u32) -> String {
    let value = format!("{:.4}", f64::from(per_million) / 1e4);
    format!("{} %", value.trim_end_matches('0').trim_end_matches('.'))
}

fn bytes(bytes: u64) -> String {
    match bytes {
        0x10_0000.. if bytes.is_multiple_of(0x10_0000) => format!("{} MiB", number(bytes >> 20)),
        0x400.. => format!("{} KiB", number(bytes >> 10)),
        _ => format!("{bytes} bytes"),
    }
}

/// Parts of a sentence. Parts with the number 0 are omitted.
#[derive(Default)]
struct Parts(Vec<String>);

impl Parts {
    fn add(&mut self, is_there: bool, text: impl FnOnce() -> String) {
        if is_there {
            self.0.push(text());
        }
    }

    fn rate(&mut self, text: &str, per_million: u32) {
        self.add(per_million > 0, || format!("{text} {}", share(per_million)));
    }

    fn or(self, otherwise: &str) -> String {
        if self.0.is_empty() { otherwise.to_owned() } else { self.0.join(", ") }
    }
}

/// Describes the network's faults for a line or for requests, except outages.
pub(crate) fn link(faults: &LinkFaults) -> String {
    let mut parts = Parts::default();
    parts.rate("loses", faults.lost_per_million);
    parts.rate("repeats", faults.twice_per_million);
    parts.add(faults.late_per_million > 0, || {
        format!("delays {} by up to {}", share(faults.late_per_million), time(faults.late_ns.into()))
    });
    parts.add(faults.copied_late_per_million > 0, || {
        let (share, late) = (share(faults.copied_late_per_million), time(faults.copied_late_ns));
        format!("copies {share} up to {late} later")
    });
    parts.rate("cuts", faults.cut_per_million);
    parts.rate("garbles", faults.garbled_per_million);
    parts.rate("renames", faults.renamed_per_million);
    parts.rate("misnumbers", faults.misnumbered_per_million);
    parts.rate("pads", faults.padded_per_million);
    let (least, jitter) = (faults.least_ns, faults.jitter_ns);
    parts.add((least, jitter) != (LinkFaults::default().least_ns, 0), || {
        format!("takes {} to {}", time(least.into()), time(u64::from(least) + u64::from(jitter)))
    });
    parts.or("as usual")
}

/// Describes the faults of TCP, except outages.
pub(crate) fn tcp(faults: &TcpFaults) -> String {
    let mut parts = Parts::default();
    parts.rate("resets", faults.reset_per_million);
    parts.add(true, || format!("windows of {}", bytes(faults.window.into())));
    parts.add(true, || format!("pieces of up to {}", bytes(faults.piece.into())));
    let (least, most) =
        (u64::from(faults.least_ns), u64::from(faults.least_ns) + u64::from(faults.jitter_ns));
    parts.add(true, || format!("{} to {} on the way", time(least), time(most)));
    parts.or("")
}

/// Describes the faults of a disk.
pub(crate) fn disk(faults: &DiskFaults) -> String {
    let mut parts = Parts::default();
    parts.rate("writes fail", faults.failed_writes_per_million);
    parts.rate("syncs fail", faults.failed_syncs_per_million);
    parts.rate("reads fail", faults.failed_reads_per_million);
    parts.rate("renames and removals fail", faults.failed_names_per_million);
    parts.add(faults.capacity != u64::MAX, || format!("full at {}", bytes(faults.capacity)));
    let usual = DiskFaults::default();
    parts.add((faults.write_ns, faults.sync_ns) != (usual.write_ns, usual.sync_ns), || {
        let (write, sync) = (time(faults.write_ns.into()), time(faults.sync_ns.into()));
        format!("writes take up to {write}, syncs up to {sync}")
    });
    parts.or("as usual")
}

/// Describes the offset of a clock.
pub(crate) fn ahead(ns: i64) -> String {
    let text = time(ns.unsigned_abs());
    if ns < 0 { format!("{text} behind") } else { format!("{text} ahead") }
}

/// Describes the drift of a clock.
pub(crate) fn drift(gains_ppm: i32) -> String {
    match gains_ppm {
        -1_000_000 => "the clock stands".to_owned(),
        ..0 => format!("the clock loses {}", share(gains_ppm.unsigned_abs())),
        _ => format!("the clock gains {}", share(gains_ppm.unsigned_abs())),
    }
}

fn answers(plan: &AnswerFaults, parts: &mut Parts) {
    parts.add(plan.late_per_million > 0, || {
        format!("answers late {} by up to {}", share(plan.late_per_million), time(plan.late_ns))
    });
    parts.rate("answers in part", plan.partial_per_million);
    parts.rate("answers with more", plan.more_per_million);
    parts.rate("answers with another range", plan.other_range_per_million);
    parts.rate("answers of another session", plan.other_session_per_million);
    parts.rate("answers with random bytes", plan.garbage_per_million);
    parts.rate("answers with unknown types", plan.unreadable_per_million);
    parts.rate("answers sent 64 times", plan.repeated_per_million);
}

fn snapshots(plan: &SnapshotFaults, parts: &mut Parts) {
    parts.rate("snapshots with a number that is too high", plan.ahead_per_million);
    parts.rate("snapshots of another session", plan.other_session_per_million);
    parts.rate("snapshots with unknown types", plan.unreadable_per_million);
    parts.rate("snapshots that never come", plan.silent_per_million);
    parts.rate("snapshots that never end", plan.endless_per_million);
}

/// Describes a venue.
pub(crate) fn venue(plan: &VenuePlan) -> String {
    let mut parts = Parts::default();
    parts.add(true, || if plan.has_line_b { "lines A and B" } else { "line A" }.to_owned());
    let by = if plan.requests_by_tcp { "retransmission, requested over TCP" } else { "retransmission" };
    parts.add(plan.has_retransmission, || by.to_owned());
    parts.add(plan.has_snapshots, || "snapshots".to_owned());
    if plan.has_retransmission {
        parts.rate("loses answers", plan.answers_lost_per_million);
        answers(&plan.answers, &mut parts);
    }
    if plan.has_snapshots {
        snapshots(&plan.snapshots, &mut parts);
    }
    parts.rate("sends nonsense", plan.nonsense_per_million);
    let silence = |text: &str, (after, length_ns): (u64, u64)| {
        format!("{text} after {} messages and {} of silence", number(after), time(length_ns))
    };
    if let Some((after, length_ns)) = plan.silence {
        parts.add(true, || format!("sends nothing for {} after {} messages", time(length_ns), number(after)));
    }
    let restarts: Vec<_> =
        plan.restart_after.iter().filter(|after| **after > 0).map(|after| number(*after)).collect();
    parts.add(!restarts.is_empty(), || format!("new sessions after {} messages", restarts.join(", ")));
    if let Some(reset) = plan.reset {
        parts.add(true, || silence("begins anew", reset));
    }
    parts.add(plan.is_unannounced, || "does not announce restarts".to_owned());
    parts.or("")
}

/// Describes a client.
pub(crate) fn client(plan: &ClientPlan) -> String {
    let mut parts = Parts::default();
    parts.add(plan.pause_ns > 0, || format!("pauses {} after each 1,000 records", time(plan.pause_ns)));
    parts.add(plan.leaves_after > 0, || format!("leaves after {} records", number(plan.leaves_after)));
    parts.add(plan.is_absurd, || "requests what does not exist".to_owned());
    parts.or("reads at once")
}

fn journal(plan: &JournalPlan) -> String {
    let sync = match plan.sync {
        SyncPolicy::Never => "never synced".to_owned(),
        SyncPolicy::Always => "synced always".to_owned(),
        SyncPolicy::Every(every) => format!("synced every {}", time(ns(every))),
    };
    let checkpoints = plan.checkpoint_every.map_or_else(
        || "no checkpoints".to_owned(),
        |every| format!("a checkpoint every {}", time(ns(every))),
    );
    let (segment, queue) = (bytes(plan.segment_bytes), number(plan.queue as u64));
    format!("{sync}, segments of {segment}, a queue of {queue} inputs, {checkpoints}")
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the configuration line by line: names and values.
pub(crate) fn configuration(plan: &Plan) -> Vec<(&'static str, String)> {
    let market = format!(
        "{} messages a second over all venues, {} symbols each, faults for {}",
        number(plan.rate),
        number(plan.symbols.into()),
        time(plan.trouble_ns)
    );
    let topology = match plan.topology {
        Topology::Inline => "inline",
        Topology::Pipeline => "pipeline",
    };
    let plant = format!(
        "topology {topology}, wait {}, a ring of {} events, sockets of {}, {} for a client, starts at {}",
        plan.wait.name(),
        number(plan.ring_events as u64),
        bytes(plan.buffer_bytes as u64),
        bytes(plan.queue_bytes as u64),
        time(plan.plant_starts_ns)
    );
    let arbiter = &plan.arbiter;
    let arbitration = format!(
        "reorder window {}, {} attempts of {}, {} messages a request, {} requests at once, silent after {}",
        time(arbiter.reorder_window_ns),
        arbiter.attempts,
        time(arbiter.timeout_ns),
        number(arbiter.messages_per_request.into()),
        arbiter.requests_in_flight,
        time(arbiter.silence_ns)
    );
    let schedule = format!(
        "preempted {} for up to {}, woken within {}, spin {}",
        share(plan.schedule.preempted_per_million),
        time(plan.schedule.away_ns.into()),
        time(plan.schedule.wake_ns.into()),
        time(plan.schedule.spin_ns.into())
    );
    vec![
        ("market", market),
        ("plant", plant),
        ("journal", plan.journal.as_ref().map_or_else(|| "none".to_owned(), journal)),
        ("arbitration", arbitration),
        ("threads", schedule),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{MILLISECOND, SECOND};

    #[test]
    fn faults_are_readable() {
        assert_eq!(
            (number(1_234_567), time(1_500 * MILLISECOND)),
            ("1,234,567".to_owned(), "1.5 s".to_owned())
        );
        let faults = LinkFaults {
            lost_per_million: 100_000,
            late_per_million: 25,
            late_ns: 3_000_000,
            ..LinkFaults::default()
        };
        assert_eq!(link(&faults), "loses 10 %, delays 0.0025 % by up to 3 ms");
        assert_eq!(ahead(-3_600 * SECOND as i64), "3600 s behind");
        assert_eq!(drift(-1_000_000), "the clock stands");
        let full = DiskFaults { capacity: 100_000, ..DiskFaults::default() };
        assert_eq!(disk(&full), "full at 97 KiB");
    }
}
