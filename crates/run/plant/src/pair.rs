//! Two plants as a pair: a standby that replicates the primary's journal, record for record, and takes over.
//!
//! The primary's journal holds all its inputs, and the engine is deterministic: a plant that takes the same records has the same
//! books, and its events have the same numbers. The standby therefore takes the primary's records instead of its own lines, writes
//! them to its journal and feeds its engine, while packets of its own lines wait in a buffer. When the primary is silent, the
//! standby feeds those packets after the last record: arbitration takes the first copy of each message, so nothing is duplicated
//! and nothing is missing.
//!
//! ```text
//! primary   ingest ─▶ journal ─▶ file ─▶ link ══ records ══▶ link ─▶ ingest ─▶ journal     standby
//!                        ▲ lets events pass ◀── acknowledged ══╝◀──────────────┘
//! ```
//!
//! [`PlantOptions::agree`](crate::PlantOptions::agree) decides the roles before the journal is opened. The link is a thread: on the
//! primary it reads the journal's file from any record and follows it, so there is no seam between old records and new ones.
//! `codec` defines the protocol.
//!
//! Cost: none without a pair. On the primary, one read of each record from the page cache and its bytes on the network; ingest does
//! no extra work, and the journal's thread holds events back until the standby has their inputs.

mod agree;
mod codec;
mod follower;
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
    /// The address that accepts the other plant's connections.
    pub listen: SocketAddr,
    /// The other plant's address.
    pub peer: SocketAddr,
    /// TLS files for connections from and to the other plant. Each side presents a certificate signed by one of
    /// `client_authorities`, and the accepting side's certificate must be valid for its address. Without them there is no TLS, and
    /// anyone who reaches the port is trusted.
    pub tls: Option<TlsFiles>,
    /// Whether the plant is the primary at its first start. Later starts keep the last role unless the other plant takes
    /// precedence.
    pub is_primary: bool,
    /// Whether the plant becomes the primary even if the other one cannot be reached.
    pub is_forced: bool,
    /// Whether the primary's events wait until the standby has their inputs.
    pub waits: bool,
    /// How long events wait before the primary goes on alone.
    pub standby_timeout: Duration,
    /// How long the primary may be silent before the standby takes over.
    pub takeover_after: Duration,
    /// The limits of the standby's buffer for its own lines: bytes here, and time in `buffer`.
    pub buffer_bytes: usize,
    /// See `buffer_bytes`.
    pub buffer: Duration,
    /// Where [`PlantOptions::agree`](crate::PlantOptions::agree) moved the journal, if it was not a prefix of the primary's.
    pub moved_aside: Option<String>,
    /// The role that [`PlantOptions::agree`](crate::PlantOptions::agree) decided. `None`: the remembered role, or else the one that
    /// `is_primary` sets.
    pub agreed: Option<Role>,
    /// The epoch of the primary for which this plant stepped down, in case the disk could not record it.
    pub stepped_down: Option<u64>,
}

impl PairSetting {
    /// Creates the options of a pair with the defaults.
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

    /// Returns whether this plant follows the other, as far as it knows. A following plant waits for room on a full disk.
    pub fn is_follower(&self) -> bool {
        let is_standby = self.agreed.map_or(!self.is_primary, |role| role == Role::Standby);
        is_standby || self.stepped_down.is_some()
    }

    /// Prepares for another [`PlantOptions::agree`](crate::PlantOptions::agree), after the plant ended with `why`.
    pub fn begin_again(&mut self, why: &BeginAgain) {
        // The operator's choice applies to the first role only; a plant without a role keeps it.
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
    /// The plant cannot listen for the other one.
    #[error("[pair]: cannot listen to {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: std::io::Error,
    },
    /// The TLS files cannot be used.
    #[error("[pair]: {problem}")]
    Tls {
        /// The problem.
        problem: NoTls,
    },
    /// The remembered role cannot be read or written.
    #[error("[pair]: {}: {source}", path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The journal cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A pair needs a journal.
    #[error("[pair] needs a [journal]: it is what the two have in common")]
    NoJournal,
    /// The other plant refuses, and a retry would not help.
    #[error("[pair]: the plant at {peer} refuses: {said}")]
    Refused {
        /// The other plant.
        peer: SocketAddr,
        /// Its reason.
        said: String,
    },
    /// The process is stopping.
    #[error("stopped")]
    Stopped,
}

