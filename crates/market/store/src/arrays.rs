//! Converts columns to Arrow arrays.

use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{
    Array as _, ArrayRef, Decimal128Array, DictionaryArray, Float64Array, Int32Array, Int64Array,
    StringArray, TimestampNanosecondArray, UInt8Array, UInt16Array, UInt32Array, UInt64Array,
};
use arrow_buffer::{ArrowNativeType, NullBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field, TimeUnit};

use crate::chunk::{Dictionary, NO_KEY, Values};
use crate::column::{Description, Kind};
use crate::options::Prices;

/// The time zone of all times.
const UTC: &str = "UTC";

/// A decimal price, as in Parquet.
const DECIMAL: DataType = DataType::Decimal128(18, 9);

/// Describes a column for Arrow.
pub(crate) fn field(column: &Description) -> Field {
    let of_kind = match column.kind {
        Kind::Unsigned(8) => DataType::UInt8,
        Kind::Unsigned(16) => DataType::UInt16,
        Kind::Unsigned(64) => DataType::UInt64,
        Kind::Unsigned(_) => DataType::UInt32,
        Kind::Signed => DataType::Int32,
        Kind::Long => DataType::Int64,
        Kind::Time => DataType::Timestamp(TimeUnit::Nanosecond, Some(UTC.into())),
        Kind::Price(Prices::Decimal) => DECIMAL,
        Kind::Price(Prices::Fixed) => DataType::Int64,
        Kind::Price(Prices::Float) => DataType::Float64,
        Kind::Text => DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8)),
    };
    Field::new(&column.name, of_kind, column.is_optional)
}

/// The arrays of a batch, and the texts that their keys refer to.
#[derive(Default)]
pub(crate) struct Arrays {
    arrays: Vec<ArrayRef>,
    /// The texts of each column; only text columns have any. An array is rebuilt only when there is a new text.
    texts: Vec<Arc<StringArray>>,
    zone: Option<Arc<str>>,
}

impl Arrays {
    /// Learns the new texts of the dictionaries, one per column. Call it before adding the columns of a batch.
    pub(crate) fn learn(&mut self, dictionaries: &[Dictionary]) {
        self.texts.resize_with(dictionaries.len(), || Arc::new(StringArray::from_iter_values([""; 0])));
        for (texts, dictionary) in self.texts.iter_mut().zip(dictionaries) {
            if texts.len() != dictionary.len() {
                *texts = Arc::new(StringArray::from_iter_values(dictionary.texts().collect::<Vec<_>>()));
            }
        }
    }

    /// Takes the arrays of a batch.
    pub(crate) fn take(&mut self) -> Vec<ArrayRef> {
        std::mem::take(&mut self.arrays)
    }

    /// Adds the values of the next column. `values` holds the defined ones; without `defined`, all are.
    pub(crate) fn push(&mut self, kind: Kind, defined: Option<&[u32]>, values: &Values<'_>) {
        let nulls = defined.map(|defined| defined.iter().map(|is| *is != 0).collect::<NullBuffer>());
        let array: ArrayRef = match values {
            Values::Narrow(values) => match kind {
                Kind::Unsigned(8) => {
                    Arc::new(UInt8Array::new(spread(values, defined, |value| value as u8), nulls))
                }
                Kind::Unsigned(16) => {
                    Arc::new(UInt16Array::new(spread(values, defined, |value| value as u16), nulls))
                }
                Kind::Unsigned(_) => {
                    Arc::new(UInt32Array::new(spread(values, defined, |value| value as u32), nulls))
                }
                _ => Arc::new(Int32Array::new(spread(values, defined, |value| value), nulls)),
            },
            Values::Wide(values) => match kind {
                Kind::Unsigned(_) => {
                    Arc::new(UInt64Array::new(spread(values, defined, |value| value as u64), nulls))
                }
                Kind::Time => {
                    let zone = Arc::clone(self.zone.get_or_insert_with(|| UTC.into()));
                    let times = TimestampNanosecondArray::new(spread(values, defined, |value| value), nulls);
                    Arc::new(times.with_timezone(zone))
                }
                Kind::Price(Prices::Decimal) => {
                    let prices = Decimal128Array::new(spread(values, defined, i128::from), nulls);
                    Arc::new(prices.with_data_type(DECIMAL))
                }
                _ => Arc::new(Int64Array::new(spread(values, defined, |value| value), nulls)),
            },
            Values::Floating(values) => {
                Arc::new(Float64Array::new(spread(values, defined, |value| value), nulls))
            }
            Values::Keys(keys) => {
                let none = || Arc::new(StringArray::from_iter_values([""; 0]));
                let texts = self.texts.get(self.arrays.len()).map_or_else(none, Arc::clone);
                let keys = keys.iter().map(|key| (*key != NO_KEY).then_some(*key as i32)).collect();
                Arc::new(DictionaryArray::<Int32Type>::new(keys, texts))
            }
        };
        self.arrays.push(array);
    }
}

/// Spreads `values` over the defined positions, with zero at the others.
fn spread<T: Copy, U: ArrowNativeType>(
    values: &[T],
    defined: Option<&[u32]>,
    convert: impl Fn(T) -> U,
) -> ScalarBuffer<U> {
    let Some(defined) = defined else { return values.iter().map(|value| convert(*value)).collect() };
    let mut values = values.iter();
    let next = |is_defined: &u32| match is_defined {
        0 => U::default(),
        _ => values.next().map(|value| convert(*value)).unwrap_or_default(),
    };
    defined.iter().map(next).collect()
}
