//! The simulated network: datagrams, multicast groups, TCP.
//!
//! A datagram goes separately to each socket that is bound to its address or has joined its group; the network's faults are drawn for
//! each copy. A TCP connection delivers its bytes in order and once, in pieces of random size, or not at all while the link is down.

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, VecDeque};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, SocketAddrV4};
use std::rc::Rc;
use std::time::Duration;

use mio::{Interest, Token};
use tapeworks_capture::LinkType;
use tapeworks_capture::pool::{Description, Pool};
use tapeworks_nic::{FrameOptions, InterfaceError, Received, Sent, UdpOptions};
use tapeworks_runtime::world::{
    BlockingStream, DatagramReceiver, DatagramSender, FrameSource, Listener, Poll, Ready, Source, Stream,
    UdpServer, Wake,
};

use super::{HostId, Kernel, TaskId, Waits, call, until, wait, with};

/// Length of the longest IPv4 datagram in bytes.
const MOST_BYTES: usize = 65_507;

/// The network's faults for datagrams to an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LinkFaults {
    /// Lost, per million.
    pub lost_per_million: u32,
    /// Duplicated, per million.
    pub twice_per_million: u32,
    /// Delayed so that later ones overtake them, per million.
    pub late_per_million: u32,
    /// Longest delay, in ns.
    pub late_ns: u32,
    /// With another copy that arrives late, per million.
    #[serde(default)]
    pub copied_late_per_million: u32,
    /// Longest delay of the copy, in ns.
    #[serde(default)]
    pub copied_late_ns: u64,
    /// Truncated, per million.
    pub cut_per_million: u32,
    /// Replaced by random bytes, per million.
    pub garbled_per_million: u32,
    /// With four changed bytes in the session name, per million.
    pub renamed_per_million: u32,
    /// Offset of these bytes.
    pub renamed_at: u32,
    /// With a sequence number that is off by 65,536 or more and without the last byte, per million.
    #[serde(default)]
    pub misnumbered_per_million: u32,
    /// Offset of the byte in which a bit is flipped.
    #[serde(default)]
    pub misnumbered_at: u32,
    /// With more trailing bytes than a buffer holds, per million.
    #[serde(default)]
    pub padded_per_million: u32,
    /// Shortest transit time, in ns.
    pub least_ns: u32,
    /// Maximum jitter added to it, in ns. Below the time between two datagrams, it preserves their order.
    pub jitter_ns: u32,
    /// All datagrams are lost before this simulation time.
    pub out_until_ns: u64,
}

impl Default for LinkFaults {
    fn default() -> Self {
        Self {
            lost_per_million: 0,
            twice_per_million: 0,
            late_per_million: 0,
            late_ns: 0,
            copied_late_per_million: 0,
            copied_late_ns: 0,
            cut_per_million: 0,
            garbled_per_million: 0,
            renamed_per_million: 0,
            renamed_at: 0,
            misnumbered_per_million: 0,
            misnumbered_at: 0,
            padded_per_million: 0,
            least_ns: 20_000,
            jitter_ns: 0,
            out_until_ns: 0,
        }
    }
}

impl LinkFaults {
    /// Returns whether some datagrams arrive with contents that were not sent.
    pub(crate) fn damages(&self) -> bool {
        let Self { cut_per_million, garbled_per_million, renamed_per_million, .. } = *self;
        [cut_per_million, garbled_per_million, renamed_per_million, self.misnumbered_per_million] != [0; 4]
    }
}

/// What the network did to the datagrams for an address.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LinkCounts {
    /// Sent to the address.
    pub sent: u64,
    /// Lost in transit, counted per receiver.
    pub lost: u64,
    /// Delivered twice.
    pub twice: u64,
    /// Late copies.
    pub late_copies: u64,
    /// Delayed.
    pub late: u64,
    /// Truncated or garbled.
    pub damaged: u64,
    /// Dropped because a receiver's buffer was full.
    pub overflowed: u64,
    /// Queued in a receiver's buffer.
    pub arrived: u64,
}

/// The behavior and faults of TCP.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TcpFaults {
    /// Bytes that a side may send before the other reads them.
    pub window: u32,
    /// Largest piece delivered at once, in bytes.
    pub piece: u32,
    /// Shortest transit time, in ns.
    pub least_ns: u32,
    /// Maximum jitter added to it, in ns.
    pub jitter_ns: u32,
    /// Writes that reset the connection, per million.
    pub reset_per_million: u32,
    /// Nothing is delivered before this simulation time.
    pub out_until_ns: u64,
}

impl Default for TcpFaults {
    fn default() -> Self {
        Self {
            window: 256 << 10,
            piece: 64 << 10,
            least_ns: 20_000,
            jitter_ns: 30_000,
            reset_per_million: 0,
            out_until_ns: 0,
        }
    }
}

#[derive(Clone, Debug)]
struct Datagram {
    from: SocketAddr,
    bytes: Rc<[u8]>,
    /// By the receiving host's clock, in ns since the epoch.
    received_ns: u64,
}

/// The poll that watches a socket.
#[derive(Clone, Copy, Debug)]
struct Watch {
    poll: usize,
    token: Token,
    interest: Interest,
}

#[derive(Debug)]
struct Udp {
    queue: VecDeque<Datagram>,
    bytes: usize,
    room: usize,
    dropped: u64,
}

/// Bytes that the kernel charges for a datagram besides its contents.
const OVERHEAD: usize = 256;

