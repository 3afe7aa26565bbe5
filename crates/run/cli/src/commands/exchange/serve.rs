//! `tapeworks exchange serve` and `check`: runs venues live on multicast, and exchanges that take orders.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use tapeworks_matching::orders::OrderOptions;
use tapeworks_runtime::refusals::Refused;
use tapeworks_venues::orders::{Ledger, OrderAddresses, OrderReport, OrderVenues, ledger_json};
use tapeworks_venues::{Config, Report, VenueReport, Venues, VenuesError};

use crate::ending::{Ending, Failure, Result};
use crate::table::{Align, Table, counted, number, thousands};
use crate::terminal::{Bar, complain};
use crate::{interrupt, output, terminal};

/// Interval at which the command checks whether the venues have ended.
const LOOK: Duration = Duration::from_millis(20);

/// Run simulated venues on multicast, and exchanges that take orders.
///
/// Venues send multicast lines at a given rate, with faults, and serve retransmissions and snapshots.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tapeworks exchange serve examples/exchange/loopback.toml
  tapeworks exchange serve examples/exchange/orders.toml
  tapeworks exchange serve examples/exchange/twenty_five_feeds.toml --messages 1000000 --json

Ctrl-C ends the sessions cleanly, with exit code 0 if no number of messages is set. Exit code 3: the kernel refused \
packets, or the ledger is incomplete. 78: the configuration is invalid. 130: Ctrl-C came before the last message.")]
pub(super) struct Serve {
    /// Configuration, a TOML file.
    #[arg(value_name = "CONFIG")]
    config: PathBuf,
    /// Stop after N messages over all venues; overrides the configuration.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    messages: Option<u64>,
    /// Messages per second over all venues, up to 100 million; overrides the configuration.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    rate: Option<u64>,
    /// Print the report as one JSON object, in the format of the file `injected`.
    #[arg(short = 'J', long)]
    json: bool,
    /// Write the true history of every order at the exchanges to FILE, one JSON object per line.
    ///
    /// It is true even if an exchange's faults mislead its users. A restart from a store writes the whole day
    /// again.
    #[arg(long, value_name = "FILE")]
    ledger: Option<PathBuf>,
}

/// Validate a configuration of venues; errors state line, column and expected value.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  tapeworks exchange check examples/exchange/loopback.toml

Exit code 78: the configuration is invalid.")]
pub(super) struct Check {
    /// Configuration, a TOML file.
    #[arg(value_name = "CONFIG")]
    config: PathBuf,
}

fn load(path: &Path) -> Result<Config> {
    Config::load(path).map_err(|errors| Failure::Config(errors.iter().map(ToString::to_string).collect()))
}

impl From<VenuesError> for Failure {
    fn from(error: VenuesError) -> Self {
        Self::Failed(error.to_string())
    }
}

pub(super) fn check(arguments: &Check) -> Result {
    let config = load(&arguments.config)?;
    let lines = config.venues.iter().map(|venue| venue.lines.len() as u64).sum();
    let mut parts = Vec::new();
    if !config.venues.is_empty() {
        parts.push(counted(config.venues.len() as u64, "venue", "venues"));
        parts.push(counted(lines, "line", "lines"));
        parts.push(format!("{} a second", counted(config.rate, "message", "messages")));
    }
    if !config.orders.is_empty() {
        let symbols = config.orders.iter().map(|venue| venue.options.instruments.len() as u64).sum();
        parts.push(counted(
            config.orders.len() as u64,
            "exchange that takes orders",
            "exchanges that take orders",
        ));
        parts.push(counted(symbols, "symbol", "symbols"));
    }
    output::print(&format!("{}: sound: {}\n", arguments.config.display(), parts.join(", ")))?;
    Ok(Ending::Complete)
}

/// The file for the exchanges' ledgers.
struct LedgerFile {
    file: File,
    path: PathBuf,
    exchanges: Vec<(String, OrderOptions, Ledger)>,
    /// Whether the file lacks entries.
    has_failed: bool,
}

impl LedgerFile {
    fn open(path: &Path) -> Result<Self> {
        // The output of an earlier run is kept until this run has started.
        let file = File::options().create(true).write(true).truncate(false).open(path);
        let file = file.map_err(|error| Failure::Failed(not_written(path, &error)))?;
        Ok(Self { file, path: path.to_owned(), exchanges: Vec::new(), has_failed: false })
    }

