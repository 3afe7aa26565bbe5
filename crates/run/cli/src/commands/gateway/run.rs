//! `tapeworks gateway CONFIG` and `gateway check`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;
use tapeworks_gateway::config::{Config, VenueConfig};
#[cfg(feature = "web")]
use tapeworks_gateway::config::{ControlConfig, WebConfig};
use tapeworks_gateway::status::Status;
use tapeworks_gateway::{Cut, Notice, RestoreError, Restored, StartError};
use tapeworks_ring::spsc;
use tapeworks_runtime::config::ConfigError;
use tapeworks_runtime::followed::FileWatch;
use tapeworks_runtime::refusals::{OnRefusal, Refused};
#[cfg(feature = "web")]
use tapeworks_runtime::secrets::Secret;
#[cfg(feature = "otel")]
use tapeworks_runtime::traces::Traces;
use tapeworks_runtime::traces::{TraceHandle, TraceStatus};
use tapeworks_runtime::transport::{NoTls, TlsFiles};
use tapeworks_runtime::world::{System, World as _};
use tapeworks_service::describe;
use tapeworks_service::monitor::{Severity, compare_traces};
#[cfg(feature = "otel")]
use tapeworks_service::otel::exporter::{self, Exporter};
#[cfg(feature = "web")]
use tapeworks_service::web;
use tapeworks_time::Nanos;

use super::super::plant::{check_certificates, log_certificates, show_traces};
use super::Configured;
use crate::ending::{Ending, Failure, Result};
use crate::log::{self, LogFormat};
use crate::table::{Align, Table, counted, thousands, time};
use crate::{interrupt, output, terminal, values};

/// Maximum number of queued log lines. The gateway's thread does not wait for a blocked log; further lines are only counted.
const MOST_LINES: usize = 4_096;

/// Interval at which the command checks for news.
const LOOK: Duration = Duration::from_millis(100);

#[derive(Debug, Args)]
pub(super) struct Run {
    /// Configuration, a TOML file.
    #[arg(value_name = "CONFIG", required = true)]
    config: Option<PathBuf>,
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

/// Validate a gateway's configuration; errors state line, column and expected value.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  tapeworks gateway check examples/gateway/loopback.toml

Exit code 78: the configuration is invalid.")]
pub(super) struct Check {
    #[command(flatten)]
    configured: Configured,
}

/// Reads a gateway's configuration.
pub(super) fn load(path: &Path) -> Result<Config> {
    Config::load(path).map_err(wrong)
}

/// Converts the errors of a configuration.
pub(super) fn wrong(errors: Vec<ConfigError>) -> Failure {
    Failure::Config(errors.iter().map(ToString::to_string).collect())
}

impl From<RestoreError> for Failure {
    fn from(error: RestoreError) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        Self::Failed(error.to_string())
    }
}

pub(super) fn check(arguments: &Check) -> Result {
    let path = &arguments.configured.config;
    let config = load(path)?;
    config.parts(System::time_of_day().0).map_err(Failure::Failed)?;
    check_certificates(path, certificates(&config).map_err(|error| error.to_string()))?;
    #[cfg(feature = "otel")]
    if let Some(setting) = &config.traces {
        exporter::check(setting).map_err(|error| Failure::Config(vec![error.to_string()]))?;
    }
    let venue = match &config.venue {
        VenueConfig::Millennium { session, .. } => session.variant.title,
        VenueConfig::Ouch { .. } => "OUCH 5.0",
    };
    output::print(&format!(
        "{}: sound: {} on {}, {}, {venue}; store in {}\n",
        path.display(),
        counted(config.clients.len() as u64, "FIX client", "FIX clients"),
        config.host.listen,
        counted(config.instruments.len() as u64, "instrument", "instruments"),
        config.store.display(),
    ))?;
    Ok(Ending::Complete)
}

/// Returns the certificates that the gateway presents.
fn certificates(config: &Config) -> std::result::Result<FileWatch, NoTls> {
    let mut watch = FileWatch::default();
    watch.add("tls.certificate", config.host.acceptor.files());
    let page = config.web.as_ref().and_then(|web| web.tls.as_ref());
    let page = page.map(TlsFiles::acceptor).transpose()?.unwrap_or_default();
    watch.add("web.certificate", page.files());
    Ok(watch)
}

pub(super) fn run(arguments: &Run) -> Result {
    // clap requires the argument if there is no subcommand.
    let Some(path) = &arguments.config else { return Err(Failure::Usage("which configuration?".to_owned())) };
    let config = load(path)?;
    #[cfg(not(feature = "web"))]
    if config.web.is_some() {
        let why = "the configuration has [web], and this build is without the feature `web`";
        return Err(Failure::Failed(format!("{}: {why}", path.display())));
    }
    log::start(arguments.log);
    serve(arguments, config)
}

