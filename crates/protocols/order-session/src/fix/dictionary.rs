//! The messages and fields that a session accepts, from QuickFIX-style XML or a declaration made with
//! [`tapeworks_fix_wire::fix!`].
//!
//! FIX 4.2 and 4.4 have one file each. FIXT has one file for session messages and one for application messages
//! ([`Dictionary::with_application`]). A file is read once, at startup.

use roxmltree::{Document, Node};
use rustc_hash::FxHashMap;
use tapeworks_fix_wire::{FixField, FixKind, FixSchema, FixStructure, TagSet, tag};

/// A dictionary is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DictionaryError {
    /// The text is not XML.
    #[error("{0}")]
    Xml(String),
    /// An element lacks an attribute, or the attribute's value is invalid.
    #[error("line {line}: a {element} needs the attribute {attribute}")]
    Attribute {
        /// The line.
        line: u32,
        /// The element.
        element: String,
        /// The attribute.
        attribute: &'static str,
    },
    /// A name is not defined.
    #[error("line {line}: no {kind} '{name}' is defined")]
    Unknown {
        /// The line.
        line: u32,
        /// The kind of name: field or component.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// A component contains itself.
    #[error("line {line}: the component '{name}' holds itself")]
    Circle {
        /// The line.
        line: u32,
        /// The component.
        name: String,
    },
    /// A part that every dictionary needs is missing.
    #[error("the dictionary has no {0}")]
    Missing(&'static str),
}

/// The format of a field's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Any,
    Character,
    Integer,
    Decimal,
    Flag,
    Timestamp,
    Date,
    Time,
}

/// The section of a message in which a field occurs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd)]
pub(crate) enum Section {
    Header,
    #[default]
    Body,
    Trailer,
}

/// A field of the dictionary.
#[derive(Clone, Debug)]
pub(crate) struct FieldRule {
    pub(crate) form: Form,
    pub(crate) section: Section,
    /// The field counts the entries of a group of some message.
    pub(crate) counts_entries: bool,
    /// The value is a space-separated list of values.
    is_list: bool,
    /// The allowed values of one ASCII character, a bit each.
    characters: u128,
    /// The allowed values; empty allows any.
    values: Vec<Box<[u8]>>,
}

impl FieldRule {
    fn new(form: Form, values: Vec<Box<[u8]>>, is_list: bool) -> Self {
        let bit = |value: &[u8]| if let [byte @ ..128] = value { 1 << byte } else { 0 };
        let characters = values.iter().fold(0, |bits, value| bits | bit(value));
        Self { form, section: Section::Body, counts_entries: false, is_list, characters, values }
    }

    /// Returns whether a value is allowed.
    #[inline]
    pub(crate) fn lists(&self, value: &[u8]) -> bool {
        if self.values.is_empty() {
            return true;
        }
        let has = |value: &[u8]| match value {
            [byte @ ..128] => self.characters >> byte & 1 != 0,
            value => self.values.iter().any(|listed| **listed == *value),
        };
        if self.is_list { value.split(|byte| *byte == b' ').all(has) } else { has(value) }
    }
}

/// The fields of a message, a group entry or a header.
#[derive(Clone, Debug, Default)]
pub(crate) struct Members {
    /// Of a message: the tags that may occur outside of groups, header and trailer included.
    pub(crate) allowed: TagSet,
    pub(crate) required: Vec<u32>,
    pub(crate) fields: TagSet,
    pub(crate) groups: FxHashMap<u32, Group>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Group {
    /// The field that starts an entry.
    pub(crate) first: u32,
    pub(crate) members: Members,
}

/// Tags below this are found by their place in a table, others by a hash.
const TABLE_TAGS: u32 = 16_384;

/// The fields and messages that a session accepts.
#[derive(Clone, Debug, Default)]
pub struct Dictionary {
    rules: Vec<FieldRule>,
    /// By tag: the number of its rule, from 1 on; 0 if there is none.
    table: Vec<u32>,
    /// The same for high tags.
    high: FxHashMap<u32, u32>,
    pub(crate) header: Members,
    pub(crate) trailer: Members,
    /// The messages, and their numbers by type.
    messages: Vec<Members>,
    numbers: FxHashMap<Box<[u8]>, usize>,
    /// The numbers of types of one ASCII character.
    short_numbers: Vec<usize>,
    /// Fields that only the application's dictionary defines. The session's own messages do not know them.
    pub(crate) of_application: TagSet,
    /// Whether it covers only some message types. The application must then refuse other FIX types.
    pub(crate) is_of_some_types: bool,
}

impl Dictionary {
    /// Reads a QuickFIX-style dictionary.
    ///
    /// # Errors
    /// The text is not such a dictionary.
    pub fn from_xml(text: &str) -> Result<Self, DictionaryError> {
        let document = Document::parse(text).map_err(|error| DictionaryError::Xml(error.to_string()))?;
        let reader = Reader::new(&document)?;
        let mut dictionary = Self::default();
        for field in reader.fields() {
            let number = reader.number(field)?;
            dictionary.set_rule(number, rule(field));
        }
        let part = |name: &'static str| reader.part(name).ok_or(DictionaryError::Missing(name));
        dictionary.header = reader.members(part("header")?)?;
        dictionary.trailer = reader.members(part("trailer")?)?;
        for message in part("messages")?.children().filter(|node| node.has_tag_name("message")) {
            let message_type = reader.attribute(message, "msgtype")?;
            dictionary.add_message(message_type.as_bytes().into(), reader.members(message)?);
        }
        dictionary.mark();
        Ok(dictionary)
    }

