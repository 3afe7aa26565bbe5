//! `tapeworks lab`: measures low-latency techniques on this machine.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{Args, Subcommand};
use serde_json::json;
use tapeworks_capture::new_file::CompressedFile;
use tapeworks_lab::assembly::{self, Listing};
use tapeworks_lab::catalogue::{self, CATALOGUE};
use tapeworks_lab::machine::IS_OPTIMISED;
use tapeworks_lab::measure::{Selection, Settings};
use tapeworks_lab::results::{Experiment, Run};
use tapeworks_lab::run::{self, RunError};
use tapeworks_lab::statistics::show;
use tapeworks_lab::technique::Technique;
use tapeworks_lab::text::{self as lab_text, Rows};
use tapeworks_lab::{book, callgrind, compare, report};

use crate::ending::{Ending, Failure, Result};
use crate::table::{Align, Table};
use crate::terminal::{self, Bar, complain};
use crate::{interrupt, output};

/// The file of a run's results.
const RESULTS: &str = "results.json";
/// The file of a run's page.
const REPORT: &str = "report.html";

/// Measure low-latency techniques on this machine.
///
/// Each technique has a baseline, and variants that give equal results. The variants take turns in one
/// process. The verdict follows from the confidence interval of their ratio to the baseline.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tapeworks lab list
  tapeworks lab run loop-unrolling
  tapeworks lab run all --quick --out lab
  tapeworks lab report lab
  tapeworks lab asm loop-unrolling")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Lab,
}

#[derive(Debug, Subcommand)]
enum Lab {
    List(List),
    Run(Measure),
    Report(Report),
    Compare(Compare),
    Asm(Asm),
    Figures(Figures),
    #[command(hide = true)]
    Alone(Alone),
}

/// List the techniques.
#[derive(Debug, Args)]
#[command(after_help = "Example: tapeworks lab list")]
struct List {
    /// Print JSON, one object per line.
    #[arg(short = 'J', long)]
    json: bool,
}

/// Measure techniques, and print medians, ratios and verdicts.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tapeworks lab run loop-unrolling
  tapeworks lab run all --quick --out lab
  tapeworks lab run inlining,simd --quick --out lab    (adds to the folder)

A run keeps one or two cores busy; other load on the machine widens its intervals. Exit code 3: a technique was \
skipped in part or in whole, for the reason printed.")]
struct Measure {
    /// Names or numbers of techniques, or all.
    #[arg(required = true, value_name = "NAME", value_delimiter = ',')]
    techniques: Vec<String>,
    /// Use small sizes and few rounds, to check within seconds that everything works.
    #[arg(short, long)]
    quick: bool,
    /// Write results.json and the plots to this folder. Earlier results of other techniques are kept.
    ///
    /// The earlier results must come from the same program, the same machine and the same kind of run.
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Discard earlier results.
    #[arg(short, long)]
    force: bool,
    /// Print the results as JSON.
    #[arg(short = 'J', long)]
    json: bool,
    /// Also count instructions under callgrind. Needs --quick, because callgrind is fifty times slower.
    #[arg(short, long, requires = "quick")]
    count: bool,
}

/// Render the results in a folder as an HTML page.
#[derive(Debug, Args)]
#[command(after_help = "Example: tapeworks lab report lab")]
struct Report {
    /// Folder of "lab run --out", or a file of results.
    #[arg(value_name = "DIR")]
    results: PathBuf,
    /// Write the page to this file [default: report.html in the folder, or FILE.html next to a file
    /// FILE.json]
    #[arg(short, long, value_name = "FILE.html")]
    out: Option<PathBuf>,
    /// Overwrite the page if it exists.
    #[arg(short, long)]
    force: bool,
}

/// Compare two runs, from two machines or two commits.
#[derive(Debug, Args)]
#[command(after_help = "Example: tapeworks lab compare lab other-machine.json --clear")]
struct Compare {
    /// First run: a folder or a file of results.
    #[arg(value_name = "A.json")]
    first: PathBuf,
    /// Second run.
    #[arg(value_name = "B.json")]
    second: PathBuf,
    /// Show only variants whose intervals are further apart than the noise.
    #[arg(short, long)]
    clear: bool,
    /// Print JSON, one object per line.
    #[arg(short = 'J', long)]
    json: bool,
}

/// Show the machine code of a technique's variants, side by side.
///
/// `>` marks the lines that make the difference. A stripped program has no function names, so it cannot show
/// the code.
#[derive(Debug, Args)]
#[command(after_help = "Example: tapeworks lab asm loop-unrolling --variants four eight")]
struct Asm {
    /// Name or number of the technique.
    #[arg(value_name = "NAME")]
    technique: String,
    /// One or two variants to show, by name [default: the first two]
    #[arg(short, long, value_name = "VARIANT", num_args = 1..=2)]
    variants: Vec<String>,
}

