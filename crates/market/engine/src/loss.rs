//! How a replay passes a record of lost inputs: without them, or by jumping to the next checkpoint.
//!
//! A plant that finds inputs lost at startup continues without them. A plant whose journal loses inputs while it runs
//! has processed them. The next checkpoint shows which of the two happened: a replay without the lost inputs either
//! arrives at its counters or does not.

use std::path::Path;

use tapeworks_disk::Disk;
use tapeworks_journal::{JournalReader, LOST};
use tapeworks_time::Nanos;

use crate::checkpoint::{Restored, folder};
use crate::records::input_of;
use crate::{Engine, EngineOptions};

/// How a replay continues after a loss.
pub(crate) enum Behind {
    /// Without the lost inputs.
    Without,
    /// From this checkpoint.
    From(Box<Restored>),
}

/// Losses encountered by a replay, in order.
#[derive(Default, Debug)]
pub(crate) struct Losses {
    /// Before this record, a replay without the lost inputs arrives at the state of the checkpoint there.
    agrees_until: u64,
}

impl Losses {
    /// Decides how a replay continues that has arrived at the state of `engine` at the loss record `record` of time
    /// `time`.
    ///
    /// Returns `None` if no later checkpoint exists yet.
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

/// Returns whether the engine, without the lost inputs, arrives at the same input and event counts as the checkpoint.
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
