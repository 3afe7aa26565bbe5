//! Packet buffers with several holders: a fixed pool of slots, and reference-counted handles.
//!
//! A [`Pool`] has one owner: the reader that fills it, or the rewriter that copies into it. It gives out a [`Packet`]: an
//! eight-byte handle to a slot that holds the packet's bytes, its time and its [`Layout`]. Clones of the handle share a
//! packet among consumers. To change a shared packet, a holder first copies it into a slot of its pool
//! ([`Packet::make_unique`]).
//!
//! There is no list of free slots. A slot is free when it has no holder, and the owner looks for one in passes over the slots,
//! starting from the first. Packets are released roughly in the order of their arrival, so the next slot is nearly always
//! free. A release on another core costs only the decrement of its count, and cores share only the slot's own cache line. A
//! pass ends early, after about four times as many slots as are held, so that the slots of a quiet pool stay in the caches.
//!
//! | operation | cost |
//! | --- | --- |
//! | take a slot | one load of its count, on the line that is written next anyway |
//! | fill it | one copy of the packet's bytes |
//! | clone, drop | one atomic addition on the slot's first line |
//! | change in place | one load of the count |
//! | change a shared packet | one slot taken, one copy |
//!
//! The counts follow `Arc`: release when decremented, acquire before a slot is reused or changed. loom cannot check them,
//! because it tracks only its cell types, not memory reached through a pointer. Multi-threaded tests check every byte
//! instead.
//!
//! All memory is allocated once, in [`Pool::new`]: [`HEADER_BYTES`] and the slot's room for each packet. It is freed when the
//! pool and all its handles have been dropped, in any order and on any thread.

use std::alloc::{self, handle_alloc_error};
use std::cell::UnsafeCell;
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering, fence};

use crate::file::{LinkType, MAX_CAPTURED_BYTES};
use crate::net::layout::Layout;
use crate::net::rewrite::{self, Rewrite, TAG_BYTES, Unfit};

/// Bytes before the room of each slot: the count and the packet's description.
pub const HEADER_BYTES: usize = 128;

/// Free bytes before a packet's first byte, for VLAN tags to be pushed.
pub const HEADROOM_BYTES: usize = 32;

/// Number of slots in a short pass.
const LEAST_PASS: usize = 64;

/// Maximum number of packets in a pool.
pub const MAX_SLOTS: usize = 1 << 24;

/// Flag in a slot's count: the pool has been dropped, and the last handle calls [`Block::release`].
const ORPHANED: u32 = 1 << 31;

/// Maximum number of handles to one packet; cloning beyond it aborts the process. The margin lets every possible thread add
/// one handle each before the count overflows.
const MAX_HOLDERS: u32 = 1 << 30;

/// Metadata of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Description {
    /// Receive time, in nanoseconds since 1970-01-01 00:00 UTC.
    pub timestamp_ns: u64,
    /// Time at which the packet entered this process, in nanoseconds of a clock that the caller chooses.
    pub entered_ns: u64,
    /// Length of the packet on the wire in bytes; more than captured if the packet was truncated.
    pub original_length: u32,
    /// The link layer of the first byte.
    pub link_type: LinkType,
}

/// The first bytes of a slot.
#[repr(C, align(64))]
struct Slot {
    /// The number of handles, and [`ORPHANED`].
    holders: AtomicU32,
    /// Shared by the holders; a sole holder may change it.
    content: UnsafeCell<Content>,
    block: *const Block,
}

struct Content {
    /// Offset of the packet in the room.
    start: u32,
    length: u32,
    description: Description,
    layout: Layout,
}

const _: () = assert!(size_of::<Slot>() <= HEADER_BYTES && align_of::<Slot>() <= HEADER_BYTES);

/// Returns the distance between slots in bytes, for packets of up to `room` bytes.
const fn stride_of(room: usize) -> usize {
    (HEADER_BYTES + HEADROOM_BYTES + room).next_multiple_of(HEADER_BYTES)
}

