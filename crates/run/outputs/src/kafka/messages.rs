//! Records as Protobuf: the [columns](crate::columns) of a record, each with its field number from `tapeworks_records.proto`.
//!
//! The declaration is read when the output starts, so the numbers are defined in one place. The encoding of a value follows from
//! the kind of its column, and a test compares that with the declared types.
//!
//! Cost: some ns per field. Nothing is allocated: the buffer is reused.
//!
//! Source: Protocol Buffers, *Encoding*.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ffi::c_char;

use dbn::{RecordRef, UNDEF_PRICE, UNDEF_TIMESTAMP};
use tapeworks_store::Schema;
use tapeworks_store::live::Item;

use crate::columns::{Columns, Row, first, last, time_column, with_type};

/// The declaration that users get.
const DECLARED: &str = include_str!("tapeworks_records.proto");

/// How a value is encoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wire {
    /// 7 bits per byte.
    Varint = 0,
    /// Eight bytes.
    Fixed64 = 1,
    /// A length, and that many bytes.
    Bytes = 2,
}

/// Returns the declared type and number of each field of a record.
fn declared() -> BTreeMap<&'static str, (&'static str, u32)> {
    let field = |line: &'static str| {
        let mut words = line.trim().strip_suffix(';')?.split_whitespace();
        let (Some("optional"), Some(kind), Some(name), Some("="), Some(number)) =
            (words.next(), words.next(), words.next(), words.next(), words.next())
        else {
            return None;
        };
        Some((name, (kind, number.parse().ok()?)))
    };
    DECLARED.lines().filter_map(field).collect()
}

/// Returns the name of a column in the declaration.
fn declared_name(name: &'static str, wire: Wire) -> &'static str {
    // A character for an order, a number for a status.
    if name == "action" && wire == Wire::Varint { "status_action" } else { name }
}

/// The fields of a schema's records, as Protobuf tags in the order of the calls on [`Columns`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Layout {
    schema: Schema,
    tags: Vec<u32>,
}

/// A column missing in the declaration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Undeclared(pub(super) &'static str);

/// Collects the columns in order.
#[derive(Default)]
struct Listed(Vec<(&'static str, Wire)>);

impl Columns for Listed {
    type Error = Infallible;

    fn tag(&mut self, name: &'static str, _: Option<&str>) -> Result<(), Infallible> {
        self.0.push((name, Wire::Bytes));
        Ok(())
    }

    fn short(&mut self, name: &'static str, _: Option<i32>) -> Result<(), Infallible> {
        self.0.push((name, Wire::Varint));
        Ok(())
    }

    fn long(&mut self, name: &'static str, _: Option<i64>) -> Result<(), Infallible> {
        self.0.push((name, Wire::Varint));
        Ok(())
    }

    fn price(&mut self, name: &'static str, _: i64) -> Result<(), Infallible> {
        self.0.push((name, Wire::Varint));
        Ok(())
    }

    fn time(&mut self, name: &'static str, _: u64) -> Result<(), Infallible> {
        self.0.push((name, Wire::Fixed64));
        Ok(())
    }
}

impl Layout {
    pub(super) fn new(schema: Schema) -> Result<Self, Undeclared> {
        let mut listed = Listed::default();
        let Ok(()) = listed.tag("schema", None);
        let Ok(()) = first(&mut listed, None, 0);
        let Ok(()) = with_type!(schema, Type => Type::blank().columns(&mut listed));
        let Ok(()) = last(&mut listed, 0, 0);
        let Ok(()) = listed.time(time_column(schema), 0);
        let declared = declared();
        let tag = |(name, wire)| {
            let (_, number) = declared.get(declared_name(name, wire)).ok_or(Undeclared(name))?;
            Ok(number << 3 | wire as u32)
        };
        let tags: Result<Vec<u32>, Undeclared> = listed.0.into_iter().map(tag).collect();
        Ok(Self { schema, tags: tags? })
    }

    /// Writes the message of a record into `to`, which is cleared first. `part` is its place among the records of its event.
    /// Returns `false` if the record is not of this schema.
    pub(super) fn write(
        &self,
        to: &mut Vec<u8>,
        (item, part): (&Item, u32),
        symbol: Option<&str>,
        record: RecordRef<'_>,
    ) -> bool {
        to.clear();
        let mut message = Message { to, tags: self.tags.iter() };
        let Ok(()) = message.tag("schema", Some(self.schema.as_str()));
        let Ok(()) = first(&mut message, symbol, item.publisher);
        let is_of_schema = with_type!(self.schema, Type => {
            record.get::<Type>().is_some_and(|record| record.columns(&mut message).is_ok())
        });
        let Ok(()) = last(&mut message, item.event, part);
        let Ok(()) = message.time(time_column(self.schema), item.time);
        is_of_schema
    }
}

/// A message under construction, with the tags of the fields to come.
struct Message<'a> {
    to: &'a mut Vec<u8>,
    tags: std::slice::Iter<'a, u32>,
}

impl Message<'_> {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.to.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.to.push(value as u8);
    }

    /// Takes the tag of the next field, and writes it if the field is set.
    fn next(&mut self, is_set: bool) {
        if let Some(tag) = self.tags.next()
            && is_set
        {
            self.varint(u64::from(*tag));
        }
    }
}

