//! The flags of `tapeworks query`.
//!
//! The command line of Tapeworks includes this file, so that `tapeworks query --help` works where this program is not installed.

use std::num::NonZeroUsize;
use std::path::PathBuf;

/// The most threads, as for other commands.
const MOST_THREADS: usize = 64;

/// Run SQL over the files of `tapeworks batch`.
///
/// Each schema is a table, with _ for -: trades, mbo, cmbp_1. as_of('trades', 'cmbp_1') joins each trade with
/// the NBBO at its time.
#[derive(clap::Parser, Debug)]
#[command(
    name = "tapeworks query",
    bin_name = "tapeworks query",
    version,
    after_help = "Examples:\n  \
        tapeworks query --data days --tables\n  \
        tapeworks query --data days \"SELECT symbol, sum(size) FROM trades WHERE date = '2025-11-14' GROUP BY symbol\"\n  \
        tapeworks query --data days --out spreads.parquet \"SELECT symbol, price, bid_px_00, ask_px_00 FROM as_of('trades', 'cmbp_1')\"\n\n\
        Exit codes: 0 done; 1 the files, the statement or the output failed; 2 wrong usage; 130 stopped by Ctrl-C."
)]
pub struct Arguments {
    /// SELECT statement; - reads it from standard input
    #[arg(value_name = "SQL", required_unless_present_any = ["file", "tables"])]
    pub sql: Option<String>,
    /// Output folder of a batch, or with the feature cloud an address: s3://BUCKET/PATH, gs:// or az://
    #[arg(short, long, value_name = "DIR")]
    pub data: String,
    /// Read the statement from a file
    #[arg(long, value_name = "FILE", conflicts_with = "sql")]
    pub file: Option<PathBuf>,
    /// List the tables and their columns
    #[arg(long, conflicts_with_all = ["sql", "file", "out", "rows"])]
    pub tables: bool,
    /// Format of the result [default: by the extension of --out; else a table on a terminal, CSV to a pipe]
    #[arg(short, long, value_enum)]
    pub format: Option<Format>,
    /// Write the result to a file, which appears once it is complete; - is standard output, and needs
    /// --format
    #[arg(short, long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Overwrite the file if it exists
    #[arg(long, requires = "out")]
    pub force: bool,
    /// Maximum rows of a table to print, 0 for all [default: 100 on standard output, all to a file]
    #[arg(long, value_name = "N")]
    pub rows: Option<usize>,
    /// Number of threads, 1 to 64 [default: one per processor]
    #[arg(short, long, value_name = "N", value_parser = threads)]
    pub jobs: Option<NonZeroUsize>,
    /// Memory for sorts, groups and joins, in MB; larger sorts and groups spill to temporary files [default:
    /// no limit]
    #[arg(long, value_name = "MB", value_parser = clap::value_parser!(u32).range(1..))]
    pub memory: Option<u32>,
    /// Do not print warnings of missing messages and similar problems, or the number of rows written
    #[arg(short, long)]
    pub quiet: bool,
}

/// Format of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Aligned columns.
    Table,
    /// Comma-separated values with a header line.
    Csv,
    /// One JSON object per line.
    Json,
    /// A Parquet file.
    Parquet,
}

fn threads(text: &str) -> Result<NonZeroUsize, String> {
    let known = text.parse().ok().filter(|threads: &NonZeroUsize| threads.get() <= MOST_THREADS);
    known.ok_or_else(|| format!("use a whole number from 1 to {MOST_THREADS}"))
}
