//! A bounded queue from one thread to one other.
//!
//! [`ring`] gives two ends that are moved to their threads. Both are wait-free: an operation takes a bounded number of
//! steps whatever the other side does. Items come out in the order they went in; none is lost, none comes twice. Each
//! end has the blocking forms too, which wait by the [`WaitStrategy`] of the queue's type.
//!
//! ```
//! use tapeworks_ring::spsc;
//!
//! let (mut producer, mut consumer) = spsc::ring::<u64>(1024);
//! let sender = std::thread::spawn(move || {
//!     for number in 0..100_000 {
//!         producer.push(number).expect("the consumer stays");
//!     }
//! });
//! let mut sum = 0;
//! while let Ok(number) = consumer.pop() {
//!     sum += number;
//! }
//! assert_eq!(sum, 4_999_950_000);
//! # sender.join().unwrap();
//! ```
//!
//! # How
//! A power of two of slots and two counters, `tail` (written) and `head` (read), each with a cache line of its own and written
//! by one side alone. Each side keeps the last seen value of the other's counter and looks again only when that says full, or
//! empty: most operations touch no line that the other core writes, except the items'. The remaining cost is the transfer of
//! the items' lines from core to core, some 50 ns each; both sides prefetch the next lines while they work on the current one.
//!
//! | operation | cache lines of the other core | atomics |
//! | --- | --- | --- |
//! | push or pop of one | the item's; the other counter's when the ring seemed full (empty) | one release store |
//! | pop that finds nothing known | the other counter's, after a rest of up to 64 pauses if the last look found at least four items (a pause for each) and less than a quarter of the ring | |
//! | batch of n | those of n items, on their way at once; the other counter's at most once | one release store |
//!
//! # Closing
//! Dropping an end closes the queue. The consumer still gets what was pushed before; then [`PopError::Closed`]. The producer
//! sees it when the ring seems full, and by [`Producer::is_closed`]; items pushed before that are dropped with the ring.

use std::mem::MaybeUninit;

use crate::align::CacheAligned;
use crate::prefetch;
use crate::sync::{Arc, AtomicBool, AtomicUsize, Ordering, SharedCell};
use crate::wait::{BusySpin, WaitStrategy, rest_after};

/// The most slots of a ring: half of what an index can number.
pub const MAX_CAPACITY: usize = 1 << (usize::BITS - 2);

/// Why an item was not pushed. It comes back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum PushError<T> {
    /// The ring is full.
    Full(T),
    /// The consumer is gone.
    Closed(T),
}

impl<T> PushError<T> {
    /// The item that was not pushed.
    pub fn into_inner(self) -> T {
        match self {
            Self::Full(item) | Self::Closed(item) => item,
        }
    }
}

impl<T> std::fmt::Debug for PushError<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Full(_) => "Full",
            Self::Closed(_) => "Closed",
        })
    }
}

impl<T> std::fmt::Display for PushError<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Full(_) => "the ring is full",
            Self::Closed(_) => "the consumer is gone",
        })
    }
}

impl<T> std::error::Error for PushError<T> {}

/// Why nothing was popped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PopError {
    /// Nothing is there now.
    Empty,
    /// Nothing is there, and the producer is gone.
    Closed,
}

impl std::fmt::Display for PopError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Empty => "the ring is empty",
            Self::Closed => "the ring is empty and the producer is gone",
        })
    }
}

impl std::error::Error for PopError {}

type Slot<T> = SharedCell<MaybeUninit<T>>;

struct Shared<T, W> {
    /// Items ever pushed. Written by the producer.
    tail: CacheAligned<AtomicUsize>,
    /// Items ever popped. Written by the consumer.
    head: CacheAligned<AtomicUsize>,
    producer_is_gone: CacheAligned<AtomicBool>,
    consumer_is_gone: AtomicBool,
    /// What the consumer waits on.
    for_items: W,
    /// What the producer waits on.
    for_room: W,
    slots: Box<[Slot<T>]>,
    capacity: usize,
}

