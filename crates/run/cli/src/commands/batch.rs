//! `tapeworks batch`: converts captures of many days and venues into one folder of partitioned files.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Read as _;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use clap::Args;
use jiff::civil::Date;
use tapeworks_analysis::replay;
use tapeworks_batch::{
    Access, BatchError, Earlier, Executor, Folder, Kind, MOST_BUCKETS, Plan, PlanOptions, Record, Report,
    Settings, Task, Threads,
};
use tapeworks_capture::new_file;
use tapeworks_feed::Application;
use tapeworks_market::Symbol;
use tapeworks_store::{Format, Schema};

use super::replay::{Stale, complain_of_unseen};
use crate::ending::{Ending, Failure, Result};
use crate::table::{Align, Table, bytes, counted, thousands};
use crate::terminal::{self, Bar, complain};
use crate::values::{self, Symbols};
use crate::{interrupt, output};

mod ray;

/// Files that the process has open besides its tasks': standard streams, locks, records.
const OTHER_OPEN_FILES: u64 = 32;

/// Convert captures of many days and venues into one folder of partitioned files.
///
/// The files of one date that share a channel form a task. The NBBO schemas take one more task per date, over
/// all venues. The folder contains schema=…/date=…/bucket=…/*.parquet, which DuckDB and Polars read as
/// partitions, and manifest.json. The files have the same bytes for any number of jobs. To resume a run that
/// was stopped or killed, repeat the command.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tapeworks batch 'captures/**' --out days --schema trades,mbp-1,cmbp-1
  tapeworks batch 'captures/**' --out days --dry-run
  tapeworks batch captures/2025-11-14 captures/2025-11-17 --exclude '**/*.md' --out days --buckets 1 --jobs 8
  tapeworks batch 'captures/**' --out days --executor ray --jobs 16
  tapeworks batch 'captures/**' --out days --verify
  tapeworks batch --task task.json --out days
  tapeworks batch 's3://bucket/captures/**' --out s3://bucket/days --work scratch   (a build with the feature cloud)

Exit code 3: a file could not be used, messages are missing, or some of the input could not be read or applied.")]
pub(crate) struct Arguments {
    /// Captures, message files, folders (searched recursively), and quoted patterns.
    ///
    /// Quote patterns, so that the shell does not expand them: 'captures/**', '*/2025-11-1?/*.pcap.zst'. A
    /// build with the feature cloud also reads addresses: 's3://BUCKET/captures/**'.
    #[arg(required_unless_present = "task", value_name = "FILE|PATTERN")]
    files: Vec<String>,
    /// Output folder, or with the feature cloud an address: s3://BUCKET/PATH, gs:// or az://.
    #[arg(short, long, value_name = "DIR")]
    out: PathBuf,
    /// Folder for staging cloud inputs and results while tasks run [default: the system's temporary folder]
    ///
    /// If --out is a local folder, tasks download their inputs to .tasks in that folder instead.
    #[arg(long, value_name = "DIR")]
    work: Option<PathBuf>,
    /// Schemas to write, as for "tapeworks replay".
    #[arg(long, value_name = "SCHEMA", value_delimiter = ',', default_value = "mbo")]
    schema: Vec<Schema>,
    /// Format of the files: parquet, csv, json, dbn, csv.zst, json.zst, dbn.zst.
    #[arg(long, value_name = "FORMAT", default_value = "parquet")]
    format: Format,
    /// Partitions by symbol, 1 to 1000. The bucket is the 64-bit FNV-1a hash of the symbol, modulo N.
    ///
    /// A task opens two files per schema and bucket.
    #[arg(long, value_name = "N", default_value_t = 16,
        value_parser = clap::value_parser!(u16).range(1..=i64::from(MOST_BUCKETS)))]
    buckets: u16,
    /// Skip files that match; may be repeated.
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,
    /// Maximum number of concurrent tasks, up to 64 [default: one per processor, at most 4]
    ///
    /// With --ray-address, the default is one per processor of the cluster.
    #[arg(short, long, value_name = "N", value_parser = values::threads)]
    jobs: Option<usize>,
    /// Run tasks on threads, or on workers of Ray through the Python package.
    #[arg(long, value_enum, default_value_t = By::Threads)]
    executor: By,
    /// Ray cluster to join, with --executor ray [default: start Ray on this host, and stop it after the run]
    #[arg(long, value_name = "ADDRESS")]
    ray_address: Option<String>,
    /// Python that has the package tapeworks[ray], with --executor ray [default: TAPEWORKS_PYTHON, else
    /// python3]
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
    /// Parse the input as this protocol instead of detecting it; see "tapeworks schema --list".
    #[arg(short, long, value_name = "NAME", value_parser = values::application)]
    protocol: Option<Application>,
    /// Trading day (New York) of message files without a date in their name.
    #[arg(long, value_name = "DATE", value_parser = values::date)]
    date: Option<Date>,
    /// Include only these symbols: A,B or @FILE.
    #[arg(short, long, value_name = "SYMBOLS", value_parser = values::symbols)]
    symbols: Option<Symbols>,
    /// Effect of a gap on the NBBO: flag venues with stale books, or exclude them until they recover.
    #[arg(long, value_enum, default_value_t = Stale::Flag)]
    stale: Stale,
    /// Include odd lots in the NBBO at their own prices.
    #[arg(long)]
    odd_lots: bool,
    /// Include quotes outside the SIPs' price bands in the NBBO.
    #[arg(long)]
    ignore_price_bands: bool,
    /// Remove results made with other settings, and results of the same dates that come from other input files.
    #[arg(short, long)]
    force: bool,
    /// Check the hashes of all results, and repeat tasks whose results are damaged. Without it, only sizes
    /// are checked.
    #[arg(long)]
    verify: bool,
    /// List the tasks without running them; write nothing.
    #[arg(long)]
    dry_run: bool,
    /// Run only the task in this file, which is one of the tasks of --dry-run --json; - reads standard input.
    ///
    /// Other processes may run other tasks in the same folder meanwhile. When all are done, a run with the
    /// same inputs writes the manifest.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["files", "schema", "format", "buckets", "exclude", "jobs", "executor", "ray_address", "python", "protocol", "date",
        "symbols", "stale", "odd_lots", "ignore_price_bands", "force", "verify", "dry_run"])]
    task: Option<PathBuf>,
    /// Print the tasks or the result as one JSON object.
    #[arg(short = 'J', long)]
    json: bool,
}

