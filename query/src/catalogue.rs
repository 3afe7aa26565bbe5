//! The tables of a folder.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

use datafusion::arrow::compute::kernels::cast_utils::Parser;
use datafusion::arrow::datatypes::{DataType, Date32Type, Field, Schema, SchemaRef};
use datafusion::catalog::TableProvider;
use datafusion::common::TableReference;
use datafusion::dataframe::DataFrame;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::{ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl};
use datafusion::error::DataFusionError;
use datafusion::execution::context::SQLOptions;
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::object_store::ObjectStoreExt;
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use futures::TryStreamExt;
use serde::Deserialize;

use crate::QueryError;
use crate::as_of::AsOf;

/// The column of the day, of a table's folders.
pub(crate) const DATE: &str = "date";

/// The column of the part of the symbols, of a table's folders.
pub(crate) const BUCKET: &str = "bucket";

/// How much of the machine a query may take.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Threads; as many as the machine has processors unless given.
    pub threads: Option<NonZeroUsize>,
    /// Bytes of memory for sorts, groups and joins. Sorts and groups beyond it go to temporary files; what cannot is refused.
    /// No bound unless given.
    pub memory_bytes: Option<usize>,
}

/// The files of one date and bucket of a table.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) date: String,
    pub(crate) bucket: String,
    /// Their addresses, sorted by name.
    pub(crate) files: Vec<String>,
}

/// A schema's files.
#[derive(Debug)]
pub(crate) struct Table {
    /// Sorted by date and bucket.
    pub(crate) parts: Vec<Part>,
    /// Columns of the files and folders.
    pub(crate) schema: SchemaRef,
    /// Columns of the files.
    pub(crate) files_schema: SchemaRef,
}

/// What a folder holds, as tables.
pub struct Catalogue {
    context: SessionContext,
    tables: Arc<BTreeMap<String, Table>>,
    warnings: Vec<String>,
}

