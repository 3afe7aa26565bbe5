//! The dialect of the Nasdaq family: TotalView-ITCH 5.0.

use tapeworks_session::SessionId;
use tapeworks_wire::nasdaq::itch50::{self, *};
use tapeworks_wire::{Ascii, Decimal, NanosecondsSinceMidnight, SecondsSinceMidnight};

use crate::book::Side;
use crate::dialect::{Dialect, SessionName};
use crate::instrument::{Instrument, is_tier_1};
use crate::outbox::{Change, Outbox, Print, Stamp, Standing};
use crate::scenario::VenueKind;

/// Market participants that attribute orders to themselves. None of them exists.
pub(crate) const MPIDS: [[u8; 4]; 8] =
    [*b"TWAA", *b"TWBB", *b"TWCC", *b"TWDD", *b"TWEE", *b"TWFF", *b"TWGG", *b"TWHH"];

fn mpid(number: usize) -> Ascii<4> {
    Ascii(MPIDS[number % MPIDS.len()])
}

fn indicator(side: Side) -> BuySellIndicator {
    match side {
        Side::Buy => BuySellIndicator::Buy,
        Side::Sell => BuySellIndicator::Sell,
    }
}

fn market_code(kind: VenueKind) -> MarketCode {
    MarketCode::from_raw(kind.row().code as u8)
}

/// Encodes a message: the common header fields and its own.
macro_rules! say {
    ($outbox:expr, $stamp:expr, $fields:ident { $($own:tt)* }) => {
        $outbox.push($stamp, &itch50::$fields {
            stock_locate: $stamp.locate,
            tracking_number: $stamp.tracking,
            timestamp: NanosecondsSinceMidnight($stamp.time_ns),
            $($own)*
        }.encode())
    };
}

/// Writes a change of the book.
#[inline]
fn change(outbox: &mut Outbox, stamp: &Stamp, stock: Ascii<8>, change: &Change) {
    match *change {
        Change::Add { side, order, mpid: None } => say!(
            outbox,
            stamp,
            AddOrderFields {
                order_reference_number: order.reference,
                buy_sell_indicator: indicator(side),
                shares: order.shares,
                stock,
                price: Decimal(order.price),
            }
        ),
        Change::Add { side, order, mpid: Some(number) } => say!(
            outbox,
            stamp,
            AddOrderWithMpidFields {
                order_reference_number: order.reference,
                buy_sell_indicator: indicator(side),
                shares: order.shares,
                stock,
                price: Decimal(order.price),
                attribution: mpid(number),
            }
        ),
        Change::Execute { order, shares, match_number, .. } => say!(
            outbox,
            stamp,
            OrderExecutedFields {
                order_reference_number: order.reference,
                executed_shares: shares,
                match_number,
            }
        ),
        Change::ExecuteAt { order, shares, match_number, price, printable, .. } => {
            say!(
                outbox,
                stamp,
                OrderExecutedWithPriceFields {
                    order_reference_number: order.reference,
                    executed_shares: shares,
                    match_number,
                    printable: if printable { Printable::Yes } else { Printable::No },
                    execution_price: Decimal(price),
                }
            )
        }
        Change::Cancel { order, shares, .. } => say!(
            outbox,
            stamp,
            OrderCancelFields { order_reference_number: order.reference, cancelled_shares: shares }
        ),
        Change::Delete { order, .. } => {
            say!(outbox, stamp, OrderDeleteFields { order_reference_number: order.reference })
        }
        Change::Replace { old, new, .. } => say!(
            outbox,
            stamp,
            OrderReplaceFields {
                original_order_reference_number: old.reference,
                new_order_reference_number: new.reference,
                shares: new.shares,
                price: Decimal(new.price),
            }
        ),
        // Since 2014 the reference is 0 and the side always "buy", to hide the order.
        Change::Hidden { price, shares, match_number } => say!(
            outbox,
            stamp,
            TradeFields {
                order_reference_number: 0,
                buy_sell_indicator: BuySellIndicator::Buy,
                shares,
                stock,
                price: Decimal(price),
                match_number,
            }
        ),
    }
}

