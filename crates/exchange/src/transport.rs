//! The transports' headers, and a venue's open packet behind one: MoldUDP64 downstream packets, IEX-TP segments.

use tapeworks_wire::iex::tp::{MessageProtocolId, SegmentFields};
use tapeworks_wire::nasdaq::moldudp64::{DownstreamPacketFields, END_OF_SESSION, HEARTBEAT};
use tapeworks_wire::{Ascii, NanosecondsSinceEpoch};

use crate::lines::Content;
use crate::scenario::VenueKind;

/// The longest UDP payload that is sent, in bytes.
pub const MAX_PAYLOAD_BYTES: usize = 1_400;

const MOLD_HEADER_BYTES: usize = 20;
const IEX_TP_HEADER_BYTES: usize = 40;

/// IEX-TP: the channel of every feed.
pub(crate) const IEX_CHANNEL: u32 = 1;

/// The session of a venue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Session {
    /// MoldUDP64's name, which SoupBinTCP knows it by too. An IEX venue has its number here, as digits.
    pub name: Ascii<10>,
    /// IEX-TP's number.
    pub number: u32,
}

/// What a transport's header says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Header {
    pub(crate) kind: VenueKind,
    pub(crate) session: Session,
    /// Of the first message; without messages, of the next one.
    pub(crate) sequence: u64,
    pub(crate) messages: u16,
    pub(crate) content: Content,
    /// IEX-TP: bytes of payload before this packet.
    pub(crate) stream_offset: u64,
    /// Bytes behind the header.
    pub(crate) payload_bytes: usize,
    /// IEX-TP: in nanoseconds since 1970-01-01 00:00 UTC.
    pub(crate) send_time_ns: u64,
}

/// Bytes of a transport's header.
pub(crate) const fn header_bytes(kind: VenueKind) -> usize {
    if kind.is_itch() { MOLD_HEADER_BYTES } else { IEX_TP_HEADER_BYTES }
}

/// IEX-TP's name of the feed.
pub(crate) const fn protocol_id(kind: VenueKind) -> MessageProtocolId {
    match kind {
        VenueKind::IexTops => MessageProtocolId::Tops,
        _ => MessageProtocolId::Deep,
    }
}

impl Header {
    /// Writes the header to the start of `target`, which has room for it.
    pub(crate) fn write(&self, target: &mut [u8]) {
        let target = target.get_mut(..header_bytes(self.kind)).unwrap_or_default();
        let written = if self.kind.is_itch() {
            let message_count = match self.content {
                Content::Messages => self.messages,
                Content::Heartbeat => HEARTBEAT,
                Content::EndOfSession => END_OF_SESSION,
            };
            let fields = DownstreamPacketFields {
                session: self.session.name,
                sequence_number: self.sequence,
                message_count,
                messages: &[],
            };
            fields.encode_into(target)
        } else {
            let fields = SegmentFields {
                version: 1,
                reserved: [0],
                message_protocol_id: protocol_id(self.kind),
                channel_id: IEX_CHANNEL,
                session_id: self.session.number,
                // No packet is longer than MAX_PAYLOAD_BYTES.
                payload_length: self.payload_bytes as u16,
                message_count: self.messages,
                stream_offset: self.stream_offset,
                first_message_sequence_number: self.sequence,
                send_time: NanosecondsSinceEpoch(self.send_time_ns),
                messages: &[],
            };
            fields.encode_into(target)
        };
        debug_assert!(written.is_ok(), "the header has its room: {written:?}");
    }
}

/// A session with its open packet: messages are put into it while there is room, it is closed, sent, and the next begins.
#[derive(Debug, Clone)]
pub struct Stream {
    pub(crate) kind: VenueKind,
    pub(crate) session: Session,
    /// Room before the payload, transport header, and the messages so far.
    pub(crate) frame: Vec<u8>,
    headroom: usize,
    filled: usize,
    pub(crate) messages: u16,
    /// Of the open packet's first message.
    pub(crate) next_sequence: u64,
    pub(crate) stream_offset: u64,
}

impl Stream {
    /// A session before its first message; `headroom` bytes before each payload are the caller's.
    #[must_use]
    pub fn new(kind: VenueKind, session: Session, headroom: usize) -> Self {
        let mut stream = Self {
            kind,
            session,
            frame: vec![0; headroom + MAX_PAYLOAD_BYTES],
            headroom,
            filled: 0,
            messages: 0,
            next_sequence: 1,
            stream_offset: 0,
        };
        stream.filled = stream.blocks_start();
        stream
    }

    fn blocks_start(&self) -> usize {
        self.headroom + header_bytes(self.kind)
    }

    /// The session.
    #[must_use]
    pub const fn session(&self) -> Session {
        self.session
    }

    /// The number of the open packet's first message.
    #[must_use]
    pub const fn next_sequence(&self) -> u64 {
        self.next_sequence
    }

    /// Messages in the open packet.
    #[must_use]
    pub const fn messages(&self) -> u16 {
        self.messages
    }

    /// The messages of the open packet behind their lengths.
    #[must_use]
    pub fn blocks(&self) -> &[u8] {
        self.frame.get(self.blocks_start()..self.filled).unwrap_or_default()
    }

    /// Whether a message of this length has room in the open packet.
    #[must_use]
    pub fn has_room(&self, message: &[u8]) -> bool {
        self.filled + 2 + message.len() <= self.frame.len()
    }

    /// Puts a message into the open packet, which has room for it ([`Stream::has_room`]); one that has none is left out.
    pub fn put(&mut self, message: &[u8]) {
        if !self.has_room(message) {
            return;
        }
        // A packet is shorter than 64 KiB.
        let length = message.len() as u16;
        let prefix = if self.kind.is_itch() { length.to_be_bytes() } else { length.to_le_bytes() };
        let (start, end) = (self.filled, self.filled + 2 + message.len());
        self.frame[start..start + 2].copy_from_slice(&prefix);
        self.frame[start + 2..end].copy_from_slice(message);
        self.filled = end;
        self.messages += 1;
    }

    /// Writes the transport's header before the messages. Answers the payload's length.
    pub fn close(&mut self, send_time_ns: u64, content: Content) -> usize {
        let payload = self.filled - self.headroom;
        let header = Header {
            kind: self.kind,
            session: self.session,
            sequence: self.next_sequence,
            messages: self.messages,
            content,
            stream_offset: self.stream_offset,
            payload_bytes: payload - header_bytes(self.kind),
            send_time_ns,
        };
        header.write(&mut self.frame[self.headroom..]);
        payload
    }

    /// The open packet's bytes behind the headroom, once it is closed.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        self.frame.get(self.headroom..self.filled).unwrap_or_default()
    }

    /// Goes on to the next packet after one with messages was sent.
    pub fn begin_next(&mut self) {
        self.stream_offset += self.blocks().len() as u64;
        self.next_sequence += u64::from(self.messages);
        self.messages = 0;
        self.filled = self.blocks_start();
    }
}