/// Starts the export of traces, if configured, and makes the gateway record them.
#[cfg(feature = "otel")]
fn export(config: &mut Config) -> Result<Option<Exporter>> {
    let Some(setting) = &config.traces else { return Ok(None) };
    let (traces, samples) = Traces::new(setting.sampling, setting.queue_samples, setting.operations);
    let exporter = exporter::start(setting.clone(), samples);
    config.host.traces = Some(traces);
    exporter.map(Some).map_err(|error| Failure::Failed(error.to_string()))
}

fn log_restored(restored: &Restored, store: &Path) {
    if restored.starts == 0 {
        // If the gateway has traded before, this is the wrong folder: its orders and numbers are unknown.
        tracing::info!("the store {} is new", store.display());
        return;
    }
    tracing::info!(
        requests = restored.requests,
        reports = restored.reports,
        messages = restored.messages,
        torn_bytes = restored.torn_bytes,
        "went on from the store"
    );
    if let Some(cut) = &restored.cut {
        tracing::warn!("{}", cut_text(cut, "was cut off"));
    }
}

/// Describes the records after the last sync that were cut off.
pub(super) fn cut_text(cut: &Cut, what_is_done: &str) -> String {
    let copy =
        cut.set_aside.as_ref().map_or_else(String::new, |path| format!("; a copy is {}", path.display()));
    format!(
        "power was lost before all records were on disk. Everything after record {} {what_is_done}: {} that the disk does not have, \
         and {} from {} to {}{copy}. Orders may be missing: compare with the venue",
        cut.from,
        counted(cut.lost, "record", "records"),
        counted(cut.discarded, "record", "records"),
        time(Nanos(cut.times_ns.0)),
        time(Nanos(cut.times_ns.1)),
    )
}

/// Binds the address of the page, which also shows the TLS files of the FIX port.
#[cfg(feature = "web")]
fn bind(page: &WebConfig, config: &Config) -> Result<web::Listening> {
    let failed = |error: &dyn std::error::Error| Failure::Failed(error.to_string());
    let tls = page.tls.as_ref().map(TlsFiles::acceptor).transpose().map_err(|error| failed(&error))?;
    let listening = web::bind(page.address, page.token.clone(), tls.unwrap_or_default());
    let listening = listening.map_err(|error| failed(&error))?;
    let mut listening = listening.showing("fix.certificate", config.host.acceptor.files());
    let token = config.traces.as_ref().and_then(|traces| traces.token.as_ref());
    listening = listening.showing("otel.token", token.and_then(Secret::files));
    let of_venue = config.host.venue_password.as_ref().and_then(Secret::files);
    listening = listening.showing("venue.password", of_venue);
    for client in &config.clients {
        let files = client.password.as_ref().and_then(Secret::files);
        listening = listening.showing(format!("client.{}.password", client.name), files);
    }
    Ok(listening)
}

