//! The dialect of NYSE: the Pillar Integrated feed, 2.5.
//!
//! Times are split: a time reference precedes the first message of each second ([`Dialect::full_second`]). The per-symbol
//! sequence number, which receivers of whole channels do not need, is always 0.

use tapeworks_market::symbology;
use tapeworks_session::SessionId;
use tapeworks_wire::nasdaq::itch50::{ReasonCode, TradingState};
use tapeworks_wire::nyse::integrated::{self, *};
use tapeworks_wire::{Ascii, Nanoseconds, SecondsSinceEpoch};

use crate::book;
use crate::dialect::{Dialect, SessionName};
use crate::instrument::Instrument;
use crate::outbox::{Change, Outbox, Print, Stamp, Standing, in_market_hours};
use crate::scenario::{CLOSE_NS, HOUR_NS, MINUTE_NS, SECOND_NS, VenueKind};

/// Encodes a message about a symbol: the common fields and its own. `whole` means that it has the full time.
macro_rules! say {
    ($outbox:expr, $stamp:expr, $message:ident, $fields:ident { $($own:tt)* }) => {{
        begin_second($outbox, $stamp);
        $outbox.push($stamp, &integrated::$fields {
            length: $message::LENGTH as u16,
            source_time_ns: nanoseconds($stamp),
            symbol_index: u32::from($stamp.locate),
            symbol_sequence: 0,
            $($own)*
        }.encode())
    }};
    (whole $outbox:expr, $stamp:expr, $message:ident, $fields:ident { $($own:tt)* }) => {{
        begin_second($outbox, $stamp);
        $outbox.push($stamp, &integrated::$fields {
            length: $message::LENGTH as u16,
            source_time: second($stamp),
            source_time_ns: nanoseconds($stamp),
            symbol_index: u32::from($stamp.locate),
            $($own)*
        }.encode())
    }};
}

/// The only matching engine.
const SYSTEM: u8 = 1;

/// Length of an imbalance with all fields of version 2.5, in bytes.
const IMBALANCE_BYTES: usize = 73;

/// The type of the time reference.
const REFERENCE_TYPE: u8 = SourceTimeReference::TAG as u8;

/// The type of the symbol mapping, which has no time.
const MAPPING_TYPE: u8 = SymbolIndexMapping::TAG as u8;

/// Offsets of the second in a time reference, of the first time field in other messages, and of the second time field after it.
const REFERENCE: std::ops::Range<usize> = 12..16;
const FIRST: std::ops::Range<usize> = 4..8;
const NEXT: std::ops::Range<usize> = 8..12;

const fn second(stamp: &Stamp) -> SecondsSinceEpoch {
    SecondsSinceEpoch((stamp.utc_ns / SECOND_NS) as u32)
}

const fn nanoseconds(stamp: &Stamp) -> Nanoseconds {
    Nanoseconds(stamp.utc_ns % SECOND_NS)
}

/// Writes the time reference before the first message of a second.
fn begin_second(outbox: &mut Outbox, stamp: &Stamp) {
    let second = stamp.utc_ns / SECOND_NS;
    if outbox.begins_second(stamp.venue, second) {
        outbox.push(stamp, &reference(second));
    }
}

fn reference(second: u64) -> [u8; SourceTimeReference::LENGTH] {
    let fields = SourceTimeReferenceFields {
        length: SourceTimeReference::LENGTH as u16,
        id: u32::from(SYSTEM),
        symbol_sequence: 0,
        source_time: SecondsSinceEpoch(second as u32),
    };
    fields.encode()
}

/// Returns the decimal places of a symbol's prices: six if its tick is below a cent, as for prices below a dollar, otherwise four.
const fn places(instrument: &Instrument) -> u8 {
    if instrument.tick < 100 { 6 } else { 4 }
}

/// Converts a price from 1e-4 dollars to the symbol's decimal places. The simulated prices fit.
fn price(raw: u32, instrument: &Instrument) -> i32 {
    let scale = if places(instrument) == 6 { 100 } else { 1 };
    i32::try_from(u64::from(raw) * scale).unwrap_or(i32::MAX)
}

const fn side(side: book::Side) -> Side {
    match side {
        book::Side::Buy => Side::Buy,
        book::Side::Sell => Side::Sell,
    }
}

/// The fields of a trade that follow from its size and time.
struct Conditions {
    printable_flag: PrintableFlag,
    trade_condition_3: ExtendedHours,
    trade_condition_4: SaleCondition,
}