/// Writes a phase of the day, given by its ITCH letter.
fn system_event(outbox: &mut Outbox, stamp: &Stamp, code: u8) {
    say!(outbox, stamp, SystemEventFields { event_code: EventCode::from_raw(code) });
}

/// Writes the messages about a symbol before the day starts.
fn directory(outbox: &mut Outbox, stamp: &Stamp, index: u32, instrument: &Instrument, standing: &Standing) {
    stock_directory(outbox, stamp, index, instrument, standing.new_issue);
    trading_action(outbox, stamp, instrument.symbol, standing.state, standing.reason);
    let reg_sho_action = match (standing.short_sale_test, standing.was_restricted) {
        (true, _) => RegShoAction::RegShoShortSalePriceTestRestriction,
        (false, true) => RegShoAction::TestRestrictionRemains,
        (false, false) => RegShoAction::NoPriceTest,
    };
    say!(outbox, stamp, RegShoRestrictionFields { stock: instrument.symbol, reg_sho_action });
    market_makers(outbox, stamp, index, instrument.symbol);
}

fn stock_directory(outbox: &mut Outbox, stamp: &Stamp, index: u32, instrument: &Instrument, new_issue: bool) {
    let stock = instrument.symbol;
    let listed_here = is_listed(index);
    say!(
        outbox,
        stamp,
        StockDirectoryFields {
            stock,
            market_category: match (listed_here, index % 8) {
                (true, 0 | 2) => MarketCategory::NasdaqGlobalSelectMarket,
                (true, 4) => MarketCategory::NasdaqGlobalMarket,
                (true, _) => MarketCategory::NasdaqCapitalMarket,
                (false, _) => MarketCategory::from_raw(instrument.listing),
            },
            financial_status_indicator: if listed_here {
                FinancialStatusIndicator::Normal
            } else {
                FinancialStatusIndicator::NotAvailable
            },
            round_lot_size: instrument.round_lot,
            round_lots_only: RoundLotsOnly::No,
            issue_classification: if instrument.etp {
                IssueClassification::OtherSecurities
            } else {
                IssueClassification::CommonStock
            },
            issue_sub_type: if instrument.etp {
                IssueSubType::EtfPortfolioDepositaryReceipt
            } else {
                IssueSubType::NotApplicable
            },
            authenticity: Authenticity::LiveProduction,
            short_sale_threshold_indicator: ShortSaleThresholdIndicator::NotRestricted,
            ipo_flag: if new_issue { IpoFlag::SetUpForIpoRelease } else { IpoFlag::NotSetUpForIpoRelease },
            luld_reference_price_tier: if is_tier_1(index) {
                LuldReferencePriceTier::Tier1
            } else {
                LuldReferencePriceTier::Tier2
            },
            etp_flag: if instrument.etp { EtpFlag::Etp } else { EtpFlag::NotEtp },
            etp_leverage_factor: u32::from(instrument.etp),
            inverse_indicator: InverseIndicator::NotInverseEtp,
        }
    );
}

fn market_makers(outbox: &mut Outbox, stamp: &Stamp, index: u32, stock: Ascii<8>) {
    let makers = [2, 0, 1, 0][index as usize % 4];
    for maker in 0..makers {
        say!(
            outbox,
            stamp,
            MarketParticipantPositionFields {
                mpid: mpid(maker + index as usize),
                stock,
                primary_market_maker: if maker == 0 {
                    PrimaryMarketMaker::Primary
                } else {
                    PrimaryMarketMaker::NonPrimary
                },
                market_maker_mode: MarketMakerMode::Normal,
                market_participant_state: MarketParticipantState::Active,
            }
        );
    }
}

/// Returns whether Nasdaq lists a symbol, and therefore holds its auctions.
pub(crate) fn is_listed(index: u32) -> bool {
    index.is_multiple_of(2)
}

fn trading_action(
    outbox: &mut Outbox,
    stamp: &Stamp,
    stock: Ascii<8>,
    trading_state: TradingState,
    reason_code: ReasonCode,
) {
    say!(
        outbox,
        stamp,
        StockTradingActionFields { stock, trading_state, reserved: Ascii(*b" "), reason_code }
    );
}

