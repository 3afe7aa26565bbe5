//! Deliberate faults of an order gateway, drawn from a seed: the same seed and messages produce the same faults.

use tapeworks_random::Random;

/// Which faults happen, and how often. By default none do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OrderFaults {
    /// Seed of the random faults below.
    pub seed: u64,
    /// New orders and quotes rejected, per million.
    pub rejects_per_million: u32,
    /// Reports delayed, per million. Later reports wait too, so their order is preserved.
    pub delays_per_million: u32,
    /// Maximum delay, in nanoseconds.
    pub longest_delay_ns: u64,
    /// Native reports that are numbered and kept but not sent, per million: a gap that the client must recover.
    pub gaps_per_million: u32,
    /// Native reports preceded by random bytes, per million: the client loses its place in the stream.
    pub garbage_per_million: u32,
    /// Every N-th client message drops its connection; 0 disables this.
    pub drop_every: u64,
    /// A partition to halt for a while.
    pub halt: Option<PartitionHalt>,
    /// Reports followed by an earlier report of the same user, repeated under the next number, per million.
    pub repeats_per_million: u32,
    /// Reports accompanied by an invented one, per million: a fill, an end, or an acceptance that no order of the user justifies.
    pub inventions_per_million: u32,
    /// Reports withheld, per million. A native report is numbered but not sent, and the next one to three recovery requests for
    /// its partition get no answer. OUCH has no such requests: the report and everything after it wait until the exchange drops
    /// the connection a second later, and the next login receives them.
    pub withheld_per_million: u32,
    /// Reports swapped with the user's next report, per million. Native reports keep their numbers, so a gap opens and closes. An
    /// OUCH session numbers by position, so only reports of different orders are swapped, in replays too. A report that no other
    /// follows within 10 ms is sent alone.
    pub reorders_per_million: u32,
    /// Reports preceded by a garbled copy in a sound frame, per million: an unknown Exec Type, an unknown message type, or too short.
    pub garbled_per_million: u32,
    /// Number of the client message from which faults stop; 0 means never.
    pub until_message: u64,
}

/// A halt of a partition, during which its orders are rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartitionHalt {
    /// The partition, numbered from 1.
    pub partition: u8,
    /// Number of the client message that triggers the halt, counted from 1.
    pub at_message: u64,
    /// Length of the halt, in nanoseconds.
    pub duration_ns: u64,
}

/// Counters of the faults that happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FaultCounters {
    /// Orders and quotes rejected.
    pub rejects: u64,
    /// Reports delayed.
    pub delays: u64,
    /// Native reports not sent.
    pub gaps: u64,
    /// Insertions of random bytes.
    pub garbage: u64,
    /// Connections dropped.
    pub drops: u64,
    /// Partition halts.
    pub halts: u64,
    /// Reports repeated.
    pub repeats: u64,
    /// Invented reports.
    pub inventions: u64,
    /// Reports withheld.
    pub withheld: u64,
    /// Reports swapped with the next one.
    pub reorders: u64,
    /// Garbled copies of reports.
    pub garbled: u64,
}

impl FaultCounters {
    /// Returns the number of all faults.
    #[must_use]
    pub const fn sum(&self) -> u64 {
        let Self { rejects, delays, gaps, garbage, drops, halts, .. } = *self;
        let Self { repeats, inventions, withheld, reorders, garbled, .. } = *self;
        rejects
            + delays
            + gaps
            + garbage
            + drops
            + halts
            + repeats
            + inventions
            + withheld
            + reorders
            + garbled
    }
}

/// How to send a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Delivery {
    pub(super) delay_ns: u64,
    pub(super) is_gap: bool,
    /// Number of random bytes to send before it.
    pub(super) garbage: usize,
    pub(super) misreport: Option<Misreport>,
}

/// A fault that adds to a report or replaces it. The random number selects the variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Misreport {
    Repeat(u64),
    Invention(u64),
    Withheld(u64),
    Reorder,
    Garbled(u64),
}

/// A chance per million, and the misreport that it makes from a random number.
type Chance = (u32, fn(u64) -> Misreport);

/// Draws the faults.
#[derive(Debug, Clone)]
pub(super) struct Script {
    faults: OrderFaults,
    random: Random,
    messages: u64,
    /// The faults so far. Faults that do not apply to every report are counted where they happen.
    pub(super) counters: FaultCounters,
}

