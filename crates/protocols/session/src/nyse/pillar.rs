//! The packet header of NYSE's Pillar feeds as a [`Transport`].
//!
//! Pillar has no sessions: a channel numbers its messages from 1 each day. NYSE accepts requests over TCP
//! ([`requests`](crate::requests)) and answers by multicast. The datagram requests here are for our own servers, as
//! with the other transports: the same bytes, but they name neither source nor channel.
//!
//! Refresh packets, and the answer that messages are unavailable, have their own sequence numbers. They are not packets
//! of the channel: each is a decode error with the delivery flag as its type, and is counted as one.
//! [`Transport::unavailable`] reads the answer.

use std::ops::Range;

use tapeworks_wire::nyse::integrated::{
    MessageUnavailable, MessageUnavailableFields, RetransmissionRequest, RetransmissionRequestFields,
};
use tapeworks_wire::nyse::packet::{
    DeliveryFlag, HEADER_BYTES, PREFIX, PillarPacket, PillarPacketFields, Prefix, SCHEMA,
};
use tapeworks_wire::schema::{Schema, Structure};
use tapeworks_wire::{Ascii, DecodeError, Nanoseconds, SecondsSinceEpoch};

use super::packets;
use crate::protocols::{RequestProtocol, SnapshotProtocol};
use crate::transport::{Content, Header, Outgoing, Packet, Request, SessionId, Transport, TransportKind};

const SECOND_NS: u64 = 1_000_000_000;

/// Length of a request in bytes.
const REQUEST_BYTES: usize = HEADER_BYTES + RetransmissionRequest::LENGTH;

/// NYSE's packet header.
#[derive(Clone, Copy, Debug)]
pub struct Pillar;

impl Transport for Pillar {
    type Prefix = Prefix;

    const KIND: TransportKind = TransportKind::Pillar;
    const SCHEMA: &'static Schema = &SCHEMA;
    const HEADER: &'static Structure = &PillarPacket::SCHEMA;
    const HEADER_BYTES: usize = HEADER_BYTES;
    const REQUESTS: Option<RequestProtocol> = Some(RequestProtocol::Pillar);
    const GROUP_SNAPSHOTS: Option<SnapshotProtocol> = Some(SnapshotProtocol::Refresh);

    fn session(_: u32) -> SessionId {
        SessionId::Pillar
    }

    fn prefix() -> Prefix {
        PREFIX
    }

