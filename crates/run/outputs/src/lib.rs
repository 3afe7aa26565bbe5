#![doc = include_str!("../README.md")]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

pub mod aeron;
pub mod begin;
pub mod clients;
#[cfg(any(feature = "kafka", feature = "questdb"))]
mod columns;
#[cfg(feature = "https")]
pub mod https;
pub mod kafka;
pub mod multicast;
mod output;
pub mod questdb;
mod reader;
pub mod resume;
#[cfg(feature = "stream")]
pub mod stream;
pub mod subscriber;
#[cfg(any(feature = "aeron", feature = "https", feature = "kafka"))]
pub mod text;

#[cfg(test)]
mod clock_tests;
#[cfg(test)]
mod history_tests;
