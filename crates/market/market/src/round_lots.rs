//! Round lots: from a rule by price and date, or from another venue.
//!
//! A venue's directory states the round lot of each instrument, and that lot applies to the venue. A feed of contracts
//! has a lot of one ([`Feed::round_lot`](crate::venue::Feed::round_lot)). A feed of stocks without such a directory
//! (Cboe's PITCH) takes the lot of its books from elsewhere, in this order:
//!
//! 1. the market that lists the instrument, from its own directory;
//! 2. another venue (of several, the first in the NBBO's table), then a SIP;
//! 3. [`round_lot_of`] the price that the user supplies for the symbol ([`RoundLotPrices`]);
//! 4. [`DEFAULT_ROUND_LOT`].
//!
//! A lot of more than 100 shares applies only to the venue that states it: no rule has had such a lot.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use tapeworks_time::Nanos;

use crate::book::DEFAULT_ROUND_LOT;
use crate::event::Event;
use crate::instrument::Symbol;
use crate::price::Price;
use crate::venue::Publisher;

/// The round lots in effect from a given day.
struct Dated {
    /// Midnight of that day in New York.
    from: Nanos,
    /// The highest price of each tier in units of 1e-9, and its lot.
    tiers: &'static [(i64, u32)],
}

/// The compliance date: midnight in New York of 2025-11-03, the first business day of November.
const RULE_FROM: Nanos = Nanos(1_762_146_000 * Nanos::SECOND);

/// Round lots of NMS stocks by date.
///
/// The price is the average closing price on the primary listing exchange. The March average determines the lots from
/// the first business day of May, the September average those from the first business day of November.
///
/// Sources: until then, 100 unless the listing market specifies otherwise; from 2025-11-03, 17 CFR 242.600(b)(93) as
/// amended by Release 34-90610, with the compliance date of Release 34-101070 (first business day of November 2025).
const ROUND_LOTS: [Dated; 2] = [
    Dated { from: Nanos(0), tiers: &[(i64::MAX, 100)] },
    Dated {
        from: RULE_FROM,
        tiers: &[(250 * Price::ONE, 100), (1_000 * Price::ONE, 40), (10_000 * Price::ONE, 10), (i64::MAX, 1)],
    },
];

/// Returns the round lot that the rule assigns to a stock at a given time, from its average closing price.
/// ```
/// use tapeworks_market::round_lots::round_lot_of;
/// use tapeworks_market::Price;
/// use tapeworks_time::Nanos;
/// let price = Price::from_e9(250_010_000_000).unwrap();
/// // 2025-10-31 and 2025-11-03, 10:00 in New York.
/// assert_eq!(round_lot_of(price, Nanos(1_761_919_200_000_000_000)), 100);
/// assert_eq!(round_lot_of(price, Nanos(1_762_182_000_000_000_000)), 40);
/// ```
pub fn round_lot_of(price: Price, at: Nanos) -> u32 {
    let dated = ROUND_LOTS.iter().rev().find(|dated| dated.from <= at);
    let tier = dated.and_then(|dated| dated.tiers.iter().find(|(highest, _)| price.e9() <= *highest));
    tier.map_or(DEFAULT_ROUND_LOT, |(_, lot)| *lot)
}

/// The unit of the sizes in the SIPs' quotes.
///
/// From the day its round lots take effect, the rule requires the SIPs to publish shares, rounded down to whole lots
/// (UTP Vendor Alert 2025-10); before, they publish round lots. No SIP capture from that day or later has been
/// examined.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SipSizes {
    /// Round lots before 2025-11-03, shares from that day.
    #[default]
    ByDate,
    /// Always round lots.
    Lots,
    /// Always shares.
    Shares,
}

impl SipSizes {
    /// Returns whether sizes are in shares at a given time.
    /// ```
    /// use tapeworks_time::Nanos;
    /// use tapeworks_market::round_lots::SipSizes;
    /// // 2025-10-31 and 2025-11-03, 10:00 in New York.
    /// assert!(!SipSizes::ByDate.are_shares(Nanos(1_761_919_200_000_000_000)));
    /// assert!(SipSizes::ByDate.are_shares(Nanos(1_762_182_000_000_000_000)));
    /// ```
    #[must_use]
    #[inline]
    pub const fn are_shares(self, at: Nanos) -> bool {
        match self {
            Self::ByDate => at.0 >= RULE_FROM.0,
            Self::Lots => false,
            Self::Shares => true,
        }
    }
}

