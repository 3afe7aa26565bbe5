//! A ring whose events several consumers read in place: multicast, pipelines, diamonds.
//!
//! The ring allocates all events up front and never moves them. Every consumer sees every event in publication order, at its own
//! pace, after the consumers it follows have finished with the event. A ring has one producer or many. A producer waits when the
//! slowest consumer is a full ring behind.
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
//! # Terms
//! *Sequence*: the number of an event, from 0. *Cursor*: the number of events published. *Gating*: a producer never gets more
//! than the capacity ahead of any consumer. *Batch*: the events found by one look at the ring, at most its capacity. A consumer
//! handles a batch in parts of up to an eighth of the ring and marks each part done before it starts the next, so that a long
//! batch does not stall producers and followers. *End of batch*: the last event of a batch, where a consumer should flush its
//! output. Events published meanwhile belong to the next batch.
//!
//! # Cost
//! One producer: one release store per event or batch, and one look at the consumers' sequences per ring. Many producers: an
//! atomic addition on a shared cache line per claim and a 4-byte flag per event, so publish in batches where possible. A consumer
//! reads the cursor (or the sequences of the consumers it follows) once per batch, and stores its own sequence once per batch.
//!
//! # When a consumer panics
//! The consumer stops and the ring has failed. A producer that needs room gets [`Failed`], which names the consumer, and so does
//! a consumer that runs out of events. Nothing waits forever. The same happens if the consumer's thread panics between two polls.
//! If a consumer is dropped normally, the others continue without it, and its followers follow the consumers before it.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::align::CacheAligned;
use crate::prefetch;
use crate::spsc::{LINES_AHEAD, items_per_line, rounded};
use crate::sync::{Arc, AtomicU32, AtomicUsize, Ordering, SharedCell};
use crate::wait::{News, WaitStrategy, rest_after};

/// A consumer failed, or a producer failed after it claimed events: the ring has stopped.
///
/// A producer gets this error when it looks at the consumers, which it does when the ring seems full. Up to a full ring of events
/// may be published after the failure and never read.
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

/// The reason why nothing was published.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PublishError {
    /// The slowest consumer is a full ring behind.
    Full,
    /// All consumers have been dropped.
    Closed,
    /// A consumer or producer failed.
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

/// The reason why nothing was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PollError {
    /// All events have been read, and all producers have been dropped.
    Closed,
    /// A consumer or producer failed, so no more events can arrive.
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

/// The sequence of a dropped consumer, which holds nobody back.
const GONE: usize = usize::MAX;
/// Values of `failed`: nobody, a producer, or `FIRST_CONSUMER` plus the consumer's place.
const NOBODY: usize = 0;
const A_PRODUCER: usize = 1;
const FIRST_CONSUMER: usize = 2;

/// Parts into which a ring divides a batch, so that a long batch does not stall the consumers that follow.
const PARTS_PER_RING: usize = 8;

mod sealed {
    pub trait Sealed {}
}

/// How producers publish: [`Single`] or [`Multi`].
pub trait Publication: sealed::Sealed + Send + Sync {
    /// Returns the end of the contiguous published events among those claimed in `from..claimed`.
    #[doc(hidden)]
    fn published(&self, from: usize, claimed: usize) -> usize;
}

/// One producer: everything below the cursor is published.
#[derive(Debug)]
pub struct Single;

impl sealed::Sealed for Single {}

impl Publication for Single {
    #[inline(always)]
    fn published(&self, _from: usize, claimed: usize) -> usize {
        claimed
    }
}

/// Several producers: the cursor counts claims, and a flag per slot holds the round in which it was last published.
#[derive(Debug)]
pub struct Multi {
    rounds: Box<[AtomicU32]>,
    shift: u32,
}

impl Multi {
    fn new(capacity: usize) -> Self {
        Self { rounds: (0..capacity).map(|_| AtomicU32::new(0)).collect(), shift: capacity.trailing_zeros() }
    }

    /// Returns the flag of a sequence's slot, and its value once the sequence is published. Rounds count from 1 and wrap after
    /// 2^32, when no flag can be that old.
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
    /// Places of the consumers it follows directly.
    follows: Vec<usize>,
    /// Places of all consumers before it.
    ancestors: Vec<usize>,
    mutates: bool,
}

