//! `tapeworks`: the command line. Reads arguments, calls the crates, and shows their results.
//!
//! Data goes to standard output, all other text to standard error. [`ending`] lists the exit codes.
//!
//! # The crates
//!
//! You can use each crate without the others above it. `cargo doc --workspace --no-deps` builds these pages. A crate depends only on crates of
//! its own level and below.
//!
//! | level | crate | purpose |
//! | --- | --- | --- |
//! | programs | [sim](../tapeworks_sim/index.html) | a whole market in one thread, faults by seed |
//! |  | [lab](../tapeworks_lab/index.html) | low-latency techniques, measured |
//! | processes | [service](../tapeworks_service/index.html) | configured processes, web page |
//! |  | [outputs](../tapeworks_outputs/index.html) | clients, multicast, stream, connectors |
//! |  | [plant](../tapeworks_plant/index.html) | the live plant's threads |
//! |  | [gateway](../tapeworks_gateway/index.html) | FIX clients to a venue |
//! |  | [venues](../tapeworks_venues/index.html) | simulated venues, live |
//! |  | [analysis](../tapeworks_analysis/index.html) | files in, answers out |
//! |  | [batch](../tapeworks_batch/index.html) | days in, folders out |
//! | engines | [engine](../tapeworks_engine/index.html) | the deterministic core, checkpoints |
//! |  | [runtime](../tapeworks_runtime/index.html) | workers, keys, TLS, settings |
//! |  | [generator](../tapeworks_generator/index.html) | a market in real protocol bytes |
//! |  | [matching](../tapeworks_matching/index.html) | orders by price and time |
//! |  | [translate](../tapeworks_translate/index.html) | FIX orders to a venue's; risk checks |
//! |  | [flow](../tapeworks_flow/index.html) | graphs of packet stages |
//! | market data | [feed](../tapeworks_feed/index.html) | normalised events |
//! | market data | [follow](../tapeworks_follow/index.html) | lines, gaps, restarts |
//! |  | [store](../tapeworks_store/index.html) | DBN, Parquet, CSV, JSON |
//! | protocols | [session](../tapeworks_session/index.html) | both ends of market data sessions |
//! |  | [order-session](../tapeworks_order_session/index.html) | both ends of order sessions |
//! |  | [market](../tapeworks_market/index.html) | events, books, NBBO |
//! |  | [capture](../tapeworks_capture/index.html) | captures and network headers |
//! |  | [nic](../tapeworks_nic/index.html) | live receivers and senders |
//! |  | [journal](../tapeworks_journal/index.html) | a log that survives crashes |
//! | foundations | [wire](../tapeworks_wire/index.html) | protocols as declarations |
//! |  | [fix-wire](../tapeworks_fix_wire/index.html) | FIX messages as declarations |
//! |  | [dispatch](../tapeworks_dispatch/index.html) | state machines, perfect hashes |
//! |  | [ring](../tapeworks_ring/index.html) | queues, waiting, memory |
//! |  | [stage](../tapeworks_stage/index.html) | stages and inline edges |
//! |  | [time](../tapeworks_time/index.html) | nanoseconds, clock changes |
//! |  | [random](../tapeworks_random/index.html) | numbers by seed |
//! |  | [disk](../tapeworks_disk/index.html) | files behind a trait |
//! |  | [cloud](../tapeworks_cloud/index.html) | object stores |
//! |  | [drawing](../tapeworks_drawing/index.html) | plots as SVG |
//!
//! The macros of `wire` and `dispatch` are separate crates. The [repository](https://github.com/tapeworks/tapeworks) has the book, with
//! tutorials and the reference of all commands.

mod commands;
mod ending;
mod http;
mod interrupt;
mod log;
mod output;
#[cfg(test)]
#[path = "../tests/reference/parts.rs"]
mod reference;
mod report;
mod table;
mod terminal;
mod tls;
mod values;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{ArgAction, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use tapeworks_capture::new_file;

use crate::ending::{Failure, Result, exit_codes};
use crate::terminal::complain;

/// Market data in, order books and a synthetic NBBO out.
///
/// Reads captures and raw files of exchange protocols, rebuilds the order book of every venue and the best
/// bid and offer across venues, and writes DBN, Parquet, CSV and JSON.
#[derive(Debug, Parser)]
#[command(name = "tapeworks", version, arg_required_else_help = true, after_help = exit_codes())]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Demo(commands::demo::Arguments),
    Replay(Box<commands::replay::Arguments>),
    Dump(commands::dump::Arguments),
    Stats(commands::stats::Arguments),
    Schema(commands::schema::Arguments),
    Symbols(commands::symbols::Arguments),
    Bars(Box<commands::bars::Arguments>),
    Batch(Box<commands::batch::Arguments>),
    Query(commands::query::Arguments),
    Study(commands::study::Arguments),
    Compare(commands::compare::Arguments),
    Exchange(commands::exchange::Arguments),
    Gateway(commands::gateway::Arguments),
    Fix(Box<commands::fix::Arguments>),
    Hash(commands::hash::Arguments),
    Flow(commands::flow::Arguments),
    Plant(commands::plant::Arguments),
    Validate(commands::plant::Validate),
    Journal(commands::journal::Arguments),
    Lab(commands::lab::Arguments),
    Subscribe(Box<commands::subscribe::Arguments>),
    Tap(commands::tap::Arguments),
    Top(commands::top::Arguments),
}

