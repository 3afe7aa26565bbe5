//! The writer: writes one schema to one file.

use std::ops::Range;
use std::path::Path;

use tapeworks_market::{Event, EventKind, Instruments, NbboUpdate};
use tapeworks_time::Nanos;

use crate::apart::Encoders;
#[cfg(feature = "arrow")]
use crate::batch::{BatchSink, Batches};
#[cfg(feature = "arrow")]
use crate::batches::InMemory;
use crate::encode::{Binary, Csv, Encode, Ending, Json, Parquet, ParquetApart};
use crate::error::{Failure, StoreError};
use crate::format::Format;
use crate::live::{Carried, State};
use crate::options::Options;
use crate::parts::{Part, PartOf, Parts, Split, Together};
use crate::rows::{Row as _, Rows};
use crate::schema::Schema;
use crate::shape::{self, Shape};
use crate::summary::Summary;
use crate::target::{Destination, Target};

/// Writes the records of one schema to one file.
///
/// The file appears under its name only after [`Writer::finish`] has returned. Before that it is a partial file beside it, which
/// dropping the writer removes. To end early (on Ctrl-C), call `finish`: the file then holds what has been written so far.
pub struct Writer {
    table: Box<dyn Table>,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("summary", self.summary()).finish_non_exhaustive()
    }
}

impl Writer {
    /// Opens a file for `schema`; the extension of `path` determines the format, unless [`Options::format`] does. `-` is standard
    /// output. For what happens if `path` exists, see [`new_file`](tapeworks_capture::new_file).
    ///
    /// # Errors
    /// [`StoreError::UnknownEnding`], [`StoreError::NoFormat`], [`StoreError::Terminal`], [`StoreError::File`], and
    /// [`StoreError::Write`] for a head that cannot be written.
    pub fn create(path: &Path, schema: Schema, options: &Options) -> Result<Self, StoreError> {
        Self::create_with(path, schema, options, None)
    }

    /// Like [`Writer::create`], but `encoders` encode the batches if the format supports that (Parquet). The file's bytes are the same.
    /// A disk error may be reported some batches later.
    ///
    /// # Errors
    /// As [`Writer::create`].
    pub fn create_apart(
        path: &Path,
        schema: Schema,
        options: &Options,
        encoders: Box<dyn Encoders>,
    ) -> Result<Self, StoreError> {
        Self::create_with(path, schema, options, Some(encoders))
    }

    fn create_with(
        path: &Path,
        schema: Schema,
        options: &Options,
        encoders: Option<Box<dyn Encoders>>,
    ) -> Result<Self, StoreError> {
        let format = options.format.map_or_else(|| Format::from_path(path), Ok)?;
        Self::begin(Target::new(path, format, options.overwrite)?, format, schema, options, encoders)
    }

    /// Writes a file supplied by the caller for `schema`.
    ///
    /// # Errors
    /// [`StoreError::UnknownEnding`], [`StoreError::NoFormat`], and [`StoreError::Write`] for a head that cannot be written.
    pub fn create_into(
        file: Box<dyn Destination>,
        schema: Schema,
        options: &Options,
    ) -> Result<Self, StoreError> {
        let format = options.format.map_or_else(|| Format::from_path(file.path()), Ok)?;
        Self::begin(Target::of(file), format, schema, options, None)
    }

