//! A model test for any disk: runs random operations on the disk and on a model of files and folders in memory. Both must agree after
//! each operation and hold the same contents at the end.
//!
//! A disk's test draws [`operations`] and passes them to [`check`]. The model does not cover crashes; the simulator's tests check
//! what a sync preserves.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs::TryLockError;
use std::io::{self, ErrorKind};
use std::path::Path;

use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::TestCaseError;

use crate::{Access, Disk, DiskFile};

/// Implements the system's disk for a type: `system_disk!(Type)`. `system_disk!(Type, exchange)` uses another function to exchange names.
#[macro_export]
macro_rules! system_disk {
    ($type:ty) => {
        $crate::system_disk!($type, <$crate::System as $crate::Disk>::exchange);
    };
    ($type:ty, $exchange:expr) => {
        impl $crate::Disk for $type {
            type File = <$crate::System as $crate::Disk>::File;

            fn open(path: &std::path::Path, access: $crate::Access) -> std::io::Result<Self::File> {
                $crate::System::open(path, access)
            }

            fn read(path: &std::path::Path) -> std::io::Result<Vec<u8>> {
                $crate::System::read(path)
            }

            fn length(path: &std::path::Path) -> std::io::Result<u64> {
                <$crate::System as $crate::Disk>::length(path)
            }

            fn exists(path: &std::path::Path) -> bool {
                $crate::System::exists(path)
            }

            fn is_dir(path: &std::path::Path) -> bool {
                $crate::System::is_dir(path)
            }

            fn is_named(file: &Self::File, path: &std::path::Path) -> bool {
                $crate::System::is_named(file, path)
            }

            fn create_dir_all(path: &std::path::Path) -> std::io::Result<()> {
                $crate::System::create_dir_all(path)
            }

            fn entries(path: &std::path::Path) -> std::io::Result<Vec<std::path::PathBuf>> {
                $crate::System::entries(path)
            }

            fn rename(from: &std::path::Path, to: &std::path::Path) -> std::io::Result<()> {
                $crate::System::rename(from, to)
            }

            fn exchange(one: &std::path::Path, other: &std::path::Path) -> std::io::Result<()> {
                $exchange(one, other)
            }

            fn remove_file(path: &std::path::Path) -> std::io::Result<()> {
                $crate::System::remove_file(path)
            }

            fn remove_dir_all(path: &std::path::Path) -> std::io::Result<()> {
                $crate::System::remove_dir_all(path)
            }

            fn sync_folder(path: &std::path::Path) -> std::io::Result<()> {
                $crate::System::sync_folder(path)
            }
        }
    };
}

const FILES: &[&str] = &["a", "b", "in/a", "in/b", "in/deep/a", "out/a"];
const FOLDERS: &[&str] = &["in", "in/deep", "out"];
const ACCESSES: &[Access] =
    &[Access::Read, Access::Write, Access::Create, Access::Replace, Access::CreateNew];

/// The number of files that may be open at a time.
const SLOTS: usize = 3;

/// Upper bound of offsets and lengths: a few blocks of a file system.
const MOST_BYTES: u64 = 20_000;

