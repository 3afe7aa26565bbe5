//! Validates a declaration of FIX messages. Every error is reported, each at the token that caused it.

use std::collections::HashMap;

use syn::Error;

use super::declaration::{Declaration, Field, Role, Structure, Type};
use crate::check::Faults;

/// Methods of every view, with which an accessor of the same name would collide.
const METHODS: [&str; 9] =
    ["read", "read_into", "unread", "field", "as_bytes", "begin_string", "message_type", "new", "write"];

/// Names that the generated code uses.
const TAKEN: [&str; 8] = ["Option", "Result", "Default", "Message", "Header", "Trailer", "Some", "Self"];

/// Tags that every message has and that the writer adds.
const FRAMING: [u32; 4] = [8, 9, 10, 35];

/// The most fields of a message or a header: each has one bit.
const MOST_FIELDS: usize = 64;

pub(crate) fn check(declaration: &Declaration) -> Result<(), Error> {
    let mut faults = Faults::default();
    names(declaration, &mut faults);
    enums(declaration, &mut faults);
    let mut types: HashMap<String, String> = HashMap::new();
    for structure in &declaration.structures {
        fields(declaration, structure, &mut faults);
        let Some(message_type) = &structure.message_type else { continue };
        if !matches!(message_type.value().len(), 1..=2) || !message_type.value().is_ascii() {
            faults.add(message_type.span(), "a message type is one or two characters".to_owned());
        }
        if let Some(first) = types.insert(message_type.value(), structure.name.to_string()) {
            let text = format!("duplicate message type: `{first}` has it already");
            faults.add(message_type.span(), text);
        }
    }
    faults.finish()
}

fn names(declaration: &Declaration, faults: &mut Faults) {
    let mut seen = HashMap::new();
    let enums = declaration.enums.iter().map(|item| &item.name);
    for role in [Role::Header, Role::Trailer] {
        if let Some(second) = declaration.of_role(role).nth(1) {
            faults.add(second.name.span(), "there is one already".to_owned());
        }
    }
    let named = declaration.structures.iter().filter(|item| matches!(item.role, Role::Group | Role::Message));
    let plain: Vec<String> = named.clone().map(|item| format!("{}Fields", item.name)).collect();
    for name in enums.chain(named.map(|item| &item.name)) {
        let text = name.to_string();
        if TAKEN.contains(&text.as_str()) || plain.contains(&text) {
            faults
                .add(name.span(), format!("`{name}` is a name that the generated code uses: choose another"));
        }
        if seen.insert(text, ()).is_some() {
            faults.add(name.span(), format!("`{name}` is declared already"));
        }
    }
}

fn enums(declaration: &Declaration, faults: &mut Faults) {
    for item in &declaration.enums {
        let (mut names, mut values) = (HashMap::new(), HashMap::new());
        if item.variants.is_empty() {
            faults.add(item.name.span(), "an enum without values".to_owned());
        }
        for variant in &item.variants {
            if names.insert(variant.name.to_string(), ()).is_some() {
                faults.add(variant.name.span(), format!("duplicate variant `{}`", variant.name));
            }
            if let Some(first) = values.insert(variant.raw, variant.name.to_string()) {
                faults.add(variant.raw_span, format!("duplicate value: variant `{first}` has it already"));
            }
        }
    }
}

fn fields(declaration: &Declaration, structure: &Structure, faults: &mut Faults) {
    let mut names: HashMap<String, ()> = HashMap::new();
    let mut tags: HashMap<u32, String> = HashMap::new();
    if structure.role == Role::Message {
        for field in declaration.fields_of(Role::Header).iter().chain(declaration.fields_of(Role::Trailer)) {
            names.insert(field.name.to_string(), ());
            tags.extend(
                tags_of(field).map(|tag| (tag, format!("the header's or trailer's `{}`", field.name))),
            );
        }
    }
    for field in &structure.fields {
        let name = field.name.to_string();
        if METHODS.contains(&name.as_str()) {
            let text = format!("a field cannot be named `{name}`: every view has a method of that name");
            faults.add(field.name.span(), text);
        }
        if names.insert(name.clone(), ()).is_some() {
            faults.add(field.name.span(), format!("duplicate field name `{name}`"));
        }
        for tag in tags_of(field) {
            if FRAMING.contains(&tag) {
                faults.add(field.tag_span, format!("tag {tag} is of every message: it is not declared"));
            }
            if let Some(first) = tags.insert(tag, format!("field `{name}`")) {
                faults.add(field.tag_span, format!("duplicate tag {tag}: {first} has it already"));
            }
        }
        match &field.field_type {
            Type::Group(entry) if declaration.group(entry).is_none() => {
                faults.add(entry.span(), format!("no group `{entry}` is declared"));
            }
            Type::Group(entry)
                if structure.role == Role::Group && leads_to(declaration, entry, structure) =>
            {
                faults.add(entry.span(), "a group cannot hold itself".to_owned());
            }
            Type::Group(_) if matches!(structure.role, Role::Header | Role::Trailer) => {
                faults.add(field.type_span, "a header or trailer has no groups".to_owned());
            }
            Type::Named(name) if declaration.enumeration(name).is_none() => {
                let text = "unknown type: neither built in (text, char, int, number, decimal<N>, timestamp, date, time, \
                            flag, data<TAG>, group<NAME>) nor an enum of this declaration";
                faults.add(field.type_span, text.to_owned());
            }
            Type::Data(_) | Type::Named(_) => {}
            _ if structure.role == Role::Trailer => {
                faults.add(field.type_span, "a trailer has data only: its signature".to_owned());
            }
            _ => {}
        }
    }
    if structure.role == Role::Group {
        match structure.fields.first() {
            None => faults.add(structure.name.span(), "a group without fields".to_owned()),
            Some(first) if matches!(first.field_type, Type::Data(_) | Type::Group(_)) => {
                let text = "the first field begins an entry: it is neither data nor a group";
                faults.add(first.type_span, text.to_owned());
            }
            Some(_) => {}
        }
    }
    if structure.role == Role::Trailer && structure.fields.len() > 1 {
        faults.add(structure.name.span(), "a trailer has at most one field: its signature".to_owned());
    }
    let trailer =
        if structure.role == Role::Message { declaration.fields_of(Role::Trailer).len() } else { 0 };
    if structure.fields.len() + trailer > MOST_FIELDS {
        faults.add(structure.name.span(), format!("a message has at most {MOST_FIELDS} fields"));
    }
}

/// Returns the tags of a field: data has two.
pub(crate) fn tags_of(field: &Field) -> impl Iterator<Item = u32> {
    let length_tag = match field.field_type {
        Type::Data(length_tag) => Some(length_tag),
        _ => None,
    };
    length_tag.into_iter().chain([field.tag])
}

/// Returns whether the group `entry` is `structure` or contains it.
fn leads_to(declaration: &Declaration, entry: &proc_macro2::Ident, structure: &Structure) -> bool {
    // A chain of groups longer than the declaration contains a cycle.
    let mut level = vec![entry.clone()];
    for _ in 0..declaration.structures.len() {
        if level.contains(&structure.name) {
            return true;
        }
        let groups = level.iter().filter_map(|name| declaration.group(name));
        let held = groups.flat_map(|group| &group.fields).filter_map(|field| match &field.field_type {
            Type::Group(entry) => Some(entry.clone()),
            _ => None,
        });
        level = held.collect();
    }
    false
}
