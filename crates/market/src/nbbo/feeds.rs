//! Which of a venue's several feeds counts: the one that shows most of those whose book is not stale.
//!
//! A venue may publish its market twice, as depth and as quotes. Both show the same shares, so one of them counts for an
//! instrument at a time:
//!
//! 1. Only feeds that were heard are candidates: those that changed the instrument's book since it was last cleared.
//! 2. A feed whose book is not stale comes before one whose book is.
//! 3. Then the more detailed feed comes first: orders, price levels, quotes ([`Detail`]).
//! 4. Then the feed that stands first in the table.
//!
//! What a feed would contribute is kept beside the table of contributions, since the book of one feed is not at hand when
//! another's changes. The table itself has a feed's contribution while it counts, and nothing while another does. So the NBBO
//! is computed as if each venue had one feed.
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
    /// By place of a feed: the feeds of its venue, by bit, and what it shows.
    feeds: Vec<(u32, Detail)>,
    /// What each feed would contribute, laid out as the NBBO's contributions. Empty while no venue is shared.
    pub(super) own: Vec<Contribution>,
}

impl SharedVenues {
    /// The sharing among these feeds. What they would contribute is still to be filled in.
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

    /// What the feeds of the venue of `feed` count with now, when an instrument's contributions begin at `first`: writes it to
    /// `counting`, of the same instrument. Returns whether that changed anything.
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
