//! The connection to the brokers: topics, transactions, and reading back the position.
//!
//! Every function reports its failure as a [`Stop`]. The library reports errors of connections, logins and TLS separately from its
//! results, so the last of them is kept and replaces a bare "timed out".
//!
//! Sources: Kafka's *KIP-98* (transactions), librdkafka's *Introduction* (transactional producer) and *Configuration*.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::client::ClientContext;
use rdkafka::config::{ClientConfig, FromClientConfigAndContext as _, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message as _;
use rdkafka::producer::{
    BaseProducer, BaseRecord, DeliveryResult, Producer as _, ProducerContext, PurgeConfig,
};
use rdkafka::{Offset, TopicPartitionList};

use super::KafkaSetting;
use super::position::Position;
use super::shared::Shared;
use super::trouble::{Stop, Trouble};

/// How long one request may take before the status is checked.
const STEP: Duration = Duration::from_secs(1);

/// How long the brokers may take to answer a request about topics.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a transaction may be open before the brokers abort it.
const TRANSACTION: Duration = Duration::from_secs(60);

/// The partition that holds the position.
const POSITION_PARTITION: i32 = 0;

/// Number of messages to read first at the end of the position's topic. A transaction has two: the position and its end marker.
const TAIL: i64 = 200;

/// Errors that the library reports separately from its results.
#[derive(Clone, Default, Debug)]
struct Reports(Arc<Mutex<Reported>>);

#[derive(Default, Debug)]
struct Reported {
    /// The last error of a connection.
    error: Option<Trouble>,
    /// The first message that was not delivered.
    undelivered: Option<(String, RDKafkaErrorCode)>,
}

impl Reports {
    fn with<T>(&self, each: impl FnOnce(&mut Reported) -> T) -> T {
        each(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn error(&self) -> Option<Trouble> {
        self.with(|reported| reported.error.clone())
    }
}

impl ClientContext for Reports {
    /// Errors arrive through [`ClientContext::error`] as well.
    fn log(&self, _: RDKafkaLogLevel, _: &str, _: &str) {}

    fn error(&self, error: KafkaError, reason: &str) {
        let reason = reason.to_owned();
        let trouble = match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::Authentication | RDKafkaErrorCode::SaslAuthenticationFailed) => {
                Trouble::Login(reason)
            }
            // This error follows others, which state the cause.
            Some(RDKafkaErrorCode::AllBrokersDown) if self.error().is_some() => return,
            _ => Trouble::Away(reason),
        };
        self.with(|reported| reported.error = Some(trouble));
    }
}

impl ProducerContext for Reports {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        if let Err((error, message)) = result {
            let code = error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Unknown);
            self.with(|reported| {
                reported.undelivered.get_or_insert_with(|| (message.topic().to_owned(), code));
            });
        }
    }
}

impl ConsumerContext for Reports {}

/// Returns the options of every client.
fn options(setting: &KafkaSetting) -> ClientConfig {
    let mut options = ClientConfig::new();
    let longest = setting.longest_pause.as_millis().max(1).to_string();
    options
        .set("bootstrap.servers", setting.shown_brokers())
        .set("client.id", "tapeworks")
        .set("socket.keepalive.enable", "true")
        .set("reconnect.backoff.max.ms", longest);
    let scheme = if setting.login.is_some() { "sasl_plaintext" } else { "plaintext" };
    options.set("security.protocol", scheme);
    if let Some(login) = &setting.login {
        options
            .set("sasl.mechanism", login.mechanism.as_str())
            .set("sasl.username", &login.user)
            .set("sasl.password", login.password.get().as_ref());
    }
    options
}

/// Returns the options of the producer.
fn options_of_producer(setting: &KafkaSetting) -> ClientConfig {
    let mut options = options(setting);
    options
        .set("transactional.id", &setting.id)
        .set("transaction.timeout.ms", TRANSACTION.as_millis().to_string())
        .set("compression.type", setting.compression.as_str())
        .set("batch.size", setting.batch_bytes.to_string())
        // This also bounds batches, and its default is a megabyte.
        .set("message.max.bytes", setting.batch_bytes.max(1_000_000).to_string())
        .set("linger.ms", "5")
        .set("queue.buffering.max.messages", "10000000")
        .set("queue.buffering.max.kbytes", (setting.queue_bytes >> 10).max(1).to_string())
        // The partitioner of the Java clients, so that topics of both can be joined.
        .set("partitioner", "murmur2_random");
    options
}

/// Checks whether the library accepts the settings, which it validates before it connects.
///
/// # Errors
/// The library's error.
pub(super) fn check(setting: &KafkaSetting) -> Result<(), String> {
    options_of_producer(setting).create::<BaseProducer>().map(drop).map_err(|error| error.to_string())
}

