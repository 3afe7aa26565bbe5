//! Exporting a journal as files: one per schema and venue of a day.
//!
//! An export replays the journal through engine, books and NBBO like a plant with the same options, so the files
//! contain the records that the plant's clients received. They are named `DATE/VENUE/SCHEMA.ENDING`: the date in New
//! York, the venue as the name of its feed (`XNAS.ITCH`), and `nbbo` for data computed across venues. A day's files are
//! created in `DATE.partial`, which is renamed when all of them are on disk. A file without records is omitted.
//!
//! A journal may span several days. A day's files contain the inputs received on that day; books, last trades and open
//! intervals derive from earlier inputs, starting at the newest checkpoint of an earlier day or at the beginning of the
//! journal.
//!
//! Where the journal lost inputs, the files continue like a client's replay: without the inputs if the plant did so
//! too, otherwise from the next checkpoint.
//!
//! A journal whose beginning was removed to make room is replayed from the oldest checkpoint kept with it. From some
//! time on, its files equal those of the whole day: [`Exported::from`].
//!
//! Cost: that of a replay; one thread, and one open file per schema and venue.

mod folder;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use jiff::civil::Date;
use tapeworks_capture::new_file::NewFileError;
use tapeworks_disk::{Disk, System};
use tapeworks_journal::{JournalError, JournalReader, LOST};
use tapeworks_market::{Event, Market, Publisher};
use tapeworks_store::live::State;
use tapeworks_store::{Format, Options, Schema, StoreError, Summary, Writer};
use tapeworks_time::Nanos;
use tapeworks_time::clock;

use crate::checkpoint::{self, Restored};
use crate::days::{day_of_name, name_of_day};
use crate::loss::{Behind, Losses};
use crate::records::input_of;
use crate::{Engine, EngineOptions, Start};

use folder::{DayFile, give_name, lock, remove_if_empty, sync};

/// The options of an export.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExportOptions {
    /// Parent of the day's folder.
    pub folder: PathBuf,
    /// The schemas.
    pub schemas: Vec<Schema>,
    /// Suffix of the files, which determines their format: `dbn.zst`, `parquet` and so on.
    pub ending: String,
    /// Whether to replace existing files of the day.
    pub overwrite: bool,
    /// Day to export, in New York; by default the day of the journal's first record.
    pub date: Option<Date>,
}

/// Returns whether `ending` is a supported file suffix, such as `dbn.zst`.
pub fn is_ending(ending: &str) -> bool {
    Format::ENDINGS.iter().any(|(known, _)| known.strip_prefix('.') == Some(ending))
}

/// Why an export failed. Files written so far are removed.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum ExportError {
    /// The journal cannot be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A file cannot be written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A folder cannot be created, renamed or removed.
    #[error("{}: {what}: {source}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The operation.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// Another run is creating files of the same day.
    #[error(transparent)]
    Locked(#[from] NewFileError),
    /// The journal has no records, or records without a date.
    #[error("{}: the journal is empty", journal.display())]
    Empty {
        /// The journal's folder.
        journal: PathBuf,
    },
    /// The journal has lost its first records, and no checkpoint includes them.
    #[error("{}: its first {records} records were removed to make room, and no checkpoint of this configuration is kept, \
             without which no book would be right", journal.display())]
    Beheaded {
        /// The journal's folder.
        journal: PathBuf,
        /// Number of removed records.
        records: u64,
    },
    /// The day's files already exist.
    #[error("{}: the folder exists", path.display())]
    Exists {
        /// The day's folder.
        path: PathBuf,
    },
    /// The export was stopped.
    #[error("stopped before the end of the journal; nothing is written")]
    Stopped,
}

/// An exported file.
#[derive(Clone, Debug)]
pub struct ExportedFile {
    /// Its path.
    pub path: PathBuf,
    /// Counts of its records.
    pub summary: Summary,
}

/// The result of an export.
#[derive(Clone, Debug)]
pub struct Exported {
    /// The day.
    pub date: Date,
    /// The day's folder.
    pub folder: PathBuf,
    /// Receive time from which the files are complete, if the journal has lost its beginning; `None` if they are
    /// complete from the day's first record. It is the first multiple of the longest interval among the schemas (at
    /// most an hour) after the oldest checkpoint.
    pub from: Option<Nanos>,
    /// Inputs read.
    pub inputs: u64,
    /// Events that they produced.
    pub events: u64,
    /// Inputs that the journal counts as lost.
    pub lost: u64,
    /// The files by venue and schema, except those without records.
    pub files: Vec<ExportedFile>,
}

/// Returns the folder name of a feed.
fn folder_of(feed: Publisher) -> String {
    feed.feed().map_or_else(|| format!("publisher-{}", feed.0), |feed| feed.dataset.to_owned())
}

