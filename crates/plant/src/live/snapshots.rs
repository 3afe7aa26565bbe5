//! The clients of the venues' snapshot servers: GLIMPSE over SoupBinTCP.
//!
//! Each snapshot is fetched by a thread of its own, which hands what it gets to ingest as it comes. Nothing here knows what
//! the messages say but for the last, which tells where the live sequence goes on.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use tapeworks_feed::arbitration::SessionId;
use tapeworks_wire::nasdaq::soupbintcp::{LoginRequestFields, Message, Packets};
use tapeworks_wire::{Ascii, AsciiNumber};

use super::now;
use super::records::Owned;

/// A venue's snapshot server, if it has one.
#[derive(Clone, Debug)]
pub(super) struct Server {
    pub(super) address: Option<SocketAddr>,
    pub(super) login: (String, String),
}

/// A snapshot that is wanted.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) channel: u16,
    pub(super) session: SessionId,
    pub(super) attempt: u32,
}

/// What ingest and this thread say to each other.
#[derive(Debug)]
pub(super) struct Asks {
    pub(super) wanted: Receiver<Wanted>,
    pub(super) answers: SyncSender<Owned>,
}

/// Bytes of messages handed on at once.
const CHUNK_BYTES: usize = 256 << 10;
/// How long a server may be silent: SoupBinTCP's own rule.
const SILENCE: Duration = Duration::from_secs(15);
const CONNECT: Duration = Duration::from_secs(3);
const HEARTBEAT: Duration = Duration::from_secs(1);
/// How often whoever waits looks whether it is to stop.
const LOOK: Duration = Duration::from_millis(100);

/// Serves the wishes of ingest until it is gone or all stops.
pub(super) fn run(servers: &[Server], asks: &Asks, stop: &Arc<AtomicBool>) {
    std::thread::scope(|scope| {
        loop {
            match asks.wanted.recv_timeout(LOOK) {
                Ok(wanted) => {
                    let Some(server) = servers.get(usize::from(wanted.channel)).cloned() else { continue };
                    let (answers, stop) = (asks.answers.clone(), Arc::clone(stop));
                    scope.spawn(move || {
                        let Wanted { channel, attempt, .. } = wanted;
                        if fetch(&server, &wanted, &answers, &stop).is_err() {
                            // Ingest that is gone needs no answer.
                            let _gone =
                                answers.send(Owned::SnapshotFailed { channel, attempt, received: now() });
                        }
                    });
                }
                Err(RecvTimeoutError::Timeout) if !stop.load(Ordering::Acquire) => {}
                Err(_) => return,
            }
        }
    });
}

/// A text as a field of fixed length, filled with spaces.
fn field<const LENGTH: usize>(text: &str) -> Ascii<LENGTH> {
    let mut bytes = [b' '; LENGTH];
    bytes.iter_mut().zip(text.bytes()).for_each(|(to, from)| *to = from);
    Ascii(bytes)
}

fn refused(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn fetch(server: &Server, wanted: &Wanted, answers: &SyncSender<Owned>, stop: &AtomicBool) -> io::Result<()> {
    let address = server.address.ok_or_else(|| refused("no server"))?;
    let mut stream = TcpStream::connect_timeout(&address, CONNECT)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(LOOK))?;
    stream.set_write_timeout(Some(CONNECT))?;
    let session = match wanted.session {
        SessionId::MoldUdp64(session) => Ascii(session),
        SessionId::IexTp { session, .. } => field(&session.to_string()),
    };
    let login = LoginRequestFields {
        packet_length: 47,
        username: field(&server.login.0),
        password: field(&server.login.1),
        requested_session: session,
        requested_sequence_number: AsciiNumber::new(1).ok_or_else(|| refused("one is a number"))?,
    };
    stream.write_all(&login.encode())?;
    let mut stream_bytes = Vec::new();
    let mut messages = Vec::with_capacity(CHUNK_BYTES);
    let mut buffer = vec![0; 64 << 10];
    let (mut heard, mut spoke) = (Instant::now(), Instant::now());
    loop {
        if stop.load(Ordering::Acquire) || heard.elapsed() > SILENCE {
            return Err(refused("it stopped, or the server is silent"));
        }
        if spoke.elapsed() > HEARTBEAT {
            stream.write_all(b"\0\x01R")?;
            spoke = Instant::now();
        }
        match stream.read(&mut buffer) {
            Ok(0) => return Err(refused("the server closed the connection before the end of the snapshot")),
            Ok(read) => {
                heard = Instant::now();
                stream_bytes.extend_from_slice(&buffer[..read]);
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                continue;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        let mut packets = Packets::new(&stream_bytes);
        for packet in packets.by_ref().filter_map(Result::ok) {
            match Message::decode(packet) {
                Ok(Message::SequencedData(data)) => {
                    let message = data.message();
                    if let Some(next) = end_of_snapshot(message) {
                        let (channel, attempt) = (wanted.channel, wanted.attempt);
                        hand_on(&mut messages, wanted, answers)?;
                        let end = Owned::SnapshotEnd { channel, attempt, received: now(), next };
                        answers.send(end).map_err(|_| refused("ingest is gone"))?;
                        // Logged out; whether it is heard does not matter any more.
                        let _unheard = stream.write_all(b"\0\x01O");
                        return Ok(());
                    }
                    // A packet's length has two bytes, so a message's has too.
                    messages.extend_from_slice(&(message.len() as u16).to_be_bytes());
                    messages.extend_from_slice(message);
                    if messages.len() >= CHUNK_BYTES {
                        hand_on(&mut messages, wanted, answers)?;
                    }
                }
                Ok(Message::LoginRejected(_)) => return Err(refused("the login was rejected")),
                Ok(Message::EndOfSession(_)) => {
                    return Err(refused("the session ended before the snapshot did"));
                }
                Ok(_) => {}
                Err(_) => return Err(refused("not SoupBinTCP")),
            }
        }
        let used = packets.offset();
        stream_bytes.drain(..used);
    }
}

fn hand_on(messages: &mut Vec<u8>, wanted: &Wanted, answers: &SyncSender<Owned>) -> io::Result<()> {
    if messages.is_empty() {
        return Ok(());
    }
    let chunk = std::mem::replace(messages, Vec::with_capacity(CHUNK_BYTES));
    let (channel, attempt) = (wanted.channel, wanted.attempt);
    answers
        .send(Owned::Snapshot { channel, attempt, received: now(), messages: chunk })
        .map_err(|_| refused("ingest is gone"))
}

/// GLIMPSE's End of Snapshot: `G`, and the number of the first live message that the snapshot does not hold.
fn end_of_snapshot(message: &[u8]) -> Option<u64> {
    let (b'G', digits) = message.split_first()? else { return None };
    AsciiNumber(*<&[u8; 20]>::try_from(digits).ok()?).value()
}