/// A producer with one transaction at a time.
pub(super) struct Broker<'s> {
    setting: &'s KafkaSetting,
    shared: &'s Shared,
    reports: Reports,
    producer: BaseProducer<Reports>,
    position_topic: String,
}

impl<'s> Broker<'s> {
    /// Connects, fences an earlier producer with the same id and ends its transaction, and ensures that the topics exist.
    pub(super) fn connect(setting: &'s KafkaSetting, shared: &'s Shared) -> Result<Self, Stop> {
        let reports = Reports::default();
        let producer = BaseProducer::from_config_and_context(&options_of_producer(setting), reports.clone());
        let producer = producer.map_err(|error| kafka("the producer", &error))?;
        let position_topic = setting.position_topic();
        let broker = Self { setting, shared, reports, producer, position_topic };
        broker.until_done("the producer's start", || broker.producer.init_transactions(STEP))?;
        broker.topics()?;
        Ok(broker)
    }

    /// Calls `step` until it is done: a step that timed out continues with the next call.
    fn until_done(&self, doing: &str, mut step: impl FnMut() -> Result<(), KafkaError>) -> Result<(), Stop> {
        loop {
            let Err(error) = step() else { return Ok(()) };
            // Collects the reports.
            self.producer.poll(Duration::ZERO);
            let goes_on = matches!(&error, KafkaError::Transaction(error)
                if error.is_retriable() && !error.is_fatal() && !error.txn_requires_abort());
            if !goes_on {
                return Err(self.stop_of(doing, &error));
            }
            self.waits(doing, &error)?;
        }
    }

    /// Reports that the output waits for the brokers. Stops when the plant ends.
    fn waits(&self, doing: &str, error: &KafkaError) -> Result<(), Stop> {
        let trouble = self.reports.error().unwrap_or_else(|| kafka(doing, error));
        self.shared.waits(&trouble);
        if self.shared.is_over() { Err(Stop::Ended) } else { Ok(()) }
    }

    fn stop_of(&self, doing: &str, error: &KafkaError) -> Stop {
        let fatal = self.producer.client().fatal_error();
        let code = match (error, &fatal) {
            (_, Some((code, _))) => Some(*code),
            (KafkaError::Transaction(error), None) => Some(error.code()),
            (error, None) => error.rdkafka_error_code(),
        };
        let text = match (error, fatal) {
            (_, Some((_, text))) => text,
            (KafkaError::Transaction(error), None) => error.string(),
            (error, None) => error.to_string(),
        };
        match code {
            Some(
                RDKafkaErrorCode::Fenced
                | RDKafkaErrorCode::ProducerFenced
                | RDKafkaErrorCode::InvalidProducerEpoch,
            ) => Stop::Fenced(text),
            Some(RDKafkaErrorCode::TransactionalIdAuthorizationFailed) => {
                Trouble::Forbidden(format!("the id {}", self.setting.id)).into()
            }
            _ => match self.undelivered() {
                Some(trouble) => trouble.into(),
                None => Trouble::Kafka { doing: doing.to_owned(), error: text }.into(),
            },
        }
    }

    /// Returns why a message of this transaction was not delivered.
    fn undelivered(&self) -> Option<Trouble> {
        let (topic, code) = self.reports.with(|reported| reported.undelivered.clone())?;
        Some(match code {
            RDKafkaErrorCode::MessageSizeTooLarge | RDKafkaErrorCode::InvalidMessageSize => {
                Trouble::TooLarge(topic)
            }
            RDKafkaErrorCode::UnknownTopic
            | RDKafkaErrorCode::UnknownTopicOrPartition
            | RDKafkaErrorCode::UnknownPartition => Trouble::NoTopic(topic),
            RDKafkaErrorCode::TopicAuthorizationFailed => Trouble::Forbidden(format!("topic {topic}")),
            RDKafkaErrorCode::MessageTimedOut
            | RDKafkaErrorCode::PurgeQueue
            | RDKafkaErrorCode::PurgeInflight => {
                let error = "messages were not taken in time".to_owned();
                self.reports.error().unwrap_or(Trouble::Away(error))
            }
            code => Trouble::Kafka { doing: format!("topic {topic}"), error: code.to_string() },
        })
    }

