//! Where output goes: standard output, and files, which may be compressed.

use std::io::{self, BufWriter, Write};
use std::path::Path;

use flate2::write::GzEncoder;
use tapeworks_packet::new_file::{self, Handle};

use crate::ending::{Failure, Result};
use crate::interrupt;
use crate::terminal::{Bar, complain};

/// Buffer before standard output, in bytes.
const STDOUT_BUFFER_BYTES: usize = 64 << 10;

/// Standard output with a buffer.
pub(crate) fn stdout() -> Result<BufWriter<Handle>> {
    let handle = Handle::stdout().map_err(|error| Failure::from_stdout(&error))?;
    Ok(BufWriter::with_capacity(STDOUT_BUFFER_BYTES, handle))
}

/// Writes a text to standard output, all of it.
pub(crate) fn print(text: &str) -> Result<()> {
    let written = Handle::stdout().and_then(|mut out| out.write_all(text.as_bytes()));
    written.map_err(|error| Failure::from_stdout(&error))
}

/// Prints what a command reports: to standard error where its data goes to standard output.
pub(crate) fn report(text: &str, data: &[impl AsRef<Path>]) -> Result<()> {
    if !data.iter().any(|path| new_file::is_stdout(path.as_ref())) {
        return print(text);
    }
    // Where standard error is closed there is nobody to tell.
    let _unseen_at_worst = io::stderr().write_all(text.as_bytes());
    Ok(())
}

/// A new file, which is compressed if its name ends in `.gz` or `.zst`. `-` is standard output.
pub(crate) struct NewFile {
    file: new_file::NewFile,
    encoder: Encoder,
}

enum Encoder {
    Plain(BufWriter<Handle>),
    Gzip(GzEncoder<BufWriter<Handle>>),
    Zstd(zstd::stream::write::Encoder<'static, BufWriter<Handle>>),
}

impl NewFile {
    /// Begins the file at `path`; one that exists is replaced only with `force`.
    pub(crate) fn create(path: &Path, force: bool) -> Result<Self> {
        let file = new_file::NewFile::create(path, force)?;
        let create = |error| Failure::from_file(path, &error);
        let buffered = BufWriter::with_capacity(256 << 10, file.handle().map_err(create)?);
        let encoder = match path.extension().and_then(|ending| ending.to_str()) {
            Some("gz") => Encoder::Gzip(GzEncoder::new(buffered, flate2::Compression::fast())),
            Some("zst") => Encoder::Zstd(zstd::stream::write::Encoder::new(buffered, 1).map_err(create)?),
            _ => Encoder::Plain(buffered),
        };
        Ok(Self { file, encoder })
    }

    /// Writes what is left and gives the file its name.
    pub(crate) fn finish(self) -> Result<()> {
        let ended = match self.encoder {
            Encoder::Plain(mut file) => file.flush(),
            Encoder::Gzip(encoder) => encoder.finish().and_then(|mut file| file.flush()),
            Encoder::Zstd(encoder) => encoder.finish().and_then(|mut file| file.flush()),
        };
        ended.map_err(|error| Failure::from_file(self.file.path(), &error))?;
        self.file.finish()?;
        Ok(())
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.encoder {
            Encoder::Plain(file) => file.write(bytes),
            Encoder::Gzip(encoder) => encoder.write(bytes),
            Encoder::Zstd(encoder) => encoder.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        // The buffers are emptied by `finish`: flushing a compressor earlier would only make the file larger.
        Ok(())
    }
}

/// Writes a whole file.
pub(crate) fn write_file(path: &Path, force: bool, bytes: &[u8]) -> Result<()> {
    let mut file = NewFile::create(path, force)?;
    file.write_all(bytes).map_err(|error| Failure::from_file(path, &error))?;
    file.finish()
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
