//! Records as columns: a record type lists its columns once, as calls on [`Columns`].
//!
//! The same list describes a QuestDB table, writes its rows, and writes the messages for Kafka. Columns with few distinct values
//! come first, as QuestDB's protocol requires. Names are DBN's. Undefined values are null. A record type makes the same calls
//! regardless of its values.
//!
//! Source: the `dbn` crate.

use std::ffi::c_char;

use dbn::{
    BboMsg, BidAskPair, CbboMsg, Cmbp1Msg, ConsolidatedBidAskPair, ImbalanceMsg, InstrumentDefMsg, MboMsg,
    Mbp1Msg, Mbp10Msg, OhlcvMsg, StatMsg, StatusMsg, TradeMsg, UNDEF_ORDER_SIZE,
};
use tapeworks_market::Publisher;
use tapeworks_store::Schema;

/// A receiver of a list of columns: a table's declaration, or a row.
pub(crate) trait Columns {
    /// Why a column is rejected.
    type Error;

    /// A string with few distinct values; `None` is null.
    fn tag(&mut self, name: &'static str, value: Option<&str>) -> Result<(), Self::Error>;
    /// A number of at most 31 bits.
    fn short(&mut self, name: &'static str, value: Option<i32>) -> Result<(), Self::Error>;
    /// A number of at most 63 bits.
    fn long(&mut self, name: &'static str, value: Option<i64>) -> Result<(), Self::Error>;
    /// A price in units of 1e-9.
    fn price(&mut self, name: &'static str, value: i64) -> Result<(), Self::Error>;
    /// Nanoseconds UTC.
    fn time(&mut self, name: &'static str, value: u64) -> Result<(), Self::Error>;

    /// A character; null if it is 0.
    fn letter(&mut self, name: &'static str, value: c_char) -> Result<(), Self::Error> {
        let letter = char::from(value as u8);
        let mut bytes = [0; 4];
        let text = letter.encode_utf8(&mut bytes);
        self.tag(name, (letter != '\0').then_some(text))
    }

    /// A feed, by its dataset, or by its number if it has none.
    fn feed(&mut self, name: &'static str, value: u16) -> Result<(), Self::Error> {
        match Publisher(value).feed() {
            Some(feed) => self.tag(name, Some(feed.dataset)),
            None if value == 0 => self.tag(name, None),
            None => self.tag(name, Some(&value.to_string())),
        }
    }

    /// A size; null if it is DBN's undefined value.
    fn size(&mut self, name: &'static str, value: u32) -> Result<(), Self::Error> {
        self.long(name, (value != UNDEF_ORDER_SIZE).then_some(i64::from(value)))
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

fn levels<C: Columns>(to: &mut C, levels: &[BidAskPair]) -> Result<(), C::Error> {
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

fn consolidated_tags<C: Columns>(to: &mut C, levels: &[ConsolidatedBidAskPair; 1]) -> Result<(), C::Error> {
    to.feed("bid_pb_00", levels[0].bid_pb)?;
    to.feed("ask_pb_00", levels[0].ask_pb)
}

fn consolidated<C: Columns>(to: &mut C, levels: &[ConsolidatedBidAskPair; 1]) -> Result<(), C::Error> {
    let [level] = levels;
    to.price("bid_px_00", level.bid_px)?;
    to.price("ask_px_00", level.ask_px)?;
    to.size("bid_sz_00", level.bid_sz)?;
    to.size("ask_sz_00", level.ask_sz)
}

/// A record that becomes a row.
pub(crate) trait Row: dbn::HasRType + Sized {
    /// Returns any record: all records of the type have the same columns.
    fn blank() -> Self;

    /// Lists the tags, then the other columns, without symbol and feed, which come first, and the designated time, which comes
    /// last.
    fn columns<C: Columns>(&self, to: &mut C) -> Result<(), C::Error>;
}

impl Row for MboMsg {
    fn blank() -> Self {
        Self::default()
    }

    fn columns<C: Columns>(&self, to: &mut C) -> Result<(), C::Error> {
        to.letter("action", self.action)?;
        to.letter("side", self.side)?;
        to.time("ts_event", self.hd.ts_event)?;
        // An order ID uses all 64 bits of the venue's, so the largest ones are negative.
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

            fn columns<C: Columns>(&self, to: &mut C) -> Result<(), C::Error> {
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

    fn columns<C: Columns>(&self, to: &mut C) -> Result<(), C::Error> {
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

    fn columns<C: Columns>(&self, to: &mut C) -> Result<(), C::Error> {
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

    fn columns<C: Columns>(&self, to: &mut C) -> Result<(), C::Error> {
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

    fn columns<C: Columns>(&self, to: &mut C) -> Result<(), C::Error> {
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

    fn columns<C: Columns>(&self, to: &mut C) -> Result<(), C::Error> {
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

    /// The columns that apply to equities: the legs, strikes and maturities of DBN's record are always undefined here.
    fn columns<C: Columns>(&self, to: &mut C) -> Result<(), C::Error> {
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

    fn columns<C: Columns>(&self, to: &mut C) -> Result<(), C::Error> {
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

    fn columns<C: Columns>(&self, to: &mut C) -> Result<(), C::Error> {
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
            Schema::Mbo => $crate::columns::with_type!(@ MboMsg, $row, $do),
            Schema::Mbp1 | Schema::Tbbo => $crate::columns::with_type!(@ Mbp1Msg, $row, $do),
            Schema::Mbp10 => $crate::columns::with_type!(@ Mbp10Msg, $row, $do),
            Schema::Bbo1S | Schema::Bbo1M => $crate::columns::with_type!(@ BboMsg, $row, $do),
            Schema::Trades => $crate::columns::with_type!(@ TradeMsg, $row, $do),
            Schema::Cmbp1 => $crate::columns::with_type!(@ Cmbp1Msg, $row, $do),
            Schema::Cbbo1S | Schema::Cbbo1M => $crate::columns::with_type!(@ CbboMsg, $row, $do),
            Schema::Status => $crate::columns::with_type!(@ StatusMsg, $row, $do),
            Schema::Imbalance => $crate::columns::with_type!(@ ImbalanceMsg, $row, $do),
            Schema::Definition => $crate::columns::with_type!(@ InstrumentDefMsg, $row, $do),
            Schema::Statistics => $crate::columns::with_type!(@ StatMsg, $row, $do),
            Schema::Ohlcv1S | Schema::Ohlcv1M | Schema::Ohlcv1H | Schema::Ohlcv1D => {
                $crate::columns::with_type!(@ OhlcvMsg, $row, $do)
            }
        }
    };
    (@ $type:ident, $row:ident, $do:expr) => {{
        type $row = $crate::columns::of::$type;
        $do
    }};
}
pub(crate) use with_type;

/// The record types that [`with_type`] names.
pub(crate) mod of {
    pub(crate) use dbn::{
        BboMsg, CbboMsg, Cmbp1Msg, ImbalanceMsg, InstrumentDefMsg, MboMsg, Mbp1Msg, Mbp10Msg, OhlcvMsg,
        StatMsg, StatusMsg, TradeMsg,
    };
}

/// Returns the name of the column with the designated timestamp.
pub(crate) const fn time_column(schema: Schema) -> &'static str {
    match schema {
        Schema::Ohlcv1S | Schema::Ohlcv1M | Schema::Ohlcv1H | Schema::Ohlcv1D => "ts_event",
        _ => "ts_recv",
    }
}

/// Lists the first columns of every row.
pub(crate) fn first<C: Columns>(to: &mut C, symbol: Option<&str>, publisher: u16) -> Result<(), C::Error> {
    to.tag("symbol", symbol)?;
    to.feed("publisher", publisher)
}

/// Lists the last columns of every row, without the designated time.
pub(crate) fn last<C: Columns>(to: &mut C, event: u64, part: u32) -> Result<(), C::Error> {
    to.long("event", i64::try_from(event).ok())?;
    to.short("part", i32::try_from(part).ok())
}
