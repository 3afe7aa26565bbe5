//! Validates a declaration. Every error is reported, each at the token that caused it.

use std::collections::HashMap;

use proc_macro2::{Ident, Span};
use syn::Error;

use crate::declaration::{Declaration, EnumRepr, Raw, Role, Structure, Type, Upper};

/// Names from Rust's prelude that the generated code uses: a type with such a name would shadow it.
const PRELUDE: [&str; 3] = ["Option", "Result", "Default"];

/// Methods of every view, with which an accessor of the same name would collide.
const METHODS: [&str; 4] = ["decode", "decode_known", "as_bytes", "to_fields"];

/// Collects errors so that one compilation shows all of them.
#[derive(Default)]
pub(crate) struct Faults(Option<Error>);

impl Faults {
    pub(crate) fn add(&mut self, span: Span, message: String) {
        let error = Error::new(span, message);
        match &mut self.0 {
            Some(first) => first.combine(error),
            None => self.0 = Some(error),
        }
    }

    /// Returns all errors combined, if there are any.
    pub(crate) fn finish(self) -> Result<(), Error> {
        self.0.map_or(Ok(()), Err)
    }
}

pub(crate) fn check(declaration: &Declaration) -> Result<(), Error> {
    let mut faults = Faults::default();
    type_names(declaration, &mut faults);
    tags(declaration, &mut faults);
    enums_and_flags(declaration, &mut faults);
    for structure in &declaration.structures {
        layout(declaration, structure, &mut faults);
        tails(declaration, structure, &mut faults);
    }
    faults.finish()
}

fn type_names(declaration: &Declaration, faults: &mut Faults) {
    let mut seen = HashMap::new();
    let names = declaration
        .enums
        .iter()
        .map(|item| (&item.name, "an enum"))
        .chain(declaration.flags.iter().map(|item| (&item.name, "a flag set")))
        .chain(declaration.structures.iter().map(|item| {
            let what = match item.role {
                Role::Message => "a message",
                Role::Header => "a header",
                Role::Group => "a group",
            };
            (&item.name, what)
        }));
    let plain: HashMap<String, &Ident> =
        declaration.structures.iter().map(|item| (format!("{}Fields", item.name), &item.name)).collect();
    for (name, what) in names {
        if let Some(of) = plain.get(&name.to_string()) {
            faults.add(
                name.span(),
                format!("`{name}` is the name of the plain values of `{of}`: choose another"),
            );
        }
        if PRELUDE.iter().any(|taken| name == taken) {
            faults.add(
                name.span(),
                format!("`{name}` is a name that the code of every protocol uses: choose another"),
            );
        }
        if name == "Message" {
            faults.add(name.span(), "`Message` is the name of the enum over all messages".to_owned());
        }
        if let Some(before) = seen.insert(name.to_string(), what) {
            faults.add(name.span(), format!("`{name}` is already the name of {before}"));
        }
    }
}

fn shown(raw: &Raw) -> String {
    match raw {
        Raw::Text(text) => format!("{:?}", String::from_utf8_lossy(text)),
        Raw::Number(number) => format!("{number:#x}"),
    }
}

fn tags(declaration: &Declaration, faults: &mut Faults) {
    let mut seen: Vec<(&Raw, String)> = Vec::new();
    for structure in &declaration.structures {
        let Some((raw, span)) = &structure.tag else { continue };
        let Some(place) = declaration.tag else {
            faults.add(*span, "the protocol has messages but does not say where their `tag` is".to_owned());
            continue;
        };
        let fits = match raw {
            Raw::Text(text) => place.text && text.len() == place.bytes,
            Raw::Number(number) => !place.text && (place.bytes == 8 || number >> (place.bytes * 8) == 0),
        };
        if !fits {
            let expected = match (place.text, place.bytes) {
                (true, 1) => "one character".to_owned(),
                (true, count) => format!("text of {count} characters"),
                (false, count) => format!("an integer of {} bits", count * 8),
            };
            faults.add(*span, format!("the tag {} does not fit: a tag is {expected}", shown(raw)));
        }
        if let Some((_, first)) = seen.iter().find(|(other, _)| *other == raw) {
            faults.add(*span, format!("duplicate tag {}: message `{first}` has it already", shown(raw)));
        }
        seen.push((raw, structure.name.to_string()));
    }
}

