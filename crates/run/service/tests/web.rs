//! The page's server over loopback: every path, who may look, and what they get.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![cfg(feature = "web")]

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tapeworks_generator::VenueKind;
use tapeworks_market::Publisher;
use tapeworks_market::event::Line;
use tapeworks_outputs::aeron::{AeronHandle, AeronStatus};
use tapeworks_outputs::clients::server::Stats;
use tapeworks_outputs::kafka::KafkaStatus;
use tapeworks_outputs::multicast::server::MulticastStats;
use tapeworks_outputs::questdb::QuestDbStatus;
use tapeworks_plant::view::Watch;
use tapeworks_plant::{
    ChannelStatus, CheckpointStatus, DelayBuckets, DelayPoint, DelayStatus, EngineStatus, InterfaceStatus,
    JournalStatus, LineStatus, RingStatus, RolledDay, Status,
};
use tapeworks_runtime::refusals::OnRefusal;
use tapeworks_runtime::secrets::Secret;
use tapeworks_runtime::traces::{TraceHandle, TraceStatus};
use tapeworks_runtime::transport::Acceptor;
use tapeworks_service::config::{Config, WebSetting};
use tapeworks_service::nats::{NatsHandle, NatsStatus};
use tapeworks_service::report::Handles;
use tapeworks_service::service::{Service, ServiceError};
use tapeworks_service::web::{self, Web, WebError};
use tapeworks_time::Nanos;
use tapeworks_venues::{Config as VenuesConfig, Venue, Venues};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{self, Message};

const TOKEN: &str = "a token that is long enough";

fn now() -> Nanos {
    Nanos(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64)
}

fn line(line: Line, won: u64) -> LineStatus {
    LineStatus {
        line,
        address: "239.1.1.1:30001".parse().unwrap(),
        counters: tapeworks_follow::arbitration::LineCounters { won, ..Default::default() },
        is_silent: false,
        kernel_drops: 3,
        too_long: 0,
        buffer_bytes: 1 << 20,
        wanted_bytes: 0,
    }
}

fn channel(name: &str) -> ChannelStatus {
    ChannelStatus {
        session: "S1".to_owned(),
        next: Some(101),
        counters: tapeworks_follow::arbitration::ArbiterCounters { messages: 100, ..Default::default() },
        lines: vec![line(Line::A, 60), line(Line::B, 40)],
        snapshot_packets_ignored: 13,
        ..ChannelStatus::new(name, Publisher::XNAS_ITCH)
    }
}

fn status() -> Status {
    let mut buckets = DelayBuckets::default();
    buckets.add(1_500, 90);
    buckets.add(70_000, 10);
    Status {
        time: now(),
        started: now(),
        channels: vec![channel("Nasdaq")],
        engine: EngineStatus { messages: 100, ..EngineStatus::default() },
        ring: RingStatus { capacity: 1_024, ..RingStatus::default() },
        delays: DelayStatus {
            points: vec![DelayPoint {
                time: now(),
                messages: 100,
                p50: 1_500,
                p99: 70_000,
                p999: 70_000,
                max: 70_000,
            }],
            all: [1_500, 1_500, 70_000, 70_000, 70_000],
            buckets,
        },
        journal: Some(JournalStatus::default()),
        checkpoints: CheckpointStatus { written: 3, failed: 1, pause_ns: 2_000_000, ..Default::default() },
        interface: Some(InterfaceStatus { kernel_drops: 3, ..InterfaceStatus::default() }),
        ..Status::default()
    }
}

fn multicast() -> MulticastStats {
    MulticastStats {
        session: "2511140001".to_owned(),
        next: 501,
        oldest: 401,
        packets: 40,
        bytes: 30_000,
        unsent: 2,
        too_long: 3,
        requests: 9,
        answers: 7,
        answered_messages: 70,
        refused_requests: 1,
        unsent_answers: 4,
        clients: 5,
        connections: 12,
        refused_connections: 6,
        rejected_logins: 8,
        slow_clients: 10,
        malformed_clients: 11,
        tcp_messages: 900,
        ring_lag: 13,
        error: Some("no route".to_owned()),
    }
}

struct Shown {
    web: Web,
    handles: Handles,
    /// Reasons of reported refusals.
    refused: Arc<Mutex<Vec<String>>>,
}

impl Shown {
    fn with_token(token: Option<&str>) -> Self {
        Self::with(token, Some(QuestDbStatus { rows: 77, ..QuestDbStatus::default() }))
    }

