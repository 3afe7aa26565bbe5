//! Packets from the network.

use tapeworks_packet::live::{
    InterfaceError, PacketOptions, PacketReceiver, PacketStatistics, Received, UdpOptions, UdpReceiver,
};
use tapeworks_packet::pool::Pool;

use super::super::{Note, Notes, Outbox, PAYLOAD, Polled, Reader, Reason, Routed, StageError, To};
use crate::Sink as _;

/// How often the kernel is asked what it dropped and whether the interface is there: seldom enough to cost nothing, often
/// enough to be seen. In ns.
const LOOK_NS: u64 = 100_000_000;

/// Packets until the end; without a count there is none.
#[derive(Debug, Clone, Copy)]
struct Left(Option<u64>);

impl Left {
    /// As many of `most` as are left.
    fn of(self, most: usize) -> usize {
        self.0.map_or(most, |left| most.min(usize::try_from(left).unwrap_or(usize::MAX)))
    }

    fn take(&mut self, count: usize) {
        self.0 = self.0.map(|left| left.saturating_sub(count as u64));
    }
}

/// Where what came goes.
fn put(outbox: &mut Outbox, received: Received) {
    match received {
        Received::Packet(packet) => outbox.put(Routed { packet, to: To::Port(0) }),
        Received::TooLong => outbox.drop_unread(Reason::TooLong, 1),
    }
}

/// Reads datagrams from a UDP socket, unicast or multicast. What the kernel dropped because the socket's buffer was full
/// is counted as [`Reason::KernelDropped`].
#[derive(Debug)]
pub struct Udp {
    receiver: UdpReceiver,
    pool: Pool,
    left: Left,
    /// Drops that were told.
    drops: u64,
}

impl Udp {
    /// Opens the socket; ends after `count` datagrams, if that is given.
    ///
    /// # Errors
    /// Why it cannot be opened, in one line that names the address.
    pub fn open(options: UdpOptions, count: Option<u64>, pool: Pool) -> Result<Self, StageError> {
        let told = |error| StageError::failed(format!("cannot listen at {}: {error}", options.listen));
        let receiver = UdpReceiver::open(options, PAYLOAD).map_err(told)?;
        Ok(Self { receiver, pool, left: Left(count), drops: 0 })
    }

    fn tell_drops(&mut self, drops: u64, outbox: &mut Outbox) {
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
        self.tell_drops(self.receiver.drops(), outbox);
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
        let drops = self.receiver.ask_for_drops();
        self.tell_drops(drops, outbox);
    }
}

/// Reads the frames of a network interface (AF_PACKET).
///
/// What the kernel's socket saw is what is met and what is left in the ring at the end: packets handed on, dropped as
/// [`Reason::TooLong`] and dropped by the kernel ([`Reason::KernelDropped`]), and those of [`Note::LeftBehind`].
#[derive(Debug)]
pub struct Interface {
    receiver: PacketReceiver,
    pool: Pool,
    left: Left,
    /// Frames taken out of the ring.
    taken: u64,
    /// What was told.
    statistics: PacketStatistics,
    looked_ns: u64,
    /// Why there will be nothing more than what is in the ring.
    failure: Option<InterfaceError>,
    notes: Notes,
}

impl Interface {
    /// Opens the interface; ends after `count` frames, if that is given.
    ///
    /// # Errors
    /// Why it cannot be opened, in one line that names it.
    pub fn open(options: &PacketOptions, count: Option<u64>, pool: Pool) -> Result<Self, StageError> {
        let receiver = PacketReceiver::open(options).map_err(told)?;
        Ok(Self {
            receiver,
            pool,
            left: Left(count),
            taken: 0,
            statistics: PacketStatistics::default(),
            looked_ns: 0,
            failure: None,
            notes: Notes::default(),
        })
    }

    fn tell_statistics(&mut self, outbox: &mut Outbox) -> Result<(), InterfaceError> {
        let statistics = self.receiver.statistics()?;
        outbox.drop_unread(Reason::KernelDropped, statistics.drops - self.statistics.drops);
        self.notes.set(Note::RingFull, statistics.freezes);
        self.notes.set(Note::ChecksumCompleted, self.receiver.completed_checksums());
        self.statistics = statistics;
        Ok(())
    }

    /// Asks the kernel what it dropped, and whether the interface is still there. Once it is not, the ring is emptied
    /// until the next time.
    fn look(&mut self, outbox: &mut Outbox) -> Result<(), InterfaceError> {
        if let Some(failure) = self.failure.take_if(|_| !self.receiver.is_ready()) {
            return Err(failure);
        }
        self.tell_statistics(outbox)?;
        if let Err(failure) = self.receiver.check() {
            self.failure = Some(failure);
        }
        Ok(())
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is what an error is mapped by")]
fn told(error: InterfaceError) -> StageError {
    StageError::failed(error.to_string())
}

impl Reader for Interface {
    fn poll(&mut self, most: usize, now_ns: u64, outbox: &mut Outbox) -> Result<Polled, StageError> {
        let most = self.left.of(most);
        if most == 0 {
            return Ok(Polled::Ended);
        }
        let notes = &mut self.notes;
        let received = self.receiver.receive(&mut self.pool, most, now_ns, |received| {
            if let Received::Packet(packet) = &received
                && packet.bytes().len() < packet.description().original_length as usize
            {
                notes.count(Note::Cut);
            }
            put(outbox, received);
        });
        let count = received.map_err(told)?;
        self.left.take(count);
        self.taken += count as u64;
        if now_ns.saturating_sub(self.looked_ns) >= LOOK_NS {
            self.looked_ns = now_ns;
            self.look(outbox).map_err(told)?;
        }
        Ok(if count == 0 { Polled::None } else { Polled::Some })
    }

    fn finish(&mut self, outbox: &mut Outbox) {
        // If the kernel does not tell, there is nothing to tell.
        if self.tell_statistics(outbox).is_ok() {
            let PacketStatistics { packets, drops, .. } = self.statistics;
            self.notes.set(Note::LeftBehind, packets.saturating_sub(drops + self.taken));
        }
    }

    fn is_ready(&mut self, now_ns: u64) -> bool {
        let is_time = now_ns.saturating_sub(self.looked_ns) >= LOOK_NS;
        is_time || self.receiver.is_ready() && self.pool.has_room()
    }

    fn notes(&self) -> Notes {
        self.notes
    }
}
