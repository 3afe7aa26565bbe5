//! An exchange that repeats, invents, withholds, reorders and garbles reports: what its users get, and what it believes itself.

#![allow(clippy::unwrap_used)] // a failure here is a failed test

#[allow(dead_code, reason = "each test file uses its part")]
mod traders;

use std::collections::BTreeSet;

use tapeworks_matching::orders::{LedgerEntry, LedgerEvent, OrderFaults, OrderOptions};
use tapeworks_order_session::native::User;
use tapeworks_wire::millennium::native::{ExecType, Side};
use tapeworks_wire::nasdaq::ouch50::{inbound, outbound};
use traders::{E8, VARIANT, World, bytes, enter, options, order};

const ALWAYS: u32 = 1_000_000;

struct Traded {
    world: World,
    ledger: Vec<LedgerEntry>,
    /// App IDs with a gap after any message.
    gaps: BTreeSet<u8>,
}

impl Traded {
    /// Native and OUCH orders that rest and trade with each other, while an exchange with these faults takes them.
    fn new(faults: OrderFaults) -> Self {
        let stays = |user| User { cancels_on_disconnect: false, ..User::new(user, "secret", &VARIANT) };
        let mut options = OrderOptions { faults, keeps_ledger: true, ..options() };
        options.native_users = vec![stays("ANN"), stays("BOB")];
        options.ouch_users[0].cancels_on_disconnect = false;
        let mut traded = Self { world: World::new(&options), ledger: Vec::new(), gaps: BTreeSet::new() };
        for number in 0..8u32 {
            let id = |name: &str| format!("{name}{number}");
            traded.native(0, &order(&id("A"), 11, Side::Buy, 100, 10 * E8).encode());
            traded.ouch(&bytes(&enter(2 * number + 1, inbound::Side::Sell, 30, 100_000)));
            traded.native(1, &order(&id("B"), 11, Side::Sell, 80, 10 * E8).encode());
            traded.native(1, &order(&id("C"), 22, Side::Sell, 5, 10 * E8).encode());
            traded.ouch(&bytes(&enter(2 * number + 2, inbound::Side::Buy, 20, 90_000)));
        }
        // Requests without answer are made again after up to half a minute.
        traded.pass(300);
        traded
    }

    fn pass(&mut self, seconds: u64) {
        self.world.pass(seconds);
        self.ledger.extend(std::iter::from_fn(|| self.world.exchange.next_ledger()));
        self.gaps.extend(self.world.exchange.open_gaps());
    }

    /// A fault may have ended the connection: then it is back within two seconds.
    fn native(&mut self, user: usize, message: &[u8]) {
        self.world.natives[user].client.send(message, self.world.now_ns).unwrap();
        self.world.settle();
        self.gaps.extend(self.world.exchange.open_gaps());
        self.pass(4);
    }

    fn ouch(&mut self, message: &[u8]) {
        self.world.ouch.client.send(message, self.world.now_ns).unwrap();
        self.world.settle();
        self.pass(4);
    }

    /// Execution ids and kinds of a native user's reports, in order.
    fn executions(&self, user: usize) -> Vec<(String, ExecType)> {
        let reports = self.world.natives[user].executions().into_iter();
        reports.map(|report| (report.execution_id.to_string(), report.exec_type)).collect()
    }

    /// OUCH messages, in order.
    fn messages(&self) -> &[Vec<u8>] {
        &self.world.ouch.messages
    }
}

/// What the exchange does without faults, and with these.
fn both(faults: OrderFaults) -> [Traded; 2] {
    let [clean, faulty] = [OrderFaults::default(), OrderFaults { seed: 5, ..faults }].map(Traded::new);
    assert_eq!(clean.ledger, faulty.ledger, "a fault of the reports changes no order");
    let fills = clean.ledger.iter().filter(|entry| matches!(entry.event, LedgerEvent::Filled { .. })).count();
    assert_eq!(fills as u64, 2 * clean.world.exchange.counters().trades);
    assert!(fills >= 32, "{fills}");
    [clean, faulty]
}

