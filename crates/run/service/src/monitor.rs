//! Notices for the log, derived from the differences between two reports of a plant.

use std::net::SocketAddr;

use tapeworks_follow::arbitration::RecoveryReport;

use tapeworks_feed::live::SnapshotFault;
use tapeworks_outputs::clients::server::Stats;
use tapeworks_time::clock;

use crate::nats::NatsStatus;
use crate::report::Report;
use tapeworks_outputs::aeron::AeronStatus;
use tapeworks_outputs::kafka::KafkaStatus;
use tapeworks_outputs::questdb::QuestDbStatus;
use tapeworks_plant::JournalStatus;
use tapeworks_plant::pair::{PairStatus, Role};
use tapeworks_plant::{ChannelStatus, RequesterStatus, Status};
use tapeworks_runtime::traces::TraceStatus;
use tapeworks_session::requests::RequestStatus;
use tapeworks_time::Nanos;

/// The severity of a notice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Severity {
    /// For information.
    Info,
    /// Data was lost or is stale.
    Warning,
    /// Data is being lost that the plant promises to keep.
    Error,
}

/// A notice for the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Notice {
    /// The severity.
    pub severity: Severity,
    /// The venue or the client's address; may be empty.
    pub subject: String,
    /// The message.
    pub text: String,
}

/// Interval between reports of a failing journal, in ns.
const FAILING_EVERY: u64 = 60 * Nanos::SECOND;

/// Compares consecutive reports.
#[derive(Debug, Default)]
pub struct Monitor {
    before: Option<Report>,
    failing: Option<Failing>,
    clients: Vec<(u64, SocketAddr, String)>,
    /// Sessions of slow clients that have been reported.
    evicted: Vec<u64>,
}

/// A journal that cannot be written.
#[derive(Clone, Copy, Debug)]
struct Failing {
    /// Inputs lost before the failure.
    lost_before: u64,
    /// When the failure was last reported.
    reported: Nanos,
}

/// Reports the changes of a pair.
fn compare_pairs(was: &PairStatus, now: &PairStatus, say: &mut impl FnMut(Severity, String)) {
    if now.takeovers > was.takeovers {
        say(Severity::Warning, format!("took over: this plant is the primary now, epoch {}", now.epoch));
    }
    if now.fed_packets > was.fed_packets {
        say(Severity::Info, format!("fed {} packets that had waited", now.fed_packets - was.fed_packets));
    }
    if now.is_connected != was.is_connected {
        let (severity, text) = match (now.role == Role::Primary, now.is_connected) {
            (true, true) => (Severity::Info, "the standby follows"),
            (true, false) => (Severity::Warning, "the standby is gone"),
            (false, true) => (Severity::Info, "follows the primary"),
            (false, false) => (Severity::Warning, "the primary is gone"),
        };
        // A standby that took over has already reported the change.
        if now.takeovers == was.takeovers {
            say(severity, format!("{text}: the plant at {}", now.peer));
        }
    }
    if now.is_in_step && !was.is_in_step {
        say(Severity::Info, "in step: clients get what the standby has".to_owned());
    }
    if now.went_alone > was.went_alone {
        let text = "goes on alone: the standby is gone or slow, and clients get what it may lack";
        say(Severity::Warning, text.to_owned());
    }
    if now.buffer_drops > was.buffer_drops {
        let drops = now.buffer_drops - was.buffer_drops;
        say(Severity::Warning, format!("{drops} packets of the own lines had no room in the buffer"));
    }
    if let Some(reason) = now.reason.as_ref().filter(|reason| was.reason.as_ref() != Some(reason)) {
        say(Severity::Warning, reason.clone());
    }
}