/// The memory of a pool.
struct Block {
    memory: NonNull<u8>,
    layout: alloc::Layout,
    slots: usize,
    /// Distance between slots in bytes.
    stride: usize,
    /// Slots not yet released since the pool was dropped, plus one for the pool itself.
    unsettled: AtomicUsize,
}

impl Block {
    fn slot(&self, index: usize) -> NonNull<Slot> {
        debug_assert!(index < self.slots);
        // SAFETY: `index` is below `slots` in every caller, and the allocation has `slots * stride` bytes.
        unsafe { self.memory.add(index * self.stride).cast() }
    }

    /// Releases `count` slots, and frees the memory after the last one.
    ///
    /// # Safety
    /// `block` is alive, each slot is released once, after the pool has been dropped, and a released slot is not used again.
    unsafe fn release(block: *const Self, count: usize) {
        // SAFETY: the caller promises that the block is alive until the last slot is released.
        if unsafe { &(*block).unsettled }.fetch_sub(count, Ordering::Release) > count {
            return;
        }
        fence(Ordering::Acquire);
        // SAFETY: the block was made by `Box::into_raw`, and everything else has been released, so this is the only pointer.
        let block = unsafe { Box::from_raw(block.cast_mut()) };
        // SAFETY: allocated in `Pool::new` with this layout, and freed only here.
        unsafe { alloc::dealloc(block.memory.as_ptr(), block.layout) };
    }
}

/// Why a pool cannot return a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// Every slot is in use.
    #[error("all {slots} packet buffers are in use")]
    Exhausted {
        /// The number of slots.
        slots: usize,
    },
    /// The packet is longer than a slot.
    #[error("a packet of {length} bytes is longer than a buffer of {room}")]
    TooLong {
        /// The packet's length in bytes.
        length: usize,
        /// The slot's room in bytes.
        room: usize,
    },
}

/// A fixed number of packet buffers.
///
/// ```
/// use tapeworks_capture::LinkType;
/// use tapeworks_capture::pool::{Description, Pool};
///
/// # fn main() -> Result<(), tapeworks_capture::pool::PoolError> {
/// let mut pool = Pool::new(2, 1500);
/// let description =
///     Description { timestamp_ns: 0, entered_ns: 0, original_length: 5, link_type: LinkType::ETHERNET };
/// let packet = pool.packet(b"bytes", description)?;
/// let other = packet.clone();
/// assert_eq!(other.bytes(), b"bytes");
/// # Ok(())
/// # }
/// ```
pub struct Pool {
    block: NonNull<Block>,
    room: usize,
    /// The next slot to check.
    next: usize,
    /// The slot at which the pass ends, exclusive.
    end: usize,
    /// Number of held slots seen in this pass.
    held: usize,
}

// SAFETY: a pool owns the right to take slots; its memory is plain, and counts are atomic.
unsafe impl Send for Pool {}

impl Pool {
    /// Creates a pool of `slots` packets (at least one, at most [`MAX_SLOTS`]) of up to `packet_bytes` bytes each (at most
    /// [`MAX_CAPTURED_BYTES`]). All memory is allocated and touched here.
    ///
    /// # Panics
    /// If the memory would not fit into the address space. Aborts, like any allocation, if there is no memory.
    pub fn new(slots: usize, packet_bytes: usize) -> Self {
        let slots = slots.clamp(1, MAX_SLOTS);
        let room = packet_bytes.clamp(1, MAX_CAPTURED_BYTES);
        let stride = stride_of(room);
        let Ok(layout) = alloc::Layout::from_size_align(slots * stride, 4096) else {
            panic!("{slots} packet buffers of {stride} bytes do not fit into memory")
        };
        // SAFETY: the layout's size is not zero.
        let Some(memory) = NonNull::new(unsafe { alloc::alloc(layout) }) else { handle_alloc_error(layout) };
        // SAFETY: the allocation has this many bytes. Zeroed, so that every byte of a slot's room is initialised before any
        // read, and touched, so that the first use does not fault.
        unsafe { memory.write_bytes(0, layout.size()) };
        let unsettled = AtomicUsize::new(slots + 1);
        let block = Box::into_raw(Box::new(Block { memory, layout, slots, stride, unsettled }));
        for index in 0..slots {
            // SAFETY: the block was just created and is not shared yet.
            let slot = unsafe { &*block }.slot(index);
            let description = Description {
                timestamp_ns: 0,
                entered_ns: 0,
                original_length: 0,
                link_type: LinkType::ETHERNET,
            };
            let content = Content { start: 0, length: 0, description, layout: Layout::default() };
            // SAFETY: the slot lies in the allocation, is aligned (the memory to a page, the stride to the header), and
            // no other thread has its address.
            unsafe {
                slot.write(Slot { holders: AtomicU32::new(0), content: UnsafeCell::new(content), block });
            }
        }
        // SAFETY: `Box::into_raw` never returns null.
        let block = unsafe { NonNull::new_unchecked(block) };
        Self { block, room, next: 0, end: slots.min(LEAST_PASS), held: 0 }
    }

