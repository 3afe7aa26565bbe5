//! Where the files are: on this machine, or behind an address of a cloud.

use std::sync::Arc;

use datafusion::datasource::listing::ListingTableUrl;
use datafusion::execution::runtime_env::RuntimeEnv;

/// Registers the store of an address with the engine, which has the files of this machine by itself.
#[cfg(feature = "cloud")]
pub(crate) fn register(root: &ListingTableUrl, runtime: &Arc<RuntimeEnv>) -> Result<(), String> {
    if root.scheme() == "file" {
        return Ok(());
    }
    let store = tapeworks_cloud::store(root.object_store().as_str())?;
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