impl Monitor {
    /// Returns the notices since the last look. The first look covers the time since the journal was replayed.
    pub fn look(&mut self, report: &Report) -> Vec<Notice> {
        let Report { plant: status, clients, questdb, nats, kafka, aeron, traces, .. } = report;
        let mut notices = Vec::new();
        let is_first = self.before.is_none();
        let Report {
            plant: before,
            questdb: rows_before,
            nats: nats_before,
            kafka: kafka_before,
            aeron: aeron_before,
            traces: traces_before,
            ..
        } = self.before.take().unwrap_or_default();
        for (at, channel) in status.channels.iter().enumerate() {
            let mut say = |severity, text: String| {
                notices.push(Notice { severity, subject: channel.name.clone(), text });
            };
            let was = if is_first { status.at_start.get(at).map(as_begun) } else { None };
            compare(was.as_ref().or(before.channels.get(at)), channel, &mut say);
        }
        let unconfirmed = |status: &Status| status.journal.as_ref().map_or(0, |journal| journal.unconfirmed);
        if unconfirmed(status) > unconfirmed(&before) {
            let text =
                format!("the disk failed to sync {} records", unconfirmed(status) - unconfirmed(&before));
            notices.push(Notice { severity: Severity::Error, subject: "journal".to_owned(), text });
        }
        if let Some(now) = &status.journal {
            let was = before.journal.unwrap_or_default();
            self.compare_journal(&was, now, status.time, &mut |severity, text| {
                notices.push(Notice { severity, subject: "journal".to_owned(), text });
            });
        }
        if let (Some(now), was) = (&status.interface, before.interface.unwrap_or_default()) {
            let mut say = |count: u64, text: String| {
                if count > 0 {
                    notices.push(Notice { severity: Severity::Warning, subject: now.device.clone(), text });
                }
            };
            let dropped = now.kernel_drops.saturating_sub(was.kernel_drops);
            say(dropped, format!("the kernel dropped {dropped} frames"));
            let damaged = now.bad_checksums.saturating_sub(was.bad_checksums);
            say(damaged, format!("{damaged} frames are damaged: their UDP checksums do not fit"));
        }
        let mut say_of_memory = |text: String| {
            notices.push(Notice { severity: Severity::Warning, subject: "shared memory".to_owned(), text });
        };
        if status.shared.made_again > before.shared.made_again {
            say_of_memory(
                "its file was removed and made again: readers that had it open must open it again".to_owned(),
            );
        }
        if let (Some(trouble), true) =
            (&status.shared.trouble, status.shared.trouble != before.shared.trouble)
        {
            say_of_memory(format!("new readers do not find it: {trouble}"));
        }
        if status.ring.stalls > before.ring.stalls {
            let text = format!("ingest waited {} times for room", status.ring.stalls - before.ring.stalls);
            notices.push(Notice { severity: Severity::Warning, subject: "ring".to_owned(), text });
        }
        if let Some(now) = &status.pair {
            let was =
                before.pair.clone().unwrap_or_else(|| PairStatus { role: now.role, ..PairStatus::default() });
            compare_pairs(&was, now, &mut |severity, text| {
                notices.push(Notice { severity, subject: "pair".to_owned(), text });
            });
        }
        if let Some(now) = &status.relay {
            let was = before.relay.clone().unwrap_or_default();
            let mut say = |severity, text: String| {
                notices.push(Notice { severity, subject: "source".to_owned(), text });
            };
            if now.has_caught_up && !was.has_caught_up {
                say(
                    Severity::Info,
                    format!("has caught up with the first plant: {} events fetched", now.fetched),
                );
            }
            if now.gaps > was.gaps {
                let gaps = now.gaps - was.gaps;
                say(Severity::Warning, format!("events were missing, {gaps} times: they are fetched again"));
            }
            if let Some(error) = now.error.as_ref().filter(|error| was.error.as_ref() != Some(error)) {
                say(Severity::Warning, error.clone());
            }
        }
        let snapshots = (&status.checkpoints, &before.checkpoints);
        for refused in snapshots.0.refused.iter().skip(snapshots.1.refused.len()) {
            let text = format!("a checkpoint is not used: {refused}");
            notices.push(Notice { severity: Severity::Warning, subject: "journal".to_owned(), text });
        }
        if let (Some(why), true) = (&snapshots.0.error, snapshots.0.error != snapshots.1.error) {
            let text = format!("the state could not be written: {why}");
            notices.push(Notice { severity: Severity::Error, subject: "journal".to_owned(), text });
        }
        for day in status.roll.done.iter().skip(before.roll.done.len()) {
            let (severity, text) = match &day.outcome {
                Ok((files, records)) => {
                    let rolled =
                        format!("the journal of {} is rolled: {files} files, {records} records", day.date);
                    match day.from {
                        None => (Severity::Info, rolled),
                        Some(from) => {
                            let from = clock::iso(from);
                            (
                                Severity::Warning,
                                format!("{rolled}; earlier records were removed: they begin at {from}"),
                            )
                        }
                    }
                }
                Err(why) => {
                    (Severity::Error, format!("the journal of {} could not be rolled: {why}", day.date))
                }
            };
            notices.push(Notice { severity, subject: "roll".to_owned(), text });
        }
        if let Some(now) = questdb {
            let was = rows_before.unwrap_or_default();
            compare_questdb(&was, now, &mut |severity, text| {
                notices.push(Notice { severity, subject: "questdb".to_owned(), text });
            });
        }
        if let Some(now) = nats {
            compare_nats(&nats_before.unwrap_or_default(), now, &mut |severity, text| {
                notices.push(Notice { severity, subject: "nats".to_owned(), text });
            });
        }
        if let Some(now) = kafka {
            compare_kafka(&kafka_before.unwrap_or_default(), now, &mut |severity, text| {
                notices.push(Notice { severity, subject: "kafka".to_owned(), text });
            });
        }
        if let Some(now) = traces {
            let was = traces_before.unwrap_or_default();
            compare_traces(&was, now, &mut |severity, text| {
                notices.push(Notice { severity, subject: "otel".to_owned(), text });
            });
        }
        if let Some(now) = aeron {
            compare_aeron(&aeron_before.unwrap_or_default(), now, &mut |severity, text| {
                notices.push(Notice { severity, subject: "aeron".to_owned(), text });
            });
        }
        if let Some(clients) = clients {
            self.compare_clients(clients, &mut notices);
        }
        self.before = Some(report.clone());
        notices
    }

