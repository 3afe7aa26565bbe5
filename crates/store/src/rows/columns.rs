//! Records to Parquet columns.
//!
//! A record type lists its columns once, as calls on [`Columns`]: name, kind, and how to read the field. The same
//! list describes the columns when the file is opened, and encodes a page of each for every batch. A column of a
//! batch is one loop over the records into an array that stays in the first-level cache, and one loop that encodes it.

use std::collections::HashMap;
use std::ffi::c_char;
use std::slice::{Iter, IterMut};

use dbn::{UNDEF_PRICE, UNDEF_TIMESTAMP};
use parquet::errors::ParquetError;
use parquet::schema::types::ColumnDescPtr;
use tapeworks_market::Price;

use super::{Row, Rows};
#[cfg(feature = "arrow")]
use crate::arrays::Arrays;
use crate::chunk::{Dictionary, NO_KEY, Pages, Press, Values};
use crate::column::{Description, Kind};
use crate::options::Prices;
use crate::symbols::Symbols;

/// The first magnitude, in 1e-9, that a decimal of 18 digits does not hold.
const DECIMAL_LIMIT: u64 = 1_000_000_000_000_000_000;

/// Arrays that each column of each batch uses again.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    narrow: Vec<i32>,
    wide: Vec<i64>,
    floating: Vec<f64>,
    keys: Vec<u32>,
    defined: Vec<u32>,
}

/// Where the columns go.
enum To<'a> {
    Description(&'a mut Vec<Description>),
    Pages {
        columns: Iter<'a, ColumnDescPtr>,
        /// The keys of the text columns.
        keys: Iter<'a, Vec<u32>>,
        pages: &'a mut Pages,
        press: &'a mut Press,
        scratch: &'a mut Scratch,
    },
    /// Arrays of Arrow.
    #[cfg(feature = "arrow")]
    Arrays {
        /// The keys of the text columns.
        keys: Iter<'a, Vec<u32>>,
        arrays: &'a mut Arrays,
        scratch: &'a mut Scratch,
    },
    /// The keys of the text columns, by the columns' dictionaries.
    Keys {
        dictionaries: IterMut<'a, Dictionary>,
        keys: IterMut<'a, Vec<u32>>,
    },
}

/// The columns of a batch, one after the other.
pub(crate) struct Columns<'a, R> {
    records: &'a [R],
    prices: Prices,
    to: To<'a>,
    result: Result<(), ParquetError>,
    /// Values that were written as null as the column cannot hold them.
    out_of_range: u64,
}

/// The values of one column to put somewhere.
struct Place<'p> {
    output: ColumnOutput<'p>,
    scratch: &'p mut Scratch,
}

/// Where the values of one column go.
enum ColumnOutput<'p> {
    Page {
        column: &'p ColumnDescPtr,
        pages: &'p mut Pages,
        press: &'p mut Press,
    },
    #[cfg(feature = "arrow")]
    Array {
        kind: Kind,
        arrays: &'p mut Arrays,
    },
}

impl ColumnOutput<'_> {
    /// Puts `rows` values, of which those that are defined are in `values`; `range`: the least and the greatest.
    fn put(
        &mut self,
        rows: (usize, Option<&[u32]>),
        values: &Values<'_>,
        range: Option<(i64, i64)>,
    ) -> Result<(), ParquetError> {
        match self {
            Self::Page { column, pages, press } => pages.push(column, rows, values, range, press),
            #[cfg(feature = "arrow")]
            Self::Array { kind, arrays } => {
                arrays.push(*kind, rows.1, values);
                Ok(())
            }
        }
    }
}

/// Drops the values that are not defined and returns where they were; None when all are defined.
fn keep_defined<'d, T: Copy>(
    values: &mut Vec<T>,
    defined: &'d mut Vec<u32>,
    is_defined: impl Fn(T) -> bool,
) -> Option<&'d [u32]> {
    if values.iter().all(|value| is_defined(*value)) {
        return None;
    }
    defined.clear();
    defined.extend(values.iter().map(|value| u32::from(is_defined(*value))));
    values.retain(|value| is_defined(*value));
    Some(defined)
}

/// How many values are neither undefined nor what the column can hold.
fn count_lost(values: &[i64], is_held: impl Fn(i64) -> bool, undefined: i64) -> u64 {
    values.iter().filter(|value| !is_held(**value) && **value != undefined).count() as u64
}

