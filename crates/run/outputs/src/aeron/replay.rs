//! The server that sends the past of a stream again, over TCP.
//!
//! ```text
//! reader  aeron-replay=1|token=...|stream=nbbo|shard=0|after=NUMBER.PLACE|time=NS
//! server  success=1|epoch=NS   or error=TEXT and the end
//! server  messages, each behind its length (4 bytes, little-endian); a length of 0 is the end
//! ```
//!
//! `epoch` is the plant's start time, as in its messages: messages of another plant on the same streams have another one.
//!
//! `stream` is `events` (of all channels, in the order of the journal) or `nbbo`. The server sends everything after `after` that is
//! in the journal. `time` is the receive time of the item with the number `after`: if the journal has another time there, it is
//! another journal, and the request is refused. Without `after`, a replay begins with the day, or with the receive time `start`.
//!
//! The journal is written slightly later than the streams, so a replay ends only when it includes all events published before the
//! request. An aborted replay has no length of 0 at its end. While making records takes long, messages without items are sent.
//!
//! With a certificate, the whole exchange is inside TLS. A peer has a few seconds for the handshake and the request together,
//! however it sends them.
//!
//! Each replay is a thread with a time limit per call, and their number is limited. A peer counts once its request is admitted. The
//! NBBO is made by a replica, from the last checkpoint on.

