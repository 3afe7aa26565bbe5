//! A client of the DBN live protocol, for `tapeworks subscribe` and the plant's own measurements.
//!
//! It speaks as Databento's public clients do (a challenge, an answer, subscriptions, a start). It blocks, and returns one record
//! after the other. Source of the protocol: the public client libraries of Databento.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use dbn::decode::DbnMetadata;
use dbn::decode::dbn::Decoder;
use dbn::enums::ErrorCode;
use dbn::{ErrorMsg, Metadata, RecordRef};
use tapeworks_packet::stop;

use tapeworks_runtime::keys::{Key, KeyError};
use tapeworks_runtime::world::{BlockingStream as _, System, World};

/// The key of `tapeworks demo` and of the shipped examples. It is no secret.
pub const DEMO_KEY: &str = "db-TapeworksDemoKey0000000000000";

/// The server and the subscriptions.
#[derive(Clone)]
pub struct SubscriberOptions {
    /// The server.
    pub address: SocketAddr,
    /// The key: 32 characters that begin with `db-`.
    pub key: String,
    /// The dataset.
    pub dataset: String,
    /// The schemas, by DBN's names.
    pub schemas: Vec<String>,
    /// The symbols; empty for all.
    pub symbols: Vec<String>,
    /// Whether the current state comes first.
    pub snapshot: bool,
    /// Replay from this time, in ns since the epoch.
    pub start: Option<u64>,
    /// `warn`, `skip` or `conflate`.
    pub slow_reader: Option<String>,
    /// Whether each record has the time at which it was sent.
    pub ts_out: bool,
    /// How long a read may wait; see [`SubscribeError::is_timeout`].
    pub timeout: Option<Duration>,
    /// How long connecting and each answer before the first record may take.
    pub patience: Duration,
}

impl std::fmt::Debug for SubscriberOptions {
    /// Without the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { address, dataset, schemas, symbols, start, .. } = self;
        f.debug_struct("SubscriberOptions")
            .field("address", address)
            .field("dataset", dataset)
            .field("schemas", schemas)
            .field("symbols", symbols)
            .field("start", start)
            .finish_non_exhaustive()
    }
}

/// Why a subscription fails.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum SubscribeError {
    /// No connection, or it broke.
    #[error("{address}: {source}")]
    Connection {
        /// The server.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// An invalid key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The server refused, or sent something that no live server sends.
    #[error("{address}: {said}")]
    Refused {
        /// The server.
        address: SocketAddr,
        /// Its message.
        said: String,
    },
    /// The stream is not DBN.
    #[error("{address}: not DBN: {source}")]
    Decode {
        /// The server.
        address: SocketAddr,
        /// The error.
        source: dbn::Error,
    },
    /// The media driver of Aeron.
    #[cfg(feature = "aeron")]
    #[error(transparent)]
    Aeron(Box<dyn std::error::Error + Send + Sync>),
    /// No record came in time by Aeron.
    #[cfg(feature = "aeron")]
    #[error("no record by Aeron: {0}")]
    Quiet(io::Error),
}

impl SubscribeError {
    /// Whether no record came in time; the subscription continues.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        let kind = match self {
            Self::Connection { source, .. } | Self::Decode { source: dbn::Error::Io { source, .. }, .. } => {
                source.kind()
            }
            #[cfg(feature = "aeron")]
            Self::Quiet(source) => source.kind(),
            _ => return false,
        };
        // A signal that interrupts the call is no error either.
        matches!(kind, io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
    }

    /// Whether the process got a [request to stop](tapeworks_packet::stop) meanwhile.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        match self {
            Self::Connection { source, .. } | Self::Decode { source: dbn::Error::Io { source, .. }, .. } => {
                stop::is_stopped(source)
            }
            _ => false,
        }
    }
}

/// The server's text if the record says that the server refuses the subscription.
#[must_use]
pub fn refusal(record: &RecordRef<'_>) -> Option<String> {
    let error = record.get::<ErrorMsg>()?;
    let is_final = matches!(
        error.code(),
        Ok(ErrorCode::AuthFailed
            | ErrorCode::ApiKeyDeactivated
            | ErrorCode::InvalidSubscription
            | ErrorCode::ReplayDataAgedOut)
    );
    is_final.then(|| error.err().unwrap_or("an error that is not text").to_owned())
}

