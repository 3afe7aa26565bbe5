//! A ring that several consumers read in place: multicast, pipelines, diamonds, one producer or many.
//!
//! The events live in the ring from the start and are written and read in place; nothing is moved or allocated. Every consumer
//! sees every event, at its own speed, in the order of publication, after the consumers that it follows are done with it. A
//! producer waits when the slowest consumer is a whole ring behind.
//!
//! ```
//! use tapeworks_ring::disruptor::Builder;
//! use tapeworks_ring::wait::Yielding;
//!
//! // A diamond: two consumers side by side, a third behind both.
//! let mut graph = Builder::new(1024, || 0u64, Yielding::default);
//! let journal = graph.consumer("journal", &[]);
//! let replicate = graph.consumer("replicate", &[]);
//! let apply = graph.consumer("apply", &[journal, replicate]);
//! let (mut producer, mut ends) = graph.single_producer();
//!
//! let sums: Vec<u64> = std::thread::scope(|scope| {
//!     let threads: Vec<_> = [journal, replicate, apply]
//!         .map(|id| {
//!             let mut consumer = ends.take(id).expect("each end is taken once");
//!             scope.spawn(move || {
//!                 let mut sum = 0;
//!                 consumer.run(|event, _sequence, _end_of_batch| sum += event).expect("nobody panics");
//!                 sum
//!             })
//!         })
//!         .into();
//!     for number in 0..10_000 {
//!         producer.publish(|event| *event = number).expect("the consumers stay");
//!     }
//!     drop(producer); // closes the ring: the consumers drain it and return
//!     threads.into_iter().map(|thread| thread.join().expect("nobody panics")).collect()
//! });
//! assert_eq!(sums, [49_995_000; 3]);
//! ```
//!
//! # Words
//! *Sequence*: the number of an event, from 0. *Cursor*: how many are published. *Gating*: a producer may not be more than the
//! capacity ahead of any consumer. *Batch*: the events that one look at the ring found, at most the capacity. It is handed out
//! in parts of up to an eighth of the ring, each of which is done before the next, so that a long batch does not hold up
//! producers and followers. *End of batch*: the last event of the batch, where the consumer should flush its output. Events
//! published meanwhile are the next batch.
//!
//! # Cost
//! One producer: one release store an event or batch, a look at the consumers' sequences once a ring. Many producers: an
//! atomic addition on one line that they share for each claim, a flag (4 bytes) for each event; claim in batches where
//! there are batches. A consumer looks at the cursor (or at the consumers it follows) once a batch, and stores its
//! sequence once a batch.
//!
//! # When a consumer panics
//! It stops, and the ring has failed: a producer that needs its room gets [`Failed`], which names the consumer, and so do the
//! consumers that find no more events. None waits for ever. The same holds when its thread panics between two polls. When a
//! consumer is dropped otherwise, the others go on without it; its followers follow the consumers before it.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::align::CacheAligned;
use crate::prefetch;
use crate::spsc::{LINES_AHEAD, items_per_line, rounded};
use crate::sync::{Arc, AtomicU32, AtomicUsize, Ordering, SharedCell};
use crate::wait::{News, WaitStrategy, rest_after};

/// A consumer panicked, or a producer did between its claim and its publication: the ring stands still.
///
/// A producer gets the error when it looks at the consumers, which it does when the ring seems full: up to a ring of events may be
/// published after the failure and are never read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failed {
    /// The name of the consumer or producer that panicked or gave up.
    pub name: String,
}

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} failed, the ring stands still", self.name)
    }
}

impl std::error::Error for Failed {}

/// Why nothing was published.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PublishError {
    /// The slowest consumer is a whole ring behind.
    Full,
    /// Every consumer is gone.
    Closed,
    /// A consumer panicked.
    Failed(Failed),
}

impl std::fmt::Display for PublishError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Full => f.write_str("the slowest consumer is a whole ring behind"),
            Self::Closed => f.write_str("every consumer is gone"),
            Self::Failed(failed) => failed.fmt(f),
        }
    }
}

impl std::error::Error for PublishError {}

/// Why nothing was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PollError {
    /// All is read, and every producer is gone.
    Closed,
    /// No more events can come here: a consumer or producer panicked.
    Failed(Failed),
}

impl std::fmt::Display for PollError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Closed => f.write_str("all is read, and every producer is gone"),
            Self::Failed(failed) => failed.fmt(f),
        }
    }
}

impl std::error::Error for PollError {}

