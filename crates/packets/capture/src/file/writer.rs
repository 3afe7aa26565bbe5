//! The writer: pcap or pcapng, into any sink of bytes.

use std::io::{self, Write};
use std::path::Path;

use crate::new_file::{CompressedFile, NewFileError};

use super::{ByteOrder, LinkType, MAX_CAPTURED_BYTES, pcap, pcapng};

/// The format that a [`Writer`] writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// pcap.
    #[default]
    Pcap,
    /// pcapng, with one section and one interface.
    PcapNg,
}

/// The time unit in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Resolution {
    /// Nanoseconds, lossless.
    #[default]
    Nanoseconds,
    /// Microseconds, for tools that support nothing finer: the last three digits of the nanoseconds are dropped.
    Microseconds,
}

/// The format of a capture. Every current tool reads the default, little-endian pcap with nanoseconds and Ethernet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriterOptions {
    /// The file format.
    pub format: Format,
    /// The unit of time.
    pub resolution: Resolution,
    /// The link layer that the packets' bytes begin with.
    pub link_type: LinkType,
    /// Writes numbers big-endian.
    pub big_endian: bool,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self {
            format: Format::Pcap,
            resolution: Resolution::Nanoseconds,
            link_type: LinkType::ETHERNET,
            big_endian: false,
        }
    }
}

impl Format {
    /// Returns the format for a file name's extension: `.pcap` or `.pcapng`, optionally followed by `.gz` or `.zst`.
    pub fn from_path(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?;
        let name = name.strip_suffix(".gz").or_else(|| name.strip_suffix(".zst")).unwrap_or(name);
        match Path::new(name).extension()?.to_str()? {
            "pcap" => Some(Self::Pcap),
            "pcapng" => Some(Self::PcapNg),
            _ => None,
        }
    }
}

/// Writes packets as a capture file: into a file with [`Writer::create`], or into any sink with [`Writer::new`]. The sink should
/// be buffered, because each record is written in up to three pieces. Writing allocates nothing.
///
/// ```
/// use tapeworks_capture::{CaptureReader, Writer, WriterOptions};
/// use tapeworks_capture::source::ByteSource;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut writer = Writer::new(Vec::new(), WriterOptions::default())?;
/// writer.write_packet(1_700_000_000_000_000_001, b"anything")?;
/// let file = writer.finish()?;
///
/// let mut reader = CaptureReader::new(ByteSource::from_bytes("memory", file))?;
/// assert_eq!(reader.next_packet()?.map(|packet| packet.timestamp_ns), Some(1_700_000_000_000_000_001));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Writer<W: Write> {
    sink: W,
    options: WriterOptions,
    order: ByteOrder,
    packets: u64,
}

impl Writer<CompressedFile> {
    /// Creates a capture at `path`: pcapng if the name says so ([`Format::from_path`]), otherwise pcap, both with nanoseconds
    /// and Ethernet; compressed if the name ends in `.gz` or `.zst`. `-` is standard output. An existing file is not replaced. The
    /// file is `NAME.partial` until [`Writer::close`]; a writer that is dropped before that leaves no file.
    ///
    /// ```
    /// use tapeworks_capture::{CaptureReader, Writer};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// let path = folder.path().join("day.pcap.zst");
    /// let mut writer = Writer::create(&path)?;
    /// writer.write_packet(1_700_000_000_000_000_001, b"anything")?;
    /// assert_eq!(writer.close()?, 1);
    ///
    /// let mut reader = CaptureReader::open(&path)?;
    /// assert_eq!(reader.next_packet()?.map(|packet| packet.bytes), Some(&b"anything"[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`CompressedFile::create`], and [`NewFileError::Write`] for the file's header.
    pub fn create(path: &Path) -> Result<Self, NewFileError> {
        let file = CompressedFile::create(path, false)?;
        let options =
            WriterOptions { format: Format::from_path(path).unwrap_or_default(), ..WriterOptions::default() };
        Self::new(file, options).map_err(|source| NewFileError::Write { path: path.to_owned(), source })
    }

