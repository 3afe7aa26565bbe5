//! The record types: their columns, and how they are made from an event.

use std::ffi::c_char;

use dbn::{
    BboMsg, BidAskPair, CbboMsg, Cmbp1Msg, FlagSet, ImbalanceMsg, InstrumentDefMsg, MboMsg, Mbp1Msg,
    Mbp10Msg, OhlcvMsg, RecordHeader, StatMsg, StatusMsg, TradeMsg,
};
use tapeworks_market::event::Event;
use tapeworks_market::{InstrumentId, Side};

use crate::rows::Row;
use crate::rows::columns::Columns;

/// Returns the instrument's number in files: ours plus one, because DBN's numbers begin at 1. A whole venue is 0.
#[inline]
pub(crate) const fn instrument_number(instrument: InstrumentId) -> u32 {
    instrument.0.wrapping_add(1)
}

/// Returns the header of a record of type `R` for `event`.
#[inline]
pub(crate) const fn header<R: dbn::HasRType>(rtype: u8, event: &Event) -> RecordHeader {
    RecordHeader::new::<R>(rtype, event.publisher.0, instrument_number(event.instrument), event.ts_event.0)
}

/// Returns the low 32 bits of the sequence, because DBN's field has no more.
#[inline]
pub(crate) const fn sequence(event: &Event) -> u32 {
    event.channel_sequence as u32
}

#[inline]
pub(crate) const fn letter(side: Side) -> c_char {
    side as u8 as c_char
}

macro_rules! header_columns {
    ($columns:ident) => {
        $columns.time("ts_recv", |row| row.ts_recv);
        $columns.time("ts_event", |row| row.hd.ts_event);
        $columns.u8("rtype", |row| row.hd.rtype);
        $columns.u16("publisher_id", |row| row.hd.publisher_id);
        $columns.u32("instrument_id", |row| row.hd.instrument_id);
    };
}

macro_rules! flags {
    () => {
        fn flags_mut(&mut self) -> Option<&mut FlagSet> {
            Some(&mut self.flags)
        }
    };
}

impl Row for MboMsg {
    fn columns(columns: &mut Columns<'_, Self>) {
        header_columns!(columns);
        columns.letter("action", |row| row.action);
        columns.letter("side", |row| row.side);
        columns.price("price", |row| row.price);
        columns.u32("size", |row| row.size);
        columns.u8("channel_id", |row| row.channel_id);
        columns.u64("order_id", |row| row.order_id);
        columns.u8("flags", |row| row.flags.raw());
        columns.i32("ts_in_delta", |row| row.ts_in_delta);
        columns.u32("sequence", |row| row.sequence);
    }

    flags!();
}

/// A book change or trade, without the levels.
pub(crate) struct Change {
    pub(crate) price: i64,
    pub(crate) size: u32,
    pub(crate) action: tapeworks_market::Action,
    pub(crate) side: Side,
    pub(crate) flags: u8,
    pub(crate) depth: u8,
}

/// A record of trades or price levels; a trade has no levels.
pub(crate) trait PriceRow<const N: usize>: Row {
    fn new(event: &Event, change: &Change, levels: [BidAskPair; N]) -> Self;
}

macro_rules! price_row {
    ($row:ty, $count:literal, $rtype:ident $(, $levels:ident)?) => {
        impl Row for $row {
            fn columns(columns: &mut Columns<'_, Self>) {
                header_columns!(columns);
                columns.letter("action", |row| row.action);
                columns.letter("side", |row| row.side);
                columns.u8("depth", |row| row.depth);
                columns.price("price", |row| row.price);
                columns.u32("size", |row| row.size);
                columns.u8("flags", |row| row.flags.raw());
                columns.i32("ts_in_delta", |row| row.ts_in_delta);
                columns.u32("sequence", |row| row.sequence);
                $(level_columns::<Self, $count>(columns, |row| &row.$levels);)?
            }

            flags!();
        }

        impl PriceRow<$count> for $row {
            #[inline]
            fn new(event: &Event, change: &Change, _levels: [BidAskPair; $count]) -> Self {
                Self {
                    hd: header::<Self>(dbn::rtype::$rtype, event),
                    price: change.price,
                    size: change.size,
                    action: change.action as u8 as c_char,
                    side: letter(change.side),
                    flags: FlagSet::from(change.flags),
                    depth: change.depth,
                    ts_recv: event.ts_recv.0,
                    ts_in_delta: event.ts_in_delta(),
                    sequence: sequence(event),
                    $($levels: _levels,)?
                }
            }
        }
    };
}