    /// Reports a failing journal when it first fails, once a minute while it fails, and when it can be written again.
    fn compare_journal(
        &mut self,
        was: &JournalStatus,
        now: &JournalStatus,
        time: Nanos,
        say: &mut dyn FnMut(Severity, String),
    ) {
        if now.torn_bytes > was.torn_bytes {
            let text = format!(
                "{} bytes of a torn record at the end are cut off and kept in a file",
                now.torn_bytes
            );
            say(Severity::Warning, text);
        }
        if now.damaged > was.damaged {
            let text = format!("{} records are damaged: their changes are lost", now.damaged);
            say(Severity::Error, text);
        }
        let why = now.error.as_deref().unwrap_or("the disk fails");
        if now.is_failing || now.lost > was.lost {
            let failing = self.failing.get_or_insert(Failing { lost_before: was.lost, reported: Nanos(0) });
            let lost = now.lost - failing.lost_before.min(now.lost);
            if failing.reported == Nanos(0) {
                say(Severity::Error, format!("it cannot be written and loses inputs: {why}"));
                failing.reported = time;
            } else if time.since(failing.reported) >= FAILING_EVERY {
                say(Severity::Error, format!("it still cannot be written, {lost} inputs are lost: {why}"));
                failing.reported = time;
            }
        }
        if !now.is_failing
            && let Some(failing) = self.failing.take()
        {
            let lost = now.lost - failing.lost_before.min(now.lost);
            say(Severity::Warning, format!("it is written again, {lost} inputs were lost"));
        }
    }

    fn compare_clients(&mut self, stats: &Stats, notices: &mut Vec<Notice>) {
        let known: Vec<(u64, SocketAddr, String)> = stats
            .clients
            .iter()
            .filter(|client| !client.key.is_empty())
            .map(|client| (client.session, client.address, client.key.clone()))
            .collect();
        for evicted in stats.evicted.iter().filter(|evicted| !self.evicted.contains(&evicted.session)) {
            notices.push(Notice {
                severity: Severity::Warning,
                subject: evicted.address.to_string(),
                text: format!("client evicted: {}", evicted.reason),
            });
        }
        self.evicted = stats.evicted.iter().map(|evicted| evicted.session).collect();
        let mut say = |(_, address, key): &(u64, SocketAddr, String), text: &str| {
            notices.push(Notice {
                severity: Severity::Info,
                subject: address.to_string(),
                text: format!("{text} (key '{key}')"),
            });
        };
        known
            .iter()
            .filter(|client| !self.clients.contains(client))
            .for_each(|client| say(client, "client came"));
        self.clients
            .iter()
            .filter(|client| !known.contains(client) && !self.evicted.contains(&client.0))
            .for_each(|client| say(client, "client left"));
        self.clients = known;
    }
}

/// Returns a channel's status after the journal's replay, with its counters but before the first packet.
fn as_begun(at_start: &ChannelStatus) -> ChannelStatus {
    let mut was = at_start.clone();
    (was.session, was.is_silent, was.is_joining) = (String::new(), false, false);
    // Report the buffer sizes that the kernel granted as changes.
    was.lines
        .iter_mut()
        .for_each(|line| (line.is_silent, line.kernel_drops, line.buffer_bytes) = (false, 0, 0));
    was
}

