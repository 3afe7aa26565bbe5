//! Field layout: array of structs, struct of arrays, hot and cold fields separated, padding, and the size of an event.

use std::hint::black_box;

use tapeworks_ring::memory::HugeVec;

use crate::measure::{Ended, Lab, Variants};
use crate::random::Random;
use crate::results::Scale;
use crate::technique::{Assembly, Technique, Use};

/// An order with all of its fields, in one cache line.
// ANCHOR: records
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub struct Order {
    price_e9: i64,
    size: u32,
    instrument: u32,
    id: u64,
    entered_ns: u64,
    owner: [u8; 16],
    reference: [u8; 16],
}

/// The same orders, an array for each field.
#[derive(Debug, Default)]
pub struct Columns {
    prices_e9: Vec<i64>,
    sizes: Vec<u32>,
    instruments: Vec<u32>,
    ids: Vec<u64>,
    entered_ns: Vec<u64>,
    owners: Vec<[u8; 16]>,
    references: Vec<[u8; 16]>,
}

/// What is used for every message: four of them in a line. The rest lies in an array of its own.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Hot {
    price_e9: i64,
    size: u32,
    instrument: u32,
}
// ANCHOR_END: records

/// Sums shares times price, without the orders' other fields: 12 of every 64 bytes.
// ANCHOR: baseline
#[inline(never)]
#[must_use]
pub fn value_of_structs(orders: &[Order]) -> u64 {
    orders.iter().fold(0, |sum, order| sum.wrapping_add(value(order.price_e9, order.size)))
}
// ANCHOR_END: baseline

#[inline(always)]
const fn value(price_e9: i64, size: u32) -> u64 {
    (price_e9 as u64).wrapping_mul(size as u64)
}

/// Sums the same from the two arrays that are needed.
// ANCHOR: variant
#[inline(never)]
#[must_use]
pub fn value_of_columns(orders: &Columns) -> u64 {
    let both = orders.prices_e9.iter().zip(&orders.sizes);
    both.fold(0, |sum, (price_e9, size)| sum.wrapping_add(value(*price_e9, *size)))
}
// ANCHOR_END: variant

/// Sums the same from the hot parts.
#[inline(never)]
#[must_use]
pub fn value_of_hot(orders: &[Hot]) -> u64 {
    orders.iter().fold(0, |sum, order| sum.wrapping_add(value(order.price_e9, order.size)))
}

#[inline(always)]
fn fold_all(price: i64, size: u32, instrument: u32, id: u64, entered: u64, texts: [&[u8; 16]; 2]) -> u64 {
    let text = texts.iter().fold(0u64, |sum, text| sum.wrapping_add(u128::from_le_bytes(**text) as u64));
    value(price, size).wrapping_add(u64::from(instrument)).wrapping_add(id ^ entered).wrapping_add(text)
}

/// Reads all fields of orders at random positions: one line each.
#[inline(never)]
#[must_use]
pub fn all_of_structs(orders: &[Order], places: &[u32]) -> u64 {
    places.iter().filter_map(|place| orders.get(*place as usize)).fold(0, |sum, order| {
        let texts = [&order.owner, &order.reference];
        let all = fold_all(order.price_e9, order.size, order.instrument, order.id, order.entered_ns, texts);
        sum.wrapping_add(all)
    })
}

/// Reads the same from the columns: seven lines each.
#[inline(never)]
#[must_use]
pub fn all_of_columns(orders: &Columns, places: &[u32]) -> u64 {
    let all = |place: usize| {
        Some(fold_all(
            *orders.prices_e9.get(place)?,
            *orders.sizes.get(place)?,
            *orders.instruments.get(place)?,
            *orders.ids.get(place)?,
            *orders.entered_ns.get(place)?,
            [orders.owners.get(place)?, orders.references.get(place)?],
        ))
    };
    places.iter().filter_map(|place| all(*place as usize)).fold(0, u64::wrapping_add)
}

