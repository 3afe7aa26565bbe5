//! What the tests of the live plant share.

use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use tapeworks_exchange::{Packets, Scenario, VenueConfig, VenueKind};
use tapeworks_feed::Application;
use tapeworks_market::{Nanos, Publisher};

use super::{PlantOptions, ReceiveOptions, VenueOptions};

/// A folder that is removed in the end.
pub(super) struct Temporary(pub(super) PathBuf);

impl Temporary {
    pub(super) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tapeworks-export-{}-{number}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _left = fs::remove_dir_all(&self.0);
    }
}

/// The last of them says nothing in the session.
const KINDS: [(VenueKind, Application, Publisher); 3] = [
    (VenueKind::Nasdaq, Application::TotalViewItch50, Publisher::XNAS_ITCH),
    (VenueKind::IexDeep, Application::IexDeep10, Publisher::IEXG_DEEP),
    (VenueKind::Bx, Application::TotalViewItch50, Publisher::XBOS_ITCH),
];

pub(super) fn plant() -> PlantOptions {
    let venue = |(kind, application, publisher): (VenueKind, Application, Publisher)| VenueOptions {
        orders: 1 << 16,
        name: kind.name().to_owned(),
        application,
        publisher,
        lines: vec![([127, 0, 0, 1], 0).into()],
        retransmission: None,
        snapshot: None,
        login: Default::default(),
        arbiter: Default::default(),
        snapshots: Default::default(),
    };
    let receive = ReceiveOptions { buffers: 256, ..ReceiveOptions::default() };
    PlantOptions { venues: KINDS.map(venue).to_vec(), receive, ring_events: 4_096, ..PlantOptions::default() }
}

/// A session's packets: the channel, the receive time, the payload.
pub(super) fn session() -> Vec<(u16, Nanos, Vec<u8>)> {
    // A day of heartbeats takes seconds to make.
    static SESSION: OnceLock<Vec<(u16, Nanos, Vec<u8>)>> = OnceLock::new();
    SESSION.get_or_init(make_session).clone()
}

fn make_session() -> Vec<(u16, Nanos, Vec<u8>)> {
    let venues = KINDS[..2].iter().map(|(kind, ..)| VenueConfig { kind: *kind, share: 1 }).collect();
    let scenario = Scenario { venues, seed: 71, ..Scenario::full_session(3_000, 8) };
    let mut packets = Packets::new(&scenario).unwrap();
    let mut all = Vec::new();
    while let Some(packet) = packets.next_packet() {
        all.push((packet.venue as u16, Nanos(packet.timestamp_ns), packet.payload.to_vec()));
    }
    all
}