    /// Returns the memory in bytes that a pool of `slots` packets of up to `packet_bytes` bytes needs.
    pub fn bytes(slots: usize, packet_bytes: usize) -> usize {
        slots.clamp(1, MAX_SLOTS) * stride_of(packet_bytes.clamp(1, MAX_CAPTURED_BYTES))
    }

    fn block(&self) -> &Block {
        // SAFETY: the block lives at least until the pool releases its share, in `drop`.
        unsafe { self.block.as_ref() }
    }

    /// Returns the number of slots.
    pub fn slots(&self) -> usize {
        self.block().slots
    }

    /// Returns the maximum packet length in bytes.
    pub fn packet_bytes(&self) -> usize {
        self.room
    }

    /// Takes a free slot to be filled.
    #[inline]
    pub fn blank(&mut self) -> Result<Blank, PoolError> {
        let slot = self.find_free()?;
        self.step();
        // SAFETY: slots are valid as long as the block is. Only the pool's owner raises a count from zero, and `&mut self` is
        // the owner.
        unsafe { &(*slot.as_ptr()).holders }.store(1, Ordering::Relaxed);
        Ok(Blank { packet: Packet { slot }, room: self.room })
    }

    /// Moves to the next slot.
    #[inline]
    fn step(&mut self) {
        self.next += 1;
        if self.next == self.end {
            self.end_pass();
        }
    }

    /// Starts a new pass, or extends this one if many of its slots were held, or if its first slot, which was taken longest
    /// ago, still is.
    #[cold]
    fn end_pass(&mut self) {
        let slots = self.slots();
        if self.end == slots || self.held <= self.end / 4 && self.is_free(0) {
            (self.next, self.end, self.held) = (0, slots.min(LEAST_PASS), 0);
        } else {
            self.end = slots.min(2 * self.end);
        }
    }

    /// Returns whether a slot has no holder.
    #[inline]
    fn is_free(&self, index: usize) -> bool {
        let slot = self.block().slot(index);
        // SAFETY: slots are valid as long as the block is. Acquire: the last holder's accesses happen before this.
        unsafe { &(*slot.as_ptr()).holders }.load(Ordering::Acquire) == 0
    }

    /// Moves `next` to the next free slot and returns it.
    #[inline]
    fn find_free(&mut self) -> Result<NonNull<Slot>, PoolError> {
        let slots = self.slots();
        // Check the rest of a short pass, then every slot: a pass that finds all slots held ends at the last slot.
        let rest = if self.end == slots { 0 } else { self.end - self.next };
        for _ in 0..slots + rest {
            if self.is_free(self.next) {
                return Ok(self.block().slot(self.next));
            }
            self.held += 1;
            self.step();
        }
        Err(PoolError::Exhausted { slots })
    }