/// The sequence of a consumer that is gone: no producer or consumer waits for it.
const GONE: usize = usize::MAX;
/// In `failed`: none; a producer; above that a consumer's place and this.
const NOBODY: usize = 0;
const A_PRODUCER: usize = 1;
const FIRST_CONSUMER: usize = 2;

/// The most events of one part of a batch are this part of the ring, so that a long batch does not hold up the consumers behind.
const PARTS_PER_RING: usize = 8;

mod sealed {
    pub trait Sealed {}
}

/// How producers publish: [`Single`] or [`Multi`].
pub trait Publication: sealed::Sealed + Send + Sync {
    /// The end of the events published without a gap, of those claimed in `from..claimed`.
    #[doc(hidden)]
    fn published(&self, from: usize, claimed: usize) -> usize;
}

/// One producer: what the cursor says is published.
#[derive(Debug)]
pub struct Single;

impl sealed::Sealed for Single {}

impl Publication for Single {
    #[inline(always)]
    fn published(&self, _from: usize, claimed: usize) -> usize {
        claimed
    }
}

/// Several producers: the cursor says what is claimed, a flag by slot in which round of the ring it was published last.
#[derive(Debug)]
pub struct Multi {
    rounds: Box<[AtomicU32]>,
    shift: u32,
}

impl Multi {
    fn new(capacity: usize) -> Self {
        Self { rounds: (0..capacity).map(|_| AtomicU32::new(0)).collect(), shift: capacity.trailing_zeros() }
    }

    /// The flag of a sequence's slot, and what it is once the sequence is published. Rounds count from 1; after 2^32 of them
    /// they begin anew, when no flag can be that old.
    #[inline(always)]
    fn flag(&self, sequence: usize) -> Option<(&AtomicU32, u32)> {
        let flag = self.rounds.get(sequence & (self.rounds.len() - 1))?;
        Some((flag, ((sequence >> self.shift) as u32).wrapping_add(1)))
    }

    #[inline(always)]
    fn publish(&self, sequence: usize) {
        if let Some((flag, round)) = self.flag(sequence) {
            flag.store(round, Ordering::Release);
        }
    }
}

impl sealed::Sealed for Multi {}

impl Publication for Multi {
    #[inline]
    fn published(&self, from: usize, claimed: usize) -> usize {
        (from..claimed)
            .find(|sequence| {
                self.flag(*sequence).is_none_or(|(flag, round)| flag.load(Ordering::Acquire) != round)
            })
            .unwrap_or(claimed)
    }
}

/// A consumer's place in the graph.
#[derive(Debug)]
struct Node {
    name: String,
    /// Places of those it follows directly.
    follows: Vec<usize>,
    /// Places of all before it.
    ancestors: Vec<usize>,
    mutates: bool,
}

struct Shared<T, W, P> {
    /// Events published; claimed, where there are several producers.
    cursor: CacheAligned<AtomicUsize>,
    /// Events done, by consumer.
    done: Box<[CacheAligned<AtomicUsize>]>,
    /// Producers alive.
    producers: CacheAligned<AtomicUsize>,
    failed: AtomicUsize,
    for_events: W,
    for_room: W,
    publication: P,
    nodes: Box<[Node]>,
    slots: Box<[SharedCell<T>]>,
}

// SAFETY: a slot is written by the producer that claimed its sequence, while every consumer is done with the event that was
// there (gating) and none has come to the new one (the cursor or the flag is stored after the write, with release order).
// Consumers share it, hence `T: Sync`; one that mutates is alone in its place (checked in `build`): all others are before
// it and done, or behind it and waiting, which the loads and stores of `done` order.
unsafe impl<T: Send + Sync, W: Sync, P: Sync> Sync for Shared<T, W, P> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync, W: Send, P: Send> Send for Shared<T, W, P> {}

impl<T, W: WaitStrategy, P: Publication> Shared<T, W, P> {
    #[inline(always)]
    fn slot(&self, sequence: usize) -> &SharedCell<T> {
        debug_assert!(self.slots.len().is_power_of_two());
        // SAFETY: the number of slots is a power of two, so the masked index lies below it.
        unsafe { self.slots.get_unchecked(sequence & (self.slots.len() - 1)) }
    }

    /// The slots of `count` sequences from `first` on, in order: up to the last slot, then from the first.
    #[inline(always)]
    fn slots(&self, first: usize, count: usize) -> impl Iterator<Item = &SharedCell<T>> {
        let place = first & (self.slots.len() - 1);
        let until_end = count.min(self.slots.len() - place);
        let [up_to_last, from_first] = [place..place + until_end, 0..count - until_end]
            .map(|places| self.slots.get(places).unwrap_or_default());
        up_to_last.iter().chain(from_first)
    }

