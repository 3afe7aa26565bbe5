//! All counters of a gateway, in Prometheus' text format (version 0.0.4).

use tapeworks_gateway::status::{ClientStatus, Counters, Percentiles, Refusals, Status, Translated};
use tapeworks_plant::Condition;
use tapeworks_runtime::traces::TraceStatus;
use tapeworks_time::Nanos;

use super::conditions::conditions;
use super::files;
use super::prometheus::{self, Kind, Text, seconds};

/// Returns all metrics, including those of the page's server.
pub(super) fn text(
    status: &Status,
    now: Nanos,
    web: &[(&'static str, &'static str, u64)],
    followed: &files::Files,
    exported: Option<&TraceStatus>,
) -> String {
    use Kind::{Counter, Gauge};
    let mut text = Text::default();
    text.family("build_info", Gauge, "The version that runs, as a label");
    text.sample("build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
    let conditions = conditions(status, now);
    let ready = u8::from(conditions.iter().all(Condition::is_met));
    text.one("gateway_ready", Gauge, "1 when orders can reach the venue", ready);
    text.family("gateway_ready_condition", Gauge, "1 when the condition of readiness is met");
    for condition in &conditions {
        let labels = [("condition", condition.name)];
        text.sample("gateway_ready_condition", &labels, u8::from(condition.is_met()));
    }
    let reported = "When the gateway last wrote its status, in seconds since the epoch";
    text.one("gateway_status_time_seconds", Gauge, reported, seconds(status.time_ns));
    let halted = "1 while the kill switch of all clients is on";
    text.one("gateway_halted", Gauge, halted, u8::from(status.is_halted));
    let queued = "Messages that wait for the venue's throttle";
    text.one("gateway_queued_messages", Gauge, queued, status.queued);
    text.one("gateway_open_orders", Gauge, "Working orders", status.open_orders);
    let known = "Orders that the gateway knows, ended ones included";
    text.one("gateway_known_orders", Gauge, known, status.known_orders);
    let refused = "Connections refused or ended before they were a client's";
    text.one("gateway_refused_connections_total", Counter, refused, status.refused_connections);
    let written = "Bytes written to the store since the start";
    text.one("gateway_store_bytes_total", Counter, written, status.store_bytes);
    counters(&mut text, &status.counters);
    translated(&mut text, &status.translated);
    let reasons = "Messages of clients that the gateway refused, by reason";
    text.each(("gateway_refusals_total", Counter, reasons), &status.refusals, reason_label, |one| {
        one.count as f64
    });
    let trip = "From a request's arrival to the venue's first report of it";
    percentiles(&mut text, "gateway_round_trip", trip, &status.round_trip);
    last_second(&mut text, &status.last_second);
    let turn = "From the end of the wait for sockets to the last byte sent";
    percentiles(&mut text, "gateway_turn", turn, &status.turn);
    clients(&mut text, &status.clients);
    for (name, help, count) in web {
        text.one(&format!("web_{name}_total"), Counter, help, count);
    }
    files::metrics(&mut text, followed);
    if let Some(status) = exported {
        prometheus::traces(&mut text, status);
    }
    text.out
}

fn counters(text: &mut Text, counters: &Counters) {
    let Counters { unsent, unmatched, missing, unkept, slow_clients, venue_ends, unanswered_requests } =
        *counters;
    let all = [
        ("unsent", "Messages to the venue that its session did not take", unsent),
        ("unmatched_reports", "Reports of no known order, or that do not fit", unmatched),
        ("missing_reports", "Reports that the venue does not have any more", missing),
        ("unkept_replies", "Replies that could not be kept for a client", unkept),
        (
            "unanswered_requests",
            "Requests for missed reports that the venue did not answer in time",
            unanswered_requests,
        ),
        ("slow_clients", "Clients whose connection was ended because they read too slowly", slow_clients),
        ("venue_ends", "Times that the venue's session ended", venue_ends),
    ];
    for (name, help, count) in all {
        text.one(&format!("gateway_{name}_total"), Kind::Counter, help, count);
    }
}

fn translated(text: &mut Text, translated: &Translated) {
    // Without `..`, so that a new counter of the translator must be added here.
    let Translated {
        client_messages,
        requests,
        refused,
        breaches,
        possible_resends,
        ignored_fields,
        venue_messages,
        reports,
        fills,
        repeated_reports,
        missing_reports,
        unreadable,
        unknown_orders,
        unexpected,
        repeated_executions,
        doubtful,
        forgotten,
        own_cancels,
        own_cancels_failed,
        doubts,
    } = *translated;
    let all = [
        ("client_messages", "Messages of clients", client_messages),
        ("requests", "Requests sent to the venue", requests),
        ("refused", "Messages of clients that the gateway refused", refused),
        ("breaches", "Of the refused, those refused by a limit or the kill switch", breaches),
        (
            "possible_resends",
            "Messages with PossResend whose ClOrdID was known, and so ignored",
            possible_resends,
        ),
        ("ignored_fields", "Fields that a client's settings ignore", ignored_fields),
        ("venue_messages", "Messages of the venue", venue_messages),
        ("reports", "Reports sent to clients", reports),
        ("fills", "Fills sent to clients", fills),
        ("repeated_reports", "Reports of the venue that came a second time", repeated_reports),
        ("missing_reports", "Numbers of reports of the venue that were skipped", missing_reports),
        ("unreadable", "Messages of the venue that are no reports", unreadable),
        ("unknown_orders", "Reports of orders and requests that are not known", unknown_orders),
        ("unexpected", "Reports that do not fit the state of their order", unexpected),
        (
            "repeated_executions",
            "Fills and changes of orders that the venue reported again under another number, and that were left out",
            repeated_executions,
        ),
        ("doubtful", "Reports of orders that are in doubt: their clients got the reason", doubtful),
        ("forgotten", "Ended orders forgotten to make room", forgotten),
        (
            "own_cancels",
            "Cancels by the gateway itself: of clients that are gone, and of orders in doubt",
            own_cancels,
        ),
        (
            "own_cancels_failed",
            "Of these, those that the venue rejected although the order works",
            own_cancels_failed,
        ),
        ("doubts", "Requests in doubt after the connection to the venue broke", doubts),
    ];
    for (name, help, count) in all {
        text.one(&format!("gateway_translated_{name}_total"), Kind::Counter, help, count);
    }
}

fn percentiles(text: &mut Text, name: &str, help: &str, of: &Percentiles) {
    let family = format!("{name}_seconds");
    text.family(&family, Kind::Gauge, &format!("{help}, since the start"));
    quantiles(text, &family, of);
    text.one(&format!("{name}s_total"), Kind::Counter, &format!("{help}: how many"), of.count);
}

/// Writes the percentiles of the last whole second, unless nothing was measured in it.
fn last_second(text: &mut Text, of: &Percentiles) {
    let family = "gateway_last_second_round_trip_seconds";
    text.family(family, Kind::Gauge, "The round trips of the last whole second; nothing if there were none");
    if of.count > 0 {
        quantiles(text, family, of);
    }
}

fn quantiles(text: &mut Text, family: &str, of: &Percentiles) {
    let all = [("0.5", of.p50_ns), ("0.99", of.p99_ns), ("0.999", of.p99_9_ns), ("1", of.longest_ns)];
    for (quantile, nanoseconds) in all {
        text.sample(family, &[("quantile", quantile)], seconds(nanoseconds));
    }
}

fn clients(text: &mut Text, clients: &[ClientStatus]) {
    use Kind::{Counter, Gauge};
    type Get = fn(&ClientStatus) -> u64;
    let all: [(&str, Kind, &str, Get); 11] = [
        ("logged_on", Gauge, "1 while the client is logged on", |one| u64::from(one.is_logged_on)),
        ("halted", Gauge, "1 while the client's kill switch is on", |one| u64::from(one.is_halted)),
        ("next_incoming", Gauge, "The number of the next message from the client", |one| one.next_incoming),
        ("next_outgoing", Gauge, "The number of the next message to the client", |one| one.next_outgoing),
        ("waiting_bytes", Gauge, "Bytes that wait for the client", |one| one.waiting_bytes),
        ("open_orders", Gauge, "Working orders of the client", |one| one.open_orders),
        ("received_messages_total", Counter, "Messages received since the client connected", |one| {
            one.received
        }),
        ("rejects_total", Counter, "Session rejects since the client connected", |one| one.rejects),
        ("duplicates_total", Counter, "Messages received twice since the client connected", |one| {
            one.duplicates
        }),
        ("resend_requests_total", Counter, "ResendRequests sent since the client connected", |one| {
            one.resend_requests
        }),
        ("garbled_total", Counter, "Garbled pieces skipped since the client connected", |one| one.garbled),
    ];
    for (name, kind, help, get) in all {
        text.each((&format!("gateway_client_{name}"), kind, help), clients, client_label, |one| {
            get(one) as f64
        });
    }
}

fn client_label(client: &ClientStatus) -> [(&str, &str); 1] {
    [("client", client.name.as_str())]
}

fn reason_label(refusals: &Refusals) -> [(&str, &str); 1] {
    [("reason", refusals.reason.as_ref())]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Returns the families of an answer.
    fn families(answer: &str) -> BTreeSet<&str> {
        let types = answer.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        types.filter_map(|line| line.split(' ').next()).collect()
    }

    fn full() -> String {
        let client = ClientStatus { name: "al\"pha".to_owned(), next_outgoing: 7, ..ClientStatus::default() };
        let last_second = Percentiles { count: 2, p50_ns: 1_500, ..Percentiles::default() };
        let status = Status { clients: vec![client], last_second, ..Status::default() };
        text(&status, Nanos(1), &[("requests", "Requests answered", 3)], &[], Some(&TraceStatus::default()))
    }

    #[test]
    fn each_family_is_there_once_and_each_sample_is_of_a_family() {
        let answer = full();
        let families = families(&answer);
        assert_eq!(answer.lines().filter(|line| line.starts_with("# TYPE ")).count(), families.len());
        for line in answer.lines().filter(|line| !line.starts_with('#')) {
            let name = line.split([' ', '{']).next().unwrap();
            assert!(families.contains(name), "{line}");
        }
        assert!(
            answer.contains("tapeworks_gateway_client_next_outgoing{client=\"al\\\"pha\"} 7\n"),
            "{answer}"
        );
        assert!(
            answer.contains("tapeworks_gateway_last_second_round_trip_seconds{quantile=\"0.5\"} 0.0000015\n")
        );
        assert!(answer.contains("tapeworks_gateway_ready 0\n"));
    }

    #[test]
    fn every_metric_of_the_dashboard_exists() {
        let answer = full();
        let families = families(&answer);
        let dashboard = include_str!("../../tests/grafana-gateway.json");
        let parsed: serde_json::Value = serde_json::from_str(dashboard).unwrap();
        let panels = parsed["panels"].as_array().unwrap();
        let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
        let mut expressions = 0;
        for expression in targets.map(|target| target["expr"].as_str().unwrap()) {
            expressions += 1;
            let words = expression.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
            for name in words.filter(|word| word.starts_with("tapeworks_")) {
                assert!(families.contains(name), "the dashboard names {name}, which /metrics does not have");
            }
        }
        assert!(expressions > 15, "{expressions}");
    }
}