    /// Copies these bytes into a new packet.
    #[inline]
    pub fn packet(&mut self, bytes: &[u8], description: Description) -> Result<Packet, PoolError> {
        if bytes.len() > self.room {
            return Err(PoolError::TooLong { length: bytes.len(), room: self.room });
        }
        let mut blank = self.blank()?;
        blank.room_mut()[..bytes.len()].copy_from_slice(bytes);
        Ok(blank.fill(bytes.len(), description))
    }

    /// Returns whether a packet can be taken now.
    #[inline]
    pub fn has_room(&mut self) -> bool {
        self.find_free().is_ok()
    }

    /// Returns the number of slots in use. This checks every slot, so it is meant for tests and reports.
    pub fn in_use(&self) -> usize {
        let block = self.block();
        let is_held = |index: &usize| {
            // SAFETY: slots are valid as long as the block is.
            unsafe { &(*block.slot(*index).as_ptr()).holders }.load(Ordering::Relaxed) > 0
        };
        (0..block.slots).filter(is_held).count()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let block = self.block.as_ptr().cast_const();
        let mut free = 1;
        for index in 0..self.block().slots {
            let slot = self.block().slot(index);
            // SAFETY: slots are valid as long as the block is, which this pool's own share keeps alive.
            let holders = unsafe { &(*slot.as_ptr()).holders };
            if holders.fetch_or(ORPHANED, Ordering::AcqRel) == 0 {
                free += 1;
            }
        }
        // SAFETY: the counted slots have no holder, and none can be taken any more; one more is for the pool itself.
        unsafe { Block::release(block, free) };
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Pool")
            .field("slots", &self.slots())
            .field("packet_bytes", &self.room)
            .finish()
    }
}

/// A slot that has been taken but not filled. Dropping it frees the slot.
#[derive(Debug)]
pub struct Blank {
    packet: Packet,
    room: usize,
}

impl Blank {
    /// Returns the buffer for the packet's bytes.
    #[inline]
    pub fn room_mut(&mut self) -> &mut [u8] {
        // SAFETY: the room begins after header and headroom and has this many bytes, all initialised when the pool was
        // created; this is the slot's only handle, so no other code reads or writes it.
        unsafe {
            let first = self.packet.slot.as_ptr().cast::<u8>().add(HEADER_BYTES + HEADROOM_BYTES);
            std::slice::from_raw_parts_mut(first, self.room)
        }
    }

    /// Turns the first `length` bytes of the room into a packet. `length` is capped at the room.
    #[inline]
    pub fn fill(mut self, length: usize, description: Description) -> Packet {
        let length = length.min(self.room);
        let layout = Layout::of(description.link_type, &self.room_mut()[..length]);
        // Lengths are below `MAX_CAPTURED_BYTES`, so they fit 32 bits.
        let content = Content { start: HEADROOM_BYTES as u32, length: length as u32, description, layout };
        // SAFETY: this is the only handle, so no other code reads or writes the content.
        unsafe { *(*self.packet.slot.as_ptr()).content.get() = content };
        self.packet
    }
}

/// A handle to a packet in a [`Pool`]. Clones share the bytes.
pub struct Packet {
    slot: NonNull<Slot>,
}

// SAFETY: a handle gives shared access to memory that no one changes while there are several handles, like an `Arc<[u8]>`;
// counts are atomic.
unsafe impl Send for Packet {}
// SAFETY: as above; `&Packet` only reads and clones.
unsafe impl Sync for Packet {}

impl Packet {
    #[inline]
    fn content(&self) -> &Content {
        // SAFETY: the slot lives as long as a handle to it. The content changes only through `&mut` of the only handle,
        // so not while this borrow lasts.
        unsafe { &*(*self.slot.as_ptr()).content.get() }
    }

    #[inline]
    fn holders(&self) -> &AtomicU32 {
        // SAFETY: the slot lives as long as a handle to it.
        unsafe { &(*self.slot.as_ptr()).holders }
    }

