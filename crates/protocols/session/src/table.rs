//! The table of venues: the type of each [`TransportKind`], and the row of each protocol.
//!
//! The machines in `requests` and `snapshot` reach a venue's folder only through this table.

use std::ops::Range;

use tapeworks_wire::DecodeError;

use crate::dialect::requests::RequestRules;
use crate::dialect::snapshots::SnapshotRules;
use crate::protocols::{RequestProtocol, SnapshotProtocol};
use crate::transport::{Header, Request, SessionId, Transport, TransportKind};
use crate::{cboe, lse, memx, nasdaq, nyse};

/// The ends of snapshots on a group. NYSE's are the only ones.
pub(crate) use crate::nyse::{RefreshClient as GroupClient, RefreshServer as GroupServer};

/// Runs an expression with the type of a [`TransportKind`].
///
/// ```
/// use tapeworks_session::{Transport, TransportKind, for_transport};
///
/// let bytes = for_transport!(TransportKind::IexTp, T => T::HEADER_BYTES);
/// assert_eq!(bytes, 40);
/// ```
#[macro_export]
macro_rules! for_transport {
    ($kind:expr, $transport:ident => $body:expr) => {
        $crate::for_transport!(
            $kind, $transport => $body;
            MoldUdp64, IexTp, CboeUnit, MitchUnit, CtaBlock, Pillar, Memoir
        )
    };
    ($kind:expr, $transport:ident => $body:expr; $($row:ident),+) => {
        match $kind {
            $($crate::TransportKind::$row => {
                type $transport = $crate::$row;
                $body
            })+
        }
    };
}

impl TransportKind {
    /// Every transport.
    pub const ALL: [Self; 7] = [
        Self::MoldUdp64,
        Self::IexTp,
        Self::Memoir,
        Self::CboeUnit,
        Self::Pillar,
        Self::MitchUnit,
        Self::CtaBlock,
    ];

    /// Builds a session ID: see [`Transport::session`].
    #[must_use]
    pub fn session(self, number: u32) -> SessionId {
        for_transport!(self, T => T::session(number))
    }

    /// Decodes the header of a payload.
    ///
    /// # Errors
    /// The payload is shorter than the header, or is not a packet of the channel.
    #[inline]
    pub fn header(self, payload: &[u8]) -> Result<Header, DecodeError> {
        for_transport!(self, T => T::packet(payload).map(|packet| packet.header))
    }

    /// Returns whether a payload's messages match its header, to the last byte. Without messages, it consists of its header.
    #[must_use]
    pub fn is_sound(self, payload: &[u8]) -> bool {
        for_transport!(self, T => T::is_sound(payload))
    }

    /// Returns when the venue sent the payload: see [`Transport::sent_ns`].
    #[inline]
    #[must_use]
    pub fn sent_ns(self, payload: &[u8]) -> Option<u64> {
        for_transport!(self, T => T::sent_ns(payload))
    }

    /// Returns whether the payload's header marks it as an answer to a request.
    #[must_use]
    pub fn is_answer(self, payload: &[u8]) -> bool {
        for_transport!(self, T => T::is_answer(payload))
    }

    /// Returns whether the header says that the sender restarts its sequence numbers.
    #[must_use]
    pub fn restarts(self, payload: &[u8]) -> bool {
        for_transport!(self, T => T::restarts(payload))
    }

    /// Returns the first message of a payload; `None` if it has none or is truncated.
    #[inline]
    #[must_use]
    pub fn first_message(self, payload: &[u8]) -> Option<&[u8]> {
        for_transport!(self, T => T::packet(payload).ok()?.blocks.next()?.ok())
    }

    /// Passes each complete message of a payload to `each`, with its sequence number.
    pub fn each_message(self, payload: &[u8], mut each: impl FnMut(u64, &[u8])) {
        for_transport!(self, T => {
            let Ok(packet) = T::packet(payload) else { return };
            let Header { first, count, .. } = packet.header;
            let numbers = first..first.saturating_add(count);
            numbers.zip(packet.blocks.filter_map(Result::ok)).for_each(|(number, message)| each(number, message));
        });
    }

