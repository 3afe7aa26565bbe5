//! A journal as files: one for each schema and venue of a day.
//!
//! The journal is replayed through the engine, books and NBBO as a plant with the same options would, so the files hold what
//! its clients got. They are `DATE/VENUE/SCHEMA.ENDING`: a date in New York, the venue by the name of its feed (`XNAS.ITCH`), and
//! `nbbo` for what is computed across venues. All of a day is made in `DATE.partial`, which gets its name when the disk has
//! all of it; a file without records is left out.
//!
//! A journal may span days. The files of one hold what was received on it; books, last trades and intervals that run are made of what
//! was before, from the newest state snapshot of an earlier day on, or from the journal's beginning.
//!
//! Where the journal lost inputs, the files go on from the state snapshot behind them, as a client's replay does.
//!
//! A journal that has lost its beginning to make room is replayed from the oldest state snapshot that is kept with it. Its
//! files hold what the whole day's would from some time on, which [`Exported::from`] tells.
//!
//! Cost: what a replay costs; one thread, and a file for each schema and venue at once.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use jiff::civil::Date;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use tapeworks_feed::clock;
use tapeworks_journal::{JournalError, JournalReader, LOST, sync_folder};
use tapeworks_market::{BookStage, Event, EventKind, Instruments, Nanos, NbboStage, NbboUpdate, Publisher};
use tapeworks_packet::new_file::{self, NewFileError};
use tapeworks_stage::{Stage as _, Through};
use tapeworks_store::live::State;
use tapeworks_store::{Format, Options, Schema, StoreError, Summary, Writer};

use super::PlantOptions;
use super::checkpoint::{self, Restored};
use super::engine::Engine;
use super::journal::{day_of_name, name_of_day};
use super::records::input_of;
use crate::clients::history::Start;

/// What is to be made of a journal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExportOptions {
    /// Where the day's folder goes.
    pub folder: PathBuf,
    /// What is written.
    pub schemas: Vec<Schema>,
    /// The ending of the files, which tells their format: `dbn.zst`, `parquet` and so on.
    pub ending: String,
    /// Whether the files of a day that are there already are replaced.
    pub overwrite: bool,
    /// The day whose records are written, in New York; that of the journal's first record unless given.
    pub date: Option<Date>,
}

/// Whether `ending` is one that files may have, such as `dbn.zst`.
pub fn is_ending(ending: &str) -> bool {
    Format::ENDINGS.iter().any(|(known, _)| known.strip_prefix('.') == Some(ending))
}

/// Why a journal does not become files. What was written so far is removed.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum ExportError {
    /// The journal cannot be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A file cannot be written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A folder cannot be made, renamed or removed.
    #[error("{}: {what}: {source}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// Another run makes files of the same day.
    #[error(transparent)]
    Locked(#[from] NewFileError),
    /// The journal has no records, or they tell no date.
    #[error("{}: the journal is empty", journal.display())]
    Empty {
        /// Its folder.
        journal: PathBuf,
    },
    /// The journal does not begin with its first record, and no state is kept that could stand for those before.
    #[error("{}: its first {records} records were removed to make room, and no state snapshot of this configuration is kept, \
             without which no book would be right", journal.display())]
    Beheaded {
        /// Its folder.
        journal: PathBuf,
        /// Records that are gone.
        records: u64,
    },
    /// The day's files are there already.
    #[error("{}: the folder exists", path.display())]
    Exists {
        /// The day's folder.
        path: PathBuf,
    },
    /// It was told to stop.
    #[error("stopped before the end of the journal; nothing is written")]
    Stopped,
}

/// A file that was written.
#[derive(Clone, Debug)]
pub struct ExportedFile {
    /// Where it is.
    pub path: PathBuf,
    /// What is in it, and what is not.
    pub summary: Summary,
}

/// What came of a journal.
#[derive(Clone, Debug)]
pub struct Exported {
    /// The day.
    pub date: Date,
    /// Its folder.
    pub folder: PathBuf,
    /// The receive time from which on the files tell, where the journal has lost its beginning; `None` from the day's first
    /// record in the journal. It is the first full second or minute, where a schema has such intervals, behind the oldest state snapshot.
    pub from: Option<Nanos>,
    /// Inputs that were read.
    pub inputs: u64,
    /// Events that they gave.
    pub events: u64,
    /// Inputs that the journal says it lost.
    pub lost: u64,
    /// The files, by venue and schema, but for those without records.
    pub files: Vec<ExportedFile>,
}

