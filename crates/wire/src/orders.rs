//! The messages about an order, of any protocol, read without a jump by type.
//!
//! Nineteen in twenty messages are about orders, and their types are unpredictable: a jump by type is mispredicted for every
//! other one, and costs more than the fields. So there is no jump here. [`OrderMessages`] is computed from the declaration at
//! compile time; it has, by type, where each field is, and all types are read by the same code: eight bytes, a shift and a mask
//! for each field. A field that a type lacks is read from somewhere in the message and masked away.

use crate::schema::{Endian, Field, Kind, Schema, Structure};

/// The action on the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum OrderAction {
    /// An order joins the book.
    Add,
    /// A resting order trades.
    Execute,
    /// A resting order loses shares without a trade.
    Cancel,
    /// A resting order leaves the book.
    Delete,
    /// Another order takes the place of a resting one.
    Replace,
    /// A resting order has another price, size or place in the queue, and keeps its number.
    Modify,
}

/// The fields of a message about an order. What its type lacks is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderFields {
    /// What happens.
    pub action: OrderAction,
    /// The venue's number of the instrument, or its symbol as eight bytes of a little-endian number, zeros behind it.
    pub instrument: u64,
    /// When, as the venue counts it.
    pub time: u64,
    /// The order; of a replacement the old order.
    pub order_id: u64,
    /// The number of the trade, or of the order that replaces.
    pub other_number: u64,
    /// Shares added, executed, cancelled, or of the changed order.
    pub shares: u32,
    /// The price as it stands in the message.
    pub price: u64,
    /// What [`price`](Self::price) counts, in 1e-9: 1 if the message does not say its decimals, 0 without a price.
    pub price_unit: u32,
    /// The byte of the side.
    pub side: u8,
    /// The byte of the flags.
    pub flags: u8,
}

/// The names of a message's fields; an empty one: the message has no such field.
#[derive(Clone, Copy, Debug)]
pub struct OrderFieldNames {
    /// Of [`OrderFields::instrument`].
    pub instrument: &'static str,
    /// Of [`OrderFields::time`].
    pub time: &'static str,
    /// Of [`OrderFields::order_id`].
    pub order_id: &'static str,
    /// Of [`OrderFields::other_number`].
    pub other_number: &'static str,
    /// Of [`OrderFields::shares`].
    pub shares: &'static str,
    /// Of [`OrderFields::price`].
    pub price: &'static str,
    /// Of [`OrderFields::side`].
    pub side: &'static str,
    /// Of [`OrderFields::flags`].
    pub flags: &'static str,
}

impl OrderFieldNames {
    /// No field.
    pub const NONE: Self = Self {
        instrument: "",
        time: "",
        order_id: "",
        other_number: "",
        shares: "",
        price: "",
        side: "",
        flags: "",
    };
}

/// Bytes that are read for a field.
const WINDOW: usize = 8;

/// Where a field is: in the eight bytes from `at`, above the lowest `shift` bits, below what `mask` has not.
#[derive(Clone, Copy, Debug)]
struct Place {
    mask: u64,
    at: u8,
    shift: u8,
}

impl Place {
    const NONE: Self = Self { mask: 0, at: 0, shift: 0 };

    /// Of the field `name`, of `most` bytes. Does not compile if there is none, or if the message is too short to read it so.
    const fn of(message: &Structure, name: &str, most: usize, is_big: bool) -> Self {
        if name.is_empty() {
            return Self::NONE;
        }
        let field = field(message, name);
        assert!(field.length <= most);
        // The letters of a symbol are the bytes of a little-endian number.
        let is_field_big = matches!(field.endian, Endian::Big) && !matches!(field.kind, Kind::Ascii);
        assert!(is_big == is_field_big);
        let Some(length) = message.full_length else { panic!("the message has no length of its own") };
        // The eight bytes of which the field is the lowest, without a shift, or else those at its other side.
        let end = field.offset + field.length;
        let (begins, ends) = (field.offset + WINDOW <= length, end >= WINDOW);
        let is_begin = begins && !(is_big && ends);
        let (at, before) = if is_begin { (field.offset, 0) } else { (end - WINDOW, WINDOW - field.length) };
        assert!(at + WINDOW <= length);
        let behind = WINDOW - field.length - before;
        Self {
            mask: u64::MAX >> (8 * (WINDOW - field.length)),
            at: at as u8,
            shift: (8 * if is_big { behind } else { before }) as u8,
        }
    }

    const fn is(self, other: Self) -> bool {
        self.mask == other.mask && self.at == other.at && self.shift == other.shift
    }

