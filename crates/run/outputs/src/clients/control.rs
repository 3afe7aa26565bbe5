//! The control protocol of a session: lines in, requests out. No socket, no clock.
//!
//! A line consists of `key=value` pairs joined by `|`, in UTF-8, and ends with `\n`. A session looks like this:
//!
//! ```text
//! server  lsg_version=...            cram=CHALLENGE
//! client  auth=HEX-BUCKET|dataset=...|encoding=dbn|compression=none|ts_out=0|...
//! server  success=1|session_id=...   or success=0|error=... and the end
//! client  schema=...|stype_in=raw_symbol|symbols=A,B|snapshot=0|is_last=1      any number of them
//! client  start_session
//! server  DBN, for ever; more subscriptions may come
//! ```
//!
//! The format is that of Databento's raw live API, as its public clients (Python and Rust) write and read it. Unknown keys are
//! ignored, because clients add new ones. All sizes are bounded: see [`Limits`].

use std::str::FromStr;

use tapeworks_market::{InstrumentId, Symbol};
use tapeworks_store::Schema;
use tapeworks_store::live::instrument_of;
use tapeworks_time::Nanos;

/// The limits of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Bytes per line, including the newline.
    pub line_bytes: usize,
    /// Lines per session.
    pub lines: u64,
    /// Symbols of all subscriptions of a session together.
    pub symbols: usize,
    /// Pending subscriptions with a snapshot.
    pub snapshots: usize,
    /// Nanoseconds from the connection to a successful authentication.
    pub authentication_ns: u64,
}

impl Default for Limits {
    /// Lines of 64 KiB (the clients send 500 symbols in one), 10,000 lines, 100,000 symbols, 1,000 snapshots, 10 s.
    fn default() -> Self {
        Self {
            line_bytes: 1 << 16,
            lines: 10_000,
            symbols: 100_000,
            snapshots: 1_000,
            authentication_ns: 10 * Nanos::SECOND,
        }
    }
}

/// Why a session ends. The client is sent the text.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Refusal {
    /// A line is too long.
    #[error("a line is longer than {limit} bytes")]
    LineTooLong {
        /// The limit.
        limit: usize,
    },
    /// There were too many lines.
    #[error("more than {limit} lines in a session")]
    TooManyLines {
        /// The limit.
        limit: u64,
    },
    /// A line does not follow the protocol.
    #[error("'{line}' is no {expected}")]
    Unexpected {
        /// The start of the line.
        line: String,
        /// The expected commands.
        expected: &'static str,
    },
    /// A line lacks a key.
    #[error("'{key}' is missing")]
    Missing {
        /// The key.
        key: &'static str,
    },
    /// A key occurs twice.
    #[error("'{key}' is there twice")]
    Twice {
        /// The key.
        key: String,
    },
    /// A value is invalid.
    #[error("{key}={value}: expected {expected}")]
    BadValue {
        /// The key.
        key: &'static str,
        /// The start of the value.
        value: String,
        /// The permitted values.
        expected: String,
    },
    /// The response to the challenge does not match any key.
    #[error("authentication failed")]
    AuthenticationFailed,
    /// The client did not authenticate in time.
    #[error("no authentication within {seconds} s")]
    TooLate {
        /// The limit.
        seconds: u64,
    },
    /// The server does not have the dataset.
    #[error("unknown dataset '{dataset}'")]
    UnknownDataset {
        /// The dataset.
        dataset: String,
    },
    /// The key may not see the dataset.
    #[error("the key is not entitled to dataset '{dataset}'")]
    NotEntitled {
        /// The dataset.
        dataset: String,
    },
    /// The key, or the server, has reached its maximum number of connections.
    #[error("more than {limit} connections at once, max_connections of {of}")]
    TooManyConnections {
        /// The limit.
        limit: usize,
        /// The limit's name in the plant's configuration.
        of: &'static str,
    },
    /// There are too many symbols in the subscriptions.
    #[error("more than {limit} symbols in a session")]
    TooManySymbols {
        /// The limit.
        limit: usize,
    },
    /// The client requests snapshots faster than it reads them.
    #[error("more than {limit} snapshots wait for this client")]
    TooManySnapshots {
        /// The limit.
        limit: usize,
    },
    /// The connection ended before the TLS handshake was complete.
    #[error("no TLS: {reason}")]
    NoTls {
        /// Why.
        reason: String,
    },
    /// A subscription cannot be served.
    #[error("{reason}")]
    Subscription {
        /// Why.
        reason: String,
    },
}

