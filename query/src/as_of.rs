//! The join of each record with the last one of another table at its time.
//!
//! `as_of('trades', 'cmbp_1')` has each trade, and beside it the NBBO at its time: the last record of `cmbp_1` of the same symbol and
//! date whose `ts_recv` is at or before that of the trade; of several with one time the last of the file. A trade before the first such
//! record has nulls there. The days are apart: the first trade of a day has no record of the day before.
//!
//! The columns are those of the first table, then those of the second without `symbol`, `date` and `bucket`. One that both tables have
//! is named `last_` and its name in the second: `last_ts_recv`. A table of bars is joined at `ts_event`, the start of the bar, and is no
//! second table: its record is of a time that is not over.
//!
//! # Memory
//! The needed columns of the second table are held for one date and bucket a thread. `--buckets` of `tapeworks batch` makes them smaller.
//!
//! # Why it is not SQL
//! A window over both tables sorts them, and records with one time lose their order: the NBBO after the first of three trades of one
//! packet would be as good as that after the last.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, RecordBatch, StringArray, UInt64Array,
};
use datafusion::arrow::compute::{cast, concat_batches, take};
use datafusion::arrow::datatypes::{
    DataType, Field, Int64Type, Schema, SchemaRef, TimeUnit, TimestampNanosecondType,
};
use datafusion::catalog::{Session, TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{DFSchema, ScalarValue, plan_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion::prelude::{ParquetReadOptions, SessionContext, ident, lit};
use futures::{StreamExt, TryStreamExt, stream};

use crate::catalogue::{BUCKET, DATE, Part, Table};

const SYMBOL: &str = "symbol";

/// The time by which records are joined: that of their receipt.
const RECEIVED: &str = "ts_recv";

/// The time of a bar: its start.
const EVENT: &str = "ts_event";

/// The function's form, for errors.
const FORM: &str = "as_of('TABLE', 'TABLE')";

/// The function `as_of`.
pub(crate) struct AsOf {
    reader: SessionContext,
    tables: Arc<BTreeMap<String, Table>>,
}

impl AsOf {
    /// `reader` reads the records of a file in their order.
    pub(crate) fn new(reader: SessionContext, tables: Arc<BTreeMap<String, Table>>) -> Self {
        Self { reader, tables }
    }

    fn table(&self, argument: &Expr) -> Result<(&str, &Table)> {
        let Expr::Literal(ScalarValue::Utf8(Some(name)) | ScalarValue::Utf8View(Some(name)), _) = argument
        else {
            return plan_err!("{FORM} takes names of tables in quotes, not {argument}");
        };
        match self.tables.get_key_value(name) {
            Some((name, table)) => Ok((name, table)),
            None => {
                let known: Vec<&str> = self.tables.keys().map(String::as_str).collect();
                plan_err!("{FORM}: there is no table '{name}'; there are {}", known.join(", "))
            }
        }
    }
}

impl std::fmt::Debug for AsOf {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("as_of")
    }
}

impl TableFunctionImpl for AsOf {
    fn call_with_args(&self, arguments: TableFunctionArgs<'_, '_>) -> Result<Arc<dyn TableProvider>> {
        let [left, right] = arguments.exprs() else {
            return plan_err!("{FORM} takes two names, not {}", arguments.exprs().len());
        };
        let ((left_name, left), (right_name, right)) = (self.table(left)?, self.table(right)?);
        for (name, table) in [(left_name, left), (right_name, right)] {
            if table.schema.column_with_name(SYMBOL).is_none() {
                return plan_err!("{FORM}: '{name}' has no column symbol");
            }
        }
        if right.schema.column_with_name(RECEIVED).is_none() {
            return plan_err!(
                "{FORM}: '{right_name}' has no {RECEIVED}: its records are of times that are not over when they begin"
            );
        }
        let left_time = if left.schema.column_with_name(RECEIVED).is_some() { RECEIVED } else { EVENT };
        if left.schema.column_with_name(left_time).is_none() {
            return plan_err!("{FORM}: '{left_name}' has neither {RECEIVED} nor {EVENT}");
        }
        Ok(Arc::new(Joined::new(self.reader.clone(), left, right, left_time)))
    }
}

/// Where a column comes from.
#[derive(Clone, Debug)]
enum Origin {
    Left(String),
    Right(String),
    Date,
    Bucket,
}

/// The files of one date and bucket of both tables.
#[derive(Clone, Debug)]
struct Pair {
    date: String,
    bucket: String,
    left: Vec<String>,
    right: Vec<String>,
}

/// The joined table.
struct Joined {
    reader: SessionContext,
    schema: SchemaRef,
    origins: Vec<Origin>,
    pairs: Vec<Pair>,
    left_files: SchemaRef,
    right_files: SchemaRef,
    left_time: &'static str,
}

impl std::fmt::Debug for Joined {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Joined").field("schema", &self.schema).finish_non_exhaustive()
    }
}

