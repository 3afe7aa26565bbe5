//! Exchange protocols as declarations: zero-copy codecs, each with a schema.
//!
//! A protocol is a [`protocol!`] declaration that reads like the exchange's specification: it uses the same offsets, names and
//! order, so the two can be compared line by line. At compile time it expands to views ([`nasdaq::itch50::AddOrder`]), plain forms
//! with encoders, `Message::decode`, checks that every byte is declared exactly once, and a constant [`schema::Schema`].
//! Everything else (dump, reference page, Wireshark dissector, random messages) is derived from the schema at run time by code that
//! all protocols share: see [`schema`].
//!
//! # Cost
//! `Message::decode` reads the tag and the length and returns a reference: no copy, no allocation, no panic. An accessor is one
//! load (and one byte swap) at a constant offset of an array whose length is in its type, so there is no bounds check. A message
//! touches only the cache lines it occupies.
//!
//! # The declaration
//! ```
//! tapeworks_wire::protocol! {
//!     /// What the protocol is, and which document describes it.
//!     protocol "example-1.0" {
//!         title: "Example",
//!         version: "1.0",
//!         endian: big,
//!         tag: ascii<1> @ 0,   // where the message type is; also u8, u16, .. (`constant: u8 @ 3 = 2`: a byte that all messages share)
//!         length: exact,       // or `extensible`: later versions may append bytes, which are ignored
//!     }
//!
//!     enum Side: ascii<1> { Buy = 'B', Sell = 'S' }          // `Unknown(raw)` is added
//!
//!     flags Conditions: u8 { OddLot = 5, ExtendedHours = 6 }  // bit numbers
//!
//!     group Level = 12 bytes {                                // an entry of a repeating group
//!         price @ 0: price<u64, 4>,                           // integer with implied decimals
//!         size  @ 8: u32,
//!     }
//!
//!     /// Comments become documentation.
//!     message Order = 'A', 20..=24 bytes {                    // shortest and longest version
//!         timestamp  @ 1: nanoseconds_since_midnight<u48>,
//!         symbol     @ 7: ascii<8>,
//!         side       @ 15: Side,
//!         shares     @ 16: little u32,                        // against the protocol's byte order
//!         display    @ 20 since "1.1": u32,
//!     }
//!
//!     message Depth = 'D', 10.. bytes {
//!         symbol      @ 1 : ascii<8>,
//!         level_count @ 9 : u8,
//!         levels      @ 10: group<Level, level_count>,
//!     }
//! }
//! # fn main() {}
//! ```
//! Field types: `u8` to `u64` with `u24` and `u48`, `i8` to `i64`; `ascii<N>`, `ascii_number<N>` (digits), `bytes<N>`;
//! `price<INTEGER, PLACES>`; `nanoseconds_since_midnight<INTEGER>`, `nanoseconds_since_epoch`, `nanoseconds`,
//! `seconds_since_midnight`, `seconds_since_epoch`; the enums and flag sets of the declaration;
//! `optional<TYPE, SENTINEL>` (the sentinel, or `min`, `max`, reads as `None`); and at the end
//! `group<ENTRY, COUNT_FIELD>`, `blocks<INTEGER, COUNT_FIELD>` (length-prefixed messages; write `inclusive` before the integer if
//! the lengths include themselves) or `rest`.
//! `header NAME = N bytes { .. }` is a message without a tag.
//!
//! A message with a group is written with its entries as values: `fields.encode_with(&[LevelFields { .. }], target)`. The count
//! field is set from the entries.

extern crate self as tapeworks_wire;

mod appendages;
pub mod cboe;
pub mod cta;
mod error;
pub mod framing;
mod group;
pub mod iex;
pub mod memx;
pub mod millennium;
pub mod nasdaq;
pub mod national;
pub mod nyse;
pub mod orders;
mod registry;
pub mod schema;
pub mod utp;
mod value;
mod wireshark;

/// Returns the `COUNT` bytes at `OFFSET`. The accessors that `protocol!` generates use it. It checks at compile time that the
/// bytes lie within the array.
#[doc(hidden)]
#[inline(always)]
#[must_use]
pub fn bytes_at<const OFFSET: usize, const COUNT: usize, const LENGTH: usize>(
    bytes: &[u8; LENGTH],
) -> [u8; COUNT] {
    const { assert!(OFFSET + COUNT <= LENGTH) };
    match bytes.get(OFFSET..).and_then(|bytes| bytes.first_chunk::<COUNT>()) {
        Some(found) => *found,
        None => [0; COUNT],
    }
}

pub use appendages::appendages;
pub use error::{DecodeError, EncodeError, TagNumber};
pub use group::{Group, GroupEntries, GroupEntry};
pub use registry::{Carrier, Protocol, Role, StreamFraming, Transport, protocol_by_name, protocols};
pub use tapeworks_wire_macros::protocol;
pub use value::{
    Ascii, AsciiNumber, Decimal, Nanoseconds, NanosecondsSinceEpoch, NanosecondsSinceMidnight, RawPrice,
    SecondsSinceEpoch, SecondsSinceMidnight,
};
pub use wireshark::wireshark;

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
