//! Converts a client's FIX messages to requests. An unmapped field is refused, and the refusal names its tag.
//!
//! The typed view checks and reads the declared fields. A walk over the message then finds tags that the table does not map; a new
//! order whose view has seen only mapped fields is not walked. A client's settings may name tags to ignore, which the translator
//! counts.

use tapeworks_fix_wire::order_entry::{
    HandlInst, MassQuote, NewOrderSingle, OrdType, OrderCancelReplaceRequest, OrderCapacity, Party,
    QuoteEntry, Side, TimeInForce,
};
use tapeworks_fix_wire::{Entries, FieldSet, IgnoredTags, Parsed, tag};
use tapeworks_wire::{Ascii, Decimal, NanosecondsSinceEpoch};

use crate::ids::{InstrumentIndex, VenueName};
use crate::mapping::{PLAIN_OF_NEW, Tags};
use crate::reference::{Instrument, Reference};
use crate::refusal::Refusal;
use crate::request::{NewOrder, Parties, Quote, QuoteSide};
use crate::risk::E8;
use crate::route::is_of_route;

const DAY_S: u64 = 86_400;
const SECOND_NS: u64 = 1_000_000_000;

/// PartyRole (452).
const CLIENT: i64 = 3;
const EXECUTING_TRADER: i64 = 12;
const DECISION_MAKER: i64 = 122;

/// Mapped fields of a new order, and fields of the session. Groups are excluded, because their entries have tags too. So are the
/// routing tags, which must be looked up.
const MAPPED_OF_NEW: FieldSet = NewOrderSingle::fields(&PLAIN_OF_NEW);

/// Returns whether a new order has only mapped fields, according to its view: a walk over the fields costs much more. A message
/// with parties or routing tags is walked.
#[inline]
pub(crate) const fn has_only_mapped(view: &NewOrderSingle<'_>) -> bool {
    view.has_only(MAPPED_OF_NEW)
}

/// The result of a walk over the fields of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Walked {
    /// The number of ignored tags.
    pub(crate) ignored: u64,
    /// Whether it has routing tags: see [`Route`](crate::Route).
    pub(crate) has_route: bool,
}

/// Refuses the first tag that is neither mapped nor ignored.
#[inline]
pub(crate) fn check_tags(
    message: &Parsed<'_>,
    mapped: &Tags,
    ignored: &IgnoredTags,
) -> Result<Walked, Refusal> {
    let mut walked = Walked::default();
    for part in message.parts() {
        if mapped.has(part.tag) {
            walked.has_route |= is_of_route(part.tag);
            continue;
        }
        if !ignored.has(part.tag) {
            return Err(Refusal::NoCounterpart { tag: part.tag });
        }
        walked.ignored += 1;
    }
    Ok(walked)
}

/// The terms of an order, as in the message.
struct Terms<'a> {
    account: Option<&'a [u8]>,
    exec_inst: Option<&'a [u8]>,
    handl_inst: Option<HandlInst>,
    side: Side,
    kind: OrdType,
    order_qty: Option<Decimal<i64, 8>>,
    price: Option<Decimal<i64, 8>>,
    stop_px: Option<Decimal<i64, 8>>,
    time_in_force: Option<TimeInForce>,
    expire_date: Option<u32>,
    expire_time: Option<NanosecondsSinceEpoch>,
    min_qty: Option<Decimal<i64, 8>>,
    shown: [(u32, Option<Decimal<i64, 8>>); 3],
    capacity: Option<OrderCapacity>,
}

/// The fields that a new order and a replace share. A macro, because the views are two types with the same accessors.
macro_rules! terms {
    ($view:expr) => {
        Terms {
            account: $view.account(),
            exec_inst: $view.exec_inst(),
            handl_inst: $view.handl_inst(),
            side: $view.side(),
            kind: $view.ord_type(),
            order_qty: $view.order_qty(),
            price: $view.price(),
            stop_px: $view.stop_px(),
            time_in_force: $view.time_in_force(),
            expire_date: $view.expire_date(),
            expire_time: $view.expire_time(),
            min_qty: $view.min_qty(),
            shown: [
                (tag::DISPLAY_QTY, $view.display_qty()),
                (tag::MAX_SHOW, $view.max_show()),
                (tag::MAX_FLOOR, $view.max_floor()),
            ],
            capacity: $view.order_capacity(),
        }
    };
}

