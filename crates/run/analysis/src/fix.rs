//! FIX messages for people and programs: from TCP streams, and from log files with messages in their lines.
//!
//! A log line may have anything before its message (a time, a session), as QuickFIX writes it. Fields end in SOH, `|` or `^A`.
//! BodyLength and CheckSum delimit messages, as on the wire. Field names come from this program's declaration;
//! passwords are not shown.
//!
//! Cost: each line is copied once, to convert its separators to SOH.

use std::fmt::{self, Write as _};
use std::net::SocketAddr;

use tapeworks_capture::source::ByteSource;
use tapeworks_feed::ChannelIdentity;
use tapeworks_feed::walk::streams::{FIX_START, LONGEST_FIX_BYTES};
use tapeworks_fix_wire::order_entry::SCHEMA;
use tapeworks_fix_wire::{
    Fields, FixKind, FixSchema, Framing, Garbled, SOH, field, message_type, next_message, read_timestamp,
    read_unsigned,
};
use tapeworks_market::Symbol;
use tapeworks_time::Nanos;

/// The longest message, and the longest line of a log, in bytes.
pub const LONGEST_BYTES: usize = LONGEST_FIX_BYTES;

/// Tags whose values are hidden: Password and NewPassword.
const SECRETS: [u32; 2] = [554, 925];

/// Returns the bytes of a non-message that may be shown: none if they may contain a password.
pub(crate) fn without_secrets(bytes: &[u8]) -> &[u8] {
    let has = |tag: &[u8]| bytes.windows(tag.len()).any(|window| window == tag);
    if has(b"554=") || has(b"925=") { &[] } else { bytes }
}

/// The name shown for an undeclared message type.
pub const UNDECLARED: &str = "(undeclared)";

/// A message whose length and checksum are right.
#[derive(Clone, Copy, Debug)]
pub struct FixMessage<'a> {
    /// Its bytes, with SOH after each field.
    pub bytes: &'a [u8],
    /// The channel that carried it.
    pub channel: ChannelIdentity,
    /// Its sender and its destination.
    pub addresses: Option<(SocketAddr, SocketAddr)>,
    /// The VLAN that it came on.
    pub vlan: Option<u16>,
}

impl FixMessage<'_> {
    /// Returns the declaration.
    #[must_use]
    pub const fn schema() -> &'static FixSchema {
        &SCHEMA
    }

    /// Returns the declared name of its type.
    #[must_use]
    pub fn name(&self) -> Option<&'static str> {
        SCHEMA.message(message_type(self.bytes)).map(|message| message.name)
    }

    /// Returns MsgSeqNum (34).
    #[must_use]
    pub fn sequence(&self) -> Option<u64> {
        field(self.bytes, 34).and_then(|value| read_unsigned(value).ok())
    }

    /// Returns SendingTime (52).
    #[must_use]
    pub fn sending_time(&self) -> Option<Nanos> {
        field(self.bytes, 52).and_then(|value| read_timestamp(value).ok()).map(Nanos)
    }

    /// Returns Symbol (55).
    #[must_use]
    pub fn symbol(&self) -> Option<Symbol> {
        field(self.bytes, 55).and_then(|value| Symbol::from_bytes(value).ok())
    }

    /// Calls `show` with each field and the meaning of a listed value; returns the error that ends the fields, if any.
    fn each(&self, mut show: impl FnMut(Shown<'_>)) -> Option<String> {
        for field in Fields::new(self.bytes) {
            let field = match field {
                Ok(field) => field,
                Err(error) => return Some(error.to_string()),
            };
            let known = SCHEMA.field(field.tag);
            let name = match field.tag {
                8 => Some("BeginString"),
                9 => Some("BodyLength"),
                10 => Some("CheckSum"),
                35 => Some("MsgType"),
                _ => known.map(|known| known.title),
            };
            let meaning = match known.map(|known| known.kind) {
                Some(FixKind::Enum(schema)) => {
                    let raw = match (schema.text, field.value) {
                        (true, [character]) => Some(u64::from(*character)),
                        (true, _) => None,
                        (false, digits) => read_unsigned(digits).ok(),
                    };
                    schema.values.iter().find(|value| Some(value.raw) == raw).map(|value| value.name)
                }
                _ if field.tag == 35 => self.name(),
                _ => None,
            };
            let is_secret = SECRETS.contains(&field.tag);
            let value = if is_secret { b"***" } else { field.value };
            show(Shown { tag: field.tag, name, value: &String::from_utf8_lossy(value), meaning });
        }
        None
    }

    /// Writes the fields as `ClOrdID(11)=A1 Side(54)=1 Buy`, each after `between`.
    pub fn write_text(&self, out: &mut String, between: &str) {
        let fault = self.each(|field| {
            out.push_str(between);
            let value = field.value.escape_debug();
            let _infallible = match field.name {
                Some(name) => write!(out, "{name}({})={value}", field.tag),
                None => write!(out, "{}={value}", field.tag),
            };
            if let Some(meaning) = field.meaning {
                let _infallible = write!(out, " {meaning}");
            }
        });
        if let Some(fault) = fault {
            let _infallible = write!(out, "{between}({fault})");
        }
    }

    /// Writes the fields as an array: `[{"tag":54,"name":"Side","value":"1","meaning":"Buy"}]`. A tag may occur more than once.
    pub fn write_json(&self, out: &mut String) {
        let quote = |text: &str| serde_json::to_string(text).unwrap_or_default();
        out.push('[');
        let mut between = "";
        let fault = self.each(|field| {
            let _infallible = write!(out, "{between}{{\"tag\":{}", field.tag);
            between = ",";
            if let Some(name) = field.name {
                let _infallible = write!(out, ",\"name\":\"{name}\"");
            }
            let _infallible = write!(out, ",\"value\":{}", quote(field.value));
            if let Some(meaning) = field.meaning {
                let _infallible = write!(out, ",\"meaning\":\"{meaning}\"");
            }
            out.push('}');
        });
        out.push(']');
        if let Some(fault) = fault {
            let _infallible = write!(out, ",\"error\":{}", quote(&fault));
        }
    }
}

