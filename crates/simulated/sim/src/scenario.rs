//! Named plans: days that everybody fears.

use std::time::Duration;

use tapeworks_generator::VenueKind;
use tapeworks_plant::{SyncPolicy, Topology};
use tapeworks_ring::wait::Wait;
use tapeworks_venues::{AnswerFaults, SnapshotFaults};

use crate::kernel::Schedule;
use crate::kernel::disk::DiskFaults;
use crate::kernel::network::{LinkFaults, TcpFaults};
use crate::plan::{
    ArbiterPlan, Burst, ClientPlan, Fault, JournalPlan, LimitPlan, MILLISECOND, NIGHT_NS, NightPlan, Plan,
    SECOND, VenuePlan, What,
};

/// A named plan.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Its name on the command line.
    pub name: &'static str,
    /// What happens.
    pub story: &'static str,
    change: fn(&mut Plan),
}

/// Venues whose orders keep their numbers when they are modified.
const KEPT_NUMBERS: [VenueKind; 3] = VenueKind::each(["iex-deep-plus", "byx", "edgx"]);

/// Venues whose symbol mapping defines indices and price scales.
const SYMBOL_INDICES: [VenueKind; 3] = VenueKind::each(["nyse", "arca", "texas"]);

/// London, whose symbols no other venue here has, beside two US venues; Cboe's units have the same header.
const LONDON: [VenueKind; 3] = VenueKind::each(["lse", "byx", "nasdaq"]);

/// The SIPs, whose channels each carry all participants, beside a direct feed that uses the transport of one of them.
const SIPS: [VenueKind; 3] = VenueKind::each(["uqdf", "cqs", "nasdaq"]);

/// Makes the first venues these kinds, without snapshots. Their lines lose, repeat and delay packets, the plant is killed, and its
/// machine loses power.
fn lossy(plan: &mut Plan, kinds: [VenueKind; 3]) {
    for (place, kind) in kinds.into_iter().enumerate() {
        let Some(venue) = plan.venues.get_mut(place) else { continue };
        (venue.kind, venue.has_snapshots) = (kind, false);
        for line in 0..2 {
            let faults = LinkFaults {
                lost_per_million: 100_000,
                twice_per_million: 20_000,
                late_per_million: 20_000,
                late_ns: 3_000_000,
                ..LinkFaults::default()
            };
            plan.add(2 * SECOND, 3 * SECOND, What::Line { venue: place, line, faults });
        }
    }
    plan.add(6 * SECOND, 300 * MILLISECOND, What::Kill);
    plan.add(8 * SECOND, SECOND, What::PowerOff);
}

/// Makes the first venues these kinds, with snapshots. The plant starts late, and one line of each is out for two seconds.
fn late(plan: &mut Plan, kinds: [VenueKind; 3]) {
    plan.plant_starts_ns = 2 * SECOND;
    for (place, kind) in kinds.into_iter().enumerate() {
        let Some(venue) = plan.venues.get_mut(place) else { continue };
        (venue.kind, venue.has_snapshots) = (kind, true);
        let out = LinkFaults { out_until_ns: 6 * SECOND, ..LinkFaults::default() };
        plan.add(4 * SECOND, 2 * SECOND, What::Line { venue: place, line: place % 2, faults: out });
    }
}

/// Lets the second venue fall silent for half a second after this many messages, and then number from 1 in the same session.
fn reset_second(plan: &mut Plan, after: u64, is_unannounced: bool) {
    plan.arbiter.silence_ns = 1_500 * MILLISECOND;
    if let Some(venue) = plan.venues.get_mut(1) {
        (venue.reset, venue.is_unannounced) = (Some((after, 500 * MILLISECOND)), is_unannounced);
    }
}

