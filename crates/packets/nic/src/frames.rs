//! Frames of a network interface, received by any of the supported methods.
use std::os::fd::{AsFd, BorrowedFd};

#[cfg(feature = "dpdk")]
use super::{DpdkOptions, DpdkReceiver};
use super::{InterfaceError, PacketOptions, PacketReceiver, PacketStatistics, Received};
#[cfg(feature = "af-xdp")]
use super::{XdpOptions, XdpReceiver};
use tapeworks_capture::pool::Pool;

/// How the frames of an interface are received.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum FrameOptions {
    /// By AF_PACKET.
    Packet(PacketOptions),
    /// By AF_XDP.
    #[cfg(feature = "af-xdp")]
    Xdp(XdpOptions),
    /// By DPDK.
    #[cfg(feature = "dpdk")]
    Dpdk(DpdkOptions),
}

/// Receives the frames of an interface.
#[derive(Debug)]
pub enum FrameReceiver {
    /// By AF_PACKET.
    Packet(PacketReceiver),
    /// By AF_XDP.
    #[cfg(feature = "af-xdp")]
    Xdp(XdpReceiver),
    /// By DPDK.
    #[cfg(feature = "dpdk")]
    Dpdk(Box<DpdkReceiver>),
}

/// Counters of an interface's receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameCounts {
    /// By AF_PACKET: the kernel's counters, and the number of frames whose checksum the receiver completed.
    Packet(PacketStatistics, u64),
    /// By AF_XDP: frames dropped by the kernel.
    #[cfg(feature = "af-xdp")]
    Xdp(u64),
    /// By DPDK: frames dropped by the device.
    #[cfg(feature = "dpdk")]
    Dpdk(u64),
}

impl FrameCounts {
    /// Returns the number of frames dropped by the kernel or the device.
    pub const fn drops(&self) -> u64 {
        match self {
            Self::Packet(statistics, _) => statistics.drops,
            #[cfg(feature = "af-xdp")]
            Self::Xdp(drops) => *drops,
            #[cfg(feature = "dpdk")]
            Self::Dpdk(drops) => *drops,
        }
    }
}

impl FrameReceiver {
    /// Opens the interface.
    ///
    /// # Errors
    /// [`InterfaceError`].
    pub fn open(wanted: &FrameOptions) -> Result<Self, InterfaceError> {
        Ok(match wanted {
            FrameOptions::Packet(options) => Self::Packet(PacketReceiver::open(options)?),
            #[cfg(feature = "af-xdp")]
            FrameOptions::Xdp(options) => Self::Xdp(XdpReceiver::open(options)?),
            #[cfg(feature = "dpdk")]
            FrameOptions::Dpdk(options) => Self::Dpdk(Box::new(DpdkReceiver::open(options)?)),
        })
    }

    /// Takes up to `most` available frames, passes each to `each`, and returns their number.
    ///
    /// # Errors
    /// [`InterfaceError`]; having no frame is not an error.
    pub fn receive(
        &mut self,
        pool: &mut Pool,
        most: usize,
        entered_ns: u64,
        each: impl FnMut(Received),
    ) -> Result<usize, InterfaceError> {
        match self {
            Self::Packet(receiver) => receiver.receive(pool, most, entered_ns, each),
            #[cfg(feature = "af-xdp")]
            Self::Xdp(receiver) => receiver.receive(pool, most, entered_ns, each),
            #[cfg(feature = "dpdk")]
            Self::Dpdk(receiver) => receiver.receive(pool, most, entered_ns, each),
        }
    }

    /// Whether frames are waiting in the ring.
    pub fn is_ready(&mut self) -> bool {
        match self {
            Self::Packet(receiver) => receiver.is_ready(),
            #[cfg(feature = "af-xdp")]
            Self::Xdp(receiver) => receiver.is_ready(),
            #[cfg(feature = "dpdk")]
            Self::Dpdk(receiver) => receiver.is_ready(),
        }
    }

    /// Whether its descriptor never becomes ready, so that the receiver must be polled.
    pub const fn is_polled(&self) -> bool {
        match self {
            Self::Packet(_) => false,
            #[cfg(feature = "af-xdp")]
            Self::Xdp(_) => false,
            #[cfg(feature = "dpdk")]
            Self::Dpdk(_) => true,
        }
    }

    /// Checks that the interface still exists and is up.
    ///
    /// # Errors
    /// [`InterfaceError`] when it is not.
    pub fn check(&self) -> Result<(), InterfaceError> {
        match self {
            Self::Packet(receiver) => receiver.check(),
            #[cfg(feature = "af-xdp")]
            Self::Xdp(receiver) => receiver.check(),
            #[cfg(feature = "dpdk")]
            Self::Dpdk(receiver) => receiver.check(),
        }
    }

    /// Returns the kernel's counters up to now.
    ///
    /// # Errors
    /// [`InterfaceError`].
    pub fn counts(&mut self) -> Result<FrameCounts, InterfaceError> {
        Ok(match self {
            Self::Packet(receiver) => {
                FrameCounts::Packet(receiver.statistics()?, receiver.completed_checksums())
            }
            #[cfg(feature = "af-xdp")]
            Self::Xdp(receiver) => FrameCounts::Xdp(receiver.drops()?),
            #[cfg(feature = "dpdk")]
            Self::Dpdk(receiver) => FrameCounts::Dpdk(receiver.drops()?),
        })
    }
}

impl AsFd for FrameReceiver {
    /// Returns the descriptor to wait on until there is something to receive.
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Packet(receiver) => receiver.as_fd(),
            #[cfg(feature = "af-xdp")]
            Self::Xdp(receiver) => receiver.as_fd(),
            #[cfg(feature = "dpdk")]
            Self::Dpdk(receiver) => receiver.as_fd(),
        }
    }
}
