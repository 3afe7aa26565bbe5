//! Records of one schema in several files, by symbol.
//!
//! One shape makes the records, as for a single file, and distributes each batch to the batches of the files. Flags, instrument
//! numbers and state carried between records are therefore the same as in a single file. Cost: one copy of each record.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use tapeworks_market::{Instruments, Symbol};

use crate::apart::lock;
use crate::encode::{Encode, Ending, symbol};
use crate::error::{Failure, StoreError};
use crate::rows::{BATCH, Row, Rows};
use crate::summary::Summary;
use crate::target::{Destination, Scratch, Target};

/// Returns the file that a symbol's records go to. It must always return the same number for a symbol, below the number of files.
pub type PartOf = Box<dyn Fn(Symbol) -> usize + Send>;

/// Summaries of the files of [`Writer::create_parts`](crate::Writer::create_parts).
#[derive(Clone, Debug, Default)]
pub struct Parts(Arc<Mutex<Vec<Summary>>>);

impl Parts {
    /// Returns a summary for each file, in order: records, bytes and values out of range. Empty until the writer has finished.
    #[must_use]
    pub fn written(&self) -> Vec<Summary> {
        lock(&self.0).clone()
    }
}

/// One of the files.
pub(crate) struct Part<R> {
    target: Target,
    encoder: Box<dyn Encode<R>>,
    rows: Rows<R>,
    summary: Summary,
}

impl<R: Row> Part<R> {
    pub(crate) fn new(target: Target, encoder: Box<dyn Encode<R>>) -> Self {
        Self { target, encoder, rows: Rows::with_capacity(0), summary: Summary::default() }
    }

    /// Encodes the batch.
    fn encode(&mut self, instruments: &Instruments) -> Result<(), Failure> {
        let encoded = self.encoder.encode(&mut self.rows, instruments, &mut self.summary);
        self.rows.clear();
        encoded
    }
}

/// Distributes batches to the files.
pub(crate) struct Split<R> {
    parts: Vec<Part<R>>,
    part_of: PartOf,
    /// The part of each instrument number, plus one; 0 while unknown.
    known: Vec<u32>,
    written: Parts,
}

impl<R: Row> Split<R> {
    pub(crate) fn new(parts: Vec<Part<R>>, part_of: PartOf, written: Parts) -> Self {
        Self { parts, part_of, known: Vec::new(), written }
    }

    /// Returns the part of an instrument number. Numbers without a symbol belong to the first part.
    #[inline]
    fn part(&mut self, number: u64, instruments: &Instruments) -> usize {
        let index = usize::try_from(number).unwrap_or(usize::MAX);
        match self.known.get(index) {
            Some(part) if *part > 0 => *part as usize - 1,
            _ => self.learn(number, instruments),
        }
    }

    #[cold]
    fn learn(&mut self, number: u64, instruments: &Instruments) -> usize {
        let Some(symbol) = symbol(instruments, number) else { return 0 };
        let part = (self.part_of)(symbol).min(self.parts.len().saturating_sub(1));
        // Grow to the length of the instrument table, which contains the number.
        self.known.resize(self.known.len().max(instruments.len() + 1), 0);
        if let Some(known) = usize::try_from(number).ok().and_then(|index| self.known.get_mut(index)) {
            *known = part as u32 + 1;
        }
        part
    }
}

impl<R: Row> Encode<R> for Split<R> {
    fn encode(
        &mut self,
        rows: &mut Rows<R>,
        instruments: &Instruments,
        summary: &mut Summary,
    ) -> Result<(), Failure> {
        for (place, record) in rows.records.iter().enumerate() {
            let number = self.part(record.instrument_id(), instruments);
            let Some(part) = self.parts.get_mut(number) else { continue };
            part.rows.records.push(record.clone());
            if let (Some(sequence), Some(line)) = (rows.sequences.get(place), rows.lines.get(place)) {
                part.rows.sequences.push(*sequence);
                part.rows.lines.push(*line);
            }
            if part.rows.len() >= BATCH {
                part.encode(instruments)?;
            }
        }
        summary.records += rows.len() as u64;
        Ok(())
    }

    fn finish(
        self: Box<Self>,
        instruments: &Instruments,
        _together: &mut Target,
        summary: &mut Summary,
    ) -> Result<(), Ending> {
        let Self { parts, written: handle, .. } = *self;
        let mut written = Vec::with_capacity(parts.len());
        for mut part in parts {
            let records = part.summary.records;
            let failed = |failure: Failure, target: &Target| failure.at(target.path(), records);
            part.encode(instruments).map_err(|failure| failed(failure, &part.target))?;
            match part.encoder.finish(instruments, &mut part.target, &mut part.summary) {
                Ok(()) => {}
                Err(Ending::Failure(failure)) => return Err(failed(failure, &part.target).into()),
                Err(Ending::Store(error)) => return Err(error.into()),
            }
            part.summary.bytes = part.target.complete()?;
            summary.out_of_range += part.summary.out_of_range;
            written.push(part.summary);
        }
        *lock(&handle.0) = written;
        Ok(())
    }
}

