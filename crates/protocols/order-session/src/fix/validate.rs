//! Validates messages against a dictionary, with the reasons of a session reject (373).
//!
//! The checks run in the order of other engines: header, body and trailer follow each other; the type is known;
//! required fields are present. Then each field is known, has a value, occurs once, is well-formed, has an allowed
//! value, and belongs to the message. Of a group, the count is checked before the fields.

use core::ops::Range;

use tapeworks_fix_wire::{
    IgnoredTags, LastTimestamp, Parsed, Part, RejectReason, SPARE_BYTES, TagSet, Writer, data_of_length,
    read_character, read_date, read_flag, read_signed, read_time, tag,
};

use super::dictionary::{Dictionary, FieldRule, Form, Group, Members, Section};
use super::received::is_admin;

/// Why a message is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// SessionRejectReason (373).
    pub reason: RejectReason,
    /// RefTagID (371), if a field is to blame: the number in the message, which may be no tag.
    pub tag: Option<i64>,
}

impl Rejection {
    pub(crate) const fn of_tag(reason: RejectReason, tag: u32) -> Self {
        Self { reason, tag: Some(tag as i64) }
    }
}

/// Copies the message without its empty fields; `None` if it has none, or the copy cannot be written.
#[cold]
pub(crate) fn without_empty_fields(message: &Parsed<'_>) -> Option<Vec<u8>> {
    // The writer adds the first three fields and the last. An empty length (95) stays and is rejected, because its data (96)
    // could not be found without it.
    let (bytes, parts) = (message.bytes(), message.parts());
    let has_trailer = parts.last().is_some_and(|part| part.tag == tag::CHECK_SUM);
    let end = parts.len() - usize::from(has_trailer);
    let is_left_out = |part: &&Part| part.value(bytes).is_empty() && data_of_length(part.tag).is_none();
    let inner = || parts.get(3..end).unwrap_or_default().iter();
    inner().find(is_left_out)?;
    let mut buffer = vec![0; bytes.len() + SPARE_BYTES];
    let mut writer = Writer::begin(&mut buffer, message.begin_string(), message.message_type());
    for part in inner().filter(|part| !is_left_out(part)) {
        writer.copied(u32::try_from(part.number(bytes)).ok()?, part.value(bytes));
    }
    writer.finish().ok().map(|message| message.to_vec())
}

/// Buffers for the checks, reused for each message. Once they have grown, nothing is allocated.
#[derive(Debug, Default)]
pub(crate) struct Room {
    /// Tags of the message; if a tag is repeated, those seen outside groups so far.
    seen: TagSet,
    has_repeated: bool,
    /// Tags seen in a group entry, after those of the entries around it. They are few, so a linear search suffices.
    entries: Vec<u32>,
    /// The last timestamp of a message: most are of the same second or day.
    pub(crate) last: LastTimestamp,
}

/// Returns whether MsgType (35) looks like a FIX type: one character, or two from AA on.
fn is_type_of_fix(message_type: &[u8]) -> bool {
    match message_type {
        [one] => one.is_ascii_alphanumeric(),
        [b'A'..=b'E', second] => second.is_ascii_uppercase(),
        _ => false,
    }
}

/// A message with the dictionary and the buffers of its checks.
struct Check<'a> {
    dictionary: &'a Dictionary,
    bytes: &'a [u8],
    room: &'a mut Room,
}

/// Validates a message.
pub(crate) fn validate(
    dictionary: &Dictionary,
    ignored: &IgnoredTags,
    message: &Parsed<'_>,
    room: &mut Room,
) -> Result<(), Rejection> {
    let mut check = Check { dictionary, bytes: message.bytes(), room };
    if check.is_plain(message) { Ok(()) } else { check.message(ignored, message) }
}

impl<'a> Check<'a> {
    /// Returns whether a message passes every check in a single pass. If it does not, [`Check::message`] finds the fault that takes
    /// precedence. It also accepts messages that this pass does not handle, such as those with ignored tags.
    fn is_plain(&mut self, message: &Parsed<'_>) -> bool {
        let (dictionary, parts) = (self.dictionary, message.parts());
        let Some(members) = dictionary.message(message.message_type()) else { return false };
        let sections = [&dictionary.header, members, &dictionary.trailer];
        self.room.seen.clear();
        let (mut latest, mut at) = (Section::Header, 0);
        while let Some(part) = parts.get(at) {
            at += 1;
            let Some(rule) = dictionary.rule(part.tag) else { return false };
            if rule.section < latest
                || !members.allowed.has(part.tag)
                || !self.room.seen.insert(part.tag)
                || self.fault(rule, part).is_some()
            {
                return false;
            }
            latest = rule.section;
            if rule.counts_entries
                && let Some(group) = sections.get(latest as usize).and_then(|of| of.groups.get(&part.tag))
            {
                let behind = parts.get(at..).unwrap_or_default();
                let mut fault = None;
                self.room.entries.clear();
                let count = self.entries(group, part, behind, &mut fault).unwrap_or(0);
                let is_here = |part: &Part| dictionary.section(part.tag) == latest;
                if count == 0 || fault.is_some() || !behind.iter().take(count).all(is_here) {
                    return false;
                }
                at += count;
            }
        }
        sections.iter().flat_map(|section| &section.required).all(|tag| self.room.seen.has(*tag))
    }

