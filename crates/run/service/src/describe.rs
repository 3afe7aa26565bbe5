//! The status of a plant as JSON, for the summary, the page and programs.

use serde_json::{Value, json};
use tapeworks_follow::arbitration::{GapReason, RecoveryReport};
use tapeworks_market::Publisher;
use tapeworks_market::event::Line;

use crate::nats::NatsStatus;
use crate::report::Report;
use tapeworks_outputs::aeron::AeronStatus;
use tapeworks_outputs::clients::control::Reason;
use tapeworks_outputs::clients::distributor::ClientView;
use tapeworks_outputs::clients::server::Stats;
use tapeworks_outputs::kafka::KafkaStatus;
use tapeworks_outputs::multicast::server::MulticastStats;
use tapeworks_outputs::questdb::QuestDbStatus;
use tapeworks_plant::CheckpointStatus;
use tapeworks_plant::{ChannelStatus, LineStatus, RequesterStatus};
use tapeworks_plant::{PairStatus, RelayStatus, RollStatus};
use tapeworks_runtime::traces::TraceStatus;
use tapeworks_session::requests::RequestStatus;

/// Returns the name of a line.
pub(crate) const fn line_name(line: Line) -> &'static str {
    match line {
        Line::A => "A",
        Line::B => "B",
        Line::Recovery => "retransmission",
        Line::Snapshot => "snapshot",
    }
}

/// Returns the name of a feed in lists.
pub(crate) fn feed_name(publisher: Publisher) -> String {
    publisher.feed().map_or_else(|| publisher.0.to_string(), |feed| feed.dataset.to_owned())
}

/// Returns the state of a channel; the worst state takes precedence.
pub(crate) const fn channel_state(channel: &ChannelStatus) -> &'static str {
    if channel.is_joining {
        "joining"
    } else if channel.next.is_none() {
        "waiting"
    } else if channel.is_silent {
        "silent"
    } else if channel.is_recovering {
        "recovering"
    } else if channel.is_stale {
        "stale"
    } else {
        "live"
    }
}

fn line(line: &LineStatus) -> Value {
    let counters = &line.counters;
    json!({
        "line": line_name(line.line),
        "address": line.address.to_string(),
        "is_silent": line.is_silent,
        "packets": counters.packets,
        "messages": counters.messages,
        "won": counters.won,
        "duplicate": counters.duplicate,
        "late": counters.late,
        "lost": counters.lost,
        "reordered": counters.reordered,
        "repeated": counters.repeated,
        "malformed": counters.malformed,
        "silences": counters.silences,
        "of_past_sessions": counters.of_past_sessions,
        "of_other_feeds": counters.of_other_feeds,
        "implausible": counters.implausible,
        "unrequested": counters.unrequested,
        "kernel_drops": line.kernel_drops,
        "too_long": line.too_long,
        "receive_buffer_bytes": line.buffer_bytes,
    })
}

fn recovery(report: &RecoveryReport) -> Value {
    json!({
        "first": report.first,
        "end": report.end,
        "began_ns": report.began.0,
        "duration_ns": report.duration_ns(),
        "recovered": report.recovered,
        "requests": report.requests,
        "is_complete": report.is_complete,
    })
}

/// Describes the connection to a request server.
fn requester(status: &RequesterStatus) -> Value {
    let counters = &status.counters;
    json!({
        "is_ready": status.is_ready,
        "connections": counters.connections,
        "ends": counters.ends,
        "logins_refused": counters.logins_refused,
        "last_end": counters.last_end.map(|end| end.to_string()),
        "sent": counters.sent,
        "responses": RequestStatus::ALL
            .iter()
            .map(|status| (status.as_str().to_owned(), counters.of(*status).into()))
            .collect::<serde_json::Map<_, _>>(),
        "unanswered": counters.unanswered,
        "unexpected": counters.unexpected,
        "merged": counters.merged,
        "dropped": counters.dropped,
    })
}

