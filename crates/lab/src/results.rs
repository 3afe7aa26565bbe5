//! What a run of the lab found, as JSON keeps it.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::counters::Events;
use crate::machine::Machine;
use crate::statistics::{Better, Estimate, Verdict, show};

/// The layout of the file: a change that an older program cannot read has a higher number.
pub const FORMAT: u32 = 1;

/// One run: the machine, how it was measured, and what was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The layout of the file.
    pub format: u32,
    /// Which program measured.
    pub program: String,
    /// When the run began, ISO 8601 in UTC.
    pub began: String,
    /// Whether it was a quick run: small sizes and few rounds.
    pub quick: bool,
    /// Rounds of each variant.
    pub rounds: usize,
    /// The machine.
    pub machine: Machine,
    /// How far the ratio of two equal variants lay from 1: no smaller difference is called one.
    pub noise: f64,
    /// The techniques, in the order of the catalogue.
    pub techniques: Vec<TechniqueResult>,
}

/// What was found about one technique.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TechniqueResult {
    /// Its name on the command line.
    pub name: String,
    /// Its title.
    pub title: String,
    /// Its experiments; those that ended before something failed, too.
    pub experiments: Vec<Experiment>,
    /// What was left out, and why.
    pub skipped: Vec<String>,
    /// Why it ended early: what it would have found would be wrong.
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
    /// For each what: `element`.
    pub per: String,
    /// Which direction is good.
    pub better: Better,
    /// What changes from point to point.
    pub axis: Option<Axis>,
    /// The points, in the order of the axis.
    pub points: Vec<Point>,
}

/// What changes from point to point.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Axis {
    /// Its name, with the unit: `elements`.
    pub name: String,
    /// How it is drawn.
    pub scale: Scale,
}

/// How an axis is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// By values.
    Linear,
    /// By their logarithms.
    Logarithmic,
    /// One place for each, by name.
    Names,
}

/// The variants at one point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Its place on the axis.
    pub x: f64,
    /// Its name.
    pub label: String,
    /// Items of one call of a variant.
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
    /// Its ratio to the baseline, round by round; `None` for the baseline.
    pub ratio: Option<Estimate>,
    /// What the ratio says.
    pub verdict: Option<Verdict>,
    /// The distribution of single operations, where they were measured one by one.
    pub tail: Option<Tail>,
    /// Events of the processor for each item, where it counts them.
    pub events: Option<Events>,
    /// Other figures of this variant, by name with unit: `CPU used, %`.
    pub others: Vec<Other>,
}

/// Another figure of a variant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Other {
    /// Its name, with the unit.
    pub name: String,
    /// The median of the rounds.
    pub value: f64,
}

/// Percentiles of single operations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tail {
    /// How many operations there are.
    pub count: u64,
    /// Parts (0.5 for the median) and the value that so many do not exceed.
    pub percentiles: Vec<(f64, f64)>,
}

/// Why a file of results is not read.
#[derive(Debug, thiserror::Error)]
pub enum ResultsError {
    /// It cannot be read or written.
    #[error("{path}: {error}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It is no such file.
    #[error("{path}: no results of the lab: {error}", path = path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// Where, and why.
        error: serde_json::Error,
    },
    /// It holds characters that move a terminal's cursor or change its colours: no run writes them.
    #[error("{path}: no results of the lab: a text in it has control characters", path = path.display())]
    Control {
        /// The file.
        path: PathBuf,
    },
    /// A technique has a name that is none: names become those of files.
    #[error("{path}: no results of the lab: `{name}` is no name of a technique", path = path.display())]
    Name {
        /// The file.
        path: PathBuf,
        /// The name.
        name: String,
    },
    /// It has another layout.
    #[error("{path}: results of format {found}, and this program reads {FORMAT}", path = path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// Its layout.
        found: u32,
    },
    /// Another program or machine measured them, or in another way.
    #[error("{path}: these results cannot be added to: {why}", path = path.display())]
    Differs {
        /// The file.
        path: PathBuf,
        /// The difference.
        why: &'static str,
    },
}

impl Experiment {
    /// The unit of its figures, with what they are for: `ns a number`.
    #[must_use]
    pub fn unit(&self) -> String {
        if self.per.is_empty() {
            return self.unit.clone();
        }
        let article = if self.per.starts_with(['a', 'e', 'i', 'o']) { "an" } else { "a" };
        format!("{} {article} {}", self.unit, self.per)
    }
}

/// Whether a text in it, or a name, has control characters.
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
    /// What so many operations (0.99 of them, or all: 1.0) take at most, if it was kept.
    #[must_use]
    pub fn at(&self, part: f64) -> Option<f64> {
        self.percentiles.iter().find(|(found, _)| *found == part).map(|(_, value)| *value)
    }
}

impl Experiment {
    /// Whether single operations were measured.
    #[must_use]
    pub fn has_tails(&self) -> bool {
        self.points.iter().flat_map(|point| &point.variants).any(|variant| variant.tail.is_some())
    }
}

/// The columns of a tail in tables: 99 %, 99.9 % and the longest operation.
pub const TAIL_COLUMNS: [(&str, f64); 3] = [("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)];

impl Measured {
    /// Its cells in the columns of [`TAIL_COLUMNS`]; empty where no single operations were measured.
    #[must_use]
    pub fn tail_cells(&self) -> [String; 3] {
        TAIL_COLUMNS
            .map(|(_, part)| self.tail.as_ref().and_then(|tail| tail.at(part)).map_or_else(String::new, show))
    }

    /// The verdict in a sentence, and the other figures behind it.
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
    /// Reads a file of results.
    ///
    /// # Errors
    /// When it cannot be read, holds something else, or has another layout.
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

    /// The run as JSON on one line.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Numbers that JSON lacks become null; every key is a text.
        let mut text = serde_json::to_string(self).unwrap_or_default();
        text.push('\n');
        text
    }
}
