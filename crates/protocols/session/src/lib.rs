#![doc = include_str!("../README.md")]

mod block_queue;
mod cboe;
mod cta;
mod dialect;
mod iex;
pub mod login;
mod lse;
mod memx;
mod nasdaq;
mod nyse;
pub mod outgoing;
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
mod units;

pub use block_queue::BlockQueue;
pub use cboe::CboeUnit;
pub use cta::CtaBlock;
pub use iex::IexTp;
pub use login::Credentials;
pub use lse::MitchUnit;
pub use memx::Memoir;
pub use nasdaq::MoldUdp64;
pub use nyse::Pillar;
pub use retransmission::{Made, Refusal, Store};
pub use sequence::Sequence;
pub use stream::Stream;
pub use throttle::Throttle;
pub use transport::{
    Content, Header, MAX_PAYLOAD_BYTES, Outgoing, Packet, Request, SessionId, Transport, TransportKind,
};
