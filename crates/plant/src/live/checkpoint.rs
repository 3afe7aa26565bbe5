//! State snapshots: where the engine and the books were after so many records of the journal, so that neither a start nor a
//! client's replay need go through the whole day.
//!
//! A file `NUMBER.snapshot` lies beside the journal's segments; the number is that of the next record. It has a header of 48
//! bytes and a body of postcard's, with a CRC-32 over all but the first 12 bytes:
//!
//! | offset | | |
//! | --- | --- | --- |
//! | 0 | `TAPESNP7` | the last letter is the version |
//! | 8 | CRC-32 | u32, of all that follows it |
//! | 12 | zero | 4 bytes |
//! | 16 | number | u64, of the next record |
//! | 24 | length | u64, bytes of the body |
//! | 32 | events | u64, the number of the next event |
//! | 40 | time | u64, the latest receive time of the events before, in ns |
//!
//! All little-endian. It is written to a file of another name, synced, and renamed. The newest two are kept, and the first in
//! each segment of the journal; the journal keeps the segments from the older of the newest two on, whatever its size
//! ([`JournalOptions::keep_bytes`](tapeworks_journal::JournalOptions::keep_bytes)). One that is damaged, of another
//! configuration, or of what the journal does not hold (any more) is not used, and the start says so.
//!
//! Engine and books are copied at the same event. Where one thread has both, it copies both. In the topology "pipeline" ingest
//! copies the engine between two inputs and names the number of the next event; the books' own thread copies the books when
//! that event is the next it would apply. The copies say nothing of the topology: either goes on from what the other wrote.
//! Only one snapshot is under way at a time.
//!
//! Cost: ingest, and in the topology "pipeline" the books' thread, pauses while its part is copied (some ms for 100,000 orders and
//! 10,000 symbols, which [`CheckpointStatus::pause_ns`] tells). The journal's thread says after which record that was and
//! syncs the journal; a thread of its own encodes, writes and syncs the file.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tapeworks_feed::live::Input;
use tapeworks_journal::{Opened, segment_starts, sync_folder};
use tapeworks_market::book::BooksImage;
use tapeworks_market::nbbo::NbboImage;
use tapeworks_market::{BookStage, Event, Instruments, Nanos, NbboStage, Symbol};
use tapeworks_ring::cpu;
use tapeworks_stage::Through;
use tapeworks_store::live::{Carried, CarriedImage};

use super::PlantOptions;
use super::engine::{Engine, EngineCounters};
use super::shared::MarketStage;
use super::status::Status;
use crate::clients::history::Start;
use tapeworks_runtime::now;

const MAGIC: [u8; 8] = *b"TAPESNP7";
const HEADER_BYTES: usize = 48;
const ENDING: &str = "snapshot";

/// Newest snapshots that are kept, and whose records the journal keeps.
const KEPT: usize = 2;

/// State snapshots, as far as a plant has taken and used them.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct CheckpointStatus {
    /// How often one is due; `None` where none are taken.
    pub every: Option<Duration>,
    /// The record of the journal from which on it was replayed at the start; `None` from its first.
    pub restored: Option<u64>,
    /// Snapshots that were not used at the start, and why.
    pub refused: Vec<String>,
    /// Begun since the start.
    pub taken: u64,
    /// Written since the start.
    pub written: u64,
    /// Not written since the start, because something failed: see `error`.
    pub failed: u64,
    /// Not begun when they were due, because the journal's queue was full.
    pub skipped: u64,
    /// When the last was written; 0 before the first.
    pub time: Nanos,
    /// The bytes of the last that was written.
    pub bytes: u64,
    /// How long ingest paused for the last, in ns.
    pub pause_ns: u64,
    /// How long the books' own thread paused for the last, in ns; 0 where ingest has the books.
    pub books_pause_ns: u64,
    /// Why the last that could not be written was not.
    pub error: Option<String>,
}

/// No event: nobody wants the books.
const NEVER: u64 = u64::MAX;

/// What the threads that take part in a snapshot agree on.
#[derive(Debug)]
pub(super) struct Agreement {
    is_under_way: AtomicBool,
    /// The number of the event before which the books are to be copied.
    books_at: AtomicU64,
    /// The journal's records from this one on are needed by a snapshot.
    needed_from: AtomicU64,
    /// Times that the journal lost inputs and went on.
    holes: AtomicU64,
    /// How many of them lie before a snapshot.
    bridged: AtomicU64,
    /// The image of an earlier snapshot, whose memory the next is copied into: new memory would cost the copying thread more than the
    /// copy.
    earlier: Mutex<MarketImage>,
}

