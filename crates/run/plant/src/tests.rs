//! Helpers for the live plant's tests.

use tapeworks_engine::EngineOptions;
use tapeworks_follow::arbitration::ArbiterOptions;
use tapeworks_time::Nanos;

use crate::{PlantOptions, ReceiveOptions, VenueOptions};

#[path = "../tests/engine_support/mod.rs"]
pub(crate) mod support;

/// Returns the options of a plant with the engine of the shared tests.
pub(crate) fn plant() -> PlantOptions {
    let EngineOptions { channels, .. } = support::options();
    let venues = channels
        .into_iter()
        .map(|channel| VenueOptions {
            orders: 1 << 16,
            name: channel.name,
            application: channel.application,
            publisher: channel.publisher,
            lines: vec![([127, 0, 0, 1], 0).into()],
            retransmission: None,
            snapshot: None,
            login: Default::default(),
            // The session has pauses of minutes, and each silence is a walk through all instruments.
            arbiter: ArbiterOptions { silence_ns: 86_400 * Nanos::SECOND, ..channel.arbiter },
            snapshots: Default::default(),
        })
        .collect();
    let receive = ReceiveOptions { buffers: 256, ..ReceiveOptions::default() };
    PlantOptions { venues, receive, ring_events: 4_096, ..PlantOptions::default() }
}