/// Refuses values that would reach the venue as other values. A store may hold messages that an earlier version accepted.
#[inline]
pub(crate) fn check_values(
    expire_time: Option<NanosecondsSinceEpoch>,
    order: &NewOrder,
) -> Result<(), Refusal> {
    // The venues' times are whole seconds.
    if expire_time.is_some_and(|time| time.0 % SECOND_NS != 0) {
        return Err(Refusal::Value { tag: tag::EXPIRE_TIME });
    }
    // Checks all bytes without a branch each; the padding is printable too.
    let is_printable = order.account.0.iter().fold(true, |all, byte| all & (b' '..=b'~').contains(byte));
    if is_printable { Ok(()) } else { Err(Refusal::Value { tag: tag::ACCOUNT }) }
}

/// Builds a new order for an instrument. Its name is blank.
#[inline]
pub(crate) fn new_order(
    view: &NewOrderSingle<'_>,
    reference: &Reference,
    index: InstrumentIndex,
) -> Result<NewOrder, Refusal> {
    let instrument = reference.instrument(index).ok_or(Refusal::UnknownInstrument)?;
    let parties = parties(view.parties(), reference)?;
    order_of(&terms!(view), parties, instrument, None)
}

/// Builds the order that a replace requests. Time in force, expiry, capacity, account and parties are kept if the message omits
/// them.
#[inline]
pub(crate) fn replacement(
    view: &OrderCancelReplaceRequest<'_>,
    reference: &Reference,
    index: InstrumentIndex,
    before: &NewOrder,
) -> Result<NewOrder, Refusal> {
    let named = view.symbol().is_some() || view.security_id().is_some();
    if named && reference.find(view.symbol(), view.security_id()) != Some(index) {
        return Err(Refusal::Value {
            tag: if view.security_id().is_some() { tag::SECURITY_ID } else { tag::SYMBOL },
        });
    }
    let instrument = reference.instrument(index).ok_or(Refusal::UnknownInstrument)?;
    let given = parties(view.parties(), reference)?;
    let parties = if given == Parties::default() { before.parties } else { given };
    order_of(&terms!(view), parties, instrument, Some(before))
}

/// Inlined, so that neither the terms nor the order pass through memory.
#[inline(always)]
fn order_of(
    terms: &Terms<'_>,
    parties: Parties,
    instrument: &Instrument,
    before: Option<&NewOrder>,
) -> Result<NewOrder, Refusal> {
    if terms.handl_inst == Some(HandlInst::Manual) {
        return Err(Refusal::Value { tag: tag::HANDL_INST });
    }
    let is_passive_only = match terms.exec_inst {
        None => false,
        Some(b"6") => true,
        Some(_) => return Err(Refusal::Value { tag: tag::EXEC_INST }),
    };
    let has_limit = matches!(terms.kind, OrdType::Limit | OrdType::StopLimit | OrdType::Pegged);
    let has_stop = matches!(terms.kind, OrdType::Stop | OrdType::StopLimit);
    let price_e8 = price(terms.price, tag::PRICE, has_limit, instrument)?;
    let stop_e8 = price(terms.stop_px, tag::STOP_PX, has_stop, instrument)?;
    let quantity = whole(terms.order_qty.ok_or(Refusal::Missing { tag: tag::ORDER_QTY })?, tag::ORDER_QTY)?;
    if quantity == 0 {
        return Err(Refusal::Value { tag: tag::ORDER_QTY });
    }
    let mut display = None;
    for (tag, shown) in terms.shown {
        let Some(shown) = shown else { continue };
        let shown = whole(shown, tag)?;
        if shown > quantity || display.is_some_and(|other| other != shown) {
            return Err(Refusal::Value { tag });
        }
        display = Some(shown);
    }
    let minimum = terms.min_qty.map_or(Ok(0), |minimum| whole(minimum, tag::MIN_QTY))?;
    if minimum > quantity {
        return Err(Refusal::Value { tag: tag::MIN_QTY });
    }
    let account = match terms.account {
        None => before.map_or(Ascii::default(), |before| before.account),
        Some(text) => Ascii::padded(text).ok_or(Refusal::Value { tag: tag::ACCOUNT })?,
    };
    let time_in_force =
        terms.time_in_force.or(before.map(|before| before.time_in_force)).unwrap_or(TimeInForce::Day);
    Ok(NewOrder {
        name: VenueName::default(),
        side: terms.side,
        kind: terms.kind,
        time_in_force,
        expire_s: expiry(terms, time_in_force, before)?,
        quantity,
        display: display.unwrap_or(quantity),
        minimum,
        price_e8,
        stop_e8,
        capacity: terms.capacity.or(before.and_then(|before| before.capacity)),
        account,
        parties,
        is_passive_only,
    })
}

