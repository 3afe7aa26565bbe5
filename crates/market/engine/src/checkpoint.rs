//! Checkpoints: the state of engine and books after a given number of journal records.
//!
//! With a checkpoint, neither a restart nor a client's replay has to process the whole day. A file `NUMBER.snapshot` is
//! kept beside the journal's segments; the number is that of the next record. It consists of a 48-byte header and a
//! body encoded by postcard, with a CRC-32 over everything but the first 12 bytes:
//!
//! | offset | | |
//! | --- | --- | --- |
//! | 0 | `TAPESNPC` | the last letter is the version |
//! | 8 | CRC-32 | u32, over everything after it |
//! | 12 | zero | 4 bytes |
//! | 16 | number | u64, of the next record |
//! | 24 | length | u64, bytes of the body |
//! | 32 | events | u64, the number of the next event |
//! | 40 | time | u64, the latest receive time of the events before, in ns |
//!
//! All values are little-endian. [`folder`] writes the files, decides which to keep, and selects among them.

use serde::{Deserialize, Serialize};
use tapeworks_feed::live::Input;
use tapeworks_market::{BookStage, Event, Market, NbboStage, Symbol};
use tapeworks_planted::planted;
use tapeworks_stage::Through;
use tapeworks_store::live::Carried;
use tapeworks_time::Nanos;

use crate::{Engine, EngineCounters, EngineOptions, MarketImage, MarketStage, Start};

pub mod folder;

const MAGIC: [u8; 8] = *b"TAPESNPC";
const HEADER_BYTES: usize = 48;

#[derive(Serialize, Deserialize)]
struct Body<Market> {
    counters: EngineCounters,
    #[serde(with = "serde_bytes")]
    feed: Vec<u8>,
    market: Market,
}

/// A restored state.
pub struct Restored {
    /// The next record.
    pub record: u64,
    /// Feed and channels.
    pub engine: Engine,
    /// Books and NBBO.
    pub market: Start,
}

/// The header of a checkpoint file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Header {
    crc: u32,
    record: u64,
    length: u64,
    events: u64,
    time: Nanos,
}

impl Header {
    /// Parses the header of a file; `None` if it is missing or of another version.
    fn read(bytes: &[u8]) -> Option<Self> {
        let number = |at: usize| bytes.get(at..at + 8)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        let crc = bytes.get(8..12)?.first_chunk().map(|crc| u32::from_le_bytes(*crc))?;
        (bytes.first_chunk() == Some(&MAGIC)).then_some(())?;
        let (record, length, events) = (number(16)?, number(24)?, number(32)?);
        Some(Self { crc, record, length, events, time: Nanos(number(40)?) })
    }
}

/// An engine's state as plain values.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EngineImage {
    /// The engine's counters.
    pub counters: EngineCounters,
    feed: Vec<u8>,
}

impl EngineImage {
    /// Copies the state of an engine.
    pub fn of(engine: &Engine) -> Result<Self, CheckpointError> {
        let feed = engine.feed().save().map_err(|error| CheckpointError(error.to_string()))?;
        Ok(Self { counters: *engine.counters(), feed })
    }
}

/// Encodes the state as a file in the memory of `bytes`, except for the header's number and CRC.
///
/// The image should be [sorted](MarketImage::sorted).
///
/// # Errors
/// A state that cannot be encoded.
pub fn encode(
    engine: EngineImage,
    market: &MarketImage,
    mut bytes: Vec<u8>,
) -> Result<Vec<u8>, CheckpointError> {
    let EngineImage { counters, feed } = engine;
    let (events, time) = (counters.events, market.now);
    bytes.clear();
    bytes.resize(HEADER_BYTES, 0);
    let body = Body { counters, feed, market };
    let mut bytes = postcard::to_extend(&body, bytes).map_err(|error| CheckpointError(error.to_string()))?;
    let length = (bytes.len() - HEADER_BYTES) as u64;
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[24..32].copy_from_slice(&length.to_le_bytes());
    bytes[32..40].copy_from_slice(&events.to_le_bytes());
    bytes[40..48].copy_from_slice(&time.to_le_bytes());
    Ok(bytes)
}

/// Completes the header of bytes from [`encode`].
fn seal(bytes: &mut [u8], record: u64) {
    bytes[16..24].copy_from_slice(&record.to_le_bytes());
    let crc = crc32fast::hash(&bytes[12..]);
    bytes[8..12].copy_from_slice(&crc.to_le_bytes());
}

