//! Large tables in huge pages.
//!
//! Random access to a table of hundreds of megabytes in 4 KiB pages misses the TLB almost every time; with 2 MiB pages, the TLB
//! covers gigabytes. [`Region`] requests such pages from the kernel: first from the reserved pool (`MAP_HUGETLB`, empty until an
//! administrator sets `vm.nr_hugepages`), then by advice (`MADV_HUGEPAGE`). [`Backing`] reports which pages it got. `Region`
//! touches every page up front, after the advice, because advice does not affect pages touched earlier. The hot path therefore
//! takes no page faults. [`HugeVec`] is an array in such memory.
//!
//! Cost: touching the pages at startup takes about 0.1 ms per megabyte. After that it is ordinary memory.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use zerocopy::FromZeros;

/// The size of a huge page, in bytes.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Tables smaller than this, in bytes, are cache-aligned and do not use huge pages.
pub const HUGE_THRESHOLD_BYTES: usize = HUGE_PAGE_BYTES / 2;

/// The alignment of a small table, in bytes: one cache line.
pub const CACHE_LINE_BYTES: usize = 64;

/// The kind of pages that back a memory region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backing {
    /// Reserved huge pages (`MAP_HUGETLB`), which stay huge.
    HugeTlb,
    /// Huge pages by advice, as of the query. The kernel may split them when memory is short.
    TransparentHuge {
        /// Bytes in huge pages.
        bytes: usize,
    },
    /// Pages of 4 KiB.
    Ordinary,
}

/// What to do with memory at startup, besides touching it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RegionOptions {
    /// Do not request huge pages.
    pub ordinary_pages: bool,
    /// Keep the memory out of swap (`mlock`).
    pub lock: bool,
}

/// Zeroed memory straight from the kernel, in huge pages if possible, with every page touched.
///
/// Derefs to bytes.
#[derive(Debug)]
pub struct Region {
    start: NonNull<u8>,
    /// Usable bytes.
    bytes: usize,
    /// The start of the mapping, which may precede `start`, because `start` is aligned to a huge page.
    mapped_start: NonNull<u8>,
    mapped_bytes: usize,
    is_hugetlb: bool,
    is_locked: bool,
}

// SAFETY: a Region owns its memory exclusively, as a Box<[u8]> does.
unsafe impl Send for Region {}
// SAFETY: shared access gives only &[u8].
unsafe impl Sync for Region {}

impl Region {
    /// Maps `bytes` zeroed bytes.
    ///
    /// # Errors
    /// If the kernel has no memory, or refuses to lock it (`RLIMIT_MEMLOCK`).
    pub fn map(bytes: usize, options: RegionOptions) -> io::Result<Self> {
        let too_large =
            || io::Error::new(io::ErrorKind::OutOfMemory, format!("{bytes} bytes do not fit into memory"));
        let pages = bytes.max(1).checked_next_multiple_of(HUGE_PAGE_BYTES).ok_or_else(too_large)?;
        if !options.ordinary_pages
            && let Ok(start) = kernel::map(pages, kernel::Pages::HugeTlb)
        {
            let (mapped_start, mapped_bytes) = (start, pages);
            let region =
                Self { start, bytes, mapped_start, mapped_bytes, is_hugetlb: true, is_locked: false };
            return region.prepared(options);
        }
        // One extra huge page, so that the region can start on a huge page boundary.
        let mapped_bytes = pages.checked_add(HUGE_PAGE_BYTES).ok_or_else(too_large)?;
        let mapped_start = kernel::map(mapped_bytes, kernel::Pages::Ordinary)?;
        let skipped = mapped_start.as_ptr().align_offset(HUGE_PAGE_BYTES);
        // SAFETY: this skips less than a huge page, and one more than needed was mapped.
        let start = unsafe { mapped_start.add(skipped) };
        let region = Self { start, bytes, mapped_start, mapped_bytes, is_hugetlb: false, is_locked: false };
        if !options.ordinary_pages {
            kernel::advise_huge(start, pages);
        }
        region.prepared(options)
    }