impl PairError {
    /// Returns whether the disk is full: a later attempt may find room.
    pub fn is_full_disk(&self) -> bool {
        match self {
            Self::State { source, .. } => source.kind() == std::io::ErrorKind::StorageFull,
            Self::Journal(error) => error.is_full_disk(),
            _ => false,
        }
    }
}

/// Why a plant of a pair restarts with [`PlantOptions::agree`](crate::PlantOptions::agree).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BeginAgain {
    /// The other plant has taken over.
    SteppedDown {
        /// The other plant.
        peer: SocketAddr,
        /// The other's epoch.
        epoch: u64,
    },
    /// The journal is not a prefix of the primary's.
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

/// The status of a plant of a pair.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct PairStatus {
    /// The plant's current role.
    pub role: Role,
    /// How many takeovers there were.
    pub epoch: u64,
    /// The other plant's address.
    pub peer: String,
    /// Whether the other plant is connected: a primary's standby, or a standby's primary.
    pub is_connected: bool,
    /// Whether the primary's events wait for the standby.
    pub is_in_step: bool,
    /// Records that the standby lacks, as far as this plant knows.
    pub lag_records: u64,
    /// Lag in bytes: sent to the standby but not acknowledged; 0 on a standby.
    pub lag_bytes: u64,
    /// How many times the primary went on alone because the standby was gone or slow.
    pub went_alone: u64,
    /// Records sent to standbys, or received from the primary.
    pub records: u64,
    /// Packets of the standby's own lines in its buffer.
    pub buffered_packets: u64,
    /// Their bytes.
    pub buffered_bytes: u64,
    /// Packets dropped because the buffer was full or they waited too long, which the primary may not have taken.
    pub buffer_drops: u64,
    /// Takeovers of this plant since its start.
    pub takeovers: u64,
    /// Buffered packets that the last takeover fed.
    pub fed_packets: u64,
    /// Connections that were refused, or that did not speak the protocol.
    pub refused: u64,
    /// The last reason for a refusal, by this plant or by the other.
    pub reason: Option<String>,
    /// Where the journal was moved at the start, if it was not a prefix of the primary's.
    pub moved_aside: Option<String>,
}

/// The link is not running yet, or no longer.
const NEVER: u64 = u64::MAX;

/// A link that has not run for this long was stopped, in ns. It normally runs more often, and a standby waits at least this long
/// before it takes over.
const STOOD_STILL_NS: u64 = 250_000_000;

/// The pair's state shared by the threads of a plant.
#[derive(Debug)]
pub(crate) struct Shared<W: World> {
    /// The journal's file has the records before this one.
    written: AtomicU64,
    /// The standby's journal has the records before this one.
    acknowledged: AtomicU64,
    /// Whether events wait for the standby.
    is_in_step: AtomicBool,
    went_alone: AtomicU64,
    /// The journal's thread has ended.
    has_ended: AtomicBool,
    /// The journal of a standby could not be written.
    has_lost: AtomicBool,
    /// Whether the plant must restart: no more events pass.
    is_deposed: AtomicBool,
    /// When the link last ran, in ns since `began`; [`NEVER`] if it is not running.
    looked_ns: AtomicU64,
    /// Until this time, in ns since `began`, events pass only if the standby has them, because the process was stopped.
    doubts_until_ns: AtomicU64,
    began: std::time::Instant,
    /// Wakes the link.
    waker: W::Waker,
    /// Wakes the journal's thread.
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

