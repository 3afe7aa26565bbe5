//! Output to standard output, and to files, which may be compressed.

use std::io::{self, BufWriter, Write};
use std::path::Path;

use tapeworks_capture::new_file::{self, CompressedFile, Handle};

use crate::ending::{Failure, Result};
use crate::interrupt;
use crate::terminal::{Bar, complain};

/// Size of the buffer for standard output, in bytes.
const STDOUT_BUFFER_BYTES: usize = 64 << 10;

/// Returns buffered standard output.
pub(crate) fn stdout() -> Result<BufWriter<Handle>> {
    let handle = Handle::stdout().map_err(|error| Failure::from_stdout(&error))?;
    Ok(BufWriter::with_capacity(STDOUT_BUFFER_BYTES, handle))
}

/// Writes a whole text to standard output.
pub(crate) fn print(text: &str) -> Result<()> {
    let written = Handle::stdout().and_then(|mut out| out.write_all(text.as_bytes()));
    written.map_err(|error| Failure::from_stdout(&error))
}

/// Prints a command's report, to standard error if its data goes to standard output.
pub(crate) fn report(text: &str, data: &[impl AsRef<Path>]) -> Result<()> {
    if !data.iter().any(|path| new_file::is_stdout(path.as_ref())) {
        return print(text);
    }
    // If standard error is closed, the report is lost.
    let _unseen_at_worst = io::stderr().write_all(text.as_bytes());
    Ok(())
}

/// Writes a complete file.
pub(crate) fn write_file(path: &Path, force: bool, bytes: &[u8]) -> Result<()> {
    let mut file = CompressedFile::create(path, force)?;
    file.write_all(bytes).map_err(|error| Failure::from_file(path, &error))?;
    file.finish()?;
    Ok(())
}

/// The file of a generated session. Counts bytes for the progress bar, and stops writing on Ctrl-C.
pub(crate) struct Watched<'f> {
    file: &'f mut CompressedFile,
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

/// Generates the file at `path`, replacing an existing file only with `force`. Returns `None` if the user stopped it. An
/// incomplete file is removed.
pub(crate) fn generate<T>(
    path: &Path,
    force: bool,
    write: impl FnOnce(Watched<'_>) -> io::Result<T>,
) -> Result<Option<T>> {
    let mut file = CompressedFile::create(path, force)?;
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
