//! Processor events, where the kernel lets a program count them.
//!
//! Virtual machines often do not. The lab then reports this, and counts instructions with callgrind on request.

use std::io;

use perf_event::events::Hardware;
use perf_event::{Builder, Counter, Group};
use serde::{Deserialize, Serialize};

/// Events per item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Events {
    /// Cycles.
    pub cycles: Option<f64>,
    /// Instructions.
    pub instructions: Option<f64>,
    /// Mispredicted branches.
    pub branch_misses: Option<f64>,
    /// Misses of the last-level cache.
    pub cache_misses: Option<f64>,
    /// Cycles in which the back end was stalled.
    pub stalled: Option<f64>,
    /// Whether callgrind counted instead of the processor.
    pub by_callgrind: bool,
}

/// Counters of the calling thread.
pub struct Counters {
    group: Group,
    instructions: Counter,
    cycles: Option<Counter>,
    branch_misses: Option<Counter>,
    cache_misses: Option<Counter>,
    stalled: Option<Counter>,
}

impl core::fmt::Debug for Counters {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_struct("Counters").finish_non_exhaustive()
    }
}

impl Counters {
    /// Opens counters for the calling thread: instructions, and the other events that the processor supports.
    ///
    /// # Errors
    /// The kernel or the machine cannot count instructions.
    pub fn open() -> io::Result<Self> {
        let mut group = Group::new()?;
        let instructions = group.add(&Builder::new(Hardware::INSTRUCTIONS))?;
        let mut optional = |event: Hardware| group.add(&Builder::new(event)).ok();
        let cycles = optional(Hardware::CPU_CYCLES);
        let branch_misses = optional(Hardware::BRANCH_MISSES);
        let cache_misses = optional(Hardware::CACHE_MISSES);
        let stalled = optional(Hardware::STALLED_CYCLES_BACKEND);
        Ok(Self { group, instructions, cycles, branch_misses, cache_misses, stalled })
    }

    /// Resets the counters and starts counting.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn begin(&mut self) -> io::Result<()> {
        self.group.reset()?;
        self.group.enable()
    }

    /// Stops counting and returns the events per item.
    ///
    /// # Errors
    /// The kernel refuses, or assigned the counters to other programs in the meantime.
    pub fn end(&mut self, items: f64) -> io::Result<Events> {
        self.group.disable()?;
        let counts = self.group.read()?;
        let each = |counter: &Counter| counts.get(counter).map(|entry| entry.value() as f64 / items);
        Ok(Events {
            cycles: self.cycles.as_ref().and_then(each),
            instructions: each(&self.instructions),
            branch_misses: self.branch_misses.as_ref().and_then(each),
            cache_misses: self.cache_misses.as_ref().and_then(each),
            stalled: self.stalled.as_ref().and_then(each),
            by_callgrind: false,
        })
    }
}
