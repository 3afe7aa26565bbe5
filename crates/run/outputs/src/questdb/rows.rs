//! Records as rows of tables: the columns of each schema, as SQL and as lines of the InfluxDB line protocol.
//!
//! The columns are common to all column-based outputs. Undefined values are omitted, and therefore null.
//!
//! Sources: the `dbn` crate for the records, QuestDB's *InfluxDB Line Protocol* and its SQL reference for the rest.

use std::fmt::Write as _;

use dbn::{RecordRef, UNDEF_PRICE, UNDEF_TIMESTAMP};
use questdb::ingress::{Buffer, ColumnName, TableName, TimestampNanos};
use tapeworks_market::Symbol;
use tapeworks_store::Schema;
use tapeworks_store::live::Item;

use crate::columns::{Columns, Row, first, last, time_column, with_type};

/// The value 1 as a DBN price.
const UNIT: f64 = 1e9;

/// A column of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Column {
    name: &'static str,
    sql: &'static str,
}

/// Collects the columns in order.
#[derive(Default)]
struct Described(Vec<Column>);

impl Described {
    fn put(&mut self, name: &'static str, sql: &'static str) -> questdb::Result<()> {
        self.0.push(Column { name, sql });
        Ok(())
    }
}

impl Columns for Described {
    type Error = questdb::Error;

    fn tag(&mut self, name: &'static str, _: Option<&str>) -> questdb::Result<()> {
        self.put(name, "SYMBOL")
    }

    fn short(&mut self, name: &'static str, _: Option<i32>) -> questdb::Result<()> {
        self.put(name, "INT")
    }

    fn long(&mut self, name: &'static str, _: Option<i64>) -> questdb::Result<()> {
        self.put(name, "LONG")
    }

    fn price(&mut self, name: &'static str, _: i64) -> questdb::Result<()> {
        self.put(name, "DOUBLE")
    }

    fn time(&mut self, name: &'static str, _: u64) -> questdb::Result<()> {
        self.put(name, "TIMESTAMP_NS")
    }
}

/// A line under construction.
struct Line<'a>(&'a mut Buffer);

impl Columns for Line<'_> {
    type Error = questdb::Error;

    fn tag(&mut self, name: &'static str, value: Option<&str>) -> questdb::Result<()> {
        match value {
            Some(value) => self.0.symbol(ColumnName::new_unchecked(name), value).map(drop),
            None => Ok(()),
        }
    }

    fn short(&mut self, name: &'static str, value: Option<i32>) -> questdb::Result<()> {
        self.long(name, value.map(i64::from))
    }

    fn long(&mut self, name: &'static str, value: Option<i64>) -> questdb::Result<()> {
        match value {
            Some(value) => self.0.column_i64(ColumnName::new_unchecked(name), value).map(drop),
            None => Ok(()),
        }
    }

    fn price(&mut self, name: &'static str, value: i64) -> questdb::Result<()> {
        if value == UNDEF_PRICE {
            return Ok(());
        }
        // For numbers that a double represents exactly, the quotient is the nearest double, so it prints as the price.
        self.0.column_f64(ColumnName::new_unchecked(name), value as f64 / UNIT).map(drop)
    }

    fn time(&mut self, name: &'static str, value: u64) -> questdb::Result<()> {
        match (value, i64::try_from(value)) {
            (UNDEF_TIMESTAMP, _) | (_, Err(_)) => Ok(()),
            (_, Ok(value)) => {
                self.0.column_ts(ColumnName::new_unchecked(name), TimestampNanos::new(value)).map(drop)
            }
        }
    }
}

/// Returns the table name of a schema's records: the prefix and the schema's name, with underscores.
pub fn table_name(prefix: &str, schema: Schema) -> String {
    format!("{prefix}{}", schema.as_str().replace('-', "_"))
}