impl Udp {
    /// Queues a datagram. Returns `false` if there is no room.
    fn push(&mut self, datagram: Datagram) -> bool {
        let length = datagram.bytes.len() + OVERHEAD;
        let has_room = self.bytes + length <= self.room;
        if has_room {
            self.bytes += length;
            self.queue.push_back(datagram);
        } else {
            self.dropped += 1;
        }
        has_room
    }

    fn pop(&mut self) -> Option<Datagram> {
        let datagram = self.queue.pop_front()?;
        self.bytes -= datagram.bytes.len() + OVERHEAD;
        Some(datagram)
    }
}

#[derive(Debug)]
struct Connection {
    peer: Option<usize>,
    remote: SocketAddr,
    received: VecDeque<u8>,
    /// The other side has stopped sending.
    is_ended: bool,
    is_reset: bool,
    /// This side has stopped sending.
    is_shut: bool,
    /// Bytes in transit to this side.
    coming: usize,
    /// Arrival time of the last of them.
    last_ns: u64,
    /// A write found no room.
    is_blocked: bool,
    /// Bytes sent since the other side vanished, which nobody acknowledges.
    unacknowledged: usize,
}

#[derive(Debug)]
enum Kind {
    Udp(Udp),
    Listener(VecDeque<usize>),
    Connection(Connection),
}

#[derive(Debug)]
struct Socket {
    host: HostId,
    local: SocketAddr,
    kind: Kind,
    watch: Option<Watch>,
    waiter: Option<TaskId>,
}

#[derive(Debug, Default)]
struct PollState {
    /// Events for the next poll, by token.
    pending: Vec<Ready>,
    waker: Option<Token>,
    waiter: Option<TaskId>,
}

impl PollState {
    fn report(&mut self, new: Ready) {
        match self.pending.binary_search_by_key(&new.token.0, |ready| ready.token.0) {
            Ok(place) => {
                if let Some(ready) = self.pending.get_mut(place) {
                    ready.is_readable |= new.is_readable;
                    ready.is_writable |= new.is_writable;
                    ready.is_closed |= new.is_closed;
                }
            }
            Err(place) => self.pending.insert(place, new),
        }
    }
}

/// The sockets at an address, and the network's faults for its datagrams.
#[derive(Default)]
struct Place {
    /// Sockets that receive its datagrams.
    bound: Vec<usize>,
    link: Option<LinkFaults>,
    counts: LinkCounts,
}

/// An address, by its index in [`Network::places`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PlaceId(usize);

/// A timed event of the network.
#[derive(Debug)]
pub(crate) enum NetworkEvent {
    Arrives { socket: usize, from: SocketAddr, bytes: Rc<[u8]>, to: PlaceId },
    Bytes { socket: usize, bytes: Vec<u8> },
    End { socket: usize },
    Reset { socket: usize },
    Accept { listener: usize, connection: usize },
    Room { socket: usize },
}

/// A step of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// It was sent, and the network has not touched it yet.
    Sent,
    /// A process has taken it from a socket.
    Taken,
}

/// Sees each datagram: its step, the simulation time in ns, its source and destination, and its bytes.
pub type Tap = Box<dyn FnMut(Step, u64, SocketAddr, SocketAddr, &[u8])>;

#[derive(Default)]
pub(crate) struct Network {
    sockets: Vec<Option<Socket>>,
    polls: Vec<PollState>,
    /// Addresses that datagrams were sent to or sockets bound to, or that have faults.
    places: Vec<Place>,
    by_address: FxHashMap<SocketAddr, PlaceId>,
    pub(crate) tcp: TcpFaults,
    /// Addresses that refuse connections although a server listens.
    refusing: BTreeSet<SocketAddr>,
    next_port: u16,
    tap: Option<Tap>,
}

impl Network {
    fn add(&mut self, socket: Socket) -> usize {
        self.sockets.push(Some(socket));
        self.sockets.len() - 1
    }

    fn socket(&mut self, id: usize) -> Option<&mut Socket> {
        self.sockets.get_mut(id)?.as_mut()
    }

    fn connection(&mut self, id: usize) -> Option<&mut Connection> {
        match &mut self.socket(id)?.kind {
            Kind::Connection(connection) => Some(connection),
            _ => None,
        }
    }

    fn place_of(&mut self, address: SocketAddr) -> PlaceId {
        *self.by_address.entry(address).or_insert_with(|| {
            self.places.push(Place::default());
            PlaceId(self.places.len() - 1)
        })
    }

    fn place(&mut self, address: SocketAddr) -> Option<&mut Place> {
        let PlaceId(place) = self.place_of(address);
        self.places.get_mut(place)
    }

    fn count(&mut self, PlaceId(place): PlaceId, count: fn(&mut LinkCounts)) {
        if let Some(place) = self.places.get_mut(place) {
            count(&mut place.counts);
        }
    }

    /// Returns the faults for datagrams between these addresses. A server's faults apply both to requests and to its answers.
    fn faults(&self, PlaceId(to): PlaceId, from: SocketAddr) -> LinkFaults {
        let link = |place: usize| self.places.get(place).and_then(|place| place.link);
        let of_sender = || self.by_address.get(&from).and_then(|PlaceId(from)| link(*from));
        link(to).or_else(of_sender).unwrap_or_default()
    }

