//! Measures variants side by side.
//!
//! The machine's other activity changes from second to second and affects all variants alike. Variants therefore take turns: in each
//! round every variant runs once, in a new random order, and the ratios within a round are compared. A single call of a short variant is
//! meaningless, so it is repeated until it fills [`Settings::sample`]. Every variant is warmed up before the first round.
//!
//! A compiler may remove work whose result is unused. Each variant returns an answer that depends on its work; the answers of all variants
//! of a point must be equal, and a variant faster than [`Variants::floor_ns`] is rejected.
//!
//! The catalogue depends on no similar library. A program that does adds that library's variants to an experiment as [`Peers`]: they take
//! turns with the catalogue's variants, and the same statistics judge them.

use std::hint::black_box;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::counters::{Counters, Events};
use crate::random::Random;
use crate::results::{Axis, Experiment, Measured, Other, Point, Scale, Tail};
use crate::statistics::{Better, Estimate, Verdict};

/// Nanoseconds per item in which no work is possible: a fortieth of a cycle at 5 GHz.
const FLOOR_NS: f64 = 0.005;

/// The smallest difference that counts, on the quietest machine.
pub const LEAST_NOISE: f64 = 0.01;

/// The longest operation that a tail can represent: 100 seconds.
const LONGEST_NS: u64 = 100_000_000_000;

/// The percentiles of a tail.
const PERCENTILES: [f64; 12] = [0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 0.9999, 0.99999, 0.999999, 1.0];

/// How much to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Uses small sizes and few rounds, to check that everything works, not how fast.
    pub quick: bool,
    /// Rounds per point.
    pub rounds: usize,
    /// Minimum duration of one sample of a variant.
    pub sample: Duration,
    /// The seed for inputs and orders.
    pub seed: u64,
}

impl Settings {
    /// The settings of a full run.
    pub const FULL: Self =
        Self { quick: false, rounds: 41, sample: Duration::from_micros(1_000), seed: 20_251_114 };
    /// The settings of a quick run.
    pub const QUICK: Self =
        Self { quick: true, rounds: 9, sample: Duration::from_micros(50), seed: 20_251_114 };
}

/// Why a technique ended early.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Ended {
    /// The machine lacks a required feature.
    #[error("skipped: {0}")]
    Skipped(String),
    /// A variant did too little work: the compiler removed it, or the sizes are wrong.
    #[error(
        "{experiment}, {point}: `{variant}` needs {ns:.4} ns an item, and less than {floor} ns is no work at all"
    )]
    Removed {
        /// The experiment.
        experiment: String,
        /// The point.
        point: String,
        /// The variant.
        variant: String,
        /// The measured time per item, in nanoseconds.
        ns: f64,
        /// The minimum time per item, in nanoseconds.
        floor: f64,
    },
    /// Two variants returned different answers.
    #[error("{experiment}, {point}: `{variant}` answers {answer:#x}, and the baseline {expected:#x}")]
    Differs {
        /// The experiment.
        experiment: String,
        /// The point.
        point: String,
        /// The variant.
        variant: String,
        /// Its answer.
        answer: u64,
        /// The baseline's.
        expected: u64,
    },
    /// The technique cannot be measured.
    #[error("{0}")]
    Failed(String),
    /// The user stopped it.
    #[error("stopped")]
    Stopped,
}

/// The variant that runs alone, under a program that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selection {
    /// The index of the experiment in its technique, from 0.
    pub experiment: usize,
    /// The index of the point.
    pub point: usize,
    /// The index of the variant.
    pub variant: usize,
    /// How often it runs.
    pub times: u64,
}

/// The setup that the variants of a point share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setup {
    /// Items per call of a variant.
    pub items: u64,
    /// The point's position on the axis, such as the slots of a queue.
    pub x: f64,
    /// Cores for two threads; both are the same if the program may use only one.
    pub cores: [usize; 2],
}

/// Variants that another program adds to one of the catalogue's experiments.
#[derive(Clone, Copy, Debug)]
pub struct Peers {
    /// The technique's name.
    pub technique: &'static str,
    /// The experiment's title.
    pub experiment: &'static str,
    /// Adds the peers to the variants of a point.
    pub add: for<'v> fn(Setup, Variants<'v>) -> Variants<'v>,
}

/// The harness with which a technique measures.
pub struct Lab<'l> {
    settings: Settings,
    cores: Vec<usize>,
    noise: f64,
    counters: Option<Counters>,
    alone: Option<Selection>,
    peers: Vec<Peers>,
    on_point: &'l mut dyn FnMut(&str),
    is_stopped: &'l dyn Fn() -> bool,
    experiments: Vec<Experiment>,
    skipped: Vec<String>,
}

