//! Large tables in huge pages.
//!
//! A table of hundreds of megabytes that is accessed at random misses the translation cache on nearly every access
//! when it lies in 4 KiB pages; in 2 MiB pages the translations of gigabytes fit into it. [`HugeVec`] allocates
//! memory aligned to 2 MiB, advises the kernel (`MADV_HUGEPAGE`) to back it so, and only then writes zeros to all of
//! it: the advice comes too late for pages that were touched before, and the first use of a page does not fault on
//! the hot path. Where the kernel does not follow the advice it is ordinary memory and everything still works.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use zerocopy::FromZeros;

/// The alignment of a large table: one huge page, in bytes.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Tables smaller than this are allocated cache-aligned, without huge pages, in bytes.
pub const HUGE_THRESHOLD_BYTES: usize = HUGE_PAGE_BYTES / 2;

/// The alignment of a small table: one cache line, in bytes.
pub const CACHE_LINE_BYTES: usize = 64;

/// A zeroed array of fixed length, in huge pages when it is large.
///
/// Derefs to a slice. The element type must be valid when all its bytes are zero (`zerocopy::FromZeros`), and is
/// `Copy`, so that nothing needs to be dropped.
pub struct HugeVec<T> {
    start: NonNull<T>,
    length: usize,
    layout: Layout,
}

// SAFETY: a HugeVec owns its memory exclusively, as a Box<[T]> does.
unsafe impl<T: Send> Send for HugeVec<T> {}
// SAFETY: shared access gives only &[T], as a Box<[T]> does.
unsafe impl<T: Sync> Sync for HugeVec<T> {}

impl<T: FromZeros + Copy> HugeVec<T> {
    /// Allocates `length` zeroed elements, every page of them touched.
    ///
    /// # Panics
    /// When `length * size_of::<T>()` overflows `isize`. Aborts, as every allocation does, when memory is exhausted.
    pub fn zeroed(length: usize) -> Self {
        let bytes = length.checked_mul(size_of::<T>()).filter(|bytes| *bytes <= isize::MAX as usize / 2);
        let Some(bytes) = bytes else {
            panic!("{length} elements of {} bytes do not fit into memory", size_of::<T>())
        };
        let huge = bytes >= HUGE_THRESHOLD_BYTES;
        let align = if huge { HUGE_PAGE_BYTES } else { CACHE_LINE_BYTES }.max(align_of::<T>());
        let Ok(layout) = Layout::from_size_align(bytes, align) else {
            panic!("{bytes} bytes do not fit into memory")
        };
        if layout.size() == 0 {
            return Self { start: NonNull::dangling(), length, layout };
        }
        // SAFETY: the layout's size is not zero.
        let memory = unsafe { alloc(layout) };
        let Some(start) = NonNull::new(memory.cast::<T>()) else { handle_alloc_error(layout) };
        #[cfg(target_os = "linux")]
        if huge {
            // SAFETY: the range is a live allocation that starts on a page boundary; the advice does not change its
            // contents. A refusal (an old kernel, a container) leaves ordinary pages, which is fine.
            unsafe { libc::madvise(memory.cast(), layout.size(), libc::MADV_HUGEPAGE) };
        }
        // SAFETY: the allocation has this many bytes.
        unsafe { memory.write_bytes(0, layout.size()) };
        Self { start, length, layout }
    }
}

impl<T> Deref for HugeVec<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: `length` elements from `start` are allocated and, being zeroed or written since, initialised.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl<T> DerefMut for HugeVec<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and the borrow of self is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

impl<T> Drop for HugeVec<T> {
    fn drop(&mut self) {
        if self.layout.size() != 0 {
            // SAFETY: allocated in `zeroed` with this layout; the elements are Copy and need no drop.
            unsafe { dealloc(self.start.as_ptr().cast(), self.layout) };
        }
    }
}

impl<T> std::fmt::Debug for HugeVec<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HugeVec({} elements, {} bytes)", self.length, self.layout.size())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_table_is_zero_and_aligned_small_or_large() {
        for length in [0, 1, 7, 1000, 1 << 20] {
            let mut table = HugeVec::<u64>::zeroed(length);
            assert_eq!(table.len(), length);
            assert!(table.iter().all(|item| *item == 0));
            if length > 0 {
                assert_eq!(table.as_ptr() as usize % CACHE_LINE_BYTES, 0);
                table[length - 1] = 5;
                assert_eq!(table[length - 1], 5);
            }
        }
        assert_eq!(HugeVec::<u64>::zeroed(1 << 20).as_ptr() as usize % HUGE_PAGE_BYTES, 0);
    }

    #[test]
    #[should_panic(expected = "do not fit into memory")]
    fn an_absurd_length_is_refused() {
        drop(HugeVec::<u64>::zeroed(usize::MAX / 4));
    }
}
