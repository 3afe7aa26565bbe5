//! What a run with orders is made of: drawn from a seed, or read from a file.

use serde::{Deserialize, Serialize};
use tapeworks_exchange::orders::{OrderFaults, PartitionHalt};
use tapeworks_exchange::random::Random;

/// Faults of a drawn run, one after the other.
const FAULTS: usize = 10;

/// A run with orders.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OrderPlan {
    /// All that is not written here.
    pub seed: u64,
    /// What the gateway and the exchange speak.
    pub venue: VenueProtocol,
    /// The gateway sends so many requests per second to a native exchange; 0: as fast as it can.
    pub throttle: u64,
    /// Requests that wait for the throttle.
    pub queue: u64,
    /// Missed reports that a native exchange sends for each request.
    pub reports_per_request: u32,
    /// How often the gateway's store is synced, in ms; `None`: before anything is sent. Then its machine loses power at the end of the run, and
    /// at no other time.
    pub sync_every_ms: Option<u32>,
    /// The exchange's store is synced before anything is sent. Else its machine never loses power.
    pub exchange_syncs: bool,
    /// What the exchange does wrong.
    pub script: ScriptPlan,
    /// What fails, in this order.
    pub faults: Vec<OrderFault>,
}

/// What is spoken between gateway and exchange.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub enum VenueProtocol {
    /// The Millennium native protocol.
    #[default]
    Native,
    /// OUCH 5.0 over SoupBinTCP.
    Ouch,
}

/// What an exchange does wrong, of a million messages.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptPlan {
    /// New orders that it rejects.
    pub rejects_per_million: u32,
    /// Reports that it delays.
    pub delays_per_million: u32,
    /// The longest delay, in us.
    pub longest_delay_us: u32,
    /// Reports that it numbers and does not send; of a native exchange.
    pub gaps_per_million: u32,
    /// Reports behind random bytes; of a native exchange.
    pub garbage_per_million: u32,
    /// It drops the connection at each so-manieth message; 0: never.
    pub drop_every: u32,
    /// Partition 1 is halted at the message of this number; 0: never.
    pub halted_at: u32,
    /// How long, in ms.
    pub halted_ms: u32,
    /// Reports that it repeats under the next number.
    #[serde(default)]
    pub repeats_per_million: u32,
    /// Reports beside which it invents one.
    #[serde(default)]
    pub inventions_per_million: u32,
    /// Reports that it withholds, beyond the first requests.
    #[serde(default)]
    pub withheld_per_million: u32,
    /// Reports that change places with the next one.
    #[serde(default)]
    pub reorders_per_million: u32,
    /// Reports before which it sends a garbled copy.
    #[serde(default)]
    pub garbled_per_million: u32,
    /// The message from which on it does nothing wrong any more; 0: never.
    #[serde(default)]
    pub until_message: u32,
}

/// A fault, and how long nothing fails before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OrderFault {
    /// From the end of the one before, in us.
    pub after_us: u32,
    /// The fault.
    pub what: OrderWhat,
}

/// What fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum OrderWhat {
    /// Processes end.
    Crash(OrderCrash),
    /// TCP comes in pieces of a few bytes, and breaks.
    Tcp {
        /// Bytes of a piece.
        piece: u32,
        /// Connections that break at a write, of a million.
        reset_per_million: u32,
        /// For how long.
        length_ms: u32,
    },
    /// TCP brings nothing.
    Stand {
        /// For how long.
        length_ms: u32,
    },
    /// The gateway's clock is wrong.
    Clock {
        /// By so much.
        ahead_s: i32,
    },
    /// The gateway's disk takes nothing, or not each write.
    Disk {
        /// It is full; else each second write fails.
        is_full: bool,
        /// For how long.
        length_ms: u32,
    },
}

/// Processes end, and are back later.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OrderCrash {
    /// The exchange.
    pub exchange: Option<Power>,
    /// The gateway.
    pub gateway: Option<Power>,
    /// When they are back.
    pub back_after_ms: u32,
}

/// What a machine does when a process of it ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Power {
    /// It runs: only the process ends.
    Kept,
    /// It ends too, with what its disk has not synced.
    Lost,
}

