//! The NBBO and trades to a server of NATS, for dashboards and for programs far away.
//!
//! ```text
//! stream ─▶ queue of one subscription ─▶ thread "nats": subject, encoding ─▶ PREFIX.nbbo.SYMBOL ─▶ JetStream: the last of each
//!                                                                        └▶ PREFIX.trade.SYMBOL
//! ```
//!
//! The publisher is a client of the [stream](tapeworks_outputs::stream) as those over WebSockets are: it never delays the plant, and what finds
//! no room in its queue is conflated or dropped, and counted. This file has the settings and the status, which every build knows.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tapeworks_runtime::config::{Reading, Section, host_and_port};
use tapeworks_runtime::secrets::{Secret, check_secret};

use crate::tls;

#[cfg(feature = "nats")]
pub mod publisher;

/// The login at the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NatsLogin {
    /// A user with a password.
    User {
        /// The user.
        name: String,
        /// The password.
        password: Secret,
    },
    /// A token.
    Token(Secret),
}

impl NatsLogin {
    /// Its secret.
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

/// The servers, and what is published there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NatsSetting {
    /// Names or addresses with their ports. One is connected to, in an order by chance.
    pub servers: Vec<(String, u16)>,
    /// A PEM file of authorities, one of which must have signed the server's certificate: the connection is by TLS then.
    pub authorities: Option<PathBuf>,
    /// The login.
    pub login: Option<NatsLogin>,
    /// What subjects begin with.
    pub prefix: String,
    /// Whether the NBBO is published.
    pub nbbo: bool,
    /// Whether trades are.
    pub trades: bool,
    /// How records are encoded.
    pub encoding: NatsEncoding,
    /// The stream of JetStream that keeps the last NBBO of each symbol, if there is to be one.
    pub stream: Option<String>,
    /// Records that may wait for the server.
    pub queue_records: usize,
    /// How long the server may take to connect and to confirm what it has got.
    pub timeout: Duration,
    /// The longest pause between two tries.
    pub longest_pause: Duration,
    /// How long waiting records may be published when the plant ends.
    pub linger: Duration,
}

impl NatsSetting {
    /// The NBBO and trades as JSON, the last NBBO of each symbol kept by JetStream, under `tapeworks`.
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

    /// The servers for people.
    pub fn shown_servers(&self) -> String {
        let each = self.servers.iter().map(|(host, port)| format!("{host}:{port}"));
        each.collect::<Vec<_>>().join(", ")
    }
}

/// The counters of the output to NATS.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct NatsStatus {
    /// Whether there is a connection to a server.
    pub is_connected: bool,
    /// Whether JetStream keeps the last NBBO of each symbol now.
    pub is_storing: bool,
    /// Records that the server has confirmed to have got.
    pub records: u64,
    /// NBBOs that JetStream has confirmed to keep.
    pub stored: u64,
    /// Records that wait.
    pub waiting: u64,
    /// Records that are published and not confirmed yet.
    pub in_flight: u64,
    /// Changes of an NBBO that gave way to later ones of the same symbol while the queue was full.
    pub conflated: u64,
    /// Trades for which there was no room.
    pub dropped_trades: u64,
    /// Gaps for which there was no room.
    pub dropped_gaps: u64,
    /// Times that the queue was full.
    pub lagged: u64,
    /// Records that were published on a connection that broke before the server confirmed them. It may have got them. The last NBBOs are
    /// published again.
    pub unconfirmed: u64,
    /// Records that waited at the end of the plant.
    pub lost: u64,
    /// Connections that were made.
    pub connects: u64,
    /// Connections that could not be made or that broke.
    pub failures: u64,
    /// Errors that the server sent: that it forbids a subject, for one.
    pub refused: u64,
    /// Times that JetStream did not keep an NBBO. All are published again after it.
    pub store_failures: u64,
    /// The last error, until the server takes records again.
    pub error: Option<String>,
}

/// Reads the status of a running publisher.
#[derive(Clone)]
pub struct NatsHandle(Arc<dyn Fn() -> NatsStatus + Send + Sync>);

impl NatsHandle {
    /// A handle whose status `read` gives.
    pub fn new(read: impl Fn() -> NatsStatus + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    /// The status now.
    pub fn status(&self) -> NatsStatus {
        (self.0)()
    }
}

impl fmt::Debug for NatsHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.status().fmt(f)
    }
}

/// A symbol as a token of a subject: `.`, `*`, `>`, the space and `%` are written as in a URL, such as `BRK%2EB`.
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

/// `nats://host:port`, or without the scheme.
fn server(text: &str) -> Option<(String, u16)> {
    host_and_port(text.strip_prefix("nats://").unwrap_or(text))
}

/// Tokens of letters, digits, `-` and `_`, joined by points.
fn is_subject(text: &str) -> bool {
    let is_token = |token: &str| {
        !token.is_empty()
            && token.chars().all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_'))
    };
    text.len() <= 128 && text.split('.').all(is_token)
}

/// Reads `[nats]` of a configuration whose paths start at `beside`.
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
