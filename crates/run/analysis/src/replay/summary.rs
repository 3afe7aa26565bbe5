//! The summary of a replay.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use hdrhistogram::Histogram;
use tapeworks_capture::CaptureError;
use tapeworks_feed::{Application, ChannelCounters, ChannelIdentity, FeedCounters, Problems};
use tapeworks_follow::sequence::SequenceCounters;
use tapeworks_market::book::BookCounters;
use tapeworks_market::event::Gap;
use tapeworks_market::nbbo::NbboCounts;
use tapeworks_market::{InstrumentId, Level, Nbbo, NbboStage, Publisher, Side, Symbol};
use tapeworks_store::{Schema, Skip};
use tapeworks_time::Nanos;

use crate::bars::Bars;
use crate::compare::Comparison;

use super::{Directory, Options, Run};
use crate::input::{Input, Source, Unrecognised};

/// Counters of a channel.
#[derive(Clone, Debug)]
pub struct ChannelSummary {
    /// Its identity.
    pub identity: ChannelIdentity,
    /// Its protocol.
    pub application: Application,
    /// The feed.
    pub publisher: Publisher,
    /// Its packets and messages.
    pub counters: ChannelCounters,
    /// Duplicate, late and missing messages.
    pub sequence: SequenceCounters,
    /// Number of destinations that carried it.
    pub lines: usize,
    /// Whether nothing shows which venue it belongs to: [`FeedSpec::is_presumed`](tapeworks_feed::FeedSpec::is_presumed).
    pub is_venue_presumed: bool,
}

/// Messages that a channel is missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GapSummary {
    /// The channel, by its index in [`Summary::channels`].
    pub channel: usize,
    /// The number of the first missing message.
    pub first: u64,
    /// How many are missing.
    pub count: u64,
    /// When the message after them was received.
    pub received: Nanos,
}

/// Maximum number of gaps kept individually; each channel counts all of its gaps.
pub const KEPT_GAPS: usize = 1_000;

/// The books of a feed at the end.
#[derive(Clone, Debug)]
pub struct FeedSummary {
    /// The feed.
    pub publisher: Publisher,
    /// Counters of its books.
    pub counters: BookCounters,
    /// Orders resting at the end.
    pub orders: usize,
    /// Contradicted books at the end: events did not fit them, so they differ from the venue's.
    pub contradicted: usize,
    /// Number of times that a table had to grow.
    pub growths: u64,
}

/// The top of one venue's book.
#[derive(Clone, Copy, Debug)]
pub struct Top {
    /// The feed.
    pub publisher: Publisher,
    /// The best bid.
    pub bid: Option<Level>,
    /// The best offer.
    pub ask: Option<Level>,
    /// Whether the book may be wrong, after a gap or a contradiction.
    pub is_stale: bool,
}

/// A busy instrument, as of the end.
#[derive(Clone, Debug)]
pub struct Busy {
    /// Its symbol.
    pub symbol: Symbol,
    /// Events about it.
    pub events: u64,
    /// The tops of the feeds that have a book for it; books built from orders [may be left out](super::Options::skips_unused).
    pub tops: Vec<Top>,
    /// The NBBO, unless it [is left out](super::Options::skips_unused).
    pub nbbo: Option<Nbbo>,
    /// The last NBBO with a bid and an offer, and its time; at the end of a day there is none any more.
    pub last_two_sided: Option<(Nanos, Nbbo)>,
}

/// Counters of the readers, summed over all files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileCounters {
    /// Packets of captures.
    pub packets: u64,
    /// Packets in blocks without a timestamp, which take the previous packet's.
    pub without_time: u64,
    /// Packets with a time before 1970 or after 2554, clamped to that range.
    pub time_out_of_range: u64,
    /// Datagrams in which damage would go unnoticed: see [`Tally::unverified`](tapeworks_capture::Tally::unverified).
    pub unverified: u64,
    /// End-of-session marks in message files.
    pub end_marks: u64,
}

/// Totals of the finished inputs.
#[derive(Debug, Default)]
pub(super) struct Ended {
    pub(super) counters: FileCounters,
    pub(super) unrecognised: Vec<Unrecognised>,
}

impl Ended {
    /// Adds an input that has reached its end.
    pub(super) fn add(&mut self, input: &Input) {
        self.leave(input);
        self.unrecognised.extend(input.unrecognised());
    }

    /// Adds an input that was not read to its end.
    pub(super) fn leave(&mut self, input: &Input) {
        let counters = &mut self.counters;
        match &input.source {
            Source::Capture(reader) => {
                let tally = reader.tally();
                counters.packets += tally.packets;
                counters.without_time += tally.without_time;
                counters.time_out_of_range += tally.time_out_of_range;
                counters.unverified += tally.unverified;
            }
            Source::Framed { reader, .. } => counters.end_marks += reader.end_marks(),
            Source::FixLog(_) => {}
        }
    }
}

