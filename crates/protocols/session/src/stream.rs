//! A session and its open packet.
//!
//! Cost: one copy of each message, and one header per packet.

use tapeworks_wire::framing::{LengthPrefix, write_block};

use crate::for_transport;
use crate::transport::{Content, MAX_PAYLOAD_BYTES, Outgoing, SessionId, Transport};

/// A session and its open packet. Fill the packet with messages while it has room, close it, send it, and start the next.
#[derive(Debug, Clone)]
pub struct Stream {
    session: SessionId,
    /// Headroom for the caller, the transport header, and the messages so far.
    frame: Vec<u8>,
    headroom: usize,
    filled: usize,
    /// Payload length of the packet closed last.
    closed: usize,
    messages: u16,
    /// The sequence number of the open packet's first message.
    next_sequence: u64,
    stream_offset: u64,
}

impl Stream {
    /// Creates a session before its first message, with `headroom` bytes before each payload for the caller.
    #[must_use]
    pub fn new(session: SessionId, headroom: usize) -> Self {
        let mut stream = Self {
            session,
            frame: vec![0; headroom + MAX_PAYLOAD_BYTES],
            headroom,
            filled: 0,
            closed: 0,
            messages: 0,
            next_sequence: 1,
            stream_offset: 0,
        };
        stream.filled = stream.blocks_start();
        stream
    }

    fn blocks_start(&self) -> usize {
        self.headroom + self.session.transport().header_bytes()
    }

    /// Returns the session.
    #[must_use]
    pub const fn session(&self) -> SessionId {
        self.session
    }

    /// Returns the sequence number of the open packet's first message.
    #[must_use]
    pub const fn next_sequence(&self) -> u64 {
        self.next_sequence
    }

    /// Returns the number of messages in the open packet.
    #[must_use]
    pub const fn messages(&self) -> u16 {
        self.messages
    }

    /// Returns the bytes of messages, including their lengths, sent in this session before the open packet.
    #[must_use]
    pub const fn stream_offset(&self) -> u64 {
        self.stream_offset
    }

    /// Returns the messages of the open packet, each after its length.
    #[must_use]
    pub fn blocks(&self) -> &[u8] {
        self.frame.get(self.blocks_start()..self.filled).unwrap_or_default()
    }

    /// Returns whether the open packet has room for this message.
    #[must_use]
    pub fn has_room(&self, message: &[u8]) -> bool {
        let prefix = for_transport!(self.session.transport(), T => <T as Transport>::Prefix::BYTES);
        self.filled + prefix + message.len() <= self.frame.len()
    }

    /// Appends a message to the open packet.
    ///
    /// The caller must first check that it has room ([`Stream::has_room`]); a message without room is left out.
    pub fn put(&mut self, message: &[u8]) {
        if !self.has_room(message) {
            return;
        }
        let Some(room) = self.frame.get_mut(self.filled..) else { return };
        let written = for_transport!(self.session.transport(), T => {
            write_block(T::prefix(), room, message)
        });
        let Some(written) = written else { return };
        self.filled += written;
        self.messages += 1;
    }

    /// Writes the transport's header before the messages and returns the payload's length.
    pub fn close(&mut self, send_time_ns: u64, content: Content) -> usize {
        let payload_bytes = self.filled - self.blocks_start();
        let header = Outgoing {
            session: self.session,
            sequence: self.next_sequence,
            messages: self.messages,
            content,
            stream_offset: self.stream_offset,
            payload_bytes,
            send_time_ns,
        };
        let target = self.frame.get_mut(self.headroom..).unwrap_or_default();
        let header_bytes = for_transport!(self.session.transport(), T => T::write_header(&header, target));
        debug_assert!(header_bytes > 0, "the header has its room");
        self.closed = header_bytes + payload_bytes;
        self.closed
    }

    /// Returns the payload of the packet closed last.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        self.frame.get(self.headroom..self.headroom + self.closed).unwrap_or_default()
    }

    /// Returns the headroom and the packet after it, so that network headers can be written in place once it is closed.
    pub fn frame_mut(&mut self) -> &mut [u8] {
        &mut self.frame
    }

    /// Starts the next packet after one with messages was sent.
    pub fn begin_next(&mut self) {
        debug_assert_eq!(
            self.messages > 0,
            !self.blocks().is_empty(),
            "a packet's count is that of its messages"
        );
        self.stream_offset += self.blocks().len() as u64;
        self.next_sequence += u64::from(self.messages);
        self.messages = 0;
        self.filled = self.blocks_start();
    }
}
