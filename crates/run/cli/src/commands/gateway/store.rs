//! `tapeworks gateway store`: inspects and verifies a store, replays its outgoing messages, and resets sequence numbers.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use tapeworks_gateway::inspect::{self, Inspection, Replayed};
use tapeworks_runtime::world::{System, World as _};

use super::run::{cut_text, load};
use crate::ending::{Ending, Failure, Result};
use crate::table::{Align, Table, counted, thousands};
use crate::{output, terminal};

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    Inspect(Inspect),
    Verify(Verify),
    Replay(Replay),
    Reset(Reset),
}

/// Show the clients and sequence numbers in a store, or every entry.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  tapeworks gateway store inspect examples/gateway/gateway-store

Exit code 3: parts of the store are damaged.")]
pub(super) struct Inspect {
    /// Folder of the store.
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// Print every entry, one per line.
    #[arg(long)]
    entries: bool,
    /// Print JSON.
    #[arg(short = 'J', long)]
    json: bool,
}

/// Verify every record and entry of a store.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  tapeworks gateway store verify examples/gateway/gateway-store

Exit code 3: parts of the store are damaged.")]
pub(super) struct Verify {
    /// Folder of the store.
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

/// Recompute the outgoing messages from the incoming ones, and compare them with the messages sent.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  tapeworks gateway store replay examples/gateway/loopback.toml

Exit code 3: some messages differ.")]
pub(super) struct Replay {
    /// Configuration of the gateway.
    #[arg(value_name = "CONFIG")]
    config: PathBuf,
    /// Print JSON.
    #[arg(short = 'J', long)]
    json: bool,
}

/// Reset a client's sequence numbers to 1, or move the whole store aside.
///
/// The gateway must not be running.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tapeworks gateway store reset examples/gateway/loopback.toml --client alpha
  tapeworks gateway store reset examples/gateway/loopback.toml --all")]
pub(super) struct Reset {
    /// Configuration of the gateway.
    #[arg(value_name = "CONFIG")]
    config: PathBuf,
    /// Reset the numbers of this client. Messages that it has not received are lost.
    #[arg(long, value_name = "NAME", required_unless_present = "all", conflicts_with = "all")]
    client: Option<String>,
    /// Move aside everything: numbers, messages and orders. The old store is kept next to the new one.
    #[arg(long)]
    all: bool,
    /// With --all, proceed even if orders are open at the venue.
    #[arg(long)]
    force: bool,
}

pub(super) fn run(command: &Command) -> Result {
    match command {
        Command::Inspect(arguments) => inspect(arguments),
        Command::Verify(arguments) => verify(arguments),
        Command::Replay(arguments) => replay(arguments),
        Command::Reset(arguments) => reset(arguments),
    }
}

fn ending(is_sound: bool) -> Ending {
    if is_sound { Ending::Complete } else { Ending::WithProblems }
}

fn json(value: &impl serde::Serialize) -> Result<()> {
    let text = serde_json::to_string(value).map_err(|error| Failure::Failed(error.to_string()))?;
    output::print(&(text + "\n"))
}

/// Refuses a folder without the files of a store. Otherwise a mistyped name would pass as a valid, empty store.
fn has_store(folder: &Path) -> Result<()> {
    let failed = |error: std::io::Error| Failure::Failed(format!("{}: {error}", folder.display()));
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        if Path::new(&name).extension().is_some_and(|ending| ending == "journal") {
            return Ok(());
        }
    }
    Err(Failure::Failed(format!("{}: there is no store: no file NUMBER.journal", folder.display())))
}

fn inspect(arguments: &Inspect) -> Result {
    has_store(&arguments.folder)?;
    let mut lines = String::new();
    let mut printed = Ok(());
    let found = inspect::inspect::<System>(&arguments.folder, |record, client, entry| {
        if arguments.entries && printed.is_ok() {
            let (kind, text) = (entry.kind.name(), inspect::describe(entry));
            let _infallible = writeln!(lines, "{record} {} {kind} {client} {text}", entry.time_ns);
            if lines.len() > 64 << 10 {
                printed = output::print(&lines);
                lines.clear();
            }
        }
    })?;
    printed?;
    if arguments.entries {
        output::print(&lines)?;
    } else if arguments.json {
        json(&found)?;
    } else {
        output::print(&shown(&found))?;
    }
    Ok(ending(found.is_sound()))
}

