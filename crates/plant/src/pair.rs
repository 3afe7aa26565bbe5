//! Two plants as a pair: a standby that has the primary's journal, record for record, and takes over.
//!
//! The primary's inputs are its journal, and the engine is deterministic: a plant that takes the same records has the same books, and its
//! events have the same numbers. So the standby takes the primary's records instead of its own lines, writes them into its journal and
//! feeds its engine. Its own lines wait in a buffer meanwhile. When the primary is silent, the standby feeds them behind the last
//! record: of each message the arbitration takes the first copy, so nothing comes twice and nothing is missing.
//!
//! ```text
//! primary   ingest ─▶ journal ─▶ file ─▶ link ══ records ══▶ link ─▶ ingest ─▶ journal     standby
//!                        ▲ lets events pass ◀── acknowledged ══╝◀──────────────┘
//! ```
//!
//! [`PlantOptions::agree`](crate::PlantOptions::agree) decides who is what before the journal is opened. The link is a thread: of the primary it reads the journal's
//! file, from any record on, and follows it, so there is no seam between old records and new ones. `codec` has the bytes.
//!
//! Cost: none without a pair. Of the primary, a read of each record from the page cache and its bytes on the network; ingest does nothing
//! more, and the journal's thread holds events back until the standby has their inputs.

mod agree;
mod codec;
mod hold;
mod link;
mod net;
mod state;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tapeworks_engine::EngineOptions;
use tapeworks_journal::{JournalError, JournalReader, LOST, Record};
use tapeworks_market::Symbol;
use tapeworks_ring::hash::fnv1a;
use tapeworks_runtime::transport::{NoTls, TlsFiles};
use tapeworks_runtime::waiting::WakeUp;
use tapeworks_runtime::world::{Wake as _, World};

pub(crate) use agree::agree;

pub use codec::Role;
use codec::{Hello, Tip};
pub(crate) use hold::Hold;
pub(crate) use link::{Link, Piece};

/// The options of a plant of a pair.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PairSetting {
    /// Where the other plant connects to.
    pub listen: SocketAddr,
    /// Where the other plant listens.
    pub peer: SocketAddr,
    /// The files of TLS, for connections from the other and to it: each shows a certificate that one of `client_authorities` has signed, and
    /// the one that is called a certificate for its address. Without them there is no TLS, and anybody who gets to the port is believed.
    pub tls: Option<TlsFiles>,
    /// Whether it is the primary at its first start. Later it is what it was, if the other does not say otherwise.
    pub is_primary: bool,
    /// Whether it becomes the primary although the other cannot be asked.
    pub is_forced: bool,
    /// Whether the primary's events wait until the standby has their inputs.
    pub waits: bool,
    /// How long they wait before the primary goes on alone.
    pub standby_timeout: Duration,
    /// How long the primary may be silent before the standby takes over.
    pub takeover_after: Duration,
    /// The bounds of the standby's buffer for its own lines: bytes, and time.
    pub buffer_bytes: usize,
    /// See `buffer_bytes`.
    pub buffer: Duration,
    /// Where [`PlantOptions::agree`](crate::PlantOptions::agree) moved the journal, if it was not a beginning of the primary's.
    pub moved_aside: Option<String>,
    /// What [`PlantOptions::agree`](crate::PlantOptions::agree) found; `None`: as the plant remembers, or else as `is_primary` says.
    pub agreed: Option<Role>,
    /// The epoch of the other plant to which this one has stepped down, in case the disk could not keep it.
    pub stepped_down: Option<u64>,
}

impl PairSetting {
    /// A pair with the defaults.
    pub fn new(listen: SocketAddr, peer: SocketAddr, is_primary: bool) -> Self {
        Self {
            listen,
            peer,
            tls: None,
            is_primary,
            is_forced: false,
            waits: true,
            standby_timeout: Duration::from_millis(500),
            takeover_after: Duration::from_secs(2),
            buffer_bytes: 256 << 20,
            buffer: Duration::from_secs(30),
            moved_aside: None,
            agreed: None,
            stepped_down: None,
        }
    }

    /// Whether this plant follows the other, as far as it knows. A plant that follows waits for room on a full disk.
    pub fn is_follower(&self) -> bool {
        let is_standby = self.agreed.map_or(!self.is_primary, |role| role == Role::Standby);
        is_standby || self.stepped_down.is_some()
    }

