//! Rate-limited reports of refused clients: one per minute and address.

use std::collections::HashMap;
use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use tapeworks_time::Nanos;

/// The shortest time between two reports of one address.
const REPORT_INTERVAL_NS: u64 = 60 * Nanos::SECOND;

/// The most addresses remembered. Beyond this number, all are forgotten.
const MOST_ADDRESSES: usize = 10_000;

/// A client that a server refused, or whose session the server ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// The requested service: `client`, `SoupBinTCP client`, `retransmission`, `page`.
    pub what: &'static str,
    /// The client's address.
    pub address: SocketAddr,
    /// The reason for the refusal.
    pub reason: String,
    /// Refusals of the same address since its last report.
    pub unreported: u64,
}

/// The callback for refusals. Each server calls it at most once a minute per address.
pub type OnRefusal = Arc<dyn Fn(&Refused) + Send + Sync>;

/// The refusals of one server.
pub struct Refusals {
    what: &'static str,
    on_refusal: Option<OnRefusal>,
    /// The time of each address's last report, and the refusals since.
    addresses: HashMap<IpAddr, (u64, u64)>,
}

impl std::fmt::Debug for Refusals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Refusals({}, {} addresses)", self.what, self.addresses.len())
    }
}

impl Refusals {
    /// Creates a reporter for a server of `what`, which passes refusals to `on_refusal`.
    pub fn new(what: &'static str, on_refusal: Option<OnRefusal>) -> Self {
        Self { what, on_refusal, addresses: HashMap::new() }
    }

    /// Records a refused client at `now_ns` of a monotonic clock, and reports it if due.
    pub fn refused(&mut self, address: SocketAddr, reason: &dyn Display, now_ns: u64) {
        let Some(on_refusal) = &self.on_refusal else { return };
        if self.addresses.len() >= MOST_ADDRESSES {
            self.addresses.clear();
        }
        let mut unreported = 0;
        if let Some((reported_ns, since)) = self.addresses.get_mut(&address.ip()) {
            if now_ns.saturating_sub(*reported_ns) < REPORT_INTERVAL_NS {
                *since += 1;
                return;
            }
            unreported = *since;
        }
        self.addresses.insert(address.ip(), (now_ns, 0));
        on_refusal(&Refused { what: self.what, address, reason: reason.to_string(), unreported });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn an_address_is_reported_once_a_minute_with_its_number_of_refusals() {
        let reported = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&reported);
        let on_refusal: OnRefusal = Arc::new(move |refused| log.lock().unwrap().push(refused.clone()));
        let mut refusals = Refusals::new("client", Some(on_refusal));
        let of = |last, port| SocketAddr::from(([10, 0, 0, last], port));
        // From the clock's first moment, and from another port each time.
        for second in 0..=60 {
            refusals.refused(of(1, 1_000 + second), &"wrong key", u64::from(second) * Nanos::SECOND);
        }
        refusals.refused(of(2, 1), &"too long", 0);
        let reported = reported.lock().unwrap();
        let of = |one: &Refused| (one.address.to_string(), one.reason.clone(), one.unreported);
        let reported: Vec<_> = reported.iter().map(of).collect();
        let expected = [
            ("10.0.0.1:1000", "wrong key", 0),
            ("10.0.0.1:1060", "wrong key", 59),
            ("10.0.0.2:1", "too long", 0),
        ];
        assert_eq!(
            reported,
            expected.map(|(address, reason, unreported)| (address.to_owned(), reason.to_owned(), unreported))
        );
    }
}