/// Describes the columns of a record type.
pub(crate) fn describe<R: Row>(prices: Prices, has_origin: bool) -> Vec<Description> {
    let mut description = Vec::new();
    let to = To::Description(&mut description);
    let mut columns = Columns::<R> { records: &[], prices, to, result: Ok(()), out_of_range: 0 };
    R::columns(&mut columns);
    let mut rows = Rows::with_capacity(0);
    rows.has_origin = has_origin;
    columns.beside(&rows, Symbols::Received(&HashMap::new()));
    description
}

/// Writes a page of each column, with the keys that [`keys`] found. Returns how many values had to be written as null.
pub(crate) fn encode<R: Row>(
    rows: &Rows<R>,
    keys: &[Vec<u32>],
    prices: Prices,
    columns: &[ColumnDescPtr],
    pages: &mut Pages,
    (press, scratch): (&mut Press, &mut Scratch),
) -> Result<u64, ParquetError> {
    let to = To::Pages { columns: columns.iter(), keys: keys.iter(), pages, press, scratch };
    all(rows, Symbols::Listed(&[]), prices, to)
}

/// Makes an array of each column, with the keys that [`keys`] found. Returns how many values had to become null.
#[cfg(feature = "arrow")]
pub(crate) fn arrays<R: Row>(
    rows: &Rows<R>,
    keys: &[Vec<u32>],
    prices: Prices,
    arrays: &mut Arrays,
    scratch: &mut Scratch,
) -> u64 {
    let to = To::Arrays { keys: keys.iter(), arrays, scratch };
    // Arrays are only memory, so nothing can fail.
    all(rows, Symbols::Listed(&[]), prices, to).unwrap_or_default()
}

/// Finds the keys of the text columns, which depend on the batches before: all else of a batch can be encoded without them.
/// `dictionaries` has one for each column, text or not, and `keys` gets an array for each text column.
pub(crate) fn keys<R: Row>(
    rows: &Rows<R>,
    symbols: Symbols<'_>,
    prices: Prices,
    dictionaries: &mut [Dictionary],
    keys: &mut Vec<Vec<u32>>,
) {
    keys.resize_with(dictionaries.len(), Vec::new);
    let to = To::Keys { dictionaries: dictionaries.iter_mut(), keys: keys.iter_mut() };
    // Nothing is written, so nothing can fail.
    let _nothing = all(rows, symbols, prices, to);
}

fn all<R: Row>(
    rows: &Rows<R>,
    symbols: Symbols<'_>,
    prices: Prices,
    to: To<'_>,
) -> Result<u64, ParquetError> {
    let mut columns = Columns { records: &rows.records, prices, to, result: Ok(()), out_of_range: 0 };
    R::columns(&mut columns);
    columns.beside(rows, symbols);
    columns.result.map(|()| columns.out_of_range)
}

