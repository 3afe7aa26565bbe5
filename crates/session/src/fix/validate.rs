//! Validates messages against a dictionary, with the reasons of a session reject (373).
//!
//! The checks run in the order of other engines: header, body and trailer follow each other; the type is known;
//! required fields are present. Then each field is known, has a value, occurs once, is well-formed, has an allowed
//! value, and belongs to the message. Of a group, the count is checked before the fields.

use rustc_hash::FxHashSet;
use tapeworks_wire::fix::{
    IgnoredTags, RejectReason, SOH, SPARE_BYTES, Writer, begin_string, data_of_length, message_type,
    read_character, read_date, read_flag, read_signed, read_time, read_timestamp,
};

use super::dictionary::{Dictionary, FieldRule, Form, Group, Members};
use super::received::{Part, is_admin};

/// Why a message is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// SessionRejectReason (373).
    pub reason: RejectReason,
    /// RefTagID (371), if a tag is to blame.
    pub tag: Option<i64>,
}

const fn of_tag(reason: RejectReason, tag: i64) -> Rejection {
    Rejection { reason, tag: Some(tag) }
}

/// Splits a message into its fields.
///
/// Tags without values and tags such as -1 are parts too: their messages are rejected and counted. Returns `None` if
/// the message is garbled because a tag is not a number or a field has no end.
pub(crate) fn split(message: &[u8], parts: &mut Vec<Part>) -> Option<()> {
    parts.clear();
    let (mut at, mut data) = (0, None);
    while let Some(rest) = message.get(at..).filter(|rest| !rest.is_empty()) {
        let equals = rest.iter().position(|byte| *byte == b'=')?;
        let tag = read_signed(rest.get(..equals)?).ok()?;
        let start = at + equals + 1;
        let end = match data.take() {
            Some((data_tag, length)) if data_tag == tag => start.checked_add(length)?,
            _ => start + message.get(start..)?.iter().position(|byte| *byte == SOH)?,
        };
        if message.get(end) != Some(&SOH) {
            return None;
        }
        parts.push(Part { tag, start: u32::try_from(start).ok()?, end: u32::try_from(end).ok()? });
        if let Some(data_tag) = u32::try_from(tag).ok().and_then(data_of_length) {
            let length = message.get(start..end).and_then(|value| read_signed(value).ok());
            data = length
                .and_then(|length| usize::try_from(length).ok())
                .map(|length| (i64::from(data_tag), length));
        }
        at = end + 1;
    }
    Some(())
}

/// Copies the message without its empty fields; `None` if it has none, or the copy cannot be written.
#[cold]
pub(crate) fn without_empty_fields(message: &[u8], parts: &[Part]) -> Option<Vec<u8>> {
    // The first three fields and the last are always written. An empty length (95) stays and is rejected, because its
    // data (96) could not be found without it.
    let is_framing = |part: &&Part| matches!(part.tag, 8 | 9 | 10 | 35);
    let is_length = |part: &Part| u32::try_from(part.tag).is_ok_and(|tag| data_of_length(tag).is_some());
    let is_left_out = |part: &&Part| part.value(message).is_empty() && !is_length(part);
    let inner = || parts.iter().filter(|part| !is_framing(part));
    inner().find(is_left_out)?;
    let mut buffer = vec![0; message.len() + SPARE_BYTES];
    let mut writer = Writer::begin(&mut buffer, begin_string(message), message_type(message));
    for part in inner().filter(|part| !is_left_out(part)) {
        writer.copied(u32::try_from(part.tag).ok()?, part.value(message));
    }
    writer.finish().ok().map(|message| message.to_vec())
}

/// Buffers for the checks, reused for each message. Once they have grown, nothing is allocated.
#[derive(Debug, Default)]
pub(crate) struct Room {
    /// Tags seen in a section.
    seen: FxHashSet<u32>,
    /// Tags seen in a group entry, after those of the entries around it. They are few, so a linear search suffices.
    entries: Vec<u32>,
}

/// Returns whether MsgType (35) looks like a FIX type: one character, or two from AA on.
fn is_type_of_fix(message_type: &[u8]) -> bool {
    match message_type {
        [one] => one.is_ascii_alphanumeric(),
        [b'A'..=b'E', second] => second.is_ascii_uppercase(),
        _ => false,
    }
}

