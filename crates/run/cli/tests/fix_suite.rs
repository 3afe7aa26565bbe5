//! QuickFIX's acceptance definitions, against the acceptor of the example `fix_echo` in this process.
//!
//! The suite is not part of the repository: `TAPEWORKS_FIX_SUITE` names a checkout of QuickFIX, or a folder with its `definitions` and
//! `spec`. `cargo xtask test fix-suite` runs it; without the folder the test reports that it was skipped. The tests of the runner itself
//! need no suite and always run.
//!
//! Each definition gets a new acceptor. Several run in parallel, because a few spend most of their time waiting for heartbeats: the suite
//! takes about as long as its longest definition, some 35 seconds.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

#[path = "../examples/fix_echo/acceptor.rs"]
mod acceptor;
#[path = "fix_suite/definition.rs"]
mod definition;
#[path = "fix_suite/message.rs"]
mod message;
#[path = "fix_suite/play.rs"]
mod play;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use acceptor::{Acceptor, Dictionaries};
use definition::Definition;
use play::{Serve, play};

/// Names the folder of the suite.
const SUITE: &str = "TAPEWORKS_FIX_SUITE";

/// Folders of definitions that must pass, and their versions.
const VERSIONS: [(&str, &str); 3] = [("fix42", "FIX 4.2"), ("fix44", "FIX 4.4"), ("fix50sp2", "FIX 5.0 SP2")];

/// Folders of definitions that do not apply, and why.
const NOT_APPLICABLE: [(&str, &str); 6] = [
    ("fix40", "sessions do not support FIX 4.0"),
    ("fix41", "sessions do not support FIX 4.1"),
    ("fix43", "sessions do not support FIX 4.3"),
    ("fix50", "FIXT sessions carry 5.0 SP2 only"),
    ("fix50sp1", "FIXT sessions carry 5.0 SP2 only"),
    ("future", "QuickFIX does not run them either"),
];

/// Longest wait of a step. The longest pause in the definitions is a timeout after two heartbeat intervals of 6 seconds.
const PATIENCE: Duration = Duration::from_secs(30);

/// Definitions that run at the same time. They wait more than they compute, but too many would delay each other's heartbeats.
const AT_ONCE: usize = 16;

/// Starts an acceptor for one definition.
fn start(dictionaries: &Dictionaries) -> Serve {
    let acceptor = Acceptor::new(dictionaries, false);
    // How a connection ends does not matter: the definition states what the peer sees.
    Arc::new(move |stream| drop(acceptor.serve(stream)))
}

/// Names of the entries of a folder, sorted.
fn names(folder: &Path) -> Result<Vec<String>, String> {
    let located = |error| format!("{}: {error}", folder.display());
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(located)? {
        names.push(entry.map_err(located)?.file_name().to_string_lossy().into_owned());
    }
    names.sort_unstable();
    Ok(names)
}

/// Reads the definitions of a version. Adds every problem to `problems`; a folder without definitions is one.
fn read_version(folder: &Path, version: &str, problems: &mut Vec<String>) -> Vec<Definition> {
    let folder = folder.join(version);
    let mut definitions = Vec::new();
    let before = problems.len();
    let names = names(&folder).unwrap_or_else(|problem| {
        problems.push(problem);
        Vec::new()
    });
    for name in names.iter().filter(|name| name.ends_with(".def")) {
        let name = format!("{version}/{name}");
        let read = fs::read(folder.with_file_name(&name)).map_err(|error| format!("{name}: {error}"));
        match read.and_then(|text| Definition::parse(&name, &text)) {
            Ok(definition) => definitions.push(definition),
            Err(problem) => problems.push(problem),
        }
    }
    if definitions.is_empty() && problems.len() == before {
        problems.push(format!("{}: no definitions (*.def)", folder.display()));
    }
    definitions
}