fn serve(
    arguments: &Run,
    #[cfg_attr(not(feature = "otel"), expect(unused_mut))] mut config: Config,
) -> Result {
    // The port is bound before the store is opened, so that a port in use is reported early.
    #[cfg(feature = "web")]
    let listening = config.web.as_ref().map(|page| bind(page, &config)).transpose()?;
    let (mut log, mut notices) = spsc::ring::<Notice>(MOST_LINES);
    let unlogged = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&unlogged);
    let on_notice = Box::new(move |notice: Notice| {
        if log.try_push(notice).is_err() {
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    let (log, refusals) = sync_channel::<Refused>(MOST_LINES);
    let count = Arc::clone(&unlogged);
    let on_refusal: OnRefusal = Arc::new(move |refused: &Refused| {
        if log.try_send(refused.clone()).is_err() {
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    #[cfg(feature = "otel")]
    let exporter = export(&mut config)?;
    #[cfg(feature = "otel")]
    let traces = exporter.as_ref().map(Exporter::handle);
    #[cfg(not(feature = "otel"))]
    let traces: Option<TraceHandle> = None;
    let (gateway, restored) = config.start(on_notice, Some(Arc::clone(&on_refusal)))?;
    log_restored(&restored, &config.store);
    #[cfg(feature = "web")]
    let page = listening
        .map(|listening| web::gateway::start(listening, gateway.handle(), traces.clone(), Some(on_refusal)))
        .transpose()
        .map_err(|error| Failure::Failed(error.to_string()))?;
    #[cfg(feature = "web")]
    if let Some(page) = &page {
        tracing::info!("the page is on {}", page.url());
    }
    #[cfg(feature = "web")]
    let control = match &config.control {
        Some(ControlConfig { path, is_named }) => {
            let (handle, traces) = (gateway.handle(), traces.clone());
            match web::gateway::start_control(path.clone(), handle, traces, page.as_ref()) {
                Ok(control) => Some(control),
                Err(error) if *is_named => return Err(Failure::Failed(error.to_string())),
                Err(error) => {
                    tracing::warn!("{error}");
                    None
                }
            }
        }
        None => None,
    };
    #[cfg(feature = "web")]
    if let Some(control) = &control {
        tracing::info!("the control socket is {}", control.path().display());
    }
    tracing::info!("FIX clients are served on {}", gateway.address());
    if let Some(traces) = &config.traces {
        tracing::info!("traces go to {} as {}", traces.url, traces.service_name);
    }
    let mut exported = TraceStatus::default();
    let mut certificates = certificates(&config).map_err(|error| Failure::Failed(error.to_string()))?;
    let mut log_news = || {
        log_certificates(&mut certificates);
        notices.pop_batch(MOST_LINES, |Notice { is_alert, text }| {
            if is_alert {
                tracing::warn!("{text}");
            } else {
                tracing::info!("{text}");
            }
        });
        for refused in refusals.try_iter() {
            let peer = refused.address.to_string();
            tracing::warn!(subject = %peer, unreported = refused.unreported, "{} refused: {}", refused.what, refused.reason);
        }
        if let Some(now) = traces.as_ref().map(TraceHandle::status) {
            compare_traces(&exported, &now, &mut |severity, text| match severity {
                Severity::Info => tracing::info!("{text}"),
                Severity::Warning | Severity::Error => tracing::warn!("{text}"),
            });
            exported = now;
        }
        let lost = unlogged.swap(0, Ordering::Relaxed);
        if lost > 0 {
            tracing::warn!(
                "{} of the log were lost: it was not written fast enough",
                counted(lost, "line", "lines")
            );
        }
    };
    let until = arguments.seconds.map(|time| Instant::now() + time);
    let is_over = || interrupt::is_requested() || until.is_some_and(|until| Instant::now() >= until);
    while !is_over() && !gateway.is_finished() {
        log_news();
        std::thread::sleep(LOOK);
    }
    let status = gateway.status();
    #[cfg(feature = "web")]
    drop((control, page));
    let ended = gateway.stop();
    #[cfg(feature = "otel")]
    if let Some(exporter) = exporter {
        exporter.join();
    }
    log_news();
    ended?;
    if arguments.json {
        let traces = traces.as_ref().map(|traces| describe::traces(&traces.status()));
        let all = json!({ "gateway": status, "otel": traces });
        let text = serde_json::to_string(&all).unwrap_or_default();
        output::print(&(text + "\n"))?;
    } else {
        let traces = traces.as_ref().map(|traces| show_traces(&traces.status()));
        output::print(&(summary(&status) + &traces.unwrap_or_default()))?;
    }
    Ok(Ending::Complete)
}

/// Formats the sessions and counts for people.
pub(super) fn summary(status: &Status) -> String {
    let mut table = Table::new(&[
        ("client", Align::Left),
        ("state", Align::Left),
        ("next in", Align::Right),
        ("next out", Align::Right),
        ("open", Align::Right),
        ("waiting", Align::Right),
    ]);
    for client in &status.clients {
        let state = match (client.is_logged_on, client.is_connected) {
            (true, _) => "logged on",
            (_, true) => "connected",
            _ => "away",
        };
        let state = if client.is_halted { format!("{state}, halted") } else { state.to_owned() };
        table.row([
            client.name.clone(),
            state,
            client.next_incoming.to_string(),
            client.next_outgoing.to_string(),
            thousands(client.open_orders),
            thousands(client.waiting_bytes),
        ]);
    }
    let translated = &status.translated;
    let mut text = table.render(terminal::width(), terminal::paint());
    text += &format!(
        "{}, {} sent to the venue, {} refused; {} of the venue, {} to clients, {}\n",
        counted(translated.client_messages, "message of clients", "messages of clients"),
        thousands(translated.requests),
        thousands(translated.refused),
        counted(translated.venue_messages, "report", "reports"),
        thousands(translated.reports),
        counted(translated.fills, "fill", "fills"),
    );
    let trip = &status.round_trip;
    if trip.count > 0 {
        text += &format!(
            "from an order to the venue's first report: median {} us, 99.9 % {} us, longest {} us\n",
            thousands(trip.p50_ns / 1_000),
            thousands(trip.p99_9_ns / 1_000),
            thousands(trip.longest_ns / 1_000),
        );
    }
    text
}