impl Columns for Message<'_> {
    type Error = Infallible;

    fn tag(&mut self, _: &'static str, value: Option<&str>) -> Result<(), Infallible> {
        self.next(value.is_some());
        if let Some(value) = value {
            self.varint(value.len() as u64);
            self.to.extend_from_slice(value.as_bytes());
        }
        Ok(())
    }

    fn short(&mut self, name: &'static str, value: Option<i32>) -> Result<(), Infallible> {
        self.long(name, value.map(i64::from))
    }

    fn long(&mut self, _: &'static str, value: Option<i64>) -> Result<(), Infallible> {
        self.next(value.is_some());
        if let Some(value) = value {
            self.varint(value as u64);
        }
        Ok(())
    }

    fn price(&mut self, _: &'static str, value: i64) -> Result<(), Infallible> {
        self.next(value != UNDEF_PRICE);
        if value != UNDEF_PRICE {
            self.varint((value << 1 ^ value >> 63) as u64);
        }
        Ok(())
    }

    fn time(&mut self, _: &'static str, value: u64) -> Result<(), Infallible> {
        self.next(value != UNDEF_TIMESTAMP);
        if value != UNDEF_TIMESTAMP {
            self.to.extend_from_slice(&value.to_le_bytes());
        }
        Ok(())
    }

    fn letter(&mut self, _: &'static str, value: c_char) -> Result<(), Infallible> {
        // DBN's characters are ASCII; others become two bytes of UTF-8.
        let mut bytes = [0; 4];
        let text = char::from(value as u8).encode_utf8(&mut bytes);
        self.tag("", (value != 0).then_some(text))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use dbn::{MboMsg, OhlcvMsg};
    use prost::encoding::{DecodeContext, WireType, decode_key, skip_field};
    use tapeworks_market::InstrumentId;

    use super::*;

    fn item(event: u64, time: u64) -> Item {
        Item { event, time, instrument: InstrumentId(0), publisher: 2, start: 0, length: 0 }
    }

    #[test]
    fn the_declaration_has_a_field_of_the_right_type_for_every_column_of_every_schema() {
        let (declared, mut used) = (declared(), BTreeSet::new());
        for schema in Schema::ALL {
            let layout = Layout::new(schema).unwrap();
            for tag in &layout.tags {
                let (name, (kind, _)) = declared.iter().find(|(_, (_, number))| *number == tag >> 3).unwrap();
                let wire = match *kind {
                    "string" => Wire::Bytes,
                    "fixed64" => Wire::Fixed64,
                    "sint64" | "int64" | "uint64" | "int32" | "uint32" => Wire::Varint,
                    other => panic!("{name}: {other}"),
                };
                assert_eq!(tag & 7, wire as u32, "{schema}: {name}");
                used.insert(*name);
            }
            let different: BTreeSet<_> = layout.tags.iter().collect();
            assert_eq!(different.len(), layout.tags.len(), "{schema}");
        }
        assert_eq!(used.len(), declared.len(), "every declared field is written");
        let numbers: BTreeSet<_> = declared.values().map(|(_, number)| number).collect();
        assert_eq!(numbers.len(), declared.len());
    }

    #[test]
    fn prices_alone_are_declared_with_a_sign_in_the_lowest_bit() {
        struct Prices(Vec<(&'static str, bool)>);
        impl Columns for Prices {
            type Error = Infallible;
            fn tag(&mut self, _: &'static str, _: Option<&str>) -> Result<(), Infallible> {
                Ok(())
            }
            fn short(&mut self, name: &'static str, _: Option<i32>) -> Result<(), Infallible> {
                self.0.push((declared_name(name, Wire::Varint), false));
                Ok(())
            }
            fn long(&mut self, name: &'static str, _: Option<i64>) -> Result<(), Infallible> {
                self.0.push((name, false));
                Ok(())
            }
            fn price(&mut self, name: &'static str, _: i64) -> Result<(), Infallible> {
                self.0.push((name, true));
                Ok(())
            }
            fn time(&mut self, _: &'static str, _: u64) -> Result<(), Infallible> {
                Ok(())
            }
        }
        let declared = declared();
        for schema in Schema::ALL {
            let mut prices = Prices(Vec::new());
            let Ok(()) = with_type!(schema, Type => Type::blank().columns(&mut prices));
            for (name, is_price) in prices.0 {
                assert_eq!(declared[name].0 == "sint64", is_price, "{schema}: {name}");
            }
        }
    }

    /// Returns the field numbers of a message, as prost reads them.
    fn numbers(mut bytes: &[u8]) -> Vec<u32> {
        let mut numbers = Vec::new();
        while !bytes.is_empty() {
            let (number, wire): (u32, WireType) = decode_key(&mut bytes).unwrap();
            skip_field(wire, number, &mut bytes, DecodeContext::default()).unwrap();
            numbers.push(number);
        }
        numbers
    }

    #[test]
    fn a_record_is_a_message_without_its_undefined_fields() {
        let mut order = MboMsg { order_id: u64::MAX, price: -2, size: 300, ..MboMsg::default() };
        (order.action, order.side) = (b'A' as c_char, b'B' as c_char);
        order.hd.ts_event = 5;
        (order.ts_in_delta, order.sequence) = (-5, u32::MAX);
        let (mut bytes, layout) = (Vec::new(), Layout::new(Schema::Mbo).unwrap());
        assert!(layout.write(&mut bytes, (&item(7, 9), 1), Some("A.B"), RecordRef::from(&order)));
        assert_eq!(numbers(&bytes), [1, 2, 3, 8, 9, 7, 14, 10, 11, 17, 12, 15, 13, 4, 5, 6]);
        let start = b"\x0a\x03mbo\x12\x03A.B\x1a\x09XNAS.ITCH\x42\x01A\x4a\x01B\x39\x05\0\0\0\0\0\0\0";
        assert!(bytes.starts_with(start), "{bytes:x?}");
        assert!(bytes.windows(2).any(|two| two == [10 << 3, 3]), "-2 is 3");
        assert!(bytes.ends_with(b"\x20\x07\x28\x01\x31\x09\0\0\0\0\0\0\0"), "{bytes:x?}");
        let blank = MboMsg { action: 0, ..MboMsg::default() };
        assert!(layout.write(&mut bytes, (&item(7, 9), 0), None, RecordRef::from(&blank)));
        let set = numbers(&bytes);
        assert!([2, 7, 8, 10].iter().all(|number| !set.contains(number)), "{set:?}");
    }

    #[test]
    fn a_record_of_another_schema_is_noticed() {
        let bar = OhlcvMsg::default_for_schema(dbn::Schema::Ohlcv1S);
        let (mut bytes, layout) = (Vec::new(), Layout::new(Schema::Mbo).unwrap());
        assert!(!layout.write(&mut bytes, (&item(1, 1), 0), None, RecordRef::from(&bar)));
        let layout = Layout::new(Schema::Ohlcv1S).unwrap();
        assert!(layout.write(&mut bytes, (&item(1, 1), 0), None, RecordRef::from(&bar)));
        assert_eq!(numbers(&bytes).last(), Some(&7), "the time of a bar is its ts_event");
    }
}