// SAFETY: the slots are reached by the two ends alone, of which there is one each. A slot is written by the producer
// while its index is in [tail, head + capacity), and read by the consumer while it is in [head, tail); the release stores and acquire loads of the counters order the two. Items move between threads: T is Send.
unsafe impl<T: Send, W: Sync> Sync for Shared<T, W> {}
// SAFETY: as above.
unsafe impl<T: Send, W: Send> Send for Shared<T, W> {}

impl<T, W> Drop for Shared<T, W> {
    fn drop(&mut self) {
        // Both ends are gone, and what they wrote is seen here: `Arc` orders its drops.
        let (mut head, tail) = (self.head.load(Ordering::Relaxed), self.tail.load(Ordering::Relaxed));
        let mask = self.slots.len() - 1;
        while head != tail {
            if let Some(slot) = self.slots.get(head & mask) {
                // SAFETY: slots in [head, tail) hold items that were not taken; no other code can reach them any more.
                slot.with_mut(|slot| unsafe { (*slot).assume_init_drop() });
            }
            head = head.wrapping_add(1);
        }
    }
}

/// A queue of at least `capacity` items, rounded up to a power of two, whose blocking forms spin.
///
/// # Panics
/// When `capacity` exceeds [`MAX_CAPACITY`].
pub fn ring<T: Send>(capacity: usize) -> (Producer<T>, Consumer<T>) {
    with_wait(capacity)
}

/// As [`ring`], with another way to wait.
///
/// # Panics
/// When `capacity` exceeds [`MAX_CAPACITY`].
pub fn with_wait<T: Send, W: WaitStrategy + Default>(capacity: usize) -> (Producer<T, W>, Consumer<T, W>) {
    build(rounded(capacity), W::default(), W::default())
}

/// A queue that holds `capacity` items and never one more: the slots are a power of two, of which so many are used.
///
/// # Panics
/// When `capacity` is 0 or exceeds [`MAX_CAPACITY`].
pub fn exact<T: Send, W: WaitStrategy + Default>(capacity: usize) -> (Producer<T, W>, Consumer<T, W>) {
    assert!(capacity > 0, "a ring without room carries nothing");
    build(capacity, W::default(), W::default())
}

/// As [`with_wait`], with the strategies given: what the consumer waits by when the ring is empty, and the producer
/// when it is full.
///
/// # Panics
/// When `capacity` exceeds [`MAX_CAPACITY`].
pub fn with_strategies<T: Send, W: WaitStrategy>(
    capacity: usize,
    for_items: W,
    for_room: W,
) -> (Producer<T, W>, Consumer<T, W>) {
    build(rounded(capacity), for_items, for_room)
}

/// The slots of a ring of at least `capacity`.
///
/// # Panics
/// When `capacity` exceeds [`MAX_CAPACITY`].
pub(crate) fn rounded(capacity: usize) -> usize {
    assert!(capacity <= MAX_CAPACITY, "{capacity} slots cannot be numbered");
    capacity.max(1).next_power_of_two()
}

/// Slots without items. Making them one after the other takes hours without an optimiser where items have no size and are
/// many.
#[cfg(not(loom))]
fn empty_slots<T>(count: usize) -> Box<[Slot<T>]> {
    // SAFETY: a slot is a cell of a `MaybeUninit`, which is valid whatever its bytes are.
    unsafe { Box::new_uninit_slice(count).assume_init() }
}

#[cfg(loom)]
fn empty_slots<T>(count: usize) -> Box<[Slot<T>]> {
    (0..count).map(|_| SharedCell::new(MaybeUninit::uninit())).collect()
}

fn build<T: Send, W: WaitStrategy>(
    capacity: usize,
    for_items: W,
    for_room: W,
) -> (Producer<T, W>, Consumer<T, W>) {
    let slots = empty_slots::<T>(rounded(capacity));
    let mask = slots.len() - 1;
    let shared = Arc::new(Shared {
        tail: CacheAligned::new(AtomicUsize::new(0)),
        head: CacheAligned::new(AtomicUsize::new(0)),
        producer_is_gone: CacheAligned::new(AtomicBool::new(false)),
        consumer_is_gone: AtomicBool::new(false),
        for_items,
        for_room,
        slots,
        capacity,
    });
    let slots = shared.slots.as_ptr();
    let producer = Producer { slots, mask, tail: 0, limit: capacity, shared: Arc::clone(&shared) };
    (producer, Consumer { slots, mask, head: 0, seen_tail: 0, found: 0, shared })
}