    /// Builds the dictionary from a declaration.
    ///
    /// Tags that it does not declare are rejected, as with any dictionary. Of a FIX message type that it does not
    /// declare, only the header is checked.
    #[must_use]
    pub fn from_schema(schema: &FixSchema) -> Self {
        let mut dictionary = Self { is_of_some_types: true, ..Self::default() };
        for tag in [tag::BEGIN_STRING, tag::BODY_LENGTH, tag::CHECK_SUM, tag::MSG_TYPE] {
            let form = if tag == tag::BODY_LENGTH { Form::Integer } else { Form::Any };
            dictionary.set_rule(tag, FieldRule::new(form, Vec::new(), false));
        }
        dictionary.header = dictionary.members_of(schema.header);
        for tag in [tag::BEGIN_STRING, tag::BODY_LENGTH, tag::MSG_TYPE] {
            dictionary.header.fields.insert(tag);
        }
        dictionary.trailer = dictionary.members_of(schema.trailer);
        dictionary.trailer.fields.insert(tag::CHECK_SUM);
        // A length field (95) may claim the trailer as its data.
        dictionary.trailer.required.push(tag::CHECK_SUM);
        for FixStructure { message_type, fields, .. } in schema.messages {
            let members = dictionary.members_of(fields);
            dictionary.add_message(message_type.as_bytes().into(), members);
        }
        dictionary.mark();
        dictionary
    }

    /// Returns the rule of a tag.
    #[inline(always)]
    pub(crate) fn rule(&self, tag: u32) -> Option<&FieldRule> {
        let number = match self.table.get(tag as usize) {
            Some(number) => *number,
            None => self.high.get(&tag).copied().unwrap_or(0),
        };
        self.rules.get((number as usize).wrapping_sub(1))
    }

    /// Sets the rule of a tag. A later rule of the same tag replaces it.
    fn set_rule(&mut self, tag: u32, rule: FieldRule) {
        self.rules.push(rule);
        let number = self.rules.len() as u32;
        if tag >= TABLE_TAGS {
            self.high.insert(tag, number);
            return;
        }
        let place = tag as usize;
        self.table.resize(self.table.len().max(place + 1), 0);
        self.table[place] = number;
    }

    fn rule_mut(&mut self, tag: u32) -> Option<&mut FieldRule> {
        let number = self.table.get(tag as usize).or_else(|| self.high.get(&tag)).copied().unwrap_or(0);
        self.rules.get_mut((number as usize).wrapping_sub(1))
    }

    /// Returns the fields of the messages of a type.
    #[inline]
    pub(crate) fn message(&self, message_type: &[u8]) -> Option<&Members> {
        let number = match message_type {
            [byte @ ..128] => self.short_numbers.get(usize::from(*byte)),
            _ => self.numbers.get(message_type),
        };
        self.messages.get(*number?)
    }

    /// Adds a message. A later one of the same type replaces it.
    fn add_message(&mut self, message_type: Box<[u8]>, members: Members) {
        let number = self.messages.len();
        self.messages.push(members);
        if let [byte @ ..128] = *message_type {
            self.short_numbers.resize(128, usize::MAX);
            self.short_numbers[usize::from(byte)] = number;
        }
        self.numbers.insert(message_type, number);
    }

