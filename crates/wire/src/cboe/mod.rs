//! Cboe: the sequenced unit header, Multicast PITCH and the gap request proxy.

pub mod grp;
pub mod pitch;
pub mod unit;
