//! Recognises a payload's feed from its bytes.
//!
//! A channel is recognised once, at its first certain packet: its block lengths add up to the payload, and its first messages
//! have known types and correct lengths. A heartbeat alone identifies the transport, and the feed too if the transport carries
//! only one. MoldUDP64 carries two, ITCH and UQDF: its heartbeats count as ITCH until a message arrives. A feed that is
//! recognised by its multicast groups, such as PITCH, is certain only after a message, because another feed may have the same
//! heartbeats. The [table](crate::FEEDS) has the check of each feed.
//!
//! Feeds that only their groups distinguish are inferred in unknown groups: if exactly one feed fits every packet with messages
//! so far, down to enumerated values and times of day, the destination carries that feed. The first packet with messages usually
//! decides, so nothing is held back or lost; heartbeats before it carry nothing. A packet that fits no feed before that rules
//! inference out, and one that fits several, such as a deletion of Cboe's equities or futures, is reported with their names.
//! [`Shown`] is the only implementation of these rules; replay and the analyser both use it.

use std::net::SocketAddr;

use tapeworks_session::{Transport as _, for_transport};
use tapeworks_time::Nanos;
use tapeworks_wire::framing::{BigEndian, Blocks};
use tapeworks_wire::nasdaq::{ouch50, soupbintcp};
use tapeworks_wire::schema::{Decoded, Value};

use crate::probe::PROBED_MESSAGES;
use crate::table::{Application, FEEDS, FeedSpec};

/// The feed that a payload indicates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recognised {
    /// The feed; if several fit, the first one in the table.
    pub application: Application,
    /// Whether no other feed fits, so that later packets to the destination carry this one too.
    pub is_certain: bool,
}

/// Recognises the feed of a UDP payload to this destination. Cost: the check of every feed.
pub fn udp_payload(payload: &[u8], destination: SocketAddr) -> Option<Recognised> {
    let mut fitting = FEEDS.iter().filter(|feed| feed.recognises(payload, destination));
    let feed = fitting.next()?;
    let has_messages = || feed.transport.header(payload).is_ok_and(|header| header.count > 0);
    let is_certain = fitting.next().is_none() && (!feed.needs_group || has_messages());
    Some(Recognised { application: feed.application, is_certain })
}

/// The evidence of a destination's feed from its packets so far.
#[derive(Clone, Copy, Debug)]
pub struct Shown {
    application: Option<Application>,
    is_certain: bool,
    is_inferred: bool,
    /// The feeds that may be inferred: those that fit every packet with messages so far, as bits by table index.
    fitting: u32,
}

impl Default for Shown {
    fn default() -> Self {
        Self { application: None, is_certain: false, is_inferred: false, fitting: u32::MAX }
    }
}

impl Shown {
    /// Creates the state for a feed that the user names, or `None`.
    #[must_use]
    pub const fn by_user(application: Option<Application>) -> Self {
        Self { application, is_certain: application.is_some(), is_inferred: false, fitting: u32::MAX }
    }

    /// Returns the feed, certain or not.
    #[must_use]
    pub const fn application(&self) -> Option<Application> {
        self.application
    }

    /// Returns the feed if it was inferred because no other fits.
    #[must_use]
    pub fn inferred(&self) -> Option<Application> {
        self.application.filter(|_| self.is_inferred)
    }

    /// Returns the feed that all further packets carry, once it is certain.
    #[inline]
    #[must_use]
    pub const fn certain(&self) -> Option<Application> {
        if self.is_certain { self.application } else { None }
    }

    /// Returns the feed of a packet whose destination's feed is not yet [certain](Self::certain). A packet that no feed fits is
    /// attributed to the presumed feed of the packets before it, unless that feed is known only by its group and the bytes fit
    /// another.
    pub fn packet(&mut self, payload: &[u8], destination: SocketAddr) -> Option<Application> {
        match udp_payload(payload, destination) {
            Some(Recognised { application, is_certain }) => {
                *self = Self { application: Some(application), is_certain, ..*self };
                self.application
            }
            None => self
                .application
                .filter(|presumed| !presumed.spec().needs_group || possible(payload).is_empty())
                .or_else(|| self.infer(payload, destination)),
        }
    }

