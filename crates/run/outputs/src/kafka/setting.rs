//! The settings of the Kafka output.

use std::time::Duration;

use tapeworks_runtime::secrets::Secret;
use tapeworks_store::Schema;

/// How a password is sent to the broker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KafkaMechanism {
    /// In clear text.
    Plain,
}

impl KafkaMechanism {
    /// All mechanisms.
    pub const ALL: [Self; 1] = [Self::Plain];

    /// Returns its name in Kafka.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Plain => "PLAIN",
        }
    }
}

/// The SASL login at the broker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KafkaLogin {
    /// How the password is sent.
    pub mechanism: KafkaMechanism,
    /// The user.
    pub user: String,
    /// The password.
    pub password: Secret,
}

/// How batches of messages are compressed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum KafkaCompression {
    /// No compression.
    None,
    /// The slowest, with the best compression.
    Gzip,
    /// Fast.
    Snappy,
    /// The fastest.
    #[default]
    Lz4,
}

impl KafkaCompression {
    /// All compressions.
    pub const ALL: [Self; 4] = [Self::None, Self::Gzip, Self::Snappy, Self::Lz4];

    /// Returns its name in Kafka.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
        }
    }
}

/// The records for Kafka, and its brokers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KafkaSetting {
    /// Host names or addresses with ports, at least one of which must answer.
    pub brokers: Vec<(String, u16)>,
    /// The `transactional.id`, which identifies this output. The position is in the topic with this name and the suffix
    /// `.position`.
    pub id: String,
    /// The topic name of a schema, with `{schema}` as the placeholder.
    pub topic: String,
    /// The schemas to send.
    pub schemas: Vec<Schema>,
    /// The symbols to send; if empty, all, and records of whole venues.
    pub symbols: Vec<String>,
    /// Whether to create missing topics.
    pub create_topics: bool,
    /// The number of partitions of created topics; `None` for the broker's default. The position's topic has one.
    pub partitions: Option<u16>,
    /// The replication factor of created topics; `None` for the broker's default.
    pub replicas: Option<u16>,
    /// The login.
    pub login: Option<KafkaLogin>,
    /// How batches are compressed.
    pub compression: KafkaCompression,
    /// Age at which a transaction is committed.
    pub flush_every: Duration,
    /// Number of records at which a transaction is committed; it may have a few thousand more.
    pub batch_records: usize,
    /// Maximum bytes per batch of messages, which a broker's `message.max.bytes` limits.
    pub batch_bytes: usize,
    /// Maximum bytes of records queued for the broker.
    pub queue_bytes: usize,
    /// The longest pause between two attempts.
    pub longest_pause: Duration,
    /// How long pending records may be sent when the plant ends. The rest stays in the journal.
    pub linger: Duration,
}

impl KafkaSetting {
    /// Creates settings that send trades and the NBBO to topics whose names begin with `tapeworks.`.
    pub fn new(brokers: Vec<(String, u16)>) -> Self {
        Self {
            brokers,
            id: "tapeworks".to_owned(),
            topic: "tapeworks.{schema}".to_owned(),
            schemas: vec![Schema::Trades, Schema::Cmbp1],
            symbols: Vec::new(),
            create_topics: true,
            partitions: None,
            replicas: None,
            login: None,
            compression: KafkaCompression::default(),
            flush_every: Duration::from_millis(100),
            batch_records: 50_000,
            batch_bytes: 1_000_000,
            queue_bytes: 64 << 20,
            longest_pause: Duration::from_secs(5),
            linger: Duration::from_secs(5),
        }
    }

    /// Returns the topic of a schema's records.
    pub fn topic_of(&self, schema: Schema) -> String {
        self.topic.replace("{schema}", schema.as_str())
    }

    /// Returns the topic of the position.
    pub fn position_topic(&self) -> String {
        format!("{}.position", self.id)
    }

    /// Returns the brokers, for display and for Kafka's library.
    pub fn shown_brokers(&self) -> String {
        let each = self.brokers.iter().map(|(host, port)| format!("{host}:{port}"));
        each.collect::<Vec<_>>().join(",")
    }
}