use std::collections::VecDeque;
use std::io::{self, BufWriter, IoSlice, Read as _, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use subtle::ConstantTimeEq as _;
use tapeworks_engine::history::{History, HistoryError, Read};
use tapeworks_engine::replica::{Mode, Replica, Special, place_of};
use tapeworks_market::{BookOptions, Event, InstrumentId, Symbol};
use tapeworks_runtime::followed::FollowedFiles;
use tapeworks_runtime::refusals::{OnRefusal, Refusals};
use tapeworks_runtime::transport::{Acceptor, Transport};
use tapeworks_runtime::world::{System, World as _};
use tapeworks_store::Schema;
use tapeworks_store::live;
use tapeworks_time::Nanos;

use super::AeronSetting;
use super::message::{Draft, EVENT_ITEM_BYTES, Key, Kind, record_item_bytes, shard_of};
use super::sender::Queue;

/// Maximum length of a request line in bytes.
const MOST_REQUEST: usize = 1_024;

/// Maximum number of peers whose requests are not read yet. One more displaces one of them.
const MOST_ASKING: usize = 64;

/// Time limit for the whole request, including the TLS handshake.
const REQUEST_PATIENCE: Duration = Duration::from_secs(5);

/// How long a reader may accept nothing.
const WRITE_PATIENCE: Duration = Duration::from_secs(10);

/// How long a refused reader may take to read why.
const LEAVING: Duration = Duration::from_secs(1);

/// How long the journal may take to include the published events.
const JOURNAL_PATIENCE: Duration = Duration::from_secs(10);

/// The pause between two checks of a journal that is behind.
const JOURNAL_PAUSE: Duration = Duration::from_millis(2);

/// How often a reader is sent a message, even an empty one. Its own time limit is longer.
const SIGN_OF_LIFE: Duration = Duration::from_secs(1);

/// How long before a time its records' events may begin, in ns: longer than a group of events stays open, and than receive times
/// step back.
const REACH_NS: u64 = 10 * Nanos::SECOND;

/// The answer to a reader that does not speak TLS although it must.
const MUST_SPEAK_TLS: &[u8] = b"error=this replay server speaks TLS, and nothing else\n";

/// The first byte of a TLS handshake.
const HANDSHAKE: u8 = 0x16;

/// The length that ends a replay.
const END: u32 = 0;

/// Why a replay is refused, or ends early. The reader is sent the text.
#[derive(thiserror::Error, Debug)]
pub(super) enum Refusal {
    #[error("the line is no request: {0}")]
    Garbage(&'static str),
    #[error("it speaks TLS, and [aeron] has no 'certificate'")]
    SpeaksTls,
    #[error("no TLS: {0}")]
    NoTls(io::Error),
    #[error("the token is wrong")]
    Token,
    #[error("{TOO_MANY} {0} replays at once, max_replays of [aeron]")]
    TooMany(usize),
    #[error("{TOO_MANY} {0} peers ask at once")]
    Crowd(usize),
    #[error("the journal lacks {0} events that were published")]
    Behind(u64),
    #[error("the plant ends")]
    Ended,
    #[error("the plant has no [journal]")]
    NoJournal,
    #[error("the plant has {0} streams of the NBBO")]
    Shard(u16),
    #[error("{OTHER_JOURNAL}: event {0} is another one, or gave other records")]
    OtherJournal(u64),
    #[error(transparent)]
    History(#[from] HistoryError),
    #[error(transparent)]
    Connection(#[from] io::Error),
}

/// The prefix of a refusal's text when the numbers of events restarted.
pub(super) const OTHER_JOURNAL: &str = "another journal";

/// The prefix of a refusal's text when too many replays are running.
pub(super) const TOO_MANY: &str = "more than";

/// A reader's request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Wanted {
    /// The shard of the NBBO; `None` for events.
    pub(super) shard: Option<u16>,
    /// Start after this item, which has this receive time.
    pub(super) after: Option<(Key, u64)>,
    /// Without `after`: start at this receive time.
    pub(super) start: u64,
}

fn key(text: &str) -> Option<Key> {
    let (number, place) = text.split_once('.')?;
    Some(Key { number: number.parse().ok()?, place: place.parse().ok()? })
}

impl Wanted {
    /// Formats the request line, without its newline.
    pub(super) fn line(&self, token: &str) -> String {
        let mut line = format!("aeron-replay=1|token={token}");
        match self.shard {
            Some(shard) => line.push_str(&format!("|stream=nbbo|shard={shard}")),
            None => line.push_str("|stream=events"),
        }
        if let Some((after, time)) = self.after {
            line.push_str(&format!("|after={}.{}|time={time}", after.number, after.place));
        }
        line.push_str(&format!("|start={}", self.start));
        line
    }

    /// Parses a request line. Returns the request and its token.
    fn parse(line: &str) -> Result<(Self, &str), Refusal> {
        let value = |name: &str| {
            let mut pairs = line.trim_end().split('|').filter_map(|pair| pair.split_once('='));
            pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
        };
        if value("aeron-replay") != Some("1") {
            return Err(Refusal::Garbage("it does not begin with aeron-replay=1"));
        }
        let shard = match (value("stream"), value("shard").map(str::parse)) {
            (Some("events"), None) => None,
            (Some("nbbo"), Some(Ok(shard))) => Some(shard),
            _ => return Err(Refusal::Garbage("'stream' is not events, or not nbbo with a 'shard'")),
        };
        let number = |name: &str| {
            value(name).map(|text| text.parse().map_err(|_| Refusal::Garbage("a time is no number")))
        };
        let place = |name: &str| {
            value(name).map(|text| key(text).ok_or(Refusal::Garbage("a key is not NUMBER.PLACE")))
        };
        let time = number("time").transpose()?.unwrap_or_default();
        let after = place("after").transpose()?.map(|after| (after, time));
        let start = number("start").transpose()?.unwrap_or_default();
        Ok((Self { shard, after, start }, value("token").unwrap_or_default()))
    }
}

/// The bound address of the replay server, before the plant runs.
#[derive(Debug)]
pub struct Listening {
    listener: TcpListener,
    address: SocketAddr,
    acceptor: Acceptor,
}

/// What the server needs to run.
pub(super) struct Server {
    pub(super) setting: AeronSetting,
    /// The plant's start time, in ns.
    pub(super) epoch: u64,
    pub(super) books: BookOptions,
    pub(super) history: Option<Arc<dyn History>>,
    pub(super) queue: Arc<Queue>,
    pub(super) on_refusal: Option<OnRefusal>,
}

/// The running server. Dropping it stops it and its replays.
#[derive(Debug)]
pub(super) struct Replays {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Listening {
    pub(super) fn bind(address: SocketAddr, acceptor: Acceptor) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address, acceptor })
    }

    /// Returns the TLS files.
    pub fn files(&self) -> Option<Arc<dyn FollowedFiles>> {
        self.acceptor.files()
    }

    /// Starts serving.
    pub(super) fn serve(self, server: Server) -> io::Result<Replays> {
        let Self { listener, address, acceptor } = self;
        let stop = Arc::new(AtomicBool::new(false));
        let stop_in = Arc::clone(&stop);
        let thread = thread::Builder::new()
            .name("aeron-replays".to_owned())
            .spawn(move || accept(&listener, &acceptor, &Arc::new(server), &stop_in))?;
        Ok(Replays { address, stop, thread: Some(thread) })
    }
}

impl Replays {
    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Replays {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // The thread waits for connections: this one is its last.
        let mut own = self.address;
        if own.ip().is_unspecified() {
            own.set_ip(if own.is_ipv4() {
                [127, 0, 0, 1].into()
            } else {
                [0u16, 0, 0, 0, 0, 0, 0, 1].into()
            });
        }
        let is_woken = TcpStream::connect_timeout(&own, Duration::from_secs(1)).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| is_woken) {
            // It only ends so.
            let _ended = thread.join();
        }
    }
}

