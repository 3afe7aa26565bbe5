//! `tapeworks exchange serve` and `check`: venues live on multicast.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use tapeworks_venues::{Config, Report, Venues, VenuesError};

use crate::ending::{Ending, Failure, Result};
use crate::table::{Align, Table, counted, number, thousands};
use crate::terminal::{Bar, complain};
use crate::{interrupt, output, terminal};

/// How often the command checks whether the venues have ended.
const LOOK: Duration = Duration::from_millis(20);

/// Serve venues live: multicast lines at a stated rate, with faults, retransmission and snapshots.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tapeworks exchange serve examples/exchange/loopback.toml
  tapeworks exchange serve examples/exchange/twenty_five_feeds.toml --messages 1000000 --json

Exit code 78: the configuration is wrong. 3: the kernel did not take some packets. Ctrl-C ends the sessions in good \
order; where the configuration has no number of messages that is the usual end, with exit code 0.")]
pub(super) struct Serve {
    /// The configuration, a TOML file.
    #[arg(value_name = "CONFIG")]
    config: PathBuf,
    /// End after so many messages of all venues; overrides the configuration.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    messages: Option<u64>,
    /// Messages a second over all venues; overrides the configuration.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    rate: Option<u64>,
    /// The report as one JSON object, as the file `injected` has it.
    #[arg(short = 'J', long)]
    json: bool,
}

/// Check a configuration of venues: errors have line, column and the expected value.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  tapeworks exchange check examples/exchange/loopback.toml

Exit code 78: the configuration is wrong.")]
pub(super) struct Check {
    /// The configuration, a TOML file.
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
    output::print(&format!(
        "{}: sound: {}, {}, {} a second\n",
        arguments.config.display(),
        counted(config.venues.len() as u64, "venue", "venues"),
        counted(lines, "line", "lines"),
        counted(config.rate, "message", "messages"),
    ))?;
    Ok(Ending::Complete)
}

pub(super) fn serve(arguments: &Serve) -> Result {
    let mut config = load(&arguments.config)?;
    config.messages = arguments.messages.or(config.messages);
    config.rate = arguments.rate.unwrap_or(config.rate);
    let messages = config.messages;
    let venues = Venues::start(config)?;
    for venue in venues.addresses() {
        let lines: Vec<String> = venue.lines.iter().map(ToString::to_string).collect();
        let mut text = format!("{}: lines {}", venue.name, lines.join(", "));
        if let Some(address) = venue.retransmission {
            let _infallible = write!(text, "; retransmission {address}");
        }
        if let Some(address) = venue.snapshot {
            let _infallible = write!(text, "; snapshots {address}");
        }
        complain(&text);
    }
    let mut bar = Bar::of_messages("Serving");
    while !venues.is_finished() && !interrupt::is_requested() {
        std::thread::sleep(LOOK);
        let done = venues.report().messages;
        // An interruption is seen above.
        let _ = bar.show(done, messages, Some(done));
    }
    bar.clear();
    let is_interrupted = !venues.is_finished();
    let report = venues.stop()?;
    let text = if arguments.json { format!("{:#}\n", report.to_json()) } else { show(&report) };
    output::print(&text)?;
    let refused: u64 = report.venues.iter().flat_map(|venue| &venue.refused_by_kernel).sum();
    if refused > 0 {
        complain(&format!("the kernel did not take {}", counted(refused, "packet", "packets")));
    }
    Ok(match (is_interrupted && messages.is_some(), refused) {
        (true, _) => Ending::Interrupted,
        (false, 0) => Ending::Complete,
        (false, _) => Ending::WithProblems,
    })
}

fn show(report: &Report) -> String {
    let mut out = format!(
        "{} in {:.1} s: {} a second; at most {} us late\n\n",
        counted(report.messages, "message", "messages"),
        report.elapsed_ns as f64 / 1e9,
        number(report.rate()),
        number(report.worst_late_ns as f64 / 1e3),
    );
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
    for venue in &report.venues {
        let each = |count: fn(&tapeworks_exchange::live::LineReport) -> u64| {
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
            each(|line| line.injected.reordered_packets),
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
    for venue in &report.venues {
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
    out
}