    /// Writes the buffered bytes, gives the file its name, and returns the number of packets.
    ///
    /// # Errors
    /// As [`CompressedFile::finish`].
    pub fn close(self) -> Result<u64, NewFileError> {
        let packets = self.packets;
        self.sink.finish()?;
        Ok(packets)
    }
}

impl<W: Write> Writer<W> {
    /// Writes the file's header to `sink`.
    ///
    /// # Errors
    /// Errors of `sink`.
    pub fn new(mut sink: W, options: WriterOptions) -> io::Result<Self> {
        let order = if options.big_endian { ByteOrder::Big } else { ByteOrder::Little };
        match options.format {
            Format::Pcap => write_pcap_header(&mut sink, order, options)?,
            Format::PcapNg => write_pcapng_header(&mut sink, order, options)?,
        }
        Ok(Self { sink, options, order, packets: 0 })
    }

    /// Writes a complete packet captured at `timestamp_ns` (nanoseconds since 1970-01-01 00:00 UTC).
    ///
    /// # Errors
    /// Errors of the sink; [`io::ErrorKind::InvalidInput`] for a packet longer than [`MAX_CAPTURED_BYTES`] or, in
    /// pcap, a time after the year 2106.
    #[inline]
    pub fn write_packet(&mut self, timestamp_ns: u64, bytes: &[u8]) -> io::Result<()> {
        // A longer packet is rejected below, so the conversion loses nothing.
        self.write_cut_packet(timestamp_ns, bytes, bytes.len() as u32)
    }

    /// Writes a packet that had `original_length` bytes on the wire, of which only `bytes` were captured.
    ///
    /// # Errors
    /// As [`Writer::write_packet`].
    pub fn write_cut_packet(
        &mut self,
        timestamp_ns: u64,
        bytes: &[u8],
        original_length: u32,
    ) -> io::Result<()> {
        if bytes.len() > MAX_CAPTURED_BYTES {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("packet of {} bytes is over the limit of {MAX_CAPTURED_BYTES}", bytes.len()),
            ));
        }
        match self.options.format {
            Format::Pcap => self.write_pcap_record(timestamp_ns, bytes, original_length)?,
            Format::PcapNg => self.write_enhanced_packet(timestamp_ns, bytes, original_length)?,
        }
        self.packets += 1;
        Ok(())
    }

    /// Returns the number of packets written.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Returns the sink, for a caller that decides when to flush its buffer.
    pub fn sink_mut(&mut self) -> &mut W {
        &mut self.sink
    }

    /// Flushes the sink and returns it.
    ///
    /// # Errors
    /// Errors of the sink.
    pub fn finish(mut self) -> io::Result<W> {
        self.sink.flush()?;
        Ok(self.sink)
    }

    fn write_pcap_record(&mut self, timestamp_ns: u64, bytes: &[u8], original_length: u32) -> io::Result<()> {
        let Ok(seconds) = u32::try_from(timestamp_ns / 1_000_000_000) else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("time {timestamp_ns} ns is after 2106, the last that pcap can hold"),
            ));
        };
        let nanoseconds = (timestamp_ns % 1_000_000_000) as u32;
        let fraction = match self.options.resolution {
            Resolution::Nanoseconds => nanoseconds,
            Resolution::Microseconds => nanoseconds / 1_000,
        };
        let mut header = [0; pcap::RECORD_HEADER_BYTES];
        self.order.put_u32(&mut header, 0, seconds);
        self.order.put_u32(&mut header, 4, fraction);
        self.order.put_u32(&mut header, 8, bytes.len() as u32);
        self.order.put_u32(&mut header, 12, original_length);
        self.sink.write_all(&header)?;
        self.sink.write_all(bytes)
    }

    fn write_enhanced_packet(
        &mut self,
        timestamp_ns: u64,
        bytes: &[u8],
        original_length: u32,
    ) -> io::Result<()> {
        let ticks = match self.options.resolution {
            Resolution::Nanoseconds => timestamp_ns,
            Resolution::Microseconds => timestamp_ns / 1_000,
        };
        let padded = bytes.len().next_multiple_of(4);
        let length = (pcapng::BLOCK_FRAME_BYTES + 20 + padded) as u32;
        let mut header = [0; 28];
        self.order.put_u32(&mut header, 0, pcapng::ENHANCED_PACKET);
        self.order.put_u32(&mut header, 4, length);
        self.order.put_u32(&mut header, 12, (ticks >> 32) as u32);
        self.order.put_u32(&mut header, 16, ticks as u32);
        self.order.put_u32(&mut header, 20, bytes.len() as u32);
        self.order.put_u32(&mut header, 24, original_length);
        let mut trailer = [0; 8];
        let padding = padded - bytes.len();
        self.order.put_u32(&mut trailer, padding, length);
        self.sink.write_all(&header)?;
        self.sink.write_all(bytes)?;
        self.sink.write_all(&trailer[..padding + 4])
    }
}

