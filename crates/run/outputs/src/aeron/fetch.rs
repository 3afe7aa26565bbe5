//! The client of the replay server: a non-blocking connection, from which each turn takes some messages.
//!
//! The live streams are therefore read in the meantime, and the amount of waiting data is bounded: the rest of a replay stays with
//! the server until its turn.
//!
//! Cost: a message is copied once, out of the socket.

use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tapeworks_capture::stop;
use tapeworks_runtime::transport::{Connector, Transport};
use tapeworks_runtime::world::{Stream as _, System, World};

use super::message::{Header, Kind, NotAMessage};
use super::replay::{OTHER_JOURNAL, TOO_MANY, Wanted};
use crate::text::one_line;

/// Time limit for connecting, TLS and the response together, and for each wait for a whole message.
const PATIENCE: Duration = Duration::from_secs(15);

/// How long a reader that gives up retries a server that is away or busy with other readers.
pub(super) const AGAIN: Duration = Duration::from_secs(30);

/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(200);

/// The pause after a refusal that is not temporary.
const LONG_PAUSE: Duration = Duration::from_secs(2);

/// Maximum length of a replay's message in bytes; a longer one is invalid.
const MOST_BYTES: usize = 1 << 20;

/// Maximum length of the server's first line in bytes.
const MOST_LINE: usize = 4_096;

/// Maximum number of characters shown of a server's message.
const MOST_CHARACTERS: usize = 200;

/// Maximum number of messages per turn.
const AT_ONCE: usize = 1_024;

/// Maximum bytes per read.
const READ_BYTES: usize = 1 << 16;

/// Why a fetch failed.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum FetchError {
    /// The connection failed.
    #[error("the replay server {address}: {source}")]
    Connection {
        /// The server.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The TLS handshake or a TLS record is invalid.
    #[error("no TLS with the replay server {address}: {source}")]
    Tls {
        /// The server.
        address: SocketAddr,
        /// The cause.
        source: io::Error,
    },
    /// The server refuses.
    #[error("the replay server {address}: {said}")]
    Refused {
        /// The server.
        address: SocketAddr,
        /// Its message.
        said: String,
    },
    /// The plant's numbers restarted, or it has another journal.
    #[error("the replay server {address}: {said}")]
    OtherJournal {
        /// The server.
        address: SocketAddr,
        /// Its message.
        said: String,
    },
    /// The server sent something unexpected.
    #[error("the replay server {address} sent something else: {source}")]
    Message {
        /// The server.
        address: SocketAddr,
        /// The problem.
        source: NotAMessage,
    },
}

impl FetchError {
    fn of_connection(address: SocketAddr, source: io::Error) -> Self {
        // Only TLS reports invalid bytes.
        if source.kind() == io::ErrorKind::InvalidData {
            Self::Tls { address, source }
        } else {
            Self::Connection { address, source }
        }
    }

    /// Returns whether another attempt may succeed: the plant may be about to return, or be busy with other readers.
    pub(super) fn is_passing(&self) -> bool {
        match self {
            Self::Connection { .. } => true,
            Self::Refused { said, .. } => said.starts_with(TOO_MANY),
            Self::Tls { .. } | Self::OtherJournal { .. } | Self::Message { .. } => false,
        }
    }
}

/// The progress of a replay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Progress {
    /// More messages follow; the value states whether some arrived now.
    More(bool),
    /// All requested items have arrived.
    Done,
}

/// A connection, and the bytes received but not processed.
#[derive(Debug)]
struct Connection {
    stream: Transport<<System as World>::Stream>,
    is_connected: bool,
    is_admitted: bool,
    /// The plant's start time, according to the server.
    epoch: Option<u64>,
    /// The unsent rest of the request.
    request: Vec<u8>,
    bytes: Vec<u8>,
    read: usize,
    /// When it began, was admitted, or received its last whole message.
    heard: Instant,
}

/// A replay that is fetched message by message. While the server is away, it is retried.
#[derive(Debug)]
pub(super) struct Fetch {
    address: SocketAddr,
    connector: Connector,
    token: String,
    /// How long without a message before the fetch is given up; `None` for never.
    patience: Option<Duration>,
    heard: Instant,
    is_said: bool,
    connection: Option<Connection>,
    /// When the next attempt is due.
    again: Option<Instant>,
}

