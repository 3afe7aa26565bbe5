//! Capture files and network headers, zero-copy.
//!
//! The path from a file on disk to the bytes that an exchange sent:
//!
//! | module | what it does |
//! | --- | --- |
//! | [`source`] | opens a file, a pipe or standard input; maps plain files, streams gzip and zstd in bounded memory |
//! | [`capture`] | reads pcap and pcapng one packet at a time, with its time, number and offset; writes both |
//! | [`framed`] | reads files of length-prefixed messages (Nasdaq's raw ITCH) in batches that let a decoder look ahead |
//! | [`net`] | parses Ethernet, VLAN, Linux cooked, IP, UDP and TCP headers, fragments and checksums; [`net::build`], [`net::rewrite`] write them |
//! | [`pool`] | packet buffers that several stages share; a stage copies one only to change it |
//! | [`live`] | receives from UDP sockets and network interfaces into those buffers, and sends from them (Linux) |
//! | [`tcp`] | reassembles the payload of TCP segments |
//! | [`new_file`] | writes a file that gets its name once it is complete, one run at a time |
//! | [`stop`] | stops calls that wait for a pipe |
//!
//! Nothing here depends on an exchange's protocol. Nothing allocates per packet except out-of-order TCP segments.
//!
//! ```no_run
//! use std::path::Path;
//! use tapeworks_packet::{capture::CaptureReader, net};
//!
//! # fn main() -> Result<(), tapeworks_packet::CaptureError> {
//! let mut reader = CaptureReader::open(Path::new("session.pcap.zst"))?;
//! while let Some(packet) = reader.next_packet()? {
//!     if let Ok(datagram) = net::parse(packet.link_type, packet.bytes) {
//!         println!("{} {} bytes to {}", packet.timestamp_ns, datagram.payload.len(), datagram.destination);
//!     }
//! }
//! # Ok(())
//! # }
//! ```

pub mod capture;
mod compression;
mod error;
pub mod framed;
mod link_type;
#[cfg(target_os = "linux")]
pub mod live;
pub mod net;
pub mod new_file;
pub mod pool;
pub mod source;
pub mod stop;
pub mod tcp;

pub use error::{CaptureError, FirstBytes};

/// Compiles the README's examples.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
