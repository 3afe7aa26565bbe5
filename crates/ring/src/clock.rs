//! The processor's own clock.
//!
//! Reading the kernel's clock costs some 20 ns, twice around code that may take 5. The time-stamp counter is read in about as
//! many cycles as a cache miss in the second level, and on every processor since about 2010 it ticks at one rate on all cores
//! and in all states (`constant_tsc`, `nonstop_tsc`). [`TscClock`] finds that rate against the kernel's monotonic clock once;
//! [`TscClock::read_cost_ns`] gives the cost of a reading here.
//!
//! Where there is no such counter (another processor, or a kernel that does not trust it), ticks are the kernel's
//! nanoseconds and everything works the same, slower.

use std::time::{Duration, Instant};

/// A moment, in ticks of a [`TscClock`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Ticks(pub u64);

/// The time-stamp counter with its rate.
#[derive(Clone, Copy, Debug)]
pub struct TscClock {
    /// Nanoseconds a tick, times 2^32.
    ns_per_tick_q32: u64,
    is_tsc: bool,
    origin: Instant,
}

impl TscClock {
    /// How long [`new`](Self::new) takes.
    pub const CALIBRATION: Duration = Duration::from_millis(20);

    /// Calibrates the counter against the kernel's monotonic clock, which takes [`Self::CALIBRATION`].
    ///
    /// The rate is right to some 5 parts in a million: 5 us in a second.
    pub fn new() -> Self {
        let origin = Instant::now();
        if !is_trustworthy() {
            return Self { ns_per_tick_q32: 1 << 32, is_tsc: false, origin };
        }
        let (first_at, first) = moment();
        while first_at.elapsed() < Self::CALIBRATION {
            std::hint::spin_loop();
        }
        let (last_at, last) = moment();
        let ns = last_at.duration_since(first_at).as_nanos();
        let ticks = u128::from(last.wrapping_sub(first).max(1));
        Self { ns_per_tick_q32: ((ns << 32) / ticks) as u64, is_tsc: true, origin }
    }

    /// Whether ticks are the processor's; if not, they are the kernel's nanoseconds.
    pub const fn is_tsc(&self) -> bool {
        self.is_tsc
    }

    /// Ticks in a second.
    pub fn ticks_per_second(&self) -> u64 {
        ((1_000_000_000u128 << 32) / u128::from(self.ns_per_tick_q32.max(1))) as u64
    }

    /// Now. Not ordered against the instructions around it: some may run before or after, by a few nanoseconds.
    #[inline(always)]
    pub fn now(&self) -> Ticks {
        if self.is_tsc { Ticks(read()) } else { Ticks(self.origin.elapsed().as_nanos() as u64) }
    }

    /// Nanoseconds from `earlier` to `later`; 0 when they are the other way round.
    #[inline]
    pub fn nanoseconds(&self, earlier: Ticks, later: Ticks) -> u64 {
        let ticks = later.0.saturating_sub(earlier.0);
        ((u128::from(ticks) * u128::from(self.ns_per_tick_q32)) >> 32) as u64
    }

    /// What a reading costs, in nanoseconds: the median of many runs of a thousand.
    pub fn read_cost_ns(&self) -> f64 {
        let mut runs: Vec<u64> = (0..101)
            .map(|_| {
                let started = self.now();
                for _ in 0..1000 {
                    std::hint::black_box(self.now());
                }
                self.nanoseconds(started, self.now())
            })
            .collect();
        runs.sort_unstable();
        runs[runs.len() / 2] as f64 / 1000.0
    }
}

impl Default for TscClock {
    fn default() -> Self {
        Self::new()
    }
}

/// The kernel's time and the counter's as of the same moment: of several tries the one that took the least.
fn moment() -> (Instant, u64) {
    let mut best = (Instant::now(), read(), u64::MAX);
    for _ in 0..16 {
        let before = read();
        let at = Instant::now();
        let took = read().wrapping_sub(before);
        if took < best.2 {
            best = (at, before.wrapping_add(took / 2), took);
        }
    }
    (best.0, best.1)
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn read() -> u64 {
    // SAFETY: every x86-64 processor has the instruction; a kernel that forbids it to programs is not trusted below.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
const fn read() -> u64 {
    0
}

/// Whether the counter ticks at one rate, and the kernel itself keeps time by it.
fn is_trustworthy() -> bool {
    if !cfg!(target_arch = "x86_64") {
        return false;
    }
    let source = std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    source.is_ok_and(|source| matches!(source.trim(), "tsc" | "kvm-clock" | "hyperv_clocksource_tsc_page"))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_clock_agrees_with_the_kernels() {
        let clock = TscClock::new();
        let (at, started) = (Instant::now(), clock.now());
        std::thread::sleep(Duration::from_millis(30));
        let (ended, kernels) = (clock.now(), at.elapsed());
        let ns = clock.nanoseconds(started, ended);
        // Our readings lie inside the kernel's, and around the sleep: however late the thread is woken, these hold.
        assert!(ns >= 30_000_000 * 99 / 100, "{ns}");
        assert!(u128::from(ns) <= kernels.as_nanos() * 101 / 100, "{ns} against {kernels:?}");
        assert_eq!(clock.nanoseconds(ended, started), 0);
    }

    #[test]
    fn a_clock_without_the_counter_counts_the_kernels_nanoseconds() {
        let clock = TscClock { ns_per_tick_q32: 1 << 32, is_tsc: false, origin: Instant::now() };
        assert_eq!(clock.ticks_per_second(), 1_000_000_000);
        let started = clock.now();
        std::thread::sleep(Duration::from_millis(2));
        assert!(clock.nanoseconds(started, clock.now()) >= 2_000_000);
    }
}
