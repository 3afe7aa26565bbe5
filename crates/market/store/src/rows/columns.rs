//! Converts records to Parquet columns.
//!
//! A record type lists its columns once, as calls on [`Columns`]: name, kind, and how to read the field. The same list
//! describes the columns when the file is opened and encodes a page of each for every batch. Each column of a batch runs one
//! loop over the records into an array that stays in the first-level cache, and one loop that encodes the array.

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

/// The smallest magnitude, in 1e-9, that exceeds an 18-digit decimal.
const DECIMAL_LIMIT: u64 = 1_000_000_000_000_000_000;

/// Arrays reused for each column of each batch.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    narrow: Vec<i32>,
    wide: Vec<i64>,
    floating: Vec<f64>,
    keys: Vec<u32>,
    defined: Vec<u32>,
}

/// The destination of the columns.
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
    /// Arrow arrays.
    #[cfg(feature = "arrow")]
    Arrays {
        /// The keys of the text columns.
        keys: Iter<'a, Vec<u32>>,
        arrays: &'a mut Arrays,
        scratch: &'a mut Scratch,
    },
    /// Keys of the text columns, from the columns' dictionaries.
    Keys {
        dictionaries: IterMut<'a, Dictionary>,
        keys: IterMut<'a, Vec<u32>>,
    },
}

/// The columns of a batch, one after the other.
///
/// Only the loop that reads a field from all records depends on the record type and is compiled once per type. [`Target`] does the rest.
pub(crate) struct Columns<'a, R> {
    records: &'a [R],
    target: Target<'a>,
}

/// The destination of the columns, for any record type.
struct Target<'a> {
    /// Number of values in a column, including undefined ones.
    rows: usize,
    prices: Prices,
    to: To<'a>,
    result: Result<(), ParquetError>,
    /// Values written as null because the column cannot hold them.
    out_of_range: u64,
}

/// The destination of one column's values.
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
    /// Writes a column of `rows` values. `values` holds the defined ones, and `range` is their minimum and maximum.
    fn put(
        self,
        rows: (usize, Option<&[u32]>),
        values: &Values<'_>,
        range: Option<(i64, i64)>,
    ) -> Result<(), ParquetError> {
        match self {
            Self::Page { column, pages, press } => pages.push(column, rows, values, range, press),
            #[cfg(feature = "arrow")]
            Self::Array { kind, arrays } => {
                arrays.push(kind, rows.1, values);
                Ok(())
            }
        }
    }
}

/// A column of numbers whose values are read next.
struct Place<'p> {
    rows: usize,
    prices: Prices,
    output: ColumnOutput<'p>,
    scratch: &'p mut Scratch,
    result: &'p mut Result<(), ParquetError>,
    out_of_range: &'p mut u64,
}

impl Place<'_> {
    /// Writes the values in `narrow`; `none` becomes null.
    fn put_narrow(self, none: Option<i32>) {
        let Self { rows, output, scratch: Scratch { narrow, defined, .. }, result, .. } = self;
        let defined = none.and_then(|none| keep_defined(narrow, defined, |value| value != none));
        *result = output.put((rows, defined), &Values::Narrow(narrow), None);
    }

    /// Writes the values in `wide`; `none` becomes null.
    fn put_wide(self, none: Option<i64>) {
        let Self { rows, output, scratch: Scratch { wide, defined, .. }, result, .. } = self;
        let defined = none.and_then(|none| keep_defined(wide, defined, |value| value != none));
        *result = output.put((rows, defined), &Values::Wide(wide), None);
    }

    /// Writes the values in `wide` as times.
    fn put_times(self) {
        let Self { rows, output, scratch: Scratch { wide, defined, .. }, result, out_of_range, .. } = self;
        // A signed number of nanoseconds ends in 2262.
        let is_defined = |value: i64| value >= 0;
        *out_of_range += count_lost(wide, is_defined, UNDEF_TIMESTAMP as i64);
        let defined = keep_defined(wide, defined, is_defined);
        let range = wide.iter().copied().min().zip(wide.iter().copied().max());
        *result = output.put((rows, defined), &Values::Wide(wide), range);
    }

    /// Writes the values in `wide` as prices.
    fn put_prices(self) {
        let Self { rows, prices, output, scratch, result, out_of_range } = self;
        let Scratch { wide, floating, defined, .. } = scratch;
        let is_defined = |value: i64| match prices {
            Prices::Decimal => value.unsigned_abs() < DECIMAL_LIMIT,
            Prices::Float | Prices::Fixed => value != UNDEF_PRICE,
        };
        *out_of_range += count_lost(wide, is_defined, UNDEF_PRICE);
        let defined = keep_defined(wide, defined, is_defined);
        let values = if prices == Prices::Float {
            floating.clear();
            floating.extend(wide.iter().map(|units| *units as f64 / Price::ONE as f64));
            Values::Floating(floating)
        } else {
            Values::Wide(wide)
        };
        *result = output.put((rows, defined), &values, None);
    }
}