    fn with(token: Option<&str>, questdb: Option<QuestDbStatus>) -> Self {
        let has_outputs = questdb.is_some();
        let handles = Handles {
            plant: Arc::new(Mutex::new(status())),
            clients: Some(Arc::new(Mutex::new(Stats::default()))),
            multicast: Some(Arc::new(Mutex::new(multicast()))),
            questdb: questdb.map(|status| Arc::new(Mutex::new(status))),
            nats: has_outputs
                .then(|| NatsHandle::new(|| NatsStatus { records: 78, ..NatsStatus::default() })),
            aeron: has_outputs.then(|| {
                AeronHandle::new(|| AeronStatus { items: 81, dropped_slow: 2, ..AeronStatus::default() })
            }),
            traces: has_outputs.then(|| {
                TraceHandle::new(|| TraceStatus { spans: 85, dropped: 3, ..TraceStatus::default() })
            }),
            kafka: has_outputs.then(|| {
                Arc::new(Mutex::new(KafkaStatus { records: 79, position: Some(3), ..KafkaStatus::default() }))
            }),
            watch: Watch::default(),
            has_replayed: Arc::new(AtomicBool::new(true)),
            stream: None,
        };
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let setting = WebSetting { address, token: token.map(Secret::from), stream: false, tls: None };
        let refused = Arc::new(Mutex::new(Vec::new()));
        let reasons = Arc::clone(&refused);
        let on_refusal: OnRefusal = Arc::new(move |one| reasons.lock().unwrap().push(one.reason.clone()));
        let web = web::plant::start(
            web::bind(setting.address, setting.token, Acceptor::Plain).unwrap(),
            handles.clone(),
            Some(on_refusal),
        )
        .unwrap();
        Self { web, handles, refused }
    }

    fn new() -> Self {
        Self::with_token(None)
    }

    fn address(&self) -> SocketAddr {
        self.web.address()
    }

    fn get(&self, path: &str) -> Answer {
        self.request("GET", path, &[], "")
    }

    fn request(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let mut text =
            format!("{method} {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
        if !headers.iter().any(|(name, _)| *name == "Host") {
            text += &format!("Host: {}\r\n", self.address());
        }
        for (name, value) in headers {
            text += &format!("{name}: {value}\r\n");
        }
        Answer::read(self.address(), &(text + "\r\n" + body))
    }

    fn change(&self, change: impl FnOnce(&mut Status)) {
        let mut status = self.handles.plant.lock().unwrap();
        change(&mut status);
        status.time = now();
    }
}

#[derive(Debug)]
struct Answer {
    code: u16,
    headers: HashMap<String, String>,
    body: String,
}

impl Answer {
    fn read(address: SocketAddr, request: &str) -> Self {
        Self::try_read(address, request).unwrap()
    }

