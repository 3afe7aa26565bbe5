//! Problems of the input, with their positions and counts.

use std::fmt;
use std::net::SocketAddr;

use tapeworks_capture::net::HeaderError;
use tapeworks_market::event::Gap;
use tapeworks_wire::DecodeError;
use tapeworks_wire::framing::FramingError;

use crate::captured::Place;
use crate::locates::Contradiction;
use tapeworks_follow::sequence::Refusal;

/// Number of problems kept with their positions; all are counted.
pub const KEPT_PROBLEMS: usize = 1_000;

/// A problem of the input.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// Index of the file among the inputs.
    pub file: u16,
    /// Number of the packet in the file, from 1; in a file without packets, of the message.
    pub packet: u64,
    /// Offset in the file, in bytes (for a compressed file, in its contents).
    pub offset: u64,
    /// Its kind.
    pub kind: ProblemKind,
}

impl Problem {
    /// Creates a problem of this packet or message.
    pub fn at(place: impl Into<Place>, kind: ProblemKind) -> Self {
        let Place { file, number: packet, offset, .. } = place.into();
        Self { file, packet, offset, kind }
    }
}

/// The kind of a problem.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ProblemKind {
    /// The packet's network headers or checksum are wrong.
    Header(HeaderError),
    /// A UDP payload, or the start of a stream, in an unknown protocol. Reported once per destination.
    UnknownProtocol {
        /// The destination.
        destination: SocketAddr,
        /// The names of the feeds that it may belong to; the user can choose one.
        possible: Vec<&'static str>,
    },
    /// The capture kept only the beginning of the packet; its complete messages were used.
    CutPacket,
    /// The transport's header or framing is wrong.
    Framing(FramingError),
    /// A message cannot be read.
    Message(DecodeError),
    /// A message contradicts the symbol of its venue's number.
    Contradiction(Contradiction),
    /// Messages of a channel are missing.
    Gap(Gap),
    /// The packet's number or session does not fit the channel: its messages were not used.
    Refused {
        /// The packet's first number.
        first: u64,
        /// Why it was refused.
        refusal: Refusal,
    },
    /// A message without a sequence number on a SoupBinTCP connection: order entry, which is not read.
    Unsequenced {
        /// Its length.
        bytes: usize,
    },
    /// Bytes of a stream are missing.
    StreamHole {
        /// Number of missing bytes.
        lost: u64,
    },
}

impl fmt::Display for ProblemKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(error) => error.fmt(f),
            Self::UnknownProtocol { destination, possible } if possible.is_empty() => {
                write!(f, "no known protocol is sent to {destination}")
            }
            Self::UnknownProtocol { destination, possible } => {
                write!(f, "what is sent to {destination} may be {}: name the protocol", possible.join(" or "))
            }
            Self::CutPacket => f.write_str("the capture kept only the beginning of the packet"),
            Self::Framing(error) => error.fmt(f),
            Self::Message(error) => error.fmt(f),
            Self::Contradiction(contradiction) => contradiction.fmt(f),
            Self::Gap(Gap { first, count: 1 }) => write!(f, "message {first} of the channel is missing"),
            Self::Gap(Gap { first, count }) => {
                write!(
                    f,
                    "messages {first} to {} of the channel are missing",
                    first.saturating_add(count - 1)
                )
            }
            Self::Refused { first, refusal: Refusal::Far(expected) } => {
                write!(
                    f,
                    "message {first} is implausibly far from {expected}, the next of the channel: the packet is skipped"
                )
            }
            Self::Refused { first, refusal: Refusal::Contradicts(expected) } => write!(
                f,
                "message {first} is old and no copy, and no restart of the channel, whose next is {expected}, is confirmed: the packet is skipped"
            ),
            Self::Refused { first, refusal: Refusal::OtherSession } => {
                write!(
                    f,
                    "message {first} is of a session that the channel does not carry: the packet is skipped"
                )
            }
            Self::Unsequenced { bytes } => {
                write!(f, "no known protocol in an unsequenced message of {bytes} bytes")
            }
            Self::StreamHole { lost } => write!(f, "{lost} bytes of the stream are missing"),
        }
    }
}

/// The problems of a run.
#[derive(Clone, Debug, Default)]
pub struct Problems {
    kept: Vec<Problem>,
    /// Number of problems, kept or not.
    pub total: u64,
    /// Packets with inconsistent network headers.
    pub bad_headers: u64,
    /// Datagrams whose checksum shows damage. Not in checkpoints, because only captures have them.
    pub bad_checksums: u64,
    /// Packets truncated by the capture.
    pub cut_packets: u64,
    /// Packets with inconsistent framing.
    pub bad_framing: u64,
    /// Messages of an unknown type, skipped by their length.
    pub unknown_messages: u64,
    /// Messages of a known type with a wrong length.
    pub bad_messages: u64,
    /// Gaps in streams.
    pub stream_holes: u64,
    /// Messages that contradict the symbol of their venue's number.
    pub contradictions: u64,
}

/// The counts of [`Problems`], for checkpoints.
#[cfg(feature = "serde")]
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct ProblemCounts([u64; 8]);

impl Problems {
    #[cfg(feature = "serde")]
    pub(crate) const fn counts(&self) -> ProblemCounts {
        ProblemCounts([
            self.total,
            self.bad_headers,
            self.cut_packets,
            self.bad_framing,
            self.unknown_messages,
            self.bad_messages,
            self.stream_holes,
            self.contradictions,
        ])
    }

    #[cfg(feature = "serde")]
    pub(crate) fn from_counts(ProblemCounts(counts): ProblemCounts) -> Self {
        let [
            total,
            bad_headers,
            cut_packets,
            bad_framing,
            unknown_messages,
            bad_messages,
            stream_holes,
            contradictions,
        ] = counts;
        Self {
            total,
            bad_headers,
            cut_packets,
            bad_framing,
            unknown_messages,
            bad_messages,
            stream_holes,
            contradictions,
            ..Self::default()
        }
    }

    /// Returns the first [`KEPT_PROBLEMS`] problems.
    pub fn kept(&self) -> &[Problem] {
        &self.kept
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn note(&mut self, problem: Problem) {
        self.total += 1;
        match &problem.kind {
            ProblemKind::Header(HeaderError::Checksum { .. }) => self.bad_checksums += 1,
            ProblemKind::Header(_) => self.bad_headers += 1,
            ProblemKind::CutPacket => self.cut_packets += 1,
            ProblemKind::Framing(_) => self.bad_framing += 1,
            ProblemKind::Message(DecodeError::UnknownMessage { .. }) => self.unknown_messages += 1,
            ProblemKind::Message(_) => self.bad_messages += 1,
            ProblemKind::StreamHole { .. } => self.stream_holes += 1,
            ProblemKind::Contradiction(_) => self.contradictions += 1,
            ProblemKind::UnknownProtocol { .. }
            | ProblemKind::Unsequenced { .. }
            | ProblemKind::Gap(_)
            | ProblemKind::Refused { .. } => {}
        }
        if self.kept.len() < KEPT_PROBLEMS {
            self.kept.push(problem);
        }
    }
}