impl Joined {
    fn new(reader: SessionContext, left: &Table, right: &Table, left_time: &'static str) -> Self {
        let (mut fields, mut origins) = (Vec::new(), Vec::new());
        for field in left.schema.fields() {
            origins.push(match field.name().as_str() {
                DATE => Origin::Date,
                BUCKET => Origin::Bucket,
                name => Origin::Left(name.to_owned()),
            });
            fields.push(Arc::clone(field));
        }
        for field in right.schema.fields() {
            let name = field.name().as_str();
            if [SYMBOL, DATE, BUCKET].contains(&name) {
                continue;
            }
            let of_both = left.schema.column_with_name(name).is_some();
            let named = if of_both { format!("last_{name}") } else { name.to_owned() };
            fields.push(Arc::new(Field::new(named, field.data_type().clone(), true)));
            origins.push(Origin::Right(name.to_owned()));
        }
        let of_right: HashMap<(&str, &str), &Part> =
            right.parts.iter().map(|part| ((part.date.as_str(), part.bucket.as_str()), part)).collect();
        let pair = |part: &Part| {
            let right = of_right.get(&(part.date.as_str(), part.bucket.as_str()));
            Pair {
                date: part.date.clone(),
                bucket: part.bucket.clone(),
                left: part.files.clone(),
                right: right.map(|part| part.files.clone()).unwrap_or_default(),
            }
        };
        let pairs = left.parts.iter().map(pair).collect();
        Self {
            reader,
            schema: Arc::new(Schema::new(fields)),
            origins,
            pairs,
            left_files: Arc::clone(&left.files_schema),
            right_files: Arc::clone(&right.files_schema),
            left_time,
        }
    }

    /// The pairs that filters over date and bucket leave.
    fn wanted(&self, session: &dyn Session, filters: &[Expr]) -> Result<Vec<Pair>> {
        let of_pairs = |value: fn(&Pair) -> &str| -> ArrayRef {
            Arc::new(StringArray::from_iter_values(self.pairs.iter().map(value)))
        };
        let dates = cast(&of_pairs(|pair| &pair.date), &DataType::Date32)?;
        let columns = vec![dates, of_pairs(|pair| &pair.bucket)];
        let schema = Arc::new(Schema::new(vec![
            Field::new(DATE, DataType::Date32, true),
            Field::new(BUCKET, DataType::Utf8, true),
        ]));
        let folders = RecordBatch::try_new(Arc::clone(&schema), columns)?;
        let of_folders = DFSchema::try_from(schema)?;
        let mut wanted = vec![true; self.pairs.len()];
        for filter in filters {
            if filter.is_volatile()
                || !filter.column_refs().iter().all(|column| [DATE, BUCKET].contains(&column.name.as_str()))
            {
                continue;
            }
            // Names of the joined table are not those of the folders: the filter's columns are its own.
            let filter = unqualified(filter)?;
            let filter = session.create_physical_expr(filter, &of_folders)?;
            let kept = filter.evaluate(&folders)?.into_array(self.pairs.len())?;
            let Some(kept) = kept.as_any().downcast_ref::<BooleanArray>() else { continue };
            for (wanted, kept) in wanted.iter_mut().zip(kept) {
                *wanted &= kept == Some(true);
            }
        }
        Ok(self
            .pairs
            .iter()
            .zip(wanted)
            .filter(|(_, wanted)| *wanted)
            .map(|(pair, _)| pair.clone())
            .collect())
    }
}

/// The same expression, whose columns have no table's name.
fn unqualified(filter: &Expr) -> Result<Expr> {
    use datafusion::common::Column;
    use datafusion::common::tree_node::{Transformed, TreeNode};

    let of = |expression: Expr| {
        Ok(match expression {
            Expr::Column(column) => Transformed::yes(Expr::Column(Column::new_unqualified(column.name))),
            other => Transformed::no(other),
        })
    };
    Ok(filter.clone().transform(of)?.data)
}

