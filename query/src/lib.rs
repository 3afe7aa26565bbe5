//! SQL over the files that `tapeworks batch` makes: a table for each schema, and a join of each record with the last one of another
//! table at its time.
//!
//! ```no_run
//! # async fn example() -> Result<(), tapeworks_query::QueryError> {
//! use tapeworks_query::{Catalogue, Options};
//!
//! let catalogue = Catalogue::open("days", &Options::default()).await?;
//! let trades = catalogue.sql("SELECT symbol, sum(size) FROM trades GROUP BY symbol").await?;
//! for batch in trades.collect().await? {
//!     println!("{} rows", batch.num_rows());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Tables
//! [`Catalogue`] finds the folders `schema=NAME/date=DATE/bucket=NUMBER` and names a table after each schema, with `_` for `-`:
//! `trades`, `mbo`, `cmbp_1`. A table has the columns of the files, `date` (a date) and `bucket` (text). Only files that a query needs
//! are read: by date and bucket, by the columns it names, and by the least and greatest values that Parquet keeps of a row group.
//!
//! # As-of joins
//! `as_of('trades', 'cmbp_1')` is a table: see [`as_of`].
//!
//! The engine is Apache DataFusion. Statements that would change a table or a file are refused.

pub mod arguments;
pub mod as_of;
mod catalogue;
mod cloud;
mod error;
pub mod output;
#[doc(hidden)]
pub mod program;

pub use catalogue::{Catalogue, Options};
pub use error::QueryError;
