#![doc = include_str!("../README.md")]

mod aeron;
pub mod config;
pub mod describe;
mod dpdk;
pub mod flow;
pub mod flow_config;
mod kafka;
pub mod monitor;
pub mod nats;
#[cfg(feature = "otel")]
pub mod otel;
pub mod report;
pub mod service;
#[cfg(feature = "aeron")]
pub mod source;
mod tls;
#[cfg(feature = "web")]
pub mod web;