/// The kinds of refusals, for counting.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reason {
    /// Lines that do not follow the protocol, or have invalid values.
    Garbage,
    /// A limit of the session was exceeded.
    Limit,
    /// Authentication failed.
    Authentication,
    /// No authentication in time.
    Late,
    /// A dataset that does not exist, or that this key may not read.
    Entitlement,
    /// Too many connections.
    Connections,
    /// A subscription that cannot be served.
    Subscription,
    /// The TLS handshake failed.
    Tls,
}

impl Reason {
    /// Every reason.
    pub const ALL: [Self; 8] = [
        Self::Garbage,
        Self::Limit,
        Self::Authentication,
        Self::Late,
        Self::Entitlement,
        Self::Connections,
        Self::Subscription,
        Self::Tls,
    ];

    /// Returns its name in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Garbage => "garbage",
            Self::Limit => "limit",
            Self::Authentication => "authentication",
            Self::Late => "late",
            Self::Entitlement => "entitlement",
            Self::Connections => "connections",
            Self::Subscription => "subscription",
            Self::Tls => "tls",
        }
    }
}

impl Refusal {
    /// Returns the kind of refusal.
    pub const fn reason(&self) -> Reason {
        match self {
            Self::LineTooLong { .. }
            | Self::TooManyLines { .. }
            | Self::TooManySymbols { .. }
            | Self::TooManySnapshots { .. } => Reason::Limit,
            Self::Unexpected { .. } | Self::Missing { .. } | Self::Twice { .. } | Self::BadValue { .. } => {
                Reason::Garbage
            }
            Self::AuthenticationFailed => Reason::Authentication,
            Self::TooLate { .. } => Reason::Late,
            Self::UnknownDataset { .. } | Self::NotEntitled { .. } => Reason::Entitlement,
            Self::TooManyConnections { .. } => Reason::Connections,
            Self::Subscription { .. } => Reason::Subscription,
            Self::NoTls { .. } => Reason::Tls,
        }
    }
}

/// The policy for a client that reads more slowly than its records arrive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum SlowReader {
    /// The client is warned, and its session ends when its queue is full.
    #[default]
    Warn,
    /// Records are skipped, and the client is sent their number.
    Skip,
    /// Only the last quote of each instrument is kept; other records are treated as with [`SlowReader::Warn`]. Databento's gateway
    /// does not offer this.
    Conflate,
}

impl SlowReader {
    /// Returns its name in the protocol.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Warn => "warn",
            Self::Skip => "skip",
            Self::Conflate => "conflate",
        }
    }
}

/// An admitted client: its key, and the settings of its session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Admitted {
    /// The index of its key.
    pub key: usize,
    /// The dataset.
    pub dataset: String,
    /// Whether the stream is compressed with Zstandard.
    pub is_compressed: bool,
    /// Whether records carry their send time.
    pub has_ts_out: bool,
    /// Nanoseconds of silence before a heartbeat is sent.
    pub heartbeat_ns: u64,
    /// The policy for a slow client.
    pub slow_reader: SlowReader,
    /// The client's own name.
    pub client: String,
}

/// The instruments of a subscription.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// Every instrument.
    All,
    /// These symbols.
    Symbols(Vec<Symbol>),
    /// These instruments, by the number that records carry.
    Instruments(Vec<InstrumentId>),
}

