//! Capture files and network headers, zero-copy.
//!
//! The path from a file on disk to the bytes that an exchange sent:
//!
//! | module | what it does |
//! | --- | --- |
//! | [`source`] | opens a file, a pipe or standard input; maps plain files, streams gzip and zstd in bounded memory |
//! | [`CaptureReader`], [`Writer`] | read and write pcap and pcapng, one packet at a time, with its time, number and offset |
//! | [`framed`] | reads files of length-prefixed messages (Nasdaq's raw ITCH) in batches that let a decoder look ahead |
//! | [`net`] | parses Ethernet, VLAN, Linux cooked, IP, UDP and TCP headers, fragments and checksums; [`net::build`], [`net::rewrite`] write them |
//! | [`pool`] | packet buffers that several stages share; a stage copies one only to change it |
//! | [`tcp`] | reassembles the payload of TCP segments |
//! | [`new_file`] | writes a file that gets its name once it is complete, one run at a time |
//! | [`stop`] | stops calls that wait for a pipe |
//!
//! Nothing here opens a socket: `tapeworks-nic` receives live packets into the same buffers. Nothing depends on an exchange's
//! protocol. Nothing allocates per packet except out-of-order TCP segments.
//!
//! ```no_run
//! use std::path::Path;
//! use tapeworks_capture::{CaptureReader, net};
//!
//! # fn main() -> Result<(), tapeworks_capture::CaptureError> {
//! let mut reader = CaptureReader::open(Path::new("session.pcap.zst"))?;
//! while let Some(packet) = reader.next_packet()? {
//!     if let Ok(datagram) = net::parse(packet.link_type, packet.bytes) {
//!         println!("{} {} bytes to {}", packet.timestamp_ns, datagram.payload.len(), datagram.destination);
//!     }
//! }
//! # Ok(())
//! # }
//! ```

mod compression;
mod error;
mod file;
pub mod framed;
mod link_type;
pub mod net;
pub mod new_file;
pub mod pool;
pub mod source;
pub mod stop;
pub mod tcp;

pub use error::{CaptureError, FirstBytes};
pub use file::{
    CaptureReader, CapturedDatagram, CapturedPacket, FileKind, Format, LinkType, MAX_BLOCK_BYTES,
    MAX_CAPTURED_BYTES, Resolution, Tally, Writer, WriterOptions, detect,
};

/// Compiles the README's examples.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
