//! The simulated venues, one row each.

use tapeworks_market::Publisher;
use tapeworks_wire::iex::tp::MessageProtocolId;
use tapeworks_wire::nasdaq::itch50::MarketCode;
use tapeworks_wire::nyse::integrated::Market;

/// The protocol of a venue, as a [dialect](crate::dialect).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Speaks {
    Itch,
    Iex,
    DeepPlus,
    Memoir,
    Pitch,
    Futures,
    Integrated,
    Mitch,
    Uqdf,
    Cqs,
}

/// The part of its book that a venue publishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shows {
    Orders,
    /// The total at each price.
    Levels,
    /// The best price on each side.
    Quotes,
}

/// The properties of a kind of venue.
#[derive(Debug)]
pub(crate) struct KindRow {
    pub(crate) kind: VenueKind,
    /// Names in configuration files and on the command line; the first is the primary one.
    pub(crate) keys: &'static [&'static str],
    pub(crate) name: &'static str,
    /// Its feed.
    pub(crate) publisher: Publisher,
    pub(crate) speaks: Speaks,
    pub(crate) shows: Shows,
    /// Its number or letter in its own messages, if they carry one.
    pub(crate) code: u16,
    /// Its letters in UQDF and CQS quotes, if it is a participant.
    pub(crate) letters: Option<&'static [u8; 2]>,
    /// Listing-market letter in directories; `None` if it lists no symbols.
    pub(crate) listing: Option<u8>,
    /// Symbols with auctions here, as `(first, stride)`. All markets but the main one need
    /// [`Scenario::listing_auctions`](crate::Scenario::listing_auctions).
    pub(crate) auctions: &'static [(u32, u32)],
    /// Whether it holds auctions for symbols whose listing market has none.
    pub(crate) is_main: bool,
    /// The multicast groups of lines A and B, and their port.
    pub(crate) groups: ([[u8; 4]; 2], u16),
    /// The source addresses of lines A and B.
    pub(crate) sources: [[u8; 4]; 2],
}

/// Declares the kinds, and a row for each in the same order.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident { $($facts:tt)* })*) => {
        /// The market and protocol of a venue.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum VenueKind {
            $($(#[$doc])* $kind,)*
        }

        /// Every kind, in the order of the enum.
        pub(crate) static KINDS: &[KindRow] = &[$(KindRow { kind: VenueKind::$kind, $($facts)* },)*];
    };
}