struct Shared<T, W, P> {
    /// Events published, or claimed if there are several producers.
    cursor: CacheAligned<AtomicUsize>,
    /// Events done, per consumer.
    done: Box<[CacheAligned<AtomicUsize>]>,
    /// Live producers.
    producers: CacheAligned<AtomicUsize>,
    failed: AtomicUsize,
    for_events: W,
    for_room: W,
    publication: P,
    nodes: Box<[Node]>,
    slots: Box<[SharedCell<T>]>,
}

// SAFETY: a producer writes a slot only after it has claimed the slot's sequence, when every consumer is done with the previous
// event (gating) and none can reach the new one (the cursor or flag is stored after the write, with release order). Consumers
// share the event, hence `T: Sync`. `build` checks that nothing runs beside a consumer that mutates: all others come before it
// and are done, or after it and wait. The loads and stores of `done` order these accesses.
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

    /// Returns the slots of `count` sequences starting at `first`, in order, wrapping after the last slot.
    #[inline(always)]
    fn slots(&self, first: usize, count: usize) -> impl Iterator<Item = &SharedCell<T>> {
        let place = first & (self.slots.len() - 1);
        let until_end = count.min(self.slots.len() - place);
        let [up_to_last, from_first] = [place..place + until_end, 0..count - until_end]
            .map(|places| self.slots.get(places).unwrap_or_default());
        up_to_last.iter().chain(from_first)
    }

    /// Returns how many events the slowest consumer has done, or [`GONE`] if all have been dropped.
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
        // Keep the first failure: later ones may be its consequences.
        let _first = self.failed.compare_exchange(NOBODY, who, Ordering::AcqRel, Ordering::Relaxed);
        self.for_events.notify();
        self.for_room.notify();
    }

    /// Returns the end of the events that the consumer at `place`, which has done `done`, may read.
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
        // The consumers before it first, then the cursor: a consumer dropped in between had done no more than was published.
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

/// Declares a ring: its events, its consumers, and their order.
pub struct Builder<T, W> {
    /// Distinguishes this ring's consumers from those of other rings.
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

/// Identifies a consumer of a [`Builder`]; [`Ends`] exchanges it for the consumer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConsumerId {
    place: usize,
    ring: u64,
}

/// The consumers of a ring, each to be taken once and moved to its thread.
#[derive(Debug)]
pub struct Ends<T: Send + Sync, W: WaitStrategy, P: Publication> {
    ring: u64,
    consumers: Vec<Option<Consumer<T, W, P>>>,
}

impl<T: Send + Sync, W: WaitStrategy, P: Publication> Ends<T, W, P> {
    /// Takes consumer `id`. Returns `None` if it was already taken or belongs to another ring.
    pub fn take(&mut self, id: ConsumerId) -> Option<Consumer<T, W, P>> {
        self.consumers.get_mut(id.place).filter(|_| id.ring == self.ring)?.take()
    }
}

impl<T: Send + Sync, W: WaitStrategy> Builder<T, W> {
    /// Starts a ring of `capacity` events, rounded up to a power of two.
    ///
    /// `event` makes each event; `wait` makes the strategies by which consumers wait for events and producers for room.
    ///
    /// # Panics
    /// If `capacity` exceeds [`MAX_CAPACITY`](crate::spsc::MAX_CAPACITY).
    pub fn new(capacity: usize, event: impl FnMut() -> T, wait: impl Fn() -> W + 'static) -> Self {
        static RINGS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let mut event = event;
        let events = (0..rounded(capacity)).map(|_| event()).collect();
        let ring = RINGS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Self { ring, events, nodes: Vec::new(), wait: Box::new(wait) }
    }

    /// Adds a consumer that reads each event after all of `follows` have, or once it is published if `follows` is empty.
    ///
    /// # Panics
    /// If one of `follows` belongs to another builder.
    pub fn consumer(&mut self, name: &str, follows: &[ConsumerId]) -> ConsumerId {
        self.add(name, follows, false)
    }

    /// Adds a consumer that may change events; the consumers after it see the changes. No other consumer may read at the same
    /// time, so each must come before or after it. Building the ring checks this.
    ///
    /// # Panics
    /// If one of `follows` belongs to another builder.
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

    /// Builds the ring with one producer.
    ///
    /// # Panics
    /// If there is no consumer, or a mutator runs beside another consumer.
    pub fn single_producer(self) -> (Producer<T, W>, Ends<T, W, Single>) {
        let (shared, ends) = self.build(|_| Single);
        (Producer { next: 0, limit: shared.slots.len(), shared }, ends)
    }

