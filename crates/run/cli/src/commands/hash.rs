//! `tapeworks hash`: finds the cheapest perfect hash of a set of message types.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use clap::error::{ContextKind, ContextValue};
use serde_json::json;
use tapeworks_capture::{source, stop};
use tapeworks_dispatch::search::values::{self, Listing};
use tapeworks_dispatch::search::{Family, PerfectHash, SearchError, Width, compare, find_in};

use crate::ending::{Ending, Failure, Result};
use crate::table::{Align, Table};
use crate::{output, terminal};

/// Maximum size of a file of values: enough for the largest set, with a comment for each value.
const MOST_FILE_BYTES: u64 = 16 << 20;

/// Find the cheapest perfect hash for a set of message types.
///
/// Values are numbers (68, 0x44, 0b1000100), characters ('D') or texts ("AE", with the first character most
/// significant). A shell removes quotes: a letter needs none, and a quoted digit needs both kinds ("'8'").
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tapeworks hash A 0x30 0x31 D F G
  tapeworks hash 0x30 \"'8'\" D '\"AE\"' --rust > order_types.rs
  printf '%s\\n' 1 2 3 32 34 100 101 | tapeworks hash - --json")]
pub(crate) struct Arguments {
    /// Values to hash; - reads them from standard input, one per line.
    #[arg(
        value_name = "VALUE",
        required_unless_present = "file",
        conflicts_with = "file",
        allow_negative_numbers = true
    )]
    values: Vec<String>,
    /// Read the values from a file, one per line; # starts a comment, and - is standard input.
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Bits of a value: 8, 16, 32 or 64 [default: enough for the greatest value]
    #[arg(short, long, value_name = "BITS", value_parser = width)]
    width: Option<Width>,
    /// Print the function as a Rust module, with its table and a test.
    #[arg(short, long, conflicts_with = "json")]
    rust: bool,
    /// Print one JSON object.
    #[arg(short = 'J', long)]
    json: bool,
}

fn width(text: &str) -> std::result::Result<Width, String> {
    text.parse().ok().and_then(Width::from_bits).ok_or_else(|| "use 8, 16, 32 or 64".to_owned())
}

/// Returns the failure for a word such as `-0x44`, which clap treats as a flag because it accepts only decimal negative
/// numbers. Returns `None` for other errors.
pub(crate) fn refuse_negative(
    error: &clap::Error,
    mut words: impl Iterator<Item = String>,
) -> Option<Failure> {
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) else { return None };
    if words.next()? != "hash" || !flag.strip_prefix('-')?.starts_with(|digit: char| digit.is_ascii_digit()) {
        return None;
    }
    let fault = words.filter(|word| word.starts_with(&**flag)).find_map(|word| values::parse(&word).err())?;
    Some(Failure::Usage(fault.to_string()))
}

pub(crate) fn run(arguments: &Arguments) -> Result {
    let file = match (&arguments.file, arguments.values.as_slice()) {
        (Some(file), _) => Some(file.clone()),
        (None, [only]) if only == "-" => Some(PathBuf::from("-")),
        _ => None,
    };
    let text = match file {
        Some(file) => {
            let name =
                if file == Path::new("-") { "standard input".to_owned() } else { file.display().to_string() };
            let listing = Listing::parse(&read(&file, &name)?)
                .map_err(|error| Failure::Failed(format!("{name}:{error}")))?;
            answer(arguments, listing.values())
                .map_err(|error| Failure::Failed(listing.fault(&name, &error)))?
        }
        None => {
            let words = arguments.values.iter().enumerate();
            let list = words
                .map(|(place, word)| values::parse(word).map_err(|error| (place, error)))
                .collect::<std::result::Result<Vec<u64>, _>>()
                .map_err(|(place, error)| Failure::Usage(format!("value {}: {error}", place + 1)))?;
            answer(arguments, &list).map_err(|error| Failure::Usage(error.to_string()))?
        }
    };
    output::print(&text)?;
    Ok(Ending::Complete)
}

/// Reads the text of a file of values, or of standard input.
fn read(file: &Path, name: &str) -> Result<String> {
    let failed = |error: &io::Error| {
        if stop::is_stopped(error) {
            return Failure::Stopped;
        }
        Failure::Failed(match error.kind() {
            io::ErrorKind::NotFound => format!("{name}: no such file"),
            io::ErrorKind::InvalidData => format!("{name}: is no text"),
            io::ErrorKind::IsADirectory => format!("{name}: is a directory"),
            _ => format!("{name}: cannot read: {error}"),
        })
    };
    let mut text = String::new();
    source::open_plain(file)
        .and_then(|file| file.take(MOST_FILE_BYTES + 1).read_to_string(&mut text))
        .map_err(|error| failed(&error))?;
    if text.len() as u64 > MOST_FILE_BYTES {
        return Err(Failure::Failed(format!("{name}: has more than {} MB", MOST_FILE_BYTES >> 20)));
    }
    Ok(text)
}

fn answer(arguments: &Arguments, list: &[u64]) -> std::result::Result<String, SearchError> {
    let started = Instant::now();
    let hash = find_in(list, arguments.width)?;
    let elapsed_ns = started.elapsed().as_nanos() as u64;
    if arguments.rust {
        return Ok(hash.rust_module());
    }
    let families = compare(list, arguments.width)?;
    if !arguments.json {
        return Ok(for_people(&hash, &families, elapsed_ns));
    }
    let mut object = as_json(&hash);
    object["width"] = hash.width().bits().into();
    object["values"] = hash.values().len().into();
    object["elapsed_ns"] = elapsed_ns.into();
    object["families"] = families.iter().filter_map(|(_, hash)| hash.as_ref()).map(as_json).collect();
    Ok(format!("{object:#}\n"))
}

fn as_json(hash: &PerfectHash) -> serde_json::Value {
    json!({
        "family": hash.formula().family().name(),
        "formula": hash.formula().to_string(),
        "slots": hash.size(),
        "bytes": hash.table_bytes(),
        "load": hash.load(),
        "instructions": hash.instructions(),
        "cost": hash.cost(),
    })
}

fn for_people(hash: &PerfectHash, families: &[(Family, Option<PerfectHash>)], elapsed_ns: u64) -> String {
    let mut text = format!(
        "slot = {}\n\n  family        {}\n  values        {} of {}\n  slots         {}, load {:.2}\n  table         {} bytes\n  \
         instructions  {}\n  cost          {} cycles\n  found in      {:.3} ms\n\nThe best of each family:\n\n",
        hash.formula(),
        hash.formula().family(),
        hash.values().len(),
        hash.width(),
        hash.size(),
        hash.load(),
        hash.table_bytes(),
        hash.instructions(),
        hash.cost(),
        elapsed_ns as f64 / 1e6,
    );
    let mut table = Table::new(&[
        ("family", Align::Left),
        ("slots", Align::Right),
        ("bytes", Align::Right),
        ("load", Align::Right),
        ("instructions", Align::Right),
        ("cost", Align::Right),
        ("formula", Align::Left),
    ]);
    for (family, hash) in families {
        let cells = match hash {
            Some(hash) => [
                hash.size().to_string(),
                hash.table_bytes().to_string(),
                format!("{:.2}", hash.load()),
                hash.instructions().to_string(),
                hash.cost().to_string(),
                hash.formula().to_string(),
            ],
            None => ["-", "-", "-", "-", "-", "none within the limits of the search"].map(str::to_owned),
        };
        table.row([family.name().to_owned()].into_iter().chain(cells));
    }
    text.push_str(&table.render(terminal::width(), terminal::paint()));
    text
}
