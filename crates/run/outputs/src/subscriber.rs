//! A client of the DBN live protocol, for `tapeworks subscribe` and the plant's own measurements.
//!
//! It follows the same protocol as Databento's public clients (a challenge, a response, subscriptions, a start). It blocks, and
//! returns one record at a time. Source of the protocol: Databento's public client libraries.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use dbn::decode::DbnMetadata;
use dbn::decode::dbn::Decoder;
use dbn::enums::ErrorCode;
use dbn::{ErrorMsg, Metadata, RecordRef};
use tapeworks_capture::stop;

use tapeworks_runtime::keys::{Key, KeyError};
use tapeworks_runtime::world::{BlockingStream as _, System, World};

/// The key of `tapeworks demo` and of the shipped examples. It is not a secret.
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
    /// Whether a snapshot of the current state comes first.
    pub snapshot: bool,
    /// Replay from this time, in ns since the epoch.
    pub start: Option<u64>,
    /// `warn`, `skip` or `conflate`.
    pub slow_reader: Option<String>,
    /// Whether each record carries its send time.
    pub ts_out: bool,
    /// How long a read may wait; see [`SubscribeError::is_timeout`].
    pub timeout: Option<Duration>,
    /// Time limit for connecting, and for each response before the first record.
    pub patience: Duration,
}

impl std::fmt::Debug for SubscriberOptions {
    /// Omits the key.
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
    /// The connection failed, or broke.
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
    /// No record arrived in time over Aeron.
    #[cfg(feature = "aeron")]
    #[error("no record by Aeron: {0}")]
    Quiet(io::Error),
}

impl SubscribeError {
    /// Returns whether no record arrived in time; the subscription continues.
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
        // A signal that interrupts the call is not an error either.
        matches!(kind, io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
    }

    /// Returns whether the process received a [request to stop](tapeworks_capture::stop) in the meantime.
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

/// Returns the server's text if the record refuses the subscription.
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
    /// Returns whether the next read returns a record without waiting.
    fn has_more(&self) -> bool;

    /// Returns the next record; `None` when the server has ended the session.
    ///
    /// # Errors
    /// [`SubscribeError`]; see [`SubscribeError::is_timeout`].
    fn next_record(&mut self) -> Result<Option<RecordRef<'_>>, SubscribeError>;
}

/// A running subscription.
pub struct Subscriber<W: World = System> {
    address: SocketAddr,
    decoder: Decoder<Stream<W>>,
    session: String,
}

/// The prelude of the head, which was read first, and the bytes after it.
type Stream<W> = io::Chain<io::Cursor<[u8; PRELUDE_BYTES]>, BufReader<Patient<W>>>;

/// Bytes that determine the length of a DBN stream's head: "DBN", the version, the length.
const PRELUDE_BYTES: usize = 8;

/// A connection whose reads end after a time limit, or when the process receives a request to stop.
struct Patient<W: World> {
    stream: W::BlockingStream,
    /// Applies until the first record; after that, the stream's own time limit does.
    patience: Option<Duration>,
}

impl<W: World> Patient<W> {
    /// Sends a request. Fails if the server accepts nothing for as long as a response may take.
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
    // No line of the protocol is nearly this long.
    let read = reader.by_ref().take(64 << 10).read_line(&mut text);
    match read {
        Ok(0) => Err(SubscribeError::Refused { address, said: "the connection was closed".to_owned() }),
        Ok(_) => Ok(text.trim_end().to_owned()),
        Err(source) => Err(SubscribeError::Connection { address, source }),
    }
}

/// Connects; returns early on a request to stop.
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

/// Returns the value of a key in a control line.
fn value<'l>(line: &'l str, key: &str) -> Option<&'l str> {
    line.split('|').find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='))
}

/// Maximum number of symbols per subscription line.
const SYMBOLS_A_LINE: usize = 500;

impl Subscriber {
    /// Connects, authenticates, subscribes and starts the session.
    ///
    /// # Errors
    /// [`SubscribeError`].
    pub fn connect(options: &SubscriberOptions) -> Result<Self, SubscribeError> {
        Self::connect_in(options)
    }
}

impl<W: World> Subscriber<W> {
    /// Connects like [`Subscriber::connect`], in any world.
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
        // The decoder needs the prelude in one piece: it panics if its first read returns fewer bytes.
        let mut prelude = [0; PRELUDE_BYTES];
        let read = reader.read_exact(&mut prelude);
        read.map_err(|error| undecodable(dbn::Error::io(error, "decoding metadata")))?;
        let mut decoder = Decoder::new(io::Cursor::new(prelude).chain(reader)).map_err(undecodable)?;
        let patient = decoder.get_mut().get_mut().1.get_mut();
        patient.patience = None;
        patient.stream.set_time_limits(options.timeout, None).map_err(broken)?;
        Ok(Self { address, decoder, session })
    }

    /// Returns the session's number, as the server sent it.
    pub fn session(&self) -> &str {
        &self.session
    }

    /// Returns the head of the stream.
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