/// A source of records: a subscription, or a receiver of the multicast.
pub trait Records {
    /// Whether the next read has a record without waiting.
    fn has_more(&self) -> bool;

    /// The next record; `None` when the other side has ended the session.
    ///
    /// # Errors
    /// [`SubscribeError`]; see [`SubscribeError::is_timeout`].
    fn next_record(&mut self) -> Result<Option<RecordRef<'_>>, SubscribeError>;
}

/// A subscription under way.
pub struct Subscriber<W: World = System> {
    address: SocketAddr,
    decoder: Decoder<Stream<W>>,
    session: String,
}

/// The head's prelude, which came first, and what follows it.
type Stream<W> = io::Chain<io::Cursor<[u8; PRELUDE_BYTES]>, BufReader<Patient<W>>>;

/// Bytes that say how long the head of a DBN stream is: "DBN", the version, the length.
const PRELUDE_BYTES: usize = 8;

/// A connection whose reads end after their time limit, or when the process gets a request to stop.
struct Patient<W: World> {
    stream: W::BlockingStream,
    /// Until the first record; from then on the stream's own time limit counts.
    patience: Option<Duration>,
}

impl<W: World> Patient<W> {
    /// Sends a request. A server that takes nothing for as long as an answer may take is an error.
    fn send(&mut self, request: &[u8]) -> io::Result<()> {
        let patience = self.patience.unwrap_or_default();
        self.stream.write_all(request).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                let text = format!("the request was not taken within {:.1} s", patience.as_secs_f64());
                io::Error::new(io::ErrorKind::TimedOut, text)
            }
            _ => error,
        })
    }
}

impl<W: World> Read for Patient<W> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(patience) = self.patience else { return self.stream.read(buffer) };
        let began = W::instant();
        loop {
            let left = patience.saturating_sub(W::since(began));
            if left.is_zero() {
                let text = format!("no answer within {:.1} s", patience.as_secs_f64());
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            self.stream.set_time_limits(Some(left.min(stop::LOOK)), Some(patience))?;
            match self.stream.read(buffer) {
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
                    ) =>
                {
                    if stop::is_requested() {
                        return Err(stop::stopped());
                    }
                }
                read => return read,
            }
        }
    }
}

impl<W: World> std::fmt::Debug for Subscriber<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Subscriber({}, session {})", self.address, self.session)
    }
}

fn line(reader: &mut impl BufRead, address: SocketAddr) -> Result<String, SubscribeError> {
    let mut text = String::new();
    // No line of the protocol is nearly as long.
    let read = reader.by_ref().take(64 << 10).read_line(&mut text);
    match read {
        Ok(0) => Err(SubscribeError::Refused { address, said: "the connection was closed".to_owned() }),
        Ok(_) => Ok(text.trim_end().to_owned()),
        Err(source) => Err(SubscribeError::Connection { address, source }),
    }
}

/// Connects, and returns at a request to stop.
fn connect<W: World>(address: SocketAddr, patience: Duration) -> io::Result<W::BlockingStream> {
    let began = W::instant();
    loop {
        match W::BlockingStream::connect(address, patience) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted && !stop::is_requested() => {
                if W::since(began) > patience {
                    return Err(error);
                }
            }
            Err(_) if stop::is_requested() => return Err(stop::stopped()),
            connected => return connected,
        }
    }
}

/// The value of a key in a control line.
fn value<'l>(line: &'l str, key: &str) -> Option<&'l str> {
    line.split('|').find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='))
}

/// Symbols in one line of a subscription.
const SYMBOLS_A_LINE: usize = 500;

impl Subscriber {
    /// Connects, shows the key, subscribes and starts.
    ///
    /// # Errors
    /// [`SubscribeError`].
    pub fn connect(options: &SubscriberOptions) -> Result<Self, SubscribeError> {
        Self::connect_in(options)
    }
}

