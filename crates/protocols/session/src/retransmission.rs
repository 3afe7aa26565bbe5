//! Retransmission: keeps a venue's sent messages for a while and answers requests for them.
//!
//! A request names a session, its first sequence number and a count, in the format of the
//! [transport](crate::transport::Transport::request). The answer is a packet with as many of the messages as fit; for
//! more, the client sends another request (*MoldUDP64 Protocol Specification* 1.00, "Request Packet").
//!
//! Cost of keeping: one copy of a packet's messages. Cost of an answer: a binary search, a walk over the blocks of the
//! packets that it draws on, and one copy. Memory: the given size, allocated once, and 32 bytes for each packet kept.

use std::collections::VecDeque;

use tapeworks_wire::framing::{Blocks, LengthPrefix};

use crate::for_transport;
use crate::transport::{
    Content, MAX_PAYLOAD_BYTES, Outgoing, Request, SessionId, Transport as _, TransportKind,
};

/// The messages of a packet as they were sent.
#[derive(Debug, Clone, Copy)]
pub struct Made<'a> {
    /// Sequence number of the first message.
    pub first: u64,
    /// Number of messages.
    pub count: u16,
    /// IEX-TP: payload bytes sent in this session before it.
    pub stream_offset: u64,
    /// The messages, each with its length prefix in the transport's format.
    pub blocks: &'a [u8],
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The request is too short, too long, or for another protocol.
    #[error("not a request of this venue's protocol")]
    Malformed,
    /// The session is neither the running one nor the previous one.
    #[error("the session is not known")]
    UnknownSession,
    /// None of the requested messages has been sent yet, or none is requested.
    #[error("nothing of it was sent yet")]
    NotSent,
    /// The requested messages were sent but are no longer kept.
    #[error("it is not kept any more")]
    NotKept,
}

/// The messages of one packet in the store.
#[derive(Debug, Clone, Copy)]
struct Kept {
    first: u64,
    stream_offset: u64,
    start: usize,
    length: usize,
}

/// A session and its kept packets, oldest first.
#[derive(Debug)]
struct KeptSession {
    session: SessionId,
    next: u64,
    packets: VecDeque<Kept>,
}

/// The messages of a venue's current and previous sessions, as many as fit.
#[derive(Debug)]
pub struct Store {
    transport: TransportKind,
    bytes: Vec<u8>,
    /// Offset for the next packet's messages.
    end: usize,
    /// Oldest first; at most two.
    sessions: VecDeque<KeptSession>,
}

impl Store {
    /// Creates a store with this many bytes for messages and their lengths, and at least enough for one packet.
    #[must_use]
    pub fn new(transport: TransportKind, bytes: usize) -> Self {
        let bytes = vec![0; bytes.max(MAX_PAYLOAD_BYTES)];
        Self { transport, bytes, end: 0, sessions: VecDeque::new() }
    }

    /// Starts a session and forgets the session before the previous one.
    pub fn begin_session(&mut self, session: SessionId) {
        while self.sessions.len() > 1 {
            self.sessions.pop_front();
        }
        self.sessions.push_back(KeptSession { session, next: 1, packets: VecDeque::new() });
    }

    /// Keeps the messages of a packet of the running session, evicting the oldest if there is no room. Does nothing
    /// without a session, or if the packet is longer than the store.
    pub fn keep(&mut self, made: &Made<'_>) {
        let length = made.blocks.len();
        if self.sessions.is_empty() || length > self.bytes.len() {
            return;
        }
        if self.end + length > self.bytes.len() {
            // The packet goes to the start of the buffer instead. The packets in the unused rest are the oldest.
            self.forget(self.end, self.bytes.len());
            self.end = 0;
        }
        let (start, end) = (self.end, self.end + length);
        self.forget(start, end);
        if let Some(room) = self.bytes.get_mut(start..end) {
            room.copy_from_slice(made.blocks);
        }
        self.end = end;
        if let Some(session) = self.sessions.back_mut() {
            let Made { first, count, stream_offset, .. } = *made;
            session.next = first.saturating_add(u64::from(count));
            session.packets.push_back(Kept { first, stream_offset, start, length });
        }
    }