/// How far ahead of the current slot a line is prefetched, in cache lines.
pub(crate) const LINES_AHEAD: usize = 4;

/// Items in a cache line, at least one; a power of two, so that lines begin where the low bits of an index are zero.
pub(crate) const fn items_per_line<T>() -> usize {
    let size = if size_of::<T>() == 0 { 1 } else { size_of::<T>() };
    let items = 64 / size;
    if items == 0 { 1 } else { 1 << items.ilog2() }
}

/// The slots of `count` items from `place` on, in order: up to the last slot, then from the first.
#[inline(always)]
fn pieces(place: usize, count: usize, mask: usize) -> [std::ops::Range<usize>; 2] {
    let first = count.min(mask + 1 - place);
    [place..place + first, 0..count - first]
}

/// The end that pushes. Dropping it closes the queue. It has cache lines of its own, so that two ends side by side do not
/// slow each other down.
#[repr(align(128))]
pub struct Producer<T: Send, W: WaitStrategy = BusySpin> {
    slots: *const Slot<T>,
    mask: usize,
    tail: usize,
    /// The consumer's counter as it was seen last, and the capacity: the ring seems full when `tail` is here.
    limit: usize,
    shared: Arc<Shared<T, W>>,
}

// SAFETY: the pointer goes into the shared slots, which the `Arc` keeps alive; an end may be moved to another thread, where
// it remains the only producer.
unsafe impl<T: Send, W: WaitStrategy> Send for Producer<T, W> {}

impl<T: Send, W: WaitStrategy> Producer<T, W> {
    #[inline(always)]
    fn slot(&self, index: usize) -> &Slot<T> {
        // SAFETY: the mask keeps the index below the number of slots, which live as long as `shared`.
        unsafe { &*self.slots.add(index & self.mask) }
    }

    /// Writes the next slot. The caller has made sure that it is free and publishes it.
    #[inline(always)]
    fn write(&mut self, index: usize, item: T) {
        // SAFETY: `index` is in [tail, limit): the consumer has popped what was there and does not look at it before
        // the tail passes it; there is no other producer.
        self.slot(index).with_mut(|slot| unsafe { (*slot).write(item) });
    }

    #[inline(always)]
    fn publish(&mut self, tail: usize) {
        debug_assert!(
            self.tail <= tail && tail <= self.limit,
            "an item is published over one that is not popped"
        );
        self.tail = tail;
        self.shared.tail.store(tail, Ordering::Release);
        self.shared.for_items.notify();
    }

    /// Whether there is room for one more, looking at the consumer only when it seems not.
    #[inline(always)]
    fn has_room(&mut self) -> bool {
        self.tail != self.limit || self.look() != 0
    }

    /// Looks how far the consumer is. Returns the free slots.
    #[inline(never)]
    fn look(&mut self) -> usize {
        self.limit = self.shared.head.load(Ordering::Acquire).wrapping_add(self.shared.capacity);
        self.limit.wrapping_sub(self.tail)
    }

    /// Pushes one item if there is room.
    ///
    /// # Errors
    /// Gives the item back when the ring is full or the consumer is gone.
    #[inline]
    pub fn try_push(&mut self, item: T) -> Result<(), PushError<T>> {
        if !self.has_room() {
            return Err(self.refuse(item));
        }
        self.put(item);
        Ok(())
    }

    /// Pushes one item, for which there is room.
    #[inline(always)]
    fn put(&mut self, item: T) {
        let tail = self.tail;
        if tail & (items_per_line::<T>() - 1) == 0 {
            let ahead = LINES_AHEAD * items_per_line::<T>();
            if self.limit.wrapping_sub(tail) > ahead {
                prefetch::write_ahead(self.slot(tail.wrapping_add(ahead)));
            }
        }
        self.write(tail, item);
        self.publish(tail.wrapping_add(1));
    }

