//! The gateway's sockets: the listener, and the connections of clients and to the venue.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mio::{Interest, Token};
use tapeworks_runtime::pump::Pump;
use tapeworks_runtime::world::{Source as _, World};

/// Bytes per read of a connection.
pub(super) const READ_BYTES: usize = 16 << 10;

pub(super) const WAKER: Token = Token(0);
pub(super) const LISTENER: Token = Token(1);
const FIRST_CONNECTION: usize = 2;

/// The owner of a connection.
#[derive(Debug)]
pub(super) enum Peer {
    /// The first message is incomplete, so the client is not known.
    Unknown {
        bytes: Vec<u8>,
        since: Instant,
    },
    Client(usize),
    Venue {
        channel: usize,
        /// When the connection attempt began; `None` once connected.
        opened: Option<Instant>,
    },
    /// The connection is over; its last bytes are being sent.
    Nobody,
}

/// A connection of a client or to the venue.
pub(super) struct Connection<W: World> {
    pub(super) pump: Pump<W>,
    pub(super) peer: Peer,
    pub(super) address: SocketAddr,
}

/// When to accept connections.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Accepting {
    /// When the poll reports the listener.
    WhenReported,
    /// In the next turn: there may be more.
    InNextTurn,
    /// At the next tick. The poll does not report again a listener that failed for want of descriptors.
    AtNextTick,
}

/// The sockets.
pub(super) struct Sockets<W: World> {
    pub(super) poll: W::Poll,
    pub(super) listener: W::Listener,
    pub(super) accepting: Accepting,
    pub(super) connections: BTreeMap<usize, Connection<W>>,
    next_connection: usize,
    /// The connection of each client and of each channel of the venue.
    pub(super) of_clients: Vec<Option<usize>>,
    pub(super) of_venue: Vec<Option<usize>>,
    /// Connections with work that the poll does not report again.
    pub(super) again: Vec<usize>,
    pub(super) buffer: Vec<u8>,
}

impl<W: World> Sockets<W> {
    pub(super) fn new(poll: W::Poll, listener: W::Listener, clients: usize, channels: usize) -> Self {
        Self {
            poll,
            listener,
            accepting: Accepting::WhenReported,
            connections: BTreeMap::new(),
            next_connection: FIRST_CONNECTION,
            of_clients: vec![None; clients],
            of_venue: vec![None; channels],
            again: Vec::new(),
            buffer: vec![0; READ_BYTES],
        }
    }

    /// Registers the stream of the next connection with the poll.
    pub(super) fn register(&self, stream: &mut W::Stream) -> io::Result<()> {
        stream.register(&self.poll, Token(self.next_connection), Interest::READABLE | Interest::WRITABLE)
    }

    /// Adds the connection whose stream was registered last. Returns its number.
    pub(super) fn insert(&mut self, connection: Connection<W>) -> usize {
        let number = self.next_connection;
        self.next_connection += 1;
        self.connections.insert(number, connection);
        self.again.push(number);
        number
    }

    pub(super) fn has_sessions(&self) -> bool {
        self.connections
            .values()
            .any(|connection| matches!(connection.peer, Peer::Client(_) | Peer::Venue { .. }))
    }

    /// Returns the oldest connection that belongs to no client.
    pub(super) fn oldest_stranger(&self) -> Option<usize> {
        let is_stranger =
            |connection: &Connection<W>| matches!(connection.peer, Peer::Unknown { .. } | Peer::Nobody);
        self.connections.iter().find(|(_, one)| is_stranger(one)).map(|(number, _)| *number)
    }

    /// Returns connection attempts to the venue that timed out. The kernel itself would keep trying for minutes.
    pub(super) fn unconnected(&self, limit: Duration) -> Vec<(usize, usize, SocketAddr)> {
        let late = |(number, connection): (&usize, &Connection<W>)| match &connection.peer {
            Peer::Venue { channel, opened: Some(opened) } if W::since(*opened) >= limit => {
                Some((*number, *channel, connection.address))
            }
            _ => None,
        };
        self.connections.iter().filter_map(late).collect()
    }

    /// Returns connections that did not send a first message in time.
    pub(super) fn silent(&self, limit: Duration) -> Vec<usize> {
        let is_silent = |connection: &Connection<W>| match &connection.peer {
            Peer::Unknown { since, .. } => W::since(*since) >= limit,
            _ => false,
        };
        self.connections.iter().filter(|(_, one)| is_silent(one)).map(|(number, _)| *number).collect()
    }

    /// Closes a connection.
    pub(super) fn close(&mut self, number: usize) {
        if let Some(mut connection) = self.connections.remove(&number) {
            if let Peer::Venue { channel, .. } = connection.peer
                && let Some(place) = self.of_venue.get_mut(channel)
            {
                *place = None;
            }
            // Closing the connection deregisters it in any case.
            let _ = connection.pump.stream().deregister(&self.poll);
        }
    }
}