/// Average closing prices by symbol, from which the rule derives round lots. Clones share the table.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RoundLotPrices(Option<Arc<HashMap<Symbol, Price>>>);

impl RoundLotPrices {
    /// Parses a table with one `SYMBOL,PRICE` per line, where the price is a decimal number.
    ///
    /// Empty lines and lines that begin with `#` are ignored.
    ///
    /// # Errors
    /// [`WrongPrice`] for the first invalid line.
    pub fn parse(text: &str) -> Result<Self, WrongPrice> {
        let mut prices = HashMap::new();
        for (line, text) in (1..).zip(text.lines()) {
            let text = text.trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let wrong = |what| WrongPrice { line, what };
            let (symbol, price) = text.rsplit_once(',').ok_or_else(|| wrong("it is not SYMBOL,PRICE"))?;
            let symbol =
                Symbol::parse(symbol.trim()).ok_or_else(|| wrong("it does not begin with a symbol"))?;
            let price = decimal(price.trim()).ok_or_else(|| {
                wrong("it does not end with a price above 0 of at most nine decimal places")
            })?;
            if prices.insert(symbol, price).is_some() {
                return Err(wrong("the symbol is there twice"));
            }
        }
        Ok(Self((!prices.is_empty()).then(|| Arc::new(prices))))
    }

    /// Returns the price of a symbol, if it is in the table.
    pub fn price_of(&self, symbol: Symbol) -> Option<Price> {
        self.0.as_ref()?.get(&symbol).copied()
    }
}

/// Parses a decimal number above 0 as a price.
fn decimal(text: &str) -> Option<Price> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || fraction.len() > 9 || !is_number(whole) || !is_number(fraction) {
        return None;
    }
    let fraction: i64 = format!("{fraction:0<9}").parse().ok()?;
    let units = whole.parse::<i64>().ok()?.checked_mul(Price::ONE)?.checked_add(fraction)?;
    Price::from_e9(units).filter(|price| price.e9() > 0)
}

/// Why a table of prices is rejected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WrongPrice {
    /// Line number, from 1.
    pub line: usize,
    what: &'static str,
}

impl fmt::Display for WrongPrice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

impl std::error::Error for WrongPrice {}

/// The lot of an instrument for venues that state none.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct TakenLot {
    /// Shares that a venue states; 0 if none does.
    shares: u8,
    /// Source of the lot: 0 for the listing market, otherwise 1 plus the feed's index; 255 for a SIP. Lower ranks win.
    rank: u8,
    /// The price that the user supplied.
    price: Option<Price>,
}

impl TakenLot {
    /// The lot of an instrument without a definition or a price.
    pub(crate) const NONE: Self = Self { shares: 0, rank: 0, price: None };

    /// Returns the shares in a lot at a given time.
    pub(crate) fn shares(self, now: Nanos) -> u32 {
        match (self.shares, self.price) {
            (0, None) => DEFAULT_ROUND_LOT,
            (0, Some(price)) => round_lot_of(price, now),
            (shares, _) => u32::from(shares),
        }
    }

    /// Applies the definition of the feed at `place`, or of a SIP (`None`), which ranks last.
    ///
    /// Returns whether the lot may have changed.
    pub(crate) fn hear(&mut self, definition: &Event, place: Option<usize>) -> bool {
        let Some(stated) = definition.definition() else { return false };
        if stated.round_lot == 0 || stated.round_lot > DEFAULT_ROUND_LOT {
            return false;
        }
        let is_listing = is_listed_at(definition.publisher, stated.listing);
        let rank = match place {
            _ if is_listing => 0,
            Some(place) => u8::try_from(place + 1).unwrap_or(u8::MAX),
            None => u8::MAX,
        };
        if self.shares != 0 && self.rank < rank {
            return false;
        }
        let before = std::mem::replace(&mut self.shares, stated.round_lot as u8);
        self.rank = rank;
        self.shares != before
    }

