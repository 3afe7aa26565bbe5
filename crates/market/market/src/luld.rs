//! Limit up, limit down: an instrument's price bands, and how quotes relate to them.
//!
//! The SIPs compute and publish the bands. The Plan to Address Extraordinary Market Volatility treats quotes outside
//! the bands as follows:
//!
//! | quote | at the SIP | here |
//! | --- | --- | --- |
//! | bid above upper band, offer below lower band | flagged, not executable, never the national best | excluded: [`PriceBands::admits_bid`] |
//! | bid below lower band, offer above upper band | may be the national best, flagged as not executable | counts, with [`Standing`] |
//! | bid at upper band crossing no offer, offer at lower band crossing no bid | limit state quotation | counts; [`LimitState::Limit`] |
//! | national bid below lower or offer above upper band, no limit state | listing market may declare a straddle state | [`LimitState::Straddle`] |
//!
//! Cost: two compares per venue, and one more cache line per instrument, once any SIP has sent bands.

use tapeworks_time::Nanos;

use crate::price::Price;
use crate::venue::Publisher;

/// The price bands of an instrument, as published by a SIP.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PriceBands {
    /// The limit down price.
    pub lower: Option<Price>,
    /// The limit up price.
    pub upper: Option<Price>,
    /// The SIP's letter: `A` opening, `B` during the day, `C` restated, `D` suspended during a halt or pause, `E`
    /// reopening, `F` outside the hours of the rule; a space for none.
    pub indicator: u8,
    /// When the bands take effect; 0 if the SIP does not state it.
    pub effective: Nanos,
}

impl PriceBands {
    /// Returns whether the bands are in effect: not suspended, and within the hours of the rule.
    #[must_use]
    pub const fn are_in_effect(&self) -> bool {
        !matches!(self.indicator, b'D' | b'F')
    }

    /// Returns whether a bid is eligible for a national best: it is not above the upper band.
    #[must_use]
    pub fn admits_bid(&self, bid: Price) -> bool {
        self.upper.is_none_or(|upper| bid <= upper) || !self.are_in_effect()
    }

    /// Returns whether an offer is eligible for a national best: it is not below the lower band.
    #[must_use]
    pub fn admits_ask(&self, ask: Price) -> bool {
        self.lower.is_none_or(|lower| ask >= lower) || !self.are_in_effect()
    }
}

/// How a national best bid and offer relates to the price bands.
///
/// By default both sides are executable and neither is at a band.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Standing(u8);

impl Standing {
    /// The bid is below the lower band and not executable.
    pub const BID_BELOW: Self = Self(1);
    /// The offer is above the upper band and not executable.
    pub const ASK_ABOVE: Self = Self(2);
    /// The bid is at the upper band.
    pub const BID_AT_UPPER: Self = Self(4);
    /// The offer is at the lower band.
    pub const ASK_AT_LOWER: Self = Self(8);

    /// Returns the union of both.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns whether all of `other` is set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    pub(crate) const fn bits(self) -> u8 {
        self.0
    }

    /// Decodes the bits; unknown bits are ignored.
    pub(crate) const fn from_bits(bits: u8) -> Self {
        Self(bits & 15)
    }

    /// Decodes a letter of the SIPs' national indicator. Returns `None` for an unknown letter.
    #[must_use]
    pub const fn of_letter(letter: u8) -> Option<Self> {
        Some(match letter {
            b' ' | b'A' => Self(0),
            b'B' => Self::BID_BELOW,
            b'C' => Self::ASK_ABOVE,
            b'D' => Self::BID_BELOW.with(Self::ASK_ABOVE),
            b'E' => Self::BID_AT_UPPER,
            b'F' => Self::ASK_AT_LOWER,
            b'G' => Self::BID_AT_UPPER.with(Self::ASK_ABOVE),
            b'H' => Self::BID_BELOW.with(Self::ASK_AT_LOWER),
            b'I' => Self::BID_AT_UPPER.with(Self::ASK_AT_LOWER),
            _ => return None,
        })
    }

    /// Returns the letter of the SIPs' national indicator, or `None` for a contradictory combination.
    #[must_use]
    pub const fn letter(self) -> Option<u8> {
        Some(match self.0 {
            0 => b'A',
            1 => b'B',
            2 => b'C',
            3 => b'D',
            4 => b'E',
            8 => b'F',
            6 => b'G',
            9 => b'H',
            12 => b'I',
            _ => return None,
        })
    }

    /// Computes how a bid and an offer relate to bands. A crossed market is in no limit state.
    #[must_use]
    pub fn of(bands: &PriceBands, bid: Option<Price>, ask: Option<Price>) -> Self {
        if !bands.are_in_effect() {
            return Self::default();
        }
        let is_crossed = bid.zip(ask).is_some_and(|(bid, ask)| bid > ask);
        let mut standing = Self::default();
        let mut say = |is_so: bool, what: Self| standing = if is_so { standing.with(what) } else { standing };
        let both = |price: Option<Price>, band: Option<Price>| price.zip(band);
        say(both(bid, bands.lower).is_some_and(|(bid, lower)| bid < lower), Self::BID_BELOW);
        say(both(ask, bands.upper).is_some_and(|(ask, upper)| ask > upper), Self::ASK_ABOVE);
        say(bid.is_some() && bid == bands.upper && !is_crossed, Self::BID_AT_UPPER);
        say(ask.is_some() && ask == bands.lower && !is_crossed, Self::ASK_AT_LOWER);
        standing
    }

    /// Returns the resulting limit state.
    #[must_use]
    pub const fn state(self) -> LimitState {
        if self.0 & (Self::BID_AT_UPPER.0 | Self::ASK_AT_LOWER.0) != 0 {
            LimitState::Limit
        } else if self.0 != 0 {
            LimitState::Straddle
        } else {
            LimitState::None
        }
    }
}