fn accept(listener: &TcpListener, acceptor: &Acceptor, server: &Arc<Server>, stop: &Arc<AtomicBool>) {
    let (asking, running) = (Arc::new(Asking::default()), Arc::new(AtomicUsize::new(0)));
    let refusals = Refusals::new("reader of Aeron's streams", server.on_refusal.clone());
    let refusals = Arc::new(Mutex::new(refusals));
    while !stop.load(Ordering::Acquire) {
        let (stream, address) = match listener.accept() {
            Ok(accepted) => accepted,
            // Out of file descriptors, or the peer has disconnected: retry a little later.
            Err(_) => {
                thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        if stop.load(Ordering::Acquire) {
            return;
        }
        let refuse = {
            let (refusals, server) = (Arc::clone(&refusals), Arc::clone(server));
            move |refusal: &Refusal| {
                server.queue.update(|status| status.refused_replays += 1);
                let now_ns = System::time_of_day().0;
                refusals.lock().unwrap_or_else(PoisonError::into_inner).refused(address, refusal, now_ns);
            }
        };
        let asks = match asking.enter(&stream, address.ip()) {
            Ok(asks) => asks,
            Err(error) => {
                refuse(&error.into());
                continue;
            }
        };
        let (server_in, stop, running) = (Arc::clone(server), Arc::clone(stop), Arc::clone(&running));
        let acceptor = acceptor.clone();
        let serving = thread::Builder::new().name("aeron-replay".to_owned()).spawn(move || {
            let served = Timed::new(stream, REQUEST_PATIENCE, WRITE_PATIENCE)
                .and_then(|stream| acceptor.accept(stream, MUST_SPEAK_TLS))
                .map_err(Refusal::from)
                .and_then(|peer| serve(&server_in, peer, &stop, &refuse, asks, &running));
            if served.is_err() {
                server_in.queue.update(|status| status.failed_replays += 1);
            }
        });
        if serving.is_err() {
            server.queue.update(|status| status.refused_replays += 1);
        }
    }
}

/// The peers whose requests are not read yet.
#[derive(Default, Debug)]
struct Asking(Mutex<VecDeque<Arc<Caller>>>);

#[derive(Debug)]
struct Caller {
    socket: TcpStream,
    address: IpAddr,
    is_displaced: AtomicBool,
}

impl Asking {
    /// Registers a peer. If there are too many, the oldest one of the address with the most peers is displaced, so that an address
    /// that opens connections without a request takes room only from itself.
    fn enter(self: &Arc<Self>, stream: &TcpStream, address: IpAddr) -> io::Result<Asks> {
        let caller = Caller { socket: stream.try_clone()?, address, is_displaced: AtomicBool::new(false) };
        let caller = Arc::new(caller);
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MOST_ASKING {
            let of = |address| all.iter().filter(|one| one.address == address).count();
            let counts: Vec<usize> = all.iter().map(|one| of(one.address)).collect();
            let most = counts.iter().copied().max();
            let at = counts.iter().position(|count| Some(*count) == most);
            if let Some(gone) = at.and_then(|at| all.remove(at)) {
                gone.is_displaced.store(true, Ordering::Release);
                // Its thread reads the end, and answers. A peer that is already gone needs no answer.
                let _ended = gone.socket.shutdown(Shutdown::Read);
            }
        }
        all.push_back(Arc::clone(&caller));
        Ok(Asks { asking: Arc::clone(self), caller })
    }
}

/// A registration among the waiting peers. Dropping it removes it.
struct Asks {
    asking: Arc<Asking>,
    caller: Arc<Caller>,
}

impl Asks {
    fn is_displaced(&self) -> bool {
        self.caller.is_displaced.load(Ordering::Acquire)
    }
}

impl Drop for Asks {
    fn drop(&mut self) {
        let mut all = self.asking.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|one| !Arc::ptr_eq(one, &self.caller));
    }
}

/// One of a limited number of slots. Dropping it frees it.
struct Slot(Arc<AtomicUsize>);

impl Slot {
    fn take(taken: &Arc<AtomicUsize>, most: usize) -> Option<Self> {
        // From here on dropping frees the slot, even if there are too many.
        let slot = Self(Arc::clone(taken));
        (taken.fetch_add(1, Ordering::AcqRel) < most).then_some(slot)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A socket with a deadline for reads, and a time limit for each write.
#[derive(Debug)]
pub(super) struct Timed {
    stream: TcpStream,
    until: Instant,
}

impl Timed {
    pub(super) fn new(stream: TcpStream, read: Duration, write: Duration) -> io::Result<Self> {
        stream.set_write_timeout(Some(write))?;
        Ok(Self { stream, until: Instant::now() + read })
    }
}

impl io::Read for Timed {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        match self.stream.read(into) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(io::ErrorKind::TimedOut.into()),
            other => other,
        }
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.stream.write_vectored(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// A reader's connection.
pub(super) type Peer = Transport<Timed>;

/// Ends a connection in such a way that the peer can read the answer: closing it with unread bytes would lose the answer.
fn leave(peer: &mut Peer) {
    let Timed { stream, until } = peer.stream();
    *until = Instant::now() + LEAVING;
    if stream.shutdown(Shutdown::Write).is_ok() {
        let mut piece = [0; MOST_REQUEST];
        while matches!(peer.stream().read(&mut piece), Ok(1..)) {}
    }
}

/// Reads a request line.
pub(super) fn read_request(peer: &mut Peer) -> Result<String, Refusal> {
    let (mut line, mut piece) = (Vec::new(), [0; MOST_REQUEST]);
    loop {
        let length = match peer.read(&mut piece) {
            Ok(0) if !peer.is_agreed() => return Err(Refusal::NoTls(io::ErrorKind::UnexpectedEof.into())),
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) if !peer.is_agreed() => return Err(Refusal::NoTls(error)),
            Err(error) => return Err(error.into()),
        };
        line.extend_from_slice(piece.get(..length).unwrap_or_default());
        if line.first() == Some(&HANDSHAKE) {
            return Err(Refusal::SpeaksTls);
        }
        let end = line.iter().position(|byte| *byte == b'\n');
        if end.is_some() || length == 0 || line.len() >= MOST_REQUEST {
            line.truncate(end.unwrap_or(line.len()));
            return String::from_utf8(line).map_err(|_| Refusal::Garbage("it is no text"));
        }
    }
}

/// Serves one reader. Returns an error if a replay that began did not complete.
fn serve(
    server: &Server,
    mut peer: Peer,
    stop: &AtomicBool,
    refuse: &dyn Fn(&Refusal),
    asks: Asks,
    running: &Arc<AtomicUsize>,
) -> Result<(), Refusal> {
    let answer = |peer: &mut Peer, refusal: Refusal| {
        refuse(&refusal);
        // A reader that has disconnected needs no answer.
        let _answered = peer.write_all(format!("error={refusal}\n").as_bytes());
        leave(peer);
        Ok(())
    };
    let line = match read_request(&mut peer) {
        _ if asks.is_displaced() => {
            let refusal = Refusal::Crowd(MOST_ASKING);
            refuse(&refusal);
            if peer.is_agreed() {
                // A reader that has disconnected needs no answer. Nobody waits for it here.
                let _answered = peer.write_all(format!("error={refusal}\n").as_bytes());
            }
            return Ok(());
        }
        Ok(line) => line,
        // Without a handshake no answer is possible; TLS has sent an alert if it could.
        Err(refusal @ Refusal::NoTls(_)) => {
            server.queue.update(|status| status.tls_refused += 1);
            refuse(&refusal);
            leave(&mut peer);
            return Ok(());
        }
        Err(refusal) => return answer(&mut peer, refusal),
    };
    let admitted = Wanted::parse(&line).and_then(|(wanted, token)| {
        let right = server.setting.token.as_ref().map(|secret| secret.get());
        if right.is_some_and(|right| !bool::from(right.as_bytes().ct_eq(token.as_bytes()))) {
            return Err(Refusal::Token);
        }
        let shards = server.setting.nbbo_streams;
        if wanted.shard.is_some_and(|shard| shard >= shards) {
            return Err(Refusal::Shard(shards));
        }
        Ok((wanted, server.history.clone().ok_or(Refusal::NoJournal)?))
    });
    let (wanted, history) = match admitted {
        Ok(admitted) => admitted,
        Err(refusal) => return answer(&mut peer, refusal),
    };
    let most = server.setting.max_replays;
    let Some(_runs) = Slot::take(running, most) else {
        return answer(&mut peer, Refusal::TooMany(most));
    };
    drop(asks);
    let published = server.queue.next();
    let mut to = BufWriter::with_capacity(1 << 16, peer);
    // Sent immediately, because finding the beginning may take long.
    to.write_all(format!("success=1|epoch={}\n", server.epoch).as_bytes()).and_then(|()| to.flush())?;
    server.queue.update(|status| {
        status.replays += 1;
        status.running_replays += 1;
    });
    let mut run = Run::new(server, wanted, &mut to);
    let mut ended = run.run(&*history, published, stop);
    if let Err(error) = &ended
        && !matches!(error, Refusal::Connection(_) | Refusal::Ended)
    {
        let text = error.to_string();
        ended = run.put_error(&text).map_err(Refusal::from).and(ended);
    }
    let items = run.items;
    server.queue.update(|status| {
        status.running_replays -= 1;
        status.replayed += items;
    });
    // Without the end marker the reader knows that there is more.
    ended?;
    to.write_all(&END.to_le_bytes())?;
    to.flush()?;
    if to.get_ref().is_settled() { Ok(()) } else { Err(io::Error::from(io::ErrorKind::TimedOut).into()) }
}

struct Run<'r, T: Write> {
    wanted: Wanted,
    shards: u16,
    to: &'r mut T,
    draft: Option<(Kind, Draft)>,
    replica: Option<Replica>,
    /// The number of the next event.
    next: u64,
    /// The key of the last record, whether or not it was wanted.
    last: Option<Key>,
    /// Whether the item with the number `after` was seen, and is the one that the reader has.
    is_known: bool,
    other: Option<u64>,
    symbols: usize,
    items: u64,
    /// When the last message was sent.
    shown: Instant,
}

impl<'r, T: Write> Run<'r, T> {
    fn new(server: &Server, wanted: Wanted, to: &'r mut T) -> Self {
        let replica = wanted.shard.map(|_| {
            let mut replica = Replica::new(&server.books);
            replica.set_mode(Schema::Cmbp1, Mode::On);
            replica
        });
        Self {
            wanted,
            shards: server.setting.nbbo_streams,
            to,
            draft: None,
            replica,
            next: 0,
            last: None,
            is_known: wanted.after.is_none(),
            other: None,
            symbols: 0,
            items: 0,
            shown: Instant::now(),
        }
    }

    /// Sends all requested items, at least those of the events before number `published`.
    fn run(&mut self, history: &dyn History, published: u64, stop: &AtomicBool) -> Result<(), Refusal> {
        let from = self.wanted.after.map_or(self.wanted.start, |(_, time)| time);
        let mut reader = history.open(Nanos(from.saturating_sub(REACH_NS)))?;
        let mut waits = None;
        while !stop.load(Ordering::Acquire) {
            self.show_life()?;
            let mut is_caught_up = false;
            match reader.read()? {
                Read::Start { missed, start } => {
                    self.take(missed)?;
                    self.next = start.first_event();
                    if let Some(replica) = &mut self.replica {
                        replica.restore(*start);
                        let (symbols, time) =
                            (replica.market.instruments().symbols().to_vec(), replica.market.now);
                        for (at, symbol) in symbols.into_iter().enumerate().skip(self.symbols) {
                            // Instrument numbers have 32 bits.
                            self.symbol(time, InstrumentId(at as u32), symbol)?;
                        }
                    }
                }
                Read::Events(events) => self.take(events)?,
                Read::CaughtUp => is_caught_up = true,
            }
            if let Some(number) = self.other {
                return Err(Refusal::OtherJournal(number));
            }
            if !is_caught_up {
                waits = None;
            } else if self.next < published {
                if waits.get_or_insert_with(Instant::now).elapsed() >= JOURNAL_PATIENCE {
                    return Err(Refusal::Behind(published - self.next));
                }
                thread::sleep(JOURNAL_PAUSE);
            } else {
                if let (Some((after, _)), false) = (self.wanted.after, self.is_known) {
                    return Err(Refusal::OtherJournal(after.number));
                }
                return Ok(self.flush()?);
            }
        }
        Err(Refusal::Ended)
    }

    /// Sends an empty message if none was sent for a while.
    fn show_life(&mut self) -> io::Result<()> {
        if self.shown.elapsed() < SIGN_OF_LIFE {
            return Ok(());
        }
        self.shown = Instant::now();
        self.flush_draft()?;
        let kind = if self.wanted.shard.is_some() { Kind::Records } else { Kind::Events };
        self.draft(kind, 0)?;
        self.flush()
    }

    fn take(&mut self, events: &[Event]) -> Result<(), Refusal> {
        let first = self.next;
        self.next += events.len() as u64;
        let Some(mut replica) = self.replica.take() else {
            return (first..).zip(events).try_for_each(|(number, event)| self.event(number, event));
        };
        let mut done = Ok(());
        replica.take(events, |replica, special| {
            if done.is_ok() {
                done = self.records(replica, special);
            }
            replica.clear();
        });
        self.replica = Some(replica);
        done
    }

    /// Returns whether an item with this key and time is requested. Notes the item with the reader's key.
    fn wants(&mut self, key: Key, time: u64) -> bool {
        if let Some((after, time_of_after)) = self.wanted.after {
            if key == after {
                self.is_known = time == time_of_after;
            }
            if !self.is_known && key >= after {
                self.other.get_or_insert(after.number);
            }
            if key <= after {
                return false;
            }
        } else if time < self.wanted.start {
            return false;
        }
        self.other.is_none()
    }

    fn event(&mut self, number: u64, event: &Event) -> Result<(), Refusal> {
        let key = Key { number, place: 0 };
        if !self.wants(key, event.ts_recv.0) {
            return Ok(());
        }
        self.draft(Kind::Events, EVENT_ITEM_BYTES)?.put_event(number, event);
        self.items += 1;
        Ok(())
    }

    fn records(&mut self, replica: &Replica, special: Option<Special>) -> Result<(), Refusal> {
        if let Some(Special::Mapping(instrument, symbol)) = special {
            self.symbol(replica.market.now, instrument, symbol)?;
        }
        let Some(made) = replica.by_schema.get(place_of(Schema::Cmbp1)) else { return Ok(()) };
        for item in made.batch.items() {
            let symbol = replica.market.instruments().symbol(item.instrument);
            if symbol.map(|symbol| shard_of(symbol, self.shards)) != self.wanted.shard {
                continue;
            }
            let before = self.last.filter(|last| last.number == item.event);
            let key = Key { number: item.event, place: before.map_or(0, |last| last.place + 1) };
            self.last = Some(key);
            if self.wants(key, item.time) {
                let record = made.batch.record(item);
                self.draft(Kind::Records, record_item_bytes(record.len()))?.put_record(key, record);
                self.items += 1;
            }
        }
        Ok(())
    }

    /// Handles a new instrument.
    fn symbol(&mut self, time: Nanos, instrument: InstrumentId, symbol: Symbol) -> Result<(), Refusal> {
        self.symbols = self.symbols.max(instrument.index() + 1);
        if Some(shard_of(symbol, self.shards)) == self.wanted.shard {
            let mut bytes = Vec::new();
            live::symbol_mapping(time, instrument, symbol, false, &mut bytes);
            self.draft(Kind::Symbols, bytes.len())?.put_symbol(&bytes);
        }
        Ok(())
    }

    /// Returns a draft of this kind with room for `bytes` more bytes.
    fn draft(&mut self, kind: Kind, bytes: usize) -> io::Result<&mut Draft> {
        if self.draft.as_ref().is_some_and(|(other, draft)| *other != kind || draft.is_full_for(bytes)) {
            self.flush_draft()?;
        }
        let new = || (kind, Draft::begin(Vec::new(), kind, 0, 0));
        Ok(&mut self.draft.get_or_insert_with(new).1)
    }

    fn flush_draft(&mut self) -> io::Result<()> {
        let Some((_, draft)) = self.draft.take() else { return Ok(()) };
        let bytes = draft.finish();
        // A message has about 1,400 bytes.
        self.to.write_all(&(bytes.len() as u32).to_le_bytes())?;
        self.to.write_all(&bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.flush_draft()?;
        self.to.flush()
    }

    fn put_error(&mut self, text: &str) -> io::Result<()> {
        self.draft(Kind::Status, text.len())?.put_text(text);
        self.flush()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_as_it_was_written() {
        let all = [
            Wanted { shard: None, after: None, start: 0 },
            Wanted { shard: None, after: Some((Key { number: 7, place: 0 }, 99)), start: 5 },
            Wanted { shard: Some(3), after: Some((Key { number: 7, place: 2 }, 99)), start: 0 },
        ];
        for wanted in all {
            let line = wanted.line("secret") + "\n";
            assert_eq!(Wanted::parse(&line).unwrap(), (wanted, "secret"));
        }
    }

    #[test]
    fn a_line_that_is_no_request_is_refused() {
        for line in [
            "",
            "GET / HTTP/1.1",
            "aeron-replay=1",
            "aeron-replay=1|stream=nbbo",
            "aeron-replay=1|stream=events|after=7",
            "aeron-replay=1|stream=events|time=x",
        ] {
            assert!(Wanted::parse(line).is_err(), "{line}");
        }
    }

    /// Returns a server with this many events, and the queue with its status.
    fn served(events: u64, token: &str) -> (Replays, Arc<Queue>) {
        let history = tapeworks_engine::history::MemoryHistory::default();
        history.append(&(0..events).map(event).collect::<Vec<_>>());
        served_of(history, token)
    }

    pub(in super::super) fn served_of(
        history: tapeworks_engine::history::MemoryHistory,
        token: &str,
    ) -> (Replays, Arc<Queue>) {
        served_by(Acceptor::Plain, history, token)
    }

    pub(in super::super) fn served_by(
        acceptor: Acceptor,
        history: tapeworks_engine::history::MemoryHistory,
        token: &str,
    ) -> (Replays, Arc<Queue>) {
        let queue = Arc::new(Queue::default());
        let server = Server {
            setting: AeronSetting { token: Some(token.into()), ..AeronSetting::new("aeron:ipc".to_owned()) },
            epoch: 7,
            books: BookOptions::default(),
            history: Some(Arc::new(history)),
            queue: Arc::clone(&queue),
            on_refusal: None,
        };
        let listening = Listening::bind(([127, 0, 0, 1], 0).into(), acceptor).unwrap();
        (listening.serve(server).unwrap(), queue)
    }

    fn numbers(
        replays: &Replays,
        token: &str,
        after: Option<(Key, u64)>,
    ) -> Result<Vec<u64>, super::super::fetch::FetchError> {
        let (mut numbers, wanted) = (Vec::new(), Wanted { shard: None, after, start: 0 });
        super::super::fetch::fetch(replays.address(), token, &wanted, |header, rest| {
            super::super::message::events(header, rest, |number, _| numbers.push(number))
        })?;
        Ok(numbers)
    }

    #[test]
    fn a_reader_gets_what_is_behind_its_last_event() {
        let (replays, queue) = served(100, "right");
        let key = |number| Key { number, place: 0 };
        assert_eq!(numbers(&replays, "right", None).unwrap(), (0..100).collect::<Vec<_>>());
        assert_eq!(numbers(&replays, "right", Some((key(96), 97))).unwrap(), [97, 98, 99]);
        assert_eq!(numbers(&replays, "right", Some((key(99), 100))).unwrap(), [0u64; 0]);
        for of_another_journal in [(key(96), 96), (key(100), 101)] {
            let refused = numbers(&replays, "right", Some(of_another_journal)).unwrap_err();
            assert!(matches!(refused, super::super::fetch::FetchError::OtherJournal { .. }), "{refused}");
        }
        drop(replays);
        let status = queue.status();
        assert_eq!((status.replays, status.running_replays, status.refused_replays), (5, 0, 0));
    }

    #[test]
    fn a_reader_with_a_wrong_token_gets_nothing() {
        let (replays, queue) = served(3, "right");
        for token in ["", "wrong", "right "] {
            let refused = numbers(&replays, token, None).unwrap_err();
            assert!(refused.to_string().ends_with("the token is wrong"), "{refused}");
        }
        assert_eq!(queue.status().refused_replays, 3);
        drop(replays);
    }

    fn publish(queue: &Queue, next: u64) {
        queue.put(&mut Vec::new(), &mut Vec::new(), &std::collections::BTreeMap::new(), next, 0);
    }

    pub(in super::super) fn event(number: u64) -> Event {
        use tapeworks_market::{EventKind, Publisher};
        Event {
            ts_recv: Nanos(number + 1),
            ..Event::new(EventKind::Other, Publisher(2), InstrumentId::UNKNOWN)
        }
    }

    #[test]
    fn a_replay_waits_for_a_journal_that_is_behind_the_streams() {
        let history = tapeworks_engine::history::MemoryHistory::default();
        history.append(&(0..50).map(event).collect::<Vec<_>>());
        let (replays, queue) = served_of(history.clone(), "right");
        publish(&queue, 100);
        let (address, after) = (replays.address(), Some((Key { number: 60, place: 0 }, 61)));
        let reader = thread::spawn(move || {
            let (mut numbers, wanted) = (Vec::new(), Wanted { shard: None, after, start: 0 });
            let fetched = super::super::fetch::fetch(address, "right", &wanted, |header, rest| {
                super::super::message::events(header, rest, |number, _| numbers.push(number))
            });
            fetched.map(|()| numbers)
        });
        while queue.status().running_replays == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        history.append(&(50..100).map(event).collect::<Vec<_>>());
        assert_eq!(reader.join().unwrap().unwrap(), (61..100).collect::<Vec<_>>());
    }

    #[test]
    fn a_reader_notices_that_a_replay_was_cut_by_the_end_of_the_plant() {
        let (replays, queue) = served(100, "right");
        publish(&queue, 200);
        let address = replays.address();
        let reader = thread::spawn(move || {
            let wanted = Wanted { shard: None, after: None, start: 0 };
            super::super::fetch::fetch(address, "right", &wanted, |_, _| Ok(()))
        });
        while queue.status().running_replays == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        drop(replays);
        let cut = reader.join().unwrap().unwrap_err();
        assert!(cut.is_passing(), "{cut}");
    }

    #[test]
    fn peers_that_ask_for_nothing_leave_replays_to_others() {
        let (replays, queue) = served(3, "right");
        let silent: Vec<TcpStream> = (0..8).map(|_| TcpStream::connect(replays.address()).unwrap()).collect();
        assert_eq!(numbers(&replays, "right", None).unwrap(), [0, 1, 2]);
        drop(silent);
        assert_eq!(queue.status().replays, 1);
    }

    #[test]
    fn peers_that_ask_for_nothing_are_displaced_by_those_that_come_and_read_why() {
        use std::io::Read as _;
        let (replays, queue) = served(3, "right");
        let connect = || TcpStream::connect(replays.address()).unwrap();
        let mut silent: Vec<TcpStream> = (0..MOST_ASKING + 5).map(|_| connect()).collect();
        assert_eq!(numbers(&replays, "right", None).unwrap(), [0, 1, 2]);
        // The five excess peers, and the reader, displaced the first six.
        for stream in silent.iter_mut().take(6) {
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert_eq!(answer, "error=more than 64 peers ask at once\n");
        }
        assert_eq!((queue.status().replays, queue.status().refused_replays), (1, 6));
    }

    #[test]
    fn a_peer_that_sends_byte_by_byte_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let dripping = thread::spawn(move || {
            while peer.write_all(b"x").is_ok() {
                thread::sleep(Duration::from_millis(5));
            }
        });
        let stream = Timed::new(stream, Duration::from_millis(100), WRITE_PATIENCE).unwrap();
        let mut stream = Transport::Plain(stream);
        let given_up = read_request(&mut stream).unwrap_err();
        let kind = if let Refusal::Connection(error) = &given_up { Some(error.kind()) } else { None };
        assert_eq!(kind, Some(io::ErrorKind::TimedOut), "{given_up}");
        drop(stream);
        dripping.join().unwrap();
    }
}
