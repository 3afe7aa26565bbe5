//! The sending half of a session: numbers messages, stores them, and appends them to the output.
//!
//! A message is stored before it reaches the output. If it cannot be stored, it is not sent, its sequence number stays
//! free, and the session ends.

use core::ops::RangeInclusive;

use tapeworks_fix_wire::{
    Fields, LastSecond, PreparedFields, SPARE_BYTES, WriteError, Writer, field, message_type, read_timestamp,
    tag,
};
use tapeworks_planted::planted;

use super::received::is_admin;
use super::schedule::Schedule;
use super::settings::Settings;
use super::store::{Store, StoreError};

/// A resend continues while the output holds fewer bytes than this.
const RESEND_OUTPUT_BYTES: usize = 64 << 10;

/// Messages that a resend reads from the store before it yields to other work.
const MOST_READS: u32 = 1_024;

/// Header fields that an application message may have, in the order in which they are written.
const HEADER: [u32; 20] = [
    tag::MSG_SEQ_NUM,
    tag::POSS_DUP_FLAG,
    tag::SENDER_COMP_ID,
    tag::SENDER_SUB_ID,
    tag::SENDING_TIME,
    tag::TARGET_COMP_ID,
    tag::TARGET_SUB_ID,
    tag::POSS_RESEND,
    tag::ON_BEHALF_OF_COMP_ID,
    tag::ON_BEHALF_OF_SUB_ID,
    tag::ORIG_SENDING_TIME,
    tag::DELIVER_TO_COMP_ID,
    tag::DELIVER_TO_SUB_ID,
    tag::SENDER_LOCATION_ID,
    tag::TARGET_LOCATION_ID,
    tag::ON_BEHALF_OF_LOCATION_ID,
    tag::DELIVER_TO_LOCATION_ID,
    tag::APPL_VER_ID,
    tag::CSTM_APPL_VER_ID,
    tag::APPL_EXT_ID,
];

/// Header fields that name the parties behind the session: the tag in a message, and the tag in its answer.
pub const ROUTING: [(u32, u32); 7] = [
    (tag::SENDER_SUB_ID, tag::TARGET_SUB_ID),
    (tag::ON_BEHALF_OF_COMP_ID, tag::DELIVER_TO_COMP_ID),
    (tag::ON_BEHALF_OF_SUB_ID, tag::DELIVER_TO_SUB_ID),
    (tag::ON_BEHALF_OF_LOCATION_ID, tag::DELIVER_TO_LOCATION_ID),
    (tag::DELIVER_TO_COMP_ID, tag::ON_BEHALF_OF_COMP_ID),
    (tag::DELIVER_TO_SUB_ID, tag::ON_BEHALF_OF_SUB_ID),
    (tag::DELIVER_TO_LOCATION_ID, tag::ON_BEHALF_OF_LOCATION_ID),
];

/// A message was not sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The store failed to keep the message. The session ends.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The message is longer than the limit, or a value cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The session is not logged on, or a Logout was sent.
    #[error("the session is not logged on")]
    NotLoggedOn,
}

/// A resend in progress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resend {
    next: u64,
    last: u64,
}

/// Writes SenderCompID (49) and, if set, SenderSubID (50).
fn write_sender(writer: &mut Writer<'_>, settings: &Settings) {
    write_party(writer, tag::SENDER_COMP_ID, &settings.sender_comp_id, settings.sender_sub_id.as_deref());
}

/// Writes TargetCompID (56) and, if set, TargetSubID (57).
fn write_target(writer: &mut Writer<'_>, settings: &Settings) {
    write_party(writer, tag::TARGET_COMP_ID, &settings.target_comp_id, settings.target_sub_id.as_deref());
}

/// Writes a CompID and its SubID, which has the next tag.
fn write_party(writer: &mut Writer<'_>, tag: u32, comp_id: &str, sub_id: Option<&str>) {
    writer.text(tag, comp_id.as_bytes());
    if let Some(sub_id) = sub_id {
        writer.text(tag + 1, sub_id.as_bytes());
    }
}

