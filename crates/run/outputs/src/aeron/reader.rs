//! The receiving side of the streams: records, either the published NBBO or made here from the events.
//!
//! `streams` describes what is read and how gaps are closed.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use dbn::decode::dbn::RecordDecoder;
use dbn::{RecordRef, SymbolMappingMsg};
use tapeworks_engine::replica::{Mode, Replica, Special, place_of};
use tapeworks_market::{BookOptions, Event, Symbol};
use tapeworks_store::{Schema, live};

pub use super::client::AeronTrouble;
pub use super::fetch::FetchError;
pub use super::streams::{AeronReaderCounters, AeronReaderOptions, AeronStanding};
use super::streams::{Item, Streams};
use crate::multicast::receiver::is_record;
use crate::subscriber::{Records, SubscribeError};

impl From<AeronTrouble> for SubscribeError {
    fn from(trouble: AeronTrouble) -> Self {
        Self::Aeron(Box::new(trouble))
    }
}

/// Records that wait to be read.
struct Queue {
    decoder: RecordDecoder<VecDeque<u8>>,
    waiting: usize,
}

impl Queue {
    fn push(&mut self, record: &[u8]) -> bool {
        let is_one = is_record(record);
        if is_one {
            self.decoder.get_mut().extend(record);
            self.waiting += 1;
        }
        is_one
    }
}

/// Reads the records of a plant's streams: the published NBBO, or records of other schemas, made here from the events.
pub struct AeronReader {
    streams: Streams,
    queue: Queue,
    making: Option<Making>,
    /// The symbols of the known instruments.
    symbols: HashMap<u32, Symbol>,
    no_records: u64,
}

impl std::fmt::Debug for AeronReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AeronReader").field("counters", &self.streams.counters).finish_non_exhaustive()
    }
}

/// Makes records of events.
struct Making {
    replica: Replica,
    schemas: Vec<Schema>,
    bytes: Vec<u8>,
}

impl AeronReader {
    /// Connects to the driver. `schemas` are the records to make of the events, if [`AeronReaderOptions::events`] is set.
    ///
    /// # Errors
    /// [`AeronTrouble`]. A driver that disappears later is waited for.
    pub fn open(options: AeronReaderOptions, schemas: &[Schema]) -> Result<Self, AeronTrouble> {
        let making = options.events.then(|| {
            let mut replica = Replica::new(&BookOptions::default());
            schemas.iter().for_each(|schema| replica.set_mode(*schema, Mode::On));
            Making { replica, schemas: schemas.to_vec(), bytes: Vec::new() }
        });
        let queue = Queue { decoder: RecordDecoder::new(VecDeque::new()), waiting: 0 };
        Ok(Self { streams: Streams::open(options)?, queue, making, symbols: HashMap::new(), no_records: 0 })
    }

    /// Returns the counters.
    pub fn counters(&self) -> AeronReaderCounters {
        let counters = self.streams.counters.clone();
        AeronReaderCounters { malformed: counters.malformed + self.no_records, ..counters }
    }

    fn turn(&mut self) -> bool {
        let Self { streams, queue, making, symbols, no_records } = self;
        let wanted = streams.options.symbols.clone();
        streams.turn(&mut |item| match item {
            Item::Symbol(bytes) => {
                let Some((number, symbol)) = mapping(bytes) else {
                    *no_records += 1;
                    return;
                };
                let is_wanted = wanted.is_empty() || wanted.contains(&symbol);
                if is_wanted && symbols.insert(number, symbol) != Some(symbol) {
                    *no_records += u64::from(!queue.push(bytes));
                }
            }
            Item::Record(bytes) => {
                let number =
                    bytes.get(4..8).and_then(|bytes| bytes.first_chunk()).map(|b| u32::from_le_bytes(*b));
                if wanted.is_empty() || number.is_some_and(|number| symbols.contains_key(&number)) {
                    *no_records += u64::from(!queue.push(bytes));
                }
            }
            Item::Event(number, event) => {
                if let Some(making) = making {
                    making.take(number, event, &wanted, queue);
                }
            }
        })
    }
}

/// Returns the instrument and symbol of a mapping.
fn mapping(bytes: &[u8]) -> Option<(u32, Symbol)> {
    if !is_record(bytes) {
        return None;
    }
    let mut decoder = RecordDecoder::new(bytes);
    let record = decoder.decode_ref().ok()??;
    let message = record.get::<SymbolMappingMsg>()?;
    Some((message.hd.instrument_id, Symbol::parse(message.stype_out_symbol().ok()?)?))
}

impl Making {
    /// Processes the event with this number, and queues its records.
    fn take(&mut self, number: u64, event: &Event, wanted: &HashSet<Symbol>, queue: &mut Queue) {
        let Self { replica, schemas, bytes } = self;
        let symbol = replica.market.instruments().symbol(event.instrument);
        // Books of other symbols are not needed.
        if !wanted.is_empty() && symbol.is_some_and(|symbol| !wanted.contains(&symbol)) {
            return;
        }
        replica.market.next = number;
        replica.take(std::slice::from_ref(event), |replica, special| {
            if let Some(Special::Mapping(instrument, symbol)) = special
                && (wanted.is_empty() || wanted.contains(&symbol))
            {
                bytes.clear();
                live::symbol_mapping(replica.market.now, instrument, symbol, false, bytes);
                queue.push(bytes);
            }
            for schema in schemas.iter() {
                let Some(made) = replica.by_schema.get(place_of(*schema)) else { continue };
                for item in made.batch.items() {
                    let symbol = replica.market.instruments().symbol(item.instrument);
                    if wanted.is_empty() || symbol.is_some_and(|symbol| wanted.contains(&symbol)) {
                        queue.push(made.batch.record(item));
                    }
                }
            }
            replica.clear();
        });
    }
}

impl Records for AeronReader {
    fn has_more(&self) -> bool {
        self.queue.waiting > 0
    }

    fn next_record(&mut self) -> Result<Option<RecordRef<'_>>, SubscribeError> {
        let began = Instant::now();
        while self.queue.waiting == 0 {
            let is_busy = self.turn();
            if self.queue.waiting == 0 && began.elapsed() >= self.streams.options.timeout {
                return Err(SubscribeError::Quiet(io::ErrorKind::TimedOut.into()));
            }
            self.streams.rest(is_busy);
        }
        self.queue.waiting -= 1;
        let record = self.queue.decoder.decode_ref();
        record.map_err(|source| SubscribeError::Decode { address: SocketAddr::from(([0; 4], 0)), source })
    }
}