impl Fetch {
    pub(super) fn new(
        address: SocketAddr,
        connector: Connector,
        token: String,
        patience: Option<Duration>,
    ) -> Self {
        let heard = Instant::now();
        Self { address, connector, token, patience, heard, is_said: false, connection: None, again: None }
    }

    /// Returns the plant's start time, according to the server of this replay.
    pub(super) fn epoch(&self) -> Option<u64> {
        self.connection.as_ref()?.epoch
    }

    /// Returns whether to retry after an error. A reader that never gives up does not retry at the end of the process either,
    /// because it would then continue without the missing items.
    fn goes_on(&self, error: &FetchError, is_stopped: bool) -> bool {
        match self.patience {
            Some(patience) => !is_stopped && error.is_passing() && self.heard.elapsed() < patience,
            None => !matches!(error, FetchError::OtherJournal { .. }),
        }
    }

    /// Takes some messages. `say` receives the reason for a retry, and whether it is the first one. `wanted` is called before each
    /// attempt, because `each` may have received a part.
    pub(super) fn turn<S>(
        &mut self,
        state: &mut S,
        say: &mut dyn FnMut(&mut S, &str, bool),
        wanted: impl Fn(&S) -> Wanted,
        mut each: impl FnMut(&mut S, &Header, &[u8]) -> Result<(), NotAMessage>,
    ) -> Result<Progress, FetchError> {
        if self.again.is_some_and(|again| Instant::now() < again) {
            return Ok(Progress::More(false));
        }
        let address = self.address;
        let broken = |source| FetchError::of_connection(address, source);
        let taken = match &mut self.connection {
            Some(connection) => connection.take(address, |header, rest| each(state, header, rest)),
            none => {
                let request = (wanted(state).line(&self.token) + "\n").into_bytes();
                Connection::open(address, &self.connector, request).map_err(broken).map(|connection| {
                    *none = Some(connection);
                    Progress::More(true)
                })
            }
        };
        match taken {
            Err(error) => {
                self.connection = None;
                if !self.goes_on(&error, stop::is_requested()) {
                    return Err(error);
                }
                let is_first = !std::mem::replace(&mut self.is_said, true);
                say(state, &format!("{error}; trying again"), is_first);
                self.again = Some(Instant::now() + if error.is_passing() { PAUSE } else { LONG_PAUSE });
                Ok(Progress::More(false))
            }
            Ok(progress) => {
                // A server that admits the request and sends nothing counts as away.
                let is_admitted = self.connection.as_ref().is_some_and(|connection| connection.is_admitted);
                if is_admitted && progress != Progress::More(false) {
                    self.heard = Instant::now();
                }
                Ok(progress)
            }
        }
    }
}

impl Connection {
    fn open(address: SocketAddr, connector: &Connector, request: Vec<u8>) -> io::Result<Self> {
        let stream = connector.connect(<System as World>::Stream::connect(address)?)?;
        Ok(Self {
            stream,
            is_connected: false,
            is_admitted: false,
            epoch: None,
            request,
            bytes: Vec::new(),
            read: 0,
            heard: Instant::now(),
        })
    }

    /// Returns the bytes received but not processed.
    fn rest(&self) -> &[u8] {
        self.bytes.get(self.read..).unwrap_or_default()
    }

