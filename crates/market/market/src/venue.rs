//! Venues and publishers, with DBN's numbers.
//!
//! A venue is where orders meet; a publisher is a feed of a venue. The numbers are those of DBN's `Venue` and
//! `Publisher` where they exist. Feeds unknown to DBN are numbered from [`Publisher::FIRST_OWN`], venues from
//! [`Venue::FIRST_OWN`]. A test in `tapeworks-store` compares the table with the `dbn` crate.

/// DBN's number for a feed of a venue.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(transparent)]
pub struct Publisher(pub u16);

/// A market center.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Venue {
    /// DBN's number for the venue, or our own.
    pub id: u16,
    /// ISO 10383 market identifier code.
    pub mic: &'static str,
    /// Common name.
    pub name: &'static str,
}

impl Venue {
    /// Numbers from here on are ours, not DBN's.
    pub const FIRST_OWN: u16 = 9_001;

    /// Returns the SIPs' letter for the venue as a listing market, as in
    /// [`Definition::listing`](crate::event::Definition::listing).
    ///
    /// Returns `None` for a venue that lists no NMS stock.
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

/// The level of detail of a feed, most detailed first. The NBBO prefers a venue's most detailed feed.
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
    /// DBN's number for the feed.
    pub publisher: Publisher,
    /// DBN's name for the dataset.
    pub dataset: &'static str,
    /// The venue that it shows.
    pub venue: Venue,
    /// Level of detail.
    pub detail: Detail,
    /// Round lot of each instrument until the venue states one. Contracts have a lot of one, and no odd lots. `None`:
    /// see [`round_lots`](crate::round_lots).
    pub round_lot: Option<u32>,
}

/// Nasdaq.
pub const NASDAQ: Venue = Venue { id: 2, mic: "XNAS", name: "Nasdaq" };
/// Nasdaq BX, named Nasdaq Texas since 2025.
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
/// NYSE Texas, named NYSE Chicago until 2025.
pub const TEXAS: Venue = Venue { id: 13, mic: "XCHI", name: "NYSE Texas" };
/// Investors Exchange.
pub const IEX: Venue = Venue { id: 14, mic: "IEXG", name: "IEX" };
/// Members Exchange.
pub const MEMX: Venue = Venue { id: 18, mic: "MEMX", name: "MEMX" };
/// Cboe Options, also called C1.
pub const CBOE_OPTIONS: Venue = Venue { id: 22, mic: "XCBO", name: "Cboe Options" };
/// Cboe Futures Exchange.
pub const CBOE_FUTURES: Venue = Venue { id: 52, mic: "XCBF", name: "Cboe Futures" };
/// London Stock Exchange, for which DBN has no number.
pub const LSE: Venue = Venue { id: Venue::FIRST_OWN, mic: "XLON", name: "LSE" };

/// FINRA/Nasdaq TRF Carteret.
pub const FINRA_CARTERET: Venue = Venue { id: 15, mic: "FINN", name: "FINRA/Nasdaq TRF Carteret" };
/// FINRA/Nasdaq TRF Chicago.
pub const FINRA_CHICAGO: Venue = Venue { id: 16, mic: "FINC", name: "FINRA/Nasdaq TRF Chicago" };
/// FINRA/NYSE TRF.
pub const FINRA_NYSE: Venue = Venue { id: 17, mic: "FINY", name: "FINRA/NYSE TRF" };
/// MIAX Pearl Equities.
pub const PEARL: Venue = Venue { id: 19, mic: "EPRL", name: "MIAX Pearl" };
/// Nasdaq ISE.
pub const ISE: Venue = Venue { id: 26, mic: "XISX", name: "Nasdaq ISE" };
/// Long-Term Stock Exchange.
pub const LTSE: Venue = Venue { id: 42, mic: "LTSE", name: "LTSE" };
/// The securities information processor of tapes A and B.
pub const CTA: Venue = Venue { id: 59, mic: "CTA", name: "CTA SIP" };
/// The securities information processor of tape C.
pub const UTP: Venue = Venue { id: 60, mic: "UTP", name: "UTP SIP" };
/// FINRA's Alternative Display Facility.
pub const FINRA_ADF: Venue = Venue { id: 61, mic: "XADF", name: "FINRA ADF" };

/// A stock feed from the venue itself.
const fn direct(publisher: Publisher, dataset: &'static str, venue: Venue, detail: Detail) -> Feed {
    Feed { publisher, dataset, venue, detail, round_lot: None }
}

/// A feed of options or futures, with every displayed order.
const fn of_contracts(publisher: Publisher, dataset: &'static str, venue: Venue) -> Feed {
    Feed { publisher, dataset, venue, detail: Detail::Orders, round_lot: Some(1) }
}

/// A participant's quotes as shown by a securities information processor.
const fn sip(publisher: Publisher, venue: Venue) -> Feed {
    direct(publisher, "EQUS.SIP", venue, Detail::Quotes)
}

