//! Maps FIX fields to a venue's fields and back: the declaration by which the translator refuses unmapped tags, and the source of
//! the page [`markdown`].
//!
//! A row has a tag, and for each venue the native field and the conversion of the value. If a venue lacks the field, it refuses the
//! tag, or the values without a counterpart. Cost: one load and a shift per tag.

mod page;
mod rows;

pub use page::markdown;
pub use rows::{
    CANCEL, CANCEL_REJECT, EXECUTION_REPORT, MASS_CANCEL, MASS_CANCEL_REPORT, MASS_QUOTE, NEW_ORDER, QUOTE,
    QUOTE_CANCEL, QUOTE_STATUS, REPLACE,
};

use crate::route::is_of_route;

/// The counterpart of a FIX field at a venue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counterpart {
    /// Fields of the venue's message, named as in its declaration and separated by commas; empty: none.
    pub fields: &'static str,
    /// The conversion of the value; empty: the page omits the row.
    pub conversion: &'static str,
}

/// A FIX field of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The tag.
    pub tag: u32,
    /// The counterpart in Millennium's native gateway.
    pub millennium: Counterpart,
    /// The counterpart in OUCH.
    pub ouch: Counterpart,
}

/// Number of words of 64 tags each.
const WORDS: usize = 32;

/// A set of tags below 2,048.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tags([u64; WORDS]);

impl Tags {
    /// Collects the tags of a message's rows, and of the session.
    const fn of(rows: &[Row]) -> Self {
        let mut tags = Self([0; WORDS]);
        let mut place = 0;
        while place < SESSION.len() {
            tags = tags.with(SESSION[place]);
            place += 1;
        }
        let mut place = 0;
        while place < rows.len() {
            tags = tags.with(rows[place].tag);
            place += 1;
        }
        tags
    }

    const fn with(mut self, tag: u32) -> Self {
        self.0[tag as usize / 64] |= 1 << (tag % 64);
        self
    }

    /// Returns whether the tag is in the set.
    #[inline]
    pub(crate) fn has(&self, tag: u32) -> bool {
        let word = self.0.get(tag as usize / 64).copied().unwrap_or(0);
        word >> (tag % 64) & 1 != 0
    }
}

/// Header and trailer tags, which belong to the session.
const SESSION: [u32; 32] = [
    8, 9, 10, 34, 35, 43, 49, 50, 52, 56, 57, 89, 90, 91, 93, 97, 115, 116, 122, 128, 129, 142, 143, 144,
    145, 212, 213, 347, 369, 1128, 1129, 1156,
];

/// Mapped tags of NewOrderSingle (D).
pub(crate) static OF_NEW: Tags = Tags::of(NEW_ORDER);
/// Mapped tags of OrderCancelReplaceRequest (G).
pub(crate) static OF_REPLACE: Tags = Tags::of(REPLACE);
/// Mapped tags of OrderCancelRequest (F).
pub(crate) static OF_CANCEL: Tags = Tags::of(CANCEL);
/// Mapped tags of OrderMassCancelRequest (q).
pub(crate) static OF_MASS_CANCEL: Tags = Tags::of(MASS_CANCEL);
/// Mapped tags of Quote (S).
pub(crate) static OF_QUOTE: Tags = Tags::of(QUOTE);
/// Mapped tags of MassQuote (i).
pub(crate) static OF_MASS_QUOTE: Tags = Tags::of(MASS_QUOTE);
/// Mapped tags of QuoteCancel (Z).
pub(crate) static OF_QUOTE_CANCEL: Tags = Tags::of(QUOTE_CANCEL);

/// The mapped tags of a new order, and the session's, as an array. Tags that require a walk over the message are replaced by 0,
/// which is no tag: the count of parties (453), whose entries have tags too, and the routing tags.
pub(crate) const PLAIN_OF_NEW: [u32; SESSION.len() + NEW_ORDER.len()] = {
    let mut tags = [0; SESSION.len() + NEW_ORDER.len()];
    let mut place = 0;
    while place < tags.len() {
        let tag = if place < SESSION.len() { SESSION[place] } else { NEW_ORDER[place - SESSION.len()].tag };
        tags[place] = if tag == 453 || is_of_route(tag) { 0 } else { tag };
        place += 1;
    }
    tags
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_the_tags_of_its_rows_and_of_the_session_and_no_others() {
        for tag in 0..5_000 {
            let is_session = SESSION.contains(&tag);
            let is_row = NEW_ORDER.iter().any(|row| row.tag == tag);
            assert_eq!(OF_NEW.has(tag), is_session || is_row, "{tag}");
        }
        assert!(!OF_NEW.has(u32::MAX));
    }
}
