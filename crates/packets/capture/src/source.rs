//! Sources of bytes: a plain file mapped into memory, or a compressed file, pipe or standard input read through a buffer. Both
//! look the same to a reader: a window of bytes that can be refilled and consumed.
//!
//! Cost: on a mapped file [`ByteSource::fill`] is one comparison and [`ByteSource::take`] one addition; nothing is copied, and
//! a system call reads the file's length once for every 2 MiB. On a stream, bytes are decompressed once into a buffer of
//! [`STREAM_BUFFER_BYTES`], and a refill moves the unconsumed bytes (fewer than the caller requested) to its front. Memory does
//! not grow with the file.
//!
//! # A file that changes while it is read
//!
//! Other processes may write a mapped file. If one truncates it, touching a page past its new end raises SIGBUS, which ends
//! this process. The length is read again for every 2 MiB, so that happens only if the truncation falls within the current 2
//! MiB; a truncation further on is an ordinary error. If another process overwrites the file, the reader sees the changed bytes
//! and reports them like any damage. A reader cannot prevent either. A file that grows is read up to the length it had at the
//! opening.
//!
//! Open a file that another process still writes, or one on unreliable storage, with [`ByteSource::open_unmapped`]: it uses
//! `read(2)`, and a truncation is an early end.

use std::fmt;
#[cfg(unix)]
use std::fs;
use std::fs::File;
use std::io::{self, BufReader, Cursor, Read};
use std::ops::Range;
#[cfg(unix)]
use std::os::fd::AsFd as _;
#[cfg(unix)]
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::bufread::MultiGzDecoder;
use memmap2::{Advice, Mmap};

pub use crate::compression::Compression;

use crate::compression;
use crate::error::CaptureError;
use crate::stop;

/// Size in bytes of the buffer that a stream is read through; it grows only when one record is larger.
pub const STREAM_BUFFER_BYTES: usize = 1 << 20;

/// Size in bytes of each read from a compressed file.
const COMPRESSED_READ_BYTES: usize = 128 << 10;

/// Bytes decoded per call; small enough that they stay in the second-level cache for the copy.
const PIECE_BYTES: usize = 64 << 10;

/// Step in bytes after which the length of a mapped file is read again.
const MAPPED_STEP_BYTES: usize = 2 << 20;

/// A file's (decompressed) bytes, seen through a window that moves forward.
///
/// ```
/// use tapeworks_capture::source::ByteSource;
///
/// let mut source = ByteSource::from_bytes("greeting", b"hello, tape".to_vec());
/// assert!(source.fill(5).starts_with(b"hello"));
/// assert_eq!(source.take(7), b"hello, ");
/// assert_eq!(source.position(), 7);
/// assert_eq!(source.fill(100), b"tape"); // shorter than requested: that is the end
/// ```
pub struct ByteSource {
    name: Box<str>,
    backing: Backing,
    /// Index in the window of the next byte to return.
    cursor: usize,
    /// Offset of the window's first byte in the decompressed content.
    base: u64,
    compression: Compression,
    /// Length on disk in bytes, if known.
    total_len: Option<u64>,
    failure: Option<CaptureError>,
}

enum Backing {
    Mapped(Mapped),
    Memory(Vec<u8>),
    Streamed(Box<Stream>),
}

/// Returns an error for a compression that cannot be read, so that its bytes are not misread as something else.
fn refuse_unsupported(name: &str, first_bytes: &[u8]) -> Result<(), CaptureError> {
    match compression::unsupported(first_bytes) {
        Some((compression, command)) => {
            Err(CaptureError::UnsupportedCompression { file: name.into(), compression, command })
        }
        None => Ok(()),
    }
}

