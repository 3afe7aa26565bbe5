//! The catalogue: one file per technique, one row here.
//!
//! A file has, in this order: the inputs, the baseline and the variants as functions that are never inlined (so that their assembly can
//! be shown), the experiments, the [`Technique`], and tests that all variants give equal results for any input. Its page in the book
//! includes the functions from the file.

pub mod allocators;
pub mod binary_search;
pub mod branch_prediction;
pub mod byte_order;
pub mod cache_warming;
pub mod cold_hardware;
pub mod contention;
pub mod data_layout;
pub mod disruptor;
pub mod hot_path_allocation;
pub mod huge_pages;
pub mod inlining;
pub mod integer_prices;
pub mod kernel_bypass;
pub mod logging;
pub mod look_ahead;
pub mod loop_unrolling;
pub mod measuring;
pub mod memory_orders;
pub mod over_inlining;
pub mod perfect_hash;
pub mod predication;
pub mod simd;
pub mod spsc_queue;
pub mod static_dispatch;
pub mod system_calls;
pub mod typed_absence;
pub mod varint;
pub mod waiting;
pub mod zero_copy;

use crate::technique::Technique;

/// All techniques, by number.
pub static CATALOGUE: &[&Technique] = &[
    &inlining::TECHNIQUE,
    &loop_unrolling::TECHNIQUE,
    &binary_search::TECHNIQUE,
    &branch_prediction::TECHNIQUE,
    &predication::TECHNIQUE,
    &simd::TECHNIQUE,
    &contention::TECHNIQUE,
    &kernel_bypass::TECHNIQUE,
    &cache_warming::TECHNIQUE,
    &spsc_queue::TECHNIQUE,
    &disruptor::TECHNIQUE,
    &allocators::TECHNIQUE,
    &static_dispatch::TECHNIQUE,
    &perfect_hash::TECHNIQUE,
    &byte_order::TECHNIQUE,
    &varint::TECHNIQUE,
    &waiting::TECHNIQUE,
    &zero_copy::TECHNIQUE,
    &typed_absence::TECHNIQUE,
    &hot_path_allocation::TECHNIQUE,
    &over_inlining::TECHNIQUE,
    &logging::TECHNIQUE,
    &cold_hardware::TECHNIQUE,
    &measuring::TECHNIQUE,
    &look_ahead::TECHNIQUE,
    &data_layout::TECHNIQUE,
    &huge_pages::TECHNIQUE,
    &system_calls::TECHNIQUE,
    &memory_orders::TECHNIQUE,
    &integer_prices::TECHNIQUE,
];

/// Returns the technique with this name or number.
#[must_use]
pub fn find(name: &str) -> Option<&'static Technique> {
    let number = name.parse::<u8>().ok();
    CATALOGUE.iter().copied().find(|technique| technique.name == name || number == Some(technique.number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_unique_and_in_order() {
        for pair in CATALOGUE.windows(2) {
            assert!(pair[0].number < pair[1].number, "{} before {}", pair[0].name, pair[1].name);
        }
        for technique in CATALOGUE {
            assert!(std::ptr::eq(find(technique.name).unwrap(), *technique));
            assert!(std::ptr::eq(find(&technique.number.to_string()).unwrap(), *technique));
            assert!(technique.question.ends_with('?'), "{}: {}", technique.name, technique.question);
        }
        assert!(find("nothing").is_none());
    }
}