/// Validates the parts of a message of this type.
pub(crate) fn validate(
    dictionary: &Dictionary,
    ignored: &IgnoredTags,
    message: &[u8],
    message_type: &[u8],
    parts: &[Part],
    room: &mut Room,
) -> Result<(), Rejection> {
    let body = in_order(dictionary, parts)?;
    let members = dictionary.messages.get(message_type);
    if members.is_none() && !(dictionary.is_of_some_types && is_type_of_fix(message_type)) {
        return Err(Rejection { reason: RejectReason::InvalidMessageType, tag: None });
    }
    let has = |tag: u32| parts.iter().any(|part| part.tag == i64::from(tag));
    let sections = [Some(&dictionary.header), members, Some(&dictionary.trailer)];
    for tag in sections.into_iter().flatten().flat_map(|section| &section.required) {
        if !has(*tag) {
            return Err(of_tag(RejectReason::RequiredTagMissing, i64::from(*tag)));
        }
    }
    let header = parts.get(..body.start).unwrap_or_default();
    let none = &IgnoredTags::default();
    let Some(members) = members else {
        return fields(dictionary, none, &dictionary.header, message, header, room);
    };
    let trailer = parts.get(body.end..).unwrap_or_default();
    let inside = parts.get(body).unwrap_or_default();
    fields(dictionary, none, &dictionary.header, message, header, room)?;
    fields(dictionary, ignored, members, message, inside, room).map_err(|rejection| match rejection {
        // Session messages do not know tags that only the application's dictionary defines.
        Rejection { reason: RejectReason::TagNotDefinedForType, tag: Some(tag) }
            if is_admin(message_type)
                && u32::try_from(tag).is_ok_and(|tag| dictionary.of_application.contains(&tag)) =>
        {
            of_tag(RejectReason::InvalidTag, tag)
        }
        rejection => rejection,
    })?;
    fields(dictionary, none, &dictionary.trailer, message, trailer, room)
}

/// Returns the range of the body's fields, if header, body and trailer are in order.
fn in_order(dictionary: &Dictionary, parts: &[Part]) -> Result<core::ops::Range<usize>, Rejection> {
    let section = |part: &Part| {
        let Ok(tag) = u32::try_from(part.tag) else { return 1 };
        if dictionary.header.holds(tag) {
            0
        } else if dictionary.trailer.holds(tag) {
            2
        } else {
            1
        }
    };
    let mut latest = 0;
    let mut counts = [0usize; 3];
    for part in parts {
        let section: usize = section(part);
        // A field of a group in the body may also be a header field.
        if section < latest {
            return Err(of_tag(RejectReason::TagOutOfOrder, part.tag));
        }
        latest = section;
        if let Some(count) = counts.get_mut(section) {
            *count += 1;
        }
    }
    Ok(counts[0]..counts[0] + counts[1])
}

fn fields(
    dictionary: &Dictionary,
    ignored: &IgnoredTags,
    members: &Members,
    message: &[u8],
    parts: &[Part],
    room: &mut Room,
) -> Result<(), Rejection> {
    room.seen.clear();
    room.entries.clear();
    let mut at = 0;
    while let Some(part) = parts.get(at) {
        if is_ignored(ignored, members, part) {
            at += 1;
            continue;
        }
        let tag = field(dictionary, message, part)?;
        if !members.fields.contains(&tag) {
            return Err(of_tag(RejectReason::TagNotDefinedForType, part.tag));
        }
        if !room.seen.insert(tag) {
            return Err(of_tag(RejectReason::TagTwice, part.tag));
        }
        at += 1;
        if let Some(group) = members.groups.get(&tag) {
            let behind = parts.get(at..).unwrap_or_default();
            let mut fault = None;
            at += entries(dictionary, group, message, part, behind, &mut room.entries, &mut fault)?;
            if let Some(rejection) = fault {
                return Err(rejection);
            }
        }
    }
    Ok(())
}

/// Returns whether to skip a field that the section lacks.
fn is_ignored(ignored: &IgnoredTags, members: &Members, part: &Part) -> bool {
    u32::try_from(part.tag).is_ok_and(|tag| ignored.has(tag) && !members.fields.contains(&tag))
}

