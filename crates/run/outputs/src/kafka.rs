//! The plant's records as Kafka messages, each exactly once.
//!
//! ```text
//! journal ─▶ engine, replica ──records──▶ messages ─┐
//!                               position ───────────┴─▶ one transaction
//! ```
//!
//! Each schema has a topic, and each record is a message whose key is its symbol. The output reads the journal, not the ring: it
//! makes the events of the journal's inputs again, and the records that a live client would get. A transaction contains records and
//! the journal position after them, so that Kafka has either both or neither. After an error, as after a crash, the output asks
//! Kafka for the position and continues from there: there is one path, not two. The position includes the last event before it,
//! which identifies the journal.
//!
//! Kafka identifies a producer by its `transactional.id`: the second producer with an id fences the first, which then stops.
//!
//! | module | what |
//! | --- | --- |
//! | `messages` | records as Protobuf |
//! | `position` | the position, and what a journal has to do with it |
//! | `broker` | the connection: topics, transactions, the position |
//! | `sink` | the thread: reads the journal, sends, begins again |
//!
//! Cost: a second engine with books beside the plant's, in one thread, and the threads of librdkafka. Pending records stay in the
//! journal; memory holds at most those of one transaction. An idle thread checks the journal every `flush_every`.

#![cfg_attr(
    feature = "kafka",
    expect(
        clippy::disallowed_methods,
        clippy::disallowed_types,
        reason = "its transport is a library that uses the system's sockets and clocks"
    )
)]

#[cfg(feature = "kafka")]
mod broker;
#[cfg(feature = "kafka")]
mod messages;
#[cfg(feature = "kafka")]
mod output;
#[cfg(feature = "kafka")]
mod position;
mod setting;
#[cfg(feature = "kafka")]
mod shared;
#[cfg(feature = "kafka")]
mod sink;
mod status;
#[cfg(feature = "kafka")]
mod trouble;

#[cfg(feature = "kafka")]
pub use output::{Kafka, KafkaStartError, start};
pub use setting::{KafkaCompression, KafkaLogin, KafkaMechanism, KafkaSetting};
#[cfg(feature = "kafka")]
pub use shared::KafkaFailure;
pub use status::KafkaStatus;