    /// Returns the transport of its sessions.
    #[must_use]
    pub const fn transport(&self) -> TransportKind {
        self.transport
    }

    /// Returns the running session.
    #[must_use]
    pub fn session(&self) -> Option<SessionId> {
        self.sessions.back().map(|kept| kept.session)
    }

    /// Returns the numbers of the running session's kept messages, up to one after the last. Empty without a session.
    #[must_use]
    pub fn kept(&self) -> std::ops::Range<u64> {
        self.sessions.back().map_or(0..0, |session| {
            session.packets.front().map_or(session.next, |packet| packet.first)..session.next
        })
    }

    /// Forgets packets, oldest first, until none overlaps this range.
    fn forget(&mut self, start: usize, end: usize) {
        for session in &mut self.sessions {
            while session
                .packets
                .front()
                .is_some_and(|packet| packet.start < end && start < packet.start + packet.length)
            {
                session.packets.pop_front();
            }
            if !session.packets.is_empty() {
                break;
            }
        }
    }

    /// Writes the answer to a request into `answer`, replacing its contents, and returns its number of messages.
    ///
    /// The answer is a packet of at most [`MAX_PAYLOAD_BYTES`]. `now_ns` is the send time of transports that have one,
    /// in nanoseconds since 1970-01-01 00:00 UTC.
    ///
    /// # Errors
    /// The reason why the request is refused.
    pub fn answer(&self, request: &[u8], now_ns: u64, answer: &mut Vec<u8>) -> Result<u16, Refusal> {
        let request = self.read_request(request)?;
        self.answer_as(&request, request.session, now_ns, answer)
    }

    /// Answers a decoded request like [`Store::answer`], with the session `named` in the header.
    ///
    /// # Errors
    /// The reason why the request is refused.
    pub fn answer_as(
        &self,
        request: &Request,
        named: SessionId,
        now_ns: u64,
        answer: &mut Vec<u8>,
    ) -> Result<u16, Refusal> {
        answer.clear();
        let session = self
            .sessions
            .iter()
            .rev()
            .find(|kept| kept.session == request.session)
            .ok_or(Refusal::UnknownSession)?;
        if request.count == 0 || request.first >= session.next {
            return Err(Refusal::NotSent);
        }
        let after = session.packets.partition_point(|packet| packet.first <= request.first);
        let index = after.checked_sub(1).ok_or(Refusal::NotKept)?;
        answer.resize(self.transport.header_bytes(), 0);
        let (mut messages, mut stream_offset) = (0, 0);
        for (number, packet) in session.packets.range(index..).enumerate() {
            let skip = if number == 0 { request.first - packet.first } else { 0 };
            let blocks = self.bytes.get(packet.start..packet.start + packet.length).unwrap_or_default();
            let wanted = request.count - messages;
            let taken = for_transport!(self.transport, T => {
                copy(Blocks::new(blocks, T::prefix()), blocks, skip, wanted, answer)
            });
            if number == 0 {
                stream_offset = packet.stream_offset + taken.offset;
            }
            messages += taken.messages;
            if taken.is_full || messages == request.count {
                break;
            }
        }
        let header = Outgoing {
            session: named,
            sequence: request.first,
            messages,
            content: Content::Messages,
            stream_offset,
            payload_bytes: answer.len() - self.transport.header_bytes(),
            send_time_ns: now_ns,
        };
        for_transport!(self.transport, T => T::write_header(&header, answer));
        Ok(messages)
    }

