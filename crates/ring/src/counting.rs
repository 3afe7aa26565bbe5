//! An allocator that counts, to prove in a test that a hot path takes no memory.
//!
//! [`CountingAllocator`] passes everything on to the system's allocator and counts the calls of each thread. A test
//! makes it the allocator of its program and compares [`allocations`] before and after:
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
//! Cost: two additions to thread-local counters for each allocation or reallocation, one for each release.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// No destructor and no lazy initialisation, so that the allocator may use them at any time of a thread's life.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static RELEASES: Cell<u64> = const { Cell::new(0) };
    static BYTES: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, with a count of its calls and of the bytes requested by thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct CountingAllocator;

/// Allocations and reallocations of the calling thread so far; 0 for ever when [`CountingAllocator`] is not the
/// program's allocator.
pub fn allocations() -> u64 {
    ALLOCATIONS.get()
}

/// Bytes that the calling thread has requested so far, those released since included; of a reallocation, the new size.
pub fn allocated_bytes() -> u64 {
    BYTES.get()
}

/// Releases by the calling thread so far.
pub fn releases() -> u64 {
    RELEASES.get()
}

fn count(counter: &'static std::thread::LocalKey<Cell<u64>>, more: usize) {
    // A thread that is ending may have lost its counters; they are not read any more.
    let _ended = counter.try_with(|count| count.set(count.get().wrapping_add(more as u64)));
}

// SAFETY: every method hands its arguments to the system's allocator unchanged and returns what that returns, so its
// guarantees are the system's. Counting neither allocates nor panics.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(&ALLOCATIONS, 1);
        count(&BYTES, layout.size());
        // SAFETY: the caller keeps the contract of `alloc`, which is the same there.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(&ALLOCATIONS, 1);
        count(&BYTES, layout.size());
        // SAFETY: the caller keeps the contract of `alloc_zeroed`, which is the same there.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(&ALLOCATIONS, 1);
        count(&BYTES, new_size);
        // SAFETY: `memory` came from this allocator, that is from the system's, with this layout.
        unsafe { System.realloc(memory, layout, new_size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(&RELEASES, 1);
        // SAFETY: `memory` came from this allocator, that is from the system's, with this layout.
        unsafe { System.dealloc(memory, layout) }
    }
}