/// Writes the start of a short sale price test during the day (Rule 201).
fn reg_sho(outbox: &mut Outbox, stamp: &Stamp, stock: Ascii<8>) {
    let reg_sho_action = RegShoAction::RegShoShortSalePriceTestRestriction;
    say!(outbox, stamp, RegShoRestrictionFields { stock, reg_sho_action });
}

/// Writes levels for declines of 7 %, 13 % and 20 % from an index of 6,000.
pub(crate) fn circuit_breaker_levels(outbox: &mut Outbox, stamp: &Stamp) {
    const INDEX: u64 = 6_000 * 100_000_000;
    say!(
        outbox,
        stamp,
        MwcbDeclineLevelFields {
            level_1: Decimal(INDEX / 100 * 93),
            level_2: Decimal(INDEX / 100 * 87),
            level_3: Decimal(INDEX / 100 * 80),
        }
    );
}

/// Writes a breach of level 1; after 15:25 it does not halt the market (Rule 4121).
pub(crate) fn circuit_breaker_breach(outbox: &mut Outbox, stamp: &Stamp) {
    say!(outbox, stamp, MwcbStatusFields { breached_level: BreachedLevel::Level1 });
}

/// Writes the time and price of a new issue's release.
pub(crate) fn ipo_quoting_period(
    outbox: &mut Outbox,
    stamp: &Stamp,
    instrument: &Instrument,
    release_ns: u64,
) {
    say!(
        outbox,
        stamp,
        IpoQuotingPeriodUpdateFields {
            stock: instrument.symbol,
            ipo_quotation_release_time: SecondsSinceMidnight((release_ns / 1_000_000_000) as u32),
            ipo_quotation_release_qualifier: IpoQuotationReleaseQualifier::AnticipatedQuotationReleaseTime,
            ipo_price: Decimal(instrument.reference_price()),
        }
    );
}

/// Writes the collar of the auction that ends a pause: 5 % on both sides.
pub(crate) fn collar(outbox: &mut Outbox, stamp: &Stamp, instrument: &Instrument) {
    let price = instrument.reference_price();
    say!(
        outbox,
        stamp,
        LuldAuctionCollarFields {
            stock: instrument.symbol,
            auction_collar_reference_price: Decimal(price),
            upper_auction_collar_price: Decimal(price + price / 20),
            lower_auction_collar_price: Decimal(price - price / 20),
            auction_collar_extension: 0,
        }
    );
}

fn operational_halt(outbox: &mut Outbox, stamp: &Stamp, stock: Ascii<8>, kind: VenueKind, halted: bool) {
    say!(
        outbox,
        stamp,
        OperationalHaltFields {
            stock,
            market_code: market_code(kind),
            operational_halt_action: if halted {
                OperationalHaltAction::Halted
            } else {
                OperationalHaltAction::TradingResumed
            },
        }
    );
}

/// Writes an indicative state of an auction.
pub(crate) fn imbalance(
    outbox: &mut Outbox,
    stamp: &Stamp,
    instrument: &Instrument,
    paired_shares: u64,
    imbalance_shares: i64,
    cross_type: CrossType,
) {
    let price = instrument.reference_price();
    say!(
        outbox,
        stamp,
        NetOrderImbalanceIndicatorFields {
            paired_shares,
            imbalance_shares: imbalance_shares.unsigned_abs(),
            imbalance_direction: match imbalance_shares {
                0 => ImbalanceDirection::None,
                1.. => ImbalanceDirection::Buy,
                _ => ImbalanceDirection::Sell,
            },
            stock: instrument.symbol,
            far_price: Decimal(price),
            near_price: Decimal(price + instrument.tick),
            current_reference_price: Decimal(price),
            cross_type,
            price_variation_indicator: PriceVariationIndicator::LessThan1Percent,
        }
    );
}

pub(crate) fn cross(
    outbox: &mut Outbox,
    stamp: &Stamp,
    instrument: &Instrument,
    cross_shares: u64,
    match_number: u64,
    cross_type: CrossType,
) {
    say!(
        outbox,
        stamp,
        CrossTradeFields {
            cross_shares,
            stock: instrument.symbol,
            cross_price: Decimal(instrument.reference_price()),
            match_number,
            cross_type,
        }
    );
}