/// 48 bytes, packed: two of four records straddle two cache lines.
#[derive(Clone, Copy, Debug, Default, zerocopy::FromZeros)]
#[repr(C)]
pub struct Packed([u64; 6]);

/// The same record, padded to a cache line.
#[derive(Clone, Copy, Debug, Default, zerocopy::FromZeros)]
#[repr(C, align(64))]
pub struct Padded([u64; 6]);

/// Sums the first and last fields of records at random positions, each of which depends on the previous record.
// ANCHOR: padding
#[inline(always)]
fn ends<T>(records: &[T], places: &[u32], zero: u64, fields: impl Fn(&T) -> &[u64; 6]) -> u64 {
    let mut sum = 0u64;
    for place in places {
        let place = *place as usize + sum.wrapping_mul(zero) as usize;
        if let Some([first, .., last]) = records.get(place).map(&fields) {
            sum = sum.wrapping_add(*first).wrapping_add(*last);
        }
    }
    sum
}
// ANCHOR_END: padding

/// Sums the ends of packed records.
#[inline(never)]
#[must_use]
pub fn ends_of_packed(records: &[Packed], places: &[u32], zero: u64) -> u64 {
    ends(records, places, zero, |record| &record.0)
}

/// Sums the ends of padded records.
#[inline(never)]
#[must_use]
pub fn ends_of_padded(records: &[Padded], places: &[u32], zero: u64) -> u64 {
    ends(records, places, zero, |record| &record.0)
}

/// An event of one cache line.
#[derive(Clone, Copy, Debug, Default, zerocopy::FromZeros)]
#[repr(C, align(64))]
pub struct Event64([u64; 8]);

/// The same event with spare room: two cache lines.
#[derive(Clone, Copy, Debug, Default, zerocopy::FromZeros)]
#[repr(C, align(64))]
pub struct Event128 {
    fields: [u64; 8],
    more: [u64; 8],
}

/// Passes events through slots like a ring: each is written to a slot and read from it.
// ANCHOR: events
#[inline(always)]
fn pass<E: Copy>(events: &[E], slots: &mut [E], first: impl Fn(&E) -> u64) -> u64 {
    let mut sum = 0u64;
    for (slot, event) in slots.iter_mut().zip(events) {
        *slot = *event;
    }
    for slot in black_box(&*slots) {
        sum = sum.wrapping_add(first(slot));
    }
    sum
}
// ANCHOR_END: events

/// Passes events of 64 bytes.
#[inline(never)]
#[must_use]
pub fn pass_64(events: &[Event64], slots: &mut [Event64]) -> u64 {
    pass(events, slots, |event| event.0.iter().fold(0, |sum, field| sum.wrapping_add(*field)))
}

/// Passes events of 128 bytes.
#[inline(never)]
#[must_use]
pub fn pass_128(events: &[Event128], slots: &mut [Event128]) -> u64 {
    pass(events, slots, |event| {
        event.fields.iter().chain(&event.more).fold(0, |sum, field| sum.wrapping_add(*field))
    })
}

fn random_orders(random: &mut Random, count: usize) -> Vec<Order> {
    let order = || Order {
        price_e9: random.below(1 << 40) as i64,
        size: random.below(10_000) as u32,
        instrument: random.below(8_192) as u32,
        id: random.number(),
        entered_ns: random.number(),
        owner: u128::from(random.number()).to_le_bytes(),
        reference: u128::from(random.number()).to_le_bytes(),
    };
    std::iter::repeat_with(order).take(count).collect()
}

impl Columns {
    fn of(orders: &[Order]) -> Self {
        Self {
            prices_e9: orders.iter().map(|order| order.price_e9).collect(),
            sizes: orders.iter().map(|order| order.size).collect(),
            instruments: orders.iter().map(|order| order.instrument).collect(),
            ids: orders.iter().map(|order| order.id).collect(),
            entered_ns: orders.iter().map(|order| order.entered_ns).collect(),
            owners: orders.iter().map(|order| order.owner).collect(),
            references: orders.iter().map(|order| order.reference).collect(),
        }
    }
}

