//! All counters of a plant, in Prometheus' text format (version 0.0.4).
//!
//! Names contain the unit: seconds, bytes, or the thing counted. A client's labels are its key and the number of its session,
//! never the name that the client chose.

use tapeworks_feed::live::{SnapshotCounters, SnapshotFault};
use tapeworks_follow::arbitration::{ArbiterCounters, GapReason, LineCounters};

use super::describe::Look;
use super::files;
use super::prometheus::{self, Kind, Text, seconds};
use crate::describe::{feed_name, line_name, multicast_messages};
use crate::nats::NatsStatus;
use tapeworks_outputs::aeron::AeronStatus;
use tapeworks_outputs::clients::control::Reason;
use tapeworks_outputs::clients::distributor::{ClientView, Counters};
use tapeworks_outputs::clients::server::Stats;
use tapeworks_outputs::kafka::KafkaStatus;
use tapeworks_outputs::multicast::server::MulticastStats;
use tapeworks_outputs::questdb::QuestDbStatus;
use tapeworks_plant::pair::Role;
use tapeworks_plant::{
    ChannelStatus, CheckpointStatus, Condition, DELAY_BOUNDS, InterfaceStatus, LineStatus, PairStatus,
    RelayStatus, RequesterStatus, Status,
};
use tapeworks_session::requests::RequestStatus;

/// Returns all metrics.
pub(super) fn text(look: &Look) -> String {
    let mut text = Text { out: String::with_capacity(16 << 10) };
    plant(&mut text, look);
    delays(&mut text, &look.report.plant);
    if let Some(stats) = &look.report.multicast {
        multicast(&mut text, stats);
    }
    if let Some(status) = &look.report.questdb {
        questdb(&mut text, status);
    }
    if let Some(status) = &look.report.nats {
        nats(&mut text, status);
    }
    if let Some(status) = &look.report.traces {
        prometheus::traces(&mut text, status);
    }
    if let Some(status) = &look.report.aeron {
        aeron(&mut text, status);
    }
    if let Some(status) = &look.report.kafka {
        kafka(&mut text, status);
    }
    channels(&mut text, &look.report.plant.channels);
    lines(&mut text, &look.report.plant.channels);
    if let Some(status) = &look.report.plant.interface {
        interface(&mut text, status);
    }
    if let Some(stats) = &look.report.clients {
        clients(&mut text, stats);
    }
    text.one("web_viewers", Kind::Gauge, "Pages connected", look.viewers);
    for (name, help, count) in &look.web {
        text.one(&format!("web_{name}_total"), Kind::Counter, help, count);
    }
    files::metrics(&mut text, &look.files);
    text.out
}

