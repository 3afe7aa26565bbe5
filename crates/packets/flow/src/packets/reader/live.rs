//! Readers of live network traffic.

use tapeworks_capture::pool::Pool;
use tapeworks_nic::{
    DpdkOptions, FrameCounts, FrameOptions, FrameReceiver, InterfaceError, PacketOptions, PacketStatistics,
    Received, UdpOptions, UdpReceiver, XdpOptions,
};

use super::super::{Note, Notes, Outbox, PAYLOAD, Polled, Reader, Reason, Routed, StageError, To};
use tapeworks_stage::Sink as _;

/// How often the reader queries the kernel's drop count and the interface's presence, in ns: rare enough to be cheap, often
/// enough to be useful.
const LOOK_NS: u64 = 100_000_000;

/// Packets left to read; `None`: no limit.
#[derive(Debug, Clone, Copy)]
struct Left(Option<u64>);

impl Left {
    /// Limits `most` to the packets left to read.
    fn of(self, most: usize) -> usize {
        self.0.map_or(most, |left| most.min(usize::try_from(left).unwrap_or(usize::MAX)))
    }

    fn take(&mut self, count: usize) {
        self.0 = self.0.map(|left| left.saturating_sub(count as u64));
    }
}

/// Routes a received packet, or counts why there is none.
fn put(outbox: &mut Outbox, received: Received) {
    match received {
        Received::Packet(packet) => outbox.put(Routed { packet, to: To::Port(0) }),
        Received::TooLong => outbox.drop_unread(Reason::TooLong, 1),
    }
}

/// Reads datagrams from a UDP socket, unicast or multicast. [`Reason::KernelDropped`] counts datagrams that the kernel dropped
/// because the socket's buffer was full.
#[derive(Debug)]
pub struct Udp {
    receiver: UdpReceiver,
    pool: Pool,
    left: Left,
    /// Drops reported so far.
    drops: u64,
}

impl Udp {
    /// Opens the socket. Ends after `count` datagrams, if given.
    ///
    /// # Errors
    /// Why the socket cannot be opened, in one line that names the address.
    pub fn open(options: UdpOptions, count: Option<u64>, pool: Pool) -> Result<Self, StageError> {
        let failed = |error| StageError::failed(format!("cannot listen at {}: {error}", options.listen));
        let receiver = UdpReceiver::open(options, PAYLOAD).map_err(failed)?;
        Ok(Self { receiver, pool, left: Left(count), drops: 0 })
    }

    fn report_drops(&mut self, drops: u64, outbox: &mut Outbox) {
        outbox.drop_unread(Reason::KernelDropped, drops - self.drops);
        self.drops = drops;
    }
}

impl Reader for Udp {
    fn poll(&mut self, most: usize, now_ns: u64, outbox: &mut Outbox) -> Result<Polled, StageError> {
        let most = self.left.of(most);
        if most == 0 {
            return Ok(Polled::Ended);
        }
        let received = self.receiver.receive(&mut self.pool, most, now_ns, |received| put(outbox, received));
        self.report_drops(self.receiver.drops(), outbox);
        match received {
            Ok(0) => Ok(Polled::None),
            Ok(count) => {
                self.left.take(count);
                Ok(Polled::Some)
            }
            Err(error) => {
                let address = self.receiver.local_address();
                Err(StageError::failed(format!("cannot receive at {address}: {error}")))
            }
        }
    }

    fn finish(&mut self, outbox: &mut Outbox) {
        let drops = self.receiver.query_drops();
        self.report_drops(drops, outbox);
    }
}

/// Reads the frames of a network interface through AF_PACKET, AF_XDP or DPDK.
///
/// With AF_PACKET, every frame of the kernel's socket is counted exactly once: handed on, dropped as [`Reason::TooLong`], dropped
/// by the kernel ([`Reason::KernelDropped`]), or left in the ring at the end ([`Note::LeftBehind`]). With AF_XDP the kernel
/// counts only its drops, and with DPDK the device does.
#[derive(Debug)]
pub struct Interface {
    source: FrameReceiver,
    pool: Pool,
    left: Left,
    /// Frames taken.
    taken: u64,
    /// Drops reported so far.
    drops: u64,
    looked_ns: u64,
    /// Why no more frames will arrive.
    failure: Option<InterfaceError>,
    notes: Notes,
}

#[expect(clippy::needless_pass_by_value, reason = "it is what an error is mapped by")]
fn failed(error: InterfaceError) -> StageError {
    StageError::failed(error.to_string())
}

impl Interface {
    /// Opens the interface with AF_PACKET. Ends after `count` frames, if given.
    ///
    /// # Errors
    /// Why the interface cannot be opened, in one line that names it.
    pub fn open(options: &PacketOptions, count: Option<u64>, pool: Pool) -> Result<Self, StageError> {
        Self::new(&FrameOptions::Packet(options.clone()), count, pool)
    }