impl Conditions {
    fn of(stamp: &Stamp, shares: u32, instrument: &Instrument, is_printable: bool) -> Self {
        Self {
            printable_flag: if is_printable {
                PrintableFlag::PrintedToSip
            } else {
                PrintableFlag::NotPrintedToSip
            },
            trade_condition_3: if in_market_hours(stamp) {
                ExtendedHours::None
            } else {
                ExtendedHours::ExtendedHoursTrade
            },
            trade_condition_4: if shares < instrument.round_lot {
                SaleCondition::OddLotTrade
            } else {
                SaleCondition::None
            },
        }
    }
}

fn add(outbox: &mut Outbox, stamp: &Stamp, instrument: &Instrument, at: book::Side, order: book::Order) {
    say!(
        outbox,
        stamp,
        AddOrder,
        AddOrderFields {
            order_id: order.reference,
            price: price(order.price, instrument),
            volume: order.shares,
            side: side(at),
            firm_id: Ascii([b' '; 5]),
            reserved_1: 0,
        }
    );
}

fn execute(
    outbox: &mut Outbox,
    stamp: &Stamp,
    instrument: &Instrument,
    order: book::Order,
    (shares, at, match_number, is_printable): (u32, u32, u64, bool),
) {
    let Conditions { printable_flag, trade_condition_3, trade_condition_4 } =
        Conditions::of(stamp, shares, instrument, is_printable);
    say!(
        outbox,
        stamp,
        OrderExecution,
        OrderExecutionFields {
            order_id: order.reference,
            trade_id: match_number as u32,
            price: price(at, instrument),
            volume: shares,
            printable_flag,
            reserved_1: 0,
            trade_condition_1: Settlement::RegularSale,
            trade_condition_2: TradeThroughExemption::None,
            trade_condition_3,
            trade_condition_4,
        }
    );
}

fn status(outbox: &mut Outbox, stamp: &Stamp, code: SecurityStatusCode, standing: &Standing) {
    let halt_condition = match (standing.state, standing.reason) {
        (TradingState::Paused, _) => HaltCondition::LuldPause,
        (TradingState::Halted, ReasonCode::ReasonNotAvailable) => HaltCondition::OrderImbalance,
        (TradingState::Halted, _) => HaltCondition::NewsPending,
        _ if standing.operational_halt => HaltCondition::Suspended,
        _ => HaltCondition::NotHalted,
    };
    let market_state = match stamp.time_ns {
        _ if in_market_hours(stamp) => MarketState::CoreSession,
        CLOSE_NS.. => MarketState::LateSession,
        _ => MarketState::EarlySession,
    };
    say!(
        whole outbox,
        stamp,
        SecurityStatus,
        SecurityStatusFields {
            symbol_sequence: 0,
            security_status: code,
            halt_condition,
            reserved_4: 0,
            price_1: 0,
            price_2: 0,
            short_sale_triggering_exchange: Exchange::Unknown(b' '),
            short_sale_triggering_volume: 0,
            time: 0,
            short_sale_restriction: if standing.is_restricted() {
                ShortSaleRestriction::InEffect
            } else {
                ShortSaleRestriction::NotInEffect
            },
            market_state,
            session_state: Ascii([b' ']),
        }
    );
}

/// Returns a time in New York in NYSE's notation, such as 1406.
const fn hours_and_minutes(time_ns: u64) -> u16 {
    (time_ns / HOUR_NS * 100 + time_ns % HOUR_NS / MINUTE_NS) as u16
}

/// Writes a symbol's state as a security status.
fn state(outbox: &mut Outbox, stamp: &Stamp, standing: &Standing) {
    let code = match standing.state {
        _ if standing.operational_halt => SecurityStatusCode::Suspend,
        TradingState::Halted | TradingState::Paused => SecurityStatusCode::TradingHalt,
        TradingState::QuotationOnlyPeriod => SecurityStatusCode::BeginAcceptingOrders,
        TradingState::Trading | TradingState::Unknown(_) => SecurityStatusCode::Resume,
    };
    status(outbox, stamp, code, standing);
}

/// The NYSE Integrated feed.
pub(crate) struct Integrated;

impl Dialect for Integrated {
    const HAS_ORDERS: bool = true;
    const TYPE_OFFSET: usize = 2;

    fn session(_: &SessionName) -> SessionId {
        SessionId::Pillar
    }

    /// Announces that the numbers restart at the start of messages. NYSE has no other market-wide phases.
    fn system_event(outbox: &mut Outbox, _: VenueKind, stamp: &Stamp, code: u8) {
        if code == b'O' {
            let fields = SequenceNumberResetFields {
                length: SequenceNumberReset::LENGTH as u16,
                source_time: second(stamp),
                source_time_ns: nanoseconds(stamp),
                product_id: 0,
                channel_id: 0,
            };
            outbox.push(stamp, &fields.encode());
        }
    }

