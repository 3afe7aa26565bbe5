//! The gateway's journal: each turn is one record, or several if it is long, written before anything of it is sent.
//!
//! The disk's slow work (making the next segment, syncing by interval) is for another thread, which the host has.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tapeworks_disk::Disk;
use tapeworks_journal::{
    Finished, IoTask, JournalError, JournalOptions, JournalWriter, Opened, Place, Record,
};
use tapeworks_planted::planted;

use crate::entry::{Entries, NO_CLAIM, PART, TURN, Written, first_part};

/// When what was written survives a crash of the machine. A crash of the process loses nothing in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncPolicy {
    /// Before anything of it is sent.
    Always,
    /// So long after it was sent.
    Every(Duration),
    /// When the system likes.
    Never,
}

/// The journal of a gateway.
#[derive(Debug)]
pub struct Ledger<D: Disk> {
    writer: JournalWriter<D>,
    folder: PathBuf,
    sync: SyncPolicy,
    /// Bytes of the turn that the writer has.
    appended: usize,
    /// Where its parts are.
    parts: Vec<Written>,
    synced_ns: u64,
    /// A sync is under way.
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

    /// Where it is.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Bytes written.
    #[must_use]
    pub const fn written_bytes(&self) -> u64 {
        self.writer.written_bytes()
    }

    /// Writes a turn. Returns where its parts are. After an error it is called again with the same entries.
    ///
    /// # Errors
    /// The disk is full or fails. Nothing of the turn may be sent.
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

    /// Looks whether the files of the store are where they were.
    ///
    /// # Errors
    /// One was removed or replaced: see [`JournalWriter::look_after_files`].
    pub(crate) fn look_after_files(&self) -> Result<(), JournalError> {
        self.writer.look_after_files()
    }

    /// Cuts the journal off at a hole.
    pub(crate) fn cut_from(&mut self, number: u64) -> Result<Option<PathBuf>, JournalError> {
        self.writer.cut_from(number)
    }

    /// Work that another thread is to do now, by a clock that cannot be set.
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
        // A flush that fails is tried again with the next turn, which reports it.
        let task = self.writer.begin_sync().ok().flatten();
        self.is_syncing = task.is_some();
        task
    }

    /// The work is done.
    ///
    /// # Errors
    /// The disk failed to sync: what was written since may not survive a crash of the machine.
    pub(crate) fn finish(&mut self, finished: Finished<D>) -> Result<(), JournalError> {
        self.is_syncing = false;
        self.writer.finish(finished)
    }

    /// Waits until the disk has everything.
    pub(crate) fn end(&mut self) -> Result<(), JournalError> {
        self.writer.sync()
    }
}
