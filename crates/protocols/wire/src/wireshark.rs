//! The schema as a Wireshark dissector: a Lua script with one fixed part and one table per protocol.

use core::fmt::{self, Write as _};

use crate::registry::{Protocol, Role, StreamFraming, Transport, protocols};
use crate::schema::{Endian, EnumSchema, Field, FlagsSchema, Kind, LengthRule, Schema, Structure};

/// The part that all protocols share.
const RUNTIME: &str = include_str!("dissector.lua");

/// `nasdaq-totalview-itch-5.0` -> `nasdaq_totalview_itch_5_0`
fn identifier(name: &str) -> String {
    name.chars()
        .map(|each| if each.is_ascii_alphanumeric() { each.to_ascii_lowercase() } else { '_' })
        .collect()
}

/// Converts `AddOrder` to `add_order`, based on the title in words.
fn snake(structure: &Structure) -> String {
    structure.title.to_lowercase().replace(' ', "_")
}

/// Converts `order_reference_number` to `Order Reference Number`.
fn label(name: &str) -> String {
    let mut out = String::new();
    for word in name.split('_').filter(|word| !word.is_empty()) {
        if !out.is_empty() {
            out.push(' ');
        }
        let mut characters = word.chars();
        out.extend(characters.next().map(|first| first.to_ascii_uppercase()));
        out.push_str(characters.as_str());
    }
    out
}

/// Returns a Lua string in which everything except printable ASCII is a decimal escape.
fn lua_bytes(bytes: &[u8]) -> String {
    let mut out = String::from("\"");
    for byte in bytes {
        match byte {
            b'"' | b'\\' => {
                out.push('\\');
                out.push(char::from(*byte));
            }
            b' '..=b'~' => out.push(char::from(*byte)),
            other => {
                let _infallible = write!(out, "\\{other:03}");
            }
        }
    }
    out.push('"');
    out
}

fn lua_string(text: &str) -> String {
    lua_bytes(text.as_bytes())
}

/// Formats a raw value as the fixed part looks it up: the bytes of text, or the digits of a number.
fn lua_raw(raw: u64, text: bool, length: usize) -> String {
    if text {
        lua_bytes(raw.to_be_bytes().get(8 - length.min(8)..).unwrap_or_default())
    } else {
        lua_string(&raw.to_string())
    }
}

fn enumeration(out: &mut String, schema: &EnumSchema) -> fmt::Result {
    write!(out, "enums[{}] = {{ text = {}", lua_string(schema.name), schema.text)?;
    for value in schema.values {
        write!(out, ", [{}] = {}", lua_raw(value.raw, schema.text, schema.length), lua_string(value.title))?;
    }
    out.push_str(" }\n");
    Ok(())
}

fn flag_set(out: &mut String, schema: &FlagsSchema) -> fmt::Result {
    writeln!(out, "flag_sets[{}] = {{", lua_string(schema.name))?;
    for flag in schema.flags {
        let (name, title) = (lua_string(&identifier(&flag.title.replace(' ', "_"))), lua_string(flag.title));
        writeln!(out, "    {{ name = {name}, label = {title}, mask = {:#x} }},", 1u64 << flag.bit)?;
    }
    out.push_str("}\n");
    Ok(())
}

fn field(out: &mut String, field: &Field, default_endian: Endian) -> fmt::Result {
    let little = field.endian == Endian::Little;
    write!(
        out,
        "{{ name = {}, label = {}, offset = {}, length = {}, kind = {}, little = {little}",
        lua_string(field.name),
        lua_string(&label(field.name)),
        field.offset,
        field.length,
        lua_string(field.kind.name())
    )?;
    match field.kind {
        Kind::Decimal { places, signed } => write!(out, ", places = {places}, signed = {signed}")?,
        Kind::Enum(schema) => write!(out, ", values = enums[{}]", lua_string(schema.name))?,
        Kind::Flags(schema) => write!(out, ", flags = flag_sets[{}]", lua_string(schema.name))?,
        Kind::Group { entry, count } => {
            write!(out, ", count = {}, entry = ", lua_string(count))?;
            structure(out, entry, None, default_endian)?;
        }
        Kind::Blocks { length_bytes, is_inclusive, count } => {
            write!(
                out,
                ", prefix = {length_bytes}, inclusive = {is_inclusive}, count = {}",
                lua_string(count)
            )?;
        }
        _ => {}
    }
    if let Some(absent) = field.absent {
        write!(out, ", absent = {}", lua_string(&absent.to_string()))?;
    }
    if field.since.is_some() {
        out.push_str(", since = true");
    }
    out.push_str(" }");
    Ok(())
}