    fn follow(&mut self, config: &Config, ledgers: Vec<Ledger>) {
        let exchanges = config.orders.iter().zip(ledgers);
        self.exchanges =
            exchanges.map(|(venue, ledger)| (venue.name.clone(), venue.options.clone(), ledger)).collect();
        let emptied = self.file.set_len(0);
        self.note(emptied);
    }

    /// Reports the first write error. The exchanges continue if the disk does not take an entry.
    fn note(&mut self, written: std::io::Result<()>) {
        if let Err(error) = written
            && !std::mem::replace(&mut self.has_failed, true)
        {
            complain(&format!("{}: the ledger lacks entries from here on", not_written(&self.path, &error)));
        }
    }

    /// Writes the entries since the last call.
    fn write(&mut self) {
        let mut text = String::new();
        for (name, options, ledger) in &self.exchanges {
            for entry in ledger.take() {
                let _infallible = writeln!(text, "{}", ledger_json(name, options, &entry));
            }
        }
        let written = self.file.write_all(text.as_bytes());
        self.note(written);
    }
}

fn not_written(path: &Path, error: &std::io::Error) -> String {
    format!("cannot write {}: {error}", path.display())
}

/// The running parts: generated venues, exchanges that take orders, or both.
struct Running {
    venues: Option<Venues>,
    orders: Option<OrderVenues>,
}

impl Running {
    fn start(config: Config) -> Result<Self> {
        let on_refusal = Arc::new(|refused: &Refused| {
            let more = match refused.unreported {
                0 => String::new(),
                count => format!("; {} since the last report", counted(count, "more", "more")),
            };
            complain(&format!("{} {}: {}{more}", refused.what, refused.address, refused.reason));
        });
        let orders = match config.orders.is_empty() {
            true => None,
            false => Some(OrderVenues::start(&config, Some(on_refusal))?),
        };
        let venues = if config.venues.is_empty() { None } else { Some(Venues::start(config)?) };
        Ok(Self { venues, orders })
    }

    /// Returns whether all messages were sent, or an exchange failed. Exchanges that take orders never finish.
    fn is_finished(&self) -> bool {
        match &self.venues {
            Some(venues) => venues.is_finished() || self.has_failed(),
            None => self.has_failed(),
        }
    }

    fn has_failed(&self) -> bool {
        self.orders.as_ref().is_some_and(OrderVenues::has_failed)
    }

    fn describe(&self) {
        for venue in self.venues.iter().flat_map(Venues::addresses) {
            let lines: Vec<String> = venue.lines.iter().map(ToString::to_string).collect();
            let mut text = format!("{}: lines {}", venue.name, lines.join(", "));
            servers(&mut text, venue.retransmission, venue.snapshot);
            if let Some(group) = venue.retransmission_group {
                let _infallible = write!(text, "; requests over TCP, answers to {group}");
            }
            if let Some(group) = venue.snapshot_group {
                let _infallible = write!(text, "; snapshots to {group}");
            }
            complain(&text);
        }
        self.orders.iter().flat_map(OrderVenues::addresses).for_each(describe);
    }

    /// Returns the messages so far: those that venues sent, or else those that exchanges received.
    fn messages(&self) -> u64 {
        match (&self.venues, &self.orders) {
            (Some(venues), _) => venues.report().messages,
            (None, Some(orders)) => orders.report().iter().map(OrderReport::messages).sum(),
            (None, None) => 0,
        }
    }

    fn stop(self) -> Result<(Option<Report>, Vec<OrderReport>)> {
        let orders = self.orders.map(OrderVenues::stop).transpose();
        let venues = self.venues.map(Venues::stop).transpose()?;
        Ok((venues, orders?.unwrap_or_default()))
    }
}

fn servers(
    text: &mut String,
    retransmission: Option<std::net::SocketAddr>,
    snapshot: Option<std::net::SocketAddr>,
) {
    if let Some(address) = retransmission {
        let _infallible = write!(text, "; retransmission {address}");
    }
    if let Some(address) = snapshot {
        let _infallible = write!(text, "; snapshots {address}");
    }
}

