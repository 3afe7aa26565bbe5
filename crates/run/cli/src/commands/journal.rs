//! `tapeworks journal`: checks, repairs and exports a plant's journal.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use jiff::Timestamp;
use jiff::civil::Date;
use serde_json::json;
use tapeworks_engine::checkpoint::folder as checkpoints;
use tapeworks_engine::days;
use tapeworks_engine::export::{self, ExportError, ExportOptions, Exported};
use tapeworks_journal::{self as journal, JournalError};
use tapeworks_store::Schema;

use crate::commands::plant::load;
use crate::ending::{Ending, Failure, Result};
use crate::table::{counted, thousands};
use crate::terminal::complain;
use crate::{interrupt, output};

/// Verify, repair and export a plant's journal.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Verify(Verify),
    Repair(Repair),
    Export(Export),
}

/// Verify every record of a journal, and its checkpoints.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  tapeworks journal verify examples/plant/journal

Exit code 3: something is damaged, or records were lost.")]
struct Verify {
    /// Folder of the journal.
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// Print one JSON object.
    #[arg(short = 'J', long)]
    json: bool,
}

/// Repair a journal: cut off a torn last record, and replace damaged records with a count of the lost ones.
///
/// The original bytes are first copied to NUMBER.torn-OFFSET and NUMBER.damaged-OFFSET next to the segments.
/// A plant starts without a repair: it also cuts off a torn record, and skips other damage.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  tapeworks journal repair examples/plant/journal")]
struct Repair {
    /// Folder of the journal.
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

/// Export a journal to DATE/VENUE/SCHEMA.ENDING, and to DATE/nbbo/SCHEMA.ENDING across venues.
///
/// Replays the journal as the plant would, so that the files contain the records of the plant's clients. If
/// the first segments were removed to make room, the replay starts at the oldest checkpoint, and the summary
/// states when the files begin.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tapeworks journal export examples/plant/loopback.toml --out days --schema mbo,cmbp-1
  tapeworks journal export plant.toml --journal journal/2026-01-05 --out days --schema trades --format parquet

Exit code 3: the journal reports lost inputs.")]
struct Export {
    /// Configuration of the plant that wrote the journal. It has the protocols of the channels, which a
    /// journal does not contain.
    #[arg(value_name = "CONFIG")]
    config: PathBuf,
    /// Folder of the journal [default: the one in the configuration]
    #[arg(long, value_name = "FOLDER")]
    journal: Option<PathBuf>,
    /// Export only this day (New York) [default: every day in the journal]
    #[arg(long, value_name = "DATE")]
    date: Option<Date>,
    /// Output folder, with a subfolder for each day.
    #[arg(short, long, value_name = "FOLDER")]
    out: PathBuf,
    /// Schemas to write, separated by commas.
    ///
    /// Known schemas: mbo, mbp-1, mbp-10, bbo-1s, bbo-1m, tbbo, trades, cmbp-1 (the synthetic NBBO), cbbo-1s,
    /// cbbo-1m, status, imbalance, definition, statistics, ohlcv-1s, ohlcv-1m, ohlcv-1h, ohlcv-1d.
    #[arg(long, value_name = "SCHEMAS", value_delimiter = ',', default_value = "mbo,cmbp-1")]
    schema: Vec<Schema>,
    /// File extension, which chooses the format: dbn, dbn.zst, parquet, csv, csv.zst, json, json.zst.
    #[arg(long, value_name = "ENDING", default_value = "dbn.zst")]
    format: String,
    /// Overwrite existing files.
    #[arg(short, long)]
    force: bool,
    /// Print one JSON object per day.
    #[arg(short = 'J', long)]
    json: bool,
}

impl From<ExportError> for Failure {
    fn from(error: ExportError) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<JournalError> for Failure {
    fn from(error: JournalError) -> Self {
        match error {
            JournalError::Stopped => Self::Stopped,
            error => Self::Failed(error.to_string()),
        }
    }
}

fn time(ns: u64) -> String {
    Timestamp::from_nanosecond(i128::from(ns)).map_or_else(|_| ns.to_string(), |time| time.to_string())
}

pub(crate) fn run(arguments: Arguments) -> Result {
    match arguments.command {
        Command::Verify(arguments) => verify(&arguments),
        Command::Repair(arguments) => repair(&arguments),
        Command::Export(arguments) => export(arguments),
    }
}

fn verify(arguments: &Verify) -> Result {
    let verified = journal::verify(&arguments.folder, || !interrupt::is_requested())?;
    let snapshots = checkpoints::check(&arguments.folder)
        .map_err(|error| Failure::Failed(format!("{}: {error}", arguments.folder.display())))?;
    let unusable: Vec<String> = snapshots
        .iter()
        .filter_map(|snapshot| Some(format!("{}: {}", snapshot.path.display(), snapshot.damage.as_ref()?)))
        .collect();
    let is_sound = verified.damage.is_empty() && unusable.is_empty();
    let text = if arguments.json {
        let damage: Vec<String> = verified.damage.iter().map(ToString::to_string).collect();
        format!(
            "{:#}\n",
            json!({
                "segments": verified.segments,
                "records": verified.records,
                "payload_bytes": verified.payload_bytes,
                "first": verified.numbers.map(|(first, _)| first),
                "next": verified.numbers.map(|(_, next)| next),
                "from": verified.times.map(|(from, _)| time(from)),
                "to": verified.times.map(|(_, to)| time(to)),
                "lost": verified.lost,
                "damaged": verified.damaged,
                "damage": damage,
                "checkpoints": snapshots.len(),
                "damaged_checkpoints": unusable,
            })
        )
    } else if verified.segments == 0 && snapshots.is_empty() {
        format!("{}: empty: no segment of a journal is in it\n", arguments.folder.display())
    } else {
        let mut text = format!(
            "{}: {}, {}, {} bytes of payload",
            arguments.folder.display(),
            counted(verified.segments, "segment", "segments"),
            counted(verified.records, "record", "records"),
            thousands(verified.payload_bytes),
        );
        if let Some((from, to)) = verified.times {
            text.push_str(&format!("\nfrom {} to {}", time(from), time(to)));
        }
        if verified.lost > 0 {
            text.push_str(&format!("\n{} lost, as it says itself", thousands(verified.lost)));
        }
        if verified.damaged > 0 {
            text.push_str(&format!(
                "\n{} damaged or missing",
                counted(verified.damaged, "record", "records")
            ));
        }
        if !snapshots.is_empty() {
            text.push_str(&format!(
                "\n{}, {} of them sound",
                counted(snapshots.len() as u64, "checkpoint", "checkpoints"),
                snapshots.len() - unusable.len()
            ));
        }
        for damage in verified.damage.iter().map(ToString::to_string).chain(unusable) {
            text.push_str(&format!("\n{damage}"));
        }
        text.push_str(if is_sound { "\nsound\n" } else { "\n" });
        text
    };
    output::print(&text)?;
    Ok(if is_sound && verified.lost == 0 { Ending::Complete } else { Ending::WithProblems })
}

fn repair(arguments: &Repair) -> Result {
    if !arguments.folder.is_dir() {
        return Err(Failure::Failed(format!("{}: no such folder", arguments.folder.display())));
    }
    let folder = arguments.folder.display();
    if journal::segment_starts(&arguments.folder)?.is_empty() {
        output::print(&format!("{folder}: empty: no segment of a journal is in it\n"))?;
        return Ok(Ending::Complete);
    }
    let repaired = journal::repair(&arguments.folder, || !interrupt::is_requested())?;
    let mut text = String::new();
    if repaired.torn_bytes > 0 {
        let bytes = thousands(repaired.torn_bytes);
        text.push_str(&format!("{folder}: {bytes} bytes of a torn record at the end cut off\n"));
    }
    if repaired.places > 0 {
        let (places, records) =
            (counted(repaired.places, "place", "places"), counted(repaired.records, "record", "records"));
        text.push_str(&format!(
            "{folder}: damage in {places}: {records} lost, and the journal says so now\n"
        ));
    }
    if repaired.headers > 0 {
        let headers = counted(repaired.headers, "header", "headers");
        text.push_str(&format!("{folder}: {headers} of segments written anew\n"));
    }
    if repaired.left > 0 {
        let places = counted(repaired.left, "place", "places");
        text.push_str(&format!("{folder}: {places} left as they are; readers pass over them\n"));
    }
    let snapshots = checkpoints::set_damaged_aside(&arguments.folder)
        .map_err(|error| Failure::Failed(format!("{folder}: {error}")))?;
    if !snapshots.is_empty() {
        let snapshots = counted(snapshots.len() as u64, "checkpoint", "checkpoints");
        text.push_str(&format!("{folder}: {snapshots} damaged: a plant makes its state from the records\n"));
    }
    for path in repaired.set_aside.iter().chain(&snapshots) {
        text.push_str(&format!("kept: {}\n", path.display()));
    }
    if text.is_empty() {
        text = format!("{folder}: nothing to mend\n");
    }
    output::print(&text)?;
    let is_lossless = repaired.records == 0 && repaired.left == 0;
    Ok(if is_lossless { Ending::Complete } else { Ending::WithProblems })
}

fn export(arguments: Export) -> Result {
    if !export::is_ending(&arguments.format) {
        let known = "dbn, dbn.zst, parquet, csv, csv.zst, json, json.zst";
        return Err(Failure::Usage(format!("'{}' is no file ending: {known}", arguments.format)));
    }
    let config = load(&arguments.config)?;
    let kept =
        arguments.journal.or_else(|| config.plant.journal.as_ref().map(|journal| journal.folder.clone()));
    let Some(folder) = kept else {
        let config = arguments.config.display();
        return Err(Failure::Usage(format!("{config} has no [journal]: --journal says where one is")));
    };
    let options = ExportOptions {
        folder: arguments.out,
        schemas: arguments.schema,
        ending: arguments.format,
        overwrite: arguments.force,
        date: arguments.date,
    };
    let days: Vec<Option<Date>> = match arguments.date {
        Some(_) => vec![arguments.date],
        None => days::days_of(&folder)?.into_iter().map(Some).collect(),
    };
    // The export reports a journal without records.
    let days = if days.is_empty() { vec![None] } else { days };
    let mut ending = Ending::Complete;
    for date in days {
        let options = ExportOptions { date, ..options.clone() };
        match export::export(&config.plant.engine(), &folder, &options, |_| !interrupt::is_requested()) {
            Err(ExportError::Stopped) => {
                complain(&ExportError::Stopped.to_string());
                return Ok(Ending::Interrupted);
            }
            exported => {
                let exported = exported?;
                output::print(&exported_text(&exported, arguments.json))?;
                if exported.lost > 0 {
                    ending = Ending::WithProblems;
                }
            }
        }
    }
    Ok(ending)
}

fn exported_text(exported: &Exported, is_json: bool) -> String {
    if is_json {
        let files: Vec<serde_json::Value> = exported
            .files
            .iter()
            .map(|file| {
                json!({
                    "path": file.path.display().to_string(),
                    "records": file.summary.records,
                    "bytes": file.summary.bytes,
                })
            })
            .collect();
        format!(
            "{:#}\n",
            json!({
                "date": exported.date.to_string(),
                "from": exported.from.map(|at| time(at.0)),
                "inputs": exported.inputs,
                "events": exported.events,
                "lost": exported.lost,
                "files": files,
            })
        )
    } else {
        let mut text = format!(
            "{}: {}, {}\n",
            exported.date,
            counted(exported.inputs, "input", "inputs"),
            counted(exported.events, "event", "events"),
        );
        if let Some(from) = exported.from {
            text.push_str(&format!("from {} on: earlier records were removed to make room\n", time(from.0)));
        }
        for file in &exported.files {
            let (path, records) = (file.path.display(), counted(file.summary.records, "record", "records"));
            text.push_str(&format!("{path}: {records}, {} bytes\n", thousands(file.summary.bytes)));
        }
        if exported.lost > 0 {
            text.push_str(&format!(
                "{} inputs could not be journaled at their time\n",
                thousands(exported.lost)
            ));
        }
        text
    }
}
