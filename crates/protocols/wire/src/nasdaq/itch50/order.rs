//! Decodes the order messages without branching on the type.
//!
//! [`orders`](crate::orders) does the same for other protocols. This version is faster because all ITCH order messages start alike:
//! [`LAYOUTS`] holds the offsets of the other fields. A field that a type lacks is read from the message's start and masked away.

use super::{
    AddOrder, AddOrderWithMpid, OrderCancel, OrderDelete, OrderExecuted, OrderExecutedWithPrice,
    OrderReplace, Printable,
};
use crate::orders::{OrderAction, field};
use crate::schema::Structure;
use crate::{Ascii, NanosecondsSinceMidnight};

/// The fields of the order messages (`A`, `F`, `E`, `C`, `X`, `D`, `U`), in one struct.
///
/// ```
/// use tapeworks_wire::nasdaq::itch50::OrderMessage;
/// use tapeworks_wire::orders::OrderAction;
///
/// // Order delete, locate 7, 1 ns after midnight, reference 9.
/// let message = [b'D', 0, 7, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9];
/// let order = OrderMessage::decode(&message).unwrap();
/// assert_eq!((order.action, order.stock_locate, order.order_reference_number), (OrderAction::Delete, 7, 9));
/// assert_eq!(OrderMessage::decode(b"S"), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderMessage {
    /// The action on the order.
    pub action: OrderAction,
    /// The instrument's locate code for the day.
    pub stock_locate: u16,
    /// The time of the event.
    pub timestamp: NanosecondsSinceMidnight,
    /// The order; for a replacement, the old order.
    pub order_reference_number: u64,
    /// Shares added, executed, cancelled, or of the replacing order; 0 for a deletion.
    pub shares: u32,
    /// For an addition, an execution with price or a replacement: the price, four implied decimals. Otherwise 0, see `has_price`.
    pub price: u32,
    /// Whether the message has a price.
    pub has_price: bool,
    /// The buy/sell indicator of an addition; otherwise 0.
    pub buy_sell_indicator: u8,
    /// The match number of an execution or the new order of a replacement; otherwise 0.
    pub other_number: u64,
    /// Whether an execution with price is marked as not printable.
    pub is_not_printable: bool,
}

impl OrderMessage {
    /// Decodes `message`; `None` if it is not an order message or has the wrong length for its type.
    ///
    /// Cost: one load by type from a 6 KiB table, then loads at the offsets in it. No branch depends on the type.
    #[inline]
    #[must_use]
    pub fn decode(message: &[u8]) -> Option<Self> {
        let start = message.first_chunk::<START>()?;
        let layout = &LAYOUTS[usize::from(start[0])];
        if usize::from(layout.length) != message.len() {
            return None;
        }
        let [_, l0, l1, t0, t1, t2, t3, t4, t5, t6, t7, r0, r1, r2, r3, r4, r5, r6, r7] = *start;
        let tracking_and_time = u64::from_be_bytes([t0, t1, t2, t3, t4, t5, t6, t7]);
        Some(Self {
            action: layout.action,
            stock_locate: u16::from_be_bytes([l0, l1]),
            timestamp: NanosecondsSinceMidnight(tracking_and_time & LOW_48_BITS),
            order_reference_number: u64::from_be_bytes([r0, r1, r2, r3, r4, r5, r6, r7]),
            shares: u32::from_be_bytes(bytes_at(message, layout.shares)?) & layout.shares_mask,
            price: u32::from_be_bytes(bytes_at(message, layout.price)?) & layout.price_mask,
            has_price: layout.price_mask != 0,
            buy_sell_indicator: *message.get(usize::from(layout.side))? & layout.side_mask,
            other_number: u64::from_be_bytes(bytes_at(message, layout.number)?) & layout.number_mask,
            is_not_printable: *message.get(usize::from(layout.printable))? == NOT_PRINTABLE,
        })
    }

    /// Returns the symbol of an addition. For other messages the result is arbitrary bytes or spaces.
    #[must_use]
    pub fn stock(message: &[u8]) -> Ascii<8> {
        let stock = message.get(STOCK..).and_then(|rest| rest.first_chunk::<8>());
        Ascii(stock.copied().unwrap_or([b' '; 8]))
    }
}