impl ByteSource {
    /// Opens `path` for reading from front to back; `-` is standard input.
    ///
    /// Plain files are mapped; gzip, zstd, pipes and standard input are streamed.
    ///
    /// # Errors
    /// [`CaptureError::Missing`], [`CaptureError::Directory`], [`CaptureError::Permission`], [`CaptureError::Empty`],
    /// [`CaptureError::UnsupportedCompression`], or [`CaptureError::Io`] for other errors of the operating system.
    pub fn open(path: &Path) -> Result<Self, CaptureError> {
        Self::open_with(path, true)
    }

    /// Opens `path` like [`ByteSource::open`] but never maps it, for files that other processes may truncate.
    pub fn open_unmapped(path: &Path) -> Result<Self, CaptureError> {
        Self::open_with(path, false)
    }

    fn open_with(path: &Path, may_map: bool) -> Result<Self, CaptureError> {
        if path.as_os_str() == "-" {
            let name = "standard input";
            return Self::from_reader(
                name,
                stdin().map_err(|cause| CaptureError::from_open(name, cause))?,
                None,
            );
        }
        let name = path.display().to_string();
        let failed = |cause| CaptureError::from_open(&name, cause);
        let mut file = open_file(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if metadata.is_dir() {
            return Err(CaptureError::Directory { file: name.into() });
        }
        #[cfg(unix)]
        if metadata.file_type().is_fifo() {
            return Self::from_reader(&name, Box::new(Pipe(file)), None);
        }
        // Devices and files in /proc have no length to map.
        if !metadata.is_file() || metadata.len() == 0 {
            return Self::from_reader(&name, Box::new(file), None);
        }
        let mut magic = [0; 4];
        let magic_len = read_up_to(&mut file, &mut magic).map_err(failed)?;
        refuse_unsupported(&name, &magic[..magic_len])?;
        if may_map && Compression::detect(&magic[..magic_len]) == Compression::None {
            // SAFETY: the map is private to this `ByteSource`, read-only, and handed out only as slices that borrow it. As
            // with any mapped file, another process may write or truncate it: the module documentation describes the
            // consequences and offers `open_unmapped`. The bytes are plain numbers and text, valid whatever their value, and
            // every length among them is checked.
            let map = unsafe { Mmap::map(&file) }.map_err(failed)?;
            // Only advice (read ahead, drop behind): the bytes are the same if the kernel refuses it.
            let _ = map.advise(Advice::Sequential);
            let total_len = Some(map.len() as u64);
            return Ok(Self {
                name: name.into(),
                backing: Backing::Mapped(Mapped { map, file, present: 0 }),
                cursor: 0,
                base: 0,
                compression: Compression::None,
                total_len,
                failure: None,
            });
        }
        let reader = Cursor::new(magic).take(magic_len as u64).chain(file);
        Self::from_reader(&name, Box::new(reader), Some(metadata.len()))
    }

    /// Reads from `bytes` in memory without copying; errors show `name` as the file name. Does not detect compression: see
    /// [`ByteSource::from_reader`].
    pub fn from_bytes(name: &str, bytes: Vec<u8>) -> Self {
        Self {
            name: name.into(),
            cursor: 0,
            base: 0,
            compression: Compression::None,
            total_len: Some(bytes.len() as u64),
            failure: None,
            backing: Backing::Memory(bytes),
        }
    }

    /// Streams from `reader`, decompressing gzip and zstd. Errors show `name` as the file name, and `total_len` is the number
    /// of bytes that `reader` will return, if known.
    ///
    /// # Errors
    /// [`CaptureError::Empty`] if there is not one byte, [`CaptureError::UnsupportedCompression`], or [`CaptureError::Io`] if
    /// the first read fails.
    pub fn from_reader(
        name: &str,
        mut reader: Box<dyn Read + Send>,
        total_len: Option<u64>,
    ) -> Result<Self, CaptureError> {
        let failed = |cause| CaptureError::from_open(name, cause);
        let mut magic = [0; 4];
        let magic_len = read_up_to(&mut reader, &mut magic).map_err(failed)?;
        if magic_len == 0 {
            return Err(CaptureError::Empty { file: name.into() });
        }
        refuse_unsupported(name, &magic[..magic_len])?;
        let compression = Compression::detect(&magic[..magic_len]);
        let count = Arc::new(AtomicU64::new(0));
        let magic = Cursor::new(magic).take(magic_len as u64);
        let counted = Counted { magic, reader, count: count.clone() };
        let buffered = |counted| BufReader::with_capacity(COMPRESSED_READ_BYTES, counted);
        let decoder: Box<dyn Read + Send> = match compression {
            Compression::None => Box::new(counted),
            Compression::Gzip => Box::new(Pieces::of(MultiGzDecoder::new(buffered(counted)))),
            Compression::Zstd => {
                let decoder = zstd::stream::read::Decoder::with_buffer(buffered(counted));
                Box::new(Pieces::of(decoder.map_err(failed)?))
            }
        };
        let stream = Stream { decoder, count, buffer: vec![0; STREAM_BUFFER_BYTES], filled: 0, ended: false };
        Ok(Self {
            name: name.into(),
            backing: Backing::Streamed(Box::new(stream)),
            cursor: 0,
            base: 0,
            compression,
            total_len,
            failure: None,
        })
    }

    /// Lets `read_by` wrap the reader that decompresses this file, for example to read ahead on another thread. The wrapper
    /// must return the same bytes and errors in the same order. Returns whether `read_by` was called: only for a compressed
    /// file, and not for a pipe or standard input, where a read may block forever.
    ///
    /// # Errors
    /// The error of `read_by`; the source is then at its end.
    pub fn decompress_by(
        &mut self,
        read_by: impl FnOnce(Box<dyn Read + Send>) -> io::Result<Box<dyn Read + Send>>,
    ) -> io::Result<bool> {
        let Backing::Streamed(stream) = &mut self.backing else { return Ok(false) };
        if self.compression == Compression::None || self.total_len.is_none() {
            return Ok(false);
        }
        let decoder = std::mem::replace(&mut stream.decoder, Box::new(io::empty()));
        stream.decoder = read_by(decoder)?;
        Ok(true)
    }

    /// Makes at least `min_bytes` bytes available, and returns all available bytes without consuming them.
    ///
    /// A shorter slice means the end: a clean one, or an error that [`ByteSource::take_failure`] then returns. A stream's
    /// buffer grows to `min_bytes` if necessary, so the caller must bound it.
    #[inline]
    pub fn fill(&mut self, min_bytes: usize) -> &[u8] {
        if self.available().len() < min_bytes {
            self.refill(min_bytes);
        }
        self.available()
    }

    /// Goes back to the beginning. Returns `false` for a stream, which cannot.
    pub fn rewind(&mut self) -> bool {
        match &mut self.backing {
            // The length is read again.
            Backing::Mapped(mapped) => mapped.present = 0,
            Backing::Memory(_) => {}
            Backing::Streamed(_) => return false,
        }
        self.cursor = 0;
        self.failure = None;
        true
    }

    /// Consumes the next `count` bytes (or fewer, if fewer are available) and returns them. They stay readable until the next call.
    #[inline]
    pub fn take(&mut self, count: usize) -> &[u8] {
        let start = self.cursor;
        self.cursor += count.min(self.available().len());
        &self.window()[start..self.cursor]
    }

    /// Consumes the next `count` bytes (or fewer, if fewer are available).
    #[inline]
    pub fn consume(&mut self, count: usize) {
        self.take(count);
    }

    /// Skips `count` bytes, without holding them all in memory for a stream. Returns the number skipped.
    pub fn skip(&mut self, count: u64) -> u64 {
        let mut left = count;
        loop {
            let available = self.fill(1).len();
            if left == 0 || available == 0 {
                return count - left;
            }
            let step = usize::try_from(left).map_or(available, |left| left.min(available));
            self.consume(step);
            left -= step as u64;
        }
    }

    /// Returns the bytes that are available now.
    #[inline]
    pub fn available(&self) -> &[u8] {
        &self.window()[self.cursor..]
    }

    /// Returns, once, the error that ended the input early, if any.
    pub fn take_failure(&mut self) -> Option<CaptureError> {
        self.failure.take()
    }

    /// Returns the offset of the next byte in the file or, if it is compressed, in its decompressed content.
    #[inline]
    pub fn position(&self) -> u64 {
        self.base + self.cursor as u64
    }

    /// Returns the number of bytes read so far as stored on disk (compressed bytes for a compressed file): the progress
    /// towards [`ByteSource::total_len`].
    pub fn bytes_read(&self) -> u64 {
        match &self.backing {
            Backing::Mapped(_) | Backing::Memory(_) => self.position(),
            Backing::Streamed(stream) => stream.count.load(Ordering::Relaxed),
        }
    }

    /// Returns the length on disk in bytes; `None` for a pipe or standard input.
    pub fn total_len(&self) -> Option<u64> {
        self.total_len
    }

    /// Returns the file's compression.
    pub fn compression(&self) -> Compression {
        self.compression
    }

    /// Returns the name as the caller gave it, for errors.
    pub fn name(&self) -> &str {
        &self.name
    }

    #[inline]
    fn window(&self) -> &[u8] {
        match &self.backing {
            Backing::Mapped(mapped) => &mapped.map[..mapped.present],
            Backing::Memory(bytes) => bytes,
            Backing::Streamed(stream) => &stream.buffer[..stream.filled],
        }
    }

    #[cold]
    fn refill(&mut self, min_bytes: usize) {
        let stream = match &mut self.backing {
            Backing::Memory(_) => return,
            Backing::Mapped(mapped) => {
                if let Err(cause) = mapped.extend(self.cursor.saturating_add(min_bytes)) {
                    let offset = mapped.present as u64;
                    self.failure = Some(CaptureError::Io { file: self.name.clone(), offset, cause });
                }
                return;
            }
            Backing::Streamed(stream) => stream,
        };
        if stream.ended {
            return;
        }
        stream.buffer.copy_within(self.cursor..stream.filled, 0);
        stream.filled -= self.cursor;
        self.base += self.cursor as u64;
        self.cursor = 0;
        if stream.buffer.len() < min_bytes {
            stream.buffer.resize(min_bytes, 0);
        }
        while stream.filled < min_bytes && !stream.ended {
            match stream.decoder.read(&mut stream.buffer[stream.filled..]) {
                Ok(0) => stream.ended = true,
                Ok(count) => stream.filled += count,
                Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
                Err(cause) => {
                    stream.ended = true;
                    let file = self.name.clone();
                    let offset = self.base + stream.filled as u64;
                    self.failure = Some(match self.compression {
                        _ if stop::is_stopped(&cause) => CaptureError::Stopped { file },
                        Compression::None => CaptureError::Io { file, offset, cause },
                        compression => CaptureError::Decompress { file, compression, offset, cause },
                    });
                }
            }
        }
    }
}

/// Opens a file. A pipe is opened immediately, even without a writer: [`Pipe`] waits.
fn open_file(path: &Path) -> io::Result<File> {
    #[cfg(unix)]
    if fs::metadata(path).is_ok_and(|there| there.file_type().is_fifo()) {
        return File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    }
    File::open(path)
}

/// Opens a small text file for reading; `-` is standard input. [`stop`] ends the wait for a pipe or a terminal.
///
/// # Errors
/// Errors of the operating system. A stopped read fails with [`stop::stopped`].
pub fn open_plain(path: &Path) -> io::Result<Box<dyn Read + Send>> {
    if path.as_os_str() == "-" {
        return stdin();
    }
    let file = open_file(path)?;
    #[cfg(unix)]
    if file.metadata()?.file_type().is_fifo() {
        return Ok(Box::new(Pipe(file)));
    }
    Ok(Box::new(file))
}

/// Returns standard input. Reads from a pipe or a terminal can be stopped.
fn stdin() -> io::Result<Box<dyn Read + Send>> {
    #[cfg(unix)]
    {
        let file = File::from(io::stdin().as_fd().try_clone_to_owned()?);
        let metadata = file.metadata()?;
        if metadata.file_type().is_fifo() || io::IsTerminal::is_terminal(&file) {
            return Ok(Box::new(Pipe(file)));
        }
    }
    Ok(Box::new(io::stdin()))
}

/// A pipe to read, possibly without a writer yet.
#[cfg(unix)]
struct Pipe(File);

#[cfg(unix)]
impl Read for Pipe {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            stop::wait(self.0.as_fd(), stop::For::Reading)?;
            match self.0.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
        }
    }
}