    fn try_read(address: SocketAddr, request: &str) -> std::io::Result<Self> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        stream.write_all(request.as_bytes())?;
        let mut text = Vec::new();
        stream.read_to_end(&mut text)?;
        if text.is_empty() {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let text = String::from_utf8(text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text.as_str(), ""));
        let code = head.split(' ').nth(1).unwrap().parse().unwrap();
        let headers = head.lines().skip(1).filter_map(|line| line.split_once(": "));
        let headers = headers.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
        Ok(Self { code, headers, body: body.to_owned() })
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

#[test]
fn the_page_and_all_its_parts_are_served_with_a_strict_policy() {
    let shown = Shown::new();
    let page = shown.get("/");
    assert_eq!(page.code, 200);
    assert!(page.body.contains("synthetic NBBO"));
    assert!(
        !page.body.contains("<script>") && !page.body.contains(" style="),
        "nothing stands in the page itself"
    );
    let parts = page.body.split(['"']).filter(|part| {
        part.starts_with('/') && (part.ends_with(".js") || part.ends_with(".css") || part.ends_with(".svg"))
    });
    let mut wanted: BTreeSet<String> = parts.map(str::to_owned).collect();
    let mut seen = BTreeSet::new();
    while let Some(path) = wanted.pop_first() {
        let part = shown.get(&path);
        assert_eq!(part.code, 200, "{path}");
        let imports = part.body.split("from \"./").skip(1).filter_map(|rest| rest.split('"').next());
        wanted.extend(imports.map(|file| format!("/{file}")).filter(|file| !seen.contains(file)));
        for (name, value) in [("x-content-type-options", "nosniff"), ("referrer-policy", "same-origin")] {
            assert_eq!(part.headers[name], value);
        }
        let policy = &part.headers["content-security-policy"];
        assert!(policy.contains("default-src 'none'; script-src 'self'; style-src 'self';"), "{policy}");
        let known = shown.request("GET", &path, &[("If-None-Match", &part.headers["etag"])], "");
        assert_eq!((known.code, known.body.as_str()), (304, ""));
        seen.insert(path);
    }
    assert!(seen.contains("/outputs.js"));
    assert!(seen.contains("/page.js") && seen.contains("/book.js") && seen.contains("/vendor/uPlot.min.css"));
    for path in ["/nothing", "/../Cargo.toml", "/%2e%2e/Cargo.toml", "/login.html", "//etc/passwd"] {
        assert_eq!(shown.get(path).code, 404, "{path}");
    }
    assert_eq!(shown.request("POST", "/", &[], "").code, 405);
}

#[test]
fn without_a_token_only_names_of_this_machine_are_answered() {
    let shown = Shown::new();
    let port = shown.address().port();
    for name in ["localhost", "127.0.0.1", "[::1]"] {
        assert_eq!(
            shown.request("GET", "/status.json", &[("Host", &format!("{name}:{port}"))], "").code,
            200
        );
    }
    for host in [format!("evil.example:{port}"), "localhost".to_owned(), format!("localhost:{}", port ^ 1)] {
        let refused = shown.request("GET", "/status.json", &[("Host", &host)], "");
        assert_eq!(refused.code, 421, "{host}");
        assert!(refused.body.contains("Host"), "{}", refused.body);
    }
    let foreign = shown.request("GET", "/status.json", &[("Origin", "http://evil.example")], "");
    assert_eq!(foreign.code, 403);
    let status = shown.get("/status.json").json();
    assert_eq!(
        (status["web"]["refused_host"].as_u64(), status["web"]["refused_origin"].as_u64()),
        (Some(3), Some(1))
    );
    // All from one address: reported once.
    assert_eq!(*shown.refused.lock().unwrap(), ["a Host header of another server"]);
    // There is nothing to log in to.
    assert_eq!(shown.get("/login").headers["location"], "/");
}

#[test]
fn a_configured_token_opens_every_page_and_nothing_opens_without_it() {
    let shown = Shown::with_token(Some(TOKEN));
    for path in ["/metrics", "/status.json", "/ready", "/live", "/page.js", "/nothing"] {
        let refused = shown.get(path);
        assert_eq!(refused.code, 401, "{path}");
        assert_eq!(refused.headers["www-authenticate"], "Bearer");
        assert!(!refused.body.contains(TOKEN));
    }
    assert_eq!((shown.get("/").code, shown.get("/").headers["location"].as_str()), (303, "/login"));
    assert_eq!(
        (shown.get("/health").code, shown.get("/login").code, shown.get("/style.css").code),
        (200, 200, 200)
    );
    let bearer =
        |token: &str| shown.request("GET", "/metrics", &[("Authorization", &format!("Bearer {token}"))], "");
    assert_eq!((bearer(TOKEN).code, bearer("wrong").code, bearer("").code), (200, 401, 401));

    let form = [("Content-Type", "application/x-www-form-urlencoded")];
    let wrong = shown.request("POST", "/login", &form, "token=wrong");
    assert_eq!(wrong.code, 401);
    assert!(wrong.body.contains("not the token") && !wrong.headers.contains_key("set-cookie"));
    let right = shown.request("POST", "/login", &form, &format!("token={}", TOKEN.replace(' ', "+")));
    assert_eq!((right.code, right.headers["location"].as_str()), (303, "/"));
    let cookie = &right.headers["set-cookie"];
    assert!(
        cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict") && !cookie.contains(TOKEN),
        "{cookie}"
    );
    let cookie = cookie.split(';').next().unwrap();
    assert_eq!(shown.request("GET", "/", &[("Cookie", cookie)], "").code, 200);
    assert_eq!(shown.request("GET", "/", &[("Cookie", &format!("{cookie}0"))], "").code, 303);
    assert_eq!(shown.request("POST", "/login", &form, &"x".repeat(10_000)).code, 413);
}

/// The samples of a text in Prometheus' format: each family has a type, a help, and at least a name that fits.
fn parse(text: &str) -> BTreeMap<String, Vec<(String, f64)>> {
    let mut families: BTreeMap<String, (String, bool)> = BTreeMap::new();
    let mut samples: BTreeMap<String, Vec<(String, f64)>> = BTreeMap::new();
    let mut order = Vec::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(help.len() > 5 && help.ends_with('.'), "{line}");
            assert!(families.insert(name.to_owned(), (String::new(), true)).is_none(), "twice: {name}");
            order.push(name.to_owned());
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            families.get_mut(name).unwrap().0 = kind.to_owned();
        } else {
            let (sample, value) = line.rsplit_once(' ').unwrap();
            let (name, labels) = sample.split_once('{').unwrap_or((sample, ""));
            let suffixes = ["_bucket", "_sum", "_count"];
            let family = suffixes
                .iter()
                .find_map(|suffix| name.strip_suffix(suffix).filter(|base| families.contains_key(*base)))
                .unwrap_or(name);
            assert_eq!(order.last().unwrap(), family, "samples stand below their family");
            assert!(name.starts_with("tapeworks_"), "{name}");
            // As promtool's lint has it: base units, and quantiles of summaries alone.
            let units =
                ["days", "hours", "minutes", "milliseconds", "microseconds", "nanoseconds", "megabytes"];
            assert!(!name.split('_').any(|word| units.contains(&word)), "{name}");
            assert!(!labels.contains("quantile="), "{line}");
            assert_eq!(families[family].0 == "counter", name.ends_with("_total"), "{name}");
            let value: f64 = value.parse().unwrap();
            samples
                .entry(name.to_owned())
                .or_default()
                .push((labels.trim_end_matches('}').to_owned(), value));
        }
    }
    samples
}