/// Returns the statement that creates the table of a schema's records, if it does not exist. Rows with the same time, event and
/// part are deduplicated.
pub fn create_table(table: &str, schema: Schema) -> String {
    let mut columns = Described::default();
    // Describing columns cannot fail.
    let _infallible = with_type!(schema, Type => {
        first(&mut columns, None, 0)
            .and_then(|()| Type::blank().columns(&mut columns))
            .and_then(|()| last(&mut columns, 0, 0))
    });
    let time = time_column(schema);
    let mut text = format!("CREATE TABLE IF NOT EXISTS '{table}' (");
    for Column { name, sql } in columns.0 {
        let _infallible = write!(text, "\"{name}\" {sql}, ");
    }
    let _infallible = write!(
        text,
        "\"{time}\" TIMESTAMP_NS) TIMESTAMP(\"{time}\") PARTITION BY DAY WAL DEDUP UPSERT KEYS(\"{time}\", event, part)"
    );
    text
}

/// Appends the row of a record to `buffer`. `part` is its place among the records of its event in this table.
///
/// # Errors
/// A record of another schema, or a time that no timestamp can represent; `buffer` is then unchanged.
pub fn put(
    buffer: &mut Buffer,
    table: TableName<'_>,
    schema: Schema,
    (item, part): (&Item, u32),
    symbol: Option<&Symbol>,
    record: RecordRef<'_>,
) -> questdb::Result<()> {
    buffer.set_marker()?;
    let symbol = symbol.map(Symbol::as_str);
    let mut write = || {
        let wrong = |what: &str| questdb::Error::new(questdb::ErrorCode::InvalidApiCall, what);
        let time = i64::try_from(item.time).map_err(|_| wrong("the record has no time"))?;
        let mut line = Line(&mut *buffer);
        line.0.table(table)?;
        first(&mut line, symbol, item.publisher)?;
        with_type!(schema, Type => {
            record.get::<Type>().ok_or_else(|| wrong("the record is of another schema"))?.columns(&mut line)?;
        });
        last(&mut line, item.event, part)?;
        line.0.at(TimestampNanos::new(time))
    };
    let written = write();
    if written.is_err() {
        buffer.rewind_to_marker()?;
    }
    buffer.clear_marker();
    written
}

#[cfg(test)]
mod tests {
    use std::ffi::c_char;

    use dbn::{MboMsg, OhlcvMsg, TradeMsg};
    use questdb::ingress::ProtocolVersion;
    use tapeworks_market::InstrumentId;

    use super::*;

    fn item(event: u64, time: u64) -> Item {
        Item { event, time, instrument: InstrumentId(0), publisher: 2, start: 0, length: 0 }
    }

    /// Returns a record's line in version 1 of the protocol, which is all text, with times in microseconds.
    fn line<R: Row + dbn::Record<Header = dbn::RecordHeader>>(
        schema: Schema,
        record: &R,
        item: &Item,
    ) -> questdb::Result<String> {
        let mut buffer = Buffer::new(ProtocolVersion::V1);
        let symbol = Symbol::from_bytes(b"A B,C").unwrap();
        let table = TableName::new("t")?;
        let record = RecordRef::from(record);
        put(&mut buffer, table, schema, (item, 1), Some(&symbol), record)?;
        Ok(String::from_utf8(buffer.as_bytes().to_vec()).unwrap())
    }

    #[test]
    fn an_order_is_a_row() {
        let mut order = MboMsg { order_id: u64::MAX, price: 12_345_600_000, size: 300, ..MboMsg::default() };
        (order.action, order.side) = (b'A' as c_char, b'B' as c_char);
        order.hd.ts_event = 1_700_000_000_000_001_000;
        order.flags.set_last();
        (order.ts_in_delta, order.sequence) = (-5, u32::MAX);
        let expected = "t,symbol=A\\ B\\,C,publisher=XNAS.ITCH,action=A,side=B ts_event=1700000000000001t,\
            order_id=-1i,price=12.3456,size=300i,channel_id=255i,flags=128i,ts_in_delta=-5i,sequence=4294967295i,\
            event=7i,part=1i 1700000000000000123\n";
        assert_eq!(line(Schema::Mbo, &order, &item(7, 1_700_000_000_000_000_123)).unwrap(), expected);
        // Undefined values are null: they are omitted.
        let blank = MboMsg { action: 0, ..MboMsg::default() };
        let line = line(Schema::Mbo, &blank, &item(7, 1)).unwrap();
        assert!(
            !line.contains("price=") && !line.contains("ts_event=") && !line.contains("action="),
            "{line}"
        );
    }

