//! A venue's connections: packets and logins, for requests and snapshots alike.

use tapeworks_wire::Ascii;
use tapeworks_wire::framing::{Blocks, LengthPrefix};

use crate::transport::SessionId;

pub(crate) const SECOND_NS: u64 = 1_000_000_000;

/// How a venue's connections carry messages, and how a client logs in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Connection {
    /// Length of a packet's header in bytes.
    pub(crate) header_bytes: usize,
    /// The longest packet that either side may send, in bytes including the header.
    pub(crate) longest_bytes: usize,
    /// Whether a longer packet is passed on if it arrives in one piece.
    pub(crate) accepts_longer: bool,
    /// Returns the length of the packet that starts here; `None` if its length has not arrived yet.
    pub(crate) packet_bytes: fn(&[u8]) -> Option<usize>,
    pub(crate) each_message: EachMessage,
    /// Builds a packet with one message, or a heartbeat without any.
    ///
    /// The number and the UTC time in ns are for headers that have them.
    pub(crate) packet: fn(&[u8], u32, u64) -> Vec<u8>,
    /// The client's heartbeat; empty if the venue demands none.
    pub(crate) heartbeat: &'static [u8],
    pub(crate) limits: LoginLimits,
    /// Builds a packet with the login of this sub-id, user and password, for a snapshot of this session.
    ///
    /// Texts that are too long are truncated. Empty if the venue has no login.
    pub(crate) login: fn([&[u8]; 3], Option<&SessionId>) -> Vec<u8>,
}

/// Passes on each message of a complete packet. Returns `false`, and passes none, if they do not match the header.
pub(crate) type EachMessage = fn(&[u8], &mut dyn FnMut(&[u8])) -> bool;

/// Returns the length that starts a packet, in little-endian order.
pub(crate) fn leading_length(start: &[u8]) -> Option<usize> {
    start.first_chunk::<2>().map(|length| usize::from(u16::from_le_bytes(*length)))
}

/// Passes on a packet that is one message with its header.
pub(crate) fn whole(packet: &[u8], each: &mut dyn FnMut(&[u8])) -> bool {
    each(packet);
    true
}

/// What a venue's login consists of: the most characters of each text, 0 if the login does not have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoginLimits {
    /// The id that Cboe assigns to each of a firm's connections.
    pub sub_id: usize,
    /// The user's name.
    pub user: usize,
    /// The password.
    pub password: usize,
    /// The source that each request names, at a venue without users.
    pub source: usize,
    /// Whether each request names a product and a channel.
    pub has_channel: bool,
}

impl LoginLimits {
    /// No login.
    pub const NONE: Self = Self { sub_id: 0, user: 0, password: 0, source: 0, has_channel: false };

    /// Returns the most characters of the name by which the venue knows a client: its user, or its source.
    #[must_use]
    pub const fn name(self) -> usize {
        if self.source > 0 { self.source } else { self.user }
    }

    /// Returns the larger of each of two venues' limits.
    #[must_use]
    pub const fn max(self, other: Self) -> Self {
        const fn longer(one: usize, other: usize) -> usize {
            if one > other { one } else { other }
        }
        Self {
            sub_id: longer(self.sub_id, other.sub_id),
            user: longer(self.user, other.user),
            password: longer(self.password, other.password),
            source: longer(self.source, other.source),
            has_channel: self.has_channel || other.has_channel,
        }
    }
}

/// Pads a text with spaces to a fixed length. A longer text is truncated.
pub(crate) fn padded<const LENGTH: usize>(text: &[u8]) -> Ascii<LENGTH> {
    let mut bytes = [b' '; LENGTH];
    bytes.iter_mut().zip(text).for_each(|(to, from)| *to = *from);
    Ascii(bytes)
}

/// Passes on `count` messages. Returns `false`, and passes none, if they do not fill `bytes` exactly.
pub(crate) fn each_block<Prefix: LengthPrefix>(
    mut blocks: Blocks<'_, Prefix>,
    count: usize,
    bytes: usize,
    each: &mut dyn FnMut(&[u8]),
) -> bool {
    let messages: Vec<&[u8]> = blocks.by_ref().map_while(Result::ok).collect();
    let is_sound = messages.len() == count && blocks.offset() == bytes;
    messages.into_iter().filter(|_| is_sound).for_each(each);
    is_sound
}

/// A message from the client, whose requests are `T`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Asked<T> {
    /// A login, and whether it is known.
    Login(bool),
    Request(T),
    Logout,
    /// A heartbeat, the answer to one, or another message without effect.
    Nothing,
    /// A message that clients may not send.
    Unexpected,
}

/// A side sent an invalid packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Malformed;

/// Splits one side's bytes into packets. Keeps the start of an incomplete packet, up to the longest allowed length.
#[derive(Debug, Clone, Default)]
pub(crate) struct PacketReader {
    start: Vec<u8>,
}

impl PacketReader {
    /// Reads bytes split at any point and passes each complete packet to `each` until it returns `false`.
    pub(crate) fn read(
        &mut self,
        connection: &Connection,
        bytes: &[u8],
        mut each: impl FnMut(&[u8]) -> bool,
    ) -> Result<(), Malformed> {
        self.start.extend_from_slice(bytes);
        let mut used = 0;
        let result = loop {
            let rest = self.start.get(used..).unwrap_or_default();
            let Some(length) = (connection.packet_bytes)(rest) else { break Ok(()) };
            let packet = rest.get(..length);
            let is_too_long =
                length > connection.longest_bytes && !(packet.is_some() && connection.accepts_longer);
            if length < connection.header_bytes || is_too_long {
                break Err(Malformed);
            }
            let Some(packet) = packet else { break Ok(()) };
            used += length;
            if !each(packet) {
                break Ok(());
            }
        };
        self.start.drain(..used);
        if result.is_err() {
            self.start.clear();
        }
        result
    }
}
