//! `tapeworks plant` and `validate`: run the live ticker plant, and check its configuration.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use clap::Args;
use tapeworks_outputs::multicast::server::MulticastStats;
use tapeworks_plant::pair::{BeginAgain, PairError, PairSetting};
use tapeworks_plant::{PlantFailure, Status};
use tapeworks_runtime::followed::FileWatch;
use tapeworks_runtime::refusals::Refused;
use tapeworks_runtime::traces::TraceStatus;
use tapeworks_service::config::Config;
use tapeworks_service::describe;
use tapeworks_service::monitor::{Monitor, Severity};
use tapeworks_service::report::Report;
use tapeworks_service::service::{self, Service, ServiceError, ServiceFailure};

use crate::ending::{Ending, Failure, Result};
use crate::log::{self, LogFormat};
use crate::table::{Align, Table, counted, thousands};
use crate::{interrupt, output, terminal, values};

/// Interval at which the command checks for news.
const LOOK: Duration = Duration::from_millis(200);

/// Run the ticker plant: turn multicast lines into books and the synthetic NBBO, and serve clients.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tapeworks exchange serve examples/exchange/loopback.toml     (in another terminal: venues to listen to)
  tapeworks plant examples/plant/loopback.toml

The plant logs to standard error. On Ctrl-C, it journals and sends everything received, and prints a summary. \
Exit code 1: a port is busy, or a part failed. 3: messages are missing. 78: the configuration is invalid.")]
pub(crate) struct Arguments {
    /// Configuration, a TOML file.
    #[arg(value_name = "CONFIG")]
    config: PathBuf,
    /// Become the primary of the pair even if the peer cannot be reached. The peer may have records that this
    /// plant lacks.
    #[arg(long)]
    primary: bool,
    /// Format of the log.
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    log: LogFormat,
    /// Stop after this time: seconds, or 500ms, 2s, 10m, 1h.
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    seconds: Option<Duration>,
    /// Print the summary as one JSON object.
    #[arg(short = 'J', long)]
    json: bool,
}

/// Validate a plant's configuration; errors state line, column and expected value.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  tapeworks validate examples/plant/loopback.toml

Exit code 78: the configuration is invalid.")]
pub(crate) struct Validate {
    /// Configuration, a TOML file.
    #[arg(value_name = "CONFIG")]
    config: PathBuf,
}

