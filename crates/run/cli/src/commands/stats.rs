//! `tapeworks stats`: reports contents, rates and gaps of captures.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use tapeworks_analysis::sessions::ReadAs;
use tapeworks_analysis::stats::{self, Stats};
use tapeworks_analysis::study::show_ns;
use tapeworks_analysis::{input, paint::Paint};

use crate::ending::{Ending, Result};
use crate::table::{Align, Table, bytes, counted, number, percent, thousands};
use crate::terminal::{self, Bar, complain};
use crate::{output, report, values};

/// Maximum number of problems shown with their positions.
const SHOWN_PROBLEMS: usize = 10;

/// Count messages by type and symbol, and report rates, peaks, gaps and duplicates.
///
/// Several files are merged by time, so that lines A and B of a channel may be in separate captures. Rates
/// are measured over windows that start at multiples of their length.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tapeworks stats testdata/captures/nasdaq-itch50/Multiple.Packets.pcap
  tapeworks stats --json testdata/captures/iex-tops15/*.pcap

Exit code 3: messages are missing, or some of the input could not be read.")]
pub(crate) struct Arguments {
    /// Captures or message files; - reads standard input.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Print one JSON object.
    #[arg(short = 'J', long)]
    json: bool,
    /// Number of busiest symbols to show.
    #[arg(short, long, value_name = "N", default_value_t = 10)]
    top: usize,
    /// Parse the input as this protocol instead of detecting it; see "tapeworks schema --list".
    #[arg(short, long, value_name = "NAME", value_parser = values::read_as)]
    protocol: Option<ReadAs>,
}

pub(crate) fn run(arguments: &Arguments) -> Result {
    let mut inputs = input::open_any(&arguments.files, arguments.protocol)?;
    input::check_one_day(&inputs)?;
    let mut bar = Bar::new("Counting");
    let stats = stats::count(&mut inputs, arguments.protocol, &mut |progress| {
        bar.show(progress.bytes_read, progress.total_bytes, None)
    });
    bar.clear();
    let text = if arguments.json {
        format!("{:#}\n", stats.to_json(arguments.top))
    } else {
        show(&stats, arguments.top, terminal::paint())
    };
    output::print(&text)?;
    stats.ended.complaints().for_each(|text| complain(&text));
    if stats.ended.is_stopped {
        complain("stopped before the end of the input");
        return Ok(Ending::Interrupted);
    }
    Ok(if stats.is_clean() { Ending::Complete } else { Ending::WithProblems })
}

fn show(stats: &Stats, top: usize, paint: Paint) -> String {
    let width = terminal::width();
    let mut out = String::new();
    let total = stats.messages();
    let section = |out: &mut String, title: &str, table: &Table| {
        if !table.is_empty() {
            let _infallible = write!(out, "{}\n{}\n", paint.strong(title), table.render(width, paint));
        }
    };

    let mut table = Table::new(&[
        ("file", Align::Left),
        ("holds", Align::Left),
        ("packets", Align::Right),
        ("size", Align::Right),
    ]);
    for file in &stats.files {
        table.row([file.name.clone(), file.format.to_owned(), thousands(file.packets), bytes(file.bytes)]);
    }
    section(&mut out, "Files", &table);

    let mut table = Table::new(&[
        ("channel", Align::Left),
        ("venue", Align::Left),
        ("protocol", Align::Left),
        ("lines", Align::Right),
        ("packets", Align::Right),
        ("messages", Align::Right),
        ("repeated", Align::Right),
        ("gaps", Align::Right),
        ("missing", Align::Right),
        ("heartbeats", Align::Right),
    ]);
    for (identity, channel) in &stats.channels {
        table.row([
            identity.to_string(),
            channel.venue.map_or_else(|| "-".to_owned(), |venue| venue.venue_name()),
            channel.protocol.unwrap_or("-").to_owned(),
            channel.lines.len().to_string(),
            thousands(channel.packets),
            thousands(channel.messages),
            thousands(channel.repeated),
            thousands(channel.gaps),
            thousands(channel.missing),
            thousands(channel.heartbeats),
        ]);
    }
    section(&mut out, "Channels", &table);

    let mut table = Table::new(&[
        ("message", Align::Left),
        ("count", Align::Right),
        ("share", Align::Right),
        ("bytes", Align::Right),
        ("protocol", Align::Left),
    ]);
    let mut kinds: Vec<_> = stats.kinds.iter().collect();
    kinds.sort_by_key(|(name, kind)| (std::cmp::Reverse(kind.messages), **name));
    for ((protocol, name), kind) in kinds {
        table.row([
            (*name).to_owned(),
            thousands(kind.messages),
            percent(kind.messages, total),
            bytes(kind.bytes),
            (*protocol).to_owned(),
        ]);
    }
    for ((protocol, tag), count) in &stats.unknown {
        let name = tapeworks_wire::DecodeError::UnknownMessage { tag: *tag }.to_string();
        table.row([name, thousands(*count), percent(*count, total), "-".to_owned(), (*protocol).to_owned()]);
    }
    section(&mut out, &format!("Messages: {}", thousands(total)), &table);

    let mut table =
        Table::new(&[("symbol", Align::Left), ("messages", Align::Right), ("share", Align::Right)]);
    for (symbol, count) in stats.busiest(top) {
        table.row([symbol.to_string().trim_end().to_owned(), thousands(count), percent(count, total)]);
    }
    section(&mut out, &format!("Symbols: {}, the busiest", thousands(stats.symbols.len() as u64)), &table);

    if let Some((first, last)) = stats.times {
        let mut table = Table::new(&[
            ("rate", Align::Left),
            ("messages/s", Align::Right),
            ("messages", Align::Right),
            ("in the window from", Align::Left),
        ]);
        if let Some(mean) = stats.mean_rate() {
            let over = format!("mean over {}", show_ns(stats.seconds() * 1e9));
            table.row([over, number(mean), thousands(total), stats.show_time(first)]);
        }
        for peak in stats.peaks.iter().filter(|peak| peak.messages > 0) {
            table.row([
                format!("peak of {}", show_ns(peak.window_ns as f64)),
                number(peak.per_second()),
                thousands(peak.messages),
                stats.show_time(peak.start),
            ]);
        }
        let title = format!("Rates, from {} to {}", stats.show_time(first), stats.show_time(last));
        section(&mut out, &title, &table);
    }

    let shown = stats.kept.len().min(SHOWN_PROBLEMS);
    for problem in stats.kept.iter().take(shown) {
        let file = stats.files.get(usize::from(problem.place.file)).map_or("", |file| &file.name);
        let place = format!(
            "{file}: packet {} at offset {}",
            thousands(problem.place.number),
            thousands(problem.place.offset)
        );
        let _infallible = writeln!(out, "{}", paint.bad(&format!("! {place}: {}", problem.text)));
        if !problem.protocols.is_empty() {
            let _infallible = writeln!(out, "{}", report::choices(&problem.protocols));
        }
    }
    let problems = stats.problems + stats.bad_messages + stats.unknown.values().sum::<u64>();
    let gaps: u64 = stats.channels.iter().map(|(_, channel)| channel.gaps).sum();
    let verdict = if stats.is_clean() {
        let packets = stats.files.iter().map(|file| file.packets).sum::<u64>();
        let of_channels = stats.channels.iter().map(|(_, channel)| channel.heartbeats).sum::<u64>();
        let heartbeats = of_channels + stats.undecided_heartbeats;
        let holds = report::without_messages(total, packets, heartbeats);
        paint.good(&format!("Everything was read{holds}; nothing is missing."))
    } else {
        report::losses(gaps, stats.missing(), problems, &stats.ended, paint)
    };
    for (destination, protocol) in &stats.ended.inferred {
        let _infallible = writeln!(out, "{}", paint.faint(&report::inferred(destination, protocol)));
    }
    if stats.unverified > 0 {
        let datagrams = counted(stats.unverified, "datagram", "datagrams");
        let _infallible = writeln!(out, "{}", paint.faint(&format!("{datagrams} {}", report::UNVERIFIED)));
    }
    let _infallible = writeln!(out, "{verdict}");
    if stats.not_ours > 0 {
        let packets = counted(stats.not_ours, "packet", "packets");
        let _infallible = writeln!(out, "{packets} without UDP or TCP skipped.");
    }
    out
}