/// Write the plots and tables that the book includes.
#[derive(Debug, Args)]
#[command(after_help = "Example: tapeworks lab figures lab --out docs/src/techniques/figures")]
struct Figures {
    /// Folder or file of results.
    #[arg(value_name = "RESULTS")]
    results: PathBuf,
    /// Output folder; files of the same names are replaced.
    #[arg(short, long, value_name = "DIR")]
    out: PathBuf,
}

/// Run one variant alone, for callgrind.
#[derive(Debug, Args)]
#[command(after_help = "Example: tapeworks lab alone loop-unrolling 0 0 1 3")]
struct Alone {
    technique: String,
    experiment: usize,
    point: usize,
    variant: usize,
    times: u64,
}

pub(crate) fn run(arguments: Arguments) -> Result {
    match arguments.command {
        Lab::List(arguments) => list(&arguments),
        Lab::Run(arguments) => measure(&arguments),
        Lab::Report(arguments) => make_report(&arguments),
        Lab::Compare(arguments) => compare_runs(&arguments),
        Lab::Asm(arguments) => show_assembly(&arguments),
        Lab::Figures(arguments) => write_figures(&arguments),
        Lab::Alone(arguments) => alone(&arguments),
    }
}

fn list(arguments: &List) -> Result {
    if arguments.json {
        let lines = CATALOGUE.iter().map(|technique| {
            let variants: Vec<&str> = technique.assembly.iter().map(|function| function.variant).collect();
            let fields = json!({
                "number": technique.number,
                "name": technique.name,
                "title": technique.title,
                "question": technique.question,
                "assembly": variants,
                "used": technique.used.iter().map(|place| place.path).collect::<Vec<_>>(),
            });
            format!("{fields}\n")
        });
        output::print(&lines.collect::<String>())?;
        return Ok(Ending::Complete);
    }
    let mut table = Table::new(&[("no.", Align::Right), ("name", Align::Left), ("question", Align::Left)]);
    for technique in CATALOGUE {
        table.row([technique.number.to_string(), technique.name.into(), technique.question.into()]);
    }
    output::print(&table.render(terminal::width().max(140), terminal::paint()))?;
    Ok(Ending::Complete)
}

/// Returns the techniques with these names.
fn chosen(names: &[String]) -> Result<Vec<&'static Technique>> {
    if names.iter().any(|name| name == "all") {
        return Ok(CATALOGUE.to_vec());
    }
    names.iter().map(|name| technique(name)).collect()
}

fn technique(name: &str) -> Result<&'static Technique> {
    catalogue::find(name).ok_or_else(|| {
        Failure::Usage(format!("`{name}` is no technique of the lab; `tapeworks lab list` lists them"))
    })
}

