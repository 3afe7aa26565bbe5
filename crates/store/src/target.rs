//! The file while it is written, and its way to its final name.
//!
//! Nothing has the final name before it is whole: output goes to `<name>.partial` beside it (and, for DBN, whose head
//! tells what only the end knows, the records to `<name>.records.partial`), and is renamed at the end. Without that
//! end the partial files are removed.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use crate::error::StoreError;

/// The buffer before the file: large writes pass it by.
const BUFFER_BYTES: usize = 256 << 10;

/// Opens a file to write, for the system or for a test.
pub(crate) type Opener = fn(&Path) -> io::Result<Box<dyn Write + Send>>;

/// A file to come.
#[derive(Debug)]
pub(crate) struct Target {
    path: PathBuf,
    overwrite: bool,
    partials: Vec<PathBuf>,
    opener: Opener,
    /// Waits until the disk has a file or a folder.
    sync: fn(&Path) -> io::Result<()>,
}

/// Waits until the disk has what is at `path`: a file's bytes, a folder's names.
fn synced(path: &Path) -> io::Result<()> {
    match File::open(path)?.sync_all() {
        // A file system that does not sync folders.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        synced => synced,
    }
}

/// Creates `path` on the disk.
pub(crate) fn on_disk(path: &Path) -> io::Result<Box<dyn Write + Send>> {
    Ok(Box::new(File::create(path)?))
}

/// A buffered output, compressed or not.
pub(crate) enum Output {
    Plain(BufWriter<Box<dyn Write + Send>>),
    Zstd(Box<zstd::stream::write::Encoder<'static, BufWriter<Box<dyn Write + Send>>>>),
}

impl Output {
    fn new(file: Box<dyn Write + Send>, zstd_level: Option<i32>) -> io::Result<Self> {
        let buffered = BufWriter::with_capacity(BUFFER_BYTES, file);
        Ok(match zstd_level {
            None => Self::Plain(buffered),
            Some(level) => Self::Zstd(Box::new(zstd::stream::write::Encoder::new(buffered, level)?)),
        })
    }

    /// Writes out all that is buffered, with the end of the compressed frame. Nothing can be written after.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(file) => file.flush(),
            Self::Zstd(encoder) => {
                encoder.do_finish()?;
                encoder.get_mut().flush()
            }
        }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(file) => file.write(bytes),
            Self::Zstd(encoder) => encoder.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(file) => file.flush(),
            Self::Zstd(encoder) => encoder.flush(),
        }
    }
}

impl Target {
    /// Checks that `path` can become a file.
    pub(crate) fn new(path: &Path, overwrite: bool, opener: Opener) -> Result<Self, StoreError> {
        let target = Self { path: path.to_owned(), overwrite, partials: Vec::new(), opener, sync: synced };
        target.check()?;
        Ok(target)
    }

    fn check(&self) -> Result<(), StoreError> {
        if self.path.is_dir() {
            return Err(StoreError::IsDirectory { path: self.path.clone() });
        }
        if !self.overwrite && self.path.exists() {
            return Err(StoreError::Exists { path: self.path.clone() });
        }
        Ok(())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A new partial file: `<name><part>.partial`.
    pub(crate) fn open(&mut self, part: &str, zstd_level: Option<i32>) -> Result<Output, StoreError> {
        let mut name = self.path.clone().into_os_string();
        name.push(part);
        name.push(".partial");
        let partial = PathBuf::from(name);
        let create = |source| StoreError::Create { path: partial.clone(), source };
        let file = (self.opener)(&partial).map_err(create)?;
        self.partials.push(partial.clone());
        Output::new(file, zstd_level).map_err(create)
    }

    /// Appends the partial file at `index` to `output`.
    pub(crate) fn append(&self, index: usize, output: &mut Output) -> io::Result<()> {
        let Some(partial) = self.partials.get(index) else { return Ok(()) };
        let mut file = File::open(partial)?;
        // Past the compressor: what is in the part is encoded already.
        let Output::Plain(plain) = output else {
            return io::copy(&mut file, output).map(|_| ());
        };
        let mut chunk = vec![0; BUFFER_BYTES];
        loop {
            match file.read(&mut chunk)? {
                0 => return Ok(()),
                length => plain.write_all(&chunk[..length])?,
            }
        }
    }

    /// Gives the last partial file the final name, when the disk has all of it, and removes the others. Returns its length in
    /// bytes.
    pub(crate) fn complete(&mut self) -> Result<u64, StoreError> {
        // Someone may have made a file of this name in the meantime.
        self.check()?;
        let Some(partial) = self.partials.pop() else { return Ok(0) };
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let renamed = (self.sync)(&partial).and_then(|()| {
            let bytes = fs::metadata(&partial)?.len();
            fs::rename(&partial, &self.path)?;
            (self.sync)(folder.unwrap_or(Path::new(".")))?;
            Ok(bytes)
        });
        renamed.map_err(|source| {
            self.partials.push(partial);
            StoreError::Create { path: self.path.clone(), source }
        })
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        for partial in &self.partials {
            // Nothing can be done about a file that cannot be removed, and whoever drops this has an error already.
            let _ = fs::remove_file(partial);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_has_its_name_before_the_disk_has_it() {
        let folder = std::env::temp_dir().join(format!("tapeworks-target-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("some.csv");
        let mut target = Target::new(&path, false, on_disk).unwrap();
        let mut output = target.open("", None).unwrap();
        output.write_all(b"1,2\n").unwrap();
        output.finish().unwrap();
        target.sync = |_| Err(io::Error::from_raw_os_error(5));
        let error = target.complete().unwrap_err();
        assert!(matches!(&error, StoreError::Create { path: told, .. } if *told == path), "{error}");
        assert!(!path.exists());
        target.sync = |path| {
            assert!(path.ends_with("some.csv.partial") || path.is_dir() && path.join("some.csv").exists());
            synced(path)
        };
        assert_eq!(target.complete().unwrap(), 4);
        assert!(path.exists());
        fs::remove_dir_all(folder).unwrap();
    }
}
