//! SoupBinTCP 3.0: logins, heartbeats and numbered messages over TCP.
//!
//! Source: *SoupBinTCP* specification 3.00. A packet is a two-byte big-endian length (of the bytes after it), a type, and the
//! payload. Offsets here count from the length. Server packets: debug, login accepted, login rejected, sequenced data, server
//! heartbeat, end of session. Client packets: debug, login request, unsequenced data, client heartbeat, logout request.
//! Sequenced messages carry no number on the wire: receivers count from the number in login accepted. Either side sends a
//! heartbeat after one second of silence and disconnects after fifteen.

use crate::framing::FramingError;

tapeworks_wire_macros::protocol! {
    /// Logins, heartbeats and numbered messages over TCP.
    protocol "nasdaq-soupbintcp-3.0" {
        title: "SoupBinTCP 3.0",
        version: "3.0",
        endian: big,
        tag: ascii<1> @ 2,
        length: exact,
    }

    /// Free text from either side, for people.
    message Debug = '+', 3.. bytes {
        packet_length @ 0: u16,
        text          @ 3: rest,
    }

    /// Server: the login is accepted.
    message LoginAccepted = 'A', 33 bytes {
        packet_length   @ 0 : u16,
        session         @ 3 : ascii<10>,
        /// The number of the next sequenced message.
        sequence_number @ 13: ascii_number<20>,
    }

    enum RejectReasonCode: ascii<1> {
        /// Wrong user name or password.
        NotAuthorised = 'A',
        /// The requested session is not there.
        SessionNotAvailable = 'S',
    }

    /// Server: the login is rejected, and the connection will be closed.
    message LoginRejected = 'J', 4 bytes {
        packet_length      @ 0: u16,
        reject_reason_code @ 3: RejectReasonCode,
    }

    /// Server: the next message of the session.
    message SequencedData = 'S', 3.. bytes {
        packet_length @ 0: u16,
        message       @ 3: rest,
    }

    /// Server: no other packet was sent for a second.
    message ServerHeartbeat = 'H', 3 bytes {
        packet_length @ 0: u16,
    }

    /// Server: the session is over.
    message EndOfSession = 'Z', 3 bytes {
        packet_length @ 0: u16,
    }

    /// Client: requests a login.
    message LoginRequest = 'L', 49 bytes {
        packet_length             @ 0 : u16,
        username                  @ 3 : ascii<6>,
        password                  @ 9 : ascii<10>,
        /// Blank: the session that runs now.
        requested_session         @ 19: ascii<10>,
        /// The number of the first message wanted; 0: the next new one.
        requested_sequence_number @ 29: ascii_number<20>,
    }

    /// Client: a message that is not numbered and may be lost with the connection.
    message UnsequencedData = 'U', 3.. bytes {
        packet_length @ 0: u16,
        message       @ 3: rest,
    }

    /// Client: no other packet was sent for a second.
    message ClientHeartbeat = 'R', 3 bytes {
        packet_length @ 0: u16,
    }

    /// Client: requests a logout.
    message LogoutRequest = 'O', 3 bytes {
        packet_length @ 0: u16,
    }
}

/// Iterates over the packets in a piece of a stream. Each item is a whole packet with its length, for [`Message::decode`]. If the
/// last packet is truncated, the last item is an error with the number of bytes it needs: on a live stream, keep
/// [`rest`](Self::rest) and continue reading.
#[derive(Clone, Debug)]
pub struct Packets<'a> {
    bytes: &'a [u8],
    offset: usize,
    failed: bool,
}

impl<'a> Packets<'a> {
    /// Creates an iterator over `bytes`, which start with a packet.
    #[inline]
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, offset: 0, failed: false }
    }

    /// Returns the number of bytes consumed so far.
    #[inline]
    #[must_use]
    pub const fn offset(&self) -> usize {
        self.offset
    }

    /// Returns the bytes not consumed yet: after the iteration, the truncated packet at the end.
    #[inline]
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.offset..).unwrap_or_default()
    }
}

impl<'a> Iterator for Packets<'a> {
    type Item = Result<&'a [u8], FramingError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.rest();
        if self.failed || rest.is_empty() {
            return None;
        }
        let needed = match rest.first_chunk::<2>() {
            Some(length) => 2 + usize::from(u16::from_be_bytes(*length)),
            None => 2,
        };
        match rest.get(..needed) {
            Some(packet) if rest.len() >= 2 => {
                self.offset += needed;
                Some(Ok(packet))
            }
            _ => {
                self.failed = true;
                Some(Err(FramingError::Cut { offset: self.offset, needed, got: rest.len() }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ascii, AsciiNumber};

    #[test]
    fn a_login_is_written_and_read() {
        let fields = LoginAcceptedFields {
            packet_length: 31,
            session: Ascii(*b"SESSION1  "),
            sequence_number: AsciiNumber::new(1_234).unwrap(),
        };
        let bytes = fields.encode();
        assert_eq!(&bytes, b"\x00\x1fASESSION1                  1234");
        let Message::LoginAccepted(view) = Message::decode(&bytes).unwrap() else { panic!("not a login") };
        assert_eq!(view.sequence_number().value(), Some(1_234));
        assert_eq!(view.to_fields(), fields);
    }

    #[test]
    fn a_stream_is_cut_into_packets() {
        let stream = b"\x00\x01H\x00\x04Sabc\x00\x05+x";
        let mut packets = Packets::new(stream);
        assert_eq!(packets.next(), Some(Ok(&b"\x00\x01H"[..])));
        let data = packets.next().unwrap().unwrap();
        let Message::SequencedData(data) = Message::decode(data).unwrap() else { panic!("not data") };
        assert_eq!(data.message(), b"abc");
        assert_eq!(packets.next(), Some(Err(FramingError::Cut { offset: 9, needed: 7, got: 4 })));
        assert_eq!(packets.next(), None);
        assert_eq!(packets.rest(), b"\x00\x05+x");
    }
}