/// Who does the tasks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum By {
    Threads,
    Ray,
}

impl From<BatchError> for Failure {
    fn from(error: BatchError) -> Self {
        match error {
            BatchError::NewFile(error) => error.into(),
            BatchError::Stopped => Self::Stopped,
            BatchError::Pattern { .. } => Self::Usage(error.to_string()),
            BatchError::OtherSettings { .. }
            | BatchError::OtherFiles { .. }
            | BatchError::OtherDate { .. } => {
                Self::Failed(format!("{error}; take another folder, or remove those results with --force"))
            }
            error => Self::Failed(error.to_string()),
        }
    }
}

impl Arguments {
    fn settings(&self) -> Settings {
        let mut schemas: Vec<Schema> = Vec::new();
        for schema in &self.schema {
            if !schemas.contains(schema) {
                schemas.push(*schema);
            }
        }
        let symbols = self.symbols.as_ref().map(|Symbols(symbols)| {
            let mut symbols: Vec<_> = symbols.iter().copied().collect();
            symbols.sort_unstable_by(|one, other| one.as_str().cmp(other.as_str()));
            symbols
        });
        Settings {
            schemas,
            format: self.format,
            buckets: self.buckets,
            protocol: self.protocol,
            symbols,
            excludes_stale_books: self.stale == Stale::Exclude,
            odd_lots_count: self.odd_lots,
            ignores_price_bands: self.ignore_price_bands,
        }
    }
}