impl Hot {
    const fn of(order: &Order) -> Self {
        Self { price_e9: order.price_e9, size: order.size, instrument: order.instrument }
    }
}

fn run(lab: &mut Lab<'_>) -> Result<(), Ended> {
    orders(lab)?;
    padding(lab)?;
    events(lab)
}

fn orders(lab: &mut Lab<'_>) -> Result<(), Ended> {
    let mut random = lab.random();
    let counts = lab.either(vec![256, 8_192, 2_000_000], vec![256, 8_192]);
    let largest = counts.iter().copied().max().unwrap_or_default();
    let all = random_orders(&mut random, largest);
    lab.experiment("two fields of every order, in order", "order");
    lab.along("orders", Scale::Logarithmic);
    for count in &counts {
        let structs = all.get(..*count).unwrap_or_default();
        let columns = Columns::of(structs);
        let hot: Vec<Hot> = structs.iter().map(Hot::of).collect();
        lab.point(
            *count as f64,
            &format!("{count} orders"),
            Variants::of(*count as u64)
                .add("array of structs", || value_of_structs(black_box(structs)))
                .add("hot parts in an array", || value_of_hot(black_box(&hot)))
                .add("struct of arrays", || value_of_columns(black_box(&columns))),
        )?;
    }
    lab.experiment("all fields of orders at random places", "order");
    lab.along("orders", Scale::Logarithmic);
    for count in &counts {
        let structs = all.get(..*count).unwrap_or_default();
        let columns = Columns::of(structs);
        let places = || random.below(*count as u64) as u32;
        let places: Vec<u32> = std::iter::repeat_with(places).take(lab.either(1 << 16, 1 << 11)).collect();
        lab.point(
            *count as f64,
            &format!("{count} orders"),
            Variants::of(places.len() as u64)
                .add("array of structs", || all_of_structs(black_box(structs), &places))
                .add("struct of arrays", || all_of_columns(black_box(&columns), &places)),
        )?;
    }
    Ok(())
}

fn padding(lab: &mut Lab<'_>) -> Result<(), Ended> {
    let mut random = lab.random();
    lab.experiment("records of 48 bytes at random places, packed or padded to a line", "record");
    lab.along("records", Scale::Logarithmic);
    let zero = black_box(0);
    for count in lab.either(vec![256, 8_192, 4_000_000], vec![256, 8_192]) {
        let mut packed = HugeVec::<Packed>::zeroed(count);
        let mut padded = HugeVec::<Padded>::zeroed(count);
        for (packed, padded) in packed.iter_mut().zip(padded.iter_mut()) {
            packed.0.fill_with(|| random.number());
            padded.0 = packed.0;
        }
        let places = || random.below(count as u64) as u32;
        let places: Vec<u32> = std::iter::repeat_with(places).take(lab.either(1 << 16, 1 << 11)).collect();
        lab.point(
            count as f64,
            &format!("{count} records"),
            Variants::of(places.len() as u64)
                .add("packed", || ends_of_packed(black_box(&packed), &places, zero))
                .add("padded", || ends_of_padded(black_box(&padded), &places, zero)),
        )?;
    }
    Ok(())
}

