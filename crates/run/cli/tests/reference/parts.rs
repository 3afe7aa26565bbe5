//! The parts of the book's reference that are rendered from the code.
//!
//! A page marks such a part by `<!-- generated: NAME -->` and `<!-- end -->`. `cargo xtask golden --bless` rewrites the text between them; without
//! `--bless` the test fails when a page is out of date.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure here is a failed test")]

#[path = "pages.rs"]
mod pages;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};
use std::path::Path;

use clap::builder::StyledStr;
use clap::{Arg, Command, CommandFactory as _};
use tapeworks_capture::net::{HeaderError, Layer};
use tapeworks_feed::{Contradiction, ProblemKind};
use tapeworks_fix_wire::fix_schemas;
use tapeworks_follow::sequence::Refusal;
use tapeworks_market::event::Gap;
use tapeworks_store::live::ErrorCode;
use tapeworks_store::{Prices, Schema, Skip};
use tapeworks_wire::framing::FramingError;
use tapeworks_wire::{Ascii, DecodeError, Role, protocols};

use crate::Arguments;
use crate::ending::EXIT_CODES;
use pages::pages;

const START: &str = "<!-- generated: ";
const START_ENDS: &str = " -->\n";
const END: &str = "<!-- end -->";

/// One line, in which nothing is markup.
fn cell(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    text.replace('|', "\\|").replace('<', "&lt;").replace('>', "&gt;")
}

fn table(headers: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut text = format!("| {} |\n|{}\n", headers.join(" | "), " --- |".repeat(headers.len()));
    for row in rows {
        let _infallible = writeln!(text, "| {} |", row.join(" | "));
    }
    text
}

/// An argument's names and values, as a user types them: `-o, --out FILE`.
fn typed(argument: &Arg) -> String {
    let values = argument.get_value_names().filter(|_| argument.get_action().takes_values());
    let values = values.map_or_else(String::new, |names| names.join(" "));
    let flags = [
        argument.get_short().map(|short| format!("-{short}")),
        argument.get_long().map(|long| format!("--{long}")),
    ];
    let flags: Vec<String> = flags.into_iter().flatten().collect();
    format!("`{}`", format!("{} {values}", flags.join(", ")).trim())
}

fn plain(styled: Option<&StyledStr>) -> String {
    styled.map_or_else(String::new, ToString::to_string)
}

/// The meaning of an argument: its help, its values if they are few, its default.
fn meaning(argument: &Arg) -> String {
    let mut text = cell(&plain(argument.get_help()));
    let mut add = |name: &str, values: &[String]| {
        let stop = if text.ends_with(['.', ']']) { "" } else { "." };
        let _infallible = write!(text, "{stop} {name}: {}.", values.join(", "));
    };
    let values: Vec<String> = argument
        .get_possible_values()
        .iter()
        .filter(|value| !value.is_hide_set() && argument.get_action().takes_values())
        .map(|value| format!("`{}`", value.get_name()))
        .collect();
    if !values.is_empty() && !argument.is_hide_possible_values_set() {
        add("Values", &values);
    }
    let defaults: Vec<String> =
        argument.get_default_values().iter().map(|value| format!("`{}`", value.to_string_lossy())).collect();
    if argument.get_action().takes_values() && !defaults.is_empty() && !argument.is_hide_default_value_set() {
        add("Default", &defaults);
    }
    text
}

/// The lists of arguments of a command and of its subcommands, each with the command's name.
fn lists(command: &Command, name: String, found: &mut Vec<(String, String)>) {
    let shown = |argument: &&Arg| {
        !argument.is_hide_set() && !["help", "version"].contains(&argument.get_id().as_str())
    };
    let list: String = command
        .get_arguments()
        .filter(shown)
        .map(|argument| format!("- {}: {}\n", typed(argument), meaning(argument)))
        .collect();
    if !list.is_empty() {
        found.push((name.clone(), list));
    }
    for child in command.get_subcommands().filter(|child| !child.is_hide_set() && child.get_name() != "help")
    {
        lists(child, format!("{name} {}", child.get_name()), found);
    }
}