    /// Returns the numbers of messages that the server no longer has, if the payload is an answer that says so.
    #[must_use]
    pub fn unavailable(self, payload: &[u8]) -> Option<Range<u64>> {
        for_transport!(self, T => T::unavailable(payload))
    }

    /// Marks a packet as an answer to a request, if the header can.
    ///
    /// `is_only` means that no other packet answers the same request.
    pub fn mark_answer(self, packet: &mut [u8], is_only: bool) {
        for_transport!(self, T => T::mark_answer(packet, is_only));
    }

    /// Builds the answer that a server no longer has these messages; `None` if the transport has no such answer.
    #[must_use]
    pub fn write_unavailable(self, numbers: Range<u64>, now_ns: u64) -> Option<Vec<u8>> {
        for_transport!(self, T => T::write_unavailable(numbers, now_ns))
    }

    /// Decodes a request; `None` if the bytes are not one.
    #[must_use]
    pub fn read_request(self, bytes: &[u8]) -> Option<Request> {
        for_transport!(self, T => T::read_request(bytes))
    }

    /// Returns whether the transport has a packet that marks the end of a session.
    #[must_use]
    pub const fn marks_end(self) -> bool {
        for_transport!(self, T => T::MARKS_END)
    }

    /// Returns whether the header names the channel.
    #[must_use]
    pub const fn names_channel(self) -> bool {
        for_transport!(self, T => T::NAMES_CHANNEL)
    }

    /// Returns the header length of a packet with messages, in bytes.
    #[must_use]
    pub const fn header_bytes(self) -> usize {
        for_transport!(self, T => T::HEADER_BYTES)
    }
}

impl Request {
    /// Encodes the request for the venue's retransmission server.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        for_transport!(self.session.transport(), T => T::request(self))
    }
}

impl RequestProtocol {
    /// Returns the venue's row.
    pub(crate) const fn rules(self) -> &'static RequestRules {
        match self {
            Self::Grp => &cboe::REQUESTS,
            Self::Pillar => &nyse::REQUESTS,
            Self::Mitch => &lse::REQUESTS,
            Self::Memx => &memx::REQUESTS,
        }
    }

    /// Returns the request protocol of a transport, if its venue accepts requests over TCP.
    #[must_use]
    pub const fn of(transport: TransportKind) -> Option<Self> {
        for_transport!(transport, T => T::REQUESTS)
    }

    /// Returns the transport of the channels that use this request protocol.
    #[must_use]
    pub fn transport(self) -> TransportKind {
        let of = |transport: &TransportKind| Self::of(*transport) == Some(self);
        let transport = TransportKind::ALL.into_iter().find(of);
        debug_assert!(transport.is_some(), "every protocol is declared by a transport");
        transport.unwrap_or(TransportKind::ALL[0])
    }
}

impl SnapshotProtocol {
    /// Returns the venue's row.
    pub(crate) const fn rules(self) -> &'static SnapshotRules {
        match self {
            Self::Glimpse => &nasdaq::SNAPSHOTS,
            Self::Spin => &cboe::SNAPSHOTS,
            Self::Refresh => &nyse::SNAPSHOTS,
            Self::Mitch => &lse::SNAPSHOTS,
            Self::Memx => &memx::SNAPSHOTS,
        }
    }

    /// Returns the protocol of snapshots that arrive over the connection.
    #[must_use]
    pub const fn of(transport: TransportKind) -> Self {
        for_transport!(transport, T => T::SNAPSHOTS)
    }

    /// Returns the protocol of snapshots that arrive on a group, if the venue has them.
    #[must_use]
    pub const fn by_group(transport: TransportKind) -> Option<Self> {
        for_transport!(transport, T => T::GROUP_SNAPSHOTS)
    }
}

#[cfg(test)]
mod tests {
    use tapeworks_wire::framing::{LengthPrefix, write_block};

    use super::*;
    use crate::transport::{Content, Outgoing};
    use crate::{IexTp, MoldUdp64};