fn events(lab: &mut Lab<'_>) -> Result<(), Ended> {
    let mut random = lab.random();
    lab.experiment("events that are written into slots and read from there", "event");
    lab.along("slots", Scale::Logarithmic);
    for count in lab.either(vec![64, 1_024, 16_384, 1_000_000], vec![64, 1_024]) {
        let mut small = HugeVec::<Event64>::zeroed(count);
        let mut large = HugeVec::<Event128>::zeroed(count);
        for (small, large) in small.iter_mut().zip(large.iter_mut()) {
            small.0.fill_with(|| random.number());
            // The second line is copied and read, but contains nothing.
            large.fields = small.0;
        }
        let mut small_slots = HugeVec::<Event64>::zeroed(count);
        let mut large_slots = HugeVec::<Event128>::zeroed(count);
        lab.point(
            count as f64,
            &format!("{count} slots"),
            Variants::of(count as u64)
                .add("events of 64 bytes", || pass_64(black_box(&small), &mut small_slots))
                .add("events of 128 bytes", || pass_128(black_box(&large), &mut large_slots)),
        )?;
    }
    Ok(())
}

/// The technique.
pub static TECHNIQUE: Technique = Technique {
    number: 26,
    name: "data-layout",
    title: "Data layout",
    question: "Which fields should lie on the same cache line, and what do fields cost that nobody reads?",
    published: &[],
    used: &[
        Use { path: "crates/market/market/src/event.rs", what: "an event is one cache line of 64 bytes" },
        Use {
            path: "crates/market/market/src/book.rs",
            what: "a book is half a line, and its levels lie elsewhere",
        },
        Use { path: "docs/src/decisions/event-size.md", what: "why 64 bytes and not 128" },
    ],
    assembly: &[
        Assembly {
            variant: "array of structs",
            symbol: "tapeworks_lab::catalogue::data_layout::value_of_structs",
            marks: &["imul", "pmul"],
        },
        Assembly {
            variant: "struct of arrays",
            symbol: "tapeworks_lab::catalogue::data_layout::value_of_columns",
            marks: &["imul", "pmul", "movdq"],
        },
    ],
    run,
};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn all_layouts_give_the_same_sums(
            seed in any::<u64>(),
            count in 0usize..40,
            places in prop::collection::vec(0u32..50, 0..40),
        ) {
            let structs = random_orders(&mut Random::new(seed), count);
            let columns = Columns::of(&structs);
            let hot: Vec<Hot> = structs.iter().map(Hot::of).collect();
            let expected = value_of_structs(&structs);
            prop_assert_eq!(value_of_columns(&columns), expected);
            prop_assert_eq!(value_of_hot(&hot), expected);
            prop_assert_eq!(all_of_columns(&columns, &places), all_of_structs(&structs, &places));
        }

        #[test]
        fn padding_and_larger_events_change_nothing(
            records in prop::collection::vec(any::<[u64; 8]>(), 0..30),
            places in prop::collection::vec(0u32..40, 0..40),
        ) {
            let six = |record: &[u64; 8]| *record.first_chunk::<6>().unwrap();
            let packed: Vec<Packed> = records.iter().map(|record| Packed(six(record))).collect();
            let padded: Vec<Padded> = records.iter().map(|record| Padded(six(record))).collect();
            prop_assert_eq!(ends_of_packed(&packed, &places, 0), ends_of_padded(&padded, &places, 0));
            let small: Vec<Event64> = records.iter().map(|record| Event64(*record)).collect();
            let large: Vec<Event128> =
                records.iter().map(|record| Event128 { fields: *record, more: [0; 8] }).collect();
            let mut slots = (vec![Event64::default(); small.len()], vec![Event128::default(); large.len()]);
            let expected = records.iter().flatten().fold(0u64, |sum, field| sum.wrapping_add(*field));
            prop_assert_eq!(pass_64(&small, &mut slots.0), expected);
            prop_assert_eq!(pass_128(&large, &mut slots.1), expected);
        }
    }

    #[test]
    fn sizes_are_as_the_page_says() {
        assert_eq!((size_of::<Order>(), size_of::<Hot>()), (64, 16));
        assert_eq!((size_of::<Packed>(), size_of::<Padded>()), (48, 64));
        assert_eq!((size_of::<Event64>(), size_of::<Event128>()), (64, 128));
        assert_eq!(size_of::<tapeworks_market::Event>(), 64);
    }
}