/// Checks a price that the order type requires or forbids.
#[inline]
fn price(
    given: Option<Decimal<i64, 8>>,
    tag: u32,
    is_needed: bool,
    instrument: &Instrument,
) -> Result<i64, Refusal> {
    match (given, is_needed) {
        (None, true) => Err(Refusal::Missing { tag }),
        (None, false) => Ok(0),
        (Some(_), false) => Err(Refusal::Value { tag }),
        (Some(price), true) if instrument.tick_e8 > 1 && price.0 % instrument.tick_e8 != 0 => {
            Err(Refusal::Tick)
        }
        (Some(price), true) => Ok(price.0),
    }
}

/// Converts a quantity to whole units. It must fit into a signed 32-bit number.
#[inline]
fn whole(quantity: Decimal<i64, 8>, tag: u32) -> Result<u32, Refusal> {
    let is_whole = quantity.0 % E8 == 0;
    let units = i32::try_from(quantity.0 / E8).ok().and_then(|units| u32::try_from(units).ok());
    units.filter(|_| is_whole).ok_or(Refusal::Value { tag })
}

#[inline]
fn expiry(terms: &Terms<'_>, time_in_force: TimeInForce, before: Option<&NewOrder>) -> Result<u32, Refusal> {
    let (seconds, tag) = match (terms.expire_time, terms.expire_date) {
        (Some(time), None) => (time.0 / SECOND_NS, tag::EXPIRE_TIME),
        (None, Some(days)) => (u64::from(days) * DAY_S + DAY_S - 1, tag::EXPIRE_DATE),
        (Some(_), Some(_)) => return Err(Refusal::Value { tag: tag::EXPIRE_DATE }),
        (None, None) => match before {
            Some(before) if before.time_in_force == time_in_force => return Ok(before.expire_s),
            _ if time_in_force == TimeInForce::GoodTillDate => {
                return Err(Refusal::Missing { tag: tag::EXPIRE_TIME });
            }
            _ => return Ok(0),
        },
    };
    if time_in_force != TimeInForce::GoodTillDate {
        return Err(Refusal::Value { tag });
    }
    u32::try_from(seconds).map_err(|_| Refusal::Value { tag })
}

pub(crate) fn parties<'a>(
    entries: Entries<'a, Party<'a>>,
    reference: &Reference,
) -> Result<Parties, Refusal> {
    let mut parties = Parties::default();
    for party in entries {
        let place = match party.party_role() {
            Some(CLIENT) => &mut parties.client,
            Some(DECISION_MAKER) => &mut parties.decision_maker,
            Some(EXECUTING_TRADER) => &mut parties.trader,
            Some(_) => return Err(Refusal::Value { tag: tag::PARTY_ROLE }),
            None => return Err(Refusal::Missing { tag: tag::PARTY_ROLE }),
        };
        let code = reference.short_code(party.party_id()).filter(|code| *code != 0);
        // A role may occur only once.
        if *place != 0 {
            return Err(Refusal::Value { tag: tag::PARTY_ROLE });
        }
        *place = code.ok_or(Refusal::Value { tag: tag::PARTY_ID })?;
    }
    Ok(parties)
}

/// QuoteType (537): tradeable.
const TRADEABLE: i64 = 1;

/// The prices and sizes of a Quote, or of an entry of a MassQuote.
pub(crate) struct QuoteTerms<'a> {
    pub(crate) symbol: Option<&'a [u8]>,
    pub(crate) security_id: Option<&'a [u8]>,
    pub(crate) bid: (Option<Decimal<i64, 8>>, Option<Decimal<i64, 8>>),
    pub(crate) offer: (Option<Decimal<i64, 8>>, Option<Decimal<i64, 8>>),
}

/// The fields that a Quote and an entry share. A macro, because the views are two types with the same accessors.
macro_rules! quote_terms {
    ($view:expr) => {
        $crate::incoming::QuoteTerms {
            symbol: $view.symbol(),
            security_id: $view.security_id(),
            bid: ($view.bid_size(), $view.bid_px()),
            offer: ($view.offer_size(), $view.offer_px()),
        }
    };
}
pub(crate) use quote_terms;

impl QuoteTerms<'_> {
    /// Returns the quote and its instrument. Its name is blank.
    pub(crate) fn quote(
        &self,
        reference: &Reference,
        capacity: Option<OrderCapacity>,
        parties: Parties,
    ) -> Result<(InstrumentIndex, Quote), Refusal> {
        let index = reference.find(self.symbol, self.security_id).ok_or(Refusal::UnknownInstrument)?;
        let instrument = reference.instrument(index).ok_or(Refusal::UnknownInstrument)?;
        let bid = quote_side(self.bid, [tag::BID_SIZE, tag::BID_PX], instrument)?;
        let offer = quote_side(self.offer, [tag::OFFER_SIZE, tag::OFFER_PX], instrument)?;
        if bid.quantity == 0 && offer.quantity == 0 {
            return Err(Refusal::Missing { tag: tag::BID_SIZE });
        }
        Ok((index, Quote { name: VenueName::default(), bid, offer, capacity, parties }))
    }
}