impl Script {
    pub(super) fn new(faults: OrderFaults) -> Self {
        Self { faults, random: Random::new(faults.seed), messages: 0, counters: FaultCounters::default() }
    }

    pub(super) const fn counters(&self) -> FaultCounters {
        self.counters
    }

    /// Counts a client message. Returns whether its connection is dropped, and the halt that it triggers.
    pub(super) fn message(&mut self) -> (bool, Option<PartitionHalt>) {
        self.messages += 1;
        if self.is_over() {
            return (false, None);
        }
        let is_drop = self.faults.drop_every > 0 && self.messages.is_multiple_of(self.faults.drop_every);
        self.counters.drops += u64::from(is_drop);
        let halt = self.faults.halt.filter(|halt| halt.at_message == self.messages);
        self.counters.halts += u64::from(halt.is_some());
        (is_drop, halt)
    }

    /// Returns whether the faults have stopped.
    const fn is_over(&self) -> bool {
        self.faults.until_message > 0 && self.messages >= self.faults.until_message
    }

    /// Returns whether reports that were sent may be repeated.
    pub(super) const fn repeats(&self) -> bool {
        self.faults.repeats_per_million > 0 && !self.is_over()
    }

    /// Returns whether to reject a new order or quote.
    pub(super) fn rejects(&mut self) -> bool {
        let is_rejected = self.faults.rejects_per_million > 0
            && !self.is_over()
            && self.random.chance(self.faults.rejects_per_million);
        self.counters.rejects += u64::from(is_rejected);
        is_rejected
    }

    /// Draws the faults of a report. Gaps and garbage affect only the native gateway: SoupBinTCP has no numbers that would reveal
    /// a gap.
    pub(super) fn delivery(&mut self, is_native: bool) -> Delivery {
        let mut delivery = Delivery { delay_ns: 0, is_gap: false, garbage: 0, misreport: None };
        let faults = self.faults;
        if self.is_over() {
            return delivery;
        }
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
        delivery.misreport = self.misreport();
        delivery
    }

    /// Draws at most one misreport.
    fn misreport(&mut self) -> Option<Misreport> {
        let faults = self.faults;
        let chances: [Chance; 5] = [
            (faults.repeats_per_million, Misreport::Repeat),
            (faults.inventions_per_million, Misreport::Invention),
            (faults.withheld_per_million, Misreport::Withheld),
            (faults.reorders_per_million, |_| Misreport::Reorder),
            (faults.garbled_per_million, Misreport::Garbled),
        ];
        chances
            .into_iter()
            .find(|(chance, _)| *chance > 0 && self.random.chance(*chance))
            .map(|(_, make)| make(self.random.bits()))
    }

    /// Fills `target` with random bytes that do not start like a message.
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
            ..OrderFaults::default()
        };
        let (acts, counters) = run(faults);
        assert_eq!((acts.clone(), counters), run(faults));
        assert_eq!((counters.drops, counters.halts), (10, 1));
        for count in [counters.rejects, counters.delays, counters.gaps, counters.garbage] {
            assert!((60..140).contains(&count), "{counters:?}");
        }
        assert!(run(OrderFaults { seed: 8, ..faults }).0 != acts);
    }

    #[test]
    fn each_kind_of_misreport_is_drawn_and_none_after_the_last_faulty_message() {
        let faults = OrderFaults {
            seed: 7,
            repeats_per_million: 100_000,
            inventions_per_million: 100_000,
            withheld_per_million: 100_000,
            reorders_per_million: 100_000,
            garbled_per_million: 100_000,
            until_message: 2,
            ..OrderFaults::default()
        };
        let mut script = Script::new(faults);
        script.message();
        let drawn: Vec<_> = (0..1_000).filter_map(|_| script.delivery(false).misreport).collect();
        let count = |is: fn(&Misreport) -> bool| drawn.iter().filter(|one| is(one)).count();
        for count in [
            count(|one| matches!(one, Misreport::Repeat(_))),
            count(|one| matches!(one, Misreport::Invention(_))),
            count(|one| matches!(one, Misreport::Withheld(_))),
            count(|one| matches!(one, Misreport::Reorder)),
            count(|one| matches!(one, Misreport::Garbled(_))),
        ] {
            assert!((40..140).contains(&count), "{drawn:?}");
        }
        script.message();
        assert!((0..1_000).all(|_| script.delivery(true).misreport.is_none()) && !script.repeats());
    }
}