/// A subscription, or part of one: long lists are sent in several lines.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Subscription {
    /// The schema of the records.
    pub schema: Schema,
    /// The instruments.
    pub wanted: Wanted,
    /// The start time; `None` for live records only.
    pub start: Option<Nanos>,
    /// Whether a snapshot of the current state comes first.
    pub has_snapshot: bool,
    /// The client's number for the subscription.
    pub id: Option<u32>,
    /// Whether this is the last line of the subscription.
    pub is_last: bool,
}

/// A client's request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// The client has authenticated, and may subscribe.
    Admit(Admitted),
    /// Adds a subscription.
    Subscribe(Subscription),
    /// Ends a subscription.
    Unsubscribe(Subscription),
    /// Begins the stream.
    Start,
}

/// The default heartbeat interval, in s.
const HEARTBEAT_S: u64 = 30;

/// The longest heartbeat interval that a client may choose, in s: the official gateway's.
const MAX_HEARTBEAT_S: u64 = 1800;

/// Maximum bytes of a line or value that an error quotes.
const QUOTED_BYTES: usize = 40;

/// Returns the start of a client's text, without control characters and without the character that ends a value.
fn quoted(text: &str) -> String {
    let text = text.get(..text.floor_char_boundary(QUOTED_BYTES)).unwrap_or_default();
    text.chars().map(|one| if one.is_control() || one == '|' { '?' } else { one }).collect()
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Challenged,
    Admitted,
    Started,
    Ended,
}

/// The control protocol's state of one session.
#[derive(Debug)]
pub struct Session {
    limits: Limits,
    challenge: String,
    state: State,
    since: Nanos,
    line: Vec<u8>,
    lines: u64,
    symbols: usize,
}

/// Decides whether a client may connect, and to which datasets.
pub trait Authenticator {
    /// Returns the index of the key that answers `challenge` with `answer`. `bucket` is the part of the key that the client sends.
    fn find(&self, challenge: &str, answer: &[u8; 32], bucket: &str) -> Option<usize>;

    /// Decides whether the key with this index may have another connection, to `dataset`.
    ///
    /// # Errors
    /// [`Refusal`] if it may not.
    fn admit(&mut self, key: usize, dataset: &str) -> Result<(), Refusal>;
}

impl Session {
    /// Creates a session that begins at `now`. `challenge` must be random, and different for each session.
    pub fn new(challenge: [u8; 16], now: Nanos, limits: Limits) -> Self {
        Self {
            limits,
            challenge: hex::encode(challenge),
            state: State::Challenged,
            since: now,
            line: Vec::new(),
            lines: 0,
            symbols: 0,
        }
    }

    /// Returns the server's first lines.
    pub fn greeting(&self) -> String {
        format!("lsg_version=tapeworks-{}\ncram={}\n", env!("CARGO_PKG_VERSION"), self.challenge)
    }

    /// Returns the response to an admitted client.
    pub fn admission(session_id: u64) -> String {
        format!("success=1|session_id={session_id}\n")
    }

    /// Returns the response to a refused client.
    pub fn refusal(refusal: &Refusal) -> String {
        // A value cannot contain its own terminator.
        let reason = refusal.to_string().replace(['|', '\n', '\r'], "?");
        format!("success=0|error={reason}\n")
    }

    /// Returns whether the client has authenticated. From then on errors are sent in DBN; before that, in a line.
    pub const fn is_admitted(&self) -> bool {
        matches!(self.state, State::Admitted | State::Started)
    }

    /// Ends the session if the client did not authenticate in time.
    ///
    /// # Errors
    /// [`Refusal::TooLate`].
    pub fn check_time(&mut self, now: Nanos) -> Result<(), Refusal> {
        if self.state == State::Challenged && now.since(self.since) > self.limits.authentication_ns {
            self.state = State::Ended;
            return Err(Refusal::TooLate { seconds: self.limits.authentication_ns / Nanos::SECOND });
        }
        Ok(())
    }

