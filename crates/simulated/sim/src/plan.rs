//! The plan that a seed determines: the market, the plant's configuration, the scheduling of threads, and the faults and their times.
//!
//! A plan is data: a failing run is shrunk by removing parts of its plan.

use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::Duration;

use tapeworks_feed::Application;
use tapeworks_feed::live::SnapshotOptions;
use tapeworks_follow::arbitration::{ArbiterOptions, RetransmissionOptions};
use tapeworks_generator::VenueKind;
use tapeworks_generator::live::{LiveBurst, Night, Silence};
use tapeworks_journal::JournalOptions;
use tapeworks_plant::{
    JournalSetting, PlantOptions, RetransmissionServer, SnapshotServer, SyncPolicy, Topology, VenueOptions,
    WhenFailing,
};
use tapeworks_random::Random;
use tapeworks_ring::wait::Wait;
use tapeworks_session::requests::{LoginFields, RequestLogin, RequestProtocol};
use tapeworks_session::snapshot::{SnapshotLogin, SnapshotProtocol};
use tapeworks_venues::{AnswerFaults, Config, SnapshotFaults, Venue};

use crate::kernel::Schedule;
use crate::kernel::disk::DiskFaults;
use crate::kernel::network::{LinkFaults, TcpFaults};

pub(crate) const SECOND: u64 = 1_000_000_000;
pub(crate) const MILLISECOND: u64 = 1_000_000;

/// Midnight in New York at the end of 2025-11-14, in ns since the epoch.
pub(crate) const MIDNIGHT_NS: u64 = 1_763_182_800_000_000_000;

/// Duration of a night in ns: longer than any pause of a channel within a day.
pub(crate) const NIGHT_NS: u64 = 35 * 60 * SECOND;

/// Address of the venues.
pub(crate) const VENUES_HOST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
/// Address of the plant.
pub(crate) const PLANT_HOST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 3);
/// Address of the clients.
pub(crate) const CLIENT_HOST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 4);
/// Port at which the plant serves clients.
pub(crate) const CLIENTS_PORT: u16 = 13_000;

/// The kinds of faults.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum What {
    /// One line of a venue.
    Line {
        /// Index of the venue in the plan.
        venue: usize,
        /// 0: line A, 1: line B.
        line: usize,
        /// What the network does to it.
        faults: LinkFaults,
    },
    /// Both lines of a venue deliver nothing.
    LinesOut {
        /// Index of the venue in the plan.
        venue: usize,
    },
    /// Requests to a venue's retransmission server, and its answers.
    Requests {
        /// Index of the venue in the plan.
        venue: usize,
        /// What the network does to them.
        faults: LinkFaults,
    },
    /// All connections.
    Tcp(TcpFaults),
    /// The plant's disk.
    Disk(DiskFaults),
    /// The multicast output.
    Group {
        /// Whether it affects requests for messages and their answers instead of the group.
        of_requests: bool,
        /// What the network does to it.
        faults: LinkFaults,
    },
    /// The plant is killed, and restarts at the end of the fault.
    Kill,
    /// The plant's machine loses power, and the plant restarts at the end of the fault.
    PowerOff,
    /// Like `PowerOff`, and bits of a file in the journal's folder are flipped.
    Rot {
        /// Number of bits.
        bits: u32,
        /// In the newest checkpoint; otherwise in any file.
        #[serde(default)]
        is_of_checkpoint: bool,
    },
    /// Like `PowerOff`, and the pages written last to the journal's newest segment are lost, whether synced or not.
    LostPages {
        /// Number of pages.
        pages: u32,
    },
    /// The plant's clock is off by this many ns.
    Clock(i64),
    /// The plant's clock gains this many ns per million, or loses them; at -1,000,000 it stops.
    Drift(i32),
    /// Another plant is started on the journal's folder, and must be refused.
    SecondPlant,
    /// A venue's snapshot server refuses connections.
    SnapshotsOut {
        /// Index of the venue in the plan.
        venue: usize,
    },
    /// The plant's process hangs.
    Hang,
    /// The process of all venues and their servers hangs.
    VenuesHang,
}

impl What {
    /// Returns whether the plant is down during the fault.
    pub(crate) const fn stops_the_plant(self) -> bool {
        matches!(self, Self::Kill | Self::PowerOff | Self::Rot { .. } | Self::LostPages { .. })
    }

    /// Returns whether the fault is a lasting condition instead of an event at its beginning.
    pub(crate) const fn is_condition(self) -> bool {
        !self.stops_the_plant() && !matches!(self, Self::SecondPlant)
    }
}

/// A fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Fault {
    /// Start time, in ns since the start of the run.
    pub at_ns: u64,
    /// Duration, in ns.
    pub length_ns: u64,
    /// The kind of fault.
    pub what: What,
}

impl VenuePlan {
    /// Creates a venue with only line A, without servers and without faults.
    pub(crate) fn new(kind: VenueKind) -> Self {
        Self {
            kind,
            has_line_b: false,
            has_retransmission: false,
            requests_by_tcp: false,
            refreshes: false,
            has_snapshots: false,
            answers_lost_per_million: 0,
            silence: None,
            restart_after: [0; MOST_RESTARTS],
            reset: None,
            is_unannounced: false,
            keeps_session: false,
            answers: AnswerFaults::default(),
            snapshots: SnapshotFaults::default(),
            nonsense_per_million: 0,
        }
    }

    /// Returns whether the retransmission server may answer with something that was not sent: garbage, or messages of a session that
    /// restarted under the same name.
    pub(crate) const fn may_answer_otherwise(&self) -> bool {
        self.answers.garbage_per_million > 0 || self.reset.is_some() || self.keeps_session
    }

    /// Returns whether the venue numbers its messages only once per day.
    fn has_one_session(&self) -> bool {
        self.reset.is_none() && self.restart_after == [0; MOST_RESTARTS]
    }
}

/// Returns how many answers, per million, do not deliver the requested messages in time.
const fn not_in_time(faults: AnswerFaults) -> u64 {
    let AnswerFaults { late_per_million, partial_per_million, other_range_per_million, .. } = faults;
    let (late, partial) = (late_per_million as u64, partial_per_million as u64);
    let unreadable = faults.unreadable_per_million as u64;
    late + partial + other_range_per_million as u64 + faults.other_session_per_million as u64 + unreadable
}

/// Maximum number of new sessions of a venue in one run.
pub(crate) const MOST_RESTARTS: usize = 3;

/// A venue of the market.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VenuePlan {
    /// Its kind.
    #[serde(with = "names::kind")]
    pub kind: VenueKind,
    /// Whether it has a line B.
    pub has_line_b: bool,
    /// Whether it has a retransmission server.
    pub has_retransmission: bool,
    /// Whether requests go over TCP. The answers go to a group (venues of Cboe and NYSE) or over the connection.
    #[serde(default)]
    pub requests_by_tcp: bool,
    /// Whether its snapshots are refreshes, which go to a group. Only for venues of NYSE that take requests over TCP.
    #[serde(default)]
    pub refreshes: bool,
    /// Whether it has a snapshot server.
    pub has_snapshots: bool,
    /// Lost answers of the retransmission server, per million.
    pub answers_lost_per_million: u32,
    /// Sends nothing, not even heartbeats, after this many of its messages, for this long in ns.
    pub silence: Option<(u64, u64)>,
    /// Starts a new session after each of these numbers of messages, counted over all sessions; ascending; 0: none.
    #[serde(default)]
    pub restart_after: [u64; MOST_RESTARTS],
    /// Restarts the same session after this many of its messages, following a silence of this length in ns.
    #[serde(default)]
    pub reset: Option<(u64, u64)>,
    /// Whether the restart of the numbers, after `reset` and after the night, is not announced by a message.
    #[serde(default)]
    pub is_unannounced: bool,
    /// Whether the day after the night continues the session of the day before.
    #[serde(default)]
    pub keeps_session: bool,
    /// Faults of the retransmission server's answers.
    #[serde(default)]
    pub answers: AnswerFaults,
    /// Faults of its snapshots.
    #[serde(default)]
    pub snapshots: SnapshotFaults,
    /// Nonsensical messages, per million regular ones.
    #[serde(default)]
    pub nonsense_per_million: u32,
}