/// Reads the definitions of all versions. A folder that is neither run nor listed as not applicable is a problem.
fn read_all(folder: &Path) -> Result<Vec<Vec<Definition>>, Vec<String>> {
    let mut problems = Vec::new();
    let definitions =
        VERSIONS.iter().map(|(version, _)| read_version(folder, version, &mut problems)).collect();
    for name in names(folder).unwrap_or_default() {
        let is_known = VERSIONS.iter().chain(&NOT_APPLICABLE).any(|(known, _)| *known == name);
        if folder.join(&name).is_dir() && !is_known {
            problems.push(format!("{name}: unknown folder of definitions, which `fix_suite.rs` must name"));
        }
    }
    if problems.is_empty() { Ok(definitions) } else { Err(problems) }
}

/// Plays the definitions, several in parallel. Returns the failures in the order of the definitions.
fn play_all(definitions: &[Definition], dictionaries: &Dictionaries) -> Vec<Option<String>> {
    let waiting = Mutex::new(definitions.iter().enumerate());
    let results = Mutex::new(vec![None; definitions.len()]);
    let next = || waiting.lock().unwrap().next();
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some((at, definition)) = next() {
                    let failure = play(definition, start(dictionaries), PATIENCE).err();
                    results.lock().unwrap()[at] = failure.map(|failure| failure.to_string());
                }
            });
        }
    });
    results.into_inner().unwrap()
}

#[test]
fn every_definition_of_quickfix_passes() {
    let Some(suite) = std::env::var_os(SUITE).map(PathBuf::from) else {
        eprintln!("SKIPPED: {SUITE} does not name a folder with QuickFIX's definitions and spec");
        return;
    };
    // A checkout has the definitions below `test`.
    let places = ["definitions/server", "test/definitions/server"].map(|place| suite.join(place));
    let Some(folder) = places.iter().find(|place| place.is_dir()) else {
        panic!("{} has neither definitions/server nor test/definitions/server", suite.display());
    };
    let dictionaries = Dictionaries::read(&suite.join("spec")).unwrap_or_else(|error| panic!("{error}"));
    let by_version = read_all(folder).unwrap_or_else(|problems| panic!("{}", problems.join("\n")));
    let counts: Vec<usize> = by_version.iter().map(Vec::len).collect();
    let definitions: Vec<Definition> = by_version.into_iter().flatten().collect();

    let results = play_all(&definitions, &dictionaries);

    let mut rest = &results[..];
    for ((_, version), count) in VERSIONS.iter().zip(counts) {
        let (of_version, others) = rest.split_at(count);
        let passed = of_version.iter().filter(|failure| failure.is_none()).count();
        eprintln!("{version}: {passed} of {count} definitions pass");
        rest = others;
    }
    for (name, reason) in NOT_APPLICABLE {
        if folder.join(name).is_dir() {
            eprintln!("{name}: not run, because {reason}");
        }
    }
    let failures: Vec<String> = results.into_iter().flatten().collect();
    let (failed, count) = (failures.len(), definitions.len());
    assert!(failures.is_empty(), "{failed} of {count} definitions fail:\n\n{}\n", failures.join("\n\n"));
}

/// Dictionaries that need no files, from the declared messages of the gateway.
fn declared() -> Dictionaries {
    let schema = tapeworks_fix_wire::order_entry::SCHEMA;
    let declared = Arc::new(tapeworks_order_session::fix::Dictionary::from_schema(&schema));
    Dictionaries { fix42: declared.clone(), fix44: declared.clone(), fix50sp2: declared }
}

