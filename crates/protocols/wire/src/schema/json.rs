//! The schema as one JSON object, for programs that generate code or documents from it.

use super::{Endian, Field, Kind, LengthRule, Schema, Structure};

/// Appends a JSON string.
pub(crate) fn string(out: &mut String, text: &str) {
    use core::fmt::Write as _;
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            other if u32::from(other) < 0x20 => {
                // Writing to a `String` cannot fail.
                let _infallible = write!(out, "\\u{:04x}", u32::from(other));
            }
            other => out.push(other),
        }
    }
    out.push('"');
}

/// Appends bytes as a JSON string. Each byte becomes the character with its number (ISO 8859-1), so the conversion is lossless.
pub(crate) fn string_of_bytes(out: &mut String, bytes: &[u8]) {
    let text: String = bytes.iter().map(|byte| char::from(*byte)).collect();
    string(out, &text);
}

/// Writes objects and arrays, with commas between their items.
#[derive(Debug)]
pub struct Writer {
    out: String,
    first: bool,
}

impl Default for Writer {
    /// Creates a writer of an empty text.
    fn default() -> Self {
        Self { out: String::new(), first: true }
    }
}

impl Writer {
    /// Returns the text written so far.
    #[must_use]
    pub fn finish(self) -> String {
        self.out
    }

    fn separate(&mut self) {
        if !self.first {
            self.out.push(',');
        }
        self.first = false;
    }

    fn key(&mut self, name: &str) {
        self.separate();
        string(&mut self.out, name);
        self.out.push(':');
    }

    /// Writes a member whose value is a string.
    pub fn text(&mut self, name: &str, value: &str) {
        self.key(name);
        string(&mut self.out, value);
    }

    /// Writes a member whose value is a number, a boolean or null.
    pub fn plain(&mut self, name: &str, value: impl ToString) {
        self.key(name);
        self.out.push_str(&value.to_string());
    }

    /// Writes a member whose value is an array with one object per item.
    pub fn list<T>(&mut self, name: &str, items: &[T], write: impl Fn(&mut Self, &T)) {
        self.key(name);
        self.out.push('[');
        self.first = true;
        for item in items {
            self.separate();
            self.object(|writer| write(writer, item));
        }
        self.out.push(']');
        self.first = false;
    }

    /// Writes an object.
    pub fn object(&mut self, write: impl FnOnce(&mut Self)) {
        self.out.push('{');
        self.first = true;
        write(self);
        self.out.push('}');
        self.first = false;
    }
}

/// Writes a raw value as in the specification: text of `length` characters, or a number.
fn raw(writer: &mut Writer, name: &str, number: u64, text: bool, length: usize) {
    if text {
        let bytes = number.to_be_bytes();
        writer.key(name);
        string_of_bytes(&mut writer.out, bytes.get(8 - length.min(8)..).unwrap_or_default());
    } else {
        writer.plain(name, number);
    }
}

fn endian_name(endian: Endian) -> &'static str {
    match endian {
        Endian::Big => "big",
        Endian::Little => "little",
    }
}

fn field(writer: &mut Writer, field: &Field) {
    writer.text("name", field.name);
    writer.plain("offset", field.offset);
    writer.plain("length", field.length);
    writer.text("kind", field.kind.name());
    match field.kind {
        Kind::Decimal { places, signed } => {
            writer.plain("places", places);
            writer.plain("signed", signed);
        }
        Kind::Enum(schema) => writer.text("type", schema.name),
        Kind::Flags(schema) => writer.text("type", schema.name),
        Kind::Group { entry, count } => {
            writer.text("type", entry.name);
            writer.text("count", count);
        }
        Kind::Blocks { length_bytes, is_inclusive, count } => {
            writer.plain("prefix_length", length_bytes);
            writer.plain("inclusive", is_inclusive);
            writer.text("count", count);
        }
        _ => {}
    }
    writer.text("endian", endian_name(field.endian));
    if let Some(since) = field.since {
        writer.text("since", since);
    }
    if let Some(absent) = field.absent {
        writer.plain("absent", absent);
    }
    if !field.doc.is_empty() {
        writer.text("doc", field.doc);
    }
}

/// Returns the schema as one JSON object.
#[must_use]
pub fn json(schema: &Schema) -> String {
    let structure = |writer: &mut Writer, item: &Structure| {
        writer.text("name", item.name);
        writer.text("title", item.title);
        if let (Some(number), Some(tag)) = (item.tag, schema.tag) {
            raw(writer, "tag", number, tag.text, tag.length);
        }
        writer.plain("minimum_length", item.minimum_length);
        match item.full_length {
            Some(length) => writer.plain("full_length", length),
            None => writer.plain("full_length", "null"),
        }
        writer.text("doc", item.doc);
        writer.list("fields", item.fields, field);
    };
    let mut writer = Writer::default();
    writer.object(|writer| {
        writer.text("name", schema.name);
        writer.text("title", schema.title);
        writer.text("version", schema.version);
        writer.text("doc", schema.doc);
        writer.text("endian", endian_name(schema.endian));
        writer.key("tag");
        match schema.tag {
            Some(tag) => writer.object(|writer| {
                writer.plain("offset", tag.offset);
                writer.plain("length", tag.length);
                writer.plain("text", tag.text);
            }),
            None => writer.out.push_str("null"),
        }
        if let Some(constant) = schema.constant {
            writer.key("constant");
            writer.object(|writer| {
                writer.plain("offset", constant.offset);
                writer.plain("value", constant.value);
            });
        }
        let rule = match schema.length_rule {
            LengthRule::Exact => "exact",
            LengthRule::Extensible => "extensible",
        };
        writer.text("length_rule", rule);
        writer.list("headers", schema.headers, structure);
        writer.list("messages", schema.messages, structure);
        writer.list("groups", schema.groups, structure);
        writer.list("enums", schema.enums, |writer, item| {
            writer.text("name", item.name);
            writer.text("doc", item.doc);
            writer.plain("length", item.length);
            writer.plain("text", item.text);
            writer.list("values", item.values, |writer, value| {
                writer.text("name", value.name);
                writer.text("title", value.title);
                raw(writer, "raw", value.raw, item.text, item.length);
                writer.text("doc", value.doc);
            });
        });
        writer.list("flags", schema.flags, |writer, item| {
            writer.text("name", item.name);
            writer.text("doc", item.doc);
            writer.plain("length", item.length);
            writer.list("flags", item.flags, |writer, flag| {
                writer.text("name", flag.name);
                writer.text("title", flag.title);
                writer.plain("bit", flag.bit);
                writer.text("doc", flag.doc);
            });
        });
    });
    writer.out.push('\n');
    writer.out
}