fn enums_and_flags(declaration: &Declaration, faults: &mut Faults) {
    for enumeration in &declaration.enums {
        if let EnumRepr::Integer(integer) = enumeration.repr
            && (integer.signed || integer.container() != integer.bytes)
        {
            faults.add(enumeration.name.span(), "an integer enum is u8, u16, u32 or u64".to_owned());
        }
        let mut values: HashMap<String, String> = HashMap::new();
        let mut names = HashMap::new();
        for variant in &enumeration.variants {
            if variant.name == "Unknown" {
                faults.add(
                    variant.name.span(),
                    "`Unknown` is the variant for values that are not listed".to_owned(),
                );
            }
            if names.insert(variant.name.to_string(), ()).is_some() {
                faults.add(variant.name.span(), format!("duplicate variant `{}`", variant.name));
            }
            if let Some(first) = values.insert(shown(&variant.raw), variant.name.to_string()) {
                faults.add(
                    variant.raw_span,
                    format!("duplicate value {}: variant `{first}` has it already", shown(&variant.raw)),
                );
            }
        }
    }
    for set in &declaration.flags {
        let mut bits: HashMap<usize, String> = HashMap::new();
        let mut names = HashMap::new();
        for flag in &set.flags {
            if flag.bit >= set.repr.bytes * 8 {
                faults.add(
                    flag.bit_span,
                    format!(
                        "bit {} is out of range: {} has bits 0 to {}",
                        flag.bit,
                        set.repr.wire_name(),
                        set.repr.bytes * 8 - 1
                    ),
                );
            }
            if let Some(first) = bits.insert(flag.bit, flag.name.to_string()) {
                faults
                    .add(flag.bit_span, format!("duplicate bit {}: flag `{first}` has it already", flag.bit));
            }
            if names.insert(flag.name.to_string(), ()).is_some() {
                faults.add(flag.name.span(), format!("duplicate flag `{}`", flag.name));
            }
        }
    }
}

/// Formats a byte range as `byte 5` or `bytes 5 to 7`; `end` is exclusive.
fn stretch(start: usize, end: usize) -> String {
    if end == start + 1 { format!("byte {start}") } else { format!("bytes {start} to {}", end - 1) }
}

