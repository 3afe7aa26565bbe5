//! Which statistics a trade updates (volume, high and low, last price), by the SIPs' sale conditions.
//!
//! Of the direct feeds, NYSE's carry the conditions, and IEX's carry some: odd lot, extended hours, auction. For other
//! feeds the condition that the venue would report follows from what the feed does state: whether a trade is printable,
//! whether it is from an auction, its size, and its time. The size also decides for trades of NYSE and IEX, whose `I`
//! says the same. Their `T` determines whether a trade is within regular hours ([`Event::stated_hours`]); for other
//! trades the caller knows the venue's hours.
//!
//! | trade | letter | volume | high and low | last |
//! | --- | --- | --- | --- | --- |
//! | regular | `@` | yes | yes | yes |
//! | auction, regardless of size and time | `X` | yes | yes | yes |
//! | odd lot, from 2013-12-09 | `I` | yes | no | no |
//! | odd lot before that date: not reported | | no | no | no |
//! | outside regular hours | `T` | yes | no | no |
//! | NYSE: sold (reported late) | `Z` | yes | yes | no |
//! | NYSE: late report of an extended-hours trade; cash; qualified contingent; contingent | `U`, `C`, `7`, `V` | yes | no | no |
//! | not printable: the venue reports it again in bulk | | no | no | no |
//!
//! The table follows public copies of the rules of the consolidated tapes (CTS, UTDF). Neither the table nor the
//! odd-lot date is verified.

use tapeworks_time::Nanos;

use crate::event::Event;

/// The statistics that a trade updates.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Updates {
    /// The trade counts toward the volume.
    pub volume: bool,
    /// The trade can set the high or the low.
    pub high_low: bool,
    /// The trade sets the last price; the first such trade sets the open.
    pub last: bool,
}

impl Updates {
    /// No statistic.
    pub const NOTHING: Self = Self { volume: false, high_low: false, last: false };
    /// Only the volume.
    pub const VOLUME: Self = Self { volume: true, high_low: false, last: false };
    /// Every statistic.
    pub const ALL: Self = Self { volume: true, high_low: true, last: true };
}

/// User settings that let more trades count than the table does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SaleRules {
    /// Odd lots update the same statistics as round lots.
    pub odd_lots_count: bool,
    /// Trades outside regular hours update the same statistics as others.
    pub extended_hours_count: bool,
}

/// Midnight in New York of 2013-12-09, the day from which odd lots are reported.
const ODD_LOTS_FROM: Nanos = Nanos(1_386_565_200 * Nanos::SECOND);

/// Returns the statistics that a trade updates.
///
/// `round_lot` is the number of shares in a lot of the instrument, and `is_regular` is whether the trade is within
/// regular hours.
/// ```
/// use tapeworks_market::sale_conditions::{SaleRules, Updates, updates};
/// use tapeworks_market::{Event, EventKind, InstrumentId, Publisher};
/// use tapeworks_time::Nanos;
/// let mut trade = Event::new(EventKind::Trade, Publisher::XNAS_ITCH, InstrumentId(0));
/// (trade.size, trade.ts_event) = (100, Nanos(1_762_182_000_000_000_000));
/// let rules = SaleRules::default();
/// assert_eq!(updates(&trade, 100, true, &rules), Updates::ALL);
/// assert_eq!(updates(&trade, 200, true, &rules), Updates::VOLUME);
/// ```
#[must_use]
pub const fn updates(trade: &Event, round_lot: u32, is_regular: bool, rules: &SaleRules) -> Updates {
    let Updates { volume, high_low, last } = without_letters(trade, round_lot, is_regular, rules);
    Updates {
        volume,
        high_low: high_low && trade.detail & Event::NOT_HIGH_LOW == 0,
        last: last && trade.detail & Event::NOT_LAST == 0,
    }
}

const fn without_letters(trade: &Event, round_lot: u32, is_regular: bool, rules: &SaleRules) -> Updates {
    if trade.detail & Event::NOT_PRINTABLE != 0 {
        return Updates::NOTHING;
    }
    if trade.detail & Event::CROSS != 0 {
        return Updates::ALL;
    }
    if trade.size < round_lot && !rules.odd_lots_count {
        return if trade.ts_event.0 < ODD_LOTS_FROM.0 { Updates::NOTHING } else { Updates::VOLUME };
    }
    if is_regular || rules.extended_hours_count { Updates::ALL } else { Updates::VOLUME }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::EventKind;
    use crate::{InstrumentId, Publisher};

    #[test]
    fn a_trade_updates_what_its_condition_lets_it() {
        let (old, new) = (Nanos(ODD_LOTS_FROM.0 - 1), ODD_LOTS_FROM);
        let of = |size, detail, ts_event, is_regular, rules: &SaleRules| {
            let trade = Event::new(EventKind::Trade, Publisher::XNAS_ITCH, InstrumentId(0));
            updates(&Event { size, detail, ts_event, ..trade }, 100, is_regular, rules)
        };
        let table = SaleRules::default();
        assert_eq!(of(100, 0, new, true, &table), Updates::ALL);
        assert_eq!(of(99, 0, new, true, &table), Updates::VOLUME);
        assert_eq!(of(99, 0, old, true, &table), Updates::NOTHING);
        assert_eq!(of(100, 0, new, false, &table), Updates::VOLUME);
        assert_eq!(of(99, Event::CROSS, new, false, &table), Updates::ALL);
        assert_eq!(of(100, Event::NOT_PRINTABLE, new, true, &table), Updates::NOTHING);
        let all = SaleRules { odd_lots_count: true, extended_hours_count: true };
        assert_eq!(of(99, 0, new, false, &all), Updates::ALL);
        assert_eq!(of(100, Event::NOT_PRINTABLE, new, true, &all), Updates::NOTHING);
        let (late, contingent) = (Event::NOT_LAST, Event::NOT_LAST | Event::NOT_HIGH_LOW);
        let high_low = Updates { last: false, ..Updates::ALL };
        assert_eq!(
            [late, contingent].map(|detail| of(100, detail, new, true, &table)),
            [high_low, Updates::VOLUME]
        );
        assert_eq!(of(99, late, new, true, &table), Updates::VOLUME);
        assert_eq!(of(99, late, new, false, &all), high_low);
        assert_eq!(of(100, contingent | Event::NOT_PRINTABLE, new, true, &table), Updates::NOTHING);
    }
}