#[async_trait]
impl TableProvider for Joined {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let (schema, origins) = match projection {
            None => (Arc::clone(&self.schema), self.origins.clone()),
            Some(places) => {
                let origins = places.iter().filter_map(|place| self.origins.get(*place).cloned());
                (Arc::new(self.schema.project(places)?), origins.collect())
            }
        };
        let pairs = self.wanted(session, filters)?;
        let threads = session.config().target_partitions().clamp(1, pairs.len().max(1));
        let mut shares = vec![Vec::new(); threads];
        for (index, pair) in pairs.into_iter().enumerate() {
            if let Some(share) = shares.get_mut(index % threads) {
                share.push(pair);
            }
        }
        let columns = |time: &str, name: fn(&Origin) -> Option<&String>| {
            let mut columns = vec![SYMBOL.to_owned(), time.to_owned()];
            for name in origins.iter().filter_map(name) {
                if !columns.contains(name) {
                    columns.push(name.clone());
                }
            }
            columns
        };
        let plan = Arc::new(Plan {
            reader: self.reader.clone(),
            schema: Arc::clone(&schema),
            left: Side {
                files: Arc::clone(&self.left_files),
                columns: columns(self.left_time, |origin| match origin {
                    Origin::Left(name) => Some(name),
                    _ => None,
                }),
            },
            right: Side {
                files: Arc::clone(&self.right_files),
                columns: columns(RECEIVED, |origin| match origin {
                    Origin::Right(name) => Some(name),
                    _ => None,
                }),
            },
            origins,
            left_time: self.left_time,
        });
        let streams = shares
            .into_iter()
            .map(|pairs| Arc::new(Share { plan: Arc::clone(&plan), pairs }) as Arc<dyn PartitionStream>)
            .collect();
        Ok(Arc::new(StreamingTableExec::try_new(schema, streams, None, None, false, limit)?))
    }
}

/// What is made of each pair.
struct Plan {
    reader: SessionContext,
    schema: SchemaRef,
    origins: Vec<Origin>,
    left: Side,
    right: Side,
    left_time: &'static str,
}

/// What is read of one table.
struct Side {
    /// The schema of its files.
    files: SchemaRef,
    columns: Vec<String>,
}

impl Plan {
    /// The records of some files, in their order.
    async fn records(&self, files: Vec<String>, side: &Side) -> Result<SendableRecordBatchStream> {
        // Without a schema, so that a file which is gone is an error: with one the engine leaves it out.
        let frame = self.reader.read_parquet(files, ParquetReadOptions::default()).await?;
        let known = frame.schema();
        let of_column = |name: &String| {
            if known.has_column_with_unqualified_name(name) {
                return Ok(ident(name));
            }
            // The files of an older batch may lack columns of the table.
            let field = side.files.field_with_name(name)?;
            Ok(lit(ScalarValue::try_from(field.data_type())?).alias(name))
        };
        let columns = side.columns.iter().map(of_column).collect::<Result<Vec<_>>>()?;
        frame.select(columns)?.execute_stream().await
    }

    /// Reads the second table's records of a pair.
    async fn right(&self, files: Vec<String>, memory: MemoryReservation) -> Result<Option<Right>> {
        // Of a query without columns of the second table, nothing of it is read.
        if files.is_empty() || !self.origins.iter().any(|origin| matches!(origin, Origin::Right(_))) {
            return Ok(None);
        }
        let mut stream = self.records(files, &self.right).await?;
        let all = stream.schema();
        let is_shown = |name: &str| {
            self.origins.iter().any(|origin| matches!(origin, Origin::Right(shown) if shown == name))
        };
        let shown: Vec<usize> =
            (0..all.fields().len()).filter(|place| is_shown(all.field(*place).name())).collect();
        let schema = Arc::new(all.project(&shown)?);
        let mut batches = Vec::new();
        let (mut row, mut bytes) = (0u64, 0);
        let mut of_symbols: HashMap<String, Vec<(i64, u64)>> = HashMap::new();
        while let Some(batch) = stream.try_next().await? {
            let (symbols, times) = keys(&batch, RECEIVED)?;
            let batch = batch.project(&shown)?;
            memory.try_grow(batch.get_array_memory_size() + batch.num_rows() * size_of::<(i64, u64)>())?;
            bytes += batch.get_array_memory_size();
            for (symbol, time) in symbols.iter().zip(times.iter()) {
                if let (Some(symbol), Some(time)) = (symbol, time) {
                    match of_symbols.get_mut(symbol) {
                        Some(rows) => rows.push((time, row)),
                        None => _ = of_symbols.insert(symbol.to_owned(), vec![(time, row)]),
                    }
                }
                row += 1;
            }
            batches.push(batch);
        }
        // They are there twice while they become one.
        memory.try_grow(bytes)?;
        let records = concat_batches(&schema, &batches)?;
        drop(batches);
        memory.shrink(bytes);
        // What waited behind a gap came later. Those of one time stay in the file's order.
        of_symbols.values_mut().for_each(|rows| rows.sort_unstable());
        Ok(Some(Right { records, of_symbols, _memory: memory }))
    }

