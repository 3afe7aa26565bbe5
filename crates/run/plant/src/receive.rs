//! Sources of datagrams: a socket for each line, or the frames of a network interface.
//!
//! Sockets are the default: one `recvmmsg` reads the datagrams of a line, with the kernel's receive times. With AF_PACKET, AF_XDP
//! or DPDK all lines come out of one ring of frames, distinguished by their destination; the groups are joined as well, so that
//! switches and network cards forward them. Answers of retransmission servers arrive on sockets; if AF_XDP or DPDK takes their
//! frames before the kernel's stack, they are recognized by their source. Answers to requests over TCP that come to a separate
//! address are received like a line.
//!
//! Nothing is allocated after opening.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use mio::{Interest, Token};
use tapeworks_capture::LinkType;
use tapeworks_capture::net::{self, Checksums, Origin};
use tapeworks_capture::pool::{Packet, Pool};
use tapeworks_market::Line;
use tapeworks_nic::{FrameOptions, MAX_BATCH, PacketOptions, Received, UdpOptions};
use tapeworks_runtime::world::{
    DatagramReceiver as _, FrameSource as _, Poll as _, Ready, Source as _, World,
};
use tapeworks_time::Nanos;

use crate::clock::ReceiveTimes;
use crate::error::{PlantError, PlantFailure};
use crate::options::{PlantOptions, RetransmissionServer, Source};
use crate::status::InterfaceStatus;

/// Link type of datagrams without headers: one reserved for private use.
const BARE: LinkType = LinkType(147);

/// Up to this many sockets are each read in every turn; with more, the kernel reports which have datagrams.
const MOST_READ_IN_TURN: usize = 4;

/// Maximum number of sockets that one poll reports.
const MOST_EVENTS: usize = 64;

/// A socket of a channel, or the counters of its frames.
pub(super) struct LineReceiver<W: World> {
    pub(super) receiver: W::DatagramReceiver,
    pub(super) address: SocketAddr,
    pub(super) channel: u16,
    pub(super) line: Line,
    pub(super) too_long: u64,
    pub(super) buffer_bytes: usize,
    pub(super) wanted_bytes: usize,
    venue: String,
    times: ReceiveTimes,
    /// Whether its datagrams arrive as frames instead.
    by_frames: bool,
}

impl<W: World> LineReceiver<W> {
    /// Returns how many datagrams the kernel dropped because they were not read in time.
    pub(super) fn kernel_drops(&mut self) -> u64 {
        if self.by_frames { 0 } else { self.receiver.query_drops() }
    }
}

/// A received datagram.
pub(super) struct Arrived {
    pub(super) received: Nanos,
    pub(super) channel: u16,
    pub(super) line: Line,
    pub(super) packet: Packet,
    /// The range of its payload in the packet's bytes.
    pub(super) payload: (u32, u32),
}

/// For a channel that requests by datagram: the index of the socket that sends to its retransmission server, and the server's
/// address.
pub(super) type RecoveryServer = Option<(usize, SocketAddr)>;

/// All sockets and rings of a plant.
pub(super) struct Receivers<W: World> {
    pub(super) lines: Vec<LineReceiver<W>>,
    pool: Pool,
    poll: W::Poll,
    reported: Vec<Ready>,
    /// Whether each line may have datagrams. The kernel reports this once, and then the line is read until it is empty.
    ready: Vec<bool>,
    /// Whether `wait` has just polled the sockets.
    has_waited: bool,
    frames: Option<W::FrameSource>,
    by_address: HashMap<SocketAddr, usize>,
    frame_buffer: Vec<Packet>,
    /// Keep the groups joined if frames bring their datagrams.
    _joined: Vec<W::Membership>,
    /// If the kernel's stack does not see answers either: the lines that send requests, by server and own port.
    by_answer: HashMap<(SocketAddr, u16), usize>,
    interface: Option<InterfaceStatus>,
    /// Verifies the checksums of frames.
    checksums: Option<Checksums>,
    frame_times: ReceiveTimes,
    /// Whether a datagram had a time long before an earlier one of its source.
    has_gone_back: bool,
}

