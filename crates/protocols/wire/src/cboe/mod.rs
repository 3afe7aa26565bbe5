//! Cboe: the sequenced unit header, Multicast PITCH of equities, options and futures, and the gap request proxy.

pub mod futures;
pub mod grp;
pub mod pitch;
pub mod unit;
