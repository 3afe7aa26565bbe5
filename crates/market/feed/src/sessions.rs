//! Sessions on TCP streams that are recognised by their own messages: Millennium's order entry, and the retransmission and
//! snapshot requests of Cboe, Millennium and MEMX. They are declared in the registry. SoupBinTCP and FIX are recognised
//! elsewhere.
//!
//! A stream belongs to a session if it begins with messages that only this session has: of known types and declared lengths, with
//! listed values and printable text. Cboe's and Millennium's sessions share their framing and some messages. Such a stream is
//! attributed to the session of its other direction, or to the only one that still fits after its next messages; otherwise it is
//! in doubt, and the user names the protocol. Heartbeats decide nothing.
//!
//! Cost: the start of a stream is compared with each session of the registry, once per segment until the session is known. The
//! comparison stops after 1,024 bytes.

use tapeworks_session::{Transport as PacketTransport, TransportKind, for_transport};
use tapeworks_wire::framing::{Blocks, LengthPrefix};
use tapeworks_wire::memx::tcp;
use tapeworks_wire::nasdaq::soupbintcp;
use tapeworks_wire::schema::{Decoded, Kind, LengthRule, Schema, Structure, Value};
use tapeworks_wire::{Protocol, Role, StreamFraming, Transport, protocol_by_name, protocols};

use crate::table::{Application, FEEDS};

/// Maximum number of bytes to wait for before a stream's protocol is known.
const LONGEST_START: usize = 1_024;

/// Maximum size of a packet with messages of the feed to wait for, in bytes.
const LONGEST_PACKET: usize = 2_048;

/// How the packets of a session carry messages.
#[derive(Clone, Copy, Debug)]
pub enum Form {
    /// Each packet is a message that begins with this header.
    Message(&'static Structure),
    /// Each packet is a message. Some of them carry a message of the feed.
    Carrier {
        /// Names of the session's messages that carry one of the feed, each with the field that holds it.
        payloads: &'static [(&'static str, &'static str)],
        /// The feed's messages.
        market: &'static Schema,
    },
    /// Packets of this transport carry messages of the session and of the feed.
    Packets {
        /// The transport.
        transport: TransportKind,
        /// A field of the header, and its value in packets with the session's own messages.
        selector: (&'static str, u64),
        /// The feed's messages.
        market: &'static Schema,
    },
}

/// A session on a TCP stream.
#[derive(Clone, Copy, Debug)]
pub struct Session {
    /// The session's own messages.
    pub schema: &'static Schema,
    /// Where a packet has its length.
    pub framing: StreamFraming,
    /// How its packets carry messages.
    pub form: Form,
}

impl PartialEq for Session {
    fn eq(&self, other: &Self) -> bool {
        self.schema.name == other.schema.name
    }
}

impl Eq for Session {}

/// Returns every session.
pub fn sessions() -> impl Iterator<Item = Session> {
    protocols().iter().copied().filter_map(Session::of)
}

/// Returns whether a transport carries an application.
fn is_carried(protocol: &Protocol, transport: &Schema) -> bool {
    match protocol.role {
        Role::Application(carriers) => carriers.iter().any(|one| one.transport.name == transport.name),
        Role::Transport(_) | Role::Stream { .. } => false,
    }
}

/// Returns the feed that a transport carries.
fn feed_of(transport: &Schema) -> Option<Application> {
    let is_of = |name: &str| protocol_by_name(name).is_some_and(|protocol| is_carried(protocol, transport));
    FEEDS.iter().find(|feed| is_of(feed.schema.name)).map(|feed| feed.application)
}

/// The evidence of a packet at the start of a stream.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Says {
    /// It has messages of the session.
    Yes,
    /// It decides nothing: a heartbeat.
    Nothing,
    /// It has a message of the feed that the declaration does not cover, or not in this form.
    Unread,
    No,
}

/// Whether a stream may belong to a session.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fit {
    Yes,
    /// It begins with messages of the session, but a message of the feed after them cannot be read.
    Begins,
    /// More bytes are needed.
    Cut,
    No,
}

