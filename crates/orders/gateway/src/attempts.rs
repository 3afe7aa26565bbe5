//! Logons with a wrong password. Each one makes the same client at the same address wait longer.
//!
//! Other addresses are not affected, so nobody can lock a client out from elsewhere.

use std::collections::HashMap;
use std::net::IpAddr;

const SECOND_NS: u64 = 1_000_000_000;

/// The wait after the first wrong password. It doubles with each further one.
const FIRST_WAIT_NS: u64 = SECOND_NS / 10;
const LONGEST_WAIT_NS: u64 = 60 * SECOND_NS;

/// A pair that has not failed for this long after its last wait starts again with the first wait.
const FORGOTTEN_AFTER_NS: u64 = 600 * SECOND_NS;

/// Maximum number of pairs remembered. Beyond it, the pair whose wait ends first is forgotten.
const MOST_PAIRS: usize = 4_096;

#[derive(Clone, Copy, Debug)]
struct Failed {
    count: u32,
    until_ns: u64,
}

/// The failed attempts, by address and client. Times are from a clock that cannot be set.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    failed: HashMap<(IpAddr, usize), Failed>,
}

/// Returns the holder of an address: an IPv4 address in canonical form, or the /64 network of an IPv6 address, whose holder has all
/// addresses in it.
fn holder(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            [a, b, c, d, 0, 0, 0, 0].into()
        }
        address @ IpAddr::V4(_) => address,
    }
}

impl Attempts {
    /// Returns the time in nanoseconds until a Logon of this client from this address is accepted again.
    pub(crate) fn wait_ns(&self, address: IpAddr, client: usize, now_ns: u64) -> u64 {
        let failed = self.failed.get(&(holder(address), client));
        failed.map_or(0, |failed| failed.until_ns.saturating_sub(now_ns))
    }

    /// Notes a wrong password.
    pub(crate) fn failed(&mut self, address: IpAddr, client: usize, now_ns: u64) {
        let pair = (holder(address), client);
        if self.failed.len() >= MOST_PAIRS
            && !self.failed.contains_key(&pair)
            && let Some(first) = self.failed.iter().min_by_key(|(_, failed)| failed.until_ns)
        {
            let first = *first.0;
            self.failed.remove(&first);
        }
        let failed = self.failed.entry(pair).or_insert(Failed { count: 0, until_ns: 0 });
        if now_ns.saturating_sub(failed.until_ns) > FORGOTTEN_AFTER_NS {
            failed.count = 0;
        }
        let wait_ns = FIRST_WAIT_NS.saturating_mul(1 << failed.count.min(16)).min(LONGEST_WAIT_NS);
        *failed = Failed { count: failed.count.saturating_add(1), until_ns: now_ns.saturating_add(wait_ns) };
    }

    /// Notes a correct password.
    pub(crate) fn succeeded(&mut self, address: IpAddr, client: usize) {
        self.failed.remove(&(holder(address), client));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_grows_to_a_minute_for_one_client_at_one_address_and_ends_with_the_right_password() {
        let (here, elsewhere) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let (mut attempts, mut now_ns) = (Attempts::default(), 0);
        let waits: Vec<u64> = (0..12)
            .map(|_| {
                attempts.failed(here, 1, now_ns);
                let wait_ns = attempts.wait_ns(here, 1, now_ns);
                now_ns += wait_ns;
                wait_ns / (SECOND_NS / 10)
            })
            .collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600]);
        attempts.failed(here, 1, now_ns);
        assert!(attempts.wait_ns(here.to_canonical(), 1, now_ns) > 0);
        assert_eq!((attempts.wait_ns(elsewhere, 1, now_ns), attempts.wait_ns(here, 2, now_ns)), (0, 0));
        now_ns += LONGEST_WAIT_NS + FORGOTTEN_AFTER_NS + 1;
        attempts.failed(here, 1, now_ns);
        assert_eq!(attempts.wait_ns(here, 1, now_ns), FIRST_WAIT_NS, "that was long ago");
        attempts.succeeded(here, 1);
        assert_eq!(attempts.wait_ns(here, 1, now_ns), 0);
    }

    #[test]
    fn many_addresses_take_no_more_memory_and_one_network_is_one() {
        let mut attempts = Attempts::default();
        for number in 0..MOST_PAIRS as u32 + 100 {
            attempts.failed(IpAddr::from(number.to_be_bytes()), 0, u64::from(number));
        }
        assert_eq!(attempts.failed.len(), MOST_PAIRS);
        let of = |last: u16| IpAddr::from([0x2001, 0xdb8, 0, 1, 2, 3, 4, last]);
        attempts.failed(of(1), 0, SECOND_NS);
        assert_eq!(attempts.wait_ns(of(2), 0, SECOND_NS), FIRST_WAIT_NS);
    }
}
