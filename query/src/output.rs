//! Answers as text and as files.

use std::io::{self, BufWriter, Write};
use std::path::Path;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::csv;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::json::LineDelimitedWriter;
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::dataframe::DataFrame;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::basic::Compression;
use datafusion::parquet::file::properties::WriterProperties;
use futures::TryStreamExt;
use tapeworks_capture::new_file::{Handle, NewFile};

use crate::QueryError;
use crate::arguments::Format;

impl Format {
    const fn name(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Csv => "CSV",
            Self::Json => "JSON",
            Self::Parquet => "Parquet",
        }
    }

    /// The format that the end of a file's name stands for.
    #[must_use]
    pub fn of_name(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()? {
            "csv" => Some(Self::Csv),
            "json" | "jsonl" | "ndjson" => Some(Self::Json),
            "parquet" => Some(Self::Parquet),
            "txt" => Some(Self::Table),
            _ => None,
        }
    }
}

fn output(path: &Path, why: &dyn std::fmt::Display) -> QueryError {
    QueryError::Output { path: path.to_owned(), why: why.to_string() }
}

/// Writes the answer of a query to a [new file](tapeworks_capture::new_file), record by record, and returns the number of rows. The file has
/// its name when it is whole; one that exists is replaced only with `overwrite`.
///
/// # Errors
/// The file exists, the query fails while it runs, the file cannot be written, or the format has no form for a type.
pub async fn write_file(
    answer: DataFrame,
    path: &Path,
    format: Format,
    most_rows: Option<usize>,
    overwrite: bool,
) -> Result<u64, QueryError> {
    let new = NewFile::create(path, overwrite)?;
    let stream = answer.execute_stream().await?;
    let file = new.handle().map_err(|error| output(path, &error))?;
    let of_file = |error: io::Error| output(path, &error);
    let rows = match format {
        Format::Parquet => parquet(stream, file, path).await?,
        other => {
            let mut writer = BufWriter::new(file);
            let rows = text(stream, &mut writer, other, most_rows, &of_file).await?;
            writer.into_inner().map_err(|error| of_file(error.into_error()))?;
            rows
        }
    };
    new.finish()?;
    Ok(rows)
}

/// Writes the answer of a query as text, and returns the number of rows. A table has `most_rows` at most, and says if there are more.
///
/// # Errors
/// The query fails while it runs, the writer fails, or the format is one of files.
pub async fn write_text(
    answer: DataFrame,
    writer: &mut (dyn Write + Send),
    format: Format,
    most_rows: Option<usize>,
) -> Result<u64, QueryError> {
    text(answer.execute_stream().await?, writer, format, most_rows, &QueryError::Stdout).await
}

async fn text(
    mut stream: SendableRecordBatchStream,
    writer: &mut (dyn Write + Send),
    format: Format,
    most_rows: Option<usize>,
    of_writer: &(dyn Fn(io::Error) -> QueryError + Sync),
) -> Result<u64, QueryError> {
    let schema = stream.schema();
    let mut rows = 0u64;
    match format {
        Format::Table => return table(stream, &schema, writer, most_rows, of_writer).await,
        Format::Csv => {
            let mut header = true;
            let mut put = |batch: &RecordBatch| {
                let builder = csv::WriterBuilder::new().with_header(std::mem::take(&mut header));
                let mut part = builder.build(Vec::new());
                part.write(batch).map(|()| part.into_inner())
            };
            // An answer without rows has its names all the same.
            let names = put(&RecordBatch::new_empty(schema)).map_err(|error| of_format(format, &error))?;
            writer.write_all(&names).map_err(of_writer)?;
            while let Some(batch) = stream.try_next().await? {
                rows += batch.num_rows() as u64;
                let part = put(&batch).map_err(|error| of_format(format, &error))?;
                writer.write_all(&part).map_err(of_writer)?;
            }
        }
        Format::Json => {
            while let Some(batch) = stream.try_next().await? {
                rows += batch.num_rows() as u64;
                let mut part = LineDelimitedWriter::new(Vec::new());
                part.write(&batch).and_then(|()| part.finish()).map_err(|error| of_format(format, &error))?;
                writer.write_all(&part.into_inner()).map_err(of_writer)?;
            }
        }
        Format::Parquet => return Err(of_format(format, &"it is a file: name one with --out")),
    }
    writer.flush().map_err(of_writer)?;
    Ok(rows)
}

fn of_format(format: Format, why: &dyn std::fmt::Display) -> QueryError {
    QueryError::Format { format: format.name(), why: why.to_string() }
}

async fn table(
    mut stream: SendableRecordBatchStream,
    schema: &SchemaRef,
    writer: &mut (dyn Write + Send),
    most_rows: Option<usize>,
    of_writer: &(dyn Fn(io::Error) -> QueryError + Sync),
) -> Result<u64, QueryError> {
    let most = most_rows.unwrap_or(usize::MAX);
    let (mut shown, mut rows, mut has_more) =
        (vec![RecordBatch::new_empty(SchemaRef::clone(schema))], 0usize, false);
    while let Some(batch) = stream.try_next().await? {
        let room = most - rows;
        has_more = batch.num_rows() > room;
        let batch = batch.slice(0, room.min(batch.num_rows()));
        rows += batch.num_rows();
        shown.push(batch);
        if has_more {
            break;
        }
    }
    let table = pretty_format_batches(&shown).map_err(|error| of_format(Format::Table, &error))?;
    writeln!(writer, "{table}").map_err(of_writer)?;
    let more = if has_more { ", and there are more: --rows 0 shows all" } else { "" };
    writeln!(writer, "{rows} {}{more}", if rows == 1 { "row" } else { "rows" }).map_err(of_writer)?;
    writer.flush().map_err(of_writer)?;
    Ok(rows as u64)
}

async fn parquet(
    mut stream: SendableRecordBatchStream,
    file: Handle,
    path: &Path,
) -> Result<u64, QueryError> {
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let mut writer = ArrowWriter::try_new(file, stream.schema(), Some(properties))
        .map_err(|error| output(path, &error))?;
    let mut rows = 0;
    while let Some(batch) = stream.try_next().await? {
        rows += batch.num_rows() as u64;
        writer.write(&batch).map_err(|error| output(path, &error))?;
    }
    writer.close().map_err(|error| output(path, &error))?;
    Ok(rows)
}