    /// A batch of the first table with what belongs to each record.
    fn join(&self, left: &RecordBatch, right: Option<&Right>, pair: &Pair) -> Result<RecordBatch> {
        let rows = left.num_rows();
        let places = match right {
            None => UInt64Array::new_null(rows),
            Some(right) => {
                let (symbols, times) = keys(left, self.left_time)?;
                let of_row = |(symbol, time): (Option<&str>, Option<i64>)| right.at(symbol?, time?);
                symbols.iter().zip(times.iter()).map(of_row).collect()
            }
        };
        let mut columns = Vec::with_capacity(self.origins.len());
        for (origin, field) in self.origins.iter().zip(self.schema.fields()) {
            let column = match origin {
                Origin::Left(name) => Arc::clone(column(left, name)?),
                Origin::Right(name) => match right {
                    Some(right) => take(column(&right.records, name)?, &places, None)?,
                    None => datafusion::arrow::array::new_null_array(field.data_type(), rows),
                },
                Origin::Date => constant(&pair.date, rows),
                Origin::Bucket => constant(&pair.bucket, rows),
            };
            columns.push(if column.data_type() == field.data_type() {
                column
            } else {
                cast(&column, field.data_type())?
            });
        }
        let options = datafusion::arrow::record_batch::RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?)
    }
}

fn constant(text: &str, rows: usize) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(std::iter::repeat_n(text, rows)))
}

fn column<'b>(batch: &'b RecordBatch, name: &str) -> Result<&'b ArrayRef> {
    match batch.column_by_name(name) {
        Some(column) => Ok(column),
        None => Err(DataFusionError::Execution(format!("a file has no column {name}"))),
    }
}

/// The symbols and times of a batch's records.
fn keys(batch: &RecordBatch, time: &str) -> Result<(StringArray, datafusion::arrow::array::Int64Array)> {
    let symbols = cast(column(batch, SYMBOL)?, &DataType::Utf8)?;
    let times = column(batch, time)?;
    let nanoseconds = DataType::Timestamp(TimeUnit::Nanosecond, None);
    let times =
        cast(times, &nanoseconds)?.as_primitive::<TimestampNanosecondType>().reinterpret_cast::<Int64Type>();
    Ok((symbols.as_string::<i32>().clone(), times))
}

/// The second table's records of one date and bucket.
struct Right {
    records: RecordBatch,
    /// The times and rows of each symbol, sorted.
    of_symbols: HashMap<String, Vec<(i64, u64)>>,
    _memory: MemoryReservation,
}

impl Right {
    /// The row of the last record of a symbol at a time.
    fn at(&self, symbol: &str, time: i64) -> Option<u64> {
        let rows = self.of_symbols.get(symbol)?;
        let behind = rows.partition_point(|(received, _)| *received <= time);
        Some(rows.get(behind.checked_sub(1)?)?.1)
    }
}

/// The pairs that one thread joins, one behind the other.
struct Share {
    plan: Arc<Plan>,
    pairs: Vec<Pair>,
}

impl std::fmt::Debug for Share {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Share").field("pairs", &self.pairs.len()).finish_non_exhaustive()
    }
}

impl PartitionStream for Share {
    fn schema(&self) -> &SchemaRef {
        &self.plan.schema
    }

    fn execute(&self, context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let plan = Arc::clone(&self.plan);
        let of_pair = move |pair: Pair| {
            let (plan, context) = (Arc::clone(&plan), Arc::clone(&context));
            async move {
                let memory = MemoryConsumer::new("as_of").register(context.memory_pool());
                let right = plan.right(pair.right.clone(), memory).await?;
                let left = plan.records(pair.left.clone(), &plan.left).await?;
                Ok::<_, DataFusionError>(left.map(move |batch| plan.join(&batch?, right.as_ref(), &pair)))
            }
        };
        let batches = stream::iter(self.pairs.clone()).then(of_pair).try_flatten();
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.plan.schema), batches))
    }
}
