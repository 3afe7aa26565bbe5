//! A task: converts a group of files of one date into the partitions of that date.
//!
//! A [`Task`] is plain data: [`perform`](super::perform()) needs nothing else.

use std::path::{Path, PathBuf};
use std::{fs, io};

use jiff::civil::Date;
use serde::{Deserialize, Serialize};
use tapeworks_analysis::replay::ReplayError;
use tapeworks_feed::{Application, ChannelIdentity};
use tapeworks_market::Publisher;
use tapeworks_store::Schema;

use super::hash::hash_of;
use super::{BatchError, Settings};

/// Maximum length of a task's name.
const MOST_NAME: usize = 120;

/// Maximum number of venues that a task's name lists.
const NAMED_VENUES: usize = 3;

/// What a task produces.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The schemas of individual venues, from files that share channels.
    Channels,
    /// The schemas of the synthetic NBBO, from all files of a date.
    Nbbo,
}

/// An object that a task reads, as listed by the store.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObjectInput {
    /// Its address.
    pub path: PathBuf,
    /// Its size in bytes.
    pub size: u64,
    /// A value that changes when the object does: its entity tag, or the time of its last change.
    pub version: String,
}

/// A task, as plain data.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// Its name: date, venues and a hash of its channels. Its results are stored under this name.
    pub name: String,
    /// What it produces.
    pub kind: Kind,
    /// The day in New York.
    #[serde(with = "date")]
    pub date: Date,
    /// The channels found at the beginnings of its files.
    pub channels: Vec<String>,
    /// Its files, as they were given, and the addresses of its objects.
    pub inputs: Vec<PathBuf>,
    /// The listed size and version of each input that is an object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<ObjectInput>,
    /// Whether some of its files have no day of their own, so that `date` applies to them.
    pub is_day_given: bool,
    /// The settings that it shares with the folder's other tasks.
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
    /// An output cannot be created, read or moved.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// An input cannot be read now, although the plan could read it.
    #[error("{file}: cannot be read: {source}")]
    Unreadable {
        /// The file.
        file: String,
        /// The system's error.
        source: io::Error,
    },
    /// An input was modified while the task read it.
    #[error("{file}: changed while it was read")]
    Changed {
        /// The file.
        file: String,
    },
    /// An input that is an object cannot be downloaded or read, or has changed since it was listed.
    #[error("{why}")]
    OfObject {
        /// Why, with the object's address.
        why: String,
    },
    /// The process that an executor used for the task failed, or could not do the task.
    #[error("{why}")]
    Elsewhere {
        /// Why.
        why: String,
        /// Whether that process found the inputs to be at fault.
        is_of_input: bool,
    },
    /// The user stopped it.
    #[error("stopped")]
    Stopped,
}

impl TaskError {
    /// Whether its inputs are at fault; otherwise the location of its results is.
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

    pub(super) fn unreadable(path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self::Unreadable { file: path.display().to_string(), source }
    }
}

/// A task without a result.
#[derive(Debug)]
pub struct FailedTask {
    /// The task.
    pub task: Task,
    /// Why.
    pub error: TaskError,
}

/// Returns a name for a channel that is the same in every file. A file without packets is a channel named by its path.
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

/// Returns the letters and digits of a name, in lower case, with single dashes between words.
fn slug(name: &str) -> String {
    let words = name.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_ascii_lowercase).collect::<Vec<_>>().join("-")
}

impl Task {
    /// Returns the name of a task for the channels of venues.
    pub(super) fn name_of(date: Date, venues: &[&String], channels: &[String]) -> String {
        let venues: Vec<String> = match venues.len() {
            0 => vec!["unknown".to_owned()],
            1..=NAMED_VENUES => venues.iter().map(|venue| slug(venue)).collect(),
            more => vec![format!("{more}-venues")],
        };
        let hash = hash_of(channels.join("\n").as_bytes());
        format!("{date}-{}-{}", venues.join("-"), hash.get(..12).unwrap_or_default())
    }

    /// Parses a task's description.
    ///
    /// # Errors
    /// [`BatchError::NoTask`].
    pub fn from_json(text: &str) -> Result<Self, BatchError> {
        let task: Self =
            serde_json::from_str(text).map_err(|error| BatchError::NoTask { why: error.to_string() })?;
        let is_letter = |letter: u8| matches!(letter, b'a'..=b'z' | b'0'..=b'9' | b'-');
        // It becomes part of file names.
        let is_name = task.name.starts_with(&format!("{}-", task.date)) && task.name.bytes().all(is_letter);
        if !is_name || task.name.len() > MOST_NAME {
            return Err(BatchError::NoTask { why: format!("its name is {:?}", task.name) });
        }
        Ok(task)
    }

    /// Converts it to the description that [`Task::from_json`] parses.
    #[must_use]
    pub fn to_value(&self) -> serde_json::Value {
        // All names are UTF-8: the plan and the description accept no others.
        serde_json::to_value(self).unwrap_or_default()
    }

    /// Returns the schemas that it writes.
    pub fn schemas(&self) -> impl Iterator<Item = Schema> + '_ {
        let is_nbbo = self.kind == Kind::Nbbo;
        self.settings.schemas.iter().copied().filter(move |schema| schema.is_consolidated() == is_nbbo)
    }

    /// Returns the total size of its files in bytes.
    #[must_use]
    pub fn input_bytes(&self) -> u64 {
        let size = |path: &PathBuf| match self.object(path) {
            Some(object) => object.size,
            None => fs::metadata(path).map_or(0, |there| there.len()),
        };
        self.inputs.iter().map(size).fold(0, u64::saturating_add)
    }

    /// Returns the listed properties of an input that is an object.
    pub(super) fn object(&self, path: &Path) -> Option<&ObjectInput> {
        self.objects.iter().find(|object| object.path == path)
    }

    /// Returns the maximum number of files that it has open: its inputs, and each output twice, once to write and once to lock.
    #[must_use]
    pub fn open_files(&self) -> u64 {
        let outputs = self.schemas().count() * usize::from(self.settings.buckets);
        (2 * outputs + self.inputs.len()) as u64
    }

    /// Returns the path of the records of a schema and bucket, below the folder.
    pub(super) fn output(&self, schema: Schema, bucket: u16) -> PathBuf {
        let digits = self.settings.buckets.saturating_sub(1).to_string().len().max(2);
        let date = self.date.to_string();
        let name = self.name.strip_prefix(&date).unwrap_or(&self.name).trim_start_matches('-');
        PathBuf::from(format!("schema={schema}"))
            .join(format!("date={date}"))
            .join(format!("bucket={bucket:0digits$}"))
            .join(format!("{name}.{}", self.settings.format.name()))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
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
