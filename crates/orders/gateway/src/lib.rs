#![doc = include_str!("../README.md")]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

mod attempts;
pub mod client;
mod clock;
pub mod config;
mod configured;
mod core;
mod entry;
mod hole;
mod host;
pub mod inspect;
mod ledger;
pub mod order_line;
pub mod prices;
mod restore;
mod settings;
pub mod status;
mod store;
#[cfg(feature = "testing")]
pub mod testing;
mod traces;
mod venue;

pub use self::core::{Core, NotAdmitted, Notice};
pub use clock::Now;
pub use entry::{Entry, Kind};
pub use hole::Cut;
pub use host::{Command, Gateway, Handle, HostSettings, NotObeyed, OnNotice, StartError, Wait};
pub use ledger::{Ledger, SyncPolicy};
pub use restore::{Opened, Parts, RestoreError, Restored, open};
pub use settings::ClientSettings;
pub use venue::{OuchSession, VenueEvent, VenueSession};