fn structure(out: &mut String, item: &Structure, tag: Option<String>, endian: Endian) -> fmt::Result {
    write!(out, "{{ name = {}, title = {}", lua_string(&snake(item)), lua_string(item.name))?;
    if let Some(tag) = tag {
        write!(out, ", tag = {tag}")?;
    }
    writeln!(
        out,
        ", minimum = {}, exact = {}, fields = {{",
        item.minimum_length,
        item.full_length == Some(item.minimum_length)
    )?;
    for each in item.fields {
        out.push_str("        ");
        field(out, each, endian)?;
        out.push_str(",\n");
    }
    out.push_str("    } }");
    Ok(())
}

fn protocol_table(out: &mut String, schema: &Schema) -> fmt::Result {
    writeln!(out, "\n-- {}\ndo\nlocal enums, flag_sets = {{}}, {{}}", schema.title)?;
    for item in schema.enums {
        enumeration(out, item)?;
    }
    for item in schema.flags {
        flag_set(out, item)?;
    }
    write!(
        out,
        "protocols[{}] = define({{ name = {}, title = {}, little = {}, extensible = {}, ",
        lua_string(schema.name),
        lua_string(&identifier(schema.name)),
        lua_string(schema.title),
        schema.endian == Endian::Little,
        schema.length_rule == LengthRule::Extensible
    )?;
    if let Some(constant) = schema.constant {
        write!(out, "constant = {{ offset = {}, value = {} }}, ", constant.offset, constant.value)?;
    }
    if let Some(tag) = schema.tag {
        write!(out, "tag = {{ offset = {}, length = {}, text = {} }}, ", tag.offset, tag.length, tag.text)?;
    }
    out.push_str("carries = {}, structures = {\n");
    for item in schema.headers.iter().chain(schema.messages) {
        let tag = schema.tag.zip(item.tag).map(|(tag, raw)| lua_raw(raw, tag.text, tag.length));
        out.push_str("    ");
        structure(out, item, tag, schema.endian)?;
        out.push_str(",\n");
    }
    out.push_str("} })\nend\n");
    Ok(())
}

/// Writes the position of the length in the messages or packets of a TCP stream.
fn framing_of(out: &mut String, place: &str, framing: &StreamFraming) -> fmt::Result {
    writeln!(
        out,
        "{place}.framing = {{ offset = {}, little = {}, uncounted = {} }}",
        framing.length_offset,
        framing.endian == Endian::Little,
        framing.uncounted_bytes
    )
}

/// Registers a protocol whose messages are split from a TCP stream; `payloads` are the messages that carry other protocols.
fn stream_registration(
    out: &mut String,
    place: &str,
    framing: &StreamFraming,
    payloads: &[(&str, &str)],
) -> fmt::Result {
    framing_of(out, place, framing)?;
    write!(out, "{place}.payloads = {{ ")?;
    for (message, _) in payloads {
        write!(out, "[{}] = true, ", lua_string(message))?;
    }
    writeln!(out, "}}\nregister_stream({place})")
}

fn transport_registration(out: &mut String, protocol: &Protocol, transport: &Transport) -> fmt::Result {
    let place = format!("protocols[{}]", lua_string(protocol.schema.name));
    match transport {
        Transport::Datagram {
            header,
            special_count,
            payload_length,
            packet_length,
            without_messages,
            padding,
            stream,
        } => {
            writeln!(out, "{place}.header = {}", lua_string(header))?;
            if let Some((count, _)) = special_count {
                writeln!(out, "{place}.special_count = {count}")?;
            }
            if let Some(name) = payload_length {
                writeln!(out, "{place}.payload_length = {}", lua_string(name))?;
            }
            if let Some(name) = packet_length {
                writeln!(out, "{place}.packet_length = {}", lua_string(name))?;
            }
            if let Some(name) = without_messages {
                writeln!(out, "{place}.without_messages = {}", lua_string(name))?;
            }
            if *padding > 0 {
                writeln!(out, "{place}.padding = {padding}")?;
            }
            if let Some(framing) = stream {
                framing_of(out, &place, framing)?;
            }
            writeln!(out, "register_datagram({place})")
        }
        Transport::Stream { framing, payloads } => stream_registration(out, &place, framing, payloads),
    }
}

