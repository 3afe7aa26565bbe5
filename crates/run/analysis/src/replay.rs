//! Replay: turns captures into books, the synthetic NBBO, files and a summary.
//!
//! The loop takes the next packet (from the file whose next packet is earliest) through the feed, and, when the batch is full,
//! through the books, the NBBO and the outlet. At full speed a batch may span packets; in a paced or measured replay, each packet
//! is a batch, as on a live line.

use std::collections::HashSet;
use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use tapeworks_capture::CaptureError;
use tapeworks_capture::CapturedDatagram;
use tapeworks_capture::net::HeaderError;
use tapeworks_feed::{Application, Feed, FeedOptions, Frame, Packet, Problem, ProblemKind, VenueConflict};
use tapeworks_market::book::BATCH;
use tapeworks_market::event::Gap;
use tapeworks_market::nbbo::{NbboRules, SelfHelp, SelfHelpSchedule, SelfHelpSink};
use tapeworks_market::round_lots::SipSizes;
use tapeworks_market::{
    BookStage, Capacity, Event, EventKind, Flags, InstrumentId, Instruments, Nbbo, NbboStage, NbboUpdate,
    Publisher, Symbol,
};
use tapeworks_stage::{Inline, Sink, Stage, Through};
use tapeworks_store::{Format, Schema, StoreError, Writer};
use tapeworks_time::Nanos;

use crate::bars::{self, Bars};
use crate::compare::Comparison;
use crate::encoders::Pool;
use crate::input::{self, Input, InputError, Source};
use crate::timer::ServiceTimer;

mod directory;
mod issue_names;
mod json;
mod summary;
mod walk;

pub use directory::{Directory, Listing};
use issue_names::IssueNames;
pub use summary::{
    BUSIEST, Busy, ChannelSummary, FeedSummary, FileCounters, GapSummary, KEPT_GAPS, Summary, Top, Written,
};
use summary::{Ended, summarise};
pub use walk::{Advanced, Walk};

/// A file to write.
#[derive(Clone, Debug)]
pub struct Output {
    /// Its path; the extension determines the format.
    pub path: PathBuf,
    /// The schema of its records.
    pub schema: Schema,
    /// How it is written.
    pub options: tapeworks_store::Options,
}

impl Output {
    /// Whether other threads can encode it.
    fn is_encoded_apart(&self) -> bool {
        let format = self.options.format.or_else(|| Format::from_path(&self.path).ok());
        format == Some(Format::Parquet)
    }
}

/// The options of a replay.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The files, merged by time.
    pub inputs: Vec<PathBuf>,
    /// The protocol to use instead of recognizing it.
    pub application: Option<Application>,
    /// The feed of ITCH channels and files; if it is not given, the multicast group determines the feed.
    pub publisher: Option<Publisher>,
    /// Midnight of the day in New York, instead of the day of the receive times or the file name.
    pub midnight: Option<Nanos>,
    /// The symbols to include, if limited.
    pub symbols: Option<HashSet<Symbol>>,
    /// Earliest receive time for which records are written. Books are built from the beginning regardless.
    pub from: Option<Nanos>,
    /// The receive time at which the replay ends.
    pub to: Option<Nanos>,
    /// Speed relative to the capture's own times; `None` for full speed.
    pub speed: Option<f64>,
    /// Stops at the end of the packet that reaches this many messages.
    pub limit: Option<u64>,
    /// The rules of the NBBO.
    pub rules: NbboRules,
    /// Whether to skip the NBBO, and the price levels built from orders, if no output, comparison or bar needs them. The summary then
    /// lacks them. See [`BookStage::without_levels`].
    pub skips_unused: bool,
    /// Whether to read issue names, which no event carries: [`Listing::issue_name`].
    pub reads_issue_names: bool,
    /// When venues are under self-help, and so excluded from the NBBO.
    pub self_help: Vec<SelfHelp>,
    /// The unit of the sizes in SIP quotes.
    pub sip_sizes: SipSizes,
    /// Whether to measure the service time of messages (one packet or group in [`MEASURED_EVERY`]).
    pub measure: bool,
    /// Whether to compare the NBBO with the SIPs'.
    pub compare_sip: bool,
    /// The bars to build, if any, from messages received between [`Options::from`] and [`Options::to`].
    pub bars: Option<bars::Options>,
    /// The files to write.
    pub outputs: Vec<Output>,
    /// Threads for each kind of work, at most [`MAX_THREADS`]; 0 means 1. With 1, the calling thread does everything. With more, the
    /// calling thread applies the messages; up to `threads` - 1 others encode Parquet, and up to `threads` - 1 others decompress
    /// inputs, one each. The output is byte-identical.
    pub threads: usize,
}