/// The outcome of recognising a stream.
#[derive(Debug)]
pub enum Start {
    /// The stream belongs to this session.
    Found(Session),
    /// More bytes are needed.
    Wait,
    /// It may belong to any of these sessions.
    Doubt(Vec<&'static str>),
    /// It belongs to none.
    No,
}

/// Recognises the session of a stream from its start. `peer` is the session of the other direction, or the one that the user
/// expects. After `is_end` no more bytes come.
pub fn start(stream: &[u8], peer: Option<Session>, is_end: bool) -> Start {
    let may_wait = !is_end && stream.len() <= LONGEST_START;
    let (mut fitting, mut beginning, mut is_cut) = (Vec::new(), Vec::new(), false);
    for session in sessions() {
        match session.fit(stream) {
            Fit::Yes => fitting.push(session),
            Fit::Begins => beginning.push(session),
            Fit::Cut => is_cut = true,
            Fit::No => {}
        }
    }
    if let Some(peer) = peer {
        match peer.goes_on(stream) {
            Fit::Yes | Fit::Begins => return Start::Found(peer),
            Fit::Cut => is_cut = true,
            Fit::No => {}
        }
    }
    match fitting.as_slice() {
        [one] => return Start::Found(*one),
        [] if is_cut && may_wait => return Start::Wait,
        // A session with an unreadable message counts only if no session fits completely.
        [] => fitting = beginning,
        _ => {}
    }
    match fitting.as_slice() {
        [] => Start::No,
        [one] => Start::Found(*one),
        _ if may_wait => Start::Wait,
        several => Start::Doubt(several.iter().map(|session| session.schema.name).collect()),
    }
}

impl Session {
    /// Returns the session of this name or alias.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        protocol_by_name(name).and_then(Self::of)
    }