/// A field to be shown.
struct Shown<'a> {
    tag: u32,
    name: Option<&'static str>,
    value: &'a str,
    meaning: Option<&'static str>,
}

/// Why a part of a log or stream is not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FixFault {
    /// The bytes are garbled.
    Garbled(Garbled),
    /// The line ends inside a message.
    Cut,
    /// The line is longer than [`LONGEST_BYTES`].
    LongLine,
}

impl fmt::Display for FixFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Garbled(why) => write!(f, "garbled FIX: {why}"),
            Self::Cut => f.write_str("garbled FIX: the line ends inside a message"),
            Self::LongLine => write!(f, "a line of more than {LONGEST_BYTES} bytes"),
        }
    }
}

/// Reads a log file line by line.
#[derive(Debug)]
pub struct LogReader {
    source: ByteSource,
    /// Messages and garbled parts so far.
    pub(crate) number: u64,
    /// SendingTime of the last message.
    pub(crate) last: Nanos,
    line: Vec<u8>,
}

/// Whether a file with this beginning is a log: its first bytes are text, and one of its lines contains the start of a message.
#[must_use]
pub fn is_log(start: &[u8]) -> bool {
    let is_text = start.iter().all(|byte| matches!(*byte, SOH | b'\t' | b'\r' | b'\n' | b' '..));
    is_text && start.split(|byte| *byte == b'\n').any(|line| message_at(line).is_some())
}

