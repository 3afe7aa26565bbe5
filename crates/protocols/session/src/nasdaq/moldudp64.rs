//! MoldUDP64 as a [`Transport`]: *MoldUDP64 Protocol Specification* 1.00.

use tapeworks_wire::framing::BigEndian;
use tapeworks_wire::nasdaq::moldudp64::{
    DownstreamPacket, DownstreamPacketFields, END_OF_SESSION, HEARTBEAT, RequestPacket, SCHEMA,
};
use tapeworks_wire::schema::{Schema, Structure};
use tapeworks_wire::{Ascii, DecodeError};

use crate::transport::{
    Content, Header, Outgoing, Packet, Request, SessionId, Transport, TransportKind, digits,
};

/// MoldUDP64.
#[derive(Clone, Copy, Debug)]
pub struct MoldUdp64;

impl Transport for MoldUdp64 {
    type Prefix = BigEndian;

    const KIND: TransportKind = TransportKind::MoldUdp64;
    const SCHEMA: &'static Schema = &SCHEMA;
    const MARKS_END: bool = true;
    const HEADER: &'static Structure = &DownstreamPacket::SCHEMA;
    const HEADER_BYTES: usize = 20;

    fn session(number: u32) -> SessionId {
        SessionId::MoldUdp64(digits(number).0)
    }

    fn prefix() -> BigEndian {
        BigEndian
    }

    #[inline]
    fn packet(payload: &[u8]) -> Result<Packet<'_, BigEndian>, DecodeError> {
        DownstreamPacket::decode(payload).map(|packet| Packet {
            header: Header {
                session: SessionId::MoldUdp64(packet.session().0),
                first: packet.sequence_number(),
                count: u64::from(packet.count()),
                is_end_of_session: packet.is_end_of_session(),
            },
            header_bytes: Self::HEADER_BYTES,
            blocks: packet.blocks(),
        })
    }

    fn write_header(header: &Outgoing, target: &mut [u8]) -> usize {
        let SessionId::MoldUdp64(session) = header.session else { return 0 };
        let message_count = match header.content {
            Content::Messages => header.messages,
            Content::Heartbeat => HEARTBEAT,
            Content::EndOfSession => END_OF_SESSION,
        };
        let fields = DownstreamPacketFields {
            session: Ascii(session),
            sequence_number: header.sequence,
            message_count,
            messages: &[],
        };
        fields.encode_into(target.get_mut(..Self::HEADER_BYTES).unwrap_or_default()).unwrap_or_default()
    }

    fn read_request(bytes: &[u8]) -> Option<Request> {
        let request = RequestPacket::decode(bytes).ok().filter(|_| bytes.len() == Self::HEADER_BYTES)?;
        Some(Request {
            session: SessionId::MoldUdp64(request.session().0),
            first: request.sequence_number(),
            count: request.requested_message_count(),
        })
    }
}