/// Replaces the values of a reused array.
fn fill<T>(array: &mut Vec<T>, values: impl Iterator<Item = T>) {
    array.clear();
    array.extend(values);
}

/// Drops undefined values and returns which positions were defined; `None` if all were.
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

/// Counts the values that are defined but do not fit the column.
fn count_lost(values: &[i64], is_held: impl Fn(i64) -> bool, undefined: i64) -> u64 {
    values.iter().filter(|value| !is_held(**value) && **value != undefined).count() as u64
}

/// Describes the columns of a record type.
pub(crate) fn describe<R: Row>(prices: Prices, has_origin: bool) -> Vec<Description> {
    let mut description = Vec::new();
    let to = To::Description(&mut description);
    let mut columns = Columns::<R> { records: &[], target: Target::new(0, prices, to) };
    R::columns(&mut columns);
    let mut rows = Rows::with_capacity(0);
    rows.has_origin = has_origin;
    columns.beside(&rows, Symbols::Received(&HashMap::new()));
    description
}

/// Writes a page of each column, with the keys that [`keys`] found. Returns the number of values written as null.
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

/// Makes an array of each column, with the keys that [`keys`] found. Returns the number of values that became null.
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

/// Finds the keys of the text columns, which depend on earlier batches; the rest of a batch can be encoded independently.
/// `dictionaries` has one entry per column, text or not, and `keys` gets an array per text column.
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
    let mut columns = Columns { records: &rows.records, target: Target::new(rows.records.len(), prices, to) };
    R::columns(&mut columns);
    columns.beside(rows, symbols);
    let Target { result, out_of_range, .. } = columns.target;
    result.map(|()| out_of_range)
}

impl<'a> Target<'a> {
    const fn new(rows: usize, prices: Prices, to: To<'a>) -> Self {
        Self { rows, prices, to, result: Ok(()), out_of_range: 0 }
    }