/// Stands for all the parts in place of a single file.
#[derive(Debug)]
pub(crate) struct Together(pub(crate) PathBuf);

impl Destination for Together {
    fn path(&self) -> &Path {
        &self.0
    }

    fn open(&mut self) -> io::Result<Box<dyn Write + Send>> {
        Ok(Box::new(io::sink()))
    }

    fn scratch(&mut self) -> io::Result<Scratch> {
        Ok((Box::new(io::sink()), Box::new(io::empty())))
    }

    fn complete(self: Box<Self>) -> Result<u64, StoreError> {
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tapeworks_capture::new_file::NewFile;
    use tapeworks_market::event::{Event, EventKind, Session};
    use tapeworks_market::{
        BookStage, BookUpdate, InstrumentId, NbboStage, NbboUpdate, Price, Publisher, Side,
    };
    use tapeworks_stage::Stage;

    use super::*;
    use crate::{Options, Schema, Writer};

    /// A day with three symbols: orders, a deletion, and a clearing of all books of the venue.
    fn events() -> Vec<Event> {
        let event = |kind, instrument, order_id, cents: i64| {
            let mut event = Event::new(kind, Publisher::XNAS_ITCH, instrument);
            (event.order_id, event.side, event.size) = (order_id, Side::Bid, 100);
            event.price = Price::from_e9(cents * 10_000_000);
            (event.ts_event.0, event.ts_recv.0, event.channel_sequence) = (order_id, order_id, order_id);
            event
        };
        let mut events: Vec<Event> = (1..=30u64)
            .map(|order| event(EventKind::Add, InstrumentId((order % 3) as u32), order, order as i64))
            .collect();
        events.push(event(EventKind::Delete, InstrumentId(1), 4, 4));
        events
            .push(event(EventKind::Session, InstrumentId::ALL, 40, 0).with_session(Session::StartOfMessages));
        events
    }

    fn write(mut writer: Writer, instruments: &Instruments) -> Summary {
        let mut books = BookStage::new([]);
        let mut nbbo = NbboStage::new(Default::default(), [], 3);
        for event in events() {
            books.process(&[event], &mut |update: BookUpdate<'_>| {
                nbbo.process(&[update], &mut |update: NbboUpdate<'_>| {
                    writer.put(&update, instruments).unwrap();
                });
            });
        }
        writer.finish(instruments).unwrap()
    }

    #[test]
    fn the_parts_have_the_records_of_one_file_each_symbol_in_one_part() {
        let folder = tempfile::tempdir().unwrap();
        let mut instruments = Instruments::default();
        for symbol in ["AAA", "BBB", "CCC"] {
            instruments.intern(Symbol::parse(symbol).unwrap());
        }
        for schema in Schema::ALL {
            for format in ["csv", "dbn", "parquet"] {
                let options = Options { format: Some(format.parse().unwrap()), ..Options::default() };
                let name = |name: &str| folder.path().join(format!("{schema}.{name}.{format}"));
                let one = name("one");
                let whole = write(Writer::create(&one, schema, &options).unwrap(), &instruments);
                let names = [name("0"), name("1"), name("2")];
                let file =
                    |path: &PathBuf| Box::new(NewFile::create(path, false).unwrap()) as Box<dyn Destination>;
                let files = names.iter().map(file).collect();
                // The last part gets nothing.
                let part_of: PartOf = Box::new(|symbol| usize::from(symbol.as_str() == "BBB"));
                let opened = Writer::create_parts(folder.path(), files, part_of, schema, &options);
                let (writer, parts) = opened.unwrap();
                let together = write(writer, &instruments);
                let written = parts.written();
                assert_eq!(together.records, whole.records, "{schema} {format}");
                assert_eq!(together.skipped, whole.skipped, "{schema} {format}");
                assert_eq!(written.iter().map(|part| part.records).sum::<u64>(), whole.records);
                assert_eq!(written[2].records, 0);
                for (part, path) in written.iter().zip(&names) {
                    assert_eq!(part.bytes, fs::metadata(path).unwrap().len());
                }
                if format == "csv" {
                    let lines = |path: &PathBuf| -> Vec<String> {
                        fs::read_to_string(path).unwrap().lines().skip(1).map(str::to_owned).collect()
                    };
                    let is_second = |line: &String| line.ends_with(",BBB");
                    let (second, first): (Vec<_>, Vec<_>) = lines(&one).into_iter().partition(is_second);
                    assert_eq!([lines(&names[0]), lines(&names[1])], [first, second], "{schema}");
                }
            }
        }
    }
}
