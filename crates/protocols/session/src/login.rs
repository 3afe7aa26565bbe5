//! Logins to a SoupBinTCP server: splits a client's bytes into packets, checks the login, and builds the answers.

use subtle::ConstantTimeEq;
use tapeworks_wire::nasdaq::soupbintcp::{
    LoginAccepted, LoginAcceptedFields, LoginRejected, LoginRejectedFields, Packets, RejectReasonCode,
};
use tapeworks_wire::{Ascii, AsciiNumber};

const SECOND_NS: u64 = 1_000_000_000;

/// How long a client may take to log in, in nanoseconds.
pub const LOGIN_TIMEOUT_NS: u64 = 10 * SECOND_NS;

/// How long a client may read nothing, in nanoseconds: the limit of SoupBinTCP itself.
pub const STALL_TIMEOUT_NS: u64 = 15 * SECOND_NS;

/// A heartbeat is sent after this long without another packet, in nanoseconds.
pub const HEARTBEAT_NS: u64 = SECOND_NS;

/// The longest packet that a client may send, in bytes including its length field: a login has 49.
pub const LONGEST_PACKET_BYTES: usize = 256;

/// Who may log in. How long the texts may be depends on the protocol
/// ([`SnapshotProtocol::login_limits`](crate::snapshot::SnapshotProtocol::login_limits)).
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The user's name.
    pub user: String,
    /// The password.
    pub password: String,
}

impl std::fmt::Debug for Credentials {
    /// Omits the password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

impl Credentials {
    /// Returns whether a login has this user and password, ignoring surrounding blanks. Compares in constant time.
    #[must_use]
    pub fn admit(&self, user: &[u8], password: &[u8]) -> bool {
        let is_same = |one: &[u8], other: &str| one.trim_ascii().ct_eq(other.as_bytes().trim_ascii());
        bool::from(is_same(user, &self.user) & is_same(password, &self.password))
    }
}

/// Returns whether a login has the required credentials. If none are required, any client may log in.
pub fn is_known(wanted: Option<&Credentials>, user: &[u8], password: &[u8]) -> bool {
    wanted.is_none_or(|wanted| wanted.admit(user, password))
}

/// Returns whether a client requested the running session, by name or with a blank name.
pub fn is_session(requested: &[u8; 10], running: &[u8; 10]) -> bool {
    let is_blank = requested.iter().all(|byte| matches!(byte, b' ' | 0));
    is_blank || requested.trim_ascii() == running.trim_ascii()
}

/// Builds the acceptance of a login: the session, and the sequence number of the first message.
pub fn accepted(session: [u8; 10], first: u64) -> [u8; LoginAccepted::LENGTH] {
    let fields = LoginAcceptedFields {
        packet_length: (LoginAccepted::LENGTH - 2) as u16,
        session: Ascii(session),
        // A 64-bit number has at most 20 digits.
        sequence_number: AsciiNumber::new(first).unwrap_or(AsciiNumber([b' '; 20])),
    };
    fields.encode()
}

/// Builds the rejection of a login.
pub fn rejected(reason: RejectReasonCode) -> [u8; LoginRejected::LENGTH] {
    LoginRejectedFields { packet_length: 2, reject_reason_code: reason }.encode()
}

/// A side sent a packet longer than its limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooLong;

/// Splits one side's bytes into packets. Keeps the start of an incomplete packet, up to the longest allowed length.
#[derive(Debug, Clone, Default)]
pub struct PacketReader {
    start: Vec<u8>,
    longest_bytes: usize,
}

impl PacketReader {
    /// Creates a reader for a client, whose packets have at most [`LONGEST_PACKET_BYTES`].
    pub const fn new() -> Self {
        Self::with_longest(LONGEST_PACKET_BYTES)
    }

    /// Creates a reader for a side whose longest packet has this many bytes, including its length field.
    pub const fn with_longest(longest_bytes: usize) -> Self {
        Self { start: Vec::new(), longest_bytes }
    }

    /// Reads bytes split at any point and passes each complete packet to `each`.
    pub fn read(&mut self, bytes: &[u8], mut each: impl FnMut(&[u8])) -> Result<(), TooLong> {
        self.start.extend_from_slice(bytes);
        let mut packets = Packets::new(&self.start);
        packets.by_ref().filter_map(Result::ok).for_each(&mut each);
        let rest = packets.rest();
        let is_too_long = rest
            .first_chunk::<2>()
            .is_some_and(|length| 2 + usize::from(u16::from_be_bytes(*length)) > self.longest_bytes);
        let used = self.start.len() - rest.len();
        self.start.drain(..used);
        if is_too_long {
            self.start.clear();
            return Err(TooLong);
        }
        Ok(())
    }

    /// Returns the number of buffered bytes.
    #[cfg(test)]
    pub(crate) const fn kept(&self) -> usize {
        self.start.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::requests::{LoginFields, RequestLogin};
    use crate::dialect::snapshots::SnapshotLogin;
    use crate::protocols::RequestProtocol;

    #[test]
    fn packets_come_whole_however_the_bytes_are_cut() {
        let stream = b"\0\x01R\0\x04Uabc\0\x01O";
        for cut in 1..=stream.len() {
            let (mut reader, mut packets) = (PacketReader::new(), Vec::new());
            for part in stream.chunks(cut) {
                reader.read(part, |packet| packets.push(packet.to_vec())).unwrap();
            }
            assert_eq!(packets, [&b"\0\x01R"[..], b"\0\x04Uabc", b"\0\x01O"], "{cut}");
            assert!(reader.start.is_empty());
        }
    }

    #[test]
    fn a_packet_that_no_client_sends_is_refused_by_its_length_and_not_kept() {
        let mut reader = PacketReader::new();
        let longest = (LONGEST_PACKET_BYTES - 2) as u16;
        assert_eq!(reader.read(&longest.to_be_bytes(), |_| panic!("not whole")), Ok(()));
        let mut reader = PacketReader::new();
        assert_eq!(reader.read(&(longest + 1).to_be_bytes(), |_| panic!("not whole")), Err(TooLong));
    }

    #[test]
    fn a_blank_session_is_the_one_that_runs() {
        let running = b"2511140000";
        assert!(is_session(b"          ", running) && is_session(&[0; 10], running));
        assert!(is_session(running, running) && !is_session(b"2511140001", running));
        assert!(is_session(b"   AA00001", b"AA00001   "), "blanks on either side are padding");
    }

    #[test]
    fn logins_that_are_printed_for_debugging_show_no_password() {
        let (user, password) = ("me".to_owned(), "secret".to_owned());
        let fields = LoginFields { user: "me", password: "secret", ..Default::default() };
        let printed = [
            format!("{:?}", Credentials { user: user.clone(), password: password.clone() }),
            format!("{:?}", SnapshotLogin { user, password, ..Default::default() }),
            format!("{:?}", RequestLogin::new(RequestProtocol::Grp, &fields)),
            format!("{:?}", RequestLogin::new(RequestProtocol::Memx, &fields)),
        ];
        for text in printed {
            assert!(text.contains("me") && !text.contains("secret"), "{text}");
        }
    }
}
