//! FIX messages of `tag=value` fields as declarations: typed views, writers, and one pass that splits a message for all its readers.
//!
//! Sources: *FIX session layer* and *FIX 4.2*, *4.4*, *5.0 SP2*. The parts, bottom up:
//!
//! - [`next_message`] finds the messages in a stream and skips garbled bytes; [`Parts`] splits a message once for all of its readers;
//! - [`Fields`] iterates over the fields of any message by number, [`field`] finds one;
//! - [`fix!`] declares messages: views with typed fields, checked when they are read, plain forms for writing, and
//!   a constant [`FixSchema`]. [`order_entry`] is this crate's declaration, which includes the session messages;
//! - [`Writer`] writes a message with BodyLength and CheckSum into a caller's buffer.
//!
//! # Cost
//! Framing sums the message once, and reading or splitting walks it once. Nothing allocates, except that [`Parts`] grows to the message
//! with the most fields. SOH is found and bytes are summed in blocks of 64. A field in the declared order costs one comparison with its
//! tag; any other declared field is found by a perfect hash of its tag's digits. `benches/fix.rs` measures it.
//!
//! # The declaration
//! ```
//! tapeworks_fix_wire::fix! {
//!     /// What the messages are for.
//!     fix "example" { title: "Example", versions: "4.4" }
//!
//!     enum Side: char { Buy = '1', Sell = '2' }      // or `int`; another value is rejected
//!
//!     group Party {                                  // an entry begins with the first field
//!         required party_id: 448 text,
//!         party_role: 452 int,
//!     }
//!
//!     header {                                       // after 8, 9 and 35
//!         required sender_comp_id: 49 text,
//!         required msg_seq_num: 34 number,
//!     }
//!
//!     /// Comments become documentation.
//!     message NewOrderSingle = "D" {
//!         required cl_ord_id: 11 text,               // the standard's name, ClOrdID, follows from it
//!         required side: 54 Side,
//!         price: 44 decimal<8>,                      // exact, in units of 10^-8
//!         transact_time: 60 timestamp,
//!         parties "NoPartyIDs": 453 group<Party>,    // or is stated
//!         encoded_text: 355 data<354>,               // the length is in 354
//!     }
//! }
//!
//! # fn main() {
//! use tapeworks_wire::Decimal;
//! use tapeworks_fix_wire::Writer;
//!
//! let mut buffer = [0; 512];
//! let mut writer = Writer::begin(&mut buffer, b"FIX.4.4", b"D");
//! HeaderFields::new(b"CLIENT", 1).write(&mut writer);
//! let parties = [PartyFields { party_role: Some(3), ..PartyFields::new(b"TRADER") }];
//! let order = NewOrderSingleFields {
//!     price: Some(Decimal(10_125_000_000)),
//!     parties: &parties,
//!     ..NewOrderSingleFields::new(b"A1", Side::Buy)
//! };
//! order.write(&mut writer);
//! let bytes = writer.finish().unwrap();
//!
//! let read = NewOrderSingle::read(bytes).unwrap();
//! assert_eq!((read.cl_ord_id(), read.side()), (&b"A1"[..], Side::Buy));
//! assert_eq!(read.price(), Some(Decimal(10_125_000_000)));
//! assert_eq!(read.transact_time(), None);
//! assert_eq!(read.parties().next().unwrap().party_role(), Some(3));
//! assert_eq!(read.field(452), Some(&b"3"[..]));
//! # }
//! ```
//! Field types: `text`, `char`, `int` (signed), `number` (unsigned), `decimal<PLACES>`, `timestamp`, `date`, `time`, `flag` (`Y` or
//! `N`), `data<LENGTH_TAG>`, `group<ENTRY>`, and the enums of the declaration.

extern crate self as tapeworks_fix_wire;

mod cursor;
mod fields;
mod framing;
mod group;
mod ignored;
pub mod order_entry;
mod parsed;
mod scan;
mod schema;
mod tags;
mod value;
mod writer;

pub use cursor::{Cursor, FieldSet, GroupSpan, ReadError, RejectReason, Span, Text};
pub use fields::{Field, FieldError, Fields, data_of_length, field};
pub use framing::{Framing, Garbled, TRAILER_BYTES, next_message};
pub use group::{Entries, Entry, read_group};
pub use ignored::IgnoredTags;
pub use parsed::{Parsed, Part, Parts};
pub use scan::{SOH, checksum};
#[doc(hidden)]
pub use schema::write_fields;
pub use schema::{FixField, FixKind, FixSchema, FixStructure};
pub use tags::{TagSet, tag};
pub use tapeworks_wire_macros::fix;
pub use value::{
    LastSecond, LastTimestamp, TimePrecision, ValueError, read_character, read_date, read_decimal, read_flag,
    read_signed, read_time, read_timestamp, read_unsigned, write_date, write_decimal, write_signed,
    write_time, write_timestamp, write_unsigned,
};
pub use writer::{PreparedFields, SPARE_BYTES, WriteError, Writer};

/// Returns the value of the first field of a message, BeginString.
#[must_use]
pub fn begin_string(message: &[u8]) -> &[u8] {
    let first = message.split(|byte| *byte == SOH).next().unwrap_or_default();
    first.strip_prefix(b"8=").unwrap_or_default()
}

/// Returns the value of the third field of a message, MsgType.
#[must_use]
pub fn message_type(message: &[u8]) -> &[u8] {
    let third = message.split(|byte| *byte == SOH).nth(2).unwrap_or_default();
    third.strip_prefix(b"35=").unwrap_or_default()
}

static SCHEMAS: [&FixSchema; 1] = [&order_entry::SCHEMA];

/// Returns every declaration of FIX messages in this crate.
#[must_use]
pub fn fix_schemas() -> &'static [&'static FixSchema] {
    &SCHEMAS
}

/// Returns the declaration with this name, ignoring case.
#[must_use]
pub fn fix_schema_by_name(name: &str) -> Option<&'static FixSchema> {
    let name = if name.eq_ignore_ascii_case("fix") { order_entry::SCHEMA.name } else { name };
    SCHEMAS.iter().find(|schema| schema.name.eq_ignore_ascii_case(name)).copied()
}

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
