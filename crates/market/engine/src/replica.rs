//! A private copy of books and NBBO, fed with the engine's events, and the records of every schema in use.
//!
//! The distributor has one, and so does each replay. From equal events both produce equal records, each with the number
//! of its event; that is how a replay hands over to the distributor.

use tapeworks_market::book::BATCH;
use tapeworks_market::event::Gap;
use tapeworks_market::{
    BookOptions, BookStage, Event, EventKind, InstrumentId, Instruments, Market, NbboStage, NbboUpdate,
    Symbol,
};
use tapeworks_store::Schema;
use tapeworks_store::live::{self, Batch, Carried, Part, RecordBuilder, State};
use tapeworks_time::Nanos;

use crate::Start;

/// Number of schemas.
pub const SCHEMAS: usize = Schema::ALL.len();

const MINUTE_NS: u64 = 60 * Nanos::SECOND;

/// Returns the index of a schema among all schemas.
pub const fn place_of(schema: Schema) -> usize {
    schema as usize
}

/// How much a schema's builder does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Nothing: the records do not depend on earlier events.
    Off,
    /// Tracks the facts that later records need.
    Watch,
    /// Produces records.
    On,
}

impl Mode {
    /// Returns the mode of a schema without subscribers, whose later records may depend on earlier events.
    pub const fn idle(schema: Schema) -> Self {
        match schema {
            // The first subscriber may arrive in the middle of an interval.
            _ if schema.interval_ns().is_some() => Self::On,
            Schema::Cmbp1 => Self::Watch,
            _ => Self::Off,
        }
    }
}

/// The records of one schema.
#[derive(Debug)]
pub struct SchemaRecords {
    builder: RecordBuilder,
    mode: Mode,
    /// Whether it produces bars of a minute or longer, which depend only on trades and on the ends of minutes.
    has_long_bars: bool,
    /// Records that have not been distributed yet.
    pub batch: Batch,
}

/// An event that causes messages other than records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Special {
    /// A new instrument.
    Mapping(InstrumentId, Symbol),
    /// Missing messages.
    Gap(Event, Gap),
}

/// Books and NBBO, with the number of the event that caused each update.
#[derive(Debug)]
pub struct NumberedMarket {
    market: Market,
    /// The number of the next event.
    pub next: u64,
    /// The receive time of the last event.
    pub now: Nanos,
}

impl NumberedMarket {
    /// Creates empty books.
    pub fn new(options: &BookOptions) -> Self {
        Self { market: Market::new(options), next: 0, now: Nanos(0) }
    }

    /// Continues from a restored state.
    pub fn restore(&mut self, start: Start) -> Carried {
        let Start { next, market, carried, now } = start;
        *self = Self { market, next, now };
        carried
    }

    /// Returns the books.
    pub const fn books(&self) -> &BookStage {
        self.market.books()
    }

    /// Returns the NBBO.
    pub const fn nbbo(&self) -> &NbboStage {
        self.market.nbbo()
    }

    /// Returns the instruments.
    pub const fn instruments(&self) -> &Instruments {
        &self.market.instruments
    }

    /// Processes the next of `events`, up to and including one that yields a [`Special`].
    ///
    /// Passes every update to `each` with the number of its event. Returns how many events it processed.
    pub fn advance(
        &mut self,
        events: &[Event],
        mut each: impl FnMut(u64, &NbboUpdate<'_>, &Instruments),
    ) -> (usize, Option<Special>) {
        let window = events.get(..BATCH).unwrap_or(events);
        let alone = window.iter().position(is_alone);
        let taken = match alone {
            Some(0) => 1,
            Some(place) => place,
            None => window.len(),
        };
        let Some(batch) = window.get(..taken) else { return (0, None) };
        let Some(last) = batch.last() else { return (0, None) };
        let special = if alone == Some(0) { self.special(last) } else { None };
        // An event that is processed alone may yield several updates.
        let (mut number, step) = (self.next, u64::from(alone != Some(0)));
        self.market.apply(batch, |update, instruments| {
            each(number, update, instruments);
            number = number.saturating_add(step);
        });
        self.next = self.next.saturating_add(taken as u64);
        self.now = self.now.max(last.ts_recv);
        (taken, special)
    }

    fn special(&mut self, event: &Event) -> Option<Special> {
        if let Some(symbol) = event.symbol() {
            let instruments = &mut self.market.instruments;
            let known = instruments.len();
            let instrument = instruments.intern(symbol);
            return (instruments.len() > known).then_some(Special::Mapping(instrument, symbol));
        }
        // The gap of a single instrument shows in the flags of its records.
        let is_of_channel = event.instrument >= InstrumentId::UNKNOWN;
        event.gap().filter(|_| is_of_channel).map(|gap| Special::Gap(*event, gap))
    }
}

/// Books, NBBO and the records derived from them.
pub struct Replica {
    /// Books and NBBO.
    pub market: NumberedMarket,
    /// End of the current minute, in ns of receive time.
    minute_end: u64,
    /// Records of each schema, indexed by [`place_of`].
    pub by_schema: Vec<SchemaRecords>,
}

/// Returns the state from which records are made.
const fn state_of(market: &NumberedMarket) -> State<'_> {
    State { books: market.books(), nbbo: market.nbbo(), instruments: market.instruments(), now: market.now }
}

