//! A FIX acceptor for conformance suites: it echoes every valid message of the application.
//!
//! `cargo run --example fix_echo -- --port 5001 --dictionary-dir DIR`. It is `ISLD`, and takes FIX 4.2, 4.4 and 5.0 SP2 on one port:
//! one session each for the peers `TW` and `TW42`, `TW44`, `TW50SP2`. DIR has QuickFIX-style dictionaries: `FIX42.xml`, `FIX44.xml`,
//! `FIXT11.xml` and `FIX50SP2.xml`. A message with PossResend whose ClOrdID it has seen is ignored, and execution reports are not
//! supported. Numbers begin at 1 after a Logout or a disconnect, and with a Logon only if its ResetSeqNumFlag says so; with
//! `--keep-numbers` they go on.

use std::collections::{HashMap, HashSet};
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use clap::Parser;
use tapeworks_session::fix::{
    Application, Dictionary, Link, MemoryStore, Received, Role, Session, Settings, Store, Verdict,
};
use tapeworks_wire::fix::{Framing, begin_string, field, next_message};

/// The most ClOrdIDs that a session remembers.
const MOST_IDS: usize = 100_000;

/// A FIX acceptor that echoes every valid message of the application.
#[derive(Parser)]
struct Arguments {
    /// The TCP port.
    #[arg(long)]
    port: u16,
    /// The folder of the dictionaries.
    #[arg(long)]
    dictionary_dir: PathBuf,
    /// Both numbers go on after a Logout and a disconnect.
    #[arg(long)]
    keep_numbers: bool,
}

/// A session between connections.
struct Known {
    settings: Settings,
    dictionary: Arc<Dictionary>,
    /// What outlives a connection; held by the connection that runs.
    state: Mutex<(MemoryStore, HashSet<Vec<u8>>)>,
}

/// By BeginString and the peer's CompID.
type Sessions = HashMap<(Vec<u8>, Vec<u8>), Known>;

struct Echo<'a> {
    dictionary: &'a Dictionary,
    seen: &'a mut HashSet<Vec<u8>>,
}

impl Application for Echo<'_> {
    fn message(
        &mut self,
        received: &Received<'_>,
        link: &mut Link,
        store: &mut dyn Store,
        now_ns: u64,
    ) -> Verdict {
        if received.message_type == b"8" {
            return Verdict::UnsupportedType;
        }
        if let Some(id) = received.field(11) {
            if received.is_possible_resend && self.seen.contains(id) {
                return Verdict::Taken;
            }
            if self.seen.len() < MOST_IDS {
                self.seen.insert(id.to_vec());
            }
        }
        let body: Vec<_> = received.fields().filter(|(tag, _)| self.dictionary.is_of_body(*tag)).collect();
        let tags: Vec<u32> = body.iter().map(|(tag, _)| *tag).collect();
        let routing: Vec<_> = received.fields().filter(|(tag, _)| *tag == 97).collect();
        let sent = link.send(store, now_ns, received.message_type, &routing, |writer| {
            for part in self.dictionary.parts_by_tag(received.message_type, &tags) {
                for (tag, value) in body.get(part).unwrap_or_default() {
                    writer.copied(*tag, value);
                }
            }
        });
        if sent.is_ok() { Verdict::Taken } else { Verdict::Refused(4, "The echo cannot be sent") }
    }
}

fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since.as_nanos() as u64
}

fn sessions(arguments: &Arguments) -> Result<Sessions, String> {
    let read = |name: &str| {
        let path: &Path = &arguments.dictionary_dir.join(name);
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Dictionary::from_xml(&text).map_err(|error| format!("{}: {error}", path.display()))
    };
    let fixt = read("FIXT11.xml")?.with_application(read("FIX50SP2.xml")?);
    let versions = [
        ("FIX.4.2", "TW42", read("FIX42.xml")?),
        ("FIX.4.4", "TW44", read("FIX44.xml")?),
        ("FIXT.1.1", "TW50SP2", fixt),
    ];
    let mut sessions = Sessions::new();
    for (version, named, dictionary) in versions {
        let dictionary = Arc::new(dictionary);
        for peer in [named, "TW"] {
            let mut settings = Settings::new(Role::Acceptor, version, "ISLD", peer);
            settings.close_timeout_ns = 0;
            settings.version_in_business_reject = settings.is_fixt();
            settings.answers_any_resend_request = true;
            settings.resets_on_logout = !arguments.keep_numbers;
            settings.resets_on_disconnect = !arguments.keep_numbers;
            let state = Mutex::new((MemoryStore::new(64 << 20, now_ns()), HashSet::new()));
            let known = Known { settings, dictionary: dictionary.clone(), state };
            sessions.insert((version.into(), peer.into()), known);
        }
    }
    Ok(sessions)
}

