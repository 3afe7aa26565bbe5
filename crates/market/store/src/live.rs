//! DBN streams: records as soon as they are final, and the messages around them.
//!
//! A [`RecordBuilder`] makes the records of one [`Schema`] from the updates that a [`Writer`](crate::Writer) would get, and appends
//! their bytes to a [`Batch`]. The records are byte-identical to those in files. Each has the number of its event, so that two
//! builders of the same events can hand over to each other without gaps or repetitions.
//!
//! A record is released only when no group of events is open, because only then is the group's last record known. A group whose end
//! does not arrive within 10 ms of receive time, or whose venue loses messages, is given up, in files too.
//!
//! Cost: per update what the [`Writer`](crate::Writer) costs, plus a copy of the record's bytes.

use std::ffi::c_char;

use dbn::encode::DbnMetadataEncoder;
use dbn::{Cmbp1Msg, FlagSet, MboMsg, Mbp1Msg, Mbp10Msg, Metadata, SType, SymbolMappingMsg};
use tapeworks_market::event::{Event, EventKind, Flags};
use tapeworks_market::orders::Order;
use tapeworks_market::price::UNDEFINED_PRICE;
use tapeworks_market::{Action, BookRef, Books, InstrumentId, Instruments, NbboUpdate, Side, Symbol};
use tapeworks_time::Nanos;

pub use crate::shape::{Carried, CarriedImage, LastImage};
pub use crate::state::{Part, State};

use crate::records::{Change, PriceRow, header, instrument_number, letter, sequence};
use crate::rows::Rows;
use crate::schema::Schema;
use crate::shape::{self, Shape, consolidated_pair, levels_of};

/// Extra bytes of a record that carries its time of sending.
pub const TS_OUT_BYTES: usize = 8;

/// A record in a [`Batch`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Item {
    /// The number of its event.
    pub event: u64,
    /// The time that orders records of its schema, in nanoseconds UTC.
    pub time: u64,
    /// Its instrument; [`InstrumentId::ALL`] for a venue-wide record.
    pub instrument: InstrumentId,
    /// DBN's number of the feed.
    pub publisher: u16,
    /// Its first byte in [`Batch::bytes`].
    pub start: usize,
    /// Its length in bytes.
    pub length: usize,
}

/// Records, one after the other, as bytes of DBN.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    bytes: Vec<u8>,
    items: Vec<Item>,
}

impl Batch {
    /// Returns all records, one after the other.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the location and subject of each record, in event order.
    pub fn items(&self) -> &[Item] {
        &self.items
    }

    /// Returns the bytes of a record of this batch.
    pub fn record(&self, item: &Item) -> &[u8] {
        self.bytes.get(item.start..item.start + item.length).unwrap_or_default()
    }

    /// Returns whether the batch has no records.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Discards the records but keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.items.clear();
    }

    fn push(&mut self, event: u64, record: &impl dbn::Record) {
        let bytes = record.as_ref();
        // Files number instruments from 1, and a whole venue 0, which wraps to `ALL`.
        let instrument = InstrumentId((record.instrument_id() as u32).wrapping_sub(1));
        self.items.push(Item {
            event,
            time: record.raw_index_ts(),
            instrument,
            publisher: record.publisher_id(),
            start: self.bytes.len(),
            length: bytes.len(),
        });
        self.bytes.extend_from_slice(bytes);
    }
}

/// Makes the records of one schema.
pub struct RecordBuilder {
    table: Box<dyn Making>,
}

impl std::fmt::Debug for RecordBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecordBuilder").finish_non_exhaustive()
    }
}

impl RecordBuilder {
    /// Creates a builder that has seen no update.
    pub fn new(schema: Schema) -> Self {
        Self { table: shape::of_schema(schema, Boxed) }
    }

    /// Takes the update of the event numbered `event`, and appends the records that are final now to `batch`.
    #[inline]
    pub fn put(&mut self, event: u64, update: &NbboUpdate<'_>, instruments: &Instruments, batch: &mut Batch) {
        self.table.put(event, update, instruments, batch);
    }

    /// Notes an update without making a record of it: later records depend on it.
    #[inline]
    pub fn watch(&mut self, update: &NbboUpdate<'_>) {
        self.table.watch(update);
    }

