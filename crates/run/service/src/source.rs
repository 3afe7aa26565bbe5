//! The event source of a plant that reads another plant's events from Aeron.
//!
//! ```text
//! streams, replay server ─▶ events, each once, in order ─▶ events of the shard ─▶ pieces ─▶ the plant's ingest
//! ```
//!
//! One thread. While ingest has no room, it reads nothing from Aeron; messages lost meanwhile are fetched again. It passes on all
//! events of its shard and all events without a symbol, such as gaps. For the other events it sends one event per second, for the time.
//!
//! Cost: an event is copied twice, into a piece and out of it. An idle source polls its streams as often as any reader of Aeron.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tapeworks_market::venue::FEEDS;
use tapeworks_market::{Event, EventKind, InstrumentId, Publisher, Shard, Symbol};
use tapeworks_outputs::aeron::AeronSourceSetting;
use tapeworks_outputs::aeron::events::AeronEvents;
use tapeworks_outputs::aeron::reader::{AeronReaderOptions, AeronStanding};
use tapeworks_plant::RelayOptions;
use tapeworks_plant::relay::{NotTaken, PieceWriter, RelayPlace, RelaySender};
use tapeworks_runtime::transport::Connector;
use tapeworks_runtime::world::{System, World as _};
use tapeworks_time::Nanos;

/// Maximum number of events in a piece.
const PIECE_EVENTS: usize = 256;

/// Interval of the events that carry the time when no event belongs to the shard, in ns of receive time.
const EVERY_NS: u64 = Nanos::SECOND;

/// Pause between attempts to push when ingest has no room.
const PAUSE: Duration = Duration::from_micros(500);

/// Interval between status reports.
const REPORT: Duration = Duration::from_millis(100);

/// How long `join` waits for the thread, which may be waiting for an unreachable driver.
const END_PATIENCE: Duration = Duration::from_secs(1);

/// The first plant sends its status twice a second and counts as silent after this time.
const SILENT: Duration = Duration::from_secs(2);

/// Why the source ended before it was stopped.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum SourceFailure {
    /// The first plant restarted its numbering of events.
    #[error(
        "{0}. The first plant has begun anew: start this one again on the new day, which moves its journal away; on the same day move the journal away by hand"
    )]
    OtherJournal(String),
    /// The feeds differ in their order, which decides ties of the NBBO.
    #[error(
        "the first plant's feeds are {theirs:?}, in this order, and 'feeds' of [source.aeron] has {ours:?}"
    )]
    OtherFeeds {
        /// The first plant's feeds, by name.
        theirs: Vec<String>,
        /// The configured feeds.
        ours: Vec<String>,
    },
    /// The thread panicked.
    #[error("the source of events panicked")]
    Panicked,
}

/// A running source. Dropping it stops it.
#[derive(Debug)]
pub(crate) struct Source {
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<Result<(), SourceFailure>>>,
}

/// Starts the source. The plant must have replayed its journal.
pub(crate) fn start(
    setting: AeronSourceSetting,
    connector: Connector,
    relay: RelayOptions,
    to: RelaySender,
) -> io::Result<Source> {
    let stop = Arc::new(AtomicBool::new(false));
    let stop_in = Arc::clone(&stop);
    let run = move || run(&setting, connector, &relay, &to, &stop_in);
    let thread = thread::Builder::new().name("source".to_owned()).spawn(run)?;
    Ok(Source { stop, thread: Some(thread) })
}

impl Source {
    pub(crate) fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(thread::JoinHandle::is_finished)
    }

    /// Stops the source.
    pub(crate) fn join(mut self) -> Result<(), SourceFailure> {
        self.end()
    }

    fn end(&mut self) -> Result<(), SourceFailure> {
        self.stop.store(true, Ordering::Release);
        let Some(thread) = self.thread.take() else { return Ok(()) };
        let began = Instant::now();
        while !thread.is_finished() {
            if began.elapsed() >= END_PATIENCE {
                // The end of the plant does not wait for a driver. Nobody would receive further events.
                return Ok(());
            }
            thread::sleep(Duration::from_millis(1));
        }
        thread.join().unwrap_or(Err(SourceFailure::Panicked))
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        // Callers that need the result call `join`.
        let _unheard = self.end();
    }
}

