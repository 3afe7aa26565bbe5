//! The stream of market data, served to every client that connects.
#![allow(dead_code, unreachable_pub, reason = "each user needs a part, and is a crate of its own")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};

use tapeworks_market::BookOptions;
use tapeworks_market::{Event, EventKind, InstrumentId, Publisher};
use tapeworks_outputs::begin::Begin;
use tapeworks_outputs::stream::{self, Streaming};
use tapeworks_plant::Status;
use tapeworks_plant::view::Watch;
use tapeworks_ring::disruptor::{Builder, Producer};
use tapeworks_ring::wait::Yielding;
use tapeworks_runtime::transport::Acceptor;
use tapeworks_service::config::WebSetting;
use tapeworks_service::report::Handles;
use tapeworks_service::web::{self, Web};

/// What a page shows of a plant without outputs that has nothing to report.
pub fn handles() -> Handles {
    Handles {
        plant: Arc::new(Mutex::new(Status::default())),
        clients: None,
        multicast: None,
        questdb: None,
        nats: None,
        kafka: None,
        aeron: None,
        traces: None,
        watch: Watch::default(),
        has_replayed: Arc::new(AtomicBool::new(true)),
        stream: None,
    }
}

/// A page with a stream, and the ring that an engine would fill.
pub struct Served {
    pub web: Web,
    pub producer: Producer<Event, Yielding>,
    pub streaming: Streaming,
}

impl Served {
    /// Events before the one with this number are of the past.
    pub fn new(live_from: usize) -> Self {
        let blank = Event::new(EventKind::Other, Publisher::default(), InstrumentId::default());
        let mut ring = Builder::new(1 << 16, || blank, Yielding::default);
        let reader = ring.consumer("stream", &[]);
        let (producer, mut ends) = ring.single_producer();
        let reader = ends.take(reader).unwrap();
        let begin = Begin { live_from: Arc::new(AtomicU64::new(live_from as u64)), ..Begin::default() };
        let streaming = stream::start(reader, &BookOptions::default(), begin).unwrap();
        let handles = Handles { stream: Some(Arc::clone(streaming.hub())), ..handles() };
        let setting = WebSetting {
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            token: None,
            stream: true,
            tls: None,
        };
        let web = web::plant::start(
            web::bind(setting.address, setting.token, Acceptor::Plain).unwrap(),
            handles,
            None,
        )
        .unwrap();
        Self { web, producer, streaming }
    }

    pub fn publish(&mut self, events: &[Event]) {
        for part in events.chunks(256) {
            self.producer.publish_batch(part.len(), |at, slot| *slot = part[at]).unwrap();
        }
    }
}
