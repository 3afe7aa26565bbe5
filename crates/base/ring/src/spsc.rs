//! A bounded queue from one thread to another.
//!
//! [`ring`] returns two ends to move to their threads. Both are wait-free: an operation takes a bounded number of steps whatever
//! the other side does. Items come out in order, exactly once. Each end also has blocking operations, which wait by the
//! [`WaitStrategy`] of the queue's type.
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
//! # How it works
//! The queue has a power of two of slots and two counters, `tail` (items written) and `head` (items read). Each counter has its
//! own cache line and one side that writes it. Each side caches the other's counter and reloads it only when the ring seems full
//! or empty, so most operations touch no line that the other core writes, except the items'. The remaining cost is moving the
//! items' lines from core to core, about 50 ns each. Both sides prefetch the next lines while they work on the current one.
//!
//! | operation | cache lines of the other core | atomics |
//! | --- | --- | --- |
//! | push or pop of one | the item's; the other counter's if the ring seemed full (empty) | one release store |
//! | pop when the ring seems empty | the other counter's, after a rest | |
//! | batch of n | the lines of n items, fetched in parallel; the other counter's at most once | one release store |
//!
//! The rest is one pause per item of the last look, at most 64. It is skipped if that look found fewer than four items or at
//! least a quarter of the ring.
//!
//! # Closing
//! Dropping an end closes the queue. The consumer still receives items pushed earlier, then [`PopError::Closed`]. The producer
//! notices when the ring seems full, or by [`Producer::is_closed`]. Unread items are dropped with the ring.

use std::mem::MaybeUninit;

use crate::align::CacheAligned;
use crate::prefetch;
use crate::sync::{Arc, AtomicBool, AtomicUsize, Ordering, SharedCell};
use crate::wait::{BusySpin, WaitStrategy, rest_after};

/// The most slots of a ring: half of what an index can number.
pub const MAX_CAPACITY: usize = 1 << (usize::BITS - 2);

/// The reason why an item was not pushed, with the item.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum PushError<T> {
    /// The ring is full.
    Full(T),
    /// The consumer was dropped.
    Closed(T),
}

