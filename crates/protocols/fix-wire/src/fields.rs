//! Reads the fields of a message one by one, by number, without a declaration.
//!
//! A field is `tag=value` and SOH. A data field may contain SOH: the field before it holds its length ([`data_of_length`]).
//!
//! Cost: one pass. SOH is found 64 bytes at a time.

use core::fmt;

use super::scan::{BLOCK, SOH, soh_mask};
use super::value::{ValueError, read_unsigned};

/// A field, unparsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// The tag.
    pub tag: u32,
    /// The bytes between `=` and SOH.
    pub value: &'a [u8],
    /// Start of the tag, in bytes from the start of the message.
    pub offset: usize,
}

/// Why bytes are not a field. Offsets count from the start of the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldError {
    /// The text before `=` is not a tag: a number from 1 to 4,294,967,295 without leading zeros.
    InvalidTag {
        /// Start of the field.
        offset: usize,
    },
    /// The tag has no value.
    NoValue {
        /// The tag.
        tag: u32,
        /// Start of the field.
        offset: usize,
    },
    /// No SOH ends the field.
    NoEnd {
        /// Start of the field.
        offset: usize,
    },
    /// The data does not end in SOH at the position given by its length field, or the length is not a number.
    WrongLength {
        /// The tag of the length or data field.
        tag: u32,
        /// Start of the field.
        offset: usize,
    },
}

impl fmt::Display for FieldError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::InvalidTag { offset } => write!(formatter, "no tag at offset {offset}"),
            Self::NoValue { tag, offset } => write!(formatter, "tag {tag} at offset {offset} has no value"),
            Self::NoEnd { offset } => write!(formatter, "the field at offset {offset} has no end"),
            Self::WrongLength { tag, offset } => {
                write!(formatter, "tag {tag} at offset {offset} does not match the length of its data")
            }
        }
    }
}

impl core::error::Error for FieldError {}

/// Returns the data field whose length is in the field `length_tag`; `None` for other fields.
///
/// Source: *FIX 5.0 SP2*, fields of type Length that precede a field of type data.
#[inline]
#[must_use]
pub const fn data_of_length(length_tag: u32) -> Option<u32> {
    Some(match length_tag {
        90 => 91,
        93 => 89,
        95 => 96,
        212 => 213,
        348 => 349,
        350 => 351,
        352 => 353,
        354 => 355,
        356 => 357,
        358 => 359,
        360 => 361,
        362 => 363,
        364 => 365,
        445 => 446,
        618 => 619,
        621 => 622,
        1184 => 1185,
        1277 => 1278,
        1280 => 1281,
        1282 => 1283,
        1397 => 1398,
        1401 => 1402,
        1403 => 1404,
        1468 => 1469,
        1525 => 1527,
        1578 => 1579,
        1620 => 1621,
        1664 => 1665,
        1678 => 1697,
        _ => return None,
    })
}

/// The length tags, all below 2,048, one bit each.
const LENGTH_TAGS: [u64; 32] = {
    let mut bits = [0; 32];
    let mut tag = 0;
    while tag < 2_048 {
        if data_of_length(tag).is_some() {
            bits[tag as usize / 64] |= 1 << (tag % 64);
        }
        tag += 1;
    }
    bits
};

/// Returns whether [`data_of_length`] has a data field for the tag, with one load. Every length tag is below 2,048.
#[inline(always)]
pub(crate) const fn is_length(tag: u32) -> bool {
    let place = tag as usize / 64;
    place < LENGTH_TAGS.len() && LENGTH_TAGS[place] >> (tag % 64) & 1 != 0
}

/// Parses a tag in digits, without leading zeros.
pub(crate) fn tag_number(text: &[u8]) -> Option<u32> {
    if matches!(text, [] | [b'0', ..]) || text.len() > 10 {
        return None;
    }
    let number = text.iter().try_fold(0u64, |number, byte| {
        let digit = byte.wrapping_sub(b'0');
        (digit < 10).then_some(number * 10 + u64::from(digit))
    });
    u32::try_from(number?).ok()
}