impl Scenario {
    /// Every scenario.
    pub const ALL: [Self; 37] = [
        Self { name: "quiet", story: "nothing fails", change: |_| {} },
        Self {
            name: "steady",
            story: "nothing fails at 10,000 messages a second for half a minute: what the simulator's speed is measured with",
            change: |plan| (plan.rate, plan.trouble_ns) = (10_000, 30 * SECOND),
        },
        Self {
            name: "steady-alone",
            story: "the same, of a plant with all on one thread that writes no journal and that no client reads",
            change: |plan| {
                (plan.rate, plan.trouble_ns) = (10_000, 30 * SECOND);
                (plan.topology, plan.journal) = (Topology::Inline, None);
                plan.clients.clear();
            },
        },
        Self {
            name: "line-out",
            story: "line A of the first venue is out for three seconds",
            change: |plan| {
                let out = LinkFaults { out_until_ns: 5 * SECOND, ..LinkFaults::default() };
                plan.add(2 * SECOND, 3 * SECOND, What::Line { venue: 0, line: 0, faults: out });
            },
        },
        Self {
            name: "lines-out",
            story: "both lines of the first venue are out for two seconds; its retransmission server has what was missed",
            change: |plan| plan.add(2 * SECOND, 2 * SECOND, What::LinesOut { venue: 0 }),
        },
        Self {
            name: "everything-out",
            story: "all lines of all venues, their servers and all connections are out for ten seconds",
            change: |plan| {
                let (at, length) = (2 * SECOND, 10 * SECOND);
                plan.trouble_ns = 20 * SECOND;
                let out = LinkFaults { out_until_ns: at + length, ..LinkFaults::default() };
                for venue in 0..plan.venues.len() {
                    plan.add(at, length, What::LinesOut { venue });
                    plan.add(at, length, What::Requests { venue, faults: out });
                }
                plan.add(
                    at,
                    length,
                    What::Tcp(TcpFaults { out_until_ns: at + length, ..TcpFaults::default() }),
                );
            },
        },
        Self {
            name: "lossy-lines",
            story: "each line loses a tenth of its datagrams, repeats some and delays some, for five seconds",
            change: |plan| {
                for venue in 0..plan.venues.len() {
                    for line in 0..2 {
                        let faults = LinkFaults {
                            lost_per_million: 100_000,
                            twice_per_million: 20_000,
                            late_per_million: 20_000,
                            late_ns: 3_000_000,
                            jitter_ns: 200_000,
                            ..LinkFaults::default()
                        };
                        plan.add(2 * SECOND, 5 * SECOND, What::Line { venue, line, faults });
                    }
                }
            },
        },
        Self {
            name: "garbage",
            story: "line B of the first venue brings cut datagrams, random bytes, and other sessions' names for five seconds",
            change: |plan| {
                let faults = LinkFaults {
                    cut_per_million: 10_000,
                    garbled_per_million: 10_000,
                    renamed_per_million: 1_000,
                    renamed_at: 2,
                    ..LinkFaults::default()
                };
                plan.add(2 * SECOND, 5 * SECOND, What::Line { venue: 0, line: 1, faults });
                // IEX-TP has its protocol's name there.
                plan.add(3 * SECOND, 5 * SECOND, What::Line { venue: 2, line: 1, faults });
            },
        },
        Self {
            name: "burst",
            story: "200,000 messages a second more for 200 ms, into small socket buffers",
            change: |plan| {
                plan.buffer_bytes = 64 << 10;
                plan.bursts = vec![Burst { at_ns: 2 * SECOND, length_ns: 200 * MILLISECOND, rate: 200_000 }];
            },
        },
        Self {
            name: "killed",
            story: "the plant is killed, and is back after a second",
            change: |plan| plan.add(3 * SECOND, SECOND, What::Kill),
        },
        Self {
            name: "power-loss",
            story: "the plant's machine loses its power, and what its disk had not synced; it is back after five seconds",
            change: |plan| plan.add(3 * SECOND, 5 * SECOND, What::PowerOff),
        },
        Self {
            name: "bad-disk",
            story: "the disk is slow, then writes and syncs fail, then it is full",
            change: |plan| {
                let slow =
                    DiskFaults { write_ns: 20_000_000, sync_ns: 1_000_000_000, ..DiskFaults::default() };
                let failing = DiskFaults {
                    failed_writes_per_million: 300_000,
                    failed_syncs_per_million: 300_000,
                    ..DiskFaults::default()
                };
                let full = DiskFaults { capacity: 100_000, ..DiskFaults::default() };
                for (at, faults) in [(1, slow), (4, failing), (7, full)] {
                    plan.add(at * SECOND, 2 * SECOND, What::Disk(faults));
                }
            },
        },
        Self {
            name: "clock",
            story: "the plant's clock is set an hour back, an hour ahead, and stands, while a line loses datagrams",
            change: |plan| {
                let faults = LinkFaults { lost_per_million: 50_000, ..LinkFaults::default() };
                plan.add(SECOND, 8 * SECOND, What::Line { venue: 0, line: 0, faults });
                let hour = 3_600 * SECOND as i64;
                plan.add(2 * SECOND, 2 * SECOND, What::Clock(-hour));
                plan.add(4_500 * MILLISECOND, 2 * SECOND, What::Clock(hour));
                plan.add(7 * SECOND, SECOND, What::Drift(-1_000_000));
            },
        },
        Self {
            name: "new-sessions",
            story: "each venue begins a new session in the middle of the day, while a line is out",
            change: |plan| {
                for (place, venue) in plan.venues.iter_mut().enumerate() {
                    venue.restart_after[0] = 5_000 + 1_000 * place as u64;
                }
                let out = LinkFaults { out_until_ns: 6 * SECOND, ..LinkFaults::default() };
                plan.add(2 * SECOND, 4 * SECOND, What::Line { venue: 0, line: 1, faults: out });
            },
        },
        Self {
            name: "numbers-anew",
            story: "a venue is silent for half a second, and begins the same session anew",
            // Its numbers are lower than before for five seconds.
            change: |plan| reset_second(plan, 8_500, false),
        },
        Self {
            name: "unannounced",
            story: "a venue is silent for half a second, and restarts its session without an announcement",
            change: |plan| reset_second(plan, 5_000, true),
        },
        Self {
            name: "night",
            story: "the venues close for a night; the next day has the same sessions, of the second venue without an announcement",
            change: |plan| {
                plan.night = Some(NightPlan { at_ns: 5 * SECOND, length_ns: NIGHT_NS });
                plan.venues.iter_mut().for_each(|venue| venue.keeps_session = true);
                plan.venues.iter_mut().skip(1).for_each(|venue| venue.is_unannounced = true);
            },
        },
        Self {
            name: "killed-at-night",
            story: "a plant is killed before a night and starts again when the next day has begun",
            change: |plan| {
                plan.night = Some(NightPlan { at_ns: 5 * SECOND, length_ns: NIGHT_NS });
                plan.venues.iter_mut().for_each(|venue| venue.keeps_session = true);
                plan.add(4 * SECOND, 2 * SECOND, What::Kill);
            },
        },
        Self {
            name: "late-copies",
            story: "both lines bring copies that are up to nine seconds old, also after six seconds in which a venue is silent",
            change: |plan| {
                plan.trouble_ns = 15 * SECOND;
                for (place, venue) in plan.venues.iter_mut().enumerate() {
                    venue.silence = Some((3_000 + 1_000 * place as u64, 6 * SECOND));
                }
                for venue in 0..plan.venues.len() {
                    let faults = LinkFaults {
                        copied_late_per_million: 10_000,
                        copied_late_ns: 9 * SECOND,
                        ..LinkFaults::default()
                    };
                    for line in 0..2 {
                        plan.add(0, 15 * SECOND, What::Line { venue, line, faults });
                    }
                }
            },
        },
        Self {
            name: "hung",
            story: "the plant hangs for four seconds, then the venues with their servers while a line is out",
            change: |plan| {
                plan.trouble_ns = 15 * SECOND;
                plan.add(2 * SECOND, 4 * SECOND, What::Hang);
                let out = LinkFaults { out_until_ns: 9 * SECOND, ..LinkFaults::default() };
                plan.add(7 * SECOND, 2 * SECOND, What::Line { venue: 0, line: 0, faults: out });
                plan.add(8 * SECOND, 4 * SECOND, What::VenuesHang);
            },
        },
        Self {
            name: "new-session-in-a-gap",
            story: "a venue begins a new session while messages of the old one are requested, nobody answers, and both lines are out",
            change: |plan| {
                plan.arbiter.attempts = 1_000;
                if let Some(venue) = plan.venues.first_mut() {
                    venue.restart_after[0] = 5_000;
                }
                let lost = LinkFaults { lost_per_million: 300_000, ..LinkFaults::default() };
                for line in 0..2 {
                    plan.add(SECOND, 1_800 * MILLISECOND, What::Line { venue: 0, line, faults: lost });
                }
                plan.add(2_800 * MILLISECOND, 3 * SECOND, What::LinesOut { venue: 0 });
                let out = LinkFaults { lost_per_million: 1_000_000, ..LinkFaults::default() };
                plan.add(SECOND, 9 * SECOND, What::Requests { venue: 0, faults: out });
            },
        },
        Self {
            name: "slow-journal",
            story: "the disk takes 100 ms for a write, and few inputs may wait for it; names cannot be changed or removed for a while",
            change: |plan| {
                plan.limits.keep_bytes = Some(1 << 20);
                if let Some(journal) = &mut plan.journal {
                    (journal.queue, journal.segment_bytes) = (64, 200_000);
                    journal.checkpoint_every = Some(Duration::from_millis(200));
                }
                let slow = DiskFaults { write_ns: 100_000_000, ..DiskFaults::default() };
                let stuck = DiskFaults { failed_names_per_million: 1_000_000, ..DiskFaults::default() };
                plan.add(SECOND, 2 * SECOND, What::Disk(slow));
                plan.add(4 * SECOND, 2 * SECOND, What::Disk(stuck));
            },
        },
        Self {
            name: "unreadable-disk",
            story: "the plant is killed, and starts again on a disk that cannot be read, and then hardly",
            change: |plan| {
                plan.limits.ends_with_the_journal = true;
                let unreadable = DiskFaults { failed_reads_per_million: 1_000_000, ..DiskFaults::default() };
                let hardly = DiskFaults { failed_reads_per_million: 100_000, ..DiskFaults::default() };
                plan.add(3 * SECOND, SECOND, What::Kill);
                plan.add(3_500 * MILLISECOND, SECOND, What::Disk(unreadable));
                plan.add(5 * SECOND, SECOND, What::Kill);
                plan.add(5_500 * MILLISECOND, 2 * SECOND, What::Disk(hardly));
            },
        },
        Self {
            name: "hostile-servers",
            story: "both lines lose datagrams, and retransmission servers answer late, in part, with other ranges, or not at all",
            change: |plan| {
                for venue in &mut plan.venues {
                    venue.answers_lost_per_million = 100_000;
                    venue.answers = AnswerFaults {
                        late_per_million: 100_000,
                        late_ns: 30_000_000,
                        partial_per_million: 200_000,
                        more_per_million: 100_000,
                        other_range_per_million: 100_000,
                        other_session_per_million: 50_000,
                        garbage_per_million: 0,
                        unreadable_per_million: 50_000,
                        repeated_per_million: 50_000,
                    };
                }
                for line in 0..2 {
                    let faults = LinkFaults { lost_per_million: 200_000, ..LinkFaults::default() };
                    plan.add(2 * SECOND, 3 * SECOND, What::Line { venue: 0, line, faults });
                }
            },
        },
        Self {
            name: "lying-snapshots",
            story: "the plant starts late, a line of each venue is out, and snapshot servers claim numbers that are not theirs, answer for another session, send what cannot be read, or nothing",
            change: |plan| {
                late(plan, VenueKind::each(["nasdaq", "iex-deep", "memx"]));
                for venue in &mut plan.venues {
                    venue.snapshots = SnapshotFaults {
                        ahead_per_million: 200_000,
                        other_session_per_million: 100_000,
                        unreadable_per_million: 100_000,
                        silent_per_million: 50_000,
                        endless_per_million: 0,
                    };
                }
            },
        },
        Self {
            name: "kept-numbers",
            story: "IEX's and Cboe's feeds of orders that keep their numbers when they change: lines lose, repeat and hold back, the plant is killed, and its machine loses its power",
            change: |plan| lossy(plan, KEPT_NUMBERS),
        },
        Self {
            name: "kept-numbers-late",
            story: "the same venues with snapshots; the plant starts late, and one line of each is out for two seconds",
            change: |plan| late(plan, KEPT_NUMBERS),
        },
        Self {
            name: "symbol-indices",
            story: "NYSE's feeds, whose mapping explains indices and prices: lines lose, repeat and hold back, the plant is killed, and its machine loses its power",
            change: |plan| lossy(plan, SYMBOL_INDICES),
        },
        Self {
            name: "symbol-indices-late",
            story: "the same venues with snapshots; the plant starts late, and one line of each is out for two seconds",
            change: |plan| late(plan, SYMBOL_INDICES),
        },
        Self {
            name: "own-recovery-late",
            story: "NYSE's refreshes, and the replays and snapshots of London and MEMX over their connections: answers are lost; the plant starts late, and one line of each is out for two seconds",
            change: |plan| {
                late(plan, VenueKind::each(["nyse", "lse", "memx"]));
                for venue in &mut plan.venues {
                    (venue.requests_by_tcp, venue.answers_lost_per_million) = (true, 20_000);
                    venue.refreshes = true;
                }
            },
        },
        Self {
            name: "tcp-recovery",
            story: "Cboe's and NYSE's own recovery, with requests over TCP: lines lose, answers are lost, connections are reset and out, and the plant is killed",
            change: |plan| {
                lossy(plan, VenueKind::each(["edgx", "nyse", "byx"]));
                plan.arbiter.attempts = 1_000;
                for venue in &mut plan.venues {
                    (venue.requests_by_tcp, venue.answers_lost_per_million) = (true, 20_000);
                    venue.answers = AnswerFaults {
                        partial_per_million: 100_000,
                        more_per_million: 100_000,
                        ..venue.answers
                    };
                }
                let resets = TcpFaults { reset_per_million: 20_000, ..TcpFaults::default() };
                plan.add(2 * SECOND, 2 * SECOND, What::Tcp(resets));
                let out = TcpFaults { out_until_ns: 4_500 * MILLISECOND, ..TcpFaults::default() };
                plan.add(4_200 * MILLISECOND, 300 * MILLISECOND, What::Tcp(out));
            },
        },
        Self {
            name: "london",
            story: "London's feed, whose directory explains numbers, beside Cboe's with the same header and Nasdaq's: lines lose, repeat and hold back, the plant is killed, and its machine loses its power",
            change: |plan| lossy(plan, LONDON),
        },
        Self {
            name: "sips",
            story: "both SIPs, whose channels carry all participants, beside Nasdaq's feed: lines lose, repeat and hold back, the plant is killed, and its machine loses its power",
            change: |plan| lossy(plan, SIPS),
        },
        Self {
            name: "london-late",
            story: "the same venues with snapshots; the plant starts late, and one line of each is out for two seconds",
            change: |plan| late(plan, LONDON),
        },
        Self {
            name: "late-without-snapshots",
            story: "the plant starts late, and the snapshot server refuses connections for longer than it tries",
            change: |plan| {
                plan.plant_starts_ns = 2 * SECOND;
                plan.limits.snapshot_attempts = 2;
                plan.limits.snapshot_ns = 500 * MILLISECOND;
                plan.add(SECOND, 7 * SECOND, What::SnapshotsOut { venue: 0 });
            },
        },
        Self {
            name: "full-journal",
            story: "the journal keeps little, and the plant, which must journal, ends when its disk is full; it is started again",
            change: |plan| {
                plan.limits.keep_bytes = Some(3 << 20);
                plan.limits.ends_with_the_journal = true;
                let full = DiskFaults { capacity: 100_000, ..DiskFaults::default() };
                plan.add(6 * SECOND, 2 * SECOND, What::Disk(full));
            },
        },
        Self {
            name: "slow-clients",
            story: "clients that pause, leave, and ask for what there is not, over connections with small windows and resets",
            change: |plan| {
                plan.queue_bytes = 256 << 10;
                plan.clients.push(ClientPlan { pause_ns: SECOND, ..ClientPlan::default() });
                plan.clients.push(ClientPlan { leaves_after: 5_000, ..ClientPlan::default() });
                plan.clients.push(ClientPlan { is_absurd: true, ..ClientPlan::default() });
                let tcp = TcpFaults {
                    window: 4_096,
                    piece: 100,
                    least_ns: 1_000_000,
                    reset_per_million: 1_000,
                    ..TcpFaults::default()
                };
                plan.add(2 * SECOND, 4 * SECOND, What::Tcp(tcp));
            },
        },
    ];

