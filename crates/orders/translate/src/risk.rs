//! Checks before an order is sent, per client. Each breach is a reject with a reason.
//!
//! An order is refused if a check cannot be made: without a top of book, a market order has no notional; without the other side's
//! price, a price collar has no bound. Cost: comparisons, and one 128-bit multiplication each for the notional and the collar.

use tapeworks_session::Throttle;

use crate::ids::InstrumentIndex;

/// Basis points in the whole.
const BASIS_POINTS: i128 = 10_000;

/// One unit of price or quantity in 1e-8.
pub(crate) const E8: i64 = 100_000_000;

/// The limits of a client's orders. The default has no limits, but refuses short sells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RiskLimits {
    /// Maximum quantity of an order; 0: no limit.
    pub most_quantity: u32,
    /// Maximum notional (price times quantity) of an order, in whole units of currency; 0: no limit. The price is the highest at
    /// which the order may trade: for a buy, its limit, or else the best offer; for a sell, the higher of its limit and the best
    /// bid; and a stop price above these.
    pub most_notional: u64,
    /// How far beyond the other side's best price a limit or a stop price may be, in basis points of that price; 0: no collar.
    pub collar_basis_points: u32,
    /// Maximum number of working orders; 0: no limit.
    pub most_open_orders: u32,
    /// Maximum number of orders and replaces in any second; 0: no limit.
    pub orders_per_second: u32,
    /// Whether the client may sell short.
    pub may_sell_short: bool,
    /// The instruments that the client may trade; `None`: all.
    pub instruments: Option<Vec<InstrumentIndex>>,
}

/// The best prices of an instrument, in 1e-8.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TopOfBook {
    /// The best bid.
    pub bid_e8: Option<i64>,
    /// The best offer.
    pub offer_e8: Option<i64>,
}

/// A source of the best prices that orders are checked against. A program without limits that need prices has none.
pub trait TopsOfBook: std::fmt::Debug + Send {
    /// Returns the current best prices of an instrument.
    fn top(&mut self, instrument: InstrumentIndex) -> TopOfBook;

    /// Checks that the source exists and its prices are current. A host calls it several times a second with its steady time in ns.
    /// Returns a change: where prices come from now, or why there are none.
    fn look_after(&mut self, _now_ns: u64) -> Option<Result<String, String>> {
        None
    }
}

/// Prices by instrument; no price beyond the last.
impl TopsOfBook for Vec<TopOfBook> {
    fn top(&mut self, instrument: InstrumentIndex) -> TopOfBook {
        self.get(instrument.0 as usize).copied().unwrap_or_default()
    }
}

/// Why an order is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Breach {
    Killed,
    Instrument,
    ShortSell,
    Quantity,
    Price,
    Notional,
    NoReferencePrice,
    Collar,
    OpenOrders,
    Rate,
}

impl Breach {
    /// Returns the text of the reject.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Killed => "Trading is halted for this client",
            Self::Instrument => "The client may not trade this instrument",
            Self::ShortSell => "The client may not sell short",
            Self::Quantity => "The quantity is above the client's limit",
            Self::Price => "The price is not above zero",
            Self::Notional => "The notional is above the client's limit",
            Self::NoReferencePrice => "No top of book to check the order against",
            Self::Collar => "The price is outside the collar around the top of book",
            Self::OpenOrders => "The client has as many working orders as it may",
            Self::Rate => "The client sends more orders in a second than it may",
        }
    }

    /// Returns OrdRejReason (103).
    pub(crate) const fn order_reason(self) -> i64 {
        match self {
            Self::Killed | Self::ShortSell => 0,
            Self::Instrument => 1,
            Self::Quantity | Self::Notional | Self::OpenOrders | Self::Rate => 3,
            Self::NoReferencePrice | Self::Price => 99,
            Self::Collar => 16,
        }
    }

    /// Returns CxlRejReason (102).
    pub(crate) const fn cancel_reason(self) -> i64 {
        match self {
            Self::Killed => 2,
            _ => 99,
        }
    }
}