fn run(
    setting: &AeronSourceSetting,
    connector: Connector,
    relay: &RelayOptions,
    to: &RelaySender,
    stop: &AtomicBool,
) -> Result<(), SourceFailure> {
    let RelayPlace { next, time, symbols } = to.place().unwrap_or_default();
    let token = || setting.token.as_ref().map(|token| token.get().to_string()).unwrap_or_default();
    let mut events = AeronEvents::new(AeronReaderOptions {
        directory: setting.directory.clone(),
        channel: setting.channel.clone(),
        stream: setting.stream,
        events: true,
        symbols: Default::default(),
        server: Some(setting.from),
        connector,
        token: token(),
        start: None,
        timeout: Duration::ZERO,
        driver_timeout: setting.driver_timeout,
        resume: Some((next, time.0)),
        is_patient: true,
        // The status reports the same.
        say: |_| {},
    });
    let mut pieces = Pieces::new(relay.shard, next, &symbols);
    let mut reported: Option<Instant> = None;
    let mut was_heard = false;
    while !stop.load(Ordering::Acquire) {
        let is_busy = events.turn(|number, event| pieces.take(number, event));
        pieces.end_of_turn();
        let standing = events.standing();
        if let Some(feeds) = standing.feeds.filter(|feeds| **feeds != *relay.feeds) {
            let (theirs, ours) = (names(feeds), names(&relay.feeds));
            return Err(SourceFailure::OtherFeeds { theirs, ours });
        }
        let mut waited = 0;
        for (received, payload) in pieces.done.drain(..) {
            let Some(waits) = push(to, received, payload, stop) else { return Ok(()) };
            waited += waits;
        }
        if let Some(why) = standing.other_journal {
            report(to, &events, &standing, false, waited);
            return Err(SourceFailure::OtherJournal(why.to_owned()));
        }
        if waited > 0 || reported.is_none_or(|reported| reported.elapsed() >= REPORT) {
            reported = Some(Instant::now());
            let is_heard = standing.heard.is_some_and(|heard| heard.elapsed() < SILENT);
            if was_heard && !is_heard {
                to.update(|status| status.silences += 1);
            }
            was_heard = is_heard;
            report(to, &events, &standing, is_heard, waited);
            events.set_token(&token());
        }
        events.rest(is_busy);
    }
    Ok(())
}

/// Returns the names of feeds as the configuration spells them.
fn names(feeds: &[Publisher]) -> Vec<String> {
    let name = |feed: &Publisher| {
        let known = FEEDS.iter().find(|known| known.publisher == *feed);
        known.map_or_else(|| feed.0.to_string(), |known| known.dataset.to_owned())
    };
    feeds.iter().map(name).collect()
}

/// Hands a piece to the plant, waiting for room. Returns the number of waits, or `None` if the plant has ended or the source is stopping.
fn push(to: &RelaySender, mut received: Nanos, mut payload: Vec<u8>, stop: &AtomicBool) -> Option<u64> {
    let mut waits = 0;
    loop {
        match to.push(received, payload) {
            Ok(()) => return Some(waits),
            Err(NotTaken::Ended) => return None,
            Err(NotTaken::Full(..)) if stop.load(Ordering::Acquire) => return None,
            Err(NotTaken::Full(time, bytes)) => (received, payload) = (time, bytes),
        }
        waits = 1;
        thread::sleep(PAUSE);
    }
}

fn report(to: &RelaySender, events: &AeronEvents, standing: &AeronStanding<'_>, is_heard: bool, waited: u64) {
    let now = System::time_of_day();
    let since = |instant: Instant| {
        Nanos(now.0.saturating_sub(u64::try_from(instant.elapsed().as_nanos()).unwrap_or(u64::MAX)))
    };
    let counters = events.counters();
    to.update(|status| {
        status.is_heard = is_heard;
        status.has_caught_up = standing.has_caught_up;
        status.fetching_since = standing.fetching_since.map(since);
        (status.next, status.first_next) = (standing.next, standing.plant_next.max(standing.next));
        (status.messages, status.events) = (counters.messages, counters.items);
        (status.fetched, status.repeated) = (counters.fetched, counters.repeated);
        (status.gaps, status.filled) = (counters.gaps, counters.filled);
        (status.set_aside, status.malformed) = (counters.set_aside, counters.malformed);
        status.connects = counters.connects;
        status.waits += waited;
        status.error = standing.trouble.map(str::to_owned);
    });
}