    /// Writes the records of `schema` to several files supplied by the caller: each record to the file whose index `part_of` returns for
    /// its symbol. Together the files have the records of a single file, with the same flags and instrument numbers. `path` names them
    /// all in errors that concern no single file. After [`Writer::finish`] has returned, [`Parts`] says what went into each file.
    ///
    /// Cost: one more copy of each record than with one file.
    ///
    /// # Errors
    /// As [`Writer::create_into`].
    pub fn create_parts(
        path: &Path,
        files: Vec<Box<dyn Destination>>,
        part_of: PartOf,
        schema: Schema,
        options: &Options,
    ) -> Result<(Self, Parts), StoreError> {
        struct OpenParts<'a>(&'a Path, Vec<Box<dyn Destination>>, PartOf, Schema, &'a Options, Parts);
        impl shape::Use for OpenParts<'_> {
            type Output = Result<Box<dyn Table>, StoreError>;

            fn with<S: Shape + 'static>(self, shape: S) -> Self::Output {
                let Self(path, files, part_of, schema, options, written) = self;
                let part = |file: Box<dyn Destination>| {
                    let format = options.format.map_or_else(|| Format::from_path(file.path()), Ok)?;
                    let mut target = Target::of(file);
                    let encoder = encoder_of::<S>(&mut target, format, schema, options, None)?;
                    Ok(Part::new(target, encoder))
                };
                let parts = files.into_iter().map(part).collect::<Result<Vec<_>, StoreError>>()?;
                let split = Split::new(parts, part_of, written);
                Ok(table(shape, Target::of(Box::new(Together(path.to_owned()))), Box::new(split)))
            }
        }
        let written = Parts::default();
        let open = OpenParts(path, files, part_of, schema, options, written.clone());
        Ok((Self { table: shape::of_schema(schema, open)? }, written))
    }

    /// Passes the records of `schema` to `sink` in batches, which a [`BatchMaker`](crate::BatchMaker) converts to Arrow record batches.
    /// Values that it cannot hold are counted there, not in [`Summary::out_of_range`].
    #[cfg(feature = "arrow")]
    pub fn create_batches(schema: Schema, sink: Box<dyn BatchSink>) -> Self {
        struct Batched(Box<dyn BatchSink>);
        impl shape::Use for Batched {
            type Output = Box<dyn Table>;

            fn with<S: Shape + 'static>(self, shape: S) -> Self::Output {
                let encoder = Batches::<S::Row>::new(self.0);
                table(shape, Target::of(Box::new(InMemory)), Box::new(encoder))
            }
        }
        Self { table: shape::of_schema(schema, Batched(sink)) }
    }

    fn begin(
        target: Target,
        format: Format,
        schema: Schema,
        options: &Options,
        encoders: Option<Box<dyn Encoders>>,
    ) -> Result<Self, StoreError> {
        let table = shape::of_schema(schema, Open { target, format, schema, options, encoders })?;
        Ok(Self { table })
    }

    /// Takes one update. `instruments` names its instrument; it may grow between calls.
    ///
    /// Cost: see the [crate's documentation](crate#cost). Nothing is allocated here; each batch of records allocates when it is encoded.
    ///
    /// # Errors
    /// [`StoreError::Write`] or [`StoreError::Encode`] if the batch that this update filled cannot be written;
    /// [`StoreError::Failed`] from then on.
    #[inline]
    pub fn put(&mut self, update: &NbboUpdate<'_>, instruments: &Instruments) -> Result<(), StoreError> {
        self.table.put(update, instruments)
    }

    /// Notes an event that gets no record in this file because it belongs to another feed. This keeps the flag LAST as it is in a stream
    /// of all feeds: [`live`](crate::live).
    #[inline]
    pub fn pass(&mut self, event: &Event) {
        self.table.pass(event);
    }

    /// Notes an update from before the file's time window without writing a record: the first records need its quotes and last trades.
    #[inline]
    pub fn watch(&mut self, update: &NbboUpdate<'_>) {
        self.table.watch(update);
    }

    /// Limits the records to a window of receive time; call it before any update is taken or noted. Pass earlier updates to
    /// [`Writer::watch`]. An interval's record (`bbo-1m`) is in the window if its end is, even if the change came earlier.
    pub fn set_window(&mut self, window: Range<Nanos>) {
        self.table.set_window(window);
    }

    /// Continues from a state, as if the writer had noted every update before it. Call it before any other update is taken or noted, or
    /// after updates that are missing for good.
    pub fn restore(&mut self, state: &State<'_>, carried: &Carried) {
        self.table.restore(state, carried);
    }

    /// Returns what has been written to the file so far. Records in an unwritten batch are not counted.
    pub fn summary(&self) -> &Summary {
        self.table.summary()
    }

    /// Completes the file and gives it its name.
    ///
    /// # Errors
    /// As [`Writer::put`], and [`StoreError::File`] if the file cannot get its name.
    pub fn finish(self, instruments: &Instruments) -> Result<Summary, StoreError> {
        self.table.finish(instruments)
    }
}