impl fmt::Debug for ByteSource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ByteSource")
            .field("name", &self.name)
            .field("compression", &self.compression)
            .field("position", &self.position())
            .field("total_len", &self.total_len)
            .finish_non_exhaustive()
    }
}

/// A mapped file; the window is the part that is known to exist.
struct Mapped {
    map: Mmap,
    file: File,
    /// Length of the window, from the file's beginning.
    present: usize,
}

impl Mapped {
    /// Extends the window to at least `end`, or to the file's end, if the file still has those bytes.
    ///
    /// Reading the length costs a system call for every [`MAPPED_STEP_BYTES`]. Populating the pages with that call
    /// (`MADV_POPULATE_READ`) was slower than page faults by a seventh.
    fn extend(&mut self, end: usize) -> io::Result<()> {
        let end = end.max(self.present.saturating_add(MAPPED_STEP_BYTES)).min(self.map.len());
        if end > self.present {
            if self.file.metadata()?.len() < end as u64 {
                let problem = "the file is shorter than when it was opened";
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, problem));
            }
            self.present = end;
        }
        Ok(())
    }
}

/// A stream and the buffer between it and the window.
struct Stream {
    /// Returns the decompressed bytes.
    decoder: Box<dyn Read + Send>,
    /// Number of undecoded bytes read.
    count: Arc<AtomicU64>,
    buffer: Vec<u8>,
    /// Number of valid bytes in `buffer`.
    filled: usize,
    /// The stream has ended or failed and must not be read again.
    ended: bool,
}

