//! A replay at a record of lost inputs: it goes on without them, or from the next checkpoint.
//!
//! A plant that finds inputs lost when it starts goes on without them. A plant whose journal loses inputs while it runs has them. The
//! next checkpoint shows which of the two it was: a replay without the lost inputs comes to its counters, or it does not.

use std::path::Path;

use tapeworks_disk::Disk;
use tapeworks_journal::{JournalReader, LOST};
use tapeworks_time::Nanos;

use crate::checkpoint::{Restored, folder};
use crate::records::input_of;
use crate::{Engine, EngineOptions};

/// How a replay goes on behind a loss.
pub(crate) enum Behind {
    /// Without the lost inputs.
    Without,
    /// From this checkpoint.
    From(Box<Restored>),
}

/// The losses that a replay comes to, in their order.
#[derive(Default, Debug)]
pub(crate) struct Losses {
    /// Without the lost inputs before this record the replay comes to the state of the checkpoint there.
    agrees_until: u64,
}

impl Losses {
    /// How a replay goes on that has come to the state of `engine` at the loss of the record `record`, received at `time`. `None`: there
    /// is no checkpoint behind it yet.
    pub(crate) fn behind<D: Disk>(
        &mut self,
        journal: &Path,
        (record, time): (u64, Nanos),
        engine: &Engine,
        options: &EngineOptions,
    ) -> Option<Behind> {
        if record < self.agrees_until {
            return Some(Behind::Without);
        }
        let behind = folder::behind::<D>(journal, record, options)?;
        if agrees::<D>(journal, (record, time), engine, &behind, options) {
            self.agrees_until = behind.record;
            return Some(Behind::Without);
        }
        Some(Behind::From(Box::new(behind)))
    }
}

/// Whether the engine, without the lost inputs, makes as many events of as many inputs as the one of the checkpoint had made.
fn agrees<D: Disk>(
    journal: &Path,
    (record, time): (u64, Nanos),
    engine: &Engine,
    behind: &Restored,
    options: &EngineOptions,
) -> bool {
    let copy = |feed: Vec<u8>| Engine::restore(options, *engine.counters(), &feed);
    let Ok(mut engine) = engine.feed().save().and_then(copy) else { return false };
    let Ok(Some(mut reader)) = JournalReader::<D>::at_number_in(journal, record.saturating_add(1)) else {
        return false;
    };
    let mut events = Vec::new();
    engine.inputs_lost(time, &mut events);
    while reader.next_number() < behind.record {
        let Ok(Some(record)) = reader.next() else { return false };
        match input_of(&record) {
            Some(input) => engine.input(&input, &mut events),
            None if record.kind == LOST => engine.inputs_lost(Nanos(record.time), &mut events),
            None => {}
        }
        events.clear();
        while engine.take_request().is_some() {}
    }
    engine.counters() == behind.engine.counters()
}