fn venue(channel: &ChannelStatus) -> Value {
    let counters = &channel.counters;
    let snapshots = &channel.snapshots;
    json!({
        "venue": channel.name,
        "feed": feed_name(channel.publisher),
        "state": channel_state(channel),
        "session": channel.session.trim(),
        "next": channel.next,
        "is_recovering": channel.is_recovering,
        "is_joining": channel.is_joining,
        "is_silent": channel.is_silent,
        "is_stale": channel.is_stale,
        "messages": counters.messages,
        "gaps_opened": counters.gaps_opened,
        "filled_by_lines": counters.filled_by_lines,
        "filled_by_retransmission": counters.filled_by_retransmission,
        "requests": counters.requests,
        "repeated_requests": counters.repeated_requests,
        "requester": channel.requester.as_ref().map(requester),
        "recovered": counters.recovered,
        "long_recoveries": counters.long_recoveries,
        "last_recovery": channel.last_recovery.as_ref().map(recovery),
        "too_long": counters.too_long,
        "gaps": counters.gaps,
        "gaps_by_reason": GapReason::ALL
            .iter()
            .map(|reason| (reason.as_str().to_owned(), counters.gaps_of(*reason).into()))
            .collect::<serde_json::Map<_, _>>(),
        "missing": counters.missing,
        "late": counters.late,
        "overflows": counters.overflows,
        "session_changes": counters.session_changes,
        "sequence_resets": counters.sequence_resets,
        "ends_of_session": counters.ends_of_session,
        "silences": counters.silences,
        "snapshots": {
            "requests": snapshots.requests,
            "applied": snapshots.applied,
            "failed": snapshots.failed,
            "messages": snapshots.messages,
            "given_up": snapshots.given_up,
            "contradicted": snapshots.contradicted,
            "last_fault": snapshots.last_fault.map(|fault| fault.to_string()),
            "packets_ignored": channel.snapshot_packets_ignored,
        },
        "lines": channel.lines.iter().map(line).collect::<Vec<_>>(),
    })
}

fn client(client: &ClientView) -> Value {
    json!({
        "session": client.session,
        "name": client.name,
        "address": client.address.to_string(),
        "key": client.key,
        "dataset": client.dataset,
        "schemas": client.schemas.iter().map(|schema| schema.as_str()).collect::<Vec<_>>(),
        "state": client.state.as_str(),
        "slow_reader": client.slow_reader.as_str(),
        "since_ns": client.since.0,
        "records": client.records,
        "bytes": client.bytes,
        "queued_bytes": client.queued_bytes,
        "requests": client.requests,
        "lag_ns": client.lag_ns,
        "skipped": client.skipped,
        "conflated": client.conflated,
    })
}

fn clients(stats: &Stats) -> Value {
    let counters = &stats.counters;
    let refused: serde_json::Map<String, Value> = Reason::ALL
        .into_iter()
        .map(|reason| (reason.as_str().to_owned(), counters.refused(reason).into()))
        .collect();
    json!({
        "connections": stats.clients.len(),
        "accepted": counters.accepted,
        "accept_errors": counters.accept_errors,
        "admitted": counters.admitted,
        "closed": counters.closed,
        "evicted": counters.evicted,
        "ended_slow": counters.ended_slow,
        "records": counters.records,
        "bytes": counters.bytes,
        "skipped": counters.skipped,
        "conflated": counters.conflated,
        "heartbeats": counters.heartbeats,
        "replays": counters.replays,
        "replays_failed": counters.replays_failed,
        "replays_joined": counters.replays_joined,
        "gaps": counters.gaps,
        "snapshots": counters.snapshots,
        "request_work": counters.request_work,
        "refused": refused,
        "next_event": stats.next_event,
        "ring_lag": stats.ring_lag,
        "queued_bytes": stats.queued_bytes,
        "sessions": stats.clients.iter().map(client).collect::<Vec<_>>(),
    })
}

/// Returns the number of messages in the multicast's session so far, which are numbered from 1.
pub(crate) const fn multicast_messages(stats: &MulticastStats) -> u64 {
    stats.next.saturating_sub(1)
}

fn multicast(stats: &MulticastStats) -> Value {
    json!({
        "session": stats.session,
        "messages": multicast_messages(stats),
        "next": stats.next,
        "oldest": stats.oldest,
        "packets": stats.packets,
        "bytes": stats.bytes,
        "unsent": stats.unsent,
        "error": stats.error,
        "too_long": stats.too_long,
        "requests": stats.requests,
        "answers": stats.answers,
        "answered_messages": stats.answered_messages,
        "refused_requests": stats.refused_requests,
        "unsent_answers": stats.unsent_answers,
        "clients": stats.clients,
        "connections": stats.connections,
        "refused_connections": stats.refused_connections,
        "rejected_logins": stats.rejected_logins,
        "slow_clients": stats.slow_clients,
        "malformed_clients": stats.malformed_clients,
        "tcp_messages": stats.tcp_messages,
        "ring_lag": stats.ring_lag,
    })
}