    /// Continues from a state, as if it had noted every update before it. It drops the records that it holds.
    pub fn restore(&mut self, state: &State<'_>, carried: &Carried) {
        self.table.restore(state, carried);
    }

    /// Returns the number of the first event whose records are held until their group ends.
    pub fn held(&self) -> Option<u64> {
        self.table.held()
    }

    /// Releases the held records, whether or not their group has ended.
    pub fn release(&mut self, batch: &mut Batch) {
        self.table.release(batch);
    }

    /// Appends the records at `now` of schemas that keep more state than the books do: the last trade.
    fn snapshot(&self, now: Nanos, part: &Part<'_>, batch: &mut Batch) {
        self.table.snapshot(now, part, batch);
    }
}

trait Making: Send {
    fn put(&mut self, event: u64, update: &NbboUpdate<'_>, instruments: &Instruments, batch: &mut Batch);
    fn watch(&mut self, update: &NbboUpdate<'_>);
    fn restore(&mut self, state: &State<'_>, carried: &Carried);
    fn held(&self) -> Option<u64>;
    fn release(&mut self, batch: &mut Batch);
    fn snapshot(&self, now: Nanos, part: &Part<'_>, batch: &mut Batch);
}

struct MakingOf<S: Shape> {
    shape: S,
    rows: Rows<S::Row>,
    /// The event of each of the rows.
    events: Vec<u64>,
}

struct Boxed;

impl shape::Use for Boxed {
    type Output = Box<dyn Making>;

    fn with<S: Shape + 'static>(self, shape: S) -> Box<dyn Making> {
        Box::new(MakingOf { shape, rows: Rows::with_capacity(64), events: Vec::new() })
    }
}

impl<S: Shape> MakingOf<S> {
    /// Releases the records before the first open group.
    #[cold]
    #[inline(never)]
    fn release_final(&mut self, batch: &mut Batch) {
        let count = self.rows.final_len();
        for (record, event) in self.rows.records.iter().zip(&self.events).take(count) {
            batch.push(*event, record);
        }
        self.rows.remove_front(count);
        self.events.drain(..count.min(self.events.len()));
    }
}

impl<S: Shape> Making for MakingOf<S> {
    #[inline]
    fn put(&mut self, event: u64, update: &NbboUpdate<'_>, instruments: &Instruments, batch: &mut Batch) {
        let before = self.rows.len();
        self.shape.take(update, instruments, &mut self.rows);
        self.events.resize(self.rows.len(), event);
        self.rows.close_group(update.book.event, before..self.rows.len());
        if self.rows.has_open_group() {
            self.release_final(batch);
        } else if self.rows.len() > 0 {
            self.release(batch);
        }
    }

    #[inline]
    fn watch(&mut self, update: &NbboUpdate<'_>) {
        self.shape.note(update);
    }

    fn restore(&mut self, state: &State<'_>, carried: &Carried) {
        self.rows.clear();
        self.events.clear();
        self.shape.restore(state, carried);
    }

    fn held(&self) -> Option<u64> {
        self.events.first().copied()
    }

    fn release(&mut self, batch: &mut Batch) {
        for (record, event) in self.rows.records.iter().zip(&self.events) {
            batch.push(*event, record);
        }
        self.rows.clear();
        self.events.clear();
    }

    fn snapshot(&self, now: Nanos, part: &Part<'_>, batch: &mut Batch) {
        let mut rows = Rows::with_capacity(0);
        self.shape.snapshot(now, part, &mut rows);
        rows.records.iter().for_each(|record| batch.push(u64::MAX, record));
    }
}

/// Appends records that describe the current state of the instruments of `part`. All records have the flag SNAPSHOT and the
/// receive time of the last event:
///
/// - `mbo`: for each feed and instrument with orders, an `R`, then an `A` per order: bids, then asks, best price first, in
///   execution order. The last record has LAST;
/// - `mbp-1`, `mbp-10`: for each feed and instrument with a level, one `M` without a price;
/// - `cmbp-1`: for each instrument with a bid or an offer, one `M` without a price;
/// - `bbo-1s`, `bbo-1m`: for each feed and instrument, the quote and the last trade;
/// - `cbbo-1s`, `cbbo-1m`: for each instrument, the quote and the last trade;
/// - other schemas have no state, and nothing is appended.
///
/// Cost: for `mbo`, one pass over the order table and a sort of the wanted orders; for other schemas, one visit per instrument.
pub fn snapshot(
    schema: Schema,
    builder: &RecordBuilder,
    state: &State<'_>,
    part: &Part<'_>,
    batch: &mut Batch,
) {
    match schema {
        Schema::Mbo => state.books.feeds().iter().for_each(|books| orders(books, state, part, batch)),
        Schema::Mbp1 => prices::<Mbp1Msg, 1>(state, part, batch),
        Schema::Mbp10 => prices::<Mbp10Msg, 10>(state, part, batch),
        Schema::Cmbp1 => consolidated(state, part, batch),
        Schema::Bbo1S | Schema::Bbo1M | Schema::Cbbo1S | Schema::Cbbo1M => {
            builder.snapshot(state.now, part, batch)
        }
        Schema::Tbbo
        | Schema::Trades
        | Schema::Status
        | Schema::Imbalance
        | Schema::Definition
        | Schema::Statistics
        | Schema::Ohlcv1S
        | Schema::Ohlcv1M
        | Schema::Ohlcv1H
        | Schema::Ohlcv1D => {}
    }
}

/// Bytes of records that make up a unit of work, about one order.
const UNIT_BYTES: usize = 64;

/// Bytes of a table that can be scanned in the time of one unit of records.
const UNIT_TABLE_BYTES: usize = 512;

/// Approximate maximum number of parts of a snapshot: each part of `mbo` reads the order table again.
const MOST_PARTS: usize = 64;

/// How a snapshot is divided so that no part takes long.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Division {
    /// The number after the last instrument of each part, in ascending order; `u32::MAX` for the last part.
    pub ends: Vec<u32>,
    /// Units of work for reading tables, per part and once for the division; the records come on top.
    pub reading: usize,
}

/// Returns the units of work for this many bytes of records.
pub const fn work_of(bytes: usize) -> usize {
    bytes.div_ceil(UNIT_BYTES)
}

/// Returns the text of the system message that follows the last part of a snapshot.
pub fn finished_snapshot(schema: Schema) -> String {
    format!("Finished {schema} snapshot")
}

/// Returns the schema whose snapshot this system message declares finished.
pub fn schema_of_finished_snapshot(record: &dbn::RecordRef<'_>) -> Option<Schema> {
    let text = record.get::<dbn::SystemMsg>()?.msg().ok()?;
    text.strip_prefix("Finished ")?.strip_suffix(" snapshot")?.parse().ok()
}

/// Divides a snapshot of the wanted instruments into parts of at most `most` units of work, unless the records of one instrument
/// exceed that, or there would be more than 64 parts.
///
/// Cost: for several instruments, `mbo` reads the order table once; the other schemas visit each instrument once.
pub fn divide(
    schema: Schema,
    state: &State<'_>,
    is_wanted: &dyn Fn(InstrumentId) -> bool,
    most: usize,
) -> Division {
    let mut units = vec![0usize; state.instruments.len()];
    let feeds = state.books.feeds();
    let mut reading = 1 + units.len() * size_of::<usize>() / UNIT_TABLE_BYTES;
    if schema == Schema::Mbo {
        reading += feeds.iter().map(|books| books.bytes() / UNIT_TABLE_BYTES).sum::<usize>();
    }
    if (0u32..)
        .map(InstrumentId)
        .zip(&units)
        .filter(|(instrument, _)| is_wanted(*instrument))
        .nth(1)
        .is_none()
    {
        return Division { ends: vec![u32::MAX], reading };
    }
    let per_instrument = match schema {
        Schema::Mbo => {
            for books in feeds {
                for order in books.orders() {
                    if let Some(units) = units.get_mut(order.instrument.index()) {
                        *units += work_of(size_of::<MboMsg>());
                    }
                }
            }
            0
        }
        Schema::Mbp1 | Schema::Bbo1S | Schema::Bbo1M => feeds.len() * work_of(size_of::<Mbp1Msg>()),
        Schema::Mbp10 => feeds.len() * work_of(size_of::<Mbp10Msg>()),
        Schema::Cmbp1 | Schema::Cbbo1S | Schema::Cbbo1M => work_of(size_of::<Cmbp1Msg>()),
        _ => 0,
    };
    for (instrument, units) in (0u32..).map(InstrumentId).zip(&mut units) {
        *units = if is_wanted(instrument) { *units + per_instrument } else { 0 };
    }
    let most = most.max(units.iter().sum::<usize>() / MOST_PARTS);
    let (mut ends, mut of_part) = (Vec::new(), 0usize);
    for (number, units) in (0u32..).zip(units) {
        if units > 0 && of_part > 0 && of_part + units > most {
            ends.push(number);
            of_part = 0;
        }
        of_part += units;
    }
    ends.push(u32::MAX);
    Division { ends, reading }
}

/// Returns the origin of a snapshot record: the time of the last event, and the feed.
fn origin(book: BookRef<'_>, now: Nanos) -> Event {
    let mut event = Event::new(EventKind::Other, book.publisher(), book.instrument());
    (event.ts_event, event.ts_recv) = (now, now);
    event.set_flags(Flags::SNAPSHOT);
    if book.is_stale() {
        event.add_flags(Flags::MAYBE_BAD_BOOK);
    }
    event
}

fn orders(books: &Books, state: &State<'_>, part: &Part<'_>, batch: &mut Batch) {
    let mut orders: Vec<Order> = books.orders().filter(|order| part.contains(order.instrument)).collect();
    orders.sort_unstable_by_key(|order| {
        let (side, price) = match order.side {
            Side::Ask => (1, order.price.e9()),
            Side::Bid | Side::None => (0, !order.price.e9()),
        };
        (order.instrument, side, price, order.priority)
    });
    for group in orders.chunk_by(|one, other| one.instrument == other.instrument) {
        let Some(first) = group.first() else { continue };
        let origin = origin(books.book(first.instrument), state.now);
        let record = |id, price, size, action: Action, side, flags: Flags| MboMsg {
            hd: header::<MboMsg>(dbn::rtype::MBO, &origin),
            order_id: id,
            price,
            size,
            flags: FlagSet::from(flags.0),
            channel_id: 0,
            action: action as u8 as c_char,
            side: letter(side),
            ts_recv: origin.ts_recv.0,
            ts_in_delta: 0,
            sequence: sequence(&origin),
        };
        batch.push(u64::MAX, &record(0, UNDEFINED_PRICE, 0, Action::Clear, Side::None, origin.flags()));
        for (place, order) in group.iter().enumerate() {
            let is_last = place + 1 == group.len();
            let flags = if is_last { origin.flags().with(Flags::LAST) } else { origin.flags() };
            let record = record(order.id, order.price.e9(), order.size, Action::Add, order.side, flags);
            batch.push(u64::MAX, &record);
        }
    }
}

fn prices<R: PriceRow<N>, const N: usize>(state: &State<'_>, part: &Part<'_>, batch: &mut Batch) {
    for books in state.books.feeds() {
        for book in part.among(state.instruments.len()).map(|instrument| books.book(instrument)) {
            if book.depth(Side::Bid) == 0 && book.depth(Side::Ask) == 0 {
                continue;
            }
            let origin = origin(book, state.now);
            let change = Change {
                price: UNDEFINED_PRICE,
                size: 0,
                action: Action::Modify,
                side: Side::None,
                flags: origin.flags().with(Flags::LAST).0,
                depth: 0,
            };
            batch.push(u64::MAX, &R::new(&origin, &change, levels_of::<N>(book)));
        }
    }
}

fn consolidated(state: &State<'_>, part: &Part<'_>, batch: &mut Batch) {
    for instrument in part.among(state.instruments.len()) {
        let nbbo = state.nbbo.nbbo(instrument);
        let Some(side) = [&nbbo.bid, &nbbo.ask].into_iter().find(|side| side.price.is_some()) else {
            continue;
        };
        let mut origin = Event::new(EventKind::Other, side.publisher, instrument);
        (origin.ts_event, origin.ts_recv) = (state.now, state.now);
        let flags = Flags::SNAPSHOT.with(Flags::LAST).with(nbbo.flags);
        let record = Cmbp1Msg {
            hd: header::<Cmbp1Msg>(dbn::rtype::CMBP_1, &origin),
            price: UNDEFINED_PRICE,
            size: 0,
            action: Action::Modify as u8 as c_char,
            side: letter(Side::None),
            flags: FlagSet::from(flags.0),
            ts_recv: state.now.0,
            ts_in_delta: 0,
            levels: [consolidated_pair(nbbo)],
            ..Cmbp1Msg::default_for_schema(dbn::Schema::Cmbp1)
        };
        batch.push(u64::MAX, &record);
    }
}

/// The subject of a system message, with DBN's numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SystemCode {
    /// Nothing was sent for a while.
    Heartbeat,
    /// A subscription was accepted.
    SubscriptionAcknowledged,
    /// The client cannot keep up.
    SlowReaderWarning,
    /// A replay has caught up with the present.
    ReplayCompleted,
    /// A subscription was ended.
    UnsubscribeAcknowledged,
    /// Any other: DBN has no number for it.
    Other,
}

/// The subject of an error message, with DBN's numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorCode {
    /// Symbols are unknown.
    SymbolResolutionFailed,
    /// A subscription cannot be served.
    InvalidSubscription,
    /// Records from as early as the requested start are no longer kept.
    ReplayDataAgedOut,
    /// The server failed.
    InternalError,
    /// Records were skipped because the client was too slow.
    SkippedRecords,
    /// Any other: DBN has no number for it.
    Other,
}

