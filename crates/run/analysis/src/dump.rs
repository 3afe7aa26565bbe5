//! The dump: every message of a capture, field by field, as text or as one JSON object per line.
//!
//! A dump uses only the schemas, so it supports every declared protocol. It shows an unreadable part with its location and the
//! reason, and continues after it.
//!
//! # JSON
//! One object per message: `file`, `packet` (in a file without packets, the message's number), `offset` in the file, `time`
//! (ISO 8601 with nanoseconds, `null` in a file without packets), `protocol`, `transport` (an object: protocol, message,
//! addresses, the message's `sequence`, and the header's `fields`; `null` in a file without packets), `message` and `fields`.
//! Integers and times are numbers as on the wire, decimals are strings with all their places (`"80.5200"`), enums are the names
//! of their values, flag sets are arrays of names. An error is in `error`, with the bytes in hexadecimal if no field could be
//! read. A packet without messages (a heartbeat, a login) is an object for the transport's own message.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::ops::ControlFlow;

use tapeworks_market::Symbol;
use tapeworks_time::Nanos;
use tapeworks_wire::appendages;
use tapeworks_wire::schema::{Decoded, FieldValue, Value};

use crate::analyser::{self, Ended, Header, Item, Message, Order, Place, Progress, Trouble, Visitor};
use crate::fix::FixMessage;
use crate::input::Input;
use crate::paint::Paint;
use crate::sessions::ReadAs;
use crate::subjects::{Subjects, is_wanted};
use tapeworks_time::clock::iso_time;

/// The output form of a dump.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Form {
    /// A line per packet and a line per message.
    #[default]
    Lines,
    /// A line per packet, per message and per field, with the bytes.
    Fields,
    /// A JSON object per message and line.
    Json,
}

/// The options of a dump.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The protocol to use instead of recognizing it.
    pub read_as: Option<ReadAs>,
    /// The output form.
    pub form: Form,
    /// Maximum number of messages to write.
    pub limit: Option<u64>,
    /// The symbols to include, if limited. Messages without a symbol are then left out.
    pub symbols: Option<HashSet<Symbol>>,
    /// The messages to include, by schema name in lower case; empty for all.
    pub messages: HashSet<String>,
    /// Colours.
    pub paint: Paint,
}

/// The result of a dump.
#[derive(Debug, Default)]
pub struct Dumped {
    /// Messages written.
    pub messages: u64,
    /// Messages and packets that could not be read completely.
    pub problems: u64,
    /// Sound packets that are neither UDP nor TCP over IP, and heartbeats of an unknown protocol.
    pub not_ours: u64,
    /// The requested symbols that no message was about, in order.
    pub unseen_symbols: Vec<Symbol>,
    /// How the walk ended.
    pub ended: Ended,
}

/// Dumps `inputs`, one after the other, to `out`. `observe` is called from time to time and may end the dump.
///
/// # Errors
/// Errors of `out`.
pub fn dump(
    inputs: &mut [Input],
    options: &Options,
    out: &mut dyn Write,
    observe: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> io::Result<Dumped> {
    let files = inputs.iter().map(|input| input.name.clone()).collect();
    let mut dumper = Dumper {
        options,
        out,
        observe,
        files,
        subjects: Subjects::default(),
        line: String::new(),
        header: String::new(),
        file: 0,
        last_packet: None,
        dumped: Dumped::default(),
        unseen: options.symbols.clone().unwrap_or_default(),
        error: None,
    };
    let ended = analyser::walk(inputs, Order::ByFile, options.read_as, &mut dumper);
    let Dumper { dumped, unseen, error, .. } = dumper;
    // After an early end, the remaining contents are unknown.
    let mut unseen_symbols: Vec<Symbol> = unseen.into_iter().filter(|_| !ended.is_stopped).collect();
    unseen_symbols.sort_unstable_by(|one, other| one.as_str().cmp(other.as_str()));
    match error {
        Some(error) => Err(error),
        None => Ok(Dumped { ended, unseen_symbols, ..dumped }),
    }
}

struct Dumper<'d> {
    options: &'d Options,
    out: &'d mut dyn Write,
    observe: &'d mut dyn FnMut(Progress) -> ControlFlow<()>,
    files: Vec<String>,
    subjects: Subjects,
    line: String,
    /// The transport header for the following messages: as JSON without its closing brace, or as a line.
    header: String,
    /// The file that `header` belongs to.
    file: u16,
    /// The packet whose header has been written.
    last_packet: Option<(u16, u64, u64)>,
    dumped: Dumped,
    /// Requested symbols that no message has been about so far.
    unseen: HashSet<Symbol>,
    error: Option<io::Error>,
}

