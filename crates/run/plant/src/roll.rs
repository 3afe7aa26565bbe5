//! The daily roll: exports finished days to files while the plant runs.
//!
//! A journal is one sequence, however many days the plant runs. When a day in New York is over, a thread exports the inputs
//! received on that day to files. At the start it also exports earlier days that have records in the journal, or in one that was
//! moved away, but no files yet, earliest day first. A day's folder gets its final name only when it is completely on disk, so the
//! next start repeats an interrupted or failed day.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::civil::Date;
use tapeworks_store::Schema;
use tapeworks_time::Nanos;
use tapeworks_time::clock;

use crate::error::PlantError;
use crate::options::PlantOptions;
use crate::status::{RollStatus, RolledDay, Status};
use tapeworks_engine::days::days_before_in;
use tapeworks_engine::export::{ExportError, ExportOptions, export_in};
use tapeworks_runtime::traces::{Sample, Text, Traces};
use tapeworks_runtime::world::{System, ThreadHandle as _, World};

/// How long after midnight a day counts as over, in ns.
const GRACE: u64 = 60 * Nanos::SECOND;

/// How often the thread checks whether a day is over.
const LOOK: Duration = Duration::from_secs(1);

/// The options of the daily roll.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RollSetting {
    /// The parent of the days' folders.
    pub folder: PathBuf,
    /// The schemas to export.
    pub schemas: Vec<Schema>,
    /// The file extension, which determines the format.
    pub ending: String,
}

/// The running roll. Dropping it stops it and removes unfinished files.
#[derive(Debug)]
pub struct Roll<W: World = System> {
    stop: Arc<AtomicBool>,
    thread: Option<W::Handle<()>>,
}

impl<W: World> Drop for Roll<W> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.unpark();
            // The panic has been reported by the thread itself.
            let _panicked = thread.join();
        }
    }
}

impl Roll {
    /// Starts the roll of finished days in the journals of a plant with these options.
    ///
    /// # Errors
    /// [`PlantError::Thread`].
    pub fn start(
        setting: RollSetting,
        plant: PlantOptions,
        status: Arc<Mutex<Status>>,
    ) -> Result<Self, PlantError> {
        Self::start_in(setting, plant, status)
    }
}

impl<W: World> Roll<W> {
    /// Starts the roll like [`Roll::start`], in any world.
    ///
    /// # Errors
    /// [`PlantError::Thread`].
    pub fn start_in(
        setting: RollSetting,
        plant: PlantOptions,
        status: Arc<Mutex<Status>>,
    ) -> Result<Self, PlantError> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = W::spawn("roll", move || run::<W>(&setting, &plant, &stopped, &status));
        let thread = thread.map_err(|source| PlantError::Thread { thread: "roll", source })?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

fn run<W: World>(setting: &RollSetting, plant: &PlantOptions, stop: &AtomicBool, status: &Mutex<Status>) {
    // If the kernel does not support a lower priority, the thread runs at the normal one.
    let _as_well_as_can_be = W::step_back();
    let Some(journal) = &plant.journal else { return };
    let update = |change: &dyn Fn(&mut RollStatus)| {
        change(&mut status.lock().unwrap_or_else(PoisonError::into_inner).roll);
    };
    update(&|roll| roll.is_on = true);
    let (mut looked, mut tried) = (None, HashSet::new());
    while !stop.load(Ordering::Acquire) {
        // Inputs received just before midnight may not be in the journal yet.
        let today = clock::date_at(Nanos(W::time_of_day().0.saturating_sub(GRACE)));
        if let Some(day) = today
            && looked != today
        {
            looked = today;
            let (due, unreadable) = days_before_in::<W>(day, &journal.folder);
            for (date, error) in unreadable {
                update(&|roll| {
                    roll.done.push(RolledDay { date, outcome: Err(error.clone()), from: None });
                });
            }
            for (date, folder, name) in due {
                if stop.load(Ordering::Acquire) {
                    return;
                }
                if !tried.insert(name.clone()) || W::exists(&setting.folder.join(name)) {
                    continue;
                }
                if !roll_day::<W>(date, &folder, (setting, plant), stop, &update) {
                    return;
                }
            }
        }
        W::park(LOOK);
    }
}

/// Exports a day to files. Returns `false` if it was stopped.
fn roll_day<W: World>(
    date: Date,
    journal: &Path,
    (setting, plant): (&RollSetting, &PlantOptions),
    stop: &AtomicBool,
    update: &impl Fn(&dyn Fn(&mut RollStatus)),
) -> bool {
    let options = ExportOptions {
        folder: setting.folder.clone(),
        schemas: setting.schemas.clone(),
        ending: setting.ending.clone(),
        overwrite: false,
        date: Some(date),
    };
    update(&|roll| roll.running = Some((date, 0)));
    let began = W::time_of_day();
    let exported = export_in::<W>(&plant.engine(), journal, &options, |inputs| {
        update(&|roll| roll.running = Some((date, inputs)));
        !stop.load(Ordering::Acquire)
    });
    let (outcome, from) = match exported {
        Ok(exported) => {
            let records = exported.files.iter().map(|file| file.summary.records).sum();
            (Ok((exported.files.len() as u64, records)), exported.from)
        }
        Err(ExportError::Stopped) => return false,
        Err(error) => (Err(error.to_string()), None),
    };
    if let Some(operations) = plant.traces.as_ref().and_then(Traces::operations) {
        let mut sample = Sample::new("roll a day", began.0);
        sample.lasts_until(W::time_of_day().0);
        sample.text("day", Text::new(date.to_string().as_bytes()));
        match &outcome {
            Ok((files, records)) => {
                sample.number("files", *files);
                sample.number("records", *records);
            }
            Err(_) => sample.failed = Some("the day could not be exported"),
        }
        operations.record(&sample);
    }
    update(&|roll| {
        roll.running = None;
        roll.done.push(RolledDay { date, outcome: outcome.clone(), from });
    });
    true
}
