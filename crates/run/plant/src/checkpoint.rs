//! Checkpoints of a running plant: the threads that copy the state and write it.
//!
//! Engine and books are copied at the same event. If one thread has both, it copies both. In the topology "pipeline", ingest copies
//! the engine between two inputs and publishes the number of the next event; the books' own thread copies the books when that event
//! is next. The copies do not depend on the topology: either topology can start from the other's checkpoint. Only one checkpoint is
//! in progress at a time.
//!
//! Cost: ingest, and in the topology "pipeline" the books' thread, pauses while its part is copied (some ms for 100,000 orders and
//! 10,000 symbols; [`pause_ns`](crate::CheckpointStatus::pause_ns) and `books_pause_ns` show it). The journal's thread adds the
//! number of the record and the disk thread syncs the journal; the checkpoint writer encodes, writes and syncs the file.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tapeworks_engine::checkpoint::{self, EngineImage, folder};
use tapeworks_engine::{Engine, MarketImage};
use tapeworks_runtime::traces::{Operations, Sample};
use tapeworks_runtime::world::{Receive as _, SendTo as _, System, World};
use tapeworks_time::Nanos;

use crate::status::Status;

/// No event: no checkpoint waits for the books.
const NEVER: u64 = u64::MAX;

/// State shared by the threads that take part in a checkpoint.
#[derive(Debug)]
pub(super) struct Coordinator {
    is_under_way: AtomicBool,
    /// The event before which the books are to be copied.
    books_at: AtomicU64,
    /// The first journal record that a checkpoint needs.
    needed_from: AtomicU64,
    /// How many times the journal lost inputs and continued.
    losses: AtomicU64,
    /// How many of these losses precede a checkpoint.
    bridged: AtomicU64,
    /// The image of an earlier checkpoint, whose memory the next copy reuses: allocating new memory would cost the copying thread
    /// more than the copy itself.
    earlier: Mutex<MarketImage>,
}

impl Default for Coordinator {
    fn default() -> Self {
        Self {
            is_under_way: AtomicBool::new(false),
            books_at: AtomicU64::new(NEVER),
            needed_from: AtomicU64::new(NEVER),
            losses: AtomicU64::new(0),
            bridged: AtomicU64::new(0),
            earlier: Mutex::default(),
        }
    }
}

/// Marks a checkpoint as in progress until it is dropped; only then may the next begin.
#[derive(Debug)]
pub(super) struct UnderWay(Arc<Coordinator>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.is_under_way.store(false, Ordering::Release);
    }
}

impl Coordinator {
    /// Begins a checkpoint; returns `None` if one is in progress.
    pub(super) fn begin(self: &Arc<Self>) -> Option<UnderWay> {
        (!self.is_under_way.swap(true, Ordering::AcqRel)).then(|| UnderWay(Arc::clone(self)))
    }

    /// Sets the first journal record that is needed.
    pub(super) fn need_from(&self, record: u64) {
        self.needed_from.store(record, Ordering::Release);
    }

    /// Returns the first journal record that is needed; [`u64::MAX`] if there are no checkpoints.
    pub(super) fn needed_from(&self) -> u64 {
        self.needed_from.load(Ordering::Acquire)
    }

    /// Adds the number of times the journal has lost inputs and continued.
    pub(super) fn add_losses(&self, losses: u64) {
        self.losses.fetch_add(losses, Ordering::AcqRel);
    }

    /// Returns how many times the journal lost inputs, and how many of these losses no checkpoint follows yet.
    pub(super) fn losses(&self) -> (u64, u64) {
        let losses = self.losses.load(Ordering::Acquire);
        (losses, losses.saturating_sub(self.bridged.load(Ordering::Acquire)))
    }