fn plant(text: &mut Text, look: &Look) {
    use Kind::{Counter, Gauge};
    let status = &look.report.plant;
    text.family("build_info", Gauge, "The version that runs, as a label");
    text.sample("build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
    let since = "When the plant started, in seconds since the epoch";
    text.one("start_time_seconds", Gauge, since, seconds(status.started.0));
    let reported = "When the plant last wrote its status, in seconds since the epoch";
    text.one("status_time_seconds", Gauge, reported, seconds(status.time.0));
    let conditions = look.conditions();
    let ready = u8::from(conditions.iter().all(Condition::is_met));
    text.one("ready", Gauge, "1 when every condition of readiness is met", ready);
    text.family("ready_condition", Gauge, "1 when the condition of readiness is met");
    for condition in &conditions {
        text.sample("ready_condition", &[("condition", condition.name)], u8::from(condition.is_met()));
    }
    text.one("messages_total", Counter, "Messages published", status.engine.messages);
    text.one("events_total", Counter, "Events published", status.engine.events);
    text.one("symbols", Gauge, "Symbols known", status.engine.symbols);
    let problems = "Messages and packets that cannot be read";
    text.one("problems_total", Counter, problems, status.engine.problems);
    text.one("book_orders", Gauge, "Orders that rest in the books of all feeds", status.books.orders);
    let bytes = "Bytes that the tables of the books hold, which double when they are full";
    text.one("book_bytes", Gauge, bytes, status.books.bytes);
    let rejected = "Changes that the books refused, such as of unknown orders";
    text.one("book_rejections_total", Counter, rejected, status.books.rejected);
    let contradicted =
        "Books that messages of their venues contradict: stale until a snapshot or a new session";
    text.one("contradicted_books", Gauge, contradicted, status.books.contradicted);
    text.one("shared_items_total", Counter, "Items published to the shared memory", status.shared.published);
    let again = "Times that the file of the shared memory was removed and made again";
    text.one("shared_made_again_total", Counter, again, status.shared.made_again);
    let fill = "Events in the ring that the slowest reader has not taken";
    text.one("ring_fill_events", Gauge, fill, status.ring.fill);
    text.one("ring_capacity_events", Gauge, "Slots of the ring", status.ring.capacity);
    text.one("ring_highest_events", Gauge, "The highest fill of the ring seen", status.ring.highest);
    let stalls = "Times that ingest waited for room in the ring or in the journal's queue";
    text.one("ring_stalls_total", Counter, stalls, status.ring.stalls);
    text.one("nbbo_changes_total", Counter, "Changes of the synthetic NBBO", status.books.nbbo.changes);
    let locked = "Changes of the synthetic NBBO after which it was locked";
    text.one("nbbo_locked_total", Counter, locked, status.books.nbbo.locked);
    let crossed = "Changes of the synthetic NBBO after which it was crossed";
    text.one("nbbo_crossed_total", Counter, crossed, status.books.nbbo.crossed);
    if let Some(journal) = &status.journal {
        text.one("journal_records_total", Counter, "The number of the journal's next record", journal.next);
        let written = "Bytes written to the journal since the start";
        text.one("journal_written_bytes_total", Counter, written, journal.written_bytes);
        let lost = "Inputs that could not be journaled";
        text.one("journal_lost_total", Counter, lost, journal.lost);
        let unconfirmed = "Records of the journal that are unconfirmed: the disk failed to sync them";
        text.one("journal_unconfirmed_total", Counter, unconfirmed, journal.unconfirmed);
        let failed = "Segments that were too many and could not be removed";
        text.one("journal_failed_removals_total", Counter, failed, journal.failed_removals);
        let removed = "Segments removed as the journal was too long";
        text.one("journal_removed_segments_total", Counter, removed, journal.removed_segments);
        let damaged = "Records of the journal that were found damaged or missing at the start";
        text.one("journal_damaged_total", Counter, damaged, journal.damaged);
        let torn = "Bytes of a torn record that were cut off the journal at the start and kept in a file";
        text.one("journal_torn_bytes_total", Counter, torn, journal.torn_bytes);
        let healthy = u8::from(!journal.is_failing);
        text.one(
            "journal_healthy",
            Gauge,
            "1 while the journal writes all inputs, 0 while it loses some",
            healthy,
        );
        let failing = u8::from(journal.error.is_some());
        text.one("journal_failed", Gauge, "1 after an error of the journal", failing);
    }
    snapshots(text, &status.checkpoints);
    if let Some(status) = &status.pair {
        pair(text, status);
    }
    if let Some(status) = &status.relay {
        relay(text, status);
    }
    let failed = status.roll.done.iter().filter(|day| day.outcome.is_err()).count();
    let running = u8::from(status.roll.running.is_some());
    text.one("roll_running", Gauge, "1 while files are made of an earlier day's journal", running);
    text.one(
        "roll_done_total",
        Counter,
        "Earlier days whose files were made",
        status.roll.done.len() - failed,
    );
    text.one("roll_failures_total", Counter, "Earlier days whose files could not be made", failed);
}

fn pair(text: &mut Text, status: &PairStatus) {
    use Kind::{Counter, Gauge};
    let primary = u8::from(status.role == Role::Primary);
    text.one(
        "pair_primary",
        Gauge,
        "1 while the plant is the primary of its pair, 0 while it follows",
        primary,
    );
    text.one("pair_epoch", Gauge, "Takeovers of the pair so far", status.epoch);
    let connected = u8::from(status.is_connected);
    text.one(
        "pair_connected",
        Gauge,
        "1 while the other plant is connected and follows or is followed",
        connected,
    );
    let in_step = "1 while the primary's events wait until the standby has their inputs";
    text.one("pair_in_step", Gauge, in_step, u8::from(status.is_in_step));
    text.one("pair_lag_records", Gauge, "Records of the primary that the standby lacks", status.lag_records);
    text.one("pair_lag_bytes", Gauge, "Bytes sent to the standby and not acknowledged", status.lag_bytes);
    let alone = "Times that the primary went on alone because the standby was gone or slow";
    text.one("pair_went_alone_total", Counter, alone, status.went_alone);
    text.one(
        "pair_records_total",
        Counter,
        "Records sent to standbys or received from the primary",
        status.records,
    );
    let buffered = "Packets of the standby's own lines that the primary may not have taken yet";
    text.one("pair_buffered_packets", Gauge, buffered, status.buffered_packets);
    text.one("pair_buffered_bytes", Gauge, "Bytes of those packets", status.buffered_bytes);
    let drops = "Packets of the standby's own lines that had no room before the primary had taken them";
    text.one("pair_buffer_drops_total", Counter, drops, status.buffer_drops);
    text.one("pair_takeovers_total", Counter, "Takeovers of this plant since its start", status.takeovers);
    text.one("pair_fed_packets_total", Counter, "Buffered packets that a takeover fed", status.fed_packets);
    let refused = "Connections for the pair that were refused, or did not speak its protocol";
    text.one("pair_refused_total", Counter, refused, status.refused);
}

fn relay(text: &mut Text, status: &RelayStatus) {
    use Kind::{Counter, Gauge};
    text.one("source_heard", Gauge, "1 while the first plant is heard", u8::from(status.is_heard));
    let caught_up = "1 when all events up to the present have come once since the start";
    text.one("source_caught_up", Gauge, caught_up, u8::from(status.has_caught_up));
    let lag = "Events of the first plant that are not taken yet, as far as they are known";
    text.one("source_lag_events", Gauge, lag, status.first_next.saturating_sub(status.next));
    text.one("source_messages_total", Counter, "Messages taken from Aeron", status.messages);
    text.one("source_events_total", Counter, "Events taken, with those of other shards", status.events);
    text.one("source_fetched_total", Counter, "Events that the replay server sent", status.fetched);
    text.one("source_repeated_total", Counter, "Events that had come already", status.repeated);
    let aside = "Live events that had no room while older ones were fetched, and were fetched then";
    text.one("source_set_aside_total", Counter, aside, status.set_aside);
    text.one("source_gaps_total", Counter, "Times that events were missing", status.gaps);
    text.one("source_filled_total", Counter, "Of them, those that were filled", status.filled);
    text.one("source_malformed_total", Counter, "Messages that cannot be read", status.malformed);
    let waits = "Times that the source waited because ingest had no room";
    text.one("source_waits_total", Counter, waits, status.waits);
    text.one("source_connects_total", Counter, "Times that a media driver was found", status.connects);
    text.one("source_silences_total", Counter, "Times that the first plant fell silent", status.silences);
}

fn snapshots(text: &mut Text, status: &CheckpointStatus) {
    use Kind::{Counter, Gauge};
    text.one("checkpoints_total", Counter, "Checkpoints written", status.written);
    let failures = "Checkpoints that could not be written";
    text.one("checkpoint_failures_total", Counter, failures, status.failed);
    let skipped = "Checkpoints put off as the journal's queue was full";
    text.one("checkpoints_skipped_total", Counter, skipped, status.skipped);
    let when = "When the last checkpoint was written, in seconds since the epoch; 0 before the first";
    text.one("checkpoint_time_seconds", Gauge, when, seconds(status.time.0));
    text.one("checkpoint_bytes", Gauge, "Bytes of the last checkpoint", status.bytes);
    let pause = "How long a thread paused for the last checkpoint";
    text.family("checkpoint_pause_seconds", Gauge, pause);
    text.sample("checkpoint_pause_seconds", &[("thread", "ingest")], seconds(status.pause_ns));
    text.sample("checkpoint_pause_seconds", &[("thread", "market")], seconds(status.books_pause_ns));
}

fn multicast(text: &mut Text, stats: &MulticastStats) {
    let counters: [(&str, &str, u64); 16] = [
        ("messages", "Messages numbered in the multicast's session", multicast_messages(stats)),
        ("packets", "Packets sent to the multicast group, those without messages included", stats.packets),
        ("bytes", "Bytes of those packets, without the headers of UDP and IP", stats.bytes),
        ("unsent_packets", "Packets to the multicast group that the system did not take", stats.unsent),
        ("too_long_messages", "Messages left out as they are longer than a packet", stats.too_long),
        ("requests", "Requests for messages of the multicast", stats.requests),
        ("answers", "Answers to requests for messages of the multicast", stats.answers),
        ("answered_messages", "Messages in those answers", stats.answered_messages),
        (
            "refused_requests",
            "Requests refused: not kept any more, of another session, or no requests",
            stats.refused_requests,
        ),
        ("unsent_answers", "Answers that the system did not take", stats.unsent_answers),
        ("connections", "SoupBinTCP connections taken", stats.connections),
        (
            "refused_connections",
            "SoupBinTCP connections refused because there were too many",
            stats.refused_connections,
        ),
        ("rejected_logins", "SoupBinTCP logins rejected", stats.rejected_logins),
        (
            "slow_clients",
            "SoupBinTCP clients evicted because they were too slow or silent",
            stats.slow_clients,
        ),
        (
            "malformed_clients",
            "SoupBinTCP clients closed because they broke the protocol",
            stats.malformed_clients,
        ),
        ("tcp_messages", "Messages copied for SoupBinTCP clients", stats.tcp_messages),
    ];
    for (name, help, count) in counters {
        text.one(&format!("multicast_{name}_total"), Kind::Counter, help, count);
    }
    let kept = stats.next.saturating_sub(stats.oldest);
    text.one("multicast_kept_messages", Kind::Gauge, "Messages that can be requested again", kept);
    text.one("multicast_clients", Kind::Gauge, "SoupBinTCP clients connected", stats.clients);
    let lag = "Events in the ring that the multicast has not taken";
    text.one("multicast_ring_lag_events", Kind::Gauge, lag, stats.ring_lag);
}

fn questdb(text: &mut Text, status: &QuestDbStatus) {
    let counters: [(&str, &str, u64); 10] = [
        ("rows", "Rows that QuestDB has acknowledged, those sent again included", status.rows),
        (
            "rows_again",
            "Rows that QuestDB has acknowledged and that came from the journal",
            status.rows_again,
        ),
        ("overflowed_rows", "Rows for which there was no room", status.overflowed),
        ("refused_rows", "Rows that QuestDB refused, or that no row can be made of", status.refused),
        ("lost_rows", "Rows that will not be sent", status.lost),
        ("requests", "Requests that QuestDB has acknowledged", status.requests),
        ("failures", "Requests to QuestDB that failed", status.failures),
        ("reconnects", "Times that QuestDB took rows again after it had not", status.reconnects),
        ("sent_again", "Times that rows were sent from the journal to the end", status.sent_again),
        ("unreadable_events", "Events that could not be read from the journal", status.unreadable),
    ];
    for (name, help, count) in counters {
        text.one(&format!("questdb_{name}_total"), Kind::Counter, help, count);
    }
    let to_send_again = status.to_send_again.as_ref().map_or(0, |events| events.end - events.start)
        + status.sending_again.map_or(0, |(next, end)| end - next.min(end));
    let gauges: [(&str, &str, u64); 5] = [
        ("connected", "1 when QuestDB took the last request", u64::from(status.is_connected)),
        ("waiting_rows", "Rows that wait", status.waiting),
        ("waiting_bytes", "Bytes of the records that wait", status.waiting_bytes as u64),
        ("events_to_send_again", "Events whose rows are still to be sent from the journal", to_send_again),
        ("ring_lag_events", "Events in the ring that are not taken for QuestDB", status.ring_lag as u64),
    ];
    for (name, help, value) in gauges {
        text.one(&format!("questdb_{name}"), Kind::Gauge, help, value);
    }
}

fn nats(text: &mut Text, status: &NatsStatus) {
    let counters: [(&str, &str, u64); 11] = [
        ("records", "Records that the server of NATS has confirmed", status.records),
        ("stored_records", "NBBOs that JetStream has confirmed to keep", status.stored),
        (
            "conflated_records",
            "Changes of an NBBO that gave way to later ones while the queue for NATS was full",
            status.conflated,
        ),
        ("dropped_trades", "Trades for which the queue for NATS had no room", status.dropped_trades),
        ("dropped_gaps", "Gaps for which the queue for NATS had no room", status.dropped_gaps),
        ("lagged", "Times that the queue for NATS was full", status.lagged),
        (
            "unconfirmed_records",
            "Records on a connection that broke before the server of NATS confirmed them",
            status.unconfirmed,
        ),
        ("connects", "Connections to a server of NATS that were made", status.connects),
        ("failures", "Connections to a server of NATS that were not made or that broke", status.failures),
        ("refused", "Errors that the server of NATS sent", status.refused),
        ("store_failures", "Times that JetStream did not keep an NBBO", status.store_failures),
    ];
    for (name, help, count) in counters {
        text.one(&format!("nats_{name}_total"), Kind::Counter, help, count);
    }
    let gauges: [(&str, &str, u64); 4] = [
        ("connected", "1 while there is a connection to a server of NATS", u64::from(status.is_connected)),
        ("storing", "1 while JetStream keeps the last NBBOs", u64::from(status.is_storing)),
        ("waiting_records", "Records that wait for NATS", status.waiting),
        ("in_flight_records", "Records published and not confirmed yet", status.in_flight),
    ];
    for (name, help, value) in gauges {
        text.one(&format!("nats_{name}"), Kind::Gauge, help, value);
    }
}

fn aeron(text: &mut Text, status: &AeronStatus) {
    let counters: [(&str, &str, u64); 14] = [
        ("items", "Events and records in published messages of Aeron", status.items),
        ("messages", "Messages published on streams of Aeron", status.messages),
        ("bytes", "Bytes of those messages", status.bytes),
        ("unread", "Events and records of streams of Aeron that nobody read", status.unread),
        (
            "dropped_slow",
            "Events and records dropped as readers of Aeron did not keep up",
            status.dropped_slow,
        ),
        ("dropped_full", "Events and records dropped as the queue for Aeron was full", status.dropped_full),
        ("refused", "Events and records that the client of Aeron refused", status.refused),
        ("connects", "Connections to a media driver of Aeron that were made", status.connects),
        (
            "failures",
            "Times that the media driver of Aeron was away, died or refused a stream",
            status.failures,
        ),
        ("replays", "Replays of streams of Aeron that were begun", status.replays),
        ("replayed", "Events and records in those replays", status.replayed),
        (
            "refused_replays",
            "Requests for replays of Aeron's streams that were refused",
            status.refused_replays,
        ),
        ("tls_refused", "Of those requests, connections that did not agree on TLS", status.tls_refused),
        ("failed_replays", "Replays of Aeron's streams that ended too early", status.failed_replays),
    ];
    for (name, help, count) in counters {
        text.one(&format!("aeron_{name}_total"), Kind::Counter, help, count);
    }
    let gauges: [(&str, &str, u64); 6] = [
        ("connected", "1 while the media driver of Aeron takes messages", u64::from(status.is_connected)),
        ("streams", "Streams of Aeron that were published on", status.streams),
        ("read_streams", "Streams of Aeron that somebody reads", status.read_streams),
        ("waiting_items", "Events and records that wait for the media driver of Aeron", status.waiting),
        ("running_replays", "Replays of Aeron's streams that run now", status.running_replays),
        ("ring_lag", "Events in the ring that the output to Aeron has not taken", status.ring_lag),
    ];
    for (name, help, value) in gauges {
        text.one(&format!("aeron_{name}"), Kind::Gauge, help, value);
    }
}

fn kafka(text: &mut Text, status: &KafkaStatus) {
    let counters: [(&str, &str, u64); 7] = [
        ("records", "Records in transactions that Kafka has committed", status.records),
        ("bytes", "Bytes of those records, before compression", status.bytes),
        ("transactions", "Transactions that Kafka has committed", status.transactions),
        ("aborted_transactions", "Transactions with records that were given up", status.aborted),
        ("failures", "Times that the output into Kafka began again after an error", status.failures),
        ("connects", "Connections to Kafka that were made", status.connects),
        (
            "lost_events",
            "Events that the journal no longer had when their records were to go to Kafka",
            status.lost_events,
        ),
    ];
    for (name, help, count) in counters {
        text.one(&format!("kafka_{name}_total"), Kind::Counter, help, count);
    }
    let gauges: [(&str, &str, u64); 4] = [
        ("connected", "1 when Kafka took the last transaction", u64::from(status.is_connected)),
        ("waiting_records", "Records of the open transaction", status.waiting),
        ("position", "The first event whose records are not in Kafka", status.position.unwrap_or_default()),
        ("lag_events", "Events published whose records are not in Kafka", status.lag_events),
    ];
    for (name, help, value) in gauges {
        text.one(&format!("kafka_{name}"), Kind::Gauge, help, value);
    }
    let help = "The time by which Kafka lags behind the plant";
    text.one("kafka_lag_seconds", Kind::Gauge, help, seconds(status.lag_ns));
}

fn delays(text: &mut Text, status: &Status) {
    let name = "delay_seconds";
    let help = "Delay of messages from the kernel's receive time until they were published";
    text.family(name, Kind::Histogram, help);
    let mut until = 0;
    let buckets = &status.delays.buckets;
    for (bound, count) in DELAY_BOUNDS.iter().zip(&buckets.counts) {
        until += count;
        text.sample("delay_seconds_bucket", &[("le", &seconds(*bound).to_string())], until);
    }
    let all: u64 = buckets.counts.iter().sum();
    text.sample("delay_seconds_bucket", &[("le", "+Inf")], all);
    text.sample("delay_seconds_sum", &[], seconds(buckets.sum));
    text.sample("delay_seconds_count", &[], all);
    if let Some(last) = status.delays.points.last() {
        let name = "delay_last_second_seconds";
        text.family(name, Kind::Gauge, "The same delay over the last second, by percentile");
        for (percentile, delay) in
            [("50", last.p50), ("99", last.p99), ("99.9", last.p999), ("100", last.max)]
        {
            text.sample(name, &[("percentile", percentile)], seconds(delay));
        }
    }
}

/// Writes the metrics of the connections to request servers, for channels that have one.
fn requesters(text: &mut Text, named: &[(&ChannelStatus, String)]) {
    type Get = fn(&RequesterStatus) -> u64;
    let with: Vec<_> = named
        .iter()
        .filter_map(|(channel, feed)| Some((channel.name.as_str(), feed.as_str(), channel.requester?)))
        .collect();
    if with.is_empty() {
        return;
    }
    fn labels<'t>((venue, feed, _): &'t (&str, &str, RequesterStatus)) -> [(&'t str, &'t str); 2] {
        [("venue", *venue), ("feed", *feed)]
    }
    let name = "channel_requester_ready";
    let help = "1 while requests go out over TCP: the connection is made and the login accepted";
    text.each((name, Kind::Gauge, help), &with, labels, |(_, _, status)| {
        f64::from(u8::from(status.is_ready))
    });
    let counters: [(&str, &str, Get); 7] = [
        ("connections", "Connections to the request server that could be used", |status| {
            status.counters.connections
        }),
        ("ends", "Connections to the request server that ended or could not be made", |status| {
            status.counters.ends
        }),
        ("logins_refused", "Logins that the request server refused", |status| status.counters.logins_refused),
        ("sent", "Requests sent over TCP", |status| status.counters.sent),
        ("unanswered", "Requests over TCP without a response in time", |status| status.counters.unanswered),
        ("merged", "Requests that were waiting already", |status| status.counters.merged),
        ("dropped", "Requests not sent: they waited too long, or a quota was used up", |status| {
            status.counters.dropped
        }),
    ];
    for (name, help, get) in counters {
        let name = format!("channel_requester_{name}_total");
        text.each((&name, Kind::Counter, help), &with, labels, |(_, _, status)| get(status) as f64);
    }
    let name = "channel_requester_responses_total";
    text.family(name, Kind::Counter, "Responses to requests over TCP, by their status");
    for (venue, feed, requester) in &with {
        for status in RequestStatus::ALL {
            let labels = [("venue", *venue), ("feed", *feed), ("status", status.as_str())];
            text.sample(name, &labels, requester.counters.of(status) as f64);
        }
    }
}