/// Collects events of the shard into pieces.
struct Pieces {
    shard: Shard,
    /// The number of the next event.
    next: u64,
    /// For each instrument, whether its symbol belongs to the shard.
    is_ours: Vec<bool>,
    writer: Option<PieceWriter>,
    /// The receive time of the last event written.
    put: Nanos,
    done: Vec<(Nanos, Vec<u8>)>,
}

impl Pieces {
    fn new(shard: Shard, next: u64, symbols: &[Symbol]) -> Self {
        let is_ours = |symbol: &Symbol| shard.has(*symbol);
        Self {
            shard,
            next,
            is_ours: symbols.iter().map(is_ours).collect(),
            writer: None,
            put: Nanos(0),
            done: Vec::new(),
        }
    }

    fn take(&mut self, number: u64, event: &Event) {
        if number != self.next {
            // The other plant's journal has lost the events in between. The plant detects it from the start of the next piece.
            self.end_piece();
        }
        self.next = number.saturating_add(1);
        let shard = self.shard;
        if let Some(symbol) = event.symbol() {
            let at = event.instrument.index();
            if at == self.is_ours.len() {
                self.is_ours.push(shard.has(symbol));
            }
        }
        let writer = self.writer.get_or_insert_with(|| PieceWriter::new(number, shard));
        // Every shard gets all symbols, so that they keep the first plant's numbers, and events without an instrument.
        let is_ours = event.kind == EventKind::SymbolMapping
            || self.is_ours.get(event.instrument.index()).copied().unwrap_or(true);
        if is_ours {
            writer.put(number, event);
            self.put = event.ts_recv;
        } else if event.ts_recv.since(self.put) >= EVERY_NS {
            let mut time = Event::new(EventKind::Other, event.publisher, InstrumentId::UNKNOWN);
            (time.ts_event, time.ts_recv) = (event.ts_recv, event.ts_recv);
            writer.put(number, &time);
            self.put = event.ts_recv;
        }
        writer.cover(number, event.ts_recv);
        if writer.items() >= PIECE_EVENTS {
            self.end_piece();
        }
    }

    /// Hands the collected events to the plant.
    fn end_of_turn(&mut self) {
        if self.writer.as_ref().is_some_and(|writer| writer.items() > 0) {
            self.end_piece();
        }
    }

    fn end_piece(&mut self) {
        if let Some(writer) = self.writer.take() {
            self.done.push(writer.finish());
        }
    }
}

#[cfg(test)]
mod tests {
    use tapeworks_feed::FeedOptions;
    use tapeworks_feed::live::{Input, LiveFeed};
    use tapeworks_market::Publisher;

    use super::*;

    const SYMBOLS: [&str; 4] = ["AAPL", "MSFT", "BRK.B", "TWAA"];

    fn symbol(place: usize) -> Symbol {
        Symbol::parse(SYMBOLS[place]).unwrap()
    }

    /// Events of four symbols, one millisecond apart, mixed with events without a symbol.
    fn events() -> Vec<Event> {
        let publisher = Publisher(2);
        let mut events: Vec<Event> = (0..4)
            .map(|place| {
                Event::new(EventKind::SymbolMapping, publisher, InstrumentId(place as u32))
                    .with_symbol(symbol(place))
            })
            .collect();
        events.extend((0..6_000u32).map(|number| {
            let instrument = if number % 50 == 7 { InstrumentId::ALL } else { InstrumentId(number % 4) };
            let kind = if instrument == InstrumentId::ALL { EventKind::Session } else { EventKind::Add };
            Event { order_id: number.into(), ..Event::new(kind, publisher, instrument) }
        }));
        for (number, event) in (0..).zip(&mut events) {
            event.ts_recv = Nanos(1_000_000 * (number + 1));
        }
        events
    }

    fn taken(pieces: &mut Pieces, feed: &mut LiveFeed) -> Vec<Event> {
        let mut got = Vec::new();
        pieces.end_of_turn();
        for (received, payload) in pieces.done.drain(..) {
            feed.input(&Input::Relayed { received, payload: &payload }, &mut |event| got.push(event));
        }
        got
    }

