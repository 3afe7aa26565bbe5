//! IEX-TP as a [`Transport`]: *IEX Transport Specification* 1.25.
//!
//! IEX does not publish its request format. The format here is ours, modelled on MoldUDP64's: a 40-byte segment header
//! with payload length 0 that names the protocol, channel, session, first sequence number and count. Stream offset and
//! send time are ignored. The answer is a segment.

use tapeworks_wire::framing::LittleEndian;
use tapeworks_wire::iex::tp::{MessageProtocolId, SCHEMA, Segment, SegmentFields};
use tapeworks_wire::schema::{Schema, Structure};
use tapeworks_wire::{DecodeError, NanosecondsSinceEpoch};

use crate::transport::{Header, Outgoing, Packet, Request, SessionId, Transport, TransportKind};

/// IEX-TP.
#[derive(Clone, Copy, Debug)]
pub struct IexTp;

impl Transport for IexTp {
    type Prefix = LittleEndian;

    const KIND: TransportKind = TransportKind::IexTp;
    const SCHEMA: &'static Schema = &SCHEMA;
    const HEADER: &'static Structure = &Segment::SCHEMA;
    const HEADER_BYTES: usize = 40;
    const NAMES_CHANNEL: bool = true;

    /// Returns a session of DEEP, on channel 1.
    fn session(number: u32) -> SessionId {
        SessionId::IexTp { protocol: MessageProtocolId::Deep.raw(), channel: 1, session: number }
    }

    fn prefix() -> LittleEndian {
        LittleEndian
    }

    #[inline]
    fn packet(payload: &[u8]) -> Result<Packet<'_, LittleEndian>, DecodeError> {
        Segment::decode(payload).map(|segment| Packet {
            header: Header {
                session: SessionId::IexTp {
                    protocol: segment.message_protocol_id().raw(),
                    channel: segment.channel_id(),
                    session: segment.session_id(),
                },
                first: segment.first_message_sequence_number(),
                count: u64::from(segment.message_count()),
                is_end_of_session: false,
            },
            header_bytes: Self::HEADER_BYTES,
            blocks: segment.blocks(),
        })
    }

    fn length(payload: &[u8]) -> Option<usize> {
        Segment::decode(payload)
            .ok()
            .map(|segment| Self::HEADER_BYTES + usize::from(segment.payload_length()))
    }

    fn sent_ns(payload: &[u8]) -> Option<u64> {
        Segment::decode(payload).ok().map(|segment| segment.send_time().0)
    }

    /// Detects a stream offset of 0: no byte of the session was sent before.
    fn restarts(payload: &[u8]) -> bool {
        Segment::decode(payload)
            .is_ok_and(|segment| segment.stream_offset() == 0 && segment.first_message_sequence_number() <= 1)
    }

    fn write_header(header: &Outgoing, target: &mut [u8]) -> usize {
        let SessionId::IexTp { protocol, channel, session } = header.session else { return 0 };
        let fields = SegmentFields {
            version: 1,
            reserved: [0],
            message_protocol_id: MessageProtocolId::from_raw(protocol),
            channel_id: channel,
            session_id: session,
            // No packet is longer than MAX_PAYLOAD_BYTES.
            payload_length: header.payload_bytes as u16,
            message_count: header.messages,
            stream_offset: header.stream_offset,
            first_message_sequence_number: header.sequence,
            send_time: NanosecondsSinceEpoch(header.send_time_ns),
            messages: &[],
        };
        fields.encode_into(target.get_mut(..Self::HEADER_BYTES).unwrap_or_default()).unwrap_or_default()
    }

    fn read_request(bytes: &[u8]) -> Option<Request> {
        let segment = Segment::decode(bytes).ok().filter(|_| bytes.len() == Self::HEADER_BYTES)?;
        let session = Self::packet(bytes).ok()?.header.session;
        (segment.version() == 1 && segment.payload_length() == 0).then(|| Request {
            session,
            first: segment.first_message_sequence_number(),
            count: segment.message_count(),
        })
    }
}
