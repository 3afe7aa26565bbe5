//! `tapeworks subscribe`: a client of the live protocol.

use std::collections::HashMap;
use std::io::{BufWriter, Write as _};
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;
use dbn::encode::EncodeRecordTextExt as _;
use dbn::encode::json::Encoder as JsonEncoder;
use dbn::{ErrorMsg, Record as _, RecordRef, SymbolMappingMsg, SystemMsg};
use hdrhistogram::Histogram;
use serde_json::json;
use tapeworks_capture::new_file::Handle;
#[cfg(feature = "aeron")]
use tapeworks_market::Symbol;
#[cfg(feature = "aeron")]
use tapeworks_outputs::aeron::reader::{AeronReader, AeronReaderCounters, AeronReaderOptions};
use tapeworks_outputs::multicast::receiver::{Receiver, ReceiverCounters, ReceiverOptions};
use tapeworks_outputs::resume::{Failover, WhenRefused};
use tapeworks_outputs::subscriber::{DEMO_KEY, Records, SubscribeError, Subscriber, SubscriberOptions};
use tapeworks_runtime::world::System;
use tapeworks_store::{Format, RecordWriter, Schema, is_market, is_snapshot};

use crate::ending::{Ending, Failure, Result};
use crate::table::{counted, number, thousands};
use crate::terminal::complain;
use crate::tls::Tls;
use crate::values::{self, Names};
use crate::{interrupt, output};

/// Subscribe to a plant, or to any server of the DBN live protocol, and print or write its records.
///
/// Market records are printed as JSON with their symbols, one per line, or written to files. A DBN file has
/// every record that the server sends. With --multicast, the records are those that a plant sends to a
/// multicast group.
///
/// At the end, prints the delays from the receipt of a record's datagram (`ts_recv`) to the receipt of the
/// record, without records of snapshots and replays. They are meaningful on the plant's machine, or with
/// synchronised clocks.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tapeworks subscribe --schema cmbp-1 --symbols TWAA,TWAB --limit 20
  tapeworks subscribe 127.0.0.1:13000 --schema mbo --snapshot --quiet --seconds 10
  tapeworks subscribe --schema trades --start 2026-01-05T14:30:00Z --out trades.csv
  tapeworks subscribe --schema mbo,trades --seconds 1m --out live.{schema}.parquet
  tapeworks subscribe 127.0.0.1:13000,127.0.0.1:13001 --schema mbo --start 0 --out mbo.dbn    (the plants of a pair)
  tapeworks subscribe --aeron aeron:ipc --from 127.0.0.1:13050 --start 0 --schema mbo,trades    (a build with the feature aeron)
  tapeworks subscribe --aeron aeron:ipc --from 10.0.0.7:13050 --tls-authorities plants.pem    (aeron and tls)
  tapeworks subscribe --multicast 239.192.100.1:34000 --retransmission 127.0.0.1:34001 --quiet