/// The name of a feed as a folder.
fn folder_of(feed: Publisher) -> String {
    feed.feed().map_or_else(|| format!("publisher-{}", feed.0), |feed| feed.dataset.to_owned())
}

/// The earliest time from which on files of these schemas are whole, when nothing up to and including `last` is told.
fn whole_from(last: Nanos, schemas: &[Schema]) -> Nanos {
    // A bar of a day (UTC) begins in the evening of the day before in New York, so that a file's first is of a part of it.
    let width = |schema: &Schema| schema.interval_ns().unwrap_or(1).min(3_600 * Nanos::SECOND);
    let width = schemas.iter().map(width).max().unwrap_or(1);
    Nanos((last.0 / width).saturating_add(1).saturating_mul(width))
}

struct Output {
    /// The only feed whose updates it gets; all for `None`.
    feed: Option<Publisher>,
    path: PathBuf,
    writer: Writer,
}

fn failed(path: &Path, what: &'static str) -> impl FnOnce(io::Error) -> ExportError {
    move |source| ExportError::Folder { path: path.to_owned(), what, source }
}

/// The days, in New York, of which a journal has records, in order. Cost: a look into each segment's header for each day, and a
/// read of a segment.
///
/// # Errors
/// A journal that cannot be read.
pub fn days_of(journal: &Path) -> Result<Vec<Date>, JournalError> {
    let (mut days, mut from) = (Vec::new(), Nanos(0));
    loop {
        let mut reader = JournalReader::from_time(journal, from.0)?;
        let mut found = None;
        while let Some(record) = reader.next()? {
            if record.time >= from.0 {
                found = clock::date_at(Nanos(record.time));
                break;
            }
        }
        let Some(date) = found else { return Ok(days) };
        days.push(date);
        match clock::day_after(date).and_then(clock::midnight_of) {
            Some(midnight) if midnight > from => from = midnight,
            _ => return Ok(days),
        }
    }
}

/// Inputs between two looks whether to stop.
const INPUTS_AT_ONCE: u64 = 1_024;

/// Makes the files of the journal in `journal`, which a plant with these options has kept. `go_on` is told the inputs so far
/// from time to time, and answers whether to go on.
///
/// # Errors
/// [`ExportError`].
pub fn export(
    plant: &PlantOptions,
    journal: &Path,
    options: &ExportOptions,
    mut go_on: impl FnMut(u64) -> bool,
) -> Result<Exported, ExportError> {
    let empty = || ExportError::Empty { journal: journal.to_owned() };
    let first = JournalReader::open(journal)?.next()?.and_then(|record| clock::date_at(Nanos(record.time)));
    let date = options.date.or(first).ok_or_else(empty)?;
    let midnights = (clock::midnight_of(date), clock::day_after(date).and_then(clock::midnight_of));
    let (Some(begin), Some(end)) = midnights else { return Err(empty()) };
    let part = journal.file_name().and_then(|name| day_of_name(name.to_str()?)).map_or(1, |(_, part)| part);
    let name = name_of_day(date, part);
    let folder = options.folder.join(&name);
    if folder.exists() && !options.overwrite {
        return Err(ExportError::Exists { path: folder });
    }
    let partial = options.folder.join(format!("{name}.partial"));
    let _locked_until_the_end = new_file::lock_folder(&folder, &partial)?;
    // Another run may have finished it meanwhile.
    if folder.exists() && !options.overwrite {
        let _empty_at_worst = fs::remove_dir(&partial);
        return Err(ExportError::Exists { path: folder });
    }
    let made = make(plant, journal, options, (begin, end), &partial, &mut go_on).and_then(|mut exported| {
        give_name(&partial, &folder)?;
        for file in &mut exported.files {
            if let Ok(rest) = file.path.strip_prefix(&partial) {
                file.path = folder.join(rest);
            }
        }
        Ok(Exported { date, folder, ..exported })
    });
    if made.is_err() {
        // The error says more than a folder that cannot be removed would.
        let _left = fs::remove_dir_all(&partial);
    }
    made
}

