//! Inputs: capture files and message files, recognized by their contents.

use std::path::{Path, PathBuf};

use tapeworks_capture::CaptureError;
use tapeworks_capture::framed::FramedReader;
use tapeworks_capture::source::ByteSource;
use tapeworks_capture::{CaptureReader, FileKind};
use tapeworks_feed::{Application, FileFormat, recognise};
use tapeworks_time::Nanos;
use tapeworks_time::clock;

use crate::ahead::Decompressed;
use crate::fix::{LogReader, is_log};
use crate::sessions::ReadAs;

/// Number of bytes of a file that are examined to recognize it.
const PROBE_BYTES: usize = 4096;

/// Why an input cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InputError {
    /// The file cannot be read.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// The file is neither a capture nor in a known framing.
    #[error(
        "{file}: neither a capture (pcap, pcapng) nor a file of ITCH messages or SoupBinTCP packets; it begins with {start}"
    )]
    NotRecognised {
        /// The file.
        file: String,
        /// Its first bytes, in hexadecimal.
        start: String,
    },
    /// A FIX log was given where market data is expected.
    #[error("{file}: is a log of FIX messages, which only dump and stats read")]
    FixLog {
        /// The file.
        file: String,
    },
    /// The given protocol does not occur in files without packets.
    #[error("{file}: is a file of messages without packets, which carries ITCH, not {protocol}")]
    OtherProtocol {
        /// The file.
        file: String,
        /// The protocol that the caller set.
        protocol: &'static str,
    },
    /// An output file is also an input.
    #[error("{file}: is read, and cannot be the output")]
    IsOutput {
        /// The file.
        file: String,
    },
    /// Times cannot be compared because the file's day is unknown.
    #[error("{file}: neither its name nor its messages have the day, which {why} needs; give it with --date")]
    NoDay {
        /// The file.
        file: String,
        /// Why the day is needed.
        why: &'static str,
    },
    /// The file has no packet that could determine its day.
    #[error("{file}: has no packet with a time, and so no day")]
    NoPackets {
        /// The file.
        file: String,
    },
    /// Message files are of different days, but only times of day are compared.
    #[error(
        "{file}: is of another day than {other}; times of day are compared here, so take files of one day"
    )]
    OtherDay {
        /// The file.
        file: String,
        /// The first file.
        other: String,
    },
    /// The system cannot start a thread to decompress the file.
    #[error("{file}: cannot start a thread that decompresses it: {cause}")]
    Thread {
        /// The file.
        file: String,
        /// The system's error.
        cause: std::io::Error,
    },
    /// There are more files than file numbers.
    #[error("{0} files are too many; up to 65,535 can be read at once")]
    TooMany(usize),
}

/// The contents of a file.
#[derive(Debug)]
pub enum Source {
    /// Captured packets.
    Capture(CaptureReader),
    /// Length-prefixed messages.
    Framed {
        /// The messages.
        reader: FramedReader,
        /// The format.
        format: FileFormat,
        /// Midnight of the day in the file's name, if the name has one.
        midnight: Option<Nanos>,
        /// Time of the last message examined that has one; messages without a time are merged after it.
        last: Nanos,
    },
    /// A log with FIX messages in its lines.
    FixLog(LogReader),
}

/// What was recognized in a capture's packets.
#[derive(Debug, Default)]
pub(crate) struct Recognition {
    /// Packets with a known protocol: messages, heartbeats, orders.
    pub(crate) recognised: u64,
    /// Why the first unrecognized packet was not recognized.
    first_reason: Option<String>,
}

impl Recognition {
    /// Records a packet in no known protocol.
    #[inline]
    pub(crate) fn reject(&mut self, reason: impl FnOnce() -> String) {
        if self.first_reason.is_none() {
            self.first_reason = Some(reason());
        }
    }
}

/// A capture in which no packet was recognized, so that nothing in it was read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{file}: not one of its {packets} packets has a known protocol; the first: {reason}")]
pub struct Unrecognised {
    /// The file.
    pub file: String,
    /// Number of its packets.
    pub packets: u64,
    /// Why its first packet was not read.
    pub reason: String,
}

/// One opened file.
#[derive(Debug)]
pub struct Input {
    /// Its index among the inputs.
    pub file: u16,
    /// Its name as the user gave it.
    pub name: String,
    /// Its contents.
    pub source: Source,
    /// What has been recognized in a capture so far.
    pub(crate) recognition: Recognition,
}

