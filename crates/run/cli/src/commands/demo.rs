//! `tapeworks demo`: a tour of all parts, on embedded data.

mod live;
mod orders;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use tapeworks_analysis::generate;
use tapeworks_analysis::replay::{self, Options, Output, Summary};
use tapeworks_generator::{FileForm, Scenario};
use tapeworks_store::Schema;
use tapeworks_time::Nanos;

use crate::ending::{Ending, Failure, Result};
use crate::table::{Align, Table, bytes, counted, number, thousands};
use crate::terminal::{self, Bar, complain};
use crate::{interrupt, output, report, values};

/// Demonstrate Tapeworks on real packets, on a generated session, and live.
///
/// Replays real captures of Nasdaq, Nasdaq BX and IEX, then a generated session of four venues. Prints the
/// speed and the final books, and writes files for pandas, DuckDB, Polars and databento.
///
/// Then runs four simulated venues on loopback multicast with lossy lines, a ticker plant that listens to
/// them, and a client. With --serve, runs only this part, until Ctrl-C. Last, ten FIX clients trade through
/// the order gateway at a simulated exchange, and their orders are looked up in the plant's book.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tapeworks demo
  tapeworks demo --serve
  tapeworks demo --serve --port 13001 --web-port 8081 --rate 20000
  tapeworks demo --out /tmp/demo --messages 10000000")]
pub(crate) struct Arguments {
    /// Output folder; files of an earlier demo are replaced.
    #[arg(short, long, value_name = "FOLDER", default_value = "tapeworks-demo")]
    out: PathBuf,
    /// Messages in the generated session.
    #[arg(long, value_name = "N", default_value_t = 2_000_000)]
    messages: u64,
    /// Run only the live part, until Ctrl-C.
    #[arg(long)]
    serve: bool,
    /// Port for live clients, on loopback only; 0 picks a free port.
    #[arg(long, value_name = "PORT", default_value_t = tapeworks_service::config::CLIENTS_PORT)]
    port: u16,
    /// Port of the web page, on loopback only; 0 picks a free port.
    #[arg(long, value_name = "PORT", default_value_t = tapeworks_service::config::WEB_PORT)]
    web_port: u16,
    /// Messages per second of the live venues, up to 10 million.
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    rate: u64,
    /// Duration of each live part: seconds, or 500ms, 2s, 10m, 1h.
    #[arg(long, value_name = "TIME", value_parser = values::duration, default_value = "5s")]
    seconds: Duration,
}

macro_rules! capture {
    ($name:literal) => {
        ($name, include_bytes!(concat!("../../embedded/captures/", $name)).as_slice())
    };
}

/// Real packets, embedded in the program: see `testdata/captures/PROVENANCE.md`.
const CAPTURES: [(&str, &[u8]); 19] = [
    capture!("nasdaq-itch50/Multiple.Packets.pcap"),
    capture!("nasdaq-itch50/AddOrderNoMpidAttributionMessage.pcap"),
    capture!("nasdaq-itch50/MarketParticipantPositionMessage.pcap"),
    capture!("nasdaq-itch50/OrderDeleteMessage.pcap"),
    capture!("nasdaq-itch50/OrderReplaceMessage.pcap"),
    capture!("nasdaq-itch50/StockTradingActionMessage.pcap"),
    capture!("nasdaq-bx-itch50/AddOrderNoMpidAttributionMessage.pcap"),
    capture!("nasdaq-bx-itch50/OrderDeleteMessage.pcap"),
    capture!("iex-tops15/OfficialPriceMessage.pcap"),
    capture!("iex-tops15/OperationalHaltStatusMessage.pcap"),
    capture!("iex-tops15/QuoteUpdateMessage.pcap"),
    capture!("iex-tops15/SecurityDirectoryMessage.pcap"),
    capture!("iex-tops15/ShortSalePriceTestStatusMessage.pcap"),
    capture!("iex-tops15/SystemEventMessage.pcap"),
    capture!("iex-tops15/TradingStatusMessage.pcap"),
    capture!("iex-tops16/QuoteUpdateMessage.pcap"),
    capture!("iex-deep/Heartbeat.pcap"),
    capture!("iex-deep/PriceLevelBuyUpdateMessage.pcap"),
    capture!("iex-deep/PriceLevelSellUpdateMessage.pcap"),
];

/// The schemas of the session's files.
const OUTPUTS: [(&str, Schema); 8] = [
    ("orders.dbn.zst", Schema::Mbo),
    ("top-of-book.parquet", Schema::Mbp1),
    ("nbbo.parquet", Schema::Cmbp1),
    ("trades.csv", Schema::Trades),
    ("bars.csv", Schema::Ohlcv1S),
    ("quotes.json.zst", Schema::Bbo1S),
    ("status.json", Schema::Status),
    ("definitions.csv", Schema::Definition),
];

/// The close of the US equity markets, in ns since midnight in New York.
const CLOSE_NS: u64 = 16 * 3_600 * 1_000_000_000;

/// Removes a folder of an earlier demo.
fn remove(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Failure::Failed(format!("{}: cannot remove it: {error}", path.display())))
        }
        _ => Ok(()),
    }
}

fn folder(path: &Path) -> Result<()> {
    fs::create_dir_all(path)
        .map_err(|error| Failure::Failed(format!("{}: cannot create the folder: {error}", path.display())))
}