/// Appends the head of a stream of any records: dataset, start, and whether records carry their time of sending.
pub fn head(dataset: &str, start: Nanos, has_ts_out: bool, bytes: &mut Vec<u8>) -> Result<(), HeadError> {
    let metadata = Metadata::builder()
        .version(dbn::DBN_VERSION)
        .dataset(dataset)
        .schema(None)
        .start(start.0)
        .stype_in(None)
        .stype_out(SType::InstrumentId)
        .ts_out(has_ts_out)
        .build();
    DbnMetadataEncoder::new(bytes)
        .encode(&metadata)
        .map_err(|error| HeadError { dataset: dataset.to_owned(), reason: error.to_string() })
}

/// The dataset does not fit the head of a stream.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
#[error("dataset '{dataset}' has no place in the head of a DBN stream: {reason}")]
pub struct HeadError {
    /// The dataset.
    pub dataset: String,
    /// The encoder's error.
    pub reason: String,
}

/// Maximum bytes of a text in a message.
const TEXT_BYTES: usize = 300;

/// Returns as much of `text` as fits in a message.
fn fitting(text: &str) -> &str {
    text.get(..text.floor_char_boundary(TEXT_BYTES)).unwrap_or_default()
}

fn append(record: &impl dbn::Record, bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(record.as_ref());
}

