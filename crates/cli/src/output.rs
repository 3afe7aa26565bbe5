//! Where output goes: standard output, buffered, and files that get their name when they are whole.

use std::fs::{self, File};
use std::io::{self, BufWriter, StdoutLock, Write};
use std::path::{Path, PathBuf};

use flate2::write::GzEncoder;

use crate::ending::{Failure, Result};
use crate::terminal::Bar;
use crate::{complain, interrupt};

/// Buffer before standard output, in bytes.
const STDOUT_BUFFER_BYTES: usize = 64 << 10;

/// Standard output with a buffer.
pub(crate) fn stdout() -> BufWriter<StdoutLock<'static>> {
    BufWriter::with_capacity(STDOUT_BUFFER_BYTES, io::stdout().lock())
}

/// Writes a text to standard output, all of it.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| Failure::from_stdout(&error))
}

/// A file in the making: `NAME.partial` until it is whole, gone if it never is. Compressed if the name ends in
/// `.gz` or `.zst`.
pub(crate) struct NewFile {
    path: PathBuf,
    /// `None`: written in place, as the path is a device or a pipe.
    partial: Option<PathBuf>,
    encoder: Option<Encoder>,
}

enum Encoder {
    Plain(BufWriter<File>),
    Gzip(GzEncoder<BufWriter<File>>),
    Zstd(zstd::stream::write::Encoder<'static, BufWriter<File>>),
}

impl NewFile {
    /// Begins the file at `path`; one that exists is replaced only with `force`.
    pub(crate) fn create(path: &Path, force: bool) -> Result<Self> {
        let existing = fs::metadata(path).ok();
        if existing.as_ref().is_some_and(fs::Metadata::is_dir) {
            return Err(Failure::Failed(format!("{}: is a directory", path.display())));
        }
        let is_special = existing.as_ref().is_some_and(|metadata| !metadata.is_file());
        if existing.is_some() && !is_special && !force {
            return Err(Failure::Failed(format!("{}: the file exists; --force replaces it", path.display())));
        }
        let partial = (!is_special).then(|| {
            let mut name = path.as_os_str().to_owned();
            name.push(".partial");
            PathBuf::from(name)
        });
        let target = partial.as_deref().unwrap_or(path);
        let create = |error| Failure::Failed(format!("{}: cannot create: {error}", path.display()));
        let file = BufWriter::with_capacity(256 << 10, File::create(target).map_err(create)?);
        let encoder = match path.extension().and_then(|ending| ending.to_str()) {
            Some("gz") => Encoder::Gzip(GzEncoder::new(file, flate2::Compression::fast())),
            Some("zst") => Encoder::Zstd(zstd::stream::write::Encoder::new(file, 1).map_err(create)?),
            _ => Encoder::Plain(file),
        };
        Ok(Self { path: path.to_owned(), partial, encoder: Some(encoder) })
    }

    /// Writes what is left and gives the file its name.
    pub(crate) fn finish(mut self) -> Result<()> {
        let ended = match self.encoder.take() {
            Some(Encoder::Plain(mut file)) => file.flush(),
            Some(Encoder::Gzip(encoder)) => encoder.finish().and_then(|mut file| file.flush()),
            Some(Encoder::Zstd(encoder)) => encoder.finish().and_then(|mut file| file.flush()),
            None => Ok(()),
        };
        let named = ended.and_then(|()| match &self.partial {
            Some(partial) => fs::rename(partial, &self.path),
            None => Ok(()),
        });
        named.map_err(|error| Failure::from_file(&self.path, &error))?;
        self.partial = None;
        Ok(())
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.encoder {
            Some(Encoder::Plain(file)) => file.write(bytes),
            Some(Encoder::Gzip(encoder)) => encoder.write(bytes),
            Some(Encoder::Zstd(encoder)) => encoder.write(bytes),
            None => Err(io::Error::other("the file is finished")),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        // The buffers are emptied by `finish`: flushing a compressor earlier would only make the file larger.
        Ok(())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(partial) = &self.partial {
            // Whoever drops it unfinished has an error to tell already.
            let _ = fs::remove_file(partial);
        }
    }
}

/// What a generated session is written to: counts the bytes for the progress bar, and ends the writing when the user
/// asks.
pub(crate) struct Watched<'f> {
    file: &'f mut NewFile,
    written: u64,
    bar: Bar,
}

impl Write for Watched<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bar.show(self.written, None, None).is_break() {
            return Err(io::Error::other("stopped"));
        }
        let count = self.file.write(bytes)?;
        self.written += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Generates the file at `path`; one that exists is replaced only with `force`. `None`: the user stopped it. A file that
/// did not become whole is removed.
pub(crate) fn generate<T>(
    path: &Path,
    force: bool,
    write: impl FnOnce(Watched<'_>) -> io::Result<T>,
) -> Result<Option<T>> {
    let mut file = NewFile::create(path, force)?;
    match write(Watched { file: &mut file, written: 0, bar: Bar::new("Generating") }) {
        Ok(written) => {
            file.finish()?;
            Ok(Some(written))
        }
        Err(_) if interrupt::is_requested() => {
            complain("stopped; the unfinished file is removed");
            Ok(None)
        }
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Err(Failure::Usage(error.to_string())),
        Err(error) => Err(Failure::from_file(path, &error)),
    }
}
