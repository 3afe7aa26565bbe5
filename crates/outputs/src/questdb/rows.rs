//! Records as rows of tables: the columns of each schema, as SQL and as lines of the InfluxDB line protocol.
//!
//! A record type lists its columns once, as calls on `Columns`, tags first as the protocol wants them. The same list
//! describes the table and writes the rows. Names are DBN's. Undefined values are left out, so they are null.
//!
//! Sources: the `dbn` crate for the records, QuestDB's *InfluxDB Line Protocol* and its SQL reference for the rest.

use std::ffi::c_char;
use std::fmt::Write as _;

use dbn::{
    BboMsg, BidAskPair, CbboMsg, Cmbp1Msg, ConsolidatedBidAskPair, ImbalanceMsg, InstrumentDefMsg, MboMsg,
    Mbp1Msg, Mbp10Msg, OhlcvMsg, RecordRef, StatMsg, StatusMsg, TradeMsg, UNDEF_ORDER_SIZE, UNDEF_PRICE,
    UNDEF_TIMESTAMP,
};
use questdb::ingress::{Buffer, ColumnName, TableName, TimestampNanos};
use tapeworks_market::{Publisher, Symbol};
use tapeworks_store::Schema;
use tapeworks_store::live::Item;

/// 1 as a price of DBN.
const UNIT: f64 = 1e9;