    /// Processes bytes from the client, split anywhere, and appends its requests to `requests`.
    ///
    /// # Errors
    /// [`Refusal`] if the session ends; `requests` contains the earlier requests, and later bytes are ignored.
    pub fn receive(
        &mut self,
        bytes: &[u8],
        authenticator: &mut dyn Authenticator,
        requests: &mut Vec<Request>,
    ) -> Result<(), Refusal> {
        let mut rest = bytes;
        while self.state != State::Ended && !rest.is_empty() {
            let end = rest.iter().position(|byte| *byte == b'\n');
            let (part, after) = rest.split_at(end.unwrap_or(rest.len()));
            let length = self.line.len() + part.len() + usize::from(end.is_some());
            if length > self.limits.line_bytes {
                return Err(self.end(Refusal::LineTooLong { limit: self.limits.line_bytes }));
            }
            self.line.extend_from_slice(part);
            if end.is_none() {
                break;
            }
            rest = after.get(1..).unwrap_or_default();
            let line = std::mem::take(&mut self.line);
            match self.take_line(&line, authenticator) {
                Ok(request) => requests.push(request),
                Err(refusal) => return Err(self.end(refusal)),
            }
            self.line = line;
            self.line.clear();
        }
        Ok(())
    }

    fn end(&mut self, refusal: Refusal) -> Refusal {
        self.state = State::Ended;
        self.line = Vec::new();
        refusal
    }

    fn take_line(&mut self, line: &[u8], authenticator: &mut dyn Authenticator) -> Result<Request, Refusal> {
        self.lines += 1;
        if self.lines > self.limits.lines {
            return Err(Refusal::TooManyLines { limit: self.limits.lines });
        }
        let expected = match self.state {
            State::Challenged => "authentication request (auth=...|dataset=...)",
            _ => "subscription (schema=...|symbols=...) or start_session",
        };
        let text = std::str::from_utf8(line)
            .map_err(|_| Refusal::Unexpected { line: quoted(&String::from_utf8_lossy(line)), expected })?;
        let fields = Fields::parse(text.trim_end_matches('\r'))?;
        let unexpected = || Refusal::Unexpected { line: quoted(text), expected };
        match self.state {
            State::Challenged if fields.has("auth") => {
                let admitted = self.authenticate(&fields, authenticator)?;
                self.state = State::Admitted;
                Ok(Request::Admit(admitted))
            }
            State::Admitted | State::Started if fields.has("unsubscribe") => {
                Ok(Request::Unsubscribe(self.subscription(&fields)?))
            }
            State::Admitted | State::Started if fields.has("schema") => {
                Ok(Request::Subscribe(self.subscription(&fields)?))
            }
            State::Admitted if fields.has("start_session") => {
                self.state = State::Started;
                Ok(Request::Start)
            }
            _ => Err(unexpected()),
        }
    }

