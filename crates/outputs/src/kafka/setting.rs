//! The settings of the output into Kafka.

use std::time::Duration;

use tapeworks_runtime::secrets::Secret;
use tapeworks_store::Schema;

/// How a password is shown to the broker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KafkaMechanism {
    /// As it is.
    Plain,
}

impl KafkaMechanism {
    /// All.
    pub const ALL: [Self; 1] = [Self::Plain];

    /// Its name in Kafka.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Plain => "PLAIN",
        }
    }
}

/// The login at the broker, by SASL.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KafkaLogin {
    /// How the password is shown.
    pub mechanism: KafkaMechanism,
    /// The user.
    pub user: String,
    /// The password.
    pub password: Secret,
}

/// How batches of messages are compressed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum KafkaCompression {
    /// Not.
    None,
    /// The slowest and smallest.
    Gzip,
    /// Quick.
    Snappy,
    /// The quickest.
    #[default]
    Lz4,
}

impl KafkaCompression {
    /// All.
    pub const ALL: [Self; 4] = [Self::None, Self::Gzip, Self::Snappy, Self::Lz4];

    /// Its name in Kafka.
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
    /// Names or addresses with their ports, of which one must answer.
    pub brokers: Vec<(String, u16)>,
    /// What Kafka knows this output by: the `transactional.id`. The position is in the topic of this name with `.position`.
    pub id: String,
    /// The name of a schema's topic, where `{schema}` stands for the schema.
    pub topic: String,
    /// The schemas whose records are sent.
    pub schemas: Vec<Schema>,
    /// The symbols whose records are sent; all, and records of whole venues, if there are none.
    pub symbols: Vec<String>,
    /// Whether missing topics are created.
    pub create_topics: bool,
    /// The partitions of created topics; the broker's default if none. The position's topic has one.
    pub partitions: Option<u16>,
    /// The replicas of created topics; the broker's default if none.
    pub replicas: Option<u16>,
    /// The login.
    pub login: Option<KafkaLogin>,
    /// How batches are compressed.
    pub compression: KafkaCompression,
    /// A transaction is committed when it is so old.
    pub flush_every: Duration,
    /// And when it has so many records, or a few thousand more.
    pub batch_records: usize,
    /// The most bytes of one batch of messages, which is what a broker's `message.max.bytes` bounds.
    pub batch_bytes: usize,
    /// Bytes of records that may wait for the broker.
    pub queue_bytes: usize,
    /// The longest pause between two tries.
    pub longest_pause: Duration,
    /// How long waiting records may be sent when the plant ends. The others stay in the journal.
    pub linger: Duration,
}

impl KafkaSetting {
    /// Trades and the NBBO to topics whose names begin with `tapeworks.`.
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

    /// The topic of a schema's records.
    pub fn topic_of(&self, schema: Schema) -> String {
        self.topic.replace("{schema}", schema.as_str())
    }

    /// The topic of the position.
    pub fn position_topic(&self) -> String {
        format!("{}.position", self.id)
    }

    /// The brokers for people, and for Kafka's library.
    pub fn shown_brokers(&self) -> String {
        let each = self.brokers.iter().map(|(host, port)| format!("{host}:{port}"));
        each.collect::<Vec<_>>().join(",")
    }
}
