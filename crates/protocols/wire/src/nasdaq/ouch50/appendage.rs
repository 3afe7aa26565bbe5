//! Optional fields at the end of a message: a one-byte length (of tag and value), a tag, and a value whose type depends on the tag.
//!
//! Source: the public definitions of *OUCH 5.0*, appendix *Optional fields*. Big-endian.
//!
//! Cost: one length comparison per field; only the value is copied.

use core::fmt;

use crate::{Ascii, Decimal};

/// An optional field of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OptionalField<'a> {
    /// 1: the order's reference number in the market data.
    SecondaryOrdRefNum(u64),
    /// 2: the firm that entered the order.
    Firm(Ascii<4>),
    /// 3: the minimum quantity to execute.
    MinQty(u32),
    /// 4: `R` retail, `N` not retail.
    CustomerType(u8),
    /// 5: the displayed part of a reserve order.
    MaxFloor(u32),
    /// 6: `L` limit, or a kind of peg.
    PriceType(u8),
    /// 7: the offset from the pegged price.
    PegOffset(Decimal<i32, 4>),
    /// 9: a discretionary price.
    DiscretionPrice(Decimal<u64, 4>),
    /// 10: the kind of peg of the discretionary price.
    DiscretionPegType(u8),
    /// 11: the offset of the discretionary peg.
    DiscretionPegOffset(Decimal<i32, 4>),
    /// 12: `P` post only, `N` not.
    PostOnly(u8),
    /// 13: shares of a random reserve.
    RandomReserves(u32),
    /// 14: where to route.
    Route(Ascii<4>),
    /// 15: the order's lifetime in seconds.
    ExpireTime(u32),
    /// 16: `Y` or `N`.
    TradeNow(u8),
    /// 17: handling instruction.
    HandleInst(u8),
    /// 18: the order's effect on the best prices.
    BboWeightIndicator(u8),
    /// 19: a reference price of an execution.
    ReferencePrice(Decimal<u64, 4>),
    /// 20: the kind of the reference price.
    ReferencePriceType(u8),
    /// 22: the displayed quantity of a restated order.
    DisplayQuantity(u32),
    /// 23: the displayed price of a restated order.
    DisplayPrice(Decimal<u64, 4>),
    /// A tag that the definitions do not list, with its value.
    Unknown {
        /// The tag.
        tag: u8,
        /// The value, unchanged.
        value: &'a [u8],
    },
}

/// Malformed optional fields. The fields before the error are valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendageError {
    /// The bytes end inside a field.
    Cut {
        /// Start of the field, in bytes from the start of the appendage.
        offset: usize,
        /// Bytes that the field needs, including its length.
        needed: usize,
        /// Bytes left.
        got: usize,
    },
    /// A field's length does not include its tag, or is wrong for its type.
    WrongLength {
        /// Start of the field, in bytes from the start of the appendage.
        offset: usize,
        /// The tag; 0 if there is none.
        tag: u8,
        /// The length of tag and value.
        length: u8,
    },
}

impl fmt::Display for AppendageError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Cut { offset, needed, got } => {
                write!(formatter, "the optional field at offset {offset} needs {needed} bytes, {got} left")
            }
            Self::WrongLength { offset, tag, length } => {
                write!(formatter, "the optional field {tag} at offset {offset} cannot have length {length}")
            }
        }
    }
}

impl core::error::Error for AppendageError {}

impl<'a> OptionalField<'a> {
    /// Decodes a field; `None` if the value has the wrong length for its type.
    fn of(tag: u8, value: &'a [u8]) -> Option<Self> {
        let byte = || match value {
            [byte] => Some(*byte),
            _ => None,
        };
        let short = || Some(u32::from_be_bytes(value.try_into().ok()?));
        let signed = || Some(Decimal(i32::from_be_bytes(value.try_into().ok()?)));
        let long = || Some(u64::from_be_bytes(value.try_into().ok()?));
        let text = || Some(Ascii(value.try_into().ok()?));
        Some(match tag {
            1 => Self::SecondaryOrdRefNum(long()?),
            2 => Self::Firm(text()?),
            3 => Self::MinQty(short()?),
            4 => Self::CustomerType(byte()?),
            5 => Self::MaxFloor(short()?),
            6 => Self::PriceType(byte()?),
            7 => Self::PegOffset(signed()?),
            9 => Self::DiscretionPrice(Decimal(long()?)),
            10 => Self::DiscretionPegType(byte()?),
            11 => Self::DiscretionPegOffset(signed()?),
            12 => Self::PostOnly(byte()?),
            13 => Self::RandomReserves(short()?),
            14 => Self::Route(text()?),
            15 => Self::ExpireTime(short()?),
            16 => Self::TradeNow(byte()?),
            17 => Self::HandleInst(byte()?),
            18 => Self::BboWeightIndicator(byte()?),
            19 => Self::ReferencePrice(Decimal(long()?)),
            20 => Self::ReferencePriceType(byte()?),
            22 => Self::DisplayQuantity(short()?),
            23 => Self::DisplayPrice(Decimal(long()?)),
            _ => Self::Unknown { tag, value },
        })
    }

