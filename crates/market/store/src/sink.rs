//! A chain's last stage, which writes a file.

use std::path::Path;

use tapeworks_market::{Event, EventKind, Instruments, NbboUpdate};
use tapeworks_stage::Sink;

use crate::error::StoreError;
use crate::options::Options;
use crate::schema::Schema;
use crate::summary::Summary;
use crate::writer::Writer;

/// A sink that writes every update to one file. It is a [`Writer`] that learns the instruments from the events, so that it can
/// end a chain of feed, books and NBBO without access to the feed.
///
/// A sink returns no errors. It keeps the first error and writes nothing after it; [`FileSink::check`] and [`FileSink::finish`]
/// return the error.
///
/// ```
/// use tapeworks_market::{BookStage, Event, EventKind, InstrumentId, NbboStage, Price, Publisher, Side, Symbol};
/// use tapeworks_stage::{Stage, Through};
/// use tapeworks_store::{FileSink, Options, Schema};
///
/// let id = InstrumentId(0);
/// let named = Event::new(EventKind::SymbolMapping, Publisher::XNAS_ITCH, id);
/// let named = named.with_symbol(Symbol::from_bytes(b"ZVZZT").unwrap());
/// let mut order = Event::new(EventKind::Add, Publisher::XNAS_ITCH, id);
/// (order.order_id, order.side, order.price, order.size) = (1, Side::Bid, Price::from_e9(10_000_000_000), 100);
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("orders.csv");
/// let mut chain = Through::new(BookStage::new([]), NbboStage::new(Default::default(), [], 1));
/// let mut file = FileSink::create(&path, Schema::Mbo, &Options::default())?;
/// chain.process(&[named, order], &mut file);
/// assert_eq!(file.finish()?.records, 1);
/// assert!(std::fs::read_to_string(&path).unwrap().ends_with(",A,B,10000000000,100,0,1,128,0,0,ZVZZT\n"));
/// # Ok::<(), tapeworks_store::StoreError>(())
/// ```
#[derive(Debug)]
pub struct FileSink {
    writer: Writer,
    instruments: Instruments,
    error: Option<StoreError>,
    /// Set by the first error; nothing is written afterwards.
    is_broken: bool,
}

impl FileSink {
    /// Opens a file as [`Writer::create`] does.
    ///
    /// # Errors
    /// As [`Writer::create`].
    pub fn create(path: &Path, schema: Schema, options: &Options) -> Result<Self, StoreError> {
        let writer = Writer::create(path, schema, options)?;
        Ok(Self { writer, instruments: Instruments::default(), error: None, is_broken: false })
    }

    /// Returns the instruments that events have named so far.
    pub const fn instruments(&self) -> &Instruments {
        &self.instruments
    }

    /// Returns what has been written to the file so far, excluding records in an unfinished batch.
    pub fn summary(&self) -> &Summary {
        self.writer.summary()
    }

    /// Returns the first error, once, so that a loop can stop before the end of its input.
    ///
    /// # Errors
    /// As [`Writer::put`].
    pub fn check(&mut self) -> Result<(), StoreError> {
        self.error.take().map_or(Ok(()), Err)
    }

    /// Completes the file and gives it its name.
    ///
    /// # Errors
    /// The first error of an update, or as [`Writer::finish`].
    pub fn finish(mut self) -> Result<Summary, StoreError> {
        self.check()?;
        self.writer.finish(&self.instruments)
    }

    #[cold]
    fn learn(&mut self, event: &Event) {
        if let Some(symbol) = event.symbol() {
            self.instruments.intern(symbol);
        }
    }
}

impl Sink<NbboUpdate<'_>> for FileSink {
    #[inline]
    fn put(&mut self, update: NbboUpdate<'_>) {
        if update.book.event.kind == EventKind::SymbolMapping {
            self.learn(update.book.event);
        }
        if !self.is_broken
            && let Err(error) = self.writer.put(&update, &self.instruments)
        {
            (self.error, self.is_broken) = (Some(error), true);
        }
    }
}