    fn unbind(&mut self, id: usize) {
        self.places.iter_mut().for_each(|place| place.bound.retain(|one| *one != id));
    }

    fn port(&mut self) -> u16 {
        self.next_port =
            if self.next_port < 40_000 { 40_000 } else { self.next_port.wrapping_add(1).max(40_000) };
        self.next_port
    }

    /// Removes the sockets of a host that has lost power, without notifying their peers.
    pub(crate) fn vanish(&mut self, host: HostId) {
        for (id, place) in self.sockets.iter_mut().enumerate() {
            if place.as_ref().is_some_and(|socket| socket.host == host) {
                *place = None;
                self.places.iter_mut().for_each(|place| place.bound.retain(|one| *one != id));
            }
        }
    }
}

fn invalid() -> io::Error {
    io::Error::other("the socket is gone")
}

/// Completes a local address: fills in the host's own IP address and a free port if they are unspecified.
fn local(kernel: &mut Kernel, wanted: SocketAddr) -> SocketAddr {
    let own = kernel.hosts.get(kernel.host().0).map_or(Ipv4Addr::LOCALHOST, |host| host.address);
    let ip =
        if wanted.ip().is_unspecified() || wanted.ip().is_loopback() { IpAddr::V4(own) } else { wanted.ip() };
    let port = if wanted.port() == 0 { kernel.network.port() } else { wanted.port() };
    SocketAddr::new(ip, port)
}

/// Resolves an address from the sender's host.
fn remote(kernel: &Kernel, to: SocketAddr) -> SocketAddr {
    let own = kernel.hosts.get(kernel.host().0).map_or(Ipv4Addr::LOCALHOST, |host| host.address);
    if to.ip().is_loopback() || to.ip().is_unspecified() {
        SocketAddr::new(own.into(), to.port())
    } else {
        to
    }
}

impl Kernel {
    /// Reports that a socket has become readable or writable.
    fn report(&mut self, id: usize, is_readable: bool, is_writable: bool) {
        let Some(socket) = self.network.socket(id) else { return };
        let waiter = socket.waiter.take();
        let is_closed = matches!(&socket.kind, Kind::Connection(one) if one.is_ended || one.is_reset);
        if let Some(Watch { poll, token, interest }) = socket.watch {
            let readable = is_readable && interest.is_readable();
            let writable = is_writable && interest.is_writable();
            if (readable || writable)
                && let Some(poll) = self.network.polls.get_mut(poll)
            {
                poll.report(Ready { token, is_readable: readable, is_writable: writable, is_closed });
                if let Some(waiter) = poll.waiter {
                    self.wake(waiter, Waits::Poll);
                }
            }
        }
        if let Some(waiter) = waiter {
            self.wake(waiter, Waits::Socket);
        }
    }