    /// Returns the packet's bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        let content = self.content();
        // SAFETY: start and length lie inside the slot's headroom and room, an invariant of `Blank::fill` and the tag
        // operations; the bytes are initialised and do not change during a shared borrow of a handle.
        unsafe {
            let first =
                self.slot.as_ptr().cast_const().cast::<u8>().add(HEADER_BYTES + content.start as usize);
            std::slice::from_raw_parts(first, content.length as usize)
        }
    }

    /// Returns the packet's metadata.
    #[inline]
    pub fn description(&self) -> &Description {
        &self.content().description
    }

    /// Returns the offsets of the packet's headers.
    #[inline]
    pub fn layout(&self) -> &Layout {
        &self.content().layout
    }

    /// Returns whether this is the only handle. Only then may the packet be changed.
    #[inline]
    pub fn is_unique(&self) -> bool {
        // Acquire: the reads of released holders happen before the writes here.
        self.holders().load(Ordering::Acquire) & !ORPHANED == 1
    }

    /// Makes this the only handle, by copying the packet into `pool` if there are others.
    ///
    /// # Errors
    /// [`PoolError`] if a copy is needed and `pool` has no room for it; the packet stays unchanged.
    #[inline]
    pub fn make_unique(&mut self, pool: &mut Pool) -> Result<(), PoolError> {
        if self.is_unique() {
            return Ok(());
        }
        let bytes = self.bytes();
        if bytes.len() > pool.room {
            return Err(PoolError::TooLong { length: bytes.len(), room: pool.room });
        }
        let mut blank = pool.blank()?;
        blank.room_mut()[..bytes.len()].copy_from_slice(bytes);
        let (from, to) = (self.content(), blank.packet.slot);
        let content = Content {
            start: HEADROOM_BYTES as u32,
            length: from.length,
            description: from.description,
            layout: from.layout,
        };
        // SAFETY: `to` is the slot of a blank, and we hold its only handle.
        unsafe { *(*to.as_ptr()).content.get() = content };
        *self = blank.packet;
        Ok(())
    }

    /// Returns the slot after its header, up to the packet's end, and the content, for a change.
    #[inline]
    fn parts_mut(&mut self) -> Option<(&mut [u8], &mut Content)> {
        if !self.is_unique() {
            return None;
        }
        // SAFETY: this is the only handle and it is borrowed exclusively, so no other code reads or writes slot and
        // content; the headroom and the packet's bytes lie inside the slot and are initialised.
        unsafe {
            let content = &mut *(*self.slot.as_ptr()).content.get();
            let end = content.start as usize + content.length as usize;
            let first = self.slot.as_ptr().cast::<u8>().add(HEADER_BYTES);
            Some((std::slice::from_raw_parts_mut(first, end), content))
        }
    }

    /// Rewrites headers. Returns `None` and changes nothing if there are other handles.
    #[inline]
    pub fn rewrite(&mut self, rewrite: &Rewrite) -> Option<Unfit> {
        let (slot, content) = self.parts_mut()?;
        Some(rewrite.apply(&mut slot[content.start as usize..], &content.layout))
    }

    /// Pushes an outermost VLAN tag. Returns `None` if there are other handles, and `Some(false)` if the packet is not an
    /// Ethernet frame or has no room before it ([`HEADROOM_BYTES`]).
    #[inline]
    pub fn push_tag(&mut self, vlan: u16) -> Option<bool> {
        let (slot, content) = self.parts_mut()?;
        let Some(start) =
            (content.start as usize).checked_sub(TAG_BYTES).filter(|_| content.layout.is_ethernet)
        else {
            return Some(false);
        };
        if !rewrite::push_tag(&mut slot[start..], vlan) {
            return Some(false);
        }
        content.start -= TAG_BYTES as u32;
        content.length += TAG_BYTES as u32;
        content.description.original_length =
            content.description.original_length.saturating_add(TAG_BYTES as u32);
        content.layout = Layout::of(content.description.link_type, &slot[start..]);
        Some(true)
    }

    /// Removes the outermost VLAN tag. Returns `None` if there are other handles, and `Some(false)` if there is no tag.
    #[inline]
    pub fn pop_tag(&mut self) -> Option<bool> {
        let (slot, content) = self.parts_mut()?;
        if !rewrite::pop_tag(&mut slot[content.start as usize..], &content.layout) {
            return Some(false);
        }
        content.start += TAG_BYTES as u32;
        content.length -= TAG_BYTES as u32;
        content.description.original_length =
            content.description.original_length.saturating_sub(TAG_BYTES as u32);
        content.layout = Layout::of(content.description.link_type, &slot[content.start as usize..]);
        Some(true)
    }
}