/// Maximum number of [threads](Options::threads).
pub const MAX_THREADS: usize = 64;

/// Returns the number of [threads](Options::threads) that suits this machine: its number of processors, at most 4. With more, the
/// thread that reads and applies the messages is the bottleneck.
#[must_use]
pub fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(1, |processors| processors.get().min(4))
}

/// One packet, or group of file messages, in this many is measured.
pub const MEASURED_EVERY: u64 = 16;

/// Number of file messages in a measured group.
const MEASURED_GROUP: usize = BATCH;

/// Packets between two progress reports.
const PROGRESS_EVERY: u64 = 4096;

/// Wall time between two progress reports of a paced replay, and so the longest delay of an interruption.
const REPORT_EVERY: Duration = Duration::from_millis(50);

/// Why a replay failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// An input cannot be used.
    #[error(transparent)]
    Input(#[from] InputError),
    /// An output cannot be written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The venue set by the caller contradicts a multicast group in the inputs.
    #[error(transparent)]
    Venue(#[from] VenueConflict),
    /// The system cannot start threads.
    #[error("cannot start a thread: {0}")]
    Threads(io::Error),
}

/// Progress of a replay.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Bytes of the files read so far, as stored on disk (compressed).
    pub bytes: u64,
    /// Bytes of all files; `None` if the length of one is unknown.
    pub total_bytes: Option<u64>,
    /// Messages processed.
    pub messages: u64,
    /// The receive time reached.
    pub time: Nanos,
}

/// Consumes the updates: writes the files and collects the facts for the summary.
struct Outlet {
    writers: Vec<Writer>,
    instruments: Instruments,
    directory: Directory,
    events_of: Vec<u64>,
    /// For each instrument the last NBBO with a bid and an offer, and its time: at the end of a day, no venue counts any more.
    two_sided: Vec<(Nanos, Nbbo)>,
    events: u64,
    from: Nanos,
    to: Nanos,
    /// The receive times of the first and the last event.
    first: Nanos,
    last: Nanos,
    timer: ServiceTimer,
    comparison: Option<Box<Comparison>>,
    bars: Option<Box<Bars>>,
    /// The first [`KEPT_GAPS`] gaps: the channel, the missing messages, and when the message after the gap arrived.
    gaps: Vec<(u16, Gap, Nanos)>,
    error: Option<StoreError>,
}

impl Sink<NbboUpdate<'_>> for Outlet {
    #[inline]
    fn put(&mut self, update: NbboUpdate<'_>) {
        let event = update.book.event;
        self.events += 1;
        match self.events_of.get_mut(event.instrument.index()) {
            Some(events) => *events += 1,
            None => self.widen(event),
        }
        if Directory::takes(event.kind) {
            self.learn(event);
        }
        if event.kind == EventKind::Gap {
            self.keep_gap(event);
        }
        if update.changed
            && update.nbbo.bid.price.is_some()
            && update.nbbo.ask.price.is_some()
            && let Some(last) = self.two_sided.get_mut(event.instrument.index())
        {
            *last = (event.ts_recv, *update.nbbo);
        }
        self.last = event.ts_recv;
        if self.first == Nanos(0) {
            self.first = event.ts_recv;
        }
        if !self.writers.is_empty() {
            self.write(&update);
        }
        if let Some(comparison) = &mut self.comparison {
            comparison.put(&update);
        }
        if let Some(bars) = &mut self.bars {
            bars.note_session(event);
            if (self.from..self.to).contains(&event.ts_recv) {
                bars.put(&update);
            }
        }
        // Counts once per message, or, if a venue groups messages, once per group: not for symbol mappings, gaps, or the first halves
        // of pairs, and not for the effect of a venue-wide message on each instrument.
        let is_repeat = event.kind == EventKind::Session && event.instrument != InstrumentId::ALL;
        let is_message = !matches!(event.kind, EventKind::SymbolMapping | EventKind::Gap);
        if event.flags().contains(Flags::LAST) && is_message && !is_repeat {
            self.timer.complete();
        }
    }
}