/// The limit state of an instrument.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LimitState {
    /// Neither limit state nor straddle.
    #[default]
    None,
    /// The national best bid is at the upper band, or the offer at the lower one. After 15 seconds the listing market
    /// pauses trading.
    Limit,
    /// The national best bid is below the lower band, or the offer above the upper one: a straddle, which the listing
    /// market may declare a straddle state.
    Straddle,
}

impl LimitState {
    /// Returns the state as a word.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Limit => "limit",
            Self::Straddle => "straddle",
        }
    }
}

/// What the SIPs have published about an instrument's bands.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Luld {
    /// The latest bands from a SIP; `None` before the first, after the end of the rule's hours, and after a gap on the
    /// SIP's channels.
    pub bands: Option<PriceBands>,
    /// The SIP's latest report on its own national best.
    pub national: Standing,
    /// The SIP that sent the bands; without bands, the SIP that sent the report.
    pub sip: Publisher,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn price(dollars: i64) -> Price {
        Price::from_e9(dollars * Price::ONE).unwrap()
    }

    fn bands(indicator: u8) -> PriceBands {
        PriceBands { lower: Some(price(9)), upper: Some(price(11)), indicator, effective: Nanos(0) }
    }

    #[test]
    fn a_bid_above_and_an_offer_below_the_bands_count_in_no_national_best() {
        for (dollars, bid_counts, ask_counts) in
            [(8, true, false), (9, true, true), (11, true, true), (12, false, true)]
        {
            let one = price(dollars);
            let counts = |bands: PriceBands| (bands.admits_bid(one), bands.admits_ask(one));
            assert_eq!(counts(bands(b'B')), (bid_counts, ask_counts), "{dollars}");
            assert_eq!([counts(bands(b'D')), counts(bands(b'F'))], [(true, true); 2], "{dollars}");
        }
    }

    #[test]
    fn a_quote_at_a_band_is_a_limit_state_and_one_outside_a_straddle() {
        let of = |bid: i64, ask: i64| Standing::of(&bands(b'B'), Some(price(bid)), Some(price(ask)));
        assert_eq!(of(10, 11).state(), LimitState::None);
        assert_eq!((of(8, 10), of(8, 10).state()), (Standing::BID_BELOW, LimitState::Straddle));
        assert_eq!((of(10, 12), of(10, 12).state()), (Standing::ASK_ABOVE, LimitState::Straddle));
        assert_eq!(of(11, 12), Standing::BID_AT_UPPER.with(Standing::ASK_ABOVE));
        assert_eq!(of(11, 12).state(), LimitState::Limit);
        assert_eq!(of(8, 9).state(), LimitState::Limit);
        assert_eq!(of(11, 10).state(), LimitState::None, "it crosses the offer");
        assert_eq!(Standing::of(&bands(b'F'), Some(price(8)), None), Standing::default());
        assert_eq!(Standing::of(&bands(b'B'), None, None), Standing::default());
    }

    #[test]
    fn every_letter_of_the_sips_says_what_the_prices_would() {
        let of = |bid: i64, ask: i64| Some(Standing::of(&bands(b'B'), Some(price(bid)), Some(price(ask))));
        let by_prices = [
            (b'A', of(10, 10)),
            (b'B', of(8, 10)),
            (b'C', of(10, 12)),
            (b'D', of(8, 12)),
            (b'E', of(11, 11)),
            (b'F', of(9, 9)),
            (b'G', of(11, 12)),
            (b'H', of(8, 9)),
        ];
        for (letter, standing) in by_prices {
            assert_eq!(Standing::of_letter(letter), standing, "{}", letter as char);
            assert_eq!(standing.and_then(Standing::letter), Some(letter));
        }
        let both = Standing::BID_AT_UPPER.with(Standing::ASK_AT_LOWER);
        assert_eq!((Standing::of_letter(b'I'), both.letter()), (Some(both), Some(b'I')));
        assert_eq!(both.with(Standing::BID_BELOW).letter(), None);
        assert_eq!([b'J', b'0', 0].map(Standing::of_letter), [None; 3]);
    }
}
