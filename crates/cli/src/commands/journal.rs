//! `tapeworks journal`: what a plant has kept.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use jiff::Timestamp;
use serde_json::json;
use tapeworks_market::Nanos;
use tapeworks_store::journal::{self, JournalError, JournalOptions, JournalWriter};

use crate::ending::{Ending, Failure, Result};
use crate::output;
use crate::table::{counted, thousands};

/// Look at the journal of a plant, and mend it.
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
}

/// Check every record of a journal.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  tapeworks journal verify examples/plant/journal

Exit code 3: something does not hold together.")]
struct Verify {
    /// The journal's folder.
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// As one JSON object.
    #[arg(short = 'J', long)]
    json: bool,
}

/// Cut off a torn record at the end, which a crash may leave. A plant does it too when it starts.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  tapeworks journal repair examples/plant/journal")]
struct Repair {
    /// The journal's folder.
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

impl From<JournalError> for Failure {
    fn from(error: JournalError) -> Self {
        Self::Failed(error.to_string())
    }
}

fn time(nanoseconds: Nanos) -> String {
    Timestamp::from_nanosecond(i128::from(nanoseconds.0))
        .map_or_else(|_| nanoseconds.0.to_string(), |time| time.to_string())
}

pub(crate) fn run(arguments: Arguments) -> Result {
    match arguments.command {
        Command::Verify(arguments) => verify(&arguments),
        Command::Repair(arguments) => repair(&arguments),
    }
}

fn verify(arguments: &Verify) -> Result {
    let verified = journal::verify(&arguments.folder)?;
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
                "damage": damage,
            })
        )
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
            text.push_str(&format!("\n{} could not be written at their time", thousands(verified.lost)));
        }
        for damage in &verified.damage {
            text.push_str(&format!("\n{damage}"));
        }
        text.push_str(if verified.damage.is_empty() { "\nsound\n" } else { "\n" });
        text
    };
    output::print(&text)?;
    Ok(if verified.damage.is_empty() && verified.lost == 0 { Ending::Complete } else { Ending::WithProblems })
}

fn repair(arguments: &Repair) -> Result {
    if !arguments.folder.is_dir() {
        return Err(Failure::Failed(format!("{}: no such folder", arguments.folder.display())));
    }
    let (_, opened) = JournalWriter::open(&arguments.folder, JournalOptions::default())?;
    let text = match opened.torn_bytes {
        0 => format!("{}: nothing to mend\n", arguments.folder.display()),
        bytes => {
            format!("{}: {} bytes of a torn record cut off\n", arguments.folder.display(), thousands(bytes))
        }
    };
    output::print(&text)?;
    Ok(Ending::Complete)
}