impl VenuePlan {
    /// Returns whether its snapshots go to a group.
    fn has_refreshes(&self) -> bool {
        let has_group = SnapshotProtocol::by_group(self.kind.transport()).is_some();
        self.refreshes && self.has_snapshots && self.requests_by_tcp && has_group
    }
}

/// A period with a higher rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Burst {
    /// Start time, in ns since the start of the run.
    pub at_ns: u64,
    /// Duration, in ns.
    pub length_ns: u64,
    /// Messages per second in addition to the usual ones.
    pub rate: u64,
}

/// A client of the plant.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct ClientPlan {
    /// Length of its pause after every [`ClientPlan::pause_every`] records, in ns.
    pub pause_ns: u64,
    /// Number of records after which it leaves and returns; 0: it stays.
    pub leaves_after: u64,
    /// Whether it requests ranges and symbols that do not exist, and sends invalid requests.
    pub is_absurd: bool,
    /// The schemas that it subscribes to, by DBN's names; empty: `mbo`.
    #[serde(default)]
    pub schemas: Vec<String>,
    /// Number of symbols that it subscribes to, the first ones of the market; 0: all.
    #[serde(default)]
    pub symbols: u32,
    /// Whether it starts with live records instead of the first event.
    #[serde(default)]
    pub is_live: bool,
    /// Whether it requests a snapshot of the current state; only if `is_live`.
    #[serde(default)]
    pub has_snapshot: bool,
    /// The server's policy when it is slow: `warn`, `skip` or `conflate`.
    #[serde(default)]
    pub slow_reader: Option<String>,
    /// Whether it continues after its last record when its session ends.
    #[serde(default)]
    pub resumes: bool,
    /// Records between pauses; 0: 1,000.
    #[serde(default)]
    pub pause_every: u64,
}

impl ClientPlan {
    /// Returns whether it reads all orders from the beginning.
    pub(crate) fn is_plain(&self) -> bool {
        let Self { schemas, symbols, is_live, slow_reader, resumes, .. } = self;
        schemas.is_empty() && *symbols == 0 && !is_live && slow_reader.is_none() && !resumes
    }

    /// Returns the names of its schemas.
    pub(crate) fn schema_names(&self) -> Vec<String> {
        if self.schemas.is_empty() { vec!["mbo".to_owned()] } else { self.schemas.clone() }
    }
}

/// The plant's multicast output and its receivers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MulticastPlan {
    /// The schemas that are sent, by DBN's names.
    pub schemas: Vec<String>,
    /// Bytes of messages that remain available for retransmission.
    pub store_bytes: usize,
    /// Whether it has a retransmission server.
    pub has_retransmission: bool,
    /// Number of receivers.
    pub receivers: u32,
    /// Whether they request the session from its first message.
    pub from_beginning: bool,
}

/// The complete plan of a run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// The seed of everything that is drawn during the run.
    pub seed: u64,
    /// Period in which faults may happen, in ns.
    pub trouble_ns: u64,
    /// The venues.
    pub venues: Vec<VenuePlan>,
    /// Messages per second over all venues.
    pub rate: u64,
    /// Number of symbols of each venue.
    pub symbols: u32,
    /// The scheduling of the threads of all machines.
    pub schedule: Schedule,
    /// The assignment of tasks to the plant's threads.
    #[serde(with = "names::topology")]
    pub topology: Topology,
    /// How the plant's threads wait.
    #[serde(with = "names::wait")]
    pub wait: Wait,
    /// Capacity of the plant's ring in events.
    pub ring_events: usize,
    /// The plant's journal, if it has one.
    pub journal: Option<JournalPlan>,
    /// How the plant follows lines.
    pub arbiter: ArbiterPlan,
    /// Limits on what the plant keeps, waits for and retries.
    #[serde(default)]
    pub limits: LimitPlan,
    /// The end of the day.
    #[serde(default)]
    pub day: Option<DayPlan>,
    /// A night between two trading days. Other times of the plan do not include it.
    #[serde(default)]
    pub night: Option<NightPlan>,
    /// Delay of the plant's start, in ns.
    pub plant_starts_ns: u64,
    /// Clients.
    pub clients: Vec<ClientPlan>,
    /// The multicast output, if it has one.
    #[serde(default)]
    pub multicast: Option<MulticastPlan>,
    /// Buffer size of a line's socket in bytes.
    pub buffer_bytes: usize,
    /// Periods with a higher rate.
    pub bursts: Vec<Burst>,
    /// Bytes that may be queued for a client.
    pub queue_bytes: usize,
    /// The faults, sorted by time.
    pub faults: Vec<Fault>,
}

/// The plant's journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct JournalPlan {
    /// When it is synced.
    #[serde(with = "names::sync")]
    pub sync: SyncPolicy,
    /// Size of a segment in bytes.
    pub segment_bytes: u64,
    /// Inputs that may wait to be written.
    pub queue: usize,
    /// Interval between checkpoints.
    pub checkpoint_every: Option<Duration>,
}

/// How the plant follows lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ArbiterPlan {
    /// Time in which the other line may fill a gap, in ns.
    pub reorder_window_ns: u64,
    /// Longest wait for an answer, in ns.
    pub timeout_ns: u64,
    /// Timeouts of a request before a gap is given up.
    pub attempts: u32,
    /// Messages per request.
    pub messages_per_request: u16,
    /// Concurrent requests.
    pub requests_in_flight: u16,
    /// Time after which a line without packets counts as silent, in ns.
    pub silence_ns: u64,
}

/// A night: the venues close, and then start another trading day.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NightPlan {
    /// Start time, in ns since the start of the run.
    pub at_ns: u64,
    /// Duration, in ns.
    pub length_ns: u64,
}

/// The end of the day follows everything else, and the plant writes files of the day.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DayPlan {
    /// Time from the start of writing until the plant is killed, in ns; 0: it is not killed.
    pub killed_after_ns: u64,
    /// Whether its machine loses power too.
    pub loses_power: bool,
}

/// Limits on what the plant keeps, waits for and retries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LimitPlan {
    /// Maximum time for one gap, in ns.
    pub gap_ns: u64,
    /// Maximum length of a requested gap, in messages.
    pub gap_messages: u64,
    /// Bytes held after a gap.
    pub held_bytes: usize,
    /// Failed snapshot requests before the channel continues without a snapshot.
    pub snapshot_attempts: u32,
    /// Maximum duration of a snapshot, in ns.
    pub snapshot_ns: u64,
    /// Bytes of the journal to keep.
    pub keep_bytes: Option<u64>,
    /// Whether the plant ends if its journal cannot be written.
    pub ends_with_the_journal: bool,
}

impl Default for LimitPlan {
    fn default() -> Self {
        let (gap, snapshot) = (RetransmissionOptions::default(), SnapshotOptions::default());
        Self {
            gap_ns: gap.limit_ns,
            gap_messages: gap.limit_messages,
            held_bytes: ArbiterOptions::default().held_bytes,
            snapshot_attempts: snapshot.attempts,
            snapshot_ns: snapshot.timeout_ns,
            keep_bytes: None,
            ends_with_the_journal: false,
        }
    }
}

/// Serializes settings of other crates by name.
mod names {
    /// Implements the serialization of a type whose values have names.
    macro_rules! named {
        ($module:ident, $type:ty, $of_name:expr, $name:expr) => {
            pub(super) mod $module {
                use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

                use super::super::*;

                pub(in super::super) fn serialize<S: Serializer>(
                    value: &$type,
                    to: S,
                ) -> Result<S::Ok, S::Error> {
                    let name: fn(&$type) -> String = $name;
                    to.serialize_str(&name(value))
                }

                pub(in super::super) fn deserialize<'d, D: Deserializer<'d>>(
                    from: D,
                ) -> Result<$type, D::Error> {
                    let name = String::deserialize(from)?;
                    let of_name: fn(&str) -> Option<$type> = $of_name;
                    of_name(&name)
                        .ok_or_else(|| D::Error::custom(format!("'{name}' is no {}", stringify!($module))))
                }
            }
        };
    }