/// Checks that every byte of the structure is declared exactly once, in order.
fn layout(declaration: &Declaration, structure: &Structure, faults: &mut Faults) {
    /// A byte range that is already taken, and by what.
    struct Taken {
        start: usize,
        end: usize,
        by: String,
    }
    let tag = declaration.tag.filter(|_| structure.role == Role::Message).map(|tag| Taken {
        start: tag.offset,
        end: tag.offset + tag.bytes,
        by: "the message's tag".to_owned(),
    });
    let mut names = HashMap::new();
    let mut cursor = 0;
    let mut previous: Option<Taken> = None;
    let mut sound = true;
    for field in &structure.fields {
        if METHODS.iter().any(|taken| field.name == taken) {
            let text =
                format!("a field cannot be named `{}`: every view has a method of that name", field.name);
            faults.add(field.name.span(), text);
        }
        if names.insert(field.name.to_string(), ()).is_some() {
            faults.add(field.name.span(), format!("duplicate field name `{}`", field.name));
        }
        let Some(size) = declaration.size_of(&field.field_type) else {
            faults.add(
                field.type_span,
                "unknown type: neither built in (u8 to u64, i8 to i64, ascii, ascii_number, bytes, price, \
                 nanoseconds_since_midnight, optional, group, blocks, rest, ..) nor an enum or a flag set of this protocol"
                    .to_owned(),
            );
            return;
        };
        if let Some(tag) = &tag
            && cursor == tag.start
        {
            cursor = tag.end;
            previous = Some(Taken { start: tag.start, end: tag.end, by: tag.by.clone() });
        }
        if field.offset < cursor {
            let (start, end, by) = match &previous {
                Some(taken) => (taken.start, taken.end, taken.by.as_str()),
                None => (0, cursor, "what comes before"),
            };
            faults.add(
                field.offset_span,
                format!(
                    "field `{}` @ {} overlaps {by}, which takes {}: the next free byte is {cursor}",
                    field.name,
                    field.offset,
                    stretch(start, end)
                ),
            );
            sound = false;
        } else if field.offset > cursor {
            faults.add(
                field.offset_span,
                format!(
                    "gap: {} before field `{}` not declared (reserved bytes are declared too: `reserved @ {cursor}: bytes<{}>`)",
                    stretch(cursor, field.offset),
                    field.name,
                    field.offset - cursor
                ),
            );
            sound = false;
        } else if let Some(tag) = &tag
            && cursor < tag.start
            && field.offset + size > tag.start
        {
            faults.add(
                field.offset_span,
                format!(
                    "field `{}` @ {} overlaps {}, which takes {}",
                    field.name,
                    field.offset,
                    tag.by,
                    stretch(tag.start, tag.end)
                ),
            );
            sound = false;
        }
        if let (Some(version), Type::Optional(..)) = (&field.since, &field.field_type) {
            faults.add(
                version.span(),
                "a field is either `optional` or `since` a version, not both".to_owned(),
            );
        }
        cursor = field.offset + size;
        previous = Some(Taken { start: field.offset, end: cursor, by: format!("field `{}`", field.name) });
        match (&structure.upper, &field.since) {
            (Upper::Full(_), None) if cursor > structure.minimum => faults.add(
                field.name.span(),
                format!(
                    "field `{}` lies past the minimum length {}: say since which version it exists (`@ {} since \"VERSION\":`)",
                    field.name, structure.minimum, field.offset
                ),
            ),
            (Upper::Full(_), Some(_)) if field.offset >= structure.minimum => {}
            (_, Some(version)) => faults.add(
                version.span(),
                format!("field `{}` lies inside the minimum length {}: every message has it", field.name, structure.minimum),
            ),
            _ => {}
        }
    }
    if let Some(tag) = &tag
        && cursor == tag.start
    {
        cursor = tag.end;
    }
    let declared = match structure.upper {
        Upper::Full(full) => full,
        Upper::Exact | Upper::Open => structure.minimum,
    };
    if sound && cursor != declared {
        faults.add(
            structure.length_span,
            format!("`{}` is declared {declared} bytes long, but its fields end at {cursor}", structure.name),
        );
    }
    if let Upper::Full(full) = structure.upper {
        if full <= structure.minimum {
            faults.add(
                structure.length_span,
                format!("the full length {full} is not above the minimum {}", structure.minimum),
            );
        } else if sound && !structure.fields.iter().any(|field| field.offset == structure.minimum) {
            faults.add(
                structure.length_span,
                format!("no field starts at the minimum length {}", structure.minimum),
            );
        }
    }
    if let Some(tag) = &tag
        && tag.end > structure.minimum
    {
        faults.add(
            structure.length_span,
            format!("the tag ends at byte {}, past the declared length", tag.end),
        );
    }
}

/// Checks that a group, blocks or `rest` comes last, once, in an open-ended structure, and after an integer count.
fn tails(declaration: &Declaration, structure: &Structure, faults: &mut Faults) {
    if structure.role == Role::Group && !structure.is_fixed() {
        faults.add(structure.length_span, "an entry of a group has a fixed length".to_owned());
    }
    for (index, field) in structure.fields.iter().enumerate() {
        if !field.field_type.is_tail() {
            continue;
        }
        if index + 1 != structure.fields.len() {
            faults.add(
                field.type_span,
                format!("field `{}` takes the rest of the message: it must be the last", field.name),
            );
        }
        if structure.upper != Upper::Open {
            faults.add(
                structure.length_span,
                format!(
                    "`{}` ends in a part of variable length: declare `{}.. bytes`",
                    structure.name, structure.minimum
                ),
            );
        }
        let count = match &field.field_type {
            Type::Group { entry, count } => {
                if declaration.structure(entry, Role::Group).is_none() {
                    faults.add(entry.span(), format!("no group `{entry}` is declared"));
                }
                count
            }
            Type::Blocks { count, .. } => count,
            _ => continue,
        };
        match structure.fields.iter().find(|candidate| candidate.name == *count) {
            None => faults.add(count.span(), format!("no field `{count}` holds the count")),
            Some(counter) => {
                let is_count = matches!(counter.field_type, Type::Integer(integer) if !integer.signed);
                if !is_count {
                    faults.add(
                        count.span(),
                        format!("field `{count}` is not an unsigned integer: it cannot hold a count"),
                    );
                }
            }
        }
    }
    if structure.upper == Upper::Open && structure.tail().is_none() {
        faults.add(
            structure.length_span,
            format!("`{}` has an open length but no group, blocks or rest at its end", structure.name),
        );
    }
}
