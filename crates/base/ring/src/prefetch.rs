//! Loads cache lines before they are needed.
//!
//! A prefetch takes a few cycles to issue and loads the line while other work continues. It never faults and never changes a
//! program's result. On targets without a stable prefetch instruction these functions do nothing.

/// Prefetches the cache line of `slice[index]` for reading. Does nothing if `index` is out of range.
#[inline(always)]
pub fn read<T>(slice: &[T], index: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(item) = slice.get(index) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch is a hint; it does not access memory in the sense of the language and cannot fault. The address is a
        // live item's anyway.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(item).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (slice, index);
}

/// Prefetches the cache line of `slice[index]` and the `LINES - 1` lines before it for reading, for a table that is walked
/// backwards. Does nothing if `index` is out of range. Prefetching lines before the slice's start is useless but harmless.
#[inline(always)]
pub fn read_back<const LINES: usize, T>(slice: &[T], index: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(item) = slice.get(index) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let item: *const i8 = std::ptr::from_ref(item).cast();
        for line in 0..LINES {
            // SAFETY: a prefetch is a hint; it does not access memory in the sense of the language and cannot fault, whatever the
            // address. `wrapping_sub` does not assume that the result is in the same object.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(item.wrapping_sub(line * 64)) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (slice, index);
}

/// Prefetches the cache line of `item` for reading.
#[inline(always)]
pub fn read_ahead<T>(item: &T) {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch is a hint; it does not access memory in the sense of the language and cannot fault.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(item).cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(loom))))]
    let _ = item;
}

/// Prefetches the cache line of `item` for writing, which takes it from other cores now rather than at the write.
#[inline(always)]
pub fn write_ahead<T>(item: &T) {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    {
        // SAFETY: as above. `prefetchw` is not part of baseline x86-64, but it predates it, and processors that lack it execute
        // it as a no-op.
        unsafe {
            std::arch::asm!("prefetchw [{}]", in(reg) std::ptr::from_ref(item), options(nostack, preserves_flags, readonly));
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(loom))))]
    let _ = item;
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_prefetch_out_of_range_does_nothing() {
        let numbers = [1u64, 2, 3];
        super::read(&numbers, 2);
        super::read(&numbers, 3);
        super::read(&numbers, usize::MAX);
        super::read_back::<4, _>(&numbers, 0);
        super::read_back::<4, _>(&numbers, 3);
        assert_eq!(numbers, [1, 2, 3]);
    }
}