    /// Builds the ring with a producer that can be cloned.
    ///
    /// # Panics
    /// If there is no consumer, or a mutator runs beside another consumer.
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

/// The only producer of a ring. Dropping it closes the ring. Like every end, it has its own cache lines.
#[repr(align(128))]
pub struct Producer<T: Send + Sync, W: WaitStrategy> {
    next: usize,
    /// Events the slowest consumer had done at the last look, plus the capacity.
    limit: usize,
    shared: Arc<Shared<T, W, Single>>,
}

impl<T: Send + Sync, W: WaitStrategy> Producer<T, W> {
    /// Publishes one event, waiting while the ring is full. `write` updates the old event in its slot. Returns the event's
    /// sequence. Publishes nothing if `write` panics.
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

    /// Like [`publish`](Self::publish), without waiting.
    ///
    /// # Errors
    /// Also [`PublishError::Full`].
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
        // SAFETY: the sequence is below the limit, so every consumer is done with the slot's previous event. The sequence is not
        // published yet, so no consumer reads it. There is no other producer.
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

    /// Publishes `count` events together, waiting until all have room. `write` is called for each with its index in the batch.
    /// Returns the sequence of the first. Publishes nothing if `write` panics.
    ///
    /// # Errors
    /// As [`publish`](Self::publish).
    ///
    /// # Panics
    /// If `count` exceeds the capacity.
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

    /// Checks the consumers for room for `count` events from `next` on. Returns the new limit. It takes no reference to the
    /// producer, so that a caller's loop can keep the producer's fields in registers.
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

    /// Returns the number of slots.
    pub fn capacity(&self) -> usize {
        self.shared.slots.len()
    }

    /// Returns the number of events that the slowest consumer has not done yet.
    pub fn fill(&self) -> usize {
        fill(self.next, self.shared.slowest())
    }
}

/// Returns the number of events between the slowest consumer and `published`.
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

/// One of several producers of a ring, cloned to make more. Dropping the last one closes the ring.
#[repr(align(128))]
pub struct MultiProducer<T: Send + Sync, W: WaitStrategy> {
    /// Events the slowest consumer had done when this producer last looked.
    slowest: usize,
    shared: Arc<Shared<T, W, Multi>>,
}

impl<T: Send + Sync, W: WaitStrategy> MultiProducer<T, W> {
    /// Publishes one event: see [`Producer::publish`]. If `write` panics, the ring has failed, because its slot is claimed.
    /// Consumers never see the half-written event.
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

    /// Publishes `count` consecutive events with one claim. See [`Producer::publish_batch`].
    ///
    /// # Errors
    /// As [`publish`](Self::publish).
    ///
    /// # Panics
    /// If `count` exceeds the capacity.
    #[inline]
    pub fn publish_batch(
        &mut self,
        count: usize,
        write: impl FnMut(usize, &mut T),
    ) -> Result<usize, PublishError> {
        assert!(count <= self.capacity(), "a batch of {count} never fits into {} slots", self.capacity());
        let first = self.shared.cursor.fetch_add(count, Ordering::AcqRel);
        if let Err(error) = self.wait_for(first + count) {
            // The claimed events will never be published, so nothing after them can be read.
            self.shared.fail(A_PRODUCER);
            return Err(error);
        }
        self.put(first, count, write);
        Ok(first)
    }

    /// Publishes one event if there is room.
    ///
    /// # Errors
    /// [`PublishError::Full`], and those of [`publish`](Self::publish).
    #[inline]
    pub fn try_publish(&mut self, write: impl FnOnce(&mut T)) -> Result<usize, PublishError> {
        let mut claimed = self.shared.cursor.load(Ordering::Acquire);
        loop {
            self.look_for(claimed + 1)?;
            // Claim only a sequence that has room, so that no claim has to wait.
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
            // SAFETY: only this producer claimed the sequence, and it has room: every consumer is done with the slot's previous
            // event. Its flag is not set, so no consumer reads it.
            slot.with_mut(|event| write(at, unsafe { &mut *event }));
        });
        std::mem::forget(claimed);
        for at in 0..count {
            self.shared.publication.publish(first + at);
        }
        self.shared.for_events.notify_of(News::Published);
    }

