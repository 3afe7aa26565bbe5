//! `tapeworks batch`.

#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use serde_json::Value;
use support::{Folder, assert_one_error, command, packets, run, stderr, stdout, wait_for};
use tapeworks_batch::{Access, BatchError, Earlier, Executor, PlanOptions, Step, Task};
use tapeworks_capture::Writer;

/// Runs that may end before they are stopped or killed.
const TRIES: usize = 50;

/// The schemas of most tests: two of venues, one of the NBBO.
const SCHEMAS: &str = "mbo,trades,cmbp-1";

/// A day of some venues into `path`.
fn generate(folder: &Folder, path: &str, venues: &str, date: &str, messages: &str, more: &[&str]) {
    let out = folder.path(path);
    fs::create_dir_all(Path::new(&out).parent().unwrap()).unwrap();
    let arguments = ["exchange", "generate", "--venues", venues, "--date", date, "--messages", messages];
    let made = run(&[&arguments[..], &["--symbols", "6", "--out", &out], more].concat());
    assert!(made.status.success(), "{}", stderr(&made));
}

type Packets = Vec<(u64, Vec<u8>)>;

/// Packets into a capture.
fn write(folder: &Folder, path: &str, packets: &Packets) {
    assert!(!packets.is_empty());
    let mut writer = Writer::create(Path::new(&folder.path(path))).unwrap();
    packets.iter().for_each(|(time, bytes)| writer.write_packet(*time, bytes).unwrap());
    writer.close().unwrap();
}

/// The packets of a capture that go where its first goes, and the others. The capture is removed.
fn split(folder: &Folder, path: &str) -> (Packets, Packets) {
    let packets = packets(&folder.path(path));
    fs::remove_file(folder.path(path)).unwrap();
    // The destination's address and port.
    let to = |bytes: &[u8]| (bytes[30..34].to_vec(), bytes[36..38].to_vec());
    let first = to(&packets[0].1);
    packets.into_iter().partition(|(_, bytes)| to(bytes) == first)
}

/// Two days: Nasdaq's lines in two captures on the first, MEMX with losses, and a venue less on the second.
fn captures(folder: &Folder) {
    generate(folder, "in/14/both.pcap", "nasdaq", "2025-11-14", "1500", &["--line-b"]);
    let (line_a, line_b) = split(folder, "in/14/both.pcap");
    assert_eq!(line_a.len(), line_b.len());
    write(folder, "in/14/nasdaq-a.pcap", &line_a);
    write(folder, "in/14/nasdaq-b.pcap", &line_b);
    generate(folder, "in/14/memx.pcap", "memx", "2025-11-14", "1200", &["--loss", "20000"]);
    generate(folder, "in/17/two.pcap", "nasdaq,bzx", "2025-11-17", "1500", &["--seed", "9"]);
}

fn batch(folder: &Folder, out: &str, more: &[&str]) -> Output {
    let (files, out) = (folder.path("in/**"), folder.path(out));
    run(&[&["batch", &files, "--out", &out, "--buckets", "4"], more].concat())
}

/// All files below a folder but those of `.tasks`, with their bytes.
fn files(root: &str) -> BTreeMap<String, Vec<u8>> {
    fn add(root: &Path, folder: &Path, files: &mut BTreeMap<String, Vec<u8>>) {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                if !path.ends_with(".tasks") {
                    add(root, &path, files);
                }
            } else {
                let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
                files.insert(name, fs::read(&path).unwrap());
            }
        }
    }
    let mut found = BTreeMap::new();
    add(Path::new(root), Path::new(root), &mut found);
    found
}

#[track_caller]
fn assert_same(one: &str, other: &str) {
    let (one, other) = (files(one), files(other));
    assert_eq!(one.keys().collect::<Vec<_>>(), other.keys().collect::<Vec<_>>());
    for (name, bytes) in &one {
        assert!(*bytes == other[name], "{name}");
    }
}

fn manifest(folder: &Folder, out: &str) -> Value {
    serde_json::from_slice(&fs::read(folder.path(&format!("{out}/manifest.json"))).unwrap()).unwrap()
}

fn array(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

/// The names of the tasks under way or finished, by ending.
fn tasks(folder: &Folder, out: &str, ending: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder.path(&format!("{out}/.tasks"))).into_iter().flatten();
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> = paths
        .filter(|path| {
            path.extension().is_some_and(|found| found == ending) && !path.ends_with("settings.json")
        })
        .collect();
    paths.sort();
    paths
}

/// 64-bit FNV-1a, as its authors write it.
fn fnv(text: &str) -> u64 {
    let mut hash = 0xCBF2_9CE4_8422_2325_u64;
    for byte in text.bytes() {
        hash ^= u64::from(byte);
        hash = hash.wrapping_mul(0x0100_0000_01B3);
    }
    hash
}

/// The lines of CSV files, sorted, without the columns `own`.
fn rows<'t>(texts: impl Iterator<Item = &'t str>, own: &[&str]) -> Vec<String> {
    let mut rows = Vec::new();
    for text in texts {
        let mut lines = text.lines();
        let is_kept: Vec<bool> = lines.next().unwrap().split(',').map(|name| !own.contains(&name)).collect();
        rows.extend(lines.map(|line| {
            let fields = line.split(',').zip(&is_kept).filter(|(_, is_kept)| **is_kept);
            fields.map(|(field, _)| field).collect::<Vec<_>>().join(",")
        }));
    }
    rows.sort();
    rows
}

