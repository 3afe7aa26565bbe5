//! Two runs side by side: two machines, or two commits.

use std::collections::{HashMap, HashSet};

use crate::results::Run;
use crate::statistics::Estimate;

/// With fewer rounds, no interval contains the median with 95 % probability.
const LEAST_ROUNDS: usize = 6;

/// A variant that is in both runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The technique's name.
    pub technique: String,
    /// The experiment's title.
    pub experiment: String,
    /// The point's name.
    pub point: String,
    /// The variant's name.
    pub variant: String,
    /// The unit of the figures.
    pub unit: String,
    /// The figure of the first run.
    pub first: Estimate,
    /// The figure of the second run.
    pub second: Estimate,
    /// The ratios to the baseline in both runs, if the variant has them.
    pub ratios: Option<(Estimate, Estimate)>,
}

impl Difference {
    /// Returns whether the intervals of the ratios (or figures, without ratios) are apart by more than the noise of both runs.
    #[must_use]
    pub fn is_clear(&self, noise: f64) -> bool {
        let (first, second) = self.ratios.unwrap_or((self.first, self.second));
        second.low > first.high * (1.0 + noise) || second.high < first.low * (1.0 - noise)
    }
}

/// The variants in both runs, and the names of variants in only one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Comparison {
    /// Variants in both runs, in the order of the first.
    pub both: Vec<Difference>,
    /// Variants only in the first run.
    pub first_alone: Vec<String>,
    /// Variants only in the second run.
    pub second_alone: Vec<String>,
}

/// Returns reasons other than the machines or the commits why the figures of these runs may differ.
#[must_use]
pub fn warnings(first: &Run, second: &Run) -> Vec<String> {
    let mut warnings = Vec::new();
    let kind = |run: &Run| if run.quick { "a quick run, of small sizes" } else { "a full run" };
    if first.quick != second.quick {
        warnings.push(format!("the first is {}, the second {}", kind(first), kind(second)));
    }
    let few = [first, second].iter().map(|run| run.rounds).min().unwrap_or_default();
    if few < LEAST_ROUNDS {
        warnings.push(format!("{few} rounds: an interval is from the least to the greatest of them"));
    }
    let unoptimised = |run: &Run| run.machine.target.ends_with("not optimised");
    if unoptimised(first) != unoptimised(second) {
        warnings.push("one of the programs was not optimised".into());
    }
    warnings
}

/// Compares two runs.
#[must_use]
pub fn compare(first: &Run, second: &Run) -> Comparison {
    let mut comparison = Comparison::default();
    let found = all(first);
    let others = all(second);
    // If several variants share a name, the first counts.
    let mut by_place = HashMap::new();
    others.iter().for_each(|other| {
        by_place.entry(other.place()).or_insert(other);
    });
    for variant in &found {
        match by_place.get(&variant.place()) {
            Some(other) => comparison.both.push(Difference {
                technique: variant.technique.into(),
                experiment: variant.experiment.title.clone(),
                point: variant.point.label.clone(),
                variant: variant.measured.name.clone(),
                unit: variant.experiment.unit.clone(),
                first: variant.measured.figure,
                second: other.measured.figure,
                ratios: variant.measured.ratio.zip(other.measured.ratio),
            }),
            None => comparison.first_alone.push(variant.name()),
        }
    }
    let places: HashSet<[&str; 4]> = found.iter().map(Variant::place).collect();
    comparison.second_alone =
        others.iter().filter(|other| !places.contains(&other.place())).map(Variant::name).collect();
    comparison
}

struct Variant<'r> {
    technique: &'r str,
    experiment: &'r crate::results::Experiment,
    point: &'r crate::results::Point,
    measured: &'r crate::results::Measured,
}

impl<'r> Variant<'r> {
    fn place(&self) -> [&'r str; 4] {
        [self.technique, &self.experiment.title, &self.point.label, &self.measured.name]
    }

    fn name(&self) -> String {
        let named: Vec<&str> = self.place().into_iter().filter(|part| !part.is_empty()).collect();
        named.join(", ")
    }
}

fn all(run: &Run) -> Vec<Variant<'_>> {
    let mut found = Vec::new();
    for technique in &run.techniques {
        for experiment in &technique.experiments {
            for point in &experiment.points {
                found.extend(point.variants.iter().map(|measured| Variant {
                    technique: &technique.name,
                    experiment,
                    point,
                    measured,
                }));
            }
        }
    }
    found
}
