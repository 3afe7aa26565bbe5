//! For any set: every value has its own slot, every other value has none, and the same set gives the same function.

#![allow(clippy::unwrap_used)]

use proptest::collection::{btree_set, hash_set};
use proptest::prelude::*;
use tapeworks_dispatch_search::{
    Family, MAX_VALUES, PerfectHash, SearchError, Width, compare, find, find_in,
};

/// The definition, against the set itself.
#[track_caller]
fn assert_perfect(hash: &PerfectHash, values: &[u64], others: impl IntoIterator<Item = u64>) {
    let mut is_taken = vec![false; hash.size()];
    for &value in values {
        let slot = hash.index(value).unwrap_or_else(|| panic!("{value:#x} has no slot: {}", hash.formula()));
        assert!(
            !std::mem::replace(&mut is_taken[slot], true),
            "{value:#x} shares slot {slot}: {}",
            hash.formula()
        );
    }
    let set: std::collections::HashSet<u64> = values.iter().copied().collect();
    for other in others.into_iter().chain(values.iter().map(|value| value ^ 0x80)).chain(0..600) {
        assert_eq!(hash.index(other).is_some(), set.contains(&other), "{other:#x}: {}", hash.formula());
    }
}

/// The best of each family is perfect, and the one that `find` takes is the cheapest of them.
#[track_caller]
fn assert_every_family_perfect(values: &[u64], others: &[u64]) -> PerfectHash {
    let found = find(values).unwrap();
    assert_perfect(&found, values, others.iter().copied());
    for (family, hash) in compare(values, None).unwrap() {
        let Some(hash) = hash else {
            assert_ne!(family, Family::Displace, "the last family never fails");
            continue;
        };
        assert_eq!(hash.formula().family(), family);
        assert_perfect(&hash, values, others.iter().copied());
        assert!(found.cost() <= hash.cost(), "{} over {}", found.formula(), hash.formula());
    }
    found
}

fn ascii(types: &str) -> Vec<u64> {
    types.bytes().map(u64::from).collect()
}

/// Sets of order entry and market data, with the family that should suffice.
fn real_sets() -> Vec<(&'static str, Vec<u64>)> {
    vec![
        ("FIX 4.4, session and orders", ascii("A012345DFGHq89jr")),
        ("LSE and kin, native trading gateway", ascii("A50MNP3jnDFqGS89rCabcdefg")),
        ("Nasdaq OUCH 5.0, outbound", ascii("SAUCDEBJPIMTRQVKXL")),
        ("Nasdaq TotalView-ITCH 5.0", ascii("SRHYLVWKJhAFECXDUPQBINO")),
        (
            "NYSE Pillar integrated feed",
            vec![
                1, 2, 3, 32, 34, 10, 13, 15, 31, 35, 11, 12, 100, 101, 102, 103, 104, 105, 106, 110, 111,
                112, 113, 114, 223,
            ],
        ),
        (
            "Cboe BOE",
            vec![
                0x02, 0x03, 0x08, 0x09, 0x13, 0x24, 0x25, 0x26, 0x27, 0x28, 0x29, 0x2a, 0x2b, 0x2c, 0x2d,
                0x37, 0x38, 0x39, 0x3a,
            ],
        ),
    ]
}

#[test]
fn the_types_of_real_protocols_need_no_more_than_bits_of_the_value() {
    for (name, values) in real_sets() {
        let hash = assert_every_family_perfect(&values, &[u64::MAX, 0x141, 1 << 40]);
        assert!(hash.formula().family() <= Family::Mix, "{name}: {}", hash.formula());
        assert!(hash.size() <= 256, "{name}: {} slots", hash.size());
    }
}

#[test]
fn one_value_and_two_have_a_hash() {
    for values in [vec![0], vec![u64::MAX], vec![0, u64::MAX], vec![0, 1 << 63], vec![7, 8]] {
        assert_every_family_perfect(&values, &[1, 2, u64::MAX - 1, 1 << 62]);
    }
}

#[test]
fn all_values_of_a_byte_and_of_a_word_need_no_table() {
    for count in [256u64, 65_536] {
        let values: Vec<u64> = (0..count).collect();
        let hash = find(&values).unwrap();
        assert!(hash.is_checked_by_bound() && hash.table_bytes() == 0);
        assert_perfect(&hash, &values, [count, count + 1, u64::MAX]);
    }
}