    /// Infers the feed of a packet in a group that no feed knows, if only one feed fits.
    fn infer(&mut self, payload: &[u8], destination: SocketAddr) -> Option<Application> {
        if self.application.is_some()
            || is_heartbeat(payload)
            || FEEDS.iter().any(|feed| feed.knows(destination))
        {
            return None;
        }
        let places = FEEDS.iter().zip(0..u32::BITS);
        let fits = |feed: &FeedSpec| {
            feed.needs_group && (feed.recognise)(payload) && is_plausible_packet(feed, payload)
        };
        let fitting =
            places.filter(|(feed, _)| fits(feed)).fold(0, |fitting, (_, place)| fitting | 1 << place);
        self.fitting &= fitting;
        if self.fitting.count_ones() != 1 {
            return None;
        }
        self.application = FEEDS.get(self.fitting.trailing_zeros() as usize).map(|feed| feed.application);
        (self.is_certain, self.is_inferred) = (true, true);
        self.application
    }
}

/// Returns whether a payload is a heartbeat of a feed that only its group distinguishes. Skipping it loses nothing.
#[must_use]
pub fn is_heartbeat(payload: &[u8]) -> bool {
    let mut fitting = FEEDS.iter().filter(|feed| feed.needs_group && (feed.recognise)(payload)).peekable();
    fitting.peek().is_some()
        && fitting.all(|feed| feed.transport.header(payload).is_ok_and(|header| header.count == 0))
}

/// Returns whether the first messages of a packet are [plausible](is_plausible), ignoring those of unknown types.
fn is_plausible_packet(feed: &FeedSpec, payload: &[u8]) -> bool {
    for_transport!(feed.transport, T => T::packet(payload).is_ok_and(|packet| {
        let mut messages = packet.blocks.filter_map(Result::ok).take(PROBED_MESSAGES);
        messages.all(|message| match feed.schema.decode(message) {
            decoded if decoded.structure.is_some() => is_plausible(&decoded),
            _ => true,
        })
    }))
}

/// Returns whether a decoded message is sound, has only listed or empty values in its enumerations, and has times of day below 24
/// hours. Bytes of another protocol that happen to match a message's type and length seldom pass.
#[must_use]
pub fn is_plausible(decoded: &Decoded<'_>) -> bool {
    const DAY_SECONDS: u64 = 24 * 3600;
    let mut is_plausible = decoded.error.is_none();
    decoded.for_each_field(|field| {
        is_plausible &= match field.value {
            // Venues send zeros or blanks for empty values, listed or not.
            Value::Enum { bytes, .. } => {
                field.value.enum_value().is_some() || bytes.iter().all(|byte| matches!(byte, 0 | b' '))
            }
            Value::NanosecondsSinceMidnight(time) => time < DAY_SECONDS * Nanos::SECOND,
            Value::SecondsSinceMidnight(time) => time < DAY_SECONDS,
            _ => true,
        }
    });
    is_plausible
}

/// Returns the names of the feeds that may have sent a UDP payload, if its destination does not decide.
pub fn possible(payload: &[u8]) -> Vec<&'static str> {
    let fitting = FEEDS.iter().filter(|feed| feed.needs_group && (feed.recognise)(payload));
    fitting.map(|feed| feed.name).collect()
}

/// Returns whether a message of a stream or file can be read.
fn is_message(message: &[u8]) -> bool {
    (Application::OF_STREAMS.spec().check)(message).is_ok()
}

/// Returns whether a SoupBinTCP packet carries an order entry message, which belongs to no feed.
fn is_order(packet: &soupbintcp::Message<'_>) -> bool {
    match packet {
        soupbintcp::Message::SequencedData(data) => {
            is_plausible(&ouch50::outbound::SCHEMA.decode(data.message()))
        }
        soupbintcp::Message::UnsequencedData(data) => {
            is_plausible(&ouch50::inbound::SCHEMA.decode(data.message()))
        }
        _ => false,
    }
}

/// Returns whether a SoupBinTCP packet of a stream carries an order entry message and none of the stream's feed.
pub(crate) fn is_order_of_stream(packet: &[u8]) -> bool {
    match soupbintcp::Message::decode(packet) {
        Ok(soupbintcp::Message::SequencedData(data)) if is_message(data.message()) => false,
        Ok(packet) => is_order(&packet),
        Err(_) => false,
    }
}

/// How a file without packets frames its messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Framing {
    /// Messages preceded by two-byte lengths: Nasdaq's daily files.
    LengthPrefixed,
    /// SoupBinTCP packets.
    SoupBinTcp,
}