/// A receiver of a list of columns: a table's declaration, or a row.
trait Columns {
    /// A word of a few that come again and again; `None` is null.
    fn tag(&mut self, name: &'static str, value: Option<&str>) -> questdb::Result<()>;
    /// A number of at most 31 bits.
    fn short(&mut self, name: &'static str, value: Option<i32>) -> questdb::Result<()>;
    /// A number of at most 63 bits.
    fn long(&mut self, name: &'static str, value: Option<i64>) -> questdb::Result<()>;
    /// A price in units of 1e-9.
    fn price(&mut self, name: &'static str, value: i64) -> questdb::Result<()>;
    /// Nanoseconds UTC.
    fn time(&mut self, name: &'static str, value: u64) -> questdb::Result<()>;

    /// A letter; null where it is 0.
    fn letter(&mut self, name: &'static str, value: c_char) -> questdb::Result<()> {
        let letter = char::from(value as u8);
        let mut bytes = [0; 4];
        let text = letter.encode_utf8(&mut bytes);
        self.tag(name, (letter != '\0').then_some(text))
    }

    /// A feed by its dataset, or by its number where it has none.
    fn feed(&mut self, name: &'static str, value: u16) -> questdb::Result<()> {
        match Publisher(value).feed() {
            Some(feed) => self.tag(name, Some(feed.dataset)),
            None if value == 0 => self.tag(name, None),
            None => self.tag(name, Some(&value.to_string())),
        }
    }

    /// A size; null where it is DBN's undefined one.
    fn size(&mut self, name: &'static str, value: u32) -> questdb::Result<()> {
        self.long(name, (value != UNDEF_ORDER_SIZE).then_some(i64::from(value)))
    }
}

/// A column of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Column {
    name: &'static str,
    sql: &'static str,
}

/// The columns as they come.
#[derive(Default)]
struct Described(Vec<Column>);

impl Described {
    fn put(&mut self, name: &'static str, sql: &'static str) -> questdb::Result<()> {
        self.0.push(Column { name, sql });
        Ok(())
    }
}

impl Columns for Described {
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

/// A line that grows.
struct Line<'a>(&'a mut Buffer);

impl Columns for Line<'_> {
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
        // Of numbers that a double holds exactly the quotient is the nearest double, so it prints as the price.
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

/// The names of the columns of one level.
struct LevelNames {
    prices: [&'static str; 2],
    sizes: [&'static str; 2],
    counts: [&'static str; 2],
}

macro_rules! level_names {
    ($($level:literal)*) => {
        [$(LevelNames {
            prices: [concat!("bid_px_", $level), concat!("ask_px_", $level)],
            sizes: [concat!("bid_sz_", $level), concat!("ask_sz_", $level)],
            counts: [concat!("bid_ct_", $level), concat!("ask_ct_", $level)],
        }),*]
    };
}

const LEVELS: [LevelNames; 10] = level_names!("00" "01" "02" "03" "04" "05" "06" "07" "08" "09");

fn levels(to: &mut impl Columns, levels: &[BidAskPair]) -> questdb::Result<()> {
    for (level, names) in levels.iter().zip(&LEVELS) {
        to.price(names.prices[0], level.bid_px)?;
        to.price(names.prices[1], level.ask_px)?;
        to.size(names.sizes[0], level.bid_sz)?;
        to.size(names.sizes[1], level.ask_sz)?;
        to.long(names.counts[0], Some(i64::from(level.bid_ct)))?;
        to.long(names.counts[1], Some(i64::from(level.ask_ct)))?;
    }
    Ok(())
}

fn consolidated_tags(to: &mut impl Columns, levels: &[ConsolidatedBidAskPair; 1]) -> questdb::Result<()> {
    to.feed("bid_pb_00", levels[0].bid_pb)?;
    to.feed("ask_pb_00", levels[0].ask_pb)
}

fn consolidated(to: &mut impl Columns, levels: &[ConsolidatedBidAskPair; 1]) -> questdb::Result<()> {
    let [level] = levels;
    to.price("bid_px_00", level.bid_px)?;
    to.price("ask_px_00", level.ask_px)?;
    to.size("bid_sz_00", level.bid_sz)?;
    to.size("ask_sz_00", level.ask_sz)
}

/// A record that becomes a row.
trait Row: dbn::HasRType + Sized {
    /// Any: its columns are those of all.
    fn blank() -> Self;

    /// The tags, then the other columns; but for symbol and feed, which come before, and the designated time, which ends it.
    fn columns(&self, to: &mut impl Columns) -> questdb::Result<()>;
}

impl Row for MboMsg {
    fn blank() -> Self {
        Self::default()
    }

    fn columns(&self, to: &mut impl Columns) -> questdb::Result<()> {
        to.letter("action", self.action)?;
        to.letter("side", self.side)?;
        to.time("ts_event", self.hd.ts_event)?;
        // An order's number has all 64 bits of the venue's, so the largest are negative.
        to.long("order_id", Some(self.order_id as i64))?;
        to.price("price", self.price)?;
        to.size("size", self.size)?;
        to.short("channel_id", Some(i32::from(self.channel_id)))?;
        to.short("flags", Some(i32::from(self.flags.raw())))?;
        to.short("ts_in_delta", Some(self.ts_in_delta))?;
        to.long("sequence", Some(i64::from(self.sequence)))
    }
}

macro_rules! rows_of_levels {
    ($($row:ident $($levels:ident)?;)*) => {$(
        impl Row for $row {
            fn blank() -> Self {
                Self::default()
            }

            fn columns(&self, to: &mut impl Columns) -> questdb::Result<()> {
                to.letter("action", self.action)?;
                to.letter("side", self.side)?;
                to.time("ts_event", self.hd.ts_event)?;
                to.price("price", self.price)?;
                to.size("size", self.size)?;
                to.short("depth", Some(i32::from(self.depth)))?;
                to.short("flags", Some(i32::from(self.flags.raw())))?;
                to.short("ts_in_delta", Some(self.ts_in_delta))?;
                to.long("sequence", Some(i64::from(self.sequence)))?;
                $(levels(to, &self.$levels)?;)?
                Ok(())
            }
        }
    )*};
}

rows_of_levels! {
    TradeMsg;
    Mbp1Msg levels;
    Mbp10Msg levels;
}

impl Row for BboMsg {
    fn blank() -> Self {
        Self::default_for_schema(dbn::Schema::Bbo1S)
    }

    fn columns(&self, to: &mut impl Columns) -> questdb::Result<()> {
        to.letter("side", self.side)?;
        to.time("ts_event", self.hd.ts_event)?;
        to.price("price", self.price)?;
        to.size("size", self.size)?;
        to.short("flags", Some(i32::from(self.flags.raw())))?;
        to.long("sequence", Some(i64::from(self.sequence)))?;
        levels(to, &self.levels)
    }
}

impl Row for Cmbp1Msg {
    fn blank() -> Self {
        Self::default_for_schema(dbn::Schema::Cmbp1)
    }

    fn columns(&self, to: &mut impl Columns) -> questdb::Result<()> {
        to.letter("action", self.action)?;
        to.letter("side", self.side)?;
        consolidated_tags(to, &self.levels)?;
        to.time("ts_event", self.hd.ts_event)?;
        to.price("price", self.price)?;
        to.size("size", self.size)?;
        to.short("flags", Some(i32::from(self.flags.raw())))?;
        to.short("ts_in_delta", Some(self.ts_in_delta))?;
        consolidated(to, &self.levels)
    }
}

impl Row for CbboMsg {
    fn blank() -> Self {
        Self::default_for_schema(dbn::Schema::Cbbo1S)
    }

    fn columns(&self, to: &mut impl Columns) -> questdb::Result<()> {
        to.letter("side", self.side)?;
        consolidated_tags(to, &self.levels)?;
        to.time("ts_event", self.hd.ts_event)?;
        to.price("price", self.price)?;
        to.size("size", self.size)?;
        to.short("flags", Some(i32::from(self.flags.raw())))?;
        consolidated(to, &self.levels)
    }
}

impl Row for StatusMsg {
    fn blank() -> Self {
        Self::default()
    }

    fn columns(&self, to: &mut impl Columns) -> questdb::Result<()> {
        to.letter("is_trading", self.is_trading)?;
        to.letter("is_quoting", self.is_quoting)?;
        to.letter("is_short_sell_restricted", self.is_short_sell_restricted)?;
        to.time("ts_event", self.hd.ts_event)?;
        to.short("action", Some(i32::from(self.action)))?;
        to.short("reason", Some(i32::from(self.reason)))?;
        to.short("trading_event", Some(i32::from(self.trading_event)))
    }
}

impl Row for ImbalanceMsg {
    fn blank() -> Self {
        Self::default()
    }

    fn columns(&self, to: &mut impl Columns) -> questdb::Result<()> {
        to.letter("auction_type", self.auction_type)?;
        to.letter("side", self.side)?;
        to.letter("unpaired_side", self.unpaired_side)?;
        to.letter("significant_imbalance", self.significant_imbalance)?;
        to.time("ts_event", self.hd.ts_event)?;
        to.time("auction_time", self.auction_time)?;
        to.price("ref_price", self.ref_price)?;
        to.price("cont_book_clr_price", self.cont_book_clr_price)?;
        to.price("auct_interest_clr_price", self.auct_interest_clr_price)?;
        to.price("ssr_filling_price", self.ssr_filling_price)?;
        to.price("ind_match_price", self.ind_match_price)?;
        to.price("upper_collar", self.upper_collar)?;
        to.price("lower_collar", self.lower_collar)?;
        to.size("paired_qty", self.paired_qty)?;
        to.size("total_imbalance_qty", self.total_imbalance_qty)?;
        to.size("market_imbalance_qty", self.market_imbalance_qty)?;
        to.size("unpaired_qty", self.unpaired_qty)?;
        to.short("auction_status", Some(i32::from(self.auction_status)))?;
        to.short("freeze_status", Some(i32::from(self.freeze_status)))?;
        to.short("num_extensions", Some(i32::from(self.num_extensions)))
    }
}

fn text<const N: usize>(characters: &[c_char; N]) -> Option<&str> {
    dbn::record::c_chars_to_str(characters).ok().filter(|text| !text.is_empty())
}

impl Row for InstrumentDefMsg {
    fn blank() -> Self {
        Self::default()
    }

    /// Those that equities have: the legs, strikes and maturities of DBN's record are always undefined here.
    fn columns(&self, to: &mut impl Columns) -> questdb::Result<()> {
        to.letter("security_update_action", self.security_update_action)?;
        to.letter("instrument_class", self.instrument_class)?;
        to.tag("currency", text(&self.currency))?;
        to.tag("secsubtype", text(&self.secsubtype))?;
        to.tag("group", text(&self.group))?;
        to.tag("exchange", text(&self.exchange))?;
        to.tag("cfi", text(&self.cfi))?;
        to.tag("security_type", text(&self.security_type))?;
        to.time("ts_event", self.hd.ts_event)?;
        to.long("raw_instrument_id", Some(self.raw_instrument_id as i64))?;
        let lot = self.min_lot_size_round_lot;
        to.short("min_lot_size_round_lot", (lot != i32::MAX).then_some(lot))
    }
}

impl Row for StatMsg {
    fn blank() -> Self {
        Self::default()
    }

    fn columns(&self, to: &mut impl Columns) -> questdb::Result<()> {
        to.time("ts_event", self.hd.ts_event)?;
        to.time("ts_ref", self.ts_ref)?;
        to.price("price", self.price)?;
        to.long("quantity", (self.quantity != dbn::UNDEF_STAT_QUANTITY).then_some(self.quantity))?;
        to.short("stat_type", Some(i32::from(self.stat_type)))?;
        to.short("channel_id", Some(i32::from(self.channel_id)))?;
        to.short("update_action", Some(i32::from(self.update_action)))?;
        to.short("stat_flags", Some(i32::from(self.stat_flags)))?;
        to.short("ts_in_delta", Some(self.ts_in_delta))?;
        to.long("sequence", Some(i64::from(self.sequence)))
    }
}

impl Row for OhlcvMsg {
    fn blank() -> Self {
        Self::default_for_schema(dbn::Schema::Ohlcv1S)
    }

    fn columns(&self, to: &mut impl Columns) -> questdb::Result<()> {
        to.price("open", self.open)?;
        to.price("high", self.high)?;
        to.price("low", self.low)?;
        to.price("close", self.close)?;
        to.long("volume", Some(self.volume as i64))
    }
}

/// Does `$do` with the record type of a schema.
macro_rules! with_type {
    ($schema:expr, $row:ident => $do:expr) => {
        match $schema {
            Schema::Mbo => with_type!(@ MboMsg, $row, $do),
            Schema::Mbp1 | Schema::Tbbo => with_type!(@ Mbp1Msg, $row, $do),
            Schema::Mbp10 => with_type!(@ Mbp10Msg, $row, $do),
            Schema::Bbo1S | Schema::Bbo1M => with_type!(@ BboMsg, $row, $do),
            Schema::Trades => with_type!(@ TradeMsg, $row, $do),
            Schema::Cmbp1 => with_type!(@ Cmbp1Msg, $row, $do),
            Schema::Cbbo1S | Schema::Cbbo1M => with_type!(@ CbboMsg, $row, $do),
            Schema::Status => with_type!(@ StatusMsg, $row, $do),
            Schema::Imbalance => with_type!(@ ImbalanceMsg, $row, $do),
            Schema::Definition => with_type!(@ InstrumentDefMsg, $row, $do),
            Schema::Statistics => with_type!(@ StatMsg, $row, $do),
            Schema::Ohlcv1S | Schema::Ohlcv1M | Schema::Ohlcv1H | Schema::Ohlcv1D => {
                with_type!(@ OhlcvMsg, $row, $do)
            }
        }
    };
    (@ $type:ident, $row:ident, $do:expr) => {{
        type $row = $type;
        $do
    }};
}

/// The name of the table of a schema's records: the schema's, with underscores, behind the prefix.
pub fn table_name(prefix: &str, schema: Schema) -> String {
    format!("{prefix}{}", schema.as_str().replace('-', "_"))
}

/// The name of the column with the designated timestamp.
pub const fn time_column(schema: Schema) -> &'static str {
    match schema {
        Schema::Ohlcv1S | Schema::Ohlcv1M | Schema::Ohlcv1H | Schema::Ohlcv1D => "ts_event",
        _ => "ts_recv",
    }
}

/// The statement that creates the table of a schema's records, unless it is there. Rows with the same time, event and part
/// are one row.
pub fn create_table(table: &str, schema: Schema) -> String {
    let mut columns = Described::default();
    // To a description nothing fails.
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

/// The first columns of every row.
fn first(to: &mut impl Columns, symbol: Option<&str>, publisher: u16) -> questdb::Result<()> {
    to.tag("symbol", symbol)?;
    to.feed("publisher", publisher)
}

/// The last columns of every row, without the designated time.
fn last(to: &mut impl Columns, event: u64, part: u32) -> questdb::Result<()> {
    to.long("event", i64::try_from(event).ok())?;
    to.short("part", i32::try_from(part).ok())
}

/// Appends the row of a record to `buffer`. `part` is its place among the records of its event in this table.
///
/// # Errors
/// A record that is none of its schema, or a time that no timestamp can hold; `buffer` is as it was.
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
    use questdb::ingress::ProtocolVersion;
    use tapeworks_market::InstrumentId;

    use super::*;

    fn item(event: u64, time: u64) -> Item {
        Item { event, time, instrument: InstrumentId(0), publisher: 2, start: 0, length: 0 }
    }

    /// The line of a record in the protocol's first version, which is all text, with times in microseconds.
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
        // Undefined values are null: they are left out.
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