fn measure(arguments: &Measure) -> Result {
    let techniques = chosen(&arguments.techniques)?;
    let settings = if arguments.quick { Settings::QUICK } else { Settings::FULL };
    let began = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    // Create the file and read earlier results before measuring, so that no run ends with results that cannot be stored.
    let (mut results, mut earlier) = (None, None);
    if let Some(folder) = &arguments.out {
        std::fs::create_dir_all(folder).map_err(|error| Failure::from_file(folder, &error))?;
        let path = folder.join(RESULTS);
        let has_earlier = path.exists();
        results = Some(CompressedFile::create(&path, has_earlier)?);
        if has_earlier && !arguments.force {
            let read = run::read_earlier(&path, settings);
            earlier = Some(read.map_err(|error| Failure::Failed(error.to_string()))?);
        }
    }
    if !IS_OPTIMISED {
        complain("this program is not optimised, and its figures say nothing: build it with --release");
    }
    let mut bar = Bar::new("Measuring");
    let is_stopped = interrupt::is_requested;
    let measured = run::run(
        &techniques,
        &[],
        settings,
        &began,
        &mut |progress| bar.step(progress.done as u64, progress.of as u64, progress.what),
        &is_stopped,
    );
    bar.clear();
    let mut is_stopped_early = false;
    let mut run = match measured {
        Ok(run) => run,
        Err(RunError::Stopped { finished: Some(run) }) => {
            is_stopped_early = true;
            let (done, of) = (run.techniques.len(), techniques.len());
            complain(&format!(
                "stopped: {done} of {of} techniques are measured, the one under way is left out"
            ));
            *run
        }
        Err(RunError::Stopped { finished: None }) => {
            complain("stopped before the first technique was measured; nothing is written");
            return Ok(Ending::Interrupted);
        }
        Err(error) => return Err(Failure::Failed(error.to_string())),
    };
    if arguments.count && !is_stopped_early {
        let mut bar = Bar::new("Counting");
        let variants = run.techniques.iter().flat_map(|found| &found.experiments);
        let of: usize = variants.flat_map(|found| &found.points).map(|point| point.variants.len()).sum();
        let mut done = 0;
        let counted = callgrind::count(
            &mut run,
            &this_program,
            &mut |what| {
                bar.step(done, of as u64, what);
                done += 1;
            },
            &is_stopped,
        );
        bar.clear();
        match counted {
            Ok(()) => {}
            Err(callgrind::CallgrindError::Stopped) => {
                is_stopped_early = true;
                complain("stopped: the instructions of the last variants are not counted");
            }
            Err(error) => return Err(Failure::Failed(error.to_string())),
        }
    }
    let written = match (&arguments.out, results) {
        (Some(folder), Some(results)) => {
            let mut all = run.clone();
            earlier.into_iter().for_each(|earlier| run::add_earlier(&mut all, earlier));
            write_results(folder, results, &all)
        }
        _ => Ok(()),
    };
    // Results that cannot be written are still printed, because they took minutes.
    let folder = arguments.out.as_deref().filter(|_| written.is_ok());
    let text = if arguments.json { run.to_json() } else { shown(&run, folder) };
    output::print(&text)?;
    written?;
    let (mut is_whole, mut has_failed) = (true, false);
    for technique in &run.techniques {
        if let Some(why) = &technique.failed {
            has_failed = true;
            complain(&format!("{}: {why}", technique.name));
        }
        for why in &technique.skipped {
            is_whole = false;
            complain(&format!("{}: skipped: {why}", technique.name));
        }
    }
    Ok(match (is_stopped_early, has_failed, is_whole) {
        (true, ..) => Ending::Interrupted,
        (false, true, _) => Ending::Failed,
        (false, false, true) => Ending::Complete,
        (false, false, false) => Ending::WithProblems,
    })
}

/// Returns the command that runs one variant of a technique alone.
fn this_program(technique: &str, selection: Selection) -> Command {
    let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("tapeworks"));
    let mut command = Command::new(program);
    command.args(["lab", "alone", technique]);
    let Selection { experiment, point, variant, times } = selection;
    command.args([experiment as u64, point as u64, variant as u64, times].map(|number| number.to_string()));
    command
}

fn alone(arguments: &Alone) -> Result {
    let selection = Selection {
        experiment: arguments.experiment,
        point: arguments.point,
        variant: arguments.variant,
        times: arguments.times,
    };
    run::run_alone(technique(&arguments.technique)?, &[], Settings::QUICK, selection)
        .map_err(|error| Failure::Failed(error.to_string()))?;
    Ok(Ending::Complete)
}

fn write_results(folder: &Path, mut results: CompressedFile, run: &Run) -> Result<()> {
    for plot in run.techniques.iter().flat_map(book::plots) {
        output::write_file(&folder.join(plot.name), true, plot.svg.as_bytes())?;
    }
    let path = folder.join(RESULTS);
    results.write_all(run.to_json().as_bytes()).map_err(|error| Failure::from_file(&path, &error))?;
    results.finish()?;
    Ok(())
}

/// Formats the results for a terminal.
fn shown(run: &Run, folder: Option<&Path>) -> String {
    let paint = terminal::paint();
    let mut text = lab_text::head(run);
    for technique in &run.techniques {
        text.push_str(&format!("\n{}\n", paint.strong(&technique.title)));
        for experiment in &technique.experiments {
            text.push_str(&format!("  {}\n", experiment.title));
            text.push_str(&table(experiment).render(terminal::width().max(150), paint));
        }
    }
    if let Some(folder) = folder {
        let folder = folder.display();
        text.push_str(&format!(
            "\nresults and plots are in {folder}; `tapeworks lab report {folder}` makes a page\n"
        ));
    }
    text
}

fn table(experiment: &Experiment) -> Table {
    let Rows { columns, rows } = lab_text::rows(experiment);
    let align = |is_number| if is_number { Align::Right } else { Align::Left };
    let columns: Vec<(&str, Align)> =
        columns.iter().map(|(name, is_number)| (name.as_str(), align(*is_number))).collect();
    let mut table = Table::new(&columns);
    rows.into_iter().for_each(|cells| table.row(cells));
    table
}

/// Reads the results in a folder or a file.
fn read(path: &Path) -> Result<Run> {
    let file = if path.is_dir() { path.join(RESULTS) } else { path.to_owned() };
    Run::read(&file).map_err(|error| Failure::Failed(error.to_string()))
}