/// Returns the framing of a file or stream that starts with `bytes`, if its first messages can be read.
pub fn framing(bytes: &[u8]) -> Option<Framing> {
    let mut blocks = Blocks::new(bytes, BigEndian).filter_map(Result::ok).filter(|block| !block.is_empty());
    let first: Vec<&[u8]> = blocks.by_ref().take(PROBED_MESSAGES).collect();
    if first.is_empty() {
        return None;
    }
    if first.iter().all(|message| is_message(message)) {
        return Some(Framing::LengthPrefixed);
    }
    soup_stream(bytes).then_some(Framing::SoupBinTcp)
}

/// The longest first packet to wait for, in bytes: a login takes 49.
const LONGEST_FIRST_PACKET: usize = 4_096;

/// Returns the size of the SoupBinTCP packet at the start of `stream`, in bytes, including its length field.
pub(crate) fn first_packet_bytes(stream: &[u8]) -> usize {
    stream.first_chunk::<2>().map_or(2, |length| 2 + usize::from(u16::from_be_bytes(*length)))
}

/// Returns whether `stream`, the start of a TCP stream, would end inside its first packet if it were SoupBinTCP, so that more
/// bytes are needed to recognise it.
pub fn is_start_cut(stream: &[u8]) -> bool {
    let needed = first_packet_bytes(stream);
    stream.len() < needed && needed <= LONGEST_FIRST_PACKET
}

/// Returns whether `bytes` start with SoupBinTCP packets whose sequenced data are messages of the feed of streams.
pub fn soup_stream(bytes: &[u8]) -> bool {
    let mut packets = 0;
    for packet in soupbintcp::Packets::new(bytes).filter_map(Result::ok).take(PROBED_MESSAGES) {
        packets += 1;
        match soupbintcp::Message::decode(packet) {
            Ok(soupbintcp::Message::SequencedData(data)) if !is_message(data.message()) => {
                return false;
            }
            Ok(_) => {}
            Err(_) => return false,
        }
    }
    packets > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_recognised_as_no_protocol() {
        let group = SocketAddr::from(([239, 192, 130, 1], 30_001));
        assert_eq!(udp_payload(&[], group), None);
        assert_eq!(udp_payload(&[0; 20], group), None, "a session has a name");
        assert_eq!(udp_payload(&[0xFF; 60], group), None);
        assert_eq!(udp_payload(b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n", group), None);
        assert_eq!(framing(b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n"), None);
        assert_eq!(framing(&[]), None);
    }

    #[test]
    fn order_entry_is_distinguished_from_market_data() {
        let cancel = b"\x00\x0aUX\0\0\0\x01\0\0\0\0";
        let canceled = b"\x00\x13SC\0\0\x28\x9b\x4d\x68\x13\x17\0\x75\x3a\x8d\0\0\0\x28U";
        assert!(is_order_of_stream(cancel) && is_order_of_stream(canceled));
        // An ITCH system event, a heartbeat, an unknown message.
        for packet in [&b"\x00\x0dSS\0\0\0\0\0\0\0\0\0\0O"[..], b"\0\x01H", b"\0\x03S~~"] {
            assert!(!is_order_of_stream(packet), "{packet:?}");
        }
        // OUCH 5.0 has no such side and no such time of day, so this is another revision of OUCH.
        let accepted = |side: u8, time: u64| {
            let mut packet = vec![0, 65, b'S', b'A'];
            packet.extend(time.to_be_bytes());
            packet.extend([0, 0, 0, 1, side, 0, 0, 0, 100]);
            packet.extend(b"AAPL    ");
            packet.extend(1_000_000_u64.to_be_bytes());
            packet.extend(b"0Y");
            packet.extend(7_u64.to_be_bytes());
            packet.extend(b"AYNL");
            packet.extend([b' '; 14]);
            packet.extend([0, 0]);
            let length = (packet.len() as u16 - 2).to_be_bytes();
            packet[..2].copy_from_slice(&length);
            packet
        };
        assert!(is_order_of_stream(&accepted(b'B', 34_200_000_000_000)));
        assert!(!is_order_of_stream(&accepted(b'r', 34_200_000_000_000)));
        assert!(!is_order_of_stream(&accepted(b'B', 96_400_000_000_000)));
    }
}