    named!(kind, VenueKind, VenueKind::by_key, |kind| kind.key().to_owned());
    named!(
        topology,
        Topology,
        |name| match name {
            "inline" => Some(Topology::Inline),
            "pipeline" => Some(Topology::Pipeline),
            _ => None,
        },
        |topology| match topology {
            Topology::Inline => "inline".to_owned(),
            Topology::Pipeline => "pipeline".to_owned(),
        }
    );
    named!(wait, Wait, |name| Wait::ALL.into_iter().find(|wait| wait.name() == name), |wait| wait
        .name()
        .to_owned());
    named!(
        sync,
        SyncPolicy,
        |name| match name {
            "never" => Some(SyncPolicy::Never),
            "always" => Some(SyncPolicy::Always),
            _ => name.strip_suffix(" ns")?.parse().ok().map(|ns| SyncPolicy::Every(Duration::from_nanos(ns))),
        },
        |sync| match sync {
            SyncPolicy::Never => "never".to_owned(),
            SyncPolicy::Always => "always".to_owned(),
            SyncPolicy::Every(interval) => format!("{} ns", interval.as_nanos()),
        }
    );
}

/// Schemas of clients that resume.
const RESUMED: [&str; 6] = ["mbo", "trades", "tbbo", "mbp-1", "mbp-10", "cmbp-1"];

/// The random draws of a plan.
struct Draw(Random);

impl Draw {
    /// Draws one of these.
    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        // Callers pass no empty list.
        of[self.0.below(of.len() as u32) as usize % of.len()]
    }

    /// Draws from `least` to `most`, with each power of ten equally likely.
    fn between(&mut self, least: u64, most: u64) -> u64 {
        let (mut low, high) = (least.max(1), most.max(1));
        let decades = (high / low).checked_ilog10().unwrap_or_default();
        for _ in 0..self.0.below(decades + 1) {
            low *= 10;
        }
        let high = (low.saturating_mul(10)).min(high).max(low);
        low + (self.0.bits() % (high - low + 1))
    }

    /// Draws the start of something of this length, so that it ends within `within_ns` if possible.
    fn begin(&mut self, within_ns: u64, length_ns: u64) -> u64 {
        self.0.bits() % within_ns.saturating_sub(length_ns).max(1)
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.0.below(100) < percent
    }

    /// Draws a rate per million, often 0.
    fn rarely(&mut self, most: u64) -> u32 {
        if self.chance(50) { 0 } else { self.between(10, most) as u32 }
    }

    /// Draws up to `MOST_RESTARTS` numbers, ascending.
    fn restarts(&mut self) -> [u64; MOST_RESTARTS] {
        let mut after = [0; MOST_RESTARTS];
        let count = 1 + self.0.below(MOST_RESTARTS as u32) as usize;
        after.iter_mut().take(count).for_each(|after| *after = self.between(10, 100_000));
        after.get_mut(..count).unwrap_or_default().sort_unstable();
        after
    }

    fn answers(&mut self) -> AnswerFaults {
        AnswerFaults {
            late_per_million: self.rarely(300_000),
            late_ns: self.between(MILLISECOND, 2 * SECOND),
            partial_per_million: self.rarely(200_000),
            more_per_million: self.rarely(100_000),
            other_range_per_million: self.rarely(100_000),
            other_session_per_million: self.rarely(100_000),
            garbage_per_million: if self.chance(80) { 0 } else { self.between(10, 100_000) as u32 },
            unreadable_per_million: 0,
            repeated_per_million: 0,
        }
    }

    fn snapshots(&mut self) -> SnapshotFaults {
        SnapshotFaults {
            ahead_per_million: self.rarely(200_000),
            other_session_per_million: self.rarely(100_000),
            unreadable_per_million: self.rarely(100_000),
            silent_per_million: self.rarely(100_000),
            endless_per_million: self.rarely(100_000),
        }
    }

    /// Draws when a venue restarts its session, and the length of the silence before. Numbers do not show their age, so a plant
    /// notices the restart only while they are lower than before: it needs the time of silence, following the last requests. The
    /// numbers stay lower for three times as long.
    fn reset(&mut self, plan: &Plan) -> (u64, u64) {
        let ArbiterPlan { silence_ns, attempts, timeout_ns, .. } = plan.arbiter;
        let needed_ns = 3 * (silence_ns + (u64::from(attempts) + 1) * timeout_ns);
        let in_bursts = plan.bursts.iter().map(|burst| burst.rate * burst.length_ns / SECOND).sum::<u64>();
        let least = plan.rate * needed_ns / SECOND / plan.venues.len().max(1) as u64 + in_bursts;
        (least + self.between(10, 10_000), self.between(10 * MILLISECOND, 8 * SECOND))
    }

    fn link(&mut self, until_ns: u64) -> LinkFaults {
        LinkFaults {
            lost_per_million: self.rarely(300_000),
            twice_per_million: self.rarely(100_000),
            late_per_million: self.rarely(100_000),
            late_ns: self.between(10_000, 50_000_000) as u32,
            cut_per_million: self.rarely(10_000),
            garbled_per_million: self.rarely(10_000),
            renamed_per_million: self.rarely(1_000),
            renamed_at: 2,
            least_ns: self.between(1_000, 5_000_000) as u32,
            jitter_ns: if self.chance(50) { 0 } else { self.between(1_000, 2_000_000) as u32 },
            out_until_ns: if self.chance(20) { until_ns } else { 0 },
            ..LinkFaults::default()
        }
    }

    fn disk(&mut self) -> DiskFaults {
        DiskFaults {
            write_ns: self.between(1_000, 50_000_000) as u32,
            sync_ns: self.between(10_000, 2_000_000_000) as u32,
            failed_syncs_per_million: self.rarely(500_000),
            failed_writes_per_million: self.rarely(500_000),
            failed_reads_per_million: if self.chance(80) { 0 } else { self.between(10, 10_000) as u32 },
            failed_names_per_million: 0,
            capacity: if self.chance(20) { self.between(10_000, 10_000_000) } else { u64::MAX },
        }
    }

    fn tcp(&mut self, until_ns: u64) -> TcpFaults {
        TcpFaults {
            window: self.between(64, 1 << 20) as u32,
            piece: self.between(1, 64 << 10) as u32,
            least_ns: self.between(1_000, 50_000_000) as u32,
            jitter_ns: self.between(1_000, 50_000_000) as u32,
            reset_per_million: self.rarely(10_000),
            out_until_ns: if self.chance(20) { until_ns } else { 0 },
        }
    }

    /// Draws a client with any schemas and any policy.
    fn client(&mut self) -> ClientPlan {
        const QUOTES: [&str; 6] = ["mbp-1", "mbp-1", "cmbp-1", "cmbp-1", "bbo-1s", "cbbo-1s"];
        const STATES: [&str; 6] = ["mbo", "mbp-1", "mbp-10", "bbo-1s", "cmbp-1", "cbbo-1s"];
        const OTHERS: [&str; 6] = ["trades", "tbbo", "ohlcv-1s", "status", "definition", "imbalance"];
        let schema = if self.chance(50) { self.one(&STATES) } else { self.one(&OTHERS) };
        let mut client = ClientPlan {
            pause_ns: if self.chance(50) { 0 } else { self.between(MILLISECOND, SECOND) },
            pause_every: self.between(10, 1_000),
            leaves_after: if self.chance(70) { 0 } else { self.between(10, 100_000) },
            schemas: vec![schema.to_owned()],
            symbols: if self.chance(60) { 0 } else { self.between(1, 20) as u32 },
            ..ClientPlan::default()
        };
        match self.0.below(6) {
            0 | 5 => {
                client.resumes = true;
                client.schemas = vec![self.one(&RESUMED).to_owned()];
                client.leaves_after = if self.chance(20) { 0 } else { self.between(10, 2_000) };
            }
            1 => {
                client.slow_reader = Some("conflate".to_owned());
                client.schemas = [self.one(&QUOTES), self.one(&["trades", "trades", "trades", "mbo"])]
                    .map(str::to_owned)
                    .to_vec();
                self.slow_down(&mut client);
            }
            2 => {
                client.slow_reader = Some("skip".to_owned());
                client.schemas = vec![self.one(&STATES).to_owned()];
                self.slow_down(&mut client);
            }
            3 => {
                client.schemas = vec![self.one(&STATES).to_owned()];
                (client.is_live, client.has_snapshot) = (true, true);
            }
            _ => client.is_live = self.chance(20),
        }
        client
    }

    /// Makes a client so slow that its queue fills up in many markets.
    fn slow_down(&mut self, client: &mut ClientPlan) {
        client.pause_every = self.between(10, 5_000);
        client.pause_ns = self.between(50 * MILLISECOND, 3 * SECOND);
        client.is_live = self.chance(30);
        client.leaves_after = 0;
    }

    fn what(&mut self, plan: &Plan, until_ns: u64) -> What {
        let venue = self.0.below(plan.venues.len() as u32) as usize;
        let has_journal = plan.journal.is_some();
        loop {
            return match self.0.below(12) {
                0 | 1 => {
                    let lines = 1 + u32::from(plan.venues.get(venue).is_some_and(|venue| venue.has_line_b));
                    let is_iex = plan.venues.get(venue).is_some_and(|venue| venue.kind == VenueKind::IexDeep);
                    let mut faults = self.link(until_ns);
                    // In the session name: after 8 bytes in IEX-TP, at the start in MoldUDP64.
                    faults.renamed_at = if is_iex { 8 } else { 2 };
                    What::Line { venue, line: self.0.below(lines) as usize, faults }
                }
                2 => What::LinesOut { venue },
                3 => What::Requests { venue, faults: self.link(until_ns) },
                4 => What::Tcp(self.tcp(until_ns)),
                5 if has_journal => What::Disk(self.disk()),
                6 => What::Kill,
                7 if has_journal => What::PowerOff,
                8 if has_journal => What::Rot { bits: self.between(1, 64) as u32, is_of_checkpoint: false },
                9 if has_journal => What::SecondPlant,
                10 => {
                    let ahead = self.between(MILLISECOND, 7_200 * SECOND) as i64;
                    What::Clock(if self.chance(50) { ahead } else { -ahead })
                }
                11 => {
                    let gains = self.between(10, 500_000) as i32;
                    What::Drift(self.one(&[gains, -gains, -1_000_000]))
                }
                _ => continue,
            };
        }
    }
}