    /// How many events the slowest consumer has done; [`GONE`] when all are gone.
    fn slowest(&self) -> usize {
        self.done.iter().map(|done| done.load(Ordering::Acquire)).min().unwrap_or(GONE)
    }

    #[cold]
    fn failure(&self) -> Option<Failed> {
        let name = match self.failed.load(Ordering::Acquire) {
            NOBODY => return None,
            A_PRODUCER => "a producer".to_owned(),
            place => {
                self.nodes.get(place - FIRST_CONSUMER).map_or_else(String::new, |node| node.name.clone())
            }
        };
        Some(Failed { name })
    }

    #[cold]
    fn fail(&self, who: usize) {
        // The first counts: what follows may follow from it.
        let _first = self.failed.compare_exchange(NOBODY, who, Ordering::AcqRel, Ordering::Relaxed);
        self.for_events.notify();
        self.for_room.notify();
    }

    /// Up to where the consumer at `place`, which has done `done`, may read.
    #[inline]
    fn readable(&self, place: usize, done: usize) -> usize {
        let follows = self.nodes.get(place).map_or(&[][..], |node| &node.follows);
        if follows.is_empty() {
            return self.publication.published(done, self.cursor.load(Ordering::Acquire));
        }
        let mut until = GONE;
        let mut some_gone = false;
        for before in follows {
            let before = self.done.get(*before).map_or(GONE, |done| done.load(Ordering::Acquire));
            some_gone |= before == GONE;
            until = until.min(before);
        }
        if some_gone { self.readable_without_the_gone(place, done) } else { until }
    }

    #[cold]
    fn readable_without_the_gone(&self, place: usize, done: usize) -> usize {
        // First the consumers before it, then the cursor: a consumer that leaves meanwhile was done with no more than was
        // published.
        let ancestors = self.nodes.get(place).map_or(&[][..], |node| &node.ancestors);
        let before = ancestors
            .iter()
            .filter_map(|before| self.done.get(*before))
            .map(|done| done.load(Ordering::Acquire))
            .min()
            .unwrap_or(GONE);
        before.min(self.publication.published(done, self.cursor.load(Ordering::Acquire)))
    }
}

/// Declares a ring: its events, its consumers and their order.
pub struct Builder<T, W> {
    /// Distinguishes this ring's consumers from those of others.
    ring: u64,
    events: Vec<T>,
    nodes: Vec<Node>,
    wait: Box<dyn Fn() -> W>,
}

impl<T, W> std::fmt::Debug for Builder<T, W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Builder({} slots, {} consumers)", self.events.len(), self.nodes.len())
    }
}

/// A consumer of a [`Builder`], to be taken from [`Ends`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConsumerId {
    place: usize,
    ring: u64,
}

/// The consumers of a ring, to be taken once each and moved to their threads.
#[derive(Debug)]
pub struct Ends<T: Send + Sync, W: WaitStrategy, P: Publication> {
    ring: u64,
    consumers: Vec<Option<Consumer<T, W, P>>>,
}

impl<T: Send + Sync, W: WaitStrategy, P: Publication> Ends<T, W, P> {
    /// The consumer `id`; `None` when it was taken before, or is of another ring.
    pub fn take(&mut self, id: ConsumerId) -> Option<Consumer<T, W, P>> {
        self.consumers.get_mut(id.place).filter(|_| id.ring == self.ring)?.take()
    }
}

impl<T: Send + Sync, W: WaitStrategy> Builder<T, W> {
    /// A ring of `capacity` events, rounded up to a power of two, each made by `event`; `wait` makes the strategy by which
    /// consumers wait for events and producers for room.
    ///
    /// # Panics
    /// When `capacity` exceeds [`MAX_CAPACITY`](crate::spsc::MAX_CAPACITY).
    pub fn new(capacity: usize, event: impl FnMut() -> T, wait: impl Fn() -> W + 'static) -> Self {
        static RINGS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let mut event = event;
        let events = (0..rounded(capacity)).map(|_| event()).collect();
        let ring = RINGS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Self { ring, events, nodes: Vec::new(), wait: Box::new(wait) }
    }

    /// A consumer that reads every event after all of `follows` have; after its publication, when there are none.
    ///
    /// # Panics
    /// When one of `follows` is of another builder.
    pub fn consumer(&mut self, name: &str, follows: &[ConsumerId]) -> ConsumerId {
        self.add(name, follows, false)
    }

