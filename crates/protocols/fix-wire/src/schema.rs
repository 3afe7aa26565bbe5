//! The declaration of FIX messages as a constant, and its forms: a reference page, JSON, and the fields of a message by name.

use core::fmt::{self, Write as _};

use tapeworks_wire::schema::{EnumSchema, Writer as JsonWriter, cell, write_text};

use super::Fields;

/// FIX messages that are declared together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixSchema {
    /// Stable name: `fix-order-entry`.
    pub name: &'static str,
    /// Name for people.
    pub title: &'static str,
    /// The FIX versions that it covers.
    pub versions: &'static str,
    /// Doc comment of the declaration.
    pub doc: &'static str,
    /// Fields of every message's header, after 8, 9 and 35.
    pub header: &'static [FixField],
    /// Fields of every message's trailer, before 10.
    pub trailer: &'static [FixField],
    /// Messages.
    pub messages: &'static [FixStructure],
    /// Entries of repeating groups.
    pub groups: &'static [FixStructure],
    /// Enumerations.
    pub enums: &'static [EnumSchema],
}

/// A message or a group entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixStructure {
    /// Name in the declaration: `NewOrderSingle`.
    pub name: &'static str,
    /// Name in words.
    pub title: &'static str,
    /// Doc comment.
    pub doc: &'static str,
    /// MsgType (35); empty for a group.
    pub message_type: &'static str,
    /// Fields in the declared order.
    pub fields: &'static [FixField],
}

/// A field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixField {
    /// Name in the declaration: `cl_ord_id`.
    pub name: &'static str,
    /// The standard's name: `ClOrdID`.
    pub title: &'static str,
    /// Doc comment.
    pub doc: &'static str,
    /// The tag.
    pub tag: u32,
    /// Whether every message must have the field.
    pub is_required: bool,
    /// Its type.
    pub kind: FixKind,
}

/// The type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FixKind {
    /// Text.
    Text,
    /// One character.
    Character,
    /// A signed number.
    Signed,
    /// An unsigned number.
    Unsigned,
    /// A decimal.
    Decimal {
        /// The maximum number of places.
        places: u8,
    },
    /// UTCTimestamp.
    Timestamp,
    /// UTCDateOnly or LocalMktDate.
    Date,
    /// UTCTimeOnly.
    Time,
    /// `Y` or `N`.
    Flag,
    /// Data, which may contain SOH.
    Data {
        /// The tag of the field before it, which holds its length.
        length_tag: u32,
    },
    /// The count of entries that follow.
    Group(&'static FixStructure),
    /// One of a list of values.
    Enum(&'static EnumSchema),
}

impl FixKind {
    /// Returns the kind's name in the JSON form.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Character => "char",
            Self::Signed => "int",
            Self::Unsigned => "number",
            Self::Decimal { .. } => "decimal",
            Self::Timestamp => "timestamp",
            Self::Date => "date",
            Self::Time => "time",
            Self::Flag => "flag",
            Self::Data { .. } => "data",
            Self::Group(_) => "group",
            Self::Enum(_) => "enum",
        }
    }
}