/// Describes the result of a long recovery, and the number of other recoveries since the last look.
fn recovery_text(report: &RecoveryReport, others: u64) -> String {
    let RecoveryReport { first, end, recovered, requests, is_complete, .. } = *report;
    let took = report.duration_ns() as f64 / 1e9;
    let missing = end.saturating_sub(first);
    let outcome = if is_complete { "filled" } else { "given up" };
    let messages = |count: u64| format!("{count} {}", if count == 1 { "message" } else { "messages" });
    let mut text = format!(
        "a sequence gap of {} from number {first} on is {outcome} after {took:.3} s: {} recovered by {requests} requests",
        messages(missing),
        messages(recovered)
    );
    if others > 0 {
        text.push_str(&format!("; {others} more such recoveries"));
    }
    text
}

fn compare(before: Option<&ChannelStatus>, now: &ChannelStatus, say: &mut impl FnMut(Severity, String)) {
    let (was, had_session) = match before {
        Some(was) => (was.clone(), was.session.clone()),
        None => (
            ChannelStatus {
                session: String::new(),
                counters: Default::default(),
                snapshots: Default::default(),
                requester: None,
                lines: Vec::new(),
                is_silent: false,
                is_joining: false,
                ..now.clone()
            },
            String::new(),
        ),
    };
    if now.session != had_session && !now.session.is_empty() {
        say(Severity::Info, format!("session {} begins", now.session));
    }
    let counters = &now.counters;
    if counters.long_recoveries > was.counters.long_recoveries
        && let Some(last) = &now.last_recovery
    {
        let others = counters.long_recoveries - was.counters.long_recoveries - 1;
        say(Severity::Info, recovery_text(last, others));
    }
    if counters.too_long > was.counters.too_long {
        let text = "a sequence gap is longer than `limit_messages` and is not requested".to_owned();
        say(Severity::Warning, text);
    }
    if counters.gaps > was.counters.gaps {
        let missing = counters.missing - was.counters.missing;
        say(Severity::Warning, format!("messages missing for good: {missing}"));
    }
    if counters.sequence_resets > was.counters.sequence_resets {
        say(Severity::Warning, "the sequence numbers began anew".to_owned());
    }
    if counters.ends_of_session > was.counters.ends_of_session {
        say(Severity::Info, "the session ended".to_owned());
    }
    compare_requester(was.requester.as_ref(), now.requester.as_ref(), say);
    if now.snapshots.applied > was.snapshots.applied {
        say(
            Severity::Info,
            format!("the books are those of a snapshot of {} messages", now.snapshots.messages),
        );
    }
    if now.snapshots.failed > was.snapshots.failed {
        let fault = now.snapshots.last_fault.unwrap_or(SnapshotFault::Unknown);
        say(Severity::Warning, format!("a snapshot failed: {fault}"));
    }
    if now.is_silent && !was.is_silent {
        say(Severity::Warning, "no packets".to_owned());
    }
    if was.is_silent && !now.is_silent {
        say(Severity::Info, "packets again".to_owned());
    }
    for (at, line) in now.lines.iter().enumerate() {
        let before = was.lines.get(at);
        if before.is_none_or(|line| line.buffer_bytes == 0) && line.buffer_bytes / 2 < line.wanted_bytes {
            let megabytes = |bytes: usize| bytes as f64 / 1_048_576.0;
            let text = format!(
                "the kernel's receive buffer of {} has {:.1} MB where {:.1} are wanted: net.core.rmem_max allows no more without \
                 CAP_NET_ADMIN",
                line.address,
                megabytes(line.buffer_bytes / 2),
                megabytes(line.wanted_bytes)
            );
            say(Severity::Warning, text);
        }
        let dropped = line.kernel_drops - before.map_or(0, |line| line.kernel_drops).min(line.kernel_drops);
        if dropped > 0 {
            say(Severity::Warning, format!("the kernel dropped {dropped} packets of {}", line.address));
        }
        if line.is_silent && !before.is_some_and(|line| line.is_silent) && !now.is_silent {
            say(Severity::Warning, format!("line {} is silent", line.address));
        }
        let malformed = line.counters.malformed - before.map_or(0, |line| line.counters.malformed);
        if malformed > 0 {
            say(Severity::Warning, format!("{malformed} packets of {} cannot be read", line.address));
        }
    }
}