    /// Clears the book first, for receivers that have another book from before a restart.
    fn directory(
        outbox: &mut Outbox,
        kind: VenueKind,
        stamp: &Stamp,
        _: u32,
        instrument: &Instrument,
        standing: &Standing,
    ) {
        let (root, suffix) = symbology::to_cms(&instrument.symbol.to_string());
        let mut symbol = [0; 11];
        let spelled = [root.as_str(), &suffix].join(" ");
        symbol.iter_mut().zip(spelled.trim_end().bytes()).for_each(|(to, from)| *to = from);
        let fields = SymbolIndexMappingFields {
            length: SymbolIndexMapping::LENGTH as u16,
            symbol_index: u32::from(stamp.locate),
            symbol: Ascii(symbol),
            reserved_1: 0,
            market_id: Market::from_raw(kind.row().code),
            system_id: SYSTEM,
            exchange_code: ListingMarket::from_raw(instrument.listing),
            price_scale_code: places(instrument),
            security_type: if instrument.etp { SecurityType::Etf } else { SecurityType::CommonStock },
            lot_size: instrument.round_lot as u16,
            previous_close_price: 0,
            previous_close_volume: 0,
            price_resolution: 0,
            round_lot: RoundLot::Yes,
            minimum_price_variation: instrument.tick as u16,
            unit_of_trade: 1,
            reserved_2: 0,
        };
        outbox.push(stamp, &fields.encode());
        say!(whole outbox, stamp, SymbolClear, SymbolClearFields { next_source_sequence: 0 });
        state(outbox, stamp, standing);
    }

    #[inline]
    fn change(outbox: &mut Outbox, stamp: &Stamp, instrument: &Instrument, change: &Change) {
        match *change {
            Change::Add { side, order, .. } => add(outbox, stamp, instrument, side, order),
            Change::Execute { order, shares, match_number, .. } => {
                execute(outbox, stamp, instrument, order, (shares, order.price, match_number, true));
            }
            Change::ExecuteAt { order, shares, match_number, price, printable, .. } => {
                execute(outbox, stamp, instrument, order, (shares, price, match_number, printable));
            }
            // NYSE sends the remaining shares.
            Change::Cancel { side: at, order, shares } => say!(
                outbox,
                stamp,
                ModifyOrder,
                ModifyOrderFields {
                    order_id: order.reference,
                    price: price(order.price, instrument),
                    volume: order.shares.saturating_sub(shares),
                    position_change: 0,
                    side: side(at),
                    reserved_1: 0,
                }
            ),
            Change::Delete { order, .. } => say!(
                outbox,
                stamp,
                DeleteOrder,
                DeleteOrderFields { order_id: order.reference, reserved_1: 0 }
            ),
            Change::Replace { side: at, old, new } => say!(
                outbox,
                stamp,
                ReplaceOrder,
                ReplaceOrderFields {
                    order_id: old.reference,
                    new_order_id: new.reference,
                    price: price(new.price, instrument),
                    volume: new.shares,
                    side: side(at),
                    reserved_1: 0,
                }
            ),
            Change::Hidden { price: at, shares, match_number } => {
                let Conditions { printable_flag, trade_condition_3, trade_condition_4 } =
                    Conditions::of(stamp, shares, instrument, true);
                say!(
                    outbox,
                    stamp,
                    NonDisplayedTrade,
                    NonDisplayedTradeFields {
                        trade_id: match_number as u32,
                        price: price(at, instrument),
                        volume: shares,
                        printable_flag,
                        trade_condition_1: Settlement::RegularSale,
                        trade_condition_2: TradeThroughExemption::None,
                        trade_condition_3,
                        trade_condition_4,
                    }
                );
            }
        }
    }

    fn trading_state(outbox: &mut Outbox, _: VenueKind, stamp: &Stamp, _: Ascii<8>, standing: &Standing) {
        state(outbox, stamp, standing);
    }

    fn operational_halt(outbox: &mut Outbox, _: VenueKind, stamp: &Stamp, _: Ascii<8>, standing: &Standing) {
        state(outbox, stamp, standing);
    }

    fn short_sale_test(outbox: &mut Outbox, _: VenueKind, stamp: &Stamp, _: Ascii<8>, standing: &Standing) {
        status(outbox, stamp, SecurityStatusCode::ShortSaleRestrictionActivated, standing);
    }