impl Plan {
    /// Draws the plan of a seed.
    pub fn draw(seed: u64) -> Self {
        let mut draw = Draw(Random::new(seed ^ 0x706C_616E));
        let kinds = VenueKind::each(["nasdaq", "bx", "psx", "iex-deep", "memx"]);
        let mut kinds = kinds.to_vec();
        let venues = (0..=draw.0.below(3))
            .map(|_| {
                let kind = kinds.swap_remove(draw.0.below(kinds.len() as u32) as usize);
                VenuePlan {
                    has_line_b: draw.chance(80),
                    has_retransmission: draw.chance(80),
                    has_snapshots: kind == VenueKind::Nasdaq && draw.chance(70),
                    answers_lost_per_million: draw.rarely(300_000),
                    silence: draw
                        .chance(20)
                        .then(|| (draw.between(100, 100_000), draw.between(10 * MILLISECOND, 8 * SECOND))),
                    restart_after: if draw.chance(30) { draw.restarts() } else { [0; MOST_RESTARTS] },
                    nonsense_per_million: if draw.chance(80) { 0 } else { draw.between(10, 20_000) as u32 },
                    answers: if draw.chance(40) { draw.answers() } else { AnswerFaults::default() },
                    ..VenuePlan::new(kind)
                }
            })
            .collect();
        let journal = draw.chance(80).then(|| JournalPlan {
            sync: match draw.0.below(3) {
                0 => SyncPolicy::Never,
                1 => SyncPolicy::Always,
                _ => SyncPolicy::Every(Duration::from_nanos(draw.between(MILLISECOND, 5 * SECOND))),
            },
            segment_bytes: draw.between(16 << 10, 4 << 20),
            queue: draw.between(64, 16_384) as usize,
            checkpoint_every: draw
                .chance(70)
                .then(|| Duration::from_nanos(draw.between(100 * MILLISECOND, 10 * SECOND))),
        });
        let mut plan = Self {
            seed,
            trouble_ns: draw.between(2 * SECOND, 20 * SECOND),
            venues,
            rate: draw.between(100, 10_000),
            symbols: draw.between(1, 200) as u32,
            schedule: Schedule {
                preempted_per_million: draw.rarely(20_000),
                away_ns: draw.between(1_000, 20_000_000) as u32,
                wake_ns: draw.between(1, 200_000) as u32,
                spin_ns: draw.between(20_000, 500_000) as u32,
            },
            topology: draw.one(&[Topology::Inline, Topology::Pipeline]),
            wait: draw.one(&[Wait::Park, Wait::Park, Wait::Backoff, Wait::Yielding, Wait::BusySpin]),
            ring_events: draw.between(1_024, 1 << 17) as usize,
            journal,
            arbiter: ArbiterPlan {
                reorder_window_ns: draw.between(10_000, 50_000_000),
                timeout_ns: draw.between(2 * MILLISECOND, 200 * MILLISECOND),
                attempts: draw.between(1, 20) as u32,
                messages_per_request: draw.between(1, 5_000) as u16,
                requests_in_flight: draw.between(1, 64) as u16,
                silence_ns: draw.between(1_500 * MILLISECOND, 5 * SECOND),
            },
            limits: LimitPlan::default(),
            day: None,
            night: None,
            plant_starts_ns: if draw.chance(50) { 0 } else { draw.between(MILLISECOND, 3 * SECOND) },
            clients: (0..draw.0.below(5))
                .map(|_| ClientPlan {
                    pause_ns: if draw.chance(60) { 0 } else { draw.between(MILLISECOND, 2 * SECOND) },
                    leaves_after: if draw.chance(70) { 0 } else { draw.between(10, 100_000) },
                    is_absurd: draw.chance(15),
                    ..ClientPlan::default()
                })
                .collect(),
            multicast: None,
            buffer_bytes: draw.between(4_096, 4 << 20) as usize,
            bursts: Vec::new(),
            queue_bytes: draw.between(64 << 10, 16 << 20) as usize,
            faults: Vec::new(),
        };
        for _ in 0..draw.0.below(3) {
            let length_ns = draw.between(MILLISECOND, 200 * MILLISECOND);
            let at_ns = draw.0.bits() % plan.trouble_ns;
            plan.bursts.push(Burst { at_ns, length_ns, rate: draw.between(1_000, 200_000) });
        }
        for _ in 0..draw.0.below(8) {
            let length_ns = draw.between(MILLISECOND, 3 * SECOND);
            let at_ns = draw.begin(plan.trouble_ns, length_ns);
            let what = draw.what(&plan, at_ns + length_ns);
            plan.faults.push(Fault { at_ns, length_ns, what });
        }
        plan.faults.sort_by_key(|fault| fault.at_ns);
        // A plant whose clock jumps cannot know how long something has lasted. A plant that is still far behind when the numbers
        // restart cannot distinguish new messages from requested ones, because they have the same numbers in the same session.
        let is_quick = plan.recovery_ns() < 15 * SECOND;
        for venue in 0..plan.venues.len() {
            let reset = (draw.chance(20) && plan.has_true_clock()).then(|| draw.reset(&plan));
            let reset = reset.filter(|_| is_quick);
            if let (Some(venue), Some(reset)) = (plan.venues.get_mut(venue), reset) {
                venue.reset = Some(reset);
                // A session that has just begun has low numbers.
                venue.restart_after = [0; MOST_RESTARTS];
            }
        }
        plan.draw_outputs();
        plan.draw_limits();
        plan.draw_theme();
        plan.draw_requests_by_tcp();
        plan.draw_liars();
        plan.draw_days();
        plan
    }