/// All known feeds.
pub const FEEDS: [Feed; 42] = [
    direct(Publisher::XNAS_ITCH, "XNAS.ITCH", NASDAQ, Detail::Orders),
    direct(Publisher::XBOS_ITCH, "XBOS.ITCH", BX, Detail::Orders),
    direct(Publisher::XPSX_ITCH, "XPSX.ITCH", PSX, Detail::Orders),
    direct(Publisher::IEXG_TOPS, "IEXG.TOPS", IEX, Detail::Quotes),
    direct(Publisher::IEXG_DEEP, "IEXG.DEEP", IEX, Detail::Levels),
    direct(Publisher::IEXG_DEEP_PLUS, "IEXG.DEEPPLUS", IEX, Detail::Orders),
    direct(Publisher::MEMX_MEMOIR, "MEMX.MEMOIR", MEMX, Detail::Orders),
    direct(Publisher::BATS_PITCH, "BATS.PITCH", BZX, Detail::Orders),
    direct(Publisher::BATY_PITCH, "BATY.PITCH", BYX, Detail::Orders),
    direct(Publisher::EDGA_PITCH, "EDGA.PITCH", EDGA, Detail::Orders),
    direct(Publisher::EDGX_PITCH, "EDGX.PITCH", EDGX, Detail::Orders),
    of_contracts(Publisher::XCBO_PITCH, "XCBO.PITCH", CBOE_OPTIONS),
    of_contracts(Publisher::XCBF_PITCH, "XCBF.PITCH", CBOE_FUTURES),
    direct(Publisher::XNYS_PILLAR, "XNYS.PILLAR", NYSE, Detail::Orders),
    direct(Publisher::XCIS_PILLAR, "XCIS.PILLAR", NATIONAL, Detail::Orders),
    direct(Publisher::XASE_PILLAR, "XASE.PILLAR", AMERICAN, Detail::Orders),
    direct(Publisher::XCHI_PILLAR, "XCHI.PILLAR", TEXAS, Detail::Orders),
    direct(Publisher::ARCX_PILLAR, "ARCX.PILLAR", ARCA, Detail::Orders),
    direct(Publisher::XLON_MITCH, "XLON.MITCH", LSE, Detail::Orders),
    sip(Publisher::SIP_XASE, AMERICAN),
    sip(Publisher::SIP_XBOS, BX),
    sip(Publisher::SIP_XCIS, NATIONAL),
    sip(Publisher::SIP_EPRL, PEARL),
    sip(Publisher::SIP_XISX, ISE),
    sip(Publisher::SIP_EDGA, EDGA),
    sip(Publisher::SIP_EDGX, EDGX),
    sip(Publisher::SIP_LTSE, LTSE),
    sip(Publisher::SIP_XCHI, TEXAS),
    sip(Publisher::SIP_XNYS, NYSE),
    sip(Publisher::SIP_ARCX, ARCA),
    sip(Publisher::SIP_XNAS, NASDAQ),
    sip(Publisher::SIP_MEMX, MEMX),
    sip(Publisher::SIP_IEXG, IEX),
    sip(Publisher::SIP_XPSX, PSX),
    sip(Publisher::SIP_BATY, BYX),
    sip(Publisher::SIP_BATS, BZX),
    sip(Publisher::SIP_FINN, FINRA_CARTERET),
    sip(Publisher::SIP_FINY, FINRA_NYSE),
    sip(Publisher::SIP_FINC, FINRA_CHICAGO),
    sip(Publisher::SIP_XADF, FINRA_ADF),
    sip(Publisher::SIP_CTA, CTA),
    sip(Publisher::SIP_UTP, UTP),
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
    /// IEX DEEP, for which DBN has no number.
    pub const IEXG_DEEP: Self = Self(Self::FIRST_OWN);
    /// IEX DEEP+, for which DBN has no number.
    pub const IEXG_DEEP_PLUS: Self = Self(Self::FIRST_OWN + 1);
    /// LSE MITCH, for which DBN has no number.
    pub const XLON_MITCH: Self = Self(Self::FIRST_OWN + 2);
    /// Cboe Futures PITCH.
    pub const XCBF_PITCH: Self = Self(105);
    /// Cboe Options PITCH, for which DBN has no number.
    pub const XCBO_PITCH: Self = Self(Self::FIRST_OWN + 3);
    /// Numbers from here on are ours, not DBN's.
    pub const FIRST_OWN: u16 = 9_001;

    /// NYSE American, as a SIP shows it.
    pub const SIP_XASE: Self = Self(111);
    /// Nasdaq BX, as a SIP shows it.
    pub const SIP_XBOS: Self = Self(112);
    /// NYSE National, as a SIP shows it.
    pub const SIP_XCIS: Self = Self(113);
    /// MIAX Pearl, as a SIP shows it.
    pub const SIP_EPRL: Self = Self(116);
    /// Nasdaq ISE, as a SIP shows it.
    pub const SIP_XISX: Self = Self(117);
    /// Cboe EDGA, as a SIP shows it.
    pub const SIP_EDGA: Self = Self(118);
    /// Cboe EDGX, as a SIP shows it.
    pub const SIP_EDGX: Self = Self(119);
    /// LTSE, as a SIP shows it.
    pub const SIP_LTSE: Self = Self(120);
    /// NYSE Texas, as a SIP shows it.
    pub const SIP_XCHI: Self = Self(121);
    /// NYSE, as a SIP shows it.
    pub const SIP_XNYS: Self = Self(122);
    /// NYSE Arca, as a SIP shows it.
    pub const SIP_ARCX: Self = Self(123);
    /// Nasdaq, as a SIP shows it.
    pub const SIP_XNAS: Self = Self(124);
    /// MEMX, as a SIP shows it.
    pub const SIP_MEMX: Self = Self(125);
    /// IEX, as a SIP shows it.
    pub const SIP_IEXG: Self = Self(126);
    /// Nasdaq PSX, as a SIP shows it.
    pub const SIP_XPSX: Self = Self(127);
    /// Cboe BYX, as a SIP shows it.
    pub const SIP_BATY: Self = Self(128);
    /// Cboe BZX, as a SIP shows it.
    pub const SIP_BATS: Self = Self(129);
    /// FINRA/Nasdaq TRF Carteret, as a SIP shows it.
    pub const SIP_FINN: Self = Self(130);
    /// FINRA/NYSE TRF, as a SIP shows it.
    pub const SIP_FINY: Self = Self(131);
    /// FINRA/Nasdaq TRF Chicago, as a SIP shows it.
    pub const SIP_FINC: Self = Self(132);
    /// FINRA's Alternative Display Facility, as a SIP shows it.
    pub const SIP_XADF: Self = Self(133);
    /// The national best bid and offer of the SIP of tapes A and B.
    pub const SIP_CTA: Self = Self(134);
    /// The national best bid and offer of the SIP of tape C.
    pub const SIP_UTP: Self = Self(135);

    /// Returns whether the quotes come from a securities information processor, and so are excluded from the synthetic
    /// NBBO.
    #[must_use]
    pub const fn is_of_sip(self) -> bool {
        matches!(self.0, 111..=135)
    }

    /// Returns the feed's row in the table.
    pub fn feed(self) -> Option<&'static Feed> {
        FEEDS.iter().find(|feed| feed.publisher == self)
    }

    /// Returns the first direct feed of the venue with this market identifier code, ignoring case.
    pub fn of_venue(mic: &str) -> Option<Self> {
        direct_feeds().find(|feed| feed.venue.mic.eq_ignore_ascii_case(mic)).map(|feed| feed.publisher)
    }

    /// Returns the venue's name, or `publisher N` for a feed that is not in the table.
    ///
    /// Participants as shown by a securities information processor are suffixed with `(SIP)`.
    pub fn venue_name(self) -> String {
        match self.feed() {
            None => format!("publisher {}", self.0),
            Some(feed) if self.is_of_sip() && !matches!(self, Self::SIP_CTA | Self::SIP_UTP) => {
                format!("{} (SIP)", feed.venue.name)
            }
            Some(feed) => feed.venue.name.to_owned(),
        }
    }
}

