//! MEMX: the transport of its MEMOIR feeds, and MEMOIR Depth (orders).

pub mod depth13;
pub mod tcp;
pub mod udp;
