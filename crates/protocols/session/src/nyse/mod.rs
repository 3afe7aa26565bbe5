//! NYSE: Pillar packets.

mod packets;
mod pillar;

pub(crate) use packets::{packet as pillar_of, tag};
pub use pillar::Pillar;