/// The sending half of a session.
#[derive(Debug)]
pub struct Link {
    pub(crate) settings: Settings,
    pub(crate) output: Vec<u8>,
    sent: usize,
    scratch: Vec<u8>,
    /// The prepared CompIDs and SubIDs of sender and target; `None` if they are too long to prepare.
    ids: Option<(PreparedFields, PreparedFields)>,
    /// The text of the last second written: the next message usually has the same date and time.
    second: LastSecond,
    kept: Vec<u8>,
    pub(crate) is_open: bool,
    /// When a message was last appended to the output.
    pub(crate) sent_ns: u64,
    pub(crate) resend: Option<Resend>,
    pub(crate) failure: Option<StoreError>,
    pub(crate) messages_sent: u64,
    pub(crate) messages_resent: u64,
}

/// A message left over from a session that has ended.
#[derive(Clone, Debug)]
pub(crate) struct Unsent {
    message: Vec<u8>,
    /// The message gets PossResend (97).
    may_have_been_sent: bool,
}

impl Link {
    pub(crate) fn new(settings: Settings, now_ns: u64) -> Self {
        let room = settings.message_limit_bytes + SPARE_BYTES + 64;
        let ids = PreparedFields::new(|writer| write_sender(writer, &settings))
            .zip(PreparedFields::new(|writer| write_target(writer, &settings)));
        Self {
            settings,
            output: Vec::with_capacity(RESEND_OUTPUT_BYTES),
            sent: 0,
            scratch: vec![0; room],
            ids,
            second: LastSecond::NONE,
            kept: Vec::with_capacity(room),
            is_open: false,
            sent_ns: now_ns,
            resend: None,
            failure: None,
            messages_sent: 0,
            messages_resent: 0,
        }
    }

    /// The bytes to send.
    pub(crate) fn output(&self) -> &[u8] {
        self.output.get(self.sent..).unwrap_or_default()
    }

    pub(crate) fn take(&mut self, count: usize) {
        self.sent = (self.sent + count).min(self.output.len());
        if self.sent == self.output.len() {
            self.output.clear();
            self.sent = 0;
        } else if self.sent > RESEND_OUTPUT_BYTES {
            self.output.drain(..self.sent);
            self.sent = 0;
        }
    }

