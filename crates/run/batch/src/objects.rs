//! Inputs that are objects: which ones a pattern matches, and how they are downloaded for the code that reads captures.
//!
//! A listing gives each object's size and version, which the task stores. Every request for its bytes is bound to that version, so a
//! task reads what was planned, or it fails and names the object.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// The local copies of objects.
#[derive(Debug, Default)]
pub(super) struct Staged {
    /// The path and the address of each.
    names: Vec<(String, String)>,
}

impl Staged {
    /// Returns the local file below `work` for input number `index`.
    pub(super) fn path(&mut self, work: &Path, index: usize, address: &Path) -> PathBuf {
        // A name must never lead out of the folder.
        let name = address.file_name().unwrap_or_else(|| OsStr::new("object"));
        let path = work.join("inputs").join(index.to_string()).join(name);
        self.names.push((path.display().to_string(), address.display().to_string()));
        path
    }

    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Replaces local paths in a text by the objects' addresses.
    pub(super) fn renamed(&self, text: &str) -> String {
        self.names.iter().fold(text.to_owned(), |text, (path, address)| text.replace(path, address))
    }

    /// Does the same for all texts in a value.
    pub(super) fn rename_all(&self, value: &mut serde_json::Value) {
        match value {
            serde_json::Value::String(text) => *text = self.renamed(text),
            serde_json::Value::Array(values) => values.iter_mut().for_each(|value| self.rename_all(value)),
            serde_json::Value::Object(fields) => fields.values_mut().for_each(|value| self.rename_all(value)),
            _ => {}
        }
    }
}

#[cfg(feature = "cloud")]
pub(super) use in_store::{below, bring, probed};

#[cfg(feature = "cloud")]
mod in_store {
    use std::fs::{self, File};
    use std::io::Write as _;
    use std::ops::ControlFlow;
    use std::path::Path;

    use sha2::{Digest as _, Sha256};
    use tapeworks_cloud::{self as cloud, Download, Object};

    use crate::{BatchError, ObjectInput, TaskError};

    /// Bytes of an object examined first; four times as many on each further attempt.
    const FIRST_BYTES: u64 = 16 << 20;

    impl From<&ObjectInput> for Object {
        fn from(object: &ObjectInput) -> Self {
            Self {
                address: object.path.display().to_string(),
                size: object.size,
                version: object.version.clone(),
            }
        }
    }

    impl From<Object> for ObjectInput {
        fn from(object: Object) -> Self {
            Self { path: object.address.into(), size: object.size, version: object.version }
        }
    }

    /// Returns the objects that an address names: the object at the address, or all below it; a pattern names those that match.
    pub(crate) fn below(
        address: &str,
        is_match: &dyn Fn(&glob::Pattern, &str) -> bool,
    ) -> Result<Vec<ObjectInput>, BatchError> {
        let address = crate::place::in_bucket(address)?;
        let pattern = |text: &str| {
            glob::Pattern::new(text)
                .map_err(|error| BatchError::Pattern { pattern: address.to_owned(), why: error.to_string() })
        };
        let (listed, wanted) = if let Some(end) = address.find(['*', '?', '[']) {
            let start = address.get(..end).unwrap_or_default();
            let folder = start.rfind('/').and_then(|end| start.get(..=end)).unwrap_or(start);
            let folder = crate::place::in_bucket(folder)?;
            let listed = cloud::list(folder)?;
            // A key may contain such characters.
            if let Some(object) = listed.iter().find(|object| object.address == address) {
                return Ok(vec![object.clone().into()]);
            }
            (listed, pattern(&crate::place::with_files(address))?)
        } else {
            let listed = cloud::list(address)?;
            if listed.is_empty() {
                return Ok(cloud::head(address)?.into_iter().map(Into::into).collect());
            }
            (listed, pattern(&format!("{}/**/*", glob::Pattern::escape(address)))?)
        };
        let is_wanted = |object: &&Object| is_match(&wanted, &object.address) && !is_folder(object, &listed);
        Ok(listed.iter().filter(is_wanted).cloned().map(Into::into).collect())
    }

