//! Publishes the NBBO and trades to a NATS server, for dashboards and remote programs.
//!
//! ```text
//! stream ─▶ queue of one subscription ─▶ thread "nats": subject, encoding ─▶ PREFIX.nbbo.SYMBOL ─▶ JetStream: the last of each
//!                                                                        └▶ PREFIX.trade.SYMBOL
//! ```
//!
//! The publisher is a client of the [stream](tapeworks_outputs::stream), like the WebSocket clients. It never delays the plant: records that find
//! no room in its queue are conflated or dropped, and counted. This file contains the settings and the status, which exist in every build.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tapeworks_runtime::config::{Reading, Section, host_and_port};
use tapeworks_runtime::secrets::{Secret, check_secret};

use crate::tls;

#[cfg(feature = "nats")]
pub mod publisher;

/// Credentials for the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NatsLogin {
    /// A user with a password.
    User {
        /// The user name.
        name: String,
        /// The password.
        password: Secret,
    },
    /// A token.
    Token(Secret),
}

impl NatsLogin {
    /// Returns the secret part.
    pub const fn secret(&self) -> &Secret {
        match self {
            Self::User { password, .. } | Self::Token(password) => password,
        }
    }
}

/// How records are encoded.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum NatsEncoding {
    /// The JSON of the stream.
    #[default]
    Json,
    /// Protobuf.
    Protobuf,
}

/// The servers, and the records to publish there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NatsSetting {
    /// Host names or addresses, with ports. The client connects to one of them, chosen in random order.
    pub servers: Vec<(String, u16)>,
    /// PEM file of certificate authorities. If present, the connection uses TLS, and one of them must have signed the server's certificate.
    pub authorities: Option<PathBuf>,
    /// The login, if the server requires one.
    pub login: Option<NatsLogin>,
    /// Prefix of every subject.
    pub prefix: String,
    /// Whether to publish the NBBO.
    pub nbbo: bool,
    /// Whether to publish trades.
    pub trades: bool,
    /// How records are encoded.
    pub encoding: NatsEncoding,
    /// JetStream's stream that stores the last NBBO of each symbol, if configured.
    pub stream: Option<String>,
    /// Maximum number of records queued for the server.
    pub queue_records: usize,
    /// Maximum time for the server to accept a connection, and to confirm records.
    pub timeout: Duration,
    /// The longest pause between two attempts to connect.
    pub longest_pause: Duration,
    /// How long queued records may still be published when the plant ends.
    pub linger: Duration,
}

impl NatsSetting {
    /// Publishes the NBBO and trades as JSON under `tapeworks`; JetStream stores the last NBBO of each symbol.
    pub fn new(servers: Vec<(String, u16)>) -> Self {
        Self {
            servers,
            authorities: None,
            login: None,
            prefix: "tapeworks".to_owned(),
            nbbo: true,
            trades: true,
            encoding: NatsEncoding::default(),
            stream: Some("TAPEWORKS".to_owned()),
            queue_records: 65_536,
            timeout: Duration::from_secs(10),
            longest_pause: Duration::from_secs(5),
            linger: Duration::from_secs(5),
        }
    }

    /// Returns the servers as text for users.
    pub fn shown_servers(&self) -> String {
        let each = self.servers.iter().map(|(host, port)| format!("{host}:{port}"));
        each.collect::<Vec<_>>().join(", ")
    }
}

/// The status of the output to NATS.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct NatsStatus {
    /// Whether a server is connected.
    pub is_connected: bool,
    /// Whether JetStream currently stores the last NBBO of each symbol.
    pub is_storing: bool,
    /// Records that the server has confirmed.
    pub records: u64,
    /// NBBOs that JetStream has confirmed as stored.
    pub stored: u64,
    /// Records in the queue.
    pub waiting: u64,
    /// Records published but not yet confirmed.
    pub in_flight: u64,
    /// NBBO changes replaced by later changes of the same symbol while the queue was full.
    pub conflated: u64,
    /// Trades dropped because the queue was full.
    pub dropped_trades: u64,
    /// Gaps dropped because the queue was full.
    pub dropped_gaps: u64,
    /// Times that the queue was full.
    pub lagged: u64,
    /// Records published on a connection that broke before the server confirmed them. The server may have received them. The
    /// last NBBOs are published again.
    pub unconfirmed: u64,
    /// Records left in the queue when the plant ended.
    pub lost: u64,
    /// Connections established.
    pub connects: u64,
    /// Connections that failed or broke.
    pub failures: u64,
    /// Errors sent by the server, for example for a forbidden subject.
    pub refused: u64,
    /// Times that JetStream failed to store an NBBO. All NBBOs are published again afterwards.
    pub store_failures: u64,
    /// The last error, until the server accepts records again.
    pub error: Option<String>,
}

/// Reads the status of a running publisher.
#[derive(Clone)]
pub struct NatsHandle(Arc<dyn Fn() -> NatsStatus + Send + Sync>);

impl NatsHandle {
    /// Creates a handle that calls `read` for the status.
    pub fn new(read: impl Fn() -> NatsStatus + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    /// Returns the current status.
    pub fn status(&self) -> NatsStatus {
        (self.0)()
    }
}

impl fmt::Debug for NatsHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.status().fmt(f)
    }
}

