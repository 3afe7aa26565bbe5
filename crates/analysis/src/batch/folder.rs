//! The folder of a batch: its lock, its settings, finished tasks, and tasks under way.
//!
//! | under `.tasks` | what it is |
//! | --- | --- |
//! | `run` | locked by the run that works here |
//! | `lock` | locked by that run, except while its executor [shares](Folder::share) the folder; by all that do one task each, together |
//! | `settings.json` | what the results were made with |
//! | `NAME.json` | a finished task: its [`Record`] |
//! | `NAME.work` | the files of a task under way |
//! | `NAME.publishing` | the record of a task whose files are being moved into the partitions |
//! | `NAME.lock` | locked by the process that does this task |
//!
//! Order on the disk: the files are whole in `NAME.work`; `NAME.publishing` names them; they are moved; `NAME.publishing` becomes
//! `NAME.json`. A run that finds `NAME.publishing` removes the files that it names.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;
use tapeworks_packet::new_file::{NewFile, NewFileError};

use super::manifest::{MANIFEST, Record};
use super::{BatchError, Settings};

/// The folder of what is no result.
const TASKS: &str = ".tasks";

/// How often a process looks again at settings that another one is writing.
const LOOKS: u32 = 200;

/// The time between two of these looks.
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);

/// How often a task tries to move a file into a folder that other tasks remove while it is empty.
const MOVES: u32 = 10_000;

/// What a process does in the folder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// The whole run: alone.
    Alone,
    /// Single tasks, beside other processes that do others.
    OneTask,
}

/// The folder, open for this process.
#[derive(Debug)]
pub struct Folder {
    root: PathBuf,
    /// Locked, except while the folder is shared.
    lock: File,
    is_shared: AtomicBool,
    /// Open, and so locked; `None` for a process that does one task.
    _run: Option<File>,
}

/// Where `path` leads below `root`, if it stays there.
fn below(root: &Path, path: &Path) -> Option<PathBuf> {
    let is_plain = path.components().all(|part| matches!(part, std::path::Component::Normal(_)));
    is_plain.then(|| root.join(path))
}

/// Waits until the disk has the names of a folder.
fn sync_folder(folder: &Path) -> io::Result<()> {
    match File::open(folder).and_then(|folder| folder.sync_all()) {
        // A file system that does not sync folders.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        synced => synced,
    }
}

fn read(path: &Path) -> Result<Option<Vec<u8>>, BatchError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(BatchError::io(path, "cannot be read")(error)),
    }
}

fn parse<T: serde::de::DeserializeOwned>(path: &Path, bytes: &[u8]) -> Result<T, BatchError> {
    let damaged =
        |error: serde_json::Error| BatchError::Damaged { path: path.to_owned(), why: error.to_string() };
    serde_json::from_slice(bytes).map_err(damaged)
}

/// Writes a whole file, in place of an earlier one if `overwrite` says so.
fn write(path: &Path, text: &str, overwrite: bool) -> Result<(), BatchError> {
    let file = NewFile::create(path, overwrite)?;
    let written = file.handle().and_then(|mut handle| handle.write_all(text.as_bytes()));
    written.map_err(BatchError::io(path, "cannot be written"))?;
    file.finish()?;
    Ok(())
}

/// Moves a file into a folder, which is made if it is not there. Another task removes the folder if it is empty just then.
fn move_file(from: &Path, to: &Path) -> io::Result<()> {
    let folder = to.parent().unwrap_or(to);
    let mut moved = Ok(());
    for _ in 0..MOVES {
        moved = fs::create_dir_all(folder).and_then(|()| fs::rename(from, to));
        match &moved {
            // The second: `create_dir_all` found the folder, and then found it gone.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists) => {}
            _ => break,
        }
    }
    moved
}

/// Removes a file that may be gone.
fn remove(path: &Path) -> Result<(), BatchError> {
    match fs::remove_file(path) {
        // The second: a file is where its folder would be.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(())
        }
        removed => removed.map_err(BatchError::io(path, "cannot be removed")),
    }
}