impl<W: World> Receivers<W> {
    /// Opens the lines, and a socket for each retransmission server. Also returns which socket sends requests to which server.
    pub(super) fn open(options: &PlantOptions) -> Result<(Self, Vec<RecoveryServer>), PlantError> {
        let by_frames = options.receive.source != Source::Sockets;
        let mut lines: Vec<LineReceiver<W>> = Vec::new();
        let mut servers = Vec::new();
        let mut joined = Vec::new();
        let (mut by_address, mut by_answer) = (HashMap::new(), HashMap::new());
        for (channel, venue) in options.venues.iter().enumerate() {
            let channel = channel as u16;
            let group = match &venue.retransmission {
                Some(RetransmissionServer::Tcp { group, .. }) => {
                    group.as_ref().map(|group| (group, Line::Recovery))
                }
                Some(RetransmissionServer::Udp(_)) | None => None,
            };
            for (address, line) in venue.lines.iter().zip([Line::A, Line::B]).chain(group) {
                if by_frames {
                    by_address.insert(*address, lines.len());
                    let failed =
                        |source| PlantError::Listen { venue: venue.name.clone(), address: *address, source };
                    // A device that the kernel does not drive joins nothing, unless a kernel interface is named for it.
                    let interface = options.receive.interface;
                    if options.receive.source.is_of_the_kernel() || interface.is_some() {
                        joined.push(W::join_group(address.ip(), interface).map_err(failed)?);
                    }
                    // A separate socket, for its counters and requests; the datagrams arrive as frames.
                    let mut own = open_line(options, &venue.name, any(*address), channel, line)?;
                    (own.address, own.by_frames, own.wanted_bytes) = (*address, true, 0);
                    lines.push(own);
                } else {
                    lines.push(open_line(options, &venue.name, *address, channel, line)?);
                }
            }
            servers.push(match venue.retransmission {
                Some(RetransmissionServer::Udp(server)) => {
                    let own = open_line(options, &venue.name, any(server), channel, Line::Recovery)?;
                    if options.receive.source.is_ahead_of_the_kernel() {
                        by_answer.insert((server, own.address.port()), lines.len());
                    }
                    lines.push(own);
                    Some((lines.len() - 1, server))
                }
                Some(RetransmissionServer::Tcp { .. }) | None => None,
            });
        }
        let waiting = |source| PlantError::Wait { source };
        let poll = W::Poll::new(MOST_EVENTS).map_err(waiting)?;
        for (at, line) in lines.iter_mut().enumerate().filter(|(_, line)| !line.by_frames) {
            line.receiver.register(&poll, Token(at), Interest::READABLE).map_err(waiting)?;
        }
        let mut frames = open_frames::<W>(options)?;
        if let Some(frames) = &mut frames {
            // A token that no line has: every turn reads the ring anyway.
            frames.register(&poll, Token(lines.len()), Interest::READABLE).map_err(waiting)?;
        }
        let receivers = Self {
            ready: vec![true; lines.len()],
            has_waited: false,
            lines,
            pool: Pool::new(options.receive.buffers.max(2 * MAX_BATCH), options.receive.datagram_bytes),
            poll,
            reported: Vec::with_capacity(MOST_EVENTS),
            frames,
            checksums: by_frames.then(Checksums::preallocated),
            by_address,
            frame_buffer: Vec::with_capacity(MAX_BATCH),
            _joined: joined,
            by_answer,
            frame_times: ReceiveTimes::NONE,
            has_gone_back: false,
            interface: options
                .receive
                .source
                .device()
                .map(|device| InterfaceStatus { device: device.to_owned(), ..InterfaceStatus::default() }),
        };
        Ok((receivers, servers))
    }

    /// Returns what ends a [`Receivers::wait`] early. There can be only one.
    pub(super) fn waker(&self) -> Result<W::Waker, PlantError> {
        // A token that neither a line nor the ring of frames has.
        self.poll.waker(Token(self.lines.len() + 1)).map_err(|source| PlantError::Wait { source })
    }

