//! Deliberate faults of an order gateway, by a seed: the same seed and the same messages give the same faults.

use crate::random::Random;

/// What goes wrong, and how often. The default is nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OrderFaults {
    /// Seed of the chances below.
    pub seed: u64,
    /// New orders that are rejected, in a million.
    pub rejects_per_million: u32,
    /// Reports that are delayed, in a million. Those behind them wait too: the order stays.
    pub delays_per_million: u32,
    /// The longest delay, in nanoseconds.
    pub longest_delay_ns: u64,
    /// Reports of the native gateway that are numbered and kept and not sent, in a million: a gap that the client recovers.
    pub gaps_per_million: u32,
    /// Reports of the native gateway before which random bytes go out, in a million: the client loses the stream.
    pub garbage_per_million: u32,
    /// The connection that brings the message of this number is dropped, again after as many more; 0: never.
    pub drop_every: u64,
    /// A partition that is halted for some time.
    pub halt: Option<PartitionHalt>,
}

/// A partition is halted: its orders are rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartitionHalt {
    /// The partition, from 1.
    pub partition: u8,
    /// The number of the message that it is halted at, from 1.
    pub at_message: u64,
    /// How long, in nanoseconds.
    pub duration_ns: u64,
}

/// Faults that happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FaultCounters {
    /// Orders rejected.
    pub rejects: u64,
    /// Reports delayed.
    pub delays: u64,
    /// Reports not sent.
    pub gaps: u64,
    /// Pieces of garbage.
    pub garbage: u64,
    /// Connections dropped.
    pub drops: u64,
    /// Halts of a partition.
    pub halts: u64,
}

/// How a report goes out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Delivery {
    pub(super) delay_ns: u64,
    pub(super) is_gap: bool,
    /// Bytes of garbage before it.
    pub(super) garbage: usize,
}

/// The script.
#[derive(Debug, Clone)]
pub(super) struct Script {
    faults: OrderFaults,
    random: Random,
    messages: u64,
    counters: FaultCounters,
}

impl Script {
    pub(super) fn new(faults: OrderFaults) -> Self {
        Self { faults, random: Random::new(faults.seed), messages: 0, counters: FaultCounters::default() }
    }

    pub(super) const fn counters(&self) -> FaultCounters {
        self.counters
    }

    /// A message came. Returns whether its connection is dropped, and the halt that begins.
    pub(super) fn message(&mut self) -> (bool, Option<PartitionHalt>) {
        self.messages += 1;
        let is_drop = self.faults.drop_every > 0 && self.messages.is_multiple_of(self.faults.drop_every);
        self.counters.drops += u64::from(is_drop);
        let halt = self.faults.halt.filter(|halt| halt.at_message == self.messages);
        self.counters.halts += u64::from(halt.is_some());
        (is_drop, halt)
    }

    /// A new order came. Returns whether it is rejected.
    pub(super) fn rejects(&mut self) -> bool {
        let is_rejected =
            self.faults.rejects_per_million > 0 && self.random.chance(self.faults.rejects_per_million);
        self.counters.rejects += u64::from(is_rejected);
        is_rejected
    }

    /// A report goes out. Gaps and garbage are the native gateway's: SoupBinTCP has no numbers that a client could see a gap by.
    pub(super) fn delivery(&mut self, is_native: bool) -> Delivery {
        let mut delivery = Delivery { delay_ns: 0, is_gap: false, garbage: 0 };
        let faults = self.faults;
        if faults.delays_per_million > 0 && self.random.chance(faults.delays_per_million) {
            delivery.delay_ns = self.random.bits() % faults.longest_delay_ns.max(1);
            self.counters.delays += 1;
        }
        if is_native && faults.gaps_per_million > 0 && self.random.chance(faults.gaps_per_million) {
            delivery.is_gap = true;
            self.counters.gaps += 1;
        }
        if is_native && faults.garbage_per_million > 0 && self.random.chance(faults.garbage_per_million) {
            delivery.garbage = 1 + self.random.below(32) as usize;
            self.counters.garbage += 1;
        }
        delivery
    }

    /// Random bytes that no message begins with.
    pub(super) fn garbage(&mut self, target: &mut [u8]) {
        target.iter_mut().for_each(|byte| *byte = self.random.bits() as u8);
        if let Some(first) = target.first_mut() {
            *first |= 0x80;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_faults_and_none_is_the_default() {
        let run = |faults| {
            let mut script = Script::new(faults);
            let acts: Vec<_> =
                (0..1_000).map(|_| (script.message(), script.rejects(), script.delivery(true))).collect();
            (acts, script.counters())
        };
        let (_, none) = run(OrderFaults::default());
        assert_eq!(none, FaultCounters::default());
        let faults = OrderFaults {
            seed: 7,
            rejects_per_million: 100_000,
            delays_per_million: 100_000,
            longest_delay_ns: 1_000,
            gaps_per_million: 100_000,
            garbage_per_million: 100_000,
            drop_every: 100,
            halt: Some(PartitionHalt { partition: 1, at_message: 5, duration_ns: 1 }),
        };
        let (acts, counters) = run(faults);
        assert_eq!((acts.clone(), counters), run(faults));
        assert_eq!((counters.drops, counters.halts), (10, 1));
        for count in [counters.rejects, counters.delays, counters.gaps, counters.garbage] {
            assert!((60..140).contains(&count), "{counters:?}");
        }
        assert!(run(OrderFaults { seed: 8, ..faults }).0 != acts);
    }
}