    /// Returns the tag.
    #[must_use]
    pub const fn tag(&self) -> u8 {
        match self {
            Self::SecondaryOrdRefNum(_) => 1,
            Self::Firm(_) => 2,
            Self::MinQty(_) => 3,
            Self::CustomerType(_) => 4,
            Self::MaxFloor(_) => 5,
            Self::PriceType(_) => 6,
            Self::PegOffset(_) => 7,
            Self::DiscretionPrice(_) => 9,
            Self::DiscretionPegType(_) => 10,
            Self::DiscretionPegOffset(_) => 11,
            Self::PostOnly(_) => 12,
            Self::RandomReserves(_) => 13,
            Self::Route(_) => 14,
            Self::ExpireTime(_) => 15,
            Self::TradeNow(_) => 16,
            Self::HandleInst(_) => 17,
            Self::BboWeightIndicator(_) => 18,
            Self::ReferencePrice(_) => 19,
            Self::ReferencePriceType(_) => 20,
            Self::DisplayQuantity(_) => 22,
            Self::DisplayPrice(_) => 23,
            Self::Unknown { tag, .. } => *tag,
        }
    }

    /// Writes length, tag and value to the start of `target`, and returns the number of bytes written; `None` if they do not fit, or the
    /// value exceeds the maximum length.
    #[must_use]
    pub fn write(&self, target: &mut [u8]) -> Option<usize> {
        match self {
            Self::SecondaryOrdRefNum(number) => self.put(&number.to_be_bytes(), target),
            Self::Firm(text) | Self::Route(text) => self.put(&text.0, target),
            Self::MinQty(number)
            | Self::MaxFloor(number)
            | Self::RandomReserves(number)
            | Self::ExpireTime(number)
            | Self::DisplayQuantity(number) => self.put(&number.to_be_bytes(), target),
            Self::CustomerType(byte)
            | Self::PriceType(byte)
            | Self::DiscretionPegType(byte)
            | Self::PostOnly(byte)
            | Self::TradeNow(byte)
            | Self::HandleInst(byte)
            | Self::BboWeightIndicator(byte)
            | Self::ReferencePriceType(byte) => self.put(&[*byte], target),
            Self::PegOffset(price) | Self::DiscretionPegOffset(price) => {
                self.put(&price.0.to_be_bytes(), target)
            }
            Self::DiscretionPrice(price) | Self::ReferencePrice(price) | Self::DisplayPrice(price) => {
                self.put(&price.0.to_be_bytes(), target)
            }
            Self::Unknown { value, .. } => self.put(value, target),
        }
    }

    fn put(&self, value: &[u8], target: &mut [u8]) -> Option<usize> {
        let length = u8::try_from(1 + value.len()).ok()?;
        let place = target.get_mut(..2 + value.len())?;
        let (head, body) = place.split_first_chunk_mut::<2>()?;
        *head = [length, self.tag()];
        body.copy_from_slice(value);
        Some(2 + value.len())
    }
}

/// Writes the fields, one after another, to the start of `target`, and returns the appendage's length in bytes; `None` if they do not
/// fit.
#[must_use]
pub fn write_all(fields: &[OptionalField<'_>], target: &mut [u8]) -> Option<usize> {
    let mut written = 0;
    for field in fields {
        written += field.write(target.get_mut(written..)?)?;
    }
    Some(written)
}

/// Iterates over the optional fields of an appendage. Ends after an error.
#[derive(Clone, Debug)]
pub struct OptionalFields<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> OptionalFields<'a> {
    /// Creates an iterator over the fields of an appendage.
    #[must_use]
    pub const fn new(appendage: &'a [u8]) -> Self {
        Self { bytes: appendage, offset: 0 }
    }
}