/// Reports the changes of the connection to a request server.
fn compare_requester(
    was: Option<&RequesterStatus>,
    now: Option<&RequesterStatus>,
    say: &mut impl FnMut(Severity, String),
) {
    let Some(now) = now else { return };
    let was = was.copied().unwrap_or_default();
    if now.is_ready && !was.is_ready {
        say(Severity::Info, "the request server is connected".to_owned());
    }
    // An unreachable server is reported once for each reason, not on every attempt.
    let is_new = was.is_ready || now.counters.last_end != was.counters.last_end;
    if let (Some(end), true) = (now.counters.last_end, is_new && now.counters.ends > was.counters.ends) {
        say(Severity::Warning, format!("the connection to the request server ended: {end}"));
    }
    for status in RequestStatus::ALL.into_iter().filter(|status| *status != RequestStatus::Accepted) {
        let refused = now.counters.of(status).saturating_sub(was.counters.of(status));
        if refused > 0 {
            let requests = if refused == 1 { "request" } else { "requests" };
            let why = status.as_str();
            say(Severity::Warning, format!("the request server refused {refused} {requests}: {why}"));
        }
    }
}

/// Reports the changes of the QuestDB output. Of consecutive reports with dropped rows, only the first causes a notice.
fn compare_questdb(was: &QuestDbStatus, now: &QuestDbStatus, say: &mut dyn FnMut(Severity, String)) {
    let why = now.error.as_deref().unwrap_or("it does not say why");
    let is_away = !now.is_connected && now.failures > 0;
    if now.is_connected && !was.is_connected {
        say(Severity::Info, "the server takes rows".to_owned());
    } else if is_away && (was.is_connected || was.failures == 0) {
        say(Severity::Warning, format!("the server takes no rows: {why}"));
    }
    if now.overflowed > 0 && was.overflowed == 0 {
        let after = if now.lost > 0 { "they are lost" } else { "they will be sent from the journal" };
        say(Severity::Warning, format!("rows find no room in the queue: {after}"));
    }
    if now.refused > was.refused {
        say(Severity::Error, format!("rows refused: {}: {why}", now.refused - was.refused));
    }
    if now.unreadable > was.unreadable {
        say(Severity::Error, format!("rows cannot be sent from the journal: {why}"));
    }
    if now.sent_again > was.sent_again {
        say(Severity::Info, "the rows from the journal are sent".to_owned());
    }
}

/// Reports the changes of the NATS output. Of consecutive reports with dropped trades, only the first causes a notice.
fn compare_nats(was: &NatsStatus, now: &NatsStatus, say: &mut dyn FnMut(Severity, String)) {
    let why = now.error.as_deref().unwrap_or("it does not say why");
    if now.is_connected && !was.is_connected {
        say(Severity::Info, "there is a connection to a server".to_owned());
    } else if !now.is_connected && now.failures > 0 && (was.is_connected || was.failures == 0) {
        say(Severity::Warning, format!("there is no connection: {why}"));
    }
    if now.is_storing && !was.is_storing {
        say(Severity::Info, "JetStream keeps the last NBBOs".to_owned());
    } else if now.store_failures > 0 && was.store_failures == 0 {
        say(Severity::Warning, format!("NBBOs are not kept: {why}"));
    }
    if now.dropped_trades > 0 && was.dropped_trades == 0 {
        say(Severity::Warning, "trades find no room in the queue: they are dropped".to_owned());
    }
    if now.unconfirmed > was.unconfirmed {
        let count = now.unconfirmed - was.unconfirmed;
        say(Severity::Warning, format!("the connection broke before {count} records were confirmed"));
    }
    if now.refused > 0 && was.refused == 0 {
        say(Severity::Error, format!("the server sends errors: {why}"));
    }
}

/// Reports the changes of the export of traces. Only the first dropped traces cause a notice.
pub fn compare_traces(was: &TraceStatus, now: &TraceStatus, say: &mut dyn FnMut(Severity, String)) {
    let why = now.error.as_deref().unwrap_or("it does not say why");
    if now.is_connected && !was.is_connected {
        say(Severity::Info, "the collector takes traces".to_owned());
    } else if !now.is_connected && now.failures > was.failures && (was.is_connected || was.failures == 0) {
        say(Severity::Warning, format!("no traces are exported: {why}"));
    }
    if now.dropped > 0 && was.dropped == 0 {
        say(Severity::Warning, "traces find no room in the queue: they are dropped".to_owned());
    }
    if now.refused_spans > 0 && was.refused_spans == 0 {
        say(Severity::Warning, format!("the collector refuses spans: {why}"));
    }
}