/// A file written.
#[derive(Clone, Debug)]
pub struct Written {
    /// Its path.
    pub path: PathBuf,
    /// The schema of its records.
    pub schema: Schema,
    /// The writer's summary.
    pub summary: tapeworks_store::Summary,
}

/// The summary of a replay.
#[derive(Debug)]
pub struct Summary {
    /// The files, by index.
    pub files: Vec<String>,
    /// Counters of the readers.
    pub file_counters: FileCounters,
    /// Message files of an unknown day: their times count from 1970-01-01.
    pub without_day: Vec<String>,
    /// Errors that ended a file early; the packets before them were processed.
    pub file_errors: Vec<CaptureError>,
    /// The captures in which no packet was recognized.
    pub unrecognised: Vec<Unrecognised>,
    /// Destinations whose protocol was inferred, because their packets fit no other, with that protocol.
    pub inferred: Vec<(SocketAddr, &'static str)>,
    /// Whether the replay was stopped before the end of its inputs.
    pub is_interrupted: bool,
    /// Messages of all channels.
    pub messages: u64,
    /// Number of events produced.
    pub events: u64,
    /// Total wall time, including reading and writing.
    pub elapsed: Duration,
    /// Service times of the measured messages in ns, excluding reading, including writing.
    pub service_times: Histogram<u64>,
    /// For a paced replay, the greatest lateness of a packet.
    pub worst_lateness: Option<Duration>,
    /// The first and the last receive time.
    pub times: Option<(Nanos, Nanos)>,
    /// Every channel.
    pub channels: Vec<ChannelSummary>,
    /// The first [`KEPT_GAPS`] gaps, in the order of their times.
    pub gaps: Vec<GapSummary>,
    /// The books of every feed.
    pub feeds: Vec<FeedSummary>,
    /// Counters of the feed's input.
    pub feed_counters: FeedCounters,
    /// Invalid symbols: blank, or not ASCII.
    pub unreadable_symbols: u64,
    /// The problems.
    pub problems: Problems,
    /// Counts of the NBBO's changes, unless it [is left out](super::Options::skips_unused).
    pub nbbo: Option<NbboCounts>,
    /// Changes by feeds that do not count for the NBBO: see [`tapeworks_market::NbboStage::ignored`].
    pub nbbo_ignored: u64,
    /// The symbols seen, in the order of their numbers.
    pub symbols: Vec<Symbol>,
    /// The venues' information about the symbols.
    pub directory: Directory,
    /// The requested symbols without a message, in order. Meaningless if the replay ended early.
    pub unseen_symbols: Vec<Symbol>,
    /// The busiest instruments, busiest first.
    pub busiest: Vec<Busy>,
    /// The comparison of the NBBO with the SIPs', if [requested](super::Options::compare_sip).
    pub comparison: Option<Comparison>,
    /// The bars, if requested.
    pub bars: Option<Bars>,
    /// The files written.
    pub written: Vec<Written>,
}

/// Number of busiest instruments in a summary.
pub const BUSIEST: usize = 10;

impl Summary {
    /// Returns the wall time per message in nanoseconds.
    pub fn mean_ns(&self) -> Option<f64> {
        (self.messages > 0).then(|| self.elapsed.as_nanos() as f64 / self.messages as f64)
    }

    /// Whether everything in the inputs was understood, nothing was missing, and every value could be written.
    pub fn is_clean(&self) -> bool {
        self.file_errors.is_empty()
            && self.unrecognised.is_empty()
            && self.file_counters.without_time + self.file_counters.time_out_of_range == 0
            && self.values_lost() == 0
            && self.unseen_symbols.is_empty()
            && self.problems.total + self.unreadable_symbols == 0
            && self.missing_messages() == 0
            && self.feeds.iter().all(|feed| feed.counters.rejected() + feed.counters.instruments_beyond == 0)
    }

    /// Returns what the input has but an output cannot hold, one line per output: `mbo` has no record for price levels and quotes.
    pub fn lacking(&self) -> impl Iterator<Item = String> {
        self.written.iter().filter_map(|written| {
            let count = written.summary.skipped(Skip::NotOrderByOrder);
            let shown = written.path.display().to_string();
            let file = if shown.is_empty() { String::new() } else { format!("{shown}: ") };
            let text = format!(
                "{file}{} holds orders: {count} updates of price levels and quotes were left out; mbp-1, mbp-10, bbo-1s and cmbp-1 hold them",
                written.schema
            );
            (count > 0).then_some(text)
        })
    }

    /// Returns one line per file-level error.
    pub fn complaints(&self) -> impl Iterator<Item = String> {
        let damaged = self.file_errors.iter().map(ToString::to_string);
        damaged.chain(self.unrecognised.iter().map(ToString::to_string))
    }

