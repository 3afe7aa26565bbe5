//! The file while it is written, and how it gets its final name.
//!
//! The file itself is a [`NewFile`], or supplied by the caller. A DBN file begins with values that are known only at its end, so its
//! records go to a scratch file first.

use std::fmt::Debug;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal as _, Read, Seek as _, Write};
use std::path::Path;

use tapeworks_capture::new_file::{self, NewFile};

use crate::error::StoreError;
use crate::format::Format;

/// Size of the buffer before the file; large writes bypass it.
const BUFFER_BYTES: usize = 256 << 10;

/// A file to be written, for [`Writer::create_into`](crate::Writer::create_into). The implementation decides what is left if it is
/// dropped before it is complete.
pub trait Destination: Debug + Send {
    /// Returns the path that errors show; its extension determines the format.
    fn path(&self) -> &Path;

    /// Opens the file for writing from its beginning. Called once.
    ///
    /// # Errors
    /// Errors of the system.
    fn open(&mut self) -> io::Result<Box<dyn Write + Send>>;

    /// Creates a file that disappears when it is closed: a writer, and a reader from its beginning for when everything is written.
    ///
    /// # Errors
    /// Errors of the system.
    fn scratch(&mut self) -> io::Result<Scratch>;

    /// Waits until the file is on disk. Returns its length in bytes.
    ///
    /// # Errors
    /// [`StoreError::File`].
    fn complete(self: Box<Self>) -> Result<u64, StoreError>;
}

/// The ends of a scratch file.
pub type Scratch = (Box<dyn Write + Send>, Box<dyn Read + Send>);

/// Reads a file from its beginning.
struct FromBeginning {
    file: File,
    has_begun: bool,
}

impl Read for FromBeginning {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if !self.has_begun {
            self.file.rewind()?;
            self.has_begun = true;
        }
        self.file.read(buffer)
    }
}

impl Destination for NewFile {
    fn path(&self) -> &Path {
        Self::path(self)
    }

    fn open(&mut self) -> io::Result<Box<dyn Write + Send>> {
        Ok(Box::new(self.handle()?))
    }

    fn scratch(&mut self) -> io::Result<Scratch> {
        let file = Self::scratch(self)?;
        Ok((Box::new(file.try_clone()?), Box::new(FromBeginning { file, has_begun: false })))
    }

    fn complete(self: Box<Self>) -> Result<u64, StoreError> {
        Ok(self.finish()?)
    }
}

/// A file to be written.
pub(crate) struct Target {
    file: Box<dyn Destination>,
    /// The records of a DBN file, until its head is known.
    scratch: Option<Box<dyn Read + Send>>,
    is_in_place: bool,
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

    /// Writes all buffered bytes and the end of the compressed frame. Nothing can be written afterwards.
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
    /// Creates the file at `path`, exclusively for this run from now on.
    pub(crate) fn new(path: &Path, format: Format, overwrite: bool) -> Result<Self, StoreError> {
        if new_file::is_stdout(path) && !format.is_text() && io::stdout().is_terminal() {
            return Err(StoreError::Terminal { format: format.name() });
        }
        let file = NewFile::create(path, overwrite)?;
        let is_in_place = file.partial().is_none();
        Ok(Self { is_in_place, ..Self::of(Box::new(file)) })
    }

    /// Uses a file supplied by the caller.
    pub(crate) fn of(file: Box<dyn Destination>) -> Self {
        Self { file, scratch: None, is_in_place: false }
    }

    /// Whether the file may be read before it is complete.
    pub(crate) const fn is_in_place(&self) -> bool {
        self.is_in_place
    }

    pub(crate) fn path(&self) -> &Path {
        self.file.path()
    }

    fn write_error(&self, source: io::Error) -> StoreError {
        StoreError::Write { path: self.path().to_owned(), records: 0, source }
    }

    /// Opens the file for writing.
    pub(crate) fn open(&mut self, zstd_level: Option<i32>) -> Result<Output, StoreError> {
        let opened = self.file.open().and_then(|file| Output::new(file, zstd_level));
        opened.map_err(|source| self.write_error(source))
    }

    /// Opens the scratch file for writing.
    pub(crate) fn open_scratch(&mut self, zstd_level: Option<i32>) -> Result<Output, StoreError> {
        let opened =
            self.file.scratch().and_then(|(file, scratch)| Ok((scratch, Output::new(file, zstd_level)?)));
        let (scratch, output) = opened.map_err(|source| self.write_error(source))?;
        self.scratch = Some(scratch);
        Ok(output)
    }

    /// Appends the scratch file to `output`.
    pub(crate) fn append_scratch(&mut self, output: &mut Output) -> io::Result<()> {
        let Some(mut scratch) = self.scratch.take() else { return Ok(()) };
        // Bypass the compressor: the contents are already encoded.
        let Output::Plain(plain) = output else {
            return io::copy(&mut scratch, output).map(|_| ());
        };
        let mut chunk = vec![0; BUFFER_BYTES];
        loop {
            match scratch.read(&mut chunk)? {
                0 => return Ok(()),
                length => plain.write_all(&chunk[..length])?,
            }
        }
    }

    /// Gives the file its name. Returns its length in bytes.
    pub(crate) fn complete(self) -> Result<u64, StoreError> {
        self.file.complete()
    }
}