fn describe(exchange: &OrderAddresses) {
    let OrderAddresses { name, real_time, recovery, .. } = exchange;
    let mut text = format!("{name}: orders real-time {real_time}, recovery {recovery}");
    for (user, address) in &exchange.ouch {
        let _infallible = write!(text, "; OUCH of {user} {address}");
    }
    if !exchange.lines.is_empty() {
        let lines: Vec<String> = exchange.lines.iter().map(ToString::to_string).collect();
        let _infallible = write!(text, "; lines {}", lines.join(", "));
    }
    servers(&mut text, exchange.retransmission, exchange.snapshot);
    complain(&text);
    match exchange.recovered {
        None => complain(&format!("{name}: no store: it begins without orders, and forgets them at its end")),
        Some(recovered) if recovered.inputs == 0 => {
            complain(&format!("{name}: the store is empty: a day begins"))
        }
        Some(recovered) => {
            let mut text = format!(
                "{name}: {} restored from {}",
                counted(recovered.orders, "order", "orders"),
                counted(recovered.inputs, "input", "inputs")
            );
            if recovered.torn_bytes > 0 {
                let _infallible = write!(
                    text,
                    "; {} of a torn input cut off",
                    counted(recovered.torn_bytes, "byte", "bytes")
                );
            }
            complain(&text);
        }
    }
}

pub(super) fn serve(arguments: &Serve) -> Result {
    let mut config = load(&arguments.config)?;
    config.messages = arguments.messages.or(config.messages);
    config.rate = arguments.rate.unwrap_or(config.rate);
    let messages = config.messages.filter(|_| !config.venues.is_empty());
    if config.venues.is_empty() && (arguments.messages.is_some() || arguments.rate.is_some()) {
        complain("--messages and --rate are for generated venues: this configuration has none");
    }
    config.orders.iter_mut().for_each(|venue| venue.options.keeps_ledger = arguments.ledger.is_some());
    if arguments.ledger.is_some() && config.orders.is_empty() {
        return Err(Failure::Usage(
            "--ledger is for exchanges that take orders: this configuration has none".to_owned(),
        ));
    }
    let mut ledger = arguments.ledger.as_deref().map(LedgerFile::open).transpose()?;
    let exchanges = config.clone();
    let running = Running::start(config)?;
    if let (Some(ledger), Some(orders)) = (&mut ledger, &running.orders) {
        ledger.follow(&exchanges, orders.ledgers());
    }
    running.describe();
    let mut bar = Bar::of_messages("Serving");
    while !running.is_finished() && !interrupt::is_requested() {
        std::thread::sleep(LOOK);
        ledger.iter_mut().for_each(LedgerFile::write);
        let done = running.messages();
        // The loop condition detects an interruption.
        let _ = bar.show(done, messages, Some(done));
    }
    bar.clear();
    let is_interrupted = !running.is_finished();
    let (report, orders) = running.stop()?;
    ledger.iter_mut().for_each(LedgerFile::write);
    output::print(&if arguments.json {
        as_json(report.as_ref(), &orders)
    } else {
        as_text(report.as_ref(), &orders)
    })?;
    let lines = report.iter().flat_map(|report| &report.venues);
    let lines = lines.chain(orders.iter().filter_map(|exchange| exchange.line.as_ref()));
    let refused: u64 = lines.flat_map(|venue| &venue.refused_by_kernel).sum();
    if refused > 0 {
        complain(&format!("the kernel did not take {}", counted(refused, "packet", "packets")));
    }
    Ok(match (is_interrupted && messages.is_some(), refused) {
        (true, _) => Ending::Interrupted,
        (false, 0) if ledger.is_none_or(|ledger| !ledger.has_failed) => Ending::Complete,
        (false, _) => Ending::WithProblems,
    })
}

/// Returns the venues' report as an object, with `exchanges` if there are any.
fn as_json(report: Option<&Report>, orders: &[OrderReport]) -> String {
    let mut object = report.map_or_else(|| json!({}), Report::to_json);
    if !orders.is_empty() {
        object["exchanges"] = orders.iter().map(OrderReport::to_json).collect();
    }
    format!("{object:#}\n")
}

fn as_text(report: Option<&Report>, orders: &[OrderReport]) -> String {
    let mut out = report.map(show).unwrap_or_default();
    if !orders.is_empty() {
        if !out.is_empty() {
            out.push('\n');
        }
        show_orders(&mut out, orders);
    }
    out
}

