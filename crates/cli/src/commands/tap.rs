//! `tapeworks tap`: a reader of a plant's shared memory.

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;
use hdrhistogram::Histogram;
use tapeworks_market::{EventKind, Price};
use tapeworks_plant::live::{Published, SHARED_MEANING};
use tapeworks_ring::broadcast::{Read, Reader, Start};

use crate::ending::{Ending, Failure, Result};
use crate::table::{counted, number, thousands};
use crate::values::{self, Symbols};
use crate::{complain, interrupt, output};

/// Read a plant's events from its shared memory, on the same machine.
///
/// Prints a line for each change of a synthetic NBBO, or for every event. At the end the delays are told: from the time at
/// which the kernel received the datagram until the event was read here.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tapeworks tap /dev/shm/tapeworks --limit 20
  tapeworks tap /dev/shm/tapeworks --symbols TWAA,TWAB
  tapeworks tap /dev/shm/tapeworks --events --seconds 5
  tapeworks tap /dev/shm/tapeworks --quiet --seconds 10")]
pub(crate) struct Arguments {
    /// The file that the plant's configuration names as `shared_memory`.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Print every event, not only changes of the NBBO.
    #[arg(long)]
    events: bool,
    /// Only these symbols: A,B or @FILE.
    #[arg(short, long, value_name = "SYMBOLS", value_parser = values::symbols)]
    symbols: Option<Symbols>,
    /// End after so many lines.
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// End after so many seconds.
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<f64>,
    /// Print no lines, only the figures at the end.
    #[arg(short, long)]
    quiet: bool,
}

fn price(price: i64) -> String {
    Price::from_e9(price).map_or_else(|| "-".to_owned(), |price| format!("{price:?}"))
}

fn line(item: &Published) -> String {
    format!(
        "{} {} publisher {} kind {} side {} price {} size {} nbbo {} x {} / {} x {}{}",
        item.ts_recv,
        item.symbol().map_or_else(|| format!("instrument {}", item.instrument), |symbol| symbol.to_string()),
        item.publisher,
        item.kind,
        char::from(item.side),
        price(item.price),
        item.size,
        price(item.bid),
        item.bid_size,
        price(item.ask),
        item.ask_size,
        if item.nbbo_flags & 0x04 == 0 { "" } else { " in doubt" },
    )
}

pub(crate) fn run(arguments: &Arguments) -> Result {
    let path = &arguments.file;
    let mut reader = Reader::<Published>::attach(path, SHARED_MEANING, Start::Newest)
        .map_err(|error| Failure::Failed(format!("{}: {error}", path.display())))?;
    let mut delays = Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3)
        .map_err(|error| Failure::Failed(format!("no histogram: {error}")))?;
    let until =
        arguments.seconds.map(|seconds| Instant::now() + Duration::from_secs_f64(seconds.clamp(0.0, 1e9)));
    let (mut items, mut lines, mut lost, mut looks) = (0u64, 0u64, 0u64, 0u32);
    while !interrupt::is_requested() && arguments.limit.is_none_or(|limit| lines < limit) {
        match reader.read() {
            Read::Item(item) => {
                looks = 0;
                items += 1;
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let is_told = item.kind != EventKind::SymbolMapping as u8;
                if is_told {
                    let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
                    delays.saturating_record(now.saturating_sub(item.ts_recv));
                }
                let is_wanted = arguments.symbols.as_ref().is_none_or(|Symbols(wanted)| {
                    item.symbol().is_some_and(|symbol| wanted.contains(&symbol))
                });
                if !arguments.quiet && is_wanted && (arguments.events || item.nbbo_changed == 1) {
                    output::print(&(line(&item) + "\n"))?;
                    lines += 1;
                }
            }
            Read::Lost(count) => lost += count,
            Read::Closed => break,
            Read::Empty => {
                looks += 1;
                if looks > 10_000 {
                    if !reader.is_writer_alive() || until.is_some_and(|until| Instant::now() >= until) {
                        break;
                    }
                    std::thread::sleep(Duration::from_micros(20));
                }
            }
        }
        if items.is_multiple_of(1_024) && until.is_some_and(|until| Instant::now() >= until) {
            break;
        }
    }
    let at = |quantile| number(delays.value_at_quantile(quantile) as f64 / 1e3);
    complain(&format!(
        "{}, {} overrun; from datagram to here, in us: p50 {}, p90 {}, p99 {}, p99.9 {}, max {}",
        counted(items, "event", "events"),
        thousands(lost),
        at(0.5),
        at(0.9),
        at(0.99),
        at(0.999),
        at(1.0),
    ));
    Ok(Ending::Complete)
}