/// Breaks if the user has requested a stop.
fn unless_stopped() -> ControlFlow<()> {
    if interrupt::is_requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

pub(crate) fn run(arguments: Arguments) -> Result {
    if arguments.executor != By::Ray && (arguments.ray_address.is_some() || arguments.python.is_some()) {
        return Err(Failure::Usage("--ray-address and --python are for --executor ray".to_owned()));
    }
    if let Some(description) = &arguments.task {
        return one_task(description, &arguments);
    }
    let options = PlanOptions {
        patterns: arguments.files.clone(),
        excluded: arguments.exclude.clone(),
        date: arguments.date,
        staged_in: arguments.work.clone(),
    };
    let mut bar = Bar::of_messages("Planning");
    let planned = tapeworks_batch::plan(&options, &arguments.out, &arguments.settings(), &mut |done, of| {
        bar.step(done, of, "");
        unless_stopped()
    });
    bar.clear();
    let plan = planned?;
    if arguments.dry_run {
        return dry_run(&plan, arguments.json);
    }
    if plan.tasks.is_empty() {
        complain_of_inputs(&plan);
        let files = counted(plan.failed.len() as u64, "file", "files");
        return Err(Failure::Failed(format!("nothing to do: none of {files} can be used")));
    }
    let executor = executor(&arguments, &plan)?;
    let folder = Folder::open(&arguments.out, &plan.settings, Access::Alone, arguments.force)?;
    let folder = folder.staged_in(arguments.work.clone());
    let mut bar = Bar::new("Replaying");
    let ran = tapeworks_batch::run(
        &plan,
        &folder,
        &*executor,
        Earlier { force: arguments.force, verify: arguments.verify },
        &mut |line| complain(&line),
        &mut |progress| match progress.tasks {
            0 => unless_stopped(),
            _ => bar.show(progress.bytes, Some(progress.total_bytes), None),
        },
    );
    bar.clear();
    let report = ran?;
    complain_of_inputs(&plan);
    let is_clean = complain_of_tasks(&plan, &report);
    let text = if arguments.json { format!("{:#}\n", report.to_json(&plan)) } else { show(&plan, &report) };
    output::print(&text)?;
    if report.manifest.is_none() {
        complain(&format!(
            "stopped with {} left; the same command goes on with them",
            counted(report.left as u64, "task", "tasks")
        ));
        return Ok(Ending::Interrupted);
    }
    Ok(match report.failed.iter().all(|failed| failed.error.is_of_input()) {
        false => Ending::Failed,
        true if is_clean && plan.failed.is_empty() => Ending::Complete,
        true => Ending::WithProblems,
    })
}

/// Creates the executor for a plan's tasks.
fn executor(arguments: &Arguments, plan: &Plan) -> Result<Box<dyn Executor>> {
    if arguments.executor == By::Ray {
        return Ok(Box::new(ray::Ray::start(ray::Options {
            python: arguments.python.clone(),
            address: arguments.ray_address.clone(),
            jobs: arguments.jobs,
            work: arguments.work.clone(),
        })?));
    }
    let jobs = arguments.jobs.unwrap_or_else(replay::default_threads);
    allow_open_files(plan.open_files(jobs))?;
    Ok(Box::new(Threads(jobs)))
}

/// Raises the limit of open files, and fails if it remains too low.
fn allow_open_files(needed: u64) -> std::result::Result<(), Failure> {
    let allowed = tapeworks_runtime::raise_descriptor_limit();
    match needed.saturating_add(OTHER_OPEN_FILES) <= allowed {
        true => Ok(()),
        false => Err(Failure::Failed(format!(
            "up to {} files would be open at the same time, and the system allows {}: take fewer buckets, schemas or jobs, or raise the \
             limit (ulimit -n)",
            thousands(needed.saturating_add(OTHER_OPEN_FILES)),
            thousands(allowed)
        ))),
    }
}

/// Runs one task while other processes may run others.
fn one_task(description: &Path, arguments: &Arguments) -> Result {
    let read = match new_file::is_stdout(description) {
        true => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).map(|_| text)
        }
        false => std::fs::read_to_string(description),
    };
    let named = |error: &dyn std::fmt::Display| format!("{}: {error}", description.display());
    let text = read.map_err(|error| Failure::Failed(named(&error)))?;
    let task = Task::from_json(&text).map_err(|error| Failure::Failed(named(&error)))?;
    allow_open_files(task.open_files())?;
    let folder = Folder::open(&arguments.out, &task.settings, Access::OneTask, false)?;
    let folder = folder.staged_in(arguments.work.clone());
    let mut bar = Bar::new("Replaying");
    let total = task.input_bytes();
    let performed =
        tapeworks_batch::perform_here(&task, &folder, &mut |done| bar.show(done, Some(total), None));
    bar.clear();
    let record = match performed {
        Ok(record) => record,
        Err(tapeworks_batch::TaskError::Stopped) => return Err(Failure::Stopped),
        Err(error) => return Err(Failure::Failed(format!("{}: {error}", task.name))),
    };
    record.damaged_files.iter().for_each(|error| complain(error));
    record.lacking().for_each(complain);
    let text = match arguments.json {
        true => format!("{:#}\n", record.to_value()),
        false => format!("{}: {}\n", task.name, made(std::iter::once(&record))),
    };
    output::print(&text)?;
    Ok(if record.is_clean { Ending::Complete } else { Ending::WithProblems })
}

/// Formats the results as `12 files, 3,456 records, 1.2 MB`.
fn made<'r>(records: impl Iterator<Item = &'r Record> + Clone) -> String {
    let outputs = || records.clone().flat_map(|record| &record.outputs);
    format!(
        "{}, {}, {}",
        counted(outputs().count() as u64, "file", "files"),
        counted(outputs().map(|output| output.records).fold(0, u64::saturating_add), "record", "records"),
        bytes(outputs().map(|output| output.bytes).fold(0, u64::saturating_add))
    )
}