    /// Waits until a socket or the ring of frames has data, but at most `longest`. The kernel reports a frame once, so the wait is
    /// short while frames are left in the ring because no packet buffer is free, and if nothing reports frames (DPDK).
    pub(super) fn wait(&mut self, longest: Duration) {
        let must_look = self.frames.as_mut().is_some_and(|frames| frames.is_ready() || frames.is_polled());
        let longest = if must_look { longest.min(Duration::from_micros(50)) } else { longest };
        self.poll_sockets(longest);
        self.has_waited = true;
    }

    /// Polls which sockets have new datagrams. If the poll fails, all of them may.
    fn poll_sockets(&mut self, longest: Duration) {
        match self.poll.wait(&mut self.reported, Some(longest)) {
            Ok(()) => {
                for reported in &self.reported {
                    if let Some(ready) = self.ready.get_mut(reported.token.0) {
                        *ready = true;
                    }
                }
            }
            Err(_) => self.ready.fill(true),
        }
    }

    /// Takes the received datagrams, ordered by receive time.
    pub(super) fn receive(&mut self, arrived: &mut Vec<Arrived>) -> Result<(), PlantFailure> {
        let mut sources = 0;
        if self.frames.is_some() {
            sources += usize::from(self.receive_frames(arrived)?);
        }
        let has_waited = std::mem::take(&mut self.has_waited);
        if self.lines.len() <= MOST_READ_IN_TURN {
            self.ready.fill(true);
        } else if !has_waited {
            self.poll_sockets(Duration::ZERO);
        }
        for (from, ready) in self.lines.iter_mut().zip(&mut self.ready) {
            if !*ready || from.by_frames {
                continue;
            }
            let (too_long, times, has_gone_back) =
                (&mut from.too_long, &mut from.times, &mut self.has_gone_back);
            let (channel, line) = (from.channel, from.line);
            let received = from.receiver.receive(&mut self.pool, MAX_BATCH, 0, |received| match received {
                Received::Packet(packet) => {
                    let received = times.next(Nanos(packet.description().timestamp_ns), has_gone_back);
                    let payload = (0, packet.bytes().len() as u32);
                    arrived.push(Arrived { received, channel, line, packet, payload });
                }
                Received::TooLong => *too_long += 1,
            });
            match received {
                Ok(count) => {
                    sources += usize::from(count > 0);
                    // Without a free buffer the rest stays with the kernel.
                    *ready = count == MAX_BATCH || !self.pool.has_room();
                }
                // A request was answered with "port unreachable": it stays unanswered.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(source) => {
                    return Err(PlantFailure::Receive {
                        venue: from.venue.clone(),
                        address: from.address,
                        source,
                    });
                }
            }
        }
        if sources > 1 {
            // Stable and without a buffer: there are few datagrams, nearly in order.
            insertion_sort(arrived);
        }
        Ok(())
    }

    /// Returns whether a datagram since the last call had a time long before an earlier one of its source, which means that someone
    /// has set the clock.
    #[inline]
    pub(super) const fn take_gone_back(&mut self) -> bool {
        std::mem::replace(&mut self.has_gone_back, false)
    }

    /// Compares later datagrams with the set clock: it now reads `now`, and was set ahead by `ahead_ns`.
    pub(super) fn set_times(&mut self, now: Nanos, ahead_ns: i64) {
        self.frame_times.set(now, ahead_ns);
        self.lines.iter_mut().for_each(|line| line.times.set(now, ahead_ns));
    }

    /// Returns the interface's status with the kernel's current counters.
    pub(super) fn interface(&mut self) -> Option<&InterfaceStatus> {
        let drops = self.frames.as_mut()?.drops();
        let interface = self.interface.as_mut()?;
        // A counter that cannot be read keeps its value; reading frames reports an interface that is missing.
        interface.kernel_drops = drops.unwrap_or(interface.kernel_drops);
        Some(interface)
    }

    /// Takes frames and keeps those of the plant's lines. Returns whether there were any.
    fn receive_frames(&mut self, arrived: &mut Vec<Arrived>) -> Result<bool, PlantFailure> {
        let (Some(frames), Some(interface), Some(checksums)) =
            (&mut self.frames, &mut self.interface, &mut self.checksums)
        else {
            return Ok(false);
        };
        let taken = &mut self.frame_buffer;
        let mut each = |received| match received {
            Received::Packet(packet) => taken.push(packet),
            Received::TooLong => interface.too_long += 1,
        };
        let result = frames.receive(&mut self.pool, MAX_BATCH, 0, &mut each);
        result.map_err(|source| PlantFailure::Interface { source })?;
        let had_some = !self.frame_buffer.is_empty();
        for packet in self.frame_buffer.drain(..) {
            let description = *packet.description();
            let Ok(datagram) = net::parse(description.link_type, packet.bytes()) else {
                interface.foreign += 1;
                continue;
            };
            let place = self
                .by_address
                .get(&datagram.destination)
                .or_else(|| self.by_answer.get(&(datagram.source, datagram.destination.port())))
                .and_then(|at| self.lines.get(*at));
            let (Some(line), net::Transport::Udp) = (place, datagram.transport) else {
                interface.foreign += 1;
                continue;
            };
            // The kernel verifies the checksums of what sockets receive, but not of frames.
            let udp = datagram.from_udp_header(packet.bytes());
            let origin = Origin { number: 0, offset: 0, timestamp_ns: description.timestamp_ns };
            let verdict = checksums.check(&datagram, udp, origin);
            // The reported frames have already been delivered.
            while checksums.take_report().is_some() {
                interface.bad_checksums += 1;
            }
            if verdict.is_err() {
                interface.bad_checksums += 1;
                continue;
            }
            let start = datagram.payload_offset as u32;
            let payload = (start, start + datagram.payload.len() as u32);
            let (channel, line) = (line.channel, line.line);
            let received = self.frame_times.next(Nanos(description.timestamp_ns), &mut self.has_gone_back);
            arrived.push(Arrived { received, channel, line, packet, payload });
        }
        Ok(had_some)
    }
}

