//! An allocator that counts, so that a test can prove that a hot path does not allocate.
//!
//! [`CountingAllocator`] forwards to the system allocator and counts the calls of each thread. A test installs it as the global
//! allocator and compares [`allocations`] before and after:
//!
//! ```
//! use tapeworks_ring::counting::{CountingAllocator, allocations};
//!
//! #[global_allocator]
//! static ALLOCATOR: CountingAllocator = CountingAllocator;
//!
//! let before = allocations();
//! let boxed = Box::new(5);
//! assert_eq!(allocations() - before, 1);
//! # drop(boxed);
//! ```
//!
//! Cost: two additions to thread-local counters per allocation or reallocation, one per release.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// No destructor and no lazy initialization, so that the allocator may use them at any time in a thread's life.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static RELEASES: Cell<u64> = const { Cell::new(0) };
    static BYTES: Cell<u64> = const { Cell::new(0) };
}

/// The system allocator, with a per-thread count of calls and requested bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct CountingAllocator;

/// Returns the allocations and reallocations of the calling thread so far. It stays 0 unless [`CountingAllocator`] is the global
/// allocator.
pub fn allocations() -> u64 {
    ALLOCATIONS.get()
}

/// Returns the bytes requested by the calling thread, including those released since. A reallocation adds its new size.
pub fn allocated_bytes() -> u64 {
    BYTES.get()
}

/// Returns the number of releases by the calling thread.
pub fn releases() -> u64 {
    RELEASES.get()
}

fn count(counter: &'static std::thread::LocalKey<Cell<u64>>, more: usize) {
    // An exiting thread may already have destroyed its counters, which nothing reads any more.
    let _ended = counter.try_with(|count| count.set(count.get().wrapping_add(more as u64)));
}

// SAFETY: every method passes its arguments unchanged to the system allocator and returns its result, so the guarantees are the
// system allocator's. Counting neither allocates nor panics.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(&ALLOCATIONS, 1);
        count(&BYTES, layout.size());
        // SAFETY: the caller upholds the contract of `alloc`, which is the same there.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(&ALLOCATIONS, 1);
        count(&BYTES, layout.size());
        // SAFETY: the caller upholds the contract of `alloc_zeroed`, which is the same there.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(&ALLOCATIONS, 1);
        count(&BYTES, new_size);
        // SAFETY: `memory` came from this allocator, and thus from the system's, with this layout.
        unsafe { System.realloc(memory, layout, new_size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(&RELEASES, 1);
        // SAFETY: `memory` came from this allocator, and thus from the system's, with this layout.
        unsafe { System.dealloc(memory, layout) }
    }
}