    /// Notes in the rules and the messages what the header, the trailer and the messages make of the fields.
    fn mark(&mut self) {
        let (mut tags, mut counts) = (Vec::new(), Vec::new());
        // A tag of both belongs to the header.
        self.trailer.collect(&mut tags, &mut counts);
        let of_trailer = tags.len();
        self.header.collect(&mut tags, &mut counts);
        for (index, tag) in tags.iter().enumerate() {
            if let Some(rule) = self.rule_mut(*tag) {
                rule.section = if index < of_trailer { Section::Trailer } else { Section::Header };
            }
        }
        self.messages.iter().for_each(|members| members.collect(&mut tags, &mut counts));
        for tag in counts {
            if let Some(rule) = self.rule_mut(tag) {
                rule.counts_entries = true;
            }
        }
        let mut messages = core::mem::take(&mut self.messages);
        let dictionary = &*self;
        for members in &mut messages {
            let sections = [
                (&dictionary.header, Section::Header),
                (&*members, Section::Body),
                (&dictionary.trailer, Section::Trailer),
            ];
            let allowed = sections.into_iter().flat_map(|(of, section)| {
                of.fields.iter().filter(move |tag| dictionary.section(*tag) == section)
            });
            members.allowed = allowed.collect();
        }
        self.messages = messages;
    }

    /// Returns the section of a tag; the body, if it is not defined.
    #[inline(always)]
    pub(crate) fn section(&self, tag: u32) -> Section {
        self.rule(tag).map_or(Section::Body, |rule| rule.section)
    }

    fn members_of(&mut self, fields: &[FixField]) -> Members {
        let mut members = Members::default();
        for field in fields {
            members.fields.insert(field.tag);
            if field.is_required {
                members.required.push(field.tag);
            }
            let mut values = Vec::new();
            let form = match field.kind {
                FixKind::Text | FixKind::Data { .. } => Form::Any,
                FixKind::Character => Form::Character,
                FixKind::Signed | FixKind::Unsigned | FixKind::Group(_) => Form::Integer,
                FixKind::Decimal { .. } => Form::Decimal,
                FixKind::Timestamp => Form::Timestamp,
                FixKind::Date => Form::Date,
                FixKind::Time => Form::Time,
                FixKind::Flag => Form::Flag,
                FixKind::Enum(schema) => {
                    let text =
                        |raw: u64| if schema.text { vec![raw as u8] } else { raw.to_string().into_bytes() };
                    values.extend(schema.values.iter().map(|value| text(value.raw).into()));
                    if schema.text { Form::Character } else { Form::Integer }
                }
            };
            if let FixKind::Data { length_tag } = field.kind {
                members.fields.insert(length_tag);
                self.set_rule(length_tag, FieldRule::new(Form::Integer, Vec::new(), false));
            }
            if let FixKind::Group(entry) = field.kind {
                let first = entry.fields.first().map_or(0, |field| field.tag);
                let group = Group { first, members: self.members_of(entry.fields) };
                members.groups.insert(field.tag, group);
            }
            self.set_rule(field.tag, FieldRule::new(form, values, false));
        }
        members
    }

    /// Adds an application's messages and fields to this dictionary of a FIXT session.
    #[must_use]
    pub fn with_application(mut self, application: Self) -> Self {
        let tags = (0..).zip(&application.table).filter(|(_, number)| **number != 0).map(|(tag, _)| tag);
        for tag in tags.chain(application.high.keys().copied()) {
            if let Some(rule) = application.rule(tag).filter(|_| self.rule(tag).is_none()) {
                self.set_rule(tag, FieldRule { section: Section::Body, ..rule.clone() });
                self.of_application.insert(tag);
            }
        }
        for (message_type, number) in application.numbers {
            if let (None, Some(members)) = (self.message(&message_type), application.messages.get(number)) {
                self.add_message(message_type, members.clone());
            }
        }
        self.mark();
        self
    }

    /// Returns whether a tag belongs to the body of a message rather than to its header or trailer.
    #[must_use]
    pub fn is_of_body(&self, tag: u32) -> bool {
        self.section(tag) == Section::Body
    }