/// Appends a JSON string.
fn quote(out: &mut String, text: &str) {
    // A string can always be serialized.
    out.push_str(&serde_json::to_string(text).unwrap_or_default());
}

fn hex(out: &mut String, bytes: &[u8]) {
    for byte in bytes {
        let _infallible = write!(out, "{byte:02x}");
    }
}

/// Visits a header's fields, except the messages themselves.
fn header_fields(decoded: &Decoded<'_>, mut show: impl FnMut(FieldValue<'_>)) {
    decoded.for_each_field(|found| {
        if found.field.length > 0 {
            show(found);
        }
    });
}

impl Visitor for Dumper<'_> {
    fn visit(&mut self, place: &Place, item: Item<'_>) -> ControlFlow<()> {
        if self.options.limit.is_some_and(|limit| self.dumped.messages >= limit) {
            return ControlFlow::Break(());
        }
        self.line.clear();
        if self.file != place.file {
            self.file = place.file;
            self.header.clear();
        }
        match item {
            Item::Header(header) => self.header(place, &header),
            Item::Message(message) => self.message(place, &message),
            Item::Fix(message) => self.fix(place, &message),
            Item::Trouble(trouble, bytes) => self.trouble(place, trouble, bytes),
        }
        if self.line.is_empty() {
            return ControlFlow::Continue(());
        }
        match self.out.write_all(self.line.as_bytes()) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                self.error = Some(error);
                ControlFlow::Break(())
            }
        }
    }

    fn progress(&mut self, progress: Progress) -> ControlFlow<()> {
        (self.observe)(progress)
    }
}

