#![allow(clippy::unwrap_used)]

use super::*;

/// Returns the names of the files in a folder, sorted.
fn files(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

fn write(new: &NewFile, text: &[u8]) {
    new.handle().unwrap().write_all(text).unwrap();
}

#[test]
fn a_second_run_is_refused_and_harms_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("q.csv");
    let first = NewFile::create(&path, true).unwrap();
    write(&first, b"first");
    let refused = NewFile::create(&path, true).unwrap_err();
    let (path_text, partial) = (path.display(), first.partial().unwrap().display());
    assert_eq!(refused.to_string(), format!("{path_text}: another run writes it, into {partial}"));
    assert_eq!(first.finish().unwrap(), 5);
    assert_eq!(fs::read(&path).unwrap(), b"first");
    assert!(matches!(NewFile::create(&path, false), Err(NewFileError::Exists { .. })));
    let second = NewFile::create(&path, true).unwrap();
    write(&second, b"2");
    assert_eq!(fs::read(&path).unwrap(), b"first", "until the new one is whole");
    second.finish().unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"2");
    assert_eq!(files(folder.path()), ["q.csv"]);
}

#[test]
fn of_many_concurrent_runs_one_makes_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("q.csv");
    let run = |number: u8| {
        let new = NewFile::create(&path, false).ok()?;
        for _ in 0..100 {
            write(&new, &[number; 100]);
        }
        new.finish().ok().map(|_| number)
    };
    let finished: Vec<u8> = std::thread::scope(|scope| {
        let runs: Vec<_> = (0..16).map(|number| scope.spawn(move || run(number))).collect();
        runs.into_iter().filter_map(|run| run.join().unwrap()).collect()
    });
    assert_eq!(finished.len(), 1);
    assert_eq!(fs::read(&path).unwrap(), [finished[0]; 10_000]);
    assert_eq!(files(folder.path()), ["q.csv"]);
}

#[test]
fn a_partial_file_of_a_dead_run_is_set_aside_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("q.csv");
    for (left, aside) in [("one", "q.csv.partial.1"), ("two", "q.csv.partial.2")] {
        fs::write(folder.path().join("q.csv.partial"), left).unwrap();
        let new = NewFile::create(&path, true).unwrap();
        assert_eq!(new.set_aside(), Some(&*folder.path().join(aside)));
        write(&new, b"new");
        new.finish().unwrap();
        assert_eq!(fs::read_to_string(folder.path().join(aside)).unwrap(), left);
        assert_eq!(fs::read(&path).unwrap(), b"new");
    }
    // An empty partial file is removed.
    fs::write(folder.path().join("q.csv.partial"), "").unwrap();
    assert_eq!(NewFile::create(&path, true).unwrap().set_aside(), None);
    assert_eq!(files(folder.path()), ["q.csv", "q.csv.partial.1", "q.csv.partial.2"]);
}

#[test]
fn a_whole_file_that_still_has_its_partial_name_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("q.csv");
    fs::write(&path, b"whole").unwrap();
    fs::hard_link(&path, folder.path().join("q.csv.partial")).unwrap();
    let new = NewFile::create(&path, true).unwrap();
    assert_eq!(new.set_aside(), None);
    assert_eq!(fs::read(&path).unwrap(), b"whole");
    drop(new);
    assert_eq!(files(folder.path()), ["q.csv"]);
}

#[test]
fn a_file_that_another_run_made_meanwhile_is_kept_and_so_is_the_new_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("q.csv");
    let new = NewFile::create(&path, false).unwrap();
    write(&new, b"new");
    fs::write(&path, b"old").unwrap();
    let error = new.finish().unwrap_err().to_string();
    assert!(
        error.contains("was made by another program meanwhile and is kept; the written data are in"),
        "{error}"
    );
    assert_eq!(fs::read(&path).unwrap(), b"old");
    assert_eq!(fs::read(folder.path().join("q.csv.partial")).unwrap(), b"new");
}

#[test]
fn a_file_gets_its_name_after_it_is_synced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("q.csv");
    let mut new = NewFile::create(&path, false).unwrap();
    write(&new, b"1,2\n");
    new.sync = |_| Err(io::Error::from_raw_os_error(5));
    assert!(matches!(new.finish(), Err(NewFileError::Create { .. })));
    assert_eq!(files(folder.path()), Vec::<String>::new());
}

#[cfg(unix)]
#[test]
fn a_link_stays_and_its_target_is_made() {
    use std::os::unix::fs::symlink;

    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("data")).unwrap();
    let link = folder.path().join("link.csv");
    symlink("data/real.csv", &link).unwrap();
    for text in ["one", "two"] {
        let new = NewFile::create(&link, true).unwrap();
        let beside = NewFile::create(&folder.path().join("data/real.csv"), true);
        assert!(matches!(beside, Err(NewFileError::Busy { .. })), "both names are one file");
        write(&new, text.as_bytes());
        new.finish().unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(folder.path().join("data/real.csv")).unwrap(), text);
    }
    let lost = folder.path().join("lost.csv");
    symlink("nowhere/real.csv", &lost).unwrap();
    let error = NewFile::create(&lost, true).unwrap_err().to_string();
    let to = folder.path().join("nowhere/real.csv");
    let expected = format!("{}: is a link to {}, whose folder does not exist", lost.display(), to.display());
    assert_eq!(error, expected);
    let circle = folder.path().join("circle");
    symlink("circle", &circle).unwrap();
    assert!(NewFile::create(&circle, true).unwrap_err().to_string().contains("too many links"));
}

#[cfg(unix)]
#[test]
fn a_device_is_written_in_place() {
    let new = NewFile::create(Path::new("/dev/null"), false).unwrap();
    write(&new, b"gone");
    assert_eq!(new.partial(), None);
    let mut scratch = new.scratch().unwrap();
    scratch.write_all(b"gone too").unwrap();
    assert_eq!(new.finish().unwrap(), 0);
}
