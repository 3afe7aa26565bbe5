//! Objects in S3, Google Cloud Storage and Azure Blob Storage, by calls that block.
//!
//! An address is `s3://BUCKET/KEY`, `gs://BUCKET/KEY` or `az://CONTAINER/KEY`, the key as it is: nothing in it is encoded. Credentials come
//! from the environment, as the clouds' own programs have them.
//!
//! | call | requests |
//! | --- | --- |
//! | [`list`] | one for 1,000 objects |
//! | [`read`], [`head`], [`write`](fn@write), [`remove`] | one |
//! | [`Download`] | one for each 16 MiB, each bound to the version that was listed |
//! | [`upload`] | one up to 8 MiB; above, one for each part, and one that makes the object visible |
//!
//! A request that fails for a while is tried again, up to six times within a minute. The process has one client for each bucket, and one thread
//! for all of them, from the first call on.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

pub use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::path::Path as Key;
use object_store::{
    Error, GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt as _, PutMode, PutOptions,
    PutPayload, RetryConfig, UpdateVersion, WriteMultipart,
};
use tokio::runtime::Runtime;

/// Bytes that one request brings.
const RANGE_BYTES: u64 = 16 << 20;

/// The largest object that is put by one request, and the least part of a larger one.
const PART_BYTES: u64 = 8 << 20;

/// The most parts of an object. S3 takes 10,000.
const MOST_PARTS: u64 = 9_000;

/// Parts under way at the same time.
const PARTS_AT_ONCE: usize = 4;

/// Small requests under way at the same time.
const REQUESTS_AT_ONCE: usize = 16;

/// How often a request is tried again.
const RETRIES: usize = 6;

/// The time from a request to its last repetition.
const RETRY_TIME: Duration = Duration::from_secs(60);

/// The codes of S3 and Azure for a bucket or container that is not there.
const NO_BUCKET: [&str; 2] = ["NoSuchBucket", "ContainerNotFound"];

/// Letters of an answer that are shown.
const MOST_SHOWN: usize = 400;

/// Why a call fails. Each is one line, and names the object or the bucket.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CloudError {
    /// There is no such object.
    #[error("{address}: is not there")]
    NotFound {
        /// The object.
        address: String,
    },
    /// The object has another version than the one wanted.
    #[error("{address}: changed since it was listed")]
    Changed {
        /// The object.
        address: String,
    },
    /// There is an object already.
    #[error("{address}: is there already")]
    Exists {
        /// The object.
        address: String,
    },
    /// The address has no store, or the store refuses or does not answer.
    #[error("{address}: {why}")]
    Failed {
        /// The object or the bucket.
        address: String,
        /// Why, in the store's words.
        why: String,
    },
    /// The file of an upload cannot be read.
    #[error("cannot be uploaded to {address}: {source}")]
    File {
        /// The object.
        address: String,
        /// What the system says.
        source: io::Error,
    },
}

/// An object of a listing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Object {
    /// Its address.
    pub address: String,
    /// In bytes.
    pub size: u64,
    /// What changes when the object does: its entity tag, or the time of its last change where the store has no tags.
    pub version: String,
}

/// Whether a name is an address rather than one of a file.
#[must_use]
pub fn is_address(name: &str) -> bool {
    name.contains("://")
}

/// The store of the bucket or container of an address, with settings and credentials of the environment.
///
/// # Errors
/// There is no bucket, the scheme is unknown, or the environment lacks something.
pub fn store(address: &str) -> Result<Arc<dyn ObjectStore>, String> {
    let bucket = bucket_of(address);
    if bucket.ends_with("://") {
        return Err("has no bucket".to_owned());
    }
    let retry = || RetryConfig { max_retries: RETRIES, retry_timeout: RETRY_TIME, ..RetryConfig::default() };
    let store = match bucket.split_once("://").map(|(scheme, _)| scheme) {
        Some("s3") => {
            let store = AmazonS3Builder::from_env().with_url(bucket).with_retry(retry()).build();
            store.map(|store| Arc::new(store) as Arc<dyn ObjectStore>)
        }
        Some("gs") => {
            let store = GoogleCloudStorageBuilder::from_env().with_url(bucket).with_retry(retry()).build();
            store.map(|store| Arc::new(store) as _)
        }
        Some("az") => {
            let store = MicrosoftAzureBuilder::from_env().with_url(bucket).with_retry(retry()).build();
            store.map(|store| Arc::new(store) as _)
        }
        other => {
            return Err(format!("no store has the scheme {}: s3, gs and az are known", other.unwrap_or("")));
        }
    };
    store.map_err(|error| one_line(&error))
}

/// `s3://bucket` of `s3://bucket/a/b`.
fn bucket_of(address: &str) -> &str {
    let start = address.find("://").map_or(0, |at| at + 3);
    let end = address.get(start..).and_then(|rest| rest.find('/'));
    end.and_then(|end| address.get(..start + end)).unwrap_or(address)
}