    #[cold]
    fn refuse(&self, item: T) -> PushError<T> {
        if self.is_closed() { PushError::Closed(item) } else { PushError::Full(item) }
    }

    /// Makes an item in its slot if there is room, so that a large one is not made elsewhere and copied. Returns whether.
    #[inline]
    pub fn try_push_with(&mut self, make: impl FnOnce() -> T) -> bool {
        if !self.has_room() {
            return false;
        }
        let tail = self.tail;
        // SAFETY: as in `write`. If `make` panics the slot stays free, as the tail has not moved.
        self.slot(tail).with_mut(|slot| unsafe { (*slot).write(make()) });
        self.publish(tail.wrapping_add(1));
        true
    }

    /// Pushes one item, waiting for room by the queue's strategy.
    ///
    /// # Errors
    /// [`PushError::Closed`] when the consumer is gone.
    #[inline]
    pub fn push(&mut self, item: T) -> Result<(), PushError<T>> {
        if self.tail == self.limit {
            self.wait_for_room();
            if self.tail == self.limit {
                return Err(PushError::Closed(item));
            }
        }
        self.put(item);
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn wait_for_room(&mut self) {
        let Self { shared, tail, limit, .. } = self;
        shared.for_room.wait_until(|| {
            *limit = shared.head.load(Ordering::Acquire).wrapping_add(shared.capacity);
            *limit != *tail || shared.consumer_is_gone.load(Ordering::Acquire)
        });
    }

    /// Pushes items from `items` while there is room, and publishes them at once, also when the iterator panics. Returns
    /// how many; an item that has no room is not taken from the iterator.
    #[inline]
    pub fn push_batch(&mut self, items: &mut impl Iterator<Item = T>) -> usize {
        struct Publish<'p, T: Send, W: WaitStrategy> {
            producer: &'p mut Producer<T, W>,
            written: usize,
        }
        impl<T: Send, W: WaitStrategy> Drop for Publish<'_, T, W> {
            #[inline(always)]
            fn drop(&mut self) {
                if self.written > 0 {
                    self.producer.publish(self.producer.tail.wrapping_add(self.written));
                }
            }
        }
        // Fills the known free slots first, then looks at the consumer's counter.
        let known = self.limit.wrapping_sub(self.tail);
        let room = if known < items.size_hint().0.max(1) { self.look() } else { known };
        let mut batch = Publish { producer: self, written: 0 };
        for piece in pieces(batch.producer.tail & batch.producer.mask, room, batch.producer.mask) {
            for place in piece {
                let Some(item) = items.next() else { return batch.written };
                batch.producer.write(place, item);
                batch.written += 1;
            }
        }
        batch.written
    }

    /// Copies the first items of `items` while there is room, and publishes them at once. Returns how many.
    #[inline]
    pub fn push_slice(&mut self, items: &[T]) -> usize
    where
        T: Copy,
    {
        let mut room = self.limit.wrapping_sub(self.tail);
        if room < items.len() {
            room = self.look();
        }
        let count = room.min(items.len());
        let mut from = items.as_ptr();
        for piece in pieces(self.tail & self.mask, count, self.mask) {
            // SAFETY: the slots of the piece lie in [tail, limit), see `write`, side by side; a cell has the layout of
            // what it holds. `from` stays inside `items`, which has at least `count` items and lies elsewhere.
            unsafe {
                self.slots
                    .add(piece.start)
                    .cast::<T>()
                    .cast_mut()
                    .copy_from_nonoverlapping(from, piece.len());
                from = from.add(piece.len());
            }
        }
        if count > 0 {
            self.publish(self.tail.wrapping_add(count));
        }
        count
    }

    /// How many items the ring holds at most.
    pub fn capacity(&self) -> usize {
        self.shared.capacity
    }

    /// Items in the ring now. The consumer may take some meanwhile.
    pub fn len(&self) -> usize {
        self.tail.wrapping_sub(self.shared.head.load(Ordering::Acquire))
    }

    /// Whether the ring is empty now.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Items that have room now. The consumer may make more meanwhile.
    pub fn free_slots(&self) -> usize {
        self.capacity() - self.len()
    }

    /// Whether the consumer is gone.
    pub fn is_closed(&self) -> bool {
        self.shared.consumer_is_gone.load(Ordering::Acquire)
    }
}