price_row!(TradeMsg, 0, MBP_0);
price_row!(Mbp1Msg, 1, MBP_1, levels);
price_row!(Mbp10Msg, 10, MBP_10, levels);

fn level_columns<R: Row, const N: usize>(
    columns: &mut Columns<'_, R>,
    levels: impl Fn(&R) -> &[BidAskPair; N],
) {
    for place in 0..N {
        columns.price(&format!("bid_px_{place:02}"), |row| levels(row)[place].bid_px);
        columns.price(&format!("ask_px_{place:02}"), |row| levels(row)[place].ask_px);
        columns.u32(&format!("bid_sz_{place:02}"), |row| levels(row)[place].bid_sz);
        columns.u32(&format!("ask_sz_{place:02}"), |row| levels(row)[place].ask_sz);
        columns.u32(&format!("bid_ct_{place:02}"), |row| levels(row)[place].bid_ct);
        columns.u32(&format!("ask_ct_{place:02}"), |row| levels(row)[place].ask_ct);
    }
}

impl Row for BboMsg {
    const HAS_ORIGIN: bool = false;

    fn columns(columns: &mut Columns<'_, Self>) {
        header_columns!(columns);
        columns.letter("side", |row| row.side);
        columns.price("price", |row| row.price);
        columns.u32("size", |row| row.size);
        columns.u8("flags", |row| row.flags.raw());
        columns.u32("sequence", |row| row.sequence);
        level_columns::<Self, 1>(columns, |row| &row.levels);
    }
}

impl Row for Cmbp1Msg {
    fn columns(columns: &mut Columns<'_, Self>) {
        header_columns!(columns);
        columns.letter("action", |row| row.action);
        columns.letter("side", |row| row.side);
        columns.price("price", |row| row.price);
        columns.u32("size", |row| row.size);
        columns.u8("flags", |row| row.flags.raw());
        columns.i32("ts_in_delta", |row| row.ts_in_delta);
        columns.price("bid_px_00", |row| row.levels[0].bid_px);
        columns.price("ask_px_00", |row| row.levels[0].ask_px);
        columns.u32("bid_sz_00", |row| row.levels[0].bid_sz);
        columns.u32("ask_sz_00", |row| row.levels[0].ask_sz);
        columns.u16("bid_pb_00", |row| row.levels[0].bid_pb);
        columns.u16("ask_pb_00", |row| row.levels[0].ask_pb);
    }

    flags!();
}

impl Row for CbboMsg {
    const HAS_ORIGIN: bool = false;

    fn columns(columns: &mut Columns<'_, Self>) {
        header_columns!(columns);
        columns.letter("side", |row| row.side);
        columns.price("price", |row| row.price);
        columns.u32("size", |row| row.size);
        columns.u8("flags", |row| row.flags.raw());
        columns.price("bid_px_00", |row| row.levels[0].bid_px);
        columns.price("ask_px_00", |row| row.levels[0].ask_px);
        columns.u32("bid_sz_00", |row| row.levels[0].bid_sz);
        columns.u32("ask_sz_00", |row| row.levels[0].ask_sz);
        columns.u16("bid_pb_00", |row| row.levels[0].bid_pb);
        columns.u16("ask_pb_00", |row| row.levels[0].ask_pb);
    }
}

impl Row for StatusMsg {
    const HAS_NARROW_SIZES: bool = false;
    fn columns(columns: &mut Columns<'_, Self>) {
        header_columns!(columns);
        columns.u16("action", |row| row.action);
        columns.u16("reason", |row| row.reason);
        columns.u16("trading_event", |row| row.trading_event);
        columns.letter("is_trading", |row| row.is_trading);
        columns.letter("is_quoting", |row| row.is_quoting);
        columns.letter("is_short_sell_restricted", |row| row.is_short_sell_restricted);
    }
}