fn broken_trade(outbox: &mut Outbox, stamp: &Stamp, match_number: u64) {
    say!(outbox, stamp, BrokenTradeFields { match_number });
}

fn retail_interest(outbox: &mut Outbox, stamp: &Stamp, stock: Ascii<8>, choice: u32) {
    let interest_flag = match choice % 4 {
        0 => InterestFlag::BuySide,
        1 => InterestFlag::SellSide,
        2 => InterestFlag::BothSides,
        _ => InterestFlag::NoRpiOrdersAvailable,
    };
    say!(outbox, stamp, RetailPriceImprovementIndicatorFields { stock, interest_flag });
}

/// Writes the price discovery of a direct listing with capital raise: from 20 % below to 80 % above the range.
pub(crate) fn direct_listing(outbox: &mut Outbox, stamp: &Stamp, instrument: &Instrument, release_ns: u64) {
    let price = instrument.reference_price();
    say!(
        outbox,
        stamp,
        DirectListingWithCapitalRaisePriceDiscoveryFields {
            stock: instrument.symbol,
            open_eligibility_status: OpenEligibilityStatus::Eligible,
            minimum_allowable_price: Decimal(price / 5 * 4),
            maximum_allowable_price: Decimal(price / 5 * 9),
            near_execution_price: Decimal(price),
            near_execution_time: NanosecondsSinceMidnight(release_ns),
            lower_price_range_collar: Decimal(price - price / 10),
            upper_price_range_collar: Decimal(price + price / 10),
        }
    );
}

/// TotalView-ITCH.
pub(crate) struct Itch;

impl Dialect for Itch {
    const HAS_ORDERS: bool = true;
    const HAS_BREAKER: bool = true;

    fn session(name: &SessionName) -> SessionId {
        SessionId::MoldUdp64(name.text)
    }

    fn system_event(outbox: &mut Outbox, _: VenueKind, stamp: &Stamp, code: u8) {
        system_event(outbox, stamp, code);
    }

    fn directory(
        outbox: &mut Outbox,
        kind: VenueKind,
        stamp: &Stamp,
        index: u32,
        instrument: &Instrument,
        standing: &Standing,
    ) {
        directory(outbox, stamp, index, instrument, standing);
        if standing.operational_halt {
            operational_halt(outbox, stamp, instrument.symbol, kind, true);
        }
    }

    #[inline]
    fn change(outbox: &mut Outbox, stamp: &Stamp, instrument: &Instrument, changed: &Change) {
        change(outbox, stamp, instrument.symbol, changed);
    }

    fn trading_state(outbox: &mut Outbox, _: VenueKind, stamp: &Stamp, stock: Ascii<8>, standing: &Standing) {
        trading_action(outbox, stamp, stock, standing.state, standing.reason);
    }

    fn operational_halt(
        outbox: &mut Outbox,
        kind: VenueKind,
        stamp: &Stamp,
        stock: Ascii<8>,
        standing: &Standing,
    ) {
        operational_halt(outbox, stamp, stock, kind, standing.operational_halt);
    }

    fn short_sale_test(outbox: &mut Outbox, _: VenueKind, stamp: &Stamp, stock: Ascii<8>, _: &Standing) {
        reg_sho(outbox, stamp, stock);
    }

    fn retail_interest(outbox: &mut Outbox, _: VenueKind, stamp: &Stamp, stock: Ascii<8>, choice: u32) {
        retail_interest(outbox, stamp, stock, choice);
    }

    fn trade_break(outbox: &mut Outbox, _: VenueKind, of_market: &Stamp, _: &Stamp, print: &Print) {
        broken_trade(outbox, of_market, print.trade_id);
    }

    /// Writes the time at offset 5, in nanoseconds since midnight.
    fn restamp(message: &mut [u8], utc_ns: u64, midnight_ns: u64) {
        let time = utc_ns.saturating_sub(midnight_ns).to_be_bytes();
        if let (Some(place), Some(bytes)) = (message.get_mut(5..11), time.last_chunk::<6>()) {
            place.copy_from_slice(bytes);
        }
    }
}
