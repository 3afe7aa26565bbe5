//! A task: a group of files of one date into the partitions of that date.
//!
//! A [`Task`] is plain data, and [`perform`] needs nothing else: other threads, processes and hosts that see the same
//! files and the same folder can do it. Its files are made in a folder of its own; [`Folder`] publishes them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use jiff::civil::Date;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tapeworks_feed::{Application, ChannelIdentity, clock};
use tapeworks_market::{Publisher, Symbol};
use tapeworks_packet::new_file::NewFile;
use tapeworks_store::{Destination, PartOf, Parts, Schema, Writer};

use super::manifest::{GapRecord, InputRecord, OutputRecord, Record, report_of};
use super::objects::{ObjectInput, Staged};
use super::place::is_address;
use super::{BatchError, Folder, Settings, bucket_of};
use tapeworks_analysis::replay::{self, ReplayError, Summary};

/// Bytes that are hashed between two looks at the request to stop.
const HASHED_BYTES: usize = 1 << 20;

/// The most letters of a task's name.
const MOST_NAME: usize = 120;

/// Venues that a task's name lists.
const NAMED_VENUES: usize = 3;

/// What a task makes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The schemas of the venues themselves, of files that share channels.
    Channels,
    /// The schemas of the synthetic NBBO, of all files of a date.
    Nbbo,
}

/// A task, as plain data.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// Its name: date, venues and a hash of its channels. Its results are under this name.
    pub name: String,
    /// What it makes.
    pub kind: Kind,
    /// The day in New York.
    #[serde(with = "date")]
    pub date: Date,
    /// The channels that the beginnings of its files have.
    pub channels: Vec<String>,
    /// Its files, as they were given, and the addresses of its objects.
    pub inputs: Vec<PathBuf>,
    /// Of each input that is an object, what was listed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<ObjectInput>,
    /// Whether some of its files have no day, so that `date` is theirs.
    pub is_day_given: bool,
    /// What it shares with the other tasks of the folder.
    pub settings: Settings,
}

mod date {
    //! A date as text.

    use jiff::civil::Date;
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(date: &Date, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(date)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Date, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// Why a task has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TaskError {
    /// The replay of its files failed.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// An output cannot be made, read or moved.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// An input cannot be read, though the plan could.
    #[error("{file}: cannot be read: {source}")]
    Unreadable {
        /// The file.
        file: String,
        /// What the system says.
        source: io::Error,
    },
    /// An input was written while the task read it.
    #[error("{file}: changed while it was read")]
    Changed {
        /// The file.
        file: String,
    },
    /// An input that is an object cannot be brought or read, or changed since it was listed.
    #[error("{why}")]
    OfObject {
        /// Why, with the object's address.
        why: String,
    },
    /// The process that an executor had it done by failed, or could not do it.
    #[error("{why}")]
    Elsewhere {
        /// Why.
        why: String,
        /// Whether that process found its inputs to blame.
        is_of_input: bool,
    },
    /// The user stopped it.
    #[error("stopped")]
    Stopped,
}

impl TaskError {
    /// Whether its inputs are to blame; otherwise it is the place of its results.
    #[must_use]
    pub const fn is_of_input(&self) -> bool {
        matches!(
            self,
            Self::Replay(ReplayError::Input(_))
                | Self::Unreadable { .. }
                | Self::Changed { .. }
                | Self::OfObject { .. }
                | Self::Elsewhere { is_of_input: true, .. }
        )
    }

    fn unreadable(path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self::Unreadable { file: path.display().to_string(), source }
    }
}

/// The name of a channel that is the same in every file. A file without packets is a channel by its path.
pub(super) fn channel_key(
    publisher: Publisher,
    application: Application,
    identity: &ChannelIdentity,
    file: &str,
) -> String {
    match identity {
        ChannelIdentity::File { .. } => format!("file {file}"),
        identity => format!("{}, {}, {identity}", publisher.venue_name(), application.protocol()),
    }
}

/// The letters and digits of a name, in lower case, with single dashes between them.
fn slug(name: &str) -> String {
    let words = name.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_ascii_lowercase).collect::<Vec<_>>().join("-")
}

