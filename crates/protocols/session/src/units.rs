//! The unit headers of Cboe and MITCH as [`Transport`]s: the same eight bytes, with different names for the channel.
//!
//! The units have no sessions: a unit (at MITCH a market data group) numbers its messages from 1 each day. Both venues
//! accept requests and send snapshots over TCP ([`requests`](crate::requests), [`snapshot`](crate::snapshot)). The datagram
//! requests here are for our own servers: a header without messages that has the number of messages wanted, at most 255.

pub(crate) mod tcp;

use std::marker::PhantomData;

use tapeworks_wire::DecodeError;
use tapeworks_wire::cboe::unit::{PREFIX, Prefix, SequencedUnit, SequencedUnitFields};
use tapeworks_wire::schema::{Schema, Structure};

use crate::protocols::{RequestProtocol, SnapshotProtocol};
use crate::transport::{Header, Outgoing, Packet, SessionId, Transport, TransportKind};

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
    /// The header's declaration.
    const HEADER: &'static Structure;
    /// Returns the session of a unit.
    const SESSION: fn(u8) -> SessionId;
}

/// A unit header. Cboe's declaration decodes the bytes; MITCH's has the same layout.
#[derive(Clone, Copy, Debug)]
pub struct Unit<Of>(PhantomData<Of>);

/// Length of the header in bytes.
const HEADER: usize = 8;

impl<Of: Units> Transport for Unit<Of> {
    type Prefix = Prefix;

    const KIND: TransportKind = Of::KIND;
    const SCHEMA: &'static Schema = Of::SCHEMA;
    const HEADER: &'static Structure = Of::HEADER;
    const HEADER_BYTES: usize = HEADER;
    const REQUESTS: Option<RequestProtocol> = Some(Of::REQUESTS);
    const SNAPSHOTS: SnapshotProtocol = Of::SNAPSHOTS;

    fn session(number: u32) -> SessionId {
        Of::SESSION(number as u8)
    }

    fn prefix() -> Prefix {
        PREFIX
    }

    #[inline]
    fn packet(payload: &[u8]) -> Result<Packet<'_, Prefix>, DecodeError> {
        SequencedUnit::decode(payload).map(|packet| Packet {
            header: Header {
                session: Of::SESSION(packet.unit()),
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

    fn write_header(header: &Outgoing, target: &mut [u8]) -> usize {
        let unit = match header.session {
            SessionId::CboeUnit(unit) | SessionId::MitchUnit(unit) if Of::SESSION(unit) == header.session => {
                unit
            }
            _ => return 0,
        };
        let fields = SequencedUnitFields {
            // No packet is longer than MAX_PAYLOAD_BYTES.
            length: (HEADER + header.payload_bytes) as u16,
            // Nor has one 256 messages: the shortest message has 6 bytes.
            count: u8::try_from(header.messages).unwrap_or(u8::MAX),
            unit,
            sequence: u32::try_from(header.sequence).unwrap_or(u32::MAX),
            messages: &[],
        };
        fields.encode_into(target.get_mut(..HEADER).unwrap_or_default()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::Request;
    use crate::{CboeUnit, MitchUnit};

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