impl<T: Send, W: WaitStrategy> Drop for Producer<T, W> {
    fn drop(&mut self) {
        self.shared.producer_is_gone.store(true, Ordering::Release);
        self.shared.for_items.notify();
    }
}

impl<T: Send, W: WaitStrategy> std::fmt::Debug for Producer<T, W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Producer({} of {} slots taken)", self.len(), self.capacity())
    }
}

/// The end that pops. Dropping it closes the queue. It has cache lines of its own, as the producer has.
#[repr(align(128))]
pub struct Consumer<T: Send, W: WaitStrategy = BusySpin> {
    slots: *const Slot<T>,
    mask: usize,
    head: usize,
    /// The producer's counter as it was seen last: the ring seems empty when `head` is here.
    seen_tail: usize,
    /// Items that the last look found.
    found: usize,
    shared: Arc<Shared<T, W>>,
}

// SAFETY: as for the producer.
unsafe impl<T: Send, W: WaitStrategy> Send for Consumer<T, W> {}

impl<T: Send, W: WaitStrategy> Consumer<T, W> {
    #[inline(always)]
    fn slot(&self, index: usize) -> &Slot<T> {
        // SAFETY: the mask keeps the index below the number of slots, which live as long as `shared`.
        unsafe { &*self.slots.add(index & self.mask) }
    }

    /// Takes the item of a slot. The caller moves the head past it.
    #[inline(always)]
    fn take(&self, index: usize) -> T {
        // SAFETY: `index` is in [head, seen tail): the producer has written the item, published it by the release store
        // that the acquire load of the tail has seen, and does not touch it before the head passes it. The caller moves
        // the head, so that it is taken once.
        self.slot(index).with(|slot| unsafe { (*slot).assume_init_read() })
    }

    #[inline(always)]
    fn release(&mut self, head: usize) {
        self.head = head;
        self.shared.head.store(head, Ordering::Release);
        self.shared.for_room.notify();
    }

    /// Whether an item is there, looking at the producer only when it seems not.
    #[inline(always)]
    fn has_item(&mut self) -> bool {
        self.head != self.seen_tail || self.look_after_stream() != 0
    }

    /// As `look`, after a rest when the last look found many.
    #[inline(never)]
    fn look_after_stream(&mut self) -> usize {
        rest_after(self.found, self.shared.capacity);
        self.found = self.look();
        self.found
    }

    /// Looks how far the producer is. Returns the items there.
    #[inline(never)]
    fn look(&mut self) -> usize {
        self.seen_tail = self.shared.tail.load(Ordering::Acquire);
        self.seen_tail.wrapping_sub(self.head)
    }

    /// Pops one item if one is there.
    ///
    /// # Errors
    /// Whether the ring is empty for now or for ever.
    #[inline]
    pub fn try_pop(&mut self) -> Result<T, PopError> {
        if !self.has_item() {
            return Err(self.why_empty());
        }
        let head = self.head;
        if head & (items_per_line::<T>() - 1) == 0 {
            let ahead = LINES_AHEAD * items_per_line::<T>();
            if self.seen_tail.wrapping_sub(head) > ahead {
                prefetch::read_ahead(self.slot(head.wrapping_add(ahead)));
            }
        }
        let item = self.take(head);
        self.release(head.wrapping_add(1));
        Ok(item)
    }

    #[cold]
    fn why_empty(&mut self) -> PopError {
        // What was pushed right before the producer went must still be seen: the look comes after the flag.
        if self.shared.producer_is_gone.load(Ordering::Acquire) && self.look() == 0 {
            PopError::Closed
        } else {
            PopError::Empty
        }
    }

    /// Pops one item, waiting for one by the queue's strategy.
    ///
    /// # Errors
    /// [`PopError::Closed`] when none is there and none can come.
    #[inline]
    pub fn pop(&mut self) -> Result<T, PopError> {
        loop {
            match self.try_pop() {
                Err(PopError::Empty) => self.wait_for_item(),
                popped => return popped,
            }
        }
    }

