//! Messages that arrive one by one over the connection, packed into packets in the feed's format.

use tapeworks_wire::framing::{LengthPrefix, write_block};

use crate::for_transport;
use crate::transport::{Outgoing, SessionId, Transport};

/// The most bytes of messages in a packet, unless one message is longer.
const MOST_BYTES: usize = 1_400;

/// The packet that the next message joins.
#[derive(Debug, Clone)]
pub(super) struct Replay {
    session: SessionId,
    /// The number of the packet's first message.
    first: u64,
    count: u16,
    /// Room for the header, then the messages so far.
    packet: Vec<u8>,
}

impl Replay {
    /// Begins with message `first`.
    pub(super) fn new(session: SessionId, first: u64) -> Self {
        Self { session, first, count: 0, packet: vec![0; session.transport().header_bytes()] }
    }

    /// Returns the number of the next message.
    pub(super) const fn next(&self) -> u64 {
        self.first.saturating_add(self.count as u64)
    }

    const fn bytes(&self) -> usize {
        self.packet.len() - self.session.transport().header_bytes()
    }

    /// Appends the next message. Returns the packet before it if it had no room for the message.
    pub(super) fn put(&mut self, message: &[u8]) -> Option<Vec<u8>> {
        let full = if self.bytes() + message.len() > MOST_BYTES { self.take_packet() } else { None };
        let start = self.packet.len();
        let written = for_transport!(self.session.transport(), T => {
            self.packet.resize(start + <T as Transport>::Prefix::BYTES + message.len(), 0);
            write_block(T::prefix(), self.packet.get_mut(start..).unwrap_or_default(), message)
        });
        debug_assert!(written.is_some(), "the message has its room");
        self.count += 1;
        full
    }

    /// Takes the packet with the messages so far.
    pub(super) fn take_packet(&mut self) -> Option<Vec<u8>> {
        if self.count == 0 {
            return None;
        }
        let header = Outgoing::of(self.session, self.first, self.count, self.bytes());
        for_transport!(self.session.transport(), T => T::write_header(&header, &mut self.packet));
        let next = Self::new(self.session, self.next());
        Some(std::mem::replace(self, next).packet)
    }
}
