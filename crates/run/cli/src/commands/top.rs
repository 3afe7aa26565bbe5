//! `tapeworks top`: shows a plant at a glance, in a terminal.

use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use serde_json::Value;
use tapeworks_capture::stop;
use tapeworks_runtime::transport::Connector;

use crate::commands::subscribe::resolve;
use crate::ending::{Ending, Failure, Result};
use crate::table::{Align, Table, bytes, thousands};
use crate::tls::Tls;
use crate::{http, interrupt, output, terminal, values};

/// Watch a plant's rates, delays, lines, gaps, clients and ring fill.
///
/// Reads `/status.json` from the address of the plant's web page. Prints once if standard output is not a
/// terminal.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tapeworks top
  tapeworks top 127.0.0.1:8081 --interval 0.5
  tapeworks top --once")]
pub(crate) struct Arguments {
    /// Address of the plant's web page.
    #[arg(value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    address: String,
    /// Token of the page, if it requires one.
    #[arg(long, env = "TAPEWORKS_TOKEN", hide_env_values = true)]
    token: Option<String>,
    #[command(flatten)]
    tls: Tls,
    /// Time between two updates, 100ms to 1h: seconds, or 500ms, 2s, 1m.
    #[arg(long, value_name = "TIME", value_parser = values::interval, default_value = "1s")]
    interval: Duration,
    /// Print once and exit.
    #[arg(long)]
    once: bool,
}