impl<R: Row> Columns<'_, R> {
    /// Describes the next column, or has `write` write its page.
    fn column(
        &mut self,
        name: &str,
        kind: Kind,
        is_optional: bool,
        write: impl FnOnce(Place<'_>, &[R]) -> Result<(), ParquetError>,
    ) {
        match &mut self.to {
            To::Description(description) => {
                description.push(Description { name: name.to_owned(), kind, is_optional });
            }
            To::Pages { columns, pages, press, scratch, .. } => {
                if let (Some(column), Ok(())) = (columns.next(), &self.result) {
                    let output = ColumnOutput::Page { column, pages, press };
                    self.result = write(Place { output, scratch }, self.records);
                }
            }
            #[cfg(feature = "arrow")]
            To::Arrays { arrays, scratch, .. } => {
                self.result =
                    write(Place { output: ColumnOutput::Array { kind, arrays }, scratch }, self.records);
            }
            To::Keys { dictionaries, .. } => {
                dictionaries.next();
            }
        }
    }

    /// A text column, whose keys `keys_of` appends.
    fn keyed(
        &mut self,
        name: &str,
        is_optional: bool,
        keys_of: impl FnOnce(&mut Dictionary, &[R], &mut Vec<u32>),
    ) {
        match &mut self.to {
            To::Description(description) => {
                description.push(Description { name: name.to_owned(), kind: Kind::Text, is_optional });
            }
            To::Keys { dictionaries, keys } => {
                if let (Some(dictionary), Some(keys)) = (dictionaries.next(), keys.next()) {
                    keys.clear();
                    keys_of(dictionary, self.records, keys);
                }
            }
            #[cfg(feature = "arrow")]
            To::Arrays { keys, arrays, .. } => {
                if let Some(keys) = keys.next() {
                    arrays.push(Kind::Text, None, &Values::Keys(keys));
                }
            }
            To::Pages { columns, keys, pages, press, scratch } => {
                let (Some(column), Some(keys), Ok(())) = (columns.next(), keys.next(), &self.result) else {
                    return;
                };
                let Scratch { keys: kept, defined, .. } = &mut **scratch;
                let is_defined = |key| key != NO_KEY;
                let (keys, defined) = if is_optional && !keys.iter().all(|key| is_defined(*key)) {
                    kept.clear();
                    kept.extend_from_slice(keys);
                    let defined = keep_defined(kept, defined, is_defined);
                    (&*kept, defined)
                } else {
                    (keys, None)
                };
                let rows = (self.records.len(), defined);
                self.result = pages.push(column, rows, &Values::Keys(keys), None, press);
            }
        }
    }

    fn narrow(&mut self, name: &str, kind: Kind, get: impl Fn(&R) -> i32) {
        self.column(name, kind, false, |mut place, records| {
            let values = &mut place.scratch.narrow;
            values.clear();
            values.extend(records.iter().map(get));
            place.output.put((records.len(), None), &Values::Narrow(values), None)
        });
    }

    /// A number of which one value means none.
    fn optional(&mut self, name: &str, kind: Kind, none: i32, get: impl Fn(&R) -> i32) {
        self.column(name, kind, true, |mut place, records| {
            let values = &mut place.scratch.narrow;
            values.clear();
            values.extend(records.iter().map(get));
            let defined = keep_defined(values, &mut place.scratch.defined, |value| value != none);
            place.output.put((records.len(), defined), &Values::Narrow(values), None)
        });
    }

    pub(crate) fn u8(&mut self, name: &str, get: impl Fn(&R) -> u8) {
        self.narrow(name, Kind::Unsigned(8), |row| i32::from(get(row)));
    }

    pub(crate) fn u16(&mut self, name: &str, get: impl Fn(&R) -> u16) {
        self.narrow(name, Kind::Unsigned(16), |row| i32::from(get(row)));
    }

    pub(crate) fn u32(&mut self, name: &str, get: impl Fn(&R) -> u32) {
        self.narrow(name, Kind::Unsigned(32), |row| get(row) as i32);
    }

    pub(crate) fn i32(&mut self, name: &str, get: impl Fn(&R) -> i32) {
        self.narrow(name, Kind::Signed, get);
    }

    /// A number of which the greatest is null.
    pub(crate) fn optional_u32(&mut self, name: &str, get: impl Fn(&R) -> u32) {
        self.optional(name, Kind::Unsigned(32), u32::MAX as i32, |row| get(row) as i32);
    }

    /// A number of 16 bits of which the greatest is null.
    pub(crate) fn optional_u16(&mut self, name: &str, get: impl Fn(&R) -> u16) {
        self.optional(name, Kind::Unsigned(16), i32::from(u16::MAX), |row| i32::from(get(row)));
    }

    /// A number of 8 bits of which the greatest is null.
    pub(crate) fn optional_u8(&mut self, name: &str, get: impl Fn(&R) -> u8) {
        self.optional(name, Kind::Unsigned(8), i32::from(u8::MAX), |row| i32::from(get(row)));
    }

    /// A signed number of 16 bits of which the greatest is null.
    pub(crate) fn optional_i16(&mut self, name: &str, get: impl Fn(&R) -> i16) {
        self.optional(name, Kind::Signed, i32::from(i16::MAX), |row| i32::from(get(row)));
    }

    /// A signed number of 8 bits of which the greatest is null.
    pub(crate) fn optional_i8(&mut self, name: &str, get: impl Fn(&R) -> i8) {
        self.optional(name, Kind::Signed, i32::from(i8::MAX), |row| i32::from(get(row)));
    }

    /// A signed number of which the greatest is null.
    pub(crate) fn optional_i32(&mut self, name: &str, get: impl Fn(&R) -> i32) {
        self.optional(name, Kind::Signed, i32::MAX, get);
    }

    /// A signed number of 64 bits of which the greatest is null.
    pub(crate) fn optional_i64(&mut self, name: &str, get: impl Fn(&R) -> i64) {
        self.column(name, Kind::Long, true, |mut place, records| {
            let values = &mut place.scratch.wide;
            values.clear();
            values.extend(records.iter().map(get));
            let defined = keep_defined(values, &mut place.scratch.defined, |value| value != i64::MAX);
            place.output.put((records.len(), defined), &Values::Wide(values), None)
        });
    }

    pub(crate) fn u64(&mut self, name: &str, get: impl Fn(&R) -> u64) {
        self.column(name, Kind::Unsigned(64), false, |mut place, records| {
            let values = &mut place.scratch.wide;
            values.clear();
            values.extend(records.iter().map(|row| get(row) as i64));
            place.output.put((records.len(), None), &Values::Wide(values), None)
        });
    }

    /// A time in nanoseconds UTC; undefined is null.
    pub(crate) fn time(&mut self, name: &str, get: impl Fn(&R) -> u64) {
        let mut out_of_range = 0;
        self.column(name, Kind::Time, true, |mut place, records| {
            let values = &mut place.scratch.wide;
            values.clear();
            values.extend(records.iter().map(|row| get(row) as i64));
            // A signed number of nanoseconds ends in 2262.
            let is_defined = |value: i64| value >= 0;
            out_of_range = count_lost(values, is_defined, UNDEF_TIMESTAMP as i64);
            let defined = keep_defined(values, &mut place.scratch.defined, is_defined);
            let least = values.iter().copied().min();
            let range = least.zip(values.iter().copied().max());
            let values = Values::Wide(values);
            place.output.put((records.len(), defined), &values, range)
        });
        self.out_of_range += out_of_range;
    }

    /// A price in 1e-9; undefined is null.
    pub(crate) fn price(&mut self, name: &str, get: impl Fn(&R) -> i64) {
        let prices = self.prices;
        let mut out_of_range = 0;
        self.column(name, Kind::Price(prices), true, |mut place, records| {
            let values = &mut place.scratch.wide;
            values.clear();
            values.extend(records.iter().map(get));
            let is_defined = |value: i64| match prices {
                Prices::Decimal => value.unsigned_abs() < DECIMAL_LIMIT,
                Prices::Float | Prices::Fixed => value != UNDEF_PRICE,
            };
            out_of_range = count_lost(values, is_defined, UNDEF_PRICE);
            let defined = keep_defined(values, &mut place.scratch.defined, is_defined);
            let floating = &mut place.scratch.floating;
            let values = if prices == Prices::Float {
                floating.clear();
                floating.extend(values.iter().map(|units| *units as f64 / Price::ONE as f64));
                Values::Floating(floating)
            } else {
                Values::Wide(values)
            };
            place.output.put((records.len(), defined), &values, None)
        });
        self.out_of_range += out_of_range;
    }

    /// One letter, as text; what is not printable ASCII is null.
    pub(crate) fn letter(&mut self, name: &str, get: impl Fn(&R) -> c_char) {
        self.keyed(name, true, |dictionary, records, keys| {
            let key = |row| dictionary.key_of_number(u32::from(get(row) as u8), printable);
            keys.extend(records.iter().map(key));
        });
    }

    /// Text; what is empty is null.
    pub(crate) fn text(&mut self, name: &str, get: impl Fn(&R) -> &str) {
        self.keyed(name, true, |dictionary, records, keys| {
            keys.extend(records.iter().map(|row| dictionary.key_of_text(get(row))));
        });
    }

    /// The columns beside the record: the symbol and, for records of one message, its channel sequence and line.
    fn beside(&mut self, rows: &Rows<R>, symbols: Symbols<'_>) {
        let symbol = |number: u32| symbols.of(number);
        self.keyed("symbol", true, |dictionary, records, keys| {
            let key = |row: &R| dictionary.key_of_number(row.instrument_id() as u32, symbol);
            keys.extend(records.iter().map(key));
        });
        if !rows.has_origin {
            return;
        }
        self.column("channel_sequence", Kind::Unsigned(64), false, |mut place, records| {
            let values = &mut place.scratch.wide;
            values.clear();
            values.extend(rows.sequences.iter().map(|sequence| *sequence as i64));
            place.output.put((records.len(), None), &Values::Wide(values), None)
        });
        let line = |number: u32| LINES.get(number as usize).copied();
        self.keyed("line", false, |dictionary, _records, keys| {
            keys.extend(rows.lines.iter().map(|from| dictionary.key_of_number(*from as u32, line)));
        });
    }
}

/// The names of the lines, by number.
const LINES: [&str; 4] = ["A", "B", "recovery", "snapshot"];

/// Printable ASCII from the space on, to take a letter's text from.
const PRINTABLE: &str = concat!(
    " !\"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`",
    "abcdefghijklmnopqrstuvwxyz{|}~"
);

fn printable(letter: u32) -> Option<&'static str> {
    let place = letter.checked_sub(u32::from(b' '))? as usize;
    PRINTABLE.get(place..=place)
}