/// A suite in a temporary folder, with these files in `fix44`; the other versions have one valid definition each.
fn suite_with(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (version, _) in VERSIONS {
        fs::create_dir(folder.path().join(version)).unwrap();
        if version != "fix44" {
            fs::write(folder.path().join(version).join("ours.def"), "iCONNECT\neDISCONNECT\n").unwrap();
        }
    }
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

#[test]
fn the_acceptor_passes_our_own_definition() {
    let logon = "8=FIX.4.4|35=A|34=1|49=TW|52=<TIME>|56=ISLD|98=0|108=30|";
    let text = format!(
        "# Two connections of a session: the second one is disconnected while the first one lasts.\n\
         i1,CONNECT\nI1,{logon}\n\
         E1,8=FIX.4.4|9=61|35=A|34=1|49=ISLD|52=00000000-00:00:00.000|56=TW|98=0|108=30|10=0|\n\
         i2,CONNECT\nI2,{logon}\ne2,DISCONNECT\n\
         I1,8=FIX.4.4|35=0|34=2|49=TW|52=<TIME>|56=ISLD|10=256|\n\
         I1,8=FIX.4.4|35=1|34=2|49=TW|52=<TIME-100>|56=ISLD|112=HELLO|\n\
         E1,8=FIX.4.4|35=0|34=2|49=ISLD|52=<TIME>|56=TW|112=HELLO|\n\
         i1,DISCONNECT\n\
         i1,CONNECT\nI1,{logon}\n\
         E1,8=FIX.4.4|35=A|34=1|49=ISLD|52=<TIME>|56=TW|98=0|108=30|\n\
         I1,8=FIX.4.4|35=5|34=2|49=TW|52=<TIME>|56=ISLD|\n\
         E1,8=FIX.4.4|35=5|34=2|49=ISLD|52=<TIME>|56=TW|\n\
         e1,DISCONNECT\n"
    );
    let definition = Definition::parse("ours.def", text.replace('|', "\x01").as_bytes()).unwrap();
    play(&definition, start(&declared()), PATIENCE).unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn failures_are_reported_beside_definitions_that_pass() {
    let right = Definition::parse("right.def", b"iCONNECT\nI8=FIX.4.4\x0135=0\x01\neDISCONNECT\n").unwrap();
    let wrong =
        Definition::parse("wrong.def", b"iCONNECT\nI8=FIX.4.4\x0135=0\x01\nE8=FIX.4.4\x01\n").unwrap();
    let results = play_all(&[right, wrong], &declared());
    assert_eq!(results[0], None);
    let failure = results[1].as_deref().unwrap();
    assert!(failure.starts_with("wrong.def:3: E8=FIX.4.4|\n"), "{failure}");
    assert!(failure.ends_with("came      a disconnect"), "{failure}");
}

#[test]
fn a_version_without_definitions_is_a_problem() {
    let folder = suite_with(&[("fix44/README", "")]);
    let problems = read_all(folder.path()).unwrap_err();
    assert_eq!(problems, [format!("{}: no definitions (*.def)", folder.path().join("fix44").display())]);
    fs::remove_dir_all(folder.path().join("fix42")).unwrap();
    assert_eq!(read_all(folder.path()).unwrap_err().len(), 2);
}

#[test]
fn definitions_that_cannot_be_read_are_problems() {
    let folder =
        suite_with(&[("fix44/a.def", "iCONNECT\nWAIT\n"), ("fix44/c.def", "iCONNECT\neDISCONNECT\n")]);
    fs::create_dir(folder.path().join("fix44/b.def")).unwrap();
    let problems = read_all(folder.path()).unwrap_err();
    assert_eq!(problems[0], "fix44/a.def:2: unknown command `WAIT`");
    assert!(problems[1].starts_with("fix44/b.def: "), "{problems:?}");
    assert_eq!(problems.len(), 2);
}

#[test]
fn an_unknown_folder_of_definitions_is_a_problem() {
    let folder = suite_with(&[("fix44/a.def", "iCONNECT\neDISCONNECT\n")]);
    fs::create_dir(folder.path().join("fix40")).unwrap();
    assert_eq!(read_all(folder.path()).unwrap().iter().map(Vec::len).sum::<usize>(), 3);
    fs::create_dir(folder.path().join("fix60")).unwrap();
    assert!(read_all(folder.path()).unwrap_err()[0].starts_with("fix60: unknown folder"));
}