    /// Sets the wake-up of the journal's thread.
    pub(crate) fn wakes(&self, journal: Arc<WakeUp<W>>) {
        // It is set only once.
        let _twice = self.journal.set(journal);
    }

    /// Reports that the journal's file has the records before `next`.
    pub(crate) fn wrote(&self, next: u64) {
        if self.written.swap(next, Ordering::AcqRel) != next {
            // The link checks several times a second in any case.
            let _looks_later = self.waker.wake();
        }
    }

    /// Reports that the journal of a following plant lacks a record.
    pub(crate) fn lost(&self) {
        self.has_lost.store(true, Ordering::Release);
    }

    /// Stops all further events: the other plant is the primary, or this one cannot follow.
    fn depose(&self) {
        self.is_deposed.store(true, Ordering::Release);
        if let Some(journal) = self.journal.get() {
            journal.wake();
        }
    }

    /// Returns whether events are stopped for good.
    pub(crate) fn is_deposed(&self) -> bool {
        self.is_deposed.load(Ordering::Acquire)
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(W::since(self.began).as_nanos()).unwrap_or(u64::MAX)
    }

    /// Records that the link runs. If it had not run for so long that the standby may have taken over, and `is_primary`, events are
    /// held for `timeout`, while the link asks the other plant. Returns whether that is the case.
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

    /// Records that the link has ended.
    fn looks_no_more(&self) {
        self.looked_ns.store(NEVER, Ordering::Release);
    }

    /// Returns whether the other plant may have taken over while this process was stopped, without the link having had time to find
    /// out.
    fn is_in_doubt(&self) -> bool {
        let now_ns = self.now_ns();
        let looked_ns = self.looked_ns.load(Ordering::Acquire);
        let is_unseen = looked_ns != NEVER && now_ns.saturating_sub(looked_ns) >= STOOD_STILL_NS;
        is_unseen || now_ns < self.doubts_until_ns.load(Ordering::Acquire)
    }

    /// Returns the record before which inputs may have their events released.
    pub(crate) fn may_pass(&self) -> u64 {
        if self.is_in_step.load(Ordering::Acquire) {
            self.acknowledged.load(Ordering::Acquire)
        } else if self.is_in_doubt() {
            0
        } else {
            u64::MAX
        }
    }

    /// Stops waiting for a standby that has not answered for too long.
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

    /// Returns the current status.
    pub(crate) fn status(&self) -> PairStatus {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Signals the end of the journal's thread, which drops it.
#[derive(Debug)]
pub(crate) struct Ends<W: World>(pub(crate) Arc<Shared<W>>);

impl<W: World> Drop for Ends<W> {
    fn drop(&mut self) {
        self.0.has_ended.store(true, Ordering::Release);
        let _looks_later = self.0.waker.wake();
    }
}

/// Events held in the ring until the standby has their inputs.
#[derive(Debug)]
pub(crate) struct Waiters<W: World> {
    pub(crate) shared: Arc<Shared<W>>,
    timeout: Duration,
    /// For each batch of waiting events: the position after it, the record after its inputs, and since when it waits.
    places: std::collections::VecDeque<(u64, u64, std::time::Instant)>,
    /// Number of events released.
    passed: u64,
    _ends: Ends<W>,
}

/// Maximum sleep of the thread while events wait.
const LOOK: Duration = Duration::from_millis(50);

/// Maximum number of separate batches; later events join the last one.
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

    /// Returns how many events wait.
    pub(crate) fn waiting(&self) -> usize {
        self.places.back().map_or(0, |(place, ..)| (place - self.passed) as usize)
    }

    /// Registers `published` events in the ring, whose inputs precede record `next`. Returns how many events may pass.
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

    /// Returns whether some events may pass now.
    pub(crate) fn is_due(&self) -> bool {
        let may_pass = self.shared.may_pass();
        self.shared.is_deposed()
            || self.places.front().is_some_and(|(_, record, _)| *record <= may_pass)
            || self.is_late() && !self.shared.is_in_doubt()
    }

    /// Returns how long the thread may sleep.
    pub(crate) fn longest(&self) -> Duration {
        self.places.front().map_or(Duration::MAX, |(.., since)| {
            let left = self.timeout.saturating_sub(W::since(*since));
            // Late events that are held despite the timeout wait for the link.
            if left.is_zero() { LOOK } else { left.min(LOOK) }
        })
    }
}

/// Fingerprints of the settings that both plants must share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Alike {
    engine: u64,
    lines: u64,
}