    /// Adds, in some plans, what real venues and machines do between and within days: copies that arrive after a silence, numbers
    /// that restart without an announcement, a night, and processes that hang. Draws separately from the rest.
    fn draw_days(&mut self) {
        let mut draw = Draw(Random::new(self.seed ^ 0x6461_7973));
        if draw.chance(25) {
            self.draw_late_copies(&mut draw);
        }
        for venue in &mut self.venues {
            (venue.is_unannounced, venue.keeps_session) = (draw.chance(30), draw.chance(60));
        }
        if draw.chance(15) {
            for _ in 0..=draw.0.below(2) {
                let length_ns = draw.between(10 * MILLISECOND, 10 * SECOND);
                let what = draw.one(&[What::Hang, What::Hang, What::VenuesHang]);
                self.add_some_time(&mut draw, length_ns, what);
            }
        }
        // A thread that spins through the night costs the simulator time, and a wrong clock has another date.
        let is_quiet = self.wait == Wait::Park && self.has_true_clock();
        if self.day.is_none() && is_quiet && draw.chance(20) {
            let at_ns = draw.between(SECOND, self.trouble_ns.max(SECOND));
            self.night = Some(NightPlan { at_ns, length_ns: NIGHT_NS });
            // No venue sends the rest of a day on the next morning.
            let spans = |fault: &Fault| (fault.at_ns..fault.at_ns + fault.length_ns).contains(&at_ns);
            self.faults.retain(|fault| !(fault.what == What::VenuesHang && spans(fault)));
            // The next day's numbers are lower than these for a long time.
            self.venues.iter_mut().for_each(|venue| venue.reset = None);
        }
        self.faults.sort_by_key(|fault| fault.at_ns);
    }

    /// Lets lines repeat packets that are up to several silences old, and venues fall silent for as long. A session that lost its
    /// end, and gets parts of it from late copies, delays the next session; such copies are less late.
    fn draw_late_copies(&mut self, draw: &mut Draw) {
        let silence_ns = self.arbiter.silence_ns;
        for venue in 0..self.venues.len() {
            let has_one_session = self.venues.get(venue).is_some_and(VenuePlan::has_one_session);
            let most_ns = if has_one_session { 3 * silence_ns } else { silence_ns / 2 };
            let copied_late_ns = draw.between(MILLISECOND, most_ns);
            let copied_late_per_million = draw.between(100, 50_000) as u32;
            let faults = LinkFaults { copied_late_per_million, copied_late_ns, ..LinkFaults::default() };
            for line in 0..2 {
                self.faults.push(Fault {
                    at_ns: 0,
                    length_ns: self.trouble_ns,
                    what: What::Line { venue, line, faults },
                });
            }
            let Some(venue) = self.venues.get_mut(venue) else { return };
            if draw.chance(60) && !venue.requests_by_tcp {
                let length_ns = silence_ns + draw.between(MILLISECOND, silence_ns);
                venue.silence = Some((draw.between(100, 20_000), length_ns));
            }
        }
    }

    /// Adds, in some plans, servers whose answers and snapshots look right but are wrong, and lines that need them. Draws separately
    /// from the rest, so the other plans stay unchanged.
    fn draw_liars(&mut self) {
        let mut draw = Draw(Random::new(self.seed ^ 0x6C69_6172));
        if !draw.chance(20) {
            return;
        }
        for place in 0..self.venues.len() {
            let Some(venue) = self.venues.get_mut(place) else { return };
            venue.has_snapshots |= draw.chance(60);
            venue.snapshots = draw.snapshots();
            venue.answers.unreadable_per_million = draw.rarely(200_000);
            let length_ns = draw.between(10 * MILLISECOND, SECOND);
            if draw.chance(60) {
                self.add_some_time(&mut draw, length_ns, What::LinesOut { venue: place });
            }
            let Some(venue) = self.venues.get_mut(place) else { return };
            venue.answers.repeated_per_million = draw.rarely(200_000);
        }
        self.faults.sort_by_key(|fault| fault.at_ns);
    }

    /// Adds, in some plans, a venue of Cboe, NYSE, London or MEMX that takes requests over TCP and whose lines lose packets. Draws
    /// separately, so that plans without it stay unchanged.
    fn draw_requests_by_tcp(&mut self) {
        let mut draw = Draw(Random::new(self.seed ^ 0x7463_7071));
        if !draw.chance(15) {
            return;
        }
        let venue = self.venues.len();
        let mut kinds = VenueKind::each(["byx", "edgx", "nyse", "arca", "texas", "lse", "memx"]).to_vec();
        // Two channels of one venue with the same symbols would fill one set of books.
        kinds.retain(|kind| self.venues.iter().all(|venue| venue.kind != *kind));
        let kind = draw.one(&kinds);
        self.venues.push(VenuePlan {
            has_line_b: draw.chance(80),
            has_retransmission: true,
            requests_by_tcp: true,
            refreshes: true,
            has_snapshots: draw.chance(50),
            answers_lost_per_million: draw.rarely(300_000),
            answers: if draw.chance(40) {
                AnswerFaults { garbage_per_million: 0, ..draw.answers() }
            } else {
                AnswerFaults::default()
            },
            ..VenuePlan::new(kind)
        });
        for line in 0..2 {
            let faults =
                LinkFaults { lost_per_million: draw.between(1_000, 200_000) as u32, ..LinkFaults::default() };
            let length_ns = draw.between(100 * MILLISECOND, 5 * SECOND);
            self.add_some_time(&mut draw, length_ns, What::Line { venue, line, faults });
        }
        if draw.chance(30) {
            let length_ns = draw.between(10 * MILLISECOND, 2 * SECOND);
            let faults = LinkFaults { lost_per_million: 300_000, ..LinkFaults::default() };
            self.add_some_time(&mut draw, length_ns, What::Requests { venue, faults });
        }
        if draw.chance(30) {
            let faults =
                TcpFaults { reset_per_million: draw.between(1_000, 100_000) as u32, ..TcpFaults::default() };
            let length_ns = draw.between(100 * MILLISECOND, 5 * SECOND);
            self.add_some_time(&mut draw, length_ns, What::Tcp(faults));
        }
        self.faults.sort_by_key(|fault| fault.at_ns);
    }

    /// Combines, in one plan of four, rare conditions, so that a recovery that needs several of them is reached by some plans.
    fn draw_theme(&mut self) {
        let mut draw = Draw(Random::new(self.seed ^ 0x7468_656D));
        if !draw.chance(25) {
            return;
        }
        match draw.0.below(5) {
            0 => self.draw_rot(&mut draw),
            1 => self.draw_late_lines(&mut draw),
            2 => self.draw_snapshots(&mut draw),
            3 => self.draw_misnumbered(&mut draw),
            _ => self.draw_clients_over_kills(&mut draw),
        }
        self.faults.sort_by_key(|fault| fault.at_ns);
    }

    /// Adds a fault at a random time.
    fn add_some_time(&mut self, draw: &mut Draw, length_ns: u64, what: What) {
        let at_ns = draw.begin(self.trouble_ns, length_ns);
        self.faults.push(Fault { at_ns, length_ns, what });
    }

    /// Flips bits in the checkpoint that a start would use, and in the records that it replaces.
    fn draw_rot(&mut self, draw: &mut Draw) {
        self.draw_checkpoints(draw);
        for _ in 0..=draw.0.below(2) {
            let (length_ns, many) = (draw.between(MILLISECOND, SECOND), draw.between(1, 64) as u32);
            let rot = What::Rot { bits: many, is_of_checkpoint: true };
            let what = draw.one(&[rot, What::LostPages { pages: many }]);
            self.add_some_time(draw, length_ns, what);
        }
        // Many flipped bits make a checkpoint unreadable. A few may leave it readable but wrong.
        if draw.chance(70) {
            for _ in 0..4 + draw.0.below(5) {
                let length_ns = draw.between(MILLISECOND, 100 * MILLISECOND);
                let bits = 1 + draw.0.below(5);
                self.add_some_time(draw, length_ns, What::Rot { bits, is_of_checkpoint: true });
            }
        }
    }

