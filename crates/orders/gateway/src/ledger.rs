//! The gateway's journal: each turn is one record, or several if it is long, written before any of its output is sent.
//!
//! The disk's slow work (creating the next segment, syncing by interval) runs on another thread, which the host owns.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tapeworks_disk::Disk;
use tapeworks_journal::{
    Finished, IoTask, JournalError, JournalOptions, JournalWriter, Opened, Place, Record,
};
use tapeworks_planted::planted;

use crate::entry::{Entries, NO_CLAIM, PART, TURN, Written, first_part};

/// When written data survives a crash of the machine. A crash of the process never loses any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncPolicy {
    /// Before any of the turn's output is sent.
    Always,
    /// At this interval, after the output has been sent.
    Every(Duration),
    /// Whenever the operating system writes it.
    Never,
}

/// The journal of a gateway.
#[derive(Debug)]
pub struct Ledger<D: Disk> {
    writer: JournalWriter<D>,
    folder: PathBuf,
    sync: SyncPolicy,
    /// Bytes of the current turn that the writer already has.
    appended: usize,
    /// Where the turn's parts are in the journal.
    parts: Vec<Written>,
    synced_ns: u64,
    /// Whether a sync is in progress.
    is_syncing: bool,
}

impl<D: Disk> Ledger<D> {
    /// Opens the journal in `folder` for writing.
    pub(crate) fn open(
        folder: &Path,
        options: JournalOptions,
        sync: SyncPolicy,
    ) -> Result<(Self, Opened), JournalError> {
        let (mut writer, opened) = JournalWriter::open_in(folder, options)?;
        writer.leave_waiting();
        let ledger = Self {
            writer,
            folder: folder.to_owned(),
            sync,
            appended: 0,
            parts: Vec::with_capacity(4),
            synced_ns: 0,
            is_syncing: false,
        };
        Ok((ledger, opened))
    }

    /// Returns the journal's folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the number of bytes written.
    #[must_use]
    pub const fn written_bytes(&self) -> u64 {
        self.writer.written_bytes()
    }

    /// Writes a turn and returns where its parts are. After an error, call it again with the same entries.
    ///
    /// # Errors
    /// The disk is full or fails. No output of the turn may be sent.
    pub(crate) fn write(&mut self, entries: &Entries, now_ns: u64) -> Result<&[Written], JournalError> {
        let bytes = entries.bytes();
        if self.appended == 0 {
            self.parts.clear();
        }
        while let Some(rest) = bytes.get(self.appended..).filter(|rest| !rest.is_empty()) {
            let part = rest.get(..first_part(rest)).unwrap_or(rest);
            let kind = if part.len() == rest.len() { TURN } else { PART };
            let extra = self.parts.len() as u64;
            let channel = u16::try_from(self.writer.unsynced_records()).unwrap_or(NO_CLAIM);
            let record = Record { kind, channel, extra, time: now_ns, payload: part, ..Record::default() };
            self.writer.append(&record)?;
            let end = self.writer.place();
            let place = Place { offset: end.offset.saturating_sub(part.len() as u64), ..end };
            self.parts.push(Written { from: self.appended, place });
            self.appended += part.len();
        }
        match self.sync {
            SyncPolicy::Always if !planted!("turn-not-synced") => self.writer.sync()?,
            SyncPolicy::Always | SyncPolicy::Every(_) | SyncPolicy::Never => self.writer.flush()?,
        }
        self.appended = 0;
        Ok(&self.parts)
    }

    /// Checks that the store's files are still in place.
    ///
    /// # Errors
    /// A file was removed or replaced: see [`JournalWriter::look_after_files`].
    pub(crate) fn look_after_files(&self) -> Result<(), JournalError> {
        self.writer.look_after_files()
    }

    /// Cuts the journal off at a hole, from record `number` on.
    pub(crate) fn cut_from(&mut self, number: u64) -> Result<Option<PathBuf>, JournalError> {
        self.writer.cut_from(number)
    }

    /// Returns work that another thread is to do now. `steady_ns` is from a clock that cannot be set.
    pub(crate) fn task(&mut self, steady_ns: u64) -> Option<IoTask<D>> {
        if let Some(task) = self.writer.begin_next_segment() {
            return Some(task);
        }
        let SyncPolicy::Every(interval) = self.sync else { return None };
        let is_due = u128::from(steady_ns.saturating_sub(self.synced_ns)) >= interval.as_nanos();
        if self.is_syncing || !is_due || planted!("interval-not-synced") {
            return None;
        }
        self.synced_ns = steady_ns;
        // A failed flush is retried by the next turn, which reports it.
        let task = self.writer.begin_sync().ok().flatten();
        self.is_syncing = task.is_some();
        task
    }

    /// Takes back a finished task.
    ///
    /// # Errors
    /// The disk failed to sync: data written since the last sync may not survive a crash of the machine.
    pub(crate) fn finish(&mut self, finished: Finished<D>) -> Result<(), JournalError> {
        self.is_syncing = false;
        self.writer.finish(finished)
    }

    /// Waits until everything is on disk.
    pub(crate) fn end(&mut self) -> Result<(), JournalError> {
        self.writer.sync()
    }
}
