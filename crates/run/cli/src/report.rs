//! Formats the report of a replay as tables for people.

use std::fmt::Write as _;
use std::net::SocketAddr;

use tapeworks_analysis::analyser::Ended;
use tapeworks_analysis::paint::Paint;
use tapeworks_analysis::replay::Summary;
use tapeworks_analysis::study::show_ns;
use tapeworks_feed::ProblemKind;
use tapeworks_market::book::BookCounters;
use tapeworks_market::nbbo::{BestSide, MarketState};
use tapeworks_market::{Flags, Level, Price};

use crate::table::{Align, Table, bytes, counted, number, thousands, time};

/// Maximum number of problems shown with their positions.
const SHOWN_PROBLEMS: usize = 5;

fn section(out: &mut String, title: &str, table: &Table, width: usize, paint: Paint) {
    if !table.is_empty() {
        let _infallible = write!(out, "\n{}\n{}", paint.strong(title), table.render(width, paint));
    }
}

/// Formats the figures: messages, bytes, and speed.
pub(crate) fn figures(summary: &Summary, paint: Paint) -> String {
    let seconds = summary.elapsed.as_secs_f64();
    let mut out = format!(
        "{}, {}, {} in {seconds:.2} s",
        counted(summary.messages, "message", "messages"),
        counted(summary.events, "event", "events"),
        counted(summary.symbols.len() as u64, "instrument", "instruments"),
    );
    // Without messages there is no mean.
    if let Some(mean_ns) = summary.mean_ns() {
        let rate = paint.strong(&number(summary.messages as f64 / seconds.max(1e-9)));
        let mean = paint.strong(&format!("{mean_ns:.1}"));
        let _infallible = write!(out, ": {rate} messages/s, mean {mean} ns/message");
    }
    out.push('\n');
    let times = &summary.service_times;
    if !times.is_empty() {
        let [p50, p99, p999] =
            [0.5, 0.99, 0.999].map(|quantile| thousands(times.value_at_quantile(quantile)));
        let _infallible = writeln!(
            out,
            "Service time of a message, {} measured: mean {:.1} ns, p50 {p50} ns, p99 {p99} ns, p99.9 {p999} ns, \
             max {} ns",
            thousands(times.len()),
            times.mean(),
            thousands(times.max()),
        );
    }
    if let Some((first, last)) = summary.times {
        let _infallible = writeln!(out, "Received from {} to {}", time(first), time(last));
    }
    if let Some(lateness) = summary.worst_lateness {
        let _infallible =
            writeln!(out, "Paced: the latest packet was {} late", show_ns(lateness.as_nanos() as f64));
    }
    out
}

/// Formats the channels and the books of each venue.
pub(crate) fn venues(summary: &Summary, width: usize, paint: Paint) -> String {
    let mut out = String::new();
    let mut table = Table::new(&[
        ("channel", Align::Left),
        ("venue", Align::Left),
        ("lines", Align::Right),
        ("packets", Align::Right),
        ("messages", Align::Right),
        ("repeated", Align::Right),
        ("late", Align::Right),
        ("gaps", Align::Right),
        ("missing", Align::Right),
    ]);
    for channel in &summary.channels {
        table.row([
            channel.identity.to_string(),
            channel.publisher.venue_name(),
            channel.lines.to_string(),
            thousands(channel.counters.packets),
            thousands(channel.counters.messages),
            thousands(channel.sequence.duplicate_messages),
            thousands(channel.sequence.late_messages),
            thousands(channel.sequence.gaps),
            thousands(channel.sequence.missing_messages),
        ]);
    }
    section(&mut out, "Channels", &table, width, paint);
    let mut table = Table::new(&[
        ("venue", Align::Left),
        ("events", Align::Right),
        ("orders resting", Align::Right),
        ("could not be applied", Align::Right),
        ("incomplete books", Align::Right),
        ("gaps", Align::Right),
    ]);
    for feed in &summary.feeds {
        table.row([
            feed.publisher.venue_name(),
            thousands(feed.counters.events),
            thousands(feed.orders as u64),
            thousands(feed.counters.rejected()),
            thousands(feed.contradicted as u64),
            thousands(feed.counters.gaps),
        ]);
    }
    section(&mut out, "Books", &table, width, paint);
    out
}

