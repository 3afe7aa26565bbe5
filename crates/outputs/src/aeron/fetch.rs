//! The client of the replay server.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tapeworks_packet::stop;

use super::message::{Header, Kind, NotAMessage};
use super::replay::{OTHER_JOURNAL, TOO_MANY, Wanted};

/// How long connecting and each piece of a replay may take.
const PATIENCE: Duration = Duration::from_secs(15);

/// How long a server that is away, or has other readers, is tried again.
const AGAIN: Duration = Duration::from_secs(30);

/// The pause between two tries.
const PAUSE: Duration = Duration::from_millis(200);

/// Bytes of a message of a replay: more is none of ours.
const MOST_BYTES: usize = 1 << 20;

/// Bytes of the server's first line.
const MOST_LINE: u64 = 4_096;

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

/// Gets what is wanted. While the server is away it tries again, for some time; `say` gets the reason once. `wanted` is asked before each try, as `each`
/// may have got a part.
pub(super) fn fetch_patiently<S>(
    address: SocketAddr,
    token: &str,
    state: &mut S,
    say: fn(&str),
    wanted: impl Fn(&S) -> Wanted,
    mut each: impl FnMut(&mut S, &Header, &[u8]) -> Result<(), NotAMessage>,
) -> Result<(), FetchError> {
    let began = Instant::now();
    let mut is_said = false;
    loop {
        let wanted = wanted(state);
        let result = fetch(address, token, &wanted, |header, rest| each(state, header, rest));
        match result {
            Err(error) if error.is_passing() && began.elapsed() < AGAIN && !stop::is_requested() => {
                if !std::mem::replace(&mut is_said, true) {
                    say(&format!("{error}; trying again"));
                }
                sleep(PAUSE);
            }
            ended => return ended,
        }
    }
}

/// Gets everything that is wanted, message by message.
pub(super) fn fetch(
    address: SocketAddr,
    token: &str,
    wanted: &Wanted,
    mut each: impl FnMut(&Header, &[u8]) -> Result<(), NotAMessage>,
) -> Result<(), FetchError> {
    let broken = |source| FetchError::Connection { address, source };
    let refused = |said: String| {
        if said.starts_with(OTHER_JOURNAL) {
            FetchError::OtherJournal { address, said }
        } else {
            FetchError::Refused { address, said }
        }
    };
    let strange = |source| FetchError::Message { address, source };
    let stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(broken)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(broken)?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(broken)?;
    (&stream).write_all((wanted.line(token) + "\n").as_bytes()).map_err(broken)?;
    let mut reader = BufReader::with_capacity(1 << 16, &stream);
    let mut line = String::new();
    reader.by_ref().take(MOST_LINE).read_line(&mut line).map_err(broken)?;
    if line.is_empty() {
        return Err(broken(io::ErrorKind::UnexpectedEof.into()));
    }
    match line.trim_end().split_once('=') {
        Some(("success", "1")) => {}
        Some(("error", said)) => return Err(refused(said.to_owned())),
        _ => return Err(refused(format!("no replay server: '{}'", line.trim_end()))),
    }
    let mut bytes = Vec::new();
    loop {
        let mut length = [0; 4];
        reader.read_exact(&mut length).map_err(broken)?;
        let length = u32::from_le_bytes(length) as usize;
        if length == 0 {
            return Ok(());
        }
        if length > MOST_BYTES {
            return Err(strange(NotAMessage::Head(length)));
        }
        bytes.resize(length, 0);
        reader.read_exact(&mut bytes).map_err(broken)?;
        let (header, rest) = Header::parse(&bytes).map_err(strange)?;
        if header.kind == Kind::Status {
            return Err(refused(String::from_utf8_lossy(rest).into_owned()));
        }
        each(&header, rest).map_err(strange)?;
    }
}