/// Appends a system message; a text of more than 300 bytes is truncated.
pub fn system(time: Nanos, code: SystemCode, text: &str, bytes: &mut Vec<u8>) {
    let code = match code {
        SystemCode::Heartbeat => return append(&dbn::SystemMsg::heartbeat(time.0), bytes),
        SystemCode::SubscriptionAcknowledged => dbn::SystemCode::SubscriptionAck,
        SystemCode::SlowReaderWarning => dbn::SystemCode::SlowReaderWarning,
        SystemCode::ReplayCompleted => dbn::SystemCode::ReplayCompleted,
        SystemCode::UnsubscribeAcknowledged => dbn::SystemCode::UnsubscribeAck,
        SystemCode::Other => dbn::SystemCode::Unset,
    };
    if let Ok(record) = dbn::SystemMsg::new(time.0, Some(code), fitting(text)) {
        append(&record, bytes);
    }
}

impl ErrorCode {
    /// Every code.
    pub const ALL: [Self; 6] = [
        Self::SymbolResolutionFailed,
        Self::InvalidSubscription,
        Self::ReplayDataAgedOut,
        Self::InternalError,
        Self::SkippedRecords,
        Self::Other,
    ];
}

impl From<ErrorCode> for dbn::ErrorCode {
    fn from(code: ErrorCode) -> Self {
        match code {
            ErrorCode::SymbolResolutionFailed => Self::SymbolResolutionFailed,
            ErrorCode::InvalidSubscription => Self::InvalidSubscription,
            ErrorCode::ReplayDataAgedOut => Self::ReplayDataAgedOut,
            ErrorCode::InternalError => Self::InternalError,
            ErrorCode::SkippedRecords => Self::SkippedRecordsAfterSlowReading,
            ErrorCode::Other => Self::Unset,
        }
    }
}

