//! Records to Arrow columns.
//!
//! A record type lists its columns once, as calls on [`Columns`]: name, kind, and how to read the field. The same
//! list gives the schema with the encodings (when the file is opened) and the arrays (for each batch). Each column is
//! one loop over the batch into a fresh vector that becomes the Arrow array without a copy.

use std::ffi::c_char;
use std::sync::Arc;

use arrow_array::types::{
    ArrowPrimitiveType, Decimal64Type, Float64Type, Int32Type, Int64Type, TimestampNanosecondType, UInt8Type,
    UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{ArrayRef, DictionaryArray, PrimitiveArray, StringArray};
use arrow_buffer::{NullBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field, TimeUnit};
use dbn::{UNDEF_PRICE, UNDEF_TIMESTAMP};
use tapeworks_market::event::Line;

use crate::options::Prices;

/// The metadata key under which DBN's own Parquet files tell the scale of fixed-point prices.
const FIXED_PRICE_SCALE_KEY: &str = "databento:fixed_price_scale";

/// The first magnitude, in 1e-9, that a decimal of 18 digits does not hold.
const DECIMAL_LIMIT: u64 = 1_000_000_000_000_000_000;

/// How a column is encoded in Parquet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Encoding {
    /// Differences, bit-packed: whatever grows steadily or stays near its last value.
    Delta,
    /// As it is.
    Plain,
    /// By dictionary.
    Dictionary,
    /// Differences, with the least and greatest value of each page for those who look for a time.
    DeltaWithStatistics,
}

/// The columns of a batch, or their description when there are no rows yet.
pub(crate) struct Columns<'a, R> {
    rows: &'a [R],
    prices: Prices,
    describing: bool,
    pub(crate) fields: Vec<Field>,
    pub(crate) encodings: Vec<Encoding>,
    pub(crate) arrays: Vec<ArrayRef>,
    /// Prices that were written as null as the decimal cannot hold them.
    pub(crate) out_of_range: u64,
}

fn primitive<T: ArrowPrimitiveType>(values: Vec<T::Native>) -> PrimitiveArray<T> {
    PrimitiveArray::new(ScalarBuffer::from(values), None)
}

impl<'a, R> Columns<'a, R> {
    /// To describe the columns.
    pub(crate) fn describe(prices: Prices) -> Self {
        Self {
            rows: &[],
            prices,
            describing: true,
            fields: Vec::new(),
            encodings: Vec::new(),
            arrays: Vec::new(),
            out_of_range: 0,
        }
    }

    /// To build the arrays of `rows`.
    pub(crate) fn build(rows: &'a [R], prices: Prices) -> Self {
        Self { rows, describing: false, ..Self::describe(prices) }
    }

    fn column(
        &mut self,
        field: impl FnOnce() -> Field,
        encoding: Encoding,
        array: impl FnOnce() -> ArrayRef,
    ) {
        if self.describing {
            self.fields.push(field());
            self.encodings.push(encoding);
        } else {
            self.arrays.push(array());
        }
    }

    fn numbers<T: ArrowPrimitiveType>(
        &mut self,
        name: &str,
        encoding: Encoding,
        get: impl Fn(&R) -> T::Native,
    ) {
        let rows = self.rows;
        self.column(
            || Field::new(name, T::DATA_TYPE, false),
            encoding,
            || Arc::new(primitive::<T>(rows.iter().map(get).collect())),
        );
    }

    pub(crate) fn u8(&mut self, name: &str, get: impl Fn(&R) -> u8) {
        self.numbers::<UInt8Type>(name, Encoding::Delta, get);
    }

    pub(crate) fn u16(&mut self, name: &str, get: impl Fn(&R) -> u16) {
        self.numbers::<UInt16Type>(name, Encoding::Delta, get);
    }

    pub(crate) fn u32(&mut self, name: &str, get: impl Fn(&R) -> u32) {
        self.numbers::<UInt32Type>(name, Encoding::Delta, get);
    }