/// Sorts datagrams by receive time; they are nearly in order.
fn insertion_sort(arrived: &mut [Arrived]) {
    for at in 1..arrived.len() {
        let mut place = at;
        while place > 0 && arrived[place - 1].received > arrived[place].received {
            arrived.swap(place - 1, place);
            place -= 1;
        }
    }
}

/// Returns the wildcard address of the same family as `like`, with a port chosen by the system.
fn any(like: SocketAddr) -> SocketAddr {
    SocketAddr::new(if like.is_ipv4() { [0, 0, 0, 0].into() } else { [0u16; 8].into() }, 0)
}

fn open_frames<W: World>(options: &PlantOptions) -> Result<Option<W::FrameSource>, PlantError> {
    let wanted = match &options.receive.source {
        Source::Sockets => return Ok(None),
        Source::Packet { device } => {
            let mut wanted = PacketOptions::new(device);
            if let Some(bytes) = options.receive.buffer_bytes {
                wanted.blocks = (bytes / wanted.block_bytes).max(2);
            }
            FrameOptions::Packet(wanted)
        }
        #[cfg(feature = "af-xdp")]
        Source::Xdp(wanted) => FrameOptions::Xdp(wanted.clone()),
        #[cfg(feature = "dpdk")]
        Source::Dpdk(wanted) => FrameOptions::Dpdk(wanted.clone()),
    };
    W::FrameSource::open(&wanted).map(Some).map_err(|source| PlantError::Interface { source })
}

fn open_line<W: World>(
    options: &PlantOptions,
    venue: &str,
    address: SocketAddr,
    channel: u16,
    line: Line,
) -> Result<LineReceiver<W>, PlantError> {
    let udp = UdpOptions {
        listen: address,
        interface: options.receive.interface,
        receive_buffer_bytes: options.receive.buffer_bytes,
        with_headers: false,
        busy_poll_us: options.receive.busy_poll_us,
    };
    let failed = |source| PlantError::Listen { venue: venue.to_owned(), address, source };
    let receiver = W::DatagramReceiver::open(udp, BARE).map_err(failed)?;
    let buffer_bytes = receiver.receive_buffer_bytes().map_err(failed)?;
    Ok(LineReceiver {
        address: receiver.local_address(),
        receiver,
        channel,
        line,
        too_long: 0,
        buffer_bytes,
        wanted_bytes: options.receive.buffer_bytes.unwrap_or_default(),
        venue: venue.to_owned(),
        times: ReceiveTimes::NONE,
        by_frames: false,
    })
}