kinds! {
    /// Nasdaq: TotalView-ITCH 5.0, the listing market with auctions.
    Nasdaq {
        keys: &["nasdaq"],
        name: "Nasdaq",
        publisher: Publisher::XNAS_ITCH,
        speaks: Speaks::Itch,
        shows: Shows::Orders,
        code: MarketCode::Nasdaq.raw() as u16,
        letters: Some(b"QT"),
        listing: Some(b'Q'),
        auctions: &[(0, 2)],
        is_main: true,
        groups: ([[233, 54, 12, 111], [233, 49, 196, 111]], 26_477),
        sources: [[206, 200, 43, 72], [206, 200, 131, 72]],
    }
    /// Nasdaq BX: TotalView-ITCH 5.0, no auctions.
    Bx {
        keys: &["bx"],
        name: "BX",
        publisher: Publisher::XBOS_ITCH,
        speaks: Speaks::Itch,
        shows: Shows::Orders,
        code: MarketCode::NasdaqTexas.raw() as u16,
        letters: Some(b"BB"),
        listing: None,
        auctions: &[],
        is_main: false,
        groups: ([[233, 54, 12, 40], [233, 49, 196, 40]], 25_475),
        sources: [[206, 200, 43, 73], [206, 200, 131, 73]],
    }
    /// Nasdaq PSX: TotalView-ITCH 5.0, no auctions.
    Psx {
        keys: &["psx"],
        name: "PSX",
        publisher: Publisher::XPSX_ITCH,
        speaks: Speaks::Itch,
        shows: Shows::Orders,
        code: MarketCode::Psx.raw() as u16,
        letters: Some(b"XX"),
        listing: None,
        auctions: &[],
        is_main: false,
        groups: ([[233, 54, 12, 45], [233, 49, 196, 45]], 26_478),
        sources: [[206, 200, 43, 74], [206, 200, 131, 74]],
    }
    /// IEX TOPS 1.6: best quotes and trades.
    IexTops {
        keys: &["iex-tops"],
        name: "IEX TOPS",
        publisher: Publisher::IEXG_TOPS,
        speaks: Speaks::Iex,
        shows: Shows::Quotes,
        code: MessageProtocolId::Tops.raw(),
        letters: Some(b"VV"),
        listing: Some(b'V'),
        auctions: &[],
        is_main: false,
        groups: ([[233, 215, 21, 4], [233, 215, 21, 132]], 10_378),
        sources: [[23, 226, 155, 131], [23, 226, 155, 195]],
    }
    /// IEX DEEP 1.0: price levels and trades.
    IexDeep {
        keys: &["iex-deep", "iex"],
        name: "IEX DEEP",
        publisher: Publisher::IEXG_DEEP,
        speaks: Speaks::Iex,
        shows: Shows::Levels,
        code: MessageProtocolId::Deep.raw(),
        letters: Some(b"VV"),
        listing: Some(b'V'),
        auctions: &[],
        is_main: false,
        groups: ([[233, 215, 21, 241], [233, 215, 21, 113]], 32_001),
        sources: [[23, 226, 155, 132], [23, 226, 155, 196]],
    }
    /// MEMX: MEMOIR Depth 1.3, no auctions.
    Memx {
        keys: &["memx"],
        name: "MEMX",
        publisher: Publisher::MEMX_MEMOIR,
        speaks: Speaks::Memoir,
        shows: Shows::Orders,
        code: 0,
        letters: Some(b"UU"),
        listing: None,
        auctions: &[],
        is_main: false,
        groups: ([[233, 142, 18, 1], [233, 142, 18, 65]], 19_780),
        sources: [[74, 119, 48, 2], [74, 119, 48, 66]],
    }
    /// IEX DEEP+ 1.0: every order and trade, no auctions.
    IexDeepPlus {
        keys: &["iex-deep-plus"],
        name: "IEX DEEP+",
        publisher: Publisher::IEXG_DEEP_PLUS,
        speaks: Speaks::DeepPlus,
        shows: Shows::Orders,
        code: MessageProtocolId::DeepPlus.raw(),
        letters: Some(b"VV"),
        listing: Some(b'V'),
        auctions: &[],
        is_main: false,
        groups: ([[233, 215, 21, 8], [233, 215, 21, 138]], 10_378),
        sources: [[23, 226, 155, 133], [23, 226, 155, 197]],
    }
    /// Cboe BZX: PITCH 2.41 of one unit, auctions with [`Scenario::listing_auctions`](crate::Scenario::listing_auctions).
    Bzx {
        keys: &["bzx"],
        name: "Cboe BZX",
        publisher: Publisher::BATS_PITCH,
        speaks: Speaks::Pitch,
        shows: Shows::Orders,
        code: 0,
        letters: Some(b"ZZ"),
        listing: Some(b'Z'),
        auctions: &[(7, 8)],
        is_main: false,
        groups: ([[239, 192, 130, 1], [239, 192, 131, 1]], 30001),
        sources: [[174, 136, 160, 2], [174, 136, 161, 2]],
    }
    /// Cboe BYX: PITCH 2.41 of one unit, no auctions.
    Byx {
        keys: &["byx"],
        name: "Cboe BYX",
        publisher: Publisher::BATY_PITCH,
        speaks: Speaks::Pitch,
        shows: Shows::Orders,
        code: 0,
        letters: Some(b"YY"),
        listing: None,
        auctions: &[],
        is_main: false,
        groups: ([[239, 192, 130, 2], [239, 192, 131, 2]], 30101),
        sources: [[174, 136, 160, 3], [174, 136, 161, 3]],
    }
    /// Cboe EDGA: PITCH 2.41 of one unit, no auctions.
    Edga {
        keys: &["edga"],
        name: "Cboe EDGA",
        publisher: Publisher::EDGA_PITCH,
        speaks: Speaks::Pitch,
        shows: Shows::Orders,
        code: 0,
        letters: Some(b"JJ"),
        listing: None,
        auctions: &[],
        is_main: false,
        groups: ([[239, 192, 130, 3], [239, 192, 131, 3]], 30201),
        sources: [[174, 136, 160, 4], [174, 136, 161, 4]],
    }
    /// Cboe EDGX: PITCH 2.41 of one unit, no auctions.
    Edgx {
        keys: &["edgx"],
        name: "Cboe EDGX",
        publisher: Publisher::EDGX_PITCH,
        speaks: Speaks::Pitch,
        shows: Shows::Orders,
        code: 0,
        letters: Some(b"KK"),
        listing: None,
        auctions: &[],
        is_main: false,
        groups: ([[239, 192, 130, 4], [239, 192, 131, 4]], 30301),
        sources: [[174, 136, 160, 5], [174, 136, 161, 5]],
    }
    /// NYSE: the Integrated feed of one channel, auctions with [`Scenario::listing_auctions`](crate::Scenario::listing_auctions).
    Nyse {
        keys: &["nyse"],
        name: "NYSE",
        publisher: Publisher::XNYS_PILLAR,
        speaks: Speaks::Integrated,
        shows: Shows::Orders,
        code: Market::NyseEquities.raw(),
        letters: Some(b"NN"),
        listing: Some(b'N'),
        auctions: &[(1, 8), (3, 16)],
        is_main: false,
        groups: ([[239, 192, 140, 1], [239, 192, 141, 1]], 29153),
        sources: [[198, 140, 33, 2], [198, 140, 34, 2]],
    }
    /// NYSE Arca: the Integrated feed of one channel, auctions with [`Scenario::listing_auctions`](crate::Scenario::listing_auctions).
    Arca {
        keys: &["arca"],
        name: "NYSE Arca",
        publisher: Publisher::ARCX_PILLAR,
        speaks: Speaks::Integrated,
        shows: Shows::Orders,
        code: Market::ArcaEquities.raw(),
        letters: Some(b"PP"),
        listing: Some(b'P'),
        auctions: &[(5, 8)],
        is_main: false,
        groups: ([[239, 192, 140, 2], [239, 192, 141, 2]], 29253),
        sources: [[198, 140, 33, 3], [198, 140, 34, 3]],
    }
    /// NYSE American: the Integrated feed of one channel, auctions with [`Scenario::listing_auctions`](crate::Scenario::listing_auctions).
    American {
        keys: &["american"],
        name: "NYSE American",
        publisher: Publisher::XASE_PILLAR,
        speaks: Speaks::Integrated,
        shows: Shows::Orders,
        code: Market::AmericanEquities.raw(),
        letters: Some(b"AA"),
        listing: Some(b'A'),
        auctions: &[(11, 16)],
        is_main: false,
        groups: ([[239, 192, 140, 3], [239, 192, 141, 3]], 29353),
        sources: [[198, 140, 33, 4], [198, 140, 34, 4]],
    }
    /// NYSE National: the Integrated feed of one channel, no auctions.
    National {
        keys: &["national"],
        name: "NYSE National",
        publisher: Publisher::XCIS_PILLAR,
        speaks: Speaks::Integrated,
        shows: Shows::Orders,
        code: Market::NationalEquities.raw(),
        letters: Some(b"CC"),
        listing: None,
        auctions: &[],
        is_main: false,
        groups: ([[239, 192, 140, 4], [239, 192, 141, 4]], 29453),
        sources: [[198, 140, 33, 5], [198, 140, 34, 5]],
    }
    /// NYSE Texas: the Integrated feed of one channel, no auctions.
    Texas {
        keys: &["texas"],
        name: "NYSE Texas",
        publisher: Publisher::XCHI_PILLAR,
        speaks: Speaks::Integrated,
        shows: Shows::Orders,
        code: Market::TexasEquities.raw(),
        letters: Some(b"MM"),
        listing: None,
        auctions: &[],
        is_main: false,
        groups: ([[239, 192, 140, 5], [239, 192, 141, 5]], 29553),
        sources: [[198, 140, 33, 6], [198, 140, 34, 6]],
    }
    /// London Stock Exchange: MITCH 11.9 of one market data group, no auctions.
    Lse {
        keys: &["lse"],
        name: "LSE",
        publisher: Publisher::XLON_MITCH,
        speaks: Speaks::Mitch,
        shows: Shows::Orders,
        code: 0,
        letters: None,
        listing: None,
        auctions: &[],
        is_main: false,
        groups: ([[239, 192, 150, 1], [239, 192, 151, 1]], 60_400),
        sources: [[194, 169, 8, 2], [194, 169, 9, 2]],
    }
    /// The securities information processor of tape C: all venues' quotes in UQDF 1.5, for half of the symbols.
    Uqdf {
        keys: &["uqdf", "utp"],
        name: "UTP UQDF",
        publisher: Publisher::SIP_UTP,
        speaks: Speaks::Uqdf,
        shows: Shows::Quotes,
        code: 0,
        letters: Some(b"HH"),
        listing: None,
        auctions: &[],
        is_main: false,
        groups: ([[233, 46, 176, 16], [233, 46, 177, 16]], 55_630),
        sources: [[69, 10, 251, 128], [69, 10, 252, 128]],
    }
    /// The securities information processor of tapes A and B: all venues' quotes in CQS 1.91, for the other symbols.
    Cqs {
        keys: &["cqs", "cta"],
        name: "CTA CQS",
        publisher: Publisher::SIP_CTA,
        speaks: Speaks::Cqs,
        shows: Shows::Quotes,
        code: 0,
        letters: Some(b"HH"),
        listing: None,
        auctions: &[],
        is_main: false,
        groups: ([[233, 200, 79, 9], [233, 200, 79, 137]], 61_009),
        sources: [[159, 125, 48, 5], [159, 125, 49, 5]],
    }
    /// Cboe Futures Exchange: PITCH 1.1, one unit, no auctions. Its futures take the scenario's symbols and prices.
    Cfe {
        keys: &["cfe"],
        name: "Cboe Futures",
        publisher: Publisher::XCBF_PITCH,
        speaks: Speaks::Futures,
        shows: Shows::Orders,
        code: 0,
        letters: None,
        listing: None,
        auctions: &[],
        is_main: false,
        groups: ([[239, 192, 130, 5], [239, 192, 131, 5]], 30_401),
        sources: [[174, 136, 160, 6], [174, 136, 161, 6]],
    }
}
