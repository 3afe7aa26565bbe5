//! The end of the day: the plant writes the day's files, and they match a replay of its journal.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dbn::decode::{DbnDecoder, DecodeRecordRef as _};
use tapeworks_disk::Disk as _;
use tapeworks_engine::days::earlier_journals_in;
use tapeworks_engine::history::{History, HistoryError, Read as HistoryRead};
use tapeworks_engine::{EngineOptions, JournalHistory};
use tapeworks_market::Market;
use tapeworks_plant::PlantOptions;
use tapeworks_plant::roll::RollSetting;
use tapeworks_runtime::world::World as _;
use tapeworks_store::{Destination, Options, Schema, Scratch, StoreError, Writer};
use tapeworks_time::Nanos;

use crate::kernel::{Simulated, note, now_ns};
use crate::plan::SECOND;
use crate::shared::locked;

/// Time after midnight at which a day is over, in ns: the plant's grace period, plus its check of the clock every second.
pub(crate) const GRACE_NS: u64 = 61 * SECOND;

/// Longest time for writing the files.
const PATIENCE_NS: u64 = 120 * SECOND;

/// The folder of the days' files.
const DAYS: &str = "/days";

/// The folder of the day that ends.
const DAY: &str = "/days/2025-11-14";

const SCHEMAS: [Schema; 2] = [Schema::Mbo, Schema::Trades];

/// Returns the plant's daily roll setting.
pub(crate) fn setting() -> RollSetting {
    RollSetting { folder: DAYS.into(), schemas: SCHEMAS.to_vec(), ending: "dbn".to_owned() }
}

/// Records by publisher.
type Records = BTreeMap<u16, Vec<Vec<u8>>>;

fn add_records(bytes: &[u8], to: &mut Records) -> Result<(), dbn::Error> {
    let mut decoder = DbnDecoder::new(bytes)?;
    while let Some(record) = decoder.decode_record_ref()? {
        to.entry(record.header().publisher_id).or_default().push(record.as_ref().to_vec());
    }
    Ok(())
}

/// Returns the records of one schema in the day's files.
fn filed(schema: Schema) -> Result<Records, String> {
    let said = |path: &Path, error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let mut all = Records::new();
    for folder in Simulated::entries(DAY.as_ref()).map_err(|error| said(DAY.as_ref(), &error))? {
        let path = folder.join(format!("{schema}.dbn"));
        if Simulated::exists(&path) {
            let bytes = Simulated::read(&path).map_err(|error| said(&path, &error))?;
            add_records(&bytes, &mut all).map_err(|error| said(&path, &error))?;
        }
    }
    Ok(all)
}

/// Returns the records that a replay of the journal makes; `None` if the journal has lost inputs or its beginning.
fn replayed(
    history: &JournalHistory<Simulated>,
    options: &EngineOptions,
    schema: Schema,
) -> Result<Option<Records>, String> {
    let failed = |error: &dyn std::fmt::Display| format!("the replay: {error}");
    let mut reader = match history.open(Nanos(0)) {
        Err(HistoryError::NotKept { .. }) => return Ok(None),
        opened => opened.map_err(|error| failed(&error))?,
    };
    let bytes = Bytes::default();
    let memory = Memory { path: format!("{schema}.dbn").into(), bytes: bytes.clone() };
    let mut writer =
        Writer::create_into(Box::new(memory), schema, &Options::default()).map_err(|error| failed(&error))?;
    let mut market = Market::new(&options.books);
    let mut written = Ok(());
    loop {
        let events = match reader.read().map_err(|error| failed(&error))? {
            HistoryRead::Start { .. } => return Ok(None),
            HistoryRead::CaughtUp => break,
            HistoryRead::Events(events) => events,
        };
        market.apply(events, |update, instruments| {
            if written.is_ok() {
                written = writer.put(update, instruments);
            }
        });
    }
    written.and_then(|()| writer.finish(&market.instruments)).map_err(|error| failed(&error))?;
    let mut all = Records::new();
    add_records(&locked(&bytes.bytes), &mut all).map_err(|error| failed(&error))?;
    Ok(Some(all))
}

/// Waits for the day's files, and compares them with a replay of the day's journal, whose beginning may be missing and whose
/// end may be lost. Returns the number of records that both have, or 0 if the journal is incomplete.
///
/// # Errors
/// What is wrong.
pub(crate) fn check(options: &PlantOptions, (may_be_gone, may_lose): (bool, bool)) -> Result<u64, String> {
    let until_ns = now_ns() + PATIENCE_NS;
    while !Simulated::exists(DAY.as_ref()) {
        match now_ns() < until_ns {
            true => Simulated::sleep(Duration::from_millis(100)),
            false if may_be_gone => return Ok(0),
            false => return Err("the day that is over has no files".to_owned()),
        }
    }
    let Some(journal) = &options.journal else { return Ok(0) };
    let earlier = earlier_journals_in::<Simulated>(&journal.folder).map_err(|error| error.to_string())?;
    let folder = earlier.first().map_or(&journal.folder, |earlier| &earlier.folder);
    let history = JournalHistory::<Simulated>::new_in(options.engine(), folder);
    note(|| format!("the day's journal is {}", folder.display()));
    let mut count = 0;
    for schema in SCHEMAS {
        let Some(replayed) = replayed(&history, &options.engine(), schema)? else { return Ok(0) };
        let filed = filed(schema)?;
        for publisher in replayed.keys().chain(filed.keys()) {
            let of = |all: &Records| all.get(publisher).cloned().unwrap_or_default();
            let (one, other) = (of(&filed), of(&replayed));
            // The files were written before the power was lost, and the end of the journal with it.
            if one != other && !(may_lose && one.starts_with(&other)) {
                let place = one.iter().zip(&other).position(|(one, other)| one != other);
                let place = place.unwrap_or(one.len().min(other.len()));
                let (filed, replayed) = (one.len(), other.len());
                return Err(format!(
                    "the file of {schema} of publisher {publisher} has {filed} records, the replay {replayed}; they differ \
                     from record {place} on"
                ));
            }
            count += one.len() as u64;
        }
    }
    Ok(count)
}

/// Bytes that are written, and then read from the beginning.
#[derive(Clone, Default, Debug)]
struct Bytes {
    bytes: Arc<Mutex<Vec<u8>>>,
    read: usize,
}

impl Write for Bytes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        locked(&self.bytes).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Bytes {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = locked(&self.bytes);
        let count = bytes.get(self.read..).unwrap_or_default().read(buffer)?;
        self.read += count;
        Ok(count)
    }
}

#[derive(Debug)]
struct Memory {
    path: PathBuf,
    bytes: Bytes,
}

impl Destination for Memory {
    fn path(&self) -> &Path {
        &self.path
    }

    fn open(&mut self) -> io::Result<Box<dyn Write + Send>> {
        Ok(Box::new(self.bytes.clone()))
    }

    fn scratch(&mut self) -> io::Result<Scratch> {
        let bytes = Bytes::default();
        Ok((Box::new(bytes.clone()), Box::new(bytes)))
    }

    fn complete(self: Box<Self>) -> Result<u64, StoreError> {
        Ok(locked(&self.bytes.bytes).len() as u64)
    }
}
