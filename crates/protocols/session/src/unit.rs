//! The unit headers of Cboe and MITCH as [`Transport`]s: the same eight bytes, with different names for the channel.
//!
//! The units have no sessions: a unit (at MITCH a market data group) numbers its messages from 1 each day. Both venues
//! accept requests and send snapshots over TCP ([`requests`](crate::requests), [`snapshot`](crate::snapshot)). The datagram
//! requests here are for our own servers: a header without messages that has the number of messages wanted, at most 255.

use std::marker::PhantomData;

use tapeworks_wire::DecodeError;
use tapeworks_wire::cboe::unit::{self as cboe, PREFIX, Prefix, SequencedUnit, SequencedUnitFields};
use tapeworks_wire::millennium::unit::{self as mitch, UnitHeader};
use tapeworks_wire::schema::{Decoded, Schema};

use crate::protocols::{RequestProtocol, SnapshotProtocol};
use crate::transport::{Header, Outgoing, Packet, Request, SessionId, Transport, TransportKind};

/// The differences between the protocols with this header.
pub trait Units {
    /// The transport.
    const KIND: TransportKind;
    /// See [`Transport::REQUESTS`].
    const REQUESTS: RequestProtocol;
    /// See [`Transport::SNAPSHOTS`].
    const SNAPSHOTS: SnapshotProtocol;
    /// The transport's declaration.
    const SCHEMA: &'static Schema;

    /// Returns the session of a unit.
    fn session(unit: u8) -> SessionId;

    /// Returns the unit of a session; `None` if the session is of another transport.
    fn unit(session: SessionId) -> Option<u8>;

    /// Decodes the fields of a datagram's header.
    fn fields(payload: &[u8]) -> Decoded<'_>;
}

/// Cboe's unit header.
#[derive(Clone, Copy, Debug)]
pub struct OfCboe;

impl Units for OfCboe {
    const KIND: TransportKind = TransportKind::CboeUnit;
    const REQUESTS: RequestProtocol = RequestProtocol::Grp;
    const SNAPSHOTS: SnapshotProtocol = SnapshotProtocol::Spin;
    const SCHEMA: &'static Schema = &cboe::SCHEMA;

    fn session(unit: u8) -> SessionId {
        SessionId::CboeUnit(unit)
    }

    fn unit(session: SessionId) -> Option<u8> {
        match session {
            SessionId::CboeUnit(unit) => Some(unit),
            _ => None,
        }
    }

    fn fields(payload: &[u8]) -> Decoded<'_> {
        SequencedUnit::SCHEMA.decode(payload)
    }
}

/// MITCH's unit header.
#[derive(Clone, Copy, Debug)]
pub struct OfMitch;

impl Units for OfMitch {
    const KIND: TransportKind = TransportKind::MitchUnit;
    const REQUESTS: RequestProtocol = RequestProtocol::Mitch;
    const SNAPSHOTS: SnapshotProtocol = SnapshotProtocol::Mitch;
    const SCHEMA: &'static Schema = &mitch::SCHEMA;

    fn session(unit: u8) -> SessionId {
        SessionId::MitchUnit(unit)
    }

    fn unit(session: SessionId) -> Option<u8> {
        match session {
            SessionId::MitchUnit(group) => Some(group),
            _ => None,
        }
    }

    fn fields(payload: &[u8]) -> Decoded<'_> {
        UnitHeader::SCHEMA.decode(payload)
    }
}

/// A unit header. Cboe's declaration decodes the bytes; MITCH's has the same layout.
#[derive(Clone, Copy, Debug)]
pub struct Unit<Of>(PhantomData<Of>);

/// Cboe's sequenced unit header.
pub type CboeUnit = Unit<OfCboe>;

/// MITCH's unit header.
pub type MitchUnit = Unit<OfMitch>;

/// Length of the header in bytes.
const HEADER: usize = 8;

fn header_fields<Of: Units>(
    session: SessionId,
    count: u16,
    first: u64,
) -> Option<SequencedUnitFields<'static>> {
    let unit = Of::unit(session)?;
    // A packet has fewer than 256 messages: the shortest message has 6 bytes.
    let count = u8::try_from(count).unwrap_or(u8::MAX);
    let sequence = u32::try_from(first).unwrap_or(u32::MAX);
    Some(SequencedUnitFields { length: HEADER as u16, count, unit, sequence, messages: &[] })
}

impl<Of: Units> Transport for Unit<Of> {
    type Prefix = Prefix;

    const KIND: TransportKind = Of::KIND;
    const SCHEMA: &'static Schema = Of::SCHEMA;
    const HEADER_BYTES: usize = HEADER;
    const NAMES_CHANNEL: bool = false;
    const REQUESTS: Option<RequestProtocol> = Some(Of::REQUESTS);
    const SNAPSHOTS: SnapshotProtocol = Of::SNAPSHOTS;

    fn session(number: u32) -> SessionId {
        Of::session(number as u8)
    }
    const MARKS_END: bool = false;

    fn prefix() -> Prefix {
        PREFIX
    }

    #[inline]
    fn packet(payload: &[u8]) -> Result<Packet<'_, Prefix>, DecodeError> {
        SequencedUnit::decode(payload).map(|packet| Packet {
            header: Header {
                session: Of::session(packet.unit()),
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
        Of::fields(payload)
    }

    fn write_header(header: &Outgoing, target: &mut [u8]) -> usize {
        let Some(fields) = header_fields::<Of>(header.session, header.messages, header.sequence) else {
            return 0;
        };
        // No packet is longer than MAX_PAYLOAD_BYTES.
        let fields = SequencedUnitFields { length: (HEADER + header.payload_bytes) as u16, ..fields };
        fields.encode_into(target.get_mut(..HEADER).unwrap_or_default()).unwrap_or_default()
    }

    fn request(request: &Request) -> Vec<u8> {
        let Some(fields) = header_fields::<Of>(request.session, request.count, request.first) else {
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
            session: Of::session(packet.unit()),
            first: u64::from(packet.sequence()),
            count: u16::from(packet.count()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_of_the_venue_that_the_reader_names() {
        let payload = [8, 0, 0, b'A', 9, 0, 0, 0];
        let session = |header: Header| (header.session, header.first, header.count);
        let cboes = CboeUnit::packet(&payload).unwrap().header;
        assert_eq!(session(cboes), (SessionId::CboeUnit(b'A'), 9, 0));
        let mitchs = MitchUnit::packet(&payload).unwrap().header;
        assert_eq!(session(mitchs), (SessionId::MitchUnit(b'A'), 9, 0));
        assert!(!cboes.session.is_of_channel_of(&mitchs.session));
        assert!(MitchUnit::request(&Request { session: cboes.session, first: 1, count: 1 }).is_empty());
        assert_eq!(CboeUnit::fields(&payload).name(), Some("SequencedUnit"));
        assert_eq!(MitchUnit::fields(&payload).name(), Some("UnitHeader"));
    }
}