Exit code 1: the server refused all or part of the subscription. 3: multicast or Aeron messages were lost and not
recovered, a change of server left a hole, or the server ended before --limit or --seconds.")]
pub(crate) struct Arguments {
    /// Server to subscribe to. With several, the next one takes over when the connection is lost.
    ///
    /// The servers must have the same records, as the two plants of a pair do. Each record is delivered once.
    #[arg(value_name = "ADDRESS", value_delimiter = ',', default_value = "127.0.0.1:13000")]
    address: Vec<String>,
    /// Receive all records that a plant sends to this multicast group, instead of subscribing to a server.
    #[arg(
        long,
        value_name = "GROUP:PORT",
        conflicts_with_all = ["address", "schema", "symbols", "snapshot", "start", "slow_reader"]
    )]
    multicast: Option<SocketAddr>,
    /// Server that retransmits lost multicast messages, over UDP.
    #[arg(long, value_name = "ADDRESS", requires = "multicast")]
    retransmission: Option<String>,
    /// Receive the multicast session from its first message on, instead of from the first packet received.
    ///
    /// Requests the messages before that packet. Those that the plant no longer has are missing.
    #[arg(long, requires = "retransmission")]
    from_beginning: bool,
    /// Receive from this Aeron channel of a plant, instead of from a server (needs the feature aeron).
    ///
    /// The channel carries the NBBO (cmbp-1). Records of other schemas are made from the plant's events of
    /// the whole day, so they need --start 0 and --from.
    #[arg(long, value_name = "CHANNEL", conflicts_with_all = ["address", "multicast", "snapshot", "slow_reader"])]
    aeron: Option<String>,
    /// Number of the status stream: `stream` in the plant's `[aeron]`.
    #[arg(long, value_name = "STREAM", requires = "aeron", default_value_t = 1_000)]
    aeron_stream: i32,
    /// Folder of the media driver [default: the one of Aeron's libraries]
    #[arg(long, value_name = "FOLDER", requires = "aeron")]
    aeron_dir: Option<String>,
    /// Replay server of the plant, which has past and lost messages: `replay` in its `[aeron]`.
    #[arg(long, value_name = "ADDRESS", requires = "aeron")]
    from: Option<String>,
    /// Token of the replay server.
    #[arg(
        long,
        env = "TAPEWORKS_AERON_TOKEN",
        hide_env_values = true,
        default_value = "",
        hide_default_value = true
    )]
    aeron_token: String,
    #[command(flatten)]
    tls: Tls,
    /// Address of the interface on which to join the multicast group.
    #[arg(long, value_name = "ADDRESS", requires = "multicast", default_value = "127.0.0.1")]
    interface: Ipv4Addr,
    /// API key [default: the demo's]
    #[arg(long, env = "TAPEWORKS_KEY", hide_env_values = true, default_value = DEMO_KEY, hide_default_value = true)]
    key: String,
    /// Dataset to subscribe to.
    #[arg(long, default_value = "TAPEWORKS.DEMO")]
    dataset: String,
    /// Schemas: mbo, mbp-1, mbp-10, trades, bbo-1s, cmbp-1, cbbo-1s, ohlcv-1s, status, definition and others.
    #[arg(long, value_name = "SCHEMAS", value_delimiter = ',', default_value = "cmbp-1")]
    schema: Vec<Schema>,
    /// Symbols, A,B or @FILE [default: all]
    #[arg(short, long, value_name = "SYMBOLS", value_parser = values::names)]
    symbols: Option<Names>,
    /// Receive the current state first, then the changes.
    #[arg(long)]
    snapshot: bool,
    /// Replay from this time, then continue live: ISO 8601 with a zone, or nanoseconds since 1970. 0 replays
    /// the whole day.
    #[arg(long, value_name = "TIME", value_parser = parse_start)]
    start: Option<u64>,
    /// If no server can replay the records missed since the connection was lost, stop, or continue live and
    /// report the hole.
    #[arg(long, value_name = "ACTION", value_enum, default_value_t = OnRefusal::Stop)]
    when_refused: OnRefusal,
    /// Server's policy if this client is slow: warn, skip or conflate.
    #[arg(long, value_name = "BEHAVIOUR")]
    slow_reader: Option<String>,
    /// Stop after N market records.
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Stop after this time: seconds, or 500ms, 2s, 10m, 1h.
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    seconds: Option<Duration>,
    /// Write to OUT instead of printing. The extension chooses the format, as in replay, and {schema} in the
    /// name makes a file for each schema.
    ///
    /// With -, writes to standard output, and needs --format.
    #[arg(short, long, value_name = "OUT")]
    out: Option<PathBuf>,
    /// Format, instead of the one chosen by the extension of --out: csv, json, dbn, parquet, csv.zst,
    /// json.zst, dbn.zst.
    #[arg(long, value_name = "FORMAT", requires = "out")]
    format: Option<Format>,
    /// Overwrite existing output files.
    #[arg(short, long)]
    force: bool,
    /// Write times as ISO 8601 and prices as decimals in CSV and JSON files, instead of integers.
    #[arg(long)]
    pretty: bool,
    /// Print no records, only the statistics at the end.
    #[arg(short, long)]
    quiet: bool,
    /// Print the statistics at the end as one JSON object on standard error.
    #[arg(short = 'J', long)]
    json: bool,
}

/// Time limit for connecting, and for each answer of the server before the first record.
const PATIENCE: Duration = Duration::from_secs(5);

/// Interval at which the command checks whether to end.
const LOOK: Duration = Duration::from_millis(200);

fn parse_start(text: &str) -> std::result::Result<u64, String> {
    values::instant(text).map(|time| time.0)
}