fn questdb(status: &QuestDbStatus) -> Value {
    json!({
        "is_connected": status.is_connected,
        "rows": status.rows,
        "rows_again": status.rows_again,
        "waiting": status.waiting,
        "waiting_bytes": status.waiting_bytes,
        "overflowed": status.overflowed,
        "refused": status.refused,
        "lost": status.lost,
        "requests": status.requests,
        "failures": status.failures,
        "reconnects": status.reconnects,
        "error": status.error,
        "to_send_again": status.to_send_again.as_ref().map(|events| [events.start, events.end]),
        "sending_again": status.sending_again.map(|(next, end)| [next, end]),
        "sent_again": status.sent_again,
        "unreadable": status.unreadable,
        "ring_lag": status.ring_lag,
    })
}

fn nats(status: &NatsStatus) -> Value {
    json!({
        "is_connected": status.is_connected,
        "is_storing": status.is_storing,
        "records": status.records,
        "stored": status.stored,
        "waiting": status.waiting,
        "in_flight": status.in_flight,
        "conflated": status.conflated,
        "dropped_trades": status.dropped_trades,
        "dropped_gaps": status.dropped_gaps,
        "lagged": status.lagged,
        "unconfirmed": status.unconfirmed,
        "lost": status.lost,
        "connects": status.connects,
        "failures": status.failures,
        "refused": status.refused,
        "store_failures": status.store_failures,
        "error": status.error,
    })
}

/// Returns the counters of the export of traces.
pub fn traces(status: &TraceStatus) -> Value {
    json!({
        "is_connected": status.is_connected,
        "traces": status.traces,
        "spans": status.spans,
        "requests": status.requests,
        "waiting": status.waiting,
        "dropped": status.dropped,
        "unfollowed": status.unfollowed,
        "refused_spans": status.refused_spans,
        "failures": status.failures,
        "lost": status.lost,
        "error": status.error,
    })
}

fn aeron(status: &AeronStatus) -> Value {
    json!({
        "is_connected": status.is_connected,
        "read_streams": status.read_streams,
        "streams": status.streams,
        "items": status.items,
        "messages": status.messages,
        "bytes": status.bytes,
        "unread": status.unread,
        "dropped_slow": status.dropped_slow,
        "dropped_full": status.dropped_full,
        "refused": status.refused,
        "waiting": status.waiting,
        "connects": status.connects,
        "failures": status.failures,
        "replays": status.replays,
        "replayed": status.replayed,
        "running_replays": status.running_replays,
        "refused_replays": status.refused_replays,
        "tls_refused": status.tls_refused,
        "failed_replays": status.failed_replays,
        "ring_lag": status.ring_lag,
        "error": status.error,
    })
}

fn kafka(status: &KafkaStatus) -> Value {
    json!({
        "is_connected": status.is_connected,
        "records": status.records,
        "bytes": status.bytes,
        "transactions": status.transactions,
        "aborted": status.aborted,
        "waiting": status.waiting,
        "failures": status.failures,
        "connects": status.connects,
        "lost_events": status.lost_events,
        "position": status.position,
        "position_ns": status.position_ns,
        "read": status.read,
        "lag_events": status.lag_events,
        "lag_ns": status.lag_ns,
        "error": status.error,
    })
}

fn pair(status: &PairStatus) -> Value {
    json!({
        "role": status.role.name(),
        "epoch": status.epoch,
        "peer": status.peer,
        "is_connected": status.is_connected,
        "is_in_step": status.is_in_step,
        "lag_records": status.lag_records,
        "lag_bytes": status.lag_bytes,
        "went_alone": status.went_alone,
        "records": status.records,
        "buffered_packets": status.buffered_packets,
        "buffered_bytes": status.buffered_bytes,
        "buffer_drops": status.buffer_drops,
        "takeovers": status.takeovers,
        "fed_packets": status.fed_packets,
        "refused": status.refused,
        "reason": status.reason,
        "moved_aside": status.moved_aside,
    })
}

