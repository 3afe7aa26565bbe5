//! A run: determines which tasks are left, has an executor do them, and writes the manifest.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use jiff::civil::Date;
use serde_json::{Value, json};

use super::folder::Finished;
use super::manifest::{Record, manifest, shared_channels};
use super::perform::{is_current, perform};
use super::place::absolute;
use super::{BatchError, FailedTask, Folder, Plan, SharedChannel, Task, TaskError};

/// The time between two progress reports.
const REPORT_EVERY: Duration = Duration::from_millis(50);

/// Events while tasks are done.
#[derive(Debug)]
pub enum Step<'t> {
    /// Total bytes of inputs replayed; a file counts once for each task that reads it.
    Replayed(u64),
    /// A task has ended. It is finished if the folder has its record.
    Ended(&'t Task, Result<(), TaskError>),
}

/// Does tasks. The result of a task is its record in the folder, so an executor may do it in another process or on another host that
/// sees the folder (`tapeworks batch --task`), in any order, and more than once. Before it starts the first of these, it calls
/// [`Folder::share`], and it ends after they have ended.
pub trait Executor {
    /// Does the tasks. `watch` receives the events and may stop the execution: then no further tasks start, and those in progress end
    /// without a result.
    ///
    /// # Errors
    /// [`BatchError`] if no more tasks can be done at all.
    fn execute(
        &self,
        tasks: &[&Task],
        folder: &Folder,
        watch: &mut dyn FnMut(Step<'_>) -> ControlFlow<()>,
    ) -> Result<(), BatchError>;
}

/// Returns the tasks with the bytes of their inputs, largest first, so that the last one to end is small.
fn largest_first<'t>(tasks: &[&'t Task]) -> Vec<(u64, &'t Task)> {
    let mut order: Vec<(u64, &Task)> = tasks.iter().map(|task| (task.input_bytes(), *task)).collect();
    order.sort_by(|(one, first), (other, second)| other.cmp(one).then(first.name.cmp(&second.name)));
    order
}

/// Tasks done by other processes, for an executor that identifies them by name.
#[derive(Debug)]
pub struct Elsewhere<'t> {
    tasks: Vec<(u64, &'t Task)>,
    replayed: u64,
}

