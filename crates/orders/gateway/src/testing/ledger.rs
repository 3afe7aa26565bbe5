//! The true events at an exchange, to check that the clients learned of all of them and of nothing else.

use std::collections::{BTreeMap, BTreeSet};

use tapeworks_fix_wire::read_decimal;
use tapeworks_runtime::world::World;

use super::{Received, Trader};

/// An event of an order at the exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happened {
    /// The order was accepted with this quantity.
    Accepted(u64),
    /// The order traded.
    Filled {
        /// The number of the trade.
        match_id: u64,
        /// The quantity of the trade.
        quantity: u64,
        /// The price in 1e-8.
        price_e8: i64,
        /// The open quantity after the trade.
        leaves: u64,
    },
    /// The order was replaced or reduced, and this quantity is open.
    Replaced(u64),
    /// The order ended with an open quantity.
    Ended,
}

#[derive(Debug, Default)]
struct Truth {
    fills: BTreeMap<u64, (u64, i64)>,
    leaves: u64,
}

/// The true state of an exchange's orders, by OrderID (37).
#[derive(Debug, Default)]
pub struct Ledger {
    orders: BTreeMap<String, Truth>,
}

impl Ledger {
    /// Records an event of an order.
    pub fn enter(&mut self, order_id: &str, happened: Happened) {
        let truth = self.orders.entry(order_id.to_owned()).or_default();
        match happened {
            Happened::Accepted(quantity) => truth.leaves = quantity,
            Happened::Filled { match_id, quantity, price_e8, leaves } => {
                truth.leaves = leaves;
                truth.fills.insert(match_id, (quantity, price_e8));
            }
            Happened::Replaced(leaves) => truth.leaves = leaves,
            Happened::Ended => truth.leaves = 0,
        }
    }

    /// Returns the number of orders.
    #[must_use]
    pub fn orders(&self) -> usize {
        self.orders.len()
    }

    /// Returns what is wrong in the clients' view, once nothing fails any more:
    ///
    /// - Each acceptance, fill and end must reach the client; each fill exactly once and with its figures.
    /// - Every other report that changes an order must say that it is in doubt.
    /// - CumQty must be the sum of the fills that the client received. LeavesQty must be correct unless a report of the order was
    ///   in doubt; an order that ended must have none left even then.
    #[must_use]
    pub fn faults<W: World>(&self, traders: &[Trader<W>]) -> Vec<String> {
        let mut received: BTreeMap<&str, Vec<&Received>> = BTreeMap::new();
        for report in traders.iter().flat_map(|trader| &trader.reports) {
            received.entry(&report.order_id).or_default().push(report);
        }
        let mut faults = Vec::new();
        for (order_id, truth) in &self.orders {
            let reports = received.get(order_id.as_str()).map_or(&[][..], Vec::as_slice);
            truth.compare(reports, &mut |text| faults.push(format!("order {order_id}: {text}")));
        }
        let unknown = received.iter().filter(|(order_id, _)| !self.orders.contains_key(**order_id));
        for (order_id, reports) in unknown {
            let changes =
                |report: &&&Received| !report.is_in_doubt && !matches!(report.kind.as_str(), "8" | "I");
            if let Some(report) = reports.iter().find(changes) {
                faults.push(format!("order {order_id} was never accepted: {report:?}"));
            }
        }
        faults
    }
}

impl Truth {
    fn compare(&self, reports: &[&Received], wrong: &mut impl FnMut(String)) {
        let Some(last) = reports.last() else { return wrong("no client knows it".to_owned()) };
        let is_in_doubt = reports.iter().any(|report| report.is_in_doubt);
        if !reports.iter().any(|report| report.kind == "0") {
            wrong("its acceptance did not reach the client".to_owned());
        }
        let mut seen = BTreeSet::new();
        let mut filled = 0;
        for report in reports.iter().filter(|report| report.kind == "F") {
            filled += report.last.0;
            if !seen.insert(report.match_id) {
                wrong(format!("trade {} was reported twice", report.match_id));
            }
            match self.fills.get(&report.match_id) {
                Some((quantity, price_e8))
                    if (*quantity, Ok(*price_e8))
                        != (report.last.0, read_decimal::<8>(report.last.1.as_bytes())) =>
                {
                    wrong(format!("a trade was of {quantity} at {price_e8}e-8: {report:?}"));
                }
                None if !report.is_in_doubt => wrong(format!("there was no such trade: {report:?}")),
                _ => {}
            }
        }
        for match_id in self.fills.keys().filter(|match_id| !seen.contains(match_id)) {
            wrong(format!("trade {match_id} did not reach the client"));
        }
        if last.cumulative != filled {
            wrong(format!("CumQty is {}, and fills of {filled} were reported", last.cumulative));
        }
        let may_differ = is_in_doubt && self.leaves > 0;
        if last.leaves != self.leaves && !may_differ {
            wrong(format!("{} are left, and the client knows of {}", self.leaves, last.leaves));
        }
    }
}

#[cfg(test)]
mod tests {
    use tapeworks_runtime::world::System;

    use super::*;

    fn report(kind: &str, match_id: u64, last: u64, leaves: u64, cumulative: u64) -> Received {
        let last = (last, "1.5".to_owned());
        let (kind, order_id) = (kind.to_owned(), "X".to_owned());
        Received { kind, order_id, match_id, last, leaves, cumulative, is_in_doubt: false }
    }

    fn faults(reports: Vec<Received>) -> Vec<String> {
        let mut ledger = Ledger::default();
        ledger.enter("X", Happened::Accepted(10));
        let filled = Happened::Filled { match_id: 7, quantity: 4, price_e8: 150_000_000, leaves: 6 };
        ledger.enter("X", filled);
        ledger.enter("X", Happened::Ended);
        let mut trader = Trader::<System>::new("A");
        trader.reports = reports;
        ledger.faults(&[trader])
    }

    #[test]
    fn each_deviation_from_the_ledger_is_found() {
        let [new, fill, end] = [report("0", 0, 0, 10, 0), report("F", 7, 4, 6, 4), report("4", 0, 0, 0, 4)];
        let all = vec![new.clone(), fill.clone(), end.clone()];
        assert_eq!(faults(all.clone()), Vec::<String>::new());
        for missing in 0..3 {
            let mut some = all.clone();
            some.remove(missing);
            assert!(!faults(some).is_empty(), "without report {missing}");
        }
        let twice = report("F", 7, 4, 2, 8);
        assert!(!faults(vec![new.clone(), fill.clone(), twice, report("4", 0, 0, 0, 8)]).is_empty());
        let other = report("F", 7, 5, 5, 5);
        assert!(!faults(vec![new.clone(), other, report("4", 0, 0, 0, 5)]).is_empty());
        let invented = report("F", 9, 1, 5, 5);
        let ends = report("4", 0, 0, 0, 5);
        assert!(!faults(vec![new.clone(), fill.clone(), invented.clone(), ends.clone()]).is_empty());
        let doubtful = Received { is_in_doubt: true, ..invented };
        assert_eq!(faults(vec![new, fill, doubtful, ends]), Vec::<String>::new());
        let never = Received { order_id: "Y".to_owned(), ..report("0", 0, 0, 1, 0) };
        assert!(!faults([all, vec![never]].concat()).is_empty());
    }
}
