//! The lab by its command: every technique runs, results are written and read, and what is wrong is named.

#![allow(clippy::unwrap_used, missing_docs)]

use std::path::Path;
use std::process::Command;

fn tapeworks(arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_tapeworks")).args(arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

fn path(folder: &Path, name: &str) -> String {
    folder.join(name).to_string_lossy().into_owned()
}

#[test]
fn every_technique_runs_and_its_results_make_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let out = path(folder.path(), "lab");
    let (code, text, complaints) = tapeworks(&["lab", "run", "all", "--quick", "--out", &out]);
    // 3: something needs rights or hardware that the machine does not have, and is named.
    assert!(code == 0 || (code == 3 && complaints.contains(": skipped: ")), "{code}: {complaints}");
    let (_, list, _) = tapeworks(&["lab", "list", "--json"]);
    let results = std::fs::read_to_string(path(Path::new(&out), "results.json")).unwrap();
    for line in list.lines() {
        let technique: serde_json::Value = serde_json::from_str(line).unwrap();
        let title = technique["title"].as_str().unwrap();
        assert!(text.contains(title), "{title} is not shown");
        assert!(results.contains(&format!("\"{title}\"")), "{title} has no results");
    }
    let (code, written, complaints) = tapeworks(&["lab", "report", &out]);
    assert_eq!((code, complaints.as_str()), (0, ""));
    let page = std::fs::read_to_string(written.trim()).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.trim_end().ends_with("</html>"));
    assert!(page.contains("<svg ") && !page.contains("NaN") && !page.contains("http://localhost"));
    let (code, compared, _) = tapeworks(&["lab", "compare", &out, &out]);
    assert_eq!(code, 0);
    assert!(!compared.contains("differs") && !compared.contains("only in"), "{compared}");
    let figures = path(folder.path(), "figures");
    let (code, _, _) = tapeworks(&["lab", "figures", &out, "--out", &figures]);
    assert_eq!(code, 0);
    let text = std::fs::read_to_string(path(Path::new(&figures), "loop-unrolling.inc")).unwrap();
    assert!(text.contains("![the sum of an array"), "{text}");
}

#[test]
fn a_second_run_adds_to_the_results_in_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let out = path(folder.path(), "lab");
    let names = || -> Vec<String> {
        let results = std::fs::read_to_string(path(Path::new(&out), "results.json")).unwrap();
        let results: serde_json::Value = serde_json::from_str(&results).unwrap();
        let names = results["techniques"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap());
        names.map(str::to_owned).collect()
    };
    let run = |techniques: &str, more: &[&str]| {
        tapeworks(&[&["lab", "run", techniques, "--quick", "--out", &out], more].concat())
    };
    assert_eq!(run("loop-unrolling", &[]).0, 0);
    assert_eq!(run("byte-order,inlining", &[]).0, 0);
    assert_eq!(names(), ["inlining", "loop-unrolling", "byte-order"]);
    assert_eq!(run("inlining", &[]).0, 0);
    assert_eq!(names(), ["inlining", "loop-unrolling", "byte-order"]);
    // Results that were measured elsewhere are not mixed with these.
    let results = path(Path::new(&out), "results.json");
    let text = std::fs::read_to_string(&results).unwrap();
    let other = text.replace("\"cores\":", "\"cores\":9");
    std::fs::write(&results, &other).unwrap();
    let (code, _, complaints) = run("inlining", &[]);
    assert_eq!(code, 1);
    assert!(complaints.contains("cannot be added to: they are from another machine"), "{complaints}");
    assert_eq!(std::fs::read_to_string(&results).unwrap(), other);
    assert_eq!(run("inlining", &["--force"]).0, 0);
    assert_eq!(names(), ["inlining"]);
}

#[test]
fn the_code_of_a_variant_is_shown() {
    let (code, text, complaints) = tapeworks(&["lab", "asm", "loop-unrolling"]);
    assert_eq!((code, complaints.as_str()), (0, ""));
    assert!(text.starts_with("one a turn: "), "{text}");
    let (code, _, complaints) = tapeworks(&["lab", "asm", "2", "--variants", "seven"]);
    assert_eq!(code, 2);
    assert!(complaints.contains("`seven` has no listing; there are: one a turn, four"), "{complaints}");
}

#[test]
fn a_wrong_name_or_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let text = path(folder.path(), "text.json");
    std::fs::write(&text, "{\"format\": 1}").unwrap();
    let control = path(folder.path(), "control.json");
    std::fs::write(&control, "\u{1b}[2J").unwrap();
    let read_only = path(folder.path(), "text.json/lab");
    let cases: [(&[&str], i32, &str); 7] = [
        (
            &["lab", "run", "nothing"],
            2,
            "`nothing` is no technique of the lab; `tapeworks lab list` lists them",
        ),
        (&["lab", "run", "2", "--count"], 2, "--quick"),
        (&["lab", "report", "/nowhere/results.json"], 1, "/nowhere/results.json: No such file"),
        (&["lab", "report", &text], 1, "text.json: no results of the lab: missing field"),
        (&["lab", "compare", &text, &control], 1, "text.json: no results of the lab"),
        (
            &["lab", "run", "2", "--quick", "--out", &read_only],
            1,
            "text.json/lab: cannot write: Not a directory",
        ),
        (&["lab", "asm", "0"], 2, "`0` is no technique"),
    ];
    for (arguments, code, says) in cases {
        let (found, _, complaints) = tapeworks(arguments);
        assert_eq!(found, code, "{arguments:?}: {complaints}");
        assert!(complaints.contains(says), "{arguments:?}: {complaints}");
        assert_eq!(complaints.lines().count(), 1, "{complaints}");
    }
}

/// A run that writes into a folder, and its end when the test is over.
struct Running(std::process::Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _reaped = self.0.wait();
    }
}

#[test]
fn a_folder_takes_one_run_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let out = path(folder.path(), "lab");
    let run = ["lab", "run", "all", "--quick", "--out", &out];
    let first = Command::new(env!("CARGO_BIN_EXE_tapeworks"))
        .args(run)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn();
    let mut first = Running(first.unwrap());
    let partial = Path::new(&out).join("results.json.partial");
    while !partial.exists() {
        assert_eq!(first.0.try_wait().unwrap(), None, "the first run has ended");
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    let (code, _, complaints) = tapeworks(&run);
    assert_eq!(code, 1);
    assert!(complaints.contains("results.json: another run writes it"), "{complaints}");
    assert_eq!(complaints.lines().count(), 1, "it measured nothing: {complaints}");
}
