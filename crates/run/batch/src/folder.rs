//! The folder of a batch: its lock, its settings, its finished tasks, and its tasks in progress.
//!
//! | under `.tasks` | what it is |
//! | --- | --- |
//! | `run` | locked by the run that works here |
//! | `lock` | locked by that run, except while its executor [shares](Folder::share) the folder; shared by processes that do one task each |
//! | `settings.json` | the settings that the results were made with |
//! | `NAME.json` | a finished task: its [`Record`] |
//! | `NAME.work` | the files of a task in progress |
//! | `NAME.publishing` | the record of a task whose files are being moved into the partitions |
//! | `NAME.lock` | locked by the process that does this task |
//!
//! Order of writes: the files are complete in `NAME.work`; `NAME.publishing` lists them; they are moved; `NAME.publishing` is renamed
//! to `NAME.json`. A run that finds `NAME.publishing` removes the files that it lists.
//!
//! Below an address the same names are objects. `run` is a lease (`lease.rs`), there is no other lock, and the files of a task in
//! progress are in a local folder.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;

use super::hash::{hash, hash_of};
#[cfg(feature = "cloud")]
use super::lease::Lease;
use super::manifest::{MANIFEST, OutputRecord, Record};
use super::place::Place;
use super::staging::Staging;
use super::{BatchError, Settings};

/// The folder for everything that is not a result.
const TASKS: &str = ".tasks";

/// How often a process rereads settings that another process is writing.
const LOOKS: u32 = 200;

/// The pause between two of these reads.
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);

/// What a process does in the folder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// A whole run, exclusively.
    Alone,
    /// Single tasks, concurrently with other processes that do other tasks.
    OneTask,
}

/// The folder, opened by this process.
#[derive(Debug)]
pub struct Folder {
    place: Place,
    held: Held,
    /// Where tasks keep their files if the results are below an address, once a task has started.
    staging: Mutex<Option<Staging>>,
    /// The folder in which that is created.
    staged_in: Option<PathBuf>,
}

/// What excludes other runs.
#[derive(Debug)]
enum Held {
    Disk {
        /// Locked, except while the folder is shared.
        lock: File,
        is_shared: AtomicBool,
        /// Open, and so locked; `None` for a process that does one task.
        _run: Option<File>,
    },
    /// `None` for a process that does one task. Two processes that do the same task upload the same objects.
    #[cfg(feature = "cloud")]
    Cloud(Option<Lease>),
}

/// Excludes other processes from a task.
#[derive(Debug)]
pub struct TaskLock {
    /// Open, and so locked; `None` in a store, which has no locks.
    _file: Option<File>,
}

/// Whether `path` stays below the folder.
fn is_below(path: &Path) -> bool {
    path.components().all(|part| matches!(part, std::path::Component::Normal(_)))
}

/// The records of the finished tasks of a folder, by name.
#[derive(Debug, Default)]
pub struct Finished {
    /// The readable records.
    pub records: BTreeMap<String, Record>,
    /// Why the other records cannot be read.
    pub damaged: BTreeMap<String, String>,
}

/// Parses a record of any settings. A damaged record yields `Null`: the names of its files are lost.
fn parse_or_null(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap_or_default()
}

/// Returns the name of a task's file under `.tasks`.
fn task_file(name: &str, ending: &str) -> PathBuf {
    Path::new(TASKS).join(format!("{name}.{ending}"))
}

impl Folder {
    /// Opens or creates the folder at `root`. With [`Access::Alone`] it removes what a killed run has left. With `force`, it also removes
    /// results of other settings. With the feature `cloud`, `root` may be an address such as `s3://bucket/days`.
    ///
    /// # Errors
    /// [`BatchError::Busy`], [`BatchError::OtherSettings`], [`BatchError::Io`], [`BatchError::NoCloud`], `BatchError::Cloud`.
    pub fn open(root: &Path, settings: &Settings, access: Access, force: bool) -> Result<Self, BatchError> {
        let place = Place::new(root)?;
        let held = hold(&place, access)?;
        let folder = Self { place, held, staging: Mutex::default(), staged_in: None };
        if access == Access::Alone {
            folder.recover()?;
        }
        folder.settle(settings, access == Access::Alone && force)?;
        Ok(folder)
    }