fn price(price: Option<Price>) -> String {
    price.map_or_else(|| "-".to_owned(), |price| price.to_string())
}

fn level(level: Option<Level>) -> (String, String) {
    let size = level.map_or_else(String::new, |level| thousands(u64::from(level.size)));
    (price(level.map(|level| level.price)), size)
}

fn side(side: &BestSide) -> (String, String) {
    let size = side.price.map_or_else(String::new, |_| thousands(u64::from(side.size)));
    (price(side.price), size)
}

/// Formats the NBBO and each venue's best prices for the `count` busiest instruments.
pub(crate) fn tops(summary: &Summary, count: usize, width: usize, paint: Paint) -> String {
    let mut table = Table::new(&[
        ("symbol", Align::Left),
        ("events", Align::Right),
        ("venue", Align::Left),
        ("bid size", Align::Right),
        ("bid", Align::Right),
        ("ask", Align::Right),
        ("ask size", Align::Right),
        ("", Align::Left),
    ]);
    for busy in summary.busiest.iter().take(count) {
        let Some(nbbo) = &busy.nbbo else { continue };
        let ((bid, bid_size), (ask, ask_size)) = (side(&nbbo.bid), side(&nbbo.ask));
        let mut remark = match nbbo.state() {
            MarketState::Normal => String::new(),
            _ if nbbo.bid.price.is_none() && nbbo.ask.price.is_none() => "no venue counts".to_owned(),
            state => state.as_str().to_owned(),
        };
        if nbbo.flags.contains(Flags::MAYBE_BAD_BOOK) {
            remark.push_str(" stale");
        }
        table.row([
            busy.symbol.as_str().to_owned(),
            thousands(busy.events),
            "NBBO".to_owned(),
            bid_size,
            bid,
            ask,
            ask_size,
            remark.trim().to_owned(),
        ]);
        if let (MarketState::OneSided, Some((time, last))) = (nbbo.state(), &busy.last_two_sided) {
            let ((bid, bid_size), (ask, ask_size)) = (side(&last.bid), side(&last.ask));
            let since = format!("since {}", self::time(*time));
            table.row([
                String::new(),
                String::new(),
                "last NBBO".to_owned(),
                bid_size,
                bid,
                ask,
                ask_size,
                since,
            ]);
        }
        for top in &busy.tops {
            let ((bid, bid_size), (ask, ask_size)) = (level(top.bid), level(top.ask));
            let remark = if top.is_stale { "stale" } else { "" };
            table.row([
                String::new(),
                String::new(),
                top.publisher.venue_name(),
                bid_size,
                bid,
                ask,
                ask_size,
                remark.to_owned(),
            ]);
        }
    }
    let mut out = String::new();
    section(&mut out, "The busiest at the end: synthetic NBBO and top of book", &table, width, paint);
    out
}

/// Formats the list of files written.
pub(crate) fn written(summary: &Summary, width: usize, paint: Paint) -> String {
    let mut table = Table::new(&[
        ("file", Align::Left),
        ("schema", Align::Left),
        ("records", Align::Right),
        ("size", Align::Right),
    ]);
    for written in &summary.written {
        table.row([
            written.path.display().to_string(),
            written.schema.to_string(),
            thousands(written.summary.records),
            bytes(written.summary.bytes),
        ]);
    }
    let mut out = String::new();
    section(&mut out, "Written", &table, width, paint);
    out
}

