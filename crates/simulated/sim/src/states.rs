//! The books that result from a client's records: orders and quotes.

use std::collections::BTreeMap;
use std::hash::{Hash as _, Hasher as _};

use dbn::{BboMsg, CbboMsg, Cmbp1Msg, FlagSet, MboMsg, Mbp1Msg, Mbp10Msg, RecordRef};
use rustc_hash::{FxHashMap, FxHasher};

/// A book: the number of a feed, 0 for the NBBO, and of an instrument.
pub(crate) type Book = (u16, u32);

/// An order: its side, price and size.
type Order = (i8, i64, u32);

/// Returns the hash of a record's bytes.
pub(crate) fn hash_of(bytes: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    bytes.hash(&mut hasher);
    hasher.finish()
}

/// The state of all books.
#[derive(Debug, Default)]
pub(crate) struct States {
    orders: FxHashMap<Book, FxHashMap<u64, Order>>,
    /// Hashes of the levels, by kind of record.
    quotes: FxHashMap<(u8, Book), u64>,
}

/// Returns the flags of a record with levels, and the hash of the levels.
pub(crate) fn levels_of(record: RecordRef<'_>) -> Option<(FlagSet, u64)> {
    /// Hashes the levels, which are at the end of a record.
    fn hash<R>(record: RecordRef<'_>, flags: FlagSet, levels_bytes: usize) -> Option<(FlagSet, u64)> {
        let bytes = record.as_ref();
        let from = size_of::<R>().checked_sub(levels_bytes)?;
        Some((flags, hash_of(bytes.get(from..)?)))
    }
    if let Some(one) = record.get::<Mbp1Msg>() {
        return hash::<Mbp1Msg>(record, one.flags, size_of_val(&one.levels));
    }
    if let Some(one) = record.get::<Mbp10Msg>() {
        return hash::<Mbp10Msg>(record, one.flags, size_of_val(&one.levels));
    }
    if let Some(one) = record.get::<BboMsg>() {
        return hash::<BboMsg>(record, one.flags, size_of_val(&one.levels));
    }
    if let Some(one) = record.get::<CbboMsg>() {
        return hash::<CbboMsg>(record, one.flags, size_of_val(&one.levels));
    }
    let one = record.get::<Cmbp1Msg>()?;
    hash::<Cmbp1Msg>(record, one.flags, size_of_val(&one.levels))
}

/// Returns the book that a record belongs to. A record of the NBBO has the number of the feed that changed it.
pub(crate) fn book_of(rtype: u8, publisher: u16, instrument: u32) -> Book {
    let is_across = [dbn::rtype::CMBP_1, dbn::rtype::CBBO_1S, dbn::rtype::CBBO_1M].contains(&rtype);
    (if is_across { 0 } else { publisher }, instrument)
}

impl States {
    /// Applies a record. Returns whether it belongs to a snapshot.
    pub(crate) fn apply(&mut self, record: RecordRef<'_>) -> bool {
        let header = record.header();
        let book = book_of(header.rtype, header.publisher_id, header.instrument_id);
        if let Some((flags, hash)) = levels_of(record) {
            self.quotes.insert((header.rtype, book), hash);
            return flags.is_snapshot();
        }
        let Some(order) = record.get::<MboMsg>() else { return false };
        let orders = self.orders.entry(book).or_default();
        match u8::try_from(order.action).map_or(' ', char::from) {
            'A' | 'M' => {
                orders.insert(order.order_id, (order.side, order.price, order.size));
            }
            'C' => {
                if let Some((_, _, left)) = orders.get_mut(&order.order_id) {
                    *left = left.saturating_sub(order.size);
                    if *left == 0 {
                        orders.remove(&order.order_id);
                    }
                }
            }
            'R' => orders.clear(),
            _ => {}
        }
        order.flags.is_snapshot()
    }

    /// Returns the orders of each non-empty book.
    pub(crate) fn orders(&self) -> BTreeMap<Book, BTreeMap<u64, Order>> {
        let of_book =
            |orders: &FxHashMap<u64, Order>| orders.iter().map(|(id, order)| (*id, *order)).collect();
        let books = self.orders.iter().filter(|(_, orders)| !orders.is_empty());
        books.map(|(book, orders)| (*book, of_book(orders))).collect()
    }

    /// Returns the hashes of the levels for this kind of record.
    pub(crate) fn quotes(&self, rtype: u8) -> BTreeMap<Book, u64> {
        let of_kind = self.quotes.iter().filter(|((kind, _), _)| *kind == rtype);
        of_kind.map(|((_, book), hash)| (*book, *hash)).collect()
    }
}
