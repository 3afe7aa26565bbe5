//! Packs messages into MoldUDP64 packets and keeps them for retransmission.
//!
//! Cost: one copy of a message into its packet, and one of the packet into the store. Nothing is allocated after the largest burst.

use tapeworks_wire::Ascii;
use tapeworks_wire::nasdaq::moldudp64::{DownstreamPacket, DownstreamPacketFields, RequestPacketFields};

use crate::retransmission::{Made, Refusal, Store};
use crate::stream::Stream;
use crate::transport::{Content, MAX_PAYLOAD_BYTES, SessionId, Transport as _};

/// Lengths of a packet's header and of a message's length prefix.
const HEADER_BYTES: usize = 20;
const LENGTH_BYTES: usize = 2;

/// The longest message, in bytes: it fills a packet by itself.
pub const MAX_MESSAGE_BYTES: usize = MAX_PAYLOAD_BYTES - HEADER_BYTES - LENGTH_BYTES;

/// A session: its message count, its open packet, and the kept packets.
#[derive(Debug)]
pub struct Sequence {
    name: [u8; 10],
    stream: Stream,
    store: Store,
    /// Packets to send, one after the other.
    ready: Vec<u8>,
    ends: Vec<usize>,
    is_over: bool,
    too_long: u64,
}

impl Sequence {
    /// Creates a session with this name before its first message. It keeps `store_bytes` of messages and their lengths.
    pub fn new(name: [u8; 10], store_bytes: usize) -> Self {
        let session = SessionId::MoldUdp64(name);
        let mut store = Store::new(crate::MoldUdp64::KIND, store_bytes);
        store.begin_session(session);
        Self {
            name,
            stream: Stream::new(session, 0),
            store,
            ready: Vec::new(),
            ends: Vec::new(),
            is_over: false,
            too_long: 0,
        }
    }

    /// Returns the session's name.
    pub const fn session(&self) -> [u8; 10] {
        self.name
    }

    /// Returns the numbers of the kept messages, up to one after the last message in a closed packet.
    pub fn kept(&self) -> std::ops::Range<u64> {
        self.store.kept()
    }

    /// Returns whether the session has ended.
    pub const fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns the number of messages left out because they were too long for a packet.
    pub const fn too_long(&self) -> u64 {
        self.too_long
    }

    /// Appends a message to the open packet, first closing that packet if it has no room.
    pub fn put(&mut self, message: &[u8]) {
        if message.len() > MAX_MESSAGE_BYTES {
            self.too_long += 1;
            return;
        }
        if !self.stream.has_room(message) {
            self.flush();
        }
        self.stream.put(message);
    }

    /// Closes the open packet, unless it is empty.
    pub fn flush(&mut self) {
        if self.stream.messages() == 0 {
            return;
        }
        self.store.keep(&Made {
            first: self.stream.next_sequence(),
            count: self.stream.messages(),
            stream_offset: 0,
            blocks: self.stream.blocks(),
        });
        self.close(Content::Messages);
        self.stream.begin_next();
    }

    /// Sends a packet without messages that has the next message's number.
    pub fn heartbeat(&mut self) {
        self.flush();
        self.close(if self.is_over { Content::EndOfSession } else { Content::Heartbeat });
    }

    /// Ends the session. From now on every packet without messages reports the end.
    pub fn end(&mut self) {
        self.flush();
        self.is_over = true;
        self.heartbeat();
    }

    fn close(&mut self, content: Content) {
        // MoldUDP64 has no send time.
        self.stream.close(0, content);
        self.ready.extend_from_slice(self.stream.payload());
        self.ends.push(self.ready.len());
    }