/// Returns the earliest time from which files of these schemas are complete if nothing up to and including `last` is
/// known.
fn whole_from(last: Nanos, schemas: &[Schema]) -> Nanos {
    // A daily bar (UTC) begins on the previous evening in New York, so the first one in a file is partial anyway.
    let width = |schema: &Schema| schema.interval_ns().unwrap_or(1).min(3_600 * Nanos::SECOND);
    let width = schemas.iter().map(width).max().unwrap_or(1);
    Nanos((last.0 / width).saturating_add(1).saturating_mul(width))
}

struct Output {
    /// Feeds whose updates it receives, all of one dataset; empty for every feed.
    feeds: Vec<Publisher>,
    path: PathBuf,
    writer: Writer,
}

fn failed(path: &Path, what: &'static str) -> impl FnOnce(io::Error) -> ExportError {
    move |source| ExportError::Folder { path: path.to_owned(), what, source }
}

/// Inputs between two calls of `go_on`.
const INPUTS_AT_ONCE: u64 = 1_024;

/// Exports the journal in `journal`, which was written by a plant with these options.
///
/// `go_on` is called from time to time with the number of inputs so far, and returns whether to continue.
///
/// # Errors
/// [`ExportError`].
pub fn export(
    engine_options: &EngineOptions,
    journal: &Path,
    options: &ExportOptions,
    go_on: impl FnMut(u64) -> bool,
) -> Result<Exported, ExportError> {
    export_in::<System>(engine_options, journal, options, go_on)
}

/// [`export`] on the disk `D`.
///
/// # Errors
/// [`ExportError`].
pub fn export_in<D: Disk>(
    engine_options: &EngineOptions,
    journal: &Path,
    options: &ExportOptions,
    mut go_on: impl FnMut(u64) -> bool,
) -> Result<Exported, ExportError> {
    let empty = || ExportError::Empty { journal: journal.to_owned() };
    let first =
        JournalReader::<D>::open_in(journal)?.next()?.and_then(|record| clock::date_at(Nanos(record.time)));
    let date = options.date.or(first).ok_or_else(empty)?;
    let midnights = (clock::midnight_of(date), clock::day_after(date).and_then(clock::midnight_of));
    let (Some(begin), Some(end)) = midnights else { return Err(empty()) };
    let part = journal.file_name().and_then(|name| day_of_name(name.to_str()?)).map_or(1, |(_, part)| part);
    let name = name_of_day(date, part);
    let folder = options.folder.join(&name);
    if D::exists(&folder) && !options.overwrite {
        return Err(ExportError::Exists { path: folder });
    }
    let partial = options.folder.join(format!("{name}.partial"));
    let _locked_until_the_end = lock::<D>(&folder, &partial)?;
    // Another run may have completed it meanwhile.
    if D::exists(&folder) && !options.overwrite {
        remove_if_empty::<D>(&partial);
        return Err(ExportError::Exists { path: folder });
    }
    let made = make::<D>(engine_options, journal, options, (begin, end), &partial, &mut go_on).and_then(
        |mut exported| {
            give_name::<D>(&partial, &folder)?;
            for file in &mut exported.files {
                if let Ok(rest) = file.path.strip_prefix(&partial) {
                    file.path = folder.join(rest);
                }
            }
            Ok(Exported { date, folder, ..exported })
        },
    );
    if made.is_err() {
        // This error is more useful than one about a folder that cannot be removed.
        let _left = D::remove_dir_all(&partial);
    }
    made
}

/// How far the times of records may be out of order, in ns.
const SLACK: u64 = Nanos::SECOND;

/// Restores books and instruments from the checkpoint at which the files start or continue.
fn go_on_from(start: Start, outputs: &mut [Output]) -> Market {
    let now = start.time();
    let Start { market, carried, .. } = start;
    let state = State { books: market.books(), nbbo: market.nbbo(), instruments: &market.instruments, now };
    outputs.iter_mut().for_each(|output| output.writer.restore(&state, &carried));
    market
}