/// Converts a symbol to a token of a subject. `.`, `*`, `>`, space and `%` are percent-encoded, as in `BRK%2EB`.
pub fn token_of(symbol: &str) -> String {
    let mut token = String::with_capacity(symbol.len());
    for letter in symbol.chars() {
        match letter {
            '.' => token.push_str("%2E"),
            '*' => token.push_str("%2A"),
            '>' => token.push_str("%3E"),
            ' ' => token.push_str("%20"),
            '%' => token.push_str("%25"),
            letter => token.push(letter),
        }
    }
    token
}

/// Parses `nats://host:port`, with or without the scheme.
fn server(text: &str) -> Option<(String, u16)> {
    host_and_port(text.strip_prefix("nats://").unwrap_or(text))
}

/// Returns whether the text is tokens of letters, digits, `-` and `_`, joined by dots.
fn is_subject(text: &str) -> bool {
    let is_token = |token: &str| {
        !token.is_empty()
            && token.chars().all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_'))
    };
    text.len() <= 128 && text.split('.').all(is_token)
}

/// Reads the section `[nats]`. Relative paths start in the folder `beside`.
pub(crate) fn read(reading: &mut Reading<'_>, top: &mut Section<'_>, beside: &Path) -> Option<NatsSetting> {
    let mut section = top.table(reading, "nats")?;
    if cfg!(not(feature = "nats")) {
        top.wrong_at(reading, "nats", "this program was built without the feature 'nats'");
    }
    let what = "a server's name or address with its port such as 127.0.0.1:4222";
    let servers = section.each(reading, "servers", what, server);
    if !section.has("servers") {
        section.missing(reading, "servers");
    }
    let mut setting = NatsSetting::new(servers.clone().unwrap_or_default());
    setting.authorities = section.text(reading, "authorities").map(|(path, _)| beside.join(path));
    tls::check(reading, &section, "authorities", setting.authorities.is_some());
    let what = "at most 128 letters, digits, '-', '_' and points between them";
    let prefix = section.parsed(reading, "prefix", what, |text| is_subject(text).then(|| text.to_owned()));
    setting.prefix = prefix.unwrap_or(setting.prefix);
    let encodings = [NatsEncoding::Json, NatsEncoding::Protobuf];
    let encoding = section.choice(reading, "encoding", &encodings, |encoding| match encoding {
        NatsEncoding::Json => "json",
        NatsEncoding::Protobuf => "protobuf",
    });
    setting.encoding = encoding.unwrap_or_default();
    let known = |text: &str| ["nbbo", "trades"].into_iter().find(|name| *name == text);
    if let Some(schemas) = section.each(reading, "schemas", "\"nbbo\" or \"trades\"", known) {
        (setting.nbbo, setting.trades) = (schemas.contains(&"nbbo"), schemas.contains(&"trades"));
    }
    let keeps = section.boolean(reading, "jetstream");
    let what = "at most 128 letters, digits, '-' and '_'";
    let stream = section.parsed(reading, "stream", what, |text| {
        (is_subject(text) && !text.contains('.')).then(|| text.to_owned())
    });
    if keeps == Some(false) && section.has("stream") {
        section.wrong_at(reading, "stream", "a stream needs 'jetstream'");
    }
    if keeps == Some(true) && !setting.nbbo {
        section.wrong_at(reading, "jetstream", "JetStream keeps the NBBO, which is not among the 'schemas'");
    }
    let keeps = keeps.unwrap_or(setting.nbbo) && setting.nbbo;
    setting.stream = stream.or(setting.stream).filter(|_| keeps);
    let queue = section.integer(reading, "queue_records", 16..=1 << 24);
    setting.queue_records = queue.map_or(setting.queue_records, |(records, _)| records);
    let has_token = Secret::is_in(&section, Secret::TOKEN);
    let token = Secret::read(reading, &mut section, Secret::TOKEN, beside, check_secret);
    let user = section.table(reading, "login").and_then(|mut login| {
        let name = login.required_text(reading, "user").map(|(name, _)| name);
        if !Secret::is_in(&login, Secret::PASSWORD) {
            login.missing(reading, "password");
        }
        let password = Secret::read(reading, &mut login, Secret::PASSWORD, beside, check_secret);
        login.refuse_the_rest(reading);
        Some(NatsLogin::User { name: name?, password: password? })
    });
    if has_token && section.has("login") {
        section.wrong_at(reading, "login", "there is a token already: one of both is enough");
    }
    setting.login = user.or(token.map(NatsLogin::Token));
    section.refuse_the_rest(reading);
    servers.map(|_| setting)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_symbol_is_one_token_and_no_two_symbols_have_the_same() {
        for (symbol, token) in [
            ("AAPL", "AAPL"),
            ("BRK.B", "BRK%2EB"),
            ("SPX   260117C05000000", "SPX%20%20%20260117C05000000"),
            ("A*>", "A%2A%3E"),
            ("A%2E", "A%252E"),
        ] {
            assert_eq!(token_of(symbol), token);
        }
    }

    #[test]
    fn prefixes_have_whole_tokens() {
        for (text, is_one) in
            [("md", true), ("md.us-1", true), ("md.", false), ("", false), ("m d", false), ("md.>", false)]
        {
            assert_eq!(is_subject(text), is_one, "{text}");
        }
    }
}
