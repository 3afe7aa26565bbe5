//! The server: rows over HTTP with the InfluxDB line protocol, which acknowledges them, and tables through SQL.
//!
//! The client uses version 2 of the line protocol without asking for the server's version: it has binary numbers and nanosecond
//! timestamps, and QuestDB 9 supports it.
//!
//! Sources: QuestDB's *InfluxDB Line Protocol* and *REST API*, and the crate `questdb-rs`.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use questdb::ErrorCode;
use questdb::ingress::{Buffer, Protocol, ProtocolVersion, Sender, SenderBuilder};
use ureq::Agent;

use super::failure::QuestDbError;
use super::{QuestDbLogin, QuestDbSetting};
use crate::https;
use crate::text::one_line;

/// Maximum number of characters shown of a server's message.
const MOST_CHARACTERS: usize = 300;

/// The version of the line protocol.
const VERSION: ProtocolVersion = ProtocolVersion::V2;

/// Maximum number of bytes read of a response.
const LONGEST_ANSWER: u64 = 64 << 10;

/// Why rows were not accepted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum NotTaken {
    /// The server is unreachable or rejects the login, which may be temporary.
    Away(String),
    /// The server rejects these rows.
    Refused(String),
}

/// Connections to the server, opened on demand.
pub(super) struct Database {
    sender: Sender,
    agent: Agent,
    exec: String,
    authorization: Option<String>,
}

impl Database {
    /// Creates the clients, without connecting.
    pub(super) fn new(setting: &QuestDbSetting) -> Result<Self, QuestDbError> {
        let timeout = setting.timeout;
        let (host, port) = (setting.host.as_str(), setting.port);
        let (protocol, scheme) = match setting.authorities {
            None => (Protocol::Http, "http"),
            Some(_) => (Protocol::Https, "https"),
        };
        let build = || {
            let mut builder = SenderBuilder::new(protocol, host, port)
                .protocol_version(VERSION)?
                // The sender's thread retries, so that the status shows it.
                .retry_timeout(Duration::ZERO)?
                .request_timeout(timeout)?;
            if let Some(authorities) = &setting.authorities {
                builder = builder.tls_roots(authorities)?;
            }
            builder = match &setting.login {
                None => builder,
                Some(QuestDbLogin::Token(token)) => builder.token(token)?,
                Some(QuestDbLogin::User { name, password }) => builder.username(name)?.password(password)?,
            };
            builder.build()
        };
        let sender = build().map_err(|error| QuestDbError::Client { reason: error.msg().to_owned() })?;
        let mut agent = Agent::config_builder().timeout_global(Some(timeout)).http_status_as_error(false);
        if let Some(authorities) = &setting.authorities {
            let trusting = https::trusting(authorities)
                .map_err(|error| QuestDbError::Client { reason: error.to_string() })?;
            agent = agent.tls_config(trusting);
        }
        let authorization = setting.login.as_ref().map(|login| match login {
            QuestDbLogin::Token(token) => format!("Bearer {token}"),
            QuestDbLogin::User { name, password } => {
                format!("Basic {}", STANDARD.encode(format!("{name}:{password}")))
            }
        });
        let exec = format!("{scheme}://{host}:{port}/exec");
        Ok(Self { sender, agent: agent.build().into(), exec, authorization })
    }

    /// Creates an empty buffer for rows.
    pub(super) fn buffer(&self) -> Buffer {
        self.sender.new_buffer()
    }

    /// Executes a statement.
    pub(super) fn execute(&self, sql: &str) -> Result<(), NotTaken> {
        let mut request = self.agent.get(&self.exec).query("query", sql);
        if let Some(authorization) = &self.authorization {
            request = request.header("Authorization", authorization);
        }
        let away = |error: ureq::Error| NotTaken::Away(error.to_string());
        let mut answer = request.call().map_err(away)?;
        let status = answer.status();
        let body = answer.body_mut().with_config().limit(LONGEST_ANSWER).lossy_utf8(true);
        let body = body.read_to_string().map_err(away)?;
        if status.is_success() {
            return Ok(());
        }
        let answer: Option<serde_json::Value> = serde_json::from_str(&body).ok();
        let error = answer.as_ref().and_then(|answer| answer.get("error")?.as_str());
        match error {
            // An error in a statement comes with status 400.
            Some(error) if status.as_u16() == 400 => Err(NotTaken::Refused(one_line(error, MOST_CHARACTERS))),
            _ => Err(NotTaken::Away(format!("the server answers with {status}"))),
        }
    }

    /// Sends rows of one table. Once the server has answered, it has accepted all of them.
    pub(super) fn send(&mut self, rows: &Buffer) -> Result<(), NotTaken> {
        let Err(error) = self.sender.flush_and_keep(rows) else { return Ok(()) };
        let text = one_line(error.msg(), MOST_CHARACTERS);
        match error.code() {
            // An error response: either these rows are invalid, or the server cannot write at the moment. A server that executes a
            // statement can write.
            ErrorCode::ServerFlushError => self.execute("SELECT 1").and(Err(NotTaken::Refused(text))),
            ErrorCode::InvalidApiCall | ErrorCode::InvalidName | ErrorCode::InvalidTimestamp => {
                Err(NotTaken::Refused(text))
            }
            _ => Err(NotTaken::Away(text)),
        }
    }
}
