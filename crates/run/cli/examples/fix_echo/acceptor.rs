//! The echoing acceptor itself: sessions by peer and version, and one connection of a session.
//!
//! The example serves it on a port; the test program `fix_suite` runs it within its own process.

use std::collections::{HashMap, HashSet};
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, SystemTime};

use tapeworks_fix_wire::{Framing, begin_string, field, next_message};
use tapeworks_order_session::fix::{
    Application, Dictionary, End, Link, MemoryStore, Received, Role, Session, Settings, Store, Verdict,
};

/// The most ClOrdIDs that a session remembers.
const MOST_IDS: usize = 100_000;

/// The most bytes of sent messages that a session keeps for resends.
const STORE_BYTES: usize = 64 << 20;

/// The dictionaries of the three versions.
pub(crate) struct Dictionaries {
    pub(crate) fix42: Arc<Dictionary>,
    pub(crate) fix44: Arc<Dictionary>,
    pub(crate) fix50sp2: Arc<Dictionary>,
}

impl Dictionaries {
    /// Reads the QuickFIX-style dictionaries of a folder.
    pub(crate) fn read(folder: &Path) -> Result<Self, String> {
        let read = |name: &str| {
            let path = folder.join(name);
            let text =
                std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            Dictionary::from_xml(&text).map_err(|error| format!("{}: {error}", path.display()))
        };
        Ok(Self {
            fix42: Arc::new(read("FIX42.xml")?),
            fix44: Arc::new(read("FIX44.xml")?),
            fix50sp2: Arc::new(read("FIXT11.xml")?.with_application(read("FIX50SP2.xml")?)),
        })
    }
}

/// Parts of a session that outlive a connection.
struct State {
    store: MemoryStore,
    /// ClOrdIDs of received messages.
    seen: HashSet<Vec<u8>>,
}

/// A session between connections.
struct Known {
    settings: Settings,
    dictionary: Arc<Dictionary>,
    /// Locked by the connection that uses the session.
    state: Mutex<State>,
}

impl Known {
    /// Locks the session for a connection; `None` if another connection keeps it.
    fn claim(&self) -> Option<MutexGuard<'_, State>> {
        // A connection that is just ending releases its session shortly.
        for _ in 0..20 {
            match self.state.try_lock() {
                Ok(state) => return Some(state),
                Err(TryLockError::Poisoned(state)) => return Some(PoisonError::into_inner(state)),
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(10)),
            }
        }
        None
    }
}

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
        let body: Vec<_> =
            received.message.fields().filter(|(tag, _)| self.dictionary.is_of_body(*tag)).collect();
        let tags: Vec<u32> = body.iter().map(|(tag, _)| *tag).collect();
        let routing: Vec<_> = received.message.fields().filter(|(tag, _)| *tag == 97).collect();
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

/// Reads up to the end of the first message.
fn first_message(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let (mut bytes, mut piece) = (Vec::new(), [0; 4_096]);
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    loop {
        match next_message(&bytes, 64 << 10) {
            Framing::Incomplete => {}
            Framing::Message { .. } => return Ok(bytes),
            Framing::Garbled { .. } | Framing::WrongLength => {
                return Err(io::Error::other("the first message is garbled"));
            }
        }
        match stream.read(&mut piece)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => bytes.extend_from_slice(piece.get(..count).unwrap_or_default()),
        }
    }
}

/// An acceptor with its sessions, by BeginString and the peer's CompID.
pub(crate) struct Acceptor(HashMap<(Vec<u8>, Vec<u8>), Known>);

impl Acceptor {
    /// An acceptor whose sessions have not begun.
    pub(crate) fn new(dictionaries: &Dictionaries, keeps_numbers: bool) -> Self {
        let versions = [
            ("FIX.4.2", "TW42", &dictionaries.fix42),
            ("FIX.4.4", "TW44", &dictionaries.fix44),
            ("FIXT.1.1", "TW50SP2", &dictionaries.fix50sp2),
        ];
        let mut sessions = HashMap::new();
        for (version, named, dictionary) in versions {
            for peer in [named, "TW"] {
                let mut settings = Settings::new(Role::Acceptor, version, "ISLD", peer);
                settings.close_timeout_ns = 0;
                settings.version_in_business_reject = settings.is_fixt();
                settings.answers_any_resend_request = true;
                settings.resets_on_logout = !keeps_numbers;
                settings.resets_on_disconnect = !keeps_numbers;
                let store = MemoryStore::new(STORE_BYTES, now_ns());
                let state = Mutex::new(State { store, seen: HashSet::new() });
                let known = Known { settings, dictionary: dictionary.clone(), state };
                sessions.insert((version.into(), peer.into()), known);
            }
        }
        Self(sessions)
    }

    /// Serves a connection until it ends. Returns the peer's CompID and how the connection ended.
    pub(crate) fn serve(&self, mut stream: TcpStream) -> io::Result<(String, Option<End>)> {
        stream.set_nodelay(true)?;
        let first = first_message(&mut stream)?;
        let peer = field(&first, 49).unwrap_or_default();
        let Some(known) = self.0.get(&(begin_string(&first).to_vec(), peer.to_vec())) else {
            return Err(io::Error::other("no such session"));
        };
        let Some(mut state) = known.claim() else {
            return Err(io::Error::other("the session is logged on already"));
        };
        let State { store, seen } = &mut *state;
        if known.settings.resets_on_disconnect {
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
                Ok(count) => {
                    session.receive(piece.get(..count).unwrap_or_default(), store, &mut echo, now_ns());
                }
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                }
                Err(_) => session.closed(store, now_ns()),
            }
            session.tick(store, &mut echo, now_ns());
        }
        let is_refused = matches!(session.over(), Some(End::Refused(_)));
        if known.settings.resets_on_disconnect && !is_refused {
            store.reset(now_ns()).map_err(io::Error::other)?;
        }
        // Fails if the peer has closed already, which changes nothing.
        stream.shutdown(Shutdown::Both).ok();
        Ok((String::from_utf8_lossy(peer).into_owned(), session.over().cloned()))
    }
}
