//! The parts of a received message that the session reads: its header and a few fields of session messages.

use tapeworks_wire::fix::{begin_string, read_flag, read_timestamp, read_unsigned};

/// A field of a message: its tag, which may be invalid, and the position of its value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) tag: i64,
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl Part {
    pub(crate) fn value<'a>(&self, message: &'a [u8]) -> &'a [u8] {
        message.get(self.start as usize..self.end as usize).unwrap_or_default()
    }
}

/// The highest MsgSeqNum (34) and NewSeqNo (36): the dictionaries' integers have 63 bits.
pub const HIGHEST_SEQUENCE: u64 = i64::MAX as u64;

/// The header of a received message. A field that is absent or malformed is `None`.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// The message.
    pub message: &'a [u8],
    /// BeginString (8).
    pub begin_string: &'a [u8],
    /// MsgType (35).
    pub message_type: &'a [u8],
    /// MsgSeqNum (34).
    pub sequence: Option<u64>,
    /// SenderCompID (49).
    pub sender_comp_id: Option<&'a [u8]>,
    /// TargetCompID (56).
    pub target_comp_id: Option<&'a [u8]>,
    /// SendingTime (52), in UTC nanoseconds.
    pub sending_ns: Option<u64>,
    /// OrigSendingTime (122), in UTC nanoseconds.
    pub first_sending_ns: Option<u64>,
    /// PossDupFlag (43).
    pub is_possible_duplicate: bool,
    /// PossResend (97).
    pub is_possible_resend: bool,
    parts: &'a [Part],
}

impl<'a> Received<'a> {
    pub(crate) fn new(message: &'a [u8], parts: &'a [Part]) -> Self {
        let value = |tag| find(message, parts, tag);
        let is_set = |tag| value(tag).is_some_and(|text| read_flag(text) == Ok(true));
        let time = |tag| value(tag).and_then(|text| read_timestamp(text).ok());
        Self {
            message,
            begin_string: begin_string(message),
            message_type: value(35).unwrap_or_default(),
            sequence: value(34)
                .and_then(|text| read_unsigned(text).ok())
                .filter(|number| *number <= HIGHEST_SEQUENCE),
            sender_comp_id: value(49),
            target_comp_id: value(56),
            sending_ns: time(52),
            first_sending_ns: time(122),
            is_possible_duplicate: is_set(43),
            is_possible_resend: is_set(97),
            parts,
        }
    }

    /// Returns the value of the first field with this tag, unless it is empty.
    #[must_use]
    pub fn field(&self, tag: u32) -> Option<&'a [u8]> {
        find(self.message, self.parts, tag)
    }

    /// Returns the value of a numeric field.
    pub(crate) fn number(&self, tag: u32) -> Option<u64> {
        self.field(tag).and_then(|text| read_unsigned(text).ok())
    }

    /// Returns whether a flag is `Y`.
    pub(crate) fn is_set(&self, tag: u32) -> bool {
        self.field(tag).is_some_and(|text| read_flag(text) == Ok(true))
    }

    /// Returns whether a field is present, even without a value.
    pub(crate) fn has(&self, tag: u32) -> bool {
        self.parts.iter().any(|part| part.tag == i64::from(tag))
    }

    /// Iterates over the tags and values in order. Fields with invalid tags are skipped.
    pub fn fields(&self) -> impl Iterator<Item = (u32, &'a [u8])> + use<'a> {
        let message = self.message;
        self.parts.iter().filter_map(move |part| Some((u32::try_from(part.tag).ok()?, part.value(message))))
    }

    /// Returns whether the message is a session (admin) message.
    #[must_use]
    pub fn is_admin(&self) -> bool {
        is_admin(self.message_type)
    }
}

/// Returns whether messages of this type are session (admin) messages.
pub(crate) fn is_admin(message_type: &[u8]) -> bool {
    matches!(message_type, b"0" | b"1" | b"2" | b"3" | b"4" | b"5" | b"A")
}

fn find<'a>(message: &'a [u8], parts: &[Part], tag: u32) -> Option<&'a [u8]> {
    let part = parts.iter().find(|part| part.tag == i64::from(tag))?;
    Some(part.value(message)).filter(|value| !value.is_empty())
}
