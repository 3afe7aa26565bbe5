//! The live plant: lines in, books and NBBO out, and every way out of it.
//!
//! [`live`] has the plant's threads: they receive, arbitrate and apply, write the journal and publish events in a ring. [`clients`],
//! [`multicast`] and the stream of the web page read that ring. [`subscriber`] is our own client of them. [`flow`] runs packet flows from
//! [a file](flow_config).

pub mod clients;
pub mod flow;
pub mod flow_config;
pub mod live;
pub mod multicast;
#[cfg(feature = "questdb")]
pub mod questdb;
pub mod subscriber;
#[cfg(feature = "web")]
pub mod web;