    /// Returns the number of values that did not fit a file's format and were left empty.
    pub fn values_lost(&self) -> u64 {
        self.written.iter().map(|written| written.summary.out_of_range).sum()
    }

    /// Returns the number of missing messages over all channels, saturating at `u64::MAX`, which damaged sequence numbers can reach.
    pub fn missing_messages(&self) -> u64 {
        self.channels.iter().map(|channel| channel.sequence.missing_messages).fold(0, u64::saturating_add)
    }
}

/// Builds the summary of what went through `run`; the loop fills in the rest.
pub(super) fn summarise(run: Run, options: &Options) -> Summary {
    let Run { feed, market, mut outlet, issue_names, .. } = run;
    for ((symbol, publisher), name) in issue_names.into_iter().flat_map(|names| names.finish()) {
        if let Some(instrument) = outlet.instruments.find(symbol) {
            outlet.directory.name(instrument, publisher, name);
        }
    }
    let mut bars = outlet.bars.take().map(|bars| *bars);
    if let Some(bars) = &mut bars {
        bars.finish();
    }
    let mut comparison = outlet.comparison.take().map(|comparison| *comparison);
    if let Some(comparison) = &mut comparison {
        comparison.finish();
    }
    // Events of message files use the times in the messages.
    let of_events = (outlet.last > Nanos(0)).then_some((outlet.first, outlet.last));
    let channels = feed
        .channels()
        .iter()
        .map(|channel| ChannelSummary {
            identity: *channel.identity(),
            application: channel.application(),
            publisher: channel.publisher(),
            counters: *channel.counters(),
            sequence: *channel.sequence(),
            lines: channel.lines().len(),
            is_venue_presumed: channel
                .application()
                .spec()
                .is_presumed(options.publisher, channel.lines().first().copied()),
        })
        .collect();
    let place = |(channel, gap, received): &(u16, Gap, Nanos)| GapSummary {
        channel: usize::from(*channel),
        first: gap.first,
        count: gap.count,
        received: *received,
    };
    let gaps = outlet.gaps.iter().map(place).collect();
    let feeds = market
        .first
        .feeds()
        .iter()
        .map(|books| FeedSummary {
            publisher: books.publisher(),
            counters: *books.counters(),
            orders: books.order_count(),
            contradicted: books.contradicted_count(),
            growths: books.growths(),
        })
        .collect();
    let mut busiest: Vec<(u64, usize)> = outlet
        .events_of
        .iter()
        .take(outlet.instruments.len())
        .enumerate()
        .filter(|(_, events)| **events > 0)
        .map(|(index, events)| (*events, index))
        .collect();
    busiest.sort_unstable_by_key(|(events, index)| (std::cmp::Reverse(*events), *index));
    busiest.truncate(BUSIEST);
    let busiest = busiest
        .into_iter()
        .filter_map(|(events, index)| {
            let instrument = InstrumentId(index as u32);
            let tops = market
                .first
                .feeds()
                .iter()
                .filter_map(|books| {
                    let book = books.book(instrument);
                    let (bid, ask) = (book.best(Side::Bid), book.best(Side::Ask));
                    let top = Top { publisher: books.publisher(), bid, ask, is_stale: book.is_stale() };
                    (bid.is_some() || ask.is_some()).then_some(top)
                })
                .collect();
            let symbol = outlet.instruments.symbol(instrument)?;
            let last = outlet.two_sided.get(index).copied().filter(|(time, _)| *time > Nanos(0));
            let nbbo = market.second.as_ref().map(|stage| *stage.nbbo(instrument));
            Some(Busy { symbol, events, tops, nbbo, last_two_sided: last })
        })
        .collect();
    Summary {
        comparison,
        bars,
        files: options.inputs.iter().map(|path| path.display().to_string()).collect(),
        file_counters: FileCounters::default(),
        without_day: Vec::new(),
        file_errors: Vec::new(),
        unrecognised: Vec::new(),
        inferred: feed
            .inferred()
            .map(|(destination, application)| (destination, application.spec().name))
            .collect(),
        is_interrupted: false,
        messages: feed.messages(),
        events: outlet.events,
        elapsed: Duration::ZERO,
        service_times: outlet.timer.histogram().clone(),
        worst_lateness: None,
        times: run.times.map_or(of_events, |(first, last)| match of_events {
            Some((earliest, latest)) => Some((first.min(earliest), last.max(latest))),
            None => Some((first, last)),
        }),
        channels,
        gaps,
        feeds,
        feed_counters: *feed.counters(),
        unreadable_symbols: feed.unreadable_symbols(),
        problems: feed.problems().clone(),
        nbbo: market.second.as_ref().map(|stage| *stage.counts()),
        nbbo_ignored: market.second.as_ref().map_or(0, NbboStage::ignored),
        symbols: outlet.instruments.symbols().to_vec(),
        directory: outlet.directory,
        unseen_symbols: Vec::new(),
        busiest,
        written: Vec::new(),
    }
}
