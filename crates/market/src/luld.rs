//! Limit up, limit down: the price bands of an instrument, and how quotes stand to them.
//!
//! The SIPs compute the bands and send them. The Plan to Address Extraordinary Market Volatility says of a quote outside of them:
//!
//! | quote | at the SIP | here |
//! | --- | --- | --- |
//! | a bid above the upper band, an offer below the lower band | shown with a flag, not executable, and in no national best | out of the NBBO: [`PriceBands::admits_bid`] |
//! | a bid below the lower band, an offer above the upper band | it may be the national best, with the flag that it is not executable | counts, with [`Standing`] |
//! | a bid at the upper band that crosses no offer, an offer at the lower band that crosses no bid | the national best is a limit state quotation | counts; [`LimitState::Limit`] |
//! | the national bid below the lower band or the offer above the upper one, and no limit state | the listing market may declare a straddle state | [`LimitState::Straddle`] |
//!
//! Cost: two compares for each venue, and one more line for an instrument, once any SIP has sent bands.

use tapeworks_time::Nanos;

use crate::price::Price;
use crate::venue::Publisher;

/// The price bands of an instrument, as a SIP sends them.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PriceBands {
    /// The limit down price.
    pub lower: Option<Price>,
    /// The limit up price.
    pub upper: Option<Price>,
    /// The SIP's letter: `A` opening, `B` during the day, `C` restated, `D` suspended during a halt or pause, `E` reopening, `F` outside of
    /// the hours of the rule; a space when it says nothing.
    pub indicator: u8,
    /// From when on they hold; 0 when the SIP does not say.
    pub effective: Nanos,
}

impl PriceBands {
    /// Whether they hold: they are not suspended, and it is within the hours of the rule.
    #[must_use]
    pub const fn are_in_effect(&self) -> bool {
        !matches!(self.indicator, b'D' | b'F')
    }

    /// Whether a bid counts in a national best: it is not above the upper band.
    #[must_use]
    pub fn admits_bid(&self, bid: Price) -> bool {
        self.upper.is_none_or(|upper| bid <= upper) || !self.are_in_effect()
    }

    /// Whether an offer counts in a national best: it is not below the lower band.
    #[must_use]
    pub fn admits_ask(&self, ask: Price) -> bool {
        self.lower.is_none_or(|lower| ask >= lower) || !self.are_in_effect()
    }
}

/// How a national best bid and offer stand to the price bands. By default both are executable and neither is at a band.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Standing(u8);

impl Standing {
    /// The bid is below the lower band, and not executable.
    pub const BID_BELOW: Self = Self(1);
    /// The offer is above the upper band, and not executable.
    pub const ASK_ABOVE: Self = Self(2);
    /// The bid is at the upper band.
    pub const BID_AT_UPPER: Self = Self(4);
    /// The offer is at the lower band.
    pub const ASK_AT_LOWER: Self = Self(8);

    /// What both say.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether it says all of `other`.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    pub(crate) const fn bits(self) -> u8 {
        self.0
    }

    /// From its bits; unknown ones are ignored.
    pub(crate) const fn from_bits(bits: u8) -> Self {
        Self(bits & 15)
    }

    /// What a letter of the SIPs' national indicator says. `None`: it is no letter of theirs.
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

    /// The letter of the SIPs' national indicator that says it. `None`: it contradicts itself.
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

    /// How bid and offer stand to bands. A crossed market is in no limit state.
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

    /// The state that it makes.
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
    /// Neither.
    #[default]
    None,
    /// The national best bid is at the upper band or the offer at the lower one. After 15 seconds the listing market pauses trading.
    Limit,
    /// The national best bid is below the lower band or the offer above the upper one: a straddle, which the listing market may declare a state.
    Straddle,
}

impl LimitState {
    /// In words.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Limit => "limit",
            Self::Straddle => "straddle",
        }
    }
}

/// What is known of an instrument's bands.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Luld {
    /// The last bands of a SIP; `None` before the first, after the end of the hours, and after a gap in the SIP's channels.
    pub bands: Option<PriceBands>,
    /// The SIP's last word of its own national best.
    pub national: Standing,
    /// The SIP of the bands; without bands the one whose word the standing is.
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
