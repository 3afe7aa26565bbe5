//! The daily roll: journals of earlier days become files, while the plant runs.
//!
//! A plant that starts on a new day moves the journal of the day before into a folder of that date. From then on a thread
//! makes files of every such journal of which there are none yet, the earliest day first. A day's folder gets its name when
//! all of it is written, so one that was interrupted is made anew at the next start.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use jiff::civil::Date;
use tapeworks_market::Nanos;
use tapeworks_store::Schema;

use super::export::{ExportError, ExportOptions, earlier_days, export};
use super::status::Status;
use super::{PlantError, PlantOptions};

/// What the daily roll makes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RollSetting {
    /// Where the days' folders go.
    pub folder: PathBuf,
    /// What is written.
    pub schemas: Vec<Schema>,
    /// The ending of the files, which tells their format.
    pub ending: String,
}

/// A day that the roll is done with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RolledDay {
    /// The day, in New York.
    pub date: Date,
    /// Files and the records in them, or why there are none.
    pub outcome: Result<(u64, u64), String>,
    /// From when on the files tell; `None` from the day's beginning.
    pub from: Option<Nanos>,
}

/// What the roll is doing.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RollStatus {
    /// Whether there is one.
    pub is_on: bool,
    /// The day whose files are being made, and the inputs of its journal that were read so far.
    pub running: Option<(Date, u64)>,
    /// The days that were done since the start.
    pub done: Vec<RolledDay>,
}

/// The running roll. Dropping it ends it: what is half made is removed.
#[derive(Debug)]
pub(super) struct Roll {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Roll {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // It tells of itself in the status.
            let _panicked = thread.join();
        }
    }
}

impl Roll {
    /// Starts the roll of the journals of earlier days that a plant with these options has moved away.
    pub(super) fn start(
        setting: RollSetting,
        plant: PlantOptions,
        status: Arc<Mutex<Status>>,
    ) -> Result<Self, PlantError> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("roll".to_owned());
        let thread = thread.spawn(move || run(&setting, &plant, &stopped, &status));
        let thread = thread.map_err(|source| PlantError::Thread { thread: "roll", source })?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

fn run(setting: &RollSetting, plant: &PlantOptions, stop: &AtomicBool, status: &Mutex<Status>) {
    // Where the kernel does not know of it, it is only not as good.
    let _as_well_as_can_be = tapeworks_ring::cpu::step_back();
    let Some(journal) = &plant.journal else { return };
    let tell = |change: &dyn Fn(&mut RollStatus)| {
        change(&mut status.lock().unwrap_or_else(PoisonError::into_inner).roll);
    };
    let options = ExportOptions {
        folder: setting.folder.clone(),
        schemas: setting.schemas.clone(),
        ending: setting.ending.clone(),
        overwrite: false,
    };
    tell(&|roll| roll.is_on = true);
    // A folder that cannot be listed has failed the plant's own start.
    for (date, folder) in earlier_days(&journal.folder).unwrap_or_default() {
        if stop.load(Ordering::Acquire) {
            return;
        }
        if setting.folder.join(date.to_string()).exists() {
            continue;
        }
        tell(&|roll| roll.running = Some((date, 0)));
        let exported = export(plant, &folder, &options, |inputs| {
            tell(&|roll| roll.running = Some((date, inputs)));
            !stop.load(Ordering::Acquire)
        });
        let (outcome, from) = match exported {
            Ok(exported) => {
                let records = exported.files.iter().map(|file| file.summary.records).sum();
                (Ok((exported.files.len() as u64, records)), exported.from)
            }
            Err(ExportError::Stopped) => return,
            Err(error) => (Err(error.to_string()), None),
        };
        tell(&|roll| {
            roll.running = None;
            roll.done.push(RolledDay { date, outcome: outcome.clone(), from });
        });
    }
}
