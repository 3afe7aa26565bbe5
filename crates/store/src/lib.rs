//! Normalised market data in DBN, Parquet, CSV and JSON files.

mod columns;
mod encode;
mod error;
mod format;
mod options;
mod records;
mod rows;
mod schema;
mod shape;
mod summary;
mod target;
mod writer;

pub use error::StoreError;
pub use format::Format;
pub use options::{Compression, Options, Prices};
pub use schema::Schema;
pub use summary::{Skip, Summary};
pub use writer::Writer;