    /// A consumer that may change the events: those behind it see them changed. No other consumer may read at the same
    /// time, so each must be before it or behind it; that is checked when the ring is made.
    ///
    /// # Panics
    /// When one of `follows` is of another builder.
    pub fn mutator(&mut self, name: &str, follows: &[ConsumerId]) -> ConsumerId {
        self.add(name, follows, true)
    }

    fn add(&mut self, name: &str, follows: &[ConsumerId], mutates: bool) -> ConsumerId {
        let mut ancestors: Vec<usize> = Vec::new();
        for ConsumerId { place, ring } in follows {
            let Some(node) = self.nodes.get(*place).filter(|_| *ring == self.ring) else {
                panic!("{name} follows a consumer of another ring")
            };
            ancestors.extend(&node.ancestors);
            ancestors.push(*place);
        }
        ancestors.sort_unstable();
        ancestors.dedup();
        let follows = follows.iter().map(|id| id.place).collect();
        self.nodes.push(Node { name: name.to_owned(), follows, ancestors, mutates });
        ConsumerId { place: self.nodes.len() - 1, ring: self.ring }
    }

    /// The ring, with one producer.
    ///
    /// # Panics
    /// When there is no consumer, or one that mutates is side by side with another.
    pub fn single_producer(self) -> (Producer<T, W>, Ends<T, W, Single>) {
        let (shared, ends) = self.build(|_| Single);
        (Producer { next: 0, limit: shared.slots.len(), shared }, ends)
    }

    /// The ring, with a producer that can be cloned.
    ///
    /// # Panics
    /// When there is no consumer, or one that mutates is side by side with another.
    pub fn multi_producer(self) -> (MultiProducer<T, W>, Ends<T, W, Multi>) {
        let (shared, ends) = self.build(Multi::new);
        (MultiProducer { slowest: 0, shared }, ends)
    }

    #[expect(clippy::type_complexity, reason = "the two halves of what the public functions return")]
    fn build<P: Publication>(
        self,
        publication: impl FnOnce(usize) -> P,
    ) -> (Arc<Shared<T, W, P>>, Ends<T, W, P>) {
        assert!(
            !self.nodes.is_empty(),
            "a ring without a consumer would overwrite events that are never read"
        );
        for (place, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.mutates) {
            for (other, beside) in self.nodes.iter().enumerate() {
                let is_apart =
                    other == place || node.ancestors.contains(&other) || beside.ancestors.contains(&place);
                assert!(is_apart, "{} mutates events while {} may read them", node.name, beside.name);
            }
        }
        let capacity = self.events.len();
        let shared = Arc::new(Shared {
            cursor: CacheAligned::new(AtomicUsize::new(0)),
            done: self.nodes.iter().map(|_| CacheAligned::new(AtomicUsize::new(0))).collect(),
            producers: CacheAligned::new(AtomicUsize::new(1)),
            failed: AtomicUsize::new(NOBODY),
            for_events: (self.wait)(),
            for_room: (self.wait)(),
            publication: publication(capacity),
            slots: self.events.into_iter().map(SharedCell::new).collect(),
            nodes: self.nodes.into(),
        });
        let consumers = (0..shared.nodes.len())
            .map(|place| {
                Some(Consumer {
                    place,
                    done: 0,
                    readable: 0,
                    found: 0,
                    has_failed: false,
                    shared: Arc::clone(&shared),
                })
            })
            .collect();
        (shared, Ends { ring: self.ring, consumers })
    }
}

/// The only producer of a ring. Dropping it closes the ring. As every end it has cache lines of its own.
#[repr(align(128))]
pub struct Producer<T: Send + Sync, W: WaitStrategy> {
    next: usize,
    /// What the slowest consumer had done when it was looked at last, and the capacity.
    limit: usize,
    shared: Arc<Shared<T, W, Single>>,
}

impl<T: Send + Sync, W: WaitStrategy> Producer<T, W> {
    /// Publishes one event. `write` updates the old event in its slot. Waits while the ring is full. Returns the event's
    /// sequence. If `write` panics, nothing is published.
    ///
    /// # Errors
    /// [`PublishError::Closed`] and [`PublishError::Failed`].
    #[inline]
    pub fn publish(&mut self, write: impl FnOnce(&mut T)) -> Result<usize, PublishError> {
        if self.next == self.limit {
            self.limit = Self::wait_for(&self.shared, self.next, 1)?;
        }
        Ok(self.put(write))
    }