impl Input {
    /// Opens a file and recognizes its contents. A capture is recognized by its magic number, another file by its first messages; if
    /// `application` is given, the latter is assumed to hold that application's messages.
    ///
    /// # Errors
    /// [`InputError`] if the file cannot be read, is empty, or holds nothing known.
    pub fn open(file: u16, path: &Path, application: Option<Application>) -> Result<Self, InputError> {
        Self::of_bytes(file, path, ByteSource::open(path)?, application.map(ReadAs::Feed))
    }

    fn of_bytes(
        file: u16,
        path: &Path,
        mut bytes: ByteSource,
        read_as: Option<ReadAs>,
    ) -> Result<Self, InputError> {
        let name = path.display().to_string();
        let start = bytes.fill(PROBE_BYTES);
        let source = match FileKind::detect(start) {
            FileKind::Pcap | FileKind::PcapNg => Source::Capture(CaptureReader::new(bytes)?),
            FileKind::Unknown => {
                if read_as.is_none() && is_log(start) {
                    let source = Source::FixLog(LogReader::new(bytes));
                    return Ok(Self { file, name, source, recognition: Recognition::default() });
                }
                let of_streams = ReadAs::Feed(Application::OF_STREAMS);
                let format = match recognise::framing(start) {
                    Some(format) => format,
                    None if read_as == Some(of_streams) && !start.is_empty() => FileFormat::LengthPrefixed,
                    None => {
                        let start =
                            start.iter().take(8).map(|byte| format!("{byte:02x}")).collect::<Vec<_>>();
                        let start = start.join(" ");
                        // An unreadable file has no first bytes either; its own error is more informative.
                        if let Some(error) = bytes.take_failure() {
                            return Err(error.into());
                        }
                        if start.is_empty() {
                            return Err(CaptureError::Empty { file: name.into() }.into());
                        }
                        return Err(InputError::NotRecognised { file: name, start });
                    }
                };
                if let Some(read_as) = read_as.filter(|read_as| *read_as != of_streams) {
                    return Err(InputError::OtherProtocol { file: name, protocol: read_as.name() });
                }
                let text =
                    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
                let midnight = clock::date_in(&text).and_then(clock::midnight_of);
                Source::Framed { reader: FramedReader::new(bytes), format, midnight, last: Nanos(0) }
            }
        };
        Ok(Self { file, name, source, recognition: Recognition::default() })
    }

    /// Describes a capture that has been read to its end without recognizing any packet; `None` for other inputs and for captures
    /// without packets.
    pub(crate) fn unrecognised(&self) -> Option<Unrecognised> {
        let Source::Capture(reader) = &self.source else { return None };
        let Recognition { recognised, first_reason } = &self.recognition;
        let reason = first_reason.clone().filter(|_| *recognised == 0)?;
        Some(Unrecognised { file: self.name.clone(), packets: reader.tally().packets, reason })
    }

    /// Returns the number of datagrams so far in which damage would go unnoticed because their checksums cannot show it.
    pub(crate) fn unverified(&self) -> u64 {
        match &self.source {
            Source::Capture(reader) => reader.tally().unverified,
            Source::Framed { .. } | Source::FixLog(_) => 0,
        }
    }

    /// Describes the file's contents for users.
    pub const fn format(&self) -> &'static str {
        match &self.source {
            Source::Capture(_) => "capture",
            Source::Framed { format: FileFormat::LengthPrefixed, .. } => "length-prefixed messages",
            Source::Framed { format: FileFormat::SoupBinTcp, .. } => "SoupBinTCP packets",
            Source::FixLog(_) => "log of FIX messages",
        }
    }

    /// Whether neither its packets nor its name determine the day.
    pub const fn is_without_day(&self) -> bool {
        matches!(self.source, Source::Framed { midnight: None, .. })
    }

    /// Returns the underlying byte source, for progress reports.
    pub fn bytes(&self) -> &ByteSource {
        match &self.source {
            Source::Capture(reader) => reader.source(),
            Source::Framed { reader, .. } => reader.source(),
            Source::FixLog(reader) => reader.source(),
        }
    }

    /// Returns the time of the next packet or message, to merge inputs; `None` at the end. A message file uses the times in its
    /// messages, counted from `midnight` if its name has no date.
    ///
    /// # Errors
    /// The errors of reading; an error is returned once, then the end.
    pub fn next_time(&mut self, midnight: Option<Nanos>) -> Result<Option<Nanos>, CaptureError> {
        match &mut self.source {
            Source::Capture(reader) => Ok(reader.next_timestamp_ns()?.map(Nanos)),
            Source::FixLog(reader) => {
                let is_end = reader.source_mut().fill(1).is_empty();
                match reader.source_mut().take_failure() {
                    Some(error) => Err(error),
                    None => Ok((!is_end).then_some(reader.last)),
                }
            }
            Source::Framed { reader, midnight: named, format, last } => {
                let midnight = midnight.or(*named).unwrap_or_default();
                let Some(batch) = reader.next_batch()? else { return Ok(None) };
                // A window of only end marks has no message; the next iteration consumes the marks and looks further.
                let bytes = batch.peek().unwrap_or_default();
                // Only SoupBinTCP packets with data have a time, in the message after their type.
                let message = match format {
                    FileFormat::LengthPrefixed => bytes,
                    FileFormat::SoupBinTcp => bytes.strip_prefix(b"S").unwrap_or_default(),
                };
                if let Some(since_midnight) = (Application::OF_STREAMS.spec().time)(message) {
                    *last = Nanos(midnight.0.saturating_add(since_midnight));
                }
                Ok(Some(*last))
            }
        }
    }
}