impl core::fmt::Debug for Lab<'_> {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_struct("Lab").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl<'l> Lab<'l> {
    /// Creates a lab for the calling thread, which should be pinned to the first of `cores`. `on_point` receives the name of each measurement.
    pub fn new(
        settings: Settings,
        cores: &[usize],
        noise: f64,
        on_point: &'l mut dyn FnMut(&str),
        is_stopped: &'l dyn Fn() -> bool,
    ) -> Self {
        Self {
            settings,
            cores: cores.to_vec(),
            noise: noise.max(LEAST_NOISE),
            counters: Counters::open().ok(),
            alone: None,
            peers: Vec::new(),
            on_point,
            is_stopped,
            experiments: Vec::new(),
            skipped: Vec::new(),
        }
    }

    /// Runs one variant alone, without measuring it.
    pub fn run_alone(&mut self, selection: Selection) {
        self.counters = None;
        self.alone = Some(selection);
    }

    /// Adds these peers to the experiments that they name.
    pub fn add_peers(&mut self, peers: impl IntoIterator<Item = Peers>) {
        self.peers.extend(peers);
    }

    /// Returns how much to measure.
    #[must_use]
    pub const fn settings(&self) -> Settings {
        self.settings
    }

    /// Returns `full` in a full run, `quick` in a quick run.
    #[must_use]
    pub fn either<T>(&self, full: T, quick: T) -> T {
        if self.settings.quick { quick } else { full }
    }

    /// Returns a random number generator for inputs.
    #[must_use]
    pub const fn random(&self) -> Random {
        Random::new(self.settings.seed)
    }

    /// Returns two cores for two threads.
    ///
    /// # Errors
    /// [`Ended::Skipped`] if the program may use only one core.
    pub fn two_cores(&self) -> Result<[usize; 2], Ended> {
        match self.cores.as_slice() {
            &[first, second, ..] => Ok([first, second]),
            cores => {
                Err(Ended::Skipped(format!("two threads need two cores, and the program has {cores:?}")))
            }
        }
    }

    /// Returns all cores that the program may use.
    #[must_use]
    pub fn cores(&self) -> &[usize] {
        &self.cores
    }

    /// Records that a part is left out, and why. The technique continues.
    pub fn skip(&mut self, why: impl Into<String>) {
        self.skipped.push(why.into());
    }

    /// Begins an experiment whose figures are nanoseconds per `per`.
    pub fn experiment(&mut self, title: &str, per: &str) {
        self.experiments.push(Experiment {
            title: title.into(),
            unit: "ns".into(),
            per: per.into(),
            better: Better::Less,
            axis: None,
            points: Vec::new(),
        });
    }

    /// Gives the current experiment an axis for its points.
    pub fn along(&mut self, name: &str, scale: Scale) {
        if let Some(experiment) = self.experiments.last_mut() {
            experiment.axis = Some(Axis { name: name.into(), scale });
        }
    }

    /// Sets another unit for the current experiment's figures, which its variants report.
    pub fn in_unit(&mut self, unit: &str, better: Better) {
        if let Some(experiment) = self.experiments.last_mut() {
            (experiment.unit, experiment.better) = (unit.into(), better);
        }
    }

    /// Measures the variants of a point of the current experiment. `x` is its position on the axis, `label` its name.
    ///
    /// # Errors
    /// A variant is rejected, answers differ, or the user stops the run.
    pub fn point(&mut self, x: f64, label: &str, mut variants: Variants<'_>) -> Result<(), Ended> {
        let number = self.experiments.len().checked_sub(1);
        let Some((number, experiment)) = number.zip(self.experiments.last_mut()) else {
            return Err(Ended::Failed("a point without an experiment".into()));
        };
        let first = self.cores.first().copied().unwrap_or_default();
        let cores = [first, self.cores.get(1).copied().unwrap_or(first)];
        let setup = Setup { items: variants.items, x, cores };
        for peers in self.peers.iter().filter(|peers| peers.experiment == experiment.title) {
            variants = (peers.add)(setup, variants);
        }
        for why in core::mem::take(&mut variants.skipped) {
            if !self.skipped.contains(&why) {
                self.skipped.push(why);
            }
        }
        if let Some(alone) = self.alone {
            if alone.experiment == number && alone.point == experiment.points.len() {
                variants.run_alone(alone);
            }
            let items = variants.items;
            experiment.points.push(Point { x, label: label.into(), items, variants: Vec::new() });
            return Ok(());
        }
        (self.on_point)(&if label.is_empty() {
            experiment.title.clone()
        } else {
            format!("{}: {label}", experiment.title)
        });
        let seed = self.settings.seed ^ (number as u64) << 32 ^ experiment.points.len() as u64;
        let place = Place { experiment: &experiment.title, point: label };
        let better = experiment.better;
        let samples = variants.run(&self.settings, seed, &mut self.counters, self.is_stopped, &place)?;
        let measured = samples.measured(&variants, self.noise, better, &place)?;
        experiment.points.push(Point { x, label: label.into(), items: variants.items, variants: measured });
        Ok(())
    }

    /// Returns the results, and the list of skipped parts.
    #[must_use]
    pub fn into_results(self) -> (Vec<Experiment>, Vec<String>) {
        (self.experiments, self.skipped)
    }
}