    /// As [`publish`](Self::publish), without waiting.
    ///
    /// # Errors
    /// [`PublishError::Full`] besides the others.
    #[inline]
    pub fn try_publish(&mut self, write: impl FnOnce(&mut T)) -> Result<usize, PublishError> {
        if self.next == self.limit {
            self.limit = Self::look_for(&self.shared, self.next, 1)?;
        }
        Ok(self.put(write))
    }

    #[inline(always)]
    fn put(&mut self, write: impl FnOnce(&mut T)) -> usize {
        let sequence = self.next;
        if sequence & (items_per_line::<T>() - 1) == 0 {
            let ahead = LINES_AHEAD * items_per_line::<T>();
            if self.limit - sequence > ahead {
                prefetch::write_ahead(self.shared.slot(sequence + ahead));
            }
        }
        // SAFETY: the sequence is below the limit, so every consumer is done with what was in its slot; it is not
        // published, so none looks at it; there is no other producer.
        self.shared.slot(sequence).with_mut(|event| write(unsafe { &mut *event }));
        self.advance(1);
        sequence
    }

    #[inline(always)]
    fn advance(&mut self, count: usize) {
        self.next += count;
        debug_assert!(self.next <= self.limit, "an event is published over one that a consumer still needs");
        self.shared.cursor.store(self.next, Ordering::Release);
        self.shared.for_events.notify_of(News::Published);
    }

    /// Publishes `count` events at once: `write` is called for each, with its place in the batch. Waits until all have room.
    /// Returns the sequence of the first. If `write` panics, none is published.
    ///
    /// # Errors
    /// As [`publish`](Self::publish).
    ///
    /// # Panics
    /// When `count` exceeds the capacity.
    #[inline]
    pub fn publish_batch(
        &mut self,
        count: usize,
        mut write: impl FnMut(usize, &mut T),
    ) -> Result<usize, PublishError> {
        assert!(count <= self.capacity(), "a batch of {count} never fits into {} slots", self.capacity());
        if self.limit - self.next < count {
            self.limit = Self::wait_for(&self.shared, self.next, count)?;
        }
        let first = self.next;
        self.shared.slots(first, count).enumerate().for_each(|(at, slot)| {
            // SAFETY: as in `put`.
            slot.with_mut(|event| write(at, unsafe { &mut *event }));
        });
        self.advance(count);
        Ok(first)
    }

    /// Looks at the consumers: is there room for `count` events from `next` on? Returns the new limit. It takes no reference to the
    /// producer, so that the loop of a caller can keep its fields in registers.
    #[inline(never)]
    fn look_for(shared: &Shared<T, W, Single>, next: usize, count: usize) -> Result<usize, PublishError> {
        let slowest = shared.slowest();
        if slowest == GONE {
            return Err(PublishError::Closed);
        }
        let limit = slowest + shared.slots.len();
        if limit - next >= count {
            return Ok(limit);
        }
        Err(shared.failure().map_or(PublishError::Full, PublishError::Failed))
    }

    #[inline(never)]
    fn wait_for(shared: &Shared<T, W, Single>, next: usize, count: usize) -> Result<usize, PublishError> {
        let mut looked = Err(PublishError::Full);
        shared.for_room.wait_until(|| {
            looked = Self::look_for(shared, next, count);
            looked != Err(PublishError::Full)
        });
        looked
    }

    /// Slots of the ring.
    pub fn capacity(&self) -> usize {
        self.shared.slots.len()
    }

    /// Events that the slowest consumer has not done yet: how full the ring is now.
    pub fn fill(&self) -> usize {
        fill(self.next, self.shared.slowest())
    }
}

/// The events between the slowest consumer and `published`.
const fn fill(published: usize, slowest: usize) -> usize {
    if slowest == GONE { 0 } else { published.saturating_sub(slowest) }
}

impl<T: Send + Sync, W: WaitStrategy> Drop for Producer<T, W> {
    fn drop(&mut self) {
        self.shared.producers.store(0, Ordering::Release);
        self.shared.for_events.notify();
    }
}

impl<T: Send + Sync, W: WaitStrategy> std::fmt::Debug for Producer<T, W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Producer({} published, {} of {} slots taken)", self.next, self.fill(), self.capacity())
    }
}