    /// Makes ready for another [`PlantOptions::agree`](crate::PlantOptions::agree), after the plant ended with `why`.
    pub fn begin_again(&mut self, why: &BeginAgain) {
        // The operator's choice applies to the first role; a plant that has none yet keeps it.
        self.is_forced &= self.agreed.is_none();
        if let BeginAgain::SteppedDown { epoch, .. } = why {
            self.stepped_down = self.stepped_down.max(Some(*epoch));
        }
    }
}

/// Why a plant cannot be one of a pair.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum PairError {
    /// The other plant cannot connect.
    #[error("[pair]: cannot listen to {address}: {source}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// The files of TLS.
    #[error("[pair]: {problem}")]
    Tls {
        /// What is wrong with them.
        problem: NoTls,
    },
    /// What the plant remembers cannot be read or written.
    #[error("[pair]: {}: {source}", path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A pair needs a journal.
    #[error("[pair] needs a [journal]: it is what the two have in common")]
    NoJournal,
    /// The other refuses, and it is of no use to try again.
    #[error("[pair]: the plant at {peer} refuses: {said}")]
    Refused {
        /// The other.
        peer: SocketAddr,
        /// Its reason.
        said: String,
    },
    /// The process is to stop.
    #[error("stopped")]
    Stopped,
}

impl PairError {
    /// Whether the disk is full: there may be room later.
    pub fn is_full_disk(&self) -> bool {
        match self {
            Self::State { source, .. } => source.kind() == std::io::ErrorKind::StorageFull,
            Self::Journal(error) => error.is_full_disk(),
            _ => false,
        }
    }
}

/// Why a plant of a pair begins again, from what [`PlantOptions::agree`](crate::PlantOptions::agree) finds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BeginAgain {
    /// The other has taken over.
    SteppedDown {
        /// The other.
        peer: SocketAddr,
        /// The other's epoch.
        epoch: u64,
    },
    /// The journal is not a beginning of the primary's.
    Diverged {
        /// The primary.
        peer: SocketAddr,
        /// Its reason.
        said: String,
    },
    /// The standby cannot follow.
    CannotFollow(String),
}

impl std::fmt::Display for BeginAgain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::SteppedDown { peer, epoch } => {
                write!(f, "the plant at {peer} is the primary, of epoch {epoch}: this one steps down")
            }
            Self::Diverged { peer, said } => write!(f, "the primary at {peer} refuses: {said}"),
            Self::CannotFollow(why) => write!(f, "the primary cannot be followed: {why}"),
        }
    }
}

/// The status of a pair.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct PairStatus {
    /// What the plant is now.
    pub role: Role,
    /// How many takeovers there were.
    pub epoch: u64,
    /// Where the other is.
    pub peer: String,
    /// Whether the other is connected: of a primary its standby, of a standby its primary.
    pub is_connected: bool,
    /// Whether the primary's events wait for the standby.
    pub is_in_step: bool,
    /// Records that the standby lacks, as far as this plant knows.
    pub lag_records: u64,
    /// The same in bytes: of a primary what it sent and has no acknowledgement of, of a standby what it received and has not written.
    pub lag_bytes: u64,
    /// Times that the primary went on alone because the standby was gone or slow.
    pub went_alone: u64,
    /// Records sent to standbys, or received from the primary.
    pub records: u64,
    /// The standby's buffered packets of its own lines.
    pub buffered_packets: u64,
    /// Their bytes.
    pub buffered_bytes: u64,
    /// Buffered packets that had no room, or waited too long, before the primary had taken them.
    pub buffer_drops: u64,
    /// Takeovers of this plant since its start.
    pub takeovers: u64,
    /// Packets of the buffer that a takeover fed.
    pub fed_packets: u64,
    /// Connections that were refused, or that did not speak the protocol.
    pub refused: u64,
    /// The last reason: of a refusal here, or of the other's.
    pub reason: Option<String>,
    /// Whether the journal was moved aside at the start, because it was not a beginning of the primary's.
    pub moved_aside: Option<String>,
}

/// The link does not look yet, or no longer.
const NEVER: u64 = u64::MAX;

/// A link that has not looked for so long stood still, in ns. It looks more often, and a standby waits for at least as long before it takes over.
const STOOD_STILL_NS: u64 = 250_000_000;

