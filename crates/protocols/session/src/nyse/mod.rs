//! NYSE: Pillar packets.

mod pillar;

pub use pillar::Pillar;