    #[test]
    fn a_record_that_makes_no_row_leaves_no_bytes_behind() {
        let mut buffer = Buffer::new(ProtocolVersion::V2);
        let table = TableName::new("t").unwrap();
        let trade = TradeMsg::default();
        let of = |item: &Item, schema, buffer: &mut Buffer| {
            put(buffer, table, schema, (item, 0), None, RecordRef::from(&trade))
        };
        of(&item(1, 1), Schema::Trades, &mut buffer).unwrap();
        let length = buffer.len();
        assert!(of(&item(2, 1), Schema::Mbo, &mut buffer).unwrap_err().msg().contains("another schema"));
        assert!(of(&item(2, u64::MAX), Schema::Trades, &mut buffer).unwrap_err().msg().contains("no time"));
        assert_eq!((buffer.len(), buffer.row_count()), (length, 1));
        of(&item(2, 2), Schema::Trades, &mut buffer).unwrap();
        assert_eq!(buffer.row_count(), 2);
    }

    #[test]
    fn every_schema_has_a_table_whose_rows_have_its_columns_each_once() {
        for schema in Schema::ALL {
            let mut columns = Described::default();
            with_type!(schema, Type => Type::blank().columns(&mut columns)).unwrap();
            let mut names: Vec<_> = columns.0.iter().map(|column| column.name).collect();
            let first_column = columns.0.iter().position(|column| column.sql != "SYMBOL").unwrap();
            assert!(
                columns.0[first_column..].iter().all(|column| column.sql != "SYMBOL"),
                "{schema}: tags first"
            );
            names.extend(["symbol", "publisher", "event", "part", time_column(schema)]);
            let count = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), count, "{schema}");
            let sql = create_table(&table_name("x_", schema), schema);
            let table = schema.as_str().replace('-', "_");
            assert!(
                sql.starts_with(&format!("CREATE TABLE IF NOT EXISTS 'x_{table}' (\"symbol\" SYMBOL, ")),
                "{sql}"
            );
            assert!(names.iter().all(|name| sql.contains(&format!("\"{name}\" "))), "{sql}");
        }
        let seconds = "CREATE TABLE IF NOT EXISTS 'ohlcv_1s' (\"symbol\" SYMBOL, \"publisher\" SYMBOL, \"open\" DOUBLE, \
            \"high\" DOUBLE, \"low\" DOUBLE, \"close\" DOUBLE, \"volume\" LONG, \"event\" LONG, \"part\" INT, \
            \"ts_event\" TIMESTAMP_NS) TIMESTAMP(\"ts_event\") PARTITION BY DAY WAL DEDUP UPSERT KEYS(\"ts_event\", event, part)";
        assert_eq!(create_table(&table_name("", Schema::Ohlcv1S), Schema::Ohlcv1S), seconds);
    }

    #[test]
    fn the_price_of_a_row_prints_as_the_price() {
        for price in [1, 100_000, 123_456_789, 12_345_600_000, 9_000_000_000_000_000, -350_000_000] {
            let bar = OhlcvMsg { open: price, ..OhlcvMsg::default_for_schema(dbn::Schema::Ohlcv1S) };
            let line = line(Schema::Ohlcv1S, &bar, &item(1, 1)).unwrap();
            let received: f64 =
                line.split("open=").nth(1).unwrap().split([',', ' ']).next().unwrap().parse().unwrap();
            let exact = format!(
                "{}{}.{:09}",
                if price < 0 { "-" } else { "" },
                price.abs() / 1_000_000_000,
                price.abs() % 1_000_000_000
            );
            assert_eq!(received, exact.parse::<f64>().unwrap(), "{line}");
        }
    }
}