impl Default for Agreement {
    fn default() -> Self {
        Self {
            is_under_way: AtomicBool::new(false),
            books_at: AtomicU64::new(NEVER),
            needed_from: AtomicU64::new(NEVER),
            holes: AtomicU64::new(0),
            bridged: AtomicU64::new(0),
            earlier: Mutex::default(),
        }
    }
}

/// A snapshot is under way as long as this is held, wherever it is; the next is begun after it.
#[derive(Debug)]
pub(super) struct UnderWay(Arc<Agreement>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.is_under_way.store(false, Ordering::Release);
    }
}

impl Agreement {
    /// Begins a snapshot, unless one is under way.
    pub(super) fn begin(self: &Arc<Self>) -> Option<UnderWay> {
        (!self.is_under_way.swap(true, Ordering::AcqRel)).then(|| UnderWay(Arc::clone(self)))
    }

    /// The journal's records from `record` on are needed.
    pub(super) fn need_from(&self, record: u64) {
        self.needed_from.store(record, Ordering::Release);
    }

    /// The first record of the journal that is needed; [`u64::MAX`] where there are no snapshots.
    pub(super) fn needed_from(&self) -> u64 {
        self.needed_from.load(Ordering::Acquire)
    }

    /// The journal has lost inputs so many times more, and goes on.
    pub(super) fn add_holes(&self, holes: u64) {
        self.holes.fetch_add(holes, Ordering::AcqRel);
    }

    /// Times that the journal lost inputs, and those of them behind which there is no snapshot yet.
    pub(super) fn holes(&self) -> (u64, u64) {
        let holes = self.holes.load(Ordering::Acquire);
        (holes, holes.saturating_sub(self.bridged.load(Ordering::Acquire)))
    }