impl From<SubscribeError> for Failure {
    fn from(error: SubscribeError) -> Self {
        if error.is_stopped() { Self::Stopped } else { Self::Failed(error.to_string()) }
    }
}

/// The result of a subscription.
pub(crate) struct Figures {
    pub(crate) records: u64,
    /// Refused subscriptions.
    pub(crate) refusals: u64,
    /// Whether the server ended the subscription, rather than a limit or the user.
    pub(crate) is_ended_by_server: bool,
    pub(crate) elapsed: Duration,
    pub(crate) delays: Histogram<u64>,
}

impl Figures {
    pub(crate) fn text(&self) -> String {
        let us = |nanoseconds: u64| number(nanoseconds as f64 / 1e3);
        let mut text =
            format!("{} in {:.1} s", counted(self.records, "record", "records"), self.elapsed.as_secs_f64());
        if !self.delays.is_empty() {
            let at = |quantile| us(self.delays.value_at_quantile(quantile));
            text.push_str(&format!(
                "; from datagram to here, in us: min {}, mean {}, p50 {}, p90 {}, p99 {}, p99.9 {}, max {}",
                us(self.delays.min()),
                us(self.delays.mean() as u64),
                at(0.5),
                at(0.9),
                at(0.99),
                at(0.999),
                us(self.delays.max()),
            ));
        }
        text
    }

    fn to_json(&self) -> serde_json::Value {
        let at = |quantile| self.delays.value_at_quantile(quantile);
        json!({
            "records": self.records,
            "seconds": self.elapsed.as_secs_f64(),
            "delay_ns": {
                "count": self.delays.len(),
                "min": self.delays.min(),
                "mean": self.delays.mean(),
                "p50": at(0.5),
                "p90": at(0.9),
                "p99": at(0.99),
                "p99.9": at(0.999),
                "max": self.delays.max(),
            },
        })
    }
}

enum Sink {
    Nothing,
    Json(JsonEncoder<BufWriter<Handle>>, HashMap<u32, String>),
    Files(Vec<RecordWriter>),
}

impl Sink {
    fn put(&mut self, record: RecordRef<'_>) -> Result<()> {
        match self {
            Self::Nothing => Ok(()),
            Self::Json(encoder, symbols) => {
                let instrument = record.header().instrument_id;
                if let Some(mapping) = record.get::<SymbolMappingMsg>() {
                    let symbol = mapping.stype_out_symbol().unwrap_or_default();
                    symbols.insert(instrument, symbol.to_owned());
                }
                if !is_market(&record) {
                    return Ok(());
                }
                let symbol = symbols.get(&instrument).map(String::as_str);
                encoder.encode_ref_with_sym(record, symbol).map_err(|error| match error {
                    dbn::Error::Io { source, .. } => Failure::from_stdout(&source),
                    error => Failure::Failed(error.to_string()),
                })
            }
            Self::Files(files) => files.iter_mut().try_for_each(|file| Ok(file.put(record)?)),
        }
    }

    fn flush(&mut self) -> Result<()> {
        match self {
            Self::Nothing => Ok(()),
            Self::Json(encoder, _) => encoder.get_mut().flush().map_err(|error| Failure::from_stdout(&error)),
            Self::Files(files) => files.iter_mut().try_for_each(|file| Ok(file.flush()?)),
        }
    }
}

/// Opens the files of --out.
fn files(arguments: &Arguments, out: &Path, metadata: &dbn::Metadata) -> Result<Vec<RecordWriter>> {
    let options = tapeworks_store::Options {
        overwrite: arguments.force,
        format: arguments.format,
        pretty: arguments.pretty,
        ..tapeworks_store::Options::default()
    };
    // With --multicast the plant's configuration determines the schemas.
    let schemas = if arguments.multicast.is_some() { &[][..] } else { &arguments.schema };
    let pattern = out.to_str().filter(|out| out.contains("{schema}"));
    let Some(pattern) = pattern else {
        let one = if let [schema] = schemas { Some(*schema) } else { None };
        return Ok(vec![RecordWriter::create(out, one, metadata, &options)?]);
    };
    if arguments.multicast.is_some() {
        let text = "{schema} in the name of --out needs --schema, which --multicast does not have";
        return Err(Failure::Usage(text.to_owned()));
    }
    let mut files = Vec::new();
    for (at, schema) in schemas.iter().enumerate() {
        if let Some(other) = schemas[..at].iter().find(|other| other.has_records_of(*schema)) {
            let text = format!("records of {other} and {schema} look alike: subscribe to them one by one");
            return Err(Failure::Usage(text));
        }
        let path = PathBuf::from(pattern.replace("{schema}", schema.as_str()));
        files.push(RecordWriter::create(&path, Some(*schema), metadata, &options)?);
    }
    Ok(files)
}