    /// Creates missing topics if that is enabled, and checks that all exist.
    fn topics(&self) -> Result<(), Stop> {
        let records: Vec<String> =
            self.setting.schemas.iter().map(|schema| self.setting.topic_of(*schema)).collect();
        if self.setting.create_topics {
            let number = |wanted: Option<u16>| wanted.map_or(-1, i32::from);
            let replicas = || TopicReplication::Fixed(number(self.setting.replicas));
            let position =
                NewTopic::new(&self.position_topic, 1, replicas()).set("cleanup.policy", "compact");
            let mut wanted = vec![position];
            for topic in &records {
                if wanted.iter().all(|before| before.name != topic) {
                    wanted.push(NewTopic::new(topic, number(self.setting.partitions), replicas()));
                }
            }
            let options =
                AdminOptions::new().operation_timeout(Some(PATIENCE)).request_timeout(Some(PATIENCE));
            let created = self.admin(async |admin| admin.create_topics(&wanted, &options).await)?;
            for (topic, code) in created.into_iter().filter_map(Result::err) {
                match code {
                    RDKafkaErrorCode::TopicAlreadyExists => {}
                    // The topic may exist.
                    RDKafkaErrorCode::TopicAuthorizationFailed
                    | RDKafkaErrorCode::ClusterAuthorizationFailed => {}
                    code => {
                        let doing = format!("topic {topic} cannot be created");
                        return Err(Trouble::Kafka { doing, error: code.to_string() }.into());
                    }
                }
            }
        }
        for topic in records.iter().chain([&self.position_topic]) {
            let found = self.producer.client().fetch_metadata(Some(topic), PATIENCE);
            let found = found.map_err(|error| self.stop_of("the topics", &error))?;
            let error = found.topics().first().and_then(|topic| topic.error());
            match error.map(RDKafkaErrorCode::from) {
                None => {}
                Some(RDKafkaErrorCode::TopicAuthorizationFailed) => {
                    return Err(Trouble::Forbidden(format!("topic {topic}")).into());
                }
                Some(RDKafkaErrorCode::UnknownTopicOrPartition) => {
                    return Err(Trouble::NoTopic(topic.clone()).into());
                }
                Some(code) => {
                    let doing = format!("topic {topic}");
                    return Err(Trouble::Kafka { doing, error: code.to_string() }.into());
                }
            }
        }
        let wanted = [ResourceSpecifier::Topic(&self.position_topic)];
        let options = AdminOptions::new().request_timeout(Some(PATIENCE));
        // A user without permission to ask is not refused for it.
        let found = self.admin(async |admin| admin.describe_configs(&wanted, &options).await)?;
        let policy = found.into_iter().flatten().find_map(|topic| topic.get("cleanup.policy")?.value.clone());
        match policy {
            Some(policy) if policy != "compact" => {
                Err(Trouble::NotCompacted(self.position_topic.clone()).into())
            }
            _ => Ok(()),
        }
    }

    /// Sends the brokers a request about topics.
    fn admin<T>(
        &self,
        ask: impl AsyncFnOnce(&AdminClient<Reports>) -> Result<T, KafkaError>,
    ) -> Result<T, Stop> {
        let doing = "the topics";
        let admin = AdminClient::from_config_and_context(&options(self.setting), self.reports.clone());
        let admin = admin.map_err(|error| kafka(doing, &error))?;
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let runtime =
            runtime.map_err(|error| Trouble::Kafka { doing: doing.to_owned(), error: error.to_string() })?;
        runtime.block_on(ask(&admin)).map_err(|error| self.stop_of(doing, &error))
    }

    /// Reads the position in Kafka.
    pub(super) fn position(&self) -> Result<Option<Position>, Stop> {
        position(self.setting, &self.reports)
    }

    /// Begins a transaction.
    pub(super) fn begin(&self) -> Result<(), Stop> {
        self.reports.with(|reported| reported.undelivered = None);
        self.producer.begin_transaction().map_err(|error| self.stop_of("a transaction", &error))
    }

    /// Adds a message to the transaction. Waits while the maximum number of messages is in flight.
    pub(super) fn send(&self, topic: &str, key: &str, message: &[u8]) -> Result<(), Stop> {
        self.put(topic, BaseRecord::to(topic).key(key).payload(message))
    }

    fn put(&self, topic: &str, mut record: BaseRecord<'_, str, [u8]>) -> Result<(), Stop> {
        loop {
            let Err((error, back)) = self.producer.send(record) else { return Ok(()) };
            match error.rdkafka_error_code() {
                Some(RDKafkaErrorCode::QueueFull) => {}
                Some(RDKafkaErrorCode::MessageSizeTooLarge) => {
                    return Err(Trouble::TooLarge(topic.to_owned()).into());
                }
                _ => {
                    // Collects why an earlier message was not delivered, which is the reason that this one fails.
                    self.producer.poll(Duration::from_millis(100));
                    return Err(self.stop_of(&format!("topic {topic}"), &error));
                }
            }
            record = back;
            self.producer.poll(Duration::from_millis(1));
            self.check()?;
        }
    }

