//! The plan of a run with orders: drawn from a seed, or read from a file.

use serde::{Deserialize, Serialize};
use tapeworks_matching::orders::{OrderFaults, PartitionHalt};
use tapeworks_random::Random;

/// Number of faults in a drawn run, one after the other.
const FAULTS: usize = 10;

/// The plan of a run with orders.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OrderPlan {
    /// The seed of everything that the plan does not state.
    pub seed: u64,
    /// The protocol between gateway and exchange.
    pub venue: VenueProtocol,
    /// Requests per second that the gateway sends to a native exchange; 0: no limit.
    pub throttle: u64,
    /// Requests that may wait for the throttle.
    pub queue: u64,
    /// Missed reports that a native exchange sends per request.
    pub reports_per_request: u32,
    /// Interval at which the gateway's store is synced, in ms; `None`: before anything is sent. With an interval, the gateway's
    /// machine loses power at the end of the run, and at no other time.
    pub sync_every_ms: Option<u32>,
    /// Whether the exchange's store is synced before anything is sent. If not, its machine never loses power.
    pub exchange_syncs: bool,
    /// The faults that the exchange injects.
    pub script: ScriptPlan,
    /// The faults of the run, in order.
    pub faults: Vec<OrderFault>,
}

/// The protocol between gateway and exchange.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub enum VenueProtocol {
    /// The Millennium native protocol.
    #[default]
    Native,
    /// OUCH 5.0 over SoupBinTCP.
    Ouch,
}

/// Faults that an exchange injects, per million messages.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptPlan {
    /// New orders rejected.
    pub rejects_per_million: u32,
    /// Reports delayed.
    pub delays_per_million: u32,
    /// Longest delay, in us.
    pub longest_delay_us: u32,
    /// Reports numbered but not sent; native exchanges only.
    pub gaps_per_million: u32,
    /// Reports preceded by random bytes; native exchanges only.
    pub garbage_per_million: u32,
    /// The connection is dropped at every n-th message; 0: never.
    pub drop_every: u32,
    /// Number of the message at which partition 1 is halted; 0: never.
    pub halted_at: u32,
    /// Duration of the halt, in ms.
    pub halted_ms: u32,
    /// Reports repeated under the next number.
    #[serde(default)]
    pub repeats_per_million: u32,
    /// Reports accompanied by an invented one.
    #[serde(default)]
    pub inventions_per_million: u32,
    /// Reports withheld beyond the first requests.
    #[serde(default)]
    pub withheld_per_million: u32,
    /// Reports swapped with the next one.
    #[serde(default)]
    pub reorders_per_million: u32,
    /// Reports preceded by a garbled copy.
    #[serde(default)]
    pub garbled_per_million: u32,
    /// Number of the message from which on no fault is injected; 0: faults never stop.
    #[serde(default)]
    pub until_message: u32,
}

/// A fault, preceded by a time without faults.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OrderFault {
    /// Time since the end of the previous fault, in us.
    pub after_us: u32,
    /// The fault.
    pub what: OrderWhat,
}

/// The kinds of faults.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum OrderWhat {
    /// Processes end.
    Crash(OrderCrash),
    /// TCP delivers pieces of a few bytes, and connections break.
    Tcp {
        /// Bytes per piece.
        piece: u32,
        /// Writes that break the connection, per million.
        reset_per_million: u32,
        /// Duration in ms.
        length_ms: u32,
    },
    /// TCP delivers nothing.
    Stand {
        /// Duration in ms.
        length_ms: u32,
    },
    /// The gateway's clock is wrong.
    Clock {
        /// Offset in seconds.
        ahead_s: i32,
    },
    /// The gateway's disk rejects all writes, or some.
    Disk {
        /// Whether the disk is full; otherwise every other write fails, on average.
        is_full: bool,
        /// Duration in ms.
        length_ms: u32,
    },
}

/// Processes end and restart.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OrderCrash {
    /// The exchange.
    pub exchange: Option<Power>,
    /// The gateway.
    pub gateway: Option<Power>,
    /// Time until they restart, in ms.
    pub back_after_ms: u32,
}

/// What happens to the machine of a process that ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Power {
    /// The machine keeps running; only the process ends.
    Kept,
    /// The machine loses power, and with it the unsynced data of its disk.
    Lost,
}

impl OrderPlan {
    /// Draws the plan of a seed.
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

    /// Returns the faults as options of the exchange.
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
    /// Draws a script. Half of all exchanges inject no faults.
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

    /// Draws misreports, up to a message that every run reaches.
    fn draw_misreports(&mut self, random: &mut Random) {
        let often = [0, 5_000, 50_000];
        self.repeats_per_million = one(random, &often);
        self.inventions_per_million = one(random, &often);
        self.withheld_per_million = one(random, &[0, 1_000, 5_000]);
        self.reorders_per_million = one(random, &often);
        self.garbled_per_million = one(random, &often);
        self.until_message = 200 + random.below(1_500);
    }

    /// Returns whether faults stop at some message.
    pub(super) const fn ends(&self) -> bool {
        self.until_message > 0
    }

    /// Returns whether the exchange sends reports that contradict its orders or are unreadable.
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