    fn bind_udp(&mut self, wanted: SocketAddr, room: usize) -> io::Result<(usize, SocketAddr)> {
        let is_group = wanted.ip().is_multicast();
        let address = if is_group { wanted } else { local(self, wanted) };
        if !is_group && self.network.place(address).is_some_and(|place| !place.bound.is_empty()) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let host = self.host();
        let udp = Udp { queue: VecDeque::new(), bytes: 0, room, dropped: 0 };
        // A group's socket sends from its host's address.
        let local = if is_group {
            local(self, SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), address.port()))
        } else {
            address
        };
        let id = self.network.add(Socket { host, local, kind: Kind::Udp(udp), watch: None, waiter: None });
        if let Some(place) = self.network.place(address) {
            place.bound.push(id);
        }
        Ok((id, address))
    }

    fn show_tap(&mut self, step: Step, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        if let Some(mut tap) = self.network.tap.take() {
            tap(step, self.now_ns, from, to, bytes);
            self.network.tap = Some(tap);
        }
    }

    /// Sends a datagram to each socket of the address.
    fn send(&mut self, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        let to = remote(self, to);
        self.show_tap(Step::Sent, from, to, bytes);
        let to = self.network.place_of(to);
        let faults = self.network.faults(to, from);
        self.network.count(to, |counts| counts.sent += 1);
        let bound = |kernel: &Self, receiver| kernel.network.places.get(to.0)?.bound.get(receiver).copied();
        let count = |kernel: &mut Self, count| kernel.network.count(to, count);
        let mut next = 0;
        while let Some(socket) = bound(self, next) {
            next += 1;
            if self.now_ns < faults.out_until_ns || self.random.chance(faults.lost_per_million) {
                count(self, |counts| counts.lost += 1);
                continue;
            }
            let mut payload: Rc<[u8]> = bytes.into();
            if self.random.chance(faults.cut_per_million) {
                count(self, |counts| counts.damaged += 1);
                let kept = self.random.below(bytes.len() as u32) as usize;
                payload = bytes.get(..kept).unwrap_or_default().into();
            } else if self.random.chance(faults.garbled_per_million) {
                count(self, |counts| counts.damaged += 1);
                let garbled: Vec<u8> = bytes.iter().map(|_| self.random.bits() as u8).collect();
                payload = garbled.into();
            } else if self.random.chance(faults.renamed_per_million) {
                count(self, |counts| counts.damaged += 1);
                let (mut renamed, at) = (bytes.to_vec(), faults.renamed_at as usize);
                renamed.iter_mut().skip(at).take(4).for_each(|byte| *byte = self.random.bits() as u8);
                payload = renamed.into();
            } else if faults.misnumbered_per_million > 0 && self.random.chance(faults.misnumbered_per_million)
            {
                count(self, |counts| counts.damaged += 1);
                let mut misnumbered = bytes.to_vec();
                if let Some(byte) = misnumbered.get_mut(faults.misnumbered_at as usize) {
                    *byte ^= 1 << self.random.below(8);
                }
                misnumbered.pop();
                payload = misnumbered.into();
            } else if self.random.chance(faults.padded_per_million) {
                count(self, |counts| counts.damaged += 1);
                let mut padded = bytes.to_vec();
                padded.resize(MOST_BYTES, 0);
                payload = padded.into();
            }
            let is_twice = self.random.chance(faults.twice_per_million);
            for copy in 0..=u32::from(is_twice) {
                let is_late = self.random.chance(faults.late_per_million);
                if is_late {
                    count(self, |counts| counts.late += 1);
                }
                if copy > 0 {
                    count(self, |counts| counts.twice += 1);
                }
                let more = if is_late { self.up_to(faults.late_ns) } else { 0 };
                let at_ns = self.now_ns + u64::from(faults.least_ns) + self.up_to(faults.jitter_ns) + more;
                let bytes = Rc::clone(&payload);
                self.push_network(at_ns, NetworkEvent::Arrives { socket, from, bytes, to });
            }
            if self.random.chance(faults.copied_late_per_million) {
                count(self, |counts| counts.late_copies += 1);
                let at_ns = self.now_ns
                    + u64::from(faults.least_ns)
                    + self.random.bits() % faults.copied_late_ns.max(1);
                self.push_network(at_ns, NetworkEvent::Arrives { socket, from, bytes: payload, to });
            }
        }
    }

    /// Returns when bytes sent now arrive at a connection's side: after everything sent before.
    fn arrival_ns(&mut self, at: usize) -> u64 {
        let TcpFaults { least_ns, jitter_ns, out_until_ns, .. } = self.network.tcp;
        let ns = self.now_ns.max(out_until_ns) + u64::from(least_ns) + self.up_to(jitter_ns);
        let Some(connection) = self.network.connection(at) else { return ns };
        connection.last_ns = ns.max(connection.last_ns + 1);
        connection.last_ns
    }

    /// Sends as many of these bytes as fit.
    fn send_bytes(&mut self, id: usize, bytes: &[u8]) -> io::Result<usize> {
        let TcpFaults { window, piece, reset_per_million, .. } = self.network.tcp;
        let is_reset_now = self.random.chance(reset_per_million);
        let Some(connection) = self.network.connection(id) else { return Err(invalid()) };
        if connection.is_reset {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        if connection.is_shut {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let peer = connection.peer;
        if is_reset_now {
            for side in [Some(id), peer].into_iter().flatten() {
                let at_ns = self.arrival_ns(side);
                self.push_network(at_ns, NetworkEvent::Reset { socket: side });
            }
        }
        let there = peer.and_then(|peer| self.network.connection(peer));
        let Some(there) = there else {
            return self.send_to_nobody(id, bytes.len());
        };
        let room = (window as usize).saturating_sub(there.received.len() + there.coming);
        let taken = bytes.get(..room).unwrap_or(bytes);
        if taken.is_empty() {
            if let Some(connection) = self.network.connection(id) {
                connection.is_blocked = true;
            }
            return Err(io::ErrorKind::WouldBlock.into());
        }
        there.coming += taken.len();
        let Some(peer) = peer else { return Ok(0) };
        for part in taken.chunks(piece.max(1) as usize) {
            let at_ns = self.arrival_ns(peer);
            self.push_network(at_ns, NetworkEvent::Bytes { socket: peer, bytes: part.to_vec() });
        }
        Ok(taken.len())
    }

    /// Writes to a connection whose other side no longer exists. The first bytes trigger a reset, which arrives once the
    /// machine is reachable; until then only a window of bytes is accepted.
    fn send_to_nobody(&mut self, id: usize, length: usize) -> io::Result<usize> {
        let window = self.network.tcp.window as usize;
        let Some(connection) = self.network.connection(id) else { return Err(invalid()) };
        let is_first = connection.unacknowledged == 0;
        let taken = length.min(window.saturating_sub(connection.unacknowledged));
        connection.unacknowledged += taken;
        if is_first {
            let at_ns = self.arrival_ns(id);
            self.push_network(at_ns, NetworkEvent::Reset { socket: id });
        }
        if taken == 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(taken) }
    }

    fn receive_bytes(&mut self, id: usize, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(connection) = self.network.connection(id) else { return Err(invalid()) };
        if connection.is_reset {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let length = buffer.len().min(connection.received.len());
        if length == 0 && !buffer.is_empty() {
            return if connection.is_ended { Ok(0) } else { Err(io::ErrorKind::WouldBlock.into()) };
        }
        let (front, back) = connection.received.as_slices();
        let (of_front, of_back) = buffer.split_at_mut(front.len().min(length));
        for (to, from) in [(of_front, front), (of_back, back)] {
            let length = to.len().min(from.len());
            if let (Some(to), Some(from)) = (to.get_mut(..length), from.get(..length)) {
                to.copy_from_slice(from);
            }
        }
        connection.received.drain(..length);
        let peer = connection.peer;
        if let Some(peer) = peer
            && self.network.connection(peer).is_some_and(|peer| std::mem::take(&mut peer.is_blocked))
        {
            let at_ns = self.now_ns + u64::from(self.network.tcp.least_ns);
            self.push_network(at_ns, NetworkEvent::Room { socket: peer });
        }
        Ok(length)
    }

    /// Stops sending from this side.
    fn shut(&mut self, id: usize) {
        let Some(connection) = self.network.connection(id).filter(|connection| !connection.is_shut) else {
            return;
        };
        connection.is_shut = true;
        if let Some(peer) = connection.peer {
            let at_ns = self.arrival_ns(peer);
            self.push_network(at_ns, NetworkEvent::End { socket: peer });
        }
    }

    fn close(&mut self, id: usize) {
        let Some(socket) = self.network.sockets.get_mut(id).and_then(Option::take) else { return };
        match socket.kind {
            Kind::Udp(_) => self.network.unbind(id),
            Kind::Listener(waiting) => waiting.into_iter().for_each(|connection| self.close(connection)),
            Kind::Connection(Connection { peer, received, is_shut, .. }) => {
                let Some(peer) = peer else { return };
                let at_ns = self.arrival_ns(peer);
                // Closing with unread bytes resets the connection.
                if !received.is_empty() {
                    self.push_network(at_ns, NetworkEvent::Reset { socket: peer });
                } else if !is_shut {
                    self.push_network(at_ns, NetworkEvent::End { socket: peer });
                }
            }
        }
    }

    fn listener_at(&self, address: SocketAddr) -> Option<usize> {
        self.network.sockets.iter().position(|socket| {
            let listener = socket.as_ref().filter(|socket| matches!(socket.kind, Kind::Listener(_)));
            listener.is_some_and(|socket| socket.local == address)
        })
    }
}

/// Handles a network event.
pub(crate) fn take(kernel: &mut Kernel, event: NetworkEvent) {
    match event {
        NetworkEvent::Arrives { socket, from, bytes, to } => {
            let received_ns = kernel.epoch_ns + kernel.now_ns;
            let ahead_ns = kernel.network.socket(socket).map(|socket| socket.host);
            let ahead_ns = ahead_ns
                .and_then(|host| kernel.hosts.get(host.0))
                .map_or(0, |host| host.clock.ahead_ns(kernel.now_ns));
            let received_ns = received_ns.saturating_add_signed(ahead_ns);
            kernel.trace.mix(kernel.now_ns, bytes.len() as u64);
            let Some(Socket { kind: Kind::Udp(udp), .. }) = kernel.network.socket(socket) else { return };
            if udp.push(Datagram { from, bytes, received_ns }) {
                kernel.network.count(to, |counts| counts.arrived += 1);
                kernel.report(socket, true, false);
            } else {
                kernel.network.count(to, |counts| counts.overflowed += 1);
            }
        }
        NetworkEvent::Bytes { socket, bytes } => {
            kernel.trace.mix(kernel.now_ns, bytes.len() as u64);
            if let Some(connection) = kernel.network.connection(socket) {
                connection.coming = connection.coming.saturating_sub(bytes.len());
                connection.received.extend(bytes);
                kernel.report(socket, true, false);
            }
        }
        NetworkEvent::End { socket } => {
            if let Some(connection) = kernel.network.connection(socket) {
                connection.is_ended = true;
                kernel.report(socket, true, false);
            }
        }
        NetworkEvent::Reset { socket } => {
            if let Some(connection) = kernel.network.connection(socket) {
                connection.is_reset = true;
                kernel.report(socket, true, true);
            }
        }
        NetworkEvent::Accept { listener, connection } => match kernel.network.socket(listener) {
            Some(Socket { kind: Kind::Listener(waiting), .. }) => {
                waiting.push_back(connection);
                kernel.report(listener, true, false);
            }
            _ => kernel.close(connection),
        },
        NetworkEvent::Room { socket } => kernel.report(socket, false, true),
    }
}

/// Sets the network's faults for datagrams to an address.
pub fn set_link(to: SocketAddr, faults: LinkFaults) {
    with(|kernel| {
        if let Some(place) = kernel.network.place(to) {
            place.link = Some(faults);
        }
    });
}

/// Returns what the network did to the datagrams for an address.
pub fn link_counts(to: SocketAddr) -> LinkCounts {
    with(|kernel| kernel.network.place(to).map(|place| place.counts).unwrap_or_default())
}

/// Sets whether new connections to an address are refused.
pub fn set_refusing(address: SocketAddr, is_refusing: bool) {
    with(|kernel| match is_refusing {
        true => kernel.network.refusing.insert(address),
        false => kernel.network.refusing.remove(&address),
    });
}

/// Sets the behavior and faults of TCP.
pub fn set_tcp(faults: TcpFaults) {
    with(|kernel| kernel.network.tcp = faults);
}

/// Sets the tap, which sees each datagram.
pub fn set_tap(tap: Tap) {
    with(|kernel| kernel.network.tap = Some(tap));
}

/// Owns a socket of the kernel.
#[derive(Debug)]
struct Owned(usize);

impl Drop for Owned {
    fn drop(&mut self) {
        with(|kernel| kernel.close(self.0));
    }
}

impl Owned {
    fn local(&self) -> io::Result<SocketAddr> {
        with(|kernel| kernel.network.socket(self.0).map(|socket| socket.local).ok_or_else(invalid))
    }

    fn send_to(&self, bytes: &[u8], to: SocketAddr) -> io::Result<()> {
        if !call() {
            return Err(invalid());
        }
        let from = self.local()?;
        with(|kernel| kernel.send(from, to, bytes));
        Ok(())
    }

    fn register(&self, poll: &SimPoll, token: Token, interest: Interest) -> io::Result<()> {
        with(|kernel| {
            let socket = kernel.network.socket(self.0).ok_or_else(invalid)?;
            socket.watch = Some(Watch { poll: poll.0, token, interest });
            // Report what is already available.
            let (is_readable, is_writable) = match &socket.kind {
                Kind::Udp(udp) => (!udp.queue.is_empty(), true),
                Kind::Listener(waiting) => (!waiting.is_empty(), false),
                Kind::Connection(connection) => {
                    (!connection.received.is_empty() || connection.is_ended || connection.is_reset, true)
                }
            };
            kernel.report(self.0, is_readable, is_writable);
            Ok(())
        })
    }

    fn deregister(&self) {
        with(|kernel| {
            if let Some(socket) = kernel.network.socket(self.0) {
                socket.watch = None;
            }
        });
    }
}

/// Waits until something happens to a socket. Returns `false` at the deadline.
fn wait_for(socket: usize, until_ns: Option<u64>) -> bool {
    let may_wait = with(|kernel| {
        let current = kernel.current();
        if kernel.is_dead() || until_ns.is_some_and(|until_ns| kernel.now_ns >= until_ns) {
            return false;
        }
        if let Some(socket) = kernel.network.socket(socket) {
            socket.waiter = current;
        }
        true
    });
    if may_wait {
        wait(Waits::Socket, until_ns);
    }
    may_wait
}

macro_rules! sources {
    ($($socket:ty),*) => {$(
        impl Source<SimPoll> for $socket {
            fn register(&mut self, poll: &SimPoll, token: Token, interest: Interest) -> io::Result<()> {
                self.socket.register(poll, token, interest)
            }

            fn deregister(&mut self, _poll: &SimPoll) -> io::Result<()> {
                self.socket.deregister();
                Ok(())
            }
        }
    )*};
}

sources!(SimReceiver, SimUdpServer, SimListener, SimStream);

/// Waits for simulated sockets.
#[derive(Debug)]
pub struct SimPoll(usize);

/// Wakes a simulated thread from its wait for sockets.
#[derive(Debug)]
pub struct SimWaker {
    poll: usize,
    token: Token,
}

impl Poll for SimPoll {
    type Waker = SimWaker;

    fn new(_most: usize) -> io::Result<Self> {
        Ok(Self(with(|kernel| {
            kernel.network.polls.push(PollState::default());
            kernel.network.polls.len() - 1
        })))
    }

    fn wait(&mut self, ready: &mut Vec<Ready>, longest: Option<Duration>) -> io::Result<()> {
        ready.clear();
        call();
        let until_ns = longest.map(until);
        let has_some = with(|kernel| {
            let (current, now_ns) = (kernel.current(), kernel.now_ns);
            let Some(poll) = kernel.network.polls.get_mut(self.0) else { return true };
            let has_some = !poll.pending.is_empty() || until_ns.is_some_and(|until_ns| now_ns >= until_ns);
            poll.waiter = current.filter(|_| !has_some);
            has_some
        });
        if !has_some {
            wait(Waits::Poll, until_ns);
        }
        with(|kernel| {
            let Some(poll) = kernel.network.polls.get_mut(self.0) else { return };
            poll.waiter = None;
            ready.append(&mut poll.pending);
        });
        Ok(())
    }

    fn waker(&self, token: Token) -> io::Result<SimWaker> {
        with(|kernel| {
            if let Some(poll) = kernel.network.polls.get_mut(self.0) {
                poll.waker = Some(token);
            }
        });
        Ok(SimWaker { poll: self.0, token })
    }
}

impl Wake for SimWaker {
    fn wake(&self) -> io::Result<()> {
        with(|kernel| {
            let Some(poll) = kernel.network.polls.get_mut(self.poll) else { return };
            poll.report(Ready { token: self.token, is_readable: true, is_writable: false, is_closed: false });
            if let Some(waiter) = poll.waiter {
                kernel.wake(waiter, Waits::Poll);
            }
        });
        Ok(())
    }
}

/// Receives datagrams.
#[derive(Debug)]
pub struct SimReceiver {
    socket: Owned,
    address: SocketAddr,
    link_type: LinkType,
}

/// Default size of a socket's buffer, in bytes.
const BUFFER: usize = 212_992;

impl DatagramReceiver for SimReceiver {
    fn open(options: UdpOptions, link_type: LinkType) -> io::Result<Self> {
        let room = options.receive_buffer_bytes.unwrap_or(BUFFER);
        let (socket, address) = with(|kernel| kernel.bind_udp(options.listen, room))?;
        Ok(Self { socket: Owned(socket), address, link_type })
    }

    fn local_address(&self) -> SocketAddr {
        self.address
    }

    fn receive_buffer_bytes(&self) -> io::Result<usize> {
        with(|kernel| match kernel.network.socket(self.socket.0) {
            Some(Socket { kind: Kind::Udp(udp), .. }) => Ok(udp.room),
            _ => Err(invalid()),
        })
    }

    fn send_to(&self, bytes: &[u8], to: SocketAddr) -> io::Result<()> {
        self.socket.send_to(bytes, to)
    }

    fn query_drops(&mut self) -> u64 {
        with(|kernel| match kernel.network.socket(self.socket.0) {
            Some(Socket { kind: Kind::Udp(udp), .. }) => udp.dropped,
            _ => 0,
        })
    }

    fn receive(
        &mut self,
        pool: &mut Pool,
        most: usize,
        entered_ns: u64,
        mut each: impl FnMut(Received),
    ) -> io::Result<usize> {
        if !call() {
            return Err(invalid());
        }
        let mut count = 0;
        let waiting = with(|kernel| match kernel.network.socket(self.socket.0) {
            Some(Socket { kind: Kind::Udp(udp), .. }) => udp.queue.len(),
            _ => 0,
        });
        while count < most.min(waiting) {
            let Ok(mut blank) = pool.blank() else { break };
            let Some(datagram) = with(|kernel| {
                let datagram = match kernel.network.socket(self.socket.0) {
                    Some(Socket { kind: Kind::Udp(udp), .. }) => udp.pop(),
                    _ => None,
                }?;
                kernel.show_tap(Step::Taken, datagram.from, self.address, &datagram.bytes);
                Some(datagram)
            }) else {
                break;
            };
            count += 1;
            let length = datagram.bytes.len();
            match blank.room_mut().get_mut(..length) {
                Some(room) => {
                    room.copy_from_slice(&datagram.bytes);
                    let description = Description {
                        timestamp_ns: datagram.received_ns,
                        entered_ns,
                        original_length: length as u32,
                        link_type: self.link_type,
                    };
                    each(Received::Packet(blank.fill(length, description)));
                }
                None => each(Received::TooLong),
            }
        }
        Ok(count)
    }
}

/// Sends datagrams to one address.
#[derive(Debug)]
pub struct SimSender {
    from: SocketAddr,
    to: SocketAddr,
}

impl DatagramSender for SimSender {
    fn open(to: SocketAddrV4, _hops: u32, _interface: Ipv4Addr) -> io::Result<Self> {
        let from = with(|kernel| local(kernel, SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0)));
        Ok(Self { from, to: to.into() })
    }

    fn send<'b>(&mut self, packets: impl IntoIterator<Item = &'b [u8]>, mut each: impl FnMut(Sent)) {
        if !call() {
            return;
        }
        for packet in packets {
            with(|kernel| kernel.send(self.from, self.to, packet));
            each(Sent::Taken);
        }
    }

    fn describe(&self, error: io::Error) -> String {
        format!("{}: {error}", self.to)
    }
}

