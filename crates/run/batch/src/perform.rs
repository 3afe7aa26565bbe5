//! Performs a task: replays its files into a separate folder, which [`Folder`] publishes.
//!
//! A task is self-contained: other threads, processes and hosts that see the same files and the same folder can perform it.

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use tapeworks_analysis::replay::{self, ReplayError, Summary};
use tapeworks_capture::new_file::NewFile;
use tapeworks_feed::ChannelIdentity;
use tapeworks_market::Symbol;
use tapeworks_store::{Destination, PartOf, Parts, Schema, Writer};
use tapeworks_time::clock;

use super::hash::{hash, stamp};
use super::manifest::{GapRecord, InputRecord, OutputRecord, Record, report_of};
use super::objects::Staged;
use super::place::is_address;
use super::task::channel_key;
use super::{BatchError, Folder, Task, TaskError, bucket_of};

/// Whether a finished task is up to date: it is the same task, its inputs are unchanged, and its files exist. An input counts as
/// unchanged if its size and the time of its last change are the same, or its size and its contents.
///
/// # Errors
/// [`TaskError::Stopped`]; [`TaskError::Batch`] if a store does not answer.
pub(super) fn is_current(
    record: &Record,
    task: &Task,
    folder: &Folder,
    observe: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<bool, TaskError> {
    if record.task != *task {
        return Ok(false);
    }
    if !folder.has(&record.outputs)? {
        return Ok(false);
    }
    // The version of an object is part of the task.
    for input in record.inputs.iter().filter(|input| !is_address(&input.path)) {
        match stamp(&input.path) {
            Ok((size, modified)) if (size, modified) == (input.size, input.modified_ns) => {}
            Ok((size, _)) if size == input.size => match hash(&input.path, observe) {
                Ok(Some(sha256)) if sha256 == input.sha256 => {}
                Ok(None) => return Err(TaskError::Stopped),
                Ok(Some(_)) | Err(_) => return Ok(false),
            },
            Ok(_) | Err(_) => return Ok(false),
        }
    }
    Ok(true)
}

/// Runs a task and publishes its results in `folder`, replacing those of an earlier run. `observe` is called from time to time with the
/// bytes replayed so far; if it stops the task, nothing is published. Returns the record.
///
/// # Errors
/// [`TaskError`]. A truncated or damaged file does not fail the task: the record reports it.
pub fn perform(
    task: &Task,
    folder: &Folder,
    observe: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<Record, TaskError> {
    let mut inputs = BTreeMap::new();
    for (index, path) in task.inputs.iter().enumerate().filter(|(_, path)| !is_address(path)) {
        let unreadable = TaskError::unreadable(path);
        let (size, modified_ns) = stamp(path).map_err(&unreadable)?;
        let sha256 = hash(path, observe).map_err(&unreadable)?.ok_or(TaskError::Stopped)?;
        inputs.insert(index, InputRecord { path: path.clone(), size, modified_ns, sha256 });
    }
    let work = folder.begin(&task.name)?;
    let record = perform_in(task, folder, &work, inputs, observe);
    folder.end(&work);
    record
}

/// Performs the task in its work folder: downloads its objects, creates its files, and publishes them.
fn perform_in(
    task: &Task,
    folder: &Folder,
    work: &Path,
    mut inputs: BTreeMap<usize, InputRecord>,
    observe: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<Record, TaskError> {
    let mut staged = Staged::default();
    let mut files = task.inputs.clone();
    for (index, file) in files.iter_mut().enumerate().filter(|(_, file)| is_address(file)) {
        let path = staged.path(work, index, file);
        inputs.insert(index, bring(task, file, &path, observe)?);
        *file = path;
    }
    let made = make(task, files, work, observe);
    let (summary, outputs) = match made {
        Err(error @ TaskError::Replay(_)) if error.is_of_input() && !staged.is_empty() => {
            return Err(TaskError::OfObject { why: staged.renamed(&error.to_string()) });
        }
        made => made?,
    };
    for input in inputs.values().filter(|input| !is_address(&input.path)) {
        if stamp(&input.path).map_err(TaskError::unreadable(&input.path))? != (input.size, input.modified_ns)
        {
            return Err(TaskError::Changed { file: input.path.display().to_string() });
        }
    }
    let mut record = record_of(task, inputs.into_values().collect(), outputs, summary);
    if !staged.is_empty() {
        let mut value = record.to_value();
        staged.rename_all(&mut value);
        let why = |error: serde_json::Error| BatchError::NoTask { why: error.to_string() };
        record = serde_json::from_value(value).map_err(why)?;
    }
    folder.publish(&record, work)?;
    Ok(record)
}

/// Downloads an object into a local file.
#[cfg(feature = "cloud")]
fn bring(
    task: &Task,
    address: &Path,
    path: &Path,
    observe: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<InputRecord, TaskError> {
    let unlisted = || TaskError::OfObject {
        why: format!("{}: the task lacks what was listed of it", address.display()),
    };
    let object = task.object(address).ok_or_else(unlisted)?;
    let sha256 = super::objects::bring(object, path, observe)?;
    Ok(InputRecord { path: address.to_owned(), size: object.size, modified_ns: 0, sha256 })
}

/// Rejects an object, which only the feature `cloud` supports.
#[cfg(not(feature = "cloud"))]
fn bring(
    _task: &Task,
    address: &Path,
    _path: &Path,
    _observe: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<InputRecord, TaskError> {
    Err(BatchError::NoCloud { address: address.display().to_string() }.into())
}

/// Like [`perform`], in a process that does only this task, beside other processes that do other tasks: it locks the task, and does
/// nothing if the task is already finished. Otherwise it removes the manifest, which the next run writes again.
///
/// # Errors
/// As [`perform`], and [`BatchError::TaskBusy`].
pub fn perform_here(
    task: &Task,
    folder: &Folder,
    observe: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<Record, TaskError> {
    let _lock = folder.lock_task(&task.name)?;
    if let Some(record) = folder.finished(&task.name)?
        && is_current(&record, task, folder, observe)?
    {
        return Ok(record);
    }
    folder.remove_manifest()?;
    perform(task, folder, observe)
}

/// Replays the files into `work`, where the outputs have the names that they will have below the results' folder.
fn make(
    task: &Task,
    files: Vec<PathBuf>,
    work: &Path,
    observe: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<(Summary, Vec<OutputRecord>), TaskError> {
    let settings = &task.settings;
    let schemas: Vec<Schema> = task.schemas().collect();
    let options = replay::Options {
        inputs: files,
        application: settings.protocol,
        midnight: clock::midnight_of(task.date).filter(|_| task.is_day_given),
        symbols: settings.symbols.as_ref().map(|symbols| symbols.iter().copied().collect()),
        rules: settings.rules(),
        threads: 1,
        ..replay::Options::default()
    };
    let mut writers = Vec::new();
    let mut parts = BTreeMap::new();
    for (place, schema) in schemas.iter().enumerate() {
        let (writer, written) = open(task, *schema, work)?;
        writers.push((*schema, writer));
        parts.insert(place, written);
    }
    let mut observe_replay = |progress: &replay::Progress| observe(progress.bytes);
    let summary = replay::replay_into(&options, writers, &mut observe_replay)?;
    if summary.is_interrupted {
        return Err(TaskError::Stopped);
    }
    let mut outputs = Vec::new();
    for (schema, written) in schemas.iter().zip(parts.values()) {
        for (bucket, part) in (0..).zip(written.written()) {
            let path = task.output(*schema, bucket);
            let made = work.join(&path);
            if part.records == 0 {
                fs::remove_file(&made).map_err(BatchError::io(&made, "cannot be removed"))?;
                continue;
            }
            let sha256 = hash(&made, observe).map_err(BatchError::io(&made, "cannot be read"))?;
            let sha256 = sha256.ok_or(TaskError::Stopped)?;
            outputs.push(OutputRecord {
                path,
                schema: schema.to_string(),
                bucket,
                records: part.records,
                bytes: part.bytes,
                sha256,
                values_out_of_range: part.out_of_range,
            });
        }
    }
    Ok((summary, outputs))
}

/// Creates the files of a schema.
fn open(task: &Task, schema: Schema, work: &Path) -> Result<(Writer, Parts), TaskError> {
    let settings = &task.settings;
    let mut files: Vec<Box<dyn Destination>> = Vec::new();
    for bucket in 0..settings.buckets {
        let path = work.join(task.output(schema, bucket));
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(BatchError::io(parent, "cannot be made"))?;
        }
        files.push(Box::new(NewFile::create(&path, false).map_err(BatchError::from)?));
    }
    let options =
        tapeworks_store::Options { format: Some(settings.format), ..tapeworks_store::Options::default() };
    let buckets = settings.buckets;
    let part_of: PartOf = Box::new(move |symbol: Symbol| usize::from(bucket_of(symbol, buckets)));
    let together = work.join(format!("schema={schema}"));
    Ok(Writer::create_parts(&together, files, part_of, schema, &options).map_err(ReplayError::from)?)
}

fn record_of(
    task: &Task,
    inputs: Vec<InputRecord>,
    outputs: Vec<OutputRecord>,
    mut summary: Summary,
) -> Record {
    let report = report_of(&summary);
    // A venue need not have every symbol.
    let unseen_symbols = std::mem::take(&mut summary.unseen_symbols);
    let channel = |index: usize| {
        let channel = summary.channels.get(index)?;
        let file = match channel.identity {
            ChannelIdentity::File { file } => summary.files.get(usize::from(file)),
            _ => None,
        };
        let file = file.map_or("", String::as_str);
        Some(channel_key(channel.publisher, channel.application, &channel.identity, file))
    };
    let gaps = summary.gaps.iter().map(|gap| GapRecord {
        channel: channel(gap.channel).unwrap_or_default(),
        first: gap.first,
        count: gap.count,
        received: clock::iso(gap.received),
    });
    // The task's writers were passed to the replay, whose own report lists them without names.
    let lost = outputs.iter().map(|output| output.values_out_of_range).fold(0, u64::saturating_add);
    Record {
        task: task.clone(),
        channels: (0..summary.channels.len()).filter_map(channel).collect(),
        inputs,
        outputs,
        gaps: gaps.collect(),
        missing_messages: summary.missing_messages(),
        damaged_files: summary.complaints().collect(),
        unseen_symbols: unseen_symbols.iter().map(ToString::to_string).collect(),
        is_clean: summary.is_clean() && lost == 0,
        report,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Access;
    use crate::settings::tests::settings;
    use crate::task::tests::task;

    #[test]
    fn a_task_whose_input_is_gone_blames_the_input() {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::open(root.path(), &settings(), Access::Alone, false).unwrap();
        let task = Task { inputs: vec![root.path().join("gone.pcap")], ..task() };
        let failed = perform(&task, &folder, &mut |_| ControlFlow::Continue(())).unwrap_err();
        assert!(matches!(&failed, TaskError::Unreadable { .. }) && failed.is_of_input(), "{failed}");
        assert!(failed.to_string().contains("gone.pcap: cannot be read: "), "{failed}");
    }
}
