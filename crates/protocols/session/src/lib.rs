#![doc = include_str!("../README.md")]

mod block_queue;
mod cta_block;
mod iex_tp;
pub mod login;
mod memoir;
mod moldudp64;
pub mod outgoing;
mod pillar;
mod protocols;
pub mod requests;
pub mod retransmission;
pub mod sequence;
pub mod snapshot;
pub mod soupbintcp;
pub mod stream;
mod table;
mod throttle;
pub mod transport;
mod unit;

pub use block_queue::BlockQueue;
pub use cta_block::CtaBlock;
pub use iex_tp::IexTp;
pub use login::Credentials;
pub use memoir::Memoir;
pub use moldudp64::MoldUdp64;
pub use pillar::Pillar;
pub use retransmission::{Made, Refusal, Store};
pub use sequence::Sequence;
pub use stream::Stream;
pub use throttle::Throttle;
pub use transport::{
    Content, Header, MAX_PAYLOAD_BYTES, Outgoing, Packet, Request, SessionId, Transport, TransportKind,
};
pub use unit::{CboeUnit, MitchUnit};
