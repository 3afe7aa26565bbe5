#![doc = include_str!("../README.md")]

mod admission;
mod dispatched;
mod fix_side;
pub mod ids;
mod incoming;
mod index;
mod known;
pub mod mapping;
mod millennium;
mod orders;
mod ouch;
mod outputs;
mod pool;
mod reference;
mod refusal;
mod report;
mod reported;
mod request;
mod risk;
mod route;
mod settings;
mod text;
mod translator;
mod venue;
mod versions;
mod warm;

pub use admission::{ClientToExchange, ClientToExchangeState, Counters};
pub use fix_side::{Body, Reply};
pub use millennium::{Millennium, MillenniumSettings, Naming};
pub use orders::{ExchangeToClient, ExchangeToClientState, Order};
pub use ouch::{Ouch, OuchSettings};
pub use outputs::Outputs;
pub use reference::{Instrument, Reference, ReferenceError};
pub use report::{
    CancelRejected, Doubt, Execution, ExecutionKind, Liquidity, MassCancelled, Numbered, Refused, Report,
};
pub use request::{Cancel, MassCancel, NewOrder, Parties, Quote, QuoteSide, Replace, Request, Requested};
pub use risk::{RiskLimits, TopOfBook, TopsOfBook};
pub use route::Route;
pub use settings::{ClientSettings, FixVersion, Settings};
pub use translator::Translator;
pub use venue::{MOST_MESSAGE_BYTES, RejectReason, Unmapped, Unreadable, Venue};