impl Outlet {
    #[inline]
    fn write(&mut self, update: &NbboUpdate<'_>) {
        let time = update.book.event.ts_recv;
        for writer in &mut self.writers {
            if time < self.from {
                writer.watch(update);
            } else if time < self.to
                && let Err(error) = writer.put(update, &self.instruments)
            {
                self.error.get_or_insert(error);
            }
        }
    }

    #[cold]
    fn learn(&mut self, event: &Event) {
        if let (EventKind::SymbolMapping, Some(symbol)) = (event.kind, event.symbol()) {
            self.instruments.intern(symbol);
        }
        self.directory.learn(event);
    }

    /// Records a channel's gap, which arrives once per publisher. An event that contradicts a book is a gap of one instrument, not of
    /// a channel.
    #[cold]
    fn keep_gap(&mut self, event: &Event) {
        let Some(gap) = event.gap().filter(|_| event.instrument == InstrumentId::ALL) else { return };
        let is_known =
            self.gaps.last().is_some_and(|(channel, last, _)| (*channel, *last) == (event.channel, gap));
        if !is_known && self.gaps.len() < KEPT_GAPS {
            self.gaps.push((event.channel, gap, event.ts_recv));
        }
    }

    #[cold]
    fn widen(&mut self, event: &Event) {
        if event.instrument < InstrumentId(1 << 24) {
            self.events_of.resize((event.instrument.index() + 1).next_power_of_two(), 0);
            self.events_of[event.instrument.index()] += 1;
            self.two_sided.resize(self.events_of.len(), Default::default());
        }
    }
}

/// Paces against a fixed start, so that a late packet does not delay later ones.
struct Pace {
    speed: f64,
    anchor: Option<(Instant, Nanos)>,
    worst: Duration,
}

impl Pace {
    /// Waits until `time` is due.
    fn wait(&mut self, time: Nanos) {
        let (start, first) = *self.anchor.get_or_insert_with(|| (Instant::now(), time));
        let due = start + Duration::from_nanos((time.since(first) as f64 / self.speed) as u64);
        let now = Instant::now();
        match due.checked_duration_since(now) {
            Some(wait) => std::thread::sleep(wait),
            None => self.worst = self.worst.max(now - due),
        }
    }

    /// Whether waiting for `time` would take longer than the interval between progress reports.
    fn is_far(&self, time: Nanos) -> bool {
        self.anchor.is_some_and(|(start, first)| {
            let due = Duration::from_nanos((time.since(first) as f64 / self.speed) as u64);
            due.saturating_sub(start.elapsed()) > REPORT_EVERY
        })
    }
}

/// The stages after the feed.
type Market = Through<BookStage, Option<NbboStage>>;

/// The sink of the feed's events.
type FeedSink<'s, 'e> = SelfHelpSink<'s, Inline<'e, Market, Event, Outlet>>;

/// All stages of a replay.
struct Run {
    feed: Feed,
    self_help: SelfHelpSchedule,
    market: Market,
    buffer: Vec<Event>,
    outlet: Outlet,
    issue_names: Option<Box<IssueNames>>,
    groups: u64,
    measure: bool,
    times: Option<(Nanos, Nanos)>,
    messages: u64,
}