    /// Describes the next column, or returns where its values go.
    fn column(&mut self, name: &str, kind: Kind, is_optional: bool) -> Option<Place<'_>> {
        let (output, scratch) = match &mut self.to {
            To::Description(description) => {
                description.push(Description { name: name.to_owned(), kind, is_optional });
                return None;
            }
            To::Pages { columns, pages, press, scratch, .. } => {
                let column = columns.next().filter(|_| self.result.is_ok())?;
                (ColumnOutput::Page { column, pages, press }, scratch)
            }
            #[cfg(feature = "arrow")]
            To::Arrays { arrays, scratch, .. } => (ColumnOutput::Array { kind, arrays }, scratch),
            To::Keys { dictionaries, .. } => {
                dictionaries.next();
                return None;
            }
        };
        Some(Place {
            rows: self.rows,
            prices: self.prices,
            output,
            scratch,
            result: &mut self.result,
            out_of_range: &mut self.out_of_range,
        })
    }

    /// Describes or writes the next column, a text column, or returns its dictionary and the array for the keys of its values.
    fn keyed(&mut self, name: &str, is_optional: bool) -> Option<(&mut Dictionary, &mut Vec<u32>)> {
        match &mut self.to {
            To::Description(description) => {
                description.push(Description { name: name.to_owned(), kind: Kind::Text, is_optional });
            }
            To::Keys { dictionaries, keys } => {
                let (dictionary, keys) = dictionaries.next().zip(keys.next())?;
                keys.clear();
                return Some((dictionary, keys));
            }
            #[cfg(feature = "arrow")]
            To::Arrays { keys, arrays, .. } => arrays.push(Kind::Text, None, &Values::Keys(keys.next()?)),
            To::Pages { columns, keys, pages, press, scratch } => {
                let (column, keys) = columns.next().zip(keys.next()).filter(|_| self.result.is_ok())?;
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
                self.result = pages.push(column, (self.rows, defined), &Values::Keys(keys), None, press);
            }
        }
        None
    }
}