/// A writer with its record type erased.
trait Table: Send {
    fn put(&mut self, update: &NbboUpdate<'_>, instruments: &Instruments) -> Result<(), StoreError>;
    fn watch(&mut self, update: &NbboUpdate<'_>);
    fn set_window(&mut self, window: Range<Nanos>);
    fn pass(&mut self, event: &Event);
    fn restore(&mut self, state: &State<'_>, carried: &Carried);
    fn summary(&self) -> &Summary;
    fn finish(self: Box<Self>, instruments: &Instruments) -> Result<Summary, StoreError>;
}

struct TableOf<S: Shape> {
    shape: S,
    rows: Rows<S::Row>,
    /// `None` after a batch could not be written.
    encoder: Option<Box<dyn Encode<S::Row>>>,
    summary: Summary,
    target: Target,
}

/// Opens a file for the shape of its schema.
struct Open<'a> {
    target: Target,
    format: Format,
    schema: Schema,
    options: &'a Options,
    encoders: Option<Box<dyn Encoders>>,
}

impl shape::Use for Open<'_> {
    type Output = Result<Box<dyn Table>, StoreError>;

    fn with<S: Shape + 'static>(self, shape: S) -> Self::Output {
        open(shape, self)
    }
}

fn open<S: Shape + 'static>(shape: S, open: Open<'_>) -> Result<Box<dyn Table>, StoreError> {
    let Open { mut target, format, schema, options, encoders } = open;
    let encoder = encoder_of::<S>(&mut target, format, schema, options, encoders)?;
    Ok(table(shape, target, encoder))
}

/// Starts a file: returns the encoder for its records.
fn encoder_of<S: Shape + 'static>(
    target: &mut Target,
    format: Format,
    schema: Schema,
    options: &Options,
    encoders: Option<Box<dyn Encoders>>,
) -> Result<Box<dyn Encode<S::Row>>, StoreError> {
    let zstd_level = format.is_zstd().then_some(options.zstd_level);
    let output = match format {
        Format::Dbn | Format::DbnZstd => target.open_scratch(zstd_level)?,
        _ => target.open(zstd_level)?,
    };
    let encoder: Result<Box<dyn Encode<S::Row>>, Failure> = match format {
        Format::Dbn | Format::DbnZstd => Ok(Box::new(Binary::new(output, schema, zstd_level))),
        Format::Parquet => match encoders {
            None => Parquet::new::<S::Row>(output, schema, options, S::Row::HAS_ORIGIN)
                .map(|encoder| Box::new(encoder) as _),
            Some(encoders) => {
                ParquetApart::new(output, schema, options, encoders).map(|encoder| Box::new(encoder) as _)
            }
        },
        Format::Csv | Format::CsvZstd => {
            Csv::new(output, schema, options).map(|encoder| Box::new(encoder) as _)
        }
        Format::Json | Format::JsonZstd => Ok(Box::new(Json::new(output, options))),
    };
    encoder.map_err(|failure| error(target, 0, failure))
}

fn table<S: Shape + 'static>(shape: S, target: Target, encoder: Box<dyn Encode<S::Row>>) -> Box<dyn Table> {
    let (rows, summary) = (Rows::new(), Summary::default());
    Box::new(TableOf { shape, rows, encoder: Some(encoder), summary, target })
}

fn error(target: &Target, records: u64, failure: Failure) -> StoreError {
    failure.at(target.path(), records)
}

impl<S: Shape> TableOf<S> {
    /// Counts an event's size beyond 32 bits, if this file contains it.
    #[cold]
    #[inline(never)]
    fn count_lost_size(&mut self, event: &Event, has_record: bool) {
        let is_lost = match event.kind {
            EventKind::Trade => has_record && event.is_wide() && S::Row::HAS_NARROW_SIZES,
            EventKind::Quote => has_record && S::Row::HAS_NARROW_SIZES,
            // The record comes with the second half of the pair.
            EventKind::Imbalance | EventKind::ImbalancePrices => S::Row::IS_IMBALANCE,
            _ => false,
        };
        self.summary.out_of_range += u64::from(is_lost);
    }