    /// Decodes a request.
    ///
    /// # Errors
    /// [`Refusal::Malformed`] if it is not a request of this venue's protocol or channel.
    pub fn read_request(&self, bytes: &[u8]) -> Result<Request, Refusal> {
        let request = self.transport.read_request(bytes).ok_or(Refusal::Malformed)?;
        let newest = self.sessions.back().map(|kept| kept.session);
        if newest.is_some_and(|newest| !request.session.is_of_channel_of(&newest)) {
            return Err(Refusal::Malformed);
        }
        Ok(request)
    }
}

/// The result of [`copy`].
struct Taken {
    messages: u16,
    /// Offset in the blocks where it started, in bytes.
    offset: u64,
    /// The next block does not fit.
    is_full: bool,
}

/// Appends up to `wanted` blocks after the first `skip` to the answer, as long as they fit.
fn copy<Prefix: LengthPrefix>(
    mut walk: Blocks<'_, Prefix>,
    blocks: &[u8],
    skip: u64,
    wanted: u16,
    answer: &mut Vec<u8>,
) -> Taken {
    for _ in 0..skip {
        if !matches!(walk.next(), Some(Ok(_))) {
            break;
        }
    }
    let start = walk.offset();
    let (mut end, mut messages, mut is_full) = (start, 0, false);
    while messages < wanted && matches!(walk.next(), Some(Ok(_))) {
        if answer.len() + walk.offset() - start > MAX_PAYLOAD_BYTES {
            is_full = true;
            break;
        }
        end = walk.offset();
        messages += 1;
    }
    answer.extend_from_slice(blocks.get(start..end).unwrap_or_default());
    Taken { messages, offset: start as u64, is_full }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tapeworks_wire::framing::write_block;
    use tapeworks_wire::iex::tp::Segment;
    use tapeworks_wire::nasdaq::moldudp64::DownstreamPacket;

    use super::*;
    use crate::{IexTp, MoldUdp64};

    const MOLD: TransportKind = MoldUdp64::KIND;
    const IEX: TransportKind = IexTp::KIND;

    /// Returns the bytes of message `number`.
    fn message(number: u64) -> Vec<u8> {
        vec![number as u8; 10 + (number % 30) as usize]
    }

    /// Stores packets of `count` messages each, starting with number 1.
    fn fill(store: &mut Store, transport: TransportKind, packets: u64, count: u16) {
        let mut stream_offset = 0;
        for packet in 0..packets {
            let first = packet * u64::from(count) + 1;
            let mut blocks = vec![0; 4_000];
            let mut end = 0;
            for number in first..first + u64::from(count) {
                let written = for_transport!(transport, T => {
                    write_block(T::prefix(), &mut blocks[end..], &message(number))
                });
                end += written.unwrap();
            }
            store.keep(&Made { first, count, stream_offset, blocks: &blocks[..end] });
            stream_offset += end as u64;
        }
    }

    fn request(transport: TransportKind, number: u32, first: u64, count: u16) -> Vec<u8> {
        Request { session: transport.session(number), first, count }.encode()
    }

    #[test]
    fn repeated_requests_bring_every_message_again() {
        let mut store = Store::new(MOLD, 1 << 20);
        store.begin_session(MOLD.session(7));
        fill(&mut store, MOLD, 50, 7);
        let (mut next, mut answer) = (3, Vec::new());
        while next < 351 {
            let count = store.answer(&request(MOLD, 7, next, (351 - next) as u16), 0, &mut answer).unwrap();
            assert!(answer.len() <= MAX_PAYLOAD_BYTES && count > 0);
            let packet = DownstreamPacket::decode(&answer).unwrap();
            assert_eq!(
                (packet.session(), packet.sequence_number(), packet.count()),
                (crate::transport::digits(7), next, count)
            );
            for block in packet.blocks() {
                assert_eq!(block.unwrap(), message(next));
                next += 1;
            }
        }
        assert_eq!(next, 351);
        let one = store.answer(&request(MOLD, 7, 350, 100), 0, &mut answer);
        assert_eq!(one, Ok(1), "as many of the requested messages as were sent");
    }

    #[test]
    fn an_iex_answer_is_a_segment_with_its_place_in_the_stream() {
        let mut store = Store::new(IEX, 1 << 20);
        store.begin_session(IEX.session(7));
        fill(&mut store, IEX, 5, 4);
        let mut answer = Vec::new();
        assert_eq!(store.answer(&request(IEX, 7, 6, 8), 99, &mut answer), Ok(8));
        let segment = Segment::decode(&answer).unwrap();
        let before: usize = (1..6).map(|number| 2 + message(number).len()).sum();
        assert_eq!(segment.stream_offset(), before as u64);
        assert_eq!(segment.send_time().nanoseconds(), 99);
        assert_eq!(usize::from(segment.payload_length()), answer.len() - 40);
        let messages: Vec<_> = segment.blocks().map(|block| block.unwrap().to_vec()).collect();
        assert_eq!(messages, (6..14).map(message).collect::<Vec<_>>());
    }

    #[test]
    fn a_request_that_cannot_be_answered_is_refused_with_the_reason() {
        let mut store = Store::new(MOLD, 3_000);
        let mut answer = Vec::new();
        let mut answer_to = |store: &Store, request: &[u8]| store.answer(request, 0, &mut answer);
        assert_eq!(answer_to(&store, &request(MOLD, 1, 1, 1)), Err(Refusal::UnknownSession));
        store.begin_session(MOLD.session(1));
        assert_eq!(answer_to(&store, &request(MOLD, 1, 1, 1)), Err(Refusal::NotSent));
        fill(&mut store, MOLD, 100, 10);
        assert_eq!(answer_to(&store, &request(MOLD, 1, 1, 1)), Err(Refusal::NotKept));
        assert_eq!(answer_to(&store, &request(MOLD, 1, 0, 1)), Err(Refusal::NotKept));
        assert_eq!(answer_to(&store, &request(MOLD, 1, 1_000, 5)), Ok(1));
        assert_eq!(answer_to(&store, &request(MOLD, 1, 1_001, 5)), Err(Refusal::NotSent));
        assert_eq!(answer_to(&store, &request(MOLD, 1, 1_000, 0)), Err(Refusal::NotSent));
        for bad in [&b"short"[..], &[0; 21], &request(IEX, 1, 1, 1)] {
            assert_eq!(answer_to(&store, bad), Err(Refusal::Malformed));
        }
        store.begin_session(MOLD.session(2));
        fill(&mut store, MOLD, 1, 1);
        assert_eq!(answer_to(&store, &request(MOLD, 1, 1_000, 5)), Ok(1), "the session before");
        store.begin_session(MOLD.session(3));
        assert_eq!(answer_to(&store, &request(MOLD, 1, 1_000, 5)), Err(Refusal::UnknownSession));
    }

    proptest! {
        #[test]
        fn hostile_requests_are_answered_or_refused(
            bytes in prop::collection::vec(any::<u8>(), 0..64),
            first in any::<u64>(),
            count in any::<u16>(),
            room in 0_usize..8_000,
            packets in 0_u64..40,
        ) {
            for transport in TransportKind::ALL {
                let mut store = Store::new(transport, room);
                store.begin_session(transport.session(5));
                fill(&mut store, transport, packets, 9);
                let mut answer = Vec::new();
                let good = request(transport, 5, first % 400, count);
                for request in [&bytes, &good] {
                    if let Ok(messages) = store.answer(request, 0, &mut answer) {
                        prop_assert!(messages > 0 && messages <= count && answer.len() <= MAX_PAYLOAD_BYTES);
                    }
                }
                prop_assert!(transport.read_request(&good).is_some());
                let is_none = transport.read_request(&bytes).is_none();
                prop_assert!(bytes.len() == transport.header_bytes() || is_none);
            }
        }
    }
}
