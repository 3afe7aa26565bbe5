//! `tapeworks query`: starts the program that has the engine of SQL, which is larger than this one.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use clap::Args;

use crate::ending::{Failure, Result};

/// The program.
const PROGRAM: &str = "tapeworks-query";

/// SQL over the files of `tapeworks batch`: the program `tapeworks-query`, which is installed apart.
///
/// `tapeworks query --help` shows its flags.
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
    /// What the program takes.
    #[arg(value_name = "ARGUMENTS", trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Becomes that program: the one beside this, or the first on the path.
pub(crate) fn run(arguments: Arguments) -> Result {
    let beside = std::env::current_exe().ok().map(|own| own.with_file_name(PROGRAM));
    let program = beside.filter(|path| path.is_file()).unwrap_or_else(|| PathBuf::from(PROGRAM));
    // It returns only if the program cannot be started.
    let error = Command::new(&program).args(arguments.arguments).exec();
    Err(match error.kind() {
        io::ErrorKind::NotFound => Failure::Failed(format!(
            "{PROGRAM} is not installed: `cargo install --path query` in the sources of Tapeworks builds it"
        )),
        _ => Failure::Failed(format!("{}: {error}", program.display())),
    })
}