impl Dumper<'_> {
    /// Whether to show a message of this name and symbol.
    fn wants(&mut self, name: Option<&str>, symbol: Option<Symbol>) -> bool {
        if let Some(symbol) = symbol.filter(|_| !self.unseen.is_empty()) {
            self.unseen.remove(&symbol);
        }
        let names = &self.options.messages;
        let is_named =
            names.is_empty() || name.is_some_and(|name| names.contains(&name.to_ascii_lowercase()));
        is_named && is_wanted(self.options.symbols.as_ref(), symbol)
    }

    fn header(&mut self, place: &Place, header: &Header<'_>) {
        let is_alone = header.messages == 0;
        let is_bad = header.decoded.error.is_some();
        self.dumped.problems += u64::from(is_bad);
        let is_shown = (is_alone && self.wants(header.decoded.name(), None)) || is_bad;
        self.header.clear();
        if self.options.form == Form::Json {
            let mut text = std::mem::take(&mut self.header);
            json_header(&mut text, header, is_alone);
            self.header = text;
            if is_shown {
                self.json_start(place);
                let fields = std::mem::take(&mut self.header);
                self.line.push_str(&fields);
                if let Some(error) = header.decoded.error {
                    self.json_error(&error.to_string(), header.decoded.bytes);
                }
                self.line.push_str("}\n");
            }
        } else {
            let mut text = std::mem::take(&mut self.header);
            self.text_header(&mut text, place, header);
            self.header = text;
            if is_shown {
                self.show_header(place);
                if let Some(error) = header.decoded.error {
                    self.text_error(place, &error.to_string(), header.decoded.bytes);
                }
            }
        }
        self.dumped.messages += u64::from(is_shown);
    }

    fn message(&mut self, place: &Place, message: &Message<'_>) {
        let symbol = self.subjects.symbol(message);
        let error = message.decoded.error;
        // The reason for a truncated message follows as its packet's trouble.
        let is_appendage_cut =
            || appendages(message.schema, &message.decoded).iter().any(|(_, one)| one.error.is_some());
        self.dumped.problems += u64::from(!message.is_cut && (error.is_some() || is_appendage_cut()));
        if !self.wants(message.decoded.name(), symbol) {
            return;
        }
        self.dumped.messages += 1;
        if self.options.form == Form::Json {
            self.json_message(place, message);
        } else {
            self.show_header(place);
            self.text_message(place, message);
        }
    }

    /// Writes a FIX message: its name, and every field with its name, its tag, and the meaning of a listed value.
    fn fix(&mut self, place: &Place, message: &FixMessage<'_>) {
        self.header.clear();
        if !self.wants(message.name(), message.symbol()) {
            return;
        }
        self.dumped.messages += 1;
        if self.options.form == Form::Json {
            self.json_start(place);
            self.line.push_str(",\"protocol\":");
            quote(&mut self.line, FixMessage::schema().name);
            self.line.push_str(",\"transport\":");
            match message.addresses {
                Some((source, destination)) => {
                    let _infallible =
                        write!(self.line, "{{\"source\":\"{source}\",\"destination\":\"{destination}\"");
                    if let Some(vlan) = message.vlan {
                        let _infallible = write!(self.line, ",\"vlan\":{vlan}");
                    }
                    self.line.push('}');
                }
                None => self.line.push_str("null"),
            }
            self.line.push_str(",\"message\":");
            match message.name() {
                Some(name) => quote(&mut self.line, name),
                None => self.line.push_str("null"),
            }
            self.line.push_str(",\"fields\":");
            message.write_json(&mut self.line);
            self.line.push_str("}\n");
            return;
        }
        let paint = &self.options.paint;
        let name = paint.strong(message.name().unwrap_or("unknown message"));
        if message.addresses.is_none() {
            let _infallible = write!(self.line, "{:<10} {name}", place.offset);
        } else {
            if self.is_first_of_packet(place) {
                self.text_place(place);
                if let Some((source, destination)) = message.addresses {
                    let _infallible = write!(self.line, "  {source} > {destination}");
                }
                if let Some(vlan) = message.vlan {
                    let _infallible = write!(self.line, "  VLAN {vlan}");
                }
                let title = self.options.paint.header(FixMessage::schema().title);
                let _infallible = writeln!(self.line, "\n  {title}");
                self.last_packet = Some((place.file, place.number, place.offset));
            }
            let _infallible = write!(self.line, "    {name}");
        }
        let between = if self.options.form == Form::Fields { "\n      " } else { "  " };
        message.write_text(&mut self.line, between);
        self.line.push('\n');
    }

    fn trouble(&mut self, place: &Place, trouble: &Trouble, bytes: &[u8]) {
        if trouble.is_problem() {
            self.dumped.problems += 1;
        } else {
            self.dumped.not_ours += 1;
        }
        if self.options.symbols.is_some() || !self.options.messages.is_empty() {
            return;
        }
        let key = if trouble.is_problem() { "error" } else { "passed_over" };
        if self.options.form == Form::Json {
            self.json_start(place);
            if matches!(trouble, Trouble::UnknownApplication { .. }) && !self.header.is_empty() {
                self.line.push_str(",\"protocol\":null,\"transport\":");
                self.line.push_str(&self.header);
                self.line.push('}');
            }
            self.line.push_str(",\"message\":null,\"");
            self.line.push_str(key);
            self.line.push_str("\":");
            quote(&mut self.line, &trouble.to_string());
            if !bytes.is_empty() && !matches!(trouble, Trouble::NotOurs(_)) {
                self.line.push_str(",\"bytes\":\"");
                hex(&mut self.line, bytes);
                self.line.push('"');
            }
            self.line.push_str("}\n");
        } else {
            if self.is_first_of_packet(place) && matches!(trouble, Trouble::UnknownApplication { .. }) {
                self.show_header(place);
            } else if self
                .last_packet
                .is_none_or(|(file, number, _)| (file, number) != (place.file, place.number))
            {
                self.text_place(place);
                self.line.push('\n');
                self.last_packet = Some((place.file, place.number, place.offset));
            }
            let shown = if trouble.is_problem() { bytes } else { &[] };
            self.text_error(place, &trouble.to_string(), shown);
        }
    }

    fn json_start(&mut self, place: &Place) {
        let line = &mut self.line;
        line.push_str("{\"file\":");
        quote(line, self.files.get(usize::from(place.file)).map_or("", |name| name));
        let _infallible = write!(line, ",\"packet\":{},\"offset\":{},\"time\":", place.number, place.offset);
        match place.time {
            Some(time) => {
                line.push('"');
                iso_time(line, time);
                line.push('"');
            }
            None => line.push_str("null"),
        }
    }

    fn json_error(&mut self, error: &str, bytes: &[u8]) {
        self.line.push_str(",\"error\":");
        quote(&mut self.line, error);
        self.line.push_str(",\"bytes\":\"");
        hex(&mut self.line, bytes);
        self.line.push('"');
    }

    fn json_message(&mut self, place: &Place, message: &Message<'_>) {
        self.json_start(place);
        self.line.push_str(",\"protocol\":");
        quote(&mut self.line, message.schema.name);
        self.line.push_str(",\"transport\":");
        if self.header.is_empty() {
            self.line.push_str("null");
        } else {
            self.line.push_str(&self.header);
            if let Some(sequence) = message.sequence {
                let _infallible = write!(self.line, ",\"sequence\":{sequence}");
            }
            self.line.push('}');
        }
        self.line.push_str(",\"message\":");
        match message.decoded.name() {
            Some(name) => quote(&mut self.line, name),
            None => self.line.push_str("null"),
        }
        if message.decoded.structure.is_some() {
            self.line.push_str(",\"fields\":");
            message.decoded.write_json(&mut self.line);
            self.json_appendages(message);
        }
        if let Some(error) = message.decoded.error {
            self.json_error(&error.to_string(), message.decoded.bytes);
        } else if message.decoded.trailing > 0 {
            let start = message.decoded.bytes.len() - message.decoded.trailing;
            self.line.push_str(",\"trailing\":\"");
            hex(&mut self.line, message.decoded.bytes.get(start..).unwrap_or_default());
            self.line.push('"');
        }
        self.line.push_str("}\n");
    }

    /// Writes what follows a SIP quote.
    fn json_appendages(&mut self, message: &Message<'_>) {
        let mut separator = ",\"appendages\":[";
        let found = appendages(message.schema, &message.decoded);
        for (_, appendage) in &found {
            self.line.push_str(separator);
            separator = ",";
            self.line.push_str("{\"appendage\":");
            quote(&mut self.line, appendage.name().unwrap_or_default());
            self.line.push_str(",\"fields\":");
            appendage.write_json(&mut self.line);
            if let Some(error) = appendage.error {
                self.json_error(&error.to_string(), appendage.bytes);
            }
            self.line.push('}');
        }
        self.line.push_str(if found.is_empty() { "" } else { "]" });
    }

    fn is_first_of_packet(&self, place: &Place) -> bool {
        self.last_packet.is_none_or(|last| (last.0, last.1) != (place.file, place.number))
    }

    /// Writes the packet's header line, unless it has already been written.
    fn show_header(&mut self, place: &Place) {
        if !self.header.is_empty() {
            let header = std::mem::take(&mut self.header);
            self.line.push_str(&header);
            self.last_packet = Some((place.file, place.number, place.offset));
        }
    }

    fn text_place(&mut self, place: &Place) {
        let mut text = std::mem::take(&mut self.line);
        self.write_place(&mut text, place);
        self.line = text;
    }

    fn write_place(&self, text: &mut String, place: &Place) {
        let paint = &self.options.paint;
        if self.files.len() > 1 {
            let _infallible =
                write!(text, "{}  ", self.files.get(usize::from(place.file)).map_or("", |name| name));
        }
        let number = match place.time {
            Some(_) => format!("packet {}", place.number),
            None => format!("message {}", place.number),
        };
        text.push_str(&paint.strong(&number));
        let _infallible = write!(text, "  offset {}", place.offset);
        if let Some(time) = place.time {
            text.push_str("  ");
            iso_time(text, Nanos(time.0));
        }
    }

    fn text_header(&self, text: &mut String, place: &Place, header: &Header<'_>) {
        let paint = &self.options.paint;
        self.write_place(text, place);
        if let Some((source, destination)) = header.addresses {
            let _infallible = write!(text, "  {source} > {destination}");
        }
        if let Some(vlan) = header.vlan {
            let _infallible = write!(text, "  VLAN {vlan}");
        }
        let name = header.decoded.structure.map_or("unknown packet", |structure| structure.title);
        let _infallible = write!(text, "\n  {}", paint.header(&format!("{}  {name}", header.schema.title)));
        header_fields(&header.decoded, |found| self.text_field(text, &found));
        text.push('\n');
    }

    fn text_field(&self, text: &mut String, found: &FieldValue<'_>) {
        let paint = &self.options.paint;
        let index = found.entry.map(|(group, index)| format!("{}[{index}].", group.name)).unwrap_or_default();
        let name = format!("{index}{}", found.field.name);
        if self.options.form == Form::Fields {
            let mut bytes = String::new();
            hex(&mut bytes, found.bytes);
            let place = format!("{:>4}  {bytes:<20}", found.offset);
            let _infallible = write!(text, "\n      {}  {name:<34} {}", paint.faint(&place), found.value);
            // The raw value.
            match found.value {
                Value::Enum { bytes, schema, .. } if schema.text => {
                    let raw = String::from_utf8_lossy(bytes).into_owned();
                    let _infallible = write!(text, " {}", paint.faint(&format!("{raw:?}")));
                }
                Value::Enum { raw, .. } | Value::Flags { raw, .. } => {
                    let _infallible = write!(text, " {}", paint.faint(&format!("{raw:#x}")));
                }
                _ => {}
            }
        } else {
            let _infallible = write!(text, "  {}{}", paint.faint(&format!("{name}=")), found.value);
        }
    }

    fn text_message(&mut self, place: &Place, message: &Message<'_>) {
        let mut text = std::mem::take(&mut self.line);
        let paint = &self.options.paint;
        let name = message.decoded.structure.map_or("unknown message", |structure| structure.title);
        if self.header.is_empty() && message.sequence.is_none() && place.time.is_none() {
            let _infallible = write!(text, "{:<10} ", place.offset);
        } else {
            let sequence = message.sequence.map(|sequence| format!("#{sequence} ")).unwrap_or_default();
            let _infallible = write!(text, "    {sequence}");
        }
        text.push_str(&paint.strong(name));
        message.decoded.for_each_field(|found| self.text_field(&mut text, &found));
        text.push('\n');
        let mut cut = None;
        for (start, appendage) in appendages(message.schema, &message.decoded) {
            let title = appendage.structure.map_or("", |structure| structure.title);
            let _infallible = write!(text, "      + {}", paint.strong(title));
            appendage.for_each_field(|found| {
                self.text_field(&mut text, &FieldValue { offset: start + found.offset, ..found });
            });
            text.push('\n');
            cut = cut.or(appendage.error.map(|error| (error, appendage.bytes)));
        }
        if message.decoded.trailing > 0 && message.decoded.error.is_none() {
            let start = message.decoded.bytes.len() - message.decoded.trailing;
            text.push_str("      and bytes of a later version: ");
            hex(&mut text, message.decoded.bytes.get(start..).unwrap_or_default());
            text.push('\n');
        }
        self.line = text;
        if let Some(error) = message.decoded.error {
            self.text_error(place, &error.to_string(), message.decoded.bytes);
        }
        if let Some((error, bytes)) = cut {
            self.text_error(place, &error.to_string(), bytes);
        }
    }

    fn text_error(&mut self, place: &Place, error: &str, bytes: &[u8]) {
        /// Maximum bytes shown of a faulty message.
        const SHOWN_BYTES: usize = 64;
        let text = format!("! offset {}: {error}", place.offset);
        let _infallible = writeln!(self.line, "    {}", self.options.paint.bad(&text));
        if !bytes.is_empty() {
            self.line.push_str("      ");
            hex(&mut self.line, bytes.get(..SHOWN_BYTES).unwrap_or(bytes));
            if bytes.len() > SHOWN_BYTES {
                let _infallible = write!(self.line, ".. ({} bytes)", bytes.len());
            }
            self.line.push('\n');
        }
    }
}