impl Row for ImbalanceMsg {
    const HAS_NARROW_SIZES: bool = false;
    const IS_IMBALANCE: bool = true;
    fn columns(columns: &mut Columns<'_, Self>) {
        header_columns!(columns);
        columns.price("ref_price", |row| row.ref_price);
        columns.time("auction_time", |row| row.auction_time);
        columns.price("cont_book_clr_price", |row| row.cont_book_clr_price);
        columns.price("auct_interest_clr_price", |row| row.auct_interest_clr_price);
        columns.price("ssr_filling_price", |row| row.ssr_filling_price);
        columns.price("ind_match_price", |row| row.ind_match_price);
        columns.price("upper_collar", |row| row.upper_collar);
        columns.price("lower_collar", |row| row.lower_collar);
        columns.optional_u32("paired_qty", |row| row.paired_qty);
        columns.optional_u32("total_imbalance_qty", |row| row.total_imbalance_qty);
        columns.optional_u32("market_imbalance_qty", |row| row.market_imbalance_qty);
        columns.optional_u32("unpaired_qty", |row| row.unpaired_qty);
        columns.letter("auction_type", |row| row.auction_type);
        columns.letter("side", |row| row.side);
        columns.u8("auction_status", |row| row.auction_status);
        columns.u8("freeze_status", |row| row.freeze_status);
        columns.u8("num_extensions", |row| row.num_extensions);
        columns.letter("unpaired_side", |row| row.unpaired_side);
        columns.letter("significant_imbalance", |row| row.significant_imbalance);
    }
}

impl Row for StatMsg {
    const HAS_NARROW_SIZES: bool = false;
    fn columns(columns: &mut Columns<'_, Self>) {
        header_columns!(columns);
        columns.time("ts_ref", |row| row.ts_ref);
        columns.price("price", |row| row.price);
        columns.optional_i64("quantity", |row| row.quantity);
        columns.u32("sequence", |row| row.sequence);
        columns.i32("ts_in_delta", |row| row.ts_in_delta);
        columns.u16("stat_type", |row| row.stat_type);
        columns.u16("channel_id", |row| row.channel_id);
        columns.u8("update_action", |row| row.update_action);
        columns.u8("stat_flags", |row| row.stat_flags);
    }
}

