//! `tapeworks lab` in a build without the lab: names the feature that adds it.

use std::ffi::OsString;

use clap::Args;

use crate::ending::{Failure, Result};

/// Measure low-latency techniques on this machine (requires `--features lab`).
#[derive(Debug, Args)]
#[command(after_help = "Example, in a build with --features lab: tapeworks lab run loop-unrolling")]
pub(crate) struct Arguments {
    /// Arguments for the lab.
    #[arg(value_name = "ARGUMENTS", trailing_var_arg = true, allow_hyphen_values = true)]
    _arguments: Vec<OsString>,
}

/// Names the command that builds the lab.
pub(crate) fn run(_arguments: Arguments) -> Result {
    Err(Failure::Failed(
        "this build does not include the lab; in a checkout of Tapeworks, run `cargo run --release --features lab -- lab`"
            .to_owned(),
    ))
}
