//! `mbo`: every order and trade.
//!
//! | event | records | |
//! | --- | --- | --- |
//! | addition | `A` | |
//! | cancellation | `C` | with the shares cancelled, or all that were left |
//! | replacement | `C`, `A` | the old order leaves, the new one joins with its own id |
//! | change of an order that keeps its id | `M` | DBN readers preserve its priority if its price is unchanged and its size does not grow |
//! | a change to the price, shares and priority that it already has | | |
//! | the same, but the venue reports a different priority | `C`, `A` | |
//! | execution or cancellation of more than the order has, replacement by an order that the book refuses | `C` | the order leaves |
//! | execution | `T`, `F`, `C` | trade (side of the aggressor), fill of the resting order, its reduction |
//! | non-printable execution | `F`, `C` | the auction's own message reports the trade once for all |
//! | trade of a hidden order, auction | `T` | |
//! | clearing | `R` | one for each instrument that the feed lists |
//!
//! Only the last record of an event carries LAST. `T` and `F` never change a book; the `C` that follows does, at the price of
//! the order. Price levels and quotes are not orders: they are counted and left to `mbp-1` and `mbp-10`, because writing them
//! here would invent orders.

use std::ffi::c_char;

use dbn::{FlagSet, MboMsg};
use tapeworks_market::book::{BookUpdate, Outcome};
use tapeworks_market::event::{Event, EventKind};
use tapeworks_market::price::{UNDEFINED_PRICE, price_e9};
use tapeworks_market::{Action, Instruments, NbboUpdate, Side};

use super::{Clearing, Shape, clears, not_applied, without_last};
use crate::records::{header, letter, sequence};
use crate::rows::Rows;
use crate::summary::Skip;

/// Makes `mbo` records.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    clearing: Clearing,
}

struct Order {
    id: u64,
    price: i64,
    size: u32,
    action: Action,
    side: Side,
    flags: u8,
}

#[inline(always)]
fn record(event: &Event, order: Order) -> MboMsg {
    MboMsg {
        hd: header::<MboMsg>(dbn::rtype::MBO, event),
        order_id: order.id,
        price: order.price,
        size: order.size,
        flags: FlagSet::from(order.flags),
        // DBN has one byte. A larger channel number saturates, so that it cannot be mistaken for another channel.
        channel_id: u8::try_from(event.channel).unwrap_or(u8::MAX),
        action: order.action as u8 as c_char,
        side: letter(order.side),
        ts_recv: event.ts_recv.0,
        ts_in_delta: event.ts_in_delta(),
        sequence: sequence(event),
    }
}

impl Shape for Orders {
    type Row = MboMsg;

    #[inline]
    fn put(&mut self, update: &NbboUpdate<'_>, instruments: &Instruments, rows: &mut Rows<MboMsg>) {
        let book = &update.book;
        let event = book.event;
        if book.outcome != Outcome::Applied {
            return Self::refused(book, rows);
        }
        let (flags, open) = (event.flags().0, without_last(event.flags()));
        let (side, size) = (event.side, event.size);
        let price = price_e9(event.price);
        match event.kind {
            EventKind::Add | EventKind::Cancel | EventKind::Delete => {
                // The book has filled in the order's side and price, and the full size of a deleted order.
                let action = if event.kind == EventKind::Add { Action::Add } else { Action::Cancel };
                let order = Order { id: event.order_id, price, size, action, side, flags };
                rows.push(record(event, order), event);
            }
            EventKind::Replace => {
                let Some(before) = &book.before else { return rows.skip(Skip::UnknownOrder) };
                if is_modification(event, before) {
                    if (price, size) == (before.price.e9(), before.size) {
                        return rows.skip(Skip::NothingShownChanged);
                    }
                    let order =
                        Order { id: event.order_id, price, size, action: Action::Modify, side, flags };
                    return rows.push(record(event, order), event);
                }
                let old = Order {
                    id: before.id,
                    price: before.price.e9(),
                    size: before.size,
                    action: Action::Cancel,
                    side,
                    flags: open,
                };
                let new = Order { id: event.aux, price, size, action: Action::Add, side, flags };
                rows.push(record(event, old), event);
                rows.push(record(event, new), event);
            }
            EventKind::Execute => {
                let Some(before) = &book.before else { return rows.skip(Skip::UnknownOrder) };
                let aggressor = side.opposite();
                let trade = Order { id: 0, price, size, action: Action::Trade, side: aggressor, flags: open };
                let fill = Order { id: before.id, price, size, action: Action::Fill, side, flags: open };
                let price = before.price.e9();
                let reduction = Order { id: before.id, price, size, action: Action::Cancel, side, flags };
                if event.detail & Event::NOT_PRINTABLE == 0 {
                    rows.push(record(event, trade), event);
                }
                rows.push(record(event, fill), event);
                rows.push(record(event, reduction), event);
            }
            EventKind::Trade => {
                if size == 0 || event.price.is_none() {
                    return rows.skip(Skip::EmptyTrade);
                }
                let id = if event.is_wide() { 0 } else { event.order_id };
                let trade = Order { id, price, size, action: Action::Trade, side, flags };
                rows.push(record(event, trade), event);
            }
            EventKind::Level | EventKind::Quote => rows.skip(Skip::NotOrderByOrder),
            _ => self.rare(update, instruments, rows),
        }
    }
}

/// Returns whether a replacement is a modification in DBN's sense: the order keeps its id, and it keeps its priority if its
/// price is unchanged and its size does not grow.
#[inline]
fn is_modification(event: &Event, before: &tapeworks_market::orders::Order) -> bool {
    let keeps = event.detail & Event::KEEPS_PRIORITY != 0;
    let may_keep = event.price == Some(before.price) && event.size <= before.size;
    event.order_id == event.aux && keeps == may_keep
}

impl Orders {
    /// Handles an update that the book did not apply. The update may still have removed an order, if more was executed than
    /// the order had or its replacement was refused. Write a cancellation then, so that a reader's book loses the order too.
    #[cold]
    #[inline(never)]
    fn refused(book: &BookUpdate<'_>, rows: &mut Rows<MboMsg>) {
        let Some(before) = &book.before else { return rows.skip(not_applied(book.outcome)) };
        let event = book.event;
        let size = match event.kind {
            EventKind::Replace => before.size,
            _ => event.size.min(before.size),
        };
        let cancellation = Order {
            id: before.id,
            price: before.price.e9(),
            size,
            action: Action::Cancel,
            side: before.side,
            flags: event.flags().0,
        };
        rows.push(record(event, cancellation), event);
    }

    #[cold]
    #[inline(never)]
    fn rare(&mut self, update: &NbboUpdate<'_>, instruments: &Instruments, rows: &mut Rows<MboMsg>) {
        let event = update.book.event;
        let cleared = clears(event)
            && self.clearing.spread(&update.book, instruments, |event| {
                let order = Order {
                    id: 0,
                    price: UNDEFINED_PRICE,
                    size: 0,
                    action: Action::Clear,
                    side: Side::None,
                    flags: event.flags().0,
                };
                rows.push(record(event, order), event);
            });
        if !cleared {
            rows.skip(Skip::NotInSchema);
        }
    }
}