    /// The image of an earlier snapshot, to copy into.
    pub(super) fn earlier_image(&self) -> MarketImage {
        std::mem::take(&mut *self.earlier.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// An image is written: the next is copied into its memory.
    pub(super) fn give_back(&self, image: MarketImage) {
        *self.earlier.lock().unwrap_or_else(PoisonError::into_inner) = image;
    }

    /// Asks for the books as they are before the event `next`. To be called before that event is published: who has read the
    /// event from the ring has then seen this too.
    pub(super) fn ask_for_books(&self, next: u64) {
        self.books_at.store(next, Ordering::Release);
    }

    /// Whether the books are to be copied before the event `next`.
    #[inline]
    fn wants_books_at(&self, next: u64) -> bool {
        self.books_at.load(Ordering::Relaxed) == next
    }
}

/// Hands over the books of the books' own thread.
pub(super) struct BooksPart {
    agreement: Arc<Agreement>,
    to: Sender<(u64, MarketImage)>,
    status: Arc<Mutex<Status>>,
}

impl BooksPart {
    pub(super) const fn new(
        agreement: Arc<Agreement>,
        to: Sender<(u64, MarketImage)>,
        status: Arc<Mutex<Status>>,
    ) -> Self {
        Self { agreement, to, status }
    }

    /// Whether the books are to be handed over before the event `next`.
    #[inline]
    pub(super) fn is_wanted_at(&self, next: u64) -> bool {
        self.agreement.wants_books_at(next)
    }

    /// Hands over the books as they are before the event `next`.
    #[cold]
    pub(super) fn hand_over(&self, next: u64, image: impl FnOnce(MarketImage) -> MarketImage) {
        let began = Instant::now();
        let image = image(self.agreement.earlier_image());
        let pause = nanos(began);
        self.agreement.books_at.store(NEVER, Ordering::Release);
        self.status.lock().unwrap_or_else(PoisonError::into_inner).snapshots.books_pause_ns = pause;
        // Without the thread that writes there are no snapshots, and nobody to tell.
        let _nobody = self.to.send((next, image));
    }
}

/// Time since `began`, in ns.
pub(super) fn nanos(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// The state between two inputs, on its way to the disk.
#[derive(Debug)]
pub(super) struct Taken {
    counters: EngineCounters,
    feed: Vec<u8>,
    /// `None` where the books' own thread hands them over.
    market: Option<MarketImage>,
    /// Times that the journal had lost inputs before.
    holes: u64,
    under_way: UnderWay,
}

impl Taken {
    /// Copies the engine, to go with these books, or with those that another thread hands over.
    pub(super) fn new(
        engine: &Engine,
        market: Option<MarketImage>,
        under_way: UnderWay,
    ) -> Result<Self, String> {
        let feed = engine.feed().save().map_err(|error| error.to_string())?;
        let (holes, _) = under_way.0.holes();
        Ok(Self { counters: *engine.counters(), feed, market, holes, under_way })
    }
}

/// What was taken, and the number of the journal's next record then.
pub(super) type Job = (u64, Box<Taken>);

/// The thread that writes snapshots. It ends when nobody is left who takes any.
pub(super) struct Scribe {
    pub(super) folder: PathBuf,
    /// Whether snapshots are taken from time to time, so that the journal need not keep what comes before the newest; otherwise
    /// they are taken only behind inputs that the journal lost.
    pub(super) is_regular: bool,
    pub(super) jobs: Receiver<Job>,
    /// The books of the books' own thread.
    pub(super) books: Receiver<(u64, MarketImage)>,
    pub(super) agreement: Arc<Agreement>,
    pub(super) status: Arc<Mutex<Status>>,
}

impl Scribe {
    pub(super) fn run(self) {
        // Where the kernel does not know of it, it is only not as good.
        let _as_well_as_can_be = cpu::step_back();
        // The next file is encoded in the memory of the last.
        let mut bytes = Vec::new();
        while let Ok((record, taken)) = self.jobs.recv() {
            let written = self.write(record, *taken, &mut bytes);
            tell(&self.status, written);
        }
    }

    fn write(&self, record: u64, taken: Taken, bytes: &mut Vec<u8>) -> Result<u64, String> {
        // The next is begun when this is done.
        let Taken { counters, feed, market, holes, under_way: _under_way } = taken;
        let market = match market {
            Some(market) => market,
            None => self.books_at(counters.events).ok_or("the thread of the books has ended")?,
        };
        let market = market.sorted();
        let encoded = encode(counters, feed, &market, std::mem::take(bytes));
        self.agreement.give_back(market);
        *bytes = encoded?;
        let bytes = write(&self.folder, record, bytes).map_err(|error| error.to_string())?;
        // What is on the disk is good whether or not older ones could be removed.
        self.agreement.bridged.fetch_max(holes, Ordering::AcqRel);
        let needed_from = prune(&self.folder)?;
        if self.is_regular {
            self.agreement.need_from(needed_from);
        }
        Ok(bytes)
    }

    /// The books before the event `next`.
    fn books_at(&self, next: u64) -> Option<MarketImage> {
        // Those of another event are of a snapshot that was given up.
        self.books.iter().find_map(|(at, image)| (at == next).then_some(image))
    }
}

/// Tells how a snapshot ended.
pub(super) fn tell(status: &Mutex<Status>, written: Result<u64, String>) {
    let snapshots = &mut status.lock().unwrap_or_else(PoisonError::into_inner).snapshots;
    match written {
        Ok(bytes) => {
            snapshots.written += 1;
            snapshots.bytes = bytes;
            snapshots.time = now();
        }
        Err(error) => {
            snapshots.failed += 1;
            snapshots.error = Some(error);
        }
    }
}

/// Books, NBBO, the symbols of their instruments, and last trades.
#[derive(Default, Debug, Serialize, Deserialize)]
pub(super) struct MarketImage {
    pub(super) books: Vec<BooksImage>,
    pub(super) nbbo: NbboImage,
    pub(super) symbols: Vec<[u8; Symbol::MOST]>,
    pub(super) carried: CarriedImage,
    /// The latest receive time of the events, in ns.
    pub(super) now: u64,
}

impl MarketImage {
    /// The same bytes for the same state. Not while the books wait.
    pub(super) fn sorted(mut self) -> Self {
        self.books.iter_mut().for_each(BooksImage::sort);
        self
    }
}

#[derive(Serialize, Deserialize)]
struct Body<Market> {
    counters: EngineCounters,
    feed: Vec<u8>,
    market: Market,
}

/// What a start goes on from.
pub(super) struct Restored {
    /// The record that comes next.
    pub(super) record: u64,
    pub(super) engine: Engine,
    pub(super) market: Start,
}

/// What a file's header says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Header {
    crc: u32,
    record: u64,
    length: u64,
    events: u64,
    time: Nanos,
}

impl Header {
    /// The header at the beginning of a file; `None` where there is none of this version.
    fn read(bytes: &[u8]) -> Option<Self> {
        let number = |at: usize| bytes.get(at..at + 8)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        let crc = bytes.get(8..12)?.first_chunk().map(|crc| u32::from_le_bytes(*crc))?;
        (bytes.first_chunk() == Some(&MAGIC)).then_some(())?;
        let (record, length, events) = (number(16)?, number(24)?, number(32)?);
        Some(Self { crc, record, length, events, time: Nanos(number(40)?) })
    }
}

/// The state as a file, but for the header's number and CRC, in the memory of `bytes`. The image is [sorted](MarketImage::sorted).
fn encode(
    counters: EngineCounters,
    feed: Vec<u8>,
    market: &MarketImage,
    mut bytes: Vec<u8>,
) -> Result<Vec<u8>, String> {
    let (events, time) = (counters.events, market.now);
    bytes.clear();
    bytes.resize(HEADER_BYTES, 0);
    let body = Body { counters, feed, market };
    let mut bytes = postcard::to_extend(&body, bytes).map_err(|error| error.to_string())?;
    let length = (bytes.len() - HEADER_BYTES) as u64;
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[24..32].copy_from_slice(&length.to_le_bytes());
    bytes[32..40].copy_from_slice(&events.to_le_bytes());
    bytes[40..48].copy_from_slice(&time.to_le_bytes());
    Ok(bytes)
}

/// Completes the header of what [`encode`] gave.
fn seal(bytes: &mut [u8], record: u64) {
    bytes[16..24].copy_from_slice(&record.to_le_bytes());
    let crc = crc32fast::hash(&bytes[12..]);
    bytes[8..12].copy_from_slice(&crc.to_le_bytes());
}

/// Writes a snapshot of the state after `record` records. Returns its size in bytes.
fn write(folder: &Path, record: u64, bytes: &mut [u8]) -> io::Result<u64> {
    seal(bytes, record);
    let path = folder.join(format!("{record:020}.{ENDING}"));
    let partial = folder.join(format!("{record:020}.{ENDING}.partial"));
    let written = File::create(&partial).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&partial, &path)?;
        sync_folder(folder)
    });
    if let Err(error) = written {
        // What is left of it is nobody's.
        let _gone = fs::remove_file(&partial);
        return Err(error);
    }
    Ok(bytes.len() as u64)
}