    /// Returns the name of the session's protocol.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.schema.name
    }

    /// Returns whether a user may have to name the session. One that shares its messages with no other is always recognised.
    #[must_use]
    pub const fn may_be_named(&self) -> bool {
        !matches!(self.form, Form::Message(_))
    }

    /// Returns the session that a protocol of the registry declares.
    fn of(protocol: &'static Protocol) -> Option<Self> {
        let schema = protocol.schema;
        match protocol.role {
            Role::Stream { framing, header } => {
                Some(Self { schema, framing, form: Form::Message(schema.structure(header)?) })
            }
            Role::Transport(Transport::Stream { framing, payloads })
                if schema.name != soupbintcp::SCHEMA.name =>
            {
                let market = feed_of(schema)?.spec().schema;
                Some(Self { schema, framing, form: Form::Carrier { payloads, market } })
            }
            Role::Application(carriers) if Application::by_name(schema.name).is_none() => {
                carriers.iter().find_map(|carrier| {
                    let Role::Transport(Transport::Datagram { stream: Some(framing), .. }) =
                        protocol_by_name(carrier.transport.name)?.role
                    else {
                        return None;
                    };
                    let feed = feed_of(carrier.transport)?;
                    let (transport, market) = (feed.transport(), feed.spec().schema);
                    let form = Form::Packets { transport, selector: carrier.selector?, market };
                    Some(Self { schema, framing, form })
                })
            }
            Role::Transport(_) | Role::Application(_) => None,
        }
    }

    /// Returns the schema of the feed whose messages the session carries.
    #[must_use]
    pub const fn market_schema(&self) -> Option<&'static Schema> {
        match self.form {
            Form::Message(_) => None,
            Form::Carrier { market, .. } | Form::Packets { market, .. } => Some(market),
        }
    }

    /// Returns the schema of a message in a packet: the session's if it has the type, otherwise the feed's.
    pub fn schema_of(&self, message: &[u8]) -> &'static Schema {
        let is_own = self.schema.tag_of(message).is_some_and(|tag| self.schema.message(tag).is_some());
        if is_own { self.schema } else { self.market_schema().unwrap_or(self.schema) }
    }

    /// Returns the message of the feed inside a complete message of the session.
    pub fn payload<'a>(&self, packet: &'a [u8]) -> Option<&'a [u8]> {
        let Form::Carrier { payloads, .. } = self.form else { return None };
        let structure = self.schema.message(self.schema.tag_of(packet)?)?;
        let is_carrier = payloads.iter().any(|(name, _)| *name == structure.name);
        packet.get(structure.minimum_length..).filter(|_| is_carrier)
    }

    /// Returns whether a packet may start with these bytes, which may be incomplete.
    pub fn may_start(&self, bytes: &[u8]) -> bool {
        let is_length_sound = self.framing.message_bytes(bytes).is_none_or(|length| match self.form {
            Form::Packets { transport, .. } => {
                for_transport!(transport, T => length >= <T as PacketTransport>::HEADER_BYTES)
            }
            // A message with a wrong length is shown with its error.
            Form::Message(_) | Form::Carrier { .. } => true,
        });
        is_length_sound
            && self
                .schema
                .constant
                .is_none_or(|constant| bytes.get(constant.offset).is_none_or(|byte| *byte == constant.value))
    }

    /// Determines whether a stream begins with messages of this session.
    fn fit(&self, stream: &[u8]) -> Fit {
        let (mut rest, mut is_known) = (stream, false);
        while !rest.is_empty() {
            let length = self.framing.message_bytes(rest);
            let Some((packet, after)) = length.and_then(|length| rest.split_at_checked(length)) else {
                if !is_known && !self.may_come(rest, length) {
                    return Fit::No;
                }
                break;
            };
            match self.says(packet, is_known) {
                Says::Yes => is_known = true,
                Says::Nothing => {}
                Says::Unread if is_known => return Fit::Begins,
                Says::Unread | Says::No => return Fit::No,
            }
            // One message is enough, because no other session has it.
            if is_known && matches!(self.form, Form::Message(_)) {
                break;
            }
            rest = after;
        }
        if is_known { Fit::Yes } else { Fit::Cut }
    }

    /// Determines whether a stream that begins after the login may belong to this session: every message must belong to the
    /// session or the feed.
    fn goes_on(&self, stream: &[u8]) -> Fit {
        let (mut rest, mut is_shown) = (stream, false);
        while !rest.is_empty() {
            let length = self.framing.message_bytes(rest);
            let Some((packet, after)) = length.and_then(|length| rest.split_at_checked(length)) else {
                let is_short = length.is_none_or(|length| length <= LONGEST_PACKET);
                if !(is_shown || is_short && self.may_start(rest)) {
                    return Fit::No;
                }
                break;
            };
            match self.says(packet, true) {
                Says::Yes => is_shown = true,
                Says::Nothing => {}
                Says::Unread if is_shown => return Fit::Begins,
                Says::Unread | Says::No => return Fit::No,
            }
            rest = after;
        }
        if is_shown { Fit::Yes } else { Fit::Cut }
    }

    /// Returns whether an incomplete packet may belong to this session. `length` is the packet's full length, if known.
    fn may_come(&self, bytes: &[u8], length: Option<usize>) -> bool {
        if length.is_some_and(|length| length > LONGEST_START) || !self.may_start(bytes) {
            return false;
        }
        match self.form {
            Form::Message(_) | Form::Carrier { .. } => {
                let Some(tag) = self.schema.tag_of(bytes) else { return true };
                let is_exact = self.schema.length_rule == LengthRule::Exact || self.market_schema().is_some();
                self.schema.message(tag).is_some_and(|message| {
                    length.is_none_or(|length| {
                        length >= message.minimum_length
                            && (!is_exact || message.full_length.is_none_or(|full| length <= full))
                    })
                })
            }
            // The session's own packets have no sequence number.
            Form::Packets { .. } => bytes.iter().skip(3).take(5).all(|byte| *byte == 0),
        }
    }

    /// Returns the evidence of a complete packet. Once the session `is_known`, messages of the feed may come.
    fn says(&self, packet: &[u8], is_known: bool) -> Says {
        match self.form {
            Form::Message(_) => {
                let is_read = self.schema.decode(packet).error.is_none();
                if is_read { Says::Yes } else { Says::No }
            }
            Form::Carrier { market, .. } => match self.payload(packet) {
                Some(message) if market.decode(message).error.is_none() => Says::Yes,
                Some(_) => Says::Unread,
                None => self.says_message(packet),
            },
            Form::Packets { transport, selector, .. } => for_transport!(transport, T => {
                let Ok(found) = T::packet(packet) else { return Says::No };
                let is_own = found.header.first == 0 && is_selected(&T::fields(packet), selector);
                let length = packet.len().saturating_sub(found.header_bytes);
                self.says_messages(found.blocks, (found.header.count, length), is_own, is_known)
            }),
        }
    }

    /// Returns the evidence of a packet's messages, of which there must be `count`, filling `length` bytes.
    fn says_messages<Prefix: LengthPrefix>(
        &self,
        mut blocks: Blocks<'_, Prefix>,
        (count, length): (u64, usize),
        is_own: bool,
        is_known: bool,
    ) -> Says {
        let messages: Vec<&[u8]> = blocks.by_ref().map_while(Result::ok).collect();
        if messages.len() as u64 != count || blocks.offset() != length || !(is_own || is_known) {
            return Says::No;
        }
        let (mut says, mut is_known) = (Says::Nothing, is_known);
        for message in messages {
            let schema = self.schema_of(message);
            let is_own_message = schema.name == self.schema.name;
            let one = match schema.decode(message).error {
                _ if is_own_message && is_own => self.says_message(message),
                _ if is_own_message || !is_known => Says::No,
                None => Says::Yes,
                // The feed's schema does not cover this message yet.
                Some(_) => Says::Unread,
            };
            match one {
                Says::Yes => (says, is_known) = (Says::Yes, true),
                Says::Nothing => {}
                Says::Unread | Says::No => return one,
            }
        }
        says
    }

    /// Returns the evidence of a message of the session.
    fn says_message(&self, message: &[u8]) -> Says {
        let decoded = self.schema.decode(message);
        let Some(structure) = decoded.structure else { return Says::No };
        if decoded.error.is_some() || decoded.trailing > 0 || !is_plausible(&decoded) {
            return Says::No;
        }
        // A length alone decides nothing.
        if structure.fields.len() > 1 { Says::Yes } else { Says::Nothing }
    }
}

