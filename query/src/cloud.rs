//! Where the files are: on this machine, or behind an address of a cloud.

use std::sync::Arc;

use datafusion::datasource::listing::ListingTableUrl;
use datafusion::execution::runtime_env::RuntimeEnv;

/// Registers the store of an address with the engine, which has the files of this machine by itself.
#[cfg(feature = "cloud")]
pub(crate) fn register(root: &ListingTableUrl, runtime: &Arc<RuntimeEnv>) -> Result<(), String> {
    use object_store::aws::AmazonS3Builder;
    use object_store::azure::MicrosoftAzureBuilder;
    use object_store::gcp::GoogleCloudStorageBuilder;

    let address = root.object_store();
    let address = address.as_str();
    let store: Result<Arc<dyn object_store::ObjectStore>, object_store::Error> = match root.scheme() {
        "file" => return Ok(()),
        "s3" => AmazonS3Builder::from_env().with_url(address).build().map(|store| Arc::new(store) as _),
        "gs" => {
            GoogleCloudStorageBuilder::from_env().with_url(address).build().map(|store| Arc::new(store) as _)
        }
        "az" => MicrosoftAzureBuilder::from_env().with_url(address).build().map(|store| Arc::new(store) as _),
        other => return Err(format!("no store has the scheme {other}: s3, gs and az are known")),
    };
    let store = store.map_err(|error| error.to_string())?;
    let _before = runtime.register_object_store(root.object_store().as_ref(), store);
    Ok(())
}

/// Refuses what only the feature `cloud` reads.
#[cfg(not(feature = "cloud"))]
pub(crate) fn register(root: &ListingTableUrl, _runtime: &Arc<RuntimeEnv>) -> Result<(), String> {
    match root.scheme() {
        "file" => Ok(()),
        other => Err(format!("{other} addresses are read by a build with the feature `cloud`")),
    }
}