    /// Makes tasks keep their files in `work` instead of the system's temporary folder, if the results are objects. A task keeps its
    /// objects and its results there while it is in progress.
    #[must_use]
    pub fn staged_in(mut self, work: Option<PathBuf>) -> Self {
        self.staged_in = work;
        self
    }

    /// Lets other processes do single tasks here ([`Access::OneTask`]), until the executor that calls this has ended. Other runs are
    /// still refused.
    ///
    /// # Errors
    /// [`BatchError::Io`].
    pub fn share(&self) -> Result<(), BatchError> {
        match &self.held {
            Held::Disk { lock, is_shared, .. } => {
                is_shared.store(true, Ordering::Relaxed);
                lock.unlock().map_err(BatchError::io(&lock_path(&self.place), "cannot be unlocked"))
            }
            #[cfg(feature = "cloud")]
            Held::Cloud(_) => Ok(()),
        }
    }

    /// Takes exclusive access again.
    ///
    /// # Errors
    /// [`BatchError::Busy`] if a process is still doing a task here, or another run has taken over.
    pub(super) fn take_back(&self) -> Result<(), BatchError> {
        match &self.held {
            Held::Disk { is_shared, .. } if !is_shared.swap(false, Ordering::Relaxed) => Ok(()),
            Held::Disk { lock: file, .. } => {
                lock(file, &lock_path(&self.place), Access::Alone, || busy(&self.place))
            }
            #[cfg(feature = "cloud")]
            Held::Cloud(_) => self.check(),
        }
    }

    /// Fails if another run has taken over, before anything is changed. In a store this costs a request.
    #[allow(clippy::unnecessary_wraps)]
    fn check(&self) -> Result<(), BatchError> {
        match &self.held {
            #[cfg(feature = "cloud")]
            Held::Cloud(Some(lease)) if !lease.is_held()? => Err(busy(&self.place)),
            _ => Ok(()),
        }
    }

    /// Returns its location: a folder, or an address.
    #[must_use]
    pub fn root(&self) -> &Path {
        self.place.root()
    }

    /// Whether these files exist in the folder with the sizes recorded.
    pub(super) fn has(&self, outputs: &[OutputRecord]) -> Result<bool, BatchError> {
        Ok(self.have(&[outputs])?.iter().all(|has| *has))
    }

    /// The same for the files of several records, in order.
    pub(super) fn have(&self, records: &[&[OutputRecord]]) -> Result<Vec<bool>, BatchError> {
        let names: Vec<PathBuf> =
            records.iter().copied().flatten().map(|output| output.path.clone()).collect();
        let mut sizes = self.place.sizes(&names)?.into_iter();
        let has = |outputs: &&[OutputRecord]| {
            let those: Vec<Option<u64>> = sizes.by_ref().take(outputs.len()).collect();
            those.iter().zip(*outputs).all(|(size, output)| *size == Some(output.bytes))
        };
        Ok(records.iter().map(has).collect())
    }

    /// Returns the names of the tasks that have a file or folder with this suffix, sorted.
    fn names(&self, ending: &str) -> Result<Vec<String>, BatchError> {
        let names = self.place.names(TASKS)?;
        let those = names.iter().filter_map(|name| name.strip_suffix(ending)?.strip_suffix('.'));
        Ok(those.map(str::to_owned).collect())
    }

    /// Removes what a killed run has left: partly published files, work files, locks.
    fn recover(&self) -> Result<(), BatchError> {
        for name in self.names("publishing")? {
            self.remove_publishing(&name)?;
        }
        if self.place.is_cloud() {
            return Ok(());
        }
        for name in self.names("work")? {
            let path = self.place.path(task_file(&name, "work"));
            fs::remove_dir_all(&path).map_err(BatchError::io(&path, "cannot be removed"))?;
        }
        for ending in ["lock", "partial"] {
            for name in self.names(ending)? {
                self.place.remove(&task_file(&name, ending))?;
            }
        }
        self.place.remove(Path::new(&format!("{MANIFEST}.partial")))
    }

    /// Removes a task's files that a killed process has partly published or partly withdrawn.
    fn remove_publishing(&self, name: &str) -> Result<(), BatchError> {
        let (publishing, finished) = (task_file(name, "publishing"), task_file(name, "json"));
        let Some(bytes) = self.place.read(&publishing)? else { return Ok(()) };
        // A rename in a store first puts the record under its new name, and then removes the old one.
        if let Some(record) = self.place.read(&finished)? {
            let whole = serde_json::from_slice::<Record>(&record).ok().filter(|_| record == bytes);
            if let Some(whole) = whole
                && self.has(&whole.outputs)?
            {
                return self.place.remove(&publishing);
            }
            // The record goes first: a finished task must have its files.
            self.place.remove(&finished)?;
            self.remove_outputs(&parse_or_null(&record))?;
        }
        self.remove_outputs(&parse_or_null(&bytes))?;
        self.place.remove(&publishing)
    }

