//! `tapeworks bars`: computes open, high, low, close, volume and average price by symbol and interval.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use clap::Args;
use tapeworks_analysis::bars::{self, Bars};
use tapeworks_analysis::input;
use tapeworks_analysis::replay::{self, Summary};
use tapeworks_feed::Application;
use tapeworks_market::nbbo::NbboRules;
use tapeworks_market::round_lots::RoundLotPrices;
use tapeworks_market::sale_conditions::SaleRules;
use tapeworks_market::{Price, Publisher};
use tapeworks_store::Format;
use tapeworks_store::bars::{BarRow, csv, json, parquet};
use tapeworks_time::Nanos;

use super::replay::ending;
use crate::ending::{Failure, Result};
use crate::table::{Align, Table, counted, thousands, time};
use crate::terminal::{self, Bar as Progress};
use crate::values::{self, Symbols};
use crate::{output, report};

/// Compute bars from trades: open, high, low, close, volume, number of trades, average price.
///
/// The SIPs' sale conditions determine the values that a trade updates. Odd lots and trades outside regular
/// hours count only toward volume, and non-printable executions count toward nothing. A bar may therefore have
/// a volume and no price.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tapeworks bars testdata/captures/nasdaq-itch50/*.pcap
  tapeworks bars day.pcap.zst --interval 5m --out bars.parquet
  tapeworks bars day.pcap.zst --by-venue --symbols AAPL --pretty

Exit code 3: messages are missing, or some of the input could not be read or applied.")]
pub(crate) struct Arguments {
    /// Captures or message files, merged by time; - reads standard input.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Width of a bar: 1s, 5m, 1h.
    #[arg(short, long, value_name = "TIME", value_parser = values::duration, default_value = "1m")]
    interval: std::time::Duration,
    /// Make a separate bar for each venue.
    #[arg(long)]
    by_venue: bool,
    /// Let odd lots update open, high, low and close.
    #[arg(long)]
    odd_lots: bool,
    /// File of SYMBOL,PRICE lines: average closing prices, for round lots that no venue states.
    #[arg(long, value_name = "FILE", value_parser = values::round_lot_prices)]
    round_lot_prices: Option<RoundLotPrices>,
    /// Let trades outside regular hours update open, high, low and close.
    #[arg(long)]
    extended_hours: bool,
    /// Write the bars to a .csv, .json, .jsonl or .parquet file, text also with .zst. Without it, print a
    /// table on a terminal and CSV to a pipe.
    ///
    /// With --pretty, CSV is also printed on a terminal.
    #[arg(short, long, value_name = "OUT")]
    out: Option<PathBuf>,
    /// Overwrite the file if it exists.
    #[arg(short, long)]
    force: bool,
    /// Write times as ISO 8601 and prices as decimals in CSV and JSON.
    #[arg(long)]
    pretty: bool,
    /// Print the bars as JSON, one object per line.
    #[arg(short = 'J', long, conflicts_with = "out")]
    json: bool,
    /// Include only these symbols: A,B or @FILE.
    #[arg(short, long, value_name = "SYMBOLS", value_parser = values::symbols)]
    symbols: Option<Symbols>,
    /// Include only trades received from this time on: ISO 8601 with a zone, or nanoseconds since 1970.
    #[arg(long, value_name = "TIME", value_parser = values::instant)]
    from: Option<Nanos>,
    /// Include only trades received before this time.
    #[arg(long, value_name = "TIME", value_parser = values::instant)]
    to: Option<Nanos>,
    /// Parse the input as this protocol instead of detecting it; see "tapeworks schema --list".
    #[arg(short, long, value_name = "NAME", value_parser = values::application)]
    protocol: Option<Application>,
    /// Venue of messages that do not name it: bx (ITCH), edgx (PITCH), arca (NYSE Integrated).
    #[arg(long, value_name = "NAME", value_parser = values::venue)]
    venue: Option<Publisher>,
    /// Trading day (New York) of files without a date in their name or content.
    #[arg(long, value_name = "DATE", value_parser = values::midnight)]
    date: Option<Nanos>,
}

/// Returns the format for a file's extension, if bars support it.
fn format_of(path: &Path) -> Result<Format> {
    let format =
        Format::from_path(path).ok().filter(|format| !matches!(format, Format::Dbn | Format::DbnZstd));
    format.ok_or_else(|| {
        Failure::Usage(format!(
            "{}: cannot choose the format by the file's name: expected one ending in .csv, .csv.zst, .json, .json.zst, .jsonl, .jsonl.zst, .parquet",
            path.to_string_lossy()
        ))
    })
}