/// Writes the header's object without its end; for a packet without messages, its members from `protocol` on.
fn json_header(text: &mut String, header: &Header<'_>, is_alone: bool) {
    text.push_str(if is_alone { ",\"protocol\":" } else { "{\"protocol\":" });
    quote(text, header.schema.name);
    let addresses = |text: &mut String| {
        if let Some((source, destination)) = header.addresses {
            let _infallible = write!(text, "\"source\":\"{source}\",\"destination\":\"{destination}\"");
        }
        if let Some(vlan) = header.vlan {
            let _infallible = write!(text, ",\"vlan\":{vlan}");
        }
    };
    if is_alone {
        text.push_str(",\"transport\":");
        if header.addresses.is_some() {
            text.push('{');
            addresses(text);
            text.push('}');
        } else {
            text.push_str("null");
        }
    }
    text.push_str(",\"message\":");
    match header.decoded.name() {
        Some(name) => quote(text, name),
        None => text.push_str("null"),
    }
    if !is_alone && header.addresses.is_some() {
        text.push(',');
        addresses(text);
    }
    text.push_str(",\"fields\":{");
    let mut separator = "";
    header_fields(&header.decoded, |found| {
        text.push_str(separator);
        separator = ",";
        quote(text, found.field.name);
        text.push(':');
        found.value.write_json(text);
    });
    text.push('}');
}
