//! The client of the replay server: a connection that never blocks, of which each turn takes some messages.
//!
//! So the live streams are read meanwhile, and what waits is bounded: the rest of a replay stays with the server until its turn.
//!
//! Cost: a message is copied once, out of the socket.

use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tapeworks_packet::stop;
use tapeworks_runtime::world::{Stream as _, System, World};

use super::message::{Header, Kind, NotAMessage};
use super::replay::{OTHER_JOURNAL, TOO_MANY, Wanted};

/// How long connecting and each wait for a piece of a replay may take.
const PATIENCE: Duration = Duration::from_secs(15);

/// How long a server that is away, or has other readers, is tried again by a reader that gives up.
pub(super) const AGAIN: Duration = Duration::from_secs(30);

/// The pause between two tries.
const PAUSE: Duration = Duration::from_millis(200);

/// The pause behind a refusal that does not pass by itself.
const LONG_PAUSE: Duration = Duration::from_secs(2);

/// Bytes of a message of a replay: more is none of ours.
const MOST_BYTES: usize = 1 << 20;

/// Bytes of the server's first line.
const MOST_LINE: usize = 4_096;

/// Messages that a turn takes.
const AT_ONCE: usize = 1_024;

/// Bytes that are read at once.
const READ_BYTES: usize = 1 << 16;

/// Why the past does not come.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum FetchError {
    /// The connection.
    #[error("the replay server {address}: {source}")]
    Connection {
        /// The server.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The server refuses.
    #[error("the replay server {address}: {said}")]
    Refused {
        /// The server.
        address: SocketAddr,
        /// Its words.
        said: String,
    },
    /// The plant's numbers began anew, or it has another journal.
    #[error("the replay server {address}: {said}")]
    OtherJournal {
        /// The server.
        address: SocketAddr,
        /// Its words.
        said: String,
    },
    /// Something else came.
    #[error("the replay server {address} sent something else: {source}")]
    Message {
        /// The server.
        address: SocketAddr,
        /// What is wrong with it.
        source: NotAMessage,
    },
}

impl FetchError {
    /// Whether another try may do better: the plant may be about to come back, or have other readers first.
    pub(super) fn is_passing(&self) -> bool {
        match self {
            Self::Connection { .. } => true,
            Self::Refused { said, .. } => said.starts_with(TOO_MANY),
            Self::OtherJournal { .. } | Self::Message { .. } => false,
        }
    }
}

/// How far a replay is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Progress {
    /// More comes; whether something came now.
    More(bool),
    /// All that was wanted has come.
    Done,
}

/// A connection, and what came over it and is not read.
#[derive(Debug)]
struct Connection {
    stream: <System as World>::Stream,
    is_connected: bool,
    is_admitted: bool,
    /// The rest of the request.
    request: Vec<u8>,
    bytes: Vec<u8>,
    read: usize,
    heard: Instant,
}

/// A replay that is got, message by message. While the server is away it is tried again.
#[derive(Debug)]
pub(super) struct Fetch {
    address: SocketAddr,
    token: String,
    /// How long without a message until it is given up; for ever if none.
    patience: Option<Duration>,
    heard: Instant,
    is_said: bool,
    connection: Option<Connection>,
    /// When the next try is due.
    again: Option<Instant>,
}

impl Fetch {
    pub(super) fn new(address: SocketAddr, token: String, patience: Option<Duration>) -> Self {
        let heard = Instant::now();
        Self { address, token, patience, heard, is_said: false, connection: None, again: None }
    }

    /// Takes some messages. `say` gets the reason once why the server is tried again. `wanted` is asked before each try, as `each` may have got a part.
    pub(super) fn turn<S>(
        &mut self,
        state: &mut S,
        say: &mut dyn FnMut(&mut S, &str),
        wanted: impl Fn(&S) -> Wanted,
        mut each: impl FnMut(&mut S, &Header, &[u8]) -> Result<(), NotAMessage>,
    ) -> Result<Progress, FetchError> {
        if self.again.is_some_and(|again| Instant::now() < again) {
            return Ok(Progress::More(false));
        }
        let address = self.address;
        let broken = |source| FetchError::Connection { address, source };
        let taken = match &mut self.connection {
            Some(connection) => connection.take(address, |header, rest| each(state, header, rest)),
            none => {
                let request = (wanted(state).line(&self.token) + "\n").into_bytes();
                Connection::open(address, request).map_err(broken).map(|connection| {
                    *none = Some(connection);
                    Progress::More(true)
                })
            }
        };
        match taken {
            Err(error) => {
                self.connection = None;
                let is_passing = error.is_passing();
                let goes_on = match self.patience {
                    Some(patience) => is_passing && self.heard.elapsed() < patience,
                    None => !matches!(error, FetchError::OtherJournal { .. }),
                };
                if !goes_on || stop::is_requested() {
                    return Err(error);
                }
                if !std::mem::replace(&mut self.is_said, true) {
                    say(state, &format!("{error}; trying again"));
                }
                self.again = Some(Instant::now() + if is_passing { PAUSE } else { LONG_PAUSE });
                Ok(Progress::More(false))
            }
            Ok(progress) => {
                if self.connection.as_ref().is_some_and(|connection| connection.is_admitted) {
                    self.heard = Instant::now();
                }
                Ok(progress)
            }
        }
    }
}

