//! `trades`, `tbbo`, `mbp-1` and `mbp-10`: trades and price levels.
//!
//! A trade is written with the levels right before it took effect, as in DBN, so that each trade appears with the quote it
//! met. A book change is written with the levels right after it. An execution that changes the shown levels therefore
//! produces two records: `T`, then `C` with LAST. A replacement is `M` with the new price and size; a price level or quote is
//! `M`, or `C` if it empties the level; a clearing is `R`.
//!
//! An inconsistent event (more executed than the order had) still changes the book. The levels written are the book's levels,
//! and the event is treated like any other change.

use dbn::{BidAskPair, Mbp1Msg};
use tapeworks_market::book::Outcome;
use tapeworks_market::event::EventKind;
use tapeworks_market::orders::Order;
use tapeworks_market::price::UNDEFINED_PRICE;
use tapeworks_market::{Action, BookUpdate, Instruments, NbboUpdate, Side};

use super::{
    Clearing, Shape, book_price, clears, depth, levels, no_level, not_applied, trade_of, without_last,
};
use crate::records::{Change, PriceRow};
use crate::rows::Rows;
use crate::summary::Skip;

/// Makes records of trades and changes within `N` levels; `N` is 0 for `trades`.
#[derive(Debug)]
pub(crate) struct Prices<R, const N: usize> {
    clearing: Clearing,
    row: std::marker::PhantomData<fn() -> R>,
}

impl<R, const N: usize> Default for Prices<R, N> {
    fn default() -> Self {
        Self { clearing: Clearing::default(), row: std::marker::PhantomData }
    }
}

impl<R: PriceRow<N>, const N: usize> Shape for Prices<R, N> {
    type Row = R;

    #[inline]
    fn put(&mut self, update: &NbboUpdate<'_>, instruments: &Instruments, rows: &mut Rows<R>) {
        let book = &update.book;
        let event = book.event;
        let changed = book.changed_within(N as u32);
        let trade = trade_of(book);
        if let Ok(trade) = trade {
            let change = Change {
                price: trade.price,
                size: trade.size,
                action: Action::Trade,
                side: trade.side,
                flags: if changed { without_last(event.flags()) } else { event.flags().0 },
                depth: depth(book),
            };
            rows.push(R::new(event, &change, levels_before::<N>(book)), event);
        }
        if !changed {
            if let Err(reason) = trade {
                rows.skip(reason_for_nothing::<N>(book, reason));
            }
            return;
        }
        if clears(event) {
            return self.clear(book, instruments, rows);
        }
        let action = match event.kind {
            EventKind::Add => Action::Add,
            EventKind::Cancel | EventKind::Delete | EventKind::Execute => Action::Cancel,
            EventKind::Level | EventKind::Quote if event.size == 0 || event.price.is_none() => Action::Cancel,
            _ => Action::Modify,
        };
        let change = Change {
            price: book_price(book),
            size: event.size,
            action,
            side: event.side,
            flags: event.flags().0,
            depth: depth(book),
        };
        rows.push(R::new(event, &change, levels::<N>(book)), event);
    }
}

impl<R: PriceRow<N>, const N: usize> Prices<R, N> {
    #[cold]
    #[inline(never)]
    fn clear(&mut self, book: &BookUpdate<'_>, instruments: &Instruments, rows: &mut Rows<R>) {
        let any = self.clearing.spread(book, instruments, |event| {
            let change = Change {
                price: UNDEFINED_PRICE,
                size: 0,
                action: Action::Clear,
                side: Side::None,
                flags: event.flags().0,
                depth: 0,
            };
            rows.push(R::new(event, &change, std::array::from_fn(|_| no_level())), event);
        });
        if !any {
            rows.skip(Skip::NothingShownChanged);
        }
    }
}

/// Makes `tbbo` records.
#[derive(Debug, Default)]
pub(crate) struct TradesAtBest;

impl Shape for TradesAtBest {
    type Row = Mbp1Msg;

    #[inline]
    fn put(&mut self, update: &NbboUpdate<'_>, _instruments: &Instruments, rows: &mut Rows<Mbp1Msg>) {
        let book = &update.book;
        let event = book.event;
        match trade_of(book) {
            Ok(trade) => {
                let change = Change {
                    price: trade.price,
                    size: trade.size,
                    action: Action::Trade,
                    side: trade.side,
                    flags: event.flags().0,
                    depth: depth(book),
                };
                rows.push(Mbp1Msg::new(event, &change, levels_before::<1>(book)), event);
            }
            Err(reason) => rows.skip(reason_for_nothing::<0>(book, reason)),
        }
    }
}

/// Returns why an update without a record was skipped; `reason` is why it is not a trade.
const fn reason_for_nothing<const N: usize>(book: &BookUpdate<'_>, reason: Skip) -> Skip {
    match book.event.kind {
        EventKind::Execute | EventKind::Trade => reason,
        _ if !matches!(book.outcome, Outcome::Applied) => not_applied(book.outcome),
        EventKind::Add
        | EventKind::Cancel
        | EventKind::Delete
        | EventKind::Replace
        | EventKind::Level
        | EventKind::Quote
            if N > 0 =>
        {
            Skip::NothingShownChanged
        }
        _ => Skip::NotInSchema,
    }
}

/// Returns the levels before an execution. Other trades change no level, so the current levels apply.
#[inline]
fn levels_before<const N: usize>(book: &BookUpdate<'_>) -> [BidAskPair; N] {
    let mut levels = levels::<N>(book);
    if let Some(order) = book.before {
        put_back(&mut levels, &order, book.event.size);
    }
    levels
}

/// Puts the executed shares of an order back on its level.
fn put_back(levels: &mut [BidAskPair], order: &Order, executed: u32) {
    let price = order.price.e9();
    let is_ask = order.side == Side::Ask;
    let price_at = |pair: &BidAskPair| if is_ask { pair.ask_px } else { pair.bid_px };
    let is_gone = executed >= order.size;
    let place = levels.iter().position(|pair| {
        let at = price_at(pair);
        at == price || at == UNDEFINED_PRICE || if is_ask { price < at } else { price > at }
    });
    let Some(place) = place else { return };
    let levels = &mut levels[place..];
    if price_at(&levels[0]) == price {
        let pair = &mut levels[0];
        let (size, count) =
            if is_ask { (&mut pair.ask_sz, &mut pair.ask_ct) } else { (&mut pair.bid_sz, &mut pair.bid_ct) };
        *size = size.saturating_add(executed);
        *count = count.saturating_add(u32::from(is_gone));
        return;
    }
    // The level was removed with the order: move the deeper levels back by one.
    let mut carried = (price, executed, 1);
    for pair in levels {
        let (at, size, count) = if is_ask {
            (&mut pair.ask_px, &mut pair.ask_sz, &mut pair.ask_ct)
        } else {
            (&mut pair.bid_px, &mut pair.bid_sz, &mut pair.bid_ct)
        };
        let old = (*at, *size, *count);
        (*at, *size, *count) = carried;
        carried = old;
    }
}