fn channels(text: &mut Text, channels: &[ChannelStatus]) {
    type Get = fn(&ArbiterCounters) -> u64;
    type OfSnapshots = fn(&SnapshotCounters) -> u64;
    type Is = fn(&ChannelStatus) -> bool;
    let named: Vec<_> = channels.iter().map(|channel| (channel, feed_name(channel.publisher))).collect();
    fn labels<'t>((channel, feed): &'t (&ChannelStatus, String)) -> [(&'t str, &'t str); 2] {
        [("venue", channel.name.as_str()), ("feed", feed.as_str())]
    }
    let counters: [(&str, &str, Get); 15] = [
        ("messages", "Messages handed on, each once", |counters| counters.messages),
        ("gaps_opened", "Sequence gaps seen on both lines", |counters| counters.gaps_opened),
        ("filled_by_lines", "Sequence gaps that a line filled within the reorder window", |counters| {
            counters.filled_by_lines
        }),
        ("filled_by_retransmission", "Sequence gaps that retransmissions filled", |counters| {
            counters.filled_by_retransmission
        }),
        ("requests", "Requests for messages", |counters| counters.requests),
        ("repeated_requests", "Requests that timed out and were repeated", |counters| {
            counters.repeated_requests
        }),
        ("recovered_messages", "Messages that retransmissions brought", |counters| counters.recovered),
        ("too_long", "Sequence gaps not requested because they are longer than the limit", |counters| {
            counters.too_long
        }),
        ("gaps", "Sequence gaps given up", |counters| counters.gaps),
        ("missing_messages", "Messages in the sequence gaps given up", |counters| counters.missing),
        ("late_messages", "Messages of sequence gaps given up that came after all", |counters| counters.late),
        ("overflows", "Sequence gaps given up because too much was held behind them", |counters| {
            counters.overflows
        }),
        ("session_changes", "Sessions that began after another", |counters| counters.session_changes),
        ("sequence_resets", "Times that the numbers began anew without a new session", |counters| {
            counters.sequence_resets
        }),
        ("silences", "Times that the channel fell silent", |counters| counters.silences),
    ];
    for (name, help, get) in counters {
        let name = format!("channel_{name}_total");
        text.each((&name, Kind::Counter, help), &named, labels, |(channel, _)| get(&channel.counters) as f64);
    }
    let name = "channel_gaps_by_reason_total";
    text.family(name, Kind::Counter, "Sequence gaps given up, by the reason");
    for (channel, feed) in &named {
        for reason in GapReason::ALL {
            let labels =
                [("venue", channel.name.as_str()), ("feed", feed.as_str()), ("reason", reason.as_str())];
            text.sample(name, &labels, channel.counters.gaps_of(reason) as f64);
        }
    }
    requesters(text, &named);
    let snapshots: [(&str, &str, OfSnapshots); 6] = [
        ("requests", "Snapshots requested", |snapshots| snapshots.requests),
        ("applied", "Snapshots applied", |snapshots| snapshots.applied),
        ("failed", "Snapshots that failed, came late, or were of another session", |snapshots| {
            snapshots.failed
        }),
        ("messages", "Messages in the snapshots that were applied", |snapshots| snapshots.messages),
        (
            "given_up",
            "Times that the channel went on without a snapshot, though it requested one",
            |snapshots| snapshots.given_up,
        ),
        (
            "contradicted",
            "Snapshots requested because messages of the channel contradicted the books",
            |snapshots| snapshots.contradicted,
        ),
    ];
    for (name, help, get) in snapshots {
        let name = format!("channel_snapshots_{name}_total");
        text.each((&name, Kind::Counter, help), &named, labels, |(channel, _)| {
            get(&channel.snapshots) as f64
        });
    }
    let name = "channel_snapshots_failed_by_fault_total";
    text.family(name, Kind::Counter, "Snapshots that were not applied, by the reason");
    for (channel, feed) in named.iter().filter(|(channel, _)| channel.snapshots.requests > 0) {
        for fault in SnapshotFault::ALL {
            let labels =
                [("venue", channel.name.as_str()), ("feed", feed.as_str()), ("fault", fault.as_str())];
            text.sample(name, &labels, channel.snapshots.failed_by(fault) as f64);
        }
    }
    let name = "channel_snapshot_packets_ignored_total";
    let help = "Packets of the group of the channel's snapshots that belonged to none of its own";
    text.each((name, Kind::Counter, help), &named, labels, |(channel, _)| {
        channel.snapshot_packets_ignored as f64
    });
    let flags: [(&str, &str, Is); 5] = [
        ("followed", "1 when the channel has received packets and does not wait for a snapshot", |channel| {
            channel.next.is_some() && !channel.is_joining
        }),
        ("recovering", "1 while messages are missing that are awaited or requested", |channel| {
            channel.is_recovering
        }),
        ("joining", "1 while the channel waits for a snapshot to begin from", |channel| channel.is_joining),
        ("silent", "1 while no packet has come for too long", |channel| channel.is_silent),
        ("stale", "1 while books may be wrong", |channel| channel.is_stale),
    ];
    for (name, help, is) in flags {
        let name = format!("channel_{name}");
        text.each((&name, Kind::Gauge, help), &named, labels, |(channel, _)| {
            f64::from(u8::from(is(channel)))
        });
    }
    let next = "The number of the channel's next message";
    text.each(("channel_next_sequence", Kind::Gauge, next), &named, labels, |(channel, _)| {
        channel.next.unwrap_or_default() as f64
    });
}

