//! The summary as JSON.

use std::path::Path;

use serde_json::{Value, json};
use tapeworks_market::nbbo::BestSide;
use tapeworks_market::{Flags, Level};
use tapeworks_time::clock;

use super::{Busy, Summary};

impl Summary {
    /// Converts the summary to JSON for programs, with the first 100 gaps and problems. [`crate::replay`] documents the fields.
    pub fn to_json(&self) -> Value {
        let times = &self.service_times;
        let level = |level: Option<Level>| {
            level.map(
                |level| json!({ "price": level.price.to_string(), "size": level.size, "orders": level.orders }),
            )
        };
        let side = |side: &BestSide| {
            side.price.map(|price| {
                json!({ "price": price.to_string(), "size": side.size, "venue": side.publisher.venue_name() })
            })
        };
        let busiest = |busy: &Busy| {
            json!({
                "symbol": busy.symbol.as_str(),
                "events": busy.events,
                "nbbo": busy.nbbo.as_ref().map(|nbbo| json!({
                    "bid": side(&nbbo.bid),
                    "ask": side(&nbbo.ask),
                    "state": nbbo.state().as_str(),
                    "is_stale": nbbo.flags.contains(Flags::MAYBE_BAD_BOOK),
                })),
                "last_two_sided_nbbo": busy.last_two_sided.as_ref().map(|(time, last)| json!({
                    "since_ns": time.0,
                    "bid": side(&last.bid),
                    "ask": side(&last.ask),
                })),
                "tops": busy.tops.iter().map(|top| json!({
                    "venue": top.publisher.venue_name(),
                    "bid": level(top.bid),
                    "ask": level(top.ask),
                    "is_stale": top.is_stale,
                })).collect::<Vec<_>>(),
            })
        };
        let name = |path: &Path| path.display().to_string();
        json!({
            "files": self.files,
            "files_without_day": self.without_day,
            "packets_without_time": self.file_counters.without_time,
            "packets_with_time_out_of_range": self.file_counters.time_out_of_range,
            "unverified_datagrams": self.file_counters.unverified,
            "end_marks": self.file_counters.end_marks,
            "inferred_protocols": self.inferred.iter().map(|(destination, protocol)| json!({
                "destination": destination.to_string(),
                "protocol": protocol,
            })).collect::<Vec<_>>(),
            "foreign_packets": self.feed_counters.foreign_packets,
            "session_bytes": self.feed_counters.session_bytes,
            "skipped_stream_bytes": self.feed_counters.skipped_stream_bytes,
            "damaged_files": self.complaints().collect::<Vec<_>>(),
            "is_interrupted": self.is_interrupted,
            "is_clean": self.is_clean(),
            "messages": self.messages,
            "events": self.events,
            "instruments": self.symbols.len(),
            "unseen_symbols": self.unseen_symbols.iter().map(tapeworks_market::Symbol::as_str).collect::<Vec<_>>(),
            "elapsed_seconds": self.elapsed.as_secs_f64(),
            "messages_per_second": self.messages as f64 / self.elapsed.as_secs_f64().max(1e-9),
            "mean_ns_per_message": self.mean_ns(),
            "service_time_ns": (!times.is_empty()).then(|| json!({
                "measured": times.len(),
                "mean": times.mean(),
                "p50": times.value_at_quantile(0.5),
                "p99": times.value_at_quantile(0.99),
                "p999": times.value_at_quantile(0.999),
                "max": times.max(),
            })),
            "first_time": self.times.map(|(first, _)| clock::iso(first)),
            "last_time": self.times.map(|(_, last)| clock::iso(last)),
            "worst_lateness_ns": self.worst_lateness.map(|lateness| lateness.as_nanos() as u64),
            "channels": self.channels.iter().map(|channel| json!({
                "channel": channel.identity.to_string(),
                "protocol": channel.application.protocol(),
                "venue": channel.publisher.venue_name(),
                "is_venue_presumed": channel.is_venue_presumed,
                "lines": channel.lines,
                "packets": channel.counters.packets,
                "messages": channel.counters.messages,
                "heartbeats": channel.counters.heartbeats,
                "repeated_messages": channel.sequence.duplicate_messages,
                "late_messages": channel.sequence.late_messages,
                "gaps": channel.sequence.gaps,
                "missing_messages": channel.sequence.missing_messages,
                "implausible_packets": channel.sequence.implausible_packets,
            })).collect::<Vec<_>>(),
            "first_gaps": self.gaps.iter().take(100).map(|gap| json!({
                "channel": self.channels.get(gap.channel).map(|channel| channel.identity.to_string()),
                "first": gap.first,
                "count": gap.count,
                "received": clock::iso(gap.received),
            })).collect::<Vec<_>>(),
            "books": self.feeds.iter().map(|feed| json!({
                "venue": feed.publisher.venue_name(),
                "events": feed.counters.events,
                "orders": feed.orders,
                "incomplete_books": feed.contradicted,
                "table_growths": feed.growths,
                "unknown_orders": feed.counters.unknown_orders,
                "duplicate_orders": feed.counters.duplicate_orders,
                "overfills": feed.counters.overfills,
                "incomplete": feed.counters.incomplete,
                "unknown_levels": feed.counters.unknown_levels,
                "level_mismatches": feed.counters.level_mismatches,
                "instruments_beyond": feed.counters.instruments_beyond,
                "gaps": feed.counters.gaps,
            })).collect::<Vec<_>>(),
            "nbbo": self.nbbo.as_ref().map(|nbbo| json!({
                "changes": nbbo.changes,
                "locked": nbbo.locked,
                "crossed": nbbo.crossed,
                "ignored_events": self.nbbo_ignored,
            })),
            "problems": self.problems_json(),
            "busiest": self.busiest.iter().map(busiest).collect::<Vec<_>>(),
            "lacking": self.lacking().collect::<Vec<_>>(),
            "written": self.written.iter().map(|written| json!({
                "file": name(&written.path),
                "schema": written.schema.as_str(),
                "records": written.summary.records,
                "bytes": written.summary.bytes,
                "values_out_of_range": written.summary.out_of_range,
                "skipped": written.summary.all_skipped()
                    .map(|(reason, count)| (reason.as_str().to_owned(), count.into()))
                    .collect::<serde_json::Map<_, _>>(),
            })).collect::<Vec<_>>(),
        })
    }

    fn problems_json(&self) -> serde_json::Value {
        json!({
            "total": self.problems.total,
            "bad_headers": self.problems.bad_headers,
            "bad_checksums": self.problems.bad_checksums,
            "cut_packets": self.problems.cut_packets,
            "bad_framing": self.problems.bad_framing,
            "unknown_messages": self.problems.unknown_messages,
            "bad_messages": self.problems.bad_messages,
            "stream_holes": self.problems.stream_holes,
            "contradictions": self.problems.contradictions,
            "unreadable_symbols": self.unreadable_symbols,
            "unrecognised_packets": self.feed_counters.unrecognised_packets,
            "first": self.problems.kept().iter().take(100).map(|problem| json!({
                "file": self.files.get(usize::from(problem.file)),
                "packet": problem.packet,
                "offset": problem.offset,
                "problem": problem.kind.to_string(),
            })).collect::<Vec<_>>(),
        })
    }
}