/// Iterates over the fields of a message, or of a part of it that starts with a field. Ends after an error.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    message: &'a [u8],
    start: usize,
    /// The SOHs of the block that have not been passed yet.
    word: u64,
    block: usize,
    /// The data field that must come next, and its length.
    data: Option<(u32, usize)>,
}

impl<'a> Fields<'a> {
    /// Creates an iterator over the fields of `message`.
    #[must_use]
    pub fn new(message: &'a [u8]) -> Self {
        Self { message, start: 0, word: soh_mask(message, 0), block: 0, data: None }
    }

    /// Returns the start of the next field, in bytes from the start of the message.
    #[must_use]
    pub const fn offset(&self) -> usize {
        self.start
    }

    /// Returns the position of the next SOH.
    #[inline]
    fn next_soh(&mut self) -> Option<usize> {
        while self.word == 0 {
            self.block += BLOCK;
            if self.block >= self.message.len() {
                return None;
            }
            self.word = soh_mask(self.message, self.block);
        }
        let found = self.block + self.word.trailing_zeros() as usize;
        self.word &= self.word - 1;
        Some(found)
    }

    /// Passes all SOHs up to and including the one at `end`.
    fn pass(&mut self, end: usize) {
        self.block = end / BLOCK * BLOCK;
        self.word = soh_mask(self.message, self.block) & (u64::MAX - 1) << (end % BLOCK);
    }

    fn read(&mut self) -> Result<Field<'a>, FieldError> {
        let offset = self.start;
        let end = self.next_soh().ok_or(FieldError::NoEnd { offset })?;
        let text = self.message.get(offset..end).unwrap_or_default();
        let equals = text.iter().position(|byte| *byte == b'=').ok_or(FieldError::InvalidTag { offset })?;
        let (tag, value) = text.split_at(equals);
        let tag = tag_number(tag).ok_or(FieldError::InvalidTag { offset })?;
        let mut value = value.get(1..).unwrap_or_default();
        let mut end = end;
        if let Some((_, length)) = self.data.take().filter(|(data_tag, _)| *data_tag == tag) {
            let from = offset + equals + 1;
            let data_end = from.saturating_add(length);
            if self.message.get(data_end) != Some(&SOH) {
                return Err(FieldError::WrongLength { tag, offset });
            }
            value = self.message.get(from..data_end).unwrap_or_default();
            self.pass(data_end);
            end = data_end;
        } else if value.is_empty() {
            return Err(FieldError::NoValue { tag, offset });
        }
        if let Some(data_tag) = data_of_length(tag) {
            let wrong = FieldError::WrongLength { tag, offset };
            let length = read_unsigned(value).ok().and_then(|length| usize::try_from(length).ok());
            self.data = Some((data_tag, length.ok_or(wrong)?));
        }
        self.start = end + 1;
        Ok(Field { tag, value, offset })
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>, FieldError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.start >= self.message.len() {
            return None;
        }
        let read = self.read();
        if read.is_err() {
            self.start = self.message.len();
        }
        Some(read)
    }
}

/// Returns the value of the first field with this tag; `None` if the end or an error comes first.
#[must_use]
pub fn field(message: &[u8], tag: u32) -> Option<&[u8]> {
    let mut fields = Fields::new(message).map_while(Result::ok);
    fields.find(|field| field.tag == tag).map(|field| field.value)
}