#[test]
fn the_partitions_together_have_the_records_of_a_replay_of_each_date() {
    let folder = Folder::new("batch-records");
    captures(&folder);
    let output = batch(&folder, "out", &["--schema", SCHEMAS, "--format", "csv", "--json"]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    // Nasdaq's two lines are one task, each other venue or file one, each date one.
    assert_eq!([&report["tasks"], &report["performed"], &report["resumed"]], [5, 5, 0]);
    let found = files(&folder.path("out"));
    for (date, inputs) in [("2025-11-14", "in/14"), ("2025-11-17", "in/17")] {
        let inputs = fs::read_dir(folder.path(inputs)).unwrap();
        let mut inputs: Vec<String> =
            inputs.map(|entry| entry.unwrap().path().to_str().unwrap().to_owned()).collect();
        inputs.sort();
        for schema in SCHEMAS.split(',') {
            let whole = folder.path(&format!("{schema}.{date}.csv"));
            let mut arguments = vec!["replay", "--schema", schema, "--out", &whole];
            arguments.extend(inputs.iter().map(String::as_str));
            run(&arguments);
            let start = format!("schema={schema}/date={date}/");
            let parts: Vec<(&String, &str)> = found
                .iter()
                .filter(|(name, _)| name.starts_with(&start))
                .map(|(name, bytes)| (name, std::str::from_utf8(bytes).unwrap()))
                .collect();
            assert!(parts.len() > 2, "{start}: {}", parts.len());
            // The replay of a date has numbers of its own for the channels and instruments of its tasks; the merge is that replay.
            let own = if schema == "cmbp-1" { &[][..] } else { &["instrument_id", "channel_id"] };
            let expected = rows([fs::read_to_string(&whole).unwrap().as_str()].into_iter(), own);
            assert!(expected.len() > 10, "{schema} {date}: {}", expected.len());
            assert!(rows(parts.iter().map(|(_, text)| *text), own) == expected, "{schema} {date}");
            for (name, text) in parts {
                let bucket: u64 = name.split_once("bucket=").unwrap().1[..2].parse().unwrap();
                let symbols: BTreeSet<&str> =
                    text.lines().skip(1).map(|line| line.rsplit(',').next().unwrap()).collect();
                assert!(symbols.iter().all(|symbol| fnv(symbol) % 4 == bucket), "{name}: {symbols:?}");
            }
        }
    }
}

#[test]
fn the_bytes_are_the_same_with_one_job_three_jobs_and_processes_that_do_a_task_each() {
    let folder = Folder::new("batch-jobs");
    captures(&folder);
    for (out, jobs) in [("one", "1"), ("three", "3")] {
        let output = batch(&folder, out, &["--schema", SCHEMAS, "--jobs", jobs]);
        assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    }
    assert_same(&folder.path("one"), &folder.path("three"));
    // Another executor: a process for each task, the last one first, and all at once.
    let plan = batch(&folder, "apart", &["--schema", SCHEMAS, "--dry-run", "--json"]);
    let plan: Value = serde_json::from_str(&stdout(&plan)).unwrap();
    let apart = folder.path("apart");
    assert!(!Path::new(&apart).exists());
    let mut workers = Vec::new();
    for (number, task) in array(&plan["tasks"]).iter().enumerate().rev() {
        let description = folder.write(&format!("{number}.json"), task.to_string().as_bytes());
        let arguments = ["batch", "--task", &description, "--out", &apart, "--json"];
        let child = command(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        workers.push((task["name"].clone(), description, child));
    }
    for (name, description, child) in workers {
        let output = child.wait_with_output().unwrap();
        assert!(matches!(output.status.code(), Some(0 | 3)), "{}", stderr(&output));
        let record: Value = serde_json::from_str(&stdout(&output)).unwrap();
        assert_eq!(record["task"]["name"], name);
        // To do it once more is to find it done.
        let again = run(&["batch", "--task", &description, "--out", &apart, "--json"]);
        assert_eq!(stdout(&again), stdout(&output));
    }
    assert!(!Path::new(&folder.path("apart/manifest.json")).exists());
    let output = batch(&folder, "apart", &["--schema", SCHEMAS, "--json"]);
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!([&report["performed"], &report["resumed"]], [0, 5]);
    assert_same(&folder.path("one"), &apart);
    // The manifest has what is there, and the files the hashes that it has.
    let manifest = manifest(&folder, "one");
    let mut found = files(&folder.path("one"));
    found.remove("manifest.json");
    let outputs: Vec<&Value> =
        array(&manifest["tasks"]).iter().flat_map(|task| array(&task["outputs"])).collect();
    assert_eq!(outputs.len(), found.len());
    for output in &outputs {
        let bytes = &found[output["path"].as_str().unwrap()];
        assert_eq!(output["bytes"], bytes.len());
    }
    let output = outputs[0];
    let sum = std::process::Command::new("sha256sum")
        .arg(folder.path("one") + "/" + output["path"].as_str().unwrap())
        .output();
    if let Ok(sum) = sum {
        assert!(stdout(&sum).starts_with(output["sha256"].as_str().unwrap()), "{}", stdout(&sum));
    }
}

#[test]
fn gaps_are_in_the_manifest() {
    let folder = Folder::new("batch-gaps");
    captures(&folder);
    let output = batch(&folder, "out", &["--schema", "trades"]);
    assert_eq!(output.status.code(), Some(3));
    let manifest = manifest(&folder, "out");
    let stats = run(&["stats", "--json", &folder.path("in/14/memx.pcap")]);
    let stats: Value = serde_json::from_str(&stdout(&stats)).unwrap();
    let missing: u64 =
        array(&stats["channels"]).iter().map(|one| one["missing_messages"].as_u64().unwrap()).sum();
    assert!(missing > 0, "{stats:#}");
    let mut seen = 0;
    for task in array(&manifest["tasks"]) {
        let is_lossy = task["name"].as_str().unwrap().starts_with("2025-11-14-memx-");
        seen += u32::from(is_lossy);
        let gaps = array(&task["gaps"]);
        let counted: u64 = gaps.iter().map(|gap| gap["count"].as_u64().unwrap()).sum();
        assert_eq!(task["missing_messages"], counted, "{task:#}");
        assert_eq!(counted, if is_lossy { missing } else { 0 });
        assert_eq!(task["is_clean"], !is_lossy);
        let of_channel = |gap: &Value| gap["channel"].as_str().unwrap().starts_with("MEMX, ");
        assert!(gaps.iter().all(of_channel), "{gaps:?}");
    }
    assert_eq!(seen, 1);
    assert!(stdout(&output).contains("1 task with problems"), "{}", stdout(&output));
}

#[test]
fn a_killed_run_goes_on_without_doing_finished_tasks_again() {
    let folder = Folder::new("batch-kill");
    for (name, venue, date) in [
        ("a", "nasdaq", "2025-11-14"),
        ("b", "memx", "2025-11-14"),
        ("c", "bzx", "2025-11-17"),
        ("d", "nasdaq", "2025-11-17"),
    ] {
        generate(&folder, &format!("in/{name}.pcap"), venue, date, "4000", &[]);
    }
    let flags = ["--schema", SCHEMAS, "--jobs", "1"];
    assert_eq!(batch(&folder, "whole", &flags).status.code(), Some(0));
    let (inputs, out) = (folder.path("in/**"), folder.path("out"));
    let arguments = [&["batch", &inputs, "--out", &out, "--buckets", "4"], &flags[..]].concat();
    let written = |path: &PathBuf| fs::metadata(path).unwrap().modified().unwrap();
    let mut finished = Vec::new();
    // Killed in the first task, in the second, and in the fourth or behind it. A fast run may end first; then it begins anew.
    for whole in [0, 1, 3] {
        let is_killed = || {
            let mut child = command(&arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            wait_for(|| {
                tasks(&folder, "out", "json").len() >= whole && !tasks(&folder, "out", "work").is_empty()
                    || child.try_wait().unwrap().is_some()
            });
            child.kill().unwrap();
            child.wait().unwrap();
            let is_killed = !Path::new(&format!("{out}/manifest.json")).exists();
            if !is_killed {
                fs::remove_dir_all(&out).unwrap();
            }
            is_killed
        };
        assert!(std::iter::repeat_with(is_killed).take(TRIES).any(|is_killed| is_killed), "always too late");
        finished = tasks(&folder, "out", "json").iter().map(|path| (path.clone(), written(path))).collect();
        assert!(finished.len() >= whole, "{finished:?}");
    }
    // As if it had been killed while it moved files: they are recorded, and one is in its place.
    let record: Value = serde_json::from_slice(&fs::read(&finished[0].0).unwrap()).unwrap();
    let torn = "schema=mbo/date=2025-11-14/bucket=00/torn.parquet";
    let publishing = serde_json::json!({ "task": record["task"], "outputs": [{ "path": torn }] });
    fs::write(format!("{out}/.tasks/torn.publishing"), publishing.to_string()).unwrap();
    fs::create_dir_all(Path::new(&format!("{out}/{torn}")).parent().unwrap()).unwrap();
    fs::write(format!("{out}/{torn}"), "torn").unwrap();
    let output = run(&[&arguments[..], &["--json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(report["resumed"], finished.len());
    assert_eq!(report["performed"], 6 - finished.len());
    for (path, then) in &finished {
        assert_eq!(written(path), *then, "{}", path.display());
    }
    assert_same(&folder.path("whole"), &out);
    for ending in ["work", "publishing", "partial"] {
        assert!(tasks(&folder, "out", ending).is_empty(), "{ending}");
    }
}

#[cfg(unix)]
#[test]
fn a_stopped_run_says_how_to_go_on() {
    let folder = Folder::new("batch-stop");
    generate(&folder, "in/a.pcap", "nasdaq", "2025-11-14", "20000", &[]);
    let (inputs, out) = (folder.path("in/**"), folder.path("out"));
    let arguments = ["batch", &inputs, "--out", &out, "--schema", "mbo", "--buckets", "2"];
    // A fast run may end first; then it begins anew.
    let stopped = || {
        let child = command(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let output = support::interrupt_once(child, || !tasks(&folder, "out", "work").is_empty());
        if output.status.success() {
            fs::remove_dir_all(&out).unwrap();
            return None;
        }
        Some(output)
    };
    let output = std::iter::repeat_with(stopped).take(TRIES).flatten().next().unwrap();
    assert_one_error(&output, 130, "stopped with 1 task left; the same command goes on with them");
    assert!(files(&out).is_empty(), "{:?}", files(&out).keys());
    assert!(tasks(&folder, "out", "work").is_empty());
    assert_eq!(run(&arguments).status.code(), Some(0));
    assert!(Path::new(&format!("{out}/manifest.json")).exists());
}

#[test]
fn files_that_cannot_be_used_are_reported_and_the_rest_is_whole() {
    let folder = Folder::new("batch-bad");
    generate(&folder, "in/good.pcap", "nasdaq", "2025-11-14", "1500", &[]);
    assert_eq!(batch(&folder, "alone", &["--schema", SCHEMAS]).status.code(), Some(0));
    // Cut within a packet, no capture, empty, a log of FIX messages, a link to nothing, and a capture without packets.
    generate(&folder, "in/cut.pcap", "memx", "2025-11-17", "1500", &[]);
    let cut = fs::read(folder.path("in/cut.pcap")).unwrap();
    fs::write(folder.path("in/cut.pcap"), &cut[..cut.len() - 7]).unwrap();
    folder.write("in/noise.pcap", b"this is no capture");
    folder.write("in/empty.pcap", b"");
    folder.write("in/header.pcap", &cut[..24]);
    folder.write("in/fix.log", b"8=FIX.4.2\x019=12\x0135=0\x0110=000\x01\n");
    let mut expected = vec!["empty.pcap", "fix.log", "header.pcap", "noise.pcap"];
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("nowhere", folder.path("in/link.pcap")).unwrap();
        expected.push("link.pcap");
        expected.sort_unstable();
    }
    let output = batch(&folder, "out", &["--schema", SCHEMAS]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    let errors = stderr(&output);
    assert!(errors.contains("noise.pcap: neither a capture"), "{errors}");
    assert!(errors.contains("empty.pcap: is empty"), "{errors}");
    assert_eq!(errors.matches("cut.pcap: packet").count(), 1, "{errors}");
    let manifest = manifest(&folder, "out");
    let failed = array(&manifest["failed_inputs"]);
    let names: Vec<&str> =
        failed.iter().map(|one| one["path"].as_str().unwrap().rsplit('/').next().unwrap()).collect();
    assert_eq!(names, expected);
    let damaged: Vec<&Value> =
        array(&manifest["tasks"]).iter().filter(|task| !array(&task["damaged_files"]).is_empty()).collect();
    // The task of the venue and the merge of its date.
    assert_eq!(damaged.len(), 2);
    for task in &damaged {
        let error = array(&task["damaged_files"])[0].as_str().unwrap();
        assert!(error.contains("cut.pcap: packet ") && error.contains("offset"), "{error}");
        assert!(!array(&task["outputs"]).is_empty());
    }
    // What the good file gives is as if it were alone.
    let (alone, all) = (files(&folder.path("alone")), files(&folder.path("out")));
    for (name, bytes) in alone.iter().filter(|(name, _)| *name != "manifest.json") {
        assert!(*bytes == all[name], "{name}");
    }
    assert!(all.keys().any(|name| name.contains("date=2025-11-17")));
    // No file at all that can be used is a failure.
    let output = run(&["batch", &folder.path("in/noise.pcap"), "--out", &folder.path("none")]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("nothing to do: none of 1 file can be used"), "{}", stderr(&output));
    assert!(!Path::new(&folder.path("none")).exists());
}

#[test]
fn a_folder_takes_one_run_and_one_set_of_settings_and_new_files() {
    let folder = Folder::new("batch-folder");
    generate(&folder, "in/a.pcap", "nasdaq", "2025-11-14", "600", &[]);
    let output = batch(&folder, "out", &["--schema", "trades"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let first = files(&folder.path("out"));
    // A lock of another run.
    let lock = fs::File::open(folder.path("out/.tasks/lock")).unwrap();
    lock.try_lock().unwrap();
    let refused = batch(&folder, "out", &["--schema", "trades"]);
    assert_one_error(&refused, 1, "out: another run works in this folder");
    drop(lock);
    // Other settings.
    let refused = batch(&folder, "out", &["--schema", "mbo"]);
    assert_one_error(
        &refused,
        1,
        "has results made with other settings: schemas [\"trades\"], now [\"mbo\"]; take another",
    );
    assert_eq!(files(&folder.path("out")), first);
    let forced = batch(&folder, "out", &["--schema", "mbo", "--force"]);
    assert_eq!(forced.status.code(), Some(0), "{}", stderr(&forced));
    let names: Vec<String> = files(&folder.path("out")).into_keys().collect();
    assert!(names.iter().all(|name| name.starts_with("schema=mbo/") || name == "manifest.json"), "{names:?}");
    let forced = batch(&folder, "out", &["--schema", "trades", "--force"]);
    assert_eq!((forced.status.code(), files(&folder.path("out"))), (Some(0), first.clone()));
    // A file that was only touched is what it was; one that changed is not.
    let bytes = fs::read(folder.path("in/a.pcap")).unwrap();
    folder.write("in/a.pcap", &bytes);
    let report = |output: &Output| -> Value { serde_json::from_str(&stdout(output)).unwrap() };
    let again = batch(&folder, "out", &["--schema", "trades", "--json"]);
    assert_eq!((&report(&again)["resumed"], stderr(&again).as_str()), (&Value::from(1), ""));
    generate(&folder, "in/a.pcap", "nasdaq", "2025-11-14", "600", &["--seed", "5", "--force"]);
    let again = batch(&folder, "out", &["--schema", "trades", "--json"]);
    assert_eq!(report(&again)["performed"], 1);
    assert!(stderr(&again).contains("have changed since; it is done again"), "{}", stderr(&again));
    assert_ne!(files(&folder.path("out")), first);
    // A result that is gone is made again.
    let before = files(&folder.path("out"));
    let lost = before.keys().find(|name| name.ends_with(".parquet")).unwrap();
    fs::remove_file(folder.path(&format!("out/{lost}"))).unwrap();
    assert_eq!(report(&batch(&folder, "out", &["--schema", "trades", "--json"]))["performed"], 1);
    assert_eq!(files(&folder.path("out")), before);
    // A new date is added. Without the files of a date that is there, that date is not touched; with other files of it, it is refused.
    generate(&folder, "other/b.pcap", "memx", "2025-11-17", "600", &[]);
    let more = |path: &str, flags: &[&str]| {
        let (path, out) = (folder.path(path), folder.path("out"));
        run(&[&["batch", &path, "--out", &out, "--buckets", "4", "--schema", "trades"], flags].concat())
    };
    assert_eq!(more("other", &[]).status.code(), Some(0));
    let both = files(&folder.path("out"));
    assert!(before.iter().all(|(name, bytes)| name == "manifest.json" || both[name] == *bytes));
    assert_eq!(array(&manifest(&folder, "out")["tasks"]).len(), 2);
    generate(&folder, "third/c.pcap", "memx", "2025-11-14", "600", &[]);
    assert_one_error(&more("third", &[]), 1, "has results of 2025-11-14 from");
    assert_eq!(files(&folder.path("out")), both);
    let forced = more("third", &["--force"]);
    assert_eq!(forced.status.code(), Some(0), "{}", stderr(&forced));
    let names: Vec<String> = files(&folder.path("out")).into_keys().collect();
    assert!(names.iter().all(|name| !name.contains("/nasdaq-")), "{names:?}");
}

/// A process for each task, all at once. Each task is reported twice, and another run is refused meanwhile.
struct Processes<'f>(&'f Folder);

impl Executor for Processes<'_> {
    fn execute(
        &self,
        tasks: &[&Task],
        folder: &tapeworks_batch::Folder,
        watch: &mut dyn FnMut(Step<'_>) -> ControlFlow<()>,
    ) -> Result<(), BatchError> {
        folder.share()?;
        let out = self.0.path("apart");
        let start = |(number, task): (usize, &&Task)| {
            let description = self.0.write(&format!("{number}.json"), task.to_value().to_string().as_bytes());
            command(&["batch", "--task", &description, "--out", &out])
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        };
        let children: Vec<_> = tasks.iter().enumerate().map(start).collect();
        let refused = batch(self.0, "apart", &["--schema", SCHEMAS]);
        assert_one_error(&refused, 1, "another run works in this folder");
        for (task, child) in tasks.iter().zip(children) {
            let output = child.wait_with_output().unwrap();
            assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
            let why = "one of two tries".to_owned();
            let failed = tapeworks_batch::TaskError::Elsewhere { why, is_of_input: false };
            assert!(watch(Step::Ended(task, Err(failed))).is_continue());
            assert!(watch(Step::Ended(task, Ok(()))).is_continue());
            assert!(watch(Step::Ended(task, Ok(()))).is_continue());
        }
        Ok(())
    }
}

/// Another process did the same tasks, failed, and removed a file of the first and the record of the second.
struct Undone;

impl Executor for Undone {
    fn execute(
        &self,
        tasks: &[&Task],
        folder: &tapeworks_batch::Folder,
        watch: &mut dyn FnMut(Step<'_>) -> ControlFlow<()>,
    ) -> Result<(), BatchError> {
        tapeworks_batch::Threads(1).execute(tasks, folder, watch)?;
        let record = folder.finished(&tasks[0].name)?.unwrap();
        fs::remove_file(folder.root().join(&record.outputs[0].path)).unwrap();
        fs::remove_file(folder.root().join(format!(".tasks/{}.json", tasks[1].name))).unwrap();
        Ok(())
    }
}

#[test]
fn a_run_whose_results_another_process_removed_says_so_and_has_them_in_no_manifest() {
    let folder = Folder::new("batch-undone");
    generate(&folder, "in/a.pcap", "nasdaq", "2025-11-14", "600", &[]);
    generate(&folder, "in/b.pcap", "memx", "2025-11-17", "600", &[]);
    let dry = batch(&folder, "out", &["--dry-run", "--json"]);
    let dry: Value = serde_json::from_str(&stdout(&dry)).unwrap();
    let settings = Task::from_json(&dry["tasks"][0].to_string()).unwrap().settings;
    let out = PathBuf::from(folder.path("out"));
    let options = PlanOptions { patterns: vec![folder.path("in")], ..PlanOptions::default() };
    let plan =
        tapeworks_batch::plan(&options, &out, &settings, &mut |_, _| ControlFlow::Continue(())).unwrap();
    assert_eq!(plan.tasks.len(), 2);
    let results = tapeworks_batch::Folder::open(&out, &settings, Access::Alone, false).unwrap();
    let run = |executor: &dyn Executor| {
        let mut observe = |_: &tapeworks_batch::Progress| ControlFlow::Continue(());
        tapeworks_batch::run(&plan, &results, executor, Earlier::default(), &mut |_| {}, &mut observe)
            .unwrap()
    };
    let report = run(&Undone);
    assert_eq!((report.performed, report.failed.len(), report.records.len()), (0, 2, 0));
    let manifest: Value = serde_json::from_slice(&fs::read(report.manifest.unwrap()).unwrap()).unwrap();
    assert_eq!(manifest["tasks"], serde_json::json!([]));
    let error = manifest["failed_tasks"][1]["error"].as_str().unwrap();
    assert!(error.contains("its results are gone or incomplete"), "{error}");
    let report = run(&tapeworks_batch::Threads(1));
    assert_eq!((report.performed, report.failed.len(), report.records.len()), (2, 0, 2));
}

#[test]
fn an_executor_starts_a_process_for_each_task() {
    let folder = Folder::new("batch-processes");
    generate(&folder, "in/a.pcap", "nasdaq", "2025-11-14", "600", &[]);
    generate(&folder, "in/b.pcap", "memx", "2025-11-17", "600", &[]);
    assert_eq!(batch(&folder, "one", &["--schema", SCHEMAS]).status.code(), Some(0));
    let dry = batch(&folder, "one", &["--schema", SCHEMAS, "--dry-run", "--json"]);
    let dry: Value = serde_json::from_str(&stdout(&dry)).unwrap();
    let settings = Task::from_json(&dry["tasks"][0].to_string()).unwrap().settings;
    let options = PlanOptions { patterns: vec![folder.path("in/**")], ..PlanOptions::default() };
    let out = PathBuf::from(folder.path("apart"));
    let plan =
        tapeworks_batch::plan(&options, &out, &settings, &mut |_, _| ControlFlow::Continue(())).unwrap();
    let results = tapeworks_batch::Folder::open(&out, &settings, Access::Alone, false).unwrap();
    let mut most = 0;
    let mut observe = |progress: &tapeworks_batch::Progress| {
        most = most.max(progress.ended);
        ControlFlow::Continue(())
    };
    let executor = Processes(&folder);
    let report =
        tapeworks_batch::run(&plan, &results, &executor, Earlier::default(), &mut |_| {}, &mut observe)
            .unwrap();
    assert_eq!((report.performed, report.failed.len(), report.left, most), (4, 0, 0, 4));
    assert!(report.manifest.is_some());
    assert_same(&folder.path("one"), &folder.path("apart"));
    // The process would take damaged results of the right size as finished.
    let damaged = some(&folder, "apart", ".parquet", "2025-11-14").swap_remove(0);
    let mut bytes = fs::read(&damaged).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&damaged, bytes).unwrap();
    let verify = Earlier { verify: true, ..Earlier::default() };
    let report = tapeworks_batch::run(&plan, &results, &executor, verify, &mut |_| {}, &mut |_| {
        ControlFlow::Continue(())
    });
    let report = report.unwrap();
    assert_eq!((report.performed, report.failed.len()), (1, 0));
    assert_same(&folder.path("one"), &folder.path("apart"));
}

#[test]
fn a_process_that_does_a_task_again_removes_the_manifest() {
    let folder = Folder::new("batch-again");
    generate(&folder, "in/a.pcap", "nasdaq", "2025-11-14", "600", &[]);
    let dry = batch(&folder, "out", &["--schema", "trades", "--dry-run", "--json"]);
    let dry: Value = serde_json::from_str(&stdout(&dry)).unwrap();
    let description = folder.write("task.json", dry["tasks"][0].to_string().as_bytes());
    let (out, manifest) = (folder.path("out"), folder.path("out/manifest.json"));
    let arguments = ["batch", "--task", &description, "--out", &out];
    assert_eq!(batch(&folder, "out", &["--schema", "trades"]).status.code(), Some(0));
    // Nothing to do: it stays.
    assert_eq!(run(&arguments).status.code(), Some(0));
    assert!(Path::new(&manifest).exists());
    generate(&folder, "in/a.pcap", "nasdaq", "2025-11-14", "600", &["--seed", "5", "--force"]);
    assert_eq!(run(&arguments).status.code(), Some(0));
    assert!(!Path::new(&manifest).exists());
    assert_eq!(batch(&folder, "out", &["--schema", "trades"]).status.code(), Some(0));
    assert_eq!(batch(&folder, "new", &["--schema", "trades"]).status.code(), Some(0));
    assert_same(&out, &folder.path("new"));
}

#[test]
fn a_file_of_another_date_than_before_is_refused_or_forced() {
    let folder = Folder::new("batch-date");
    generate(&folder, "in/session.itch", "nasdaq", "2025-11-14", "600", &[]);
    let on = |out: &str, date: &str, more: &[&str]| {
        batch(&folder, out, &[&["--schema", "trades", "--date", date], more].concat())
    };
    assert_eq!(on("out", "2025-11-14", &[]).status.code(), Some(0));
    let before = files(&folder.path("out"));
    assert_one_error(
        &on("out", "2025-11-17", &[]),
        1,
        "session.itch, whose date is 2025-11-17 now; take another folder, or remove those results with --force",
    );
    assert_eq!(files(&folder.path("out")), before);
    assert_eq!(on("out", "2025-11-17", &["--force"]).status.code(), Some(0));
    assert_eq!(on("new", "2025-11-17", &[]).status.code(), Some(0));
    assert_same(&folder.path("out"), &folder.path("new"));
}

#[test]
fn a_file_by_another_name_is_the_same_file() {
    let folder = Folder::new("batch-spelled");
    generate(&folder, "in/a.pcap", "nasdaq", "2025-11-14", "600", &[]);
    let out = folder.path("out");
    for name in ["in/a.pcap", "in/../in/a.pcap"] {
        let output = run(&["batch", &folder.path(name), "--out", &out, "--schema", "trades"]);
        assert_eq!(output.status.code(), Some(0), "{name}: {}", stderr(&output));
    }
    assert_eq!(array(&manifest(&folder, "out")["tasks"]).len(), 1);
}

#[cfg(unix)]
#[test]
fn a_run_that_needs_more_open_files_than_allowed_is_refused() {
    let folder = Folder::new("batch-open");
    generate(&folder, "in/a.pcap", "nasdaq", "2025-11-14", "600", &[]);
    let (input, out) = (folder.path("in/a.pcap"), folder.path("out"));
    let limited = |limits: &str, buckets: &str| {
        let script = format!("{limits}; exec \"$@\"");
        std::process::Command::new("sh")
            .args(["-c", &script, "sh", env!("CARGO_BIN_EXE_tapeworks"), "batch", &input, "--out", &out])
            .args(["--schema", "trades", "--buckets", buckets])
            .output()
            .unwrap()
    };
    let refused = limited("ulimit -n 200", "90");
    assert_one_error(
        &refused,
        1,
        "up to 213 files would be open at the same time, and the system allows 200: ",
    );
    assert!(!Path::new(&out).exists());
    // A low limit that may be raised is raised.
    let output = limited("ulimit -Hn 300 && ulimit -Sn 100", "90");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

#[test]
fn a_dry_run_shows_the_tasks_and_writes_nothing() {
    let folder = Folder::new("batch-dry");
    captures(&folder);
    let before = files(&folder.path(""));
    let output = batch(&folder, "out", &["--schema", SCHEMAS, "--dry-run"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let shown = stdout(&output);
    for text in
        ["2025-11-14-nasdaq-", "2025-11-14-nbbo", "2025-11-17-nbbo", "mbo,trades", "5 tasks for 4 files."]
    {
        assert!(shown.contains(text), "{shown}");
    }
    assert!(files(&folder.path("")) == before && !Path::new(&folder.path("out")).exists());
    for pattern in ["nothing/*.pcap", "nowhere.pcap"] {
        let output = run(&["batch", &folder.path(pattern), "--out", &folder.path("out")]);
        assert_one_error(&output, 1, "no file matches");
    }
    let output = batch(&folder, "out", &["--exclude", "**"]);
    assert_one_error(&output, 1, "no file matches");
    assert_one_error(&batch(&folder, "out", &["--buckets", "0"]), 2, "--buckets");
    let description = folder.write("task.json", b"{}");
    let output = run(&["batch", "--task", &description, "--out", &folder.path("out")]);
    assert_one_error(&output, 1, "task.json: is not a description of a task");
    assert!(!Path::new(&folder.path("out")).exists());
}

/// The beginnings of two files show no channel in common, and yet they have one: its records are there twice, and the run says so.
#[test]
fn channels_in_two_tasks_are_reported() {
    let folder = Folder::new("batch-shared");
    generate(&folder, "in/all.pcap", "nasdaq,memx", "2025-11-14", "800", &[]);
    let (one, other) = split(&folder, "in/all.pcap");
    // The first packet is repeated until the other channel, behind it, is out of sight.
    let repeated = std::iter::repeat_n(one[0].clone(), 65_536);
    write(&folder, "in/both.pcap", &repeated.chain(one).chain(other.clone()).collect());
    write(&folder, "in/other.pcap", &other);
    let output = batch(&folder, "out", &["--schema", "trades"]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(stderr(&output).contains("is in several tasks"), "{}", stderr(&output));
    let manifest = manifest(&folder, "out");
    let shared = array(&manifest["shared_channels"]);
    assert_eq!(shared.len(), 1, "{shared:?}");
    assert_eq!(array(&shared[0]["tasks"]).len(), 2);
}

/// The files of finished tasks, or of results, of a date.
fn some(folder: &Folder, out: &str, ending: &str, date: &str) -> Vec<PathBuf> {
    fn below(folder: &Path, found: &mut Vec<PathBuf>) {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() { below(&path, found) } else { found.push(path) }
        }
    }
    let mut found = Vec::new();
    below(Path::new(&folder.path(out)), &mut found);
    found.retain(|path| {
        let name = path.to_str().unwrap();
        name.ends_with(ending) && name.contains(date) && !name.ends_with("manifest.json")
    });
    found.sort();
    found
}

/// A run of the second date alone succeeds as far as it did before, and says this of the first date's results.
fn assert_the_other_date_reports(folder: &Folder, more: &[&str], text: &str) {
    let (files, out) = (folder.path("in/17/**"), folder.path("out"));
    let batch = ["batch", &files, "--out", &out, "--buckets", "4", "--schema", SCHEMAS];
    let output = run(&[&batch, more].concat());
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(stderr(&output).contains(text), "{}", stderr(&output));
}

#[test]
fn a_damaged_record_of_a_task_costs_only_that_task() {
    let folder = Folder::new("batch-record");
    captures(&folder);
    assert_eq!(batch(&folder, "out", &["--schema", SCHEMAS]).status.code(), Some(3));
    let whole = files(&folder.path("out"));
    let records = some(&folder, "out", ".json", "2025-11-14");
    for damage in [&b"{"[..], b"", b"\xff\xff", b"[1, 2]"] {
        fs::write(&records[0], damage).unwrap();
        let again = batch(&folder, "out", &["--schema", SCHEMAS, "--json"]);
        assert_eq!(again.status.code(), Some(3), "{}", stderr(&again));
        assert!(stderr(&again).contains("is damaged: "), "{}", stderr(&again));
        let report: Value = serde_json::from_str(&stdout(&again)).unwrap();
        assert_eq!(
            (report["performed"].as_u64(), report["resumed"].as_u64()),
            (Some(1), Some(4)),
            "{report}"
        );
        assert!(files(&folder.path("out")) == whole);
    }
    // A run of the other date leaves the damaged record alone, and says that its results are not in the manifest.
    fs::write(&records[0], "{").unwrap();
    assert_the_other_date_reports(&folder, &[], "its results are not in the manifest");
}

#[test]
fn damaged_results_are_found_and_made_again_by_a_run_that_verifies() {
    let folder = Folder::new("batch-verify");
    captures(&folder);
    assert_eq!(batch(&folder, "out", &["--schema", SCHEMAS]).status.code(), Some(3));
    let whole = files(&folder.path("out"));
    let results = some(&folder, "out", ".parquet", "2025-11-14");
    let damage = || {
        let mut bytes = fs::read(&results[0]).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&results[0], bytes).unwrap();
    };
    damage();
    let performed = |more: &[&str]| {
        let output = batch(&folder, "out", &[&["--schema", SCHEMAS, "--json"], more].concat());
        assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
        let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
        (report["performed"].as_u64().unwrap(), stderr(&output))
    };
    assert_eq!(performed(&[]).0, 0, "the size is right");
    let (again, errors) = performed(&["--verify"]);
    assert!(again == 1 && errors.contains("its results are damaged; it is done again"), "{errors}");
    assert!(files(&folder.path("out")) == whole);
    assert_eq!(performed(&["--verify"]).0, 0);
    // Of a date that is not in the run it is reported.
    damage();
    assert_the_other_date_reports(&folder, &["--verify"], "run it again with its files");
}

#[cfg(unix)]
#[test]
fn a_pipe_among_the_inputs_is_skipped_with_a_line() {
    let folder = Folder::new("batch-pipe");
    generate(&folder, "in/day.pcap", "nasdaq", "2025-11-14", "800", &[]);
    let pipe = folder.path("in/pipe.pcap");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let output = batch(&folder, "out", &["--schema", "trades"]);
    assert_one_error(&output, 3, "pipe.pcap: skipped, because it is a pipe, socket or device");
    assert_eq!(array(&manifest(&folder, "out")["failed_inputs"]).len(), 1);
    let named = run(&["batch", &pipe, "--out", &folder.path("named")]);
    assert_eq!(named.status.code(), Some(1), "{}", stderr(&named));
    assert!(stderr(&named).contains(": skipped, because"), "{}", stderr(&named));
}

#[test]
fn a_batch_of_orders_says_what_a_feed_of_price_levels_has_beside_them() {
    let folder = Folder::new("batch-lacking");
    generate(&folder, "in/day.pcap", "iex-deep", "2025-11-14", "800", &[]);
    let output = batch(&folder, "out", &["--schema", "mbo"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).contains("mbo holds orders: "), "{}", stderr(&output));
    let report = &manifest(&folder, "out")["tasks"][0]["report"];
    assert!(report["lacking"][0].as_str().unwrap().contains("were left out; mbp-1"), "{report}");
    let again = batch(&folder, "out", &["--schema", "mbo"]);
    assert!(stderr(&again).contains("mbo holds orders: "), "a finished task too: {}", stderr(&again));
    assert!(!stderr(&batch(&folder, "levels", &["--schema", "mbp-10"])).contains("holds orders"));
}