/// Appends an error message; a text of more than 300 bytes is truncated.
pub fn error(time: Nanos, code: ErrorCode, text: &str, bytes: &mut Vec<u8>) {
    append(&dbn::ErrorMsg::new(time.0, Some(code.into()), fitting(text), true), bytes);
}

/// Appends the message that names an instrument: `requested` is how the client named it, by symbol or by number.
pub fn symbol_mapping(
    time: Nanos,
    instrument: InstrumentId,
    symbol: Symbol,
    is_by_number: bool,
    bytes: &mut Vec<u8>,
) {
    let number = instrument_number(instrument);
    let (stype_in, requested) = if is_by_number {
        (SType::InstrumentId, number.to_string())
    } else {
        (SType::RawSymbol, symbol.as_str().to_owned())
    };
    let (stype_out, name) = (SType::RawSymbol, symbol.as_str());
    let undefined = dbn::UNDEF_TIMESTAMP;
    let record =
        SymbolMappingMsg::new(number, time.0, stype_in, &requested, stype_out, name, undefined, undefined);
    // A symbol has at most 21 characters, of the 70 there is room for.
    if let Ok(record) = record {
        append(&record, bytes);
    }
}

/// Appends `record`, the bytes of one record, with its time of sending.
pub fn with_ts_out(record: &[u8], sent: Nanos, bytes: &mut Vec<u8>) {
    let Some((length, rest)) = record.split_first() else { return };
    // Lengths are in words of 32 bits; the longest record has 130 of them.
    bytes.push(length.wrapping_add((TS_OUT_BYTES / 4) as u8));
    bytes.extend_from_slice(rest);
    bytes.extend_from_slice(&sent.0.to_le_bytes());
}