impl OrderPlan {
    /// The plan of a seed.
    #[must_use]
    pub fn draw(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x4f72_6465_7273);
        let random = &mut random;
        let venue = if random.below(4) == 0 { VenueProtocol::Ouch } else { VenueProtocol::Native };
        let mut plan = Self {
            seed,
            venue,
            throttle: one(random, &[0, 100, 1_000]),
            queue: one(random, &[1, 20, 1_000]),
            reports_per_request: one(random, &[1, 10, 1_000]),
            sync_every_ms: one(random, &[None, None, None, Some(5), Some(50), Some(200)]),
            exchange_syncs: random.below(4) > 0,
            script: ScriptPlan::draw(random, venue),
            faults: Vec::new(),
        };
        plan.faults = (0..FAULTS)
            .map(|_| OrderFault { after_us: 20_000 + random.below(300_000), what: plan.draw_fault(random) })
            .collect();
        if random.below(3) == 0 {
            plan.script.draw_misreports(random);
        }
        plan
    }

    fn draw_fault(&self, random: &mut Random) -> OrderWhat {
        match random.below(8) {
            0..4 => {
                let (of_exchange, of_gateway) = one(random, &[(true, false), (false, true), (true, true)]);
                let mut power = |is_it: bool, may_be_lost: bool| {
                    let is_lost = random.below(2) == 0 && may_be_lost;
                    is_it.then_some(if is_lost { Power::Lost } else { Power::Kept })
                };
                let exchange = power(of_exchange, self.exchange_syncs);
                let gateway = power(of_gateway, self.sync_every_ms.is_none());
                OrderWhat::Crash(OrderCrash { exchange, gateway, back_after_ms: 1 + random.below(50) })
            }
            4 => OrderWhat::Tcp {
                piece: 1 + random.below(100),
                reset_per_million: one(random, &[0, 5_000, 50_000]),
                length_ms: 1 + random.below(200),
            },
            5 => OrderWhat::Stand { length_ms: random.below(800) },
            6 => OrderWhat::Clock { ahead_s: random.below(7_200) as i32 - 3_600 },
            _ => OrderWhat::Disk { is_full: random.below(2) == 0, length_ms: 1 + random.below(500) },
        }
    }

    /// The faults as the exchange's options have them.
    pub(super) fn exchange_faults(&self) -> OrderFaults {
        let script = self.script;
        let halt = PartitionHalt {
            partition: 1,
            at_message: script.halted_at.into(),
            duration_ns: u64::from(script.halted_ms) * 1_000_000,
        };
        OrderFaults {
            seed: self.seed,
            rejects_per_million: script.rejects_per_million,
            delays_per_million: script.delays_per_million,
            longest_delay_ns: u64::from(script.longest_delay_us) * 1_000,
            gaps_per_million: script.gaps_per_million,
            garbage_per_million: script.garbage_per_million,
            drop_every: script.drop_every.into(),
            halt: (script.halted_at > 0).then_some(halt),
            repeats_per_million: script.repeats_per_million,
            inventions_per_million: script.inventions_per_million,
            withheld_per_million: script.withheld_per_million,
            reorders_per_million: script.reorders_per_million,
            garbled_per_million: script.garbled_per_million,
            until_message: script.until_message.into(),
        }
    }
}

impl ScriptPlan {
    /// Half of all exchanges do nothing wrong.
    fn draw(random: &mut Random, venue: VenueProtocol) -> Self {
        let is_native = venue == VenueProtocol::Native;
        if random.below(2) == 0 {
            return Self::default();
        }
        let (halted_at, drop_every) = (1 + random.below(1_500), 1 + random.below(1_000));
        Self {
            rejects_per_million: one(random, &[0, 0, 20_000, 200_000]),
            delays_per_million: one(random, &[0, 0, 10_000, 200_000]),
            longest_delay_us: 1 + random.below(100_000),
            gaps_per_million: if is_native { one(random, &[0, 0, 2_000, 50_000]) } else { 0 },
            garbage_per_million: if is_native { one(random, &[0, 0, 2_000, 10_000]) } else { 0 },
            drop_every: one(random, &[0, 0, 200, drop_every]),
            halted_at: one(random, &[0, 0, 0, halted_at]),
            halted_ms: 1 + random.below(500),
            ..Self::default()
        }
    }

    /// Misreports, until a message that each run comes to.
    fn draw_misreports(&mut self, random: &mut Random) {
        let often = [0, 5_000, 50_000];
        self.repeats_per_million = one(random, &often);
        self.inventions_per_million = one(random, &often);
        self.withheld_per_million = one(random, &[0, 1_000, 5_000]);
        self.reorders_per_million = one(random, &often);
        self.garbled_per_million = one(random, &often);
        self.until_message = 200 + random.below(1_500);
    }

    /// Whether there is a message from which on nothing is wrong.
    pub(super) const fn ends(&self) -> bool {
        self.until_message > 0
    }

    /// Whether the exchange sends reports that contradict its orders, or cannot be read.
    pub(super) const fn raises_doubts(&self) -> bool {
        self.inventions_per_million > 0 || self.garbled_per_million > 0
    }
}

fn one<T: Copy>(random: &mut Random, all: &[T]) -> T {
    all[random.below(all.len() as u32) as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unsynced_machine_keeps_its_power_and_every_kind_is_drawn() {
        let plans: Vec<_> = (0..300).map(OrderPlan::draw).collect();
        for plan in &plans {
            for fault in &plan.faults {
                let OrderWhat::Crash(crash) = fault.what else { continue };
                assert!(plan.exchange_syncs || crash.exchange != Some(Power::Lost));
                assert!(plan.sync_every_ms.is_none() || crash.gateway != Some(Power::Lost));
                assert!(crash.exchange.is_some() || crash.gateway.is_some());
            }
        }
        let any = |is: fn(&OrderPlan) -> bool| plans.iter().any(is);
        assert!(any(|plan| plan.venue == VenueProtocol::Ouch) && any(|plan| plan.sync_every_ms.is_some()));
        assert!(any(|plan| plan.script.gaps_per_million > 0 && plan.script.garbage_per_million > 0));
        assert!(any(|plan| plan.script.drop_every > 0) && any(|plan| plan.script.halted_at > 0));
        assert!(any(|plan| plan.script.delays_per_million > 0 && plan.script.rejects_per_million > 0));
        for venue in [VenueProtocol::Native, VenueProtocol::Ouch] {
            let any = |is: fn(&ScriptPlan) -> bool| {
                plans.iter().any(|plan| plan.venue == venue && plan.script.ends() && is(&plan.script))
            };
            assert!(
                any(|script| script.repeats_per_million > 0)
                    && any(|script| script.inventions_per_million > 0)
            );
            assert!(
                any(|script| script.withheld_per_million > 0)
                    && any(|script| script.reorders_per_million > 0)
            );
            assert!(any(|script| script.garbled_per_million > 0));
        }
    }
}