impl Alike {
    /// Computes the fingerprints for this engine, and for venues with these names and lines.
    pub(crate) fn of<'v>(
        engine: &EngineOptions,
        venues: impl Iterator<Item = (&'v str, &'v [SocketAddr])>,
    ) -> Self {
        let mut symbols: Vec<&str> = engine.symbols.iter().flatten().map(Symbol::as_str).collect();
        symbols.sort_unstable();
        let has_symbols = engine.symbols.is_some();
        // A bug fix may change the events that the same inputs produce.
        let version = env!("CARGO_PKG_VERSION");
        let text = format!(
            "{version} {:?} {:?} {:?} {:?} {has_symbols} {symbols:?}",
            engine.channels, engine.self_help, engine.sip_sizes, engine.books.rules
        );
        let lines: Vec<_> = venues.collect();
        Self { engine: fnv1a(text.as_bytes()), lines: fnv1a(format!("{lines:?}").as_bytes()) }
    }

    /// Returns why the other plant cannot be part of this pair, if so.
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

/// Heartbeat interval of each side, in ns.
const BEAT_NS: u64 = 250_000_000;

/// Read size of a reader that needs one record, or follows closely, in bytes.
const READ_BYTES: usize = 64 << 10;

/// Returns the identity of a record: its time, and the checksum of its bytes.
fn tip_of(record: &Record<'_>, scratch: &mut Vec<u8>) -> Tip {
    scratch.clear();
    record.encode(scratch);
    let checksum = scratch.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    Tip { time: record.time, checksum }
}

/// Returns the record before `next` in the journal in `folder`; `None` if the journal does not have it.
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

/// Returns whether a record counts lost records that had numbers.
pub(crate) const fn stands_for_numbered(record: &Record<'_>) -> bool {
    record.kind == LOST && record.line == tapeworks_journal::NUMBERED
}

#[cfg(test)]
mod tests {
    use tapeworks_runtime::world::{Poll as _, System};

    use super::*;

    const TIMEOUT: Duration = Duration::from_millis(40);

    /// Returns an address of this machine on which nothing listens.
    pub(super) fn free_address() -> SocketAddr {
        std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap()
    }

    fn shared() -> Arc<Shared<System>> {
        let poll = <System as World>::Poll::new(4).unwrap();
        Arc::new(Shared::new(poll.waker(net::WAKER).unwrap(), PairStatus::default()))
    }

    /// Simulates a stopped process: the link last ran long ago.
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
        // The events are late, but the other plant may have taken over without them.
        assert_eq!((waiters.pass(2, 12), shared.went_alone.load(Ordering::Relaxed)), (0, 0));
        assert!(waiters.longest() <= LOOK);
        // The link runs, and must ask; until then events wait, except those that the standby turns out to have.
        assert!(shared.looks(true, Duration::from_secs(3_600)));
        assert_eq!(waiters.pass(2, 12), 0);
        shared.acknowledge(12);
        assert_eq!(waiters.pass(2, 12), 2);
        // The other plant is still the standby, or does not answer: the primary goes on alone when events are late again.
        assert_eq!(waiters.pass(1, 13), 0);
        shared.doubts_until_ns.store(0, Ordering::Release);
        shared.looks(true, TIMEOUT);
        std::thread::sleep(TIMEOUT);
        assert_eq!((waiters.pass(1, 13), shared.went_alone.load(Ordering::Relaxed)), (1, 1));
        // Alone, no event waits, except for a while after the process was stopped.
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
