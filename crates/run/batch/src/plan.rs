//! The plan: which files there are, what they contain, and which tasks follow.
//!
//! A file's first [`PROBED_PACKETS`] packets determine its date and channels. Files of a date that share a channel form one group:
//! lines A and B, and the hours of a day. A file without a known channel is a separate group. A channel that is silent at the
//! beginning of a file may be missed; if two tasks of a date turn out to share it, the run reports that
//! ([`SharedChannel`](super::SharedChannel)).
//!
//! Cost: opening each file and decoding its first packets takes about 10 ms.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use jiff::civil::Date;
use serde::Serialize;
use serde_json::{Value, json};
use tapeworks_analysis::input::{Input, InputError, Source};
use tapeworks_capture::CapturedDatagram;
use tapeworks_feed::{Feed, FeedOptions, Frame, Packet};
use tapeworks_time::Nanos;
use tapeworks_time::clock;

#[cfg(feature = "cloud")]
use super::objects::Staged;
use super::place::{absolute, is_address, refuse_address, with_files};
use super::staging::Staging;
use super::task::channel_key;
use super::{BatchError, Kind, ObjectInput, Settings, Task};

/// Number of packets of a file that are examined.
const PROBED_PACKETS: u64 = 65_536;

/// What to plan.
#[derive(Clone, Debug, Default)]
pub struct PlanOptions {
    /// Files, folders (all files below) and patterns: `captures/**`, `*/2025-11-1?/*.pcap.zst`.
    pub patterns: Vec<String>,
    /// Patterns of files to leave out.
    pub excluded: Vec<String>,
    /// The day of message files without a date in their names.
    pub date: Option<Date>,
    /// Where the beginnings of objects are kept while they are examined; the system's temporary folder if not given.
    pub staged_in: Option<PathBuf>,
}

/// A file that cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct FailedInput {
    /// The file.
    pub path: String,
    /// Why, with the file and, if known, the packet and the offset.
    pub error: String,
}

/// The tasks to do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The settings that all tasks share.
    pub settings: Settings,
    /// The tasks, sorted by name.
    pub tasks: Vec<Task>,
    /// The readable files, sorted.
    pub inputs: Vec<PathBuf>,
    /// The unusable files, sorted.
    pub failed: Vec<FailedInput>,
}

/// Plans the tasks for the inputs that `options` names. Files below `folder`, the destination of the results, are left out. `observe`
/// gets the number of files examined and the total.
///
/// # Errors
/// [`BatchError::Pattern`], [`BatchError::NoMatch`], [`BatchError::Stopped`]; [`BatchError::Io`] if the beginnings of objects cannot be kept.
pub fn plan(
    options: &PlanOptions,
    folder: &Path,
    settings: &Settings,
    observe: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<Plan, BatchError> {
    refuse_address(folder)?;
    let Matching { files: paths, objects, mut failed } = matching(options, folder)?;
    let mut staging = None;
    let mut files = Vec::new();
    for (index, path) in paths.iter().enumerate() {
        if observe(index as u64, paths.len() as u64).is_break() {
            return Err(BatchError::Stopped);
        }
        let probed = match (path.to_str(), objects.get(path)) {
            (Some(name), None) => {
                probe(path, name, settings, options.date).0.map_err(|error| error.to_string())
            }
            (Some(_), Some(object)) => {
                let staging = match &mut staging {
                    Some(staging) => staging,
                    none => none.insert(Staging::new(options.staged_in.as_deref())?),
                };
                probe_object(object, staging, settings, options.date)?
            }
            (None, _) => Err(format!("{}: its name is not UTF-8", path.display())),
        };
        match probed {
            Ok(probed) => files.push((path.clone(), probed)),
            Err(error) => failed.push(FailedInput { path: path.display().to_string(), error }),
        }
    }
    failed.sort_by(|one, other| one.path.cmp(&other.path));
    let mut tasks = tasks_of(&files, settings);
    for task in &mut tasks {
        task.objects = task.inputs.iter().filter_map(|path| objects.get(path).cloned()).collect();
    }
    Ok(Plan {
        settings: settings.clone(),
        tasks,
        inputs: files.into_iter().map(|(path, _)| path).collect(),
        failed,
    })
}

impl Plan {
    /// Converts the plan to the JSON of `tapeworks batch --dry-run --json`: each task in the form that [`Task::from_json`] parses.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let tasks: Vec<_> = self.tasks.iter().map(Task::to_value).collect();
        json!({ "tasks": tasks, "failed_inputs": self.failed })
    }

    /// Returns the maximum number of files that `jobs` concurrent tasks have open.
    #[must_use]
    pub fn open_files(&self, jobs: usize) -> u64 {
        let mut tasks: Vec<u64> = self.tasks.iter().map(Task::open_files).collect();
        tasks.sort_unstable_by(|one, other| other.cmp(one));
        tasks.iter().take(jobs).sum()
    }
}

