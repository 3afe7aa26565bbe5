//! Writes scenarios as files: raw ITCH and captures.

use std::io::{self, Write};
use std::path::Path;

use tapeworks_capture::framed::LENGTH_PREFIX_BYTES;
use tapeworks_capture::{Writer, WriterOptions};

use crate::generator::{Generator, MAX_MESSAGE_BYTES, Messages};
use crate::packets::Packets;
use crate::report::{Counter, Report};
use crate::scenario::{Scenario, ScenarioError};

/// Bytes collected before each write to the sink.
const CHUNK_BYTES: usize = 256 << 10;

/// Sizes of pcap's file header and packet header.
const PCAP_HEADER_BYTES: u64 = 24;
const PCAP_RECORD_HEADER_BYTES: u64 = 16;

/// The format of a scenario's file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileForm {
    /// Raw ITCH messages of one venue: [`write_itch`].
    Itch,
    /// A capture of each venue's packets: [`write_pcap`].
    Capture,
}

impl FileForm {
    /// Returns the format by file extension: `.itch` or `.pcap`, in any case, optionally followed by `.gz` or `.zst`.
    #[must_use]
    pub fn from_path(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_string_lossy().to_ascii_lowercase();
        let stem = name.strip_suffix(".zst").or_else(|| name.strip_suffix(".gz")).unwrap_or(&name);
        let endings = [(".itch", Self::Itch), (".pcap", Self::Capture)];
        endings.into_iter().find(|(ending, _)| stem.ends_with(ending)).map(|(_, form)| form)
    }

    /// Checks a scenario against the rules of this format.
    ///
    /// # Errors
    /// The scenario violates a rule: those of [`Scenario::check_market`] and exactly one venue for [`Self::Itch`], or those of
    /// [`Scenario::check`] for [`Self::Capture`].
    pub fn check(self, scenario: &Scenario) -> Result<(), ScenarioError> {
        if self == Self::Capture {
            return scenario.check();
        }
        scenario.check_market()?;
        if scenario.run_count() > 1 {
            return Err(ScenarioError::NotOneRun { got: scenario.run_count() });
        }
        match scenario.venues.as_slice() {
            [venue] if venue.kind.is_in_files() => Ok(()),
            venues => {
                let first = venues.first().map_or("none", |venue| venue.kind.name());
                Err(ScenarioError::NotOneItchVenue { venues: venues.len(), first })
            }
        }
    }

    /// Writes a scenario in this format.
    ///
    /// `messages` must come from a [`Generator`] of the same scenario. `sink` needs no buffering.
    ///
    /// # Errors
    /// As for [`write_itch`] and [`write_pcap`].
    pub fn write(self, scenario: &Scenario, messages: impl Messages, sink: impl Write) -> io::Result<Report> {
        match self {
            Self::Itch => {
                self.check(scenario).map_err(invalid)?;
                write_messages(scenario, messages, sink)
            }
            // `Packets` checks the scenario.
            Self::Capture => write_packets(Packets::of(scenario, messages).map_err(invalid)?, sink),
        }
    }
}

/// Writes the scenario as a raw ITCH file, in which each message follows its big-endian two-byte length.
///
/// The scenario must have one venue, which speaks ITCH. `sink` needs no buffering.
///
/// # Errors
/// Errors of the sink; [`io::ErrorKind::InvalidInput`] containing a [`ScenarioError`].
pub fn write_itch(scenario: &Scenario, sink: impl Write) -> io::Result<Report> {
    FileForm::Itch.write(scenario, Generator::new(scenario).map_err(invalid)?, sink)
}

fn write_messages(
    scenario: &Scenario,
    mut source: impl Messages,
    mut sink: impl Write,
) -> io::Result<Report> {
    let mut counter = Counter::new(scenario);
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut filled = 0;
    loop {
        if chunk.len() - filled < LENGTH_PREFIX_BYTES + MAX_MESSAGE_BYTES {
            sink.write_all(&chunk[..filled])?;
            counter.report.bytes += filled as u64;
            filled = 0;
        }
        let (prefix, room) = chunk[filled..].split_at_mut(LENGTH_PREFIX_BYTES);
        let Some(generated) = source.next_message(room) else { break };
        // No message is longer than MAX_MESSAGE_BYTES.
        prefix.copy_from_slice(&(generated.length as u16).to_be_bytes());
        filled += LENGTH_PREFIX_BYTES + generated.length;
        counter.count(&generated);
    }
    sink.write_all(&chunk[..filled])?;
    sink.flush()?;
    counter.report.bytes += filled as u64;
    Ok(counter.report)
}

/// Writes the scenario as a pcap capture with nanosecond timestamps.
///
/// The capture has every packet of every venue on all lines, in time order. `sink` needs no buffering.
///
/// # Errors
/// Errors of the sink; [`io::ErrorKind::InvalidInput`] containing a [`ScenarioError`], or for a day after the year 2106, which
/// pcap cannot represent.
pub fn write_pcap(scenario: &Scenario, sink: impl Write) -> io::Result<Report> {
    write_packets(Packets::new(scenario).map_err(invalid)?, sink)
}

fn write_packets(mut packets: Packets<impl Messages>, sink: impl Write) -> io::Result<Report> {
    let sink = io::BufWriter::with_capacity(CHUNK_BYTES, sink);
    let mut writer = Writer::new(sink, WriterOptions::default())?;
    let mut bytes = PCAP_HEADER_BYTES;
    while let Some(packet) = packets.next_packet() {
        writer.write_packet(packet.timestamp_ns, packet.frame)?;
        bytes += PCAP_RECORD_HEADER_BYTES + packet.frame.len() as u64;
    }
    writer.finish()?;
    Ok(Report { bytes, ..packets.report().clone() })
}

fn invalid(error: ScenarioError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}