impl<T> PushError<T> {
    /// Returns the item that was not pushed.
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

/// The reason why nothing was popped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PopError {
    /// The ring is empty now.
    Empty,
    /// The ring is empty, and the producer was dropped.
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

// SAFETY: only the two ends reach the slots, and there is one of each. The producer writes a slot while its index is in [tail,
// head + capacity); the consumer reads it while it is in [head, tail). The release stores and acquire loads of the counters order
// the two. Items move between threads, and T is Send.
unsafe impl<T: Send, W: Sync> Sync for Shared<T, W> {}
// SAFETY: as above.
unsafe impl<T: Send, W: Send> Send for Shared<T, W> {}

impl<T, W> Drop for Shared<T, W> {
    fn drop(&mut self) {
        // Both ends were dropped, and their writes are visible here: `Arc` orders its drops.
        let (mut head, tail) = (self.head.load(Ordering::Relaxed), self.tail.load(Ordering::Relaxed));
        let mask = self.slots.len() - 1;
        while head != tail {
            if let Some(slot) = self.slots.get(head & mask) {
                // SAFETY: slots in [head, tail) hold items that were not taken, and no other code can reach them now.
                slot.with_mut(|slot| unsafe { (*slot).assume_init_drop() });
            }
            head = head.wrapping_add(1);
        }
    }
}

/// Creates a queue of at least `capacity` items, rounded up to a power of two. Its blocking operations spin.
///
/// # Panics
/// If `capacity` exceeds [`MAX_CAPACITY`].
pub fn ring<T: Send>(capacity: usize) -> (Producer<T>, Consumer<T>) {
    with_wait(capacity)
}

/// Like [`ring`], with another wait strategy.
///
/// # Panics
/// If `capacity` exceeds [`MAX_CAPACITY`].
pub fn with_wait<T: Send, W: WaitStrategy + Default>(capacity: usize) -> (Producer<T, W>, Consumer<T, W>) {
    build(rounded(capacity), W::default(), W::default())
}

/// Creates a queue of exactly `capacity` items. It allocates a power of two of slots and uses `capacity` of them.
///
/// # Panics
/// If `capacity` is 0 or exceeds [`MAX_CAPACITY`].
pub fn exact<T: Send, W: WaitStrategy + Default>(capacity: usize) -> (Producer<T, W>, Consumer<T, W>) {
    assert!(capacity > 0, "a ring without room carries nothing");
    build(capacity, W::default(), W::default())
}

/// Like [`with_wait`], with given strategies: `for_items` for the consumer while the ring is empty, `for_room` for the producer
/// while it is full.
///
/// # Panics
/// If `capacity` exceeds [`MAX_CAPACITY`].
pub fn with_strategies<T: Send, W: WaitStrategy>(
    capacity: usize,
    for_items: W,
    for_room: W,
) -> (Producer<T, W>, Consumer<T, W>) {
    build(rounded(capacity), for_items, for_room)
}

/// Returns the number of slots for a ring of at least `capacity`.
///
/// # Panics
/// If `capacity` exceeds [`MAX_CAPACITY`].
pub(crate) fn rounded(capacity: usize) -> usize {
    assert!(capacity <= MAX_CAPACITY, "{capacity} slots cannot be numbered");
    capacity.max(1).next_power_of_two()
}

/// Allocates slots without items. Initializing very many zero-sized slots one by one takes hours in an unoptimized build.
#[cfg(not(loom))]
fn empty_slots<T>(count: usize) -> Box<[Slot<T>]> {
    // SAFETY: a slot is a cell of a `MaybeUninit`, which is valid for any bytes.
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

/// How far ahead of the current slot to prefetch, in cache lines.
pub(crate) const LINES_AHEAD: usize = 4;

/// Returns the items per cache line, at least one. A power of two, so that a line starts where the low index bits are zero.
pub(crate) const fn items_per_line<T>() -> usize {
    let size = if size_of::<T>() == 0 { 1 } else { size_of::<T>() };
    let items = 64 / size;
    if items == 0 { 1 } else { 1 << items.ilog2() }
}

/// Returns the slots of `count` items starting at `place`, in order, wrapping after the last slot.
#[inline(always)]
fn pieces(place: usize, count: usize, mask: usize) -> [std::ops::Range<usize>; 2] {
    let first = count.min(mask + 1 - place);
    [place..place + first, 0..count - first]
}

/// The end that pushes. Dropping it closes the queue. It has its own cache lines, so that neighboring ends do not slow each other
/// down.
#[repr(align(128))]
pub struct Producer<T: Send, W: WaitStrategy = BusySpin> {
    slots: *const Slot<T>,
    mask: usize,
    tail: usize,
    /// The last seen consumer counter plus the capacity: the ring seems full when `tail` equals it.
    limit: usize,
    shared: Arc<Shared<T, W>>,
}

// SAFETY: the pointer refers to the shared slots, which the `Arc` keeps alive. An end moved to another thread is still the only
// producer.
unsafe impl<T: Send, W: WaitStrategy> Send for Producer<T, W> {}

impl<T: Send, W: WaitStrategy> Producer<T, W> {
    #[inline(always)]
    fn slot(&self, index: usize) -> &Slot<T> {
        // SAFETY: the mask keeps the index below the number of slots, which live as long as `shared`.
        unsafe { &*self.slots.add(index & self.mask) }
    }

    /// Writes the next slot. The caller has checked that the slot is free, and publishes it.
    #[inline(always)]
    fn write(&mut self, index: usize, item: T) {
        // SAFETY: `index` is in [tail, limit): the consumer has popped the previous item and does not read the slot before the
        // tail passes it. There is no other producer.
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

    /// Returns whether there is room for one item. Reads the consumer's counter only if the ring seems full.
    #[inline(always)]
    fn has_room(&mut self) -> bool {
        self.tail != self.limit || self.look() != 0
    }

    /// Reloads the consumer's counter. Returns the number of free slots.
    #[inline(never)]
    fn look(&mut self) -> usize {
        self.limit = self.shared.head.load(Ordering::Acquire).wrapping_add(self.shared.capacity);
        self.limit.wrapping_sub(self.tail)
    }

    /// Pushes one item if there is room.
    ///
    /// # Errors
    /// Returns the item if the ring is full or the consumer was dropped.
    #[inline]
    pub fn try_push(&mut self, item: T) -> Result<(), PushError<T>> {
        if !self.has_room() {
            return Err(self.refuse(item));
        }
        self.put(item);
        Ok(())
    }

    /// Pushes one item. The caller has checked that there is room.
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

    /// Constructs an item in its slot if there is room, which saves copying a large one. Returns whether there was room.
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
    /// [`PushError::Closed`] if the consumer was dropped.
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

    /// Pushes items while there is room and publishes them together, even if the iterator panics. Returns how many. Takes no item
    /// from the iterator that has no room.
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
        // Use the known free slots if they suffice; otherwise reload the consumer's counter.
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

    /// Copies the first items of `items` while there is room and publishes them together. Returns how many.
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
            // SAFETY: the slots of the piece are adjacent and in [tail, limit), see `write`. A cell has the layout of its
            // contents. `from` stays inside `items`, which has at least `count` items and does not overlap the slots.
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

    /// Returns how many items the ring can hold.
    pub fn capacity(&self) -> usize {
        self.shared.capacity
    }

    /// Returns the number of items in the ring. The consumer may take some meanwhile.
    pub fn len(&self) -> usize {
        self.tail.wrapping_sub(self.shared.head.load(Ordering::Acquire))
    }

    /// Returns whether the ring is empty now.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns how many items fit now. The consumer may free more slots meanwhile.
    pub fn free_slots(&self) -> usize {
        self.capacity() - self.len()
    }

    /// Returns whether the consumer was dropped.
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

/// The end that pops. Dropping it closes the queue. Like the producer, it has its own cache lines.
#[repr(align(128))]
pub struct Consumer<T: Send, W: WaitStrategy = BusySpin> {
    slots: *const Slot<T>,
    mask: usize,
    head: usize,
    /// The last seen producer counter: the ring seems empty when `head` equals it.
    seen_tail: usize,
    /// Items found by the last look.
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
        // SAFETY: `index` is in [head, seen tail): the producer wrote the item and published it with the release store that the
        // acquire load of the tail saw, and does not touch the slot before the head passes it. The caller moves the head, so the
        // item is taken once.
        self.slot(index).with(|slot| unsafe { (*slot).assume_init_read() })
    }

    #[inline(always)]
    fn release(&mut self, head: usize) {
        self.head = head;
        self.shared.head.store(head, Ordering::Release);
        self.shared.for_room.notify();
    }

    /// Returns whether there is an item. Reads the producer's counter only if the ring seems empty.
    #[inline(always)]
    fn has_item(&mut self) -> bool {
        self.head != self.seen_tail || self.look_after_stream() != 0
    }

    /// Like `look`, after a rest if the last look found a steady stream.
    #[inline(never)]
    fn look_after_stream(&mut self) -> usize {
        rest_after(self.found, self.shared.capacity);
        self.found = self.look();
        self.found
    }

    /// Reloads the producer's counter. Returns the number of items.
    #[inline(never)]
    fn look(&mut self) -> usize {
        self.seen_tail = self.shared.tail.load(Ordering::Acquire);
        self.seen_tail.wrapping_sub(self.head)
    }

    /// Pops one item if there is one.
    ///
    /// # Errors
    /// Whether the ring is empty for now or forever.
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
        // The look comes after the flag, to find items pushed just before the producer was dropped.
        if self.shared.producer_is_gone.load(Ordering::Acquire) && self.look() == 0 {
            PopError::Closed
        } else {
            PopError::Empty
        }
    }

    /// Pops one item, waiting for it by the queue's strategy.
    ///
    /// # Errors
    /// [`PopError::Closed`] if the ring is empty and the producer was dropped.
    #[inline]
    pub fn pop(&mut self) -> Result<T, PopError> {
        loop {
            match self.try_pop() {
                Err(PopError::Empty) => self.wait_for_item(),
                popped => return popped,
            }
        }
    }

    /// Waits until there is an item or none can arrive. Returns the number of items, 0 if none can arrive.
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

    /// Returns the next item without removing it.
    #[inline]
    pub fn peek(&mut self) -> Option<&T> {
        if !self.has_item() {
            return None;
        }
        // SAFETY: as in `take`; the item stays and is borrowed from `self`, which alone could take it.
        Some(self.slot(self.head).with(|slot| unsafe { (*slot).assume_init_ref() }))
    }

    /// Pops up to `most` items and passes each to `each` in order. Returns how many. The producer sees the freed slots at the
    /// end. If `each` panics, its item is consumed and the later ones stay.
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

    /// Copies available items into `into`. Returns how many.
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
            // SAFETY: the slots of the piece are adjacent and in [head, seen tail), see `take`. The items are Copy. `to` stays
            // inside `into`, which has room for at least `count` items and does not overlap the slots.
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

    /// Returns how many items the ring can hold.
    pub fn capacity(&self) -> usize {
        self.shared.capacity
    }

    /// Returns the number of items in the ring. The producer may add some meanwhile.
    pub fn len(&self) -> usize {
        self.shared.tail.load(Ordering::Acquire).wrapping_sub(self.head)
    }

    /// Returns whether the ring is empty now.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether the producer was dropped and the ring is empty.
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
