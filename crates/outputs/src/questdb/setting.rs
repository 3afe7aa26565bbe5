//! The settings of the output into QuestDB.

use std::path::PathBuf;
use std::time::Duration;

use tapeworks_store::Schema;

/// The login at QuestDB.
#[derive(Clone, PartialEq, Eq)]
pub enum QuestDbLogin {
    /// A user with a password.
    User {
        /// The user.
        name: String,
        /// The password.
        password: String,
    },
    /// A token.
    Token(String),
}

impl std::fmt::Debug for QuestDbLogin {
    /// Without what is secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::User { name, .. } => f.debug_struct("User").field("name", name).finish_non_exhaustive(),
            Self::Token(_) => f.debug_struct("Token").finish_non_exhaustive(),
        }
    }
}

/// The records for QuestDB, and its address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QuestDbSetting {
    /// The server's name or address.
    pub host: String,
    /// Its port of HTTP.
    pub port: u16,
    /// A PEM file of authorities, one of which must have signed the server's certificate: rows and statements then go by TLS.
    pub authorities: Option<PathBuf>,
    /// The login.
    pub login: Option<QuestDbLogin>,
    /// The schemas whose records become rows.
    pub schemas: Vec<Schema>,
    /// The prefix of the tables' names.
    pub table_prefix: String,
    /// Bytes of records that may wait.
    pub queue_bytes: usize,
    /// Records wait at most so long before they are sent.
    pub flush_every: Duration,
    /// Whether records are sent from the journal: those that had no room, and the day's after a restart.
    pub send_again: bool,
    /// How long a request may take, besides the time for its bytes.
    pub timeout: Duration,
    /// The longest pause between two tries.
    pub longest_pause: Duration,
    /// How long waiting rows may be sent when the plant ends.
    pub linger: Duration,
}

impl QuestDbSetting {
    /// Trades and the NBBO to a server, in tables whose names begin with `tapeworks_`.
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self {
            host: host.into(),
            port,
            authorities: None,
            login: None,
            schemas: vec![Schema::Trades, Schema::Cmbp1],
            table_prefix: "tapeworks_".to_owned(),
            queue_bytes: 64 << 20,
            flush_every: Duration::from_millis(250),
            send_again: true,
            timeout: Duration::from_secs(10),
            longest_pause: Duration::from_secs(5),
            linger: Duration::from_secs(5),
        }
    }
}