/// Describes skipped and corrected messages.
fn asides(summary: &Summary) -> Vec<String> {
    let feed = &summary.feed_counters;
    let files = &summary.file_counters;
    let mut asides: Vec<String> = summary
        .without_day
        .iter()
        .map(|file| {
            format!(
                "{file}: neither its name nor its messages have the day: times count from 1970-01-01 (give it with --date)"
            )
        })
        .collect();
    let mut aside = |count: u64, one: &str, many: &str, text: &str| {
        if count > 0 {
            asides.push(format!("{} {text}", counted(count, one, many)));
        }
    };
    let presumed = summary.channels.iter().filter(|channel| channel.is_venue_presumed).count() as u64;
    aside(
        presumed,
        "channel",
        "channels",
        "whose venue is presumed, since nothing says it: --venue names it",
    );
    for (destination, protocol) in &summary.inferred {
        asides.push(inferred(destination, protocol));
    }
    let mut aside = |count: u64, one: &str, many: &str, text: &str| {
        if count > 0 {
            asides.push(format!("{} {text}", counted(count, one, many)));
        }
    };
    aside(feed.foreign_packets, "packet", "packets", "neither UDP nor TCP over IP, skipped");
    aside(feed.unrecognised_packets, "packet", "packets", "in an unknown protocol, skipped");
    aside(
        feed.session_bytes,
        "byte",
        "bytes",
        "of TCP sessions without market data: orders, requests, recovery",
    );
    aside(feed.skipped_stream_bytes, "byte", "bytes", "of TCP streams skipped: unknown, or behind a gap");
    aside(
        summary.nbbo_ignored,
        "event",
        "events",
        "of feeds beyond the 32 that the NBBO can have, left out of it",
    );
    aside(files.without_time, "packet", "packets", "without a time, which got that of the packet before");
    aside(files.time_out_of_range, "packet", "packets", "with a time out of range, which got the nearest");
    aside(files.unverified, "datagram", "datagrams", UNVERIFIED);
    aside(
        summary.values_lost(),
        "value",
        "values",
        "out of the range of a file's column: sizes are 4294967295 there, others empty",
    );
    asides
}

/// Describes how many books are incomplete at the end, and the events that show it.
fn incomplete_books(summary: &Summary) -> Option<String> {
    let books: usize = summary.feeds.iter().map(|feed| feed.contradicted).sum();
    if books == 0 {
        return None;
    }
    let of =
        |get: fn(&BookCounters) -> u64| summary.feeds.iter().map(|feed| get(&feed.counters)).sum::<u64>();
    let reasons = [
        (of(|counters| counters.unknown_orders), "about orders from before the input or a gap"),
        (of(|counters| counters.unknown_levels), "about levels from before the input or a gap"),
        (of(|counters| counters.duplicate_orders), "with the reference of another order"),
        (of(|counters| counters.overfills), "for more shares than an order had left"),
        (of(|counters| counters.level_mismatches), "at odds with a level"),
        (of(|counters| counters.incomplete), "without price or shares"),
    ];
    let shown = reasons.iter().filter(|(count, _)| *count > 0);
    let shown: Vec<_> =
        shown.map(|(count, what)| format!("{} {what}", counted(*count, "event", "events"))).collect();
    let verb = if books == 1 { "is" } else { "are" };
    Some(format!("{} {verb} incomplete: {}.", counted(books as u64, "book", "books"), shown.join(", ")))
}