    /// Draws a journal with frequent checkpoints.
    fn draw_checkpoints(&mut self, draw: &mut Draw) {
        let every = Duration::from_nanos(draw.between(100 * MILLISECOND, SECOND));
        let sync = draw.one(&[SyncPolicy::Always, SyncPolicy::Every(Duration::from_millis(10))]);
        let usual = JournalPlan { sync, segment_bytes: 4 << 20, queue: 4_096, checkpoint_every: None };
        self.journal = Some(JournalPlan { checkpoint_every: Some(every), ..self.journal.unwrap_or(usual) });
    }

    /// Delays packets on both lines by more than the reorder window. None is lost, and no server has them.
    fn draw_late_lines(&mut self, draw: &mut Draw) {
        self.arbiter.reorder_window_ns = draw.between(10_000, MILLISECOND);
        for venue in 0..self.venues.len() {
            if let Some(of_venue) = self.venues.get_mut(venue) {
                (of_venue.has_retransmission, of_venue.has_snapshots) = (false, false);
            }
            let late_per_million = draw.between(1_000, 300_000) as u32;
            let late_ns = draw.between(2 * MILLISECOND, 200 * MILLISECOND) as u32;
            let faults = LinkFaults { late_per_million, late_ns, ..LinkFaults::default() };
            let length_ns = draw.between(SECOND, self.trouble_ns);
            let at_ns = draw.begin(self.trouble_ns, length_ns);
            for line in 0..2 {
                self.faults.push(Fault { at_ns, length_ns, what: What::Line { venue, line, faults } });
            }
        }
    }

    /// Lets damaged packets claim numbers far ahead, even when lines have just become active again.
    fn draw_misnumbered(&mut self, draw: &mut Draw) {
        for venue in 0..self.venues.len() {
            let is_iex = self.venues.get(venue).is_some_and(|venue| venue.kind == VenueKind::IexDeep);
            // The byte of the number that counts 65,536s. IEX-TP is little-endian, the others big-endian.
            let misnumbered_at = if is_iex { 26 } else { 15 };
            let misnumbered_per_million = draw.between(1_000, 100_000) as u32;
            let faults = LinkFaults { misnumbered_per_million, misnumbered_at, ..LinkFaults::default() };
            let length_ns = self.trouble_ns;
            for line in 0..2 {
                self.faults.push(Fault { at_ns: 0, length_ns, what: What::Line { venue, line, faults } });
            }
            let length_ns = draw.between(100 * MILLISECOND, 5 * SECOND);
            self.add_some_time(draw, length_ns, What::LinesOut { venue });
        }
    }

    /// Lets snapshots be needed repeatedly and fail sometimes, and kills the plant in between.
    fn draw_snapshots(&mut self, draw: &mut Draw) {
        self.draw_checkpoints(draw);
        self.limits.snapshot_attempts = draw.between(1, 4) as u32;
        let Some(venue) = self.venues.iter().position(|venue| venue.kind == VenueKind::Nasdaq) else {
            return;
        };
        if let Some(of_venue) = self.venues.get_mut(venue) {
            (of_venue.has_retransmission, of_venue.has_snapshots) = (false, true);
        }
        for _ in 0..=draw.0.below(3) {
            let length_ns = draw.between(10 * MILLISECOND, SECOND);
            self.add_some_time(draw, length_ns, What::LinesOut { venue });
            let length_ns = draw.between(10 * MILLISECOND, 5 * SECOND);
            self.add_some_time(draw, length_ns, What::SnapshotsOut { venue });
            let length_ns = draw.between(MILLISECOND, SECOND);
            self.add_some_time(draw, length_ns, What::Kill);
        }
    }

    /// Draws clients that resume, skip and conflate, small queues, and kills.
    fn draw_clients_over_kills(&mut self, draw: &mut Draw) {
        self.draw_checkpoints(draw);
        self.queue_bytes = draw.between(64 << 10, 512 << 10) as usize;
        for _ in 0..2 {
            let schema = draw.one(&RESUMED).to_owned();
            let leaves_after = draw.between(100, 20_000);
            let schemas = vec![schema];
            self.clients.push(ClientPlan { resumes: true, schemas, leaves_after, ..ClientPlan::default() });
            self.clients.push(draw.client());
        }
        for _ in 0..=draw.0.below(3) {
            let length_ns = draw.between(MILLISECOND, SECOND);
            self.add_some_time(draw, length_ns, What::Kill);
        }
    }

    /// Draws limits, and faults that reach them, separately from the rest.
    fn draw_limits(&mut self) {
        let mut draw = Draw(Random::new(self.seed ^ 0x6C69_6D69));
        let usual = LimitPlan::default();
        let limits = &mut self.limits;
        limits.gap_ns =
            if draw.chance(80) { usual.gap_ns } else { draw.between(10 * MILLISECOND, 10 * SECOND) };
        limits.gap_messages = if draw.chance(80) { usual.gap_messages } else { draw.between(1, 100_000) };
        limits.held_bytes =
            if draw.chance(80) { usual.held_bytes } else { draw.between(1 << 10, 16 << 20) as usize };
        limits.snapshot_attempts = draw.between(1, 9) as u32;
        limits.snapshot_ns = draw.between(100 * MILLISECOND, usual.snapshot_ns);
        if let Some(journal) = &self.journal {
            // Without checkpoints, no start is possible once the first segment has been removed.
            let keeps_all = journal.checkpoint_every.is_none() || draw.chance(70);
            limits.keep_bytes = (!keeps_all).then(|| journal.segment_bytes * draw.between(2, 50));
            limits.ends_with_the_journal = draw.chance(30);
        }
        for fault in &mut self.faults {
            if let What::Line { faults, .. } = &mut fault.what {
                faults.padded_per_million = draw.rarely(10_000);
                // In IEX-TP: the name of the protocol instead of the session.
                if faults.renamed_at == 8 && draw.chance(30) {
                    faults.renamed_at = 2;
                }
            }
            if let What::Disk(faults) = &mut fault.what {
                faults.failed_names_per_million = draw.rarely(300_000);
            }
        }
        for venue in 0..self.venues.len() {
            if self.venues.get(venue).is_some_and(|venue| venue.has_snapshots) && draw.chance(30) {
                let length_ns = draw.between(MILLISECOND, 10 * SECOND);
                self.add_some_time(&mut draw, length_ns, What::SnapshotsOut { venue });
            }
        }
        self.faults.sort_by_key(|fault| fault.at_ns);
        // A thread that spins through the minutes before midnight costs the simulator time.
        let has_right_clock = !self.faults.iter().any(|fault| matches!(fault.what, What::Clock(_)));
        if self.journal.is_some() && has_right_clock && self.wait == Wait::Park && draw.chance(20) {
            let killed_after_ns = if draw.chance(50) { 0 } else { draw.between(1_000, 100 * MILLISECOND) };
            self.day = Some(DayPlan { killed_after_ns, loses_power: draw.chance(50) });
        }
    }

    /// Returns time 0 of the simulation's clock, in ns since the epoch. If the day ends, it is long enough before midnight for
    /// everything else to be over.
    pub(crate) fn epoch_ns(&self) -> u64 {
        /// 2025-11-14 09:30 in New York.
        const OPEN_NS: u64 = 1_763_130_600_000_000_000;
        match (self.day, self.night) {
            (Some(_), _) => MIDNIGHT_NS - 600 * SECOND,
            // The date changes early in the night.
            (None, Some(night)) => MIDNIGHT_NS - night.at_ns - 60 * SECOND,
            (None, None) => OPEN_NS,
        }
    }

    /// Converts a time of the plan to simulation time: times after the night move by its length.
    pub(crate) fn with_night(&self, at_ns: u64) -> u64 {
        self.night.filter(|night| night.at_ns < at_ns).map_or(at_ns, |night| at_ns + night.length_ns)
    }

    /// Returns the longest delay of a late copy, in ns.
    pub(crate) fn latest_copy_ns(&self) -> u64 {
        let late = |what: What| match what {
            What::Line { faults, .. } if faults.copied_late_per_million > 0 => faults.copied_late_ns,
            _ => 0,
        };
        self.faults.iter().map(|fault| late(fault.what)).max().unwrap_or_default()
    }

