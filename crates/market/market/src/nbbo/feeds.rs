//! Chooses which of a venue's feeds counts: the most detailed one whose book is not stale.
//!
//! A venue may publish its market twice, as depth and as quotes. Both show the same shares, so only one of them counts
//! for an instrument at a time:
//!
//! 1. Only feeds that were heard are candidates: feeds that changed the instrument's book since it was last cleared.
//! 2. A feed with a sound book beats a feed with a stale one.
//! 3. Then the more detailed feed wins: orders, price levels, quotes ([`Detail`]).
//! 4. Then the feed that comes first in the table wins.
//!
//! Each feed's own contribution is kept separately from the table of contributions, because one feed's book is not
//! available when another feed's book changes. The table holds the contribution of the feed that counts and nothing for
//! the others, so the NBBO is computed as if each venue had one feed.
//!
//! A venue under self-help is handled the same way: none of its feeds counts.
//!
//! Cost: one bit test for a feed that is its venue's only one. With several feeds, another 32 bytes per feed and
//! instrument, and a few compares for each change of a best price.

use crate::venue::{Detail, Publisher};

use super::Contribution;
use super::self_help::are_of_one_venue;

/// The feeds whose contributions are chosen: they share their venue with another feed, or it is under self-help.
#[derive(Debug, Default)]
pub(super) struct SharedVenues {
    /// Bit mask of these feeds.
    pub(super) mask: u32,
    /// Bit mask of the feeds that share their venue.
    sharing: u32,
    /// Bit mask of the feeds whose venue is under self-help.
    excluded: u32,
    /// One feed of each venue under self-help.
    self_help: Vec<Publisher>,
    /// Per feed, the bit mask of its venue's feeds, and its detail.
    feeds: Vec<(u32, Detail)>,
    /// The own contribution of each feed in the mask, laid out like the NBBO's contributions. Empty while the mask is.
    pub(super) own: Vec<Contribution>,
}

impl SharedVenues {
    /// Finds the shared venues among these feeds. Contributions are empty; the venues of the feeds `self_help` are
    /// under self-help.
    pub(super) fn of(publishers: &[Publisher], self_help: Vec<Publisher>) -> Self {
        let mut shared = Self { self_help, ..Self::default() };
        for publisher in publishers {
            shared.add(*publisher, publishers);
        }
        shared
    }

    /// Adds a feed as the next of `publishers`. Feeds that enter the mask with it have no own contributions yet.
    pub(super) fn add(&mut self, publisher: Publisher, publishers: &[Publisher]) {
        let (place, feed) = (self.feeds.len(), publisher.feed());
        let detail = feed.map_or(Detail::Orders, |feed| feed.detail);
        let mut all = 1 << place;
        for (other, known) in publishers.iter().take(place).enumerate() {
            all |= u32::from(are_of_one_venue(publisher, *known)) << other;
        }
        self.feeds.push((all, detail));
        if all.count_ones() > 1 {
            self.sharing |= all;
            for (place, (known, _)) in self.feeds.iter_mut().enumerate() {
                if all >> place & 1 == 1 {
                    *known = all;
                }
            }
        }
        self.excluded |= u32::from(self.is_under_self_help(publisher)) << place;
        self.mask = self.sharing | self.excluded;
    }

    /// Returns one feed of each venue under self-help.
    pub(super) fn self_help(&self) -> &[Publisher] {
        &self.self_help
    }

    /// Returns whether the venue of a feed is under self-help.
    pub(super) fn is_under_self_help(&self, publisher: Publisher) -> bool {
        self.self_help.iter().any(|one| are_of_one_venue(*one, publisher))
    }

    /// Declares or revokes self-help against the venue of `publisher`.
    ///
    /// Returns the bit mask of the venue's feeds among `publishers`, or `None` if nothing changes. A declaration adds
    /// the feeds to the mask; [`SharedVenues::settle`] removes them after a revocation.
    pub(super) fn declare(
        &mut self,
        publisher: Publisher,
        is_declared: bool,
        publishers: &[Publisher],
    ) -> Option<u32> {
        let is_full = self.self_help.len() == super::MAX_VENUES;
        if self.is_under_self_help(publisher) == is_declared || is_declared && is_full {
            return None;
        }
        let of_venue = publishers.iter().enumerate().filter(|(_, one)| are_of_one_venue(publisher, **one));
        let feeds = of_venue.fold(0, |feeds, (place, _)| feeds | 1 << place);
        if is_declared {
            self.self_help.push(publisher);
            self.excluded |= feeds;
            self.mask |= feeds;
        } else {
            self.self_help.retain(|one| !are_of_one_venue(*one, publisher));
            self.excluded &= !feeds;
        }
        Some(feeds)
    }

    /// Saves the contributions in `counting` as own contributions, for feeds in the mask that were not in `before`.
    ///
    /// Each instrument has `stride` slots.
    pub(super) fn hold(&mut self, before: u32, counting: &[Contribution], stride: usize) {
        let new = self.mask & !before;
        if new == 0 {
            return;
        }
        self.own.resize(counting.len(), Contribution::default());
        for (at, (own, counts)) in self.own.iter_mut().zip(counting).enumerate() {
            if new >> (at % stride) & 1 == 1 {
                *own = *counts;
            }
        }
    }

    /// Removes feeds from the mask that neither share a venue nor are under self-help: their contribution counts
    /// directly.
    pub(super) fn settle(&mut self) {
        self.mask = self.sharing | self.excluded;
        if self.mask == 0 {
            self.own.clear();
        }
    }

    /// Returns whether a feed's contribution is chosen.
    #[inline]
    pub(super) const fn includes(&self, feed: usize) -> bool {
        self.mask >> feed & 1 == 1
    }

    /// Writes the contributions of the feeds of `feed`'s venue to `counting`: one at most counts. Returns whether any
    /// changed.
    ///
    /// The own contributions of the instrument begin at `first`.
    pub(super) fn choose(&self, feed: usize, first: usize, counting: &mut [Contribution]) -> bool {
        let Some((all, _)) = self.feeds.get(feed) else { return false };
        let own = self.own.get(first..).unwrap_or_default();
        let width = counting.len();
        let of_venue = || (0..width).filter(|place| all >> place & 1 == 1);
        let is_alone = all.count_ones() == 1;
        let chosen = of_venue()
            .filter(|_| all & self.excluded == 0)
            .filter_map(|place| Some((place, own.get(place)?, self.feeds.get(place)?.1)))
            .filter(|(_, own, _)| is_alone || own.is_heard())
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