impl Catalogue {
    /// Opens the folder `place`, or with the feature `cloud` an address such as `s3://bucket/days` (credentials come from the environment).
    ///
    /// # Errors
    /// The place cannot be read, or has no Parquet files of `tapeworks batch`.
    pub async fn open(place: &str, options: &Options) -> Result<Self, QueryError> {
        let threads = options.threads.map(NonZeroUsize::get);
        let runtime = runtime(options)?;
        let context = SessionContext::new_with_config_rt(config(threads), Arc::clone(&runtime));
        let of_place = |why: String| QueryError::Place { place: place.to_owned(), why };
        let root = root(place).map_err(of_place)?;
        crate::cloud::register(&root, &runtime).map_err(of_place)?;
        let store = runtime.object_store(root.object_store()).map_err(|error| of_place(error.to_string()))?;
        let mut found: BTreeMap<String, BTreeMap<(String, String), Vec<String>>> = BTreeMap::new();
        let mut manifest = None;
        let (mut others, mut warnings) = (0usize, Vec::new());
        let mut listing = store.list(Some(root.prefix()));
        while let Some(object) = listing.try_next().await.map_err(|error| of_place(error.to_string()))? {
            let Some(below) = object.location.prefix_match(root.prefix()) else { continue };
            let below: Vec<String> = below.map(|part| part.as_ref().to_owned()).collect();
            if below == ["manifest.json"] {
                manifest = Some(object.location.clone());
            }
            let [schema, date, bucket, name] = below.as_slice() else { continue };
            let (Some(schema), Some(date), Some(bucket)) =
                (value(schema, "schema"), value(date, DATE), value(bucket, BUCKET))
            else {
                continue;
            };
            if !name.ends_with(".parquet") {
                others += 1;
                continue;
            }
            if !is_date(date) {
                // The engine would not leave it out.
                return Err(of_place(format!("{}: '{date}' is no date", below.join("/"))));
            }
            if object.size == 0 {
                // The engine leaves them out.
                warnings.push(format!("{}: the file is empty", below.join("/")));
                continue;
            }
            let mut address = root.get_url().clone();
            if let Ok(mut segments) = address.path_segments_mut() {
                segments.pop_if_empty().extend(&below);
            }
            let address = address.to_string();
            let parts = found.entry(schema.to_owned()).or_default();
            parts.entry((date.to_owned(), bucket.to_owned())).or_default().push(address);
        }
        if others != 0 {
            warnings.push(format!("{others} files are no Parquet files, and are left out"));
        }
        if found.is_empty() {
            return Err(QueryError::NoTables { place: place.to_owned() });
        }
        match manifest {
            None => warnings.push(
                "there is no manifest.json: a run of `tapeworks batch` is under way, or was stopped".into(),
            ),
            Some(location) => {
                let read = async { store.get(&location).await?.bytes().await };
                let bytes = read.await.map_err(|error| of_place(error.to_string()))?;
                match serde_json::from_slice::<Manifest>(&bytes) {
                    Ok(manifest) => warnings.extend(manifest.warnings()),
                    Err(error) => warnings.push(format!("manifest.json: {error}")),
                }
            }
        }
        let mut tables = BTreeMap::new();
        for (schema, parts) in found {
            let name = schema.replace('-', "_");
            if tables.contains_key(&name) {
                return Err(of_place(format!(
                    "schema={schema}: there is another folder whose table is {name}"
                )));
            }
            let parts: Vec<Part> = parts
                .into_iter()
                .map(|((date, bucket), mut files)| {
                    files.sort_unstable();
                    Part { date, bucket, files }
                })
                .collect();
            let folder = root
                .get_url()
                .join(&format!("schema={schema}/"))
                .map_err(|error| of_place(error.to_string()))?;
            let (provider, files_schema) = match listing_table(&context, folder).await {
                Ok(listed) => listed,
                Err(error) => return Err(unreadable(&context, &parts).await.unwrap_or(error.into())),
            };
            let schema = provider.schema();
            // The name as it is: not one to take apart at its points.
            context.register_table(TableReference::bare(name.as_str()), provider)?;
            tables.insert(name, Table { parts, schema, files_schema });
        }
        let tables = Arc::new(tables);
        // One partition: the records of a file come in their order.
        let in_order = SessionContext::new_with_config_rt(config(Some(1)), runtime);
        context.register_udtf("as_of", Arc::new(AsOf::new(in_order, Arc::clone(&tables))));
        Ok(Self { context, tables, warnings })
    }

    /// What a user should know of the files: no manifest, tasks that failed, missing messages.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The tables' names, with their columns and types.
    pub fn tables(&self) -> impl Iterator<Item = (&str, &SchemaRef)> {
        self.tables.iter().map(|(name, table)| (name.as_str(), &table.schema))
    }

    /// Files of the table `name`; none if there is no such table.
    #[must_use]
    pub fn files(&self, name: &str) -> usize {
        let parts = self.tables.get(name).map_or(&[][..], |table| &table.parts);
        parts.iter().map(|part| part.files.len()).sum()
    }

    /// Plans one statement that reads.
    ///
    /// # Errors
    /// The statement is not one, names what is not there, or would change something.
    pub async fn sql(&self, statement: &str) -> Result<DataFrame, QueryError> {
        let reads =
            SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
        Ok(self.context.sql_with_options(statement, reads).await?)
    }
}

fn config(threads: Option<usize>) -> SessionConfig {
    let mut config = SessionConfig::new().with_information_schema(true);
    if let Some(threads) = threads {
        config = config.with_target_partitions(threads);
    }
    let settings = config.options_mut();
    settings.execution.parquet.pushdown_filters = true;
    settings.execution.parquet.reorder_filters = true;
    config
}

fn runtime(options: &Options) -> Result<Arc<RuntimeEnv>, QueryError> {
    let mut builder = RuntimeEnvBuilder::new();
    if let Some(bytes) = options.memory_bytes {
        builder = builder.with_memory_pool(Arc::new(FairSpillPool::new(bytes)));
    }
    Ok(builder.build_arc()?)
}