impl<'t> Elsewhere<'t> {
    /// Starts with no task ended.
    #[must_use]
    pub fn new(tasks: &[&'t Task]) -> Self {
        Self { tasks: largest_first(tasks), replayed: 0 }
    }

    /// Returns the descriptions of the tasks, as `tapeworks batch --task` takes them, in the best order to start them.
    #[must_use]
    pub fn descriptions(&self) -> Vec<String> {
        self.tasks.iter().map(|(_, task)| task.to_value().to_string()).collect()
    }

    /// Records the end of a task: `error` is why it has no result, `is_of_input` whether its inputs are at fault. Unknown names are ignored.
    pub fn ended(
        &mut self,
        name: &str,
        error: Option<String>,
        is_of_input: bool,
        watch: &mut dyn FnMut(Step<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let Some((bytes, task)) = self.tasks.iter().find(|(_, task)| task.name == name) else {
            return ControlFlow::Continue(());
        };
        self.replayed = self.replayed.saturating_add(*bytes);
        let result = error.map_or(Ok(()), |why| Err(TaskError::Elsewhere { why, is_of_input }));
        let ended = watch(Step::Ended(task, result));
        if self.show(watch).is_break() { ControlFlow::Break(()) } else { ended }
    }

    /// Reports the progress; returns whether the run is to stop.
    pub fn show(&self, watch: &mut dyn FnMut(Step<'_>) -> ControlFlow<()>) -> ControlFlow<()> {
        watch(Step::Replayed(self.replayed))
    }
}

/// Threads of this process, each of which does one task at a time, largest first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Threads(pub usize);

impl Executor for Threads {
    fn execute(
        &self,
        tasks: &[&Task],
        folder: &Folder,
        watch: &mut dyn FnMut(Step<'_>) -> ControlFlow<()>,
    ) -> Result<(), BatchError> {
        let order = largest_first(tasks);
        let (next, replayed, is_stopped) = (AtomicUsize::new(0), AtomicU64::new(0), AtomicBool::new(false));
        let work = |ended: mpsc::Sender<(usize, Result<(), TaskError>)>| {
            while !is_stopped.load(Ordering::Relaxed) {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some((bytes, task)) = order.get(index) else { return };
                let mut counted = 0;
                let mut observe = |done: u64| {
                    let done = done.min(*bytes).max(counted);
                    replayed.fetch_add(done - counted, Ordering::Relaxed);
                    counted = done;
                    match is_stopped.load(Ordering::Relaxed) {
                        true => ControlFlow::Break(()),
                        false => ControlFlow::Continue(()),
                    }
                };
                let performed = perform(task, folder, &mut observe);
                let _stopped_at_worst = observe(*bytes);
                // The receiver lives as long as this thread.
                let _received = ended.send((index, performed.map(|_| ())));
            }
        };
        let work = &work;
        std::thread::scope(|scope| {
            let (sender, ended) = mpsc::channel();
            for number in 0..self.0.clamp(1, order.len().max(1)) {
                let sender = sender.clone();
                let thread = std::thread::Builder::new().name(format!("batch-{number}"));
                if let Err(error) = thread.spawn_scoped(scope, move || work(sender)) {
                    is_stopped.store(true, Ordering::Relaxed);
                    return Err(BatchError::Thread(error));
                }
            }
            drop(sender);
            loop {
                let step = match ended.recv_timeout(REPORT_EVERY) {
                    Ok((index, result)) => match order.get(index) {
                        Some((_, task)) => Step::Ended(task, result),
                        None => continue,
                    },
                    Err(RecvTimeoutError::Timeout) => Step::Replayed(replayed.load(Ordering::Relaxed)),
                    Err(RecvTimeoutError::Disconnected) => return Ok(()),
                };
                if watch(step).is_break() {
                    is_stopped.store(true, Ordering::Relaxed);
                }
            }
        })
    }
}

/// The result of a run.
#[derive(Debug)]
pub struct Report {
    /// Number of tasks done by this run.
    pub performed: usize,
    /// Number of tasks of the plan that had been finished before.
    pub resumed: usize,
    /// Number of tasks that were not started, or were stopped.
    pub left: usize,
    /// Tasks that failed, sorted by name.
    pub failed: Vec<FailedTask>,
    /// Results of tasks outside the plan whose record is damaged or, with [`Earlier::verify`], whose files are.
    pub unsound: Vec<String>,
    /// The folder's finished tasks by name, including those of other dates.
    pub records: BTreeMap<String, Record>,
    /// Channels whose records are present twice.
    pub shared: Vec<SharedChannel>,
    /// The manifest; `None` if the user stopped the run.
    pub manifest: Option<PathBuf>,
}

impl Report {
    /// Converts the report to the JSON of `tapeworks batch --json`. `plan` is the plan that was run.
    #[must_use]
    pub fn to_json(&self, plan: &Plan) -> Value {
        let failed =
            |failed: &FailedTask| json!({ "name": failed.task.name, "error": failed.error.to_string() });
        json!({
            "manifest": self.manifest.as_ref().map(|path| path.display().to_string()),
            "tasks": plan.tasks.len(),
            "performed": self.performed,
            "resumed": self.resumed,
            "left": self.left,
            "failed_tasks": self.failed.iter().map(failed).collect::<Vec<_>>(),
            "failed_inputs": plan.failed,
            "unsound_results": self.unsound,
            "shared_channels": self.shared,
        })
    }
}

/// Progress of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// Bytes replayed.
    pub bytes: u64,
    /// Total bytes of the tasks to do.
    pub total_bytes: u64,
    /// Number of tasks that have ended.
    pub ended: usize,
    /// Number of tasks to do.
    pub tasks: usize,
}

/// How to treat results of earlier runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Earlier {
    /// Removes earlier results even if their files are no longer among the inputs: results of the plan's dates, and of dates that one of
    /// their files no longer belongs to.
    pub force: bool,
    /// Verifies every file against its recorded hash, and repeats the tasks of damaged files. Without it only sizes are compared.
    pub verify: bool,
}

/// Runs a plan: does its unfinished tasks and writes the manifest. Results of the plan's dates that are no longer in the plan are
/// removed if all their files are among its inputs, or with [`Earlier::force`]. A task whose record is damaged is repeated. `notice`
/// gets a line for each task that is repeated or removed; `observe` may stop the run.
///
/// # Errors
/// [`BatchError`]. A task that fails does not fail the run: see [`Report::failed`].
pub fn run(
    plan: &Plan,
    folder: &Folder,
    executor: &dyn Executor,
    earlier: Earlier,
    notice: &mut dyn FnMut(String),
    observe: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
) -> Result<Report, BatchError> {
    let Finished { records: before, damaged } = folder.all_finished()?;
    let superseded = superseded(plan, folder, &before, earlier.force)?;
    let (mut left, mut unsound) = (Vec::new(), Vec::new());
    for task in &plan.tasks {
        let Some(record) = before.get(&task.name) else {
            if let Some(why) = damaged.get(&task.name) {
                notice(format!("{why}; the task is done again"));
            }
            left.push(task);
            continue;
        };
        let mut observe = |_| observe(&Progress::default());
        match is_current(record, task, folder, &mut observe) {
            Ok(true) if !earlier.verify => {}
            Ok(true) => match folder.is_sound(&record.outputs, &mut observe)? {
                Some(true) => {}
                Some(false) => {
                    notice(format!("{}: its results are damaged; it is done again", task.name));
                    unsound.push(&task.name);
                    left.push(task);
                }
                None => return Err(BatchError::Stopped),
            },
            Ok(false) => {
                notice(format!("{}: its inputs or results have changed since; it is done again", task.name));
                left.push(task);
            }
            Err(TaskError::Batch(error)) => return Err(error),
            Err(_) => return Err(BatchError::Stopped),
        }
    }
    if !left.is_empty() || !superseded.is_empty() {
        folder.remove_manifest()?;
    }
    for name in superseded {
        notice(format!("{name}: its files are in other tasks now; its results are removed"));
        folder.withdraw(&name)?;
    }
    // A process that does a single task compares only sizes, and would consider it finished.
    unsound.into_iter().try_for_each(|name| folder.withdraw(name))?;
    let mut progress = Progress {
        total_bytes: left.iter().map(|task| task.input_bytes()).fold(0, u64::saturating_add),
        tasks: left.len(),
        ..Progress::default()
    };
    // Sets by name, because an executor may do a task more than once.
    let names: BTreeSet<&str> = left.iter().map(|task| task.name.as_str()).collect();
    let (mut performed, mut failed) = (BTreeSet::new(), BTreeMap::new());
    let (mut ended, mut is_stopped) = (BTreeSet::new(), false);
    executor.execute(&left, folder, &mut |step| {
        match step {
            Step::Replayed(bytes) => progress.bytes = bytes,
            Step::Ended(task, result) => {
                if let Some(name) = names.get(task.name.as_str()) {
                    ended.insert(*name);
                    progress.ended = ended.len();
                    match result {
                        Ok(()) => _ = performed.insert(*name),
                        Err(TaskError::Stopped) => is_stopped = true,
                        Err(error) => _ = failed.insert(*name, FailedTask { task: task.clone(), error }),
                    }
                }
            }
        }
        let observed = observe(&progress);
        is_stopped |= observed.is_break();
        observed
    })?;
    folder.take_back()?;
    // A task that failed once and then succeeded has a result.
    failed.retain(|name, _| !performed.contains(name));
    let Finished { mut records, damaged } = folder.all_finished()?;
    let mut unsound: Vec<String> =
        damaged.into_values().map(|why| format!("{why}; its results are not in the manifest")).collect();
    if earlier.verify {
        let planned: BTreeSet<&str> = plan.tasks.iter().map(|task| task.name.as_str()).collect();
        for (name, record) in records.iter().filter(|(name, _)| !planned.contains(name.as_str())) {
            match folder.is_sound(&record.outputs, &mut |_| observe(&progress))? {
                Some(true) => {}
                Some(false) => {
                    unsound.push(format!("{name}: its results are damaged; run it again with its files"));
                }
                None => return Err(BatchError::Stopped),
            }
        }
    }
    for name in lacking(folder, &records, &performed)? {
        performed.remove(name);
        records.remove(name);
        let task = left.iter().find(|task| task.name == name);
        let why = "its results are gone or incomplete: another process has removed them since".to_owned();
        let error = TaskError::Elsewhere { why, is_of_input: false };
        failed.extend(task.map(|task| (name, FailedTask { task: (*task).clone(), error })));
    }
    let failed: Vec<FailedTask> = failed.into_values().collect();
    let shared = shared_channels(&records);
    let unfinished = left.len() - performed.len() - failed.len();
    let manifest = match is_stopped && unfinished > 0 {
        true => None,
        false => {
            let text = manifest(&plan.settings, &records, &plan.failed, &failed, &shared);
            Some(folder.write_manifest(&text)?)
        }
    };
    Ok(Report {
        performed: performed.len(),
        resumed: plan.tasks.len() - left.len(),
        left: unfinished,
        failed,
        unsound,
        records,
        shared,
        manifest,
    })
}

/// Returns those of the tasks just done whose results are missing: another process did the same task, failed, and removed them.
fn lacking<'n>(
    folder: &Folder,
    records: &BTreeMap<String, Record>,
    performed: &BTreeSet<&'n str>,
) -> Result<Vec<&'n str>, BatchError> {
    let outputs = |name: &&str| records.get(*name).map_or(&[][..], |record| &record.outputs);
    let has = folder.have(&performed.iter().map(outputs).collect::<Vec<_>>())?;
    let named = performed.iter().zip(has);
    Ok(named.filter(|(name, has)| !has || !records.contains_key(**name)).map(|(name, _)| *name).collect())
}