    fn message(&mut self, ignored: &IgnoredTags, message: &Parsed<'_>) -> Result<(), Rejection> {
        let (dictionary, parts) = (self.dictionary, message.parts());
        let body = self.in_order(parts)?;
        let message_type = message.message_type();
        let members = dictionary.message(message_type);
        if members.is_none() && !(dictionary.is_of_some_types && is_type_of_fix(message_type)) {
            return Err(Rejection { reason: RejectReason::InvalidMessageType, tag: None });
        }
        let sections = [Some(&dictionary.header), members, Some(&dictionary.trailer)];
        for tag in sections.into_iter().flatten().flat_map(|section| &section.required) {
            if !self.room.seen.has(*tag) {
                return Err(Rejection::of_tag(RejectReason::RequiredTagMissing, *tag));
            }
        }
        if self.room.has_repeated {
            self.room.seen.clear();
        }
        let none = &IgnoredTags::default();
        self.section(none, &dictionary.header, parts.get(..body.start).unwrap_or_default())?;
        let Some(members) = members else { return Ok(()) };
        let trailer = parts.get(body.end..).unwrap_or_default();
        let inside = parts.get(body).unwrap_or_default();
        self.section(ignored, members, inside).map_err(|rejection| match rejection {
            // Session messages do not know tags that only the application's dictionary defines.
            Rejection { reason: RejectReason::TagNotDefinedForType, tag: Some(tag) }
                if is_admin(message_type)
                    && u32::try_from(tag).is_ok_and(|tag| dictionary.of_application.has(tag)) =>
            {
                Rejection { reason: RejectReason::InvalidTag, tag: Some(tag) }
            }
            rejection => rejection,
        })?;
        self.section(none, &dictionary.trailer, trailer)
    }

    /// Notes the tags and returns the range of the body's fields, if header, body and trailer are in order.
    fn in_order(&mut self, parts: &[Part]) -> Result<Range<usize>, Rejection> {
        let mut latest = Section::Header;
        let mut counts = [0usize; 3];
        self.room.has_repeated = false;
        self.room.seen.clear();
        for part in parts {
            let section = self.dictionary.section(part.tag);
            // A field of a group in the body may also be a header field.
            if section < latest {
                return Err(self.rejected(RejectReason::TagOutOfOrder, part));
            }
            latest = section;
            if let Some(count) = counts.get_mut(section as usize) {
                *count += 1;
            }
            self.room.has_repeated |= !self.room.seen.insert(part.tag);
        }
        Ok(counts[0]..counts[0] + counts[1])
    }

    #[cold]
    fn rejected(&self, reason: RejectReason, part: &Part) -> Rejection {
        Rejection { reason, tag: Some(part.number(self.bytes)) }
    }

    /// Checks the fields of the header, the body or the trailer.
    fn section(&mut self, ignored: &IgnoredTags, members: &Members, parts: &[Part]) -> Result<(), Rejection> {
        let mut at = 0;
        while let Some(part) = parts.get(at) {
            at += 1;
            let is_member = members.fields.has(part.tag);
            let is_number = || part.tag != 0 || part.number(self.bytes) == 0;
            if !is_member && ignored.has(part.tag) && is_number() {
                continue;
            }
            let rule = self.field(part)?;
            if !is_member {
                return Err(self.rejected(RejectReason::TagNotDefinedForType, part));
            }
            if self.room.has_repeated && !self.room.seen.insert(part.tag) {
                return Err(self.rejected(RejectReason::TagTwice, part));
            }
            if rule.counts_entries
                && let Some(group) = members.groups.get(&part.tag)
            {
                let behind = parts.get(at..).unwrap_or_default();
                let mut fault = None;
                self.room.entries.clear();
                at += self.entries(group, part, behind, &mut fault)?;
                if let Some(rejection) = fault {
                    return Err(rejection);
                }
            }
        }
        Ok(())
    }

    /// Checks a group's entries and returns the number of their fields.
    ///
    /// The first invalid value goes to `fault`, because a wrong count outranks it.
    fn entries(
        &mut self,
        group: &Group,
        count: &Part,
        parts: &[Part],
        fault: &mut Option<Rejection>,
    ) -> Result<usize, Rejection> {
        let declared = read_signed(count.value(self.bytes)).unwrap_or(-1);
        let (mut at, mut found) = (0, 0i64);
        let base = self.room.entries.len();
        while let Some(part) = parts.get(at).filter(|part| group.members.fields.has(part.tag)) {
            if let Err(rejection) = self.field(part) {
                fault.get_or_insert(rejection);
            }
            let seen = self.room.entries.get(base..).unwrap_or_default();
            if part.tag == group.first {
                required(group, seen, found)?;
                found += 1;
                self.room.entries.truncate(base);
            } else if found == 0 {
                return Err(self.rejected(RejectReason::GroupOutOfOrder, part));
            } else if seen.contains(&part.tag) {
                return Err(self.rejected(RejectReason::TagTwice, part));
            }
            self.room.entries.push(part.tag);
            at += 1;
            if let Some(inner) = group.members.groups.get(&part.tag) {
                let behind = parts.get(at..).unwrap_or_default();
                at += self.entries(inner, part, behind, fault)?;
            }
        }
        required(group, self.room.entries.get(base..).unwrap_or_default(), found)?;
        self.room.entries.truncate(base);
        if found != declared {
            return Err(self.rejected(RejectReason::WrongGroupCount, count));
        }
        Ok(at)
    }