impl Run {
    /// Creates the stages. `has_nbbo`, `has_levels`: whether to build the NBBO and the price levels.
    fn new(
        options: &Options,
        capacity: Capacity,
        writers: Vec<Writer>,
        (has_nbbo, has_levels): (bool, bool),
    ) -> Self {
        let nbbo = || NbboStage::new(options.rules.clone(), [], capacity.instruments);
        let books = if has_levels {
            BookStage::with_unnamed([], capacity)
        } else {
            BookStage::without_levels(capacity)
        };
        Self {
            feed: Feed::new(FeedOptions {
                application: options.application,
                publisher: options.publisher,
                midnight: options.midnight,
                symbols: options.symbols.clone(),
                sip_sizes: options.sip_sizes,
                ..FeedOptions::default()
            }),
            self_help: SelfHelpSchedule::new(&options.self_help),
            market: Through::new(books, has_nbbo.then(nbbo)),
            buffer: Vec::with_capacity(BATCH),
            outlet: Outlet {
                writers,
                instruments: Instruments::default(),
                directory: Directory::default(),
                events_of: vec![0; capacity.instruments],
                two_sided: vec![Default::default(); capacity.instruments],
                events: 0,
                from: options.from.unwrap_or_default(),
                to: options.to.unwrap_or(Nanos(u64::MAX)),
                first: Nanos(0),
                last: Nanos(0),
                timer: ServiceTimer::new(),
                comparison: options.compare_sip.then(Box::default),
                bars: options.bars.map(|bars| Box::new(Bars::new(bars))),
                gaps: Vec::new(),
                error: None,
            },
            issue_names: options.reads_issue_names.then(|| Box::new(IssueNames::new(options))),
            groups: 0,
            measure: options.measure,
            times: None,
            messages: 0,
        }
    }

    /// Calls `work` with the feed and the sink for its events.
    #[inline]
    fn with_feed<T>(&mut self, work: impl FnOnce(&mut Feed, &mut FeedSink<'_, '_>) -> T) -> T {
        let mut edge = Inline::new(&mut self.market, &mut self.buffer, &mut self.outlet);
        work(&mut self.feed, &mut SelfHelpSink { schedule: &mut self.self_help, sink: &mut edge })
    }

    fn flush(&mut self) {
        self.with_feed(|_, sink| sink.end_of_batch());
    }

    /// Handles the end of the input.
    fn finish(&mut self) {
        self.with_feed(|feed, sink| {
            feed.finish(sink);
            sink.end_of_batch();
        });
    }

    /// Whether to measure the next group; if so, starts the measurement.
    #[inline]
    fn begin_measured(&mut self) -> bool {
        self.groups += 1;
        let measured = self.measure && self.groups.is_multiple_of(MEASURED_EVERY);
        if measured {
            self.flush();
            self.outlet.timer.begin();
        }
        measured
    }

    fn end_measured(&mut self) {
        self.flush();
        self.outlet.timer.end();
    }

    fn saw(&mut self, time: Nanos) {
        let first = self.times.map_or(time, |(first, _)| first);
        self.times = Some((first, time));
    }
}

/// Replays. `observe` is called from time to time and may end the replay early; the output up to then is complete.
///
/// # Errors
/// [`ReplayError`] if an input cannot be opened or an output cannot be written. A truncated or damaged file does not fail the
/// replay: see [`Summary::file_errors`].
pub fn replay(
    options: &Options,
    observe: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
) -> Result<Summary, ReplayError> {
    replay_into(options, Vec::new(), observe)
}