/// Returns the finished tasks that are not in the plan: those of its dates, and those of files that now belong to another date.
fn superseded(
    plan: &Plan,
    folder: &Folder,
    before: &BTreeMap<String, Record>,
    force: bool,
) -> Result<Vec<String>, BatchError> {
    let planned: BTreeMap<&str, &Task> = plan.tasks.iter().map(|task| (task.name.as_str(), task)).collect();
    let dates: BTreeSet<_> = plan.tasks.iter().map(|task| task.date).collect();
    let inputs: BTreeSet<PathBuf> = plan.inputs.iter().map(|path| absolute(path)).collect();
    let date_of = |task: &Task| {
        let date = task.date;
        task.inputs.iter().map(|path| (absolute(path), date)).collect::<Vec<_>>()
    };
    let date_of: BTreeMap<PathBuf, Date> = plan.tasks.iter().flat_map(date_of).collect();
    let mut superseded = Vec::new();
    for (name, record) in before {
        let date = record.task.date;
        if !dates.contains(&date) {
            let now = |path: &PathBuf| Some((path.display().to_string(), *date_of.get(&absolute(path))?));
            let Some((file, now)) = record.task.inputs.iter().find_map(now) else { continue };
            if !force {
                return Err(BatchError::OtherDate { folder: folder.root().to_owned(), date, file, now });
            }
            superseded.push(name.clone());
            continue;
        }
        let other = record.task.inputs.iter().find(|path| !inputs.contains(&absolute(path)));
        if let Some(file) = other.filter(|_| !force) {
            let (folder, file) = (folder.root().to_owned(), file.display().to_string());
            return Err(BatchError::OtherFiles { folder, date, file });
        }
        if !planned.contains_key(name.as_str()) {
            superseded.push(name.clone());
        }
    }
    Ok(superseded)
}