fn write_pcap_header(sink: &mut impl Write, order: ByteOrder, options: WriterOptions) -> io::Result<()> {
    let magic = match options.resolution {
        Resolution::Nanoseconds => pcap::MAGIC_NANOSECONDS,
        Resolution::Microseconds => pcap::MAGIC_MICROSECONDS,
    };
    let mut header = [0; pcap::FILE_HEADER_BYTES];
    order.put_u32(&mut header, 0, magic);
    order.put_u16(&mut header, 4, 2); // version 2.4
    order.put_u16(&mut header, 6, 4);
    order.put_u32(&mut header, 16, MAX_CAPTURED_BYTES as u32);
    order.put_u32(&mut header, 20, u32::from(options.link_type.0));
    sink.write_all(&header)
}

/// Writes one section header, of unknown length, and one interface description, whose only option is the time unit.
fn write_pcapng_header(sink: &mut impl Write, order: ByteOrder, options: WriterOptions) -> io::Result<()> {
    let mut section = [0; 28];
    order.put_u32(&mut section, 0, pcapng::SECTION_HEADER);
    order.put_u32(&mut section, 4, 28);
    order.put_u32(&mut section, 8, pcapng::BYTE_ORDER_MAGIC);
    order.put_u16(&mut section, 12, 1); // version 1.0
    section[16..24].fill(0xff); // the section's length is not known beforehand
    order.put_u32(&mut section, 24, 28);
    sink.write_all(&section)?;

    let mut interface = [0; 32];
    order.put_u32(&mut interface, 0, pcapng::INTERFACE_DESCRIPTION);
    order.put_u32(&mut interface, 4, 32);
    order.put_u16(&mut interface, 8, options.link_type.0);
    order.put_u32(&mut interface, 12, MAX_CAPTURED_BYTES as u32);
    order.put_u16(&mut interface, 16, pcapng::OPTION_TIME_RESOLUTION);
    order.put_u16(&mut interface, 18, 1);
    interface[20] = match options.resolution {
        Resolution::Nanoseconds => 9,
        Resolution::Microseconds => 6,
    };
    order.put_u32(&mut interface, 28, 32); // after the end-of-options mark, which is all zero
    sink.write_all(&interface)
}

impl ByteOrder {
    /// Writes `value` at `at`. Every caller's offset is a constant that leaves room for it.
    fn put_u32(self, bytes: &mut [u8], at: usize, value: u32) {
        bytes[at..at + 4].copy_from_slice(&match self {
            Self::Little => value.to_le_bytes(),
            Self::Big => value.to_be_bytes(),
        });
    }

    fn put_u16(self, bytes: &mut [u8], at: usize, value: u16) {
        bytes[at..at + 2].copy_from_slice(&match self {
            Self::Little => value.to_le_bytes(),
            Self::Big => value.to_be_bytes(),
        });
    }
}