pub(crate) fn run(arguments: Arguments) -> Result {
    values::refuse_empty_window(arguments.from, arguments.to)?;
    values::refuse_other_venue(arguments.protocol, arguments.venue)?;
    let format = arguments.out.as_deref().map(format_of).transpose()?;
    input::refuse_inputs(&arguments.files, arguments.out.as_deref())?;
    if arguments.interval.is_zero() {
        return Err(Failure::Usage("--interval: a bar needs a width above 0".to_owned()));
    }
    let interval_ns = u64::try_from(arguments.interval.as_nanos()).unwrap_or(u64::MAX);
    let rules =
        SaleRules { odd_lots_count: arguments.odd_lots, extended_hours_count: arguments.extended_hours };
    let options = replay::Options {
        inputs: arguments.files,
        application: arguments.protocol,
        publisher: arguments.venue,
        midnight: arguments.date,
        symbols: arguments.symbols.map(|symbols| symbols.0),
        from: arguments.from,
        to: arguments.to,
        rules: NbboRules {
            round_lot_prices: arguments.round_lot_prices.unwrap_or_default(),
            ..NbboRules::default()
        },
        threads: replay::default_threads(),
        bars: Some(bars::Options { interval_ns, by_venue: arguments.by_venue, rules }),
        ..replay::Options::default()
    };
    let mut progress = Progress::new("Reading");
    let summary = replay::replay(&options, &mut |so_far| {
        progress.show(so_far.bytes, so_far.total_bytes, Some(so_far.messages))
    })?;
    progress.clear();
    let ended = ending(&summary);
    let Some(bars) = &summary.bars else { return Ok(ended) };
    let rows = rows(bars, &summary);
    let pretty = arguments.pretty;
    let Some((path, format)) = arguments.out.as_deref().zip(format) else {
        let text = if arguments.json {
            json(&rows, pretty)
        } else if !pretty && std::io::stdout().is_terminal() {
            table(&rows)
        } else {
            csv(&rows, pretty)
        };
        output::print(&text)?;
        for line in said(bars, rows.len()).lines().skip(1) {
            terminal::complain(line);
        }
        return Ok(ended);
    };
    let bytes = match format {
        Format::Json | Format::JsonZstd => json(&rows, pretty).into_bytes(),
        Format::Parquet => {
            parquet(&rows).map_err(|error| Failure::from_file(path, &std::io::Error::other(error)))?
        }
        // Only text formats remain.
        _ => csv(&rows, pretty).into_bytes(),
    };
    output::write_file(path, arguments.force, &bytes)?;
    let verdict = report::verdict(&summary, terminal::paint());
    output::print(&format!("{}{verdict}", said(bars, rows.len())))?;
    Ok(ended)
}

fn rows(bars: &Bars, summary: &Summary) -> Vec<BarRow> {
    let row = |bar: &bars::Bar| {
        Some(BarRow {
            start: bar.start,
            publisher_id: bar.publisher.map_or(0, |publisher| publisher.0),
            prices: [bar.open, bar.high, bar.low, bar.close],
            volume: bar.volume,
            trades: bar.trades,
            vwap: bar.vwap(),
            symbol: summary.symbols.get(bar.instrument.index()).copied()?,
        })
    };
    bars.bars().iter().filter_map(row).collect()
}

/// Renders bars for a terminal: times in UTC, prices as decimals, `-` for an undefined price.
fn table(rows: &[BarRow]) -> String {
    let mut table = Table::new(&[
        ("from", Align::Left),
        ("symbol", Align::Left),
        ("venue", Align::Left),
        ("open", Align::Right),
        ("high", Align::Right),
        ("low", Align::Right),
        ("close", Align::Right),
        ("volume", Align::Right),
        ("trades", Align::Right),
        ("average", Align::Right),
    ]);
    let price = |price: Option<Price>| price.map_or_else(|| "-".to_owned(), |price| price.to_string());
    for row in rows {
        let [open, high, low, close] = row.prices.map(price);
        let venue = Some(row.publisher_id).filter(|number| *number > 0);
        table.row([
            time(row.start),
            row.symbol.to_string(),
            venue.map_or_else(|| "all".to_owned(), |number| Publisher(number).venue_name()),
            open,
            high,
            low,
            close,
            thousands(row.volume),
            thousands(row.trades),
            price(row.vwap),
        ]);
    }
    table.render(terminal::width(), terminal::paint())
}

/// Describes the number of bars, and the trades and bars that were treated specially.
fn said(bars: &Bars, count: usize) -> String {
    let mut text = format!("{}\n", counted(count as u64, "bar", "bars"));
    for (number, what) in [
        (bars.uncounted, "trades that count in no volume"),
        (bars.repeated, "trades and breaks of a second feed of a venue, left out"),
        (bars.broken, "broken trades, taken back"),
        (bars.corrected, "corrected trades"),
        (bars.unmatched, "breaks and corrections of trades that no bar has"),
        (bars.left_out, "bars beyond the most that are kept"),
    ] {
        if number > 0 {
            text += &format!("{what}: {}\n", thousands(number));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use tapeworks_market::Symbol;

    use super::*;

    #[test]
    fn a_table_shows_a_dash_for_an_undefined_price() {
        let open = Price::from_e9(10 * Price::ONE);
        let row = BarRow {
            start: Nanos(1_763_130_600_000_000_000),
            publisher_id: 0,
            prices: [open, None, None, None],
            volume: 1_300,
            trades: 2,
            vwap: None,
            symbol: Symbol::parse("AAPL").unwrap(),
        };
        let text = table(&[row]);
        let cells: Vec<&str> = text.lines().last().unwrap().split_whitespace().collect();
        assert!(cells.ends_with(&["AAPL", "all", "10.00", "-", "-", "-", "1,300", "2", "-"]), "{text}");
    }
}