/// What the threads of a plant share for the pair.
#[derive(Debug)]
pub(crate) struct Shared<W: World> {
    /// The journal's file has the records before this one.
    written: AtomicU64,
    /// So has the standby's.
    acknowledged: AtomicU64,
    /// Whether events wait for the standby.
    is_in_step: AtomicBool,
    went_alone: AtomicU64,
    /// The journal's thread has ended.
    has_ended: AtomicBool,
    /// The journal of a standby could not be written.
    has_lost: AtomicBool,
    /// The plant begins again: no more events pass.
    is_deposed: AtomicBool,
    /// When the link looked last, in ns since `began`; [`NEVER`]: it does not look.
    looked_ns: AtomicU64,
    /// The process stood still: before this time events pass only if the standby has them, in ns since `began`.
    doubts_until_ns: AtomicU64,
    began: std::time::Instant,
    /// It wakes the link.
    waker: W::Waker,
    /// It wakes the journal's thread.
    journal: std::sync::OnceLock<Arc<WakeUp<W>>>,
    status: Mutex<PairStatus>,
}

impl<W: World> Shared<W> {
    fn new(waker: W::Waker, status: PairStatus) -> Self {
        Self {
            written: AtomicU64::new(0),
            acknowledged: AtomicU64::new(0),
            is_in_step: AtomicBool::new(false),
            went_alone: AtomicU64::new(0),
            has_ended: AtomicBool::new(false),
            has_lost: AtomicBool::new(false),
            is_deposed: AtomicBool::new(false),
            looked_ns: AtomicU64::new(NEVER),
            doubts_until_ns: AtomicU64::new(0),
            began: W::instant(),
            waker,
            journal: std::sync::OnceLock::new(),
            status: Mutex::new(status),
        }
    }

    /// The journal's thread is woken by this.
    pub(crate) fn wakes(&self, journal: Arc<WakeUp<W>>) {
        // There is one.
        let _twice = self.journal.set(journal);
    }

    /// The journal's file has the records before `next`.
    pub(crate) fn wrote(&self, next: u64) {
        if self.written.swap(next, Ordering::AcqRel) != next {
            // The link looks some times a second in any case.
            let _looks_later = self.waker.wake();
        }
    }

    /// The journal of a plant that follows lacks a record.
    pub(crate) fn lost(&self) {
        self.has_lost.store(true, Ordering::Release);
    }

    /// No more events pass: the other is the primary, or this plant cannot follow.
    fn depose(&self) {
        self.is_deposed.store(true, Ordering::Release);
        if let Some(journal) = self.journal.get() {
            journal.wake();
        }
    }

    /// Whether no more events pass.
    pub(crate) fn is_deposed(&self) -> bool {
        self.is_deposed.load(Ordering::Acquire)
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(W::since(self.began).as_nanos()).unwrap_or(u64::MAX)
    }

    /// The link looks. If it has not for so long that the standby may have taken over meanwhile, and `is_primary`, events are held for
    /// `timeout`, in which the link asks. Returns whether that is so.
    fn looks(&self, is_primary: bool, timeout: Duration) -> bool {
        let (now_ns, before_ns) = (self.now_ns(), self.looked_ns.load(Ordering::Acquire));
        let stood_still = before_ns != NEVER && now_ns.saturating_sub(before_ns) >= STOOD_STILL_NS;
        if stood_still && is_primary {
            let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
            self.doubts_until_ns.store(now_ns.saturating_add(timeout_ns), Ordering::Release);
        }
        self.looked_ns.store(now_ns, Ordering::Release);
        stood_still && is_primary
    }

    /// The link looks no more.
    fn looks_no_more(&self) {
        self.looked_ns.store(NEVER, Ordering::Release);
    }

    /// Whether the other may have taken over, while this process stood still, and the link has not had the time to find that out.
    fn is_in_doubt(&self) -> bool {
        let now_ns = self.now_ns();
        let looked_ns = self.looked_ns.load(Ordering::Acquire);
        let is_unseen = looked_ns != NEVER && now_ns.saturating_sub(looked_ns) >= STOOD_STILL_NS;
        is_unseen || now_ns < self.doubts_until_ns.load(Ordering::Acquire)
    }

    /// The events of records before this one may pass.
    pub(crate) fn may_pass(&self) -> u64 {
        if self.is_in_step.load(Ordering::Acquire) {
            self.acknowledged.load(Ordering::Acquire)
        } else if self.is_in_doubt() {
            0
        } else {
            u64::MAX
        }
    }

