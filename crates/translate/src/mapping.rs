//! Which FIX field becomes which field of a venue, and back: the declaration that the translator refuses unmapped tags by, and that
//! the page [`markdown`] is made of.
//!
//! A row has a tag, and for each venue the native field and what is done to the value. A venue without a field refuses the tag, or the
//! values that it has no counterpart for. Cost: one load and a shift for a tag.

mod page;
mod rows;

pub use page::markdown;
pub use rows::{
    CANCEL, CANCEL_REJECT, EXECUTION_REPORT, MASS_CANCEL, MASS_CANCEL_REPORT, MASS_QUOTE, NEW_ORDER, QUOTE,
    QUOTE_CANCEL, QUOTE_STATUS, REPLACE,
};

use crate::route::is_of_route;

/// What a FIX field is at a venue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counterpart {
    /// Fields of the venue's message, as its declaration calls them, separated by commas; empty: none.
    pub fields: &'static str,
    /// What becomes of the value; empty: the page omits the row.
    pub conversion: &'static str,
}

/// A FIX field of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The tag.
    pub tag: u32,
    /// At a venue with Millennium's native gateway.
    pub millennium: Counterpart,
    /// At a venue with OUCH.
    pub ouch: Counterpart,
}

/// Words for 64 tags each.
const WORDS: usize = 32;

/// A set of tags below 2,048.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tags([u64; WORDS]);

impl Tags {
    /// The tags of a message's rows, and of the session.
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

    /// Whether the tag is in the set.
    #[inline]
    pub(crate) fn has(&self, tag: u32) -> bool {
        let word = self.0.get(tag as usize / 64).copied().unwrap_or(0);
        word >> (tag % 64) & 1 != 0
    }
}

/// The header's and the trailer's tags: the session's.
const SESSION: [u32; 32] = [
    8, 9, 10, 34, 35, 43, 49, 50, 52, 56, 57, 89, 90, 91, 93, 97, 115, 116, 122, 128, 129, 142, 143, 144,
    145, 212, 213, 347, 369, 1128, 1129, 1156,
];

/// The tags of NewOrderSingle (D) that are mapped.
pub(crate) static OF_NEW: Tags = Tags::of(NEW_ORDER);
/// Those of OrderCancelReplaceRequest (G).
pub(crate) static OF_REPLACE: Tags = Tags::of(REPLACE);
/// Those of OrderCancelRequest (F).
pub(crate) static OF_CANCEL: Tags = Tags::of(CANCEL);
/// Those of OrderMassCancelRequest (q).
pub(crate) static OF_MASS_CANCEL: Tags = Tags::of(MASS_CANCEL);
/// Those of Quote (S).
pub(crate) static OF_QUOTE: Tags = Tags::of(QUOTE);
/// Those of MassQuote (i).
pub(crate) static OF_MASS_QUOTE: Tags = Tags::of(MASS_QUOTE);
/// Those of QuoteCancel (Z).
pub(crate) static OF_QUOTE_CANCEL: Tags = Tags::of(QUOTE_CANCEL);

/// The mapped tags of a new order, and the session's, as a list. Those that need a walk over the message are 0, which is no tag: the count of
/// parties (453), whose entries have tags too, and the senders behind the session.
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