fn shown(found: &Inspection) -> String {
    let mut table = Table::new(&[
        ("client", Align::Left),
        ("next in", Align::Right),
        ("next out", Align::Right),
        ("requests", Align::Right),
        ("messages", Align::Right),
        ("resets", Align::Right),
    ]);
    for client in &found.clients {
        table.row([
            client.name.clone(),
            client.next_incoming.to_string(),
            client.next_outgoing.to_string(),
            thousands(client.requests),
            thousands(client.messages),
            thousands(client.resets),
        ]);
    }
    let mut text = table.render(terminal::width(), terminal::paint());
    let kinds: Vec<String> =
        found.entries.iter().map(|(kind, count)| format!("{} {kind}", thousands(*count))).collect();
    let _infallible = writeln!(text, "{}: {}", counted(found.records, "record", "records"), kinds.join(", "));
    if found.is_halted {
        text += "the kill switch is on\n";
    }
    text += &soundness(found);
    text
}

fn soundness(found: &Inspection) -> String {
    let mut text = String::new();
    for damage in &found.damage {
        let _infallible = writeln!(text, "{damage}");
    }
    if !found.is_sound() {
        let _infallible = writeln!(
            text,
            "damaged: {}, {} with bytes that are no entries",
            counted(found.damaged, "record", "records"),
            thousands(found.unreadable),
        );
    }
    if let Some(cut) = &found.cut {
        let _infallible = writeln!(text, "{}", cut_text(cut, "is cut off by the next start"));
    }
    text
}

fn verify(arguments: &Verify) -> Result {
    has_store(&arguments.folder)?;
    let found = inspect::inspect::<System>(&arguments.folder, |_, _, _| {})?;
    let entries: u64 = found.entries.values().sum();
    let mut text = soundness(&found);
    if found.is_sound() {
        let _infallible = writeln!(
            text,
            "{}: sound: {} with {}",
            arguments.folder.display(),
            counted(found.records, "record", "records"),
            counted(entries, "entry", "entries"),
        );
    }
    output::print(&text)?;
    Ok(ending(found.is_sound()))
}

fn replay(arguments: &Replay) -> Result {
    let config = load(&arguments.config)?;
    has_store(&config.store)?;
    let replayed = config.replay_store()?;
    if arguments.json {
        json(&replayed)?;
    } else {
        output::print(&compared(&replayed))?;
    }
    Ok(ending(replayed.differences.is_empty()))
}

fn compared(replayed: &Replayed) -> String {
    let mut text = format!(
        "the same: {} to the venue, {} to clients; {} at the end\n",
        counted(replayed.to_venue, "message", "messages"),
        thousands(replayed.to_clients),
        counted(replayed.open_orders, "working order", "working orders"),
    );
    for difference in &replayed.differences {
        let whom = if difference.client.is_empty() { "the venue" } else { &difference.client };
        let _infallible = writeln!(text, "record {}, to {whom}: {}", difference.record, difference.text);
    }
    text
}

fn reset(arguments: &Reset) -> Result {
    let config = load(&arguments.config)?;
    let Some(name) = &arguments.client else {
        if !arguments.force {
            let open = config.replay_store()?.open_orders;
            if open > 0 {
                let orders = counted(open, "order works", "orders work");
                return Err(Failure::Failed(format!(
                    "{orders} at the venue, and the gateway would not know them any more; --force does it"
                )));
            }
        }
        let aside = inspect::set_aside::<System>(&config.store, System::time_of_day().0)?;
        output::print(&format!("the store is kept as {}\n", aside.display()))?;
        return Ok(Ending::Complete);
    };
    if !config.reset_client(name)? {
        let file = arguments.config.display();
        return Err(Failure::Failed(format!("{file}: there is no client '{name}'")));
    }
    output::print(&format!("the numbers of {name} begin at 1\n"))?;
    Ok(Ending::Complete)
}