    #[inline(always)]
    fn read(self, message: &[u8], is_big: bool, is_shifted: bool) -> Option<u64> {
        let at = usize::from(self.at);
        let bytes = *message.get(at..at + WINDOW)?.first_chunk::<WINDOW>()?;
        let word = if is_big { u64::from_be_bytes(bytes) } else { u64::from_le_bytes(bytes) };
        let shift = if is_shifted { self.shift & 63 } else { 0 };
        Some((word >> shift) & self.mask)
    }
}

/// Where a field of one byte is.
#[derive(Clone, Copy, Debug)]
struct Byte {
    at: u8,
    mask: u8,
}

impl Byte {
    const NONE: Self = Self { at: 0, mask: 0 };

    /// Of the field `name`. Does not compile if there is none.
    const fn of(message: &Structure, name: &str) -> Self {
        if name.is_empty() {
            return Self::NONE;
        }
        let field = field(message, name);
        assert!(field.length == 1);
        Self { at: field.offset as u8, mask: u8::MAX }
    }

    #[inline(always)]
    fn read(self, message: &[u8]) -> Option<u8> {
        message.get(usize::from(self.at)).map(|byte| byte & self.mask)
    }
}

/// The field `name`. Does not compile if there is none.
pub(crate) const fn field(message: &Structure, name: &str) -> &'static Field {
    let fields = message.fields;
    let mut at = 0;
    while at < fields.len() {
        if is_same(fields[at].name.as_bytes(), name.as_bytes()) {
            return &fields[at];
        }
        at += 1;
    }
    panic!("the declaration has no field of this name")
}