    pub(crate) fn u64(&mut self, name: &str, get: impl Fn(&R) -> u64) {
        self.numbers::<UInt64Type>(name, Encoding::Delta, get);
    }

    pub(crate) fn i32(&mut self, name: &str, get: impl Fn(&R) -> i32) {
        self.numbers::<Int32Type>(name, Encoding::Delta, get);
    }

    /// A number of which `undefined` is null.
    pub(crate) fn optional_u32(&mut self, name: &str, get: impl Fn(&R) -> u32) {
        let rows = self.rows;
        self.column(
            || Field::new(name, DataType::UInt32, true),
            Encoding::Delta,
            || {
                let values = rows.iter().map(|row| Some(get(row)).filter(|value| *value != u32::MAX));
                Arc::new(values.collect::<PrimitiveArray<UInt32Type>>())
            },
        );
    }

    /// A signed number of which the greatest is null.
    pub(crate) fn optional_i32(&mut self, name: &str, get: impl Fn(&R) -> i32) {
        let rows = self.rows;
        self.column(
            || Field::new(name, DataType::Int32, true),
            Encoding::Delta,
            || {
                let values = rows.iter().map(|row| Some(get(row)).filter(|value| *value != i32::MAX));
                Arc::new(values.collect::<PrimitiveArray<Int32Type>>())
            },
        );
    }

