//! Normalised market data in DBN, Parquet, CSV and JSON files.
//!
//! A [`Writer`] takes [`NbboUpdate`](tapeworks_market::NbboUpdate)s (an event, the book after it, the NBBO after it) and writes
//! the records of one [`Schema`] to one file, in the [`Format`] of the file's extension. A [`FileSink`] is a writer at the end of
//! a chain of stages. Every format uses the records and names of Databento Binary Encoding, version 3.
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
//! # Records by schema
//!
//! | schema | record | |
//! | --- | --- | --- |
//! | `mbo` | every order and trade | an execution is `T`, `F`, `C`, a replacement `C`, `A`; levels and quotes are not orders and are skipped |
//! | `mbp-1`, `mbp-10` | every change within the best 1 or 10 levels, every trade | changes with the levels after, trades with the levels before |
//! | `tbbo` | every trade that counts in volume | with its venue's best bid and offer before it |
//! | `trades` | every trade that counts in volume | not Nasdaq's non-printable executions, which a cross reports again |
//! | `bbo-1s`, `bbo-1m` | each interval with a change or trade | per venue and instrument, by receive time; the last trade is carried forward |
//! | `cmbp-1` | every change of the synthetic NBBO, every trade | sizes of all venues at the price, publisher of the first |
//! | `cbbo-1s`, `cbbo-1m` | each interval of an instrument with a change of the synthetic NBBO or a trade | publisher of the last of them |
//! | `status`, `imbalance`, `definition` | every event | |
//! | `statistics` | every price band of a SIP, upper and lower | |
//! | `ohlcv-1s`, `-1m`, `-1h`, `-1d` | each second, minute, hour or day (UTC) with a trade that counts | per venue and instrument |
//!
//! Only the last record of a venue's event carries the flag LAST, even if the last message of a group changed nothing that the
//! schema shows. The [`Summary`] counts updates without a record by [`Skip`].
//!
//! `instrument_id` is [`InstrumentId`](tapeworks_market::InstrumentId) plus one, valid within the file. The head of a DBN file
//! maps symbols to it; the other formats have a `symbol` column. `sequence` is the low half of the channel's sequence number.
//!
//! # Parquet
//!
//! The columns have the names and order of the `dbn` crate, followed by `symbol`, `channel_sequence` (all 64 bits) and `line`
//! (`A`, `B`, `recovery`, `snapshot`). Times are `TIMESTAMP(NANOS, UTC)`, letters and symbols are dictionary-encoded text, and
//! undefined values are null.
//!
//! Prices are `DECIMAL(18, 9)` on 64-bit integers unless [`Prices`] selects another type. Decimals are exact, need no divisor,
//! and SQL engines and data frames calculate with them directly. They hold prices below a billion; a higher price, like a time
//! after the year 2262, becomes null and is counted. Choose [`Prices::Float`] for tools that turn decimals into objects
//! (pandas), and [`Prices::Fixed`] for DBN's integers.
//!
//! # Arrow
//!
//! With the feature `arrow`, `Writer::create_batches` passes on batches of records instead of writing a file, and a `BatchMaker`
//! on the same or another thread converts them to Apache Arrow record batches. Columns, types and nulls match Parquet. Prices
//! follow [`Prices`]; decimals are `DECIMAL128(18, 9)`.
//!
//! # Cost
//!
//! [`Writer::put`] is one virtual call, the construction of the records (56 bytes each for `mbo`), and the encoding of a batch
//! every 8,192 records. Per `mbo` record on a 2-core cloud machine, including the write to memory: DBN 115 ns, mostly in the
//! system; Parquet 110 ns; DBN with Zstandard 170 ns; CSV 490 ns; JSON 920 ns (`examples/formats.rs`). Nothing is allocated per
//! record, and Parquet reuses the buffers of a batch.
//!
//! The same input gives the same bytes: no file contains its creation time.

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