/// Returns whether a header's field has this value.
fn is_selected(header: &Decoded<'_>, (name, value): (&str, u64)) -> bool {
    let field = header.structure.and_then(|structure| structure.unsigned_field(name, header.bytes));
    field == Some(value)
}

/// Returns whether enumerations have listed values, and text is printable.
fn is_plausible(decoded: &Decoded<'_>) -> bool {
    // Some senders pad text with zeros.
    let is_printable = |bytes: &[u8]| bytes.iter().all(|byte| matches!(byte, 0 | b' '..=b'~'));
    let mut is_sound = true;
    decoded.for_each_field(|found| {
        is_sound &= match found.value {
            Value::Enum { .. } => found.value.enum_value().is_some(),
            Value::Text(_) => is_printable(found.bytes),
            Value::Bytes(bytes) if matches!(found.field.kind, Kind::Rest) => is_printable(bytes),
            _ => true,
        };
    });
    is_sound
}

/// Numbers the messages that a MEMX stream carries: a replay announces the first number.
#[derive(Clone, Copy, Debug, Default)]
pub struct Numbers {
    is_replay: bool,
    next: Option<u64>,
}

impl Numbers {
    /// Processes a packet of the server. Returns the number of the feed message that it carries.
    pub fn take(&mut self, packet: &[u8]) -> Option<u64> {
        match tcp::Message::decode(packet) {
            Ok(tcp::Message::LoginAccepted(accepted)) => {
                self.is_replay = accepted.supported_request_mode() == tcp::RequestMode::Replay;
                None
            }
            // Messages of a snapshot have no sequence numbers of the feed.
            Ok(tcp::Message::ReplayBegin(begin)) => {
                self.next = self.is_replay.then(|| begin.next_sequence_number());
                None
            }
            Ok(tcp::Message::ReplayComplete(_)) => {
                self.next = None;
                None
            }
            Ok(tcp::Message::SequencedMessage(_)) => {
                let number = self.next?;
                self.next = number.checked_add(1);
                Some(number)
            }
            _ => None,
        }
    }
}