/// Returns whether two byte strings are equal; for constants, where `==` is not available.
pub const fn is_same(one: &[u8], other: &[u8]) -> bool {
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

/// A type of message.
#[derive(Clone, Copy, Debug)]
struct Layout {
    /// 0: not a message about an order.
    length: u8,
    action: OrderAction,
    price_unit: u32,
    instrument: Place,
    other_number: Place,
    shares: Place,
    price: Place,
    side: Byte,
    flags: Byte,
}

impl Layout {
    const NONE: Self = Self {
        length: 0,
        action: OrderAction::Delete,
        price_unit: 0,
        instrument: Place::NONE,
        other_number: Place::NONE,
        shares: Place::NONE,
        price: Place::NONE,
        side: Byte::NONE,
        flags: Byte::NONE,
    };

    const fn of(message: &Structure, action: OrderAction, names: &OrderFieldNames, is_big: bool) -> Self {
        let Some(length) = message.full_length else { panic!("the message has no length of its own") };
        assert!(length <= u8::MAX as usize);
        let price_unit = if names.price.is_empty() {
            0
        } else if let Kind::Decimal { places, .. } = field(message, names.price).kind {
            10u32.pow(9 - places as u32)
        } else {
            1
        };
        Self {
            length: length as u8,
            action,
            price_unit,
            instrument: Place::of(message, names.instrument, WINDOW, is_big),
            other_number: Place::of(message, names.other_number, WINDOW, is_big),
            shares: Place::of(message, names.shares, 4, is_big),
            price: Place::of(message, names.price, WINDOW, is_big),
            side: Byte::of(message, names.side),
            flags: Byte::of(message, names.flags),
        }
    }
}

/// Most types of messages about orders in a protocol, and one more.
const LAYOUTS: usize = 16;

/// The messages about an order of a protocol, as a constant: the compiler knows then what is the same in all of them.
///
/// ```
/// use tapeworks_wire::cboe::pitch::{DeleteOrder, ReduceSizeLong, SCHEMA};
/// use tapeworks_wire::orders::{OrderAction, OrderFieldNames, OrderMessages};
///
/// const NAMES: OrderFieldNames =
///     OrderFieldNames { time: "time_offset", order_id: "order_id", ..OrderFieldNames::NONE };
/// const REDUCED: OrderFieldNames = OrderFieldNames { shares: "canceled_quantity", ..NAMES };
/// const ORDERS: OrderMessages = OrderMessages::of(&SCHEMA)
///     .with(&DeleteOrder::SCHEMA, OrderAction::Delete, NAMES)
///     .with(&ReduceSizeLong::SCHEMA, OrderAction::Cancel, REDUCED);
///
/// // Reduce size, 3 ns after the second, order 9, 100 shares.
/// let message = [18, 0x25, 3, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 100, 0, 0, 0];
/// let order = ORDERS.decode(&message).unwrap();
/// assert_eq!((order.action, order.time, order.order_id), (OrderAction::Cancel, 3, 9));
/// assert_eq!((order.shares, order.price_unit), (100, 0));
/// // It is not whole, or not about an order.
/// assert_eq!(ORDERS.decode(&message[..17]), None);
/// assert_eq!(ORDERS.decode(&[6, 0x20, 0, 0, 0, 0]), None);
/// ```
#[derive(Debug)]
pub struct OrderMessages {
    /// Whether numbers have their highest byte first.
    is_big: bool,
    /// Where the byte is in which the types differ.
    tag: usize,
    /// The bits of the first eight bytes that are the same in all messages, and what they are.
    common_mask: u64,
    common: u64,
    /// All messages have these fields at the same place.
    time: Place,
    order_id: Place,
    /// By that byte: the place in `layouts`. The first layout is of no message.
    by_tag: [u8; 256],
    layouts: [Layout; LAYOUTS],
    count: usize,
    /// Whether a layout has these places above other bits.
    shifted: Shifted,
}

/// Which fields are above other bits in the bytes that are read for them, in some message. Most are in none, and then nothing is shifted.
#[derive(Clone, Copy, Debug)]
struct Shifted {
    instrument: bool,
    other_number: bool,
    shares: bool,
    price: bool,
}

impl OrderMessages {
    /// No message of `protocol` yet.
    ///
    /// # Panics
    /// The type is not a number of one or two bytes within the first eight.
    #[must_use]
    pub const fn of(protocol: &Schema) -> Self {
        let is_big = matches!(protocol.endian, Endian::Big);
        let Some(tag) = protocol.tag else { panic!("the protocol has no messages") };
        assert!(tag.length <= 2 && tag.offset + tag.length <= WINDOW);
        let (mut mask, mut common) = ([0; WINDOW], [0; WINDOW]);
        let mut low = tag.offset;
        if tag.length == 2 {
            // The types are below 256.
            low = if is_big { tag.offset + 1 } else { tag.offset };
            mask[if is_big { tag.offset } else { tag.offset + 1 }] = u8::MAX;
        }
        if let Some(constant) = protocol.constant {
            mask[constant.offset] = u8::MAX;
            common[constant.offset] = constant.value;
        }
        Self {
            is_big,
            tag: low,
            common_mask: u64::from_le_bytes(mask),
            common: u64::from_le_bytes(common),
            time: Place::NONE,
            order_id: Place::NONE,
            by_tag: [0; 256],
            layouts: [Layout::NONE; LAYOUTS],
            count: 1,
            shifted: Shifted { instrument: false, other_number: false, shares: false, price: false },
        }
    }

    /// Adds a type.
    ///
    /// # Panics
    /// The declaration has no field of a name, time or order are at another place than in the types before, or there are too many types.
    #[must_use]
    pub const fn with(mut self, message: &Structure, action: OrderAction, names: OrderFieldNames) -> Self {
        let Some(tag) = message.tag else { panic!("the message has no type") };
        assert!(tag < 256 && self.count < LAYOUTS);
        let time = Place::of(message, names.time, WINDOW, self.is_big);
        let order_id = Place::of(message, names.order_id, WINDOW, self.is_big);
        assert!(self.count == 1 || self.time.is(time) && self.order_id.is(order_id));
        (self.time, self.order_id) = (time, order_id);
        self.by_tag[tag as usize] = self.count as u8;
        let layout = Layout::of(message, action, &names, self.is_big);
        self.shifted = Shifted {
            instrument: self.shifted.instrument || layout.instrument.shift != 0,
            other_number: self.shifted.other_number || layout.other_number.shift != 0,
            shares: self.shifted.shares || layout.shares.shift != 0,
            price: self.shifted.price || layout.price.shift != 0,
        };
        self.layouts[self.count] = layout;
        self.count += 1;
        self
    }

    /// Reads `message`; `None` when it is not about an order, or has not the full length of its type.
    ///
    /// Cost: a load by the type, then loads at the places that it names. No branch depends on the type.
    #[inline(always)]
    #[must_use]
    pub fn decode(&self, message: &[u8]) -> Option<OrderFields> {
        // Of what all messages have, this is farthest from the start: one comparison of the length suffices.
        let order_id = self.order_id.read(message, self.is_big, true)?;
        let start = *message.first_chunk::<WINDOW>()?;
        let tag = *start.get(self.tag)?;
        let layout = &self.layouts[usize::from(self.by_tag[usize::from(tag)]) % LAYOUTS];
        let is_common = u64::from_le_bytes(start) & self.common_mask == self.common;
        if usize::from(layout.length) != message.len() || !is_common {
            return None;
        }
        Some(OrderFields {
            action: layout.action,
            instrument: layout.instrument.read(message, self.is_big, self.shifted.instrument)?,
            time: self.time.read(message, self.is_big, true)?,
            order_id,
            other_number: layout.other_number.read(message, self.is_big, self.shifted.other_number)?,
            shares: layout.shares.read(message, self.is_big, self.shifted.shares)? as u32,
            price: layout.price.read(message, self.is_big, self.shifted.price)?,
            price_unit: layout.price_unit,
            side: layout.side.read(message)?,
            flags: layout.flags.read(message)?,
        })
    }
}