/// Removes the snapshots that are no longer needed: all but the newest two and the first in each segment of the journal. Returns
/// the first record of the journal that is needed.
fn prune(folder: &Path) -> Result<u64, String> {
    let failed = |error: io::Error| format!("{}: {error}", folder.display());
    let all = list(folder).map_err(failed)?;
    let starts = segment_starts(folder).map_err(|error| error.to_string())?;
    let (old, newest) = all.split_at(all.len().saturating_sub(KEPT));
    let mut last_segment = 0;
    for (record, path) in old {
        // 0 stands for before the first segment.
        let segment = starts.partition_point(|start| start <= record);
        if segment == last_segment {
            fs::remove_file(path).map_err(failed)?;
        }
        last_segment = segment;
    }
    Ok(newest.first().map_or(0, |(record, _)| *record))
}

/// The snapshots in `folder`, oldest first.
fn list(folder: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == ENDING)
            && let Some(record) = path.file_stem().and_then(|stem| stem.to_str()?.parse().ok())
        {
            all.push((record, path));
        }
    }
    all.sort();
    Ok(all)
}

/// Clears the folder of snapshots, as the journal that they are of, whose first record is `first`, was moved into the folder `to`.
/// Those of records that it has go with it: files are made from them on where the journal has lost its beginning or inputs in its
/// middle, or begins on an earlier day.
pub(super) fn move_away(folder: &Path, first: u64, to: &Path) -> io::Result<()> {
    for (record, path) in list(folder)? {
        match path.file_name() {
            Some(name) if record >= first => fs::rename(&path, to.join(name))?,
            _ => fs::remove_file(path)?,
        }
    }
    Ok(())
}