/// The files that match the patterns.
struct Matching {
    /// Sorted, each once.
    files: Vec<PathBuf>,
    /// Those that are objects.
    objects: BTreeMap<PathBuf, ObjectInput>,
    failed: Vec<FailedInput>,
}

/// Finds the files that match the patterns.
fn matching(options: &PlanOptions, folder: &Path) -> Result<Matching, BatchError> {
    let pattern_error = |pattern: &str, error: &glob::PatternError| BatchError::Pattern {
        pattern: pattern.to_owned(),
        why: error.to_string(),
    };
    let matched = glob::MatchOptions { require_literal_leading_dot: true, ..glob::MatchOptions::new() };
    let mut objects = BTreeMap::new();
    let excluded = options.excluded.iter().map(|pattern| {
        glob::Pattern::new(&with_files(pattern)).map_err(|error| pattern_error(pattern, &error))
    });
    let excluded = excluded.collect::<Result<Vec<_>, _>>()?;
    let is_excluded = |path: &Path| excluded.iter().any(|pattern| pattern.matches_path_with(path, matched));
    let results = absolute(folder);
    let mut files: BTreeMap<PathBuf, PathBuf> = BTreeMap::new();
    let mut failed = Vec::new();
    let mut take = |path: PathBuf, failed: &mut Vec<FailedInput>| {
        let canonical = absolute(&path);
        if canonical.starts_with(&results) || is_excluded(&path) {
            return;
        }
        if let Some(skipped) = not_a_file(&path) {
            failed.push(skipped);
            return;
        }
        let name = files.entry(canonical).or_insert_with(|| path.clone());
        if path < *name {
            *name = path;
        }
    };
    for pattern in &options.patterns {
        let path = Path::new(pattern);
        if is_address(path) {
            let found = objects_of(pattern, matched)?;
            if found.is_empty() {
                return Err(BatchError::NoMatch { pattern: pattern.clone() });
            }
            for object in found {
                take(object.path.clone(), &mut failed);
                objects.insert(object.path.clone(), object);
            }
            continue;
        }
        let there = fs::metadata(path);
        if there.as_ref().is_ok_and(|there| !there.is_dir()) {
            take(path.to_owned(), &mut failed);
            continue;
        }
        let text = match there {
            Ok(_) => format!("{}/**/*", glob::Pattern::escape(pattern.trim_end_matches('/'))),
            Err(_) => with_files(pattern),
        };
        let found = glob::glob_with(&text, matched).map_err(|error| pattern_error(pattern, &error))?;
        let mut is_empty = true;
        for entry in found {
            match entry {
                Ok(path) if path.is_dir() => {}
                Ok(path) => {
                    is_empty = false;
                    take(path, &mut failed);
                }
                Err(error) => failed.push(FailedInput {
                    path: error.path().display().to_string(),
                    error: format!("{}: {}", error.path().display(), error.error()),
                }),
            }
        }
        if is_empty {
            return Err(BatchError::NoMatch { pattern: pattern.clone() });
        }
    }
    let mut paths: Vec<PathBuf> = files.into_values().collect();
    paths.sort();
    if paths.is_empty() && failed.is_empty() {
        return Err(BatchError::NoMatch { pattern: options.patterns.join(" ") });
    }
    Ok(Matching { files: paths, objects, failed })
}

/// Returns why an existing path cannot be an input: opening a pipe or a device may block forever.
fn not_a_file(path: &Path) -> Option<FailedInput> {
    let is_special = fs::metadata(path).is_ok_and(|there| !there.is_file());
    let shown = path.display().to_string();
    is_special.then(|| FailedInput {
        error: format!("{shown}: skipped, because it is a pipe, socket or device"),
        path: shown,
    })
}

