//! The plant's records as messages of Kafka, each once.
//!
//! ```text
//! journal ─▶ engine, replica ──records──▶ messages ─┐
//!                               position ───────────┴─▶ one transaction
//! ```
//!
//! Each schema has a topic, each record is a message whose key is its symbol. The output reads the journal, not the ring: it makes
//! the events of the journal's inputs again, and their records as a live client gets them. A transaction holds records and the
//! position behind them in the journal, so that both are in Kafka or neither is. After an error, as after a crash, the output asks Kafka
//! for the position and goes on from it: there is one path, not two. The position has the last event before it, by which
//! the journal is recognised.
//!
//! A producer of Kafka is known by its `transactional.id`: who comes second under one id fences the first, which then stops.
//!
//! | module | what |
//! | --- | --- |
//! | `messages` | records as Protobuf |
//! | `position` | the position, and what a journal has to do with it |
//! | `broker` | the connection: topics, transactions, the position |
//! | `sink` | the thread: reads the journal, sends, begins again |
//!
//! Cost: a second engine with books beside the plant's, in one thread, and the threads of librdkafka. Records that wait are in the journal;
//! in memory are at most those of one transaction. A thread that has nothing to send looks at the journal every `flush_every`.

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
