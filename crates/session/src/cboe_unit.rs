//! Cboe's sequenced unit header as a [`Transport`].
//!
//! There is no session: a unit numbers its messages from 1 on each day. Requests go to Cboe's Gap Request Proxy over TCP
//! ([`requests`](crate::requests)), and the messages come by multicast. The requests here are for servers of ours that take datagrams: a header
//! without messages, with the count of the wanted ones, at most 255.

use tapeworks_wire::DecodeError;
use tapeworks_wire::cboe::unit::{PREFIX, Prefix, SCHEMA, SequencedUnit, SequencedUnitFields};
use tapeworks_wire::schema::{Decoded, Schema};

use crate::transport::{Header, Outgoing, Packet, Request, SessionId, Transport, TransportKind};

/// The sequenced unit header.
#[derive(Clone, Copy, Debug)]
pub struct CboeUnit;

/// Bytes of the header.
const HEADER: usize = 8;

fn header_fields(session: SessionId, count: u16, first: u64) -> Option<SequencedUnitFields<'static>> {
    let SessionId::CboeUnit(unit) = session else { return None };
    // A packet has fewer than 256 messages: the shortest has 6 bytes.
    let count = u8::try_from(count).unwrap_or(u8::MAX);
    let sequence = u32::try_from(first).unwrap_or(u32::MAX);
    Some(SequencedUnitFields { length: HEADER as u16, count, unit, sequence, messages: &[] })
}

impl Transport for CboeUnit {
    type Prefix = Prefix;

    const KIND: TransportKind = TransportKind::CboeUnit;
    const SCHEMA: &'static Schema = &SCHEMA;
    const HEADER_BYTES: usize = HEADER;
    const NAMES_CHANNEL: bool = false;
    const MARKS_END: bool = false;

    fn prefix() -> Prefix {
        PREFIX
    }

    #[inline]
    fn packet(payload: &[u8]) -> Result<Packet<'_, Prefix>, DecodeError> {
        SequencedUnit::decode(payload).map(|packet| Packet {
            header: Header {
                session: SessionId::CboeUnit(packet.unit()),
                first: u64::from(packet.sequence()),
                count: u64::from(packet.count()),
                is_end_of_session: false,
            },
            header_bytes: HEADER,
            blocks: packet.blocks(),
        })
    }

    fn length(payload: &[u8]) -> Option<usize> {
        SequencedUnit::decode(payload).ok().map(|packet| usize::from(packet.length()))
    }

    fn fields(payload: &[u8]) -> Decoded<'_> {
        SequencedUnit::SCHEMA.decode(payload)
    }

    fn write_header(header: &Outgoing, target: &mut [u8]) -> usize {
        let Some(fields) = header_fields(header.session, header.messages, header.sequence) else { return 0 };
        // No packet is longer than MAX_PAYLOAD_BYTES.
        let fields = SequencedUnitFields { length: (HEADER + header.payload_bytes) as u16, ..fields };
        fields.encode_into(target.get_mut(..HEADER).unwrap_or_default()).unwrap_or_default()
    }

    fn request(request: &Request) -> Vec<u8> {
        let Some(fields) = header_fields(request.session, request.count, request.first) else {
            return Vec::new();
        };
        let mut bytes = vec![0; HEADER];
        let written = fields.encode_into(&mut bytes);
        debug_assert!(written.is_ok(), "a header has 8 bytes: {written:?}");
        bytes
    }

    fn read_request(bytes: &[u8]) -> Option<Request> {
        let packet = SequencedUnit::decode(bytes).ok().filter(|_| bytes.len() == HEADER)?;
        (usize::from(packet.length()) == HEADER).then(|| Request {
            session: SessionId::CboeUnit(packet.unit()),
            first: u64::from(packet.sequence()),
            count: u16::from(packet.count()),
        })
    }
}
