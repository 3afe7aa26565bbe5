//! `tapeworks exchange`: runs and generates simulated venues.

mod generate;
mod serve;

use clap::{Args, Subcommand};

use crate::ending::Result;

/// Simulate venues in real protocol bytes.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Generate(Box<generate::Generate>),
    Serve(serve::Serve),
    Check(serve::Check),
}

pub(crate) fn run(arguments: Arguments) -> Result {
    match arguments.command {
        Command::Generate(arguments) => generate::run(&arguments),
        Command::Serve(arguments) => serve::serve(&arguments),
        Command::Check(arguments) => serve::check(&arguments),
    }
}