    /// Returns the parts of a body, sorted by their first tags, for callers that rewrite a message.
    ///
    /// A part is a field, a group with its entries, or a length with its data. Each is a range of `tags`.
    #[must_use]
    pub fn parts_by_tag(&self, message_type: &[u8], tags: &[u32]) -> Vec<core::ops::Range<usize>> {
        let members = self.message(message_type);
        let (mut parts, mut at) = (Vec::new(), 0);
        while let Some(tag) = tags.get(at) {
            let group = members.and_then(|members| members.groups.get(tag));
            let behind = tags.get(at + 1..).unwrap_or_default();
            let held =
                group.map_or(0, |group| behind.iter().take_while(|tag| group.members.holds(**tag)).count());
            let data = usize::from(
                tapeworks_fix_wire::data_of_length(*tag).is_some_and(|data| behind.first() == Some(&data)),
            );
            let end = at + 1 + held.max(data);
            parts.push(at..end);
            at = end;
        }
        parts.sort_by_key(|part| tags.get(part.start).copied());
        parts
    }
}

impl Members {
    /// Collects the tags of these fields and of their groups, and of these the tags that count entries.
    fn collect(&self, tags: &mut Vec<u32>, counts: &mut Vec<u32>) {
        tags.extend(self.fields.iter());
        for (tag, group) in &self.groups {
            counts.push(*tag);
            group.members.collect(tags, counts);
        }
    }

    /// Returns whether a tag is one of these fields or is in one of their groups.
    pub(crate) fn holds(&self, tag: u32) -> bool {
        self.fields.has(tag) || self.groups.values().any(|group| group.members.holds(tag))
    }
}

fn rule(field: Node<'_, '_>) -> FieldRule {
    let kind = field.attribute("type").unwrap_or_default().to_ascii_uppercase();
    let form = match kind.as_str() {
        "CHAR" => Form::Character,
        "INT" | "LENGTH" | "SEQNUM" | "NUMINGROUP" | "TAGNUM" => Form::Integer,
        "FLOAT" | "PRICE" | "QTY" | "AMT" | "PERCENTAGE" | "PRICEOFFSET" => Form::Decimal,
        "BOOLEAN" => Form::Flag,
        "UTCTIMESTAMP" | "TIME" => Form::Timestamp,
        "UTCDATEONLY" | "UTCDATE" | "LOCALMKTDATE" | "DATE" => Form::Date,
        "UTCTIMEONLY" => Form::Time,
        _ => Form::Any,
    };
    let values = field.children().filter(|node| node.has_tag_name("value"));
    let values = values.filter_map(|value| value.attribute("enum")).map(|value| value.as_bytes().into());
    FieldRule::new(form, values.collect(), kind.starts_with("MULTIPLE"))
}

/// The names that one file defines.
struct Reader<'a, 'input> {
    document: &'a Document<'input>,
    root: Node<'a, 'input>,
    numbers: FxHashMap<&'a str, u32>,
    components: FxHashMap<&'a str, Node<'a, 'input>>,
}

impl<'a, 'input> Reader<'a, 'input> {
    fn new(document: &'a Document<'input>) -> Result<Self, DictionaryError> {
        let root = document.root_element();
        let (numbers, components) = (FxHashMap::default(), FxHashMap::default());
        let mut reader = Self { document, root, numbers, components };
        for field in reader.fields() {
            let name = reader.attribute(field, "name")?;
            let number = reader.number(field)?;
            reader.numbers.insert(name, number);
        }
        let components = reader.part("components").into_iter().flat_map(|part| part.children());
        for component in components.filter(|node| node.has_tag_name("component")) {
            let name = reader.attribute(component, "name")?;
            reader.components.insert(name, component);
        }
        Ok(reader)
    }

    fn part(&self, name: &str) -> Option<Node<'a, 'input>> {
        self.root.children().find(|node| node.has_tag_name(name))
    }

    fn fields(&self) -> impl Iterator<Item = Node<'a, 'input>> + use<'a, 'input> {
        let part = self.part("fields");
        part.into_iter().flat_map(|part| part.children()).filter(|node| node.has_tag_name("field"))
    }

    fn line(&self, node: Node<'_, '_>) -> u32 {
        self.document.text_pos_at(node.range().start).row
    }