/// Returns the script's protocols: the requested ones, their transports, and the applications of requested transports.
fn closure(chosen: &[&'static Protocol]) -> (Vec<&'static Protocol>, Vec<&'static Protocol>) {
    let wanted = |schema: &Schema| chosen.iter().any(|protocol| protocol.schema.name == schema.name);
    let carriers = |protocol: &Protocol| match protocol.role {
        Role::Application(carriers) => carriers,
        Role::Transport(_) | Role::Stream { .. } => &[],
    };
    let applications: Vec<&'static Protocol> = protocols()
        .iter()
        .copied()
        .filter(|protocol| !matches!(protocol.role, Role::Transport(_)))
        .filter(|protocol| {
            wanted(protocol.schema) || carriers(protocol).iter().any(|carrier| wanted(carrier.transport))
        })
        .collect();
    let transports = protocols()
        .iter()
        .copied()
        .filter(|protocol| matches!(protocol.role, Role::Transport(_)))
        .filter(|protocol| {
            wanted(protocol.schema)
                || applications.iter().filter(|application| wanted(application.schema)).any(|application| {
                    carriers(application).iter().any(|carrier| carrier.transport.name == protocol.schema.name)
                })
        })
        .collect();
    (applications, transports)
}

fn script(out: &mut String, chosen: &[&'static Protocol]) -> fmt::Result {
    let (applications, transports) = closure(chosen);
    writeln!(out, "-- Wireshark dissector generated from the declarations of:")?;
    for protocol in applications.iter().chain(&transports) {
        writeln!(out, "--   {} ({})", protocol.schema.title, protocol.schema.name)?;
    }
    writeln!(out, "-- Use: tshark -X lua_script:FILE -r CAPTURE -V\n")?;
    out.push_str(RUNTIME);
    out.push_str("\nlocal protocols = {}\n");
    for protocol in applications.iter().chain(&transports) {
        protocol_table(out, protocol.schema)?;
    }
    out.push('\n');
    for application in &applications {
        let Role::Application(carriers) = application.role else { continue };
        for carrier in carriers {
            if !transports.iter().any(|transport| transport.schema.name == carrier.transport.name) {
                continue;
            }
            write!(
                out,
                "table.insert(protocols[{}].carries, {{ application = protocols[{}]",
                lua_string(carrier.transport.name),
                lua_string(application.schema.name)
            )?;
            if let Some((field, value)) = carrier.selector {
                write!(out, ", selector = {}, value = {value}", lua_string(field))?;
            }
            if let Some(message) = carrier.within {
                write!(out, ", within = {}", lua_string(message))?;
            }
            out.push_str(" })\n");
        }
    }
    for protocol in applications.iter().chain(&transports) {
        match &protocol.role {
            Role::Transport(transport) => transport_registration(out, protocol, transport)?,
            Role::Stream { framing, .. } => {
                let place = format!("protocols[{}]", lua_string(protocol.schema.name));
                stream_registration(out, &place, framing, &[])?;
            }
            Role::Application(_) => {}
        }
    }
    Ok(())
}

/// Returns a Wireshark dissector for these protocols: applications with their transports, transports with their applications. Field
/// names look like `nasdaq_totalview_itch_5_0.add_order.shares`. A price appears both as a number (`.price`) and as the integer on
/// the wire (`.price_raw`). The protocols register themselves under `tapeworks_..`, on UDP and TCP, for packets that can be walked
/// to their exact end.
#[must_use]
pub fn wireshark(protocols: &[&'static Protocol]) -> String {
    let mut out = String::new();
    // Writing to a `String` cannot fail.
    let _infallible = script(&mut out, protocols);
    out
}