fn interface(text: &mut Text, interface: &InterfaceStatus) {
    let frames = [
        (
            "kernel_drops",
            "Frames that the kernel dropped because the plant did not take them in time",
            interface.kernel_drops,
        ),
        ("too_long", "Frames longer than a buffer", interface.too_long),
        ("foreign", "Frames that are of no line", interface.foreign),
        (
            "bad_checksums",
            "Frames whose UDP checksum shows damage; all but the first few of a flow are discarded",
            interface.bad_checksums,
        ),
    ];
    for (name, help, count) in frames {
        let name = format!("interface_{name}_total");
        text.family(&name, Kind::Counter, help);
        text.sample(&name, &[("device", &interface.device)], count);
    }
}

fn lines(text: &mut Text, channels: &[ChannelStatus]) {
    type Get = fn(&LineCounters) -> u64;
    type Line<'a> = (&'a str, &'a LineStatus);
    let all: Vec<Line<'_>> = channels
        .iter()
        .flat_map(|channel| channel.lines.iter().map(|line| (channel.name.as_str(), line)))
        .collect();
    fn labels<'t>((venue, line): &'t Line<'_>) -> [(&'t str, &'t str); 2] {
        [("venue", venue), ("line", line_name(line.line))]
    }
    let counters: [(&str, &str, Get); 14] = [
        ("packets", "Packets, heartbeats included", |counters| counters.packets),
        ("messages", "Messages in the packets, however often", |counters| counters.messages),
        ("won_messages", "Messages that this line brought first", |counters| counters.won),
        ("duplicate_messages", "Messages that had already come", |counters| counters.duplicate),
        ("late_messages", "Messages that came after their sequence gap was given up", |counters| {
            counters.late
        }),
        ("lost_messages", "Messages that this line skipped and has not brought since", |counters| {
            counters.lost
        }),
        ("reordered_messages", "Messages that it brought after later ones", |counters| counters.reordered),
        ("repeated_messages", "Messages that it brought more than once", |counters| counters.repeated),
        ("malformed_packets", "Damaged packets", |counters| counters.malformed),
        ("past_session_packets", "Packets of the session before", |counters| counters.of_past_sessions),
        ("other_feed_packets", "Packets of a session of another feed", |counters| counters.of_other_feeds),
        ("unrequested_answers", "Answers without a message that is missing and was requested", |counters| {
            counters.unrequested
        }),
        (
            "implausible_packets",
            "Packets far ahead, or of another session while the followed one went on",
            |counters| counters.implausible,
        ),
        ("silences", "Times that the line fell silent", |counters| counters.silences),
    ];
    for (name, help, get) in counters {
        let name = format!("line_{name}_total");
        text.each((&name, Kind::Counter, help), &all, labels, |(_, line)| get(&line.counters) as f64);
    }
    let drops = "Datagrams that the kernel dropped because the plant did not take them in time";
    text.each(("line_kernel_drops_total", Kind::Counter, drops), &all, labels, |(_, line)| {
        line.kernel_drops as f64
    });
    let long = "Datagrams longer than a buffer";
    text.each(("line_too_long_total", Kind::Counter, long), &all, labels, |(_, line)| line.too_long as f64);
    let buffer = "The kernel's receive buffer, as it grants it";
    text.each(("line_receive_buffer_bytes", Kind::Gauge, buffer), &all, labels, |(_, line)| {
        line.buffer_bytes as f64
    });
    text.each(("line_silent", Kind::Gauge, "1 while the line is silent"), &all, labels, |(_, line)| {
        f64::from(u8::from(line.is_silent))
    });
}

