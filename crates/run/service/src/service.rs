//! A plant with the servers that its configuration names.

use std::path::Path;
use std::sync::Arc;
#[cfg(feature = "kafka")]
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::config::Config;
#[cfg(feature = "nats")]
use crate::nats::publisher::{self as nats, Nats};
#[cfg(feature = "otel")]
use crate::otel::exporter::{self, Exporter};
use crate::report::{Handles, Report};
#[cfg(feature = "aeron")]
use crate::source::{self, Source};
use tapeworks_engine::JournalReplayed;
use tapeworks_market::round_lots::RoundLotPrices;
use tapeworks_plant::roll::Roll;
use tapeworks_plant::view::Watch;
use tapeworks_plant::{Plant, PlantError, PlantFailure, PlantOptions, Reader, Status};
use tapeworks_time::Nanos;

use tapeworks_engine::history::History;
#[cfg(feature = "aeron")]
use tapeworks_outputs::aeron::{self, Aeron, AeronSourceSetting};
use tapeworks_outputs::begin::Begin;
use tapeworks_outputs::clients::distributor::Options;
use tapeworks_outputs::clients::server::{self, ServeError, Server, ServerError, ServerOptions, Stats};
#[cfg(feature = "kafka")]
use tapeworks_outputs::kafka::{self, Kafka, KafkaStatus};
use tapeworks_outputs::multicast::server::{
    self as multicast, Multicast, MulticastError, MulticastFailure, MulticastStats,
};
#[cfg(feature = "questdb")]
use tapeworks_outputs::questdb::{self, QuestDb};
#[cfg(feature = "stream")]
use tapeworks_outputs::stream::{self, StreamError, StreamFailure, Streaming};
use tapeworks_runtime::now;
use tapeworks_runtime::refusals::OnRefusal;
use tapeworks_runtime::traces::{Sample, Traces};
use tapeworks_runtime::transport::TlsFiles;