    fn prepared(mut self, options: RegionOptions) -> io::Result<Self> {
        for page in self.iter_mut().step_by(4096) {
            // SAFETY: a reference is valid to write. The write is volatile because the compiler could drop a zero written over
            // zeros.
            unsafe { std::ptr::from_mut(page).write_volatile(0) };
        }
        if options.lock {
            kernel::lock(self.start, self.bytes)?;
            self.is_locked = true;
        }
        Ok(self)
    }

    /// Returns the kind of pages that back it now. Reads `/proc/self/smaps`, so use it for startup and reports.
    pub fn backing(&self) -> Backing {
        if self.is_hugetlb {
            return Backing::HugeTlb;
        }
        match kernel::transparent_huge_bytes(self.mapped_start, self.mapped_bytes) {
            0 => Backing::Ordinary,
            bytes => Backing::TransparentHuge { bytes },
        }
    }

    /// Returns whether it is kept out of swap.
    pub const fn is_locked(&self) -> bool {
        self.is_locked
    }
}

impl Deref for Region {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: `bytes` bytes from `start` are mapped, initialized (the kernel supplies zeros), and owned.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }
}

impl DerefMut for Region {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and the borrow of self is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        kernel::unmap(self.mapped_start, self.mapped_bytes);
    }
}

#[cfg(unix)]
mod kernel {
    use super::{NonNull, io};

    pub(super) enum Pages {
        HugeTlb,
        Ordinary,
    }

    pub(super) fn map(bytes: usize, pages: Pages) -> io::Result<NonNull<u8>> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let flags = match pages {
            #[cfg(target_os = "linux")]
            Pages::HugeTlb => flags | libc::MAP_HUGETLB | libc::MAP_HUGE_2MB,
            #[cfg(not(target_os = "linux"))]
            Pages::HugeTlb => return Err(io::ErrorKind::Unsupported.into()),
            Pages::Ordinary => flags,
        };
        // SAFETY: an anonymous mapping at an address chosen by the kernel touches none of the program's memory.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        NonNull::new(start.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    /// Requests huge pages. A refusal (an old kernel, a container) leaves ordinary pages.
    pub(super) fn advise_huge(start: NonNull<u8>, bytes: usize) {
        #[cfg(target_os = "linux")]
        // SAFETY: the range is mapped, starts on a page and belongs to the caller; the advice does not change its contents.
        unsafe {
            libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE);
        }
        #[cfg(not(target_os = "linux"))]
        let _ = (start, bytes);
    }

    pub(super) fn lock(start: NonNull<u8>, bytes: usize) -> io::Result<()> {
        // SAFETY: the range is mapped; locking does not change its contents.
        if unsafe { libc::mlock(start.as_ptr().cast(), bytes) } == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }

    pub(super) fn unmap(start: NonNull<u8>, bytes: usize) {
        // SAFETY: the range was mapped by `map`, the caller owns it, and nothing uses it any more.
        unsafe { libc::munmap(start.as_ptr().cast(), bytes) };
    }

    /// Returns how many bytes of the mappings in this range are in transparent huge pages.
    pub(super) fn transparent_huge_bytes(start: NonNull<u8>, bytes: usize) -> usize {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
        let (from, to) = (start.as_ptr() as usize, start.as_ptr() as usize + bytes);
        let mut is_ours = false;
        let mut huge_kib = 0;
        for line in smaps.lines() {
            let first = line.split_whitespace().next().unwrap_or_default();
            if let Some((low, high)) = first.split_once('-')
                && let (Ok(low), Ok(high)) = (usize::from_str_radix(low, 16), usize::from_str_radix(high, 16))
            {
                is_ours = low < to && high > from;
            } else if is_ours && first == "AnonHugePages:" {
                let kib = line.split_whitespace().nth(1).and_then(|kib| kib.parse::<usize>().ok());
                huge_kib += kib.unwrap_or_default();
            }
        }
        // This includes neighbors that the kernel merged into the same mapping.
        (huge_kib << 10).min(bytes)
    }
}

/// The origin of a [`HugeVec`]'s memory.
#[derive(Debug)]
enum Memory {
    /// The kernel.
    Mapped(Region),
    /// The allocator, or nothing for a layout of size zero.
    Allocated(Layout),
}