impl<R: Row> Columns<'_, R> {
    /// Adds a column of numbers of up to 32 bits, in which `none` means null.
    fn narrow(&mut self, name: &str, kind: Kind, none: Option<i32>, get: impl Fn(&R) -> i32) {
        if let Some(place) = self.target.column(name, kind, none.is_some()) {
            fill(&mut place.scratch.narrow, self.records.iter().map(get));
            place.put_narrow(none);
        }
    }

    /// Adds a column of 64-bit numbers, written by `put`.
    fn wide(
        &mut self,
        name: &str,
        kind: Kind,
        is_optional: bool,
        get: impl Fn(&R) -> i64,
        put: fn(Place<'_>),
    ) {
        if let Some(place) = self.target.column(name, kind, is_optional) {
            fill(&mut place.scratch.wide, self.records.iter().map(get));
            put(place);
        }
    }

    pub(crate) fn u8(&mut self, name: &str, get: impl Fn(&R) -> u8) {
        self.narrow(name, Kind::Unsigned(8), None, |row| i32::from(get(row)));
    }

    pub(crate) fn u16(&mut self, name: &str, get: impl Fn(&R) -> u16) {
        self.narrow(name, Kind::Unsigned(16), None, |row| i32::from(get(row)));
    }

    pub(crate) fn u32(&mut self, name: &str, get: impl Fn(&R) -> u32) {
        self.narrow(name, Kind::Unsigned(32), None, |row| get(row) as i32);
    }

    pub(crate) fn i32(&mut self, name: &str, get: impl Fn(&R) -> i32) {
        self.narrow(name, Kind::Signed, None, get);
    }

    /// Adds a 32-bit number whose maximum means null.
    pub(crate) fn optional_u32(&mut self, name: &str, get: impl Fn(&R) -> u32) {
        self.narrow(name, Kind::Unsigned(32), Some(u32::MAX as i32), |row| get(row) as i32);
    }

    /// Adds a 16-bit number whose maximum means null.
    pub(crate) fn optional_u16(&mut self, name: &str, get: impl Fn(&R) -> u16) {
        self.narrow(name, Kind::Unsigned(16), Some(i32::from(u16::MAX)), |row| i32::from(get(row)));
    }

    /// Adds an 8-bit number whose maximum means null.
    pub(crate) fn optional_u8(&mut self, name: &str, get: impl Fn(&R) -> u8) {
        self.narrow(name, Kind::Unsigned(8), Some(i32::from(u8::MAX)), |row| i32::from(get(row)));
    }

    /// Adds a signed 16-bit number whose maximum means null.
    pub(crate) fn optional_i16(&mut self, name: &str, get: impl Fn(&R) -> i16) {
        self.narrow(name, Kind::Signed, Some(i32::from(i16::MAX)), |row| i32::from(get(row)));
    }

    /// Adds a signed 8-bit number whose maximum means null.
    pub(crate) fn optional_i8(&mut self, name: &str, get: impl Fn(&R) -> i8) {
        self.narrow(name, Kind::Signed, Some(i32::from(i8::MAX)), |row| i32::from(get(row)));
    }

    /// Adds a signed 32-bit number whose maximum means null.
    pub(crate) fn optional_i32(&mut self, name: &str, get: impl Fn(&R) -> i32) {
        self.narrow(name, Kind::Signed, Some(i32::MAX), get);
    }

    /// Adds a signed 64-bit number whose maximum means null.
    pub(crate) fn optional_i64(&mut self, name: &str, get: impl Fn(&R) -> i64) {
        self.wide(name, Kind::Long, true, get, |place| place.put_wide(Some(i64::MAX)));
    }

    pub(crate) fn u64(&mut self, name: &str, get: impl Fn(&R) -> u64) {
        self.wide(name, Kind::Unsigned(64), false, |row| get(row) as i64, |place| place.put_wide(None));
    }

    /// Adds a time in nanoseconds UTC; an undefined time is null.
    pub(crate) fn time(&mut self, name: &str, get: impl Fn(&R) -> u64) {
        self.wide(name, Kind::Time, true, |row| get(row) as i64, |place| place.put_times());
    }

    /// Adds a price in 1e-9; an undefined price is null.
    pub(crate) fn price(&mut self, name: &str, get: impl Fn(&R) -> i64) {
        self.wide(name, Kind::Price(self.target.prices), true, get, |place| place.put_prices());
    }

    /// Adds a letter as text; anything but printable ASCII is null.
    pub(crate) fn letter(&mut self, name: &str, get: impl Fn(&R) -> c_char) {
        if let Some((dictionary, keys)) = self.target.keyed(name, true) {
            let key = |row| dictionary.key_of_number(u32::from(get(row) as u8), printable);
            keys.extend(self.records.iter().map(key));
        }
    }

    /// Adds a text; an empty text is null.
    pub(crate) fn text(&mut self, name: &str, get: impl Fn(&R) -> &str) {
        if let Some((dictionary, keys)) = self.target.keyed(name, true) {
            keys.extend(self.records.iter().map(|row| dictionary.key_of_text(get(row))));
        }
    }

    /// Adds the columns outside the record: the symbol and, for records of one message, its channel sequence and line.
    fn beside(&mut self, rows: &Rows<R>, symbols: Symbols<'_>) {
        let symbol = |number: u32| symbols.of(number);
        if let Some((dictionary, keys)) = self.target.keyed("symbol", true) {
            let key = |row: &R| dictionary.key_of_number(row.instrument_id() as u32, symbol);
            keys.extend(self.records.iter().map(key));
        }
        if !rows.has_origin {
            return;
        }
        if let Some(place) = self.target.column("channel_sequence", Kind::Unsigned(64), false) {
            fill(&mut place.scratch.wide, rows.sequences.iter().map(|sequence| *sequence as i64));
            place.put_wide(None);
        }
        let line = |number: u32| LINES.get(number as usize).copied();
        if let Some((dictionary, keys)) = self.target.keyed("line", false) {
            keys.extend(rows.lines.iter().map(|from| dictionary.key_of_number(*from as u32, line)));
        }
    }
}

/// The names of the lines, by number.
const LINES: [&str; 4] = ["A", "B", "recovery", "snapshot"];

/// Printable ASCII, starting with the space; the source of each letter's text.
const PRINTABLE: &str = concat!(
    " !\"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`",
    "abcdefghijklmnopqrstuvwxyz{|}~"
);

fn printable(letter: u32) -> Option<&'static str> {
    let place = letter.checked_sub(u32::from(b' '))? as usize;
    PRINTABLE.get(place..=place)
}