impl Clone for Packet {
    #[inline]
    fn clone(&self) -> Self {
        // Relaxed: the caller already holds a handle, as with `Arc`.
        let before = self.holders().fetch_add(1, Ordering::Relaxed) & !ORPHANED;
        if before > MAX_HOLDERS {
            // Only leaking handles in a loop can get here. As with `Arc`, there is no safe way to continue: the count would
            // run into the orphan flag, or wrap to zero while handles are alive.
            std::process::abort();
        }
        Self { slot: self.slot }
    }
}

impl Drop for Packet {
    #[inline]
    fn drop(&mut self) {
        // Release: reads and writes through this handle happen before the slot is taken again.
        if self.holders().fetch_sub(1, Ordering::Release) == ORPHANED | 1 {
            fence(Ordering::Acquire);
            // SAFETY: the pool has been dropped and this was the slot's last handle, so the slot is released here and only
            // here; `block` was written when the pool was created and never changes.
            unsafe { Block::release((*self.slot.as_ptr()).block, 1) };
        }
    }
}

impl fmt::Debug for Packet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Packet")
            .field("length", &self.bytes().len())
            .field("description", self.description())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn description(length: usize) -> Description {
        Description {
            timestamp_ns: 7,
            entered_ns: 0,
            original_length: length as u32,
            link_type: LinkType::ETHERNET,
        }
    }

    #[test]
    fn a_slot_is_free_again_when_the_last_holder_lets_go() {
        let mut pool = Pool::new(2, 100);
        let first = pool.packet(b"one", description(3)).unwrap();
        let again = first.clone();
        let _second = pool.packet(b"two", description(3)).unwrap();
        assert_eq!(pool.packet(b"three", description(5)).unwrap_err(), PoolError::Exhausted { slots: 2 });
        drop(first);
        assert!(!pool.has_room());
        assert_eq!(again.bytes(), b"one");
        drop(again);
        assert_eq!(pool.in_use(), 1);
        assert_eq!(pool.packet(b"three", description(5)).unwrap().bytes(), b"three");
    }

    #[test]
    fn packets_that_are_released_soon_stay_in_few_slots() {
        let mut pool = Pool::new(10_000, 100);
        let mut used = |held: usize| {
            let (mut slots, mut queue) =
                (std::collections::BTreeSet::new(), std::collections::VecDeque::new());
            for _ in 0..50_000 {
                let packet = pool.packet(b"one", description(3)).unwrap();
                slots.insert(packet.bytes().as_ptr());
                queue.push_back(packet);
                if queue.len() > held {
                    queue.pop_front();
                }
            }
            slots.len()
        };
        assert_eq!(used(0), LEAST_PASS);
        assert!((1_000..8_000).contains(&used(1_000)));
        assert_eq!(used(9_000), 10_000);
        assert_eq!(used(0), LEAST_PASS, "a long pass is not forever");
    }

    proptest! {
        #[test]
        fn a_slot_is_found_as_long_as_one_is_free(slots in 1usize..300, steps in prop::collection::vec((0u8..4, any::<usize>()), 1..2_000)) {
            let mut pool = Pool::new(slots, 10);
            let mut held = Vec::new();
            for (step, choice) in steps {
                // Three of four steps take a packet, so that the pool fills up.
                if step > 0 {
                    let packet = pool.packet(b"one", description(3));
                    prop_assert_eq!(packet.is_ok(), held.len() < slots);
                    held.extend(packet);
                } else if !held.is_empty() {
                    held.swap_remove(choice % held.len());
                }
            }
        }
    }

    #[test]
    fn a_packet_longer_than_a_slot_is_refused() {
        let mut pool = Pool::new(1, 4);
        let error = pool.packet(b"12345", description(5)).unwrap_err();
        assert_eq!(error, PoolError::TooLong { length: 5, room: 4 });
        assert_eq!(pool.in_use(), 0);
    }

    #[test]
    fn a_shared_buffer_is_copied_before_a_change_and_a_sole_one_is_not() {
        let mut pool = Pool::new(4, 100);
        let mut copies = Pool::new(4, 100);
        let mut packet = pool.packet(&[1; 60], description(60)).unwrap();
        let shared = packet.clone();
        let rewrite = Rewrite { source_mac: Some([9; 6]), ..Rewrite::default() };
        assert_eq!(packet.rewrite(&rewrite), None);
        packet.make_unique(&mut copies).unwrap();
        assert!(packet.rewrite(&rewrite).is_some());
        assert_eq!((pool.in_use(), copies.in_use()), (1, 1));
        assert_eq!(shared.bytes(), [1; 60]);
        assert_eq!(packet.bytes()[6..12], [9; 6]);
        let mut shared = shared;
        shared.make_unique(&mut copies).unwrap();
        assert_eq!(copies.in_use(), 1, "alone: nothing is copied");
    }

    #[test]
    fn tags_go_into_the_headroom_until_it_is_full() {
        let mut pool = Pool::new(1, 100);
        let mut packet = pool.packet(&[1; 60], description(60)).unwrap();
        let pushed = (0..).take_while(|vlan| packet.push_tag(*vlan).unwrap()).count();
        assert_eq!(pushed, HEADROOM_BYTES / TAG_BYTES);
        assert_eq!(packet.bytes().len(), 60 + HEADROOM_BYTES);
        assert_eq!(packet.description().original_length, 60 + HEADROOM_BYTES as u32);
        for vlan in (0..pushed as u16).rev() {
            assert_eq!(packet.layout().vlan(packet.bytes()), Some(vlan));
            assert_eq!(packet.pop_tag(), Some(true));
        }
        assert_eq!(packet.pop_tag(), Some(false));
        assert_eq!(packet.bytes(), [1; 60]);
    }

    #[test]
    fn handles_outlive_their_pool_on_whatever_thread() {
        for round in 0..200 {
            let mut pool = Pool::new(8, 64);
            let packets: Vec<Packet> =
                (0..8).map(|index| pool.packet(&[index; 10], description(10)).unwrap()).collect();
            let others = packets.clone();
            let reader = std::thread::spawn(move || {
                for (index, packet) in others.into_iter().enumerate() {
                    assert_eq!(packet.bytes(), [index as u8; 10]);
                }
            });
            if round % 2 == 0 {
                drop(pool);
                drop(packets);
            } else {
                drop(packets);
                drop(pool);
            }
            reader.join().unwrap();
        }
    }

    #[test]
    fn a_packet_sent_to_another_thread_is_whole_while_slots_are_taken_anew() {
        let (sender, receiver) = std::sync::mpsc::sync_channel::<Packet>(16);
        let reader = std::thread::spawn(move || {
            let mut seen = 0u64;
            for packet in receiver {
                let bytes = packet.bytes();
                assert!(bytes.iter().all(|byte| *byte == bytes[0]));
                assert_eq!(packet.description().entered_ns, seen);
                seen += 1;
            }
            seen
        });
        let mut pool = Pool::new(20, 300);
        for number in 0..20_000u64 {
            let described = Description { entered_ns: number, ..description(300) };
            let packet = loop {
                match pool.packet(&[number as u8; 300], described) {
                    Ok(packet) => break packet,
                    Err(_) => std::thread::yield_now(),
                }
            };
            sender.send(packet).unwrap();
        }
        drop(sender);
        assert_eq!(reader.join().unwrap(), 20_000);
    }
}