    fn retail_interest(outbox: &mut Outbox, _: VenueKind, stamp: &Stamp, _: Ascii<8>, choice: u32) {
        let retail_interest = match choice % 4 {
            0 => RetailInterest::Bid,
            1 => RetailInterest::Offer,
            2 => RetailInterest::BidAndOffer,
            _ => RetailInterest::None,
        };
        say!(outbox, stamp, RetailPriceImprovement, RetailPriceImprovementFields { retail_interest });
    }

    fn imbalance(
        outbox: &mut Outbox,
        _: VenueKind,
        stamp: &Stamp,
        instrument: &Instrument,
        paired: u32,
        imbalance: i32,
        code: u8,
    ) {
        let at = price(instrument.reference_price(), instrument);
        let (auction_type, auction_time) = match code {
            b'C' => (AuctionType::Closing, 1_600),
            // The next full minute.
            b'H' => (AuctionType::Reopening, hours_and_minutes(stamp.time_ns + MINUTE_NS)),
            _ => (AuctionType::CoreOpening, 930),
        };
        let imbalance_side = match imbalance {
            0 => ImbalanceSide::None,
            1.. => ImbalanceSide::Buy,
            _ => ImbalanceSide::Sell,
        };
        begin_second(outbox, stamp);
        let mut bytes = [0; IMBALANCE_BYTES];
        let fields = ImbalanceFields {
            length: IMBALANCE_BYTES as u16,
            source_time: second(stamp),
            source_time_ns: nanoseconds(stamp),
            symbol_index: u32::from(stamp.locate),
            symbol_sequence: 0,
            reference_price: at,
            paired_quantity: paired,
            total_imbalance_quantity: imbalance.unsigned_abs(),
            market_imbalance_quantity: 0,
            auction_time,
            auction_type,
            imbalance_side,
            continuous_book_clearing_price: at,
            auction_interest_clearing_price: at,
            short_sale_filing_price: 0,
            indicative_match_price: at,
            upper_collar: 0,
            lower_collar: 0,
            auction_status: AuctionStatus::WillRunAsAlways,
            freeze_status: FreezeStatus::NotInEffect,
            extensions: 0,
            unpaired_quantity: Some(imbalance.unsigned_abs()),
            unpaired_side: Some(imbalance_side),
            reserved_1: Some(0),
        };
        // The array has the message's length.
        let length = fields.encode_into(&mut bytes).unwrap_or_default();
        outbox.push(stamp, bytes.get(..length).unwrap_or_default());
    }

    fn cross(
        outbox: &mut Outbox,
        _: VenueKind,
        stamp: &Stamp,
        instrument: &Instrument,
        shares: u32,
        match_number: u64,
        code: u8,
    ) {
        say!(
            outbox,
            stamp,
            CrossTrade,
            CrossTradeFields {
                cross_id: match_number as u32,
                price: price(instrument.reference_price(), instrument),
                volume: shares,
                cross_type: match code {
                    b'C' => CrossType::Closing,
                    b'H' => CrossType::Reopening,
                    _ => CrossType::Opening,
                },
            }
        );
    }

    fn trade_break(outbox: &mut Outbox, _: VenueKind, _: &Stamp, stamp: &Stamp, print: &Print) {
        let stamp = &Stamp { locate: print.locate, ..*stamp };
        say!(outbox, stamp, TradeCancel, TradeCancelFields { trade_id: print.trade_id as u32 });
    }

    fn second_of(utc_ns: u64, _midnight_ns: u64) -> Option<u64> {
        Some(utc_ns / SECOND_NS)
    }

    fn full_second(second: u64) -> impl AsRef<[u8]> {
        reference(second)
    }

    fn is_full_second(message: &[u8]) -> bool {
        message.get(Self::TYPE_OFFSET) == Some(&REFERENCE_TYPE)
    }

    fn restamp(message: &mut [u8], utc_ns: u64, _midnight_ns: u64) {
        let [second, offset] =
            [utc_ns / SECOND_NS, utc_ns % SECOND_NS].map(|part| (part as u32).to_le_bytes());
        let kind = message.get(Self::TYPE_OFFSET).copied();
        let mut put = |place: std::ops::Range<usize>, part: [u8; 4]| {
            if let Some(place) = message.get_mut(place) {
                place.copy_from_slice(&part);
            }
        };
        match kind {
            Some(REFERENCE_TYPE) => put(REFERENCE, second),
            Some(MAPPING_TYPE) | None => {}
            // Messages about an order, a trade, or retail interest.
            Some(100..=104 | 110..=114) => put(FIRST, offset),
            Some(_) => {
                put(FIRST, second);
                put(NEXT, offset);
            }
        }
    }
}