/// Creates the files of the inputs received in `begin..end`.
fn make<D: Disk>(
    engine_options: &EngineOptions,
    journal: &Path,
    options: &ExportOptions,
    (begin, end): (Nanos, Nanos),
    partial: &Path,
    go_on: &mut impl FnMut(u64) -> bool,
) -> Result<Exported, ExportError> {
    let mut reader = JournalReader::<D>::open_in(journal)?;
    let mut start = None;
    let mut engine = Engine::new(engine_options);
    let first = reader.next_number();
    let beheaded = || ExportError::Beheaded { journal: journal.to_owned(), records: first };
    // Earlier inputs only change books.
    let mut state = checkpoint::folder::before::<D>(journal, first, begin, engine_options);
    if state.is_none() && first > 0 {
        state = Some(checkpoint::folder::oldest::<D>(journal, first, engine_options).ok_or_else(beheaded)?);
    }
    if let Some(Restored { record, engine: restored, market }) = state {
        reader = JournalReader::at_number_in(journal, record)?.ok_or_else(beheaded)?;
        (engine, start) = (restored, Some(market));
    }
    let whole = start.as_ref().map(|start| whole_from(start.time(), &options.schemas));
    let from = whole.filter(|whole| *whole > begin);
    let since = from.unwrap_or(begin);
    let books = &engine_options.books;
    let mut outputs = Vec::new();
    for schema in &options.schemas {
        // The SIPs are feeds of one dataset, and so share one folder.
        let mut by_folder: BTreeMap<String, Vec<Publisher>> = BTreeMap::new();
        if schema.is_consolidated() {
            by_folder.insert("nbbo".to_owned(), Vec::new());
        } else {
            for (feed, _) in &books.feeds {
                by_folder.entry(folder_of(*feed)).or_default().push(*feed);
            }
        }
        for (name, feeds) in by_folder {
            let folder = partial.join(name);
            D::create_dir_all(&folder).map_err(failed(&folder, "cannot be created"))?;
            let path = folder.join(format!("{schema}.{}", options.ending));
            let writer =
                Writer::create_into(Box::new(DayFile::<D>::create(&path)?), *schema, &Options::default())?;
            outputs.push(Output { feeds, path, writer });
        }
    }
    let mut market = Market::new(books);
    if let Some(start) = start {
        market = go_on_from(start, &mut outputs);
    }
    let (mut has_begun, mut losses) = (false, Losses::default());
    let (mut events, mut inputs, mut made, mut lost): (Vec<Event>, u64, u64, u64) = (Vec::new(), 0, 0, 0);
    let mut written = Ok(());
    while let Some(record) = reader.next()? {
        let time = Nanos(record.time);
        if time.0 >= end.0.saturating_add(SLACK) {
            break;
        }
        let mut behind = None;
        if record.kind == LOST {
            lost = if (begin..end).contains(&time) { lost.saturating_add(record.extra) } else { lost };
            let at = (record.number, time);
            match losses.behind::<D>(journal, at, &engine, engine_options) {
                Some(Behind::From(state)) => {
                    engine.put_missed(&state.engine, time, &mut events);
                    behind = Some(state);
                }
                Some(Behind::Without) | None => engine.inputs_lost(time, &mut events),
            }
        } else {
            let Some(input) = input_of(&record) else { continue };
            engine.input(&input, &mut events);
            inputs += 1;
        }
        made += events.len() as u64;
        // A replay sends no requests.
        while engine.take_request().is_some() {}
        market.apply(&events, |update, instruments| {
            let Event { publisher: feed, ts_recv, .. } = *update.book.event;
            has_begun = has_begun || ts_recv >= since;
            for output in &mut outputs {
                if !output.feeds.is_empty() && !output.feeds.contains(&feed) {
                    output.writer.pass(update.book.event);
                } else if !has_begun {
                    output.writer.watch(update);
                } else if written.is_ok() && ts_recv < end {
                    written = output.writer.put(update, instruments);
                }
            }
        });
        written?;
        written = Ok(());
        events.clear();
        if let Some(state) = behind {
            let Restored { record, engine: restored, market: start } = *state;
            reader = JournalReader::at_number_in(journal, record)?.ok_or_else(beheaded)?;
            engine = restored;
            market = go_on_from(start, &mut outputs);
        }
        if inputs.is_multiple_of(INPUTS_AT_ONCE) && !go_on(inputs) {
            return Err(ExportError::Stopped);
        }
    }
    let mut files = Vec::new();
    for Output { path, writer, .. } in outputs {
        let summary = writer.finish(&market.instruments)?;
        if summary.records == 0 {
            D::remove_file(&path).map_err(failed(&path, "cannot be removed"))?;
            // The folder stays if it has other files.
            if let Some(folder) = path.parent() {
                remove_if_empty::<D>(folder);
            }
        } else {
            files.push(ExportedFile { path, summary });
        }
    }
    files.sort_by(|one, other| one.path.cmp(&other.path));
    // Folders without files have been removed.
    for folder in D::entries(partial).map_err(failed(partial, "cannot be listed"))? {
        sync::<D>(&folder)?;
    }
    sync::<D>(partial)?;
    Ok(Exported { date: Date::default(), folder: PathBuf::new(), from, inputs, events: made, lost, files })
}

#[cfg(test)]
mod tests;