    fn feed() -> LiveFeed {
        LiveFeed::new(FeedOptions::default(), Vec::new())
    }

    #[test]
    fn two_shards_have_every_event_of_a_symbol_once_and_those_of_no_symbol_both() {
        let all = events();
        let mut of_symbols = 0;
        for number in 0..2 {
            let shard = Shard { number, of: 2 };
            let (mut pieces, mut feed) = (Pieces::new(shard, 0, &[]), feed());
            (0..).zip(&all).for_each(|(number, event)| pieces.take(number, event));
            let got = taken(&mut pieces, &mut feed);
            let is_ours = |event: &&Event| {
                let of_symbol = SYMBOLS.get(event.instrument.index()).and_then(|text| Symbol::parse(text));
                event.symbol().is_some() || of_symbol.is_none_or(|symbol| shard.has(symbol))
            };
            let wanted: Vec<Event> = all.iter().filter(is_ours).copied().collect();
            assert_eq!(got, wanted);
            of_symbols += got.iter().filter(|event| event.kind == EventKind::Add).count();
            assert_eq!(feed.instruments().symbols(), (0..4).map(symbol).collect::<Vec<_>>());
        }
        assert_eq!(of_symbols, all.iter().filter(|event| event.kind == EventKind::Add).count());
    }

    #[test]
    fn a_shard_without_events_of_its_own_hears_the_time_and_where_it_is() {
        // No symbol here belongs to shard 7.
        let shard = Shard { number: 7, of: 1_000 };
        let (mut pieces, mut feed) = (Pieces::new(shard, 0, &[]), feed());
        let all: Vec<Event> =
            events().into_iter().filter(|event| event.instrument != InstrumentId::ALL).collect();
        (0..).zip(&all).for_each(|(number, event)| pieces.take(number, event));
        let got = taken(&mut pieces, &mut feed);
        let times = got.iter().filter(|event| event.kind == EventKind::Other).count();
        assert_eq!((times, got.len()), (6, 4 + 6), "one a second of the events' six seconds");
        let relayed = feed.relayed().unwrap();
        assert!(relayed.next > all.len() as u64 - 1_000, "{relayed:?}");
    }

    #[test]
    fn a_source_whose_driver_does_not_come_does_not_hold_up_the_end_of_the_plant() {
        let thread = thread::spawn(|| {
            thread::park_timeout(Duration::from_secs(3_600));
            Ok(())
        });
        let source = Source { stop: Arc::new(AtomicBool::new(false)), thread: Some(thread) };
        // The thread would end in an hour. The test passes if it returns.
        source.join().unwrap();
    }

    #[test]
    fn a_source_that_begins_again_leaves_out_what_the_plant_has() {
        let all = events();
        let shard = Shard { number: 0, of: 1 };
        let (mut pieces, mut feed) = (Pieces::new(shard, 0, &[]), feed());
        (0..).zip(&all[..100]).for_each(|(number, event)| pieces.take(number, event));
        let mut got = taken(&mut pieces, &mut feed);
        assert_eq!(feed.relayed().map(|relayed| (relayed.next, relayed.time)), Some((100, all[99].ts_recv)));
        let mut pieces = Pieces::new(shard, 90, feed.instruments().symbols());
        (90..).zip(&all[90..]).for_each(|(number, event)| pieces.take(number, event));
        got.extend(taken(&mut pieces, &mut feed));
        assert_eq!(got, all);
    }

    #[test]
    fn events_that_the_other_journal_lost_make_the_books_stale() {
        let all = events();
        let (mut pieces, mut feed) = (Pieces::new(Shard { number: 0, of: 1 }, 0, &[]), feed());
        let has = |number: &u64| *number < 100 || *number >= 130;
        for number in (0..200).filter(has) {
            pieces.take(number, &all[number as usize]);
        }
        let got = taken(&mut pieces, &mut feed);
        let gaps: Vec<&Event> = got.iter().filter(|event| event.kind == EventKind::Gap).collect();
        assert_eq!((gaps.len(), got.len()), (1, 171));
        assert_eq!((gaps[0].instrument, gaps[0].ts_recv), (InstrumentId::ALL, all[99].ts_recv));
        let relayed = feed.relayed().unwrap();
        assert_eq!((relayed.missing, relayed.gaps, relayed.is_stale()), (30, 1, true));
    }
}
