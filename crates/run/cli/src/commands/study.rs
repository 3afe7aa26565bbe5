//! `tapeworks study`: computes how long messages would wait for a server of a given speed.

use std::fmt::Write as _;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde_json::json;
use tapeworks_analysis::replay::{self, Summary};
use tapeworks_analysis::sessions::ReadAs;
use tapeworks_analysis::study::{self, MAX_SERVERS, SERVICE_NS, Study, show_ns};
use tapeworks_analysis::{generate, input, paint::Paint};
use tapeworks_feed::Application;
use tapeworks_generator::{FileForm, Scenario};
use tapeworks_time::Nanos;

use crate::ending::{Ending, Failure, Result};
use crate::table::{Align, Table, counted, number, thousands};
use crate::terminal::{self, Bar, complain};
use crate::{interrupt, output, report, values};

/// Compute how long messages queue at a server that takes a given time for each.
///
/// Models one server that handles messages in order. The messages of a packet arrive together, at its capture
/// time. For each service time, reports the longest queue and the worst delay, in total and by window. A
/// delay ends when the message is done. Also reports the time per message that this machine takes for
/// decoding, books and NBBO.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tapeworks study --generate close --svg close.svg
  tapeworks study testdata/captures/nasdaq-itch50/Multiple.Packets.pcap
  tapeworks study day.pcap.zst --service-ns 250,500,1us,10us --window 100ms --json

Exit code 3: messages are missing or have no time, or some of the input could not be read.")]
pub(crate) struct Arguments {
    /// Captures or message files.
    #[arg(required_unless_present = "generate", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Study a generated session instead of files.
    #[arg(short, long, value_enum, conflicts_with = "files", value_name = "SCENARIO")]
    generate: Option<Generate>,
    /// Service times to study, up to 12, in ns or with a unit: 250,1us.
    #[arg(long, value_name = "TIMES", value_delimiter = ',', value_parser = values::duration_ns,
        default_values_t = SERVICE_NS)]
    service_ns: Vec<u64>,
    /// Length of the windows, in ns or with a unit [default: chosen to suit the capture]
    #[arg(long, value_name = "TIME", value_parser = values::duration_ns)]
    window: Option<u64>,
    /// Include only messages from this time on: ISO 8601 with a zone, or nanoseconds since 1970.
    ///
    /// If a file has only times of day, nanoseconds since midnight.
    #[arg(long, value_name = "TIME", value_parser = values::instant)]
    from: Option<Nanos>,
    /// Include only messages before this time.
    #[arg(long, value_name = "TIME", value_parser = values::instant)]
    to: Option<Nanos>,
    /// Plot the worst delay and the longest queue over time to this file.
    #[arg(long, value_name = "OUT.svg")]
    svg: Option<PathBuf>,
    /// Overwrite the plot if it exists.
    #[arg(short, long)]
    force: bool,
    /// Print one JSON object, with every window.
    #[arg(short = 'J', long)]
    json: bool,
    /// Do not measure this machine.
    #[arg(long)]
    no_measure: bool,
    /// Parse the input as this protocol instead of detecting it; see "tapeworks schema --list".
    #[arg(short, long, value_name = "NAME", value_parser = values::application)]
    protocol: Option<Application>,
}

/// The sessions that can be generated for a study.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Generate {
    /// Twenty seconds around a Nasdaq close, with bursts of 4 million messages a second.
    Close,
    /// Four venues from before the open until after the close.
    Demo,
}

/// A file that is removed when the study is done.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        // At worst the file remains in the system's temporary folder.
        let _ = fs::remove_file(&self.0);
    }
}

/// Generates the session to study. Returns `None` if the user stopped it.
fn generate(what: Generate) -> Result<Option<Temporary>> {
    let scenario = match what {
        Generate::Close => Scenario::close_burst(),
        Generate::Demo => Scenario::demo(),
    };
    let path = std::env::temp_dir().join(format!("tapeworks-study-{}.pcap", std::process::id()));
    let generated =
        output::generate(&path, true, |sink| generate::write(FileForm::Capture, &scenario, sink))?;
    Ok(generated.map(|_report| Temporary(path)))
}

/// The time per message on this machine, measured by running the engine over the same input.
struct Measured {
    mean_ns: f64,
    p50_ns: u64,
    p99_ns: u64,
    p999_ns: u64,
    max_ns: u64,
}

impl Measured {
    fn new(summary: &Summary) -> Option<Self> {
        let times = &summary.service_times;
        (!times.is_empty()).then(|| Self {
            mean_ns: times.mean(),
            p50_ns: times.value_at_quantile(0.5),
            p99_ns: times.value_at_quantile(0.99),
            p999_ns: times.value_at_quantile(0.999),
            max_ns: times.max(),
        })
    }

