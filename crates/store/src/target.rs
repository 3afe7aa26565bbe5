//! The file while it is written, and its way to its final name.
//!
//! The file itself is a [`NewFile`]. A DBN file begins with values that are known at its end, so its records go to a scratch file
//! without a name first.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal as _, Read, Seek, Write};
use std::path::Path;

use tapeworks_packet::new_file::{self, NewFile};

use crate::error::StoreError;
use crate::format::Format;

/// The buffer before the file: large writes pass it by.
const BUFFER_BYTES: usize = 256 << 10;

/// Opens what is written into, for the system or for a test.
pub(crate) type Opener = fn(Box<dyn Write + Send>) -> io::Result<Box<dyn Write + Send>>;

/// A file to come.
#[derive(Debug)]
pub(crate) struct Target {
    file: NewFile,
    /// The records of a DBN file until its head is known.
    scratch: Option<File>,
    opener: Opener,
}

/// Writes to the disk.
pub(crate) fn on_disk(file: Box<dyn Write + Send>) -> io::Result<Box<dyn Write + Send>> {
    Ok(file)
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
    /// Begins the file at `path`, which is for this run alone from now on.
    pub(crate) fn new(
        path: &Path,
        format: Format,
        overwrite: bool,
        opener: Opener,
    ) -> Result<Self, StoreError> {
        if new_file::is_stdout(path) && !format.is_text() && io::stdout().is_terminal() {
            return Err(StoreError::Terminal { format: format.name() });
        }
        Ok(Self { file: NewFile::create(path, overwrite)?, scratch: None, opener })
    }

    /// Whether somebody may read what is written before it is whole.
    pub(crate) fn is_in_place(&self) -> bool {
        self.file.partial().is_none()
    }

    pub(crate) fn path(&self) -> &Path {
        self.file.path()
    }

    fn write_error(&self, source: io::Error) -> StoreError {
        StoreError::Write { path: self.path().to_owned(), records: 0, source }
    }

    /// What writes into the file.
    pub(crate) fn open(&mut self, zstd_level: Option<i32>) -> Result<Output, StoreError> {
        let opened = self.file.handle().and_then(|handle| {
            let file = (self.opener)(Box::new(handle))?;
            Output::new(file, zstd_level)
        });
        opened.map_err(|source| self.write_error(source))
    }

    /// What writes into the scratch file.
    pub(crate) fn open_scratch(&mut self, zstd_level: Option<i32>) -> Result<Output, StoreError> {
        let opened = self.file.scratch().and_then(|scratch| {
            let file = (self.opener)(Box::new(scratch.try_clone()?))?;
            Ok((scratch, Output::new(file, zstd_level)?))
        });
        let (scratch, output) = opened.map_err(|source| self.write_error(source))?;
        self.scratch = Some(scratch);
        Ok(output)
    }

    /// Appends the scratch file to `output`.
    pub(crate) fn append_scratch(&mut self, output: &mut Output) -> io::Result<()> {
        let Some(mut scratch) = self.scratch.take() else { return Ok(()) };
        scratch.rewind()?;
        // Past the compressor: what is in it is encoded already.
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
        Ok(self.file.finish()?)
    }
}