    /// Reads the available bytes, up to a limit. Returns `false` if there are none now.
    fn fill(&mut self) -> io::Result<bool> {
        if self.read > 0 {
            self.bytes.drain(..self.read);
            self.read = 0;
        }
        // The rest of the handshake and of the request.
        self.stream.settle()?;
        let before = self.bytes.len();
        self.bytes.resize(before + READ_BYTES, 0);
        let result = self.stream.read(self.bytes.get_mut(before..).unwrap_or_default());
        self.bytes.truncate(before + result.as_ref().copied().unwrap_or_default());
        match result {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => Ok(true),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                self.wait_on()?;
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Waits for a whole message, but not forever: fails after the time limit.
    fn wait_on(&self) -> io::Result<()> {
        if self.heard.elapsed() >= PATIENCE { Err(io::ErrorKind::TimedOut.into()) } else { Ok(()) }
    }

    /// Connects and sends the request. Returns `false` while that is not complete.
    fn ask(&mut self) -> io::Result<bool> {
        if !self.is_connected {
            self.is_connected = self.stream.stream().is_connected()?;
        }
        while self.is_connected && !self.request.is_empty() {
            match self.stream.write(&self.request) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => drop(self.request.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        let is_asked = self.is_connected && self.request.is_empty();
        if !is_asked {
            self.wait_on()?;
        }
        Ok(is_asked)
    }

    /// Takes some messages.
    fn take(
        &mut self,
        address: SocketAddr,
        mut each: impl FnMut(&Header, &[u8]) -> Result<(), NotAMessage>,
    ) -> Result<Progress, FetchError> {
        let broken = |source| FetchError::of_connection(address, source);
        let refused = |said: &str| {
            let said = one_line(said, MOST_CHARACTERS);
            if said.starts_with(OTHER_JOURNAL) {
                FetchError::OtherJournal { address, said }
            } else {
                FetchError::Refused { address, said }
            }
        };
        let strange = |source| FetchError::Message { address, source };
        if !self.ask().map_err(broken)? {
            return Ok(Progress::More(false));
        }
        while !self.is_admitted {
            let Some(end) = self.rest().iter().position(|byte| *byte == b'\n') else {
                if self.rest().len() >= MOST_LINE {
                    return Err(refused("no replay server: its first line does not end"));
                }
                if !self.fill().map_err(broken)? {
                    return Ok(Progress::More(false));
                }
                continue;
            };
            let line = String::from_utf8_lossy(self.rest().get(..end).unwrap_or_default()).into_owned();
            self.read += end + 1;
            match line.trim_end().split_once('=') {
                Some(("success", more)) if more == "1" || more.starts_with("1|") => {
                    self.epoch = more.split_once("epoch=").and_then(|(_, epoch)| epoch.parse().ok());
                    (self.is_admitted, self.heard) = (true, Instant::now());
                }
                Some(("error", said)) => return Err(refused(said)),
                _ => return Err(refused(&format!("no replay server: '{}'", line.trim_end()))),
            }
        }
        for taken in 0..AT_ONCE {
            let length = loop {
                let length = self.rest().first_chunk().map(|length| u32::from_le_bytes(*length) as usize);
                match length {
                    Some(0) => return Ok(Progress::Done),
                    Some(length) if length > MOST_BYTES => return Err(strange(NotAMessage::Head(length))),
                    Some(length) if self.rest().len() >= 4 + length => break length,
                    Some(_) | None => {}
                }
                if !self.fill().map_err(broken)? {
                    return Ok(Progress::More(taken > 0));
                }
            };
            let from = self.read + 4;
            self.read = from + length;
            self.heard = Instant::now();
            let bytes = self.bytes.get(from..self.read).unwrap_or_default();
            let (header, rest) = Header::parse(bytes).map_err(strange)?;
            if header.kind == Kind::Status {
                return Err(refused(&String::from_utf8_lossy(rest)));
            }
            each(&header, rest).map_err(strange)?;
        }
        Ok(Progress::More(true))
    }
}

/// Fetches all requested items, message by message, in one attempt.
#[cfg(test)]
pub(super) fn fetch(
    address: SocketAddr,
    token: &str,
    wanted: &Wanted,
    each: impl FnMut(&Header, &[u8]) -> Result<(), NotAMessage>,
) -> Result<(), FetchError> {
    fetch_by(Connector::Plain, address, token, wanted, each)
}

/// The same over TLS.
#[cfg(test)]
pub(super) fn fetch_by(
    connector: Connector,
    address: SocketAddr,
    token: &str,
    wanted: &Wanted,
    mut each: impl FnMut(&Header, &[u8]) -> Result<(), NotAMessage>,
) -> Result<(), FetchError> {
    let mut fetch = Fetch::new(address, connector, token.to_owned(), Some(Duration::ZERO));
    loop {
        let turn =
            fetch.turn(&mut (), &mut |(), _, _| {}, |()| *wanted, |(), header, rest| each(header, rest))?;
        match turn {
            Progress::Done => return Ok(()),
            Progress::More(true) => {}
            Progress::More(false) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patient_reader_does_not_give_up_when_the_process_ends_and_another_does() {
        let address = SocketAddr::from(([127, 0, 0, 1], 9));
        let error = FetchError::Connection { address, source: io::ErrorKind::ConnectionRefused.into() };
        let of = |patience| Fetch::new(address, Connector::Plain, String::new(), patience);
        assert!(of(None).goes_on(&error, true));
        assert!(of(Some(AGAIN)).goes_on(&error, false) && !of(Some(AGAIN)).goes_on(&error, true));
    }
}
