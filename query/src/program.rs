//! The program `tapeworks-query`, which `tapeworks query` starts. It is part of the library so that the engine is compiled once.

use std::io::{self, BufWriter, IsTerminal, Read};
use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use tapeworks_capture::new_file::{self, Handle};
use tapeworks_capture::stop;

use crate::arguments::{Arguments, Format};
use crate::output;
use crate::{Catalogue, Options, QueryError};

/// How long what still runs may take to end: it removes its temporary files then.
const ENDING: Duration = Duration::from_secs(5);

/// Rows of a table unless given.
const ROWS: usize = 100;

/// Runs the program with the arguments of the process. Returns its exit code: see `tapeworks query --help`.
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // Before Ctrl-C is listened to: a program that waits for a statement ends immediately on Ctrl-C.
    let read = match read(&arguments) {
        Ok(read) => read,
        Err(why) => return refused(&why),
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .worker_threads(arguments.jobs.map_or_else(processors, NonZeroUsize::get))
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error),
    };
    let ended = runtime.block_on(async {
        // By another thread, as this one may wait for the reader of a pipe.
        let interrupt = tokio::spawn(async {
            if tokio::signal::ctrl_c().await.is_ok() {
                stop::request();
            }
        });
        tokio::select! {
            ended = run(&arguments, read) => Some(ended),
            _ = interrupt => None,
        }
    });
    // What still runs is of no use, but its temporary files are to go.
    runtime.shutdown_timeout(ENDING);
    match ended {
        _ if stop::is_requested() => ExitCode::from(130),
        None | Some(Ok(())) => ExitCode::SUCCESS,
        // The reader has enough.
        Some(Err(QueryError::Stdout(error))) if error.kind() == io::ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        Some(Err(error)) => failed(&error),
    }
}

fn refused(why: &str) -> ExitCode {
    eprintln!("error: {why}");
    ExitCode::from(2)
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

fn failed(error: &dyn std::fmt::Display) -> ExitCode {
    eprintln!("error: {error}");
    ExitCode::FAILURE
}

/// The format of the answer, and the statement unless only the tables are wanted.
fn read(arguments: &Arguments) -> Result<(Format, Option<String>), String> {
    Ok((format(arguments)?, statement(arguments)?))
}

async fn run(arguments: &Arguments, (format, statement): (Format, Option<String>)) -> Result<(), QueryError> {
    if let Some(path) = &arguments.out {
        // Before the work.
        new_file::check(path, arguments.force)?;
    }
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
        return show_tables(&catalogue).map_err(QueryError::Stdout);
    };
    let answer = catalogue.sql(&statement).await?;
    let most = match arguments.rows {
        Some(0) => None,
        Some(rows) => Some(rows),
        None => arguments.out.is_none().then_some(ROWS),
    };
    match &arguments.out {
        Some(path) => {
            let rows = output::write_file(answer, path, format, most, arguments.force).await?;
            if !arguments.quiet {
                eprintln!("{rows} rows: {}", path.display());
            }
        }
        None => {
            let mut stdout = BufWriter::new(Handle::stdout().map_err(QueryError::Stdout)?);
            output::write_text(answer, &mut stdout, format, most).await?;
        }
    }
    Ok(())
}

fn format(arguments: &Arguments) -> Result<Format, String> {
    let format = match (&arguments.format, &arguments.out) {
        (Some(format), _) => *format,
        (None, Some(path)) => Format::of_name(path).ok_or_else(|| {
            let path = path.display();
            format!("{path}: the name has no end that stands for a format (.csv, .json, .parquet, .txt): give --format")
        })?,
        (None, None) if io::stdout().is_terminal() => Format::Table,
        (None, None) => Format::Csv,
    };
    if format == Format::Parquet && arguments.out.is_none() {
        return Err("Parquet is a file: name one with --out".into());
    }
    if format != Format::Table && arguments.rows.is_some() {
        return Err("--rows is for tables: say LIMIT in the statement".into());
    }
    Ok(format)
}

/// The statement, unless only the tables are wanted.
fn statement(arguments: &Arguments) -> Result<Option<String>, String> {
    match (&arguments.sql, &arguments.file) {
        (Some(text), _) if text == "-" => {
            let mut text = String::new();
            match io::stdin().read_to_string(&mut text) {
                Ok(_) => Ok(Some(text)),
                Err(error) => Err(format!("standard input: {error}")),
            }
        }
        (Some(text), _) => Ok(Some(text.clone())),
        (None, Some(path)) => match std::fs::read_to_string(path) {
            Ok(text) => Ok(Some(text)),
            Err(error) => Err(format!("{}: {error}", path.display())),
        },
        (None, None) => Ok(None),
    }
}

fn show_tables(catalogue: &Catalogue) -> io::Result<()> {
    use std::io::Write;

    let mut stdout = BufWriter::new(Handle::stdout()?);
    for (name, schema) in catalogue.tables() {
        writeln!(stdout, "{name} ({} files)", catalogue.files(name))?;
        for field in schema.fields() {
            writeln!(stdout, "  {:24} {}", field.name(), field.data_type())?;
        }
    }
    stdout.flush()
}