#[test]
fn repeated_reports_have_their_execution_ids_and_the_next_numbers() {
    let [clean, faulty] = both(OrderFaults { repeats_per_million: ALWAYS, ..OrderFaults::default() });
    for user in 0..2 {
        let (right, found) = (clean.executions(user), faulty.executions(user));
        assert!(found.len() > right.len());
        assert_eq!(BTreeSet::from_iter(found.iter().map(|one| &one.0)).len(), right.len());
        assert!(faulty.world.natives[user].client.is_caught_up());
        assert_eq!(faulty.world.natives[user].client.counters().reports.duplicates, 0);
    }
    let distinct: BTreeSet<&Vec<u8>> = faulty.messages().iter().collect();
    assert_eq!(distinct, clean.messages().iter().collect());
    assert!(faulty.messages().len() > distinct.len());
    assert!(faulty.world.exchange.faults().repeats > 50);
}

#[test]
fn inventions_come_beside_the_true_reports() {
    let [clean, faulty] = both(OrderFaults { inventions_per_million: ALWAYS, ..OrderFaults::default() });
    let mut invented = 0;
    for user in 0..2 {
        let (right, found) = (clean.executions(user), faulty.executions(user));
        assert_eq!(found.iter().filter(|one| right.contains(one)).count(), right.len());
        invented += found.len() - right.len();
    }
    let found: Vec<&Vec<u8>> = faulty.messages().iter().collect();
    assert!(clean.messages().iter().all(|message| found.contains(&message)));
    invented += found.len() - clean.messages().len();
    assert_eq!(faulty.world.exchange.faults().inventions, invented as u64);
    assert!(invented > 50);
}

#[test]
fn withheld_reports_come_when_requests_are_answered_or_at_the_next_login() {
    let [clean, faulty] = both(OrderFaults { withheld_per_million: 200_000, ..OrderFaults::default() });
    for user in 0..2 {
        let (right, found) = (clean.executions(user), faulty.executions(user));
        assert!(found.iter().all(|one| right.contains(one)));
        // The last ones of a partition may be withheld.
        assert!(found.len() + 6 > right.len(), "{} of {}", found.len(), right.len());
    }
    assert!(clean.messages().starts_with(faulty.messages()));
    assert!(faulty.gaps.contains(&1) && faulty.world.exchange.native_sessions().requests_unanswered > 3);
    assert!(faulty.world.exchange.faults().withheld > 10);
}

#[test]
fn reports_change_places_and_keep_their_numbers() {
    let [clean, faulty] = both(OrderFaults { reorders_per_million: 500_000, ..OrderFaults::default() });
    for user in 0..2 {
        assert_eq!(clean.executions(user), faulty.executions(user));
    }
    assert!(faulty.world.natives.iter().any(|native| native.client.counters().reports.gaps > 0));
    let sorted = |messages: &[Vec<u8>]| messages.iter().cloned().collect::<BTreeSet<_>>();
    assert_eq!(sorted(clean.messages()), sorted(faulty.messages()));
    assert!(faulty.world.exchange.faults().reorders > 20 && faulty.world.exchange.open_gaps().is_empty());
}

#[test]
fn a_garbled_copy_cannot_be_read_and_the_true_report_follows() {
    let [clean, faulty] = both(OrderFaults { garbled_per_million: 300_000, ..OrderFaults::default() });
    let mut unknown = 0;
    for user in 0..2 {
        let is_known = |one: &(String, ExecType)| !matches!(one.1, ExecType::Unknown(_));
        let found = faulty.executions(user);
        let known: Vec<_> = found.iter().filter(|one| is_known(one)).cloned().collect();
        assert_eq!(known, clean.executions(user));
        unknown += found.len() - known.len();
        unknown += faulty.world.natives[user].client.counters().unknown_messages as usize;
    }
    assert!(unknown > 5);
    let is_readable = |message: &&Vec<u8>| outbound::Message::decode(message).is_ok();
    let readable: Vec<&Vec<u8>> = faulty.messages().iter().filter(is_readable).collect();
    assert_eq!(readable, clean.messages().iter().collect::<Vec<_>>());
    assert!(faulty.messages().len() > readable.len());
}

#[test]
fn nothing_goes_wrong_after_the_last_faulty_message() {
    let faults = OrderFaults {
        repeats_per_million: ALWAYS,
        gaps_per_million: ALWAYS,
        drop_every: 1,
        until_message: 1,
        ..OrderFaults::default()
    };
    let [clean, faulty] = both(faults);
    for user in 0..2 {
        assert_eq!(clean.executions(user), faulty.executions(user));
    }
    // The day began before the first message.
    assert_eq!(faulty.world.exchange.faults().drops, 0);
}
