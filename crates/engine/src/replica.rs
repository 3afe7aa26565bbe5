//! Private books and NBBO, fed by the engine's events, and the records of every wanted schema.
//!
//! The distributor has one, and each replay. Given the same events both make the same records, each with the number of its
//! event, which is how a replay hands over to the distributor.

use tapeworks_market::book::BATCH;
use tapeworks_market::event::Gap;
use tapeworks_market::{
    BookOptions, BookStage, Event, EventKind, InstrumentId, Instruments, NbboStage, NbboUpdate, Symbol,
};
use tapeworks_stage::{Sink, Stage, Through};
use tapeworks_store::Schema;
use tapeworks_store::live::{self, Batch, Carried, Part, RecordBuilder, State};
use tapeworks_time::Nanos;

use crate::Start;

/// Schemas.
pub const SCHEMAS: usize = Schema::ALL.len();

/// A minute in nanoseconds.
const MINUTE_NS: u64 = 60 * Nanos::SECOND;

/// The place of a schema among all.
pub const fn place_of(schema: Schema) -> usize {
    schema as usize
}

/// The mode of a schema.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// None: its records do not depend on earlier events.
    Off,
    /// Notes the facts that later records need.
    Watch,
    /// Records are made.
    On,
}

impl Mode {
    /// The mode of a schema without subscribers: its later records may need facts of earlier events.
    pub const fn idle(schema: Schema) -> Self {
        match schema {
            // An interval is under way when the first subscriber comes.
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
    /// It makes bars of a minute or longer, to which only trades and ends of minutes matter.
    has_long_bars: bool,
    /// Records that are not distributed yet.
    pub batch: Batch,
}

/// An event that leads to messages besides records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Special {
    /// An instrument is new.
    Mapping(InstrumentId, Symbol),
    /// Messages are missing.
    Gap(Event, Gap),
}

/// Books and NBBO, with the number of the event that each update comes from.
#[derive(Debug)]
pub struct Market {
    stages: Through<BookStage, NbboStage>,
    /// The instruments.
    pub instruments: Instruments,
    /// The number of the next event.
    pub next: u64,
    /// The receive time of the last event.
    pub now: Nanos,
}

struct Outlet<'a, F> {
    each: F,
    instruments: &'a Instruments,
    event: u64,
    /// 1 where each event gives one update.
    step: u64,
}

impl<F: FnMut(u64, &NbboUpdate<'_>, &Instruments)> Sink<NbboUpdate<'_>> for Outlet<'_, F> {
    #[inline]
    fn put(&mut self, update: NbboUpdate<'_>) {
        (self.each)(self.event, &update, self.instruments);
        self.event = self.event.saturating_add(self.step);
    }
}

impl Market {
    /// Empty books.
    pub fn new(options: &BookOptions) -> Self {
        Self { stages: options.stages(), instruments: options.instruments(), next: 0, now: Nanos(0) }
    }

    /// Continues from a state.
    pub fn restore(&mut self, start: Start) -> Carried {
        let Start { next, stages, instruments, carried, now } = start;
        *self = Self { stages, instruments, next, now };
        carried
    }

    /// The books.
    pub const fn books(&self) -> &BookStage {
        &self.stages.first
    }

    /// The NBBO.
    pub const fn nbbo(&self) -> &NbboStage {
        &self.stages.second
    }