    fn show(&self) -> String {
        let [p50, p99, p999, max] =
            [self.p50_ns, self.p99_ns, self.p999_ns, self.max_ns].map(|ns| show_ns(ns as f64));
        format!(
            "Measured on this machine, decode, books and NBBO: mean {:.1} ns per message, p50 {p50}, p99 {p99}, \
             p99.9 {p999}, max {max}",
            self.mean_ns
        )
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result {
    if arguments.service_ns.len() > MAX_SERVERS {
        return Err(Failure::Usage(format!("--service-ns takes up to {MAX_SERVERS} times")));
    }
    let generated = match arguments.generate.map(generate).transpose()? {
        Some(None) => return Ok(Ending::Interrupted),
        generated => generated.flatten(),
    };
    let files: Vec<PathBuf> = match &generated {
        Some(file) => vec![file.0.clone()],
        None => arguments.files.clone(),
    };
    let mut inputs = input::open_all(&files, arguments.protocol)?;
    input::check_one_day(&inputs)?;
    input::refuse_inputs(&files, arguments.svg.as_deref())?;
    let measured = if files.iter().all(|file| is_repeatable(file)) && !arguments.no_measure {
        measure(&files, arguments)?
    } else {
        None
    };
    if interrupt::is_requested() {
        complain("stopped before the study");
        return Ok(Ending::Interrupted);
    }
    // The directory of the generated close is sent an hour earlier and is not part of the load.
    values::refuse_empty_window(arguments.from, arguments.to)?;
    let from = arguments.from.unwrap_or(match arguments.generate {
        Some(Generate::Close) => {
            let scenario = Scenario::close_burst();
            Nanos(scenario.midnight_ns + scenario.start_ns)
        }
        _ => Nanos(0),
    });
    let mut bar = Bar::new("Studying");
    let study = study::study(
        &mut inputs,
        arguments.protocol.map(ReadAs::Feed),
        &arguments.service_ns,
        arguments.window,
        from..arguments.to.unwrap_or(Nanos(u64::MAX)),
        &mut |progress| bar.show(progress.bytes_read, progress.total_bytes, None),
    );
    bar.clear();
    let title = match arguments.generate {
        Some(Generate::Close) => "Queueing study of a generated close of market".to_owned(),
        Some(Generate::Demo) => "Queueing study of a generated session of four venues".to_owned(),
        None => format!("Queueing study of {}", names(&files)),
    };
    if let Some(path) = &arguments.svg {
        let note = note(&study, measured.as_ref());
        output::write_file(path, arguments.force, study::svg(&study, &title, &note).as_bytes())?;
    }
    let text = if arguments.json {
        let mut object = study.to_json();
        if let (Some(object), Some(measured)) = (object.as_object_mut(), &measured) {
            object.insert(
                "measured".to_owned(),
                json!({
                    "mean_ns": measured.mean_ns,
                    "p50_ns": measured.p50_ns,
                    "p99_ns": measured.p99_ns,
                    "p999_ns": measured.p999_ns,
                    "max_ns": measured.max_ns,
                }),
            );
        }
        format!("{object}\n")
    } else {
        show(&study, &title, measured.as_ref(), arguments.svg.as_deref(), terminal::paint())
    };
    output::print(&text)?;
    for (destination, protocol) in &study.ended.inferred {
        complain(&report::inferred(destination, protocol));
    }
    study.ended.complaints().for_each(|text| complain(&text));
    if study.ended.is_stopped {
        complain("stopped before the end of the input");
        return Ok(Ending::Interrupted);
    }
    if study.without_time > 0 {
        let messages = counted(study.without_time, "message", "messages");
        complain(&format!("{messages} without a time, left out"));
    }
    Ok(if study.is_clean() { Ending::Complete } else { Ending::WithProblems })
}

/// Returns whether a file can be read twice, which excludes pipes.
fn is_repeatable(file: &Path) -> bool {
    // A dash is standard input, even if a file has that name.
    file.as_os_str() != "-" && fs::metadata(file).is_ok_and(|metadata| metadata.is_file())
}

fn names(files: &[PathBuf]) -> String {
    let names: Vec<_> = files
        .iter()
        .map(|file| file.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned()))
        .collect();
    match names.as_slice() {
        [first, second, third, rest @ ..] if !rest.is_empty() => {
            format!("{first}, {second}, {third} and {} more", rest.len())
        }
        names => names.join(", "),
    }
}

fn measure(files: &[PathBuf], arguments: &Arguments) -> Result<Option<Measured>> {
    let options = replay::Options {
        inputs: files.to_vec(),
        application: arguments.protocol,
        measure: true,
        ..replay::Options::default()
    };
    let mut bar = Bar::new("Measuring");
    let summary = replay::replay(&options, &mut |progress| -> ControlFlow<()> {
        bar.show(progress.bytes, progress.total_bytes, Some(progress.messages))
    })?;
    Ok(Measured::new(&summary))
}

/// Returns the text next to the plot.
fn note(study: &Study, measured: Option<&Measured>) -> String {
    let mut note =
        format!("{} in {}", counted(study.messages, "message", "messages"), show_ns(study.seconds() * 1e9));
    let [millisecond, ..] = &study.peaks;
    let _infallible = write!(note, ", up to {} a second in 1 ms", number(millisecond.per_second()));
    if let Some(measured) = measured {
        let _infallible = write!(note, "; here a message takes {} ns (median)", thousands(measured.p50_ns));
    }
    note
}

fn show(study: &Study, title: &str, measured: Option<&Measured>, svg: Option<&Path>, paint: Paint) -> String {
    let mut out = String::new();
    let _infallible = writeln!(out, "{}", paint.strong(title));
    if study.gaps > 0 || study.problems > 0 || !study.ended.is_clean() {
        let losses = report::losses(study.gaps, study.missing, study.problems, &study.ended, paint);
        let _infallible = writeln!(out, "{losses}");
    }
    let Some((first, last)) = study.times else {
        let _infallible = writeln!(out, "{}", why_none(study));
        return out;
    };
    let _infallible = writeln!(
        out,
        "{} from {} to {}",
        counted(study.messages, "message", "messages"),
        study.show_time(first),
        study.show_time(last)
    );
    let peaks: Vec<String> = study
        .peaks
        .iter()
        .map(|peak| format!("{}/s over {}", number(peak.per_second()), show_ns(peak.window_ns as f64)))
        .collect();
    let _infallible = writeln!(out, "Peak rates: {}", peaks.join(", "));
    if let Some(measured) = measured {
        let _infallible = writeln!(out, "{}", measured.show());
    }
    let mut table = Table::new(&[
        ("per message", Align::Right),
        ("busy", Align::Right),
        ("longest queue", Align::Right),
        ("worst delay", Align::Right),
        ("p50", Align::Right),
        ("p99", Align::Right),
        ("p99.9", Align::Right),
        ("the worst came at", Align::Left),
    ]);
    for server in &study.servers {
        let quantile = |quantile| show_ns(server.delays.value_at_quantile(quantile) as f64);
        table.row([
            show_ns(server.service_ns as f64),
            format!("{:.2} %", study.utilisation(server) * 100.0),
            thousands(server.longest_queue),
            show_ns(server.worst_delay_ns as f64),
            quantile(0.5),
            quantile(0.99),
            quantile(0.999),
            study.show_time(server.worst_delay_at),
        ]);
    }
    let _infallible = write!(out, "\n{}", table.render(terminal::width(), paint));
    worst_windows(&mut out, study, paint);
    if let Some(svg) = svg {
        let _infallible = writeln!(out, "\nPlot: {}", svg.display());
    }
    out
}

/// Explains why there is no message to study.
fn why_none(study: &Study) -> String {
    if study.seen() == 0 {
        return "There are no messages.".to_owned();
    }
    let mut why = format!(
        "None of {} is studied: {} outside of --from and --to, {} without a time.",
        counted(study.seen(), "message", "messages"),
        thousands(study.outside),
        thousands(study.without_time)
    );
    if study.is_time_of_day && study.outside > 0 {
        why.push_str(
            " The input has times of day only: --from and --to are nanoseconds since midnight there.",
        );
    }
    why
}

/// Lists the windows with the worst delays at the slowest server.
fn worst_windows(out: &mut String, study: &Study, paint: Paint) {
    /// Maximum number of windows to show.
    const SHOWN: usize = 5;
    let mut windows: Vec<_> = study.windows.iter().collect();
    windows.sort_by_key(|window| {
        (std::cmp::Reverse(window.worst.last().map(|(_, delay)| *delay)), window.index)
    });
    windows.truncate(SHOWN);
    let names: Vec<String> = study.servers.iter().map(|server| show_ns(server.service_ns as f64)).collect();
    let mut columns = vec![("window from", Align::Left), ("messages", Align::Right)];
    columns.extend(names.iter().map(|name| (name.as_str(), Align::Right)));
    let mut table = Table::new(&columns);
    for window in windows {
        let delays = window.worst.iter().map(|(_, delay)| show_ns(*delay as f64));
        table.row(
            [study.show_time(study.start_of(window)), thousands(window.messages)].into_iter().chain(delays),
        );
    }
    let title = format!("Worst delay in the worst windows of {}", show_ns(study.window_ns as f64));
    let _infallible = write!(out, "\n{}\n{}", paint.strong(&title), table.render(terminal::width(), paint));
}
