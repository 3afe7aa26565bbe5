//! Replaying a journal through the engine.

use std::path::Path;

use tapeworks_disk::{Disk, System};
use tapeworks_journal::{JournalError, JournalReader, LOST, NUMBERED};
use tapeworks_market::Event;
use tapeworks_planted::planted;
use tapeworks_time::Nanos;

use crate::Engine;
use crate::records::input_of;

/// What the journal contained at startup.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct JournalReplayed {
    /// Inputs replayed.
    pub inputs: u64,
    /// Events that they produced.
    pub events: u64,
    /// Bytes of a torn record that were cut off the end. A copy is kept beside the segment.
    pub torn_bytes: u64,
    /// Inputs that the journal counts as lost because they could not be written.
    pub lost: u64,
    /// Damaged or missing records, whose changes are unknown.
    pub damaged: u64,
    /// Duration in ns.
    pub took_ns: u64,
}

/// Replays the journal from the record `from`, or from its first one, and passes the events on in pieces.
///
/// The caller fills in the duration and the bytes that were cut off when the journal was opened.
///
/// # Errors
/// A journal that cannot be read, or an error of `publish`.
pub fn replay(
    engine: &mut Engine,
    folder: &Path,
    from: Option<u64>,
    publish: impl FnMut(&mut Vec<Event>) -> Result<(), JournalError>,
) -> Result<JournalReplayed, JournalError> {
    replay_in::<System>(engine, folder, from, publish)
}

/// [`replay`] on the disk `D`.
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
