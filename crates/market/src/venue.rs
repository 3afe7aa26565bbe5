//! Venues and publishers, with DBN's numbers.
//!
//! A venue is where orders meet; a publisher is a feed of a venue. The numbers are those of DBN's `Venue` and
//! `Publisher` where it has one; a feed it does not know has a number from [`Publisher::FIRST_OWN`] on, a venue it does not know one from
//! [`Venue::FIRST_OWN`] on. A test of `tapeworks-store` compares the table with the `dbn` crate.

/// DBN's number of a feed at a venue.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(transparent)]
pub struct Publisher(pub u16);

/// A market centre.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Venue {
    /// DBN's number of the venue, or ours.
    pub id: u16,
    /// Its ISO 10383 market identifier code.
    pub mic: &'static str,
    /// The name people use.
    pub name: &'static str,
}

impl Venue {
    /// From here on the numbers are ours, not DBN's.
    pub const FIRST_OWN: u16 = 9_001;

    /// The SIPs' letter of the venue as a listing market: the one in [`Definition::listing`](crate::event::Definition::listing). `None`
    /// for a venue that lists no NMS stock.
    pub const fn listing_letter(&self) -> Option<u8> {
        match self.id {
            id if id == NASDAQ.id => Some(b'Q'),
            id if id == NYSE.id => Some(b'N'),
            id if id == AMERICAN.id => Some(b'A'),
            id if id == ARCA.id => Some(b'P'),
            id if id == TEXAS.id => Some(b'M'),
            id if id == BZX.id => Some(b'Z'),
            id if id == IEX.id => Some(b'V'),
            _ => None,
        }
    }
}

/// The detail of a feed, the most detailed first. Of a venue's feeds the NBBO prefers the most detailed one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Detail {
    /// Every displayed order.
    Orders,
    /// The total size of every price level.
    Levels,
    /// The best bid and offer.
    Quotes,
}

/// A feed of a venue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Feed {
    /// DBN's number of the feed.
    pub publisher: Publisher,
    /// DBN's name of the dataset.
    pub dataset: &'static str,
    /// Where it comes from.
    pub venue: Venue,
    /// Its detail.
    pub detail: Detail,
}

/// Nasdaq.
pub const NASDAQ: Venue = Venue { id: 2, mic: "XNAS", name: "Nasdaq" };
/// Nasdaq BX, since 2025 Nasdaq Texas.
pub const BX: Venue = Venue { id: 3, mic: "XBOS", name: "Nasdaq BX" };
/// Nasdaq PSX.
pub const PSX: Venue = Venue { id: 4, mic: "XPSX", name: "Nasdaq PSX" };
/// Cboe BZX.
pub const BZX: Venue = Venue { id: 5, mic: "BATS", name: "Cboe BZX" };
/// Cboe BYX.
pub const BYX: Venue = Venue { id: 6, mic: "BATY", name: "Cboe BYX" };
/// Cboe EDGA.
pub const EDGA: Venue = Venue { id: 7, mic: "EDGA", name: "Cboe EDGA" };
/// Cboe EDGX.
pub const EDGX: Venue = Venue { id: 8, mic: "EDGX", name: "Cboe EDGX" };
/// New York Stock Exchange.
pub const NYSE: Venue = Venue { id: 9, mic: "XNYS", name: "NYSE" };
/// NYSE National.
pub const NATIONAL: Venue = Venue { id: 10, mic: "XCIS", name: "NYSE National" };
/// NYSE American.
pub const AMERICAN: Venue = Venue { id: 11, mic: "XASE", name: "NYSE American" };
/// NYSE Arca.
pub const ARCA: Venue = Venue { id: 12, mic: "ARCX", name: "NYSE Arca" };
/// NYSE Texas, until 2025 NYSE Chicago.
pub const TEXAS: Venue = Venue { id: 13, mic: "XCHI", name: "NYSE Texas" };
/// Investors Exchange.
pub const IEX: Venue = Venue { id: 14, mic: "IEXG", name: "IEX" };
/// Members Exchange.
pub const MEMX: Venue = Venue { id: 18, mic: "MEMX", name: "MEMX" };
/// London Stock Exchange, which DBN has no number for.
pub const LSE: Venue = Venue { id: Venue::FIRST_OWN, mic: "XLON", name: "LSE" };