fn show_orders(out: &mut String, orders: &[OrderReport]) {
    let mut table = Table::new(&[
        ("exchange", Align::Left),
        ("orders", Align::Right),
        ("rejected", Align::Right),
        ("throttled", Align::Right),
        ("trades", Align::Right),
        ("working", Align::Right),
        ("connections", Align::Right),
        ("refused", Align::Right),
        ("too slow", Align::Right),
        ("timed out", Align::Right),
        ("recovered", Align::Right),
    ]);
    for exchange in orders {
        let OrderReport { orders, sessions, connections, .. } = exchange;
        table.row([
            exchange.name.clone(),
            thousands(orders.new_orders + orders.quotes),
            thousands(orders.rejected),
            thousands(sessions.throttled),
            thousands(orders.trades),
            thousands(exchange.working),
            thousands(connections.connections),
            thousands(connections.refused),
            thousands(connections.too_slow),
            thousands(connections.timed_out),
            thousands(sessions.recovered),
        ]);
    }
    let (width, paint) = (terminal::width(), terminal::paint());
    out.push_str(&table.render(width, paint));
    let lines: Vec<&VenueReport> = orders.iter().filter_map(|exchange| exchange.line.as_ref()).collect();
    if !lines.is_empty() {
        out.push('\n');
        show_lines(out, &lines);
    }
}

fn show(report: &Report) -> String {
    let mut out = format!(
        "{} in {:.1} s: {} a second; at most {} us late\n\n",
        counted(report.messages, "message", "messages"),
        report.elapsed_ns as f64 / 1e9,
        number(report.rate()),
        number(report.worst_late_ns as f64 / 1e3),
    );
    show_lines(&mut out, &report.venues.iter().collect::<Vec<_>>());
    out
}

/// Shows the lines and servers of venues.
fn show_lines(out: &mut String, venues: &[&VenueReport]) {
    let mut lines = Table::new(&[
        ("venue", Align::Left),
        ("messages", Align::Right),
        ("sessions", Align::Right),
        ("packets A, B", Align::Right),
        ("dropped", Align::Right),
        ("repeated", Align::Right),
        ("late", Align::Right),
        ("heartbeats", Align::Right),
        ("messages on no line", Align::Right),
    ]);
    for venue in venues {
        let each = |count: fn(&tapeworks_generator::live::LineReport) -> u64| {
            let counts: Vec<String> = venue.live.lines.iter().map(|line| thousands(count(line))).collect();
            counts.join(", ")
        };
        lines.row([
            venue.name.clone(),
            thousands(venue.live.messages),
            thousands(venue.live.sessions.len() as u64),
            each(|line| line.packets),
            each(|line| line.injected.dropped_packets),
            each(|line| line.injected.duplicated_packets),
            each(|line| line.injected.reordered_packets + line.injected.late_copies),
            each(|line| line.heartbeats),
            thousands(venue.live.lost_messages),
        ]);
    }
    let (width, paint) = (terminal::width(), terminal::paint());
    out.push_str(&lines.render(width, paint));
    let mut requested = Table::new(&[
        ("requested", Align::Left),
        ("requests", Align::Right),
        ("answers", Align::Right),
        ("messages", Align::Right),
        ("lost", Align::Right),
        ("refused", Align::Right),
        ("connections", Align::Right),
        ("snapshots", Align::Right),
        ("not served", Align::Right),
    ]);
    for venue in venues {
        let (requests, snapshots) = (venue.retransmission, venue.snapshot);
        if requests.requests + snapshots.connections == 0 {
            continue;
        }
        let refused = requests.malformed + requests.unknown_session + requests.not_sent + requests.not_kept;
        let not_served = snapshots.rejected
            + snapshots.left
            + snapshots.malformed
            + snapshots.timed_out
            + snapshots.refused;
        requested.row([
            venue.name.clone(),
            thousands(requests.requests),
            thousands(requests.answers),
            thousands(requests.messages),
            thousands(requests.lost),
            thousands(refused),
            thousands(snapshots.connections),
            thousands(snapshots.served),
            thousands(not_served),
        ]);
    }
    if !requested.is_empty() {
        out.push('\n');
        out.push_str(&requested.render(width, paint));
    }
}