/// The facts about an order that are checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Checked {
    pub(crate) instrument: InstrumentIndex,
    pub(crate) is_buy: bool,
    pub(crate) is_short: bool,
    pub(crate) quantity: u32,
    /// The limit; `None`: the order trades at the market price.
    pub(crate) price_e8: Option<i64>,
    /// The market price from which on the order trades; `None`: any.
    pub(crate) stop_e8: Option<i64>,
    /// Whether the instrument may trade at prices of 0 and below.
    pub(crate) may_be_negative: bool,
    pub(crate) top: TopOfBook,
    /// The number of working orders that the message adds, including this one; 0: it changes an order.
    pub(crate) adds: u32,
}

/// A client's limits and their current use.
#[derive(Clone, Debug)]
pub(crate) struct Risk {
    limits: RiskLimits,
    most_notional_e8: u128,
    /// For each instrument, whether it may be traded; empty: all may.
    instruments: Vec<bool>,
    throttle: Throttle,
    pub(crate) open_orders: u32,
    /// Whether the client's kill switch is on.
    pub(crate) is_killed: bool,
}

impl Risk {
    /// Returns whether an order is compared with the market. The notional of a buy with a limit is not.
    #[inline]
    pub(crate) const fn needs_top(&self, is_buy: bool, has_limit: bool) -> bool {
        self.limits.collar_basis_points != 0 || self.limits.most_notional != 0 && !(is_buy && has_limit)
    }

    /// Returns an instrument that the client may trade.
    pub(crate) fn first_instrument(&self) -> InstrumentIndex {
        let listed = self.limits.instruments.as_ref().and_then(|list| list.first().copied());
        listed.unwrap_or_default()
    }

    pub(crate) fn new(limits: &RiskLimits, instruments: usize) -> Self {
        let mut allowed = Vec::new();
        if let Some(list) = &limits.instruments {
            allowed.resize(instruments, false);
            for index in list {
                if let Some(place) = allowed.get_mut(index.0 as usize) {
                    *place = true;
                }
            }
        }
        Self {
            limits: limits.clone(),
            most_notional_e8: u128::from(limits.most_notional) * u128::from(E8.unsigned_abs()),
            instruments: allowed,
            throttle: Throttle::new(limits.orders_per_second),
            open_orders: 0,
            is_killed: false,
        }
    }

    /// Returns whether one more order is within the client's rate, and counts it if so.
    #[inline]
    pub(crate) fn takes(&mut self, now_ns: u64) -> bool {
        self.throttle.take(now_ns)
    }