fn main() -> ExitCode {
    let parsed = with_negative_numbers(Arguments::command())
        .try_get_matches()
        .and_then(|matches| Arguments::from_arg_matches(&matches));
    let arguments = match parsed {
        Ok(arguments) => arguments,
        Err(error) => return refuse(&error),
    };
    interrupt::listen();
    new_file::on_leftover(|partial, kept| {
        let became = kept.map_or("removed".to_owned(), |kept| format!("kept as {}", kept.display()));
        complain(&format!("{}: left behind by a run that died, {became}", partial.display()));
    });
    match run(arguments.command) {
        Ok(ending) => ExitCode::from(ending.code()),
        Err(failure) => {
            let text = failure.to_string();
            text.lines().for_each(complain);
            ExitCode::from(failure.code())
        }
    }
}

/// Makes `-1` the value of a flag instead of a flag, so that the error names the permitted values.
fn with_negative_numbers(command: clap::Command) -> clap::Command {
    let takes_values = |argument: &clap::Arg| {
        !argument.is_positional() && matches!(argument.get_action(), ArgAction::Set | ArgAction::Append)
    };
    command
        .mut_args(|argument| match takes_values(&argument) {
            true => argument.allow_negative_numbers(true),
            false => argument,
        })
        .mut_subcommands(with_negative_numbers)
}

/// Rewords the standard library's error for an invalid count to match the other hints.
fn hint(text: &str) -> String {
    const STANDARD: [(&str, &str); 4] = [
        ("invalid digit found in string", "use a whole number"),
        ("cannot parse integer from empty string", "use a whole number"),
        ("number too large to fit in target type", "use a smaller whole number"),
        ("number too small to fit in target type", "use a larger whole number"),
    ];
    STANDARD.iter().fold(text.to_owned(), |text, (theirs, ours)| text.replace(theirs, ours))
}

fn run(command: Command) -> Result {
    match command {
        Command::Demo(arguments) => commands::demo::run(&arguments),
        Command::Replay(arguments) => commands::replay::run(*arguments),
        Command::Dump(arguments) => commands::dump::run(arguments),
        Command::Stats(arguments) => commands::stats::run(&arguments),
        Command::Schema(arguments) => commands::schema::run(&arguments),
        Command::Symbols(arguments) => commands::symbols::run(arguments),
        Command::Bars(arguments) => commands::bars::run(*arguments),
        Command::Batch(arguments) => commands::batch::run(*arguments),
        Command::Query(arguments) => commands::query::run(arguments),
        Command::Study(arguments) => commands::study::run(&arguments),
        Command::Compare(arguments) => commands::compare::run(arguments),
        Command::Exchange(arguments) => commands::exchange::run(arguments),
        Command::Fix(arguments) => commands::fix::run(&arguments),
        Command::Gateway(arguments) => commands::gateway::run(arguments),
        Command::Hash(arguments) => commands::hash::run(&arguments),
        Command::Flow(arguments) => commands::flow::run(arguments),
        Command::Plant(arguments) => commands::plant::run(&arguments),
        Command::Validate(arguments) => commands::plant::validate(&arguments),
        Command::Journal(arguments) => commands::journal::run(arguments),
        Command::Lab(arguments) => commands::lab::run(arguments),
        Command::Subscribe(arguments) => commands::subscribe::run(&arguments),
        Command::Tap(arguments) => commands::tap::run(&arguments),
        Command::Top(arguments) => commands::top::run(&arguments),
    }
}

/// Prints help and version to standard output, and an error as one line.
fn refuse(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // A closed pipe is not an error.
            let _ = error.print();
            return ExitCode::SUCCESS;
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            return ExitCode::from(2);
        }
        _ => {}
    }
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    if let Some(failure) = commands::hash::refuse_negative(error, words) {
        complain(&failure.to_string());
        return ExitCode::from(failure.code());
    }
    let text = hint(&error.to_string());
    let paragraphs: Vec<String> = text
        .split("\n\n")
        .map(|paragraph| paragraph.lines().map(str::trim).collect::<Vec<_>>().join(" "))
        .collect();
    let mut line = paragraphs.first().map_or("", |first| first.trim_start_matches("error: ")).to_owned();
    for tip in paragraphs.iter().filter_map(|paragraph| paragraph.strip_prefix("tip: ")) {
        line.push_str("; ");
        line.push_str(tip);
    }
    complain(&format!("{line}; see --help"));
    ExitCode::from(Failure::Usage(line).code())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_command_has_an_example() {
        fn check(command: &clap::Command) {
            for child in command.get_subcommands() {
                check(child);
                let help = child.get_after_help().map(ToString::to_string).unwrap_or_default();
                assert!(
                    child.has_subcommands() || help.contains("tapeworks "),
                    "{} has no example",
                    child.get_name()
                );
            }
        }
        check(&Arguments::command());
    }
}
