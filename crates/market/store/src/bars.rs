//! Bars as CSV, JSON or Parquet, whole files in memory.
//!
//! The columns are the columns of DBN's `ohlcv` records, followed by the number of trades, their volume-weighted average
//! price, and the symbol. DBN has no record with the last two, so bars have no DBN format. A missing price is empty in CSV,
//! null in Parquet and pretty JSON, and DBN's undefined price in plain JSON.

use std::fmt::Write as _;
use std::sync::Arc;

use ::parquet::basic::{Compression, LogicalType, Repetition, TimeUnit, Type as Physical};
use ::parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};
use ::parquet::errors::ParquetError;
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use ::parquet::schema::types::Type;
use dbn::pretty;
use tapeworks_market::price::price_e9;
use tapeworks_market::{Price, Symbol};
use tapeworks_time::Nanos;

/// A bar in a file.
#[derive(Clone, Debug)]
pub struct BarRow {
    /// Start of the interval.
    pub start: Nanos,
    /// The feed; 0 means all venues.
    pub publisher_id: u16,
    /// Open, high, low, close.
    pub prices: [Option<Price>; 4],
    /// Shares.
    pub volume: u64,
    /// Number of trades.
    pub trades: u64,
    /// Volume-weighted average price.
    pub vwap: Option<Price>,
    /// The instrument's symbol.
    pub symbol: Symbol,
}

/// The price columns, in order.
const PRICES: [&str; 4] = ["open", "high", "low", "close"];

/// Formats a price: as a decimal if `is_pretty`, otherwise as an integer in 1e-9.
fn price(price: Option<Price>, is_pretty: bool) -> String {
    match (price, is_pretty) {
        (Some(price), true) => pretty::Px(price.e9()).to_string(),
        (None, true) => String::new(),
        (price, false) => price_e9(price).to_string(),
    }
}

fn time(time: Nanos, is_pretty: bool) -> String {
    if is_pretty { pretty::Ts(time.0).to_string() } else { time.0.to_string() }
}

/// Returns a header line, then one line per bar.
#[must_use]
pub fn csv(bars: &[BarRow], pretty: bool) -> String {
    let mut text = "ts_event,publisher_id,open,high,low,close,volume,trades,vwap,symbol\n".to_owned();
    for bar in bars {
        let shown = |one: Option<Price>| one.map_or_else(String::new, |one| price(Some(one), pretty));
        let [open, high, low, close] = bar.prices.map(shown);
        let BarRow { publisher_id, volume, trades, symbol, .. } = bar;
        let (start, vwap) = (time(bar.start, pretty), shown(bar.vwap));
        let _infallible = writeln!(
            text,
            "{start},{publisher_id},{open},{high},{low},{close},{volume},{trades},{vwap},{symbol}"
        );
    }
    text
}

/// Returns one object per line. 64-bit integers are strings, as in DBN's JSON.
#[must_use]
pub fn json(bars: &[BarRow], pretty: bool) -> String {
    let mut text = String::new();
    let shown = |one: Option<Price>| match (one, pretty) {
        (None, true) => "null".to_owned(),
        (one, _) => format!("\"{}\"", price(one, pretty)),
    };
    for bar in bars {
        let _infallible = write!(
            text,
            "{{\"ts_event\":\"{}\",\"publisher_id\":{}",
            time(bar.start, pretty),
            bar.publisher_id
        );
        for (name, one) in PRICES.into_iter().zip(bar.prices) {
            let _infallible = write!(text, ",\"{name}\":{}", shown(one));
        }
        let BarRow { volume, trades, symbol, vwap, .. } = bar;
        let _infallible = writeln!(
            text,
            ",\"volume\":\"{volume}\",\"trades\":\"{trades}\",\"vwap\":{},\"symbol\":\"{symbol}\"}}",
            shown(*vwap)
        );
    }
    text
}

fn field(
    name: &str,
    physical: Physical,
    logical: LogicalType,
    is_optional: bool,
) -> Result<Arc<Type>, ParquetError> {
    let repetition = if is_optional { Repetition::OPTIONAL } else { Repetition::REQUIRED };
    let builder = Type::primitive_type_builder(name, physical).with_repetition(repetition);
    let is_decimal = matches!(logical, LogicalType::Decimal { .. });
    let builder = builder.with_logical_type(Some(logical));
    let builder = if is_decimal { builder.with_precision(18).with_scale(9) } else { builder };
    builder.build().map(Arc::new)
}