/// Like [`replay`], with additional writers from the caller. Their results follow those of [`Options::outputs`] in
/// [`Summary::written`], with empty paths.
///
/// # Errors
/// As [`replay`].
pub fn replay_into(
    options: &Options,
    others: Vec<(Schema, Writer)>,
    observe: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
) -> Result<Summary, ReplayError> {
    let beside = options.threads.clamp(1, MAX_THREADS) - 1;
    let mut inputs = input::open_all_ahead(&options.inputs, options.application, beside)?;
    let outputs = options.outputs.iter().map(|output| output.path.as_path());
    input::refuse_inputs(&options.inputs, outputs)?;
    let without_day = without_day(&inputs, options)?;
    let has_work = options.outputs.iter().any(Output::is_encoded_apart);
    let pool = (beside > 0 && has_work).then(|| Pool::start(beside)).transpose();
    let pool = pool.map_err(ReplayError::Threads)?;
    let create = |output: &Output| match &pool {
        Some(pool) => Writer::create_apart(&output.path, output.schema, &output.options, pool.encoders()),
        None => Writer::create(&output.path, output.schema, &output.options),
    };
    let mut writers = options.outputs.iter().map(create).collect::<Result<Vec<_>, _>>()?;
    let mut places: Vec<_> =
        options.outputs.iter().map(|output| (output.path.clone(), output.schema)).collect();
    for (schema, writer) in others {
        places.push((PathBuf::new(), schema));
        writers.push(writer);
    }
    if options.from.is_some() || options.to.is_some() {
        let window = options.from.unwrap_or_default()..options.to.unwrap_or(Nanos(u64::MAX));
        writers.iter_mut().for_each(|writer| writer.set_window(window.clone()));
    }
    let is_all_needed = needs_all(options);
    let needs = |of: fn(Schema) -> bool| is_all_needed || places.iter().any(|(_, schema)| of(*schema));
    let has = (needs(Schema::is_consolidated), needs(Schema::needs_levels));
    let mut run = Run::new(options, capacity(&inputs), writers, has);
    let total_bytes = inputs.iter().map(|input| input.bytes().total_len()).sum::<Option<u64>>();
    let mut pace = options.speed.map(|speed| Pace { speed, anchor: None, worst: Duration::ZERO });
    let mut file_errors = Vec::new();
    let mut ended = Ended::default();
    let mut is_interrupted = false;
    let started = Instant::now();
    let mut turns = 0u64;
    let mut reported = started;
    loop {
        let next = match next_input(&mut inputs, options, pace.is_some(), &mut ended) {
            Ok(Some(next)) => next,
            Ok(None) => break,
            Err((_, CaptureError::Stopped { .. })) => {
                is_interrupted = true;
                break;
            }
            Err((index, error)) => {
                file_errors.push(error);
                ended.add(&inputs.remove(index));
                continue;
            }
        };
        if let Some(time) = next.time {
            if time >= run.outlet.to {
                break;
            }
            // Books before the time window are built at full speed.
            if let Some(pace) = &mut pace
                && time >= run.outlet.from
                && time > Nanos(0)
            {
                while pace.is_far(time) && !is_interrupted {
                    is_interrupted = observe(&progress(&inputs, total_bytes, &run)).is_break();
                    std::thread::sleep(REPORT_EVERY);
                }
                if is_interrupted {
                    break;
                }
                pace.wait(time);
            }
        }
        let alone = next.is_alone;
        match step(&mut inputs[next.index], &mut run, alone && pace.is_none(), options) {
            Ok(true) => {}
            Ok(false) => ended.add(&inputs.remove(next.index)),
            Err(CaptureError::Stopped { .. }) => {
                is_interrupted = true;
                break;
            }
            Err(error) => {
                file_errors.push(error);
                ended.add(&inputs.remove(next.index));
            }
        }
        if let Some(conflict) = run.feed.venue_conflict() {
            return Err(conflict.into());
        }
        if pace.is_some() {
            run.flush();
        }
        if let Some(error) = run.outlet.error.take() {
            return Err(error.into());
        }
        if options.limit.is_some_and(|limit| run.messages >= limit) {
            break;
        }
        turns += 1;
        let is_due = turns.is_multiple_of(PROGRESS_EVERY)
            || alone
            || pace.is_some() && reported.elapsed() >= REPORT_EVERY;
        if is_due {
            reported = Instant::now();
        }
        if is_due && observe(&progress(&inputs, total_bytes, &run)).is_break() {
            is_interrupted = true;
            break;
        }
    }
    run.finish();
    if let Some(error) = run.outlet.error.take() {
        return Err(error.into());
    }
    let mut written = Vec::new();
    for (writer, (path, schema)) in std::mem::take(&mut run.outlet.writers).into_iter().zip(places) {
        let summary = writer.finish(&run.outlet.instruments)?;
        written.push(Written { path, schema, summary });
    }
    let elapsed = started.elapsed();
    let is_whole = !is_interrupted && options.limit.is_none_or(|limit| run.messages < limit);
    let wanted = options.symbols.iter().flatten().filter(|_| is_whole);
    let seen: HashSet<_> = run.outlet.instruments.symbols().iter().copied().collect();
    let mut unseen_symbols: Vec<_> = wanted.copied().filter(|symbol| !seen.contains(symbol)).collect();
    unseen_symbols.sort_unstable_by(|one, other| one.as_str().cmp(other.as_str()));
    inputs.iter().for_each(|input| ended.leave(input));
    Ok(Summary {
        file_counters: ended.counters,
        unrecognised: ended.unrecognised,
        without_day,
        file_errors,
        is_interrupted,
        unseen_symbols,
        elapsed,
        worst_lateness: pace.map(|pace| pace.worst),
        written,
        ..summarise(run, options)
    })
}