    /// The standby has not answered for too long: events no longer wait for it.
    pub(crate) fn goes_on_alone(&self) {
        if self.is_in_step.swap(false, Ordering::AcqRel) {
            self.went_alone.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn acknowledge(&self, next: u64) {
        self.acknowledged.store(next, Ordering::Release);
        if let Some(journal) = self.journal.get() {
            journal.wake();
        }
    }

    pub(crate) fn update(&self, change: impl FnOnce(&mut PairStatus)) {
        change(&mut self.status.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// The status now.
    pub(crate) fn status(&self) -> PairStatus {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The end of the journal's thread: dropped with it.
#[derive(Debug)]
pub(crate) struct Ends<W: World>(pub(crate) Arc<Shared<W>>);

impl<W: World> Drop for Ends<W> {
    fn drop(&mut self) {
        self.0.has_ended.store(true, Ordering::Release);
        let _looks_later = self.0.waker.wake();
    }
}

/// Events that wait in the ring until the standby has their inputs.
#[derive(Debug)]
pub(crate) struct Waiters<W: World> {
    pub(crate) shared: Arc<Shared<W>>,
    timeout: Duration,
    /// A place behind events, the record that follows their inputs, and since when they wait.
    places: std::collections::VecDeque<(u64, u64, std::time::Instant)>,
    /// Events that have passed.
    passed: u64,
    _ends: Ends<W>,
}

/// How often the thread looks at least while events wait.
const LOOK: Duration = Duration::from_millis(50);

/// Places that are kept apart; later events share the last one.
const PLACES: usize = 1_024;

impl<W: World> Waiters<W> {
    pub(crate) fn new(shared: Arc<Shared<W>>, timeout: Duration) -> Self {
        let ends = Ends(Arc::clone(&shared));
        Self {
            shared,
            timeout,
            places: std::collections::VecDeque::with_capacity(PLACES),
            passed: 0,
            _ends: ends,
        }
    }

    /// Events that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.places.back().map_or(0, |(place, ..)| (place - self.passed) as usize)
    }

    /// The ring has so many events whose inputs are before the record `next`. Returns how many may pass.
    pub(crate) fn pass(&mut self, published: usize, next: u64) -> usize {
        let place = self.passed + published as u64;
        if published > self.waiting() {
            if self.places.len() == PLACES
                && let Some(last) = self.places.back_mut()
            {
                (last.0, last.1) = (place, next);
            } else {
                self.places.push_back((place, next, W::instant()));
            }
        }
        if self.is_late() && !self.shared.is_in_doubt() {
            self.shared.goes_on_alone();
        }
        let (may_pass, before) = (self.shared.may_pass(), self.passed);
        while let Some((place, record, _)) = self.places.front().copied()
            && record <= may_pass
        {
            self.passed = place;
            self.places.pop_front();
        }
        (self.passed - before) as usize
    }

    fn is_late(&self) -> bool {
        self.places.front().is_some_and(|(.., since)| W::since(*since) >= self.timeout)
    }

    /// Whether some may pass now.
    pub(crate) fn is_due(&self) -> bool {
        let may_pass = self.shared.may_pass();
        self.shared.is_deposed()
            || self.places.front().is_some_and(|(_, record, _)| *record <= may_pass)
            || self.is_late() && !self.shared.is_in_doubt()
    }

    /// How long the thread may sleep.
    pub(crate) fn longest(&self) -> Duration {
        self.places.front().map_or(Duration::MAX, |(.., since)| {
            let left = self.timeout.saturating_sub(W::since(*since));
            // Late events that wait although nobody answers wait for the link.
            if left.is_zero() { LOOK } else { left.min(LOOK) }
        })
    }
}

/// What both must have alike.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Alike {
    engine: u64,
    lines: u64,
}

impl Alike {
    /// Of a plant with this engine, and venues with these names and lines.
    pub(crate) fn of<'v>(
        engine: &EngineOptions,
        venues: impl Iterator<Item = (&'v str, &'v [SocketAddr])>,
    ) -> Self {
        let mut symbols: Vec<&str> = engine.symbols.iter().flatten().map(Symbol::as_str).collect();
        symbols.sort_unstable();
        let has_symbols = engine.symbols.is_some();
        // A bug fix may change the events of the same inputs.
        let version = env!("CARGO_PKG_VERSION");
        let text = format!(
            "{version} {:?} {:?} {:?} {:?} {has_symbols} {symbols:?}",
            engine.channels, engine.self_help, engine.sip_sizes, engine.books.rules
        );
        let lines: Vec<_> = venues.collect();
        Self { engine: fnv1a(text.as_bytes()), lines: fnv1a(format!("{lines:?}").as_bytes()) }
    }

    /// Why the other cannot be of this pair.
    fn refuse(self, hello: &Hello) -> Option<(codec::Reason, &'static str)> {
        if hello.engine != self.engine {
            let text = "its version, venues, symbols or rules are not those of this plant: the same inputs would give other events";
            return Some((codec::Reason::Configuration, text));
        }
        (hello.lines != self.lines).then_some((
            codec::Reason::Lines,
            "its lines are not those of this plant: the two of a pair listen to the same lines",
        ))
    }
}

/// Bytes that a reader of one record, or one that follows closely, reads at once.
const READ_BYTES: usize = 64 << 10;

/// The bytes of a record say which it is.
fn tip_of(record: &Record<'_>, scratch: &mut Vec<u8>) -> Tip {
    scratch.clear();
    record.encode(scratch);
    let checksum = scratch.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    Tip { time: record.time, checksum }
}

/// The record before `next` in the journal in `folder`; `None`: the journal does not have it.
fn tip_before<W: World>(folder: &std::path::Path, next: u64) -> Result<Option<Tip>, JournalError> {
    let Some(last) = next.checked_sub(1) else { return Ok(None) };
    let mut reader = JournalReader::<W>::from_number_in(folder, last)?;
    let mut scratch = Vec::new();
    while let Some(record) = reader.next()? {
        if record.number >= last {
            return Ok((record.number == last).then(|| tip_of(&record, &mut scratch)));
        }
    }
    Ok(None)
}

/// Whether a record counts others that had numbers.
pub(crate) const fn stands_for_numbered(record: &Record<'_>) -> bool {
    record.kind == LOST && record.line == tapeworks_journal::NUMBERED
}

#[cfg(test)]
mod tests {
    use tapeworks_runtime::world::{Poll as _, System};

    use super::*;

    const TIMEOUT: Duration = Duration::from_millis(40);

    /// An address of this machine on which nothing listens.
    pub(super) fn free_address() -> SocketAddr {
        std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap()
    }

    fn shared() -> Arc<Shared<System>> {
        let poll = <System as World>::Poll::new(4).unwrap();
        Arc::new(Shared::new(poll.waker(net::WAKER).unwrap(), PairStatus::default()))
    }

    /// As after the process stood still: the link looked for the last time long ago.
    fn stood_still(shared: &Shared<System>) {
        std::thread::sleep(Duration::from_nanos(STOOD_STILL_NS));
        shared.looked_ns.store(0, Ordering::Release);
    }

    #[test]
    fn a_primary_that_stood_still_lets_no_event_pass_that_the_standby_lacks_until_it_has_asked() {
        let shared = shared();
        assert!(!shared.looks(true, TIMEOUT), "it begins");
        let mut waiters = Waiters::new(Arc::clone(&shared), TIMEOUT);
        shared.acknowledge(10);
        shared.is_in_step.store(true, Ordering::Release);
        assert_eq!(waiters.pass(3, 10), 3, "the standby has them");
        assert_eq!(waiters.pass(2, 12), 0, "it lacks their inputs");
        stood_still(&shared);
        // They are late, but the other may have taken over without them.
        assert_eq!((waiters.pass(2, 12), shared.went_alone.load(Ordering::Relaxed)), (0, 0));
        assert!(waiters.longest() <= LOOK);
        // The link looks, and is to ask; meanwhile they wait, except those that the standby turns out to have.
        assert!(shared.looks(true, Duration::from_secs(3_600)));
        assert_eq!(waiters.pass(2, 12), 0);
        shared.acknowledge(12);
        assert_eq!(waiters.pass(2, 12), 2);
        // The other is still the standby, or does not answer: the primary goes on alone when they are late again.
        assert_eq!(waiters.pass(1, 13), 0);
        shared.doubts_until_ns.store(0, Ordering::Release);
        shared.looks(true, TIMEOUT);
        std::thread::sleep(TIMEOUT);
        assert_eq!((waiters.pass(1, 13), shared.went_alone.load(Ordering::Relaxed)), (1, 1));
        // Alone, nothing waits, but for a while after it stood still.
        assert_eq!(waiters.pass(1, 14), 1);
        stood_still(&shared);
        assert_eq!(waiters.pass(1, 15), 0);
        shared.looks_no_more();
        assert_eq!(waiters.pass(1, 15), 1, "the link has ended in good order");
        // A standby has no reason to doubt: its events are the primary's.
        shared.looks(false, TIMEOUT);
        stood_still(&shared);
        assert!(!shared.looks(false, TIMEOUT));
        assert_eq!(waiters.pass(1, 16), 1);
    }
}