/// Numbers that look random, from a seed.
fn scrambled(count: u64, seed: u64) -> Vec<u64> {
    let mix = |value: u64| {
        let value = (value ^ (value >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        value ^ (value >> 29)
    };
    (1..=count).map(|number| mix(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed)).collect()
}

#[test]
fn the_largest_sets_have_a_hash_however_they_lie() {
    let most = MAX_VALUES as u64;
    let sets: [(&str, Vec<u64>); 6] = [
        ("random", scrambled(most, 5)),
        ("random, 32 bits", {
            let mut values: Vec<u64> = scrambled(most + 4_000, 9).iter().map(|value| value >> 32).collect();
            values.sort_unstable();
            values.dedup();
            values.truncate(MAX_VALUES);
            values
        }),
        ("every seventh", (0..most).map(|number| number * 7).collect()),
        ("in the upper half", (0..most).map(|number| number << 48).collect()),
        ("clusters", (0..most).map(|number| ((number / 64) << 40) | (number % 64)).collect()),
        ("a range and one far away", (0..most - 1).chain([1 << 63]).collect()),
    ];
    for (name, values) in sets {
        let hash = find(&values).unwrap();
        assert_eq!(hash.values().len(), values.len(), "{name}");
        assert!(hash.load() > 1.0 / 32.0, "{name}: {}", hash.load());
        assert_perfect(&hash, &values, scrambled(1_000, 77));
    }
}

/// The low bits are all alike under every shift that a mask could take, and products by small factors meet.
#[test]
fn sets_made_to_defeat_the_simple_families_have_a_hash() {
    let one_bit_each: Vec<u64> = (0..64).map(|bit| 1 << bit).collect();
    let two_bits_each: Vec<u64> =
        (0..64).flat_map(|high| (0..high).map(move |low| (1u64 << high) | (1 << low))).collect();
    let all_but_one: Vec<u64> = one_bit_each.iter().map(|value| !value).collect();
    let palindromes: Vec<u64> =
        (0..4_096u64).map(|half| (half << 52) | (half.reverse_bits() >> 52)).collect();
    let square_numbers: Vec<u64> = (0..60_000u64).map(|root| root * root).collect();
    for values in [one_bit_each, two_bits_each, all_but_one, palindromes, square_numbers] {
        assert_every_family_perfect(&values, &scrambled(500, 3));
    }
}

/// Multiples of a factor's inverse have tiny products, and a multiplicative hash puts them all into one slot.
#[test]
fn values_made_from_a_factor_of_the_search_itself_have_a_hash() {
    let random = find(&scrambled(48, 1)).unwrap();
    let other = compare(&scrambled(300, 1), None).unwrap();
    let factors = other.iter().filter_map(|(_, hash)| hash.as_ref()).chain([&random]).filter_map(|hash| {
        match hash.formula() {
            tapeworks_dispatch_search::Formula::MultiplyShift { factor, .. }
            | tapeworks_dispatch_search::Formula::Displace { factor, .. } => Some(*factor),
            _ => None,
        }
    });
    let mut tried = 0;
    for factor in factors {
        // Newton's iteration doubles the right bits of the inverse of an odd number.
        let inverse = (0..6)
            .fold(factor, |inverse, _| inverse.wrapping_mul(2u64.wrapping_sub(factor.wrapping_mul(inverse))));
        assert_eq!(inverse.wrapping_mul(factor), 1);
        let values: Vec<u64> = (1..=5_000u64).map(|number| number.wrapping_mul(inverse)).collect();
        assert_every_family_perfect(&values, &scrambled(500, 3));
        tried += 1;
    }
    assert!(tried > 0, "a factor was tried");
}

#[test]
fn faulty_sets_are_named_by_value_and_place() {
    assert_eq!(find(&[]), Err(SearchError::Empty));
    assert_eq!(find(&[5, 6, 7, 6]), Err(SearchError::Duplicate { value: 6, first: 1, place: 3 }));
    assert_eq!(
        find_in(&[5, 256], Some(Width::U8)),
        Err(SearchError::TooWide { value: 256, place: 1, width: Width::U8 })
    );
    let many: Vec<u64> = (0..=MAX_VALUES as u64).collect();
    let error = find(&many).unwrap_err();
    assert_eq!(error, SearchError::TooMany { count: 65_537, value: 65_536 });
    assert_eq!(find(&[1, 1]).unwrap_err().to_string(), "value 2 is 0x1, as value 1 is already");
    assert_eq!(find(&many).unwrap_err().place(), Some(MAX_VALUES));
}

#[test]
fn a_wider_type_than_needed_is_used_on_request() {
    let hash = find_in(&[1, 2, 9], Some(Width::U64)).unwrap();
    assert_eq!(hash.width(), Width::U64);
    assert_perfect(&hash, &[1, 2, 9], [(1 << 40) | 1, u64::MAX]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_set_has_a_perfect_hash(values in hash_set(any::<u64>(), 1..200), others in hash_set(any::<u64>(), 50)) {
        let values: Vec<u64> = values.into_iter().collect();
        assert_every_family_perfect(&values, &others.into_iter().collect::<Vec<_>>());
    }

    #[test]
    fn any_set_of_bytes_and_of_words_has_one(bytes in btree_set(any::<u8>(), 1..=256), words in btree_set(any::<u16>(), 1..400)) {
        assert_every_family_perfect(&bytes.into_iter().map(u64::from).collect::<Vec<_>>(), &[256]);
        assert_every_family_perfect(&words.into_iter().map(u64::from).collect::<Vec<_>>(), &[65_536]);
    }

    #[test]
    fn any_clusters_have_one(starts in btree_set(any::<u64>(), 1..20), length in 1u64..30, stride in 1u64..1_000) {
        let mut values: Vec<u64> =
            starts.iter().flat_map(|start| (0..length).map(move |step| start.wrapping_add(step * stride))).collect();
        values.sort_unstable();
        values.dedup();
        assert_every_family_perfect(&values, &[]);
    }

    #[test]
    fn the_order_of_the_values_does_not_matter(values in hash_set(any::<u32>(), 1..100), turn in any::<prop::sample::Index>()) {
        let mut values: Vec<u64> = values.into_iter().map(u64::from).collect();
        let first = find(&values).unwrap();
        values.reverse();
        let turn = turn.index(values.len());
        values.rotate_left(turn);
        prop_assert_eq!(find(&values).unwrap(), first);
    }

    #[test]
    fn no_text_makes_the_reader_of_values_panic(text in "(?s).{0,200}", lines in "([0-9a-fxb'\"# _\n]{0,9}\n){0,20}") {
        for text in [text, lines] {
            if let Ok(listing) = tapeworks_dispatch_search::values::Listing::parse(&text)
                && let Err(error) = find(listing.values())
            {
                prop_assert!(!listing.fault("-", &error).is_empty());
            }
        }
    }
}