/// Whether the NBBO and price levels are needed regardless of the outputs.
fn needs_all(options: &Options) -> bool {
    !options.skips_unused || options.compare_sip || options.bars.is_some()
}

/// Returns the message files whose day is unknown.
///
/// # Errors
/// [`InputError::NoDay`] if their times must be compared with others.
fn without_day(inputs: &[Input], options: &Options) -> Result<Vec<String>, InputError> {
    if options.midnight.is_some() {
        return Ok(Vec::new());
    }
    let why = if options.from.is_some() || options.to.is_some() {
        Some("a window of time (--from, --to)")
    } else if inputs.iter().any(|input| !input.is_without_day()) {
        Some("merging it with files that do")
    } else {
        None
    };
    let names: Vec<String> =
        inputs.iter().filter(|input| input.is_without_day()).map(|input| input.name.clone()).collect();
    match (names.first(), why) {
        (Some(file), Some(why)) => Err(InputError::NoDay { file: file.clone(), why }),
        _ => Ok(names),
    }
}

/// Estimates the capacity for what the files can hold: about 30 bytes per message, and four times as many messages if compressed. A
/// capture usually holds several venues, each of which gets this capacity, so only a quarter of its messages counts; tables can grow.
fn capacity(inputs: &[Input]) -> Capacity {
    let messages: u64 = inputs
        .iter()
        .map(|input| {
            let bytes = input.bytes().total_len().unwrap_or(1 << 30);
            let messages = match input.bytes().compression() {
                tapeworks_capture::source::Compression::None => bytes / 30,
                _ => bytes / 8,
            };
            if matches!(input.source, Source::Capture(_)) { messages / 4 } else { messages }
        })
        .sum();
    Capacity::for_messages(messages)
}

fn progress(inputs: &[Input], total_bytes: Option<u64>, run: &Run) -> Progress {
    // A finished file counts in full.
    let left: u64 = inputs
        .iter()
        .map(|input| input.bytes().total_len().unwrap_or(0).saturating_sub(input.bytes().bytes_read()))
        .sum();
    Progress {
        bytes: total_bytes.map_or_else(
            || inputs.iter().map(|input| input.bytes().bytes_read()).sum(),
            |total| total.saturating_sub(left),
        ),
        total_bytes,
        messages: run.messages,
        time: run.times.map_or(Nanos(0), |(_, last)| last),
    }
}

/// The input to take from next.
struct Turn {
    index: usize,
    /// Time of its next packet, if known.
    time: Option<Nanos>,
    /// Whether no other file is left and its time does not matter, so that many packets can be taken in one turn.
    is_alone: bool,
}