/// Answers datagrams.
#[derive(Debug)]
pub struct SimUdpServer {
    socket: Owned,
}

impl UdpServer for SimUdpServer {
    fn bind(address: SocketAddr) -> io::Result<Self> {
        let (socket, _) = with(|kernel| kernel.bind_udp(address, BUFFER))?;
        Ok(Self { socket: Owned(socket) })
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local()
    }

    fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        if !call() {
            return Err(invalid());
        }
        with(|kernel| match kernel.network.socket(self.socket.0) {
            Some(Socket { kind: Kind::Udp(udp), .. }) => {
                let datagram = udp.pop().ok_or(io::ErrorKind::WouldBlock)?;
                let length = datagram.bytes.len().min(buffer.len());
                if let (Some(to), Some(from)) = (buffer.get_mut(..length), datagram.bytes.get(..length)) {
                    to.copy_from_slice(from);
                }
                Ok((length, datagram.from))
            }
            _ => Err(invalid()),
        })
    }

    fn send_to(&self, bytes: &[u8], to: SocketAddr) -> io::Result<usize> {
        self.socket.send_to(bytes, to)?;
        Ok(bytes.len())
    }
}

/// Accepts connections.
#[derive(Debug)]
pub struct SimListener {
    socket: Owned,
}

impl Listener<SimStream> for SimListener {
    fn bind(address: SocketAddr) -> io::Result<Self> {
        with(|kernel| {
            let local = local(kernel, address);
            if kernel.listener_at(local).is_some() {
                return Err(io::ErrorKind::AddrInUse.into());
            }
            let (host, kind) = (kernel.host(), Kind::Listener(VecDeque::new()));
            let id = kernel.network.add(Socket { host, local, kind, watch: None, waiter: None });
            Ok(Self { socket: Owned(id) })
        })
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local()
    }