impl FixSchema {
    /// Returns the message of this type.
    #[must_use]
    pub fn message(&self, message_type: &[u8]) -> Option<&'static FixStructure> {
        self.messages.iter().find(|message| message.message_type.as_bytes() == message_type)
    }

    /// Returns the first field with this tag in the header, the trailer, the messages or the groups.
    #[must_use]
    pub fn field(&self, tag: u32) -> Option<&'static FixField> {
        let structures = self.messages.iter().chain(self.groups).flat_map(|item| item.fields);
        self.header.iter().chain(self.trailer).chain(structures).find(|field| field.tag == tag)
    }

    /// Writes the fields of a message in order, as `MsgType(35)=D NewOrderSingle ClOrdID(11)=A1 Side(54)=1 Buy`. Undeclared tags have no
    /// name.
    ///
    /// # Errors
    /// The writer's errors.
    pub fn write_message(&self, out: &mut dyn fmt::Write, message: &[u8]) -> fmt::Result {
        for (index, field) in Fields::new(message).enumerate() {
            if index > 0 {
                out.write_char(' ')?;
            }
            let field = match field {
                Ok(field) => field,
                Err(error) => return write!(out, "({error})"),
            };
            let known = self.field(field.tag);
            let name = match field.tag {
                8 => Some("BeginString"),
                9 => Some("BodyLength"),
                10 => Some("CheckSum"),
                35 => Some("MsgType"),
                _ => known.map(|known| known.title),
            };
            match name {
                Some(name) => write!(out, "{name}({})=", field.tag)?,
                None => write!(out, "{}=", field.tag)?,
            }
            write_text(out, field.value)?;
            let meaning = match known.map(|known| known.kind) {
                Some(FixKind::Enum(schema)) => meaning(schema, field.value),
                _ if field.tag == 35 => self.message(field.value).map(|message| message.name),
                _ => None,
            };
            if let Some(meaning) = meaning {
                write!(out, " {meaning}")?;
            }
        }
        Ok(())
    }

    /// Returns the declaration as a reference page in Markdown.
    #[must_use]
    pub fn markdown(&self) -> String {
        let mut out = String::new();
        // Writing to a `String` cannot fail.
        let _infallible = self.page(&mut out);
        let end = out.trim_end().len();
        out.truncate(end);
        out.push('\n');
        out
    }

    fn page(&self, out: &mut String) -> fmt::Result {
        writeln!(out, "# {}\n\n{}\n", self.title, self.doc)?;
        writeln!(
            out,
            "`{}`, FIX {}. Every message has 8, 9 and 35 first, and 10 last.\n",
            self.name, self.versions
        )?;
        writeln!(out, "| type | message | fields |\n| --- | --- | ---: |")?;
        for message in self.messages {
            let anchor = message.name.to_lowercase();
            writeln!(
                out,
                "| `{}` | [{}](#{anchor}) | {} |",
                message.message_type,
                message.name,
                message.fields.len()
            )?;
        }
        out.push('\n');
        for (title, fields) in [("Header", self.header), ("Trailer", self.trailer)] {
            if !fields.is_empty() {
                writeln!(out, "## {title}\n")?;
                write_table(out, fields)?;
            }
        }
        for (title, items) in [("Messages", self.messages), ("Groups", self.groups)] {
            if !items.is_empty() {
                writeln!(out, "## {title}\n")?;
            }
            for item in items {
                writeln!(out, "### {}\n", item.name)?;
                if !item.message_type.is_empty() {
                    writeln!(out, "MsgType `{}`.", item.message_type)?;
                }
                if !item.doc.is_empty() {
                    writeln!(out, "{}", item.doc)?;
                }
                out.push('\n');
                write_table(out, item.fields)?;
            }
        }
        if !self.enums.is_empty() {
            writeln!(out, "## Enumerations\n")?;
        }
        for item in self.enums {
            writeln!(out, "### {}\n", item.name)?;
            if !item.doc.is_empty() {
                writeln!(out, "{}\n", item.doc)?;
            }
            writeln!(out, "| value | name | |\n| --- | --- | --- |")?;
            for value in item.values {
                writeln!(out, "| `{}` | {} | {} |", raw_text(item, value.raw), value.name, cell(value.doc))?;
            }
            out.push('\n');
        }
        Ok(())
    }

    /// Returns the declaration as one JSON object.
    #[must_use]
    pub fn json(&self) -> String {
        let mut writer = JsonWriter::default();
        writer.object(|writer| {
            writer.text("name", self.name);
            writer.text("title", self.title);
            writer.text("versions", self.versions);
            writer.text("doc", self.doc);
            writer.list("header", self.header, json_field);
            writer.list("trailer", self.trailer, json_field);
            for (name, items) in [("messages", self.messages), ("groups", self.groups)] {
                writer.list(name, items, |writer, item| {
                    writer.text("name", item.name);
                    writer.text("title", item.title);
                    if !item.message_type.is_empty() {
                        writer.text("message_type", item.message_type);
                    }
                    writer.text("doc", item.doc);
                    writer.list("fields", item.fields, json_field);
                });
            }
            writer.list("enums", self.enums, |writer, item| {
                writer.text("name", item.name);
                writer.text("doc", item.doc);
                writer.list("values", item.values, |writer, value| {
                    writer.text("name", value.name);
                    writer.text("title", value.title);
                    writer.text("raw", &raw_text(item, value.raw));
                    writer.text("doc", value.doc);
                });
            });
        });
        let mut text = writer.finish();
        text.push('\n');
        text
    }
}

/// Formats a listed value as on the wire.
fn raw_text(schema: &EnumSchema, raw: u64) -> String {
    if schema.text { char::from(raw as u8).to_string() } else { raw.to_string() }
}

/// Returns the name of a value on the wire.
fn meaning(schema: &EnumSchema, value: &[u8]) -> Option<&'static str> {
    let raw = match (schema.text, value) {
        (true, [character]) => u64::from(*character),
        (true, _) => return None,
        (false, digits) => super::read_unsigned(digits).ok()?,
    };
    schema.values.iter().find(|listed| listed.raw == raw).map(|listed| listed.name)
}

fn write_table(out: &mut String, fields: &[FixField]) -> fmt::Result {
    writeln!(out, "| tag | field | name here | type | required | |\n| ---: | --- | --- | --- | --- | --- |")?;
    for field in fields {
        let kind = match field.kind {
            FixKind::Decimal { places } => format!("decimal, {places} places"),
            FixKind::Data { length_tag } => format!("data, length in {length_tag}"),
            FixKind::Group(entry) => format!("count of [{}](#{})", entry.name, entry.name.to_lowercase()),
            FixKind::Enum(schema) => format!("[{}](#{})", schema.name, schema.name.to_lowercase()),
            other => other.name().to_owned(),
        };
        let need = if field.is_required { "yes" } else { "" };
        let (tag, title, name) = (field.tag, field.title, field.name);
        writeln!(out, "| {tag} | {title} | `{name}` | {kind} | {need} | {} |", cell(field.doc))?;
    }
    out.push('\n');
    Ok(())
}

fn json_field(writer: &mut JsonWriter, field: &FixField) {
    writer.plain("tag", field.tag);
    writer.text("name", field.name);
    writer.text("title", field.title);
    writer.text("kind", field.kind.name());
    writer.plain("required", field.is_required);
    match field.kind {
        FixKind::Decimal { places } => writer.plain("places", places),
        FixKind::Data { length_tag } => writer.plain("length_tag", length_tag),
        FixKind::Group(entry) => writer.text("type", entry.name),
        FixKind::Enum(schema) => writer.text("type", schema.name),
        _ => {}
    }
    if !field.doc.is_empty() {
        writer.text("doc", field.doc);
    }
}

/// Writes a message as `NewOrderSingle { 35=D 11=A1 }`, the `Debug` format of views.
#[doc(hidden)]
pub fn write_fields(formatter: &mut fmt::Formatter<'_>, name: &str, message: &[u8]) -> fmt::Result {
    write!(formatter, "{name} {{")?;
    for field in Fields::new(message) {
        match field {
            Ok(field) => {
                write!(formatter, " {}=", field.tag)?;
                write_text(formatter, field.value)?;
            }
            Err(error) => write!(formatter, " ({error})")?,
        }
    }
    formatter.write_str(" }")
}