    /// Whether an object in a sorted listing represents a folder, as consoles create it: it is empty, and other objects are below it.
    pub(super) fn is_folder(object: &Object, listed: &[Object]) -> bool {
        let below = format!("{}/", object.address);
        let first = listed.partition_point(|other| other.address < below);
        object.size == 0 && listed.get(first).is_some_and(|other| other.address.starts_with(&below))
    }

    /// Downloads an object into a local file. Returns its SHA-256.
    pub(crate) fn bring(
        object: &ObjectInput,
        path: &Path,
        observe: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<String, TaskError> {
        let of_object = |error: cloud::CloudError| TaskError::OfObject { why: error.to_string() };
        let mut file = create(path)?;
        let mut hasher = Sha256::new();
        let mut download = Download::new(&object.into()).map_err(of_object)?;
        while let Some(bytes) = download.next(object.size).map_err(of_object)? {
            hasher.update(&bytes);
            file.write_all(&bytes).map_err(BatchError::io(path, "cannot be written"))?;
            if observe(0).is_break() {
                return Err(TaskError::Stopped);
            }
        }
        Ok(hex::encode(hasher.finalize()))
    }

    /// Downloads the beginning of an object into a local file, and more of it until `probe` returns `true` because it has seen enough.
    /// Returns its last answer, or why the object cannot be used.
    ///
    /// # Errors
    /// [`BatchError::Io`] for errors that are not the object's fault, such as a full disk.
    pub(crate) fn probed<T>(
        object: &ObjectInput,
        path: &Path,
        mut probe: impl FnMut() -> (T, bool),
    ) -> Result<Result<T, String>, BatchError> {
        let begun = create(path).map_err(|error| error.to_string());
        let download = || Download::new(&object.into()).map_err(|error| error.to_string());
        let (mut file, mut download) = match begun.and_then(|file| Ok((file, download()?))) {
            Ok(begun) => begun,
            Err(error) => return Ok(Err(error)),
        };
        let mut end = FIRST_BYTES;
        loop {
            loop {
                match download.next(end) {
                    Ok(Some(bytes)) => {
                        file.write_all(&bytes).map_err(BatchError::io(path, "cannot be written"))?;
                    }
                    Ok(None) => break,
                    Err(error) => return Ok(Err(error.to_string())),
                }
            }
            let (probed, is_enough) = probe();
            if is_enough || download.position() >= object.size {
                return Ok(Ok(probed));
            }
            end = end.saturating_mul(4);
        }
    }

    fn create(path: &Path) -> Result<File, BatchError> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(BatchError::io(folder, "cannot be made"))?;
        }
        File::create(path).map_err(BatchError::io(path, "cannot be made"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "cloud")]
    #[test]
    fn an_empty_object_that_stands_for_a_folder_is_no_input() {
        let object = |(address, size): (&str, u64)| tapeworks_cloud::Object {
            address: format!("s3://b/{address}"),
            size,
            version: String::new(),
        };
        let listed =
            [("a", 0), ("a.pcap", 0), ("a/b", 1), ("c", 1), ("c/d", 0), ("e", 0), ("e-f/g", 1)].map(object);
        let folders = listed.iter().filter(|one| in_store::is_folder(one, &listed));
        assert_eq!(folders.map(|one| one.address.as_str()).collect::<Vec<_>>(), ["s3://b/a"]);
    }

    #[test]
    fn texts_of_a_record_have_the_names_of_objects_and_not_of_their_local_files() {
        let mut staged = Staged::default();
        let path = staged.path(Path::new("work"), 1, Path::new("s3://b/day/a.pcap"));
        assert_eq!(path, Path::new("work/inputs/1/a.pcap"));
        staged.path(Path::new("work"), 11, Path::new("s3://b/day/b.pcap"));
        let path = Staged::default().path(Path::new("work"), 2, Path::new("s3://b/../../.."));
        assert_eq!(path, Path::new("work/inputs/2/object"));
        let mut value = serde_json::json!({ "a": ["work/inputs/1/a.pcap: packet 3", 7], "b": "file work/inputs/11/b.pcap" });
        staged.rename_all(&mut value);
        assert_eq!(
            value,
            serde_json::json!({ "a": ["s3://b/day/a.pcap: packet 3", 7], "b": "file s3://b/day/b.pcap" })
        );
    }
}
