//! Work that begins with a file or a table of its own, as an experiment of the lab: the lab runs, judges and shows it. Here is only how a
//! preparation is kept out of the time.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::OnceLock;
use std::time::Instant;

use tapeworks_lab::measure::{self, Lab, Reporter, Settings, Variants};
use tapeworks_lab::text;

/// One thing to measure.
struct Variant<'a> {
    name: String,
    work: Box<dyn FnMut(&mut Reporter) -> u64 + 'a>,
    /// What the work returned last; `None` of a program of its own, which checks its own answer.
    answer: Option<Rc<Cell<u64>>>,
}

/// Variants over the same number of messages.
pub struct Rounds<'a> {
    messages: u64,
    variants: Vec<Variant<'a>>,
}

impl<'a> Rounds<'a> {
    pub fn new(messages: u64) -> Self {
        Self { messages, variants: Vec::new() }
    }

    /// A variant without preparation.
    pub fn add(&mut self, name: &str, run: impl Fn() -> u64 + Clone + 'a) {
        self.add_prepared(name, move || run.clone());
    }

    /// A variant whose preparation (tables allocated at start-up) is not measured.
    pub fn add_prepared<R: FnOnce() -> u64 + 'a>(&mut self, name: &str, mut prepare: impl FnMut() -> R + 'a) {
        let messages = self.messages as f64;
        let answer = Rc::new(Cell::new(0));
        let found = Rc::clone(&answer);
        let work = Box::new(move |reporter: &mut Reporter| {
            let work = prepare();
            let started = Instant::now();
            found.set(std::hint::black_box(work()));
            reporter.figure(started.elapsed().as_nanos() as f64 / messages);
            found.get()
        });
        self.variants.push(Variant { name: name.into(), work, answer: Some(answer) });
    }

    /// A variant that measures itself: a program in another language. It checks its own answer.
    pub fn add_reported(&mut self, name: &str, mut run: impl FnMut() -> f64 + 'a) {
        let work = Box::new(move |reporter: &mut Reporter| {
            reporter.figure(run());
            0
        });
        self.variants.push(Variant { name: name.into(), work, answer: None });
    }

    /// Runs all variants once to warm up and then once per round, and prints what the lab found: ratios are to the first one. Returns their
    /// answers, by name.
    pub fn run(self, title: &str, rounds: usize) -> Vec<(String, u64)> {
        static NOISE: OnceLock<f64> = OnceLock::new();
        let settings = Settings { rounds, ..Settings::FULL };
        let never = || false;
        let noise = *NOISE.get_or_init(|| {
            let noise = measure::noise(Settings::FULL, &never).expect("nobody stops it");
            println!("two equal variants differ by up to {:.1} %\n", noise * 100.0);
            noise
        });
        let mut answers = Vec::new();
        // Some count what others do not: who calls compares those that must be equal.
        let mut variants = Variants::of(self.messages).answers_differ();
        for Variant { name, work, answer } in self.variants {
            variants = variants.add_reported(&name, work);
            answers.extend(answer.map(|answer| (name, answer)));
        }
        let mut quiet = |_: &str| {};
        let mut lab = Lab::new(settings, &[], noise, &mut quiet, &never);
        lab.experiment(title, "message");
        lab.point(0.0, "", variants).unwrap_or_else(|error| panic!("{error}"));
        let (experiments, _) = lab.into_results();
        for experiment in &experiments {
            println!("{title}: {} messages, {rounds} rounds", self.messages);
            println!("{}", text::table(experiment));
        }
        answers.into_iter().map(|(name, answer)| (name, answer.get())).collect()
    }
}
