#![allow(clippy::unwrap_used)]

use super::*;

/// A private folder, gone with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tapeworks-new-file-{}-{name}", std::process::id()));
        let _there_was_none = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn files(&self) -> Vec<String> {
        let names = fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _left_behind_at_worst = fs::remove_dir_all(&self.0);
    }
}

fn write(new: &NewFile, text: &[u8]) {
    new.handle().unwrap().write_all(text).unwrap();
}

#[test]
fn a_second_run_is_refused_and_harms_nothing() {
    let folder = Folder::new("two");
    let path = folder.0.join("q.csv");
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
    assert_eq!(folder.files(), ["q.csv"]);
}

#[test]
fn of_many_runs_at_once_the_file_is_one_runs() {
    let folder = Folder::new("many");
    let path = folder.0.join("q.csv");
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
    assert_eq!(folder.files(), ["q.csv"]);
}

#[test]
fn what_a_dead_run_left_is_set_aside_and_named() {
    let folder = Folder::new("left");
    let path = folder.0.join("q.csv");
    for (left, aside) in [("one", "q.csv.partial.1"), ("two", "q.csv.partial.2")] {
        fs::write(folder.0.join("q.csv.partial"), left).unwrap();
        let new = NewFile::create(&path, true).unwrap();
        assert_eq!(new.set_aside(), Some(&*folder.0.join(aside)));
        write(&new, b"new");
        new.finish().unwrap();
        assert_eq!(fs::read_to_string(folder.0.join(aside)).unwrap(), left);
        assert_eq!(fs::read(&path).unwrap(), b"new");
    }
    // One without a byte has nothing to keep.
    fs::write(folder.0.join("q.csv.partial"), "").unwrap();
    assert_eq!(NewFile::create(&path, true).unwrap().set_aside(), None);
    assert_eq!(folder.files(), ["q.csv", "q.csv.partial.1", "q.csv.partial.2"]);
}

#[test]
fn a_whole_file_that_still_has_its_partial_name_is_kept() {
    let folder = Folder::new("linked");
    let path = folder.0.join("q.csv");
    fs::write(&path, b"whole").unwrap();
    fs::hard_link(&path, folder.0.join("q.csv.partial")).unwrap();
    let new = NewFile::create(&path, true).unwrap();
    assert_eq!(new.set_aside(), None);
    assert_eq!(fs::read(&path).unwrap(), b"whole");
    drop(new);
    assert_eq!(folder.files(), ["q.csv"]);
}

#[test]
fn a_file_that_came_into_being_meanwhile_is_kept_and_so_is_the_new_one() {
    let folder = Folder::new("meanwhile");
    let path = folder.0.join("q.csv");
    let new = NewFile::create(&path, false).unwrap();
    write(&new, b"new");
    fs::write(&path, b"old").unwrap();
    let told = new.finish().unwrap_err().to_string();
    assert!(told.contains("came into being meanwhile and is kept; what was written is in"), "{told}");
    assert_eq!(fs::read(&path).unwrap(), b"old");
    assert_eq!(fs::read(folder.0.join("q.csv.partial")).unwrap(), b"new");
}

#[test]
fn nothing_has_its_name_before_the_disk_has_it() {
    let folder = Folder::new("sync");
    let path = folder.0.join("q.csv");
    let mut new = NewFile::create(&path, false).unwrap();
    write(&new, b"1,2\n");
    new.sync = |_| Err(io::Error::from_raw_os_error(5));
    assert!(matches!(new.finish(), Err(NewFileError::Create { .. })));
    assert_eq!(folder.files(), Vec::<String>::new());
}

#[cfg(unix)]
#[test]
fn a_link_stays_and_what_it_leads_to_is_made() {
    use std::os::unix::fs::symlink;

    let folder = Folder::new("link");
    fs::create_dir(folder.0.join("data")).unwrap();
    let link = folder.0.join("link.csv");
    symlink("data/real.csv", &link).unwrap();
    for text in ["one", "two"] {
        let new = NewFile::create(&link, true).unwrap();
        let beside = NewFile::create(&folder.0.join("data/real.csv"), true);
        assert!(matches!(beside, Err(NewFileError::Busy { .. })), "both names are one file");
        write(&new, text.as_bytes());
        new.finish().unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(folder.0.join("data/real.csv")).unwrap(), text);
    }
    let lost = folder.0.join("lost.csv");
    symlink("nowhere/real.csv", &lost).unwrap();
    let told = NewFile::create(&lost, true).unwrap_err().to_string();
    let to = folder.0.join("nowhere/real.csv");
    let expected = format!("{}: is a link to {}, whose folder does not exist", lost.display(), to.display());
    assert_eq!(told, expected);
    let circle = folder.0.join("circle");
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

#[test]
fn a_folder_is_one_runs_and_begins_empty() {
    let folder = Folder::new("folder");
    let (path, partial) = (folder.0.join("day"), folder.0.join("day.partial"));
    let first = lock_folder(&path, &partial).unwrap();
    fs::write(partial.join("half.csv"), "1,").unwrap();
    let refused = lock_folder(&path, &partial).unwrap_err();
    assert!(matches!(refused, NewFileError::Busy { .. }), "{refused}");
    assert!(partial.join("half.csv").exists());
    // The run dies.
    drop(first);
    let _second = lock_folder(&path, &partial).unwrap();
    assert!(!partial.join("half.csv").exists());
}
