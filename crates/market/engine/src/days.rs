//! The folder of a journal and the folders of earlier days in it.

use std::io;
use std::path::{Path, PathBuf};

use jiff::civil::Date;
use tapeworks_disk::{Disk, System};
use tapeworks_journal::{
    JournalError, JournalOptions, JournalReader, JournalWriter, LOST, Opened, is_journal_file, last_time_in,
    segment_starts_in,
};
use tapeworks_time::Nanos;
use tapeworks_time::clock;

use crate::checkpoint::{Restored, folder};

/// A journal opened for writing.
#[derive(Debug)]
pub struct OpenJournal<D: Disk = System> {
    /// Continues after the last record.
    pub writer: JournalWriter<D>,
    /// What the journal contained.
    pub opened: Opened,
}

impl<D: Disk> OpenJournal<D> {
    /// Counts records as lost that were once on disk but are missing from the end. Their numbers are not reused.
    ///
    /// # Errors
    /// A record that cannot be written.
    pub fn count_missing(&mut self, now: Nanos) -> Result<(), JournalError> {
        let missing = std::mem::take(&mut self.opened.missing);
        self.lose_until(self.opened.next + missing, now)
    }

    /// Continues from a checkpoint. Counts records as lost that it includes but the journal lacks.
    ///
    /// # Errors
    /// A record that cannot be written.
    pub fn go_on_from(&mut self, restored: &Restored) -> Result<(), JournalError> {
        self.lose_until(restored.record, restored.market.time())
    }

    /// Counts the records from the journal's end up to `next` (exclusive) as lost.
    fn lose_until(&mut self, next: u64, time: Nanos) -> Result<(), JournalError> {
        let missing = next.saturating_sub(self.opened.next);
        self.writer.lose_until(next, time.0)?;
        self.opened.damaged += missing;
        self.opened.next += missing;
        Ok(())
    }
}

/// The folder that collects an earlier day's journal before it is renamed after its day.
const MOVING: &str = "moving";

/// Opens the journal. If its last record is of an earlier day, moves it away first.
///
/// # Errors
/// A journal that cannot be opened or moved.
pub fn open(folder: &Path, options: JournalOptions, now: Nanos) -> Result<OpenJournal, JournalError> {
    open_in(folder, options, now)
}

/// [`open`] on the disk `D`.
///
/// # Errors
/// As [`open`].
pub fn open_in<D: Disk>(
    folder: &Path,
    options: JournalOptions,
    now: Nanos,
) -> Result<OpenJournal<D>, JournalError> {
    let moving = &folder.join(MOVING);
    let (writer, opened) = JournalWriter::open_in(folder, options)?;
    // A move was started but not completed: the process was killed.
    let mut is_old = D::exists(moving);
    if opened.next > opened.first
        && let Some(last) = last_time_in::<D>(folder)?
        && let (Some(day), Some(today)) = (clock::date_at(Nanos(last)), clock::date_at(now))
    {
        is_old |= day < today;
    }
    if !is_old {
        return Ok(OpenJournal { writer, opened });
    }
    drop(writer);
    move_away::<D>(folder, moving)?;
    let (writer, opened) = JournalWriter::open_in(folder, options)?;
    Ok(OpenJournal { writer, opened })
}

/// Moves the journal in `folder` into a subfolder named after the day of its last record.
///
/// Collects it in `moving` first, so that the next start completes an interrupted move.
fn move_away<D: Disk>(folder: &Path, moving: &Path) -> Result<(), JournalError> {
    let failed = |path: &Path, what| {
        let path = path.to_owned();
        move |source| JournalError::Io { path, what, source }
    };
    let sync = |folder: &Path| D::sync_folder(folder).map_err(failed(folder, "cannot be synced"));
    D::create_dir_all(moving).map_err(failed(moving, "cannot be created"))?;
    for path in D::entries(folder).map_err(failed(folder, "cannot list the journal"))? {
        if is_journal_file(&path)
            && let Some(name) = path.file_name()
        {
            D::rename(&path, &moving.join(name)).map_err(failed(&path, "cannot be moved away"))?;
        }
    }
    let first = segment_starts_in::<D>(moving)?.first().copied().unwrap_or_default();
    folder::move_away::<D>(folder, first, moving)
        .map_err(failed(folder, "old checkpoints cannot be moved away"))?;
    let Some(day) = last_time_in::<D>(moving)?.and_then(|last| clock::date_at(Nanos(last))) else {
        // The folder was empty.
        return D::remove_dir_all(moving).map_err(failed(moving, "cannot be removed"));
    };
    let mut names = (1..).map(|part| folder.join(name_of_day(day, part)));
    // An existing journal of the same day, for example after a wrong clock, is kept.
    let to = names.find(|to| !D::exists(to)).unwrap_or_else(|| folder.join(day.to_string()));
    sync(moving)?;
    D::rename(moving, &to).map_err(failed(&to, "cannot get its name"))?;
    sync(folder)
}