/// What all calls share.
struct Shared {
    runtime: Runtime,
    stores: Mutex<BTreeMap<String, Arc<dyn ObjectStore>>>,
}

static SHARED: LazyLock<Result<Shared, String>> = LazyLock::new(|| {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("cloud")
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start a thread: {error}"))?;
    Ok(Shared { runtime, stores: Mutex::default() })
});

/// An object, and what its calls need.
struct Place {
    address: String,
    store: Arc<dyn ObjectStore>,
    key: Key,
    runtime: &'static Runtime,
}

impl Place {
    fn of(address: &str) -> Result<Self, CloudError> {
        let bucket = bucket_of(address);
        let failed = |why: String| CloudError::Failed { address: bucket.to_owned(), why };
        let shared = SHARED.as_ref().map_err(|why| failed(why.clone()))?;
        let key = address.get(bucket.len()..).unwrap_or_default().trim_matches('/');
        let key = Key::parse(key).map_err(|error| CloudError::Failed {
            address: address.to_owned(),
            why: format!("cannot be the key of an object: {error}"),
        })?;
        let mut stores = shared.stores.lock().unwrap_or_else(PoisonError::into_inner);
        let store = match stores.get(bucket) {
            Some(store) => Arc::clone(store),
            None => {
                let made = store(bucket).map_err(failed)?;
                stores.insert(bucket.to_owned(), Arc::clone(&made));
                made
            }
        };
        Ok(Self { address: address.to_owned(), store, key, runtime: &shared.runtime })
    }

    fn run<T>(
        &self,
        what: &str,
        call: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T, CloudError> {
        self.runtime.block_on(call).map_err(|error| self.error(what, &error))
    }

    fn error(&self, what: &str, error: &Error) -> CloudError {
        let address = self.address.clone();
        match error {
            // A bucket that is not there is another matter than an object.
            Error::NotFound { .. } if !NO_BUCKET.iter().any(|code| error.to_string().contains(code)) => {
                CloudError::NotFound { address }
            }
            Error::Precondition { .. } => CloudError::Changed { address },
            Error::AlreadyExists { .. } => CloudError::Exists { address },
            error => CloudError::Failed { address, why: format!("{what}: {}", one_line(error)) },
        }
    }
}

/// An error in one line: the store's own code and message where its answer has them, and the whole otherwise.
fn one_line(error: &dyn std::error::Error) -> String {
    let text = error.to_string();
    let tag = |name: &str| {
        let (_, rest) = text.split_once(&format!("<{name}>"))?;
        rest.split_once(&format!("</{name}>")).map(|(value, _)| value)
    };
    let said = match (tag("Code"), tag("Message")) {
        (Some(code), Some(message)) => format!("{code}: {message}"),
        (Some(code), None) => code.to_owned(),
        _ => text.clone(),
    };
    let line = said.split_whitespace().map(without_user).collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MOST_SHOWN) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
        None => line,
    }
}

/// An address of an endpoint without the name and password in it.
fn without_user(word: &str) -> String {
    let parts = word.split_once("://").and_then(|(scheme, rest)| {
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (host, path) = rest.split_at_checked(end)?;
        Some(format!("{scheme}://{}{path}", host.rsplit_once('@')?.1))
    });
    parts.unwrap_or_else(|| word.to_owned())
}

fn object(bucket: &str, meta: &ObjectMeta) -> Object {
    let changed = || meta.last_modified.timestamp_nanos_opt().unwrap_or_default().to_string();
    // Azure has quotes around the tag in an answer with the object, and none in a listing.
    let tag = meta.e_tag.as_ref().map(|tag| tag.trim_matches('"').to_owned());
    Object {
        address: format!("{bucket}/{}", meta.location),
        size: meta.size,
        version: tag.unwrap_or_else(changed),
    }
}

/// The objects below an address, by name. `a/b` has `a/b/c`, and not `a/bc`.
///
/// # Errors
/// [`CloudError::Failed`].
pub fn list(address: &str) -> Result<Vec<Object>, CloudError> {
    let place = Place::of(address)?;
    let prefix = (!place.key.as_ref().is_empty()).then_some(&place.key);
    let all: Vec<ObjectMeta> = match place.run("cannot be listed", place.store.list(prefix).try_collect()) {
        Err(CloudError::NotFound { .. }) => Vec::new(),
        listed => listed?,
    };
    let mut objects: Vec<Object> = all.iter().map(|meta| object(bucket_of(address), meta)).collect();
    objects.sort_by(|one, other| one.address.cmp(&other.address));
    Ok(objects)
}

/// The object at an address; `None` if there is none.
///
/// # Errors
/// [`CloudError::Failed`].
pub fn head(address: &str) -> Result<Option<Object>, CloudError> {
    Ok(meta(address)?.map(|meta| object(bucket_of(address), &meta)))
}