    fn accept(&self) -> io::Result<(SimStream, SocketAddr)> {
        if !call() {
            return Err(invalid());
        }
        with(|kernel| {
            let Some(Socket { kind: Kind::Listener(waiting), .. }) = kernel.network.socket(self.socket.0)
            else {
                return Err(invalid());
            };
            let id = waiting.pop_front().ok_or(io::ErrorKind::WouldBlock)?;
            let remote = kernel.network.connection(id).ok_or_else(invalid)?.remote;
            Ok((SimStream { socket: Owned(id) }, remote))
        })
    }
}

/// A non-blocking connection.
#[derive(Debug)]
pub struct SimStream {
    socket: Owned,
}

impl Read for SimStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if !call() {
            return Err(invalid());
        }
        with(|kernel| kernel.receive_bytes(self.socket.0, buffer))
    }
}

impl Write for SimStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        if !call() {
            return Err(invalid());
        }
        with(|kernel| kernel.send_bytes(self.socket.0, bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Stream for SimStream {
    fn connect(address: SocketAddr) -> io::Result<Self> {
        if !call() {
            return Err(invalid());
        }
        let is_out = with(|kernel| kernel.network.tcp.out_until_ns > kernel.now_ns);
        if is_out {
            return Err(io::ErrorKind::TimedOut.into());
        }
        join(address).map(|(here, _)| Self { socket: Owned(here) })
    }

    fn is_connected(&self) -> io::Result<bool> {
        Ok(true)
    }

    fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        if how != Shutdown::Read {
            with(|kernel| kernel.shut(self.socket.0));
        }
        Ok(())
    }

    fn set_nodelay(&self, _is_on: bool) -> io::Result<()> {
        Ok(())
    }
}

/// Connects to the listener at an address. Returns the socket, and when the first bytes can come back.
fn join(address: SocketAddr) -> io::Result<(usize, u64)> {
    with(|kernel| {
        let address = remote(kernel, address);
        let listener = kernel.listener_at(address).filter(|_| !kernel.network.refusing.contains(&address));
        let listener = listener.ok_or(io::ErrorKind::ConnectionRefused)?;
        let host = kernel.network.socket(listener).ok_or_else(invalid)?.host;
        let own = local(kernel, SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0));
        let connection = |remote| Connection {
            peer: None,
            remote,
            received: VecDeque::new(),
            is_ended: false,
            is_reset: false,
            is_shut: false,
            coming: 0,
            last_ns: 0,
            is_blocked: false,
            unacknowledged: 0,
        };
        let socket = |host, local, remote| Socket {
            host,
            local,
            kind: Kind::Connection(connection(remote)),
            watch: None,
            waiter: None,
        };
        let of_client = kernel.host();
        let here = kernel.network.add(socket(of_client, own, address));
        let there = kernel.network.add(socket(host, address, own));
        for (one, other) in [(here, there), (there, here)] {
            if let Some(connection) = kernel.network.connection(one) {
                connection.peer = Some(other);
            }
        }
        let at_ns = kernel.arrival_ns(there);
        kernel.push_network(at_ns, NetworkEvent::Accept { listener, connection: there });
        Ok::<_, io::Error>((here, kernel.arrival_ns(here).max(at_ns)))
    })
}