impl Folder {
    /// Opens the folder at `root`, or makes it. With [`Access::Alone`] it removes what a killed run has left. With `force`, results of
    /// other settings are removed too.
    ///
    /// # Errors
    /// [`BatchError::Busy`], [`BatchError::OtherSettings`], [`BatchError::Io`].
    pub fn open(root: &Path, settings: &Settings, access: Access, force: bool) -> Result<Self, BatchError> {
        let tasks = root.join(TASKS);
        fs::create_dir_all(&tasks).map_err(BatchError::io(&tasks, "cannot be made"))?;
        let lock = |name: &str| {
            let file = open_lock(&tasks.join(name))?;
            lock(&file, &tasks.join(name), access, || BatchError::Busy { folder: root.to_owned() })?;
            Ok::<_, BatchError>(file)
        };
        let run = (access == Access::Alone).then(|| lock("run")).transpose()?;
        let folder =
            Self { root: root.to_owned(), lock: lock("lock")?, is_shared: AtomicBool::new(false), _run: run };
        if access == Access::Alone {
            folder.recover()?;
        }
        folder.settle(settings, access == Access::Alone && force)?;
        Ok(folder)
    }

    fn lock_path(&self) -> PathBuf {
        self.root.join(TASKS).join("lock")
    }

    /// Lets other processes do single tasks here ([`Access::OneTask`]), until the executor that calls this has ended. Another run is
    /// refused all the time.
    ///
    /// # Errors
    /// [`BatchError::Io`].
    pub fn share(&self) -> Result<(), BatchError> {
        self.is_shared.store(true, Ordering::Relaxed);
        self.lock.unlock().map_err(BatchError::io(&self.lock_path(), "cannot be unlocked"))
    }

    /// Has the folder alone again.
    ///
    /// # Errors
    /// [`BatchError::Busy`] when a process still does a task here.
    pub(super) fn take_back(&self) -> Result<(), BatchError> {
        if !self.is_shared.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        let busy = || BatchError::Busy { folder: self.root.clone() };
        lock(&self.lock, &self.lock_path(), Access::Alone, busy)
    }

