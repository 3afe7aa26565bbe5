//! The schema as a reference page.

use core::fmt::Write as _;

use super::{Endian, Field, Kind, LengthRule, Schema, Structure};

/// Formats a raw value as in the specification.
fn raw(number: u64, text: bool, length: usize) -> String {
    if text {
        let bytes = number.to_be_bytes();
        let text: String =
            bytes.get(8 - length.min(8)..).unwrap_or_default().iter().map(|byte| char::from(*byte)).collect();
        let trimmed = text.trim_end();
        if trimmed.is_empty() { "blank".to_owned() } else { format!("`{trimmed}`") }
    } else {
        format!("`{number:#x}`")
    }
}

/// Escapes text for a table cell.
pub fn cell(text: &str) -> String {
    text.replace('\n', " ").replace('|', "\\|")
}

fn anchor(name: &str) -> String {
    name.to_lowercase()
}

fn type_of(field: &Field, default_endian: Endian) -> String {
    let bits = field.length * 8;
    let integer = |signed: bool| format!("{}{bits}", if signed { 'i' } else { 'u' });
    let mut text = match field.kind {
        Kind::Unsigned => integer(false),
        Kind::Signed => integer(true),
        Kind::Ascii => "text".to_owned(),
        Kind::AsciiNumber => "digits".to_owned(),
        Kind::Bytes => "bytes".to_owned(),
        Kind::Decimal { places, signed } => format!("price, {} with {places} decimals", integer(signed)),
        Kind::NanosecondsSinceMidnight => format!("nanoseconds since midnight, {}", integer(false)),
        Kind::NanosecondsSinceEpoch => format!("nanoseconds since 1970 UTC, {}", integer(false)),
        Kind::Nanoseconds => format!("nanoseconds, {}", integer(false)),
        Kind::SecondsSinceMidnight => format!("seconds since midnight, {}", integer(false)),
        Kind::SecondsSinceEpoch => format!("seconds since 1970 UTC, {}", integer(false)),
        Kind::Enum(schema) => format!("[{}](#{})", schema.name, anchor(schema.name)),
        Kind::Flags(schema) => format!("[{}](#{})", schema.name, anchor(schema.name)),
        Kind::Group { entry, count } => format!("`{count}` times [{}](#{})", entry.name, anchor(entry.name)),
        Kind::Blocks { length_bytes, is_inclusive, count } => {
            let place = if is_inclusive { "that begin with their" } else { "each behind its" };
            format!("`{count}` messages, {place} length (u{})", length_bytes * 8)
        }
        Kind::Rest => "bytes to the end".to_owned(),
    };
    if field.endian != default_endian && field.length > 1 {
        text.push_str(match field.endian {
            Endian::Big => ", big-endian",
            Endian::Little => ", little-endian",
        });
    }
    if let Some(absent) = field.absent {
        let _infallible = write!(text, ", {absent}: none");
    }
    text
}

fn structure(out: &mut String, schema: &Schema, item: &Structure) -> core::fmt::Result {
    writeln!(out, "### {}\n", item.name)?;
    if let (Some(number), Some(tag)) = (item.tag, schema.tag) {
        write!(out, "Type {}, ", raw(number, tag.text, tag.length))?;
    }
    match item.full_length {
        Some(length) if length == item.minimum_length => writeln!(out, "{length} bytes.")?,
        Some(length) => writeln!(out, "{} to {length} bytes.", item.minimum_length)?,
        None => writeln!(out, "{} bytes and more.", item.minimum_length)?,
    }
    if !item.doc.is_empty() {
        writeln!(out, "{}", item.doc)?;
    }
    writeln!(out, "\n| offset | length | field | type | |\n| ---: | ---: | --- | --- | --- |")?;
    for field in item.fields {
        let mut note = cell(field.doc);
        if let Some(since) = field.since {
            let _infallible = write!(note, "{}Since {since}.", if note.is_empty() { "" } else { " " });
        }
        let length = if field.length == 0 { String::new() } else { field.length.to_string() };
        let kind = type_of(field, schema.endian);
        writeln!(out, "| {} | {length} | `{}` | {kind} | {note} |", field.offset, field.name)?;
    }
    out.push('\n');
    Ok(())
}

fn page(out: &mut String, schema: &Schema) -> core::fmt::Result {
    writeln!(out, "# {}\n\n{}\n", schema.title, schema.doc)?;
    let endian = match schema.endian {
        Endian::Big => "Big-endian",
        Endian::Little => "Little-endian",
    };
    write!(out, "`{}`, version {}. {endian}.", schema.name, schema.version)?;
    if let Some(tag) = schema.tag {
        let plural = if tag.length == 1 { "byte" } else { "bytes" };
        write!(out, " The message type is {} {plural} at offset {}.", tag.length, tag.offset)?;
    }
    if let Some(constant) = schema.constant {
        write!(out, " Every message has the byte {} at offset {}.", constant.value, constant.offset)?;
    }
    writeln!(
        out,
        " {} Offsets count from the start of the message.\n",
        match schema.length_rule {
            LengthRule::Exact => "Messages have exactly the declared length.",
            LengthRule::Extensible => "Bytes past the declared length of a message are ignored and reported.",
        }
    )?;
    if !schema.messages.is_empty() {
        writeln!(out, "| type | message | bytes |\n| --- | --- | ---: |")?;
        for message in schema.messages {
            let tag = schema.tag.zip(message.tag);
            let tag = tag.map_or(String::new(), |(tag, number)| raw(number, tag.text, tag.length));
            let more = if message.full_length == Some(message.minimum_length) { "" } else { "+" };
            let (name, length) = (message.name, message.minimum_length);
            writeln!(out, "| {tag} | [{name}](#{}) | {length}{more} |", anchor(name))?;
        }
        out.push('\n');
    }
    for (title, items) in
        [("Headers", schema.headers), ("Messages", schema.messages), ("Groups", schema.groups)]
    {
        if !items.is_empty() {
            writeln!(out, "## {title}\n")?;
        }
        for item in items {
            structure(out, schema, item)?;
        }
    }
    if !schema.enums.is_empty() {
        writeln!(out, "## Enumerations\n")?;
    }
    for item in schema.enums {
        writeln!(out, "### {}\n", item.name)?;
        if !item.doc.is_empty() {
            writeln!(out, "{}\n", item.doc)?;
        }
        writeln!(out, "| value | name | |\n| --- | --- | --- |")?;
        for value in item.values {
            writeln!(
                out,
                "| {} | {} | {} |",
                cell(&raw(value.raw, item.text, item.length)),
                value.name,
                cell(value.doc)
            )?;
        }
        out.push('\n');
    }
    if !schema.flags.is_empty() {
        writeln!(out, "## Flag sets\n")?;
    }
    for item in schema.flags {
        writeln!(out, "### {}\n", item.name)?;
        if !item.doc.is_empty() {
            writeln!(out, "{}\n", item.doc)?;
        }
        writeln!(out, "| bit | mask | name | |\n| ---: | --- | --- | --- |")?;
        for flag in item.flags {
            writeln!(
                out,
                "| {} | `{:#04x}` | {} | {} |",
                flag.bit,
                1u64 << flag.bit,
                flag.name,
                cell(flag.doc)
            )?;
        }
        out.push('\n');
    }
    Ok(())
}

/// Returns the reference page of a protocol in Markdown.
#[must_use]
pub fn markdown(schema: &Schema) -> String {
    let mut out = String::new();
    // Writing to a `String` cannot fail.
    let _infallible = page(&mut out, schema);
    let end = out.trim_end().len();
    out.truncate(end);
    out.push('\n');
    out
}