/// The values of `--when-refused`.
#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum OnRefusal {
    /// Exit with the server's reason.
    Stop,
    /// Continue live, and report the hole.
    Continue,
}

fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Reads until a limit is reached, or the server or the user ends the subscription, and passes every record to `each`. Records
/// before the end of the `replays` do not count toward the delays.
pub(crate) fn receive(
    subscriber: &mut impl Records,
    limit: Option<u64>,
    until: Option<Instant>,
    mut replays: usize,
    mut each: impl FnMut(RecordRef<'_>) -> Result<()>,
    mut pause: impl FnMut() -> Result<()>,
    mut say: impl FnMut(&str),
) -> Result<Figures> {
    // Delays of up to a minute, with three significant digits.
    let delays = Histogram::new_with_bounds(1, 60_000_000_000, 3)
        .map_err(|error| Failure::Failed(format!("no histogram: {error}")))?;
    let started = Instant::now();
    let mut figures =
        Figures { records: 0, refusals: 0, is_ended_by_server: false, elapsed: Duration::ZERO, delays };
    while limit.is_none_or(|limit| figures.records < limit)
        && until.is_none_or(|until| Instant::now() < until)
        && !interrupt::is_requested()
    {
        if !subscriber.has_more() {
            pause()?;
        }
        match subscriber.next_record() {
            Ok(Some(record)) => {
                if is_market(&record) {
                    figures.records += 1;
                    let is_definition = record.rtype().is_ok_and(|rtype| rtype == dbn::RType::InstrumentDef);
                    let is_old = replays > 0 || is_definition || is_snapshot(&record);
                    let received = record.raw_index_ts();
                    if !is_old && received != u64::MAX {
                        figures.delays.saturating_record(now_ns().saturating_sub(received));
                    }
                } else if let Some(system) = record.get::<SystemMsg>() {
                    if system.code().is_ok_and(|code| code == dbn::SystemCode::ReplayCompleted) {
                        replays = replays.saturating_sub(1);
                    }
                    if !system.is_heartbeat() {
                        say(system.msg().unwrap_or("a system message that is not text"));
                    }
                } else if let Some(error) = record.get::<ErrorMsg>() {
                    figures.refusals += 1;
                    say(error.err().unwrap_or("an error that is not text"));
                }
                each(record)?;
            }
            Ok(None) => {
                figures.is_ended_by_server = true;
                break;
            }
            Err(error) if error.is_timeout() => {}
            Err(error) => return Err(error.into()),
        }
    }
    pause()?;
    figures.elapsed = started.elapsed();
    Ok(figures)
}

/// Resolves a host and port.
pub(crate) fn resolve(text: &str) -> Result<SocketAddr> {
    text.to_socket_addrs().ok().and_then(|mut all| all.next()).ok_or_else(|| {
        Failure::Usage(format!("'{text}' is not an address with a port, such as 127.0.0.1:13000"))
    })
}

/// Formats the counters of the multicast receiver as a line.
fn received(counters: &ReceiverCounters) -> String {
    let mut text = format!(
        "session {} from number {} on: {}, {}, {} filled by requests ({}), {} missing",
        counters.session,
        thousands(counters.first),
        counted(counters.messages, "message", "messages"),
        counted(counters.gaps_opened, "sequence gap", "sequence gaps"),
        thousands(counters.filled),
        counted(counters.recovered, "message", "messages"),
        counted(counters.missing, "message", "messages"),
    );
    let odd = [
        (counters.kernel_drops, "datagrams dropped by the kernel"),
        (counters.not_records, "messages that are no records"),
        (counters.malformed, "packets that cannot be read"),
        (counters.unsent_requests, "requests not sent"),
    ];
    for (count, what) in odd.into_iter().filter(|(count, _)| *count > 0) {
        text.push_str(&format!(", {} {what}", thousands(count)));
    }
    text
}

pub(crate) fn run(arguments: &Arguments) -> Result {
    if arguments.tls.is_wanted() && arguments.from.is_none() {
        let text = "--tls-authorities needs --from: only the replay server of Aeron is reached by TLS";
        return Err(Failure::Usage(text.to_owned()));
    }
    if let Some(channel) = &arguments.aeron {
        return by_aeron(arguments, channel);
    }
    let Some(group) = arguments.multicast else {
        let addresses = arguments.address.iter().map(|text| resolve(text)).collect::<Result<Vec<_>>>()?;
        let address = addresses.first().copied().ok_or_else(|| Failure::Usage("no server".to_owned()))?;
        let options = SubscriberOptions {
            address,
            key: arguments.key.clone(),
            dataset: arguments.dataset.clone(),
            schemas: arguments.schema.iter().map(Schema::to_string).collect(),
            symbols: arguments.symbols.clone().map(|Names(names)| names).unwrap_or_default(),
            snapshot: arguments.snapshot,
            start: arguments.start,
            slow_reader: arguments.slow_reader.clone(),
            ts_out: false,
            timeout: Some(LOOK),
            patience: arguments.seconds.map_or(PATIENCE, |seconds| seconds.min(PATIENCE)),
        };
        if addresses.len() > 1 {
            let when_refused = match arguments.when_refused {
                OnRefusal::Stop => WhenRefused::Stop,
                OnRefusal::Continue => WhenRefused::Continue,
            };
            let mut session = Failover::<System>::connect_in(&options, &addresses, when_refused, complain)?;
            let metadata = session.metadata().clone();
            return take(arguments, &mut session, &metadata, |session| {
                let is_whole = session.holes() == 0;
                (None, if is_whole { Ending::Complete } else { Ending::WithProblems })
            });
        }
        let mut subscriber = Subscriber::connect(&options)?;
        let metadata = subscriber.metadata().clone();
        return take(arguments, &mut subscriber, &metadata, |_| (None, Ending::Complete));
    };
    let retransmission = arguments.retransmission.as_deref().map(resolve).transpose()?;
    let interface = Some(arguments.interface);
    let from_beginning = arguments.from_beginning;
    let mut receiver =
        Receiver::open(ReceiverOptions { group, interface, retransmission, from_beginning, timeout: LOOK })?;
    take(arguments, &mut receiver, &headless(arguments), |receiver| {
        let counters = receiver.counters();
        let ending = if counters.missing == 0 { Ending::Complete } else { Ending::WithProblems };
        (Some(counters), ending)
    })
}

/// Returns the metadata of files whose records come without a server's metadata.
fn headless(arguments: &Arguments) -> dbn::Metadata {
    dbn::Metadata::builder()
        .dataset(arguments.dataset.clone())
        .schema(None)
        .start(now_ns())
        .stype_in(None)
        .stype_out(dbn::SType::InstrumentId)
        .build()
}

#[cfg(not(feature = "aeron"))]
fn by_aeron(_: &Arguments, channel: &str) -> Result {
    Err(Failure::Usage(format!("{channel}: this program was built without the feature 'aeron'")))
}

/// Formats the counters of the Aeron reader as a line.
#[cfg(feature = "aeron")]
fn received_by_aeron(counters: &AeronReaderCounters) -> String {
    let mut text = format!(
        "Aeron: {} in {}, {} fetched, {} repeated; {}, {} filled, {} not",
        counted(counters.items, "item", "items"),
        counted(counters.messages, "message", "messages"),
        thousands(counters.fetched),
        thousands(counters.repeated),
        counted(counters.gaps, "gap", "gaps"),
        thousands(counters.filled),
        thousands(counters.lost_gaps),
    );
    let odd = [
        (counters.lost_messages, "messages missing"),
        (counters.lost_events, "events missing"),
        (counters.restarts, "times that numbers began anew"),
        (counters.malformed, "messages that cannot be read"),
    ];
    for (count, what) in odd.into_iter().filter(|(count, _)| *count > 0) {
        text.push_str(&format!(", {} {what}", thousands(count)));
    }
    text
}

/// Receives from Aeron.
#[cfg(feature = "aeron")]
fn by_aeron(arguments: &Arguments, channel: &str) -> Result {
    let events = arguments.schema != [Schema::Cmbp1];
    let server = arguments.from.as_deref().map(resolve).transpose()?;
    if arguments.start.is_some() && server.is_none() {
        return Err(Failure::Usage(
            "--start needs --from: the past comes from the plant's replay server".to_owned(),
        ));
    }
    if events && arguments.start != Some(0) {
        let text = "schemas other than cmbp-1 alone are made of the events of the whole day: they need --start 0 and --from";
        return Err(Failure::Usage(text.to_owned()));
    }
    let no_symbol = |name: &str| Failure::Usage(format!("'{name}' is no symbol"));
    let names = arguments.symbols.clone().map(|Names(names)| names).unwrap_or_default();
    let symbols = names.iter().map(|name| Symbol::parse(name).ok_or_else(|| no_symbol(name)));
    let options = AeronReaderOptions {
        directory: arguments.aeron_dir.clone(),
        channel: channel.to_owned(),
        stream: arguments.aeron_stream,
        events,
        symbols: symbols.collect::<Result<_>>()?,
        server,
        connector: arguments.tls.connector(arguments.from.as_deref().unwrap_or_default())?,
        token: arguments.aeron_token.clone(),
        start: arguments.start,
        timeout: LOOK,
        driver_timeout: PATIENCE,
        resume: None,
        is_patient: false,
        say: complain,
    };
    let mut reader = AeronReader::open(options, &arguments.schema).map_err(SubscribeError::from)?;
    take(arguments, &mut reader, &headless(arguments), |reader| {
        let counters = reader.counters();
        complain(&received_by_aeron(&counters));
        let is_whole = counters.lost_gaps == 0 && counters.lost_events == 0 && counters.malformed == 0;
        (None, if is_whole { Ending::Complete } else { Ending::WithProblems })
    })
}

/// Prints or writes records until the end, then the statistics; `after` adds further text.
fn take<R: Records>(
    arguments: &Arguments,
    records: &mut R,
    metadata: &dbn::Metadata,
    after: impl FnOnce(&mut R) -> (Option<ReceiverCounters>, Ending),
) -> Result {
    let mut sink = match &arguments.out {
        Some(path) => Sink::Files(files(arguments, path, metadata)?),
        None if arguments.quiet => Sink::Nothing,
        None => Sink::Json(JsonEncoder::new(output::stdout()?, false, true, true), HashMap::new()),
    };
    let until = arguments.seconds.map(|time| Instant::now() + time);
    let replays =
        if arguments.start.is_some() && arguments.aeron.is_none() { arguments.schema.len() } else { 0 };
    let shared = std::cell::RefCell::new(&mut sink);
    let figures = receive(
        records,
        arguments.limit,
        until,
        replays,
        |record| shared.borrow_mut().put(record),
        || shared.borrow_mut().flush(),
        complain,
    )?;
    let (received_by, ending) = after(records);
    if arguments.json {
        let mut json = figures.to_json();
        if let (Some(json), Some(counters)) = (json.as_object_mut(), &received_by) {
            let multicast = json!({
                "session": counters.session,
                "first": counters.first,
                "messages": counters.messages,
                "gaps_opened": counters.gaps_opened,
                "filled_by_retransmission": counters.filled,
                "recovered": counters.recovered,
                "requests": counters.requests,
                "missing": counters.missing,
                "kernel_drops": counters.kernel_drops,
                "not_records": counters.not_records,
                "malformed": counters.malformed,
            });
            json.insert("multicast".to_owned(), multicast);
        }
        eprintln!("{json}");
    } else {
        complain(&figures.text());
        if let Some(counters) = &received_by {
            complain(&received(counters));
        }
    }
    if let Sink::Files(files) = sink {
        for file in files {
            let (path, records) = (file.path().to_owned(), file.records());
            file.finish()?;
            let text = format!("{}: {}\n", path.display(), counted(records, "record", "records"));
            output::report(&text, &[&path])?;
        }
    }
    let is_cut = figures.is_ended_by_server && (arguments.limit.is_some() || until.is_some());
    if is_cut {
        complain("the server ended it before the requested limit or time");
    }
    Ok(match ending {
        _ if figures.refusals > 0 => Ending::Failed,
        _ if is_cut => Ending::WithProblems,
        ending => ending,
    })
}