    /// Where it is.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    fn task_file(&self, name: &str, ending: &str) -> PathBuf {
        self.root.join(TASKS).join(format!("{name}.{ending}"))
    }

    /// The names of the tasks that have a file or folder with this ending, sorted.
    fn names(&self, ending: &str) -> Result<Vec<String>, BatchError> {
        let tasks = self.root.join(TASKS);
        let unreadable = || BatchError::io(&tasks, "cannot be read");
        let mut names = Vec::new();
        for entry in fs::read_dir(&tasks).map_err(unreadable())? {
            let name = entry.map_err(unreadable())?.file_name().to_string_lossy().into_owned();
            if let Some(name) = name.strip_suffix(ending).and_then(|name| name.strip_suffix('.')) {
                names.push(name.to_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    /// Removes what a killed run has left: files that are half published, files under way, locks.
    fn recover(&self) -> Result<(), BatchError> {
        for name in self.names("publishing")? {
            let path = self.task_file(&name, "publishing");
            if let Some(bytes) = read(&path)? {
                self.remove_outputs(&parse(&path, &bytes)?)?;
            }
            remove(&path)?;
        }
        for name in self.names("work")? {
            let path = self.task_file(&name, "work");
            fs::remove_dir_all(&path).map_err(BatchError::io(&path, "cannot be removed"))?;
        }
        for ending in ["lock", "partial"] {
            for name in self.names(ending)? {
                remove(&self.task_file(&name, ending))?;
            }
        }
        remove(&self.root.join(format!("{MANIFEST}.partial")))
    }

    /// Compares the settings with those of the results, or keeps them if there are none.
    fn settle(&self, settings: &Settings, force: bool) -> Result<(), BatchError> {
        let path = self.root.join(TASKS).join("settings.json");
        let text = format!("{:#}\n", settings.to_value());
        for _ in 0..LOOKS {
            let Some(bytes) = read(&path)? else {
                match write(&path, &text, false) {
                    Ok(()) => return Ok(()),
                    // Another process that does a task here writes them.
                    Err(BatchError::NewFile(NewFileError::Exists { .. } | NewFileError::Busy { .. })) => {
                        std::thread::sleep(BETWEEN_LOOKS);
                        continue;
                    }
                    Err(error) => return Err(error),
                }
            };
            let differences = settings.differences(&parse::<Value>(&path, &bytes)?);
            if differences.is_empty() {
                return Ok(());
            }
            if !force {
                let differences = differences.join("; ");
                return Err(BatchError::OtherSettings { folder: self.root.clone(), differences });
            }
            self.remove_manifest()?;
            for name in self.names("json")?.iter().filter(|name| *name != "settings") {
                self.withdraw(name)?;
            }
            return write(&path, &text, true);
        }
        Err(BatchError::Busy { folder: self.root.clone() })
    }

    /// The files that a record names, whatever settings it is of.
    fn remove_outputs(&self, record: &Value) -> Result<(), BatchError> {
        let outputs = record.get("outputs").and_then(Value::as_array);
        let paths = outputs.into_iter().flatten().filter_map(|output| output.get("path")?.as_str());
        for path in paths.filter_map(|path| below(&self.root, Path::new(path))) {
            remove(&path)?;
            // Partitions that are empty now go; another task may have a file in one.
            for folder in path.ancestors().skip(1).take(3) {
                if fs::remove_dir(folder).is_err() {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Removes the results of a finished task, if there are some.
    ///
    /// # Errors
    /// [`BatchError::Io`], [`BatchError::Damaged`].
    pub(super) fn withdraw(&self, name: &str) -> Result<(), BatchError> {
        let path = self.task_file(name, "json");
        if let Some(bytes) = read(&path)? {
            self.remove_outputs(&parse(&path, &bytes)?)?;
            remove(&path)?;
        }
        Ok(())
    }

    /// The record of a finished task.
    ///
    /// # Errors
    /// [`BatchError::Io`], [`BatchError::Damaged`].
    pub fn finished(&self, name: &str) -> Result<Option<Record>, BatchError> {
        let path = self.task_file(name, "json");
        read(&path)?.map(|bytes| parse(&path, &bytes)).transpose()
    }

    /// The records of all finished tasks, by name.
    ///
    /// # Errors
    /// [`BatchError::Io`], [`BatchError::Damaged`].
    pub fn all_finished(&self) -> Result<BTreeMap<String, Record>, BatchError> {
        let mut records = BTreeMap::new();
        for name in self.names("json")?.into_iter().filter(|name| name != "settings") {
            if let Some(record) = self.finished(&name)? {
                records.insert(name, record);
            }
        }
        Ok(records)
    }

    /// Locks a task for this process, beside others in the folder. The lock ends when the file is closed.
    ///
    /// # Errors
    /// [`BatchError::TaskBusy`] when another process does it.
    pub fn lock_task(&self, name: &str) -> Result<File, BatchError> {
        let path = self.task_file(name, "lock");
        let file = open_lock(&path)?;
        lock(&file, &path, Access::Alone, || BatchError::TaskBusy { task: name.to_owned() })?;
        // What a killed process has left of this task.
        let publishing = self.task_file(name, "publishing");
        if let Some(bytes) = read(&publishing)? {
            self.remove_outputs(&parse(&publishing, &bytes)?)?;
            remove(&publishing)?;
        }
        remove(&self.task_file(name, "publishing.partial"))?;
        Ok(file)
    }

    /// Begins a task: its earlier results are removed. Returns the folder for its files, which is empty.
    pub(super) fn begin(&self, name: &str) -> Result<PathBuf, BatchError> {
        self.withdraw(name)?;
        let work = self.task_file(name, "work");
        self.end(&work);
        fs::create_dir(&work).map_err(BatchError::io(&work, "cannot be made"))?;
        Ok(work)
    }

    /// Removes the folder of a task's files, with those that are not published.
    pub(super) fn end(&self, work: &Path) {
        // What cannot be removed now is removed by the next run.
        let _left_behind_at_worst = fs::remove_dir_all(work);
    }

    /// Moves the files of a task from `work` into the partitions, and records it as finished. All of them, or none.
    pub(super) fn publish(&self, record: &Record, work: &Path) -> Result<(), BatchError> {
        let name = &record.task.name;
        let (publishing, finished) = (self.task_file(name, "publishing"), self.task_file(name, "json"));
        let published = self.publish_all(record, work, &publishing, &finished);
        if published.is_err() {
            let removed = self.remove_outputs(&record.to_value()).and_then(|()| remove(&finished));
            // What cannot be removed now is removed by the next run, as `publishing` is still there.
            let _left_behind_at_worst = removed.and_then(|()| remove(&publishing));
        }
        published
    }

    fn publish_all(
        &self,
        record: &Record,
        work: &Path,
        publishing: &Path,
        finished: &Path,
    ) -> Result<(), BatchError> {
        let text = serde_json::to_string_pretty(record)
            .map_err(|error| BatchError::Damaged { path: finished.to_owned(), why: error.to_string() })?;
        write(publishing, &format!("{text}\n"), true)?;
        let mut folders = BTreeSet::new();
        for output in &record.outputs {
            let path = self.root.join(&output.path);
            move_file(&work.join(&output.path), &path)
                .map_err(BatchError::io(&path, "cannot be moved here"))?;
            // The bucket, the date, the schema, and the root, which may all be new.
            folders.extend(path.ancestors().skip(1).take(4).map(Path::to_owned));
        }
        for folder in folders {
            sync_folder(&folder).map_err(BatchError::io(&folder, "cannot be synced"))?;
        }
        fs::rename(publishing, finished).map_err(BatchError::io(finished, "cannot be moved here"))?;
        let tasks = self.root.join(TASKS);
        sync_folder(&tasks).map_err(BatchError::io(&tasks, "cannot be synced"))
    }

    /// Removes the manifest: it is of all results, which are about to change.
    pub(super) fn remove_manifest(&self) -> Result<(), BatchError> {
        remove(&self.root.join(MANIFEST))
    }

    /// Writes the manifest. Returns where.
    pub(super) fn write_manifest(&self, text: &str) -> Result<PathBuf, BatchError> {
        let path = self.root.join(MANIFEST);
        write(&path, text, true)?;
        Ok(path)
    }
}

/// Opens a file to lock it.
fn open_lock(path: &Path) -> Result<File, BatchError> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
    file.map_err(BatchError::io(path, "cannot be locked"))
}

/// Locks the file at `path`: alone, or together with others.
fn lock(
    file: &File,
    path: &Path,
    access: Access,
    busy: impl FnOnce() -> BatchError,
) -> Result<(), BatchError> {
    let locked = match access {
        Access::Alone => file.try_lock(),
        Access::OneTask => file.try_lock_shared(),
    };
    match locked {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(busy()),
        Err(TryLockError::Error(error)) => Err(BatchError::io(path, "cannot be locked")(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::OutputRecord;
    use crate::batch::task::tests::task;

    /// A record with a file in each of some buckets.
    fn record(buckets: u16) -> Record {
        let output = |bucket| OutputRecord {
            path: format!("schema=mbo/date=2025-11-14/bucket={bucket:02}/nasdaq.parquet").into(),
            schema: "mbo".to_owned(),
            bucket,
            records: 1,
            bytes: 4,
            sha256: String::new(),
            values_out_of_range: 0,
        };
        Record {
            task: task(),
            channels: Vec::new(),
            inputs: Vec::new(),
            outputs: (0..buckets).map(output).collect(),
            gaps: Vec::new(),
            missing_messages: 0,
            damaged_files: Vec::new(),
            unseen_symbols: Vec::new(),
            is_clean: true,
            report: Value::Null,
        }
    }

    /// Makes the files of a record and publishes them.
    fn publish(folder: &Folder, record: &Record) -> Result<(), BatchError> {
        let work = folder.begin(&record.task.name).unwrap();
        for output in &record.outputs {
            let path = work.join(&output.path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "made").unwrap();
        }
        let published = folder.publish(record, &work);
        folder.end(&work);
        published
    }

    #[test]
    fn a_run_that_shares_its_folder_admits_tasks_and_no_other_run() {
        let (root, settings) = (tempfile::tempdir().unwrap(), task().settings);
        let open = |access| Folder::open(root.path(), &settings, access, false);
        let is_busy = |opened| matches!(opened, Err(BatchError::Busy { .. }));
        let run = open(Access::Alone).unwrap();
        assert!(is_busy(open(Access::Alone)) && is_busy(open(Access::OneTask)));
        run.share().unwrap();
        let tasks = [open(Access::OneTask).unwrap(), open(Access::OneTask).unwrap()];
        assert!(is_busy(open(Access::Alone)));
        assert!(matches!(run.take_back(), Err(BatchError::Busy { .. })));
        drop(tasks);
        assert!(is_busy(open(Access::Alone)));
        run.share().unwrap();
        run.take_back().unwrap();
        assert!(is_busy(open(Access::Alone)) && is_busy(open(Access::OneTask)));
        drop(run);
        open(Access::OneTask).unwrap();
        open(Access::Alone).unwrap();
    }

    #[test]
    fn a_task_whose_files_cannot_all_be_published_leaves_none() {
        let root = tempfile::tempdir().unwrap();
        let record = record(3);
        let folder = Folder::open(root.path(), &record.task.settings, Access::Alone, false).unwrap();
        let date = root.path().join("schema=mbo/date=2025-11-14");
        fs::create_dir_all(&date).unwrap();
        let obstacle = date.join("bucket=01");
        fs::write(&obstacle, "a file").unwrap();
        let refused = publish(&folder, &record).unwrap_err();
        assert!(matches!(&refused, BatchError::Io { path, .. } if path.starts_with(&obstacle)), "{refused}");
        let found: Vec<PathBuf> = fs::read_dir(&date).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(found, std::slice::from_ref(&obstacle));
        assert!(folder.all_finished().unwrap().is_empty());
        assert!(folder.names("publishing").unwrap().is_empty());
        // Once the obstacle is gone, so is the error.
        fs::remove_file(&obstacle).unwrap();
        publish(&folder, &record).unwrap();
        assert_eq!(folder.finished(&record.task.name).unwrap(), Some(record.clone()));
        assert!(record.outputs.iter().all(|output| root.path().join(&output.path).exists()));
    }

    #[test]
    fn a_task_moves_its_file_into_a_folder_that_another_removes_while_it_is_empty() {
        let root = tempfile::tempdir().unwrap();
        let (from, bucket) =
            (root.path().join("made"), root.path().join("schema=mbo/date=2025-11-14/bucket=00"));
        let to = bucket.join("nasdaq.parquet");
        fs::write(&from, "made").unwrap();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let _another_file_is_in_it = bucket.ancestors().take(3).try_for_each(fs::remove_dir);
                }
            });
            let moves =
                (0..5_000).try_for_each(|_| move_file(&from, &to).and_then(|()| fs::rename(&to, &from)));
            is_over.store(true, Ordering::Relaxed);
            moves.unwrap();
        });
        // What cannot be moved at all is an error.
        assert!(move_file(&root.path().join("nowhere"), &to).is_err());
    }
}
