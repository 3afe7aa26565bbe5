//! The settings of the QuestDB output.

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
    /// Omits the secrets.
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
    /// Its HTTP port.
    pub port: u16,
    /// A PEM file of certificate authorities, one of which must have signed the server's certificate; if set, rows and statements
    /// are sent over TLS.
    pub authorities: Option<PathBuf>,
    /// The login.
    pub login: Option<QuestDbLogin>,
    /// The schemas to send.
    pub schemas: Vec<Schema>,
    /// The prefix of the table names.
    pub table_prefix: String,
    /// Maximum bytes of queued records.
    pub queue_bytes: usize,
    /// Maximum time that records wait before they are sent.
    pub flush_every: Duration,
    /// Whether to send records from the journal: those without room in the queue, and the whole day's after a restart.
    pub send_again: bool,
    /// Time limit of a request, in addition to the time for its bytes.
    pub timeout: Duration,
    /// The longest pause between two attempts.
    pub longest_pause: Duration,
    /// How long queued rows may be sent when the plant ends.
    pub linger: Duration,
}

impl QuestDbSetting {
    /// Creates settings that send trades and the NBBO to a server, in tables whose names begin with `tapeworks_`.
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