/// The location of a fault.
struct Place<'p> {
    experiment: &'p str,
    point: &'p str,
}

impl Place<'_> {
    fn differs(&self, variant: &str, answer: u64, expected: u64) -> Ended {
        Ended::Differs {
            experiment: self.experiment.into(),
            point: self.point.into(),
            variant: variant.into(),
            answer,
            expected,
        }
    }
}

type Work<'v> = Box<dyn FnMut() -> u64 + 'v>;
type Report<'v> = Box<dyn FnMut(&mut Reporter) -> u64 + 'v>;

enum How<'v> {
    /// Timed by the harness over many calls.
    Timed(Work<'v>),
    /// Measured and reported by the variant.
    Reported(Report<'v>),
}

struct Variant<'v> {
    name: String,
    how: How<'v>,
    /// Its answer is not compared, because another program checks it.
    checks_itself: bool,
}

/// The variants of a point. The first is the baseline.
pub struct Variants<'v> {
    items: u64,
    floor_ns: f64,
    answers_differ: bool,
    variants: Vec<Variant<'v>>,
    skipped: Vec<String>,
}

impl core::fmt::Debug for Variants<'_> {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let names: Vec<&str> = self.variants.iter().map(|variant| variant.name.as_str()).collect();
        formatter
            .debug_struct("Variants")
            .field("items", &self.items)
            .field("names", &names)
            .finish_non_exhaustive()
    }
}

impl<'v> Variants<'v> {
    /// Creates an empty set of variants, each call of which processes `items` items.
    #[must_use]
    pub const fn of(items: u64) -> Self {
        Self { items, floor_ns: FLOOR_NS, answers_differ: false, variants: Vec::new(), skipped: Vec::new() }
    }

    /// Sets the minimum time per item in nanoseconds. A faster variant has lost its work.
    #[must_use]
    pub const fn floor_ns(mut self, floor_ns: f64) -> Self {
        self.floor_ns = floor_ns;
        self
    }

    /// Lets answers differ between variants and calls, because they are times or depend on threads.
    #[must_use]
    pub const fn answers_differ(mut self) -> Self {
        self.answers_differ = true;
        self
    }

    /// Adds a timed variant: each call does the same work on the same inputs and returns an answer that depends on all of it.
    #[must_use]
    pub fn add(mut self, name: &str, work: impl FnMut() -> u64 + 'v) -> Self {
        self.push(name, How::Timed(Box::new(work)), false);
        self
    }

    /// Adds a variant that measures itself once per round and reports single operations or a figure.
    #[must_use]
    pub fn add_reported(mut self, name: &str, work: impl FnMut(&mut Reporter) -> u64 + 'v) -> Self {
        self.push(name, How::Reported(Box::new(work)), false);
        self
    }

    /// Adds a variant in another program, which checks its own answer and reports a figure.
    #[must_use]
    pub fn add_foreign(mut self, name: &str, mut work: impl FnMut(&mut Reporter) + 'v) -> Self {
        let report = move |reporter: &mut Reporter| {
            work(reporter);
            0
        };
        self.push(name, How::Reported(Box::new(report)), true);
        self
    }

    /// Records that a variant is left out, and why.
    #[must_use]
    pub fn skip(mut self, why: impl Into<String>) -> Self {
        self.skipped.push(why.into());
        self
    }

    fn push(&mut self, name: &str, how: How<'v>, checks_itself: bool) {
        self.variants.push(Variant { name: name.into(), how, checks_itself });
    }

    fn run_alone(&mut self, alone: Selection) {
        let Some(variant) = self.variants.get_mut(alone.variant) else { return };
        for _ in 0..alone.times {
            black_box(match &mut variant.how {
                How::Timed(work) => work(),
                How::Reported(report) => report(&mut Reporter::new()),
            });
        }
    }