/// The newest snapshot that a plant with these options can go on from with the journal that was opened, and what is to be said
/// of newer ones. It may stand for more records than a damaged journal has.
pub(super) fn newest(
    folder: &Path,
    opened: &Opened,
    options: &PlantOptions,
) -> (Option<Restored>, Vec<String>) {
    let mut refused = Vec::new();
    let all = match list(folder) {
        Ok(all) => all,
        Err(error) => return (None, vec![format!("{}: {error}", folder.display())]),
    };
    for (record, path) in all.into_iter().rev() {
        let restored = if record < opened.first || opened.next == 0 && record > 0 {
            Err(format!("the journal has the records from {} to {}", opened.first, opened.next))
        } else {
            fs::read(&path)
                .map_err(|error| error.to_string())
                .and_then(|bytes| restore(&bytes, record, options))
        };
        match restored {
            Ok(restored) => return (Some(restored), refused),
            Err(why) => refused.push(format!("{}: {why}", path.display())),
        }
        if record > opened.next {
            // Its number will be that of another record: it keeps a name by which nobody takes it for that one's state.
            let _not_used = fs::rename(&path, path.with_extension(format!("{ENDING}.unused")));
        }
    }
    (None, refused)
}

/// The newest snapshot in which no event at or after `from` has been, of a journal whose first record is `first`.
pub(super) fn before(folder: &Path, first: u64, from: Nanos, options: &PlantOptions) -> Option<Restored> {
    let all = list(folder).ok()?.into_iter().rev();
    let mut early =
        all.filter(|(record, path)| *record >= first && time_of(path).is_some_and(|time| time < from));
    early.find_map(|(record, path)| restore(&fs::read(path).ok()?, record, options).ok())
}

/// The oldest snapshot that a replay of a journal whose first record is `first` can begin with.
pub(super) fn oldest(folder: &Path, first: u64, options: &PlantOptions) -> Option<Restored> {
    let mut all = list(folder).ok()?.into_iter().filter(|(record, _)| *record >= first);
    all.find_map(|(record, path)| restore(&fs::read(path).ok()?, record, options).ok())
}

/// The oldest snapshot behind the record `record`, which says that inputs were lost.
pub(super) fn behind(folder: &Path, record: u64, options: &PlantOptions) -> Option<Restored> {
    oldest(folder, record.saturating_add(1), options)
}

/// A state snapshot beside a journal, as [`check`] found it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CheckedSnapshot {
    /// The file.
    pub path: PathBuf,
    /// The record of the journal that comes next.
    pub record: u64,
    /// Why it cannot be used; `None` when it is sound.
    pub damage: Option<String>,
}

/// Checks the state snapshots in a journal's folder: header, length and CRC. Whether their state is of a plant's configuration
/// needs that configuration, and is not looked at.
///
/// # Errors
/// A folder that cannot be listed.
pub fn check(folder: &Path) -> io::Result<Vec<CheckedSnapshot>> {
    let check = |(record, path): (u64, PathBuf)| {
        let bytes = fs::read(&path).map_err(|error| error.to_string());
        let damage = bytes.and_then(|bytes| body_of(&bytes, record).map(|_| ())).err();
        CheckedSnapshot { path, record, damage }
    };
    Ok(list(folder)?.into_iter().map(check).collect())
}

/// Renames the state snapshots in a journal's folder that [`check`] calls damaged, so that nobody looks at them again: `.damaged` is added
/// to their names. Answers the new names.
///
/// # Errors
/// A folder that cannot be listed or written.
pub fn set_damaged_aside(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut aside = Vec::new();
    for damaged in check(folder)?.into_iter().filter(|snapshot| snapshot.damage.is_some()) {
        let mut name = damaged.path.clone().into_os_string();
        name.push(".damaged");
        fs::rename(&damaged.path, &name)?;
        aside.push(PathBuf::from(name));
    }
    Ok(aside)
}

/// The header and the body of a file, both sound.
fn body_of(bytes: &[u8], record: u64) -> Result<(Header, &[u8]), String> {
    let body = bytes.get(HEADER_BYTES..).ok_or("it is too short")?;
    let header = Header::read(bytes).ok_or("not a snapshot of this version")?;
    let crc = crc32fast::hash(bytes.get(12..).unwrap_or_default());
    if header.length != body.len() as u64 || header.crc != crc || header.record != record {
        return Err("it is damaged".to_owned());
    }
    Ok((header, body))
}