    /// Returns whether a venue numbers its messages only once.
    pub(crate) fn has_one_session(&self, venue: usize) -> bool {
        self.night.is_none() && self.venues.get(venue).is_some_and(VenuePlan::has_one_session)
    }

    /// Returns the faults by simulation time.
    pub(crate) fn timed_faults(&self) -> Vec<Fault> {
        let timed = |fault: &Fault| {
            let (at_ns, end_ns) =
                (self.with_night(fault.at_ns), self.with_night(fault.at_ns + fault.length_ns));
            let mut what = fault.what;
            match &mut what {
                What::Line { faults, .. } | What::Requests { faults, .. } | What::Group { faults, .. } => {
                    faults.out_until_ns = self.with_night(faults.out_until_ns);
                }
                What::Tcp(faults) => faults.out_until_ns = self.with_night(faults.out_until_ns),
                _ => {}
            }
            Fault { at_ns, length_ns: end_ns - at_ns, what }
        };
        self.faults.iter().map(timed).collect()
    }

    /// Adds clients of all kinds in some plans. Draws separately, so that seeds without them stay unchanged.
    fn draw_outputs(&mut self) {
        let mut draw = Draw(Random::new(self.seed ^ 0x6F75_7470));
        if draw.chance(60) {
            for _ in 0..=draw.0.below(3) {
                self.clients.push(draw.client());
            }
        }
        if draw.chance(35) {
            self.draw_multicast(&mut draw);
        }
        // Connection buffers are larger than many queues. The server's handling of slow clients shows only if they are small.
        if draw.chance(80) && self.clients.iter().any(|client| client.slow_reader.is_some()) {
            self.queue_bytes = draw.between(64 << 10, 512 << 10) as usize;
            let window = draw.between(4 << 10, 64 << 10) as u32;
            let faults = TcpFaults { window, ..TcpFaults::default() };
            self.faults.insert(0, Fault { at_ns: 0, length_ns: self.trouble_ns, what: What::Tcp(faults) });
        }
    }

    fn draw_multicast(&mut self, draw: &mut Draw) {
        let schemas = [&["mbo", "cmbp-1"][..], &["trades"], &["mbo"], &["mbp-1", "trades"]];
        self.multicast = Some(MulticastPlan {
            schemas: draw.one(&schemas).iter().map(|schema| (*schema).to_owned()).collect(),
            store_bytes: draw.between(256 << 10, 256 << 20) as usize,
            has_retransmission: draw.chance(80),
            receivers: 1 + draw.0.below(2),
            from_beginning: draw.chance(30),
        });
        for _ in 0..draw.0.below(4) {
            let length_ns = draw.between(MILLISECOND, 3 * SECOND);
            let at_ns = draw.begin(self.trouble_ns, length_ns);
            let of_requests = draw.chance(30);
            // A message has no checksum, and an answer is not checked against anything.
            let faults = LinkFaults {
                garbled_per_million: 0,
                renamed_per_million: 0,
                cut_per_million: 0,
                ..draw.link(at_ns + length_ns)
            };
            self.faults.push(Fault { at_ns, length_ns, what: What::Group { of_requests, faults } });
        }
        self.faults.sort_by_key(|fault| fault.at_ns);
    }

    /// Returns whether the plant's time of day is always correct.
    pub(crate) fn has_true_clock(&self) -> bool {
        !self.faults.iter().any(|fault| matches!(fault.what, What::Clock(_) | What::Drift(_)))
    }

    /// Returns whether the plant may end by itself: because it must journal and its disk fails, or because an output cannot read the journal.
    pub(crate) fn ends_by_itself(&self) -> bool {
        self.limits.ends_with_the_journal && self.has_bad_disk() || self.has_unreadable_disk()
    }

    /// Returns whether reads of the plant's disk sometimes fail.
    pub(crate) fn has_unreadable_disk(&self) -> bool {
        let fails = |what: What| matches!(what, What::Disk(faults) if faults.failed_reads_per_million > 0);
        self.faults.iter().any(|fault| fails(fault.what))
    }

    /// Returns whether a restarted plant has everything that it published: its disk accepted and kept all of it.
    pub(crate) fn keeps_all(&self) -> bool {
        let syncs_always = self.journal.is_some_and(|journal| journal.sync == SyncPolicy::Always);
        // A plant that starts on another day begins another journal.
        let begins_anew =
            self.night.is_some() && self.faults.iter().any(|fault| fault.what.stops_the_plant());
        !begins_anew
            && !self.faults.iter().any(|fault| match fault.what {
                What::Disk(_) | What::Rot { .. } | What::LostPages { .. } => true,
                What::PowerOff => !syncs_always,
                _ => false,
            })
    }

    /// Returns whether a replay has everything that clients of the same run of the plant have received.
    pub(crate) fn keeps_the_past(&self) -> bool {
        !self.has_bad_disk() && self.limits.keep_bytes.is_none()
    }

    /// Returns whether the past may be lost: bits may be flipped in the only checkpoint from which a shortened journal can be read.
    pub(crate) fn may_lose_the_past(&self) -> bool {
        self.limits.keep_bytes.is_some() && self.has_damage()
    }

    /// Returns whether the disk has changed or lost data, which a replay skips.
    pub(crate) fn has_damage(&self) -> bool {
        let damages = |what: What| matches!(what, What::Rot { .. } | What::LostPages { .. });
        self.faults.iter().any(|fault| damages(fault.what))
    }

    /// Returns whether the disk has rejected data of the plant, which a replay may lack.
    pub(crate) fn has_bad_disk(&self) -> bool {
        self.faults.iter().any(|fault| matches!(fault.what, What::Disk(_)))
    }

    /// Returns the time in ns in which everything must recover after the last fault: ten seconds, plus the time of requests for all
    /// messages if answers are lost, few requests may be in flight, or few may be sent per second.
    pub(crate) fn recovery_ns(&self) -> u64 {
        /// Messages in an answer of one datagram.
        const IN_AN_ANSWER: u64 = 16;
        let in_bursts = self.bursts.iter().map(|burst| burst.rate * burst.length_ns / SECOND).sum::<u64>();
        let messages = self.rate * (self.trouble_ns / SECOND + 1) + in_bursts;
        let in_an_answer = IN_AN_ANSWER.min(u64::from(self.arbiter.messages_per_request));
        let requests = messages / in_an_answer / u64::from(self.arbiter.requests_in_flight);
        let lost = self
            .venues
            .iter()
            .map(|venue| u64::from(venue.answers_lost_per_million) + not_in_time(venue.answers))
            .max()
            .unwrap_or_default();
        let silences = self.venues.iter().flat_map(|venue| [venue.silence, venue.reset]);
        let silence = silences.flatten().map(|(_, length_ns)| length_ns).max();
        // Over TCP, the number of requests per second is limited.
        let by_tcp = self.venues.iter().filter(|venue| venue.requests_by_tcp);
        let throttled = by_tcp.filter_map(|venue| Self::login(venue.kind)).map(|login| {
            let protocol = login.protocol();
            let in_a_request = self.arbiter.messages_per_request.min(protocol.most_messages());
            messages * SECOND / u64::from(in_a_request) / u64::from(protocol.per_second())
        });
        // An answer with an unreadable message delivers nothing, and is requested until all attempts are used.
        let nonsense = self.venues.iter().map(|venue| u64::from(venue.nonsense_per_million)).max();
        let in_vain = messages * nonsense.unwrap_or_default() / 1_000_000;
        let in_turn = in_vain.div_ceil(u64::from(self.arbiter.requests_in_flight));
        10 * SECOND
            + silence.unwrap_or_default()
            + in_turn * u64::from(self.arbiter.attempts) * self.arbiter.timeout_ns
            + throttled.max().unwrap_or_default()
            + requests * (MILLISECOND + 3 * lost * self.arbiter.timeout_ns / 1_000_000)
    }

