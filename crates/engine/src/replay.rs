//! A journal read into an engine.

use std::path::Path;

use tapeworks_disk::{Disk, System};
use tapeworks_journal::{JournalError, JournalReader, LOST, NUMBERED};
use tapeworks_market::Event;
use tapeworks_planted::planted;
use tapeworks_time::Nanos;

use crate::Engine;
use crate::records::input_of;

/// The contents of the journal at the start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct JournalReplayed {
    /// Inputs.
    pub inputs: u64,
    /// Events that they gave.
    pub events: u64,
    /// Bytes of a torn record at the end, which were cut off. A copy lies beside the segment.
    pub torn_bytes: u64,
    /// Inputs that could not be written at their time, as the journal says.
    pub lost: u64,
    /// Records that were damaged or missing. Their changes are not known.
    pub damaged: u64,
    /// How long it took, in ns.
    pub took_ns: u64,
}

/// Reads the journal into the engine from the record `from` on, or from its first, and hands the events on in pieces. The caller fills
/// in the bytes cut off at the opening and the time.
///
/// # Errors
/// A journal that cannot be read, or what `publish` gives.
pub fn replay(
    engine: &mut Engine,
    folder: &Path,
    from: Option<u64>,
    publish: impl FnMut(&mut Vec<Event>) -> Result<(), JournalError>,
) -> Result<JournalReplayed, JournalError> {
    replay_in::<System>(engine, folder, from, publish)
}

/// As [`replay`], on the disk `D`.
///
/// # Errors
/// As [`replay`].
pub fn replay_in<D: Disk>(
    engine: &mut Engine,
    folder: &Path,
    from: Option<u64>,
    mut publish: impl FnMut(&mut Vec<Event>) -> Result<(), JournalError>,
) -> Result<JournalReplayed, JournalError> {
    let before = *engine.counters();
    let mut reader = match from {
        Some(record) => JournalReader::<D>::from_number_in(
            folder,
            record.saturating_add(u64::from(planted!("replay-off-by-one"))),
        )?,
        None => JournalReader::open_in(folder)?,
    };
    let mut events = Vec::new();
    let mut lost = 0;
    while let Some(record) = reader.next()? {
        if record.kind == LOST {
            lost = if record.line == NUMBERED { lost } else { record.extra.saturating_add(lost) };
            engine.inputs_lost(Nanos(record.time), &mut events);
        }
        if let Some(input) = input_of(&record) {
            engine.input(&input, &mut events);
        }
        if events.len() >= 1_024 {
            publish(&mut events)?;
        }
    }
    publish(&mut events)?;
    while engine.take_request().is_some() {}
    Ok(JournalReplayed {
        inputs: engine.counters().inputs - before.inputs,
        events: engine.counters().events - before.events,
        lost,
        damaged: reader.damaged(),
        ..JournalReplayed::default()
    })
}
