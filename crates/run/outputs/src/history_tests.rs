//! Tests of a journal's history: clients' replays, and readers of the ring that begin with it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tapeworks_engine::JournalHistory;
use tapeworks_engine::Start;
use tapeworks_engine::checkpoint::folder::{self, newest};
use tapeworks_engine::history::{History, HistoryError, HistoryReader, Read};
use tapeworks_engine::replica::{Mode, Replica};
use tapeworks_journal::{JournalOptions, Opened, segment_starts};
use tapeworks_market::book::BooksImage;
use tapeworks_market::{BookStage, Event, EventKind, InstrumentId, Publisher};
use tapeworks_ring::disruptor::Builder;
use tapeworks_ring::wait::Backoff;
use tapeworks_store::Schema;
use tapeworks_store::live::Part;
use tapeworks_time::Nanos;
use tempfile::{TempDir, tempdir};

use crate::begin::{Begin, Present, catch_up};
use crate::clients::replay::tests::replayed;
use crate::output::Output;
use crate::output::tests::Ended;

#[path = "../tests/engine_support/mod.rs"]
mod support;

use support::{SCHEMAS, keep, keep_with_loss, options, stage, without_heartbeats};

const SMALL: JournalOptions = JournalOptions { segment_bytes: 8_192, keep_bytes: Some(30_000) };
const LARGE: JournalOptions = JournalOptions { segment_bytes: 1 << 20, keep_bytes: None };
const MANY: JournalOptions = JournalOptions { segment_bytes: 4_096, keep_bytes: None };

fn empty_event() -> Event {
    Event::new(EventKind::Other, Publisher(0), InstrumentId::UNKNOWN)
}

/// A history that returns the whole day, regardless of checkpoints.
struct Whole(JournalHistory);

impl History for Whole {
    fn open(&self, _from: Nanos) -> Result<Box<dyn HistoryReader>, HistoryError> {
        self.0.open(Nanos(0))
    }
}

/// An output that only has books.
struct Following {
    replica: Replica,
    /// The event at which the first checkpoint was taken.
    began: Option<u64>,
}

impl Following {
    fn new() -> Self {
        Self { replica: Replica::new(&options().books), began: None }
    }
}

impl Output for Following {
    type Failure = Ended;

    fn restore(&mut self, start: Start) {
        self.began.get_or_insert(start.first_event());
        self.replica.restore(start);
    }

    fn events(&mut self, first: u64, events: &[Event]) -> Result<(), Ended> {
        assert_eq!(first, self.replica.market.next);
        self.replica.take(events, |replica, _| replica.clear());
        Ok(())
    }

    fn serve(&mut self, _wait: Duration) -> Result<(), Ended> {
        Ok(())
    }

    fn patience(&self) -> Duration {
        Duration::ZERO
    }

    fn is_urgent(&self) -> bool {
        true
    }
}

fn history(folder: &TempDir) -> Arc<dyn History> {
    Arc::new(JournalHistory::new(options(), folder.path()))
}

#[test]
fn a_replay_from_a_checkpoint_is_the_days_to_the_last_byte() {
    let folder = tempdir().unwrap();
    // One checkpoint per segment is kept.
    let times = keep(folder.path(), MANY, 12);
    assert_eq!(folder::check(folder.path()).unwrap().len(), 12);
    let some = history(&folder);
    let whole: Arc<dyn History> = Arc::new(Whole(JournalHistory::new(options(), folder.path())));
    // Right after a checkpoint, some time after it, at full minutes, before all of them, and at the end of the day.
    let minute = 60 * Nanos::SECOND;
    let starts = [
        times[0].0 - 1,
        times[1].0 + 2 * Nanos::SECOND + 1,
        (times[5].0 / minute + 3) * minute,
        times[9].0 + 500 * Nanos::SECOND,
    ];
    let last = without_heartbeats().last().unwrap().1.0;
    let (mut used, mut bytes) = (0, 0);
    for start in starts.into_iter().chain([last - 1]).map(Nanos) {
        used += usize::from(matches!(some.open(start).unwrap().read().unwrap(), Read::Start { .. }));
        for schemas in SCHEMAS {
            let of = |history: &Arc<dyn History>| {
                replayed(Arc::clone(history), &options().books, schemas, start).unwrap()
            };
            let (expected, received) = (of(&whole), of(&some));
            let (one, other) = (received.1.len(), expected.1.len());
            assert!(received == expected, "{schemas:?} from {start:?}: {one} and {other} bytes");
            bytes += one;
        }
    }
    assert!(used == 4 && bytes > 1_000_000, "{used} times, {bytes} bytes");
}