    #[test]
    fn a_request_is_read_as_it_was_written() {
        for session in TransportKind::ALL.map(|transport| transport.session(7)) {
            // Units have 32-bit numbers and 8-bit counts.
            let (first, count) = match session {
                SessionId::CboeUnit(_) | SessionId::MitchUnit(_) | SessionId::CtaBlock(_) => (1 << 31, 255),
                SessionId::Pillar => (1 << 31, 65_534),
                _ => (1 << 40, 65_534),
            };
            let request = Request { session, first, count };
            assert_eq!(session.transport().read_request(&request.encode()), Some(request));
            assert_eq!(session.transport().read_request(&request.encode()[1..]), None);
        }
    }

    /// Builds a packet of three messages with this count in its header.
    fn packet(transport: TransportKind, messages: u16) -> Vec<u8> {
        for_transport!(transport, T => {
            let session = transport.session(7);
            let mut blocks = [0; 100];
            let mut end = 0;
            // A length that counts itself is the start of its message.
            let shortest = &b"ll"[..<<T as Transport>::Prefix as LengthPrefix>::OWN_BYTES];
            for message in [&b"one"[..], b"second", shortest] {
                end += write_block(T::prefix(), &mut blocks[end..], message).unwrap();
            }
            let content = Content::Messages;
            let header =
                Outgoing { session, sequence: 5, messages, content, stream_offset: 0, payload_bytes: end, send_time_ns: 0 };
            let mut payload = vec![0; T::HEADER_BYTES];
            assert_eq!(T::write_header(&header, &mut payload), T::HEADER_BYTES);
            payload.extend_from_slice(&blocks[..end]);
            payload
        })
    }

    #[test]
    fn a_packet_is_sound_if_its_messages_are_what_the_header_says() {
        for transport in TransportKind::ALL {
            let sound = packet(transport, 3);
            assert!(transport.is_sound(&sound));
            for end in 0..sound.len() {
                assert!(!transport.is_sound(&sound[..end]), "{transport:?} cut to {end}");
            }
            let longer = [&sound[..], &[0]].concat();
            assert!(!transport.is_sound(&longer), "{transport:?}");
            for count in [0, 1, 2, 4, 5, 1_000, u16::MAX] {
                assert!(!transport.is_sound(&packet(transport, count)), "{transport:?} {count}");
            }
        }
        let mut segment = packet(IexTp::KIND, 3);
        // A payload length one too small, and one too large.
        for length in [segment.len() as u16 - 41, segment.len() as u16 - 39] {
            segment[12..14].copy_from_slice(&length.to_le_bytes());
            assert!(!IexTp::KIND.is_sound(&segment), "{length}");
        }
    }

    #[test]
    fn a_heartbeat_is_sound_without_a_byte_behind_it() {
        for transport in TransportKind::ALL {
            for_transport!(transport, T => {
                let session = transport.session(7);
                for content in [Content::Heartbeat, Content::EndOfSession] {
                    let header =
                        Outgoing { session, sequence: 5, messages: 0, content, stream_offset: 0, payload_bytes: 0, send_time_ns: 0 };
                    let mut payload = vec![0; 100];
                    let length = T::write_header(&header, &mut payload);
                    payload.truncate(length);
                    assert!(transport.is_sound(&payload), "{transport:?} {content:?}");
                    payload.push(0);
                    assert!(!transport.is_sound(&payload), "{transport:?} {content:?}");
                }
            });
        }
    }

    #[test]
    fn a_session_of_another_transport_writes_no_header() {
        let header = Outgoing {
            session: SessionId::MoldUdp64(*b"AA00000007"),
            sequence: 1,
            messages: 0,
            content: Content::Heartbeat,
            stream_offset: 0,
            payload_bytes: 0,
            send_time_ns: 0,
        };
        assert_eq!(IexTp::write_header(&header, &mut [0; 40]), 0);
        assert_eq!(MoldUdp64::write_header(&header, &mut [0; 40]), 20);
    }
}
