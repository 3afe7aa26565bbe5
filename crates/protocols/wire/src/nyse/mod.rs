//! NYSE: the packet header of its Pillar feeds and the Integrated feed (orders).

pub mod integrated;
pub mod packet;
