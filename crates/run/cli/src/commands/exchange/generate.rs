//! `tapeworks exchange generate`: writes a session to a file.

use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::{Args, ValueEnum};
use serde_json::json;
use tapeworks_analysis::generate;
use tapeworks_capture::new_file;
use tapeworks_generator::{
    FileForm, LineFaults, Report, Scenario, ScenarioKind, VenueConfig, VenueKind, WrongVenue,
};
use tapeworks_time::Nanos;

use crate::ending::{Ending, Failure, Result};
use crate::table::{Align, Table, bytes, counted, number, percent, thousands, time};
use crate::terminal::complain;
use crate::{output, terminal, values};

/// Generate a trading session; the same seed gives the same bytes.
///
/// The extension of --out chooses the form: .pcap for a capture of every venue's packets, .itch for raw ITCH
/// messages of one venue. Append .gz or .zst to compress the file.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tapeworks exchange generate --out session.pcap.zst
  tapeworks exchange generate --scenario benchmark --messages 20000000 --symbols 8000 --out day.itch
  tapeworks exchange generate --scenario demo --loss 500 --line-b --out lossy.pcap
  tapeworks exchange generate --days 3 --restarts 2 --line-b --late-copies 500 --out restarts.pcap")]
pub(super) struct Generate {
    /// Output file, .pcap or .itch, optionally with .gz or .zst; - writes a capture to standard output.
    #[arg(short, long, value_name = "FILE")]
    out: PathBuf,
    /// Kind of session.
    #[arg(long, value_enum, default_value_t = Kind::Demo)]
    scenario: Kind,
    /// Total messages of all venues, approximately [default: depends on the scenario]
    ///
    /// The start of the day takes about five messages per symbol and venue. Without --symbols, the number of
    /// symbols is reduced to fit. With it, a warning is printed if the session exceeds N by more than 2 % and
    /// 100 messages per venue.
    #[arg(long, value_name = "N")]
    messages: Option<u64>,
    /// Number of symbols, up to 65,535, each traded at every venue [default: depends on the scenario]
    #[arg(long, value_name = "N")]
    symbols: Option<u32>,
    /// Venues with optional shares of the messages: nasdaq=60,bx=12,iex-deep.
    ///
    /// Known venues: nasdaq, bx, psx, iex-deep, iex-deep-plus, iex-tops, memx, bzx, byx, edga, edgx, nyse,
    /// arca, american, national, texas, lse, uqdf, cqs.
    #[arg(long, value_name = "VENUES", value_delimiter = ',', value_parser = venue)]
    venues: Vec<VenueConfig>,
    /// Seed of the random numbers; the same seed gives the same bytes.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Trading day (New York), or the first of several.
    #[arg(long, value_name = "DATE", value_parser = values::midnight)]
    date: Option<Nanos>,
    /// Trading days in the capture, without weekends and holidays; the messages are divided among them.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    days: u16,
    /// Times per day that all feeds restart in the same session: sequence numbers begin at 1, the directory is
    /// sent again, and books are empty.
    #[arg(long, value_name = "N", default_value_t = 0)]
    restarts: u32,
    /// With --days or --restarts, omit the messages that announce that numbers restart.
    ///
    /// IEX-TP announces it all the same, by its stream offset.
    #[arg(long)]
    unannounced: bool,
    /// Send every packet on line B too.
    #[arg(long)]
    line_b: bool,
    /// Packets that never arrive, per million on each line.
    #[arg(long, value_name = "PER_MILLION", default_value_t = 0)]
    loss: u32,
    /// Packets that arrive twice, per million on each line.
    #[arg(long, value_name = "PER_MILLION", default_value_t = 0)]
    duplicates: u32,
    /// Packets that arrive after their successor, per million on each line.
    #[arg(long, value_name = "PER_MILLION", default_value_t = 0)]
    reorder: u32,
    /// Packets of which another copy arrives up to 5 s late, per million on each line.
    #[arg(long, value_name = "PER_MILLION", default_value_t = 0)]
    late_copies: u32,
    /// Overwrite the file if it exists.
    #[arg(short, long)]
    force: bool,
    /// Print the report as one JSON object.
    #[arg(short = 'J', long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Kind {
    /// Four venues from before the open until after the close: 2 million messages, 300 symbols.
    Demo,
    /// Twenty seconds around a Nasdaq close, with bursts of 4 million messages a second: 1.5 million
    /// messages, 1,000 symbols.
    Close,
    /// One Nasdaq day with random symbols, the load of the benchmarks: 20 million messages, 8,000 symbols.
    Benchmark,
    /// One Nasdaq day: 5 million messages, 3,000 symbols.
    Session,
    /// The whole US market, 14 markets and both SIPs: 20 million messages, 2,000 symbols that move together.
    Us,
}

impl From<Kind> for ScenarioKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Demo => Self::Demo,
            Kind::Close => Self::Close,
            Kind::Benchmark => Self::Benchmark,
            Kind::Session => Self::Session,
            Kind::Us => Self::Us,
        }
    }
}

fn venue(text: &str) -> std::result::Result<VenueConfig, String> {
    VenueConfig::parse(text).map_err(|wrong| match wrong {
        WrongVenue::Name => {
            let keys = values::one_of(VenueKind::all().map(VenueKind::key));
            format!("use {keys}, each with =SHARE if you like")
        }
        WrongVenue::Share => "a share is a whole number".to_owned(),
    })
}