/// Returns the objects that match an address or a pattern of addresses.
#[cfg(feature = "cloud")]
fn objects_of(address: &str, options: glob::MatchOptions) -> Result<Vec<ObjectInput>, BatchError> {
    // As in folders, each part of a pattern matches within one part of the name.
    let options = glob::MatchOptions { require_literal_separator: true, ..options };
    super::objects::below(address, &|pattern, name| pattern.matches_with(name, options))
}

/// Rejects addresses, which only the feature `cloud` supports.
#[cfg(not(feature = "cloud"))]
fn objects_of(address: &str, _options: glob::MatchOptions) -> Result<Vec<ObjectInput>, BatchError> {
    refuse_address(Path::new(address)).map(|()| Vec::new())
}

/// Runs [`probe`] on as much of an object as it needs.
#[cfg(feature = "cloud")]
fn probe_object(
    object: &ObjectInput,
    staging: &Staging,
    settings: &Settings,
    date: Option<Date>,
) -> Result<Result<Probed, String>, BatchError> {
    let mut staged = Staged::default();
    let path = staged.path(staging.folder(), 0, &object.path);
    let name = object.path.display().to_string();
    let probed = super::objects::probed(object, &path, || probe(&path, &name, settings, date));
    // The next object gets another name.
    let _left_at_worst = fs::remove_file(&path);
    let renamed = |error: InputError| staged.renamed(&error.to_string());
    Ok(probed?.and_then(|probed| probed.map_err(renamed)))
}

#[cfg(not(feature = "cloud"))]
fn probe_object(
    object: &ObjectInput,
    _staging: &Staging,
    _settings: &Settings,
    _date: Option<Date>,
) -> Result<Result<Probed, String>, BatchError> {
    Err(BatchError::NoCloud { address: object.path.display().to_string() })
}

/// What a file's beginning shows.
#[derive(Clone, Debug)]
struct Probed {
    date: Date,
    /// Whether neither its packets nor its name determine the day.
    is_without_day: bool,
    channels: BTreeSet<String>,
    venues: BTreeSet<String>,
}

/// Examines the beginning of the file at `path`, whose name is `name`. Returns `true` if more of the file would not change the answer.
fn probe(
    path: &Path,
    name: &str,
    settings: &Settings,
    date: Option<Date>,
) -> (Result<Probed, InputError>, bool) {
    let mut is_enough = false;
    (probe_until(path, name, settings, date, &mut is_enough), is_enough)
}

fn probe_until(
    path: &Path,
    name: &str,
    settings: &Settings,
    date: Option<Date>,
    is_enough: &mut bool,
) -> Result<Probed, InputError> {
    // The beginning shows what kind of file it is.
    *is_enough = true;
    let mut input = Input::open(0, path, settings.protocol)?;
    let is_without_day = input.is_without_day();
    let given = date.and_then(clock::midnight_of).filter(|_| is_without_day);
    let mut feed =
        Feed::new(FeedOptions { application: settings.protocol, midnight: given, ..FeedOptions::default() });
    let mut first = None;
    match &mut input.source {
        Source::Capture(reader) => {
            for _ in 0..PROBED_PACKETS {
                // Damage after the first packet is for the task to report, which processes what is before it.
                let captured = match reader.next_datagram() {
                    Ok(Some(captured)) => captured,
                    Err(error) if first.is_none() => {
                        *is_enough = false;
                        return Err(error.into());
                    }
                    Ok(None) | Err(_) => {
                        *is_enough = false;
                        break;
                    }
                };
                let CapturedDatagram { packet: captured, datagram } = captured;
                let received = Nanos(captured.timestamp_ns);
                first.get_or_insert(received);
                if let Ok(datagram) = datagram {
                    let (number, offset) = (captured.number, captured.offset);
                    feed.look_at(&Packet { file: 0, number, offset, received, datagram });
                }
            }
        }
        Source::Framed { reader, format, midnight, .. } => {
            let Some(midnight) = given.or(*midnight) else {
                let why = "the folder of its results";
                return Err(InputError::NoDay { file: name.to_owned(), why });
            };
            first = Some(midnight);
            *is_enough = false;
            if let Some(frame) = reader.next_batch()?.and_then(|mut frames| frames.next()) {
                let frame = Frame { file: 0, offset: frame.offset, bytes: frame.bytes };
                feed.look_at_frame(0, *format, Some(midnight), frame);
                *is_enough = true;
            }
        }
        Source::FixLog(_) => return Err(InputError::FixLog { file: name.to_owned() }),
    }
    let file = name.to_owned();
    let Some(date) = first.and_then(clock::date_at) else {
        return Err(InputError::NoPackets { file });
    };
    let channels = feed.channels().iter();
    let mut keys: BTreeSet<String> = channels
        .clone()
        .map(|channel| channel_key(channel.publisher(), channel.application(), channel.identity(), &file))
        .collect();
    if keys.is_empty() {
        keys.insert(format!("file {file}"));
    }
    let venues = channels.map(|channel| channel.publisher().venue_name()).collect();
    Ok(Probed { date, is_without_day, channels: keys, venues })
}

