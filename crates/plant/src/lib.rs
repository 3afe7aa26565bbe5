//! The ticker plant: captures and lines in, books and NBBO out.
//!
//! [`replay`] runs the whole line over captures: [`input`] gives packets and messages merged by time,
//! [`tapeworks_feed::Feed`] makes events of them, [`tapeworks_market::BookStage`] and [`tapeworks_market::NbboStage`]
//! apply them, and what comes out goes into files and a summary. The stages are the ones a live plant runs.

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