/// Reports the changes of the Aeron output.
fn compare_aeron(was: &AeronStatus, now: &AeronStatus, say: &mut dyn FnMut(Severity, String)) {
    if now.is_connected && !was.is_connected {
        say(Severity::Info, "the media driver takes messages".to_owned());
    } else if let Some(why) = now.error.as_ref().filter(|_| !now.is_connected)
        && (was.is_connected || was.error.is_none())
    {
        say(Severity::Warning, format!("nothing is published: {why}"));
    }
    // Readers fetch dropped messages; the counters include all of them.
    if now.dropped() > 0 && was.dropped() == 0 {
        let (slow, full) = (now.dropped_slow, now.dropped_full);
        let text = format!(
            "messages are dropped: {slow} events and records for slow readers, {full} as the queue was full"
        );
        say(Severity::Warning, text);
    }
}

/// Reports the changes of the Kafka output.
fn compare_kafka(was: &KafkaStatus, now: &KafkaStatus, say: &mut dyn FnMut(Severity, String)) {
    if now.is_connected && !was.is_connected {
        let from = now.position.unwrap_or_default();
        say(Severity::Info, format!("the brokers take records, from event {from} on"));
    } else if let Some(why) = now.error.as_ref().filter(|_| !now.is_connected)
        && (was.is_connected || was.error.is_none())
    {
        say(Severity::Warning, format!("the brokers take no records: {why}"));
    }
    if now.lost_events > was.lost_events {
        let lost = now.lost_events - was.lost_events;
        say(Severity::Error, format!("the journal no longer has {lost} events whose records were not sent"));
    }
}

#[cfg(test)]
mod tests {
    use tapeworks_market::{Line, Publisher};
    use tapeworks_plant::{LineStatus, RolledDay};
    use tapeworks_session::requests::RequesterEnd;
    use tapeworks_time::Nanos;

    use super::*;

    fn channel() -> ChannelStatus {
        ChannelStatus {
            session: "S1".to_owned(),
            next: Some(7),
            ..ChannelStatus::new("Nasdaq", Publisher::XNAS_ITCH)
        }
    }

    #[test]
    fn the_media_driver_of_aeron_and_drops_are_noticed_once() {
        let mut monitor = Monitor::default();
        let mut look = |aeron: AeronStatus| {
            let report = Report { aeron: Some(aeron), ..Report::default() };
            let notices = monitor.look(&report);
            notices.into_iter().map(|notice| (notice.severity, notice.text)).collect::<Vec<_>>()
        };
        let away = AeronStatus { error: Some("no driver".to_owned()), ..Default::default() };
        assert_eq!(look(AeronStatus::default()), []);
        assert_eq!(look(away.clone()), [(Severity::Warning, "nothing is published: no driver".to_owned())]);
        assert_eq!(look(AeronStatus { failures: 2, ..away }), []);
        let is_there = AeronStatus { is_connected: true, dropped_slow: 3, ..Default::default() };
        let texts: Vec<String> = look(is_there.clone()).into_iter().map(|(_, text)| text).collect();
        let drops = "messages are dropped: 3 events and records for slow readers, 0 as the queue was full";
        assert_eq!(texts, ["the media driver takes messages", drops]);
        assert_eq!(look(is_there), []);
    }

    #[test]
    fn the_connection_to_kafka_and_lost_events_are_noticed_once() {
        let mut monitor = Monitor::default();
        let mut look = |kafka: KafkaStatus| {
            let report = Report { kafka: Some(kafka), ..Report::default() };
            let notices = monitor.look(&report);
            notices.into_iter().map(|notice| (notice.severity, notice.text)).collect::<Vec<_>>()
        };
        let away = KafkaStatus { error: Some("refused".to_owned()), ..Default::default() };
        assert_eq!(look(KafkaStatus::default()), []);
        let noticed = (Severity::Warning, "the brokers take no records: refused".to_owned());
        assert_eq!(look(away.clone()), [noticed]);
        assert_eq!(look(KafkaStatus { failures: 2, ..away }), []);
        let is_there =
            KafkaStatus { is_connected: true, position: Some(7), lost_events: 3, ..Default::default() };
        let texts: Vec<String> = look(is_there.clone()).into_iter().map(|(_, text)| text).collect();
        assert_eq!(
            texts,
            [
                "the brokers take records, from event 7 on",
                "the journal no longer has 3 events whose records were not sent"
            ]
        );
        assert_eq!(look(is_there), []);
    }