/// A zeroed array of fixed length, in huge pages if it is large.
///
/// Derefs to a slice. All-zero bytes must be a valid element (`zerocopy::FromZeros`). Elements are `Copy`, so nothing needs to be
/// dropped.
pub struct HugeVec<T> {
    start: NonNull<T>,
    length: usize,
    memory: Memory,
}

// SAFETY: a HugeVec owns its memory exclusively, as a Box<[T]> does.
unsafe impl<T: Send> Send for HugeVec<T> {}
// SAFETY: shared access gives only &[T], as a Box<[T]> does.
unsafe impl<T: Sync> Sync for HugeVec<T> {}

impl<T: FromZeros + Copy> HugeVec<T> {
    /// Allocates `length` zeroed elements and touches every page.
    ///
    /// # Panics
    /// If `length * size_of::<T>()` overflows `isize`. Aborts, like any allocation, if memory is exhausted.
    pub fn zeroed(length: usize) -> Self {
        let bytes = length.checked_mul(size_of::<T>()).filter(|bytes| *bytes <= isize::MAX as usize / 2);
        let layout = bytes
            .and_then(|bytes| Layout::from_size_align(bytes, CACHE_LINE_BYTES.max(align_of::<T>())).ok());
        let Some(layout) = layout else {
            panic!("{length} elements of {} bytes do not fit into memory", size_of::<T>())
        };
        if layout.size() == 0 {
            return Self { start: NonNull::dangling(), length, memory: Memory::Allocated(layout) };
        }
        if layout.size() >= HUGE_THRESHOLD_BYTES && layout.align() <= HUGE_PAGE_BYTES {
            let Ok(region) = Region::map(layout.size(), RegionOptions::default()) else {
                handle_alloc_error(layout)
            };
            return Self { start: region.start.cast(), length, memory: Memory::Mapped(region) };
        }
        // SAFETY: the layout's size is not zero.
        let memory = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(memory.cast::<T>()) else { handle_alloc_error(layout) };
        Self { start, length, memory: Memory::Allocated(layout) }
    }

    /// Returns the kind of pages that back it: see [`Region::backing`]. Small tables are in ordinary pages.
    pub fn backing(&self) -> Backing {
        match &self.memory {
            Memory::Mapped(region) => region.backing(),
            Memory::Allocated(_) => Backing::Ordinary,
        }
    }
}

impl<T> Deref for HugeVec<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: `length` elements from `start` are allocated, and initialized because they were zeroed or written since.
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
        if let Memory::Allocated(layout) = self.memory
            && layout.size() != 0
        {
            // SAFETY: allocated in `zeroed` with this layout; the elements are Copy and need no drop.
            unsafe { dealloc(self.start.as_ptr().cast(), layout) };
        }
    }
}

impl<T> std::fmt::Debug for HugeVec<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HugeVec({} elements, {} bytes)", self.length, self.length * size_of::<T>())
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

    #[test]
    fn a_region_reports_its_page_size_and_can_be_ordinary_memory() {
        let bytes = 5 * HUGE_PAGE_BYTES + 3;
        let mut region = Region::map(bytes, RegionOptions::default()).unwrap();
        assert_eq!((region.len(), region.as_ptr() as usize % HUGE_PAGE_BYTES), (bytes, 0));
        region[bytes - 1] = 7;
        assert_eq!(region.iter().map(|byte| u32::from(*byte)).sum::<u32>(), 7);
        // The pages that the kernel provides vary from run to run, but the report must work.
        assert!(
            !matches!(region.backing(), Backing::TransparentHuge { bytes } if bytes % HUGE_PAGE_BYTES != 0)
        );
        assert!(!region.is_locked());
    }

    #[test]
    fn a_locked_region_reports_the_lock_or_the_reason_against_it() {
        match Region::map(1 << 16, RegionOptions { ordinary_pages: true, lock: true }) {
            Ok(region) => assert!(region.is_locked()),
            Err(error) => assert!(error.raw_os_error().is_some(), "{error}"),
        }
    }

    #[test]
    fn more_than_there_is_is_an_error() {
        assert!(Region::map(usize::MAX, RegionOptions::default()).is_err());
        assert!(Region::map(1 << 46, RegionOptions::default()).is_err());
    }
}
