#![doc = include_str!("../README.md")]

mod clients;
mod counters;
mod coverage;
mod day;
mod group;
mod kernel;
mod market;
mod multicast;
mod oracle;
mod orders;
mod plan;
#[cfg_attr(not(tapeworks_bug), path = "not_planted.rs")]
mod planted;
mod readiness;
mod recorder;
mod regression;
mod scenario;
mod session;
mod sessions;
mod shared;
mod shrink;
mod states;
mod status;
mod timeline;
mod trace;
mod world;

pub use coverage::{Reached, facts};
pub use kernel::disk::{
    Crash, DiskFaults, PowerLoss, SimFile, crash_after_calls, disk_calls, disk_failures, files_of, flip_bits,
    set_disk_faults, set_power_loss,
};
pub use kernel::network::{
    LinkCounts, LinkFaults, Step, Tap, TcpFaults, link_counts, set_link, set_refusing, set_tap, set_tcp,
};
pub use kernel::{
    Ended, HostId, ProcessId, RunOptions, Schedule, Simulated, add_host, below, clock_ahead_ns, hang,
    has_ended, kill, note, now_ns, panic_of, power_off, power_on, run, set_clock, start,
};
pub use market::{Counts, Outcome, simulate};
pub use orders::{
    OrderCrash, OrderFault, OrderOutcome, OrderPlan, OrderWhat, Power, VenueProtocol, shrink_orders,
    simulate_orders,
};
pub use plan::{
    ArbiterPlan, Burst, ClientPlan, DayPlan, Fault, JournalPlan, LimitPlan, MulticastPlan, NightPlan, Plan,
    VenuePlan, What,
};
pub use planted::{search_bugs, switch_on};
pub use regression::{Regression, Saved};
pub use scenario::Scenario;
pub use shrink::shrink;
pub use timeline::{Timeline, simulate_with_timeline};
pub use trace::Note;