impl<W: World> Subscriber<W> {
    /// As [`Subscriber::connect`], in any world.
    ///
    /// # Errors
    /// [`SubscribeError`].
    pub fn connect_in(options: &SubscriberOptions) -> Result<Self, SubscribeError> {
        let address = options.address;
        let broken = |source| SubscribeError::Connection { address, source };
        let undecodable = |source| SubscribeError::Decode { address, source };
        let key = Key::new("", &options.key)?;
        let patience = options.patience.max(Duration::from_millis(1));
        let stream = connect::<W>(address, patience).map_err(broken)?;
        stream.set_nodelay(true).map_err(broken)?;
        let patient = Patient::<W> { stream, patience: Some(patience) };
        let mut reader = BufReader::with_capacity(1 << 18, patient);
        let greeting = line(&mut reader, address)?;
        let challenge = line(&mut reader, address)?;
        let Some(cram) = value(&challenge, "cram").filter(|_| greeting.starts_with("lsg_version=")) else {
            let said = format!("not a live server: '{greeting}'");
            return Err(SubscribeError::Refused { address, said });
        };
        let mut request = format!(
            "auth={}-{}|dataset={}|encoding=dbn|compression=none|ts_out={}|client=tapeworks {}",
            hex::encode(key.answer(cram)),
            key.bucket(),
            options.dataset,
            u8::from(options.ts_out),
            env!("CARGO_PKG_VERSION"),
        );
        if let Some(behaviour) = &options.slow_reader {
            request.push_str("|slow_reader_behavior=");
            request.push_str(behaviour);
        }
        request.push('\n');
        reader.get_mut().send(request.as_bytes()).map_err(broken)?;
        let answer = line(&mut reader, address)?;
        if value(&answer, "success") != Some("1") {
            let said = value(&answer, "error").unwrap_or(&answer).to_owned();
            return Err(SubscribeError::Refused { address, said });
        }
        let session = value(&answer, "session_id").unwrap_or_default().to_owned();
        let mut lines = String::new();
        for schema in &options.schemas {
            let pieces: Vec<String> = if options.symbols.is_empty() {
                vec!["ALL_SYMBOLS".to_owned()]
            } else {
                options.symbols.chunks(SYMBOLS_A_LINE).map(|symbols| symbols.join(",")).collect()
            };
            for (at, symbols) in pieces.iter().enumerate() {
                let is_last = u8::from(at + 1 == pieces.len());
                lines.push_str(&format!(
                    "schema={schema}|stype_in=raw_symbol|symbols={symbols}|snapshot={}|is_last={is_last}",
                    u8::from(options.snapshot)
                ));
                if let Some(start) = options.start {
                    lines.push_str(&format!("|start={start}"));
                }
                lines.push('\n');
            }
        }
        lines.push_str("start_session\n");
        reader.get_mut().send(lines.as_bytes()).map_err(broken)?;
        // The decoder expects them in one piece: it panics where its first read brings fewer.
        let mut prelude = [0; PRELUDE_BYTES];
        let read = reader.read_exact(&mut prelude);
        read.map_err(|error| undecodable(dbn::Error::io(error, "decoding metadata")))?;
        let mut decoder = Decoder::new(io::Cursor::new(prelude).chain(reader)).map_err(undecodable)?;
        let patient = decoder.get_mut().get_mut().1.get_mut();
        patient.patience = None;
        patient.stream.set_time_limits(options.timeout, None).map_err(broken)?;
        Ok(Self { address, decoder, session })
    }

    /// The session's number, as the server sent it.
    pub fn session(&self) -> &str {
        &self.session
    }

    /// The head of the stream.
    pub fn metadata(&self) -> &Metadata {
        self.decoder.metadata()
    }
}

impl<W: World> Records for Subscriber<W> {
    fn has_more(&self) -> bool {
        !self.decoder.get_ref().get_ref().1.buffer().is_empty()
    }

    fn next_record(&mut self) -> Result<Option<RecordRef<'_>>, SubscribeError> {
        let address = self.address;
        dbn::decode::DecodeRecordRef::decode_record_ref(&mut self.decoder)
            .map_err(|source| SubscribeError::Decode { address, source })
    }
}