    /// Returns the scenario with this name.
    pub fn of_name(name: &str) -> Option<&'static Self> {
        Self::ALL.iter().find(|scenario| scenario.name == name)
    }

    /// Returns the scenario's plan, with everything random drawn from `seed`.
    pub fn plan(&self, seed: u64) -> Plan {
        let venue = |kind| VenuePlan {
            has_line_b: true,
            has_retransmission: true,
            has_snapshots: kind == VenueKind::Nasdaq,
            ..VenuePlan::new(kind)
        };
        let mut plan = Plan {
            seed,
            trouble_ns: 10 * SECOND,
            venues: VenueKind::each(["nasdaq", "bx", "iex-deep"]).map(venue).to_vec(),
            rate: 5_000,
            symbols: 20,
            schedule: Schedule::default(),
            topology: Topology::Pipeline,
            wait: Wait::Park,
            ring_events: 1 << 16,
            journal: Some(JournalPlan {
                sync: SyncPolicy::Every(Duration::from_millis(100)),
                segment_bytes: 1 << 20,
                queue: 4_096,
                checkpoint_every: Some(Duration::from_secs(2)),
            }),
            arbiter: ArbiterPlan {
                reorder_window_ns: 500_000,
                timeout_ns: 10 * MILLISECOND,
                attempts: 10,
                messages_per_request: 1_000,
                requests_in_flight: 32,
                silence_ns: 3 * SECOND,
            },
            limits: LimitPlan::default(),
            day: None,
            night: None,
            plant_starts_ns: 0,
            clients: vec![ClientPlan::default()],
            multicast: None,
            buffer_bytes: 4 << 20,
            bursts: Vec::new(),
            queue_bytes: 16 << 20,
            faults: Vec::new(),
        };
        (self.change)(&mut plan);
        plan
    }
}

impl Plan {
    fn add(&mut self, at_ns: u64, length_ns: u64, what: What) {
        self.faults.push(Fault { at_ns, length_ns, what });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate;

    #[test]
    fn names_differ_and_nothing_is_wrong_when_nothing_fails() {
        for (place, scenario) in Scenario::ALL.iter().enumerate() {
            assert!(Scenario::ALL[..place].iter().all(|other| other.name != scenario.name));
            assert_eq!(Scenario::of_name(scenario.name).unwrap().story, scenario.story);
        }
        let mut plan = Scenario::of_name("quiet").unwrap().plan(1);
        plan.trouble_ns = SECOND;
        let outcome = simulate(&plan, false);
        assert_eq!(outcome.violations, Vec::<String>::new());
        assert_eq!((outcome.counts.missing, outcome.counts.stale), (0, 0));
        assert!(outcome.counts.records > 0 && outcome.counts.compared > 0);
    }
}