fn dry_run(plan: &Plan, is_json: bool) -> Result {
    complain_of_inputs(plan);
    let text = if is_json {
        format!("{:#}\n", plan.to_json())
    } else {
        let mut table = Table::new(&[
            ("task", Align::Left),
            ("schemas", Align::Left),
            ("files", Align::Right),
            ("size", Align::Right),
            ("channels", Align::Right),
        ]);
        for task in &plan.tasks {
            table.row([
                task.name.clone(),
                task.schemas().map(Schema::as_str).collect::<Vec<_>>().join(","),
                thousands(task.inputs.len() as u64),
                bytes(task.input_bytes()),
                thousands(task.channels.len() as u64),
            ]);
        }
        let tasks = counted(plan.tasks.len() as u64, "task", "tasks");
        let files = counted(plan.inputs.len() as u64, "file", "files");
        format!("{}{tasks} for {files}.\n", table.render(terminal::width(), terminal::paint()))
    };
    output::print(&text)?;
    Ok(if plan.failed.is_empty() { Ending::Complete } else { Ending::WithProblems })
}

/// Reports unusable files.
fn complain_of_inputs(plan: &Plan) {
    plan.failed.iter().for_each(|failed| complain(&failed.error));
}

/// Reports the problems of the plan's tasks. Returns `true` if there are none.
fn complain_of_tasks(plan: &Plan, report: &Report) -> bool {
    let records: Vec<_> = plan.tasks.iter().filter_map(|task| report.records.get(&task.name)).collect();
    for failed in &report.failed {
        complain(&format!("{}: {}", failed.task.name, failed.error));
    }
    report.unsound.iter().for_each(|text| complain(text));
    // The merge of a date reads the same files as the date's other tasks.
    let damaged: BTreeSet<&String> = records.iter().flat_map(|record| &record.damaged_files).collect();
    damaged.into_iter().for_each(|error| complain(error));
    for record in &records {
        record.lacking().for_each(|line| complain(&format!("{}: {line}", record.task.name)));
    }
    for shared in &report.shared {
        complain(&format!(
            "{}: {} is in several tasks, so its records are there more than once: {}",
            shared.date,
            shared.channel,
            shared.tasks.join(", ")
        ));
    }
    let is_unseen = |symbol: &&Symbol| {
        records.iter().all(|record| record.unseen_symbols.iter().any(|name| name == symbol.as_str()))
    };
    let unseen: Vec<Symbol> = plan.settings.symbols.iter().flatten().filter(is_unseen).copied().collect();
    complain_of_unseen(&unseen);
    report.failed.is_empty()
        && report.unsound.is_empty()
        && report.shared.is_empty()
        && unseen.is_empty()
        && records.iter().all(|record| record.is_clean)
}

fn show(plan: &Plan, report: &Report) -> String {
    let (width, paint) = (terminal::width(), terminal::paint());
    let mut out = String::new();
    let done = counted(report.performed as u64, "task", "tasks");
    let _infallible = write!(out, "{done} done");
    let counts =
        [(report.resumed, "finished before"), (report.failed.len(), "failed"), (report.left, "left")];
    for (count, what) in counts.iter().filter(|(count, _)| *count > 0) {
        let _infallible = write!(out, ", {} {what}", thousands(*count as u64));
    }
    out.push('\n');
    let records = plan.tasks.iter().filter_map(|task| report.records.get(&task.name));
    let mut schemas: BTreeMap<&str, (u64, u64, u64)> = BTreeMap::new();
    for output in records.clone().flat_map(|record| &record.outputs) {
        let (files, records, bytes) = schemas.entry(&output.schema).or_default();
        (*files, *records, *bytes) =
            (*files + 1, records.saturating_add(output.records), bytes.saturating_add(output.bytes));
    }
    let mut table = Table::new(&[
        ("schema", Align::Left),
        ("files", Align::Right),
        ("records", Align::Right),
        ("size", Align::Right),
    ]);
    for (schema, (files, records, size)) in schemas {
        table.row([schema.to_owned(), thousands(files), thousands(records), bytes(size)]);
    }
    if !table.is_empty() {
        let _infallible = write!(out, "\n{}\n", table.render(width, paint));
    }
    let (mut unclean, mut missing) = (0u64, 0u64);
    // A date's merge counts the same messages as the date's other tasks, unless there are none.
    let has_channels = plan.tasks.iter().any(|task| task.kind == Kind::Channels);
    for record in records.filter(|record| !has_channels || record.task.kind == Kind::Channels) {
        unclean += u64::from(!record.is_clean);
        missing = missing.saturating_add(record.missing_messages);
    }
    if unclean > 0 {
        let tasks = counted(unclean, "task", "tasks");
        let missing = counted(missing, "message", "messages");
        let text = format!("{tasks} with problems, {missing} missing: see the manifest.");
        let _infallible = writeln!(out, "{}", paint.bad(&text));
    }
    if let Some(manifest) = &report.manifest {
        let _infallible = writeln!(out, "Manifest: {}", manifest.display());
    }
    out
}