    #[inline]
    fn packet(payload: &[u8]) -> Result<Packet<'_, Prefix>, DecodeError> {
        let packet = PillarPacket::decode(payload)?;
        let flag = packet.delivery_flag();
        if !flag.is_of_channel() {
            return Err(DecodeError::unknown_message(u64::from(flag.raw())));
        }
        Ok(Packet {
            header: Header {
                session: SessionId::Pillar,
                first: u64::from(packet.sequence()),
                count: u64::from(packet.count()),
                is_end_of_session: false,
            },
            header_bytes: HEADER_BYTES,
            blocks: packet.blocks(),
        })
    }

    fn length(payload: &[u8]) -> Option<usize> {
        PillarPacket::decode(payload).ok().map(|packet| usize::from(packet.length()))
    }

    fn sent_ns(payload: &[u8]) -> Option<u64> {
        let packet = PillarPacket::decode(payload).ok().filter(|_| !Self::is_answer(payload))?;
        Some(u64::from(packet.send_time().0) * SECOND_NS + packet.send_time_nanoseconds().0)
    }

    fn is_answer(payload: &[u8]) -> bool {
        PillarPacket::decode(payload).is_ok_and(|packet| {
            matches!(
                packet.delivery_flag(),
                DeliveryFlag::OneRetransmissionPacket | DeliveryFlag::RetransmissionSequence
            )
        })
    }

    fn restarts(payload: &[u8]) -> bool {
        PillarPacket::decode(payload)
            .is_ok_and(|packet| packet.delivery_flag() == DeliveryFlag::SequenceNumberReset)
    }

    fn write_header(header: &Outgoing, target: &mut [u8]) -> usize {
        if header.session != SessionId::Pillar {
            return 0;
        }
        let fields = PillarPacketFields {
            // No packet is longer than MAX_PAYLOAD_BYTES.
            length: (HEADER_BYTES + header.payload_bytes) as u16,
            delivery_flag: match header.content {
                Content::Messages => DeliveryFlag::Original,
                Content::Heartbeat | Content::EndOfSession => DeliveryFlag::Heartbeat,
            },
            // Nor has one more than 255 messages: a market data message has at least 16 bytes.
            count: u8::try_from(header.messages).unwrap_or(u8::MAX),
            sequence: u32::try_from(header.sequence).unwrap_or(u32::MAX),
            send_time: SecondsSinceEpoch((header.send_time_ns / SECOND_NS) as u32),
            send_time_nanoseconds: Nanoseconds(header.send_time_ns % SECOND_NS),
            messages: &[],
        };
        fields.encode_into(target.get_mut(..HEADER_BYTES).unwrap_or_default()).unwrap_or_default()
    }

    fn unavailable(payload: &[u8]) -> Option<Range<u64>> {
        let packet = PillarPacket::decode(payload).ok()?;
        let is_it = packet.delivery_flag() == DeliveryFlag::MessageUnavailable
            && usize::from(packet.length()) == payload.len()
            && payload.len() == HEADER_BYTES + MessageUnavailable::LENGTH;
        let message = packet.blocks().next()?.ok()?;
        let is_tag = packets::tag(message) == MessageUnavailable::TAG;
        let message = MessageUnavailable::decode(message).ok().filter(|_| is_it && is_tag)?;
        let numbers =
            u64::from(message.begin_sequence())..u64::from(message.end_sequence()).saturating_add(1);
        (!numbers.is_empty()).then_some(numbers)
    }

    fn mark_answer(packet: &mut [u8], is_only: bool) {
        let flag = if is_only {
            DeliveryFlag::OneRetransmissionPacket
        } else {
            DeliveryFlag::RetransmissionSequence
        };
        if let Some(at) = packet.get_mut(2) {
            *at = flag.raw();
        }
    }

    fn write_unavailable(numbers: Range<u64>, now_ns: u64) -> Option<Vec<u8>> {
        let last = numbers.end.checked_sub(1).filter(|last| *last >= numbers.start)?;
        let message = MessageUnavailableFields {
            length: MessageUnavailable::LENGTH as u16,
            begin_sequence: u32::try_from(numbers.start).ok()?,
            end_sequence: u32::try_from(last).ok()?,
            product_id: 0,
            channel_id: 0,
        };
        Some(packets::packet_of(DeliveryFlag::MessageUnavailable, 1, &message.encode(), 1, now_ns))
    }

    fn request(request: &Request) -> Vec<u8> {
        if request.session != SessionId::Pillar {
            return Vec::new();
        }
        let first = u32::try_from(request.first).unwrap_or(u32::MAX);
        let message = RetransmissionRequestFields {
            length: RetransmissionRequest::LENGTH as u16,
            begin_sequence: first,
            end_sequence: first.saturating_add(u32::from(request.count).saturating_sub(1)),
            source_id: Ascii([0; 10]),
            product_id: 0,
            channel_id: 0,
        };
        packets::packet(&message.encode(), 1, 0)
    }

    fn read_request(bytes: &[u8]) -> Option<Request> {
        let packet = PillarPacket::decode(bytes).ok().filter(|_| bytes.len() == REQUEST_BYTES)?;
        let message = packet.blocks().next()?.ok()?;
        let is_one = usize::from(packet.length()) == REQUEST_BYTES && packet.count() == 1;
        let is_request = is_one && packets::tag(message) == RetransmissionRequest::TAG;
        let request = RetransmissionRequest::decode(message).ok().filter(|_| is_request)?;
        let count = request.end_sequence().checked_sub(request.begin_sequence())?.checked_add(1)?;
        Some(Request {
            session: SessionId::Pillar,
            first: u64::from(request.begin_sequence()),
            count: u16::try_from(count).ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_of_a_refresh_is_an_error_with_its_flag() {
        let header = Outgoing {
            session: SessionId::Pillar,
            sequence: 9,
            messages: 0,
            content: Content::Heartbeat,
            stream_offset: 0,
            payload_bytes: 0,
            send_time_ns: 3 * SECOND_NS + 7,
        };
        let mut bytes = vec![0; HEADER_BYTES];
        assert_eq!(Pillar::write_header(&header, &mut bytes), HEADER_BYTES);
        let read = Pillar::packet(&bytes).unwrap().header;
        assert_eq!((read.first, read.count), (9, 0));
        let packet = PillarPacket::decode(&bytes).unwrap();
        assert_eq!((packet.send_time().0, packet.send_time_nanoseconds().0), (3, 7));
        for flag in [17, 18, 19, 20, 21, 99] {
            bytes[2] = flag;
            assert_eq!(
                Pillar::packet(&bytes).err(),
                Some(DecodeError::UnknownMessage { tag: u64::from(flag) })
            );
        }
    }

    #[test]
    fn the_answer_that_messages_are_unavailable_names_them() {
        let bytes = Pillar::write_unavailable(7..10, 3 * SECOND_NS).unwrap();
        assert_eq!(Pillar::unavailable(&bytes), Some(7..10));
        assert!(Pillar::packet(&bytes).is_err(), "it is no packet of the channel");
        assert_eq!(Pillar::write_unavailable(7..7, 0), None);
        let request = Pillar::request(&Request { session: SessionId::Pillar, first: 7, count: 3 });
        assert_eq!(Pillar::unavailable(&request), None);
        let mut backwards = bytes.clone();
        backwards[20] = 20;
        assert_eq!(Pillar::unavailable(&backwards), None);
        for end in 0..bytes.len() {
            assert_eq!(Pillar::unavailable(&bytes[..end]), None);
        }
        let mut answer = bytes;
        Pillar::mark_answer(&mut answer, true);
        assert_eq!((answer[2], Pillar::packet(&answer).unwrap().header.count), (13, 1));
        Pillar::mark_answer(&mut answer, false);
        assert_eq!((answer[2], Pillar::packet(&answer).unwrap().header.count), (15, 1));
    }

    #[test]
    fn a_request_of_more_than_a_count_holds_or_of_another_type_is_none() {
        let request = Request { session: SessionId::Pillar, first: 7, count: 3 };
        let bytes = Pillar::request(&request);
        assert_eq!(Pillar::read_request(&bytes), Some(request));
        let mut backwards = bytes.clone();
        backwards[24] = 5;
        assert_eq!(Pillar::read_request(&backwards), None);
        let mut too_many = bytes.clone();
        too_many[26] = 1;
        assert_eq!(Pillar::read_request(&too_many), None);
        let mut other = bytes;
        other[18] = 11;
        assert_eq!(Pillar::read_request(&other), None);
    }
}