    fn run(
        &mut self,
        settings: &Settings,
        seed: u64,
        counters: &mut Option<Counters>,
        is_stopped: &dyn Fn() -> bool,
        place: &Place<'_>,
    ) -> Result<Samples, Ended> {
        let mut samples = Samples::of(self.variants.len());
        let mut calls = Vec::new();
        for (variant, sample) in self.variants.iter_mut().zip(&mut samples.of_variants) {
            calls.push(sample.prepare(variant, settings.sample));
        }
        let mut order: Vec<usize> = (0..self.variants.len()).collect();
        let mut random = Random::new(seed);
        for _ in 0..settings.rounds {
            if is_stopped() {
                return Err(Ended::Stopped);
            }
            random.shuffle(&mut order);
            for index in &order {
                let (Some(variant), Some(sample), Some(calls)) =
                    (self.variants.get_mut(*index), samples.of_variants.get_mut(*index), calls.get(*index))
                else {
                    continue;
                };
                match &mut variant.how {
                    How::Timed(work) => {
                        let sum = sample.time(work, *calls, self.items, counters);
                        if !self.answers_differ && sum != sample.answer.wrapping_mul(*calls) {
                            return Err(place.differs(
                                &variant.name,
                                sum,
                                sample.answer.wrapping_mul(*calls),
                            ));
                        }
                    }
                    How::Reported(report) => sample.report(report),
                }
            }
        }
        Ok(samples)
    }
}

/// Collects the results of a variant that measures itself.
#[derive(Debug)]
pub struct Reporter {
    operations: Histogram<u64>,
    figure: Option<f64>,
    others: Vec<(&'static str, f64)>,
}

impl Reporter {
    fn new() -> Self {
        // Three digits up to the longest operation are bounds that the histogram accepts.
        let operations = Histogram::new_with_max(LONGEST_NS, 3)
            .unwrap_or_else(|_| unreachable!("three digits up to 100 s are within its limits"));
        Self { operations, figure: None, others: Vec::new() }
    }

    /// Records the duration of one operation.
    pub fn operation_ns(&mut self, ns: u64) {
        self.operations.saturating_record(ns);
    }

    /// Sets the figure of this round; the default is the median of the operations.
    pub const fn figure(&mut self, figure: f64) {
        self.figure = Some(figure);
    }

    /// Records another figure of this round; its name includes the unit.
    pub fn other(&mut self, name: &'static str, value: f64) {
        self.others.push((name, value));
    }
}

/// The results of a point's rounds.
struct Samples {
    of_variants: Vec<Sample>,
}

struct Sample {
    answer: u64,
    figures: Vec<f64>,
    events: Vec<Events>,
    operations: Option<Histogram<u64>>,
    others: Vec<(&'static str, Vec<f64>)>,
}

impl Sample {
    /// Warms the variant up, and determines how many calls fill a sample.
    fn prepare(&mut self, variant: &mut Variant<'_>, sample: Duration) -> u64 {
        match &mut variant.how {
            How::Timed(work) => {
                self.answer = black_box(work());
                let mut calls = 1u64;
                loop {
                    let started = Instant::now();
                    (0..calls).for_each(|_| {
                        black_box(work());
                    });
                    let took = started.elapsed();
                    if took >= sample {
                        return calls;
                    }
                    // At most tenfold, because the first calls are slower.
                    let wanted = sample.as_nanos() as f64 / took.as_nanos().max(1) as f64 * 1.1;
                    calls = (calls as f64 * wanted.clamp(1.2, 10.0)).ceil() as u64;
                }
            }
            How::Reported(report) => {
                self.answer = report(&mut Reporter::new());
                1
            }
        }
    }

    /// Times the calls and returns the sum of their answers.
    fn time(&mut self, work: &mut Work<'_>, calls: u64, items: u64, counters: &mut Option<Counters>) -> u64 {
        let items = (calls * items.max(1)) as f64;
        let counting = counters.as_mut().is_some_and(|counters| counters.begin().is_ok());
        let started = Instant::now();
        let mut sum = 0u64;
        for _ in 0..calls {
            sum = sum.wrapping_add(black_box(work()));
        }
        let took = started.elapsed();
        if counting && let Some(Ok(events)) = counters.as_mut().map(|counters| counters.end(items)) {
            self.events.push(events);
        }
        self.figures.push(took.as_nanos() as f64 / items);
        sum
    }