impl<'a> Iterator for OptionalFields<'a> {
    type Item = Result<OptionalField<'a>, AppendageError>;

    fn next(&mut self) -> Option<Self::Item> {
        let offset = self.offset;
        let rest = self.bytes.get(offset..)?;
        let (length, after) = rest.split_first()?;
        let needed = 1 + usize::from(*length);
        let Some(field) = after.get(..usize::from(*length)) else {
            self.offset = self.bytes.len();
            return Some(Err(AppendageError::Cut { offset, needed, got: rest.len() }));
        };
        let found = field.split_first().and_then(|(tag, value)| OptionalField::of(*tag, value));
        self.offset = if found.is_some() { offset + needed } else { self.bytes.len() };
        let tag = field.first().copied().unwrap_or(0);
        Some(found.ok_or(AppendageError::WrongLength { offset, tag, length: *length }))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_field_is_written_and_read_back() {
        let fields = [
            OptionalField::SecondaryOrdRefNum(1 << 40),
            OptionalField::Firm(Ascii(*b"LIME")),
            OptionalField::MinQty(100),
            OptionalField::CustomerType(b'R'),
            OptionalField::MaxFloor(200),
            OptionalField::PriceType(b'M'),
            OptionalField::PegOffset(Decimal(-100)),
            OptionalField::DiscretionPrice(Decimal(10_000)),
            OptionalField::DiscretionPegType(b'L'),
            OptionalField::DiscretionPegOffset(Decimal(i32::MIN)),
            OptionalField::PostOnly(b'P'),
            OptionalField::RandomReserves(3),
            OptionalField::Route(Ascii(*b"ABCD")),
            OptionalField::ExpireTime(86_399),
            OptionalField::TradeNow(b'Y'),
            OptionalField::HandleInst(b'I'),
            OptionalField::BboWeightIndicator(b'0'),
            OptionalField::ReferencePrice(Decimal(u64::MAX)),
            OptionalField::ReferencePriceType(b'I'),
            OptionalField::DisplayQuantity(7),
            OptionalField::DisplayPrice(Decimal(1)),
            OptionalField::Unknown { tag: 99, value: b"xyz" },
        ];
        let mut target = [0; 256];
        let length = write_all(&fields, &mut target).unwrap();
        let read: Vec<_> = OptionalFields::new(&target[..length]).map(Result::unwrap).collect();
        assert_eq!(read, fields);
        assert_eq!(&target[..12], b"\x09\x01\0\0\x01\0\0\0\0\0\x05\x02");
        for short in 0..length {
            assert_eq!(write_all(&fields, &mut target[..short]), None);
        }
        let long = [0; 255];
        assert_eq!(OptionalField::Unknown { tag: 99, value: &long }.write(&mut [0; 300]), None);
    }

    #[test]
    fn cut_fields_and_wrong_lengths_end_the_walk() {
        let mut fields = OptionalFields::new(b"\x02\x04R\x05\x02LI");
        assert_eq!(fields.next(), Some(Ok(OptionalField::CustomerType(b'R'))));
        assert_eq!(fields.next(), Some(Err(AppendageError::Cut { offset: 3, needed: 6, got: 4 })));
        assert_eq!(fields.next(), None);
        for (bytes, tag, length) in
            [(&b"\x00\x02\x04R"[..], 0, 0), (b"\x03\x04RR", 4, 3), (b"\x01\x03", 3, 1)]
        {
            let mut fields = OptionalFields::new(bytes);
            assert_eq!(fields.next(), Some(Err(AppendageError::WrongLength { offset: 0, tag, length })));
            assert_eq!(fields.next(), None);
        }
    }

    proptest! {
        #[test]
        fn any_appendage_that_is_read_is_written_back(bytes in prop::collection::vec(0u8..26, 0..60)) {
            let (mut target, mut written) = ([0; 64], 0);
            for field in OptionalFields::new(&bytes).map_while(Result::ok) {
                written += field.write(&mut target[written..]).unwrap();
            }
            prop_assert_eq!(&target[..written], &bytes[..written]);
        }
    }
}