    /// Returns the address of a venue's line.
    pub(crate) fn line(venue: usize, line: usize) -> SocketAddrV4 {
        SocketAddrV4::new(Ipv4Addr::new(239, 1, venue as u8 + 1, line as u8 + 1), 30_000)
    }

    pub(crate) fn retransmission(venue: usize) -> SocketAddr {
        (VENUES_HOST, 31_000 + venue as u16).into()
    }

    /// Returns the group for the answers of a venue that takes requests over TCP.
    pub(crate) fn answers_group(venue: usize) -> SocketAddrV4 {
        SocketAddrV4::new(Ipv4Addr::new(239, 3, venue as u8 + 1, 1), 33_000)
    }

    /// Returns the group for a venue's refreshes.
    fn refreshes_group(venue: usize) -> SocketAddrV4 {
        SocketAddrV4::new(Ipv4Addr::new(239, 3, venue as u8 + 1, 2), 33_000)
    }

    /// Returns the venue whose answers to requests over TCP go to this address.
    pub(crate) fn answered_to(to: SocketAddr) -> Option<usize> {
        (0..8).find(|venue| SocketAddr::V4(Self::answers_group(*venue)) == to)
    }

    /// Returns the login for requests over TCP at a venue of this kind.
    fn login(kind: VenueKind) -> Option<RequestLogin> {
        let fields = LoginFields {
            sub_id: "0001",
            user: "FIRM",
            password: "secret",
            source: "FIRM",
            product: 1,
            channel: 2,
        };
        RequestLogin::new(RequestProtocol::of(kind.transport())?, &fields)
    }

    /// Returns the venue whose retransmission server sends from this address.
    pub(crate) fn answers_of(from: SocketAddr) -> Option<usize> {
        (0..8).find(|venue| Self::retransmission(*venue) == from)
    }

    pub(crate) fn snapshots(venue: usize) -> SocketAddr {
        (VENUES_HOST, 32_000 + venue as u16).into()
    }

    /// Returns the group of the multicast output.
    pub(crate) const fn multicast_group() -> SocketAddrV4 {
        SocketAddrV4::new(Ipv4Addr::new(239, 2, 0, 1), 34_000)
    }

    /// Returns the address of the multicast output's retransmission server.
    pub(crate) fn multicast_requests() -> SocketAddr {
        (PLANT_HOST, 34_001).into()
    }

    /// Returns the configuration of the venues.
    pub(crate) fn venues(&self) -> Config {
        let venues = self.venues.iter().enumerate().map(|(place, one)| {
            let lines = (0..=usize::from(one.has_line_b)).map(|line| Self::line(place, line)).collect();
            let mut venue = Venue::new(&format!("{:?}", one.kind), one.kind, lines);
            venue.live.line_b = one.has_line_b;
            venue.retransmission = one.has_retransmission.then(|| Self::retransmission(place));
            venue.retransmission_by_tcp = one.requests_by_tcp;
            venue.retransmission_group = one.requests_by_tcp.then(|| Self::answers_group(place));
            venue.retransmission_lost_per_million = one.answers_lost_per_million;
            venue.retransmission_faults = one.answers;
            let silences = one.silence.map(|(after, length_ns)| Silence { after, length_ns });
            venue.live.silences = silences.into_iter().collect();
            venue.live.restart_after = one.restart_after.into_iter().filter(|after| *after > 0).collect();
            let resets = one.reset.map(|(after, length_ns)| Silence { after, length_ns });
            venue.live.resets = resets.into_iter().collect();
            (venue.live.announces, venue.live.keeps_session) = (!one.is_unannounced, one.keeps_session);
            venue.live.nonsense_per_million = one.nonsense_per_million;
            venue.snapshot = one.has_snapshots.then(|| Self::snapshots(place));
            venue.snapshot_group = one.has_refreshes().then(|| Self::refreshes_group(place));
            venue.snapshot_faults = one.snapshots;
            venue
        });
        let mut config = Config::new(venues.collect());
        config.seed = self.seed;
        config.symbols = self.symbols;
        config.rate = self.rate;
        config.store_bytes = 64 << 20;
        let burst = |burst: &Burst| LiveBurst {
            at_ns: burst.at_ns,
            length_ns: burst.length_ns,
            messages_per_second: burst.rate,
        };
        config.bursts = self.bursts.iter().map(burst).collect();
        let night = |night: NightPlan| Night { at_ns: night.at_ns, length_ns: night.length_ns };
        config.nights = self.night.into_iter().map(night).collect();
        config
    }

    /// Returns whether a venue answers over the connection that carries the requests.
    pub(crate) fn answers_over_tcp(&self, place: usize) -> bool {
        let by_tcp = self.venues.get(place).filter(|one| one.has_retransmission && one.requests_by_tcp);
        let login = by_tcp.and_then(|one| Self::login(one.kind));
        login.is_some_and(|login| !login.protocol().answers_to_group())
    }

    /// Returns the options of the plant.
    pub(crate) fn plant(&self) -> PlantOptions {
        let venues = self.venues.iter().enumerate().map(|(place, one)| VenueOptions {
            orders: 1 << 10,
            name: format!("{:?}", one.kind),
            application: application(one.kind),
            publisher: one.kind.publisher(),
            lines: (0..=usize::from(one.has_line_b)).map(|line| Self::line(place, line).into()).collect(),
            retransmission: one.has_retransmission.then(|| {
                let address = Self::retransmission(place);
                let login = Self::login(one.kind).filter(|_| one.requests_by_tcp);
                let group = |login: RequestLogin| {
                    login.protocol().answers_to_group().then(|| Self::answers_group(place).into())
                };
                let by_tcp =
                    login.map(|login| RetransmissionServer::Tcp { address, group: group(login), login });
                by_tcp.unwrap_or(RetransmissionServer::Udp(address))
            }),
            snapshot: one.has_snapshots.then(|| {
                let address = Self::snapshots(place);
                let login = Self::login(one.kind).filter(|_| one.has_refreshes());
                let group = Self::refreshes_group(place).into();
                let by_group = login.map(|login| SnapshotServer::Group { address, group, login });
                by_group.unwrap_or(SnapshotServer::Tcp(address))
            }),
            login: SnapshotLogin::default(),
            arbiter: ArbiterOptions {
                reorder_window_ns: self.arbiter.reorder_window_ns,
                retransmission: Some(RetransmissionOptions {
                    attempts: self.arbiter.attempts,
                    timeout_ns: self.arbiter.timeout_ns,
                    messages_per_request: self.arbiter.messages_per_request,
                    requests_in_flight: self.arbiter.requests_in_flight,
                    limit_ns: self.limits.gap_ns,
                    limit_messages: self.limits.gap_messages,
                    answers_name_oldest: false,
                    answers_in_parts: false,
                }),
                held_bytes: self.limits.held_bytes,
                silence_ns: self.arbiter.silence_ns,
                ..ArbiterOptions::default()
            },
            snapshots: SnapshotOptions {
                attempts: self.limits.snapshot_attempts,
                timeout_ns: self.limits.snapshot_ns,
                ..SnapshotOptions::default()
            },
        });
        let mut options = PlantOptions {
            venues: venues.collect(),
            topology: self.topology,
            wait: self.wait,
            ring_events: self.ring_events,
            least_orders: 1 << 10,
            journal: self.journal.map(|plan| JournalSetting {
                options: JournalOptions {
                    segment_bytes: plan.segment_bytes,
                    keep_bytes: self.limits.keep_bytes,
                },
                sync: plan.sync,
                when_failing: if self.limits.ends_with_the_journal {
                    WhenFailing::Stop
                } else {
                    WhenFailing::GoOn
                },
                queue: plan.queue,
                checkpoint_every: plan.checkpoint_every,
                ..JournalSetting::new("/journal")
            }),
            ..PlantOptions::default()
        };
        options.receive.buffers = 4_096;
        options.receive.buffer_bytes = Some(self.buffer_bytes);
        options
    }
}

/// Returns the protocol of a kind of venue.
pub(crate) fn application(kind: VenueKind) -> Application {
    Application::of_publisher(kind.publisher()).unwrap_or(Application::TotalViewItch50)
}
