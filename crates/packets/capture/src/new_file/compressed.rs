//! A new file, compressed according to its extension.

use std::io::{self, BufWriter, Write};
use std::path::Path;

use flate2::write::GzEncoder;

use super::{Handle, NewFile, NewFileError};

/// Size of the write buffer.
const BUFFER_BYTES: usize = 256 << 10;

/// A [`NewFile`] that is compressed if its name ends in `.gz` or `.zst`, ignoring case. `-` is standard output. Dropping it
/// before [`CompressedFile::finish`] removes it.
pub struct CompressedFile {
    file: NewFile,
    encoder: Encoder,
}

enum Encoder {
    Plain(BufWriter<Handle>),
    Gzip(GzEncoder<BufWriter<Handle>>),
    Zstd(zstd::stream::write::Encoder<'static, BufWriter<Handle>>),
}

impl CompressedFile {
    /// Starts a file at `path`. An existing file is replaced only with `overwrite`.
    ///
    /// # Errors
    /// As [`NewFile::create`], and [`NewFileError::Write`] if there is no memory for the compressor.
    pub fn create(path: &Path, overwrite: bool) -> Result<Self, NewFileError> {
        let file = NewFile::create(path, overwrite)?;
        let failed = |source| NewFileError::Write { path: path.to_owned(), source };
        let buffered = BufWriter::with_capacity(BUFFER_BYTES, file.handle().map_err(failed)?);
        let ending = path.extension().and_then(|ending| ending.to_str()).map(str::to_ascii_lowercase);
        let encoder = match ending.as_deref() {
            Some("gz") => Encoder::Gzip(GzEncoder::new(buffered, flate2::Compression::fast())),
            Some("zst") => Encoder::Zstd(zstd::stream::write::Encoder::new(buffered, 1).map_err(failed)?),
            _ => Encoder::Plain(buffered),
        };
        Ok(Self { file, encoder })
    }

    /// Returns the path as the caller gave it.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Writes the buffered bytes and gives the file its name. Returns its length in bytes.
    ///
    /// # Errors
    /// [`NewFileError::Write`], and errors of [`NewFile::finish`].
    pub fn finish(self) -> Result<u64, NewFileError> {
        let ended = match self.encoder {
            Encoder::Plain(mut file) => file.flush(),
            Encoder::Gzip(encoder) => encoder.finish().and_then(|mut file| file.flush()),
            Encoder::Zstd(encoder) => encoder.finish().and_then(|mut file| file.flush()),
        };
        ended.map_err(|source| NewFileError::Write { path: self.file.path().to_owned(), source })?;
        self.file.finish()
    }
}

impl Write for CompressedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.encoder {
            Encoder::Plain(file) => file.write(bytes),
            Encoder::Gzip(encoder) => encoder.write(bytes),
            Encoder::Zstd(encoder) => encoder.write(bytes),
        }
    }

    /// Does nothing, because flushing a compressor early makes the file larger. [`CompressedFile::finish`] empties the buffers.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl std::fmt::Debug for CompressedFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CompressedFile").field("file", &self.file).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ending_compresses_in_any_case() {
        let folder = tempfile::tempdir().unwrap();
        for (name, magic) in [
            ("a.csv.zst", &[0x28, 0xb5, 0x2f, 0xfd][..]),
            ("A.CSV.ZST", &[0x28, 0xb5, 0x2f, 0xfd]),
            ("a.csv.gz", &[0x1f, 0x8b]),
            ("A.CSV.GZ", &[0x1f, 0x8b]),
            ("A.CSV", b"text"),
        ] {
            let path = folder.path().join(name);
            let mut file = CompressedFile::create(&path, false).unwrap();
            file.write_all(b"text").unwrap();
            file.finish().unwrap();
            assert!(std::fs::read(&path).unwrap().starts_with(magic), "{name}");
        }
    }
}
