//! `tapeworks schema`: prints a protocol's declaration.

use clap::{Args, ValueEnum};
use serde_json::json;
use tapeworks_fix_wire::{FixSchema, fix_schema_by_name, fix_schemas};
use tapeworks_wire::{Role, protocol_by_name, protocols, schema};

use crate::ending::{Ending, Failure, Result};
use crate::table::{Align, Table};
use crate::{output, terminal};

/// Print a protocol as a reference page, JSON, or a Wireshark dissector.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tapeworks schema --list
  tapeworks schema itch
  tapeworks schema iex-deep --format json
  tapeworks schema fix
  tapeworks schema all --format wireshark > tapeworks.lua
  tshark -X lua_script:tapeworks.lua -V -r testdata/captures/nasdaq-itch50/Multiple.Packets.pcap")]
pub(crate) struct Arguments {
    /// Name or alias of a protocol, or all.
    #[arg(required_unless_present = "list", value_name = "PROTOCOL")]
    protocol: Option<String>,
    /// Format of the output.
    #[arg(short, long, value_enum, default_value_t = Format::Markdown)]
    format: Format,
    /// List the protocols.
    #[arg(short, long, conflicts_with = "protocol")]
    list: bool,
    /// Print the list as JSON.
    #[arg(short = 'J', long, requires = "list")]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Format {
    /// A reference page in Markdown.
    Markdown,
    /// JSON for programs.
    Json,
    /// A Wireshark dissector in Lua.
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
    let is_all = name.eq_ignore_ascii_case("all");
    let (chosen, fix) = if is_all {
        (protocols().to_vec(), fix_schemas().to_vec())
    } else if let Some(schema) = fix_schema_by_name(name) {
        if format == Format::Wireshark {
            let text = "Wireshark reads FIX without a dissector of ours";
            return Err(Failure::Usage(text.to_owned()));
        }
        (Vec::new(), vec![schema])
    } else {
        (vec![protocol_by_name(name).ok_or_else(|| unknown(name))?], Vec::new())
    };
    Ok(match format {
        Format::Wireshark => tapeworks_wire::wireshark(&chosen),
        Format::Markdown => {
            let pages = chosen.iter().map(|protocol| schema::markdown(protocol.schema));
            pages.chain(fix.iter().map(|schema| schema.markdown())).collect::<Vec<_>>().join("\n")
        }
        Format::Json => {
            let objects = chosen.iter().map(|protocol| schema::json(protocol.schema));
            let objects: Vec<_> = objects.chain(fix.iter().map(|schema| schema.json())).collect();
            match objects.as_slice() {
                [object] => format!("{}\n", object.trim_end()),
                objects => format!("[{}]\n", objects.join(",")),
            }
        }
    })
}

fn unknown(name: &str) -> Failure {
    let names = protocols().iter().map(|protocol| protocol.schema.name);
    let names: Vec<_> = names.chain(fix_schemas().iter().map(|schema| schema.name)).collect();
    Failure::Usage(format!("unknown protocol '{name}'; known are {}", names.join(", ")))
}

/// The role of FIX's declarations, which include the session's messages.
const FIX_ROLE: &str = "application";

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
    for FixSchema { name, title, messages, .. } in fix_schemas() {
        let count = messages.len().to_string();
        table.row([(*name).to_owned(), (*title).to_owned(), FIX_ROLE.to_owned(), count, "fix".to_owned()]);
    }
    table.render(terminal::width().max(160), terminal::paint())
}

fn list_json() -> String {
    let mut list: Vec<_> = protocols()
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
    list.extend(fix_schemas().iter().map(|schema| {
        json!({
            "name": schema.name,
            "title": schema.title,
            "version": schema.versions,
            "role": FIX_ROLE,
            "messages": schema.messages.len(),
            "aliases": ["fix"],
        })
    }));
    format!("{:#}\n", serde_json::Value::from(list))
}
