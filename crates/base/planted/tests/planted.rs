//! Each bug of the table is planted once, in the file that the table names, and every planted bug is in the table.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{fs, io};

use tapeworks_planted::BUGS;

fn sources(folder: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            sources(&path, found)?;
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
    Ok(())
}

/// The root of the repository, three folders above this crate.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(3).unwrap_or(Path::new("."))
}

/// The names of planted bugs in a text.
fn names(text: &str) -> impl Iterator<Item = &str> {
    text.split("planted!(\"").skip(1).filter_map(|rest| rest.split('"').next())
}

#[test]
fn the_table_names_what_is_planted_and_where() {
    let root = root();
    let mut planted: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let wings = fs::read_dir(root.join("crates")).unwrap();
    for folder in wings.flat_map(|wing| fs::read_dir(wing.unwrap().path()).unwrap()) {
        let folder = folder.unwrap().path();
        if folder.ends_with("planted") || !folder.join("src").is_dir() {
            continue;
        }
        let mut found = Vec::new();
        sources(&folder.join("src"), &mut found).unwrap();
        for path in found {
            let file = path.strip_prefix(root).unwrap().to_str().unwrap().replace('\\', "/");
            for name in names(&fs::read_to_string(&path).unwrap()) {
                planted.entry(name.to_owned()).or_default().push(file.clone());
            }
        }
    }
    let table: BTreeMap<String, Vec<String>> =
        BUGS.iter().map(|bug| (bug.name.to_owned(), vec![bug.file.to_owned()])).collect();
    assert_eq!(table.len(), BUGS.len(), "a name is in the table twice");
    assert_eq!(planted, table);
}

#[test]
fn the_docs_say_which_seed_finds_each() {
    let text = fs::read_to_string(root().join("docs/src/simulation.md")).unwrap();
    let rows: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` | "))
        .map(|row| row.0)
        .collect();
    let missing: Vec<&str> = BUGS.iter().map(|bug| bug.name).filter(|name| !rows.contains(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
#[cfg(not(tapeworks_bug))]
fn no_bug_is_in_an_ordinary_build() {
    let switched_on =
        [tapeworks_planted::planted!("replay-off-by-one"), tapeworks_planted::planted!("wake-up-lost")];
    assert_eq!(switched_on, [false; 2]);
}

#[test]
#[cfg(tapeworks_bug)]
fn one_bug_at_a_time_is_switched_on_and_known_to_be_reached() {
    use tapeworks_planted::{choose, is_reached, number, planted};
    let [one, other] = ["replay-off-by-one", "wake-up-lost"].map(number);
    choose(Some(one));
    assert!(planted!("replay-off-by-one") && !planted!("wake-up-lost"));
    assert!(is_reached(one) && is_reached(other));
    choose(None);
    assert!(!is_reached(one) && !planted!("replay-off-by-one") && is_reached(one));
}