#[test]
fn the_journal_keeps_the_segments_that_its_checkpoints_need_and_reports_its_first_time() {
    let (folder, all) = (tempdir().unwrap(), tempdir().unwrap());
    keep(folder.path(), SMALL, 12);
    keep(all.path(), LARGE, 0);
    let (kept, starts) = (folder::check(folder.path()).unwrap(), segment_starts(folder.path()).unwrap());
    let usable = kept.iter().filter(|kept| kept.record >= starts[0]).count();
    assert!(starts[0] > 0 && usable >= 2, "{kept:?} {starts:?}");
    let (some, whole) = (history(&folder), history(&all));
    let replay = |history: &Arc<dyn History>, schemas: &[Schema], start| {
        replayed(Arc::clone(history), &options().books, schemas, start)
    };
    for schemas in SCHEMAS {
        let refused = replay(&some, schemas, Nanos(0)).unwrap_err();
        let HistoryError::NotKept { earliest } = refused else { panic!("{refused}") };
        assert!(refused.to_string().contains(&format!("start={}", earliest.0)), "{refused}");
        let (_, received) = replay(&some, schemas, earliest).unwrap();
        assert!(
            received == replay(&whole, schemas, earliest).unwrap().1 && !received.is_empty(),
            "{schemas:?}"
        );
        assert!(replay(&some, schemas, Nanos(earliest.0 - 1)).is_err());
    }
    // A plant with another configuration refuses the checkpoints.
    let mut others = options();
    others.channels[0].arbiter.reorder_window_ns += 1;
    let others: Arc<dyn History> = Arc::new(JournalHistory::new(others, folder.path()));
    let refused = replay(&others, &[Schema::Mbo], Nanos(u64::MAX)).unwrap_err();
    assert!(refused.to_string().contains("removed to make room"), "{refused}");
}

#[test]
fn readers_of_the_ring_go_on_from_a_checkpoint_when_the_days_beginning_is_gone() {
    let (folder, all) = (tempdir().unwrap(), tempdir().unwrap());
    keep(folder.path(), SMALL, 12);
    keep(all.path(), LARGE, 0);
    let mut whole = Vec::new();
    let mut reader = history(&all).open(Nanos(0)).unwrap();
    while let Read::Events(events) = reader.read().unwrap() {
        whole.extend_from_slice(events);
    }
    let ends = Opened { first: 0, next: u64::MAX, ..Opened::default() };
    let newest = newest(folder.path(), &ends, &options()).0.unwrap();
    let (newest, first_time) = (newest.engine.counters().events, newest.market.time());
    // The ring begins at the newest checkpoint, or some events before it.
    for first_event in [newest, newest - 100] {
        let mut builder = Builder::new(1 << 14, empty_event, Backoff::default);
        let id = builder.consumer("reader", &[]);
        let (mut producer, mut ends) = builder.single_producer();
        let mut consumer = ends.take(id).unwrap();
        for event in &whole[first_event as usize..] {
            producer.publish(|slot| *slot = *event).unwrap();
        }
        let [mut output, mut straight] = [(); 2].map(|()| Following::new());
        for following in [&mut output, &mut straight] {
            Schema::ALL.into_iter().for_each(|schema| following.replica.set_mode(schema, Mode::Watch));
        }
        let history = Some(history(&folder));
        let begin: Begin = Begin { first_event, first_time, history, ..Begin::default() };
        let mut present = Present::new(&begin);
        catch_up(&begin, &mut present, &mut consumer, &AtomicBool::new(false), &mut output).unwrap();
        let began = output.began;
        // Not with the newest checkpoint, because intervals that were open at that time must be whole.
        assert!(began.is_some_and(|began| began > 0 && began < newest), "{began:?}, {newest}");
        // Then the ring's events.
        let mut rest = Vec::new();
        consumer.poll(|event, _, _| rest.push(*event)).unwrap();
        output.events(output.replica.market.next, &rest).unwrap();
        straight.events(0, &whole).unwrap();
        let (replica, straight) = (&output.replica, &straight.replica);
        assert_eq!(replica.market.next, straight.market.next);
        for schema in Schema::ALL {
            let whole = Part::whole(&|_| true);
            let (one, same) = (replica.snapshot(schema, &whole), straight.snapshot(schema, &whole));
            assert!(one.bytes() == same.bytes(), "{schema}");
        }
    }
}