impl Row for InstrumentDefMsg {
    const HAS_NARROW_SIZES: bool = false;
    /// Fields that no venue here publishes are undefined in the record and null in the column.
    fn columns(columns: &mut Columns<'_, Self>) {
        header_columns!(columns);
        columns.text("raw_symbol", |row| text(&row.raw_symbol));
        columns.letter("security_update_action", |row| row.security_update_action);
        columns.letter("instrument_class", |row| row.instrument_class);
        columns.price("min_price_increment", |row| row.min_price_increment);
        columns.price("display_factor", |row| row.display_factor);
        columns.time("expiration", |row| row.expiration);
        columns.time("activation", |row| row.activation);
        columns.price("high_limit_price", |row| row.high_limit_price);
        columns.price("low_limit_price", |row| row.low_limit_price);
        columns.price("max_price_variation", |row| row.max_price_variation);
        columns.price("unit_of_measure_qty", |row| row.unit_of_measure_qty);
        columns.price("min_price_increment_amount", |row| row.min_price_increment_amount);
        columns.price("price_ratio", |row| row.price_ratio);
        columns.optional_i32("inst_attrib_value", |row| row.inst_attrib_value);
        columns.u32("underlying_id", |row| row.underlying_id);
        columns.u64("raw_instrument_id", |row| row.raw_instrument_id);
        columns.optional_i32("market_depth_implied", |row| row.market_depth_implied);
        columns.optional_i32("market_depth", |row| row.market_depth);
        columns.optional_u32("market_segment_id", |row| row.market_segment_id);
        columns.optional_u32("max_trade_vol", |row| row.max_trade_vol);
        columns.optional_i32("min_lot_size", |row| row.min_lot_size);
        columns.optional_i32("min_lot_size_block", |row| row.min_lot_size_block);
        columns.optional_i32("min_lot_size_round_lot", |row| row.min_lot_size_round_lot);
        columns.optional_u32("min_trade_vol", |row| row.min_trade_vol);
        columns.optional_i32("contract_multiplier", |row| row.contract_multiplier);
        columns.optional_i32("decay_quantity", |row| row.decay_quantity);
        columns.optional_i32("original_contract_size", |row| row.original_contract_size);
        columns.optional_i16("appl_id", |row| row.appl_id);
        columns.optional_u16("maturity_year", |row| row.maturity_year);
        columns.optional_u16("decay_start_date", |row| row.decay_start_date);
        columns.optional_u16("channel_id", |row| row.channel_id);
        columns.text("currency", |row| text(&row.currency));
        columns.text("settl_currency", |row| text(&row.settl_currency));
        columns.text("secsubtype", |row| text(&row.secsubtype));
        columns.text("group", |row| text(&row.group));
        columns.text("exchange", |row| text(&row.exchange));
        columns.text("asset", |row| text(&row.asset));
        columns.text("cfi", |row| text(&row.cfi));
        columns.text("security_type", |row| text(&row.security_type));
        columns.text("unit_of_measure", |row| text(&row.unit_of_measure));
        columns.text("underlying", |row| text(&row.underlying));
        columns.text("strike_price_currency", |row| text(&row.strike_price_currency));
        columns.price("strike_price", |row| row.strike_price);
        columns.letter("match_algorithm", |row| row.match_algorithm);
        columns.optional_u8("main_fraction", |row| row.main_fraction);
        columns.optional_u8("price_display_format", |row| row.price_display_format);
        columns.optional_u8("sub_fraction", |row| row.sub_fraction);
        columns.optional_u8("underlying_product", |row| row.underlying_product);
        columns.optional_u8("maturity_month", |row| row.maturity_month);
        columns.optional_u8("maturity_day", |row| row.maturity_day);
        columns.optional_u8("maturity_week", |row| row.maturity_week);
        columns.letter("user_defined_instrument", |row| row.user_defined_instrument);
        columns.optional_i8("contract_multiplier_unit", |row| row.contract_multiplier_unit);
        columns.optional_i8("flow_schedule_type", |row| row.flow_schedule_type);
        columns.optional_u8("tick_rule", |row| row.tick_rule);
        columns.u16("leg_count", |row| row.leg_count);
        columns.u16("leg_index", |row| row.leg_index);
        columns.u32("leg_instrument_id", |row| row.leg_instrument_id);
        columns.text("leg_raw_symbol", |row| text(&row.leg_raw_symbol));
        columns.letter("leg_instrument_class", |row| row.leg_instrument_class);
        columns.letter("leg_side", |row| row.leg_side);
        columns.price("leg_price", |row| row.leg_price);
        columns.price("leg_delta", |row| row.leg_delta);
        columns.i32("leg_ratio_price_numerator", |row| row.leg_ratio_price_numerator);
        columns.i32("leg_ratio_price_denominator", |row| row.leg_ratio_price_denominator);
        columns.i32("leg_ratio_qty_numerator", |row| row.leg_ratio_qty_numerator);
        columns.i32("leg_ratio_qty_denominator", |row| row.leg_ratio_qty_denominator);
        columns.u32("leg_underlying_id", |row| row.leg_underlying_id);
    }
}

/// Returns the text of a zero-terminated field; empty if it is not valid text.
fn text<const N: usize>(characters: &[c_char; N]) -> &str {
    dbn::record::c_chars_to_str(characters).unwrap_or_default()
}

impl Row for OhlcvMsg {
    const HAS_NARROW_SIZES: bool = false;
    const HAS_ORIGIN: bool = false;

    fn columns(columns: &mut Columns<'_, Self>) {
        columns.time("ts_event", |row| row.hd.ts_event);
        columns.u8("rtype", |row| row.hd.rtype);
        columns.u16("publisher_id", |row| row.hd.publisher_id);
        columns.u32("instrument_id", |row| row.hd.instrument_id);
        columns.price("open", |row| row.open);
        columns.price("high", |row| row.high);
        columns.price("low", |row| row.low);
        columns.price("close", |row| row.close);
        columns.u64("volume", |row| row.volume);
    }
}
