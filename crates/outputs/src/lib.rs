#![doc = include_str!("../README.md")]

pub mod begin;
pub mod clients;
pub mod multicast;
mod output;
pub mod questdb;
mod reader;
#[cfg(feature = "stream")]
pub mod stream;
pub mod subscriber;

#[cfg(test)]
mod history_tests;
