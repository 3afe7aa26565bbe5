//! The report of a service: the state and counters of the plant and its outputs.

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
    /// The clients' server, if there is one.
    pub clients: Option<Stats>,
    /// The multicast, if there is one.
    pub multicast: Option<MulticastStats>,
    /// QuestDB, if records go there.
    pub questdb: Option<QuestDbStatus>,
    /// NATS, if records go there.
    pub nats: Option<NatsStatus>,
    /// Kafka, if records go there.
    pub kafka: Option<KafkaStatus>,
    /// Aeron, if events or the NBBO go there.
    pub aeron: Option<AeronStatus>,
    /// Traces, if they are exported.
    pub traces: Option<TraceStatus>,
}

/// The state of a running service that other threads may read.
#[derive(Clone, Debug)]
pub struct Handles {
    /// The plant's status.
    pub plant: Arc<Mutex<Status>>,
    /// The clients'.
    pub clients: Option<Arc<Mutex<Stats>>>,
    /// The multicast's.
    pub multicast: Option<Arc<Mutex<MulticastStats>>>,
    /// QuestDB's.
    pub questdb: Option<Arc<Mutex<QuestDbStatus>>>,
    /// That of NATS.
    pub nats: Option<NatsHandle>,
    /// Kafka's.
    pub kafka: Option<Arc<Mutex<KafkaStatus>>>,
    /// That of Aeron.
    pub aeron: Option<AeronHandle>,
    /// That of the export of traces.
    pub traces: Option<TraceHandle>,
    /// The books.
    pub watch: Watch,
    /// Whether the journal has been replayed.
    pub has_replayed: Arc<AtomicBool>,
    /// The stream of market data for programs, if there is one.
    #[cfg(feature = "stream")]
    pub stream: Option<Arc<tapeworks_outputs::stream::Hub>>,
}

fn copy<T: Clone>(of: &Mutex<T>) -> T {
    of.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

impl Handles {
    /// The report of this moment.
    pub fn report(&self) -> Report {
        let plant = copy(&self.plant);
        let kafka = self.kafka.as_deref().map(|status| copy(status).behind(plant.events, plant.time.0));
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