    /// Takes the next of `events`, up to and including one that gives a [`Special`], and hands every update to `each` with the number of
    /// its event. Returns how many it took.
    pub fn advance(
        &mut self,
        events: &[Event],
        each: impl FnMut(u64, &NbboUpdate<'_>, &Instruments),
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
        let step = u64::from(alone != Some(0));
        let mut outlet = Outlet { each, instruments: &self.instruments, event: self.next, step };
        self.stages.process(batch, &mut outlet);
        self.next = self.next.saturating_add(taken as u64);
        self.now = self.now.max(last.ts_recv);
        (taken, special)
    }

    fn special(&mut self, event: &Event) -> Option<Special> {
        if let Some(symbol) = event.symbol() {
            let known = self.instruments.len();
            let instrument = self.instruments.intern(symbol);
            return (self.instruments.len() > known).then_some(Special::Mapping(instrument, symbol));
        }
        // The gap of an instrument shows in the flags of its records.
        let is_of_channel = event.instrument >= InstrumentId::UNKNOWN;
        event.gap().filter(|_| is_of_channel).map(|gap| Special::Gap(*event, gap))
    }
}

/// Books, NBBO and the records of them.
pub struct Replica {
    /// Books and NBBO.
    pub market: Market,
    /// The end of the minute that runs, in ns of receive time.
    minute_end: u64,
    /// The records of each schema, by [`place_of`].
    pub by_schema: Vec<SchemaRecords>,
}

/// The state that records are made from.
const fn state_of(market: &Market) -> State<'_> {
    State { books: market.books(), nbbo: market.nbbo(), instruments: &market.instruments, now: market.now }
}

/// Whether an event is taken alone: it gives more than one update, or a [`Special`].
const fn is_alone(event: &Event) -> bool {
    event.instrument.0 == InstrumentId::ALL.0
        || matches!(event.kind, EventKind::SymbolMapping | EventKind::Gap)
}

impl Replica {
    /// Empty books, and no records.
    pub fn new(options: &BookOptions) -> Self {
        let of_schema = |schema| SchemaRecords {
            builder: RecordBuilder::new(schema),
            mode: Mode::Off,
            has_long_bars: matches!(schema, Schema::Ohlcv1M | Schema::Ohlcv1H | Schema::Ohlcv1D),
            batch: Batch::default(),
        };
        let by_schema = Schema::ALL.into_iter().map(of_schema).collect();
        Self { market: Market::new(options), minute_end: 0, by_schema }
    }

    /// Continues from a state: records are those of a replica that has seen every event before it.
    pub fn restore(&mut self, start: Start) {
        let carried = self.market.restore(start);
        let state = state_of(&self.market);
        self.by_schema.iter_mut().for_each(|of_schema| of_schema.builder.restore(&state, &carried));
    }

    /// Sets the mode of a schema from now on.
    pub fn set_mode(&mut self, schema: Schema, mode: Mode) {
        if let Some(of_schema) = self.by_schema.get_mut(place_of(schema)) {
            of_schema.mode = mode;
        }
    }

    /// Takes the next of `events`, up to and including one that gives a [`Special`]. Returns how many it took.
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

    /// Takes all of `events`; after each piece of them `each` gets the replica with its records, and the [`Special`].
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

    /// The first event of which records of `schema` are held until their group of events ends.
    pub fn held(&self, schema: Schema) -> Option<u64> {
        self.by_schema.get(place_of(schema))?.builder.held()
    }

    /// Gives up waiting for the ends of groups.
    pub fn release(&mut self) {
        self.by_schema.iter_mut().for_each(|of_schema| of_schema.builder.release(&mut of_schema.batch));
    }

    /// The current state of the instruments of `part`, as records.
    pub fn snapshot(&self, schema: Schema, part: &Part<'_>) -> Batch {
        let mut batch = Batch::default();
        let state = state_of(&self.market);
        if let Some(of_schema) = self.by_schema.get(place_of(schema)) {
            live::snapshot(schema, &of_schema.builder, &state, part, &mut batch);
        }
        batch
    }

    /// Divides a snapshot of the wanted instruments into parts of about `most` units of work.
    pub fn divide(
        &self,
        schema: Schema,
        is_wanted: &dyn Fn(InstrumentId) -> bool,
        most: usize,
    ) -> live::Division {
        live::divide(schema, &state_of(&self.market), is_wanted, most)
    }

    /// Whether there are records that were not taken.
    pub fn has_records(&self) -> bool {
        self.by_schema.iter().any(|of_schema| !of_schema.batch.is_empty())
    }

    /// Calls `each` with the schema's number and the place of every record made, in the order of events, then of schemas.
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

    /// Forgets the records that were made.
    pub fn clear(&mut self) {
        self.by_schema.iter_mut().for_each(|of_schema| of_schema.batch.clear());
    }
}
