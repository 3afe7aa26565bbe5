//! The results of a lab run, stored as JSON.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::counters::Events;
use crate::machine::Machine;
use crate::statistics::{Better, Estimate, Verdict, show};

/// The version of the file format. It increases with each change that an older program cannot read.
pub const FORMAT: u32 = 1;

/// One run: the machine, the settings, and the results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The version of the file format.
    pub format: u32,
    /// The program that measured.
    pub program: String,
    /// The start of the run, ISO 8601 in UTC.
    pub began: String,
    /// Whether the run was quick, with small sizes and few rounds.
    pub quick: bool,
    /// Rounds per variant.
    pub rounds: usize,
    /// The machine.
    pub machine: Machine,
    /// How far the ratio of two equal variants deviated from 1; smaller differences do not count.
    pub noise: f64,
    /// The techniques, in catalogue order.
    pub techniques: Vec<TechniqueResult>,
}

/// The results of one technique.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TechniqueResult {
    /// Its name on the command line.
    pub name: String,
    /// Its title.
    pub title: String,
    /// Its experiments, including the completed ones if it failed.
    pub experiments: Vec<Experiment>,
    /// Skipped parts, and why.
    pub skipped: Vec<String>,
    /// Why it ended early; further results would be wrong.
    #[serde(default)]
    pub failed: Option<String>,
}

/// Variants at one or more points.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Experiment {
    /// What is compared.
    pub title: String,
    /// The unit of the figures: `ns`.
    pub unit: String,
    /// The divisor of the figures: `element`.
    pub per: String,
    /// Which direction is better.
    pub better: Better,
    /// The quantity that changes from point to point.
    pub axis: Option<Axis>,
    /// The points, in axis order.
    pub points: Vec<Point>,
}

/// The quantity that changes from point to point.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Axis {
    /// Its name, including the unit: `elements`.
    pub name: String,
    /// How it is drawn.
    pub scale: Scale,
}

/// How an axis is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// Linear, by value.
    Linear,
    /// Logarithmic, by value.
    Logarithmic,
    /// One position per name.
    Names,
}

/// The variants at one point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Its position on the axis.
    pub x: f64,
    /// Its name.
    pub label: String,
    /// Items per call of a variant.
    pub items: u64,
    /// The variants; the first is the baseline.
    pub variants: Vec<Measured>,
}

/// One variant at one point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The variant's name.
    pub name: String,
    /// Its figure in the experiment's unit.
    pub figure: Estimate,
    /// Its ratio to the baseline, from each round; `None` for the baseline.
    pub ratio: Option<Estimate>,
    /// The verdict on the ratio.
    pub verdict: Option<Verdict>,
    /// The distribution of single operations, if they were measured individually.
    pub tail: Option<Tail>,
    /// Processor events per item, if they are counted.
    pub events: Option<Events>,
    /// Other figures of this variant, named with their unit: `CPU used, %`.
    pub others: Vec<Other>,
}

/// Another figure of a variant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Other {
    /// Its name, including the unit.
    pub name: String,
    /// The median of the rounds.
    pub value: f64,
}

/// Percentiles of single operations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tail {
    /// The number of operations.
    pub count: u64,
    /// Fractions (0.5 for the median), each with the value that this fraction of operations does not exceed.
    pub percentiles: Vec<(f64, f64)>,
}

/// Why a results file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ResultsError {
    /// The file cannot be read or written.
    #[error("{path}: {error}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The file does not contain results.
    #[error("{path}: no results of the lab: {error}", path = path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The position and the cause.
        error: serde_json::Error,
    },
    /// A text contains control characters, which could move a terminal's cursor or change its colours. No run writes them.
    #[error("{path}: no results of the lab: a text in it has control characters", path = path.display())]
    Control {
        /// The file.
        path: PathBuf,
    },
    /// A technique has an invalid name. Names become file names.
    #[error("{path}: no results of the lab: `{name}` is no name of a technique", path = path.display())]
    Name {
        /// The file.
        path: PathBuf,
        /// The name.
        name: String,
    },
    /// The file has another format version.
    #[error("{path}: results of format {found}, and this program reads {FORMAT}", path = path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// Its format version.
        found: u32,
    },
    /// Another program or machine measured the results, or the settings differ.
    #[error("{path}: these results cannot be added to: {why}", path = path.display())]
    Differs {
        /// The file.
        path: PathBuf,
        /// The difference.
        why: &'static str,
    },
}