    /// A time in nanoseconds UTC; undefined is null.
    pub(crate) fn time(&mut self, name: &str, get: impl Fn(&R) -> u64) {
        let rows = self.rows;
        self.column(
            || Field::new(name, DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into())), true),
            Encoding::DeltaWithStatistics,
            || {
                let values: Vec<i64> = rows.iter().map(|row| get(row) as i64).collect();
                let nulls = nulls(&values, |value| value != UNDEF_TIMESTAMP as i64);
                Arc::new(
                    PrimitiveArray::<TimestampNanosecondType>::new(ScalarBuffer::from(values), nulls)
                        .with_timezone("UTC"),
                )
            },
        );
    }

    /// A price in 1e-9; undefined is null.
    pub(crate) fn price(&mut self, name: &str, get: impl Fn(&R) -> i64) {
        let (rows, prices) = (self.rows, self.prices);
        let field = || match prices {
            Prices::Decimal => Field::new(name, DataType::Decimal64(18, 9), true),
            Prices::Float => Field::new(name, DataType::Float64, true),
            Prices::Fixed => Field::new(name, DataType::Int64, true)
                .with_metadata([(FIXED_PRICE_SCALE_KEY.to_owned(), Price::SCALE.to_string())].into()),
        };
        let mut out_of_range = 0;
        let encoding = if prices == Prices::Float { Encoding::Plain } else { Encoding::Delta };
        self.column(field, encoding, || match prices {
            Prices::Decimal => {
                let values: Vec<i64> = rows.iter().map(get).collect();
                let nulls = nulls(&values, |value| value.unsigned_abs() < DECIMAL_LIMIT);
                if let Some(nulls) = &nulls {
                    let undefined = values.iter().filter(|value| **value == UNDEF_PRICE).count();
                    out_of_range = (nulls.null_count() - undefined) as u64;
                }
                let array = PrimitiveArray::<Decimal64Type>::new(ScalarBuffer::from(values), nulls);
                Arc::new(array.with_data_type(DataType::Decimal64(18, 9)))
            }
            Prices::Fixed => {
                let values: Vec<i64> = rows.iter().map(get).collect();
                let nulls = nulls(&values, |value| value != UNDEF_PRICE);
                Arc::new(PrimitiveArray::<Int64Type>::new(ScalarBuffer::from(values), nulls))
            }
            Prices::Float => {
                let units: Vec<i64> = rows.iter().map(get).collect();
                let nulls = nulls(&units, |value| value != UNDEF_PRICE);
                let values: Vec<f64> =
                    units.iter().map(|units| *units as f64 / Price::SCALE as f64).collect();
                Arc::new(PrimitiveArray::<Float64Type>::new(ScalarBuffer::from(values), nulls))
            }
        });
        self.out_of_range += out_of_range;
    }

    /// One letter out of `letters`, as text by dictionary; any other byte is null.
    pub(crate) fn letter(&mut self, name: &str, letters: &'static str, get: impl Fn(&R) -> c_char) {
        let rows = self.rows;
        let data_type = DataType::Dictionary(Box::new(DataType::UInt8), Box::new(DataType::Utf8));
        self.column(
            || Field::new(name, data_type, true),
            Encoding::Dictionary,
            || {
                const OTHER: u8 = u8::MAX;
                let mut places = [OTHER; 256];
                for (place, letter) in letters.bytes().enumerate() {
                    places[usize::from(letter)] = place as u8;
                }
                let keys: Vec<u8> = rows.iter().map(|row| places[usize::from(get(row) as u8)]).collect();
                let nulls = nulls(&keys, |key| key != OTHER);
                let keys = PrimitiveArray::<UInt8Type>::new(ScalarBuffer::from(keys), nulls);
                let values = (0..letters.len()).map(|place| letters.get(place..=place).unwrap_or_default());
                let values = StringArray::from_iter_values(values);
                dictionary(keys, Arc::new(values))
            },
        );
    }

    /// Text; what is empty is null.
    pub(crate) fn text(&mut self, name: &str, get: impl Fn(&R) -> &str) {
        let rows = self.rows;
        self.column(
            || Field::new(name, DataType::Utf8, true),
            Encoding::Dictionary,
            || {
                let values = rows.iter().map(|row| Some(get(row)).filter(|text| !text.is_empty()));
                Arc::new(values.collect::<StringArray>())
            },
        );
    }

    /// The columns beside the record: the symbol and, for records of one message, its channel sequence and line.
    /// `keys` are places in `symbols`.
    pub(crate) fn beside(
        &mut self,
        has_origin: bool,
        symbols: &ArrayRef,
        keys: impl FnOnce() -> (Vec<u32>, Option<NullBuffer>),
        sequences: &[u64],
        lines: &[Line],
    ) {
        let data_type = DataType::Dictionary(Box::new(DataType::UInt32), Box::new(DataType::Utf8));
        self.column(
            || Field::new("symbol", data_type, true),
            Encoding::Dictionary,
            || {
                let (keys, nulls) = keys();
                let keys = PrimitiveArray::<UInt32Type>::new(ScalarBuffer::from(keys), nulls);
                dictionary(keys, Arc::clone(symbols))
            },
        );
        if !has_origin {
            return;
        }
        self.column(
            || Field::new("channel_sequence", DataType::UInt64, false),
            Encoding::Delta,
            || Arc::new(primitive::<UInt64Type>(sequences.to_vec())),
        );
        let data_type = DataType::Dictionary(Box::new(DataType::UInt8), Box::new(DataType::Utf8));
        self.column(
            || Field::new("line", data_type, false),
            Encoding::Dictionary,
            || {
                let keys = primitive::<UInt8Type>(lines.iter().map(|line| *line as u8).collect());
                dictionary(keys, Arc::new(StringArray::from_iter_values(LINES)))
            },
        );
    }
}

/// The names of [`Line`]'s values, by number.
const LINES: [&str; 4] = ["A", "B", "recovery", "snapshot"];

struct Price;

impl Price {
    const SCALE: i64 = tapeworks_market::Price::ONE;
}

/// A dictionary array whose keys all lie within `values`: the callers map every key through a table of its length.
fn dictionary<K: arrow_array::types::ArrowDictionaryKeyType>(
    keys: PrimitiveArray<K>,
    values: ArrayRef,
) -> ArrayRef {
    Arc::new(DictionaryArray::new(keys, values))
}

/// The mask of what is defined; none when all is, which is the rule.
fn nulls<T: Copy>(values: &[T], is_defined: impl Fn(T) -> bool) -> Option<NullBuffer> {
    if values.iter().all(|value| is_defined(*value)) {
        return None;
    }
    Some(values.iter().map(|value| is_defined(*value)).collect())
}
