//! The built-in stages as values, with their ports.

use std::net::SocketAddr;
use std::path::PathBuf;

use tapeworks_capture::pool::Pool;
use tapeworks_nic::{DpdkOptions, PacketOptions, UdpOptions, XdpOptions};

use crate::graph::{Carries, Port};
use crate::packets::StageError;
use crate::packets::filter::{Filter, Predicate};
use crate::packets::reader::{CaptureFile, Interface, Pace, Udp};
use crate::packets::rewriter::{Rewriter, Steps};
use crate::packets::writer::{CaptureWriter, Dropper, SocketWriter};
use crate::runner::Part;

/// The specification of a stage, which can be opened.
#[derive(Debug, Clone, PartialEq)]
pub enum Spec {
    /// Reads a capture file.
    CaptureReader {
        /// The file.
        file: PathBuf,
        /// The speed and the number of repetitions.
        pace: Pace,
    },
    /// Receives datagrams on a UDP port.
    UdpReader {
        /// The address and the socket options.
        options: UdpOptions,
        /// Ends after this many datagrams.
        count: Option<u64>,
    },
    /// Reads a network interface.
    PacketReader {
        /// The interface and its options.
        options: PacketOptions,
        /// Ends after this many frames.
        count: Option<u64>,
    },
    /// Reads a queue of a network interface through AF_XDP.
    XdpReader {
        /// The queue and its options.
        options: XdpOptions,
        /// Ends after this many frames.
        count: Option<u64>,
    },
    /// Reads a device through DPDK.
    DpdkReader {
        /// The device and its options.
        options: DpdkOptions,
        /// Ends after this many frames.
        count: Option<u64>,
    },
    /// Splits packets between the ports [`PASS`] and [`REJECT`].
    Filter(Predicate),
    /// Changes headers.
    Rewriter(Steps),
    /// Writes a capture file.
    CaptureWriter {
        /// The file, whose extension determines the format.
        file: PathBuf,
        /// Whether to replace an existing file.
        overwrite: bool,
    },
    /// Sends UDP payloads.
    UdpWriter {
        /// The destination.
        to: SocketAddr,
        /// How many hops multicast travels.
        hops: Option<u32>,
    },
    /// Sends frames out of a network interface.
    PacketWriter {
        /// The interface's name.
        interface: String,
    },
    /// Drops packets.
    Dropper,
}

/// A type of stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    /// The name in a configuration.
    pub name: &'static str,
    /// The name for people.
    pub words: &'static str,
    /// The packets it accepts; empty for a reader.
    pub accepts: &'static [Carries],
    /// The outputs; empty for a writer.
    pub ports: &'static [Port],
}

/// A filter's port for the packets that match.
pub const PASS: usize = 0;

/// A filter's port for the packets that do not match. If it is not connected, they are dropped and counted.
pub const REJECT: usize = 1;

const FRAMES: &[Carries] = &[Carries::Frames];
const ANY: &[Carries] = &[Carries::Frames, Carries::Payloads];
const OUT: &[Port] = &[Port { name: "out", carries: Carries::Frames, may_be_open: false }];
const PAYLOADS_OUT: &[Port] = &[Port { name: "out", carries: Carries::Payloads, may_be_open: false }];
const PASS_AND_REJECT: &[Port] = &[
    Port { name: "pass", carries: Carries::Frames, may_be_open: false },
    Port { name: "reject", carries: Carries::Frames, may_be_open: true },
];

/// All types of stages.
pub const KINDS: [Kind; 11] = [
    Kind { name: "capture_reader", words: "capture reader", accepts: &[], ports: OUT },
    Kind { name: "udp_reader", words: "UDP reader", accepts: &[], ports: OUT },
    Kind { name: "packet_reader", words: "packet reader", accepts: &[], ports: OUT },
    Kind { name: "xdp_reader", words: "XDP reader", accepts: &[], ports: OUT },
    Kind { name: "dpdk_reader", words: "DPDK reader", accepts: &[], ports: OUT },
    Kind { name: "filter", words: "filter", accepts: FRAMES, ports: PASS_AND_REJECT },
    Kind { name: "rewriter", words: "rewriter", accepts: FRAMES, ports: OUT },
    Kind { name: "capture_writer", words: "capture writer", accepts: FRAMES, ports: &[] },
    Kind { name: "udp_writer", words: "UDP writer", accepts: ANY, ports: &[] },
    Kind { name: "packet_writer", words: "packet writer", accepts: FRAMES, ports: &[] },
    Kind { name: "dropper", words: "dropper", accepts: ANY, ports: &[] },
];

