//! `status`, `imbalance`, `definition` and `statistics`: information about an instrument besides its book.

use std::ffi::c_char;

use dbn::{ImbalanceMsg, InstrumentDefMsg, StatMsg, StatType, StatUpdateAction, StatusMsg};
use tapeworks_market::event::{Event, EventKind, Imbalance};
use tapeworks_market::price::price_e9;
use tapeworks_market::{Instruments, NbboUpdate, Symbol};

use super::Shape;
use crate::records::{header, instrument_number, letter, sequence};
use crate::rows::Rows;
use crate::summary::Skip;

/// Makes `status` records.
#[derive(Debug, Default)]
pub(crate) struct Statuses;

const fn three_states(value: Option<bool>) -> c_char {
    match value {
        Some(true) => b'Y' as c_char,
        Some(false) => b'N' as c_char,
        None => b'~' as c_char,
    }
}

impl Shape for Statuses {
    type Row = StatusMsg;

    fn put(&mut self, update: &NbboUpdate<'_>, _instruments: &Instruments, rows: &mut Rows<StatusMsg>) {
        let event = update.book.event;
        let Some(status) = event.status() else { return rows.skip(Skip::NotInSchema) };
        let record = StatusMsg {
            hd: header::<StatusMsg>(dbn::rtype::STATUS, event),
            ts_recv: event.ts_recv.0,
            action: status.action as u16,
            reason: status.reason,
            is_trading: three_states(status.is_trading),
            is_quoting: three_states(status.is_quoting),
            is_short_sell_restricted: three_states(status.is_short_sell_restricted),
            ..StatusMsg::default()
        };
        rows.push(record, event);
    }
}

/// Makes `imbalance` records, each from two events.
#[derive(Debug, Default)]
pub(crate) struct Imbalances {
    first: Option<Event>,
}

impl Shape for Imbalances {
    type Row = ImbalanceMsg;

    fn put(&mut self, update: &NbboUpdate<'_>, _instruments: &Instruments, rows: &mut Rows<ImbalanceMsg>) {
        let event = update.book.event;
        let first = self.first.take();
        match (event.kind, first) {
            (EventKind::ImbalancePrices, Some(first)) => match first.imbalance(event) {
                Some(imbalance) => rows.push(record(&first, &imbalance), &first),
                None => {
                    rows.skip(Skip::HalfImbalance);
                    rows.skip(Skip::HalfImbalance);
                }
            },
            (EventKind::ImbalancePrices, None) => rows.skip(Skip::HalfImbalance),
            (kind, first) => {
                if first.is_some() {
                    rows.skip(Skip::HalfImbalance);
                }
                if kind == EventKind::Imbalance {
                    self.first = Some(*event);
                } else {
                    rows.skip(Skip::NotInSchema);
                }
            }
        }
    }

    fn finish(&mut self, rows: &mut Rows<ImbalanceMsg>) {
        if self.first.take().is_some() {
            rows.skip(Skip::HalfImbalance);
        }
    }
}

/// Makes a record. The price variation's letter goes to `significant_imbalance`, which is DBN's `~` without one.
fn record(event: &Event, imbalance: &Imbalance) -> ImbalanceMsg {
    ImbalanceMsg {
        hd: header::<ImbalanceMsg>(dbn::rtype::IMBALANCE, event),
        ts_recv: event.ts_recv.0,
        ref_price: price_e9(imbalance.reference_price),
        auction_time: imbalance.auction_time.map_or(dbn::UNDEF_TIMESTAMP, |time| time.0),
        cont_book_clr_price: price_e9(imbalance.continuous_clearing_price),
        auct_interest_clr_price: price_e9(imbalance.auction_clearing_price),
        ind_match_price: price_e9(imbalance.indicative_price),
        upper_collar: price_e9(imbalance.upper_collar),
        lower_collar: price_e9(imbalance.lower_collar),
        paired_qty: imbalance.paired,
        total_imbalance_qty: imbalance.imbalance,
        market_imbalance_qty: imbalance.market_imbalance.unwrap_or(dbn::UNDEF_ORDER_SIZE),
        auction_type: imbalance.auction_type as c_char,
        side: letter(imbalance.side),
        num_extensions: imbalance.extensions,
        significant_imbalance: imbalance.variation as c_char,
        ..ImbalanceMsg::default()
    }
}

