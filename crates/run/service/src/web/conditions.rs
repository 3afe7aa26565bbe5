//! The conditions for an order to reach the venue.

use tapeworks_gateway::status::Status;
use tapeworks_plant::Condition;
use tapeworks_time::Nanos;

/// A status older than this means that the gateway is not running.
const STALE: Nanos = Nanos(2_000_000_000);

/// Returns the conditions for an order to reach the venue.
pub(super) fn conditions(status: &Status, now: Nanos) -> [Condition; 5] {
    let condition = |name, reason: Option<String>| Condition { name, reasons: Vec::from_iter(reason) };
    let age = now.0.saturating_sub(status.time_ns);
    let stale = match status.time_ns {
        0 => Some("the gateway has not begun".to_owned()),
        _ if age > STALE.0 && status.store_error.is_none() => {
            Some(format!("the gateway's last status is {} s old", age / 1_000_000_000))
        }
        _ => None,
    };
    let venue = (!status.is_venue_logged_on).then(|| "the venue's session is not logged on".to_owned());
    let orders = why_orders_are_refused(status, now);
    let store = status.store_error.clone();
    let prices = (status.has_prices == Some(false)).then(|| "there are no prices of the market".to_owned());
    [
        condition("running", stale),
        condition("venue", venue),
        Condition { name: "orders", reasons: orders },
        condition("store", store),
        condition("prices", prices),
    ]
}

/// Returns why all or some orders are refused.
fn why_orders_are_refused(status: &Status, now: Nanos) -> Vec<String> {
    if status.is_halted {
        return vec!["the kill switch is on".to_owned()];
    }
    if !status.takes_orders {
        return vec!["orders do not pass: not all reports of the venue are in".to_owned()];
    }
    let mut reasons = Vec::new();
    if !status.behind.is_empty() {
        let partitions: Vec<String> = status.behind.iter().map(ToString::to_string).collect();
        let (which, seconds) =
            (partitions.join(", "), now.0.saturating_sub(status.behind_since_ns) / 1_000_000_000);
        reasons.push(format!(
            "reports of partition {which} have been missing for {seconds} s: its orders are refused"
        ));
    }
    if !status.doubtful.is_empty() {
        let symbols = status.doubtful.join(", ");
        reasons
            .push(format!("reports in doubt have halted {symbols}: `gateway resume` lets orders pass again"));
    }
    reasons
}
