#![doc = include_str!("../README.md")]

pub mod fix;
pub mod native;
pub mod soupbintcp;