/// Returns the SessionRejectReason (373) for an invalid value.
pub(crate) fn reason_of(error: ValueError) -> u16 {
    match error {
        ValueError::Empty => 4,
        ValueError::Format | ValueError::TooManyPlaces => 6,
        ValueError::OutOfRange | ValueError::NotListed => 5,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Vec<Result<(u32, String), FieldError>> {
        let bytes = text.replace('|', "\x01").into_bytes();
        let fields = Fields::new(&bytes);
        fields
            .map(|field| {
                field.map(|field| (field.tag, String::from_utf8_lossy(field.value).replace('\x01', "|")))
            })
            .collect()
    }

    #[test]
    fn fields_come_in_order_with_their_values() {
        let expected =
            [Ok((35, "D".to_owned())), Ok((58, "a=b".to_owned())), Ok((1_000_000, "x".to_owned()))];
        assert_eq!(read("35=D|58=a=b|1000000=x|"), expected);
    }

    #[test]
    fn a_data_field_may_hold_soh_and_equals() {
        assert_eq!(
            read("95=5|96=a|b=c|58=x|")[1..],
            [Ok((96, "a|b=c".to_owned())), Ok((58, "x".to_owned()))]
        );
        assert_eq!(read("95=4|96=a|b=c|")[1], Err(FieldError::WrongLength { tag: 96, offset: 5 }));
        assert_eq!(
            read("95=99999999999999999999|96=a|")[0],
            Err(FieldError::WrongLength { tag: 95, offset: 0 })
        );
        assert_eq!(
            read("95=18446744073709551615|96=a|")[1],
            Err(FieldError::WrongLength { tag: 96, offset: 24 })
        );
        assert_eq!(read("95=0|96=|58=x|").len(), 3);
    }

    #[test]
    fn lengths_are_found_by_their_bits() {
        assert!((0..10_000).all(|tag| is_length(tag) == data_of_length(tag).is_some()));
    }

    #[test]
    fn data_without_its_length_ends_at_the_first_soh() {
        assert_eq!(read("96=a|58=x|")[0], Ok((96, "a".to_owned())));
        assert_eq!(
            read("95=3|58=x|96=a|")[2],
            Ok((96, "a".to_owned())),
            "the length is for the next field only"
        );
    }

    #[test]
    fn a_fault_names_its_tag_and_offset_and_ends_the_walk() {
        assert_eq!(read("35=D|58=|1=x|")[1..], [Err(FieldError::NoValue { tag: 58, offset: 5 })]);
        assert_eq!(read("35=D|x=1|")[1], Err(FieldError::InvalidTag { offset: 5 }));
        assert_eq!(read("35=D|x|")[1], Err(FieldError::InvalidTag { offset: 5 }));
        assert_eq!(read("035=D|")[0], Err(FieldError::InvalidTag { offset: 0 }));
        assert_eq!(read("-1=D|")[0], Err(FieldError::InvalidTag { offset: 0 }));
        assert_eq!(read("=D|")[0], Err(FieldError::InvalidTag { offset: 0 }));
        assert_eq!(read("4294967296=D|")[0], Err(FieldError::InvalidTag { offset: 0 }));
        assert_eq!(read("35=D|58=x")[1], Err(FieldError::NoEnd { offset: 5 }));
    }

    proptest! {
        #[test]
        fn fields_are_found_as_a_split_at_soh_finds_them(
            values in prop::collection::vec((1u32..80, "[a-z=]{1,90}"), 0..20)
        ) {
            let mut bytes = Vec::new();
            for (tag, value) in &values {
                bytes.extend_from_slice(format!("{tag}={value}\x01").as_bytes());
            }
            let found: Vec<_> = Fields::new(&bytes).map(Result::unwrap).map(|field| (field.tag, field.value.to_vec())).collect();
            let expected: Vec<_> = values.iter().map(|(tag, value)| (*tag, value.as_bytes().to_vec())).collect();
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn no_bytes_make_the_walk_panic(bytes in prop::collection::vec(prop_oneof![Just(1u8), Just(b'='), b'0'..b':', any::<u8>()], 0..200)) {
            let walked: usize = Fields::new(&bytes).flatten().map(|field| field.value.len()).sum();
            prop_assert!(walked <= bytes.len());
        }
    }
}
