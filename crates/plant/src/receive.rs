//! Where datagrams come from: a socket for each line, or the frames of a network interface.
//!
//! Sockets are the default: one `recvmmsg` for what a line has, with the kernel's receive times. With AF_PACKET or AF_XDP all lines
//! come out of one ring of frames, distinguished by their destination; the groups are joined all the same, so that switches and
//! cards let them through. Answers of retransmission servers come by sockets; where AF_XDP takes their frames off the kernel's stack
//! they are known by where they come from. Answers to requests over TCP come to an address of their own, as a line does.
//!
//! Nothing is allocated after the opening.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use mio::{Interest, Token};
use tapeworks_market::Line;
use tapeworks_packet::capture::LinkType;
use tapeworks_packet::live::{FrameOptions, MAX_BATCH, PacketOptions, Received, UdpOptions};
use tapeworks_packet::net::{self, Checksums, Origin};
use tapeworks_packet::pool::{Packet, Pool};
use tapeworks_runtime::world::{
    DatagramReceiver as _, FrameSource as _, Poll as _, Ready, Source as _, World,
};
use tapeworks_time::Nanos;

use crate::clock::ReceiveTimes;
use crate::error::{PlantError, PlantFailure};
use crate::options::{PlantOptions, RetransmissionServer, Source};
use crate::status::InterfaceStatus;

/// Datagrams without headers have no link type; this is one for private use.
const BARE: LinkType = LinkType(147);

/// Up to so many sockets are each read in turn; above, the kernel reports which have datagrams.
const MOST_READ_IN_TURN: usize = 4;

/// Sockets that one call reports.
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
    /// Its datagrams come as frames, by another way.
    by_frames: bool,
}

impl<W: World> LineReceiver<W> {
    /// Datagrams that the kernel dropped because they were not taken in time.
    pub(super) fn kernel_drops(&mut self) -> u64 {
        if self.by_frames { 0 } else { self.receiver.query_drops() }
    }
}

/// A datagram that was received.
pub(super) struct Arrived {
    pub(super) received: Nanos,
    pub(super) channel: u16,
    pub(super) line: Line,
    pub(super) packet: Packet,
    /// Where its payload lies in the packet's bytes.
    pub(super) payload: (u32, u32),
}

/// Of a channel that requests by datagrams: the place of the socket that sends them to its retransmission server, and the server's address.
pub(super) type RecoveryServer = Option<(usize, SocketAddr)>;

/// All sockets and rings of a plant.
pub(super) struct Receivers<W: World> {
    pub(super) lines: Vec<LineReceiver<W>>,
    pool: Pool,
    poll: W::Poll,
    reported: Vec<Ready>,
    /// Whether each line may have datagrams: the kernel reports it once, and then the line is read until it is empty.
    ready: Vec<bool>,
    /// The wait has just polled the sockets.
    has_waited: bool,
    frames: Option<W::FrameSource>,
    by_address: HashMap<SocketAddr, usize>,
    frame_buffer: Vec<Packet>,
    /// Sockets that keep the groups joined where frames bring their datagrams.
    _joined: Vec<W::Membership>,
    /// Where AF_XDP takes answers too: the sockets that send requests, by server and own port.
    by_answer: HashMap<(SocketAddr, u16), usize>,
    interface: Option<InterfaceStatus>,
    /// The checksums of frames.
    checksums: Option<Checksums>,
    frame_times: ReceiveTimes,
    /// A datagram said a time long before another's of its source.
    has_gone_back: bool,
}

impl<W: World> Receivers<W> {
    /// Opens the lines, and for each retransmission server a socket. Returns also which socket sends requests to which server.
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
                    // A device that the kernel does not drive joins nothing, unless an interface of the kernel is named for it.
                    let interface = options.receive.interface;
                    if options.receive.source.is_of_the_kernel() || interface.is_some() {
                        joined.push(W::join_group(address.ip(), interface).map_err(failed)?);
                    }
                    // A socket of its own, for its counters and requests; its datagrams come as frames.
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
            // A number that no line has: a turn looks into the ring in any case.
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

    /// What ends a [`Receivers::wait`] early. There can be one.
    pub(super) fn waker(&self) -> Result<W::Waker, PlantError> {
        // A number that neither a line nor the ring of frames has.
        self.poll.waker(Token(self.lines.len() + 1)).map_err(|source| PlantError::Wait { source })
    }

    /// Waits until a socket or the ring of frames has something, at most so long. The kernel reports a frame once: the wait is short
    /// while frames are left in the ring because no packet buffer is free, and where nothing reports a frame (DPDK).
    pub(super) fn wait(&mut self, longest: Duration) {
        let must_look = self.frames.as_mut().is_some_and(|frames| frames.is_ready() || frames.is_polled());
        let longest = if must_look { longest.min(Duration::from_micros(50)) } else { longest };
        self.poll_sockets(longest);
        self.has_waited = true;
    }

    /// Polls which sockets have new datagrams. All may have some if the poll fails.
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

    /// Takes the received datagrams, in the order of the receive times.
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
                    // Without a free buffer it stays with the kernel.
                    *ready = count == MAX_BATCH || !self.pool.has_room();
                }
                // The answer to a request came back as "nobody is there": the request goes unanswered.
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
            // Stable without a buffer: a handful, nearly in order.
            insertion_sort(arrived);
        }
        Ok(())
    }

    /// Whether a datagram has said, since the last call, a time long before another's of its source: someone has set the clock.
    #[inline]
    pub(super) const fn take_gone_back(&mut self) -> bool {
        std::mem::replace(&mut self.has_gone_back, false)
    }

    /// It is `now`, and the clock was set ahead by so many ns: the times of later datagrams are compared with that.
    pub(super) fn set_times(&mut self, now: Nanos, ahead_ns: i64) {
        self.frame_times.set(now, ahead_ns);
        self.lines.iter_mut().for_each(|line| line.times.set(now, ahead_ns));
    }

    /// The interface, as the kernel counts now.
    pub(super) fn interface(&mut self) -> Option<&InterfaceStatus> {
        let drops = self.frames.as_mut()?.drops();
        let interface = self.interface.as_mut()?;
        // A counter that cannot be read now keeps its value; the reader of an interface reports that it is gone.
        interface.kernel_drops = drops.unwrap_or(interface.kernel_drops);
        Some(interface)
    }

    /// Takes frames, and finds out which are of our lines. Whether there were some.
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
            // These frames have been published already.
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

/// Any address of the family of `like`, at a port that the system chooses.
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