/// Checks that no output file is also an input, under whatever name.
///
/// # Errors
/// [`InputError::IsOutput`].
pub fn refuse_inputs<'p>(
    inputs: &[PathBuf],
    outputs: impl IntoIterator<Item = &'p Path>,
) -> Result<(), InputError> {
    #[cfg(unix)]
    let file = |path: &Path| {
        use std::os::unix::fs::MetadataExt as _;
        let there = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
        Some((there.dev(), there.ino()))
    };
    #[cfg(not(unix))]
    let file = |path: &Path| std::fs::canonicalize(path).ok().filter(|file| file.is_file());
    for output in outputs {
        if let Some(written) = file(output)
            && inputs.iter().any(|input| file(input).as_ref() == Some(&written))
        {
            return Err(InputError::IsOutput { file: output.display().to_string() });
        }
    }
    Ok(())
}

/// Checks that all message files with a date in their names are of the same day: without packets they have only times of day.
///
/// # Errors
/// [`InputError::OtherDay`].
pub fn check_one_day(inputs: &[Input]) -> Result<(), InputError> {
    let mut first: Option<(&Input, Nanos)> = None;
    for input in inputs {
        let Source::Framed { midnight: Some(midnight), .. } = input.source else { continue };
        match first {
            Some((other, day)) if day != midnight => {
                return Err(InputError::OtherDay { file: input.name.clone(), other: other.name.clone() });
            }
            Some(_) => {}
            None => first = Some((input, midnight)),
        }
    }
    Ok(())
}

/// Opens every file, including FIX logs.
///
/// # Errors
/// The first file's error; see [`Input::open`].
pub fn open_any<P: AsRef<Path>>(paths: &[P], read_as: Option<ReadAs>) -> Result<Vec<Input>, InputError> {
    open_each(paths, read_as, 0)
}

/// Opens every file, which must hold market data.
///
/// # Errors
/// The first file's error; see [`Input::open`].
pub fn open_all<P: AsRef<Path>>(
    paths: &[P],
    application: Option<Application>,
) -> Result<Vec<Input>, InputError> {
    open_all_ahead(paths, application, 0)
}

/// Opens every file, and starts a thread for each of the first `threads` compressed files that decompresses ahead of the file's
/// reader.
///
/// # Errors
/// As [`open_all`], and [`InputError::Thread`].
pub fn open_all_ahead<P: AsRef<Path>>(
    paths: &[P],
    application: Option<Application>,
    threads: usize,
) -> Result<Vec<Input>, InputError> {
    let inputs = open_each(paths, application.map(ReadAs::Feed), threads)?;
    match inputs.iter().find(|input| matches!(input.source, Source::FixLog(_))) {
        Some(input) => Err(InputError::FixLog { file: input.name.clone() }),
        None => Ok(inputs),
    }
}

fn open_each<P: AsRef<Path>>(
    paths: &[P],
    read_as: Option<ReadAs>,
    threads: usize,
) -> Result<Vec<Input>, InputError> {
    if paths.len() > usize::from(u16::MAX) {
        return Err(InputError::TooMany(paths.len()));
    }
    let mut left = threads;
    let open = |(file, path): (usize, &P)| {
        let path = path.as_ref();
        let mut bytes = ByteSource::open(path)?;
        if left > 0 {
            let started = bytes.decompress_by(|decoder| Ok(Box::new(Decompressed::start(decoder)?)));
            let file = || path.display().to_string();
            left -= usize::from(started.map_err(|cause| InputError::Thread { file: file(), cause })?);
        }
        Input::of_bytes(file as u16, path, bytes, read_as)
    };
    paths.iter().enumerate().map(open).collect()
}