fn relay(status: &RelayStatus) -> Value {
    json!({
        "is_heard": status.is_heard,
        "has_caught_up": status.has_caught_up,
        "fetching_since_ns": status.fetching_since.map(|since| since.0),
        "next": status.next,
        "first_next": status.first_next,
        "messages": status.messages,
        "events": status.events,
        "fetched": status.fetched,
        "repeated": status.repeated,
        "set_aside": status.set_aside,
        "gaps": status.gaps,
        "filled": status.filled,
        "malformed": status.malformed,
        "waits": status.waits,
        "connects": status.connects,
        "silences": status.silences,
        "error": status.error,
    })
}

fn snapshots(status: &CheckpointStatus) -> Value {
    json!({
        "every_ns": status.every.map(|every| u64::try_from(every.as_nanos()).unwrap_or(u64::MAX)),
        "restored_record": status.restored,
        "refused": status.refused,
        "taken": status.taken,
        "written": status.written,
        "failed": status.failed,
        "skipped": status.skipped,
        "time_ns": status.time.0,
        "bytes": status.bytes,
        "pause_ns": status.pause_ns,
        "books_pause_ns": status.books_pause_ns,
        "error": status.error,
    })
}

fn roll(status: &RollStatus) -> Value {
    let done = status.done.iter().map(|day| {
        let ((files, records), error) = match &day.outcome {
            Ok(made) => (*made, None),
            Err(why) => ((0, 0), Some(why)),
        };
        json!({
            "date": day.date.to_string(),
            "from_ns": day.from.map(|from| from.0),
            "files": files,
            "records": records,
            "error": error,
        })
    });
    json!({
        "is_on": status.is_on,
        "running": status.running.map(|(date, inputs)| json!({ "date": date.to_string(), "inputs": inputs })),
        "done": done.collect::<Vec<_>>(),
    })
}

/// Returns the whole status except the books and the curve. Times are in ns.
pub fn status(report: &Report) -> Value {
    let Report {
        plant: status,
        clients: served,
        multicast: sent,
        questdb: rows,
        nats: published,
        kafka: logged,
        aeron: streamed,
        traces: traced,
    } = report;
    let [p50, p90, p99, p999, max] = status.delays.all;
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "time_ns": status.time.0,
        "started_ns": status.started.0,
        "messages": status.engine.messages,
        "events": status.engine.events,
        "symbols": status.engine.symbols,
        "problems": status.engine.problems,
        "orders": status.books.orders,
        "book_bytes": status.books.bytes,
        "rejected": status.books.rejected,
        "contradicted_books": status.books.contradicted,
        "conflated": status.books.conflated,
        "interface": status.interface.as_ref().map(|interface| json!({
            "device": interface.device,
            "foreign": interface.foreign,
            "bad_checksums": interface.bad_checksums,
            "too_long": interface.too_long,
            "kernel_drops": interface.kernel_drops,
        })),
        "shared": status.shared.published,
        "shared_made_again": status.shared.made_again,
        "shared_trouble": status.shared.trouble,
        "ring": {
            "fill": status.ring.fill,
            "capacity": status.ring.capacity,
            "highest": status.ring.highest,
            "stalls": status.ring.stalls,
        },
        "delay_ns": { "p50": p50, "p90": p90, "p99": p99, "p99.9": p999, "max": max },
        "nbbo": {
            "changes": status.books.nbbo.changes,
            "locked": status.books.nbbo.locked,
            "crossed": status.books.nbbo.crossed,
        },
        "journal": status.journal.as_ref().map(|journal| json!({
            "records": journal.next,
            "written_bytes": journal.written_bytes,
            "lost": journal.lost,
            "unconfirmed": journal.unconfirmed,
            "failed_removals": journal.failed_removals,
            "removed_segments": journal.removed_segments,
            "damaged": journal.damaged,
            "torn_bytes": journal.torn_bytes,
            "is_failing": journal.is_failing,
            "error": journal.error,
        })),
        "pair": status.pair.as_ref().map(pair),
        "source": status.relay.as_ref().map(relay),
        "questdb": rows.as_ref().map(questdb),
        "nats": published.as_ref().map(nats),
        "aeron": streamed.as_ref().map(aeron),
        "kafka": logged.as_ref().map(kafka),
        "otel": traced.as_ref().map(traces),
        "checkpoints": snapshots(&status.checkpoints),
        "roll": roll(&status.roll),
        "venues": status.channels.iter().map(venue).collect::<Vec<_>>(),
        "clients": served.as_ref().map(clients),
        "multicast": sent.as_ref().map(multicast),
    })
}