    /// Checks an order against all limits except the rate. Counts nothing.
    #[inline(always)]
    pub(crate) fn check_limits(&self, order: &Checked) -> Result<(), Breach> {
        let limits = &self.limits;
        let is_listed = || self.instruments.get(order.instrument.0 as usize).copied().unwrap_or(false);
        if self.is_killed {
            return Err(Breach::Killed);
        }
        if limits.instruments.is_some() && !is_listed() {
            return Err(Breach::Instrument);
        }
        if order.is_short && !limits.may_sell_short {
            return Err(Breach::ShortSell);
        }
        if limits.most_quantity != 0 && order.quantity > limits.most_quantity {
            return Err(Breach::Quantity);
        }
        let is_any = |is_so: &dyn Fn(i64) -> bool| {
            order.price_e8.is_some_and(is_so) || order.stop_e8.is_some_and(is_so)
        };
        if !order.may_be_negative && is_any(&|price_e8| price_e8 <= 0) {
            return Err(Breach::Price);
        }
        let other_side = if order.is_buy { order.top.offer_e8 } else { order.top.bid_e8 };
        if limits.most_notional != 0 {
            // A buy trades at its limit or below; a sell trades at the market price if that is better than its limit.
            let size = |price_e8: Option<i64>| price_e8.map_or(0, i64::unsigned_abs);
            let highest = match order.price_e8 {
                Some(limit) if order.is_buy => limit.unsigned_abs(),
                limit => {
                    let best = other_side.ok_or(Breach::NoReferencePrice)?.unsigned_abs();
                    best.max(size(limit)).max(size(order.stop_e8))
                }
            };
            if u128::from(highest) * u128::from(order.quantity) > self.most_notional_e8 {
                return Err(Breach::Notional);
            }
        }
        if limits.collar_basis_points != 0 {
            let best_e8 = i128::from(other_side.ok_or(Breach::NoReferencePrice)?);
            let width = best_e8.abs() * i128::from(limits.collar_basis_points);
            let is_beyond = |price_e8: i64| {
                let over = i128::from(price_e8) - best_e8;
                (if order.is_buy { over } else { -over }) * BASIS_POINTS > width
            };
            if is_any(&is_beyond) {
                return Err(Breach::Collar);
            }
        }
        let open_orders = self.open_orders.saturating_add(order.adds);
        if order.adds != 0 && limits.most_open_orders != 0 && open_orders > limits.most_open_orders {
            return Err(Breach::OpenOrders);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDER: Checked = Checked {
        instrument: InstrumentIndex(1),
        is_buy: true,
        is_short: false,
        quantity: 100,
        price_e8: Some(10 * E8),
        stop_e8: None,
        may_be_negative: false,
        top: TopOfBook { bid_e8: Some(9 * E8), offer_e8: Some(10 * E8) },
        adds: 1,
    };

    impl Risk {
        /// Checks an order as the translator does.
        fn check(&mut self, order: &Checked, now_ns: u64) -> Result<(), Breach> {
            self.check_limits(order)?;
            if self.takes(now_ns) { Ok(()) } else { Err(Breach::Rate) }
        }
    }

    fn check(limits: &RiskLimits, order: &Checked) -> Result<(), Breach> {
        Risk::new(limits, 3).check(order, 0)
    }

    #[test]
    fn each_limit_lets_its_bound_pass_and_nothing_beyond() {
        let none = RiskLimits::default();
        let quantity = RiskLimits { most_quantity: 100, ..none.clone() };
        assert_eq!(check(&quantity, &ORDER), Ok(()));
        assert_eq!(check(&quantity, &Checked { quantity: 101, ..ORDER }), Err(Breach::Quantity));

        let notional = RiskLimits { most_notional: 1_000, ..none.clone() };
        assert_eq!(check(&notional, &ORDER), Ok(()));
        assert_eq!(
            check(&notional, &Checked { price_e8: Some(10 * E8 + 1), ..ORDER }),
            Err(Breach::Notional)
        );
        assert_eq!(check(&notional, &Checked { price_e8: None, ..ORDER }), Ok(()), "by the offer");
        let blind = Checked { price_e8: None, top: TopOfBook::default(), ..ORDER };
        assert_eq!(check(&notional, &blind), Err(Breach::NoReferencePrice));
        let extreme =
            Checked { price_e8: Some(i64::MIN), quantity: u32::MAX, may_be_negative: true, ..ORDER };
        assert_eq!(check(&notional, &extreme), Err(Breach::Notional));

        let short = Checked { is_buy: false, is_short: true, ..ORDER };
        assert_eq!(check(&none, &short), Err(Breach::ShortSell));
        assert_eq!(check(&RiskLimits { may_sell_short: true, ..none.clone() }, &short), Ok(()));

        let listed = RiskLimits { instruments: Some(vec![InstrumentIndex(1)]), ..none };
        assert_eq!(check(&listed, &ORDER), Ok(()));
        for instrument in [0, 2, 9] {
            let order = Checked { instrument: InstrumentIndex(instrument), ..ORDER };
            assert_eq!(check(&listed, &order), Err(Breach::Instrument));
        }
    }

    #[test]
    fn the_notional_of_an_order_is_that_of_the_highest_price_at_which_it_may_trade() {
        let limits = RiskLimits { most_notional: 1_000, ..RiskLimits::default() };
        let at = |is_buy, price_e8, stop_e8, bid| {
            let top = TopOfBook { bid_e8: bid, offer_e8: Some(10 * E8) };
            check(&limits, &Checked { is_buy, price_e8, stop_e8, top, ..ORDER })
        };
        // A sell at 1 trades at the bid.
        assert_eq!(at(false, Some(E8), None, Some(10 * E8)), Ok(()));
        assert_eq!(at(false, Some(E8), None, Some(10 * E8 + 1)), Err(Breach::Notional));
        assert_eq!(at(false, Some(10 * E8 + 1), None, Some(E8)), Err(Breach::Notional), "by its limit");
        assert_eq!(
            at(false, Some(E8), None, None),
            Err(Breach::NoReferencePrice),
            "it may trade at any price"
        );
        assert_eq!(at(false, None, Some(8 * E8), Some(9 * E8)), Ok(()));
        // A buy trades at its limit or below; without a limit, from its stop price on.
        assert_eq!(at(true, Some(10 * E8), None, None), Ok(()));
        assert_eq!(at(true, None, Some(10 * E8), None), Ok(()));
        assert_eq!(at(true, None, Some(10 * E8 + 1), None), Err(Breach::Notional));
        assert_eq!(at(true, Some(10 * E8), Some(11 * E8), None), Ok(()), "no higher than its limit");
    }

    #[test]
    fn prices_of_zero_and_below_are_refused_unless_the_instrument_has_such() {
        let price = |price_e8, stop_e8, may_be_negative| {
            check(&RiskLimits::default(), &Checked { price_e8, stop_e8, may_be_negative, ..ORDER })
        };
        for wrong in [Some(0), Some(-1), Some(i64::MIN)] {
            for (limit, stop) in [(wrong, None), (None, wrong), (Some(E8), wrong)] {
                assert_eq!(price(limit, stop, false), Err(Breach::Price), "{limit:?} {stop:?}");
                assert_eq!(price(limit, stop, true), Ok(()));
            }
        }
        assert_eq!((price(Some(1), None, false), price(None, None, false)), (Ok(()), Ok(())));
    }

    #[test]
    fn the_collar_is_around_the_other_sides_best_price() {
        let limits = RiskLimits { collar_basis_points: 100, ..RiskLimits::default() };
        let buy = |price_e8| check(&limits, &Checked { price_e8: Some(price_e8), ..ORDER });
        let sell = |price_e8| check(&limits, &Checked { price_e8: Some(price_e8), is_buy: false, ..ORDER });
        assert_eq!((buy(10 * E8 + E8 / 10), buy(10 * E8 + E8 / 10 + 1)), (Ok(()), Err(Breach::Collar)));
        assert_eq!(
            (sell(9 * E8 - E8 * 9 / 100), sell(9 * E8 - E8 * 9 / 100 - 1)),
            (Ok(()), Err(Breach::Collar))
        );
        assert_eq!((buy(1), sell(i64::MAX)), (Ok(()), Ok(())), "a passive price is no danger");
        let stop = |is_buy, stop_e8, price_e8| {
            check(&limits, &Checked { is_buy, stop_e8: Some(stop_e8), price_e8, ..ORDER })
        };
        assert_eq!(stop(true, 10 * E8 + E8 / 10, None), Ok(()));
        assert_eq!(stop(true, 10 * E8 + E8 / 10 + 1, None), Err(Breach::Collar));
        assert_eq!(stop(false, 9 * E8 - E8 * 9 / 100 - 1, None), Err(Breach::Collar));
        assert_eq!(stop(true, 11 * E8, Some(10 * E8)), Err(Breach::Collar), "with a limit too");
        assert_eq!(stop(true, 10 * E8, Some(11 * E8)), Err(Breach::Collar));
        let blind = Checked { top: TopOfBook { bid_e8: Some(1), offer_e8: None }, ..ORDER };
        assert_eq!(check(&limits, &blind), Err(Breach::NoReferencePrice));
    }

    #[test]
    fn working_orders_the_rate_and_the_kill_switch_bound_a_client() {
        let limits = RiskLimits { most_open_orders: 2, orders_per_second: 2, ..RiskLimits::default() };
        let mut risk = Risk::new(&limits, 3);
        risk.open_orders = 2;
        assert_eq!(risk.check(&ORDER, 0), Err(Breach::OpenOrders));
        risk.open_orders = 1;
        assert_eq!(risk.check(&Checked { adds: 2, ..ORDER }, 0), Err(Breach::OpenOrders), "a quote");
        let replace = Checked { adds: 0, ..ORDER };
        assert_eq!((risk.check(&replace, 0), risk.check(&replace, 0)), (Ok(()), Ok(())));
        assert_eq!(risk.check(&replace, 999_999_999), Err(Breach::Rate));
        assert_eq!(risk.check(&replace, 1_000_000_000), Ok(()));
        risk.is_killed = true;
        assert_eq!(risk.check(&replace, 9_000_000_000), Err(Breach::Killed));
    }
}