    /// Opens a queue of the interface with AF_XDP. Ends after `count` frames, if given.
    ///
    /// # Errors
    /// Why the queue cannot be opened, in one line that names it, or that this build lacks the feature `af-xdp`.
    #[cfg_attr(not(feature = "af-xdp"), expect(unused_variables, reason = "nothing is opened"))]
    pub fn open_xdp(options: &XdpOptions, count: Option<u64>, pool: Pool) -> Result<Self, StageError> {
        #[cfg(feature = "af-xdp")]
        {
            Self::new(&FrameOptions::Xdp(options.clone()), count, pool)
        }
        #[cfg(not(feature = "af-xdp"))]
        Err(StageError::failed(format!("interface {}: {}", options.interface, super::super::LACKS_AF_XDP)))
    }

    /// Opens a device with DPDK. Ends after `count` frames, if given.
    ///
    /// # Errors
    /// Why the device cannot be opened, in one line that names it, or that this build lacks the feature `dpdk`.
    #[cfg_attr(not(feature = "dpdk"), expect(unused_variables, reason = "nothing is opened"))]
    pub fn open_dpdk(options: &DpdkOptions, count: Option<u64>, pool: Pool) -> Result<Self, StageError> {
        #[cfg(feature = "dpdk")]
        {
            Self::new(&FrameOptions::Dpdk(options.clone()), count, pool)
        }
        #[cfg(not(feature = "dpdk"))]
        Err(StageError::failed(format!("device {}: {}", options.device, super::super::LACKS_DPDK)))
    }

    fn new(options: &FrameOptions, count: Option<u64>, pool: Pool) -> Result<Self, StageError> {
        Ok(Self {
            source: FrameReceiver::open(options).map_err(failed)?,
            pool,
            left: Left(count),
            taken: 0,
            drops: 0,
            looked_ns: 0,
            failure: None,
            notes: Notes::default(),
        })
    }

    /// Reports the kernel's counts. At the end they include frames left in the ring.
    fn report_counts(&mut self, is_end: bool, outbox: &mut Outbox) -> Result<(), InterfaceError> {
        let counts = self.source.counts()?;
        // AF_XDP and DPDK count only drops.
        #[cfg_attr(
            not(any(feature = "af-xdp", feature = "dpdk")),
            expect(irrefutable_let_patterns, reason = "there is one way")
        )]
        if let FrameCounts::Packet(PacketStatistics { packets, drops, freezes }, completed) = counts {
            self.notes.set(Note::RingFull, freezes);
            self.notes.set(Note::ChecksumCompleted, completed);
            if is_end {
                self.notes.set(Note::LeftBehind, packets.saturating_sub(drops + self.taken));
            }
        }
        let drops = counts.drops();
        outbox.drop_unread(Reason::KernelDropped, drops.saturating_sub(self.drops));
        self.drops = drops;
        Ok(())
    }

    /// Queries the kernel's drops and the interface's presence. If the interface disappeared, the reader still takes the frames
    /// in the ring until the next query.
    fn look(&mut self, outbox: &mut Outbox) -> Result<(), InterfaceError> {
        let is_ready = self.source.is_ready();
        if let Some(failure) = self.failure.take_if(|_| !is_ready) {
            return Err(failure);
        }
        if self.failure.is_none() {
            self.failure = self.source.check().err();
        }
        // A removed interface no longer has counts. The last ones remain valid.
        match self.report_counts(false, outbox) {
            Err(failure) if self.failure.is_none() => Err(failure),
            _ => Ok(()),
        }
    }
}

impl Reader for Interface {
    fn poll(&mut self, most: usize, now_ns: u64, outbox: &mut Outbox) -> Result<Polled, StageError> {
        let most = self.left.of(most);
        if most == 0 {
            return Ok(Polled::Ended);
        }
        let notes = &mut self.notes;
        let received = self.source.receive(&mut self.pool, most, now_ns, |received| {
            if let Received::Packet(packet) = &received
                && packet.bytes().len() < packet.description().original_length as usize
            {
                notes.count(Note::Cut);
            }
            put(outbox, received);
        });
        let count = received.map_err(failed)?;
        self.left.take(count);
        self.taken += count as u64;
        if now_ns.saturating_sub(self.looked_ns) >= LOOK_NS {
            self.looked_ns = now_ns;
            self.look(outbox).map_err(failed)?;
        }
        Ok(if count == 0 { Polled::None } else { Polled::Some })
    }

    fn finish(&mut self, outbox: &mut Outbox) {
        // If the kernel does not answer, there is nothing to report.
        let _not_reported = self.report_counts(true, outbox);
    }

    fn is_ready(&mut self, now_ns: u64) -> bool {
        let is_time = now_ns.saturating_sub(self.looked_ns) >= LOOK_NS;
        is_time || self.source.is_ready() && self.pool.has_room()
    }

    fn notes(&self) -> Notes {
        self.notes
    }
}
