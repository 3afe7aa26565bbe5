//! `tapeworks dump`: prints every message, field by field.

use std::collections::HashSet;
use std::io::Write as _;
use std::path::PathBuf;

use clap::Args;
use tapeworks_analysis::dump::{self, Form, Options};
use tapeworks_analysis::input;
use tapeworks_analysis::sessions::ReadAs;

use crate::commands::replay::complain_of_unseen;
use crate::ending::{Ending, Failure, Result};
use crate::table::counted;
use crate::terminal::{self, Bar, complain};
use crate::values::{self, Symbols};
use crate::{output, report};

/// Print every message, decoded field by field.
///
/// Reads pcap and pcapng captures, raw ITCH files and SoupBinTCP files, plain, gzip or zstd. Unknown and
/// truncated messages are shown with their position and the reason, and the dump continues after them.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tapeworks dump testdata/captures/nasdaq-itch50/Multiple.Packets.pcap
  tapeworks dump --json testdata/captures/iex-deep/PriceLevelBuyUpdateMessage.pcap
  tapeworks dump --detail --message AddOrder testdata/captures/nasdaq-itch50/Multiple.Packets.pcap
  tapeworks dump --protocol cboe-grp testdata/sessions/cboe-grp.pcap

Exit code 3: some of the input could not be read.")]
pub(crate) struct Arguments {
    /// Captures or message files; - reads standard input.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Print messages as JSON, one object per line.
    #[arg(short = 'J', long, conflicts_with = "detail")]
    json: bool,
    /// Print one line per field, with its offset and bytes.
    #[arg(short, long)]
    detail: bool,
    /// Stop after N messages.
    #[arg(short, long, value_name = "N")]
    limit: Option<u64>,
    /// Print only messages about these symbols: A,B or @FILE.
    #[arg(short, long, value_name = "SYMBOLS", value_parser = values::symbols)]
    symbols: Option<Symbols>,
    /// Print only messages with these names: AddOrder,OrderDelete (see "tapeworks schema").
    #[arg(short, long, value_name = "NAMES", value_delimiter = ',')]
    message: Vec<String>,
    /// Parse the input as this protocol instead of detecting it; see "tapeworks schema --list".
    #[arg(short, long, value_name = "NAME", value_parser = values::read_as)]
    protocol: Option<ReadAs>,
}

/// Converts names as people write them (`Add Order`, `add_order`) to the schema's names in lower case.
fn message_names(names: &[String]) -> Result<HashSet<String>> {
    let known: HashSet<String> = tapeworks_wire::protocols()
        .iter()
        .flat_map(|protocol| protocol.schema.messages.iter().chain(protocol.schema.headers))
        .map(|structure| structure.name.to_ascii_lowercase())
        .collect();
    names
        .iter()
        .map(|name| {
            let plain: String =
                name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
            if known.contains(&plain) {
                return Ok(plain);
            }
            Err(Failure::Usage(format!("no protocol has a message '{name}'; see 'tapeworks schema itch'")))
        })
        .collect()
}

pub(crate) fn run(arguments: Arguments) -> Result {
    let options = Options {
        read_as: arguments.protocol,
        form: match (arguments.json, arguments.detail) {
            (true, _) => Form::Json,
            (false, true) => Form::Fields,
            (false, false) => Form::Lines,
        },
        limit: arguments.limit,
        symbols: arguments.symbols.map(|symbols| symbols.0),
        messages: message_names(&arguments.message)?,
        paint: terminal::paint(),
    };
    let mut inputs = input::open_any(&arguments.files, arguments.protocol)?;
    let mut out = output::stdout()?;
    let mut bar = Bar::new("Dumping");
    let dumped = dump::dump(&mut inputs, &options, &mut out, &mut |progress| {
        bar.show(progress.bytes_read, progress.total_bytes, None)
    })
    .and_then(|dumped| out.flush().map(|()| dumped))
    .map_err(|error| Failure::from_stdout(&error))?;
    bar.clear();
    for (destination, protocol) in &dumped.ended.inferred {
        complain(&report::inferred(destination, protocol));
    }
    dumped.ended.complaints().for_each(|text| complain(&text));
    if crate::interrupt::is_requested() {
        complain(&format!("stopped after {}", counted(dumped.messages, "message", "messages")));
        return Ok(Ending::Interrupted);
    }
    if dumped.problems > 0 {
        let places = counted(dumped.problems, "place", "places");
        let messages = counted(dumped.messages, "message", "messages");
        complain(&format!("{places} could not be read; {messages} could"));
    }
    complain_of_unseen(&dumped.unseen_symbols);
    let is_clean = dumped.unseen_symbols.is_empty() && dumped.problems == 0 && dumped.ended.is_clean();
    Ok(if is_clean { Ending::Complete } else { Ending::WithProblems })
}