/// Describes the problems, or reports that there are none.
pub(crate) fn verdict(summary: &Summary, paint: Paint) -> String {
    let mut out = String::from("\n");
    if let Some(nbbo) = summary.nbbo.filter(|nbbo| nbbo.changes > 0) {
        let _infallible = writeln!(
            out,
            "The synthetic NBBO changed {} times; it was locked after {} and crossed after {} of them.",
            thousands(nbbo.changes),
            thousands(nbbo.locked),
            thousands(nbbo.crossed)
        );
    }
    for aside in asides(summary) {
        let _infallible = writeln!(out, "{}", paint.faint(&aside));
    }
    for problem in summary.problems.kept().iter().take(SHOWN_PROBLEMS) {
        let file = summary.files.get(usize::from(problem.file)).map_or("", |file| file);
        let place =
            format!("{file}: packet {} at offset {}", thousands(problem.packet), thousands(problem.offset));
        let _infallible = writeln!(out, "{}", paint.bad(&format!("! {place}: {}", problem.kind)));
        if let ProblemKind::UnknownProtocol { possible, .. } = &problem.kind
            && !possible.is_empty()
        {
            let _infallible = writeln!(out, "{}", choices(possible));
        }
    }
    let rejected: u64 = summary.feeds.iter().map(|feed| feed.counters.rejected()).sum();
    if summary.is_clean() {
        let heartbeats = summary.channels.iter().map(|channel| channel.counters.heartbeats).sum();
        let packets = summary.file_counters.packets;
        let text = match summary.is_interrupted {
            true => {
                "Stopped before the end of the input; everything up to there was understood, nothing is missing."
                    .to_owned()
            }
            false => {
                let holds = without_messages(summary.messages, packets, heartbeats);
                format!("Everything was understood{holds}; nothing is missing.")
            }
        };
        let mut lacking = summary.lacking().peekable();
        let text = match lacking.peek() {
            None => paint.good(&text),
            Some(_) => paint.bad("The input was read completely, but the files do not contain all of it."),
        };
        lacking.for_each(|line| _ = writeln!(out, "{}", paint.bad(&format!("! {line}"))));
        let _infallible = writeln!(out, "{text}");
    } else {
        let files = &summary.file_counters;
        let parts = [
            (summary.problems.total, "problem", "problems", "in the input"),
            (summary.missing_messages(), "message", "messages", "missing"),
            (rejected, "event", "events", "whose order or level is not in the book"),
            (summary.file_errors.len() as u64, "file", "files", "cut short"),
            (summary.unrecognised.len() as u64, "file", "files", UNRECOGNISED),
            (
                files.without_time + files.time_out_of_range,
                "packet",
                "packets",
                "without a time of their own",
            ),
            (summary.unreadable_symbols, "symbol", "symbols", "that cannot be read"),
            (summary.values_lost(), "value", "values", "that a file could not hold"),
            (summary.unseen_symbols.len() as u64, "symbol", "symbols", "without messages"),
        ];
        let named = parts.iter().filter(|(count, ..)| *count > 0);
        let named: Vec<_> =
            named.map(|(count, one, many, what)| format!("{} {what}", counted(*count, one, many))).collect();
        let text = format!("{}.", named.join(", "));
        let _infallible = writeln!(out, "{}", paint.bad(&text));
        if let Some(text) = incomplete_books(summary) {
            let _infallible = writeln!(out, "{}", paint.bad(&text));
        }
    }
    out
}

/// Explains how a protocol was inferred, and how to confirm it.
pub(crate) fn inferred(destination: &SocketAddr, protocol: &str) -> String {
    format!(
        "The protocol of {destination} is inferred from its packets: {protocol} (--protocol {protocol} confirms it)"
    )
}

/// Returns the commands to choose from if several protocols fit: this command with each of them.
pub(crate) fn choices(protocols: &[&str]) -> String {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let choice = |protocol: &&str| format!("tapeworks {} --protocol {protocol}", words.join(" "));
    format!("  choose: {}", protocols.iter().map(choice).collect::<Vec<_>>().join("  or  "))
}

/// Follows the number of datagrams that have no usable checksum.
pub(crate) const UNVERIFIED: &str = "without a usable UDP checksum: a damaged byte in them goes unnoticed";

/// Follows the number of captures without a recognised packet.
const UNRECOGNISED: &str = "without a packet in a known protocol";

/// Describes input without messages, to follow "everything was read". Returns an empty text if there are messages.
pub(crate) fn without_messages(messages: u64, packets: u64, heartbeats: u64) -> String {
    match (messages, packets, heartbeats) {
        (0, 0, _) => ", but there are no packets in it".to_owned(),
        (0, _, 0) => ", but there are no messages in it".to_owned(),
        (0, _, _) => format!(": {} and no messages", counted(heartbeats, "heartbeat", "heartbeats")),
        _ => String::new(),
    }
}

/// Describes missing and unreadable messages in one line.
pub(crate) fn losses(gaps: u64, missing: u64, problems: u64, ended: &Ended, paint: Paint) -> String {
    let mut text = format!(
        "{}, {} missing; {} unreadable",
        counted(gaps, "gap", "gaps"),
        counted(missing, "message", "messages"),
        counted(problems, "place", "places")
    );
    let files = [(ended.damaged.len(), "cut short"), (ended.unrecognised.len(), UNRECOGNISED)];
    for (count, what) in files.iter().filter(|(count, _)| *count > 0) {
        let _infallible = write!(text, "; {} {what}", counted(*count as u64, "file", "files"));
    }
    text.push('.');
    paint.bad(&text)
}