    fn attribute(&self, node: Node<'a, 'input>, attribute: &'static str) -> Result<&'a str, DictionaryError> {
        node.attribute(attribute).ok_or_else(|| DictionaryError::Attribute {
            line: self.line(node),
            element: node.tag_name().name().to_owned(),
            attribute,
        })
    }

    fn number(&self, field: Node<'a, 'input>) -> Result<u32, DictionaryError> {
        let number = self.attribute(field, "number")?.parse().ok().filter(|number| *number > 0);
        number.ok_or_else(|| DictionaryError::Attribute {
            line: self.line(field),
            element: "field".to_owned(),
            attribute: "number",
        })
    }

    fn members(&self, node: Node<'a, 'input>) -> Result<Members, DictionaryError> {
        let (mut members, mut first) = (Members::default(), None);
        self.collect(node, true, &mut Vec::new(), &mut members, &mut first)?;
        Ok(members)
    }

    /// Adds the fields of a node. The fields of an optional component are optional too.
    fn collect(
        &self,
        node: Node<'a, 'input>,
        is_required: bool,
        path: &mut Vec<&'a str>,
        members: &mut Members,
        first: &mut Option<u32>,
    ) -> Result<(), DictionaryError> {
        for child in node.children().filter(Node::is_element) {
            let name = self.attribute(child, "name")?;
            let unknown =
                |kind| DictionaryError::Unknown { line: self.line(child), kind, name: name.to_owned() };
            let needs = is_required && child.attribute("required") == Some("Y");
            if child.has_tag_name("component") {
                let component = self.components.get(name).ok_or_else(|| unknown("component"))?;
                if path.contains(&name) {
                    return Err(DictionaryError::Circle { line: self.line(child), name: name.to_owned() });
                }
                path.push(name);
                self.collect(*component, needs, path, members, first)?;
                path.pop();
                continue;
            }
            let tag = *self.numbers.get(name).ok_or_else(|| unknown("field"))?;
            first.get_or_insert(tag);
            members.fields.insert(tag);
            if needs {
                members.required.push(tag);
            }
            if child.has_tag_name("group") {
                let (mut entry, mut begins) = (Members::default(), None);
                self.collect(child, true, path, &mut entry, &mut begins)?;
                let group = Group { first: begins.unwrap_or(0), members: entry };
                members.groups.insert(tag, group);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = "<fix major='4' minor='4'>
        <header><field name='MsgType' required='Y'/></header><trailer><field name='CheckSum' required='Y'/></trailer>
        <messages><message name='Order' msgtype='D' msgcat='app'>
            <field name='Side' required='Y'/><component name='Parties' required='N'/></message></messages>
        <components><component name='Parties'>
            <group name='NoPartyIDs' required='N'><field name='PartyID' required='Y'/></group></component></components>
        <fields><field number='35' name='MsgType' type='STRING'/><field number='10' name='CheckSum' type='STRING'/>
            <field number='54' name='Side' type='CHAR'><value enum='1' description='BUY'/></field>
            <field number='453' name='NoPartyIDs' type='NUMINGROUP'/><field number='448' name='PartyID' type='STRING'/></fields></fix>";

    #[test]
    fn a_dictionary_is_read_with_components_and_groups() {
        let dictionary = Dictionary::from_xml(SMALL).unwrap();
        let order = dictionary.message(b"D").unwrap();
        assert_eq!(order.required, [54]);
        assert_eq!(order.groups[&453].first, 448);
        let rule = dictionary.rule(54).unwrap();
        assert_eq!((rule.lists(b"1"), rule.lists(b"2")), (true, false));
        assert_eq!(dictionary.parts_by_tag(b"D", &[453, 448, 448, 54]), [3..4, 0..3]);
    }

    #[test]
    fn faults_name_their_line() {
        let unknown = SMALL.replace("<field name='Side'", "<field name='Sid'");
        let expected = DictionaryError::Unknown { line: 4, kind: "field", name: "Sid".to_owned() };
        assert_eq!(Dictionary::from_xml(&unknown).unwrap_err(), expected);
        let circle = SMALL.replace("<group name", "<component name='Parties'/><group name");
        assert!(matches!(Dictionary::from_xml(&circle), Err(DictionaryError::Circle { .. })));
        assert!(matches!(Dictionary::from_xml("<fix>"), Err(DictionaryError::Xml(_))));
        assert_eq!(Dictionary::from_xml("<fix/>").unwrap_err(), DictionaryError::Missing("header"));
        let number = SMALL.replace("number='54'", "number='x'");
        assert!(matches!(Dictionary::from_xml(&number), Err(DictionaryError::Attribute { line: 8, .. })));
    }
}