/// Makes `definition` records.
#[derive(Debug, Default)]
pub(crate) struct Definitions;

impl Shape for Definitions {
    type Row = InstrumentDefMsg;

    /// Writes an equity: class `K`, currency USD, CFI `ES` (or `CE` for an exchange-traded product). The venue's own class of
    /// the issue is in `secsubtype`, and a test security has the group `TEST`.
    fn put(&mut self, update: &NbboUpdate<'_>, instruments: &Instruments, rows: &mut Rows<InstrumentDefMsg>) {
        let event = update.book.event;
        let Some(definition) = event.definition() else { return rows.skip(Skip::NotInSchema) };
        let symbol = instruments.symbol(event.instrument);
        let class = [definition.class];
        let class = std::str::from_utf8(&class).unwrap_or_default().trim();
        let mic = event.publisher.feed().map_or("", |feed| feed.venue.mic);
        let round_lot = i32::try_from(definition.round_lot).ok().filter(|lot| *lot > 0).unwrap_or(i32::MAX);
        let record = InstrumentDefMsg {
            hd: header::<InstrumentDefMsg>(dbn::rtype::INSTRUMENT_DEF, event),
            ts_recv: event.ts_recv.0,
            raw_symbol: field(symbol.as_ref().map_or("", Symbol::as_str)),
            raw_instrument_id: u64::from(instrument_number(event.instrument)),
            min_price_increment: price_e9(definition.tick),
            min_lot_size_round_lot: round_lot,
            currency: field("USD"),
            exchange: field(mic),
            instrument_class: b'K' as c_char,
            security_type: field(if definition.is_etp { "ETF" } else { "STK" }),
            cfi: field(if definition.is_etp { "CE" } else { "ES" }),
            secsubtype: field(class),
            group: field(if definition.is_test { "TEST" } else { "" }),
            ..InstrumentDefMsg::default()
        };
        rows.push(record, event);
    }
}

/// Makes `statistics` records: two for each price band event, upper band first.
#[derive(Debug, Default)]
pub(crate) struct Statistics;

impl Shape for Statistics {
    type Row = StatMsg;

    /// An expired or missing band is a deletion without a price. The flags are the SIP's letter.
    fn put(&mut self, update: &NbboUpdate<'_>, _instruments: &Instruments, rows: &mut Rows<StatMsg>) {
        let event = update.book.event;
        let Some(bands) = event.price_bands() else { return rows.skip(Skip::NotInSchema) };
        let limits = [(StatType::UpperPriceLimit, bands.upper), (StatType::LowerPriceLimit, bands.lower)];
        for (stat_type, price) in limits {
            let price = price.filter(|_| bands.are_in_effect());
            let update_action =
                if price.is_some() { StatUpdateAction::New } else { StatUpdateAction::Delete };
            let record = StatMsg {
                hd: header::<StatMsg>(dbn::rtype::STATISTICS, event),
                ts_recv: event.ts_recv.0,
                ts_ref: if bands.effective.0 == 0 { dbn::UNDEF_TIMESTAMP } else { bands.effective.0 },
                price: price_e9(price),
                sequence: sequence(event),
                ts_in_delta: event.ts_in_delta(),
                stat_type: stat_type as u16,
                channel_id: event.channel,
                update_action: update_action as u8,
                stat_flags: bands.indicator,
                ..StatMsg::default()
            };
            rows.push(record, event);
        }
    }
}

/// Copies text to a zero-terminated field, truncating it if necessary.
fn field<const N: usize>(text: &str) -> [c_char; N] {
    let mut field = [0; N];
    for (to, from) in field.iter_mut().take(N - 1).zip(text.bytes()) {
        *to = from as c_char;
    }
    field
}