impl Experiment {
    /// Returns the unit of its figures, with the divisor: `ns a number`.
    #[must_use]
    pub fn unit(&self) -> String {
        if self.per.is_empty() {
            return self.unit.clone();
        }
        let article = if self.per.starts_with(['a', 'e', 'i', 'o']) { "an" } else { "a" };
        format!("{} {article} {}", self.unit, self.per)
    }
}

/// Returns whether a text or a key contains control characters.
fn has_control(value: &Value) -> bool {
    let in_text = |text: &str| text.chars().any(char::is_control);
    match value {
        Value::String(text) => in_text(text),
        Value::Array(values) => values.iter().any(has_control),
        Value::Object(fields) => fields.iter().any(|(name, value)| in_text(name) || has_control(value)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

impl Tail {
    /// Returns the value that this fraction of operations (0.99, or 1.0 for all) does not exceed, if it was stored.
    #[must_use]
    pub fn at(&self, part: f64) -> Option<f64> {
        self.percentiles.iter().find(|(found, _)| *found == part).map(|(_, value)| *value)
    }
}

impl Experiment {
    /// Returns whether single operations were measured.
    #[must_use]
    pub fn has_tails(&self) -> bool {
        self.points.iter().flat_map(|point| &point.variants).any(|variant| variant.tail.is_some())
    }
}

/// The tail's table columns: 99 %, 99.9 % and the longest operation.
pub const TAIL_COLUMNS: [(&str, f64); 3] = [("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)];

impl Measured {
    /// Returns the cells for [`TAIL_COLUMNS`]; empty if no single operations were measured.
    #[must_use]
    pub fn tail_cells(&self) -> [String; 3] {
        TAIL_COLUMNS
            .map(|(_, part)| self.tail.as_ref().and_then(|tail| tail.at(part)).map_or_else(String::new, show))
    }

    /// Returns the verdict in a sentence, followed by the other figures.
    #[must_use]
    pub fn remarks(&self) -> String {
        let mut remarks: Vec<String> = self
            .verdict
            .zip(self.ratio)
            .map(|(verdict, ratio)| verdict.sentence(&ratio))
            .into_iter()
            .collect();
        remarks.extend(self.others.iter().map(|other| format!("{}: {}", other.name, show(other.value))));
        remarks.join("; ")
    }
}

impl Run {
    /// Reads a results file.
    ///
    /// # Errors
    /// The file cannot be read, has other contents, or has another format version.
    pub fn read(path: &Path) -> Result<Self, ResultsError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| ResultsError::File { path: path.to_owned(), error })?;
        let content = |error| ResultsError::Content { path: path.to_owned(), error };
        let run: Self = serde_json::from_str(&text).map_err(content)?;
        if has_control(&serde_json::from_str(&text).map_err(content)?) {
            return Err(ResultsError::Control { path: path.to_owned() });
        }
        let is_name = |name: &str| name.chars().all(|found| found.is_ascii_alphanumeric() || found == '-');
        if let Some(wrong) = run.techniques.iter().find(|technique| !is_name(&technique.name)) {
            return Err(ResultsError::Name { path: path.to_owned(), name: wrong.name.clone() });
        }
        if run.format != FORMAT {
            return Err(ResultsError::Format { path: path.to_owned(), found: run.format });
        }
        Ok(run)
    }

    /// Returns the run as JSON on one line.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Numbers that JSON lacks become null; every key is a string.
        let mut text = serde_json::to_string(self).unwrap_or_default();
        text.push('\n');
        text
    }
}