    /// Checks whether the transaction has failed or the time is over.
    fn check(&self) -> Result<(), Stop> {
        if let Some((_, text)) = self.producer.client().fatal_error() {
            let error = KafkaError::Canceled;
            let stop = self.stop_of("the transaction", &error);
            return Err(if matches!(stop, Stop::Fenced(_)) { Stop::Fenced(text) } else { stop });
        }
        if let Some(trouble) = self.undelivered() {
            return Err(trouble.into());
        }
        if self.shared.is_over() { Err(Stop::Ended) } else { Ok(()) }
    }

    /// Serves the library when there is nothing to send.
    pub(super) fn idle(&self) -> Result<(), Stop> {
        self.producer.poll(Duration::ZERO);
        self.check()
    }

    /// Aborts the transaction, if the brokers respond within a second. Otherwise they abort it when the next producer starts, or
    /// after a minute.
    pub(super) fn abort(&self) {
        // Messages in flight need not arrive.
        self.producer.purge(PurgeConfig::default().queue().inflight());
        let _given_up_later = self.producer.abort_transaction(STEP);
    }

    /// Adds the position to the transaction, and commits both.
    pub(super) fn commit(&self, position: &Position) -> Result<(), Stop> {
        let (topic, bytes) = (self.position_topic.as_str(), position.encode());
        // A topic that others created may have several partitions, but the position is read from one.
        let record = BaseRecord::to(topic).partition(POSITION_PARTITION).key(self.setting.id.as_str());
        self.put(topic, record.payload(&bytes))?;
        let began = Instant::now();
        while self.producer.in_flight_count() > 0 {
            // The library's `flush` checks only ten times a second.
            let waited = began.elapsed();
            let step = if waited < Duration::from_millis(200) { 1 } else { 50 };
            self.producer.poll(Duration::from_millis(step));
            self.check()?;
            if waited > STEP
                && let Some(trouble) = self.reports.error()
            {
                self.shared.waits(&trouble);
            }
        }
        self.check()?;
        self.until_done("the transaction", || self.producer.commit_transaction(STEP))?;
        self.reports.with(|reported| reported.error = None);
        Ok(())
    }
}

/// Reads the position in Kafka. Unlike a producer's start, this changes nothing there.
pub(super) fn position_now(setting: &KafkaSetting) -> Result<Option<Position>, Stop> {
    position(setting, &Reports::default())
}

fn position(setting: &KafkaSetting, reports: &Reports) -> Result<Option<Position>, Stop> {
    let topic = setting.position_topic();
    let doing = format!("topic {topic}");
    let failed = |error: KafkaError| Stop::from(reports.error().unwrap_or_else(|| kafka(&doing, &error)));
    let mut options = options(setting);
    options
        .set("group.id", &topic)
        .set("enable.auto.commit", "false")
        .set("enable.partition.eof", "true")
        .set("isolation.level", "read_committed");
    let consumer = BaseConsumer::from_config_and_context(&options, reports.clone()).map_err(failed)?;
    let consumer: BaseConsumer<Reports> = consumer;
    let described = consumer.fetch_metadata(Some(&topic), PATIENCE).map_err(failed)?;
    let error = described.topics().first().and_then(|topic| topic.error()).map(RDKafkaErrorCode::from);
    if error == Some(RDKafkaErrorCode::UnknownTopicOrPartition) {
        return Err(Trouble::NoTopic(topic).into());
    }
    let (low, high) = consumer.fetch_watermarks(&topic, POSITION_PARTITION, PATIENCE).map_err(failed)?;
    let mut length = TAIL;
    if low >= high {
        return Ok(None);
    }
    loop {
        let start = low.max(high.saturating_sub(length));
        let mut wanted = TopicPartitionList::new();
        wanted.add_partition_offset(&topic, POSITION_PARTITION, Offset::Offset(start)).map_err(failed)?;
        consumer.assign(&wanted).map_err(failed)?;
        let (mut found, began) = (None, Instant::now());
        loop {
            match consumer.poll(Duration::from_millis(100)) {
                Some(Ok(message)) if message.key() == Some(setting.id.as_bytes()) => {
                    let position = Position::decode(message.payload().unwrap_or_default());
                    let offset = message.offset();
                    found = Some(position.ok_or(Trouble::NoPosition { topic: topic.clone(), offset })?);
                }
                Some(Ok(_)) => {}
                Some(Err(KafkaError::PartitionEOF(_))) => break,
                Some(Err(error)) => return Err(failed(error)),
                None if began.elapsed() > PATIENCE => {
                    let text = format!("{topic} cannot be read");
                    return Err(reports.error().unwrap_or(Trouble::Away(text)).into());
                }
                None => {}
            }
        }
        if found.is_some() || start == low {
            return Ok(found);
        }
        length = length.saturating_mul(100);
    }
}

fn kafka(doing: &str, error: &KafkaError) -> Trouble {
    Trouble::Kafka { doing: doing.to_owned(), error: error.to_string() }
}