/// Why a service cannot start.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum ServiceError {
    /// The plant failed.
    #[error(transparent)]
    Plant(#[from] PlantError),
    /// The server for clients failed.
    #[error(transparent)]
    Clients(#[from] ServerError),
    /// The TLS files of a server are unusable.
    #[error(transparent)]
    Tls(#[from] tapeworks_runtime::transport::NoTls),
    /// The web page failed.
    #[cfg(feature = "web")]
    #[error(transparent)]
    Web(#[from] crate::web::WebError),
    /// The market data stream for programs failed.
    #[cfg(feature = "stream")]
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// This build does not include the web page.
    #[cfg(not(feature = "web"))]
    #[error("the configuration has [web], and this build is without the feature `web`")]
    NoWeb,
    /// The multicast failed.
    #[error(transparent)]
    Multicast(#[from] MulticastError),
    /// The QuestDB output failed.
    #[cfg(feature = "questdb")]
    #[error(transparent)]
    QuestDb(#[from] questdb::QuestDbError),
    /// The Kafka output failed.
    #[cfg(feature = "kafka")]
    #[error(transparent)]
    Kafka(#[from] kafka::KafkaStartError),
    /// This build does not include Kafka.
    #[cfg(not(feature = "kafka"))]
    #[error("the configuration has [kafka], and this build is without the feature `kafka`")]
    NoKafka,
    /// The Aeron output failed.
    #[cfg(feature = "aeron")]
    #[error(transparent)]
    Aeron(#[from] aeron::AeronStartError),
    /// The thread of the event source could not be started.
    #[cfg(feature = "aeron")]
    #[error("no thread for the source of events: {0}")]
    Source(std::io::Error),
    /// This build does not include Aeron.
    #[cfg(not(feature = "aeron"))]
    #[error("the configuration has Aeron, and this build is without the feature `aeron`")]
    NoAeron,
    /// This build does not include QuestDB.
    #[cfg(not(feature = "questdb"))]
    #[error("the configuration has [questdb], and this build is without the feature `questdb`")]
    NoQuestDb,
    /// The NATS output failed.
    #[cfg(feature = "nats")]
    #[error(transparent)]
    Nats(#[from] nats::NatsError),
    /// The export of traces failed.
    #[cfg(feature = "otel")]
    #[error(transparent)]
    Traces(#[from] exporter::ExportError),
    /// This build does not include the export of traces.
    #[cfg(not(feature = "otel"))]
    #[error("the configuration has [otel], and this build is without the feature `otel`")]
    NoTraces,
    /// This build does not include NATS.
    #[cfg(not(feature = "nats"))]
    #[error("the configuration has [nats], and this build is without the feature `nats`")]
    NoNats,
}

/// Why a service ended before it was stopped.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum ServiceFailure {
    /// The plant failed.
    #[error(transparent)]
    Plant(#[from] PlantFailure),
    /// The server for clients failed.
    #[error(transparent)]
    Clients(#[from] ServeError),
    /// The multicast failed.
    #[error(transparent)]
    Multicast(#[from] MulticastFailure),
    /// The Aeron output failed.
    #[cfg(feature = "aeron")]
    #[error(transparent)]
    Aeron(#[from] aeron::AeronFailure),
    /// The event source failed.
    #[cfg(feature = "aeron")]
    #[error(transparent)]
    Source(#[from] source::SourceFailure),
    /// The Kafka output failed.
    #[cfg(feature = "kafka")]
    #[error(transparent)]
    Kafka(#[from] kafka::KafkaFailure),
    /// The QuestDB output failed.
    #[cfg(feature = "questdb")]
    #[error(transparent)]
    QuestDb(#[from] questdb::QuestDbFailure),
    /// The market data stream for programs failed.
    #[cfg(feature = "stream")]
    #[error(transparent)]
    Stream(#[from] StreamFailure),
    /// The NATS output failed.
    #[cfg(feature = "nats")]
    #[error(transparent)]
    Nats(#[from] nats::NatsFailure),
}

/// A running plant with its servers. Dropping it stops everything.
#[derive(Debug)]
pub struct Service {
    // The servers must end before the plant, so they are declared, and dropped, first.
    #[cfg(feature = "web")]
    web: Option<crate::web::Web>,
    #[cfg(feature = "nats")]
    nats: Option<Nats>,
    #[cfg(feature = "stream")]
    streaming: Option<Streaming>,
    clients: Option<Server>,
    multicast: Option<Multicast>,
    #[cfg(feature = "aeron")]
    aeron: Option<Aeron>,
    #[cfg(feature = "kafka")]
    kafka: Option<Kafka>,
    #[cfg(feature = "questdb")]
    questdb: Option<QuestDb>,
    /// Ends when dropped.
    _roll: Option<Roll>,
    #[cfg(feature = "aeron")]
    source: Option<Source>,
    plant: Plant,
    handles: Handles,
    replayed: JournalReplayed,
    // Exports what the plant records until its end.
    #[cfg(feature = "otel")]
    exporter: Option<Exporter>,
}

impl Service {
    /// Starts the plant and the servers of `config`, and reports refused clients to `on_refusal`.
    ///
    /// # Errors
    /// [`ServiceError`], for example a port in use, a line that cannot be joined, or an unusable journal.
    pub fn start(config: &Config, on_refusal: Option<OnRefusal>) -> Result<Self, ServiceError> {
        #[cfg(not(feature = "web"))]
        if config.web.is_some() {
            return Err(ServiceError::NoWeb);
        }
        #[cfg(not(feature = "questdb"))]
        if config.questdb.is_some() {
            return Err(ServiceError::NoQuestDb);
        }
        #[cfg(not(feature = "kafka"))]
        if config.kafka.is_some() {
            return Err(ServiceError::NoKafka);
        }
        #[cfg(not(feature = "aeron"))]
        if config.aeron.is_some() || config.source.is_some() {
            return Err(ServiceError::NoAeron);
        }
        #[cfg(not(feature = "nats"))]
        if config.nats.is_some() {
            return Err(ServiceError::NoNats);
        }
        #[cfg(not(feature = "otel"))]
        if config.traces.is_some() {
            return Err(ServiceError::NoTraces);
        }
        let began = now();
        tapeworks_runtime::raise_descriptor_limit();
        let has_replayed = Arc::new(AtomicBool::new(false));
        let has_stream = config.web.as_ref().is_some_and(|web| web.stream);
        let mut readers = Vec::new();
        readers.extend(config.clients.is_some().then_some("clients"));
        readers.extend(config.multicast.is_some().then_some("multicast"));
        readers.extend(config.aeron.is_some().then_some("aeron"));
        readers.extend(config.questdb.is_some().then_some("questdb"));
        // The NATS output is a client of the stream.
        readers.extend((has_stream || config.nats.is_some()).then_some("stream"));
        // Ports are bound before the plant starts, so that a port in use is reported early.
        let of_clients = config.clients.as_ref().and_then(|clients| clients.tls.as_ref());
        let tls_of_clients = of_clients.map(TlsFiles::acceptor).transpose()?.unwrap_or_default();
        #[cfg(feature = "aeron")]
        let connector_of_source =
            config.source.as_ref().map(AeronSourceSetting::connector).transpose()?.unwrap_or_default();
        #[cfg(feature = "web")]
        let web = match &config.web {
            Some(web) => {
                let tls = web.tls.as_ref().map(TlsFiles::acceptor).transpose()?.unwrap_or_default();
                let mut listening = crate::web::bind(web.address, web.token.clone(), tls)?
                    .showing("clients.certificate", tls_of_clients.files());
                if let Some(login) = config.nats.as_ref().and_then(|nats| nats.login.as_ref()) {
                    listening = listening.showing("nats.login", login.secret().files());
                }
                if let Some(login) = config.kafka.as_ref().and_then(|kafka| kafka.login.as_ref()) {
                    listening = listening.showing("kafka.login", login.password.files());
                }
                if let Some(token) = config.traces.as_ref().and_then(|traces| traces.token.as_ref()) {
                    listening = listening.showing("otel.token", token.files());
                }
                if let Some(token) = config.aeron.as_ref().and_then(|aeron| aeron.token.as_ref()) {
                    listening = listening.showing("aeron.token", token.files());
                }
                if let Some(token) = config.source.as_ref().and_then(|source| source.token.as_ref()) {
                    listening = listening.showing("source.aeron.token", token.files());
                }
                for key in config.clients.iter().flat_map(|clients| clients.keys.iter()) {
                    listening = listening.showing(format!("clients.key.{}", key.name), key.files());
                }
                Some(listening)
            }
            None => None,
        };
        let listening = config.clients.as_ref().map(|clients| server::bind(clients.address)).transpose()?;
        let sockets = config.multicast.as_ref().map(multicast::bind).transpose()?;
        #[cfg(feature = "aeron")]
        let replays_of_aeron = config.aeron.as_ref().map(aeron::bind).transpose()?.flatten();
        #[cfg(feature = "web")]
        let web = web.map(|listening| {
            let files = sockets.as_ref().and_then(multicast::Sockets::files);
            listening.showing("multicast.certificate", files)
        });
        #[cfg(all(feature = "web", feature = "aeron"))]
        let web = web.map(|listening| {
            let of_replays = replays_of_aeron.as_ref().and_then(aeron::Listening::files);
            let of_source = connector_of_source.files();
            listening.showing("aeron.certificate", of_replays).showing("source.aeron.authorities", of_source)
        });
        let watch = Watch::default();
        #[cfg_attr(not(feature = "otel"), expect(unused_mut, reason = "nothing is traced"))]
        let mut options = config.plant.clone();
        #[cfg(feature = "otel")]
        let exporter = match &config.traces {
            Some(setting) => {
                let (traces, samples) =
                    Traces::new(setting.sampling, setting.queue_samples, setting.operations);
                options.traces = Some(traces);
                Some(exporter::start(setting.clone(), samples)?)
            }
            None => None,
        };
        let traces = options.traces.clone();
        let (mut plant, mut ends) = Plant::start_watched(options, &readers, watch.clone())?;
        let listens = now();
        let begin = Begin {
            first_event: plant.first_event(),
            first_time: plant.first_time(),
            history: config.plant.history().map(|history| Arc::new(history) as Arc<dyn History>),
            live_from: plant.live_from(),
            wake_up: None,
        };
        // If the plant's threads park, each reader of the ring has its own wake-up.
        let mut take = |name: &str| {
            let Reader { consumer, wake_up } = ends.take(name)?;
            Some((consumer, Begin { wake_up, ..begin.clone() }))
        };
        let multicast = match (&config.multicast, sockets, take("multicast")) {
            (Some(setting), Some(sockets), Some((consumer, begin))) => {
                let setting = setting.clone();
                Some(multicast::start(
                    sockets,
                    setting,
                    &config.books(),
                    consumer,
                    begin,
                    on_refusal.clone(),
                )?)
            }
            _ => None,
        };
        #[cfg(feature = "aeron")]
        let aeron = match (&config.aeron, take("aeron")) {
            (Some(setting), Some((consumer, begin))) => {
                let (setting, on_refusal) = (setting.clone(), on_refusal.clone());
                Some(aeron::start(setting, replays_of_aeron, &config.books(), consumer, begin, on_refusal)?)
            }
            _ => None,
        };
        #[cfg(feature = "questdb")]
        let questdb = match (&config.questdb, take("questdb")) {
            (Some(setting), Some((consumer, begin))) => {
                Some(questdb::start(setting.clone(), &config.books(), consumer, begin)?)
            }
            _ => None,
        };
        #[cfg(feature = "stream")]
        let streaming = take("stream")
            .map(|(consumer, begin)| stream::start(consumer, &config.books(), begin))
            .transpose()?;
        #[cfg(feature = "nats")]
        let nats = match (&config.nats, &streaming) {
            (Some(setting), Some(streaming)) => Some(nats::start(setting.clone(), streaming.hub())?),
            _ => None,
        };
        let clients = match (&config.clients, listening, take("clients")) {
            (Some(setting), Some(listener), Some((consumer, begin))) => {
                let history = begin.history.clone();
                let options = ServerOptions {
                    idle_sleep: setting.idle_sleep,
                    begin,
                    warm: config.plant.warm,
                    ..ServerOptions::new(
                        setting.address,
                        Options {
                            keys: setting.keys.clone(),
                            datasets: setting.datasets.clone(),
                            books: config.books(),
                            queue_bytes: setting.queue_bytes,
                            max_connections: setting.max_connections,
                            history,
                            on_refusal: on_refusal.clone(),
                            acceptor: tls_of_clients,
                            ..Options::default()
                        },
                    )
                };
                Some(server::start_on(listener, options, consumer)?)
            }
            _ => None,
        };
        #[cfg(feature = "kafka")]
        let of_kafka = config.kafka.as_ref().map(|_| Arc::new(Mutex::new(KafkaStatus::default())));
        let handles = Handles {
            plant: plant.status_handle(),
            clients: clients.as_ref().map(Server::stats_handle),
            multicast: multicast.as_ref().map(Multicast::stats_handle),
            #[cfg(feature = "questdb")]
            questdb: questdb.as_ref().map(QuestDb::status_handle),
            #[cfg(not(feature = "questdb"))]
            questdb: None,
            #[cfg(feature = "nats")]
            nats: nats.as_ref().map(Nats::handle),
            #[cfg(not(feature = "nats"))]
            nats: None,
            #[cfg(feature = "aeron")]
            aeron: aeron.as_ref().map(Aeron::handle),
            #[cfg(not(feature = "aeron"))]
            aeron: None,
            #[cfg(feature = "otel")]
            traces: exporter.as_ref().map(Exporter::handle),
            #[cfg(not(feature = "otel"))]
            traces: None,
            #[cfg(feature = "kafka")]
            kafka: of_kafka.clone(),
            #[cfg(not(feature = "kafka"))]
            kafka: None,
            watch,
            has_replayed: Arc::clone(&has_replayed),
            #[cfg(feature = "stream")]
            stream: streaming.as_ref().filter(|_| has_stream).map(|streaming| Arc::clone(streaming.hub())),
        };
        // The page is already served while the journal is replayed.
        #[cfg(feature = "web")]
        let web = web
            .map(|listening| crate::web::plant::start(listening, handles.clone(), on_refusal.clone()))
            .transpose()?;
        let replayed = plant.replayed()?;
        if let Some(operations) = traces.as_ref().and_then(Traces::operations) {
            operations.record(&start_sample(began, listens, &replayed));
        }
        has_replayed.store(true, Ordering::Release);
        // Kafka reads the journal, which the plant may have to repair first.
        #[cfg(feature = "kafka")]
        let kafka = match (&config.kafka, begin.history.clone(), of_kafka) {
            (Some(setting), Some(history), Some(status)) => {
                Some(kafka::start(setting.clone(), &config.books(), history, status)?)
            }
            _ => None,
        };
        #[cfg(feature = "aeron")]
        let source = match (&config.source, &config.plant.relay, plant.relay()) {
            (Some(setting), Some(relay), Some(to)) => {
                let started = source::start(setting.clone(), connector_of_source, relay.clone(), to);
                Some(started.map_err(ServiceError::Source)?)
            }
            _ => None,
        };
        // The roll starts after the replay, which has priority.
        let roll = config.roll.clone().map(|setting| {
            Roll::start(setting, PlantOptions { traces, ..config.plant.clone() }, plant.status_handle())
        });
        Ok(Self {
            #[cfg(feature = "web")]
            web,
            #[cfg(feature = "nats")]
            nats,
            #[cfg(feature = "stream")]
            streaming,
            clients,
            multicast,
            #[cfg(feature = "aeron")]
            aeron,
            #[cfg(feature = "kafka")]
            kafka,
            #[cfg(feature = "questdb")]
            questdb,
            _roll: roll.transpose()?,
            #[cfg(feature = "aeron")]
            source,
            plant,
            handles,
            replayed,
            #[cfg(feature = "otel")]
            exporter,
        })
    }

    /// Returns the address of the server for clients.
    pub fn clients_address(&self) -> Option<std::net::SocketAddr> {
        self.clients.as_ref().map(Server::address)
    }

    /// Returns the address of the web page.
    pub fn web_address(&self) -> Option<std::net::SocketAddr> {
        #[cfg(feature = "web")]
        return self.web.as_ref().map(crate::web::Web::address);
        #[cfg(not(feature = "web"))]
        None
    }

    /// Returns the URL of the web page.
    pub fn web_url(&self) -> Option<String> {
        #[cfg(feature = "web")]
        return self.web.as_ref().map(crate::web::Web::url);
        #[cfg(not(feature = "web"))]
        None
    }

    /// Returns the contents of the journal at the start.
    pub const fn replayed(&self) -> &JournalReplayed {
        &self.replayed
    }

    /// Returns the status of the plant.
    pub fn status(&self) -> Status {
        self.plant.status()
    }

    /// Returns the status of the server for clients.
    pub fn clients(&self) -> Option<Stats> {
        self.clients.as_ref().map(Server::stats)
    }

    /// Returns the status of the multicast.
    pub fn multicast(&self) -> Option<MulticastStats> {
        self.multicast.as_ref().map(Multicast::stats)
    }

    /// Returns the addresses of the multicast's retransmission server (UDP) and SoupBinTCP server.
    pub fn multicast_addresses(&self) -> [Option<std::net::SocketAddr>; 2] {
        let of = |address: fn(&Multicast) -> Option<std::net::SocketAddr>| {
            self.multicast.as_ref().and_then(address)
        };
        [of(Multicast::retransmission), of(Multicast::soupbintcp)]
    }

    /// Returns the source of views of the books.
    pub const fn watch(&self) -> &Watch {
        &self.handles.watch
    }

    /// Returns handles to the status of every part, for other threads.
    pub fn handles(&self) -> Handles {
        self.handles.clone()
    }

    /// Returns the status of the plant and its outputs.
    pub fn report(&self) -> Report {
        self.handles.report()
    }

    /// Returns whether any part has ended. Before the service is stopped, only a failure ends a part.
    pub fn has_ended(&self) -> bool {
        #[cfg(feature = "kafka")]
        if self.kafka.as_ref().is_some_and(Kafka::is_finished) {
            return true;
        }
        #[cfg(feature = "aeron")]
        if self.aeron.as_ref().is_some_and(Aeron::is_finished) {
            return true;
        }
        #[cfg(feature = "aeron")]
        if self.source.as_ref().is_some_and(Source::is_finished) {
            return true;
        }
        #[cfg(feature = "questdb")]
        if self.questdb.as_ref().is_some_and(QuestDb::is_finished) {
            return true;
        }
        #[cfg(feature = "nats")]
        if self.nats.as_ref().is_some_and(Nats::is_finished) {
            return true;
        }
        #[cfg(feature = "stream")]
        if self.streaming.as_ref().is_some_and(Streaming::is_finished) {
            return true;
        }
        self.plant.has_ended()
            || self.clients.as_ref().is_some_and(Server::is_finished)
            || self.multicast.as_ref().is_some_and(Multicast::is_finished)
    }

    /// Stops everything, the lines first. Inputs already received are published, journaled, and sent to clients that still read.
    ///
    /// # Errors
    /// The first failure, if a part had failed.
    pub fn stop(self) -> Result<(), ServiceFailure> {
        #[cfg(feature = "aeron")]
        let source = self.source.map_or(Ok(()), Source::join);
        let plant = self.plant.stop();
        let clients = self.clients.map_or(Ok(()), Server::join);
        let multicast = self.multicast.map_or(Ok(()), Multicast::join);
        #[cfg(feature = "aeron")]
        let aeron = self.aeron.map(Aeron::join).transpose();
        #[cfg(feature = "questdb")]
        let questdb = self.questdb.map(QuestDb::join).transpose();
        // The journal is complete now.
        #[cfg(feature = "kafka")]
        let kafka = self.kafka.map(Kafka::join).transpose();
        #[cfg(feature = "stream")]
        let streaming = self.streaming.map_or(Ok(()), Streaming::join);
        // NATS ends after the stream, because it publishes the stream's last records.
        #[cfg(feature = "nats")]
        let nats = self.nats.map_or(Ok(()), Nats::join);
        #[cfg(feature = "otel")]
        if let Some(exporter) = self.exporter {
            exporter.join();
        }
        plant?;
        clients?;
        #[cfg(feature = "aeron")]
        source?;
        #[cfg(feature = "aeron")]
        aeron?;
        #[cfg(feature = "questdb")]
        questdb?;
        #[cfg(feature = "kafka")]
        kafka?;
        #[cfg(feature = "stream")]
        streaming?;
        #[cfg(feature = "nats")]
        nats?;
        Ok(multicast?)
    }
}

/// Returns the trace of the start, from reading the configuration to the end of the journal's replay.
fn start_sample(began: Nanos, listens: Nanos, replayed: &JournalReplayed) -> Sample {
    let mut sample = Sample::new("start", began.0);
    sample.part("open", began.0, listens.0);
    sample.part("replay the journal", listens.0, now().0);
    sample.number("inputs", replayed.inputs);
    sample.number("events", replayed.events);
    sample.number("lost", replayed.lost);
    sample
}

/// Reads the configuration at `path` and the file of round-lot prices, and checks the TLS files, because an unusable
/// certificate is an error of the configuration.
///
/// # Errors
/// Every error of the configuration.
pub fn load(path: &Path) -> Result<Config, Vec<tapeworks_runtime::config::ConfigError>> {
    let mut config = Config::load(path)?;
    let wrong = |problem: String| {
        let file = path.display().to_string();
        vec![tapeworks_runtime::config::ConfigError { file, place: None, problem }]
    };
    if let Some(prices) = &config.round_lot_prices {
        let read = std::fs::read_to_string(prices).map_err(|error| error.to_string());
        let parsed = read.and_then(|text| RoundLotPrices::parse(&text).map_err(|error| error.to_string()));
        config.plant.rules.round_lot_prices =
            parsed.map_err(|error| wrong(format!("'round_lot_prices': {}: {error}", prices.display())))?;
    }
    let of_clients = config.clients.as_ref().and_then(|clients| clients.tls.as_ref());
    let of_web = config.web.as_ref().and_then(|web| web.tls.as_ref());
    let of_multicast = config.multicast.as_ref().and_then(|multicast| multicast.tls.as_ref());
    let of_aeron = config.aeron.as_ref().and_then(|aeron| aeron.tls.as_ref());
    for files in [of_clients, of_web, of_multicast, of_aeron].into_iter().flatten() {
        files.acceptor().map_err(|error| wrong(error.to_string()))?;
    }
    if let Some(source) = &config.source {
        source.connector().map_err(|error| wrong(error.to_string()))?;
    }
    #[cfg(feature = "otel")]
    if let Some(setting) = &config.traces {
        exporter::check(setting).map_err(|error| wrong(error.to_string()))?;
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prices_of_round_lots_are_read_beside_the_configuration() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plant.toml");
        let text = "nbbo = { round_lot_prices = \"prices.csv\" }\n\
            [[venue]]\nname = \"Nasdaq\"\nprotocol = \"itch\"\n\
            publisher = \"XNAS.ITCH\"\nlines = \"239.192.1.1:30001\"\n";
        std::fs::write(&path, text).unwrap();
        let problem =
            |path: &Path| load(path).unwrap_err().iter().map(ToString::to_string).collect::<String>();
        assert!(problem(&path).contains("prices.csv"), "{}", problem(&path));
        let prices = folder.path().join("prices.csv");
        std::fs::write(&prices, "A,1\nB\n").unwrap();
        assert!(problem(&path).ends_with("prices.csv: line 2: it is not SYMBOL,PRICE"), "{}", problem(&path));
        std::fs::write(&prices, "A,1\nBKNG,5400\n").unwrap();
        let rules = load(&path).unwrap().plant.rules;
        let price = rules.round_lot_prices.price_of(tapeworks_market::Symbol::parse("BKNG").unwrap());
        assert_eq!(price, tapeworks_market::Price::from_e9(5_400_000_000_000));
    }
}