    #[test]
    fn the_connection_to_nats_and_each_kind_of_loss_are_noticed_once() {
        let mut monitor = Monitor::default();
        let mut look = |nats: NatsStatus| {
            let report = Report { nats: Some(nats), ..Report::default() };
            let notices = monitor.look(&report);
            notices.into_iter().map(|notice| (notice.severity, notice.text)).collect::<Vec<_>>()
        };
        let away = NatsStatus { failures: 1, error: Some("refused".to_owned()), ..Default::default() };
        assert_eq!(look(away.clone()), [(Severity::Warning, "there is no connection: refused".to_owned())]);
        assert_eq!(look(NatsStatus { failures: 2, ..away.clone() }), []);
        let is_there = NatsStatus { is_connected: true, is_storing: true, failures: 2, ..Default::default() };
        assert_eq!(look(is_there.clone()).len(), 2, "connection and JetStream");
        let lossy =
            NatsStatus { dropped_trades: 3, unconfirmed: 2, refused: 1, store_failures: 1, ..is_there };
        let noticed = [
            (Severity::Warning, "NBBOs are not kept: it does not say why"),
            (Severity::Warning, "trades find no room in the queue: they are dropped"),
            (Severity::Warning, "the connection broke before 2 records were confirmed"),
            (Severity::Error, "the server sends errors: it does not say why"),
        ];
        assert_eq!(look(lossy.clone()), noticed.map(|(severity, text)| (severity, text.to_owned())));
        assert_eq!(look(NatsStatus { dropped_trades: 9, refused: 2, ..lossy }), []);
    }

    #[test]
    fn notices_from_before_a_restart_are_not_repeated() {
        let plant = Status { channels: vec![channel()], ..Status::default() };
        let mut report = Report { plant, ..Report::default() };
        report.plant.channels[0].counters.gaps = 3;
        report.plant.channels[0].counters.missing = 30;
        report.plant.channels[0].snapshots.failed = 2;
        report.plant.at_start = report.plant.channels.clone();
        // Something happens before the first look.
        report.plant.channels[0].counters.missing = 31;
        report.plant.channels[0].counters.gaps = 4;
        let notices = Monitor::default().look(&report);
        let notices: Vec<&str> = notices.iter().map(|notice| notice.text.as_str()).collect();
        assert_eq!(notices, ["session S1 begins", "messages missing for good: 1"]);
    }

    #[test]
    fn changes_of_the_connection_to_a_request_server_are_reported_once() {
        let mut monitor = Monitor::default();
        let plant = Status { channels: vec![channel()], ..Status::default() };
        let mut report = Report { plant, ..Report::default() };
        let mut texts =
            |report: &Report| monitor.look(report).into_iter().map(|notice| notice.text).collect::<Vec<_>>();
        let mut requester = RequesterStatus::default();
        let refused = "the connection to the request server ended: the server refused the login";
        (requester.counters.ends, requester.counters.last_end) = (1, Some(RequesterEnd::Refused));
        report.plant.channels[0].requester = Some(requester);
        assert_eq!(texts(&report), ["session S1 begins", refused]);
        requester.counters.ends = 2;
        report.plant.channels[0].requester = Some(requester);
        assert_eq!(texts(&report), Vec::<String>::new(), "the same reason again");
        requester.is_ready = true;
        report.plant.channels[0].requester = Some(requester);
        assert_eq!(texts(&report), ["the request server is connected"]);
        requester.counters.responses[RequestStatus::OutOfRange as usize] = 2;
        requester.is_ready = false;
        (requester.counters.ends, requester.counters.last_end) = (3, Some(RequesterEnd::Closed));
        report.plant.channels[0].requester = Some(requester);
        let closed = "the connection to the request server ended: the server closed the connection";
        assert_eq!(texts(&report), [closed, "the request server refused 2 requests: out_of_range"]);
        assert_eq!(texts(&report), Vec::<String>::new());
    }