/// Gives a day's folder, of which the disk has all, its name. One that has the name already is there until then.
fn give_name(partial: &Path, folder: &Path) -> Result<(), ExportError> {
    let named = |source| failed(folder, "cannot get its name")(source);
    let parent = folder.parent().unwrap_or(folder);
    // It gets the name of the partial folder for a moment, in which no other run may take it.
    let _locked_until_the_end = fs::File::open(folder).and_then(|old| Ok(old.try_lock()?));
    let exchanged = renameat_with(CWD, partial, CWD, folder, RenameFlags::EXCHANGE);
    let old = match exchanged {
        Ok(()) => Some(partial.to_owned()),
        Err(Errno::NOENT) => {
            fs::rename(partial, folder).map_err(named)?;
            None
        }
        // A file system that cannot exchange names.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            let old = partial.with_extension("replaced");
            remove(&old)?;
            fs::rename(folder, &old).map_err(named)?;
            fs::rename(partial, folder).map_err(named)?;
            Some(old)
        }
        Err(error) => return Err(named(error.into())),
    };
    sync(parent)?;
    old.map_or(Ok(()), |old| remove(&old))
}

/// Waits until the disk has the names in a folder.
fn sync(folder: &Path) -> Result<(), ExportError> {
    sync_folder(folder).map_err(failed(folder, "cannot be synced"))
}

fn remove(folder: &Path) -> Result<(), ExportError> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(failed(folder, "cannot be removed")(error))
        }
        _ => Ok(()),
    }
}

/// How far the times of records may be out of order, in ns.
const SLACK: u64 = Nanos::SECOND;

/// The state behind inputs that the journal lost at its record `record`, and the records behind it.
fn state_behind(journal: &Path, record: u64, plant: &PlantOptions) -> Option<(JournalReader, Restored)> {
    let behind = checkpoint::behind(journal, record, plant)?;
    Some((JournalReader::at_number(journal, behind.record).ok()??, behind))
}

/// The books and instruments of a state, which the files go on from.
fn go_on_from(start: Start, outputs: &mut [Output]) -> (Through<BookStage, NbboStage>, Instruments) {
    let now = start.time();
    let Start { stages, instruments, carried, .. } = start;
    let state = State { books: &stages.first, nbbo: &stages.second, instruments: &instruments, now };
    outputs.iter_mut().for_each(|output| output.writer.restore(&state, &carried));
    (stages, instruments)
}

