//! The processor's time-stamp counter as a clock.
//!
//! Reading the kernel's clock costs about 20 ns, and timing code that may take 5 ns needs two readings. Reading the time-stamp
//! counter takes about as many cycles as a second-level cache miss, and since about 2010 it ticks at one rate on all cores and in
//! all power states (`constant_tsc`, `nonstop_tsc`). [`TscClock`] measures that rate once against the kernel's monotonic clock;
//! [`TscClock::read_cost_ns`] measures the cost of a reading.
//!
//! On other processors, or if the kernel does not trust the counter, ticks are the kernel's nanoseconds: slower, but otherwise
//! the same.

use std::time::{Duration, Instant};

/// A point in time, in ticks of a [`TscClock`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Ticks(pub u64);

/// The time-stamp counter and its rate.
#[derive(Clone, Copy, Debug)]
pub struct TscClock {
    /// Nanoseconds per tick, times 2^32.
    ns_per_tick_q32: u64,
    is_tsc: bool,
    origin: Instant,
}

impl TscClock {
    /// How long [`new`](Self::new) takes.
    pub const CALIBRATION: Duration = Duration::from_millis(20);

    /// Calibrates the counter against the kernel's monotonic clock, which takes [`Self::CALIBRATION`].
    ///
    /// The rate is accurate to about 5 parts per million: 5 us per second.
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

    /// Returns whether ticks are the processor's; otherwise they are the kernel's nanoseconds.
    pub const fn is_tsc(&self) -> bool {
        self.is_tsc
    }

    /// Returns the number of ticks per second.
    pub fn ticks_per_second(&self) -> u64 {
        ((1_000_000_000u128 << 32) / u128::from(self.ns_per_tick_q32.max(1))) as u64
    }

    /// Returns the current time. It is not ordered against nearby instructions and may be off by a few nanoseconds.
    #[inline(always)]
    pub fn now(&self) -> Ticks {
        if self.is_tsc { Ticks(read()) } else { Ticks(self.origin.elapsed().as_nanos() as u64) }
    }

    /// Returns the nanoseconds from `earlier` to `later`, or 0 if they are in reverse order.
    #[inline]
    pub fn nanoseconds(&self, earlier: Ticks, later: Ticks) -> u64 {
        let ticks = later.0.saturating_sub(earlier.0);
        ((u128::from(ticks) * u128::from(self.ns_per_tick_q32)) >> 32) as u64
    }

    /// Measures the cost of a reading in nanoseconds: the median of 101 runs of a thousand.
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

/// Reads the kernel's clock and the counter together. Returns the fastest of several attempts.
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
    // SAFETY: every x86-64 processor has the instruction; `is_trustworthy` rules out a kernel that forbids it to programs.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
const fn read() -> u64 {
    0
}

/// Returns whether the counter ticks at a constant rate and the kernel itself uses it.
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
        // Our readings lie inside the kernel's and around the sleep, so these hold however late the thread wakes.
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