/// Chooses the file whose next packet is earliest; among equals, the first.
fn next_input(
    inputs: &mut Vec<Input>,
    options: &Options,
    is_paced: bool,
    ended: &mut Ended,
) -> Result<Option<Turn>, (usize, CaptureError)> {
    if inputs.len() == 1 && !is_paced && options.to.is_none() {
        return Ok(Some(Turn { index: 0, time: None, is_alone: true }));
    }
    let mut earliest: Option<Turn> = None;
    let mut index = 0;
    while index < inputs.len() {
        match inputs[index].next_time(options.midnight) {
            Ok(Some(time)) => {
                if earliest.as_ref().and_then(|turn| turn.time).is_none_or(|best| time < best) {
                    earliest = Some(Turn { index, time: Some(time), is_alone: false });
                }
                index += 1;
            }
            // Removing a finished input shifts the indexes of the inputs after it.
            Ok(None) => ended.add(&inputs.remove(index)),
            Err(error) => return Err((index, error)),
        }
    }
    Ok(earliest)
}

/// Takes packets from one file: one, or all up to the next progress report if the file is alone. Returns `false` at its end.
fn step(input: &mut Input, run: &mut Run, is_alone: bool, options: &Options) -> Result<bool, CaptureError> {
    let file = input.file;
    let room = |run: &Run| options.limit.map_or(u64::MAX, |limit| limit.saturating_sub(run.messages));
    match &mut input.source {
        Source::Capture(reader) => {
            for _ in 0..if is_alone { PROGRESS_EVERY } else { 1 } {
                let Some(CapturedDatagram { packet: captured, datagram }) = reader.next_datagram()? else {
                    return Ok(false);
                };
                let received = Nanos(captured.timestamp_ns);
                run.saw(received);
                match datagram {
                    Ok(mut datagram) => {
                        // As in the statistics and the dump, a packet that the capture truncated counts as truncated.
                        datagram.truncated |= captured.is_cut();
                        let packet = Packet {
                            file,
                            number: captured.number,
                            offset: captured.offset + datagram.payload_offset as u64,
                            received,
                            datagram,
                        };
                        if let Some(names) = &mut run.issue_names {
                            names.packet(&packet);
                        }
                        let measured = run.begin_measured();
                        let is_recognised = run.with_feed(|feed, sink| {
                            let before = feed.counters().unrecognised_packets;
                            feed.process(&[packet], sink);
                            feed.counters().unrecognised_packets == before
                        });
                        if is_recognised {
                            input.recognition.recognised += 1;
                        } else {
                            input
                                .recognition
                                .reject(|| format!("unknown protocol to {}", datagram.destination));
                        }
                        if measured {
                            run.end_measured();
                        }
                    }
                    // Kept for reassembly.
                    Err(HeaderError::Fragment { .. }) => {}
                    Err(error) => {
                        input.recognition.reject(|| error.to_string());
                        if error.is_malformed() {
                            run.feed.note(Problem {
                                file,
                                packet: captured.number,
                                offset: captured.offset,
                                kind: ProblemKind::Header(error),
                            });
                        } else {
                            // Sound packets that are not UDP or TCP over IP are ignored.
                            run.feed.note_foreign();
                        }
                    }
                }
                if options.limit.is_some() {
                    run.messages = run.feed.messages();
                    if room(run) == 0 {
                        break;
                    }
                }
            }
            run.messages = run.feed.messages();
        }
        // Rejected when the files were opened.
        Source::FixLog(_) => return Ok(false),
        Source::Framed { reader, format, midnight, .. } => {
            let Some(batch) = reader.next_batch()? else { return Ok(false) };
            let mut left = if is_alone { room(run) } else { 1 };
            let mut frames = batch.map(|frame| Frame { file, offset: frame.offset, bytes: frame.bytes });
            while left > 0 {
                let measured = run.begin_measured();
                let group =
                    frames.by_ref().take(MEASURED_GROUP.min(usize::try_from(left).unwrap_or(usize::MAX)));
                let taken = run.with_feed(|feed, sink| {
                    let mut stage = feed.file(file, *format, *midnight);
                    group.inspect(|frame| stage.process(std::slice::from_ref(frame), sink)).count() as u64
                });
                if measured {
                    run.end_measured();
                }
                left -= taken;
                if taken == 0 {
                    break;
                }
            }
            run.messages = run.feed.messages();
        }
    }
    Ok(true)
}