/// Makes the files of what was received from `begin` on and before `end`.
fn make(
    plant: &PlantOptions,
    journal: &Path,
    options: &ExportOptions,
    (begin, end): (Nanos, Nanos),
    partial: &Path,
    go_on: &mut impl FnMut(u64) -> bool,
) -> Result<Exported, ExportError> {
    let mut reader = JournalReader::open(journal)?;
    let mut start = None;
    let mut engine = Engine::new(plant.live_feed());
    let first = reader.next_number();
    let beheaded = || ExportError::Beheaded { journal: journal.to_owned(), records: first };
    // Of what was before the day books are made, and nothing else.
    let mut state = checkpoint::before(journal, first, begin, plant);
    if state.is_none() && first > 0 {
        state = Some(checkpoint::oldest(journal, first, plant).ok_or_else(beheaded)?);
    }
    if let Some(Restored { record, engine: restored, market }) = state {
        reader = JournalReader::at_number(journal, record)?.ok_or_else(beheaded)?;
        (engine, start) = (restored, Some(market));
    }
    let whole = start.as_ref().map(|start| whole_from(start.time(), &options.schemas));
    let from = whole.filter(|whole| *whole > begin);
    let since = from.unwrap_or(begin);
    let books = plant.books();
    let mut outputs = Vec::new();
    for schema in &options.schemas {
        let feeds: Vec<Option<Publisher>> = if schema.is_consolidated() {
            vec![None]
        } else {
            books.feeds.iter().map(|(publisher, _)| Some(*publisher)).collect()
        };
        for feed in feeds {
            let folder = partial.join(feed.map_or_else(|| "nbbo".to_owned(), folder_of));
            fs::create_dir_all(&folder).map_err(failed(&folder, "cannot be created"))?;
            let path = folder.join(format!("{schema}.{}", options.ending));
            let writer = Writer::create(&path, *schema, &Options::default())?;
            outputs.push(Output { feed, path, writer });
        }
    }
    let mut market = books.market();
    let mut instruments = Instruments::default();
    if let Some(start) = start {
        (market, instruments) = go_on_from(start, &mut outputs);
    }
    let mut has_begun = false;
    let (mut events, mut inputs, mut made, mut lost): (Vec<Event>, u64, u64, u64) = (Vec::new(), 0, 0, 0);
    let mut written = Ok(());
    while let Some(record) = reader.next()? {
        let time = Nanos(record.time);
        if time.0 >= end.0.saturating_add(SLACK) {
            break;
        }
        let mut behind = None;
        if record.kind == LOST {
            lost += if (begin..end).contains(&time) { record.extra } else { 0 };
            behind = state_behind(journal, record.number, plant);
            match &behind {
                Some((_, behind)) => engine.tell_missed(&behind.engine, time, &mut events),
                None => engine.inputs_lost(time, &mut events),
            }
        } else {
            let Some(input) = input_of(&record) else { continue };
            engine.input(&input, &mut events);
            inputs += 1;
        }
        made += events.len() as u64;
        // Nobody sends what a replay would ask for.
        while engine.take_ask().is_some() {}
        // An instrument is known from its mapping on, and not before: what clears a venue concerns those that are.
        for part in events.chunk_by(|_, next| next.kind != EventKind::SymbolMapping) {
            if let Some(symbol) = part.first().and_then(Event::symbol) {
                instruments.intern(symbol);
            }
            market.process(part, &mut |update: NbboUpdate<'_>| {
                let Event { publisher: feed, ts_recv, .. } = *update.book.event;
                has_begun = has_begun || ts_recv >= since;
                for output in &mut outputs {
                    if output.feed.is_some_and(|only| only != feed) {
                        output.writer.pass(update.book.event);
                    } else if !has_begun {
                        output.writer.watch(&update);
                    } else if written.is_ok() && ts_recv < end {
                        written = output.writer.put(&update, &instruments);
                    }
                }
            });
        }
        written?;
        written = Ok(());
        events.clear();
        if let Some((behind_reader, Restored { engine: restored, market: start, .. })) = behind {
            (reader, engine) = (behind_reader, restored);
            (market, instruments) = go_on_from(start, &mut outputs);
        }
        if inputs.is_multiple_of(INPUTS_AT_ONCE) && !go_on(inputs) {
            return Err(ExportError::Stopped);
        }
    }
    let mut files = Vec::new();
    for Output { path, writer, .. } in outputs {
        let summary = writer.finish(&instruments)?;
        if summary.records == 0 {
            fs::remove_file(&path).map_err(failed(&path, "cannot be removed"))?;
            // Where other files are it stays.
            let _not_empty = path.parent().map(fs::remove_dir);
        } else {
            files.push(ExportedFile { path, summary });
        }
    }
    files.sort_by(|one, other| one.path.cmp(&other.path));
    // Folders without files are gone.
    for entry in fs::read_dir(partial).map_err(failed(partial, "cannot be listed"))? {
        sync(&entry.map_err(failed(partial, "cannot be listed"))?.path())?;
    }
    sync(partial)?;
    Ok(Exported { date: Date::default(), folder: PathBuf::new(), from, inputs, events: made, lost, files })
}

/// A journal that a plant has moved away.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct EarlierJournal {
    /// The day of its last record, in New York.
    pub date: Date,
    /// Which of that day it is, from 1: more than one there is when the clock was wrong.
    pub part: u32,
    /// Where it is.
    pub folder: PathBuf,
}

/// The journals that a plant has moved away: the folders in the journal's that are named by dates, in order.
///
/// # Errors
/// A folder that cannot be listed.
pub fn earlier_journals(journal: &Path) -> Result<Vec<EarlierJournal>, ExportError> {
    let entries = match fs::read_dir(journal) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed(journal, "cannot be listed"))?,
    };
    let mut journals = Vec::new();
    for entry in entries {
        let folder = entry.map_err(failed(journal, "cannot be listed"))?.path();
        let day = folder.file_name().and_then(|name| day_of_name(name.to_str()?));
        if let Some((date, part)) = day.filter(|_| folder.is_dir()) {
            journals.push(EarlierJournal { date, part, folder });
        }
    }
    journals.sort();
    Ok(journals)
}

/// A day to make files of, the journal that it is in, and the name of its folder.
pub(super) type Due = (Date, PathBuf, String);

