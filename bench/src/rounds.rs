//! Variants that take turns, and the table of their medians: for work that begins with a file or a table of its own, which the lab's
//! variants do not have. The statistics are the lab's.

use std::time::Instant;

use tapeworks_lab::statistics::Estimate;

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
            let Some(figure) = Estimate::of(&variant.ns_per_message) else { continue };
            let (least, most) = ends(&variant.ns_per_message);
            println!(
                "{:<44} {:>8.2} {least:>8.2} {most:>8.2} {:>6.2}x  {:>10.2}",
                variant.name,
                figure.median,
                base.and_then(|base| ratio(variant, base)).unwrap_or(f64::NAN),
                1e3 / figure.median,
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

/// The least and the greatest.
fn ends(values: &[f64]) -> (f64, f64) {
    values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), ns| (ns.min(least), ns.max(most)))
}

fn ratio(variant: &Variant<'_>, base: &Variant<'_>) -> Option<f64> {
    let ratios: Vec<f64> =
        variant.ns_per_message.iter().zip(&base.ns_per_message).map(|(ns, base)| ns / base).collect();
    Some(Estimate::of(&ratios)?.median)
}