impl Spec {
    /// Returns a reader of a capture file, once and as fast as possible.
    pub fn capture_reader(file: impl Into<PathBuf>) -> Self {
        Self::CaptureReader { file: file.into(), pace: Pace::default() }
    }

    /// Returns a writer of a new capture file.
    pub fn capture_writer(file: impl Into<PathBuf>) -> Self {
        Self::CaptureWriter { file: file.into(), overwrite: false }
    }

    /// Returns the stage's type with its actual ports: a UDP reader without headers delivers payloads.
    pub const fn kind(&self) -> Kind {
        let place = match self {
            Self::CaptureReader { .. } => 0,
            Self::UdpReader { options, .. } if !options.with_headers => {
                return Kind { ports: PAYLOADS_OUT, ..KINDS[1] };
            }
            Self::UdpReader { .. } => 1,
            Self::PacketReader { .. } => 2,
            Self::XdpReader { .. } => 3,
            Self::DpdkReader { .. } => 4,
            Self::Filter(_) => 5,
            Self::Rewriter(_) => 6,
            Self::CaptureWriter { .. } => 7,
            Self::UdpWriter { .. } => 8,
            Self::PacketWriter { .. } => 9,
            Self::Dropper => 10,
        };
        KINDS[place]
    }

    /// Returns whether it changes packets and therefore copies shared ones.
    pub const fn copies(&self) -> bool {
        matches!(self, Self::Rewriter(_))
    }

    /// Returns the file, socket or interface it reads or writes, for the drawing of a graph; empty for other stages.
    pub fn place(&self) -> String {
        match self {
            Self::CaptureReader { file, .. } | Self::CaptureWriter { file, .. } => file.display().to_string(),
            Self::UdpReader { options, .. } => format!("at {}", options.listen),
            Self::PacketReader { options, .. } => options.interface.clone(),
            Self::XdpReader { options, .. } => options.interface.clone(),
            Self::DpdkReader { options, .. } => options.device.clone(),
            Self::UdpWriter { to, .. } => format!("to {to}"),
            Self::PacketWriter { interface } => interface.clone(),
            Self::Filter(_) | Self::Rewriter(_) | Self::Dropper => String::new(),
        }
    }

    /// Opens the stage. `pool` creates its packet buffers, if it needs any.
    ///
    /// # Errors
    /// Why the stage cannot be opened, in one line that names the file, address or interface.
    pub fn open(&self, pool: impl FnOnce() -> Pool) -> Result<Part, StageError> {
        Ok(match self {
            Self::CaptureReader { file, pace } => {
                Part::Reader(Box::new(CaptureFile::open(file, *pace, pool())?))
            }
            Self::UdpReader { options, count } => {
                Part::Reader(Box::new(Udp::open(*options, *count, pool())?))
            }
            Self::PacketReader { options, count } => {
                Part::Reader(Box::new(Interface::open(options, *count, pool())?))
            }
            Self::XdpReader { options, count } => {
                Part::Reader(Box::new(Interface::open_xdp(options, *count, pool())?))
            }
            Self::DpdkReader { options, count } => {
                Part::Reader(Box::new(Interface::open_dpdk(options, *count, pool())?))
            }
            Self::Filter(predicate) => Part::Stage(Box::new(Filter::new(predicate.clone()))),
            Self::Rewriter(steps) => Part::Stage(Box::new(Rewriter::new(*steps, pool()))),
            Self::CaptureWriter { file, overwrite } => {
                Part::Stage(Box::new(CaptureWriter::create(file, *overwrite)?))
            }
            Self::UdpWriter { to, hops } => Part::Stage(Box::new(SocketWriter::udp(*to, *hops)?)),
            Self::PacketWriter { interface } => Part::Stage(Box::new(SocketWriter::interface(interface)?)),
            Self::Dropper => Part::Stage(Box::new(Dropper)),
        })
    }
}
