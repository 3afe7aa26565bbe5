//! `tapeworks compare`: compares the synthetic NBBO with another NBBO.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use tapeworks_analysis::compare::{Compared, Comparison, Example, Lags, Quoted};
use tapeworks_analysis::paint::Paint;
use tapeworks_analysis::replay::{self, Summary};
use tapeworks_market::InstrumentId;
use tapeworks_market::nbbo::NbboRules;
use tapeworks_market::price::price_e9;
use tapeworks_time::Nanos;
use tapeworks_time::clock::iso_time;

use super::replay::ending;
use crate::ending::{Failure, Result};
use crate::table::{Align, Table, counted, thousands};
use crate::terminal::{self, Bar};
use crate::values::{self, SipSizes, Symbols};
use crate::{output, report};

/// Compare the synthetic NBBO with another NBBO.
///
/// The synthetic NBBO is computed from direct feeds. The SIPs publish the official one.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    with: With,
}

/// What it is compared with.
#[derive(Debug, Subcommand)]
enum With {
    Sip(Sip),
}

/// Compare the synthetic NBBO with the SIPs' NBBO (UTP UQDF, CTA CQS).
///
/// Reads captures of direct feeds and SIPs, merged by time. For each symbol, reports how long both were
/// equal, and how far the SIP lagged (negative if it led). Then lists each kind of difference with its count,
/// its duration and its first occurrence. All times are receive times of packets.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tapeworks compare sip session.pcap
  tapeworks compare sip direct.pcap.zst uqdf.pcap.zst cqs.pcap.zst --symbols AAPL,MSFT --json

Exit code 2: no SIP quoted any symbol. 3: messages are missing, or some of the input could not be read or applied.")]
struct Sip {
    /// Captures, merged by time; - reads standard input.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Include only these symbols: A,B or @FILE.
    #[arg(short, long, value_name = "SYMBOLS", value_parser = values::symbols)]
    symbols: Option<Symbols>,
    /// Include odd lots in the synthetic NBBO at their own prices.
    #[arg(long)]
    odd_lots: bool,
    /// Include quotes outside the SIPs' price bands in the synthetic NBBO.
    #[arg(long)]
    ignore_price_bands: bool,
    /// Unit of sizes in SIP quotes; by-date means round lots before 2025-11-03 and shares from then on.
    #[arg(long, value_enum, default_value_t = SipSizes::ByDate)]
    sip_sizes: SipSizes,
    /// Print one JSON object.
    #[arg(short = 'J', long)]
    json: bool,
}

pub(crate) fn run(arguments: Arguments) -> Result {
    let With::Sip(arguments) = arguments.with;
    let options = replay::Options {
        symbols: arguments.symbols.map(|symbols| symbols.0),
        inputs: arguments.files,
        threads: replay::default_threads(),
        compare_sip: true,
        rules: NbboRules {
            odd_lots_count: arguments.odd_lots,
            ignores_price_bands: arguments.ignore_price_bands,
            ..NbboRules::default()
        },
        sip_sizes: arguments.sip_sizes.into(),
        ..replay::Options::default()
    };
    let mut bar = Bar::new("Comparing");
    let summary = replay::replay(&options, &mut |progress| {
        bar.show(progress.bytes, progress.total_bytes, Some(progress.messages))
    })?;
    bar.clear();
    let ended = ending(&summary);
    let comparison = summary.comparison.as_ref().filter(|comparison| comparison.symbols().next().is_some());
    let Some(comparison) = comparison else {
        return Err(Failure::Usage(
            "no SIP has quoted a symbol: compare needs captures of UQDF or CQS beside those of direct feeds"
                .to_owned(),
        ));
    };
    let text = if arguments.json {
        format!("{:#}\n", to_json(comparison, &summary))
    } else {
        show(comparison, &summary, terminal::paint())
    };
    output::print(&text)?;
    Ok(ended)
}

/// The percentiles of lags to show.
const PERCENTS: [u32; 3] = [1, 50, 99];

fn name(summary: &Summary, instrument: InstrumentId) -> String {
    let symbol = summary.symbols.get(instrument.index());
    symbol.map_or_else(|| "?".to_owned(), ToString::to_string)
}

/// Returns the symbols in alphabetical order.
fn rows<'c>(comparison: &'c Comparison, summary: &Summary) -> Vec<(String, &'c Compared)> {
    let mut rows: Vec<_> =
        comparison.symbols().map(|(instrument, one)| (name(summary, instrument), one)).collect();
    rows.sort_by(|(one, _), (other, _)| one.cmp(other));
    rows
}

/// Returns a part of a time in percent.
fn percent(part: u128, whole: u128) -> Option<f64> {
    (whole > 0).then(|| part as f64 * 100.0 / whole as f64)
}

fn shown_percent(part: u128, whole: u128) -> String {
    percent(part, whole).map_or_else(|| "-".to_owned(), |percent| format!("{percent:.3}"))
}

fn microseconds(lags: Option<[i64; 3]>) -> [String; 3] {
    lags.map_or_else(
        || ["-", "-", "-"].map(str::to_owned),
        |lags| lags.map(|ns| format!("{:.1}", ns as f64 / 1_000.0)),
    )
}

/// Formats both sides as `10.01 x 300 / 10.02 x 100`.
fn market(sides: &[Quoted; 2]) -> String {
    let side =
        |(price, size): Quoted| price.map_or_else(|| "none".to_owned(), |price| format!("{price} x {size}"));
    format!("{} / {}", side(sides[0]), side(sides[1]))
}