/// The time in a file's header.
fn time_of(path: &Path) -> Option<Nanos> {
    let mut header = [0; HEADER_BYTES];
    File::open(path).and_then(|mut file| file.read_exact(&mut header)).ok()?;
    Some(Header::read(&header)?.time)
}

/// The state in a file's bytes.
fn restore(bytes: &[u8], record: u64, options: &PlantOptions) -> Result<Restored, String> {
    let (header, body) = body_of(bytes, record)?;
    let body: Body<MarketImage> = postcard::from_bytes(body).map_err(|error| error.to_string())?;
    if header.events != body.counters.events || header.time.0 != body.market.now {
        return Err("its header is of another state".to_owned());
    }
    let engine = Engine::restore(options, body.counters, &body.feed).map_err(|error| error.to_string())?;
    let how = options.books();
    let books = BookStage::from_image(&body.market.books, |publisher| options.capacity_of(publisher))
        .map_err(|error| error.to_string())?;
    let nbbo = NbboStage::from_image(how.rules, body.market.nbbo).map_err(|error| error.to_string())?;
    let mut instruments = Instruments::default();
    for symbol in &body.market.symbols {
        instruments.intern(Symbol::from_bytes(symbol).map_err(|error| error.to_string())?);
    }
    let carried = Carried::from_image(&body.market.carried, instruments.len())
        .ok_or("it has a last trade of no instrument or side")?;
    let (next, stages, now) = (body.counters.events, Through::new(books, nbbo), header.time);
    Ok(Restored { record, engine, market: Start { next, stages, instruments, carried, now } })
}

/// Why bytes are no state snapshot, or a state cannot become one.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
#[error("state snapshot: {0}")]
pub struct SnapshotError(String);

/// A plant's state between two records of its journal, without a plant: what a file `NUMBER.snapshot` holds, to look at, to go
/// on from, to make.
///
/// It keeps last trades, as it must to become a file, if the options are those of a plant that takes state snapshots.
pub struct StateSnapshot {
    record: u64,
    engine: Engine,
    market: MarketStage,
}

impl std::fmt::Debug for StateSnapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StateSnapshot").field("record", &self.record).finish_non_exhaustive()
    }
}

impl StateSnapshot {
    /// The state of a plant with these options before the first record.
    pub fn new(options: &PlantOptions) -> Self {
        let market = MarketStage::new(options, None, Default::default());
        Self { record: 0, engine: Engine::new(options.live_feed()), market }
    }

    /// The state in the bytes of a file of a plant with these options.
    ///
    /// # Errors
    /// [`SnapshotError`]: they are damaged, of another version or configuration, or of what cannot be.
    pub fn read(bytes: &[u8], options: &PlantOptions) -> Result<Self, SnapshotError> {
        let record = Header::read(bytes).map(|header| header.record).unwrap_or_default();
        let restored = restore(bytes, record, options).map_err(SnapshotError)?;
        let mut market = MarketStage::new(options, None, Default::default());
        market.restore(restored.market);
        Ok(Self { record, engine: restored.engine, market })
    }

    /// The number of the next record.
    pub const fn record(&self) -> u64 {
        self.record
    }

    /// The number of the next event.
    pub const fn next_event(&self) -> u64 {
        self.engine.counters().events
    }

    /// Takes the next record, and appends its events to `events`.
    pub fn input(&mut self, input: &Input<'_>, events: &mut Vec<Event>) {
        let before = events.len();
        self.engine.input(input, events);
        while self.engine.take_ask().is_some() {}
        self.market.apply(events.get(before..).unwrap_or_default());
        self.record = self.record.saturating_add(1);
    }

    /// The state as the bytes of a file.
    ///
    /// # Errors
    /// [`SnapshotError`] when it cannot be encoded.
    pub fn write(&self) -> Result<Vec<u8>, SnapshotError> {
        let feed = self.engine.feed().save().map_err(|error| SnapshotError(error.to_string()))?;
        let image = self.market.image().sorted();
        let bytes = encode(*self.engine.counters(), feed, &image, Vec::new());
        let mut bytes = bytes.map_err(SnapshotError)?;
        seal(&mut bytes, self.record);
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests;