/// Returns where a message starts in a line, and the separator of its fields.
fn message_at(line: &[u8]) -> Option<(usize, &'static [u8])> {
    let start = line.windows(FIX_START.len()).position(|window| window == FIX_START)?;
    let behind = line.get(start + FIX_START.len()..)?;
    let end = behind.iter().take(10).position(|byte| matches!(*byte, SOH | b'|' | b'^'))?;
    let rest = behind.get(end..)?;
    let separators: [&'static [u8]; 3] = [&[SOH], b"|", b"^A"];
    let separator = separators.into_iter().find(|separator| rest.starts_with(separator))?;
    rest.get(separator.len()..)?.starts_with(b"9=").then_some((start, separator))
}

impl LogReader {
    /// Reads the lines of `source`.
    #[must_use]
    pub const fn new(source: ByteSource) -> Self {
        Self { source, number: 0, last: Nanos(0), line: Vec::new() }
    }

    /// Returns the underlying byte source.
    #[must_use]
    pub const fn source(&self) -> &ByteSource {
        &self.source
    }

    /// Returns the underlying byte source.
    pub(crate) const fn source_mut(&mut self) -> &mut ByteSource {
        &mut self.source
    }

    /// Reads a line, and calls `show` with each message in it (with SOHs), its offset in the file, and, if it is not a message, why.
    /// Returns `false` at the end of the file. Lines without a message are skipped.
    pub(crate) fn next_line(&mut self, mut show: impl FnMut(u64, &[u8], Option<FixFault>)) -> bool {
        let offset = self.source.position();
        let mut wanted = 4_096;
        let (length, is_whole) = loop {
            let bytes = self.source.fill(wanted);
            match bytes.iter().position(|byte| *byte == b'\n') {
                Some(end) => break (end + 1, true),
                None if bytes.len() < wanted => break (bytes.len(), true),
                None if wanted >= LONGEST_BYTES => break (bytes.len(), false),
                None => wanted = (wanted * 4).min(LONGEST_BYTES),
            }
        };
        if length == 0 {
            return false;
        }
        self.line.clear();
        let line = self.source.take(length);
        let line = line.trim_ascii_end();
        if !is_whole {
            show(offset, line, Some(FixFault::LongLine));
            return true;
        }
        let Some((start, separator)) = message_at(line) else { return true };
        let text = line.get(start..).unwrap_or_default();
        let mut rest = text;
        // If the separators have two characters, offsets after the first field refer to the converted text.
        while let Some((byte, after)) = rest.split_first() {
            if let Some(after) = rest.strip_prefix(separator) {
                self.line.push(SOH);
                rest = after;
            } else {
                self.line.push(*byte);
                rest = after;
            }
        }
        // Some logs omit the last separator.
        if self.line.last() != Some(&SOH) {
            self.line.push(SOH);
        }
        let (base, mut used) = (offset + start as u64, 0);
        while let Some(rest) = self.line.get(used..).filter(|rest| !rest.is_empty()) {
            let (length, fault) = match next_message(rest, LONGEST_BYTES) {
                Framing::Message { length } => (length, None),
                Framing::Garbled { length, why } => (length, Some(FixFault::Garbled(why))),
                Framing::Incomplete | Framing::WrongLength => (rest.len(), Some(FixFault::Cut)),
            };
            let bytes = rest.get(..length).unwrap_or_default();
            if fault.is_none()
                && let Some(time_ns) = field(bytes, 52).and_then(|value| read_timestamp(value).ok())
            {
                self.last = Nanos(time_ns);
            }
            show(base + used as u64, bytes, fault);
            used += length;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// A message whose fields from 35 on are `body`; `|` is SOH.
    pub(crate) fn message(body: &str) -> String {
        let body = body.replace('|', "\x01");
        let head = format!("8=FIX.4.4\x019={}\x01{body}", body.len());
        let sum = head.bytes().fold(0u8, u8::wrapping_add);
        format!("{head}10={sum:03}\x01")
    }

    const LOGON: &str =
        "35=A|49=A|56=B|34=1|52=20240301-09:30:00.000|98=0|108=30|553=me|554=secret|925=other|";
    const ORDER: &str =
        "35=D|49=A|56=B|34=2|52=20240301-09:30:01.000|11=X|54=1|60=20240301-09:30:01.000|40=2|9999=y|";

    fn read(log: &str) -> Vec<(u64, Result<String, String>)> {
        assert!(is_log(log.as_bytes()), "{log}");
        let mut reader = LogReader::new(ByteSource::from_bytes("log", log.as_bytes().to_vec()));
        let mut found = Vec::new();
        while reader.next_line(|offset, bytes, fault| {
            let channel = ChannelIdentity::File { file: 0 };
            let mut text = String::new();
            FixMessage { bytes, channel, addresses: None, vlan: None }.write_text(&mut text, " ");
            found.push((offset, fault.map_or(Ok(text), |fault| Err(fault.to_string()))));
        }) {}
        found
    }

    #[test]
    fn a_log_is_read_with_each_separator_and_prefix() {
        let (logon, order) = (message(LOGON), message(ORDER));
        let raw = format!("{logon}\n{order}\n");
        let expected: Vec<_> = read(&raw).into_iter().map(|(_, text)| text.unwrap()).collect();
        assert!(expected[1].contains(" Side(54)=1 Buy ") && expected[1].contains(" 9999=y "), "{expected:?}");
        for separator in ["\x01", "|", "^A"] {
            let log = format!(
                "# a comment\n20240301-09:30:00.123 : {logon}\r\n<20240301-09:30:01, FIX.4.4:A->B, incoming>\n  ({order})\n"
            );
            let log = log.replace(")\n", "\n").replace('\x01', separator);
            let found = read(&log);
            assert_eq!(found.len(), 2, "{found:?}");
            assert_eq!(found[0].0, 36);
            let texts: Vec<_> = found.into_iter().map(|(_, text)| text.unwrap()).collect();
            assert_eq!(texts, expected);
        }
    }

    #[test]
    fn passwords_are_not_shown() {
        let bytes = message(LOGON);
        let channel = ChannelIdentity::File { file: 0 };
        let shown = FixMessage { bytes: bytes.as_bytes(), channel, addresses: None, vlan: None };
        let (mut text, mut json) = (String::new(), String::new());
        shown.write_text(&mut text, " ");
        shown.write_json(&mut json);
        for shown in [&text, &json] {
            assert!(!shown.contains("secret") && !shown.contains("other"), "{shown}");
            assert!(shown.contains("Username") && shown.contains("***"), "{shown}");
        }
        let fields: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert!(without_secrets(&bytes.as_bytes()[5..]).is_empty());
        assert_eq!(without_secrets(b"55=4|"), b"55=4|");
        assert_eq!(fields[2]["meaning"], "Logon");
        assert_eq!(fields[3]["name"], "SenderCompID");
    }

    #[test]
    fn garbled_parts_of_a_log_are_named_with_their_offset() {
        let order = message(ORDER);
        let log = format!("{order}\nx {}\n{}\n", order.replace("11=X", "11=Z"), &order[..60]);
        let found = read(&log);
        assert!(found[0].1.is_ok());
        assert_eq!(found[1].0, order.len() as u64 + 3);
        assert!(found[1].1.as_ref().unwrap_err().contains("the checksum is not"), "{found:?}");
        assert!(found[2].1.as_ref().unwrap_err().contains("ends inside a message"), "{found:?}");
        assert_eq!(found.len(), 3);
        assert!(!is_log(b"8=FIX without fields\n") && !is_log(b"\0\0\x018=FIX.4.4|9=1|"));
    }
}