fn of_all<'c>(rows: &[(String, &'c Compared)]) -> Vec<&'c Lags> {
    rows.iter().map(|(_, one)| &one.lags).collect()
}

fn show(comparison: &Comparison, summary: &Summary, paint: Paint) -> String {
    let rows = rows(comparison, summary);
    let mut table = Table::new(&[
        ("symbol", Align::Left),
        ("SIP", Align::Left),
        ("equal prices %", Align::Right),
        ("and sizes %", Align::Right),
        ("pairs", Align::Right),
        ("lag p1 us", Align::Right),
        ("p50", Align::Right),
        ("p99", Align::Right),
        ("no pair here", Align::Right),
        ("at the SIP", Align::Right),
    ]);
    for (symbol, one) in &rows {
        let [low, middle, high] = microseconds(Lags::percentiles(&[&one.lags], PERCENTS));
        table.row([
            symbol.clone(),
            one.sip.map_or_else(String::new, |sip| sip.venue_name()),
            shown_percent(one.equal_price_ns.into(), one.ns.into()),
            shown_percent(one.equal_ns.into(), one.ns.into()),
            thousands(one.lags.pairs()),
            low,
            middle,
            high,
            thousands(one.unpaired[0]),
            thousands(one.unpaired[1]),
        ]);
    }
    // A damaged receive time adds decades to each symbol's time, so the sum may exceed 64 bits.
    let sum = |of: fn(&Compared) -> u64| rows.iter().map(|(_, one)| u128::from(of(one))).sum::<u128>();
    let (ns, equal_price, equal) =
        (sum(|one| one.ns), sum(|one| one.equal_price_ns), sum(|one| one.equal_ns));
    let [low, middle, high] = microseconds(Lags::percentiles(&of_all(&rows), PERCENTS));
    let title = counted(rows.len() as u64, "symbol", "symbols");
    let all = format!(
        "\nOver all symbols: prices are equal for {} % of the time, sizes too for {} %. {}; the SIP is later by {low} us (p1), {middle} us (p50), {high} us (p99).\n\n",
        shown_percent(equal_price, ns),
        shown_percent(equal, ns),
        counted(of_all(&rows).iter().map(|lags| lags.pairs()).sum(), "price is a pair", "prices are pairs"),
    );
    let mut differences =
        Table::new(&[("difference", Align::Left), ("times", Align::Right), ("of the time %", Align::Right)]);
    let mut examples = String::new();
    for (difference, count, example) in comparison.differences() {
        let Example { instrument, time, ours, sip } = example;
        examples += &format!("  {}: {} ", difference.words(), name(summary, instrument));
        iso_time(&mut examples, time);
        examples += &format!(" {}, SIP {}\n", market(&ours), market(&sip));
        differences.row([difference.words().to_owned(), thousands(count.times), shown_percent(count.ns, ns)]);
    }
    let differences = if differences.is_empty() {
        "No difference.\n".to_owned()
    } else {
        format!("{}\nThe first of each\n{examples}", differences.render(terminal::width(), paint))
    };
    [
        paint.strong(&title).as_str(),
        "\n",
        &table.render(terminal::width(), paint),
        &all,
        &differences,
        &report::verdict(summary, paint),
    ]
    .concat()
}

fn sides(sides: &[Quoted; 2]) -> Value {
    let [bid, ask] = sides
        .map(|(price, size)| json!({ "price_e9": price.map(|price| price_e9(Some(price))), "size": size }));
    json!({ "bid": bid, "ask": ask })
}

fn lags(of: &[&Lags]) -> Value {
    let percentiles = Lags::percentiles(of, PERCENTS);
    json!({
        "pairs": of.iter().map(|lags| lags.pairs()).sum::<u64>(),
        "p1_ns": percentiles.map(|[low, _, _]| low),
        "p50_ns": percentiles.map(|[_, middle, _]| middle),
        "p99_ns": percentiles.map(|[_, _, high]| high),
    })
}

fn to_json(comparison: &Comparison, summary: &Summary) -> Value {
    let rows = rows(comparison, summary);
    let time = |time: Nanos| time.0;
    let symbols: Vec<Value> = rows
        .iter()
        .map(|(symbol, one)| {
            json!({
                "symbol": symbol,
                "sip": one.sip.map(|sip| sip.venue_name()),
                "publisher_id": one.sip.map(|sip| sip.0),
                "compared_ns": one.ns,
                "equal_prices_ns": one.equal_price_ns,
                "equal_ns": one.equal_ns,
                "equal_prices_percent": percent(one.equal_price_ns.into(), one.ns.into()),
                "equal_percent": percent(one.equal_ns.into(), one.ns.into()),
                "changes": one.changes[0],
                "sip_changes": one.changes[1],
                "lag": lags(&[&one.lags]),
                "unpaired": one.unpaired[0],
                "sip_unpaired": one.unpaired[1],
            })
        })
        .collect();
    let differences: Vec<Value> = comparison
        .differences()
        .map(|(difference, count, example)| {
            json!({
                "difference": difference.words(),
                "times": count.times,
                "ns": u64::try_from(count.ns).unwrap_or(u64::MAX),
                "first": {
                    "symbol": name(summary, example.instrument),
                    "time": time(example.time),
                    "synthetic": sides(&example.ours),
                    "sip": sides(&example.sip),
                },
            })
        })
        .collect();
    json!({
        "symbols": symbols,
        "lag": lags(&of_all(&rows)),
        "differences": differences,
        "left_out": comparison.left_out(),
        "replay": summary.to_json(),
    })
}