/// The arguments of these commands, and of each of their subcommands.
fn options(names: &str) -> Option<String> {
    let mut program = Arguments::command();
    program.build();
    let mut query = crate::commands::query::flags();
    query.build();
    let mut found = Vec::new();
    for name in names.split(' ') {
        let command = if name == "query" { &query } else { program.find_subcommand(name)? };
        lists(command, name.to_owned(), &mut found);
    }
    Some(match found.as_slice() {
        [(_, list)] => list.clone(),
        _ => {
            let sections: Vec<String> =
                found.iter().map(|(name, list)| format!("### {name}\n\n{list}")).collect();
            sections.join("\n")
        }
    })
}

/// A schema's name, or the common one of those that differ only by their interval.
fn family(schema: Schema) -> String {
    let name = schema.as_str();
    match name.split_once('-') {
        Some((family @ ("bbo" | "cbbo" | "ohlcv"), _)) => format!("{family}-*"),
        _ => name.to_owned(),
    }
}

/// Names in backticks, since an asterisk is markup.
fn quoted(names: &[impl AsRef<str>]) -> String {
    names.iter().map(|name| format!("`{}`", name.as_ref())).collect::<Vec<_>>().join(", ")
}

/// What a column of Parquet holds.
fn kind(column: &dyn fmt::Display) -> String {
    match column.to_string() {
        kind if kind.starts_with("Timestamp") => "time".to_owned(),
        kind if kind.starts_with("Decimal") => "price".to_owned(),
        kind if kind.starts_with("Dictionary") || kind.starts_with("Utf8") => "text".to_owned(),
        kind => kind.to_lowercase(),
    }
}

/// Columns of Parquet files: first the ones that several schemas share, then the rest by schema. Omits all levels but the first.
fn fields() -> String {
    /// A column's name, its kind, and its schemas.
    type Column = (String, String, Vec<String>);
    let mut columns: Vec<Column> = Vec::new();
    let mut families: Vec<String> = Schema::ALL.map(family).to_vec();
    families.dedup();
    for schema in Schema::ALL {
        let arrow = tapeworks_store::arrow_schema(schema, Prices::Decimal);
        for field in arrow.fields() {
            let level = field.name().rsplit('_').next().and_then(|last| last.parse::<u8>().ok());
            let (kind, family) = (kind(field.data_type()), family(schema));
            let known = columns.iter_mut().find(|(name, of, _)| name == field.name() && *of == kind);
            match known {
                Some((_, _, families)) if families.last() != Some(&family) => families.push(family),
                Some(_) => {}
                None if level.is_some_and(|level| level > 0) => {}
                None => columns.push((field.name().clone(), kind, vec![family])),
            }
        }
    }
    let (shared, others): (Vec<Column>, Vec<Column>) =
        columns.into_iter().partition(|(_, _, of)| of.len() > 1);
    let rows = shared.into_iter().map(|(name, kind, of)| {
        let missing: Vec<&str> =
            families.iter().filter(|family| !of.contains(family)).map(String::as_str).collect();
        let of = match missing.len() {
            0 => "all".to_owned(),
            few if few < of.len() => format!("all but {}", quoted(&missing)),
            _ => quoted(&of),
        };
        vec![format!("`{name}`"), kind, of]
    });
    let mut text = table(&["column", "type", "schemas"], rows);
    text.push_str("\nIn one schema only:\n\n");
    for family in &families {
        let mut kinds: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (name, kind, _) in others.iter().filter(|(_, _, of)| of.contains(family)) {
            kinds.entry(kind).or_default().push(format!("`{name}`"));
        }
        if !kinds.is_empty() {
            let kinds: Vec<String> =
                kinds.into_iter().map(|(kind, names)| format!("{kind} {}", names.join(", "))).collect();
            let _infallible = writeln!(text, "- `{family}`: {}", kinds.join("; "));
        }
    }
    text
}

/// The declared protocols.
fn declared_protocols() -> String {
    let carriers = |role: &Role| match role {
        Role::Transport(_) => "carries others".to_owned(),
        Role::Stream { .. } => "its own session, over TCP".to_owned(),
        Role::Application(carriers) => {
            let names: BTreeSet<&str> = carriers.iter().map(|carrier| carrier.transport.name).collect();
            names.into_iter().collect::<Vec<_>>().join(", ")
        }
    };
    let declared = protocols().iter().map(|protocol| {
        let schema = protocol.schema;
        vec![
            format!("`{}`", schema.name),
            schema.title.to_owned(),
            carriers(&protocol.role),
            (schema.messages.len() + schema.headers.len()).to_string(),
            protocol.aliases.iter().map(|alias| format!("`{alias}`")).collect::<Vec<_>>().join(", "),
        ]
    });
    let fix = fix_schemas().iter().map(|schema| {
        vec![
            format!("`{}`", schema.name),
            schema.title.to_owned(),
            "its own session, over TCP".to_owned(),
            schema.messages.len().to_string(),
            "`fix`".to_owned(),
        ]
    });
    table(&["name", "protocol", "carried by", "messages", "other names"], declared.chain(fix))
}