    /// Compares the settings with those of the results, or stores them if there are none.
    fn settle(&self, settings: &Settings, force: bool) -> Result<(), BatchError> {
        let path = Path::new(TASKS).join("settings.json");
        let text = format!("{:#}\n", settings.to_value());
        for _ in 0..LOOKS {
            let Some(bytes) = self.place.read(&path)? else {
                if self.place.write(&path, text.as_bytes(), false)? {
                    return Ok(());
                }
                // Another process that does a task here is writing them.
                std::thread::sleep(BETWEEN_LOOKS);
                continue;
            };
            let differences = match serde_json::from_slice(&bytes) {
                Ok(earlier) => settings.differences(&earlier),
                Err(error) => vec![format!("{} is damaged: {error}", self.place.path(&path).display())],
            };
            if differences.is_empty() {
                return Ok(());
            }
            if !force {
                let differences = differences.join("; ");
                return Err(BatchError::OtherSettings { folder: self.root().to_owned(), differences });
            }
            self.remove_manifest()?;
            for name in self.names("json")?.iter().filter(|name| *name != "settings") {
                self.withdraw(name)?;
            }
            return self.place.write(&path, text.as_bytes(), true).map(|_| ());
        }
        Err(busy(&self.place))
    }

    /// Removes the files that a record lists, whatever its settings.
    fn remove_outputs(&self, record: &Value) -> Result<(), BatchError> {
        let outputs = record.get("outputs").and_then(Value::as_array);
        let paths = outputs.into_iter().flatten().filter_map(|output| output.get("path")?.as_str());
        for path in paths.map(Path::new).filter(|path| is_below(path)) {
            self.place.remove(path)?;
            // Remove partitions that are now empty; another task may have a file in one.
            self.place.remove_empty_above(path, 3);
        }
        Ok(())
    }

    /// Removes the results of a finished task, if any. The files of a damaged record are unknown: they stay until the task is done again,
    /// which replaces them.
    ///
    /// # Errors
    /// [`BatchError::Io`].
    pub(super) fn withdraw(&self, name: &str) -> Result<(), BatchError> {
        self.check()?;
        let (publishing, finished) = (task_file(name, "publishing"), task_file(name, "json"));
        if let Some(bytes) = self.place.read(&finished)? {
            let record = parse_or_null(&bytes);
            // A run that is killed after this point leaves no record of missing files.
            self.place.rename(&finished, &publishing, &bytes)?;
            self.remove_outputs(&record)?;
            self.place.remove(&publishing)?;
        }
        Ok(())
    }

    /// Returns the record of a finished task; `None` if it is missing or damaged, so that the task is done again.
    ///
    /// # Errors
    /// [`BatchError::Io`].
    pub fn finished(&self, name: &str) -> Result<Option<Record>, BatchError> {
        let bytes = self.place.read(&task_file(name, "json"))?;
        Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }

    /// Returns the records of all finished tasks.
    ///
    /// # Errors
    /// [`BatchError::Io`].
    pub fn all_finished(&self) -> Result<Finished, BatchError> {
        let mut names = self.names("json")?;
        names.retain(|name| name != "settings");
        let paths: Vec<PathBuf> = names.iter().map(|name| task_file(name, "json")).collect();
        let mut all = Finished::default();
        for ((name, path), bytes) in names.into_iter().zip(&paths).zip(self.place.read_all(&paths)?) {
            match bytes.map(|bytes| serde_json::from_slice(&bytes)) {
                Some(Ok(record)) => _ = all.records.insert(name, record),
                Some(Err(error)) => {
                    let why = format!("{} is damaged: {error}", self.place.path(path).display());
                    all.damaged.insert(name, why);
                }
                None => {}
            }
        }
        Ok(all)
    }

