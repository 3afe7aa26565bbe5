//! The header of a received message, and the values by which the session acts.

use tapeworks_fix_wire::{LastTimestamp, Parsed, read_flag, read_unsigned, tag};

/// The highest MsgSeqNum (34) and NewSeqNo (36): the dictionaries' integers have 63 bits.
pub const HIGHEST_SEQUENCE: u64 = i64::MAX as u64;

/// The header of a received message. A field that is absent or malformed is `None`.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// The message.
    pub message: Parsed<'a>,
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
}

impl<'a> Received<'a> {
    pub(crate) fn new(message: Parsed<'a>, last: &mut LastTimestamp) -> Self {
        let mut received = Self {
            message,
            message_type: message.message_type(),
            sequence: None,
            sender_comp_id: None,
            target_comp_id: None,
            sending_ns: None,
            first_sending_ns: None,
            is_possible_duplicate: false,
            is_possible_resend: false,
        };
        let bytes = message.bytes();
        let text = |value: &'a [u8]| Some(value).filter(|value| !value.is_empty());
        // Backwards, so that the first field of each tag counts.
        for part in message.parts().iter().rev() {
            let value = part.value(bytes);
            match part.tag {
                tag::MSG_SEQ_NUM => {
                    let number = read_unsigned(value).ok();
                    received.sequence = number.filter(|number| *number <= HIGHEST_SEQUENCE);
                }
                tag::SENDER_COMP_ID => received.sender_comp_id = text(value),
                tag::TARGET_COMP_ID => received.target_comp_id = text(value),
                tag::SENDING_TIME => received.sending_ns = part.timestamp(bytes, last).ok(),
                tag::ORIG_SENDING_TIME => received.first_sending_ns = part.timestamp(bytes, last).ok(),
                tag::POSS_DUP_FLAG => received.is_possible_duplicate = read_flag(value) == Ok(true),
                tag::POSS_RESEND => received.is_possible_resend = read_flag(value) == Ok(true),
                _ => {}
            }
        }
        received
    }

    /// Returns the value of the first field with this tag, unless it is empty.
    #[must_use]
    pub fn field(&self, tag: u32) -> Option<&'a [u8]> {
        self.message.field(tag)
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
        self.message.parts().iter().any(|part| part.tag == tag)
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
