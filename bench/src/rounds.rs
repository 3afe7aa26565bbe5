//! Variants that take turns, and the table of their medians.

use std::time::Instant;

/// The measured work: it returns a value that depends on the work.
type Work<'a> = Box<dyn FnOnce() -> u64 + 'a>;

/// How a variant is measured.
enum Measured<'a> {
    /// By the clock around the work, which the preparation returns.
    Here(Box<dyn FnMut() -> Work<'a> + 'a>),
    /// By a separate program, which prints nanoseconds per message.
    Reported(Box<dyn FnMut() -> f64 + 'a>),
}

/// One thing to measure.
pub struct Variant<'a> {
    name: String,
    measured: Measured<'a>,
    ns_per_message: Vec<f64>,
    answer: u64,
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
        self.push(name, Measured::Here(Box::new(move || Box::new(prepare()) as Work<'a>)));
    }

    /// A variant that measures itself: a program in another language. It checks its own answer.
    pub fn add_reported(&mut self, name: &str, run: impl FnMut() -> f64 + 'a) {
        self.push(name, Measured::Reported(Box::new(run)));
    }

    fn push(&mut self, name: &str, measured: Measured<'a>) {
        self.variants.push(Variant { name: name.into(), measured, ns_per_message: Vec::new(), answer: 0 });
    }

    /// Runs each variant once per round, in turns.
    pub fn run(&mut self, rounds: usize) {
        for _ in 0..rounds {
            for variant in &mut self.variants {
                let ns = match &mut variant.measured {
                    Measured::Here(prepare) => {
                        let work = prepare();
                        let started = Instant::now();
                        variant.answer = std::hint::black_box(work());
                        started.elapsed().as_nanos() as f64 / self.messages as f64
                    }
                    Measured::Reported(run) => run(),
                };
                variant.ns_per_message.push(ns);
            }
        }
    }

    /// Prints medians, the spread, and ratios to the variant `reference`: the median of each round's ratio, as what the
    /// machine does at the time changes from round to round and changes both.
    pub fn print(&self, title: &str, reference: &str) {
        let base = self.variants.iter().find(|variant| variant.name == reference);
        println!("{title}: ns/message over {} messages, median of rounds", self.messages);
        println!("{:<44} {:>8} {:>8} {:>8} {:>7}  {:>10}", "", "median", "least", "most", "ratio", "M msg/s");
        for variant in &self.variants {
            let sorted = sorted(variant.ns_per_message.iter().copied());
            let ns = sorted[sorted.len() / 2];
            let ratios = sorted_ratios(variant, base);
            println!(
                "{:<44} {ns:>8.2} {:>8.2} {:>8.2} {:>6.2}x  {:>10.2}",
                variant.name,
                sorted[0],
                sorted[sorted.len() - 1],
                ratios.get(ratios.len() / 2).copied().unwrap_or(f64::NAN),
                1e3 / ns,
            );
        }
        println!();
    }

    /// The answers of the variants, by name. Programs of their own check theirs.
    pub fn answers(&self) -> Vec<(&str, u64)> {
        self.variants
            .iter()
            .filter(|variant| matches!(variant.measured, Measured::Here(_)))
            .map(|variant| (variant.name.as_str(), variant.answer))
            .collect()
    }
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

fn sorted_ratios(variant: &Variant<'_>, base: Option<&Variant<'_>>) -> Vec<f64> {
    let base = base.map_or(&[][..], |base| &base.ns_per_message);
    sorted(variant.ns_per_message.iter().zip(base).map(|(ns, base)| ns / base))
}