/// Bytes at the start of every order message: type, stock locate, tracking number, timestamp and the first order reference
/// number.
const START: usize = 19;
const LOW_48_BITS: u64 = (1 << 48) - 1;
const STOCK: usize = offset(&AddOrder::SCHEMA, "stock");
/// No order message has this type, so a message without the field can read its type byte instead.
const NOT_PRINTABLE: u8 = Printable::No.raw();

/// The offsets of an order message's fields. A missing field is read from the message's start and masked away.
#[derive(Clone, Copy)]
struct Layout {
    /// Length in bytes; 0 if the type is not an order message.
    length: u8,
    action: OrderAction,
    shares: u8,
    price: u8,
    number: u8,
    side: u8,
    side_mask: u8,
    printable: u8,
    shares_mask: u32,
    price_mask: u32,
    number_mask: u64,
}

impl Layout {
    const NONE: Self = Self {
        length: 0,
        action: OrderAction::Delete,
        shares: 0,
        price: 0,
        number: 0,
        side: 0,
        side_mask: 0,
        printable: 0,
        shares_mask: 0,
        price_mask: 0,
        number_mask: 0,
    };

    /// Builds the layout of `message` from the names of the fields that hold shares, price, match number or new reference, and side
    /// (empty if absent). Fails to compile if the declaration lacks such a field, or if the message does not start like every order
    /// message.
    const fn of(message: &Structure, action: OrderAction, [shares, price, number, side]: [&str; 4]) -> Self {
        assert!(offset(message, "stock_locate") == 1 && offset(message, "timestamp") == 5);
        let reference = if matches!(action, OrderAction::Replace) {
            "original_order_reference_number"
        } else {
            "order_reference_number"
        };
        assert!(offset(message, reference) + 8 == START && message.minimum_length <= u8::MAX as usize);
        Self {
            length: message.minimum_length as u8,
            action,
            shares: offset(message, shares) as u8,
            price: offset(message, price) as u8,
            number: offset(message, number) as u8,
            side: offset(message, side) as u8,
            side_mask: if side.is_empty() { 0 } else { u8::MAX },
            printable: 0,
            shares_mask: if shares.is_empty() { 0 } else { u32::MAX },
            price_mask: if price.is_empty() { 0 } else { u32::MAX },
            number_mask: if number.is_empty() { 0 } else { u64::MAX },
        }
    }
}

/// Returns the offset of the field `name`; 0 for an empty name.
const fn offset(message: &Structure, name: &str) -> usize {
    if name.is_empty() { 0 } else { field(message, name).offset }
}

/// The layouts by message type.
static LAYOUTS: [Layout; 256] = {
    let mut table = [Layout::NONE; 256];
    let added = ["shares", "price", "", "buy_sell_indicator"];
    table[AddOrder::TAG as usize] = Layout::of(&AddOrder::SCHEMA, OrderAction::Add, added);
    table[AddOrderWithMpid::TAG as usize] = Layout::of(&AddOrderWithMpid::SCHEMA, OrderAction::Add, added);
    let executed = ["executed_shares", "", "match_number", ""];
    table[OrderExecuted::TAG as usize] = Layout::of(&OrderExecuted::SCHEMA, OrderAction::Execute, executed);
    let executed = ["executed_shares", "execution_price", "match_number", ""];
    table[OrderExecutedWithPrice::TAG as usize] = Layout {
        printable: offset(&OrderExecutedWithPrice::SCHEMA, "printable") as u8,
        ..Layout::of(&OrderExecutedWithPrice::SCHEMA, OrderAction::Execute, executed)
    };
    let cancelled = ["cancelled_shares", "", "", ""];
    table[OrderCancel::TAG as usize] = Layout::of(&OrderCancel::SCHEMA, OrderAction::Cancel, cancelled);
    table[OrderDelete::TAG as usize] = Layout::of(&OrderDelete::SCHEMA, OrderAction::Delete, [""; 4]);
    let replaced = ["shares", "price", "new_order_reference_number", ""];
    table[OrderReplace::TAG as usize] = Layout::of(&OrderReplace::SCHEMA, OrderAction::Replace, replaced);
    table
};

/// Returns `N` bytes at `offset`, which is in bounds for every layout with the message's length.
#[inline]
fn bytes_at<const N: usize>(message: &[u8], offset: u8) -> Option<[u8; N]> {
    let offset = usize::from(offset);
    message.get(offset..offset + N)?.first_chunk().copied()
}