/// Moves the journal in `folder` and its checkpoints into a new subfolder, to make room for another plant's records.
///
/// The subfolder is `aside-1` or the next free number. Returns its path. An interrupted move leaves the rest in
/// `folder`; the next move takes it.
///
/// # Errors
/// A journal that another process is writing, or that cannot be moved.
pub fn move_aside_in<D: Disk>(folder: &Path) -> Result<PathBuf, JournalError> {
    let failed = |path: &Path, what| {
        let path = path.to_owned();
        move |source| JournalError::Io { path, what, source }
    };
    let (writer, _) = JournalWriter::<D>::open_in(folder, JournalOptions::default())?;
    let mut names = (1u32..).map(|number| folder.join(format!("aside-{number}")));
    let to = names.find(|to| !D::exists(to)).unwrap_or_else(|| folder.join("aside"));
    D::create_dir_all(&to).map_err(failed(&to, "cannot be created"))?;
    let first = segment_starts_in::<D>(folder)?.first().copied().unwrap_or_default();
    folder::move_away::<D>(folder, first, &to)
        .map_err(failed(folder, "its checkpoints cannot be moved aside"))?;
    // Last segment first, so that an interrupted move leaves the beginning of a journal.
    let mut paths = D::entries(folder).map_err(failed(folder, "cannot list the journal"))?;
    paths.sort();
    for path in paths.iter().rev().filter(|path| is_journal_file(path)) {
        if let Some(name) = path.file_name() {
            D::rename(path, &to.join(name)).map_err(failed(path, "cannot be moved aside"))?;
        }
    }
    for folder in [&to, folder] {
        D::sync_folder(folder).map_err(failed(folder, "cannot be synced"))?;
    }
    drop(writer);
    Ok(to)
}

/// Returns the name of the folder of a day, or of a further part of the same day.
pub fn name_of_day(day: Date, part: u32) -> String {
    if part > 1 { format!("{day}.{part}") } else { day.to_string() }
}

/// Parses a folder name into its day and part.
pub fn day_of_name(name: &str) -> Option<(Date, u32)> {
    let (day, part) = match name.split_once('.') {
        Some((day, part)) => (day, part.parse().ok().filter(|part| *part > 1)?),
        None => (name, 1),
    };
    Some((day.parse().ok()?, part))
}

/// Returns the days, in New York, of which a journal has records, in order.
///
/// Cost: for each day, a read of every segment's header and of one segment.
///
/// # Errors
/// A journal that cannot be read.
pub fn days_of(journal: &Path) -> Result<Vec<Date>, JournalError> {
    days_of_in::<System>(journal)
}

