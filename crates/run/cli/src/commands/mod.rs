//! The commands. Each reads its arguments, calls the library that does the work, and shows the result.

pub(crate) mod bars;
pub(crate) mod batch;
pub(crate) mod compare;
pub(crate) mod demo;
pub(crate) mod dump;
pub(crate) mod exchange;
pub(crate) mod fix;
pub(crate) mod flow;
pub(crate) mod gateway;
pub(crate) mod hash;
pub(crate) mod journal;
#[cfg(feature = "lab")]
pub(crate) mod lab;
#[cfg(not(feature = "lab"))]
#[path = "without_lab.rs"]
pub(crate) mod lab;
pub(crate) mod plant;
pub(crate) mod query;
pub(crate) mod replay;
pub(crate) mod schema;
pub(crate) mod stats;
pub(crate) mod study;
pub(crate) mod subscribe;
pub(crate) mod symbols;
pub(crate) mod tap;
pub(crate) mod top;
