//! `tapeworks query`: starts the separate program with the SQL engine, which is larger than this program.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use clap::{Args, CommandFactory as _};

use crate::ending::{Ending, Failure, Result};
use crate::output;

#[allow(dead_code, unreachable_pub, reason = "the program reads the flags; here they only render its help")]
#[path = "query/arguments.rs"]
mod program;

/// Returns the flags of the program.
pub(crate) fn flags() -> clap::Command {
    program::Arguments::command()
}

/// The name of the program.
const PROGRAM: &str = "tapeworks-query";

/// Query the files of `tapeworks batch` with SQL (needs the separate program `tapeworks-query`).
///
/// `tapeworks query --help` lists the flags.
#[derive(Debug, Args)]
#[command(
    disable_help_flag = true,
    after_help = "\
Examples:
  tapeworks query --data days --tables
  tapeworks query --data days \"SELECT symbol, sum(size) FROM trades GROUP BY symbol\"
  tapeworks query --data days \"SELECT price, bid_px_00, ask_px_00 FROM as_of('trades', 'cmbp_1')\""
)]
pub(crate) struct Arguments {
    /// Arguments of `tapeworks-query`.
    #[arg(value_name = "ARGUMENTS", trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Replaces this process with the program, from the same folder or else from the path. The help does not need the program.
pub(crate) fn run(arguments: Arguments) -> Result {
    let arguments = arguments.arguments;
    if let Some(flag) = arguments.iter().find(|flag| *flag == "--help" || *flag == "-h") {
        let mut command = flags();
        let help = if flag == "-h" { command.render_help() } else { command.render_long_help() };
        output::print(&help.to_string())?;
        return Ok(Ending::Complete);
    }
    let own = std::env::current_exe().ok().map(|own| own.with_file_name(PROGRAM));
    let program = own.filter(|path| path.is_file()).unwrap_or_else(|| PathBuf::from(PROGRAM));
    // `exec` returns only if the program cannot be started.
    let error = Command::new(&program).args(arguments).exec();
    Err(match error.kind() {
        io::ErrorKind::NotFound => Failure::Failed(format!(
            "{PROGRAM} is not installed: `cargo install --path query` in the sources of Tapeworks builds it"
        )),
        _ => Failure::Failed(format!("{}: {error}", program.display())),
    })
}
