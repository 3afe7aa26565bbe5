//! The harness measures what it should: its own error, equal variants, small differences, and work that is gone.

use std::cell::{Cell, RefCell};
use std::hint::black_box;
use std::time::{Duration, Instant};

use tapeworks_lab::measure::{Ended, Lab, Reporter, Settings, Variants, busy};
use tapeworks_lab::random::Random;
use tapeworks_lab::results::{Experiment, Scale};
use tapeworks_lab::statistics::Verdict;

const SETTINGS: Settings = Settings { quick: true, rounds: 25, sample: Duration::from_micros(200), seed: 7 };

fn measured(settings: Settings, noise: f64, variants: Variants<'_>) -> Result<Experiment, Ended> {
    let mut quiet = |_: &str| {};
    let mut lab = Lab::new(settings, &[], noise, &mut quiet, &|| false);
    lab.experiment("a test", "turn");
    lab.along("turns", Scale::Linear);
    lab.point(1.0, "one", variants)?;
    let (mut experiments, _) = lab.into_results();
    Ok(experiments.remove(0))
}

/// The figure of a known busy loop beside its own clock, taken in turns with the harness. A wrong unit, divisor or clock is off by far more
/// than a tenth; a machine that others load may be off by less at any time, so the best of many attempts counts.
#[test]
fn a_known_busy_loop_is_measured_as_its_own_clock_measures_it() {
    let clock = || {
        let started = Instant::now();
        black_box(busy(200_000));
        started.elapsed().as_nanos() as f64 / 200_000.0
    };
    let settings = Settings { rounds: 3, sample: Duration::from_micros(1), ..SETTINGS };
    let mut closest = f64::INFINITY;
    for _ in 0..400 {
        let before = clock();
        let found = measured(settings, 0.0, Variants::of(200_000).add("busy", || busy(200_000))).unwrap();
        let figure = found.points[0].variants[0].figure.median;
        closest = closest.min((figure / f64::midpoint(before, clock()) - 1.0).abs());
        if closest < 0.1 {
            return;
        }
    }
    panic!("off by {:.1} % at best", closest * 100.0);
}

/// A model of a busy machine: its speed drifts from call to call, and one call in ten is interrupted. Verdicts on its times depend on the
/// seed and not on the machine that runs the test.
struct LoadedMachine {
    random: RefCell<Random>,
    speed: Cell<f64>,
}

impl LoadedMachine {
    fn new(seed: u64) -> Self {
        Self { random: RefCell::new(Random::new(seed)), speed: Cell::new(1.0) }
    }

    fn ns(&self, work: f64) -> f64 {
        let mut random = self.random.borrow_mut();
        let mut part = || random.part();
        self.speed.set(self.speed.get() * (1.0 + 0.02 * (part() - 0.5)));
        let interrupted = if part() < 0.1 { 1.0 + 3.0 * part() } else { 1.0 };
        work * self.speed.get() * interrupted * (1.0 + 0.03 * part())
    }

    /// The verdict on a variant that takes `work` where the baseline takes 1.
    fn verdict(&self, work: f64) -> Result<Option<Verdict>, Ended> {
        let reported = |work: f64| {
            move |reporter: &mut Reporter| {
                reporter.figure(self.ns(work));
                0
            }
        };
        let variants =
            Variants::of(1).add_reported("baseline", reported(1.0)).add_reported("other", reported(work));
        Ok(measured(SETTINGS, 0.01, variants)?.points[0].variants[1].verdict)
    }
}

fn count(verdicts: u32, work: f64, expected: Verdict) -> u32 {
    (0..verdicts)
        .map(|seed| u32::from(LoadedMachine::new(seed.into()).verdict(work) == Ok(Some(expected))))
        .sum()
}

#[test]
fn two_equal_variants_are_called_equal_nineteen_times_in_twenty() {
    let equal = count(400, 1.0, Verdict::NoDifference);
    assert!(equal >= 380, "{equal} of 400");
}

#[test]
fn a_difference_of_five_percent_is_found() {
    let slower = count(400, 1.05, Verdict::Hurts);
    let faster = count(400, 0.95, Verdict::Helps);
    assert!(slower >= 380 && faster >= 380, "{slower} and {faster} of 400");
}

#[test]
fn work_that_the_compiler_removed_is_refused() {
    let variants = Variants::of(1_000_000).add("nothing", || 7);
    let error = measured(SETTINGS, 0.0, variants).unwrap_err();
    assert!(matches!(&error, Ended::Removed { variant, .. } if variant == "nothing"), "{error}");
    assert!(error.to_string().starts_with("a test, one: `nothing` needs "), "{error}");
}

#[test]
fn a_variant_with_another_answer_is_refused() {
    let variants = Variants::of(100).add("right", || busy(100)).add("wrong", || busy(100) ^ 1);
    let error = measured(SETTINGS, 0.0, variants).unwrap_err();
    assert!(matches!(&error, Ended::Differs { variant, .. } if variant == "wrong"), "{error}");
}

#[test]
fn a_variant_whose_answer_changes_from_call_to_call_is_refused() {
    let mut calls = 0;
    let variants = Variants::of(100).add("changing", move || {
        calls += 1;
        busy(100) ^ calls
    });
    assert!(matches!(measured(SETTINGS, 0.0, variants), Err(Ended::Differs { .. })));
}

#[test]
fn single_operations_have_their_percentiles() {
    let variants = Variants::of(1).add_reported("known", |reporter| {
        (1..=1_000).for_each(|ns| reporter.operation_ns(ns));
        reporter.other("turns", 5.0);
        1
    });
    let found = measured(SETTINGS, 0.0, variants).unwrap();
    let variant = &found.points[0].variants[0];
    let tail = variant.tail.as_ref().unwrap();
    assert_eq!(tail.count, 1_000 * SETTINGS.rounds as u64);
    let at = |part: f64| tail.percentiles.iter().find(|(found, _)| *found == part).unwrap().1;
    assert_eq!((at(0.5), at(0.99), at(1.0)), (500.0, 990.0, 1_000.0));
    assert_eq!((variant.figure.median, variant.others[0].value), (500.0, 5.0));
}

#[test]
fn a_stop_ends_a_point() {
    let mut quiet = |_: &str| {};
    let mut lab = Lab::new(SETTINGS, &[], 0.0, &mut quiet, &|| true);
    lab.experiment("a test", "turn");
    assert_eq!(lab.point(0.0, "", Variants::of(1).add("one", || busy(1))), Err(Ended::Stopped));
}
