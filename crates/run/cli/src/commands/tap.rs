//! `tapeworks tap`: reads a plant's shared memory.

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;
use hdrhistogram::Histogram;
use tapeworks_market::{EventKind, Price, Publisher, Symbol};
use tapeworks_plant::{Published, SHARED_MEANING};
use tapeworks_ring::broadcast::{Read, Reader, Start};
use tapeworks_time::Nanos;

use super::replay::complain_of_unseen;
use crate::ending::{Ending, Failure, Result};
use crate::table::{counted, number, thousands, time};
use crate::terminal::complain;
use crate::values::{self, Symbols};
use crate::{interrupt, output};

/// Read a plant's events from its shared memory, on the same machine.
///
/// Prints a line for each change of a synthetic NBBO, or for every event. At the end, prints the delays from
/// the kernel's receipt of a datagram to the read of its event.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tapeworks tap /dev/shm/tapeworks --limit 20
  tapeworks tap /dev/shm/tapeworks --symbols TWAA,TWAB
  tapeworks tap /dev/shm/tapeworks --events --seconds 5
  tapeworks tap /dev/shm/tapeworks --quiet --seconds 10")]
pub(crate) struct Arguments {
    /// Shared memory of the plant: `shared_memory` in its configuration.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Print every event, not only changes of the NBBO.
    #[arg(long)]
    events: bool,
    /// Include only these symbols: A,B or @FILE.
    #[arg(short, long, value_name = "SYMBOLS", value_parser = values::symbols)]
    symbols: Option<Symbols>,
    /// Stop after N lines; with --quiet, after N lines that would have been printed.
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Stop after this time: seconds, or 500ms, 2s, 10m, 1h.
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    seconds: Option<Duration>,
    /// Print no lines, only the statistics at the end.
    #[arg(short, long)]
    quiet: bool,
}

/// Number of polls of an empty ring before the first sleep.
const SPINS: u32 = 10_000;

/// Number of 20 µs sleeps before the reader sleeps for 1 ms at a time.
const SHORT_SLEEPS: u32 = 2_000;

fn price(price: i64) -> String {
    Price::from_e9(price).map_or_else(|| "-".to_owned(), |price| format!("{price:?}"))
}

/// Returns the feed's dataset, as in files and for clients.
fn publisher(number: u16) -> String {
    Publisher(number).feed().map_or_else(|| format!("publisher-{number}"), |feed| feed.dataset.to_owned())
}

fn kind(number: u8) -> String {
    EventKind::from_number(number).map_or_else(|| format!("kind-{number}"), |kind| format!("{kind:?}"))
}

fn side(letter: u8) -> &'static str {
    match letter {
        b'B' => "bid",
        b'A' => "ask",
        _ => "-",
    }
}

fn line(item: &Published) -> String {
    format!(
        "{} {} {} {} {} {} x {} nbbo {} x {} / {} x {}{}",
        time(Nanos(item.ts_recv)),
        item.symbol().map_or_else(|| format!("instrument {}", item.instrument), |symbol| symbol.to_string()),
        publisher(item.publisher),
        kind(item.kind),
        side(item.side),
        price(item.price),
        item.size,
        price(item.bid),
        item.bid_size,
        price(item.ask),
        item.ask_size,
        if item.nbbo_flags & 0x04 == 0 { "" } else { " stale" },
    )
}

pub(crate) fn run(arguments: &Arguments) -> Result {
    let path = &arguments.file;
    let mut reader = Reader::<Published>::attach(path, SHARED_MEANING, Start::Newest)
        .map_err(|error| Failure::Failed(format!("{}: {error}", path.display())))?;
    let mut delays = Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3)
        .map_err(|error| Failure::Failed(format!("no histogram: {error}")))?;
    let until = arguments.seconds.map(|time| Instant::now() + time);
    let mut unseen = arguments.symbols.as_ref().map(|Symbols(wanted)| wanted.clone()).unwrap_or_default();
    let mut is_writer_dead = false;
    let (mut items, mut lines, mut lost, mut looks) = (0u64, 0u64, 0u64, 0u32);
    while !interrupt::is_requested() && arguments.limit.is_none_or(|limit| lines < limit) {
        match reader.read() {
            Read::Item(item) => {
                looks = 0;
                items += 1;
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let is_shown = item.kind != EventKind::SymbolMapping as u8;
                if is_shown {
                    let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
                    delays.saturating_record(now.saturating_sub(item.ts_recv));
                }
                let is_wanted = arguments.symbols.as_ref().is_none_or(|Symbols(wanted)| {
                    item.symbol().is_some_and(|symbol| wanted.contains(&symbol))
                });
                if !unseen.is_empty()
                    && let Some(symbol) = item.symbol()
                {
                    unseen.remove(&symbol);
                }
                if is_wanted && (arguments.events || item.nbbo_changed == 1) {
                    if !arguments.quiet {
                        output::print(&(line(&item) + "\n"))?;
                    }
                    lines += 1;
                }
            }
            Read::Lost(count) => lost += count,
            Read::Closed => break,
            Read::Empty => {
                looks = looks.saturating_add(1);
                if looks > SPINS {
                    if until.is_some_and(|until| Instant::now() >= until) {
                        break;
                    }
                    if !reader.is_writer_alive() {
                        // Read the items published just before the plant's end first.
                        if is_writer_dead {
                            break;
                        }
                        is_writer_dead = true;
                        looks = 0;
                        continue;
                    }
                    // The plant cannot wake a reader in another process.
                    let micros = if looks > SPINS + SHORT_SLEEPS { 1_000 } else { 20 };
                    std::thread::sleep(Duration::from_micros(micros));
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
    let mut unseen: Vec<Symbol> = unseen.into_iter().collect();
    unseen.sort_unstable();
    complain_of_unseen(&unseen);
    if is_writer_dead {
        complain(&format!("{}: the plant that wrote it has died", path.display()));
        return Ok(Ending::Failed);
    }
    Ok(Ending::Complete)
}