/// Returns whether an event must be processed alone: it yields more than one update, or a [`Special`].
const fn is_alone(event: &Event) -> bool {
    event.instrument.0 == InstrumentId::ALL.0
        || matches!(event.kind, EventKind::SymbolMapping | EventKind::Gap)
}

impl Replica {
    /// Creates empty books without records.
    pub fn new(options: &BookOptions) -> Self {
        let of_schema = |schema| SchemaRecords {
            builder: RecordBuilder::new(schema),
            mode: Mode::Off,
            has_long_bars: matches!(schema, Schema::Ohlcv1M | Schema::Ohlcv1H | Schema::Ohlcv1D),
            batch: Batch::default(),
        };
        let by_schema = Schema::ALL.into_iter().map(of_schema).collect();
        Self { market: NumberedMarket::new(options), minute_end: 0, by_schema }
    }

    /// Continues from a restored state. Later records equal those of a replica that has processed every earlier event.
    pub fn restore(&mut self, start: Start) {
        let carried = self.market.restore(start);
        let state = state_of(&self.market);
        self.by_schema.iter_mut().for_each(|of_schema| of_schema.builder.restore(&state, &carried));
    }

    /// Sets the mode of a schema.
    pub fn set_mode(&mut self, schema: Schema, mode: Mode) {
        if let Some(of_schema) = self.by_schema.get_mut(place_of(schema)) {
            of_schema.mode = mode;
        }
    }

    /// Processes the next of `events`, up to and including one that yields a [`Special`]. Returns how many it
    /// processed.
    pub fn advance(&mut self, events: &[Event]) -> (usize, Option<Special>) {
        let Self { market, minute_end, by_schema } = self;
        market.advance(events, |event, update, instruments| {
            let of = update.book.event;
            let mut matters_to_bars = matches!(of.kind, EventKind::Execute | EventKind::Trade);
            if of.ts_recv.0 >= *minute_end {
                *minute_end = (of.ts_recv.0 / MINUTE_NS + 1).saturating_mul(MINUTE_NS);
                matters_to_bars = true;
            }
            for of_schema in &mut *by_schema {
                match of_schema.mode {
                    _ if of_schema.has_long_bars && !matters_to_bars => {}
                    Mode::Off => {}
                    Mode::Watch => of_schema.builder.watch(update),
                    Mode::On => of_schema.builder.put(event, update, instruments, &mut of_schema.batch),
                }
            }
        })
    }

    /// Processes all of `events`. After each piece, `each` receives the replica with its records, and the [`Special`].
    pub fn take(&mut self, events: &[Event], mut each: impl FnMut(&mut Self, Option<Special>)) {
        let mut rest = events;
        while !rest.is_empty() {
            let (taken, special) = self.advance(rest);
            if taken == 0 {
                return;
            }
            rest = rest.get(taken..).unwrap_or_default();
            each(self, special);
        }
    }

    /// Returns the first event whose records of `schema` are held back until its group of events ends.
    pub fn held(&self, schema: Schema) -> Option<u64> {
        self.by_schema.get(place_of(schema))?.builder.held()
    }

    /// Releases records that are held back until the end of a group.
    pub fn release(&mut self) {
        self.by_schema.iter_mut().for_each(|of_schema| of_schema.builder.release(&mut of_schema.batch));
    }

    /// Returns the current state of the instruments of `part`, as records.
    pub fn snapshot(&self, schema: Schema, part: &Part<'_>) -> Batch {
        let mut batch = Batch::default();
        let state = state_of(&self.market);
        if let Some(of_schema) = self.by_schema.get(place_of(schema)) {
            live::snapshot(schema, &of_schema.builder, &state, part, &mut batch);
        }
        batch
    }

    /// Divides a snapshot of the requested instruments into parts of about `most` units of work.
    pub fn divide(
        &self,
        schema: Schema,
        is_wanted: &dyn Fn(InstrumentId) -> bool,
        most: usize,
    ) -> live::Division {
        live::divide(schema, &state_of(&self.market), is_wanted, most)
    }

    /// Returns whether there are records that have not been consumed.
    pub fn has_records(&self) -> bool {
        self.by_schema.iter().any(|of_schema| !of_schema.batch.is_empty())
    }

    /// Calls `each` with the schema's index and the position of every record, ordered by event, then by schema.
    pub fn in_order(&self, mut each: impl FnMut(usize, usize)) {
        let mut places = [0usize; SCHEMAS];
        loop {
            let next =
                self.by_schema.iter().zip(&places).enumerate().filter_map(|(of_schema, (made, place))| {
                    made.batch.items().get(*place).map(|item| (item.event, of_schema))
                });
            let Some((event, of_schema)) = next.min() else { return };
            let (Some(made), Some(place)) = (self.by_schema.get(of_schema), places.get_mut(of_schema)) else {
                return;
            };
            while made.batch.items().get(*place).is_some_and(|item| item.event == event) {
                each(of_schema, *place);
                *place += 1;
            }
        }
    }

    /// Discards the records.
    pub fn clear(&mut self) {
        self.by_schema.iter_mut().for_each(|of_schema| of_schema.batch.clear());
    }
}