/// Requests the status.
fn fetch_status(
    connector: &Connector,
    address: SocketAddr,
    token: Option<&str>,
) -> std::result::Result<Value, String> {
    let body = http::request(connector, "GET", address, "/status.json", token)?;
    serde_json::from_str(&body).map_err(|error| format!("{address}: not a plant: {error}"))
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

/// Returns the change per second of the counter at `place`, between two readings.
fn rate(now: &Value, before: Option<&Value>, place: &str) -> u64 {
    let Some(before) = before else { return 0 };
    let elapsed = number(&now["now_ns"]).saturating_sub(number(&before["now_ns"])).max(1);
    let count = |look: &Value| look.pointer(place).map_or(0, number);
    let more = u128::from(count(now).saturating_sub(count(before)));
    u64::try_from(more * 1_000_000_000 / u128::from(elapsed)).unwrap_or(u64::MAX)
}

fn show(now: &Value, before: Option<&Value>, address: SocketAddr) -> String {
    let (width, paint) = (terminal::width(), terminal::paint());
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let us = |value: &Value| format!("{:.1}", number(value) as f64 / 1e3);
    let uptime = number(&now["now_ns"]).saturating_sub(number(&now["started_ns"])) / 1_000_000_000;
    let delay = &now["delay_ns"];
    let ring = &now["ring"];
    let mut out = format!(
        "{}  {address}, up {}:{:02}:{:02}, {}\n\n",
        paint.strong("tapeworks top"),
        uptime / 3_600,
        uptime / 60 % 60,
        uptime % 60,
        if now["is_ready"].as_bool() == Some(true) { paint.good("ready") } else { paint.bad("not ready") },
    );
    for reason in now["reasons"].as_array().into_iter().flatten() {
        let _infallible = writeln!(out, "  {}", text(reason));
    }
    let _infallible = writeln!(
        out,
        "  messages {} a second, {} in all; symbols {}; orders {}; problems {}\n  to the ring, us: p50 {}, p90 {}, p99 {}, p99.9 {}, max {}\n  ring {} of {} (at most {}), stalls {}; NBBO changes {}, crossed {}",
        thousands(rate(now, before, "/messages")),
        thousands(number(&now["messages"])),
        thousands(number(&now["symbols"])),
        thousands(number(&now["orders"])),
        thousands(number(&now["problems"])),
        us(&delay["p50"]),
        us(&delay["p90"]),
        us(&delay["p99"]),
        us(&delay["p99.9"]),
        us(&delay["max"]),
        thousands(number(&ring["fill"])),
        thousands(number(&ring["capacity"])),
        thousands(number(&ring["highest"])),
        thousands(number(&ring["stalls"])),
        thousands(number(&now["nbbo"]["changes"])),
        thousands(number(&now["nbbo"]["crossed"])),
    );
    if let Some(journal) = now["journal"].as_object() {
        let count = |key| {
            let count = journal.get(key).map_or(0, number);
            if count == 0 { "0".to_owned() } else { paint.bad(&thousands(count)) }
        };
        let _infallible = writeln!(
            out,
            "  journal {} records, {} written, lost {}, unconfirmed {}",
            thousands(journal.get("records").map_or(0, number)),
            bytes(journal.get("written_bytes").map_or(0, number)),
            count("lost"),
            count("unconfirmed"),
        );
    }
    out.push_str(&outputs(now, before));
    out.push('\n');
    let mut venues = Table::new(&[
        ("venue", Align::Left),
        ("state", Align::Left),
        ("next", Align::Right),
        ("won A, B", Align::Right),
        ("lost A, B", Align::Right),
        ("opened", Align::Right),
        ("requests", Align::Right),
        ("gaps", Align::Right),
        ("missing", Align::Right),
        ("snapshots", Align::Right),
        ("drops", Align::Right),
    ]);
    for venue in now["venues"].as_array().into_iter().flatten() {
        let lines = || venue["lines"].as_array().into_iter().flatten();
        let each = |key: &str| {
            lines().take(2).map(|line| thousands(number(&line[key]))).collect::<Vec<_>>().join(", ")
        };
        venues.row([
            text(&venue["venue"]),
            text(&venue["state"]),
            thousands(number(&venue["next"])),
            each("won"),
            each("lost"),
            thousands(number(&venue["gaps_opened"])),
            thousands(number(&venue["requests"])),
            thousands(number(&venue["gaps"])),
            thousands(number(&venue["missing"])),
            thousands(number(&venue["snapshots"]["applied"])),
            thousands(lines().map(|line| number(&line["kernel_drops"])).fold(0, u64::saturating_add)),
        ]);
    }
    out.push_str(&venues.render(width, paint));
    let mut clients = Table::new(&[
        ("client", Align::Left),
        ("key", Align::Left),
        ("schemas", Align::Left),
        ("state", Align::Left),
        ("records", Align::Right),
        ("queue", Align::Right),
        ("lag ms", Align::Right),
        ("skipped", Align::Right),
        ("conflated", Align::Right),
    ]);
    for client in now["clients"]["sessions"].as_array().into_iter().flatten() {
        let schemas: Vec<String> = client["schemas"].as_array().into_iter().flatten().map(text).collect();
        clients.row([
            // The name that a client chose is untrusted.
            format!("{} {}", text(&client["address"]), text(&client["name"]))
                .chars()
                .map(|letter| if letter.is_control() { '?' } else { letter })
                .collect(),
            text(&client["key"]),
            schemas.join(","),
            text(&client["state"]),
            thousands(number(&client["records"])),
            bytes(number(&client["queued_bytes"])),
            format!("{:.1}", number(&client["lag_ns"]) as f64 / 1e6),
            thousands(number(&client["skipped"])),
            thousands(number(&client["conflated"])),
        ]);
    }
    if !clients.is_empty() {
        out.push('\n');
        out.push_str(&clients.render(width, paint));
    }
    out
}

/// Formats the outputs besides the clients, and the checkpoints, with a line for each that is configured.
fn outputs(now: &Value, before: Option<&Value>) -> String {
    let paint = terminal::paint();
    let bad = |count: u64| if count == 0 { "0".to_owned() } else { paint.bad(&thousands(count)) };
    let sum =
        |of: &Value, keys: &[&str]| keys.iter().map(|key| number(&of[*key])).fold(0, u64::saturating_add);
    let mut out = String::new();
    let multicast = &now["multicast"];
    if multicast.is_object() {
        let _infallible = writeln!(
            out,
            "  multicast {} messages a second, {} packets, {}, unsent {}; requests {}, refused {}; clients {}, slow {}; lag {}",
            thousands(rate(now, before, "/multicast/messages")),
            thousands(number(&multicast["packets"])),
            bytes(number(&multicast["bytes"])),
            bad(sum(multicast, &["unsent", "unsent_answers", "too_long"])),
            thousands(number(&multicast["requests"])),
            thousands(number(&multicast["refused_requests"])),
            thousands(number(&multicast["clients"])),
            thousands(number(&multicast["slow_clients"])),
            thousands(number(&multicast["ring_lag"])),
        );
    }
    let questdb = &now["questdb"];
    if questdb.is_object() {
        let _infallible = writeln!(
            out,
            "  questdb {}, {} rows a second, waiting {}, no room {}, refused {}, lost {}; lag {}",
            if questdb["is_connected"] == true {
                paint.good("connected")
            } else {
                paint.bad("not connected")
            },
            thousands(rate(now, before, "/questdb/rows")),
            thousands(number(&questdb["waiting"])),
            thousands(number(&questdb["overflowed"])),
            bad(number(&questdb["refused"])),
            bad(number(&questdb["lost"])),
            thousands(number(&questdb["ring_lag"])),
        );
    }
    let aeron = &now["aeron"];
    if aeron.is_object() {
        let _infallible = writeln!(
            out,
            "  aeron {}, {} items a second, {} of {} streams read, unread {}, dropped {}, waiting {}; replays {}, refused {}, failed {}",
            if aeron["is_connected"] == true { paint.good("connected") } else { paint.bad("not connected") },
            thousands(rate(now, before, "/aeron/items")),
            thousands(number(&aeron["read_streams"])),
            thousands(number(&aeron["streams"])),
            thousands(number(&aeron["unread"])),
            bad(sum(aeron, &["dropped_slow", "dropped_full", "refused"])),
            thousands(number(&aeron["waiting"])),
            thousands(number(&aeron["replays"])),
            thousands(number(&aeron["refused_replays"])),
            thousands(number(&aeron["failed_replays"])),
        );
    }
    let kafka = &now["kafka"];
    if kafka.is_object() {
        let _infallible = writeln!(
            out,
            "  kafka {}, {} records a second, {} transactions, {} aborted, lost events {}; lag {} events, {:.1} s",
            if kafka["is_connected"] == true { paint.good("connected") } else { paint.bad("not connected") },
            thousands(rate(now, before, "/kafka/records")),
            thousands(number(&kafka["transactions"])),
            thousands(number(&kafka["aborted"])),
            bad(number(&kafka["lost_events"])),
            thousands(number(&kafka["lag_events"])),
            number(&kafka["lag_ns"]) as f64 / 1e9,
        );
    }
    let nats = &now["nats"];
    if nats.is_object() {
        let _infallible = writeln!(
            out,
            "  nats {}, {} records a second, waiting {}, conflated {}, dropped trades {}, unconfirmed {}",
            if nats["is_connected"] == true { paint.good("connected") } else { paint.bad("not connected") },
            thousands(rate(now, before, "/nats/records")),
            thousands(number(&nats["waiting"])),
            thousands(number(&nats["conflated"])),
            bad(number(&nats["dropped_trades"])),
            bad(number(&nats["unconfirmed"])),
        );
    }
    let traces = &now["otel"];
    if traces.is_object() {
        let _infallible = writeln!(
            out,
            "  otel {}, {} spans a second, {} traces, waiting {}, dropped {}, refused spans {}, failed requests {}",
            if traces["is_connected"] == true { paint.good("connected") } else { paint.bad("not connected") },
            thousands(rate(now, before, "/otel/spans")),
            thousands(number(&traces["traces"])),
            thousands(number(&traces["waiting"])),
            bad(sum(traces, &["dropped", "unfollowed"])),
            bad(number(&traces["refused_spans"])),
            thousands(number(&traces["failures"])),
        );
    }
    let pair = &now["pair"];
    if pair.is_object() {
        let role = pair["role"].as_str().unwrap_or_default();
        let connected = match (role, pair["is_connected"] == true, pair["is_in_step"] == true) {
            ("primary", true, true) => paint.good("the standby is in step"),
            ("primary", true, false) => paint.bad("the standby follows and is not waited for"),
            ("primary", false, _) => paint.bad("alone"),
            (_, true, _) => paint.good("follows"),
            (_, false, _) => paint.bad("the primary is gone"),
        };
        let _infallible = writeln!(
            out,
            "  pair {role}, epoch {}, {connected}; lag {} records, {}; buffered {}, dropped {}; went alone {}, takeovers {}, refused {}",
            thousands(number(&pair["epoch"])),
            thousands(number(&pair["lag_records"])),
            bytes(number(&pair["lag_bytes"])),
            thousands(number(&pair["buffered_packets"])),
            bad(number(&pair["buffer_drops"])),
            thousands(number(&pair["went_alone"])),
            thousands(number(&pair["takeovers"])),
            thousands(number(&pair["refused"])),
        );
    }
    let snapshots = &now["checkpoints"];
    if snapshots["every_ns"].is_u64() {
        let last = match number(&snapshots["time_ns"]) {
            0 => "none yet".to_owned(),
            time => {
                let age = number(&now["now_ns"]).saturating_sub(time) / 1_000_000_000;
                format!("{age} s ago, {}", bytes(number(&snapshots["bytes"])))
            }
        };
        let _infallible = writeln!(
            out,
            "  checkpoints {}, the last {last}, pause {:.1} ms; failed {}, put off {}",
            thousands(number(&snapshots["written"])),
            number(&snapshots["pause_ns"]).max(number(&snapshots["books_pause_ns"])) as f64 / 1e6,
            bad(number(&snapshots["failed"])),
            thousands(number(&snapshots["skipped"])),
        );
    }
    let roll = &now["roll"];
    if roll["is_on"] == true {
        let days = || roll["done"].as_array().into_iter().flatten();
        let failed = days().filter(|day| day["error"].is_string()).count();
        let running = match roll["running"]["date"].as_str() {
            Some(date) => format!("{date}, {} inputs", thousands(number(&roll["running"]["inputs"]))),
            None => "nothing to do".to_owned(),
        };
        let _infallible = writeln!(
            out,
            "  daily roll {running}; days done {}, failed {}",
            thousands((days().count() - failed) as u64),
            bad(failed as u64),
        );
    }
    out
}

/// The terminal's alternate screen. Dropping it leaves the screen.
struct Screen;

impl Screen {
    fn enter() -> Result<Self> {
        output::print("\x1b[?1049h\x1b[?25l")?;
        Ok(Self)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A closed terminal needs no restoring.
        let _gone = output::print("\x1b[?25h\x1b[?1049l");
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result {
    let address = resolve(&arguments.address)?;
    let connector = arguments.tls.connector(&arguments.address)?;
    let token = arguments.token.as_deref();
    let failed = |error| if interrupt::is_requested() { Failure::Stopped } else { Failure::Failed(error) };
    let mut before = fetch_status(&connector, address, token).map_err(failed)?;
    let interval = arguments.interval;
    if arguments.once || !std::io::stdout().is_terminal() || terminal::is_dumb() {
        stop::sleep(interval.min(Duration::from_secs(1)));
        if interrupt::is_requested() {
            return Ok(Ending::Interrupted);
        }
        let now = fetch_status(&connector, address, token).map_err(failed)?;
        output::print(&show(&now, Some(&before), address))?;
        return Ok(Ending::Complete);
    }
    let _screen = Screen::enter()?;
    let mut text = show(&before, None, address);
    while !interrupt::is_requested() {
        let (_, height) = terminal::stderr_size();
        let shown: Vec<&str> = text.lines().take(height.saturating_sub(1)).collect();
        output::print(&format!("\x1b[H\x1b[J{}\r\n", shown.join("\r\n")))?;
        stop::sleep(interval);
        text = match fetch_status(&connector, address, token) {
            Ok(now) => {
                let text = show(&now, Some(&before), address);
                before = now;
                text
            }
            // The plant may return soon, so its last status remains below the error.
            Err(error) => format!("{error}; trying again\n\n{}", show(&before, None, address)),
        };
    }
    Ok(Ending::Complete)
}