    /// Takes the image of an earlier checkpoint, to copy into.
    pub(super) fn earlier_image(&self) -> MarketImage {
        std::mem::take(&mut *self.earlier.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the memory of a written image, for the next copy.
    pub(super) fn give_back(&self, image: MarketImage) {
        *self.earlier.lock().unwrap_or_else(PoisonError::into_inner) = image;
    }

    /// Requests the books' state before the event `next`. Must be called before that event is published, so that a thread that
    /// reads the event from the ring sees the request too.
    pub(super) fn request_books(&self, next: u64) {
        self.books_at.store(next, Ordering::Release);
    }

    /// Returns whether the books are to be copied before the event `next`.
    #[inline]
    fn wants_books_at(&self, next: u64) -> bool {
        self.books_at.load(Ordering::Relaxed) == next
    }
}

/// Hands over the books from their own thread.
pub(super) struct BooksPart<W: World = System> {
    coordinator: Arc<Coordinator>,
    to: W::Sender<(u64, MarketImage)>,
    status: Arc<Mutex<Status>>,
}

impl<W: World> BooksPart<W> {
    pub(super) const fn new(
        coordinator: Arc<Coordinator>,
        to: W::Sender<(u64, MarketImage)>,
        status: Arc<Mutex<Status>>,
    ) -> Self {
        Self { coordinator, to, status }
    }

    /// Returns whether the books are to be handed over before the event `next`.
    #[inline]
    pub(super) fn is_wanted_at(&self, next: u64) -> bool {
        self.coordinator.wants_books_at(next)
    }

    /// Hands over the books' state before the event `next`.
    #[cold]
    pub(super) fn hand_over(&self, next: u64, image: impl FnOnce(MarketImage) -> MarketImage) {
        let began = W::instant();
        let image = image(self.coordinator.earlier_image());
        let pause = nanos(W::since(began));
        self.coordinator.books_at.store(NEVER, Ordering::Release);
        self.status.lock().unwrap_or_else(PoisonError::into_inner).checkpoints.books_pause_ns = pause;
        // Without the writer's thread there are no checkpoints, and no status to set.
        let _nobody = self.to.send((next, image));
    }
}

/// Converts a time to ns.
pub(super) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The state between two inputs, to be written to disk.
#[derive(Debug)]
pub(super) struct Taken {
    engine: EngineImage,
    /// `None` if the books' own thread hands them over.
    market: Option<MarketImage>,
    /// How many times the journal had lost inputs by then.
    losses: u64,
    under_way: UnderWay,
    /// When the copy began, and when it was complete.
    times: (Nanos, Nanos),
}

impl Taken {
    /// Copies the engine. `market` holds the books, or `None` if another thread hands them over.
    pub(super) fn new(
        engine: &Engine,
        market: Option<MarketImage>,
        under_way: UnderWay,
        began: Nanos,
        now: Nanos,
    ) -> Result<Self, String> {
        let engine = EngineImage::of(engine).map_err(|error| error.to_string())?;
        let (losses, _) = under_way.0.losses();
        Ok(Self { engine, market, losses, under_way, times: (began, now) })
    }
}

/// The journal's next record at the time of the copy, and the copy.
pub(super) type Job = (u64, Box<Taken>);

/// The thread that writes checkpoints. It ends when no thread is left to take any.
pub(super) struct CheckpointWriter<W: World = System> {
    pub(super) folder: PathBuf,
    /// The record of the checkpoint that the plant started from, or 0.
    pub(super) start: u64,
    /// Whether checkpoints are taken at intervals, so that the journal need not keep older records. Otherwise they are taken only
    /// after the journal has lost inputs.
    pub(super) is_regular: bool,
    pub(super) jobs: W::Receiver<Job>,
    /// The books from their own thread.
    pub(super) books: W::Receiver<(u64, MarketImage)>,
    pub(super) coordinator: Arc<Coordinator>,
    pub(super) status: Arc<Mutex<Status>>,
    /// For traces.
    pub(super) operations: Option<Operations>,
}

impl<W: World> CheckpointWriter<W> {
    pub(super) fn run(self) {
        // If the kernel does not support a lower priority, the thread runs at the normal one.
        let _as_well_as_can_be = W::step_back();
        // The next file is encoded into the last one's memory.
        let mut bytes = Vec::new();
        while let Ok((record, taken)) = self.jobs.recv() {
            let (began, copied) = taken.times;
            let written = self.write(record, *taken, &mut bytes);
            if let Some(operations) = &self.operations {
                let mut sample = Sample::new("checkpoint", began.0);
                sample.part("copy", began.0, copied.0);
                sample.part("write", copied.0, W::time_of_day().0);
                sample.number("record", record);
                match &written {
                    Ok(bytes) => sample.number("bytes", *bytes),
                    Err(_) => sample.failed = Some("it could not be written"),
                }
                operations.record(&sample);
            }
            report::<W>(&self.status, written);
        }
    }

    fn write(&self, record: u64, taken: Taken, bytes: &mut Vec<u8>) -> Result<u64, String> {
        // The next checkpoint may begin when this one is done.
        let Taken { engine, market, losses, under_way: _under_way, .. } = taken;
        let market = match market {
            Some(market) => market,
            None => self.books_at(engine.counters.events).ok_or("the thread of the books has ended")?,
        };
        let market = market.sorted();
        let encoded = checkpoint::encode(engine, &market, std::mem::take(bytes));
        self.coordinator.give_back(market);
        *bytes = encoded.map_err(|error| error.to_string())?;
        let bytes = folder::write_in::<W>(&self.folder, record, bytes).map_err(|error| error.to_string())?;
        // The checkpoint on disk is good even if older ones cannot be removed.
        self.coordinator.bridged.fetch_max(losses, Ordering::AcqRel);
        let needed_from = folder::prune_in::<W>(&self.folder, self.start)?;
        if self.is_regular {
            self.coordinator.need_from(needed_from);
        }
        Ok(bytes)
    }

    /// Waits for the books before the event `next`; returns `None` if their thread has ended.
    fn books_at(&self, next: u64) -> Option<MarketImage> {
        // Books of another event belong to an abandoned checkpoint.
        std::iter::from_fn(|| self.books.recv().ok()).find_map(|(at, image)| (at == next).then_some(image))
    }
}

/// Records how a checkpoint ended.
pub(super) fn report<W: World>(status: &Mutex<Status>, written: Result<u64, String>) {
    let snapshots = &mut status.lock().unwrap_or_else(PoisonError::into_inner).checkpoints;
    match written {
        Ok(bytes) => {
            snapshots.written += 1;
            snapshots.bytes = bytes;
            snapshots.time = W::time_of_day();
        }
        Err(error) => {
            snapshots.failed += 1;
            snapshots.error = Some(error);
        }
    }
}

#[cfg(test)]
mod tests;