/// Reads up to the first whole message.
fn first_message(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let (mut bytes, mut piece) = (Vec::new(), [0; 4_096]);
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    loop {
        match next_message(&bytes, 64 << 10) {
            Framing::Incomplete => {}
            Framing::Message { .. } => return Ok(bytes),
            Framing::Garbled { .. } => return Err(io::Error::other("the first message is garbled")),
        }
        match stream.read(&mut piece)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => bytes.extend_from_slice(piece.get(..count).unwrap_or_default()),
        }
    }
}

fn serve(mut stream: TcpStream, sessions: &Sessions) -> io::Result<()> {
    let first = first_message(&mut stream)?;
    let peer = field(&first, 49).unwrap_or_default();
    let Some(known) = sessions.get(&(begin_string(&first).to_vec(), peer.to_vec())) else {
        return Err(io::Error::other("no such session"));
    };
    // A connection that ends just now lets go of its session soon.
    let mut held = None;
    for _ in 0..20 {
        match known.state.try_lock() {
            Ok(state) => held = Some(state),
            Err(std::sync::TryLockError::Poisoned(state)) => held = Some(PoisonError::into_inner(state)),
            Err(std::sync::TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(10)),
        }
        if held.is_some() {
            break;
        }
    }
    let Some(mut state) = held else { return Err(io::Error::other("the session is logged on already")) };
    let (store, seen) = &mut *state;
    if !known.settings.resets_on_disconnect {
        seen.shrink_to_fit();
    } else {
        seen.clear();
    }
    let mut echo = Echo { dictionary: &known.dictionary, seen };
    let mut session = Session::new(known.settings.clone(), known.dictionary.clone(), now_ns());
    stream.set_read_timeout(Some(Duration::from_millis(50)))?;
    let mut piece = [0; 16 << 10];
    session.receive(&first, store, &mut echo, now_ns());
    while session.over().is_none() || !session.output().is_empty() {
        let output = session.output().to_vec();
        let is_written = stream.write_all(&output).is_ok();
        session.sent(output.len());
        if session.over().is_some() {
            break;
        }
        match stream.read(&mut piece) {
            _ if !is_written => session.closed(store, now_ns()),
            Ok(0) => session.closed(store, now_ns()),
            Ok(count) => session.receive(piece.get(..count).unwrap_or_default(), store, &mut echo, now_ns()),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
            Err(_) => session.closed(store, now_ns()),
        }
        session.tick(store, &mut echo, now_ns());
    }
    if !matches!(session.over(), Some(tapeworks_session::fix::End::Refused(_)))
        && known.settings.resets_on_disconnect
    {
        store.reset(now_ns()).map_err(io::Error::other)?;
    }
    eprintln!("{peer:?} ended: {:?}", session.over(), peer = String::from_utf8_lossy(peer));
    stream.shutdown(Shutdown::Both)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = Arguments::parse();
    let sessions = Arc::new(sessions(&arguments)?);
    let listener = TcpListener::bind(("127.0.0.1", arguments.port))?;
    println!("listening on {}", listener.local_addr()?);
    for stream in listener.incoming() {
        let (stream, sessions) = (stream?, sessions.clone());
        std::thread::spawn(move || {
            stream
                .set_nodelay(true)
                .and_then(|()| serve(stream, &sessions))
                .unwrap_or_else(|error| eprintln!("closed: {error}"));
        });
    }
    Ok(())
}
