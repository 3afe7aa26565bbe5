//! The reader: shows the bytes ahead to the format's parser until it finds a packet, and returns that packet.

use std::path::Path;

use super::{Fault, FileKind, LinkType, MAX_CAPTURED_BYTES, Record, Step, pcap, pcapng};
use crate::error::{CaptureError, FirstBytes};
use crate::net::{Datagram, HeaderError, Origin, Receiver};
use crate::source::ByteSource;

/// One packet of a capture file. Its bytes are borrowed from the file, not copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CapturedPacket<'a> {
    /// The packet's number in the file, from 1, as Wireshark counts.
    pub number: u64,
    /// Offset of its first captured byte in the file, or in the decompressed content of a compressed file.
    pub offset: u64,
    /// When it was captured, in nanoseconds since 1970-01-01 00:00 UTC. A pcapng simple packet block has no time: it
    /// gets the time of the packet before it (0 if there is none) and is counted in [`Tally::without_time`].
    pub timestamp_ns: u64,
    /// The link layer that the packet's bytes begin with.
    pub link_type: LinkType,
    /// The packet's length on the wire; more than `bytes` if the capture truncated it.
    pub original_length: u32,
    /// The captured bytes.
    pub bytes: &'a [u8],
}

impl CapturedPacket<'_> {
    /// Whether the capture truncated the packet.
    #[inline]
    pub fn is_cut(&self) -> bool {
        self.bytes.len() < self.original_length as usize
    }
}

/// A captured packet and the datagram in it.
#[derive(Debug, Clone, Copy)]
pub struct CapturedDatagram<'a> {
    /// The packet. A datagram reassembled from fragments comes with the packet that completed it, with the number, offset and time
    /// of the first fragment. For [`HeaderError::Incomplete`], and for a [`HeaderError::Checksum`] whose datagram was used, the
    /// packet has no bytes; it has the number and offset of the packet at fault (the fragment captured first) and the time at
    /// which the damage became certain.
    pub packet: CapturedPacket<'a>,
    /// The datagram, or why there is none. [`HeaderError::Fragment`] means that the reader keeps the packet for reassembly.
    pub datagram: Result<Datagram<'a>, HeaderError>,
}

/// A reader's counters, for the user.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Packets returned.
    pub packets: u64,
    /// Captured bytes returned.
    pub bytes: u64,
    /// Packets that the capture truncated.
    pub cut: u64,
    /// Packets in blocks without a timestamp.
    pub without_time: u64,
    /// Packets with a time before 1970 or after 2554, clamped to that range.
    pub time_out_of_range: u64,
    /// Datagrams in which damage would go unnoticed: see [`Checksums::unverified`](crate::net::Checksums::unverified).
    pub unverified: u64,
}

/// Reads a pcap or pcapng file, plain, gzip or zstd, packet by packet.
///
/// If the file is damaged or truncated, the reader returns the packets before that place, then the error, once, and then ends.
/// Packets are borrowed: each is valid until the next call. Plain files are mapped; see [`ByteSource`] for files that change
/// while they are read.
#[derive(Debug)]
pub struct CaptureReader {
    source: ByteSource,
    format: Format,
    /// The next packet, found but not returned yet.
    found: Option<Record>,
    tally: Tally,
    ended: bool,
    /// Finds the datagrams when [`CaptureReader::next_datagram`] is used.
    receiver: Receiver,
    /// Time of the last packet returned.
    last_timestamp_ns: u64,
}

#[derive(Debug)]
enum Format {
    Pcap(pcap::Header),
    PcapNg(pcapng::Sections),
}

/// Consumes the packet that `record` describes from the window.
#[inline]
fn hand_out<'a>(source: &'a mut ByteSource, tally: &mut Tally, record: Record) -> CapturedPacket<'a> {
    let offset = source.position() + record.start as u64;
    let bytes = &source.take(record.end)[record.start..record.start + record.captured];
    tally.packets += 1;
    tally.bytes += record.captured as u64;
    tally.cut += u64::from(record.captured < record.original_length as usize);
    CapturedPacket {
        number: tally.packets,
        offset,
        timestamp_ns: record.timestamp_ns,
        link_type: record.link_type,
        original_length: record.original_length,
        bytes,
    }
}