    /// Checks that all events below `end` have room.
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

    /// Returns the number of slots.
    pub fn capacity(&self) -> usize {
        self.shared.slots.len()
    }

    /// Returns the number of claimed events that the slowest consumer has not done yet.
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

/// A reader of every event. If it is dropped, the others continue without it.
#[repr(align(128))]
pub struct Consumer<T: Send + Sync, W: WaitStrategy, P: Publication> {
    place: usize,
    done: usize,
    readable: usize,
    /// Events found by the last look.
    found: usize,
    /// Whether it failed, even if another failure in the ring came first.
    has_failed: bool,
    shared: Arc<Shared<T, W, P>>,
}

impl<T: Send + Sync, W: WaitStrategy, P: Publication> Consumer<T, W, P> {
    /// Passes readable events to `handle`: the event, its sequence, and whether it ends the batch. Handles at most an eighth of
    /// the ring; the next call continues the same batch. Returns the number of events, 0 if none is readable now.
    ///
    /// # Errors
    /// If no more events will arrive.
    #[inline]
    pub fn poll(&mut self, mut handle: impl FnMut(&T, usize, bool)) -> Result<usize, PollError> {
        self.pass(|slot, sequence, is_last| {
            // SAFETY: the sequence is readable: it is published, all consumers that this one follows are done with it, and no
            // producer overwrites it before this consumer is done. Only readers share the event, because nothing runs beside a
            // mutator.
            slot.with(|event| handle(unsafe { &*event }, sequence, is_last));
        })
    }

    /// Like [`poll`](Self::poll), with mutable events.
    ///
    /// # Errors
    /// As [`poll`](Self::poll).
    ///
    /// # Panics
    /// If the consumer was not declared by [`Builder::mutator`].
    #[inline]
    pub fn poll_mut(&mut self, mut handle: impl FnMut(&mut T, usize, bool)) -> Result<usize, PollError> {
        assert!(self.mutates(), "a consumer that others may read beside cannot change events");
        self.pass(|slot, sequence, is_last| {
            // SAFETY: as in `poll`. No other consumer reads the event now: each comes before this one and is done, or after it
            // and waits, as checked when the ring was built.
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

    /// Stops this consumer and marks the ring as failed: producers and consumers get an error that names it. Its unfinished
    /// events do not count as done.
    pub fn fail(mut self) {
        self.has_failed = true;
        self.shared.fail(self.place + FIRST_CONSUMER);
    }

    /// Marks up to `count` events as done without reading them. Returns how many. For a consumer that only holds others back.
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
        // A consumer's place is its node's index, and `done` has one entry per node.
        &self.shared.done[self.place]
    }

    /// Updates the end of the readable events, after a rest if the last look found several.
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
        // The order matters: the cursor, read second, includes everything the last producer published before it was dropped.
        if self.shared.producers.load(Ordering::Acquire) == 0
            && self.shared.cursor.load(Ordering::Acquire) == self.done
        {
            return Err(PollError::Closed);
        }
        Ok(0)
    }

    /// Passes every event to `handle` until the ring is closed and drained, waiting by the ring's strategy.
    ///
    /// # Errors
    /// [`Failed`] if another consumer or a producer failed and no more events can arrive.
    ///
    /// # Panics
    /// If `handle` panics; the ring has then failed.
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

    /// Like [`run`](Self::run), with mutable events.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    ///
    /// # Panics
    /// As [`run`](Self::run), and if the consumer was not declared by [`Builder::mutator`].
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

    /// Waits until there is an event to read, the ring is closed, or it has failed.
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

    /// Returns the number of events published (claimed, with several producers) that this consumer has not done yet.
    pub fn lag(&self) -> usize {
        self.shared.cursor.load(Ordering::Acquire) - self.done
    }

    /// Returns the consumer's name.
    pub fn name(&self) -> &str {
        self.shared.nodes.get(self.place).map_or("", |node| &node.name)
    }

    /// Returns the number of slots.
    pub fn capacity(&self) -> usize {
        self.shared.slots.len()
    }
}

impl<T: Send + Sync, W: WaitStrategy, P: Publication> Drop for Consumer<T, W, P> {
    fn drop(&mut self) {
        // A failed consumer keeps its place, so that its unfinished events do not count as done. The same holds if its thread
        // panics outside the consumer.
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
