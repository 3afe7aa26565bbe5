//! Normalised market data in DBN, Parquet, CSV and JSON files.
//!
//! A [`Writer`] takes [`NbboUpdate`](tapeworks_market::NbboUpdate)s (an event, the book after it, the NBBO after it) and
//! writes the records of one [`Schema`] to one file, in the [`Format`] of the file's ending. A [`FileSink`] is a writer at
//! the end of a chain of stages. Records and their names are those of Databento Binary Encoding, version 3, in every format.
//!
//! ```
//! use tapeworks_stage::Stage;
//! use tapeworks_market::Symbol;
//! use tapeworks_market::{BookStage, BookUpdate, Event, EventKind, Instruments, NbboStage, NbboUpdate, Price, Publisher, Side};
//! use tapeworks_store::{Options, Schema, Writer};
//!
//! let mut instruments = Instruments::default();
//! let id = instruments.intern(Symbol::from_bytes(b"ZVZZT").unwrap());
//! let mut event = Event::new(EventKind::Add, Publisher::XNAS_ITCH, id);
//! (event.order_id, event.side, event.price, event.size) = (1, Side::Bid, Price::from_e9(10_000_000_000), 100);
//!
//! let path = std::env::temp_dir().join(format!("store-example-{}.csv", std::process::id()));
//! let mut writer = Writer::create(&path, Schema::Mbo, &Options::default())?;
//! let mut books = BookStage::new([]);
//! let mut nbbo = NbboStage::new(Default::default(), [], 1);
//! let mut result = Ok(());
//! books.process(&[event], &mut |update: BookUpdate<'_>| {
//!     nbbo.process(&[update], &mut |update: NbboUpdate<'_>| {
//!         if result.is_ok() {
//!             result = writer.put(&update, &instruments);
//!         }
//!     });
//! });
//! result?;
//! assert_eq!(writer.finish(&instruments)?.records, 1);
//! let text = std::fs::read_to_string(&path).unwrap();
//! assert!(text.ends_with(",A,B,10000000000,100,0,1,128,0,0,ZVZZT\n"));
//! # std::fs::remove_file(&path).unwrap();
//! # Ok::<(), tapeworks_store::StoreError>(())
//! ```
//!
//! # What gives a record
//!
//! | schema | record | |
//! | --- | --- | --- |
//! | `mbo` | every order and trade | an execution is `T`, `F` and `C`, a replacement `C` and `A`; price levels and quotes are no orders and are counted as skipped |
//! | `mbp-1`, `mbp-10` | every change within the best 1 or 10 levels, every trade | changes with the levels after, trades with the levels before |
//! | `tbbo` | every trade that counts in volume | with the best bid and offer of its venue before it |
//! | `trades` | every trade that counts in volume | not Nasdaq's non-printable executions, which a cross reports again |
//! | `bbo-1s`, `bbo-1m` | each interval of a venue and instrument with a change or trade | time is the receive time; the last trade is carried forward |
//! | `cmbp-1` | every change of the synthetic NBBO, every trade | sizes of all venues at the price, publisher of the first |
//! | `cbbo-1s`, `cbbo-1m` | each interval of an instrument with a change of the synthetic NBBO or a trade | publisher of the last of them |
//! | `status`, `imbalance`, `definition` | every one | |
//! | `statistics` | every price band of a SIP, the upper and the lower one | |
//! | `ohlcv-1s`, `ohlcv-1m`, `ohlcv-1h`, `ohlcv-1d` | each second, minute, hour or day (UTC) of a venue and instrument with a trade that counts | of the trades that the file or stream has |
//!
//! Only the last record of a venue's event carries the flag LAST, also when the last message of a group changed
//! nothing that is shown. The [`Summary`] counts updates without a record by [`Skip`].
//!
//! `instrument_id` is [`InstrumentId`](tapeworks_market::InstrumentId) plus one, valid within the file; the head of a
//! DBN file maps symbols to it, and the other formats have a `symbol` column. `sequence` is the low half of the
//! channel's sequence number.
//!
//! # Parquet
//!
//! Names and order of the columns are those of the `dbn` crate, then `symbol`, `channel_sequence` (all 64 bits) and
//! `line` (`A`, `B`, `recovery`, `snapshot`). Times are `TIMESTAMP(NANOS, UTC)`, letters and symbols text by
//! dictionary, undefined values null.
//!
//! Prices are `DECIMAL(18, 9)` on 64-bit integers unless [`Prices`] says otherwise. That is exact, needs no constant
//! to divide by, and SQL engines and data frames calculate with it directly. It holds prices below a billion;
//! a higher price, like a time after the year 2262, is null and counted. Pick [`Prices::Float`] for tools that turn
//! decimals into objects (pandas), [`Prices::Fixed`] to have DBN's integers.
//!
//! # Arrow
//!
//! With the feature `arrow`, `Writer::create_batches` hands out batches of records in place of a file, and a `BatchMaker`, on the same
//! thread or another, makes record batches of Apache Arrow of them. Columns, types and nulls are those of Parquet; prices as [`Prices`] says,
//! `DECIMAL128(18, 9)` where they are decimals.
//!
//! # Cost
//!
//! [`Writer::put`] is one call through a table of methods, the making of the records (56 bytes each for `mbo`), and
//! every 8,192 records the encoding of a batch. Per `mbo` record on a 2-core cloud machine, the writing to memory
//! included: DBN 115 ns, most of it the system's; Parquet 110 ns; DBN with Zstandard 170 ns; CSV 490 ns; JSON 920 ns
//! (`examples/formats.rs`). Nothing is allocated per record, and the buffers of a batch of Parquet are used again.
//!
//! The same input gives the same bytes: no file holds the time of its making.

pub mod apart;
#[cfg(feature = "arrow")]
mod arrays;
pub mod bars;
#[cfg(feature = "arrow")]
mod batch;
#[cfg(feature = "arrow")]
mod batches;
mod chunk;
mod column;
mod encode;
mod error;
mod format;
pub mod live;
mod options;
mod parts;
mod received;
mod records;
mod rows;
mod schema;
mod shape;
mod sink;
mod state;
mod summary;
mod symbols;
mod target;
mod writer;

#[cfg(feature = "arrow")]
pub use batch::{BatchMaker, BatchSink, Closed, RowBatch};
#[cfg(feature = "arrow")]
pub use batches::{ReceivedBatches, arrow_schema};
pub use error::StoreError;
pub use format::Format;
pub use options::{Compression, Options, Prices};
pub use parts::{PartOf, Parts};
pub use received::{RecordWriter, is_market, is_snapshot};
pub use schema::Schema;
pub use shape::{Trade, trade_of};
pub use sink::FileSink;
pub use summary::{Skip, Summary};
pub use target::{Destination, Scratch};
pub use writer::Writer;

/// The examples of the README, compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
