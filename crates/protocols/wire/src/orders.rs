//! Decodes the order messages of any protocol without branching on the type.
//!
//! Nineteen in twenty messages are about orders, and their types are unpredictable. A branch on the type is mispredicted for every
//! second message and costs more than reading the fields. [`OrderMessages`] avoids it: the compiler computes from the declaration where
//! each field is, by type, and the same code reads all types: eight bytes, a shift and a mask per field. A field that a type lacks is
//! read from somewhere in the message and masked away.

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
    /// A resting order changes its price, size or queue position, and keeps its number.
    Modify,
}

/// The fields of an order message. Fields that its type lacks are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderFields {
    /// The action on the order.
    pub action: OrderAction,
    /// The venue's number for the instrument, or its symbol as a little-endian number of eight bytes, zero-padded.
    pub instrument: u64,
    /// The time of the event, in the venue's unit.
    pub time: u64,
    /// The order; for a replacement, the old order.
    pub order_id: u64,
    /// The number of the trade or of the replacing order.
    pub other_number: u64,
    /// Shares added, executed or cancelled, or the shares of the changed order.
    pub shares: u32,
    /// The raw price in the message.
    pub price: u64,
    /// The unit of [`price`](Self::price) in 1e-9: 1 if the message does not define its decimals, 0 without a price.
    pub price_unit: u32,
    /// The byte of the side.
    pub side: u8,
    /// The byte of the flags.
    pub flags: u8,
}

/// The names of a message's fields; empty if the message lacks the field.
#[derive(Clone, Copy, Debug)]
pub struct OrderFieldNames {
    /// The field for [`OrderFields::instrument`].
    pub instrument: &'static str,
    /// The field for [`OrderFields::time`].
    pub time: &'static str,
    /// The field for [`OrderFields::order_id`].
    pub order_id: &'static str,
    /// The field for [`OrderFields::other_number`].
    pub other_number: &'static str,
    /// The field for [`OrderFields::shares`].
    pub shares: &'static str,
    /// The field for [`OrderFields::price`].
    pub price: &'static str,
    /// The field for [`OrderFields::side`].
    pub side: &'static str,
    /// The field for [`OrderFields::flags`].
    pub flags: &'static str,
}

impl OrderFieldNames {
    /// No fields.
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

/// Bytes read for a field.
const WINDOW: usize = 8;

/// The location of a field: in the eight bytes from `at`, after a right shift by `shift` bits, under `mask`.
#[derive(Clone, Copy, Debug)]
struct Place {
    mask: u64,
    at: u8,
    shift: u8,
}

impl Place {
    const NONE: Self = Self { mask: 0, at: 0, shift: 0 };

    /// Locates the field `name` of at most `most` bytes. Fails to compile if it is missing, or if the message is too short for the read.
    const fn of(message: &Structure, name: &str, most: usize, is_big: bool) -> Self {
        if name.is_empty() {
            return Self::NONE;
        }
        let field = field(message, name);
        assert!(field.length <= most);
        // The letters of a symbol form a little-endian number.
        let is_field_big = matches!(field.endian, Endian::Big) && !matches!(field.kind, Kind::Ascii);
        assert!(is_big == is_field_big);
        let Some(length) = message.full_length else { panic!("the message has no length of its own") };
        // Prefer the eight bytes in which the field is lowest and needs no shift; otherwise use the eight bytes on its other side.
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

/// The location of a one-byte field.
#[derive(Clone, Copy, Debug)]
struct Byte {
    at: u8,
    mask: u8,
}

impl Byte {
    const NONE: Self = Self { at: 0, mask: 0 };

    /// Locates the field `name`. Fails to compile if it is missing.
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

/// Returns the field `name`. Fails to compile if it is missing.
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

/// Returns whether two byte strings are equal. For constants, which cannot use `==`.
pub const fn is_same(one: &[u8], other: &[u8]) -> bool {
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

/// The layout of a message type.
#[derive(Clone, Copy, Debug)]
struct Layout {
    /// Length in bytes; 0 if the type is not an order message.
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

/// The most order message types in a protocol, plus one.
const LAYOUTS: usize = 16;

/// The order messages of a protocol, as a constant, so that the compiler knows what all of them share.
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
    /// Whether numbers are big-endian.
    is_big: bool,
    /// The offset of the byte that distinguishes the types.
    tag: usize,
    /// The bits of the first eight bytes that are the same in all messages, and their values.
    common_mask: u64,
    common: u64,
    /// Fields at the same location in all messages.
    time: Place,
    order_id: Place,
    /// Indexes into `layouts` by the tag byte. The first layout is for other messages.
    by_tag: [u8; 256],
    layouts: [Layout; LAYOUTS],
    count: usize,
    /// Which fields need a shift in some layout.
    shifted: Shifted,
}

/// Which fields need a shift in some message. Most fields need none, and the shift is then omitted.
#[derive(Clone, Copy, Debug)]
struct Shifted {
    instrument: bool,
    other_number: bool,
    shares: bool,
    price: bool,
}

impl OrderMessages {
    /// Creates a decoder without any messages of `protocol`.
    ///
    /// # Panics
    /// The type is not a one- or two-byte number within the first eight bytes.
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

    /// Adds a message type.
    ///
    /// # Panics
    /// A named field is missing, time or order are at another location than in the earlier types, or there are too many types.
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

    /// Decodes `message`; `None` if it is not an order message, or does not have the full length of its type.
    ///
    /// Cost: one load by type, then loads at the offsets in it. No branch depends on the type.
    #[inline(always)]
    #[must_use]
    pub fn decode(&self, message: &[u8]) -> Option<OrderFields> {
        // Of the fields that all messages share, this one is farthest from the start, so one length check suffices.
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