    fn authenticate(
        &self,
        fields: &Fields<'_>,
        authenticator: &mut dyn Authenticator,
    ) -> Result<Admitted, Refusal> {
        let (answer, bucket) =
            fields.required("auth")?.split_once('-').ok_or(Refusal::AuthenticationFailed)?;
        let mut hash = [0; 32];
        hex::decode_to_slice(answer, &mut hash).map_err(|_| Refusal::AuthenticationFailed)?;
        let key = authenticator.find(&self.challenge, &hash, bucket).ok_or(Refusal::AuthenticationFailed)?;
        let dataset = fields.required("dataset")?;
        fields.one_of("encoding", Some("dbn"), &[("dbn", ())])?;
        let is_compressed = fields.one_of("compression", Some("none"), &[("none", false), ("zstd", true)])?;
        let has_ts_out = fields.flag("ts_out")?;
        let behaviors =
            [SlowReader::Warn, SlowReader::Skip, SlowReader::Conflate].map(|one| (one.as_str(), one));
        let slow_reader = fields.one_of("slow_reader_behavior", Some("warn"), &behaviors)?;
        let heartbeat_s: u64 = fields.number("heartbeat_interval_s")?.unwrap_or(HEARTBEAT_S);
        if !(1..=MAX_HEARTBEAT_S).contains(&heartbeat_s) {
            return Err(Refusal::BadValue {
                key: "heartbeat_interval_s",
                value: heartbeat_s.to_string(),
                expected: format!("1 to {MAX_HEARTBEAT_S}"),
            });
        }
        authenticator.admit(key, dataset)?;
        Ok(Admitted {
            key,
            dataset: dataset.to_owned(),
            is_compressed,
            has_ts_out,
            heartbeat_ns: heartbeat_s * Nanos::SECOND,
            slow_reader,
            client: quoted(fields.get("client").unwrap_or_default()),
        })
    }

    fn subscription(&mut self, fields: &Fields<'_>) -> Result<Subscription, Refusal> {
        let name = fields.required("schema")?;
        let schema = Schema::from_str(name).map_err(|_| {
            let names: Vec<_> = Schema::ALL.iter().map(|schema| schema.as_str()).collect();
            Refusal::BadValue {
                key: "schema",
                value: quoted(name),
                expected: format!("one of {}", names.join(", ")),
            }
        })?;
        let is_by_number = fields.one_of(
            "stype_in",
            Some("raw_symbol"),
            &[("raw_symbol", false), ("instrument_id", true)],
        )?;
        let wanted = self.wanted(fields.required("symbols")?, is_by_number)?;
        let subscription = Subscription {
            schema,
            wanted,
            start: fields.number("start")?.map(Nanos),
            has_snapshot: fields.flag("snapshot")?,
            id: fields.number("id")?,
            is_last: !fields.has("is_last") || fields.flag("is_last")?,
        };
        let refuse = |reason: &str| Err(Refusal::Subscription { reason: reason.to_owned() });
        if subscription.start.is_some() && subscription.has_snapshot {
            return refuse("a subscription has either snapshot=1 or start=, not both");
        }
        if subscription.start.is_some() && self.state == State::Started {
            return refuse("start= is for subscriptions before start_session");
        }
        Ok(subscription)
    }

    fn wanted(&mut self, list: &str, is_by_number: bool) -> Result<Wanted, Refusal> {
        if list == "ALL_SYMBOLS" {
            return Ok(Wanted::All);
        }
        self.symbols = self.symbols.saturating_add(list.split(',').count());
        if self.symbols > self.limits.symbols {
            return Err(Refusal::TooManySymbols { limit: self.limits.symbols });
        }
        let bad = |one: &str, expected: &str| Refusal::BadValue {
            key: "symbols",
            value: quoted(one),
            expected: expected.to_owned(),
        };
        if is_by_number {
            let instrument = |one: &str| one.parse().ok().and_then(instrument_of);
            let list = list.split(',').map(|one| {
                instrument(one).ok_or_else(|| bad(one, "instrument numbers from 1 on, or ALL_SYMBOLS"))
            });
            return Ok(Wanted::Instruments(list.collect::<Result<_, _>>()?));
        }
        let list = list.split(',').map(|one| {
            Symbol::parse(one).filter(|_| one != "ALL_SYMBOLS").ok_or_else(|| {
                bad(one, "symbols of 1 to 21 characters, joined by commas, or ALL_SYMBOLS alone")
            })
        });
        Ok(Wanted::Symbols(list.collect::<Result<_, _>>()?))
    }
}

/// The pairs of a line.
struct Fields<'a> {
    pairs: Vec<(&'a str, &'a str)>,
}

