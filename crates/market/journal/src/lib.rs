//! The journal: every input, in order, on disk.
//!
//! A journal is a folder of *segments*: files of a fixed size whose space is reserved when they begin, so that a full
//! disk is an error at the start of a segment and not in its middle. A segment is named after the number of its first
//! record. It has a 64-byte header followed by records, each a 40-byte header and the payload, with a CRC-32 over both.
//! Zeros follow the last record.
//!
//! | offset | record header | |
//! | --- | --- | --- |
//! | 0 | CRC-32 | u32, over the rest of the record |
//! | 4 | payload length | u32, bytes |
//! | 8 | number | u64, from 0, increasing by one |
//! | 16 | time | u64, ns since 1970-01-01 00:00 UTC |
//! | 24 | extra | u64, depends on the kind |
//! | 32 | channel | u16 |
//! | 34 | kind | u8 |
//! | 35 | line | u8 |
//! | 36 | zero | 4 bytes |
//!
//! All values are little-endian. The writing application defines the kinds, except [`LOST`]. A [`JournalWriter`]
//! appends, a [`JournalReader`] reads and follows, [`verify`] checks a whole journal, [`repair`] repairs one.
//!
//! After a crash the last record may be torn: no sound record follows it. The writer cuts it off when it opens the
//! journal, and keeps a copy. Damage elsewhere loses only the damaged records: in their place a reader returns a
//! [`LOST`] record, which counts them, and continues with the next sound record. The name of a last segment without
//! records shows which records before it are missing.
//!
//! This crate has no clock and no threads. Files are the system's; functions whose names end in `_in` use any
//! [`Disk`](tapeworks_disk::Disk). Cost of a record: a copy into the buffer and the CRC, some 15 ns for 100 bytes; one
//! system call per [`BUFFER_BYTES`].

#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

mod check;
mod error;
mod folder;
mod format;
mod io_task;
mod mark;
mod place;
mod reader;
mod repair;
mod scan;
mod writer;

pub use check::{Damage, Verified, verify, verify_in};
pub use error::JournalError;
pub use folder::{is_journal_file, segment_starts, segment_starts_in};
pub use format::{BUFFER_BYTES, Decoded, LOST, MAX_PAYLOAD_BYTES, NUMBERED, Record};
pub use io_task::{Finished, IoTask};
pub use place::{Place, read_place_in};
pub use reader::{JournalReader, last_time, last_time_in};
pub use repair::{Repaired, repair, repair_in};
pub use writer::{JournalOptions, JournalWriter, Opened};

/// The examples of the README, compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