#[test]
fn metrics_have_names_units_and_help_and_equal_the_status() {
    let shown = Shown::new();
    let answer = shown.get("/metrics");
    assert_eq!(answer.headers["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    let samples = parse(&answer.body);
    let of = |name: &str, labels: &str| {
        let found = samples[name].iter().find(|(known, _)| known == labels);
        found.unwrap_or_else(|| panic!("{name}{{{labels}}}: {:?}", samples[name])).1
    };
    assert_eq!(of("tapeworks_messages_total", ""), 100.0);
    assert_eq!(of("tapeworks_ready", ""), 1.0);
    assert_eq!(of("tapeworks_checkpoints_total", ""), 3.0);
    assert_eq!(of("tapeworks_checkpoint_failures_total", ""), 1.0);
    assert_eq!(of("tapeworks_checkpoint_pause_seconds", "thread=\"ingest\""), 0.002);
    assert_eq!(of("tapeworks_line_won_messages_total", "venue=\"Nasdaq\",line=\"B\""), 40.0);
    assert_eq!(of("tapeworks_channel_next_sequence", "venue=\"Nasdaq\",feed=\"XNAS.ITCH\""), 101.0);
    let ignored = "tapeworks_channel_snapshot_packets_ignored_total";
    assert_eq!(of(ignored, "venue=\"Nasdaq\",feed=\"XNAS.ITCH\""), 13.0);
    assert_eq!(of("tapeworks_delay_seconds_bucket", "le=\"0.000002\""), 90.0);
    assert_eq!(of("tapeworks_delay_seconds_bucket", "le=\"+Inf\""), 100.0);
    assert_eq!(of("tapeworks_delay_seconds_count", ""), 100.0);
    let sum = of("tapeworks_delay_seconds_sum", "");
    assert!((sum - 835e-6).abs() < 1e-9, "{sum}");
    assert_eq!(of("tapeworks_questdb_rows_total", ""), 77.0);
    assert_eq!(of("tapeworks_nats_records_total", ""), 78.0);
    assert_eq!(of("tapeworks_aeron_items_total", ""), 81.0);
    assert_eq!(
        (of("tapeworks_otel_spans_total", ""), of("tapeworks_otel_dropped_traces_total", "")),
        (85.0, 3.0)
    );
    assert_eq!(of("tapeworks_kafka_records_total", ""), 79.0);
    assert_eq!(of("tapeworks_kafka_position", ""), 3.0);
    // Each counter of the multicast is there, once, as it stands in `status.json`.
    let status = shown.get("/status.json").json()["multicast"].clone();
    let families = [
        ("messages_total", "messages", 500),
        ("packets_total", "packets", 40),
        ("bytes_total", "bytes", 30_000),
        ("unsent_packets_total", "unsent", 2),
        ("too_long_messages_total", "too_long", 3),
        ("requests_total", "requests", 9),
        ("answers_total", "answers", 7),
        ("answered_messages_total", "answered_messages", 70),
        ("refused_requests_total", "refused_requests", 1),
        ("unsent_answers_total", "unsent_answers", 4),
        ("clients", "clients", 5),
        ("connections_total", "connections", 12),
        ("refused_connections_total", "refused_connections", 6),
        ("rejected_logins_total", "rejected_logins", 8),
        ("slow_clients_total", "slow_clients", 10),
        ("malformed_clients_total", "malformed_clients", 11),
        ("tcp_messages_total", "tcp_messages", 900),
        ("ring_lag_events", "ring_lag", 13),
    ];
    for (family, key, value) in families {
        assert_eq!(of(&format!("tapeworks_multicast_{family}"), ""), value as f64, "{family}");
        assert_eq!(status[key], value, "{key}");
    }
    assert_eq!(of("tapeworks_multicast_kept_messages", ""), 100.0);
    assert_eq!((&status["session"], &status["error"]), (&json!("2511140001"), &json!("no route")));
    shown.change(|status| status.channels[0].is_joining = true);
    let samples = parse(&shown.get("/metrics").body);
    assert_eq!(samples["tapeworks_ready"][0].1, 0.0);
}

#[test]
fn parts_that_are_not_configured_are_shown_as_null() {
    let shown = Shown::with(None, None);
    let status = || shown.get("/status.json").json();
    assert_eq!(status()["checkpoints"]["every_ns"], Value::Null);
    assert_eq!(status()["roll"], json!({ "is_on": false, "running": null, "done": [] }));
    let days =
        [(Ok((2, 30)), None), (Ok((1, 9)), Some(Nanos(7))), (Err("the disk is full".to_owned()), None)];
    shown.change(|status| {
        status.checkpoints.every = Some(Duration::from_secs(60));
        status.roll.is_on = true;
        let date = "2025-11-14".parse().unwrap();
        status.roll.done.extend(days.map(|(outcome, from)| RolledDay { date, outcome, from }));
    });
    assert_eq!(status()["checkpoints"]["every_ns"], 60_000_000_000_u64);
    assert!(
        ["questdb", "nats", "kafka", "aeron", "otel"].iter().all(|output| status()[output] == Value::Null)
    );
    let day = |files: u64, records: u64, from: Value, error: Value| json!({ "date": "2025-11-14", "files": files, "records": records, "from_ns": from, "error": error });
    let expected = [
        day(2, 30, Value::Null, Value::Null),
        day(1, 9, json!(7), Value::Null),
        day(0, 0, Value::Null, json!("the disk is full")),
    ];
    assert_eq!(status()["roll"]["done"], json!(expected));
    let samples = parse(&shown.get("/metrics").body);
    for output in ["tapeworks_questdb", "tapeworks_nats", "tapeworks_kafka", "tapeworks_aeron"] {
        assert!(!samples.keys().any(|name| name.starts_with(output)));
    }
    let one = |name: &str| samples[name][0].1;
    assert_eq!((one("tapeworks_roll_done_total"), one("tapeworks_roll_failures_total")), (2.0, 1.0));
}

#[test]
fn every_metric_of_the_dashboard_exists() {
    let shown = Shown::new();
    let mut client = parse(&shown.get("/metrics").body);
    // Of clients there are none here; their families are shown all the same.
    for line in shown.get("/metrics").body.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        client.entry(line.split(' ').next().unwrap().to_owned()).or_default();
    }
    let dashboard = include_str!("grafana.json");
    let parsed: Value = serde_json::from_str(dashboard).unwrap();
    let mut expressions = Vec::new();
    fn collect(value: &Value, to: &mut Vec<String>) {
        match value {
            Value::Object(object) => {
                for (key, value) in object {
                    match value {
                        Value::String(text) if key == "expr" => to.push(text.clone()),
                        value => collect(value, to),
                    }
                }
            }
            Value::Array(all) => all.iter().for_each(|value| collect(value, to)),
            _ => {}
        }
    }
    collect(&parsed, &mut expressions);
    assert!(expressions.len() > 15, "{expressions:?}");
    for expression in &expressions {
        let words = expression.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        let names: Vec<_> = words.filter(|word| word.starts_with("tapeworks_")).collect();
        assert!(!names.is_empty(), "{expression}");
        for name in names {
            assert!(client.contains_key(name), "the dashboard names {name}, which /metrics does not have");
        }
    }
}

#[test]
fn it_is_ready_when_every_condition_is_met_and_says_which_is_not() {
    let shown = Shown::new();
    let ready = || {
        let answer = shown.get("/ready");
        let reasons = answer.json()["reasons"].as_array().unwrap().len();
        (answer.code, reasons, answer.body)
    };
    assert_eq!((ready().0, ready().1), (200, 0));
    shown.change(|status| {
        status.channels.push(ChannelStatus { next: None, ..channel("BX") });
        status.channels.push(ChannelStatus { is_joining: true, ..channel("PSX") });
    });
    let (code, reasons, body) = ready();
    assert_eq!((code, reasons), (503, 2));
    assert!(body.contains("'BX'") && body.contains("'PSX' is not followed yet"), "{body}");
    shown.change(|status| status.channels.clear());
    assert_eq!((ready().0, ready().1), (503, 1));
    shown.change(|status| status.channels.push(channel("Nasdaq")));
    shown.handles.has_replayed.store(false, Ordering::Release);
    assert!(ready().2.contains("journal"), "{}", ready().2);
    shown.handles.has_replayed.store(true, Ordering::Release);
    // Its thread stands still.
    shown.handles.plant.lock().unwrap().time = Nanos(now().0 - 60_000_000_000);
    let (code, _, body) = ready();
    assert_eq!(code, 503);
    assert!(body.contains("has reported nothing for"), "{body}");
    shown.handles.plant.lock().unwrap().time = now();
    // All venues are silent, or stale, or the journal loses everything.
    let unmet = || -> Vec<String> {
        let conditions = shown.get("/ready").json()["conditions"].clone();
        let all = conditions.as_array().unwrap().iter().filter(|condition| condition["is_met"] == false);
        all.map(|condition| condition["name"].as_str().unwrap().to_owned()).collect()
    };
    assert!(unmet().is_empty());
    let failing = JournalStatus {
        is_failing: true,
        error: Some("the disk is full".to_owned()),
        ..JournalStatus::default()
    };
    shown.change(|status| status.channels[0].is_silent = true);
    assert_eq!(unmet(), ["venues_heard"]);
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    shown.change(|status| status.channels[0].recovering_since = Some(Nanos(now())));
    assert_eq!(unmet(), ["venues_heard"], "what is requested for a moment only");
    shown.change(|status| status.channels[0].recovering_since = Some(Nanos(now() - 2 * Nanos::SECOND)));
    assert_eq!(unmet(), ["venues_heard", "venues_recovered"]);
    shown.change(|status| status.channels[0].recovering_since = None);
    shown.change(|status| status.channels[0].is_stale = true);
    assert_eq!(unmet(), ["venues_heard", "books_sound"]);
    shown.change(|status| status.journal = Some(failing));
    assert_eq!(unmet(), ["journal_written", "venues_heard", "books_sound"]);
    assert!(ready().2.contains("the journal loses inputs: the disk is full"));
    assert_eq!(shown.get("/status.json").json()["is_ready"], false);
    assert_eq!((shown.get("/health").code, shown.get("/health").body.as_str()), (200, "alive\n"));
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(40), future).await.unwrap() })
}