pub(crate) fn run(arguments: &Arguments) -> Result {
    let (width, paint) = (terminal::width(), terminal::paint());
    let started = Instant::now();
    let out = &arguments.out;
    folder(out)?;
    let choice = live::Choice {
        port: arguments.port,
        web_port: arguments.web_port,
        rate: arguments.rate,
        seconds: (!arguments.serve).then_some(arguments.seconds),
    };
    if arguments.serve {
        return live::run(out, &choice);
    }

    output::print(&format!("{}\n\n", paint.strong("1. Real packets, each for itself")))?;
    if !real_packets(out, width)? {
        return Ok(Ending::Interrupted);
    }

    output::print(&format!("\n{}\n\n", paint.strong("2. A generated session of four venues")))?;
    let session = out.join("session.pcap");
    let generating = Instant::now();
    let mut scenario = Scenario { messages: arguments.messages, ..Scenario::demo() };
    scenario.fit_symbols();
    scenario.check().map_err(|error| Failure::Usage(error.to_string()))?;
    let Some(made) =
        output::generate(&session, true, |sink| generate::write(FileForm::Capture, &scenario, sink))?
    else {
        return Ok(Ending::Interrupted);
    };
    let seconds = generating.elapsed().as_secs_f64();
    output::print(&format!(
        "{}: {} of {}, {}, generated in {seconds:.1} s\n",
        session.display(),
        counted(made.messages, "message", "messages"),
        counted(u64::from(scenario.symbols), "symbol", "symbols"),
        bytes(made.bytes),
    ))?;
    if interrupt::is_requested() {
        return Ok(Ending::Interrupted);
    }
    // Stop just before the close, so that the markets are open when their books are shown.
    let before_close = Nanos(scenario.midnight_ns + CLOSE_NS - 1_000_000);
    let options = Options { measure: true, to: Some(before_close), ..Options::default() };
    let measured = run_session(&session, options, "Replaying")?;
    output::print("Replayed up to 1 ms before the close:\n")?;
    output::print(
        &[
            report::figures(&measured, paint),
            report::venues(&measured, width, paint),
            report::tops(&measured, 4, width, paint),
            report::verdict(&measured, paint),
        ]
        .concat(),
    )?;
    if measured.is_interrupted {
        return Ok(Ending::Interrupted);
    }

    output::print(&format!("\n{}\n\n", paint.strong("3. The same session into files")))?;
    let options = tapeworks_store::Options { overwrite: true, pretty: true, ..Default::default() };
    let outputs =
        OUTPUTS.map(|(name, schema)| Output { path: out.join(name), schema, options }).into_iter().collect();
    let written = run_session(&session, Options { outputs, ..Options::default() }, "Writing")?;
    output::print(&format!(
        "{} messages/s with {} written at once\n{}",
        number(written.messages as f64 / written.elapsed.as_secs_f64().max(1e-9)),
        counted(written.written.len() as u64, "file", "files"),
        report::written(&written, width, paint),
    ))?;
    if written.is_interrupted {
        return Ok(Ending::Interrupted);
    }

    output::print(&format!(
        "\n{}\n\n",
        paint.strong("4. Live: four venues on loopback multicast, the plant, a client")
    ))?;
    if live::run(out, &choice)? == Ending::Interrupted {
        return Ok(Ending::Interrupted);
    }

    output::print(&format!(
        "\n{}\n\n",
        paint.strong("5. Orders: ten FIX clients trade through the gateway at the simulated exchange")
    ))?;
    let traded = orders::run(out, arguments.seconds)?;
    if traded == Ending::Interrupted {
        return Ok(traded);
    }
    output::print(&format!(
        "\n{} in {:.1} s. The files are in {}\n",
        paint.good("Done"),
        started.elapsed().as_secs_f64(),
        paint.strong(&out.display().to_string()),
    ))?;
    Ok(if traded == Ending::Complete { crate::commands::replay::ending(&written) } else { traded })
}

/// Replays each capture separately, because they are from different days. Returns whether to continue.
fn real_packets(out: &Path, width: usize) -> Result<bool> {
    let mut table = Table::new(&[
        ("capture", Align::Left),
        ("venue", Align::Left),
        ("protocol", Align::Left),
        ("messages", Align::Right),
        ("events", Align::Right),
        ("symbol", Align::Left),
    ]);
    for (name, content) in CAPTURES {
        let path = out.join("captures").join(name);
        folder(path.parent().unwrap_or(out))?;
        output::write_file(&path, true, content)?;
        let options = Options { inputs: vec![path], ..Options::default() };
        let summary = replay::replay(&options, &mut |_| match interrupt::is_requested() {
            true => std::ops::ControlFlow::Break(()),
            false => std::ops::ControlFlow::Continue(()),
        })?;
        if summary.is_interrupted {
            return Ok(false);
        }
        summary.complaints().for_each(|text| complain(&text));
        let channel = summary.channels.first();
        let symbols: Vec<&str> = summary.busiest.iter().map(|busy| busy.symbol.as_str()).take(3).collect();
        table.row([
            name.to_owned(),
            channel.map_or_else(String::new, |channel| channel.publisher.venue_name()),
            channel.map_or_else(String::new, |channel| channel.application.protocol().to_owned()),
            thousands(summary.messages),
            thousands(summary.events),
            symbols.join(", "),
        ]);
    }
    output::print(&table.render(width, terminal::paint()))?;
    Ok(true)
}

fn run_session(session: &Path, options: Options, what: &'static str) -> Result<Summary> {
    let options = Options { inputs: vec![session.to_owned()], ..options };
    let mut bar = Bar::new(what);
    Ok(replay::replay(&options, &mut |progress| {
        bar.show(progress.bytes, progress.total_bytes, Some(progress.messages))
    })?)
}