    fn report(&mut self, report: &mut Report<'_>) {
        let mut reporter = Reporter::new();
        self.answer = report(&mut reporter);
        let Reporter { operations, figure, others } = reporter;
        self.figures.push(figure.unwrap_or_else(|| operations.value_at_quantile(0.5) as f64));
        if !operations.is_empty() {
            match &mut self.operations {
                // Both histograms have the same bounds.
                Some(all) => all.add(&operations).unwrap_or(()),
                None => self.operations = Some(operations),
            }
        }
        for (name, value) in others {
            match self.others.iter_mut().find(|(other, _)| *other == name) {
                Some((_, values)) => values.push(value),
                None => self.others.push((name, vec![value])),
            }
        }
    }

    fn events(&self) -> Option<Events> {
        let median = |of: fn(&Events) -> Option<f64>| {
            let values: Vec<f64> = self.events.iter().filter_map(of).collect();
            Estimate::of(&values).map(|estimate| estimate.median)
        };
        (!self.events.is_empty()).then(|| Events {
            cycles: median(|events| events.cycles),
            instructions: median(|events| events.instructions),
            branch_misses: median(|events| events.branch_misses),
            cache_misses: median(|events| events.cache_misses),
            stalled: median(|events| events.stalled),
            by_callgrind: false,
        })
    }
}

impl Samples {
    fn of(variants: usize) -> Self {
        let sample = || Sample {
            answer: 0,
            figures: Vec::new(),
            events: Vec::new(),
            operations: None,
            others: Vec::new(),
        };
        Self { of_variants: std::iter::repeat_with(sample).take(variants).collect() }
    }

    fn measured(
        &self,
        variants: &Variants<'_>,
        noise: f64,
        better: Better,
        place: &Place<'_>,
    ) -> Result<Vec<Measured>, Ended> {
        let baseline = self.of_variants.first();
        let mut measured = Vec::new();
        for (index, (variant, sample)) in variants.variants.iter().zip(&self.of_variants).enumerate() {
            let figure = Estimate::of(&sample.figures).ok_or_else(|| {
                Ended::Failed(format!("{}: `{}` has no figure", place.experiment, variant.name))
            })?;
            if matches!(variant.how, How::Timed(_)) && figure.median < variants.floor_ns {
                return Err(Ended::Removed {
                    experiment: place.experiment.into(),
                    point: place.point.into(),
                    variant: variant.name.clone(),
                    ns: figure.median,
                    floor: variants.floor_ns,
                });
            }
            let expected = baseline.map_or(sample.answer, |baseline| baseline.answer);
            if !variants.answers_differ && !variant.checks_itself && sample.answer != expected {
                return Err(place.differs(&variant.name, sample.answer, expected));
            }
            let ratio = baseline.filter(|_| index > 0 && better != Better::Neither).and_then(|baseline| {
                let ratios: Vec<f64> =
                    sample.figures.iter().zip(&baseline.figures).map(|(own, base)| own / base).collect();
                Estimate::of(&ratios)
            });
            measured.push(Measured {
                name: variant.name.clone(),
                figure,
                ratio,
                verdict: ratio.and_then(|ratio| Verdict::of(&ratio, noise, better)),
                tail: sample.operations.as_ref().map(|operations| Tail {
                    count: operations.len(),
                    percentiles: PERCENTILES
                        .into_iter()
                        .map(|part| (part, operations.value_at_quantile(part) as f64))
                        .collect(),
                }),
                events: sample.events(),
                others: sample
                    .others
                    .iter()
                    .filter_map(|(name, values)| {
                        Some(Other { name: (*name).into(), value: Estimate::of(values)?.median })
                    })
                    .collect(),
            });
        }
        Ok(measured)
    }
}

/// Does work in proportion to `turns` that no compiler can shorten, because each turn needs the previous result.
#[must_use]
pub fn busy(turns: u64) -> u64 {
    let mut value = black_box(turns);
    for _ in 0..turns {
        // A chain of a multiplication (three cycles) and an addition (one cycle).
        value = black_box(value.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1));
    }
    value
}

/// Returns how far the ratio of two equal variants deviates from 1 on this machine now, with the given settings.
///
/// # Errors
/// The user stops the measurement.
pub fn noise(settings: Settings, is_stopped: &dyn Fn() -> bool) -> Result<f64, Ended> {
    let mut quiet = |_: &str| {};
    let mut lab = Lab::new(settings, &[], 0.0, &mut quiet, is_stopped);
    lab.experiment("noise", "turn");
    lab.point(0.0, "", Variants::of(1_000).add("one", || busy(1_000)).add("the same", || busy(1_000)))?;
    let (experiments, _) = lab.into_results();
    let point = experiments.first().and_then(|experiment| experiment.points.first());
    let ratio = point.and_then(|point| point.variants.get(1)?.ratio);
    Ok(ratio.map_or(0.0, |ratio| (1.0 - ratio.low).abs().max((ratio.high - 1.0).abs())))
}
