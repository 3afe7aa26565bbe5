//! The lines and servers of the venues: their sockets, and the stores that both threads share.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use tapeworks_generator::live::{LivePacket, Outlet};
use tapeworks_nic::{MAX_BATCH, Sent};
use tapeworks_runtime::world::{DatagramSender as _, Listener as _, UdpServer as _, World};
use tapeworks_session::requests::RequestProtocol;
use tapeworks_session::snapshot::SnapshotProtocol;
use tapeworks_session::{Made, SessionId, Store};

use crate::config::{Config, Venue};
use crate::error::VenuesError;
use crate::servers::{Listening, RequestsByTcp, Snapshots};

/// The addresses of a venue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addresses {
    /// The venue's name.
    pub name: String,
    /// The destinations of line A and, if it exists, line B.
    pub lines: Vec<SocketAddrV4>,
    /// The address for retransmission requests, with the port that the kernel chose.
    pub retransmission: Option<SocketAddr>,
    /// The destination of answers to TCP requests, if they go to a group.
    pub retransmission_group: Option<SocketAddrV4>,
    /// The address for snapshots, with the port that the kernel chose.
    pub snapshot: Option<SocketAddr>,
    /// The destination of requested snapshots, if they go to a group.
    pub snapshot_group: Option<SocketAddrV4>,
}

/// A venue's sent messages, shared by both threads.
pub(crate) type SharedStore = Arc<Mutex<Store>>;

/// Opens the socket that sends to a group other than the venue's lines.
fn open_group<W: World>(
    venue: &Venue,
    config: &Config,
    group: SocketAddrV4,
) -> Result<W::DatagramSender, VenuesError> {
    W::DatagramSender::open(group, config.hops, config.interface).map_err(|cause| VenuesError::Line {
        venue: venue.name.clone(),
        address: group,
        cause,
    })
}

/// Opens a venue's servers.
pub(crate) fn listen<W: World>(
    venue: &Venue,
    config: &Config,
) -> Result<(Listening<W>, Addresses, Option<SharedStore>), VenuesError> {
    let failed = |what, address| {
        let venue = venue.name.clone();
        move |cause| VenuesError::Listen { venue, what, address, cause }
    };
    let mut reachable = Addresses {
        name: venue.name.clone(),
        lines: venue.lines.clone(),
        retransmission: None,
        retransmission_group: None,
        snapshot: None,
        snapshot_group: None,
    };
    let transport = venue.live.kind.transport();
    let store = || Arc::new(Mutex::new(Store::new(transport, config.store_bytes)));
    let (mut retransmission, mut requests) = (None, None);
    let by_tcp = RequestProtocol::of(transport).filter(|protocol| match protocol.answers_to_group() {
        true => venue.retransmission_group.is_some(),
        false => venue.retransmission_by_tcp,
    });
    if let Some(address) = venue.retransmission {
        let failed = failed("retransmission", address);
        if let Some(protocol) = by_tcp {
            let listener = W::Listener::bind(address).map_err(failed.clone())?;
            let group = venue.retransmission_group.filter(|_| protocol.answers_to_group());
            let sender = group.map(|group| open_group::<W>(venue, config, group)).transpose()?;
            reachable.retransmission = Some(listener.local_addr().map_err(failed)?);
            reachable.retransmission_group = group;
            requests = Some(RequestsByTcp { listener, sender, protocol, store: store() });
        } else {
            let socket = W::UdpServer::bind(address).map_err(failed.clone())?;
            reachable.retransmission = Some(socket.local_addr().map_err(failed)?);
            retransmission = Some((socket, store()));
        }
    }
    let mut snapshot = None;
    if let Some(address) = venue.snapshot {
        let failed = failed("snapshots", address);
        let listener = W::Listener::bind(address).map_err(failed.clone())?;
        reachable.snapshot = Some(listener.local_addr().map_err(failed)?);
        let by_group = venue.snapshot_group.zip(SnapshotProtocol::by_group(transport));
        let protocol = by_group.map_or(SnapshotProtocol::of(transport), |(_, protocol)| protocol);
        let group = by_group.map(|(group, _)| open_group::<W>(venue, config, group)).transpose()?;
        reachable.snapshot_group = by_group.map(|(group, _)| group);
        snapshot = Some(Snapshots { listener, protocol, group });
    }
    let by_datagrams = retransmission.as_ref().map(|(_, store)| Arc::clone(store));
    let store = by_datagrams.or_else(|| requests.as_ref().map(|requests| Arc::clone(&requests.store)));
    let listening = Listening {
        retransmission,
        requests,
        lost_per_million: venue.retransmission_lost_per_million,
        faults: venue.retransmission_faults,
        snapshot,
        counters: Arc::default(),
    };
    Ok((listening, reachable, store))
}

/// One line's socket, and the packets to send with the next kernel call.
#[derive(Debug)]
pub(crate) struct Wire<W: World> {
    sender: W::DatagramSender,
    bytes: Vec<u8>,
    packets: Vec<Range<usize>>,
    refused: u64,
}

impl<W: World> Wire<W> {
    pub(crate) fn open(
        venue: &str,
        address: SocketAddrV4,
        hops: u32,
        interface: Ipv4Addr,
    ) -> Result<Self, VenuesError> {
        let sender = W::DatagramSender::open(address, hops, interface)
            .map_err(|cause| VenuesError::Line { venue: venue.to_owned(), address, cause })?;
        Ok(Self { sender, bytes: Vec::new(), packets: Vec::new(), refused: 0 })
    }

    fn put(&mut self, payload: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(payload);
        self.packets.push(start..self.bytes.len());
        if self.packets.len() == MAX_BATCH {
            self.send();
        }
    }

    fn send(&mut self) {
        if self.packets.is_empty() {
            return;
        }
        let payloads = self.packets.iter().map(|range| self.bytes.get(range.clone()).unwrap_or_default());
        let refused = &mut self.refused;
        self.sender.send(payloads, |sent| *refused += u64::from(!matches!(sent, Sent::Taken)));
        self.packets.clear();
        self.bytes.clear();
    }
}

/// All lines of all venues, and the stores.
#[derive(Debug)]
pub(crate) struct Wires<W: World> {
    wires: Vec<Vec<Wire<W>>>,
    stores: Vec<Option<SharedStore>>,
}

impl<W: World> Wires<W> {
    pub(crate) const fn new(wires: Vec<Vec<Wire<W>>>, stores: Vec<Option<SharedStore>>) -> Self {
        Self { wires, stores }
    }

    pub(crate) fn send(&mut self) {
        self.wires.iter_mut().flatten().for_each(Wire::send);
    }

    pub(crate) fn refused(&self) -> Vec<Vec<u64>> {
        self.wires.iter().map(|lines| lines.iter().map(|line| line.refused).collect()).collect()
    }

    fn store(&self, venue: usize) -> Option<std::sync::MutexGuard<'_, Store>> {
        let store = self.stores.get(venue)?.as_ref()?;
        Some(store.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<W: World> Outlet for Wires<W> {
    fn session(&mut self, venue: usize, session: SessionId) {
        if let Some(mut store) = self.store(venue) {
            store.begin_session(session);
        }
    }

    fn made(&mut self, venue: usize, made: &Made<'_>) {
        if let Some(mut store) = self.store(venue) {
            store.keep(made);
        }
    }

    fn packet(&mut self, packet: &LivePacket<'_>) {
        if let Some(wire) = self.wires.get_mut(packet.venue).and_then(|lines| lines.get_mut(packet.line)) {
            wire.put(packet.payload);
        }
    }
}