/// Checks a file and splits it into header and body.
fn body_of(bytes: &[u8], record: u64) -> Result<(Header, &[u8]), String> {
    let body = bytes.get(HEADER_BYTES..).ok_or("it is too short")?;
    let header = Header::read(bytes).ok_or("not a checkpoint of this version")?;
    let crc = crc32fast::hash(bytes.get(12..).unwrap_or_default());
    if header.length != body.len() as u64
        || header.crc != crc && !planted!("checkpoint-not-checked")
        || header.record != record
    {
        return Err("it is damaged".to_owned());
    }
    Ok((header, body))
}

/// Restores the state from a file's bytes.
fn restore(bytes: &[u8], record: u64, options: &EngineOptions) -> Result<Restored, String> {
    let (header, body) = body_of(bytes, record)?;
    let body: Body<MarketImage> = postcard::from_bytes(body).map_err(|error| error.to_string())?;
    if header.events != body.counters.events || header.time.0 != body.market.now {
        return Err("its header is of another state".to_owned());
    }
    let engine = Engine::restore(options, body.counters, &body.feed).map_err(|error| error.to_string())?;
    let how = &options.books;
    let books = BookStage::from_image(&body.market.books, |publisher| how.capacity_of(publisher))
        .map_err(|error| error.to_string())?;
    let mut nbbo =
        NbboStage::from_image(how.rules.clone(), body.market.nbbo).map_err(|error| error.to_string())?;
    let mut instruments = how.instruments();
    for symbol in &body.market.symbols {
        instruments.intern(Symbol::from_bytes(symbol).map_err(|error| error.to_string())?);
    }
    nbbo.price_lots(instruments.symbols());
    let carried = Carried::from_image(&body.market.carried, instruments.len())
        .ok_or("it has a last trade of no instrument or side")?;
    let market = Market { stages: Through::new(books, nbbo), instruments };
    let (next, now) = (body.counters.events, header.time);
    Ok(Restored { record, engine, market: Start { next, market, carried, now } })
}

/// Why bytes are not a checkpoint, or a state cannot be encoded as one.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
#[error("checkpoint: {0}")]
pub struct CheckpointError(String);

/// The state between two records of a journal, as stored in a checkpoint file.
///
/// It keeps last trades only if the options say so, and a checkpoint file needs them.
pub struct Checkpoint {
    record: u64,
    engine: Engine,
    market: MarketStage,
}

impl std::fmt::Debug for Checkpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Checkpoint").field("record", &self.record).finish_non_exhaustive()
    }
}

impl Checkpoint {
    /// Creates the state before the first record.
    pub fn new(options: &EngineOptions) -> Self {
        Self { record: 0, engine: Engine::new(options), market: MarketStage::new(options, ()) }
    }

    /// Reads the state from the bytes of a file.
    ///
    /// # Errors
    /// [`CheckpointError`] if they are damaged, of another version or configuration, or describe an impossible state.
    pub fn read(bytes: &[u8], options: &EngineOptions) -> Result<Self, CheckpointError> {
        let record = Header::read(bytes).map(|header| header.record).unwrap_or_default();
        let restored = restore(bytes, record, options).map_err(CheckpointError)?;
        let mut market = MarketStage::new(options, ());
        market.restore(restored.market);
        Ok(Self { record, engine: restored.engine, market })
    }

    /// Returns the number of the next record.
    pub const fn record(&self) -> u64 {
        self.record
    }

    /// Returns the number of the next event.
    pub const fn next_event(&self) -> u64 {
        self.engine.counters().events
    }

    /// Processes the next record and appends its events to `events`.
    pub fn input(&mut self, input: &Input<&[u8]>, events: &mut Vec<Event>) {
        let before = events.len();
        self.engine.input(input, events);
        while self.engine.take_request().is_some() {}
        self.market.apply(events.get(before..).unwrap_or_default());
        self.record = self.record.saturating_add(1);
    }

    /// Encodes the state as the bytes of a file.
    ///
    /// # Errors
    /// [`CheckpointError`] if it cannot be encoded.
    pub fn write(&self) -> Result<Vec<u8>, CheckpointError> {
        let mut bytes = encode(EngineImage::of(&self.engine)?, &self.market.image().sorted(), Vec::new())?;
        seal(&mut bytes, self.record);
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests;
