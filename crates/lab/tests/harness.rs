//! The harness measures what it should: its own error, equal variants, small differences, and work that is gone.

use std::hint::black_box;
use std::time::{Duration, Instant};

use tapeworks_lab::measure::{Ended, Lab, Settings, Variants, busy};
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

/// Whether one of twelve attempts succeeds: a machine that others load may spoil many of them.
fn in_some_attempts(mut attempt: impl FnMut() -> bool) -> bool {
    (0..12).any(|_| attempt())
}

#[test]
fn two_equal_variants_are_called_equal_nineteen_times_in_twenty() {
    assert!(in_some_attempts(|| {
        let mut equal = 0;
        for _ in 0..40 {
            let variants = Variants::of(2_000).add("one", || busy(2_000)).add("the same", || busy(2_000));
            let found = measured(SETTINGS, 0.01, variants).unwrap();
            equal += u32::from(found.points[0].variants[1].verdict == Some(Verdict::NoDifference));
        }
        // 38 of 40 on average at least; fewer than 34 has a chance of one in a hundred.
        equal >= 34
    }));
}

#[test]
fn a_difference_of_five_percent_is_found() {
    assert!(in_some_attempts(|| {
        let mut found = 0;
        for _ in 0..10 {
            let variants = Variants::of(2_000)
                .answers_differ()
                .add("one", || busy(2_000))
                .add("5 % more", || busy(2_100));
            let experiment = measured(Settings { rounds: 41, ..SETTINGS }, 0.01, variants).unwrap();
            found += u32::from(experiment.points[0].variants[1].verdict == Some(Verdict::Hurts));
        }
        found >= 7
    }));
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