/// Returns the instrument that files number `number`; `None` for 0, which is no instrument.
pub const fn instrument_of(number: u32) -> Option<InstrumentId> {
    match number.checked_sub(1) {
        Some(index) => Some(InstrumentId(index)),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use dbn::decode::DecodeRecordRef;
    use tapeworks_market::event::Gap;
    use tapeworks_market::{BookStage, NbboStage, Price, Publisher};
    use tapeworks_stage::{Stage, Through};

    use super::*;
    use crate::rows::HELD_NS;

    /// A builder of `mbp-1` with separate books.
    struct Line {
        market: Through<BookStage, NbboStage>,
        instruments: Instruments,
        builder: RecordBuilder,
        next: u64,
    }

    impl Line {
        fn new() -> Self {
            let mut instruments = Instruments::default();
            instruments.intern(Symbol::from_bytes(b"AAA").unwrap());
            let market = Through::new(BookStage::new([]), NbboStage::new(Default::default(), [], 0));
            Self { market, instruments, builder: RecordBuilder::new(Schema::Mbp1), next: 0 }
        }

        /// Returns the events and flags of the records that `event` releases.
        fn put(&mut self, event: Event) -> Vec<(u64, u8)> {
            let Self { market, instruments, builder, next } = self;
            let mut batch = Batch::default();
            market.process(&[event], &mut |update: NbboUpdate<'_>| {
                builder.put(*next, &update, instruments, &mut batch);
            });
            *next += 1;
            times_and_flags(&batch)
        }
    }

    fn times_and_flags(batch: &Batch) -> Vec<(u64, u8)> {
        let flags = std::mem::offset_of!(Mbp1Msg, flags);
        batch.items().iter().map(|item| (item.event, batch.record(item)[flags])).collect()
    }

    /// A price level of an unfinished group, unless `flags` mark it as the last.
    fn level(time: u64, price: u32, flags: Flags) -> Event {
        let mut event = Event::new(EventKind::Level, Publisher::IEXG_DEEP, InstrumentId(0));
        (event.ts_event, event.ts_recv) = (Nanos(time), Nanos(time));
        (event.side, event.price, event.size) = (Side::Bid, Some(Price::from_e4(price)), 100);
        event.set_flags(flags);
        event
    }

    const MORE: Flags = Flags(0);

    #[test]
    fn the_records_of_a_group_are_held_until_it_is_known_which_is_the_last() {
        let mut line = Line::new();
        assert_eq!(line.put(level(1, 10, MORE)), []);
        assert_eq!(line.put(level(2, 11, MORE)), []);
        assert_eq!(line.builder.held(), Some(0));
        // The group's last event changes nothing that is shown: the record before it is the last.
        assert_eq!(line.put(level(3, 5, Flags::LAST)), [(0, 0), (1, 0x80)]);
        assert_eq!(line.builder.held(), None);
        assert_eq!(line.put(level(4, 12, Flags::LAST)), [(3, 0x80)]);
    }

    #[test]
    fn a_group_that_does_not_end_is_given_up() {
        let mut line = Line::new();
        assert_eq!(line.put(level(1, 10, MORE)), []);
        assert_eq!(line.put(level(2, 11, MORE)), []);
        assert_eq!(line.put(level(HELD_NS + 2, 12, MORE)), [(0, 0), (1, 0), (2, 0)]);
        assert_eq!(line.put(level(HELD_NS + 3, 13, MORE)), []);
        let gap = Event::new(EventKind::Gap, Publisher::IEXG_DEEP, InstrumentId::ALL);
        let mut gap = gap.with_gap(Gap { first: 5, count: 1 });
        gap.ts_recv = Nanos(HELD_NS + 4);
        assert_eq!(line.put(gap), [(3, 0)], "its end may have been lost");
        assert_eq!(line.put(level(HELD_NS + 5, 14, MORE)), []);
        let mut batch = Batch::default();
        line.builder.release(&mut batch);
        assert_eq!((times_and_flags(&batch).len(), line.builder.held()), (1, None));
    }

    #[test]
    fn messages_are_readable_by_the_decoder_and_long_texts_are_cut() {
        let long = "ü".repeat(400);
        let mut bytes = Vec::new();
        head("TAPEWORKS.DEMO", Nanos(5), false, &mut bytes).unwrap();
        for code in [SystemCode::Heartbeat, SystemCode::ReplayCompleted, SystemCode::Other] {
            system(Nanos(7), code, &long, &mut bytes);
        }
        error(Nanos(8), ErrorCode::SkippedRecords, &long, &mut bytes);
        symbol_mapping(
            Nanos(9),
            InstrumentId(6),
            Symbol::from_bytes(b"ABCDEFGHIJKLMNOP").unwrap(),
            true,
            &mut bytes,
        );
        let mut decoder = dbn::decode::DbnDecoder::new(&bytes[..]).unwrap();
        macro_rules! next {
            ($record:ty) => {
                decoder.decode_record_ref().unwrap().unwrap().get::<$record>().unwrap().clone()
            };
        }
        assert!(next!(dbn::SystemMsg).is_heartbeat());
        let finished = next!(dbn::SystemMsg);
        assert_eq!(finished.code().unwrap(), dbn::SystemCode::ReplayCompleted);
        assert_eq!((finished.msg().unwrap(), finished.hd.ts_event), (&long[..300], 7));
        assert_eq!(next!(dbn::SystemMsg).code().unwrap(), dbn::SystemCode::Unset);
        let skipped = next!(dbn::ErrorMsg);
        assert_eq!(skipped.code().unwrap(), dbn::ErrorCode::SkippedRecordsAfterSlowReading);
        assert_eq!(skipped.err().unwrap(), &long[..300]);
        let mapping = next!(SymbolMappingMsg);
        assert_eq!((mapping.stype_in_symbol().unwrap(), mapping.hd.instrument_id), ("7", 7));
        assert_eq!(mapping.stype_out_symbol().unwrap(), "ABCDEFGHIJKLMNOP");
        assert!(decoder.decode_record_ref().unwrap().is_none());
        assert!(head("A DATASET WITH A LONG NAME", Nanos(5), false, &mut bytes).is_err());
    }
}