/// One of several producers of a ring; clone it for the others. The ring closes when the last is dropped.
#[repr(align(128))]
pub struct MultiProducer<T: Send + Sync, W: WaitStrategy> {
    /// What the slowest consumer had done when this producer looked last.
    slowest: usize,
    shared: Arc<Shared<T, W, Multi>>,
}

impl<T: Send + Sync, W: WaitStrategy> MultiProducer<T, W> {
    /// Publishes one event: see [`Producer::publish`]. If `write` panics, the ring has failed: its slot is claimed, and what
    /// is half written is never shown.
    ///
    /// # Errors
    /// [`PublishError::Closed`] and [`PublishError::Failed`].
    #[inline]
    pub fn publish(&mut self, write: impl FnOnce(&mut T)) -> Result<usize, PublishError> {
        let mut write = Some(write);
        self.publish_batch(1, |_, event| {
            if let Some(write) = write.take() {
                write(event);
            }
        })
    }

    /// Publishes `count` events with one claim: they follow each other. See [`Producer::publish_batch`].
    ///
    /// # Errors
    /// As [`publish`](Self::publish).
    ///
    /// # Panics
    /// When `count` exceeds the capacity.
    #[inline]
    pub fn publish_batch(
        &mut self,
        count: usize,
        write: impl FnMut(usize, &mut T),
    ) -> Result<usize, PublishError> {
        assert!(count <= self.capacity(), "a batch of {count} never fits into {} slots", self.capacity());
        let first = self.shared.cursor.fetch_add(count, Ordering::AcqRel);
        if let Err(error) = self.wait_for(first + count) {
            // The claimed events will not be published: the producers and consumers behind cannot go on.
            self.shared.fail(A_PRODUCER);
            return Err(error);
        }
        self.put(first, count, write);
        Ok(first)
    }

    /// Publishes one event if there is room.
    ///
    /// # Errors
    /// [`PublishError::Full`] besides those of [`publish`](Self::publish).
    #[inline]
    pub fn try_publish(&mut self, write: impl FnOnce(&mut T)) -> Result<usize, PublishError> {
        let mut claimed = self.shared.cursor.load(Ordering::Acquire);
        loop {
            self.look_for(claimed + 1)?;
            // Claims only what has room, so that nothing claimed has to wait.
            let won = self.shared.cursor.compare_exchange_weak(
                claimed,
                claimed + 1,
                Ordering::AcqRel,
                Ordering::Acquire,
            );
            match won {
                Ok(first) => {
                    let mut write = Some(write);
                    self.put(first, 1, |_, event| {
                        if let Some(write) = write.take() {
                            write(event);
                        }
                    });
                    return Ok(first);
                }
                Err(other) => claimed = other,
            }
        }
    }

    #[inline(always)]
    fn put(&self, first: usize, count: usize, mut write: impl FnMut(usize, &mut T)) {
        struct Claimed<'s, T, W: WaitStrategy>(&'s Shared<T, W, Multi>);
        impl<T, W: WaitStrategy> Drop for Claimed<'_, T, W> {
            #[cold]
            fn drop(&mut self) {
                self.0.fail(A_PRODUCER);
            }
        }
        let claimed = Claimed(&self.shared);
        self.shared.slots(first, count).enumerate().for_each(|(at, slot)| {
            // SAFETY: the sequence was claimed by this producer alone and has room: every consumer is done with what was
            // in its slot. Its flag is not set, so none looks at it.
            slot.with_mut(|event| write(at, unsafe { &mut *event }));
        });
        std::mem::forget(claimed);
        for at in 0..count {
            self.shared.publication.publish(first + at);
        }
        self.shared.for_events.notify_of(News::Published);
    }

    /// Whether all events below `end` have room.
    #[inline]
    fn look_for(&mut self, end: usize) -> Result<(), PublishError> {
        if end <= self.slowest + self.shared.slots.len() {
            return Ok(());
        }
        let slowest = self.shared.slowest();
        if slowest == GONE {
            return Err(PublishError::Closed);
        }
        self.slowest = slowest;
        if end <= slowest + self.shared.slots.len() {
            return Ok(());
        }
        Err(self.shared.failure().map_or(PublishError::Full, PublishError::Failed))
    }

    #[inline]
    fn wait_for(&mut self, end: usize) -> Result<(), PublishError> {
        let mut looked = self.look_for(end);
        if looked == Err(PublishError::Full) {
            let shared = Arc::clone(&self.shared);
            shared.for_room.wait_until(|| {
                looked = self.look_for(end);
                looked != Err(PublishError::Full)
            });
        }
        looked
    }

    /// Slots of the ring.
    pub fn capacity(&self) -> usize {
        self.shared.slots.len()
    }

    /// Events claimed that the slowest consumer has not done yet: how full the ring is now.
    pub fn fill(&self) -> usize {
        fill(self.shared.cursor.load(Ordering::Acquire), self.shared.slowest())
    }
}