    /// Whether the files of a record still have the recorded contents; `None` if `observe` stops the check. A missing or unreadable file
    /// counts as damaged; a store's object that cannot be read does not.
    ///
    /// # Errors
    /// [`BatchError`] of the store.
    pub(super) fn is_sound(
        &self,
        outputs: &[OutputRecord],
        observe: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<Option<bool>, BatchError> {
        for output in outputs {
            let hashed = match self.place.is_cloud() {
                false => match hash(&self.place.path(&output.path), observe).transpose() {
                    Some(hashed) => hashed.ok(),
                    None => return Ok(None),
                },
                true => self.place.read(&output.path)?.map(|bytes| hash_of(&bytes)),
            };
            if hashed.as_ref() != Some(&output.sha256) {
                return Ok(Some(false));
            }
        }
        Ok(Some(true))
    }

    /// Locks a task for this process, which may run beside others in the folder. Dropping the lock releases it. A store has no locks:
    /// there two processes may do the same task and upload the same objects.
    ///
    /// # Errors
    /// [`BatchError::TaskBusy`] when another process is running it.
    pub fn lock_task(&self, name: &str) -> Result<TaskLock, BatchError> {
        if self.place.is_cloud() {
            return Ok(TaskLock { _file: None });
        }
        let path = self.place.path(task_file(name, "lock"));
        let file = open_lock(&path)?;
        lock(&file, &path, Access::Alone, || BatchError::TaskBusy { task: name.to_owned() })?;
        // Remove what a killed process has left of this task.
        self.remove_publishing(name)?;
        self.place.remove(&task_file(name, "publishing.partial"))?;
        Ok(TaskLock { _file: Some(file) })
    }

    /// Starts a task by removing its earlier results. Returns an empty local folder for its files.
    pub(super) fn begin(&self, name: &str) -> Result<PathBuf, BatchError> {
        self.withdraw(name)?;
        let work = if self.place.is_cloud() {
            // Remove what a killed worker of this run has left of the task.
            self.remove_publishing(name)?;
            let mut staging = self.staging.lock().unwrap_or_else(PoisonError::into_inner);
            let staging = match &mut *staging {
                Some(staging) => staging,
                none => none.insert(Staging::new(self.staged_in.as_deref())?),
            };
            staging.folder().join(format!("{name}.work"))
        } else {
            self.place.path(task_file(name, "work"))
        };
        self.end(&work);
        fs::create_dir(&work).map_err(BatchError::io(&work, "cannot be made"))?;
        Ok(work)
    }

    /// Removes a task's work folder, including unpublished files.
    #[allow(clippy::unused_self)]
    pub(super) fn end(&self, work: &Path) {
        // What cannot be removed now is removed by the next run.
        let _left_behind_at_worst = fs::remove_dir_all(work);
    }

    /// Moves a task's files from `work` into the partitions and records the task as finished: all of it or nothing.
    pub(super) fn publish(&self, record: &Record, work: &Path) -> Result<(), BatchError> {
        self.check()?;
        let name = &record.task.name;
        let (publishing, finished) = (task_file(name, "publishing"), task_file(name, "json"));
        let published = self.publish_all(record, work, &publishing, &finished);
        // After another run has taken over, the files may be that run's.
        if published.is_err() && self.check().is_ok() {
            // The record goes first: a finished task must have its files.
            let removed = self.place.remove(&finished).and_then(|()| self.remove_outputs(&record.to_value()));
            // What cannot be removed now is removed by the next run, because `publishing` still exists.
            let _left_behind_at_worst = removed.and_then(|()| self.place.remove(&publishing));
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
        let text = serde_json::to_string_pretty(record).map_err(|error| BatchError::Damaged {
            path: self.place.path(finished),
            why: error.to_string(),
        })?;
        let text = format!("{text}\n");
        self.place.write(publishing, text.as_bytes(), true)?;
        self.place.bring(work, record.outputs.iter().map(|output| &output.path))?;
        // Publishing may have taken long.
        self.check()?;
        self.place.rename(publishing, finished, text.as_bytes())
    }

    /// Removes the manifest, because it describes all results, and these are about to change.
    pub(super) fn remove_manifest(&self) -> Result<(), BatchError> {
        self.check()?;
        self.place.remove(Path::new(MANIFEST))
    }

    /// Writes the manifest. Returns its path.
    pub(super) fn write_manifest(&self, text: &str) -> Result<PathBuf, BatchError> {
        self.check()?;
        self.place.write(Path::new(MANIFEST), text.as_bytes(), true)?;
        self.check()?;
        Ok(self.place.path(MANIFEST))
    }
}

fn busy(place: &Place) -> BatchError {
    BatchError::Busy { folder: place.root().to_owned() }
}

fn lock_path(place: &Place) -> PathBuf {
    place.path(TASKS).join("lock")
}

/// Excludes other runs from a place, creating it if it does not exist.
fn hold(place: &Place, access: Access) -> Result<Held, BatchError> {
    #[cfg(feature = "cloud")]
    if place.is_cloud() {
        let take = || Lease::take(place.address(&Path::new(TASKS).join("run")), || busy(place));
        return Ok(Held::Cloud((access == Access::Alone).then(take).transpose()?));
    }
    let tasks = place.path(TASKS);
    fs::create_dir_all(&tasks).map_err(BatchError::io(&tasks, "cannot be made"))?;
    let locked = |path: &Path| {
        let file = open_lock(path)?;
        lock(&file, path, access, || busy(place))?;
        Ok::<_, BatchError>(file)
    };
    let run = (access == Access::Alone).then(|| locked(&tasks.join("run"))).transpose()?;
    Ok(Held::Disk { lock: locked(&lock_path(place))?, is_shared: AtomicBool::new(false), _run: run })
}

/// Opens a file to lock it.
fn open_lock(path: &Path) -> Result<File, BatchError> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
    file.map_err(BatchError::io(path, "cannot be locked"))
}

/// Locks the file at `path`, exclusively or shared.
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
    use crate::OutputRecord;
    use crate::task::tests::task;

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
    fn a_run_that_was_killed_between_the_two_names_of_a_record_leaves_a_whole_task_or_none() {
        let root = tempfile::tempdir().unwrap();
        let record = record(3);
        let open = || Folder::open(root.path(), &record.task.settings, Access::Alone, false).unwrap();
        publish(&open(), &record).unwrap();
        let path = |ending| root.path().join(task_file(&record.task.name, ending));
        fs::copy(path("json"), path("publishing")).unwrap();
        let folder = open();
        assert_eq!(folder.finished(&record.task.name).unwrap(), Some(record.clone()));
        assert!(folder.has(&record.outputs).unwrap() && !path("publishing").exists());
        drop(folder);
        // The same if some of its files have been removed, or the two records are from different runs.
        for obstacle in ["a file is gone", "another record"] {
            fs::copy(path("json"), path("publishing")).unwrap();
            match obstacle {
                "another record" => fs::write(path("publishing"), "{}").unwrap(),
                _ => fs::remove_file(root.path().join(&record.outputs[1].path)).unwrap(),
            }
            let folder = open();
            assert!(folder.all_finished().unwrap().records.is_empty(), "{obstacle}");
            assert!(!path("publishing").exists(), "{obstacle}");
            assert!(!root.path().join("schema=mbo").exists(), "{obstacle}");
            publish(&folder, &record).unwrap();
        }
    }

