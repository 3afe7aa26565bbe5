//! The native part of the Python package `tapeworks`.
//!
//! What takes long releases the interpreter's lock and looks for signals ten times a second.

use std::collections::BTreeMap;

use pyo3::prelude::*;

mod batch;
mod errors;
mod feed;
mod files;
mod live;
mod options;
mod reader;
mod record;
mod stream;
mod streamed;

/// `tapeworks._native`.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("SCHEMAS", tapeworks_store::Schema::ALL.map(tapeworks_store::Schema::as_str).to_vec())?;
    module.add("DEMO_KEY", tapeworks_outputs::subscriber::DEMO_KEY)?;
    let venues = tapeworks_market::venue::FEEDS.map(|feed| (feed.publisher.0, feed.venue.mic));
    module.add("VENUES", BTreeMap::from(venues))?;
    module.add_class::<reader::Reader>()?;
    module.add_class::<record::Record>()?;
    module.add_class::<feed::Feed>()?;
    module.add_class::<feed::Book>()?;
    module.add_class::<feed::Level>()?;
    module.add_class::<feed::Nbbo>()?;
    module.add_class::<feed::BestSide>()?;
    module.add_class::<live::Live>()?;
    module.add_class::<files::Dump>()?;
    module.add_function(wrap_pyfunction!(options::instant, module)?)?;
    module.add_function(wrap_pyfunction!(record::record, module)?)?;
    module.add_function(wrap_pyfunction!(streamed::decode_stream, module)?)?;
    module.add_function(wrap_pyfunction!(batch::run_batch, module)?)?;
    module.add_function(wrap_pyfunction!(batch::batch_task, module)?)?;
    module.add_function(wrap_pyfunction!(files::dump, module)?)?;
    module.add_function(wrap_pyfunction!(files::stats, module)?)?;
    module.add_function(wrap_pyfunction!(files::study, module)?)?;
    module.add_function(wrap_pyfunction!(files::generate, module)?)
}
