//! `tapeworks schema`: prints a protocol's declaration.

use clap::{Args, ValueEnum};
use serde_json::json;
use tapeworks_wire::{Role, protocol_by_name, protocols, schema};

use crate::ending::{Ending, Failure, Result};
use crate::table::{Align, Table};
use crate::{output, terminal};

/// Show a protocol as a reference page, JSON, or a Wireshark dissector.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tapeworks schema --list
  tapeworks schema itch
  tapeworks schema iex-deep --format json
  tapeworks schema all --format wireshark > tapeworks.lua
  tshark -X lua_script:tapeworks.lua -V -r testdata/captures/nasdaq-itch50/Multiple.Packets.pcap")]
pub(crate) struct Arguments {
    /// A protocol's name or alias, or all.
    #[arg(required_unless_present = "list", value_name = "PROTOCOL")]
    protocol: Option<String>,
    /// The form of the answer.
    #[arg(short, long, value_enum, default_value_t = Format::Markdown)]
    format: Format,
    /// List the protocols.
    #[arg(short, long, conflicts_with = "protocol")]
    list: bool,
    /// List them as JSON.
    #[arg(short = 'J', long, requires = "list")]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Format {
    /// A page for people.
    Markdown,
    /// One object for programs.
    Json,
    /// A dissector in Lua.
    Wireshark,
}

pub(crate) fn run(arguments: &Arguments) -> Result {
    let text = match &arguments.protocol {
        Some(name) => page(name, arguments.format)?,
        None if arguments.json => list_json(),
        None => list(),
    };
    output::print(&text)?;
    Ok(Ending::Complete)
}

fn page(name: &str, format: Format) -> Result<String> {
    let chosen = if name.eq_ignore_ascii_case("all") {
        protocols().to_vec()
    } else {
        let names = || protocols().iter().map(|protocol| protocol.schema.name).collect::<Vec<_>>().join(", ");
        let protocol = protocol_by_name(name)
            .ok_or_else(|| Failure::Usage(format!("unknown protocol '{name}'; known are {}", names())))?;
        vec![protocol]
    };
    Ok(match format {
        Format::Wireshark => tapeworks_wire::wireshark(&chosen),
        Format::Markdown => {
            chosen.iter().map(|protocol| schema::markdown(protocol.schema)).collect::<Vec<_>>().join("\n")
        }
        Format::Json => {
            let objects: Vec<_> = chosen.iter().map(|protocol| schema::json(protocol.schema)).collect();
            match objects.as_slice() {
                [object] => format!("{}\n", object.trim_end()),
                objects => format!("[{}]\n", objects.join(",")),
            }
        }
    })
}

const fn role(role: &Role) -> &'static str {
    match role {
        Role::Transport(_) => "transport",
        Role::Application(_) => "application",
        Role::Stream { .. } => "session and application",
    }
}

fn list() -> String {
    let mut table = Table::new(&[
        ("protocol", Align::Left),
        ("title", Align::Left),
        ("role", Align::Left),
        ("messages", Align::Right),
        ("other names", Align::Left),
    ]);
    for protocol in protocols() {
        table.row([
            protocol.schema.name.to_owned(),
            protocol.schema.title.to_owned(),
            role(&protocol.role).to_owned(),
            (protocol.schema.messages.len() + protocol.schema.headers.len()).to_string(),
            protocol.aliases.join(", "),
        ]);
    }
    table.render(terminal::width(), terminal::paint())
}

fn list_json() -> String {
    let list: Vec<_> = protocols()
        .iter()
        .map(|protocol| {
            json!({
                "name": protocol.schema.name,
                "title": protocol.schema.title,
                "version": protocol.schema.version,
                "role": role(&protocol.role),
                "messages": protocol.schema.messages.len() + protocol.schema.headers.len(),
                "aliases": protocol.aliases,
            })
        })
        .collect();
    format!("{:#}\n", serde_json::Value::from(list))
}