    #[test]
    fn a_task_that_is_withdrawn_has_no_record_while_its_files_go() {
        let root = tempfile::tempdir().unwrap();
        let record = record(2);
        let folder = Folder::open(root.path(), &record.task.settings, Access::Alone, false).unwrap();
        publish(&folder, &record).unwrap();
        // A folder replaces the first file, so the file cannot be removed: as if the run had been killed there.
        let obstacle = root.path().join(&record.outputs[0].path);
        fs::remove_file(&obstacle).unwrap();
        fs::create_dir(&obstacle).unwrap();
        folder.withdraw(&record.task.name).unwrap_err();
        assert!(folder.all_finished().unwrap().records.is_empty());
        assert_eq!(folder.names("publishing").unwrap(), std::slice::from_ref(&record.task.name));
        drop(folder);
        fs::remove_dir(&obstacle).unwrap();
        Folder::open(root.path(), &record.task.settings, Access::Alone, false).unwrap();
        assert!(!root.path().join("schema=mbo").exists());
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
        assert!(folder.all_finished().unwrap().records.is_empty());
        assert!(folder.names("publishing").unwrap().is_empty());
        // Without the obstacle, there is no error.
        fs::remove_file(&obstacle).unwrap();
        publish(&folder, &record).unwrap();
        assert_eq!(folder.finished(&record.task.name).unwrap(), Some(record.clone()));
        assert!(record.outputs.iter().all(|output| root.path().join(&output.path).exists()));
    }
}