/// Reads a decoder in pieces of a fixed size, whatever size the caller reads. A decoder that detects damage loses the bytes
/// that it decoded in the same call. The fixed size makes the bytes before an error independent of the caller and the thread.
struct Pieces<R> {
    decoder: R,
    piece: Box<[u8]>,
    /// The decoded part of `piece` that has not been read yet.
    left: Range<usize>,
}

impl<R: Read> Pieces<R> {
    fn of(decoder: R) -> Self {
        Self { decoder, piece: vec![0; PIECE_BYTES].into(), left: 0..0 }
    }
}

impl<R: Read> Read for Pieces<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.left.is_empty() && !to.is_empty() {
            self.left = 0..self.decoder.read(&mut self.piece)?;
        }
        let count = self.left.len().min(to.len());
        let end = self.left.start + count;
        to[..count].copy_from_slice(&self.piece[self.left.start..end]);
        self.left.start = end;
        Ok(count)
    }
}

/// The undecoded bytes: the first ones, which were inspected to detect the compression, then the rest. Counted for progress.
struct Counted {
    magic: io::Take<Cursor<[u8; 4]>>,
    reader: Box<dyn Read + Send>,
    count: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut count = self.magic.read(buffer)?;
        if count == 0 {
            count = self.reader.read(buffer)?;
        }
        self.count.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

/// Fills `buffer`, or as much of it as the reader has bytes for.
fn read_up_to(reader: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match reader.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
            Err(cause) => return Err(cause),
        }
    }
    Ok(filled)
}