impl<T: Send + Sync, W: WaitStrategy> Clone for MultiProducer<T, W> {
    fn clone(&self) -> Self {
        self.shared.producers.fetch_add(1, Ordering::Relaxed);
        Self { slowest: self.slowest, shared: Arc::clone(&self.shared) }
    }
}

impl<T: Send + Sync, W: WaitStrategy> Drop for MultiProducer<T, W> {
    fn drop(&mut self) {
        self.shared.producers.fetch_sub(1, Ordering::AcqRel);
        self.shared.for_events.notify();
    }
}

impl<T: Send + Sync, W: WaitStrategy> std::fmt::Debug for MultiProducer<T, W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MultiProducer({} of {} slots taken)", self.fill(), self.capacity())
    }
}

/// A reader of every event. Dropping it lets the others go on without it.
#[repr(align(128))]
pub struct Consumer<T: Send + Sync, W: WaitStrategy, P: Publication> {
    place: usize,
    done: usize,
    readable: usize,
    /// Events that the last look found.
    found: usize,
    /// It panicked while it handled an event, whether or not it was the first of the ring to do so.
    has_failed: bool,
    shared: Arc<Shared<T, W, P>>,
}

impl<T: Send + Sync, W: WaitStrategy, P: Publication> Consumer<T, W, P> {
    /// Passes the readable events to `handle`: event, sequence, and whether it is the last of the batch. At most an eighth of
    /// the ring at a time: the next call continues the same batch. Returns their number, 0 when there is none now.
    ///
    /// # Errors
    /// When no more events will come.
    #[inline]
    pub fn poll(&mut self, mut handle: impl FnMut(&T, usize, bool)) -> Result<usize, PollError> {
        self.pass(|slot, sequence, is_last| {
            // SAFETY: the slot's sequence is readable: published, done by all that this consumer follows, and not written
            // again before this consumer is done. Only readers share it, as mutators are alone.
            slot.with(|event| handle(unsafe { &*event }, sequence, is_last));
        })
    }

    /// As [`poll`](Self::poll), with events that may be changed.
    ///
    /// # Errors
    /// As [`poll`](Self::poll).
    ///
    /// # Panics
    /// When the consumer was not declared by [`Builder::mutator`].
    #[inline]
    pub fn poll_mut(&mut self, mut handle: impl FnMut(&mut T, usize, bool)) -> Result<usize, PollError> {
        assert!(self.mutates(), "a consumer that others may read beside cannot change events");
        self.pass(|slot, sequence, is_last| {
            // SAFETY: as in `poll`; and no other consumer reads it now, since every other consumer is before this one and done,
            // or behind it and waiting: checked when the ring was made.
            slot.with_mut(|event| handle(unsafe { &mut *event }, sequence, is_last));
        })
    }

    fn mutates(&self) -> bool {
        self.shared.nodes.get(self.place).is_some_and(|node| node.mutates)
    }

    #[inline(always)]
    fn pass(&mut self, mut handle: impl FnMut(&SharedCell<T>, usize, bool)) -> Result<usize, PollError> {
        if self.readable == self.done {
            self.look();
            if self.readable == self.done {
                return self.nothing();
            }
        }
        let most = (self.shared.slots.len() / PARTS_PER_RING).max(1);
        let first = self.done;
        let batch_end = self.readable;
        let end = batch_end.min(first + most);
        let mut at = first;
        let handled = catch_unwind(AssertUnwindSafe(|| {
            self.shared.slots(first, end - first).for_each(|slot| {
                handle(slot, at, at + 1 == batch_end);
                at += 1;
            });
        }));
        self.done = at;
        self.done_slot().store(at, Ordering::Release);
        if let Err(panicked) = handled {
            self.has_failed = true;
            self.shared.fail(self.place + FIRST_CONSUMER);
            resume_unwind(panicked);
        }
        self.notify_done();
        Ok(end - first)
    }

    /// Marks the ring as failed by this consumer: it stops, and all producers and consumers get an error that names it. The
    /// events that this consumer has not done do not count as done.
    pub fn fail(mut self) {
        self.has_failed = true;
        self.shared.fail(self.place + FIRST_CONSUMER);
    }