    /// Sets or clears the user's price.
    pub(crate) const fn reckon(&mut self, price: Option<Price>) {
        self.price = price;
    }
}

/// Returns whether the feed belongs to the market with this letter.
fn is_listed_at(publisher: Publisher, letter: u8) -> bool {
    publisher.feed().is_some_and(|feed| feed.venue.listing_letter() == Some(letter))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Definition;
    use crate::{EventKind, InstrumentId};

    fn price(text: &str) -> Price {
        decimal(text).unwrap()
    }

    #[test]
    fn a_lot_changes_at_the_ends_of_its_tier_and_on_the_day_of_the_rule() {
        let (before, after) = (Nanos(1_762_145_999_999_999_999), Nanos(1_762_146_000_000_000_000));
        for (text, lot) in [
            ("0.01", 100),
            ("250.00", 100),
            ("250.01", 40),
            ("1000", 40),
            ("1000.01", 10),
            ("10000.00", 10),
            ("10000.01", 1),
            ("740000", 1),
        ] {
            assert_eq!(round_lot_of(price(text), before), 100, "{text}");
            assert_eq!(round_lot_of(price(text), after), lot, "{text}");
        }
    }

    #[test]
    fn a_table_of_prices_is_read_whole_or_refused_with_its_line() {
        let table =
            RoundLotPrices::parse("# September\nBRK.A,741000.5\n\n  BKNG , 5400.123456789\n").unwrap();
        assert_eq!(table.price_of(Symbol::parse("BRK.A").unwrap()), Some(price("741000.5")));
        assert_eq!(table.price_of(Symbol::parse("BKNG").unwrap()), Some(price("5400.123456789")));
        assert_eq!(table.price_of(Symbol::parse("A").unwrap()), None);
        for (text, line) in [
            ("A", 1),
            ("A,1\n,2", 2),
            ("A,1\n\nA,2", 3),
            ("A,0", 1),
            ("A,-1", 1),
            ("A,1.", 0),
            ("A,.5", 1),
            ("A,1e3", 1),
            ("A,1.0123456789", 1),
            ("A,99999999999", 1),
        ] {
            let read = RoundLotPrices::parse(text);
            assert_eq!(read.err().map_or(0, |wrong| wrong.line), line, "{text}");
        }
    }

    #[test]
    fn a_listing_market_is_heard_before_others_and_others_in_their_order() {
        let define = |publisher, round_lot, listing| {
            let (class, is_test, is_etp) = (b' ', false, false);
            let (reference_price, tick) = (None, None);
            Event::new(EventKind::Definition, publisher, InstrumentId(0)).with_definition(Definition {
                round_lot,
                reference_price,
                tick,
                class,
                listing,
                is_test,
                is_etp,
            })
        };
        let mut lot = TakenLot::default();
        let (before, after) = (Nanos(0), Nanos(u64::MAX));
        assert_eq!([before, after].map(|now| lot.shares(now)), [100, 100]);
        lot.reckon(Some(price("300")));
        assert_eq!([before, after].map(|now| lot.shares(now)), [100, 40]);
        assert!(lot.hear(&define(Publisher::MEMX_MEMOIR, 10, b' '), Some(3)));
        assert!(!lot.hear(&define(Publisher::XBOS_ITCH, 1, b'Q'), Some(4)), "a later place");
        assert!(lot.hear(&define(Publisher::IEXG_DEEP, 40, b' '), Some(2)), "an earlier place");
        assert!(lot.hear(&define(Publisher::XNAS_ITCH, 1, b'Q'), Some(9)), "the listing market");
        assert!(!lot.hear(&define(Publisher::IEXG_DEEP, 10, b' '), Some(0)));
        assert!(!lot.hear(&define(Publisher::XNAS_ITCH, 0, b'Q'), Some(9)), "it states none");
        assert!(!lot.hear(&define(Publisher::XNAS_ITCH, 200, b'Q'), Some(9)), "no rule has such a lot");
        lot.reckon(Some(price("300")));
        assert_eq!([before, after].map(|now| lot.shares(now)), [1, 1]);
    }
}