/// Checks a group's entries and returns the number of their fields.
///
/// `stack` has the tags of the enclosing entries. The first invalid value goes to `fault`, because a wrong count outranks it.
fn entries(
    dictionary: &Dictionary,
    group: &Group,
    message: &[u8],
    count: &Part,
    parts: &[Part],
    stack: &mut Vec<u32>,
    fault: &mut Option<Rejection>,
) -> Result<usize, Rejection> {
    let declared = read_signed(count.value(message)).unwrap_or(-1);
    let (mut at, mut found) = (0, 0i64);
    let base = stack.len();
    while let Some(part) = parts.get(at) {
        let Some(tag) = u32::try_from(part.tag).ok().filter(|tag| group.members.fields.contains(tag)) else {
            break;
        };
        if let Err(rejection) = field(dictionary, message, part) {
            fault.get_or_insert(rejection);
        }
        let seen = stack.get(base..).unwrap_or_default();
        if tag == group.first {
            required(group, seen, found)?;
            found += 1;
            stack.truncate(base);
        } else if found == 0 {
            return Err(of_tag(RejectReason::GroupOutOfOrder, part.tag));
        } else if seen.contains(&tag) {
            return Err(of_tag(RejectReason::TagTwice, part.tag));
        }
        stack.push(tag);
        at += 1;
        if let Some(inner) = group.members.groups.get(&tag) {
            let behind = parts.get(at..).unwrap_or_default();
            at += entries(dictionary, inner, message, part, behind, stack, fault)?;
        }
    }
    required(group, stack.get(base..).unwrap_or_default(), found)?;
    stack.truncate(base);
    if found != declared {
        return Err(of_tag(RejectReason::WrongGroupCount, count.tag));
    }
    Ok(at)
}

/// Checks that a completed entry has its required fields.
fn required(group: &Group, seen: &[u32], found: i64) -> Result<(), Rejection> {
    match group.members.required.iter().find(|tag| found > 0 && !seen.contains(tag)) {
        Some(tag) => Err(of_tag(RejectReason::RequiredTagMissing, i64::from(*tag))),
        None => Ok(()),
    }
}

/// Checks a single field.
fn field(dictionary: &Dictionary, message: &[u8], part: &Part) -> Result<u32, Rejection> {
    let known =
        u32::try_from(part.tag).ok().and_then(|tag| dictionary.fields.get(&tag).map(|rule| (tag, rule)));
    let (tag, rule) = known.ok_or(of_tag(RejectReason::InvalidTag, part.tag))?;
    let value = part.value(message);
    if value.is_empty() {
        return Err(of_tag(RejectReason::TagWithoutValue, part.tag));
    }
    if !has_form(rule.form, value) {
        return Err(of_tag(RejectReason::IncorrectFormat, part.tag));
    }
    if !is_listed(rule, value) {
        return Err(of_tag(RejectReason::ValueIncorrect, part.tag));
    }
    Ok(tag)
}

fn has_form(form: Form, value: &[u8]) -> bool {
    match form {
        Form::Any => true,
        Form::Character => read_character(value).is_ok(),
        Form::Integer => read_signed(value).is_ok(),
        Form::Decimal => is_decimal(value),
        Form::Flag => read_flag(value).is_ok(),
        Form::Timestamp => read_timestamp(value).is_ok(),
        Form::Date => read_date(value).is_ok(),
        Form::Time => read_time(value).is_ok(),
    }
}

/// Returns whether a value is a decimal of any size.
fn is_decimal(value: &[u8]) -> bool {
    let digits = value.strip_prefix(b"-").unwrap_or(value);
    let points = digits.iter().filter(|byte| **byte == b'.').count();
    let is_of_digits = digits.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.');
    is_of_digits && points <= 1 && digits.len() > points
}

fn is_listed(rule: &FieldRule, value: &[u8]) -> bool {
    let listed = |value: &[u8]| rule.values.iter().any(|listed| **listed == *value);
    if rule.values.is_empty() {
        return true;
    }
    if rule.is_list { value.split(|byte| *byte == b' ').all(listed) } else { listed(value) }
}
