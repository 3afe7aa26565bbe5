//! The contents of a capture: packets and messages with their positions, and the identities of their channels.

use std::fmt;
use std::net::SocketAddr;

use tapeworks_capture::net::Datagram;
use tapeworks_session::SessionId;
use tapeworks_time::Nanos;

/// A position in the inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Index of the file among the inputs.
    pub file: u16,
    /// Number of the packet in the file, from 1; in a file without packets, of the message.
    pub number: u64,
    /// Offset from the start of the file, in bytes (for a compressed file, of its contents). For a message in a TCP stream that
    /// begins in an earlier segment: the payload of the segment that completes it.
    pub offset: u64,
    /// When the packet was captured; `None` in a file without packets.
    pub time: Option<Nanos>,
}

impl Place {
    /// Returns this position, `bytes` further on.
    #[must_use]
    pub const fn plus(self, bytes: u64) -> Self {
        Self { offset: self.offset + bytes, ..self }
    }
}

impl From<&Packet<'_>> for Place {
    fn from(packet: &Packet<'_>) -> Self {
        let Packet { file, number, offset, received, .. } = *packet;
        Self { file, number, offset, time: Some(received) }
    }
}

/// The origin of a packet. Live packets have only a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    pub(crate) place: Place,
    /// Whether the capture kept only the beginning of it.
    pub(crate) is_cut: bool,
}

impl Origin {
    pub(crate) const fn live(received: Nanos) -> Self {
        Self { place: Place { file: 0, number: 0, offset: 0, time: Some(received) }, is_cut: false }
    }
}

impl From<&Packet<'_>> for Origin {
    fn from(packet: &Packet<'_>) -> Self {
        Self { place: packet.into(), is_cut: packet.datagram.truncated }
    }
}

/// A captured datagram.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Index of the file among the inputs.
    pub file: u16,
    /// Number of the packet in the file, from 1.
    pub number: u64,
    /// Offset of its payload in the file, in bytes.
    pub offset: u64,
    /// When it was received.
    pub received: Nanos,
    /// Its addresses and payload.
    pub datagram: Datagram<'a>,
}

/// A message of a file without packets.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Index of the file among the inputs.
    pub file: u16,
    /// Offset of the message in the file, in bytes.
    pub offset: u64,
    /// The message, without its length.
    pub bytes: &'a [u8],
}

/// The identity of a channel.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ChannelIdentity {
    /// A session of a UDP transport: both lines of a channel share it.
    Datagrams {
        /// The session.
        session: SessionId,
        /// The UDP port if the transport's header does not name the channel; otherwise 0. For live channels, their index in the
        /// configuration.
        port: u16,
        /// How many times the venue has restarted the numbers of the session.
        run: u16,
    },
    /// One direction of a TCP connection.
    SoupBinTcp {
        /// The sender.
        source: SocketAddr,
        /// The receiver.
        destination: SocketAddr,
    },
    /// A file without packets.
    File {
        /// Index of the file among the inputs.
        file: u16,
    },
    /// One direction of a TCP connection in a protocol that is its own transport.
    Stream {
        /// The sender.
        source: SocketAddr,
        /// The receiver.
        destination: SocketAddr,
    },
}

impl ChannelIdentity {
    /// Returns the channel of a datagram of this session to this port.
    #[inline]
    #[must_use]
    pub const fn of_datagram(session: SessionId, port: u16) -> Self {
        let port = if session.transport().names_channel() { 0 } else { port };
        Self::Datagrams { session, port, run: 0 }
    }

    /// Returns the channel after a restart.
    #[must_use]
    pub const fn next_run(self) -> Self {
        match self {
            Self::Datagrams { run, .. } => self.of_run(run.saturating_add(1)),
            other => other,
        }
    }

    /// Returns the same session with another run.
    #[must_use]
    pub const fn of_run(self, run: u16) -> Self {
        match self {
            Self::Datagrams { session, port, .. } => Self::Datagrams { session, port, run },
            other => other,
        }
    }
}

impl fmt::Display for ChannelIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Datagrams { session, port, run } => {
                session.describe(f, *port)?;
                if *run == 0 { Ok(()) } else { write!(f, " run {}", u32::from(*run) + 1) }
            }
            Self::SoupBinTcp { source, destination } => write!(f, "SoupBinTCP {source} to {destination}"),
            Self::File { file } => write!(f, "file {}", file + 1),
            Self::Stream { source, destination } => write!(f, "TCP {source} to {destination}"),
        }
    }
}
