//! Errors of the brokers.

/// An error that may be temporary.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
pub(super) enum Trouble {
    /// No broker answers.
    #[error("no broker answers: {0}")]
    Away(String),
    /// The login was rejected.
    #[error("the broker refuses the login: {0}")]
    Login(String),
    /// The user lacks permission.
    #[error("the broker forbids {0}")]
    Forbidden(String),
    /// The topic does not exist.
    #[error("there is no topic {0}, and it is not created")]
    NoTopic(String),
    /// A batch is larger than the broker accepts.
    #[error("topic {0}: a batch is larger than its max.message.bytes; 'batch_kb' makes batches smaller")]
    TooLarge(String),
    /// The position's topic is not compacted, and would lose the position.
    #[error(
        "topic {0} is not compacted, so it would forget the position: its cleanup.policy must be \"compact\""
    )]
    NotCompacted(String),
    /// The position's topic contains something else.
    #[error("topic {topic}: the message at offset {offset} is no position")]
    NoPosition {
        /// The topic.
        topic: String,
        /// The message's offset.
        offset: i64,
    },
    /// Another error of Kafka's.
    #[error("{doing}: {error}")]
    Kafka {
        /// What failed.
        doing: String,
        /// The cause.
        error: String,
    },
    /// The journal cannot be read.
    #[error(transparent)]
    History(#[from] tapeworks_engine::history::HistoryError),
}

/// Why a session with the brokers ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Stop {
    /// The output retries after a pause.
    Trouble(Trouble),
    /// The brokers have fenced this producer: another one has its id, or its transaction was open for too long.
    Fenced(String),
    /// The plant has ended.
    Ended,
}

impl Trouble {
    /// Returns whether a connection alone does not prove the error resolved: records are refused although brokers are reachable.
    pub(super) const fn outlasts_a_connection(&self) -> bool {
        matches!(self, Self::NoTopic(_) | Self::Forbidden(_) | Self::TooLarge(_))
    }
}

impl From<Trouble> for Stop {
    fn from(trouble: Trouble) -> Self {
        Self::Trouble(trouble)
    }
}