#[test]
fn the_socket_of_the_page_sends_changes_and_refuses_foreign_origins() {
    let shown = Shown::new();
    let address = shown.address();
    block_on(async {
        let url = format!("ws://{address}/live");
        let mut request = url.as_str().into_client_request().unwrap();
        request.headers_mut().insert("Origin", "http://evil.example".parse().unwrap());
        let refused = tokio_tungstenite::connect_async(request).await.unwrap_err().to_string();
        assert!(refused.contains("403"), "{refused}");

        let (mut socket, _) = tokio_tungstenite::connect_async(url.as_str()).await.unwrap();
        socket.send(Message::text(r#"{"symbol":"AAPL","search":"","most":5}"#)).await.unwrap();
        let first: Value =
            serde_json::from_str(socket.next().await.unwrap().unwrap().to_text().unwrap()).unwrap();
        assert_eq!(first["status"]["venues"][0]["venue"], "Nasdaq");
        assert_eq!(first["delays"].as_array().unwrap().len(), 1);
        assert_eq!(
            (&first["book"], &first["list"]),
            (&Value::Null, &json!({ "search": "", "total": 0, "matching": 0, "rows": [], "busiest": null }))
        );
        shown.change(|status| {
            status.engine.messages = 777;
            status.delays.points.push(DelayPoint { time: now(), messages: 9, ..DelayPoint::default() });
        });
        let mut points = 0;
        loop {
            let next = socket.next().await.unwrap().unwrap();
            let next: Value = serde_json::from_str(next.to_text().unwrap()).unwrap();
            points += next["delays"].as_array().unwrap().len();
            if next["status"]["messages"] == 777 && points > 0 {
                break;
            }
        }
        assert_eq!(points, 1, "points of the curve come once");
        // What no page says ends it.
        socket.send(Message::text("[")).await.unwrap();
        let closed = loop {
            match socket.next().await {
                Some(Ok(Message::Close(frame))) => break frame,
                Some(Ok(_)) => {}
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(u16::from(closed.unwrap().code), 1008);
    });
    assert_eq!(shown.get("/status.json").json()["web"]["viewers_garbled"], 1);
}

#[test]
fn connections_beyond_the_limit_are_refused_and_counted() {
    let shown = Shown::new();
    let idle: Vec<_> = (0..200).map(|_| TcpStream::connect(shown.address()).unwrap()).collect();
    let mut ended = 0;
    for mut stream in idle {
        stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        ended += u64::from(
            matches!(stream.read(&mut [0; 1]), Ok(0))
                || stream
                    .peek(&mut [0; 1])
                    .is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset),
        );
    }
    assert!(ended >= 72, "{ended}");
    // Those that waited are gone: there is room again.
    let began = Instant::now();
    let request =
        format!("GET /status.json HTTP/1.1\r\nConnection: close\r\nHost: {}\r\n\r\n", shown.address());
    let refused = loop {
        match Answer::try_read(shown.address(), &request) {
            Ok(answer) => break answer.json()["web"]["connections_refused"].as_u64().unwrap(),
            Err(_) => assert!(began.elapsed() < Duration::from_secs(20), "in vain"),
        }
    };
    assert!(refused >= 72, "{refused}");
}

/// 140 connections that said nothing kept 24 of 30 probes from an answer.
#[test]
fn probes_and_scrapes_are_answered_while_others_hold_connections() {
    let shown = Shown::with_token(Some("a token of some length"));
    let address = shown.address();
    let is_over = Arc::new(AtomicBool::new(false));
    let attackers: Vec<_> = (0..140)
        .map(|number: u32| {
            let is_over = Arc::clone(&is_over);
            std::thread::spawn(move || {
                while !is_over.load(Ordering::Acquire) {
                    let Ok(mut stream) = TcpStream::connect(address) else { continue };
                    // A byte now and then, and never the end of the header.
                    for _ in 0..40 {
                        std::thread::sleep(Duration::from_millis(100 + u64::from(number % 7)));
                        if is_over.load(Ordering::Acquire) || stream.write_all(b"G").is_err() {
                            break;
                        }
                    }
                }
            })
        })
        .collect();
    std::thread::sleep(Duration::from_millis(500));
    let answered: Vec<u16> = (0..30)
        .map(|number| {
            let path = ["/health", "/metrics", "/ready"][number % 3];
            let request = format!(
                "GET {path} HTTP/1.1\r\nConnection: close\r\nAuthorization: bearer a token of some length\r\nHost: {address}\r\n\r\n"
            );
            Answer::try_read(address, &request).map_or(0, |answer| answer.code)
        })
        .collect();
    is_over.store(true, Ordering::Release);
    attackers.into_iter().for_each(|attacker| attacker.join().unwrap());
    assert_eq!(answered, [200; 30]);
}

#[test]
fn a_refused_upgrade_frees_its_slot() {
    let shown = Shown::new();
    let address = shown.address();
    let upgrade = format!(
        "GET /stream HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    );
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(upgrade.as_bytes()).unwrap();
    let mut text = String::new();
    stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    // To the end: a connection that stayed open would be a time-out.
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 404"), "{text}");
}

#[test]
fn the_end_of_a_websocket_is_as_the_standard_has_it() {
    let shown = Shown::new();
    let url = format!("ws://{}/live", shown.address());
    let code_after = |sent: Vec<Vec<u8>>| {
        let (mut socket, _) = tungstenite_client(&url);
        for bytes in sent {
            socket.get_mut().write_all(&bytes).unwrap();
        }
        loop {
            match socket.read() {
                Ok(Message::Close(frame)) => break frame.map(|frame| u16::from(frame.code)),
                Ok(_) => {}
                Err(error) => panic!("no Close came: {error}"),
            }
        }
    };
    // Masked by zeros: a Close of 1000, a text that is no UTF-8, one that is too long, a reserved opcode, a frame without a mask.
    let masked = |opcode: u8, payload: &[u8]| {
        let mut frame = vec![0x80 | opcode];
        match u8::try_from(payload.len()).ok().filter(|length| *length < 126) {
            Some(length) => frame.push(0x80 | length),
            None => {
                frame.push(0x80 | 126);
                frame.extend_from_slice(&(payload.len() as u16).to_be_bytes());
            }
        }
        frame.extend_from_slice(&[0; 4]);
        frame.extend_from_slice(payload);
        frame
    };
    assert_eq!(code_after(vec![masked(8, &1000u16.to_be_bytes())]), Some(1000));
    assert_eq!(code_after(vec![masked(1, b"\xff\xfe")]), Some(1007));
    assert_eq!(code_after(vec![masked(1, &[b' '; 5_000])]), Some(1009));
    assert_eq!(code_after(vec![masked(3, b"")]), Some(1002));
    assert_eq!(code_after(vec![vec![0x81, 0x01, b'x']]), Some(1002));
    assert_eq!(code_after(vec![masked(1, b"[]")]), Some(1008));
}

fn tungstenite_client(
    url: &str,
) -> (tungstenite::WebSocket<TcpStream>, tungstenite::handshake::client::Response) {
    let address = url.trim_start_matches("ws://").split('/').next().unwrap();
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    tungstenite::client(url, stream).unwrap()
}

#[test]
fn a_busy_port_is_named_before_anything_starts() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let error = match web::bind(address, None, Acceptor::Plain) {
        Err(error @ WebError::Bind { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    };
    assert!(error.starts_with(&format!("cannot listen on {address} for the web page: ")), "{error}");
    let config = Config {
        web: Some(WebSetting { address, token: None, stream: false, tls: None }),
        ..Config::default()
    };
    assert!(matches!(Service::start(&config, None), Err(ServiceError::Web(_))));
}

#[test]
fn dropping_it_frees_the_port_with_pages_open() {
    let shown = Shown::new();
    let address = shown.address();
    let mut open = TcpStream::connect(address).unwrap();
    open.write_all(format!("GET /health HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes()).unwrap();
    assert!(open.read(&mut [0; 1024]).unwrap() > 0);
    drop(shown);
    assert_eq!(open.read(&mut [0; 1024]).unwrap_or(0), 0);
    TcpListener::bind(address)
        .map(drop)
        .or_else(|error| {
            // Its own closed connections may linger; the listener is closed.
            TcpStream::connect(address).map_or(Ok(()), |_| Err(error))
        })
        .unwrap();
}

#[test]
fn a_plant_with_a_venue_shows_its_books() {
    let group = |line| {
        SocketAddrV4::new(
            Ipv4Addr::new(239, 207, (std::process::id() % 250) as u8, line),
            20_000 + (std::process::id() % 20_000) as u16,
        )
    };
    let lines = vec![group(1), group(2)];
    let mut venue = Venue::new("Nasdaq", VenueKind::Nasdaq, lines.clone());
    venue.live.line_b = true;
    let mut venues = VenuesConfig::new(vec![venue]);
    venues.rate = 5_000;
    venues.symbols = 20;
    let text = format!(
        "interface = \"127.0.0.1\"\n[web]\nlisten = \"127.0.0.1:8080\"\n[[venue]]\nname = \"Nasdaq\"\nprotocol = \"itch\"\npublisher = \"XNAS.ITCH\"\nlines = [\"{}\", \"{}\"]\n",
        lines[0], lines[1]
    );
    let mut config = Config::parse("test.toml", &text).unwrap();
    config.web.as_mut().unwrap().address.set_port(0);
    let service = Service::start(&config, None).unwrap();
    let address = service.web_address().unwrap();
    let venues = Venues::start(venues).unwrap();
    let book = block_on(async {
        let (mut socket, _) = tokio_tungstenite::connect_async(format!("ws://{address}/live")).await.unwrap();
        socket.send(Message::text(r#"{"most":10}"#)).await.unwrap();
        let mut chosen = String::new();
        loop {
            let next = socket.next().await.unwrap().unwrap();
            let next: Value = serde_json::from_str(next.to_text().unwrap()).unwrap();
            let rows = next["list"]["rows"].as_array().unwrap();
            if chosen.is_empty()
                && let Some(row) = rows.iter().find(|row| row["state"] == "normal")
            {
                chosen = row["symbol"].as_str().unwrap().to_owned();
                let request = json!({ "symbol": chosen, "search": chosen.to_lowercase(), "most": 10 });
                socket.send(Message::text(request.to_string())).await.unwrap();
            }
            if next["book"]["books"].as_array().is_some_and(|books| !books.is_empty()) {
                assert_eq!(next["list"]["rows"][0]["symbol"], chosen.as_str());
                break next["book"].clone();
            }
        }
    });
    assert_eq!(book["bid"]["venues"], json!(["Nasdaq"]));
    let best = |side: &str| book["books"][0][side][0][0].as_str().unwrap().parse::<f64>().unwrap();
    assert!(best("bids") > 0.0 && best("asks") > 0.0);
    assert!(book["books"][0]["bids"].as_array().unwrap().len() <= 10);
    service.stop().unwrap();
    venues.stop().unwrap();
}
