//! Cboe: the sequenced unit header and Multicast PITCH.

pub mod pitch;
pub mod unit;