/// Returns a Parquet file with times as `TIMESTAMP(NANOS, UTC)` and prices as `DECIMAL(18, 9)`. A price of a billion or more is null.
///
/// # Errors
/// Errors of the `parquet` crate.
pub fn parquet(bars: &[BarRow]) -> Result<Vec<u8>, ParquetError> {
    let unsigned = |bits| LogicalType::integer(bits, false);
    let decimal = |name| field(name, Physical::INT64, LogicalType::decimal(9, 18), true);
    let mut fields = vec![
        field("ts_event", Physical::INT64, LogicalType::timestamp(true, TimeUnit::NANOS), false)?,
        field("publisher_id", Physical::INT32, unsigned(16), false)?,
    ];
    for name in PRICES {
        fields.push(decimal(name)?);
    }
    fields.push(field("volume", Physical::INT64, unsigned(64), false)?);
    fields.push(field("trades", Physical::INT64, unsigned(64), false)?);
    fields.push(decimal("vwap")?);
    fields.push(field("symbol", Physical::BYTE_ARRAY, LogicalType::String, false)?);
    let record = Type::group_type_builder("schema").with_fields(fields).build()?;
    // The build is not recorded, so that the same input gives the same bytes.
    let properties = WriterProperties::builder()
        .set_created_by("tapeworks".to_owned())
        .set_compression(Compression::SNAPPY)
        .build();
    let mut writer = SerializedFileWriter::new(Vec::new(), Arc::new(record), Arc::new(properties))?;
    let mut group = writer.next_row_group()?;
    integers(&mut group, bars, |bar| bar.start.0 as i64)?;
    let mut column = next(&mut group)?;
    let ids: Vec<i32> = bars.iter().map(|bar| i32::from(bar.publisher_id)).collect();
    column.typed::<Int32Type>().write_batch(&ids, None, None)?;
    column.close()?;
    for place in 0..PRICES.len() {
        prices(&mut group, bars, |bar| bar.prices.get(place).copied().flatten())?;
    }
    integers(&mut group, bars, |bar| bar.volume as i64)?;
    integers(&mut group, bars, |bar| bar.trades as i64)?;
    prices(&mut group, bars, |bar| bar.vwap)?;
    let mut column = next(&mut group)?;
    let symbols: Vec<ByteArray> = bars.iter().map(|bar| bar.symbol.as_str().into()).collect();
    column.typed::<ByteArrayType>().write_batch(&symbols, None, None)?;
    column.close()?;
    group.close()?;
    writer.into_inner()
}

type Group<'w> = SerializedRowGroupWriter<'w, Vec<u8>>;

fn next<'g>(
    group: &'g mut Group<'_>,
) -> Result<::parquet::file::writer::SerializedColumnWriter<'g>, ParquetError> {
    group.next_column()?.ok_or_else(|| ParquetError::General("more columns than fields".to_owned()))
}

fn integers(group: &mut Group<'_>, bars: &[BarRow], of: impl Fn(&BarRow) -> i64) -> Result<(), ParquetError> {
    let mut column = next(group)?;
    let values: Vec<i64> = bars.iter().map(of).collect();
    column.typed::<Int64Type>().write_batch(&values, None, None)?;
    column.close()
}

fn prices(
    group: &mut Group<'_>,
    bars: &[BarRow],
    of: impl Fn(&BarRow) -> Option<Price>,
) -> Result<(), ParquetError> {
    /// The smallest magnitude, in 1e-9, that exceeds an 18-digit decimal.
    const LIMIT: u64 = 1_000_000_000_000_000_000;
    let mut column = next(group)?;
    let all: Vec<Option<i64>> =
        bars.iter().map(|bar| of(bar).map(Price::e9).filter(|one| one.unsigned_abs() < LIMIT)).collect();
    let defined: Vec<i16> = all.iter().map(|one| i16::from(one.is_some())).collect();
    let values: Vec<i64> = all.into_iter().flatten().collect();
    column.typed::<Int64Type>().write_batch(&values, Some(&defined), None)?;
    column.close()
}

#[cfg(test)]
mod tests {
    use ::parquet::file::reader::{FileReader as _, SerializedFileReader};
    use ::parquet::record::Field;

    use super::*;

    fn rows() -> [BarRow; 2] {
        let dollars = |dollars: i64| Price::from_e9(dollars * Price::ONE);
        let full = BarRow {
            start: Nanos(1_763_130_600_000_000_000),
            publisher_id: 2,
            prices: [dollars(10), dollars(12), dollars(9), dollars(11)],
            volume: 300,
            trades: 2,
            vwap: Price::from_e9(10_666_666_667),
            symbol: Symbol::parse("AAPL").unwrap(),
        };
        [full.clone(), BarRow { prices: [None; 4], publisher_id: 0, vwap: dollars(-1), ..full }]
    }

    #[test]
    fn bars_are_lines_of_csv_and_json() {
        assert_eq!(
            csv(&rows(), false),
            "ts_event,publisher_id,open,high,low,close,volume,trades,vwap,symbol\n\
             1763130600000000000,2,10000000000,12000000000,9000000000,11000000000,300,2,10666666667,AAPL\n\
             1763130600000000000,0,,,,,300,2,-1000000000,AAPL\n"
        );
        assert_eq!(
            json(&rows()[1..], true),
            "{\"ts_event\":\"2025-11-14T14:30:00.000000000Z\",\"publisher_id\":0,\"open\":null,\"high\":null,\
             \"low\":null,\"close\":null,\"volume\":\"300\",\"trades\":\"2\",\"vwap\":\"-1.000000000\",\
             \"symbol\":\"AAPL\"}\n"
        );
    }

    #[test]
    fn a_parquet_file_of_bars_reads_back_with_its_nulls() {
        let file = parquet(&rows()).unwrap();
        let reader = SerializedFileReader::new(bytes::Bytes::from(file)).unwrap();
        let read: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
        assert_eq!(read.len(), 2);
        let names: Vec<&str> = read[0].get_column_iter().map(|(name, _)| name.as_str()).collect();
        let expected = [
            "ts_event",
            "publisher_id",
            "open",
            "high",
            "low",
            "close",
            "volume",
            "trades",
            "vwap",
            "symbol",
        ];
        assert_eq!(names, expected);
        let of = |row: usize, place: usize| read[row].get_column_iter().nth(place).unwrap().1.clone();
        assert!(matches!(of(0, 2), Field::Decimal(_)));
        assert_eq!((of(1, 2), of(1, 5), of(0, 6)), (Field::Null, Field::Null, Field::ULong(300)));
        assert_eq!(of(1, 9), Field::Str("AAPL".to_owned()));
        assert!(!parquet(&[]).unwrap().is_empty());
    }
}