impl Task {
    /// The name of a task for channels of venues.
    pub(super) fn name_of(date: Date, venues: &[&String], channels: &[String]) -> String {
        let venues: Vec<String> = match venues.len() {
            0 => vec!["unknown".to_owned()],
            1..=NAMED_VENUES => venues.iter().map(|venue| slug(venue)).collect(),
            more => vec![format!("{more}-venues")],
        };
        let hash = hex::encode(Sha256::digest(channels.join("\n")));
        format!("{date}-{}-{}", venues.join("-"), hash.get(..12).unwrap_or_default())
    }

    /// Reads a task's description.
    ///
    /// # Errors
    /// [`BatchError::NoTask`].
    pub fn from_json(text: &str) -> Result<Self, BatchError> {
        let task: Self =
            serde_json::from_str(text).map_err(|error| BatchError::NoTask { why: error.to_string() })?;
        let is_letter = |letter: u8| matches!(letter, b'a'..=b'z' | b'0'..=b'9' | b'-');
        // It becomes the name of files.
        let is_name = task.name.starts_with(&format!("{}-", task.date)) && task.name.bytes().all(is_letter);
        if !is_name || task.name.len() > MOST_NAME {
            return Err(BatchError::NoTask { why: format!("its name is {:?}", task.name) });
        }
        Ok(task)
    }

    /// Its description, for [`Task::from_json`].
    #[must_use]
    pub fn to_value(&self) -> serde_json::Value {
        // Names are UTF-8: the plan and the description have no others.
        serde_json::to_value(self).unwrap_or_default()
    }

    /// The schemas that it writes.
    pub fn schemas(&self) -> impl Iterator<Item = Schema> + '_ {
        let is_nbbo = self.kind == Kind::Nbbo;
        self.settings.schemas.iter().copied().filter(move |schema| schema.is_consolidated() == is_nbbo)
    }

    /// The bytes of its files.
    #[must_use]
    pub fn input_bytes(&self) -> u64 {
        let size = |path: &PathBuf| match self.object(path) {
            Some(object) => object.size,
            None => fs::metadata(path).map_or(0, |there| there.len()),
        };
        self.inputs.iter().map(size).fold(0, u64::saturating_add)
    }

    /// What was listed of an input that is an object.
    fn object(&self, path: &Path) -> Option<&ObjectInput> {
        self.objects.iter().find(|object| object.path == path)
    }

    /// How many files it has open at most: its inputs, and each output twice, once to write and once to lock.
    #[must_use]
    pub fn open_files(&self) -> u64 {
        let outputs = self.schemas().count() * usize::from(self.settings.buckets);
        (2 * outputs + self.inputs.len()) as u64
    }

    /// Where the records of a schema and bucket go, below the folder.
    fn output(&self, schema: Schema, bucket: u16) -> PathBuf {
        let digits = self.settings.buckets.saturating_sub(1).to_string().len().max(2);
        let date = self.date.to_string();
        let name = self.name.strip_prefix(&date).unwrap_or(&self.name).trim_start_matches('-');
        PathBuf::from(format!("schema={schema}"))
            .join(format!("date={date}"))
            .join(format!("bucket={bucket:0digits$}"))
            .join(format!("{name}.{}", self.settings.format.name()))
    }
}

/// What a file is: its size and the time of its last change.
fn stamp(path: &Path) -> io::Result<(u64, u64)> {
    let there = fs::metadata(path)?;
    let since = there.modified()?.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Ok((there.len(), u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)))
}

/// The SHA-256 of a file; `None` if `observe` stops it.
pub(super) fn hash(
    path: &Path,
    observe: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> io::Result<Option<String>> {
    let mut file = File::open(path)?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; HASHED_BYTES];
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok(Some(hex::encode(hasher.finalize())));
        }
        hasher.update(buffer.get(..read).unwrap_or_default());
        if observe(0).is_break() {
            return Ok(None);
        }
    }
}

