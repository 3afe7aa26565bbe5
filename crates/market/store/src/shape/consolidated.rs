//! `cmbp-1`: the synthetic NBBO.
//!
//! One record for every change of an instrument's NBBO, and one for every trade with the NBBO right before it. The record's
//! publisher is the feed that sent the event. `bid_pb` and `ask_pb` are the first venue at each best price, and the sizes are
//! summed over all venues at that price. MAYBE_BAD_BOOK is set while any of these venues may be wrong.

use std::ffi::c_char;

use dbn::{Cmbp1Msg, ConsolidatedBidAskPair, FlagSet};
use tapeworks_market::event::{Event, EventKind};
use tapeworks_market::price::{UNDEFINED_PRICE, price_e9};
use tapeworks_market::{Action, Instruments, Nbbo, NbboUpdate, Side};

use super::{Carried, Shape, book_price, clears, trade_of, without_last};
use crate::records::{header, letter};
use crate::rows::Rows;
use crate::state::State;
use crate::summary::Skip;

/// Makes `cmbp-1` records.
#[derive(Debug, Default)]
pub(crate) struct Consolidated {
    /// The NBBO of each instrument's last record.
    last: Vec<ConsolidatedBidAskPair>,
}

pub(crate) fn pair(nbbo: &Nbbo) -> ConsolidatedBidAskPair {
    ConsolidatedBidAskPair {
        bid_px: price_e9(nbbo.bid.price),
        ask_px: price_e9(nbbo.ask.price),
        bid_sz: nbbo.bid.size,
        ask_sz: nbbo.ask.size,
        bid_pb: nbbo.bid.publisher.0,
        ask_pb: nbbo.ask.publisher.0,
        ..ConsolidatedBidAskPair::default()
    }
}

struct Quote {
    price: i64,
    size: u32,
    action: Action,
    side: Side,
    flags: u8,
    best: ConsolidatedBidAskPair,
}

fn record(event: &Event, quote: Quote) -> Cmbp1Msg {
    Cmbp1Msg {
        hd: header::<Cmbp1Msg>(dbn::rtype::CMBP_1, event),
        price: quote.price,
        size: quote.size,
        action: quote.action as u8 as c_char,
        side: letter(quote.side),
        flags: FlagSet::from(quote.flags),
        ts_recv: event.ts_recv.0,
        ts_in_delta: event.ts_in_delta(),
        levels: [quote.best],
        ..Cmbp1Msg::default_for_schema(dbn::Schema::Cmbp1)
    }
}

impl Shape for Consolidated {
    type Row = Cmbp1Msg;

    #[inline]
    fn put(&mut self, update: &NbboUpdate<'_>, _instruments: &Instruments, rows: &mut Rows<Cmbp1Msg>) {
        let book = &update.book;
        let event = book.event;
        let trade = trade_of(book);
        if let Ok(trade) = trade {
            let best = self.last.get(event.instrument.index()).cloned().unwrap_or_default();
            let flags = if update.changed { without_last(event.flags()) } else { event.flags().0 };
            let quote = Quote {
                price: trade.price,
                size: trade.size,
                action: Action::Trade,
                side: trade.side,
                flags: flags | update.nbbo.flags.0,
                best,
            };
            rows.push(record(event, quote), event);
        }
        if !update.changed {
            if let Err(reason) = trade {
                rows.skip(match event.kind {
                    EventKind::Execute | EventKind::Trade => reason,
                    EventKind::TradeBreak | EventKind::Other => Skip::NotInSchema,
                    _ => Skip::NothingShownChanged,
                });
            }
            return;
        }
        let best = pair(update.nbbo);
        self.remember(event, &best);
        let (action, price, size) = match event.kind {
            EventKind::Add => (Action::Add, book_price(book), event.size),
            EventKind::Cancel | EventKind::Delete | EventKind::Execute => {
                (Action::Cancel, book_price(book), event.size)
            }
            EventKind::Level | EventKind::Quote if event.size == 0 || event.price.is_none() => {
                (Action::Cancel, book_price(book), 0)
            }
            EventKind::Replace | EventKind::Level | EventKind::Quote => {
                (Action::Modify, book_price(book), event.size)
            }
            _ if clears(event) => (Action::Clear, UNDEFINED_PRICE, 0),
            // A halt, an opening, a new round lot, or a gap changed the NBBO without an order.
            _ => (Action::Modify, UNDEFINED_PRICE, 0),
        };
        let side = if price == UNDEFINED_PRICE { Side::None } else { event.side };
        let quote = Quote { price, size, action, side, flags: event.flags().0 | update.nbbo.flags.0, best };
        rows.push(record(event, quote), event);
    }

    fn watch(&mut self, update: &NbboUpdate<'_>) {
        if update.changed {
            self.remember(update.book.event, &pair(update.nbbo));
        }
    }

    fn restore(&mut self, state: &State<'_>, _carried: &Carried) {
        self.last = state.all_instruments().map(|instrument| pair(state.nbbo.nbbo(instrument))).collect();
    }
}

impl Consolidated {
    #[inline]
    fn remember(&mut self, event: &Event, best: &ConsolidatedBidAskPair) {
        let index = event.instrument.index();
        if index >= self.last.len() {
            self.last.resize((index + 1).next_power_of_two(), ConsolidatedBidAskPair::default());
        }
        self.last[index] = best.clone();
    }
}
