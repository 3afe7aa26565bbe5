//! Which of a venue's several feeds counts: the most detailed one whose book is not stale.
//!
//! A venue may publish its market twice, as depth and as quotes. Both show the same shares, so one of them counts for an
//! instrument at a time:
//!
//! 1. Only feeds that were heard are candidates: those that changed the instrument's book since it was last cleared.
//! 2. A feed whose book is not stale comes before one whose book is.
//! 3. Then the more detailed feed comes first: orders, price levels, quotes ([`Detail`]).
//! 4. Then the feed that stands first in the table.
//!
//! Each feed's possible contribution is kept beside the table of contributions, since the book of one feed is not at hand when
//! another's changes. The table has the contribution of the feed that counts, and nothing for the others. So the NBBO is
//! computed as if each venue had one feed.
//!
//! Cost: one test of a bit for a feed that is its venue's only one. With several, another 40 bytes a feed and instrument,
//! and some compares for each change of a best price.

use crate::venue::{Detail, Publisher};

use super::Contribution;

/// The feeds of an NBBO that share their venue with others.
#[derive(Debug, Default)]
pub(super) struct SharedVenues {
    /// By bit the feeds that share their venue.
    pub(super) mask: u32,
    /// By place of a feed: the feeds of its venue, by bit, and its detail.
    feeds: Vec<(u32, Detail)>,
    /// The possible contribution of each feed, laid out as the NBBO's contributions. Empty while no venue is shared.
    pub(super) own: Vec<Contribution>,
}

impl SharedVenues {
    /// The sharing among these feeds, without contributions yet.
    pub(super) fn of(publishers: &[Publisher]) -> Self {
        let mut shared = Self::default();
        for publisher in publishers {
            shared.add(*publisher, publishers);
        }
        shared
    }

    /// A feed joins, as the next of `publishers`.
    pub(super) fn add(&mut self, publisher: Publisher, publishers: &[Publisher]) {
        let (place, feed) = (self.feeds.len(), publisher.feed());
        let detail = feed.map_or(Detail::Orders, |feed| feed.detail);
        let mut all = 1 << place;
        for (other, known) in publishers.iter().take(place).enumerate() {
            let same = feed.zip(known.feed()).is_some_and(|(feed, known)| feed.venue.id == known.venue.id);
            all |= u32::from(same) << other;
        }
        self.feeds.push((all, detail));
        if all.count_ones() > 1 {
            self.mask |= all;
            for (place, (known, _)) in self.feeds.iter_mut().enumerate() {
                if all >> place & 1 == 1 {
                    *known = all;
                }
            }
        }
    }

    /// Whether a feed shares its venue.
    #[inline]
    pub(super) const fn includes(&self, feed: usize) -> bool {
        self.mask >> feed & 1 == 1
    }

    /// Writes the contributions of the feeds of the venue of `feed` to `counting`. The contributions of the instrument begin at
    /// `first`. Returns whether one changed.
    pub(super) fn choose(&self, feed: usize, first: usize, counting: &mut [Contribution]) -> bool {
        let Some((all, _)) = self.feeds.get(feed) else { return false };
        let own = self.own.get(first..).unwrap_or_default();
        let width = counting.len();
        let of_venue = || (0..width).filter(|place| all >> place & 1 == 1);
        let chosen = of_venue()
            .filter_map(|place| Some((place, own.get(place)?, self.feeds.get(place)?.1)))
            .filter(|(_, own, _)| own.is_heard())
            .min_by_key(|(place, own, detail)| (own.is_stale(), *detail, *place))
            .map(|(place, ..)| place);
        let mut is_changed = false;
        for place in of_venue() {
            let counts = own.get(place).filter(|_| chosen == Some(place)).copied().unwrap_or_default();
            is_changed |= std::mem::replace(&mut counting[place], counts) != counts;
        }
        is_changed
    }
}