/// The feeds we know, by publisher number.
pub const FEEDS: [Feed; 17] = [
    Feed { publisher: Publisher::XNAS_ITCH, dataset: "XNAS.ITCH", venue: NASDAQ, detail: Detail::Orders },
    Feed { publisher: Publisher::XBOS_ITCH, dataset: "XBOS.ITCH", venue: BX, detail: Detail::Orders },
    Feed { publisher: Publisher::XPSX_ITCH, dataset: "XPSX.ITCH", venue: PSX, detail: Detail::Orders },
    Feed { publisher: Publisher::IEXG_TOPS, dataset: "IEXG.TOPS", venue: IEX, detail: Detail::Quotes },
    Feed { publisher: Publisher::IEXG_DEEP, dataset: "IEXG.DEEP", venue: IEX, detail: Detail::Levels },
    Feed {
        publisher: Publisher::IEXG_DEEP_PLUS,
        dataset: "IEXG.DEEPPLUS",
        venue: IEX,
        detail: Detail::Orders,
    },
    Feed { publisher: Publisher::MEMX_MEMOIR, dataset: "MEMX.MEMOIR", venue: MEMX, detail: Detail::Orders },
    Feed { publisher: Publisher::BATS_PITCH, dataset: "BATS.PITCH", venue: BZX, detail: Detail::Orders },
    Feed { publisher: Publisher::BATY_PITCH, dataset: "BATY.PITCH", venue: BYX, detail: Detail::Orders },
    Feed { publisher: Publisher::EDGA_PITCH, dataset: "EDGA.PITCH", venue: EDGA, detail: Detail::Orders },
    Feed { publisher: Publisher::EDGX_PITCH, dataset: "EDGX.PITCH", venue: EDGX, detail: Detail::Orders },
    Feed { publisher: Publisher::XNYS_PILLAR, dataset: "XNYS.PILLAR", venue: NYSE, detail: Detail::Orders },
    Feed {
        publisher: Publisher::XCIS_PILLAR,
        dataset: "XCIS.PILLAR",
        venue: NATIONAL,
        detail: Detail::Orders,
    },
    Feed {
        publisher: Publisher::XASE_PILLAR,
        dataset: "XASE.PILLAR",
        venue: AMERICAN,
        detail: Detail::Orders,
    },
    Feed { publisher: Publisher::XCHI_PILLAR, dataset: "XCHI.PILLAR", venue: TEXAS, detail: Detail::Orders },
    Feed { publisher: Publisher::ARCX_PILLAR, dataset: "ARCX.PILLAR", venue: ARCA, detail: Detail::Orders },
    Feed { publisher: Publisher::XLON_MITCH, dataset: "XLON.MITCH", venue: LSE, detail: Detail::Orders },
];

impl Publisher {
    /// Nasdaq TotalView-ITCH.
    pub const XNAS_ITCH: Self = Self(2);
    /// Nasdaq BX TotalView-ITCH.
    pub const XBOS_ITCH: Self = Self(3);
    /// Nasdaq PSX TotalView-ITCH.
    pub const XPSX_ITCH: Self = Self(4);
    /// Cboe BZX PITCH.
    pub const BATS_PITCH: Self = Self(5);
    /// Cboe BYX PITCH.
    pub const BATY_PITCH: Self = Self(6);
    /// Cboe EDGA PITCH.
    pub const EDGA_PITCH: Self = Self(7);
    /// Cboe EDGX PITCH.
    pub const EDGX_PITCH: Self = Self(8);
    /// NYSE Integrated.
    pub const XNYS_PILLAR: Self = Self(9);
    /// NYSE National Integrated.
    pub const XCIS_PILLAR: Self = Self(10);
    /// NYSE American Integrated.
    pub const XASE_PILLAR: Self = Self(11);
    /// NYSE Texas Integrated.
    pub const XCHI_PILLAR: Self = Self(12);
    /// NYSE Arca Integrated.
    pub const ARCX_PILLAR: Self = Self(43);
    /// MEMX MEMOIR Depth.
    pub const MEMX_MEMOIR: Self = Self(15);
    /// IEX TOPS.
    pub const IEXG_TOPS: Self = Self(38);
    /// IEX DEEP, which DBN has no number for.
    pub const IEXG_DEEP: Self = Self(Self::FIRST_OWN);
    /// IEX DEEP+, which DBN has no number for.
    pub const IEXG_DEEP_PLUS: Self = Self(Self::FIRST_OWN + 1);
    /// LSE MITCH, which DBN has no number for.
    pub const XLON_MITCH: Self = Self(Self::FIRST_OWN + 2);
    /// From here on the numbers are ours, not DBN's.
    pub const FIRST_OWN: u16 = 9_001;

    /// The feed's row.
    pub fn feed(self) -> Option<&'static Feed> {
        FEEDS.iter().find(|feed| feed.publisher == self)
    }

    /// The first feed of the venue with this market identifier code, in any case.
    pub fn of_venue(mic: &str) -> Option<Self> {
        FEEDS.iter().find(|feed| feed.venue.mic.eq_ignore_ascii_case(mic)).map(|feed| feed.publisher)
    }

    /// The venue's name, or `publisher N` for a feed that is not in the table.
    pub fn venue_name(self) -> String {
        self.feed().map_or_else(|| format!("publisher {}", self.0), |feed| feed.venue.name.to_owned())
    }
}

/// The market identifier codes of the venues, each once.
pub fn mics() -> impl Iterator<Item = &'static str> {
    let is_first =
        |place: usize, feed: &Feed| FEEDS.iter().position(|one| one.venue.id == feed.venue.id) == Some(place);
    FEEDS
        .iter()
        .enumerate()
        .filter(move |(place, feed)| is_first(*place, feed))
        .map(|(_, feed)| feed.venue.mic)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_feed_is_found_by_its_number() {
        for feed in FEEDS {
            assert_eq!(feed.publisher.feed(), Some(&feed));
        }
        assert_eq!(Publisher(0).feed(), None);
    }

    #[test]
    fn a_venue_is_found_by_its_code_and_named_once() {
        assert_eq!(Publisher::of_venue("iexg"), Some(Publisher::IEXG_TOPS));
        assert_eq!(Publisher::of_venue("XNYS"), Some(Publisher::XNYS_PILLAR));
        assert_eq!(Publisher::of_venue(""), None);
        let venues: std::collections::BTreeSet<_> = FEEDS.iter().map(|feed| feed.venue.id).collect();
        assert_eq!(mics().count(), venues.len());
        assert_eq!(mics().filter(|mic| *mic == "IEXG").count(), 1);
    }
}