/// A blocking connection, for a client.
#[derive(Debug)]
pub struct SimBlockingStream {
    socket: Owned,
    limits: std::sync::Mutex<[Option<Duration>; 2]>,
}

impl SimBlockingStream {
    /// Retries until the call does not block, or the deadline passes.
    fn blocking<R>(
        &self,
        limit: usize,
        mut attempt: impl FnMut(&mut Kernel) -> io::Result<R>,
    ) -> io::Result<R> {
        let limits = *self.limits.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let until_ns = limits.get(limit).copied().flatten().map(until);
        loop {
            if !call() {
                return Err(invalid());
            }
            match with(&mut attempt) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return done,
            }
            if !wait_for(self.socket.0, until_ns) {
                return Err(io::ErrorKind::WouldBlock.into());
            }
        }
    }
}

impl BlockingStream for SimBlockingStream {
    fn connect(address: SocketAddr, longest: Duration) -> io::Result<Self> {
        if !call() {
            return Err(invalid());
        }
        let until_ns = until(longest);
        let (out_until_ns, is_there) = with(|kernel| {
            let address = remote(kernel, address);
            let mut hosts = kernel.hosts.iter();
            let is_there = hosts.any(|host| host.is_up && IpAddr::V4(host.address) == address.ip());
            (kernel.network.tcp.out_until_ns, is_there)
        });
        // Nobody answers, not even with a refusal.
        if !is_there || out_until_ns >= until_ns {
            wait(Waits::Time, Some(until_ns));
            return Err(io::ErrorKind::TimedOut.into());
        }
        let (here, there) = join(address)?;
        wait(Waits::Time, Some(there));
        Ok(Self { socket: Owned(here), limits: std::sync::Mutex::default() })
    }