    /// Sends an application message and returns its sequence number.
    ///
    /// `header` has the tags and values of the caller's header fields, in ascending order. `body` writes the fields after the header.
    ///
    /// # Errors
    /// The session is not logged on, the message is too long, or the store fails to keep it.
    pub fn send(
        &mut self,
        store: &mut dyn Store,
        now_ns: u64,
        message_type: &[u8],
        header: &[(u32, &[u8])],
        body: impl FnOnce(&mut Writer<'_>),
    ) -> Result<u64, SendError> {
        if !self.is_open {
            return Err(SendError::NotLoggedOn);
        }
        self.send_any(store, now_ns, message_type, header, body)
    }

    /// Sends like [`Link::send`], but only stores the message while the session is not logged on.
    ///
    /// The peer requests a stored message after it reconnects.
    ///
    /// # Errors
    /// The message is too long, or the store fails to keep it.
    pub fn send_or_keep(
        &mut self,
        store: &mut dyn Store,
        now_ns: u64,
        message_type: &[u8],
        body: impl FnOnce(&mut Writer<'_>),
    ) -> Result<u64, SendError> {
        if self.is_open {
            return self.send_any(store, now_ns, message_type, &[], body);
        }
        let (unsent, sent_ns, messages_sent) = (self.output.len(), self.sent_ns, self.messages_sent);
        // The earlier failure ended its connection. A store that failed to read may still be able to write.
        self.failure = None;
        let kept = self.send_any(store, now_ns, message_type, &[], body);
        self.output.truncate(unsent);
        (self.sent_ns, self.messages_sent) = (sent_ns, messages_sent);
        if let Ok(sequence) = kept {
            store.unsent_from().get_or_insert(sequence);
        }
        kept
    }

    /// Returns the unsent messages that an ended session leaves for the next one, newest first.
    ///
    /// The next session began at `began_ns`. The messages are the application's messages after the session's last
    /// Logout, Heartbeat or other message of its own.
    pub(crate) fn unsent(
        &mut self,
        store: &mut dyn Store,
        schedule: &Schedule,
        began_ns: u64,
    ) -> Result<Vec<Unsent>, StoreError> {
        let unsent_from = store.unsent_from().unwrap_or(u64::MAX);
        let mut unsent = Vec::new();
        for sequence in (1..store.next_outgoing()).rev() {
            self.kept.clear();
            if !store.read(sequence, &mut self.kept)? {
                break;
            }
            if !self.is_of_application() {
                // Nothing was sent after our Logout.
                if message_type(&self.kept) == b"5" {
                    unsent.iter_mut().for_each(|one: &mut Unsent| one.may_have_been_sent = false);
                }
                break;
            }
            let made = field(&self.kept, tag::SENDING_TIME).and_then(|text| read_timestamp(text).ok());
            let is_later =
                made.is_some_and(|made_ns| made_ns >= began_ns || schedule.began_ns(made_ns).is_none());
            let may_have_been_sent = sequence < unsent_from && !is_later;
            unsent.push(Unsent { message: self.kept.clone(), may_have_been_sent });
        }
        Ok(unsent)
    }

    /// Sends the previous session's unsent messages under new sequence numbers, and returns how many could not be written.
    ///
    /// Messages that do not fit in the output are resent once it has room.
    pub(crate) fn send_unsent(
        &mut self,
        store: &mut dyn Store,
        now_ns: u64,
        unsent: &[Unsent],
    ) -> Result<u64, StoreError> {
        let (mut waits_from, mut failed) = (None, 0);
        for Unsent { message, may_have_been_sent } in unsent.iter().rev() {
            let before = (self.output.len(), self.sent_ns, self.messages_sent);
            let mut header = Vec::with_capacity(1 + ROUTING.len());
            header.extend(may_have_been_sent.then_some((tag::POSS_RESEND, &b"Y"[..])));
            header.extend(ROUTING.iter().filter_map(|(_, tag)| Some((*tag, field(message, *tag)?))));
            let sent = self.send_any(store, now_ns, message_type(message), &header, |writer| {
                copy_body(writer, message);
            });
            let sequence = match sent {
                Ok(sequence) => sequence,
                Err(SendError::Store(error)) => return Err(error),
                Err(_) => {
                    failed += 1;
                    continue;
                }
            };
            if waits_from.is_some() || before.0 >= RESEND_OUTPUT_BYTES {
                waits_from.get_or_insert(sequence);
                self.output.truncate(before.0);
                (self.sent_ns, self.messages_sent) = (before.1, before.2);
            }
        }
        if let Some(first) = waits_from {
            self.begin_resend(store, first, 0);
        }
        Ok(failed)
    }

    /// Sends a message of any type.
    pub(crate) fn send_any(
        &mut self,
        store: &mut dyn Store,
        now_ns: u64,
        message_type: &[u8],
        header: &[(u32, &[u8])],
        body: impl FnOnce(&mut Writer<'_>),
    ) -> Result<u64, SendError> {
        let sequence = store.next_outgoing();
        self.send_numbered(sequence, now_ns, message_type, header, body, |message| {
            store.keep(sequence, message)
        })
    }

    /// Sends a message that consumes no sequence number. The peer cannot request it.
    pub(crate) fn send_unkept(
        &mut self,
        sequence: u64,
        now_ns: u64,
        message_type: &[u8],
        body: impl FnOnce(&mut Writer<'_>),
    ) -> Result<u64, SendError> {
        self.send_numbered(sequence, now_ns, message_type, &[], body, |_| Ok(()))
    }

    fn send_numbered(
        &mut self,
        sequence: u64,
        now_ns: u64,
        message_type: &[u8],
        header: &[(u32, &[u8])],
        body: impl FnOnce(&mut Writer<'_>),
        keep: impl FnOnce(&[u8]) -> Result<(), StoreError>,
    ) -> Result<u64, SendError> {
        if let Some(failure) = &self.failure {
            return Err(SendError::Store(failure.clone()));
        }
        let settings = &self.settings;
        let mut writer = Writer::begin(&mut self.scratch, settings.begin_string.as_bytes(), message_type);
        writer.set_second(self.second);
        match &self.ids {
            Some((sender, target)) if header.is_empty() => {
                writer
                    .number(tag::MSG_SEQ_NUM, sequence)
                    .prepared(sender)
                    .timestamp(tag::SENDING_TIME, now_ns)
                    .prepared(target);
            }
            _ => {
                for tag in HEADER {
                    match tag {
                        tag::MSG_SEQ_NUM => _ = writer.number(tag::MSG_SEQ_NUM, sequence),
                        tag::SENDER_COMP_ID => write_sender(&mut writer, settings),
                        tag::SENDING_TIME => _ = writer.timestamp(tag::SENDING_TIME, now_ns),
                        tag::TARGET_COMP_ID => write_target(&mut writer, settings),
                        // Written after the CompIDs.
                        tag::SENDER_SUB_ID => {}
                        tag::TARGET_SUB_ID if settings.target_sub_id.is_some() => {}
                        tag => {
                            let given =
                                header.iter().find(|(given, value)| *given == tag && !value.is_empty());
                            _ = given.map(|(_, value)| _ = writer.text(tag, value));
                        }
                    }
                }
            }
        }
        body(&mut writer);
        self.second = writer.second();
        let message = writer.finish()?;
        if message.len() > settings.message_limit_bytes {
            return Err(SendError::Write(WriteError::BufferTooSmall { got: settings.message_limit_bytes }));
        }
        match keep(message) {
            Ok(()) => {
                self.output.extend_from_slice(message);
                self.sent_ns = now_ns;
                self.messages_sent += 1;
                Ok(sequence)
            }
            Err(error) => {
                self.failure = Some(error.clone());
                Err(SendError::Store(error))
            }
        }
    }

    /// Starts to resend a range; an `end` of 0 is the last message. The range is merged with a resend in progress.
    pub(crate) fn begin_resend(&mut self, store: &dyn Store, begin: u64, end: u64) {
        let last = store.next_outgoing().saturating_sub(1);
        let end = if end == 0 || end > last { last } else { end };
        let begin = begin.max(1);
        if begin <= end {
            let left = self.resend.unwrap_or(Resend { next: begin, last: end });
            self.resend = Some(Resend { next: begin.min(left.next), last: end.max(left.last) });
        }
    }

    /// Resends up to [`MOST_READS`] messages while the output has room.
    ///
    /// Session messages, messages missing from the store, and those that `may_resend` refuses are replaced by gap fills, one for each run.
    pub(crate) fn pump_resend(
        &mut self,
        store: &dyn Store,
        now_ns: u64,
        may_resend: &mut dyn FnMut(&[u8]) -> bool,
    ) {
        let mut reads = 0;
        while let Some(Resend { next, last }) = self.resend {
            if self.output().len() >= RESEND_OUTPUT_BYTES || reads >= MOST_READS {
                return;
            }
            // A long run of gap-filled messages is also read in pieces.
            let mut filled = next;
            let mut has_message = false;
            while filled <= last && reads < MOST_READS {
                reads += 1;
                self.kept.clear();
                has_message = match store.read(filled, &mut self.kept) {
                    Ok(found) => {
                        let is_resent = found && self.is_of_application() && may_resend(&self.kept);
                        is_resent && !planted!("reports-filled-not-resent")
                    }
                    Err(error) => {
                        self.failure = Some(error);
                        return;
                    }
                };
                if has_message {
                    break;
                }
                filled += 1;
            }
            if filled > next {
                self.gap_fill(next..=filled - 1, now_ns);
            }
            if has_message {
                self.resend_kept(filled, now_ns);
                filled += 1;
            }
            self.resend = (filled <= last).then_some(Resend { next: filled, last });
        }
    }

    /// Returns whether the message in `kept` is resent: an application message, or a Reject of one if the settings say so.
    fn is_of_application(&self) -> bool {
        let kind = message_type(&self.kept);
        let refused = || field(&self.kept, tag::REF_MSG_TYPE).is_some_and(|kind| !is_admin(kind));
        !is_admin(kind) || (kind == b"3" && self.settings.resends_rejects && refused())
    }

    /// Returns whether a resend is in progress and the output has room for it.
    pub(crate) fn goes_on(&self) -> bool {
        self.resend.is_some() && self.output().len() < RESEND_OUTPUT_BYTES
    }

    /// Sends a SequenceReset in place of a range of messages that are not resent.
    fn gap_fill(&mut self, range: RangeInclusive<u64>, now_ns: u64) {
        let settings = &self.settings;
        let mut writer = Writer::begin(&mut self.scratch, settings.begin_string.as_bytes(), b"4");
        writer
            .number(tag::MSG_SEQ_NUM, *range.start())
            .flag(tag::POSS_DUP_FLAG, true)
            .text(tag::SENDER_COMP_ID, settings.sender_comp_id.as_bytes());
        writer
            .timestamp(tag::SENDING_TIME, now_ns)
            .text(tag::TARGET_COMP_ID, settings.target_comp_id.as_bytes())
            .timestamp(tag::ORIG_SENDING_TIME, now_ns);
        writer.number(tag::NEW_SEQ_NO, range.end() + 1).flag(tag::GAP_FILL_FLAG, true);
        // It fits because every message contains the CompIDs.
        if let Ok(message) = writer.finish() {
            self.output.extend_from_slice(message);
            self.sent_ns = now_ns;
        }
    }

    /// Resends the message in `kept` with PossDupFlag and OrigSendingTime.
    fn resend_kept(&mut self, sequence: u64, now_ns: u64) {
        let message = &self.kept;
        let field = |tag| field(message, tag);
        let begin_string = tapeworks_fix_wire::begin_string(message);
        let mut writer = Writer::begin(&mut self.scratch, begin_string, message_type(message));
        let first_sent_ns =
            field(tag::SENDING_TIME).and_then(|text| read_timestamp(text).ok()).unwrap_or(now_ns);
        // The clock may have been set back. The peer would reject a message first sent in the future, and lose it.
        let first_sent_ns = first_sent_ns.min(now_ns);
        for tag in HEADER {
            match tag {
                tag::MSG_SEQ_NUM => _ = writer.number(tag::MSG_SEQ_NUM, sequence),
                tag::POSS_DUP_FLAG => _ = writer.flag(tag::POSS_DUP_FLAG, true),
                tag::SENDING_TIME => _ = writer.timestamp(tag::SENDING_TIME, now_ns),
                tag::ORIG_SENDING_TIME => _ = writer.timestamp(tag::ORIG_SENDING_TIME, first_sent_ns),
                tag => _ = field(tag).map(|value| _ = writer.copied(tag, value)),
            }
        }
        copy_body(&mut writer, message);
        match writer.finish() {
            Ok(message) => {
                self.output.extend_from_slice(message);
                self.sent_ns = now_ns;
                self.messages_resent += 1;
            }
            // The two added fields make it too long.
            Err(_) => self.gap_fill(sequence..=sequence, now_ns),
        }
    }
}

/// Copies the fields of a message that are not part of its header or trailer.
fn copy_body(writer: &mut Writer<'_>, message: &[u8]) {
    for field in Fields::new(message).map_while(Result::ok) {
        if !matches!(field.tag, tag::BEGIN_STRING | tag::BODY_LENGTH | tag::CHECK_SUM | tag::MSG_TYPE)
            && !HEADER.contains(&field.tag)
        {
            writer.copied(field.tag, field.value);
        }
    }
}