    /// Checks a single field.
    fn field(&mut self, part: &Part) -> Result<&'a FieldRule, Rejection> {
        let dictionary = self.dictionary;
        let Some(rule) = dictionary.rule(part.tag) else {
            return Err(self.rejected(RejectReason::InvalidTag, part));
        };
        match self.fault(rule, part) {
            None => Ok(rule),
            Some(reason) => Err(self.rejected(reason, part)),
        }
    }

    /// Returns what is wrong with a field's value.
    #[inline(always)]
    fn fault(&mut self, rule: &FieldRule, part: &Part) -> Option<RejectReason> {
        let value = part.value(self.bytes);
        if value.is_empty() {
            return Some(RejectReason::TagWithoutValue);
        }
        let has_form = match rule.form {
            Form::Any => true,
            Form::Character => read_character(value).is_ok(),
            Form::Integer => read_signed(value).is_ok(),
            Form::Decimal => is_decimal(value),
            Form::Flag => read_flag(value).is_ok(),
            Form::Timestamp => part.timestamp(self.bytes, &mut self.room.last).is_ok(),
            Form::Date => read_date(value).is_ok(),
            Form::Time => read_time(value).is_ok(),
        };
        if !has_form {
            return Some(RejectReason::IncorrectFormat);
        }
        if rule.lists(value) { None } else { Some(RejectReason::ValueIncorrect) }
    }
}

/// Checks that a completed entry has its required fields.
fn required(group: &Group, seen: &[u32], found: i64) -> Result<(), Rejection> {
    match group.members.required.iter().find(|tag| found > 0 && !seen.contains(tag)) {
        Some(tag) => Err(Rejection::of_tag(RejectReason::RequiredTagMissing, *tag)),
        None => Ok(()),
    }
}

/// Returns whether a value is a decimal of any size.
fn is_decimal(value: &[u8]) -> bool {
    let digits = value.strip_prefix(b"-").unwrap_or(value);
    let (mut points, mut others) = (0, 0);
    for byte in digits {
        points += usize::from(*byte == b'.');
        others += usize::from(!byte.is_ascii_digit());
    }
    others == points && points <= 1 && digits.len() > points
}

#[cfg(test)]
mod tests {
    use tapeworks_fix_wire::Parts;
    use tapeworks_fix_wire::order_entry::SCHEMA;

    use super::*;

    const HEADER: &str = "49=A|56=B|34=2|52=20240301-09:30:00|";

    /// Validates a message with this type and body, after removing its empty fields if `without_empty`.
    fn verdict(message_type: &str, body: &str, without_empty: bool) -> Result<(), Rejection> {
        let mut buffer = [0; 512];
        let mut writer = Writer::begin(&mut buffer, b"FIX.4.4", message_type.as_bytes());
        for field in format!("{HEADER}{body}").split_terminator('|') {
            let (tag, value) = field.split_once('=').unwrap();
            writer.copied(tag.parse().unwrap(), value.replace('~', "\x01").as_bytes());
        }
        let mut bytes = writer.finish().unwrap().to_vec();
        let (mut parts, mut others) = (Parts::new(), Parts::new());
        if without_empty {
            bytes = without_empty_fields(&parts.split(&bytes).unwrap()).unwrap();
        }
        let dictionary = Dictionary::from_schema(&SCHEMA);
        let message = others.split(&bytes).unwrap();
        validate(&dictionary, &IgnoredTags::default(), &message, &mut Room::default())
    }

    #[test]
    fn a_second_type_is_rejected_with_and_without_an_empty_field() {
        assert_eq!(verdict("0", "112=x|", false), Ok(()));
        let out_of_order = Rejection::of_tag(RejectReason::TagOutOfOrder, tag::MSG_TYPE);
        assert_eq!(verdict("0", "112=x|35=8|", false), Err(out_of_order));
        assert_eq!(
            verdict("0", "112=|35=8|", true),
            Err(Rejection::of_tag(RejectReason::TagTwice, tag::MSG_TYPE))
        );
    }

    #[test]
    fn a_message_whose_data_hides_its_checksum_is_rejected() {
        let missing = Rejection::of_tag(RejectReason::RequiredTagMissing, tag::CHECK_SUM);
        // The trailer has seven bytes; its last SOH ends the data.
        assert_eq!(verdict("A", "98=0|108=30|95=7|96=|", false), Err(missing));
    }
}
