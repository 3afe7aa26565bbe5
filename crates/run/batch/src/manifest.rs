//! The record of a task's results, and the manifest of all tasks.
//!
//! Neither contains the time of its creation, so the same inputs and settings give the same manifest, in whatever processes and
//! order the tasks are done.

use std::collections::BTreeMap;
use std::path::PathBuf;

use jiff::civil::Date;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{FailedInput, FailedTask, Kind, Settings, Task};
use tapeworks_analysis::replay::Summary;

/// File name of the manifest in the folder.
pub const MANIFEST: &str = "manifest.json";

/// A file that a task has read.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct InputRecord {
    /// Its path.
    pub path: PathBuf,
    /// Its size in bytes.
    pub size: u64,
    /// Time of its last change, in nanoseconds since 1970; 0 for an object, whose version is in the task. Not in the manifest.
    pub modified_ns: u64,
    /// Its SHA-256, in hexadecimal.
    pub sha256: String,
}

/// A file that a task has written.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OutputRecord {
    /// Its path below the folder.
    pub path: PathBuf,
    /// The schema.
    pub schema: String,
    /// The bucket.
    pub bucket: u16,
    /// Number of records.
    pub records: u64,
    /// Its size in bytes.
    pub bytes: u64,
    /// Its SHA-256, in hexadecimal.
    pub sha256: String,
    /// Values that did not fit the file's format and were left empty.
    pub values_out_of_range: u64,
}

/// Messages that a channel is missing.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GapRecord {
    /// The channel.
    pub channel: String,
    /// The number of the first missing message.
    pub first: u64,
    /// How many are missing.
    pub count: u64,
    /// When the message after them was received, in UTC.
    pub received: String,
}

/// A finished task.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Record {
    /// The task.
    pub task: Task,
    /// The channels found in its files.
    pub channels: Vec<String>,
    /// The files that it read.
    pub inputs: Vec<InputRecord>,
    /// The files that it wrote: a bucket without records has no file.
    pub outputs: Vec<OutputRecord>,
    /// The first gaps, in time order: see [`KEPT_GAPS`](tapeworks_analysis::replay::KEPT_GAPS).
    pub gaps: Vec<GapRecord>,
    /// Number of missing messages over all channels.
    pub missing_messages: u64,
    /// Truncated or damaged files; what was before the damage is processed.
    pub damaged_files: Vec<String>,
    /// The requested symbols without a message.
    pub unseen_symbols: Vec<String>,
    /// Whether everything was understood and nothing was missing. A requested symbol may be missing.
    pub is_clean: bool,
    /// The replay's counters and problems.
    pub report: Value,
}

impl Record {
    /// Returns what the input has but the results cannot hold, one line each: see [`Summary::lacking`].
    pub fn lacking(&self) -> impl Iterator<Item = &str> {
        self.report["lacking"].as_array().into_iter().flatten().filter_map(Value::as_str)
    }

    /// Converts the record to plain data.
    #[must_use]
    pub fn to_value(&self) -> Value {
        // All names are UTF-8: the plan accepts no others.
        serde_json::to_value(self).unwrap_or_default()
    }
}

/// A channel that two tasks of a date share, which the beginnings of their files did not show. Its records are present twice.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct SharedChannel {
    /// The date.
    pub date: String,
    /// The channel.
    pub channel: String,
    /// The tasks.
    pub tasks: Vec<String>,
}

/// Fields of a replay's summary that depend on how it was run or on the machine; they are not recorded.
const NOT_RECORDED: [&str; 11] = [
    "is_interrupted",
    "elapsed_seconds",
    "messages_per_second",
    "mean_ns_per_message",
    "service_time_ns",
    "worst_lateness_ns",
    "written",
    "first_gaps",
    "files",
    "damaged_files",
    "unseen_symbols",
];

/// Returns the part of a replay's summary that is recorded.
pub(super) fn report_of(summary: &Summary) -> Value {
    match summary.to_json() {
        Value::Object(all) => all
            .into_iter()
            .filter(|(name, _)| !NOT_RECORDED.contains(&name.as_str()))
            .collect::<Map<_, _>>()
            .into(),
        other => other,
    }
}

/// Returns the channels that more than one task of a date has.
pub(super) fn shared_channels(records: &BTreeMap<String, Record>) -> Vec<SharedChannel> {
    let mut tasks: BTreeMap<(Date, &str), Vec<String>> = BTreeMap::new();
    for record in records.values().filter(|record| record.task.kind == Kind::Channels) {
        for channel in &record.channels {
            tasks.entry((record.task.date, channel)).or_default().push(record.task.name.clone());
        }
    }
    let shared = tasks.into_iter().filter(|(_, tasks)| tasks.len() > 1);
    shared
        .map(|((date, channel), tasks)| SharedChannel {
            date: date.to_string(),
            channel: channel.to_owned(),
            tasks,
        })
        .collect()
}

fn task(record: &Record) -> Value {
    let Record { task, channels, inputs, outputs, gaps, .. } = record;
    let input =
        |input: &InputRecord| json!({ "path": input.path, "size": input.size, "sha256": input.sha256 });
    json!({
        "name": task.name,
        "kind": task.kind,
        "date": task.date.to_string(),
        "channels": channels,
        "is_clean": record.is_clean,
        "missing_messages": record.missing_messages,
        "inputs": inputs.iter().map(input).collect::<Vec<_>>(),
        "outputs": outputs,
        "gaps": gaps,
        "damaged_files": record.damaged_files,
        "unseen_symbols": record.unseen_symbols,
        "report": record.report,
    })
}

/// Formats the manifest.
pub(super) fn manifest(
    settings: &Settings,
    records: &BTreeMap<String, Record>,
    failed_inputs: &[FailedInput],
    failed_tasks: &[FailedTask],
    shared: &[SharedChannel],
) -> String {
    let outputs = || records.values().flat_map(|record| &record.outputs);
    let failed = |failed: &FailedTask| json!({ "name": failed.task.name, "error": failed.error.to_string() });
    let manifest = json!({
        "settings": settings.to_value(),
        "totals": {
            "tasks": records.len(),
            "files": outputs().count(),
            "records": outputs().map(|output| output.records).fold(0, u64::saturating_add),
            "bytes": outputs().map(|output| output.bytes).fold(0, u64::saturating_add),
        },
        "failed_inputs": failed_inputs,
        "failed_tasks": failed_tasks.iter().map(failed).collect::<Vec<_>>(),
        "shared_channels": shared,
        "tasks": records.values().map(task).collect::<Vec<_>>(),
    });
    format!("{manifest:#}\n")
}