    fn set_nodelay(&self, _is_on: bool) -> io::Result<()> {
        Ok(())
    }

    fn set_time_limits(&self, read: Option<Duration>, write: Option<Duration>) -> io::Result<()> {
        *self.limits.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = [read, write];
        Ok(())
    }
}

impl Read for SimBlockingStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let id = self.socket.0;
        self.blocking(0, |kernel| kernel.receive_bytes(id, buffer))
    }
}

impl Write for SimBlockingStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let id = self.socket.0;
        self.blocking(1, |kernel| kernel.send_bytes(id, bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The simulation has no frames: lines are sockets.
#[derive(Debug)]
pub enum SimFrames {}

impl Source<SimPoll> for SimFrames {
    fn register(&mut self, _poll: &SimPoll, _token: Token, _interest: Interest) -> io::Result<()> {
        match *self {}
    }

    fn deregister(&mut self, _poll: &SimPoll) -> io::Result<()> {
        match *self {}
    }
}

impl FrameSource for SimFrames {
    fn open(_options: &FrameOptions) -> Result<Self, InterfaceError> {
        Err(InterfaceError::Missing { name: "of a simulation".to_owned() })
    }

    fn receive(
        &mut self,
        _pool: &mut Pool,
        _most: usize,
        _entered_ns: u64,
        _each: impl FnMut(Received),
    ) -> Result<usize, InterfaceError> {
        match *self {}
    }

    fn is_ready(&mut self) -> bool {
        match *self {}
    }

    fn drops(&mut self) -> Result<u64, InterfaceError> {
        match *self {}
    }
}
