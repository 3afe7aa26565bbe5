//! A service's report: the state and counters of the plant and its outputs.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use crate::nats::{NatsHandle, NatsStatus};
use tapeworks_outputs::aeron::{AeronHandle, AeronStatus};
use tapeworks_outputs::clients::server::Stats;
use tapeworks_outputs::kafka::KafkaStatus;
use tapeworks_outputs::multicast::server::MulticastStats;
use tapeworks_outputs::questdb::QuestDbStatus;
use tapeworks_plant::Status;
use tapeworks_plant::view::Watch;
use tapeworks_runtime::traces::{TraceHandle, TraceStatus};

/// The status of a plant and its outputs at one moment.
#[derive(Clone, Default, Debug)]
pub struct Report {
    /// The plant.
    pub plant: Status,
    /// The server for clients, if configured.
    pub clients: Option<Stats>,
    /// The multicast, if configured.
    pub multicast: Option<MulticastStats>,
    /// The output to QuestDB, if configured.
    pub questdb: Option<QuestDbStatus>,
    /// The output to NATS, if configured.
    pub nats: Option<NatsStatus>,
    /// The output to Kafka, if configured.
    pub kafka: Option<KafkaStatus>,
    /// The output to Aeron, if configured.
    pub aeron: Option<AeronStatus>,
    /// The export of traces, if configured.
    pub traces: Option<TraceStatus>,
}

/// Access to the state of a running service from other threads.
#[derive(Clone, Debug)]
pub struct Handles {
    /// Status of the plant.
    pub plant: Arc<Mutex<Status>>,
    /// Status of the server for clients.
    pub clients: Option<Arc<Mutex<Stats>>>,
    /// Status of the multicast.
    pub multicast: Option<Arc<Mutex<MulticastStats>>>,
    /// Status of the QuestDB output.
    pub questdb: Option<Arc<Mutex<QuestDbStatus>>>,
    /// Status of the NATS output.
    pub nats: Option<NatsHandle>,
    /// Status of the Kafka output.
    pub kafka: Option<Arc<Mutex<KafkaStatus>>>,
    /// Status of the Aeron output.
    pub aeron: Option<AeronHandle>,
    /// Status of the export of traces.
    pub traces: Option<TraceHandle>,
    /// The books.
    pub watch: Watch,
    /// Whether the journal has been replayed.
    pub has_replayed: Arc<AtomicBool>,
    /// The market data stream for programs, if configured.
    #[cfg(feature = "stream")]
    pub stream: Option<Arc<tapeworks_outputs::stream::Hub>>,
}

fn copy<T: Clone>(of: &Mutex<T>) -> T {
    of.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

impl Handles {
    /// Returns the current report.
    pub fn report(&self) -> Report {
        let plant = copy(&self.plant);
        let kafka =
            self.kafka.as_deref().map(|status| copy(status).behind(plant.engine.events, plant.time.0));
        Report {
            plant,
            clients: self.clients.as_deref().map(copy),
            multicast: self.multicast.as_deref().map(copy),
            questdb: self.questdb.as_deref().map(copy),
            nats: self.nats.as_ref().map(NatsHandle::status),
            kafka,
            aeron: self.aeron.as_ref().map(AeronHandle::status),
            traces: self.traces.as_ref().map(TraceHandle::status),
        }
    }
}