/// The address of a place: a folder of this machine, or an address with a scheme.
fn root(place: &str) -> Result<ListingTableUrl, String> {
    if !place.contains("://") {
        let path = std::path::Path::new(place);
        match std::fs::metadata(path) {
            Err(error) => return Err(error.to_string()),
            Ok(metadata) if !metadata.is_dir() => return Err("this is not a folder".into()),
            Ok(_) => {}
        }
        let path = path.canonicalize().map_err(|error| error.to_string())?;
        // Not as a pattern: a folder's name may have `*`.
        let url = url::Url::from_directory_path(&path)
            .map_err(|()| "the path is not one of a file system".to_owned())?;
        return ListingTableUrl::try_new(url, None).map_err(|error| error.to_string());
    }
    let folder = if place.ends_with('/') { place.to_owned() } else { format!("{place}/") };
    ListingTableUrl::parse(folder).map_err(|error| error.to_string())
}

/// The value of a folder's name: `date=2025-11-14` has `2025-11-14`.
fn value<'n>(name: &'n str, key: &str) -> Option<&'n str> {
    name.strip_prefix(key)?.strip_prefix('=').filter(|value| !value.is_empty())
}

/// Whether a text is a date of the calendar, YYYY-MM-DD.
fn is_date(text: &str) -> bool {
    text.len() == 10 && Date32Type::parse(text).is_some()
}

async fn listing_table(
    context: &SessionContext,
    folder: url::Url,
) -> Result<(Arc<dyn TableProvider>, SchemaRef), DataFusionError> {
    let folder = ListingTableUrl::try_new(folder, None)?;
    let columns = vec![(DATE.to_owned(), DataType::Date32), (BUCKET.to_owned(), DataType::Utf8)];
    let options = ListingOptions::new(Arc::new(ParquetFormat::new()))
        .with_file_extension(".parquet")
        .with_table_partition_cols(columns);
    let config = ListingTableConfig::new(folder).with_listing_options(options);
    let mut config = config.infer_schema(&context.state()).await?;
    let files = config.file_schema.take().map_or_else(Schema::empty, |schema| schema.as_ref().clone());
    // A file that lacks a column has nulls there, also if the others cannot have one.
    let fields: Vec<Field> =
        files.fields().iter().map(|field| field.as_ref().clone().with_nullable(true)).collect();
    let files = Arc::new(Schema::new(fields));
    Ok((Arc::new(ListingTable::try_new(config.with_schema(Arc::clone(&files)))?), files))
}

/// The first file that cannot be opened, or whose columns have other types than those before.
async fn unreadable(context: &SessionContext, parts: &[Part]) -> Option<QueryError> {
    let mut all = Schema::empty();
    for file in parts.iter().flat_map(|part| &part.files) {
        let read = context.read_parquet(file.as_str(), ParquetReadOptions::default()).await;
        let merged = match read {
            Ok(frame) => Schema::try_merge([all, frame.schema().as_arrow().clone()]).map_err(Into::into),
            Err(error) => Err(error),
        };
        match merged {
            Ok(merged) => all = merged,
            Err(error) => {
                let place = file.strip_prefix("file://").unwrap_or(file).to_owned();
                return Some(QueryError::Place { place, why: QueryError::from(error).to_string() });
            }
        }
    }
    None
}

/// What is read of the manifest.
#[derive(Deserialize)]
struct Manifest {
    #[serde(default)]
    failed_inputs: Vec<serde_json::Value>,
    #[serde(default)]
    failed_tasks: Vec<serde_json::Value>,
    #[serde(default)]
    tasks: Vec<Task>,
}

#[derive(Deserialize)]
struct Task {
    #[serde(default)]
    missing_messages: u64,
}

impl Manifest {
    fn warnings(&self) -> Vec<String> {
        let missing = self.tasks.iter().fold(0u64, |sum, task| sum.saturating_add(task.missing_messages));
        let all = [
            (self.failed_inputs.len() as u64, "files could not be used"),
            (self.failed_tasks.len() as u64, "tasks have no result"),
            (missing, "messages are missing"),
        ];
        let those = all.iter().filter(|(count, _)| *count != 0);
        those.map(|(count, of)| format!("{count} {of}: manifest.json has them")).collect()
    }
}