/// [`days_of`] on the disk `D`.
///
/// # Errors
/// As [`days_of`].
pub fn days_of_in<D: Disk>(journal: &Path) -> Result<Vec<Date>, JournalError> {
    let (mut days, mut from) = (Vec::new(), Nanos(0));
    loop {
        let mut reader = JournalReader::<D>::from_time_in(journal, from.0)?;
        let mut found = None;
        while let Some(record) = reader.next()? {
            // Lost records have the time 0 if nothing shows when they were lost.
            if record.time >= from.0 && (record.kind != LOST || record.time > 0) {
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

/// A journal that a plant moved away.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct EarlierJournal {
    /// Day of its last record, in New York.
    pub date: Date,
    /// Part of that day, from 1. There is more than one part if the clock was wrong.
    pub part: u32,
    /// Its path.
    pub folder: PathBuf,
}

/// Lists the journals that a plant moved away, in order: the subfolders of the journal's folder that are named after
/// dates.
///
/// # Errors
/// A folder that cannot be listed.
pub fn earlier_journals(journal: &Path) -> Result<Vec<EarlierJournal>, JournalError> {
    earlier_journals_in::<System>(journal)
}

/// [`earlier_journals`] on the disk `D`.
///
/// # Errors
/// As [`earlier_journals`].
pub fn earlier_journals_in<D: Disk>(journal: &Path) -> Result<Vec<EarlierJournal>, JournalError> {
    let failed = |source| JournalError::Io { path: journal.to_owned(), what: "cannot be listed", source };
    let entries = match D::entries(journal) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    let mut journals = Vec::new();
    for folder in entries {
        let day = folder.file_name().and_then(|name| day_of_name(name.to_str()?));
        if let Some((date, part)) = day.filter(|_| D::is_dir(&folder)) {
            journals.push(EarlierJournal { date, part, folder });
        }
    }
    journals.sort();
    Ok(journals)
}

/// A day to export, the journal that contains it, and the name of its folder.
pub type Due = (Date, PathBuf, String);

/// Lists the days before `today` that the journal in `folder`, or one moved away from there, has records of, in order.
///
/// Also returns the day and the error of each unreadable journal.
pub fn days_before(today: Date, folder: &Path) -> (Vec<Due>, Vec<(Date, String)>) {
    days_before_in::<System>(today, folder)
}

/// [`days_before`] on the disk `D`.
pub fn days_before_in<D: Disk>(today: Date, folder: &Path) -> (Vec<Due>, Vec<(Date, String)>) {
    let (mut due, mut unreadable) = (Vec::new(), Vec::new());
    let mut journals = earlier_journals_in::<D>(folder).unwrap_or_else(|error| {
        unreadable.push((today, error.to_string()));
        Vec::new()
    });
    journals.push(EarlierJournal { date: today, part: 1, folder: folder.to_owned() });
    for EarlierJournal { date: of, part, folder } in journals {
        match days_of_in::<D>(&folder) {
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
mod tests {
    use std::fs;

    use tapeworks_journal::{Record, segment_starts};

    use super::*;
    use tempfile::{TempDir, tempdir};

    const DAY: u64 = 86_400 * Nanos::SECOND;

    /// Noon in New York, `days` days after Monday, 2026-01-05.
    fn noon(days: u64) -> Nanos {
        Nanos(1_767_632_400 * Nanos::SECOND + days * DAY)
    }

    const SMALL: JournalOptions = JournalOptions { segment_bytes: 1_024, keep_bytes: None };

    /// Opens the journal at this time and appends this many records. Returns what it contained before.
    fn keep(folder: &TempDir, time: Nanos, records: u64) -> Opened {
        let OpenJournal { mut writer, opened } = open(folder.path(), SMALL, time).unwrap();
        for _ in 0..records {
            writer
                .append(&Record { kind: 5, time: time.0, payload: &[1; 100], ..Record::default() })
                .unwrap();
        }
        writer.sync().unwrap();
        opened
    }

    fn records(folder: &Path) -> u64 {
        tapeworks_journal::verify(folder, || true).unwrap().records
    }

    #[test]
    fn a_journal_goes_on_over_days_until_a_start_finds_its_last_record_of_an_earlier_one() {
        let folder = tempdir().unwrap();
        keep(&folder, noon(0), 20);
        // The plant keeps running into the next day.
        let mut running = open(folder.path(), SMALL, noon(0)).unwrap();
        for days in [0, 1] {
            let record = Record { kind: 5, time: noon(days).0, ..Record::default() };
            running.writer.append(&record).unwrap();
        }
        drop(running);
        // A second start on that day: no record is lost, and the numbers continue.
        assert_eq!(keep(&folder, noon(1), 1).next, 22);
        assert!(!&folder.path().join("2026-01-05").exists());
        // And one on the day after.
        assert_eq!(keep(&folder, noon(2), 3).next, 0);
        assert_eq!((records(folder.path()), records(&folder.path().join("2026-01-06"))), (3, 23));
        // A clock set to before the journal's day: the journal stays.
        assert_eq!(keep(&folder, noon(1), 0).next, 3);
        assert_eq!(records(folder.path()), 3);
    }

    #[test]
    fn a_journal_that_is_moved_aside_is_whole_and_leaves_room_for_another() {
        let folder = tempdir().unwrap();
        for number in [1, 2] {
            keep(&folder, noon(0), 20 * number);
            let to = move_aside_in::<System>(folder.path()).unwrap();
            assert_eq!(to, folder.path().join(format!("aside-{number}")));
            let verified = tapeworks_journal::verify(&to, || true).unwrap();
            assert_eq!((verified.records, verified.damage.len()), (20 * number, 0));
            assert_eq!(keep(&folder, noon(0), 0), Opened::default());
        }
        assert_eq!(earlier_journals(folder.path()).unwrap(), [], "it is no earlier day");
    }

    #[test]
    fn a_second_journal_of_a_day_leaves_the_first_alone() {
        let folder = tempdir().unwrap();
        for part in 1..4u64 {
            keep(&folder, noon(0), part);
            keep(&folder, noon(1), 0);
        }
        let of = |name: &str| records(&folder.path().join(name));
        assert_eq!((of("2026-01-05"), of("2026-01-05.2"), of("2026-01-05.3")), (1, 2, 3));
        assert_eq!(records(folder.path()), 0);
    }

    #[test]
    fn a_move_that_was_interrupted_is_ended_by_the_next_start() {
        let folder = tempdir().unwrap();
        keep(&folder, noon(0), 40);
        let starts = segment_starts(folder.path()).unwrap();
        assert!(starts.len() > 3);
        let moving = folder.path().join(MOVING);
        fs::create_dir_all(&moving).unwrap();
        for start in &starts[..2] {
            let name = format!("{start:020}.journal");
            fs::rename(folder.path().join(&name), moving.join(&name)).unwrap();
        }
        assert_eq!(keep(&folder, noon(1), 0), Opened::default());
        assert!(!moving.exists());
        let verified = tapeworks_journal::verify(&folder.path().join("2026-01-05"), || true).unwrap();
        assert_eq!((verified.records, verified.damage.len()), (40, 0));
        // Like a move that had not begun.
        fs::create_dir_all(&moving).unwrap();
        keep(&folder, noon(1), 1);
        assert!(!moving.exists());
    }

    #[test]
    fn the_names_of_days_are_read_as_they_are_written() {
        let day: Date = "2026-01-05".parse().unwrap();
        for part in [1, 2, 17] {
            assert_eq!(day_of_name(&name_of_day(day, part)), Some((day, part)));
        }
        let none = ["moving", "2026-01-05.1", "2026-01-05.x", "2026-01-05.2.3", "2026-13-05", ""];
        assert!(none.into_iter().all(|name| day_of_name(name).is_none()));
    }
}