impl From<ServiceError> for Failure {
    fn from(error: ServiceError) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<ServiceFailure> for Failure {
    fn from(error: ServiceFailure) -> Self {
        Self::Failed(error.to_string())
    }
}

/// Reads a plant's configuration.
pub(crate) fn load(path: &Path) -> Result<Config> {
    service::load(path).map_err(|errors| Failure::Config(errors.iter().map(ToString::to_string).collect()))
}

pub(crate) fn validate(arguments: &Validate) -> Result {
    let config = load(&arguments.config)?;
    let certificates = config.certificates();
    check_certificates(&arguments.config, certificates.map_err(|error| error.to_string()))?;
    let venues = &config.plant.venues;
    let lines = venues.iter().map(|venue| venue.lines.len() as u64).sum();
    let mut text = format!(
        "{}: sound: {}, {}",
        arguments.config.display(),
        counted(venues.len() as u64, "venue", "venues"),
        counted(lines, "line", "lines"),
    );
    if let (Some(source), Some(relay)) = (&config.source, &config.plant.relay) {
        let _infallible =
            write!(text, "; {} of the events of {}, from {}", relay.shard, source.channel, source.from);
    }
    if let Some(clients) = &config.clients {
        let _infallible = write!(text, "; clients on {}", clients.address);
    }
    if let Some(web) = &config.web {
        let _infallible = write!(text, "; page on {}", web.address);
    }
    if let Some(multicast) = &config.multicast {
        let _infallible = write!(text, "; multicast to {}", multicast.group);
    }
    if let Some(questdb) = &config.questdb {
        let _infallible = write!(text, "; QuestDB on {}:{}", questdb.host, questdb.port);
    }
    if let Some(aeron) = &config.aeron {
        let _infallible = write!(text, "; Aeron on {}, stream {}", aeron.channel, aeron.stream);
    }
    if let Some(kafka) = &config.kafka {
        let _infallible = write!(text, "; Kafka on {}", kafka.shown_brokers());
    }
    if let Some(nats) = &config.nats {
        let _infallible = write!(text, "; NATS on {}", nats.shown_servers());
    }
    if let Some(traces) = &config.traces {
        let _infallible = write!(text, "; traces to {}", traces.url);
    }
    if let Some(pair) = &config.plant.pair {
        let _infallible = write!(text, "; pair with {}, on {}", pair.peer, pair.listen);
    }
    if let Some(journal) = &config.plant.journal {
        let _infallible = write!(text, "; journal in {}", journal.folder.display());
    }
    output::print(&(text + "\n"))?;
    Ok(Ending::Complete)
}

/// Refuses a configuration with a certificate that peers refuse, and warns about a certificate that they will refuse soon.
pub(crate) fn check_certificates(
    config: &Path,
    certificates: std::result::Result<FileWatch, String>,
) -> std::result::Result<(), Failure> {
    let wrong = |problem: &str| format!("{}: {problem}", config.display());
    let mut certificates = certificates.map_err(|error| Failure::Config(vec![wrong(&error)]))?;
    let problems = certificates.problems();
    if !problems.is_empty() {
        let line = |(name, problem): &(&str, String)| wrong(&format!("{name}: {problem}"));
        return Err(Failure::Config(problems.iter().map(line).collect()));
    }
    certificates.news(|name, warning| {
        terminal::complain(&wrong(&format!("{name}: {}", warning.unwrap_or_default())));
    });
    Ok(())
}

/// Logs a certificate that is about to expire, has expired or cannot be read, and one that is valid again.
pub(crate) fn log_certificates(certificates: &mut FileWatch) {
    certificates.news(|subject, warning| match warning {
        Some(warning) => tracing::warn!(%subject, "{warning}"),
        None => tracing::info!(%subject, "the certificate is in order"),
    });
}

fn log_refusals(refusals: &Receiver<Refused>) {
    for refused in refusals.try_iter() {
        let peer = refused.address.to_string();
        tracing::warn!(subject = %peer, unreported = refused.unreported, "{} refused: {}", refused.what, refused.reason);
    }
}

/// Logs news several times a second, until `is_over`.
pub(crate) fn watch(
    service: &Service,
    refusals: &Receiver<Refused>,
    mut certificates: FileWatch,
    mut is_over: impl FnMut(&Status) -> bool,
) {
    let mut monitor = Monitor::default();
    loop {
        let report = service.report();
        for notice in monitor.look(&report) {
            let subject = &notice.subject;
            match notice.severity {
                Severity::Info => tracing::info!(%subject, "{}", notice.text),
                Severity::Warning => tracing::warn!(%subject, "{}", notice.text),
                Severity::Error => tracing::error!(%subject, "{}", notice.text),
            }
        }
        log_certificates(&mut certificates);
        log_refusals(refusals);
        if service.has_ended() || is_over(&report.plant) {
            return;
        }
        std::thread::sleep(LOOK);
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result {
    let mut config = load(&arguments.config)?;
    log::start(arguments.log);
    if let Some(pair) = &mut config.plant.pair {
        pair.is_forced = arguments.primary;
    } else if arguments.primary {
        let why = format!("{}: --primary is for a plant with a [pair]", arguments.config.display());
        return Err(Failure::Usage(why));
    }
    let until = arguments.seconds.map(|time| Instant::now() + time);
    let is_over = || interrupt::is_requested() || until.is_some_and(|until| Instant::now() >= until);
    let mut rest = FIRST_REST;
    loop {
        let began = Instant::now();
        // The plant of a pair may have to restart as the standby of its peer.
        let agreed = config.plant.agree(|news| tracing::info!(subject = "pair", "{news}"), is_over);
        let follows = config.plant.pair.as_ref().is_some_and(PairSetting::is_follower);
        let why = match agreed {
            Ok(()) => match serve(arguments, &config, until) {
                Err(Ended::Again(why)) => why,
                Err(Ended::Failed(failure)) => return Err(failure),
                Ok(ending) => return Ok(ending),
            },
            Err(PairError::Stopped) => return Err(Failure::Stopped),
            Err(error) if follows && error.is_full_disk() => BeginAgain::CannotFollow(error.to_string()),
            Err(error) => return Err(Failure::Failed(error.to_string())),
        };
        tracing::warn!(subject = "pair", "{why}; the plant begins again");
        if matches!(why, BeginAgain::CannotFollow(_)) {
            rest = if began.elapsed() > LONGEST_REST { FIRST_REST } else { (2 * rest).min(LONGEST_REST) };
            let rested = Instant::now();
            while rested.elapsed() < rest && !is_over() {
                std::thread::sleep(LOOK);
            }
        }
        if let Some(pair) = &mut config.plant.pair {
            pair.begin_again(&why);
        }
    }
}

/// The initial value of the pause before a standby that cannot follow restarts. The pause doubles after each run of up to `LONGEST_REST`.
const FIRST_REST: Duration = Duration::from_millis(250);

/// The longest pause before a restart.
const LONGEST_REST: Duration = Duration::from_secs(30);

/// Why a plant ended, other than normally.
enum Ended {
    /// The plant must restart.
    Again(BeginAgain),
    Failed(Failure),
}

impl<E: Into<Failure>> From<E> for Ended {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// Runs a plant until it is stopped or fails.
fn serve(
    arguments: &Arguments,
    config: &Config,
    until: Option<Instant>,
) -> std::result::Result<Ending, Ended> {
    let (log, refusals) = channel();
    let on_refusal = Arc::new(move |refused: &Refused| {
        // The log may have ended already.
        let _unheard = log.send(refused.clone());
    });
    let certificates = config.certificates().map_err(|error| Failure::Failed(error.to_string()))?;
    let service = match Service::start(config, Some(on_refusal)) {
        Err(ServiceError::Plant(error))
            if error.is_full_disk() && config.plant.pair.as_ref().is_some_and(PairSetting::is_follower) =>
        {
            return Err(Ended::Again(BeginAgain::CannotFollow(error.to_string())));
        }
        started => started?,
    };
    let replayed = service.replayed();
    if replayed.inputs > 0 {
        tracing::info!(
            inputs = replayed.inputs,
            events = replayed.events,
            torn_bytes = replayed.torn_bytes,
            lost = replayed.lost,
            damaged = replayed.damaged,
            milliseconds = replayed.took_ns / 1_000_000,
            "the journal is replayed"
        );
    }
    if let Some(record) = service.status().checkpoints.restored {
        tracing::info!(record, "went on from the checkpoint of this record of the journal");
    }
    for venue in &config.plant.venues {
        let lines: Vec<String> = venue.lines.iter().map(ToString::to_string).collect();
        tracing::info!(subject = %venue.name, "listening to {}", lines.join(" and "));
    }
    if let (Some(source), Some(relay)) = (&config.source, &config.plant.relay) {
        let channel = &source.channel;
        tracing::info!(subject = %relay.name, "taking {} of the events of {channel}", relay.shard);
    }
    if let Some(address) = service.clients_address() {
        tracing::info!("clients are served on {address}");
    }
    if let Some(url) = service.web_url() {
        tracing::info!("the page is on {url}");
    }
    if let Some(multicast) = &config.multicast {
        let session = service.multicast().map(|stats| stats.session).unwrap_or_default();
        tracing::info!("records go to the multicast group {}, session {session}", multicast.group);
    }
    if let Some(questdb) = &config.questdb {
        tracing::info!("records go into QuestDB on {}:{}", questdb.host, questdb.port);
    }
    if let Some(aeron) = &config.aeron {
        tracing::info!("the status of Aeron's streams is stream {} of {}", aeron.stream, aeron.channel);
    }
    if let Some(kafka) = &config.kafka {
        tracing::info!("records go into Kafka on {} as {}", kafka.shown_brokers(), kafka.id);
    }
    if let Some(nats) = &config.nats {
        tracing::info!("records go to NATS on {} under {}", nats.shown_servers(), nats.prefix);
    }
    if let Some(traces) = &config.traces {
        tracing::info!("traces go to {} as {}", traces.url, traces.service_name);
    }
    watch(&service, &refusals, certificates, |_| {
        interrupt::is_requested() || until.is_some_and(|until| Instant::now() >= until)
    });
    let has_failed = service.has_ended();
    let handles = service.handles();
    let clients = service.clients();
    match service.stop() {
        Err(ServiceFailure::Plant(PlantFailure::Pair(why))) => return Err(Ended::Again(why)),
        stopped => stopped?,
    }
    let report = Report { clients, ..handles.report() };
    let text = if arguments.json {
        format!("{:#}\n", describe::status(&report))
    } else {
        show(&report) + &report.multicast.as_ref().map(show_multicast).unwrap_or_default()
    };
    output::print(&text)?;
    let missing =
        report.plant.channels.iter().map(|channel| channel.counters.missing).fold(0, u64::saturating_add);
    Ok(match (has_failed, missing) {
        (false, 0) => Ending::Complete,
        _ => Ending::WithProblems,
    })
}

/// Formats the summary for people.
pub(crate) fn show(Report { plant: status, questdb, nats, kafka, aeron, traces, .. }: &Report) -> String {
    let [p50, p90, p99, p999, max] = status.delays.all;
    let microseconds = |nanoseconds: u64| format!("{:.1}", nanoseconds as f64 / 1e3);
    let mut out = format!(
        "{}, {}, {}; from the kernel's receive time to the ring: p50 {} us, p90 {}, p99 {}, p99.9 {}, at most {}\n\n",
        counted(status.engine.messages, "message", "messages"),
        counted(status.engine.events, "event", "events"),
        counted(status.engine.symbols as u64, "symbol", "symbols"),
        microseconds(p50),
        microseconds(p90),
        microseconds(p99),
        microseconds(p999),
        microseconds(max),
    );
    let mut venues = Table::new(&[
        ("venue", Align::Left),
        ("messages", Align::Right),
        ("won A, B", Align::Right),
        ("lost A, B", Align::Right),
        ("gaps opened", Align::Right),
        ("filled by lines", Align::Right),
        ("filled by requests", Align::Right),
        ("given up", Align::Right),
        ("missing", Align::Right),
        ("snapshots", Align::Right),
        ("kernel drops", Align::Right),
    ]);
    for channel in &status.channels {
        let lines = channel.lines.iter().take(2);
        let each = |count: fn(&tapeworks_plant::LineStatus) -> u64| {
            lines.clone().map(|line| thousands(count(line))).collect::<Vec<_>>().join(", ")
        };
        venues.row([
            channel.name.clone(),
            thousands(channel.counters.messages),
            each(|line| line.counters.won),
            each(|line| line.counters.lost),
            thousands(channel.counters.gaps_opened),
            thousands(channel.counters.filled_by_lines),
            thousands(channel.counters.filled_by_retransmission),
            thousands(channel.counters.gaps),
            thousands(channel.counters.missing),
            thousands(channel.snapshots.applied),
            thousands(channel.lines.iter().map(|line| line.kernel_drops).sum()),
        ]);
    }
    out.push_str(&venues.render(terminal::width(), terminal::paint()));
    if let Some(interface) = &status.interface {
        let _infallible = writeln!(
            out,
            "\ninterface {}: {} frames dropped by the kernel, {} longer than a buffer, {} with a wrong checksum, {} of no line",
            interface.device,
            thousands(interface.kernel_drops),
            thousands(interface.too_long),
            thousands(interface.bad_checksums),
            thousands(interface.foreign),
        );
    }
    if let Some(journal) = &status.journal {
        let _infallible = writeln!(
            out,
            "\njournal: {}, {} bytes written, {} lost, {} unconfirmed, {} damaged",
            counted(journal.next, "record", "records"),
            thousands(journal.written_bytes),
            thousands(journal.lost),
            thousands(journal.unconfirmed),
            thousands(journal.damaged),
        );
    }
    if let Some(questdb) = questdb {
        let _infallible = writeln!(
            out,
            "QuestDB: {}, {} of them from the journal; {} without room, {} refused, {} lost; {} failed requests, {} \
             reconnects",
            counted(questdb.rows, "row", "rows"),
            thousands(questdb.rows_again),
            thousands(questdb.overflowed),
            thousands(questdb.refused),
            thousands(questdb.lost),
            thousands(questdb.failures),
            thousands(questdb.reconnects),
        );
    }
    if let Some(nats) = nats {
        let _infallible = writeln!(
            out,
            "NATS: {}, {} kept by JetStream; {} conflated, {} dropped, {} unconfirmed, {} lost; {} failed connections",
            counted(nats.records, "record", "records"),
            thousands(nats.stored),
            thousands(nats.conflated),
            thousands(nats.dropped_trades + nats.dropped_gaps),
            thousands(nats.unconfirmed),
            thousands(nats.lost),
            thousands(nats.failures),
        );
    }
    if let Some(aeron) = aeron {
        let _infallible = writeln!(
            out,
            "Aeron: {} in {}; {} unread, {} dropped, {} connections, {} failures; {} with {}",
            counted(aeron.items, "item", "items"),
            counted(aeron.messages, "message", "messages"),
            thousands(aeron.unread),
            thousands(aeron.dropped()),
            thousands(aeron.connects),
            thousands(aeron.failures),
            counted(aeron.replays, "replay", "replays"),
            counted(aeron.replayed, "item", "items"),
        );
    }
    if let Some(kafka) = kafka {
        let _infallible = writeln!(
            out,
            "Kafka: {} in {}, {} aborted; {} lost events, {} failures; the journal is sent up to event {} of {}",
            counted(kafka.records, "record", "records"),
            counted(kafka.transactions, "transaction", "transactions"),
            thousands(kafka.aborted),
            thousands(kafka.lost_events),
            thousands(kafka.failures),
            thousands(kafka.position.unwrap_or_default()),
            thousands(status.engine.events),
        );
    }
    if let Some(traces) = traces {
        out.push_str(&show_traces(traces));
    }
    out
}

/// Formats the export of traces in the summary of a plant or a gateway.
pub(super) fn show_traces(traces: &TraceStatus) -> String {
    format!(
        "traces: {} with {}; {} dropped, {} not followed, {} refused spans, {} lost; {} failed requests\n",
        counted(traces.traces, "trace", "traces"),
        counted(traces.spans, "span", "spans"),
        thousands(traces.dropped),
        thousands(traces.unfollowed),
        thousands(traces.refused_spans),
        thousands(traces.lost),
        thousands(traces.failures),
    )
}

/// Formats the multicast's part of the summary.
fn show_multicast(stats: &MulticastStats) -> String {
    format!(
        "multicast: session {}, {} in {}, {} not taken by the system; {}, {} refused; \
         {} TCP connections, {} too slow\n",
        stats.session,
        counted(stats.next.saturating_sub(1), "message", "messages"),
        counted(stats.packets, "packet", "packets"),
        thousands(stats.unsent),
        counted(stats.requests, "request", "requests"),
        thousands(stats.refused_requests),
        thousands(stats.connections),
        thousands(stats.slow_clients),
    )
}