/// Returns how many bytes two arrays share at their start and at their end.
fn in_common(one: &[u8], other: &[u8]) -> (usize, usize) {
    let first = one.iter().zip(other).take_while(|(one, other)| one == other).count();
    let last = one.iter().rev().zip(other.iter().rev()).take_while(|(one, other)| one == other).count();
    (first, last)
}

#[test]
fn after_inputs_lost_by_the_journal_readers_have_the_numbers_and_books_of_the_plant() {
    let (folder, other) = (tempdir().unwrap(), tempdir().unwrap());
    let (all, loss, state) = keep_with_loss(folder.path(), MANY, true);
    keep_with_loss(other.path(), MANY, false);
    // Without a checkpoint, nothing after the loss is read, because it would have other event numbers.
    let mut reader = history(&other).open(Nanos(0)).unwrap();
    let mut read = Vec::new();
    while let Read::Events(events) = reader.read().unwrap() {
        read.extend_from_slice(events);
    }
    assert!(matches!(reader.read().unwrap(), Read::CaughtUp));
    assert!(read == all[..loss] && loss > 100);
    // From the checkpoint on everything is unchanged; the gaps come before it.
    let mut reader = history(&folder).open(Nanos(0)).unwrap();
    let (mut before, mut behind, mut first) = (Vec::new(), Vec::new(), None);
    loop {
        let into = if first.is_some() { &mut behind } else { &mut before };
        match reader.read().unwrap() {
            Read::Start { missed, start } => {
                into.extend_from_slice(missed);
                assert!(first.replace(start.first_event() as usize).is_none());
            }
            Read::Events(events) => into.extend_from_slice(events),
            Read::CaughtUp => break,
        }
    }
    assert_eq!(first, Some(state));
    assert!(before[..loss] == all[..loss] && behind == all[state..] && behind.len() > 100);
    assert!(before.len() > loss && before.len() <= state);
    assert!(before[loss..].iter().all(|event| event.gap().is_some_and(|gap| gap.count > 0)));
    // A client's replay has no duplicates, and is right after the loss.
    let whole = tempdir().unwrap();
    keep(whole.path(), LARGE, 0);
    for schemas in [&[Schema::Mbo][..], &[Schema::Mbp10], &[Schema::Cmbp1], &[Schema::Trades]] {
        let of = |folder: &TempDir| replayed(history(folder), &options().books, schemas, Nanos(0)).unwrap().1;
        let (some, all) = (of(&folder), of(&whole));
        let (first, last) = in_common(&some, &all);
        assert!(first > 400 && last > 400, "{schemas:?}");
        // The gaps change the NBBO's flags.
        let is_consolidated = schemas == [Schema::Cmbp1];
        assert!(is_consolidated || first + last >= some.len() && some.len() < all.len(), "{schemas:?}");
    }
    // A reader of the ring catches up with the ring.
    let first_event = all.len() - 100;
    let mut builder = Builder::new(1 << 14, empty_event, Backoff::default);
    let id = builder.consumer("reader", &[]);
    let (producer, mut ends) = builder.single_producer();
    let mut consumer = ends.take(id).unwrap();
    let (mut output, mut straight) = (Following::new(), stage());
    straight.apply(&all[..first_event]);
    // From before the loss.
    let begin: Begin = Begin {
        first_event: first_event as u64,
        first_time: Nanos(1),
        history: Some(history(&folder)),
        ..Begin::default()
    };
    let mut present = Present::new(&begin);
    catch_up(&begin, &mut present, &mut consumer, &AtomicBool::new(false), &mut output).unwrap();
    let replica = &output.replica;
    assert_eq!(replica.market.next, first_event as u64);
    let sorted = |books: &BookStage| {
        let mut books = books.image();
        books.iter_mut().for_each(BooksImage::sort);
        books
    };
    assert!(sorted(replica.market.books()) == sorted(straight.books()));
    assert!(replica.market.nbbo().image() == straight.nbbo().image());
    // If the plant ends before it has written the checkpoint, its readers end too, without an error.
    drop(producer);
    let begin: Begin = Begin { history: Some(history(&other)), ..begin };
    let (mut present, mut output) = (Present::new(&begin), Following::new());
    let next = catch_up(&begin, &mut present, &mut consumer, &AtomicBool::new(false), &mut output).unwrap();
    assert_eq!(next, loss as u64);
}