impl Generate {
    fn scenario(&self) -> Scenario {
        let kind = ScenarioKind::from(self.scenario);
        let mut scenario = kind.scenario(self.messages, self.symbols);
        scenario.seed = self.seed.unwrap_or(scenario.seed);
        scenario.midnight_ns = self.date.map_or(scenario.midnight_ns, |midnight| midnight.0);
        generate::add_days(&mut scenario, self.days - 1);
        scenario.restarts = self.restarts;
        scenario.announces = !self.unannounced;
        scenario.line_b |= self.line_b;
        if !self.venues.is_empty() {
            scenario.venues.clone_from(&self.venues);
        }
        if self.symbols.is_none() {
            scenario.fit_symbols();
        }
        scenario.faults = [LineFaults {
            lost_per_million: self.loss,
            duplicated_per_million: self.duplicates,
            reordered_per_million: self.reorder,
            late_copies_per_million: self.late_copies,
            late_copy_ns: LineFaults::USUAL_LATE_COPY_NS,
        }; 2];
        scenario
    }
}

/// Returns the form of a file, by its name.
fn form_of(path: &Path) -> Result<FileForm> {
    if new_file::is_stdout(path) {
        return match std::io::stdout().is_terminal() {
            true => Err(Failure::Usage("a capture is not text: redirect standard output".to_owned())),
            false => Ok(FileForm::Capture),
        };
    }
    FileForm::from_path(path).ok_or_else(|| {
        let path = path.display();
        Failure::Usage(format!("{path}: use a name that ends in .pcap or .itch, with .gz or .zst"))
    })
}

pub(super) fn run(arguments: &Generate) -> Result {
    let form = form_of(&arguments.out)?;
    let scenario = arguments.scenario();
    scenario.check().map_err(|error| Failure::Usage(error.to_string()))?;
    let started = Instant::now();
    let generated =
        output::generate(&arguments.out, arguments.force, |sink| generate::write(form, &scenario, sink))?;
    let Some(report) = generated else { return Ok(Ending::Interrupted) };
    let seconds = started.elapsed().as_secs_f64();
    let text = if arguments.json {
        format!("{:#}\n", to_json(&report, &scenario, &arguments.out))
    } else {
        show(&report, &arguments.out, seconds)
    };
    let more = scenario.messages / 50 + MORE_MESSAGES * scenario.venues.len() as u64 * scenario.run_count();
    let bound = scenario.messages.saturating_add(more);
    if report.messages > bound {
        let (requested, made) = (thousands(scenario.messages), thousands(report.messages));
        complain(&format!(
            "{made} messages, not {requested}: the start of {} takes about five for each of {} and each venue",
            match scenario.run_count() {
                1 => "the day".to_owned(),
                runs => format!("each of {} runs", thousands(runs)),
            },
            counted(u64::from(scenario.symbols), "symbol", "symbols"),
        ));
    }
    output::report(&text, &[&arguments.out])?;
    Ok(Ending::Complete)
}

/// Messages per venue and run, besides 2 % of the total, by which a session may exceed the request without a warning.
const MORE_MESSAGES: u64 = 100;

fn to_json(report: &Report, scenario: &Scenario, path: &Path) -> serde_json::Value {
    json!({
        "file": path.display().to_string(),
        "messages": report.messages,
        "asked_messages": scenario.messages,
        "symbols": scenario.symbols,
        "packets": report.packets,
        "heartbeats": report.heartbeats,
        "bytes": report.bytes,
        "first_time": time(Nanos(report.first_ns)),
        "last_time": time(Nanos(report.last_ns)),
        "peak_messages_per_ms": report.peak_per_ms,
        "venues": report.venues.iter().map(|venue| json!({
            "venue": venue.kind.name(),
            "messages": venue.messages,
            "lost_messages": venue.lost_messages,
            "message_types": venue.types().map(|(kind, count)| (char::from(kind).to_string(), count.into()))
                .collect::<serde_json::Map<_, _>>(),
            "lines": venue.injected.iter().map(|injected| json!({
                "dropped_packets": injected.dropped_packets,
                "dropped_messages": injected.dropped_messages,
                "duplicated_packets": injected.duplicated_packets,
                "duplicated_messages": injected.duplicated_messages,
                "reordered_packets": injected.reordered_packets,
                "late_copies": injected.late_copies,
            })).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
    })
}

fn show(report: &Report, path: &Path, seconds: f64) -> String {
    let mut table = Table::new(&[
        ("venue", Align::Left),
        ("messages", Align::Right),
        ("share", Align::Right),
        ("dropped packets A, B", Align::Right),
        ("repeated A, B", Align::Right),
        ("late A, B", Align::Right),
        ("messages on no line", Align::Right),
    ]);
    for venue in &report.venues {
        let [a, b] = &venue.injected;
        let both = |a: u64, b: u64| format!("{}, {}", thousands(a), thousands(b));
        table.row([
            venue.kind.name().to_owned(),
            thousands(venue.messages),
            percent(venue.messages, report.messages),
            both(a.dropped_packets, b.dropped_packets),
            both(a.duplicated_packets, b.duplicated_packets),
            both(a.reordered_packets + a.late_copies, b.reordered_packets + b.late_copies),
            thousands(venue.lost_messages),
        ]);
    }
    let paint = terminal::paint();
    // A raw file has no packets.
    let packets = match report.packets {
        0 => String::new(),
        packets => format!(" in {}", counted(packets, "packet", "packets")),
    };
    let mut out = format!(
        "{}\n{}{packets}, {} before compression, made in {seconds:.1} s ({} messages/s)\n",
        paint.strong(&path.display().to_string()),
        counted(report.messages, "message", "messages"),
        bytes(report.bytes),
        number(report.messages as f64 / seconds.max(1e-9)),
    );
    let _infallible = write!(
        out,
        "From {} to {}, up to {} in a millisecond\n\n{}",
        time(Nanos(report.first_ns)),
        time(Nanos(report.last_ns)),
        counted(report.peak_per_ms, "message", "messages"),
        table.render(terminal::width(), paint)
    );
    out
}
