//! State machines.
pub use tapeworks_dispatch_search as search;