/// One call. Names are relative to the test's folder; a `slot` is one of the open files.
#[derive(Clone, Debug)]
#[expect(
    missing_docs,
    reason = "each is named as the function that it calls, and its fields as the parameters"
)]
pub enum Operation {
    Open { slot: usize, name: &'static str, access: Access },
    Close { slot: usize },
    ReadAt { slot: usize, length: usize, offset: u64 },
    WriteAllAt { slot: usize, bytes: Vec<u8>, offset: u64 },
    SyncAll { slot: usize },
    SetLength { slot: usize, bytes: u64 },
    Reserve { slot: usize, bytes: u64 },
    DataFrom { slot: usize, offset: u64 },
    TryLock { slot: usize },
    Unlock { slot: usize },
    IsNamed { slot: usize, name: &'static str },
    LockFolder { name: &'static str },
    Read { name: &'static str },
    CreateDirAll { name: &'static str },
    Entries { name: &'static str },
    Rename { from: &'static str, to: &'static str },
    Exchange { one: &'static str, other: &'static str },
    RemoveFile { name: &'static str },
    RemoveDirAll { name: &'static str },
    SyncFolder { name: &'static str },
}

/// Draws operations for [`check`].
pub fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let slot = || 0..SLOTS;
    let offset = || prop_oneof![2 => 0..MOST_BYTES, 1 => (0..5u64).prop_map(|block| 4_096 * block)];
    let file = || select(FILES);
    let folder = || select(FOLDERS);
    let pair = |names: &'static [&'static str]| (select(names), select(names));
    let any_of = prop_oneof![
        6 => (slot(), file(), select(ACCESSES))
            .prop_map(|(slot, name, access)| Operation::Open { slot, name, access }),
        1 => slot().prop_map(|slot| Operation::Close { slot }),
        3 => (slot(), 0..6_000usize, offset())
            .prop_map(|(slot, length, offset)| Operation::ReadAt { slot, length, offset }),
        6 => (slot(), prop::collection::vec(any::<u8>(), 1..40), offset())
            .prop_map(|(slot, bytes, offset)| Operation::WriteAllAt { slot, bytes, offset }),
        1 => slot().prop_map(|slot| Operation::SyncAll { slot }),
        2 => (slot(), offset()).prop_map(|(slot, bytes)| Operation::SetLength { slot, bytes }),
        2 => (slot(), offset()).prop_map(|(slot, bytes)| Operation::Reserve { slot, bytes }),
        2 => (slot(), offset()).prop_map(|(slot, offset)| Operation::DataFrom { slot, offset }),
        4 => slot().prop_map(|slot| Operation::TryLock { slot }),
        1 => slot().prop_map(|slot| Operation::Unlock { slot }),
        2 => (slot(), file()).prop_map(|(slot, name)| Operation::IsNamed { slot, name }),
        1 => folder().prop_map(|name| Operation::LockFolder { name }),
        2 => file().prop_map(|name| Operation::Read { name }),
        4 => folder().prop_map(|name| Operation::CreateDirAll { name }),
        2 => folder().prop_map(|name| Operation::Entries { name }),
        3 => pair(FILES).prop_map(|(from, to)| Operation::Rename { from, to }),
        2 => pair(FOLDERS).prop_map(|(from, to)| Operation::Rename { from, to }),
        2 => prop_oneof![pair(FILES), pair(FOLDERS)]
            .prop_map(|(one, other)| Operation::Exchange { one, other }),
        2 => file().prop_map(|name| Operation::RemoveFile { name }),
        1 => folder().prop_map(|name| Operation::RemoveDirAll { name }),
        1 => folder().prop_map(|name| Operation::SyncFolder { name }),
    ];
    prop::collection::vec(any_of, 1..60)
}

/// Runs the operations in `folder`, which must exist and be empty, and compares each result with the model's.
///
/// # Errors
/// The first difference between disk and model.
pub fn check<D: Disk>(folder: &Path, operations: &[Operation]) -> Result<(), TestCaseError> {
    let mut test = Test::<D> { folder, open: [const { None }; SLOTS], model: Model::default() };
    for (number, operation) in operations.iter().enumerate() {
        test.step(operation)
            .and_then(|()| test.compare_names())
            .map_err(|error| TestCaseError::fail(format!("operation {number}, {operation:?}: {error}")))?;
    }
    test.compare_contents()
}

/// The model's error: its kind, if the trait defines it.
type Refused = Option<ErrorKind>;

const NOT_FOUND: Refused = Some(ErrorKind::NotFound);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Entry {
    Folder,
    /// The file's index in [`Model::files`].
    File(usize),
}

#[derive(Default)]
struct File {
    bytes: Vec<u8>,
    /// The slot that holds the lock.
    locked_by: Option<usize>,
}

/// Files and folders in memory.
#[derive(Default)]
struct Model {
    entries: BTreeMap<String, Entry>,
    /// All files ever created. A file without a name still exists while it is open.
    files: Vec<File>,
}

fn parent_of(name: &str) -> &str {
    name.rsplit_once('/').map_or("", |(parent, _)| parent)
}

fn is_below(name: &str, folder: &str) -> bool {
    name.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}

impl Model {
    fn is_dir(&self, name: &str) -> bool {
        name.is_empty() || self.entries.get(name) == Some(&Entry::Folder)
    }

    fn file_of(&self, name: &str) -> Result<usize, Refused> {
        match self.entries.get(name) {
            Some(Entry::File(file)) => Ok(*file),
            _ => Err(NOT_FOUND),
        }
    }

    fn bytes(&mut self, file: usize) -> Result<&mut Vec<u8>, TestCaseError> {
        let file =
            self.files.get_mut(file).ok_or_else(|| TestCaseError::fail("the model has lost a file"))?;
        Ok(&mut file.bytes)
    }

    fn locked_by(&mut self, file: usize) -> Result<&mut Option<usize>, TestCaseError> {
        let file =
            self.files.get_mut(file).ok_or_else(|| TestCaseError::fail("the model has lost a file"))?;
        Ok(&mut file.locked_by)
    }

    fn open(&mut self, name: &str, access: Access) -> Result<usize, Refused> {
        if let Ok(file) = self.file_of(name) {
            match access {
                Access::CreateNew => return Err(Some(ErrorKind::AlreadyExists)),
                Access::Replace => {
                    if let Some(file) = self.files.get_mut(file) {
                        file.bytes.clear();
                    }
                }
                Access::Read | Access::Write | Access::Create => {}
            }
            return Ok(file);
        }
        if matches!(access, Access::Read | Access::Write) || !self.is_dir(parent_of(name)) {
            return Err(NOT_FOUND);
        }
        self.files.push(File::default());
        self.entries.insert(name.to_owned(), Entry::File(self.files.len() - 1));
        Ok(self.files.len() - 1)
    }

    fn entries_of(&self, folder: &str) -> Result<Vec<&str>, Refused> {
        if !self.is_dir(folder) {
            return Err(NOT_FOUND);
        }
        Ok(self.entries.keys().map(String::as_str).filter(|name| parent_of(name) == folder).collect())
    }

    fn create_dir_all(&mut self, name: &str) {
        if !name.is_empty() {
            self.create_dir_all(parent_of(name));
            self.entries.insert(name.to_owned(), Entry::Folder);
        }
    }

    /// Renames a file to a file's name, or a folder to a folder's name.
    fn rename(&mut self, from: &str, to: &str) -> Result<(), Refused> {
        let Some(entry) = self.entries.get(from).copied() else { return Err(NOT_FOUND) };
        if !self.is_dir(parent_of(to)) {
            return Err(NOT_FOUND);
        }
        if from == to {
            return Ok(());
        }
        if is_below(to, from) || self.entries.keys().any(|name| is_below(name, to)) {
            return Err(None);
        }
        self.entries.remove(from);
        self.entries.insert(to.to_owned(), entry);
        let below: Vec<String> = self.entries.keys().filter(|name| is_below(name, from)).cloned().collect();
        for name in below {
            if let (Some(entry), Some(rest)) = (self.entries.remove(&name), name.strip_prefix(from)) {
                self.entries.insert(format!("{to}{rest}"), entry);
            }
        }
        Ok(())
    }

    /// Exchanges two files or two folders.
    fn exchange(&mut self, one: &str, other: &str) -> Result<(), Refused> {
        if ![one, other].iter().all(|name| self.entries.contains_key(*name)) {
            return Err(NOT_FOUND);
        }
        if is_below(one, other) || is_below(other, one) {
            return Err(None);
        }
        let renamed = |name: String| {
            for (from, to) in [(one, other), (other, one)] {
                if name == from || is_below(&name, from) {
                    return format!("{to}{}", name.strip_prefix(from).unwrap_or_default());
                }
            }
            name
        };
        let entries = std::mem::take(&mut self.entries).into_iter();
        self.entries = entries.map(|(name, entry)| (renamed(name), entry)).collect();
        Ok(())
    }

    fn remove_file(&mut self, name: &str) -> Result<(), Refused> {
        self.entries.remove(name).map(drop).ok_or(NOT_FOUND)
    }

    fn remove_dir_all(&mut self, folder: &str) -> Result<(), Refused> {
        self.entries.remove(folder).ok_or(NOT_FOUND)?;
        self.entries.retain(|name, _| !is_below(name, folder));
        Ok(())
    }
}

struct Open<F> {
    disk: F,
    /// The file's index in [`Model::files`].
    file: usize,
    may_write: bool,
}

struct Test<'f, D: Disk> {
    folder: &'f Path,
    open: [Option<Open<D::File>>; SLOTS],
    model: Model,
}

/// Checks that both returned the same, or both failed with the model's kind of error, if the model defines it.
fn same<T: PartialEq + Debug>(disk: io::Result<T>, model: Result<T, Refused>) -> Result<(), TestCaseError> {
    match (disk, model) {
        (Ok(disk), Ok(model)) => prop_assert_eq!(disk, model),
        (Err(error), Err(refused)) => {
            prop_assert!(
                refused.is_none_or(|kind| error.kind() == kind),
                "{} instead of {:?}",
                error,
                refused
            );
        }
        (disk, model) => {
            return Err(TestCaseError::fail(format!("the disk says {disk:?}, the model {model:?}")));
        }
    }
    Ok(())
}

fn as_index(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

impl<D: Disk> Test<'_, D> {
    fn step(&mut self, operation: &Operation) -> Result<(), TestCaseError> {
        let Self { folder, model, .. } = self;
        let path = |name: &str| folder.join(name);
        match *operation {
            Operation::Open { slot, name, access } => self.open(slot, name, access),
            Operation::Read { name } => {
                let bytes = match model.file_of(name) {
                    Ok(file) => Ok(model.bytes(file)?.clone()),
                    Err(refused) => Err(refused),
                };
                same(D::length(&path(name)), bytes.as_ref().map(|bytes| bytes.len() as u64).map_err(|r| *r))?;
                same(D::read(&path(name)), bytes)
            }
            Operation::CreateDirAll { name } => {
                model.create_dir_all(name);
                same(D::create_dir_all(&path(name)), Ok(()))
            }
            Operation::Entries { name } => self.compare_entries(name),
            Operation::Rename { from, to } => same(D::rename(&path(from), &path(to)), model.rename(from, to)),
            Operation::Exchange { one, other } => {
                let exchanged = D::exchange(&path(one), &path(other));
                // A disk that cannot exchange has changed nothing.
                if exchanged.as_ref().is_err_and(|error| error.kind() == ErrorKind::Unsupported) {
                    return Ok(());
                }
                same(exchanged, model.exchange(one, other))
            }
            Operation::LockFolder { name } => {
                let (first, second) =
                    (D::open(&path(name), Access::Read), D::open(&path(name), Access::Read));
                let (Ok(first), Ok(second)) = (first, second) else {
                    prop_assert!(!model.is_dir(name), "it cannot be opened");
                    return Ok(());
                };
                prop_assert!(model.is_dir(name) && D::is_named(&first, &path(name)));
                prop_assert!(!D::is_named(&first, folder));
                prop_assert!(first.try_lock().is_ok());
                prop_assert!(matches!(second.try_lock(), Err(TryLockError::WouldBlock)));
                drop(first);
                prop_assert!(second.try_lock().is_ok());
                Ok(())
            }
            Operation::IsNamed { slot, name } => {
                if let Some(Some(open)) = self.open.get(slot) {
                    let is_named = model.file_of(name) == Ok(open.file);
                    prop_assert_eq!(D::is_named(&open.disk, &path(name)), is_named);
                }
                Ok(())
            }
            Operation::RemoveFile { name } => same(D::remove_file(&path(name)), model.remove_file(name)),
            Operation::RemoveDirAll { name } => {
                same(D::remove_dir_all(&path(name)), model.remove_dir_all(name))
            }
            Operation::SyncFolder { name } => {
                let is_there = if model.is_dir(name) { Ok(()) } else { Err(NOT_FOUND) };
                same(D::sync_folder(&path(name)), is_there)
            }
            Operation::Close { slot } => self.close(slot),
            Operation::ReadAt { slot, .. }
            | Operation::WriteAllAt { slot, .. }
            | Operation::SyncAll { slot }
            | Operation::SetLength { slot, .. }
            | Operation::Reserve { slot, .. }
            | Operation::DataFrom { slot, .. }
            | Operation::TryLock { slot }
            | Operation::Unlock { slot } => match self.open.get(slot) {
                Some(Some(open)) => step_of_file(model, open, operation),
                _ => Ok(()),
            },
        }
    }

    fn open(&mut self, slot: usize, name: &str, access: Access) -> Result<(), TestCaseError> {
        self.close(slot)?;
        let opened = D::open(&self.folder.join(name), access);
        match (opened, self.model.open(name, access)) {
            (Ok(disk), Ok(file)) => {
                if let Some(place) = self.open.get_mut(slot) {
                    *place = Some(Open { disk, file, may_write: access != Access::Read });
                }
                Ok(())
            }
            (opened, model) => same(opened.map(drop), model.map(drop)),
        }
    }

    /// Closes the file, which releases its lock.
    fn close(&mut self, slot: usize) -> Result<(), TestCaseError> {
        if let Some(Open { file, .. }) = self.open.get_mut(slot).and_then(Option::take) {
            self.model.locked_by(file)?.take_if(|by| *by == slot);
        }
        Ok(())
    }

    fn compare_entries(&self, name: &str) -> Result<(), TestCaseError> {
        let folder = self.folder.join(name);
        let entries = D::entries(&folder).map(|mut entries| {
            entries.sort();
            entries
        });
        let model = self.model.entries_of(name);
        same(entries, model.map(|names| names.into_iter().map(|name| self.folder.join(name)).collect()))
    }

    fn compare_names(&self) -> Result<(), TestCaseError> {
        for name in FILES.iter().chain(FOLDERS) {
            let path = self.folder.join(name);
            prop_assert_eq!(D::exists(&path), self.model.entries.contains_key(*name), "{}", name);
            prop_assert_eq!(D::is_dir(&path), self.model.is_dir(name), "{}", name);
        }
        Ok(())
    }

    fn compare_contents(&mut self) -> Result<(), TestCaseError> {
        for folder in FOLDERS.iter().chain(&[""]) {
            self.compare_entries(folder)?;
        }
        for name in FILES {
            self.step(&Operation::Read { name })?;
        }
        for slot in 0..SLOTS {
            self.step(&Operation::ReadAt { slot, length: as_index(2 * MOST_BYTES), offset: 0 })?;
        }
        Ok(())
    }
}

/// Runs an operation on an open file.
fn step_of_file<F: DiskFile>(
    model: &mut Model,
    open: &Open<F>,
    operation: &Operation,
) -> Result<(), TestCaseError> {
    let Open { disk, file, may_write } = open;
    let writable = if *may_write { Ok(()) } else { Err(None) };
    match operation {
        Operation::ReadAt { length, offset, .. } => {
            let bytes = model.bytes(*file)?;
            same(disk.length(), Ok(bytes.len() as u64))?;
            let begin = as_index(*offset).min(bytes.len());
            let there = bytes.get(begin..(begin + length).min(bytes.len())).unwrap_or_default();
            let mut buffer = vec![0xEE; *length];
            same(disk.read_full_at(&mut buffer, *offset), Ok(there.len()))?;
            prop_assert_eq!(buffer.get(..there.len()), Some(there));
            // A read may return fewer bytes, but at least one if there are any.
            buffer.fill(0xEE);
            let read =
                disk.read_at(&mut buffer, *offset).map_err(|error| TestCaseError::fail(error.to_string()))?;
            prop_assert!(
                read <= there.len() && (read > 0 || there.is_empty()),
                "{} of {}",
                read,
                there.len()
            );
            prop_assert_eq!(buffer.get(..read), there.get(..read));
            Ok(())
        }
        Operation::WriteAllAt { bytes, offset, .. } => {
            let all = model.bytes(*file)?;
            if *may_write {
                let (begin, end) = (as_index(*offset), as_index(*offset) + bytes.len());
                all.resize(all.len().max(end), 0);
                if let Some(place) = all.get_mut(begin..end) {
                    place.copy_from_slice(bytes);
                }
            }
            same(disk.write_all_at(bytes, *offset), writable)
        }
        Operation::SyncAll { .. } => same(disk.sync_all(), Ok(())),
        Operation::SetLength { bytes, .. } => {
            if *may_write {
                model.bytes(*file)?.resize(as_index(*bytes), 0);
            }
            same(disk.set_length(*bytes), writable)
        }
        Operation::Reserve { bytes, .. } => {
            let all = model.bytes(*file)?;
            if *may_write {
                all.resize(all.len().max(as_index(*bytes)), 0);
            }
            same(disk.reserve(*bytes), if *bytes == 0 { Ok(()) } else { writable })
        }
        Operation::DataFrom { offset, .. } => {
            let rest = model.bytes(*file)?.get(as_index(*offset)..).unwrap_or_default();
            let skipped = match disk.data_from(*offset) {
                Some(begin) => {
                    prop_assert!(begin >= *offset, "{} is before {}", begin, offset);
                    rest.get(..as_index(begin - offset))
                }
                None => Some(rest),
            };
            prop_assert!(
                skipped.is_some_and(|bytes| bytes.iter().all(|byte| *byte == 0)),
                "data were skipped"
            );
            Ok(())
        }
        Operation::TryLock { slot } => {
            let locked_by = model.locked_by(*file)?;
            let is_free = locked_by.is_none_or(|by| by == *slot);
            if is_free {
                *locked_by = Some(*slot);
            }
            match disk.try_lock() {
                Ok(()) => prop_assert!(is_free, "another has the lock"),
                Err(TryLockError::WouldBlock) => prop_assert!(!is_free, "no other has the lock"),
                Err(TryLockError::Error(error)) => return Err(TestCaseError::fail(error.to_string())),
            }
            Ok(())
        }
        Operation::Unlock { slot } => {
            model.locked_by(*file)?.take_if(|by| by == slot);
            same(disk.unlock(), Ok(()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::System;

    proptest! {
        #[test]
        fn the_system_does_as_the_model(operations in operations()) {
            let folder = tempfile::tempdir().unwrap();
            check::<System>(folder.path(), &operations)?;
        }
    }
}
