//! Helpers of the live plant's tests.

use tapeworks_engine::EngineOptions;
use tapeworks_feed::arbitration::ArbiterOptions;
use tapeworks_market::Nanos;

use crate::{ChannelStatus, PlantOptions, ReceiveOptions, VenueOptions};

#[path = "../tests/engine_support/mod.rs"]
pub(crate) mod support;

/// A plant with the engine of the shared tests.
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

/// A channel that is followed, and all is well.
pub(crate) fn channel_status() -> ChannelStatus {
    ChannelStatus {
        name: "Nasdaq".to_owned(),
        publisher: tapeworks_market::Publisher::XNAS_ITCH,
        session: "0000000001".to_owned(),
        next: Some(2),
        counters: Default::default(),
        last_recovery: None,
        snapshots: Default::default(),
        lines: Vec::new(),
        is_recovering: false,
        recovering_since: None,
        is_joining: false,
        is_silent: false,
        is_stale: false,
    }
}
