//! Large tables in huge pages.
//!
//! A table of hundreds of megabytes that is accessed at random misses the translation cache on nearly every access when it
//! lies in 4 KiB pages; in 2 MiB pages the translations of gigabytes fit into it. [`Region`] requests memory of the kernel in
//! such pages: first from those set aside for it (`MAP_HUGETLB`; there are none until an administrator sets
//! `vm.nr_hugepages`), then by advice (`MADV_HUGEPAGE`), and returns what it got ([`Backing`]). Every page is touched at
//! the start, after the advice, which would come too late for pages touched before: no first use faults on the hot path.
//! [`HugeVec`] is an array in such memory.
//!
//! Cost: the start touches every page, some 0.1 ms a megabyte. After that it is memory.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use zerocopy::FromZeros;

/// The size of a huge page, in bytes.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Tables smaller than this are allocated cache-aligned, without huge pages, in bytes.
pub const HUGE_THRESHOLD_BYTES: usize = HUGE_PAGE_BYTES / 2;

/// The alignment of a small table: one cache line, in bytes.
pub const CACHE_LINE_BYTES: usize = 64;

/// The pages that memory lies in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backing {
    /// Huge pages that were set aside (`MAP_HUGETLB`): they stay huge.
    HugeTlb,
    /// Huge pages by advice: so many bytes of the region at the moment of the query. The kernel may split them when memory is
    /// short.
    TransparentHuge {
        /// Bytes in huge pages.
        bytes: usize,
    },
    /// Pages of 4 KiB.
    Ordinary,
}

/// What to do with memory at the start, besides touching it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RegionOptions {
    /// Do not request huge pages.
    pub ordinary_pages: bool,
    /// Keep the memory from being written to swap (`mlock`).
    pub lock: bool,
}

/// Zeroed memory straight from the kernel, in huge pages where it gives them, every page touched.
///
/// Derefs to bytes.
#[derive(Debug)]
pub struct Region {
    start: NonNull<u8>,
    /// Bytes to use.
    bytes: usize,
    /// The mapping from `mapped_start` on: it may begin before `start`, which is aligned to a huge page.
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
    /// Maps `bytes` of zeros.
    ///
    /// # Errors
    /// When the kernel has no memory for it, or refuses to lock it (the limit `RLIMIT_MEMLOCK`).
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
        // One huge page more, so that the region can begin on the border of one.
        let mapped_bytes = pages.checked_add(HUGE_PAGE_BYTES).ok_or_else(too_large)?;
        let mapped_start = kernel::map(mapped_bytes, kernel::Pages::Ordinary)?;
        let skipped = mapped_start.as_ptr().align_offset(HUGE_PAGE_BYTES);
        // SAFETY: less than a huge page is skipped, and one more than needed was mapped.
        let start = unsafe { mapped_start.add(skipped) };
        let region = Self { start, bytes, mapped_start, mapped_bytes, is_hugetlb: false, is_locked: false };
        if !options.ordinary_pages {
            kernel::advise_huge(start, pages);
        }
        region.prepared(options)
    }

    fn prepared(mut self, options: RegionOptions) -> io::Result<Self> {
        for page in self.iter_mut().step_by(4096) {
            // SAFETY: a reference is valid to write. Volatile, since a zero written to zeros could be left out.
            unsafe { std::ptr::from_mut(page).write_volatile(0) };
        }
        if options.lock {
            kernel::lock(self.start, self.bytes)?;
            self.is_locked = true;
        }
        Ok(self)
    }

    /// The pages it lies in now. Reads `/proc/self/smaps`: for start-up and reports.
    pub fn backing(&self) -> Backing {
        if self.is_hugetlb {
            return Backing::HugeTlb;
        }
        match kernel::transparent_huge_bytes(self.mapped_start, self.mapped_bytes) {
            0 => Backing::Ordinary,
            bytes => Backing::TransparentHuge { bytes },
        }
    }

    /// Whether it is kept from being written to swap.
    pub const fn is_locked(&self) -> bool {
        self.is_locked
    }
}

impl Deref for Region {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: so many bytes from `start` are mapped, initialised (the kernel gives zeros), and owned.
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
        // SAFETY: an anonymous mapping at an address of the kernel's choice touches nothing of the program.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        NonNull::new(start.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    /// A refusal (an old kernel, a container) leaves ordinary pages.
    pub(super) fn advise_huge(start: NonNull<u8>, bytes: usize) {
        #[cfg(target_os = "linux")]
        // SAFETY: the range is mapped, begins on a page and is the caller's; the advice does not change its contents.
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
        // SAFETY: the range was mapped by `map`, is owned by the caller, and is not used any more.
        unsafe { libc::munmap(start.as_ptr().cast(), bytes) };
    }

    /// Bytes of the mappings in this range that lie in transparent huge pages.
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
        // Neighbours that the kernel merged into one mapping count with it.
        (huge_kib << 10).min(bytes)
    }
}

/// Where a [`HugeVec`] has its memory from.
#[derive(Debug)]
enum Memory {
    /// The kernel.
    Mapped(Region),
    /// The allocator; nothing, when the layout has no size.
    Allocated(Layout),
}

/// A zeroed array of fixed length, in huge pages when it is large.
///
/// Derefs to a slice. The element type must be valid when all its bytes are zero (`zerocopy::FromZeros`), and is `Copy`,
/// so that nothing needs to be dropped.
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
    /// Allocates `length` zeroed elements, every page of them touched.
    ///
    /// # Panics
    /// When `length * size_of::<T>()` overflows `isize`. Aborts, as every allocation does, when memory is exhausted.
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

    /// The pages it lies in: see [`Region::backing`]. Small tables lie in ordinary ones.
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
        // Which pages the kernel has today differs from run to run, but the report must be possible.
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