impl CaptureReader {
    /// Opens `path`; `-` is standard input.
    ///
    /// # Errors
    /// As [`ByteSource::open`] and [`CaptureReader::new`].
    pub fn open(path: &Path) -> Result<Self, CaptureError> {
        Self::new(ByteSource::open(path)?)
    }

    /// Reads the capture in `source`, which must be at its beginning.
    ///
    /// # Errors
    /// [`CaptureError::Empty`], [`CaptureError::UnknownFormat`], [`CaptureError::TruncatedHeader`], or the source's
    /// failure.
    pub fn new(mut source: ByteSource) -> Result<Self, CaptureError> {
        let first_bytes = source.fill(pcap::FILE_HEADER_BYTES);
        let got = first_bytes.len();
        let kind = FileKind::detect(first_bytes);
        let header = first_bytes.first_chunk().and_then(pcap::Header::parse);
        let shown = FirstBytes::of(first_bytes);
        let file = Box::<str>::from(source.name());
        if got < 4
            && let Some(failure) = source.take_failure()
        {
            return Err(failure);
        }
        let format = match (kind, header) {
            (FileKind::Pcap, Some(header)) => {
                source.consume(pcap::FILE_HEADER_BYTES);
                Format::Pcap(header)
            }
            (FileKind::Pcap, None) => {
                let (need, got) = (pcap::FILE_HEADER_BYTES as u64, got as u64);
                return Err(source.take_failure().unwrap_or(CaptureError::TruncatedHeader {
                    file,
                    need,
                    got,
                }));
            }
            (FileKind::PcapNg, _) => Format::PcapNg(pcapng::Sections::new()),
            (FileKind::Unknown, _) if got == 0 => return Err(CaptureError::Empty { file }),
            (FileKind::Unknown, _) => return Err(CaptureError::UnknownFormat { file, first_bytes: shown }),
        };
        Ok(Self {
            source,
            format,
            found: None,
            tally: Tally::default(),
            ended: false,
            receiver: Receiver::default(),
            last_timestamp_ns: 0,
        })
    }