    #[cold]
    #[inline(never)]
    fn encode(&mut self, instruments: &Instruments) -> Result<(), StoreError> {
        let Some(encoder) = &mut self.encoder else {
            return Err(StoreError::Failed { path: self.target.path().to_owned() });
        };
        match encoder.encode(&mut self.rows, instruments, &mut self.summary) {
            Ok(()) => {
                self.summary.skipped = self.rows.skipped;
                self.rows.clear();
                Ok(())
            }
            Err(failure) => {
                // An encoder that failed in the middle of a batch cannot continue.
                self.encoder = None;
                self.rows.clear();
                Err(error(&self.target, self.summary.records, failure))
            }
        }
    }
}

impl<S: Shape> Table for TableOf<S> {
    #[inline]
    fn put(&mut self, update: &NbboUpdate<'_>, instruments: &Instruments) -> Result<(), StoreError> {
        self.summary.updates += 1;
        let before = self.rows.len();
        self.shape.take(update, instruments, &mut self.rows);
        self.rows.close_group(update.book.event, before..self.rows.len());
        if update.book.event.size == u32::MAX {
            self.count_lost_size(update.book.event, self.rows.len() > before);
        }
        if self.rows.is_full() { self.encode(instruments) } else { Ok(()) }
    }

    fn set_window(&mut self, window: Range<Nanos>) {
        self.shape.set_window(window);
    }

    #[inline]
    fn watch(&mut self, update: &NbboUpdate<'_>) {
        self.shape.note(update);
    }

    #[inline]
    fn pass(&mut self, event: &Event) {
        self.rows.pass(event);
    }

    fn restore(&mut self, state: &State<'_>, carried: &Carried) {
        // As in a stream, which restarts here.
        self.rows.forget_open();
        self.shape.restore(state, carried);
    }

    fn summary(&self) -> &Summary {
        &self.summary
    }