    /// Waits until an item is there, or none can come. Returns the items there, 0 when none can come.
    pub fn wait(&mut self) -> usize {
        if self.look() == 0 {
            self.wait_for_item();
            self.look();
        }
        self.seen_tail.wrapping_sub(self.head)
    }

    #[cold]
    #[inline(never)]
    fn wait_for_item(&mut self) {
        let Self { shared, head, seen_tail, .. } = self;
        shared.for_items.wait_until(|| {
            *seen_tail = shared.tail.load(Ordering::Acquire);
            *seen_tail != *head || shared.producer_is_gone.load(Ordering::Acquire)
        });
    }

    /// The next item, which stays.
    #[inline]
    pub fn peek(&mut self) -> Option<&T> {
        if !self.has_item() {
            return None;
        }
        // SAFETY: as in `take`; the item stays and is borrowed from `self`, which alone could take it.
        Some(self.slot(self.head).with(|slot| unsafe { (*slot).assume_init_ref() }))
    }

    /// Takes up to `most` of the items that are there, each handed to `each` in order. Returns how many. The producer sees
    /// their room at the end, also when `each` panics: the item it had is gone, those after it stay.
    #[inline]
    pub fn pop_batch(&mut self, most: usize, mut each: impl FnMut(T)) -> usize {
        struct Release<'c, T: Send, W: WaitStrategy> {
            consumer: &'c mut Consumer<T, W>,
            next: usize,
        }
        impl<T: Send, W: WaitStrategy> Drop for Release<'_, T, W> {
            #[inline(always)]
            fn drop(&mut self) {
                self.consumer.release(self.next);
            }
        }
        let known = self.seen_tail.wrapping_sub(self.head);
        let there = if known < most { self.look() } else { known };
        let count = there.min(most);
        if count == 0 {
            return 0;
        }
        let next = self.head;
        let mut taken = Release { consumer: self, next };
        for piece in pieces(next & taken.consumer.mask, count, taken.consumer.mask) {
            for place in piece {
                let item = taken.consumer.take(place);
                taken.next = taken.next.wrapping_add(1);
                each(item);
            }
        }
        count
    }

    /// Copies items into `into` as far as they are there. Returns how many.
    #[inline]
    pub fn pop_slice(&mut self, into: &mut [T]) -> usize
    where
        T: Copy,
    {
        let mut there = self.seen_tail.wrapping_sub(self.head);
        if there < into.len() {
            there = self.look();
        }
        let count = there.min(into.len());
        let mut to = into.as_mut_ptr();
        for piece in pieces(self.head & self.mask, count, self.mask) {
            // SAFETY: the slots of the piece lie in [head, seen tail), see `take`, side by side; the items are Copy. `to`
            // stays inside `into`, which has room for at least `count` items and lies elsewhere.
            unsafe {
                to.copy_from_nonoverlapping(self.slots.add(piece.start).cast(), piece.len());
                to = to.add(piece.len());
            }
        }
        if count > 0 {
            self.release(self.head.wrapping_add(count));
        }
        count
    }

    /// How many items the ring holds at most.
    pub fn capacity(&self) -> usize {
        self.shared.capacity
    }

    /// Items in the ring now. The producer may add some meanwhile.
    pub fn len(&self) -> usize {
        self.shared.tail.load(Ordering::Acquire).wrapping_sub(self.head)
    }

    /// Whether the ring is empty now.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the producer is gone and nothing is left.
    pub fn is_closed(&self) -> bool {
        self.shared.producer_is_gone.load(Ordering::Acquire) && self.is_empty()
    }
}

impl<T: Send, W: WaitStrategy> Drop for Consumer<T, W> {
    fn drop(&mut self) {
        self.shared.consumer_is_gone.store(true, Ordering::Release);
        self.shared.for_room.notify();
    }
}

impl<T: Send, W: WaitStrategy> std::fmt::Debug for Consumer<T, W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Consumer({} of {} slots taken)", self.len(), self.capacity())
    }
}