/// Returns the tasks for files, sorted by name.
fn tasks_of(files: &[(PathBuf, Probed)], settings: &Settings) -> Vec<Task> {
    let mut tasks = Vec::new();
    if settings.schemas.iter().any(|schema| !schema.is_consolidated()) {
        let mut groups: BTreeMap<usize, Vec<&(PathBuf, Probed)>> = BTreeMap::new();
        for (index, group) in groups_of(files).into_iter().enumerate() {
            groups.entry(group).or_default().extend(files.get(index));
        }
        tasks.extend(groups.values().filter_map(|group| task_of(Kind::Channels, group, settings)));
    }
    if settings.schemas.iter().any(|schema| schema.is_consolidated()) {
        let mut dates: BTreeMap<Date, Vec<&(PathBuf, Probed)>> = BTreeMap::new();
        for file in files {
            dates.entry(file.1.date).or_default().push(file);
        }
        tasks.extend(dates.values().filter_map(|group| task_of(Kind::Nbbo, group, settings)));
    }
    tasks.sort_by(|one, other| one.name.cmp(&other.name));
    tasks
}

/// Returns the group of each file, as the index of the group's first file. Files of a date are in one group if they share a channel,
/// directly or through other files.
fn groups_of(files: &[(PathBuf, Probed)]) -> Vec<usize> {
    let mut groups: Vec<usize> = (0..files.len()).collect();
    let mut group_of: BTreeMap<(Date, &str), usize> = BTreeMap::new();
    for (index, (_, probed)) in files.iter().enumerate() {
        for channel in &probed.channels {
            let known = *group_of.entry((probed.date, channel)).or_insert(index);
            let (Some(one), Some(other)) = (groups.get(known).copied(), groups.get(index).copied()) else {
                continue;
            };
            // Files are few and merges fewer, so each merge may scan all of them.
            let (first, second) = (one.min(other), one.max(other));
            groups.iter_mut().filter(|group| **group == second).for_each(|group| *group = first);
        }
    }
    groups
}

