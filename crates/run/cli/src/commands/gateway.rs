//! `tapeworks gateway`: connects FIX clients to a venue's native session.

mod control;
pub(crate) mod run;
mod store;

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::ending::Result;

/// Run the order gateway between FIX clients and a venue's native session.
///
/// Accepts FIX 4.2, 4.4 and 5.0 SP2 sessions and checks each order. Translates orders to the venue's protocol
/// (Millennium native or OUCH 5.0), and the venue's reports to FIX. Messages sent and received survive a
/// crash.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "\
Examples:
  tapeworks exchange serve examples/exchange/orders.toml       (in another terminal: an exchange)
  tapeworks gateway examples/gateway/loopback.toml
  tapeworks gateway check examples/gateway/loopback.toml
  tapeworks gateway sessions                                   (of the running gateway; also: orders, halt, resume)

Ctrl-C logs out of all sessions. Exit code 1: a port is busy, or the store cannot be used. 78: the \
configuration is invalid."
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    run: run::Run,
    #[command(subcommand)]
    command: Option<Command>,
}

/// Where the configuration is.
#[derive(Debug, Args)]
struct Configured {
    /// Configuration, a TOML file.
    #[arg(value_name = "CONFIG")]
    config: PathBuf,
}

#[derive(Debug, Subcommand)]
enum Command {
    Check(run::Check),
    Halt(control::Halt),
    Resume(control::Resume),
    Sessions(control::Sessions),
    Orders(control::ListOrders),
    /// Inspect, verify, replay or reset the store of a stopped gateway.
    #[command(subcommand)]
    Store(store::Command),
}

pub(crate) fn run(arguments: Arguments) -> Result {
    match arguments.command {
        None => run::run(&arguments.run),
        Some(Command::Check(arguments)) => run::check(&arguments),
        Some(Command::Halt(arguments)) => control::halt(&arguments),
        Some(Command::Resume(arguments)) => control::resume(&arguments),
        Some(Command::Sessions(arguments)) => control::sessions(&arguments),
        Some(Command::Orders(arguments)) => control::orders(&arguments),
        Some(Command::Store(command)) => store::run(&command),
    }
}