impl Connection {
    fn open(address: SocketAddr, request: Vec<u8>) -> io::Result<Self> {
        let stream = <System as World>::Stream::connect(address)?;
        Ok(Self {
            stream,
            is_connected: false,
            is_admitted: false,
            request,
            bytes: Vec::new(),
            read: 0,
            heard: Instant::now(),
        })
    }

    /// What came and is not read.
    fn rest(&self) -> &[u8] {
        self.bytes.get(self.read..).unwrap_or_default()
    }

    /// Reads what there is, up to so many bytes. `false`: nothing is there now.
    fn fill(&mut self) -> io::Result<bool> {
        if self.read > 0 {
            self.bytes.drain(..self.read);
            self.read = 0;
        }
        let before = self.bytes.len();
        self.bytes.resize(before + READ_BYTES, 0);
        let result = self.stream.read(self.bytes.get_mut(before..).unwrap_or_default());
        self.bytes.truncate(before + result.as_ref().copied().unwrap_or_default());
        match result {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => {
                self.heard = Instant::now();
                Ok(true)
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                if self.heard.elapsed() >= PATIENCE {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Connects, and sends the request. `false`: not yet.
    fn ask(&mut self) -> io::Result<bool> {
        if !self.is_connected {
            self.is_connected = self.stream.is_connected()?;
        }
        while self.is_connected && !self.request.is_empty() {
            match self.stream.write(&self.request) {
                Ok(count) => drop(self.request.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        let is_asked = self.is_connected && self.request.is_empty();
        if !is_asked && self.heard.elapsed() >= PATIENCE {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(is_asked)
    }

    /// Takes some messages.
    fn take(
        &mut self,
        address: SocketAddr,
        mut each: impl FnMut(&Header, &[u8]) -> Result<(), NotAMessage>,
    ) -> Result<Progress, FetchError> {
        let broken = |source| FetchError::Connection { address, source };
        let refused = |said: String| {
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
                    return Err(refused("no replay server: its first line does not end".to_owned()));
                }
                if !self.fill().map_err(broken)? {
                    return Ok(Progress::More(false));
                }
                continue;
            };
            let line = String::from_utf8_lossy(self.rest().get(..end).unwrap_or_default()).into_owned();
            self.read += end + 1;
            match line.trim_end().split_once('=') {
                Some(("success", "1")) => self.is_admitted = true,
                Some(("error", said)) => return Err(refused(said.to_owned())),
                _ => return Err(refused(format!("no replay server: '{}'", line.trim_end()))),
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
            let bytes = self.bytes.get(from..self.read).unwrap_or_default();
            let (header, rest) = Header::parse(bytes).map_err(strange)?;
            if header.kind == Kind::Status {
                return Err(refused(String::from_utf8_lossy(rest).into_owned()));
            }
            each(&header, rest).map_err(strange)?;
        }
        Ok(Progress::More(true))
    }
}

/// Gets everything that is wanted, message by message, in one try.
#[cfg(test)]
pub(super) fn fetch(
    address: SocketAddr,
    token: &str,
    wanted: &Wanted,
    mut each: impl FnMut(&Header, &[u8]) -> Result<(), NotAMessage>,
) -> Result<(), FetchError> {
    let mut fetch = Fetch::new(address, token.to_owned(), Some(Duration::ZERO));
    loop {
        let turn =
            fetch.turn(&mut (), &mut |(), _| {}, |()| *wanted, |(), header, rest| each(header, rest))?;
        match turn {
            Progress::Done => return Ok(()),
            Progress::More(true) => {}
            Progress::More(false) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}
