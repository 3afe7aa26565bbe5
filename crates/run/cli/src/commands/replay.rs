//! `tapeworks replay`: rebuilds the books and the synthetic NBBO of captures, and writes files.

use std::collections::HashSet;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use tapeworks_analysis::replay::{self, Output, Summary};
use tapeworks_feed::Application;
use tapeworks_market::nbbo::{NbboRules, SelfHelp, StaleBooks};
use tapeworks_market::round_lots::RoundLotPrices;
use tapeworks_market::{Publisher, Symbol};
use tapeworks_store::{Format, Schema};
use tapeworks_time::Nanos;

use crate::ending::{Ending, Failure, Result};
use crate::table::thousands;
use crate::terminal::{self, Bar, complain};
use crate::values::{self, SipSizes, Speed, Symbols};
use crate::{output, report};

/// Rebuild the books and the synthetic NBBO of captures, and write files.
///
/// Reads pcap and pcapng captures, raw ITCH files and SoupBinTCP files, plain, gzip or zstd. Several files
/// are merged by time. The NBBO is synthetic: it is computed from the venues' own feeds, not taken from the
/// SIPs.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tapeworks replay testdata/captures/nasdaq-itch50/Multiple.Packets.pcap
  tapeworks replay testdata/captures/nasdaq-itch50/*.pcap --schema mbo --out orders.dbn.zst
  tapeworks replay session.pcap --schema mbp-10,cmbp-1,trades --out day.{schema}.parquet --symbols AAPL,MSFT
  tapeworks replay session.pcap --schema trades --out - --format csv | head

Exit code 3: messages are missing, or some of the input could not be read or applied.")]
pub(crate) struct Arguments {
    /// Captures or message files, merged by time; - reads standard input.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Write records to OUT, in which {schema} becomes the schema's name. The extension chooses the format:
    /// .dbn, .parquet, .csv or .json, all but Parquet also with .zst.
    ///
    /// May be repeated. - is standard output: it needs --format, and the report goes to standard error.
    #[arg(short, long, value_name = "OUT")]
    out: Vec<PathBuf>,
    /// Format, instead of the one chosen by the extension of --out: csv, json, dbn, parquet, csv.zst,
    /// json.zst, dbn.zst.
    #[arg(long, value_name = "FORMAT", requires = "out")]
    format: Option<Format>,
    /// Schemas to write, one for each --out, or all to an --out with {schema} [default: mbo]
    ///
    /// Known schemas: mbo, mbp-1, mbp-10, bbo-1s, bbo-1m, tbbo, trades, cmbp-1 (the synthetic NBBO), cbbo-1s,
    /// cbbo-1m, status, imbalance, definition, statistics, ohlcv-1s, ohlcv-1m, ohlcv-1h, ohlcv-1d.
    #[arg(long, value_name = "SCHEMA", value_delimiter = ',', requires = "out")]
    schema: Vec<Schema>,
    /// Overwrite existing output files.
    #[arg(short, long)]
    force: bool,
    /// Write times as ISO 8601 and prices as decimals in CSV and JSON, instead of integers.
    #[arg(long)]
    pretty: bool,
    /// Parse the input as this protocol instead of detecting it; see "tapeworks schema --list".
    #[arg(short, long, value_name = "NAME", value_parser = values::application)]
    protocol: Option<Application>,
    /// Venue of a protocol that several venues use, instead of deriving it from the multicast group: bx
    /// (ITCH), edgx (PITCH), arca (NYSE Integrated).
    #[arg(long, value_name = "NAME", value_parser = values::venue)]
    venue: Option<Publisher>,
    /// Trading day (New York) of files without a date in their name or content.
    #[arg(long, value_name = "DATE", value_parser = values::midnight)]
    date: Option<Nanos>,
    /// Include only these symbols: A,B or @FILE.
    #[arg(short, long, value_name = "SYMBOLS", value_parser = values::symbols)]
    symbols: Option<Symbols>,
    /// Write only records received from this time on: ISO 8601 with a zone, or nanoseconds since 1970. Books
    /// are still built from the start of the input.
    #[arg(long, value_name = "TIME", value_parser = values::instant)]
    from: Option<Nanos>,
    /// Stop at this receive time (exclusive).
    #[arg(long, value_name = "TIME", value_parser = values::instant)]
    to: Option<Nanos>,
    /// Replay speed: max, or a multiple of the capture's own pace (1x, 10x).
    #[arg(long, value_name = "SPEED", value_parser = values::speed, default_value = "max")]
    speed: Speed,
    /// Effect of a gap on the NBBO: flag venues with stale books, or exclude them until they recover.
    #[arg(long, value_enum, default_value_t = Stale::Flag)]
    stale: Stale,
    /// Include odd lots in the NBBO at their own prices.
    #[arg(long)]
    odd_lots: bool,
    /// File of SYMBOL,PRICE lines: average closing prices, for round lots that no venue states.
    #[arg(long, value_name = "FILE", value_parser = values::round_lot_prices)]
    round_lot_prices: Option<RoundLotPrices>,
    /// Include quotes outside the SIPs' price bands in the NBBO.
    #[arg(long)]
    ignore_price_bands: bool,
    /// Unit of sizes in SIP quotes; by-date means round lots before 2025-11-03 and shares from then on.
    #[arg(long, value_enum, default_value_t = SipSizes::ByDate)]
    sip_sizes: SipSizes,
    /// Exclude a venue from the NBBO between two receive times. The venue is a market identifier code, such
    /// as XNYS.
    ///
    /// The times have the form of --from. Without UNTIL, the venue remains excluded. May be repeated.
    #[arg(long, value_name = "VENUE,FROM[,UNTIL]", value_parser = values::self_help)]
    self_help: Vec<SelfHelp>,
    /// Number of threads, 1 to 64; the output is the same for any number [default: one per processor, at most
    /// 4]
    ///
    /// With 1, one thread does all the work. With more, that thread applies the messages, up to N - 1 others
    /// encode Parquet, and up to N - 1 others decompress inputs, one per gzip or zstd file.
    #[arg(long, value_name = "N", value_parser = values::threads)]
    threads: Option<usize>,
    /// Stop after N messages.
    #[arg(short, long, value_name = "N")]
    limit: Option<u64>,
    /// Measure the service time of messages, and report a histogram; costs a few ns per message.
    #[arg(long)]
    measure: bool,
    /// Print the summary as one JSON object.
    #[arg(short = 'J', long)]
    json: bool,
}

/// The effect of a gap on the NBBO.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Stale {
    Flag,
    Exclude,
}

impl Arguments {
    fn outputs(&self) -> Result<Vec<Output>> {
        let options = tapeworks_store::Options {
            overwrite: self.force,
            format: self.format,
            pretty: self.pretty,
            ..tapeworks_store::Options::default()
        };
        let output = |path: PathBuf, schema| Output { path, schema, options };
        let schemas = if self.schema.is_empty() { &[Schema::Mbo][..] } else { &self.schema };
        let named =
            |path: &PathBuf| path.to_str().filter(|path| path.contains("{schema}")).map(str::to_owned);
        match self.out.as_slice() {
            [path] => match named(path) {
                Some(pattern) => Ok(schemas
                    .iter()
                    .map(|schema| output(pattern.replace("{schema}", schema.as_str()).into(), *schema))
                    .collect()),
                None => match schemas {
                    [schema] => Ok(vec![output(path.clone(), *schema)]),
                    _ => Err(Failure::Usage(
                        "several schemas go into several files: put {schema} into the name of --out"
                            .to_owned(),
                    )),
                },
            },
            paths => match schemas {
                [schema] => Ok(paths.iter().map(|path| output(path.clone(), *schema)).collect()),
                schemas if schemas.len() == paths.len() => Ok(paths
                    .iter()
                    .zip(schemas)
                    .map(|(path, schema)| output(path.clone(), *schema))
                    .collect()),
                schemas => Err(Failure::Usage(format!(
                    "{} schemas for {} files: give one schema, or one for each --out",
                    schemas.len(),
                    paths.len()
                ))),
            },
        }
    }
}

/// Refuses outputs with the same path, whose writers would mix their bytes. Paths are made absolute, but `..` and links are not resolved.
fn refuse_equal_paths(outputs: &[Output]) -> Result<()> {
    let mut seen = HashSet::new();
    for output in outputs {
        let path = std::path::absolute(&output.path).unwrap_or_else(|_| output.path.clone());
        if !seen.insert(path) {
            return Err(Failure::Usage(format!(
                "{}: named by --out twice; each schema needs a file of its own",
                output.path.display()
            )));
        }
    }
    Ok(())
}

pub(crate) fn run(arguments: Arguments) -> Result {
    let outputs = arguments.outputs()?;
    values::refuse_empty_window(arguments.from, arguments.to)?;
    values::refuse_other_venue(arguments.protocol, arguments.venue)?;
    refuse_equal_paths(&outputs)?;
    let options = replay::Options {
        outputs,
        application: arguments.protocol,
        publisher: arguments.venue,
        midnight: arguments.date,
        from: arguments.from,
        to: arguments.to,
        speed: arguments.speed.0,
        limit: arguments.limit,
        rules: NbboRules {
            stale_books: match arguments.stale {
                Stale::Flag => StaleBooks::Flag,
                Stale::Exclude => StaleBooks::Exclude,
            },
            odd_lots_count: arguments.odd_lots,
            round_lot_prices: arguments.round_lot_prices.unwrap_or_default(),
            ignores_price_bands: arguments.ignore_price_bands,
        },
        self_help: arguments.self_help,
        sip_sizes: arguments.sip_sizes.into(),
        skips_unused: false,
        reads_issue_names: false,
        measure: arguments.measure,
        compare_sip: false,
        bars: None,
        symbols: arguments.symbols.map(|symbols| symbols.0),
        inputs: arguments.files,
        threads: arguments.threads.unwrap_or_else(replay::default_threads),
    };
    let mut bar = Bar::new("Replaying");
    let summary = replay::replay(&options, &mut |progress| {
        bar.show(progress.bytes, progress.total_bytes, Some(progress.messages))
    })?;
    bar.clear();
    let text = if arguments.json {
        format!("{:#}\n", summary.to_json())
    } else {
        let (width, paint) = (terminal::width(), terminal::paint());
        [
            report::figures(&summary, paint),
            report::venues(&summary, width, paint),
            report::tops(&summary, 5, width, paint),
            report::written(&summary, width, paint),
            report::verdict(&summary, paint),
        ]
        .concat()
    };
    let written: Vec<_> = options.outputs.iter().map(|output| &output.path).collect();
    output::report(&text, &written)?;
    Ok(ending(&summary))
}

/// Reports requested symbols for which there was no message.
pub(crate) fn complain_of_unseen(symbols: &[Symbol]) {
    if symbols.is_empty() {
        return;
    }
    let shown: Vec<&str> = symbols.iter().take(SHOWN_SYMBOLS).map(Symbol::as_str).collect();
    let more = match symbols.len() - shown.len() {
        0 => String::new(),
        more => format!(" and {} more", thousands(more as u64)),
    };
    complain(&format!("no message is about {}{more}", shown.join(", ")));
}

/// Maximum number of such symbols to name.
const SHOWN_SYMBOLS: usize = 10;

/// Reports why the replay is incomplete.
pub(crate) fn ending(summary: &Summary) -> Ending {
    summary.complaints().for_each(|text| complain(&text));
    if summary.is_interrupted {
        complain("stopped before the end of the input; the output is complete up to there");
        return Ending::Interrupted;
    }
    complain_of_unseen(&summary.unseen_symbols);
    if summary.is_clean() { Ending::Complete } else { Ending::WithProblems }
}