/// The SHA-256 of bytes.
pub(super) fn hash_of(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// Whether a finished task has what `task` would make: it is the same task, its inputs are what they were, and its files are there. An
/// input counts as unchanged if its size and the time of its last change are, or its size and its content.
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
    // Of an object the task itself has the version.
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

/// Does a task and publishes its results in `folder`, in place of those of an earlier run. `observe` gets the bytes of its files that have
/// been replayed, now and then, and may stop it; then nothing is published. Returns the record.
///
/// # Errors
/// [`TaskError`]. A file that turns out to be cut or damaged does not fail the task: the record has it.
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

/// The task in its folder `work`: brings its objects, makes its files, publishes them.
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

/// Brings an object into a local file.
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

/// Refuses what only the feature `cloud` reads.
#[cfg(not(feature = "cloud"))]
fn bring(
    _task: &Task,
    address: &Path,
    _path: &Path,
    _observe: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<InputRecord, TaskError> {
    Err(BatchError::NoCloud { address: address.display().to_string() }.into())
}

/// [`perform`] in a process that does this task alone, beside other processes that do others: locks the task, and does nothing if it is
/// finished already. Otherwise it removes the manifest, which the next run writes again.
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

/// Replays the files into the folder `work`, where the files have the names that they will have below the results' folder.
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

/// Begins the files of a schema.
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
    // The writers are the replay's guests, which its own report shows without a name.
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
pub(super) mod tests {
    use super::*;
    use crate::Access;
    use crate::settings::tests::settings;

    pub(crate) fn task() -> Task {
        Task {
            name: "2025-11-14-nasdaq-0123456789ab".to_owned(),
            kind: Kind::Channels,
            date: Date::new(2025, 11, 14).unwrap(),
            channels: vec!["Nasdaq".to_owned()],
            inputs: vec!["a.pcap".into()],
            objects: Vec::new(),
            is_day_given: true,
            settings: settings(),
        }
    }

    #[test]
    fn a_task_whose_input_is_gone_blames_the_input() {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::open(root.path(), &settings(), Access::Alone, false).unwrap();
        let task = Task { inputs: vec![root.path().join("gone.pcap")], ..task() };
        let failed = perform(&task, &folder, &mut |_| ControlFlow::Continue(())).unwrap_err();
        assert!(matches!(&failed, TaskError::Unreadable { .. }) && failed.is_of_input(), "{failed}");
        assert!(failed.to_string().contains("gone.pcap: cannot be read: "), "{failed}");
    }

    #[test]
    fn a_task_survives_being_plain_data() {
        let text = task().to_value().to_string();
        assert_eq!(Task::from_json(&text).unwrap(), task());
        assert!(text.contains("\"date\":\"2025-11-14\""), "{text}");
    }

    #[test]
    fn a_description_cannot_name_a_file_elsewhere() {
        for name in ["../2025-11-14-x", "2025-11-14-a/b", "2025-11-14-A", "2025-11-15-a", ""] {
            let text = Task { name: name.to_owned(), ..task() }.to_value().to_string();
            assert!(matches!(Task::from_json(&text), Err(BatchError::NoTask { .. })), "{name}");
        }
        assert!(matches!(Task::from_json("{}"), Err(BatchError::NoTask { .. })));
    }

    #[test]
    fn a_tasks_name_lists_its_venues_or_counts_them() {
        let date = Date::new(2025, 11, 14).unwrap();
        let venues: Vec<String> =
            ["Cboe BZX", "Nasdaq", "NYSE (SIP)", "x"].iter().map(|&name| name.to_owned()).collect();
        let venues: Vec<&String> = venues.iter().collect();
        let name = |count| Task::name_of(date, &venues[..count], &["one".to_owned()]);
        assert!(name(3).starts_with("2025-11-14-cboe-bzx-nasdaq-nyse-sip-"), "{}", name(3));
        assert!(name(4).starts_with("2025-11-14-4-venues-"), "{}", name(4));
        assert!(name(0).starts_with("2025-11-14-unknown-"), "{}", name(0));
    }

    #[test]
    fn outputs_lie_in_partitions_that_sort_by_bucket() {
        let task = task();
        let path = |buckets, bucket| {
            let settings = Settings { buckets, ..settings() };
            Task { settings, ..task.clone() }.output(Schema::Mbo, bucket).display().to_string()
        };
        assert_eq!(path(4, 3), "schema=mbo/date=2025-11-14/bucket=03/nasdaq-0123456789ab.parquet");
        assert_eq!(path(1_000, 3), "schema=mbo/date=2025-11-14/bucket=003/nasdaq-0123456789ab.parquet");
        assert_eq!(task.schemas().collect::<Vec<_>>(), [Schema::Mbo]);
    }
}
