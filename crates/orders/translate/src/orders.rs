//! The state of an order, and the machine that the venue's reports drive.
//!
//! The rows of [`ExchangeToClient`] are the table of *FIX to Millennium native*: how each report of the venue is passed on to
//! the client, by the state of the order. An action updates the order and stores the ExecType (150) of the client's report.
//!
//! CumQty and the value of all fills are exact integers; AvgPx is rounded half to even at the eighth decimal. Cost: a
//! dispatch and some additions; AvgPx costs a division.

use tapeworks_fix_wire::order_entry::{ExecType, OrdStatus};

use crate::dispatched::order_machine;
use crate::ids::{ClOrdId, ClientIndex, InstrumentIndex, VenueOrderId};
use crate::report::Execution;
use crate::request::NewOrder;
use crate::route::RouteIndex;

order_machine! {
    /// What the venue reports of an order, by the order's state.
    pub machine ExchangeToClient<'m> { context: Order, message: &'m Execution }

    states {
        Sent,           // no report yet: pending new
        Working,
        Suspended,
        Ended,          // filled, cancelled, expired or rejected
    }

    events {
        Accepted = 1 (report: &'m Execution),
        Trade = 2 (report: &'m Execution),
        Cancelled = 3 (report: &'m Execution),
        Replaced = 4 (report: &'m Execution),
        Rejected = 5 (report: &'m Execution),
        Expired = 6 (report: &'m Execution),
        Restated = 7 (report: &'m Execution),
        TradeCancelled = 8 (report: &'m Execution),
        TradeCorrected = 9 (report: &'m Execution),
        Suspended = 10 (report: &'m Execution),
        PendingCancel = 11 (report: &'m Execution),
    }

    rows {
        Sent + Accepted                                   => accept -> Working;
        Sent + Rejected                                   => reject -> Ended;

        Sent | Working | Suspended + Trade [is_last]      => trade -> Ended;
        Sent | Working | Suspended + Trade                => trade -> Working;
        Ended + Trade                                     => trade_late;

        Sent | Working | Suspended + Cancelled [is_last]  => cancel -> Ended;
        Sent | Working | Suspended + Cancelled            => restate -> Working;
        Sent | Working | Suspended + Expired              => expire -> Ended;
        Sent | Working | Suspended + Replaced [is_last]   => replace -> Ended;
        Sent | Working | Suspended + Replaced             => replace -> Working;
        Sent | Working | Suspended + Restated [is_last]   => restate -> Ended;
        Sent | Working | Suspended + Restated             => restate -> Working;
        Sent | Working + Suspended                        => suspend -> Suspended;
        Sent | Working | Suspended + PendingCancel        => pend_cancel;

        Ended + Restated [is_open]                        => restate -> Working;

        _ + TradeCancelled                                => cancel_trade;
        _ + TradeCorrected                                => correct_trade;

        _ + _                                             => unexpected;
    }
}

/// The outcome of the last report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The client gets a report with this ExecType.
    Report(ExecType),
    /// The report does not fit the order's state.
    Unexpected,
}

/// An order, as the client sees it.
#[derive(Clone, Debug)]
pub struct Order {
    /// The client that sent it.
    pub client: ClientIndex,
    /// The ClOrdID of the new order, or of the last replace that the venue accepted.
    pub id: ClOrdId,
    /// The instrument.
    pub instrument: InstrumentIndex,
    /// The terms as last accepted.
    pub terms: NewOrder,
    /// The venue's id; blank until its first report.
    pub order_id: VenueOrderId,
    /// OrdStatus (39).
    pub status: OrdStatus,
    /// LeavesQty (151).
    pub leaves: u32,
    /// CumQty (14).
    pub cumulative: u32,
    /// The sum of price times quantity of all fills, in 1e-8.
    pub value_e8: i128,
    /// Cancels and replaces that the venue has not answered.
    pub pending: u32,
    /// A report of the order was in doubt or unreadable.
    pub is_in_doubt: bool,
    /// Receive time of the client's message, in UTC nanoseconds.
    pub requested_ns: u64,
    /// The party for which the client sent the order.
    pub(crate) route: RouteIndex,
    pub(crate) outcome: Outcome,
}

impl Order {
    /// Creates an order that is being sent.
    pub(crate) const fn new(
        client: ClientIndex,
        id: ClOrdId,
        instrument: InstrumentIndex,
        terms: NewOrder,
        requested_ns: u64,
    ) -> Self {
        Self {
            client,
            id,
            instrument,
            leaves: terms.quantity,
            terms,
            order_id: VenueOrderId(tapeworks_wire::Ascii([b' '; 20])),
            status: OrdStatus::PendingNew,
            cumulative: 0,
            value_e8: 0,
            pending: 0,
            is_in_doubt: false,
            requested_ns,
            route: RouteIndex::NONE,
            outcome: Outcome::Unexpected,
        }
    }

    /// Returns AvgPx (6) in 1e-8, rounded half to even; 0 without fills.
    #[inline]
    #[must_use]
    pub fn average_price_e8(&self) -> i64 {
        let count = i128::from(self.cumulative);
        if count == 0 {
            return 0;
        }
        // Most values fit into 64 bits, whose division is several times cheaper.
        if let Ok(value) = i64::try_from(self.value_e8) {
            let (quotient, rest) = (value.div_euclid(count as i64), value.rem_euclid(count as i64));
            let twice = rest * 2;
            let is_up = twice > count as i64 || (twice == count as i64 && quotient % 2 != 0);
            return quotient.saturating_add(i64::from(is_up));
        }
        let (quotient, rest) = (self.value_e8.div_euclid(count), self.value_e8.rem_euclid(count));
        let is_up = rest * 2 > count || (rest * 2 == count && quotient % 2 != 0);
        i64::try_from(quotient + i128::from(is_up)).unwrap_or(i64::MAX)
    }

    fn fill(&mut self, quantity: u32, price_e8: i64) {
        self.cumulative = self.cumulative.saturating_add(quantity);
        self.value_e8 += i128::from(quantity) * i128::from(price_e8);
    }

    fn unfill(&mut self, quantity: u32, price_e8: i64) {
        self.cumulative = self.cumulative.saturating_sub(quantity);
        self.value_e8 -= i128::from(quantity) * i128::from(price_e8);
    }

    fn report(&mut self, exec_type: ExecType) {
        self.outcome = Outcome::Report(exec_type);
    }

    /// Returns the status of a working order.
    const fn working_status(&self) -> OrdStatus {
        match (self.leaves, self.cumulative) {
            // A replace or restatement left no quantity.
            (0, 0) => OrdStatus::Canceled,
            (_, 0) => OrdStatus::New,
            (0, _) => OrdStatus::Filled,
            _ => OrdStatus::PartiallyFilled,
        }
    }

    // ---- guards ----

    fn is_last(&self, report: &Execution) -> bool {
        self.leaves_after(report) == 0
    }

    fn is_open(&self, report: &Execution) -> bool {
        self.leaves_after(report) > 0
    }

    /// Returns the open quantity after the report.
    fn leaves_after(&self, report: &Execution) -> u32 {
        report.leaves.unwrap_or_else(|| self.leaves.saturating_sub(report.last_quantity))
    }

    // ---- actions ----

    fn accept(&mut self, report: &Execution) {
        self.leaves = self.leaves_after(report);
        self.status = OrdStatus::New;
        self.report(ExecType::New);
    }

    fn reject(&mut self, _: &Execution) {
        (self.leaves, self.status) = (0, OrdStatus::Rejected);
        self.report(ExecType::Rejected);
    }

    fn trade(&mut self, report: &Execution) {
        self.leaves = self.leaves_after(report);
        self.fill(report.last_quantity, report.last_price_e8);
        self.status = self.working_status();
        self.report(ExecType::Trade);
    }

    /// Applies a fill that the venue reports after the order's end. The status stays, because the order no longer works.
    fn trade_late(&mut self, report: &Execution) {
        self.fill(report.last_quantity, report.last_price_e8);
        self.report(ExecType::Trade);
    }

    fn cancel(&mut self, _: &Execution) {
        (self.leaves, self.status) = (0, OrdStatus::Canceled);
        self.report(ExecType::Canceled);
    }

    fn expire(&mut self, _: &Execution) {
        (self.leaves, self.status) = (0, OrdStatus::Expired);
        self.report(ExecType::Expired);
    }

    fn replace(&mut self, report: &Execution) {
        self.leaves = self.leaves_after(report);
        self.terms.quantity = self.cumulative.saturating_add(self.leaves);
        self.status = self.working_status();
        self.report(ExecType::Replaced);
    }

    fn restate(&mut self, report: &Execution) {
        self.leaves = self.leaves_after(report);
        self.terms.price_e8 = report.restated_price_e8.unwrap_or(self.terms.price_e8);
        self.terms.quantity = self.cumulative.saturating_add(self.leaves);
        self.status = self.working_status();
        self.report(ExecType::Restated);
    }

    fn suspend(&mut self, report: &Execution) {
        self.leaves = self.leaves_after(report);
        self.status = OrdStatus::Suspended;
        self.report(ExecType::Suspended);
    }

    /// Keeps the status: the order works until it is cancelled.
    fn pend_cancel(&mut self, _: &Execution) {
        self.report(ExecType::PendingCancel);
    }

    fn cancel_trade(&mut self, report: &Execution) {
        self.unfill(report.last_quantity, report.last_price_e8);
        self.recompute();
        self.report(ExecType::TradeCancel);
    }

    fn correct_trade(&mut self, report: &Execution) {
        self.unfill(report.corrected_quantity, report.corrected_price_e8);
        self.fill(report.last_quantity, report.last_price_e8);
        self.recompute();
        self.report(ExecType::TradeCorrect);
    }

    /// Updates the status after a trade was changed. The open quantity stays, and so does the end: a venue that reinstates
    /// the order restates it. An order that is no longer filled becomes cancelled.
    fn recompute(&mut self) {
        self.status = match self.status {
            OrdStatus::Filled if self.cumulative < self.terms.quantity => OrdStatus::Canceled,
            OrdStatus::New | OrdStatus::PartiallyFilled => self.working_status(),
            other => other,
        };
    }

    fn unexpected(&mut self, _: ExchangeToClientState, _: ExchangeToClientEventKind) {
        self.outcome = Outcome::Unexpected;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tapeworks_fix_wire::order_entry::{OrdType, Side, TimeInForce};

    use super::*;
    use crate::report::{ExecutionKind, Numbered};
    use crate::request::Parties;

    fn order(quantity: u32) -> Order {
        let terms = NewOrder {
            name: Default::default(),
            side: Side::Buy,
            kind: OrdType::Limit,
            time_in_force: TimeInForce::Day,
            expire_s: 0,
            quantity,
            display: quantity,
            minimum: 0,
            price_e8: 5,
            stop_e8: 0,
            capacity: None,
            account: Default::default(),
            parties: Parties::default(),
            is_passive_only: false,
        };
        Order::new(ClientIndex(0), ClOrdId::default(), InstrumentIndex(0), terms, 0)
    }

    fn report(kind: ExecutionKind, last: (u32, i64), leaves: u32) -> Execution {
        Execution {
            kind,
            numbered: Numbered::default(),
            name: Default::default(),
            order_id: Default::default(),
            execution_id: Default::default(),
            reference: Default::default(),
            last_quantity: last.0,
            last_price_e8: last.1,
            corrected_quantity: 0,
            corrected_price_e8: 0,
            leaves: Some(leaves),
            is_requested: false,
            match_id: 0,
            liquidity: None,
            reject_code: 0,
            restatement: 0,
            restated_price_e8: None,
            instrument: None,
            side: None,
            why: "",
            time_ns: 0,
        }
    }

    /// Drives a new order of 100 through reports and returns each outcome with status, leaves and CumQty.
    fn drive(reports: &[Execution]) -> Vec<(Outcome, OrdStatus, u32, u32)> {
        let (mut machine, mut order) = (ExchangeToClient::new(), order(100));
        let each = reports.iter().map(|report| {
            machine.dispatch(&mut order, (report.kind as u8).into(), report).unwrap();
            (order.outcome, order.status, order.leaves, order.cumulative)
        });
        each.collect()
    }

    #[test]
    fn every_row_of_the_mapping_table_gives_its_exec_type_and_status() {
        use ExecutionKind as Kind;
        let accepted = report(Kind::Accepted, (0, 0), 100);
        let part = report(Kind::Trade, (40, 5), 60);
        let row = |last: Execution| drive(&[accepted, part, last])[2];
        let reported = |exec_type| Outcome::Report(exec_type);
        assert_eq!(drive(&[accepted, part])[0], (reported(ExecType::New), OrdStatus::New, 100, 0));
        assert_eq!(
            drive(&[accepted, part])[1],
            (reported(ExecType::Trade), OrdStatus::PartiallyFilled, 60, 40)
        );
        assert_eq!(
            row(report(Kind::Trade, (60, 6), 0)),
            (reported(ExecType::Trade), OrdStatus::Filled, 0, 100)
        );
        assert_eq!(
            row(report(Kind::Cancelled, (0, 0), 0)),
            (reported(ExecType::Canceled), OrdStatus::Canceled, 0, 40)
        );
        assert_eq!(
            row(report(Kind::Expired, (0, 0), 0)),
            (reported(ExecType::Expired), OrdStatus::Expired, 0, 40)
        );
        assert_eq!(
            row(report(Kind::Replaced, (0, 0), 10)),
            (reported(ExecType::Replaced), OrdStatus::PartiallyFilled, 10, 40)
        );
        assert_eq!(
            row(report(Kind::Restated, (0, 0), 20)),
            (reported(ExecType::Restated), OrdStatus::PartiallyFilled, 20, 40)
        );
        assert_eq!(
            row(report(Kind::Suspended, (0, 0), 60)),
            (reported(ExecType::Suspended), OrdStatus::Suspended, 60, 40)
        );
        assert_eq!(
            row(report(Kind::TradeCancelled, (40, 5), 100)),
            (reported(ExecType::TradeCancel), OrdStatus::New, 60, 0)
        );
        assert_eq!(row(report(Kind::Accepted, (0, 0), 100)).0, Outcome::Unexpected);
        let rejected = drive(&[report(Kind::Rejected, (0, 0), 0)])[0];
        assert_eq!(rejected, (reported(ExecType::Rejected), OrdStatus::Rejected, 0, 0));
        let corrected = Execution {
            corrected_quantity: 40,
            corrected_price_e8: 5,
            ..report(Kind::TradeCorrected, (30, 5), 60)
        };
        assert_eq!(row(corrected), (reported(ExecType::TradeCorrect), OrdStatus::PartiallyFilled, 60, 30));
    }

    #[test]
    fn events_behind_the_end_change_fills_and_not_the_end() {
        use ExecutionKind as Kind;
        let cancelled = report(Kind::Cancelled, (0, 0), 0);
        let late = drive(&[cancelled, report(Kind::Trade, (30, 5), 0)])[1];
        assert_eq!(late, (Outcome::Report(ExecType::Trade), OrdStatus::Canceled, 0, 30));
        let filled = report(Kind::Trade, (100, 5), 0);
        let bust = drive(&[filled, report(Kind::TradeCancelled, (100, 5), 0)])[1];
        assert_eq!(bust, (Outcome::Report(ExecType::TradeCancel), OrdStatus::Canceled, 0, 0));
        let restated = report(Kind::Restated, (0, 0), 100);
        let reopened = drive(&[filled, report(Kind::TradeCancelled, (100, 5), 0), restated, filled]);
        assert_eq!((reopened[2].1, reopened[2].2), (OrdStatus::New, 100));
        assert_eq!((reopened[3].1, reopened[3].3), (OrdStatus::Filled, 100));
        assert_eq!(drive(&[cancelled, cancelled])[1].0, Outcome::Unexpected);
        // A restatement to zero open quantity ends the order too.
        let nothing = drive(&[report(Kind::Restated, (0, 0), 0), cancelled]);
        assert_eq!(nothing[0], (Outcome::Report(ExecType::Restated), OrdStatus::Canceled, 0, 0));
        assert_eq!(nothing[1].0, Outcome::Unexpected);
    }

    /// Rounds by comparing fractions, slowly.
    fn rounded(value: i128, count: i128) -> i128 {
        let candidates = [value.div_euclid(count), value.div_euclid(count) + 1];
        let distance = |each: i128| (each * count - value).abs();
        match distance(candidates[0]).cmp(&distance(candidates[1])) {
            std::cmp::Ordering::Less => candidates[0],
            std::cmp::Ordering::Greater => candidates[1],
            std::cmp::Ordering::Equal => candidates.into_iter().find(|each| each % 2 == 0).unwrap(),
        }
    }

    proptest! {
        #[test]
        fn the_average_price_is_rounded_half_to_even(
            fills in prop::collection::vec((1u32..5_000, prop_oneof![0i64..50, any::<i64>().prop_map(|price| price / 4)]), 1..20)
        ) {
            let mut order = order(1);
            for (quantity, price_e8) in &fills {
                order.fill(*quantity, *price_e8);
            }
            let value = fills.iter().map(|(quantity, price)| i128::from(*quantity) * i128::from(*price)).sum();
            let count = fills.iter().map(|(quantity, _)| i128::from(*quantity)).sum();
            prop_assert_eq!(i128::from(order.average_price_e8()), rounded(value, count));
        }
    }
}