/// What the store says of the object at an address; `None` if there is none.
fn meta(address: &str) -> Result<Option<ObjectMeta>, CloudError> {
    let place = Place::of(address)?;
    if place.key.as_ref().is_empty() {
        return Ok(None);
    }
    match place.run("cannot be looked at", place.store.head(&place.key)) {
        Ok(meta) => Ok(Some(meta)),
        Err(CloudError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The sizes of objects, in their order; `None` where there is none.
///
/// # Errors
/// [`CloudError::Failed`].
pub fn sizes(addresses: &[String]) -> Result<Vec<Option<u64>>, CloudError> {
    many(addresses, "cannot be looked at", |place| async move {
        place.store.head(&place.key).await.map(|meta| meta.size)
    })
}

/// What objects hold, in their order; `None` where there is none.
///
/// # Errors
/// [`CloudError::Failed`].
pub fn read_all(addresses: &[String]) -> Result<Vec<Option<Bytes>>, CloudError> {
    many(addresses, "cannot be read", |place| async move { place.store.get(&place.key).await?.bytes().await })
}

/// Calls for many objects, some at the same time.
fn many<T, F>(
    addresses: &[String],
    what: &str,
    call: impl Fn(Arc<Place>) -> F,
) -> Result<Vec<Option<T>>, CloudError>
where
    F: Future<Output = object_store::Result<T>>,
{
    let places = addresses.iter().map(|address| Place::of(address).map(Arc::new));
    let places: Vec<Arc<Place>> = places.collect::<Result<_, _>>()?;
    let Some(first) = places.first() else { return Ok(Vec::new()) };
    let calls = futures_util::stream::iter(&places).map(|place| {
        let done = call(Arc::clone(place));
        async move {
            match done.await.map_err(|error| place.error(what, &error)) {
                Ok(value) => Ok(Some(value)),
                Err(CloudError::NotFound { .. }) => Ok(None),
                Err(error) => Err(error),
            }
        }
    });
    first.runtime.block_on(calls.buffered(REQUESTS_AT_ONCE).try_collect())
}

/// What an object holds; `None` if there is none.
///
/// # Errors
/// [`CloudError::Failed`].
pub fn read(address: &str) -> Result<Option<Bytes>, CloudError> {
    Ok(read_all(&[address.to_owned()])?.into_iter().next().flatten())
}

/// A version of an object, as conditions of [`write`](fn@write) take it: two are equal if the object has not changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Version(UpdateVersion);

/// The version of the object at an address; `None` if there is none.
///
/// # Errors
/// [`CloudError::Failed`].
pub fn version(address: &str) -> Result<Option<Version>, CloudError> {
    let version = |meta: ObjectMeta| Version(UpdateVersion { e_tag: meta.e_tag, version: meta.version });
    Ok(meta(address)?.map(version))
}

/// What [`write`](fn@write) does about an object that is there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Before {
    /// It is replaced.
    Any,
    /// There must be none.
    None,
    /// It must be of this version, as an earlier [`write`](fn@write) or [`version`] gave it.
    Version(Version),
}

/// Puts an object whole. Returns its version.
///
/// # Errors
/// [`CloudError::Exists`], [`CloudError::Changed`], [`CloudError::NotFound`], [`CloudError::Failed`].
pub fn write(address: &str, bytes: impl Into<Bytes>, before: Before) -> Result<Version, CloudError> {
    let place = Place::of(address)?;
    let is_new = !matches!(before, Before::Version(_));
    let mode = match before {
        Before::Any => PutMode::Overwrite,
        Before::None => PutMode::Create,
        Before::Version(Version(version)) => PutMode::Update(version),
    };
    let put = place.store.put_opts(
        &place.key,
        PutPayload::from_bytes(bytes.into()),
        PutOptions { mode, ..PutOptions::default() },
    );
    match place.run("cannot be written", put) {
        // Nothing need be there but what holds it.
        Err(CloudError::NotFound { address }) if is_new => Err(CloudError::Failed {
            why: format!("cannot be written: {} is not there", bucket_of(&address)),
            address,
        }),
        written => written.map(|put| Version(put.into())),
    }
}

/// Removes an object, which may be gone.
///
/// # Errors
/// [`CloudError::Failed`].
pub fn remove(address: &str) -> Result<(), CloudError> {
    let place = Place::of(address)?;
    match place.run("cannot be removed", place.store.delete(&place.key)) {
        Err(CloudError::NotFound { .. }) => Ok(()),
        removed => removed,
    }
}

/// Puts a file as an object: whole, or not at all. A larger file goes in parts, which nobody sees before the last request.
///
/// # Errors
/// [`CloudError::File`], [`CloudError::Failed`].
pub fn upload(file: &Path, address: &str) -> Result<(), CloudError> {
    let of_file = |source| CloudError::File { address: address.to_owned(), source };
    let mut file = File::open(file).map_err(of_file)?;
    let size = file.metadata().map_err(of_file)?.len();
    if size <= PART_BYTES {
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(of_file)?;
        return write(address, bytes, Before::Any).map(drop);
    }
    let place = Place::of(address)?;
    let part = PART_BYTES.max(size.div_ceil(MOST_PARTS));
    let begun = place.run("cannot be written", place.store.put_multipart(&place.key))?;
    let mut parts = WriteMultipart::new_with_chunk_size(begun, usize::try_from(part).unwrap_or(usize::MAX));
    let written = loop {
        let mut bytes = Vec::new();
        match file.by_ref().take(part).read_to_end(&mut bytes) {
            Ok(0) => break Ok(()),
            Ok(_) => {}
            Err(error) => break Err(of_file(error)),
        }
        let room = async {
            parts.wait_for_capacity(PARTS_AT_ONCE).await?;
            parts.put(bytes.into());
            Ok(())
        };
        if let Err(error) = place.run("cannot be written", room) {
            break Err(error);
        }
    };
    if let Err(error) = written {
        // Parts that stay are removed by the store's own rules.
        let _left_at_worst = place.runtime.block_on(parts.abort());
        return Err(error);
    }
    place.run("cannot be written", parts.finish()).map(drop)
}

/// An object on its way here, range by range. Each is of the version that was listed.
pub struct Download {
    place: Place,
    object: Object,
    at: u64,
}

impl Download {
    /// Nothing has come yet.
    ///
    /// # Errors
    /// [`CloudError::Failed`].
    pub fn new(object: &Object) -> Result<Self, CloudError> {
        Ok(Self { place: Place::of(&object.address)?, object: object.clone(), at: 0 })
    }

    /// Bytes that have come.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.at
    }

    /// The next bytes, at most up to `end`; `None` if there are none.
    ///
    /// # Errors
    /// [`CloudError::Changed`] if the object has another version, tag or size by now; [`CloudError::NotFound`]; [`CloudError::Failed`].
    pub fn next(&mut self, end: u64) -> Result<Option<Bytes>, CloudError> {
        let end = end.min(self.object.size).min(self.at + RANGE_BYTES);
        if self.at >= end {
            return Ok(None);
        }
        let changed = || CloudError::Changed { address: self.object.address.clone() };
        let options = GetOptions { range: Some(GetRange::Bounded(self.at..end)), ..GetOptions::default() };
        let get = async {
            let got = self.place.store.get_opts(&self.place.key, options).await?;
            let meta = got.meta.clone();
            Ok((meta, got.bytes().await?))
        };
        let (meta, bytes) = self.place.run("cannot be read", get)?;
        let now = object(bucket_of(&self.object.address), &meta);
        if (now.size, &now.version) != (self.object.size, &self.object.version)
            || bytes.len() as u64 != end - self.at
        {
            return Err(changed());
        }
        self.at = end;
        Ok(Some(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_bucket_and_a_key() {
        for (address, bucket) in [
            ("s3://b/a/c", "s3://b"),
            ("s3://b", "s3://b"),
            ("gs://b/", "gs://b"),
            ("az://c/x=1/y", "az://c"),
        ] {
            assert_eq!(bucket_of(address), bucket);
        }
    }

    #[test]
    fn an_unknown_scheme_and_a_key_that_cannot_be_are_refused_by_name() {
        let error = list("ftp://b/a").unwrap_err();
        assert_eq!(error.to_string(), "ftp://b: no store has the scheme ftp: s3, gs and az are known");
        let error = list("s3:///a").unwrap_err();
        assert_eq!(error.to_string(), "s3://: has no bucket");
        let error = read("s3://b/a//c").unwrap_err();
        assert!(error.to_string().starts_with("s3://b/a//c: cannot be the key of an object: "), "{error}");
    }

    #[test]
    fn an_answer_of_a_store_is_shown_by_its_code_and_message_and_anything_else_in_one_line() {
        let shown = |text: &str| one_line(&io::Error::other(text.to_owned()));
        let answer = "<?xml?>\n<Error><Code>NoSuchBucket</Code><Message>It does\nnot exist</Message></Error>";
        assert_eq!(shown(answer), "NoSuchBucket: It does not exist");
        assert_eq!(shown("one\n  two"), "one two");
        let refused = "PUT http://user:pass@word@host:1/a@b/c in 1s, s3://b/d@e (http://u:p@h)";
        assert_eq!(shown(refused), "PUT http://host:1/a@b/c in 1s, s3://b/d@e (http://h)");
        assert_eq!(shown(&"x".repeat(1_000)).chars().count(), MOST_SHOWN + 1);
    }
}
