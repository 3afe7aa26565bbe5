//! `tapeworks hash` as a user meets it: answers, files, standard input, and whatever can be wrong.

#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use std::io::Write as _;
use std::process::{Output, Stdio};

use support::{Folder, command, interrupt_once, listens, run, stderr, stdout};

#[track_caller]
fn assert_only_error(output: &Output, code: i32, text: &str) {
    assert_eq!(output.status.code(), Some(code), "{}", stderr(output));
    assert_eq!(stderr(output), format!("tapeworks: {text}\n"));
    assert_eq!(stdout(output), "", "what fails answers nothing");
}

fn with_input(arguments: &[&str], input: &[u8]) -> Output {
    let mut child = command(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn every_form_of_a_value_means_the_same() {
    let of = |values: &[&str]| {
        let output = run(&[&["hash", "--json"], values].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let mut object: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
        assert!(object["elapsed_ns"].take().is_u64());
        object
    };
    let expected = of(&["65", "68", "56", "16709"]);
    assert_eq!(expected, of(&["0x4145", "0b111000", "'D'", "A"]));
    assert_eq!(expected, of(&["\"AE\"", "'8'", "D", "0x41"]));
    assert_eq!((&expected["values"], &expected["width"]), (&4.into(), &16.into()));
    let families = expected["families"].as_array().unwrap();
    assert!(families.iter().any(|family| family["family"] == "displace"), "{families:?}");
    assert!(families.iter().all(|family| family["cost"].as_u64() >= expected["cost"].as_u64()));
}

#[test]
fn the_answer_for_people_has_the_formula_and_every_family() {
    let text = stdout(&run(&["hash", "A", "0x30", "0x31", "D", "F", "G"]));
    assert!(text.starts_with("slot = value & 0x1f\n"), "{text}");
    for word in ["slots         32, load 0.19", "table         32 bytes", "multiply-shift", "displace"] {
        assert!(text.contains(word), "{word} is not in {text}");
    }
}

#[test]
fn files_and_standard_input_are_read_alike() {
    let folder = Folder::new("hash");
    let text = b"# order entry\n0x44 # new order\n'F'\n\n  71\n";
    let file = folder.write("types.txt", text);
    let expected = stdout(&run(&["hash", "--rust", "D", "F", "G"]));
    assert!(expected.contains("pub const fn index(value: u8) -> Option<usize>"), "{expected}");
    assert_eq!(stdout(&run(&["hash", "--rust", "--file", &file])), expected);
    assert_eq!(stdout(&with_input(&["hash", "--rust", "-"], text)), expected);
    assert_eq!(stdout(&with_input(&["hash", "--rust", "--file", "-"], text)), expected);
}

#[test]
fn a_faulty_value_is_named_with_its_place() {
    assert_only_error(
        &run(&["hash", "1", "2x"]),
        2,
        "value 2: \"2x\" is no value; write 68, 0x44, 0b1000100, 'D' or \"AE\"",
    );
    assert_only_error(&run(&["hash", "7", "8", "0x7"]), 2, "value 3 is 0x7, as value 1 is already");
    assert_only_error(
        &run(&["hash", "7", "256", "--width", "8"]),
        2,
        "value 2 is 0x100, which does not fit into u8",
    );
    let output = run(&["hash", "7", "--width", "9"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("use 8, 16, 32 or 64"));
    assert_eq!(run(&["hash"]).status.code(), Some(2));
}

#[test]
fn a_negative_number_is_refused_with_the_forms_of_a_value() {
    let expected = "is no value: a value has no sign; write 68, 0x44, 0b1000100, 'D' or \"AE\"";
    assert_only_error(&run(&["hash", "-1"]), 2, &format!("value 1: \"-1\" {expected}"));
    assert_only_error(&run(&["hash", "--", "-1"]), 2, &format!("value 1: \"-1\" {expected}"));
    assert_only_error(&run(&["hash", "7", "-1.5", "--json"]), 2, &format!("value 2: \"-1.5\" {expected}"));
    assert_only_error(&run(&["hash", "7", "-0x44"]), 2, &format!("\"-0x44\" {expected}"));
    let output = run(&["hash", "7", "-x"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("unexpected argument '-x' found"), "{}", stderr(&output));
}

#[test]
fn a_faulty_file_is_named_with_the_line() {
    let folder = Folder::new("hash-faults");
    assert_only_error(&run(&["hash", "--file", "nowhere.txt"]), 1, "nowhere.txt: no such file");
    assert_only_error(&run(&["hash", "--file", "testdata"]), 1, "testdata: is a directory");
    let file = folder.write("word.txt", b"1\n\n   'DD\n");
    let expected = format!("{file}:3:4: \"'DD\" is no text of 1 to 8 printable ASCII characters in quotes");
    assert_only_error(&run(&["hash", "--file", &file]), 1, &expected);
    let file = folder.write("twice.txt", b"1\n# one\n0x1\n");
    assert_only_error(&run(&["hash", "--file", &file]), 1, &format!("{file}:3: 0x1 is in line 1 already"));
    let file = folder.write("empty.txt", b"# nothing\n");
    assert_only_error(&run(&["hash", "--file", &file]), 1, &format!("{file}: there are no values"));
    let file = folder.write("binary.txt", &[0xff, 0xfe, 0x00]);
    assert_only_error(&run(&["hash", "--file", &file]), 1, &format!("{file}: is no text"));
    let many: String = (0..=65_536).map(|number| format!("{number}\n")).collect();
    let file = folder.write("many.txt", many.as_bytes());
    let expected =
        format!("{file}:65537: 65537 values are too many: value 0x10000 is the first beyond 65536");
    assert_only_error(&run(&["hash", "--file", &file]), 1, &expected);
    assert_only_error(
        &with_input(&["hash", "-"], b"x1"),
        1,
        "standard input:1:1: \"x1\" is no value; write 68, 0x44, 0b1000100, 'D' or \"AE\"",
    );
}

#[cfg(unix)]
#[test]
fn one_ctrl_c_ends_the_wait_for_a_pipe_that_says_nothing() {
    let folder = Folder::new("hash-pipe");
    let pipe = folder.path("values");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for arguments in [&["hash", "-"][..], &["hash", "--file", &pipe]] {
        let mut child = command(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let _silent = child.stdin.take();
        let process = child.id();
        assert_only_error(&interrupt_once(child, || listens(process)), 130, "stopped");
    }
}
