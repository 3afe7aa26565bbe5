//! Receives packets from the network into the packet buffers of [`tapeworks_capture::pool`], and sends packets from them (Linux).
//!
//! | type | what it is | how | a packet's time |
//! | --- | --- | --- | --- |
//! | [`UdpReceiver`] | a UDP socket, including multicast groups | `recvmmsg` | the kernel's, in ns |
//! | [`PacketReceiver`] | every frame of a network interface | AF_PACKET: a TPACKET_V3 ring in shared memory | the kernel's, in ns |
//! | `XdpReceiver` | the frames of one queue of an interface, before the kernel's stack; with the feature `af-xdp` | AF_XDP | the clock's |
//! | `DpdkReceiver` | the frames of a device that the program drives itself; with the feature `dpdk` | DPDK | the clock's |
//! | `UringReceiver` | a UDP socket; with the feature `io-uring` | io_uring: one request for many datagrams, with provided buffers | the clock's |
//! | [`Sender`] | UDP payloads to an address, or whole frames to an interface | `sendmmsg` | |
//!
//! None of them starts a thread. Only a [`Sender`] whose socket is full blocks. After opening, only error messages allocate. The
//! kernel counts the packets that it drops; the receivers return its counts.
#![cfg(target_os = "linux")]

mod dpdk;
mod frames;
mod interface;
mod messages;
mod options;
mod ring;
mod sender;
mod udp;
#[cfg(feature = "io-uring")]
mod uring;
mod xdp;

#[cfg(feature = "dpdk")]
pub use dpdk::receiver::DpdkReceiver;
pub use dpdk::{DpdkOptions, MAX_DPDK_BUFFERS};
pub use frames::{FrameCounts, FrameOptions, FrameReceiver};
pub use interface::{InterfaceError, exists, names};
pub use ring::{PacketOptions, PacketReceiver, PacketStatistics};
pub use sender::{Sender, Sent};
pub use udp::{UdpOptions, UdpReceiver};
#[cfg(feature = "io-uring")]
pub use uring::{UringMode, UringReceiver, UringSocket};
#[cfg(feature = "af-xdp")]
pub use xdp::receiver::XdpReceiver;
pub use xdp::{MAX_XDP_FRAMES, XdpMode, XdpOptions};

use tapeworks_capture::pool::Packet;

/// Maximum number of messages in one system call.
pub const MAX_BATCH: usize = 64;

/// The outcome of receiving a packet.
#[derive(Debug)]
pub enum Received {
    /// The packet is in a buffer.
    Packet(Packet),
    /// The packet was longer than a buffer and is lost.
    TooLong,
}

#[cfg(test)]
mod tests;

/// The example of the README, compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