    /// Marks the next `count` events, or as many as there are, as done without reading them. Returns how many. It is for a
    /// consumer that only holds others back.
    pub fn pass_over(&mut self, count: usize) -> usize {
        if self.readable - self.done < count {
            self.look();
        }
        let count = count.min(self.readable - self.done);
        if count > 0 {
            self.done += count;
            self.done_slot().store(self.done, Ordering::Release);
            self.notify_done();
        }
        count
    }

    #[inline(always)]
    fn notify_done(&self) {
        self.shared.for_room.notify_of(News::Room);
        self.shared.for_events.notify_of(News::Done(self.place));
    }

    #[inline(always)]
    fn done_slot(&self) -> &AtomicUsize {
        // A consumer's place is that of its node, of which there are as many; `done` has one for each.
        &self.shared.done[self.place]
    }

    /// Looks up to where there are events to read; it rests first when the last look found several.
    #[inline(never)]
    fn look(&mut self) {
        rest_after(self.found, self.capacity());
        self.readable = self.shared.readable(self.place, self.done);
        self.found = self.readable - self.done;
    }

    #[cold]
    fn nothing(&mut self) -> Result<usize, PollError> {
        if let Some(failed) = self.shared.failure() {
            return Err(PollError::Failed(failed));
        }
        // The order matters: what the last producer published before it went is in the cursor that is read after.
        if self.shared.producers.load(Ordering::Acquire) == 0
            && self.shared.cursor.load(Ordering::Acquire) == self.done
        {
            return Err(PollError::Closed);
        }
        Ok(0)
    }

    /// Hands every event to `handle` until the ring is closed and read to its end, waiting by the ring's strategy.
    ///
    /// # Errors
    /// [`Failed`] when another consumer panicked and nothing more can come.
    ///
    /// # Panics
    /// When `handle` does; the ring has failed then.
    pub fn run(&mut self, mut handle: impl FnMut(&T, usize, bool)) -> Result<(), Failed> {
        loop {
            match self.poll(&mut handle) {
                Ok(0) => self.wait(),
                Ok(_) => {}
                Err(PollError::Closed) => return Ok(()),
                Err(PollError::Failed(failed)) => return Err(failed),
            }
        }
    }

    /// As [`run`](Self::run), with events that may be changed.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    ///
    /// # Panics
    /// As [`run`](Self::run), and when the consumer was not declared by [`Builder::mutator`].
    pub fn run_mut(&mut self, mut handle: impl FnMut(&mut T, usize, bool)) -> Result<(), Failed> {
        loop {
            match self.poll_mut(&mut handle) {
                Ok(0) => self.wait(),
                Ok(_) => {}
                Err(PollError::Closed) => return Ok(()),
                Err(PollError::Failed(failed)) => return Err(failed),
            }
        }
    }

    /// Waits until there is an event to read, the end or a failure.
    #[inline(never)]
    pub fn wait(&mut self) {
        let Self { shared, place, done, readable, .. } = self;
        shared.for_events.wait_until(|| {
            *readable = shared.readable(*place, *done);
            *readable != *done
                || shared.failed.load(Ordering::Acquire) != NOBODY
                || (shared.producers.load(Ordering::Acquire) == 0
                    && shared.cursor.load(Ordering::Acquire) == *done)
        });
    }

    /// Events published (claimed, with several producers) that this consumer has not done yet.
    pub fn lag(&self) -> usize {
        self.shared.cursor.load(Ordering::Acquire) - self.done
    }

    /// The consumer's name.
    pub fn name(&self) -> &str {
        self.shared.nodes.get(self.place).map_or("", |node| &node.name)
    }

    /// Slots of the ring.
    pub fn capacity(&self) -> usize {
        self.shared.slots.len()
    }
}

impl<T: Send + Sync, W: WaitStrategy, P: Publication> Drop for Consumer<T, W, P> {
    fn drop(&mut self) {
        // A failed consumer keeps its place: its unfinished events must not count as done. So does one whose thread panics
        // elsewhere before it has finished its events.
        if !self.has_failed {
            if std::thread::panicking() {
                self.shared.fail(self.place + FIRST_CONSUMER);
            } else {
                self.done_slot().store(GONE, Ordering::Release);
            }
        }
        self.shared.for_room.notify();
        self.shared.for_events.notify();
    }
}

impl<T: Send + Sync, W: WaitStrategy, P: Publication> std::fmt::Debug for Consumer<T, W, P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Consumer({}, {} done, {} behind)", self.name(), self.done, self.lag())
    }
}