fn clients(text: &mut Text, stats: &Stats) {
    type Get = fn(&Counters) -> u64;
    type Of = fn(&ClientView) -> f64;
    let counters: [(&str, &str, Get); 16] = [
        ("accepted", "Connections of clients taken", |counters| counters.accepted),
        ("accept_errors", "Connections of clients that could not be taken", |counters| {
            counters.accept_errors
        }),
        ("admitted", "Clients that authenticated", |counters| counters.admitted),
        ("closed", "Connections of clients that are over", |counters| counters.closed),
        ("evicted", "Unauthenticated connections closed to make room for newer ones", |counters| {
            counters.evicted
        }),
        ("ended_slow", "Sessions that ended as the client was too slow", |counters| counters.ended_slow),
        ("records", "Records put into queues of clients", |counters| counters.records),
        ("bytes", "Bytes written to sockets of clients", |counters| counters.bytes),
        ("skipped_records", "Records left out for clients with the behaviour skip", |counters| {
            counters.skipped
        }),
        ("conflated_records", "Records replaced by a later one of the same instrument", |counters| {
            counters.conflated
        }),
        ("replays", "Replays begun", |counters| counters.replays),
        ("replays_failed", "Replays that failed", |counters| counters.replays_failed),
        ("replays_joined", "Replays that have joined the present", |counters| counters.replays_joined),
        ("gaps", "Gaps reported to clients", |counters| counters.gaps),
        ("snapshots", "Snapshots sent to clients", |counters| counters.snapshots),
        ("request_work", "Work for requests of clients, in units of an order of a snapshot", |counters| {
            counters.request_work
        }),
    ];
    for (name, help, get) in counters {
        text.one(&format!("clients_{name}_total"), Kind::Counter, help, get(&stats.counters));
    }
    text.family("clients_refused_total", Kind::Counter, "Sessions refused, by reason");
    for reason in Reason::ALL {
        let count = stats.counters.refused(reason);
        text.sample("clients_refused_total", &[("reason", reason.as_str())], count);
    }
    text.one("clients_connections", Kind::Gauge, "Clients connected", stats.clients.len());
    let lag = "Events in the ring that the clients' server has not taken";
    text.one("clients_ring_lag_events", Kind::Gauge, lag, stats.ring_lag);
    text.one("clients_queued_bytes", Kind::Gauge, "Bytes that wait for clients", stats.queued_bytes);
    let requests: usize = stats.clients.iter().map(|client| client.requests).sum();
    text.one("clients_waiting_requests", Kind::Gauge, "Requests of clients that wait", requests);
    let all: Vec<_> = stats
        .clients
        .iter()
        .filter(|client| !client.key.is_empty())
        .map(|client| (client, client.session.to_string()))
        .collect();
    fn labels<'t>((client, session): &'t (&ClientView, String)) -> [(&'t str, &'t str); 3] {
        [("key", client.key.as_str()), ("session", session.as_str()), ("dataset", client.dataset.as_str())]
    }
    let each: [(&str, Kind, &str, Of); 6] = [
        ("records_total", Kind::Counter, "Records put into the client's queue", |client| {
            client.records as f64
        }),
        ("bytes_total", Kind::Counter, "Bytes written to the client's socket", |client| client.bytes as f64),
        ("skipped_records_total", Kind::Counter, "Records left out for the client", |client| {
            client.skipped as f64
        }),
        (
            "conflated_records_total",
            Kind::Counter,
            "The client's records that gave way to later ones",
            |client| client.conflated as f64,
        ),
        ("queued_bytes", Kind::Gauge, "Bytes that wait for the client", |client| client.queued_bytes as f64),
        ("lag_seconds", Kind::Gauge, "Time since the client's queue was last empty", |client| {
            seconds(client.lag_ns)
        }),
    ];
    for (name, kind, help, of) in each {
        text.each((&format!("client_{name}"), kind, help), &all, labels, |(client, _)| of(client));
    }
}