    /// Returns the packets to send, in order.
    pub fn ready(&self) -> impl Iterator<Item = &[u8]> + Clone {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| self.ready.get(start..*end).unwrap_or_default())
    }

    /// Discards the packets to send, once they are sent.
    pub fn clear_ready(&mut self) {
        self.ready.clear();
        self.ends.clear();
    }

    /// Writes the answer to a request packet into `answer` and returns its number of messages.
    ///
    /// If the first requested message is no longer kept, the answer has none: it looks like a heartbeat with the number
    /// of the oldest kept message.
    ///
    /// # Errors
    /// The reason why the request is refused.
    pub fn answer(&self, request: &[u8], answer: &mut Vec<u8>) -> Result<u16, Refusal> {
        match self.store.answer(request, 0, answer) {
            Err(Refusal::NotKept) => {
                let oldest = DownstreamPacketFields {
                    session: Ascii(self.name),
                    sequence_number: self.kept().start,
                    message_count: 0,
                    messages: &[],
                };
                answer.clear();
                answer.resize(HEADER_BYTES, 0);
                // The buffer has room for the header.
                let _written = oldest.encode_into(answer);
                Ok(0)
            }
            answered => answered,
        }
    }

    /// Passes the messages from number `from` to `each`, as many as one packet holds, and returns their number.
    ///
    /// Returns 0 once all were passed on. `scratch` holds the packet.
    ///
    /// # Errors
    /// [`Refusal::NotKept`].
    pub fn messages(
        &self,
        from: u64,
        scratch: &mut Vec<u8>,
        mut each: impl FnMut(&[u8]),
    ) -> Result<u16, Refusal> {
        let request = RequestPacketFields {
            session: Ascii(self.name),
            sequence_number: from,
            requested_message_count: u16::MAX - 1,
        };
        match self.store.answer(&request.encode(), 0, scratch) {
            Ok(_) => {}
            Err(Refusal::NotSent) => return Ok(0),
            Err(refusal) => return Err(refusal),
        }
        let Ok(packet) = DownstreamPacket::decode(scratch) else { return Ok(0) };
        packet.blocks().filter_map(Result::ok).for_each(&mut each);
        Ok(packet.count())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message(number: u64, length: usize) -> Vec<u8> {
        let mut message = vec![number as u8; length];
        message.extend_from_slice(&number.to_le_bytes());
        message
    }

    proptest! {
        #[test]
        fn packets_hold_every_message_once_and_in_order(
            steps in prop::collection::vec((0usize..600, any::<bool>()), 1..200),
        ) {
            let mut sequence = Sequence::new(*b"2511140000", 1 << 20);
            let mut expected = Vec::new();
            for (number, (length, is_turn)) in steps.iter().enumerate() {
                let message = message(number as u64, *length);
                sequence.put(&message);
                expected.push(message);
                if *is_turn {
                    sequence.flush();
                }
            }
            sequence.end();
            let mut sent: Vec<Vec<u8>> = Vec::new();
            let mut ends = 0;
            for packet in sequence.ready() {
                prop_assert!(packet.len() <= MAX_PAYLOAD_BYTES);
                let packet = DownstreamPacket::decode(packet).unwrap();
                prop_assert_eq!(packet.sequence_number(), sent.len() as u64 + 1);
                sent.extend(packet.blocks().map(|block| block.unwrap().to_vec()));
                ends += usize::from(packet.is_end_of_session());
            }
            prop_assert_eq!(ends, 1);
            prop_assert_eq!(&sent, &expected);
            prop_assert_eq!(sequence.kept(), 1..expected.len() as u64 + 1);
            // The kept messages are the same.
            let (mut from, mut scratch, mut kept) = (1, Vec::new(), Vec::new());
            loop {
                let count = sequence.messages(from, &mut scratch, |message| kept.push(message.to_vec())).unwrap();
                if count == 0 { break; }
                from += u64::from(count);
            }
            prop_assert_eq!(kept, expected);
        }
    }

    #[test]
    fn a_message_too_long_is_counted_and_a_request_too_old_is_answered_with_the_oldest_number() {
        let mut sequence = Sequence::new(*b"2511140000", 4_000);
        sequence.put(&[0; MAX_MESSAGE_BYTES + 1]);
        assert_eq!(sequence.too_long(), 1);
        for number in 0..100 {
            sequence.put(&message(number, 200));
        }
        sequence.flush();
        assert_eq!(sequence.messages(1, &mut Vec::new(), |_| {}), Err(Refusal::NotKept));
        let kept = sequence.kept();
        assert!(kept.start > 1 && kept.end == 101, "{kept:?}");
        assert!(sequence.messages(kept.start, &mut Vec::new(), |_| {}).unwrap() > 0);
        let mut answer = Vec::new();
        for (first, count, answered) in [(1, 5, 0), (kept.start - 1, 60, 0), (kept.start, 5, 5)] {
            let request = RequestPacketFields {
                session: Ascii(*b"2511140000"),
                sequence_number: first,
                requested_message_count: count,
            };
            assert_eq!(sequence.answer(&request.encode(), &mut answer), Ok(answered));
            let packet = DownstreamPacket::decode(&answer).unwrap();
            assert_eq!((packet.sequence_number(), packet.count()), (kept.start, answered));
            assert_eq!((packet.session(), answer.len() == 20), (Ascii(*b"2511140000"), answered == 0));
            assert!(!packet.is_end_of_session());
        }
        assert_eq!(sequence.messages(101, &mut Vec::new(), |_| {}), Ok(0));
    }
}