/// Returns the feeds that do not come from a SIP.
fn direct_feeds() -> impl Iterator<Item = &'static Feed> {
    FEEDS.iter().filter(|feed| !feed.publisher.is_of_sip())
}

/// Returns the market identifier codes of all venues with a direct feed, without duplicates.
pub fn mics() -> impl Iterator<Item = &'static str> {
    let is_first = |place: usize, feed: &Feed| {
        direct_feeds().position(|one| one.venue.id == feed.venue.id) == Some(place)
    };
    direct_feeds()
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
        assert_eq!(FEEDS.iter().filter(|feed| feed.publisher.is_of_sip()).count(), 23);
        assert!(FEEDS.iter().all(|feed| feed.publisher.is_of_sip() == (feed.dataset == "EQUS.SIP")));
        let names =
            [Publisher::XNAS_ITCH, Publisher::SIP_XNAS, Publisher::SIP_UTP].map(Publisher::venue_name);
        assert_eq!(names, ["Nasdaq", "Nasdaq (SIP)", "UTP SIP"]);
    }

    #[test]
    fn a_venue_is_found_by_its_code_and_named_once() {
        assert_eq!(Publisher::of_venue("iexg"), Some(Publisher::IEXG_TOPS));
        assert_eq!(Publisher::of_venue("XNYS"), Some(Publisher::XNYS_PILLAR));
        assert_eq!(Publisher::of_venue(""), None);
        assert_eq!(Publisher::of_venue("XNAS"), Some(Publisher::XNAS_ITCH));
        assert_eq!(Publisher::of_venue("EPRL"), None);
        let venues: std::collections::BTreeSet<_> = direct_feeds().map(|feed| feed.venue.id).collect();
        assert_eq!(mics().count(), venues.len());
        assert_eq!(mics().filter(|mic| *mic == "IEXG").count(), 1);
    }
}
