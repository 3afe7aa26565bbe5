//! Checks before an order is sent, per client. Each breach is a reject with a reason.
//!
//! A check that cannot be made refuses the order: a market order without a top of book has no notional, and a price collar
//! without the other side's price has no bound. Cost: comparisons; one multiplication of 128 bits for the notional, one for the collar.

use tapeworks_session::Throttle;

use crate::ids::InstrumentIndex;

/// Basis points of the whole.
const BASIS_POINTS: i128 = 10_000;

/// One unit of price or quantity in 1e-8.
pub(crate) const E8: i64 = 100_000_000;

/// The limits of a client's orders. The default has none, but for short sells, which it refuses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RiskLimits {
    /// The most quantity of an order; 0: no limit.
    pub most_quantity: u32,
    /// The most notional (price times quantity) of an order, in whole units of currency; 0: no limit.
    pub most_notional: u64,
    /// How far beyond the best price of the other side a limit may be, in basis points of that price; 0: no collar.
    pub collar_basis_points: u32,
    /// The most working orders; 0: no limit.
    pub most_open_orders: u32,
    /// The most orders and replaces in any second; 0: no limit.
    pub orders_per_second: u32,
    /// Whether it may sell short.
    pub may_sell_short: bool,
    /// The instruments that it may trade; `None`: all.
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

/// Gives the best prices that orders are checked against. A program without limits that need one has none.
pub trait TopsOfBook: std::fmt::Debug + Send {
    /// The best prices of an instrument now.
    fn top(&mut self, instrument: InstrumentIndex) -> TopOfBook;

    /// Looks whether the source is still there; a host calls it some times a second. Returns news: where prices come from now, or why there are
    /// none.
    fn look_after(&mut self) -> Option<Result<String, String>> {
        None
    }
}

/// Prices by instrument; none beyond the last.
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
    Notional,
    NoReferencePrice,
    Collar,
    OpenOrders,
    Rate,
}

impl Breach {
    /// The text of the reject.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Killed => "Trading is halted for this client",
            Self::Instrument => "The client may not trade this instrument",
            Self::ShortSell => "The client may not sell short",
            Self::Quantity => "The quantity is above the client's limit",
            Self::Notional => "The notional is above the client's limit",
            Self::NoReferencePrice => "No top of book to check the order against",
            Self::Collar => "The price is outside the collar around the top of book",
            Self::OpenOrders => "The client has as many working orders as it may",
            Self::Rate => "The client sends more orders in a second than it may",
        }
    }

    /// OrdRejReason (103).
    pub(crate) const fn order_reason(self) -> i64 {
        match self {
            Self::Killed | Self::ShortSell => 0,
            Self::Instrument => 1,
            Self::Quantity | Self::Notional | Self::OpenOrders | Self::Rate => 3,
            Self::NoReferencePrice => 99,
            Self::Collar => 16,
        }
    }

    /// CxlRejReason (102).
    pub(crate) const fn cancel_reason(self) -> i64 {
        match self {
            Self::Killed => 2,
            _ => 99,
        }
    }
}

/// What is checked of an order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Checked {
    pub(crate) instrument: InstrumentIndex,
    pub(crate) is_buy: bool,
    pub(crate) is_short: bool,
    pub(crate) quantity: u32,
    /// The limit; `None`: the order trades at the market's price.
    pub(crate) price_e8: Option<i64>,
    pub(crate) top: TopOfBook,
    /// How many working orders its message adds, this one included; 0: it changes one.
    pub(crate) adds: u32,
}

/// A client's limits and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Risk {
    limits: RiskLimits,
    /// Whether each instrument may be traded; empty: all may.
    instruments: Vec<bool>,
    throttle: Throttle,
    pub(crate) open_orders: u32,
    /// The client's kill switch.
    pub(crate) is_killed: bool,
}

impl Risk {
    /// Whether an order is compared with the market: the notional of one with a limit is not.
    #[inline]
    pub(crate) const fn needs_top(&self, has_limit: bool) -> bool {
        self.limits.collar_basis_points != 0 || self.limits.most_notional != 0 && !has_limit
    }

    /// An instrument that may be traded.
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
            instruments: allowed,
            throttle: Throttle::new(limits.orders_per_second),
            open_orders: 0,
            is_killed: false,
        }
    }

    /// Checks an order. The rate is checked last, and only orders that pass the rest count for it.
    #[inline]
    pub(crate) fn check(&mut self, order: &Checked, now_ns: u64) -> Result<(), Breach> {
        self.check_limits(order)?;
        if self.throttle.take(now_ns) { Ok(()) } else { Err(Breach::Rate) }
    }

    /// Checks an order, but for the rate: nothing counts.
    #[inline]
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
        let other_side = if order.is_buy { order.top.offer_e8 } else { order.top.bid_e8 };
        if limits.most_notional != 0 {
            let price_e8 = order.price_e8.or(other_side).ok_or(Breach::NoReferencePrice)?;
            let notional_e8 = i128::from(price_e8.unsigned_abs()) * i128::from(order.quantity);
            if notional_e8 > i128::from(limits.most_notional) * i128::from(E8) {
                return Err(Breach::Notional);
            }
        }
        if limits.collar_basis_points != 0 {
            let best_e8 = i128::from(other_side.ok_or(Breach::NoReferencePrice)?);
            let width = best_e8.abs() * i128::from(limits.collar_basis_points);
            let beyond = order.price_e8.map_or(0, |price_e8| {
                let over = i128::from(price_e8) - best_e8;
                if order.is_buy { over } else { -over }
            });
            if beyond * BASIS_POINTS > width {
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
        top: TopOfBook { bid_e8: Some(9 * E8), offer_e8: Some(10 * E8) },
        adds: 1,
    };

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
        let extreme = Checked { price_e8: Some(i64::MIN), quantity: u32::MAX, ..ORDER };
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