fn quote_side(
    (size, px): (Option<Decimal<i64, 8>>, Option<Decimal<i64, 8>>),
    [size_tag, price_tag]: [u32; 2],
    instrument: &Instrument,
) -> Result<QuoteSide, Refusal> {
    let quantity = size.map_or(Ok(0), |size| whole(size, size_tag))?;
    if size.is_none() && px.is_some() {
        return Err(Refusal::Missing { tag: size_tag });
    }
    let price_e8 = if quantity == 0 { 0 } else { price(px, price_tag, true, instrument)? };
    Ok(QuoteSide { quantity, price_e8 })
}

/// Refuses quotes that are not orders, such as indicative quotes and quotes of a negotiation.
pub(crate) fn check_quote_type(quote_type: Option<i64>) -> Result<(), Refusal> {
    if quote_type.is_none_or(|of| of == TRADEABLE) {
        Ok(())
    } else {
        Err(Refusal::Value { tag: tag::QUOTE_TYPE })
    }
}

/// Iterates over the entries of all sets of a MassQuote.
pub(crate) fn entries_of<'a>(view: &MassQuote<'a>) -> impl Iterator<Item = QuoteEntry<'a>> {
    view.quote_sets().flat_map(|set| set.quote_entries())
}

#[cfg(test)]
mod tests {
    use tapeworks_fix_wire::order_entry::{HeaderFields, NewOrderSingleFields, PartyFields};
    use tapeworks_fix_wire::{Parts, Writer};

    use super::*;
    use crate::mapping::OF_NEW;

    /// Returns whether the view alone finds the order mapped, and whether the walk does.
    fn found(order: &NewOrderSingleFields<'_>, more: &[u32]) -> (bool, bool) {
        let time = NanosecondsSinceEpoch(1_709_197_200_000_000_000);
        let mut buffer = [0; 1_024];
        let mut writer = Writer::begin(&mut buffer, b"FIX.4.4", b"D");
        HeaderFields::new(b"A", b"B", 2, time).write(&mut writer);
        let (of_header, behind): (Vec<u32>, Vec<u32>) = more.iter().partition(|tag| is_of_route(**tag));
        of_header.iter().for_each(|tag| _ = writer.text(*tag, b"x"));
        order.write(&mut writer);
        behind.iter().for_each(|tag| _ = writer.text(*tag, b"x"));
        let message = writer.finish().unwrap();
        let mut parts = Parts::default();
        let message = parts.parse(message).unwrap();
        let view = NewOrderSingle::read_parsed(&message).unwrap();
        (has_only_mapped(&view), check_tags(&message, &OF_NEW, &IgnoredTags::default()).is_ok())
    }

    #[test]
    fn the_view_finds_what_the_walk_finds() {
        let time = NanosecondsSinceEpoch(1_709_197_200_000_000_000);
        let one = Some(Decimal(E8));
        let plain = NewOrderSingleFields::new(b"A1", Side::Buy, time, OrdType::Limit);
        let full = NewOrderSingleFields {
            account: Some(b"A"),
            exec_inst: Some(b"6"),
            handl_inst: Some(HandlInst::AutomatedPrivate),
            security_id_source: Some(b"4"),
            order_qty: one,
            price: one,
            security_id: Some(b"1"),
            symbol: Some(b"A"),
            time_in_force: Some(TimeInForce::Day),
            stop_px: one,
            min_qty: one,
            max_floor: one,
            expire_time: Some(time),
            max_show: one,
            expire_date: Some(1),
            order_capacity: Some(OrderCapacity::Agency),
            display_qty: one,
            ..plain
        };
        for order in [plain, full] {
            assert_eq!(found(&order, &[]), (true, true));
            assert_eq!(found(&order, &[9_999]), (false, false), "undeclared");
            assert_eq!(found(&NewOrderSingleFields { currency: Some(b"GBP"), ..order }, &[]), (false, false));
        }
        let party = [PartyFields { party_role: Some(3), ..PartyFields::new(b"7") }];
        let parties = NewOrderSingleFields { parties: &party, ..full };
        assert_eq!(found(&parties, &[]), (false, true), "the walk decides");
        for sender in [50, 115, 116] {
            assert_eq!(found(&full, &[sender]), (false, true), "{sender}: the walk sees whom it is sent for");
        }
    }
}
