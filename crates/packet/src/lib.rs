//! Capture files and network headers, zero-copy.
//!
//! From a file on disk to the bytes that an exchange sent:
//!
//! | module | what it does |
//! | --- | --- |
//! | [`source`] | opens a file, a pipe or standard input; maps plain files, streams gzip and zstd in bounded memory |
//! | [`capture`] | pcap and pcapng: one packet at a time, with its time, number and offset; the writer for both |
//! | [`framed`] | files of length-prefixed messages (Nasdaq's raw ITCH), in batches that a decoder can look ahead in |
//! | [`net`] | Ethernet, VLAN, Linux cooked, IPv4, IPv6, UDP and TCP headers, fragments and UDP checksums; [`net::build`] writes headers, [`net::rewrite`] changes them |
//! | [`pool`] | packet buffers that several stages hold at once; a stage copies one only to change it |
//! | [`live`] | UDP sockets and network interfaces, straight into those buffers and out of them (Linux) |
//! | [`tcp`] | puts the payload of TCP segments back in order |
//! | [`new_file`] | makes a file that gets its name when it is whole, one run at a time |
//! | [`stop`] | stops calls that wait for a pipe |
//!
//! Nothing here depends on an exchange's protocol. Nothing allocates per packet, apart from out-of-order TCP segments.
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

/// The examples of the README, compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