fn task_of(kind: Kind, files: &[&(PathBuf, Probed)], settings: &Settings) -> Option<Task> {
    let (_, first) = files.first()?;
    let date = first.date;
    let all = |get: fn(&Probed) -> &BTreeSet<String>| -> BTreeSet<&String> {
        files.iter().flat_map(|(_, probed)| get(probed)).collect()
    };
    let channels: Vec<String> = all(|probed| &probed.channels).into_iter().cloned().collect();
    let venues: Vec<&String> = all(|probed| &probed.venues).into_iter().collect();
    let name = match kind {
        Kind::Nbbo => format!("{date}-nbbo"),
        Kind::Channels => Task::name_of(date, &venues, &channels),
    };
    Some(Task {
        name,
        kind,
        date,
        channels,
        inputs: files.iter().map(|(path, _)| path.clone()).collect(),
        objects: Vec::new(),
        is_day_given: files.iter().any(|(_, probed)| probed.is_without_day),
        settings: settings.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::tests::settings;

    fn file(name: &str, day: i8, channels: &[&str]) -> (PathBuf, Probed) {
        let channels = channels.iter().map(|&channel| channel.to_owned()).collect();
        let venues = BTreeSet::from(["Nasdaq".to_owned()]);
        let date = Date::new(2025, 11, day).unwrap();
        (name.into(), Probed { date, is_without_day: false, channels, venues })
    }

    fn inputs(tasks: &[Task], kind: Kind) -> Vec<String> {
        let of_kind = tasks.iter().filter(|task| task.kind == kind);
        let mut inputs: Vec<String> = of_kind
            .map(|task| {
                task.inputs.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" ")
            })
            .collect();
        inputs.sort();
        inputs
    }

    #[test]
    fn files_that_share_a_channel_of_a_date_are_one_task_and_each_date_is_one_merge() {
        let files = [
            file("a", 14, &["1", "2"]),
            file("b", 14, &["3"]),
            file("c", 14, &["4"]),
            file("d", 14, &["4", "3"]),
            file("e", 14, &["2"]),
            file("f", 15, &["1"]),
        ];
        let tasks = tasks_of(&files, &settings());
        assert_eq!(inputs(&tasks, Kind::Channels), ["a e", "b c d", "f"]);
        assert_eq!(inputs(&tasks, Kind::Nbbo), ["a b c d e", "f"]);
        let names: BTreeSet<&str> = tasks.iter().map(|task| task.name.as_str()).collect();
        assert_eq!(names.len(), tasks.len());
        assert!(names.contains("2025-11-15-nbbo"), "{names:?}");
        // A group keeps its name when another file of its channels is added.
        let alone = tasks_of(&files[4..5], &settings());
        let two = tasks_of(&[files[4].clone(), file("g", 14, &["2"])], &settings());
        assert_eq!(
            alone.iter().map(|task| &task.name).collect::<Vec<_>>(),
            two.iter().map(|task| &task.name).collect::<Vec<_>>()
        );
    }

    #[test]
    fn schemas_of_venues_alone_make_no_merge_and_the_nbbo_alone_no_other_task() {
        let files = [file("a", 14, &["1"])];
        let only = |schema: &str| {
            let settings = Settings { schemas: vec![schema.parse().unwrap()], ..settings() };
            tasks_of(&files, &settings).iter().map(|task| task.kind).collect::<Vec<_>>()
        };
        assert_eq!(only("mbo"), [Kind::Channels]);
        assert_eq!(only("cbbo-1s"), [Kind::Nbbo]);
    }

    #[test]
    fn a_file_that_is_no_capture_shows_it_at_its_beginning() {
        let folder = tempfile::tempdir().unwrap();
        let settings = Settings { protocol: None, ..settings() };
        let is_enough = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            fs::write(&path, bytes).unwrap();
            let (probed, is_enough) = probe(&path, name, &settings, None);
            (probed.unwrap_err().to_string(), is_enough)
        };
        let (error, noise) = is_enough("noise", b"this is no capture");
        assert!(noise && error.contains("neither a capture"), "{error}");
        // The header of a capture whose first packet is further on.
        let mut header = 0xA1B2_C3D4_u32.to_le_bytes().to_vec();
        header.extend([2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0]);
        let (error, begun) = is_enough("begun.pcap", &header);
        assert!(!begun && error.contains("no packet"), "{error}");
    }

    #[test]
    fn patterns_name_each_file_once_and_no_results() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().to_str().unwrap();
        for name in ["one/a.pcap", "one/two/b.pcap", "one/.hidden", "out/manifest.json", "c.txt"] {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        }
        let found = |patterns: &[&str], excluded: &[&str]| {
            let all = |names: &[&str]| names.iter().map(|name| format!("{root}/{name}")).collect();
            let options =
                PlanOptions { patterns: all(patterns), excluded: all(excluded), ..PlanOptions::default() };
            let found = matching(&options, &folder.path().join("out"));
            found.map(|Matching { files: paths, .. }| -> Vec<String> {
                let name = |path: &PathBuf| path.strip_prefix(root).unwrap().display().to_string();
                paths.iter().map(name).collect()
            })
        };
        assert_eq!(found(&["**"], &[]).unwrap(), ["c.txt", "one/a.pcap", "one/two/b.pcap"]);
        assert_eq!(found(&["**"], &["one/**"]).unwrap(), ["c.txt"]);
        assert_eq!(found(&["one"], &[]).unwrap(), ["one/a.pcap", "one/two/b.pcap"]);
        assert_eq!(found(&["one/*.pcap", "one/./a.pcap", "c.txt"], &[]).unwrap(), ["c.txt", "one/a.pcap"]);
        assert!(matches!(found(&["one/*.gz"], &[]), Err(BatchError::NoMatch { .. })));
        assert!(matches!(found(&["nowhere.pcap"], &[]), Err(BatchError::NoMatch { .. })));
        assert!(matches!(found(&["c.txt"], &["*"]), Err(BatchError::NoMatch { .. })));
        assert!(matches!(found(&["a***"], &[]), Err(BatchError::Pattern { .. })));
    }
}