fn exit_codes() -> String {
    let rows = EXIT_CODES.iter().map(|(code, meaning)| vec![code.to_string(), (*meaning).to_owned()]);
    table(&["code", "meaning"], rows)
}

/// Problems in the input: the printed text and its consequence.
fn problems() -> String {
    let destination = std::net::SocketAddr::from(([224, 0, 0, 1], 5_000));
    let rows: [(ProblemKind, &str); 13] = [
        (
            ProblemKind::Header(HeaderError::TooShort { layer: Layer::Link, offset: 0, need: 14, got: 6 }),
            "the packet is skipped",
        ),
        (
            ProblemKind::UnknownProtocol { destination, possible: Vec::new() },
            "packets to this address are skipped; reported once per address",
        ),
        (
            ProblemKind::UnknownProtocol { destination, possible: vec!["pitch", "mitch"] },
            "the same; `--protocol` or `--venue` decides",
        ),
        (ProblemKind::CutPacket, "the messages that are complete are used, the others are missing"),
        (
            ProblemKind::Framing(FramingError::Cut { offset: 38, needed: 36, got: 20 }),
            "the messages before the damage are used, the others are missing",
        ),
        (
            ProblemKind::Message(DecodeError::UnknownMessage { tag: u64::from(b'z') }),
            "the message is skipped by its length",
        ),
        (
            ProblemKind::Gap(Gap { first: 1_204, count: 3 }),
            "the books of the channel are stale until a snapshot or the end of the day",
        ),
        (
            ProblemKind::Refused { first: 9_000_000, refusal: Refusal::Far(1_204) },
            "the packet is not used unless later packets confirm its number",
        ),
        (
            ProblemKind::Refused { first: 17, refusal: Refusal::Contradicts(1_204) },
            "the packet is not used; three of them in a row are a restart",
        ),
        (
            ProblemKind::Refused { first: 1, refusal: Refusal::OtherSession },
            "the packet is not used unless its session replaces the channel's",
        ),
        (
            ProblemKind::Contradiction(Contradiction::OtherLocate {
                symbol: Ascii(*b"VGSA    "),
                known: 7,
                named: 8,
            }),
            "the message is not used, unless a directory corrects an inferred number; the book becomes stale",
        ),
        (ProblemKind::Unsequenced { bytes: 47 }, "order entry is not replayed"),
        (ProblemKind::StreamHole { lost: 1_448 }, "reading resumes at the next message that can be found"),
    ];
    table(
        &["printed", "consequence"],
        rows.map(|(kind, effect)| vec![cell(&kind.to_string()), effect.to_owned()]),
    )
}

/// Updates that produce no record, by the names under which `replay --json` counts them.
fn skips() -> String {
    let reason = |skip| match skip {
        Skip::NotInSchema => "the schema has no place for this kind of event",
        Skip::NothingShownChanged => "nothing changed in what the schema shows",
        Skip::NotOrderByOrder => "`mbo` holds orders; this is a price level or quote",
        Skip::NotPrintable => "an execution that does not count in volume",
        Skip::EmptyTrade => "a trade without shares or price",
        Skip::UnknownOrder => "the order was added before the capture, or its addition was lost",
        Skip::DuplicateOrder => "an order with this reference is in the book already",
        Skip::Overfill => "more shares executed or cancelled than the order had",
        Skip::Incomplete => "an order or level without price or shares",
        Skip::UnknownLevel => "the removal of a level that does not exist",
        Skip::LevelMismatch => "a level disagrees with its orders, or a table is full",
        Skip::HalfImbalance => "half of an imbalance without the other half",
        Skip::NoInstrument => "an unreadable symbol, or a number without a symbol",
    };
    table(
        &["counter", "reason"],
        Skip::ALL.map(|skip| vec![format!("`{}`", skip.as_str()), reason(skip).to_owned()]),
    )
}

