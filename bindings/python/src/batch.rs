//! `batch`, as the command of this name: with threads, or with an executor in Python; and one task, for the processes of that executor.

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Instant;

use pyo3::prelude::*;
use tapeworks_analysis::replay;
use tapeworks_batch::{
    Access, BatchError, Earlier, Elsewhere, Executor, Folder, MOST_BUCKETS, PlanOptions, Settings, Step,
    Task, TaskError, Threads,
};
use tapeworks_market::Symbol;
use tapeworks_store::{Format, Schema, StoreError};
use tapeworks_time::clock;

use crate::errors::Failure;
use crate::options::application;
use crate::reader::{LOOK, to_python};

/// Open files besides those of tasks.
const OTHER_OPEN_FILES: u64 = 64;

/// Looks for signals now and then, and keeps the exception of the first.
struct Signals {
    looked: Instant,
    caught: Option<PyErr>,
}

impl Signals {
    fn new() -> Self {
        Self { looked: Instant::now(), caught: None }
    }

    /// Calls `more` and looks, if it is time.
    fn look(&mut self, more: impl FnOnce(Python<'_>) -> PyResult<()>) -> ControlFlow<()> {
        if self.caught.is_none() && self.looked.elapsed() >= LOOK {
            self.looked = Instant::now();
            self.caught = Python::attach(|py| py.check_signals().and_then(|()| more(py))).err();
        }
        if self.caught.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// Something in Python that takes the descriptions of tasks, has other processes do them, and yields `(name, error, is_of_input)` of
/// each when it has ended.
struct InPython {
    executor: Py<PyAny>,
    raised: RefCell<Option<PyErr>>,
}

impl InPython {
    fn tasks(
        &self,
        py: Python<'_>,
        tasks: &[&Task],
        watch: &mut dyn FnMut(Step<'_>) -> ControlFlow<()>,
    ) -> PyResult<()> {
        let mut elsewhere = Elsewhere::new(tasks);
        let ended = self.executor.call1(py, (elsewhere.descriptions(),))?.into_bound(py);
        for one in ended.try_iter()? {
            let (name, error, is_of_input): (String, Option<String>, bool) = one?.extract()?;
            if elsewhere.ended(&name, error, is_of_input, watch).is_break() {
                // It ends the tasks under way.
                return ended.call_method0("close").map(drop);
            }
        }
        Ok(())
    }
}

impl Executor for InPython {
    fn execute(
        &self,
        tasks: &[&Task],
        folder: &Folder,
        watch: &mut dyn FnMut(Step<'_>) -> ControlFlow<()>,
    ) -> Result<(), BatchError> {
        if tasks.is_empty() {
            return Ok(());
        }
        folder.share()?;
        Python::attach(|py| self.tasks(py, tasks, watch)).map_err(|error| {
            self.raised.replace(Some(error));
            BatchError::Stopped
        })
    }
}

fn settings(
    schemas: &[String],
    format: &str,
    buckets: u16,
    protocol: Option<&str>,
    symbols: Option<Vec<String>>,
    stale: &str,
) -> Result<Settings, Failure> {
    if !(1..=MOST_BUCKETS).contains(&buckets) {
        return Err(Failure::usage(format!("buckets: use 1 to {MOST_BUCKETS}")));
    }
    let mut wanted: Vec<Schema> = Vec::new();
    for name in schemas {
        let schema: Schema = name.parse().map_err(|error: StoreError| Failure::usage(error.to_string()))?;
        if !wanted.contains(&schema) {
            wanted.push(schema);
        }
    }
    if wanted.is_empty() {
        return Err(Failure::usage("there is no schema to write"));
    }
    let format: Format = format.parse().map_err(|error: StoreError| Failure::usage(error.to_string()))?;
    let symbol = |text: &String| {
        let symbol = Symbol::from_bytes(text.as_bytes());
        symbol.map_err(|error| Failure::usage(format!("'{text}': {error}")))
    };
    let mut symbols = symbols.map(|all| all.iter().map(symbol).collect::<Result<Vec<_>, _>>()).transpose()?;
    if let Some(symbols) = &mut symbols {
        symbols.sort_unstable_by(|one, other| one.as_str().cmp(other.as_str()));
        symbols.dedup();
    }
    let excludes_stale_books = match stale {
        "flag" => false,
        "exclude" => true,
        other => return Err(Failure::usage(format!("stale is '{other}': expected one of flag, exclude"))),
    };
    Ok(Settings {
        schemas: wanted,
        format,
        buckets,
        protocol: protocol.map(application).transpose()?,
        symbols,
        excludes_stale_books,
        odd_lots_count: false,
        ignores_price_bands: false,
    })
}

/// Sees to it that so many files may be open.
fn allow_open_files(needed: u64, path: &Path) -> Result<(), Failure> {
    let needed = needed.saturating_add(OTHER_OPEN_FILES);
    let allowed = tapeworks_runtime::raise_descriptor_limit();
    match needed <= allowed {
        true => Ok(()),
        false => Err(Failure::output(
            format!(
                "up to {needed} files would be open at the same time, and the system allows {allowed}: take fewer buckets, schemas or \
                 jobs, or raise the limit"
            ),
            path,
        )),
    }
}

/// A run. Returns the object of `tapeworks batch --json`, or with `dry_run` that of `--dry-run --json`; what the run did again or
/// removed, in a line each.
#[pyfunction(name = "batch")]
#[pyo3(signature = (
    patterns, out, *, schemas, format="parquet", buckets=16, exclude=Vec::new(), jobs=None, protocol=None, date=None, symbols=None,
    stale="flag", odd_lots=false, ignore_price_bands=false, overwrite=false, verify=false, dry_run=false, work=None, executor=None, progress=None
))]
#[allow(clippy::too_many_arguments, clippy::fn_params_excessive_bools)]
pub(crate) fn run_batch<'py>(
    py: Python<'py>,
    patterns: Vec<String>,
    out: PathBuf,
    schemas: Vec<String>,
    format: &str,
    buckets: u16,
    exclude: Vec<String>,
    jobs: Option<usize>,
    protocol: Option<String>,
    date: Option<String>,
    symbols: Option<Vec<String>>,
    stale: &str,
    odd_lots: bool,
    ignore_price_bands: bool,
    overwrite: bool,
    verify: bool,
    dry_run: bool,
    work: Option<PathBuf>,
    executor: Option<Py<PyAny>>,
    progress: Option<Py<PyAny>>,
) -> PyResult<(Bound<'py, PyAny>, Vec<String>)> {
    let settings = Settings {
        odd_lots_count: odd_lots,
        ignores_price_bands: ignore_price_bands,
        ..settings(&schemas, format, buckets, protocol.as_deref(), symbols, stale)?
    };
    let date = date.map(|text| {
        clock::date_in(&text).ok_or_else(|| Failure::usage(format!("'{text}' is no date such as 2025-11-14")))
    });
    let options =
        PlanOptions { patterns, excluded: exclude, date: date.transpose()?, staged_in: work.clone() };
    let jobs = jobs.unwrap_or_else(replay::default_threads);
    if !(1..=replay::MAX_THREADS).contains(&jobs) {
        return Err(Failure::usage(format!("jobs: use 1 to {}", replay::MAX_THREADS)).into());
    }
    let (found, notices) = py.detach(move || -> PyResult<_> {
        let mut signals = Signals::new();
        let planned = tapeworks_batch::plan(&options, &out, &settings, &mut |_, _| signals.look(|_| Ok(())));
        let plan = match (planned, signals.caught.take()) {
            (_, Some(interrupt)) => return Err(interrupt),
            (planned, None) => planned.map_err(Failure::from)?,
        };
        if dry_run {
            return Ok((plan.to_json(), Vec::new()));
        }
        if plan.tasks.is_empty() {
            let first = plan.failed.first().map(|failed| format!(": {}", failed.error)).unwrap_or_default();
            let text = format!("nothing to do: none of {} files can be used{first}", plan.failed.len());
            return Err(Failure::input(text).into());
        }
        if executor.is_none() {
            allow_open_files(plan.open_files(jobs), &out)?;
        }
        let folder = Folder::open(&out, &plan.settings, Access::Alone, overwrite).map_err(Failure::from)?;
        let folder = folder.staged_in(work);
        let mut notices = Vec::new();
        let mut notice = |line| notices.push(line);
        let mut observe = |at: &tapeworks_batch::Progress| {
            signals.look(|py| match &progress {
                Some(progress) => progress.call1(py, (at.bytes, at.total_bytes)).map(drop),
                None => Ok(()),
            })
        };
        let earlier = Earlier { force: overwrite, verify };
        let (ran, raised) = match executor {
            None => (
                tapeworks_batch::run(&plan, &folder, &Threads(jobs), earlier, &mut notice, &mut observe),
                None,
            ),
            Some(executor) => {
                let executor = InPython { executor, raised: RefCell::new(None) };
                let ran = tapeworks_batch::run(&plan, &folder, &executor, earlier, &mut notice, &mut observe);
                (ran, executor.raised.into_inner())
            }
        };
        if let Some(error) = raised.or(signals.caught.take()) {
            return Err(error);
        }
        let report = ran.map_err(Failure::from)?;
        Ok((report.to_json(&plan), notices))
    })?;
    Ok((to_python(py, &found)?, notices))
}

/// Does one task beside other processes, as `tapeworks batch --task`. Returns why it has no result, whether its inputs are to blame, and
/// whether another process does it just now.
#[pyfunction]
#[pyo3(signature = (task, out, work=None))]
pub(crate) fn batch_task(
    py: Python<'_>,
    task: String,
    out: PathBuf,
    work: Option<PathBuf>,
) -> PyResult<(Option<String>, bool, bool)> {
    py.detach(move || {
        let mut signals = Signals::new();
        let mut perform = || -> Result<(), TaskError> {
            let task = Task::from_json(&task)?;
            let allowed = allow_open_files(task.open_files(), &out);
            allowed.map_err(|error| BatchError::Executor { why: error.to_string() })?;
            let folder = Folder::open(&out, &task.settings, Access::OneTask, false)?.staged_in(work.clone());
            tapeworks_batch::perform_here(&task, &folder, &mut |_| signals.look(|_| Ok(()))).map(drop)
        };
        let performed = perform();
        match (performed, signals.caught) {
            (_, Some(interrupt)) => Err(interrupt),
            (Ok(()), None) => Ok((None, false, false)),
            (Err(error), None) => {
                let is_busy = matches!(error, TaskError::Batch(BatchError::TaskBusy { .. }));
                Ok((Some(error.to_string()), error.is_of_input(), is_busy))
            }
        }
    })
}
