//! The three versions of the blog's SPSC queue, as it grows them: plain, padded, padded with cached counters.
//!
//! Written anew from its description. Counters are not reset but masked, as it advises for a power of two.

use std::cell::{Cell, UnsafeCell};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering};

#[repr(align(128))]
struct Padded<T>(T);

fn slots(capacity: usize) -> Box<[UnsafeCell<MaybeUninit<u64>>]> {
    (0..capacity).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect()
}

/// V1: two counters side by side.
pub struct Plain {
    head: AtomicUsize,
    tail: AtomicUsize,
    slots: Box<[UnsafeCell<MaybeUninit<u64>>]>,
}

/// V2: each counter in a line of its own.
pub struct PaddedCounters {
    head: Padded<AtomicUsize>,
    tail: Padded<AtomicUsize>,
    slots: Box<[UnsafeCell<MaybeUninit<u64>>]>,
}

/// V3: each side keeps the other's counter as it saw it last.
pub struct CachedCounters {
    head: Padded<AtomicUsize>,
    seen_tail: Padded<Cell<usize>>,
    tail: Padded<AtomicUsize>,
    seen_head: Padded<Cell<usize>>,
    slots: Box<[UnsafeCell<MaybeUninit<u64>>]>,
}

// SAFETY: one thread pushes and one pops; the counters' release stores and acquire loads order the slots. The benchmark
// keeps to one of each.
unsafe impl Sync for Plain {}
// SAFETY: as above.
unsafe impl Sync for PaddedCounters {}
// SAFETY: as above; each cached counter is touched by one side alone.
unsafe impl Sync for CachedCounters {}

pub trait Queue: Sync {
    fn new(capacity: usize) -> Self;
    fn push(&self, item: u64) -> bool;
    fn pop(&self) -> Option<u64>;
}

macro_rules! without_cache {
    ($queue:ident, $($part:tt)*) => {
        impl Queue for $queue {
            fn new(capacity: usize) -> Self {
                let counter = || ($($part)*)(AtomicUsize::new(0));
                Self { head: counter(), tail: counter(), slots: slots(capacity) }
            }

            #[inline]
            fn push(&self, item: u64) -> bool {
                let tail = read(&self.tail).load(Ordering::Relaxed);
                if tail.wrapping_sub(read(&self.head).load(Ordering::Acquire)) == self.slots.len() {
                    return false;
                }
                // SAFETY: the slot is free, see above.
                unsafe { (*self.slots[tail & (self.slots.len() - 1)].get()).write(item) };
                read(&self.tail).store(tail.wrapping_add(1), Ordering::Release);
                true
            }

            #[inline]
            fn pop(&self) -> Option<u64> {
                let head = read(&self.head).load(Ordering::Relaxed);
                if head == read(&self.tail).load(Ordering::Acquire) {
                    return None;
                }
                // SAFETY: the slot holds an item, see above.
                let item = unsafe { (*self.slots[head & (self.slots.len() - 1)].get()).assume_init_read() };
                read(&self.head).store(head.wrapping_add(1), Ordering::Release);
                Some(item)
            }
        }
    };
}

/// A counter, padded or not.
trait Counter {
    fn counter(&self) -> &AtomicUsize;
}

impl Counter for AtomicUsize {
    fn counter(&self) -> &AtomicUsize {
        self
    }
}

impl Counter for Padded<AtomicUsize> {
    fn counter(&self) -> &AtomicUsize {
        &self.0
    }
}

#[inline(always)]
fn read(counter: &impl Counter) -> &AtomicUsize {
    counter.counter()
}

without_cache!(Plain, std::convert::identity);
without_cache!(PaddedCounters, Padded);

impl Queue for CachedCounters {
    fn new(capacity: usize) -> Self {
        Self {
            head: Padded(AtomicUsize::new(0)),
            seen_tail: Padded(Cell::new(0)),
            tail: Padded(AtomicUsize::new(0)),
            seen_head: Padded(Cell::new(0)),
            slots: slots(capacity),
        }
    }

    #[inline]
    fn push(&self, item: u64) -> bool {
        let tail = self.tail.0.load(Ordering::Relaxed);
        if tail.wrapping_sub(self.seen_head.0.get()) == self.slots.len() {
            self.seen_head.0.set(self.head.0.load(Ordering::Acquire));
            if tail.wrapping_sub(self.seen_head.0.get()) == self.slots.len() {
                return false;
            }
        }
        // SAFETY: the slot is free, see above.
        unsafe { (*self.slots[tail & (self.slots.len() - 1)].get()).write(item) };
        self.tail.0.store(tail.wrapping_add(1), Ordering::Release);
        true
    }

    #[inline]
    fn pop(&self) -> Option<u64> {
        let head = self.head.0.load(Ordering::Relaxed);
        if head == self.seen_tail.0.get() {
            self.seen_tail.0.set(self.tail.0.load(Ordering::Acquire));
            if head == self.seen_tail.0.get() {
                return None;
            }
        }
        // SAFETY: the slot holds an item, see above.
        let item = unsafe { (*self.slots[head & (self.slots.len() - 1)].get()).assume_init_read() };
        self.head.0.store(head.wrapping_add(1), Ordering::Release);
        Some(item)
    }
}