/// Errors that the live server sends.
fn live_errors() -> String {
    let meaning = |code| match code {
        ErrorCode::SymbolResolutionFailed => "a symbol is unknown",
        ErrorCode::InvalidSubscription => "the subscription cannot be served",
        ErrorCode::InternalError => "the plant failed",
        ErrorCode::SkippedRecords => "records were skipped because the client was too slow",
        ErrorCode::ReplayDataAgedOut => "records from the requested start are no longer kept",
        ErrorCode::Other => "any other refusal, or a disconnect, for example of a client that falls behind",
    };
    let mut codes = ErrorCode::ALL.map(|code| (dbn::ErrorCode::from(code) as u8, meaning(code)));
    codes.sort_unstable();
    table(&["code", "meaning"], codes.map(|(code, meaning)| vec![code.to_string(), meaning.to_owned()]))
}

/// The text of the part with this name.
fn part(name: &str) -> Option<String> {
    if let Some(names) = name.strip_prefix("options ") {
        return options(names);
    }
    Some(match name {
        "fields" => fields(),
        "protocols" => declared_protocols(),
        "exit codes" => exit_codes(),
        "problems" => problems(),
        "updates without a record" => skips(),
        "live errors" => live_errors(),
        _ => return None,
    })
}

/// A page with its generated parts replaced, whose names are added to `found`.
fn rendered(page: &str, found: &mut Vec<String>) -> Result<String, String> {
    let (mut rest, mut text) = (page, String::new());
    while let Some((before, after)) = rest.split_once(START) {
        let (name, after) = after.split_once(START_ENDS).ok_or("a mark without an end of line")?;
        let (old, after) = after.split_once(END).ok_or_else(|| format!("{name}: no {END}"))?;
        let _infallible = if name == "options lab" && cfg!(not(feature = "lab")) {
            write!(text, "{before}{START}{name}{START_ENDS}{old}{END}")
        } else {
            let part = part(name).ok_or_else(|| format!("{name}: nothing is generated under this name"))?;
            write!(text, "{before}{START}{name}{START_ENDS}\n{part}\n{END}")
        };
        found.push(name.to_owned());
        rest = after;
    }
    Ok(text + rest)
}

#[test]
fn the_generated_parts_of_the_book_are_up_to_date() {
    let mut paths = Vec::new();
    pages(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").join("docs/src"), &mut paths);
    let (mut found, mut stale) = (Vec::new(), Vec::new());
    for path in paths {
        let page = std::fs::read_to_string(&path).unwrap();
        let current =
            rendered(&page, &mut found).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        if current != page && std::env::var_os("TAPEWORKS_BLESS").is_some() {
            std::fs::write(&path, current).unwrap();
        } else if current != page {
            stale.push(path);
        }
    }
    assert!(stale.is_empty(), "`cargo xtask golden --bless` renders these: {stale:?}");
    let documented: BTreeSet<&str> = found
        .iter()
        .filter_map(|name| name.strip_prefix("options "))
        .flat_map(|names| names.split(' '))
        .collect();
    let program = Arguments::command();
    let commands: BTreeSet<&str> = program.get_subcommands().map(Command::get_name).collect();
    assert_eq!(documented, commands, "each command's options are on a page");
    for part in ["fields", "protocols", "exit codes", "problems", "updates without a record", "live errors"] {
        assert_eq!(found.iter().filter(|name| *name == part).count(), 1, "{part}");
    }
}

#[test]
fn a_part_is_replaced_between_its_marks() {
    let page = format!("before\n{START}exit codes{START_ENDS}old\n{END}\nafter\n");
    let current = rendered(&page, &mut Vec::new()).unwrap();
    assert!(
        current.starts_with("before\n") && current.ends_with("after\n") && current.contains("| 130 |"),
        "{current}"
    );
    assert!(!current.contains("old") && rendered(&current, &mut Vec::new()).unwrap() == current);
    assert!(rendered(&format!("{START}nothing{START_ENDS}{END}"), &mut Vec::new()).is_err());
    assert!(rendered(&format!("{START}exit codes{START_ENDS}"), &mut Vec::new()).is_err());
}
