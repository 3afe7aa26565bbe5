//! `tapeworks-query`: SQL over the files of `tapeworks batch`. `tapeworks query` starts it.

use std::io::{self, BufWriter, IsTerminal, Read};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use tapeworks_query::output::{self, Format};
use tapeworks_query::{Catalogue, Options, QueryError};

/// Rows of a table unless given.
const ROWS: usize = 100;

/// SQL over the files of `tapeworks batch`.
///
/// Each schema is a table, with _ for -: trades, mbo, cmbp_1. as_of('trades', 'cmbp_1') has each trade with the NBBO at its time.
#[derive(Parser)]
#[command(
    name = "tapeworks query",
    bin_name = "tapeworks query",
    version,
    after_help = "Examples:\n  \
        tapeworks query --data days --tables\n  \
        tapeworks query --data days \"SELECT symbol, sum(size) FROM trades WHERE date = '2025-11-14' GROUP BY symbol\"\n  \
        tapeworks query --data days --out spreads.parquet \"SELECT symbol, price, bid_px_00, ask_px_00 FROM as_of('trades', 'cmbp_1')\"\n\n\
        Exit codes: 0; 1 the files, the statement or the result fail; 2 the flags; 130 Ctrl-C."
)]
struct Arguments {
    /// One statement that reads; - is standard input
    #[arg(value_name = "SQL", required_unless_present_any = ["file", "tables"])]
    sql: Option<String>,
    /// The folder of a batch; with the feature `cloud` also s3://BUCKET/PATH, gs:// and az://
    #[arg(short, long, value_name = "DIR")]
    data: String,
    /// A file with the statement
    #[arg(long, value_name = "FILE", conflicts_with = "sql")]
    file: Option<PathBuf>,
    /// Show the tables and their columns
    #[arg(long, conflicts_with_all = ["sql", "file", "out", "rows"])]
    tables: bool,
    /// The form of the result. Unless given: by the end of --out's name; else a table on a terminal, and CSV elsewhere
    #[arg(short, long, value_enum)]
    format: Option<Format>,
    /// Write the result to a file, which has its name when it is whole
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Rows of a table; 0 is all [default: 100 on standard output]
    #[arg(long, value_name = "N")]
    rows: Option<usize>,
    /// Threads [default: as many as there are processors]
    #[arg(short, long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
    /// Memory for sorts, groups and joins, in MB; sorts and groups beyond it go to temporary files
    #[arg(long, value_name = "MB", value_parser = clap::value_parser!(u32).range(1..))]
    memory: Option<u32>,
    /// Say nothing of missing messages and the like
    #[arg(short, long)]
    quiet: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .worker_threads(arguments.jobs.map_or_else(processors, NonZeroUsize::get))
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error),
    };
    let ended = runtime.block_on(async {
        tokio::select! {
            ended = run(&arguments) => Some(ended),
            _ = tokio::signal::ctrl_c() => None,
        }
    });
    // What still runs is of no use.
    runtime.shutdown_background();
    match ended {
        None => ExitCode::from(130),
        Some(Ok(())) => ExitCode::SUCCESS,
        Some(Err(Failure::Flags(why))) => {
            eprintln!("error: {why}");
            ExitCode::from(2)
        }
        // Who reads it has enough.
        Some(Err(Failure::Query(QueryError::Stdout(error)))) if error.kind() == io::ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        Some(Err(Failure::Query(error))) => failed(&error),
    }
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

fn failed(error: &dyn std::fmt::Display) -> ExitCode {
    eprintln!("error: {error}");
    ExitCode::FAILURE
}

/// Why there is no result.
enum Failure {
    Flags(String),
    Query(QueryError),
}

impl From<QueryError> for Failure {
    fn from(error: QueryError) -> Self {
        Self::Query(error)
    }
}

async fn run(arguments: &Arguments) -> Result<(), Failure> {
    let format = format(arguments)?;
    let statement = statement(arguments)?;
    let options = Options {
        threads: arguments.jobs,
        memory_bytes: arguments.memory.map(|megabytes| megabytes as usize * 1_000_000),
    };
    let catalogue = Catalogue::open(&arguments.data, &options).await?;
    if !arguments.quiet {
        for warning in catalogue.warnings() {
            eprintln!("warning: {warning}");
        }
    }
    let Some(statement) = statement else {
        return show_tables(&catalogue).map_err(|error| QueryError::Stdout(error).into());
    };
    let answer = catalogue.sql(&statement).await?;
    let most = match arguments.rows {
        Some(0) => None,
        Some(rows) => Some(rows),
        None => arguments.out.is_none().then_some(ROWS),
    };
    match &arguments.out {
        Some(path) => {
            let rows = output::write_file(answer, path, format, most).await?;
            if !arguments.quiet {
                eprintln!("{rows} rows: {}", path.display());
            }
        }
        None => {
            let mut stdout = BufWriter::new(io::stdout());
            output::write_text(answer, &mut stdout, format, most).await?;
        }
    }
    Ok(())
}

fn format(arguments: &Arguments) -> Result<Format, Failure> {
    let format = match (&arguments.format, &arguments.out) {
        (Some(format), _) => *format,
        (None, Some(path)) => Format::of_name(path).ok_or_else(|| {
            let path = path.display();
            Failure::Flags(format!("{path}: the name has no end that stands for a format (.csv, .json, .parquet, .txt): give --format"))
        })?,
        (None, None) if io::stdout().is_terminal() => Format::Table,
        (None, None) => Format::Csv,
    };
    if format == Format::Parquet && arguments.out.is_none() {
        return Err(Failure::Flags("Parquet is a file: name one with --out".into()));
    }
    if format != Format::Table && arguments.rows.is_some() {
        return Err(Failure::Flags("--rows is for tables: say LIMIT in the statement".into()));
    }
    Ok(format)
}

/// The statement, unless only the tables are wanted.
fn statement(arguments: &Arguments) -> Result<Option<String>, Failure> {
    match (&arguments.sql, &arguments.file) {
        (Some(text), _) if text == "-" => {
            let mut text = String::new();
            match io::stdin().read_to_string(&mut text) {
                Ok(_) => Ok(Some(text)),
                Err(error) => Err(Failure::Flags(format!("standard input: {error}"))),
            }
        }
        (Some(text), _) => Ok(Some(text.clone())),
        (None, Some(path)) => match std::fs::read_to_string(path) {
            Ok(text) => Ok(Some(text)),
            Err(error) => Err(Failure::Flags(format!("{}: {error}", path.display()))),
        },
        (None, None) => Ok(None),
    }
}

fn show_tables(catalogue: &Catalogue) -> io::Result<()> {
    use std::io::Write;

    let mut stdout = BufWriter::new(io::stdout());
    for (name, schema) in catalogue.tables() {
        writeln!(stdout, "{name} ({} files)", catalogue.files(name))?;
        for field in schema.fields() {
            writeln!(stdout, "  {:24} {}", field.name(), field.data_type())?;
        }
    }
    stdout.flush()
}