    /// Returns the next packet, or `None` at the end.
    ///
    /// # Errors
    /// What is wrong with the file at this point; the reader has then ended.
    #[inline]
    pub fn next_packet(&mut self) -> Result<Option<CapturedPacket<'_>>, CaptureError> {
        if !self.find()? {
            return Ok(None);
        }
        Ok(self.found.take().map(|record| hand_out(&mut self.source, &mut self.tally, record)))
    }

    /// Returns the next packet and the UDP or TCP payload in it, or `None` at the end. It reassembles IP fragments and verifies UDP
    /// checksums. A datagram that stays incomplete is reported as [`HeaderError::Incomplete`], and a damaged one that was used
    /// before its flow's checksums could be trusted as [`HeaderError::Checksum`]; both come between packets or at the end.
    ///
    /// # Errors
    /// As [`CaptureReader::next_packet`].
    #[inline]
    pub fn next_datagram(&mut self) -> Result<Option<CapturedDatagram<'_>>, CaptureError> {
        self.find()?;
        if self.receiver.is_pending()
            && let Some(report) = self.take_report()
        {
            return Ok(Some(report));
        }
        let Some(record) = self.found.take() else { return Ok(None) };
        let packet = hand_out(&mut self.source, &mut self.tally, record);
        self.last_timestamp_ns = packet.timestamp_ns;
        let origin =
            Origin { number: packet.number, offset: packet.offset, timestamp_ns: packet.timestamp_ns };
        Ok(Some(match self.receiver.receive(packet.link_type, packet.bytes, origin) {
            Ok((datagram, Origin { number, offset, timestamp_ns })) => CapturedDatagram {
                packet: CapturedPacket { number, offset, timestamp_ns, ..packet },
                datagram: Ok(datagram),
            },
            Err(error) => CapturedDatagram { packet, datagram: Err(error) },
        }))
    }

    /// Returns a report about an earlier packet whose damage is certain before the next packet.
    #[cold]
    #[inline(never)]
    fn take_report(&mut self) -> Option<CapturedDatagram<'static>> {
        let now = self.found.map(|record| record.timestamp_ns);
        let (origin, error) = self.receiver.take_report(now)?;
        let packet = CapturedPacket {
            number: origin.number,
            offset: origin.offset,
            timestamp_ns: now.unwrap_or(self.last_timestamp_ns),
            link_type: LinkType::RAW,
            original_length: 0,
            bytes: &[],
        };
        Some(CapturedDatagram { packet, datagram: Err(error) })
    }

    /// Rewinds to the first packet without reopening the file. Returns `false`, and stays where it is, for a stream (compressed
    /// file, pipe).
    pub fn rewind(&mut self) -> bool {
        if !self.source.rewind() {
            return false;
        }
        match &mut self.format {
            Format::Pcap(_) => {
                // If the file is now shorter than its header, reading the first packet reports it.
                self.source.fill(pcap::FILE_HEADER_BYTES);
                self.source.consume(pcap::FILE_HEADER_BYTES);
            }
            Format::PcapNg(sections) => *sections = pcapng::Sections::new(),
        }
        (self.found, self.ended, self.tally) = (None, false, Tally::default());
        self.receiver = Receiver::default();
        true
    }

    /// Returns the time of the next packet, in nanoseconds since 1970-01-01 00:00 UTC, without consuming the packet; used to merge
    /// captures by time. `None` at the end, after the last [report of an earlier packet](CapturedDatagram::packet).
    ///
    /// # Errors
    /// As [`CaptureReader::next_packet`].
    #[inline]
    pub fn next_timestamp_ns(&mut self) -> Result<Option<u64>, CaptureError> {
        self.find()?;
        let last = || self.receiver.is_pending().then_some(self.last_timestamp_ns);
        Ok(self.found.map(|record| record.timestamp_ns).or_else(last))
    }

    /// Returns the counters for the packets returned so far.
    pub fn tally(&self) -> Tally {
        let mut tally = Tally { unverified: self.receiver.unverified(), ..self.tally };
        if let Format::PcapNg(sections) = &self.format {
            tally.without_time = sections.without_time;
            tally.time_out_of_range = sections.time_out_of_range;
        }
        tally
    }

    /// Returns the byte source: the file's name, its length, and how far it has been read.
    pub fn source(&self) -> &ByteSource {
        &self.source
    }

    /// Looks for the next packet unless one has already been found; returns `false` at the end.
    #[inline]
    fn find(&mut self) -> Result<bool, CaptureError> {
        if self.found.is_some() {
            return Ok(true);
        }
        if self.ended {
            return Ok(false);
        }
        let mut need = 1;
        loop {
            let window = self.source.fill(need);
            let got = window.len();
            if got < need {
                return self.end(need as u64, got as u64);
            }
            let step = match &mut self.format {
                Format::Pcap(header) => header.step(window),
                Format::PcapNg(sections) => sections.step(window),
            };
            match step {
                Ok(Step::Packet(record)) => {
                    self.found = Some(record);
                    return Ok(true);
                }
                Ok(Step::More(more)) => need = more.max(got + 1),
                Ok(Step::Skip(length)) => {
                    let skipped = self.source.skip(length);
                    if skipped < length {
                        return self.end(length, skipped);
                    }
                    need = 1;
                }
                Err(fault) => return Err(self.fault(fault)),
            }
        }
    }

    /// Handles the end of the source: a clean end, a failure of the source, or an end inside a record.
    #[cold]
    fn end(&mut self, need: u64, got: u64) -> Result<bool, CaptureError> {
        self.ended = true;
        if let Some(failure) = self.source.take_failure() {
            return Err(failure);
        }
        if got == 0 {
            return Ok(false);
        }
        Err(CaptureError::TruncatedPacket {
            file: self.source.name().into(),
            number: self.tally.packets + 1,
            offset: self.source.position(),
            need,
            got,
        })
    }

    #[cold]
    fn fault(&mut self, fault: Fault) -> CaptureError {
        self.ended = true;
        let file = self.source.name().into();
        let number = self.tally.packets + 1;
        let offset = self.source.position();
        match fault {
            Fault::AbsurdLength { length } => {
                CaptureError::AbsurdLength { file, number, offset, length, limit: MAX_CAPTURED_BYTES as u64 }
            }
            Fault::BadBlock { length, problem } => {
                CaptureError::BadBlock { file, number, offset, length, problem }
            }
            Fault::UnknownInterface { interface, described } => {
                CaptureError::UnknownInterface { file, number, offset, interface, described }
            }
        }
    }
}