    fn finish(mut self: Box<Self>, instruments: &Instruments) -> Result<Summary, StoreError> {
        self.shape.finish(&mut self.rows);
        self.encode(instruments)?;
        let Some(encoder) = self.encoder.take() else {
            return Err(StoreError::Failed { path: self.target.path().to_owned() });
        };
        match encoder.finish(instruments, &mut self.target, &mut self.summary) {
            Ok(()) => {}
            Err(Ending::Failure(failure)) => {
                return Err(error(&self.target, self.summary.records, failure));
            }
            Err(Ending::Store(error)) => return Err(error),
        }
        self.summary.bytes = self.target.complete()?;
        Ok(self.summary)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::{self, Write};

    use tapeworks_capture::new_file::NewFile;
    use tapeworks_market::{
        BookStage, BookUpdate, Capacity, Event, EventKind, InstrumentId, NbboStage, Price, Publisher, Side,
        Symbol,
    };
    use tapeworks_stage::Stage;

    use super::*;
    use crate::apart::{Lost as LostUnit, Work};
    use crate::target::Scratch;

    /// A file on a disk with little room left.
    struct Limited {
        file: Box<dyn Write + Send>,
        left: usize,
    }

    impl Write for Limited {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let length = bytes.len().min(self.left);
            if length == 0 && !bytes.is_empty() {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.left -= length;
            self.file.write(&bytes[..length])
        }

        fn flush(&mut self) -> io::Result<()> {
            self.file.flush()
        }
    }

    type Opener = fn(Box<dyn Write + Send>) -> io::Result<Box<dyn Write + Send>>;

    fn limited<const LEFT: usize>(file: Box<dyn Write + Send>) -> io::Result<Box<dyn Write + Send>> {
        Ok(Box::new(Limited { file, left: LEFT }))
    }

    #[cfg(target_os = "linux")]
    fn on_a_full_disk(_file: Box<dyn Write + Send>) -> io::Result<Box<dyn Write + Send>> {
        Ok(Box::new(File::options().write(true).open("/dev/full")?))
    }

    /// A file whose writers are those of an [`Opener`].
    #[derive(Debug)]
    struct Opened {
        file: NewFile,
        opener: Opener,
    }

    impl Destination for Opened {
        fn path(&self) -> &Path {
            self.file.path()
        }

        fn open(&mut self) -> io::Result<Box<dyn Write + Send>> {
            (self.opener)(Destination::open(&mut self.file)?)
        }

        fn scratch(&mut self) -> io::Result<Scratch> {
            let (writer, reader) = Destination::scratch(&mut self.file)?;
            Ok(((self.opener)(writer)?, reader))
        }

        fn complete(self: Box<Self>) -> Result<u64, StoreError> {
            Box::new(self.file).complete()
        }
    }

    fn put_until_error(writer: &mut Writer, instruments: &Instruments) -> Result<(), StoreError> {
        let mut books = BookStage::new([(Publisher::XNAS_ITCH, Capacity::default())]);
        let mut nbbo = NbboStage::new(Default::default(), [Publisher::XNAS_ITCH], 2);
        let mut result = Ok(());
        for n in 0..10_000u64 {
            let mut event = Event::new(EventKind::Add, Publisher::XNAS_ITCH, InstrumentId(0));
            // Numbers that no encoding makes small.
            let noise = (n + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let noise = (noise ^ noise >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            (event.order_id, event.size, event.side) = (noise, 100, Side::Bid);
            event.price = Price::from_e9((noise >> 20) as i64);
            books.process(&[event], &mut |update: BookUpdate<'_>| {
                nbbo.process(&[update], &mut |update: NbboUpdate<'_>| {
                    if result.is_ok() {
                        result = writer.put(&update, instruments);
                    }
                });
            });
            if result.is_err() {
                break;
            }
        }
        result
    }

    struct AtOnce;

    impl Encoders for AtOnce {
        fn give(&mut self, work: Work) -> Result<(), LostUnit> {
            work.encode();
            Ok(())
        }

        fn rest(&mut self) -> Result<(), LostUnit> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_is_an_error_with_the_file_and_leaves_nothing_behind() {
        let directory = tempfile::tempdir().unwrap();
        let mut instruments = Instruments::default();
        instruments.intern(Symbol::from_bytes(b"AAA").unwrap());
        let openers: Vec<(&str, Opener)> = vec![
            ("nothing", limited::<0>),
            ("some", limited::<100>),
            ("half of it", limited::<80_000>),
            #[cfg(target_os = "linux")]
            ("/dev/full", on_a_full_disk),
        ];
        for (room, opener) in openers {
            for (ending, _) in Format::ENDINGS {
                let path = directory.path().join(format!("orders{ending}"));
                let what = format!("room for {room}, {ending}");
                let found = [None, Some(Box::new(AtOnce) as Box<dyn Encoders>)].map(|encoders| {
                    let file = Opened { file: NewFile::create(&path, false).unwrap(), opener };
                    let format = Format::from_path(&path).unwrap();
                    let target = Target::of(Box::new(file));
                    let writer = Writer::begin(target, format, Schema::Mbo, &Options::default(), encoders);
                    let result =
                        writer.and_then(|mut writer| match put_until_error(&mut writer, &instruments) {
                            Ok(()) => writer.finish(&instruments).map(|_| ()),
                            Err(error) => {
                                let after = writer.finish(&instruments);
                                assert!(matches!(after, Err(StoreError::Failed { .. })), "{what}: {after:?}");
                                Err(error)
                            }
                        });
                    let Err(error) = result else { panic!("{what}: {result:?}") };
                    match &error {
                        StoreError::Write { path: found, source, .. } => {
                            assert_eq!((found, source.kind()), (&path, io::ErrorKind::StorageFull), "{what}");
                        }
                        other => panic!("{what}: {other:?}"),
                    }
                    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "{what}");
                    error.to_string()
                });
                assert_eq!(found[0], found[1], "{what}: whichever thread encodes");
            }
        }
    }
}
