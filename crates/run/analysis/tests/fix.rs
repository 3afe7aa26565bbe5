//! A log of FIX messages, dumped and counted, compared with what was printed when a person checked it.
//!
//! `TAPEWORKS_BLESS=1 cargo test -p tapeworks-analysis --test fix` writes the files anew; read the difference before you commit it.

#![allow(clippy::unwrap_used)]

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use tapeworks_analysis::dump::{self, Dumped, Form, Options};
use tapeworks_analysis::input::{self, Input, InputError};
use tapeworks_analysis::stats;

fn testdata() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/testdata")
}

fn compare(name: &str, text: &str) {
    let path = testdata().join("golden").join(name);
    if std::env::var_os("TAPEWORKS_BLESS").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert!(golden == text, "{} differs from what was printed:\n{text}", path.display());
}

fn log() -> Vec<Input> {
    let mut inputs = input::open_any(&[testdata().join("fix/session.log")], None).unwrap();
    inputs[0].name = "testdata/fix/session.log".into();
    inputs
}

fn dumped(form: Form, messages: &[&str]) -> (String, Dumped) {
    let mut out = Vec::new();
    let messages = messages.iter().map(|name| (*name).to_owned()).collect();
    let options = Options { form, messages, ..Options::default() };
    let dumped = dump::dump(&mut log(), &options, &mut out, &mut |_| ControlFlow::Continue(())).unwrap();
    (String::from_utf8(out).unwrap(), dumped)
}

#[test]
fn a_log_is_dumped_as_it_was() {
    let (text, counts) = dumped(Form::Lines, &[]);
    assert_eq!((counts.messages, counts.problems), (5, 1));
    assert!(!text.contains("secret") && !text.contains("changed"), "{text}");
    compare("dump/fix-session.txt", &text);
    compare("dump/fix-session.detail.txt", &dumped(Form::Fields, &[]).0);
    let (json, _) = dumped(Form::Json, &[]);
    assert!(json.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()), "{json}");
    compare("dump/fix-session.jsonl", &json);
    assert_eq!(dumped(Form::Lines, &["neworderSingle"]).1.messages, 0, "names are given in lower case");
    assert_eq!(dumped(Form::Lines, &["newordersingle"]).1.messages, 1);
}

#[test]
fn a_log_is_counted_as_it_was() {
    let stats = stats::count(&mut log(), None, &mut |_| ControlFlow::Continue(()));
    assert_eq!((stats.messages(), stats.problems), (5, 1));
    assert!(!stats.is_clean());
    let json = serde_json::to_string_pretty(&stats.to_json(10)).unwrap();
    compare("stats/fix-session.json", &(json + "\n"));
}

#[test]
fn market_data_are_not_read_from_a_log_of_fix() {
    let error = input::open_all(&[testdata().join("fix/session.log")], None).unwrap_err();
    assert!(matches!(error, InputError::FixLog { .. }), "{error}");
}