impl<'a> Fields<'a> {
    fn parse(line: &'a str) -> Result<Self, Refusal> {
        let mut pairs: Vec<(&str, &str)> = Vec::new();
        // More keys than any line has, with room for keys that clients may add.
        for part in line.splitn(32, '|') {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            if pairs.iter().any(|(known, _)| *known == key) {
                return Err(Refusal::Twice { key: quoted(key) });
            }
            pairs.push((key, value));
        }
        Ok(Self { pairs })
    }

    fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    fn get(&self, key: &str) -> Option<&'a str> {
        self.pairs.iter().find(|(known, _)| *known == key).map(|(_, value)| *value)
    }

    fn required(&self, key: &'static str) -> Result<&'a str, Refusal> {
        self.get(key).filter(|value| !value.is_empty()).ok_or(Refusal::Missing { key })
    }

    /// Parses a value out of a fixed set; uses `otherwise` if the key is missing.
    fn one_of<T: Copy>(
        &self,
        key: &'static str,
        otherwise: Option<&str>,
        values: &[(&str, T)],
    ) -> Result<T, Refusal> {
        let value = self.get(key).or(otherwise).ok_or(Refusal::Missing { key })?;
        values.iter().find(|(name, _)| *name == value).map(|(_, value)| *value).ok_or_else(|| {
            let names: Vec<_> = values.iter().map(|(name, _)| *name).collect();
            Refusal::BadValue { key, value: quoted(value), expected: names.join(" or ") }
        })
    }

    fn flag(&self, key: &'static str) -> Result<bool, Refusal> {
        self.one_of(key, Some("0"), &[("0", false), ("1", true)])
    }

    fn number<T: FromStr>(&self, key: &'static str) -> Result<Option<T>, Refusal> {
        let Some(value) = self.get(key) else { return Ok(None) };
        value.parse().map(Some).map_err(|_| Refusal::BadValue {
            key,
            value: quoted(value),
            expected: "a whole number that is not negative".to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use tapeworks_runtime::keys::{Key, Keys};

    struct Open(Keys);

    impl Open {
        fn new() -> Self {
            Self(Keys::new(vec![Key::new("demo", "db-TapeworksDemoKey0000000000000").unwrap()]))
        }
    }

    impl Authenticator for Open {
        fn admit(&mut self, _key: usize, dataset: &str) -> Result<(), Refusal> {
            if dataset == "TAPEWORKS.DEMO" {
                return Ok(());
            }
            Err(Refusal::UnknownDataset { dataset: dataset.to_owned() })
        }

        fn find(&self, challenge: &str, answer: &[u8; 32], bucket: &str) -> Option<usize> {
            self.0.find(challenge, answer, bucket)
        }
    }

    fn session() -> Session {
        Session::new([7; 16], Nanos(0), Limits::default())
    }

    fn authentication(session: &Session, more: &str) -> String {
        let answer = Open::new().0.get(0).unwrap().answer(&session.challenge);
        format!("auth={}-00000|dataset=TAPEWORKS.DEMO{more}\n", hex::encode(answer))
    }

    fn receive(session: &mut Session, text: &str) -> Result<Vec<Request>, Refusal> {
        let mut requests = Vec::new();
        session.receive(text.as_bytes(), &mut Open::new(), &mut requests).map(|()| requests)
    }

    fn admitted() -> Session {
        let mut session = session();
        let line = authentication(&session, "");
        assert!(matches!(receive(&mut session, &line).unwrap()[..], [Request::Admit(_)]));
        session
    }

    #[test]
    fn a_session_as_the_official_clients_speak_it() {
        let mut session = session();
        assert!(session.greeting().ends_with("\ncram=07070707070707070707070707070707\n"));
        let more = "|encoding=dbn|compression=zstd|ts_out=1|client=Python/0.87|heartbeat_interval_s=5|slow_reader_behavior=skip";
        let mut text = authentication(&session, more);
        text.push_str("schema=mbo|stype_in=raw_symbol|symbols=AAPL,MSFT|snapshot=1|id=0|is_last=1\n");
        text.push_str(
            "schema=trades|stype_in=instrument_id|symbols=1,7|start=12|is_last=0\nstart_session=0\n",
        );
        text.push_str("unsubscribe|schema=mbo|stype_in=raw_symbol|symbols=ALL_SYMBOLS|is_last=1\n");
        let requests = receive(&mut session, &text).unwrap();
        let [
            Request::Admit(admitted),
            Request::Subscribe(mbo),
            Request::Subscribe(trades),
            Request::Start,
            Request::Unsubscribe(end),
        ] = &requests[..]
        else {
            panic!("{requests:?}")
        };
        assert!(admitted.is_compressed && admitted.has_ts_out);
        assert_eq!((admitted.heartbeat_ns, admitted.slow_reader), (5_000_000_000, SlowReader::Skip));
        let symbols = [b"AAPL", b"MSFT"].map(|one| Symbol::from_bytes(one).unwrap()).to_vec();
        assert_eq!((mbo.schema, &mbo.wanted), (Schema::Mbo, &Wanted::Symbols(symbols)));
        assert!(mbo.has_snapshot && mbo.is_last && mbo.id == Some(0));
        assert_eq!(trades.wanted, Wanted::Instruments(vec![InstrumentId(0), InstrumentId(6)]));
        assert_eq!((trades.start, trades.is_last), (Some(Nanos(12)), false));
        assert_eq!(end.wanted, Wanted::All);
    }

    #[test]
    fn a_wrong_key_dataset_or_order_of_lines_ends_the_session() {
        let wrong = |line: &str| receive(&mut session(), line).unwrap_err();
        let zeros = "0".repeat(64);
        assert_eq!(
            wrong(&format!("auth={zeros}-00000|dataset=TAPEWORKS.DEMO\n")),
            Refusal::AuthenticationFailed
        );
        assert_eq!(wrong("auth=zz-00000|dataset=TAPEWORKS.DEMO\n"), Refusal::AuthenticationFailed);
        assert_eq!(wrong("start_session\n").reason(), Reason::Garbage);
        assert_eq!(wrong("\n").reason(), Reason::Garbage);
        let mut other = session();
        let line = authentication(&other, "").replace("TAPEWORKS.DEMO", "XNAS.ITCH");
        assert_eq!(receive(&mut other, &line).unwrap_err().reason(), Reason::Entitlement);
        assert_eq!(receive(&mut other, "anything\n"), Ok(vec![]), "lines after the end are skipped");
    }

    #[test]
    fn an_options_symbol_is_requested_whole() {
        let options = ["SPX   260117C05000000", "BRK.B 260117P00300500"];
        let line = format!("schema=mbo|symbols={}\n", options.join(","));
        let requests = receive(&mut admitted(), &line).unwrap();
        let [Request::Subscribe(subscription)] = &requests[..] else { panic!("{requests:?}") };
        let symbols = options.map(|one| Symbol::from_bytes(one.as_bytes()).unwrap()).to_vec();
        assert_eq!(subscription.wanted, Wanted::Symbols(symbols));
    }

    #[test]
    fn values_that_cannot_be_used_are_named() {
        for (line, reason) in [
            ("schema=mbp-2|symbols=A", "schema=mbp-2: expected one of mbo"),
            ("schema=mbo|symbols=A|stype_in=parent", "stype_in=parent: expected raw_symbol or instrument_id"),
            ("schema=mbo", "'symbols' is missing"),
            ("schema=mbo|symbols=A,,B", "symbols=: expected symbols of 1 to 21"),
            ("schema=mbo|symbols=A,ALL_SYMBOLS", "symbols=ALL_SYMBOLS: expected"),
            ("schema=mbo|symbols=0|stype_in=instrument_id", "symbols=0: expected instrument numbers"),
            ("schema=mbo|symbols=A|start=-1", "start=-1: expected a whole number"),
            ("schema=mbo|symbols=A|start=1|snapshot=1", "either snapshot=1 or start="),
            ("schema=mbo|symbols=A|schema=mbo", "'schema' is there twice"),
            ("hello", "'hello' is no subscription"),
        ] {
            let refusal = receive(&mut admitted(), &format!("{line}\n")).unwrap_err().to_string();
            assert!(refusal.contains(reason), "{line}: {refusal}");
            assert!(
                !Session::refusal(&Refusal::Unexpected { line: refusal, expected: "x|y\n" })
                    .contains("y\n\n")
            );
        }
        let mut started = admitted();
        receive(&mut started, "start_session\n").unwrap();
        let refusal = receive(&mut started, "schema=mbo|symbols=A|start=5\n").unwrap_err();
        assert_eq!(refusal.reason(), Reason::Subscription);
        assert!(receive(&mut admitted(), "start_session\nstart_session\n").is_err());
    }

    #[test]
    fn limits_hold() {
        let limits =
            Limits { line_bytes: 200, lines: 3, symbols: 4, authentication_ns: 5, ..Limits::default() };
        let mut long = Session::new([7; 16], Nanos(0), limits);
        let mut requests = Vec::new();
        for _ in 0..200 {
            long.receive(b"x", &mut Open::new(), &mut requests).unwrap();
        }
        let refusal = long.receive(b"x", &mut Open::new(), &mut requests).unwrap_err();
        assert_eq!(refusal, Refusal::LineTooLong { limit: 200 });
        let begun = || {
            let mut session = Session::new([7; 16], Nanos(0), limits);
            let line = authentication(&session, "");
            receive(&mut session, &line).unwrap();
            session
        };
        let lines = "schema=mbo|symbols=A\nschema=mbo|symbols=B\nschema=mbo|symbols=C\n";
        assert_eq!(receive(&mut begun(), lines).unwrap_err(), Refusal::TooManyLines { limit: 3 });
        let symbols = "schema=mbo|symbols=A,B,C,D,E\n";
        assert_eq!(receive(&mut begun(), symbols).unwrap_err(), Refusal::TooManySymbols { limit: 4 });
        let mut late = Session::new([7; 16], Nanos(10), limits);
        assert_eq!(late.check_time(Nanos(15)), Ok(()));
        assert_eq!(late.check_time(Nanos(16)).unwrap_err().reason(), Reason::Late);
        assert_eq!(begun().check_time(Nanos(u64::MAX)), Ok(()), "who is admitted has time");
    }

    proptest! {
        /// The requests do not depend on how the bytes are split.
        #[test]
        fn bytes_may_be_cut_anywhere(cuts in prop::collection::vec(0usize..400, 0..8), tail in ".{0,40}") {
            let mut whole = session();
            let mut text = authentication(&whole, "|ts_out=1");
            text.push_str("schema=mbp-1|symbols=A,B|is_last=1\nstart_session=0\n");
            text.push_str(&tail);
            text.push('\n');
            let (mut expected, mut requests) = (Vec::new(), Vec::new());
            let result = whole.receive(text.as_bytes(), &mut Open::new(), &mut expected);
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.push(text.len());
            cuts.sort_unstable();
            let (mut cut, mut from, mut other) = (Ok(()), 0, session());
            for to in cuts {
                let part = &text.as_bytes()[from..to];
                cut = cut.and(other.receive(part, &mut Open::new(), &mut requests));
                from = to;
            }
            prop_assert_eq!((cut, requests), (result, expected));
        }

        #[test]
        fn no_bytes_make_it_panic_or_grow(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
            let limits = Limits { line_bytes: 100, ..Limits::default() };
            let mut session = Session::new([7; 16], Nanos(0), limits);
            let mut requests = Vec::new();
            let _ = session.receive(&bytes, &mut Open::new(), &mut requests);
            prop_assert!(session.line.len() <= 100 && requests.is_empty());
        }
    }
}