/// The days before `today` of which the journal in `folder`, or one that was moved away from there, has records, in order; and of
/// the journals that cannot be read the day of each and why.
pub(super) fn days_before(today: Date, folder: &Path) -> (Vec<Due>, Vec<(Date, String)>) {
    let (mut due, mut unreadable) = (Vec::new(), Vec::new());
    let mut journals = earlier_journals(folder).unwrap_or_else(|error| {
        unreadable.push((today, error.to_string()));
        Vec::new()
    });
    journals.push(EarlierJournal { date: today, part: 1, folder: folder.to_owned() });
    for EarlierJournal { date: of, part, folder } in journals {
        match days_of(&folder) {
            Ok(days) => {
                let over = days.into_iter().filter(|date| *date < today);
                due.extend(over.map(|date| (date, folder.clone(), name_of_day(date, part))));
            }
            Err(error) => unreadable.push((of, error.to_string())),
        }
    }
    due.sort();
    (due, unreadable)
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::{Duration, Instant};

    use dbn::decode::dbn::Decoder;
    use tapeworks_exchange::{Packets, Scenario, VenueConfig, VenueKind};
    use tapeworks_feed::Application;
    use tapeworks_feed::live::Input;
    use tapeworks_journal::{JournalOptions, JournalWriter};
    use tapeworks_market::{Line, Nanos};

    use super::super::StateSnapshot;
    use super::super::config::Config;
    use super::super::journal::JournalSetting;
    use super::super::records::record_of;
    use super::super::roll::RollSetting;
    use super::super::service::Service;
    use super::super::{ReceiveOptions, VenueOptions};
    use super::*;

    /// A folder that is removed in the end.
    pub(in crate::live) struct Temporary(pub(in crate::live) PathBuf);

    impl Temporary {
        pub(in crate::live) fn new() -> Self {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("tapeworks-export-{}-{number}", std::process::id());
            Self(std::env::temp_dir().join(name))
        }
    }

    impl Drop for Temporary {
        fn drop(&mut self) {
            let _left = fs::remove_dir_all(&self.0);
        }
    }

    /// The last of them says nothing in the session.
    const KINDS: [(VenueKind, Application, Publisher); 3] = [
        (VenueKind::Nasdaq, Application::TotalViewItch50, Publisher::XNAS_ITCH),
        (VenueKind::IexDeep, Application::IexDeep10, Publisher::IEXG_DEEP),
        (VenueKind::Bx, Application::TotalViewItch50, Publisher::XBOS_ITCH),
    ];

    pub(in crate::live) fn plant() -> PlantOptions {
        let venue = |(kind, application, publisher): (VenueKind, Application, Publisher)| VenueOptions {
            orders: 1 << 16,
            name: kind.name().to_owned(),
            application,
            publisher,
            lines: vec![([127, 0, 0, 1], 0).into()],
            retransmission: None,
            snapshot: None,
            login: Default::default(),
            arbiter: Default::default(),
            snapshots: Default::default(),
        };
        let receive = ReceiveOptions { buffers: 256, ..ReceiveOptions::default() };
        PlantOptions {
            venues: KINDS.map(venue).to_vec(),
            receive,
            ring_events: 4_096,
            ..PlantOptions::default()
        }
    }

    /// A session's packets: the channel, the receive time, the payload.
    pub(in crate::live) fn session() -> Vec<(u16, Nanos, Vec<u8>)> {
        // A day of heartbeats takes seconds to make.
        static SESSION: OnceLock<Vec<(u16, Nanos, Vec<u8>)>> = OnceLock::new();
        SESSION.get_or_init(make_session).clone()
    }

    fn make_session() -> Vec<(u16, Nanos, Vec<u8>)> {
        let venues = KINDS[..2].iter().map(|(kind, ..)| VenueConfig { kind: *kind, share: 1 }).collect();
        let scenario = Scenario { venues, seed: 71, ..Scenario::full_session(3_000, 8) };
        let mut packets = Packets::new(&scenario).unwrap();
        let mut all = Vec::new();
        while let Some(packet) = packets.next_packet() {
            all.push((packet.venue as u16, Nanos(packet.timestamp_ns), packet.payload.to_vec()));
        }
        all
    }

    /// Keeps a session as a plant would, and answers its events.
    fn keep(journal: &Path) -> Vec<Event> {
        let (mut writer, _) = JournalWriter::open(journal, JournalOptions::default()).unwrap();
        let (mut engine, mut events) = (Engine::new(plant().live_feed()), Vec::new());
        for (channel, received, payload) in &session() {
            let input = Input::Packet { channel: *channel, line: Line::A, received: *received, payload };
            writer.append(&record_of(&input, &mut [0; 8])).unwrap();
            engine.input(&input, &mut events);
        }
        writer.sync().unwrap();
        events
    }

    /// The records of a DBN file, by feed.
    pub(in crate::live) fn records(path: &Path) -> BTreeMap<u16, Vec<Vec<u8>>> {
        let mut records: BTreeMap<u16, Vec<Vec<u8>>> = BTreeMap::new();
        let mut decoder = Decoder::from_file(path).unwrap();
        while let Some(record) = decoder.decode_ref().unwrap() {
            records.entry(record.header().publisher_id).or_default().push(record.as_ref().to_vec());
        }
        records
    }

    /// What a file of all venues holds.
    fn whole(events: &[Event], schema: Schema, path: &Path) -> BTreeMap<u16, Vec<Vec<u8>>> {
        let mut writer = Writer::create(path, schema, &Options::default()).unwrap();
        let (mut instruments, mut market) = (Instruments::default(), plant().books().market());
        for event in events {
            event
                .symbol()
                .filter(|_| event.kind == EventKind::SymbolMapping)
                .map(|symbol| instruments.intern(symbol));
            market
                .process(&[*event], &mut |update: NbboUpdate<'_>| writer.put(&update, &instruments).unwrap());
        }
        writer.finish(&instruments).unwrap();
        records(path)
    }

    fn options(folder: &Path) -> ExportOptions {
        ExportOptions {
            folder: folder.to_owned(),
            schemas: vec![Schema::Mbo, Schema::Trades, Schema::Imbalance, Schema::Cmbp1],
            ending: "dbn".to_owned(),
            overwrite: false,
            date: None,
        }
    }

    #[test]
    fn a_journal_becomes_the_files_of_each_venue_and_of_the_nbbo() {
        let (journal, out) = (Temporary::new(), Temporary::new());
        let events = keep(&journal.0);
        let exported = export(&plant(), &journal.0, &options(&out.0), |_| true).unwrap();
        assert_eq!(exported.events, events.len() as u64);
        let day = out.0.join(exported.date.to_string());
        assert_eq!((&exported.folder, exported.lost), (&day, 0));
        let mut expected = BTreeMap::new();
        for schema in options(&out.0).schemas {
            let all = whole(&events, schema, &out.0.join(format!("{schema}.dbn")));
            if schema.is_consolidated() {
                assert_eq!(all.len(), 2, "of both venues");
                expected.insert(format!("nbbo/{schema}.dbn"), all);
                continue;
            }
            for (feed, of_feed) in all {
                let venue = folder_of(Publisher(feed));
                expected.insert(format!("{venue}/{schema}.dbn"), BTreeMap::from([(feed, of_feed)]));
            }
        }
        assert!(
            expected.contains_key("IEXG.DEEP/trades.dbn") && expected["XNAS.ITCH/mbo.dbn"][&2].len() > 1_000
        );
        // What has no records has no file.
        assert!(!day.join("XBOS.ITCH").exists());
        let name = |file: &ExportedFile| file.path.strip_prefix(&day).unwrap().to_str().unwrap().to_owned();
        let files: BTreeMap<_, _> =
            exported.files.iter().map(|file| (name(file), records(&file.path))).collect();
        assert!(files == expected, "{:?} and {:?}", files.keys(), expected.keys());
    }

    #[test]
    fn a_day_is_there_whole_or_not_at_all() {
        let (journal, out) = (Temporary::new(), Temporary::new());
        keep(&journal.0);
        let mut wanted = options(&out.0);
        let mut looks = 0;
        let stopped = export(&plant(), &journal.0, &wanted, |_| {
            looks += 1;
            false
        });
        assert!(matches!(stopped, Err(ExportError::Stopped)) && looks == 1);
        assert_eq!(fs::read_dir(&out.0).unwrap().count(), 0, "nothing is left of it");
        let first = export(&plant(), &journal.0, &wanted, |_| true).unwrap();
        let again = export(&plant(), &journal.0, &wanted, |_| true);
        assert!(matches!(&again, Err(ExportError::Exists { path }) if *path == first.folder), "{again:?}");
        (wanted.overwrite, wanted.schemas) = (true, vec![Schema::Status]);
        let replaced = export(&plant(), &journal.0, &wanted, |_| true).unwrap();
        assert!(!replaced.folder.join("XNAS.ITCH/mbo.dbn").exists());
        let nothing = export(&plant(), &out.0, &wanted, |_| true);
        assert!(matches!(nothing, Err(ExportError::Empty { .. })), "{nothing:?}");
        let endings = ["dbn.zst", "parquet", "xlsx", ".dbn", ""];
        assert_eq!(endings.map(is_ending), [true, true, false, false, false]);
    }

    #[test]
    fn a_plant_that_starts_on_a_new_day_makes_the_files_of_the_day_before() {
        let (journal, out) = (Temporary::new(), Temporary::new());
        keep(&journal.0);
        let roll =
            RollSetting { folder: out.0.clone(), schemas: vec![Schema::Cmbp1], ending: "parquet".to_owned() };
        let journal = JournalSetting::new(&journal.0);
        let mut config = Config { plant: plant(), roll: Some(roll), ..Config::default() };
        config.plant.journal = Some(journal);
        for start in 0..2 {
            let service = Service::start(&config, None).unwrap();
            let began = Instant::now();
            let is_done = || match service.status().roll.done.first() {
                Some(day) => day.outcome.clone().unwrap().1 > 100,
                // Nothing is left to do.
                None => start == 1 && began.elapsed() > Duration::from_millis(300),
            };
            while !is_done() {
                assert!(began.elapsed() < Duration::from_secs(30), "{:?}", service.status().roll);
                std::thread::sleep(Duration::from_millis(10));
            }
            let days = earlier_journals(&config.plant.journal.as_ref().unwrap().folder).unwrap();
            let [EarlierJournal { date: day, .. }] = &days[..] else { panic!("{days:?}") };
            assert!(out.0.join(format!("{day}/nbbo/cmbp-1.parquet")).is_file());
            assert_eq!(service.status().roll.done.len(), 1 - start);
            service.stop().unwrap();
        }
    }

    const DAY: u64 = 86_400 * Nanos::SECOND;

    /// Keeps a session whose second half is received at the times that `later` gives, and a state of the first half if it is so
    /// wanted. Returns the events.
    fn keep_over_days(journal: &Path, has_state: bool, later: impl Fn(Nanos) -> Nanos) -> Vec<Event> {
        let plant = keeping(journal);
        let (mut writer, _) = JournalWriter::open(journal, JournalOptions::default()).unwrap();
        let (mut state, mut events) = (StateSnapshot::new(&plant), Vec::new());
        let mut packets = session();
        packets.retain(|(_, _, payload)| payload.len() > 40);
        let half = packets.len() / 2;
        for (at, (channel, received, payload)) in packets.iter().enumerate() {
            if has_state && at == half - 20 {
                let path = journal.join(format!("{at:020}.snapshot"));
                fs::write(path, state.write().unwrap()).unwrap();
            }
            let received = if at < half { *received } else { later(*received) };
            let input = Input::Packet { channel: *channel, line: Line::A, received, payload };
            writer.append(&record_of(&input, &mut [0; 8])).unwrap();
            state.input(&input, &mut events);
        }
        writer.sync().unwrap();
        events
    }

    fn keeping(journal: &Path) -> PlantOptions {
        PlantOptions { journal: Some(JournalSetting::new(journal)), ..plant() }
    }

    #[test]
    fn a_journal_over_days_becomes_the_files_of_each() {
        for has_state in [false, true] {
            let (journal, out) = (Temporary::new(), Temporary::new());
            let events = keep_over_days(&journal.0, has_state, |received| Nanos(received.0 + 2 * DAY));
            let days = days_of(&journal.0).unwrap();
            let [first, last] = days[..] else { panic!("the day between has no records: {days:?}") };
            let mut wanted = options(&out.0);
            let export_of = |date, wanted: &ExportOptions| {
                let wanted = ExportOptions { date, ..wanted.clone() };
                export(&keeping(&journal.0), &journal.0, &wanted, |_| true).unwrap()
            };
            let (one, other) = (export_of(None, &wanted), export_of(Some(last), &wanted));
            assert_eq!((one.date, other.date, one.from, other.from), (first, last, None, None));
            // The second day begins with the state of the first that is kept.
            assert_eq!(other.inputs < one.inputs + 100, has_state, "{} {}", one.inputs, other.inputs);
            for schema in &wanted.schemas {
                let mut all = whole(&events, *schema, &out.0.join(format!("{schema}.dbn")));
                let mut parts: BTreeMap<u16, Vec<Vec<u8>>> = BTreeMap::new();
                for exported in [&one, &other] {
                    for file in exported
                        .files
                        .iter()
                        .filter(|file| file.path.file_stem().is_some_and(|stem| *stem == *schema.to_string()))
                    {
                        for (feed, records) in records(&file.path) {
                            assert!(!records.is_empty());
                            parts.entry(feed).or_default().extend(records);
                        }
                    }
                }
                all.retain(|_, records| !records.is_empty());
                assert!(parts == all && !all.is_empty(), "{schema}");
            }
            // A day of which there is nothing is made, and empty.
            wanted.overwrite = true;
            let between = export_of(clock::day_after(first), &wanted);
            assert_eq!(between.files.len(), 0);
        }
    }

    #[test]
    fn a_day_that_is_over_is_rolled_while_the_journal_goes_on() {
        let (journal, out) = (Temporary::new(), Temporary::new());
        let began = tapeworks_runtime::now();
        let events = keep_over_days(&journal.0, false, |_| began);
        let roll =
            RollSetting { folder: out.0.clone(), schemas: vec![Schema::Mbo], ending: "dbn".to_owned() };
        let mut config = Config { plant: keeping(&journal.0), roll: Some(roll), ..Config::default() };
        config.plant.ring_events = 1 << 16;
        let service = Service::start(&config, None).unwrap();
        assert_eq!(service.replayed().events, events.len() as u64, "it is all there");
        let since = Instant::now();
        let status = loop {
            let status = service.status().roll;
            if !status.done.is_empty() {
                break status;
            }
            assert!(since.elapsed() < Duration::from_secs(60), "{status:?}");
            std::thread::sleep(Duration::from_millis(10));
        };
        service.stop().unwrap();
        assert!(earlier_journals(&journal.0).unwrap().is_empty(), "nothing is moved away");
        let [day] = &status.done[..] else { panic!("{status:?}") };
        let path = out.0.join(format!("{}/XNAS.ITCH/mbo.dbn", day.date));
        let all = whole(&events, Schema::Mbo, &out.0.join("mbo.dbn"));
        let (told, all) = (&records(&path)[&2], &all[&2]);
        assert!(told.len() > 100 && told.len() < all.len() && *told == all[..told.len()]);
        assert!(!out.0.join(clock::date_at(began).unwrap().to_string()).exists(), "today goes on");
    }

    #[test]
    fn the_days_that_are_over_are_those_before_today_of_every_journal() {
        let folder = Temporary::new();
        keep_over_days(&folder.0.join("2024-03-01.2"), false, |received| Nanos(received.0 + DAY));
        keep_over_days(&folder.0, false, |received| Nanos(received.0 + DAY));
        let [first, second] = days_of(&folder.0).unwrap()[..] else { panic!("two days") };
        let names = |today| -> Vec<String> {
            let (due, unreadable) = days_before(today, &folder.0);
            assert_eq!(unreadable, []);
            due.into_iter().map(|(.., name)| name).collect()
        };
        assert!(names(first).is_empty());
        assert_eq!(names(second), [first.to_string(), format!("{first}.2")]);
        assert_eq!(names(clock::day_after(second).unwrap()).len(), 4);
        // One that cannot be read is told, and the others are there.
        let segment = folder.0.join("2024-03-01.2").join(format!("{:020}.journal", 0));
        fs::remove_file(&segment).unwrap();
        fs::create_dir(&segment).unwrap();
        let (due, unreadable) = days_before(second, &folder.0);
        assert_eq!(due.len(), 1);
        assert!(unreadable[0].0 == "2024-03-01".parse().unwrap(), "{unreadable:?}");
        assert!(unreadable[0].1.contains("cannot be read"), "{unreadable:?}");
    }
}