fn make_report(arguments: &Report) -> Result {
    let run = read(&arguments.results)?;
    let beside = if arguments.results.is_dir() {
        arguments.results.join(REPORT)
    } else {
        arguments.results.with_extension("html")
    };
    let path = arguments.out.clone().unwrap_or(beside);
    output::write_file(&path, arguments.force, report::html(&run).as_bytes())?;
    output::report(&format!("{}\n", path.display()), &[path])?;
    Ok(Ending::Complete)
}

fn compare_runs(arguments: &Compare) -> Result {
    let (first, second) = (read(&arguments.first)?, read(&arguments.second)?);
    let comparison = compare::compare(&first, &second);
    compare::warnings(&first, &second).iter().for_each(|warning| complain(warning));
    if comparison.both.is_empty() {
        complain("the two runs have no variant in common");
    }
    let noise = first.noise.max(second.noise);
    let wanted = comparison.both.iter().filter(|found| !arguments.clear || found.is_clear(noise));
    if arguments.json {
        let lines = wanted.map(|found| {
            let fields = json!({
                "technique": found.technique,
                "experiment": found.experiment,
                "point": found.point,
                "variant": found.variant,
                "unit": found.unit,
                "first": found.first,
                "second": found.second,
                "first_ratio": found.ratios.map(|(first, _)| first),
                "second_ratio": found.ratios.map(|(_, second)| second),
                "is_clear": found.is_clear(noise),
            });
            format!("{fields}\n")
        });
        output::print(&lines.collect::<String>())?;
        return Ok(Ending::Complete);
    }
    let mut table = Table::new(&[
        ("technique", Align::Left),
        ("experiment", Align::Left),
        ("variant", Align::Left),
        ("first", Align::Right),
        ("second", Align::Right),
        ("ratios", Align::Right),
        ("", Align::Left),
    ]);
    for found in wanted {
        let ratios = found
            .ratios
            .map_or_else(String::new, |(first, second)| format!("{:.2}  {:.2}", first.median, second.median));
        let place = if found.point.is_empty() {
            found.experiment.clone()
        } else {
            format!("{}: {}", found.experiment, found.point)
        };
        let says = if found.is_clear(noise) { "differs" } else { "" };
        table.row([
            found.technique.clone(),
            place,
            found.variant.clone(),
            show(found.first.median),
            show(found.second.median),
            ratios,
            says.into(),
        ]);
    }
    let mut text = format!("first:  {}\nsecond: {}\n\n", first.machine.line(), second.machine.line());
    text.push_str(&table.render(terminal::width().max(160), terminal::paint()));
    if arguments.clear
        && !comparison.both.is_empty()
        && !comparison.both.iter().any(|found| found.is_clear(noise))
    {
        text.push_str("no variant differs by more than its interval and the noise\n");
    }
    for (which, alone) in [("first", &comparison.first_alone), ("second", &comparison.second_alone)] {
        for name in alone {
            text.push_str(&format!("only in the {which}: {name}\n"));
        }
    }
    output::print(&text)?;
    Ok(Ending::Complete)
}

fn show_assembly(arguments: &Asm) -> Result {
    let technique = technique(&arguments.technique)?;
    let program = std::env::current_exe().map_err(|error| Failure::Failed(error.to_string()))?;
    let listings = assembly::listings(&program, technique.assembly)
        .map_err(|error| Failure::Failed(error.to_string()))?;
    let named = |name: &String| {
        listings.iter().find(|listing| listing.variant == *name).ok_or_else(|| {
            let names: Vec<&str> = listings.iter().map(|listing| listing.variant.as_str()).collect();
            Failure::Usage(format!("`{name}` has no listing; there are: {}", names.join(", ")))
        })
    };
    let shown: Vec<&Listing> = if arguments.variants.is_empty() {
        listings.iter().take(2).collect()
    } else {
        arguments.variants.iter().map(named).collect::<Result<_>>()?
    };
    let text = match shown.as_slice() {
        [left, right] => assembly::side_by_side(left, Some(right), terminal::width().saturating_sub(2) / 2),
        [only] => assembly::side_by_side(only, None, terminal::width()),
        _ => return Err(Failure::Failed(format!("{} has no code to show", technique.name))),
    };
    output::print(&text)?;
    Ok(Ending::Complete)
}

fn write_figures(arguments: &Figures) -> Result {
    let run = read(&arguments.results)?;
    std::fs::create_dir_all(&arguments.out).map_err(|error| Failure::from_file(&arguments.out, &error))?;
    for (name, content) in book::figures(&run) {
        output::write_file(&arguments.out.join(name), true, content.as_bytes())?;
    }
    Ok(Ending::Complete)
}
