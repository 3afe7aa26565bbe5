//! MEMX's MEMOIR UDP as a [`Transport`].
//!
//! MEMX accepts requests over TCP ([`requests`](crate::requests)). The datagram requests here are for our own servers,
//! modelled on MoldUDP64's: the 20-byte header of a packet with messages, which names the session, the first sequence
//! number and the count, but without the messages.

use tapeworks_wire::DecodeError;
use tapeworks_wire::framing::{BigEndian, Blocks};
use tapeworks_wire::memx::udp::{
    CommonHeader, CommonHeaderFields, HEADER_LENGTH, MessageType, SCHEMA, SequencedPacket,
    SequencedPacketFields,
};
use tapeworks_wire::schema::{Decoded, Schema, Structure};

use crate::protocols::{RequestProtocol, SnapshotProtocol};
use crate::transport::{Content, Header, Outgoing, Packet, Request, SessionId, Transport, TransportKind};

/// MEMOIR UDP.
#[derive(Clone, Copy, Debug)]
pub struct Memoir;

impl Transport for Memoir {
    type Prefix = BigEndian;

    const KIND: TransportKind = TransportKind::Memoir;
    const SCHEMA: &'static Schema = &SCHEMA;
    const MARKS_END: bool = true;
    const HEADER: &'static Structure = &SequencedPacket::SCHEMA;
    const HEADER_BYTES: usize = 20;
    const REQUESTS: Option<RequestProtocol> = Some(RequestProtocol::Memx);
    const SNAPSHOTS: SnapshotProtocol = SnapshotProtocol::Memx;

    fn session(number: u32) -> SessionId {
        SessionId::Memoir(u64::from(number))
    }

    fn prefix() -> BigEndian {
        BigEndian
    }

    #[inline]
    fn packet(payload: &[u8]) -> Result<Packet<'_, BigEndian>, DecodeError> {
        let common = CommonHeader::decode(payload)?;
        let header = Header {
            session: SessionId::Memoir(common.session_id()),
            first: common.sequence_number(),
            count: 0,
            is_end_of_session: false,
        };
        let without_messages = Packet {
            header,
            header_bytes: usize::from(HEADER_LENGTH),
            blocks: Blocks::counted(&[], 0, BigEndian),
        };
        match common.message_type() {
            MessageType::SequencedMessages => SequencedPacket::decode(payload).map(|packet| Packet {
                header: Header { count: u64::from(packet.message_count()), ..header },
                header_bytes: Self::HEADER_BYTES,
                blocks: packet.blocks(),
            }),
            MessageType::Heartbeat => Ok(without_messages),
            MessageType::SessionShutdown => {
                Ok(Packet { header: Header { is_end_of_session: true, ..header }, ..without_messages })
            }
            MessageType::Unknown(tag) => Err(DecodeError::UnknownMessage { tag: u64::from(tag) }),
        }
    }

    fn fields(payload: &[u8]) -> Decoded<'_> {
        match payload.first().map(|byte| MessageType::from_raw(*byte)) {
            Some(MessageType::SequencedMessages) => Self::HEADER.decode(payload),
            _ => CommonHeader::SCHEMA.decode(payload),
        }
    }

    fn write_header(header: &Outgoing, target: &mut [u8]) -> usize {
        let SessionId::Memoir(session_id) = header.session else { return 0 };
        let message_type = match header.content {
            Content::Messages => {
                let fields = SequencedPacketFields {
                    message_type: MessageType::SequencedMessages,
                    header_length: HEADER_LENGTH,
                    session_id,
                    sequence_number: header.sequence,
                    message_count: header.messages,
                    messages: &[],
                };
                let target = target.get_mut(..Self::HEADER_BYTES).unwrap_or_default();
                return fields.encode_into(target).unwrap_or_default();
            }
            Content::Heartbeat => MessageType::Heartbeat,
            Content::EndOfSession => MessageType::SessionShutdown,
        };
        let sequence_number = header.sequence;
        let fields =
            CommonHeaderFields { message_type, header_length: HEADER_LENGTH, session_id, sequence_number };
        let Some(place) = target.first_chunk_mut::<18>() else { return 0 };
        *place = fields.encode();
        place.len()
    }

    fn read_request(bytes: &[u8]) -> Option<Request> {
        let packet = SequencedPacket::decode(bytes).ok().filter(|_| bytes.len() == Self::HEADER_BYTES)?;
        let is_request = packet.message_type() == MessageType::SequencedMessages
            && packet.header_length() == HEADER_LENGTH;
        is_request.then(|| Request {
            session: SessionId::Memoir(packet.session_id()),
            first: packet.sequence_number(),
            count: packet.message_count(),
        })
    }
}