    #[test]
    fn each_change_is_reported_once() {
        let mut monitor = Monitor::default();
        let plant = Status { channels: vec![channel()], ..Status::default() };
        let mut report = Report { plant, ..Report::default() };
        let texts = |notices: Vec<Notice>| notices.into_iter().map(|notice| notice.text).collect::<Vec<_>>();
        assert_eq!(texts(monitor.look(&report)), ["session S1 begins"]);
        assert_eq!(monitor.look(&report), []);
        report.plant.channels[0].counters.gaps = 1;
        report.plant.channels[0].counters.missing = 12;
        report.plant.channels[0].is_silent = true;
        report.plant.ring.stalls = 2;
        let notices = texts(monitor.look(&report));
        let expected = ["messages missing for good: 12", "no packets", "ingest waited 2 times for room"];
        assert_eq!(notices, expected);
        assert_eq!(monitor.look(&report), []);
        report.plant.channels[0].is_silent = false;
        assert_eq!(texts(monitor.look(&report)), ["packets again"]);
        let line = |port, buffer_bytes| LineStatus {
            line: Line::A,
            address: SocketAddr::from(([239, 1, 1, 1], port)),
            counters: Default::default(),
            is_silent: false,
            kernel_drops: 0,
            too_long: 0,
            buffer_bytes,
            wanted_bytes: 16 << 20,
        };
        report.plant.channels[0].lines = vec![line(1, 32 << 20), line(2, 416 << 10)];
        let small = ["the kernel's receive buffer of 239.1.1.1:2 has 0.2 MB where 16.0 are wanted: \
                      net.core.rmem_max allows no more without CAP_NET_ADMIN"];
        assert_eq!(texts(monitor.look(&report)), small);
        assert_eq!(monitor.look(&report), []);
        report.plant.channels[0].counters.long_recoveries = 3;
        report.plant.channels[0].last_recovery = Some(RecoveryReport {
            first: 7,
            end: 1_000_007,
            began: Nanos(1_000_000_000),
            ended: Nanos(2_750_000_000),
            recovered: 1_000_000,
            requests: 25_000,
            is_complete: true,
        });
        let recovered = [
            "a sequence gap of 1000000 messages from number 7 on is filled after 1.750 s: 1000000 messages recovered by 25000 \
             requests; 2 more such recoveries",
        ];
        assert_eq!(texts(monitor.look(&report)), recovered);
        assert_eq!(monitor.look(&report), []);
        report.plant.checkpoints.refused = vec!["7.snapshot: it is damaged".to_owned()];
        report.plant.checkpoints.error = Some("the disk is full".to_owned());
        let expected = [
            "a checkpoint is not used: 7.snapshot: it is damaged",
            "the state could not be written: the disk is full",
        ];
        assert_eq!(texts(monitor.look(&report)), expected);
        assert_eq!(monitor.look(&report), []);
        let failing = |lost, is_failing| JournalStatus {
            lost,
            is_failing,
            error: Some("the disk is full".to_owned()),
            ..Default::default()
        };
        let mut notices = Vec::new();
        // Look every 200 ms for two and a half minutes, then the disk has room again.
        for look in 0..900u64 {
            report.plant.time = Nanos(1_763_130_600_000_000_000 + look * 200_000_000);
            report.plant.journal = Some(failing(4 + look.min(750), look < 750));
            notices.extend(texts(monitor.look(&report)));
        }
        let expected = [
            "it cannot be written and loses inputs: the disk is full",
            "it still cannot be written, 304 inputs are lost: the disk is full",
            "it still cannot be written, 604 inputs are lost: the disk is full",
            "it is written again, 754 inputs were lost",
        ];
        assert_eq!(notices, expected);
        let questdb = QuestDbStatus { failures: 1, error: Some("refused".to_owned()), ..Default::default() };
        report.questdb = Some(questdb.clone());
        assert_eq!(texts(monitor.look(&report)), ["the server takes no rows: refused"]);
        report.questdb = Some(QuestDbStatus { failures: 2, overflowed: 9, ..questdb.clone() });
        let overflow = ["rows find no room in the queue: they will be sent from the journal"];
        assert_eq!(texts(monitor.look(&report)), overflow);
        assert_eq!(monitor.look(&report), []);
        let is_back =
            QuestDbStatus { is_connected: true, overflowed: 12, refused: 3, sent_again: 1, ..questdb };
        report.questdb = Some(is_back);
        let back =
            ["the server takes rows", "rows refused: 3: refused", "the rows from the journal are sent"];
        assert_eq!(texts(monitor.look(&report)), back);
        let days = [
            (Ok((2, 30)), None),
            (Err("the disk is full".to_owned()), None),
            (Ok((2, 9)), Some(Nanos(1_763_130_600_000_000_000))),
        ];
        for (outcome, from) in days {
            report.plant.roll.done.push(RolledDay { date: jiff::civil::date(2025, 11, 14), outcome, from });
        }
        let expected = [
            "the journal of 2025-11-14 is rolled: 2 files, 30 records",
            "the journal of 2025-11-14 could not be rolled: the disk is full",
            "the journal of 2025-11-14 is rolled: 2 files, 9 records; earlier records were removed: they begin at \
             2025-11-14T14:30:00.000000000Z",
        ];
        assert_eq!(texts(monitor.look(&report)), expected);
        assert_eq!(monitor.look(&report), []);
    }
}
