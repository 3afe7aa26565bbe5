//! Two runs beside each other: two machines, or two commits.

use crate::results::Run;
use crate::statistics::Estimate;

/// A variant that both runs have.
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
    /// The ratios to the baseline in both runs, where the variant has one.
    pub ratios: Option<(Estimate, Estimate)>,
}

impl Difference {
    /// Whether the intervals of the ratios, or of the figures where there are none, lie apart by more than the noise of both runs.
    #[must_use]
    pub fn is_clear(&self, noise: f64) -> bool {
        let (first, second) = self.ratios.unwrap_or((self.first, self.second));
        second.low > first.high * (1.0 + noise) || second.high < first.low * (1.0 - noise)
    }
}

/// What both runs have, and the names of what only one has.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Comparison {
    /// Variants of both runs, in the order of the first.
    pub both: Vec<Difference>,
    /// Variants of the first run alone.
    pub first_alone: Vec<String>,
    /// Variants of the second run alone.
    pub second_alone: Vec<String>,
}

/// Compares two runs.
#[must_use]
pub fn compare(first: &Run, second: &Run) -> Comparison {
    let mut comparison = Comparison::default();
    let found = all(first);
    let others = all(second);
    for variant in &found {
        match others.iter().find(|other| other.place() == variant.place()) {
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
    comparison.second_alone = others
        .iter()
        .filter(|other| found.iter().all(|variant| variant.place() != other.place()))
        .map(Variant::name)
        .collect();
    comparison
}

struct Variant<'r> {
    technique: &'r str,
    experiment: &'r crate::results::Experiment,
    point: &'r crate::results::Point,
    measured: &'r crate::results::Measured,
}

impl Variant<'_> {
    fn place(&self) -> [&str; 4] {
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
